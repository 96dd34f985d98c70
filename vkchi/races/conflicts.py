"""Dependence test between iterations of a parallel loop: which accesses may conflict?

Two iterations conflict if they access the same element and at least one of them writes.
`find_conflicts` lists the pairs of accesses for which that cannot be excluded. `FeasibleConflicts`
removes pairs that the index ranges of a particular call exclude.

Two accesses of an array are disjoint if

- constant components differ;
- equal indices imply the same iteration (`analysis.memory.dependence`);
- equal indices imply the same ticket, the result of `k = ti.atomic_add(count[...], 1)`;
- the indices are different tickets of one counter.

Two accesses of one element are harmless if they

- do the same kind of atomic operation, except exchanges, which do not commute;
- store a value that is a function of the element, as in `m[i // 3] = w[i // 3]`.

Reads are harmless if they

- only test a flag that is never reset (`influence.only_raises_flag`);
- only guard an atomic extreme (`LoopAccesses.is_guard`).

If a loop accesses an array more than MOST_ACCESSES times, as unrolled loops do, accesses are
grouped by kind and source line. Indices of groups with several accesses are not compared: such
groups conflict unless they commute.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce

from vkchi.analysis.memory.alias import accesses_by_base, bases_may_alias, location_of
from vkchi.analysis.memory.boxes import Box, Shaped, boxes_may_intersect, range_hull
from vkchi.analysis.memory.dependence import DependenceTest
from vkchi.analysis.memory.footprint import Footprint, element_of, element_under
from vkchi.analysis.values.interval_analysis import Intervals
from vkchi.analysis.values.polynomials import OffsetIndex, Symbol, is_wide_integer, symbols_in
from vkchi.ir.core import Func, Op, Param, Value, base_memory, constant_int, used_in, uses_in, walk
from vkchi.ir.ops import EXTREMES, GREATER, TABLE, UPDATES, VARYING, Effect, axes_of
from vkchi.races.influence import only_raises_flag
from vkchi.tuples import NamedTuple
from vkchi.types import Array

MOST_ACCESSES = 64
Accesses = tuple[Op, ...]  # of one kind and source line


class Conflict(NamedTuple):
    """Two accesses of `root` in a loop, or two groups by source line; reads are in `first`."""

    loop: Op
    root: Value
    first: Accesses
    second: Accesses


def find_conflicts(fn: Func) -> list[Conflict]:
    """Pairs of accesses that may conflict between two iterations of a parallel loop of the Func's
    body."""
    used = used_in(fn.body)
    nothing_known = Intervals({})
    loops = [op for op in fn.body.ops if op.kind == "parallel" and may_repeat(op, nothing_known)]
    return [m for loop in loops for m in conflicts_in(loop, used)]


def conflicts_in(loop: Op, used: set[Value]) -> Iterator[Conflict]:
    sites = LoopAccesses(loop)
    for root in sites.writes:
        if is_private_memory(root, sites):
            continue
        ops = sites.accesses(root, used)
        if sites.have_own(root, [element_under(op.args[0]) for op in ops]):
            continue
        sides = [(op,) for op in ops] if len(ops) <= MOST_ACCESSES else by_lines(ops)
        for k, some in enumerate(sides):
            for others in sides[k:]:
                if may_conflict(sites, some, others):
                    is_read = others[0].kind == "load"
                    first, second = (others, some) if is_read else (some, others)
                    yield Conflict(loop, root, first, second)


def by_lines(ops: Iterable[Op]) -> list[Accesses]:
    found: dict[object, list[Op]] = {}
    for op in ops:
        found.setdefault((op.kind, op.span), []).append(op)
    return list(map(tuple, found.values()))


def may_conflict(sites: LoopAccesses, some: Accesses, others: Accesses) -> bool:
    a, b = some[0], others[0]
    if len(some) > 1 or len(others) > 1:
        return not accesses_commute(a, b)
    return may_disturb(sites, a, b) and not sites.are_apart(a.args[0], b.args[0])


def is_private_memory(root: Value, sites: DependenceTest) -> bool:
    """True for memory that is private to an iteration, or shared by one workgroup."""
    return isinstance(root, Op) and (root.kind != "local" or root in sites.loops)


def may_disturb(sites: LoopAccesses, a: Op, b: Op) -> bool:
    """True if the result of two accesses to one element may depend on their order."""
    return not accesses_commute(a, b) and not (a.kind == b.kind == "store" and sites.agree(a, b))


def accesses_commute(a: Op, b: Op) -> bool:
    """True if both accesses are loads, or atomics of one kind other than an exchange."""
    return a.kind == b.kind and (a.kind == "load" or a.kind in COMMUTING)


COMMUTING = UPDATES - {"atomic_exchange"}


def is_pure(op: Op) -> bool:
    return TABLE[op.kind].effect is Effect.PURE


class LoopAccesses(DependenceTest):
    def __init__(self, loop: Op) -> None:
        (region,) = loop.regions
        super().__init__(region.ops, loop)
        self.region = region
        self.loads = accesses_by_base(op for op in walk(region) if op.kind == "load")
        self.uses = uses_in(region)

    def accesses(self, root: Value, used: set[Value]) -> list[Op]:
        """The accesses that write the root, or read it so that the value counts.

        Reads with unused results, guards and flag tests do not count.
        """
        reads = [op for op in self.loads.get(root, ()) if op in used and not self.is_guard(op)]
        writes = [w.op for w in self.writes[root]]
        if not any(other is not root and bases_may_alias(other, root) for other in self.writes):
            reads = [op for op in reads if not only_raises_flag(self.region, op, writes)]
        return [*reads, *writes]

    def is_guard(self, read: Op) -> bool:
        """True for a read that only skips an atomic extreme without effect.

        An example is `if v > most[None]: ti.atomic_max(most[None], v)`. The value read does not
        matter.
        """
        (test, *others) = self.uses.get(read, [read])
        (branch, *more) = self.uses.get(test, [test])
        if others or more or branch.kind != "if" or branch.results or test.kind not in GREATER:
            return False
        arms = [[op for op in r.ops if op.kind != "load" and not is_pure(op)]
                for r in branch.regions]  # fmt: skip
        if [len(arm) for arm in arms] != [2, 1] or arms[0][0].kind not in EXTREMES:
            return False
        extreme = arms[0][0]
        k = GREATER[test.kind] if extreme.kind == "atomic_max" else 1 - GREATER[test.kind]
        is_ours = location_of(extreme.args[0]) == location_of(read.args[0])
        same = self.is_same_value(test.args[k], extreme.args[1])
        return is_ours and same and test.args[1 - k] is read

    def is_same_value(self, v: Value, w: Value) -> bool:
        """True if two values of one iteration are proved equal.

        They are one value, or loads of one element that the loop does not write.
        """
        if v is w or not (isinstance(v, Op) and isinstance(w, Op) and v.kind == w.kind == "load"):
            return v is w
        root = base_memory(v.args[0])
        is_fixed = not any(bases_may_alias(root, other) for other in self.writes)
        return is_fixed and location_of(v.args[0]) == location_of(w.args[0])

    def are_apart(self, a: Value, b: Value) -> bool:
        """True also if the indices are different tickets of one counter."""
        pairs = zip(location_of(a).indices, location_of(b).indices, strict=True)
        return super().are_apart(a, b) or any(self.are_tickets(i, j) for i, j in pairs)

    def is_fixed_index(self, i: OffsetIndex) -> bool:
        return i.root is None or self.is_steady(i.root)

    def is_one_iteration(self, determined: set[Symbol] | None) -> bool:
        """True if equal values of the symbols `determined` imply the same iteration.

        A ticket of a counter does so, too. True also for None: there is no common element.
        """
        if super().is_one_iteration(determined):
            return True
        return any(self.is_ticket(v, determined or ()) for v in determined or ())

    def is_ticket(self, v: Symbol, determined: Collection[Symbol]) -> bool:
        """True if `v` is a ticket: the result of an atomic counter that only counts up.

        The counter's element must be fixed by the values in `determined`.
        """
        if not isinstance(v, Op) or v.kind != "atomic_add":
            return False
        root = base_memory(v.args[0])
        if any(other is not root and bases_may_alias(other, root) for other in self.writes):
            return False
        counts = (constant_int(w.op.args[1]) for w in self.writes[root] if w.op.kind != "store")
        is_counter = all(w.op.kind == "atomic_add" for w in self.writes[root])
        if not is_counter or not all(n is not None and n > 0 for n in counts):
            return False
        place = location_of(v.args[0])
        if isinstance(place.component, Value) and not self.is_steady(place.component):
            return False
        return all(i.root in determined or self.is_fixed_index(i) for i in place.indices)

    def are_tickets(self, i: OffsetIndex, j: OffsetIndex) -> bool:
        """True if two indices are different tickets of one counter plus the same constant."""
        v, w = i.root, j.root
        if v is None or w is None or i.offset != j.offset:
            return False
        if not (self.is_ticket(v, ()) and self.is_ticket(w, ())):
            return False
        assert isinstance(v, Op) and isinstance(w, Op)
        return v is not w and location_of(v.args[0]) == location_of(w.args[0])

    def agree(self, a: Op, b: Op) -> bool:
        """True if two stores to one element certainly store the same value."""
        v, w = a.args[1], b.args[1]
        p, q = (element_under(op.args[0]) for op in (a, b))
        if p is None or q is None or self.forms.key(v) != self.forms.key(w):
            return False
        determined = self.same_places(base_memory(p), p.args[1:], q.args[1:])
        return determined is None or self.is_determined(v, determined)

    def is_determined(self, v: Value, determined: set[Symbol]) -> bool:
        """True if a value is proved to be a function of the values in `determined`."""
        todo, seen = [v], {v}
        for x in todo:  # a worklist: grows during iteration
            if self.is_steady(x) or self.is_integer_determined(x, determined):
                continue
            if not (isinstance(x, Op) and self.is_repeatable(x)):
                return False
            more = [y for y in x.args if y not in seen and not isinstance(y.type, Array)]
            todo += more
            seen.update(more)
        return True

    def is_integer_determined(self, v: Value, determined: set[Symbol]) -> bool:
        """True if the iteration-dependent part of an integer is determined."""
        symbols = symbols_in(self.forms.of(v)) if is_wide_integer(v.type) else [v]
        return all(s in determined or not self.differs(s) for s in symbols)

    def is_repeatable(self, op: Op) -> bool:
        """True if an op gives the same result in every iteration for the same operands."""
        if op.kind == "load":
            return not any(bases_may_alias(base_memory(op.args[0]), other) for other in self.writes)
        is_pure_value = op.type is not None and is_pure(op)
        return is_pure_value and op.kind not in VARYING


class FeasibleConflicts:
    def __init__(self, fn: Func, conflicts: Sequence[Conflict]) -> None:
        self.conflicts, self.footprint = conflicts, Footprint(fn, (), ())

    def find(self, numbers: Mapping[str, int], arrays: Mapping[str, Shaped]) -> tuple[int, ...]:
        if not self.conflicts:
            return ()
        shapes = tuple([(name, array.shape) for name, array in arrays.items()])
        ranges = self.footprint.ranges(numbers, shapes)
        return tuple(k for k, m in enumerate(self.conflicts) if is_feasible(m, ranges))


def is_feasible(m: Conflict, ranges: Intervals) -> bool:
    """True if a conflict may occur with these ranges.

    The loop must have two iterations. In an array parameter, the boxes of both accesses must
    intersect, and two iterations must be able to access one element.
    """
    if not may_repeat(m.loop, ranges):
        return False
    if not isinstance(m.root, Param):
        return True
    if not boxes_may_intersect(access_box(m.first, ranges), access_box(m.second, ranges)):
        return False
    if len(m.first) > 1 or len(m.second) > 1:
        return True
    survey = DependenceTest(m.loop.regions[0].ops, m.loop, ranges)
    return not survey.never_meet(m.root, *(element_of(op.args[0]) for op in (*m.first, *m.second)))


def may_repeat(loop: Op, ranges: Intervals) -> bool:
    ends = [(ranges.of(axis.begin), ranges.of(axis.end)) for axis in axes_of(loop)]
    lengths = [e[1] - b[0] if b is not None and e is not None else 2 for b, e in ends]
    return min(lengths) > 0 and max(lengths) > 1


def access_box(ops: Sequence[Op], ranges: Intervals) -> Box:
    elements = dict.fromkeys(element_of(op.args[0]) for op in ops)
    boxes = [tuple(map(ranges.of, element.args[1:])) for element in elements]
    return tuple(reduce(range_hull, axis) for axis in zip(*boxes))
