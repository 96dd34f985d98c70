"""Iteration at compile time, for unrolled loops, comprehensions, unpacking and `sum`.

Vectors give their components, matrices their rows, structs their members. Other Python objects give
the items of Python's iteration.

    items_of(cx, v, "unpack")       # the components of a vector
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from vkchi.frontend.context import Lowering
from vkchi.frontend.values.kinds import (
    check_supported,
    defines,
    kind_of,
    name_of,
)
from vkchi.lang.struct import Struct

Begin = Callable[[Any], Iterable[Any]]


def items_of(cx: Lowering, x: Any, use: str = "items", most: int | None = None) -> list[Any]:
    """Return the items of x, at most `most` if given.

    `use` is a key of kinds.USES, for the message. If x is not iterable, raises KernelSyntaxError if
    `use` is "unpack", else KernelTypeError.
    """
    own = own_items(cx, x, use)
    return cx.items_of(x, most) if own is None else own[:most]


def lazy_items(cx: Lowering, x: Any, begin: Begin = iter, use: str = "items") -> Iterable[Any]:
    """Return the items of x, lazily for a Python object; `begin` is `iter` or `reversed`.

    Raises KernelTypeError if x is not iterable, or cannot be reversed.
    """
    own = own_items(cx, x, use)
    if own is not None:
        return begin(own)
    if begin is reversed and not is_reversible(x):
        raise cx.fail(f"{name_of(x)} has no order to reverse", help="write reversed(list(x))")
    return cx.iterate(x, begin)


def is_reversible(x: Any) -> bool:
    is_sequence = defines(x, "__len__") and defines(x, "__getitem__")
    return defines(x, "__reversed__") or (is_sequence and not isinstance(x, Struct))


def own_items(cx: Lowering, x: Any, use: str) -> list[Any] | None:
    """Return the items of a vector, matrix or struct; None if Python iterates over the object.

    Raises KernelTypeError or KernelSyntaxError, as `items_of`, if x is not iterable.
    """
    x = kind_of(x).load(cx, x)
    return check_supported(cx, x, use).items(cx, x, use)
