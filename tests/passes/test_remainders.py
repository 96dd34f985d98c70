"""Remainders without division are remainders, whatever the numbers are."""

from __future__ import annotations

import numpy as np
import pytest

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param
from vkchi.ir.interp import run_reference
from vkchi.ir.verify import verify
from vkchi.opt.math.remainders import DividendRange, build
from vkchi.types import Array, i32

LAST = 2**31 - 1
NUMBERS = [0, 1, 2, 3, 5, 7, 8, 13, 100, 2**30, LAST - 1, LAST]
BOTH = [*NUMBERS, *(-n for n in NUMBERS), -LAST - 1]


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize("is_natural", [False, True])
def test_any_numbers(below: bool, above: bool, is_natural: bool) -> None:
    divisors = [n for n in (NUMBERS if is_natural else BOTH) if n]
    pairs = np.array([(a, n) for a in BOTH for n in divisors], np.int64)
    x, n, out = (Param(Array.of(i32, 1), name) for name in ("x", "n", "out"))
    b, i = Builder(), Param(i32, "i")
    with b.region() as body:
        with b.region(i) as inner:
            args = tuple(b.emit("load", b.emit("elem", array, i)) for array in (x, n))
            op = Op("mod", args, None, i32)
            found = build(b, op, args, DividendRange(below, above), is_natural=is_natural)
            b.emit("store", b.emit("elem", out, i), found)
            b.emit("yield")
        b.parallel((b.const(0, i32), b.emit("shape", x, attr=0)), inner)
        b.emit("yield")
    fn = Func("f", (x, n, out), body)
    verify(fn)
    given = {"x": pairs[:, 0].astype(np.int32), "n": pairs[:, 1].astype(np.int32)}
    got = run_reference(fn, {**given, "out": np.zeros(len(pairs), np.int32)})["out"]
    want = (pairs[:, 0] % pairs[:, 1]).astype(np.int32)
    assert (got == want).all()
