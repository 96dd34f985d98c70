"""Strength reduction of remainders of dividends near [0, n): compare and subtract.

    (i + 1) % n         becomes         t = i + 1; if t >= n { t = t - n }

On CPUs a division by an unknown divisor takes 20 to 40 cycles per lane. In loops, nearly all
such remainders are neighbours in periodic grids; with constant extents `peel` does better.
`opt.math.turns` finds the candidates. It proves nothing, because sums may wrap. The result is
therefore compared with the divisor, with division as the fallback:

    if t is in 0 .. n { t } else { (i + 1) % n }

A value in that range that equals the dividend, plus or minus the divisor or zero, is the
remainder. If the divisor may be negative, its sign is tested too. GPUs are excluded: a branch
before each load prevents loads from overlapping, and `reciprocals` makes division cheap.

Preconditions: runs before `map_grid`, which hides the ranges of indices, and after all passes
that analyze remainders in indices.

    >>> turn_remainders(fn, caps)
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Value, find_parallel, walk
from vkchi.ir.rebuild import rebuild
from vkchi.opt.math.turns import DividendRange, NearRemainders
from vkchi.target.caps import Caps
from vkchi.types import i32, u32


def turn_remainders(fn: Func, caps: Caps) -> Func:
    """Rewrite remainders whose dividend is probably near the divisor's range, on CPUs."""
    loop = find_parallel(fn)
    if loop is None or not caps.slow_division:
        return fn
    turns = NearRemainders(loop.regions[0].ops, loop)
    found = {op: turn for op in walk(loop.regions[0]) if (turn := turns.find(op)) is not None}

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op not in found:
            return None
        is_natural = (turns.forms.ranges.bound(op.args[1]) or (-1, 0))[0] >= 0
        return [build(b, op, args, found[op], is_natural=is_natural)]

    return rebuild(fn, visit, ("mod",)) if found else fn


def build(
    b: Builder, op: Op, args: tuple[Value, ...], turn: DividendRange, *, is_natural: bool
) -> Value:
    """Append the compare-and-subtract form of a remainder, with the division as fallback.
    `is_natural`: the divisor is proved not negative."""
    dividend, divisor = args
    zero, near = b.const(0, i32), dividend
    if turn.above:
        is_above = b.emit("ge", dividend, divisor)
        near = b.emit("select", is_above, b.emit("sub", dividend, divisor), near)
    if turn.below:
        is_below = b.emit("lt", dividend, zero)
        near = b.emit("select", is_below, b.emit("add", dividend, divisor), near)
    unsigned = [b.emit("bitcast", v, type=u32) for v in (near, divisor)]
    is_right = b.emit("lt", *unsigned)
    if not is_natural:
        is_right = b.emit("and", is_right, b.emit("gt", divisor, zero))
    with b.region() as then:
        b.emit("yield", near)
    with b.region() as orelse:
        b.emit("yield", b.emit(op.kind, *args))
    return b.if_(is_right, then, orelse).results[0]
