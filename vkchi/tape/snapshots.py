"""What a tape keeps of memory: copies of arrays, made when something is about to overwrite them.

Owns: `Snapshots`, the `Report`. A recorded call wants some parts of arrays to stay as it found
them. Before a launch or Python writes to such a part, the array is copied, once, for all that want
it; only the rows in question, where they are known. In limited memory the state at the start is
kept besides; when the copies outgrow the budget, all others are dropped, for the calls will be done
again (`checkpoints`). Must not know: kernels, gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.boxes import Box, rows_of
from vkchi.errors import DeviceError
from vkchi.fields.storage import Storage
from vkchi.tape.ledger import Finder, Ledger, Wanted, Wants
from vkchi.tape.log import State
from vkchi.tuples import NamedTuple

UNLIMITED = 1 << 62  # bytes: everything is kept, and the state at the start besides
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def in_units(size_bytes: int) -> str:
    """A size as people read it."""
    unit = next((u for u in ("GiB", "MiB", "KiB") if size_bytes >= UNITS[u]), "")
    return f"{size_bytes / UNITS[unit]:.1f} {unit}" if unit else f"{size_bytes} bytes"


class Report(NamedTuple):
    """What was saved in the memory given, and done again."""

    calls: int
    repeated: int
    states: int
    state_bytes: int
    saved_bytes: int

    def __str__(self) -> str:
        if not self.repeated:
            return f"{self.calls} calls, {in_units(self.saved_bytes)} saved, none recomputed"
        return (
            f"{self.calls} calls, up to {self.states} states of {in_units(self.state_bytes)} kept "
            f"at once ({in_units(self.saved_bytes)}), {self.repeated} calls recomputed"
        )


class Save(NamedTuple):
    """A copy made of parts of an array, for calls that find them there: their positions in the
    tape, with the names that it has there."""

    boxes: list[Box]
    holders: list[tuple[int, str]]

    def find(self, calls: Sequence[Finder]) -> Storage:
        """What the first of them finds."""
        position, name = self.holders[0]
        return calls[position].memory[name]

    def make(self, calls: Sequence[Finder], saved_bytes: int) -> Storage:
        """Make it, after so many bytes of others, and let them find it. Raises DeviceError."""
        copy = copy_of(self.find(calls), self.boxes, saved_bytes)
        for position, name in self.holders:
            calls[position].memory[name] = copy
        return copy


def copy_of(array: Storage, boxes: list[Box], saved_bytes: int) -> Storage:
    """A copy of these parts of an array, or of more. Raises DeviceError where there is no memory
    for it, which says how much of it copies take already."""
    rows = rows_of(boxes, array.shape) if array.row_numbers is not None else None
    try:
        return array.copied() if rows is None else array.copied_rows(*rows)
    except DeviceError as e:
        raise DeviceError(
            f"{e}; the tape has saved {saved_bytes} bytes of arrays that kernels overwrite: with "
            'ti.ad.Tape(memory="512MiB"), say, it saves less and calls kernels again'
        ) from None


class Snapshots:
    """Copies on write. `start` is filled in limited memory: every array that was written, with
    what it held when the tape began. When gradients run, `is_reversing`, nothing is given up any
    more. `saves` are the copies made since that was last emptied."""

    def __init__(self, budget_bytes: int | None, ledger: Ledger) -> None:
        self.budget_bytes, self.ledger = budget_bytes, ledger
        self.start = State()
        self.rewritten: dict[int, Storage] = {}
        self.saved_bytes = 0
        self.saves: list[Save] = []
        self.is_over = self.is_reversing = False

    @property
    def is_limited(self) -> bool:
        """Whether calls may have to be done again."""
        return self.budget_bytes not in (None, UNLIMITED)

    def want(self, wanted: Wanted) -> None:
        """Note that an array's contents must stay available."""
        account = self.ledger.open(wanted.array)
        if not self.is_over:
            account.wants.add(wanted)

    def save_all(self, array: Storage) -> None:
        """Save what Python is about to overwrite."""
        self.save(array, None)
        if self.budget_bytes is not None:
            self.rewritten[id(array)] = array

    def take_rewritten(self) -> list[State]:
        """What Python wrote since this was last asked, as a step; in limited memory only."""
        if not self.rewritten:
            return []
        found = State(self.rewritten.values())
        self.rewritten.clear()
        self.count(found.size_bytes)
        return [found]

    def save(self, array: Storage, box: Box | None) -> None:
        """Copy an array for those that want what stands in a part of it (None: anywhere)."""
        is_result = self.is_reversing and array.is_gradient
        if self.budget_bytes is not None and id(array) not in self.start.copies and not is_result:
            self.start.keep(array)
        wants = self.ledger.open(array).wants
        hit = wants.pop_meeting(box)
        found: dict[int, list[Wanted]] = {}
        for w in hit:
            found.setdefault(id(w.array), []).append(w)
        try:
            for those in found.values():  # who want the array, or one component of it
                self.save_for(those)
        except DeviceError:  # nothing is overwritten
            for w in hit:
                wants.add(w)
            raise

    def save_for(self, those: list[Wanted]) -> None:
        """Copy an array for those that want it. Raises DeviceError."""
        save = Save([w.box for w in those], [(w.holder.position, w.name) for w in those])
        self.saves.append(save)
        copy = those[0].copy or copy_of(those[0].array, save.boxes, self.saved_bytes)
        self.count(copy.size_bytes)
        for w in those:
            w.holder.memory[w.name] = copy

    def count(self, size_bytes: int) -> None:
        """Count what is saved; past the budget, give up keeping everything."""
        self.saved_bytes += size_bytes
        budget = None if self.is_reversing else self.budget_bytes
        if budget is not None and self.saved_bytes > budget:
            self.is_over = True
            for account in self.ledger.accounts.values():
                account.wants = Wants()

    def close(self) -> None:
        """Let go of what was kept."""
        self.start = State()
