#!/usr/bin/env python3
"""Scaling of programs, in time per element: 3-D material point method, stencil, n-body tile.

    benchmarks/scale.py [--against PYTHON] [--quick] [--plot scale.png] [mpm3d] [stencil] [nbody]

Sizes go up to a million particles, 4096 x 4096 cells and ten million points. The script prints a
table, and with matplotlib plots time per element against size. With `--against`, Taichi's Vulkan
backend runs in turn, under that Python. An element is a particle, a cell, or a pair of points
(1,024 of them by all). Times are the minimum of three, each completed by a sync; results are
checked. BENCH_CLOCK=cpu measures CPU time.
"""

import argparse
import importlib
import json
import math
import os
import pathlib
import subprocess
import sys
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
TARGETS = 1024  # points of a tile
if os.environ.get("BENCH_CLOCK") == "cpu":  # of all threads, robust on a busy machine
    time.perf_counter = time.process_time
SIZES = {
    "mpm3d": (8_000, 64_000, 250_000, 1_000_000),
    "stencil": (256, 512, 1024, 2048, 4096),
    "nbody": (10_000, 100_000, 1_000_000, 10_000_000),
}
UNITS = {"mpm3d": "particle", "stencil": "cell", "nbody": "pair"}


# --- the programs, run in a process of the target -------------------------------------------------


def best(ti, step):
    """Seconds of the fastest of three runs, after a warm-up run."""
    step()
    ti.sync()
    found = []
    for _ in range(3):
        start = time.perf_counter()
        step()
        ti.sync()
        found.append(time.perf_counter() - start)
    return min(found)


def mpm3d(ti, particles):
    """Elements, and seconds per step: MLS-MPM of a weakly compressible fluid, eight particles
    per occupied cell."""
    n = 2 ** round(math.log2((particles * 2) ** (1 / 3)))
    dx, dt, stiffness = 1 / n, 1e-4, 400.0
    volume = (dx / 2) ** 3
    x, v = (ti.Vector.field(3, ti.f32, particles) for _ in range(2))
    affine, squeeze = ti.Matrix.field(3, 3, ti.f32, particles), ti.field(ti.f32, particles)
    momentum, mass = ti.Vector.field(3, ti.f32, (n, n, n)), ti.field(ti.f32, (n, n, n))

    @ti.kernel
    def clear():
        for i, j, k in mass:
            momentum[i, j, k] = [0, 0, 0]
            mass[i, j, k] = 0

    @ti.kernel
    def scatter():
        for p in x:
            base = ti.cast(x[p] / dx - 0.5, ti.i32)
            fx = x[p] / dx - base
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            stress = -dt * 4 * stiffness * volume * (squeeze[p] - 1) / dx**2
            flow = ti.Matrix.identity(ti.f32, 3) * stress + volume * affine[p]
            for i, j, k in ti.static(ti.ndrange(3, 3, 3)):
                offset = ti.Vector([i, j, k])
                weight = w[i].x * w[j].y * w[k].z
                momentum[base + offset] += weight * (volume * v[p] + flow @ ((offset - fx) * dx))
                mass[base + offset] += weight * volume

    @ti.kernel
    def move_grid():
        for i, j, k in mass:
            if mass[i, j, k] > 0:
                momentum[i, j, k] /= mass[i, j, k]
            momentum[i, j, k].y -= dt * 9.8
            for d in ti.static(range(3)):
                at = [i, j, k][d]
                if at < 3 and momentum[i, j, k][d] < 0:
                    momentum[i, j, k][d] = 0
                if at > n - 3 and momentum[i, j, k][d] > 0:
                    momentum[i, j, k][d] = 0

    @ti.kernel
    def gather():
        for p in x:
            base = ti.cast(x[p] / dx - 0.5, ti.i32)
            fx = x[p] / dx - base
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            new_v, new_affine = ti.Vector.zero(ti.f32, 3), ti.Matrix.zero(ti.f32, 3, 3)
            for i, j, k in ti.static(ti.ndrange(3, 3, 3)):
                offset = ti.Vector([i, j, k])
                weight = w[i].x * w[j].y * w[k].z
                found = momentum[base + offset]
                new_v += weight * found
                new_affine += 4 * weight * found.outer_product((offset - fx) * dx) / dx**2
            v[p], affine[p] = new_v, new_affine
            x[p] += dt * new_v
            squeeze[p] *= 1 + dt * new_affine.trace()

    def step():
        clear()
        scatter()
        move_grid()
        gather()

    side = (particles / 8) ** (1 / 3) / n  # side of a cube with eight particles per cell
    places = np.random.default_rng(1).random((particles, 3), np.float32) * side + (1 - side) / 2
    x.from_numpy(places.astype(np.float32))
    squeeze.fill(1)
    found = best(ti, step)
    total = mass.to_numpy().sum(dtype=np.float64)
    assert abs(total / (particles * volume) - 1) < 1e-4 and np.isfinite(x.to_numpy()).all()
    return particles, found


