"""Functions of layers above, called by names, and loaded when first called.

Owns: `Hook`, the table of places that `vkchi/__init__` fills, the class of modules whose names are
loaded when they are first used; the functions that kernels must not call. Must not know: what any
name means.

    class ElementHook:
        make = Hook("element")               # PLACES: {"element": ("lang.element", "element")}

    ElementHook.make(storage, index)         # imports vkchi.lang.element, calls its `element`
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

PACKAGE = "vkchi"
Place = tuple[str, str]  # a module of the package, and what in it is meant
PLACES: dict[str, Place] = {}  # of hooks, by their names
NAMES: dict[str, Place] = {}  # of public names


PYTHON_SCOPE: set[Any] = set()  # functions and classes that kernels refuse to call
C = TypeVar("C", bound=Callable[..., Any])


def python_scope(function: C) -> C:
    """Decorator of functions and classes that kernels must not call: they act on the host."""
    PYTHON_SCOPE.add(function)
    return function


def load(place: Place) -> Any:
    """What stands at a place. Raises AttributeError."""
    module, name = place
    return getattr(importlib.import_module(f"{PACKAGE}.{module}"), name)


class Hook:
    """An attribute of a class: the function that PLACES has under this name. The attribute is that
    function from the first use on."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.attribute = attribute

    def __get__(self, obj: object, owner: type) -> Callable[..., Any]:
        found: Callable[..., Any] = load(PLACES[self.name])
        setattr(owner, self.attribute, staticmethod(found))
        return found


class Names:
    """What modules ask that have more names than stand in their files."""

    find = Hook("find a name")


def open_names(module: dict[str, Any]) -> None:
    """Let a module, given by its globals, have the names too that Taichi's module has."""
    path = module["__name__"].removeprefix(f"{PACKAGE}.")
    module.setdefault("__path__", [])  # so that a name that is not there is looked for by import
    module.pop("annotations", None)  # of __future__: Taichi has a module of that name
    module["__getattr__"] = lambda name: Names.find(f"{path}.{name}")


class PublicModule(ModuleType):
    """The class of `vkchi` itself. `ti.kernel` is the decorator, also once the module of that name
    was loaded, which Python's import would put in its place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in NAMES and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)
