"""Which of the accesses that may meet do so with the numbers and shapes of a call, as far as their
indices and the ranges of these tell.

Owns: `Feasible`, of one Func. Must not know: gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from vkchi.analysis.access import Survey
from vkchi.analysis.footprint import Box, Footprint, Shaped, element_of, joined, may_meet
from vkchi.analysis.intervals import Intervals
from vkchi.ir.control import axes_of
from vkchi.ir.core import Func, Op, Param
from vkchi.races.conflicts import Conflict


class Feasible:
    """The answers for one Func and these conflicts."""

    def __init__(self, fn: Func, conflicts: Sequence[Conflict]) -> None:
        self.conflicts, self.footprint = conflicts, Footprint(fn, (), ())

    def find(self, numbers: Mapping[str, int], arrays: Mapping[str, Shaped]) -> tuple[int, ...]:
        """The numbers, from 0, of the conflicts that may be in a call."""
        if not self.conflicts:
            return ()
        shapes = tuple([(name, array.shape) for name, array in arrays.items()])
        ranges = self.footprint.ranges(numbers, shapes)
        return tuple(k for k, m in enumerate(self.conflicts) if is_feasible(m, ranges))


def is_feasible(m: Conflict, ranges: Intervals) -> bool:
    """Whether the loop may have two iterations, the parts of memory meet that both accesses may
    touch, and two iterations may come to one element."""
    ends = [(ranges.of(axis.begin), ranges.of(axis.end)) for axis in axes_of(m.loop)]
    lengths = [e[1] - b[0] if b is not None and e is not None else None for b, e in ends]
    if all(n is not None and n <= 1 for n in lengths):
        return False
    if not isinstance(m.root, Param):
        return True
    if not may_meet(box_of(m.first, ranges), box_of(m.second, ranges)):
        return False
    if len(m.first) > 1 or len(m.second) > 1:
        return True
    survey = Survey(m.loop.regions[0].ops, m.loop, ranges)
    return not survey.never_meet(m.root, *(element_of(op.args[0]) for op in (*m.first, *m.second)))


def box_of(ops: Sequence[Op], ranges: Intervals) -> Box:
    """Which part of their array ops may touch."""
    elements = dict.fromkeys(element_of(op.args[0]) for op in ops)
    boxes = [tuple(map(ranges.of, element.args[1:])) for element in elements]
    return tuple(reduce(joined, axis) for axis in zip(*boxes))
