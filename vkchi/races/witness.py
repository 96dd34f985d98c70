"""Witness search by symbolic execution: two concrete iterations of a parallel loop that conflict.

Integers that follow from loop indices, integer arguments and shapes are evaluated; values loaded
from memory are unknown. A witness of kind `SURELY` is a proof: both iterations exist, both
certainly reach their access, and both accesses have the same address. The search is a heuristic, so
the absence of a witness proves nothing.

Preconditions: equal indices are one value, as after the passes `simplify` and `dce`. Loops with
barriers or workgroup memory have no witness, because a barrier may order their accesses.

These are not witnesses:

- a read that an earlier store of its own iteration may cover;
- a read or write that a `select`, an `if` or a factor of 0 discards (`influence`). If that depends
  on memory, there is a witness of kind `IF`, as for accesses under such an `if`. The same holds
  for a store of a minimum, maximum, `and`, `or` or select of the old contents and other values.
- a store of the value that its iteration loaded from the same element;
- two stores, unless both values are known and differ;
- a read of an element that only monotone atomics (`min`, `max`, `and`, `or`) change.

    >>> WitnessSearch(fn, conflicts, {"n": 8}, {"x": (8,)}).find(conflicts[0])
    'surely'
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from vkchi.analysis.memory.alias import EXITS
from vkchi.analysis.memory.footprint import element_under
from vkchi.errors import InternalError
from vkchi.ir.core import (
    Func,
    Op,
    Param,
    Region,
    Value,
    base_memory,
    constant_array,
    constant_int,
    has_kind,
    value_of,
    walk,
)
from vkchi.ir.interp import evaluate, is_evaluable
from vkchi.ir.ops import (
    GROUPED,
    IDEMPOTENT,
    SYNCS,
    TABLE,
    VARYING,
    WRITES,
    Effect,
    axes_of,
    carried_params,
    initial_values,
)
from vkchi.races.conflicts import Conflict, accesses_commute
from vkchi.races.influence import AccessRelevance, RelevanceCondition
from vkchi.target import tuning
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Tensor, scalar_of, u64
from vkchi.types.lazy_numpy import np

MOST_ROUNDS = 3  # executed iterations of a serial loop; the accesses of others are unknown
MOST_DEPTH = 200  # depth of evaluated expressions
MOST_TRIED = 400  # executed iterations of one loop
MOST_ACCESSES = 2000  # known accesses of an iteration; later serial loops are skipped
MOST_SAMPLED = 20_000  # accesses of all sampled iterations
LEAST_DIFFERENCE = 1e-3  # of floats, relative; less may be rounding error
SIDES = {1: 16, 2: 4, 3: 3}  # extent of the first sampled block, by number of axes

SURELY, IF = "surely", "if"
Indices = tuple[int, ...]
Shapes = Mapping[str, tuple[int, ...]]


class KnownValues:
    """Known values in one execution of a region; None for unknown values."""

    __slots__ = ("known", "launch", "parent")

    def __init__(self, launch: KnownLaunch, parent: KnownValues | None = None) -> None:
        self.launch, self.parent = launch, parent
        self.known: dict[Value, object] = {}

    def get(self, v: Value, depth: int = 0) -> object:
        scope: KnownValues | None = self
        while scope is not None:
            if v in scope.known:
                return scope.known[v]
            scope = scope.parent
        found = self._compute(v, depth) if isinstance(v, Op) and depth < MOST_DEPTH else None
        self.known[v] = found
        return found

    def _compute(self, op: Op, depth: int) -> object:
        if op.kind == "const":
            return constant_array(op)
        if op.kind == "shape":
            return self.launch.extent(op)
        row = TABLE[op.kind]
        if row.effect is not Effect.PURE or op.kind in VARYING or not is_evaluable(op.kind):
            return None
        args = [self.get(v, depth + 1) for v in op.args]
        if any(arg is None for arg in args) or is_rounded(op):
            return None
        try:
            return evaluate(op.kind, args, op.attr, op.type)
        except (InternalError, ArithmeticError):  # undefined, as 7 // 0
            return None

    def integer(self, v: Value) -> int | None:
        found = self.get(v)
        return None if found is None else int(found)  # type: ignore[call-overload]


def is_rounded(op: Op) -> bool:
    """True if an op derives a non-float from floats.

    Rounding differs between devices and numpy, so such values are unknown.
    """
    takes_floats = any(kind_of(v) == "f" for v in op.args)
    return takes_floats and kind_of(op) != "f"


def kind_of(v: Value) -> str:
    return scalar_of(v.type).kind if isinstance(v.type, Scalar | Tensor) else ""


class ExecutedAccess(NamedTuple):
    """One execution of a load or write.

    `element` is None and `component` UNKNOWN if they are unknown. `is_certain` is True if it
    certainly happens. `scope` holds the values known there.
    """

    op: Op
    element: Indices | None
    component: object
    is_certain: bool
    scope: KnownValues


UNKNOWN = object()  # an unknown component


class KnownLaunch:
    def __init__(self, fn: Func, numbers: Mapping[str, int], shapes: Shapes) -> None:
        self.shapes = shapes
        self.scope = KnownValues(self)
        for p in fn.params:
            if isinstance(p.type, Scalar) and p.name in numbers:
                self.scope.known[p] = converted(numbers[p.name], p.type)

    def shape_of(self, array: Value) -> tuple[int, ...] | None:
        t = array.type
        if isinstance(t, Array) and t.shape is not None:
            return tuple(t.shape)
        return self.shapes.get(array.name)

    def extent(self, op: Op) -> object:
        shape = self.shape_of(op.args[0])
        return None if shape is None else scalar_of(op.type).dtype.type(shape[op.attr])


def converted(n: int, t: Scalar) -> object:
    """Wrap an integer argument to its parameter's type; None for floats and bools."""
    return value_of(n % (1 << t.bits), t) if t.kind in "iu" else None


