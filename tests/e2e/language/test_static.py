"""`ti.static`: unrolled loops, compile-time conditions, comprehensions, assertions."""

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


def test_static_range_neg() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for i in ti.static(range(5, 0, -2)):
            s = s * 10 + i
        return s

    check(k(), 531)


def test_static_zip() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for a, b in ti.static(zip([1, 2], [3, 4])):
            s += a * b
        return s

    check(k(), 11)


def test_static_enum() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for i, b in ti.static(enumerate([5, 6])):
            s += i * 10 + b
        return s

    check(k(), 21)


@pytest.mark.ours("static-dict-views")
def test_static_dict() -> None:
    d = {1: 10, 2: 20}

    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for a, b in ti.static(d.items()):
            s += a * b
        for a in ti.static(d.keys()):
            s += a
        for a in ti.static(d.values()):
            s += a
        for a in ti.static(d):
            s += a * 1000
        return s

    check(k(), 3083)


def test_static_list_of_tuples() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for a, b in ti.static([(1, 2), (3, 4)]):
            s = s * 100 + a * 10 + b
        return s

    check(k(), 1234)


def test_static_strs() -> None:
    x = ti.field(ti.i32, 3)

    @ti.kernel
    def k():
        for i, nm in ti.static(enumerate(("a", "bb", "ccc"))):
            x[i] = len(nm)

    k()
    check(x, [1, 2, 3])


def test_static_ndrange() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for i, j in ti.static(ti.ndrange(2, 3)):
            s = s * 10 + i + j
        return s

    check(k(), 12123)


def test_static_ndrange_ranges() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for i, j in ti.static(ti.ndrange((1, 3), (-1, 1))):
            s = s * 10 + i + j + 1
        return s

    check(k(), 1223)


def test_static_grouped() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for I in ti.static(ti.grouped(ti.ndrange(2, 3))):
            s = s * 10 + I[0] + I[1]
        return s

    check(k(), 12123)


