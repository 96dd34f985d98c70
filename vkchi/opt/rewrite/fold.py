"""Constant folding: evaluate an op with constant operands by its numpy meaning in the op table.

Evaluation is in the op's own type; constants are bit patterns and never become Python floats.
Integer division by zero is not folded, since devices may return anything.

    >>> fold("add", (Constant(i32, 0x7FFFFFFF), Constant(i32, 1)), None, i32) == 0x80000000
    True
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from vkchi.errors import InternalError
from vkchi.ir.core import Constant, Number, constant_attr, value_of
from vkchi.ir.ops import DIVISIONS, TABLE, Effect
from vkchi.types import Scalar, scalar_of, shape_of
from vkchi.types.lazy_numpy import np

_EXTRA: dict[str, Callable[[Any, Number], dict[str, Any]]] = {
    "cast": lambda attr, t: {"dtype": scalar_of(t).dtype},
    "bitcast": lambda attr, t: {"dtype": scalar_of(t).dtype},
    "splat": lambda attr, t: {"shape": shape_of(t)},
    "pack": lambda attr, t: {"shape": shape_of(t)},
    "extract": lambda attr, t: {"k": attr},
}

FOLDABLE = frozenset(
    kind for kind, row in TABLE.items() if row.numpy is not None and row.effect is Effect.PURE
)


def array_of(c: Constant) -> Any:
    if isinstance(c.type, Scalar):
        return value_of(c.attr, c.type)
    elem = c.type.elem
    return np.array([value_of(bits, elem) for bits in c.attr], elem.dtype).reshape(c.type.shape)


@lru_cache(maxsize=8192)
def fold(kind: str, args: tuple[Constant, ...], attr: Any, t: Number) -> Any:
    """Return the `const` attr of the op's result, or None for an integer division by zero in any
    component. Cached.

    Precondition: the op is FOLDABLE. Raises InternalError if the numpy result does not have type
    `t`.
    """
    row = TABLE[kind]
    if kind in DIVISIONS and scalar_of(t).kind != "f" and has_zero(args[1]):
        return None
    assert row.numpy is not None
    if kind == "bitcast" and scalar_of(t).kind != "b":
        return args[0].attr
    extra = _EXTRA[kind](attr, t) if kind in _EXTRA else {}
    with np.errstate(all="ignore"):
        value = np.asarray(row.numpy(*map(array_of, args), **extra))
    if value.dtype != scalar_of(t).dtype or value.shape != shape_of(t):
        raise InternalError(f"`{kind}` folds to {value.dtype}{list(value.shape)}, not to {t}")
    return constant_attr(value, t)


def has_zero(c: Constant) -> bool:
    return c.attr == 0 if isinstance(c.type, Scalar) else 0 in c.attr
