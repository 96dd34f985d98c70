"""Python functions that call kernels, as operators of torch and JAX.

The function gets an ndarray for each array argument and output. A call that may be differentiated
runs in a tape without loss. The tape saves all contents that gradients read, so other calls and
writes between a call and its gradient do not change the gradient.

    function = FunctionSpec(step, {"y": "x"})
    arrays, call = function.record({"x": values, "n": 3}, types, ("x",))
    call.gradients({"y": cotangent})      # {"x": ...}
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any

from vkchi.errors import (
    ArgumentError,
    DeclarationError,
    GradientError,
    KernelRuntimeError,
    TensorGradientError,
)
from vkchi.fields.elements import serials
from vkchi.fields.storage import Storage
from vkchi.interop import host_views
from vkchi.interop.torch_library import is_going_backward, is_recorded, plain_tensors
from vkchi.interrupts.contexts import restoring
from vkchi.interrupts.local import local
from vkchi.lang.matrix import Vector
from vkchi.ndarray import Ndarray, ndarray
from vkchi.operators.field_snapshots import SnapshotTable
from vkchi.operators.operator_signature import (
    OperatorSignature,
    Rule,
    clone_tensor,
    is_tensor,
    move_tensors,
)
from vkchi.runtime import current_runtime
from vkchi.signature import (
    ArrayParameter,
    MissingAnnotation,
    Parameter,
    ScalarParameter,
    TensorParameter,
    parameter_of,
    resolve_annotation,
)
from vkchi.tape import queries
from vkchi.tape.arguments import check_alone
from vkchi.tape.ledger import input_at
from vkchi.tape.tape import Tape
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, i32
from vkchi.types import ndarray as ndarray_annotation

if TYPE_CHECKING:
    import inspect

    import torch

    from vkchi.calls.call import Values

RECORDED = "vkchi_recorded"  # last argument for torch: bits of the tensors that require a gradient
LOCK = RLock()  # one function records at a time: tapes record the kernels of all threads


class OutputType(NamedTuple):
    """Type of an output, and torch's device; `shape` includes the axes of elements."""

    elem: Scalar
    shape: Sequence[int]
    device: Any = None


