"""Compile-time values as trees: lists, tuples, dicts and structs whose leaves may be kernel values.

A tree is traversed and rebuilt without regard to the kind of its containers.

    >>> leaves([1, (v, w)]) == [v, w]
    True
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from operator import is_
from typing import TYPE_CHECKING, Any

from vkchi.frontend.values.kinds import Kind, is_static, kind_of
from vkchi.interrupts.local import local
from vkchi.ir.core import Value
from vkchi.lang.matrix import Matrix

if TYPE_CHECKING:
    from vkchi.frontend.state.pending import ConversionTarget
    from vkchi.frontend.values.references import Merge


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


class StructOfArrays(StructValue):
    """An array of structs as a struct of arrays: one array of the same shape per member.

    `member` is the captured ndarray of structs, if it is one; this equals it.
    """

    __slots__ = ("member",)
    __vkchi_captures__ = True
    member: Any

    def __eq__(self, other: object) -> bool:
        held = getattr(self, "member", None)
        return self is other or (held is not None and held is other)

    def __hash__(self) -> int:
        held = getattr(self, "member", None)
        return object.__hash__(self) if held is None else hash(held)


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


def records_in(tree: Any) -> Iterator[StructValue]:
    """Yield the structs in a tree, including nested ones."""
    if isinstance(tree, StructValue):
        yield tree
    for item in kind_of(tree).children(tree):
        yield from records_in(item)


def leaves(tree: Any) -> list[Value]:
    """Return the kernel values in the tree, in order."""
    return kind_of(tree).leaves(tree)


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
    if kind_of(b) is not found or keys != b.keys():
        return None
    return [(item, b[key]) for item, key in zip(found.children(a), keys)]


class TreeKind(Kind):
    """Containers, whose leaves may be kernel values and Targets."""

    is_container = True

    def is_static(self, x: Any) -> bool:
        return all(map(is_static, self.children(x)))

    def is_assignable(self, x: Any) -> bool:
        items = self.children(x)
        return bool(items) and all(kind_of(item).is_assignable(item) for item in items)

    def leaves(self, x: Any) -> list[Value]:
        return [v for item in self.children(x) for v in kind_of(item).leaves(item)]

    def refill(self, x: Any, values: Iterator[Value]) -> Any:
        return self.with_children(
            x, [kind_of(item).refill(item, values) for item in self.children(x)]
        )

    def load(self, cx: Any, x: Any) -> Any:
        """Return x with every Target in it replaced by its value."""
        old = self.children(x)
        new = [kind_of(item).load(cx, item) for item in old]
        return x if all(map(is_, old, new)) else self.with_children(x, new)

    def own(self, cx: Any, x: Any) -> Any:
        return self.with_children(x, [kind_of(item).own(cx, item) for item in self.children(x)])

    def join(self, merge: Merge, a: Any, b: Any, name: str) -> Any:
        pairs = child_pairs(a, b)
        if pairs is None:
            raise merge.differ(a, b, name)
        return self.with_children(a, [merge.merge(x, y, name) for x, y in pairs])

    def fit(self, cx: Any, old: Any, x: Any, name: str, into: ConversionTarget) -> Any:
        """A list or tuple fits a list, tuple or vector of the same length."""
        if self.keys(old) is None:
            given = x.to_list() if isinstance(x, Matrix) else x
            fits = kind_of(given).is_sequence and len(given) == len(old)
            pairs = list(zip(old, given)) if fits else None
        else:
            pairs = child_pairs(old, x)
        if pairs is None:
            return super().fit(cx, old, x, name, into)
        return self.with_children(old, [kind_of(a).fit(cx, a, b, name, into) for a, b in pairs])
