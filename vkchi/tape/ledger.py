"""What a recording knows of arrays: an account for each that was touched in a way that matters.

Owns: `Ledger`, `Account`, and what stands in one. Whoever refuses something asks accounts, and
keeps nothing by array itself:

    what stands there   that means                                     who asks
    escapes             derivatives that its place cannot hold         `escapes`
    held, reads         derivatives; what of them Python has read      `clobbers`
    loss                such were overwritten with something unknown   `clobbers`
    fills, puts         constants, which may be inputs                 `constants`
    writes              what was written since a call                  `mutation_log`
    wants               contents that gradients will read              `snapshots`
    flags               what was read, element by element              `validation`
    version             whether anything was written since             `races.finder`

An array with an account tells the recording before Python reads it. Must not know: kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from vkchi.analysis.boxes import Box, may_meet
from vkchi.errors import GradientError
from vkchi.fields.elements import Access
from vkchi.fields.storage import Storage
from vkchi.span import Span, user_span
from vkchi.tuples import NamedTuple

Index = tuple[int, ...]
Note = tuple[str, Span | None]


class Fill:
    """Numbers that Python puts into all of an array with a gradient inside a tape: an input of the
    program, or a constant of it? They are an input, and the array's gradient is the derivative by
    them, as long as it does not get lost. Where it would, in an array without gradient, they are
    taken for constants: so a solver may begin with `x.fill(0)`. Then the array's gradient is not
    known, and reading it is an error."""

    def __init__(self, array: Storage) -> None:
        self.array, self.span = array, user_span()
        self.lost: tuple[Note, ...] = ()

    def settle(self, lost: tuple[Note, ...]) -> None:
        """It is a constant: the derivative by it gets lost, as these notes say."""
        self.lost = self.lost or lost

    def forbid(self, gradient: Storage) -> None:
        """See to it that nobody takes what stands in the array's gradient for one."""
        gradient.fill(math.nan)
        gradient.watch = self.on_access

    def on_access(self, gradient: Storage, access: Access) -> None:
        """Python is about to access the gradient. Raises GradientError if it reads it."""
        if access.kind == "read" or access.is_sum:
            raise GradientError(
                f"the gradient of {self.array!r} is not known: Python put numbers into it inside "
                "the tape, which were taken for constants, for the derivative by them gets lost",
                user_span(), notes=(("Python put them there", self.span), *self.lost),
                help="put them there before the tape: then an error says what needs a gradient",
            )  # fmt: skip
        if access.at is None:
            gradient.watch = None


Fills = frozenset[Fill]


class Escape(NamedTuple):
    """A part of an array without gradient that holds something with a derivative, or the bits of
    such values; who put it there, and the ways that it went since, outside of kernels. Of an array
    in host memory it is the numpy view, and all of it. With `fills`, the derivative is by what
    Python put into arrays, and by nothing else."""

    array: Any
    name: str
    origin: Note
    box: Box
    is_bits: bool = False
    ways: tuple[Note, ...] = ()
    fills: Fills = frozenset()

    @property
    def is_settled(self) -> bool:
        """Whether it holds a constant, as is known now."""
        return bool(self.fills) and all(fill.lost for fill in self.fills)


class Held(NamedTuple):
    """A part of an array that holds values with a derivative, who put them there, and where."""

    name: str
    who: str
    span: Span | None
    box: Box

    @property
    def origin(self) -> Note:
        """What errors say of it."""
        return f"{self.who} puts a value with a derivative there", self.span


class Loss(NamedTuple):
    """What overwrote a part of an array with something unknown, and the user's line that did."""

    held: Held
    who: str
    span: Span | None


class Written(NamedTuple):
    """When a part of an array was overwritten, and by whom; `time` is how many calls with gradients
    of their own had ended by then."""

    time: int
    who: str


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


class Account:
    """What is known of one array, which it keeps alive. `version` counts what was written to it;
    `fills`: it holds constants, provided that these are; `reads` are indices, or None for all, that
    Python has read where derivatives are; `puts` those of elements that it has written."""

    def __init__(self, array: Storage) -> None:
        self.array, self.version = array, 0
        self.is_used = self.is_written = False  # by kernels
        self.escapes: dict[tuple[Box, Fills], Escape] = {}
        self.held: dict[Box, Held] = {}
        self.loss: Loss | None = None
        self.fills: Fills | None = None
        self.reads: set[Index | None] = set()
        self.puts: set[Index] = set()
        self.writes: dict[Box, Written] = {}
        self.wants = Wants()
        self.flags: Storage | None = None

    def holds(self, at: Index | None = None) -> Held | None:
        """What it holds with a derivative, at an index or anywhere."""
        box = box_at(self.array, at)
        return next((held for held in self.held.values() if may_meet(held.box, box)), None)

    def change(self, *, is_whole: bool) -> None:
        """Something else is about to stand there; in all of it, for all that Python knows."""
        self.version += 1
        if is_whole:
            self.array.overwritten += 1  # single elements that were read are refused anyway

    def forget_constants(self) -> None:
        """Something unknown may be put there."""
        self.fills = None
        if not self.escapes:
            self.puts.clear()

    def note_read(self, at: Index | None, *, has_own: bool) -> None:
        """Python reads what has a derivative, perhaps; or who has a gradient of its own does."""
        at = None if at is None else at[: len(self.array.shape)]
        if self.escapes or (not has_own and self.holds(at)):
            self.reads.add(at)


class Ledger:
    """The accounts of one recording, which is `told` what Python does to their arrays."""

    def __init__(self, told: Callable[[Storage, Access], None]) -> None:
        self.told = told
        self.accounts: dict[int, Account] = {}

    def find(self, array: Storage) -> Account | None:
        """That of an array, or of the one that it is a component of, if there is one."""
        return self.accounts.get(id(array.whole))

    def open(self, array: Storage) -> Account:
        """The same; a new one if there is none."""
        array = array.whole
        found = self.accounts.get(id(array))
        if found is None:
            found = self.accounts[id(array)] = Account(array)
            array.watch = self.told
        return found

    def close(self) -> None:
        """Be told nothing any more."""
        for account in self.accounts.values():
            if account.array.watch == self.told:
                account.array.watch = None
        self.accounts.clear()


def box_at(array: Storage, at: Index | None = None) -> Box:
    """The part of an array that an index, perhaps of a component, leads to, or (None) all of it."""
    axes = len(array.shape)
    return (None,) * axes if at is None else tuple([(k, k) for k in at[:axes]])


def point_of(box: Box) -> int | None:
    """The one index of the first axis, if it is one."""
    first = box[0] if box else None
    return first[0] if first is not None and first[0] == first[1] else None
