"""Numpy arrays and torch tensors used in place, on devices that can import host memory.

The pages around an array are imported once (VK_EXT_external_memory_host). Up to 256 imports are
cached while their owners live: numpy's base array, or torch's storage. `find` returns None for an
array that must be copied:

- it is not contiguous or, for numpy, not aligned, writable and in native byte order;
- its type has no kernel type, or the device stores that in another format;
- its elements have less than 32 bits and do not fill whole words, because kernels may replace the
  words around them;
- it is memory of the device itself, seen by DLPack;
- it is empty, or a torch tensor of a class other than Tensor and Parameter;
- the driver does not accept the memory.

    made = host_arrays(runtime).find(values, 0)
    made.host[0] = 1        # of numpy's array `values`
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from functools import cache
from itertools import combinations, pairwise
from math import prod
from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentError, DeviceError
from vkchi.fields.elements import choose_stored
from vkchi.interop import host_views
from vkchi.interop.host_views import to_taichi_type
from vkchi.interrupts.local import local
from vkchi.ndarray import Ndarray, ScalarNdarray
from vkchi.runtime import Runtime
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, bf16, row_major, scalar_of_dtype, with_shape
from vkchi.types.core import MOST_ALIGNED, PLAIN, ArrayArgument
from vkchi.types.lazy_numpy import is_array_of_numpy, np

if TYPE_CHECKING:
    from vkchi.device import Buffer
    from vkchi.interop.tensors import TensorPool

MOST_IMPORTS = 256
WORD_BYTES = 4
KEEP = "keep the data in a ti.ndarray or a ti.field between calls"


class OutsideNdarray(Ndarray):
    """An ndarray that stands for an array of another library, over its memory or a copy of it."""

    is_noguard = is_copy = True

    def __init__(
        self, runtime: Runtime, elem: Scalar | Tensor, shape: tuple[int, ...], buffer: Buffer
    ) -> None:
        self.describe(runtime, elem, None)
        self.arrange(shape, row_major(shape, self.components))
        self.attach(buffer, is_own=True)


class HostNdarray(OutsideNdarray):
    """An ndarray over host memory, which the caller keeps alive. `start` and `end` are its
    addresses."""

    host: np.ndarray[Any, Any]

    def attach(self, buffer: Buffer, *, is_own: bool) -> None:
        super().attach(buffer, is_own=is_own)
        known = self.argument.attributes
        # Only two alignments, to limit the number of compiled variants.
        if known.aligned < MOST_ALIGNED:
            known = known._replace(aligned=PLAIN.aligned)
            self.argument = ArrayArgument.of(self.argument.type, known)
        self.start = self.host.ctypes.data
        self.end = self.start + self.size_bytes

    def meets(self, other: HostNdarray) -> bool:
        return self.start < other.end and other.start < self.end


class ForeignHostNdarray(HostNdarray, ScalarNdarray):
    """A user's ndarray in the memory of another library, which it keeps alive."""

    is_copy = False


class HostArrayInfo(NamedTuple):
    """Memory of an array: the object that owns it, address, dtype and shape."""

    owner: Any
    address: int
    dtype: Any
    shape: tuple[int, ...]


class OutsideArrayType(NamedTuple):
    """Type of an array for kernels: element type, shape, size in bytes."""

    elem: Scalar | Tensor
    shape: tuple[int, ...]
    size_bytes: int


class OwnerReference(weakref.ref[Any]):
    """Weak reference to the owner of memory, with its key in the cache."""

    __slots__ = ("key",)
    key: Hashable


class ImportedHostMemory(NamedTuple):
    owner: OwnerReference
    array: HostNdarray


class CopyReason(NamedTuple):
    """Reason why an array is not used in place, as a clause, and advice."""

    reason: str
    help: str


class CachedLookup(NamedTuple):
    """Cached lookup: properties of an object when last seen, and the array over its memory.

    `object` and `array` are weak references. `where` is the address of a tensor's memory, or a cffi
    pointer to a numpy array's memory.
    """

    object: weakref.ref[Any]
    is_numpys: bool
    dtype: Any
    shape: tuple[int, ...]
    where: Any
    element_axes: int
    array: weakref.ref[HostNdarray]


