"""`ti.init(debug=True)`: division of integers by zero, and warnings of integer overflow."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import vkchi as ti

Init = Callable[..., None]
Warned = list[warnings.WarningMessage]
LEAST, MOST = -(2**31), 2**31 - 1


@pytest.fixture
def debug(init: Init) -> None:
    """Debug mode, for one test."""
    init(debug=True)


@contextmanager
def caught() -> Iterator[Warned]:
    """The warnings of a block, each line's once."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        yield found


# --- division ------------------------------------------------------------------------------------


@pytest.mark.ours("division-by-zero", run=False)
def test_quotient_and_remainder(debug: None) -> None:
    @ti.kernel
    def quotient(a: ti.i32, b: ti.i32) -> ti.i32:
        return a // b

    @ti.kernel
    def remainder(a: ti.i32, b: ti.i32) -> ti.i32:
        return a % b

    assert (quotient(-7, 2), remainder(-7, 2)) == (-4, 1)
    with pytest.raises(ZeroDivisionError, match="integer division by zero: 5 by 0"):
        quotient(5, 0)
    with pytest.raises(ti.TaichiAssertionError, match="integer modulo by zero: 5 by 0"):
        remainder(5, 0)
    assert quotient(9, 3) == 3


@pytest.mark.ours("division-by-zero", run=False)
def test_truncating_division(debug: None) -> None:
    @ti.kernel
    def run(a: ti.i32, b: ti.i32) -> ti.i32:
        return ti.raw_div(a, b) * 100 + ti.raw_mod(a, b)

    assert run(7, 2) == 301
    with pytest.raises(ZeroDivisionError):
        run(7, 0)


@pytest.mark.ours("division-by-zero", run=False)
def test_vectors_and_augmented_division(debug: None) -> None:
    x = ti.field(ti.i32, shape=4)

    @ti.kernel
    def run(n: ti.i32) -> ti.i32:
        for i in x:
            x[i] = 12
            x[i] //= i + n
        v = ti.Vector([6, 8]) // ti.Vector([n, 2])
        return v.sum()

    assert run(1) == 10
    assert x.to_numpy().tolist() == [12, 6, 4, 3]
    with pytest.raises(ZeroDivisionError) as error:
        run(0)
    assert "in the iteration i = 0" in str(error.value)
    assert "another check failed" in str(error.value)


@pytest.mark.ours("division-by-zero", run=False)
def test_short_circuit_guards_a_division(debug: None) -> None:
    @ti.kernel
    def run(a: ti.i32, b: ti.i32) -> ti.i32:
        return 1 if b != 0 and a % b == 0 else 0

    assert [run(6, 3), run(6, 4), run(6, 0)] == [1, 0, 0]


def test_floats_divide_by_zero(debug: None) -> None:
    @ti.kernel
    def run(a: ti.f32, b: ti.f32) -> ti.f32:
        return a / b

    assert run(1.0, 0.0) == float("inf")


# --- overflow ------------------------------------------------------------------------------------


@ti.kernel
def add(a: ti.i32, b: ti.i32) -> ti.i32:
    return a + b


@ti.kernel
def subtract(a: ti.i32, b: ti.i32) -> ti.i32:
    return a - b


@ti.kernel
def multiply(a: ti.i32, b: ti.i32) -> ti.i32:
    return a * b


@ti.kernel
def shift(a: ti.i32, b: ti.i32) -> ti.i32:
    return a << b


@ti.kernel
def divide(a: ti.i32, b: ti.i32) -> ti.i32:
    return a // b


@ti.kernel
def modulo(a: ti.i32, b: ti.i32) -> ti.i32:
    return a % b


OVERFLOWS = [
    (add, MOST, 1, LEAST, "Addition"),
    (add, LEAST, -1, MOST, "Addition"),
    (subtract, LEAST, 1, MOST, "Subtraction"),
    (subtract, 0, LEAST, LEAST, "Subtraction"),
    (multiply, 1 << 16, 1 << 16, 0, "Multiplication"),
    (multiply, 1 << 16, 1 << 15, LEAST, "Multiplication"),
    (multiply, -1, LEAST, LEAST, "Multiplication"),
    (multiply, LEAST, -1, LEAST, "Multiplication"),
    (multiply, -46341, 46341, 2147479015, "Multiplication"),
    (shift, 1 << 30, 1, LEAST, "Shift left"),
]
FITTING = [
    (add, MOST, LEAST, -1),
    (add, MOST, 0, MOST),
    (subtract, -1, LEAST, MOST),
    (subtract, 5, 7, -2),
    (multiply, -(1 << 16), 1 << 15, LEAST),
    (multiply, LEAST, 1, LEAST),
    (multiply, 0, LEAST, 0),
    (multiply, -46340, 46340, -2147395600),
    (shift, -1, 31, LEAST),
    (shift, 3, 4, 48),
]


