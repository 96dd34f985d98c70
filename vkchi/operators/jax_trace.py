"""Calls as JAX traces them: shapes of inputs and outputs, and the callbacks.

    trace = KernelTrace(spec, arrays)
    made = trace.run(arrays)
    trace.differentiate(("x",), arrays, made, slopes)

JAX may run callbacks several times, or not at all. So the gradient of a Python function records the
function again, and its results must be those of the first run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from vkchi.calls.call import LaunchRequest
from vkchi.errors import (
    DeclarationError,
    GradientError,
    KernelRuntimeError,
    MissingPackageError,
)
from vkchi.interop.host_views import short_repr, to_taichi_type
from vkchi.interrupts.imports import import_uninterrupted
from vkchi.interrupts.local import suppress
from vkchi.launch.compiled_kernel import CompiledKernel
from vkchi.operators.description import OperatorSpec
from vkchi.operators.execution import wait_for_device
from vkchi.operators.field_snapshots import FieldSnapshots, KernelValues, are_values_current
from vkchi.operators.function_operator import FunctionSpec, OutputType, to_ndarray
from vkchi.operators.operator_signature import OperatorSignature, operator_argument_error
from vkchi.signature import ArrayParameter
from vkchi.tape.tape import Tape
from vkchi.types import bf16, scalar_of_dtype
from vkchi.types.bfloat16 import as_values
from vkchi.types.lazy_numpy import is_integer_scalar, np

RULE_HELP = "give a tuple of sizes, as (n,), or jax.ShapeDtypeStruct((n, 3), jax.numpy.float32)"


@cache
def load_jax() -> Any:
    """Return the module `jax`. Raises MissingPackageError without JAX 0.4.34 or later."""
    found: Any = None
    with suppress(ImportError):
        found = import_uninterrupted("jax")
    if getattr(found, "__version_info__", (0,)) < (0, 4, 34):  # `vmap_method`
        raise MissingPackageError("ti.jax_op needs jax 0.4.34 or later: pip install jax")
    for made in (KernelTrace, FunctionTrace):
        found.tree_util.register_static(made)  # JAX keeps traces from the forward pass
    return found


def find_accesses(
    compiled: CompiledKernel, args: tuple[Any, ...]
) -> tuple[tuple[str, ...], frozenset[str], KernelValues]:
    """Arrays other than arguments that a kernel accesses, arguments that it may write, and Python
    values that it was compiled with."""
    hidden = compiled.hidden.parameters if compiled.hidden is not None else ()
    accessed = (*sorted(compiled.fields(args)), *(p.path for p in hidden))
    return accessed, frozenset(compiled.written), KernelValues(compiled.guard, compiled.known(args))


class Trace:
    """A call as JAX traces it: shapes and dtypes of the `inputs` and `outputs`, by name."""

    def __init__(self, spec: OperatorSignature, given: Sequence[Any]) -> None:
        shape = load_jax().ShapeDtypeStruct
        self.spec = spec
        self.inputs = {
            name: shape(np.shape(one), np.dtype(one.dtype))
            for name, one in zip(spec.names, given, strict=True)
        }
        self.outputs = {name: self._shape_of_output(name) for name in spec.outputs}

    def _shape_of_output(self, name: str) -> Any:
        rule, who = self.spec.outputs[name], f"{self.spec.name}(): outputs= of `{name}`"
        if isinstance(rule, str):
            return self.inputs[rule]
        said: Any = rule(self.inputs)
        if hasattr(said, "shape") and hasattr(said, "dtype"):
            shape, dtype = said.shape, said.dtype
        else:
            shape, dtype = said, self.inputs[self.spec.tensors[0]].dtype
        if not isinstance(shape, list | tuple):
            raise operator_argument_error(f"{who} gave {short_repr(said)}, no shape", RULE_HELP)
        for n in shape:
            if not is_integer_scalar(n) or n < 0:
                raise operator_argument_error(
                    f"{who}: {short_repr(n)} in the shape {short_repr(tuple(shape))} is no size",
                    RULE_HELP,
                )
        return load_jax().ShapeDtypeStruct(tuple(map(int, shape)), np.dtype(dtype))

    def has_gradient(self, name: str) -> bool:
        return name in self.spec.tensors and is_float(self.inputs[name].dtype)

    def run(self, given: Sequence[Any]) -> tuple[Any, ...]:
        """Callback: the outputs for inputs with contents."""
        raise NotImplementedError

    def differentiate(
        self, wanted: Sequence[str], given: Sequence[Any], made: Sequence[Any],
        slopes: Sequence[Any],
    ) -> tuple[Any, ...]:  # fmt: skip
        """Callback: gradients of the inputs `wanted`, from those of the outputs."""
        raise NotImplementedError

    def to_host(self, given: Sequence[Any]) -> dict[str, Any]:
        found = {name: np.asarray(one) for name, one in zip(self.spec.names, given, strict=True)}
        by_value = found.keys() - set(self.spec.tensors)
        return {k: to_number(one) if k in by_value else one for k, one in found.items()}


class KernelTrace(Trace):
    """A call of a kernel, which is compiled for the shapes of its arguments."""

    spec: OperatorSpec

    def __init__(self, spec: OperatorSpec, given: Sequence[Any]) -> None:
        super().__init__(spec, given)
        arguments = self._arrange({**self.inputs, **self.outputs})
        accessed, written, values = spec.kernel.inspect(find_accesses, *arguments)
        for name in accessed:
            raise DeclarationError(
                f"{spec.name}() is a function of JAX, which depends on its arguments alone, and "
                f"accesses `{name}`\nhelp: pass what `{name}` holds as an argument"
            )
        for name in sorted(written.intersection(spec.names)):
            raise DeclarationError(
                f"{spec.name}() writes `{name}`, which is an input: name it among outputs=, or "
                "copy it in the kernel"
            )
        self.values = values

    def _arrange(self, described: Mapping[str, Any]) -> list[Any]:
        """Arguments of the kernel for compilation, without contents."""
        return [
            np.empty(described[p.name].shape, described[p.name].dtype)
            if isinstance(p, ArrayParameter)
            else to_number(np.zeros(described[p.name].shape, described[p.name].dtype))
            for p in self.spec.parameters
        ]

    def _check_values(self) -> None:
        """Raise KernelRuntimeError if Python values of the kernel have changed since the trace."""
        if not are_values_current([self.values]):
            raise KernelRuntimeError(
                f"what {self.spec.name}() is compiled of was changed since JAX traced it\n"
                "help: change classes, and values that kernels read, before; or call "
                "jax.clear_caches()"
            )

    def run(self, given: Sequence[Any]) -> tuple[Any, ...]:
        self._check_values()
        made = {k: np.zeros(one.shape, one.dtype) for k, one in self.outputs.items()}
        self.spec.kernel(*self.spec.arrange({**self.to_host(given), **made}))
        wait_for_device()
        return tuple(made.values())

    def differentiate(
        self,
        wanted: Sequence[str],
        given: Sequence[Any],
        made: Sequence[Any],
        slopes: Sequence[Any],
    ) -> tuple[Any, ...]:
        """Gradients of the inputs `wanted`, from those of the outputs."""
        from vkchi.tape.kernel_grad import run_gradient  # rarely used, slow to import

        self._check_values()
        known = self.to_host(given) | dict(zip(self.outputs, map(np.asarray, made), strict=True))
        for name in (*self.spec.tensors, *self.outputs):
            has_grad = is_float(known[name].dtype)
            known[name] = to_ndarray(known[name], self.spec.element_axes[name], needs_grad=has_grad)
        for name, slope in zip(self.outputs, slopes, strict=True):
            if known[name].grad is not None:
                known[name].grad.from_numpy(np.asarray(slope))
        fields = FieldSnapshots(self.spec.name)

        def act(name: str, kernel: CompiledKernel, *arguments: Any) -> None:
            run_gradient(name, kernel, *arguments, fields=fields)

        self.spec.kernel.dispatch(act, *self.spec.arrange(known))
        return tuple(known[name].grad.to_numpy(self.inputs[name].dtype) for name in wanted)


class FunctionTrace(Trace):
    """A call of a Python function."""

    spec: JaxFunction

    def types(self) -> dict[str, OutputType]:
        return {
            k: OutputType(to_taichi_type(one.dtype), one.shape) for k, one in self.outputs.items()
        }

    def run(self, given: Sequence[Any]) -> tuple[Any, ...]:
        arrays, _ = self.spec.record(self.to_host(given), self.types(), ())
        return tuple(a.to_numpy(self.outputs[name].dtype) for name, a in arrays.items())

    def differentiate(
        self, wanted: Sequence[str], given: Sequence[Any], made: Sequence[Any],
        slopes: Sequence[Any],
    ) -> tuple[Any, ...]:  # fmt: skip
        if not wanted:
            return ()
        arrays, call = self.spec.record(self.to_host(given), self.types(), wanted)
        for (name, again), first in zip(arrays.items(), made, strict=True):
            if not is_same_result(again.to_numpy(), np.asarray(first)):
                raise GradientError(
                    f"{self.spec.name}() gave another `{name}` when JAX needed its gradient: it is "
                    "not a function of its arguments alone",
                    help="pass what it depends on as arguments, random numbers included",
                )
        assert call is not None
        found = call.gradients(dict(zip(self.outputs, map(np.asarray, slopes), strict=True)))
        return tuple(found[name].astype(self.inputs[name].dtype, copy=False) for name in wanted)


def is_float(dtype: Any) -> bool:
    """True for the dtype of an array of floats, bf16 included."""
    t = scalar_of_dtype(dtype)
    return t is not None and t.kind == "f"


def is_same_result(again: Any, first: Any) -> bool:
    """True for equal numbers, up to rounding: additions of parallel iterations have no order."""
    if not is_float(first.dtype):
        return bool((again == first).all())
    is_bf16 = scalar_of_dtype(first.dtype) is bf16
    again, first = as_values(again), as_values(first)
    digits = 2.0**-8 if is_bf16 else np.finfo(first.dtype).eps
    scale = float(np.abs(first[np.isfinite(first)]).max(initial=0.0))
    near = np.isclose(again, first, 1e3 * digits, 1e2 * digits * scale, equal_nan=True)
    return bool(near.all())


class JaxFunction(FunctionSpec):
    """A Python function that JAX calls. Its kernels access arguments, and arrays that it makes."""

    def make_tape(self, since: int) -> Tape:
        return PureTape(self.name, since)


class PureTape(Tape):
    """A tape for a function that is called twice: raises GradientError for kernels that access
    arrays of other code, or draw random numbers."""

    def __init__(self, who: str, since: int) -> None:
        super().__init__(clear_gradients=False)
        self.who, self.since = who, since

    def run(self, name: str, kernel: CompiledKernel, args: tuple[Any, ...]) -> Any:
        if kernel.draws:
            raise GradientError(
                f"{self.who}() is a function of JAX, and {name}() draws random numbers, which are "
                "others when JAX needs the gradient", kernel.func.span,
                help="pass random numbers as an argument",
            )  # fmt: skip
        for key, array in LaunchRequest(name, kernel, args).arrays.items():
            if array.whole.serial < self.since:
                raise GradientError(
                    f"{self.who}() is a function of JAX, which depends on its arguments alone, "
                    f"and {name}() accesses `{key}`", kernel.func.span,
                    help=f"pass what `{key}` holds as an argument, or make temporary arrays in "
                    f"{self.who}()",
                )  # fmt: skip
        return super().run(name, kernel, args)


def to_number(values: Any) -> Any:
    return values if values.ndim else values.item()
