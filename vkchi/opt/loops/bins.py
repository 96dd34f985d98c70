"""Histogram privatization: atomics to data-dependent elements of small arrays use workgroup memory.

    parallel 0, n {(i) atomic_add h[load x[i]], v}           becomes
    parallel 0, groups * block [block] {(t)
      bins = shared, all identities; barrier
      for my iterations i { atomic_add bins[load x[i]], v }
      barrier; for my elements e { atomic_add h[e], bins[e] } }

On CPUs, an atomic is a locked instruction for each invocation. So a workgroup is one subgroup, and
each of its invocations has its own bins if they fit: `bins[e, local_index]`. These need neither
atomics (`demote`) nor barriers; the subgroup reduces them where the device can. On GPUs a workgroup
shares one set of bins in its memory.

A bin has the row-major linear index of its element. A spare bin receives out-of-range linear
indices. Without it, the bounds check of the bins array could accept some of them after wrapping.

Conditions for an array:

- It is small, and has constant extents and 32-bit scalars.
- The loop accesses it only by atomics of one kind, whose results are unused.
- The indices depend on loaded or random values. `reduce` and `coarsen` handle those that follow
  loop indices.
- A constant trip count is at least 16 times the number of elements on CPUs, 4 times on GPUs.

If the trip count is known only at launch, each workgroup runs at least as many iterations as repay
its bins. Workgroups without iterations skip the bins.

See also: `share` partitions the iterations, `cost_model.plan_bins` decides.

    >>> privatize_histograms(fn, caps)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import reduce
from math import prod

from vkchi.analysis.dataflow import Flow
from vkchi.analysis.memory.alias import EXITS, reducible
from vkchi.analysis.parallel_loops import TIED_ITERATIONS, may_partition
from vkchi.analysis.values.host_numbers import host_count
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Value, used_in, walk
from vkchi.ir.iteration_space import IterationDigit, IterationSpace
from vkchi.ir.ops import NOUNROLL, PLACES, TABLE, Effect, effect_of
from vkchi.ir.rebuild import inline, rebuild_loops
from vkchi.opt.cost_model import Binning, plan_bins
from vkchi.opt.loops.reduce import differs_from_identity, identity_of_kind, over_subgroup
from vkchi.opt.mapping.map_grid import build_shared
from vkchi.opt.mapping.share import ThreadBudget, WorkDistribution
from vkchi.target.caps import Caps
from vkchi.target.remarks import Decision, Log, Refusal, Verdict, record, record_refusal
from vkchi.tuples import NamedTuple
from vkchi.types import Array, i32, scalar_of, u32

BINS = "each workgroup adds up its iterations first; few atomics combine their results"
TECHNIQUE = "histogram privatization"
TOO_LARGE = Refusal("the array is too large for workgroup memory, or for the loop's iterations")
UNSUITED = Refusal("the array has extents known only at launch, or no scalars of 32 bits")
SMALL_BITS = 32  # width for which every device has atomics in workgroup memory


def privatize_histograms(fn: Func, caps: Caps, log: Log | None = None) -> Func:
    """Privatize histograms in workgroup memory where that is profitable. Records the first atomic
    of each in `log`."""

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        arrays = find_arrays(op.regions[0])
        if not arrays:
            return None
        found = sorted(filter(is_small, arrays), key=lambda a: prod(size_of(a.array)))
        sizes = [size_of(a.array) for a in found]
        plan = may_have_bins(op) and (plan_bins(host_count(op), sizes, caps) or TOO_LARGE)
        count = plan.arrays if isinstance(plan, Binning) else 0
        for a in arrays:
            if a not in found[:count]:
                verdict = plan if not plan and a in found else TOO_LARGE if a in found else UNSUITED
                record_refusal(log, TECHNIQUE, a.atomic.span, verdict, fn.name)
        if not isinstance(plan, Binning):
            return None
        for a in found[: plan.arrays]:
            record(log, Decision("cause", a.atomic.span, BINS))
        HistogramEmitter(b, op, found[: plan.arrays], plan, caps).build(args)
        return ()

    return rebuild_loops(fn, visit)


# --- which ---------------------------------------------------------------------------------------


class Binned(NamedTuple):
    """An array that gets bins, and the first of its atomics."""

    array: Param
    atomic: Op

    @property
    def type(self) -> Array:
        assert isinstance(self.array.type, Array)
        return self.array.type

    @property
    def shape(self) -> tuple[int, ...]:
        assert self.type.shape is not None
        return self.type.shape


def may_have_bins(op: Op) -> Verdict:
    """True if invocations may partition the loop, its bounds are i32, and no op synchronizes or
    ends the invocation. All invocations can then wait at a barrier."""
    inner = walk(op.regions[0])
    if any(effect_of(x.kind) is Effect.SYNC or x.kind in EXITS for x in inner):
        return TIED_ITERATIONS
    return all(scalar_of(v.type) is i32 for v in op.args) and may_partition(op)


def find_arrays(body: Region) -> list[Binned]:
    """Return the arrays with atomics to data-dependent elements, in the order of their first
    atomics."""
    found = reducible(walk(body), used_in(body))
    unforeseen = Flow(body, unforeseen_values(body)).found if found else ()
    return [
        Binned(array, ops[0])
        for array, ops in found.items()
        if isinstance(array, Param) and all(op.args[0] in unforeseen for op in ops)
    ]


def unforeseen_values(body: Region) -> Iterator[Value]:
    """Yield the results of ops with effects, such as loads, atomics and random numbers. They do not
    follow from an iteration's indices."""
    for op in walk(body):
        if TABLE[op.kind].effect not in (Effect.PURE, Effect.CONTROL, Effect.ALLOC):
            yield from op.results


