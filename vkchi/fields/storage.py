"""Typed memory on a device, seen from Python: what fields and ndarrays have in common.

Owns: memory and copies of it; bulk copies to and from numpy and torch, fill, DLPack. Must not know:
kernels, IR, how a layout was made.

    s = Storage(runtime, f32, (4,)); s[1] = 2.0; s.to_numpy()     # array([0., 2., 0., 0.])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vkchi.errors import ArgumentError
from vkchi.fields.elements import Access, Elements
from vkchi.interop import dlpack, host
from vkchi.runtime import Runtime
from vkchi.types import Layout, Scalar, Tensor, row_major, shape_of

if TYPE_CHECKING:
    from vkchi.types.hints import Numbers

NO_DLPACK = (
    "DLPack has no agreed meaning for this device's memory, which the host does not reach: take "
    "x.to_numpy() or x.to_torch()"
)
NOT_IN_STEPS = "the elements do not lie in equal steps as DLPack wants them: a copy is needed"


class Storage(Elements):
    """`shape` many elements of type `elem` (a scalar or tensor type), zero at first.

    Raises DeviceError when the device cannot hold it, KernelRuntimeError after `reset`.
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

    has_place = True  # whether it has contents, or will have when first used

    @property
    def has_memory(self) -> bool:
        """Whether it has contents at all."""
        return True

    def _allocate(self) -> None:
        spare_bytes = self.components * self.stored.size_bytes  # where stray accesses go
        self.attach(self.device.allocate(self.size_bytes + spare_bytes), is_own=True)

    def __deepcopy__(self, memo: dict[int, Any]) -> Storage:
        """An array of its own with the same contents (and gradient); tapes record that."""
        made, tape = self.duplicate(memo), self.runtime.tape
        if tape is None or not tape.copy(made, self):
            self.tell(Access("read"))
        return made

    def duplicate(self, memo: dict[int, Any]) -> Storage:
        """The same, and no tape is told."""
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
        """The array itself: kernels take two objects for two arrays."""
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self!r} is memory of this process's device: pickle x.to_numpy(), and give it to "
            "from_numpy() of another"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """What numpy makes of it: always a copy, as `to_numpy` gives."""
        if copy is False:
            raise ValueError("an array on the device is copied when numpy reads it")
        values: np.ndarray[Any, Any] = self.to_numpy()
        return values if dtype is None else values.astype(dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's device of the memory. Raises BufferError where it has none."""
        if self.host is None:
            raise BufferError(NO_DLPACK)
        return dlpack.HOST

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A DLPack capsule, of shape `shape + element shape`: of the memory itself, after all that
        was launched is done. Kernels launched later are seen after `ti.sync()`.

        A copy if `copy`; where its elements do not lie in steps, or the host does not reach them
        (which `dl_device` must ask for), unless `copy` is False: then BufferError.
        Source: the array API's `__dlpack__`.
        """
        dlpack.check_device(dl_device)
        self.tell(Access("read"))
        self.ready()
        shared = None if copy else self._in_place()
        if shared is None and (copy is False or (self.host is None and dl_device is None)):
            raise BufferError(NO_DLPACK if self.host is None else NOT_IN_STEPS)
        if shared is not None:
            self.runtime.exported.add(self)
        values = self.contents() if shared is None else shared
        return dlpack.capsule(values, stream, max_version, dl_device)

    def _in_place(self) -> np.ndarray[Any, Any] | None:
        """A view of shape `shape + element shape`; None where there can be none."""
        host = self.host
        if host is None or host.dtype != self.dtype.dtype:
            return None
        view = host.reshape(self.shape + shape_of(self.elem))
        return view if host.size == 0 or np.may_share_memory(view, host) else None

    # --- whole contents --------------------------------------------------------------------

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """A copy, of shape `shape + element shape`."""
        self.tell(Access("read"))
        return self.contents()

    def copy_to(self, target: np.ndarray[Any, Any]) -> None:
        """Write the contents to a numpy array of their shape (contiguous, of arrays in blocks)."""
        self.tell(Access("read"))
        self.copy_unnoticed(target)

    def contents(self) -> np.ndarray[Any, Any]:
        """What `to_numpy` gives, and nobody is told."""
        found = np.empty(self.shape + shape_of(self.elem), self.dtype.dtype)
        self.copy_unnoticed(found)
        return found

    def copy_unnoticed(self, target: np.ndarray[Any, Any]) -> None:
        """The same, and nobody is told."""
        self.ready()
        values = self.host
        if values is None:
            raw = np.frombuffer(self.buffer.read(0, self.size_bytes), self.stored.dtype)
            values = self._logical(raw)
        np.copyto(target.reshape(values.shape), values, casting="unsafe")

    def from_numpy(self, source: Numbers) -> None:
        """Take over the contents of an array of the same shape, as numbers of this array's type:
        floats are cut to integers, integers wrap. Raises ArgumentError."""
        if isinstance(source, Storage):
            self.copy_from(source)
            return
        values = host.numbers_of(source)
        want = self.shape + shape_of(self.elem)
        if values.shape != want:
            raise ArgumentError(f"from_numpy: shape {values.shape} given, {want} needed")
        self.tell(Access("write"))
        if self.runtime.tape is not None:
            self.runtime.tape.filled(self, values)
        self.put_unnoticed(values)

    def put_unnoticed(self, values: np.ndarray[Any, Any]) -> None:
        """Take over numbers of the same shape; nobody is told."""
        self._put(host.cast(values, self.dtype).reshape(self._digit_shape()))

    def _put(self, values: np.ndarray[Any, Any]) -> None:
        """Write numbers of this array's type and of its digits' shape."""
        self.ready()
        if self.host is not None:
            self.host[...] = values
            return
        raw = np.zeros(max(1, self.layout.size), self.stored.dtype)
        if not self.is_own:  # what lies between goes back as it was
            raw = np.frombuffer(self.buffer.read(0, self.size_bytes), self.stored.dtype)
        self._logical(raw)[...] = values
        self.buffer.write(0, raw)

    def fill(self, value: Numbers) -> None:
        """Set every element to a number (all its components), a vector or a matrix, cast as
        `from_numpy` does. Raises ArgumentError where it has not the shape of an element."""
        values = np.asarray(self._cooked(value, shape_of(self.elem)), self.dtype.dtype)
        self.tell(Access("fill"))
        if self.host is not None:
            self.ready()
            self.host[...] = values
        elif values.ndim == 0 and self.stored.size_bytes == 4 and self.is_own:
            word = values.astype(self.stored.dtype).view(np.uint32)
            self.device.fill(self.buffer, 0, self.size_bytes, int(word))
        else:
            self._put(np.broadcast_to(values, self._digit_shape()))

    def to_torch(self, device: Any = None) -> Any:
        """A torch tensor with a copy of the contents."""
        return host.make_torch(self.to_numpy(), device)

    def from_torch(self, tensor: Any) -> None:
        """Take over the contents of a torch tensor of the same shape."""
        if self.runtime.tape is None or not self.runtime.tape.copy_tensor(self, tensor):
            self.from_numpy(host.array_of_torch(tensor))

    def copy_from(self, other: Storage) -> None:
        """Take over the contents of a field or ndarray of the same shape and element shape, on the
        device where types are equal; numbers are cast where they differ. Raises ArgumentError."""
        if not isinstance(other, Storage):
            raise ArgumentError(f"copy_from takes a field or ndarray, not {type(other).__name__}")
        if other.shape != self.shape or shape_of(other.elem) != shape_of(self.elem):
            raise ArgumentError(
                f"copy_from: {other.elem} of shape {other.shape} given, "
                f"{self.elem} of shape {self.shape} needed"
            )
        if other is self:
            return
        tape = self.runtime.tape
        if tape is not None and tape.copy(self, other):
            return
        is_plain = self.is_own and other.is_own and other.elem is self.elem
        is_plain = is_plain and other.device is self.device
        if is_plain and other.layout == self.layout:
            other.check_alive()
            other.tell(Access("read"))
            self.tell(Access("write"))
            self.device.copy(other.buffer, self.buffer, self.size_bytes)
        else:
            Storage.from_numpy(self, Storage.to_numpy(other))