class WitnessSearch:
    def __init__(
        self, fn: Func, conflicts: Sequence[Conflict], numbers: Mapping[str, int], shapes: Shapes
    ) -> None:  # fmt: skip
        self.launch = KnownLaunch(fn, numbers, shapes)
        self.influence = AccessRelevance(fn, reads_of(conflicts))
        self.traces: dict[Op, IterationTraces] = {}
        self.outside = KnownValues(self.launch, self.launch.scope)  # those of loops are unknown

    def length(self, loop: Op) -> int | None:
        """Trip count of a parallel loop, if it is known."""
        for inner in cut_loops(loop):
            total = shared_count(inner)
            return None if total is None else self.launch.scope.integer(total)
        space = self.space(loop)
        return None if space is None else int(np.prod([len(axis) for axis in space], dtype=object))

    def space(self, loop: Op) -> list[range] | None:
        with np.errstate(all="ignore"):
            get = self.launch.scope.integer
            ends = [(get(axis.begin), get(axis.end)) for axis in axes_of(loop)]
        known = [range(b, e) for b, e in ends if b is not None and e is not None]
        return known if len(known) == len(ends) else None

    def find(self, conflict: Conflict) -> str:
        """SURELY or IF: kind of a witness that two iterations conflict; empty without a witness."""
        loop = conflict.loop
        if has_kind(loop.regions[0], GROUPED | SYNCS) or not may_matter(conflict):
            return ""
        if self.are_apart(conflict):
            return ""
        if loop not in self.traces:
            space = self.space(loop)
            self.traces[loop] = IterationTraces(self.launch, loop, space or [])
        with np.errstate(all="ignore"):
            return self._find(conflict, self.traces[loop])

    def are_apart(self, conflict: Conflict) -> bool:
        """True if the two sides have different indices on an axis, in all iterations."""
        with np.errstate(all="ignore"):
            sides = [set(map(self.fixed_indices, ops)) for ops in (conflict.first, conflict.second)]
        return all(
            any(None not in pair and pair[0] != pair[1] for pair in zip(one, other))
            for one in sides[0]
            for other in sides[1]
        )

    def fixed_indices(self, access: Op) -> tuple[int | None, ...]:
        """Return the indices of an access; None for those that differ between iterations."""
        elem = element_under(access.args[0])
        return () if elem is None else tuple([self.outside.integer(v) for v in elem.args[1:]])

    def _find(self, conflict: Conflict, traces: IterationTraces) -> str:
        found = ""
        first, second = set(conflict.first), set(conflict.second)
        for point in traces.sample():
            for access in traces.of(point):
                if access.op not in second or not self._counts(access):
                    continue
                for other, partner in traces.partners(access, point, first):
                    sides = self._counts(access), self._counts(partner)
                    is_read = partner.op.kind == "load"
                    if "" in sides or not order_matters(partner, access):
                        continue
                    if not is_read or not traces.is_covered(other, partner):
                        found = IF
                        if IF not in sides:
                            return SURELY
        return found

    def _counts(self, access: ExecutedAccess) -> str:
        """SURELY if an access certainly happens and affects the result; IF if memory decides on
        that.

        Empty if its element is unknown, or if it has no effect.
        """
        if access.element is None:
            return ""
        effect = self._effect(access)
        return IF if effect and not access.is_certain else effect

    def _effect(self, access: ExecutedAccess) -> str:
        """SURELY if an access affects the result where it happens; IF if memory decides; or ""."""
        if access.op.kind != "load":
            v = access.op.args[1]
            if self.influence.is_old(v, access.op):
                return ""
            if v in self.influence.in_loops and is_put_back(access):
                return ""
            when = self.influence.change(access.op)
            if when is not None:
                return conditions_hold([when], access.scope)
            is_kept = self.influence.may_keep(v, access.op)
            return IF if is_kept and access.op.kind == "store" else SURELY
        endings = self.influence.endings(access.op)
        if endings is None:
            return SURELY
        inner = KnownValues(access.scope.launch, access.scope)  # its unknown values are its own
        found = {conditions_hold(ending.whens, inner) for ending in endings}
        return SURELY if SURELY in found else IF if IF in found else ""


