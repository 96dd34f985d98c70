"""Small programs: scopes, types that variables keep, copies, empty blocks, several loops."""

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


def test_shadow_global() -> None:
    n = 5

    @ti.kernel
    def k() -> ti.i32:
        n = 3
        n += 1
        return n

    check(k() + n, 9)


def test_use_before_assign() -> None:
    n = 5

    @ti.kernel
    def k() -> ti.i32:
        a = n_unknown_later
        n_unknown_later = 3
        return a

    with pytest.raises(ti.TaichiNameError):
        k()


def test_inner_block_assign_outer() -> None:
    @ti.kernel
    def k(c: ti.i32) -> ti.i32:
        a = 1
        if c > 0:
            a = 2
            if c > 5:
                a = 3
        return a

    check([k(0), k(1), k(9)], [1, 2, 3])


def test_block_same_names() -> None:
    @ti.kernel
    def k(c: ti.i32) -> ti.i32:
        r = 0
        if c > 0:
            t = 1
            r = t
        else:
            t = 2.5
            r = t * 2
        return r

    check([k(1), k(-1)], [1, 5])


def test_same_var_two_loops() -> None:
    x = ti.field(ti.i32, 4)

    @ti.kernel
    def k():
        for i in range(4):
            t = i
            x[i] += t
        for i in range(4):
            t = i * 1.5
            x[i] += int(t)

    k()
    check(x, [0, 2, 5, 7])


def test_var_type_keeps_in_loop() -> None:
    @ti.kernel
    def k() -> ti.f32:
        s = 0
        for i in range(3):
            s += 0.6
        return s

    check(k(), 0.0)


def test_aug_float_to_int() -> None:
    @ti.kernel
    def k() -> ti.i32:
        a = 3
        a += 1.7
        a *= 1.5
        return a

    check(k(), 6)


def test_vec_aug_scalar() -> None:
    @ti.kernel
    def k() -> ti.i32:
        v = ti.Vector([1, 2, 3])
        v += 1
        v *= 2
        v -= ti.Vector([1, 1, 1])
        return v[0] * 100 + v[1] * 10 + v[2]

    check(k(), 357)


def test_vec_copy_semantics() -> None:
    @ti.kernel
    def k() -> ti.i32:
        v = ti.Vector([1, 2])
        w = v
        w[0] = 9
        return v[0] * 10 + w[0]

    check(k(), 19)


def test_field_elem_copy() -> None:
    x = ti.Vector.field(2, ti.i32, 1)

    @ti.kernel
    def k() -> ti.i32:
        v = x[0]
        v[0] = 9
        return x[0][0] * 10 + v[0]

    check(k(), 9)


def test_list_of_vecs() -> None:
    @ti.kernel
    def k() -> ti.i32:
        l = [ti.Vector([1, 2]), ti.Vector([3, 4])]
        l[0][1] = 7
        return l[0][1] * 10 + l[1][0]

    check(k(), 73)


def test_mat_from_vecs() -> None:
    @ti.kernel
    def k() -> ti.i32:
        a = ti.Vector([1, 2])
        b = ti.Vector([3, 4])
        m = ti.Matrix.rows([a, b])
        n = ti.Matrix.cols([a, b])
        return m[0, 1] * 10 + n[0, 1]

    check(k(), 23)


def test_nested_list_mat_vars() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        m = ti.Matrix([[a, a + 1], [a + 2, a + 3]])
        return m[1, 1] + m.n

    check(k(3), 8)


def test_mixed_vec_types() -> None:
    @ti.kernel
    def k() -> ti.f32:
        v = ti.Vector([1, 2.5])
        return v[0] / 2 + v[1]

    check(k(), 3.0)


def test_ann_args_builtin() -> None:
    @ti.kernel
    def k(a: int, b: float, c: bool) -> float:
        r = a + b
        if c:
            r += 100
        return r

    check([k(1, 2.5, True), k(1, 2.5, False)], [103.5, 3.5])


def test_print_none() -> None:
    @ti.kernel
    def k() -> ti.i32:
        x = 1
        pass
        if x:
            pass
        else:
            pass
        for i in range(3):
            pass
        return x

    check(k(), 1)


def test_assert_off() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        assert a > 5, "small"
        return a

    check(k(1), 1)


def test_nonlocal_kw() -> None:
    z = 1

    @ti.kernel
    def k():
        nonlocal z
        z = 2

    with pytest.raises(ti.TaichiSyntaxError):
        k()


def test_deep_nesting() -> None:
    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        s = 0
        for _ in range(1):
            for a in range(n):
                for b in range(a):
                    for c in range(b):
                        if a + b + c > 3:
                            if a % 2:
                                s += 1
                            else:
                                s += 2
        return s

    check(k(6), 25)


def test_kernel_long() -> None:
    x = ti.field(ti.i32, 8)

    @ti.kernel
    def k():
        for i in x:
            x[i] = i
        for i in x:
            x[i] = x[i] * 2
        for i in x:
            x[7 - i] += 1
        s = 0
        for i in x:
            s += x[i]
        x[0] = s

    k()
    check(x, [64, 3, 5, 7, 9, 11, 13, 15])
