"""A kernel as an operator of PyTorch: `torch_op`.

Owns: what torch wants of an operator (a schema, shapes without numbers, a derivative, a batch
rule), made from a kernel's parameters. Must not know: how kernels or gradients are compiled.

    @ti.torch_op(outputs={"y": "x"})          # y: a new tensor of x's shape and dtype
    @ti.kernel
    def cube(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] ** 3

    cube(torch.ones(3, requires_grad=True)).sum().backward()

The operator takes the kernel's other parameters, in order, and gives the outputs, which the kernel
finds filled with zeros. Source: https://docs.pytorch.org/docs/stable/library.html (`custom_op`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from vkchi.errors import ArgumentError, DeclarationError
from vkchi.interop.torch_library import stack, torch_library
from vkchi.kernel import BoundKernel, Kernel, looks_like_method
from vkchi.runtime import current
from vkchi.signature import (
    ArrayParameter,
    Parameter,
    ScalarParameter,
    SelfParameter,
    TensorParameter,
    read_parameters,
)

if TYPE_CHECKING:
    import torch

    from vkchi.launch import Plan

Tensors: TypeAlias = "dict[str, torch.Tensor]"
Arguments: TypeAlias = "Mapping[str, Any]"  # of the operator, by name
# The shape of an output from the arguments; with a dtype where that is not the first tensor's.
Rule: TypeAlias = "str | Callable[[Arguments], Sequence[int] | tuple[Sequence[int], torch.dtype]]"
AnyKernel: TypeAlias = "Kernel | BoundKernel"

SCALARS = {"f": "float", "i": "SymInt", "u": "SymInt", "b": "bool"}  # torch's, by our kind
_numbers = itertools.count()


def torch_op(
    kernel: AnyKernel | None = None,
    *,
    outputs: Mapping[str, Rule],
    gradient: AnyKernel | None = None,
    name: str | None = None,
) -> Any:
    """An operator of torch (`torch.library.CustomOpDef`) that runs a kernel; without a kernel, a
    decorator for one.

    outputs: for each array that the kernel makes, the name of an argument whose shape and dtype it
    has, or a function of the arguments (by name) that gives a shape, or a shape and a dtype.
    gradient: a kernel of one's own in place of the generated gradient. Its parameters say by name
    what they are: parameters of the first kernel; `NAME_grad` of an output, the slope that comes
    in; `NAME_grad` of a tensor, zeros, to be filled. name: `library::operator` for torch.

    For tensors of the CPU, and of CUDA's device where memory is shared with it (others are copied
    to the host and back, and so are those that a generated gradient works on), under autograd
    (differentiable once), `torch.compile` and `torch.func.vmap` (a call for each of the batch).
    Raises DeclarationError for parameters that torch cannot give, MissingPackageError without
    torch 2.4.
    """
    if kernel is None:
        return lambda found: torch_op(found, outputs=outputs, gradient=gradient, name=name)
    if not isinstance(kernel, Kernel | BoundKernel):
        raise DeclarationError(f"torch_op takes a ti.kernel, not {kernel!r}")
    spec = Spec(kernel, dict(outputs), gradient)
    spec.check()
    return _define(spec, name or f"vkchi::{spec.name}_{next(_numbers)}")


class Spec:
    """A kernel as torch sees it: what it takes (`inputs`, of which `tensors` are names), what it
    makes, and what differentiates it. `checked`: kinds of arguments of calls that write no
    input."""

    def __init__(
        self, kernel: AnyKernel, outputs: Mapping[str, Rule], gradient: AnyKernel | None
    ) -> None:
        self.kernel, self.outputs, self.gradient = kernel, outputs, gradient
        self.name = str(function_of(kernel).__name__)
        self.parameters = parameters_of(kernel)
        self.inputs = tuple(p for p in self.parameters if p.name not in outputs)
        self.names = tuple(p.name for p in self.inputs)
        self.tensors = tuple(p.name for p in self.inputs if isinstance(p, ArrayParameter))
        self.checked: set[Any] = set()

    def check(self) -> None:
        """Raises DeclarationError for what torch cannot call."""
        self.schema()  # raises for a parameter that torch has no type for
        arrays = {p.name for p in self.parameters if isinstance(p, ArrayParameter)}
        for name, rule in self.outputs.items():
            if name not in arrays:
                raise DeclarationError(f"outputs=: {self.name}() has no array `{name}`")
            if isinstance(rule, str) and rule not in self.tensors:
                raise DeclarationError(f"outputs=: `{name}` is like `{rule}`, which is no tensor")
        if not self.outputs or not self.tensors:
            raise DeclarationError(f"{self.name}() needs an output and a tensor that it is made of")
        known = {*(p.name for p in self.parameters), *map(slope_of, arrays)}
        if self.gradient is not None:
            for p in parameters_of(self.gradient):
                if p.name not in known:
                    raise DeclarationError(f"gradient=: nothing is called `{p.name}`")

    def check_written(self, plan: Plan, args: object) -> None:
        """Raises DeclarationError where the kernel writes an input, of which torch is not told."""
        written = sorted(plan.written.intersection(self.tensors))
        if written:
            raise DeclarationError(
                f"{self.name}() writes `{written[0]}`, which is an input: name it among outputs=, "
                "or copy it in the kernel"
            )

    def schema(self) -> str:
        """What it takes, in torch's words."""
        return ", ".join(f"{torch_type(self.name, p)} {p.name}" for p in self.inputs)

    def name_arguments(self, args: Sequence[Any]) -> dict[str, Any]:
        """The operator's arguments by name."""
        return dict(zip(self.names, args, strict=True))

    def make(self, given: Arguments, like: str = "new_zeros") -> Tensors:
        """New outputs."""
        return {name: self._make_one(rule, given, like) for name, rule in self.outputs.items()}

    def _make_one(self, rule: Rule, given: Arguments, like: str) -> torch.Tensor:
        source = given[rule if isinstance(rule, str) else self.tensors[0]]
        if isinstance(rule, str):
            return getattr(source, like)(source.shape)
        said = tuple(rule(given))
        if len(said) == 2 and isinstance(said[0], Sequence):
            return getattr(source, like)(tuple(said[0]), dtype=said[1])
        return getattr(source, like)(said)

    def arrange(self, found: Mapping[str, Any]) -> list[Any]:
        """The kernel's arguments in order."""
        return [found[p.name] for p in self.parameters]


