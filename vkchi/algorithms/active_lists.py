"""Active lists of sparse blocks, rebuilt on the device by stream compaction.

A list is rebuilt before a command that reads it, if its activity array was written since. The
recorder does both: it announces writes (`CommandRecorder.guard`), and rebuilds lists that a command
reads (`CommandRecorder.refresh`). So a program that changes no activity records nothing for lists.

Kernels that may activate cells of a pool often change nothing. During their launch the commands
test the pool's counters on the device. If nothing changed, the list stays valid.

    cells = cell_list(block.activity.numbers)
    cells.memory.to_numpy()[:1]         # the number of active cells

See also: `target.cell_lists` (memory layout), `opt.loops.listing` (loops over lists).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from vkchi.algorithms.array_kernels import on_arrays
from vkchi.fields.storage import Storage
from vkchi.interrupts.weak import Finalizer
from vkchi.launch.commands import CommandList
from vkchi.ndarray import ScalarNdarray
from vkchi.target.cell_lists import (
    ENTRIES_AT,
    GROUPS_AT,
    LEAST_SCALE,
    MOST_SCALE,
    chunk_of,
)
from vkchi.target.pool_layout import RECYCLED_AT, TAKEN_AT
from vkchi.target.shader import MAX_GROUPS
from vkchi.types import i32
from vkchi.vk.sequence import Command

# (CPU, GPU): least cells of a chunk, most chunks.
CHUNK = (256, 32)
CHUNKS = (256, 4096)
ROWS = MOST_SCALE - LEAST_SCALE + 1


@on_arrays(first=i32, second=i32, n=i32, chunk=i32, chunks=i32, places=i32, parts=i32)
def count_cells(
    numbers: Any, counts: Any, gate: Any, first: Any, second: Any,
    n: Any, chunk: Any, chunks: Any, places: Any, parts: Any,
) -> None:  # fmt: skip
    """Set counts[c] to the number of entries for the c-th chunk of numbers, unless the two elements
    of `gate` are 0; `first` is -1 without a gate. A list in a dynamic block has `parts` possible
    entries, of `places` places each; other cells have 1 of 1."""
    for c in range(chunks):
        if first < 0 or gate[max(first, 0)] != 0 or gate[max(second, 0)] != 0:
            total = 0
            for i in range(c * chunk, min(n, c * chunk + chunk)):
                if numbers[i] > 0:
                    total += min((numbers[i] + places - 1) // places, parts)
            counts[c] = total


@on_arrays(first=i32, second=i32, n=i32, chunk=i32, chunks=i32, places=i32, parts=i32)
def list_cells(
    numbers: Any, counts: Any, cells: Any, gate: Any, first: Any, second: Any,
    n: Any, chunk: Any, chunks: Any, places: Any, parts: Any,
) -> None:  # fmt: skip
    """Write the list `cells`, unless the gate is closed as in `count_cells`. Each chunk adds up the
    counts of those before it."""
    for c in range(chunks):
        if first < 0 or gate[max(first, 0)] != 0 or gate[max(second, 0)] != 0:
            to = ENTRIES_AT
            for k in range(c):
                to += counts[k]
            for i in range(c * chunk, min(n, c * chunk + chunk)):
                if numbers[i] > 0:
                    for part in range(min((numbers[i] + places - 1) // places, parts)):
                        cells[to] = i * parts + part
                        to += 1
            if c == chunks - 1:
                count = to - ENTRIES_AT
                cells[0] = count
                for row in range(ROWS):
                    scale = row + LEAST_SCALE
                    groups = 0
                    if scale < 0:
                        cells_per_group = 1 << -scale
                        groups = (count + cells_per_group - 1) // cells_per_group
                    else:
                        groups = min(count, (1 << 30) >> scale) << scale
                    y = (groups + MAX_GROUPS - 1) // MAX_GROUPS
                    x = groups
                    if y > 1:
                        x = (groups + y - 1) // y
                    cells[GROUPS_AT + 3 * row] = x
                    cells[GROUPS_AT + 3 * row + 1] = y
                    cells[GROUPS_AT + 3 * row + 2] = 1


class FlatActivity(ScalarNdarray):
    """An activity array as an ndarray with one axis, in the same memory."""

    def __init__(self, numbers: Storage) -> None:
        self.buffer = numbers.buffer
        super().__init__(numbers.runtime, i32, (math.prod(numbers.shape),))

    def _allocate(self) -> None:
        self.attach(self.buffer, is_own=False)


class CellList:
    """The active list of an activity array, in `memory`.

    - key: key of its buffer; `source`: that of the activity array.
    - commands: the commands that rebuild it.
    - is_gated: only launches that the pool has not settled may have made the list out of date.
    """

    def __init__(self, numbers: Storage) -> None:
        runtime = numbers.runtime
        self.device = runtime.device
        flat = FlatActivity(numbers)
        (n,) = flat.shape
        room = numbers.activity.room if numbers.activity is not None else 0
        places = chunk_of(room) if room else 1
        parts = room // places if room else 1
        self.memory = ScalarNdarray(runtime, i32, (ENTRIES_AT + n * parts,))
        choose = self.device.caps.choose
        chunk = max(choose(CHUNK), -(-n // choose(CHUNKS)))
        chunks = -(-n // chunk)
        counts = ScalarNdarray(runtime, i32, (chunks,))
        self._held = counts  # commands keep no arrays alive
        sizes = (n, chunk, chunks, places, parts)

        def rebuilding(*gate: Any) -> list[Command]:
            return [
                *commands_of(count_cells, flat, counts, *gate, *sizes),
                *commands_of(list_cells, flat, counts, self.memory, *gate, *sizes),
            ]

        self.pool: Any = getattr(numbers, "pool", None)
        self.is_gated = False
        self.commands = self._gated = rebuilding(flat, -1, -1)
        if self.pool is not None:
            self._gated = rebuilding(FlatActivity(self.pool.header), TAKEN_AT, RECYCLED_AT)
        self.key, self.source = self.memory.buffer.key, numbers.buffer.key
        reference = Finalizer(self, self.device.finalizers.append)
        reference.act = partial(self.device.drop_derived, self.key, self.source)
        self.device.add_derived(self.key, reference)

    @property
    def next_commands(self) -> list[Command]:
        """The commands that rebuild it now, if it has to be."""
        return self._gated if self.is_gated else self.commands

    def count(self) -> int:
        """Return the number of active cells; waits for the device."""
        self.device.refresh((self.key,))
        return int(self.memory.read((0,)))

    def free(self) -> None:
        """Free the memory, once the device has finished with it. Kernels must not use it later."""
        self.device.drop_derived(self.key, self.source)
        self.memory.buffer.free()
        self._held.buffer.free()

    def save(self) -> None:
        """Mark the list as out of date, before its activity array is written."""
        if self.key not in self.device.stale:
            self.is_gated = self.pool is not None and self.pool.is_open
        elif self.pool is not None and not self.pool.is_open:
            self.is_gated = False
        self.device.mark_stale(self.key)

    def settle(self, *, is_changed: bool) -> None:
        """End a launch that may have changed the activity. The counters of the pool are about to be
        reset."""
        if self.is_gated:
            self.is_gated = False
            if not is_changed and self.key in self.device.stale:
                self.device.unmark_stale(self.key)


def commands_of(function: Any, *args: Any) -> list[Command]:
    """Return the commands of a launch of an ArrayKernel with ndarrays."""
    key = (True,) * len(function.arrays)
    kernel = function.kernels.get(key)
    if kernel is None:
        kernel = function.kernels[key] = function.make(key)
    made: CommandList = kernel.inspect(bound_commands, *args)
    made.refresh()
    return [c._replace(args=bytes(c.args)) for c in made.commands if not isinstance(c.args, int)]


def bound_commands(kernel: Any, args: tuple[Any, ...]) -> CommandList:
    bound = kernel.bind(args)
    return CommandList(kernel.steps, bound.flat, bound.arrays)


def cell_list(numbers: Storage) -> CellList:
    """Return the active list of an activity array, made at the first call."""
    found = vars(numbers).get("active_list")
    if found is None:
        found = vars(numbers)["active_list"] = CellList(numbers)
    return found
