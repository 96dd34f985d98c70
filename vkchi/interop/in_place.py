"""Arrays of numpy and torch that kernels use where they lie, on devices whose memory is the host's.

Owns: which arrays can be, ours over them, the cache of what was imported. Must not know: kernels.

The pages around an array are imported once (VK_EXT_external_memory_host) and kept for the next
call, for as long as their owner lives: numpy's first array over the memory, torch's storage. What
is not contiguous, aligned, writable, of the host's byte order and of a type that the device keeps
as it is, is copied (None here); so are numbers of less than 32 bits that do not fill whole words,
for kernels may exchange the words around them, and memory of the device itself, seen by DLPack.

    made = host_arrays(runtime).find(values, 0)
    made.host[0] = 1        # of numpy's array `values`
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentError, DeviceError
from vkchi.fields.elements import choose_stored
from vkchi.interop import host
from vkchi.interop.dtypes import to_taichi_type
from vkchi.interrupts.local import local
from vkchi.ndarray import Ndarray, ScalarNdarray
from vkchi.runtime import Runtime
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, row_major, scalar_of_dtype, with_shape
from vkchi.types.attributes import MOST_ALIGNED, PLAIN, ArrayArgument
from vkchi.types.lazy_numpy import is_array_of_numpy, np

if TYPE_CHECKING:
    from vkchi.buffer import Buffer
    from vkchi.interop.tensors import Tensors

MOST_IMPORTS = 256
WORD_BYTES = 4


class HostNdarray(Ndarray):
    """An array in memory of the host, from address `start` to `end`. Whoever uses it sees to it
    that the memory is kept."""

    is_bare = is_copy = True
    host: np.ndarray[Any, Any]

    def __init__(
        self, runtime: Runtime, elem: Scalar | Tensor, shape: tuple[int, ...], buffer: Buffer
    ) -> None:
        self.describe(runtime, elem, None)
        self.arrange(shape, row_major(shape, self.components))
        self.attach(buffer, is_own=True)

    def attach(self, buffer: Buffer, *, is_own: bool) -> None:
        super().attach(buffer, is_own=is_own)
        known = self.argument.attributes
        if (
            known.aligned < MOST_ALIGNED
        ):  # two kinds of them, so that not every part is compiled for
            known = known._replace(aligned=PLAIN.aligned)
            self.argument = ArrayArgument.of(self.argument.type, known)
        self.start = self.host.ctypes.data
        self.end = self.start + self.size_bytes

    def meets(self, other: HostNdarray) -> bool:
        """Whether the memory of both has a byte in common."""
        return self.start < other.end and other.start < self.end


class TakenNdarray(HostNdarray, ScalarNdarray):
    """An array for users that keeps the memory of another library in which it is."""

    is_copy = False


class Seen(NamedTuple):
    """The memory of an array: what keeps it, its address, dtype and shape."""

    owner: Any
    address: int
    dtype: Any
    shape: tuple[int, ...]


class Fit(NamedTuple):
    """Elements, shape and bytes of an array."""

    elem: Scalar | Tensor
    shape: tuple[int, ...]
    size_bytes: int


class Owner(weakref.ref[Any]):
    """A reference to what keeps memory, that knows where in the cache it stands."""

    __slots__ = ("key",)
    key: Hashable


class Imported(NamedTuple):
    """Memory that was imported: who keeps it, and an array over it."""

    owner: Owner
    array: HostNdarray


class Noted(NamedTuple):
    """What an object was when it was last looked at, and the array over its memory: neither is
    kept. `where` is the address of a tensor's memory, or a pointer to that of a numpy array."""

    object: weakref.ref[Any]
    is_numpys: bool
    dtype: Any
    shape: tuple[int, ...]
    where: Any
    element_axes: int
    array: weakref.ref[HostNdarray]


