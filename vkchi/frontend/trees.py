"""Compile-time values as trees: lists, tuples and dicts whose leaves may be kernel values.

Owns: taking leaves out, putting others in. Must not know: variables, AST classes.

    >>> leaves([1, (v, w)]) == [v, w]
    True
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from vkchi.ir.core import Value


def map_leaves(tree: Any, f: Callable[[Any], Any]) -> Any:
    """The same tree with f applied to everything in it that is not a list, tuple or dict."""
    if isinstance(tree, list):
        return [map_leaves(item, f) for item in tree]
    if type(tree) is tuple:
        return tuple([map_leaves(item, f) for item in tree])
    if isinstance(tree, dict):
        return {key: map_leaves(item, f) for key, item in tree.items()}
    return f(tree)


def has_leaf(tree: Any, holds: Callable[[Any], bool]) -> bool:
    """Whether `holds` is true of some leaf."""
    if is_container(tree):
        items = tree.values() if isinstance(tree, dict) else tree
        return any(has_leaf(item, holds) for item in items)
    return holds(tree)


def leaves(tree: Any) -> list[Value]:
    """The kernel values in the tree, in order."""
    if isinstance(tree, Value):
        return [tree]
    found: list[Value] = []
    map_leaves(tree, lambda leaf: found.append(leaf) if isinstance(leaf, Value) else None)
    return found


def refill(tree: Any, values: Iterator[Value]) -> Any:
    """The tree with its kernel values replaced by the next ones of `values`."""
    if isinstance(tree, Value):
        return next(values)
    return map_leaves(tree, lambda leaf: next(values) if isinstance(leaf, Value) else leaf)


def is_same(a: Any, b: Any) -> bool:
    """Whether two compile-time leaves are the same: one object, or equal numbers or texts of one
    type (0.0 and -0.0 differ, nan is nan)."""
    if a is b:
        return True
    if type(a) is not type(b) or not isinstance(a, int | float | str | bytes):
        return False
    return a == b and repr(a) == repr(b) if a == a else b != b


def is_container(x: Any) -> bool:
    """Whether x is a tree with branches."""
    return isinstance(x, list | dict) or type(x) is tuple


def same_branches(a: Any, b: Any) -> bool:
    """Whether two trees are of one kind with the same keys or length."""
    if type(a) is not type(b) or not is_container(a):
        return False
    return a.keys() == b.keys() if isinstance(a, dict) else len(a) == len(b)
