"""The suballocator, without a device: a block is a token that knows its size."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vkchi.vk.logical import ReleaseQueue
from vkchi.vk.memory.heap import ALIGNMENT_BYTES, Allocator, MemorySpan, round_up
from vkchi.vk.raw import OutOfMemory

BLOCK = 1 << 16


@dataclass(eq=False)
class Block:
    size_bytes: int


@dataclass
class Memory:
    """A device of `limit_bytes`, and the blocks that its allocator holds."""

    limit_bytes: int = 1 << 40
    allocator: Allocator | None = None

    @property
    def blocks(self) -> list[Block]:
        assert self.allocator is not None
        return [b.block for b in self.allocator._blocks.values()]

    def make(self, size_bytes: int) -> Block:
        if sum(b.size_bytes for b in self.blocks) + size_bytes > self.limit_bytes:
            raise OutOfMemory("full")
        return Block(size_bytes)


def make_allocator(limit_bytes: int = 1 << 40) -> tuple[Allocator, Memory]:
    memory = Memory(limit_bytes)
    memory.allocator = Allocator(memory.make, block_bytes=BLOCK)
    return memory.allocator, memory


def test_spans_are_aligned_and_follow_each_other() -> None:
    a, memory = make_allocator()
    spans = [a.allocate(n) for n in (1, 256, 257, 0)]
    assert [(s.offset, s.size_bytes) for s in spans] == [
        (0, 256), (256, 256), (512, 512), (1024, 256)
    ]  # fmt: skip
    assert len(memory.blocks) == 1
    assert a.used_bytes == 1280


def test_freed_neighbours_become_one() -> None:
    a, _ = make_allocator()
    spans = [a.allocate(BLOCK // 4) for _ in range(4)]
    for i in (0, 2, 1):
        a.free(spans[i])
    assert a.allocate(3 * BLOCK // 4).offset == 0
    assert a.reserved_bytes == BLOCK


def test_the_smallest_part_that_fits_is_taken() -> None:
    a, _ = make_allocator()
    spans = [a.allocate(n) for n in (4096, 256, 1024, 256, 8192, 256)]
    for i in (0, 2, 4):
        a.free(spans[i])
    assert a.allocate(1000).offset == spans[2].offset


def test_blocks_double_up_to_four_times_the_first() -> None:
    a, memory = make_allocator()
    for _ in range(40):
        a.allocate(BLOCK // 2)
    assert [b.size_bytes // BLOCK for b in memory.blocks] == [1, 2, 4, 4, 4, 4, 4]


def test_a_big_request_gets_its_own_block_and_gives_it_back() -> None:
    a, memory = make_allocator()
    small, big = a.allocate(256), a.allocate(10 * BLOCK + 1)
    assert [b.size_bytes for b in memory.blocks] == [BLOCK, 10 * BLOCK + 256]
    a.free(big)
    assert len(memory.blocks) == 1
    a.free(small)
    assert len(memory.blocks) == 1, "one empty block is kept"
    a.drop_empty()
    assert memory.blocks == []


def test_empty_blocks_but_one_are_freed() -> None:
    a, memory = make_allocator()
    spans = [a.allocate(BLOCK // 2) for _ in range(20)]
    for span in spans:
        a.free(span)
    assert len(memory.blocks) == 1
    assert a.used_bytes == 0


def test_less_is_asked_for_where_memory_is_short() -> None:
    a, memory = make_allocator(limit_bytes=BLOCK // 2)
    a.allocate(256)
    assert [b.size_bytes for b in memory.blocks] == [BLOCK // 2]
    with pytest.raises(OutOfMemory):
        a.allocate(BLOCK // 2)
    assert a.used_bytes == 256
    assert a.allocate(BLOCK // 4).offset == 256


def test_arrays_of_many_gigabytes() -> None:
    a, memory = make_allocator()
    span = a.allocate((5 << 30) + 3)
    assert span.size_bytes == (5 << 30) + 256
    a.free(span)
    assert memory.blocks == []


def overlaps(a: MemorySpan, b: MemorySpan) -> bool:
    same = a.block is b.block
    return same and a.offset < b.offset + b.size_bytes and b.offset < a.offset + a.size_bytes


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), st.integers(0, BLOCK // 3)),
        st.tuples(st.just("allocate"), st.integers(0, 3 * BLOCK)),
        st.tuples(st.just("free"), st.integers(0, 1 << 20)),
    ),
    max_size=120,
)


@settings(deadline=None)
@given(STEPS, st.integers(0, 20))
def test_any_sequence(steps: list[tuple[str, int]], limit_blocks: int) -> None:
    """No two live spans share a byte, all lie in their block, and all comes back."""
    a, memory = make_allocator(limit_bytes=limit_blocks * BLOCK or 1 << 40)
    live: list[MemorySpan] = []
    for verb, number in steps:
        if verb == "free" and live:
            a.free(live.pop(number % len(live)))
        elif verb == "allocate":
            try:
                span = a.allocate(number)
            except OutOfMemory:
                continue
            assert span.size_bytes == round_up(max(number, 1), ALIGNMENT_BYTES)
            assert span.offset % ALIGNMENT_BYTES == 0
            assert span.block in memory.blocks
            assert span.offset + span.size_bytes <= span.block.size_bytes
            assert not any(overlaps(span, other) for other in live)
            live.append(span)
        assert a.used_bytes == sum(s.size_bytes for s in live)
        assert a.reserved_bytes == sum(b.size_bytes for b in memory.blocks)
    for span in live:
        a.free(span)
    assert a.used_bytes == 0
    assert len(memory.blocks) <= 1
    a.drop_empty()
    assert memory.blocks == []


def test_freed_memory_waits_for_pending_submission() -> None:
    released = ReleaseQueue()
    released.add("a")
    assert released.tag(recorded=3) == ["a"]
    released.add("b")
    assert released.tag(recorded=4) == ["b"]
    assert [released.is_due(completed) for completed in (2, 3)] == [False, True]
    assert released.waiting() == ["a", "b"]
    assert (released.first(), next(released.pop)) == ("a", "a")
    assert not released.is_due(3)
    assert next(released.pop) == "b"
    assert not released


@settings(deadline=None)
@given(st.lists(st.integers(0, 2 * BLOCK), max_size=20), st.randoms())
def test_repair_finds_free_blocks(sizes: list[int], random: Random) -> None:
    """After any damage to the lists, live blocks stay and the rest can be allocated."""
    a, memory = make_allocator()
    live = [a.allocate(size) for size in sizes]
    for span in random.sample(live, len(live) // 2):
        live.remove(span)
    for block in a._blocks.values():
        block.sizes.clear()
    a._free = [(1, 2, 3)]
    a.rebuild(live)
    assert a.used_bytes == sum(span.size_bytes for span in live)
    more = [a.allocate(size) for size in sizes]
    spans = live + more
    assert not any(overlaps(x, y) for k, x in enumerate(spans) for y in spans[:k])
    for span in spans:
        a.free(span)
    a.drop_empty()
    assert memory.blocks == []
