"""Kernels in another form, launched in their place: with derivatives along a direction, watched,
noting who meets, or recording what they draw.

Owns: `Variant`, which does all that a launch of the kernel does besides its dispatches: random
numbers, results in host memory, reports, what is returned; or rehearses a call, on copies of what
it writes. Must not know: tapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.interrupts.locks import restoring
from vkchi.launch.executable import Arrays
from vkchi.signature.bound import find_changed, tell_owners
from vkchi.tape.calls import Call
from vkchi.target.artifact import Artifact
from vkchi.target.shader import REPORTS

if TYPE_CHECKING:
    from vkchi.ir.core import Func


class Variant:
    """A kernel in another form: a Func, or what was built of one."""

    def __init__(self, call: Call, made: Func | Artifact) -> None:
        plan = self.plan = call.plan
        if not isinstance(made, Artifact):
            from vkchi.compiler import build  # 0.1 s

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

    def rehearse(self, call: Call, own: Arrays) -> None:
        """Do the call on copies of what it writes, for what it leaves in arrays of its own, and for
        the checks that fail. Raises DeviceError where there is no memory for that."""
        runtime, plan = self.plan.runtime, self.plan
        with restoring(runtime.lock), runtime.lock:
            written = sorted(self.artifact.writes & plan.written & call.arrays.keys())
            copies = {name: call.arrays[name].copied() for name in written}
            arrays = {**call.arrays, **copies, **own}
            self.run(call._replace(hosts={}), arrays, again=runtime.draws)
