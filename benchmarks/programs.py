#!/usr/bin/env python3
"""The same programs, timed on one target: programs.py TARGET ARCH [NAME...].

Prints a JSON of seconds per program.

TARGET is a package with Taichi's API (taichi, quadrants, vkchi). Every figure is the minimum of
several repetitions, each completed by sync(). `compile/*` are first-call times in this process
without an offline cache, `warm/*` with one (run the process twice). `launch/*` are seconds per
launch of a nearly empty kernel.
"""

import importlib
import importlib.util
import json
import os
import sys
import time

import numpy as np

target, arch, *only = sys.argv[1:]
if os.environ.get("BENCH_CLOCK") == "cpu":  # CPU time of all threads, robust on a busy machine
    time.perf_counter = time.process_time
t0 = time.perf_counter()
ti = importlib.import_module(target)
t_import = time.perf_counter() - t0
OUT = {"import": t_import}
CACHE = os.environ.get("BENCH_CACHE", "0") == "1"
opts = dict(arch=getattr(ti, arch), offline_cache=CACHE, random_seed=1)
t0 = time.perf_counter()
ti.init(**opts)
OUT["init"] = time.perf_counter() - t0
PROGRAMS = {}


def program(f):
    PROGRAMS[f.__name__] = f
    return f


def best(fn, reps=5, inner=1):
    t0 = time.perf_counter()
    fn()
    ti.sync()
    first = time.perf_counter() - t0
    out = 1e30
    for _ in range(reps):
        t0 = time.perf_counter()
        for _ in range(inner):
            fn()
        ti.sync()
        out = min(out, (time.perf_counter() - t0) / inner)
    return first, out


@program
def saxpy():
    n = 1 << 22
    x = ti.field(ti.f32, shape=n)
    y = ti.field(ti.f32, shape=n)
    x.fill(1)

    @ti.kernel
    def k(a: ti.f32):
        for i in x:
            y[i] = a * x[i] + y[i]

    first, b = best(lambda: k(2.0), inner=5)
    assert abs(y[5] - 2.0 * 26) < 1e-3, y[5]
    return first, b


@program
def saxpy_ndarray():
    n = 1 << 22
    x = ti.ndarray(ti.f32, shape=n)
    y = ti.ndarray(ti.f32, shape=n)
    x.fill(1)
    y.fill(0)

    @ti.kernel
    def k(a: ti.f32, x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = a * x[i] + y[i]

    first, b = best(lambda: k(2.0, x, y), inner=5)
    assert abs(y.to_numpy()[5] - 2.0 * 26) < 1e-3
    return first, b


def saxpy_of(x, y):
    """Saxpy on memory of another library; calls wait for completion."""

    @ti.kernel
    def k(a: ti.f32, x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = a * x[i] + y[i]

    first, b = best(lambda: k(2.0, x, y), inner=5)
    assert abs(float(y[5]) - 2.0 * 26) < 1e-3
    return first, b


@program
def saxpy_numpy():
    n = 1 << 22
    return saxpy_of(np.ones(n, np.float32), np.zeros(n, np.float32))


if importlib.util.find_spec("torch"):

    @program
    def saxpy_torch():
        import torch

        n = 1 << 22
        return saxpy_of(torch.ones(n), torch.zeros(n))


@program
def reduce_sum():
    n = 1 << 22
    x = ti.field(ti.f32, shape=n)
    s = ti.field(ti.f32, shape=())
    x.fill(0.25)

    @ti.kernel
    def k():
        for i in x:
            s[None] += x[i]

    r = best(k)
    s[None] = 0
    k()
    assert abs(s[None] - n / 4) < 1e-3 * n, s[None]
    return r


@program
def histogram():
    n = 1 << 22
    x = ti.field(ti.i32, shape=n)
    h = ti.field(ti.i32, shape=256)
    x.from_numpy(np.random.default_rng(1).integers(0, 256, n, dtype=np.int32))

    @ti.kernel
    def k():
        for i in x:
            h[x[i]] += 1

    r = best(k)
    h.fill(0)
    k()
    assert h.to_numpy().sum() == n
    return r


@program
def jacobi():
    n = 1024
    a = ti.field(ti.f32, shape=(n, n))
    b = ti.field(ti.f32, shape=(n, n))
    a.from_numpy(np.random.default_rng(2).random((n, n), dtype=np.float32))

    @ti.kernel
    def k():
        for i, j in ti.ndrange((1, n - 1), (1, n - 1)):
            b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])

    r = best(k, inner=5)
    A = a.to_numpy()
    ref = 0.25 * (A[:-2, 1:-1] + A[2:, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:])
    np.testing.assert_allclose(b.to_numpy()[1:-1, 1:-1], ref, rtol=1e-5)
    return r


