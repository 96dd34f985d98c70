"""Signature of an operator: its inputs, its outputs and their shapes.

signature = OperatorSignature("cube", parameters, {"y": "x"})
signature.schema()       # "Tensor x"
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from vkchi.errors import ArgumentError, DeclarationError, TensorGradientError
from vkchi.interop.host_views import check_storage, short_repr
from vkchi.interop.torch_library import integers_of_torch, is_dtype, is_recorded
from vkchi.interrupts.local import local
from vkchi.signature import ArrayParameter, Parameter, ScalarParameter, TensorParameter
from vkchi.types.lazy_numpy import is_integer_scalar

if TYPE_CHECKING:
    import torch


Tensors: TypeAlias = "dict[str, torch.Tensor]"
Arguments: TypeAlias = "Mapping[str, Any]"  # of the operator, by name
# Shape of an output from the arguments, with a dtype if it differs from the first tensor's.
Rule: TypeAlias = "str | Callable[[Arguments], Sequence[int] | tuple[Sequence[int], torch.dtype]]"
Maker: TypeAlias = "Callable[[torch.Tensor, Sequence[int], torch.dtype, int], torch.Tensor]"

SCALARS = {"f": "float", "i": "SymInt", "u": "SymInt", "b": "bool"}  # torch's types by scalar kind


class OperatorSignature:
    """The `inputs` of an operator (parameters), the names of those that are `tensors`, and its
    `outputs`."""

    def __init__(
        self, name: str, parameters: Sequence[Parameter], outputs: Mapping[str, Rule]
    ) -> None:
        self.name, self.parameters, self.outputs = name, tuple(parameters), outputs
        self.inputs = tuple(p for p in self.parameters if p.name not in outputs)
        self.names = tuple(p.name for p in self.inputs)
        self.tensors = tuple(p.name for p in self.inputs if isinstance(p, ArrayParameter))
        arrays = [p for p in self.parameters if isinstance(p, ArrayParameter)]
        self.element_axes = {p.name: p.element_axes for p in arrays}

    # --- calls by torch ---------------------------------------------------------------------------

    default = ""  # of the last input, in torch's schema
    only_once: str  # reason in an error
    second_derivative_help: str  # advice in it

    def complete(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Add the arguments that users do not give."""
        return args, kwargs

    def run(self, args: Sequence[Any]) -> tuple[list[torch.Tensor], Any]:
        """Return the results of a call, and what it recorded for its gradient, if anything."""
        raise NotImplementedError

    def run_constant(self, args: Sequence[Any]) -> list[torch.Tensor]:
        """Return the results of a call that has no gradient."""
        made: list[torch.Tensor] = self.run(args)[0]
        return made

    def remember(self, args: Sequence[Any], made: Sequence[torch.Tensor], call: Any) -> None:
        """Save what a gradient needs, keyed by the first result: autograd may not see the call."""
        raise NotImplementedError

    def save(self, ctx: Any, args: Sequence[Any], made: Sequence[Any], call: Any) -> None:
        """Save in torch's `ctx` what the gradient needs. `call` is None if torch executes the
        call."""
        raise NotImplementedError

    def find_memory(self, result: torch.Tensor | None) -> Any:
        """Return the memory that `remember` saved with this first result."""
        raise NotImplementedError

    def differentiate(
        self, args: Sequence[Any], slopes: Tensors, kept: Tensors, wanted: Collection[str],
        memory: Any,
    ) -> Tensors:  # fmt: skip
        """Gradients of the tensors `wanted`, by name, from those of the outputs (`slopes`), the
        saved outputs (`kept`) and what the call saved (`memory`)."""
        raise NotImplementedError

    def second_derivative(
        self, args: Sequence[Any], slopes: Tensors, directions: Tensors, memory: Any
    ) -> tuple[Tensors, Tensors]:
        """Derivatives of the sum of products of the inputs' gradients with `directions`: by the
        inputs, and by the gradients of the outputs (`slopes`). Raises TensorGradientError."""
        raise TensorGradientError(
            f"{self.name}() can be differentiated once: {self.only_once}",
            help=self.second_derivative_help,
        )

    # --- checks -----------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise DeclarationError for parameters that torch cannot pass, and for outputs that do not
        fit."""
        self.schema()  # raises for a parameter that torch has no type for
        self.check_outputs()

    def check_outputs(self) -> None:
        """Raise DeclarationError for outputs that do not fit the parameters."""
        arrays = {p.name for p in self.parameters if isinstance(p, ArrayParameter)}
        for name, rule in self.outputs.items():
            if name not in arrays:
                raise DeclarationError(f"outputs=: {self.name}() has no array `{name}`")
            if not isinstance(rule, str) and not callable(rule):
                raise DeclarationError(
                    f"outputs=: the shape of `{name}` is given by the name of a tensor, or by a "
                    f"function, not by {rule!r}"
                )
            if isinstance(rule, str) and rule not in self.tensors:
                raise DeclarationError(f"outputs=: `{name}` is like `{rule}`, which is no tensor")
        if not self.outputs or not self.tensors:
            raise DeclarationError(f"{self.name}() needs an output and a tensor that it is made of")

    def schema(self) -> str:
        """The inputs in torch's schema language. Raises DeclarationError for types that torch
        lacks."""
        return ", ".join(f"{torch_type(self.name, p)} {p.name}" for p in self.inputs)

    def name_arguments(self, args: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.names, args, strict=True))

    def arrange(self, found: Mapping[str, Any]) -> list[Any]:
        return [found[p.name] for p in self.parameters]

    # --- outputs -----------------------------------------------------------------------------

    def make(self, given: Arguments, make: Maker) -> Tensors:
        """Create the outputs, by name, with `make(like, shape, dtype, axes)`. `axes` is the number
        of element axes, the last ones."""
        return {name: self.make_one(name, given, make) for name in self.outputs}

    def make_one(self, name: str, given: Arguments, make: Maker) -> torch.Tensor:
        """Create one output. Raises ArgumentError for an invalid shape or dtype."""
        rule, axes = self.outputs[name], self.element_axes[name]
        if isinstance(rule, str):
            source = given[rule]
            return make(source, source.shape, source.dtype, axes)
        source = given[self.tensors[0]]
        shape, dtype = read_shape(self.name, name, rule(given))
        return make(source, shape, dtype or source.dtype, axes)


def torch_type(who: str, p: Parameter) -> str:
    """Torch's schema type of a parameter. Raises DeclarationError if there is none."""
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
    return f"{name}_grad"


