"""Guard on methods of Python classes: those that a kernel was compiled with, compared at launch.

Covered are the classes that lowering reached. In them it covers methods whose names its functions
mention, and special methods.

    methods_seen([Ray], [trace])      # has Ray.hit, if `trace` calls `ray.hit()`
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

from vkchi.frontend.state.captured_values import Path, PathRead, PathRoot

_NOT_USERS = ("vkchi", "numpy", "builtins")
_IN_CLASSES = (FunctionType, staticmethod, classmethod, property)


def methods_seen(
    classes: Iterable[type], functions: Iterable[FunctionType]
) -> tuple[PathRead, ...]:
    """Return the entries of users' classes that decide which methods `functions` call.

    Names: those in the functions' code, and special methods. For each, they cover the base classes
    up to the one that has the method, so that a later override is noticed. The `__mro__` of classes
    outside the standard library is an entry, too.
    """
    users = [c for c in classes if c.__module__.partition(".")[0] not in _NOT_USERS]
    if not users:
        return ()
    said = {name for fn in functions for name in names_in(fn.__code__)}
    found: dict[PathRoot, Any] = {}
    for cls in users:
        if cls.__module__.partition(".")[0] not in sys.stdlib_module_names - {"__main__"}:
            found[PathRoot("class", cls, "__mro__")] = cls.__mro__
        special = {name for base in cls.__mro__[:-1] for name in vars(base) if name[:2] == "__"}
        for name in said | special:
            places = list(looked_up(cls, name))
            if places and is_method(places[-1][1]):
                found |= {PathRoot("class", base, name): item for base, item in places}
    return tuple([PathRead(Path(root), "entry", item) for root, item in found.items()])


def names_in(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes in a function's code, inner functions included."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from names_in(part)


def looked_up(cls: type, name: str) -> Iterator[tuple[type, Any]]:
    """Yield the classes that Python searches for an attribute, each with its entry or None.

    The last one is the first that has the attribute.
    """
    for base in cls.__mro__[:-1]:
        item = vars(base).get(name)
        yield base, item
        if item is not None:
            return


def is_method(item: Any) -> bool:
    """True if a class attribute is code that kernels can call."""
    return isinstance(item, _IN_CLASSES) or hasattr(type(item), "__vkchi_kind__")
