"""Affine scatter-adds: reductions whose subscripts are the loop index plus an offset.

For each axis of the loop, one subscript is the index plus an offset, as in `x[i - 1, j] += v`. The
offset consists of constants, loop-invariant values and indices of serial loops. The subscript may
also be the remainder of that by the axis's length (`x[(i + 1) % n]`). All other subscripts are
loop-invariant. So the source iteration of an update is the element's index minus the offset, which
permits scatter-to-gather. A quotient (`x[i // 2]`) or a constant clamp (`x[min(i + 1, 7)]`)
maps a few iterations to one subscript; each of these has its own offset.

The updates may run before the loop if it does not read the updated elements, and the added values
are available before it. Their inputs must not be written, or only after the same iteration has read
them.

    >>> ScatterAnalysis(loop).targets()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from itertools import product

from vkchi.analysis.dataflow import closure
from vkchi.analysis.memory.alias import (
    accesses_by_base,
    bases_may_alias,
    components_may_overlap,
    location_of,
)
from vkchi.analysis.memory.dependence import DependenceTest, WriteAccess
from vkchi.analysis.memory.footprint import element_under, strip_clamps
from vkchi.analysis.parallel_loops import may_interleave
from vkchi.analysis.values.polynomials import (
    Frozen,
    MixedRadixDigit,
    Polynomial,
    WrappedSums,
    as_polynomial,
    constant_polynomial,
    factor_of,
    freeze,
    minus,
    only_symbol,
    polynomial_constant,
    symbols_in,
)
from vkchi.analysis.values.ranges import Extent
from vkchi.ir.core import Op, Region, Result, Value, base_memory, constant_int, used_in, walk
from vkchi.ir.op_table.interval_rules import Interval
from vkchi.ir.ops import (
    QUOTIENTS,
    READS,
    TABLE,
    WRITES,
    Effect,
    LoopAxis,
    axes_of,
    bodies_of,
    control_operands,
    initial_values,
    is_loop,
)
from vkchi.target import tuning
from vkchi.target.remarks import Refusal, Verdict
from vkchi.tuples import NamedTuple
from vkchi.types import WIDE_FROM, scalar_of


class SubscriptOffset(NamedTuple):
    """Offset of a subscript from the loop index: `every * subscript == i + by`.

    With `modulus` (the axis's length) the equation is modulo that. It holds for subscripts in [low,
    high] or, if given, only for subscript `at`. `nth` numbers the iterations that share a
    subscript.
    """

    by: Frozen
    every: int = 1
    nth: int = 0
    modulus: Value | None = None
    low: int | None = None
    high: int | None = None
    at: int | None = None


class ScatterTarget(NamedTuple):
    """A family of target elements.

    `axes[k]` is the loop axis that subscript k follows; None for an invariant subscript, listed in
    `steady`.
    """

    base: Value
    axes: tuple[int | None, ...]
    steady: tuple[Frozen, ...]
    component: int | None


class ScatterAdd(NamedTuple):
    """A scatter-add with its offset along each loop axis; without offsets for `inner_targets`.

    `loops` are the enclosing serial loops whose indices occur in offsets, and the loops around
    those, outermost first. An op has one `ScatterAdd` for each iteration that updates the same
    element through a clamp or quotient.
    """

    op: Op
    place: ScatterTarget
    shifts: tuple[SubscriptOffset, ...]
    loops: tuple[Op, ...]


SUBSCRIPTS = Refusal("its subscripts are no indices of the loop plus offsets")
ENTANGLED = Refusal("the loop accesses the array, or memory that its value needs, in another way")
COSTLY = Refusal("computing its value once more costs more than the atomics")
FARTHEST_WRAPPED = 1 << 14  # offset before a remainder; `WIDE_FROM` leaves room for it
FARTHEST_LIMITED = 1 << 28  # clamped subscripts and their loop bounds: nothing wraps


class ScatterAnalysis:
    """Finds the float `atomic_add`s of a `parallel` that may run before the loop, with their
    offsets. Only adds with unused results count."""

    def __init__(self, loop: Op) -> None:
        self.loop, self.body = loop, loop.regions[0]
        self.used = used_in(self.body)
        self.survey = DependenceTest(self.body.ops, loop)
        self.forms, self.sums = self.survey.forms, WrappedSums()
        self.accesses = accesses_by_base(walk(self.body))
        self.number = {op: k for k, op in enumerate(walk(self.body))}
        self.parents = parents_in(self.body)
        self.ordered: dict[Frozen, Polynomial] = {}  # the terms of an offset in a fixed order

    def targets(self) -> list[list[ScatterAdd]]:
        """Groups of updates, one per target, such that several iterations may update one element.

        Each group may run before the loop.
        """
        found: dict[ScatterTarget, list[ScatterAdd]] = {}
        for writes in self.survey.writes.values():
            for write in writes:
                for one in self.read(write) if self.is_sum(write.op) else ():
                    found.setdefault(one.place, []).append(one)
        return [sums for sums in found.values() if self.is_spread(sums) and self.may_move(sums)]

    def inner_targets(self) -> list[list[ScatterAdd]]:
        """Groups of updates whose subscripts do not follow all axes of the loop.

        A group has one array, one set of followed axes (`axes` of its target) and one tuple of
        serial loops whose indices its subscripts use. Without serial loops, groups count only if
        they follow different axes. Each group may run before the loop.
        """
        found: dict[tuple[ScatterTarget, tuple[Op, ...]], list[ScatterAdd]] = {}
        for writes in self.survey.writes.values():
            for write in writes:
                one = self.read_inner(write) if self.is_sum(write.op) else None
                if one is not None:
                    found.setdefault((one.place, one.loops), []).append(one)
        straight = {place.axes for place, loops in found if not loops}
        return [
            sums
            for (_, loops), sums in found.items()
            if (loops or len(straight) > 1) and self.may_move(sums)
        ]

    def verdict(self, write: WriteAccess) -> Verdict:
        """Return the reason why a conflicting scatter-add is left in the loop; False for other
        writes."""
        element, base = element_under(write.op.args[0]), write.place.base
        if element is None or not (self.is_sum(write.op) and is_global(base)):
            return False
        if all(map(self.survey.is_steady, element.args[1:])):
            return False  # a reduction
        places = [element_under(other.op.args[0]) for other in self.survey.writes[base]]
        if self.survey.have_own(base, places):
            return False
        one, ways = self.read_inner(write), self.read(write)
        if one is None and not ways:
            return SUBSCRIPTS
        return COSTLY if self.may_move([one] if one is not None else ways) else ENTANGLED

    def read_inner(self, write: WriteAccess) -> ScatterAdd | None:
        """Match a write to an array whose subscripts do not follow all axes of the loop.

        They must consist of loop indices and invariants, and of one index at least. None for other
        writes.
        """
        element = element_under(write.op.args[0])
        if element is None or not is_global(write.place.base):
            return None
        symbols = {s for v in element.args[1:] for s in symbols_in(self.sums.of(v))}
        params = [axis.param for axis in self.survey.own_axes]
        if not all(s in params or self.is_known(s) for s in symbols):
            return None
        inner = {s for s in symbols if s not in params and s in self.survey.axes}
        loops = self.loops_of(inner, write)
        axes = tuple([k for k, p in enumerate(params) if p in symbols])
        if loops is None or len(axes) == len(params) or not (loops or axes):
            return None
        return ScatterAdd(write.op, ScatterTarget(write.place.base, axes, (), None), (), loops)

    def is_sum(self, op: Op) -> bool:
        """True if an op is an `atomic_add` of floats whose result is unused."""
        return self.is_plain_sum(op) and scalar_of(op.args[1].type).kind == "f"

    def is_spread(self, sums: Sequence[ScatterAdd]) -> bool:
        """True if several iterations may update the same element."""
        return any(one.loops for one in sums) or len({one.shifts for one in sums}) > 1

    # --- matching subscripts ---------------------------------------------------------------------

    def read(self, write: WriteAccess) -> Sequence[ScatterAdd]:
        """Match a write as shifted updates, one per combination of offsets; empty if it is none."""
        element, component = element_under(write.op.args[0]), write.place.component
        if element is None or isinstance(component, Value) or not is_global(write.place.base):
            return ()
        axes: list[int | None] = []
        steady: list[Frozen] = []
        shifts: dict[int, Sequence[SubscriptOffset]] = {}
        for v in element.args[1:]:
            axis, found = self.read_index(v)
            if not found or axis in shifts:
                return ()
            axes.append(axis)
            if axis is None:
                steady.append(found[0].by)
            else:
                shifts[axis] = found
        if len(shifts) < len(self.survey.own_axes):
            return ()
        loops = self.loops_in((s for found in shifts.values() for s in found), write)
        if loops is None or self.inner_of(frozenset(steady)):
            return ()
        place = ScatterTarget(write.place.base, tuple(axes), tuple(steady), component)
        ways = product(*(shifts[k] for k in range(len(shifts))))
        return [ScatterAdd(write.op, place, way, loops) for way in ways]

    def read_index(self, v: Value) -> tuple[int | None, Sequence[SubscriptOffset]]:
        """The axis that a subscript follows (None if invariant) and its offsets (empty if
        unsupported)."""
        if isinstance(v, Op) and v.kind in ("min", "max") and not self.survey.is_steady(v):
            return self.read_limited(v)
        if isinstance(v, Op) and v.kind in QUOTIENTS and not self.survey.is_steady(v):
            return self.read_shared(v)
        modulus = None
        if isinstance(v, Op) and v.kind == "mod" and not self.survey.is_steady(v):
            v, modulus = v.args
        p = self.sums.of(v)
        followed = [k for k, axis in enumerate(self.survey.own_axes) if factor_of(axis.param, p)]
        if len(followed) > 1 or (modulus is not None and not followed):
            return None, ()
        for k in followed:
            axis = self.survey.own_axes[k]
            if factor_of(axis.param, p) != 1 or not (
                modulus is None or self.is_whole(axis, modulus)
            ):
                return None, ()
            p = minus(p, {frozenset(((axis.param, 1),)): 1})
        if not all(map(self.is_known, symbols_in(p))):
            return None, ()
        by = self.frozen(p)
        if modulus is not None and not self.is_near(by):
            return None, ()
        return (followed[0] if followed else None), [SubscriptOffset(by, modulus=modulus)]

    def is_near(self, by: Frozen) -> bool:
        """True if an offset is proved to be within FARTHEST_WRAPPED, so that nothing overflows
        before the remainder is taken.

        A remainder of an overflowed value would differ.
        """
        found = self.range_of(by)
        return found is not None and -FARTHEST_WRAPPED <= found[0] <= found[1] <= FARTHEST_WRAPPED

    def range_of(self, by: Frozen) -> Interval | None:
        """Interval of an offset of constants and indices with a `window`, otherwise None."""
        low = high = 0
        for monomial, factor in by:
            ends = [self.window(s) for s, _ in monomial] or [(1, 1)]
            if len(ends) > 1 or ends[0] is None:
                return None
            values = [factor * n for n in ends[0]]
            low, high = low + min(values), high + max(values)
        return low, high

    def window(self, s: object) -> Interval | None:
        """Least and greatest value of a loop index with constant bounds and at least one iteration.

        None for other symbols.
        """
        axis = self.survey.axes.get(s) if isinstance(s, Value) else None
        ends = axis.ends if axis is not None else None
        return (ends[0], ends[1] - 1) if ends is not None and ends[0] < ends[1] else None

    def frozen(self, p: Polynomial) -> Frozen:
        """Freeze an offset, and remember the order of its terms in `ordered`."""
        found = freeze(p)
        self.ordered.setdefault(found, p)
        return found

    def read_limited(self, v: Op) -> tuple[int | None, Sequence[SubscriptOffset]]:
        """Case of a clamped subscript: the iterations beyond a limit all update the element at the
        limit.

        At most GATHER_BEYOND iterations may be beyond; bounds, limits and offset must be constants.
        """
        inner, low, high = strip_clamps(v)
        axis, found = self.read_index(inner) if inner is not v else (None, ())
        if axis is None or (low is not None and high is not None and low > high):
            return None, ()
        by = polynomial_constant(dict(found[0].by))
        ends = self.survey.own_axes[axis].ends
        if len(found) > 1 or found[0].modulus is not None or by is None or ends is None:
            return None, ()
        begin, end = ends
        if max(abs(by), abs(begin), abs(end)) > FARTHEST_LIMITED:
            return None, ()
        below = range(1, 0 if low is None else low - by - begin + 1)
        above = range(1, 0 if high is None else end - high + by)
        if len(below) + len(above) > tuning.GATHER_BEYOND:
            return None, ()
        beyond = [(by + t, low) for t in below] + [(by - t, high) for t in above]
        extra = [
            SubscriptOffset(self.frozen(constant_polynomial(k)), at=limit) for k, limit in beyond
        ]
        return axis, [SubscriptOffset(found[0].by, low=low, high=high), *extra]

    def read_shared(self, v: Op) -> tuple[int | None, Sequence[SubscriptOffset]]:
        """Case of a quotient: up to GATHER_SHARING neighbouring iterations share a subscript.

        For `(i + 1) // 2`, element q has iterations 2 * q - 1 and 2 * q, if they exist.
        """
        digit = only_symbol(self.forms.of(v))
        if not isinstance(digit, MixedRadixDigit) or digit.modulus is not None:
            return None, ()
        every, inner = polynomial_constant(as_polynomial(digit.divisor)), dict(digit.of)
        followed = [k for k, a in enumerate(self.survey.own_axes) if factor_of(a.param, inner)]
        if every is None or every > tuning.GATHER_SHARING or len(followed) != 1:
            return None, ()
        own = self.survey.own_axes[followed[0]]
        by = polynomial_constant(minus(inner, {frozenset(((own.param, 1),)): 1}))
        if by is None or own.ends is None:
            return None, ()
        begin, end = own.ends
        if max(abs(by), abs(begin), abs(end)) > FARTHEST_LIMITED:
            return None, ()
        high = (end - 1 + by) // every
        ways = [
            SubscriptOffset(self.frozen(constant_polynomial(by - k)), every, k, high=high)
            for k in range(every)
        ]
        return followed[0], ways

    def is_known(self, s: object) -> bool:
        """True if a symbol is a loop-invariant value or a loop index."""
        return isinstance(s, Value) and (self.survey.is_steady(s) or s in self.survey.axes)

    def is_whole(self, axis: LoopAxis, modulus: Value) -> bool:
        """True if an axis runs from 0 to `modulus`, and 32 bits leave room for an offset above it.

        So `modulus` must be an extent of an array without 64-bit indices, or a constant below
        `WIDE_FROM`.
        """
        key, length = self.forms.key, self.forms.of(modulus)
        n, extent = polynomial_constant(length), only_symbol(length)
        has_room = (
            n < WIDE_FROM if n is not None else isinstance(extent, Extent) and not extent.wide
        )
        return has_room and constant_int(axis.begin) == 0 and key(axis.end) == key(modulus)

    def inner_of(self, polynomials: Iterable[Frozen]) -> set[Value]:
        """Indices of serial loops in these polynomials."""
        found = {s for p in polynomials for s in symbols_in(dict(p))}
        return {s for s in found if isinstance(s, Value) and s in self.survey.axes}

    def loops_in(
        self, shifts: Iterable[SubscriptOffset], write: WriteAccess
    ) -> tuple[Op, ...] | None:
        """Serial loops that can be interchanged with the parallel loop.

        They are the loops whose indices occur in the offsets, and the loops around those. None if
        one of them is a `while`, carries values, or has bounds that depend on the iteration.
        """
        return self.loops_of(self.inner_of(shift.by for shift in shifts), write)

    def loops_of(self, indices: Collection[object], write: WriteAccess) -> tuple[Op, ...] | None:
        """Like `loops_in`, given the loop indices. Also None if an index is not that of a loop
        around `write`."""
        known = [
            k
            for k, op in enumerate(write.loops)
            if any(axis.param in indices for axis in axes_of(op))
        ]
        loops = write.loops[: max(known, default=-1) + 1]
        is_free = all(
            op.kind == "for" and len(op.args) == 2 and all(map(self.survey.is_steady, op.args))
            for op in loops
        )
        return loops if is_free and len(known) == len(indices) else None

    # --- legality: may updates run before the loop? ----------------------------------------------

    def may_move(self, sums: Sequence[ScatterAdd]) -> bool:
        """True if these updates may certainly run before the loop.

        The loop must not read the updated elements, nor change them except by additions. The added
        values must be recomputable, from memory that the loop does not write before.
        """
        if not self.are_unasked([one.op for one in sums]):
            return False
        made_of, moved = self.made_of(sums), {one.op for one in sums}
        opened = {loop for one in sums for loop in one.loops}
        ops = [op for ops in self.accesses.values() for op in ops if op not in moved]
        return all(self.can_repeat(op, opened) for op in made_of) and all(
            self.is_before(read, write)
            for read in ops
            if read in made_of and read.kind in READS and is_global(base_memory(read.args[0]))
            for write in ops
            if write.kind in WRITES
        )

    def are_unasked(self, sums: Sequence[Op]) -> bool:
        """True if the loop provably accesses the updated elements of one array only by
        `atomic_add`s with unused results."""
        base, ptrs = base_memory(sums[0].args[0]), {op.args[0]: None for op in sums}
        return all(
            self.is_plain_sum(op) or self.are_disjoint(op.args[0], ptr)
            for other, ops in self.accesses.items()
            if bases_may_alias(other, base)
            for op in ops
            for ptr in ptrs
        )

    def is_plain_sum(self, op: Op) -> bool:
        """True if an op is an `atomic_add` whose result is unused."""
        return op.kind == "atomic_add" and op not in self.used

    def are_disjoint(self, a: Value, b: Value) -> bool:
        """True if two locations are certainly disjoint in any pair of iterations.

        They have bases that cannot alias, different components, or invariant subscripts that differ
        by a constant.
        """
        p, q = location_of(a), location_of(b)
        if p.base is not q.base:
            return not bases_may_alias(p.base, q.base)
        one, other = element_under(a), element_under(b)
        if one is None or other is None:
            return False
        return not components_may_overlap(p.component, q.component) or any(
            self.survey.is_steady(x)
            and self.survey.is_steady(y)
            and polynomial_constant(minus(self.sums.of(x), self.sums.of(y))) not in (None, 0)
            for x, y in zip(one.args[1:], other.args[1:], strict=True)
        )

    def is_before(self, read: Op, write: Op) -> bool:
        """True if a read certainly returns the value from before the loop despite `write`.

        Either the locations are disjoint. Or both are the same element, private to the iteration,
        outside serial loops, and the write is not before the read.
        """
        a, b = read.args[0], write.args[0]
        if self.are_disjoint(a, b):
            return True
        one, other = element_under(a), element_under(b)
        if one is None or other is None or base_memory(a) is not base_memory(b):
            return False
        if self.survey.loops[read] or self.survey.loops[write]:
            return False
        key = self.forms.key
        is_same = all(key(x) == key(y) for x, y in zip(one.args[1:], other.args[1:], strict=True))
        is_own = self.survey.have_own(base_memory(a), [one, other])
        return is_same and is_own and self.number[read] <= self.number[write]

    def can_repeat(self, op: Op, opened: Collection[Op]) -> bool:
        """True if an op can be recomputed for one iteration of the loop and of the `opened` serial
        loops.

        It must have no side effects, or write private memory allocated inside the `opened` loops
        around it. An `atomic_exchange` on an array counts as a load.
        """
        if op.kind not in WRITES:
            return TABLE[op.kind].effect in (Effect.PURE, Effect.READ, Effect.ALLOC, Effect.CONTROL)
        base = base_memory(op.args[0])
        if is_global(base):
            return op.kind == "atomic_exchange"  # own element: acts as a load
        own = self.survey.loops[base]
        return all(loop in own or loop not in self.survey.loops[op] for loop in opened)

    def made_of(self, sums: Sequence[ScatterAdd]) -> set[Op]:
        """Ops of the loop that the added values and the execution of the updates depend on."""
        return self.under(sums, lambda op: ())

    def copied_for(self, sums: Sequence[ScatterAdd], *, with_places: bool = False) -> set[Op]:
        """Like `made_of`, with all ops inside control ops among them and their operands.

        `with_places`: the subscripts count as added values.
        """
        return self.under(sums, inside, first=0 if with_places else 1)

    def under(
        self, sums: Sequence[ScatterAdd], more: Callable[[Op], Iterable[Value]], first: int = 1
    ) -> set[Op]:
        """Ops of the loop on which operands from number `first` on, and the execution of `sums`,
        depend.

        `more(op)` yields further values needed for each op found, except `opened` loops.
        """
        opened = {loop for one in sums for loop in one.loops}

        def follow(v: Value) -> Iterator[Value]:
            yield from self.follow(v, opened)
            yield from more(v) if isinstance(v, Op) and v not in opened else ()

        seeds = [v for one in sums for v in (*one.op.args[first:], *self.around(one.op, opened))]
        return {v for v in closure(seeds, follow) if isinstance(v, Op) and v in self.number}

    def follow(self, v: Value, opened: Container[Op]) -> Iterator[Value]:
        """Values that v depends on, by data and control."""
        if isinstance(v, Result):
            yield v.op
            yield from (r.yielded[v.index] for r in bodies_of(v.op))
            if is_loop(v.op):
                yield initial_values(v.op)[v.index]
        elif isinstance(v, Op):
            yield from control_operands(v) if v.regions else v.args
            yield from self.around(v, opened)
            if TABLE[v.kind].effect is Effect.ALLOC:
                yield from (op for op in self.accesses.get(v, ()) if op.kind in WRITES)
        elif v in self.parents:
            owner = self.parents[v]
            yield owner
            yield from initial_values(owner)
            yield from (x for r in bodies_of(owner) for x in r.yielded)

    def around(self, op: Op, opened: Container[Op]) -> Iterator[Value]:
        owner = self.parents.get(op)
        while owner is not None and owner in opened:
            owner = self.parents.get(owner)
        if owner is not None:
            yield owner


def find_scatter_adds(loop: Op, known: dict[Op, ScatterAnalysis]) -> ScatterAnalysis | None:
    """Return the analysis of a `parallel`, memoized in `known`; None if it surely has no
    scatter-adds that passes convert.

    Its iterations must be free to interleave. It must have an `atomic_add`, beside another one, a
    `for` or a quotient.
    """
    if not may_interleave(loop):
        return None
    kinds = Counter(op.kind for op in walk(loop.regions[0]))
    adds = kinds["atomic_add"]
    may_convert = adds > 1 or (adds and not kinds.keys().isdisjoint({"for", *QUOTIENTS}))
    if may_convert and loop not in known:
        known[loop] = ScatterAnalysis(loop)
    return known[loop] if may_convert else None


def inside(op: Op) -> Iterator[Value]:
    """The ops inside an op, and their operands."""
    for region in op.regions:
        for x in walk(region):
            yield from (x, *x.args)


def parents_in(region: Region) -> dict[Value, Op]:
    """The control op around each op and around each region parameter."""
    found: dict[Value, Op] = {}
    for op in walk(region):
        for inner in op.regions:
            found.update(dict.fromkeys(inner.params, op))
            found.update((x, op) for x in inner.ops)
    return found


def is_global(base: Value) -> bool:
    """True if memory is an array parameter, which all invocations share."""
    return not isinstance(base, Op)
