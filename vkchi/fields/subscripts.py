"""Validation of Python subscripts and of element shapes.

lies_inside((1, 2), (4, 4))     # True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentShapeError, ArrayIndexTypeError

if TYPE_CHECKING:
    import numpy as np


def lies_inside(key: tuple[Any, ...], shape: tuple[int, ...]) -> bool:
    """True if a key is an in-range index of Python integers for an array of this shape."""
    if len(key) != len(shape):
        return False
    for k, n in zip(key, shape):  # noqa: SIM110  # `all` takes twice as long
        if type(k) is not int or not 0 <= k < n:
            return False
    return True


def check_integer(k: Any) -> None:
    """Raise ArrayIndexTypeError for a slice, a float, and any other object that is no integer."""
    if isinstance(k, slice):
        raise ArrayIndexTypeError("arrays have no slices in Python: take x.to_numpy()[...]")
    if isinstance(k, float) or not hasattr(k, "__index__"):
        raise ArrayIndexTypeError(f"indices are integers here, not {k!r}")


def without_column(shape: tuple[int, ...]) -> tuple[int, ...]:
    """(n,) for the shape (n, 1) of a one-column matrix; other shapes unchanged."""
    return shape[:1] if shape[1:] == (1,) else shape


def fit_element_shape(values: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The values reshaped to `shape`; a scalar is returned unchanged. (n,) and (n, 1) fit each
    other. Raises ArgumentShapeError for other shapes."""
    if values.ndim == 0 or values.shape == shape:
        return values
    if without_column(values.shape) == without_column(shape):
        return values.reshape(shape)
    raise ArgumentShapeError(f"shape {shape} is needed here, not {values.shape}")
