"""Lazy import of numpy: `np` is imported at the first use of one of its names.

Programs without numpy arrays save the time of the import. Modules of vkchi import numpy from here,
so that an interrupt during the import is delivered after it.

`is_of_numpy` tests first whether numpy is loaded; without it, no value is a numpy object. Use it
before tests for specific numpy classes.

    from vkchi.types.lazy_numpy import np
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

from vkchi.interrupts.imports import import_attribute

__all__ = [
    "is_array_of_numpy", "is_number_of_numpy", "is_numpy_loaded", "is_of_numpy", "is_real_scalar",
    "is_integer_scalar", "NumpyFunction", "np",
]  # fmt: skip


class _Lazy:
    """A module proxy that imports each name on first access."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = import_attribute(self._name, name)
        setattr(self, name, found)
        return found


if TYPE_CHECKING:
    import numpy as np
else:
    np = _Lazy("numpy")


def is_numpy_loaded() -> bool:
    """True if any module has imported numpy."""
    return "numpy" in sys.modules


def is_of_numpy(value: object) -> bool:
    """True if value is a numpy array or numpy scalar, or of a subclass. Does not import numpy."""
    return "numpy" in sys.modules and isinstance(value, (np.ndarray, np.generic))


def is_array_of_numpy(value: object) -> TypeGuard[np.ndarray[Any, Any]]:
    return "numpy" in sys.modules and isinstance(value, np.ndarray)


def is_number_of_numpy(value: object) -> TypeGuard[np.generic]:
    return "numpy" in sys.modules and isinstance(value, np.generic)


def is_integer_scalar(arg: Any) -> bool:
    """True if arg is a Python or numpy integer or bool scalar."""
    return isinstance(arg, int) or (is_of_numpy(arg) and isinstance(arg, np.integer | np.bool_))


def is_real_scalar(arg: Any) -> bool:
    """True if arg is a Python or numpy bool, integer or float scalar."""
    return (
        isinstance(arg, float)
        or is_integer_scalar(arg)
        or (is_of_numpy(arg) and isinstance(arg, np.floating))
    )


class NumpyFunction:
    """A numpy function by name, resolved when called: `NumpyFunction("add")(1, 2)`."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *args: Any, **options: Any) -> Any:
        return getattr(np, self.__name__)(*args, **options)
