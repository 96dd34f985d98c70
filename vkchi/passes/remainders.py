"""Remainders by numbers that only a launch knows, of what is likely near, by a comparison.

    (i + 1) % n         becomes         t = i + 1; if t >= n { t = t - n }

Why: a division by a number that the compiler does not know takes processors 20 to 40 cycles for
each lane. Neighbours in periodic grids are nearly all there is of it in loops; where extents are
constants, `peel` does better. `analysis.turns` tells what is near; it is no proof, for sums may
wrap, so the result is compared with the divisor, and where it is no remainder there is a division:

    if t is in 0 .. n { t } else { (i + 1) % n }

What is in that range, and differs from the dividend by the divisor or nothing, is the remainder.
Where the divisor may be negative, that is asked for as well. Not on graphics cards: there a branch
in front of each load keeps loads from being under way together, and `reciprocals` divides at little
cost. Before `map_grid`, which hides what indices run over; behind all that looks for remainders in
indices.

Owns: this form. Must not know: memory.

    >>> turn_remainders(fn, caps)
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.turns import Turn, Turns
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Value, find_parallel, walk
from vkchi.ir.rebuild import rebuild
from vkchi.target.caps import Caps
from vkchi.types import i32, u32


def turn_remainders(fn: Func, caps: Caps) -> Func:
    """The Func with remainders of numbers that are likely near in that form."""
    loop = find_parallel(fn)
    if loop is None or not caps.is_cpu:
        return fn
    turns = Turns(loop.regions[0].ops, loop)
    found = {op: turn for op in walk(loop.regions[0]) if (turn := turns.find(op)) is not None}

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op not in found:
            return None
        is_natural = (turns.forms.ranges.bound(op.args[1]) or (-1, 0))[0] >= 0
        return [build(b, op, args, found[op], is_natural=is_natural)]

    return rebuild(fn, visit) if found else fn


def build(b: Builder, op: Op, args: tuple[Value, ...], turn: Turn, *, is_natural: bool) -> Value:
    """Emit a remainder."""
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
