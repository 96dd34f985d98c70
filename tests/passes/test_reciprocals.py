"""Quotients by multiplication are those of division, for all numbers below 2^31: where it could go
wrong, beside multiples of the divisor, and for divisors beside powers of two; of narrow words, for
all that there are."""

from __future__ import annotations

import numpy as np
import pytest

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Param, walk
from vkchi.ir.interp import run_reference
from vkchi.ir.verify import verify
from vkchi.opt.pipeline import CPU, Pass
from vkchi.target.caps import FULL, Caps
from vkchi.target.magic import MAGIC, magic_multiplier, magic_shift_of
from vkchi.types import Array, i32, u32

MOST = (1 << 31) - 1


def quotients(kind: str, mask: int = MOST, extent: int | None = None) -> Func:
    """y[k] = kind(a[k] & mask, the length of x), one after the other."""
    a, y = (Param(Array.of(i32, 1), name) for name in "ay")
    x = Param(Array.of(i32, 1, None if extent is None else (extent,)), "x")
    t, k, b = Param(i32, "t"), Param(i32, "k"), Builder()
    with b.region() as body:
        with b.region(t) as outer:
            with b.region(k) as inner:
                number = b.emit("and", b.emit("load", b.emit("elem", a, k)), b.const(mask, i32))
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


@pytest.mark.parametrize("caps", [FULL, CPU], ids=["card", "processor"])
@pytest.mark.parametrize("kind", ["floordiv", "mod"])
def test_reciprocal_quotients_at_critical_values(kind: str, caps: Caps) -> None:
    """By the ops that the pass writes, as the interpreter computes them."""
    fn = quotients(kind)
    new = Pass("reciprocals", caps)(fn)
    verify(new)
    assert not [op for op in walk(new.body) if op.kind == kind]
    for n in divisors():
        a = np.array(dividends(n), np.int32)
        y = np.zeros(len(a), np.int32)
        x = np.lib.stride_tricks.as_strided(np.zeros(1, np.int32), (n,), (0,))
        run_reference(new, {"x": x, "a": a, "y": y})
        want = a // n if kind == "floordiv" else a % n
        assert (y == want).all(), (n, a[y != want], y[y != want])


@pytest.mark.parametrize("width", range(2, 12))
def test_the_numbers_of_small_words_for_all_operands(width: int) -> None:
    """The proof for words of 32 bits holds for all: each m fits, each quotient is right,
    that of the doubled dividend by the upper word, too."""
    half = 1 << (width - 1)
    a = np.arange(half)
    for n in range(1, half + 1):
        m, length = magic_multiplier(n, width), magic_shift_of(n)
        assert 0 < m < 2 * half
        assert (a * m >> (width - 1 + length) == a // n).all(), n
        assert ((2 * a * m >> width) >> length == a // n).all(), n


def test_an_extent_of_zero_counts_as_one() -> None:
    assert [number(0) for number in MAGIC.values()] == [number(1) for number in MAGIC.values()]


def test_only_proved_reciprocals() -> None:
    """Nothing without integers of 64 bits, of dividends that may be 2^31 or more, by a value that
    is no extent, or by a known extent."""
    fn = quotients("mod")
    assert Pass("reciprocals", FULL._replace(int64=False))(fn) is fn
    assert Pass("reciprocals", FULL)(fn) is not fn
    for other in (quotients("mod", mask=-1), quotients("mod", extent=7)):
        assert Pass("reciprocals", FULL)(other) is other
