"""Typed device memory, accessed from Python: the common base of fields and ndarrays.

It covers allocation, bulk copies to and from numpy and torch, fills, and DLPack export.

    s = Storage(runtime, f32, (4,)); s[1] = 2.0; s.to_numpy().tolist()     # [0.0, 2.0, 0.0, 0.0]
"""

from __future__ import annotations

import math
import struct
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from vkchi.errors import ArgumentError
from vkchi.fields import display
from vkchi.fields.elements import ArrayAccess, Elements, fill_later
from vkchi.interop import dlpack, host_views
from vkchi.runtime import Runtime, await_host_memory
from vkchi.tuples import NamedTuple
from vkchi.types import Layout, Scalar, Tensor, bf16, f32, row_major, shape_of, u1, u8, with_shape
from vkchi.types.bfloat16 import decode, raw_dtype
from vkchi.types.lazy_numpy import is_numpy_loaded, np
from vkchi.types.losses import PLAIN

if TYPE_CHECKING:
    from vkchi.device import Buffer
    from vkchi.fields.trees.block_activity import BlockActivity
    from vkchi.types.hints import Numbers

ALIGNMENT = 256  # bytes; guaranteed for buffers
NOT_IN_STEPS = "the elements do not lie in equal steps as DLPack wants them: a copy is needed"


class RebasedBuffer(NamedTuple):
    """Stand-in for a buffer of which only a part (`held`) exists. `address` is that of offset 0, so
    that kernels use the offsets of the whole buffer."""

    held: Buffer
    key: int
    address: int


FILLED_AT_ONCE, FILLED_SMALL_BYTES = 1 << 16, 1 << 20  # scalars, bytes; without numpy


