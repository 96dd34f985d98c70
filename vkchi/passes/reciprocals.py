"""Divisions by extents that only a launch knows, by multiplication.

    floordiv %a, %n : u32       becomes     m = magic_factor, l = magic_shift of the extent %n is
                                            (u64(2 * a) * m) >> 32 >> l, or (u64(a) * m) >> (31 + l)

Why: neither processors nor graphics cards divide integers but by some twenty other instructions
for each number, or (processors) one lane after the other. The host knows the divisor before it
launches, and sends what `target.magic` says, whose proof is for all a below 2^31 and every n. The
upper half of a product of words is one instruction of graphics cards; processors have the whole
product, and shift it once.

Runs behind `strength`, which writes divisions as those of u32, and of numbers below 2^31 as the
i32s that they were. An extent of 0 counts as 1: nothing is divided by it that anybody sees. Needs
integers of 64 bits.

Owns: this form. Must not know: how multiplication is emitted.

    >>> multiply_instead(fn, caps)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vkchi.analysis.intervals import Intervals, axes_in
from vkchi.ir.builder import Builder
from vkchi.ir.constants import constant_int
from vkchi.ir.core import Func, Op, Value, find_parallel, walk
from vkchi.ir.rebuild import rebuild
from vkchi.target.caps import Caps
from vkchi.target.magic import MAGIC
from vkchi.tuples import NamedTuple
from vkchi.types import Array, i32, u32, u64

Extent = tuple[Value, int]  # an array and an axis


class Magic(NamedTuple):
    """What belongs to a divisor: m as a u64, and how far products are shifted: l as a u32, or all
    31 + l bits as a u64. Either is below the width of its type, by a mask that is no change and
    spares a question about it."""

    factor: Value
    shift: Value


MOST = (1 << 31) - 1  # that the numbers of `target.magic` divide


def multiply_instead(fn: Func, caps: Caps) -> Func:
    """The Func with divisions by extents in that form; not beside a loop, which the host reads."""
    if not caps.int64:
        return fn
    intervals, loop = Intervals(axes_in(fn.body)), find_parallel(fn)
    region = fn.body if loop is None else loop.regions[0]
    found = {op: extent for op in walk(region) if (extent := find(op, intervals))}
    first = next((op for op in region.ops if op in found or holds(op, found)), None)
    known = dict[Extent, Magic]()

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op is first:
            known.update(
                {extent: emit(b, extent, caps) for extent in dict.fromkeys(found.values())}
            )
        return [divide(b, op, args, known[found[op]])] if op in found else None

    return rebuild(fn, visit) if found else fn


def holds(op: Op, found: Collection[Op]) -> bool:
    """Whether some of these ops stand in an op."""
    return any(x in found for region in op.regions for x in walk(region))


def find(op: Op, intervals: Intervals) -> Extent | None:
    """The extent by which an op divides a number below 2^31, if it does."""
    if op.kind not in ("floordiv", "mod") or op.type is not u32:
        return None
    extent = bits_of(op.args[1])
    if not isinstance(extent, Op) or extent.kind != "shape":
        return None
    array = extent.args[0]
    assert isinstance(array.type, Array)
    if array.type.shape is not None or not is_small(op.args[0], intervals):
        return None
    return array, extent.attr


def bits_of(v: Value) -> Value | None:
    """The i32 whose bits a u32 is."""
    is_cast = isinstance(v, Op) and v.kind == "bitcast" and v.args[0].type is i32
    return v.args[0] if is_cast else None  # type: ignore[attr-defined]


def is_small(v: Value, intervals: Intervals) -> bool:
    """Whether a u32 is below 2^31: the bits of x ^ (x >> 31) are, too."""
    bound = intervals.of(v)
    if bound is not None and bound[1] <= MOST:
        return True
    same = bits_of(v)
    if not isinstance(same, Op) or same.kind != "xor":
        return False
    x, sign = same.args
    is_sign = isinstance(sign, Op) and sign.kind == "shr" and sign.args[0] is x
    return is_sign and constant_int(sign.args[1]) == i32.bits - 1  # type: ignore[attr-defined]


def emit(b: Builder, extent: Extent, caps: Caps) -> Magic:
    """What belongs to a divisor, in front of all loops."""
    array, axis = extent
    m, length = (b.emit(kind, array, attr=axis) for kind in MAGIC)
    factor = b.emit("cast", m, type=u64)
    if caps.is_cpu:
        wide = b.emit("add", b.emit("cast", length, type=u64), b.const(31, u64))
        return Magic(factor, b.emit("and", wide, b.const(u64.bits - 1, u64)))
    return Magic(factor, b.emit("and", length, b.const(u32.bits - 1, u32)))


def divide(b: Builder, op: Op, args: Sequence[Value], by: Magic) -> Value:
    """The quotient, or the remainder."""
    dividend, divisor = args
    if by.shift.type is u64:
        product = b.emit("mul", b.emit("cast", dividend, type=u64), by.factor)
        quotient = b.emit("cast", b.emit("shr", product, by.shift), type=u32)
    else:
        double = b.emit("cast", b.emit("shl", dividend, b.const(1, u32)), type=u64)
        high = b.emit("shr", b.emit("mul", double, by.factor), b.const(32, u64))
        quotient = b.emit("shr", b.emit("cast", high, type=u32), by.shift)
    if op.kind == "floordiv":
        return quotient
    return b.emit("sub", dividend, b.emit("mul", quotient, divisor))
