"""Buffers of kept values: what must be known to size them.

Owns: `Save`, and the Func that counts how often loops go round where the host cannot. Must not
know: adjoints, launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vkchi.autodiff.memory import Versions
from vkchi.autodiff.primal import Primal
from vkchi.autodiff.sweep import CountingSweep, Kept, Memory
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param
from vkchi.types import cell_of, i32


class Save(NamedTuple):
    """A buffer of kept values. `loops` are the loops around, outermost first, whose trip counts
    multiply to the positions needed; `cell` is the name of the count that the counting Func finds.
    `parallel` is the loop whose iterations are the invocations, None for one invocation."""

    param: Param
    loops: tuple[Op, ...]
    cell: str
    parallel: Op | None


class Counting(NamedTuple):
    """A Func that finds the cells that saves name, and what its `scratch.*` arrays are like."""

    func: Func
    copies: dict[str, str]


def describe_saves(primal: Primal, kept: Kept) -> list[Save]:
    """What must be known to size every buffer."""
    found = []
    for loop, values in kept.in_loop.items():
        around = loops_around(primal, loop)
        parallel = parallel_around(primal, loop)
        cell = f"count.{list(kept.in_loop).index(loop)}"
        found += [Save(kept.buffer(v), around, cell, parallel) for v in values]
    return found


def loops_around(primal: Primal, op: Op) -> tuple[Op, ...]:
    """The loop and those around it in its invocation, outermost first."""
    outer = primal.loop_of(primal.stands[op])
    return (*(loops_around(primal, outer) if outer is not None else ()), op)


def parallel_around(primal: Primal, op: Op) -> Op | None:
    """The `parallel` that an op stands in."""
    owner = primal.owner.get(primal.stands[op])
    if owner is None or owner.kind == "parallel":
        return owner
    return parallel_around(primal, owner)


def build_counting(primal: Primal, kept: Kept, saves: Sequence[Save]) -> Counting | None:
    """What finds the cells; None if nothing is saved."""
    if not saves:
        return None
    cells = {s.loops[-1]: Param(cell_of(i32), s.cell) for s in saves}
    b, fn = Builder(), primal.fn
    versions = Versions(b, primal)
    nothing = Kept(primal)
    with b.region() as body:
        b.span = fn.span
        sweep = CountingSweep(b, primal, nothing, Memory({}, {}), cells)
        for segment in primal.segments:
            found, late = dict(versions.now), versions.advance(segment.ops)
            sweep.memory = Memory(found, late)
            if segment.loop is None:
                sweep.run(segment.ops)
                versions.now.update(sweep.memory.late)
                continue
            (region,) = segment.loop.regions
            index = Param(region.params[0].type, region.params[0].name)
            with b.region(index) as inner_body:
                inner = CountingSweep(b, primal, nothing, sweep.memory, cells)
                inner.map = {**sweep.map, region.params[0]: index}
                inner.run(region.ops)
                b.emit("yield")
            begin, end = (sweep.get(v) for v in segment.loop.args)
            b.parallel(begin, end, inner_body, None)
        b.emit("yield")
    params = (*fn.params, *versions.params, *cells.values())
    return Counting(Func(f"{fn.name}.count", params, body, fn.span), versions.copies)
