"""Iteration at compile time, for unrolled loops, comprehensions, unpacking and `sum`.

Vectors give their components, matrices their rows, structs their members. Other Python objects give
the items of Python's iteration.

    items_of(cx, v, "unpack")       # the components of a vector
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from vkchi.frontend.context import Lowering
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.values.kinds import (
    check_supported,
    defines,
    is_iterable,
    kind_of,
    name_of,
    unsupported_use,
)
from vkchi.frontend.values.trees import StructValue, children_of
from vkchi.ir.core import Value
from vkchi.lang.matrix import Matrix
from vkchi.lang.ndrange import grouped
from vkchi.lang.struct import Struct
from vkchi.types import Tensor

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
    if kind_of(x).is_target:
        x = x.load(cx)
    check_supported(cx, x, use)
    if isinstance(x, Value):
        return rows_of(cx, x)
    if isinstance(x, Matrix):
        return list(x.to_list())
    if isinstance(x, grouped):
        check_supported(cx, x.inner, use)
    if isinstance(x, StructValue) and not isinstance(x.type, type):
        return children_of(x)
    if isinstance(x, StructValue) or not is_iterable(x):
        raise unsupported_use(cx, x, use)
    return None


def rows_of(cx: Lowering, x: Value) -> list[Any]:
    """Return the components of a kernel vector, or the rows of a kernel matrix."""
    parts = operator_lowering.components(cx, x)
    assert isinstance(x.type, Tensor)
    if len(x.type.shape) == 1:
        return list(parts)
    width = x.type.shape[1]
    rows = range(0, len(parts), width)
    return [operator_lowering.value(cx, list(parts[k : k + width])) for k in rows]
