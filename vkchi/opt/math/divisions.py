"""Strength reduction of integer divisions: by proved ranges, and by magic numbers of extents.

1. `reduce_strength`: divisions of values proved non-negative become unsigned.
2. `multiply_instead`: divisions by dynamic extents become multiplications.

    rem %i, 8    ->    mod %i, 8            floordiv %i, %n    ->    as u32: floordiv %i, %n
    floordiv %a, %n    ->    s = %a >> 31; as u32: (floordiv %a ^ s, %n) ^ s
    floordiv %a, %n : u32    ->    m = magic_factor, l = magic_shift of the extent %n is
                                   (u64(2 * a) * m) >> 32 >> l, or (u64(a) * m) >> (31 + l)

Preconditions: runs after `bounds`, which reads the plain forms.

    >>> reduce_divisions(fn, caps)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from vkchi.analysis.values.interval_analysis import Intervals, axes_in
from vkchi.ir.builder import Builder
from vkchi.ir.core import (
    Func,
    Op,
    Region,
    Value,
    as_constant,
    constant_int,
    find_parallel,
    is_constant,
    is_power_of_two,
    walk,
)
from vkchi.ir.ops import ROUNDED_DOWN
from vkchi.ir.rebuild import Rebuilder, rebuild
from vkchi.target.caps import Caps
from vkchi.target.magic import MAGIC
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, i32, scalar_of, u32, u64

Extent = tuple[Value, int]  # array and axis


def reduce_divisions(fn: Func, caps: Caps) -> Func:
    """Rewrite integer divisions to their cheapest form."""
    return multiply_instead(reduce_strength(fn), caps)


# --- division by proved ranges -------------------------------------------------------------------
#
# Python's `//` and `%` round down, C's toward zero. For non-negative operands both equal unsigned
# division, the cheapest form. By a power of two, rounding down is a shift or a mask in the back
# end, so that form is chosen. If only the divisor is non-negative, as extents are, the complement
# of a negative dividend is divided. Then a // n is ~(~a // n), and a % n is n - 1 - ~a % n. The
# sign bits select the case without a branch.
#
# Two kinds of divisions are left alone:
#
# - ops outside a `parallel`, whose plain form the host reads, in a Func that has one;
# - divisions that are alone in an arm of an `if`, such as the rare case of `remainders`. Drivers
#   execute short arms unconditionally, so a branch on the sign would be lost.


UNSIGNED = {32: u32, 64: u64}


def reduce_strength(fn: Func) -> Func:
    """Rewrite signed divisions by divisors proved non-negative to their cheapest form."""
    found = Strengthener(fn)
    if not any(found.is_cheaper(op) for op in walk(fn.body) if op.kind in ROUNDED_DOWN):
        return fn
    return found.run(fn)


class Strengthener(Rebuilder):
    def __init__(self, fn: Func) -> None:
        super().__init__(self.visit_division, ROUNDED_DOWN)
        self.left = set(fn.body.ops) if find_parallel(fn) else set()
        self.left |= {op for arm in arms_in(fn) if len(arm.ops) == 2 for op in arm.ops}
        self.intervals = Intervals(axes_in(fn.body))

    def visit_division(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        t, kind = op.type, ROUNDED_DOWN[op.kind]
        if not isinstance(t, Scalar) or not self.is_cheaper(op):
            return None
        if is_constant_power(args[1]):
            return [b.emit(kind, *args, name=op.name)]
        if not self.is_natural(op.args[0]):
            return [divide_any(b, op, args)]
        unsigned = [b.emit("bitcast", v, type=UNSIGNED[t.bits]) for v in args]
        return [b.emit("bitcast", b.emit(kind, *unsigned), type=t, name=op.name)]

    def is_cheaper(self, op: Op) -> bool:
        """True if `visit_division` rewrites this division."""
        t = op.type
        if op in self.left or not isinstance(t, Scalar) or t.kind != "i":
            return False
        if is_constant_power(op.args[1]) and ROUNDED_DOWN[op.kind] == op.kind:
            return False
        if t.bits not in UNSIGNED or not self.is_natural(op.args[1]):
            return False
        is_rounded_down = ROUNDED_DOWN[op.kind] == op.kind and not is_constant(op.args[1])
        return is_rounded_down or self.is_natural(op.args[0])

    def is_natural(self, v: Value) -> bool:
        found = self.intervals.of(v)
        return found is not None and found[0] >= 0


def arms_in(fn: Func) -> Iterator[Region]:
    return (arm for op in walk(fn.body) if op.kind == "if" for arm in op.regions)


def divide_any(b: Builder, op: Op, args: Sequence[Value]) -> Value:
    """Append a floored quotient or remainder of a signed integer by a non-negative one, and return
    it."""
    t = scalar_of(op.type)
    sign = b.emit("shr", args[0], b.const(t.bits - 1, t))  # all ones if negative, else zero
    dividend, divisor, ones = (
        b.emit("bitcast", v, type=UNSIGNED[t.bits])
        for v in (b.emit("xor", args[0], sign), args[1], sign)
    )
    found = b.emit("xor", b.emit(op.kind, dividend, divisor), ones)
    if op.kind == "mod":
        found = b.emit("add", found, b.emit("and", divisor, ones))
    return b.emit("bitcast", found, type=t, name=op.name)


def is_constant_power(v: Value) -> bool:
    return isinstance(v, Op) and v.kind == "const" and is_power_of_two(as_constant(v))


# --- multiplication by magic numbers -------------------------------------------------------------
#
# Neither CPUs nor GPUs have fast integer division: it takes about twenty instructions per scalar,
# or (on CPUs) runs lane by lane. The host computes the magic numbers of an extent before the launch
# (`target.magic`). They are proved correct for all a below 2^31 and every n. GPUs compute the upper
# half of a 32-bit product in one instruction. CPUs compute the whole product and shift once.
#
# Preconditions: `reduce_strength` wrote divisions as u32, and those of values below 2^31 as casts
# from i32. The device has 64-bit integers. An extent of 0 counts as 1; no observable value depends
# on it.


class MagicNumbers(NamedTuple):
    """Values for a divisor.

    `factor` is m as a u64. `shift` is l as a u32, or 31 + l as a u64 on CPUs. It is masked to
    the width of its type, which changes nothing and makes the emitter omit its range check.
    """

    factor: Value
    shift: Value


MOST = (1 << 31) - 1  # largest dividend for `target.magic`


def multiply_instead(fn: Func, caps: Caps) -> Func:
    """Replace u32 divisions of values below 2^31 by dynamic extents, if the device has 64-bit
    integers.

    In a Func with a parallel loop, divisions outside it stay, because the host reads that code.
    """
    if not caps.int64:
        return fn
    intervals, loop = Intervals(axes_in(fn.body)), find_parallel(fn)
    region = fn.body if loop is None else loop.regions[0]
    found = {op: extent for op in walk(region) if (extent := find(op, intervals))}
    first = next((op for op in region.ops if op in found or holds(op, found)), None)
    known = dict[Extent, MagicNumbers]()

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op is first:
            known.update(
                {extent: emit(b, extent, caps) for extent in dict.fromkeys(found.values())}
            )
        return [divide(b, op, args, known[found[op]])] if op in found else None

    return rebuild(fn, visit) if found else fn


def holds(op: Op, found: Collection[Op]) -> bool:
    return any(x in found for region in op.regions for x in walk(region))


def find(op: Op, intervals: Intervals) -> Extent | None:
    """Return the dynamic extent by which a u32 op divides a value proved below 2^31, or None."""
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
    is_cast = isinstance(v, Op) and v.kind == "bitcast" and v.args[0].type is i32
    return v.args[0] if is_cast else None  # type: ignore[attr-defined]


def is_small(v: Value, intervals: Intervals) -> bool:
    """True if a u32 is proved below 2^31: by its interval, or as the bits of x ^ (x >> 31) of an
    i32."""
    bound = intervals.of(v)
    if bound is not None and bound[1] <= MOST:
        return True
    same = bits_of(v)
    if not isinstance(same, Op) or same.kind != "xor":
        return False
    x, sign = same.args
    is_sign = isinstance(sign, Op) and sign.kind == "shr" and sign.args[0] is x
    return is_sign and constant_int(sign.args[1]) == i32.bits - 1  # type: ignore[attr-defined]


def emit(b: Builder, extent: Extent, caps: Caps) -> MagicNumbers:
    """Emit the magic numbers of a divisor."""
    array, axis = extent
    m, length = (b.emit(kind, array, attr=axis) for kind in MAGIC)
    factor = b.emit("cast", m, type=u64)
    if caps.wide_multiply:
        wide = b.emit("add", b.emit("cast", length, type=u64), b.const(31, u64))
        return MagicNumbers(factor, b.emit("and", wide, b.const(u64.bits - 1, u64)))
    return MagicNumbers(factor, b.emit("and", length, b.const(u32.bits - 1, u32)))


def divide(b: Builder, op: Op, args: Sequence[Value], by: MagicNumbers) -> Value:
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
