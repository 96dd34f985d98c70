"""Launches of kernels that may activate cells of sparse blocks with pools (`fields.trees.pools`).

The host waits for such a launch. If a pool had no room, the launch is undone: the arrays that it
wrote get their earlier contents. Then the pool grows, and the kernel runs again, with the same
random seeds. Its reports (`print`, `assert`, checks of debug mode) are delivered after the last run
alone. Small contents are always saved. Larger ones are saved unless the kernel is known to need few
nodes.

An error is raised instead if nothing was saved, and if the pool may not grow further.

    PoolLaunches(name, pools, record).run(bound, arrays, seeds)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from vkchi.errors import DeviceError
from vkchi.fields.storage import Storage
from vkchi.fields.trees.pools import Pool
from vkchi.interrupts.local import local

if TYPE_CHECKING:
    from vkchi.device import Buffer
    from vkchi.signature.bound import BoundArguments

MOST_SAVED_BYTES = 256 << 20
CHEAP_BYTES = 16 << 20  # are saved before each launch that may activate cells
MOST_RUNS = 16
SPARE_NODES = 64


class PoolLaunches:
    """Launches of one kernel, which `record` records.

    - forget_reports: discards those of a launch, None for a kernel without
    - most_taken: the most nodes that a launch took, by the number of the pool
    """

    def __init__(
        self, name: str, pools: list[Pool], record: Callable[..., None],
        forget_reports: Callable[[], None] | None,
    ) -> None:  # fmt: skip
        self.name, self.pools, self.record = name, pools, record
        self.forget_reports = forget_reports
        self.most_taken: dict[int, int] = {}

    def run(
        self, bound: BoundArguments, written: Mapping[str, Storage],
        seeds: Callable[[], int] | None,
    ) -> None:  # fmt: skip
        """Run a launch whose arguments are bound, and which may write the arrays `written`.

        Raises KernelRuntimeError if a pool has no room.
        """
        self._begin()
        most = MOST_SAVED_BYTES if self._may_fall_short() else CHEAP_BYTES
        saved = SavedArrays(self.pools, written, most)
        drawn = None if seeds is None else RepeatedSeeds(seeds)
        for _ in range(MOST_RUNS):
            self.record(bound, drawn)
            short = [pool for pool in self.pools if pool.is_short()]
            if not short or saved.contents is None:
                break
            if not all(pool.grow_to_missing() for pool in short):
                break
            saved.restore()
            self._begin()
            if drawn is not None:
                drawn.rewind()
            if self.forget_reports is not None:
                self.forget_reports()
        for k, pool in enumerate(self.pools):
            taken = pool.settle_launch()
            self.most_taken[k] = max(taken, self.most_taken.get(k, 0))

    def _begin(self) -> None:
        for pool in self.pools:
            pool.begin(self.name)

    def _may_fall_short(self) -> bool:
        """True if a launch may need more nodes than there are, by what earlier ones took."""
        left = [(k, pool.left()) for k, pool in enumerate(self.pools)]
        return any(n < 2 * self.most_taken.get(k, n) + SPARE_NODES for k, n in left)


class RepeatedSeeds:
    """Random seeds that are drawn once, and the same again after `rewind`."""

    def __init__(self, draw: Callable[[], int]) -> None:
        self.draw, self.drawn, self.at = draw, list[int](), 0

    def __call__(self) -> int:
        if self.at == len(self.drawn):
            self.drawn.append(self.draw())
        self.at += 1
        return self.drawn[self.at - 1]

    def rewind(self) -> None:
        self.at = 0


class SavedArrays:
    """Contents of arrays and pools. `contents` is None if they take more than `most` bytes, or if
    memory is short."""

    def __init__(self, pools: list[Pool], written: Mapping[str, Storage], most: int) -> None:
        self.contents: list[tuple[Storage, Buffer]] | None = None
        arrays = {id(a): a for a in written.values() if getattr(a, "pool", None) is None}
        sizes = [a.buffer.size_bytes for a in arrays.values()]
        if sum(sizes) + sum(pool.used_bytes for pool in pools) > most:
            return
        try:
            contents = [(array, saved_copy(array)) for array in arrays.values()]
            self.pools = [(pool, pool.save()) for pool in pools]
        except local(DeviceError):  # memory is short
            return
        self.contents = contents

    def restore(self) -> None:
        """Give the arrays and the pools their saved contents."""
        for array, copy in self.contents or ():
            array.device.copy(copy, array.buffer, array.buffer.size_bytes)
        for pool, saved in self.pools:
            pool.restore(saved)


def saved_copy(array: Storage) -> Any:
    """Return a buffer with the contents of that of an array."""
    size = array.buffer.size_bytes
    made = array.device.allocate(size, zero=False)
    array.device.copy(array.buffer, made, size)
    return made
