"""Checkpointing: gradients in limited memory. A few states are saved; the calls between them are
recomputed.

A state is a copy of every array that calls or Python write inside the tape. `split_at` is the
schedule: the position of the next checkpoint. Source: Griewank, Walther, "Algorithm 799: revolve",
2000.

    >>> split_at(10, 2)        # ten calls, two free slots: checkpoint before the fifth call
    4
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import comb

from vkchi.errors import ArgumentError, KernelRuntimeError
from vkchi.progress import Bar
from vkchi.tape.log import State, TapeStep, restore_array
from vkchi.tape.snapshots import UNITS, TapeReport


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
