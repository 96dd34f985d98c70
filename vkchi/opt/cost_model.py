"""Cost model: profitability decisions that depend on the device. `target.tuning` has the constants.

Devices are described by `Caps`, and are of two kinds, which its properties distinguish:

- *CPUs* (software drivers: Mesa's lavapipe, SwiftShader). One thread runs a workgroup, row by row
  along x, a subgroup at a time. Invocations beyond a row's end idle in its last subgroup. Starting
  an invocation costs more than an iteration of a loop. So a fixed number of invocations
  (`most_threads`) partitions a loop that has SHARE_ITERATIONS iterations or more for each. Light
  loops, whose iterations are short and without loops, are partitioned from SHARE_LIGHT iterations.
- *GPUs*. Starting an invocation is free, and integer division is slow. So each iteration has its
  own invocation, and the hardware's indices along up to three axes are the loop's. A workgroup is
  split into subgroups along x, then y, then z; invocations beyond its end idle in the last one. A
  workgroup of one row along x is best: all other indices are then uniform. Loops that read along
  one axis and write along another use tiles of TILE_SIDE by TILE_SIDE, so that each memory line is
  fully used while it is cached.

The cost of a tile (`cost_of`) is the number of invocations per iteration, plus penalties:

- TILE_GUARD for each axis whose extent is not known to be a multiple of the tile's length,
- TILE_ROWS for more than one row, on GPUs where one row is best,
- a penalty for each factor of two between a row's or a workgroup's length and the best one,
- half of that for each factor of two in the slowest of three lengths.

Unknown extents add almost no idle invocations at edges: the launch selects another tile if they are
short (`launch/fitting.py`).

    >>> choose_tile((1000, 3), FULL)         # slowest axis first; FULL of `target.caps`
    (32, 3)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import product

from vkchi.target import tuning
from vkchi.target.caps import Caps
from vkchi.target.shader import Count, split_groups
from vkchi.tuples import NamedTuple


def subgroup_width(caps: Caps) -> int:
    """Return the number of lanes that run side by side: the largest power of two within the
    subgroup size, at most BLOCK."""
    return 1 << (min(max(1, caps.subgroup_size), tuning.BLOCK).bit_length() - 1)


# --- loops partitioned among few invocations -----------------------------------------------------


def most_threads(caps: Caps, block: int | None = None) -> int:
    """Return the number of invocations that saturates the device: whole workgroups of `block`."""
    return (block or tuning.BLOCK) * caps.choose(tuning.GROUPS)


def least_threads(caps: Caps) -> int:
    """Return the number of invocations that saturates the device if each runs long."""
    return most_threads(caps) // (tuning.SPARE if caps.costly_invocations else 1)


def is_worth_sharing(most: int, caps: Caps, *, is_light: bool) -> bool:
    """True if a loop of at most `most` iterations is best partitioned among few invocations; False
    on GPUs. A light iteration costs less than starting an invocation for it."""
    least = tuning.SHARE_ITERATIONS * most_threads(caps)
    least = min(least, tuning.SHARE_LIGHT) if is_light else least
    return caps.costly_invocations and most >= least


class Sharing(NamedTuple):
    """Invocations that partition a loop: at most `most` in workgroups of `block`, None for the
    default size. If the number of iterations is dynamic, `grain` of them merit an invocation."""

    most: int
    block: int | None = None
    grain: int = 1


def sharing_threads(
    count: Count | None, caps: Caps, *, is_light: bool, is_random: bool = False
) -> Sharing:
    """Return the invocations that partition a loop of `count` iterations.

    Light iterations of a CPU get few invocations, each LIGHT_ITERATIONS or more. If their number is
    dynamic, workgroups have SHARE_BLOCK at most, so that few iterations occupy all cores; but not
    if they draw random numbers (`is_random`): each invocation has a sequence of its own.
    """
    most, width, least = most_threads(caps), subgroup_width(caps), tuning.LIGHT_ITERATIONS
    groups = caps.choose(tuning.GROUPS)
    if count is None or count[0] != "const":
        if not caps.costly_invocations or not is_light or is_random:
            return Sharing(most)
        block = min(tuning.SHARE_BLOCK, caps.workgroup_invocations)
        block = max(width, block - block % width)
        return Sharing(block * groups, block, least)
    n: int = count[1]
    if n >= tuning.SHARE_ITERATIONS * most:
        return Sharing(most)
    block = width
    while block < tuning.BLOCK and block * tuning.LIGHT_GROUPS * least < n:
        block *= 2
    return Sharing(block * max(1, min(groups, n // (block * least))), block)


def is_worth_splitting(work: int, middle: int, boundary: int, caps: Caps) -> bool:
    """True if index-set splitting of a loop is profitable; False on GPUs, where whole subgroups
    branch.

    An iteration has `work` ops. Each of the `middle` interior iterations gains in proportion to
    `work`, and each of the `boundary` iterations loses, as it is alone in its memory line. The code
    is compiled twice.
    """
    gain = tuning.RUN_OP * work * middle - tuning.RUN_ALONE * boundary
    cost = tuning.COMPILE_DISPATCH + tuning.COMPILE_OP * work
    return caps.slow_compiler and tuning.LAUNCHES * gain >= cost


def words_per_iteration(most: int, loads: int, rounds: int) -> int:
    """Return the words of each array to reduce in one iteration on a CPU: a power of two, up to
    `most`. More words mean fewer iterations and more code.

    `loads`: loads of the loop's body. `rounds`: iterations with one word each.
    """
    words = [1 << k for k in range(most.bit_length())]
    compiling = tuning.COMPILE_WORD * loads
    running = tuning.LAUNCHES * tuning.RUN_ITERATION * rounds
    return min(words, key=lambda n: compiling * n + running / n)


def is_worth_lanes(rounds: int, width: int) -> bool:
    """True if `width` lanes should share a serial loop of `rounds` iterations, despite the barrier:
    from LANES_ITERATIONS iterations per lane."""
    return rounds >= tuning.LANES_ITERATIONS * width


def is_worth_gathering(atomics: int, ops: int, iterations: int, caps: Caps) -> bool:
    """True if replacing atomics by a gather is profitable. An iteration saves `atomics` atomics and
    recomputes `ops` ops.

    On CPUs, the gain in all `iterations` must also repay the compilation of three dispatches and of
    the ops.
    """
    if not caps.slow_compiler:
        return ops <= tuning.GATHER_OPS * atomics
    gain = (tuning.RUN_ATOMIC * atomics - tuning.RUN_OP * ops) * iterations
    return tuning.LAUNCHES * gain >= 3 * tuning.COMPILE_DISPATCH + 2 * tuning.COMPILE_OP * ops


def is_worth_expanding(before: float, after: float, numbers: int, caps: Caps) -> bool:
    """True if moving reductions to a second loop is profitable. `before` and `after` are the costs
    of the reductions per launch, in nanoseconds.

    The gain must repay storing and loading `numbers` scalars and, on CPUs, a dispatch.
    """
    dispatch = tuning.COMPILE_DISPATCH / tuning.LAUNCHES if caps.slow_compiler else 0.0
    return before >= after + tuning.RUN_EXPANDED * numbers + dispatch


class RepeatedLoads(NamedTuple):
    """Loads that short inner loops repeat in each iteration of an outer loop.

    - numbers: how many 32-bit scalars they load.
    - rounds: trip count of the outer loop.
    - ops: growth of the dispatch by these and all other unrolled loops.
    - is_alike: True if full subgroups run the loop and load from one address.
    """

    numbers: int
    rounds: int
    ops: int
    is_alike: bool


def is_worth_hoisting_loads(repeated: RepeatedLoads, caps: Caps) -> bool:
    """True if the loads are best hoisted out of the outer loop and kept in registers; False on
    GPUs, and beyond UNROLL_LOAD_SCALARS scalars or UNROLL_LOAD_OPS ops.

    Also False if the loads are uniform and the outer loop is long enough for cooperative loads
    (`broadcast`).
    """
    if repeated.numbers > tuning.UNROLL_LOAD_SCALARS or repeated.ops > tuning.UNROLL_LOAD_OPS:
        return False
    cooperative = tuning.COOPERATIVE_LOADS * subgroup_width(caps)
    return caps.scalar_lanes and not (repeated.is_alike and repeated.rounds >= cooperative)


def reduction_threads(
    count: Count | None, caps: Caps, *, is_listed: bool = False
) -> int | None:  # fmt: skip
    """Return the number of invocations that partition a reduction loop, a power of two; None for a
    constant count below REDUCTION_ITERATIONS. `is_listed`: the loop iterates over an active list,
    which is usually short."""
    most = most_threads(caps)
    if is_listed:
        return min(most, caps.choose(tuning.LISTED_THREADS))
    if count is None or count[0] != "const":
        return most
    n: int = count[1]
    if n < tuning.REDUCTION_ITERATIONS:
        return None
    share = n // caps.choose(tuning.REDUCTION_WORK)
    return min(most, max(tuning.BLOCK, 1 << share.bit_length() >> 1))


class Binning(NamedTuple):
    """Plan of a privatized histogram.

    - arrays: the number of arrays that get bins, from the first.
    - groups: the largest number of workgroups; block: invocations of each.
    - least: the least number of iterations of an invocation.
    - has_own: True if each invocation has bins, False if a workgroup has.
    """

    arrays: int
    groups: int
    block: int
    least: int
    has_own: bool


def plan_bins(count: Count | None, sizes: Sequence[tuple[int, int]], caps: Caps) -> Binning | None:
    """Return the plan of a loop of `count` iterations, for arrays with `sizes` (number of elements,
    bytes of each), smallest first. As many of them get bins as fit and are profitable; None if not
    even one."""
    most_block = min(tuning.BLOCK, caps.workgroup_invocations)
    block = subgroup_width(caps) if caps.serial_groups else most_block
    meetings = caps.choose(tuning.BIN_ATOMICS)
    n = count[1] if count is not None and count[0] == "const" else None
    for arrays in range(len(sizes), 0, -1):
        elements = sum(size for size, _ in sizes[:arrays])
        needed = sum(size * each for size, each in sizes[:arrays])
        with_spare = needed + sum(each for _, each in sizes[:arrays])
        worth = meetings * elements
        has_room = needed <= tuning.BIN_BYTES and with_spare <= caps.shared_bytes
        if not has_room or (n is not None and n < worth):
            continue
        most = caps.choose(tuning.GROUPS)
        groups = most if n is None else max(1, min(most, n // worth))
        has_own = caps.serial_groups and with_spare * block <= caps.shared_bytes
        return Binning(arrays, groups, block, -(-worth // block), has_own)
    return None


# --- workgroups of one axis ----------------------------------------------------------------------


def choose_block(count: Count, caps: Caps) -> int:
    """Return the workgroup size of a loop over one axis.

    It is BLOCK or the device's limit, halved while it is more than a subgroup and half of
    it holds a constant count. A constant count gets the size of `exact_block` instead, if there is
    one.
    """
    most = min(tuning.BLOCK, caps.workgroup_invocations)
    if count[0] != "const":
        return most
    n: int = count[1]
    while most > caps.subgroup_size and most // 2 >= n:
        most //= 2
    return exact_block(n, most, caps) or most


def exact_block(n: int, preferred: int, caps: Caps) -> int | None:
    """Return `preferred` if workgroups of it leave no invocation idle.

    Else the nearest such size of whole subgroups from LEAST_EXACT_BLOCK to MOST_EXACT_BLOCK,
    or None.
    """
    if fills_groups(("const", n), preferred):
        return preferred
    step = max(1, caps.subgroup_size)
    top = min(tuning.MOST_EXACT_BLOCK, caps.workgroup_invocations)
    sizes = range(max(step, tuning.LEAST_EXACT_BLOCK // step * step), top + 1, step)
    found = [s for s in sizes if fills_groups(("const", n), s)]
    return min(found, key=lambda s: (abs(s - preferred), s), default=None)


def fills_groups(count: Count, block: int) -> bool:
    """True if the count is a constant that leaves no invocation of its workgroups idle."""
    if count[0] != "const" or count[1] % block:
        return False
    x, y = split_groups(count[1] // block)
    return x * y * block == int(count[1])


# --- workgroups of several axes ------------------------------------------------------------------


class PreferredTile(NamedTuple):
    """The preferred tile: `size` invocations, `width` of them along x. The size is mandatory if
    `is_demanded`."""

    size: int
    width: int
    is_demanded: bool = False


def wish_for(caps: Caps, *, is_square: bool, demand: int | None) -> PreferredTile:
    most, side = caps.workgroup_invocations, tuning.TILE_SIDE
    has_square = is_square and not caps.serial_groups
    if demand is not None:
        width = side if has_square and demand >= side * side else tuning.TILE_ROW
        return PreferredTile(demand, min(width, demand), is_demanded=True)
    if has_square:
        side = side if most >= side * side else side // 2
        return PreferredTile(side * side, side)
    return PreferredTile(min(tuning.BLOCK, most), tuning.TILE_ROW)


@lru_cache(maxsize=1024)
def choose_tile(
    extents: tuple[int | None, ...],
    caps: Caps,
    *,
    is_square: bool = False,
    demand: int | None = None,
) -> tuple[int, ...] | None:
    """Return the workgroup's length along each of two or three axes, slowest first. Cached.

    Returns None if all tiles waste too much, and in three cases: an extent is 0, no tile has the
    size `demand`, or the device allows only one workgroup along one of the axes.

    `extents`: None where unknown. `is_square`: memory lines are used along both fast axes.
    `demand`: mandatory number of invocations.
    """
    if 1 in caps.workgroup_count[: len(extents)]:
        return None
    wish = wish_for(caps, is_square=is_square, demand=demand)
    best, least = None, math.inf
    for tile in tiles(extents, caps, wish):
        idle, cost = cost_of(tile, extents, caps, wish)
        if idle <= tuning.TILE_WORST * idle_in_row(extents, caps) and cost < least:
            best, least = tile, cost
    return best


def idle_in_row(extents: Sequence[int | None], caps: Caps) -> float:
    """Return the invocations per iteration, idle ones included, if all iterations are in one row;
    about 1 if they are many."""
    total = math.prod(
        tuning.UNKNOWN_EXTENT if extent is None else max(1, extent) for extent in extents
    )
    return -(-total // caps.subgroup_size) * caps.subgroup_size / total


def tiles(extents: Sequence[int | None], caps: Caps, wish: PreferredTile) -> list[tuple[int, ...]]:
    most = min(caps.workgroup_invocations, max(wish.size, tuning.MOST_EXACT_BLOCK))
    fast_first = [
        lengths(extent, min(limit, most), wish)
        for extent, limit in zip(reversed(extents), caps.workgroup_size, strict=False)
    ]
    return [
        tile
        for tile in product(*reversed(fast_first))
        if (math.prod(tile) == wish.size if wish.is_demanded else math.prod(tile) <= most)
    ]


def lengths(extent: int | None, most: int, wish: PreferredTile) -> list[int]:
    """Return candidate tile lengths along an axis, less than twice a known extent: powers of two,
    and divisors of the extent unless the size is mandatory."""
    found = {1 << k for k in range(most.bit_length())}
    if extent is not None and not wish.is_demanded:
        found |= {n for n in range(3, min(most, 2 * tuning.TILE_ROW) + 1) if extent % n == 0}
        found = {n for n in found if n < 2 * extent}
    return sorted(found)


def cost_of(
    tile: tuple[int, ...], extents: Sequence[int | None], caps: Caps, wish: PreferredTile
) -> tuple[float, float]:
    """Return the invocations of a tile per iteration, idle ones included, and the tile's cost."""
    idle, guards = 1.0, 0
    for n, extent in zip(tile, extents, strict=True):
        long = tuning.UNKNOWN_EXTENT if extent is None else max(1, extent)
        idle *= -(-long // n) * n / long
        guards += extent is None or extent % n != 0
    width, size = tile[-1], math.prod(tile)
    row = width if caps.serial_groups else size
    idle *= -(-row // caps.subgroup_size) * caps.subgroup_size / row
    deviations = [abs(math.log2(width / wish.width)), abs(math.log2(size / wish.size))]
    flat = 0 if len(tile) < 3 else math.log2(tile[0])  # the third index should be uniform
    is_row_best = wish.width == wish.size and not caps.serial_groups
    rows = tuning.TILE_ROWS if is_row_best and width < size else 0.0
    deviation = sum(deviations) + 0.5 * flat
    return idle, idle + tuning.TILE_GUARD * guards + tuning.TILE_DEVIATION * deviation + rows
