"""The memory of a tape: snapshots by copy-on-write, and checkpoints if they exceed a limit.

A recorded call has a `fields.array_versions.Read` of each part of an array that its gradient reads.
Before a launch or Python writes to such a part, the array is copied once for all reads that the
write affects. If possible, only their rows are copied.

With a memory budget the state at the start is saved, too. If the copies exceed the budget, the
copies for calls are dropped. `CheckpointReplay` then saves a few states, and recomputes the calls
between them. A state is a copy of every array that calls or Python write inside the tape.
`split_at` is the schedule: the position of the next checkpoint. Source: Griewank, Walther,
"Algorithm 799: revolve", 2000.

    >>> split_at(10, 2)        # ten calls, two free slots: checkpoint before the fifth call
    4
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from math import comb

from vkchi.analysis.memory.boxes import Box
from vkchi.errors import ArgumentError, DeviceError, KernelRuntimeError
from vkchi.fields.array_versions import Read, copy_boxes
from vkchi.fields.storage import Storage
from vkchi.tape.ledger import Account, Index, Ledger
from vkchi.tape.log import ElementWrites, State, TapeStep, restore_array
from vkchi.tuples import NamedTuple

UNLIMITED = 1 << 62  # bytes; saves everything, and the state at the start
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def format_bytes(size_bytes: int) -> str:
    unit = next((u for u in ("GiB", "MiB", "KiB") if size_bytes >= UNITS[u]), "")
    return f"{size_bytes / UNITS[unit]:.1f} {unit}" if unit else f"{size_bytes} bytes"


def parse_bytes(memory: int | str) -> int:
    """Parse a size in bytes: an integer, or a string such as "512MiB". Raises ArgumentError."""
    if isinstance(memory, int) and not isinstance(memory, bool) and memory > 0:
        return memory
    parts = re.fullmatch(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([A-Za-z]*)\s*", str(memory))
    unit = UNITS.get(parts[2] or "B") if parts else None
    found = int(float(parts[1]) * unit) if parts and unit else 0
    if found <= 0:
        raise ArgumentError(f'memory is a number of bytes or text such as "512MiB", not {memory!r}')
    return found


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
    - `copied`: without a memory budget, the copies made so far, and their reads.
    - `ready`: copies that are there already, in the order in which they will be asked for.
    - `by_elements`: steps repeat writes of Python to single elements, not to whole arrays.
    - `rewritten`: arrays that Python has written; with `by_elements`, `before` is their state
      before these writes, `cuts` are elements in which a constant replaced a derivative, and `sums`
      those to which one was added.
    """

    by_elements = False

    def __init__(self, budget_bytes: int | None, ledger: Ledger) -> None:
        self.budget_bytes, self.ledger = budget_bytes, ledger
        self.start = State()
        self.rewritten: dict[int, Storage] = {}
        self.before = State()
        self.cuts: list[tuple[Storage, Index | None]] = []
        self.sums: list[tuple[Storage, Index | None]] = []
        self.copied: list[tuple[list[Read], Storage]] = []
        self.ready: deque[Storage] = deque()
        self.saved_bytes = 0
        self.is_over = self.is_reversing = False

    @property
    def is_limited(self) -> bool:
        return self.budget_bytes not in (None, UNLIMITED)

    def want(self, account: Account, array: Storage, box: Box, point: int | None) -> Read:
        """Return a read of a part of an array or of a component; `point` is `point_of(box)`.

        Once the budget is exceeded, the read follows the contents of the array.
        """
        return Read(array, box) if self.is_over else account.history.want(array, box, point)

    def save_all(self, account: Account) -> None:
        """Save an array before Python overwrites it.

        With a memory budget, note it for `take_rewritten`, too.
        """
        self.save(account, ())
        if self.budget_bytes is not None:
            if self.by_elements and id(account.array) not in self.rewritten:
                self.before.keep(account.array)
            self.rewritten[id(account.array)] = account.array

    def take_rewritten(self) -> list[State]:
        """Return a snapshot of the arrays that Python has written since the last call of this, in a
        list.

        The list is empty if there are none, or without memory budget.
        """
        if not self.rewritten:
            return []
        found = State(self.rewritten.values())
        if self.by_elements:
            found = ElementWrites(self.before, self.cuts, self.sums)
            self.before, self.cuts, self.sums = State(), [], []
        self.rewritten.clear()
        self.count(found.size_bytes)
        return [found]

    def save(self, account: Account, box: Box) -> None:
        """Copy the reads that a write to a box of an array may change.

        With a memory budget, also save its initial contents, once. Raises DeviceError; the write
        then does not happen.
        """
        if self.budget_bytes is not None:
            array = account.array
            is_result = self.is_reversing and array.is_gradient
            if id(array) not in self.start.copies and not is_result:
                self.start.keep(array)
        if account.history.reads.groups:
            account.history.save(box, self.copy)
        if self.budget_bytes is not None:
            self.count(0)

    def copy(self, reads: list[Read]) -> Storage:
        """Copy the parts of one array, and count the bytes. Raises DeviceError."""
        try:
            if self.ready:
                copy = self.ready.popleft()
            else:
                copy = copy_boxes(reads[0].array, [read.box for read in reads])
        except DeviceError as e:
            raise DeviceError(
                f"{e}; the tape has saved {self.saved_bytes} bytes of arrays that kernels "
                'overwrite: with ti.ad.Tape(memory="512MiB"), say, it saves less and calls kernels '
                "again"
            ) from None
        self.saved_bytes += copy.size_bytes
        if self.budget_bytes is None:
            self.copied.append((reads, copy))
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