class HostArrays:
    """Cache of the host memory that one device has imported. `can_import`: the device can import
    host memory, and debug mode is off."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        is_able = runtime.device.host_pointer_alignment > 0
        self.can_import = is_able and not runtime.options.debug
        ffi = runtime.device.heap.logical.vk.ffi
        self._cast, self._bytes = ffi.cast, ffi.from_buffer
        self._known: dict[Hashable, ImportedHostMemory] = {}
        self._noted: dict[int, CachedLookup] = {}  # by `id` of the object
        self._gone: deque[OwnerReference] = deque()
        self._readers: dict[type, Callable[[Any], HostArrayInfo | None]] = {}
        self.tensors: TensorPool | None = None  # pool of torch tensors in memory of the device

    def __len__(self) -> int:
        return len(self._known)

    def __bool__(self) -> bool:
        return True

    def find(self, array: Any, element_axes: int) -> HostNdarray | None:
        """Return the ndarray over a host array, from the cache or imported; None if it must be
        copied. The last `element_axes` axes are those of its elements."""
        if self._gone:
            self._forget()
        noted = self._noted.get(id(array))
        if noted is not None:
            found = self._find_noted(noted, array, element_axes)
            if found is not None:
                return found
        seen = (self._readers.get(type(array)) or self._add_reader(array))(array)
        if seen is None:
            return None
        owner, address, dtype, shape = seen
        key = (address, dtype, shape, element_axes)
        known = self._known.get(key)
        if known is None or known.owner() is not owner:
            made = self.tensors.find(seen, element_axes) if self.tensors is not None else None
            if made is not None:
                return made
            known = self._import(key, owner)
            if known is None:
                return None
        else:
            self._note(array, seen, element_axes, known.array)
        return known.array

    def _note(self, array: Any, seen: HostArrayInfo, element_axes: int, found: HostNdarray) -> None:
        """Cache the lookup of an array. No effect for bf16 of numpy, and for classes derived from
        numpy's."""
        is_numpys = type(array) is np.ndarray
        if is_array_of_numpy(array) and not (is_numpys and as_bits(array) is array):
            return
        where = self._cast("char *", seen.address) if is_numpys else seen.address
        if len(self._noted) >= MOST_IMPORTS:
            self._noted.clear()
        self._noted[id(array)] = CachedLookup(
            weakref.ref(array), is_numpys, seen.dtype, seen.shape, where, element_axes,
            weakref.ref(found),
        )  # fmt: skip

    def _find_noted(self, noted: CachedLookup, array: Any, element_axes: int) -> HostNdarray | None:
        """Return the cached ndarray if `array` is the noted object and is unchanged, else None."""
        known, is_numpys, dtype, shape, where, axes, found = noted
        last: Any = known()
        if last is None or last is not array or array.dtype is not dtype or axes != element_axes:
            return None
        if is_numpys:
            is_same = array.flags.carray and self._bytes(array) == where
        else:
            is_same = array.data_ptr() == where and array.is_contiguous()
        return found() if is_same and array.shape == shape else None

    # --- descriptions of arrays --------------------------------------------------------------

    def _add_reader(self, array: Any) -> Callable[[Any], HostArrayInfo | None]:
        """Choose, note and return the function that describes arrays of this class."""
        kind, torch = type(array), sys.modules.get("torch")
        reader: Callable[[Any], HostArrayInfo | None] = see_nothing
        if is_array_of_numpy(array):
            reader = self._see_numpy if kind is np.ndarray else self._see_derived
        elif torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
            reader = see_tensor
        self._readers[kind] = reader
        return reader

    def _see_numpy(self, array: np.ndarray[Any, Any]) -> HostArrayInfo | None:
        dtype, array = array.dtype, as_bits(array)
        if not (array.flags.carray and array.dtype.isnative and array.size):
            return None
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        try:
            address = int(self._cast("uintptr_t", self._bytes(array)))
        except local(ValueError):  # a dtype without a buffer format
            return None
        return HostArrayInfo(owner, address, dtype, array.shape)

    def take_over(self, array: np.ndarray[Any, Any]) -> ForeignHostNdarray | None:
        """Return an ndarray in the memory of an array, which it keeps alive; None if that is not
        possible."""
        seen = self._see_numpy(array)
        if seen is None:
            return None
        try:
            fit = self.fit(seen.address, seen.dtype, seen.shape, 0)
            if fit is None:
                return None
            memory = self._bytes(as_bits(array))
            buffer = self._runtime.device.import_host(memory, fit.size_bytes)
            made = ForeignHostNdarray(self._runtime, fit.elem, fit.shape, buffer)
        except DeviceError:
            return None
        self._runtime.exported.add(made)
        return made

    def _see_derived(self, array: np.ndarray[Any, Any]) -> HostArrayInfo | None:
        try:
            return self._see_numpy(host_views.as_plain_array(array))
        except ArgumentError:
            return None

    def why_copied(self, array: Any, name: str) -> CopyReason:
        """Reason why the host array of the argument `name` is copied, and advice.

        Of several reasons, the first in the order of docs/interop.md.
        """
        device, values = self._runtime.device, host_views.view_of(array)
        assert values is not None
        if self._runtime.options.debug:
            return CopyReason("in debug mode, all arrays are copied", KEEP)
        if not device.unified:
            return CopyReason("the device has memory of its own", KEEP)
        if not self.can_import:
            return CopyReason("the driver cannot use host memory", KEEP)
        if not values.size:
            return CopyReason("it is empty", KEEP)
        size, is_torchs = values.itemsize, host_views.is_torch(array)
        apart = irregular_axis(values)
        if apart:
            call = f"{name}.contiguous()" if is_torchs else f"np.ascontiguousarray({name})"
            return CopyReason(apart, f"{call} is used in place; or {KEEP}")
        copied = f"{name}.{'clone' if is_torchs else 'copy'}() is used in place; or {KEEP}"
        if not values.flags.aligned or values.ctypes.data % size:
            return CopyReason(f"its address is not a multiple of {size}", copied)
        if not values.dtype.isnative:
            native = f"{name}.astype({name}.dtype.newbyteorder('='))"
            return CopyReason(
                "its byte order is not that of the host", f"{native} is used in place; or {KEEP}"
            )
        if not values.flags.writeable:
            return CopyReason("it is read-only", copied)
        scalar = scalar_of_dtype(values.dtype)
        if scalar is not None and choose_stored(device, scalar).size_bytes != size:
            return CopyReason(f"the device stores {scalar} in another size", KEEP)
        if size < WORD_BYTES and (values.ctypes.data % WORD_BYTES or values.nbytes % WORD_BYTES):
            return CopyReason(f"it does not fill whole words of {WORD_BYTES} bytes", KEEP)
        if is_torchs and see_tensor(array) is None:
            return CopyReason("its values are not in memory as they are", copied)
        if (self._readers.get(type(array)) or self._add_reader(array)) is see_nothing:
            return CopyReason(f"it is a {type(array).__name__}, not a plain tensor", KEEP)
        return CopyReason("the driver does not accept its memory", KEEP)

    # --- imports -----------------------------------------------------------------------------

    def _import(
        self, key: tuple[int, Any, tuple[int, ...], int], owner: Any
    ) -> ImportedHostMemory | None:
        try:
            fit = self.fit(*key)
            if fit is None:
                return None
            pointer = self._cast("char *", key[0])
            buffer = self._runtime.device.import_host(pointer, fit.size_bytes)
            made = HostNdarray(self._runtime, fit.elem, fit.shape, buffer)
        except (ArgumentError, DeviceError):  # the copy reports the error, if it fails too
            return None
        reference = OwnerReference(owner, self._gone.append)
        reference.key = key
        if len(self._known) >= MOST_IMPORTS:
            self._known.pop(next(iter(self._known)), None)
        known = self._known[key] = ImportedHostMemory(reference, made)
        return known

    def fit(
        self, address: int, dtype: Any, shape: tuple[int, ...], element_axes: int
    ) -> OutsideArrayType | None:
        """Return the type of contiguous memory for kernels; None if it cannot be used in place.
        Raises ArgumentError for a torch dtype without a kernel type."""
        is_numpys = isinstance(dtype, np.dtype)
        scalar = scalar_of_dtype(dtype) if is_numpys else type_of_torchs(dtype)
        if scalar is None:
            return None
        axes = len(shape) - element_axes
        size = scalar.size_bytes
        size_bytes = prod(shape) * size
        if axes < 0 or not is_word_wise(address, size, size_bytes):
            return None
        if choose_stored(self._runtime.device, scalar).size_bytes != size:
            return None
        return OutsideArrayType(
            with_shape(scalar, tuple(shape[axes:])), tuple(shape[:axes]), size_bytes
        )

    def _forget(self) -> None:
        while self._gone:
            owner = self._gone.popleft()
            known = self._known.get(owner.key)
            if known is not None and known.owner is owner:
                self._known.pop(owner.key, None)


