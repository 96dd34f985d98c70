"""Accesses of parallel loops that may meet: two iterations come to one element, and one writes it.

Owns: `find_conflicts`, what indices do not keep apart; `Feasible`, which of these may meet with the
numbers and shapes of a call, as far as the ranges of their indices tell. Two accesses of an array
are known to be apart if
- constants in their components differ;
- it follows from equal indices that one iteration made both, as `access.Survey` has it, or that
  both have the number that `k = ti.atomic_add(count[...], 1)` drew.
Neither do iterations disturb each other that
- do the same kind of atomic operation, which commute;
- store a value that the element they store it to determines, as in `m[i // 3] = w[i // 3]`;
- only read whether a flag is up that nobody lowers (`influence.only_raises_flag`).
Of an array with more than MOST_ACCESSES in a loop, as unrolled ones have, they are taken together
by lines, whose indices are not compared: unless all commute, they may meet.
Must not know: gradients, launches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce

from vkchi.analysis.access import Survey
from vkchi.analysis.alias import Place, may_share, place_of
from vkchi.analysis.alias import may_meet as components_meet
from vkchi.analysis.boxes import Box, Shaped, joined, may_meet
from vkchi.analysis.footprint import Footprint, element_of, element_under
from vkchi.analysis.forms import is_wide_integer
from vkchi.analysis.intervals import Intervals
from vkchi.analysis.sums import Index, Symbol, symbols_in
from vkchi.ir.constants import constant_int
from vkchi.ir.control import axes_of
from vkchi.ir.core import Func, Op, Param, Value, base_of, used_in, uses_in, walk
from vkchi.ir.ops import EXTREMES, GREATER, TABLE, UPDATES, VARYING, Effect
from vkchi.races.influence import only_raises_flag
from vkchi.tuples import NamedTuple
from vkchi.types import Array

MOST_ACCESSES = 64
Accesses = tuple[Op, ...]  # of one kind, and one line


class Conflict(NamedTuple):
    """Two accesses of `root` in a loop, or those of two lines; `first` read, if some do."""

    loop: Op
    root: Value
    first: Accesses
    second: Accesses


def find_conflicts(fn: Func) -> list[Conflict]:
    """The accesses that may meet in two iterations of a loop."""
    used = used_in(fn.body)
    nothing_known = Intervals({})
    loops = [op for op in fn.body.ops if op.kind == "parallel" and may_repeat(op, nothing_known)]
    return [m for loop in loops for m in conflicts_in(loop, used)]


def conflicts_in(loop: Op, used: set[Value]) -> Iterator[Conflict]:
    """Those of one loop."""
    sites = Sites(loop)
    for root in sites.writes:
        if is_own(root, sites):
            continue
        places = sites.places(root, used)
        if sites.have_own(root, [element_under(op.args[0]) for op in places]):
            continue
        sides = [(op,) for op in places] if len(places) <= MOST_ACCESSES else by_lines(places)
        for k, some in enumerate(sides):
            for others in sides[k:]:
                if may_conflict(sites, places, some, others):
                    is_read = others[0].kind == "load"
                    first, second = (others, some) if is_read else (some, others)
                    yield Conflict(loop, root, first, second)


def by_lines(ops: Iterable[Op]) -> list[Accesses]:
    """Those of one kind and one line together."""
    found: dict[object, list[Op]] = {}
    for op in ops:
        found.setdefault((op.kind, op.span), []).append(op)
    return list(map(tuple, found.values()))


def may_conflict(
    sites: Sites, places: Mapping[Op, Place], some: Accesses, others: Accesses
) -> bool:
    """Whether two iterations may meet in these accesses, and disturb each other."""
    a, b = some[0], others[0]
    if len(some) > 1 or len(others) > 1:
        return not commute(a, b)
    return may_disturb(sites, a, b) and not sites.are_apart(a, b, places)


def is_own(root: Value, sites: Survey) -> bool:
    """Whether memory is the iteration's own, or its workgroup's."""
    return isinstance(root, Op) and (root.kind != "local" or root in sites.loops)


def may_disturb(sites: Sites, a: Op, b: Op) -> bool:
    """Whether two accesses of one element leave something else if their order changes."""
    return not commute(a, b) and not (a.kind == b.kind == "store" and sites.agree(a, b))


def commute(a: Op, b: Op) -> bool:
    """Whether two accesses leave the same in any order since they are of one kind."""
    return a.kind == b.kind and (a.kind == "load" or a.kind in COMMUTING)


COMMUTING = UPDATES - {"atomic_exchange"}


def is_pure(op: Op) -> bool:
    """Whether an op only gives a value or a place."""
    return TABLE[op.kind].effect is Effect.PURE


class Sites(Survey):
    """The accesses of a loop's body."""

    def __init__(self, loop: Op) -> None:
        (region,) = loop.regions
        super().__init__(region.ops, loop)
        self.region = region
        self.loads: dict[Value, list[Op]] = {}
        self.uses = uses_in(region)
        for op in walk(region):
            if op.kind == "load":
                self.loads.setdefault(base_of(op.args[0]), []).append(op)

    def places(self, root: Value, used: set[Value]) -> dict[Op, Place]:
        """Where the root is written, and read for something."""
        reads = [op for op in self.loads.get(root, ()) if op in used and not self.is_guard(op)]
        if not any(other is not root and may_share(other, root) for other in self.writes):
            writes = [w.op for w in self.writes[root]]
            reads = [op for op in reads if not only_raises_flag(self.region, op, writes)]
        return {op: place_of(op.args[0]) for op in (*reads, *(w.op for w in self.writes[root]))}

    def is_guard(self, read: Op) -> bool:
        """Whether a read only leaves out an extreme that would change nothing, as in
        `if v > most[None]: ti.atomic_max(most[None], v)`: what it finds does not matter."""
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
        is_ours = place_of(extreme.args[0]) == place_of(read.args[0])
        same = self.is_same_value(test.args[k], extreme.args[1])
        return is_ours and same and test.args[1 - k] is read

    def is_same_value(self, v: Value, w: Value) -> bool:
        """Whether two values of one iteration are the same: one, or read at one place that nobody
        writes to."""
        if v is w or not (isinstance(v, Op) and isinstance(w, Op) and v.kind == w.kind == "load"):
            return v is w
        root = base_of(v.args[0])
        is_fixed = not any(may_share(root, other) for other in self.writes)
        return is_fixed and place_of(v.args[0]) == place_of(w.args[0])

    def are_apart(self, a: Op, b: Op, places: Mapping[Op, Place]) -> bool:
        """Whether two accesses of an array never come to one place in two iterations."""
        if not components_meet(places[a].component, places[b].component):
            return True
        p, q = (element_under(op.args[0]) for op in (a, b))
        if p is None or q is None:
            return False
        pairs = zip(places[a].indices, places[b].indices, strict=True)
        return self.never_meet(base_of(p), p, q) or any(self.are_tickets(i, j) for i, j in pairs)

    def is_fixed_index(self, i: Index) -> bool:
        """Whether an index is the same in all iterations."""
        return i.root is None or self.is_steady(i.root)

    def is_one_iteration(self, determined: set[Symbol] | None) -> bool:
        """The same, of what counters draw, too: a number that is drawn once."""
        if super().is_one_iteration(determined):
            return True
        return any(self.is_ticket(v, determined or ()) for v in determined or ())

    def is_ticket(self, v: Symbol, determined: Collection[Symbol]) -> bool:
        """Whether v is what a counter gave, one that only counts up and that `determined` fixes."""
        if not isinstance(v, Op) or v.kind != "atomic_add":
            return False
        root = base_of(v.args[0])
        if any(other is not root and may_share(other, root) for other in self.writes):
            return False
        counts = (constant_int(w.op.args[1]) for w in self.writes[root] if w.op.kind != "store")
        is_counter = all(w.op.kind == "atomic_add" for w in self.writes[root])
        if not is_counter or not all(n is not None and n > 0 for n in counts):
            return False
        place = place_of(v.args[0])
        if isinstance(place.component, Value) and not self.is_steady(place.component):
            return False
        return all(i.root in determined or self.is_fixed_index(i) for i in place.indices)

    def are_tickets(self, i: Index, j: Index) -> bool:
        """Whether two indices are what one counter gave in two places of the loop, never the same,
        plus the same constant."""
        v, w = i.root, j.root
        if v is None or w is None or i.offset != j.offset:
            return False
        if not (self.is_ticket(v, ()) and self.is_ticket(w, ())):
            return False
        assert isinstance(v, Op) and isinstance(w, Op)
        return v is not w and place_of(v.args[0]) == place_of(w.args[0])

    def agree(self, a: Op, b: Op) -> bool:
        """Whether two stores to one element certainly store the same."""
        v, w = a.args[1], b.args[1]
        p, q = (element_under(op.args[0]) for op in (a, b))
        if p is None or q is None or self.forms.key(v) != self.forms.key(w):
            return False
        determined = self.same_places(base_of(p), p.args[1:], q.args[1:])
        return determined is None or self.is_determined(v, determined)

    def is_determined(self, v: Value, determined: set[Symbol]) -> bool:
        """Whether a value is the same wherever what is determined is."""
        todo, seen = [v], {v}
        for x in todo:  # grows
            if self.is_steady(x) or self.is_integer_determined(x, determined):
                continue
            if not (isinstance(x, Op) and self.is_repeatable(x)):
                return False
            more = [y for y in x.args if y not in seen and not isinstance(y.type, Array)]
            todo += more
            seen.update(more)
        return True

    def is_integer_determined(self, v: Value, determined: set[Symbol]) -> bool:
        """Whether all that differs in an integer is determined."""
        symbols = symbols_in(self.forms.of(v)) if is_wide_integer(v.type) else [v]
        return all(s in determined or not self.differs(s) for s in symbols)

    def is_repeatable(self, op: Op) -> bool:
        """Whether any iteration finds the same for the same operands."""
        if op.kind == "load":
            return not any(may_share(base_of(op.args[0]), other) for other in self.writes)
        is_pure_value = op.type is not None and is_pure(op)
        return is_pure_value and op.kind not in VARYING


