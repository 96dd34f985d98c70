"""A comparison of a square root with a constant equals that of the radicand: for numbers around the
bound, one after the other, for zeros, infinities, NaN, subnormals, and any others."""

from __future__ import annotations

import numpy as np
import pytest

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Param, walk
from vkchi.ir.interp import run_reference
from vkchi.ir.verify import verify
from vkchi.opt.rewrite.roots import compare_squares, least_square
from vkchi.types import SCALARS, Array, Scalar, i32, u1

CONSTANTS = (20.0, 1.0, 2.0, 0.1, 3.0e-10, 1e-18, 1e18, 0.3, 1.0000001, 12345.678)


def program(kind: str, t: Scalar, c: float) -> Func:
    """y[i] = sqrt(x[i]) kind c."""
    x, y, i, b = Param(Array.of(t, 1), "x"), Param(Array.of(u1, 1), "y"), Param(i32, "i"), Builder()
    with b.region() as body:
        with b.region(i) as loop:
            root = b.emit("sqrt", b.emit("load", b.emit("elem", x, i)))
            b.emit("store", b.emit("elem", y, i), b.emit(kind, root, b.const(c, t)))
            b.emit("yield")
        b.parallel((b.const(0, i32), b.emit("shape", x, attr=0)), loop)
        b.emit("yield")
    return Func("f", (x, y), body)


def numbers(t: Scalar, c: float) -> np.ndarray:
    """Numbers that tell roots apart."""
    bits = np.dtype(f"u{t.bits // 8}")
    near = np.array(np.square(t.dtype.type(c))).view(bits)
    around = (near + np.arange(-100, 100).astype(bits)).view(t.dtype)
    limits = np.finfo(t.dtype)
    odd = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        -1.0,
        limits.tiny,
        limits.max,
        limits.smallest_subnormal,
    ]
    rng = np.random.default_rng(5)
    any_ = rng.integers(0, np.iinfo(bits).max, 300, bits).view(t.dtype)
    return np.concatenate([around, np.array(odd, t.dtype), any_])


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("kind", ["lt", "le", "gt", "ge"])
def test_sqrt_comparison_matches_original(kind: str, name: str) -> None:
    t = SCALARS[name]
    for c in CONSTANTS:
        fn = program(kind, t, c)
        new = compare_squares(fn)
        verify(new)
        found = [
            {"x": numbers(t, c), "y": np.zeros(len(numbers(t, c)), np.bool_)} for _ in range(2)
        ]
        with np.errstate(all="ignore"):
            run_reference(fn, found[0])
            run_reference(new, found[1])
        np.testing.assert_array_equal(found[0]["y"], found[1]["y"], err_msg=str(c))
        assert any(op.kind == "sqrt" and op in (x.args[0] for x in walk(new.body) if x.args)
                   for op in walk(new.body)) is False  # fmt: skip


@pytest.mark.parametrize("c", [0.0, -1.0, 1e-25, 1e25, np.inf, np.nan])
def test_constants_that_are_left(c: float) -> None:
    assert least_square(c, np.dtype(np.float32), is_above=False) is None
    fn = program("lt", SCALARS["f32"], c)
    assert compare_squares(fn) is fn
