"""Gradients of one's own must not read what was overwritten since the call that they belong to.

A tape cannot know what such a gradient will read, so it does not keep it. It notes what is written
after such a call; when the call's gradient runs, reading it is refused, unless the gradient has put
something there before: it recomputes what it needs.

Owns: `MutationLog`, of one tape. Must not know: how gradients are built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from vkchi.analysis.boxes import Box, is_inside, may_meet
from vkchi.errors import GradientError
from vkchi.fields.elements import Access
from vkchi.fields.storage import Storage
from vkchi.launch import Plan
from vkchi.span import Span, user_span
from vkchi.tape import facts
from vkchi.tape.calls import describe_call, numbers_of
from vkchi.tuples import NamedTuple


class Written(NamedTuple):
    """When a part of an array was overwritten, and by whom; `time` is how many calls with gradients
    of their own had ended by then."""

    time: int
    who: str


class MutationLog:
    """What was written when. `since` is the time after the call whose gradient runs now."""

    def __init__(self) -> None:
        self.time = 0
        self.writes: dict[int, dict[Box, Written]] = {}  # by array, the last one to a part
        self.arrays: dict[int, Storage] = {}  # so that their ids stay theirs
        self.since: int | None = None
        self.reader = ""
        self.restored: set[int] = set()

    def end_call(self) -> int:
        """A call with a gradient of its own ended; the time now."""
        self.time += 1
        return self.time

    def note(self, array: Storage, box: Box, who: str) -> None:
        """A part of an array is overwritten."""
        array = array.whole
        if self.since is not None:
            self.restored.add(id(array))
        elif self.time and array not in array.runtime.gradients:
            self.arrays[id(array)] = array
            self.writes.setdefault(id(array), {})[box] = Written(self.time, who)

    @contextmanager
    def reading(self, since: int, reader: str) -> Iterator[None]:
        """While the gradient runs of a call that ended at a time."""
        self.since, self.reader, self.restored = since, reader, set()
        try:
            yield
        finally:
            self.since = None

    def check(
        self, name: str, array: Storage, box: Box,
        span_of: Callable[[], Span | None] = lambda: None,
    ) -> None:  # fmt: skip
        """Raises GradientError if a part that is read now was overwritten since: where `span_of`
        says; where it does not know, by the line where Python stands."""
        key = id(array.whole)
        if self.since is None or key in self.restored:
            return
        for part, written in self.writes.get(key, {}).items():
            if written.time >= self.since and may_meet(part, box):
                raise GradientError(
                    f"the gradient of {self.reader}() reads {name}, which {written.who} has "
                    "overwritten since: it is not what the call found", span_of() or user_span(),
                    help="keep what it needs in an array of its own, or let the gradient compute "
                    "it again before it reads it",
                )  # fmt: skip

    def note_launch(
        self, name: str, plan: Plan, args: tuple[Any, ...], arrays: Mapping[str, Storage]
    ) -> dict[str, Box]:
        """A kernel that is not recorded reads and writes parts of arrays; those it writes."""
        case = facts.case_of(numbers_of(plan, args), arrays)
        read = facts.touched(plan, "loads", case) if self.since is not None else {}
        renewed = partial(is_renewed, name, plan, args)
        self.check_all(partial(first_load, plan), read, arrays, renewed)
        boxes = facts.touched(plan, "writes", case)
        for key in boxes.keys() & arrays.keys():
            self.note(arrays[key], boxes[key], f"{name}()")
        return boxes

    def check_all(
        self,
        span_of: Callable[[str], Span | None],
        boxes: Mapping[str, Box],
        arrays: Mapping[str, Storage],
        is_renewed: Callable[[str], bool],
    ) -> None:
        """Raises GradientError if something was overwritten of what is read now, in these boxes,
        but for arrays where the reader puts it first."""
        if self.since is None:
            return
        for name, box in boxes.items():
            if name in arrays:
                try:
                    self.check(f"`{name}`", arrays[name], box, partial(span_of, name))
                except GradientError:
                    if not is_renewed(name):
                        raise

    def note_access(self, array: Storage, access: Access) -> None:
        """Python reads or writes."""
        axes = len(array.shape)
        box: Box = (None,) * axes if access.at is None else tuple((k, k) for k in access.at[:axes])
        if access.kind == "read":
            self.check(repr(array), array, box)
        else:
            self.note(array, box, "Python")


def first_load(plan: Plan, name: str) -> Span | None:
    """Where a kernel first reads an array."""
    from vkchi.tape.questions import footprint  # for an error

    return footprint(plan, "loads").span_of(name)


def is_renewed(name: str, plan: Plan, args: tuple[Any, ...], key: str) -> bool:
    """Whether a launch reads of an array only what it has stored there itself."""
    from vkchi.tape.staleness import find_stale

    call = describe_call(name, plan, args)
    both = (facts.touched(plan, kinds, call.case) for kinds in ("loads", "writes"))
    read, written = (boxes.get(key) for boxes in both)
    if plan.draws or read is None or written is None or not is_inside(read, written):
        return False
    return find_stale(call, None, {key: written}, frozenset()) is None
