"""Quotients by multiplication are those of division, for all numbers below 2^31: where it could go
wrong, beside multiples of the divisor, and for divisors beside powers of two."""

from __future__ import annotations

import numpy as np
import pytest

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Param, walk
from vkchi.ir.interp import run
from vkchi.ir.verify import verify
from vkchi.passes.pipeline import PASSES, PROCESSOR, Pass
from vkchi.target.caps import FULL
from vkchi.types import Array, i32, u32

MOST = (1 << 31) - 1


def quotients(kind: str) -> Func:
    """y[k] = kind(a[k] of 31 bits, the length of x), one after the other."""
    x, a, y = (Param(Array.of(i32, 1), name) for name in "xay")
    t, k, b = Param(i32, "t"), Param(i32, "k"), Builder()
    with b.region() as body:
        with b.region(t) as outer:
            with b.region(k) as inner:
                number = b.emit("and", b.emit("load", b.emit("elem", a, k)), b.const(MOST, i32))
                divisor = b.emit("shape", x, attr=0)
                words = [b.emit("bitcast", v, type=u32) for v in (number, divisor)]
                found = b.emit("bitcast", b.emit(kind, *words), type=i32)
                b.emit("store", b.emit("elem", y, k), found)
                b.emit("yield")
            b.for_(b.const(0, i32), b.emit("shape", a, attr=0), (), inner)
            b.emit("yield")
        b.parallel((b.const(0, i32), b.const(1, i32)), outer)
        b.emit("yield")
    return Func("f", (x, a, y), body)


def dividends(n: int) -> list[int]:
    """Numbers beside multiples of n, the first and the last that there are, and some between."""
    last = MOST // n
    times = {0, 1, 2, last // 3, last // 2, last - 1, last}
    times |= {int(k) for k in np.random.default_rng(n).integers(0, last + 1, 6)}
    found = {k * n + d for k in times for d in (-1, 0, 1)} | {MOST, MOST - 1}
    return sorted(v for v in found if 0 <= v <= MOST)


def divisors() -> list[int]:
    near = {(1 << k) + d for k in range(31) for d in (-1, 0, 1)} | {MOST, 641, 6700417, 1_000_003}
    return sorted(n for n in near if 1 <= n <= MOST)


@pytest.mark.parametrize("kind", ["floordiv", "mod"])
def test_all_that_could_go_wrong(kind: str) -> None:
    """By the numbers that the pass writes, as the interpreter computes them."""
    fn = quotients(kind)
    new = PASSES["reciprocals"](fn)
    verify(new)
    (loop,) = [op for op in walk(new.body) if op.kind == "for"]
    assert not [op for op in walk(loop.regions[0]) if op.kind == kind]
    for n in divisors():
        a = np.array(dividends(n), np.int32)
        y = np.zeros(len(a), np.int32)
        x = np.lib.stride_tricks.as_strided(np.zeros(1, np.int32), (n,), (0,))
        run(new, {"x": x, "a": a, "y": y})
        want = a // n if kind == "floordiv" else a % n
        assert (y == want).all(), (n, a[y != want], y[y != want])


def test_only_where_it_pays() -> None:
    """Not on graphics cards, nor without 64-bit integers."""
    fn = quotients("mod")
    assert Pass("reciprocals", FULL)(fn) is fn
    assert Pass("reciprocals", PROCESSOR._replace(int64=False))(fn) is fn
    assert PASSES["reciprocals"](fn) is not fn