@program
def transpose():
    n, m = 1536, 1000
    a, b = ti.ndarray(ti.f32, (n, m)), ti.ndarray(ti.f32, (m, n))
    a.from_numpy(np.random.default_rng(2).random((n, m), dtype=np.float32))

    @ti.kernel
    def k(x: ti.types.ndarray(dtype=ti.f32, ndim=2), y: ti.types.ndarray(dtype=ti.f32, ndim=2)):
        for i, j in x:
            y[j, i] = x[i, j]

    r = best(lambda: k(a, b), inner=5)
    assert (b.to_numpy() == a.to_numpy().T).all()
    return r


@program
def stencil_3d():
    n = 160
    a, b = ti.ndarray(ti.f32, (n, n, n)), ti.ndarray(ti.f32, (n, n, n))
    a.from_numpy(np.random.default_rng(2).random((n, n, n), dtype=np.float32))

    @ti.kernel
    def k(x: ti.types.ndarray(dtype=ti.f32, ndim=3), y: ti.types.ndarray(dtype=ti.f32, ndim=3)):
        for i, j, k in ti.ndrange((1, x.shape[0] - 1), (1, x.shape[1] - 1), (1, x.shape[2] - 1)):
            total = x[i - 1, j, k] + x[i + 1, j, k] + x[i, j - 1, k] + x[i, j + 1, k]
            y[i, j, k] = 0.5 * x[i, j, k] + 0.1 * (total + x[i, j, k - 1] + x[i, j, k + 1])

    r = best(lambda: k(a, b), inner=2)
    A = a.to_numpy()
    C = M = slice(1, -1)
    L, R = slice(0, -2), slice(2, None)
    near = A[L, C, C] + A[R, C, C] + A[C, L, C] + A[C, R, C] + A[C, C, L] + A[C, C, R]
    np.testing.assert_allclose(b.to_numpy()[M, M, M], 0.5 * A[M, M, M] + 0.1 * near, rtol=1e-5)
    return r


@program
def nbody():
    n = 8192
    x = ti.Vector.field(2, ti.f32, n)
    y = ti.Vector.field(2, ti.f32, n)
    X = np.random.default_rng(3).random((n, 2), dtype=np.float32)
    x.from_numpy(X)

    @ti.kernel
    def k():
        for i in x:
            p = x[i]
            f = ti.Vector([0.0, 0.0])
            for j in range(n):
                d = x[j] - p
                r = ti.rsqrt(d.dot(d) + 1e-3)
                f += d * r * r * r
            y[i] = f

    res = best(k, reps=3)
    d = X[None, :, :].astype(np.float64) - X[:16, None, :]
    ref = (d / (np.sum(d * d, -1, keepdims=True) + 1e-3) ** 1.5).sum(1)
    np.testing.assert_allclose(y.to_numpy()[:16], ref, rtol=2e-3)
    return res


@program
def mandelbrot():
    n = 512
    img = ti.field(ti.f32, shape=(2 * n, n))

    @ti.func
    def csqr(z):
        return ti.Vector([z[0] ** 2 - z[1] ** 2, 2 * z[0] * z[1]])

    @ti.kernel
    def paint(t: ti.f32):
        for i, j in img:
            c = ti.Vector([-0.8, ti.cos(t) * 0.2])
            z = ti.Vector([i / n - 1, j / n - 0.5]) * 2
            it = 0
            while z.norm() < 20 and it < 50:
                z = csqr(z) + c
                it += 1
            img[i, j] = 1 - it * 0.02

    return best(lambda: paint(0.3), reps=3)


