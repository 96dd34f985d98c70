"""Validation of operators: the arguments of calls, and the shapes of outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentError
from vkchi.interop.host_views import short_repr
from vkchi.interop.torch_library import integers_of_torch, is_dtype, is_recorded
from vkchi.signature import ArrayParameter, Parameter
from vkchi.types.lazy_numpy import is_integer_scalar

if TYPE_CHECKING:
    import torch

HELP = "\nhelp: {}"
BY_RULE = "give a tuple of sizes, as (n,), or a shape and a dtype, as ((n, 3), torch.float32)"


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
    return ArgumentError(why + HELP.format(what_to_do))
