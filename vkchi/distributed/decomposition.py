"""Block decomposition of a grid over ranks: extents, arrangement, halo boxes, neighbours.

Pure functions of integers. Boxes are pairs (begin, end) of global indices per axis.

>>> split(10, 4)
[(0, 3), (3, 6), (6, 8), (8, 10)]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise, product

from vkchi.errors import ArgumentError
from vkchi.tuples import NamedTuple

Box = tuple[tuple[int, int], ...]
Direction = tuple[int, ...]  # -1, 0 or 1 per axis


def split(extent: int, parts: int) -> list[tuple[int, int]]:
    """Ranges of almost equal length: the first `extent % parts` are longer by one."""
    least, more = divmod(extent, parts)
    starts = [k * least + min(k, more) for k in range(parts + 1)]
    return list(pairwise(starts))


def strip(ends: tuple[int, int], side: int, width: int) -> tuple[int, int]:
    """The cells next to a side of a range, outside of it for a negative width; all for side 0."""
    if not side:
        return ends
    at = ends[side > 0]
    return min(at, at - side * width), max(at, at - side * width)


def factorizations(size: int, axes: int) -> Iterator[tuple[int, ...]]:
    """All tuples of `axes` positive integers whose product is `size`."""
    if axes == 1:
        yield (size,)
        return
    for first in range(size, 0, -1):
        if size % first == 0:
            yield from ((first, *rest) for rest in factorizations(size // first, axes - 1))


def box_shape(box: Box) -> tuple[int, ...]:
    return tuple(end - begin for begin, end in box)


def box_size(box: Box) -> int:
    return math.prod(box_shape(box))


class Decomposition(NamedTuple):
    """Division of `shape` into a block per rank. `order` has the rank at each position of the
    arrangement `ranks`, row-major."""

    shape: tuple[int, ...]
    halo: int
    periodic: tuple[bool, ...]
    ranks: tuple[int, ...]
    order: tuple[int, ...]

    def position(self, rank: int) -> tuple[int, ...]:
        """Index of a rank's block along each axis."""
        at, found = self.order.index(rank), []
        for extent in reversed(self.ranks):
            at, k = divmod(at, extent)
            found.append(k)
        return tuple(reversed(found))

    def owned(self, rank: int) -> Box:
        """The cells of a rank's block."""
        parts = zip(self.shape, self.ranks, self.position(rank))
        return tuple(split(extent, count)[k] for extent, count, k in parts)

    def neighbor(self, rank: int, direction: Direction) -> int | None:
        """The rank of the adjacent block, perhaps `rank` itself; None outside the domain."""
        at = 0
        for axis, k in enumerate(self.position(rank)):
            k, count = k + direction[axis], self.ranks[axis]
            if self.periodic[axis]:
                k %= count
            elif not 0 <= k < count:
                return None
            at = at * count + k
        return self.order[at]

    def directions(self) -> list[Direction]:
        return [d for d in product((-1, 0, 1), repeat=len(self.shape)) if any(d)]

    def peers(self, rank: int) -> list[int]:
        """The distinct neighbours, in order of rank; perhaps `rank` itself."""
        if not self.halo:
            return []
        found = {self.neighbor(rank, d) for d in self.directions()}
        return sorted(p for p in found if p is not None)

    def sent(self, rank: int, peer: int) -> list[Box]:
        """Owned boxes that are copied to the halo of a neighbour, in order of direction."""
        own = self.owned(rank)
        return [
            tuple(strip(ends, d, self.halo) for ends, d in zip(own, direction))
            for direction in self.directions()
            if self.neighbor(rank, direction) == peer
        ]

    def received(self, rank: int, peer: int) -> list[Box]:
        """Halo boxes that the neighbour fills, in the order of its `sent`."""
        own = self.owned(rank)
        return [
            tuple(strip(ends, -d, -self.halo) for ends, d in zip(own, direction))
            for direction in self.directions()
            if self.neighbor(rank, tuple(-d for d in direction)) == peer
        ]

    def interior(self, rank: int) -> Box:
        """Owned cells with at least `halo` cells between them and each neighbour."""
        found = []
        for axis, (begin, end) in enumerate(self.owned(rank)):
            side = [0] * axis + [1] + [0] * (len(self.shape) - axis - 1)
            has_low = self.neighbor(rank, tuple(-d for d in side)) is not None
            has_high = self.neighbor(rank, tuple(side)) is not None
            first = min(end, begin + self.halo * has_low)
            found.append((first, max(first, end - self.halo * has_high)))
        return tuple(found)

    def border(self, rank: int) -> list[Box]:
        """Disjoint boxes that cover the owned cells outside the interior."""
        own, inner, found = self.owned(rank), self.interior(rank), []
        for axis, ((begin, end), (first, last)) in enumerate(zip(own, inner)):
            for part in ((begin, first), (last, end)):
                found.append((*inner[:axis], part, *own[axis + 1 :]))
        return [box for box in found if all(begin < end for begin, end in box)]


def cut_surface(shape: Sequence[int], ranks: Sequence[int], periodic: Sequence[bool]) -> int:
    """Number of cells on cuts between blocks."""
    total, cuts = math.prod(shape), 0
    for extent, count, wraps in zip(shape, ranks, periodic):
        cuts += total // extent * (count if wraps and count > 1 else count - 1)
    return cuts


def most_ranks(shape: Sequence[int], halo: int) -> tuple[int, ...]:
    """The largest number of blocks of each axis that are not narrower than the halo."""
    return tuple(max(1, extent // max(1, halo)) for extent in shape)


def choose_ranks(
    shape: Sequence[int], halo: int, periodic: Sequence[bool], size: int
) -> tuple[int, ...]:
    """The arrangement of `size` ranks with the least cut surface; on ties, axis 0 is divided more.

    Raises ArgumentError if none has blocks of at least `halo` cells.
    """
    most = most_ranks(shape, halo)
    fitting = [
        ranks for ranks in factorizations(size, len(shape))
        if all(count <= limit for count, limit in zip(ranks, most))
    ]  # fmt: skip
    if not fitting:
        raise ArgumentError(
            f"Grid: {size} ranks do not fit a grid of shape {tuple(shape)} with halo={halo}: "
            f"at most ranks={most}; start fewer processes or use a smaller halo"
        )
    return min(fitting, key=lambda ranks: cut_surface(shape, ranks, periodic))


def check_ranks(
    shape: Sequence[int], halo: int, periodic: Sequence[bool], ranks: Sequence[int], size: int
) -> None:
    """Raise ArgumentError unless the arrangement has `size` ranks, no empty blocks, and no block of
    a divided or periodic axis that is narrower than the halo."""
    if math.prod(ranks) != size:
        raise ArgumentError(f"Grid: ranks={tuple(ranks)} has {math.prod(ranks)} blocks, and the "
                            f"group has {size} ranks")  # fmt: skip
    fix = f"at most ranks={most_ranks(shape, halo)}"
    for axis, (extent, count, wraps) in enumerate(zip(shape, ranks, periodic)):
        if count > extent:
            raise ArgumentError(f"Grid: axis {axis} has {extent} cells for {count} ranks: {fix}")
        if (count > 1 or wraps) and halo > extent // count:
            raise ArgumentError(
                f"Grid: halo={halo} is wider than a block of {extent // count} cells on axis "
                f"{axis}: {fix}, or a smaller halo"
            )
