"""New torch tensors in memory of the device, without import or copy, if that is host memory.

The array is created first (`in_place.HostNdarray`), and torch gets a view of it. When torch
releases the storage, the array is reused for the next tensor of that dtype and shape.

    tensor = new_zeros(runtime, like, (4,), torch.float32, 0)
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

from vkchi.errors import ArgumentError, DeviceError
from vkchi.interop.host_views import make_torch, raw_view_type
from vkchi.interop.in_place import (
    HostArrayInfo,
    HostArrays,
    HostNdarray,
    OutsideArrayType,
    host_arrays,
)
from vkchi.interrupts.contexts import restoring
from vkchi.runtime import Runtime

MOST_SPARE, MOST_SPARE_BYTES = 64, 64 << 20
Kind = tuple[Any, tuple[int, ...], int]  # (torch dtype, shape, number of element axes)


class StorageReference(weakref.ref[Any]):
    """Weak reference to the torch storage of an array."""

    __slots__ = ("array", "kind")
    array: HostNdarray
    kind: Kind


class TensorPool:
    """Pool of the tensors created on one device, which reuses the memory of released ones."""

    def __init__(self, runtime: Runtime, hosts: HostArrays) -> None:
        self._runtime, self._hosts = runtime, hosts
        self._owners: dict[int, StorageReference] = {}  # by start address
        self._gone: deque[StorageReference] = deque()
        self._spare: dict[Kind, list[HostNdarray]] = {}
        self._spare_count = self._spare_bytes = 0

    def make(self, kind: Kind) -> Any:
        """Return a new uninitialized tensor; None if it cannot be created in device memory."""
        lock = self._runtime.lock
        with restoring(lock), lock:
            return self._make(kind)

    def _make(self, kind: Kind) -> Any:
        if self._gone:
            self._collect()
        spare = self._spare.get(kind)
        if spare:
            array: HostNdarray | None = spare.pop()
            self._spare_count -= 1
            self._spare_bytes -= array.size_bytes  # type: ignore[union-attr]
        else:
            array = self._make_array(kind)
        if array is None:
            return None
        dtype, shape, _ = kind
        tensor = make_torch(array.host.view(raw_view_type(dtype)).reshape(shape), None)
        owner = StorageReference(tensor.untyped_storage(), self._gone.append)
        owner.array, owner.kind = array, kind
        self._owners[array.start] = owner
        return tensor

    def _make_array(self, kind: Kind) -> HostNdarray | None:
        try:
            fit: OutsideArrayType | None = self._hosts.fit(0, *kind)
            if fit is None:
                return None
            buffer = self._runtime.device.lend(fit.size_bytes)
            return HostNdarray(self._runtime, fit.elem, fit.shape, buffer)
        except (ArgumentError, DeviceError):
            return None

    def _collect(self) -> None:
        """Put released arrays into the pool, up to its limits."""
        while self._gone:
            owner = self._gone.popleft()
            array = owner.array
            if self._owners.get(array.start) is not owner:
                continue
            self._owners.pop(array.start)
            if self._has_room():
                self._spare.setdefault(owner.kind, []).append(array)
                self._spare_count += 1
                self._spare_bytes += array.size_bytes

    def _has_room(self) -> bool:
        if self._spare_count >= MOST_SPARE or self._spare_bytes >= MOST_SPARE_BYTES:
            found = [array for arrays in self._spare.values() for array in arrays]
            if len(found) >= MOST_SPARE:
                self._spare.clear()  # probably of shapes that do not recur
                found = []
            self._spare_count = len(found)
            self._spare_bytes = sum(array.size_bytes for array in found)
        return self._spare_bytes < MOST_SPARE_BYTES

    def find(self, seen: HostArrayInfo, element_axes: int) -> HostNdarray | None:
        """The array of a whole tensor that this pool created; None for other memory and views."""
        owner = self._owners.get(seen.address)
        if owner is None or owner() is not seen.owner:
            return None
        is_whole = owner.kind == (seen.dtype, seen.shape, element_axes)
        return owner.array if is_whole else None


def new_tensor(runtime: Runtime, like: Any, shape: Sequence[int], dtype: Any, axes: int) -> Any:
    """Return a new uninitialized tensor on the torch device of `like`.

    The last `axes` axes are those of its elements. It is in memory of the runtime's device if three
    conditions hold: `like` is on the CPU, the device can import host memory, debug mode is off.
    Otherwise, and if that fails, torch allocates it.
    """
    hosts = host_arrays(runtime)
    made = None
    if hosts.can_import and like.is_cpu:
        if hosts.tensors is None:
            hosts.tensors = TensorPool(runtime, hosts)
        made = hosts.tensors.make((dtype, tuple(shape), axes))
    return like.new_empty(tuple(shape), dtype=dtype) if made is None else made


def new_zeros(runtime: Runtime, like: Any, shape: Sequence[int], dtype: Any, axes: int) -> Any:
    """Same as `new_tensor`, filled with zeros."""
    made = new_tensor(runtime, like, shape, dtype, axes)
    if not made.is_cpu:
        return made.zero_()
    ctypes.memset(made.data_ptr(), 0, made.nbytes)
    return made
