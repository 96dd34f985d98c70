"""A wave on a membrane, on any number of processes: the same bits as on one.

python examples/distributed/wave.py [PICTURE.png]
torchrun --nproc-per-node 4 examples/distributed/wave.py [PICTURE.png]
"""

from __future__ import annotations

import sys
import zlib

import numpy as np

import vkchi as ti

N, STEPS, SPEED = 240, 200, 0.25


def main() -> None:
    ti.distributed.init()
    grid = ti.distributed.Grid((N, N), halo=1)
    u, before, after = (grid.field(ti.f32) for _ in range(3))

    @ti.kernel
    def begin(u: ti.template(), before: ti.template()):
        for i, j in grid.owned:
            x, y = i - 0.3 * N, j - 0.4 * N
            u[i, j] = before[i, j] = ti.exp(-(x * x + y * y) / 50)

    @ti.kernel
    def step(before: ti.template(), u: ti.template(), after: ti.template()):
        for i, j in grid.owned:
            around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
            after[i, j] = 2 * u[i, j] - before[i, j] + SPEED * (around - 4 * u[i, j])

    begin(u, before)
    for _ in range(STEPS):
        grid.exchange(u)
        step(before, u, after)
        before, u, after = u, after, before
    highest, whole = grid.max(u), grid.gather(u)
    if whole is not None:
        print(f"{ti.distributed.size()} processes, highest {highest:.6f}, ", end="")
        print(f"checksum {zlib.crc32(whole.tobytes()):08x}")
        if len(sys.argv) > 1:
            ti.tools.imwrite(np.clip(whole + 0.5, 0, 1), sys.argv[1])


if __name__ == "__main__":
    main()
