"""DLPack: arrays of the device seen by other libraries in place, and theirs taken over.

Owns: what is exported as which device, what is copied, what is refused. Must not know: kernels,
what stands in a capsule (`capsules`).

Memory that the host reaches (software drivers, integrated GPUs) is exported as memory of the CPU,
without a copy: who holds the tensor keeps the memory alive, after `ti.reset()` too. Memory that
CUDA sees as well is exported as CUDA's. DLPack has no agreed handle for other Vulkan memory: there
is no export of it, but for a copy that is asked for.
Source: Python specification of DLPack, https://dmlc.github.io/dlpack/latest/python_spec.html.

    torch.from_dlpack(x); np.from_dlpack(x); y = ti.from_dlpack(tensor)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from vkchi.errors import ArgumentError, DeviceError
from vkchi.interop.capsules import Place, capsule_of, make_capsule
from vkchi.interrupts.local import local
from vkchi.types.lazy_numpy import is_number_of_numpy, np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vkchi.buffer import Buffer
    from vkchi.runtime import Runtime

CPU, CUDA = 1, 2  # kDLCPU, kDLCUDA
HOST = (CPU, 0)
NO_DLPACK = (
    "DLPack has no agreed meaning for this device's memory, which the host does not reach: take "
    "x.to_numpy() or x.to_torch()"
)
LEGACY, NO_ORDER = 1, -1  # streams, as DLPack numbers them


@runtime_checkable
class Exporter(Protocol):
    """What has a DLPack capsule to give."""

    def __dlpack__(self, *, stream: None = ...) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


def capsule(
    values: np.ndarray[Any, Any],
    stream: int | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
) -> object:
    """The capsule of an array in host memory, which it keeps alive. Raises BufferError."""
    if stream is not None:
        raise BufferError(f"memory of the CPU has no streams, and stream={stream!r} was asked for")
    check_device(dl_device)
    return capsule_of(values, max_version)


def check_device(dl_device: tuple[int, int] | None) -> None:
    """Raises BufferError unless the CPU is asked for, or nothing is."""
    if dl_device is not None and tuple(map(int, dl_device)) != HOST:
        raise BufferError(f"this array is given to the CPU {HOST} only, not to {tuple(dl_device)}")


def cuda_device(runtime: Runtime) -> tuple[int, int]:
    """DLPack's device of memory that CUDA sees. Raises BufferError where it sees none."""
    from vkchi.interop.cuda.link import Unlinked, find_link  # few programs share any

    found = find_link(runtime)
    if isinstance(found, Unlinked):
        raise BufferError(f"{NO_DLPACK} ({found.reason})")
    return CUDA, found.cuda.ordinal


def is_cuda(runtime: Runtime, dl_device: tuple[int, int] | None) -> bool:
    """Whether a tensor of the runtime's memory that is asked for is one of CUDA's."""
    try:
        found = cuda_device(runtime)
    except BufferError:
        return False
    return dl_device is None or tuple(map(int, dl_device)) == found


def cuda_capsule(
    runtime: Runtime, buffer: Buffer, like: np.ndarray[Any, Any], offset: int,
    stream: int | None, max_version: tuple[int, int] | None,
) -> object:  # fmt: skip
    """The capsule of an array like another one, so many bytes behind the beginning of a buffer that
    CUDA sees, for a stream as DLPack numbers them. Raises BufferError."""
    if stream == 0:
        raise BufferError("stream=0 may mean any stream: DLPack wants 1, 2 or a stream's handle")
    device = cuda_device(runtime)
    order = LEGACY if stream is None else stream
    try:
        held = runtime.cuda.export(buffer, None if order == NO_ORDER else order)
    except DeviceError as e:
        raise BufferError(str(e)) from None
    place = Place(held.address + offset, like.shape, like.strides, like.dtype, device)
    return make_capsule(place, held, max_version)


def view_of_capsule(source: Exporter) -> NDArray[np.generic]:
    """An array of host memory that another library exports, sharing it.

    Raises ArgumentError for memory of other devices and for types that kernels have none for.
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
    except local(BufferError, RuntimeError, TypeError) as e:  # bfloat16, one that requires grad
        raise ArgumentError(f"a {type(source).__name__} that DLPack cannot give: {e}") from None


def view_of_foreign(source: object) -> NDArray[np.generic] | None:
    """The host memory of an object of another library, shared: by DLPack, by numpy's array
    interface or by Python's buffer protocol. None for what offers none of them.

    Raises ArgumentError for memory of other devices and for types that kernels have none for.
    """
    if is_number_of_numpy(source):
        return None
    if isinstance(source, Exporter):
        return view_of_capsule(source)
    if hasattr(source, "__cuda_array_interface__"):
        raise ArgumentError(
            f"a {type(source).__name__} in CUDA's memory: copy it to host memory first"
        )
    if hasattr(source, "__array_interface__"):
        return np.asarray(source)
    try:
        return np.asarray(memoryview(source))  # type: ignore[arg-type]
    except local(TypeError, ValueError):  # no buffer, or one of a format that numpy does not know
        return None
