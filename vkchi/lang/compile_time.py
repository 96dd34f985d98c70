"""Compile-time helpers (`ti.static` and the like) and loop hints.

The function bodies are the behaviour in Python scope. In kernels, the frontend recognizes the
functions by identity.

    for k in ti.static(range(3)):
        ti.static_print("unrolled", k)
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from vkchi.lang.function import Function, kernel_function, python_function


@python_function
def static(x: Any, *xs: Any) -> Any:
    """x, evaluated at compile time; with several arguments, the list of x and xs.

    In a kernel, loops over it are unrolled, and of branches on it only the taken one is compiled.
    """
    return [x, *xs] if xs else x


def _static_print(*args: Any, **kwargs: Any) -> None:
    print(*args, **kwargs)


static_print = Function("static_print", _static_print, "Print at compile time.")


@python_function
def static_assert(cond: Any, msg: str | None = None) -> None:
    """Fail the compilation with `msg` if cond, a compile-time constant, is false.

    In Python scope: raise AssertionError.
    """
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
    name: str | None = None,
) -> None:
    """Configure the next loop: `block_dim` iterations per workgroup (1 to 1024), or `serialize` for
    sequential execution. The profiler shows the `name` of a parallel loop. The other options have
    no effect."""


@kernel_function
def do_while(flag: Any) -> Any:
    """The condition of a `while` at the top level of a kernel with graph=True: its body runs once,
    and again while the flag, an array of one integer, is not 0."""


@python_function
def parallel() -> nullcontext[None]:
    """Context of statements that may run concurrently with those of other such contexts: `with
    ti.graph.parallel():`. They run in order."""
    return nullcontext()


@python_function
def parallel_context() -> nullcontext[None]:
    """Context around those of `parallel`: `with ti.graph.parallel_context():`."""
    return nullcontext()


@python_function
def stream_parallel() -> nullcontext[None]:
    """Context of loops that may run concurrently with those of other such contexts. They run in
    order."""
    return nullcontext()


@kernel_function
def assume_in_range(val: Any, base: Any, low: int, high: int) -> Any:
    """val; a hint that base + low <= val < base + high, accepted without effect."""


@kernel_function
def block_local(*args: Any) -> None:
    """A hint to cache parts of fields in shared memory; accepted without effect."""


@kernel_function
def cache_read_only(*args: Any) -> None:
    """A hint that fields are only read; accepted without effect."""


@kernel_function
def no_activate(*args: Any) -> None:
    """Let the next loop not activate cells of sparse blocks (args). It does not write elements of
    inactive cells.

    Raises KernelTypeError for arguments that are neither blocks nor fields.
    """
