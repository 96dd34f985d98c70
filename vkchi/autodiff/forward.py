"""Forward mode: a kernel that carries, beside every active value, its derivative along a direction.

The specification. The result runs the kernel as it is, on the same memory; of every differentiable
array NAME there is an array NAME..dual, of the same type, with the derivative of what stands in
NAME. A store stores the derivative beside the value, an atomic addition adds it; for minima and
maxima over iterations see `minmax`. Tangents of values follow the rules of `rules.py`; None
stands for zero. It applies to gradients as well: forward over reverse gives products with the
Hessian.

Must not know: devices, launches.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.autodiff.minmax import can_scout, late_roots, scout
from vkchi.autodiff.nonfinite import spread_wild
from vkchi.autodiff.primal import Activity
from vkchi.autodiff.refusals import check_bits, is_adjoint, refuse
from vkchi.autodiff.rules import (
    NONDIFF,
    Bilinear,
    Linear,
    Partials,
    Site,
    multiply,
    rule_of,
)
from vkchi.autodiff.sweep import place_in, zero
from vkchi.errors import GradientError
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Value, base_of, used_in
from vkchi.ir.names import DUAL
from vkchi.ir.num import Num
from vkchi.ir.ops import TABLE, WRITES, Trait
from vkchi.types import Ptr, Scalar, Tensor

Tangent = "Value | None"


def forward(fn: Func, differentiable: frozenset[str]) -> Func:
    """The Func with derivatives along the duals of these arrays. Raises GradientError."""
    active = Activity(fn, differentiable)
    check_bits(fn, active, differentiable)
    return Forward(fn, active).build()


class Forward:
    """Builds the Func. `map` leads from old values to new ones, `tangents` to their derivatives;
    `duals` from memory to the memory of its derivatives."""

    def __init__(self, fn: Func, active: Activity) -> None:
        self.fn, self.active = fn, active
        self.b = Builder()
        self.map: dict[Value, Value] = {}
        self.tangents: dict[Value, Value | None] = {}
        self.duals: dict[Value, Value] = {
            p: Param(p.type, p.name + DUAL) for p in fn.params if p in active.sources
        }
        self.is_parallel = False
        self.private: set[Value] = set()  # memory of one iteration of a parallel loop
        self.scouted: frozenset[Value] = frozenset()  # memory that holds the loop's results already
        self.used = used_in(fn.body)
        self.wild = spread_wild(fn)

    def build(self) -> Func:
        """The whole Func."""
        duals = tuple(v for v in self.duals.values() if isinstance(v, Param))
        body = self.region(self.fn.body, ())
        with self.b.within(body):
            self.b.emit("yield")
        return Func(f"{self.fn.name}.dual", (*self.fn.params, *duals), body, self.fn.span)

    def get(self, v: Value) -> Value:
        """What stands for an old value."""
        return self.map.get(v, v)

    def tangent(self, v: Value) -> Value:
        """The derivative of an old value, zero spelled out."""
        return self.tangents.get(v) or zero(self.b, v.type)

    def region(self, region: Region, params: Sequence[Param]) -> Region:
        """The ops of a region, with new parameters; still without a yield."""
        with self.b.region(*params) as new:
            for op in region.ops:
                self.b.span = op.span
                if op.kind != "yield":
                    self.op(op)
        return new

    def op(self, op: Op) -> None:
        """One op and its derivative."""
        if op.regions:
            _CONTROL[op.kind](self, op)
        elif op.kind == "load":
            self.load(op)
        elif op.kind in WRITES:
            self.write(op)
        else:
            self.plain(op)

    def plain(self, op: Op) -> None:
        """An op on values, or one that makes a place."""
        args = tuple([self.get(v) for v in op.args])
        new = self.b.insert(Op(op.kind, args, op.attr, op.type, op.span, op.name))
        if op.results:
            self.map[op] = new
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
        """The derivative of a result by the op's rule."""
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
            return self.total([self.apply(op, {k}) for k in changing])
        raise refuse(op, "forward mode has no derivative for this operation")

    def chain(self, op: Op, rule: Partials, changing: Sequence[int]) -> Value | None:
        """The sum of partial derivatives times tangents."""
        # What a `select` does not choose is gone; but a tangent may be infinite.
        is_wild = not self.wild.isdisjoint(op.args)
        site = Site(self.b, op, self.get, changing, is_wild=is_wild, has_tangents=True)
        terms = []
        for k in changing:
            tangent = Num(self.b, self.tangent(op.args[k]))
            term = multiply(site, tangent, rule.partials[k])
            if term is not None:
                terms.append(term.v)
        return self.total(terms)

    def apply(self, op: Op, of: set[int]) -> Value:
        """The op on the tangents of some operands and the values of the others."""
        args = [self.tangent(v) if k in of else self.get(v) for k, v in enumerate(op.args)]
        return self.b.emit(op.kind, *args, attr=op.attr, type=op.type)

    def total(self, terms: Sequence[Value]) -> Value | None:
        """The sum of tangents."""
        result: Value | None = None
        for t in terms:
            result = t if result is None else self.b.emit("add", result, t)
        return result

    # --- memory

    def places(self, ptr: Value) -> tuple[Value, Value | None]:
        """The place of a value, and that of its derivative."""
        root = base_of(ptr)
        dual = self.duals.get(root)
        here = place_in(self.b, ptr, self.get(root), self.get)
        return here, place_in(self.b, ptr, dual, self.get) if dual is not None else None

    def load(self, op: Op) -> None:
        """The value and its derivative."""
        place, dual = self.places(op.args[0])
        self.map[op] = self.b.emit("load", place, name=op.name)
        if dual is not None and op in self.active:
            self.tangents[op] = self.b.emit("load", dual)

    def write(self, op: Op) -> None:
        """A store or atomic, and what it does to the derivative."""
        place, dual = self.places(op.args[0])
        if dual is not None and base_of(op.args[0]) in self.scouted:
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
            raise refuse(op, "forward mode has no derivative for this operation")
        t = self.b.emit(op.kind, dual, self.tangent(op.args[1]))
        if op.results:
            self.tangents[op] = t

    def check_order(self, op: Op) -> None:
        """Raises GradientError for an atomic operation other than a sum, or whose old value counts,
        where other iterations may come between it and that on the dual. Of adjoints (of forward
        mode over reverse mode) iterations that write the same value may take any part."""
        root = base_of(op.args[0])
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
        """Leave the derivative of v, part by part, where v is the result."""
        b = self.b
        if isinstance(v.type, Tensor):
            for k in range(v.type.size):
                parts = (b.emit("extract", x, attr=k) for x in (v, t))
                self.claim(*parts, *(b.emit("member", p, attr=k) for p in (place, dual)))
            return
        assert isinstance(v.type, Scalar)
        with b.region() as hit:
            b.emit("store", dual, t)
            b.emit("yield")
        with b.region() as miss:
            b.emit("yield")
        b.if_(b.emit("eq", v, b.emit("load", place)), hit, miss)

    # --- control

    def ends(self, region: Region, active: Sequence[int]) -> list[Value]:
        """What a region yields: values, then tangents."""
        values = [self.get(v) for v in region.yielded]
        return values + [self.tangent(region.yielded[k]) for k in active]

    def bind(self, olds: Sequence[Value], news: Sequence[Value], active: Sequence[int]) -> None:
        """Values, then tangents, stand for the old values."""
        self.map.update(zip(olds, news))
        for k, t in zip(active, news[len(olds) :]):
            self.tangents[olds[k]] = t

    def active_results(self, op: Op) -> list[int]:
        return [k for k, r in enumerate(op.results) if r in self.active]

    def if_(self, op: Op) -> None:
        """Both arms, with derivatives."""
        active = self.active_results(op)
        arms = []
        for region in op.regions:
            new = self.region(region, ())
            with self.b.within(new):
                self.b.emit("yield", *self.ends(region, active))
            arms.append(new)
        made = self.b.if_(self.get(op.args[0]), *arms)
        self.bind(op.results, made.results, active)

    def carried(self, region: Region, active: Sequence[int], skip: int) -> list[Param]:
        """New parameters of a loop's region: the old ones, then tangents."""
        params = [Param(p.type, p.name) for p in region.params]
        slots = region.params[skip:]
        tangents = [Param(slots[k].type, "tangent") for k in active]
        self.map.update(zip(region.params, params))
        for k, t in zip(active, tangents):
            self.tangents[slots[k]] = t
        return params + tangents

    def for_(self, op: Op) -> None:
        """A loop that carries derivatives too."""
        active = self.active_results(op)
        first = [self.get(v) for v in op.args[2:]]
        first += [self.tangent(op.args[2 + k]) for k in active]
        (body,) = op.regions
        new = self.region(body, self.carried(body, active, 1))
        with self.b.within(new):
            self.b.emit("yield", *self.ends(body, active))
        made = self.b.for_(self.get(op.args[0]), self.get(op.args[1]), first, new)
        self.bind(op.results, made.results, active)

    def while_(self, op: Op) -> None:
        """The same under a condition."""
        active = self.active_results(op)
        first = [self.get(v) for v in op.args] + [self.tangent(op.args[k]) for k in active]
        cond, body = op.regions
        test = self.region(cond, self.carried(cond, active, 0))
        with self.b.within(test):
            self.b.emit("yield", self.get(cond.yielded[0]))
        new = self.region(body, self.carried(body, active, 0))
        with self.b.within(new):
            self.b.emit("yield", *self.ends(body, active))
        self.bind(op.results, self.b.while_(first, test, new).results, active)

    def parallel(self, op: Op) -> None:
        """All iterations."""
        (body,) = op.regions
        roots = late_roots(op, self.active)
        if roots and can_scout(op, roots, self.used):
            self.scouted = roots
            scout(self.b, op, self.scouted, self.map)
        self.is_parallel = True
        new = self.region(body, self.carried(body, (), len(body.params)))
        self.is_parallel, self.scouted = False, frozenset()
        with self.b.within(new):
            self.b.emit("yield")
        self.b.parallel([self.get(v) for v in op.args], new, op.attr)


_CONTROL = {
    "if": Forward.if_,
    "for": Forward.for_,
    "while": Forward.while_,
    "parallel": Forward.parallel,
}
