"""How much a Func does in a launch: its ops, each as often as the loops around it go round.

Owns: the estimate, as counts of a launch's numbers (`vkchi.target.shader`), or as a number where
constants alone are asked. Loops whose rounds are not known (`while`, bounds that data or an index
of a loop around tell) go round once, of branches all are done. Must not know: what an op costs,
devices.

    >>> work_of(fn)                        # parallel 0, shape x [0] { 7 ops }
    ((2, ('const', 1)), (7, ('dim', 'x', 0)))
    >>> known_work_of(fn.body)
    9
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from vkchi.analysis.host_numbers import Number, combine, constant, trips_of
from vkchi.ir.control import is_loop
from vkchi.ir.core import Func, Op, Region
from vkchi.target.shader import Count

Work = tuple[tuple[int, Count], ...]  # so many ops, so often
Trips = Callable[[Op], "Number | None"]  # how often a loop goes round, if that is known


def work_of(fn: Func) -> Work:
    """The ops of a launch."""
    found = work_in(fn.body, partial(trips_of, given=frozenset(fn.params)))
    return tuple([(ops, rounds) for rounds, ops in found.items()])


def known_work_of(region: Region) -> int:
    """The ops that a region does at least, of loops whose rounds are no constants one round."""
    return sum([ops * rounds[1] for rounds, ops in work_in(region, constant_trips).items()])


def constant_trips(loop: Op) -> Number | None:
    """How often a loop goes round, where that is a constant."""
    trips = trips_of(loop, frozenset())
    return trips if trips is not None and trips.lo == trips.hi else None


def work_in(region: Region, trips: Trips) -> dict[Count, int]:
    """The ops of a region, by how often they are done."""
    found: dict[Count, int] = {}
    add_work(region, constant(1), trips, found)
    return found


def add_work(region: Region, rounds: Number, trips: Trips, found: dict[Count, int]) -> None:
    """Add the ops of a region that runs so often to those found."""
    found[rounds.expr] = found.get(rounds.expr, 0) + len(region.ops)
    for op in region.ops:
        if op.regions:
            inside = rounds_in(op, rounds, trips)
            for inner in op.regions:
                add_work(inner, inside, trips, found)


def rounds_in(op: Op, rounds: Number, trips: Trips) -> Number:
    """How often the regions of an op run, which itself runs so often."""
    known = trips(op) if is_loop(op) else None
    return rounds if known is None else combine("mul", (rounds, known)) or rounds
