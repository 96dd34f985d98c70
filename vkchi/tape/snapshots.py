"""Snapshots by copy-on-write: a tape copies an array before something overwrites it.

A recorded call requests that parts of arrays keep their contents. Before a launch or Python writes
to such a part, the array is copied once for all requests that the write affects. If possible, only
the requested rows are copied.

With a memory budget the state at the start is saved, too. If the copies exceed the budget, the
copies for calls are dropped, and calls are repeated instead (`checkpoints`).
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.boxes import Box, rows_of
from vkchi.errors import DeviceError
from vkchi.fields.storage import Storage
from vkchi.tape.ledger import CallMemory, Ledger, SnapshotRequest, SnapshotRequests
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
    """A copy of parts of an array, and the calls that requested it.

    `holders` are their positions in the tape, with the array's parameter name in each.
    """

    boxes: list[Box]
    holders: list[tuple[int, str]]

    def find(self, calls: Sequence[CallMemory]) -> Storage:
        position, name = self.holders[0]
        return calls[position].memory[name]

    def make(self, calls: Sequence[CallMemory], saved_bytes: int) -> Storage:
        """Make the copy and store it in the calls. Raises DeviceError.

        `saved_bytes` is the size of earlier copies, for the error message.
        """
        copy = copy_of(self.find(calls), self.boxes, saved_bytes)
        for position, name in self.holders:
            calls[position].memory[name] = copy
        return copy


def copy_of(array: Storage, boxes: list[Box], saved_bytes: int) -> Storage:
    """Copy at least these parts of an array.

    Raises DeviceError, which states `saved_bytes`, the size of earlier copies.
    """
    rows = rows_of(boxes, array.shape) if array.row_numbers is not None else None
    try:
        return array.copied() if rows is None else array.copied_rows(*rows)
    except DeviceError as e:
        raise DeviceError(
            f"{e}; the tape has saved {saved_bytes} bytes of arrays that kernels overwrite: with "
            'ti.ad.Tape(memory="512MiB"), say, it saves less and calls kernels again'
        ) from None


class Snapshots:
    """Copy-on-write snapshots of one tape.

    - `start`: with a memory budget, the initial contents of every array that was written.
    - `is_over`: the budget is exceeded, so that calls must be repeated.
    - `is_reversing`: gradients are running; the budget does not apply.
    - `saves`: copies made since the list was last emptied.
    """

    def __init__(self, budget_bytes: int | None, ledger: Ledger) -> None:
        self.budget_bytes, self.ledger = budget_bytes, ledger
        self.start = State()
        self.rewritten: dict[int, Storage] = {}
        self.saved_bytes = 0
        self.saves: list[SnapshotCopy] = []
        self.is_over = self.is_reversing = False

    @property
    def is_limited(self) -> bool:
        return self.budget_bytes not in (None, UNLIMITED)

    def want(self, wanted: SnapshotRequest) -> None:
        """Request that a part of an array keeps its contents. No effect once the budget is
        exceeded."""
        account = self.ledger.open(wanted.array)
        if not self.is_over:
            account.wants.add(wanted)

    def save_all(self, array: Storage) -> None:
        """Save an array before Python overwrites it.

        With a memory budget, note it for `take_rewritten`, too.
        """
        self.save(array, None)
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

    def save(self, array: Storage, box: Box | None) -> None:
        """Copy an array for all requests that may intersect a box (None: all requests).

        With a memory budget, also save its initial contents, once. Raises DeviceError.
        """
        is_result = self.is_reversing and array.is_gradient
        if self.budget_bytes is not None and id(array) not in self.start.copies and not is_result:
            self.start.keep(array)
        wants = self.ledger.open(array).wants
        hit = wants.pop_meeting(box)
        found: dict[int, list[SnapshotRequest]] = {}
        for w in hit:
            found.setdefault(id(w.array), []).append(w)
        try:
            for those in found.values():  # one group per array or component
                self.save_for(those)
        except DeviceError:  # the write does not happen
            for w in hit:
                wants.add(w)
            raise

    def save_for(self, those: list[SnapshotRequest]) -> None:
        save = SnapshotCopy([w.box for w in those], [(w.holder.position, w.name) for w in those])
        self.saves.append(save)
        copy = those[0].copy or copy_of(those[0].array, save.boxes, self.saved_bytes)
        self.count(copy.size_bytes)
        for w in those:
            w.holder.memory[w.name] = copy

    def count(self, size_bytes: int) -> None:
        """Count saved bytes. Past the budget, set `is_over` and drop all requests."""
        self.saved_bytes += size_bytes
        budget = None if self.is_reversing else self.budget_bytes
        if budget is not None and self.saved_bytes > budget:
            self.is_over = True
            for account in self.ledger.accounts.values():
                account.wants = SnapshotRequests()

    def close(self) -> None:
        self.start = State()
