"""The smaller or larger of a float and a constant is one comparison on a processor that keeps signs
of zeros: any number with any constant, in either order, the other one for NaN, -0 less than 0."""

from __future__ import annotations

import numpy as np
import pytest

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Param, has_kind
from vkchi.ir.interp import run_reference
from vkchi.ir.verify import verify
from vkchi.opt.math.arithmetic import lower_arithmetic
from vkchi.target.caps import FULL
from vkchi.types import Array, Tensor, f32, i32

PROCESSOR = FULL._replace(kind="cpu", subgroup_size=8, signed_zero_inf_nan_f32=True)
NUMBERS = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3e38], np.float32)


def program(kind: str, c: float, *, is_first: bool) -> Func:
    """y[i] = kind(x[i], c), or kind(c, x[i])."""
    x, y, i = Param(Array.of(f32, 1), "x"), Param(Array.of(f32, 1), "y"), Param(i32, "i")
    b = Builder()
    with b.region() as body:
        with b.region(i) as loop:
            operands = [b.emit("load", b.emit("elem", x, i)), b.const(c, f32)]
            found = b.emit(kind, *(operands[::-1] if is_first else operands))
            b.emit("store", b.emit("elem", y, i), found)
            b.emit("yield")
        b.parallel((b.const(0, i32), b.emit("shape", x, attr=0)), loop)
        b.emit("yield")
    return Func("f", (x, y), body)


def chosen(kind: str, x: np.float32, c: np.float32) -> np.float32:
    """By the order of numbers in which -0 comes before 0."""
    if np.isnan(x) or np.isnan(c):
        return c if np.isnan(x) else x
    ranked = sorted((x, c), key=lambda v: (v, not np.signbit(v)))
    return ranked[0 if kind == "min" else 1]


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("kind", ["min", "max"])
@pytest.mark.parametrize("c", NUMBERS[~np.isnan(NUMBERS)], ids=str)
def test_a_constant_and_any_number(kind: str, c: np.float32, is_first: bool) -> None:
    fn = lower_arithmetic(program(kind, float(c), is_first=is_first), PROCESSOR)
    verify(fn)
    assert not has_kind(fn.body, (kind,))
    found = np.zeros_like(NUMBERS)
    run_reference(fn, {"x": NUMBERS.copy(), "y": found})
    want = np.array([chosen(kind, x, c) for x in NUMBERS], np.float32)
    np.testing.assert_array_equal(found.view(np.int32), want.view(np.int32))


def test_nan_and_other_devices_have_an_instruction() -> None:
    of_nan, of_zero = (program("max", c, is_first=False) for c in (float("nan"), 0.0))
    assert has_kind(lower_arithmetic(of_nan, PROCESSOR).body, ("max",))
    assert has_kind(lower_arithmetic(of_zero, FULL).body, ("max",))


def test_a_vector_of_both_zeros_has_an_instruction() -> None:
    """No one of its components says for all which zero goes before the other."""
    pair = Tensor.of(f32, (2,))
    x, i = Param(Array.of(pair, 1), "x"), Param(i32, "i")
    b = Builder()
    with b.region() as body:
        with b.region(i) as loop:
            place = b.emit("elem", x, i)
            zeros = b.const(np.array([0.0, -0.0], np.float32), pair)
            b.emit("store", place, b.emit("max", b.emit("load", place), zeros))
            b.emit("yield")
        b.parallel((b.const(0, i32), b.emit("shape", x, attr=0)), loop)
        b.emit("yield")
    fn = lower_arithmetic(Func("f", (x,), body), PROCESSOR)
    assert has_kind(fn.body, ("max",))
