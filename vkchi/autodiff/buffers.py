"""Sizes of the buffers of saved values, and the Func that counts iterations on the device.

The counting Func is launched for trip counts that the host cannot compute.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.values.host_numbers import (
    BoundedCount,
    combine_counts,
    constant_count,
    trips_of,
)
from vkchi.autodiff.emit import saturated_i32, trip_count
from vkchi.autodiff.primal import PrimalAnalysis
from vkchi.autodiff.results import SaveBufferSize
from vkchi.autodiff.sweep import (
    CountingSweep,
    MemoryVersions,
    SavedValues,
    SegmentMemory,
    run_segment,
)
from vkchi.ir.builder import Builder
from vkchi.ir.core import COUNT, WIDTH, Func, Op, Param, Value
from vkchi.ir.iteration_space import INT_MAX
from vkchi.ir.ops import LOOPS
from vkchi.tuples import NamedTuple
from vkchi.types import Array, cell_of, i32


class SaveBuffer(NamedTuple):
    """A buffer of saved values.

    The product of the trip counts of `loops` (outermost first) is the number of positions. `cell`
    names the cell in which the counting Func stores it. The iterations of `parallel` are the
    invocations, one if it is None; `width` names the cell with their number.
    """

    param: Param
    loops: tuple[Op, ...]
    cell: str
    parallel: Op | None
    width: str


def save_buffer_size(save: SaveBuffer, fn: Func) -> SaveBufferSize:
    """The size of a buffer, as host expressions in the parameters of `fn` where possible."""
    given = frozenset(fn.params)
    around = (save.parallel,) if save.parallel is not None else ()
    counts = [count_rounds(loops, given) for loops in (save.loops, around)]
    found = [number.expr if number is not None else None for number in counts]
    assert isinstance(save.param.type, Array)
    return SaveBufferSize(
        save.param.name, save.param.type, (save.cell, save.width), (found[0], found[1])
    )


def count_rounds(loops: Sequence[Op], given: frozenset[Param]) -> BoundedCount | None:
    """The product of trip counts; None if the host cannot compute it from the given parameters."""
    total: BoundedCount | None = constant_count(1)
    for loop in loops:
        trips = trips_of(loop, given)
        if total is None or trips is None:
            return None
        total = combine_counts("mul", (total, trips))
    return total


class CountingFunc(NamedTuple):
    """A Func that computes the cells named by `SaveBuffer`s.

    `copies` maps its `.scratch.*` arrays to primal arrays.
    """

    func: Func
    copies: dict[str, str]


def describe_saves(primal: PrimalAnalysis, kept: SavedValues) -> list[SaveBuffer]:
    """The buffers of all saved values, with the loops that determine their sizes."""
    found = []
    for loop, values in kept.in_loop.items():
        around = primal.around[loop.regions[-1]]
        loops = tuple(op for op in around if op.kind in LOOPS)
        parallel = next((op for op in around if op.kind == "parallel"), None)
        cell = f"{COUNT}{list(kept.in_loop).index(loop)}"
        width = f"{WIDTH}{cell}"
        found += [SaveBuffer(kept.buffer(v), loops, cell, parallel, width) for v in values]
    return found


def build_counting(primal: PrimalAnalysis, saves: Sequence[SaveBuffer]) -> CountingFunc | None:
    """Build the counting Func; None if nothing is saved."""
    if not saves:
        return None
    b, fn = Builder(), primal.fn
    versions = MemoryVersions(b, primal)
    cells = {s.loops[-1]: Param(cell_of(i32), s.cell) for s in saves}
    widths = {s.width: (s, Param(cell_of(i32), s.width)) for s in saves if s.parallel is not None}

    def sweep(memory: SegmentMemory, invocation: Value) -> CountingSweep:
        return CountingSweep(b, primal, memory, invocation, cells)

    with b.region() as body:
        b.span = fn.span
        outer = sweep(SegmentMemory({}, {}), b.const(0, i32))
        for segment in primal.segments:
            bounds = run_segment(outer, segment, versions, sweep)
            for save, cell in widths.values():
                if save.parallel is segment.loop:
                    b.emit("atomic_max", b.emit("elem", cell), count_columns(b, bounds))
        b.emit("yield")
    params = (*fn.params, *versions.params, *cells.values(), *(cell for _, cell in widths.values()))
    return CountingFunc(Func(f"{fn.name}.count", params, body, fn.span), versions.copies)


def count_columns(b: Builder, bounds: Sequence[Value]) -> Value:
    """The trip count of a parallel loop with these bounds as i32, at most INT_MAX."""
    found = saturated_i32(b, trip_count(b, *bounds[:2]))
    for k in range(2, len(bounds), 2):
        more = saturated_i32(b, trip_count(b, *bounds[k : k + 2]))
        most = b.const(INT_MAX, i32)
        room = b.emit("floordiv", most, b.emit("max", more, b.const(1, i32)))
        product = b.emit("mul", found, more)
        found = b.emit("select", b.emit("le", found, room), product, most)
    return found
