"""Spells the addresses of loads that rounds of short loops share alike, for drivers.

    for k in 0..5 { x[512 * (i + k)]; x[512 * (i + k) + 512] }

One round loads what the round before it has loaded. Drivers write such loops out and merge loads
from equal addresses, if these are spelled alike: constants of rounds must meet those of accesses.
So the offset is a sum whose last terms are those of the loops' indices, then the constant:
`((512 * i) + 512 * k) + 512`. Elsewhere a constant is best beside the address (`bases`).

Sums of offsets wrap, so their terms may stand in any order. Only offsets from which two accesses
differ by what some rounds make up are written anew, on processors, which load lane by lane.

Owns: this order. Must not know: layouts, which loops drivers write out (`MOST_ROUNDS` at most).

    >>> spell_rounds(fn, caps)
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.sums import ONE, Polynomial, Sums, factor_of, terms_of
from vkchi.ir.builder import Builder
from vkchi.ir.constants import constant_int
from vkchi.ir.control import axes_of
from vkchi.ir.core import Func, Op, Value, walk
from vkchi.passes.offsets import Offset, Writer
from vkchi.target.caps import Caps
from vkchi.types import Scalar, scalar_of

MOST_ROUNDS = 32  # Mesa writes out no longer loops


def spell_rounds(fn: Func, caps: Caps) -> Func:
    """The Func with offsets that rounds share spelled alike, on a processor."""
    if not caps.is_cpu:
        return fn
    rounds = short_loops(fn)
    shared = shared_offsets(fn, rounds) if rounds else {}
    return Speller(shared, rounds).run(fn) if shared else fn


class OffsetSums(Sums):
    """Sums modulo the width of offsets: the sign of a type makes no difference."""

    def read(self, v: Value) -> Polynomial:
        """The polynomial of an integer, seen through another type of its width."""
        if isinstance(v, Op) and v.kind == "bitcast" and is_integer(v) and is_integer(v.args[0]):
            return self.of(v.args[0])
        return super().read(v)


def is_integer(v: Value) -> bool:
    """Whether a value is a whole number."""
    return isinstance(v.type, Scalar) and v.type.kind in "iu"


def short_loops(fn: Func) -> dict[Value, int]:
    """The indices of serial loops that may be written out, outer ones first, and their rounds."""
    found: dict[Value, int] = {}
    for op in walk(fn.body):
        if op.kind == "for":
            (axis,) = axes_of(op)
            begin, end = constant_int(axis.begin), constant_int(axis.end)
            if begin is not None and end is not None and end - begin <= MOST_ROUNDS:
                found[axis.param] = end - begin
    return found


def shared_offsets(fn: Func, rounds: dict[Value, int]) -> dict[Value, Polynomial]:
    """Offsets from which accesses differ by what rounds make up, as sums."""
    constants: dict[tuple[Value, Value], set[int]] = {}
    for op in walk(fn.body):
        if op.kind == "address" and len(op.args) == 2 and isinstance(op.attr, int):
            constants.setdefault((op.args[0], op.args[1]), set()).add(op.attr)
    sums = OffsetSums()
    return {
        offset: sums.of(offset)
        for (_, offset), found in constants.items()
        if len(found) > 1 and have_rounds_between(found, sums.of(offset), rounds)
    }


def have_rounds_between(constants: set[int], offset: Polynomial, rounds: dict[Value, int]) -> bool:
    """Whether two constants differ by steps of a loop, by fewer than it has rounds."""
    first, *others = sorted(constants)
    for index, count in rounds.items():
        step = abs(factor_of(index, offset))
        if step and any((c - first) % step == 0 and c - first < step * count for c in others):
            return True
    return False


class Speller(Writer):
    """Writes `shared` offsets anew where accesses begin from them."""

    def __init__(self, shared: dict[Value, Polynomial], rounds: dict[Value, int]) -> None:
        super().__init__(self.visit_address)
        self.shared, self.rounds = shared, rounds

    def visit_address(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """The address without a constant beside it, or None."""
        found = self.shared.get(op.args[1]) if len(op.args) == 2 and op.kind == "address" else None
        if found is None or not isinstance(op.attr, int):
            return None
        t = scalar_of(args[1].type)
        offset = self.whole(self.spelled(found, op.attr, t), t)
        return (b.insert(Op(op.kind, (args[0], offset), 0, op.type, op.span, op.name)),)

    def spelled(self, offset: Polynomial, constant: int, t: Scalar) -> Offset:
        """An offset and a constant as a sum, the indices of short loops last."""
        factors = terms_of(offset)
        own = [v for v in factors if v not in self.rounds]
        made = Offset(None, constant + offset.get(ONE, 0))
        for v in (*own, *[v for v in self.rounds if v in factors]):
            term = self.times(Offset(self.bits(self.map.get(v, v), t), 0), factors[v], t)
            made = self.plus(made, term, t)
        return made
