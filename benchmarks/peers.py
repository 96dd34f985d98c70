#!/usr/bin/env python3
"""Programs of `programs.py` in the style of users of numba, Warp or torch, on the CPU.

    benchmarks/peers.py numba|warp|torch [NAME...]

Prints a JSON of seconds per program, with first calls as `first/NAME`; empty for packages that are
not installed. Programs without an idiomatic version are left out. `limits` are the maximum rates of
vkchi's device: copies, and multiply-adds.
"""

import importlib.util
import json
import os
import sys
import time

import numpy as np

if os.environ.get("BENCH_CLOCK") == "cpu":
    time.perf_counter = time.process_time
N = 1 << 22


def best(fn, reps=5):
    """Seconds of the first call, and of the fastest."""
    found = []
    for _ in range(reps + 1):
        start = time.perf_counter()
        fn()
        found.append(time.perf_counter() - start)
    return found[0], min(found[1:])


def with_numba():
    """Program -> (function, arguments)."""
    from numba import njit, prange

    @njit(parallel=True)
    def saxpy(a, x, y):
        for i in prange(x.size):
            y[i] = a * x[i] + y[i]

    @njit(parallel=True)
    def reduce_sum(x):
        s = np.float32(0)
        for i in prange(x.size):
            s += x[i]
        return s

    @njit
    def histogram(x, h):
        for i in range(x.size):
            h[x[i]] += 1

    @njit(parallel=True)
    def jacobi(a, b):
        for i in prange(1, a.shape[0] - 1):
            for j in range(1, a.shape[1] - 1):
                b[i, j] = np.float32(0.25) * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])

    @njit(parallel=True)
    def transpose(x, y):
        for i in prange(x.shape[0]):
            for j in range(x.shape[1]):
                y[j, i] = x[i, j]

    @njit(parallel=True, fastmath=True)
    def nbody(x, y):
        for i in prange(x.shape[0]):
            f0 = f1 = np.float32(0)
            for j in range(x.shape[0]):
                d0, d1 = x[j, 0] - x[i, 0], x[j, 1] - x[i, 1]
                r = np.float32(1) / np.sqrt(d0 * d0 + d1 * d1 + np.float32(1e-3))
                f0 += d0 * r * r * r
                f1 += d1 * r * r * r
            y[i, 0], y[i, 1] = f0, f1

    @njit(parallel=True, fastmath=True)
    def matmul_shared(a, b, c):
        for i in prange(a.shape[0]):
            for j in range(b.shape[1]):
                s = np.float32(0)
                for q in range(a.shape[1]):
                    s += a[i, q] * b[q, j]
                c[i, j] = s

    @njit(parallel=True, fastmath=True)
    def seed_depthwise_v0(out, w, k, eps):
        size = out.shape[2]
        for row in prange(out.shape[0] * out.shape[1]):
            b, c = row // out.shape[1], row % out.shape[1]
            for t in range(size):
                s = eps
                for u in range(t - size + 1, t + 1):
                    s += w[c, 0, (size - 1) - (t - u)] * k[b, c, u + size - 1]
                out[b, c, t] = s

    @njit(parallel=True)
    def row_sum_atomic(x, r):
        for i in prange(x.shape[0]):
            for j in range(x.shape[1]):
                r[i] += x[i, j]

    functions = {name: fn for name, fn in locals().items() if name in INPUTS}
    return {name: (fn, INPUTS[name]()) for name, fn in functions.items()}


def with_warp():
    """Program -> (function, arguments)."""
    import warp as wp

    wp.config.quiet = True
    wp.init()
    floats, matrix = wp.array(dtype=float), wp.array2d(dtype=float)
    integers, vectors = wp.array(dtype=int), wp.array(dtype=wp.vec2)

    @wp.kernel
    def saxpy(a: float, x: floats, y: floats):
        i = wp.tid()
        y[i] = a * x[i] + y[i]

    @wp.kernel
    def histogram(x: integers, h: integers):
        wp.atomic_add(h, x[wp.tid()], 1)

    @wp.kernel
    def jacobi(a: matrix, b: matrix):
        i, j = wp.tid()
        b[i + 1, j + 1] = 0.25 * (a[i, j + 1] + a[i + 2, j + 1] + a[i + 1, j] + a[i + 1, j + 2])

    @wp.kernel
    def transpose(x: matrix, y: matrix):
        i, j = wp.tid()
        y[j, i] = x[i, j]

    @wp.kernel
    def nbody(x: vectors, y: vectors):
        p = x[wp.tid()]
        f = wp.vec2(0.0, 0.0)
        for j in range(x.shape[0]):
            d = x[j] - p
            r = 1.0 / wp.sqrt(wp.dot(d, d) + 1e-3)
            f += d * (r * r * r)
        y[wp.tid()] = f

    @wp.kernel
    def matmul(a: matrix, b: matrix, c: matrix):
        i, j = wp.tid()
        s = wp.float32(0.0)
        for q in range(a.shape[1]):
            s += a[i, q] * b[q, j]
        c[i, j] = s

    @wp.kernel
    def row_sum(x: matrix, r: floats):
        i, j = wp.tid()
        wp.atomic_add(r, i, x[i, j])

    kernels = {
        "saxpy": (saxpy, N), "histogram": (histogram, N), "jacobi": (jacobi, (1022, 1022)),
        "transpose": (transpose, (1536, 1000)), "nbody": (nbody, 8192),
        "matmul_shared": (matmul, (512, 512)), "row_sum_atomic": (row_sum, (2048, 2048)),
    }  # fmt: skip

    def array(v):
        if not isinstance(v, np.ndarray):
            return v
        return wp.array(v, dtype=wp.vec2) if v.shape[1:] == (2,) else wp.array(v)

    def launcher(kernel, dim):
        return lambda *args: wp.launch(kernel, dim, inputs=list(args))

    x, total = array(*INPUTS["reduce_sum"]()), wp.zeros(1, dtype=float)
    found = {"reduce_sum": (lambda: wp.utils.array_sum(x, out=total), [])}
    return found | {
        name: (launcher(*program), [array(v) for v in INPUTS[name]()])
        for name, program in kernels.items()
    }


