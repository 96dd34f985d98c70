"""Random numbers in kernels: each invocation has a stream of its own, seeded by `ti.init`."""

from __future__ import annotations

from typing import Any

from vkchi.lang.function import kernel_function


@kernel_function
def random(dtype: Any = float) -> Any:
    """A float in [0, 1), or an integer of `dtype` with every bit random."""


@kernel_function
def randn(dt: Any = None) -> Any:
    """A float of the standard normal distribution."""
