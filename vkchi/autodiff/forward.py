"""Forward mode: transform a kernel to compute tangents along a direction beside its values.

The result writes the same values to the same memory as the kernel. Each differentiable array NAME
has an array NAME..dual of the same type for the tangents of its elements. A store also stores the
tangent, and an atomic addition also adds it. Tangents of values follow `rules.py`; None is zero.

The iteration that determines a minimum or maximum over iterations of a parallel loop is known only
after the loop. So the loop runs twice: first for the results alone (`precompute`), then completely.
In the second run, iterations whose value equals the result store its tangent. Loops that cannot run
twice are serialized (`serialize_extremes`), which is legal because any order of iterations is.
Examples are loops with products or random numbers, and loops that read memory which they change.

Forward mode also applies to gradients: forward over reverse computes Hessian-vector products.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial, reduce

from vkchi.analysis.memory.alias import kinds_at
from vkchi.autodiff.emit import (
    add_derivatives,
    place_in,
    places_at,
    store_if,
    zero,
)
from vkchi.autodiff.gradient_checks import check_bits, is_adjoint, no_derivative_error
from vkchi.autodiff.primal import ActivityAnalysis, FloatDependence
from vkchi.autodiff.reaching import ReachingWrites
from vkchi.autodiff.rules import (
    NONDIFF,
    Bilinear,
    DerivativeSite,
    Linear,
    Partials,
    rule_of,
    times_partial,
)
from vkchi.errors import GradientError
from vkchi.ir.builder import Builder
from vkchi.ir.core import DUAL, Func, Op, Param, Region, Value, base_memory, used_in, walk
from vkchi.ir.num import Num
from vkchi.ir.ops import (
    EXTREMES,
    TABLE,
    WRITES,
    Effect,
    Trait,
    effect_of,
    initial_values,
    is_loop,
    kinds_with,
)
from vkchi.ir.rebuild import Cloner, Rebuilder, rebuild
from vkchi.types import Ptr

Tangent = "Value | None"
MAKING = kinds_with(Trait.MAKES_NONFINITE)
LATE = EXTREMES | {"atomic_mul"}  # ops whose tangent is known only after the loop
ONCE = (Effect.SYNC, Effect.WRITE)  # effects, besides writes to memory, that must not happen twice


def differentiate_forward(fn: Func, differentiable: frozenset[str]) -> Func:
    """The Func that also computes tangents of the differentiable arrays.

    Raises GradientError for active ops without a forward derivative, for tangents that depend on
    the order of iterations, and for derivatives that flow through the bits of a float.
    """
    active = ActivityAnalysis(fn, differentiable)
    check_bits(ReachingWrites(fn), active, differentiable)
    return Forward(fn, active).build()


class Forward(Cloner):
    """Builder of the Func.

    `map` maps old values to new ones, `tangents` to their tangents (None: 0), and `duals` memory to
    the memory of tangents.
    """

    more_names = "tangent"

    def __init__(self, fn: Func, active: ActivityAnalysis) -> None:
        super().__init__(Builder())
        self.fn, self.active = fn, active
        self.tangents: dict[Value, Value | None] = {}
        self.duals: dict[Value, Value] = {
            p: p.companion(p.name + DUAL) for p in fn.params if p in active.sources
        }
        self.is_parallel = False
        self.private: set[Value] = set()  # private memory of one iteration
        self.precomputed: frozenset[Value] = frozenset()  # memory with final results
        self.used = used_in(fn.body)
        made = frozenset[Value](op for op in walk(fn.body) if op.kind in MAKING)
        self.nonfinite = FloatDependence(fn, frozenset(), made).values

    def build(self) -> Func:
        duals = tuple(v for v in self.duals.values() if isinstance(v, Param))
        with self.b.region() as body:
            self.run(self.fn.body.ops)
            self.b.emit("yield")
        return Func(f"{self.fn.name}.dual", (*self.fn.params, *duals), body, self.fn.span)

    def tangent(self, v: Value) -> Value:
        return self.tangents.get(v) or zero(self.b, v.type)

    def visit(self, op: Op) -> None:
        if op.kind == "load":
            self.load(op)
        elif op.kind in WRITES:
            self.write(op)
        elif op.kind == "parallel":
            self.parallel(op)
        elif op.regions:
            self.control(op)
        else:
            self.plain(op)

    def plain(self, op: Op) -> None:
        self.copy(op)
        if op.kind == "local" and self.is_parallel:
            self.private.add(op)
        if op.kind == "local" and op in self.active.roots:
            self.duals[op] = self.b.emit("local", self.tangent(op.args[0]), name="dual")
        if op.kind == "shared" and op in self.active.roots:
            self.duals[op] = self.b.insert(Op("shared", (), op.attr, op.type, op.span, "dual"))
        if op in self.active and not isinstance(op.type, Ptr):
            self.tangents[op] = self.derive(op)

    # --- values

    def derive(self, op: Op) -> Value | None:
        """The tangent of a result by the op's rule; None for 0. Raises GradientError without a
        rule."""
        rule = rule_of(op)
        changing = [k for k, v in enumerate(op.args) if self.tangents.get(v) is not None]
        if not changing or rule is NONDIFF:
            return None
        if isinstance(rule, Partials):
            return self.chain(op, rule, changing)
        if isinstance(rule, Linear):
            of = range(len(op.args)) if rule.of is None else rule.of
            return self.apply(op, set(of))
        if isinstance(rule, Bilinear):
            return self.total(self.apply(op, {k}) for k in changing)
        raise no_derivative_error(op, "forward mode has no derivative for this operation")

    def chain(self, op: Op, rule: Partials, changing: Sequence[int]) -> Value | None:
        # A `select` discards the other operand, but a tangent may be infinite.
        is_nonfinite = not self.nonfinite.isdisjoint(op.args)
        site = DerivativeSite(
            self.b, op, self.get, changing, is_nonfinite=is_nonfinite, has_tangents=True
        )
        tangents = [(k, Num(self.b, self.tangent(op.args[k]))) for k in changing]
        terms = (times_partial(site, tangent, rule.partials[k]) for k, tangent in tangents)
        return self.total(term.v for term in terms if term is not None)

    def apply(self, op: Op, of: set[int]) -> Value:
        args = [self.tangent(v) if k in of else self.get(v) for k, v in enumerate(op.args)]
        return self.b.emit(op.kind, *args, attr=op.attr, type=op.type)

    def total(self, terms: Iterable[Value]) -> Value | None:
        result: Value | None = reduce(partial(add_derivatives, self.b), list(terms), None)
        return result

    # --- memory

    def places(self, ptr: Value) -> tuple[Value, Value | None]:
        root = base_memory(ptr)
        dual = self.duals.get(root)
        here = place_in(self.b, ptr, self.get(root), self.get)
        return here, place_in(self.b, ptr, dual, self.get) if dual is not None else None

    def load(self, op: Op) -> None:
        place, dual = self.places(op.args[0])
        self.map[op] = self.b.emit("load", place, name=op.name)
        if dual is not None and op in self.active:
            self.tangents[op] = self.b.emit("load", dual)

    def write(self, op: Op) -> None:
        """Emit a store or atomic, and the same op on the tangents.

        Raises GradientError for atomics on active memory other than sums and exchanges, and as
        `check_order`.
        """
        place, dual = self.places(op.args[0])
        if dual is not None and base_memory(op.args[0]) in self.precomputed:
            self.claim(self.get(op.args[1]), self.tangent(op.args[1]), place, dual)
            return
        if dual is not None:
            self.check_order(op)
        values = [self.get(v) for v in op.args[1:]]
        new = self.b.emit(op.kind, place, *values, attr=op.attr)
        if op.results:
            self.map[op] = new
        if dual is None:
            return
        if op.kind != "atomic_add" and not TABLE[op.kind].traits & Trait.REPLACES:
            raise no_derivative_error(op, "forward mode has no derivative for this operation")
        t = self.b.emit(op.kind, dual, self.tangent(op.args[1]))
        if op.results:
            self.tangents[op] = t

    def check_order(self, op: Op) -> None:
        """Raise GradientError for an atomic whose tangent depends on the order of iterations.

        These are atomics other than sums, and sums whose differentiable old value is used. Atomics
        outside parallel loops and on private memory are exempt. So are adjoints (forward over
        reverse): any of the iterations that write the same value may take any part.
        """
        root = base_memory(op.args[0])
        if not self.is_parallel or root in self.private or op.kind == "store":
            return
        is_sum = op.kind == "atomic_add" and not (op in self.used and op in self.active)
        if not is_sum and not is_adjoint(root):
            raise GradientError(
                "forward mode has no derivative for an atomic operation whose result depends on "
                "the order of iterations", op.span, help="loop serially: "
                "ti.loop_config(serialize=True), or use the reverse mode: ti.ad.Tape",
            )  # fmt: skip

    def claim(self, v: Value, t: Value, place: Value, dual: Value) -> None:
        """Store the tangent of each component of v that equals the loop's result."""
        b = self.b
        values, tangents = b.components(v), b.components(t)
        results, duals = places_at(b, place), places_at(b, dual)
        for x, tangent, result, slope in zip(values, tangents, results, duals, strict=True):
            store_if(b, b.emit("eq", x, b.emit("load", result)), slope, tangent)

    # --- control: tangents are carried and yielded beside active values

    def active_of(self, op: Op, values: Sequence[Value]) -> list[Value]:
        return [v for r, v in zip(op.results, values, strict=True) if r in self.active]

    def carry(self, op: Op) -> Sequence[Value]:
        if not is_loop(op):
            return ()
        return [self.tangent(v) for v in self.active_of(op, initial_values(op))]

    def begin(self, op: Op, region: Region, more: Sequence[Param]) -> None:
        if more:
            params = region.params[len(region.params) - len(op.results) :]
            self.tangents.update(zip(self.active_of(op, params), more, strict=True))

    def end(self, op: Op, region: Region, more: Sequence[Param]) -> Sequence[Value]:
        return [self.tangent(v) for v in self.active_of(op, region.yielded)]

    def finish(self, op: Op, more: Sequence[Value]) -> None:
        self.tangents.update(zip(self.active_of(op, op.results), more, strict=True))

    def parallel(self, op: Op) -> None:
        roots = late_roots(op, self.active)
        if roots and can_precompute(op, roots, self.used):
            self.precomputed = roots
            precompute(self.b, op, self.precomputed, self.map)
        self.is_parallel = True
        self.control(op)
        self.is_parallel, self.precomputed = False, frozenset()