class Feasible:
    """The answers for one Func and these conflicts."""

    def __init__(self, fn: Func, conflicts: Sequence[Conflict]) -> None:
        self.conflicts, self.footprint = conflicts, Footprint(fn, (), ())

    def find(self, numbers: Mapping[str, int], arrays: Mapping[str, Shaped]) -> tuple[int, ...]:
        """The numbers, from 0, of the conflicts that may be in a call."""
        if not self.conflicts:
            return ()
        shapes = tuple([(name, array.shape) for name, array in arrays.items()])
        ranges = self.footprint.ranges(numbers, shapes)
        return tuple(k for k, m in enumerate(self.conflicts) if is_feasible(m, ranges))


def is_feasible(m: Conflict, ranges: Intervals) -> bool:
    """Whether the loop may have two iterations, the parts of memory meet that both accesses may
    touch, and two iterations may come to one element."""
    if not may_repeat(m.loop, ranges):
        return False
    if not isinstance(m.root, Param):
        return True
    if not may_meet(box_of(m.first, ranges), box_of(m.second, ranges)):
        return False
    if len(m.first) > 1 or len(m.second) > 1:
        return True
    survey = Survey(m.loop.regions[0].ops, m.loop, ranges)
    return not survey.never_meet(m.root, *(element_of(op.args[0]) for op in (*m.first, *m.second)))


def may_repeat(loop: Op, ranges: Intervals) -> bool:
    """Whether a loop may have two iterations."""
    ends = [(ranges.of(axis.begin), ranges.of(axis.end)) for axis in axes_of(loop)]
    lengths = [e[1] - b[0] if b is not None and e is not None else 2 for b, e in ends]
    return min(lengths) > 0 and max(lengths) > 1


def box_of(ops: Sequence[Op], ranges: Intervals) -> Box:
    """Which part of their array ops may touch."""
    elements = dict.fromkeys(element_of(op.args[0]) for op in ops)
    boxes = [tuple(map(ranges.of, element.args[1:])) for element in elements]
    return tuple(reduce(joined, axis) for axis in zip(*boxes))
