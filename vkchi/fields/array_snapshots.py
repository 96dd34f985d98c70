"""Copy-on-write snapshots of arrays.

The copy is made before a device command or Python writes to the array's buffer. Arrays that other
libraries access in place are copied when the snapshot is taken.

    kept = take_snapshot(x); x.fill(1); kept.contents.to_numpy()     # old contents of x
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from vkchi.fields.storage import Storage
from vkchi.interrupts.locks import restoring
from vkchi.interrupts.weak import Finalizer
from vkchi.runtime import Runtime


class ArraySnapshot:
    """A snapshot of an array. `copy` is None until `save`, which runs before the first write to the
    array's buffer."""

    def __init__(self, array: Storage) -> None:
        self.array = array
        self.copy: Storage | None = None

    @property
    def contents(self) -> Storage:
        """An array with the snapshot's contents: the copy, or the array itself before `save`."""
        return self.array if self.copy is None else self.copy

    def save(self) -> None:
        """Copy the array on the device, on the first call only. Raises DeviceError if memory is
        exhausted."""
        if self.copy is None:
            self.copy = self.array.copied()


def take_snapshot(array: Storage) -> ArraySnapshot:
    """Take a snapshot, which is valid as long as the result is referenced. An array exposed to
    other libraries is copied immediately; this waits for the device, and raises DeviceError if
    memory is exhausted."""
    kept, device = ArraySnapshot(array), array.device
    if is_exposed(array):
        kept.save()
        array.ready()  # other libraries may write immediately
        return kept
    key = array.buffer.key
    reference = Finalizer(kept, device.finalizers.append)
    reference.act = partial(device.unguard, key)
    device.guard(key, reference)
    return kept


@contextmanager
def lock_writers(runtime: Runtime) -> Iterator[None]:
    """Context manager that locks out writes by other threads, so that `contents` stays valid within
    the block. The block must submit its reads of `contents` to the device."""
    lock = runtime.lock  # same lock order as launches
    with restoring(lock), lock, runtime.device.holding_writers():
        yield


def is_exposed(array: Storage) -> bool:
    """True if the array's buffer was exported: other libraries may write to it without notice."""
    key = array.buffer.key
    return any(one.buffer.key == key for one in array.runtime.exported)
