"""Reassociation of address offsets in short loops, for the driver's CSE.

    for k in 0..5 { x[512 * (i + k)]; x[512 * (i + k) + 512] }

An iteration loads elements that the previous one has loaded. Drivers unroll such loops and merge
loads from equal addresses, if these are equal expressions. So the constant of an address moves into
its offset. The last terms of the sum are those of the indices of short loops, followed by the
constant: `((512 * i) + 512 * k) + 512`. Elsewhere a constant is best kept in the address op
(`bases`).

Offsets wrap, so their terms may be reordered. Only offsets with two accesses that coincide some
iterations apart are rewritten, on CPU drivers, which load lane by lane.

    >>> spell_rounds(fn, caps)
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.values.polynomials import ONE, Polynomial, WrappedSums, factor_of, terms_of
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Value, constant_int, walk
from vkchi.ir.ops import axes_of
from vkchi.opt.lowering.offsets import ArithmeticBuilder, Offset
from vkchi.opt.rewrite.dce import remove_dead
from vkchi.opt.rewrite.licm import hoist_invariants
from vkchi.target import tuning
from vkchi.target.caps import Caps
from vkchi.types import Scalar, scalar_of


def spell_rounds(fn: Func, caps: Caps) -> Func:
    """Reassociate offsets shared between iterations, on CPUs; hoist their invariant terms."""
    if not caps.scalar_lanes:
        return fn
    rounds = short_loops(fn)
    shared = shared_offsets(fn, rounds) if rounds else {}
    if not shared:
        return fn
    return remove_dead(hoist_invariants(OffsetReassociator(shared, rounds).run(fn)))


def short_loops(fn: Func) -> dict[Value, int]:
    """Return the indices of loops of at most MESA_UNROLLS iterations, outer ones first, with their
    trip counts."""
    found: dict[Value, int] = {}
    for op in walk(fn.body):
        if op.kind == "for":
            (axis,) = axes_of(op)
            begin, end = constant_int(axis.begin), constant_int(axis.end)
            if begin is not None and end is not None and end - begin <= tuning.MESA_UNROLLS:
                found[axis.param] = end - begin
    return found


def shared_offsets(fn: Func, rounds: dict[Value, int]) -> dict[Value, Polynomial]:
    """Return the offsets that have several constants, some of which differ by whole iterations of a
    short loop, as polynomials."""
    constants: dict[tuple[Value, Value], set[int]] = {}
    for op in walk(fn.body):
        if op.kind == "address" and len(op.args) == 2 and isinstance(op.attr, int):
            constants.setdefault((op.args[0], op.args[1]), set()).add(op.attr)
    sums = WrappedSums()
    return {
        offset: sums.of(offset)
        for (_, offset), found in constants.items()
        if len(found) > 1 and have_rounds_between(found, sums.of(offset), rounds)
    }


def have_rounds_between(constants: set[int], offset: Polynomial, rounds: dict[Value, int]) -> bool:
    """True if one of `constants` exceeds the least one by a multiple of a short loop's step, within
    the range of that loop."""
    first, *others = sorted(constants)
    for index, count in rounds.items():
        step = abs(factor_of(index, offset))
        if step and any((c - first) % step == 0 and c - first < step * count for c in others):
            return True
    return False


class OffsetReassociator(ArithmeticBuilder):
    """Rewrites `shared` offsets in addresses."""

    def __init__(self, shared: dict[Value, Polynomial], rounds: dict[Value, int]) -> None:
        super().__init__(self.visit_address)
        self.shared, self.rounds = shared, rounds

    def visit_address(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """Return the address with its constant moved into the offset, or None."""
        found = self.shared.get(op.args[1]) if len(op.args) == 2 and op.kind == "address" else None
        if found is None or not isinstance(op.attr, int):
            return None
        t = scalar_of(args[1].type)
        offset = self.whole(self.spelled(found, op.attr, t), t)
        return (b.insert(Op(op.kind, (args[0], offset), 0, op.type, op.span, op.name)),)

    def spelled(self, offset: Polynomial, constant: int, t: Scalar) -> Offset:
        """Sum of an offset and a constant, with the indices of short loops last."""
        factors = terms_of(offset)
        own = [v for v in factors if v not in self.rounds]
        made = Offset(None, constant + offset.get(ONE, 0))
        for v in (*own, *[v for v in self.rounds if v in factors]):
            term = self.times(Offset(self.bits(self.map.get(v, v), t), 0), factors[v], t)
            made = self.plus(made, term, t)
        return made
