"""Evaluation of pure ops on numpy values, by the numpy meanings in the op table.

Values are numpy scalars, or arrays of a tensor's shape. They are never modified.

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
    """Return the value of type `t` that an op computes from `args`.

    Call it under `np.errstate(all="ignore")`: numpy warns about cases that are defined here.

    Raises InternalError for an op without a numpy meaning, and if the computed value has another
    dtype or shape than `t`.
    """
    call = _CALLS.get(kind)
    if call is not None:
        result = call(args, attr, t)
    else:
        result = _meaning(kind)(*args)
    return checked_value(result, t, kind)


def is_evaluable(kind: str) -> bool:
    return kind in _CALLS or TABLE[kind].numpy is not None


def checked_value(result: Any, t: Type, kind: str = "value") -> Any:
    """Return `result` as a numpy scalar, or as an array if `t` is a tensor.

    Raises InternalError, which names `kind`, if dtype or shape differ from those of `t`.
    """
    elem = scalar_of(t)
    if type(result) is elem.dtype.type and t is elem:
        return result
    array = np.asarray(result)
    if array.dtype != elem.dtype or array.shape != shape_of(t):
        got = f"{array.dtype}{list(array.shape)}"
        raise InternalError(f"the meaning of `{kind}` gives {got} where {t} is due")
    return array if isinstance(t, Tensor) else array[()]


def zero_of(t: Type) -> Any:
    return checked_value(np.zeros(shape_of(t), scalar_of(t).dtype), t)


def _meaning(kind: str) -> Callable[..., Any]:
    numpy = TABLE[kind].numpy
    if numpy is None:
        raise InternalError(f"`{kind}` has no meaning on values alone")
    return numpy


def _insert(args: Sequence[Any], attr: Any, t: Type) -> Any:
    """Evaluate `insert` (component `attr`) and `insert_at` (component args[2]).

    An out-of-range component leaves the tensor as it is.
    """
    flat = args[0].reshape(-1).copy()
    k = int(args[2]) if attr is None else attr
    if 0 <= k < flat.size:
        flat[k] = args[1]
    return flat.reshape(shape_of(t))


# Ops whose meaning needs the attr or the result type, or that have none in the table.
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
