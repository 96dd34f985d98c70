"""Gradients of one's own must not read what was overwritten since the call that they belong to.

A tape cannot know what such a gradient will read, so it does not keep it. It notes what is written
after such a call; when the call's gradient runs, reading it is refused, unless the gradient has put
something there before: it recomputes what it needs.

Owns: `History`, of one tape. Must not know: how gradients are built.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from vkchi.autodiff.calls import HISTORY, whole
from vkchi.autodiff.primal import WRITES
from vkchi.autodiff.regions import Box, Footprint, may_meet
from vkchi.errors import GradientError
from vkchi.fields.storage import Access, Storage
from vkchi.launch import Plan
from vkchi.runtime import current
from vkchi.span import Span
from vkchi.types import Array


class Written(NamedTuple):
    """When a part of an array was overwritten, and by whom; `time` is how many calls with gradients
    of their own had ended by then."""

    time: int
    who: str


class History:
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
        array = whole(array)
        if self.since is not None:
            self.restored.add(id(array))
        elif self.time and array not in array.runtime.gradients:
            self.arrays[id(array)] = array
            self.writes.setdefault(id(array), {})[box] = Written(self.time, who)

    @contextmanager
    def reading(self, since: int, reader: str) -> Iterator[None]:
        """While the gradient runs of a call that ended at a time."""
        self.since, self.reader, self.restored = since, reader, set()
        kept = current().kept
        kept[HISTORY] = self
        try:
            yield
        finally:
            self.since = None
            del kept[HISTORY]

    def check(self, name: str, array: Storage, box: Box, span: Span | None) -> None:
        """Raises GradientError if a part that is read now was overwritten since."""
        key = id(whole(array))
        if self.since is None or key in self.restored:
            return
        for part, written in self.writes.get(key, {}).items():
            if written.time >= self.since and may_meet(part, box):
                raise GradientError(
                    f"the gradient of {self.reader}() reads `{name}`, which {written.who} has "
                    "overwritten since: it is not what the call found", span,
                    help="keep what it needs in an array of its own, or let the gradient compute "
                    "it again before it reads it",
                )  # fmt: skip

    def note_launch(
        self, plan: Plan, numbers: dict[str, int], arrays: Mapping[str, Storage], who: str
    ) -> dict[str, Box]:
        """A kernel that is not recorded reads and writes parts of arrays; those it writes."""
        reads, writes = footprints(plan)
        self.check_all(reads, numbers, arrays)
        boxes = writes.boxes(numbers, arrays)
        for name in boxes.keys() & arrays.keys():
            self.note(arrays[name], boxes[name], who)
        return boxes

    def check_all(
        self, reads: Footprint, numbers: dict[str, int], arrays: Mapping[str, Storage]
    ) -> None:
        """Raises GradientError if something was overwritten of what is read now."""
        if self.since is not None:
            for name, box in reads.boxes(numbers, arrays).items():
                if name in arrays:
                    self.check(name, arrays[name], box, reads.span_of(name))

    def note_access(self, array: Storage, access: Access) -> None:
        """Python reads or writes."""
        axes = len(array.shape)
        box: Box = (None,) * axes if access.at is None else tuple((k, k) for k in access.at[:axes])
        if access.kind == "read":
            self.check("an array", array, box, None)
        else:
            self.note(array, box, "Python")


def footprints(plan: Plan) -> tuple[Footprint, Footprint]:
    """What a kernel reads and writes of its arrays; found once per plan."""
    if "footprints" not in plan.derived:
        arrays = [p for p in plan.func.params if isinstance(p.type, Array)]
        kinds = (("load",), WRITES)
        plan.derived["footprints"] = tuple(Footprint(plan.func, arrays, k) for k in kinds)
    found: tuple[Footprint, Footprint] = plan.derived["footprints"]
    return found
