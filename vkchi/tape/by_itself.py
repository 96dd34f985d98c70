"""`kernel.grad(...)`: the gradient of a call by itself, with the memory as it is now.

Owns: what of that the kernel itself has overwritten, and what would do nothing. Must not know:
tapes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

from vkchi.analysis.boxes import Box, is_inside, may_meet
from vkchi.autodiff.answers import Differentiated, MarkedOp
from vkchi.errors import GradientError, GradientWarning
from vkchi.fields.keeping import still
from vkchi.fields.storage import Storage
from vkchi.launch import NOTHING_SHARED, Plan
from vkchi.races.finder import RaceFinder
from vkchi.races.finder import check as check_race
from vkchi.signature.bound import Import
from vkchi.span import Span
from vkchi.tape.calls import (
    Call,
    Given,
    Gradients,
    check_numbers,
    count_once,
    describe_call,
    plan_gradient,
)
from vkchi.tape.derived import facts
from vkchi.tape.plan import GradientPlan
from vkchi.tuples import NamedTuple


class Found(NamedTuple):
    """The gradient that fits the memory as it is now, what it reads of that, and the arrays of
    which it reads only what it has put there itself."""

    plan: GradientPlan
    needs: dict[str, Box]
    redefined: set[str]


def fit_gradient(call: Call, gradients: Gradients) -> Found:
    """The call's gradient, with the memory as the kernel left it. Raises GradientError if it needs
    something that the kernel has overwritten."""
    made = plan_gradient(call, gradients)
    if not made.made.stores:
        facts.check_reached(call.plan, made.spec, call.constants)
    check_slopes(call, made.made)
    if made.draws:  # only a tape records them
        from vkchi.autodiff.refusals import gone  # which reads IR

        raise gone(made.draws[0].op)
    needs, writes = made.needs(call), made.writes(call)
    both = {k: writes[k] for k in needs if k in writes and may_meet(needs[k], writes[k])}
    if not both:
        return Found(made, needs, set())
    from vkchi.tape.staleness import find_stale

    invariant = facts.invariant(call.plan, made.spec, frozenset(both), frozenset(call.arrays))
    if invariant is None:
        name = min(both)
        first = made.live.writes.accesses[name].elements[0]
        raise overwritten(call, made, MarkedOp(first.kind, name, first.span))
    stale = find_stale(call, made.spec, both, invariant)
    if stale is not None:
        raise overwritten(call, made, stale)
    if invariant:
        made = plan_gradient(call, gradients, invariant)
        needs = made.needs(call)
    reads = facts.touched(call.plan, "loads", call.case)
    again = reads.keys() & both.keys() - invariant
    redefined = {k for k in again if is_inside(reads[k], both[k])}
    return Found(made, needs | {k: reads[k] for k in again & needs.keys()}, redefined)


def check_slopes(call: Call, made: Differentiated) -> None:
    """What says that a gradient does nothing, for no result has one: an error where one is a host
    array, else a warning, as other kernels of a list may have results with gradients."""
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
        warnings.warn_explicit(
            text, GradientWarning, span.file, span.line, registry=call.plan.derived.warned
        )


def overwritten(call: Call, made: GradientPlan, op: MarkedOp) -> GradientError:
    """The error for a gradient that needs what is gone; `op` is what the kernel did with it."""
    what = "the kernel reads it here" if op.kind == "load" else "the kernel changes it here"
    return GradientError(
        f"the gradient of {call.name}() needs what `{op.array}` held before the kernel overwrote "
        "it",
        made.live.writes.span_of(op.array), notes=((what, op.span),),
        help="call the kernel inside `with ti.ad.Tape(...)`, which keeps it",
    )  # fmt: skip


class Memory(Protocol):
    """Fields as a call left them."""

    def find(self, array: Storage) -> Storage:
        """What holds that of a field; the field itself where that is not known."""

    def check(self, name: str, array: Storage, span_of: Callable[[str], Span | None]) -> None:
        """Raises GradientError for a field, read at that span, of which it is not known."""


class AsTheyAre:
    """The memory of a call whose gradient finds fields as they are now."""

    def find(self, array: Storage) -> Storage:
        """The field itself."""
        return array

    def check(self, name: str, array: Storage, span_of: Callable[[str], Span | None]) -> None:
        """All is known."""


NOW = AsTheyAre()


def run_gradient(
    name: str,
    plan: Plan,
    args: tuple[Any, ...],
    shared: Sequence[Import] = NOTHING_SHARED,
    *,
    fields: Memory = NOW,
) -> None:
    """`kernel.grad(...)`: the gradient of a call, with the memory as it is now, but for `fields`
    that were kept; `shared` arguments are used in place. Waits, if there are any, or tensors.

    Raises GradientError where it needs what the kernel itself overwrites, and where it would do
    nothing for want of gradients.
    """
    check_numbers(name, plan, args)
    call = describe_call(name, plan, args, shared) if shared else Given(name, plan, args).call
    gradients = Gradients(call)
    call = with_fields(call, fields)
    made, needs, redefined = fit_gradient(call, gradients)
    for key, array in plan.fields(args).items():
        if key in needs:
            fields.check(key, array, made.span_of)
    history = getattr(plan.runtime.tape, "mutation_log", None)
    if history is not None and history.since is not None:
        memory = {**call.arrays, **call.hosts}
        history.check_all(made.span_of, needs, memory, redefined.__contains__)
    memory = {k: a.copied() if k in needs and a.is_gradient else a for k, a in call.arrays.items()}
    race = RaceFinder(has_run=True).look(call, gradients.names, made.spec)
    gradients.fetch()
    check_race(race, gradients.arrays)
    check_depth(call)
    device = plan.runtime.device
    owners = [*(one.owner for one in shared), *gradients.owners]
    held = device.heap.hold(owners)
    with still(plan.runtime) if fields is not NOW else nullcontext():
        # once more: another thread may have written since
        kept = {k: fields.find(array) for k, array in plan.fields(args).items()}
        memory = {**memory, **{k: a for k, a in kept.items() if not a.is_gradient}}
        made.launch(call.args, memory, gradients.arrays, call.repeated)
    if shared:
        device.wait()
        owners.clear()
    del held
    gradients.bring_back()
    count_once(call)
    recording = plan.runtime.tape
    if recording is not None and recording.kind != "record":
        recording.note_gradient(call, gradients, needs)


def with_fields(call: Call, memory: Memory) -> Call:
    """The call with fields as they were."""
    fields = {k: memory.find(array) for k, array in call.plan.fields(call.args).items()}
    return call._replace(arrays={**call.arrays, **fields})


def check_depth(call: Call) -> None:
    """Raises KernelAssertionError where a real function of the call goes too deep: values are
    missing there, which only the kernel itself says, not its gradient."""
    if any(site.kind == "depth" for site in call.plan.sites.values()):
        from vkchi.tape.variants import Variant  # which few kernels need

        Variant(call, call.plan.executable.artifact).dry_run(call, {})
