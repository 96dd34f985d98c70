"""Late-bound functions: lower layers refer to higher ones by name; the first access loads them.

`vkchi/__init__` fills the tables. This module also has the class of the module `vkchi`, and the set
of functions that kernels must not call.

    class ElementHook:
        make = Hook("element")

    ElementHook.make(storage, index)    # calls lang.matrix.make_element, by PLACES
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn, TypeVar

PACKAGE = "vkchi"
Place = tuple[str, str]  # (module in the package, name in it)
PLACES: dict[str, Place] = {}  # by the name of the hook
NAMES: dict[str, Place] = {}  # by public name


PYTHON_SCOPE: set[Any] = set()  # functions and classes that kernels must not call
C = TypeVar("C", bound=Callable[..., Any])


def python_scope(function: C) -> C:
    """Decorator that adds a function or class to PYTHON_SCOPE: kernels must not call it."""
    PYTHON_SCOPE.add(function)
    return function


def load_place(place: Place) -> Any:
    """Import the module of a place and return the object. Raises ImportError, AttributeError."""
    module, name = place
    return getattr(importlib.import_module(f"{PACKAGE}.{module}".rstrip(".")), name)


class Hook:
    """Class attribute that resolves to the function with this name in PLACES.

    The first access loads the function, and replaces the attribute by it.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.attribute = attribute

    def __get__(self, obj: object, owner: type) -> Callable[..., Any]:
        found: Callable[..., Any] = load_place(PLACES[self.name])
        setattr(owner, self.attribute, staticmethod(found))
        return found


class ModuleNameHook:
    """Hooks for missing module attributes: `find` resolves one, `missing` makes the error."""

    find = Hook("find a name")
    missing = Hook("missing name")  # (path, names of the module) -> the error


def open_names(module: dict[str, Any]) -> None:
    """Make a module, given by its globals, resolve missing attributes by `ModuleNameHook.find`.

    Sets `__getattr__` and `__path__`, and removes `annotations`.
    """
    path = module["__name__"].removeprefix(f"{PACKAGE}.")
    module.setdefault("__path__", [])  # missing names are then imported
    module.pop("annotations", None)  # from __future__; Taichi has a module `annotations`
    module["__getattr__"] = lambda name: ModuleNameHook.find(f"{path}.{name}")


class PublicModule(ModuleType):
    """Class of the module `vkchi`: ignores the assignment of a module to a public name.

    Python assigns submodules when they are imported; `ti.kernel` stays the decorator.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name in NAMES and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)

    def __reduce__(self) -> Any:
        return importlib.import_module, (self.__name__,)


class PackageNotFunction(ModuleType):
    """Class of a package of vkchi that has the name of another library's function: a call raises
    MissingNameError, whose help line says what to write."""

    __reduce__ = PublicModule.__reduce__

    def __call__(self, *args: Any, **options: Any) -> NoReturn:
        raise ModuleNameHook.missing(self.__name__.removeprefix(f"{PACKAGE}."), list)
