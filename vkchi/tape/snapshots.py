"""Snapshots by copy-on-write: a tape copies an array before something overwrites it.

A recorded call has a `fields.versions.Read` of each part of an array that its gradient reads.
Before a launch or Python writes to such a part, the array is copied once for all reads that the
write affects. If possible, only their rows are copied.

With a memory budget the state at the start is saved, too. If the copies exceed the budget, the
copies for calls are dropped, and calls are repeated instead (`checkpoints`).
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.boxes import Box
from vkchi.errors import DeviceError
from vkchi.fields.storage import Storage
from vkchi.fields.versions import Read, copy_boxes
from vkchi.tape.ledger import Ledger
from vkchi.tape.log import State
from vkchi.tuples import NamedTuple

UNLIMITED = 1 << 62  # bytes; saves everything, and the state at the start
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def format_bytes(size_bytes: int) -> str:
    unit = next((u for u in ("GiB", "MiB", "KiB") if size_bytes >= UNITS[u]), "")
    return f"{size_bytes / UNITS[unit]:.1f} {unit}" if unit else f"{size_bytes} bytes"


class TapeReport(NamedTuple):
    """Number of steps (`calls`) and of repetitions of steps in a tape, and the memory it saved.

    `states` is the largest number of states saved at once, of `state_bytes` each; 0 without
    checkpointing.
    """

    calls: int
    repeated: int
    states: int
    state_bytes: int
    saved_bytes: int

    def __str__(self) -> str:
        if not self.repeated:
            return f"{self.calls} calls, {format_bytes(self.saved_bytes)} saved, none recomputed"
        return (
            f"{self.calls} calls, up to {self.states} states of {format_bytes(self.state_bytes)} "
            f"kept "
            f"at once ({format_bytes(self.saved_bytes)}), {self.repeated} calls recomputed"
        )


class SnapshotCopy(NamedTuple):
    """A copy of parts of an array, and the calls that read it.

    `readers` are their positions in the tape, with the array's parameter name in each.
    """

    boxes: list[Box]
    readers: list[tuple[int, str]]

    def make(self, memories: Sequence[dict[str, Storage]], saved_bytes: int) -> Storage:
        """Make the copy and store it in the memory of the calls. Raises DeviceError.

        `saved_bytes` is the size of earlier copies, for the error message.
        """
        position, name = self.readers[0]
        copy = copy_of(memories[position][name], self.boxes, saved_bytes)
        for position, name in self.readers:
            memories[position][name] = copy
        return copy


def copy_of(array: Storage, boxes: list[Box], saved_bytes: int) -> Storage:
    """Copy at least these parts of an array.

    Raises DeviceError, which states `saved_bytes`, the size of earlier copies.
    """
    try:
        return copy_boxes(array, boxes)
    except DeviceError as e:
        raise DeviceError(
            f"{e}; the tape has saved {saved_bytes} bytes of arrays that kernels overwrite: with "
            'ti.ad.Tape(memory="512MiB"), say, it saves less and calls kernels again'
        ) from None


class Snapshots:
    """Reads of one tape, and the copies made for them.

    - `start`: with a memory budget, the initial contents of every array that was written.
    - `is_over`: the budget is exceeded, so that calls must be repeated.
    - `is_reversing`: gradients are running; the budget does not apply.
    - `saves`: copies made since the list was last emptied.
    - `traced`: arrays of the first calls, or copies made for them, if these ran along a trace.
    """

    def __init__(self, budget_bytes: int | None, ledger: Ledger) -> None:
        self.budget_bytes, self.ledger = budget_bytes, ledger
        self.start = State()
        self.rewritten: dict[int, Storage] = {}
        self.saved_bytes = 0
        self.saves: list[SnapshotCopy] = []
        self.traced: Sequence[dict[str, Storage]] = ()
        self.readers: dict[Read, list[tuple[int, str]]] = {}
        self.is_over = self.is_reversing = False

    @property
    def is_limited(self) -> bool:
        return self.budget_bytes not in (None, UNLIMITED)

    def want(self, array: Storage, box: Box, reader: tuple[int, str]) -> Read:
        """Return a read of a part of an array by a call: its position and the parameter's name.

        Once the budget is exceeded, the read follows the contents of the array.
        """
        account = self.ledger.open(array)
        if self.is_over:
            return Read(array, box)
        read = account.history.want(array, box)
        self.readers.setdefault(read, []).append(reader)
        return read

    def save_all(self, array: Storage) -> None:
        """Save an array before Python overwrites it.

        With a memory budget, note it for `take_rewritten`, too.
        """
        self.save(array, ())
        if self.budget_bytes is not None:
            self.rewritten[id(array)] = array

    def take_rewritten(self) -> list[State]:
        """Return a snapshot of the arrays that Python has written since the last call of this, in a
        list.

        The list is empty if there are none, or without memory budget.
        """
        if not self.rewritten:
            return []
        found = State(self.rewritten.values())
        self.rewritten.clear()
        self.count(found.size_bytes)
        return [found]

    def save(self, array: Storage, box: Box) -> None:
        """Copy the reads that a write to a box of an array may change.

        With a memory budget, also save its initial contents, once. Raises DeviceError; the write
        then does not happen.
        """
        is_result = self.is_reversing and array.is_gradient
        if self.budget_bytes is not None and id(array) not in self.start.copies and not is_result:
            self.start.keep(array)
        self.ledger.open(array).history.save(box, self._copy)
        self.count(0)

    def _copy(self, reads: list[Read]) -> Storage:
        array, boxes = reads[0].array, [read.box for read in reads]
        readers = [reader for read in reads for reader in self.readers[read]]
        position, name = readers[0]
        known = self.traced[position][name] if position < len(self.traced) else array
        copy = copy_of(array, boxes, self.saved_bytes) if known is array else known
        for read in reads:
            del self.readers[read]
        self.saves.append(SnapshotCopy(boxes, readers))
        self.saved_bytes += copy.size_bytes
        return copy

    def count(self, size_bytes: int) -> None:
        """Count saved bytes. Past the budget, set `is_over` and let later writes change all
        reads."""
        self.saved_bytes += size_bytes
        budget = None if self.is_reversing else self.budget_bytes
        if budget is not None and self.saved_bytes > budget:
            self.is_over = True
            self.readers.clear()
            for account in self.ledger.accounts.values():
                account.history.forget()

    def close(self) -> None:
        self.start = State()
