"""Ring allocator for host-visible memory that is valid until one submission is done.

Used for argument blocks and staging. A chunk is filled from its start. A full chunk is appended to
a FIFO with the number of the last submission that used it. The oldest chunk is reused when that
submission is done. A chunk that an exception keeps out of the FIFO is freed by its `HandleTable`.

    ring = Ring(logical, queue, chunk_bytes=1 << 16)
    piece = ring.allocate(96, recorded=queue.submitted + 1)
    ffi.memmove(piece.pointer, data, 96)
"""

from __future__ import annotations

from collections import deque
from typing import Any

from vkchi.errors import InternalError
from vkchi.tuples import NamedTuple
from vkchi.vk.logical import Logical
from vkchi.vk.memory.blocks import HOST, MemoryBlock, make_block
from vkchi.vk.queue import Queue

STEP_BYTES = 64
MOST_CHUNKS = 16


class RingSlice(NamedTuple):
    """Part of a chunk: host pointer, device address, VkBuffer and offset."""

    pointer: Any
    address: int
    buffer: Any
    offset: int


class Ring:
    """Pieces of up to `chunk_bytes`, aligned to 64 bytes. With 16 full chunks, `allocate` waits for
    the oldest, unless that was used by the submission being recorded."""

    def __init__(self, logical: Logical, queue: Queue, chunk_bytes: int) -> None:
        self._logical, self._queue = logical, queue
        self.chunk_bytes = chunk_bytes
        self._full: deque[tuple[int, MemoryBlock]] = deque()
        self._chunk: MemoryBlock | None = None
        self._offset = 0
        self._last = 0

    def allocate(self, size_bytes: int, recorded: int) -> RingSlice:
        """Return a piece that is valid until submission number `recorded` is done. Raises
        InternalError for a piece larger than a chunk, DeviceError if memory cannot be allocated."""
        chunk = self._chunk
        if chunk is None or self._offset + size_bytes > self.chunk_bytes:
            chunk = self._turn(size_bytes, recorded)
        offset = self._offset
        self._last = recorded
        self._offset = offset + -(-size_bytes // STEP_BYTES) * STEP_BYTES
        return RingSlice(chunk.pointer + offset, chunk.address + offset, chunk.buffer, offset)

    def _turn(self, size_bytes: int, recorded: int) -> MemoryBlock:
        if size_bytes > self.chunk_bytes:
            raise InternalError(f"a piece of {size_bytes} bytes is larger than a chunk")
        chunk, self._chunk = self._chunk, None
        if chunk is not None:
            self._full.append((self._last, chunk))
        if len(self._full) >= MOST_CHUNKS and self._full[0][0] < recorded:
            self._queue.wait(self._full[0][0])
        if self._full and self._full[0][0] <= self._queue.read_completed():
            chunk = self._full.popleft()[1]
        else:
            chunk = make_block(self._logical, self.chunk_bytes, HOST)
        self._offset = 0
        self._chunk = chunk
        return chunk

    def close(self) -> None:
        self._full.clear()
        self._chunk = None
