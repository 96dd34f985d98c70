"""Static work estimate: number of ops that a launch executes, weighted by trip counts.

Trip counts are `Count` expressions of launch arguments (`vkchi.target.shader`), or constants.
Unknown ones count as one: `while`, data-dependent bounds, and bounds that use an enclosing loop's
index. Both sides of a branch are counted.

    >>> work_of(fn)              # const 0; shape x [0]; parallel { 7 ops }; yield
    ((4, ('const', 1)), (7, ('dim', 'x', 0)))
    >>> known_work_of(fn.body)
    11
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from vkchi.analysis.values.host_numbers import (
    BoundedCount,
    combine_counts,
    constant_count,
    trips_of,
)
from vkchi.ir.control_ops import is_loop
from vkchi.ir.core import Func, Op, Region
from vkchi.target.shader import Count

Work = tuple[tuple[int, Count], ...]  # number of ops, executions
Trips = Callable[[Op], "BoundedCount | None"]  # trip count of a loop, if known


def work_of(fn: Func) -> Work:
    """Estimate for a launch: pairs (number of ops, execution count), one per distinct count."""
    found = work_in(fn.body, partial(trips_of, given=frozenset(fn.params)))
    return tuple([(ops, rounds) for rounds, ops in found.items()])


def known_work_of(region: Region) -> int:
    """Number of ops that a region executes. A loop without a constant trip count counts as one
    iteration."""
    return sum([ops * rounds[1] for rounds, ops in work_in(region, constant_trips).items()])


def constant_trips(loop: Op) -> BoundedCount | None:
    """The trip count of a loop, if constant, otherwise None."""
    trips = trips_of(loop, frozenset())
    return trips if trips is not None and trips.lo == trips.hi else None


def work_in(region: Region, trips: Trips) -> dict[Count, int]:
    """Map each execution count to the number of ops in a region that are executed so often."""
    found: dict[Count, int] = {}
    add_work(region, constant_count(1), trips, found)
    return found


def add_work(region: Region, rounds: BoundedCount, trips: Trips, found: dict[Count, int]) -> None:
    """Add the ops of a region that is executed `rounds` times to `found`."""
    found[rounds.expr] = found.get(rounds.expr, 0) + len(region.ops)
    for op in region.ops:
        if op.regions:
            inside = rounds_in(op, rounds, trips)
            for inner in op.regions:
                add_work(inner, inside, trips, found)


def rounds_in(op: Op, rounds: BoundedCount, trips: Trips) -> BoundedCount:
    known = trips(op) if is_loop(op) else None
    return rounds if known is None else combine_counts("mul", (rounds, known)) or rounds
