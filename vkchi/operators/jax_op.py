"""JAX functions from kernels and Python functions: `jax_op`.

    @ti.jax_op(outputs={"y": "x"})            # y: a new array of x's shape and dtype
    @ti.kernel
    def cube(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] ** 3

    jax.grad(lambda x: cube(x).sum())(jax.numpy.ones(3))

A call is a `jax.pure_callback`, its derivative a `jax.custom_vjp` with a second callback. Callbacks
get arrays of the host. JAX reports an exception in a callback as an error of its own, without the
user's line; so a kernel is compiled, and its arguments are checked, while JAX traces the call.
Source: https://docs.jax.dev/en/latest/external-callbacks.html,
https://docs.jax.dev/en/latest/notebooks/Custom_derivative_rules_for_Python_code.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from inspect import Parameter as PythonParameter
from inspect import Signature
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from vkchi.errors import ArgumentError, DeclarationError, TensorGradientError
from vkchi.interop.host_views import short_repr
from vkchi.interrupts.local import local
from vkchi.kernel import BoundKernel, Kernel
from vkchi.operators.description import AnyKernel, OperatorSpec, function_of
from vkchi.operators.function_operator import check_function
from vkchi.operators.jax_trace import FunctionTrace, JaxFunction, KernelTrace, Trace, load_jax
from vkchi.operators.operator_signature import OperatorSignature, operator_argument_error
from vkchi.signature import ArrayParameter, Parameter, ScalarParameter, TensorParameter
from vkchi.types import Scalar, Tensor

if TYPE_CHECKING:
    import jax

# Shape of an output from the arguments, with a dtype if it differs from the first array's.
JaxRule: TypeAlias = (
    "str | Callable[[Mapping[str, jax.ShapeDtypeStruct]], Sequence[int] | jax.ShapeDtypeStruct]"
)
JaxOperator: TypeAlias = "Callable[..., jax.Array | tuple[jax.Array, ...]]"
Function: TypeAlias = "Callable[..., None]"


@overload
def jax_op(kernel: AnyKernel | Function, *, outputs: Mapping[str, JaxRule]) -> JaxOperator: ...
@overload
def jax_op(
    kernel: None = None, *, outputs: Mapping[str, JaxRule]
) -> Callable[[AnyKernel | Function], JaxOperator]: ...
def jax_op(
    kernel: AnyKernel | Function | None = None, *, outputs: Mapping[str, JaxRule]
) -> JaxOperator | Callable[[AnyKernel | Function], JaxOperator]:
    """A JAX function that runs a kernel, or a Python function that launches kernels; without
    either, a decorator.

    The function takes the kernel's other parameters and returns the outputs, several as a tuple.
    The kernel gets the outputs filled with zeros. Supported: `jit`, first derivatives in reverse
    mode, and `vmap` (one call per batch element). Arrays of other devices are copied to the host
    and back.

    Args:
        kernel: the kernel or function. Kernels access its arguments, and arrays that the function
            makes.
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
    if not isinstance(outputs, Mapping):
        raise DeclarationError(f'outputs= is a dict, as {{"y": "x"}}, not {outputs!r}')
    if isinstance(kernel, Kernel | BoundKernel):
        spec = OperatorSpec(kernel, dict(outputs), None)
        check(spec)
        return define(spec, function_of(kernel), KernelTrace)
    check_function("jax_op", kernel)
    function = JaxFunction(kernel, dict(outputs))
    check(function)
    return define(function, kernel, FunctionTrace)


def check(spec: OperatorSignature) -> None:
    spec.check_outputs()
    for p in spec.inputs:
        if not isinstance(p, ArrayParameter | ScalarParameter | TensorParameter):
            raise DeclarationError(
                f"JAX has no type for `{p.name}` of {spec.name}(): it passes arrays and numbers; "
                "take other things from a closure or from self"
            )


def define(
    spec: OperatorSignature,
    function: Callable[..., object],
    make_trace: Callable[[Any, Any], Trace],
) -> JaxOperator:
    jax = load_jax()

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def run(*given: Any) -> Any:
        trace = make_trace(spec, given)
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
        return made, (make_trace(spec, given), given, made)

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

    @wraps(function)
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


def to_jax(jax: Any, spec: OperatorSignature, p: Parameter, arg: Any) -> Any:
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
