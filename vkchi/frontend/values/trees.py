"""Compile-time values as trees: lists, tuples, dicts and structs whose leaves may be kernel values.

A tree is traversed and rebuilt without regard to the kind of its containers.

    >>> leaves([1, (v, w)]) == [v, w]
    True
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

from vkchi.frontend.values.kinds import kind_of
from vkchi.interrupts.local import local
from vkchi.ir.core import Value


class StructValue:
    """A struct in a kernel: members by name, each a tree.

    `type` is a struct or argument pack type, or the class of a user's object; None for an anonymous
    struct. `methods` are those of the type. `objects` are the objects that it may be (`identity`).
    """

    __slots__ = ("members", "methods", "objects", "type")

    def __init__(
        self, members: dict[str, Any], methods: Any = None, type: Any = None,
        objects: frozenset[object] = frozenset(),
    ) -> None:  # fmt: skip
        self.members, self.methods, self.type = members, methods or {}, type
        self.objects = objects

    @property
    def cls(self) -> type | None:
        """The class of an object that the kernel made; None for other structs."""
        return self.type if isinstance(self.type, type) else None

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, name: str) -> Any:
        return self.members[name]

    def __setitem__(self, name: str, x: Any) -> None:
        self.members[name] = x

    def keys(self) -> Any:
        return self.members.keys()

    def copy(self) -> StructValue:
        """Return a shallow copy, whose members can be replaced one by one."""
        return type(self)(dict(self.members), self.methods, self.type, self.objects)


def is_made(x: Any) -> bool:
    """True if x is an object of a user's class, constructed in the kernel."""
    return isinstance(x, StructValue) and x.cls is not None


def refilled(tree: Any, items: Sequence[Any]) -> Any:
    """Return a list, tuple or dict of the same class with these items.

    The class is kept because a subclass may look up keys in its own way.
    """
    if type(tree) in (list, tuple, dict):
        return kind_of(tree).with_children(tree, items)
    try:
        new = copy(tree)
    except local(Exception):  # `__getattr__ = dict.get` gives None for copy's hooks
        cls: Any = type(tree)
        new = cls.__new__(cls)
    if isinstance(tree, dict):
        dict.update(new, zip(tree, items))
    else:
        list.__setitem__(new, slice(None), items)
    return new


def map_leaves(tree: Any, f: Callable[[Any], Any]) -> Any:
    found = kind_of(tree)
    if not found.is_container:
        return f(tree)
    return found.with_children(tree, [map_leaves(item, f) for item in found.children(tree)])


def has_leaf(tree: Any, holds: Callable[[Any], bool]) -> bool:
    found = kind_of(tree)
    if found.is_container:
        return any(has_leaf(item, holds) for item in found.children(tree))
    return holds(tree)


def records_in(tree: Any) -> Iterator[StructValue]:
    """Yield the structs in a tree, including nested ones."""
    if isinstance(tree, StructValue):
        yield tree
    found = kind_of(tree)
    for item in found.children(tree) if found.is_container else ():
        yield from records_in(item)


def leaves(tree: Any) -> list[Value]:
    """Return the kernel values in the tree, in order."""
    if isinstance(tree, Value):
        return [tree]
    found: list[Value] = []
    map_leaves(tree, lambda leaf: found.append(leaf) if isinstance(leaf, Value) else None)
    return found


def refill(tree: Any, values: Iterator[Value]) -> Any:
    """Return the tree with its kernel values replaced by the next ones of `values`."""
    if isinstance(tree, Value):
        return next(values)
    return map_leaves(tree, lambda leaf: next(values) if isinstance(leaf, Value) else leaf)


def is_same(a: Any, b: Any) -> bool:
    """True if two compile-time leaves are one object, or equal numbers or strings of one type.

    0.0 and -0.0 differ; nan equals nan.
    """
    if a is b:
        return True
    if type(a) is not type(b) or not isinstance(a, int | float | str | bytes):
        return False
    return a == b and repr(a) == repr(b) if a == a else b != b


def child_pairs(a: Any, b: Any) -> list[tuple[Any, Any]] | None:
    """Return the pairs of children of two containers of one kind, with the same keys or length.

    They are in the order of a. None if a and b are no such containers.
    """
    found = kind_of(a)
    if not found.is_container:
        return None
    keys = found.keys(a)
    if keys is None:
        return list(zip(a, b)) if type(a) is type(b) and len(a) == len(b) else None
    if not isinstance(b, StructValue if isinstance(a, StructValue) else dict) or keys != b.keys():
        return None
    return [(item, b[key]) for item, key in zip(found.children(a), keys)]
