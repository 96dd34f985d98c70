"""Whether two loops over one space may be gone through as one, an iteration of each at a time.

Then an iteration of the second loop comes before others of the first. That changes nothing if what
it touches is touched by no other iteration of the first, unless both only read, or both combine
numbers into it in a way that knows no order, and nobody asks for what was there.

Owns: this question, about a loop whose body is already that of both. Must not know: what it is for.

    >>> never_cross(first.ops, second.ops, loop)       # y[i] = f(x[i]); z[i] = g(y[i])
    True
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from vkchi.analysis.access import Survey
from vkchi.analysis.alias import may_meet, may_share, place_of
from vkchi.analysis.footprint import element_under
from vkchi.analysis.intervals import Intervals
from vkchi.ir.core import Op, Region, Value, base_of, used_in, walk
from vkchi.ir.ops import ATOMICS, COMMUTATIVE, READS, WRITES
from vkchi.tuples import NamedTuple

MOST_PAIRS = 64  # of places of one array that are compared
Accesses = dict[Value, list[Op]]  # by array, or private place


class Spot(NamedTuple):
    """A place that a part of a body touches, by an op for it, and how: the kinds of its ops, None
    where somebody asks for what an atomic found."""

    op: Op
    kinds: frozenset[str | None]

    @property
    def is_written(self) -> bool:
        """Whether more is done than reading."""
        return self.kinds != {"load"}


def never_cross(
    first: Sequence[Op], second: Sequence[Op], loop: Op, ranges: Intervals | None = None
) -> bool:
    """Whether no iteration of a loop minds that others have not come to the end of the `first` ops
    of its body when it does the `second`. `ranges` are of what is around the loop, too."""
    before, behind = accesses_in(first), accesses_in(second)
    met = [
        (a, b)
        for a in before
        for b in behind
        if may_share(a, b) and is_written(before[a], behind[b])
    ]
    if any(a is not b for a, b in met):
        return False
    parts = Parts(loop, ranges) if met else None
    return parts is None or all(parts.are_apart(a, before[a], behind[a]) for a, _ in met)


def accesses_in(ops: Sequence[Op]) -> Accesses:
    """The ops that read or write memory, in these and inside them."""
    found: Accesses = {}
    for op in walk(Region((), list(ops))):
        if op.kind in READS or op.kind in WRITES:
            found.setdefault(base_of(op.args[0]), []).append(op)
    return found


def is_written(*accesses: Sequence[Op]) -> bool:
    """Whether any of these writes."""
    return any(op.kind in WRITES for ops in accesses for op in ops)


class Parts:
    """The parts of a loop's body, and what iterations meet in."""

    def __init__(self, loop: Op, ranges: Intervals | None) -> None:
        body = loop.regions[0]
        self.survey = Survey(body.ops, loop, ranges)
        self.used = used_in(body)

    def are_apart(self, base: Value, first: Sequence[Op], second: Sequence[Op]) -> bool:
        """Whether two iterations never meet by these accesses of each, or do not mind."""
        some, others = list(self.spots(first)), list(self.spots(second))
        if len(some) * len(others) > MOST_PAIRS:
            return False
        return all(self.is_apart(base, a, b) for a in some for b in others)

    def spots(self, ops: Sequence[Op]) -> Iterator[Spot]:
        """The places that accesses to one array come to, each once."""
        found: dict[Hashable, list[Op]] = {}
        for op in ops:
            found.setdefault(self.key(op), []).append(op)
        for same in found.values():
            kinds = [None if op in self.used and op.kind != "load" else op.kind for op in same]
            yield Spot(same[0], frozenset(kinds))

    def key(self, op: Op) -> Hashable:
        """Equal for accesses to one place."""
        element = element_under(op.args[0])
        if element is None:
            return None
        component = place_of(op.args[0]).component
        return component, *map(self.survey.forms.key, element.args[1:])

    def is_apart(self, base: Value, a: Spot, b: Spot) -> bool:
        """Whether two iterations never come to one place, one to each of these, or do not mind."""
        if not (a.is_written or b.is_written) or commute(a, b):
            return True
        one, other = element_under(a.op.args[0]), element_under(b.op.args[0])
        if one is None or other is None:
            return False
        components = place_of(a.op.args[0]).component, place_of(b.op.args[0]).component
        return not may_meet(*components) or self.survey.never_meet(base, one, other)


def commute(a: Spot, b: Spot) -> bool:
    """Whether both do the same to a place, in a way that knows no order."""
    if a.kinds != b.kinds or len(a.kinds) != 1:
        return False
    (kind,) = a.kinds
    return kind in ATOMICS and ATOMICS[kind].combine in COMMUTATIVE
