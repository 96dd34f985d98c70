"""CUDA arrays as kernel arguments: in place if possible, otherwise copied.

An array is used in place if it is contiguous and its memory is either

- vkchi's own: a field or an ndarray exported by DLPack; or
- importable into Vulkan: from `torch_memory`, or another exportable allocation of CUDA's virtual
  memory.

Others are copied, on the device, into a shared staging buffer, and back if the kernel writes them.
Staging buffers are reused for arrays of the same type, shape and stream. All work for an array is
ordered on one stream: torch's current one, or the one that the object names. The host does not wait
for it. Source: numba's documentation of the CUDA array interface, version 3.

    loan = cuda_arrays(runtime).lend(tensor, 0)
    loan.bring()        # before the launch
    loan.fetch()        # after it, if the kernel wrote it
"""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict, deque
from math import prod
from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentError, DeviceError
from vkchi.fields.elements import choose_stored
from vkchi.interop.cuda.driver import AllocationIdentity, CudaDriver
from vkchi.interop.cuda.link import Link, LinkFailure, Stream, find_link
from vkchi.interop.dlpack import ArrayInterface, ArrayLocation
from vkchi.interop.host_views import is_torch, raw_view_type
from vkchi.interop.in_place import WORD_BYTES, OutsideArrayType, OutsideNdarray, is_word_wise
from vkchi.ndarray import Ndarray, ScalarNdarray
from vkchi.tuples import NamedTuple
from vkchi.types import scalar_of_dtype, with_shape
from vkchi.types.bfloat16 import raw_dtype
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.device import Buffer
    from vkchi.runtime import Runtime


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
    dtype = raw_view_type(tensor.dtype)
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
        dtype = np.dtype(np.int16) if seen.dtype == raw_dtype() else seen.dtype
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": seen.shape, "typestr": dtype.str,
            "strides": None, "version": 3,
        }  # fmt: skip


def as_torch_tensor(address: int, seen: CudaArrayInfo, ordinal: int) -> Any:
    """Return a contiguous torch tensor over vkchi's memory, with the shape and dtype of `seen`."""
    torch = sys.modules["torch"]
    made = torch.as_tensor(ForTorch(address, seen), device=f"cuda:{ordinal}")
    return made.view(torch.bfloat16) if seen.dtype == raw_dtype() else made


def record_stream_use(source: Any, ordinal: int) -> None:
    """Record the use of a torch tensor on torch's current stream; no effect for other objects.
    Torch then does not reuse the tensor's memory on its own stream before this use is done."""
    if is_torch(source):
        source.record_stream(sys.modules["torch"].cuda.current_stream(ordinal))


MOST_IMPORTS, MOST_STAGED, MOST_REFUSED = 64, 64, 1024
NO_PLACE = (
    "this array of CUDA's is copied: its memory is not made to be shared. Make it in `with "
    "ti.torch_memory():`, or make the array here (ti.ndarray) and give it to the other library"
)


class CudaNdarray(OutsideNdarray):
    """An ndarray that stands for a CUDA array."""


class ForeignCudaNdarray(CudaNdarray, ScalarNdarray):
    """A user's ndarray in the memory of a CUDA array, which it keeps alive."""

    is_copy = False
    keeper: object


