"""What devices like, as numbers: the one place that knows.

A device is described by its `Caps`, and of one of two kinds, told apart by `Caps.is_cpu`:

- *CPUs* (software drivers: Mesa's lavapipe, SwiftShader). A workgroup is run by one thread, row by
  row along x, a subgroup at a time. Invocations beyond a row's end idle in its last subgroup.
  Starting an invocation costs as much as a few operations, a loop much less. So from WORTH_A_LOOP
  iterations for each on, as many invocations as keep the threads busy (`most_threads`) share a
  loop, in contiguous pieces, which are streams that the prefetcher follows. For light iterations,
  without inner loops, FEWEST_LIGHT of them suffice, LIGHT_EACH per invocation.
- *GPUs*, with subgroups of any width (16 on Mali and VideoCore). Starting an invocation costs
  nothing, integer division 20 to 40 instructions. So each iteration has an invocation of its own,
  and the hardware's indices along up to three axes are the loop's. A workgroup is cut into
  subgroups along x, then y, then z; invocations beyond its end idle in the last one. A workgroup
  of one row along x is best: all other indices are then uniform in it, and addresses of rows and
  comparisons are computed once. Memory is fetched in lines of 64 to 128 bytes. Loops that read
  along one axis and write along another have tiles of TILE by TILE, so that each line is used
  whole while it is in the cache.

A tile's cost (`cost_of`) is the share of invocations that idle, at the edges and in subgroups,
GUARD more for each comparison that keeps some from running, ROWS for more than one row, and STRAY
for each doubling that a row or a workgroup is away from what is best. Where the extents are not
known, edges cost nothing: the launch takes another tile where these turn out to be short
(`launch/fitting.py`).

Must not know: the IR.

    >>> choose_tile((1000, 3), caps)         # slowest axis first
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
SMALLEST_EXACT_BLOCK = 32  # a smaller workgroup costs more than the guard that it would save
LARGEST_EXACT_BLOCK = 256

GROUPS_SOFTWARE = 64  # workgroups of a CPU
SPARE = 8  # so many times fewer invocations keep a processor busy, if they are longer
GROUPS_HARDWARE = 512
WORTH_A_LOOP = 4  # iterations per invocation
FEWEST_LIGHT = 2048  # iterations that are light, and partitioned
LIGHT_EACH, GROUPS_LIGHT = 8, 16  # of each invocation, and workgroups that are enough for them

# What running gains, times LAUNCHES, is held against what the driver takes to compile more code. In
# nanoseconds of a processor's time, as `benchmarks/everyday.py` takes them on lavapipe.
LAUNCHES = 200  # of a kernel that is worth any thought
DISPATCH, OP = 5e6, 8e4  # compiling another dispatch, and an op in it
SAVED = 0.01  # per op and iteration that asks nothing
WORD, ROUND = 3e6, 0.25  # compiling a lane's access to a word, and a lane's round of a loop
ALONE = 20.0  # an iteration alone in its line of memory

FEW_ROUNDS = 4  # of a loop, which a processor's driver may write one after the other
ROUNDS_EACH = 3  # of a loop in serial code, for each of the lanes that share it

ATOMIC = 3.0  # a sum of floats that others may disturb, on a processor
HANDED = 2.0  # a number that one loop hands on to the next
LOADED = 0.2  # a load of a lane
GATHERED = 16  # ops that are done again, for each atomic that is none then, on graphics cards

KEPT = 128  # numbers that an invocation of a processor keeps, in registers or beside them
WRITTEN = 1024  # more ops of a dispatch, for short loops that are written out
BY_TURNS = 2  # loads of each invocation of a subgroup, from which on they are made by turns

SMALLEST_SUM = 256  # iterations of a loop that sums up; fewer are not worth a loop
MEETINGS_SOFTWARE, MEETINGS_HARDWARE = 16, 4  # at an element, from which on bins are worth it
MOST_BIN_BYTES = 8192  # of bins in a workgroup's memory: more leave room for few workgroups
WORK_SOFTWARE, WORK_HARDWARE = 8, 2  # of them per invocation at least, where there are enough

ROW, TILE = DEFAULT_BLOCK, 16  # invocations along x; both ways, where lines are used both ways
GUARD = 0.02  # what a comparison costs, as a share of invocations
ROWS = 0.1  # what it costs that a workgroup is of several rows, as computing what is one row's does
STRAY = 0.03  # what a row, or a workgroup, of twice or half the best length costs
WORST_TILE = 1.5  # invocations to those of one row; beyond that, dividing there is better
HUGE = 1 << 20  # what an extent is taken to be that nobody knows


def subgroup_width(caps: Caps) -> int:
    """The invocations that run side by side: the largest power of two in a subgroup's size."""
    return 1 << (min(max(1, caps.subgroup_size), DEFAULT_BLOCK).bit_length() - 1)


