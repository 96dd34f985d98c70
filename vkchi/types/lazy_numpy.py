"""numpy, which is imported when something of it is first used.

Owns: `np`, which modules that a short program loads import in place of numpy: the import takes half
of such a program's time, and one that neither makes nor takes arrays of numpy's needs none of it.
Must not know: what it is used for.

All of vkchi takes numpy from here: an interrupt that comes while it is imported comes after that.

What asks for a class of numpy's to tell values apart asks `is_of_numpy` first: where numpy was not
imported by anybody, no value is of it.

    from vkchi.types.lazy_numpy import np
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

from vkchi.interrupts.imports import take_from

__all__ = [
    "is_array_of_numpy", "is_number_of_numpy", "is_numpy_loaded", "is_of_numpy", "is_real",
    "is_whole", "later", "np",
]  # fmt: skip


class _Lazy:
    """A module's names, each taken from it when first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = take_from(self._name, name)
        setattr(self, name, found)
        return found


if TYPE_CHECKING:
    import numpy as np
else:
    np = _Lazy("numpy")


def is_numpy_loaded() -> bool:
    """Whether numpy was imported, by whomever."""
    return "numpy" in sys.modules


def is_of_numpy(value: object) -> bool:
    """Whether something is an array or a number of numpy's, or of a class made from these."""
    return "numpy" in sys.modules and isinstance(value, (np.ndarray, np.generic))


def is_array_of_numpy(value: object) -> TypeGuard[np.ndarray[Any, Any]]:
    """Whether something is an array of numpy's."""
    return "numpy" in sys.modules and isinstance(value, np.ndarray)


def is_number_of_numpy(value: object) -> TypeGuard[np.generic]:
    """Whether something is a number of numpy's, no array."""
    return "numpy" in sys.modules and isinstance(value, np.generic)


def is_whole(arg: Any) -> bool:
    """Whether something is a whole number, as integer parameters take."""
    return isinstance(arg, int) or (is_of_numpy(arg) and isinstance(arg, np.integer | np.bool_))


def is_real(arg: Any) -> bool:
    """Whether something is a number that is not complex."""
    return (
        isinstance(arg, float)
        or is_whole(arg)
        or (is_of_numpy(arg) and isinstance(arg, np.floating))
    )


class later:
    """A function of numpy's by its name: `later("add")(1, 2)`."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *args: Any, **options: Any) -> Any:
        return getattr(np, self.__name__)(*args, **options)
