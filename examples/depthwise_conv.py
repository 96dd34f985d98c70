"""A custom ML operator: causal depthwise convolution, forward and backward, in four variants.

Source: "Accelerate PyTorch with Taichi", customize ML operators (the operator of RWKV):

    out[b, c, t] = eps + sum over u <= t of w[c, T-1-(t-u)] * k[b, c, u]
    gk[b, c, u]  = sum over t >= u of g[b, c, t] * w[c, T-1-(t-u)]
    gw[c, j]     = sum over b and t >= T-1-j of g[b, c, t] * k[b, c, t-(T-1-j)]

v0 is the formula. v1 caches a workgroup's rows in shared memory. v2 computes a vector of STEPS
consecutive time steps per invocation. v3 does both. Each is checked against numpy.

    python examples/depthwise_conv.py [--shape B,C,T]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import vkchi as ti

STEPS = 4
vecn = ti.types.vector(STEPS, ti.f32)
Array3 = ti.types.ndarray(dtype=ti.f32, ndim=3)
Array2 = ti.types.ndarray(dtype=ti.f32, ndim=2)


@ti.kernel
def forward_v0(out: Array3, w: Array2, k: Array3, eps: ti.f32):
    for b, c, t in out:
        s = eps
        for u in range(t + 1):
            s += w[c, w.shape[1] - 1 - (t - u)] * k[b, c, u]
        out[b, c, t] = s


@ti.kernel
def backward_v0(gw: Array2, gk: Array3, g: Array3, w: Array2, k: Array3):
    for b, c, u in gk:
        s = 0.0
        for t in range(u, gk.shape[2]):
            s += g[b, c, t] * w[c, w.shape[1] - 1 - (t - u)]
        gk[b, c, u] = s
    for c, j in gw:
        s = 0.0
        lag = gw.shape[1] - 1 - j
        for b in range(g.shape[0]):
            for t in range(lag, g.shape[2]):
                s += g[b, c, t] * k[b, c, t - lag]
        gw[c, j] = s


def make_shared(T: int):
    """v1 for rows of T: a workgroup computes one row and caches its inputs in shared memory."""

    @ti.kernel
    def forward(out: Array3, w: Array2, k: Array3, eps: ti.f32):
        ti.loop_config(block_dim=T)
        for b, c, t in out:
            ws = ti.simt.block.SharedArray((T,), ti.f32)
            ks = ti.simt.block.SharedArray((T,), ti.f32)
            ws[t] = w[c, t]
            ks[t] = k[b, c, t]
            ti.simt.block.sync()
            s = eps
            for u in range(t + 1):
                s += ws[T - 1 - (t - u)] * ks[u]
            out[b, c, t] = s

    @ti.kernel
    def backward(gw: Array2, gk: Array3, g: Array3, w: Array2, k: Array3):
        ti.loop_config(block_dim=T)
        for b, c, u in gk:
            ws = ti.simt.block.SharedArray((T,), ti.f32)
            gs = ti.simt.block.SharedArray((T,), ti.f32)
            ws[u] = w[c, u]
            gs[u] = g[b, c, u]
            ti.simt.block.sync()
            s = 0.0
            for t in range(u, T):
                s += gs[t] * ws[T - 1 - (t - u)]
            gk[b, c, u] = s
        ti.loop_config(block_dim=T)
        for c, j in gw:
            ks = ti.simt.block.SharedArray((T,), ti.f32)
            gs = ti.simt.block.SharedArray((T,), ti.f32)
            lag = T - 1 - j
            s = 0.0
            for b in range(g.shape[0]):
                ti.simt.block.sync()
                ks[j] = k[b, c, j]
                gs[j] = g[b, c, j]
                ti.simt.block.sync()
                for t in range(lag, T):
                    s += gs[t] * ks[t - lag]
            gw[c, j] = s

    return forward, backward


@ti.kernel
def forward_v2(out: Array3, w: Array2, k: Array3, eps: ti.f32):
    T = out.shape[2]
    for b, c, block in ti.ndrange(out.shape[0], out.shape[1], T // STEPS):
        t = block * STEPS
        s = vecn(eps)
        for u in range(t + 1):
            for i in ti.static(range(STEPS)):
                s[i] += w[c, T - 1 - (t + i - u)] * k[b, c, u]
        for u in ti.static(range(1, STEPS)):
            for i in ti.static(range(u, STEPS)):
                s[i] += w[c, T - 1 - (i - u)] * k[b, c, t + u]
        for i in ti.static(range(STEPS)):
            out[b, c, t + i] = s[i]


@ti.kernel
def backward_v2(gw: Array2, gk: Array3, g: Array3, w: Array2, k: Array3):
    T = gk.shape[2]
    for b, c, block in ti.ndrange(gk.shape[0], gk.shape[1], T // STEPS):
        u = block * STEPS
        s = vecn(0.0)
        for t in range(u + STEPS - 1, T):
            for i in ti.static(range(STEPS)):
                s[i] += g[b, c, t] * w[c, T - 1 - (t - u - i)]
        for d in ti.static(range(STEPS - 1)):
            for i in ti.static(range(d + 1)):
                s[i] += g[b, c, u + d] * w[c, T - 1 - (d - i)]
        for i in ti.static(range(STEPS)):
            gk[b, c, u + i] = s[i]
    for c, block in ti.ndrange(gw.shape[0], T // STEPS):
        j = block * STEPS
        s = vecn(0.0)
        for b in range(g.shape[0]):
            for t in range(T - 1 - j, T):
                for i in ti.static(range(STEPS)):
                    s[i] += g[b, c, t] * k[b, c, t - (T - 1 - j - i)]
            for d in ti.static(range(1, STEPS)):
                for i in ti.static(range(d, STEPS)):
                    if j + d < T:
                        s[i] += g[b, c, T - 1 - j - d] * k[b, c, i - d]
        for i in ti.static(range(STEPS)):
            gw[c, j + i] = s[i]


def make_shared_vector(T: int):
    """v3 for rows of T: shared rows, STEPS time steps per invocation."""
    threads = T // STEPS

    @ti.kernel
    def forward(out: Array3, w: Array2, k: Array3, eps: ti.f32):
        ti.loop_config(block_dim=threads)
        for b, c, block in ti.ndrange(out.shape[0], out.shape[1], threads):
            ws = ti.simt.block.SharedArray((T + STEPS,), ti.f32)
            ks = ti.simt.block.SharedArray((T,), ti.f32)
            t = block * STEPS
            for i in ti.static(range(STEPS)):
                ws[t + i] = w[c, t + i]
                ks[t + i] = k[b, c, t + i]
            ws[T + block % STEPS] = 0.0
            ti.simt.block.sync()
            s = vecn(eps)
            for u in range(t + STEPS):
                for i in ti.static(range(STEPS)):
                    s[i] += ws[ti.min(T - 1 - (t + i - u), T)] * ks[u]
            for i in ti.static(range(STEPS)):
                out[b, c, t + i] = s[i]

    @ti.kernel
    def backward(gw: Array2, gk: Array3, g: Array3, w: Array2, k: Array3):
        ti.loop_config(block_dim=threads)
        for b, c, block in ti.ndrange(gk.shape[0], gk.shape[1], threads):
            ws = ti.simt.block.SharedArray((T + STEPS,), ti.f32)
            gs = ti.simt.block.SharedArray((T,), ti.f32)
            u = block * STEPS
            for i in ti.static(range(STEPS)):
                ws[u + i] = w[c, u + i]
                gs[u + i] = g[b, c, u + i]
            ws[T + block % STEPS] = 0.0
            ti.simt.block.sync()
            s = vecn(0.0)
            for t in range(u, T):
                for i in ti.static(range(STEPS)):
                    s[i] += gs[t] * ws[ti.min(T - 1 - (t - u - i), T)]
            for i in ti.static(range(STEPS)):
                gk[b, c, u + i] = s[i]
        ti.loop_config(block_dim=threads)
        for c, block in ti.ndrange(gw.shape[0], threads):
            ks = ti.simt.block.SharedArray((T + STEPS,), ti.f32)
            gs = ti.simt.block.SharedArray((T,), ti.f32)
            j = block * STEPS
            s = vecn(0.0)
            for b in range(g.shape[0]):
                ti.simt.block.sync()
                for i in ti.static(range(STEPS)):
                    ks[STEPS + j + i] = k[b, c, j + i]
                    gs[j + i] = g[b, c, j + i]
                ks[block % STEPS] = 0.0
                ti.simt.block.sync()
                for t in range(T - STEPS - j, T):
                    for i in ti.static(range(STEPS)):
                        s[i] += gs[t] * ks[ti.max(STEPS + t - (T - 1 - j - i), 0)]
            for i in ti.static(range(STEPS)):
                gw[c, j + i] = s[i]

    return forward, backward


def reference(w, k, g, eps):
    """out, gw, gk in float64, by numpy."""
    B, C, T = k.shape
    out, gk, gw = np.full((B, C, T), eps), np.zeros((B, C, T)), np.zeros((C, T))
    w, k, g = (a.astype(np.float64) for a in (w, k, g))
    for lag in range(T):
        out[:, :, lag:] += w[:, T - 1 - lag][:, None] * k[:, :, : T - lag]
        gk[:, :, : T - lag] += w[:, T - 1 - lag][:, None] * g[:, :, lag:]
        gw[:, T - 1 - lag] = (g[:, :, lag:] * k[:, :, : T - lag]).sum((0, 2))
    return out, gw, gk


def time_of(function, repeats: int = 5) -> float:
    """Seconds of the fastest of several synchronized calls, after one warm-up call."""
    function()
    ti.sync()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        ti.sync()
        times.append(time.perf_counter() - start)
    return min(times)


def time_torch(w, k, g, eps):
    """Seconds of torch's conv1d: (forward, forward and backward); None without torch."""
    try:
        import torch
        import torch.nn.functional as F
    except ImportError:
        return None
    C, T = w.shape
    tw = torch.from_numpy(w).requires_grad_()
    tk = torch.from_numpy(k).requires_grad_()
    tg = torch.from_numpy(g)

    def forward():
        return eps + F.conv1d(F.pad(tk, (T - 1, 0)), tw.unsqueeze(1), groups=C)

    def both():
        forward().backward(tg)

    return time_of(forward), time_of(both)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="8,64,256", help="B,C,T; T a multiple of 4")
    parser.add_argument("--arch", default="vulkan")
    options = parser.parse_args()
    B, C, T = map(int, options.shape.split(","))
    if T % STEPS:
        parser.error(f"T must be a multiple of {STEPS}, not {T}")
    ti.init(arch=options.arch)
    rng, eps = np.random.default_rng(1), 0.1
    w, k, g = (rng.random(s, np.float32) - 0.5 for s in ((C, T), (B, C, T), (B, C, T)))
    want_out, want_gw, want_gk = reference(w, k, g, eps)
    dev = {
        n: ti.ndarray(ti.f32, a.shape) for n, a in dict(w=w, k=k, g=g, out=k, gw=w, gk=k).items()
    }
    for name, values in (("w", w), ("k", k), ("g", g)):
        dev[name].from_numpy(values)

    versions = {
        "v0 the formula": (forward_v0, backward_v0),
        "v1 shared rows": make_shared(T),
        "v2 vectors of steps": (forward_v2, backward_v2),
        "v3 both": make_shared_vector(T),
    }
    print(f"depthwise convolution B={B} C={C} T={T}    forward     backward   largest error")
    for name, (forward, backward) in versions.items():
        for target in ("out", "gw", "gk"):
            dev[target].fill(float("nan"))
        f = time_of(lambda: forward(dev["out"], dev["w"], dev["k"], eps))
        b = time_of(lambda: backward(dev["gw"], dev["gk"], dev["g"], dev["w"], dev["k"]))
        pairs = (("out", want_out), ("gw", want_gw), ("gk", want_gk))
        errors = [np.abs(dev[n].to_numpy() - want).max() / np.abs(want).max() for n, want in pairs]
        assert max(errors) < 1e-4, f"{name}: wrong by {errors}"
        print(f"  {name:32s} {f * 1e3:8.2f} ms {b * 1e3:8.2f} ms {max(errors):10.1e}")
    by_torch = time_torch(w, k, g, eps)
    if by_torch:
        f, both = by_torch
        print(f"  {'torch conv1d':32s} {f * 1e3:8.2f} ms {(both - f) * 1e3:8.2f} ms")


if __name__ == "__main__":
    main()
