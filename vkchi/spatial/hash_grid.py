"""Fixed-radius neighbour search: points in cells of a hashed grid, sorted by cell.

A cell (x, y, z) is in bucket (x + A y + B z) mod T. The cells of a row along x are a range of
buckets. A and B are such that the 3 by 3 rows of cells around a point are disjoint ranges; so no
point is found twice. Points of other cells in these buckets are too far away, and fail the distance
test. Of each row, only the cells are visited that the sphere around the point intersects.

Source: Teschner et al., "Optimized spatial hashing for collision detection of deformable objects",
2003; a lattice replaces their hash function. Its generators are those of Roberts' sequence R_d.

    grid = HashGrid(x, 0.1)
    for j in grid.near(p): ...              # in a kernel
"""

from __future__ import annotations

import math
from itertools import product
from numbers import Real
from operator import mul
from typing import Any

from vkchi.algorithms.array_kernels import check_array, library_func, on_arrays
from vkchi.algorithms.radix_sort import PairSort, permute
from vkchi.errors import ArgumentError
from vkchi.fields.constructors import field, vector_field
from vkchi.fields.storage import Storage
from vkchi.lang.compile_time import static
from vkchi.lang.elementwise import bit_cast, floor, select, sqrt
from vkchi.lang.elementwise import max as greatest
from vkchi.lang.math import clamp, isinf, isnan
from vkchi.lang.matrix import Vector
from vkchi.types import Tensor, f32, i32, template, u32, vector
from vkchi.types.lazy_numpy import np

CELL_PER_RADIUS = 1 + 2**-7  # margin for rounding, for points within FARTHEST cells of the origin
FARTHEST = 1 << 16
REACH = 1 / CELL_PER_RADIUS * (1 + 2**-16)  # the radius in cells, with a margin for rounding
ROUNDING = 2**-8  # of a difference between two coordinates in cells
FINE = 4  # cells along x for a cell along y or z: a row of cells is a range of buckets anyway
RUN = 2 * FINE + 1  # most cells of a row around a point
MOST_CELL = 1 << 30  # cells farther out along an axis count as this one
LEAST_BUCKETS, MOST_BUCKETS = 1024, 1 << 30


def row_strides(buckets: int) -> tuple[int, int]:
    """Return A and B for a power of two of buckets: the rows of RUN cells around a cell are
    disjoint."""
    ratio = 1.32471795724474602596  # root of r**3 = r + 1
    first = int(buckets / ratio) | 1
    second = int(buckets / ratio**2) | 1
    offsets = [k for k in product(range(-2, 3), repeat=2) if any(k)]
    for step in range(0, buckets, 2):
        a, b = first, (second + step) % buckets
        apart = [(a * y + b * z + RUN - 1) % buckets for y, z in offsets]
        if min(apart) > 2 * RUN - 2:
            return a, b
    raise AssertionError(buckets)


@library_func
def scaled_of(p: Any, inverse: Any) -> Any:
    """A point in units of cells, in f32 or f64."""
    scaled = p * f32(inverse)
    scaled[0] *= FINE
    return scaled


@library_func
def cell_of(scaled: Any) -> Any:
    """Integer coordinates of the cell of a point. That of nan is arbitrary."""
    return i32(clamp(floor(scaled), -MOST_CELL, MOST_CELL))


@library_func
def floor_small(x: Any) -> Any:
    """The floor of a float from 0 to 255, as i32. Mesa's CPU driver executes conversions lane by
    lane, but not additions."""
    return bit_cast(f32(floor(x)) + f32(1 << 23), i32) & 0xFF


@library_func
def reach_beside(inside: Any, side: template()) -> Any:  # type: ignore[valid-type]
    """Squared reach along x, in cells, in the row of cells on a side; negative if it is too far.

    `inside` is the point's position in its cell. In a row beside it, the least distance of a point
    is that of the cell's border.
    """
    left = select(False, inside[0], REACH * REACH)
    for axis in static([k for k, step in enumerate(side) if step]):
        away = inside[1 + axis]
        if static(side[axis] > 0):
            away = 1 - away
        away = greatest(away - ROUNDING, 0)
        left -= away * away
    return left


