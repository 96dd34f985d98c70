"""Access to `torch.library` and to torch's internal state, for torch operators of kernels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from vkchi.errors import MissingPackageError
from vkchi.interrupts.imports import import_uninterrupted
from vkchi.interrupts.local import local


def torch_library() -> Any:
    """Return the module `torch.library`. Raises MissingPackageError without torch 2.4 or later."""
    library: Any = None
    with suppress(ImportError):
        library = import_uninterrupted("torch.library")
    if not hasattr(library, "custom_op"):
        raise MissingPackageError("ti.torch_op needs torch 2.4 or later: pip install torch")
    return library


def is_dtype(found: object) -> bool:
    import torch

    return isinstance(found, torch.dtype)


@cache
def integers_of_torch() -> type:
    import torch

    found: type = torch.SymInt
    return found


def stack(tensors: Sequence[Any]) -> Any:
    import torch

    return torch.stack(list(tensors))


@cache
def plain_tensors() -> frozenset[type]:
    """Tensor classes without overridden behavior."""
    import torch

    return frozenset((torch.Tensor, torch.nn.Parameter))


def is_compiling() -> Callable[[], bool]:
    """Return torch's predicate that is true inside torch.compile."""
    import torch

    found: Callable[[], bool] = torch.compiler.is_compiling
    return found


def is_recorded() -> Callable[[], bool]:
    """Return torch's predicate that is true if gradients are enabled."""
    import torch

    found: Callable[[], bool] = torch.is_grad_enabled
    return found


def observe_calls(operator: Any, look: Callable[[Sequence[Any]], None]) -> None:
    """Call `look` with the arguments of each later call of a torch operator, before autograd.

    This includes calls by other names, and forward mode. No effect if torch's internals differ from
    the expected version.
    """
    try:
        from torch._library.autograd import make_autograd_impl

        act, library, name = (
            make_autograd_impl(operator._opoverload, operator), operator._lib, operator._name
        )  # fmt: skip
    except (ImportError, AttributeError):
        return

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        look((*args, *kwargs.values()))
        return act(keyset, *args, **kwargs)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an overridden registration
        library.impl(name, call, "Autograd", with_keyset=True)


@cache
def keeps_graph() -> Callable[[], bool]:
    """Return a predicate: true if the running backward pass retains the graph, or if torch does not
    report it."""
    import torch

    found: Callable[[], bool] | None
    found = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return found or (lambda: True)


@cache
def is_going_backward() -> Callable[[], bool]:
    """Return a predicate: true in a backward pass; false if torch does not report it."""
    import torch

    find: Callable[[], int] | None = getattr(torch._C, "_current_graph_task_id", None)
    return (lambda: False) if find is None else (lambda: find() != -1)


def make_function(
    name: str, forward: Callable[..., Any], backward: Callable[..., Any]
) -> Callable[..., Any]:
    """Return the `apply` of a new torch.autograd.Function of these two functions. Both take torch's
    context first."""
    import torch

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    made: Any = type(name, (torch.autograd.Function,), methods)
    found: Callable[..., Any] = made.apply
    return found


def has_memory(tensor: Any) -> bool:
    """True if a tensor is of class Tensor or Parameter and has memory of its own, unlike a batched
    one."""
    try:
        return type(tensor) in plain_tensors() and tensor.data_ptr() >= 0
    except local(RuntimeError, NotImplementedError):
        return False


@cache
def transforms_functions() -> Callable[[], bool]:
    """A predicate: true inside transforms of `torch.func`; false if torch does not report it."""
    import torch

    found: Callable[[], bool] | None
    found = getattr(torch._C, "_are_functorch_transforms_active", None)
    return found or (lambda: False)


@cache
def needs_full_dispatch() -> Callable[[], object]:
    """Return a predicate: true if more than autograd must see an operation.

    That is: modes, transforms of functions, traces, forward mode, profiles. Always true if torch
    does not report these.
    """
    import torch
    import torch.autograd.forward_ad as forward

    try:
        c: Any = torch._C
        has_modes, has_functions = c._len_torch_dispatch_stack, c._len_torch_function_stack
        is_transformed, is_traced = c._are_functorch_transforms_active, c._get_tracing_state
        is_profiled, _ = c._autograd._profiler_enabled, forward._current_level
    except AttributeError:
        return lambda: True

    def is_disturbed() -> object:
        return (
            has_modes() or has_functions() or is_transformed() or is_traced() or is_profiled()
            or forward._current_level >= 0
        )  # fmt: skip

    return is_disturbed
