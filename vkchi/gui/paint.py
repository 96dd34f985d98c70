"""Painting shapes into pixels, one over the other: few by numpy, many by a kernel.

Owns: both ways, and which is taken. Shape by shape, numpy paints a shape's box. The kernel has an
iteration per pixel; the window is cut into tiles, each with the list of shapes that may touch it,
in their order. Both evaluate the formulas of `coverage`. Must not know: what users pass.

    paint(pixels, shapes)      # pixels: f32[w, h, 4], changed in place
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vkchi.gui import coverage
from vkchi.gui.shapes import IS_TRIANGLE, SHIFTS, Floats, Resolution, Shapes, from_hex
from vkchi.kernel import Kernel, kernel
from vkchi.lang.elementwise import min
from vkchi.lang.matrix import Matrix, Vector
from vkchi.lang.static import static
from vkchi.runtime import running
from vkchi.types import f32, i32, ndarray, template, u32, vector
from vkchi.types.lazy_numpy import np

WIDE, HIGH = 8, 4  # pixels of a tile; fewer rows are painted quicker, more are sorted quicker
MOST_ENTRIES = 1 << 22  # of the tiles' lists, at a time
# What numpy takes for a shape and a pixel of its box, in microseconds, and how much is too much.
SHAPE_US, PIXEL_US, LIMIT_US = 60.0, 0.02, 6000.0


def paint(pixels: Floats, shapes: Shapes) -> None:
    """Paint shapes into pixels, f32[w, h, 4], in place, in their order."""
    if not len(shapes.radius):
        return
    boxes = shapes.boxes(pixels.shape[:2])
    if is_work_for_device(boxes):
        paint_by_kernel(pixels, shapes, boxes)
    else:
        paint_by_numpy(pixels, shapes, boxes)


def is_work_for_device(boxes: np.ndarray[Any, Any]) -> bool:
    """Whether there is much to paint, and a device that does nothing else: a tape would record what
    is painted."""
    runtime = running()
    if runtime is None or runtime.tape is not None:
        return False
    if len(boxes) * SHAPE_US > LIMIT_US:
        return True
    sides = np.maximum(boxes[:, 1::2] - boxes[:, 0::2] + 1, 0).astype(np.float64)
    return float(sides.prod(1).sum()) * PIXEL_US > LIMIT_US


# --- by numpy ------------------------------------------------------------------------------------


def paint_by_numpy(pixels: Floats, shapes: Shapes, boxes: np.ndarray[Any, Any]) -> None:
    """Each shape's box at a time."""
    colours = from_hex(shapes.colours)
    each = zip(shapes.points, shapes.radius, colours, boxes.tolist())
    for points, radius, colour, (left, right, low, high) in each:
        if left > right or low > high:
            continue
        x = np.arange(left, right + 1, dtype=np.float32)[:, None] + np.float32(0.5)
        y = np.arange(low, high + 1, dtype=np.float32)[None, :] + np.float32(0.5)
        if radius == IS_TRIANGLE:
            part = coverage.triangle(x, y, *points)
        else:
            part = coverage.capsule(x, y, *points[:4], radius)
        box = pixels[left : right + 1, low : high + 1]
        box += np.asarray(part, np.float32)[:, :, None] * (colour - box)


# --- by a kernel ---------------------------------------------------------------------------------


def paint_tiles(
    pixels: Any, points: Any, radius: Any, colours: Any, starts: Any, order: Any, rows: Any,
    are_discs: Any,
    has_alpha: Any,
) -> None:  # fmt: skip
    """Tile t, of `rows` tiles in a column of them, is painted with the shapes order[starts[t]] up
    to order[starts[t + 1]]. An iteration has a column of a tile's pixels."""
    for k in range((starts.shape[0] - 1) * WIDE):
        tile = k // WIDE
        i, bottom = tile // rows * WIDE + k % WIDE, tile % rows * HIGH
        first, last = starts[tile], starts[tile + 1]
        if first < last and i < pixels.shape[0]:
            top = min(bottom + HIGH, pixels.shape[1]) - 1
            column = Matrix.zero(f32, HIGH, 4)
            for row in static(range(HIGH)):
                for c in static(range(4)):
                    column[row, c] = pixels[i, min(bottom + row, top)][c]
            for n in range(first, last):
                s = order[n]
                r, part = radius[s], Vector.zero(f32, HIGH)
                colour = Vector([f32(colours[s] >> k & 255) / f32(255) for k in static(SHIFTS)])
                x, y = f32(i) + f32(0.5), f32(bottom) + f32(0.5)
                ax, ay, bx, by = points[s, 0], points[s, 1], points[s, 2], points[s, 3]
                if static(are_discs):
                    for row in static(range(HIGH)):
                        part[row] = coverage.disc(x - ax, y + f32(row) - ay, r)
                elif r == IS_TRIANGLE:
                    cx, cy = points[s, 4], points[s, 5]
                    for row in static(range(HIGH)):
                        part[row] = coverage.triangle(x, y + f32(row), ax, ay, bx, by, cx, cy)
                else:
                    for row in static(range(HIGH)):
                        part[row] = coverage.capsule(x, y + f32(row), ax, ay, bx, by, r)
                for row in static(range(HIGH)):
                    for c in static(range(3)):
                        column[row, c] += part[row] * (colour[c] - column[row, c])
                    if static(has_alpha):
                        column[row, 3] += part[row] * (1 - column[row, 3])
            for row in static(range(HIGH)):
                if bottom + row <= top:
                    for c in static(range(4)):
                        pixels[i, bottom + row][c] = column[row, c]


