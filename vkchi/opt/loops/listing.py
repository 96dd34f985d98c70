"""Iteration over active lists: loops over a sparse field visit the active cells only.

    parallel 0, 512 {^(%i)                        %n = load elem %.active.a, 0
      %c = floordiv %i, 8                         parallel 0, %n, 0, 8 {^(%k, %p)
      if (load elem %a, %c) != 0 { body } }         %c = load elem %.active.a, ENTRIES_AT + %k
                                                    %i = %c * 8 + %p; body }

The frontend writes the loop on the left. The launch provides the list (`target.cell_lists`), which
is rebuilt before a dispatch that reads it, after the activity array `a` was written. So a list
contains the cells that were active at the start of the loop. The loop on the right is mapped to a
dispatch whose workgroup counts the device reads from the list (`opt.mapping.map_grid`).

- If a loop tests a copy of `a` that was made just before it, it iterates over the list of `a`, and
  the copy is removed.
- A dynamic block has lengths as its activity. An entry of its list is a chunk of places, and the
  test of the place remains in the body.
- If cells are small, a list would cost more time than it saves if most cells are active. Such a
  loop iterates over the list of a block around them, and the test remains.
- `thread_index` and `random` depend on the number of the iteration of the loop on the left. That is
  computed from its indices.

- A block with a pool has slots as its activity (`target.pool_layout`). All loops over it that can
  iterate over a list do so.

A loop keeps its form in these cases:

- the body depends on its invocation, synchronizes or reports;
- something is done for inactive cells;
- the block has more than MOST_LISTED cells, or its cells and those around it are small.

A loop over a block with a pool that keeps its form, and has more iterations than 32 bits count, is
an error.

Entries of a list are distinct, which later passes cannot prove. Private atomics are therefore
demoted first. A list aliases its activity array (`analysis.memory.alias`), so loops keep their
order with writes of activity.

On CPUs, an iteration is a row of up to ROW elements, which a serial loop visits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from vkchi.analysis.parallel_loops import depends_on_invocation, keeps_order
from vkchi.errors import KernelFieldError
from vkchi.ir.builder import Builder
from vkchi.ir.core import (
    Func,
    Op,
    Param,
    Region,
    Value,
    base_memory,
    constant_int,
    has_kind,
    walk_ops,
)
from vkchi.ir.ops import READS, TIED, WRITES, Effect, axes_of, effect_of
from vkchi.ir.rebuild import Rebuilder, inline, rebuild_loops
from vkchi.opt.lowering.streams import number_iteration
from vkchi.opt.memory.demote import replace_atomics
from vkchi.target.caps import Caps
from vkchi.target.cell_lists import ENTRIES_AT, MOST_LISTED, OuterCells, chunk_of, list_name
from vkchi.target.pool_layout import FIRST
from vkchi.tuples import NamedTuple
from vkchi.types import Array, i32

# Elements that an invocation of a CPU visits: at most, and at least; least elements of a cell.
ROW, LEAST_ROW, LEAST_CELL = 16, 4, 8
MOST_ELEMENTS = 1 << 30  # of the loop over all cells
MOST_COUNTED = (1 << 31) - 1  # iterations of a loop over all cells of a block with a pool
Outward = Mapping[str, Sequence[OuterCells]]  # blocks around each one, the nearest first


class CellAxis(NamedTuple):
    """An axis of a loop: it begins at `first`, and a cell has `n` indices. `at` is the cell's axis,
    or -1 if the cell spans the whole axis."""

    first: int
    n: int
    at: int


class PlaceAxis(NamedTuple):
    """The axis of a loop along the lists of a dynamic block. They have `room` places, with `n`
    indices each."""

    axis: int
    first: int
    n: int
    room: int


class ActivityGuard(NamedTuple):
    """The test of a loop over a sparse field: `branch` runs the body in its second region if the
    cell is active. `load` reads a number of the array `tested`.

    `digits` has the cell axis of some axes of the loop. `place` is that of a dynamic block.
    `is_pooled`: the number is a slot of a block with a pool.
    """

    tested: Param
    load: Op
    branch: Op
    digits: dict[int, CellAxis]
    place: PlaceAxis | None
    is_pooled: bool


class ListedCells(NamedTuple):
    """The cells that a listed loop iterates over: those of `activity`, of this shape. `axes` are
    those of the loop. `is_whole`: active cells have no inactive elements."""

    activity: Param
    shape: tuple[int, ...]
    axes: tuple[CellAxis, ...]
    is_whole: bool


class ListedLoop(NamedTuple):
    """A loop to be listed; `copy` is the loop that copies the activity array for it."""

    guard: ActivityGuard
    cells: ListedCells
    copy: Op | None


def list_loops(fn: Func, caps: Caps, outward: Outward | None = None) -> Func:
    """Make loops of a frontend's Func iterate over lists. `outward` has the activity arrays; None
    stands for all arrays, without blocks around each other.

    Raises KernelFieldError for a loop over a block with a pool that is too long without a list.
    """
    if outward is None:
        outward = {p.name: () for p in fn.params}
    found = find_loops(fn, caps, outward)
    check_lengths(fn, found)
    if not found:
        return fn
    inside = set(walk_ops(found))
    demoted = replace_atomics(fn, lambda survey, a: a.op in inside and not survey.is_fixed(a))
    found = find_loops(demoted, caps, outward)
    copies = needless_copies(demoted, found)
    lists: dict[Param, Param] = {}

    def list_of(cells: ListedCells) -> Param:
        if cells.activity not in lists:
            lists[cells.activity] = list_param(cells)
        return lists[cells.activity]

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op in copies:
            needed = copies[op]
            if needed is not None:
                build_listed(b, op, needed, list_of(needed), op.regions[0], caps)
            return ()
        loop = found.get(op)
        if loop is None:
            return None
        body = op.regions[0]
        if loop.cells.is_whole:
            body = without_test(body, loop.guard.branch)
        if has_kind(body, TIED):
            body = number_iteration(body, fn.params)
        build_listed(b, op, loop.cells, list_of(loop.cells), body, caps)
        return ()

    made = rebuild_loops(demoted, visit)
    return Func(fn.name, (*fn.params, *lists.values()), made.body, fn.span)


def list_param(cells: ListedCells) -> Param:
    words = ENTRIES_AT + math.prod(cells.shape)
    return Param(Array.of(i32, 1, (words,)), list_name(cells.activity.name))


# --- recognition ---------------------------------------------------------------------------------


def find_loops(fn: Func, caps: Caps, outward: Outward) -> dict[Op, ListedLoop]:
    """Return the loops to be listed."""
    found: dict[Op, ListedLoop] = {}
    params = {p.name: p for p in fn.params}
    for k, op in enumerate(fn.body.ops):
        guard = guard_of(op)
        if guard is None:
            continue
        copy = copy_before(fn.body.ops[:k], guard.tested)
        activity = guard.tested if copy is None else copied_array(copy)
        if activity is None or activity.name not in outward:
            continue
        levels = levels_around(op, guard, activity, params, outward[activity.name])
        cells = next((one for one in levels if guard.is_pooled or is_large(one, caps)), None)
        if cells is not None:
            found[op] = ListedLoop(guard, cells, copy)
    return found


def guard_of(op: Op) -> ActivityGuard | None:
    """Return the activity test around the body of a parallel loop, as the frontend writes it. None
    for other ops, and for loops that must not iterate over a list."""
    if op.kind != "parallel" or op.attr is not None:
        return None
    *ops, branch = op.regions[0].ops[:-1] or [op]  # without its `yield`
    if branch.kind != "if" or any(not is_pure(x) for x in branch.regions[0].ops[:-1]):
        return None
    load = tested_number(branch.args[0])
    if load is None or any(x is not load and not is_pure(x) for x in ops):
        return None
    element = load.args[0]
    assert isinstance(element, Op)
    tested, *cell = element.args
    axes: dict[Value, int] = {axis.param: k for k, axis in enumerate(axes_of(op))}
    digits: dict[int, CellAxis] = {}
    for at, v in enumerate(cell):
        digit = digit_of(v, axes)
        if digit is None or digit[0] in digits:
            return None
        digits[digit[0]] = CellAxis(digit[1], digit[2], at)
    place = place_of(branch.args[0], axes)
    is_list = operand(operand(branch.args[0], "not"), "lt") is not None
    if (is_list and place is None) or (place is not None and place.axis in digits):
        return None
    if depends_on_invocation(op) or keeps_order(op.regions[0]):
        return None
    assert isinstance(tested, Param)
    return ActivityGuard(tested, load, branch, digits, place, is_test_of_slot(branch.args[0]))


def is_pure(op: Op) -> bool:
    return effect_of(op.kind) is Effect.PURE and not op.regions


def tested_number(inactive: Value) -> Op | None:
    """Return the load in `not (load elem array, ... != 0)`, `not (load elem slots, ... >= FIRST)`
    or `not (place < load elem array, ...)`, else None."""
    test = operand(inactive, "not")
    if not isinstance(test, Op) or test.kind not in ("ne", "ge", "lt"):
        return None
    load = test.args[1] if test.kind == "lt" else test.args[0]
    if not isinstance(operand(operand(load, "load"), "elem"), Param) or not isinstance(load, Op):
        return None
    is_constant = test.kind == "ne" and constant_int(test.args[1]) == 0
    return load if test.kind == "lt" or is_constant or is_test_of_slot(inactive) else None


def is_test_of_slot(inactive: Value) -> bool:
    """True for `not (... >= FIRST)`."""
    test = operand(inactive, "not")
    return isinstance(test, Op) and test.kind == "ge" and constant_int(test.args[1]) == FIRST


def check_lengths(fn: Func, listed: Collection[Op]) -> None:
    """Raise KernelFieldError for a loop over a block with a pool that keeps its form, and has too
    many iterations."""
    for op in fn.body.ops:
        if op.kind != "parallel" or op in listed or len(op.regions[0].ops) < 2:
            continue
        branch = op.regions[0].ops[-2]
        if branch.kind != "if" or not is_test_of_slot(branch.args[0]):
            continue
        ends = [(constant_int(axis.begin), constant_int(axis.end)) for axis in axes_of(op)]
        count = math.prod([e - b for b, e in ends if b is not None and e is not None])
        if count > MOST_COUNTED:
            raise KernelFieldError(
                "this loop over a sparse block has a block_dim, synchronizes or is in debug mode, "
                f"so it would visit all {count:,} elements",
                op.span,
                help="loop without a block_dim, and without debug=True",
            )


def operand(v: Value | None, kind: str) -> Value | None:
    """Return the first operand of an op of this kind; None for other values."""
    return v.args[0] if isinstance(v, Op) and v.kind == kind else None


def digit_of(v: Value, axes: Mapping[Value, int]) -> tuple[int, int, int] | None:
    """Match `(index - first) // n` with constants: (axis of the index, first, n)."""
    if not isinstance(v, Op) or v.kind != "floordiv":
        return None
    moved, n = v.args[0], constant_int(v.args[1])
    if n is None or n <= 0 or not isinstance(moved, Op) or moved.kind != "sub":
        return None
    first, axis = constant_int(moved.args[1]), axes.get(moved.args[0])
    return None if first is None or axis is None else (axis, first, n)


def place_of(inactive: Value, axes: Mapping[Value, int]) -> PlaceAxis | None:
    """Match `not ((index - first) // n % room < ...)` with constants."""
    place = operand(operand(inactive, "not"), "lt")
    if not isinstance(place, Op) or place.kind != "mod":
        return None
    digit, room = digit_of(place.args[0], axes), constant_int(place.args[1])
    return None if digit is None or room is None or room <= 0 else PlaceAxis(*digit, room)


def levels_around(
    op: Op, guard: ActivityGuard, activity: Param, params: Mapping[str, Param],
    outer: Sequence[OuterCells],
) -> Iterator[ListedCells]:  # fmt: skip
    """Yield the cells that a loop may iterate over: those of its own block, and of blocks around
    it."""
    shape = shape_of(activity)
    digits, place = guard.digits, guard.place
    most = MOST_LISTED * MOST_ELEMENTS if guard.is_pooled else MOST_ELEMENTS
    if place is not None:
        chunk = chunk_of(place.room)
        last = CellAxis(place.first, place.n * chunk, len(shape))
        digits = {**digits, place.axis: last}
        shape = (*shape, place.room // chunk)
    axes = axes_of_cells(op, shape, digits, most)
    if axes is not None:
        yield ListedCells(activity, shape, axes, place is None)
    for around in outer:
        if around.activity in params:
            outer_activity = params[around.activity]
            shape = shape_of(outer_activity)
            axes = axes_of_cells(op, shape, digits_around(guard.digits, around))
            if axes is not None:
                yield ListedCells(outer_activity, shape, axes, is_whole=False)


def digits_around(digits: Mapping[int, CellAxis], around: OuterCells) -> dict[int, CellAxis]:
    """Return cell axes for the cells of a block around that of `digits`."""
    outer = {inner: (at, n) for at, (inner, n) in enumerate(around.ways)}
    return {
        k: CellAxis(axis.first, axis.n * outer[axis.at][1], outer[axis.at][0])
        for k, axis in digits.items()
        if axis.at in outer
    }


def shape_of(array: Param) -> tuple[int, ...]:
    assert isinstance(array.type, Array)
    return array.type.shape or ()


def axes_of_cells(
    op: Op, shape: tuple[int, ...], digits: Mapping[int, CellAxis], most: int = MOST_ELEMENTS
) -> tuple[CellAxis, ...] | None:  # fmt: skip
    """Return the cell axes of all axes of a loop. None unless cells of this shape cover it exactly,
    and a list of them can be used. Also None for more than `most` elements."""
    axes: list[CellAxis] = []
    for k, axis in enumerate(axes_of(op)):
        begin, end = constant_int(axis.begin), constant_int(axis.end)
        if begin is None or end is None or axis.param.type is not i32:
            return None
        first, n, at = digits.get(k, CellAxis(begin, end - begin, -1))
        if first != begin or end - begin != n * (shape[at] if at >= 0 else 1):
            return None
        axes.append(CellAxis(first, n, at))
    cells = math.prod(shape)
    is_listed = axes and len(digits) == len(shape) and cells <= MOST_LISTED
    elements = math.prod([axis.n for axis in axes]) * cells
    return tuple(axes) if is_listed and elements <= most else None


def is_large(cells: ListedCells, caps: Caps) -> bool:
    """True if a loop over a list pays off even if all cells are active."""
    is_row = not caps.scalar_lanes or row_length(cells.axes[-1].n) > 1
    return is_row and math.prod([axis.n for axis in cells.axes]) >= LEAST_CELL


# --- copies of activity arrays -------------------------------------------------------------------


def copy_before(ops: Sequence[Op], copied: Param) -> Op | None:
    """Return the loop that copied an activity array to the array `copied` before a loop. None if
    one of these was written since, or if other code wrote the copy."""
    written: set[Value] = set()
    for op in reversed(ops):
        found = {base_memory(x.args[0]) for x in walk_ops([op]) if x.kind in WRITES}
        if copied in found:
            source = copied_array(op)
            return None if source is None or source in written else op
        written |= found
    return None


def copied_array(copy: Op) -> Param | None:
    """Return the array that a loop copies, element by element; None for other ops."""
    if copy.kind != "parallel" or copy.attr is not None:
        return None
    *ops, store = copy.regions[0].ops[:-1] or [copy]
    params = copy.regions[0].params
    load = store.args[1] if store.kind == "store" else None
    if not isinstance(load, Op) or any(x is not load and not is_pure(x) for x in ops):
        return None
    places = (store.args[0], load.args[0] if load.kind == "load" else None)
    arrays: list[Param] = []
    for place in places:
        if not isinstance(place, Op) or place.kind != "elem" or place.args[1:] != tuple(params):
            return None
        array = place.args[0]
        if not isinstance(array, Param) or not covers(copy, shape_of(array)):
            return None
        arrays.append(array)
    return arrays[1]


def covers(op: Op, shape: tuple[int, ...]) -> bool:
    """True if a loop iterates over all indices of an array of this shape."""
    bounds = [(constant_int(axis.begin), constant_int(axis.end)) for axis in axes_of(op)]
    return bounds == [(0, n) for n in shape]


def needless_copies(fn: Func, found: Mapping[Op, ListedLoop]) -> dict[Op, ListedCells | None]:
    """Return copies that one listed loop reads, with the cells whose numbers it reads; None if it
    reads none."""
    loops = [loop for loop in found.values() if loop.copy is not None]
    loads = {loop.guard.load for loop in loops}
    others = [x for x in walk_ops(fn.body.ops) if x.kind in READS and x not in loads]
    read = {base_memory(x.args[0]) for x in others}
    readers = Counter([loop.copy for loop in loops])
    copies: dict[Op, ListedCells | None] = {}
    for loop in loops:
        if loop.copy is None or loop.guard.tested in read or readers[loop.copy] > 1:
            continue
        cells = None if loop.cells.is_whole else cells_in_copy(loop, loop.copy)
        if cells is not None or loop.cells.is_whole:
            copies[loop.copy] = cells
    return copies


def cells_in_copy(loop: ListedLoop, copy: Op) -> ListedCells | None:
    """Return the cells of a loop's list as parts of its activity array; None if they are chunks of
    lists."""
    axes: dict[int, CellAxis] = {}
    for k, own in loop.guard.digits.items():
        outer = loop.cells.axes[k]
        if outer.at >= 0:
            axes[own.at] = CellAxis(0, outer.n // own.n, outer.at)
    found = axes_of_cells(copy, loop.cells.shape, axes)
    return None if found is None else loop.cells._replace(axes=found)


# --- construction --------------------------------------------------------------------------------


def build_listed(
    b: Builder, op: Op, listed: ListedCells, cells: Param, body: Region, caps: Caps
) -> None:  # fmt: skip
    """Append the loop over the list `cells` in place of the loop `op`. If `body` has a parameter
    more than the loop, the last one is the linear number of an iteration of `op`."""
    axes = listed.axes
    row = row_length(axes[-1].n) if caps.scalar_lanes else 1
    extents = [axis.n for axis in axes]
    extents[-1] //= row
    kept = [k for k, n in enumerate(extents) if n > 1]
    count = b.emit("load", b.emit("elem", cells, b.const(0, i32)), name="active")
    entry, places = Param(i32, "k"), {k: Param(i32, "p") for k in kept}
    with b.region(entry, *places.values()) as region:
        at = b.emit("add", entry, b.const(ENTRIES_AT, i32))
        cell = b.emit("load", b.emit("elem", cells, at, attr="inbounds"), name="cell")
        digits = split_cell(b, cell, listed.shape)

        def run(b: Builder, last: Value | None) -> None:
            indices = [
                index_in(b, axis, digits, places.get(k), row if k + 1 == len(axes) else 1)
                for k, axis in enumerate(axes)
            ]
            if last is not None:
                indices[-1] = b.emit("add", indices[-1], last)
            is_numbered = len(body.params) > len(indices)
            inline(b, body, [*indices, *([number_of(b, op, indices)] if is_numbered else [])])

        if row > 1:
            last = Param(i32, op.regions[0].params[-1].name)
            with b.region(last) as inner:
                run(b, last)
                b.emit("yield")
            b.for_(b.const(0, i32), b.const(row, i32), (), inner)
        else:
            run(b, None)
        b.emit("yield")
    b.span = op.span
    ends = [count, *[b.const(extents[k], i32) for k in kept]]
    b.parallel([v for end in ends for v in (b.const(0, i32), end)], region, name=op.name)


def row_length(n: int) -> int:
    """Return the number of elements that one invocation visits, of `n` along the last axis."""
    row = n if n <= ROW else math.gcd(n, ROW)
    return row if row >= LEAST_ROW else 1


def split_cell(b: Builder, cell: Value, shape: Sequence[int]) -> list[Value]:
    """Append ops that split the linear index of a cell into its indices, each within the shape."""
    found: list[Value] = []
    for n in reversed(shape):
        size = b.const(n, i32)
        found.append(b.emit("mod", cell, size))
        cell = b.emit("floordiv", cell, size)
    return found[::-1]


def index_in(
    b: Builder, axis: CellAxis, digits: Sequence[Value], place: Value | None, row: int
) -> Value:
    """Append the index along a loop axis: the cell's first one, plus `place` rows."""
    index: Value = b.const(axis.first, i32)
    if axis.at >= 0:
        start = b.emit("mul", digits[axis.at], b.const(axis.n, i32))
        index = start if axis.first == 0 else b.emit("add", start, index)
    if place is None:
        return index
    moved = place if row == 1 else b.emit("mul", place, b.const(row, i32))
    return b.emit("add", index, moved)


def number_of(b: Builder, op: Op, indices: Sequence[Value]) -> Value:
    """Append the linear number of an iteration of `op`, with the last axis fastest."""
    number: Value = b.const(0, i32)
    for axis, index in zip(axes_of(op), indices, strict=True):
        begin, end = constant_int(axis.begin) or 0, constant_int(axis.end) or 0
        number = b.emit("mul", number, b.const(end - begin, i32))
        number = b.emit("add", number, b.emit("sub", index, b.const(begin, i32)))
    return number


def without_test(region: Region, branch: Op) -> Region:
    """Return a loop's body with the second region of `branch` in its place."""

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op is not branch:
            return None
        rebuilder.ops(op.regions[1].ops[:-1])
        return tuple([rebuilder.map.get(v, v) for v in op.regions[1].yielded])

    rebuilder = Rebuilder(visit)
    return rebuilder.region(region)
