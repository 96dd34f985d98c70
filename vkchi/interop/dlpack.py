"""DLPack export and import of arrays, in place where possible.

Host-visible memory (software drivers, integrated GPUs) is exported as CPU memory without a copy.
The tensor's holder keeps the memory alive, even after `ti.reset()`. Memory shared with CUDA is
exported as CUDA memory. DLPack defines no handle for other Vulkan memory, so that is exported only
as an explicit copy. Source: Python specification of DLPack,
https://dmlc.github.io/dlpack/latest/python_spec.html; dlpack.h (DLManagedTensor,
DLManagedTensorVersioned).

Numpy creates all capsules, so their deleters are numpy's C code. For memory that the host cannot
access, numpy gets an array at a non-host address, which it never dereferences. The device in the
resulting capsule is then overwritten.

    torch.from_dlpack(x); np.from_dlpack(x); y = ti.from_dlpack(tensor)
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from vkchi.errors import ArgumentError, DeviceError
from vkchi.interrupts.local import local
from vkchi.tuples import NamedTuple
from vkchi.types.bfloat16 import raw_dtype
from vkchi.types.lazy_numpy import is_number_of_numpy, np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vkchi.device import Buffer
    from vkchi.runtime import Runtime


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
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
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
    head = head_of(made)
    head.device_type, head.device_id = place.device
    return made


def head_of(made: object) -> TensorHead:
    """The first members of the DLTensor of an unused capsule."""
    name = _name(made)
    return TensorHead.from_address(_pointer(made, name) + TENSOR_AT[name])


UNSIGNED, BFLOAT = 1, 4  # kDLUInt, kDLBfloat


def as_bfloat(made: object) -> object:
    """Return the capsule of an array of u16 after declaring its elements bfloat16, a type that
    numpy does not export."""
    head_of(made).code = BFLOAT
    return made


class BitsExporter:
    """DLPack export of another object's bfloat16 tensor as 16-bit integers, once."""

    def __init__(self, source: DLPackExporter) -> None:
        self.source = source

    def __dlpack_device__(self) -> tuple[int, int]:
        found: tuple[int, int] = self.source.__dlpack_device__()
        return found

    def __dlpack__(self, *, stream: None = None, **options: Any) -> Any:
        """Raises BufferError if the tensor has another type than bfloat16."""
        made = self.source.__dlpack__()
        head = head_of(made)
        if head.code != BFLOAT or head.bits != 16 or head.lanes != 1:
            raise BufferError("numpy has no such type")
        head.code = UNSIGNED
        return made


CPU, CUDA = 1, 2  # kDLCPU, kDLCUDA
HOST = (CPU, 0)
NO_DLPACK = (
    "DLPack has no agreed meaning for this device's memory, which the host does not reach: take "
    "x.to_numpy() or x.to_torch()"
)
LEGACY, NO_ORDER = 1, -1  # stream numbers of DLPack


@runtime_checkable
class DLPackExporter(Protocol):
    """Object that can export a DLPack capsule."""

    def __dlpack__(self, *, stream: None = ...) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


def capsule(
    values: np.ndarray[Any, Any],
    stream: int | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
) -> object:
    """Return a DLPack capsule of an array in host memory, which it keeps alive. Raises BufferError
    if a stream or another device is requested, or if numpy cannot export the array."""
    if stream is not None:
        raise BufferError(f"memory of the CPU has no streams, and stream={stream!r} was asked for")
    check_device(dl_device)
    return capsule_of(values, max_version)


def check_device(dl_device: tuple[int, int] | None) -> None:
    """Raise BufferError unless `dl_device` is the CPU or None."""
    if dl_device is not None and tuple(map(int, dl_device)) != HOST:
        raise BufferError(f"this array is given to the CPU {HOST} only, not to {tuple(dl_device)}")


def cuda_device(runtime: Runtime) -> tuple[int, int]:
    """The DLPack device of the memory shared with CUDA. Raises BufferError if none is shared."""
    from vkchi.interop.cuda.link import LinkFailure, find_link  # few programs need it

    found = find_link(runtime)
    if isinstance(found, LinkFailure):
        raise BufferError(f"{NO_DLPACK} ({found.reason})")
    return CUDA, found.cuda.ordinal


def is_cuda(runtime: Runtime, dl_device: tuple[int, int] | None) -> bool:
    """True if the runtime shares memory with CUDA, and `dl_device` is None or that CUDA device."""
    try:
        found = cuda_device(runtime)
    except BufferError:
        return False
    return dl_device is None or tuple(map(int, dl_device)) == found


def cuda_capsule(
    runtime: Runtime, buffer: Buffer, like: np.ndarray[Any, Any], offset: int,
    stream: int | None, max_version: tuple[int, int] | None,
) -> object:  # fmt: skip
    """Return a DLPack capsule of an array in CUDA-visible memory, `offset` bytes into a buffer.

    Shape, strides and dtype are those of `like`. `stream` is numbered as in DLPack; it waits for
    earlier launches, unless it is -1. Raises BufferError for stream 0, or if the memory cannot be
    shared with CUDA.
    """
    if stream == 0:
        raise BufferError("stream=0 may mean any stream: DLPack wants 1, 2 or a stream's handle")
    device = cuda_device(runtime)
    order = LEGACY if stream is None else stream
    try:
        held = runtime.cuda.export(buffer, None if order == NO_ORDER else order)
    except DeviceError as e:
        raise BufferError(str(e)) from None
    place = ArrayLocation(held.address + offset, like.shape, like.strides, like.dtype, device)
    return make_capsule(place, held, max_version)


def view_of_capsule(source: DLPackExporter) -> NDArray[np.generic]:
    """Return a numpy view of host memory that another library exports.

    That of bf16 has the dtype `bfloat16.raw_dtype`. Raises ArgumentError for memory of other
    devices, for dtypes that DLPack cannot export to numpy, and for torch tensors that require
    gradients.
    """
    try:
        kind, number = source.__dlpack_device__()
    except local(ValueError) as e:  # torch's meta device
        raise ArgumentError(f"a {type(source).__name__} that DLPack cannot give: {e}") from None
    if int(kind) != CPU:
        raise ArgumentError(
            f"a {type(source).__name__} on DLPack's device ({int(kind)}, {number}), which is not "
            "the CPU: copy it to host memory first"
        )
    try:
        return np.from_dlpack(source)
    except local(BufferError, RuntimeError, TypeError) as e:  # bfloat16, or requires grad
        try:
            return np.from_dlpack(BitsExporter(source)).view(raw_dtype())
        except local(BufferError, RuntimeError, TypeError):
            name = type(source).__name__
            raise ArgumentError(f"a {name} that DLPack cannot give: {e}") from None


def view_of_foreign(source: object) -> NDArray[np.generic] | None:
    """Return a numpy view of the host memory of a foreign object; None if it offers none, or is a
    numpy scalar.

    Uses DLPack, numpy's array interface, or Python's buffer protocol. Raises ArgumentError for CUDA
    memory, and as `view_of_capsule`.
    """
    if is_number_of_numpy(source):
        return None
    if isinstance(source, DLPackExporter):
        return view_of_capsule(source)
    if hasattr(source, "__cuda_array_interface__"):
        raise ArgumentError(
            f"a {type(source).__name__} in CUDA's memory: copy it to host memory first"
        )
    if hasattr(source, "__array_interface__"):
        return np.asarray(source)
    try:
        return np.asarray(memoryview(source))  # type: ignore[arg-type]
    except local(TypeError, ValueError):  # no buffer, or a format that numpy does not support
        return None
