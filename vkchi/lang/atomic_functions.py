"""Atomic operations on array elements: `ti.atomic_add(x[i], v)` returns the old value."""

from __future__ import annotations

from typing import Any

from vkchi.lang.function import Function, kernel_function


@kernel_function
def atomic_add(x: Any, y: Any) -> Any:
    """Atomic `x += y`; returns the old x."""


@kernel_function
def atomic_sub(x: Any, y: Any) -> Any:
    """Atomic `x -= y`; returns the old x."""


@kernel_function
def atomic_mul(x: Any, y: Any) -> Any:
    """Atomic `x *= y`; returns the old x."""


@kernel_function
def atomic_min(x: Any, y: Any) -> Any:
    """Atomic `x = min(x, y)`; returns the old x."""


@kernel_function
def atomic_max(x: Any, y: Any) -> Any:
    """Atomic `x = max(x, y)`; returns the old x."""


@kernel_function
def atomic_and(x: Any, y: Any) -> Any:
    """Atomic `x &= y` for integers; returns the old x."""


@kernel_function
def atomic_or(x: Any, y: Any) -> Any:
    """Atomic `x |= y` for integers; returns the old x."""


@kernel_function
def atomic_xor(x: Any, y: Any) -> Any:
    """Atomic `x ^= y` for integers; returns the old x."""


@kernel_function
def atomic_exchange(x: Any, y: Any) -> Any:
    """Atomic `x = y`; returns the old x."""


@kernel_function
def atomic_cas(x: Any, expected: Any, desired: Any) -> Any:
    """Compare and swap, for integers: atomic `x = desired` if x == expected; returns the old x."""


ATOMICS: tuple[Function, ...] = (
    atomic_add, atomic_sub, atomic_mul, atomic_min, atomic_max, atomic_and, atomic_or, atomic_xor,
    atomic_exchange, atomic_cas,
)  # fmt: skip
