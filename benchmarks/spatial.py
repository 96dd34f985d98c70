"""Sorting and geometry queries on the device, beside numpy and scipy.

Wall time / processor time of all threads in ms: minima of several calls, in turns. In parentheses,
both relative to the first column.

    python benchmarks/spatial.py [ROW ...] > benchmarks/results/DATE-spatial.txt
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

import vkchi as ti
from vkchi.algorithms.radix_sort import PairSort


def best_ms(*functions: Callable[[], object], rounds: int = 9) -> list[tuple[float, float]]:
    """Least wall and processor times of the functions, called in turns after one call each."""
    found = [[] for _ in functions]
    for k in range(rounds + 1):
        for times, function in zip(found, functions):
            begin, spent = time.perf_counter(), time.process_time()
            function()
            ti.sync()
            if k:
                wall = (time.perf_counter() - begin) * 1e3
                times.append((wall, (time.process_time() - spent) * 1e3))
    return [(min(wall for wall, _ in times), min(cpu for _, cpu in times)) for times in found]


def show(what: str, **times: tuple[float, float]) -> None:
    """Print a row: wall / processor time of each form, and its ratios to the first one."""
    first = next(iter(times.values()))
    words = [
        f"{name} {wall:.2f} / {cpu:.2f}"
        + (f" ({wall / first[0]:.2f}, {cpu / first[1]:.2f})" if (wall, cpu) != first else "")
        for name, (wall, cpu) in times.items()
    ]
    print(f"{what}: {'; '.join(words)}", flush=True)


def sort() -> None:
    for n in (1 << 14, 1 << 17, 1 << 20):
        values = np.random.default_rng(0).integers(0, 1 << 32, n, dtype=np.uint32)
        keys, order = ti.ndarray(ti.u32, n), ti.ndarray(ti.i32, n)
        keys.from_numpy(values)
        ours, numpys = best_ms(
            lambda: ti.algorithms.argsort(keys, order),
            lambda: np.argsort(values, kind="stable"),
        )
        assert (order.to_numpy() == np.argsort(values, kind="stable")).all()
        show(f"argsort of {n} u32", vkchi=ours, numpy=numpys)


def scan() -> None:
    n = 1 << 20
    values = np.random.default_rng(0).integers(0, 9, n, dtype=np.int32)
    x, out, mask = ti.ndarray(ti.i32, n), ti.ndarray(ti.i32, n), values > 4
    x.from_numpy(values)
    kept = ti.ndarray(ti.i32, n)
    m = ti.ndarray(ti.i32, n)
    m.from_numpy(mask.astype(np.int32))
    ours, numpys = best_ms(
        lambda: ti.algorithms.inclusive_scan(x, out),
        lambda: np.cumsum(values, dtype=np.int32),
    )
    show(f"inclusive scan of {n} i32", vkchi=ours, numpy=numpys)
    ours, numpys = best_ms(lambda: ti.algorithms.compact(m, kept), lambda: np.nonzero(mask))
    show(f"compact of {n} indices", vkchi=ours, numpy=numpys)


def grid_build() -> None:
    from scipy.spatial import cKDTree

    n = 1_000_000
    values = np.random.default_rng(0).random((n, 3), np.float32)
    x = ti.Vector.field(3, ti.f32, n)
    x.from_numpy(values)
    grid = ti.spatial.HashGrid(x, 0.01)
    keys, order = ti.ndarray(ti.u32, n), ti.ndarray(ti.i32, n)
    keys.from_numpy(np.random.default_rng(1).integers(0, 1 << 32, n, dtype=np.uint32))
    count = ti.field(ti.i32, n)
    pairs = PairSort(n)
    pairs.pairs.from_numpy(np.random.default_rng(3).integers(0, 1 << 32, (n, 2), dtype=np.uint32))

    @ti.kernel
    def neighbours():
        for k in range(n):
            i = grid.order[k]
            found = 0
            for j in grid.near(x[i]):
                found += 1
            count[i] = found

    one_sort, build, argsort, near = best_ms(
        lambda: pairs.run(n, 32),
        grid.build,
        lambda: ti.algorithms.argsort(keys, order),
        neighbours,
        rounds=5,
    )
    show(
        f"{n} points in 3-D, pairs of u32",
        radix_sort=one_sort,
        build=build,
        argsort=argsort,
        neighbours=near,
    )
    tree, found = best_ms(
        lambda: cKDTree(values),
        lambda: cKDTree(values[:100_000]).query_ball_point(
            values[:100_000], 0.01, return_length=True
        ),
        rounds=1,
    )
    show("scipy: cKDTree", build=tree, counts_of_100_000=found)
    some = np.random.default_rng(2).integers(0, n, 1000)
    exact = cKDTree(values).query_ball_point(values[some], 0.01, return_length=True)
    print("neighbours that differ from cKDTree's:", abs(count.to_numpy()[some] - exact).sum())


def discs() -> None:
    """Forces between 8,000 discs that touch 3.7 others on average, by several loops."""
    n, side, reach = 8000, 90, 0.12
    rng = np.random.default_rng(0)
    places = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 2)[:n]
    places = ((places + rng.random((n, 2)) * 0.4) * 0.1).astype(np.float32)[rng.permutation(n)]
    speeds = rng.standard_normal((n, 2)).astype(np.float32)
    x, v, f = (ti.Vector.field(2, ti.f32, n) for _ in range(3))
    count, list_of = ti.field(ti.i32, n), ti.field(ti.i32, (n, 24))
    x.from_numpy(places)
    v.from_numpy(speeds)
    grid = ti.spatial.HashGrid(x, reach)

    @ti.func
    def contact(i, j):
        force = ti.Vector([0.0, 0.0])
        d = x[j] - x[i]
        length = d.norm()
        if length < reach and length > 0:
            force = d / length * (100.0 * (length - reach)) + 0.3 * (v[j] - v[i])
        return force

    @ti.kernel
    def by_grid():
        for i in x:
            force = ti.Vector([0.0, 0.0])
            for j in grid.near(x[i]):
                force += contact(i, j)
            f[i] = force

    @ti.kernel
    def by_grid_in_order():
        for k in x:
            i = grid.order[k]
            force = ti.Vector([0.0, 0.0])
            for j in grid.near(x[i]):
                force += contact(i, j)
            f[i] = force

    @ti.kernel
    def make_lists():
        for i in x:
            c = 0
            for j in grid.near(x[i]):
                if j != i:
                    list_of[i, c] = j
                    c += 1
            count[i] = c

    @ti.kernel
    def by_lists():
        for i in x:
            force = ti.Vector([0.0, 0.0])
            for k in range(count[i]):
                force += contact(i, list_of[i, k])
            f[i] = force

    make_lists()
    loops = (by_lists, by_grid, by_grid_in_order, make_lists, grid.build)
    lists, near, order, make, build = best_ms(*loops, rounds=60)
    show("8,000 discs", lists=lists, near=near, near_in_order=order, make_lists=make, build=build)
    grid.reorder(v)
    make_lists()
    lists, near, make, build = best_ms(by_lists, by_grid, make_lists, grid.build, rounds=60)
    show("8,000 discs, sorted", lists=lists, near=near, make_lists=make, build=build)


def tree() -> None:
    """A mesh of 100,000 triangles: a wavy sheet."""
    side = 224
    u, v = np.meshgrid(np.linspace(0, 1, side), np.linspace(0, 1, side), indexing="ij")
    places = np.stack([u, v, 0.05 * np.sin(20 * u) * np.cos(15 * v)], -1).reshape(-1, 3)
    k = (np.arange(side - 1)[:, None] * side + np.arange(side - 1)).ravel()
    faces = np.concatenate([[k, k + 1, k + side], [k + 1, k + side + 1, k + side]], 1).T
    x, t = ti.Vector.field(3, ti.f32, side * side), ti.Vector.field(3, ti.i32, len(faces))
    x.from_numpy(places.astype(np.float32))
    t.from_numpy(faces.astype(np.int32))
    bvh = ti.spatial.BVH(x, t)
    n = 100_000
    rng = np.random.default_rng(0)
    p, hit, near = ti.Vector.field(3, ti.f32, n), ti.field(ti.i32, n), ti.field(ti.i32, n)
    p.from_numpy((rng.random((n, 3)) * [1, 1, 0.4] - [0, 0, 0.2]).astype(np.float32))

    @ti.kernel
    def rays():
        for i in p:
            hit[i] = bvh.ray_cast(p[i], ti.Vector([0.3, 0.2, -1.0]))[0]

    @ti.kernel
    def closest():
        for i in p:
            near[i] = bvh.closest_point(p[i])[0]

    build, refit, ray, close = best_ms(bvh.build, bvh.refit, rays, closest, rounds=5)
    show(f"{len(faces)} triangles, {n} queries", build=build, refit=refit, rays=ray, closest=close)
    print(f"rays that hit: {(hit.to_numpy() >= 0).mean():.2f}")


ROWS = {f.__name__: f for f in (sort, scan, discs, grid_build, tree)}

if __name__ == "__main__":
    ti.init(arch=ti.cpu)
    for name in sys.argv[1:] or ROWS:
        ROWS[name]()
