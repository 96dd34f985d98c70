"""Static cost of a launch: number of ops that it executes, and bytes that it moves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

from vkchi.analysis.dataflow import made_inside
from vkchi.analysis.memory.alias import reducible
from vkchi.analysis.values.host_numbers import (
    BoundedCount,
    combine_counts,
    constant_count,
    host_length,
    trips_of,
)
from vkchi.analysis.values.iterations import invariant_path
from vkchi.ir.core import Func, Op, Param, Region, Value, base_memory, find_parallel, used_in, walk
from vkchi.ir.op_table.interval_rules import nonnegative
from vkchi.ir.ops import ACCESSES, LOOPS, PLACES, READS, TABLE, WRITES, Effect, axes_of, is_loop
from vkchi.target.artifact import DispatchSize
from vkchi.target.shader import Count
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Ptr, Tensor, Type, i32
from vkchi.types.packed_numbers import Packed

# --- work ----------------------------------------------------------------------------------------
#
# Static work estimate: number of ops that a launch executes, weighted by trip counts.
#
# Trip counts are `Count` expressions of launch arguments (`vkchi.target.shader`), or constants.
# Unknown ones count as one: `while`, data-dependent bounds, and bounds that use an enclosing loop's
# index. Both sides of a branch are counted.
#
#     >>> work_of(fn)              # const 0; shape x [0]; parallel { 7 ops }; yield
#     ((4, ('const', 1)), (7, ('dim', 'x', 0)))
#     >>> known_work_of(fn.body)
#     11

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


# --- memory traffic ------------------------------------------------------------------------------
#
# Memory traffic of a dispatch: iterations, and a lower bound on the bytes that it moves.
#
# Per array parameter and direction, the bytes are those of all accesses, but at most the size of
# the array: an element that several iterations read may move once. Accesses with the same address
# and direction count once, atomics as a read and a write. An access under a condition on indices
# and arguments counts as made.
#
# The byte count is None
#
# - for loops whose trip count the host cannot compute;
# - for conditions on values from memory;
# - for dispatches without loops;
# - for bit-packed arrays.
#
#     >>> size_of(fn)             # parallel 0, shape x [0] { store y[i], load x[i] }
#     DispatchSize(('dim', 'x', 0), ('mul', ('dim', 'x', 0), ('const', 8)), False)

Moved = dict[tuple[Value, bool], "BoundedCount | None"]  # (array, is written) -> bytes


class Traffic(NamedTuple):
    """Bytes read and bytes written. None if the host cannot compute the number."""

    read: BoundedCount | None
    written: BoundedCount | None


def size_of(fn: Func) -> DispatchSize:
    """Iterations and bytes of a dispatch as a `DispatchSize`, before its loops are mapped to
    workgroups."""
    loop = find_parallel(fn)
    moved = find_moved(fn.body, frozenset(fn.params))
    total: BoundedCount | None = constant_count(0)
    for (array, _), found in moved.items():
        whole = bytes_of_array(array)
        part = combine("min", found, whole)
        total = combine("add", total, part)
    length = host_length(loop) if loop is not None else trips_of_only(fn)
    iterations = combine("max", length, constant_count(0))
    has_loop = any(op.kind in LOOPS for op in walk(fn.body))
    is_known = total is not None and total.hi > 0 and (has_loop or loop is not None)
    return DispatchSize(
        None if iterations is None else iterations.expr,
        total.expr if total is not None and is_known else None,
        loop is None and has_loop,
    )


def traffic_per_iteration(loop: Op, params: frozenset[Param]) -> Traffic:
    """Bytes that one iteration of a parallel loop reads and writes.

    Accesses with the same address and direction count once, those in inner loops once per
    iteration. Reductions into one element do not count, because `opt.loops.reduce` adds up in
    registers.
    """
    moved = find_moved(loop.regions[0], params, reductions_in(loop))
    sums: dict[bool, BoundedCount | None] = {False: constant_count(0), True: constant_count(0)}
    for (_, is_write), found in moved.items():
        sums[is_write] = combine("add", sums[is_write], found)
    return Traffic(sums[False], sums[True])


def trips_of_only(fn: Func) -> BoundedCount | None:
    """Trip count of the only serial loop directly in a dispatch's body.

    None if it is unknown, or if the body has several such loops or none. Loops inside an `if` do
    not count.
    """
    loops = [op for op in fn.body.ops if op.kind in LOOPS]
    return trips_of(loops[0], frozenset(fn.params)) if len(loops) == 1 else None


def combine(kind: str, a: BoundedCount | None, b: BoundedCount | None) -> BoundedCount | None:
    return None if a is None or b is None else combine_counts(kind, (a, b))


# --- accesses ------------------------------------------------------------------------------------


def reductions_in(loop: Op) -> set[Op]:
    """The `reducible` atomics on an invariant address."""
    body, defined = loop.regions[0], set(made_inside(loop))
    return {
        op
        for same in reducible(walk(body), used_in(body)).values()
        for op in same
        if invariant_path(op.args[0], defined) is not None
    }


def find_moved(region: Region, params: frozenset[Param], left_out: Collection[Op] = ()) -> Moved:
    """Bytes of the accesses to array parameters in a region, by array and direction.

    Accesses with the same address and direction count once. They are multiplied by the trip counts
    of the loops around. None if the host cannot compute the number. Ops `left_out` do not count.
    """
    moved: Moved = {}
    seen: set[tuple[object, bool]] = set()
    for op, times in accesses_in(region, constant_count(1), params):
        place = op.args[0]
        array, t = base_memory(place), place.type
        if op in left_out or not isinstance(array, Param) or not isinstance(t, Ptr):
            continue
        for is_write, kinds in ((False, READS), (True, WRITES)):
            if op.kind not in kinds or (address_key(place), is_write) in seen:
                continue
            seen.add((address_key(place), is_write))
            found = combine("mul", times, bytes_of(array, t.elem))
            key = array, is_write
            moved[key] = combine("add", moved[key], found) if key in moved else found
    return moved


def address_key(place: Value) -> object:
    """Key of an address. Equal keys imply the same array and subscripts."""
    if not isinstance(place, Op) or place.kind not in PLACES:
        return place
    return (place.kind, place.attr if place.kind == "member" else None,
            address_key(place.args[0]), place.args[1:])  # fmt: skip


def accesses_in(
    region: Region,
    times: BoundedCount | None,
    params: frozenset[Param],
    indices: frozenset[Param] = frozenset(),
) -> Iterator[tuple[Op, BoundedCount | None]]:
    """Yield each access to memory in a region, with its number of executions; None if data decide
    that.

    `params` are the Func's parameters, `indices` those of the loops around.
    """
    for op in region.ops:
        if op.kind in ACCESSES:
            yield op, times
        if not op.regions:
            continue
        inside, known = times, indices
        if is_loop(op):
            inside = combine("mul", times, trips_of(op, params))
            known |= {axis.param for axis in axes_of(op)} if op.kind != "while" else set()
        elif op.kind == "if" and is_from_memory(op.args[0], params | indices):
            inside = None
        for inner in op.regions:
            yield from accesses_in(inner, inside, params, known)


def is_from_memory(v: Value, known: frozenset[Param]) -> bool:
    """True unless a value is proved to depend on `known` only."""
    seen: set[Value] = set()
    stack = [v]
    while stack:
        x = stack.pop()
        if x in seen or x in known:
            continue
        seen.add(x)
        if not isinstance(x, Op) or x.regions or TABLE[x.kind].effect is not Effect.PURE:
            return True
        stack += x.args
    return False


def bytes_of(array: Param, elem: Type) -> BoundedCount | None:
    """Bytes of one access of type `elem` to an array; None for a bit-packed array."""
    t = array.type
    assert isinstance(t, Array)
    if isinstance(t.layout, Packed):
        return None
    return constant_count(t.stored.size_bytes * (elem.size if isinstance(elem, Tensor) else 1))


def bytes_of_array(array: Value) -> BoundedCount | None:
    t = array.type
    assert isinstance(t, Array)
    total: BoundedCount | None = constant_count(t.stored.size_bytes * t.scalars_per_element)
    for axis in range(t.ndim):
        extent = (
            constant_count(t.shape[axis])
            if t.shape is not None
            else BoundedCount(("dim", array.name, axis), *nonnegative(i32))
        )
        total = combine("mul", total, extent)
    return total
