"""Kernels in another form, launched in their place: with derivatives along a direction, watched,
noting who meets, or recording what they draw.

Owns: `Variant`, which does all that a launch of the kernel does besides its dispatches: random
numbers, results in host memory, reports, what is returned; or a dry run of a call, on copies of
what it writes. `ForwardPlan`, that with derivatives. Must not know: tapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.errors import GradientError
from vkchi.interrupts.locks import restoring
from vkchi.ir.names import DUAL
from vkchi.launch.executable import Arrays
from vkchi.signature.bound import find_changed, tell_owners
from vkchi.tape.calls import Call, types_apart
from vkchi.tape.derived import facts
from vkchi.target.artifact import Artifact
from vkchi.target.shader import REPORTS

if TYPE_CHECKING:
    from vkchi.ir.core import Func


class Variant:
    """A kernel in another form: a Func, or what was built of one."""

    func: Func  # if it was given

    def __init__(self, call: Call, made: Func | Artifact) -> None:
        plan = self.plan = call.plan
        if not isinstance(made, Artifact):
            from vkchi.compiler import build  # 0.1 s

            self.func = made
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
                changed = find_changed(call.imports, plan)
                tell_owners(call.imports, changed, plan, is_taped=runtime.is_taped)
            if self.sites:
                runtime.reports.expect()
            self.executable.launch(bound, runtime.seeds(again) if plan.draws else None)
            for name in call.hosts.keys() & plan.written:
                call.arrays[name].copy_to(call.hosts[name])
            if self.sites:
                runtime.reports.deliver(self.sites, is_muted=again is not None)
            return plan.result()

    def dry_run(self, call: Call, own: Arrays) -> None:
        """Do the call on copies of what it writes, for what it leaves in arrays of its own, and for
        the checks that fail. Raises DeviceError where there is no memory for that."""
        runtime, plan = self.plan.runtime, self.plan
        with restoring(runtime.lock), runtime.lock:
            written = sorted(self.artifact.writes & plan.written & call.arrays.keys())
            copies = {name: call.arrays[name].copied() for name in written}
            arrays = {**call.arrays, **copies, **own}
            self.run(call._replace(hosts={}), arrays, again=runtime.draws)


class ForwardPlan(Variant):
    """A kernel with derivatives along the duals of some arrays. Where derivatives are taken of
    other values (`is_apart`), it runs on copies, before the kernel."""

    def __init__(self, call: Call, duals: Arrays) -> None:
        types = tuple(types_apart(call, duals, DUAL).items())
        made = facts.along(call.plan, frozenset(duals), types, call.missing)
        self.is_apart = made.is_apart
        if self.is_apart:
            self._check_repeatable(call)
        super().__init__(call, made.artifact)

    def _check_repeatable(self, call: Call) -> None:
        """Raises GradientError if the kernel does something else the second time."""
        why = "draws random numbers" if call.plan.draws else "depends on the order of iterations"
        if call.plan.draws or facts.depends_on_order(call.plan):
            raise GradientError(
                f"forward mode through singular values or eigenvalues runs {call.name}() twice, "
                f"which {why}", call.plan.func.span,
                help="do that in a kernel of its own, and keep what it gives in a field",
            )  # fmt: skip

    def run_along(self, call: Call, args: tuple[Any, ...], duals: Arrays) -> Any:
        """Do the call; the duals become those of its results. What the kernel returns."""
        own = {k + DUAL: v for k, v in duals.items()}
        if not self.is_apart:
            return self.run(call, {**call.arrays, **own})
        self.dry_run(call, own)
        return call.plan.launch(args)


def plan_forward(call: Call, duals: Arrays, of: str) -> ForwardPlan:
    """The call's forward mode, made once per plan; `of` says whose duals these are. Raises
    GradientError."""
    key = of, frozenset(duals)
    return call.plan.derived.forward.find(key, lambda: ForwardPlan(call, duals))