@pytest.mark.ours("overflow-warnings")
@pytest.mark.parametrize(("kernel", "a", "b", "result", "word"), OVERFLOWS)
def test_signed_overflow_warns(
    debug: None, kernel: Any, a: int, b: int, result: int, word: str
) -> None:
    with caught() as found:
        assert kernel(a, b) == result
    (warning,) = found
    assert str(warning.message).startswith(f"{word} overflow detected in i32: {a} ")


@pytest.mark.ours("overflow-warnings", run=False)
@pytest.mark.parametrize("kernel", [divide, modulo])
def test_the_least_divided_by_minus_one(debug: None, kernel: Any) -> None:
    with caught() as found:
        kernel(LEAST, -1)
    (warning,) = found
    assert str(warning.message).startswith(f"Division overflow detected in i32: {LEAST} ")
    with caught() as found:
        assert [kernel(LEAST, 1), kernel(LEAST, 3), kernel(LEAST + 1, -1)] == {
            divide: [LEAST, LEAST // 3, MOST], modulo: [0, LEAST % 3, 0],
        }[kernel]  # fmt: skip
    assert not found


@pytest.mark.parametrize(("kernel", "a", "b", "result"), FITTING)
def test_no_overflow(debug: None, kernel: Any, a: int, b: int, result: int) -> None:
    with caught() as found:
        assert kernel(a, b) == result
    assert not found


@pytest.mark.ours("overflow-warnings")
def test_unsigned_overflow_warns(debug: None) -> None:
    @ti.kernel
    def run(a: ti.u32, b: ti.u32):
        print(a + b)
        print(a - b)
        print(a * b)

    with caught() as found:
        run(5, 3)
    assert not found
    with caught() as found:
        run(1 << 31, (1 << 31) + 1)
    words = [str(w.message).partition(":")[0] for w in found]
    names = ("Addition", "Subtraction", "Multiplication")
    assert words == [f"{name} overflow detected in u32" for name in names]


@pytest.mark.ours("overflow-warnings")
def test_a_line_warns_once(debug: None) -> None:
    x = ti.field(ti.i32, shape=1000)

    @ti.kernel
    def run(n: ti.i32):
        for i in x:
            x[i] = n + i

    with caught() as found:
        run(MOST)
        run(MOST)
    (warning,) = found
    assert warning.filename == __file__
    assert x[1] == LEAST


@pytest.mark.ours("overflow-warnings")
def test_location_of_an_overflow(debug: None) -> None:
    with caught() as found:
        add(MOST, 1)
    (warning,) = found
    assert warning.filename == __file__
    assert issubclass(warning.category, RuntimeWarning)


@pytest.mark.ours("overflow-warnings")
def test_atomic_sums(debug: None) -> None:
    x = ti.field(ti.i32, shape=2)
    y = ti.field(ti.u32, shape=())

    @ti.kernel
    def run(n: ti.i32, m: ti.u32):
        x[0] += n
        ti.atomic_sub(x[1], n)
        y[None] -= m

    y[None] = 5
    with caught() as found:
        run(MOST, 3)
        run(0, 2)
    assert not found
    with caught() as found:
        run(5, 1)
    assert len(found) == 3
    assert [x[0], x[1], y[None]] == [LEAST + 4, MOST - 3, 2**32 - 1]


@pytest.mark.ours("overflow-warnings")
def test_negation_and_vectors(debug: None) -> None:
    @ti.kernel
    def run(n: ti.i32) -> ti.i32:
        v = ti.Vector([n, 1]) * 2
        return -n + v[1]

    with caught() as found:
        assert run(3) == -1
    assert not found
    with caught() as found:
        assert run(LEAST) == LEAST + 2
    assert len(found) == 2


@pytest.mark.ours("overflow-warnings")
def test_warnings_can_be_errors(debug: None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="Addition overflow"):
            add(MOST, 1)
    assert add(1, 2) == 3


def test_release_mode_checks_nothing(init: Init) -> None:
    init(debug=False)
    with caught() as found:
        assert add(MOST, 1) == LEAST
        assert multiply(1 << 16, 1 << 16) == 0
    assert not found
