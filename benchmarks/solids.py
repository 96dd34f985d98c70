#!/usr/bin/env python3
"""Solids and particles in the style of Taichi's users: solids.py TARGET ARCH [NAME...].

Like `everyday.py`; written to find slow programs that no pass was designed for.
"""

import numpy as np
from harness import main, program, random, ti

F1 = ti.types.ndarray(dtype=ti.f32, ndim=1)


@program
def mpm3d_ndarray():
    """A 3-D material point method with ndarrays of vectors and matrices."""
    np_, ng = 6000, 32
    dx, dt = 1 / ng, 4e-4
    vol = (dx * 0.5) ** 3
    E = 1000.0
    x = ti.Vector.ndarray(3, ti.f32, np_)
    v = ti.Vector.ndarray(3, ti.f32, np_)
    C = ti.Matrix.ndarray(3, 3, ti.f32, np_)
    J = ti.ndarray(ti.f32, np_)
    gv = ti.Vector.ndarray(3, ti.f32, (ng, ng, ng))
    gm = ti.ndarray(ti.f32, (ng, ng, ng))
    V1, V3 = (ti.types.ndarray(dtype=ti.types.vector(3, ti.f32), ndim=k) for k in (1, 3))
    M3 = ti.types.ndarray(dtype=ti.types.matrix(3, 3, ti.f32), ndim=1)

    @ti.kernel
    def reset_grid(gv: V3, gm: ti.types.ndarray(dtype=ti.f32, ndim=3)):
        for I in ti.grouped(gm):
            gv[I] = ti.Vector([0.0, 0.0, 0.0])
            gm[I] = 0.0

    @ti.kernel
    def p2g(
        x: V1,
        v: V1,
        C: M3,
        J: ti.types.ndarray(dtype=ti.f32, ndim=1),
        gv: V3,
        gm: ti.types.ndarray(dtype=ti.f32, ndim=3),
    ):
        for p in x:
            Xp = x[p] / dx
            base = ti.cast(Xp - 0.5, ti.i32)
            fx = Xp - base
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            stress = -dt * 4 * E * vol * (J[p] - 1) / dx**2
            affine = ti.Matrix.identity(ti.f32, 3) * stress + vol * C[p]
            for offset in ti.static(ti.grouped(ti.ndrange(3, 3, 3))):
                dpos = (offset - fx) * dx
                weight = 1.0
                for i in ti.static(range(3)):
                    weight *= w[offset[i]][i]
                gv[base + offset] += weight * (vol * v[p] + affine @ dpos)
                gm[base + offset] += weight * vol

    @ti.kernel
    def grid_op(gv: V3, gm: ti.types.ndarray(dtype=ti.f32, ndim=3)):
        for I in ti.grouped(gm):
            if gm[I] > 0:
                gv[I] /= gm[I]
            gv[I][1] -= dt * 9.8
            cond = (I < 3) & (gv[I] < 0) | (I > ng - 3) & (gv[I] > 0)
            gv[I] = ti.select(cond, 0, gv[I])

    @ti.kernel
    def g2p(x: V1, v: V1, C: M3, J: ti.types.ndarray(dtype=ti.f32, ndim=1), gv: V3):
        for p in x:
            Xp = x[p] / dx
            base = ti.cast(Xp - 0.5, ti.i32)
            fx = Xp - base
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            nv = ti.Vector([0.0, 0.0, 0.0])
            nC = ti.Matrix.zero(ti.f32, 3, 3)
            for offset in ti.static(ti.grouped(ti.ndrange(3, 3, 3))):
                dpos = (offset - fx) * dx
                weight = 1.0
                for i in ti.static(range(3)):
                    weight *= w[offset[i]][i]
                g = gv[base + offset]
                nv += weight * g
                nC += 4 * weight * g.outer_product(dpos) / dx**2
            v[p] = nv
            x[p] += dt * nv
            J[p] *= 1 + dt * nC.trace()
            C[p] = nC

    X0 = random(3, np_, 3) * 0.4 + 0.2
    J.fill(1)
    x.from_numpy(X0)

    def step():
        for _ in range(4):
            reset_grid(gv, gm)
            p2g(x, v, C, J, gv, gm)
            grid_op(gv, gm)
            g2p(x, v, C, J, gv)

    def res():
        return [float(x.to_numpy().mean())]

    return step, res


