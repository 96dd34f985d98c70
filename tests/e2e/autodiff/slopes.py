"""Shared helpers of gradient tests: fields, expected gradients by differences, comparisons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti

X = np.array([0.7, 1.3, 0.4, 1.9])


def field(*shape: int, dtype: Any = ti.f32, values: Any = None) -> Any:
    """A field with a gradient."""
    made = ti.field(dtype, shape, needs_grad=True)
    if values is not None:
        made.from_numpy(np.asarray(values))
    return made


def make(dtype: Any = ti.f32) -> tuple[Any, Any]:
    return field(4, dtype=dtype, values=X), field(dtype=dtype)


def slope(f: Callable[[np.ndarray], Any], x: Any = X) -> np.ndarray:
    """The gradient of the numpy function `f` at x, by central differences in f64."""
    x, step = np.array(x, np.float64), 1e-6
    found = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        more, less = x.copy(), x.copy()
        more[place] += step
        less[place] -= step
        found[place] = (f(more) - f(less)) / (2 * step)
    return found


def is_near(array: Any, want: Any, tolerance: float = 1e-3) -> None:
    """Assert that a field, ndarray or tensor is close to `want`, relative to the largest number
    there."""
    want = np.asarray(want, np.float64)
    scale = max(1.0, float(np.abs(want).max(initial=0.0)))
    got = array.to_numpy() if hasattr(array, "to_numpy") else np.asarray(array)
    np.testing.assert_allclose(got, want, tolerance, tolerance * scale)


def check(x: Any, loss: Any, *kernels: Callable[[], Any], gradient: Any) -> None:
    """Run kernels under a tape, and assert the gradient of the loss by x."""
    with ti.ad.Tape(loss):
        for kernel in kernels:
            kernel()
    is_near(x.grad, gradient)


def refuse(message: str, loss: Any, *kernels: Callable[[], Any]) -> None:
    """Assert that a tape over these kernels raises a compilation error that matches `message`."""
    with pytest.raises(ti.TaichiCompilationError, match=message), ti.ad.Tape(loss):
        for kernel in kernels:
            kernel()
