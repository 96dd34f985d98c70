"""Variants: transformed kernels that run in place of the kernel.

Examples are kernels with tangents, with access checks, with race detection, or with a replay log. A
`Variant` has the effects of a launch: dispatches, random numbers, results in host memory, reports,
the return value. A dry run executes a call on copies of the arrays it writes. `ForwardPlan` is the
variant with tangents. `find_stale` and `find_stored` are dry runs that decide whether rerunning a
kernel gives other values (`autodiff.instrument`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from vkchi.analysis.memory.boxes import Box
from vkchi.autodiff.results import GradientSpec, MarkedOp
from vkchi.calls.call import KernelCall, types_apart
from vkchi.calls.facts import facts
from vkchi.errors import GradientError
from vkchi.fields.storage import Storage
from vkchi.interrupts.contexts import restoring
from vkchi.ir.core import DUAL, NOTED
from vkchi.launch.executable import Arrays
from vkchi.signature.bound import notify_torch, written_imports
from vkchi.target.artifact import Artifact
from vkchi.target.shader import REPORTS
from vkchi.types import Array, i32, shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.ir.core import Func

NOTHING_KNOWN: Mapping[str, Storage] = MappingProxyType({})


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


# --- reruns on copies -----------------------------------------------------------------------------


def find_stale(
    call: KernelCall,
    spec: GradientSpec | None,
    written: Mapping[str, Box],
    invariant: frozenset[str],
    stored: Mapping[str, Storage] = NOTHING_KNOWN,
) -> MarkedOp | None:
    """Return an access after which rerunning the kernel may give other values, or None.

    `written` are the parts of arrays that it may overwrite. All must be redefined, except for those
    in `invariant` (`autodiff.instrument`). In the arrays in `stored`, it overwrites only elements
    marked there. With a `spec`, the kernel is the simplified one that its gradient is built from.
    Runs on copies; waits for the device.
    """
    kernel, names = call.kernel, frozenset(written)
    made = facts.marked(kernel, spec, names, invariant)
    key = spec, names, invariant
    variant = kernel.derived.find("marked", key, lambda: Variant(call, made.artifact))
    noted = Storage(kernel.runtime, i32, (max(1, len(made.ops)),))
    own = {shadow: start_marks(call.arrays[name], t, None if name in invariant else written[name])
           for name, (shadow, t) in made.shadows.items()}  # fmt: skip
    for name, marks in stored.items():
        own[made.shadows[name][0]].from_numpy(1 - marks.to_numpy())
    variant.dry_run(call, {**own, NOTED: noted})
    return next((op for op, is_stale in zip(made.ops, noted.to_numpy()) if is_stale), None)


def find_stored(call: KernelCall, names: frozenset[str]) -> dict[str, Storage]:
    """Return the marks of the elements that a call stored, for those of the arrays `names` of which
    a rerun stores the same elements (`questions.fixed_stores`). Runs on copies."""
    wholes = [id(array.whole) for array in call.arrays.values()]
    names &= facts.fixed_stores(call.kernel)
    if not names or len(set(wholes)) < len(wholes):
        return {}
    none: frozenset[str] = frozenset()
    made = facts.marked(call.kernel, None, names, none)
    variant = call.kernel.derived.find(
        "marked", (None, names, none), lambda: Variant(call, made.artifact)
    )
    own = {name: start_marks(call.arrays[name], t, None) for name, (_, t) in made.shadows.items()}
    noted = Storage(call.kernel.runtime, i32, (max(1, len(made.ops)),))
    shadows = {shadow: own[name] for name, (shadow, _) in made.shadows.items()}
    variant.dry_run(call, {**shadows, NOTED: noted})
    return own


def start_marks(array: Storage, t: Array, box: Box | None) -> Storage:
    """Initial marks of an array: 0 inside the box and 1 (stored) outside; without a box all 0."""
    made = Storage(array.runtime, t.elem, array.shape, t.layout)
    if box is None:
        return made
    origin = array.layout.origin or (0,) * len(array.shape)
    part = [slice(None) if r is None else slice(max(0, r[0] - o), max(0, r[1] + 1 - o))
            for r, o in zip(box, origin)]  # fmt: skip
    values = np.ones(array.shape + shape_of(t.elem), np.int32)
    values[tuple(part)] = 0
    made.from_numpy(values)
    return made
