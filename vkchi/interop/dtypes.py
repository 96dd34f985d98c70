"""Conversion between vkchi's scalar types and the dtypes of numpy and torch.

Only `to_pytorch_type` imports torch.

    >>> to_taichi_type(np.float32), to_numpy_type(i8)
    (f32, dtype('int8'))
"""

from __future__ import annotations

import importlib.util
from typing import Any

from vkchi.errors import ArgumentError
from vkchi.interrupts.imports import import_uninterrupted
from vkchi.types import Scalar, cook, scalar_of_dtype, u1
from vkchi.types.lazy_numpy import np


def to_taichi_type(dtype: Any) -> Scalar:
    """Convert a numpy or torch dtype, a Python number type, or a scalar type to a scalar type of
    vkchi. Raises ArgumentError for other arguments, vector and matrix types included."""
    t = cook(dtype)
    if isinstance(t, Scalar):
        return t
    name = str(dtype).rpartition(".")[2]  # torch.float32
    try:
        found = scalar_of_dtype(np.dtype(name))
    except TypeError:
        found = None
    if found is None:
        raise ArgumentError(f"kernels have no number type for {dtype!r}")
    return found


def to_numpy_type(dtype: Any) -> np.dtype[Any]:
    """Convert `dtype`, of any kind that `to_taichi_type` accepts, to a numpy dtype. Raises
    ArgumentError."""
    return to_taichi_type(dtype).dtype


def to_pytorch_type(dtype: Any) -> Any:
    """Convert `dtype`, of any kind that `to_taichi_type` accepts, to a torch dtype. Raises
    ArgumentError, also if the installed torch has no such dtype; ImportError without torch."""
    torch = import_uninterrupted("torch")
    t = to_taichi_type(dtype)
    name = "bool" if t is u1 else t.dtype.name
    if not hasattr(torch, name):
        raise ArgumentError(f"torch {torch.__version__} has no dtype {name}")
    return getattr(torch, name)


def has_pytorch() -> bool:
    """True if torch is installed."""
    return importlib.util.find_spec("torch") is not None