class FunctionSpec(OperatorSignature):
    """A Python function that calls kernels, as an operator. `hidden` are parameters behind those of
    the function."""

    hidden: tuple[Parameter, ...] = ()

    def __init__(
        self, function: Callable[..., object], outputs: Mapping[str, Rule],
        parameters: Sequence[Parameter] | None = None,
    ) -> None:  # fmt: skip
        name = getattr(function, "__name__", type(function).__name__)
        if parameters is None:
            parameters = read_function_parameters(name, function)
        shown = name if name.isidentifier() else "function"
        super().__init__(shown, (*parameters, *self.hidden), outputs)
        self.function, self.taken = function, tuple(parameters)

    def record(
        self, given: Mapping[str, Any], types: Mapping[str, OutputType], wanted: Collection[str]
    ) -> tuple[dict[str, Ndarray], RecordedCall | None]:
        """Call the function with numpy arrays and numbers, and record it if gradients of some
        inputs are `wanted`.

        Return the outputs and, if recorded, the call. Raises GradientError if a gradient would be
        wrong.
        """
        with restoring(LOCK), LOCK:
            check_no_recording(self.name)
            since = next(serials)
            arrays = {
                name: make_array(
                    t.elem, t.shape, self.element_axes[name], needs_grad=t.elem.kind == "f"
                )
                for name, t in types.items()
            }
            found = {**self._convert(given, wanted), **arrays}
            args = [found[p.name] for p in self.taken]
            if wanted:
                inputs = {name: found[name] for name in wanted}
                result, call = self._record(self.make_tape(since), args, inputs, arrays)
            else:
                result, call = self.function(*args), None
        if result is not None:
            raise DeclarationError(
                f"{self.name}() returned {host_views.short_repr(result)}: the results of an "
                "operator are the arrays in outputs=, which the function gets as arguments\n"
                "help: store the results in them, and return nothing"
            )
        return arrays, call

    def _convert(self, given: Mapping[str, Any], wanted: Collection[str]) -> dict[str, Any]:
        """The arguments of the function, by name: ndarrays for arrays, vectors for lists."""
        found = dict(given)
        for p in self.inputs:
            if isinstance(p, ArrayParameter):
                axes, is_wanted = p.element_axes, p.name in wanted
                found[p.name] = to_ndarray(given[p.name], axes, needs_grad=is_wanted)
            elif isinstance(p, TensorParameter):
                found[p.name] = Vector(list(given[p.name]))
        return found

    def make_tape(self, since: int) -> Tape:
        """A tape for a call that makes arrays with serials after `since`."""
        return Tape(clear_gradients=False)

    def _record(
        self, tape: Tape, args: Sequence[Any], inputs: Mapping[str, Ndarray],
        outputs: Mapping[str, Ndarray],
    ) -> tuple[object, RecordedCall]:  # fmt: skip
        with tape:
            for name, x in inputs.items():
                tape.ledger.define(x, input_at(name, f"{self.name}()", (), None))
            for y in outputs.values():
                tape.ledger.open(y)  # writes from Python count
            result = self.function(*args)
        made = {name: y for name, y in outputs.items() if self._is_result(tape, name, y)}
        return result, RecordedCall(self.name, tape, inputs, made)

    def _is_result(self, tape: Tape, name: str, y: Ndarray) -> bool:
        """True if recorded kernels wrote an output, False for an output of zeros or integers.

        Raises GradientError for other outputs.
        """
        if y.grad is None:
            return False
        queries.check_output(tape.ledger, y, f"the output `{name}` of {self.name}()")
        if queries.is_result(tape.ledger, y):
            return True
        if tape.ledger.open(y).history.version:
            raise GradientError(
                f"the output `{name}` of {self.name}() was written by Python alone: it has no "
                "derivative",
                help=f"write to `{name}` in a kernel, or call the operator with torch.no_grad()",
            )
        return False


class RecordedCall:
    """A call that a tape recorded, with its inputs and those outputs that kernels wrote.

    `is_repetition`: torch repeats an earlier call in a backward pass, and the results may differ.
    """

    is_repetition = False

    def __init__(
        self, who: str, tape: Tape, inputs: Mapping[str, Ndarray], outputs: Mapping[str, Ndarray]
    ) -> None:
        self.who, self.tape, self.inputs, self.outputs = who, tape, inputs, outputs

    def gradients(self, cotangents: Mapping[str, Values]) -> dict[str, Values]:
        """Gradients of the inputs, from cotangents of the outputs.

        Adds to the gradients of other arrays that the function read. Raises the errors of
        `Tape.backward`.
        """
        runtime = self.tape.runtime
        if runtime.device.closed:
            raise KernelRuntimeError(
                f"the gradient of {self.who}() is gone: ti.init() or ti.reset() was called since"
            )
        with restoring(LOCK), LOCK:
            check_alone(runtime, f"the gradient of {self.who}()")
            slopes = [x.grad for x in self.inputs.values() if x.grad is not None]
            for slope in slopes:
                slope.fill(0)
            given = {y: cotangents[name] for name, y in self.outputs.items()}
            if given:
                self.tape.backward(given)
            return dict(zip(self.inputs, [slope.to_numpy() for slope in slopes], strict=True))


def check_function(who: str, function: object) -> None:
    """Raise DeclarationError for an object that is no Python function of the user."""
    is_function = callable(function) and not isinstance(function, type)
    if not is_function or getattr(function, "__vkchi_kind__", None) not in (None, "recorded"):
        raise DeclarationError(f"{who} takes a ti.kernel or a Python function, not {function!r}")


