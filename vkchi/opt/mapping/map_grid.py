"""Map `parallel` loops to the device: grids of workgroups and invocations.

Every loop gets one of four mappings; loops with barriers are first padded to whole workgroups
(`padding`). Device preferences are in `cost_model`.

- *Grid*: one invocation per iteration, along up to three axes, with the hardware's indices. The
  fastest axis is x (`axis_order`). With four axes or more, the slow axes are collapsed into one,
  and divisions recover their indices. The extents must be host-computable, and the body must not
  depend on neighbouring invocations.

      parallel %b, %e, %c, %f {^(%i, %j) body}    becomes    parallel %b, %e, %c, %f [(4, 32)] {...}

- *Row*: one invocation per iteration along one axis; divisions recover the indices.

      parallel 0, %total [128] {^(%t) body of t // n, t % n}

- *Work distribution* (`share`): a fixed number of invocations iterates over the loop's iterations.
  It is used on CPUs if profitable, and if the host cannot compute the number of iterations.

- *List*: a row whose length is that of an active list times the iterations per cell. The device
  reads the workgroup counts, so the host need not know the length.

Guarantees: `thread_index` remains the linear index of the iteration, with the last axis fastest.
With a demanded workgroup size, `group_index` is the workgroup of that index. After this pass, loops
have one to three axes and a workgroup size.

    >>> map_grid(fn, caps, options)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import islice

from vkchi.analysis.parallel_loops import depends_on_invocation, depends_on_neighbours
from vkchi.analysis.values.host_numbers import (
    axis_length,
    host_count,
    host_length,
    list_length,
    listed_count,
)
from vkchi.errors import DeviceError, InternalError
from vkchi.ir.builder import Builder
from vkchi.ir.core import (
    Func,
    Op,
    Param,
    Region,
    Value,
    constant_int,
    find_parallel,
    has_kind,
    walk,
)
from vkchi.ir.iteration_space import IterationSpace, Order, iteration_count, space_of
from vkchi.ir.op_table.invocation_ops import REPORTS
from vkchi.ir.ops import LOOPS, axes_of
from vkchi.ir.rebuild import rebuild_loops
from vkchi.opt.cost_model import (
    choose_block,
    choose_tile,
    fills_groups,
    is_worth_sharing,
    most_threads,
    sharing_threads,
    subgroup_width,
)
from vkchi.opt.mapping.axis_order import find_order, iteration_digits
from vkchi.opt.mapping.padding import pad_to_workgroup
from vkchi.opt.mapping.rows import build_collapsed, collapse_loops, copy_body, is_one_row
from vkchi.opt.mapping.share import ThreadBudget, WorkDistribution, partition_iterations
from vkchi.target import tuning
from vkchi.target.caps import SMALLEST, Caps
from vkchi.target.cell_lists import LEAST_SCALE
from vkchi.target.options import Options
from vkchi.target.shader import SERIAL, Grid, GridAxis, row_grid
from vkchi.types import Tensor, i32

MOST_AXES = 3


def map_grid(fn: Func, caps: Caps = SMALLEST, options: Options | None = None) -> Func:
    """Map all parallel loops to the device.

    Raises DeviceError for a demanded workgroup size that is below 1 or larger than the device's,
    KernelSyntaxError at a barrier in provably divergent control flow.
    """
    options = options or Options()
    loops = [op for op in fn.body.ops if op.kind == "parallel"]
    if not loops:
        return fn
    for op in loops:
        if not isinstance(op.attr, tuple):
            check_block(op, op.attr or options.block_dim, caps)
    fn = pad_to_workgroup(fn, caps)
    fn = collapse_loops(fn, {op for op in fn.body.ops if op.kind == "parallel" and not can_cut(op)})

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if isinstance(op.attr, tuple):
            return None
        if has_list(op):
            build_list_grid(b, op, args)
        elif wants_stride(op, caps):
            share_iterations(b, op, args, caps, options.block_dim)
        elif not build_grid(b, op, args, caps, op.attr or options.block_dim):
            if is_one_row(op):
                return None
            build_collapsed(b, op, args)
        return ()

    return size_rows(rebuild_loops(fn, visit), caps, options)


def check_block(op: Op, block: int | None, caps: Caps) -> None:
    """Raise DeviceError if `block` is less than 1 or more than the device's limit. None passes."""
    if block is not None and not 1 <= block <= caps.workgroup_invocations:
        place = f"{op.span.place}: " if op.span else ""
        raise DeviceError(
            f"{place}block_dim={block} is more than this device's workgroups hold: "
            f"{caps.workgroup_invocations} invocations"
        )


# --- legality and profitability ------------------------------------------------------------------


def can_cut(op: Op) -> bool:
    """True if the loop need not be collapsed to one axis.

    It has one axis, the host can compute its length, or its iterations are not tied to invocations.
    """
    return len(op.args) == 2 or host_length(op) is not None or not depends_on_invocation(op)


