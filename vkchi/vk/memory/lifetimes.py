"""Lifetimes of Vulkan objects: each is held by a cell, and destroyed once after its last reference.

A cell is the pointer to which the driver writes a handle. It is registered before the driver
creates the object, so that an exception in between loses none (docs/design.md, part 6, Interrupts).
When the last reference to a cell dies, cffi appends the pointer to a deque, in C code.
`sweep(recorded, completed)` gives newly queued objects the number `recorded` of the last recorded
submission, and destroys those whose submission has completed.

    pipelines = HandleTable(vk, device, calls, "VkPipeline")
    cell = pipelines.new()
    make(..., cell)         # cell[0] is the handle
    del cell
    pipelines.sweep(recorded=7, completed=7)
"""

from __future__ import annotations

from collections import deque
from itertools import repeat
from operator import itemgetter
from typing import Any

from vkchi.vk.raw import DeviceCalls, Vulkan

DESTROYERS = {"VkDeviceMemory": "vkFreeMemory"}  # default: "vkDestroy" + type name
FIRST, SECOND = itemgetter(0), itemgetter(1)


class ReleaseQueue:
    """FIFO of released objects, each with the number of the submission that must complete first.

    `add` appends an object without a number; it is C code, for destructors. `tag` numbers these
    objects. `next(pop)` removes and returns the first numbered object.
    """

    def __init__(self) -> None:
        self._new: deque[Any] = deque()
        self._due: deque[tuple[int, Any]] = deque()
        self.deques = self._new, self._due  # for fast emptiness checks
        self.add = self._new.append
        self.pop = map(SECOND, iter(self._due.popleft, None))

    def __bool__(self) -> bool:
        return bool(self._new or self._due)

    def tag(self, recorded: int) -> list[Any]:
        """Give the objects added since the last call the number `recorded`; return them."""
        fresh = list(self._new)
        for _ in fresh:
            self._due.extend(zip((recorded,), iter(self._new.popleft, None), strict=False))
        return fresh

    def is_due(self, completed: int) -> bool:
        """True if the first numbered object has a number of at most `completed`."""
        return bool(self._due) and self._due[0][0] <= completed

    def first(self) -> Any:
        return self._due[0][1]

    def waiting(self) -> list[Any]:
        return [thing for _, thing in self._due]


class RetainedObjects:
    """Python objects that the device may still use, each kept alive by a cell.

    An object is released by `sweep`, after its cell has died and the device has finished with it.
    Call `sweep` under the device's lock.
    """

    def __init__(self, ffi: Any) -> None:
        self._ffi = ffi
        self.released = ReleaseQueue()

    def hold(self, thing: Any) -> Any:
        return self._ffi.gc(self._ffi.new_handle(thing), self.released.add)

    def sweep(self, recorded: int, completed: int) -> None:
        """Release objects whose submission number is at most `completed`. Objects whose cells died
        since the last sweep first get the number `recorded`."""
        if self.released:
            self.released.tag(recorded)
        while self.released.is_due(completed):
            next(self.released.pop)


class HandleTable:
    """Objects of one Vulkan type, such as `VkBuffer`. Call `sweep` and `close` under the device's
    lock."""

    def __init__(self, vk: Vulkan, device: Any, calls: DeviceCalls, kind: str) -> None:
        self._vk, self._device, self._kind = vk, device, kind
        self._made: dict[int, Any] = {}
        self.released = ReleaseQueue()
        destroy = getattr(calls, DESTROYERS.get(kind, "vkDestroy" + kind[2:]))
        known = map(self._made.pop, map(id, self.released.pop), repeat((vk.NULL,)))
        self._destroy = map(destroy, repeat(device), map(FIRST, known), repeat(vk.NULL))

    def new(self) -> Any:
        """Return a cell for a handle that is about to be created; the handle is NULL until then."""
        place = self._vk.ffi.new(self._kind + " *")
        self._made[id(place)] = place
        return self._vk.ffi.gc(place, self.released.add)

    def make(self, function: Any, info: Any, doing: str) -> Any:
        """Return a cell with the handle created by `function(device, info, NULL, cell)`. Raises
        DeviceError."""
        cell = self.new()
        self._vk.take(function(self._device, info, self._vk.NULL, cell), cell, doing)
        return cell

    def sweep(self, recorded: int, completed: int) -> None:
        """Destroy released objects whose submission number is at most `completed`. Objects released
        since the last sweep first get the number `recorded`."""
        if self.released:
            self.released.tag(recorded)
        while self.released.is_due(completed):
            next(self._destroy)

    def close(self) -> None:
        """Destroy all objects, held or not; the device must be idle."""
        for place in list(self._made.values()):
            self.released.add(place)
        self.sweep(recorded=0, completed=1 << 62)