@library_func
def product_of(cell: Any, stride: Any) -> Any:
    """cell * stride modulo 2**30, without overflow, which debug mode would report."""
    low, high = cell & 0x7FFF, (cell >> 15) & 0x7FFF
    upper = low * (stride >> 15) + high * (stride & 0x7FFF)
    return (low * (stride & 0x7FFF) + ((upper & 0x7FFF) << 15)) & (MOST_BUCKETS - 1)


@library_func
def bucket_of(cell: Any, strides: Any) -> Any:
    """Bucket of a cell before the remainder by their number."""
    found = cell[0] & (MOST_BUCKETS - 1)
    for k in static(range(1, cell.n)):
        found = (found + product_of(cell[k], strides[k - 1])) & (MOST_BUCKETS - 1)
    return found


@on_arrays(at=i32, n=i32, buckets=i32, a=i32, b=i32, inverse=f32)
def load_buckets(
    points: Any, pairs: Any, at: Any, n: Any, buckets: Any, a: Any, b: Any, inverse: Any
) -> None:
    """Set pair k to the bucket of point k, `buckets` for points with nan or infinity, and k."""
    for k in range(n):
        p = points[at + k]
        bucket = bucket_of(cell_of(scaled_of(p, inverse)), Vector([a, b])) & (buckets - 1)
        if (isnan(p) | isinf(p)).any():
            bucket = buckets
        pairs[k] = Vector([u32(bucket), u32(k)])


@on_arrays(at=i32, n=i32, buckets=i32)
def store_cells(
    points: Any, pairs: Any, order: Any, positions: Any, starts: Any, at: Any, n: Any, buckets: Any
) -> None:
    """Store the order, the positions in that order, and where each bucket starts.

    starts[buckets] is the number of points in buckets. The elements after it continue the buckets
    cyclically.
    """
    for k in range(n + 1):
        last, bucket = -1, buckets
        if k > 0:
            last = i32(pairs[k - 1][0])
        if k < n:
            pair = pairs[k]
            bucket = i32(pair[0])
            index = at + i32(pair[1])
            order[k] = index
            positions[k] = points[index]
        for filled in range(last + 1, bucket + 1):
            starts[filled] = k
    for k in range(1, RUN):
        starts[buckets + k] = starts[buckets] + starts[k]


@on_arrays(at=i32, n=i32)
def count_up(order: Any, at: Any, n: Any) -> None:
    for k in range(n):
        order[k] = at + k