def stencil(ti, n):
    """Elements, and seconds per Jacobi step."""
    a, b = ti.field(ti.f32, (n, n)), ti.field(ti.f32, (n, n))
    values = np.random.default_rng(2).random((n, n), np.float32)
    a.from_numpy(values)

    @ti.kernel
    def step():
        for i, j in ti.ndrange((1, n - 1), (1, n - 1)):
            b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])

    found = best(ti, step)
    want = 0.25 * (values[:-2, 1:-1] + values[2:, 1:-1] + values[1:-1, :-2] + values[1:-1, 2:])
    assert np.allclose(b.to_numpy()[1:-1, 1:-1], want, atol=1e-5)
    return n * n, found


def nbody(ti, points):
    """Elements, and seconds: forces of all points on a tile of them."""
    x, force = ti.Vector.field(2, ti.f32, points), ti.Vector.field(2, ti.f32, TARGETS)
    values = np.random.default_rng(3).random((points, 2), np.float32)
    x.from_numpy(values)

    @ti.kernel
    def pull():
        for i in force:
            f = ti.Vector([0.0, 0.0])
            for j in range(points):
                d = x[j] - x[i]
                r = 1 / ti.sqrt(d.dot(d) + 1e-3)
                f += d * (r * r * r)
            force[i] = f

    found = best(ti, pull)
    away = values.astype(np.float64) - values[5]
    want = (away / ((away**2).sum(1, keepdims=True) + 1e-3) ** 1.5).sum(0)
    assert np.allclose(force[5], want, atol=1e-3 * points), (force[5], want)
    return TARGETS * points, found


def measure(target, arch, name, size):
    """Print the elements and seconds of a program as JSON."""
    ti = importlib.import_module(target)
    ti.init(arch=getattr(ti, arch), offline_cache=False)
    print(json.dumps(globals()[name](ti, int(size))))


# --- the table and the plot -----------------------------------------------------------------------


def run(python, target, name, size):
    """(size, elements, seconds) from another process. If it fails, an error is printed and the
    result is None."""
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    command = [python, __file__, "--measure", target, "vulkan", name, str(size)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path}
    )
    if done.returncode:
        print(f"{target}, {name} of {size}:", done.stderr.strip()[-200:], file=sys.stderr)
        return None
    return size, *json.loads(done.stdout.splitlines()[-1])


def run_all(pythons, names, quick):
    """Target -> program -> results of `run`, smallest first; targets alternate."""
    found = {target: {name: [] for name in names} for target in pythons}
    for name in names:
        for size in SIZES[name][:2] if quick else SIZES[name]:
            for target, python in pythons.items():
                row = run(python, target, name, size)
                if row:
                    found[target][name].append(row)
    return found


def show(found):
    """Print a line per size: time, time per element, and ratios of other targets to vkchi."""
    others = [target for target in found if target != "vkchi"]
    heads = "".join(f"{target + ' / vkchi':>18s}" for target in others)
    print(f"{'program':10s}{'size':>10s}{'ms':>12s}{'ns':>10s} per element{heads}")
    for name, rows in found["vkchi"].items():
        for size, elements, seconds in rows:
            cells = ""
            for other in others:
                theirs = {row[0]: row[2] for row in found[other][name]}
                cells += f"{theirs[size] / seconds:18.2f}" if size in theirs else " " * 18
            at = f"{1e9 * seconds / elements:10.3f} {UNITS[name]:11s}"
            print(f"{name:10s}{size:10d}{1e3 * seconds:12.3f}{at}{cells}")


def draw(path, found):
    """Plot time per element against the number of elements, a panel per program. No plot without
    matplotlib."""
    try:
        import matplotlib
    except ImportError:
        print("no picture: matplotlib is not installed (pip install matplotlib)")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(found["vkchi"])
    figure, axes = pyplot.subplots(1, len(names), figsize=(4.5 * len(names), 3.5), squeeze=False)
    for axis, name in zip(axes[0], names):
        for target, rows in found.items():
            points = [(elements, 1e9 * seconds / elements) for _, elements, seconds in rows[name]]
            if points:
                axis.plot(*zip(*points), marker="o", label=target)
        axis.set(xscale="log", title=name, xlabel=f"{UNITS[name]}s", ylabel=f"ns per {UNITS[name]}")
        axis.set_ylim(bottom=0)
        axis.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    print(f"drawn: {path}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(SIZES)}")
    parser.add_argument("--against", help="a Python that has taichi")
    parser.add_argument("--quick", action="store_true", help="the two smallest sizes of each alone")
    parser.add_argument("--plot", default="scale.png")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(*options.measure)
        return
    names = options.names or list(SIZES)
    pythons = {"vkchi": sys.executable} | ({"taichi": options.against} if options.against else {})
    found = run_all(pythons, names, options.quick)
    show(found)
    draw(options.plot, found)
    sys.exit(any(not rows for rows in found["vkchi"].values()))


if __name__ == "__main__":
    main()
