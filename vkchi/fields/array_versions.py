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

from vkchi.analysis.memory.boxes import Box, boxes_may_intersect, rows_of
from vkchi.fields.storage import Storage
from vkchi.interrupts.contexts import restoring
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
        self.groups: dict[int | None, dict[Hashable, T]] = {}

    def group(self, point: int | None) -> dict[Hashable, T]:
        """Return the group with an index, made if there is none."""
        found = self.groups.get(point)
        if found is None:
            found = self.groups[point] = {}
        return found

    def near(self, box: Box) -> list[tuple[int | None, dict[Hashable, T]]]:
        """Return the groups of which a part may intersect a box, with their indices."""
        point = point_of(box)
        if point is None:
            return list(self.groups.items())
        return [(k, self.groups[k]) for k in (point, None) if k in self.groups]

    def find(self, box: Box) -> T | None:
        """Return a part that may intersect a box; None if there is none."""
        parts = (part for _, group in self.near(box) for part in group.values())
        return next((part for part in parts if boxes_may_intersect(part.box, box)), None)


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
        self.reads: BoxIndex[Read] = BoxIndex()

    def want(self, array: Storage, box: Box, point: int | None) -> Read:
        """Return a live read of a part of the array or of a component.

        `point` is `point_of(box)`.
        """
        key, group = (id(array), box), self.reads.groups.get(point)
        found = group.get(key) if group is not None else None
        if found is None:
            found = self.reads.group(point)[key] = Read(array, box)
        return found

    def save(self, box: Box, copy: Callable[[list[Read]], Storage]) -> None:
        """Copy the live reads that a write to a box may change; the box `()` is the whole array.

        `copy` makes one copy for all reads of one array or component. If it raises, the reads
        without copy stay live.
        """
        near = self.reads.near(box)
        hit: dict[int, list[Read]] = {}
        for _, group in near:
            for read in group.values():
                if boxes_may_intersect(read.box, box):
                    hit.setdefault(id(read.array), []).append(read)
        for reads in hit.values():
            made = copy(reads)
            for read in reads:
                read.copy = made
                self.reads.group(point_of(read.box)).pop((id(read.array), read.box))
        if hit:
            for point, group in near:
                if not group:
                    del self.reads.groups[point]

    def forget(self) -> None:
        """Let later writes change all live reads."""
        self.reads = BoxIndex()


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