@program
def mpm88():
    n_particles, n_grid = 8192, 128
    dx, dt = 1 / n_grid, 2e-4
    p_rho, p_vol, gravity, bound, E = 1, (dx * 0.5) ** 2, 9.8, 3, 400
    p_mass = p_vol * p_rho
    x = ti.Vector.field(2, float, n_particles)
    v = ti.Vector.field(2, float, n_particles)
    C = ti.Matrix.field(2, 2, float, n_particles)
    J = ti.field(float, n_particles)
    gv = ti.Vector.field(2, float, (n_grid, n_grid))
    gm = ti.field(float, (n_grid, n_grid))

    @ti.kernel
    def substep():
        for i, j in gm:
            gv[i, j] = [0, 0]
            gm[i, j] = 0
        for p in x:
            Xp = x[p] / dx
            base = int(Xp - 0.5)
            fx = Xp - base
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            stress = -dt * 4 * E * p_vol * (J[p] - 1) / dx**2
            affine = ti.Matrix([[stress, 0], [0, stress]]) + p_mass * C[p]
            for i, j in ti.static(ti.ndrange(3, 3)):
                offset = ti.Vector([i, j])
                dpos = (offset - fx) * dx
                weight = w[i].x * w[j].y
                gv[base + offset] += weight * (p_mass * v[p] + affine @ dpos)
                gm[base + offset] += weight * p_mass
        for i, j in gm:
            if gm[i, j] > 0:
                gv[i, j] /= gm[i, j]
            gv[i, j].y -= dt * gravity
            if i < bound and gv[i, j].x < 0:
                gv[i, j].x = 0
            if i > n_grid - bound and gv[i, j].x > 0:
                gv[i, j].x = 0
            if j < bound and gv[i, j].y < 0:
                gv[i, j].y = 0
            if j > n_grid - bound and gv[i, j].y > 0:
                gv[i, j].y = 0
        for p in x:
            Xp = x[p] / dx
            base = int(Xp - 0.5)
            fx = Xp - base
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            new_v = ti.Vector.zero(float, 2)
            new_C = ti.Matrix.zero(float, 2, 2)
            for i, j in ti.static(ti.ndrange(3, 3)):
                offset = ti.Vector([i, j])
                dpos = (offset - fx) * dx
                weight = w[i].x * w[j].y
                g_v = gv[base + offset]
                new_v += weight * g_v
                new_C += 4 * weight * g_v.outer_product(dpos) / dx**2
            v[p] = new_v
            x[p] += dt * v[p]
            J[p] *= 1 + dt * new_C.trace()
            C[p] = new_C

    rng = np.random.default_rng(4)
    x.from_numpy((rng.random((n_particles, 2)) * 0.4 + 0.2).astype(np.float32))
    v.from_numpy(np.tile(np.array([0, -1], np.float32), (n_particles, 1)))
    J.fill(1)
    r = best(substep, reps=5, inner=10)
    assert np.isfinite(x.to_numpy()).all()
    return r


@program
def matmul_shared():
    n, B = 512, 16
    a = ti.field(ti.f32, (n, n))
    b = ti.field(ti.f32, (n, n))
    c = ti.field(ti.f32, (n, n))
    rng = np.random.default_rng(5)
    A, Bm = rng.random((n, n), dtype=np.float32), rng.random((n, n), dtype=np.float32)
    a.from_numpy(A)
    b.from_numpy(Bm)

    @ti.kernel
    def k():
        for i, j in ti.ndrange(n, n):
            s = 0.0
            for q in range(n):
                s += a[i, q] * b[q, j]
            c[i, j] = s

    r = best(k, reps=3)
    np.testing.assert_allclose(c.to_numpy(), A @ Bm, rtol=1e-4)
    return r


@program
def ad_gravity():
    N = 2048
    x = ti.Vector.field(2, dtype=ti.f32, shape=N, needs_grad=True)
    U = ti.field(dtype=ti.f32, shape=(), needs_grad=True)

    @ti.kernel
    def compute_U():
        for i, j in ti.ndrange(N, N):
            r = x[i] - x[j]
            U[None] += -1 / r.norm(1e-3)

    X = np.random.default_rng(6).random((N, 2), dtype=np.float32)
    x.from_numpy(X)

    def step():
        with ti.ad.Tape(loss=U):
            compute_U()

    r = best(step, reps=3)
    d = X[:8, None, :].astype(np.float64) - X[None]
    ref = 2 * (d / (np.sum(d * d, -1, keepdims=True) + 1e-3) ** 1.5).sum(1)
    np.testing.assert_allclose(x.grad.to_numpy()[:8], ref, rtol=5e-3, atol=5e-1)
    return r


