#!/usr/bin/env python3
"""Fluids in the style of Taichi's users: fluids.py TARGET ARCH [NAME...].

Like `everyday.py`; written to find slow programs that no pass was designed for.
"""

from harness import field, main, program, random, ti


@program
def stable_fluids():
    """Third-order advection by bilinear samples; a pressure solve with pairs of fields."""
    n = 128
    v, nv = ti.Vector.field(2, ti.f32, (n, n)), ti.Vector.field(2, ti.f32, (n, n))
    dye, ndye = ti.Vector.field(3, ti.f32, (n, n)), ti.Vector.field(3, ti.f32, (n, n))
    div, p, np_ = ti.field(ti.f32, (n, n)), ti.field(ti.f32, (n, n)), ti.field(ti.f32, (n, n))
    v0, d0 = random(1, n, n, 2) - 0.5, random(2, n, n, 3)
    dt = 0.03

    class Pair:
        def __init__(self, a, b):
            self.cur, self.nxt = a, b

        def swap(self):
            self.cur, self.nxt = self.nxt, self.cur

    vp, dp, pp = Pair(v, nv), Pair(dye, ndye), Pair(p, np_)

    @ti.func
    def sample(qf, u, w):
        i, j = int(u), int(w)
        i = ti.max(0, ti.min(n - 1, i))
        j = ti.max(0, ti.min(n - 1, j))
        return qf[i, j]

    @ti.func
    def lerp(a, b, f):
        return a + f * (b - a)

    @ti.func
    def bilerp(vf, q):
        u, w = q[0], q[1]
        s, t = u - 0.5, w - 0.5
        iu, iv = ti.floor(s), ti.floor(t)
        fu, fv = s - iu, t - iv
        a, b = sample(vf, iu, iv), sample(vf, iu + 1, iv)
        c, d = sample(vf, iu, iv + 1), sample(vf, iu + 1, iv + 1)
        return lerp(lerp(a, b, fu), lerp(c, d, fu), fv)

    @ti.func
    def backtrace(vf, q, dt_: ti.template()):
        v1 = bilerp(vf, q)
        p1 = q - 0.5 * dt_ * v1
        v2 = bilerp(vf, p1)
        p2 = q - 0.75 * dt_ * v2
        v3 = bilerp(vf, p2)
        q -= dt_ * ((2 / 9) * v1 + (1 / 3) * v2 + (4 / 9) * v3)
        return q

    @ti.kernel
    def advect(vf: ti.template(), qf: ti.template(), nqf: ti.template()):
        for i, j in vf:
            q = ti.Vector([i, j]) + 0.5
            q = backtrace(vf, q, dt)
            nqf[i, j] = bilerp(qf, q) * 0.999

    @ti.kernel
    def divergence(vf: ti.template()):
        for i, j in vf:
            l, r = sample(vf, i - 1, j), sample(vf, i + 1, j)
            b, t = sample(vf, i, j - 1), sample(vf, i, j + 1)
            c = sample(vf, i, j)
            if i == 0:
                l.x = -c.x
            if i == n - 1:
                r.x = -c.x
            if j == 0:
                b.y = -c.y
            if j == n - 1:
                t.y = -c.y
            div[i, j] = (r.x - l.x + t.y - b.y) * 0.5

    @ti.kernel
    def jacobi(pf: ti.template(), npf: ti.template()):
        for i, j in pf:
            npf[i, j] = (
                sample(pf, i - 1, j)
                + sample(pf, i + 1, j)
                + sample(pf, i, j - 1)
                + sample(pf, i, j + 1)
                - div[i, j]
            ) * 0.25

    @ti.kernel
    def subtract(vf: ti.template(), pf: ti.template()):
        for i, j in vf:
            vf[i, j] -= 0.5 * ti.Vector(
                [
                    sample(pf, i + 1, j) - sample(pf, i - 1, j),
                    sample(pf, i, j + 1) - sample(pf, i, j - 1),
                ]
            )

    v.from_numpy(v0)
    dye.from_numpy(d0)

    def step():
        advect(vp.cur, vp.cur, vp.nxt)
        advect(vp.cur, dp.cur, dp.nxt)
        vp.swap()
        dp.swap()
        divergence(vp.cur)
        for _ in range(20):
            jacobi(pp.cur, pp.nxt)
            pp.swap()
        subtract(vp.cur, pp.cur)

    return step, lambda: vp.cur.to_numpy()


