"""Gradients of one's own must not read what was overwritten since the call that they belong to.

A tape cannot know what such a gradient will read, so it does not keep it. It notes what is written
after such a call; when the call's gradient runs, reading it is refused, unless the gradient has put
something there before: it recomputes what it needs. Of memory of the host, to which others write
without telling, it remembers what the call left where its kernels had to do with it.

Owns: `MutationLog`, of one tape. Must not know: how gradients are built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from vkchi.analysis.boxes import (
    Box,
    add_box,
    full_box,
    is_covered,
    is_inside,
    may_meet,
    meeting,
    within,
)
from vkchi.errors import GradientError
from vkchi.fields.elements import Access
from vkchi.fields.storage import Storage
from vkchi.interop import host
from vkchi.launch import Plan
from vkchi.span import Span, user_span
from vkchi.tape.calls import Given, numbers_of
from vkchi.tape.derived import case_of, facts
from vkchi.tape.ledger import Account, Holding, HostAccount, Ledger, Written, box_at
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.tape.calls import Call
    from vkchi.tape.ledger import Memory, Values

    Left = tuple[Values, Values]  # a numpy array, and what stood there


class Stale(NamedTuple):
    """A numpy array that others have changed since a call, what stood there `then`, when its
    gradient began, and `where` that was something else than the call had left."""

    view: Values
    then: Values
    where: Values

    def stands_in(self, memory: Values) -> bool:
        """Whether any of that is still there, in the part that a numpy array has in common."""
        starts = host.addresses(self.view)[self.where & ~host.changes(self.then, self.view)]
        start, end = host.bounds(memory)
        return bool(((starts < end) & (starts + self.view.itemsize > start)).any())


class MutationLog:
    """What was written when. `since` is the time after the call whose gradient runs now."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.time = ledger, 0
        self.since: int | None = None
        self.reader = ""
        self.restored: dict[Holding, list[Box]] = {}  # by the gradient that runs
        self.left: Sequence[Left] = []  # by the call whose gradient runs
        self.stale: list[Stale] = []  # what is something else when the gradient begins

    def end_call(self) -> int:
        """A call with a gradient of its own ended; the time now."""
        self.time += 1
        return self.time

    def note(self, memory: Memory, box: Box, who: str) -> None:
        """A part of an array, or a numpy array, is overwritten."""
        if not self.time:
            return
        account = self.ledger.open(memory)
        if self.since is not None:
            self.restore(account, box)
        elif not (isinstance(account, Account) and account.array.is_gradient):
            account.writes[box] = Written(self.time, who)

    def note_views(self, launch: Call | Given) -> None:
        """A launch overwrites what it writes of the host's memory."""
        for name in launch.plan.written & launch.hosts.keys():
            self.note(launch.hosts[name], (), f"{launch.name}()")

    @contextmanager
    def reading(self, since: int, reader: str, left: Sequence[Left]) -> Iterator[None]:
        """While the gradient runs of a call that ended at a time, and `left` this."""
        self.since, self.reader, self.restored = since, reader, {}
        self.left = left
        changed = [(view, host.changes(known, view)) for view, known in left]
        self.stale = [Stale(view, view.copy(), where) for view, where in changed if where.any()]
        try:
            yield
        finally:
            self.since = None

    def check(
        self, name: str, memory: Memory, box: Box,
        span_of: Callable[[], Span | None] = lambda: None,
    ) -> None:  # fmt: skip
        """Raises GradientError if a part that is read now was overwritten since: where `span_of`
        says; where it does not know, by the line where Python stands."""
        found = self.ledger.near(memory)
        if self.since is None or any(self.is_restored(one, memory) for one in found):
            return
        writes = [written for one in found for part, written in one.writes.items()
                  if written.time >= self.since and self.is_left(one, part, box)]  # fmt: skip
        is_gone = bool(writes) if isinstance(memory, Storage) else self.is_stale(memory, writes)
        if is_gone:
            who = writes[0].who if writes else "Python"
            raise GradientError(
                f"the gradient of {self.reader}() reads {name}, which {who} has overwritten "
                "since: it is not what the call found", span_of() or user_span(),
                help="keep what it needs in an array of its own, or let the gradient compute "
                "it again before it reads it",
            )  # fmt: skip

    def restore(self, account: Holding, box: Box) -> None:
        """The gradient puts something into a part of an array, or into a numpy array."""
        boxes = self.restored.setdefault(account, [])
        if isinstance(account, Account):
            add_box(boxes, within(box, full_of(account.array)))

    def is_restored(self, one: Holding, memory: Memory) -> bool:
        """Whether the gradient has put something all over what is read of the host's memory."""
        if one not in self.restored or not isinstance(one, HostAccount):
            return False
        return not isinstance(memory, Storage) and host.spans(one.memory, memory)

    def is_left(self, one: Holding, part: Box, box: Box) -> bool:
        """Whether something may be left, in what is read, of a part that was overwritten, where the
        gradient has put nothing."""
        if not may_meet(part, box) or not isinstance(one, Account):
            return may_meet(part, box)
        full = full_of(one.array)
        read = meeting(within(part, full), within(box, full))
        return read is not None and not is_covered(read, self.restored.get(one, ()), full)

    def is_stale(self, view: Values, writes: Sequence[Written]) -> bool:
        """Whether memory of the host holds what others have put there since: what stands there
        tells; of what the call had nothing to do with, these writes, if there are any."""
        near = [one for one in self.stale if host.may_overlap(one.view, view)]
        if any(one.stands_in(view) for one in near):
            return True
        return bool(writes) and not any(host.is_same_view(view, known) for known, _ in self.left)

    def check_launch(self, given: Given, arrays: Mapping[str, Storage]) -> dict[str, Box]:
        """A kernel that is not recorded reads parts of arrays; what parts it writes."""
        plan, case = given.plan, case_of(numbers_of(given.plan, given.args), arrays)
        read = facts.touched(plan, "loads", case) if self.since is not None else {}
        memory: dict[str, Memory] = {**arrays, **given.hosts}
        self.check_all(partial(first_load, plan), read, memory, partial(is_redefined, given))
        self.note_views(given)
        return facts.touched(plan, "writes", case)

    def check_all(
        self,
        span_of: Callable[[str], Span | None],
        boxes: Mapping[str, Box],
        arrays: Mapping[str, Memory],
        is_redefined: Callable[[str], bool],
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
                    if not is_redefined(name):
                        raise

    def note_access(self, array: Storage, access: Access) -> None:
        """Python reads or writes."""
        box = box_at(array, access.at)
        if access.kind == "read":
            self.check(repr(array), array, box)
        else:
            self.note(array, box, "Python")


def full_of(array: Storage) -> Box:
    """All of an array."""
    return full_box(array.shape, array.origin)


def first_load(plan: Plan, name: str) -> Span | None:
    """Where a kernel first reads an array."""
    from vkchi.tape.questions import footprint  # for an error

    return footprint(plan, "loads").span_of(name)


def is_redefined(given: Given, key: str) -> bool:
    """Whether a launch reads of an array only what it has stored there itself."""
    from vkchi.tape.staleness import find_stale

    call, plan = given.call, given.plan
    both = (facts.touched(plan, kinds, call.case) for kinds in ("loads", "writes"))
    read, written = (boxes.get(key) for boxes in both)
    if plan.draws or read is None or written is None or not is_inside(read, written):
        return False
    return find_stale(call, None, {key: written}, frozenset()) is None