class HostArrays:
    """What one device has imported of the host's memory; nothing unless it `can_import`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        is_able = runtime.device.host_pointer_alignment > 0
        self.can_import = is_able and not runtime.options.debug
        ffi = runtime.device.heap.logical.vk.ffi
        self._cast, self._bytes = ffi.cast, ffi.from_buffer
        self._known: dict[Hashable, Imported] = {}
        self._noted: dict[int, Noted] = {}  # by `id`
        self._gone: deque[Owner] = deque()
        self._readers: dict[type, Callable[[Any], Seen | None]] = {}
        self.tensors: Tensors | None = None  # that were made in memory of the device

    def __len__(self) -> int:
        return len(self._known)

    def __bool__(self) -> bool:
        return True

    def find(self, array: Any, element_axes: int) -> HostNdarray | None:
        """The array over another one, whose last axes are those of its elements; None where it must
        be copied."""
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

    def _note(self, array: Any, seen: Seen, element_axes: int, found: HostNdarray) -> None:
        """Keep what was seen of an array for the next time, which then takes a third as long."""
        is_numpys = type(array) is np.ndarray
        if not is_numpys and is_array_of_numpy(array):
            return
        where = self._cast("char *", seen.address) if is_numpys else seen.address
        if len(self._noted) >= MOST_IMPORTS:
            self._noted.clear()
        self._noted[id(array)] = Noted(
            weakref.ref(array), is_numpys, seen.dtype, seen.shape, where, element_axes,
            weakref.ref(found),
        )  # fmt: skip

    def _find_noted(self, noted: Noted, array: Any, element_axes: int) -> HostNdarray | None:
        """The array that was found before for the same object, if that is as it was then. A tensor
        whose memory begins where it did has the same storage, or another view of that."""
        known, is_numpys, dtype, shape, where, axes, found = noted
        last: Any = known()
        if last is None or last is not array or array.dtype is not dtype or axes != element_axes:
            return None
        if is_numpys:
            is_same = array.flags.carray and self._bytes(array) == where
        else:
            is_same = array.data_ptr() == where and array.is_contiguous()
        return found() if is_same and array.shape == shape else None

    # --- what arrays are ---------------------------------------------------------------------

    def _add_reader(self, array: Any) -> Callable[[Any], Seen | None]:
        """How arrays of a class that was not met before are looked at."""
        kind, torch = type(array), sys.modules.get("torch")
        reader: Callable[[Any], Seen | None] = see_nothing
        if is_array_of_numpy(array):
            reader = self._see_numpy if kind is np.ndarray else self._see_derived
        elif torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
            reader = see_tensor
        self._readers[kind] = reader
        return reader

    def _see_numpy(self, array: np.ndarray[Any, Any]) -> Seen | None:
        if not (array.flags.carray and array.dtype.isnative and array.size):
            return None
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        try:
            address = int(self._cast("uintptr_t", self._bytes(array)))
        except local(ValueError):  # a dtype that Python's buffers have no name for
            return None
        return Seen(owner, address, array.dtype, array.shape)

    def take_over(self, array: np.ndarray[Any, Any]) -> TakenNdarray | None:
        """An array in the memory of another one, which it keeps; None where there can be none."""
        seen = self._see_numpy(array)
        if seen is None:
            return None
        try:
            fit = self.fit(seen.address, seen.dtype, seen.shape, 0)
            if fit is None:
                return None
            buffer = self._runtime.device.import_host(self._bytes(array), fit.size_bytes)
            made = TakenNdarray(self._runtime, fit.elem, fit.shape, buffer)
        except DeviceError:
            return None
        self._runtime.exported.add(made)
        return made

    def _see_derived(self, array: np.ndarray[Any, Any]) -> Seen | None:
        try:
            return self._see_numpy(host.plain(array))
        except ArgumentError:
            return None

    # --- imports -----------------------------------------------------------------------------

    def _import(self, key: tuple[int, Any, tuple[int, ...], int], owner: Any) -> Imported | None:
        try:
            fit = self.fit(*key)
            if fit is None:
                return None
            pointer = self._cast("char *", key[0])
            buffer = self._runtime.device.import_host(pointer, fit.size_bytes)
            made = HostNdarray(self._runtime, fit.elem, fit.shape, buffer)
        except (ArgumentError, DeviceError):  # the copy says what is wrong, if it is more than this
            return None
        reference = Owner(owner, self._gone.append)
        reference.key = key
        if len(self._known) >= MOST_IMPORTS:
            self._known.pop(next(iter(self._known)), None)
        known = self._known[key] = Imported(reference, made)
        return known

    def fit(
        self, address: int, dtype: Any, shape: tuple[int, ...], element_axes: int
    ) -> Fit | None:
        """What kernels take contiguous memory for; None where they cannot. Raises ArgumentError for
        a dtype that they have no type for."""
        is_numpys = isinstance(dtype, np.dtype)
        scalar = scalar_of_dtype(dtype) if is_numpys else type_of_torchs(dtype)
        if scalar is None:
            return None
        axes = len(shape) - element_axes
        size = scalar.dtype.itemsize
        size_bytes = prod(shape) * size
        is_whole = size >= WORD_BYTES or not (address % WORD_BYTES or size_bytes % WORD_BYTES)
        if axes < 0 or address % size or not (size_bytes and is_whole):
            return None
        if choose_stored(self._runtime.device, scalar).dtype.itemsize != size:
            return None
        return Fit(with_shape(scalar, tuple(shape[axes:])), tuple(shape[:axes]), size_bytes)

    def _forget(self) -> None:
        """Drop what was imported of memory whose owner is gone."""
        while self._gone:
            owner = self._gone.popleft()
            known = self._known.get(owner.key)
            if known is not None and known.owner is owner:
                self._known.pop(owner.key, None)


type_of_torchs = cache(to_taichi_type)


def see_tensor(tensor: Any) -> Seen | None:
    """The memory of a torch tensor; None where it has none of the host's, or not in order."""
    try:
        if not (tensor.is_cpu and tensor.is_contiguous()) or tensor.is_neg():
            return None
        owner, address = tensor.untyped_storage(), tensor.data_ptr()
        if owner.data_ptr() + owner.nbytes() < address + tensor.nbytes:
            return None  # its storage was made smaller: the copy says so
        return Seen(owner, address, tensor.dtype, tensor.shape)
    except local(RuntimeError, NotImplementedError):  # sparse, or torch's own stand-in for a tensor
        return None


def see_nothing(_array: object) -> None:
    """Of a class of which nothing is known."""


def host_arrays(runtime: Runtime) -> HostArrays:
    """What the runtime's device has imported. In debug mode, nothing is: copies are looked at."""
    found: HostArrays | None = runtime.host_arrays
    if found is None:
        found = runtime.host_arrays = HostArrays(runtime)
    return found