def cut_loops(loop: Op) -> list[Op]:
    """The serial loop inside that has the iterations, if `opt.mapping.wide` strip-mined the
    loop."""
    if [constant_int(v) for v in loop.args] != [0, tuning.WIDE_INVOCATIONS]:
        return []
    inner = [op for op in loop.regions[0].ops if op.kind == "for"]
    return [op for op in inner if op.regions[0].params[0].type is u64]


def shared_count(inner: Op) -> Value | None:
    """Number of iterations that all serial loops of a strip-mined loop execute together."""
    rounds = inner.args[1]
    if not isinstance(rounds, Op) or rounds.kind != "trip_count":
        return None
    return rounds.args[1] if constant_int(rounds.args[2]) == tuning.WIDE_INVOCATIONS else None


def reads_of(conflicts: Iterable[Conflict]) -> list[Op]:
    return list(dict.fromkeys(op for m in conflicts for op in m.first if op.kind == "load"))


def may_matter(conflict: Conflict) -> bool:
    """True if the order of two such accesses may matter."""
    first, second = conflict.first[0], conflict.second[0]
    if first.kind == "load":
        return not all(is_monotone(op) for op in conflict.second)
    return not accesses_commute(first, second)


def is_monotone(op: Op) -> bool:
    return op.kind in IDEMPOTENT


def conditions_hold(whens: Iterable[RelevanceCondition], scope: KnownValues) -> str:
    """SURELY if all conditions hold for at least one component; IF one is unknown and none is
    false; "" if one is false."""
    found = SURELY
    for when in whens:
        value = scope.get(when.value)
        if value is None:
            found = IF
        elif not (np.asarray(value) != (when.wanted is False)).any():
            return ""
    return found


def is_same_place(a: ExecutedAccess, b: ExecutedAccess) -> bool:
    if a.element is None or a.element != b.element or UNKNOWN in (a.component, b.component):
        return False
    return a.component == b.component or a.component is None or b.component is None


def is_put_back(access: ExecutedAccess) -> bool:
    """True if an access stores the value that its iteration loaded from the same address.

    The indices may be different expressions here, unlike in `AccessRelevance.is_old`.
    """
    v = access.op.args[1]
    if access.op.kind != "store" or not isinstance(v, Op) or v.kind != "load":
        return False
    if (
        base_memory(v.args[0]) is not base_memory(access.op.args[0])
        or element_under(v.args[0]) is None
    ):
        return False
    component = component_at(v, access.scope)
    is_same = component == access.component and component is not UNKNOWN
    return is_same and element_at(v, access.scope) == access.element


def order_matters(a: ExecutedAccess, b: ExecutedAccess) -> bool:
    """True if the result of two accesses to one address depends on their order.

    False if one certainly adds 0. Two stores must write one component, and values that certainly
    differ: floats by more than LEAST_DIFFERENCE.
    """
    shared = b.component if a.component is None else a.component
    if adds_zero(a, shared) or adds_zero(b, shared):
        return False
    if a.op.kind != "store" or b.op.kind != "store":
        return True
    if a.component != b.component:
        return False
    v, w = a.scope.get(a.op.args[1]), b.scope.get(b.op.args[1])
    if v is None or w is None:
        return False
    if kind_of(a.op.args[1]) != "f":
        return bool(np.any(np.not_equal(v, w)))  # type: ignore[call-overload]
    x, y = np.asarray(v, np.float64), np.asarray(w, np.float64)
    return bool(np.any(np.abs(x - y) > LEAST_DIFFERENCE * np.maximum(np.abs(x), np.abs(y))))