def is_tensor(arg: Any) -> bool:
    return hasattr(arg, "untyped_storage")


def clone_tensor(tensor: Any) -> Any:
    """A clone, of which a numpy array may be made: torch does not resize the storage of such a
    tensor any more, as FSDP does. A tensor that cannot be cloned is returned unchanged."""
    try:
        check_storage(tensor)
    except local(ArgumentError, NotImplementedError, RuntimeError, TypeError):
        return tensor
    return tensor.clone()


def move_tensors(found: Any, place: Any) -> Any:
    """Tensors, also those in mappings, lists and tuples, on a device; other values unchanged.

    Tensors that are already there are not copied.
    """
    if isinstance(found, Mapping):
        return {name: move_tensors(one, place) for name, one in found.items()}
    if isinstance(found, list | tuple):
        return [move_tensors(one, place) for one in found]
    return found.to(place) if is_tensor(found) else found


BY_RULE = "give a tuple of sizes, as (n,), or a shape and a dtype, as ((n, 3), torch.float32)"


# --- arguments and shapes -------------------------------------------------------------------------


def read_shape(who: str, name: str, said: Any) -> tuple[tuple[int, ...], torch.dtype | None]:
    """The shape of the output `name`, and its dtype if given, from the result `said` of its rule.
    Raises ArgumentError for other objects."""
    shape, dtype = said, None
    is_pair = isinstance(said, list | tuple) and len(said) == 2
    if is_pair and isinstance(said[0], list | tuple):
        shape, dtype = said
        if not is_dtype(dtype):
            why = f"{short_repr(dtype)} is no dtype of torch's"
            raise operator_argument_error(f"{who}(): outputs= of `{name}`: {why}", BY_RULE)
    if not isinstance(shape, list | tuple):
        raise operator_argument_error(
            f"{who}(): outputs= of `{name}` gave {short_repr(said)}, no shape", BY_RULE
        )
    for n in shape:
        is_number = is_integer_scalar(n) and not isinstance(n, bool)
        if not (is_number and n >= 0) and not isinstance(n, integers_of_torch()):
            what = f"{short_repr(n)} in the shape {short_repr(tuple(shape))} is no size"
            raise operator_argument_error(f"{who}(): outputs= of `{name}`: {what}", BY_RULE)
    return tuple(shape), dtype


def check_arguments(who: str, parameters: Sequence[Parameter], args: Sequence[Any]) -> None:
    """Raise ArgumentError if an array argument is no tensor. Also if, while autograd records, a
    tensor passed by value requires a gradient, which would be lost. Other arguments are left to
    torch."""
    for p, arg in zip(parameters, args):
        if isinstance(p, ArrayParameter):
            if not hasattr(type(arg), "__torch_function__"):
                raise operator_argument_error(
                    f"{who}(): argument `{p.name}`: a tensor is needed, not "
                    f"{'None' if arg is None else f'{type(arg).__name__} {short_repr(arg)}'}",
                    f"{p.name}=torch.as_tensor(...)",
                )
            continue
        for one in arg if isinstance(arg, list | tuple) else (arg,):
            if getattr(one, "requires_grad", False) and is_recorded()():
                raise operator_argument_error(
                    f"{who}(): the gradient of `{p.name}`, which is passed by value, would be lost",
                    f"pass {p.name}.detach(), or take it as ti.types.ndarray()",
                )


def operator_argument_error(why: str, what_to_do: str) -> ArgumentError:
    return ArgumentError(f"{why}\nhelp: {what_to_do}")