def _define(spec: Spec, name: str) -> Any:
    """The operator, and its derivative as a second one, so that torch can look into neither."""
    library = torch_library()
    results = ", ".join(["Tensor"] * len(spec.outputs))
    forward = library.custom_op(
        name, lambda *args: _run(spec, args), mutates_args=(),
        schema=f"({spec.schema()}) -> ({results})",
    )  # fmt: skip
    forward.register_fake(lambda *args: _one_or_all(_fake(spec, args)))
    slopes = ", ".join(f"Tensor {slope_of(output)}" for output in spec.outputs)
    results = ", ".join(["Tensor"] * len(spec.tensors))
    backward = library.custom_op(
        f"{name}_backward", lambda *args: _run_gradient(spec, args), mutates_args=(),
        schema=f"({spec.schema()}, {slopes}) -> ({results})",
    )  # fmt: skip
    backward.register_fake(lambda *args: _one_or_all(_fake_slopes(spec, args)))
    forward.register_autograd(
        lambda ctx, *slopes: _differentiate(spec, backward, ctx, slopes),
        setup_context=lambda ctx, inputs, output: _save(spec, ctx, inputs),
    )
    for op in (forward, backward):
        if hasattr(op, "register_vmap"):  # torch 2.5
            op.register_vmap(_batch(op))
    return forward


# --- running them --------------------------------------------------------------------------------