class CudaArgument:
    """A CUDA array as an argument of one call.

    - array: the ndarray that kernels get in its place.
    - view: a numpy array with its CUDA address, never dereferenced.
    - copied: CUDA address of the staging buffer; None if the array is used in place.
    """

    def __init__(
        self, link: Link, source: object, seen: CudaArrayInfo, array: Ndarray, copied: int | None
    ) -> None:
        self.link, self.source, self.seen = link, source, seen
        self.array, self.copied = array, copied
        place = ArrayLocation(seen.address, seen.shape, seen.strides, seen.dtype, (0, 0))
        self.view = np.asarray(ArrayInterface(place, None))
        if seen.is_read_only:
            self.view.flags.writeable = False

    @property
    def stream(self) -> Stream:
        return self.link.stream(self.seen.stream)

    def bring(self) -> None:
        """Copy the values to the staging buffer on the stream; no effect if used in place."""
        self._move(is_back=False)

    def fetch(self) -> None:
        """Copy the kernel's results back on the stream; no effect if used in place."""
        self._move(is_back=True)

    def end(self) -> None:
        """After the call, record the stream's use of the array, and release the staging buffer for
        reuse."""
        record_stream_use(self.source, self.link.cuda.ordinal)
        if isinstance(self.array, CudaNdarray) and self.copied is not None:
            self.link.arrays.keep(self.seen.stream, self.array, self.copied)

    def _move(self, *, is_back: bool) -> None:
        seen, there = self.seen, self.copied
        size_bytes = prod(seen.shape) * seen.dtype.itemsize
        if there is None or not size_bytes:
            return
        if seen.is_contiguous and seen.device == self.link.cuda.ordinal:
            ends = (seen.address, there) if is_back else (there, seen.address)
            self.link.cuda.copy(*ends, size_bytes, seen.stream)
            return
        source: Any = self.source
        ours = as_torch_tensor(there, seen, self.link.cuda.ordinal)
        target, origin = (source.detach(), ours) if is_back else (ours, source.detach())
        target.copy_(origin)


class ImportedAllocation:
    """A CUDA allocation imported as a whole into Vulkan, from CUDA address `start` on. `owners` are
    the owners of the arrays seen in it. It is kept until all are gone."""

    def __init__(self, start: int, buffer: Buffer) -> None:
        self.start, self.buffer = start, buffer
        self.owners: dict[int, weakref.ref[Any]] = {}


