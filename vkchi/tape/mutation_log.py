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
from vkchi.tape.ledger import Account, Ledger, Written, box_at


class MutationLog:
    """What was written when. `since` is the time after the call whose gradient runs now."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.time = ledger, 0
        self.since: int | None = None
        self.reader = ""
        self.restored: set[Account] = set()

    def end_call(self) -> int:
        """A call with a gradient of its own ended; the time now."""
        self.time += 1
        return self.time

    def note(self, array: Storage, box: Box, who: str) -> None:
        """A part of an array is overwritten."""
        if not self.time:
            return
        account = self.ledger.open(array)
        if self.since is not None:
            self.restored.add(account)
        elif account.array not in array.runtime.gradients:
            account.writes[box] = Written(self.time, who)

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
        account = self.ledger.find(array)
        if self.since is None or account is None or account in self.restored:
            return
        for part, written in account.writes.items():
            if written.time >= self.since and may_meet(part, box):
                raise GradientError(
                    f"the gradient of {self.reader}() reads {name}, which {written.who} has "
                    "overwritten since: it is not what the call found", span_of() or user_span(),
                    help="keep what it needs in an array of its own, or let the gradient compute "
                    "it again before it reads it",
                )  # fmt: skip

    def check_launch(
        self, name: str, plan: Plan, args: tuple[Any, ...], arrays: Mapping[str, Storage]
    ) -> dict[str, Box]:
        """A kernel that is not recorded reads parts of arrays; what parts it writes."""
        case = facts.case_of(numbers_of(plan, args), arrays)
        read = facts.touched(plan, "loads", case) if self.since is not None else {}
        renewed = partial(is_renewed, name, plan, args)
        self.check_all(partial(first_load, plan), read, arrays, renewed)
        return facts.touched(plan, "writes", case)

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
        box = box_at(array, access.at)
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
