"""Device memory: spans of blocks, freed once the device has finished with them. Also imports
memory.

The pointer of a `HeapMemory` owns its span. When the pointer dies, on any thread, cffi appends it
to a deque (`logical.ReleaseQueue`). The device, under its lock, calls `sweep`. It numbers each
new entry with the last recorded submission, and frees entries whose submission is done.

An exception can be raised at any bytecode (docs/design.md, part 6, Interrupts). Live spans are in
one table, which is updated in single steps. The allocator's lists are derived from it, and rebuilt
after an exception interrupted an update.

    heap = Heap(logical, SHARED)
    memory = heap.allocate(4096)
    del memory
    heap.sweep(recorded=7, completed=7)
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from vkchi import platform
from vkchi.errors import DeviceError
from vkchi.interrupts.weak import finalize_after_all, run_each_once
from vkchi.target.memory_handles import Payload
from vkchi.tuples import NamedTuple
from vkchi.vk.logical import Logical, ReleaseQueue, RetainedObjects
from vkchi.vk.memory.blocks import (
    MIB,
    MemoryBlock,
    MemoryPlacement,
    import_block,
    import_payload,
    make_block,
    read_budget,
    tell_file_limit,
)
from vkchi.vk.memory.external import HandleExporter
from vkchi.vk.raw import OutOfMemory

# --- suballocation -------------------------------------------------------------------------------
#
# Best-fit suballocator with coalescing: divides large memory blocks into spans.
#
# A block is any object that `make_block` returns; dropping the last reference must free it. Not
# thread-safe: the owner holds a lock, and calls `rebuild` after an exception. The free parts of all
# blocks are in one list sorted by (size, block, offset); allocation takes the smallest that fits.
# Free neighbors are found by their boundaries, in constant time.
#
#     >>> a = Allocator(make_block=bytearray)
#     >>> span = a.allocate(1000)
#     >>> span.offset, span.size_bytes
#     (0, 1024)
#     >>> a.free(span)

ALIGNMENT_BYTES = 256
FIRST_BLOCK_BYTES = 64 << 20
DOUBLINGS = 2


class MemorySpan(NamedTuple):
    """Part of block `number`: `size_bytes` from `offset`, both multiples of 256. Imported memory
    (`heap`) has the number -1, and any offset and size."""

    block: Any
    number: int
    offset: int
    size_bytes: int


class _Block:
    """One block and its free parts: `sizes` by start offset, `starts` by end offset."""

    __slots__ = ("block", "is_shared", "sizes", "starts", "total_bytes")

    def __init__(self, block: Any, total_bytes: int, *, is_shared: bool) -> None:
        self.block, self.total_bytes, self.is_shared = block, total_bytes, is_shared
        self.sizes: dict[int, int] = {}
        self.starts: dict[int, int] = {}

    @property
    def is_empty(self) -> bool:
        return self.sizes.get(0) == self.total_bytes


class Allocator:
    """Suballocator over blocks made by `make_block(size_bytes)`.

    A new shared block has `block_bytes`, doubled for each shared block that exists, at most twice;
    less if memory is short. A request that fits no free part and exceeds half a new block gets a
    dedicated block, which is freed with its span. At most one empty shared block is kept.
    """

    def __init__(
        self,
        make_block: Callable[[int], Any],
        block_bytes: int = FIRST_BLOCK_BYTES,
    ) -> None:
        self._make_block, self._least_bytes = make_block, block_bytes
        self._blocks: dict[int, _Block] = {}
        self._free: list[tuple[int, int, int]] = []
        self._next_number = 0
        self.used_bytes = 0

    @property
    def reserved_bytes(self) -> int:
        return sum(block.total_bytes for block in self._blocks.values())

    def list_blocks(self) -> list[Any]:
        return [block.block for block in list(self._blocks.values())]

    def allocate(self, size_bytes: int) -> MemorySpan:
        """Return a span of at least `size_bytes`, disjoint from all live spans. Raises OutOfMemory
        if `make_block` raises it even for the smallest block that fits."""
        size = round_up(max(size_bytes, 1), ALIGNMENT_BYTES)
        number, offset = self._find_free(size) or (self._add_block_for(size), 0)
        span = self._take(number, offset, size)
        self.used_bytes += size
        return span

    def free(self, span: MemorySpan) -> None:
        """Free a span that `allocate` returned. It must not be freed twice."""
        block = self._blocks[span.number]
        offset, size = span.offset, span.size_bytes
        self.used_bytes -= size
        after = offset + size
        if after in block.sizes:
            size += self._remove_free(span.number, after)
        if offset in block.starts:
            before = block.starts[offset]
            size += self._remove_free(span.number, before)
            offset = before
        self._add_free(span.number, offset, size)
        if block.is_empty:
            self._give_back(span.number)

    def drop_empty(self) -> None:
        """Free every empty block, including the one kept in reserve."""
        for number in [n for n, block in self._blocks.items() if block.is_empty]:
            self._drop(number)

    def rebuild(self, live: Iterable[MemorySpan]) -> None:
        """Rebuild the free lists and `used_bytes` from all live spans; drop empty blocks as `free`
        does."""
        ends = dict.fromkeys(self._blocks, 0)
        self._free.clear()
        for block in self._blocks.values():
            block.sizes.clear()
            block.starts.clear()
        self.used_bytes = 0
        for span in sorted(live, key=lambda span: (span.number, span.offset)):
            if span.offset > ends[span.number]:
                self._add_free(span.number, ends[span.number], span.offset - ends[span.number])
            ends[span.number] = span.offset + span.size_bytes
            self.used_bytes += span.size_bytes
        for number, end in ends.items():
            if end < self._blocks[number].total_bytes:
                self._add_free(number, end, self._blocks[number].total_bytes - end)
            if self._blocks[number].is_empty:
                self._give_back(number)

    def _find_free(self, size: int) -> tuple[int, int] | None:
        at = bisect_left(self._free, (size, -1, -1))
        return self._free[at][1:] if at < len(self._free) else None

    def _add_block_for(self, size: int) -> int:
        shared = sum(block.is_shared for block in self._blocks.values())
        total_bytes = self._least_bytes << min(shared, DOUBLINGS)
        if 2 * size > total_bytes:
            return self._add_block(size, is_shared=False)
        while True:
            try:
                return self._add_block(total_bytes, is_shared=True)
            except OutOfMemory:
                total_bytes //= 2
                if total_bytes < size:
                    return self._add_block(size, is_shared=False)

    def _add_block(self, total_bytes: int, *, is_shared: bool) -> int:
        block = self._make_block(total_bytes)
        number = self._next_number
        self._next_number += 1
        self._blocks[number] = _Block(block, total_bytes, is_shared=is_shared)
        self._add_free(number, 0, total_bytes)
        return number

    def _take(self, number: int, offset: int, size: int) -> MemorySpan:
        rest = self._remove_free(number, offset) - size
        if rest:
            self._add_free(number, offset + size, rest)
        return MemorySpan(self._blocks[number].block, number, offset, size)

    def _add_free(self, number: int, offset: int, size: int) -> None:
        block = self._blocks[number]
        block.sizes[offset] = size
        block.starts[offset + size] = offset
        insort(self._free, (size, number, offset))

    def _remove_free(self, number: int, offset: int) -> int:
        block = self._blocks[number]
        size = block.sizes.pop(offset)
        del block.starts[offset + size]
        del self._free[bisect_left(self._free, (size, number, offset))]
        return size

    def _give_back(self, number: int) -> None:
        """Drop an empty block. A dedicated block is always dropped; of shared ones, one empty block
        stays."""
        spare = any(b.is_empty for n, b in self._blocks.items() if n != number)
        if spare or not self._blocks[number].is_shared:
            self._drop(number)

    def _drop(self, number: int) -> None:
        self._remove_free(number, 0)
        del self._blocks[number]


def round_up(value: int, step: int) -> int:
    """Smallest multiple of `step` that is at least `value`.

    >>> round_up(257, 256)
    512
    """
    return -(-value // step) * step


# --- spans ---------------------------------------------------------------------------------------

EVER = 1 << 62  # later than any submission
IMPORTED = -1  # block number of imported memory
Left = dict[int, tuple[MemoryBlock, list[Any]]]  # blocks, with the live pointers into each


class HeapMemory(NamedTuple):
    """A span, and the pointer that keeps it alive.

    The pointer is the host address of the first byte. If the host cannot access the memory, it is
    the device address, which must not be dereferenced.
    """

    pointer: Any
    span: MemorySpan


class _Live(NamedTuple):
    """A span in use. The dying pointer appends `place` to the release queue; `holder` refers weakly
    to the pointer."""

    place: Any
    span: MemorySpan
    holder: weakref.ref[Any]


class Heap:
    """Memory of arrays. Call `allocate` and `sweep` under the device's lock.

    With an exporter, blocks are exportable, each as a whole, unless the driver cannot allocate such
    a block. `waiting_bytes`: released memory that the device had not finished with at the last
    sweep.
    """

    def __init__(
        self, logical: Logical, placement: MemoryPlacement, exporter: HandleExporter | None = None
    ) -> None:
        self.logical, self.exporter = logical, exporter
        self.waiting_bytes = 0
        self.released, self._held = ReleaseQueue(), RetainedObjects(logical.vk.ffi)
        self.deques = (*self.released.deques, *self._held.released.deques)
        self._live: dict[int, _Live] = {}
        self._is_torn = False
        self._allocator = Allocator(  # must not refer to the heap: a cycle is freed in any order
            lambda size_bytes: _make_block(logical, size_bytes, placement, exporter)
        )

    @property
    def used_bytes(self) -> int:
        """Bytes of allocated spans, including released ones that are not yet freed; no imports."""
        return self._allocator.used_bytes

    def hold(self, thing: Any) -> Any:
        """Return a cell that keeps `thing` alive, also after the cell dies. `thing` is released
        once the device has finished with the commands recorded before the next `sweep`."""
        return self._held.hold(thing)

    def import_host(self, pointer: Any, size_bytes: int) -> HeapMemory:
        """Import `size_bytes` of host memory at a cffi pointer, which is kept alive.

        The driver imports the whole pages around it. Precondition: the device can import host
        memory. Raises DeviceError if the driver does not accept it, for memory of this heap, and
        for an empty range.
        """
        blocks = [b for b in self._allocator.list_blocks() if b.pointer is not None]
        if size_bytes <= 0 or any(b.pointer <= pointer < b.pointer + b.size_bytes for b in blocks):
            raise DeviceError("memory of the device is not imported into it")
        step = self.logical.physical.host_pointer_alignment
        address = int(self.logical.vk.ffi.cast("uintptr_t", pointer))
        start = address // step * step
        pages = round_up(address + size_bytes - start, step)
        block = import_block(self.logical, start, pages, self.hold(pointer))
        return HeapMemory(pointer, MemorySpan(block, IMPORTED, address - start, size_bytes))

    def import_payload(self, payload: Payload, size_bytes: int) -> HeapMemory:
        """Import the memory of an external handle, which is closed afterwards. Raises DeviceError;
        the handle then stays open."""
        return self.part_of(import_payload(self.logical, payload, size_bytes), 0, size_bytes)

    def part_of(self, block: MemoryBlock, offset: int, size_bytes: int) -> HeapMemory:
        """Return memory in part of a block, imported or allocated. Its pointer keeps the block
        alive."""
        start = block.pointer
        if start is None:
            start = self.logical.vk.ffi.cast("char *", block.address)
        pointer = self.logical.vk.ffi.gc(start + offset, [block].append)  # keeps the block alive
        return HeapMemory(pointer, MemorySpan(block, IMPORTED, offset, size_bytes))

    def allocate(self, size_bytes: int) -> HeapMemory:
        """Allocate at least `size_bytes`. Raises OutOfMemory, or DeviceError above a limit of the
        device or the process."""
        self._rebuild()
        self._is_torn = True
        span = self._allocator.allocate(size_bytes)
        ffi, start = self.logical.vk.ffi, span.block.pointer
        if start is None:
            start = ffi.cast("char *", span.block.address)
        place = start + span.offset
        pointer = ffi.gc(place, self.released.add)
        self._live[id(place)] = _Live(place, span, weakref.ref(pointer))
        self._is_torn = False
        return HeapMemory(pointer, span)

    def sweep(self, recorded: int, completed: int) -> None:
        """Free released memory whose submission number is at most `completed`. Memory released
        since the last sweep first gets the number `recorded`."""
        self._held.sweep(recorded, completed)
        if not self.released:
            return
        self._rebuild()
        self._is_torn = True
        self.waiting_bytes += sum(map(self._size_of, self.released.tag(recorded)))
        while self.released.is_due(completed):
            place = self.released.first()
            self.waiting_bytes -= self._size_of(place)
            self._free(place)
            next(self.released.pop)
        self._is_torn = False

    def _free(self, place: Any) -> None:
        live = self._live.get(id(place))
        if live is not None:
            self._allocator.free(live.span)
            self._live.pop(id(place))

    def _size_of(self, place: Any) -> int:
        live = self._live.get(id(place))
        return 0 if live is None else live.span.size_bytes

    def _rebuild(self) -> None:
        """Rebuild the allocator's tables if an exception interrupted an update."""
        if self._is_torn:
            self._allocator.rebuild([live.span for live in self._live.values()])
            self.waiting_bytes = sum(map(self._size_of, self.released.waiting()))
            self._is_torn = False

    def close(self) -> Left:
        """Free all memory except blocks with live pointers.

        Returns these blocks by number, each with the live pointers into it.
        """
        left: Left = {}
        for live in list(self._live.values()):
            pointer = live.holder()
            if pointer is not None:
                left.setdefault(live.span.number, (live.span.block, []))[1].append(pointer)
        self.sweep(recorded=0, completed=EVER)  # `left` keeps the rest alive
        self._rebuild()
        self._is_torn = True
        self._allocator.drop_empty()
        self._is_torn = False
        self.logical.sweep(recorded=0, completed=EVER)
        return left

    def leave(self, left: Left, ending: Iterator[None]) -> list[weakref.ref[Any]]:
        """Register finalizers for the blocks that `close` returned.

        Each block is freed with the last view of it. After the last view of all, `ending` is run.
        Returns the weak references, which must be kept alive.
        """
        calls, device, null = self.logical.calls, self.logical.handle, self.logical.vk.NULL
        made = finalize_after_all([view for _, views in left.values() for view in views], ending)
        for block, views in left.values():
            buffer, memory = (cell[0] for cell in block.cells)
            made += finalize_after_all(views, run_each_once(
                partial(calls.vkDestroyBuffer, device, buffer, null),
                partial(calls.vkFreeMemory, device, memory, null),
            ))  # fmt: skip
        return made

    def free_bytes(self) -> int:
        """Return the free bytes of the device's largest device-local heap; its size if the free
        part is unknown."""
        free_bytes, total_bytes = read_budget(self.logical)
        return free_bytes if free_bytes >= 0 else total_bytes

    def total_bytes(self) -> int:
        """Return the size of the device's largest device-local heap."""
        return read_budget(self.logical)[1]

    def explain_shortage(self, size_bytes: int) -> DeviceError:
        """Return, without raising it, an OutOfMemory error for a failed request; it states memory
        in use and free."""
        free_bytes, total_bytes = read_budget(self.logical)
        limit = self.logical.physical.allocation_limit_bytes
        known = f"{free_bytes / MIB:.0f} MiB of {total_bytes / MIB:.0f} MiB are free, "
        return OutOfMemory(
            f"{self.logical.physical.name} is out of memory: {size_bytes / MIB:.1f} MiB asked "
            f"for, {self.used_bytes / MIB:.1f} MiB in use by arrays, "
            + (known if free_bytes >= 0 else f"{total_bytes / MIB:.0f} MiB in all, ")
            + f"at most {limit / MIB:.0f} MiB in one piece{_tell_limit()}"
            + f"{tell_file_limit(self.logical)}; free some arrays first"
        )


def _make_block(
    logical: Logical, size_bytes: int, placement: MemoryPlacement, exporter: HandleExporter | None
) -> MemoryBlock:
    """Make a block, exportable if there is an exporter and the driver can make it so."""
    if exporter is not None:
        try:
            return make_block(logical, size_bytes, placement, exporter)
        except OutOfMemory:
            raise
        except DeviceError:
            pass
    return make_block(logical, size_bytes, placement)


def _tell_limit() -> str:
    allowed = platform.limit_of("RLIMIT_AS")
    if allowed is None:
        return ""
    return f", and this process may have {allowed / MIB:.0f} MiB of addresses (`ulimit -v`)"
