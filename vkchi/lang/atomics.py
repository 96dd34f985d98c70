"""Atomic operations on array elements: `ti.atomic_add(x[i], v)` gives what stood there before."""

from __future__ import annotations

from typing import Any

from vkchi.lang.function import Function, kernel_function


@kernel_function
def atomic_add(x: Any, y: Any) -> Any:
    """x += y at once; gives the old x."""


@kernel_function
def atomic_sub(x: Any, y: Any) -> Any:
    """x -= y at once; gives the old x."""


@kernel_function
def atomic_mul(x: Any, y: Any) -> Any:
    """x *= y at once; gives the old x."""


@kernel_function
def atomic_min(x: Any, y: Any) -> Any:
    """x = min(x, y) at once; gives the old x."""


@kernel_function
def atomic_max(x: Any, y: Any) -> Any:
    """x = max(x, y) at once; gives the old x."""


@kernel_function
def atomic_and(x: Any, y: Any) -> Any:
    """x &= y at once, for integers; gives the old x."""


@kernel_function
def atomic_or(x: Any, y: Any) -> Any:
    """x |= y at once, for integers; gives the old x."""


@kernel_function
def atomic_xor(x: Any, y: Any) -> Any:
    """x ^= y at once, for integers; gives the old x."""


ATOMICS: tuple[Function, ...] = (
    atomic_add, atomic_sub, atomic_mul, atomic_min, atomic_max, atomic_and, atomic_or, atomic_xor,
)  # fmt: skip
