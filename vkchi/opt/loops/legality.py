"""Legality of loop fusion and parallelization: whether iterations of loops may run in any order.

After fusion, an iteration of the second loop may run before other iterations of the first. That is
legal if no other iteration of the first accesses the same element. It is also legal if both only
read it, or both apply the same commutative atomic without using its result.

    >>> may_fuse(first.ops, second.ops, loop)       # y[i] = f(x[i]); z[i] = g(y[i])
    True

See also: `analysis.parallel_loops` (reordering of iterations), `analysis.memory.alias.reducible`
(atomics whose order cannot be observed), `opt.loops.scatter.shifts` (atomics that may leave a
loop).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from vkchi.analysis.memory.alias import accesses_by_base, location_of, shared_bases
from vkchi.analysis.memory.dependence import DependenceTest
from vkchi.analysis.memory.footprint import element_under
from vkchi.analysis.parallel_loops import is_private
from vkchi.analysis.values.interval_analysis import Intervals
from vkchi.ir.core import Op, used_in, walk, walk_ops
from vkchi.ir.ops import ATOMICS, COMMUTATIVE
from vkchi.target.remarks import Refusal, Verdict
from vkchi.tuples import NamedTuple

MOST_PAIRS = 256  # pairs of elements of one array that are compared
ALIASED = Refusal("arrays that are accessed may overlap in memory")
MANY = Refusal("too many elements of one array are accessed to compare them")


class ElementAccesses(NamedTuple):
    """Accesses of one of the two bodies to one element.

    `op` is the first access; `kinds` are the op kinds of all. A kind is None for an atomic whose
    result is used.
    """

    op: Op
    kinds: frozenset[str | None]

    @property
    def is_written(self) -> bool:
        return self.kinds != {"load"}


def may_fuse(
    first: Sequence[Op], second: Sequence[Op], loop: Op, ranges: Intervals | None = None
) -> Verdict:
    """True if no dependence from the `first` to the `second` ops connects different iterations.

    A Refusal if that is not proved. Precondition: the body of `loop` contains both lists of ops.
    `ranges` may include intervals of values defined around the loop.
    """
    before, behind = (accesses_by_base(walk_ops(ops)) for ops in (first, second))
    met = shared_bases(before, behind)
    if any(a is not b for a, b in met):
        return ALIASED
    parts = FusedLoopBody(loop, ranges) if met else None
    verdicts = (parts.are_apart(before[a], behind[a]) for a, _ in met) if parts else ()
    return next((verdict for verdict in verdicts if not verdict), True)


def are_independent(loop: Op) -> Verdict:
    """True if no two iterations access an element that one of them writes, not even by
    reductions. A Refusal if that is not proved."""
    accesses = {
        base: same
        for base, same in accesses_by_base(walk(loop.regions[0])).items()
        if not is_private(same[0])
    }
    met = shared_bases(accesses, accesses)
    if any(a is not b for a, b in met):
        return ALIASED
    parts = FusedLoopBody(loop, None, may_commute=False)
    verdicts = (parts.are_apart(accesses[a], accesses[a]) for a, _ in met)
    return next((verdict for verdict in verdicts if not verdict), True)


class FusedLoopBody:
    """Conflict tests between the two halves of the body of a fused loop, or of a body with itself.

    Reductions of one kind do not conflict, unless `may_commute` is False.
    """

    def __init__(self, loop: Op, ranges: Intervals | None, *, may_commute: bool = True) -> None:
        body = loop.regions[0]
        self.may_commute = may_commute
        self.survey = DependenceTest(body.ops, loop, ranges)
        self.used = used_in(body)

    def are_apart(self, first: Sequence[Op], second: Sequence[Op]) -> Verdict:
        """True if certainly no two iterations conflict, one through `first` and one through
        `second`."""
        some, others = list(self.spots(first)), list(self.spots(second))
        if len(some) * len(others) > MOST_PAIRS:
            return MANY
        pairs = ((a, b) for a in some for b in others if not self.is_apart(a, b))
        return next((dependence(a, b) for a, b in pairs), True)

    def spots(self, ops: Sequence[Op]) -> Iterator[ElementAccesses]:
        """Group accesses to one array by element and component."""
        found: dict[Hashable, list[Op]] = {}
        for op in ops:
            found.setdefault(self.key(op), []).append(op)
        for same in found.values():
            kinds = [None if op in self.used and op.kind != "load" else op.kind for op in same]
            yield ElementAccesses(same[0], frozenset(kinds))

    def key(self, op: Op) -> Hashable:
        """Key of the element and component that an op accesses; equal keys imply the same ones, or
        the same component of private memory, which has no `elem` op."""
        element = element_under(op.args[0])
        indices = element.args[1:] if element is not None else ()
        return location_of(op.args[0]).component, *map(self.survey.forms.key, indices)

    def is_apart(self, a: ElementAccesses, b: ElementAccesses) -> bool:
        """True if `a` and `b` only read, or commute, or provably never conflict."""
        is_harmless = not (a.is_written or b.is_written) or (self.may_commute and commute(a, b))
        return is_harmless or self.survey.are_apart(a.op.args[0], b.op.args[0])


def dependence(a: ElementAccesses, b: ElementAccesses) -> Refusal:
    """Return a refusal that names the second of two conflicting accesses."""
    first, second = ("write" if x.is_written else "read" for x in (a, b))
    reason = f"line {{line}} may {second} elements that other iterations {first}"
    return Refusal(reason, b.op.span)


def commute(a: ElementAccesses, b: ElementAccesses) -> bool:
    """True if both consist of one kind of commutative atomic, and its results are unused."""
    if a.kinds != b.kinds or len(a.kinds) != 1:
        return False
    (kind,) = a.kinds
    return kind in ATOMICS and ATOMICS[kind].combine in COMMUTATIVE