class CheckpointReplay:
    """Reverse sweep over steps with checkpointing; `start` is the state before the first step.

    The steps hold `held_bytes` of the memory budget themselves.
    """

    def __init__(self, steps: Sequence[TapeStep], start: State, held_bytes: int = 0) -> None:
        self.steps, self.held_bytes, self.start = steps, held_bytes, start
        self.arrays, self.state_bytes = start.arrays, start.size_bytes
        self.repeated = self.kept = self.most = 0

    def run(self, budget_bytes: int) -> TapeReport:
        """Run all gradients with as many states between start and end as the budget allows.

        Returns the tape's report. Afterwards the arrays hold their current contents again, except
        for writes by custom gradients. Raises KernelRuntimeError if the budget without `held_bytes`
        is smaller than two states.
        """
        slots = (budget_bytes - self.held_bytes) // max(1, self.state_bytes) - 2
        if slots < 0:
            held = self.held_bytes
            beside = f", and {held} bytes that depend on the order of iterations" if held else ""
            raise KernelRuntimeError(
                f"Tape(memory=...) must hold two states of {self.state_bytes} bytes here{beside}, "
                f"{2 * self.state_bytes + held} bytes; {budget_bytes} are given"
            )
        self.end = State(self.arrays)
        try:
            self.start.repeat()
            from vkchi.progress import Bar  # few tapes repeat calls

            with Bar("gradients of calls", len(self.steps)) as self.bar:
                self.reverse(0, len(self.steps), slots, self.start)
        finally:
            self.end.repeat()
        states = 2 + self.most
        saved_bytes = states * self.state_bytes + self.held_bytes
        return TapeReport(len(self.steps), self.repeated, states, self.state_bytes, saved_bytes)

    def advance(self, first: int, last: int) -> None:
        for step in self.steps[first:last]:
            step.repeat()
        self.repeated += last - first

    def differentiate(self, step: TapeStep) -> None:
        """Run the gradient of one step.

        A custom gradient (`needs_end`) works on the arrays as they are at the end of the tape. The
        caller restores the arrays.
        """
        self.bar.advance()
        if not step.needs_end:
            step.run()
            return
        self.end.repeat()
        step.run()
        self.end = State(self.start.arrays)
        for array in self.start.arrays[len(self.arrays) :]:  # only custom gradients write these
            restore_array(array, self.start.copies[id(array)][1])

    def reverse(self, first: int, last: int, slots: int, found: State) -> None:
        while last > first:
            if last - first == 1:
                self.differentiate(self.steps[first])
                return
            if slots == 0:
                self.advance(first, last - 1)
                self.differentiate(self.steps[last - 1])
                last -= 1
            else:
                middle = first + split_at(last - first, slots)
                self.advance(first, middle)
                state = State(self.arrays)
                self.kept += 1
                self.most = max(self.most, self.kept)
                self.reverse(middle, last, slots - 1, state)
                self.kept -= 1
                last = middle
            found.repeat()


def split_at(length: int, slots: int) -> int:
    """Number of steps before the next checkpoint, for `length` steps and `slots` free slots.

    The result minimizes the maximum number of times that any step is repeated.
    """
    rounds, kept = 1, slots + 1  # includes the state at the start
    while comb(kept + rounds, kept) < length:
        rounds += 1
    return max(1, min(length - 1, length - comb(kept - 1 + rounds, kept - 1)))
