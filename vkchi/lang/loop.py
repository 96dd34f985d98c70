"""Loops of our own Python functions, which build kernel code: `repeat`.

Owns: what it does in Python scope. A Python loop over traced values would be unrolled. Must not
know: how kernels do it (frontend/decompositions.py).

    >>> repeat(lambda x: (x / 2, x > 2), (16.0,), 100)
    [1.0]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vkchi.lang.function import python_function


@python_function
def repeat(step: Callable[..., Any], state: Any, most: int) -> list[Any]:
    """What is left of `state`, a list of values, after `step(*state)`, which gives the next ones
    and whether to go on, was called until it says no, `most` times at most."""
    goes_on = True
    for _ in range(most):
        if not goes_on:
            break
        *state, goes_on = step(*state)
    return list(state)
