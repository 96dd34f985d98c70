"""Cost model: device-dependent tuning constants and profitability decisions.

Devices are described by `Caps`, and are of two kinds, distinguished by `Caps.is_cpu`:

- *CPUs* (software drivers: Mesa's lavapipe, SwiftShader). One thread runs a workgroup, row by row
  along x, a subgroup at a time. Invocations beyond a row's end idle in its last subgroup. Starting
  an invocation costs more than an iteration of a loop. So a fixed number of invocations
  (`most_threads`) partitions a loop that has WORTH_A_LOOP iterations or more for each. Light loops,
  whose iterations are short and without loops, are partitioned from FEWEST_LIGHT iterations.
- *GPUs*. Starting an invocation is free, and integer division is slow. So each iteration has its
  own invocation, and the hardware's indices along up to three axes are the loop's. A workgroup is
  split into subgroups along x, then y, then z; invocations beyond its end idle in the last one. A
  workgroup of one row along x is best: all other indices are then uniform. Loops that read along
  one axis and write along another use tiles of TILE by TILE, so that each memory line is fully used
  while it is cached.

The cost of a tile (`cost_of`) is the number of invocations per iteration, plus penalties:

- GUARD for each axis whose extent is not known to be a multiple of the tile's length,
- ROWS for more than one row, on GPUs where one row is best,
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

from vkchi.target.caps import Caps
from vkchi.target.shader import Count, split_groups
from vkchi.tuples import NamedTuple

DEFAULT_BLOCK = 128
SMALLEST_EXACT_BLOCK = 32  # a smaller workgroup costs more than the guard that it saves
LARGEST_EXACT_BLOCK = 256

GROUPS_SOFTWARE = 64  # workgroups of a CPU
SPARE = 8  # a CPU is saturated by 1 / SPARE of the invocations if they run long
GROUPS_HARDWARE = 512
WORTH_A_LOOP = 4  # iterations per invocation
FEWEST_LIGHT = 2048  # light iterations from which a loop is partitioned
LIGHT_EACH, GROUPS_LIGHT = 8, 16  # iterations of an invocation; workgroups of a light loop

# Run time saved, times LAUNCHES, is compared with the driver's compile time for more code. In
# nanoseconds of CPU time, measured by `benchmarks/everyday.py` on lavapipe.
LAUNCHES = 200  # assumed launches of a kernel that matters
DISPATCH, OP = 5e6, 8e4  # compiling another dispatch, and an op in it
SAVED = 0.01  # run time of an op, per iteration; guards cost as much per op
WORD, ROUND = 3e6, 0.25  # compiling a lane's access to a word; running a lane's loop iteration
ALONE = 20.0  # an iteration that is alone in its memory line

FEW_ROUNDS = 4  # trip count up to which CPU drivers may fully unroll a loop
ROUNDS_EACH = 3  # iterations of a loop in serial code, for each lane that shares it

ATOMIC = 3.0  # an atomic float addition on a CPU
HANDED = 2.0  # a scalar stored by one loop and loaded by the next
LOADED = 0.2  # a load of a lane
GATHERED = 16  # recomputed ops that an eliminated atomic repays on GPUs

KEPT = 128  # scalars that a CPU invocation keeps in registers or spills
WRITTEN = 1024  # growth of a dispatch, in ops, by full unrolling of short loops
BY_TURNS = 2  # uniform loads per lane from which they are cooperative

SMALLEST_SUM = 256  # iterations of a reduction; fewer do not repay a loop
MEETINGS_SOFTWARE, MEETINGS_HARDWARE = 16, 4  # atomics per element from which bins are profitable
MOST_BIN_BYTES = 8192  # of bins in a workgroup: more reduce occupancy
WORK_SOFTWARE, WORK_HARDWARE = 8, 2  # least iterations per invocation of a long reduction

ROW, TILE = DEFAULT_BLOCK, 16  # invocations along x; along both axes of a square tile
GUARD = 0.02  # cost of a guard, as a share of invocations
ROWS = 0.1  # cost of several rows in a workgroup: row values are not uniform
STRAY = 0.03  # cost of a row or workgroup of twice or half the best length
WORST_TILE = 1.5  # most invocations, relative to one row; beyond, division by one axis is better
HUGE = 1 << 20  # assumed value of an unknown extent


def subgroup_width(caps: Caps) -> int:
    """Return the number of lanes that run side by side: the largest power of two within the
    subgroup size, at most DEFAULT_BLOCK."""
    return 1 << (min(max(1, caps.subgroup_size), DEFAULT_BLOCK).bit_length() - 1)


# --- loops partitioned among few invocations -----------------------------------------------------


def most_threads(caps: Caps, block: int = DEFAULT_BLOCK) -> int:
    """Return the number of invocations that saturates the device: whole workgroups of `block`."""
    return block * (GROUPS_SOFTWARE if caps.is_cpu else GROUPS_HARDWARE)


def least_threads(caps: Caps) -> int:
    """Return the number of invocations that saturates the device if each runs long."""
    return most_threads(caps) // (SPARE if caps.is_cpu else 1)


def is_worth_sharing(most: int, caps: Caps, *, is_light: bool) -> bool:
    """True if a loop of at most `most` iterations is best partitioned among few invocations; False
    on GPUs. A light iteration costs less than starting an invocation for it."""
    least = WORTH_A_LOOP * most_threads(caps)
    return caps.is_cpu and most >= (min(least, FEWEST_LIGHT) if is_light else least)


def sharing_threads(count: Count | None, caps: Caps) -> tuple[int, int | None]:
    """Return the number of invocations that partition a loop of `count` iterations, and their
    workgroup size; None is the default size."""
    most = most_threads(caps)
    if count is None or count[0] != "const" or count[1] >= WORTH_A_LOOP * most:
        return most, None
    block = subgroup_width(caps)
    while block < DEFAULT_BLOCK and block * GROUPS_LIGHT * LIGHT_EACH < count[1]:
        block *= 2
    return block * max(1, min(GROUPS_SOFTWARE, count[1] // (block * LIGHT_EACH))), block


def is_worth_splitting(work: int, middle: int, boundary: int, caps: Caps) -> bool:
    """True if index-set splitting of a loop is profitable; False on GPUs, where whole subgroups
    branch.

    An iteration has `work` ops. Each of the `middle` interior iterations gains in proportion to
    `work`, and each of the `boundary` iterations loses, as it is alone in its memory line. The code
    is compiled twice.
    """
    gain = SAVED * work * middle - ALONE * boundary
    return caps.is_cpu and LAUNCHES * gain >= DISPATCH + OP * work


def words_per_iteration(most: int, loads: int, rounds: int) -> int:
    """Return the words of each array to reduce in one iteration on a CPU: a power of two, up to
    `most`. More words mean fewer iterations and more code.

    `loads`: loads of the loop's body. `rounds`: iterations with one word each.
    """
    words = [1 << k for k in range(most.bit_length())]
    return min(words, key=lambda n: WORD * loads * n + LAUNCHES * ROUND * rounds / n)


def is_worth_lanes(rounds: int, width: int) -> bool:
    """True if `width` lanes should share a serial loop of `rounds` iterations, despite the barrier:
    from ROUNDS_EACH iterations per lane."""
    return rounds >= ROUNDS_EACH * width


def is_worth_gathering(atomics: int, ops: int, iterations: int, caps: Caps) -> bool:
    """True if replacing atomics by a gather is profitable. An iteration saves `atomics` atomics and
    recomputes `ops` ops.

    On CPUs, the gain in all `iterations` must also repay the compilation of three dispatches and of
    the ops.
    """
    if not caps.is_cpu:
        return ops <= GATHERED * atomics
    gain = (ATOMIC * atomics - SAVED * ops) * iterations
    return LAUNCHES * gain >= 3 * DISPATCH + 2 * OP * ops


def is_worth_expanding(before: float, after: float, numbers: int, caps: Caps) -> bool:
    """True if moving reductions to a second loop is profitable. `before` and `after` are the costs
    of the reductions per launch, in nanoseconds.

    The gain must repay storing and loading `numbers` scalars and, on CPUs, a dispatch.
    """
    dispatch = DISPATCH / LAUNCHES if caps.is_cpu else 0.0
    return before >= after + HANDED * numbers + dispatch


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
    GPUs, and beyond KEPT scalars or WRITTEN ops.

    Also False if the loads are uniform and the outer loop is long enough for cooperative loads
    (`broadcast`).
    """
    if not caps.is_cpu or repeated.numbers > KEPT or repeated.ops > WRITTEN:
        return False
    return not (repeated.is_alike and repeated.rounds >= BY_TURNS * subgroup_width(caps))


