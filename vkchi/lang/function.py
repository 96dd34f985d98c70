"""Function objects of the language: callable in Python scope, recognized by identity in kernels.

Composites such as `mix` are Python functions that serve both scopes. In a kernel,
arguments that are kernel values are `Traced`; compile-time constants stay Python objects. A
Function called with a `Traced` argument passes the call to `Traced.apply` instead of computing.

    @composite
    def mix(x, y, a):
        return x * (1.0 - a) + y * a
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from vkchi.errors import KernelSyntaxError
from vkchi.hooks import PACKAGE, load_place

if TYPE_CHECKING:
    from vkchi.protocols import Language

P = ParamSpec("P")
R = TypeVar("R")


class Traced:
    """Symbolic kernel value, passed to this package's Python functions while they build kernel
    code."""

    __slots__ = ()

    def apply(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of a call of `fn` inside the kernel; args may be Traced. Subclasses
        define it."""
        raise NotImplementedError


class Function:
    """A function of the language.

    `python` computes in Python scope. It is None if only kernels may call the function: other calls
    raise KernelSyntaxError. `is_composite`: `python` consists of Functions and operators only.
    """

    def __init__(
        self,
        name: str,
        python: Callable[..., Any] | None,
        doc: str | None = "",
        *,
        is_composite: bool = False,
    ) -> None:
        self.__name__, self.__doc__, self.python = name, doc, python
        self.is_composite = is_composite

    def __repr__(self) -> str:
        return f"<function ti.{self.__name__}>"

    def __reduce__(self) -> Any:
        """Pickle by the name of a module of vkchi that has the function. Raises TypeError without
        one."""
        for module in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            for name, value in list(vars(sys.modules[module]).items()):
                if value is self:
                    return load_place, ((module.partition(".")[2], name),)
        raise TypeError(f"{self!r} is in no module, and is not pickled")

    def __deepcopy__(self, memo: Any) -> Function:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        traced = find_traced((*args, *kwargs.values()))
        if traced is not None:
            return traced.apply(self, args, kwargs)
        if self.python is None:
            raise KernelSyntaxError(f"`{self.__name__}` can only be called inside a kernel")
        return self.python(*args, **kwargs)


def find_traced(args: tuple[Any, ...] | list[Any]) -> Traced | None:
    """Return the first Traced among the args, nested lists and tuples included; None if there is
    none."""
    for arg in args:
        if isinstance(arg, Traced):
            return arg
        if isinstance(arg, list | tuple) and (found := find_traced(arg)) is not None:
            return found
    return None


def language_function(name: str, python: Callable[..., Any] | None, doc: str | None) -> Any:
    return Function(name, python, doc)


def with_type_of(made: Any, fn: Callable[P, R]) -> Language[P, R]:
    told: Language[P, R] = made
    return told


def composite(fn: Callable[P, R]) -> Language[P, R]:
    """Decorator: make a Function whose body, of operators and other Functions, serves both
    scopes."""
    return with_type_of(Function(fn.__name__, fn, fn.__doc__, is_composite=True), fn)


def python_function(fn: Callable[P, R]) -> Language[P, R]:
    """Decorator: make a Function whose body computes in Python scope; the frontend lowers it for
    kernels."""
    return with_type_of(Function(fn.__name__, fn, fn.__doc__), fn)


def kernel_function(fn: Callable[P, R]) -> Language[P, R]:
    """Decorator: make a Function that only kernels may call; the body is unused."""
    return with_type_of(Function(fn.__name__, None, fn.__doc__), fn)


@python_function
def repeat(step: Callable[..., Any], state: Any, most: int) -> list[Any]:
    """Iterate `*state, goes_on = step(*state)` until `goes_on` is false, at most `most` times.

    Return the last state, without `goes_on`, as a list. A Python loop over traced values is
    unrolled; this becomes a loop of the kernel (`frontend/ops/decompositions.py`).

        >>> repeat(lambda x: (x / 2, x > 2), (16.0,), 100)
        [1.0]
    """
    goes_on = True
    for _ in range(most):
        if not goes_on:
            break
        *state, goes_on = step(*state)
    return list(state)
