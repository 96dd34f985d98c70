"""Lookup of names and dotted names without evaluating an expression.

No op is emitted, and no dependency is recorded.

    is_static_call(cx, n)       # True if n is `ti.static(...)`
"""

from __future__ import annotations

import ast
from collections.abc import Callable
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

    def find(name: str) -> Any:
        var = cx.act.find(name)
        return cx.peek_captured(name) if var is None else var.value

    return look_up(n, find)


def look_up(n: ast.expr, find: Callable[[str], Any]) -> Any:
    """Return the value of a dotted name, by the values that `find` gives for names."""
    if isinstance(n, ast.Name):
        return find(n.id)
    return part_seen(look_up(n.value, find), n.attr) if isinstance(n, ast.Attribute) else None


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