def reduction_threads(count: Count | None, caps: Caps) -> int | None:
    """Return the number of invocations that partition a reduction loop, a power of two; None for a
    constant count below SMALLEST_SUM."""
    most = most_threads(caps)
    if count is None or count[0] != "const":
        return most
    n: int = count[1]
    if n < SMALLEST_SUM:
        return None
    share = n // (WORK_SOFTWARE if caps.is_cpu else WORK_HARDWARE)
    return min(most, max(DEFAULT_BLOCK, 1 << (share.bit_length() - 1)))


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
    block = subgroup_width(caps) if caps.is_cpu else min(DEFAULT_BLOCK, caps.workgroup_invocations)
    meetings = MEETINGS_SOFTWARE if caps.is_cpu else MEETINGS_HARDWARE
    n = count[1] if count is not None and count[0] == "const" else None
    for arrays in range(len(sizes), 0, -1):
        elements = sum(size for size, _ in sizes[:arrays])
        needed = sum(size * each for size, each in sizes[:arrays])
        with_spare = needed + sum(each for _, each in sizes[:arrays])
        worth = meetings * elements
        has_room = needed <= MOST_BIN_BYTES and with_spare <= caps.shared_bytes
        if not has_room or (n is not None and n < worth):
            continue
        most = GROUPS_SOFTWARE if caps.is_cpu else GROUPS_HARDWARE
        groups = most if n is None else max(1, min(most, n // worth))
        has_own = caps.is_cpu and with_spare * block <= caps.shared_bytes
        return Binning(arrays, groups, block, -(-worth // block), has_own)
    return None


# --- workgroups of one axis ----------------------------------------------------------------------


def choose_block(count: Count, caps: Caps) -> int:
    """Return the workgroup size of a loop over one axis.

    It is DEFAULT_BLOCK or the device's limit, halved while it is more than a subgroup and half of
    it holds a constant count. A constant count gets the size of `exact_block` instead, if there is
    one.
    """
    most = min(DEFAULT_BLOCK, caps.workgroup_invocations)
    if count[0] != "const":
        return most
    n: int = count[1]
    while most > caps.subgroup_size and most // 2 >= n:
        most //= 2
    return exact_block(n, most, caps) or most


def exact_block(n: int, preferred: int, caps: Caps) -> int | None:
    """Return `preferred` if workgroups of it leave no invocation idle.

    Else the nearest such size of whole subgroups from SMALLEST_EXACT_BLOCK to LARGEST_EXACT_BLOCK,
    or None.
    """
    if fills_groups(("const", n), preferred):
        return preferred
    step = max(1, caps.subgroup_size)
    top = min(LARGEST_EXACT_BLOCK, caps.workgroup_invocations)
    sizes = range(max(step, SMALLEST_EXACT_BLOCK // step * step), top + 1, step)
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
    most = caps.workgroup_invocations
    if demand is not None:
        width = TILE if is_square and demand >= TILE * TILE and not caps.is_cpu else ROW
        return PreferredTile(demand, min(width, demand), is_demanded=True)
    if is_square and not caps.is_cpu:
        return (
            PreferredTile(TILE * TILE, TILE)
            if most >= TILE * TILE
            else PreferredTile(TILE * TILE // 4, TILE // 2)
        )
    return PreferredTile(min(DEFAULT_BLOCK, most), ROW)


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
        if idle <= WORST_TILE * idle_in_row(extents, caps) and cost < least:
            best, least = tile, cost
    return best


def idle_in_row(extents: Sequence[int | None], caps: Caps) -> float:
    """Return the invocations per iteration, idle ones included, if all iterations are in one row;
    about 1 if they are many."""
    total = math.prod(HUGE if extent is None else max(1, extent) for extent in extents)
    return -(-total // caps.subgroup_size) * caps.subgroup_size / total


def tiles(extents: Sequence[int | None], caps: Caps, wish: PreferredTile) -> list[tuple[int, ...]]:
    most = min(caps.workgroup_invocations, max(wish.size, LARGEST_EXACT_BLOCK))
    fast_first = [
        lengths(extent, min(limit, most), caps, wish)
        for extent, limit in zip(reversed(extents), caps.workgroup_size, strict=False)
    ]
    return [
        tile
        for tile in product(*reversed(fast_first))
        if (math.prod(tile) == wish.size if wish.is_demanded else math.prod(tile) <= most)
    ]


def lengths(extent: int | None, most: int, caps: Caps, wish: PreferredTile) -> list[int]:
    """Return candidate tile lengths along an axis, less than twice a known extent: powers of two,
    and divisors of the extent unless the size is mandatory."""
    found = {1 << k for k in range(most.bit_length())}
    if extent is not None and not wish.is_demanded:
        found |= {n for n in range(3, min(most, 2 * ROW) + 1) if extent % n == 0}
        found = {n for n in found if n < 2 * extent}
    return sorted(found)


def cost_of(
    tile: tuple[int, ...], extents: Sequence[int | None], caps: Caps, wish: PreferredTile
) -> tuple[float, float]:
    """Return the invocations of a tile per iteration, idle ones included, and the tile's cost."""
    idle, guards = 1.0, 0
    for n, extent in zip(tile, extents, strict=True):
        long = HUGE if extent is None else max(1, extent)
        idle *= -(-long // n) * n / long
        guards += extent is None or extent % n != 0
    width, size = tile[-1], math.prod(tile)
    row = width if caps.is_cpu else size
    idle *= -(-row // caps.subgroup_size) * caps.subgroup_size / row
    deviations = [abs(math.log2(width / wish.width)), abs(math.log2(size / wish.size))]
    flat = 0 if len(tile) < 3 else math.log2(tile[0])  # the third index should be uniform
    is_row_best = wish.width == wish.size and not caps.is_cpu
    rows = ROWS if is_row_best and width < size else 0.0
    return idle, idle + GUARD * guards + STRAY * (sum(deviations) + 0.5 * flat) + rows
