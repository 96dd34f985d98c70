"""`ti.static` over lists, zips and fields; comprehensions; Python's functions of lists."""

from typing import Any, NamedTuple

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


@pytest.mark.ours("nested-static")
def test_static_min_len() -> None:
    l = [3, 1, 2]

    @ti.kernel
    def k() -> ti.i32:
        return ti.static(min(l)) * 100 + ti.static(max(l)) * 10 + ti.static(len(l))

    check(k(), 133)


def test_static_sorted() -> None:
    l = [3, 1, 2]

    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for i in ti.static(sorted(l)):
            s = s * 10 + i
        return s

    check(k(), 123)


@pytest.mark.ours("static-dict-views")
def test_static_reversed() -> None:
    l = [3, 1, 2]

    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for i in ti.static(reversed(l)):
            s = s * 10 + i
        return s

    check(k(), 213)


def test_static_nested() -> None:
    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for i in ti.static(range(3)):
            for j in ti.static(range(i)):
                s += i * 10 + j
        return s

    check(k(), 51)


def test_static_in_dynamic() -> None:
    x = ti.field(ti.i32, 3)

    @ti.kernel
    def k():
        for i in x:
            for j in ti.static(range(3)):
                if ti.static(j % 2 == 0):
                    x[i] += j
                else:
                    x[i] += 10

    k()
    check(x, [12, 12, 12])


@pytest.mark.ours("static-texts")
def test_static_str_format() -> None:
    @ti.kernel
    def k(n: ti.template()) -> ti.i32:
        ti.static_assert(f"{n}" == "5", "bad")
        return n

    check(k(5), 5)


def test_static_range_of_field_shape() -> None:
    x = ti.field(ti.i32, (2, 3))

    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for d in ti.static(range(len(x.shape))):
            s = s * 10 + x.shape[d]
        return s

    check(k(), 23)


def test_static_zip3() -> None:
    a = [1, 2]
    b = [3, 4]
    c = [5, 6]

    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for x, y, z in ti.static(zip(a, b, c)):
            s += x * y * z
        return s

    check(k(), 63)


@pytest.mark.ours("nested-targets")
def test_static_enumerate_zip() -> None:
    a = [1, 2]
    b = [3, 4]

    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for i, (x, y) in ti.static(enumerate(zip(a, b))):
            s += i * 100 + x * y
        return s

    check(k(), 111)


def test_static_fields() -> None:
    a = ti.field(ti.i32, 3)
    b = ti.field(ti.i32, 3)

    @ti.kernel
    def k():
        for f in ti.static([a, b]):
            for i in f:
                f[i] = i + 1

    k()
    check([a, b], [[1, 2, 3], [1, 2, 3]])


def test_static_fields_zip() -> None:
    a = ti.field(ti.i32, 3)
    b = ti.field(ti.i32, 3)

    @ti.kernel
    def k():
        for f, v in ti.static(zip((a, b), (5, 6))):
            for i in f:
                f[i] = v

    k()
    check([a, b], [[5, 5, 5], [6, 6, 6]])


def test_static_bool_ops() -> None:
    A = True
    B = False

    @ti.kernel
    def k() -> ti.i32:
        r = 0
        if ti.static(A and not B):
            r += 1
        if ti.static(A or B):
            r += 10
        if ti.static(not (A and B)):
            r += 100
        return r

    check(k(), 111)


def test_static_in_while() -> None:
    @ti.kernel
    def k() -> ti.i32:
        i = 0
        while i < 5:
            for j in ti.static(range(2)):
                i += j + 1
        return i

    check(k(), 6)


def test_list_comp_func() -> None:
    @ti.func
    def f(x):
        return x * x

    @ti.kernel
    def k() -> ti.i32:
        v = ti.Vector([f(i) for i in range(4)])
        return v.sum()

    check(k(), 14)


def test_list_comp_field() -> None:
    x = ti.field(ti.i32, 4)
    for i in range(4):
        x[i] = i + 1

    @ti.kernel
    def k() -> ti.i32:
        v = ti.Vector([x[i] for i in range(4)])
        return v.dot(v)

    check(k(), 30)


