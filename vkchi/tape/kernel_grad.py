"""`kernel.grad(...)`: gradient of one call outside a tape, evaluated with the current memory.

The kernel has already run, so inputs that it overwrote are gone. Where the kernel writes to an
array that the gradient reads, it must redefine the array or leave it invariant
(`autodiff.instrument`). Otherwise, and if the gradient needs random numbers or results of atomics,
GradientError is raised. A gradient without effect is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

from vkchi.analysis.memory.boxes import Box, boxes_may_intersect, is_inside
from vkchi.autodiff.results import CompiledGradient, MarkedOp
from vkchi.calls.call import KernelCall, LaunchRequest, check_numbers, describe_call
from vkchi.calls.facts import facts
from vkchi.errors import GradientError, GradientWarning, LostValueError, warn_at
from vkchi.fields.array_versions import lock_writers
from vkchi.fields.storage import Storage
from vkchi.launch.compiled_kernel import NOTHING_SHARED, CompiledKernel
from vkchi.races.finder import RaceFinder, check_gradient_race
from vkchi.signature.bound import ImportedArray
from vkchi.span import Span
from vkchi.tape.adjoints import CallAdjoints, count_once
from vkchi.tape.plan import GradientPlan, plan_gradient
from vkchi.tuples import NamedTuple


class ValidGradient(NamedTuple):
    """A gradient that is valid for the current memory.

    `needs` are the parts of arrays it reads. `redefined` are the arrays of which it reads only
    elements that it has recomputed.
    """

    plan: GradientPlan
    needs: dict[str, Box]
    redefined: set[str]


def fit_gradient(call: KernelCall, gradients: CallAdjoints) -> ValidGradient:
    """Return a gradient that is valid for memory as the kernel left it.

    Raises GradientError if it needs values that the kernel has overwritten or drawn, or has no
    effect on a host array.
    """
    made = plan_gradient(call, gradients)
    if not made.made.stores:
        facts.check_reached(call.kernel, made.spec, call.constants)
    check_slopes(call, made.made)
    if made.draws:  # only tapes log draws
        from vkchi.autodiff.gradient_checks import nondeterminism_error  # imports the IR

        raise nondeterminism_error(made.draws[0].op)
    needs, writes = made.needs(call), made.writes(call)
    both = {k: writes[k] for k in needs if k in writes and boxes_may_intersect(needs[k], writes[k])}
    if not both:
        return ValidGradient(made, needs, set())
    from vkchi.calls.variant import find_stale, find_stored

    invariant = facts.invariant(call.kernel, made.spec, frozenset(both), frozenset(call.arrays))
    if invariant is None:
        name = min(both)
        first = made.live.writes.accesses[name].elements[0]
        raise overwritten_input_error(call, made, MarkedOp(first.kind, name, first.span))
    stale = find_stale(call, made.spec, both, invariant)
    stored: dict[str, Storage] = {}
    if stale is not None:  # the elements between those of a box may be unchanged
        stored = find_stored(call, frozenset(both) - invariant)
        stale = find_stale(call, made.spec, both, invariant, stored) if stored else stale
    if stale is not None:
        raise overwritten_input_error(call, made, stale)
    if invariant:
        made = plan_gradient(call, gradients, invariant)
        needs = made.needs(call)
    reads = facts.touched(call.kernel, "loads", call.case)
    again = reads.keys() & both.keys() - invariant
    redefined = {k for k in again if k not in stored and is_inside(reads[k], both[k])}
    return ValidGradient(made, needs | {k: reads[k] for k in again & needs.keys()}, redefined)


def check_slopes(call: KernelCall, made: CompiledGradient) -> None:
    """Report a gradient without effect: derivatives flow only into results without gradient.

    Raises GradientError if one of these is a host array. Otherwise it warns at the line of the
    store.
    """
    lost = {} if made.stores else made.escapes
    name = next((name for name in lost if name in call.hosts), next(iter(lost), None))
    if name is None:
        return
    span = lost[name]
    does_nothing = f"`{name}`, which the kernel writes here, has no gradient"
    if name in call.hosts:
        raise GradientError(
            f"{call.name}.grad() would do nothing: {does_nothing}", span,
            help=f"set {name}.grad before, in the backward of a torch.autograd.Function to "
            "what that is given; numpy arrays have none",
        )  # fmt: skip
    if span is not None:
        text = f"{call.name}.grad() does nothing: {does_nothing}; make it with needs_grad=True"
        warn_at(text, GradientWarning, span.file, span.line, call.kernel.derived.warned)


def overwritten_input_error(call: KernelCall, made: GradientPlan, op: MarkedOp) -> GradientError:
    what = "the kernel reads it here" if op.kind == "load" else "the kernel changes it here"
    return LostValueError(
        f"the gradient of {call.name}() needs what `{op.array}` held before the kernel overwrote "
        "it",
        made.live.writes.span_of(op.array), notes=((what, op.span),),
        help="call the kernel inside `with ti.ad.Tape(...)`, which keeps it",
    )  # fmt: skip


class FieldContents(Protocol):
    """Contents of fields, and perhaps of other arrays, as a call left them."""

    def find(self, array: Storage) -> Storage:
        """Return the array with the contents of a field; the field itself if no copy is known."""

    def knows(self, array: Storage) -> bool:
        """True for an array with known contents."""

    def check(self, name: str, array: Storage, span_of: Callable[[str], Span | None]) -> None:
        """Raise GradientError if a field's contents are unknown; `span_of` locates its read."""