def test_static_grouped_vec() -> None:
    x = ti.field(ti.f32, (4, 4))

    @ti.kernel
    def k():
        base = ti.Vector([1, 1])
        for off in ti.static(ti.grouped(ti.ndrange(2, 2))):
            x[base + off] += off[0] + 2

    k()
    check(
        x, [[0.0, 0.0, 0.0, 0.0], [0.0, 2.0, 2.0, 0.0], [0.0, 3.0, 3.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    )


def test_static_list_comp() -> None:
    @ti.kernel
    def k() -> ti.i32:
        v = ti.Vector([i * 2 for i in range(3)])
        return v[0] + v[1] + v[2]

    check(k(), 6)


def test_list_comp_nested() -> None:
    @ti.kernel
    def k() -> ti.i32:
        m = ti.Matrix([[i * 2 + j for j in range(2)] for i in range(2)])
        return m[1, 0] * 10 + m[1, 1]

    check(k(), 23)


def test_list_comp_if() -> None:
    @ti.kernel
    def k() -> ti.i32:
        v = ti.Vector([i for i in range(5) if i % 2 == 0])
        return v[0] + v[1] + v[2]

    check(k(), 6)


def test_list_comp_static() -> None:
    @ti.kernel
    def k() -> ti.i32:
        v = ti.Vector([i for i in ti.static(range(5)) if ti.static(i % 2)])
        return v.sum()

    check(k(), 4)


def test_list_comp_two() -> None:
    @ti.kernel
    def k() -> ti.i32:
        v = ti.Vector([i * 10 + j for i in range(2) for j in range(2)])
        return v.sum()

    check(k(), 22)


def test_list_comp_zip() -> None:
    @ti.kernel
    def k() -> ti.i32:
        v = ti.Vector([a * b for a, b in zip([1, 2], [3, 4])])
        return v.sum()

    check(k(), 11)


def test_list_comp_vec() -> None:
    @ti.kernel
    def k() -> ti.i32:
        w = ti.Vector([1, 2, 3])
        v = ti.Vector([w[i] + 1 for i in range(3)])
        return v.sum()

    check(k(), 9)


def test_list_comp_elems() -> None:
    @ti.kernel
    def k() -> ti.i32:
        w = [1, 2, 3]
        v = ti.Vector([x + 1 for x in w])
        return v.sum()

    check(k(), 9)


def test_dict_comp() -> None:
    @ti.kernel
    def k() -> ti.i32:
        d = {i: i * i for i in range(3)}
        return d[2]

    check(k(), 4)


def test_dict_literal() -> None:
    @ti.kernel
    def k() -> ti.i32:
        d = {"a": 1, "b": 2}
        return d["b"]

    check(k(), 2)


def test_static_ternary() -> None:
    n = 3

    @ti.kernel
    def k() -> ti.i32:
        a = 5 if ti.static(n > 2) else 6
        return a

    check(k(), 5)


def test_static_expr() -> None:
    n = 3

    @ti.kernel
    def k() -> ti.i32:
        a = ti.static(n * 2 + 1)
        return a

    check(k(), 7)


def test_static_alias() -> None:
    x = ti.field(ti.i32, 3)
    y = ti.field(ti.i32, 3)

    @ti.kernel
    def k():
        a, b = ti.static(x, y)
        for i in a:
            b[i] = i
            a[i] = 2

    k()
    check([x, y], [[2, 2, 2], [0, 1, 2]])


def test_static_assert() -> None:
    n = 3

    @ti.kernel
    def k() -> ti.i32:
        ti.static_assert(n == 3, "n must be 3")
        return n

    check(k(), 3)


def test_static_assert_fail() -> None:
    n = 4

    @ti.kernel
    def k() -> ti.i32:
        ti.static_assert(n == 3, "n must be 3")
        return n

    with pytest.raises(ti.TaichiCompilationError):
        k()


def test_static_assert_f() -> None:
    n = 4

    @ti.kernel
    def k() -> ti.i32:
        ti.static_assert(n == 3, f"n must be 3, not {n}")
        return n

    with pytest.raises(ti.TaichiCompilationError):
        k()


def test_static_print() -> None:
    n = 4

    @ti.kernel
    def k() -> ti.i32:
        ti.static_print("hello", n, f"{n}")
        return n

    check(k(), 4)


def test_static_if_undefined() -> None:
    n = 4

    @ti.kernel
    def k() -> ti.i32:
        r = 0
        if ti.static(n == 5):
            r = undefined_name
        return r

    check(k(), 0)


def test_static_if_var_scope() -> None:
    n = 4

    @ti.kernel
    def k() -> ti.i32:
        if ti.static(n == 4):
            r = 5
        else:
            r = 6
        return r

    with pytest.raises(ti.TaichiNameError):
        k()


@pytest.mark.ours("leaving-unrolled-loops")
def test_static_break() -> None:
    @ti.kernel
    def k() -> ti.i32:
        r = 0
        for i in ti.static(range(5)):
            if i == 3:
                break
            r += i
        return r

    check(k(), 3)


def test_static_static_break() -> None:
    @ti.kernel
    def k() -> ti.i32:
        r = 0
        for i in ti.static(range(5)):
            if ti.static(i == 3):
                break
            if ti.static(i == 1):
                continue
            r += i
        return r

    check(k(), 2)


@pytest.mark.ours("leaving-unrolled-loops")
def test_static_for_nonstatic_if_continue() -> None:
    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        r = 0
        for i in ti.static(range(5)):
            if i == n:
                continue
            r += i
        return r

    check(k(2), 8)


def test_in_static() -> None:
    @ti.kernel
    def k(a: ti.template()) -> ti.i32:
        r = 0
        if ti.static(a in [1, 2, 3]):
            r = 1
        if ti.static(a not in (1, 2)):
            r += 10
        return r

    check([k(1), k(3), k(5)], [1, 11, 10])


def test_in_nonstatic() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        r = 0
        if a in [1, 2, 3]:
            r = 1
        return r

    with pytest.raises(ti.TaichiSyntaxError):
        k(1), k(5)


@pytest.mark.ours("static-of-vectors")
def test_for_static_vec() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        v = ti.Vector([1, 2])
        for a in ti.static(v):
            s += a
        return s

    assert k() == 3


def test_for_list_nonstatic() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for a in [1, 2]:
            s += a
        return s

    with pytest.raises(ti.TaichiCompilationError):
        k()


def test_len() -> None:
    x = ti.field(ti.i32, 8)

    @ti.kernel
    def k() -> ti.i32:
        v = ti.Vector([1, 2, 3])
        return len(v) + len([1, 2]) + x.shape[0]

    check(k(), 13)
