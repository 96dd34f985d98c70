"""What kernels may call, and where it is written down.

Owns: the record of a function and the two tables. `intrinsics.py`, `simt.py`, `draw.py` and
`methods.py` fill them when they are imported; nothing is added later. Must not know: any function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vkchi.tuples import NamedTuple

# handler(cx, *args, **kwargs) -> compile-time value
Handler = Callable[..., Any]


class Call(NamedTuple):
    """`handler` gets the context and compile-time values, those at `targets` (positions and
    keywords) unread (Targets)."""

    handler: Handler
    targets: frozenset[int | str] = frozenset()


# A function object, type or Python builtin -> how a kernel calls it.
CALLS: dict[object, Call] = {}

# A method's name -> handler(cx, self, *args, **kwargs), for values of vectors and matrices.
METHODS: dict[str, Handler] = {}
