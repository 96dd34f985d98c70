"""What a tape keeps of memory: copies of arrays, made when something is about to overwrite them.

Owns: `Snapshots`. A recorded call wants some parts of arrays to stay as it found them. Before a
launch or Python writes to such a part, the array is copied, once, for all that want it; only the
rows in question, where they are known. In limited memory the state at the start is kept besides;
when the copies outgrow the budget, all others are dropped, for the calls will be done again
(`checkpoints`).
Must not know: kernels, gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from vkchi.analysis.boxes import Box, may_meet, rows_of
from vkchi.errors import DeviceError
from vkchi.fields.elements import Access
from vkchi.fields.storage import Storage
from vkchi.tape.log import State
from vkchi.tuples import NamedTuple

UNLIMITED = 1 << 62  # bytes: everything is kept, and the state at the start besides


class Holder(Protocol):
    """A recorded call: the arrays it found by parameter name, live ones or copies."""

    memory: dict[str, Storage]


class Wanted(NamedTuple):
    """That a call's gradient will read a part of an array, under a parameter's name."""

    holder: Holder
    name: str
    box: Box


class Wants:
    """Who wants which parts of one array. Those that want one index of the first axis, as a step of
    time-indexed arrays does, are found by it."""

    def __init__(self) -> None:
        self.at: dict[int, list[Wanted]] = {}
        self.others: list[Wanted] = []

    def add(self, wanted: Wanted) -> None:
        """One more."""
        place = point_of(wanted.box)
        (self.others if place is None else self.at.setdefault(place, [])).append(wanted)

    def take(self, box: Box | None) -> list[Wanted]:
        """Those whose part may meet the box (None: any part); they are done with."""
        place = None if box is None else point_of(box)
        if place is not None:
            lists = [self.at.get(place, []), self.others]
        else:
            lists = [*self.at.values(), self.others]
        hit: list[Wanted] = []
        for found in lists:
            rest: list[Wanted] = []
            for w in found:
                (hit if box is None or may_meet(w.box, box) else rest).append(w)
            found[:] = rest
        return hit


def point_of(box: Box) -> int | None:
    """The one index of the first axis, if it is one."""
    first = box[0] if box else None
    return first[0] if first is not None and first[0] == first[1] else None


class Snapshots:
    """Copies on write. `start` is filled in limited memory: every array that was written, with
    what it held when the tape began. When gradients run, `is_reversing`, nothing is given up any
    more."""

    def __init__(
        self, budget_bytes: int | None, listener: Callable[[Storage, Access], None] | None = None
    ) -> None:
        self.budget_bytes, self.listener = budget_bytes, listener
        self.wanted: dict[int, Wants] = {}
        self.watched: dict[int, Storage] = {}
        self.start = State()
        self.rewritten: dict[int, Storage] = {}
        self.saved_bytes = 0
        self.is_over = self.is_reversing = False

    @property
    def is_limited(self) -> bool:
        """Whether calls may have to be done again."""
        return self.budget_bytes not in (None, UNLIMITED)

    def watch(self, array: Storage) -> None:
        """Be told before Python reads or writes an array."""
        self.watched[id(array)] = array
        array.watch = self.on_access

    def want(self, wanted: Wanted) -> None:
        """Note that an array's contents must stay available."""
        array = wanted.holder.memory[wanted.name].whole
        self.watch(array)
        if not self.is_over:
            self.wanted.setdefault(id(array), Wants()).add(wanted)

    def protect(
        self,
        written: set[str],
        arrays: Mapping[str, Storage],
        boxes: Mapping[str, Box] | None = None,
    ) -> None:
        """Save what a launch is about to overwrite; without `boxes` it may be anything."""
        for name in sorted(written & arrays.keys()):
            self.save(arrays[name].whole, None if boxes is None else boxes.get(name))
        if self.budget_bytes is not None:
            for array in arrays.values():
                self.watch(array.whole)

    def on_access(self, array: Storage, access: Access) -> None:
        """Save what Python is about to overwrite."""
        if self.listener is not None:
            self.listener(array, access)
        array = array.whole
        if access.kind == "read":
            return
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
            self.start.take(array)
        wants = self.wanted.get(id(array))
        hit = wants.take(box) if wants is not None else []
        found: dict[int, list[Wanted]] = {}
        for w in hit:
            found.setdefault(id(w.holder.memory[w.name]), []).append(w)
        for those in found.values():  # who want the array, or one component of it
            copy = self.copy(those[0].holder.memory[those[0].name], [w.box for w in those])
            self.count(copy.size_bytes)
            for w in those:
                w.holder.memory[w.name] = copy

    def copy(self, array: Storage, boxes: list[Box]) -> Storage:
        """A copy of these parts of an array, or of more. Raises DeviceError where there is no
        memory for it."""
        rows = rows_of(boxes, array.shape) if array.row_numbers is not None else None
        try:
            return array.copied() if rows is None else array.copied_rows(*rows)
        except DeviceError as e:
            raise DeviceError(
                f"{e}; the tape has saved {self.saved_bytes} bytes of arrays that kernels "
                'overwrite: with ti.ad.Tape(memory="512MiB"), say, it saves less and calls kernels '
                "again"
            ) from None

    def count(self, size_bytes: int) -> None:
        """Count what is saved; past the budget, give up keeping everything."""
        self.saved_bytes += size_bytes
        budget = None if self.is_reversing else self.budget_bytes
        if budget is not None and self.saved_bytes > budget:
            self.is_over = True
            self.wanted.clear()

    def close(self) -> None:
        """Let go of all arrays."""
        for array in self.watched.values():
            array.watch = None
        self.watched.clear()
        self.wanted.clear()
        self.start = State()