def _run(spec: Spec, args: Sequence[Any]) -> Any:
    home = find_home(args, is_launch=True)
    if home is not None:
        return _move(_run(spec, _move(args, "cpu")), home)
    given = {k: _detached(a) for k, a in spec.name_arguments(args).items()}
    made = spec.make(given)
    arguments = spec.arrange({**given, **made})
    kinds = tuple(map(kind_of, arguments))
    if kinds not in spec.checked:
        spec.kernel.examine(spec.check_written, *map(_shape_on_host, arguments))
        spec.checked.add(kinds)
    spec.kernel(*arguments)
    return _one_or_all(list(made.values()))


def _run_gradient(spec: Spec, args: Sequence[Any]) -> Any:
    home = find_home(args, is_launch=spec.gradient is not None)
    if home is not None:
        return _move(_run_gradient(spec, _move(args, "cpu")), home)
    given = {k: _detached(a) for k, a in spec.name_arguments(args[: len(spec.inputs)]).items()}
    slopes = dict(zip(spec.outputs, args[len(spec.inputs) :], strict=True))
    run = _run_generated if spec.gradient is None else _run_own
    return _one_or_all(run(spec, given, slopes))


def _run_generated(spec: Spec, given: dict[str, Any], slopes: Tensors) -> list[torch.Tensor]:
    """The kernel's gradient, which goes from `.grad` to `.grad`."""
    made = spec.make(given)
    for name, tensor in made.items():
        tensor.grad = slopes[name].detach().clone().contiguous()
    wanted = {name: given[name] for name in spec.tensors}
    for name, tensor in wanted.items():
        given[name] = tensor = tensor.detach()  # an object of its own, whose `.grad` is ours
        if tensor.is_floating_point():
            tensor.grad = tensor.new_zeros(tensor.shape)
    spec.kernel.grad(*spec.arrange({**given, **made}))
    return [_slope(given[name]) for name in spec.tensors]


def _run_own(spec: Spec, given: dict[str, Any], slopes: Tensors) -> list[torch.Tensor]:
    """The kernel that was given for it."""
    assert spec.gradient is not None
    found = {name: given[name].new_zeros(given[name].shape) for name in spec.tensors}
    known = {**given, **spec.make(given)}
    known |= {slope_of(k): v.detach().contiguous() for k, v in slopes.items()}
    known |= {slope_of(k): v for k, v in found.items()}
    spec.gradient(*[known[p.name] for p in parameters_of(spec.gradient)])
    return list(found.values())


