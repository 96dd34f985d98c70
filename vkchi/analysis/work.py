"""How much a Func does in a launch: its ops, each as often as the loops around it go round.

Owns: the estimate, as counts of a launch's numbers (`vkchi.target.shader`). Loops whose rounds the
host cannot compute (`while`, bounds that data or an index of a loop around tell) go round once, of
branches all are done. Must not know: what an op costs, devices.

    >>> work_of(fn)                        # parallel 0, shape x [0] { 7 ops }
    ((2, ('const', 1)), (7, ('dim', 'x', 0)))
"""

from __future__ import annotations

from vkchi.analysis.host_numbers import Number, combine, constant, trips_of
from vkchi.ir.control import is_loop
from vkchi.ir.core import Func, Op, Param, Region
from vkchi.target.shader import Count

Work = tuple[tuple[int, Count], ...]  # so many ops, so often


def work_of(fn: Func) -> Work:
    """The ops of a launch."""
    found: dict[Count, int] = {}
    add_work(fn.body, constant(1), frozenset(fn.params), found)
    return tuple([(ops, rounds) for rounds, ops in found.items()])


def add_work(
    region: Region, rounds: Number, given: frozenset[Param], found: dict[Count, int]
) -> None:
    """Add the ops of a region that runs so often to those found."""
    found[rounds.expr] = found.get(rounds.expr, 0) + len(region.ops)
    for op in region.ops:
        if op.regions:
            inside = rounds_in(op, rounds, given)
            for inner in op.regions:
                add_work(inner, inside, given, found)


def rounds_in(op: Op, rounds: Number, given: frozenset[Param]) -> Number:
    """How often the regions of an op run, which itself runs so often."""
    trips = trips_of(op, given) if is_loop(op) else None
    return rounds if trips is None else combine("mul", (rounds, trips)) or rounds
