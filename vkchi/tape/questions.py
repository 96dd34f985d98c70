"""A kernel's IR, asked: who computes what recordings want to know of it.

Owns: the questions, which others ask as `derived.facts`: their answers are data, and depend on the
kernel and on what is given alone. `live` gives gradients as IR, to those who need more than an
answer. Must not know: calls but by their cases, tapes, races.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vkchi.analysis import alias
from vkchi.analysis.boxes import Box, Shaped, filled_by, may_meet
from vkchi.analysis.footprint import Footprint
from vkchi.autodiff import refusals
from vkchi.autodiff.answers import (
    PUT_THERE,
    Along,
    Differentiated,
    Flow,
    GradientSpec,
    Marked,
    MarkedOp,
    Outflow,
    let_pass,
    lost,
)
from vkchi.autodiff.buffers import size_of
from vkchi.autodiff.instrument import mark
from vkchi.autodiff.primal import Activity, Bits, is_smooth_array, name_under
from vkchi.autodiff.reaching import Extents, Outflows, Reach, spans_of
from vkchi.autodiff.replay import Draw
from vkchi.compiler import build
from vkchi.ir.core import Func, Op, Param, Value, base_of, walk
from vkchi.ir.names import DUAL
from vkchi.ir.ops import READS, WRITES
from vkchi.tape.derived import Case, Names
from vkchi.tape.gradients import (
    CompiledGradient,
    build_forward,
    build_gradient,
    build_second,
    build_strip_mined,
    put_in_place,
)
from vkchi.tape.recompute_safety import find_reading, find_settled
from vkchi.target.artifact import Artifact
from vkchi.tuples import NamedTuple
from vkchi.types import Array

if TYPE_CHECKING:
    from vkchi.launch import Plan

Types = tuple[tuple[str, Array], ...]
KINDS = {"loads": frozenset({"load"}), "reads": READS, "writes": WRITES}


def given_in(case: Case) -> tuple[dict[str, int], dict[str, Shaped]]:
    """The integers of a call, and its arrays."""
    return dict(case[0]), {name: Extents(shape) for name, shape in case[1]}


# --- what a kernel touches -----------------------------------------------------------------------


def footprint(plan: Plan, kinds: str) -> Footprint:
    """What a kernel touches of its arrays, by ops of these kinds; found once per plan."""
    arrays = (p for p in plan.func.params if isinstance(p.type, Array))
    return plan.derived.footprints.find(kinds, lambda: Footprint(plan.func, arrays, KINDS[kinds]))


def touched(plan: Plan, kinds: str, case: Case) -> dict[str, Box]:
    """Which part of each array a call touches by ops of these `kinds`: loads, reads or writes."""
    return footprint(plan, kinds).boxes(*given_in(case))


def kinds_of_writes(plan: Plan) -> dict[str, frozenset[str]]:
    """The kinds of ops that write to each array."""
    found = alias.kinds_of_writes(plan.func.body.ops).items()
    return {root.name: frozenset(kinds) for root, kinds in found if isinstance(root, Param)}


def arrays_used(plan: Plan) -> Names:
    """The arrays whose numbers a kernel uses: not those that it only adds to."""
    used = {arg for op in walk(plan.func.body) for arg in op.args}
    reads = [op for op in walk(plan.func.body) if op.kind in READS]
    bases = [base_of(op.args[0]) for op in reads if op.kind != "atomic_add" or op in used]
    return frozenset(base.name for base in bases if isinstance(base, Param))


def stores_constants(plan: Plan) -> bool:
    """Whether a kernel does nothing to memory but store what depends on no floats in it."""
    fn = plan.func
    active = Activity(fn, frozenset(p.name for p in fn.params if is_smooth_array(p)))
    is_store = all(kinds == {"store"} for kinds in alias.kinds_of_writes(fn.body.ops).values())
    return is_store and not (active.stores or active.escapes)


def depends_on_order(plan: Plan) -> bool:
    """Whether a kernel may leave something else each time."""
    return refusals.depends_on_order(plan.func)


# --- gradients -----------------------------------------------------------------------------------


class Live(NamedTuple):
    """A gradient as IR: what it reads of arrays, with the contents that the kernel found, and what
    the kernel overwrites; what it needs of what the kernel drew."""

    compiled: CompiledGradient
    needs: Footprint
    writes: Footprint
    draws: tuple[Draw, ...]

    @property
    def func(self) -> Func:
        """What runs."""
        return self.compiled.made.func

    @property
    def kernel(self) -> Func:
        """The kernel that it is the gradient of, simplified."""
        return self.compiled.made.primal.fn


def live(plan: Plan, spec: GradientSpec) -> Live:
    """A gradient, made once per plan. Raises GradientError."""

    def make() -> Live:
        build_it = build_second if spec.is_second else build_gradient
        options, caps = plan.runtime.options, plan.runtime.device.caps
        compiled = build_it(plan.func, spec.request, dict(spec.types), options, caps)
        made, main = compiled.made, compiled.main
        params = [p for p in plan.func.params if isinstance(p.type, Array)]
        found = {name for p in params for name in (p.name, p.name + DUAL)} & main.reads
        needed = [p for p in made.func.params if p.name in found]
        written = [p for p in params if p in made.primal.written]
        used = main.used | (compiled.counting.used if compiled.counting else frozenset())
        return Live(
            compiled,
            Footprint(made.func, needed, KINDS["loads"]),
            Footprint(made.primal.fn, written, WRITES),
            tuple(d for d in compiled.draws if d.save.param.name in used),
        )

    return plan.derived.live.find(spec, make)


def differentiated(plan: Plan, spec: GradientSpec) -> Differentiated:
    """The kernel's gradient. Raises GradientError."""
    one = live(plan, spec)
    made, active = one.compiled.made, one.compiled.made.primal.active
    return Differentiated(
        one.kernel.name,
        one.compiled.main,
        one.compiled.counting,
        made.copies,
        made.counting.copies if made.counting is not None else {},
        made.adjoints,
        tuple(size_of(save, one.kernel) for save in made.saves_used()),
        spans_of(active.stores),
        spans_of(active.escapes),
        bool(one.draws),
    )


