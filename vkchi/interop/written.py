"""Tensors that kernels write, as torch is to see it: as if an operation of its own had changed them
in place, of which it knows no derivative.

Their versions rise, so that torch refuses a gradient by what it had saved of them. Where torch
records, what it knew of how a tensor was computed ends there: a gradient through it is an error. It
is one for leaves too, which stay leaves, if what was written depends on what requires a gradient.
Must not know: kernels.

    check_view("x", tensor); tell_torch("x", tensor, plan)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

from vkchi.errors import ArgumentError, TensorGradientError
from vkchi.interrupts.local import local
from vkchi.span import Span


def is_recorded(tensor: Any) -> bool:
    """Whether torch records now what is done to a tensor."""
    return bool(tensor.requires_grad and sys.modules["torch"].is_grad_enabled())


def has_tangent(tensor: Any) -> bool:
    """Whether a tensor carries a derivative of torch's forward mode."""
    forward = forward_mode()
    if getattr(forward, "_current_level", 0) < 0:  # outside that mode: saves a microsecond
        return False
    return forward.unpack_dual(tensor).tangent is not None


def may_have_tangent(tensor: Any) -> bool:
    """The same, true as well of what transforms of functions wrap inside that mode: one of the
    outer ones may know of a derivative."""
    if getattr(forward_mode(), "_current_level", 0) < 0:
        return False
    is_wrapped = sys.modules["torch"]._C._functorch.is_functorch_wrapped_tensor
    return is_wrapped(tensor) or has_tangent(tensor)


@cache
def forward_mode() -> Any:
    """Torch's module of that name."""
    import torch.autograd.forward_ad as forward

    return forward


def check_view(name: str, tensor: Any) -> None:
    """Raises ArgumentError where torch refuses to change a tensor in place: a view of a leaf."""
    base = tensor._base
    if base is not None and base.is_leaf and base.requires_grad and is_recorded(tensor):
        raise refuse(name, "a view of a leaf Variable that requires grad is being used in an "
                     "in-place operation")  # fmt: skip


def refuse(name: str, why: str) -> ArgumentError:
    """The error for a tensor that must not be written."""
    return ArgumentError(
        f"argument `{name}`: the kernel writes to it, and torch says: {why}; call the kernel "
        f"inside `with torch.no_grad():` or `with ti.ad.Tape(...)`, or pass {name}.detach()"
    )


class Writer(Protocol):
    """A kernel; finding out its `origin` may take long."""

    @property
    def origin(self) -> tuple[str, Span | None]:
        """What it is called, and where it stands in the user's files, if that is known."""


def tell_torch(name: str, tensor: Any, writer: Writer) -> None:
    """Say that a kernel changes a tensor. Raises ArgumentError where torch refuses that, as of one
    of several views."""
    if has_tangent(tensor):
        raise ArgumentError(
            f"argument `{name}`: the kernel writes to it, and the derivative that torch's forward "
            f"mode keeps with it would be wrong: pass {name}.clone() from outside that mode"
        )
    if not is_recorded(tensor) or tensor.is_leaf:
        version_raiser()(tensor)
        return
    try:
        kernel_write().apply(tensor, *writer.origin)
    except local(RuntimeError) as e:
        raise refuse(name, str(e).rstrip(".")) from None


def expect_no_slope(tensor: Any, writer: Writer) -> None:
    """Let torch's backward raise TensorGradientError where it comes to a leaf that a kernel has
    written: torch would end there, and not know of what was written."""
    if not (tensor.is_leaf and is_recorded(tensor)) or hasattr(tensor, HAS_HOOK):
        return
    who, span = writer.origin

    def look(slope: Any) -> None:
        if slope is not None:
            raise unknown_derivative(who, span)

    tensor.register_hook(look)
    setattr(tensor, HAS_HOOK, True)


HAS_HOOK = "__vkchi_written__"


def unknown_derivative(who: str, span: Span | None) -> TensorGradientError:
    """The error where torch needs what it does not know."""
    return TensorGradientError(
        f"torch needs the derivative of what {who} wrote into a tensor, and does not know it", span,
        help="call the kernel in the forward() of a torch.autograd.Function, whose backward() "
        "calls its grad(); or inside torch.no_grad(), if there is to be none, or grad() is called "
        "after backward()",
    )  # fmt: skip


@cache
def version_raiser() -> Callable[[Any], object]:
    """What raises a tensor's version."""
    import torch

    public = getattr(torch.autograd.graph, "increment_version", None)
    return public if public is not None else raise_version  # torch before 2.1


def raise_version(tensor: Any) -> None:
    """The same, with what every torch has."""
    import torch

    with torch.no_grad():
        kernel_write().apply(tensor, "", None)


@cache
def kernel_write() -> Any:
    """The operation of torch that stands for a kernel's write, in place."""
    import torch

    class KernelWrite(torch.autograd.Function):  # type: ignore[misc]
        """Changes nothing: the kernel does."""

        @staticmethod
        def forward(ctx: Any, tensor: Any, who: str, span: Span | None) -> Any:
            ctx.mark_dirty(tensor)
            ctx.who, ctx.span = who, span
            return tensor

        @staticmethod
        def backward(ctx: Any, *slopes: Any) -> Any:
            raise unknown_derivative(ctx.who, ctx.span)

    return KernelWrite