def test_list_comp_cond_expr() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        v = ti.Vector([i if i > 1 else a for i in range(4)])
        return v.sum()

    check(k(10), 25)


def test_sum_list() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        return sum([a, 2, 3])

    check(k(1), 6)


@pytest.mark.ours("lists-in-python-functions")
def test_py_max_list() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        return max([a, 2, 3])

    check(k(1), 3)


@pytest.mark.ours("lists-in-python-functions")
def test_any_all_list() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        return any([a > 1, a > 2])

    check([k(1), k(2)], [0, 1])


def test_comprehensions_over_vectors_and_matrices() -> None:
    x = ti.Vector.field(3, ti.i32, 2)
    x[1] = [1, 2, 3]

    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        m = ti.Matrix([[n, 2], [3, 4]])
        v = ti.Vector([n, 6])
        doubled = [c * 2 for c in x[1]]
        rows = [[c + 1 for c in row] for row in m]
        chosen = [c if c > 5 else 0 for c in v]
        firsts = {i: row[0] for i, row in enumerate(rows) if i > 0}
        return doubled[2] * 1000 + rows[1][1] * 100 + chosen[0] + chosen[1] * 10 + firsts[1]

    check(k(5), 6564)


@pytest.mark.ours("comprehension-conditions")
def test_conditions_of_comprehensions_at_run_time() -> None:
    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        return [i for i in range(5) if i > n][0]

    with pytest.raises(ti.TaichiCompilationError):
        k(2)


def test_a_list_is_not_repeated_by_a_run_time_count() -> None:
    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        v = ti.Vector([1, 2] * n)
        return v.sum()

    with pytest.raises(ti.TaichiCompilationError):
        k(3)


def test_a_list_is_repeated_at_compile_time() -> None:
    @ti.kernel
    def k() -> ti.i32:
        v = ti.Vector([1, 2] * 3)
        return v.sum() * 10 + v.n

    check(k(), 96)


class Pair(NamedTuple):
    x: float
    y: float

    def __radd__(self, other: Any) -> Any:
        return [other[0] + self.x, other[1] + self.y]


class Terms(list[Any]):
    def __radd__(self, other: Any) -> Any:
        return [*self, *other]

    def __add__(self, other: Any) -> Any:
        raise TypeError("no sum of terms")


def test_sums_of_sequences_use_reflected_operators_of_subclasses() -> None:
    pair, terms = Pair(10.0, 20.0), Terms([1, 2])

    @ti.kernel
    def of_constants() -> ti.types.vector(3, ti.f32):
        both = (1.0, 2.0) + pair
        return ti.Vector([both[0], both[1], ([3, 4] + terms)[0]])

    @ti.kernel
    def of_values(a: ti.f32) -> ti.types.vector(3, ti.f32):
        return ti.Vector([a, 4.0] + terms)[:3]

    @ti.kernel
    def added_by_python(a: ti.f32) -> ti.f32:
        return ((a, 2.0) + pair)[0]

    @ti.kernel
    def joined(a: ti.i32) -> ti.i32:
        return len([a] * 2 + [1] + 2 * [a, 3]) * 100 + ([a, 1] + ti.Vector([1, 2]))[0]

    check(of_constants(), [11.0, 22.0, 1.0])
    check(of_values(3.0), [1.0, 2.0, 3.0])
    check(joined(1), 702)
    with pytest.raises(ti.TaichiTypeError, match=r"__radd__\(\) raised TypeError"):
        added_by_python(3.0)


def test_a_type_error_of_an_operator_of_a_subclass_is_shown() -> None:
    terms = Terms([1, 2])

    @ti.kernel
    def of_constants() -> ti.i32:
        return len(terms + [1])

    @ti.kernel
    def of_values(a: ti.i32) -> ti.i32:
        return len(terms + [a])

    for call in (of_constants, lambda: of_values(1)):
        with pytest.raises((ti.TaichiCompilationError, TypeError), match="no sum of terms"):
            call()
