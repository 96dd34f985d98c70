"""Loops in Python functions that build kernel code: `repeat`.

A Python loop over traced values is unrolled; `repeat` becomes a loop of the kernel.

    >>> repeat(lambda x: (x / 2, x > 2), (16.0,), 100)
    [1.0]

See also: `frontend/ops/decompositions.py` lowers it in kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vkchi.lang.function import python_function


@python_function
def repeat(step: Callable[..., Any], state: Any, most: int) -> list[Any]:
    """Iterate `*state, goes_on = step(*state)` until `goes_on` is false, at most `most` times.

    Return the last state, without `goes_on`, as a list.
    """
    goes_on = True
    for _ in range(most):
        if not goes_on:
            break
        *state, goes_on = step(*state)
    return list(state)
