"""A wave on a membrane, on any number of processes: the same bits as on one device.

`wave_on_one_device.py` is the same program without `ti.distributed`. Rank 0 writes the film, by
default out/wave.gif.

python examples/distributed/wave.py [FILM.gif]
torchrun --nproc-per-node 4 examples/distributed/wave.py [FILM.gif]
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import numpy as np

import vkchi as ti

N, STEPS, SPEED, EVERY = 240, 200, 0.25, 4  # EVERY: steps between the frames of the film


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

    frames = []
    begin(u, before)
    for k in range(STEPS):
        grid.exchange(u)
        step(before, u, after)
        before, u, after = u, after, before
        if (k + 1) % EVERY == 0:
            frames.append(grid.gather(u))  # None but on rank 0
    if ti.distributed.rank() > 0:
        return
    whole = frames[-1]
    print(f"highest {whole.max():.6f}, checksum {zlib.crc32(whole.tobytes()):08x}")
    film = Path(sys.argv[1] if len(sys.argv) > 1 else "out/wave.gif")
    film.parent.mkdir(parents=True, exist_ok=True)
    ti.tools.write_video(film, [np.clip(frame + 0.5, 0, 1) for frame in frames])
    print(f"wrote {film}")


if __name__ == "__main__":
    main()
