"""Queries of a kernel's IR: footprints, gradients, data flow between arrays.

Other modules call them through `facts.facts`, which caches the results. A result is plain data
and depends only on the kernel and the arguments. `live` returns a gradient as IR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vkchi.analysis.dataflow import Dependence
from vkchi.analysis.memory import alias
from vkchi.analysis.memory.boxes import Box, Shaped, boxes_may_intersect, first_filling_segment
from vkchi.analysis.memory.footprint import Footprint
from vkchi.analysis.values.polynomials import is_integer
from vkchi.autodiff import gradient_checks
from vkchi.autodiff.buffers import save_buffer_size
from vkchi.autodiff.instrument import STORES, find_invariant, instrument_stores
from vkchi.autodiff.primal import ActivityAnalysis, BitDependence, is_smooth_array, name_under
from vkchi.autodiff.reaching import ArrayShape, OutflowAnalysis, ReachingWrites, spans_of
from vkchi.autodiff.results import (
    PUT_THERE,
    CompiledGradient,
    DerivativeOutflow,
    FlowTargets,
    ForwardKernel,
    GradientSpec,
    MarkedOp,
    MarkingKernel,
    lost_derivative_error,
    raise_or_warn,
)
from vkchi.calls.facts import Case, Names
from vkchi.calls.gradients import (
    GradientIR,
    build_forward,
    build_gradient,
    build_strip_mined,
    put_in_place,
)
from vkchi.compiler import build_artifact
from vkchi.ir.core import Op, Param, Value, base_memory, used_in, walk
from vkchi.ir.ops import ACCESSES, READS, WRITES, Effect, effect_of
from vkchi.target.artifact import Artifact
from vkchi.types import Array, u1

if TYPE_CHECKING:
    from vkchi.launch.compiled_kernel import CompiledKernel

Types = tuple[tuple[str, Array], ...]
NONE: Names = frozenset()
KINDS = {"loads": frozenset({"load"}), "reads": READS, "writes": WRITES}


def given_in(case: Case) -> tuple[dict[str, int], dict[str, Shaped]]:
    return dict(case[0]), {name: ArrayShape(shape) for name, shape in case[1]}


# --- footprints ----------------------------------------------------------------------------------


def footprint(kernel: CompiledKernel, kinds: str, spec: GradientSpec | None = None) -> Footprint:
    """Parts of arrays that a kernel accesses by ops of these kinds; memoized per kernel.

    `kinds` is `loads`, `reads` or `writes`. With a `spec`, `loads` are the gradient's reads of
    contents before the call. `writes` are those of the simplified kernel that the gradient is built
    from.
    """
    if spec is not None:
        return live(kernel, spec).needs if kinds == "loads" else live(kernel, spec).writes
    arrays = (p for p in kernel.func.params if isinstance(p.type, Array))
    return kernel.derived.find(
        "footprint", kinds, lambda: Footprint(kernel.func, arrays, KINDS[kinds])
    )


def touched(
    kernel: CompiledKernel, kinds: str, case: Case, spec: GradientSpec | None = None
) -> dict[str, Box]:  # fmt: skip
    """Box of each array that a call, or its gradient, accesses; `kinds` as in `footprint`."""
    return footprint(kernel, kinds, spec).boxes(*given_in(case))


def kinds_of_writes(kernel: CompiledKernel) -> dict[str, frozenset[str]]:
    found = alias.kinds_of_writes(kernel.func.body.ops).items()
    return {root.name: frozenset(kinds) for root, kinds in found if isinstance(root, Param)}


def arrays_used(kernel: CompiledKernel) -> Names:
    """Arrays whose values a kernel uses. Arrays that it only adds to or stores to are not among
    them."""
    used = {arg for op in walk(kernel.func.body) for arg in op.args}
    reads = [op for op in walk(kernel.func.body) if op.kind in READS]
    bases = [base_memory(op.args[0]) for op in reads if op.kind != "atomic_add" or op in used]
    return frozenset(base.name for base in bases if isinstance(base, Param))


def deciding_integers(kernel: CompiledKernel) -> Names:
    """Integer and bool parameters on which an address, a loop bound or a condition may depend.

    The parts of arrays that a call accesses depend on no other scalars.
    """
    fn = kernel.func
    places = {op.args[0] for op in walk(fn.body) if op.kind in ACCESSES} - set(fn.params)

    def decides(p: Param) -> bool:
        depends = Dependence(fn.body, [p])
        return bool(depends.decided) or not depends.found.isdisjoint(places)

    given = [p for p in fn.params if is_integer(p) or p.type is u1]
    return frozenset(p.name for p in given if decides(p))


def stores_constants(kernel: CompiledKernel) -> bool:
    """True if a kernel writes only by stores, and no value stored depends smoothly on memory."""
    fn = kernel.func
    active = ActivityAnalysis(fn, frozenset(p.name for p in fn.params if is_smooth_array(p)))
    is_store = all(kinds == {"store"} for kinds in alias.kinds_of_writes(fn.body.ops).values())
    return is_store and not (active.stores or active.escapes)


def fixed_stores(kernel: CompiledKernel) -> Names:
    """Arrays that a kernel writes only by stores, to elements that a rerun writes again.

    Whether and where they are written depends on no array that the kernel writes. Empty if the
    kernel draws random numbers, reports, or uses results of atomics.
    """
    fn, used = kernel.func, used_in(kernel.func.body)
    writes: dict[Param, list[Op]] = {}
    for op in walk(fn.body):
        root = base_memory(op.args[0]) if op.kind in WRITES else None
        if isinstance(root, Param):
            writes.setdefault(root, []).append(op)
        is_repeatable = effect_of(op.kind) is not Effect.REPORT and op.kind != "random"
        if not is_repeatable or (root is not None and op in used):
            return NONE
    depends = Dependence(fn.body, writes)
    moved = {
        op
        for ops in writes.values()
        for op in ops
        if op in depends.decided or op.args[0] in depends.found
    }
    return frozenset(
        p.name
        for p, ops in writes.items()
        if all(op.kind in STORES and op not in moved for op in ops)
    )


def depends_on_order(kernel: CompiledKernel) -> bool:
    return gradient_checks.depends_on_order(kernel.func)


# --- gradients -----------------------------------------------------------------------------------


def live(kernel: CompiledKernel, spec: GradientSpec) -> GradientIR:
    """A gradient as IR, memoized per kernel. Raises GradientError."""
    options, caps = kernel.runtime.options, kernel.runtime.device.caps
    return kernel.derived.find(
        "gradient_ir", spec, lambda: build_gradient(kernel.func, spec, options, caps)
    )


def differentiated(kernel: CompiledKernel, spec: GradientSpec) -> CompiledGradient:
    """The compiled gradient of a kernel. Raises GradientError."""
    one = live(kernel, spec)
    made, active = one.made, one.made.primal.active
    undefined = [op.span for op in walk(one.kernel.body) if op.kind == "undefined_slope"]
    return CompiledGradient(
        one.kernel.name,
        one.main,
        one.counting,
        made.copies,
        made.counting.copies if made.counting is not None else {},
        made.adjoints,
        tuple(save_buffer_size(save, one.kernel) for save in made.saves_used()),
        spans_of(active.stores),
        spans_of(active.escapes),
        {str(k): span for k, span in enumerate(dict.fromkeys(undefined))},
        bool(one.draws),
    )


def check_reached(kernel: CompiledKernel, spec: GradientSpec, constants: Names) -> None:
    """Raise GradientError if a gradient called separately would have no effect.

    That is: no derivative reaches an array with a gradient, although one of them depends smoothly
    on an array without. Arrays in `constants` do not count.
    """
    gradient_checks.check_reaches(live(kernel, spec).made.primal, constants)


def strip_mined(kernel: CompiledKernel, spec: GradientSpec) -> Artifact | None:
    options, caps = kernel.runtime.options, kernel.runtime.device.caps
    return build_strip_mined(live(kernel, spec).made, options, caps)


def along(kernel: CompiledKernel, names: Names, types: Types, missing: str) -> ForwardKernel:
    """The kernel in forward mode for the arrays `names`.

    Raises GradientError if there is none, or if a derivative is lost; if `missing` is `warn`, it
    warns in the second case. `types` as in `GradientSpec`.
    """
    for op, reader in reach(kernel).losses(ActivityAnalysis(kernel.func, names), names):
        error = lost_derivative_error(name_under(op), reader.span, PUT_THERE, op.span, "dual")
        raise_or_warn(error, missing, kernel.derived.warned)
    options, caps = kernel.runtime.options, kernel.runtime.device.caps
    artifact = build_forward(kernel.func, names, dict(types), options, caps)
    return ForwardKernel(artifact, put_in_place(kernel.func, names) is not kernel.func)


def outflow(
    kernel: CompiledKernel, by: GradientSpec | Names, case: Case, constant: Names = NONE
) -> DerivativeOutflow:  # fmt: skip
    """Arrays into which a call puts derivatives, if the arrays in `constant` are constants.

    `by` is a gradient, or the set of arrays with tangents in forward mode.
    """
    if isinstance(by, GradientSpec):
        found = live(kernel, by).made.outflows
    else:
        found = kernel.derived.find("outflow", by, lambda: OutflowAnalysis(kernel.func, by))
    return found.of(*given_in(case), constant)


def invariant(
    kernel: CompiledKernel, spec: GradientSpec, names: Names, given: Names
) -> Names | None:
    """The arrays among `names` that may be invariant (`autodiff.instrument`).

    None if the simplified kernel has arrays other than those in `given`.
    """
    fn = live(kernel, spec).kernel
    if any(isinstance(p.type, Array) and p.name not in given for p in fn.params):
        return None
    return find_invariant(fn, names)


def marked(
    kernel: CompiledKernel, spec: GradientSpec | None, names: Names, invariant: Names
) -> MarkingKernel:
    """The kernel, instrumented to mark the elements it stores in the arrays `names`.

    With a `spec`, it is the simplified kernel that the gradient is built from. For `invariant`, see
    `autodiff.instrument.instrument_stores`.
    """
    fn = kernel.func if spec is None else live(kernel, spec).kernel
    made = instrument_stores(fn, names, invariant)
    artifact = build_artifact(made.func, kernel.runtime.options, kernel.runtime.device.caps)
    shadows = {k: (p.name, p.type) for k, p in made.shadows.items() if isinstance(p.type, Array)}
    ops = [MarkedOp(op.kind, name_under(op), op.span) for op in made.ops]
    return MarkingKernel(artifact, shadows, tuple(ops))


# --- data flow between arrays --------------------------------------------------------------------


def reach(kernel: CompiledKernel) -> ReachingWrites:
    return kernel.derived.find("reach", None, lambda: ReachingWrites(kernel.func))


def covering(kernel: CompiledKernel, name: str, box: Box, case: Case) -> int | None:
    """Index of the segment of a call by whose end all of a box is certainly overwritten, or None.

    The empty box is the whole array.
    """
    known = reach(kernel)
    if name not in known.must_write.names:
        return None
    full = known.full(name, dict(case[1])[name])
    found = known.must_write.boxes(*given_in(case))
    return first_filling_segment([c for c in found if c.name == name], box, full)


def flow(
    kernel: CompiledKernel, name: str, box: Box, end: int | None, is_bits: bool, case: Case
) -> FlowTargets:
    """Destinations of values that depend smoothly on the contents of a box before the call.

    With `is_bits`, the box holds bits of differentiable values. The empty box is the whole array.
    `end` is the segment that overwrites it, if one does.
    """
    known, reads = reach(kernel), reads_of(kernel, name, box, end, case)
    if not reads:
        return FlowTargets({}, {}, {})
    if is_bits:
        bits, values = known.spread(reads, BitDependence)
        smooth = known.flow(frozenset(known.made_of(values)))
    else:
        smooth, values = known.spread(reads, ActivityAnalysis)
        seeds = known.taken_bits(values)
        bits = known.spread(frozenset(seeds), BitDependence)[0] if seeds else {}
    return FlowTargets(*map(spans_of, (smooth, known.staying(smooth), known.staying(bits))))


def reads_of(
    kernel: CompiledKernel, name: str, box: Box, end: int | None, case: Case
) -> frozenset[Value]:
    known, read = reach(kernel), touched(kernel, "reads", case).get(name)
    if name not in known.params or read is None or not boxes_may_intersect(read, box):
        return frozenset()
    last = len(known.segments) if end is None else end
    return frozenset(known.reads_of(known.params[name], 0, last))
