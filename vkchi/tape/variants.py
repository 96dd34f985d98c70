"""Kernels in another form, launched in their place: with derivatives along a direction, watched,
noting who meets, or recording what they draw.

Owns: `Variant`, which does all that a launch of the kernel does besides its dispatches: random
numbers, results in host memory, reports, what is returned; or rehearses a call, on copies of what
it writes; `ForwardPlan`; `ReplayLog`, for calls whose gradient needs what they drew, made once per
gradient. Must not know: tapes.
"""

from __future__ import annotations

from typing import Any

from vkchi.analysis.host_numbers import host_number
from vkchi.analysis.loop_bounds import sums_under
from vkchi.autodiff.reaching import Outflows
from vkchi.autodiff.refusals import depends_on_order, gone
from vkchi.autodiff.replay import record_draws
from vkchi.compiler import build
from vkchi.errors import GradientError
from vkchi.fields.storage import Storage
from vkchi.interrupts.locks import restoring
from vkchi.ir.core import Func
from vkchi.ir.intervals import type_range
from vkchi.ir.names import DUAL
from vkchi.launch.executable import Arrays, count_reader
from vkchi.signature.bound import tell_owners
from vkchi.tape.calls import Call, types_apart
from vkchi.tape.escapes import missing_dual
from vkchi.tape.gradients import build_forward, put_in_place
from vkchi.tape.plan import GradientPlan, Room, new_buffer
from vkchi.target.artifact import Artifact
from vkchi.target.shader import REPORTS, compile_count
from vkchi.types import Array, Scalar


class Variant:
    """A kernel in another form: a Func, or what was built of one."""

    def __init__(self, call: Call, made: Func | Artifact) -> None:
        plan = self.plan = call.plan
        if isinstance(made, Func):
            made = build(made, plan.runtime.options, plan.runtime.device.caps)
        self.artifact, self.sites = made, made.sites_among(plan.known_sites)
        fixed = {REPORTS: plan.runtime.reports} if self.sites else {}
        self.executable = plan.executable.derive(made, call.args, fixed)

    def run(self, call: Call, arrays: Arrays, again: int | None = None) -> Any:
        """Do the call, on these arrays by name; what the kernel returns. `again` as in
        `Plan.launch`."""
        runtime, plan = self.plan.runtime, self.plan
        with restoring(runtime.lock), runtime.lock:
            bound = self.executable.bind(call.args, arrays)
            if call.hosts:
                tell_owners(call.imports, plan, is_taped=runtime.is_taped)
            if self.sites:
                runtime.reports.expect()
            self.executable.launch(bound, runtime.seeds(again) if plan.draws else None)
            for name in call.hosts.keys() & plan.written:
                call.arrays[name].copy_to(call.hosts[name])
            if self.sites:
                runtime.reports.deliver(self.sites, is_muted=again is not None)
            return plan.result()

    def rehearse(self, call: Call, own: Arrays) -> None:
        """Do the call on copies of what it writes, for what it leaves in arrays of its own, and for
        the checks that fail. Raises DeviceError where there is no memory for that."""
        runtime, plan = self.plan.runtime, self.plan
        with restoring(runtime.lock), runtime.lock:
            written = sorted(self.artifact.writes & plan.written & call.arrays.keys())
            copies = {name: call.arrays[name].copied() for name in written}
            arrays = {**call.arrays, **copies, **own}
            self.run(call._replace(hosts={}), arrays, again=runtime.draws)


class ForwardPlan:
    """A kernel with derivatives along the duals of some arrays. Where
    derivatives are taken of other values (`is_apart`), it runs on copies, before the kernel."""

    def __init__(self, call: Call, duals: Arrays) -> None:
        plan, differentiable = call.plan, frozenset(duals)
        runtime, types = plan.runtime, types_apart(call, duals, DUAL)
        artifact = build_forward(
            plan.func, differentiable, types, runtime.options, runtime.device.caps
        )
        self.is_apart = put_in_place(plan.func, differentiable) is not plan.func
        if self.is_apart:
            self._check_repeatable(call)
        self.variant = Variant(call, artifact)
        self.outflows = Outflows(plan.func, differentiable)

    def _check_repeatable(self, call: Call) -> None:
        """Raises GradientError if the kernel does something else the second time."""
        func = call.plan.func
        why = "draws random numbers" if call.plan.draws else "depends on the order of iterations"
        if call.plan.draws or depends_on_order(func):
            raise GradientError(
                f"forward mode through singular values or eigenvalues runs {call.name}() twice, "
                f"which {why}", func.span,
                help="do that in a kernel of its own, and keep what it gives in a field",
            )  # fmt: skip

    def run(self, call: Call, args: tuple[Any, ...], duals: Arrays) -> Any:
        """Do the call; the duals become those of its results. What the kernel returns."""
        own = {k + DUAL: v for k, v in duals.items()}
        if not self.is_apart:
            return self.variant.run(call, {**call.arrays, **own})
        self.variant.rehearse(call, own)
        return call.plan.launch(args)


def plan_forward(call: Call, duals: Arrays, of: str) -> ForwardPlan:
    """The call's forward mode, made once per plan; `of` says whose duals these are. Raises
    GradientError."""
    names = frozenset(duals)

    def make() -> ForwardPlan:
        missing_dual(call, names)
        return ForwardPlan(call, duals)

    return call.plan.derived.forward.find((of, names), make)


class ReplayLog:
    """A kernel that records what its gradient needs (`replayed`)."""

    def __init__(self, call: Call, made: GradientPlan) -> None:
        plan = call.plan
        fn = self.func = record_draws(plan.func, made.draws)
        self.variant = Variant(call, fn)
        places = self.variant.executable.places
        self.rooms = [Room(d.save, plan.func, places) for d in made.draws]
        read = count_reader(places)
        self.sums = [
            (draw.op, type_range(v.type), compile_count(number.expr, read))
            for draw in made.draws for loop in draw.save.loops for v in sums_under(loop)
            if isinstance(v.type, Scalar) and (number := host_number(v)) is not None
        ]  # fmt: skip

    def make_room(self, call: Call) -> dict[str, Storage]:
        """Memory for what a call draws. Raises DeviceError if that is too much, GradientError if
        it is not known how much."""
        flat = self.variant.executable.bind(call.args, call.arrays).flat
        for op, (least, most), value in self.sums:
            if not least <= value(flat) <= most:
                raise gone(op)
        made = {}
        for room in self.rooms:
            t = room.save.param.type
            assert isinstance(t, Array)
            name, shape = room.save.param.name, room.shape(flat)
            made[name] = new_buffer(call.plan.runtime, t, shape, call.name)
        return made


def replay_log_of(call: Call, made: GradientPlan) -> ReplayLog | None:
    """The call's drawing; None if its gradient needs nothing."""
    if made.draws and made.replay_log is None:
        made.replay_log = ReplayLog(call, made)
    assert made.replay_log is None or isinstance(made.replay_log, ReplayLog)
    return made.replay_log
