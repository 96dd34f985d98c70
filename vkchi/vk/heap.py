"""The memory of one device: spans of blocks, freed once the device is done with them.

Owns: the allocator and its blocks, what is waiting to be freed, and the views of memory that
outlive their device. Must not know: commands; it is told numbers of submissions.

Releases come from destructors, which run at any point, on any thread, even inside this module; so
`Releases.add` only appends to a deque, and the owner, under its lock, sweeps that now and then:
what was added is freed when the submission that was then being recorded is done.

    heap = Heap(logical, SHARED)
    span = heap.allocate(4096)
    heap.release(span)
    heap.releases.sweep(recorded=7, completed=7)
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import Lock

from vkchi.errors import DeviceError
from vkchi.vk.allocator import Allocator, Span
from vkchi.vk.logical import Logical
from vkchi.vk.memory import MIB, Placement, drop_block, make_block, read_budget
from vkchi.vk.raw import OutOfMemory


class Releases:
    """Calls put off until the device has completed what may still need them.

    `waiting_bytes`: memory that the calls seen by the last sweep will free.
    """

    def __init__(self) -> None:
        self._new: deque[tuple[Callable[[], None], int]] = deque()
        self._tagged: deque[tuple[int, Callable[[], None], int]] = deque()
        self._process = os.getpid()
        self._draining = Lock()
        self._is_immediate = False
        self.waiting_bytes = 0

    def add(self, release: Callable[[], None], size_bytes: int = 0) -> None:
        """Put off a call. Safe in destructors, on any thread, and in a forked child (nothing)."""
        if os.getpid() != self._process:
            return
        self._new.append((release, size_bytes))
        if self._is_immediate:
            self.drain()

    def drain(self) -> None:
        """Make all calls, now and, from now on, whenever one is added."""
        self._is_immediate = True
        while (self._tagged or self._new) and self._draining.acquire(blocking=False):
            try:
                self.sweep(recorded=0, completed=self._tagged[-1][0] if self._tagged else 0)
            finally:
                self._draining.release()

    def sweep(self, recorded: int, completed: int) -> None:
        """Make the calls that are due; new ones wait for submission number `recorded`."""
        while self._new:
            release, size_bytes = self._new.popleft()
            self._tagged.append((recorded, release, size_bytes))
            self.waiting_bytes += size_bytes
        while self._tagged and self._tagged[0][0] <= completed:
            _, release, size_bytes = self._tagged.popleft()
            self.waiting_bytes -= size_bytes
            release()

    def __bool__(self) -> bool:
        return bool(self._new or self._tagged)


class Heap:
    """Arrays' memory. `allocate` and `free` under the owner's lock."""

    def __init__(self, logical: Logical, placement: Placement) -> None:
        self.logical = logical
        self.releases = Releases()
        self.live_count = 0
        self._when_empty: Callable[[], None] | None = None
        self._allocator = Allocator(
            make_block=lambda size_bytes: make_block(logical, size_bytes, placement),
            drop_block=lambda block: drop_block(logical, block),
        )

    def allocate(self, size_bytes: int) -> Span:
        """A span of at least `size_bytes`. Raises OutOfMemory, or DeviceError above the limit."""
        span = self._allocator.allocate(size_bytes)
        self.live_count += 1
        return span

    def release(self, span: Span) -> None:
        """Free a span when the device is done with it. For destructors."""
        self.releases.add(partial(self.free, span), span.size_bytes)

    def free(self, span: Span) -> None:
        """Take back a span that the device is done with."""
        self._allocator.free(span)
        self.live_count -= 1
        if self._when_empty is not None:
            self._finish()

    def close(self, when_empty: Callable[[], None]) -> None:
        """Free everything, then call `when_empty`: at once, or, where views of the memory are
        still held outside, when the last of them is gone."""
        self._when_empty = when_empty
        self.releases.drain()
        self._finish()

    def _finish(self) -> None:
        self._allocator.drop_empty()
        if not self.live_count and self._when_empty is not None:
            finish, self._when_empty = self._when_empty, None
            finish()

    def free_bytes(self) -> int:
        """What is free of the device's largest heap; all of it, where that is unknown."""
        free_bytes, total_bytes = read_budget(self.logical)
        return free_bytes if free_bytes >= 0 else total_bytes

    def explain_shortage(self, size_bytes: int) -> DeviceError:
        """The error for a request that could not be met, with what there is."""
        free_bytes, total_bytes = read_budget(self.logical)
        limit = self.logical.physical.allocation_limit_bytes
        known = f"{free_bytes / MIB:.0f} MiB of {total_bytes / MIB:.0f} MiB are free, "
        return OutOfMemory(
            f"{self.logical.physical.name} is out of memory: {size_bytes / MIB:.1f} MiB asked "
            f"for, {self._allocator.used_bytes / MIB:.1f} MiB in use by arrays, "
            + (known if free_bytes >= 0 else f"{total_bytes / MIB:.0f} MiB in all, ")
            + f"at most {limit / MIB:.0f} MiB in one piece{_tell_limit()}; free some arrays first"
        )


def _tell_limit() -> str:
    """What `ulimit -v` allows this process, which drivers do not know of; empty if all."""
    try:
        import resource
    except ImportError:  # not a Unix
        return ""
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed == resource.RLIM_INFINITY:
        return ""
    return f", and this process may have {allowed / MIB:.0f} MiB of addresses (`ulimit -v`)"