class Storage(Elements):
    """An array in device memory: `shape` elements of type `elem` (a scalar or tensor type),
    initially 0.

    Raises DeviceError if the device cannot hold it, or is closed.
    """

    def __init__(
        self,
        runtime: Runtime,
        elem: Scalar | Tensor,
        shape: tuple[int, ...],
        layout: Layout | None = None,
        stored: Scalar | None = None,
    ) -> None:
        self.describe(runtime, elem, stored)
        self.arrange(shape, layout or row_major(shape, self.components))
        self._allocate()

    has_place = True  # fields: True if placed
    activity: BlockActivity | None = None  # of the sparse block whose activity array this is
    has_shared_exponent = False  # its numbers share their exponents with others
    kind_name = "array"  # in messages
    origin_name = ""  # in messages, before `kind_name`, where an array is part of another one

    @property
    def dtype(self) -> Any:
        """The scalar type as users see it."""
        return self.number

    @property
    def compute(self) -> Scalar:
        """The scalar type of the values in kernels and in numpy."""
        return f32 if self.number is bf16 else self.number

    @property
    def seen_elem(self) -> Scalar | Tensor:
        """The element type in kernels."""
        return with_shape(self.compute, shape_of(self.elem))

    @property
    def has_memory(self) -> bool:
        """True if memory is allocated; always for other arrays than fields."""
        return True

    @property
    def type_name(self) -> str:
        """The element type in messages."""
        return str(self.elem)

    @property
    def is_mapped_directly(self) -> bool:
        """True if `host` exists and has the array's shape and values."""
        is_coded = self.is_encoded or self.number is bf16
        return not is_coded and self._is_direct and self.host is not None

    def __repr__(self) -> str:
        return display.describe(self) if display.is_asked_by_package(1) else display.show(self)

    def __str__(self) -> str:
        if display.is_asked_by_package(1):
            return repr(self)
        return display.printed(self, display.show)

    def _repr_png_(self) -> bytes | None:
        """The picture that a notebook shows; None for arrays that are no pictures."""
        return display.picture_of(self)

    def _repr_html_(self) -> str | None:
        """The picture with a description, for a notebook; None for arrays that are no pictures."""
        return display.picture_in_html(self)

    def _unwrap(self) -> Storage:
        """The array itself; Genesis calls it, because Quadrants' `Tensor` wraps arrays."""
        return self

    def _allocate(self) -> None:
        spare_bytes = self.components * self.stored.size_bytes  # target of out-of-range accesses
        self.attach(self.device.allocate(self.size_bytes + spare_bytes), is_own=True)

    def __deepcopy__(self, memo: dict[int, Any]) -> Storage:
        """Return an independent copy of the contents (and gradient). Tapes record the copy."""
        made, tape = self.duplicate(memo), self.runtime.tape
        if tape is None or not tape.copy(made, self):
            self.tell(ArrayAccess("read"))
        return made

    # --- interface for tapes -------------------------------------------------------------------

    def companion(self, kind: str) -> Storage | None:
        """The array's gradient (`grad`) or dual; None without one, or if it is not placed."""
        found = getattr(self, kind, None)
        if found is None or getattr(found, "node", found) is None:
            return None
        assert isinstance(found, Storage)
        return found

    @property
    def is_gradient(self) -> bool:
        """True for gradients. Derivative kernels accumulate into them."""
        return self.whole in self.runtime.gradients

    def copied(self) -> Storage:
        """A `Storage` with the same type, layout and contents, copied on the device. Tapes are not
        notified."""
        made = Storage(self.runtime, self.elem, self.shape, self.layout, self.stored)
        self.device.copy(self.buffer, made.buffer, self.size_bytes)
        return made

    def copied_rows(self, first: int, last: int) -> Storage:
        """A copy of the elements `first` to `last`, inclusive, of the first axis. Kernels address
        it like the whole array, but must not access other rows.

        Precondition: `row_numbers` is not None.
        """
        assert self.row_numbers is not None
        row_bytes = self.row_numbers * self.stored.size_bytes
        begin = first * row_bytes // ALIGNMENT * ALIGNMENT
        size_bytes = (last + 1) * row_bytes - begin
        held = self.device.allocate(size_bytes)
        self.device.copy(self.buffer, held, size_bytes, begin)
        made = object.__new__(Storage)
        made.describe(self.runtime, self.elem, self.stored)
        made.arrange(self.shape, self.layout)
        made.size_bytes = size_bytes
        made.buffer = cast("Buffer", RebasedBuffer(held, held.key, held.address - begin))
        return made

    # --- copies and exports --------------------------------------------------------------------

    def duplicate(self, memo: dict[int, Any]) -> Storage:
        """A copy of the same class with its own memory, gradient included. Tapes are not notified.
        `memo` is that of `copy.deepcopy`."""
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        vars(made).pop("watch", None)
        made._allocate()
        self.device.copy(self.buffer, made.buffer, self.size_bytes)
        gradient = vars(self).get("grad")
        if gradient is not None:
            vars(made)["grad"] = memo[id(gradient)] = gradient.duplicate(memo)
            self.runtime.gradients.add(vars(made)["grad"])
        return made

    def __copy__(self) -> Storage:
        """Return the array itself: kernels treat two objects as two arrays."""
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self!r} is memory of this process's device: pickle x.to_numpy(), and give it to "
            "from_numpy() of another"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Conversion to numpy: always a copy, as in `to_numpy`. Raises ValueError if `copy` is
        False."""
        if copy is False:
            raise ValueError("an array on the device is copied when numpy reads it")
        values: np.ndarray[Any, Any] = self.to_numpy()
        return values if dtype is None else values.astype(dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack device of the memory: the CPU, or CUDA's. Raises BufferError if it is neither."""
        return dlpack.HOST if self.is_reached else dlpack.cuda_device(self.runtime)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A DLPack capsule of shape `shape + element shape`. It shares the memory, after a wait for
        all submitted work. Results of later kernels are visible after `ti.sync()`. Memory shared
        with CUDA is exported on a CUDA stream, which orders later kernels.

        The capsule is a copy if `copy` is set or the elements have no constant strides. If the host
        cannot address the memory, a copy on the CPU must be requested by `dl_device`. A copy that
        `copy` False forbids, or that was not requested, raises BufferError. Source: the array API's
        `__dlpack__`.
        """
        self.check_alive()
        is_cudas = not (self.is_reached or copy) and dlpack.is_cuda(self.runtime, dl_device)
        if not is_cudas:
            dlpack.check_device(dl_device)
        self.tell(ArrayAccess("read"))
        if is_cudas:
            return self._cuda_capsule(stream, max_version)
        self.ready()
        shared = None if copy else self.raw_in_place()
        if shared is None and (copy is False or not (self.is_reached or dl_device is not None)):
            if not self.is_reached:
                dlpack.cuda_device(self.runtime)  # raises with a specific reason, if any
            raise BufferError(NOT_IN_STEPS)
        if shared is not None:
            self._expose()
            self.ready()
            tape = self.runtime.tape
            if tape is not None and tape.ledger is not None:
                tape.ledger.show((self.whole,))
        if self.number is not bf16:
            values = self.contents() if shared is None else shared
            return dlpack.capsule(values, stream, max_version, dl_device)
        bits = self.raw_kept().view(np.uint16) if shared is None else shared
        return dlpack.as_bfloat(dlpack.capsule(bits, stream, max_version, dl_device))

    def _cuda_capsule(self, stream: int | None, max_version: tuple[int, int] | None) -> object:
        """A zero-copy capsule for CUDA. Raises BufferError if the layout does not allow one."""
        if self.steps is None:
            raise BufferError(NOT_IN_STEPS)
        raw = np.empty(max(1, self.layout.size), self.stored.memory_dtype)  # never touched
        flat = raw.view(np.bool_) if self.number is u1 and self.stored is u8 else raw
        seen = self._strided(flat)
        view = seen.reshape(self.shape + shape_of(self.elem))
        is_shared = not view.size or np.may_share_memory(view, seen)
        if flat.dtype != self.number.memory_dtype or not is_shared:
            raise BufferError(NOT_IN_STEPS)
        self._expose()
        offset = view.ctypes.data - raw.ctypes.data if view.size else 0
        made = dlpack.cuda_capsule(self.runtime, self.buffer, view, offset, stream, max_version)
        return dlpack.as_bfloat(made) if self.number is bf16 else made

    def _expose(self) -> None:
        """Mark the memory as exported: other libraries may write to it without notice."""
        self.runtime.exported.add(self)
        self.device.announce((self.buffer.key,))

    def in_place(self) -> np.ndarray[Any, Any] | None:
        """Numpy view of the memory of shape `shape + element shape`; None if there can only be a
        copy, as of bf16."""
        return None if self.number is bf16 else self.raw_in_place()

    def raw_in_place(self) -> np.ndarray[Any, Any] | None:
        """`in_place`, but of bf16 the view of its bits."""
        host = self.host
        if host is None or host.dtype != self.number.memory_dtype:
            return None
        view = host.reshape(self.shape + shape_of(self.elem))
        return view if host.size == 0 or np.may_share_memory(view, host) else None

    # --- whole contents --------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Size of the contents in bytes: two per scalar of bf16, else as a numpy array."""
        return self.size * math.prod(shape_of(self.elem)) * self.number.size_bytes

    @property
    def element_shape(self) -> tuple[int, ...]:
        """() for scalars, (n,) for vectors, (n, m) for matrices."""
        return shape_of(self.elem)

    def has_grad(self) -> bool:
        """True if the array has a gradient."""
        return self.companion("grad") is not None

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """A copy of shape `shape + element shape`. Waits for the device."""
        return self.load(ArrayAccess("read"), self.contents)

    def seen(self) -> np.ndarray[Any, Any]:
        """Like `to_numpy`, but perhaps a view of the memory, valid only until the next device
        operation."""
        self.tell(ArrayAccess("read"))
        self.ready()
        shared = self.in_place()
        return self.contents() if shared is None else shared

    def copy_to(self, target: np.ndarray[Any, Any]) -> None:
        """Write the contents to a numpy array of the same shape. It must be contiguous unless the
        layout has one digit per axis."""
        self.load(ArrayAccess("read"), lambda: self.copy_unnoticed(target))

    def contents(self) -> np.ndarray[Any, Any]:
        """`to_numpy` without a report to the tape."""
        return self.kept()

    def copy_unnoticed(self, target: np.ndarray[Any, Any]) -> None:
        """`copy_to` without a report to the tape."""
        self.copy_kept(target)

    def kept(self) -> np.ndarray[Any, Any]:
        """A copy of the scalars in memory, encoded if the array `is_encoded`. The tape is not
        notified."""
        self.ready()
        found = np.empty(self.shape + shape_of(self.elem), self.number.dtype)
        self.copy_kept(found)
        return found

    def raw_kept(self) -> np.ndarray[Any, Any]:
        """A copy of the scalars of a bf16 array, of `bfloat16.raw_dtype`."""
        found = np.empty(self.shape + shape_of(self.elem), raw_dtype())
        self.copy_kept(found)
        return found

    def copy_kept(self, target: np.ndarray[Any, Any]) -> None:
        """Write the scalars in memory, as in `kept`, to a host array. The tape is not notified."""
        self.ready()
        values = self.host
        if values is None:
            raw = np.frombuffer(self.buffer.read(0, self.size_bytes), self.stored.memory_dtype)
            values = self._gather(raw)
        if self.number is bf16:
            if target.dtype == raw_dtype():
                target = target.view(self.number.memory_dtype)
            else:
                values = decode(values)
        np.copyto(target.reshape(values.shape), values, casting="unsafe")

    def from_numpy(self, source: Numbers) -> None:
        """Copy from an array (`source`) of the same shape, with a cast to this array's type. Floats
        are truncated to integers, integers wrap, with one warning per line. Raises ArgumentError
        for other shapes, and under `strict` for such losses."""
        if isinstance(source, Storage):
            self.copy_from(source)
            return
        values = host_views.to_number_array(source)
        want = self.shape + shape_of(self.elem)
        if values.shape != want:
            raise ArgumentError(f"an array of shape {want} is needed, not {values.shape}")
        self.warn_of_losses(values)

        def put() -> None:
            if self.runtime.tape is not None:
                self.runtime.tape.filled(self, values)
            self.put_unnoticed(values)

        self.store(ArrayAccess("write"), put)

    def put_unnoticed(self, values: np.ndarray[Any, Any]) -> None:
        """Store values of the same shape. The tape is not notified."""
        self.keep(values)

    def keep(self, values: np.ndarray[Any, Any]) -> None:
        """Store scalars as they are in memory: the inverse of `kept`. The tape is not notified."""
        await_host_memory()
        if values.dtype == raw_dtype() and self.number is bf16:  # with the bits of NaN
            bits = values.view(self.number.memory_dtype)
        else:
            bits = self.to_memory(host_views.cast(values, self.number))
        self._put(bits.reshape(self._digit_shape()))

    def _put(self, values: np.ndarray[Any, Any]) -> None:
        """Write values as they are stored, of shape `digits + element shape`. Other arrays'
        elements in the buffer stay."""
        if self.host is not None:
            self.ready_to_write()
            self.host[...] = values
            return
        self.device.announce((self.buffer.key,))
        raw = np.zeros(max(1, self.layout.size), self.stored.memory_dtype)
        if not self.is_own:  # preserve other arrays' elements in between
            raw = np.frombuffer(self.buffer.read(0, self.size_bytes), self.stored.memory_dtype)
        self._scatter(raw, values)
        self.buffer.write(0, raw)

    def fill(self, value: Numbers) -> None:
        """Set every element to a `value`: a scalar (for all components), a vector or a matrix, cast
        as in `from_numpy`. Raises ArgumentError if it does not have the shape of an element, and
        under `strict` for losses in the cast."""
        self.spread(value, ArrayAccess("fill"))

    def spread(self, value: Numbers, access: ArrayAccess) -> None:
        """Set every element to a `value`, as an access of this kind."""
        self.check_alive()
        if self._fills_plainly(value):
            self.store(access, lambda: self._fill_memory(value))
        else:
            cooked = self._cooked(value, shape_of(self.elem), is_filled=True)
            values = np.asarray(self.to_memory(np.asarray(cooked, self.number.dtype)))
            self.store(access, lambda: self._fill_elements(values))

    def _fill_elements(self, values: np.ndarray[Any, Any]) -> None:
        """Set every element to `values` as they are stored, a scalar or an array of the element's
        shape."""
        if self.host is not None:
            self.ready_to_write()
            self.host[...] = values
        elif values.ndim == 0 and self.stored.size_bytes == 4 and self.is_own:
            word = values.astype(self.stored.dtype).view(np.uint32)
            self.device.fill(self.buffer, 0, self.size_bytes, int(word))
        else:
            self._put(np.broadcast_to(values, self._digit_shape()))

    def _fills_plainly(self, value: Numbers) -> bool:
        """True if a fill with `value` needs no cast and can be done in host memory without numpy.
        That is so for up to FILLED_SMALL_BYTES, and for any size if numpy is not loaded."""
        kinds, low, high = PLAIN[self.number]
        if type(value) not in kinds or not low <= value <= high:
            return False
        is_mapped = self.is_own and self.buffer.view is not None and self.stored.code != ""
        return is_mapped and (self.size_bytes <= FILLED_SMALL_BYTES or not is_numpy_loaded())

    def _fill_memory(self, value: Numbers) -> None:
        if self.device.busy and fill_later(self, value):
            return
        self.ready_to_write()
        view, size = self.buffer.view, self.size_bytes
        assert view is not None
        one = struct.pack(self.stored.code, value)
        whole = one * min(size // len(one), FILLED_AT_ONCE)
        for at in range(0, size, len(whole)):
            view[at : min(at + len(whole), size)] = whole[: size - at]

    def to_torch(self, device: Any = None, *, copy: bool = True) -> Any:
        """A torch tensor with a copy of the contents, on torch's `device` (None: in host memory);
        with `copy` False in the array's memory. Raises ArgumentError if it cannot be."""
        if not copy:
            return host_views.view_as_torch(self, device)
        take = self.raw_kept if self.number is bf16 else self.contents
        return host_views.make_torch(self.load(ArrayAccess("read"), take), device)

    def from_torch(self, tensor: Any) -> None:
        """Copy from a torch `tensor` of the same shape.

        Raises the errors of `from_numpy` and of `host_views.array_of_torch`.
        """
        if self.runtime.tape is None or not self.runtime.tape.copy_tensor(self, tensor):
            self.from_numpy(host_views.array_of_torch(tensor))

    def check_copied(self, other: Storage) -> None:
        """Raise ArgumentError unless `other` is an array of this shape and element shape."""
        if not isinstance(other, Storage):
            raise ArgumentError(f"copy_from takes a field or ndarray, not {type(other).__name__}")
        if other.shape != self.shape or shape_of(other.elem) != shape_of(self.elem):
            raise ArgumentError(
                f"copy_from: {other.seen_elem} of shape {other.shape} given, "
                f"{self.seen_elem} of shape {self.shape} needed"
            )

    def copy_from(self, other: Storage) -> None:
        """Copy from another field or ndarray (`other`) of the same shape and element shape.

        The copy stays on the device if devices, element types and layouts are equal, and no other
        array shares the buffers. Otherwise values are cast on the host. Raises ArgumentError for
        other arrays.
        """
        self.check_copied(other)
        if other is self:
            return
        tape = self.runtime.tape
        if tape is not None and tape.copy(self, other):
            return
        is_plain = self.is_own and other.is_own and other.elem is self.elem
        is_plain = is_plain and other.device is self.device
        if is_plain and other.layout == self.layout:
            other.check_alive()
            other.tell(ArrayAccess("read"))
            device, size = self.device, self.size_bytes
            copy = partial(device.copy, other.buffer, self.buffer, size)
            self.store(ArrayAccess("write"), copy)
        else:
            Storage.from_numpy(self, Storage.to_numpy(other))
