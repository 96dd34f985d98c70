"""CUDA arrays of other libraries: torch tensors and objects with `__cuda_array_interface__`.

Reads their address, layout and stream. Does not import torch. Source: numba's documentation of the
CUDA array interface, version 3.

    describe_array(tensor, cuda).address
"""

from __future__ import annotations

import sys
from typing import Any

from vkchi.errors import ArgumentError
from vkchi.interop.cuda.driver import CudaDriver
from vkchi.interop.dtypes import to_numpy_type
from vkchi.interop.host_views import is_torch
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

LEGACY = 1  # handle of CUDA's default stream; torch uses 0


class CudaArrayInfo(NamedTuple):
    """Description of an array in CUDA memory. Strides are in bytes, `stream` is the stream that
    orders its use, `device` the device's number."""

    address: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    stream: int
    device: int
    is_read_only: bool = False

    @property
    def is_contiguous(self) -> bool:
        return 0 in self.shape or all(
            n == 1 or step == want
            for n, step, want in zip(
                self.shape, self.strides, steps_of(self.shape, self.dtype), strict=True
            )
        )


def steps_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Return the strides of a C-contiguous array, in bytes.

    >>> steps_of((2, 3), np.dtype("f4"))
    (12, 4)
    """
    steps, step = [], dtype.itemsize
    for n in reversed(shape):
        steps.append(step)
        step *= n
    return tuple(reversed(steps))


def describe_array(source: Any, cuda: CudaDriver) -> CudaArrayInfo:
    """Describe a CUDA array. Raises ArgumentError if kernels do not support it."""
    return _see_tensor(source, cuda) if is_torch(source) else _see_interface(source, cuda)


def _see_tensor(tensor: Any, cuda: CudaDriver) -> CudaArrayInfo:
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided or tensor.is_neg() or tensor.is_conj():
        raise ArgumentError("a tensor that is sparse or not yet computed: pass it made dense")
    if torch.cuda.is_current_stream_capturing():
        raise ArgumentError(
            "a tensor in CUDA's memory, while a graph of CUDA's is captured: the graph would not "
            "run the kernel again; call it outside of the capture"
        )
    dtype = to_numpy_type(tensor.dtype)
    strides = tuple(step * dtype.itemsize for step in tensor.stride())
    stream = torch.cuda.current_stream(cuda.ordinal).cuda_stream or LEGACY
    return CudaArrayInfo(
        tensor.data_ptr(), dtype, tuple(tensor.shape), strides, stream, tensor.device.index
    )


def _see_interface(source: Any, cuda: CudaDriver) -> CudaArrayInfo:
    known = source.__cuda_array_interface__
    if known.get("mask") is not None:
        raise ArgumentError("a masked array, and kernels know no masks")
    dtype, shape = np.dtype(known["typestr"]), tuple(known["shape"])
    address, is_read_only = known["data"]
    where = cuda.identify(address) if address else None
    device = cuda.ordinal if where is None else where.device
    strides = known.get("strides")
    strides = steps_of(shape, dtype) if strides is None else tuple(strides)
    stream = known.get("stream") or LEGACY
    seen = CudaArrayInfo(address, dtype, shape, strides, stream, device, bool(is_read_only))
    if not seen.is_contiguous or device != cuda.ordinal:
        raise ArgumentError(
            f"a {type(source).__name__} in CUDA's memory that is not contiguous, or on another "
            "device: pass a contiguous copy on this one"
        )
    return seen


class ForTorch:
    """vkchi's memory with a `__cuda_array_interface__` for torch."""

    def __init__(self, address: int, seen: CudaArrayInfo) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": seen.shape, "typestr": seen.dtype.str,
            "strides": None, "version": 3,
        }  # fmt: skip


def as_torch_tensor(address: int, seen: CudaArrayInfo, ordinal: int) -> Any:
    """Return a contiguous torch tensor over vkchi's memory, with the shape and dtype of `seen`."""
    torch = sys.modules["torch"]
    return torch.as_tensor(ForTorch(address, seen), device=f"cuda:{ordinal}")


def record_stream_use(source: Any, ordinal: int) -> None:
    """Record the use of a torch tensor on torch's current stream; no effect for other objects.
    Torch then does not reuse the tensor's memory on its own stream before this use is done."""
    if is_torch(source):
        source.record_stream(sys.modules["torch"].cuda.current_stream(ordinal))
