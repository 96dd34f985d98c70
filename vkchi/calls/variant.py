"""Variants: transformed kernels that run in place of the kernel.

Examples are kernels with tangents, with access checks, with race detection, or with a replay log. A
`Variant` has the effects of a launch: dispatches, random numbers, results in host memory, reports,
the return value. A dry run executes a call on copies of the arrays it writes. `ForwardPlan` is the
variant with tangents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.calls.call import KernelCall, types_apart
from vkchi.calls.facts import facts
from vkchi.errors import GradientError
from vkchi.interrupts.contexts import restoring
from vkchi.ir.core import DUAL
from vkchi.launch.executable import Arrays
from vkchi.signature.bound import notify_torch, written_imports
from vkchi.target.artifact import Artifact
from vkchi.target.shader import REPORTS

if TYPE_CHECKING:
    from vkchi.ir.core import Func


class Variant:
    """A transformed kernel, given as a Func or as an Artifact."""

    func: Func  # set if built from a Func

    def __init__(self, call: KernelCall, made: Func | Artifact) -> None:
        kernel = self.kernel = call.kernel
        if not isinstance(made, Artifact):
            from vkchi.compiler import build_artifact  # import takes 0.1 s

            self.func = made
            made = build_artifact(made, kernel.runtime.options, kernel.runtime.device.caps)
        self.artifact, self.sites = made, made.sites_among(kernel.known_sites)
        fixed = {REPORTS: kernel.runtime.reports} if self.sites else {}
        self.executable = kernel.derive(made, call.args, fixed)

    def run(self, call: KernelCall, arrays: Arrays, again: int | None = None) -> Any:
        """Run the call on these arrays, by name, and return the kernel's result.

        Writes to host arrays are copied back. With `again`, the call repeats an earlier one: it
        draws the same random numbers, and neither prints nor warns. Failed checks of the kernel
        raise.
        """
        runtime, kernel = self.kernel.runtime, self.kernel
        with restoring(runtime.lock), runtime.lock:
            bound = self.executable.bind(call.args, arrays)
            if call.hosts:
                changed = written_imports(call.imports, kernel)
                notify_torch(call.imports, changed, kernel, is_taped=runtime.is_taped)
            if self.sites:
                runtime.reports.expect()
            self.executable.record(bound, runtime.seeds(again) if kernel.draws else None)
            for name in call.hosts.keys() & kernel.written:
                call.arrays[name].copy_to(call.hosts[name])
            if self.sites:
                runtime.reports.deliver(self.sites, is_muted=again is not None)
            return kernel.result()

    def dry_run(self, call: KernelCall, own: Arrays) -> None:
        """Run the call on copies of the arrays it writes. Raises DeviceError if memory is short.

        Only the arrays in `own` keep results. Failing checks of the kernel raise as usual.
        """
        runtime, kernel = self.kernel.runtime, self.kernel
        with restoring(runtime.lock), runtime.lock:
            written = sorted(self.artifact.writes & kernel.written & call.arrays.keys())
            copies = {name: call.arrays[name].copied() for name in written}
            arrays = {**call.arrays, **copies, **own}
            self.run(call._replace(hosts={}), arrays, again=runtime.draws)


class ForwardPlan(Variant):
    """A kernel in forward mode.

    If its ordinary results are only approximate (`is_apart`), it runs on copies, before the kernel.
    """

    def __init__(self, call: KernelCall, duals: Arrays) -> None:
        types = tuple(types_apart(call, duals, DUAL).items())
        made = facts.along(call.kernel, frozenset(duals), types, call.missing)
        self.is_apart = made.is_apart
        if self.is_apart:
            self._check_repeatable(call)
        super().__init__(call, made.artifact)

    def _check_repeatable(self, call: KernelCall) -> None:
        why = "draws random numbers" if call.kernel.draws else "depends on the order of iterations"
        if call.kernel.draws or facts.depends_on_order(call.kernel):
            raise GradientError(
                f"forward mode through singular values or eigenvalues runs {call.name}() twice, "
                f"which {why}", call.kernel.func.span,
                help="do that in a kernel of its own, and keep what it gives in a field",
            )  # fmt: skip

    def run_along(self, call: KernelCall, args: tuple[Any, ...], duals: Arrays) -> Any:
        own = {k + DUAL: v for k, v in duals.items()}
        if not self.is_apart:
            return self.run(call, {**call.arrays, **own})
        self.dry_run(call, own)
        return call.kernel.launch(args)


def plan_forward(call: KernelCall, duals: Arrays, of: str) -> ForwardPlan:
    """The forward mode of a call, memoized per kernel, set of arrays with duals, and recording
    title `of`.

    Raises GradientError.
    """
    key = of, frozenset(duals)
    return call.kernel.derived.find("forward", key, lambda: ForwardPlan(call, duals))