@program
def mpm99():
    """MLS-MPM of three materials, with SVD."""
    n, ng = 4000, 64
    dx = 1 / ng
    inv = float(ng)
    dt = 1e-4
    vol = (dx * 0.5) ** 2
    E, nu = 1e3, 0.2
    mu0, la0 = E / (2 * (1 + nu)), E * nu / ((1 + nu) * (1 - 2 * nu))
    x = ti.Vector.field(2, ti.f32, n)
    v = ti.Vector.field(2, ti.f32, n)
    C = ti.Matrix.field(2, 2, ti.f32, n)
    F = ti.Matrix.field(2, 2, ti.f32, n)
    mat = ti.field(ti.i32, n)
    Jp = ti.field(ti.f32, n)
    gv = ti.Vector.field(2, ti.f32, (ng, ng))
    gm = ti.field(ti.f32, (ng, ng))

    @ti.kernel
    def substep():
        for i, j in gm:
            gv[i, j] = [0, 0]
            gm[i, j] = 0
        for p in x:
            base = (x[p] * inv - 0.5).cast(int)
            fx = x[p] * inv - base.cast(float)
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            F[p] = (ti.Matrix.identity(float, 2) + dt * C[p]) @ F[p]
            h = ti.exp(10 * (1.0 - Jp[p]))
            if mat[p] == 1:
                h = 0.3
            mu, la = mu0 * h, la0 * h
            if mat[p] == 0:
                mu = 0.0
            U, sig, V = ti.svd(F[p])
            J = 1.0
            for d in ti.static(range(2)):
                ns = sig[d, d]
                if mat[p] == 2:
                    ns = ti.min(ti.max(sig[d, d], 1 - 2.5e-2), 1 + 4.5e-3)
                Jp[p] *= sig[d, d] / ns
                sig[d, d] = ns
                J *= ns
            if mat[p] == 0:
                F[p] = ti.Matrix.identity(float, 2) * ti.sqrt(J)
            elif mat[p] == 2:
                F[p] = U @ sig @ V.transpose()
            stress = 2 * mu * (F[p] - U @ V.transpose()) @ F[p].transpose() + ti.Matrix.identity(
                float, 2
            ) * la * J * (J - 1)
            stress = (-dt * vol * 4 * inv * inv) * stress
            affine = stress + vol * C[p]
            for i, j in ti.static(ti.ndrange(3, 3)):
                offset = ti.Vector([i, j])
                dpos = (offset.cast(float) - fx) * dx
                weight = w[i][0] * w[j][1]
                gv[base + offset] += weight * (vol * v[p] + affine @ dpos)
                gm[base + offset] += weight * vol
        for i, j in gm:
            if gm[i, j] > 0:
                gv[i, j] = (1 / gm[i, j]) * gv[i, j]
                gv[i, j][1] -= dt * 50
                if i < 3 and gv[i, j][0] < 0:
                    gv[i, j][0] = 0
                if i > ng - 3 and gv[i, j][0] > 0:
                    gv[i, j][0] = 0
                if j < 3 and gv[i, j][1] < 0:
                    gv[i, j][1] = 0
                if j > ng - 3 and gv[i, j][1] > 0:
                    gv[i, j][1] = 0
        for p in x:
            base = (x[p] * inv - 0.5).cast(int)
            fx = x[p] * inv - base.cast(float)
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1.0) ** 2, 0.5 * (fx - 0.5) ** 2]
            nv = ti.Vector.zero(float, 2)
            nC = ti.Matrix.zero(float, 2, 2)
            for i, j in ti.static(ti.ndrange(3, 3)):
                dpos = ti.Vector([i, j]).cast(float) - fx
                g_v = gv[base + ti.Vector([i, j])]
                weight = w[i][0] * w[j][1]
                nv += weight * g_v
                nC += 4 * inv * weight * g_v.outer_product(dpos)
            v[p], C[p] = nv, nC
            x[p] += dt * v[p]

    X0 = random(4, n, 2) * 0.4 + 0.2
    mat.from_numpy((np.arange(n) % 3).astype(np.int32))
    x.from_numpy(X0)
    F.from_numpy(np.tile(np.eye(2, dtype=np.float32), (n, 1, 1)))
    Jp.fill(1)

    def step():
        for _ in range(10):
            substep()

    return step, lambda: [float(x.to_numpy().mean())]


