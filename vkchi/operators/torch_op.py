"""PyTorch operators from kernels and Python functions: `torch_op`.

The operator's schema, fake implementation, derivative and batch rule are derived from the kernel's
parameters.

    @ti.torch_op(outputs={"y": "x"})          # y: a new tensor of x's shape and dtype
    @ti.kernel
    def cube(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] ** 3

    cube(torch.ones(3, requires_grad=True)).sum().backward()

The operator takes the kernel's other parameters, in order, and returns the outputs. The kernel gets
the outputs zero-filled. Source: https://docs.pytorch.org/docs/stable/library.html (`custom_op`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from vkchi.errors import ArgumentError, DeclarationError, TensorGradientError
from vkchi.interop.torch_library import observe_calls, stack, torch_library
from vkchi.kernel import BoundKernel, Kernel
from vkchi.operators.description import AnyKernel
from vkchi.operators.execution import KernelOperator
from vkchi.operators.fast_path import (
    call_directly,
    check_tangents,
    one_or_all,
    refuse_transforms,
    run_backward,
    run_second,
    save_for_second,
    split_second,
)
from vkchi.operators.operator_signature import OperatorSignature, Rule, slope_of

if TYPE_CHECKING:
    import torch
    from torch.library import CustomOpDef

Function: TypeAlias = "Callable[..., None]"
_numbers = itertools.count()


@overload
def torch_op(
    kernel: AnyKernel | Function,
    *,
    outputs: Mapping[str, Rule],
    gradient: AnyKernel | None = None,
    name: str | None = None,
) -> CustomOpDef: ...
@overload
def torch_op(
    kernel: None = None,
    *,
    outputs: Mapping[str, Rule],
    gradient: AnyKernel | None = None,
    name: str | None = None,
) -> Callable[[AnyKernel | Function], CustomOpDef]: ...
def torch_op(
    kernel: AnyKernel | Function | None = None,
    *,
    outputs: Mapping[str, Rule],
    gradient: AnyKernel | None = None,
    name: str | None = None,
) -> CustomOpDef | Callable[[AnyKernel | Function], CustomOpDef]:
    """A torch operator (`torch.library.CustomOpDef`) that runs a kernel, or a Python function that
    launches kernels; without either, a decorator.

    Supported: autograd (second derivatives for kernels that depend on their arguments alone),
    `torch.compile`, and `torch.func.vmap` (torch 2.5, one call per batch element). Tensors on the
    CPU, and on a CUDA device that shares memory, are passed as to any kernel. Others are copied to
    the host and back, and for a generated gradient all CUDA tensors.

    A Python function gets ndarrays. Its gradient is that of a tape, which records the call.

    Args:
        kernel: the kernel or function.
        outputs: for each array that the kernel makes, the name of an argument with the same shape
            and dtype. Alternatively a function of the arguments (by name) that returns a shape, or
            a shape and a dtype.
        gradient: a kernel that replaces the generated gradient. Its parameters are matched by name:
            parameters of the first kernel, with outputs as it left them; `NAME_grad` of an output,
            its gradient; `NAME_grad` of a tensor, zeros, to be filled.
        name: `library::operator` for torch.

    Returns:
        The operator; without a kernel, a decorator that makes it.

    Raises:
        DeclarationError: for invalid arguments and for parameters that torch cannot pass.
        MissingPackageError: without torch 2.4.
    """
    if kernel is None:
        return lambda found: torch_op(found, outputs=outputs, gradient=gradient, name=name)
    if gradient is not None and not isinstance(gradient, Kernel | BoundKernel):
        raise DeclarationError(f"gradient= takes a ti.kernel, not {gradient!r}")
    if not isinstance(outputs, Mapping):
        raise DeclarationError(f'outputs= is a dict, as {{"y": "x"}}, not {outputs!r}')
    if name is not None and not is_qualified(name):
        raise DeclarationError(f'name= is for torch, as "library::operator", not {name!r}')
    spec: OperatorSignature
    if isinstance(kernel, Kernel | BoundKernel):
        spec = KernelOperator(kernel, dict(outputs), gradient)
    else:
        from vkchi.operators.function_operator import (  # slow to import
            TorchFunction,
            check_function,
        )

        check_function("torch_op", kernel)
        if gradient is not None:
            raise DeclarationError(
                "gradient= is for kernels: decorate parts of a function with ti.ad.grad_replaced"
            )
        spec = TorchFunction(kernel, dict(outputs))
    spec.check()
    return _define(spec, name or f"vkchi::{spec.name}_{next(_numbers)}")


def is_qualified(name: object) -> bool:
    parts = name.split("::") if isinstance(name, str) else ()
    return len(parts) == 2 and all(part.isidentifier() for part in parts)


def _define(spec: OperatorSignature, name: str) -> Any:
    """Define the operator, and its first and second derivatives as opaque operators."""
    library = torch_library()
    results = ", ".join(["Tensor"] * len(spec.outputs))
    forward = library.custom_op(
        name, lambda *args: one_or_all(_run(spec, args)), mutates_args=(),
        schema=f"({spec.schema()}{spec.default}) -> ({results})",
    )  # fmt: skip
    forward.register_fake(lambda *args: one_or_all(_fake(spec, args)))
    slopes = ", ".join(f"Tensor {slope_of(output)}" for output in spec.outputs)
    kept = ", ".join(f"Tensor? {output}" for output in spec.outputs)
    results = ", ".join(["Tensor"] * len(spec.tensors))
    backward = library.custom_op(
        f"{name}_backward", lambda *args: one_or_all(_run_gradient(spec, args)), mutates_args=(),
        schema=f"({spec.schema()}, {slopes}, {kept}) -> ({results})",
    )  # fmt: skip
    backward.register_fake(lambda *args: one_or_all(_fake_slopes(spec, args)))
    forward.register_autograd(
        lambda ctx, *slopes: run_backward(spec, backward, ctx, slopes),
        setup_context=lambda ctx, inputs, output: spec.save(ctx, inputs, as_tuple(output), None),
    )
    results = ", ".join(["Tensor"] * (len(spec.tensors) + len(spec.outputs)))
    directions = ", ".join(f"Tensor {name}_direction" for name in spec.tensors)
    second = library.custom_op(
        f"{name}_second", lambda *args: one_or_all(_run_second(spec, args)), mutates_args=(),
        schema=f"({spec.schema()}, {slopes}, {directions}) -> ({results})",
    )  # fmt: skip
    second.register_fake(lambda *args: one_or_all(_fake_second(spec, args)))
    second.register_autograd(lambda ctx, *slopes: raise_third_derivative(spec))
    backward.register_autograd(
        lambda ctx, *directions: run_second(spec, second, ctx, directions),
        setup_context=lambda ctx, inputs, output: save_for_second(spec, ctx, inputs),
    )
    for op in (forward, backward, second):
        observe_calls(op, lambda args: refuse_transforms(spec.name, args))
        if hasattr(op, "register_vmap"):  # torch 2.5
            op.register_vmap(_batch(op))
    return call_directly(forward, backward, spec)


def raise_third_derivative(spec: OperatorSignature) -> None:
    """Always raises TensorGradientError: third derivatives do not exist."""
    raise TensorGradientError(f"{spec.name}() can be differentiated twice, not three times")


def _run(spec: OperatorSignature, args: Sequence[Any]) -> list[torch.Tensor]:
    check_tangents(spec.name, args)
    made, call = spec.run(args)
    spec.remember(args, made, call)
    return made


def _run_gradient(spec: OperatorSignature, args: Sequence[Any]) -> list[torch.Tensor]:
    inputs, rest = args[: len(spec.inputs)], args[len(spec.inputs) :]
    slopes = dict(zip(spec.outputs, rest, strict=False))
    kept = {k: t for k, t in zip(spec.outputs, rest[len(slopes) :], strict=True) if t is not None}
    memory = spec.find_memory(kept.get(next(iter(spec.outputs))))
    return list(spec.differentiate(inputs, slopes, kept, spec.tensors, memory).values())


def _run_second(spec: OperatorSignature, args: Sequence[Any]) -> list[torch.Tensor]:
    inputs, slopes, directions = split_second(spec, args)
    memory = spec.find_memory(None)
    by_inputs, by_slopes = spec.second_derivative(inputs, slopes, directions, memory)
    return [by_inputs[name] for name in spec.tensors] + [by_slopes[y] for y in spec.outputs]


def _fake_second(spec: OperatorSignature, args: Sequence[Any]) -> list[torch.Tensor]:
    inputs, slopes, _ = split_second(spec, args)
    given = spec.name_arguments(inputs)
    like = [*[given[name] for name in spec.tensors], *slopes.values()]
    return [one.new_empty(one.shape) for one in like]


def _fake(spec: OperatorSignature, args: Sequence[Any]) -> list[torch.Tensor]:
    return list(spec.make(spec.name_arguments(args), _make_fake).values())


def _make_fake(like: torch.Tensor, shape: Sequence[int], dtype: torch.dtype, axes: int) -> Any:
    return like.new_empty(tuple(shape), dtype=dtype)


def _fake_slopes(spec: OperatorSignature, args: Sequence[Any]) -> list[torch.Tensor]:
    given = spec.name_arguments(args[: len(spec.inputs)])
    return [given[name].new_empty(given[name].shape) for name in spec.tensors]


def as_tuple(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def _batch(op: Any) -> Callable[..., Any]:
    """Batch rule: run the operator per batch element and stack the results along a new first axis.
    The rule raises ArgumentError for an empty batch."""

    def run(info: Any, in_dims: Sequence[int | None], *args: Any) -> Any:
        if not info.batch_size:
            raise ArgumentError("vmap over a batch of nothing: no result tells its shape")
        results = []
        for k in range(info.batch_size):
            one = [a if d is None else a.select(d, k) for a, d in zip(args, in_dims, strict=True)]
            result = op(*one)
            results.append(as_tuple(result))
        stacked = tuple(stack(parts) for parts in zip(*results, strict=True))
        dims = (0,) * len(stacked)
        return (stacked, dims) if len(stacked) > 1 else (stacked[0], 0)

    return run