def as_bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array of bf16 as a view of its bits, another unchanged."""
    return array.view(np.uint16) if scalar_of_dtype(array.dtype) is bf16 else array


def is_word_wise(address: int, size: int, size_bytes: int) -> bool:
    """True if contiguous elements of `size` bytes are aligned, not none, and fill whole words of 4
    bytes: kernels may replace the words around narrow elements."""
    if not size_bytes or address % size:
        return False
    return size >= WORD_BYTES or not (address % WORD_BYTES or size_bytes % WORD_BYTES)


type_of_torchs = cache(to_taichi_type)


def see_tensor(tensor: Any) -> HostArrayInfo | None:
    """Describe the memory of a torch tensor. None unless it is contiguous host memory with the
    tensor's own values."""
    try:
        if not (tensor.is_cpu and tensor.is_contiguous()) or tensor.is_neg():
            return None
        owner, address = tensor.untyped_storage(), tensor.data_ptr()
        if owner.data_ptr() + owner.nbytes() < address + tensor.nbytes:
            return None  # its storage was shrunk: the copy reports it
        return HostArrayInfo(owner, address, tensor.dtype, tensor.shape)
    except local(RuntimeError, NotImplementedError):  # sparse, or a fake tensor of torch
        return None


def irregular_axis(values: np.ndarray[Any, Any]) -> str:
    """Clause about the innermost axis whose elements are not contiguous; "" if all are."""
    expected = values.itemsize
    for axis in reversed(range(values.ndim)):
        length, step = values.shape[axis], values.strides[axis]
        if length > 1 and step != expected:
            which = "" if values.ndim == 1 else f" along axis {axis}"
            return f"its elements{which} are {step} bytes apart, not {expected}"
        expected *= length
    return ""


