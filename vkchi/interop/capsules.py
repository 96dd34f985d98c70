"""DLPack capsules of numpy arrays, and of memory that the host cannot access.

Numpy creates all of them, so their deleters are numpy's C code. For memory that the host cannot
access, numpy gets an array at a non-host address, which it never dereferences. The device in the
resulting capsule is then overwritten. Source: dlpack.h (DLManagedTensor, DLManagedTensorVersioned).

    make_capsule(ArrayLocation(address, (2, 3), (12, 4), np.dtype("f4"), (2, 0)), keeper, (1, 0))
"""

from __future__ import annotations

import ctypes
from typing import Any

from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

PLAIN, VERSIONED = b"dltensor", b"dltensor_versioned"
# Offset of the struct DLTensor: 0, or after a version, a context, a deleter and flags.
TENSOR_AT = {PLAIN: 0, VERSIONED: 4 + 4 + 8 + 8 + 8}


class ArrayLocation(NamedTuple):
    """Location and layout of an array: strides in bytes, device as DLPack's (type, number)."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    device: tuple[int, int]


class TensorHead(ctypes.Structure):
    """First members of DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
    )  # fmt: skip


class ArrayInterface:
    """Object with an `__array_interface__` for numpy; keeps `keeper` alive."""

    def __init__(self, place: ArrayLocation, keeper: object) -> None:
        self.keeper = keeper
        self.__array_interface__ = {
            "data": (place.address, False), "shape": place.shape, "strides": place.strides,
            "typestr": place.dtype.str, "version": 3,
        }  # fmt: skip


_api = ctypes.pythonapi
_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)


def capsule_of(values: np.ndarray[Any, Any], max_version: tuple[int, int] | None) -> object:
    """Return a DLPack capsule of an array in host memory, which it keeps alive. Raises BufferError.
    Numpy before 2.1 ignores `max_version`."""
    if tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1):
        return values.__dlpack__(max_version=max_version)
    return values.__dlpack__()


def make_capsule(
    place: ArrayLocation, keeper: object, max_version: tuple[int, int] | None
) -> object:
    """A DLPack capsule of the memory at `place`, which `keeper` keeps alive. Raises BufferError."""
    made = capsule_of(np.asarray(ArrayInterface(place, keeper)), max_version)
    name = _name(made)
    head = TensorHead.from_address(_pointer(made, name) + TENSOR_AT[name])
    head.device_type, head.device_id = place.device
    return made