def is_small(a: Binned) -> bool:
    """True for an array with one or more axes, constant extents, zero origin and unconverted 32-bit
    scalars. `plan_bins` tests its size."""
    t = a.type
    if not t.shape:
        return False
    is_shifted = t.layout is not None and any(t.layout.origin or ())
    return not is_shifted and t.stored is scalar_of(t.elem) and t.stored.bits == SMALL_BITS


def size_of(array: Param) -> tuple[int, int]:
    t = array.type
    assert isinstance(t, Array) and t.shape is not None
    return prod(t.shape), t.scalars_per_element * scalar_of(t.elem).size_bytes


# --- form ----------------------------------------------------------------------------------------

Act = Callable[[Value], None]


class HistogramEmitter:
    """Emits a loop whose workgroups have bins: `bins` maps each array to its own."""

    def __init__(
        self, b: Builder, op: Op, arrays: Sequence[Binned], plan: Binning, caps: Caps
    ) -> None:
        self.b, self.op, self.arrays, self.plan, self.caps = b, op, arrays, plan, caps
        self.bins: dict[Value, Value] = {}
        self.lane: Value

    def build(self, args: Sequence[Value]) -> None:
        plan = self.plan
        crowd = ThreadBudget(
            plan.groups * plan.block, plan.block, self.caps.scalar_lanes, plan.least
        )
        build_shared(self.b, self.op, args, crowd, self.run, plan.block)

    def run(self, shared: WorkDistribution, t: Value) -> None:
        b = self.b
        for a in self.arrays:
            own = (self.plan.block,) if self.plan.has_own else ()
            shape = (prod(a.shape) + 1, *own)
            t_bins = Array.of(a.type.elem, len(shape), shape, None, "shared")
            self.bins[a.array] = b.emit("shared", type=t_bins, name="bins")
        self.lane = b.emit("local_index")
        has_any = shared.has_any(b, t)
        self.where(has_any, self.empty)
        if not self.plan.has_own:
            b.emit("barrier")
        shared.emit(b, t, self.fill)
        if not self.plan.has_own:
            b.emit("barrier")
        self.where(has_any, self.flush)

    def where(self, condition: Value | None, act: Callable[[], object]) -> None:
        with nullcontext() if condition is None else self.b.when(condition):
            act()

    def fill(self, indices: Sequence[Value], _: Value) -> None:
        """Append one iteration, with its atomics redirected to bins."""

        def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
            if op.kind == "elem" and op.args[0] in self.bins:
                return [self.element(op.args[0], self.number(op, args[1:]))]
            if op.kind in PLACES and op.args[0] is not args[0]:
                return [b.emit(op.kind, *args, attr=op.attr, name=op.name)]
            return None

        inline(self.b, self.op.regions[0], indices, visit)

    def number(self, elem: Op, indices: Sequence[Value]) -> Value:
        """Return the linear index of an element's bin, or that of the spare bin if the linear index
        is out of range."""
        b, t = self.b, elem.args[0].type
        assert isinstance(t, Array) and t.shape is not None
        found, *others = [v if v.type is i32 else b.emit("cast", v, type=i32) for v in indices]
        for v, extent in zip(others, t.shape[1:], strict=True):
            found = b.emit("add", b.emit("mul", found, b.const(extent, i32)), v)
        if elem.attr == "inbounds":
            return found
        most = b.const(prod(t.shape), u32)
        return b.emit("bitcast", b.emit("min", b.emit("bitcast", found, type=u32), most), type=i32)

    def element(self, array: Value, number: Value) -> Op:
        own = (self.lane,) if self.plan.has_own else ()
        return self.b.emit("elem", self.bins[array], number, *own, attr="inbounds")

    def empty(self) -> None:
        """Append stores of the atomic's identity to this invocation's own bins, or to its share of
        the workgroup's bins."""
        b = self.b
        for a in self.arrays:
            b.span = a.atomic.span

            def act(e: Value, a: Binned = a) -> None:
                none = identity_of_kind(b, a.atomic.kind, a.type.elem)
                b.emit("store", self.element(a.array, e), none)

            self.each(a, act)

    def flush(self) -> None:
        """Append the atomics that combine this invocation's own bins, or its share of the
        workgroup's bins, into the array."""
        for a in self.arrays:
            self.b.span = a.atomic.span

            def act(e: Value, a: Binned = a) -> None:
                self.add(a, e)

            self.each(a, act)

    def each(self, a: Binned, act: Act) -> None:
        """Append a loop over an array's elements: all of them if each invocation has its own bins,
        else every `block`-th from this invocation's local index."""
        b, count = self.b, prod(a.shape)
        step = 1 if self.plan.has_own else self.plan.block
        k = Param(i32, "k")
        with b.region(k) as region:
            e: Value = k
            if step > 1:
                e = b.emit("add", b.emit("mul", k, b.const(step, i32)), self.lane)
            is_there = b.emit("lt", e, b.const(count, i32)) if count % step else None
            self.where(is_there, lambda: act(e))
            b.emit("yield")
        b.for_(b.const(0, i32), b.const(-(-count // step), i32), (), region, NOUNROLL)

    def split(self, a: Binned, e: Value) -> Sequence[Value]:
        b = self.b
        zero = b.const(0, i32)
        digits = [IterationDigit(k, b.const(n, i32)) for k, n in enumerate(a.shape)]
        return IterationSpace((zero,) * len(digits), tuple(digits)).split(b, e)

    def add(self, a: Binned, e: Value) -> None:
        """Append the atomic that combines a bin into its element, unless the bin holds the
        identity.

        An invocation's own bins are first reduced over the subgroup, if the device has such
        reductions.
        """
        b, kind = self.b, a.atomic.kind
        v: Value = b.emit("load", self.element(a.array, e))
        place = b.emit("elem", a.array, *self.split(a, e), attr="inbounds")
        conditions: list[Value] = []
        if self.plan.has_own and self.caps.subgroup_arithmetic:
            v = over_subgroup(b, kind, v)
            conditions.append(b.emit("subgroup_elect"))
        conditions.append(differs_from_identity(b, kind, v))
        is_mine = reduce(lambda x, y: b.emit("and", x, y), conditions)
        self.where(is_mine, lambda: b.emit(kind, place, v))
