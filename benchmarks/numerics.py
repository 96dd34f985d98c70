#!/usr/bin/env python3
"""Particles, recurrences, bits, sparse rows as users write them: numerics.py TARGET ARCH [NAME...].

Like `assorted.py`, and with the same aim: to find slow programs that no pass was designed for.
"""

import numpy as np
from harness import field, main, program, random, ti

vec2, vec3, vec4 = ti.math.vec2, ti.math.vec3, ti.math.vec4


@program
def sph():
    """SPH densities and forces, with a particle list per cell."""
    n, cells, most = 3000, 24, 32
    h = 1.0 / cells
    x, v, f = (ti.Vector.field(2, ti.f32, n) for _ in range(3))
    rho = ti.field(ti.f32, n)
    count, slot = ti.field(ti.i32, (cells, cells)), ti.field(ti.i32, (cells, cells, most))
    x0 = random(31, n, 2)
    x.from_numpy(x0)
    v.from_numpy(random(32, n, 2) - 0.5)

    @ti.func
    def cell(p):
        return ti.math.clamp(ti.cast(p * cells, ti.i32), 0, cells - 1)

    @ti.kernel
    def sort():
        for i, j in count:
            count[i, j] = 0
        for i in x:
            c = cell(x[i])
            k = ti.atomic_add(count[c], 1)
            if k < most:
                slot[c, k] = i

    @ti.kernel
    def density():
        for i in x:
            c, s = cell(x[i]), 0.0
            for di, dj in ti.ndrange((-1, 2), (-1, 2)):
                q = c + ti.Vector([di, dj])
                if 0 <= q[0] < cells and 0 <= q[1] < cells:
                    for k in range(ti.min(count[q], most)):
                        d = (x[i] - x[slot[q, k]]).norm_sqr()
                        if d < h * h:
                            s += (1.0 - d / (h * h)) ** 3
            rho[i] = s

    @ti.kernel
    def forces():
        for i in x:
            c, s = cell(x[i]), vec2(0.0)
            for di, dj in ti.ndrange((-1, 2), (-1, 2)):
                q = c + ti.Vector([di, dj])
                if 0 <= q[0] < cells and 0 <= q[1] < cells:
                    for k in range(ti.min(count[q], most)):
                        j = slot[q, k]
                        d = x[i] - x[j]
                        r = d.norm()
                        if j != i and 1e-5 < r < h:
                            w = 1.0 - r / h
                            s += d / r * w * w * (rho[i] + rho[j] - 6.0)
                            s += 0.1 * w * (v[j] - v[i]) / rho[j]
            f[i] = s

    def step():
        sort()
        density()
        forces()

    return step, lambda: np.append(rho.to_numpy().sum(), abs(f.to_numpy()).sum())


@program
def thomas():
    """A tridiagonal system per row, by elimination."""
    rows, n = 512, 128
    lower, upper = field(random(35, rows, n) * 0.4), field(random(36, rows, n) * 0.4)
    rhs = field(random(37, rows, n))
    c, x = ti.field(ti.f32, (rows, n)), ti.field(ti.f32, (rows, n))

    @ti.kernel
    def solve():
        for r in range(rows):
            c[r, 0] = upper[r, 0] / 2.0
            x[r, 0] = rhs[r, 0] / 2.0
            for i in range(1, n):
                m = 1.0 / (2.0 - lower[r, i] * c[r, i - 1])
                c[r, i] = upper[r, i] * m
                x[r, i] = (rhs[r, i] - lower[r, i] * x[r, i - 1]) * m
            for k in range(1, n):
                i = n - 1 - k
                x[r, i] -= c[r, i] * x[r, i + 1]

    return solve, lambda: x.to_numpy()


@program
def sdf():
    """Ray marching of a distance field: a repeated sphere, a box, a plane; shadows."""
    w, h = 160, 120
    film = ti.field(ti.f32, (w, h))

    @ti.func
    def scene(p):
        q = ti.Vector([p.x - 4.0 * ti.round(p.x / 4.0), p.y, p.z - 4.0 * ti.round(p.z / 4.0)])
        ball = q.norm() - 1.0
        d = ti.abs(p - vec3(0.0, 1.0, 3.0)) - vec3(0.8, 1.5, 0.8)
        box = ti.max(d, 0.0).norm() + ti.min(ti.max(d.x, ti.max(d.y, d.z)), 0.0)
        return ti.min(ti.min(ball, box), p.y + 1.0)

    @ti.func
    def march(o, d, far):
        t, k = 0.02, 0
        while t < far and k < 64:
            s = scene(o + t * d)
            if s < 1e-3:
                break
            t += s
            k += 1
        return t

    @ti.kernel
    def render():
        for i, j in film:
            d = vec3((i - w / 2) / h, (j - h / 2) / h, 1.0).normalized()
            o = vec3(1.3, 1.7, -5.0)
            t = march(o, d, 30.0)
            light = 0.1
            if t < 30.0:
                p = o + t * d
                e = 1e-2
                nx = scene(p + vec3(e, 0, 0)) - scene(p - vec3(e, 0, 0))
                ny = scene(p + vec3(0, e, 0)) - scene(p - vec3(0, e, 0))
                nz = scene(p + vec3(0, 0, e)) - scene(p - vec3(0, 0, e))
                normal = vec3(nx, ny, nz).normalized()
                sun = vec3(0.5, 0.7, -0.4).normalized()
                shade = march(p + 0.02 * normal, sun, 8.0)
                light += ti.max(0.0, normal.dot(sun)) * (1.0 if shade >= 8.0 else 0.3)
            film[i, j] = light

    return render, lambda: [film.to_numpy().mean()]