@program
def ad_springs():
    """Many small kernels in one tape: 200 steps of a chain."""
    n, steps, dt = 64, 200, 0.01
    x = ti.Vector.field(2, ti.f32, (steps + 1, n), needs_grad=True)
    v = ti.Vector.field(2, ti.f32, (steps + 1, n), needs_grad=True)
    force = ti.Vector.field(2, ti.f32, (steps, n), needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def pull(t: ti.i32):
        for i in range(n - 1):
            d = x[t, i + 1] - x[t, i]
            f = 100 * (d.norm() - 0.1) * d.normalized()
            force[t, i] += f
            force[t, i + 1] -= f

    @ti.kernel
    def move(t: ti.i32):
        for i in range(n):
            v[t + 1, i] = 0.99 * v[t, i] + dt * (force[t, i] + ti.Vector([0.0, -1.0]))
            x[t + 1, i] = x[t, i] + dt * v[t + 1, i]

    @ti.kernel
    def measure():
        for i in range(n):
            loss[None] += x[steps, i].y

    start = np.zeros((steps + 1, n, 2), np.float32)
    start[0, :, 0] = 0.11 * np.arange(n)
    x.from_numpy(start)

    def step():
        force.fill(0)
        with ti.ad.Tape(loss=loss):
            for t in range(steps):
                pull(t)
                move(t)
            measure()

    r = best(step, reps=3)
    # internal forces cancel: only the sum of heights enters, so the gradients sum to n
    np.testing.assert_allclose(x.grad.to_numpy()[0, :, 1].sum(), n, rtol=1e-3)
    return r


@program
def ad_wave():
    """Stencils, whose gradients scatter: 64 steps of a wave on a 256 by 256 grid."""
    n, steps, c = 256, 64, 0.2
    u = ti.field(ti.f32, (steps + 2, n, n), needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def advance(t: ti.i32):
        for i, j in ti.ndrange((1, n - 1), (1, n - 1)):
            around = u[t, i - 1, j] + u[t, i + 1, j] + u[t, i, j - 1] + u[t, i, j + 1]
            u[t + 1, i, j] = 2 * u[t, i, j] - u[t - 1, i, j] + c * (around - 4 * u[t, i, j])

    @ti.kernel
    def measure():
        for i, j in ti.ndrange(n, n):
            loss[None] += u[steps + 1, i, j] ** 2

    start = np.zeros((steps + 2, n, n), np.float32)
    start[:2] = np.random.default_rng(8).random((n, n), dtype=np.float32)
    u.from_numpy(start)

    def step():
        with ti.ad.Tape(loss=loss):
            for t in range(1, steps + 1):
                advance(t)
            measure()

    r = best(step, reps=3)
    g = np.zeros((steps + 2, n, n))
    g[-1] = 2 * u.to_numpy()[-1]
    for t in range(steps, 0, -1):
        inner = g[t + 1, 1:-1, 1:-1]
        g[t, 1:-1, 1:-1] += (2 - 4 * c) * inner
        g[t - 1, 1:-1, 1:-1] -= inner
        for di, dj in ((0, 1), (2, 1), (1, 0), (1, 2)):
            g[t, di : n - 2 + di, dj : n - 2 + dj] += c * inner
    np.testing.assert_allclose(u.grad.to_numpy()[1], g[1], rtol=1e-2, atol=1e-2 * abs(g[1]).max())
    return r


@program
def ad_conv():
    """Convolution of 512 by 512 values with 5 by 5 weights, and its gradients for both."""
    n, m = 512, 5
    x, y = (ti.field(ti.f32, (n, n), needs_grad=True) for _ in range(2))
    w = ti.field(ti.f32, (m, m), needs_grad=True)

    @ti.kernel
    def convolve():
        for i, j in ti.ndrange(n - m + 1, n - m + 1):
            s = 0.0
            for k, l in ti.ndrange(m, m):
                s += x[i + k, j + l] * w[k, l]
            y[i, j] = s

    values = np.random.default_rng(8).random((n, n), dtype=np.float32)
    x.from_numpy(values)
    w.fill(0.5)

    def step():
        y.grad.fill(1.0)
        x.grad.fill(0.0)
        w.grad.fill(0.0)
        convolve()
        convolve.grad()

    r = best(step, reps=3)
    inner = n - m + 1
    np.testing.assert_allclose(x.grad.to_numpy()[m:-m, m:-m], m * m * 0.5, rtol=1e-4)
    np.testing.assert_allclose(
        w.grad.to_numpy()[1, 2], values[1 : inner + 1, 2 : inner + 2].sum(), rtol=1e-3
    )
    return r


@program
def ad_layer():
    """A dense layer: 256 samples of 128 values to 128."""
    samples, n = 256, 128
    w = ti.field(ti.f32, (n, n), needs_grad=True)
    x = ti.field(ti.f32, (samples, n), needs_grad=True)
    y = ti.field(ti.f32, (samples, n), needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def forward():
        for b, o in ti.ndrange(samples, n):
            total = 0.0
            for i in range(n):
                total += w[o, i] * x[b, i]
            y[b, o] = ti.tanh(total)

    @ti.kernel
    def measure():
        for b, o in ti.ndrange(samples, n):
            loss[None] += y[b, o] ** 2

    rng = np.random.default_rng(9)
    W, X = rng.normal(0, 0.1, (n, n)), rng.normal(0, 1, (samples, n))
    w.from_numpy(W.astype(np.float32))
    x.from_numpy(X.astype(np.float32))

    def step():
        with ti.ad.Tape(loss=loss):
            forward()
            measure()

    r = best(step, reps=3)
    Y = np.tanh(X @ W.T)
    G = 2 * Y * (1 - Y**2)
    np.testing.assert_allclose(w.grad.to_numpy(), G.T @ X, rtol=1e-2, atol=0.1)
    np.testing.assert_allclose(x.grad.to_numpy(), G @ W, rtol=1e-2, atol=0.01)
    return r


@program
def ad_mpm():
    """Particles and a grid: 20 steps of 2,048 elastic particles on 64 by 64 cells."""
    n, cells, steps, dt = 2048, 64, 20, 1e-4
    dx, inv_dx = 1 / cells, float(cells)
    x = ti.Vector.field(2, ti.f32, (steps + 1, n), needs_grad=True)
    v = ti.Vector.field(2, ti.f32, (steps + 1, n), needs_grad=True)
    C = ti.Matrix.field(2, 2, ti.f32, (steps + 1, n), needs_grad=True)
    F = ti.Matrix.field(2, 2, ti.f32, (steps + 1, n), needs_grad=True)
    gv = ti.Vector.field(2, ti.f32, (steps, cells, cells), needs_grad=True)
    gm = ti.field(ti.f32, (steps, cells, cells), needs_grad=True)
    out = ti.Vector.field(2, ti.f32, (steps, cells, cells), needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def p2g(t: ti.i32):
        for p in range(n):
            base = ti.cast(x[t, p] * inv_dx - 0.5, ti.i32)
            fx = x[t, p] * inv_dx - ti.cast(base, ti.f32)
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            f = (ti.Matrix.identity(ti.f32, 2) + dt * C[t, p]) @ F[t, p]
            F[t + 1, p] = f
            stress = 100.0 * (f @ f.transpose() - ti.Matrix.identity(ti.f32, 2))
            affine = -dt * inv_dx * inv_dx * 4 * 1e-4 * stress + 1e-4 * C[t, p]
            for i, j in ti.static(ti.ndrange(3, 3)):
                d = (ti.Vector([i, j]) - fx) * dx
                weight = w[i][0] * w[j][1]
                gv[t, base + ti.Vector([i, j])] += weight * (1e-4 * v[t, p] + affine @ d)
                gm[t, base + ti.Vector([i, j])] += weight * 1e-4

    @ti.kernel
    def grid(t: ti.i32):
        for i, j in ti.ndrange(cells, cells):
            u = gv[t, i, j] / (gm[t, i, j] + 1e-10)
            u[1] -= dt * 9.8
            out[t, i, j] = u

    @ti.kernel
    def g2p(t: ti.i32):
        for p in range(n):
            base = ti.cast(x[t, p] * inv_dx - 0.5, ti.i32)
            fx = x[t, p] * inv_dx - ti.cast(base, ti.f32)
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            new_v = ti.Vector([0.0, 0.0])
            new_C = ti.Matrix([[0.0, 0.0], [0.0, 0.0]])
            for i, j in ti.static(ti.ndrange(3, 3)):
                d = ti.Vector([i, j]) - fx
                u = out[t, base + ti.Vector([i, j])]
                weight = w[i][0] * w[j][1]
                new_v += weight * u
                new_C += 4 * weight * inv_dx * u.outer_product(d)
            v[t + 1, p] = new_v
            C[t + 1, p] = new_C
            x[t + 1, p] = x[t, p] + dt * new_v

    @ti.kernel
    def measure():
        for p in range(n):
            loss[None] += x[steps, p][1] / n

    start = np.zeros((steps + 1, n, 2), np.float32)
    start[0] = 0.3 + 0.4 * np.random.default_rng(10).random((n, 2), dtype=np.float32)
    x.from_numpy(start)
    unit = np.zeros((steps + 1, n, 2, 2), np.float32)
    unit[0] = np.eye(2)
    F.from_numpy(unit)

    def step():
        gv.fill(0)
        gm.fill(0)
        with ti.ad.Tape(loss=loss):
            for t in range(steps):
                p2g(t)
                grid(t)
                g2p(t)
            measure()

    r = best(step, reps=3)
    # momentum is conserved: these gradients sum to the elapsed time
    np.testing.assert_allclose(v.grad.to_numpy()[0, :, 1].sum(), dt * steps, rtol=1e-2)
    return r


@program
def seed_padding():
    th, tw, ph, pw, sx = 160, 160, 320, 320, 40
    H, W = th + 2 * ph, tw + 2 * pw
    shift_x, shift_y = (tw, 0), (sx, th)
    tile = np.random.default_rng(7).random((th, tw), dtype=np.float32)
    img = np.zeros((H, W), np.float32)

    @ti.kernel
    def pad(image_pixels: ti.types.ndarray(), tile: ti.types.ndarray()):
        for row, col in ti.ndrange(H, W):
            x1, y1 = ti.math.ivec2(col - pw, H - 1 - row + ph)
            v: ti.i32 = ti.floor(y1 / th)
            u: ti.i32 = ti.floor((x1 - v * shift_y[0]) / tw)
            x2, y2 = ti.math.ivec2(
                x1 - u * shift_x[0] - v * shift_y[0], y1 - u * shift_x[1] - v * shift_y[1]
            )
            x, y = ti.math.ivec2(th - 1 - y2, x2)
            image_pixels[row, col] = tile[x, y]

    d_img = ti.ndarray(ti.f32, (H, W))
    d_tile = ti.ndarray(ti.f32, (th, tw))
    d_tile.from_numpy(tile)
    return best(lambda: pad(d_img, d_tile), inner=5)


@program
def seed_depthwise_v0():
    B, C, T = 4, 96, 256
    rng = np.random.default_rng(8)
    w_, k_ = rng.random((C, 1, T), dtype=np.float32), rng.random((B, C, 2 * T), dtype=np.float32)
    k_[:, :, : T - 1] = 0
    out, w, k = (
        ti.ndarray(ti.f32, (B, C, T)),
        ti.ndarray(ti.f32, (C, 1, T)),
        ti.ndarray(ti.f32, (B, C, 2 * T)),
    )
    w.from_numpy(w_)
    k.from_numpy(k_)

    @ti.kernel
    def fwd(
        out: ti.types.ndarray(ndim=3),
        w: ti.types.ndarray(ndim=3),
        k: ti.types.ndarray(ndim=3),
        eps: ti.f32,
    ):
        for b, c, t in out:
            s = eps
            for u in range(t - T + 1, t + 1):
                s += w[c, 0, (T - 1) - (t - u)] * k[b, c, u + T - 1]
            out[b, c, t] = s

    r = best(lambda: fwd(out, w, k, 0.1), reps=3)
    ref = 0.1 + np.array(
        [[np.convolve(k_[0, c, :], w_[c, 0, ::-1], "valid")[:T] for c in range(2)]]
    )
    np.testing.assert_allclose(out.to_numpy()[:1, :2], ref, rtol=1e-3)
    return r


@program
def matmul_atomic():
    n = 384
    a, b, c = (ti.field(ti.f32, (n, n)) for _ in range(3))
    rng = np.random.default_rng(9)
    A, B = rng.random((n, n), dtype=np.float32), rng.random((n, n), dtype=np.float32)
    a.from_numpy(A)
    b.from_numpy(B)

    @ti.kernel
    def k():
        for i, j, q in ti.ndrange(n, n, n):
            c[i, j] += a[i, q] * b[q, j]

    def step():
        c.fill(0)
        k()

    r = best(step, reps=3)
    np.testing.assert_allclose(c.to_numpy(), A @ B, rtol=1e-4)
    return r


@program
def row_sum_atomic():
    n = 2048
    x, r = ti.field(ti.f32, (n, n)), ti.field(ti.f32, n)
    x.fill(1)

    @ti.kernel
    def k():
        for i, j in x:
            r[i] += x[i, j]

    out = best(k)
    assert r[3] % n == 0, r[3]
    return out


@program
def column_sum_atomic():
    n = 2048
    x, r = ti.field(ti.f32, (n, n)), ti.field(ti.f32, n)
    x.fill(1)

    @ti.kernel
    def k():
        for i, j in x:
            r[j] += x[i, j]

    out = best(k)
    assert r[3] % n == 0, r[3]
    return out


@program
def pair_forces():
    n = 2048
    x, f = ti.Vector.field(2, ti.f32, n), ti.Vector.field(2, ti.f32, n)
    X = np.random.default_rng(10).random((n, 2), dtype=np.float32)
    x.from_numpy(X)

    @ti.kernel
    def k():
        for i, j in ti.ndrange(n, n):
            if i != j:
                d = x[i] - x[j]
                f[i] += d / (d.norm_sqr() + 0.01)

    def step():
        f.fill(0)
        k()

    r = best(step)
    d = X[:8, None].astype(np.float64) - X[None]
    ref = (d / ((d * d).sum(-1, keepdims=True) + 0.01)).sum(1)
    np.testing.assert_allclose(f.to_numpy()[:8], ref, rtol=1e-3, atol=0.1)
    return r


@program
def kmeans_assign():
    n, m = 20000, 64
    x, centers, label = (
        ti.Vector.field(3, ti.f32, n),
        ti.Vector.field(3, ti.f32, m),
        ti.field(ti.i32, n),
    )
    rng = np.random.default_rng(11)
    X, C = rng.random((n, 3), dtype=np.float32), rng.random((m, 3), dtype=np.float32)
    x.from_numpy(X)
    centers.from_numpy(C)

    @ti.kernel
    def k():
        for i in x:
            nearest, at = 1e9, 0
            for c in range(m):
                d = (x[i] - centers[c]).norm_sqr()
                if d < nearest:
                    nearest, at = d, c
            label[i] = at

    r = best(k)
    d = ((X[:50, None].astype(np.float64) - C[None]) ** 2).sum(-1)
    assert (label.to_numpy()[:50] == d.argmin(1)).all()
    return r


@program
def blur5():
    n = 1024
    x, y = ti.field(ti.f32, (n, n)), ti.field(ti.f32, (n, n))
    x.fill(1)

    @ti.kernel
    def k():
        for i, j in x:
            s = 0.0
            for u, v in ti.static(ti.ndrange((-2, 3), (-2, 3))):
                if 0 <= i + u < n and 0 <= j + v < n:
                    s += x[i + u, j + v]
            y[i, j] = s

    out = best(k)
    assert y[0, 0] == 9 and y[5, 5] == 25, (y[0, 0], y[5, 5])
    return out


@program
def grid_update():
    n = 1024
    v, m = ti.Vector.field(2, ti.f32, (n, n)), ti.field(ti.f32, (n, n))
    m.fill(2)

    @ti.kernel
    def k():
        for i, j in m:
            if m[i, j] > 0:
                v[i, j] /= m[i, j]
            v[i, j].y -= 0.01
            if i < 3 and v[i, j].x < 0:
                v[i, j].x = 0
            if i > n - 3 and v[i, j].x > 0:
                v[i, j].x = 0
            if j < 3 and v[i, j].y < 0:
                v[i, j].y = 0
            if j > n - 3 and v[i, j].y > 0:
                v[i, j].y = 0

    return best(k)


@program
def chain():
    """Elementwise layers, with one loop per layer."""
    n = 1 << 21
    x, y = ti.ndarray(ti.f32, n), ti.ndarray(ti.f32, n)
    values = np.random.default_rng(7).random(n, dtype=np.float32)
    x.from_numpy(values)

    @ti.kernel
    def k(x: ti.types.ndarray(dtype=ti.f32, ndim=1), y: ti.types.ndarray(dtype=ti.f32, ndim=1)):
        for i in x:
            y[i] = 2 * x[i] - 1
        for i in y:
            y[i] = max(y[i], 0)
        for i in y:
            y[i] = y[i] * y[i] + x[i]

    r = best(lambda: k(x, y), inner=5)
    np.testing.assert_allclose(y.to_numpy(), np.maximum(2 * values - 1, 0) ** 2 + values, rtol=1e-5)
    return r


@program
def periodic():
    """A stencil on a torus, with shapes that are no compile-time constants."""
    n, m = 1024, 1000
    x, y = ti.ndarray(ti.f32, (n, m)), ti.ndarray(ti.f32, (n, m))
    values = np.random.default_rng(7).random((n, m), dtype=np.float32)
    x.from_numpy(values)

    @ti.kernel
    def k(x: ti.types.ndarray(dtype=ti.f32, ndim=2), y: ti.types.ndarray(dtype=ti.f32, ndim=2)):
        a, b = x.shape[0], x.shape[1]
        for i, j in x:
            y[i, j] = (
                x[(i + 1) % a, j] + x[(i - 1) % a, j] + x[i, (j + 1) % b] + x[i, (j + b - 1) % b]
            )

    r = best(lambda: k(x, y), inner=2)
    want = sum(np.roll(values, by, axis) for by in (1, -1) for axis in (0, 1))
    np.testing.assert_allclose(y.to_numpy(), want, rtol=1e-5)
    return r


@program
def conjugate_step():
    """Vector operations of a conjugate-gradient step, without the matrix product."""
    n = 1 << 20
    x, r, p, q = (ti.field(ti.f32, n) for _ in range(4))
    total = ti.field(ti.f32, ())
    p.fill(0.5)
    q.fill(0.25)
    r.fill(1)

    @ti.kernel
    def k(a: ti.f32):
        total[None] = 0
        for i in x:
            x[i] += a * p[i]
        for i in r:
            r[i] -= a * q[i]
        for i in r:
            total[None] += r[i] * r[i]

    found = best(lambda: k(0.0), inner=5)
    assert abs(total[None] - n) < 1e-3 * n, total[None]
    return found


@program
def launch():
    s = ti.field(ti.f32, shape=16)

    @ti.kernel
    def k():
        for i in range(16):
            s[i] = 1.0

    return best(k, reps=3, inner=2000)


@program
def launch_args():
    a = ti.ndarray(ti.f32, shape=16)
    b = ti.ndarray(ti.f32, shape=16)

    @ti.kernel
    def k(x: ti.types.ndarray(), y: ti.types.ndarray(), c: ti.f32, d: ti.i32):
        for i in range(16):
            x[i] = y[i] * c + d

    return best(lambda: k(a, b, 1.5, 3), reps=3, inner=2000)


@program
def field_access():
    s = ti.field(ti.f32, shape=1024)
    s.fill(0)
    s[0] = 1

    def f():
        for i in range(100):
            s[i] = s[i + 1] + 1.0

    first, b = best(f, reps=3)
    return first, b / 100


@program
def launch_then_read():
    s = ti.field(ti.f32, shape=())

    @ti.kernel
    def k():
        s[None] += 1.0

    def f():
        k()
        return s[None]

    return best(f, reps=3, inner=200)


for name, fn in PROGRAMS.items():
    if only and name not in only:
        continue
    ti.reset()
    ti.init(**opts)
    try:
        first, b = fn()
        OUT[name], OUT["first/" + name] = b, first
    except Exception as e:  # report the error as the figure
        OUT[name] = (
            f"{type(e).__name__}: {str(e).strip().splitlines()[-1][:150] if str(e).strip() else ''}"
        )
print(json.dumps(OUT))