def make_kernel() -> Kernel:
    """`paint_tiles` as a kernel."""
    vec4 = vector(4, f32)
    paint_tiles.__annotations__ = {
        "pixels": ndarray(vec4, 2), "points": ndarray(f32, 2), "radius": ndarray(f32, 1),
        "colours": ndarray(u32, 1), "starts": ndarray(i32, 1), "order": ndarray(i32, 1),
        "rows": i32, "are_discs": template(), "has_alpha": template(),
    }  # fmt: skip
    made: Kernel = kernel(paint_tiles)  # type: ignore[arg-type]
    return made


KERNEL = make_kernel()


def paint_by_kernel(pixels: Floats, shapes: Shapes, boxes: np.ndarray[Any, Any]) -> None:
    """All shapes in one launch, or in as many as their tiles' lists need."""
    rows = -(-pixels.shape[1] // HIGH)
    points = shapes.points
    are_discs = all(np.array_equal(points[:, k], points[:, k + 2]) for k in (0, 1, 2, 3))
    has_alpha = bool((pixels[:, :, 3] != 1).any())  # else it stays 1
    for chosen, starts, order in bin_shapes(boxes, pixels.shape[:2]):
        KERNEL(
            pixels, *(array[chosen] for array in shapes), starts, order, rows, are_discs, has_alpha
        )


def bin_shapes(
    boxes: np.ndarray[Any, Any], res: Resolution
) -> Iterator[tuple[slice, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Which shapes, and the lists of their tiles: `starts` i32[tiles + 1], `order` i32[entries]."""
    tiles = boxes // np.array([WIDE, WIDE, HIGH, HIGH], np.int32)
    counts = np.maximum(tiles[:, 1::2] - tiles[:, 0::2] + 1, 0)
    entries = counts[:, 0] * counts[:, 1].astype(np.int64)
    lots = np.cumsum(entries) // MOST_ENTRIES
    ends = np.flatnonzero(np.diff(lots, append=-1)) + 1
    for begin, end in zip([0, *ends[:-1].tolist()], ends.tolist()):
        chosen = slice(begin, end)
        yield chosen, *list_tiles(tiles[chosen], counts[chosen], entries[chosen], res)


def list_tiles(
    tiles: np.ndarray[Any, Any],
    counts: np.ndarray[Any, Any],
    entries: np.ndarray[Any, Any],
    res: Resolution,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The lists of all tiles: a shape stands `entries` times in them, in `counts` columns and rows
    of tiles from the first that `tiles` says."""
    columns, rows = (-(-n // size) for n, size in zip(res, (WIDE, HIGH)))
    shape = np.repeat(np.arange(len(tiles), dtype=np.int32), entries)
    begins = (np.cumsum(entries) - entries).astype(np.int32)
    nth = np.arange(len(shape), dtype=np.int32) - np.repeat(begins, entries)
    column, row = np.divmod(nth, np.repeat(counts[:, 1], entries))
    tile = (tiles[shape, 0] + column) * rows + tiles[shape, 2] + row
    narrow = tile.astype(np.uint16 if columns * rows < 1 << 16 else np.uint32)  # sorted quicker
    by_tile = np.argsort(narrow, kind="stable")
    starts = np.searchsorted(narrow[by_tile], np.arange(columns * rows + 1))
    return starts.astype(np.int32), shape[by_tile]