@program
def lbm_d2q9():
    """D2Q9 lattice Boltzmann in a class, with vectors of nine scalars."""
    nx, ny = 240, 80
    tau = 0.6
    w = ti.types.vector(9, float)(4 / 9, 1 / 9, 1 / 9, 1 / 9, 1 / 9, 1 / 36, 1 / 36, 1 / 36, 1 / 36)
    e = ti.types.matrix(9, 2, int)(
        [0, 0], [1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, 1], [-1, -1], [1, -1]
    )

    @ti.data_oriented
    class LBM:
        def __init__(self):
            self.rho = ti.field(float, (nx, ny))
            self.vel = ti.Vector.field(2, float, (nx, ny))
            self.mask = ti.field(float, (nx, ny))
            self.fo = ti.Vector.field(9, float, (nx, ny))
            self.fn = ti.Vector.field(9, float, (nx, ny))

        @ti.func
        def feq(self, i, j):
            eu = e @ self.vel[i, j]
            uv = ti.math.dot(self.vel[i, j], self.vel[i, j])
            return w * self.rho[i, j] * (1 + 3 * eu + 4.5 * eu * eu - 1.5 * uv)

        @ti.kernel
        def init(self):
            self.vel.fill(0)
            self.rho.fill(1)
            self.mask.fill(0)
            for i, j in self.rho:
                self.fo[i, j] = self.fn[i, j] = self.feq(i, j)
                if (i - 60.0) ** 2 + (j - 40.0) ** 2 <= 100.0:
                    self.mask[i, j] = 1.0

        @ti.kernel
        def collide(self):
            for i, j in ti.ndrange((1, nx - 1), (1, ny - 1)):
                for k in ti.static(range(9)):
                    ip, jp = i - e[k, 0], j - e[k, 1]
                    fq = self.feq(ip, jp)
                    self.fn[i, j][k] = (1 - 1 / tau) * self.fo[ip, jp][k] + fq[k] / tau

        @ti.kernel
        def macro(self):
            for i, j in ti.ndrange((1, nx - 1), (1, ny - 1)):
                self.rho[i, j] = 0
                self.vel[i, j] = 0, 0
                for k in ti.static(range(9)):
                    self.fo[i, j][k] = self.fn[i, j][k]
                    self.rho[i, j] += self.fn[i, j][k]
                    self.vel[i, j] += ti.math.vec2(e[k, 0], e[k, 1]) * self.fn[i, j][k]
                self.vel[i, j] /= self.rho[i, j]

        @ti.kernel
        def bc(self):
            for j in range(1, ny - 1):
                self.vel[0, j] = 0.1, 0.0
                self.rho[0, j] = self.rho[1, j]
                self.fo[0, j] = self.feq(0, j) - self.feq(1, j) + self.fo[1, j]
                self.vel[nx - 1, j] = self.vel[nx - 2, j]
                self.rho[nx - 1, j] = self.rho[nx - 2, j]
                self.fo[nx - 1, j] = self.feq(nx - 1, j) - self.feq(nx - 2, j) + self.fo[nx - 2, j]
            for i in range(nx):
                self.vel[i, 0] = 0.0, 0.0
                self.rho[i, 0] = self.rho[i, 1]
                self.fo[i, 0] = self.feq(i, 0) - self.feq(i, 1) + self.fo[i, 1]
            for i, j in ti.ndrange(nx, ny):
                if self.mask[i, j] == 1:
                    self.vel[i, j] = 0.0, 0.0

    l = LBM()

    def step():
        l.init()
        for _ in range(4):
            l.collide()
            l.macro()
            l.bc()

    return step, lambda: l.vel.to_numpy()


