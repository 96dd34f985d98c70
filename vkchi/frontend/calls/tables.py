"""Tables of callable functions and methods.

Importing `intrinsics` and `methods` fills the tables. The modules in LATE add rarely used
functions. They are imported at the first lookup that fails after the program imported the
corresponding module of `vkchi.lang`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from vkchi.tuples import NamedTuple

# handler(cx, *args, **kwargs) -> compile-time value
Handler = Callable[..., Any]


class CallHandler(NamedTuple):
    """Handler of a callable, called as `handler(cx, *args, **kwargs)` with compile-time values.

    - Assignable arguments at `targets` (positions and keywords) are passed unread, as Targets.
    - Captured fields become ArrayRefs, unless the handler `takes_fields`.
    """

    handler: Handler
    targets: frozenset[int | str] = frozenset()
    takes_fields: bool = False


# A function object, type or Python builtin -> how a kernel calls it.
CALLS: dict[object, CallHandler] = {}

# Module of rarely used functions -> the module in `ops` that adds them to CALLS.
LATE = {
    "vkchi.lang.linear_algebra.decompose": "decompositions",
    "vkchi.lang.random": "draw",
    "vkchi.lang.simt": "simt",
}

# A method's name -> handler(cx, self, *args, **kwargs), for values of vectors and matrices.
METHODS: dict[str, Handler] = {}


def find_call(callee: Any) -> CallHandler | None:
    """Return the handler of a callable in CALLS, or None. Imports modules of LATE if needed."""
    try:
        found = CALLS.get(callee)
        if found is None:
            fill_late()
            found = CALLS.get(callee)
    except TypeError:  # cannot be hashed
        return None
    return found


def fill_late() -> None:
    """Import each module of LATE whose key is already imported in this process; it fills CALLS."""
    for module, ours in LATE.items():
        if module in sys.modules:
            import_module(f"vkchi.frontend.ops.{ours}")