def see_nothing(_array: object) -> None:
    """Return None: arrays of this class are copied."""


def host_arrays(runtime: Runtime) -> HostArrays:
    """Return the `HostArrays` of a runtime, made at first use."""
    found: HostArrays | None = runtime.host_arrays
    if found is None:
        found = runtime.host_arrays = HostArrays(runtime)
    return found


# --- aliases ------------------------------------------------------------------------------------


def are_disjoint_arguments(arrays: list[Any]) -> bool:
    """True if no two arrays, and no array and gradient, have the same buffer or overlapping host
    memory.

    Host memory counts if it is used in place. Arrays that will be copied must not be the same view,
    which is copied once. `signature.bound` checks other overlaps.
    """
    buffers: set[int] = set()
    gradients, others, ranges = [], [], []
    for a in arrays:
        if isinstance(a, Ndarray):
            buffers.add(id(a.buffer))
            if isinstance(a, HostNdarray):
                ranges.append((a.start, a.end))
            if a.grad is not None:
                gradients.append(a.grad.buffer)
        else:
            others.append(a)
    if len(buffers) + len(others) < len(arrays):
        return False
    if len(ranges) > 1 and any(end > start for (_, end), (start, _) in pairwise(sorted(ranges))):
        return False
    if gradients and not buffers.isdisjoint(map(id, gradients)):
        return False
    return len(others) < 2 or not any(
        a is None or b is None or host_views.is_same_view(a, b)
        for a, b in combinations(map(host_views.view_of, others), 2)
    )
