"""The brick wall as a torch operator: padding with a shifted pattern, and its gradient.

Source: "Accelerate PyTorch with Taichi", data preprocessing: a wall of copies of a tile, each
course shifted against the one below. The document's version has some sixty torch operations, this
one a single kernel. `ti.torch_op` makes it a torch operator with a generated gradient: a pixel of
the tile gets the sum over its copies in the wall.

Values and gradients are compared with torch's circular padding for shift 0, otherwise with the
document's torch version.

    python examples/torch_padding.py [--size 160]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

import vkchi as ti

Image = ti.types.ndarray(dtype=ti.f32, ndim=2)


def shape_of_wall(given: dict) -> tuple[int, int]:
    height, width = given["tile"].shape
    return height + 2 * given["ph"], width + 2 * given["pw"]


@ti.torch_op(outputs={"wall": shape_of_wall})
@ti.kernel
def brick_pad(tile: Image, ph: ti.i32, pw: ti.i32, shift: ti.i32, wall: Image):
    """Fill `wall` with copies of `tile`; each course is shifted by `shift` against the one below.

    `ph`, `pw`: padding in pixels, of whole tiles, above and below, left and right.
    """
    for row, col in wall:
        height, width = tile.shape[0], tile.shape[1]
        x1, y1 = col - pw, wall.shape[0] - 1 - row + ph
        v = y1 // height
        x2, y2 = (x1 - v * shift) % width, y1 - v * height
        wall[row, col] = tile[height - 1 - y2, x2]


def torch_pad(tile: torch.Tensor, ph: int, pw: int, shift: int) -> torch.Tensor:
    """The document's version in torch operations."""
    height, width = tile.shape
    rows, cols = torch.arange(height + 2 * ph), torch.arange(width + 2 * pw)
    arr = torch.stack(torch.meshgrid(rows, cols, indexing="ij"), 2)
    arr[:, :, 0] = len(rows) - 1 + ph - arr[:, :, 0]
    arr[:, :, 1] -= pw
    arr1 = torch.flip(arr, (2,))
    v = torch.floor(arr1[:, :, 1] / height).to(torch.int)
    u = torch.floor((arr1[:, :, 0] - v * shift) / width).to(torch.int)
    uu, vv = torch.stack((u, u), 2), torch.stack((v, v), 2)
    arr2 = arr1 - uu * torch.tensor((width, 0)) - vv * torch.tensor((shift, height))
    arr2[:, :, 1] = height - 1 - arr2[:, :, 1]
    table = torch.flip(arr2, (2,)).view(-1, 2).to(torch.float)
    inds = table.mv(torch.tensor([float(width), 1.0]))
    gathered = torch.index_select(tile.view(-1), 0, inds.to(torch.long))
    return gathered.view(len(rows), len(cols))


def circular_pad(tile: torch.Tensor, ph: int, pw: int, shift: int) -> torch.Tensor:
    """Torch's circular padding."""
    return torch.nn.functional.pad(tile[None], (pw, pw, ph, ph), mode="circular")[0]


Pad = Callable[[torch.Tensor, int, int, int], torch.Tensor]


def difference(one: Pad, other: Pad, *, height: int, width: int, shift: int) -> float:
    """Maximum difference of two padding functions, over walls and gradients of tiles."""
    torch.manual_seed(0)
    tile = torch.rand(height, width)
    slope = torch.rand(3 * height, 3 * width)
    found = []
    for pad in (one, other):
        leaf = tile.clone().requires_grad_()
        wall = pad(leaf, height, width, shift)
        found.append((wall.detach(), *torch.autograd.grad(wall, leaf, slope)))
    return max(float((a - b).abs().max()) for a, b in zip(*found, strict=True))


def best_of(function: Callable[[], object], repeats: int = 5) -> float:
    """Milliseconds of the fastest of several calls, after one warm-up call."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--size", type=int, default=160)
    size = parser.parse_args().size
    ti.init(arch=ti.vulkan)
    sizes = {"height": size, "width": size}
    plain = difference(brick_pad, circular_pad, **sizes, shift=0)
    print(f"greatest difference to torch's circular padding: {plain:.1e}")
    shifted = difference(brick_pad, torch_pad, **sizes, shift=size // 4)
    print(f"greatest difference to the document's version:   {shifted:.1e}")
    assert plain < 1e-5
    assert shifted < 1e-5
    tile = torch.rand(size, size)
    ways: tuple[tuple[str, Pad], ...] = (
        ("vkchi, one kernel", brick_pad),
        ("the document's, in torch", torch_pad),
    )
    for name, pad in ways:
        took = best_of(lambda pad=pad: pad(tile, 2 * size, 2 * size, size // 4))
        print(f"{name:26} {took:8.2f} ms")
    print("walls and gradients agree")


if __name__ == "__main__":
    main()