def check_no_recording(who: str) -> None:
    """Raise KernelRuntimeError if a tape or `ti.record` would record the kernels of a call.

    The arrays of torch would be constants for a tape, and no part of a graph.
    """
    recording = current_runtime().tape
    if recording is None or (recording.kind != "record" and recording.is_paused):
        return
    title = "ti.record" if recording.kind == "record" else recording.title
    raise KernelRuntimeError(
        f"the operator {who}() cannot be used inside {title}\n"
        "help: call the Python function itself, with fields and ndarrays"
    )


def make_array(
    elem: Scalar, shape: Sequence[int], element_axes: int, *, needs_grad: bool
) -> Ndarray:
    """An ndarray of zeros, with a gradient of zeros if it needs one. The last axes are those of the
    elements."""
    if 0 in shape:
        raise ArgumentError(
            f"an array of shape {tuple(shape)}: operators of Python functions, recorded calls and "
            "second derivatives take no empty arrays"
        )
    split = len(shape) - element_axes
    dtype: Any = Tensor.of(elem, tuple(shape[split:])) if element_axes else elem
    made: Ndarray = ndarray(dtype, tuple(shape[:split]), needs_grad=needs_grad)
    return made


def to_ndarray(values: Any, element_axes: int, *, needs_grad: bool) -> Ndarray:
    """An ndarray with the values of a numpy array, made by `make_array`."""
    elem = host_views.to_taichi_type(values.dtype)
    made = make_array(elem, values.shape, element_axes, needs_grad=needs_grad)
    made.from_numpy(values)
    return made


# --- torch ---------------------------------------------------------------------------------------


