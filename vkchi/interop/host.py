"""Arrays in host memory that other libraries own: numpy arrays and CPU torch tensors.

Owns: telling them apart without importing torch, viewing them as numpy. Must not know: devices.

    >>> view_of(np.zeros(3)).shape
    (3,)
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from vkchi.errors import ArgumentError
from vkchi.types import Scalar, cook


def is_torch(obj: Any) -> bool:
    """Whether obj is a torch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(obj, torch.Tensor)


def view_of(obj: Any) -> np.ndarray[Any, Any] | None:
    """The object's memory as a numpy array sharing it, or None for objects that are no array.

    Raises ArgumentError for tensors that are not in host memory.
    """
    if isinstance(obj, np.ndarray):
        return obj
    return array_of_torch(obj) if is_torch(obj) else None


def array_of_torch(tensor: Any) -> np.ndarray[Any, Any]:
    """A numpy view of a CPU tensor, detached. Raises ArgumentError for one on another device."""
    if not is_torch(tensor):
        raise ArgumentError(f"a torch tensor is needed, not {type(tensor).__name__}")
    if tensor.device.type != "cpu":
        raise ArgumentError(
            f"a tensor on {tensor.device} cannot be used directly yet: pass tensor.cpu()"
        )
    view: np.ndarray[Any, Any] = tensor.detach().numpy()
    return view


def make_torch(values: np.ndarray[Any, Any], device: Any) -> Any:
    """A torch tensor of these values. Raises ImportError where torch is not installed."""
    import torch

    tensor = torch.from_numpy(values)
    return tensor if device is None else tensor.to(device)


def numpy_dtype(dtype: Any) -> Any:
    """The numpy dtype of one of our types, or of whatever numpy understands."""
    cooked = cook(dtype)
    return cooked.dtype if isinstance(cooked, Scalar) else dtype