def _slope(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.new_zeros(tensor.shape) if tensor.grad is None else tensor.grad


def _fake(spec: Spec, args: Sequence[Any]) -> list[torch.Tensor]:
    return list(spec.make(spec.name_arguments(args), "new_empty").values())


def _fake_slopes(spec: Spec, args: Sequence[Any]) -> list[torch.Tensor]:
    given = spec.name_arguments(args[: len(spec.inputs)])
    return [given[name].new_empty(given[name].shape) for name in spec.tensors]


# --- torch's derivative, and its batches ---------------------------------------------------------


def _save(spec: Spec, ctx: Any, inputs: Sequence[Any]) -> None:
    given = spec.name_arguments(inputs)
    ctx.save_for_backward(*(given[name] for name in spec.tensors))
    ctx.others = {name: a for name, a in given.items() if name not in spec.tensors}


def _differentiate(spec: Spec, backward: Any, ctx: Any, slopes: Sequence[Any]) -> tuple[Any, ...]:
    given = {**ctx.others, **dict(zip(spec.tensors, ctx.saved_tensors, strict=True))}
    found = backward(*(given[p.name] for p in spec.inputs), *slopes)
    found = [found] if len(spec.tensors) == 1 else found
    by_name = {
        name: slope
        for name, slope in zip(spec.tensors, found, strict=True)
        if given[name].is_floating_point()
    }
    return tuple(by_name.get(p.name) for p in spec.inputs)


def _batch(op: Any) -> Callable[..., Any]:
    """The operator on each of a batch: results are stacked along a new first axis."""

    def run(info: Any, in_dims: Sequence[int | None], *args: Any) -> Any:
        if not info.batch_size:
            raise ArgumentError("vmap over a batch of nothing: no result tells its shape")
        results = []
        for k in range(info.batch_size):
            one = [a if d is None else a.select(d, k) for a, d in zip(args, in_dims, strict=True)]
            result = op(*one)
            results.append(result if isinstance(result, tuple) else (result,))
        stacked = tuple(stack(parts) for parts in zip(*results, strict=True))
        dims = (0,) * len(stacked)
        return (stacked, dims) if len(stacked) > 1 else (stacked[0], 0)

    return run


# --- parameters ----------------------------------------------------------------------------------


def function_of(kernel: AnyKernel) -> Any:
    """The Python function that a kernel was made of."""
    inner = kernel.func if isinstance(kernel, BoundKernel) else kernel
    return inner.__vkchi_func__  # type: ignore[attr-defined]


def parameters_of(kernel: AnyKernel) -> tuple[Parameter, ...]:
    """A kernel's parameters, but for the object it is bound to. Raises DeclarationError where it is
    bound to none."""
    fn = function_of(kernel)
    found = read_parameters(fn, looks_like_method(fn))
    if found and isinstance(found[0], SelfParameter):
        if not isinstance(kernel, BoundKernel):
            raise DeclarationError(f"{fn.__name__}() is a method: take it from an object")
        found = found[1:]
    return tuple(found)


def torch_type(who: str, p: Parameter) -> str:
    """Torch's name of the type of an argument. Raises DeclarationError."""
    if isinstance(p, ArrayParameter):
        return "Tensor"
    if isinstance(p, ScalarParameter):
        return SCALARS[p.type.kind]
    if isinstance(p, TensorParameter) and len(p.type.shape) == 1:
        return f"{SCALARS[p.type.elem.kind]}[]"
    raise DeclarationError(
        f"torch has no type for `{p.name}` of {who}(): they take tensors, numbers and vectors; "
        "take other things from a closure or from self"
    )


def slope_of(name: str) -> str:
    """The parameter of a gradient's kernel that is the slope of an array."""
    return f"{name}_grad"


def _detached(arg: Any) -> Any:
    return arg.detach() if hasattr(arg, "detach") else arg


def kind_of(arg: Any) -> Any:
    """What of an argument decides what a kernel writes."""
    return (arg.dtype, arg.ndim) if hasattr(arg, "untyped_storage") else type(arg)


def find_home(args: Sequence[Any], *, is_launch: bool) -> torch.device | None:
    """The device of tensors, where they are copied to the host's memory and back; None where
    kernels have them as they are: on the CPU, and for launches on CUDA's device that the current
    one shares memory with. (Gradients that are generated copy what they save through the host.)"""
    places = [a.device for a in args if hasattr(a, "untyped_storage") and a.device.type != "cpu"]
    if not places:
        return None
    if is_launch and all(place.type == "cuda" for place in places):
        from vkchi.interop.cuda.link import Link, find_link  # few programs share any

        if isinstance(find_link(current()), Link):
            return None
    return places[0]


def _move(found: Any, place: Any) -> Any:
    """Tensors on another device; the rest as it is."""
    if isinstance(found, list | tuple):
        return tuple(_move(one, place) for one in found)
    return found.to(place) if hasattr(found, "untyped_storage") else found


def _shape_on_host(arg: Any) -> Any:
    """A tensor of the CPU like one that is elsewhere: what compiling asks of it."""
    is_elsewhere = hasattr(arg, "untyped_storage") and arg.device.type != "cpu"
    return arg.new_empty(arg.shape, device="cpu") if is_elsewhere else arg


def _one_or_all(found: list[Any]) -> Any:
    return found[0] if len(found) == 1 else tuple(found)