@program
def queens():
    """Ten queens: solutions by bit masks and a stack, for each pair of first columns."""
    n = 10
    found = ti.field(ti.i32, n * n)

    @ti.kernel
    def count():
        for c in found:
            a, b = 1 << (c // n), 1 << (c % n)
            cols = ti.Vector([0] * n)
            left = ti.Vector([0] * n)
            right = ti.Vector([0] * n)
            free = ti.Vector([0] * n)
            full = (1 << n) - 1
            k = 0
            if (b & (a | (a << 1) | (a >> 1))) == 0:
                row = 2
                cols[2] = a | b
                left[2] = ((a << 1) | b) << 1
                right[2] = ((a >> 1) | b) >> 1
                free[2] = full & ~(cols[2] | left[2] | right[2])
                while row >= 2:
                    if free[row] == 0:
                        row -= 1
                    else:
                        bit = free[row] & -free[row]
                        free[row] ^= bit
                        if row == n - 1:
                            k += 1
                        else:
                            cols[row + 1] = cols[row] | bit
                            left[row + 1] = (left[row] | bit) << 1
                            right[row + 1] = (right[row] | bit) >> 1
                            row += 1
                            free[row] = full & ~(cols[row] | left[row] | right[row])
            found[c] = k

    return count, lambda: found.to_numpy()


@program
def smith_waterman():
    """The best local alignment of two sequences, diagonal by diagonal."""
    n, m = 256, 320
    rng = np.random.default_rng(45)
    a, b = field(rng.integers(0, 4, n).astype(np.int32)), field(rng.integers(0, 4, m).astype("i4"))
    s = ti.field(ti.i32, (n + 1, m + 1))
    best = ti.field(ti.i32, ())

    @ti.kernel
    def diagonal(d: ti.i32):
        for i in range(ti.max(1, d - m), ti.min(n, d - 1) + 1):
            j = d - i
            score = 3 if a[i - 1] == b[j - 1] else -3
            v = ti.max(0, s[i - 1, j - 1] + score, s[i - 1, j] - 2, s[i, j - 1] - 2)
            s[i, j] = v

    @ti.kernel
    def maximum():
        best[None] = 0
        for i, j in s:
            ti.atomic_max(best[None], s[i, j])

    def step():
        for d in range(2, n + m + 1):
            diagonal(d)
        maximum()

    return step, lambda: np.append(s.to_numpy(), best[None])


@program
def rigid():
    """Rotating rigid bodies: quaternions, inertia, a floor under eight corners."""
    n = 2000
    Body = ti.types.struct(x=vec3, v=vec3, q=vec4, w=vec3)
    body = Body.field(shape=n)
    x0, v0 = random(50, n, 3), random(51, n, 3) - 0.5
    w0 = (random(52, n, 3) - 0.5) * 4

    @ti.func
    def times(a, b):
        s = a.w * b.w - a.xyz.dot(b.xyz)
        v = a.w * b.xyz + b.w * a.xyz + a.xyz.cross(b.xyz)
        return vec4(v, s)

    @ti.func
    def turned(q, p):
        t = 2.0 * q.xyz.cross(p)
        return p + q.w * t + q.xyz.cross(t)

    @ti.kernel
    def move(dt: ti.f32):
        for i in body:
            b = body[i]
            force, torque = vec3(0, -9.8, 0), vec3(0)
            for c in range(8):
                corner = vec3((c & 1) - 0.5, ((c >> 1) & 1) - 0.5, ((c >> 2) & 1) - 0.5) * 0.2
                r = turned(b.q, corner)
                p = b.x + r
                if p.y < 0:
                    u = b.v + b.w.cross(r)
                    f = vec3(-0.5 * u.x, -200.0 * p.y - 2.0 * u.y, -0.5 * u.z)
                    force += f
                    torque += r.cross(f)
            b.v += dt * force
            b.w += dt * torque * 20.0
            b.x += dt * b.v
            b.q = (b.q + 0.5 * dt * times(vec4(b.w, 0.0), b.q)).normalized()
            body[i] = b

    def step():
        body.x.from_numpy(x0)
        body.v.from_numpy(v0)
        body.w.from_numpy(w0)
        body.q.from_numpy(np.tile(np.array([0, 0, 0, 1], "f4"), (n, 1)))
        for _ in range(4):
            move(0.004)

    return step, lambda: np.append(body.x.to_numpy(), body.q.to_numpy())


@program
def hashes():
    """64-bit hashes of many words, their sum, and a Bloom filter."""
    n, bits = 65536, 1 << 18
    word = ti.field(ti.u64, n)
    word.from_numpy(np.random.default_rng(53).integers(0, 1 << 62, n).astype(np.uint64))
    out, bloom = ti.field(ti.u64, n), ti.field(ti.u32, bits // 32)

    @ti.func
    def mixed(x):
        h = x
        h ^= h >> ti.u64(33)
        h *= ti.u64(0xFF51AFD7ED558CCD)
        h ^= h >> ti.u64(33)
        h *= ti.u64(0xC4CEB9FE1A85EC53)
        h ^= h >> ti.u64(33)
        return h

    @ti.kernel
    def fill():
        for i in bloom:
            bloom[i] = ti.u32(0)
        for i in word:
            h = mixed(word[i])
            out[i] = h
            for k in ti.static(range(3)):
                b = ti.cast((h >> ti.u64(20 * k)) & ti.u64(bits - 1), ti.u32)
                ti.atomic_or(bloom[b >> ti.u32(5)], ti.u32(1) << (b & ti.u32(31)))

    return fill, lambda: np.append(out.to_numpy() >> np.uint64(40), bloom.to_numpy())


@program
def csr():
    """Product of a CSR matrix and a vector, ten times, normalized."""
    n = 8192
    rng = np.random.default_rng(54)
    lengths = rng.integers(2, 20, n)
    begin = field(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    total = int(lengths.sum())
    column, value = field(rng.integers(0, n, total).astype(np.int32)), field(random(55, total))
    x, y = ti.field(ti.f32, n), ti.field(ti.f32, n)
    norm = ti.field(ti.f32, ())

    @ti.kernel
    def one():
        for i in x:
            x[i] = 1.0

    @ti.kernel
    def multiply():
        norm[None] = 0.0
        for i in range(n):
            s = 0.0
            for k in range(begin[i], begin[i + 1]):
                s += value[k] * x[column[k]]
            y[i] = s
            norm[None] += s * s

    @ti.kernel
    def divide():
        for i in x:
            x[i] = y[i] / ti.sqrt(norm[None])

    def step():
        one()
        for _ in range(10):
            multiply()
            divide()

    return step, lambda: x.to_numpy()


@program
def marching_cubes():
    """Corners below a level and triangle counts per cell, by bits and a table."""
    n = 48
    f = ti.field(ti.f32, (n, n, n))
    table = field(np.random.default_rng(57).integers(0, 6, 256).astype(np.int32))
    total = ti.field(ti.i32, ())
    centre = ti.Vector.field(3, ti.f32, (n, n, n))

    @ti.kernel
    def fill():
        for i, j, k in f:
            p = vec3(i, j, k) / n * 6.0
            f[i, j, k] = (
                ti.sin(p.x) * ti.cos(p.y) + ti.sin(p.y) * ti.cos(p.z) + ti.sin(p.z) * ti.cos(p.x)
            )

    @ti.kernel
    def march():
        total[None] = 0
        for i, j, k in ti.ndrange(n - 1, n - 1, n - 1):
            bits, s, hits = 0, vec3(0.0), 0
            for c in ti.static(range(8)):
                a = f[i + (c & 1), j + ((c >> 1) & 1), k + (c >> 2)]
                if a < 0:
                    bits |= 1 << c
                for axis in ti.static(range(3)):
                    if ti.static((c >> axis) & 1 == 0):
                        d = c | (1 << axis)
                        b = f[i + (d & 1), j + ((d >> 1) & 1), k + (d >> 2)]
                        if (a < 0) != (b < 0):
                            p = vec3(c & 1, (c >> 1) & 1, c >> 2)
                            p[axis] += a / (a - b)
                            s += p
                            hits += 1
            if hits > 0:
                centre[i, j, k] = s / hits
                total[None] += table[bits]

    def step():
        fill()
        march()

    return step, lambda: np.append(centre.to_numpy(), total[None])


main()
