"""Kernel values as Python values, for the debugger: numpy scalars, vectors, structs, the arrays.

mirror(Held(f32, np.float32(0.1)))      # np.float32(0.1)
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from vkchi.frontend.values.references import ArrayRef, MemoryTarget
from vkchi.frontend.values.struct_values import StructOfArrays
from vkchi.frontend.values.targets import ComponentsTarget, ComponentTarget, VariableTarget
from vkchi.frontend.values.trees import StructValue
from vkchi.ir.core import Value
from vkchi.lang.matrix import Matrix, Vector
from vkchi.types.lazy_numpy import np


def mirror(x: Any, arrays: dict[Value, Any]) -> Any:
    """Return a compile-time value as Python shows it; None for a kernel value that was not
    evaluated.

    `arrays` are the user's objects of the kernel's array parameters. Objects that only kernels have
    are returned as they are.
    """
    if isinstance(x, Value):
        held = getattr(x, "held", None)
        return held if held is None else of_numpy(held)
    if isinstance(x, MemoryTarget):
        pointer = getattr(x.ptr, "held", None)
        return None if pointer is None else of_numpy(pointer.load())
    if isinstance(x, ArrayRef):
        return x.source if x.source is not None else arrays.get(x.value, x)
    if isinstance(x, VariableTarget):
        return mirror(x.get(), arrays)
    if isinstance(x, ComponentTarget | ComponentsTarget | StructOfArrays):
        return x
    if isinstance(x, StructValue):
        return SimpleNamespace(**{k: mirror(m, arrays) for k, m in x.members.items()})
    if type(x) is dict:
        return {k: mirror(item, arrays) for k, item in x.items()}
    if type(x) in (list, tuple):
        return type(x)([mirror(item, arrays) for item in x])
    return x


def of_numpy(held: Any) -> Any:
    """Return an array of one or two axes as a vector or matrix, other values as they are."""
    if not isinstance(held, np.ndarray) or held.ndim not in (1, 2):
        return held
    return Vector(held) if held.ndim == 1 else Matrix(held)
