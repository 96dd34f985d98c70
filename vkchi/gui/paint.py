"""Painting shapes into pixels in order: few by numpy, many by a kernel.

numpy paints one bounding box after the other. The kernel has one iteration per pixel column of a
tile, which visits the tile's list of shapes. Both evaluate the formulas of `coverage`.

    paint(pixels, shapes)      # pixels: f32[w, h, 4], changed in place
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vkchi.gui.shape_arrays import (
    IS_TRIANGLE,
    Floats,
    Resolution,
    ShapeBatch,
    from_hex,
    join_batches,
)
from vkchi.kernel import Kernel, func, kernel, pyfunc
from vkchi.lang.compile_time import static
from vkchi.lang.elementwise import max, min, select, sqrt
from vkchi.lang.matrix import Vector
from vkchi.runtime import find_runtime
from vkchi.tuples import NamedTuple
from vkchi.types import f32, i32, ndarray, template, vector
from vkchi.types.lazy_numpy import np

# --- coverage of pixels --------------------------------------------------------------------------
#
# Pixel coverage of shapes: one formula per shape, used by numpy and by kernels.
#
# Lengths are in pixels; the centre of pixel (i, j) is (i + 0.5, j + 0.5).
#
#     >>> capsule(2.5, 2.5, 2.5, 2.5, 2.5, 2.5, 3.0)  # the centre of a disc of radius 3
#     1.0

TINY = 1e-12  # least squared length of a segment, pixels^2: no division by 0


@pyfunc
def capsule(x: Any, y: Any, ax: Any, ay: Any, bx: Any, by: Any, radius: Any) -> Any:
    """Approximate coverage of the pixel centred at (x, y) by the points within `radius` of the
    segment a-b.

    It is `radius` minus the distance of (x, y) from the segment, clamped to [0, 1].
    """
    dx, dy = bx - ax, by - ay
    per_length = 1.0 / max(dx * dx + dy * dy, TINY)
    along = ((x - ax) * dx + (y - ay) * dy) * per_length
    t = min(max(along, 0.0), 1.0)
    px, py = x - ax - t * dx, y - ay - t * dy
    return disc(px, py, radius)


@pyfunc
def disc(x: Any, y: Any, radius: Any) -> Any:
    """Coverage, as in `capsule`, of the pixel centred at (x, y) by a disc around the origin."""
    return min(max(radius - sqrt(x * x + y * y), 0.0), 1.0)


@pyfunc
def triangle(x: Any, y: Any, ax: Any, ay: Any, bx: Any, by: Any, cx: Any, cy: Any) -> Any:
    """1 where (x, y) is in the triangle or on its edge, else 0."""
    e = (bx - ax) * (y - ay) - (by - ay) * (x - ax)
    f = (cx - bx) * (y - by) - (cy - by) * (x - bx)
    g = (ax - cx) * (y - cy) - (ay - cy) * (x - cx)
    inside = max(min(min(e, f), g), -max(max(e, f), g))
    return select(inside >= 0.0, 1.0, 0.0)


# --- tiles ---------------------------------------------------------------------------------------
#
# Binning of shapes into tiles of a window.
#
# A window is divided into tiles of TILE x TILE pixels, counted column by column from the lower
# left. Each tile lists the shapes whose bounding boxes overlap it, in painting order. If the boxes
# of lines or triangles are large on average, tiles away from the shape are left out.
#
#     for lot in bin_shapes(shapes, shapes.boxes(res), res): ...

Array = np.ndarray[Any, Any]
LOG_TILE = 3
TILE = 1 << LOG_TILE  # pixels
MOST_ENTRIES = 1 << 20  # of the tiles' lists, at a time
LARGE = 16  # mean tiles per box from which on strips are narrowed
VERTICAL = 1e30  # inverse of the width of a vertical edge
MARGIN = 0.5  # pixels, more than rounding errors


class TileBatch(NamedTuple):
    """A subset of the shapes, `chosen`, and its lists by tile.

    Tile t has the shapes order[starts[t]] up to order[starts[t + 1]], exclusive, as positions
    within the subset; both arrays are i32.
    """

    chosen: slice
    starts: Array
    order: Array


class TileColumns(NamedTuple):
    """Strips of tiles, i32[m] each: in tile column `column`, rows `first` to `last`, inclusive.

    The shape at position `shape` may cover the strip.
    """

    shape: Array
    column: Array
    first: Array
    last: Array


def bin_shapes(shapes: ShapeBatch, boxes: Array, res: Resolution) -> Iterator[TileBatch]:
    """Yield the shapes, in order, in batches of roughly at most MOST_ENTRIES list entries.

    A batch has at least one shape. boxes: result of `shapes.boxes(res)`.
    """
    spans = boxes >> LOG_TILE
    columns, rows = np.maximum(spans[1::2] - spans[0::2] + 1, 0).astype(np.int64)
    entries = np.cumsum(columns * rows)
    ends = np.flatnonzero(np.diff(entries // MOST_ENTRIES, append=-1)) + 1
    for begin, end in zip([0, *ends[:-1].tolist()], ends.tolist()):
        chosen = slice(begin, end)
        strips = cut_columns(spans[:, chosen], columns[chosen])
        if shapes.corners > 1 and columns[chosen] @ rows[chosen] >= LARGE * (end - begin):
            strips = narrow_columns(strips, ShapeBatch(*(array[chosen] for array in shapes)))
        yield TileBatch(chosen, *list_tiles(strips, res))


def cut_columns(spans: Array, columns: Array) -> TileColumns:
    """Strips of shapes, one for each tile column of the shape's bounding box.

    spans: i32[4, n], first and last columns and rows of the boxes, in tiles; columns: number of
    tile columns of each box.
    """
    shape = np.repeat(np.arange(len(columns), dtype=np.int32), columns)
    behind = (np.cumsum(columns) - columns).astype(np.int32)
    column = np.arange(len(shape), dtype=np.int32) + np.repeat(spans[0] - behind, columns)
    return TileColumns(shape, column, spans[2][shape], spans[3][shape])


def narrow_columns(strips: TileColumns, shapes: ShapeBatch) -> TileColumns:
    """Shrink strips to the rows between the edges of lines and triangles.

    The edges are widened by the shapes' `radius` and MARGIN.
    """
    far = np.maximum(shapes.radius, 0).astype(np.float64)[strips.shape] + MARGIN
    left = strips.column * TILE - far
    right = left + (TILE + 2 * far)
    low, high = np.full(len(left), np.inf), np.full(len(left), -np.inf)
    corners = shapes.points.astype(np.float64).reshape(len(shapes.points), -1, 2)
    count = shapes.corners
    for k in range(count if count > 2 else 1):
        (ax, ay), (bx, by) = corners[:, k].T, corners[:, (k + 1) % count].T
        width = bx - ax
        with np.errstate(divide="ignore"):
            inverse = np.where(width == 0, VERTICAL, 1 / width)
        edge = np.stack([ax, ay, by - ay, inverse], 1)[strips.shape].T
        x, y, rise, per_x = np.ascontiguousarray(edge)
        begin, end = np.clip((left - x) * per_x, 0, 1), np.clip((right - x) * per_x, 0, 1)
        is_here = begin != end
        for part in (begin, end):
            at = y + part * rise
            np.minimum(low, at, out=low, where=is_here)
            np.maximum(high, at, out=high, where=is_here)
    first, last = np.floor((low - far) / TILE), np.floor((high + far) / TILE)
    return strips._replace(
        first=np.maximum(strips.first, np.minimum(first, 1 << 30)).astype(np.int32),
        last=np.minimum(strips.last, np.maximum(last, -1)).astype(np.int32),
    )


def list_tiles(strips: TileColumns, res: Resolution) -> tuple[Array, Array]:
    """Lists of all tiles: `starts` and `order` of a TileBatch."""
    columns, rows = (-(-n // TILE) for n in res)
    counts = np.maximum(strips.last - strips.first + 1, 0)
    behind = (np.cumsum(counts) - counts).astype(np.int32)
    tile = np.repeat(strips.column * rows + strips.first - behind, counts)
    tile += np.arange(len(tile), dtype=np.int32)
    shape = np.repeat(strips.shape, counts)
    keys = tile.astype(np.uint16 if columns * rows <= 1 << 16 else np.uint32)  # sorted quicker
    starts = np.zeros(columns * rows + 1, np.int32)
    np.cumsum(np.bincount(tile, minlength=columns * rows), out=starts[1:])
    return starts, shape[np.argsort(keys, kind="stable")]


# --- painting ------------------------------------------------------------------------------------

# Cost of numpy per shape and per pixel of its box, and the limit, in microseconds.
SHAPE_US, PIXEL_US, LIMIT_US = 60.0, 0.02, 6000.0


def paint(pixels: Floats, shapes: ShapeBatch) -> None:
    """Paint shapes into pixels, f32[w, h, 4], in place, in order."""
    if not len(shapes.radius):
        return
    boxes = shapes.boxes(pixels.shape[:2])
    if is_work_for_device(boxes):
        paint_by_kernel(pixels, shapes, boxes)
    else:
        paint_by_numpy(pixels, shapes, boxes)


def is_work_for_device(boxes: np.ndarray[Any, Any]) -> bool:
    """True if numpy is estimated to take longer than LIMIT_US, and a kernel can be used.

    It cannot without a runtime, and under a tape, which would record the painting.
    """
    runtime = find_runtime()
    if runtime is None or runtime.tape is not None:
        return False
    if boxes.shape[1] * SHAPE_US > LIMIT_US:
        return True
    wide, high = np.maximum(boxes[1::2] - boxes[0::2] + 1, 0).astype(np.float64)
    return float(wide @ high) * PIXEL_US > LIMIT_US


# --- by numpy ------------------------------------------------------------------------------------


def paint_by_numpy(pixels: Floats, shapes: ShapeBatch, boxes: np.ndarray[Any, Any]) -> None:
    """Paint the shapes in order, each within its bounding box."""
    colours = from_hex(shapes.colours)
    each = zip(shapes.points, shapes.radius, colours, boxes.T.tolist())
    for points, radius, colour, (left, right, low, high) in each:
        if left > right or low > high:
            continue
        x = np.arange(left, right + 1, dtype=np.float32)[:, None] + np.float32(0.5)
        y = np.arange(low, high + 1, dtype=np.float32)[None, :] + np.float32(0.5)
        if radius == IS_TRIANGLE:
            part = triangle(x, y, *points)
        else:
            part = capsule(x, y, *points[:2], *points[-2:], radius)
        box = pixels[left : right + 1, low : high + 1]
        box += np.asarray(part, np.float32)[:, :, None] * (colour - box)


# --- by a kernel ---------------------------------------------------------------------------------

# Columns of a shape's row: radius, red, green, blue, then its corners.
RADIUS, RED, GREEN, BLUE, FIRST = range(5)
DISCS, SEGMENTS, TRIANGLES, MIXED = range(1, 5)


def paint_tiles(
    pixels: Any, shapes: Any, starts: Any, rows: Any, kind: Any, has_alpha: Any
) -> None:
    """Paint tile t with the shapes from starts[t] up to starts[t + 1], exclusive.

    Tiles are counted column by column, with `rows` tiles each. An iteration has one pixel column of
    a tile, in one vector per channel. Without `has_alpha`, alpha is unchanged.
    """
    for k in range((starts.shape[0] - 1) * TILE):
        tile = k // TILE
        i, low = tile // rows * TILE + k % TILE, tile % rows * TILE
        first, last = starts[tile], starts[tile + 1]
        if first < last and i < pixels.shape[0]:
            top = min(low + TILE, pixels.shape[1]) - 1
            red, green = Vector.zero(f32, TILE), Vector.zero(f32, TILE)
            blue, alpha = Vector.zero(f32, TILE), Vector.zero(f32, TILE)
            x, y = f32(i) + f32(0.5), Vector.zero(f32, TILE)
            for row in static(range(TILE)):
                pixel = pixels[i, min(low + row, top)]
                red[row], green[row], blue[row], alpha[row] = pixel
                y[row] = f32(low + row) + f32(0.5)
            for n in range(first, last):
                part = part_of(x, y, shapes, n, kind)
                red += part * (shapes[n, RED] - red)
                green += part * (shapes[n, GREEN] - green)
                blue += part * (shapes[n, BLUE] - blue)
                if static(has_alpha):
                    alpha += part * (1 - alpha)
            for row in static(range(TILE)):
                if low + row <= top:
                    pixels[i, low + row] = Vector([red[row], green[row], blue[row], alpha[row]])


@func
def part_of(
    x: Any, y: Any, shapes: Any, n: Any, kind: template()  # type: ignore[valid-type]
) -> Any:  # fmt: skip
    """Coverage by the n-th shape of the pixels centred at (x, y[...])."""
    part, radius = Vector.zero(f32, TILE), shapes[n, RADIUS]
    ax, ay = shapes[n, FIRST], shapes[n, FIRST + 1]
    if static(kind == DISCS):
        part = disc(x - ax, y - ay, radius)
    elif static(kind == SEGMENTS):
        bx, by = shapes[n, FIRST + 2], shapes[n, FIRST + 3]
        part = capsule(x, y, ax, ay, bx, by, radius)
    else:
        bx, by = shapes[n, FIRST + 2], shapes[n, FIRST + 3]
        cx, cy = shapes[n, FIRST + 4], shapes[n, FIRST + 5]
        if static(kind == TRIANGLES) or radius == IS_TRIANGLE:
            part = triangle(x, y, ax, ay, bx, by, cx, cy)
        else:
            part = capsule(x, y, ax, ay, bx, by, radius)
    return part


def make_kernel() -> Kernel:
    paint_tiles.__annotations__ = {
        "pixels": ndarray(vector(4, f32), 2), "shapes": ndarray(f32, 2),
        "starts": ndarray(i32, 1), "rows": i32, "kind": template(), "has_alpha": template(),
    }  # fmt: skip
    made: Kernel = kernel(paint_tiles)
    return made


KERNEL = make_kernel()


def paint_by_kernel(pixels: Floats, shapes: ShapeBatch, boxes: np.ndarray[Any, Any]) -> None:
    """Paint all shapes into `pixels`, in place, by one launch per batch of `bin_shapes`."""
    rows = -(-pixels.shape[1] // TILE)
    has_alpha = bool((pixels[:, :, 3] != 1).any())  # else it stays 1
    kind = shapes.corners
    if kind == TRIANGLES and (shapes.radius != IS_TRIANGLE).any():
        kind = MIXED
    numbers = np.concatenate(
        [shapes.radius[:, None], from_hex(shapes.colours)[:, :3], shapes.points], 1
    )
    for lot in bin_shapes(shapes, boxes, pixels.shape[:2]):
        listed = numbers[lot.chosen].take(lot.order, 0)
        KERNEL(pixels, listed, lot.starts, rows, kind, has_alpha)


# --- pixels of a window --------------------------------------------------------------------------
#
# Pixels of a window, and the shapes that are not painted yet.
#
# Shapes are batched; they are painted when the pixels are needed.
#
#     canvas = PixelCanvas((640, 480)); canvas.add(shapes); canvas.pixels()


class PixelCanvas:
    """Pixels f32[w, h, 4] from the lower left; channels from 0 to 1."""

    def __init__(self, res: Resolution) -> None:
        self.res = res
        self._pixels: Floats = np.zeros((*res, 4), np.float32)
        self._waiting: list[ShapeBatch] = []

    def add(self, shapes: ShapeBatch) -> None:
        """Append shapes, to be painted over the present pixels when these are needed."""
        self._waiting.append(shapes)

    def clear(self, colour: int) -> None:
        """Make all pixels one colour, 0xRRGGBB; drop shapes that are not painted yet."""
        self._waiting.clear()
        self._pixels[:] = from_hex(np.array(colour, np.uint32))

    def set(self, pixels: Floats) -> None:
        """Replace the pixels by an array f32[w, h, 4], not copied; drop shapes not painted yet."""
        self._waiting.clear()
        self._pixels = pixels

    def stamp(self, mask: Floats, left: int, low: int, colour: int) -> None:
        """Blend one colour over the pixels through a mask f32[w, h], with opacities from 0 to 1.

        The mask's lower left corner is at pixel (left, low). Parts outside the window are cut off.
        """
        pixels = self.pixels()
        x0, y0 = max(left, 0), max(low, 0)
        part = mask[x0 - left : self.res[0] - left, y0 - low : self.res[1] - low]
        box = pixels[x0 : left + mask.shape[0], y0 : low + mask.shape[1]]
        if part.size and box.size:
            box += part[:, :, None] * (from_hex(np.array(colour, np.uint32)) - box)

    def pixels(self) -> Floats:
        """Return the pixels with all shapes painted; not a copy."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            paint(self._pixels, join_batches(waiting))
        return self._pixels
