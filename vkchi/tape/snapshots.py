"""Snapshots by copy-on-write: a tape copies an array before something overwrites it.

A recorded call has a `fields.array_versions.Read` of each part of an array that its gradient reads.
Before a launch or Python writes to such a part, the array is copied once for all reads that the
write affects. If possible, only their rows are copied.

With a memory budget the state at the start is saved, too. If the copies exceed the budget, the
copies for calls are dropped, and calls are repeated instead (`checkpoints`).
"""

from __future__ import annotations

from vkchi.analysis.memory.boxes import Box
from vkchi.errors import DeviceError
from vkchi.fields.array_versions import Read, copy_boxes, point_of
from vkchi.fields.storage import Storage
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


class Snapshots:
    """Reads of one tape, and the copies made for them.

    - `start`: with a memory budget, the initial contents of every array that was written.
    - `is_over`: the budget is exceeded, so that calls must be repeated.
    - `is_reversing`: gradients are running; the budget does not apply.
    """

    def __init__(self, budget_bytes: int | None, ledger: Ledger) -> None:
        self.budget_bytes, self.ledger = budget_bytes, ledger
        self.start = State()
        self.rewritten: dict[int, Storage] = {}
        self.saved_bytes = 0
        self.is_over = self.is_reversing = False

    @property
    def is_limited(self) -> bool:
        return self.budget_bytes not in (None, UNLIMITED)

    def want(self, array: Storage, box: Box) -> Read:
        """Return a read of a part of an array.

        Once the budget is exceeded, the read follows the contents of the array.
        """
        history = self.ledger.open(array).history
        return Read(array, box) if self.is_over else history.want(array, box, point_of(box))

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
        self.ledger.open(array).history.save(box, self.copy)
        self.count(0)

    def copy(self, reads: list[Read]) -> Storage:
        """Copy the parts of one array, and count the bytes. Raises DeviceError."""
        try:
            copy = copy_boxes(reads[0].array, [read.box for read in reads])
        except DeviceError as e:
            raise DeviceError(
                f"{e}; the tape has saved {self.saved_bytes} bytes of arrays that kernels "
                'overwrite: with ti.ad.Tape(memory="512MiB"), say, it saves less and calls kernels '
                "again"
            ) from None
        self.saved_bytes += copy.size_bytes
        return copy

    def count(self, size_bytes: int) -> None:
        """Count saved bytes. Past the budget, set `is_over` and let later writes change all
        reads."""
        self.saved_bytes += size_bytes
        budget = None if self.is_reversing else self.budget_bytes
        if budget is not None and self.saved_bytes > budget:
            self.is_over = True
            for account in self.ledger.accounts.values():
                account.history.forget()

    def close(self) -> None:
        self.start = State()
