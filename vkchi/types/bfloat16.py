"""bfloat16 (`bf16`): the high 16 bits of an f32, rounded to nearest, ties to even.

Numpy has no such type. In memory a bf16 is a 16-bit integer (`Scalar.memory_dtype`); values are
arrays of f32, which holds every bf16 exactly. Arrays of other libraries (torch, ml_dtypes) are
views of dtype `raw_dtype()`, a structure that numpy does not compute with.

    >>> encode(np.float32(1.0)), decode(np.uint16(0x3F80))
    (np.uint16(16256), np.float32(1.0))
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from vkchi.types.core import Scalar, bf16
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAME = "bfloat16"  # of the dtype in other libraries


@cache
def raw_dtype() -> np.dtype[Any]:
    """The dtype of views of other libraries' bf16 memory: a structure of one 16-bit integer."""
    return np.dtype([(NAME, np.uint16)])


def as_raw(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of the dtype of ml_dtypes as a view of `raw_dtype`, another unchanged."""
    return array.view(raw_dtype()) if array.dtype.name == NAME else array


def as_values(array: NDArray[Any]) -> NDArray[Any]:
    """Return the f32 values of an array of `raw_dtype` or of ml_dtypes, another unchanged."""
    raw = as_raw(array)
    return decode(raw[NAME]) if raw.dtype == raw_dtype() else array


def encode(values: Any) -> Any:
    """Round numbers to bf16, by way of f32, and return their bits as u16.

    Values of bf16 keep their bits. Another NaN gets its quiet bit set.
    """
    with np.errstate(all="ignore"):
        bits = np.asarray(values).astype(np.float32).view(np.uint32)
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    nearest = np.where(is_nan, 0, bits) + (np.uint32(0x7FFF) + ((bits >> 16) & 1))
    kept = np.where(is_nan, bits | np.uint32(0x400000), nearest)
    kept = np.where((bits & 0xFFFF) == 0, bits, kept)
    return (kept >> 16).astype(np.uint16)[()]


def decode(words: Any) -> Any:
    """Return the f32 values of bf16 numbers, given as u16."""
    return (np.asarray(words).astype(np.uint32) << 16).view(np.float32)[()]


def convert(values: Any, t: Scalar) -> Any:
    """Cast a numpy array, or scalar, to type t as `astype` does; to bf16 it rounds f32 values."""
    return decode(encode(values)) if t is bf16 else values.astype(t.dtype)
