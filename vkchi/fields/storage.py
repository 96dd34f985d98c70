"""Typed memory on a device, seen from Python: what fields and ndarrays have in common.

Owns: reading and writing elements, bulk copies to and from numpy and torch, fill. Where the
device's memory is the host's, `host` is a numpy view of it and an access touches memory only.
Must not know: kernels, IR, how a layout was made.

    s = Storage(runtime, f32, (4,)); s[1] = 2.0; s.to_numpy()     # array([0., 2., 0., 0.])
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from vkchi.device import Buffer
from vkchi.errors import (
    ArgumentError,
    ArrayIndexError,
    DeviceError,
    KernelRuntimeError,
    Unsupported,
)
from vkchi.runtime import Runtime
from vkchi.types import (
    Array,
    Layout,
    Scalar,
    Tensor,
    row_major,
    scalar_of,
    shape_of,
    u1,
    u8,
    u32,
)

MOST_SCALARS = 1 << 31


class ElementHook:
    """How tensor elements are shown to Python; filled by `vkchi.lang`.

    `make(storage, index)`: the element as a value whose components read and write the memory;
    `value(array)`: a value of its own from an array of components.
    """

    make: Callable[[Storage, tuple[int, ...]], Any]
    value: Callable[[Any], Any]


class Storage:
    """`shape` many elements of type `elem` (a scalar or tensor type), zero at first.

    Raises DeviceError when the device cannot hold it, KernelRuntimeError after `reset`.
    """

    def __init__(
        self,
        runtime: Runtime,
        elem: Scalar | Tensor,
        shape: tuple[int, ...],
        layout: Layout | None = None,
    ) -> None:
        self.runtime, self.elem, self.shape = runtime, elem, shape
        self.device = runtime.device
        self.dtype: Scalar = scalar_of(elem)
        self.stored = self._choose_stored()
        self.components = elem.size if isinstance(elem, Tensor) else 1
        self.layout = layout or row_major(shape, self.components)
        self._check_size()
        self.size_bytes = max(1, self.layout.size) * self.stored.size_bytes
        spare_bytes = self.components * self.stored.size_bytes  # where stray accesses go
        self.buffer: Buffer = self.device.allocate(self.size_bytes + spare_bytes)
        self.is_scalar = isinstance(elem, Scalar)
        self.host = self._map()

    def _check_size(self) -> None:
        if not self.device.caps.can_store(self.stored.name):
            raise DeviceError(
                f"{self.device.info.name} cannot keep {self.stored} in memory: use a type of 32 "
                "bits, or another device (ti.init(device=...))"
            )
        if self.layout.size >= MOST_SCALARS:
            raise Unsupported(
                f"an array of {self.layout.size} numbers: kernels reach less than 2**31 of one "
                "array; split it"
            )

    def _choose_stored(self) -> Scalar:
        if self.dtype is not u1:
            return self.dtype
        return u8 if self.device.caps.can_store("u8") else u32

    def _map(self) -> np.ndarray[Any, Any] | None:
        """A numpy view of shape `shape + element shape`, if the host can reach the memory."""
        if self.buffer.view is None:
            return None
        flat = np.frombuffer(self.buffer.view, self.stored.dtype, max(1, self.layout.size))
        if self.dtype is u1 and self.stored is u8:
            flat = flat.view(np.bool_)
        return self._logical(flat)

    def _logical(self, flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The array of logical shape over the flat scalars as they lie in memory."""
        steps = [axis[0].stride for axis in self.layout.axes]
        inner = shape_of(self.elem)
        if inner:
            width = self.layout.components[1] if self.components > 1 else 1
            steps += [width * math.prod(inner[k + 1 :]) for k in range(len(inner))]
        item = flat.itemsize
        return np.lib.stride_tricks.as_strided(
            flat, self.shape + inner, [step * item for step in steps]
        )

    @property
    def array_type(self) -> Array:
        """The type kernels see for memory of static shape and this layout."""
        return Array.of(self.elem, len(self.shape), self.shape, self.layout, stored=self.stored)

    # --- whole contents --------------------------------------------------------------------

    def ready(self) -> None:
        """Wait until the device is done with everything that was launched."""
        if self.device.busy:
            self.device.wait()

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """A copy, of shape `shape + element shape`."""
        self.ready()
        if self.host is not None:
            return np.array(self.host, self.dtype.dtype)
        raw = np.frombuffer(self.buffer.read(0, self.size_bytes), self.stored.dtype)
        return np.array(self._logical(raw), self.dtype.dtype)

    def from_numpy(self, source: Any) -> None:
        """Take over the contents of an array of the same shape. Raises ArgumentError."""
        values = np.asarray(source)
        want = self.shape + shape_of(self.elem)
        if values.shape != want:
            raise ArgumentError(f"from_numpy: shape {values.shape} given, {want} needed")
        self.ready()
        if self.host is not None:
            self.host[...] = values
            return
        raw = np.zeros(max(1, self.layout.size), self.stored.dtype)
        self._logical(raw)[...] = values
        self.buffer.write(0, raw)

    def fill(self, value: Any) -> None:
        """Set every element (every component, for a number) to value."""
        if self.host is not None:
            self.ready()
            self.host[...] = value
            return
        word = np.zeros(1, self.stored.dtype)
        if np.ndim(value) == 0 and self.stored.size_bytes == 4:
            word[0] = value
            self.device.fill(self.buffer, 0, self.size_bytes, int(word.view(np.uint32)[0]))
        else:
            self.from_numpy(np.broadcast_to(value, self.shape + shape_of(self.elem)))

    # --- elements --------------------------------------------------------------------------

    def index(self, key: Any) -> tuple[int, ...]:
        """The user's subscript as a tuple of ints in range. Raises ArrayIndexError."""
        keys = key if isinstance(key, tuple) else () if key is None else (key,)
        if len(keys) == 1 and hasattr(keys[0], "to_list"):
            keys = tuple(keys[0].to_list())
        if len(keys) != len(self.shape):
            raise ArrayIndexError(
                f"an index of {len(self.shape)} integers is needed here, not {key!r}"
            )
        for k, extent in zip(keys, self.shape, strict=True):
            if isinstance(k, slice | float | np.floating) or not hasattr(k, "__index__"):
                raise ArrayIndexError(f"indices are integers here, not {k!r}")
            if not 0 <= k < extent:
                raise ArrayIndexError(f"index {k} is out of range for an axis of {extent}")
        return tuple(map(int, keys))

    def __getitem__(self, key: Any) -> Any:
        if type(key) is int and self.is_scalar and self.host is not None and len(self.shape) == 1:
            if self.device.busy:
                self.device.wait()
            if 0 <= key < self.shape[0]:
                return self.host.item(key)
        index = self.index(key)
        if self.is_scalar:
            return self.read(index)
        return ElementHook.make(self, index)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.write(self.index(key), value)

    def __iter__(self) -> Any:
        raise TypeError("an array is not iterated in Python: use to_numpy(), or loop in a kernel")

    def read(self, index: tuple[int, ...]) -> Any:
        """The number at an index (with the component's indices for a tensor element); an array of
        the components for the index of a whole tensor element."""
        self.ready()
        if self.host is not None:
            v = self.host[index]
            return v.item() if v.ndim == 0 else np.array(v)
        inner = shape_of(self.elem)[len(index) - len(self.shape) :]
        if inner and len(index) == len(self.shape):
            flat = [self.read(index + place) for place in np.ndindex(*inner)]
            return np.array(flat, self.dtype.dtype).reshape(inner)
        size = self.stored.size_bytes
        raw = np.frombuffer(self.buffer.read(self._offset(index) * size, size), self.stored.dtype)
        return raw.astype(self.dtype.dtype)[0].item()

    def write(self, index: tuple[int, ...], value: Any) -> None:
        """Put a number, or a nested sequence for a whole tensor element, at the index."""
        self.ready()
        cooked = self._cooked(value)
        if self.host is not None:
            self.host[index] = cooked
            return
        inner = shape_of(self.elem)
        if inner and len(index) == len(self.shape):
            values = np.broadcast_to(np.asarray(cooked), inner)
            for place in np.ndindex(*inner):
                self.write(index + place, values[place])
            return
        raw = np.array([cooked], self.dtype.dtype).astype(self.stored.dtype)
        self.buffer.write(self._offset(index) * self.stored.size_bytes, raw)

    def _cooked(self, value: Any) -> Any:
        """The value as numpy takes it: integers wrap, values with `to_numpy` become arrays."""
        if hasattr(value, "to_numpy"):
            value = value.to_numpy()
        if self.dtype.kind in "iu":
            return np.asarray(value).astype(self.dtype.dtype)
        return value

    def _offset(self, index: tuple[int, ...]) -> int:
        """Scalars from the start of the buffer to an element, or to a component of it."""
        offset = sum(a[0].stride * i for a, i in zip(self.layout.axes, index, strict=False))
        rest = index[len(self.shape) :]
        if rest:
            place = int(np.ravel_multi_index(rest, shape_of(self.elem)))
            offset += self.layout.components[place]
        return offset

    def check_alive(self) -> None:
        """Raises KernelRuntimeError if the runtime this belongs to was reset."""
        if self.device.closed:
            raise KernelRuntimeError(
                "this array was freed by ti.reset() or a new ti.init(): make it again after init"
            )