class HashGrid:
    """Points in one-dimensional arrays of 2-D or 3-D vectors, for queries of a fixed radius.

    In a kernel, `for j in grid.near(p)` iterates over the points within `radius` of p, in no
    particular order: |points[j] - p|**2 <= radius**2, with the positions at the last `build`.
    Points with nan or infinity are near no point, and no point is near them.

    Precondition: coordinates are at most FARTHEST radii. Points farther out may be missed.

    Attributes:
        points: the array.
        radius: a Python number, a constant in kernels.
        order: a field of ti.i32. order[k] is the index of the k-th point in the order of cells.

    Source: NVIDIA Warp's HashGrid has similar queries.
    """

    def __init__(self, points: Storage, radius: float) -> None:
        """Build the grid.

        Args:
            points: a one-dimensional field or ndarray of vectors of 2 or 3 floats.
            radius: a positive number.

        Raises:
            ArgumentError: for other arguments.
        """
        check_array("HashGrid", "points", points, 1)
        t = points.seen_elem
        is_vector = isinstance(t, Tensor) and t.shape in ((2,), (3,)) and t.elem.kind == "f"
        if not is_vector:
            raise ArgumentError(f"HashGrid: points are vectors of 2 or 3 floats, not {t}")
        given: Any = radius  # numpy's scalars are numbers too
        if not (isinstance(given, Real) and 0 < float(given) < math.inf):
            raise ArgumentError(f"HashGrid: a positive radius is needed, not {radius!r}")
        n = points.shape[0]
        self.points, self.radius = points, float(radius)
        self.inverse = float(np.float32(1 / (self.radius * CELL_PER_RADIUS)))  # as kernels get it
        self.buckets = max(LEAST_BUCKETS, 1 << (2 * n - 1).bit_length())
        self.strides = row_strides(self.buckets)
        self.vector = t if t.elem.bits > 32 else vector(t.shape[0], f32)
        # Rows of cells around a point's: on which sides, and the bucket of the row's first cell in
        # reach less that of the point's cell.
        self.rows = [
            (side, (sum(map(mul, side, self.strides)) - FINE) % self.buckets)
            for side in product((-1, 0, 1), repeat=t.shape[0] - 1)
        ]
        self.order = field(i32, n)
        self.starts = field(i32, self.buckets + RUN)
        self.positions = vector_field(t.shape[0], self.vector.elem, n)
        self.sort = PairSort(n)
        self.build()

    def __repr__(self) -> str:
        return f"<HashGrid of {self.points.shape[0]} points, radius {self.radius}>"

    def build(self) -> None:
        """Sort the points by cell again, after they moved. Runs on the device, without a wait."""
        n, at = self.points.shape[0], self.points.origin
        load_buckets(
            self.points, self.sort.pairs, *at, n, self.buckets, *self.strides, self.inverse
        )
        self.sort.run(n, self.buckets.bit_length())
        store_cells(
            self.points, self.sort.pairs, self.order, self.positions, self.starts, *at, n,
            self.buckets,
        )  # fmt: skip

    def reorder(self, *arrays: Storage) -> None:
        """Permute the points, and other arrays in the same way, to the order of cells.

        Loops over the points are faster afterwards: points with close indices are close together.
        `order` becomes the identity. Runs on the device, without a wait. Tapes differentiate the
        permutation.

        Args:
            arrays: one-dimensional fields or ndarrays with an element per point.

        Raises:
            ArgumentError: for other arrays. Nothing is permuted then.
        """
        n, (at,) = self.points.shape[0], self.points.origin
        for x in arrays:
            check_array("HashGrid.reorder", "arrays", x, 1)
            if x.shape[0] != n:
                raise ArgumentError(
                    f"HashGrid.reorder: an array has {x.shape[0]} elements, and the grid {n} points"
                )
        permute(list(dict.fromkeys((self.points, *arrays))), self.order, at, n)
        count_up(self.order, at, n)

    @library_func
    def near(self, p: Any) -> Any:
        """Loop space of the indices of points within `radius` of p; for kernels."""
        return self.vector(p)

    @library_func
    def find_rows(self, p: Any) -> Any:
        """Number of candidates for p, and of points in buckets; per row of cells the slot of its
        first point less the number of candidates before it, and that number."""
        scaled = scaled_of(p, self.inverse)
        inside = scaled - floor(scaled)
        bucket = bucket_of(cell_of(scaled), self.strides)
        count, firsts, begins = 0, [], []
        for side, row in static(self.rows):
            reach = reach_beside(inside, side)
            half = FINE * (sqrt(greatest(reach, 0)) + ROUNDING)
            low = floor_small(clamp(inside[0] - half + FINE, 0, FINE))
            high = floor_small(clamp(inside[0] + half, 0, FINE)) + FINE
            b = (bucket + row + low) & (self.buckets - 1)
            first = self.starts[b]
            firsts.append(first - count)
            begins.append(count)
            count += self.starts[b + select(reach < 0, 0, high - low + 1)] - first
        count = select((isnan(p) | isinf(p)).any(), 0, count)
        return count, self.starts[self.buckets], firsts, begins

    @library_func
    def test(self, k: Any, p: Any, total: Any, firsts: Any, begins: Any) -> Any:
        """The slot of candidate k, and whether it is within the radius."""
        slot = k + firsts[0]
        for row in static(range(1, len(begins))):
            slot = select(k >= begins[row], k + firsts[row], slot)
        slot = select(slot >= total, slot - total, slot)
        away = self.positions[slot] - p
        return slot, away.dot(away) <= self.radius * self.radius
