"""Torch's side of operators: `torch.library`, where torch is there and new enough.

Owns: the import and its error; whether anybody but autograd has to know of what tensors go through.
Must not know: kernels.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from vkchi.errors import MissingPackageError
from vkchi.interrupts.imports import import_whole
from vkchi.interrupts.local import local


def torch_library() -> Any:
    """The module `torch.library`. Raises MissingPackageError without torch 2.4 or later."""
    library: Any = None
    with suppress(ImportError):
        library = import_whole("torch.library")
    if not hasattr(library, "custom_op"):
        raise MissingPackageError("ti.torch_op needs torch 2.4 or later: pip install torch")
    return library


def is_dtype(found: object) -> bool:
    """Whether an object is a dtype of torch's."""
    import torch

    return isinstance(found, torch.dtype)


@cache
def integers_of_torch() -> type:
    """The class of integers that stand for any in what torch traces."""
    import torch

    found: type = torch.SymInt
    return found


def stack(tensors: Sequence[Any]) -> Any:
    """Tensors of one shape along a new first axis."""
    import torch

    return torch.stack(list(tensors))


@cache
def plain_tensors() -> frozenset[type]:
    """The classes of tensors that are nothing but tensors."""
    import torch

    return frozenset((torch.Tensor, torch.nn.Parameter))


def is_compiling() -> Callable[[], bool]:
    """Torch's function that tells whether it compiles what calls it."""
    import torch

    found: Callable[[], bool] = torch.compiler.is_compiling
    return found


def is_recorded() -> Callable[[], bool]:
    """Torch's function that tells whether it records what is done to tensors."""
    import torch

    found: Callable[[], bool] = torch.is_grad_enabled
    return found


def look_first(operator: Any, look: Callable[[Sequence[Any]], None]) -> None:
    """Have a function look at the arguments of each call of an operator of torch's, by whatever
    name, before autograd knows of it, as forward mode does. Does nothing where a torch of another
    version makes operators otherwise."""
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
        warnings.simplefilter("ignore")  # that it was registered before
        library.impl(name, call, "Autograd", with_keyset=True)


@cache
def keeps_graph() -> Callable[[], bool]:
    """A function that tells whether torch, which is going backward, may do so once more; always
    true of a torch that does not tell."""
    import torch

    found: Callable[[], bool] | None
    found = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return found or (lambda: True)


def make_function(
    name: str, forward: Callable[..., Any], backward: Callable[..., Any]
) -> Callable[..., Any]:
    """A function that torch differentiates by another one; both are given torch's context first."""
    import torch

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    made: Any = type(name, (torch.autograd.Function,), methods)
    found: Callable[..., Any] = made.apply
    return found


def has_memory(tensor: Any) -> bool:
    """Whether a tensor is a plain one with numbers of its own: not one of a batch."""
    try:
        return type(tensor) in plain_tensors() and tensor.data_ptr() >= 0
    except local(RuntimeError, NotImplementedError):
        return False


@cache
def transforms_functions() -> Callable[[], bool]:
    """Torch's function that tells whether it transforms functions (`torch.func`); always false of a
    torch that does not tell."""
    import torch

    found: Callable[[], bool] | None
    found = getattr(torch._C, "_are_functorch_transforms_active", None)
    return found or (lambda: False)


@cache
def disturbance() -> Callable[[], object]:
    """A function whose result is true where torch has more to do about an operation than autograd:
    modes, transforms of functions, traces, forward mode, profiles. It is always true of a torch
    that does not tell."""
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