@program
def cloth_substeps():
    """The cloth of Taichi's documentation: 30 substeps in Python, 2 kernels each."""
    n = 64
    quad = 1.0 / n
    dt = 4e-2 / n
    x = ti.Vector.field(3, ti.f32, (n, n))
    v = ti.Vector.field(3, ti.f32, (n, n))
    offsets = [ti.Vector([i, j]) for i in range(-1, 2) for j in range(-1, 2) if (i, j) != (0, 0)]
    ball = ti.Vector.field(3, ti.f32, 1)

    @ti.kernel
    def reset():
        for i, j in x:
            x[i, j] = [i * quad - 0.5, 0.6, j * quad - 0.5]
            v[i, j] = [0, 0, 0]
        ball[0] = [0, 0, 0]

    @ti.kernel
    def substep():
        for i in ti.grouped(x):
            v[i] += ti.Vector([0, -9.8, 0]) * dt
        for i in ti.grouped(x):
            force = ti.Vector([0.0, 0.0, 0.0])
            for off in ti.static(offsets):
                j = i + off
                if 0 <= j[0] < n and 0 <= j[1] < n:
                    x_ij = x[i] - x[j]
                    v_ij = v[i] - v[j]
                    d = x_ij.normalized()
                    cur = x_ij.norm()
                    orig = quad * float(i - j).norm()
                    force += -3e4 * d * (cur / orig - 1)
                    force += -v_ij.dot(d) * d * 1e4 * quad
            v[i] += force * dt
        for i in ti.grouped(x):
            v[i] *= ti.exp(-dt)
            off = x[i] - ball[0]
            if off.norm() <= 0.3:
                nrm = off.normalized()
                v[i] -= ti.min(v[i].dot(nrm), 0) * nrm
            x[i] += dt * v[i]

    def step():
        reset()
        for _ in range(30):
            substep()

    return step, lambda: [float(np.abs(x.to_numpy()).mean())]


@program
def finite_elements():
    """Like Taichi's fem128: neo-Hookean triangles, explicit, atomics, 20 substeps."""
    N = 32
    n = (N + 1) ** 2
    m = 2 * N * N
    dx, dt = 1 / N, 5e-5
    pos, vel, frc = (
        ti.Vector.field(2, ti.f32, n),
        ti.Vector.field(2, ti.f32, n),
        ti.Vector.field(2, ti.f32, n),
    )
    tri = ti.Vector.field(3, ti.i32, m)
    B = ti.Matrix.field(2, 2, ti.f32, m)
    vol = 0.5 * dx * dx
    mu, la = 400.0, 600.0

    @ti.kernel
    def setup():
        for i, j in ti.ndrange(N, N):
            k = (i * N + j) * 2
            a = i * (N + 1) + j
            b = a + 1
            c = a + N + 2
            d = a + N + 1
            tri[k] = [a, b, c]
            tri[k + 1] = [c, d, a]
        for i, j in ti.ndrange(N + 1, N + 1):
            k = i * (N + 1) + j
            pos[k] = ti.Vector([i, j]) * dx * 0.25 + ti.Vector([0.3, 0.3])
            vel[k] = [0, 0]
        for i in tri:
            a, b, c = pos[tri[i][0]], pos[tri[i][1]], pos[tri[i][2]]
            B[i] = ti.Matrix.cols([a - c, b - c]).inverse()

    @ti.kernel
    def substep():
        for i in frc:
            frc[i] = ti.Vector([0.0, -1.0])
        for i in tri:
            ia, ib, ic = tri[i][0], tri[i][1], tri[i][2]
            a, b, c = pos[ia], pos[ib], pos[ic]
            F = ti.Matrix.cols([a - c, b - c]) @ B[i]
            Fit = F.inverse().transpose()
            P = mu * (F - Fit) + la * ti.log(ti.max(F.determinant(), 1e-3)) * Fit
            H = -vol * P @ B[i].transpose()
            fa = ti.Vector([H[0, 0], H[1, 0]])
            fb = ti.Vector([H[0, 1], H[1, 1]])
            frc[ia] += fa
            frc[ib] += fb
            frc[ic] -= fa + fb
        for i in pos:
            vel[i] = (vel[i] + dt * frc[i] * 1.0) * 0.999
            pos[i] += dt * vel[i]
            if pos[i][1] < 0.05:
                pos[i][1] = 0.05
                vel[i][1] = 0

    def step():
        setup()
        for _ in range(20):
            substep()

    return step, lambda: [float(pos.to_numpy().mean())]


