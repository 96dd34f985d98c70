"""Python functions with gradients of their own.

Owns: the decorators `grad_replaced`, `grad_for`, `no_grad`. Must not know: kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from vkchi.errors import KernelRuntimeError
from vkchi.runtime import current


def grad_replaced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a Python function whose gradient is given by `grad_for`: a tape records the call, not
    the kernels in it."""
    made: Callable[..., Any] = recorded(function, None)
    return made


def no_grad(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a Python function that tapes do not differentiate."""
    made: Callable[..., Any] = recorded(function, lambda *args, **kwargs: None)
    return made


def recorded(function: Callable[..., Any], gradient: Callable[..., Any] | None) -> Any:
    """The function, recorded by tapes as one call with this gradient."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        tape = current().tape
        if tape is None or tape.is_paused:
            return function(*args, **kwargs)
        return tape.call_custom(call, args, kwargs)

    call.is_skipped = gradient is not None  # type: ignore[attr-defined]
    call.grad = gradient  # type: ignore[attr-defined]
    call.__vkchi_kind__ = "recorded"  # type: ignore[attr-defined]
    return call


def grad_for(primal: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate the gradient of a function made by `grad_replaced`; it takes the same arguments.

    Raises KernelRuntimeError for other functions, and for a second gradient.
    """

    name = getattr(primal, "__name__", repr(primal))
    if getattr(primal, "__vkchi_kind__", None) != "recorded":
        raise KernelRuntimeError(
            f"ti.ad.grad_for({name}): {name} is no Python function decorated with "
            "ti.ad.grad_replaced"
        )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if primal.grad is not None:
            why = "is ti.ad.no_grad" if primal.is_skipped else "has a gradient already"
            raise KernelRuntimeError(f"ti.ad.grad_for({name}): {name}() {why}")
        primal.grad = function
        return function

    return decorate
