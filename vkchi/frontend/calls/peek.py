"""Lookup of names and dotted names without evaluating an expression.

No op is emitted, and no dependency is recorded.

    is_static_call(cx, n)       # True if n is `ti.static(...)`
"""

from __future__ import annotations

import ast
from typing import Any

from vkchi.compile_state import ArrayGuard
from vkchi.frontend.context import Lowering
from vkchi.frontend.values.kinds import kind_of
from vkchi.frontend.values.python_values import is_computed
from vkchi.interrupts.local import local
from vkchi.lang.compile_time import static


def peek(cx: Lowering, n: ast.expr) -> Any:
    """Return the compile-time value that a name or dotted name denotes.

    For a variable it is the value held, possibly of the kernel. None for other expressions, and if
    unknown.
    """
    if isinstance(n, ast.Name):
        var = cx.act.find(n.id)
        return cx.peek_captured(n.id) if var is None else var.value
    if isinstance(n, ast.Attribute):
        return part_seen(peek(cx, n.value), n.attr)
    return None


def part_seen(base: Any, name: str) -> Any:
    """Return the value that `base.name` denotes; None if only lowering knows it.

    None also if a property raises.
    """
    seen = None if base is None else kind_of(base).peek(base, name)
    if seen is not NotImplemented:
        return seen
    try:
        if not is_computed(base, name):
            return getattr(base, name, None)
        with ArrayGuard() as guard:
            found = getattr(base, name, None)
        return None if guard.is_tripped else found
    except local(Exception):  # a property raised: reported where the name is read
        return None


def is_static_call(cx: Lowering, n: ast.expr) -> bool:
    return isinstance(n, ast.Call) and peek(cx, n.func) is static