def wants_stride(op: Op, caps: Caps) -> bool:
    """True if work distribution is required, or profitable and legal."""
    length = host_length(op)
    if length is None:
        return True
    return is_worth_sharing(length.hi, caps, is_light=is_light(op)) and not depends_on_invocation(
        op
    )


def is_light(op: Op) -> bool:
    """True if an iteration computes at most LIGHT_SCALARS scalars, without loops or a demanded
    workgroup."""
    inner = list(islice(walk(op.regions[0]), tuning.LIGHT_SCALARS + 1))
    is_short = sum(map(numbers, inner)) <= tuning.LIGHT_SCALARS
    return op.attr is None and is_short and not any(x.kind in LOOPS for x in inner)


def numbers(op: Op) -> int:
    t = op.args[-1].type if op.type is None and op.args else op.type
    return t.size if isinstance(t, Tensor) else 1


# --- work distribution ---------------------------------------------------------------------------


def share_iterations(
    b: Builder, op: Op, args: tuple[Value, ...], caps: Caps, demand: int | None
) -> None:
    """Append a `parallel` loop with work distribution. Reports end an invocation: loops that report
    get as many as possible."""
    block: int | None = op.attr
    most, grain = most_threads(caps, block or tuning.BLOCK), 1
    is_tied = depends_on_invocation(op) or has_kind(op.regions[0], REPORTS)
    if block is None and demand is None and not is_tied:
        most, block, grain = sharing_threads(
            host_count(op), caps, is_light=is_light(op),
            is_random=has_kind(op.regions[0], ("random",)),
        )  # fmt: skip

    def run(shared: WorkDistribution, t: Value) -> None:
        shared.emit(b, t, lambda indices, number: copy_body(b, op, indices, number))

    has_subgroups = caps.scalar_lanes and op.attr is None
    crowd = ThreadBudget(most, op.attr or subgroup_width(caps), has_subgroups, grain=grain)
    build_shared(b, op, args, crowd, run, block)


def build_shared(
    b: Builder,
    op: Op,
    args: Sequence[Value],
    crowd: ThreadBudget,
    run: Callable[[WorkDistribution, Value], None],
    block: int | None = None,
) -> None:
    """Append a `parallel` loop over the invocations of `crowd`.

    `run` appends the work of the invocation with the given index. The workgroup size is `block`, or
    the loop's own if `block` is None.
    """
    shared = partition_iterations(b, op, args, crowd, find_order(op))
    t = Param(i32, "t")
    with b.region(t) as region:
        run(shared, t)
        b.span = op.span
        b.emit("yield")
    b.parallel((b.const(0, i32), shared.threads), region, block or op.attr)


# --- one invocation per iteration ----------------------------------------------------------------


def build_grid(b: Builder, op: Op, args: tuple[Value, ...], caps: Caps, demand: int | None) -> bool:
    """Append a `parallel` loop along the axes of a grid.

    False, with nothing appended, for one axis, for bodies that depend on neighbouring invocations,
    and if `choose_tile` finds no tile.
    """
    if len(args) == 2 or depends_on_neighbours(op):
        return False
    order, is_square = iteration_digits(op)
    slow = max(1, len(order) - MOST_AXES + 1)
    axes = [order[:slow], *[(digit,) for digit in order[slow:]]]
    extents = tuple([extent_in(op, digits) for digits in axes])
    tile = choose_tile(extents, caps, is_square=is_square, demand=demand)
    if tile is None:
        return False
    if slow == 1 and all(n == 0 for _, n, _ in order):
        build_axes(b, op, args, order, tile)
    else:
        build_digits(b, op, space_of(b, args, order), slow, tile)
    return True


def extent_in(op: Op, digits: Order) -> int | None:
    """Return the product of the extents of these digits, or None if one is not a compile-time
    constant."""
    found: list[int] = []
    for k, n, _ in digits:
        length = axis_length(axes_of(op)[k])
        if not n and (length is None or length.lo != length.hi):
            return None
        found.append(n or max(0, length.lo if length is not None else 0))
    return math.prod(found)


def build_axes(
    b: Builder, op: Op, args: tuple[Value, ...], order: Order, tile: tuple[int, ...]
) -> None:
    axes = [k for k, _, _ in order]
    (old,) = op.regions
    body = Region(tuple([old.params[k] for k in axes]), old.ops)
    b.parallel([v for k in axes for v in args[2 * k : 2 * k + 2]], body, tile)


