"""Vulkan objects of one device: each held by a cell, and destroyed once when nothing holds it.

Owns: the cells of one kind of object, and of things that are not Vulkan's. Must not know: what they
are for.

A cell is the pointer that the driver writes a handle to. It is registered before the driver makes
the object, so none is lost to an exception in between (docs/design.md, part 6, Interrupts). When
its last reference goes, cffi appends what it pointed to to a deque: no bytecode of Python's runs
there, so no exception is swallowed. `sweep` destroys what it finds, each in one call of C code.

    pipelines = Handles(vk, device, calls, "VkPipeline")
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

DESTROYERS = {"VkDeviceMemory": "vkFreeMemory"}  # others are called after what they destroy
FIRST, SECOND = itemgetter(0), itemgetter(1)


class ReleaseQueue:
    """What nobody holds any more, in order, each with the number of the submission after whose end
    it is due.

    `add` is C code, for destructors. `pop` takes the first one off, and is C code as well: what is
    mapped over it is done with each exactly once.
    """

    def __init__(self) -> None:
        self._new: deque[Any] = deque()
        self._due: deque[tuple[int, Any]] = deque()
        self.deques = self._new, self._due  # for those who often ask whether there is anything
        self.add = self._new.append
        self.pop = map(SECOND, iter(self._due.popleft, None))

    def __bool__(self) -> bool:
        return bool(self._new or self._due)

    def tag(self, recorded: int) -> list[Any]:
        """Let what is new wait for submission number `recorded`; what that is."""
        fresh = list(self._new)
        for _ in fresh:
            self._due.extend(zip((recorded,), iter(self._new.popleft, None), strict=False))
        return fresh

    def is_due(self, completed: int) -> bool:
        """Whether the first one is due once submission number `completed` is done."""
        return bool(self._due) and self._due[0][0] <= completed

    def first(self) -> Any:
        """The first one, which stays."""
        return self._due[0][1]

    def waiting(self) -> list[Any]:
        """Those that `tag` has seen."""
        return [thing for _, thing in self._due]


class Held:
    """Things of others that the device may be working on, each in a cell: it is let go of once
    nobody holds the cell, and the device is done. `sweep` under the owner's lock."""

    def __init__(self, ffi: Any) -> None:
        self._ffi = ffi
        self.released = ReleaseQueue()

    def hold(self, thing: Any) -> Any:
        """A cell that keeps a thing."""
        return self._ffi.gc(self._ffi.new_handle(thing), self.released.add)

    def sweep(self, recorded: int, completed: int) -> None:
        """Let go of what is due; what is new waits for submission number `recorded`."""
        if self.released:
            self.released.tag(recorded)
        while self.released.is_due(completed):
            next(self.released.pop)


class Handles:
    """Objects of one kind, by its name: `VkBuffer`. `sweep` and `close` under the owner's lock."""

    def __init__(self, vk: Vulkan, device: Any, calls: DeviceCalls, kind: str) -> None:
        self._vk, self._device, self._kind = vk, device, kind
        self._made: dict[int, Any] = {}
        self.released = ReleaseQueue()
        destroy = getattr(calls, DESTROYERS.get(kind, "vkDestroy" + kind[2:]))
        known = map(self._made.pop, map(id, self.released.pop), repeat((vk.NULL,)))
        self._destroy = map(destroy, repeat(device), map(FIRST, known), repeat(vk.NULL))

    def new(self) -> Any:
        """A cell for a handle that is about to be made; NULL till then."""
        place = self._vk.ffi.new(self._kind + " *")
        self._made[id(place)] = place
        return self._vk.ffi.gc(place, self.released.add)

    def make(self, function: Any, info: Any, doing: str) -> Any:
        """A cell with the handle that `function(device, info, NULL, cell)` makes."""
        cell = self.new()
        self._vk.take(function(self._device, info, self._vk.NULL, cell), cell, doing)
        return cell

    def sweep(self, recorded: int, completed: int) -> None:
        """Destroy what is due; what is new waits for submission number `recorded`."""
        if self.released:
            self.released.tag(recorded)
        while self.released.is_due(completed):
            next(self._destroy)

    def close(self) -> None:
        """Destroy all objects, held or not; the device must be idle."""
        for place in list(self._made.values()):
            self.released.add(place)
        self.sweep(recorded=0, completed=1 << 62)
