"""Binning of shapes into tiles of a window.

A window is divided into tiles of TILE x TILE pixels, counted column by column from the lower left.
Each tile lists the shapes whose bounding boxes overlap it, in painting order. If the boxes of lines
or triangles are large on average, tiles away from the shape are left out.

    for lot in bin_shapes(shapes, shapes.boxes(res), res): ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vkchi.gui.shape_arrays import Resolution, ShapeBatch
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

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
