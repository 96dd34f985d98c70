"""Time of a ti.ui frame: off-screen, wall time and CPU time, with the pixels read back.

    python benchmarks/ui.py [--count 100000] [--frames 12]

On software drivers, the CPU time divided by the number of CPUs is the wait on an idle machine.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import vkchi as ti

RES = (1024, 768)


def measure(draw, frames: int) -> tuple[float, float, float]:
    """Medians per frame in ms: time of declarations, total wall time, and total CPU time."""
    window, camera = ti.ui.Window("benchmark", RES, show_window=False), ti.ui.Camera()
    camera.position(0, 0, 3)
    camera.lookat(0, 0, 0)
    canvas, scene, times = window.get_canvas(), window.get_scene(), []
    for _ in range(frames + 2):  # two warm-up frames
        begin = time.perf_counter(), time.process_time()
        scene.set_camera(camera)
        scene.ambient_light((0.3, 0.3, 0.3))
        scene.point_light((3, 3, 3), (1, 1, 1))
        draw(canvas, scene)
        canvas.scene(scene)
        declared = time.perf_counter()
        window.get_image_buffer_as_numpy()
        window.show()
        end = time.perf_counter(), time.process_time()
        times.append((declared - begin[0], end[0] - begin[0], end[1] - begin[1]))
    return tuple(np.median(np.array(times[2:]), axis=0) * 1e3)


def sheet(m: int):
    """Vertices and indices of a flat surface of 2 (m - 1)^2 triangles."""
    at = np.stack(np.meshgrid(*[np.linspace(-1, 1, m, dtype=np.float32)] * 2, [0.0]), -1)
    k = np.arange(m * m, dtype=np.int32).reshape(m, m)
    a, b, c, d = k[:-1, :-1], k[1:, :-1], k[1:, 1:], k[:-1, 1:]
    return at.reshape(-1, 3).astype(np.float32), np.stack([a, b, c, a, c, d], -1).reshape(-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--frames", type=int, default=12)
    options = parser.parse_args()
    ti.init(arch=ti.vulkan)
    random, n = np.random.default_rng(0), options.count
    x, colours = (ti.Vector.field(3, ti.f32, n) for _ in range(2))
    flat = ti.Vector.field(2, ti.f32, n)
    for field, low in ((x, -1), (colours, 0), (flat, 0)):
        field.from_numpy(random.uniform(low, 1, (n, field.n)).astype(np.float32))
    places, corners = sheet(200)
    vertices, indices = ti.Vector.field(3, ti.f32, len(places)), ti.field(ti.i32, len(corners))
    vertices.from_numpy(places)
    indices.from_numpy(corners)
    image = ti.Vector.field(3, ti.f32, RES)
    drawings = {
        "nothing": lambda canvas, scene: None,
        f"{n} balls": lambda canvas, scene: scene.particles(x, 0.01, per_vertex_color=colours),
        f"{n} discs": lambda canvas, scene: canvas.circles(flat, 0.002, per_vertex_color=colours),
        f"{len(corners) // 3} triangles": lambda canvas, scene: scene.mesh(vertices, indices),
        "an image of f32": lambda canvas, scene: canvas.set_image(image),
    }
    print(f"{'':20}  declared      frame  processor time  (ms)")
    for name, draw in drawings.items():
        declared, wall, processor = measure(draw, options.frames)
        print(f"{name:20} {declared:9.2f} {wall:10.1f} {processor:15.1f}")


if __name__ == "__main__":
    main()