class TorchFunction(FunctionSpec):
    """A Python function as an operator of torch.

    Its last input is an integer that says which gradients to record (`RECORDED`): where torch
    executes the call, gradients are disabled.
    """

    hidden = (ScalarParameter(RECORDED, i32),)
    default = "=-1"  # of the last input: calls by other names record all gradients
    only_once = "its gradient is that of a recorded call"
    second_derivative_help = "compute products with the Hessian by ti.ad.hvp, outside torch"

    def __init__(
        self, function: Callable[..., object], outputs: Mapping[str, Rule],
        parameters: Sequence[Parameter] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(function, outputs, parameters)
        self.is_changing = parameters is not None  # a kernel is recorded only if repetitions differ
        self.memories: SnapshotTable[RecordedCall] = SnapshotTable()

    def name_arguments(self, args: Sequence[Any]) -> dict[str, Any]:
        is_short = len(args) < len(self.names)  # torch omits defaults
        return super().name_arguments((*args, -1) if is_short else args)

    def complete(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of a call with `RECORDED`, in place of the one that a batch rule passes on."""
        count = len(self.names) - 1
        args, bits = args[:count], 0
        if is_recorded()():
            for k, name in enumerate(self.names[:count]):
                arg = args[k] if k < len(args) else kwargs.get(name)
                if name in self.tensors and getattr(arg, "requires_grad", False):
                    bits |= 1 << k
        if len(args) == count and not kwargs:
            return (*args, bits), {}
        return args, {**kwargs, RECORDED: bits}

    def run(self, args: Sequence[Any]) -> tuple[list[torch.Tensor], RecordedCall | None]:
        given = self.name_arguments(args)
        bits = given.pop(RECORDED)
        types: dict[str, Any] = self.make(given, describe_output)
        wanted = [
            name for k, name in enumerate(self.names)
            if bits >> k & 1 and name in self.tensors and given[name].is_floating_point()
        ]  # fmt: skip
        host = {k: to_numpy(a) if is_tensor(a) else a for k, a in given.items()}
        runtime = current_runtime()
        draws = runtime.draws
        arrays, call = self.record(host, types, wanted)
        if call is not None and (self.is_changing or runtime.draws != draws):
            call.is_repetition = is_going_backward()()
        return [array.to_torch(types[name].device) for name, array in arrays.items()], call

    def remember(
        self, args: Sequence[Any], made: Sequence[torch.Tensor], call: RecordedCall | None
    ) -> None:
        if call is not None:
            self.memories.add(made[0], call)

    def find_memory(self, result: torch.Tensor | None) -> RecordedCall | None:
        return self.memories.find(result)

    def save(
        self, ctx: Any, args: Sequence[Any], made: Sequence[Any], call: RecordedCall | None
    ) -> None:
        given = self.name_arguments(args)
        is_traced = any(is_tensor(a) and type(a) not in plain_tensors() for a in args)
        ctx.kept = frozenset([next(iter(self.outputs))] if is_traced else ())
        ctx.save_for_backward(*[given[name] for name in self.tensors], *made[: len(ctx.kept)])
        ctx.others = {name: a for name, a in given.items() if name not in self.tensors}
        ctx.memory = call if call is not None or is_traced else self.memories.find(made[0])

    def differentiate(
        self, args: Sequence[Any], slopes: Mapping[str, torch.Tensor],
        kept: Mapping[str, torch.Tensor], wanted: Collection[str], memory: RecordedCall | None,
    ) -> dict[str, torch.Tensor]:  # fmt: skip
        """Gradients of the tensors `wanted`. Raises TensorGradientError if the call was not
        recorded, or its result was copied since."""
        if memory is None:
            raise TensorGradientError(
                f"what the gradient of {self.name}() needs is gone: its result was copied, or the "
                "call was made without gradients",
                help="call the operator itself, not torch.ops, and keep its result as it is",
            )
        if memory.is_repetition:
            raise TensorGradientError(
                f"{self.name}() was called again in a backward pass, with other random numbers or "
                "fields than in the forward pass",
                help="call torch.utils.checkpoint.checkpoint(..., use_reentrant=False)",
            )
        given = self.name_arguments(args)
        found = memory.gradients({name: to_numpy(slope) for name, slope in slopes.items()})
        return {
            name: host_views.make_torch(found[name], given[name].device).to(given[name].dtype)
            if name in found
            else given[name].new_zeros(given[name].shape)
            for name in wanted
        }


def describe_output(
    like: torch.Tensor, shape: Sequence[int], dtype: torch.dtype, axes: int
) -> OutputType:
    return OutputType(host_views.to_taichi_type(dtype), tuple(map(int, shape)), like.device)


def to_numpy(tensor: torch.Tensor) -> Values:
    return host_views.array_of_torch(move_tensors(clone_tensor(tensor.detach()), "cpu"))


# --- parameters ----------------------------------------------------------------------------------


def read_function_parameters(who: str, function: Callable[..., object]) -> list[Parameter]:
    """Parameters of a Python function.

    Parameters without annotation are arrays. Raises DeclarationError for parameters that operators
    do not support.
    """
    import inspect  # slow import

    try:
        found = inspect.signature(function).parameters.values()
    except local(TypeError, ValueError):
        raise DeclarationError(f"{who}() has no signature: wrap it in a function") from None
    return [read_parameter(who, function, p) for p in found]


def read_parameter(who: str, function: Any, p: inspect.Parameter) -> Parameter:
    if p.kind is not p.POSITIONAL_OR_KEYWORD and p.kind is not p.POSITIONAL_ONLY:
        raise DeclarationError(f"{who}() takes `{p}`: operators have a fixed list of arguments")
    if p.default is not p.empty:
        raise DeclarationError(
            f"`{p.name}` of {who}() has a default: arguments of operators have none"
        )
    note = MissingAnnotation if p.annotation is p.empty else p.annotation
    if isinstance(note, str):
        note = resolve_annotation(getattr(function, "__func__", function), note)
    is_array = note is MissingAnnotation or (
        isinstance(note, type)
        and (issubclass(note, Storage) or hasattr(note, "__torch_function__"))
    )
    made = ArrayParameter(p.name, ndarray_annotation()) if is_array else parameter_of(p.name, note)
    if isinstance(made, ArrayParameter | ScalarParameter | TensorParameter):
        return made
    raise DeclarationError(
        f"`{p.name}` of {who}() has the annotation {note!r}: operators take arrays, numbers and "
        f"vectors\nhelp: {p.name}: int, {p.name}: float or {p.name}: ti.types.ndarray(); take "
        "other things from a closure or from self"
    )
