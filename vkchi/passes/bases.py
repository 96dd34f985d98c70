"""Says of addresses that their constant may be added to the array's address, before the rest.

An address is a base of 64 bits, an offset of 32, and a constant. Summed in 32 bits, constants cost
an addition per access, for no compiler may take them out of a sum that might wrap. Added to the
base they cost one addition per launch or none: devices have a constant beside the address. So the
offset that is left serves several accesses; where it serves one, nothing is gained outside of
serial loops. It is the same place if the offset alone is no negative number:

- by its interval (`analysis.intervals`);
- or since an access before, from the same offset, has a constant of 0 or less: addresses are never
  outside their array, so that offset is one of its elements, or behind one.

Only of offsets of 32 bits, on devices with integers of 64; not of addresses with a verdict, which
lead anywhere where it is false. Last of all: nothing else reads the mark.

Owns: the mark. Must not know: how pointers are formed.

    address %x, %o [1]    ->    address %x, %o [(1, natural)]
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.intervals import Intervals, axes_in
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Region, Value, has_kind, walk
from vkchi.ir.memory_ops import NATURAL
from vkchi.ir.ops import LOOPS
from vkchi.ir.rebuild import Rebuilder
from vkchi.target.caps import SMALLEST, Caps
from vkchi.types import WIDE_FROM, Ptr, u32


def take_constants_apart(fn: Func, caps: Caps = SMALLEST) -> Func:
    """The Func with marks."""
    if not caps.int64:
        return fn
    shared = offsets_with_company(fn)
    if not shared and not has_kind(fn.body, LOOPS):
        return fn
    return Marker(fn, shared).run(fn)


def offsets_with_company(fn: Func) -> set[Value]:
    """Offsets from which there are addresses with different constants."""
    constants: dict[Value, int] = {}
    return {
        op.args[1]
        for op in walk(fn.body)
        if op.kind == "address"
        and len(op.args) == 2
        and constants.setdefault(op.args[1], op.attr) != op.attr
    }


class Marker(Rebuilder):
    """One run; `shared` are offsets that serve several accesses, `natural` are known to be so from
    the accesses before."""

    def __init__(self, fn: Func, shared: set[Value]) -> None:
        super().__init__(self.visit_address)
        self.intervals = Intervals(axes_in(fn.body))
        self.natural: set[Value] = set()
        self.shared, self.loops = shared, 0  # around

    def keep(self, op: Op, args: tuple[Value, ...]) -> Op:
        """Count the loops around."""
        self.loops += op.kind in LOOPS
        new = super().keep(op, args)
        self.loops -= op.kind in LOOPS
        return new

    def region(self, region: Region) -> Region:
        """What an access in a region says holds in it only."""
        known = set(self.natural)
        new = super().region(region)
        self.natural = known
        return new

    def visit_address(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """The address with the mark, or None."""
        if op.kind != "address" or len(args) != 2 or args[1].type is not u32:
            return None
        assert isinstance(op.type, Ptr)
        offset, constant = op.args[1], op.attr
        if op.type.space != "global" or not -WIDE_FROM < constant < WIDE_FROM:
            return None
        if constant <= 0:
            self.natural.add(offset)
        if constant == 0 or not (self.loops or offset in self.shared):
            return None
        if offset not in self.natural and not self.is_small(offset):
            return None
        return (b.insert(Op(op.kind, args, (constant, NATURAL), op.type, op.span, op.name)),)

    def is_small(self, offset: Value) -> bool:
        """Whether an offset is less than what indices count to."""
        found = self.intervals.of(offset)
        return found is not None and found[0] >= 0 and found[1] < WIDE_FROM