# --- loops partitioned among few invocations -----------------------------------------------------


def most_threads(caps: Caps, block: int = DEFAULT_BLOCK) -> int:
    """The invocations that keep the device busy, in whole workgroups; more only cost."""
    return block * (GROUPS_SOFTWARE if caps.is_cpu else GROUPS_HARDWARE)


def least_threads(caps: Caps) -> int:
    """The invocations that keep the device busy where each has more to do."""
    return most_threads(caps) // (SPARE if caps.is_cpu else 1)


def is_worth_sharing(most: int, caps: Caps, *, is_light: bool) -> bool:
    """Whether a loop of so many iterations, at most, is best partitioned; of light ones, to begin
    an invocation for each costs more than to do what is in it."""
    least = WORTH_A_LOOP * most_threads(caps)
    return caps.is_cpu and most >= (min(least, FEWEST_LIGHT) if is_light else least)


def sharing_threads(count: Count | None, caps: Caps) -> tuple[int, int | None]:
    """The invocations that share a loop of so many iterations, and their workgroup's size: the
    default one (None), or as many workgroups as keep the device busy."""
    most = most_threads(caps)
    if count is None or count[0] != "const" or count[1] >= WORTH_A_LOOP * most:
        return most, None
    block = subgroup_width(caps)
    while block < DEFAULT_BLOCK and block * GROUPS_LIGHT * LIGHT_EACH < count[1]:
        block *= 2
    return block * max(1, min(GROUPS_SOFTWARE, count[1] // (block * LIGHT_EACH))), block


def is_worth_splitting(work: int, middle: int, strays: int, caps: Caps) -> bool:
    """Whether the edges of a loop are best a dispatch of their own: of iterations of so many ops,
    those in the middle gain, the strays at the ends of rows lose, and the code is compiled twice.
    Graphics cards take branches that whole subgroups take, so they gain little."""
    gain = SAVED * work * middle - ALONE * strays
    return caps.is_cpu and LAUNCHES * gain >= DISPATCH + OP * work


def words_a_round(most: int, loads: int, rounds: int) -> int:
    """How many words of each array a processor's loop is best that adds up what it loads, a power
    of two: that many times fewer rounds, and more code."""
    words = [1 << k for k in range(most.bit_length())]
    return min(words, key=lambda n: WORD * loads * n + LAUNCHES * ROUND * rounds / n)


def is_worth_lanes(rounds: int, width: int) -> bool:
    """Whether a loop of so many rounds in serial code is best shared by the lanes of a workgroup,
    which then wait for each other."""
    return rounds >= ROUNDS_EACH * width


def is_worth_gathering(atomics: int, ops: int, iterations: int, caps: Caps) -> bool:
    """Whether elements are best gathered that so many atomics of an iteration add to, if so many
    ops are done for that, in two or three dispatches more."""
    if not caps.is_cpu:
        return ops <= GATHERED * atomics
    gain = (ATOMIC * atomics - SAVED * ops) * iterations
    return LAUNCHES * gain >= 3 * DISPATCH + 2 * OP * ops


def is_worth_expanding(before: float, after: float, numbers: int, caps: Caps) -> bool:
    """Whether sums are best done in a loop behind theirs, where so many numbers are handed on for
    that; what they cost before and after, in nanoseconds."""
    dispatch = DISPATCH / LAUNCHES if caps.is_cpu else 0.0
    return before >= after + HANDED * numbers + dispatch


class Repeated(NamedTuple):
    """What short loops load again in each round of a loop around them: so many numbers of 32 bits,
    in so many rounds; with these and all others that are, a dispatch is so many ops longer.
    `is_alike`: all invocations of a
    subgroup are there, and load from one place."""

    numbers: int
    rounds: int
    ops: int
    is_alike: bool


def is_worth_keeping(repeated: Repeated, caps: Caps) -> bool:
    """Whether it is best loaded once, before the loop around, and kept.

    On processors that pays even where it is many times what registers hold: what does not fit is
    stored on the stack, whence it comes for all invocations at once, while a load from an array is
    one for each of them, under a mask. Loads that are alike are one already, and many of them are
    made by turns. Graphics cards have caches for what is the same for many, and fewer invocations
    under way for each register that one of them keeps."""
    if not caps.is_cpu or repeated.numbers > KEPT or repeated.ops > WRITTEN:
        return False
    return not (repeated.is_alike and repeated.rounds >= BY_TURNS * subgroup_width(caps))


def summing_threads(count: Count | None, caps: Caps) -> int | None:
    """The invocations that share a loop that sums up, a power of two; None for too few
    iterations."""
    most = most_threads(caps)
    if count is None or count[0] != "const":
        return most
    n: int = count[1]
    if n < SMALLEST_SUM:
        return None
    share = n // (WORK_SOFTWARE if caps.is_cpu else WORK_HARDWARE)
    return min(most, max(DEFAULT_BLOCK, 1 << (share.bit_length() - 1)))


class Binning(NamedTuple):
    """How workgroups of `block` invocations gather what goes to the first so many `arrays`: at most
    `groups` of them, each invocation going through at least so many iterations, with bins of its
    own, or those of its workgroup."""

    arrays: int
    groups: int
    block: int
    least: int
    has_own: bool


def plan_bins(count: Count | None, sizes: Sequence[tuple[int, int]], caps: Caps) -> Binning | None:
    """How a loop of so many iterations gets bins for arrays of these numbers of elements, and bytes
    of each; None where that is worth it for none."""
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


# --- workgroups of several axes ------------------------------------------------------------------


class Wish(NamedTuple):
    """What a tile should be like: so many invocations, `width` of them along x; exactly so many if
    `is_demanded`."""

    size: int
    width: int
    is_demanded: bool = False


def wish_for(caps: Caps, *, is_square: bool, demand: int | None) -> Wish:
    """What is best where the extents allow it."""
    most = caps.workgroup_invocations
    if demand is not None:
        width = TILE if is_square and demand >= TILE * TILE and not caps.is_cpu else ROW
        return Wish(demand, min(width, demand), is_demanded=True)
    if is_square and not caps.is_cpu:
        return Wish(TILE * TILE, TILE) if most >= TILE * TILE else Wish(TILE * TILE // 4, TILE // 2)
    return Wish(min(DEFAULT_BLOCK, most), ROW)


@lru_cache(maxsize=1024)
def choose_tile(
    extents: tuple[int | None, ...],
    caps: Caps,
    *,
    is_square: bool = False,
    demand: int | None = None,
) -> tuple[int, ...] | None:
    """The workgroup's length along each of two or three axes, the slowest first, whose extents are
    these as far as they are known; None where all waste too much, or workgroups are counted along x
    alone. `is_square`: lines are used along
    both fast axes. `demand`: the invocations that it must have."""
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
    """The invocations per iteration where all stand in one row: more than one where there are few
    iterations."""
    total = math.prod(HUGE if extent is None else max(1, extent) for extent in extents)
    return -(-total // caps.subgroup_size) * caps.subgroup_size / total


def tiles(extents: Sequence[int | None], caps: Caps, wish: Wish) -> list[tuple[int, ...]]:
    """The tiles that are worth a look, of those that the device can run."""
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


def lengths(extent: int | None, most: int, caps: Caps, wish: Wish) -> list[int]:
    """Lengths of a tile along an axis: powers of two, what is the extent, or divides it."""
    found = {1 << k for k in range(most.bit_length())}
    if extent is not None and not wish.is_demanded:
        found |= {n for n in range(3, min(most, 2 * ROW) + 1) if extent % n == 0}
        found = {n for n in found if n < 2 * extent}
    return sorted(found)


def cost_of(
    tile: tuple[int, ...], extents: Sequence[int | None], caps: Caps, wish: Wish
) -> tuple[float, float]:
    """The invocations per iteration that a tile takes, idle ones included, and its cost."""
    idle, guards = 1.0, 0
    for n, extent in zip(tile, extents, strict=True):
        long = HUGE if extent is None else max(1, extent)
        idle *= -(-long // n) * n / long
        guards += extent is None or extent % n != 0
    width, size = tile[-1], math.prod(tile)
    row = width if caps.is_cpu else size
    idle *= -(-row // caps.subgroup_size) * caps.subgroup_size / row
    strays = [abs(math.log2(width / wish.width)), abs(math.log2(size / wish.size))]
    flat = 0 if len(tile) < 3 else math.log2(tile[0])  # the third index is best the workgroup's
    is_row_best = wish.width == wish.size and not caps.is_cpu
    rows = ROWS if is_row_best and width < size else 0.0
    return idle, idle + GUARD * guards + STRAY * (sum(strays) + 0.5 * flat) + rows
