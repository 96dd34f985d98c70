"""Iteration over active lists: loops over a sparse field visit the active cells only.

    parallel 0, 512 {^(%i)                        %n = load elem %.active.a, 0
      %c = floordiv %i, 8                         parallel 0, %n, 0, 8 {^(%k, %p)
      if (load elem %a, %c) != 0 { body } }         %c = load elem %.active.a, ENTRIES_AT + %k
                                                    %i = %c * 8 + %p; body }

The frontend writes the loop on the left. The launch provides the list (`target.cell_lists`), which
is rebuilt after the activity array `a` was written. The loop on the right is mapped to a dispatch
whose workgroup counts the device reads from the list (`opt.mapping.map_grid`).

A loop keeps its form in these cases:

- the kernel writes the activity array before the end of the loop, so the list may be out of date;
- the body depends on its invocation or draws random numbers: these depend on the iteration number,
  and derivatives of the kernel are made of the loop on the left;
- something is done for inactive cells;
- the block has more than MOST_LISTED cells;
- cells are small: a list would cost more time than it saves if most cells are active.

Entries of a list are distinct, which later passes cannot prove. Private atomics are therefore
demoted first.

On CPUs, an iteration is a row of up to ROW elements, which a serial loop visits.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from vkchi.analysis.parallel_loops import depends_on_invocation
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
from vkchi.ir.ops import TIED, WRITES, Effect, axes_of, effect_of
from vkchi.ir.rebuild import Rebuilder, inline, rebuild_loops
from vkchi.opt.memory.demote import replace_atomics
from vkchi.target.caps import Caps
from vkchi.target.cell_lists import ENTRIES_AT, MOST_LISTED, list_name
from vkchi.tuples import NamedTuple
from vkchi.types import Array, i32

# Elements that an invocation of a CPU visits: at most, and at least; least elements of a cell.
ROW, LEAST_ROW, LEAST_CELL = 16, 4, 8
MOST_ELEMENTS = 1 << 30  # of the loop over all cells


class CellAxis(NamedTuple):
    """An axis of a loop: it begins at `first`, and a cell has `n` indices. `at` is the cell's axis,
    or -1 if the cell spans the whole axis."""

    first: int
    n: int
    at: int


class ActivityGuard(NamedTuple):
    """The test of a loop over a sparse field: `branch` runs the body in its second region if the
    cell is active. `axes` are those of the loop."""

    activity: Param
    branch: Op
    axes: tuple[CellAxis, ...]


def list_loops(fn: Func, caps: Caps, activities: Collection[str] | None = None) -> Func:
    """Make loops of a frontend's Func iterate over lists. `activities` are the names of activity
    arrays, without those of dynamic blocks; None stands for all arrays."""
    if activities is None:
        activities = {p.name for p in fn.params}

    def choose(fn: Func, op: Op) -> ActivityGuard | None:
        guard = guard_of(op, activities)
        if guard is None or not is_large(guard, caps):
            return None
        return None if is_written_before(fn, op, guard.activity) else guard

    guards = [op for op in fn.body.ops if choose(fn, op) is not None]
    if not guards:
        return fn
    inside = set(walk_ops(guards))
    demoted = replace_atomics(fn, lambda survey, a: a.op in inside and not survey.is_fixed(a))
    lists: dict[Param, Param] = {}

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        guard = choose(demoted, op)
        if guard is None:
            return None
        cells = lists.get(guard.activity)
        if cells is None:
            cells = lists[guard.activity] = list_param(guard.activity)
        build_listed(b, op, guard, cells, caps)
        return ()

    made = rebuild_loops(demoted, visit)
    return Func(fn.name, (*fn.params, *lists.values()), made.body, fn.span)


def is_large(guard: ActivityGuard, caps: Caps) -> bool:
    """True if a loop over a list pays off even if all cells are active."""
    is_row = not caps.scalar_lanes or row_length(guard.axes[-1].n) > 1
    return is_row and math.prod([axis.n for axis in guard.axes]) >= LEAST_CELL


def list_param(activity: Param) -> Param:
    assert isinstance(activity.type, Array) and activity.type.shape is not None
    words = ENTRIES_AT + math.prod(activity.type.shape)
    return Param(Array.of(i32, 1, (words,)), list_name(activity.name))


# --- recognition ---------------------------------------------------------------------------------


def guard_of(op: Op, activities: Collection[str]) -> ActivityGuard | None:
    """Return the activity test around the body of a parallel loop, as the frontend writes it. None
    for other ops, and for loops that must not iterate over a list."""
    if op.kind != "parallel" or op.attr is not None:
        return None
    *ops, branch = op.regions[0].ops[:-1] or [op]  # without its `yield`
    if branch.kind != "if" or any(not is_pure(x) for x in branch.regions[0].ops[:-1]):
        return None
    activity, load = tested_activity(branch.args[0])
    if activity is None or load is None or activity.name not in activities:
        return None
    if any(x is not load and not is_pure(x) for x in ops):
        return None
    axes = axes_of_cells(op, activity, load.args[0].args[1:])  # type: ignore[attr-defined]
    if axes is None or depends_on_invocation(op) or has_kind(op.regions[0], TIED):
        return None
    return ActivityGuard(activity, branch, axes)


def is_pure(op: Op) -> bool:
    return effect_of(op.kind) is Effect.PURE and not op.regions


def tested_activity(inactive: Value) -> tuple[Param | None, Op | None]:
    """Return (array, load) of the value `not (load elem array, ... != 0)`, else (None, None)."""
    test = operand(inactive, "not")
    load = operand(test, "ne")
    array = operand(operand(load, "load"), "elem")
    if not isinstance(test, Op) or not isinstance(load, Op) or not isinstance(array, Param):
        return None, None
    return (array, load) if constant_int(test.args[1]) == 0 else (None, None)


def operand(v: Value | None, kind: str) -> Value | None:
    """Return the first operand of an op of this kind; None for other values."""
    return v.args[0] if isinstance(v, Op) and v.kind == kind else None


def axes_of_cells(
    op: Op, activity: Param, cell: Sequence[Value]
) -> tuple[CellAxis, ...] | None:  # fmt: skip
    """Return the cell axes of a loop. None unless each index of the cell is `(index - first) // n`
    for a different axis, and the cells cover the loop exactly."""
    t = activity.type
    assert isinstance(t, Array)
    if t.shape is None or math.prod(t.shape) > MOST_LISTED:
        return None
    digits: dict[Value, tuple[int, int, int]] = {}  # by loop index: first, n, axis of the cell
    for at, v in enumerate(cell):
        found = digit_of(v)
        if found is None or found[0] in digits:
            return None
        digits[found[0]] = (found[1], found[2], at)
    axes: list[CellAxis] = []
    for axis in axes_of(op):
        begin, end = constant_int(axis.begin), constant_int(axis.end)
        if begin is None or end is None or axis.param.type is not i32:
            return None
        first, n, at = digits.pop(axis.param, (begin, end - begin, -1))
        if first != begin or end - begin != n * (t.shape[at] if at >= 0 else 1):
            return None
        axes.append(CellAxis(first, n, at))
    elements = math.prod([axis.n for axis in axes]) * math.prod(t.shape)
    return tuple(axes) if axes and not digits and elements <= MOST_ELEMENTS else None


def digit_of(v: Value) -> tuple[Value, int, int] | None:
    """Match `(index - first) // n` with constants: (index, first, n)."""
    if not isinstance(v, Op) or v.kind != "floordiv":
        return None
    moved, n = v.args[0], constant_int(v.args[1])
    if n is None or n <= 0 or not isinstance(moved, Op) or moved.kind != "sub":
        return None
    first = constant_int(moved.args[1])
    return None if first is None else (moved.args[0], first, n)


def is_written_before(fn: Func, loop: Op, activity: Param) -> bool:
    """True if the kernel may write an activity array before the end of a loop of its body."""
    for op in fn.body.ops:
        writes = [x for x in walk_ops([op]) if x.kind in WRITES]
        if any(base_memory(x.args[0]) is activity for x in writes):
            return True
        if op is loop:
            return False
    return False


# --- construction --------------------------------------------------------------------------------


def build_listed(b: Builder, op: Op, guard: ActivityGuard, cells: Param, caps: Caps) -> None:
    """Append the loop over the list `cells` in place of the loop `op`."""
    t = guard.activity.type
    assert isinstance(t, Array) and t.shape is not None
    shape, axes = t.shape, guard.axes
    row = row_length(axes[-1].n) if caps.scalar_lanes else 1
    extents = [axis.n for axis in axes]
    extents[-1] //= row
    kept = [k for k, n in enumerate(extents) if n > 1]
    count = b.emit("load", b.emit("elem", cells, b.const(0, i32)), name="active")
    body = without_test(op.regions[0], guard.branch)
    entry, places = Param(i32, "k"), {k: Param(i32, "p") for k in kept}
    with b.region(entry, *places.values()) as region:
        at = b.emit("add", entry, b.const(ENTRIES_AT, i32))
        cell = b.emit("load", b.emit("elem", cells, at, attr="inbounds"), name="cell")
        digits = split_cell(b, cell, shape)

        def run(b: Builder, last: Value | None) -> None:
            indices = [
                index_in(b, axis, digits, places.get(k), row if k + 1 == len(axes) else 1)
                for k, axis in enumerate(axes)
            ]
            if last is not None:
                indices[-1] = b.emit("add", indices[-1], last)
            inline(b, body, indices)

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


def without_test(region: Region, branch: Op) -> Region:
    """Return a loop's body with the second region of `branch` in its place."""

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op is not branch:
            return None
        rebuilder.ops(op.regions[1].ops[:-1])
        return tuple([rebuilder.map.get(v, v) for v in op.regions[1].yielded])

    rebuilder = Rebuilder(visit)
    return rebuilder.region(region)