@program
def cloth_constraints():
    """Constraints between ndarrays of points, with atomics; numpy in and out per frame."""
    n = 40
    N = n * n
    idx = np.arange(N).reshape(n, n)
    edges = np.concatenate(
        [
            np.stack([idx[:, :-1].ravel(), idx[:, 1:].ravel()], 1),
            np.stack([idx[:-1].ravel(), idx[1:].ravel()], 1),
        ]
    ).astype(np.int32)
    E = len(edges)
    x, px, v, d = (ti.Vector.ndarray(3, ti.f32, N) for _ in range(4))
    cnt = ti.ndarray(ti.f32, N)
    ed = ti.Vector.ndarray(2, ti.i32, E)
    ed.from_numpy(edges)
    V = ti.types.ndarray(dtype=ti.math.vec3, ndim=1)
    EI = ti.types.ndarray(dtype=ti.types.vector(2, ti.i32), ndim=1)

    @ti.kernel
    def predict(x: V, px: V, v: V, dt: ti.f32):
        for i in x:
            v[i] += ti.math.vec3(0, -9.8, 0) * dt
            px[i] = x[i]
            if i >= n:
                x[i] += dt * v[i]

    @ti.kernel
    def project(x: V, d: V, cnt: F1, ed: EI, L: ti.f32):
        for i in d:
            d[i] = ti.math.vec3(0.0)
            cnt[i] = 0.0
        for k in ed:
            a, b = ed[k][0], ed[k][1]
            dir = x[a] - x[b]
            l = ti.math.length(dir)
            c = 0.5 * (l - L) * dir / l
            d[a] -= c
            d[b] += c
            cnt[a] += 1.0
            cnt[b] += 1.0
        for i in x:
            if i >= n:
                x[i] += d[i] / cnt[i]

    @ti.kernel
    def finish(x: V, px: V, v: V, dt: ti.f32):
        for i in x:
            v[i] = (x[i] - px[i]) / dt

    X0 = np.zeros((N, 3), np.float32)
    X0[:, 0] = np.tile(np.arange(n), n) / n
    X0[:, 2] = np.repeat(np.arange(n), n) / n

    def step():
        x.from_numpy(X0)
        v.fill(0)
        for _ in range(3):
            predict(x, px, v, 0.01)
            for _ in range(8):
                project(x, d, cnt, ed, 1 / n)
            finish(x, px, v, 0.01)
        step.out = x.to_numpy()

    return step, lambda: [float(step.out.mean())]


@program
def small_kernels():
    """Twenty small kernels of one class per frame, with changing arguments."""
    n = 2000

    @ti.data_oriented
    class World:
        def __init__(self):
            self.p = ti.Struct.field({"x": ti.math.vec2, "v": ti.math.vec2, "m": ti.f32}, shape=n)
            self.e = ti.field(ti.f32, ())

        @ti.kernel
        def setup(self):
            for i in self.p:
                self.p[i].x = ti.math.vec2(i % 50, i // 50) * 0.02
                self.p[i].v = ti.math.vec2(0.1, 0.2)
                self.p[i].m = 1.0

        @ti.kernel
        def kick(self, dt: ti.f32):
            for i in self.p:
                self.p[i].v += dt * (ti.math.vec2(0.5) - self.p[i].x)

        @ti.kernel
        def drift(self, dt: ti.f32):
            for i in self.p:
                self.p[i].x += dt * self.p[i].v

        @ti.kernel
        def bounce(self):
            for i in self.p:
                for k in ti.static(range(2)):
                    if self.p[i].x[k] < 0 and self.p[i].v[k] < 0:
                        self.p[i].v[k] *= -1
                    if self.p[i].x[k] > 1 and self.p[i].v[k] > 0:
                        self.p[i].v[k] *= -1

        @ti.kernel
        def energy(self):
            self.e[None] = 0
            for i in self.p:
                self.e[None] += 0.5 * self.p[i].m * self.p[i].v.norm_sqr()

    w = World()
    w.setup()

    def step():
        for s in range(5):
            w.kick(0.01 + 0.001 * s)
            w.drift(0.01)
            w.bounce()
            w.energy()
        step.e = w.e[None]

    return step, lambda: [step.e]


main()
