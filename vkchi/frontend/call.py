"""What kernels may call, and where it is written down.

Owns: the record of a function and the two tables. `intrinsics.py` and `methods.py` fill them when
they are imported, the modules of LATE when a kernel may call what they are about, which few do.
Must not know: any function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
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

# Where functions stand that few programs load -> the module here that puts them into CALLS.
LATE = {
    "vkchi.lang.decompose": "decompositions",
    "vkchi.lang.random": "draw",
    "vkchi.lang.simt": "simt",
}

# A method's name -> handler(cx, self, *args, **kwargs), for values of vectors and matrices.
METHODS: dict[str, Handler] = {}


def find_call(callee: Any) -> Call | None:
    """How a kernel calls an object; None where that is nothing of ours."""
    try:
        found = CALLS.get(callee)
    except TypeError:  # cannot be hashed
        return None
    if found is None:
        fill_late()
    return found or CALLS.get(callee)


def fill_late() -> None:
    """Put into CALLS what stands in modules that are loaded by now."""
    for module, ours in LATE.items():
        if module in sys.modules:
            import_module(f"vkchi.frontend.{ours}")
