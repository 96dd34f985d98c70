"""Constant-offset folding: mark addresses whose constant may be added to the 64-bit base address.

An address is a 64-bit base, a 32-bit offset and a constant. Adding the constant in 32 bits costs
one addition per access: no compiler may reassociate it, as the sum might wrap. Added to the base it
costs one addition per launch, or none, as instructions have an immediate offset. The remaining
offset is then shared by several accesses. If it has only one access, there is a gain only in serial
loops.

The two sums are equal if the offset alone is not negative. There are two proofs:

- by its interval (`analysis.values.interval_analysis`);
- by this or an earlier access with the same offset and a constant of 0 or less. Addresses are never
  outside their array, so the offset is the index of a scalar in it, or greater.

Applies to global arrays with 32-bit offsets, on devices with 64-bit integers. Addresses with a
third operand, the result of a bounds check, are skipped. Runs last: only the emitter reads the
mark.

    address %x, %o [1]    ->    address %x, %o [(1, nneg)]
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.values.interval_analysis import Intervals, axes_in
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Region, Value, has_kind, walk
from vkchi.ir.op_table.memory_ops import NNEG
from vkchi.ir.ops import LOOPS
from vkchi.ir.rebuild import Rebuilder
from vkchi.target.caps import SMALLEST, Caps
from vkchi.types import WIDE_FROM, Ptr, u32


def mark_constant_offsets(fn: Func, caps: Caps = SMALLEST) -> Func:
    """Mark the addresses whose constant may be added to the base."""
    if not caps.int64:
        return fn
    shared = multiuse_offsets(fn)
    if not shared and not has_kind(fn.body, LOOPS):
        return fn
    return Marker(fn, shared).run(fn)


def multiuse_offsets(fn: Func) -> set[Value]:
    """Return the offsets that occur in addresses with different constants."""
    constants: dict[Value, int] = {}
    return {
        op.args[1]
        for op in walk(fn.body)
        if op.kind == "address"
        and len(op.args) == 2
        and constants.setdefault(op.args[1], op.attr) != op.attr
    }


class Marker(Rebuilder):
    """Rebuilder that marks addresses. `shared`: offsets that occur with several constants.
    `nneg`: offsets that an access in this or an enclosing region proves to be non-negative."""

    def __init__(self, fn: Func, shared: set[Value]) -> None:
        super().__init__(self.visit_address, ("address",))
        self.intervals = Intervals(axes_in(fn.body))
        self.nneg: set[Value] = set()
        self.shared, self.loops = shared, 0  # depth of enclosing loops

    def keep(self, op: Op, args: tuple[Value, ...]) -> Op:
        self.loops += op.kind in LOOPS
        new = super().keep(op, args)
        self.loops -= op.kind in LOOPS
        return new

    def region(self, region: Region) -> Region:
        known = set(self.nneg)
        new = super().region(region)
        self.nneg = known
        return new

    def visit_address(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if len(args) != 2 or args[1].type is not u32:
            return None
        assert isinstance(op.type, Ptr)
        offset, constant = op.args[1], op.attr
        if op.type.space != "global" or not -WIDE_FROM < constant < WIDE_FROM:
            return None
        if constant <= 0:
            self.nneg.add(offset)
        if constant == 0 or not (self.loops or offset in self.shared):
            return None
        if offset not in self.nneg and not self.is_small(offset):
            return None
        return (b.insert(Op(op.kind, args, (constant, NNEG), op.type, op.span, op.name)),)

    def is_small(self, offset: Value) -> bool:
        found = self.intervals.of(offset)
        return found is not None and found[0] >= 0 and found[1] < WIDE_FROM
