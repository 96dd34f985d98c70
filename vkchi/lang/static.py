"""Compile-time helpers: `ti.static` and its like, loop hints.

Owns: the objects and what they do in Python scope. In kernels the frontend knows them by identity.

    for k in ti.static(range(3)):
        ti.static_print("unrolled", k)
"""

from __future__ import annotations

from typing import Any

from vkchi.lang.function import Function, kernel_function, python_function


@python_function
def static(x: Any, *xs: Any) -> Any:
    """x, computed while compiling; a list if there are several. Loops over it are unrolled, and
    branches on it compiled only where taken."""
    return [x, *xs] if xs else x


def _static_print(*args: Any, **kwargs: Any) -> None:
    print(*args, **kwargs)


static_print = Function("static_print", _static_print, "Print at compile time.")


@python_function
def static_assert(cond: Any, msg: str | None = None) -> None:
    """Stop compiling unless cond, which must be known then."""
    if not cond:
        raise AssertionError(msg or "static assertion failed")


@kernel_function
def loop_config(
    *,
    block_dim: int | None = None,
    serialize: bool = False,
    parallelize: int | None = None,
    block_dim_adaptive: bool = True,
    bit_vectorize: bool = False,
) -> None:
    """Say how the loop that follows runs: `block_dim` iterations per workgroup, or one by one."""


@kernel_function
def assume_in_range(val: Any, base: Any, low: int, high: int) -> Any:
    """val; a hint that base + low <= val < base + high."""


@kernel_function
def block_local(*args: Any) -> None:
    """A hint to keep parts of fields in fast memory; accepted, without effect."""


@kernel_function
def cache_read_only(*args: Any) -> None:
    """A hint that fields are only read; accepted, without effect."""


@kernel_function
def no_activate(*args: Any) -> None:
    """A hint for sparse fields; accepted, without effect."""