def run_gradient(
    name: str,
    kernel: CompiledKernel,
    args: tuple[Any, ...],
    shared: Sequence[ImportedArray] = NOTHING_SHARED,
    *,
    fields: FieldContents | None = None,
) -> None:
    """Run `kernel.grad(...)`: the gradient of a call, with the current memory.

    `fields` supplies saved contents of fields. Arguments in `shared` are used in place; then the
    function waits for the device.

    Raises GradientError if the gradient would be wrong, or has no effect on a host array. Raises
    KernelAssertionError if a recursion is too deep.
    """
    check_numbers(name, kernel, args)
    call = (
        describe_call(name, kernel, args, shared)
        if shared
        else LaunchRequest(name, kernel, args).call
    )
    gradients = CallAdjoints(call)
    own: dict[str, Storage] = {}
    if fields is not None:
        own = {k: array for k, array in call.arrays.items() if fields.knows(array)}
        own |= kernel.state(args)
        saved = {k: fields.find(array) for k, array in own.items()}
        call = call._replace(arrays={**call.arrays, **saved})
    made, needs, redefined = fit_gradient(call, gradients)
    for key, array in own.items():
        if fields is not None and key in needs:
            fields.check(key, array, made.span_of)
    history = getattr(kernel.runtime.tape, "mutation_log", None)
    if history is not None and history.since is not None:
        memory = {**call.arrays, **call.hosts}
        history.check_all(made.span_of, needs, memory, redefined.__contains__)
    memory = {k: a.copied() if k in needs and a.is_gradient else a for k, a in call.arrays.items()}
    race = RaceFinder(has_run=True).look(call, gradients.names, made.spec)
    gradients.fetch()
    check_gradient_race(race, gradients.arrays)
    check_depth(call)
    device = kernel.runtime.device
    owners = [*(one.owner for one in shared), *gradients.owners]
    held = device.heap.hold(owners)
    with lock_writers(kernel.runtime) if fields is not None else nullcontext():
        if fields is not None:  # looked up again: another thread may have written since
            kept = {k: fields.find(array) for k, array in own.items()}
            memory |= {k: a for k, a in kept.items() if not a.is_gradient}
        made.launch(call.args, memory, gradients.arrays, call.repeated)
    if shared:
        device.wait()
        owners.clear()
    del held
    gradients.bring_back()
    count_once(call)
    recording = kernel.runtime.tape
    if recording is not None and recording.kind != "record":
        recording.note_gradient(call, gradients, needs)


def check_depth(call: KernelCall) -> None:
    """Raise KernelAssertionError if a real function of the call exceeds its recursion depth.

    The gradient does not check that, so the kernel runs once on copies.
    """
    if any(site.kind == "depth" for site in call.kernel.sites.values()):
        from vkchi.calls.variant import Variant  # few kernels have a depth check

        Variant(call, call.kernel.artifact).dry_run(call, {})