def build_digits(
    b: Builder, op: Op, space: IterationSpace, slow: int, tile: tuple[int, ...]
) -> None:
    """Append the loop over a space's digits, with the first `slow` digits collapsed."""
    zero = b.const(0, i32)
    first = IterationSpace(space.begins, space.digits[:slow])
    ends = [iteration_count(b, first)]
    ends += [
        iteration_count(b, IterationSpace(space.begins, (digit,))) for digit in space.digits[slow:]
    ]
    params = [Param(i32, "t") for _ in ends]
    with b.region(*params) as body:
        values = [*first.split(b, params[0]), *params[1:]]
        copy_body(b, op, space.indices(b, values), None)
        b.emit("yield")
    b.parallel([v for end in ends for v in (zero, end)], body, tile)


# --- active lists --------------------------------------------------------------------------------


def has_list(op: Op) -> bool:
    """True if the slowest axis of a loop is an active list, and the others are constants from 0."""
    bounds = [constant_int(v) for v in op.args]
    return (
        op.attr is None
        and list_length(op.args[1]) is not None
        and bounds[0] == 0
        and all(begin == 0 and end for begin, end in zip(bounds[2::2], bounds[3::2]))
    )


def build_list_grid(b: Builder, op: Op, args: Sequence[Value]) -> None:
    """Append a loop over one axis with 2**k workgroups per cell, k possibly negative.

    The iterations of a cell are padded to whole workgroups if they exceed one. The loop's test of
    its index remains valid if a launch has more workgroups than the list needs.
    """
    extents = [constant_int(v) or 0 for v in args[3::2]]
    inner = math.prod(extents)
    cells, groups = 1, 1
    while 2 * cells * inner <= tuning.LISTED_BLOCK and cells < 1 << -LEAST_SCALE:
        cells *= 2
    while groups * tuning.LISTED_BLOCK < inner:
        groups *= 2
    block = cells * -(-inner // groups)
    padded = block * groups // cells
    each = b.const(padded, i32)
    total = b.emit("mul", args[1], each)
    t = Param(i32, "t")
    with b.region(t) as region:
        inside = b.emit("lt", t, total)
        entry, place = b.emit("truncdiv", t, each), b.emit("rem", t, each)
        if padded != inner:
            inside = b.emit("and", inside, b.emit("lt", place, b.const(inner, i32)))
        with b.when(inside):
            digits: list[Value] = []
            for n in reversed(extents[1:]):
                size = b.const(n, i32)
                digits.append(b.emit("rem", place, size))
                place = b.emit("truncdiv", place, size)
            copy_body(b, op, [entry, *([place] if extents else []), *digits[::-1]], None)
        b.emit("yield")
    b.parallel((b.const(0, i32), total), region, block, op.name)


# --- workgroups ----------------------------------------------------------------------------------


def size_rows(fn: Func, caps: Caps, options: Options) -> Func:
    if all(op.kind != "parallel" or op.attr is not None for op in fn.body.ops):
        return fn
    ops = [
        with_block(op, caps, options) if op.kind == "parallel" and op.attr is None else op
        for op in fn.body.ops
    ]
    return Func(fn.name, fn.params, Region(fn.body.params, ops), fn.span)


def with_block(op: Op, caps: Caps, options: Options) -> Op:
    """Return a loop over one axis with a workgroup size.

    Raises InternalError if the host cannot compute the number of iterations.
    """
    count = host_count(op)
    if count is None:
        raise InternalError("a loop was mapped whose iterations the host cannot count")
    block = options.block_dim or choose_block(count, caps)
    return Op("parallel", op.args, block, None, op.span, op.name, op.regions, ())


def plan_grid(fn: Func, caps: Caps) -> Grid:
    """Return the grid of a mapped Func; SERIAL without a loop.

    One of several axes gets a base if it may need more workgroups than the device supports; a
    single axis gets none. Raises InternalError if the loop is not mapped, or if the host cannot
    compute its length.
    """
    op = find_parallel(fn)
    if op is None:
        return SERIAL
    if op.attr is None:
        raise InternalError(f"the loop of {fn.name} is not mapped: run pass `map_grid`")
    listed = listed_count(op)
    if listed is not None and isinstance(op.attr, int):
        return row_grid(listed, op.attr, guard=False)  # the loop tests its index
    axes = axes_of(op)
    sizes = op.attr if isinstance(op.attr, tuple) else (op.attr,)
    found = []
    for axis, block, limit in zip(axes[::-1], sizes[::-1], caps.workgroup_count, strict=False):
        n = axis_length(axis)
        if n is None:
            raise InternalError(f"the host cannot count the iterations of {fn.name}")
        count = ("const", max(0, n.lo)) if n.lo == n.hi else n.expr
        is_full = fills_groups(count, block) if len(axes) == 1 else is_multiple(n.lo, n.hi, block)
        has_base = len(axes) > 1 and n.hi > limit * block
        found.append(GridAxis(count, block, not is_full, has_base))
    return Grid(tuple(found))


def is_multiple(low: int, high: int, block: int) -> bool:
    return low == high and low % block == 0