class CudaArrays:
    """Imported allocations and staging buffers of a runtime. Has no lock of its own."""

    def __init__(self, runtime: Runtime, link: Link) -> None:
        self._runtime, self.link = runtime, link
        self._imported: OrderedDict[AllocationIdentity, ImportedAllocation] = OrderedDict()
        self._gone: deque[Any] = deque()
        self._refused: set[AllocationIdentity] = set()
        self._staged: OrderedDict[Any, list[tuple[CudaNdarray, int]]] = OrderedDict()

    def lend(self, source: object, element_axes: int) -> CudaArgument:
        """Return a CUDA array as an argument: in place, or with a staging buffer, not yet filled.
        Raises ArgumentError if the array is not supported."""
        if self._gone:
            self._forget()
        seen = describe_array(source, self.link.cuda)
        fit = self._fit(seen, element_axes)
        buffer = self._find(source, seen, fit) if fits_in_place(seen, fit.size_bytes) else None
        if buffer is not None:
            array, copied = CudaNdarray(self._runtime, fit.elem, fit.shape, buffer), None
        else:
            array, copied = self._stage(seen, fit)
        return CudaArgument(self.link, source, seen, array, copied)

    def take_over(self, source: object, *, copy: bool | None) -> Ndarray:
        """Return an ndarray of a CUDA array, in its memory if possible.

        It keeps the memory alive. With `copy` True, or if Vulkan cannot import the memory, it is a
        copy made on the device. Raises BufferError if `copy` is False and a copy is necessary,
        ArgumentError if the array is not supported.
        """
        seen = describe_array(source, self.link.cuda)
        fit = self._fit(seen, 0)
        buffer = None
        if copy is not True and fits_in_place(seen, fit.size_bytes):
            buffer = self._find(source, seen, fit)
        if buffer is not None:
            made = ForeignCudaNdarray(self._runtime, fit.elem, fit.shape, buffer)
            made.keeper = self.link.hold(seen.address, source, seen.stream)
            record_stream_use(source, self.link.cuda.ordinal)
            self._runtime.exported.add(made)
            return made
        if copy is False:
            raise BufferError(NO_PLACE)
        copied = ScalarNdarray(self._runtime, fit.elem, fit.shape)
        loan = CudaArgument(self.link, source, seen, copied, self.link.map(copied.buffer))
        self.link.take_back(loan.stream)  # after the launch that fills it with zeros
        loan.bring()
        self.link.lend(loan.stream)
        return copied

    def _fit(self, seen: CudaArrayInfo, element_axes: int) -> OutsideArrayType:
        scalar = scalar_of_dtype(seen.dtype)
        if scalar is None:
            raise ArgumentError(f"kernels have no type for numpy's {seen.dtype}")
        axes = len(seen.shape) - element_axes
        stored = choose_stored(self._runtime.device, scalar)
        if axes < 0 or stored.size_bytes != seen.dtype.itemsize:
            raise ArgumentError("memory of CUDA's that this device keeps otherwise: pass x.cpu()")
        elem = with_shape(scalar, tuple(seen.shape[axes:]))
        return OutsideArrayType(
            elem, tuple(seen.shape[:axes]), prod(seen.shape) * seen.dtype.itemsize
        )

    # --- in place ------------------------------------------------------------------------------

    def _find(self, source: object, seen: CudaArrayInfo, fit: OutsideArrayType) -> Buffer | None:
        """A buffer over the array's memory, vkchi's or imported; None if it must be copied."""
        device, size_bytes = self._runtime.device, fit.size_bytes
        own = self.link.find_own(seen.address, size_bytes)
        if own is not None:
            return device.part_of(*own, size_bytes)
        known = self._find_imported(source, seen.address)
        at = -1 if known is None else seen.address - known.start
        if known is None or not 0 <= at <= known.buffer.size_bytes - size_bytes:
            return None
        block, offset = known.buffer.place()
        return device.part_of(block, offset + at, size_bytes)

    def _find_imported(self, source: object, address: int) -> ImportedAllocation | None:
        identity = self.link.cuda.identify(address)
        if identity is None or identity in self._refused:
            return None
        known = self._imported.get(identity) or self._import(address)
        if known is None:
            if len(self._refused) >= MOST_REFUSED:
                self._refused.clear()
            self._refused.add(identity)
            return None
        self._imported[identity] = known
        while len(self._imported) > MOST_IMPORTS:
            self._imported.popitem(last=False)
        owner = source.untyped_storage() if hasattr(source, "untyped_storage") else source
        if id(owner) not in known.owners:
            known.owners[id(owner)] = weakref.ref(owner, self._gone.append)
        return known

    def _import(self, address: int) -> ImportedAllocation | None:
        found = self.link.cuda.find_exportable(address)
        if found is None:
            return None
        payload = found.payload
        try:
            buffer = self._runtime.device.import_payload(payload, payload.size_bytes)
        except DeviceError:
            payload.close()
            return None
        return ImportedAllocation(found.start, buffer)

    def _forget(self) -> None:
        self._gone.clear()
        for identity, known in list(self._imported.items()):
            known.owners = {k: ref for k, ref in known.owners.items() if ref() is not None}
            if not known.owners:
                self._imported.pop(identity)

    # --- copies --------------------------------------------------------------------------------

    def _stage(self, seen: CudaArrayInfo, fit: OutsideArrayType) -> tuple[CudaNdarray, int]:
        """Return a staging buffer that no other argument of this call uses, and its CUDA address.
        It may be of an earlier call on the same stream, which orders the uses."""
        key = (seen.stream, fit.elem, fit.shape)
        if self._staged.get(key):
            return self._staged[key].pop()
        size_bytes = -(-max(1, fit.size_bytes) // WORD_BYTES) * WORD_BYTES
        buffer = self._runtime.device.allocate(size_bytes, zero=False)
        made = CudaNdarray(self._runtime, fit.elem, fit.shape, buffer)
        return made, self.link.map(buffer)

    def keep(self, stream: int, array: CudaNdarray, copied: int) -> None:
        key = (stream, array.elem, array.shape)
        self._staged.setdefault(key, []).append((array, copied))
        self._staged.move_to_end(key)
        while sum(map(len, self._staged.values())) > MOST_STAGED:
            self._staged.popitem(last=False)


def fits_in_place(seen: CudaArrayInfo, size_bytes: int) -> bool:
    """True if the layout of an array permits its use in place."""
    return seen.is_contiguous and is_word_wise(seen.address, seen.dtype.itemsize, size_bytes)


def cuda_arrays(runtime: Runtime) -> CudaArrays:
    """Return the `CudaArrays` of a runtime, made at first use. Raises ArgumentError if it shares no
    memory with CUDA."""
    link = find_link(runtime)
    if isinstance(link, LinkFailure):
        raise ArgumentError(f"memory of CUDA's, and {link.reason}: pass x.cpu()")
    if link.arrays is None:
        link.arrays = CudaArrays(runtime, link)
    found: CudaArrays = link.arrays
    return found
