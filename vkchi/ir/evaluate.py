"""What a pure op makes of numpy values: the op table's meaning, checked to be of the op's type.

The reference interpreter computes through here (the constant folder has its own way to call a row;
tests/ops compares the two). Values are numpy scalars, and arrays of a tensor's shape; none is ever
written to.
Must not know: Ops, memory, control.

    >>> evaluate("add", (np.int32(2**31 - 1), np.int32(1)), None, i32)
    np.int32(-2147483648)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vkchi.errors import InternalError
from vkchi.ir.ops import TABLE
from vkchi.types import Scalar, Tensor, Type, scalar_of, shape_of
from vkchi.types.lazy_numpy import np

Call = Callable[[Sequence[Any], Any, Type], Any]


def evaluate(kind: str, args: Sequence[Any], attr: Any, t: Type) -> Any:
    """The value of type t that an op makes of `args`. Raises InternalError for an op that has no
    meaning on values alone, or whose row gives another dtype or shape than t's.

    Call it under `np.errstate(all="ignore")`: numpy warns about what here is defined.
    """
    call = _CALLS.get(kind)
    if call is not None:
        result = call(args, attr, t)
    else:
        result = _meaning(kind)(*args)
    return as_value(result, t, kind)


def is_evaluable(kind: str) -> bool:
    """Whether `evaluate` can compute the op."""
    return kind in _CALLS or TABLE[kind].numpy is not None


def as_value(result: Any, t: Type, kind: str = "value") -> Any:
    """A numpy result as a value of type t. Raises InternalError if it is not one."""
    elem = scalar_of(t)
    if type(result) is elem.dtype.type and t is elem:
        return result
    array = np.asarray(result)
    if array.dtype != elem.dtype or array.shape != shape_of(t):
        got = f"{array.dtype}{list(array.shape)}"
        raise InternalError(f"the meaning of `{kind}` gives {got} where {t} is due")
    return array if isinstance(t, Tensor) else array[()]


def zero_of(t: Type) -> Any:
    """The value of type t that is zero everywhere."""
    return as_value(np.zeros(shape_of(t), scalar_of(t).dtype), t)


def _meaning(kind: str) -> Callable[..., Any]:
    numpy = TABLE[kind].numpy
    if numpy is None:
        raise InternalError(f"`{kind}` has no meaning on values alone")
    return numpy


def _insert(args: Sequence[Any], attr: Any, t: Type) -> Any:
    """`insert` (component `attr`) and `insert_at` (component args[2]; none if it is outside)."""
    flat = args[0].reshape(-1).copy()
    k = int(args[2]) if attr is None else attr
    if 0 <= k < flat.size:
        flat[k] = args[1]
    return flat.reshape(shape_of(t))


# Rows whose meaning takes more than the arguments, or that have none in the table.
_CALLS: dict[str, Call] = {
    "cast": lambda args, attr, t: _meaning("cast")(args[0], _dtype(t)),
    "bitcast": lambda args, attr, t: _meaning("bitcast")(args[0], _dtype(t)),
    "splat": lambda args, attr, t: _meaning("splat")(args[0], shape_of(t)),
    "pack": lambda args, attr, t: _meaning("pack")(*args, shape=shape_of(t)),
    "extract": lambda args, attr, t: _meaning("extract")(args[0], attr),
    "insert": _insert,
    "insert_at": _insert,
}


def _dtype(t: Type) -> np.dtype[Any]:
    elem: Scalar = scalar_of(t)
    return elem.dtype