def with_torch():
    """Program -> (function, arguments)."""
    import torch

    functions = {
        "saxpy": lambda a, x, y: y.add_(x, alpha=a),
        "reduce_sum": lambda x: x.sum(),
        "histogram": lambda x, h: torch.bincount(x, minlength=256),
        "jacobi": lambda a, b: torch.mul(
            a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:], 0.25, out=b[1:-1, 1:-1]
        ),
        "transpose": lambda x, y: y.copy_(x.T),
        "matmul_shared": lambda a, b, c: torch.mm(a, b, out=c),
        "seed_depthwise_v0": lambda out, w, k, eps: torch.nn.functional.conv1d(
            k[:, :, : 2 * out.shape[2] - 1], w, groups=w.shape[0]
        ) + eps,
        "row_sum_atomic": lambda x, r: r.add_(x.sum(1)),
    }  # fmt: skip

    def tensor(v):
        return torch.from_numpy(v) if isinstance(v, np.ndarray) else v

    return {name: (fn, [tensor(v) for v in INPUTS[name]()]) for name, fn in functions.items()}


def zeros(*shape):
    return np.zeros(shape, np.float32)


def ones(*shape):
    return np.ones(shape, np.float32)


# The sizes of programs.py.
INPUTS = {
    "saxpy": lambda: [np.float32(2).item(), ones(N), zeros(N)],
    "reduce_sum": lambda: [ones(N)],
    "histogram": lambda: [
        np.random.default_rng(1).integers(0, 256, N, dtype=np.int32), np.zeros(256, np.int32),
    ],
    "jacobi": lambda: [ones(1024, 1024), zeros(1024, 1024)],
    "transpose": lambda: [ones(1536, 1000), zeros(1000, 1536)],
    "nbody": lambda: [np.random.default_rng(3).random((8192, 2), dtype=np.float32), zeros(8192, 2)],
    "matmul_shared": lambda: [ones(512, 512), ones(512, 512), zeros(512, 512)],
    "seed_depthwise_v0": lambda: [zeros(4, 96, 256), ones(96, 1, 256), ones(4, 96, 512), 0.1],
    "row_sum_atomic": lambda: [ones(2048, 2048), zeros(2048)],
}  # fmt: skip


def limits():
    """Rates of vkchi's device: bytes copied per second, and f32 operations per second."""
    import vkchi as ti

    ti.init(offline_cache=False)
    x, y = ti.ndarray(ti.f32, N), ti.ndarray(ti.f32, N)
    x.fill(1)

    def copy():
        for _ in range(5):
            y.copy_from(x)
        ti.sync()

    rounds, chains, count = 2048, 8, 1 << 16
    out = ti.field(ti.f32, count)

    @ti.kernel
    def multiply_add(a: ti.f32):
        for i in out:
            v = ti.Vector([ti.cast(i + k, ti.f32) for k in range(chains)])
            for _ in range(rounds):
                v = v * a + a
            out[i] = v.sum()

    def compute():
        multiply_add(0.5)
        ti.sync()

    return {
        "bytes": 5 * 2 * 4 * N / best(copy)[1],
        "operations": 2.0 * rounds * chains * count / best(compute)[1],
    }


def main():
    target, *only = sys.argv[1:]
    if target == "limits":
        print(json.dumps(limits()))
        return
    found = {}
    if importlib.util.find_spec(target):
        programs = {"numba": with_numba, "warp": with_warp, "torch": with_torch}[target]()
        for name, (fn, args) in programs.items():
            if not only or name in only:
                found["first/" + name], found[name] = best(lambda: fn(*args))  # noqa: B023
    print(json.dumps(found))


if __name__ == "__main__":
    main()