@program
def neighbour_lists():
    """Position-based fluids, 2 iterations, with a neighbour grid of fixed capacity."""
    n, gx, cap, nbcap = 3000, 40, 32, 48
    h = 1.0 / gx * 1.0
    x = ti.Vector.field(2, ti.f32, n)
    lam = ti.field(ti.f32, n)
    dpos = ti.Vector.field(2, ti.f32, n)
    gn = ti.field(ti.i32, (gx, gx))
    g = ti.field(ti.i32, (gx, gx, cap))
    nn = ti.field(ti.i32, n)
    nb = ti.field(ti.i32, (n, nbcap))
    X0 = random(14, n, 2) * 0.9 + 0.05

    @ti.kernel
    def build():
        for I in ti.grouped(gn):
            gn[I] = 0
        for I in ti.grouped(nn):
            nn[I] = 0
        for i in x:
            c = ti.cast(x[i] / h, ti.i32)
            s = ti.atomic_add(gn[c], 1)
            if s < cap:
                g[c, s] = i
        for i in x:
            c = ti.cast(x[i] / h, ti.i32)
            k = 0
            for off in ti.static(ti.grouped(ti.ndrange((-1, 2), (-1, 2)))):
                q = c + off
                if 0 <= q[0] < gx and 0 <= q[1] < gx:
                    for j in range(ti.min(gn[q], cap)):
                        pj = g[q, j]
                        if k < nbcap and pj != i and (x[i] - x[pj]).norm() < h:
                            nb[i, k] = pj
                            k += 1
            nn[i] = k

    @ti.kernel
    def solve():
        for i in x:
            gi = ti.Vector([0.0, 0.0])
            s2 = 0.0
            den = 0.0
            for j in range(nn[i]):
                pj = nb[i, j]
                d = x[i] - x[pj]
                r = d.norm()
                q = (h * h - r * r) / (h * h * h)
                den += 0.1 * q * q * q
                grad = ti.Vector([0.0, 0.0])
                if 0 < r:
                    grad = -0.1 * (h - r) * (h - r) * d / r
                gi += grad
                s2 += grad.dot(grad)
            s2 += gi.dot(gi)
            lam[i] = -(den - 1.0) / (s2 + 100.0)
        for i in x:
            dp = ti.Vector([0.0, 0.0])
            for j in range(nn[i]):
                pj = nb[i, j]
                d = x[i] - x[pj]
                r = d.norm() + 1e-6
                dp += (lam[i] + lam[pj]) * (h - r) * d / r
            dpos[i] = dp
        for i in x:
            x[i] = ti.math.clamp(x[i] + 0.01 * dpos[i], 0.01, 0.99)

    def step():
        x.from_numpy(X0)
        build()
        for _ in range(2):
            solve()

    return step, lambda: [float(x.to_numpy().mean()), float(nn.to_numpy().sum())]


@program
def conjugate_gradient():
    """Matrix-free CG from Python; scalars (alpha, beta) are read between kernels."""
    n = 96
    b = field(random(15, n, n))
    x, r, p, ap = (ti.field(ti.f32, (n, n)) for _ in range(4))

    @ti.kernel
    def reset():
        for I in ti.grouped(x):
            x[I] = 0.0
            r[I] = b[I]
            p[I] = b[I]

    @ti.kernel
    def apply():
        for i, j in p:
            s = 5.0 * p[i, j]
            if i > 0:
                s -= p[i - 1, j]
            if i < n - 1:
                s -= p[i + 1, j]
            if j > 0:
                s -= p[i, j - 1]
            if j < n - 1:
                s -= p[i, j + 1]
            ap[i, j] = s

    @ti.kernel
    def dot(u: ti.template(), w: ti.template()) -> ti.f32:
        s = 0.0
        for I in ti.grouped(u):
            s += u[I] * w[I]
        return s

    @ti.kernel
    def axpy(u: ti.template(), a: ti.f32, w: ti.template()):
        for I in ti.grouped(u):
            u[I] += a * w[I]

    @ti.kernel
    def update_p(beta: ti.f32):
        for I in ti.grouped(p):
            p[I] = r[I] + beta * p[I]

    def step():
        reset()
        rr = dot(r, r)
        for _ in range(15):
            apply()
            al = rr / dot(p, ap)
            axpy(x, al, p)
            axpy(r, -al, ap)
            new = dot(r, r)
            update_p(new / rr)
            rr = new

    return step, lambda: x.to_numpy()


main()
