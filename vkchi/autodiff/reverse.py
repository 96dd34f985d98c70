"""Reverse mode: transform a kernel to the kernel that accumulates the gradients of its inputs.

Let the kernel be a Func that is not split into dispatches yet, with segments 1 … n (`primal`). Its
gradient is one Func with the kernel's arguments and an array `NAME..adjoint` for each
differentiable array NAME that it needs. It runs on the memory from before the kernel's call; the
launcher binds a copy where that memory has changed. An *invariant* array holds the kernel's results
instead. The gradient reads the same values there as the kernel, and omits the kernel's writes to it
(see `autodiff.instrument`).

1. Recomputation: segments 1 … n-1 run again on copies of the memory that they write
   (`.scratch.N`, one copy per segment). So memory is available as each segment found it. The last
   segment is recomputed too if it is serial or has minima or maxima over iterations.
2. Reversal: segments n … 1. A serial segment: its ops in reverse order; each op passes its adjoint
   to its operands by its rule. A `parallel`: a `parallel` over the same indices, in which each
   iteration is recomputed (`sweep`), then reversed.

Adjoints of values are summed in SSA if they are used in their own region, and in private memory if
they are used deeper. Adjoints that several invocations share use atomics.

Adjoints of memory: a load adds to the adjoint of its location. A store takes the location's adjoint
and leaves 0, because the overwritten value has no influence. `atomic_add` reads the adjoint and
keeps it.

Primal values: a rule requests them from its site. Values of the invocation's own region come from
the forward sweep. Values in an arm of an `if` or in a loop body are recomputed from their operands
if that is deterministic (`PrimalAnalysis.is_repeatable`). Others are saved by the sweep
(`sweep.SavedValues`). The set of saved values is complete only after reversal. So a Func with saved
values is built twice.

The pass `unread` removes recomputation and saved values that are not read. If nondeterministic ops
(random numbers, the order of atomics) remain then, `gradient_checks.check_repeatable` raises an
error. `Reverse` itself raises errors for ops without a derivative rule. It also raises them for
atomics whose old value has an adjoint, and for extremes mixed with other writes to one location.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.memory.alias import kinds_at, kinds_of_writes
from vkchi.analysis.memory.segments import Segment
from vkchi.autodiff.buffers import CountingFunc, SaveBuffer, build_counting, describe_saves
from vkchi.autodiff.emit import (
    as_i32,
    exchange_with_zero,
    place_in,
    places_at,
    trip_count,
    zero,
)
from vkchi.autodiff.gradient_checks import (
    check_bits,
    check_lost,
    no_derivative_error,
    phase_error,
)
from vkchi.autodiff.loops import rotate_loops
from vkchi.autodiff.primal import PrimalAnalysis
from vkchi.autodiff.products import (
    Factors,
    FactorSweep,
    adjoint_of_factor,
    find_products,
    make_factors,
    scale_adjoint,
)
from vkchi.autodiff.reaching import OutflowAnalysis
from vkchi.autodiff.results import GradientRequest
from vkchi.autodiff.rules import (
    MEMORY,
    DerivativeSite,
    Partials,
    SpecialRule,
    rule_of,
    times_partial,
)
from vkchi.autodiff.scopes import ReverseScope, ReverseScopes
from vkchi.autodiff.sweep import (
    ForwardSweep,
    MemoryVersions,
    SavedValues,
    SegmentMemory,
    run_parallel,
    run_segment,
)
from vkchi.errors import GradientError
from vkchi.ir.builder import Builder
from vkchi.ir.core import ADJOINT, Func, Op, Param, Region, Value, base_memory, walk
from vkchi.ir.num import Num
from vkchi.ir.ops import ACCESSES, EXTREMES, UPDATES, WRITES
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Ptr, Scalar, i32


class GradientFunc(NamedTuple):
    """Result of reverse mode.

    `counting` computes the cells that `saves` name; None without saved values. `copies` maps
    `.scratch.*` parameters to the primal array of the same type and shape. `adjoints` maps array
    names to those of their adjoints. `outflows` computes the arrays that receive derivatives, per
    call.
    """

    func: Func
    counting: CountingFunc | None
    saves: tuple[SaveBuffer, ...]
    copies: dict[str, str]
    adjoints: dict[str, str]
    primal: PrimalAnalysis
    outflows: OutflowAnalysis

    def saves_used(self) -> tuple[SaveBuffer, ...]:
        params = set(self.func.params)
        return tuple(s for s in self.saves if s.param in params)


def analyze_primal(fn: Func, request: GradientRequest) -> tuple[PrimalAnalysis, OutflowAnalysis]:
    """Analyse a Func before differentiation, after `rotate_loops`.

    Raises GradientError if a derivative gets lost in an array without gradient, or warns if the
    request says so. Raises it also if a derivative flows through the bits of a float.
    """
    fn = rotate_loops(fn)
    reach = OutflowAnalysis(fn, request.differentiable)
    primal = PrimalAnalysis(fn, request, reach.order, reach.begun())
    check_lost(primal, reach, request.missing)
    check_bits(reach, primal.active, primal.differentiable)
    return primal, reach


def differentiate_reverse(
    fn: Func, request: GradientRequest, *, is_second: bool = False
) -> GradientFunc:
    """The gradient of a Func that is not split into dispatches yet.

    Raises GradientError as `analyze_primal`, and for ops without a derivative. `is_second`: the
    result will be differentiated again.
    """
    primal, outflows = analyze_primal(fn, request)
    kept = SavedValues(primal)
    made = Reverse(primal, kept, is_second=is_second)
    func = made.build()
    if kept.values:  # known only after the first build
        made = Reverse(primal, kept, is_second=is_second)
        func = made.build()
    saves = tuple(describe_saves(primal, kept))
    counting = build_counting(primal, saves)
    adjoints = {p.name: q.name for p, q in made.adjoints.items()}
    return GradientFunc(func, counting, saves, made.versions.copies, adjoints, primal, outflows)


class Reverse:
    """Builder of the gradient of one Func."""

    def __init__(self, primal: PrimalAnalysis, kept: SavedValues, *, is_second: bool) -> None:
        self.primal, self.kept, self.is_second = primal, kept, is_second
        self.b = Builder()
        self.versions = MemoryVersions(self.b, primal)
        self.adjoints: dict[Param, Param] = {}
        self.scopes = ReverseScopes(self.b, primal, kept)
        self.ordered: set[Op] = set()  # workgroup arrays whose accesses barriers order
        # The loop being reversed, its accesses, the memory before and after it, its products.
        self.parallel_op: Op | None = None
        self.accesses: list[Op] = []
        self.memory = SegmentMemory({}, {})
        self.factors: dict[Value, Factors] = {}

    def build(self) -> Func:
        fn, b = self.primal.fn, self.b
        with b.region() as body:
            b.span = fn.span
            zero_ = b.const(0, i32)
            sweep = ForwardSweep(b, self.primal, self.kept, SegmentMemory({}, {}), zero_)
            memories = [self.repeat(sweep, s) for s in self.primal.segments]
            with self.scopes.open(fn.body, sweep=sweep):
                for segment, memory in reversed(list(zip(self.primal.segments, memories))):
                    if segment.loop is None:
                        self.ops(segment.ops)
                    else:
                        self.parallel(segment.loop, memory)
            b.emit("yield")
        return Func(f"{fn.name}.grad", (*fn.params, *self.new_params(body)), body, fn.span)

    def new_params(self, body: Region) -> list[Param]:
        old = set(self.primal.fn.params)
        used = (v for op in walk(body) for v in op.args if isinstance(v, Param))
        outer = dict.fromkeys(v for v in used if v not in old and isinstance(v.type, Array))
        return list(outer)

    def repeat(self, sweep: ForwardSweep, segment: Segment) -> SegmentMemory:
        """Recompute a segment, except a last `parallel` without minima and maxima in memory.

        Returns the memory before it and, for a recomputed loop, after it.
        """
        found = dict(self.versions.now)
        is_last = segment.number == len(self.primal.segments) - 1
        kinds = kinds_of_writes(segment.ops)
        if segment.loop is not None and is_last and not EXTREMES & set().union(*kinds.values()):
            return SegmentMemory(found, found)
        nothing = SavedValues(self.primal)
        run_segment(
            sweep, segment, self.versions,
            lambda memory, n: ForwardSweep(self.b, self.primal, nothing, memory, n),
        )  # fmt: skip
        return SegmentMemory(found, found if segment.loop is None else dict(self.versions.now))

    # --- ops in reverse

    @property
    def scope(self) -> ReverseScope:
        return self.scopes.current

    def ops(self, ops: Sequence[Op]) -> None:
        for op in reversed(ops):
            self.b.span = op.span
            if op.kind == "yield":
                continue
            if op.regions:
                _CONTROL[op.kind](self, op)
            elif rule_of(op) is MEMORY:
                _MEMORY.get(op.kind, Reverse.nothing)(self, op)
            elif op.results and op in self.primal.active:
                self.pure(op)

    def nothing(self, op: Op) -> None:
        pass

    def pure(self, op: Op) -> None:
        """Add the contributions of an op's adjoint to those of its operands, by its rule.

        Raises GradientError if there is none.
        """
        g = self.scopes.adjoint_of(op)
        if g is None:
            return
        active = [k for k, v in enumerate(op.args) if v in self.primal.active]
        site = DerivativeSite(self.b, op, self.scopes.get, active, is_second=self.is_second)
        rule = rule_of(op)
        if isinstance(rule, Partials):
            given = [
                times_partial(site, Num(self.b, g), p) if site.is_active(k) else None
                for k, p in enumerate(rule.partials)
            ]
        elif isinstance(rule, SpecialRule):
            raise no_derivative_error(op)
        else:
            given = rule.vjp(site, Num(self.b, g))
        for v, x in zip(op.args, given, strict=True):
            if x is not None:
                self.scopes.accumulate(v, x.v)

    # --- memory

    def adjoint_place(self, ptr: Value) -> Value | None:
        """The location of the adjoint of a memory location; None if it has none."""
        root = base_memory(ptr)
        array = self.adjoint_array(root) if isinstance(root, Param) else self.local_place(root)
        return None if array is None else place_in(self.b, ptr, array, self.scopes.get)

    def adjoint_array(self, root: Param) -> Param | None:
        """The array of adjoints, created at first use; None for an array without gradient."""
        if root in self.primal.active.sources and root not in self.adjoints:
            self.adjoints[root] = root.companion(root.name + ADJOINT)
        return self.adjoints.get(root)

    def local_place(self, root: Value) -> Value | None:
        """The location of the adjoint of a `local` or `shared` array, or None. Raises GradientError
        as `check_phases`."""
        if root not in self.primal.active.roots:
            return None
        if isinstance(root, Op) and root.kind == "shared":
            self.check_phases(root)
        return self.scopes.place(root)

    def check_phases(self, shared: Op) -> None:
        """Raise GradientError unless barriers separate all conflicting accesses to a workgroup
        array with derivatives."""
        if shared in self.ordered:
            return
        loop = self.parallel_op
        if loop is None or self.primal.home[shared] is not loop.regions[0]:
            raise no_derivative_error(shared)
        from vkchi.analysis.memory.barrier_phases import find_phase_conflict  # rarely needed

        found = find_phase_conflict(loop, shared)
        if found is not None:
            raise phase_error(shared, found)
        self.ordered.add(shared)

    def is_shared(self, ptr: Value) -> bool:
        return self.scopes.is_outside_invocation(base_memory(ptr))

    def is_read_by_others(self, ptr: Value) -> bool:
        """True if other invocations may add to the adjoint in the same phase."""
        root = base_memory(ptr)
        return self.is_shared(ptr) or (isinstance(root, Op) and root.kind == "shared")

    def load(self, op: Op) -> None:
        g = self.scopes.adjoint_of(op)
        place = self.adjoint_place(op.args[0]) if g is not None else None
        if g is not None and place is not None:
            self.scopes.add_to(place, g, is_shared=self.is_read_by_others(op.args[0]))

    def store(self, op: Op) -> None:
        """Move the adjoint of the location to the stored value; the overwritten value has none."""
        place = self.adjoint_place(op.args[0])
        if place is None:
            return
        self.scopes.accumulate(op.args[1], self.pop_adjoint(place, op.args[0]))

    def pop_adjoint(self, place: Value, ptr: Value) -> Value:
        """Return the adjoint at a location, and set it to 0."""
        b = self.b
        assert isinstance(place.type, Ptr)
        t = place.type.elem
        if self.is_shared(ptr):  # any one of the iterations that write it may take the adjoint
            return exchange_with_zero(b, place, t)
        g = b.emit("load", place)
        b.emit("store", place, zero(b, t))
        return g

    def atomic(self, op: Op) -> None:
        """Reverse an atomic: a sum passes its adjoint to the addend. For others see `extreme`.

        Raises GradientError if the old value that it returns has an adjoint.
        """
        place = self.adjoint_place(op.args[0])
        if place is None:
            return
        if self.scopes.has_adjoint(op):
            raise GradientError(
                "the old value of an atomic operation depends on the order of iterations: it has "
                "no gradient", op.span,
                help="loop serially: ti.loop_config(serialize=True), or use ti.stop_grad(...)",
            )  # fmt: skip
        root = base_memory(op.args[0])
        if op.kind == "atomic_add":  # the addend has the adjoint of the sum
            self.scopes.accumulate(op.args[1], self.b.emit("load", place))
        elif isinstance(root, Op) and root.kind == "shared":
            raise no_derivative_error(op)
        elif op.kind == "atomic_mul":
            self.product(op, place)
        else:
            self.extreme(op, place)

    def product(self, op: Op, place: Value) -> None:
        """Reverse a product over invocations (`autodiff.products`).

        Raises GradientError if the loop reads the location, or writes it in another way, and for
        second derivatives.
        """
        root, b = base_memory(op.args[0]), self.b
        if root not in self.factors or kinds_at(self.accesses, op.args[0]) != {"atomic_mul"}:
            raise no_derivative_error(op)
        places = [place_in(b, op.args[0], x, self.scopes.get) for x in self.factors[root]]
        g, product, zeros = (Num(b, b.emit("load", p)) for p in (place, *places))
        v = Num(b, self.scopes.get(op.args[1]))
        self.scopes.accumulate(op.args[1], adjoint_of_factor(g, v, product, zeros).v)

    def extreme(self, op: Op, place: Value) -> None:
        """Reverse a minimum or maximum over invocations, component by component.

        The adjoint goes to one invocation that contributed the result, or stays with the old value.
        Raises GradientError for other atomics, and for writes of several kinds to the location.
        """
        root = base_memory(op.args[0])
        if op.kind not in EXTREMES or kinds_at(
            (x for x in self.accesses if x.kind in WRITES), op.args[0]
        ) != {op.kind}:
            raise no_derivative_error(op)
        result = self.b.emit(
            "load", place_in(self.b, op.args[0], self.memory.late.get(root, root), self.scopes.get)
        )
        v, b = self.scopes.get(op.args[1]), self.b
        found = zip(b.components(v), b.components(result), places_at(b, place), strict=True)
        parts = [self.claim(*one) for one in found]
        is_one = isinstance(v.type, Scalar)
        self.scopes.accumulate(
            op.args[1], parts[0] if is_one else b.emit("pack", *parts, type=v.type)
        )

    def claim(self, v: Value, result: Value, place: Value) -> Value:
        """Take the remaining adjoint at a location if v is the result, else 0."""
        assert isinstance(v.type, Scalar)
        with self.b.region() as hit:
            self.b.emit("yield", exchange_with_zero(self.b, place, v.type))
        with self.b.region() as miss:
            self.b.emit("yield", zero(self.b, v.type))
        return self.b.if_(self.b.emit("eq", v, result), hit, miss).results[0]

    def barrier(self, op: Op) -> None:
        """Order the adjoints of the later accesses before those of the earlier ones."""
        self.b.emit("barrier")

    def local(self, op: Op) -> None:
        place = self.scopes.find_place(op)
        if place is not None:
            self.scopes.accumulate(op.args[0], self.b.emit("load", place))

    # --- control

    def if_(self, op: Op) -> None:
        given = [self.scopes.adjoint_of(r) if r in self.primal.active else None for r in op.results]
        cond = self.scopes.get(op.args[0])
        arms = []
        for region in op.regions:
            with self.b.region() as arm, self.scopes.open(region):
                self.seed(region, given)
                self.ops(region.ops)
                self.b.emit("yield")
            arms.append(arm)
        self.b.if_(cond, *arms)

    def seed(self, region: Region, given: Sequence[Value | None]) -> None:
        for v, g in zip(region.yielded, given):
            if g is not None:
                self.scopes.accumulate(v, g)

    def for_(self, op: Op) -> None:
        begin, end = self.scopes.get(op.args[0]), self.scopes.get(op.args[1])
        trips = trip_count(self.b, begin, end)
        self.loop(op, trips, first=begin, skip=2)

    def while_(self, op: Op) -> None:
        self.loop(op, self.scopes.get(self.primal.trips[op]), first=None, skip=0)

    def loop(self, op: Op, trips: Value, *, first: Value | None, skip: int) -> None:
        """Reverse a loop with `trips` iterations.

        `first`: its first index, if it has indices. `skip`: number of arguments before the carried
        ones.
        """
        b, active = self.b, self.primal.active
        body = op.regions[-1]
        carried = [k for k, r in enumerate(op.results) if r in active]
        given = [self.scopes.adjoint_of(op.results[k]) for k in carried]
        starts = [zero(b, op.results[k].type) if g is None else g for k, g in zip(carried, given)]
        base = self.scopes.get(self.primal.base[op]) if op in self.primal.base else None
        t = trips.type
        assert isinstance(t, Scalar)
        params = [Param(t, "back"), *(Param(v.type, "adjoint") for v in starts)]
        index_params = body.params[: 1 if first is not None else 0]
        with b.region(*params) as region:
            step = b.emit("sub", b.emit("sub", trips, b.const(1, t)), params[0])
            with self.scopes.open(body, loop=op) as scope:
                position = as_i32(b, step)
                scope.position = position if base is None else b.emit("add", base, position)
                for p in index_params:
                    assert first is not None
                    moved = b.emit("bitcast", step, type=first.type)
                    scope.values[p] = b.emit("add", first, moved)
                for k, p in zip(carried, params[1:]):
                    self.scopes.accumulate(body.yielded[k], p)
                self.ops(body.ops)
                slots = [body.params[len(index_params) + k] for k in carried]
                ends = [self.scopes.adjoint_of(p) or zero(b, p.type) for p in slots]
            b.emit("yield", *ends)
        made = b.for_(b.const(0, t), trips, starts, region)
        for k, g in zip(carried, made.results):
            self.scopes.accumulate(op.args[skip + k], g)

    def parallel(self, op: Op, done: SegmentMemory) -> None:
        (region,) = op.regions
        self.parallel_op = op
        self.accesses, self.memory = [x for x in walk(region) if x.kind in ACCESSES], done
        memory = self.memory_for(op, done)
        outer = self.scope.sweep
        assert outer is not None
        self.factors = self.collect_factors(op, done, outer)

        def reverse_ops(sweep: ForwardSweep) -> None:
            with self.scopes.open(region, sweep=sweep):
                self.ops(region.ops)

        run_parallel(
            outer,
            op,
            lambda n: ForwardSweep(self.b, self.primal, self.kept, memory, n),
            reverse_ops,
        )
        for root, factors in self.factors.items():
            adjoint = (
                self.adjoints.get(root) if isinstance(root, Param) else self.scopes.find_place(root)
            )
            if adjoint is not None:
                scale_adjoint(self.b, root, done.early.get(root, root), adjoint, factors)

    def memory_for(self, loop: Op, done: SegmentMemory) -> SegmentMemory:
        """Memory for another run of a loop."""
        return SegmentMemory(dict(done.early), self.versions.copy_written((loop,), done.early))

    def collect_factors(
        self, loop: Op, done: SegmentMemory, outer: ForwardSweep
    ) -> dict[Value, Factors]:
        """Run a loop for the factors of its products, which second derivatives do not support."""
        roots = find_products(loop, self.primal) if not self.is_second else ()
        found = {x: make_factors(self.versions, x, done.early.get(x, x)) for x in roots}
        if found:
            memory = self.memory_for(loop, done)
            run_parallel(outer, loop, lambda n: FactorSweep(self.b, self.primal, memory, n, found))
        return found


_CONTROL = {"if": Reverse.if_, "for": Reverse.for_, "while": Reverse.while_}
_MEMORY = {
    "load": Reverse.load,
    "store": Reverse.store,
    "local": Reverse.local,
    "barrier": Reverse.barrier,
    **dict.fromkeys(UPDATES, Reverse.atomic),
}