def adds_zero(access: ExecutedAccess, component: object) -> bool:
    """True if an access certainly adds 0 to a component, or (None) to all that it writes."""
    if access.op.kind != "atomic_add":
        return False
    value = access.scope.get(access.op.args[1])
    if value is None:
        return False
    parts = np.asarray(value).reshape(-1)
    if access.component is None and isinstance(component, int):
        parts = parts[component : component + 1]
    return not parts.any()


class IterationTraces:
    def __init__(self, launch: KnownLaunch, loop: Op, space: Sequence[range]) -> None:
        self.launch, self.loop, self.space = launch, loop, space
        self.params = loop.regions[0].params
        self.found: dict[Indices, list[ExecutedAccess]] = {}
        self.firsts: dict[Indices, KnownValues] = {}  # in the first iterations of serial loops
        self.points: list[Indices] | None = None
        self.sampled: dict[tuple[Op, Indices], list[tuple[Indices, ExecutedAccess]]] = {}

    def sample(self) -> list[Indices]:
        """Sampled iterations: a block at the beginning, two per axis in the middle, and the last
        one.

        At most MOST_TRIED // 2; none if a loop bound is unknown. Their known accesses are indexed.
        """
        if self.points is None:
            side = SIDES.get(len(self.space), 2)
            if not self.space or not all(self.space):
                self.points = []
            else:
                middles = [axis[len(axis) // 2 :][:2] for axis in self.space]
                blocks = [[axis[:side] for axis in self.space], middles]
                blocks.append([axis[-1:] for axis in self.space])
                points = (p for block in blocks for p in product(*block))
                first = next(iter(product(*blocks[0])))
                most = max(4, MOST_SAMPLED // max(1, len(self.of(first))))
                self.points = list(dict.fromkeys(points))[: min(most, MOST_TRIED // 2)]
            for point in self.points:
                for access in self.of(point):
                    if access.element is not None:
                        key = access.op, access.element
                        self.sampled.setdefault(key, []).append((point, access))
        return self.points

    def partners(
        self, access: ExecutedAccess, point: Indices, ops: Iterable[Op]
    ) -> Iterator[tuple[Indices, ExecutedAccess]]:
        assert access.element is not None
        for op in ops:
            for other, partner in self.sampled.get((op, access.element), ()):
                if other != point and is_same_place(partner, access):
                    yield other, partner
            for other in self.guess(op, access, point):
                for partner in self.of(other):
                    if partner.op is op and other != point and is_same_place(partner, access):
                        yield other, partner

    def of(self, point: Indices) -> list[ExecutedAccess]:
        """Accesses of an iteration, in order; none after MOST_TRIED executed iterations."""
        if point not in self.found:
            if len(self.found) >= MOST_TRIED:
                return []
            run = SymbolicExecution()
            run.region(self.loop.regions[0], self._scope(point), is_certain=True)
            self.found[point] = run.accesses
        return self.found[point]

    def _scope(self, point: Indices) -> KnownValues:
        scope = KnownValues(self.launch, self.launch.scope)
        for p, k in zip(self.params, point, strict=True):
            scope.known[p] = scalar_of(p.type).dtype.type(k)
        return scope

    def guess(self, op: Op, access: ExecutedAccess, point: Indices) -> Iterator[Indices]:
        """Yield iterations in which an op may have the address of an access of the iteration
        `point`.

        A heuristic for ops whose indices are linear and each follow one axis.
        """
        here = self._element(op, point)
        if here is None or access.element is None:
            return
        steps: list[Indices] = []
        for axis, _ in enumerate(point):
            there = self._element(op, moved(point, axis, 1))
            if there is None:
                return
            steps.append(tuple(t - h for t, h in zip(there, here)))
        target = list(point)
        is_free = [not any(step) for step in steps]
        for m, (wanted, found) in enumerate(zip(access.element, here)):
            moving = [k for k, step in enumerate(steps) if step[m]]
            if wanted != found:
                if len(moving) != 1 or (wanted - found) % steps[moving[0]][m]:
                    return
                target[moving[0]] = point[moving[0]] + (wanted - found) // steps[moving[0]][m]
        for k, free in enumerate(is_free):
            if free:
                yield from self._inside(moved(tuple(target), k, 1), moved(tuple(target), k, -1))
        yield from self._inside(tuple(target))

    def _inside(self, *points: Indices) -> Iterator[Indices]:
        yield from (p for p in points if all(k in a for k, a in zip(p, self.space)))

    def _element(self, op: Op, point: Indices) -> Indices | None:
        scope = self.firsts.get(point)
        if scope is None:
            scope = self.firsts[point] = self._scope(point)
            for inner in walk(self.loop.regions[0]):
                if inner.kind == "for":
                    scope.known[inner.regions[0].params[0]] = scope.get(inner.args[0])
        return element_at(op, scope)

    def is_covered(self, point: Indices, read: ExecutedAccess) -> bool:
        """True if an iteration may store to the element before it reads it."""
        root = base_memory(read.op.args[0])
        for access in self.of(point):
            if access.op is read.op and access.scope is read.scope:
                return False
            is_store = access.op.kind == "store" and base_memory(access.op.args[0]) is root
            if is_store and (access.element is None or access.element == read.element):
                return True
        return True


def moved(point: Indices, axis: int, by: int) -> Indices:
    return (*point[:axis], point[axis] + by, *point[axis + 1 :])


def element_at(op: Op, scope: KnownValues) -> Indices | None:
    """Element that a load or write accesses; None if it is unknown or out of range."""
    elem = element_under(op.args[0])
    if elem is None:
        return None
    indices = [scope.integer(v) for v in elem.args[1:]]
    shape = scope.launch.shape_of(elem.args[0])
    known = tuple(k for k in indices if k is not None)
    if shape is None or len(known) < len(indices) or len(shape) != len(known):
        return None
    return known if all(0 <= k < n for k, n in zip(known, shape)) else None


def component_at(op: Op, scope: KnownValues) -> object:
    """Component of the element that an op accesses; None for all components.

    UNKNOWN if it is not known.
    """
    place = op.args[0]
    assert isinstance(place, Op)
    if place.kind == "elem":
        return None
    if place.kind == "member":
        return place.attr
    found = scope.integer(place.args[1]) if place.kind == "member_at" else None
    return UNKNOWN if found is None else found


class SymbolicExecution:
    def __init__(self) -> None:
        self.accesses: list[ExecutedAccess] = []
        self.may_have_ended = False

    def region(self, region: Region, scope: KnownValues, *, is_certain: bool) -> list[object]:
        for op in region.ops:
            certain = is_certain and not self.may_have_ended
            if op.kind == "load" or op.kind in WRITES:
                self._access(op, scope, is_certain=certain)
            elif op.kind == "if":
                self._if(op, scope, is_certain=certain)
            elif op.kind == "for":
                self._for(op, scope, is_certain=certain)
            elif op.kind in EXITS:
                self.may_have_ended = True
            elif op.regions:
                self._unknown(op, scope)
        return [scope.get(v) for v in region.yielded]

    def _access(self, op: Op, scope: KnownValues, *, is_certain: bool) -> None:
        root = base_memory(op.args[0])
        if isinstance(root, Param):
            element = element_at(op, scope)
            place = component_at(op, scope)
            self.accesses.append(ExecutedAccess(op, element, place, is_certain, scope))

    def _if(self, op: Op, scope: KnownValues, *, is_certain: bool) -> None:
        condition = scope.get(op.args[0])
        if condition is None:
            self._unknown(op, scope)
            return
        arm = op.regions[0 if condition else 1]
        values = self.region(arm, KnownValues(scope.launch, scope), is_certain=is_certain)
        scope.known.update(zip(op.results, values))

    def _for(self, op: Op, scope: KnownValues, *, is_certain: bool) -> None:
        begin, end = (scope.integer(v) for v in op.args[:2])
        if begin is None or end is None or len(self.accesses) > MOST_ACCESSES:
            self._unknown(op, scope)
            return
        values = [scope.get(v) for v in initial_values(op)]
        index, *_ = op.regions[0].params
        make = scalar_of(index.type).dtype.type
        for k in range(begin, min(end, begin + MOST_ROUNDS)):
            inner = KnownValues(scope.launch, scope)
            inner.known[index] = make(k)
            inner.known.update(zip(carried_params(op), values))
            values = self.region(op.regions[0], inner, is_certain=is_certain)
        if end > begin + MOST_ROUNDS:
            self._unknown(op, scope)
        else:
            scope.known.update(zip(op.results, values))

    def _unknown(self, op: Op, scope: KnownValues) -> None:
        """Execute the regions of an op whose condition or trip count is unknown.

        Their accesses are uncertain and their results unknown.
        """
        for region in op.regions:
            inner = KnownValues(scope.launch, scope)
            inner.known.update(dict.fromkeys(region.params))
            self.region(region, inner, is_certain=False)
        scope.known.update(dict.fromkeys(op.results))
