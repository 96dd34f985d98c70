"""Python functions with custom gradients: the decorators `grad_replaced`, `grad_for`, `no_grad`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from vkchi.errors import KernelRuntimeError
from vkchi.hooks import python_scope
from vkchi.runtime import current_runtime


class Recorded:
    """A Python function that tapes record as one call, or (`is_skipped`) do not differentiate.

    `grad` is its gradient, which takes the same arguments; None before it is defined. A function
    that is skipped has one that does nothing.
    """

    __vkchi_kind__ = "recorded"

    def __init__(self, function: Callable[..., Any], *, is_skipped: bool) -> None:
        functools.update_wrapper(self, function)
        self.is_skipped = is_skipped
        self.grad: Callable[..., Any] | None = do_nothing if is_skipped else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tape = current_runtime().tape
        if tape is None or tape.is_paused:
            return self.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]
        return tape.call_custom(self, args, kwargs)

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return self if obj is None else BoundRecorded(self, obj)


class BoundRecorded(functools.partial[Any]):
    @property
    def grad(self) -> Any:
        gradient = self.func.grad  # type: ignore[attr-defined]
        return None if gradient is None else functools.partial(gradient, *self.args)


def do_nothing(*args: Any, **kwargs: Any) -> None:
    pass


@python_scope
def grad_replaced(function: Callable[..., Any]) -> Recorded:
    """Decorator: mark a Python function whose gradient is defined with `grad_for`.

    A tape records the call as a whole, not the kernels in it.

    Args:
        function: a Python function that calls kernels.

    Returns:
        The marked function, called like `function`.
    """
    return Recorded(function, is_skipped=False)


@python_scope
def no_grad(function: Callable[..., Any]) -> Recorded:
    """Decorator: mark a Python function that tapes do not differentiate.

    Args:
        function: a Python function that calls kernels.

    Returns:
        The marked function, called like `function`.
    """
    return Recorded(function, is_skipped=True)


@python_scope
def grad_for(primal: Recorded) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: define the gradient of `primal`, a function decorated with `grad_replaced`.

    Args:
        primal: the function. The gradient takes the same arguments.

    Returns:
        A decorator that returns the gradient function unchanged.

    Raises:
        KernelRuntimeError: for other functions, including those of `no_grad`, and if `primal` has a
            gradient already.
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
