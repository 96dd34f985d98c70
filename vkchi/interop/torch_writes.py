"""Reports kernel writes to torch as in-place operations without a known derivative.

The version of a written tensor is increased, so that torch rejects a gradient that needs its saved
value. If autograd records on it, the tensor's graph ends at the write, and a gradient through it is
an error. Leaves stay leaves. `forbid_leaf_gradient` makes a gradient of a written leaf an error.

    check_view("x", tensor); report_write("x", tensor, kernel)

A kernel's gradient may write the `.grad` of a leaf tensor directly. If an operation's backward then
returns that same `.grad`, torch would add it to itself. `count_once` prevents this. If other
operations contribute to the leaf too, it raises an error.
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
    """True if autograd records operations on the tensor."""
    return bool(tensor.requires_grad and sys.modules["torch"].is_grad_enabled())


def has_tangent(tensor: Any) -> bool:
    """True if a tensor has a tangent of torch's forward mode."""
    forward = forward_mode()
    if getattr(forward, "_current_level", 0) < 0:  # outside forward mode: saves a microsecond
        return False
    return forward.unpack_dual(tensor).tangent is not None


def may_have_tangent(tensor: Any) -> bool:
    """True if `has_tangent`, or for a wrapped tensor of function transforms inside forward mode. An
    outer transform may have a tangent for such a tensor."""
    if getattr(forward_mode(), "_current_level", 0) < 0:
        return False
    is_wrapped = sys.modules["torch"]._C._functorch.is_functorch_wrapped_tensor
    return is_wrapped(tensor) or has_tangent(tensor)


@cache
def forward_mode() -> Any:
    import torch.autograd.forward_ad as forward

    return forward


def check_view(name: str, tensor: Any) -> None:
    """Raise ArgumentError for a view of a leaf that requires a gradient, if autograd records on the
    view. Torch does not allow in-place changes of such a view."""
    base = tensor._base
    if base is not None and base.is_leaf and base.requires_grad and is_recorded(tensor):
        raise write_not_allowed(name,
        "a view of a leaf Variable that requires grad is being used in an "
                     "in-place operation")  # fmt: skip


def write_not_allowed(name: str, why: str) -> ArgumentError:
    return ArgumentError(
        f"argument `{name}`: the kernel writes to it, and torch says: {why}; call the kernel "
        f"inside `with torch.no_grad():` or `with ti.ad.Tape(...)`, or pass {name}.detach()"
    )


class TensorWriter(Protocol):
    """A kernel that writes a tensor; its `origin` may be expensive to compute."""

    @property
    def origin(self) -> tuple[str, Span | None]:
        """(name, span in the user's source or None) of the kernel."""


def report_write(name: str, tensor: Any, writer: TensorWriter) -> None:
    """Report to torch that a kernel changes a tensor: increment its version, and end its graph
    unless it is a leaf.

    Raises ArgumentError for a tensor with a tangent, and if torch does not allow the write, as for
    one of several views.
    """
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
        raise write_not_allowed(name, str(e).rstrip(".")) from None


def forbid_leaf_gradient(tensor: Any, writer: TensorWriter) -> None:
    """Register a hook, once per leaf, that makes torch's backward raise TensorGradientError if it
    reaches the leaf. No effect for other tensors, or if autograd does not record on the leaf."""
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
    return TensorGradientError(
        f"torch needs the derivative of what {who} wrote into a tensor, and does not know it", span,
        help="call the kernel in the forward() of a torch.autograd.Function, whose backward() "
        "calls its grad(); or inside torch.no_grad(), if there is to be none, or grad() is called "
        "after backward()",
    )  # fmt: skip


@cache
def version_raiser() -> Callable[[Any], object]:
    import torch

    public = getattr(torch.autograd.graph, "increment_version", None)
    return public if public is not None else raise_version  # torch before 2.1


def raise_version(tensor: Any) -> None:
    import torch

    with torch.no_grad():
        kernel_write().apply(tensor, "", None)


@cache
def kernel_write() -> Any:
    """The autograd function that marks a tensor as written in place."""
    import torch

    class KernelWrite(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, tensor: Any, who: str, span: Span | None) -> Any:
            ctx.mark_dirty(tensor)
            ctx.who, ctx.span = who, span
            return tensor

        @staticmethod
        def backward(ctx: Any, *slopes: Any) -> Any:
            raise unknown_derivative(ctx.who, ctx.span)

    return KernelWrite


def is_added_to(tensor: Any) -> bool:
    """True if the running backward pass of torch will add to the `.grad` of this leaf. False for
    other tensors, without a running pass, and if torch gives no answer."""
    if not (tensor.is_leaf and tensor.requires_grad):
        return False
    torch = sys.modules["torch"]
    try:
        if torch._C._current_graph_task_id() == -1:
            return False
        node = torch.autograd.graph.get_gradient_edge(tensor).node
        return bool(torch._C._will_engine_execute_node(node))
    except local(AttributeError, RuntimeError):  # other versions of torch; torch.autograd.grad()
        return False


def count_once(tensor: Any, error: Exception) -> None:
    """Count the present `.grad` of a leaf once if torch adds to it in this backward pass.

    A hook, removed after the pass, gets the sum that torch is about to add. If the sum is in the
    memory of `.grad`, the hook sets `.grad` to None, and torch stores the sum. Otherwise it raises
    `error` out of torch's backward. No effect if `.grad` was replaced.
    """
    written = tensor.grad

    def look(sum_: Any) -> None:
        if sum_ is None or tensor.grad is not written:
            return
        if sum_.data_ptr() != written.data_ptr():
            raise error
        tensor.grad = None  # torch then stores the sum

    handle = tensor.register_hook(look)
    sys.modules["torch"].autograd.Variable._execution_engine.queue_callback(handle.remove)