# --- minima, maxima and products over iterations -------------------------------------------------


def late_roots(loop: Op, active: ActivityAnalysis) -> frozenset[Value]:
    """Memory with derivatives in which a loop computes minima, maxima or products across
    iterations.

    Adjoints are excluded.
    """
    inside = own_memory(loop)
    changed = {base_memory(op.args[0]) for op in walk(loop.regions[0]) if op.kind in LATE}
    outside = {root for root in changed if root not in inside and not is_adjoint(root)}
    return frozenset(v for v in outside if v in active.sources or v in active.roots)


def own_memory(loop: Op) -> set[Value]:
    return {op for op in walk(loop.regions[0]) if op.kind == "local"}


def can_precompute(loop: Op, roots: frozenset[Value], used: Collection[Value]) -> bool:
    """True if a loop can run first for the results at these roots alone.

    Their writes must be minima or maxima, of one kind per location. The loop must not synchronize,
    draw random numbers, or read memory that it changes, except its own `local`s.
    """
    inside, writes = own_memory(loop), [op for op in walk(loop.regions[0]) if op.kind in WRITES]
    changed = {root for op in writes if (root := base_memory(op.args[0])) not in inside}
    late = [op for op in writes if base_memory(op.args[0]) in roots]
    if any(op.kind not in EXTREMES or len(kinds_at(late, op.args[0])) > 1 for op in late):
        return False
    for op in walk(loop.regions[0]):
        if op.kind in WRITES:
            if op in used and base_memory(op.args[0]) in changed:
                return False
        elif effect_of(op.kind) in ONCE or (
            op.kind == "load" and base_memory(op.args[0]) in changed
        ):
            return False
    return True


