"""Time of a ti.GUI frame with many shapes: off-screen, wall time and CPU time.

    python benchmarks/gui.py [--count 100000] [--frames 30] [--res 512]

On an idle machine the wall time is the user's wait. On a busy one, the CPU time divided by the
number of CPUs for kernels is more reliable.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import vkchi as ti


def measure(draw, res: int, frames: int) -> tuple[float, float]:
    """Median wall time and CPU time of a frame, in ms."""
    gui = ti.GUI("benchmark", res=res, show_gui=False)
    times = []
    for _ in range(frames + 3):  # three warm-up frames
        begin = time.perf_counter(), time.process_time()
        draw(gui)
        gui.show()
        times.append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
    wall, processor = np.median(np.array(times[3:]), axis=0) * 1e3
    return wall, processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--frames", type=int, default=30)
    parser.add_argument("--res", type=int, default=512)
    options = parser.parse_args()
    ti.init(arch=ti.vulkan)
    random, n = np.random.default_rng(0), options.count
    x = ti.Vector.field(2, ti.f32, n)
    x.from_numpy(random.random((n, 2), np.float32))
    colours = random.integers(0, 1 << 24, n)
    ends = x.to_numpy() + (random.random((n, 2), np.float32) - 0.5) * 0.05
    image = ti.Vector.field(3, ti.f32, (options.res, options.res))
    drawings = {
        f"{n} circles, radius 1": lambda gui: gui.circles(x),
        f"{n} circles, radius 2, colours": lambda gui: gui.circles(x, radius=2, color=colours),
        f"{n} lines": lambda gui: gui.lines(x, ends, color=colours),
        f"{n} triangles": lambda gui: gui.triangles(x, ends, x.to_numpy() + 0.01, color=colours),
        "a picture": lambda gui: gui.set_image(image),
    }
    for name, draw in drawings.items():
        wall, processor = measure(draw, options.res, options.frames)
        print(
            f"{name:32} {wall:8.1f} ms {1e3 / wall:8.1f} frames/s {processor:8.1f} ms of processors"
        )


if __name__ == "__main__":
    main()
