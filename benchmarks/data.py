#!/usr/bin/env python3
"""Graphs, bytes and images in the style of Taichi's users: data.py TARGET ARCH [NAME...].

Like `everyday.py`; written to find slow programs that no pass was designed for.
"""

import numpy as np
from harness import field, main, nd, program, random, ti

F1 = ti.types.ndarray(dtype=ti.f32, ndim=1)


@program
def bfs():
    """Breadth-first search by levels; Python reads a flag after each level."""
    n, deg = 20000, 6
    rng = np.random.default_rng(13)
    dst = field(rng.integers(0, n, (n, deg), dtype=np.int32))
    dist = ti.field(ti.i32, n)
    changed = ti.field(ti.i32, ())

    @ti.kernel
    def init():
        for i in dist:
            dist[i] = -1
        dist[0] = 0

    @ti.kernel
    def level(d: ti.i32):
        for i in dist:
            if dist[i] == d:
                for k in range(deg):
                    j = dst[i, k]
                    if dist[j] == -1:
                        dist[j] = d + 1
                        changed[None] = 1

    def step():
        init()
        d = 0
        while True:
            changed[None] = 0
            level(d)
            if changed[None] == 0:
                break
            d += 1

    return step, lambda: dist.to_numpy()


@program
def knn():
    """The eight nearest points, in vectors that are kept sorted."""
    n, m, K = 1000, 2000, 8
    q, x = ti.Vector.field(3, ti.f32, n), ti.Vector.field(3, ti.f32, m)
    q.from_numpy(random(14, n, 3))
    x.from_numpy(random(15, m, 3))
    out = ti.field(ti.i32, (n, K))

    @ti.kernel
    def find():
        for i in q:
            d = ti.Vector([1e9] * K)
            idx = ti.Vector([0] * K)
            for j in range(m):
                r = (q[i] - x[j]).norm_sqr()
                if r < d[K - 1]:
                    d[K - 1] = r
                    idx[K - 1] = j
                    for k in ti.static(range(K - 1, 0, -1)):
                        if d[k] < d[k - 1]:
                            d[k], d[k - 1] = d[k - 1], d[k]
                            idx[k], idx[k - 1] = idx[k - 1], idx[k]
            for k in ti.static(range(K)):
                out[i, k] = idx[k]

    return find, lambda: out.to_numpy()


@program
def life_u8():
    n = 512
    a, b = field((random(17, n, n) > 0.6).astype(np.uint8)), ti.field(ti.u8, (n, n))

    @ti.kernel
    def gen(a: ti.template(), b: ti.template()):
        for i, j in a:
            c = 0
            for di, dj in ti.static(ti.ndrange((-1, 2), (-1, 2))):
                if di != 0 or dj != 0:
                    c += ti.cast(a[(i + di + n) % n, (j + dj + n) % n], ti.i32)
            alive = 0
            if c == 3 or (a[i, j] == 1 and c == 2):
                alive = 1
            b[i, j] = ti.cast(alive, ti.u8)

    def step():
        gen(a, b)
        gen(b, a)

    return step, lambda: a.to_numpy()


@program
def equalise():
    h, w = 600, 800
    img = field((np.random.default_rng(16).random((h, w)) ** 2 * 255).astype(np.uint8))
    out = ti.field(ti.u8, (h, w))
    hist, cdf = ti.field(ti.i32, 256), ti.field(ti.f32, 256)

    @ti.kernel
    def step():
        for i in hist:
            hist[i] = 0
        for i, j in img:
            hist[ti.cast(img[i, j], ti.i32)] += 1
        for _ in range(1):
            s = 0
            for k in range(256):
                s += hist[k]
                cdf[k] = s / (h * w)
        for i, j in img:
            out[i, j] = ti.cast(cdf[ti.cast(img[i, j], ti.i32)] * 255, ti.u8)

    return step, lambda: out.to_numpy()