def serialize_extremes(fn: Func, differentiable: frozenset[str]) -> Func:
    """Replace parallel loops that would have to run twice, but cannot, by `for` loops.

    These compute minima, maxima or products in memory with derivatives. Loops whose iterations
    synchronize are left unchanged.
    """
    if not any(op.kind in LATE for op in walk(fn.body)):
        return fn
    active = ActivityAnalysis(fn, differentiable)
    used = used_in(fn.body)

    def is_serial(loop: Op) -> bool:
        roots = late_roots(loop, active)
        effects = {effect_of(op.kind) for op in walk(loop.regions[0])}
        return bool(roots) and Effect.SYNC not in effects and not can_precompute(loop, roots, used)

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> tuple[Value, ...] | None:
        if op.kind != "parallel" or not is_serial(op):
            return None
        return nest_serial_loops(b, op, args).results

    return rebuild(fn, visit)


def nest_serial_loops(b: Builder, loop: Op, args: Sequence[Value]) -> Op:
    """Emit nested serial loops for a parallel one with these bounds; return the outermost."""
    region = loop.regions[0]
    for k in reversed(range(1, len(region.params))):
        with b.region(region.params[k - 1]) as outer:
            b.for_(args[2 * k], args[2 * k + 1], (), Region((region.params[k],), region.ops))
            b.emit("yield")
        region = Region(loop.regions[0].params, outer.ops)
    return b.for_(args[0], args[1], (), Region((loop.regions[0].params[0],), region.ops))


def precompute(b: Builder, loop: Op, roots: frozenset[Value], now: dict[Value, Value]) -> None:
    """Emit the loop reduced to the results at these roots. `now` maps old values to new ones."""
    inside = own_memory(loop)

    def visit(_: Builder, op: Op, args: tuple[Value, ...]) -> tuple[Value, ...] | None:
        root = base_memory(op.args[0]) if op.kind in WRITES else None
        is_other = root is not None and root not in inside and root not in roots
        is_report = effect_of(op.kind) is Effect.REPORT
        return tuple(op.results) if is_other or is_report else None

    rebuilder = Rebuilder(visit)
    rebuilder.map = dict(now)
    body = rebuilder.region(loop.regions[0])
    b.parallel([now.get(v, v) for v in loop.args], body, loop.attr, loop.name)
