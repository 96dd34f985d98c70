"""Painting shapes into pixels in order: few by numpy, many by a kernel.

numpy paints one bounding box after the other. The kernel has one iteration per pixel column of a
tile, which visits the tile's list of shapes. Both evaluate the formulas of `coverage`.

    paint(pixels, shapes)      # pixels: f32[w, h, 4], changed in place
"""

from __future__ import annotations

from typing import Any

from vkchi.gui import coverage
from vkchi.gui.shape_arrays import IS_TRIANGLE, Floats, ShapeBatch, from_hex
from vkchi.gui.touched_tiles import TILE, bin_shapes
from vkchi.kernel import Kernel, func, kernel
from vkchi.lang.compile_time import static
from vkchi.lang.elementwise import min
from vkchi.lang.matrix import Vector
from vkchi.runtime import find_runtime
from vkchi.types import f32, i32, ndarray, template, vector
from vkchi.types.lazy_numpy import np

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
            part = coverage.triangle(x, y, *points)
        else:
            part = coverage.capsule(x, y, *points[:2], *points[-2:], radius)
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


@func  # type: ignore[arg-type]
def part_of(
    x: Any, y: Any, shapes: Any, n: Any, kind: template()  # type: ignore[valid-type]
) -> Any:  # fmt: skip
    """Coverage by the n-th shape of the pixels centred at (x, y[...])."""
    part, radius = Vector.zero(f32, TILE), shapes[n, RADIUS]
    ax, ay = shapes[n, FIRST], shapes[n, FIRST + 1]
    if static(kind == DISCS):
        part = coverage.disc(x - ax, y - ay, radius)
    elif static(kind == SEGMENTS):
        bx, by = shapes[n, FIRST + 2], shapes[n, FIRST + 3]
        part = coverage.capsule(x, y, ax, ay, bx, by, radius)
    else:
        bx, by = shapes[n, FIRST + 2], shapes[n, FIRST + 3]
        cx, cy = shapes[n, FIRST + 4], shapes[n, FIRST + 5]
        if static(kind == TRIANGLES) or radius == IS_TRIANGLE:
            part = coverage.triangle(x, y, ax, ay, bx, by, cx, cy)
        else:
            part = coverage.capsule(x, y, ax, ay, bx, by, radius)
    return part


def make_kernel() -> Kernel:
    paint_tiles.__annotations__ = {
        "pixels": ndarray(vector(4, f32), 2), "shapes": ndarray(f32, 2),
        "starts": ndarray(i32, 1), "rows": i32, "kind": template(), "has_alpha": template(),
    }  # fmt: skip
    made: Kernel = kernel(paint_tiles)  # type: ignore[arg-type]
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
