"""Which of the accesses that may meet do so with the numbers and shapes of a call, as far as the
ranges of their indices tell.

Owns: `Nearby`, of one Func. Must not know: gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vkchi.autodiff.regions import Box, Footprint, Ranges, Shaped, element_of, may_meet
from vkchi.ir.core import Func, Op, Param
from vkchi.races.meetings import Meeting


class Nearby:
    """The answers for one Func and these meetings."""

    def __init__(self, fn: Func, meetings: Sequence[Meeting]) -> None:
        self.meetings, self.footprint = meetings, Footprint(fn, (), ())

    def find(self, numbers: Mapping[str, int], arrays: Mapping[str, Shaped]) -> tuple[int, ...]:
        """The numbers, from 0, of the meetings that may be in a call."""
        if not self.meetings:
            return ()
        shapes = tuple([(name, array.shape) for name, array in arrays.items()])
        ranges = self.footprint.ranges(numbers, shapes)
        return tuple(k for k, m in enumerate(self.meetings) if is_near(m, ranges))


def is_near(m: Meeting, ranges: Ranges) -> bool:
    """Whether the loop may have two iterations, and the parts of memory meet that both accesses may
    touch."""
    begin, end = (ranges.of(v) for v in m.loop.args[:2])
    if begin is not None and end is not None and end[1] - begin[0] <= 1:
        return False
    if not isinstance(m.root, Param):
        return True
    return may_meet(*(box_of(op, ranges) for op in (m.first, m.second)))


def box_of(op: Op, ranges: Ranges) -> Box:
    """Which part of its array an op may touch."""
    return tuple([ranges.of(v) for v in element_of(op.args[0]).args[1:]])
