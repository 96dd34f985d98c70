"""Strength reduction of integer division, based on operands proved to be non-negative.

Python's `//` and `%` round down, C's toward zero. For non-negative operands both equal unsigned
division, the cheapest form. By a power of two, rounding down is a shift or a mask in the back end,
so that form is chosen. If only the divisor is non-negative, as extents are, the complement of a
negative dividend is divided. Then a // n is ~(~a // n), and a % n is n - 1 - ~a % n. The sign bits
select the case without a branch.

`analysis.values.interval_analysis` provides the ranges. Two kinds of divisions are left alone:

- ops outside a `parallel`, whose plain form the host reads, in a Func that has one;
- divisions that are alone in an arm of an `if`, such as the rare case of `remainders`. Drivers
  execute short arms unconditionally, so a branch on the sign would be lost.

Preconditions: runs after `bounds`, which reads the plain form.

    rem %i, 8    ->    mod %i, 8            floordiv %i, %n    ->    as u32: floordiv %i, %n
    floordiv %a, %n    ->    s = %a >> 31; as u32: (floordiv %a ^ s, %n) ^ s
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vkchi.analysis.values.interval_analysis import Intervals, axes_in
from vkchi.ir.builder import Builder
from vkchi.ir.core import (
    Func,
    Op,
    Region,
    Value,
    as_constant,
    find_parallel,
    is_constant,
    is_power_of_two,
    walk,
)
from vkchi.ir.ops import ROUNDED_DOWN
from vkchi.ir.rebuild import Rebuilder
from vkchi.types import Scalar, scalar_of, u32, u64

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
