"""Variables: assignment, unpacking, augmented assignment, slices, annotations, their types."""

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


def test_walrus() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        r = 0
        if (b := a * 2) > 3:
            r = b
        return r + b

    check([k(1), k(3)], [2, 12])


def test_multi_assign() -> None:
    @ti.kernel
    def k() -> ti.i32:
        a = b = 3
        a += 1
        return a * 10 + b

    check(k(), 43)


def test_swap() -> None:
    @ti.kernel
    def k() -> ti.i32:
        a, b = 1, 2
        a, b = b, a
        return a * 10 + b

    check(k(), 21)


def test_swap_field() -> None:
    x = ti.field(ti.i32, 2)

    @ti.kernel
    def k():
        x[0], x[1] = 1, 2
        x[0], x[1] = x[1], x[0]

    k()
    check(x, [2, 1])


def test_swap_vec() -> None:
    @ti.kernel
    def k() -> ti.i32:
        v = ti.Vector([1, 2])
        v[0], v[1] = v[1], v[0]
        return v[0] * 10 + v[1]

    check(k(), 21)


def test_starred() -> None:
    @ti.kernel
    def k() -> ti.i32:
        a, *b = 1, 2, 3
        return a * 100 + b[0] * 10 + b[1]

    with pytest.raises(ti.TaichiSyntaxError):
        k()


def test_unpack_vec() -> None:
    @ti.kernel
    def k() -> ti.i32:
        a, b, c = ti.Vector([1, 2, 3])
        return a * 100 + b * 10 + c

    check(k(), 123)


@pytest.mark.ours("nested-targets")
def test_unpack_nested() -> None:
    @ti.kernel
    def k() -> ti.i32:
        (a, b), c = (1, 2), 3
        return a * 100 + b * 10 + c

    check(k(), 123)


@pytest.mark.ours("nested-targets")
def test_unpack_list() -> None:
    @ti.kernel
    def k() -> ti.i32:
        [a, b] = [1, 2]
        return a * 10 + b

    check(k(), 12)


def test_aug_all() -> None:
    @ti.kernel
    def k() -> ti.i32:
        a = 100
        a += 5
        a -= 3
        a *= 2
        a //= 3
        a %= 50
        a <<= 2
        a >>= 1
        a |= 8
        a &= 29
        a ^= 3
        a **= 2
        return a

    a = 100
    a += 5
    a -= 3
    a *= 2
    a //= 3
    a %= 50
    a <<= 2
    a >>= 1
    a |= 8
    a &= 29
    a ^= 3
    a **= 2
    check([k() == a, k()], [True, 225])


def test_aug_div() -> None:
    @ti.kernel
    def k() -> ti.f32:
        a = 7.0
        a /= 2
        return a

    check(k(), 3.5)


def test_aug_div_int() -> None:
    @ti.kernel
    def k() -> ti.f32:
        a = 7
        a /= 2
        return a

    check(k(), 3.0)


def test_aug_field() -> None:
    x = ti.field(ti.f32, 3)

    @ti.kernel
    def k():
        for i in range(3):
            x[0] += i
            x[1] -= i
            ti.atomic_max(x[2], i)

    k()
    check(x, [3.0, -3.0, 2.0])


@pytest.mark.ours("vector-sums", run=False)
def test_aug_vec_field() -> None:
    x = ti.Vector.field(2, ti.f32, 3)

    @ti.kernel
    def k():
        for i in range(4):
            x[0] += ti.Vector([1.0, 2.0]) * i
            x[1][0] += 1
            x[2].y += 1

    k()
    check(x, [[6.0, 12.0], [4.0, 0.0], [0.0, 4.0]])


@pytest.mark.ours("matmul-assign")
def test_aug_matmul() -> None:
    @ti.kernel
    def k() -> ti.f32:
        a = ti.Matrix([[1.0, 2.0], [3.0, 4.0]])
        a @= a
        return a[0, 0]

    check(k(), 7.0)


