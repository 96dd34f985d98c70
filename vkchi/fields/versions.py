"""Versions of arrays: contents that will be read later, copied before a write changes them.

A `Read` is a part of an array with its contents at one time. Its `source` is the array until a
write to that part, and a copy from then on. There are two kinds of reads:

- Reads of a `History`, which belongs to a recording. The recording passes all writes to it, with
  their boxes. Only the reads that a write may change are copied.
- Reads of `keep`. Device commands and Python announce their writes by the key of the buffer
  (`Device.announce`), so the first write to the buffer copies them.

    read = keep(x); x.fill(1); read.source.to_numpy()     # old contents of x
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Generic, Protocol, TypeVar

from vkchi.analysis.boxes import Box, boxes_may_intersect, rows_of
from vkchi.fields.storage import Storage
from vkchi.interrupts.locks import restoring
from vkchi.interrupts.weak import Finalizer
from vkchi.runtime import Runtime


class HasBox(Protocol):
    @property
    def box(self) -> Box:
        """A part of an array."""


T = TypeVar("T", bound=HasBox)


class BoxIndex(Generic[T]):
    """Parts of one array by key, grouped by their index on the first axis (None: several)."""

    def __init__(self) -> None:
        self._groups: dict[int | None, dict[Hashable, T]] = {}

    def get(self, key: Hashable, box: Box) -> T | None:
        """Return the part with this key and box."""
        return self._groups.get(point_of(box), {}).get(key)

    def put(self, key: Hashable, part: T) -> None:
        self._groups.setdefault(point_of(part.box), {})[key] = part

    def remove(self, key: Hashable, box: Box) -> None:
        del self._groups[point_of(box)][key]

    def meeting(self, box: Box) -> Iterator[tuple[Hashable, T]]:
        """Yield the parts that may intersect a box, with their keys; the box `()` meets all."""
        point = point_of(box)
        places = self._groups.keys() if point is None else (point, None)
        for group in [self._groups.get(place, {}) for place in places]:
            yield from [(k, p) for k, p in group.items() if boxes_may_intersect(p.box, box)]


def point_of(box: Box) -> int | None:
    """The index of a box on the first axis if it has one element there, else None."""
    first = box[0] if box else None
    return first[0] if first is not None and first[0] == first[1] else None


class Read:
    """A part of an array with its contents at one time."""

    def __init__(self, array: Storage, box: Box = (), copy: Storage | None = None) -> None:
        self.array, self.box, self.copy = array, box, copy

    @property
    def source(self) -> Storage:
        """An array with these contents: the copy, or the array itself before the first write."""
        return self.array if self.copy is None else self.copy

    def save(self) -> None:
        """Copy the array on the device, on the first call only. Raises DeviceError if memory is
        exhausted."""
        if self.copy is None:
            self.copy = self.array.copied()


class History:
    """The number of writes to an array, its components included, and the reads that are live.

    A read is live until its copy is made.
    """

    def __init__(self) -> None:
        self.version = 0
        self._reads: BoxIndex[Read] = BoxIndex()

    def want(self, array: Storage, box: Box) -> Read:
        """Return a live read of a part of the array or of a component."""
        key = id(array), box
        found = self._reads.get(key, box)
        if found is None:
            found = Read(array, box)
            self._reads.put(key, found)
        return found

    def save(self, box: Box, copy: Callable[[list[Read]], Storage]) -> None:
        """Copy the live reads that a write to a box may change; the box `()` is the whole array.

        `copy` makes one copy for all reads of one array or component. If it raises, the reads
        without copy stay live.
        """
        groups: dict[int, list[tuple[Hashable, Read]]] = {}
        for key, read in self._reads.meeting(box):
            groups.setdefault(id(read.array), []).append((key, read))
        for group in groups.values():
            made = copy([read for _, read in group])
            for key, read in group:
                read.copy = made
                self._reads.remove(key, read.box)

    def forget(self) -> None:
        """Let later writes change all live reads."""
        self._reads = BoxIndex()


def copy_boxes(array: Storage, boxes: list[Box]) -> Storage:
    """Copy an array on the device: at least these parts of it. Raises DeviceError."""
    rows = rows_of(boxes, array.shape) if array.row_numbers is not None else None
    return array.copied() if rows is None else array.copied_rows(*rows)


# --- reads without a recording -------------------------------------------------------------------


def keep(array: Storage) -> Read:
    """Return a read of an array, which is valid as long as the result is referenced. An array
    exposed to other libraries is copied immediately; this waits for the device, and raises
    DeviceError if memory is exhausted."""
    read, device = Read(array), array.device
    if is_exposed(array):
        read.save()
        array.ready()  # other libraries may write immediately
        return read
    key = array.buffer.key
    reference = Finalizer(read, device.finalizers.append)
    reference.act = partial(device.unguard, key)
    device.guard(key, reference)
    return read


@contextmanager
def lock_writers(runtime: Runtime) -> Iterator[None]:
    """Context manager that locks out writes by other threads, so that each `source` stays valid
    within the block. The block must submit its reads of a `source` to the device."""
    lock = runtime.lock  # same lock order as launches
    with restoring(lock), lock, runtime.device.holding_writers():
        yield


def is_exposed(array: Storage) -> bool:
    """True if the array's buffer was exported: other libraries may write to it without notice."""
    key = array.buffer.key
    return any(one.buffer.key == key for one in array.runtime.exported)