@program
def optical_flow():
    """Horn-Schunck optical flow: 20 iterations on f32 fields of vectors."""
    n = 160
    I0, I1 = field(random(21, n, n)), field(random(22, n, n))
    Ix, Iy, It = (ti.field(ti.f32, (n, n)) for _ in range(3))
    u, v2 = ti.Vector.field(2, ti.f32, (n, n)), ti.Vector.field(2, ti.f32, (n, n))

    @ti.kernel
    def grads():
        for i, j in Ix:
            Ix[i, j] = 0.5 * (I0[ti.min(i + 1, n - 1), j] - I0[ti.max(i - 1, 0), j])
            Iy[i, j] = 0.5 * (I0[i, ti.min(j + 1, n - 1)] - I0[i, ti.max(j - 1, 0)])
            It[i, j] = I1[i, j] - I0[i, j]
            u[i, j] = ti.Vector([0.0, 0.0])

    @ti.kernel
    def it(a: ti.template(), b: ti.template()):
        for i, j in a:
            m = 0.25 * (
                a[ti.min(i + 1, n - 1), j]
                + a[ti.max(i - 1, 0), j]
                + a[i, ti.min(j + 1, n - 1)]
                + a[i, ti.max(j - 1, 0)]
            )
            t = (Ix[i, j] * m.x + Iy[i, j] * m.y + It[i, j]) / (0.1 + Ix[i, j] ** 2 + Iy[i, j] ** 2)
            b[i, j] = m - t * ti.Vector([Ix[i, j], Iy[i, j]])

    def step():
        grads()
        for _ in range(10):
            it(u, v2)
            it(v2, u)

    return step, lambda: u.to_numpy()


