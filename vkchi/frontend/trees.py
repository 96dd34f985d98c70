"""Compile-time values as trees: lists, tuples, dicts and structs whose leaves may be kernel values.

Owns: taking leaves out, putting others in; `Record`, what a struct is in a kernel. Must not know:
variables, AST classes.

    >>> leaves([1, (v, w)]) == [v, w]
    True
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

from vkchi.interrupts.local import local
from vkchi.ir.core import Value


class Record:
    """A struct in a kernel: members by name, each a tree. `methods` are those of its type, which is
    `type`, None of an anonymous struct. `objects`: which of those that are shared by their names it
    may be (`identity`)."""

    __slots__ = ("members", "methods", "objects", "type")

    def __init__(
        self, members: dict[str, Any], methods: Any = None, type: Any = None,
        objects: frozenset[object] = frozenset(),
    ) -> None:  # fmt: skip
        self.members, self.methods, self.type = members, methods or {}, type
        self.objects = objects

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, name: str) -> Any:
        return self.members[name]

    def __setitem__(self, name: str, x: Any) -> None:
        self.members[name] = x

    def keys(self) -> Any:
        """The members' names."""
        return self.members.keys()

    def copy(self) -> Record:
        """The same struct, whose members can be replaced one by one."""
        return type(self)(dict(self.members), self.methods, self.type, self.objects)


_CONTAINERS = (list, dict, Record)


def is_container(x: Any) -> bool:
    """Whether x is a tree with branches."""
    return isinstance(x, _CONTAINERS) or type(x) is tuple


def branches(tree: Any) -> list[Any]:
    """What a container holds, in order."""
    if isinstance(tree, Record):
        return list(tree.members.values())
    return list(tree.values()) if isinstance(tree, dict) else list(tree)


def with_branches(tree: Any, items: Sequence[Any]) -> Any:
    """A container of the same kind that holds these items."""
    if isinstance(tree, Record):
        return type(tree)(dict(zip(tree.members, items)), tree.methods, tree.type, tree.objects)
    if isinstance(tree, dict):
        return dict(zip(tree, items)) if type(tree) is dict else refilled(tree, items)
    return tuple(items) if type(tree) is tuple else list(items)


def refilled(tree: Any, items: Sequence[Any]) -> Any:
    """A list, tuple or dict of the same class, so with its own way to find keys, that holds these
    items."""
    if type(tree) in (list, tuple, dict):
        return with_branches(tree, items)
    try:
        new = copy(tree)
    except local(Exception):  # `__getattr__ = dict.get` answers what Python asks of objects to copy
        cls: Any = type(tree)
        new = cls.__new__(cls)
    if isinstance(tree, dict):
        dict.update(new, zip(tree, items))
    else:
        list.__setitem__(new, slice(None), items)
    return new


def map_leaves(tree: Any, f: Callable[[Any], Any]) -> Any:
    """The same tree with f applied to everything in it that has no branches."""
    if is_container(tree):
        return with_branches(tree, [map_leaves(item, f) for item in branches(tree)])
    return f(tree)


def has_leaf(tree: Any, holds: Callable[[Any], bool]) -> bool:
    """Whether `holds` is true of some leaf."""
    if is_container(tree):
        return any(has_leaf(item, holds) for item in branches(tree))
    return holds(tree)


def records_in(tree: Any) -> Iterator[Record]:
    """The structs in a tree, nested ones too."""
    if isinstance(tree, Record):
        yield tree
    for item in branches(tree) if is_container(tree) else ():
        yield from records_in(item)


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


def same_branches(a: Any, b: Any) -> bool:
    """Whether two trees are of one kind with the same keys or length."""
    if isinstance(a, dict | Record):
        return isinstance(b, dict if isinstance(a, dict) else Record) and a.keys() == b.keys()
    return type(a) is type(b) and is_container(a) and len(a) == len(b)


def aligned(a: Any, b: Any) -> list[Any]:
    """What b holds, in the order of a, which has the same branches."""
    return [b[key] for key in a.keys()] if isinstance(a, dict | Record) else list(b)  # noqa: SIM118
