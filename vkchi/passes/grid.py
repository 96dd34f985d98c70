"""Where a dispatch's iterations go: from a split Func to its `Grid`.

Owns: the choice of the workgroup's size, whether the shader must compare its index with the count.
Must not know: SPIR-V, launches, devices but by Caps, how the host counts (`analysis.host_numbers`).

    >>> plan_grid(fn, caps, options)      # parallel 0, shape x [0]
    Grid(mode='exact', block=128, count=('dim', 'x', 0), guard=True)
"""

from __future__ import annotations

from vkchi.analysis.host_numbers import host_count
from vkchi.errors import DeviceError, InternalError
from vkchi.ir.core import Func, Op, find_parallel
from vkchi.target.caps import Caps
from vkchi.target.options import Options
from vkchi.target.shader import Count, Grid, split_groups

DEFAULT_BLOCK = 128
SMALLEST_EXACT_BLOCK = 32  # a smaller workgroup costs more than the guard that it would save
LARGEST_EXACT_BLOCK = 256


def plan_grid(fn: Func, caps: Caps, options: Options) -> Grid:
    """The grid of a split Func.

    Raises DeviceError for a demanded workgroup larger than the device's, InternalError where the
    host cannot know the count (pass `stride` sees to that).
    """
    op = find_parallel(fn)
    if op is None:
        return Grid("serial", 1, None, False)
    count = host_count(op)
    if count is None:
        raise InternalError(f"the host cannot count the iterations of {fn.name}: run pass `stride`")
    demand = op.attr or options.block_dim
    if demand is not None:
        check_block(op, demand, caps)
        return Grid("exact", demand, count, not fills_groups(count, demand))
    block = choose_block(count, caps)
    return Grid("exact", block, count, not fills_groups(count, block))


def check_block(op: Op, block: int, caps: Caps) -> None:
    """Raises DeviceError if the device has no workgroups of this size."""
    if not 1 <= block <= caps.workgroup_invocations:
        place = f"{op.span.place}: " if op.span else ""
        raise DeviceError(
            f"{place}block_dim={block} is more than this device's workgroups hold: "
            f"{caps.workgroup_invocations} invocations"
        )


def choose_block(count: Count, caps: Caps) -> int:
    """A workgroup size: one that needs no guard if the count is constant and has such a divisor,
    smaller than the default one if the count is."""
    most = min(DEFAULT_BLOCK, caps.workgroup_invocations)
    if count[0] != "const":
        return most
    n: int = count[1]
    while most > caps.subgroup_size and most // 2 >= n:
        most //= 2
    return exact_block(n, most, caps) or most


def exact_block(n: int, preferred: int, caps: Caps) -> int | None:
    """The workgroup size nearest to `preferred` that divides n and is whole subgroups."""
    if fills_groups(("const", n), preferred):
        return preferred
    step = max(1, caps.subgroup_size)
    top = min(LARGEST_EXACT_BLOCK, caps.workgroup_invocations)
    sizes = range(max(step, SMALLEST_EXACT_BLOCK // step * step), top + 1, step)
    found = [s for s in sizes if fills_groups(("const", n), s)]
    return min(found, key=lambda s: (abs(s - preferred), s), default=None)


def fills_groups(count: Count, block: int) -> bool:
    """Whether the count is a constant that leaves no invocation of its groups idle."""
    if count[0] != "const" or count[1] % block:
        return False
    x, y = split_groups(count[1] // block)
    return x * y * block == int(count[1])
