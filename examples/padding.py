"""The brick wall: pad an image with a shifted pattern in one dispatch.

Source: "Accelerate PyTorch with Taichi", data preprocessing. The program writes the brick and the
wall as PNGs, checks the wall against numpy, and prints times. If torch is installed, it also checks
against the document's torch version.

    python examples/padding.py [--out FOLDER]
"""

from __future__ import annotations

import argparse
import pathlib
import time

import numpy as np

import vkchi as ti

TILE_HEIGHT, TILE_WIDTH = 160, 160
PH, PW = 320, 320
IMAGE_HEIGHT, IMAGE_WIDTH = TILE_HEIGHT + 2 * PH, TILE_WIDTH + 2 * PW
SHIFT_X, SHIFT_Y = (TILE_WIDTH, 0), (40, TILE_HEIGHT)

tile_height, tile_width, ph, pw = TILE_HEIGHT, TILE_WIDTH, PH, PW
image_height, image_width, shift_x, shift_y = IMAGE_HEIGHT, IMAGE_WIDTH, SHIFT_X, SHIFT_Y


@ti.kernel
def ti_pad(image_pixels: ti.types.ndarray(), tile: ti.types.ndarray()):
    for row, col in ti.ndrange(image_height, image_width):
        # image_pixel_to_coord
        x1, y1 = ti.math.ivec2(col - pw, image_height - 1 - row + ph)
        # map_coord
        v: ti.i32 = ti.floor(y1 / tile_height)
        u: ti.i32 = ti.floor((x1 - v * shift_y[0]) / tile_width)
        x2, y2 = ti.math.ivec2(
            x1 - u * shift_x[0] - v * shift_y[0], y1 - u * shift_x[1] - v * shift_y[1]
        )
        # coord_to_tile_pixel
        x, y = ti.math.ivec2(tile_height - 1 - y2, x2)
        image_pixels[row, col] = tile[x, y]


def make_brick() -> np.ndarray:
    """A brick with a colour gradient and a border of mortar; i32[h, w], 0xRRGGBB."""
    y, x = np.mgrid[0:TILE_HEIGHT, 0:TILE_WIDTH] / TILE_HEIGHT
    rgb = np.stack([0.55 + 0.4 * x, 0.2 + 0.25 * y, 0.15 + 0.3 * x * y], -1)
    edge = np.minimum.reduce([x, y, 1 - x - 1 / TILE_WIDTH, 1 - y - 1 / TILE_HEIGHT]) < 0.03
    rgb[edge] = 0.8
    r, g, b = (rgb * 255).astype(np.int32).transpose(2, 0, 1)
    return (r << 16 | g << 8 | b).astype(np.int32)


def pad_numpy(tile: np.ndarray) -> np.ndarray:
    """The reference: the brick pixel of every output pixel, by integer arithmetic."""
    row, col = np.mgrid[0:IMAGE_HEIGHT, 0:IMAGE_WIDTH]
    x1, y1 = col - PW, IMAGE_HEIGHT - 1 - row + PH
    v = y1 // TILE_HEIGHT
    u = (x1 - v * SHIFT_Y[0]) // TILE_WIDTH
    x2 = x1 - u * SHIFT_X[0] - v * SHIFT_Y[0]
    y2 = y1 - u * SHIFT_X[1] - v * SHIFT_Y[1]
    return tile[TILE_HEIGHT - 1 - y2, x2]


def pad_torch(tile: np.ndarray) -> np.ndarray | None:
    """The document's version in native torch operations; None if torch is not installed."""
    try:
        import torch
    except ImportError:
        return None
    rows, cols = torch.arange(IMAGE_HEIGHT), torch.arange(IMAGE_WIDTH)
    arr = torch.stack(torch.meshgrid(rows, cols, indexing="ij"), 2)
    arr[:, :, 0] = IMAGE_HEIGHT - 1 + PH - arr[:, :, 0]
    arr[:, :, 1] -= PW
    arr1 = torch.flip(arr, (2,))
    v = torch.floor(arr1[:, :, 1] / TILE_HEIGHT).to(torch.int)
    u = torch.floor((arr1[:, :, 0] - v * SHIFT_Y[0]) / TILE_WIDTH).to(torch.int)
    uu, vv = torch.stack((u, u), 2), torch.stack((v, v), 2)
    arr2 = arr1 - uu * torch.tensor(SHIFT_X) - vv * torch.tensor(SHIFT_Y)
    arr2[:, :, 1] = TILE_HEIGHT - 1 - arr2[:, :, 1]
    table = torch.flip(arr2, (2,)).view(-1, 2).to(torch.float)
    inds = table.mv(torch.tensor([TILE_WIDTH, 1.0]))
    gathered = torch.index_select(torch.from_numpy(tile).view(-1), 0, inds.to(torch.long))
    return gathered.view(IMAGE_HEIGHT, IMAGE_WIDTH).numpy()


def best_of(function, repeats: int = 5) -> float:
    """Seconds of the fastest of several calls, after one warm-up call."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def save_png(path: pathlib.Path, pixels: np.ndarray) -> None:
    """Write 0xRRGGBB pixels as a PNG."""
    from PIL import Image

    rgb = np.stack([pixels >> 16 & 255, pixels >> 8 & 255, pixels & 255], -1).astype(np.uint8)
    Image.fromarray(rgb).save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out"))
    parser.add_argument("--arch", default="vulkan")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    ti.init(arch=options.arch)

    brick = make_brick()
    tile, image = ti.ndarray(ti.i32, brick.shape), ti.ndarray(ti.i32, (IMAGE_HEIGHT, IMAGE_WIDTH))
    tile.from_numpy(brick)

    def run() -> None:
        ti_pad(image, tile)
        ti.sync()

    seconds = best_of(run)
    wall = image.to_numpy()
    np.testing.assert_array_equal(wall, pad_numpy(brick))
    save_png(options.out / "brick.png", brick)
    save_png(options.out / "wall.png", wall)
    print(f"padding {brick.shape} to {wall.shape}, equal to numpy:")
    print(f"  vkchi, 1 dispatch      {seconds * 1e3:8.2f} ms")
    print(f"  numpy                  {best_of(lambda: pad_numpy(brick)) * 1e3:8.2f} ms")
    by_torch = pad_torch(brick)
    if by_torch is not None:
        np.testing.assert_array_equal(wall, by_torch)
        print(f"  torch, native ops      {best_of(lambda: pad_torch(brick)) * 1e3:8.2f} ms")
    print(f"wrote {options.out / 'brick.png'} and {options.out / 'wall.png'}")


if __name__ == "__main__":
    main()