@program
def fft():
    """A Fourier transform in 14 stages."""
    n, L = 1 << 14, 14
    src = random(12, n, 2)
    a, b = ti.Vector.field(2, ti.f32, n), ti.Vector.field(2, ti.f32, n)
    a0 = ti.Vector.field(2, ti.f32, n)
    a0.from_numpy(src)

    @ti.kernel
    def rev():
        for i in a:
            r, t = 0, i
            for _ in ti.static(range(L)):
                r = (r << 1) | (t & 1)
                t >>= 1
            a[r] = a0[i]

    @ti.kernel
    def stage(x: ti.template(), y: ti.template(), h: ti.i32):
        for k in range(n // 2):
            j = k % h
            i0 = (k // h) * 2 * h + j
            ang = -3.14159265 * j / h
            w = ti.Vector([ti.cos(ang), ti.sin(ang)])
            u, v = x[i0], x[i0 + h]
            t = ti.Vector([w.x * v.x - w.y * v.y, w.x * v.y + w.y * v.x])
            y[i0] = u + t
            y[i0 + h] = u - t

    def step():
        rev()
        x, y = a, b
        for s in range(L):
            stage(x, y, 1 << s)
            x, y = y, x
        step.x = x

    return step, lambda: step.x.to_numpy()


@program
def cipher():
    """Bytes: a cipher, digram counts, and lookups in a rolling hash table."""
    n = 1 << 18
    text = field(np.random.default_rng(31).integers(32, 127, n).astype(np.uint8))
    out = ti.field(ti.u8, n)
    di = ti.field(ti.i32, (128, 128))
    hits = ti.field(ti.i32, ())

    @ti.kernel
    def step():
        hits[None] = 0
        for i, j in di:
            di[i, j] = 0
        for i in text:
            c = ti.cast(text[i], ti.i32)
            if c >= 97 and c <= 122:
                c = (c - 97 + 13) % 26 + 97
            elif c >= 65 and c <= 90:
                c = (c - 65 + 13) % 26 + 65
            out[i] = ti.cast(c, ti.u8)
        for i in range(n - 1):
            di[ti.cast(out[i], ti.i32), ti.cast(out[i + 1], ti.i32)] += 1
        for i in range(n - 8):
            h = ti.cast(0, ti.u32)
            for k in ti.static(range(8)):
                h = h * ti.cast(31, ti.u32) + ti.cast(out[i + k], ti.u32)
            if h % ti.cast(97, ti.u32) == 5:
                hits[None] += 1

    return step, lambda: np.append(di.to_numpy().ravel(), hits[None])


@program
def line_search():
    """A line search: many kernels that return scalars, and control flow in Python."""
    n = 4000
    x, g, d, y = (ti.ndarray(ti.f32, n) for _ in range(4))
    t = nd(random(37, n))

    @ti.kernel
    def value(x: F1, t: F1) -> ti.f32:
        s = 0.0
        for i in x:
            s += (x[i] - t[i]) ** 2 + 0.1 * x[i] ** 4
        return s

    @ti.kernel
    def gradient(x: F1, t: F1, g: F1):
        for i in x:
            g[i] = 2 * (x[i] - t[i]) + 0.4 * x[i] ** 3

    @ti.kernel
    def move(x: F1, g: F1, y: F1, a: ti.f32):
        for i in x:
            y[i] = x[i] - a * g[i]

    def step():
        x.fill(0.0)
        f = value(x, t)
        for _ in range(6):
            gradient(x, t, g)
            a = 1.0
            for _ in range(8):
                move(x, g, y, a)
                h = value(y, t)
                if h < f:
                    break
                a *= 0.5
            move(x, g, x, a)
            f = h
        step.f = f

    return step, lambda: [step.f]


@program
def numpy_arguments():
    """A per-frame kernel on numpy arrays of moderate size, 20 calls."""
    x, y = random(24, 2000), np.zeros(2000, np.float32)

    @ti.kernel
    def k(x: ti.types.ndarray(), y: ti.types.ndarray(), a: ti.f32):
        for i in range(x.shape[0]):
            y[i] = a * x[i] + y[i] * 0.5

    def step():
        for s in range(20):
            k(x, y, 0.1 * s)

    return step, lambda: y


@program
def element_access():
    """Reads and writes of vectors, structs and scalars in Python scope."""
    v = ti.Vector.field(3, ti.f32, 100)
    s = ti.field(ti.f32, (10, 10))
    st = ti.Struct.field({"a": ti.f32, "p": ti.math.vec3}, shape=50)

    def step():
        for i in range(50):
            v[i] = [i, 1.0, 2.0]
            s[i % 10, 3] = v[i][0] + v[i].y
            st[i].a = 1.5
            st[i].p = ti.math.vec3(1, 2, 3)
        step.t = sum(st[i].p.x for i in range(50)) + s[4, 3]

    return step, lambda: [step.t]


@program
def bulk_copies():
    n = 512
    x, y = ti.field(ti.f32, (n, n)), ti.field(ti.f32, (n, n))
    v = ti.Vector.field(3, ti.f32, (n, n))
    a = random(26, n, n)
    b = random(27, n, n, 3)
    nn = ti.ndarray(ti.f32, (n, n))

    def step():
        x.from_numpy(a)
        y.copy_from(x)
        y.fill(2.0)
        v.from_numpy(b)
        nn.from_numpy(a)
        nn.fill(1.0)
        step.t = (
            float(v.to_numpy()[3, 4, 1]) + float(x.to_numpy()[1, 1]) + float(nn.to_numpy()[1, 1])
        )

    return step, lambda: [step.t]


@program
def minmax_argmax():
    n = 300000
    x = field(random(28, n))

    @ti.kernel
    def mx() -> ti.f32:
        m = -1e30
        for i in x:
            ti.atomic_max(m, x[i])
        return m

    @ti.kernel
    def mn() -> ti.f32:
        m = 1e30
        for i in range(n):
            ti.atomic_min(m, x[i])
        return m

    @ti.kernel
    def am(v: ti.f32) -> ti.i32:
        k = -1
        for i in x:
            if x[i] == v:
                ti.atomic_max(k, i)
        return k

    def step():
        m = mx()
        l = mn()
        step.r = [m, l, am(m)]

    return step, lambda: step.r


main()
