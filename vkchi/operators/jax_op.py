"""JAX functions from kernels: `jax_op`.

    @ti.jax_op(outputs={"y": "x"})            # y: a new array of x's shape and dtype
    @ti.kernel
    def cube(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] ** 3

    jax.grad(lambda x: cube(x).sum())(jax.numpy.ones(3))

A call is a `jax.pure_callback`, its derivative a `jax.custom_vjp` with a second callback. Callbacks
get arrays of the host. JAX reports an exception in a callback as an error of its own, without the
user's line; so the kernel is compiled, and its arguments are checked, while JAX traces the call.
Source: https://docs.jax.dev/en/latest/external-callbacks.html,
https://docs.jax.dev/en/latest/notebooks/Custom_derivative_rules_for_Python_code.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial, wraps
from inspect import Parameter as PythonParameter
from inspect import Signature
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from vkchi.errors import (
    ArgumentError,
    DeclarationError,
    KernelRuntimeError,
    MissingPackageError,
    TensorGradientError,
)
from vkchi.interop.host_views import short_repr
from vkchi.interrupts.imports import import_uninterrupted
from vkchi.interrupts.local import local, suppress
from vkchi.kernel import BoundKernel, Kernel
from vkchi.launch.compiled_kernel import CompiledKernel
from vkchi.ndarray import Ndarray, ndarray
from vkchi.operators.description import (
    AnyKernel,
    OperatorSpec,
    function_of,
)
from vkchi.operators.execution import wait_for_device
from vkchi.operators.field_snapshots import FieldSnapshots, KernelValues, are_values_current
from vkchi.operators.operator_signature import operator_argument_error
from vkchi.signature import ArrayParameter, Parameter, ScalarParameter, TensorParameter
from vkchi.types import Scalar, Tensor
from vkchi.types.core import scalar_of_dtype
from vkchi.types.lazy_numpy import is_integer_scalar, np

if TYPE_CHECKING:
    import jax

# Shape of an output from the arguments, with a dtype if it differs from the first array's.
JaxRule: TypeAlias = (
    "str | Callable[[Mapping[str, jax.ShapeDtypeStruct]], Sequence[int] | jax.ShapeDtypeStruct]"
)
JaxFunction: TypeAlias = "Callable[..., jax.Array | tuple[jax.Array, ...]]"
RULE_HELP = "give a tuple of sizes, as (n,), or jax.ShapeDtypeStruct((n, 3), jax.numpy.float32)"


@overload
def jax_op(kernel: AnyKernel, *, outputs: Mapping[str, JaxRule]) -> JaxFunction: ...
@overload
def jax_op(
    kernel: None = None, *, outputs: Mapping[str, JaxRule]
) -> Callable[[AnyKernel], JaxFunction]: ...
def jax_op(
    kernel: AnyKernel | None = None, *, outputs: Mapping[str, JaxRule]
) -> JaxFunction | Callable[[AnyKernel], JaxFunction]:
    """A JAX function that runs a kernel; without a kernel, a decorator.

    The function takes the kernel's other parameters and returns the outputs, several as a tuple.
    The kernel gets the outputs filled with zeros. Supported: `jit`, first derivatives in reverse
    mode, and `vmap` (one call per batch element). Arrays of other devices are copied to the host
    and back.

    Args:
        kernel: the kernel. It may access fields neither for reading nor for writing.
        outputs: for each array that the kernel makes, the name of an argument with the same shape
            and dtype. Alternatively a function of the arguments (`jax.ShapeDtypeStruct`, by name)
            that returns a shape or a `jax.ShapeDtypeStruct`.

    Returns:
        The function; without a kernel, a decorator that makes it.

    Raises:
        DeclarationError: for invalid arguments, and for parameters that JAX cannot pass.
        MissingPackageError: without JAX 0.4.34.
    """
    if kernel is None:
        return lambda found: jax_op(found, outputs=outputs)
    if not isinstance(kernel, Kernel | BoundKernel):
        raise DeclarationError(f"jax_op takes a ti.kernel, not {kernel!r}")
    if not isinstance(outputs, Mapping):
        raise DeclarationError(f'outputs= is a dict, as {{"y": "x"}}, not {outputs!r}')
    spec = OperatorSpec(kernel, dict(outputs), None)
    spec.check_outputs()
    for p in spec.inputs:
        if not isinstance(p, ArrayParameter | ScalarParameter | TensorParameter):
            raise DeclarationError(
                f"JAX has no type for `{p.name}` of {spec.name}(): it passes arrays and numbers; "
                "take other things from a closure or from self"
            )
    return define(spec)


@cache
def load_jax() -> Any:
    """Return the module `jax`. Raises MissingPackageError without JAX 0.4.34 or later."""
    found: Any = None
    with suppress(ImportError):
        found = import_uninterrupted("jax")
    if getattr(found, "__version_info__", (0,)) < (0, 4, 34):  # `vmap_method`
        raise MissingPackageError("ti.jax_op needs jax 0.4.34 or later: pip install jax")
    found.tree_util.register_static(Trace)  # JAX keeps traces from the forward pass
    return found


def define(spec: OperatorSpec) -> JaxFunction:
    jax = load_jax()

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def run(*given: Any) -> Any:
        trace = Trace(spec, given)
        return call_back(jax, trace.run, trace.outputs.values(), given)

    def forward(*primals: Any) -> Any:
        for p, one in zip(spec.inputs, primals, strict=True):
            if one.perturbed and not isinstance(p, ArrayParameter):
                raise operator_argument_error(
                    f"{spec.name}(): the gradient of `{p.name}`, which is passed by value, would "
                    "be lost",
                    f"pass jax.lax.stop_gradient({p.name}), or take it as ti.types.ndarray()",
                )
        given = [one.value for one in primals]
        made = run(*given)  # not its callback, which would refuse to be differentiated once more
        return made, (Trace(spec, given), given, made)

    def backward(kept: Any, slopes: Any) -> Any:
        trace, given, made = kept
        found = differentiate(trace, given, made, jax.tree.map(partial(materialize, jax), slopes))
        return tuple(found.get(name) for name in spec.names)  # None: no gradient

    run.defvjp(forward, backward, symbolic_zeros=True)

    @partial(jax.custom_jvp, nondiff_argnums=(0,))
    def differentiate(trace: Trace, given: Any, made: Any, slopes: Any) -> Any:
        wanted = {k: one for k, one in trace.inputs.items() if trace.has_gradient(k)}
        act = partial(trace.differentiate, tuple(wanted))
        found = call_back(jax, act, wanted.values(), given, made, slopes)
        return dict(zip(wanted, found, strict=True))

    @differentiate.defjvp  # type: ignore[untyped-decorator]
    def refuse(trace: Trace, primals: Any, tangents: Any) -> Any:
        raise_second_derivative(spec.name)

    named = Signature(
        [PythonParameter(k, PythonParameter.POSITIONAL_OR_KEYWORD) for k in spec.names]
    )

    @wraps(function_of(spec.kernel))
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            given = named.bind(*args, **keywords).arguments
        except TypeError as e:
            raise ArgumentError(f"{spec.name}(): {e}") from None
        found = run(*[to_jax(jax, spec, p, given[p.name]) for p in spec.inputs])
        return found if len(found) > 1 else found[0]

    return call


def raise_second_derivative(who: str) -> None:
    """Always raises TensorGradientError: second derivatives do not exist."""
    raise TensorGradientError(
        f"{who}() can be differentiated once: its gradient is a kernel without a derivative",
        help="for a second derivative make the first a kernel with a ti.jax_op of its own, and "
        "call both from a jax.custom_vjp",
    )


def materialize(jax: Any, slope: Any) -> Any:
    """A gradient as an array: zeros, if JAX knows it to be zero."""
    if isinstance(slope, jax.custom_derivatives.SymbolicZero):
        return jax.numpy.zeros(slope.shape, slope.dtype)
    return slope


def call_back(jax: Any, act: Callable[..., Any], results: Any, *args: Any) -> Any:
    shapes = tuple(results)
    return jax.pure_callback(act, shapes, *args, vmap_method="sequential") if shapes else ()


def to_jax(jax: Any, spec: OperatorSpec, p: Parameter, arg: Any) -> Any:
    """An argument as an array of JAX. Raises ArgumentError for objects that the parameter does not
    take."""
    try:
        found = jax.numpy.asarray(arg)
    except local(TypeError, ValueError):
        raise operator_argument_error(
            f"{spec.name}(): argument `{p.name}`: an array or a number is needed, not "
            f"{type(arg).__name__} {short_repr(arg)}",
            f"{p.name}=jax.numpy.asarray(...)",
        ) from None
    if isinstance(p, ArrayParameter):
        return found
    elem: Scalar = p.type.elem if isinstance(p.type, Tensor) else p.type
    shape = p.type.shape if isinstance(p.type, Tensor) else ()
    if found.shape != shape:
        raise ArgumentError(
            f"{spec.name}(): argument `{p.name}` has shape {found.shape}, and {shape} is needed"
        )
    if elem.kind != "f" and found.dtype.kind not in "iub":
        raise ArgumentError(
            f"{spec.name}(): argument `{p.name}` is {found.dtype}, and {elem} is needed"
        )
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
    """A call as JAX traces it: shapes and dtypes of the `inputs` and `outputs`, by name.

    The kernel is compiled for them. `run` and `differentiate` are the callbacks.
    """

    def __init__(self, spec: OperatorSpec, given: Sequence[Any]) -> None:
        shape = load_jax().ShapeDtypeStruct
        self.spec = spec
        self.inputs = {
            name: shape(np.shape(one), np.dtype(one.dtype))
            for name, one in zip(spec.names, given, strict=True)
        }
        self.outputs = {name: self._shape_of_output(name) for name in spec.outputs}
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

    def _arrange(self, described: Mapping[str, Any]) -> list[Any]:
        """Arguments of the kernel for compilation, without contents."""
        return [
            np.empty(described[p.name].shape, described[p.name].dtype)
            if isinstance(p, ArrayParameter)
            else to_number(np.zeros(described[p.name].shape, described[p.name].dtype))
            for p in self.spec.parameters
        ]

    def has_gradient(self, name: str) -> bool:
        return name in self.spec.tensors and self.inputs[name].dtype.kind == "f"

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
        self.spec.kernel(*self.spec.arrange({**self._to_host(given), **made}))
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
        known = self._to_host(given) | dict(zip(self.outputs, map(np.asarray, made), strict=True))
        for name in (*self.spec.tensors, *self.outputs):
            known[name] = to_ndarray(known[name], self.spec.element_axes[name])
        for name, slope in zip(self.outputs, slopes, strict=True):
            if known[name].grad is not None:
                known[name].grad.from_numpy(np.asarray(slope))
        fields = FieldSnapshots(self.spec.name)

        def act(name: str, kernel: CompiledKernel, *arguments: Any) -> None:
            run_gradient(name, kernel, *arguments, fields=fields)

        self.spec.kernel.dispatch(act, *self.spec.arrange(known))
        return tuple(known[name].grad.to_numpy() for name in wanted)

    def _to_host(self, given: Sequence[Any]) -> dict[str, Any]:
        found = {name: np.asarray(one) for name, one in zip(self.spec.names, given, strict=True)}
        by_value = found.keys() - set(self.spec.tensors)
        return {k: to_number(one) if k in by_value else one for k, one in found.items()}


def to_number(values: Any) -> Any:
    return values if values.ndim else values.item()


def to_ndarray(values: Any, element_axes: int) -> Ndarray:
    """An ndarray with these values and, for floats, a gradient of zeros. The last axes are those of
    the elements."""
    elem = scalar_of_dtype(values.dtype)
    assert elem is not None, values.dtype
    axes = values.ndim - element_axes
    dtype: Any = Tensor.of(elem, values.shape[axes:]) if element_axes else elem
    made: Ndarray = ndarray(dtype, values.shape[:axes], needs_grad=elem.kind == "f")
    made.from_numpy(values)
    return made
