"""Provenance of Python objects: this package, the standard library, numpy, C code, or the program.

The versions of Python, numpy and this package determine the contents of some objects. All others
may differ in the next process.

    >>> is_of_python(re.compile), is_own_builtin("len"), is_in_c(datetime.date)
    (True, True, True)
"""

from __future__ import annotations

import builtins
import os
import sys
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from vkchi.span import PACKAGE
from vkchi.types import Type
from vkchi.types.lazy_numpy import is_number_of_numpy, is_numpy_loaded, np

PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
OWN = "vkchi"
# Types of members that C code defines in a class.
STATELESS = (
    WrapperDescriptorType, MethodDescriptorType, ClassMethodDescriptorType, GetSetDescriptorType,
    MemberDescriptorType,
)  # fmt: skip
IN_C = (*STATELESS, BuiltinFunctionType)


def is_own_builtin(name: str) -> bool:
    """True if `name` is Python's own class or function in builtins, or absent there."""
    value = vars(builtins).get(name, builtins)
    own = getattr(value, "__module__", "") == "builtins" and getattr(value, "__name__", "") == name
    return value is builtins or (isinstance(value, type | BuiltinFunctionType) and own)


def is_vkchi_module(module: str | None) -> bool:
    return (module or "").partition(".")[0] == OWN


def is_of_python(value: Any) -> bool:
    """True if a class or function is from a module of the standard library."""
    if isinstance(value, FunctionType):
        module = value.__globals__.get("__name__", "")
    else:
        module = getattr(value, "__module__", None) or ""
    first = str(module).partition(".")[0]
    return first in sys.stdlib_module_names and first != "__main__"


def is_in_c(cls: type) -> bool:
    """True if a class has members of its own that are defined in C; those of its bases do not
    count."""
    slots = vars(cls).get("__slots__", ())
    own = {"__dict__", "__weakref__", *((slots,) if isinstance(slots, str) else slots)}
    own |= {f"_{cls.__name__.lstrip('_')}{name}" for name in own if name.startswith("__")}
    return any(
        isinstance(m, IN_C) and name not in own
        and getattr(m, "__objclass__", getattr(m, "__self__", None)) is cls
        for name, m in vars(cls).items()
    )  # fmt: skip


def numpys_folder() -> tuple[str, ...]:
    return (os.path.dirname(np.__file__) + os.sep,) if is_numpy_loaded() else ()


def may_be_user_supplied(value: Any) -> bool:
    """True if a member of a module of vkchi or numpy may have been put there by a program.

    False for modules, functions of these packages, and objects of their classes; plain values,
    lists and dicts may.
    """
    if isinstance(value, FunctionType):
        file = value.__code__.co_filename
        return not file.startswith((PACKAGE, *numpys_folder()))
    if isinstance(value, ModuleType):
        return False
    if (
        type(value) in (*PLAIN, list, tuple, dict)
        or isinstance(value, Type)
        or is_number_of_numpy(value)
    ):
        return True
    module = value.__module__ if isinstance(value, type) else type(value).__module__
    return module.partition(".")[0] not in (OWN, "numpy", "builtins", "math", "functools")