def needed(plan: Plan, spec: GradientSpec, case: Case) -> dict[str, Box]:
    """What a gradient reads of arrays, with the contents that the kernel found."""
    return live(plan, spec).needs.boxes(*given_in(case))


def overwritten(plan: Plan, spec: GradientSpec, case: Case) -> dict[str, Box]:
    """What the kernel overwrites, as its gradient sees it."""
    return live(plan, spec).writes.boxes(*given_in(case))


def check_reached(plan: Plan, spec: GradientSpec, constants: Names) -> None:
    """Raises GradientError where none of the arrays on which results with gradients depend has one,
    but for constants."""
    refusals.check_reaches(live(plan, spec).compiled.made.primal, constants)


def strip_mined(plan: Plan, spec: GradientSpec) -> Artifact | None:
    """A gradient's dispatches with fewer invocations than iterations; None if there are none."""
    options, caps = plan.runtime.options, plan.runtime.device.caps
    return build_strip_mined(live(plan, spec).compiled.made, options, caps)


def along(plan: Plan, names: Names, types: Types, missing: str) -> Along:
    """The kernel with derivatives along the duals of these arrays; `types` as in `GradientSpec`,
    `missing` as in `Request`. Raises GradientError."""
    for op, reader in reach(plan).losses(Activity(plan.func, names), names):
        error = lost(name_under(op), reader.span, PUT_THERE, op.span, "dual")
        let_pass(error, missing, plan.derived.warned)
    options, caps = plan.runtime.options, plan.runtime.device.caps
    artifact = build_forward(plan.func, names, dict(types), options, caps)
    return Along(artifact, put_in_place(plan.func, names) is not plan.func)


def outflow(plan: Plan, spec: GradientSpec, case: Case, constant: Names) -> Outflow:
    """Where a call puts derivatives that finds constants in some arrays."""
    outflows = live(plan, spec).compiled.made.outflows
    return outflows.of(*given_in(case), constant)


def outflow_along(plan: Plan, names: Names, case: Case) -> Outflow:
    """The same in forward mode, by these arrays."""
    found = plan.derived.outflows.find(names, lambda: Outflows(plan.func, names))
    return found.of(*given_in(case))


def settled(plan: Plan, spec: GradientSpec, names: Names, given: Names) -> Names | None:
    """Which of these arrays may be settled (`recompute_safety`); None where the gradient has arrays
    besides those that are given."""
    fn = live(plan, spec).kernel
    if any(isinstance(p.type, Array) and p.name not in given for p in fn.params):
        return None
    return find_settled(fn, names)


def marked(plan: Plan, spec: GradientSpec | None, names: Names, settled: Names) -> Marked:
    """The kernel, or what its gradient takes for it, in a form that marks what it stores."""
    fn = plan.func if spec is None else live(plan, spec).kernel
    made = mark(fn, names, settled, find_reading(fn))
    artifact = build(made.func, plan.runtime.options, plan.runtime.device.caps)
    shadows = {k: (p.name, p.type) for k, p in made.shadows.items() if isinstance(p.type, Array)}
    ops = [MarkedOp(op.kind, name_under(op), op.span) for op in made.ops]
    return Marked(artifact, shadows, tuple(ops))


# --- where values go on --------------------------------------------------------------------------


def reach(plan: Plan) -> Reach:
    """Which reads of a kernel see what it writes."""
    return plan.derived.reach.find(None, lambda: Reach(plan.func))


def covering(plan: Plan, name: str, box: Box, case: Case) -> int | None:
    """The first segment of a call that overwrites all of a part of an array, or, without a box, all
    of it."""
    known = reach(plan)
    if name not in known.covers.names:
        return None
    full = known.full(name, dict(case[1])[name])
    found = known.covers.boxes(*given_in(case))
    return filled_by([c for c in found if c.name == name], box, full)


def flow(plan: Plan, name: str, box: Box, end: int | None, is_bits: bool, case: Case) -> Flow:
    """Where a call puts what depends smoothly on what a part of an array holds before; without a
    box it is all of the array, which is overwritten by the end of a segment, if it is."""
    known, reads = reach(plan), reads_of(plan, name, box, end, case)
    if not reads:
        return Flow({}, {}, frozenset(), frozenset())
    if is_bits:
        bits, values = known.spread(reads, Bits)
        smooth = known.flow(frozenset(known.made_of(values)))
    else:
        smooth, values = known.spread(reads, Activity)
        seeds = known.taken_bits(values)
        bits = known.spread(frozenset(seeds), Bits)[0] if seeds else {}
    return Flow(spans_of(smooth), spans_of(bits), lasting(known, smooth), lasting(known, bits))


def lasting(known: Reach, flow: Mapping[str, Op]) -> Names:
    """The arrays that hold it when the call is done."""
    return frozenset(name for name, op in flow.items() if known.stays(op))


def reads_of(plan: Plan, name: str, box: Box, end: int | None, case: Case) -> frozenset[Value]:
    """The ops of a call that may read, in a part of an array, what it holds before the call."""
    known, read = reach(plan), touched(plan, "reads", case).get(name)
    if name not in known.params or read is None or not may_meet(read, box):
        return frozenset()
    last = len(known.segments) if end is None else end
    return frozenset(known.reads_of(known.params[name], 0, last))
