"""Whose an object is: this package's, Python's, numpy's, C code's, or that of the program.

Owns: what of the Python around a kernel is known by the versions of Python, of numpy and of this
package, and what can be different in the next process. Must not know: kernels, digests.

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
# What classes have that C code defines, but for what every class of Python has.
STATELESS = (
    WrapperDescriptorType, MethodDescriptorType, ClassMethodDescriptorType, GetSetDescriptorType,
    MemberDescriptorType,
)  # fmt: skip
IN_C = (*STATELESS, BuiltinFunctionType)


def is_own_builtin(name: str) -> bool:
    """Whether a name means to all modules what Python says, or nothing: programs can add names."""
    value = vars(builtins).get(name, builtins)
    own = getattr(value, "__module__", "") == "builtins" and getattr(value, "__name__", "") == name
    return value is builtins or (isinstance(value, type | BuiltinFunctionType) and own)


def is_ours(module: str | None) -> bool:
    """Whether a module is of this package, whose sources are the compiler's version."""
    return (module or "").partition(".")[0] == OWN


def is_of_python(value: Any) -> bool:
    """Whether a class or function is of Python's own library."""
    if isinstance(value, FunctionType):
        module = value.__globals__.get("__name__", "")
    else:
        module = getattr(value, "__module__", None) or ""
    first = str(module).partition(".")[0]
    return first in sys.stdlib_module_names and first != "__main__"


def is_in_c(cls: type) -> bool:
    """Whether C code makes up a class, or part of it, so that its objects may hold what no name
    leads to."""
    slots = vars(cls).get("__slots__", ())
    own = {"__dict__", "__weakref__", *((slots,) if isinstance(slots, str) else slots)}
    own |= {f"_{cls.__name__.lstrip('_')}{name}" for name in own if name.startswith("__")}
    return any(
        isinstance(m, IN_C) and name not in own
        and getattr(m, "__objclass__", getattr(m, "__self__", None)) is cls
        for name, m in vars(cls).items()
    )  # fmt: skip


def numpys_folder() -> tuple[str, ...]:
    """Where functions of numpy's stand; none before it was imported."""
    return (os.path.dirname(np.__file__) + os.sep,) if is_numpy_loaded() else ()


def is_foreign(value: Any) -> bool:
    """Whether what a module of ours or of numpy's has was perhaps put there by someone else."""
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
