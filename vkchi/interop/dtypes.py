"""Number types of other libraries and ours. Must not know: devices. Loads torch only when asked.

>>> to_taichi_type(np.float32), to_numpy_type(i8)
(f32, dtype('int8'))
"""

from __future__ import annotations

import importlib.util
from typing import Any

from vkchi.errors import ArgumentError
from vkchi.interrupts.imports import import_whole
from vkchi.types import Scalar, cook, scalar_of_dtype, u1
from vkchi.types.lazy_numpy import np


def to_taichi_type(dtype: Any) -> Scalar:
    """Our type of a numpy or torch dtype, a Python number type, or one of ours.

    Raises ArgumentError for what kernels have no type for.
    """
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
    """The numpy dtype of one of our types. Raises ArgumentError."""
    return to_taichi_type(dtype).dtype


def to_pytorch_type(dtype: Any) -> Any:
    """The torch dtype of one of our types. Raises ArgumentError; ImportError without torch."""
    torch = import_whole("torch")
    t = to_taichi_type(dtype)
    return torch.bool if t is u1 else getattr(torch, t.dtype.name)


def has_pytorch() -> bool:
    """Whether torch is installed."""
    return importlib.util.find_spec("torch") is not None
