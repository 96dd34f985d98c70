#!/usr/bin/env python3
"""Tapes and layers in the style of Taichi's users: learning.py TARGET ARCH [NAME...].

Like `everyday.py`; written to find slow programs that no pass was designed for.
"""

import numpy as np
from harness import field, main, nd, program, random, ti

F1 = ti.types.ndarray(dtype=ti.f32, ndim=1)
F2 = ti.types.ndarray(dtype=ti.f32, ndim=2)
F4 = ti.types.ndarray(dtype=ti.f32, ndim=4)


@program
def controller():
    """A network controls springs: 60 steps of four kernels in a tape, and an update."""
    n_obj, n_spr, n_hid, steps, dt = 20, 45, 16, 60, 0.004
    rng = np.random.default_rng(6)
    x = ti.Vector.field(2, ti.f32, (steps + 1, n_obj), needs_grad=True)
    v = ti.Vector.field(2, ti.f32, (steps + 1, n_obj), needs_grad=True)
    f = ti.Vector.field(2, ti.f32, (steps + 1, n_obj), needs_grad=True)
    a, b = ti.field(ti.i32, n_spr), ti.field(ti.i32, n_spr)
    length = ti.field(ti.f32, n_spr)
    w1 = ti.field(ti.f32, (n_hid, 10), needs_grad=True)
    b1 = ti.field(ti.f32, n_hid, needs_grad=True)
    w2 = ti.field(ti.f32, (n_spr, n_hid), needs_grad=True)
    b2 = ti.field(ti.f32, n_spr, needs_grad=True)
    hid = ti.field(ti.f32, (steps + 1, n_hid), needs_grad=True)
    act = ti.field(ti.f32, (steps + 1, n_spr), needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def nn1(t: ti.i32):
        for i in range(n_hid):
            s = 0.0
            for j in ti.static(range(10)):
                s += w1[i, j] * ti.sin(0.5 * t * dt + 2 * 3.1415926 / 10 * j)
            hid[t, i] = ti.tanh(s + b1[i])

    @ti.kernel
    def nn2(t: ti.i32):
        for i in range(n_spr):
            s = 0.0
            for j in ti.static(range(n_hid)):
                s += w2[i, j] * hid[t, j]
            act[t, i] = ti.tanh(s + b2[i])

    @ti.kernel
    def springs(t: ti.i32):
        for i in range(n_spr):
            pa, pb = x[t, a[i]], x[t, b[i]]
            d = pa - pb
            ln = d.norm() + 1e-4
            rest = length[i] * (1.0 + 0.1 * act[t, i])
            imp = dt * (ln - rest) * 300.0 / ln * d
            ti.atomic_add(f[t + 1, a[i]], -imp)
            ti.atomic_add(f[t + 1, b[i]], imp)

    @ti.kernel
    def advance(t: ti.i32):
        for i in range(n_obj):
            s = ti.exp(-dt * 2.0)
            ov = s * v[t, i] + dt * ti.Vector([0.0, -1.8]) + f[t + 1, i]
            if x[t, i][1] < 0.0 and ov[1] < 0.0:
                ov = ti.Vector([0.0, 0.0])
            v[t + 1, i] = ov
            x[t + 1, i] = x[t, i] + dt * ov

    @ti.kernel
    def measure():
        loss[None] = -x[steps, 0][0]

    @ti.kernel
    def update():
        for i, j in w1:
            w1[i, j] -= 0.1 * w1.grad[i, j]
        for i in b1:
            b1[i] -= 0.1 * b1.grad[i]
        for i, j in w2:
            w2[i, j] -= 0.1 * w2.grad[i, j]
        for i in b2:
            b2[i] -= 0.1 * b2.grad[i]

    x0 = np.zeros((steps + 1, n_obj, 2), np.float32)
    x0[0] = rng.random((n_obj, 2))
    x.from_numpy(x0)
    ia = rng.integers(0, n_obj, n_spr)
    ib = (ia + rng.integers(1, n_obj, n_spr)) % n_obj
    a.from_numpy(ia.astype(np.int32))
    b.from_numpy(ib.astype(np.int32))
    length.from_numpy(np.linalg.norm(x0[0][ia] - x0[0][ib], axis=1).astype(np.float32))
    w1.from_numpy((rng.standard_normal((n_hid, 10)) * 0.2).astype(np.float32))
    w2.from_numpy((rng.standard_normal((n_spr, n_hid)) * 0.2).astype(np.float32))

    def step():
        f.fill(0)
        with ti.ad.Tape(loss):
            for t in range(steps):
                nn1(t)
                nn2(t)
                springs(t)
                advance(t)
            measure()
        update()

    return step, lambda: [loss[None]]


@program
def mpm_tape():
    """40 steps of a material point method in a tape, and an update of the initial velocity."""
    n, ng, steps = 400, 32, 40
    dx, dt = 1 / ng, 1e-3
    inv = float(ng)
    x = ti.Vector.field(2, ti.f32, (steps + 1, n), needs_grad=True)
    v = ti.Vector.field(2, ti.f32, (steps + 1, n), needs_grad=True)
    C = ti.Matrix.field(2, 2, ti.f32, (steps + 1, n), needs_grad=True)
    gv = ti.Vector.field(2, ti.f32, (steps, ng, ng), needs_grad=True)
    gm = ti.field(ti.f32, (steps, ng, ng), needs_grad=True)
    go = ti.Vector.field(2, ti.f32, (steps, ng, ng), needs_grad=True)
    init_v = ti.Vector.field(2, ti.f32, (), needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def clear():
        for t, i, j in gm:
            gv[t, i, j] = [0.0, 0.0]
            gm[t, i, j] = 0.0
            gv.grad[t, i, j] = [0.0, 0.0]
            gm.grad[t, i, j] = 0.0
            go.grad[t, i, j] = [0.0, 0.0]

    @ti.kernel
    def set_v():
        for p in range(n):
            v[0, p] = init_v[None]

    @ti.kernel
    def p2g(f: ti.i32):
        for p in range(n):
            base = ti.cast(x[f, p] * inv - 0.5, ti.i32)
            fx = x[f, p] * inv - ti.cast(base, ti.f32)
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            affine = C[f, p]
            for i in ti.static(range(3)):
                for j in ti.static(range(3)):
                    dpos = (ti.Vector([i, j]).cast(ti.f32) - fx) * dx
                    weight = w[i][0] * w[j][1]
                    gv[f, base[0] + i, base[1] + j] += weight * (v[f, p] + affine @ dpos)
                    gm[f, base[0] + i, base[1] + j] += weight

    @ti.kernel
    def grid(f: ti.i32):
        for i, j in ti.ndrange(ng, ng):
            u = gv[f, i, j] / (gm[f, i, j] + 1e-10)
            u[1] -= dt * 9.8
            if i < 3 and u[0] < 0:
                u[0] = 0.0
            if i > ng - 3 and u[0] > 0:
                u[0] = 0.0
            if j < 3 and u[1] < 0:
                u[1] = 0.0
            if j > ng - 3 and u[1] > 0:
                u[1] = 0.0
            go[f, i, j] = u

    @ti.kernel
    def g2p(f: ti.i32):
        for p in range(n):
            base = ti.cast(x[f, p] * inv - 0.5, ti.i32)
            fx = x[f, p] * inv - ti.cast(base, ti.f32)
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            nv = ti.Vector([0.0, 0.0])
            nC = ti.Matrix([[0.0, 0.0], [0.0, 0.0]])
            for i in ti.static(range(3)):
                for j in ti.static(range(3)):
                    dpos = ti.Vector([i, j]).cast(ti.f32) - fx
                    g = go[f, base[0] + i, base[1] + j]
                    weight = w[i][0] * w[j][1]
                    nv += weight * g
                    nC += 4 * weight * g.outer_product(dpos) * inv
            v[f + 1, p] = nv
            x[f + 1, p] = x[f, p] + dt * nv
            C[f + 1, p] = nC

    @ti.kernel
    def measure():
        for p in range(n):
            d = x[steps, p] - ti.Vector([0.6, 0.6])
            loss[None] += d.norm_sqr() / n

    x0 = np.zeros((steps + 1, n, 2), np.float32)
    x0[0] = random(5, n, 2) * 0.2 + 0.3
    x.from_numpy(x0)
    init_v[None] = [1.0, 1.0]

    def step():
        clear()
        with ti.ad.Tape(loss):
            set_v()
            for s in range(steps):
                p2g(s)
                grid(s)
                g2p(s)
            measure()
        g = init_v.grad[None]
        init_v[None] -= 0.1 * ti.Vector([g[0], g[1]])

    return step, lambda: [loss[None], init_v[None][0], init_v[None][1]]


@program
def wave_inversion():
    """Ndarrays in a tape: 100 steps of a 1-D wave, gradient of the initial state, Adam in numpy."""
    n, steps = 256, 100
    u = ti.ndarray(ti.f32, (steps + 2, n), needs_grad=True)
    loss = ti.ndarray(ti.f32, (), needs_grad=True)
    goal = nd(random(11, n))

    @ti.kernel
    def adv(u: F2, t: ti.i32):
        for i in range(1, n - 1):
            u[t + 1, i] = (
                2 * u[t, i] - u[t - 1, i] + 0.3 * (u[t, i - 1] - 2 * u[t, i] + u[t, i + 1])
            )

    @ti.kernel
    def measure(u: F2, goal: F1, loss: ti.types.ndarray(dtype=ti.f32, ndim=0)):
        for i in range(n):
            loss[None] += (u[steps + 1, i] - goal[i]) ** 2

    u0 = np.zeros((steps + 2, n), np.float32)
    u0[:2] = random(12, n)
    u.from_numpy(u0)

    def step():
        with ti.ad.Tape(loss):
            for t in range(1, steps + 1):
                adv(u, t)
            measure(u, goal, loss)
        g = u.grad.to_numpy()[1]
        step.g = g

    return step, lambda: step.g


@program
def heat_parameter():
    """In-place updates in a tape (double buffers by parity), as in checkpointed programs."""
    n, steps = 64, 60
    a = ti.field(ti.f32, (2, n, n), needs_grad=True)
    hist = ti.field(ti.f32, (steps + 1, n, n), needs_grad=True)
    k0 = ti.field(ti.f32, (), needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def adv(t: ti.i32):
        for i, j in ti.ndrange(n, n):
            c = hist[t, i, j]
            l = hist[t, ti.max(i - 1, 0), j]
            r = hist[t, ti.min(i + 1, n - 1), j]
            d = hist[t, i, ti.max(j - 1, 0)]
            u = hist[t, i, ti.min(j + 1, n - 1)]
            hist[t + 1, i, j] = c + k0[None] * (l + r + d + u - 4 * c)

    @ti.kernel
    def measure():
        for i, j in ti.ndrange(n, n):
            loss[None] += hist[steps, i, j] ** 2

    h0 = np.zeros((steps + 1, n, n), np.float32)
    h0[0] = random(13, n, n)
    hist.from_numpy(h0)
    k0[None] = 0.2

    def step():
        with ti.ad.Tape(loss):
            for t in range(steps):
                adv(t)
            measure()

    return step, lambda: [loss[None], k0.grad[None]]


@program
def mlp_tape():
    """MLP training: batches of 64, 64-32-10, softmax loss, SGD in a kernel; 10 batches per step."""
    B, I, H, O = 64, 64, 32, 10
    X, Y = field(random(7, B, I)), field(np.random.default_rng(8).integers(0, O, B, dtype=np.int32))
    W1 = ti.field(ti.f32, (I, H), needs_grad=True)
    W2 = ti.field(ti.f32, (H, O), needs_grad=True)
    b1 = ti.field(ti.f32, H, needs_grad=True)
    b2 = ti.field(ti.f32, O, needs_grad=True)
    h = ti.field(ti.f32, (B, H), needs_grad=True)
    o = ti.field(ti.f32, (B, O), needs_grad=True)
    e = ti.field(ti.f32, B, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def clear():
        for i, j in h:
            h[i, j] = 0.0
        for i, j in o:
            o[i, j] = 0.0
        for i in e:
            e[i] = 0.0

    @ti.kernel
    def layer1():
        for b, j, i in ti.ndrange(B, H, I):
            h[b, j] += X[b, i] * W1[i, j]

    @ti.kernel
    def layer2():
        for b, j, i in ti.ndrange(B, O, H):
            o[b, j] += ti.max(h[b, i] + b1[i], 0.0) * W2[i, j]

    @ti.kernel
    def exps():
        for b, j in o:
            e[b] += ti.exp(o[b, j] + b2[j])

    @ti.kernel
    def measure():
        for b in range(B):
            loss[None] += (ti.log(e[b]) - o[b, Y[b]] - b2[Y[b]]) / B

    @ti.kernel
    def sgd():
        for i, j in W1:
            W1[i, j] -= 0.1 * W1.grad[i, j]
        for i, j in W2:
            W2[i, j] -= 0.1 * W2.grad[i, j]
        for i in b1:
            b1[i] -= 0.1 * b1.grad[i]
        for i in b2:
            b2[i] -= 0.1 * b2.grad[i]

    W1.from_numpy(random(9, I, H) * 0.2 - 0.1)
    W2.from_numpy(random(10, H, O) * 0.2 - 0.1)

    def step():
        for _ in range(10):
            clear()
            with ti.ad.Tape(loss):
                layer1()
                layer2()
                exps()
                measure()
            sgd()

    return step, lambda: [loss[None]]


@program
def conv2d_layer():
    N, C, H, W, O, K = 2, 8, 32, 32, 16, 3
    x, w, b, y = (
        nd(random(1, N, C, H, W)),
        nd(random(2, O, C, K, K)),
        nd(random(3, O)),
        ti.ndarray(ti.f32, (N, O, H, W)),
    )

    @ti.kernel
    def conv(x: F4, w: F4, b: F1, y: F4):
        for n, o, i, j in y:
            s = b[o]
            for c in range(x.shape[1]):
                for p in range(3):
                    for q in range(3):
                        a, e = i + p - 1, j + q - 1
                        if 0 <= a < x.shape[2] and 0 <= e < x.shape[3]:
                            s += x[n, c, a, e] * w[o, c, p, q]
            y[n, o, i, j] = ti.max(s, 0.0)

    return lambda: conv(x, w, b, y), lambda: y.to_numpy()


@program
def maxpool_pad():
    N, C, H, W = 4, 16, 64, 64
    x, y, z = (
        nd(random(4, N, C, H, W)),
        ti.ndarray(ti.f32, (N, C, H // 2, W // 2)),
        ti.ndarray(ti.f32, (N, C, H + 4, W + 4)),
    )

    @ti.kernel
    def pool(x: F4, y: F4):
        for n, c, i, j in y:
            m = -1e30
            for p, q in ti.static(ti.ndrange(2, 2)):
                m = ti.max(m, x[n, c, 2 * i + p, 2 * j + q])
            y[n, c, i, j] = m

    @ti.kernel
    def pad(x: F4, z: F4):
        for n, c, i, j in z:
            a = ti.abs(i - 2)
            e = ti.abs(j - 2)
            if a >= x.shape[2]:
                a = 2 * x.shape[2] - 2 - a
            if e >= x.shape[3]:
                e = 2 * x.shape[3] - 2 - e
            z[n, c, i, j] = x[n, c, a, e]

    def step():
        pool(x, y)
        pad(x, z)

    return step, lambda: np.concatenate([y.to_numpy().ravel(), z.to_numpy().ravel()])


@program
def layernorm():
    n, d = 512, 256
    x, g, b, y = nd(random(5, n, d)), nd(random(6, d)), nd(random(7, d)), ti.ndarray(ti.f32, (n, d))

    @ti.kernel
    def ln(x: F2, g: F1, b: F1, y: F2):
        for i in range(x.shape[0]):
            m = 0.0
            v = 0.0
            for k in range(x.shape[1]):
                m += x[i, k]
            m /= x.shape[1]
            for k in range(x.shape[1]):
                v += (x[i, k] - m) ** 2
            r = 1.0 / ti.sqrt(v / x.shape[1] + 1e-5)
            for k in range(x.shape[1]):
                y[i, k] = (x[i, k] - m) * r * g[k] + b[k]

    return lambda: ln(x, g, b, y), lambda: y.to_numpy()


@program
def attention():
    T, D = 128, 32
    q, k, v = field(random(8, T, D)), field(random(9, T, D)), field(random(10, T, D))
    s, o = ti.field(ti.f32, (T, T)), ti.field(ti.f32, (T, D))

    @ti.kernel
    def att():
        for i, j in s:
            a = 0.0
            for d in range(D):
                a += q[i, d] * k[j, d]
            s[i, j] = a / ti.sqrt(float(D)) if j <= i else -1e9
        for i in range(T):
            m = -1e30
            for j in range(T):
                m = ti.max(m, s[i, j])
            t = 0.0
            for j in range(T):
                s[i, j] = ti.exp(s[i, j] - m)
                t += s[i, j]
            for j in range(T):
                s[i, j] /= t
        for i, d in o:
            a = 0.0
            for j in range(T):
                a += s[i, j] * v[j, d]
            o[i, d] = a

    return att, lambda: o.to_numpy()


main()