def test_slice_vec() -> None:
    @ti.kernel
    def k() -> ti.i32:
        v = ti.Vector([1, 2, 3, 4])
        w = v[1:3]
        u = v[::2]
        return w[0] * 1000 + w[1] * 100 + u[0] * 10 + u[1]

    check(k(), 2313)


def test_slice_mat() -> None:
    @ti.kernel
    def k() -> ti.i32:
        m = ti.Matrix([[1, 2, 3], [4, 5, 6]])
        r = m[1, :]
        c = m[:, 2]
        return r[0] * 1000 + r[2] * 100 + c[0] * 10 + c[1]

    check(k(), 4636)


def test_slice_assign() -> None:
    @ti.kernel
    def k() -> ti.i32:
        v = ti.Vector([1, 2, 3, 4])
        v[1:3] = ti.Vector([7, 8])
        return v[0] * 1000 + v[1] * 100 + v[2] * 10 + v[3]

    check(k(), 1784)


def test_neg_index() -> None:
    @ti.kernel
    def k() -> ti.i32:
        v = ti.Vector([1, 2, 3, 4])
        return v[-1] * 10 + v[-2]

    with pytest.raises(ti.TaichiCompilationError):
        k()


def test_annassign() -> None:
    @ti.kernel
    def k() -> ti.f32:
        x: ti.i32 = 3.7
        y: ti.f32 = 2
        return x + y / 4

    check(k(), 3.5)


@pytest.mark.ours("python-types-of-variables")
def test_annassign_int() -> None:
    @ti.kernel
    def k() -> ti.f32:
        x: int = 3.7
        y: float = 2
        return x + y / 4

    check(k(), 3.5)


def test_annassign_i64() -> None:
    @ti.kernel
    def k() -> ti.i64:
        x: ti.i64 = 1
        x <<= 40
        return x

    check(k(), 1099511627776)


def test_same_name_types() -> None:
    @ti.kernel
    def k() -> ti.i32:
        a = 1
        a = 2.7
        return a * 10

    check(k(), 20)


def test_same_name_f() -> None:
    @ti.kernel
    def k() -> ti.f32:
        a = 1.5
        a = 2
        return a / 4

    check(k(), 0.5)


def test_same_name_vec() -> None:
    @ti.kernel
    def k() -> ti.i32:
        a = 1
        a = ti.Vector([1, 2])
        return a[0]

    with pytest.raises(ti.TaichiCompilationError):
        k()


def test_vec_to_scalar() -> None:
    @ti.kernel
    def k() -> ti.i32:
        a = ti.Vector([1, 2])
        a = 5
        return a[0] + a[1]

    check(k(), 10)


def test_vec_size_mismatch() -> None:
    @ti.kernel
    def k() -> ti.i32:
        a = ti.Vector([1, 2])
        a = ti.Vector([1, 2, 3])
        return a[0]

    with pytest.raises(ti.TaichiTypeError):
        k()


@pytest.mark.ours("loop-variables")
def test_assign_loopvar() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for i in range(3):
            i = i * 2
            s += i
        return s

    check(k(), 6)


def test_assign_arg() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        a = a + 1
        return a

    with pytest.raises(ti.TaichiSyntaxError):
        k(1)


def test_assign_func_arg() -> None:
    @ti.func
    def f(a):
        a += 1
        return a

    @ti.kernel
    def k() -> ti.i32:
        b = 1
        return f(b) * 10 + b

    check(k(), 21)


def test_tuple_local() -> None:
    @ti.kernel
    def k() -> ti.i32:
        t = (1, 2, 3)
        a, b, c = t
        return a + b * 10 + t[2] * 100 + len(t)

    check(k(), 324)


def test_list_local() -> None:
    @ti.kernel
    def k() -> ti.i32:
        t = [1, 2, 3]
        t.append(4)
        s = 0
        for i in ti.static(range(4)):
            s += t[i]
        return s

    check(k(), 10)
