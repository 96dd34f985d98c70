"""Divisions by extents that only a launch knows, many times in an invocation, by multiplication.

    for ... { floordiv %a, %n }     becomes     l = bits of (n - 1), m = (2^(31 + l) + n - 1) / n
                                                for ... { (u64(a) * m) >> (31 + l) }

Why: processors have no division for vectors of integers, so that each lane divides by itself. On
them an invocation does many iterations in a serial loop, and works out what belongs to the divisor
once, before that loop; where there is no such loop, and on graphics cards, nothing is gained.

Exact for all a below 2^31 and n from 1 to 2^31. With l so that 2^(l-1) < n <= 2^l, let
e = m * n - 2^(31+l), which is from 0 to n - 1 as m is rounded up. Then
a * m / 2^(31+l) = a / n + (a / n) * e / 2^(31+l), and the second part is less than 1 / n, for
a * e < 2^31 * n <= 2^(31+l). A quotient a / n that is no multiple of 1 lies at least 1 / n below
the next one, so rounding down gives the same. m is at most 2^32 - 1: n is at least 2^(l-1) + 1
or 2^l; so the product is below 2^63, and its bits from 31 on fit a u32.
Source: Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994.

Runs behind `strength`, which writes divisions as those of u32. An extent of 0 counts as 1: nothing
is divided by it that anybody sees. Owns: this form. Must not know: how multiplication is emitted.

    >>> multiply_instead(fn, caps)
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.intervals import Intervals, axes_in
from vkchi.ir.builder import Builder
from vkchi.ir.constants import constant_int
from vkchi.ir.core import Func, Op, Value, find_parallel, walk
from vkchi.ir.rebuild import rebuild
from vkchi.passes.cost_model import is_processor
from vkchi.target.caps import Caps
from vkchi.tuples import NamedTuple
from vkchi.types import Array, i32, u32, u64

FEW = 4  # rounds of a loop, for which what is worked out before it costs more than it saves
Extent = tuple[Value, int]  # an array and an axis


class Reciprocal(NamedTuple):
    """What belongs to a divisor: itself and l as u32, m as u64."""

    divisor: Value
    length: Value
    factor: Value


def multiply_instead(fn: Func, caps: Caps) -> Func:
    """The Func with divisions by extents in that form, where they stand in serial loops."""
    loop = find_parallel(fn)
    if loop is None or not (is_processor(caps) and caps.int64):
        return fn
    intervals, known = Intervals(axes_in(fn.body)), dict[Extent, Reciprocal]()
    found: dict[Op, dict[Op, Extent]] = {}
    for op in loop.regions[0].ops:
        if op.kind == "for" and not is_short(op):
            divisions = {x: extent for x in walk(op.regions[0]) if (extent := find(x, intervals))}
            if divisions:
                found[op] = divisions
    every = {op: extent for divisions in found.values() for op, extent in divisions.items()}

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op in found:
            known.update({extent: emit(b, extent) for extent in dict.fromkeys(found[op].values())})
        return [divide(b, op, args[0], known[every[op]])] if op in every else None

    return rebuild(fn, visit) if found else fn


def is_short(loop: Op) -> bool:
    """Whether a loop is known to go round a few times."""
    begin, end = map(constant_int, loop.args[:2])
    return begin is not None and end is not None and end - begin <= FEW


def find(op: Op, intervals: Intervals) -> Extent | None:
    """The extent by which an op divides a number below 2^31, if it does."""
    if op.kind not in ("floordiv", "mod") or op.type is not u32:
        return None
    dividend, divisor = map(bits_of, op.args)
    if dividend is None or divisor is None or getattr(divisor, "kind", "") != "shape":
        return None
    assert isinstance(divisor, Op) and isinstance(divisor.args[0].type, Array)
    is_known = divisor.args[0].type.shape is not None
    return (
        None if is_known or not is_natural(dividend, intervals) else (divisor.args[0], divisor.attr)
    )


def bits_of(v: Value) -> Value | None:
    """The i32 whose bits a u32 is."""
    is_cast = isinstance(v, Op) and v.kind == "bitcast" and v.args[0].type is i32
    return v.args[0] if is_cast else None  # type: ignore[attr-defined]


def is_natural(v: Value, intervals: Intervals) -> bool:
    """Whether an i32 is never negative: x ^ (x >> 31) is not either."""
    bound = intervals.of(v)
    if bound is not None and bound[0] >= 0:
        return True
    if not isinstance(v, Op) or v.kind != "xor":
        return False
    x, sign = v.args
    is_sign = isinstance(sign, Op) and sign.kind == "shr" and sign.args[0] is x
    return is_sign and constant_int(sign.args[1]) == i32.bits - 1  # type: ignore[attr-defined]


def emit(b: Builder, extent: Extent) -> Reciprocal:
    """Work out what belongs to a divisor."""
    array, axis = extent
    one = b.const(1, u32)
    n = b.emit("max", b.emit("bitcast", b.emit("shape", array, attr=axis), type=u32), one)
    length = b.emit("sub", b.const(u32.bits, u32), b.emit("clz", b.emit("sub", n, one)))
    wide = b.emit("cast", n, type=u64)
    power = b.emit("shl", b.const(1 << 31, u64), b.emit("cast", length, type=u64))
    above = b.emit("add", power, b.emit("sub", wide, b.const(1, u64)))
    return Reciprocal(n, length, b.emit("floordiv", above, wide))


def divide(b: Builder, op: Op, dividend: Value, by: Reciprocal) -> Value:
    """The quotient, or the remainder."""
    product = b.emit("mul", b.emit("cast", dividend, type=u64), by.factor)
    high = b.emit("cast", b.emit("shr", product, b.const(31, u64)), type=u32)
    quotient = b.emit("shr", high, by.length)
    if op.kind == "floordiv":
        return quotient
    return b.emit("sub", dividend, b.emit("mul", quotient, by.divisor))
