"""Execution of operators: the kernel on torch's tensors, and its gradient.

Outputs and gradients are new tensors. Tensors that kernels cannot address are copied to the CPU and
back.

    outputs = run_operator(spec, (x, 2.0))
    gradients = run_gradient(spec, (x, 2.0), slopes, kept, ("x",), memory)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from vkchi.calls.call import LaunchRequest, describe_call
from vkchi.calls.facts import facts
from vkchi.calls.variant import Variant
from vkchi.errors import GradientError, LostValueError, TensorGradientError
from vkchi.fields.array_versions import lock_writers
from vkchi.fields.storage import Storage
from vkchi.interop.in_place import host_arrays
from vkchi.interop.tensors import new_tensor, new_zeros
from vkchi.interrupts.contexts import restoring
from vkchi.kernel import launch_or_record
from vkchi.launch.compiled_kernel import NOTHING_SHARED, CompiledKernel
from vkchi.operators.description import (
    AnyKernel,
    OperatorSpec,
    SavedForGradient,
    analyse,
    is_real,
    kind_of,
    value_of,
)
from vkchi.operators.field_snapshots import FieldSnapshots, KernelValues, SnapshotTable
from vkchi.operators.operator_signature import (
    Tensors,
    clone_tensor,
    is_tensor,
    move_tensors,
    slope_of,
)
from vkchi.runtime import current_runtime
from vkchi.signature.bound import ImportedArray
from vkchi.tape.call_facts import first_access
from vkchi.tape.custom import is_redefined

if TYPE_CHECKING:
    import torch

    from vkchi.operators.function_operator import RecordedCall, TorchFunction


# --- gradients of users --------------------------------------------------------------------------
#
# Launch of a user's gradient kernel with fields restored to their state in the forward pass.


def run_with_snapshots(
    memory: FieldSnapshots,
    name: str,
    kernel: CompiledKernel,
    args: tuple[Any, ...],
    shared: Sequence[ImportedArray] = NOTHING_SHARED,
) -> None:
    """Launch a gradient kernel on fields as they were in the forward pass.

    Raises TensorGradientError if it may read the old contents of a field that were not saved.
    Raises it also if it may read the old contents of a changed field that it writes. Waits for the
    device if a field has changed.
    """
    with lock_writers(kernel.runtime):
        _run(memory, name, kernel, args, shared)


def _run(
    memory: FieldSnapshots,
    name: str,
    kernel: CompiledKernel,
    args: tuple[Any, ...],
    shared: Sequence[ImportedArray],
) -> None:
    changed = find_changed(memory, name, kernel, args)
    if not changed:
        if kernel.runtime.recording is None:
            kernel.launch_in_place(args, shared)
        else:
            launch_or_record(name, kernel, args)
        return
    call, device = describe_call(name, kernel, args, shared), kernel.runtime.device
    owners = [one.owner for one in shared]
    held = device.heap.hold(owners)
    Variant(call, kernel.artifact).run(call, {**call.arrays, **changed})
    device.wait()
    owners.clear()
    del held


def find_changed(
    memory: FieldSnapshots, name: str, kernel: CompiledKernel, args: tuple[Any, ...]
) -> dict[str, Storage]:
    """Saved contents, by name, of the fields that a kernel reads and that have changed since.
    Raises TensorGradientError as `run_with_snapshots` does."""
    fields, changed = kernel.state(args), {}
    for key in sorted(fields.keys() & facts.arrays_used(kernel)):
        then = memory.find(fields[key])
        is_known = memory.knows(fields[key])
        if is_known and then is fields[key]:
            continue
        if key not in kernel.written and is_known:
            changed[key] = then
        elif not is_redefined(LaunchRequest(name, kernel, args), key):
            raise unreadable_field_error(memory, kernel, key, is_known=is_known)
    return changed


def unreadable_field_error(
    memory: FieldSnapshots, kernel: CompiledKernel, key: str, *, is_known: bool
) -> TensorGradientError:
    span = first_access(kernel, "loads", key)
    if not is_known:
        return memory.unknown(key, span)
    return TensorGradientError(
        f"the gradient of {memory.who}() reads and writes the field `{key}`, which was changed "
        "since the forward pass", span,
        help=f"leave `{key}` as it is between the two, or have the operator return what it holds "
        "as an output",
    )  # fmt: skip


# --- operators -----------------------------------------------------------------------------------


class KernelOperator(OperatorSpec):
    """A kernel as an operator of torch."""

    memories: SnapshotTable[FieldSnapshots | RecordedCall]  # type: ignore[assignment]
    only_once = (
        "it draws numbers, reads or writes other arrays than its arguments, or has a gradient= of "
        "its own"
    )
    second_derivative_help = (
        "for a second derivative pass these arrays as tensors; or make the first a kernel with a "
        "ti.torch_op of its own, and call both from a torch.autograd.Function"
    )

    def run(self, args: Sequence[Any]) -> tuple[list[torch.Tensor], RecordedCall | None]:
        """Run the kernel. A tape records the call if its gradient needs values that are lost
        otherwise: random numbers, results of atomics, old contents of fields."""
        if self.loses_values(args):
            return self.recorder.run(args)
        return self.run_constant(args), None

    def run_constant(self, args: Sequence[Any]) -> list[torch.Tensor]:
        return run_operator(self, args)

    @cached_property
    def recorder(self) -> TorchFunction:
        from vkchi.operators.function_operator import TorchFunction  # slow to import

        return TorchFunction(self.kernel, self.outputs, self.parameters)

    def loses_values(self, args: Sequence[Any]) -> bool:
        """True if `kernel.grad` cannot compute the gradient of such calls.

        Found out by a trial, once per kinds of arguments. If it may depend on sizes and numbers,
        also once per these, until it is true for one call.
        """
        if self.gradient is not None or not all(map(is_real, args)):
            return False

        def find(values: list[KernelValues]) -> SavedForGradient:
            given = self.name_arguments(move_tensors(args, "cpu"))
            given = {k: detach_tensor(self, k, a) for k, a in given.items()}
            given |= self.make(given, partial(new_zeros, current_runtime()))
            self.check_written(self.arrange(given))
            is_lost: bool | None = analyse(
                self.kernel, may_lose_values, self.arrange(given), values
            )
            if is_lost:
                is_lost = try_gradient(self.kernel, self.arrange(given)) or None
            return SavedForGradient(frozenset(), (), is_lost=is_lost)

        kinds = ("lost", *map(kind_of, args))
        found = self._recall(kinds, find)
        if found.is_lost is None:
            one = self._recall(("lost in", *map(value_of, args)), find)
            if one.is_lost:
                self._read[kinds] = one
            return bool(one.is_lost)
        return found.is_lost

    def remember(self, args: Sequence[Any], made: Sequence[torch.Tensor], call: Any) -> None:
        if call is None:
            super().remember(args, made, call)
        else:
            self.memories.add(made[0], call)

    def save(self, ctx: Any, args: Sequence[Any], made: Sequence[Any], call: Any) -> None:
        has_recorded = "recorder" in vars(self)
        if call is not None or (has_recorded and self.loses_values(args)):
            recorded: Any = call if call is not None else self.memories.find(made[0])
            self.recorder.save(ctx, args, made, recorded)
            return
        given, outputs = self.name_arguments(args), dict(zip(self.outputs, made, strict=True))
        needs = self.find_needs(self.arrange({**given, **outputs}))
        ctx.kept = needs.outputs
        kept = [tensor for name, tensor in outputs.items() if name in ctx.kept]
        ctx.save_for_backward(*[given[name] for name in self.tensors], *kept)
        ctx.others = {name: a for name, a in given.items() if name not in self.tensors}
        ctx.memory = self.snapshot(needs)

    def differentiate(
        self, args: Sequence[Any], slopes: Tensors, kept: Tensors, wanted: Collection[str],
        memory: FieldSnapshots | RecordedCall,
    ) -> Tensors:  # fmt: skip
        if not isinstance(memory, FieldSnapshots):
            return self.recorder.differentiate(args, slopes, kept, wanted, memory)
        return run_gradient(self, args, slopes, kept, wanted, memory)

    def second_derivative(
        self, args: Sequence[Any], slopes: Tensors, directions: Tensors,
        memory: FieldSnapshots | RecordedCall,
    ) -> tuple[Tensors, Tensors]:  # fmt: skip
        """As for any operator, for kernels that depend on their arguments alone."""
        is_known = isinstance(memory, FieldSnapshots) and memory.made
        if not is_known or self.gradient is not None or not self.is_pure(args):
            return super().second_derivative(args, slopes, directions, memory)
        assert isinstance(memory, FieldSnapshots)
        memory.check_values()
        return run_second_derivative(self, args, slopes, directions)

    def is_pure(self, args: Sequence[Any]) -> bool:
        """True if calls read and write no arrays but their arguments, and draw no numbers."""

        def find(made: list[KernelValues]) -> SavedForGradient:
            given = self.name_arguments(move_tensors(args, "cpu"))
            given = {k: detach_tensor(self, k, a) for k, a in given.items()}
            given |= self.make(given, partial(new_zeros, current_runtime()))
            is_other = analyse(self.kernel, depends_on_others, self.arrange(given), made)
            return SavedForGradient(frozenset(), (), is_lost=is_other)

        return not self._recall(("pure", *map(kind_of, args)), find).is_lost


def depends_on_others(compiled: CompiledKernel, args: tuple[Any, ...]) -> bool:
    return bool(compiled.draws or compiled.state(args) or not compiled.is_recordable)


def may_lose_values(compiled: CompiledKernel, args: object) -> bool:
    """False if a kernel draws no values, and overwrites no array that it reads."""
    is_drawn = compiled.draws or facts.depends_on_order(compiled)
    return bool(is_drawn or facts.arrays_used(compiled).intersection(compiled.written))


def try_gradient(kernel: AnyKernel, arguments: Sequence[Any]) -> bool:
    """True if the gradient of a call needs values that the call loses."""
    from vkchi.tape.adjoints import CallAdjoints  # rarely used, slow to import
    from vkchi.tape.kernel_grad import fit_gradient

    given = [a.detach() if is_tensor(a) else a for a in arguments]  # whose `.grad` may be set
    for a in given:
        if is_tensor(a) and a.is_floating_point():
            a.grad = a.new_zeros(a.shape)

    def fit(name: str, kernel: CompiledKernel, args: Any, shared: Any = NOTHING_SHARED) -> None:
        call = (
            describe_call(name, kernel, args, shared)
            if shared
            else LaunchRequest(name, kernel, args).call
        )
        fit_gradient(call, CallAdjoints(call))

    try:
        kernel.dispatch(fit, *given)
    except LostValueError:
        return True
    except GradientError:  # raised again in the backward pass
        pass
    return False


def run_operator(spec: OperatorSpec, args: Sequence[Any]) -> list[torch.Tensor]:
    home = find_home(args, is_launch=True)
    if home is not None:
        on_cpu = run_operator(spec, move_tensors(args, "cpu"))
        results: list[torch.Tensor] = move_tensors(on_cpu, home)
        return results
    given = {k: detach_tensor(spec, k, a) for k, a in spec.name_arguments(args).items()}
    runtime = current_runtime()
    made = spec.make(given, partial(new_zeros, runtime))
    arguments = spec.arrange({**given, **made})
    spec.check_written(arguments)
    spec.kernel(*arguments)
    wait_for_device()
    return list(made.values())


def run_gradient(
    spec: OperatorSpec,
    args: Sequence[Any],
    slopes: Tensors,
    kept: Tensors,
    wanted: Collection[str],
    memory: FieldSnapshots,
) -> dict[str, torch.Tensor]:
    """Gradients of the tensors `wanted`, by name, given the gradients of the outputs (`slopes`),
    the saved outputs (`kept`) and the saved fields (`memory`)."""
    home = find_home(args, is_launch=spec.gradient is not None)
    if home is not None:
        args, slopes, kept = (move_tensors(found, "cpu") for found in (args, slopes, kept))
        found = run_gradient(spec, args, slopes, kept, wanted, memory)
        return {name: slope.to(home) for name, slope in found.items()}
    given = {k: detach_tensor(spec, k, a) for k, a in spec.name_arguments(args).items()}
    given |= {name: tensor.detach() for name, tensor in kept.items()}
    differentiate = _run_generated if spec.gradient is None else _run_own
    found = differentiate(spec, given, slopes, wanted, memory)
    wait_for_device()
    return found


def _run_generated(
    spec: OperatorSpec,
    known: dict[str, Any],
    slopes: Tensors,
    wanted: Collection[str],
    memory: FieldSnapshots,
) -> dict[str, torch.Tensor]:
    """Run the generated gradient; return the gradients of the tensors `wanted`, by name.

    Raises TensorGradientError if Python values of the kernel have changed since the forward pass.
    """
    runtime = current_runtime()
    for name, slope in slopes.items():
        if name not in known:
            known[name] = spec.make_one(name, known, partial(new_tensor, runtime))
        known[name].grad = slope.detach()
    for name in wanted:
        known[name] = tensor = known[name].detach()  # a new object, so that its `.grad` may be set
        if tensor.is_floating_point():
            axes = spec.element_axes[name]
            tensor.grad = new_zeros(runtime, tensor, tensor.shape, tensor.dtype, axes)
    from vkchi.tape.kernel_grad import run_gradient as act  # rarely used, slow to import

    memory.check_values()

    def differentiate(
        name: str, kernel: CompiledKernel, args: tuple[Any, ...], *shared: Any
    ) -> None:
        act(name, kernel, memory.with_members(kernel, args), *shared, fields=memory)

    try:
        spec.kernel.dispatch(differentiate, *spec.arrange(known))
    except LostValueError as e:
        names = ", ".join(p.name for p in spec.parameters)
        raise GradientError(
            e.sentence, e.span, notes=e.notes,
            help="make an operator of a Python function, whose calls save it: "
            f"ti.torch_op(lambda {names}: {spec.name}({names}), outputs=...)",
        ) from None  # fmt: skip
    return {name: _slope(known[name]) for name in wanted}


def _run_own(
    spec: OperatorSpec,
    known: dict[str, Any],
    slopes: Tensors,
    wanted: Collection[str],
    memory: FieldSnapshots,
) -> dict[str, torch.Tensor]:
    assert spec.gradient is not None
    found = {name: known[name].new_zeros(known[name].shape) for name in spec.tensors}
    known |= {slope_of(k): v.detach().contiguous() for k, v in slopes.items()}
    known |= {slope_of(k): v for k, v in found.items()}
    arguments = spec.arrange_gradient(known)
    spec.check_gradient_written(arguments)
    if memory.is_needed:
        spec.gradient.dispatch(partial(run_with_snapshots, memory), *arguments)
    else:
        spec.gradient(*arguments)
    return {name: found[name] for name in wanted}


def _slope(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.new_zeros(tensor.shape) if tensor.grad is None else tensor.grad


def run_second_derivative(
    spec: OperatorSpec, args: Sequence[Any], slopes: Tensors, directions: Tensors
) -> tuple[Tensors, Tensors]:
    """Run the kernel along the directions, and its gradient: `OperatorSignature.second_derivative`.
    The arrays are copied to ndarrays and back."""
    from vkchi.operators.function_operator import (  # slow to import
        LOCK,
        describe_output,
        make_array,
        to_ndarray,
        to_numpy,
    )
    from vkchi.tape.arguments import check_alone
    from vkchi.tape.forward import HvpRecording

    runtime, given = current_runtime(), spec.name_arguments(args)
    recorder = HvpRecording(runtime)
    recorder.title = f"the second derivative of {spec.name}()"
    with restoring(LOCK), LOCK:
        check_alone(runtime, recorder.title)
        found: dict[str, Any] = dict(given)
        for name in spec.tensors:
            is_float = given[name].is_floating_point()
            axes = spec.element_axes[name]
            found[name] = to_ndarray(to_numpy(given[name]), axes, needs_grad=is_float)
        types: dict[str, Any] = spec.make(given, describe_output)
        outputs = {
            y: make_array(t.elem, t.shape, spec.element_axes[y], needs_grad=t.elem.kind == "f")
            for y, t in types.items()
        }
        inputs = {x: found[x] for x in spec.tensors if found[x].grad is not None}
        smooth = {y: array for y, array in outputs.items() if array.grad is not None}
        gradients = {y: array.grad for y, array in smooth.items() if array.grad is not None}

        def seed() -> None:
            for y, slope in gradients.items():
                slope.from_numpy(to_numpy(slopes[y]))

        along = {array: to_numpy(directions[x]) for x, array in inputs.items()}
        arguments = spec.arrange({**found, **outputs})
        recorder.differentiate(lambda: spec.kernel(*arguments), along, list(smooth.values()), seed)
        made = {
            **{x: recorder.dual(array.grad) for x, array in inputs.items()},
            **{y: recorder.dual(array) for y, array in smooth.items()},
        }
    like = {**{x: given[x] for x in spec.tensors}, **slopes}
    results = {
        name: made[name].to_torch(one.device) if name in made else one.new_zeros(one.shape)
        for name, one in like.items()
    }
    return {x: results[x] for x in spec.tensors}, {y: results[y] for y in slopes}


def wait_for_device() -> None:
    """Wait for deferred work: other libraries read results immediately, whatever
    `ti.init(host_arrays=...)`."""
    runtime = current_runtime()
    if runtime.deferred:
        runtime.device.wait()


# --- devices -------------------------------------------------------------------------------------


def find_home(args: Sequence[Any], *, is_launch: bool) -> torch.device | None:
    """The device of tensors that must be copied to host memory and back; None if there are none.

    Kernels address CPU tensors directly, and in launches those of a CUDA device that shares memory.
    """
    places = [a.device for a in args if hasattr(a, "untyped_storage") and a.device.type != "cpu"]
    if not places:
        return None
    if is_launch and all(place.type == "cuda" for place in places):
        from vkchi.interop.cuda.link import Link, find_link  # rarely used, slow to import

        if isinstance(find_link(current_runtime()), Link):
            return None
    return places[0]


def detach_tensor(spec: OperatorSpec, name: str, arg: Any) -> Any:
    """A detached tensor, cloned if the kernel cannot use it in place; other arguments unchanged."""
    if not hasattr(arg, "detach"):
        return arg
    held, hosts = arg.detach(), host_arrays(current_runtime())
    if held.device.type != "cpu":
        return held
    axes = spec.element_axes.get(name, 0)
    is_in_place = hosts.can_import and hosts.find(held, axes) is not None
    return held if is_in_place else clone_tensor(held)
