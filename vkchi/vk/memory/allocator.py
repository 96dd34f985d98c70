"""Best-fit suballocator with coalescing: divides large memory blocks into spans.

A block is any object that `make_block` returns; dropping the last reference must free it. Not
thread-safe: the owner holds a lock, and calls `rebuild` after an exception. The free parts of all
blocks are in one list sorted by (size, block, offset); allocation takes the smallest that fits.
Free neighbors are found by their boundaries, in constant time.

    >>> a = Allocator(make_block=bytearray)
    >>> span = a.allocate(1000)
    >>> span.offset, span.size_bytes
    (0, 1024)
    >>> a.free(span)
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import Any

from vkchi.tuples import NamedTuple
from vkchi.vk.raw import OutOfMemory

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
