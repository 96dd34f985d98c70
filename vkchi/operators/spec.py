"""A kernel as torch sees it: what it takes, what it makes, what its gradient needs.

Owns: `Spec`, the types of arguments, what is known of calls by the kinds of their arguments. Must
not know: how an operator is registered, or run.

    spec = Spec(cube, {"y": "x"}, None)
    spec.schema()       # "Tensor x"
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from vkchi.errors import DeclarationError
from vkchi.interop.torch_library import plain_tensors
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
Maker: TypeAlias = "Callable[[torch.Tensor, Sequence[int], torch.dtype, int], torch.Tensor]"
AnyKernel: TypeAlias = "Kernel | BoundKernel"

SCALARS = {"f": "float", "i": "SymInt", "u": "SymInt", "b": "bool"}  # torch's, by our kind


class Spec:
    """A kernel as torch sees it: what it takes (`inputs`, of which `tensors` are names), what it
    makes, and what differentiates it."""

    def __init__(
        self, kernel: AnyKernel, outputs: Mapping[str, Rule], gradient: AnyKernel | None
    ) -> None:
        self.kernel, self.outputs, self.gradient = kernel, outputs, gradient
        self.name = str(function_of(kernel).__name__)
        self.parameters = parameters_of(kernel)
        self.inputs = tuple(p for p in self.parameters if p.name not in outputs)
        self.names = tuple(p.name for p in self.inputs)
        self.tensors = tuple(p.name for p in self.inputs if isinstance(p, ArrayParameter))
        arrays = [p for p in self.parameters if isinstance(p, ArrayParameter)]
        self.element_axes = {p.name: p.element_axes for p in arrays}
        self._known: weakref.ref[Any] | None = None  # the runtime that the next is true of
        self._read: dict[Any, frozenset[str] | None] = {}  # by kinds of arguments

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

    def schema(self) -> str:
        """What it takes, in torch's words."""
        return ", ".join(f"{torch_type(self.name, p)} {p.name}" for p in self.inputs)

    def name_arguments(self, args: Sequence[Any]) -> dict[str, Any]:
        """The operator's arguments by name."""
        return dict(zip(self.names, args, strict=True))

    def arrange(self, found: Mapping[str, Any]) -> list[Any]:
        """The kernel's arguments in order."""
        return [found[p.name] for p in self.parameters]

    # --- outputs -----------------------------------------------------------------------------

    def make(self, given: Arguments, make: Maker) -> Tensors:
        """New outputs: `make(like, shape, dtype, axes)` makes one, whose last axes are those of
        elements."""
        return {name: self.make_one(name, given, make) for name in self.outputs}

    def make_one(self, name: str, given: Arguments, make: Maker) -> torch.Tensor:
        """A new output."""
        rule, axes = self.outputs[name], self.element_axes[name]
        if isinstance(rule, str):
            source = given[rule]
            return make(source, source.shape, source.dtype, axes)
        source, said = given[self.tensors[0]], tuple(rule(given))
        if len(said) == 2 and isinstance(said[0], Sequence):
            return make(source, *said, axes)
        return make(source, said, source.dtype, axes)

    # --- what is known of the kernel -----------------------------------------------------------

    def check_written(self, arguments: Sequence[Any]) -> None:
        """Raises DeclarationError where the kernel writes an input, of which torch is not told."""
        known, kinds = self._known_now(), tuple([kind_of(a) for a in arguments])
        if kinds not in known:
            self.kernel.examine(self._check_plan, *map(shape_on_host, arguments))
            known[kinds] = None

    def _check_plan(self, plan: Plan, args: object) -> None:
        written = sorted(plan.written.intersection(self.tensors))
        if written:
            raise DeclarationError(
                f"{self.name}() writes `{written[0]}`, which is an input: name it among outputs=, "
                "or copy it in the kernel"
            )

    def find_kept(self, arguments: Sequence[Any]) -> frozenset[str]:
        """The outputs whose numbers the gradient may need, given the kernel's arguments: those that
        the kernel reads, or that the gradient of one's own takes. All, where torch has only its
        own stand-ins for tensors to give."""
        if self.gradient is not None:
            taken = frozenset(p.name for p in parameters_of(self.gradient))
            return taken.intersection(self.outputs)
        if not all(is_real(a) for a in arguments):
            return frozenset(self.outputs)
        known, kinds = self._known_now(), tuple([kind_of(a) for a in arguments])
        found = known.get(kinds)
        if found is None:
            used = self.kernel.examine(find_used, *map(shape_on_host, arguments))
            known[kinds] = found = used.intersection(self.outputs)
        return found

    def _known_now(self) -> dict[Any, frozenset[str] | None]:
        runtime = current()
        if self._known is None or self._known() is not runtime:
            self._known, self._read = weakref.ref(runtime), {}
        return self._read


def find_used(plan: Plan, args: object) -> frozenset[str]:
    """The arrays whose numbers a kernel uses."""
    from vkchi.tape.facts import arrays_used  # most calls want no gradient

    return arrays_used(plan)


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


def kind_of(arg: Any) -> Any:
    """What of an argument decides what a kernel reads and writes."""
    return (arg.dtype, arg.ndim) if hasattr(arg, "untyped_storage") else type(arg)


def is_real(arg: Any) -> bool:
    """Whether an argument is no tensor that torch shows to what it traces."""
    if not hasattr(arg, "untyped_storage"):
        return True
    return type(arg) in plain_tensors() and arg.device.type != "meta"


def shape_on_host(arg: Any) -> Any:
    """A tensor of the CPU like one that is elsewhere: what compiling asks of it."""
    is_elsewhere = hasattr(arg, "untyped_storage") and arg.device.type != "cpu"
    return arg.new_empty(arg.shape, device="cpu") if is_elsewhere else arg
