#!/usr/bin/env python3
"""Programs of many kinds in the style of Taichi's users: assorted.py TARGET ARCH [NAME...].

Like `everyday.py`; written to find slow programs that no pass was designed for. Random numbers are
hashes of integers, so that two targets compute the same.
"""

import numpy as np
from harness import field, main, program, random, ti

vec2, vec3 = ti.math.vec2, ti.math.vec3


@ti.func
def hashed(x: ti.u32) -> ti.u32:
    """Pseudorandom bits of an integer."""
    h = x
    h ^= h >> ti.u32(16)
    h *= ti.u32(0x7FEB352D)
    h ^= h >> ti.u32(15)
    h *= ti.u32(0x846CA68B)
    h ^= h >> ti.u32(16)
    return h


@ti.func
def unit(x: ti.u32) -> ti.f32:
    """A pseudorandom number in [0, 1)."""
    return ti.cast(hashed(x) >> ti.u32(8), ti.f32) / 16777216.0


@program
def voronoi():
    """Jump flooding: the nearest of 200 seeds for each pixel, in nine rounds."""
    n = 256
    seeds = ti.Vector.field(2, ti.i32, 200)
    points = np.random.default_rng(1).permutation(n * n)[:200]
    seeds.from_numpy(np.stack([points // n, points % n], 1).astype(np.int32))
    a, b = ti.Vector.field(2, ti.i32, (n, n)), ti.Vector.field(2, ti.i32, (n, n))

    @ti.kernel
    def clear():
        for I in ti.grouped(a):
            a[I] = ti.Vector([-1, -1])
        for s in seeds:
            a[seeds[s]] = seeds[s]

    @ti.kernel
    def flood(src: ti.template(), dst: ti.template(), step: ti.i32):
        for i, j in src:
            best = src[i, j]
            least = 1 << 30
            if best.x >= 0:
                least = (best.x - i) ** 2 + (best.y - j) ** 2
            for di, dj in ti.static(ti.ndrange((-1, 2), (-1, 2))):
                u, v = i + di * step, j + dj * step
                if 0 <= u < n and 0 <= v < n:
                    c = src[u, v]
                    if c.x >= 0:
                        d = (c.x - i) ** 2 + (c.y - j) ** 2
                        if d < least:
                            least = d
                            best = c
            dst[i, j] = best

    def step():
        clear()
        x, y, k = a, b, n // 2
        while k:
            flood(x, y, k)
            x, y, k = y, x, k // 2
        step.x = x

    def distances():
        found = step.x.to_numpy() - np.stack(np.mgrid[:n, :n], -1)
        return (found**2).sum(-1)

    return step, distances


@program
def components():
    """Connected components of an image: labels take the minimum of their neighbours until
    convergence."""
    n = 192
    solid = field((random(2, n, n) > 0.35).astype(np.int32))
    label = ti.field(ti.i32, (n, n))
    moved = ti.field(ti.i32, ())

    @ti.kernel
    def begin():
        for i, j in label:
            label[i, j] = i * n + j if solid[i, j] == 1 else -1

    @ti.kernel
    def spread():
        for i, j in label:
            if label[i, j] >= 0:
                m = label[i, j]
                for k in ti.static(range(4)):
                    u = i + ti.static([1, -1, 0, 0])[k]
                    v = j + ti.static([0, 0, 1, -1])[k]
                    if u >= 0 and u < n and v >= 0 and v < n and label[u, v] >= 0:
                        m = ti.min(m, label[u, v])
                if m < label[i, j]:
                    moved[None] = 1
                    ti.atomic_min(label[label[i, j] // n, label[i, j] % n], m)
                    label[i, j] = m

    @ti.kernel
    def jump():
        for i, j in label:
            r = label[i, j]
            if r >= 0:
                while label[r // n, r % n] != r:
                    r = label[r // n, r % n]
                label[i, j] = r

    def step():
        begin()
        while True:
            moved[None] = 0
            spread()
            jump()
            if moved[None] == 0:
                break

    return step, lambda: label.to_numpy()


@program
def bilateral():
    n, r = 160, 3
    img, out = field(random(3, n, n)), ti.field(ti.f32, (n, n))

    @ti.kernel
    def filter(sigma_s: ti.f32, sigma_r: ti.f32):
        for i, j in img:
            total, weight = 0.0, 0.0
            for u in range(ti.max(0, i - r), ti.min(n, i + r + 1)):
                for v in range(ti.max(0, j - r), ti.min(n, j + r + 1)):
                    d = img[u, v] - img[i, j]
                    near = ((u - i) ** 2 + (v - j) ** 2) / sigma_s**2
                    w = ti.exp(-0.5 * (near + d * d / sigma_r**2))
                    total += w * img[u, v]
                    weight += w
            out[i, j] = total / weight

    return lambda: filter(2.0, 0.2), lambda: out.to_numpy()


@program
def sobel_bytes():
    """Sobel edges of an RGB image of bytes, as vectors."""
    h, w = 320, 480
    img = ti.Vector.field(3, ti.u8, (h, w))
    img.from_numpy(np.random.default_rng(4).integers(0, 256, (h, w, 3), dtype=np.uint8))
    gray, out = ti.field(ti.u8, (h, w)), ti.field(ti.u8, (h, w))

    @ti.kernel
    def step():
        for i, j in img:
            c = ti.cast(img[i, j], ti.f32)
            gray[i, j] = ti.cast(0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2], ti.u8)
        for i, j in gray:
            gx, gy = 0, 0
            if 0 < i < h - 1 and 0 < j < w - 1:
                for k in ti.static(range(-1, 2)):
                    f = ti.static(2 - abs(k))
                    gx += f * (
                        ti.cast(gray[i + k, j + 1], ti.i32) - ti.cast(gray[i + k, j - 1], ti.i32)
                    )
                    gy += f * (
                        ti.cast(gray[i + 1, j + k], ti.i32) - ti.cast(gray[i - 1, j + k], ti.i32)
                    )
            out[i, j] = ti.cast(ti.min(255, ti.abs(gx) + ti.abs(gy)), ti.u8)

    return step, lambda: out.to_numpy() // 4


@program
def multigrid():
    """A multigrid V-cycle for Poisson's equation: a field per level, red-black smoothing."""
    n, levels = 128, 4
    r = [ti.field(ti.f32, (n >> l, n >> l)) for l in range(levels)]
    z = [ti.field(ti.f32, (n >> l, n >> l)) for l in range(levels)]
    r[0].from_numpy(random(5, n, n) - 0.5)

    @ti.func
    def around(x: ti.template(), i, j):
        m = x.shape[0]
        s = 0.0
        if i > 0:
            s += x[i - 1, j]
        if i < m - 1:
            s += x[i + 1, j]
        if j > 0:
            s += x[i, j - 1]
        if j < m - 1:
            s += x[i, j + 1]
        return s

    @ti.kernel
    def smooth(l: ti.template(), phase: ti.i32):
        for i, j in r[l]:
            if (i + j) & 1 == phase:
                z[l][i, j] = (r[l][i, j] + around(z[l], i, j)) / 4.0

    @ti.kernel
    def restrict(l: ti.template()):
        for i, j in r[l + 1]:
            r[l + 1][i, j] = 0.0
            z[l + 1][i, j] = 0.0
        for i, j in r[l]:
            res = r[l][i, j] - (4.0 * z[l][i, j] - around(z[l], i, j))
            r[l + 1][i // 2, j // 2] += res * 0.5

    @ti.kernel
    def prolongate(l: ti.template()):
        for i, j in z[l]:
            z[l][i, j] += z[l + 1][i // 2, j // 2]

    @ti.kernel
    def clear():
        for i, j in z[0]:
            z[0][i, j] = 0.0

    def step():
        clear()
        for _ in range(2):
            for l in range(levels - 1):
                for _ in range(2):
                    smooth(l, 0)
                    smooth(l, 1)
                restrict(l)
            for _ in range(10):
                smooth(levels - 1, 0)
                smooth(levels - 1, 1)
            for l in reversed(range(levels - 1)):
                prolongate(l)
                for _ in range(2):
                    smooth(l, 1)
                    smooth(l, 0)

    return step, lambda: z[0].to_numpy()


@program
def odd_even():
    """Odd-even transposition sort of keys with values, in one kernel."""
    n = 512
    k0 = field(np.random.default_rng(6).permutation(n).astype(np.int32))
    key, value = ti.field(ti.i32, n), ti.field(ti.i32, n)

    @ti.kernel
    def reset():
        for i in key:
            key[i] = k0[i]
            value[i] = i

    @ti.kernel
    def exchange(odd: ti.i32):
        for t in range((n - odd) // 2):
            i = 2 * t + odd
            if key[i] > key[i + 1]:
                key[i], key[i + 1] = key[i + 1], key[i]
                value[i], value[i + 1] = value[i + 1], value[i]

    def step():
        reset()
        for s in range(n):
            exchange(s % 2)

    return step, lambda: np.append(key.to_numpy(), value.to_numpy())


@program
def hashed_neighbours():
    """Radius search in a hashed grid: counts, prefix sum in one invocation, lists, distances."""
    n, cells, h = 8000, 4096, 0.05
    x = ti.Vector.field(3, ti.f32, n)
    x.from_numpy(random(7, n, 3))
    count, begin, fill = (ti.field(ti.i32, cells) for _ in range(3))
    order = ti.field(ti.i32, n)
    found, mean = ti.field(ti.i32, n), ti.field(ti.f32, n)

    @ti.func
    def slot(c):
        return ((c[0] * 73856093) ^ (c[1] * 19349663) ^ (c[2] * 83492791)) & (cells - 1)

    @ti.func
    def cell(p):
        return ti.floor(p / h, ti.i32)

    @ti.kernel
    def build():
        for c in count:
            count[c] = 0
        for i in x:
            count[slot(cell(x[i]))] += 1
        ti.loop_config(serialize=True)
        for c in range(cells):
            begin[c] = 0 if c == 0 else begin[c - 1] + count[c - 1]
        for c in fill:
            fill[c] = begin[c]
        for i in x:
            order[ti.atomic_add(fill[slot(cell(x[i]))], 1)] = i

    @ti.kernel
    def search():
        for i in x:
            k, s = 0, 0.0
            base = cell(x[i])
            for o in ti.grouped(ti.ndrange((-1, 2), (-1, 2), (-1, 2))):
                c = base + o
                q = slot(c)
                for t in range(begin[q], begin[q] + count[q]):
                    j = order[t]
                    if j != i and all(cell(x[j]) == c):
                        d = (x[i] - x[j]).norm()
                        if d < h:
                            k += 1
                            s += d
            found[i] = k
            mean[i] = s / ti.max(k, 1)

    def step():
        build()
        search()

    return step, lambda: np.append(found.to_numpy(), mean.to_numpy())


@program
def boids():
    n = 600
    Boid = ti.types.struct(pos=vec2, vel=vec2)
    b, nxt = Boid.field(shape=n), Boid.field(shape=n)
    p0, v0 = random(8, n, 2), random(9, n, 2) - 0.5

    @ti.kernel
    def move(dt: ti.f32):
        for i in b:
            centre, away, along, k = vec2(0), vec2(0), vec2(0), 0
            for j in range(n):
                if i != j:
                    d = b[j].pos - b[i].pos
                    dist = d.norm()
                    if dist < 0.1:
                        centre += b[j].pos
                        along += b[j].vel
                        k += 1
                        if dist < 0.03:
                            away -= d / (dist + 1e-4)
            acc = away * 0.5
            if k > 0:
                acc += (centre / k - b[i].pos) * 0.8 + (along / k - b[i].vel) * 0.6
            v = b[i].vel + dt * acc
            speed = v.norm(1e-6)
            v = v / speed * ti.math.clamp(speed, 0.1, 0.6)
            nxt[i] = Boid(pos=(b[i].pos + dt * v) % 1.0, vel=v)
        for i in b:
            b[i] = nxt[i]

    def step():
        b.pos.from_numpy(p0)
        b.vel.from_numpy(v0)
        move(0.02)

    return step, lambda: np.append(b.pos.to_numpy(), b.vel.to_numpy())


@program
def ising():
    """Metropolis sampling of an Ising model on a torus, in checkerboard order, spins in i8."""
    n = 256
    s0 = np.where(random(10, n, n) > 0.5, 1, -1).astype(np.int8)
    spin = ti.field(ti.i8, (n, n))
    magnet = ti.field(ti.i32, ())

    @ti.kernel
    def sweep(colour: ti.i32, t: ti.u32, beta: ti.f32):
        for i, j in spin:
            if (i + j) % 2 == colour:
                s = ti.cast(spin[i, j], ti.i32)
                around = (
                    ti.cast(spin[(i + 1) % n, j], ti.i32)
                    + ti.cast(spin[(i - 1 + n) % n, j], ti.i32)
                    + ti.cast(spin[i, (j + 1) % n], ti.i32)
                    + ti.cast(spin[i, (j - 1 + n) % n], ti.i32)
                )
                cost = 2 * s * around
                draw = unit(ti.cast(i * n + j, ti.u32) + t * ti.u32(n * n))
                if cost <= 0 or draw < ti.exp(-beta * cost):
                    spin[i, j] = ti.cast(-s, ti.i8)

    @ti.kernel
    def measure():
        magnet[None] = 0
        for i, j in spin:
            magnet[None] += ti.cast(spin[i, j], ti.i32)

    def step():
        spin.from_numpy(s0)
        for t in range(5):
            sweep(0, 2 * t, 0.44)
            sweep(1, 2 * t + 1, 0.44)
        measure()

    return step, lambda: np.append(spin.to_numpy().astype(int), magnet[None])


@program
def path_tracer():
    """Path tracing of spheres with four bounces; random numbers from a hash."""
    n, spheres = 96, 6
    centre, radius = ti.Vector.field(3, ti.f32, spheres), ti.field(ti.f32, spheres)
    colour, light = ti.Vector.field(3, ti.f32, spheres), ti.field(ti.f32, spheres)
    centre.from_numpy(
        np.array([[0, -100, 0], [0, 1, 0], [2, 1, 1], [-2, 1, 1], [0, 6, 0], [1, 0.5, -2]], "f4")
    )
    radius.from_numpy(np.array([100, 1, 1, 1, 2, 0.5], "f4"))
    colour.from_numpy(random(11, spheres, 3))
    light.from_numpy(np.array([0, 0, 0, 0, 4, 0], "f4"))
    film = ti.Vector.field(3, ti.f32, (n, n))

    @ti.func
    def hit(o, d):
        t, k = 1e9, -1
        for s in range(spheres):
            oc = o - centre[s]
            b = oc.dot(d)
            q = b * b - oc.norm_sqr() + radius[s] * radius[s]
            if q > 0:
                near = -b - ti.sqrt(q)
                if near > 1e-2 and near < t:
                    t, k = near, s
        return t, k

    @ti.kernel
    def render():
        for i, j in film:
            seed = ti.cast(i * n + j, ti.u32) * ti.u32(16)
            o = vec3(0, 2, -8)
            d = vec3((i + 0.5) / n - 0.5, (j + 0.5) / n - 0.5, 1.0).normalized()
            through, total = vec3(1.0), vec3(0.0)
            for bounce in range(4):
                t, k = hit(o, d)
                if k == -1:
                    total += through * 0.3
                    break
                total += through * light[k]
                through *= colour[k]
                p = o + t * d
                normal = (p - centre[k]).normalized()
                z = 2.0 * unit(seed + ti.cast(2 * bounce, ti.u32)) - 1.0
                phi = 6.2831853 * unit(seed + ti.cast(2 * bounce + 1, ti.u32))
                side = ti.sqrt(ti.max(0.0, 1.0 - z * z))
                d = (normal + 0.99 * vec3(side * ti.cos(phi), side * ti.sin(phi), z)).normalized()
                o = p
            film[i, j] = total

    return render, lambda: film.to_numpy().mean((0, 1))


@program
def marching_squares():
    """Contour segments, appended by an atomic counter."""
    n = 256
    f, count = ti.field(ti.f32, (n, n)), ti.field(ti.i32, ())
    ends = ti.Matrix.field(2, 2, ti.f32, 4 * n * n // 8)

    @ti.func
    def cut(a, b, va, vb):
        return a + (b - a) * (0.0 - va) / (vb - va)

    @ti.kernel
    def fill():
        for i, j in f:
            x, y = i / n * 12.0, j / n * 12.0
            f[i, j] = ti.sin(x) * ti.cos(y) + 0.3 * ti.sin(3.0 * x + y)

    @ti.kernel
    def march():
        count[None] = 0
        for i, j in ti.ndrange(n - 1, n - 1):
            p = [vec2(i, j), vec2(i + 1, j), vec2(i + 1, j + 1), vec2(i, j + 1)]
            v = [f[i, j], f[i + 1, j], f[i + 1, j + 1], f[i, j + 1]]
            first, have = vec2(0), 0
            for e in ti.static(range(4)):
                if (v[e] > 0) != (v[(e + 1) % 4] > 0):
                    q = cut(p[e], p[(e + 1) % 4], v[e], v[(e + 1) % 4])
                    if have == 0:
                        first, have = q, 1
                    else:
                        k = ti.atomic_add(count[None], 1)
                        ends[k] = ti.Matrix.rows([first, q])
                        have = 0

    def step():
        fill()
        march()

    def lengths():
        e = ends.to_numpy()[: count[None]].astype(float)
        d = np.sqrt(((e[:, 0] - e[:, 1]) ** 2).sum(-1))
        return [count[None], d.sum(), e.sum()]

    return step, lengths


@program
def lstm():
    """Sixteen steps of an LSTM cell over a batch: gates by inner products, then states."""
    B, H, I, T = 16, 48, 32, 16
    x = field(random(12, T, B, I) - 0.5)
    w, u = field((random(13, 4, H, I) - 0.5) * 0.5), field((random(14, 4, H, H) - 0.5) * 0.5)
    bias = field(random(15, 4, H) * 0.1)
    h, c = ti.field(ti.f32, (T + 1, B, H)), ti.field(ti.f32, (T + 1, B, H))
    gate = ti.field(ti.f32, (4, B, H))

    @ti.func
    def sigmoid(v):
        return 1.0 / (1.0 + ti.exp(-v))

    @ti.kernel
    def gates(t: ti.i32):
        for g, b, k in gate:
            s = bias[g, k]
            for q in range(I):
                s += w[g, k, q] * x[t, b, q]
            for q in range(H):
                s += u[g, k, q] * h[t, b, q]
            gate[g, b, k] = s

    @ti.kernel
    def states(t: ti.i32):
        for b, k in ti.ndrange(B, H):
            new = sigmoid(gate[1, b, k]) * c[t, b, k]
            new += sigmoid(gate[0, b, k]) * ti.tanh(gate[2, b, k])
            c[t + 1, b, k] = new
            h[t + 1, b, k] = sigmoid(gate[3, b, k]) * ti.tanh(new)

    def step():
        for t in range(T):
            gates(t)
            states(t)

    return step, lambda: h.to_numpy()


@program
def sweeping():
    """Distances by fast sweeping: rows in sequence, one invocation per line."""
    n = 128
    wall = field((random(16, n, n) > 0.97).astype(np.int32))
    phi = ti.field(ti.f32, (n, n))

    @ti.kernel
    def begin():
        for i, j in phi:
            phi[i, j] = 0.0 if wall[i, j] == 1 else 1e3

    @ti.kernel
    def sweep(di: ti.template(), dj: ti.template()):
        ti.loop_config(serialize=True)
        for a in range(n):
            i = a if ti.static(di > 0) else n - 1 - a
            for b in range(n):
                j = b if ti.static(dj > 0) else n - 1 - b
                x = ti.min(phi[ti.max(i - 1, 0), j], phi[ti.min(i + 1, n - 1), j])
                y = ti.min(phi[i, ti.max(j - 1, 0)], phi[i, ti.min(j + 1, n - 1)])
                d = ti.min(x, y) + 1.0
                if ti.abs(x - y) < 1.0:
                    d = (x + y + ti.sqrt(2.0 - (x - y) ** 2)) / 2
                phi[i, j] = ti.min(phi[i, j], d)

    def step():
        begin()
        for di in (1, -1):
            for dj in (1, -1):
                sweep(di, dj)

    return step, lambda: phi.to_numpy()


@program
def box_means():
    """Averages of an image at half and quarter size, and back: sums at `i // 2`."""
    n = 512
    full, half, back = (
        field(random(17, n, n)),
        ti.field(ti.f32, (n // 2, n // 2)),
        ti.field(ti.f32, (n, n)),
    )
    rows = ti.field(ti.f32, n // 4)

    @ti.kernel
    def step():
        for i, j in half:
            half[i, j] = 0.0
        for i, j in full:
            half[i // 2, j // 2] += 0.25 * full[i, j]
        for i in rows:
            rows[i] = 0.0
        for i, j in full:
            rows[i // 4] += full[i, j]
        for i, j in back:
            back[i, j] = half[i // 2, j // 2] + rows[i // 4] / n

    return step, lambda: back.to_numpy()


main()
