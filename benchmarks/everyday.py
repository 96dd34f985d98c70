#!/usr/bin/env python3
"""Programs in the style of users, timed on one target: everyday.py TARGET ARCH [NAME...].

A companion of `programs.py`; `harness.py` defines the measurements and the output. These programs
were written after the passes, so gains here show that a pass is general.
"""

import numpy as np
from harness import field, main, program, random, ti

# --- images --------------------------------------------------------------------------------------


@program
def sobel():
    h, w = 600, 800
    image, edges = field(random(1, h, w)), ti.field(ti.f32, (h, w))

    @ti.kernel
    def step():
        for i, j in image:
            if 0 < i < h - 1 and 0 < j < w - 1:
                gx = (image[i - 1, j + 1] + 2 * image[i, j + 1] + image[i + 1, j + 1]) - (
                    image[i - 1, j - 1] + 2 * image[i, j - 1] + image[i + 1, j - 1]
                )
                gy = (image[i + 1, j - 1] + 2 * image[i + 1, j] + image[i + 1, j + 1]) - (
                    image[i - 1, j - 1] + 2 * image[i - 1, j] + image[i - 1, j + 1]
                )
                edges[i, j] = ti.sqrt(gx * gx + gy * gy)

    return step, lambda: edges.to_numpy()


@program
def gaussian():
    h, w, radius = 512, 512, 4
    image, half, out = (
        field(random(1, h, w)),
        ti.field(ti.f32, (h, w)),
        ti.field(ti.f32, (h, w)),
    )
    weights = ti.field(ti.f32, 2 * radius + 1)
    x = np.exp(-0.5 * (np.arange(-radius, radius + 1) / 2.0) ** 2)
    weights.from_numpy((x / x.sum()).astype(np.float32))

    @ti.kernel
    def rows():
        for i, j in image:
            s = 0.0
            for k in range(-radius, radius + 1):
                s += weights[k + radius] * image[i, ti.min(ti.max(j + k, 0), w - 1)]
            half[i, j] = s

    @ti.kernel
    def columns():
        for i, j in image:
            s = 0.0
            for k in range(-radius, radius + 1):
                s += weights[k + radius] * half[ti.min(ti.max(i + k, 0), h - 1), j]
            out[i, j] = s

    def step():
        rows()
        columns()

    return step, lambda: out.to_numpy()


@program
def median3():
    n = 400
    image, out = field(random(2, n, n)), ti.field(ti.f32, (n, n))

    @ti.kernel
    def step():
        for i, j in ti.ndrange((1, n - 1), (1, n - 1)):
            v = ti.Vector([0.0] * 9)
            for a, b in ti.static(ti.ndrange(3, 3)):
                v[3 * a + b] = image[i + a - 1, j + b - 1]
            for a in ti.static(range(5)):
                for b in ti.static(range(a + 1, 9)):
                    low, high = ti.min(v[a], v[b]), ti.max(v[a], v[b])
                    v[a] = low
                    v[b] = high
            out[i, j] = v[4]

    return step, lambda: out.to_numpy()


@program
def gray():
    n = 700
    pixels = (random(3, n, n, 3) * 255).astype(np.uint8)
    image, out = ti.Vector.field(3, ti.u8, (n, n)), ti.field(ti.u8, (n, n))
    image.from_numpy(pixels)

    @ti.kernel
    def step():
        for i, j in image:
            c = ti.cast(image[i, j], ti.f32)
            out[i, j] = ti.cast(0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2], ti.u8)

    return step, lambda: out.to_numpy() // 8  # rounding may differ


@program
def image_histogram():
    h, w = 1000, 1000
    image = field((random(4, h, w) ** 2 * 255).astype(np.uint8))
    counts = ti.field(ti.i32, 256)

    @ti.kernel
    def step():
        for k in counts:
            counts[k] = 0
        for i, j in image:
            counts[ti.cast(image[i, j], ti.i32)] += 1

    return step, lambda: counts.to_numpy()


@program
def ray_march():
    n = 256
    picture = ti.Vector.field(3, ti.f32, (n, n))

    @ti.func
    def distance(p):
        ball = (p - ti.Vector([0.0, 0.1, 0.0])).norm() - 0.5
        torus = ti.Vector([ti.Vector([p[0], p[2]]).norm() - 0.8, p[1] + 0.2]).norm() - 0.15
        return ti.min(ti.min(ball, torus), p[1] + 0.5)

    @ti.func
    def normal(p):
        e, d = 1e-3, distance(p)
        g = ti.Vector([0.0, 0.0, 0.0])
        for k in ti.static(range(3)):
            q = p
            q[k] += e
            g[k] = distance(q) - d
        return g.normalized()

    @ti.kernel
    def step(t: ti.f32):
        light = ti.Vector([0.6, 0.7, -0.4]).normalized()
        for i, j in picture:
            origin = ti.Vector([ti.sin(t), 0.6, -2.0])
            ray = ti.Vector([2.0 * i / n - 1.0, 2.0 * j / n - 1.0, 1.5]).normalized()
            far, hit = 0.0, 0
            for _ in range(64):
                if hit == 0 and far < 8.0:
                    d = distance(origin + far * ray)
                    if d < 1e-3:
                        hit = 1
                    far += d
            color = ti.Vector([0.2, 0.3, 0.5])
            if hit:
                p = origin + far * ray
                color = ti.Vector([0.9, 0.8, 0.6]) * ti.max(normal(p).dot(light), 0.05)
            picture[i, j] = color

    return lambda: step(0.2), lambda: [picture.to_numpy().mean()]


# --- fluids and grids ----------------------------------------------------------------------------


@program
def lbm():
    nx, ny = 320, 160
    f, g = ti.Vector.field(9, ti.f32, (nx, ny)), ti.Vector.field(9, ti.f32, (nx, ny))
    velocity = ti.Vector.field(2, ti.f32, (nx, ny))
    w = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, np.float32)
    e = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
    f.from_numpy((w * (1 + 0.1 * random(5, nx, ny, 1))).astype(np.float32))

    @ti.kernel
    def collide():
        for i, j in ti.ndrange((1, nx - 1), (1, ny - 1)):
            rho = 0.0
            u = ti.Vector([0.0, 0.0])
            for k in ti.static(range(9)):
                h = f[i - e[k][0], j - e[k][1]][k]
                g[i, j][k] = h
                rho += h
                u += ti.Vector(e[k]) * h
            u /= rho
            velocity[i, j] = u
            for k in ti.static(range(9)):
                eu = ti.Vector(e[k]).dot(u)
                equal = float(w[k]) * rho * (1 + 3 * eu + 4.5 * eu * eu - 1.5 * u.dot(u))
                g[i, j][k] += (equal - g[i, j][k]) / 0.6

    @ti.kernel
    def copy():
        for i, j in ti.ndrange((1, nx - 1), (1, ny - 1)):
            f[i, j] = g[i, j]

    def step():
        collide()
        copy()

    return step, lambda: velocity.to_numpy()


@program
def advect():
    n, dt = 400, 0.8
    q, new = field(random(6, n, n)), ti.field(ti.f32, (n, n))
    v = ti.Vector.field(2, ti.f32, (n, n))
    v.from_numpy(6 * random(7, n, n, 2) - 3)

    @ti.func
    def sample(f, i: ti.i32, j: ti.i32):
        return f[ti.max(0, ti.min(n - 1, i)), ti.max(0, ti.min(n - 1, j))]

    @ti.func
    def bilerp(f, p):
        i, j = int(ti.floor(p[0])), int(ti.floor(p[1]))
        a, b = p[0] - i, p[1] - j
        top = sample(f, i, j) * (1 - b) + sample(f, i, j + 1) * b
        low = sample(f, i + 1, j) * (1 - b) + sample(f, i + 1, j + 1) * b
        return top * (1 - a) + low * a

    @ti.kernel
    def step():
        for i, j in new:
            p = ti.Vector([i, j]) - dt * v[i, j]
            new[i, j] = bilerp(q, p)

    return step, lambda: new.to_numpy()


@program
def jacobi_3d():
    n = 96
    a, b, rhs = (
        field(random(8, n, n, n)),
        ti.field(ti.f32, (n, n, n)),
        field(random(9, n, n, n)),
    )

    @ti.kernel
    def step():
        for i, j, k in ti.ndrange((1, n - 1), (1, n - 1), (1, n - 1)):
            around = a[i - 1, j, k] + a[i + 1, j, k] + a[i, j - 1, k]
            around += a[i, j + 1, k] + a[i, j, k - 1] + a[i, j, k + 1]
            b[i, j, k] = (around + rhs[i, j, k]) / 6

    return step, lambda: b.to_numpy()


@program
def life():
    n = 600
    a, b = field((random(10, n, n) < 0.3).astype(np.int32)), ti.field(ti.i32, (n, n))

    @ti.func
    def neighbours(f, i, j):
        found = 0
        for di, dj in ti.static(ti.ndrange((-1, 2), (-1, 2))):
            if di != 0 or dj != 0:
                found += f[(i + di) % n, (j + dj) % n]
        return found

    @ti.kernel
    def step():
        for i, j in a:
            count = neighbours(a, i, j)
            b[i, j] = 1 if count == 3 or (count == 2 and a[i, j] == 1) else 0

    return step, lambda: b.to_numpy()


@program
def heat_implicit():
    """One conjugate-gradient iteration for a five-point matrix."""
    n = 512
    x, r, p, ap = (ti.field(ti.f32, (n, n)) for _ in range(4))
    b = field(random(11, n, n))
    rr, alpha, beta = (ti.field(ti.f32, ()) for _ in range(3))

    @ti.kernel
    def start():
        rr[None] = 0.0
        for i, j in x:
            x[i, j] = 0.0
            r[i, j] = b[i, j]
            p[i, j] = b[i, j]
            rr[None] += b[i, j] * b[i, j]

    @ti.kernel
    def multiply():
        for i, j in p:
            s = 4.1 * p[i, j]
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
    def find_alpha():
        pap = 0.0
        for i, j in p:
            pap += p[i, j] * ap[i, j]
        alpha[None] = rr[None] / pap

    @ti.kernel
    def update():
        found = 0.0
        for i, j in x:
            x[i, j] += alpha[None] * p[i, j]
            r[i, j] -= alpha[None] * ap[i, j]
            found += r[i, j] * r[i, j]
        beta[None] = found / rr[None]
        rr[None] = found

    @ti.kernel
    def turn():
        for i, j in p:
            p[i, j] = r[i, j] + beta[None] * p[i, j]

    def step():
        start()
        for _ in range(3):
            multiply()
            find_alpha()
            update()
            turn()

    return step, lambda: x.to_numpy()


# --- particles -----------------------------------------------------------------------------------


@program
def structs():
    n, dt = 200_000, 1e-3
    particle = ti.types.struct(
        pos=ti.types.vector(3, ti.f32),
        vel=ti.types.vector(3, ti.f32),
        mass=ti.f32,
        life=ti.f32,
    )
    particles = particle.field(shape=n)
    particles.pos.from_numpy(random(12, n, 3))
    particles.vel.from_numpy(random(13, n, 3) - 0.5)
    particles.mass.fill(2.0)
    particles.life.fill(100.0)

    @ti.kernel
    def step():
        for i in particles:
            force = ti.Vector([0.0, -9.8, 0.0]) * particles[i].mass - 0.1 * particles[i].vel
            particles[i].vel += dt * force / particles[i].mass
            particles[i].pos += dt * particles[i].vel
            for k in ti.static(range(3)):
                if particles[i].pos[k] < 0 or particles[i].pos[k] > 1:
                    particles[i].vel[k] *= -0.5
            particles[i].life -= dt

    return step, lambda: particles.pos.to_numpy()


@program
def spheres():
    """A dataclass with methods; whole structs are read and written."""
    n = 100_000

    @ti.dataclass
    class Sphere:
        center: ti.types.vector(3, ti.f32)
        radius: ti.f32
        hue: ti.i32

        @ti.func
        def volume(self):
            return 4.18879 * self.radius**3

    balls, total = Sphere.field(shape=n), ti.field(ti.f32, ())
    balls.center.from_numpy(random(14, n, 3))
    balls.radius.from_numpy(random(15, n) + 0.5)

    @ti.kernel
    def step():
        total[None] = 0.0
        for i in balls:
            s = balls[i]
            s.center = 0.99 * s.center + 0.01
            s.hue = (s.hue + 1) % 360
            balls[i] = s
            total[None] += s.volume()

    return step, lambda: [total[None]]


@program
def cloth():
    n, dt = 128, 4e-4
    x, v = ti.Vector.field(3, ti.f32, (n, n)), ti.Vector.field(3, ti.f32, (n, n))
    rest = 1.0 / n
    grid = np.stack(np.meshgrid(np.arange(n), np.arange(n), indexing="ij"), -1) * rest
    start = np.concatenate([grid[..., :1], np.full((n, n, 1), 0.6), grid[..., 1:]], -1)
    links = [(i, j) for i in range(-1, 2) for j in range(-1, 2) if (i, j) != (0, 0)]

    @ti.kernel
    def pull():
        for i in ti.grouped(x):
            force = ti.Vector([0.0, -9.8, 0.0])
            for link in ti.static(links):
                j = i + ti.Vector(link)
                if 0 <= j[0] < n and 0 <= j[1] < n:
                    d = x[i] - x[j]
                    length = d.norm()
                    original = rest * float(ti.Vector(link).norm())
                    force += -3e4 * d / length * (length / original - 1)
                    relative = (v[i] - v[j]).dot(d / length)
                    force += -1e4 * relative * d / length * rest
            v[i] += force * dt

    @ti.kernel
    def move():
        for i in ti.grouped(x):
            v[i] *= ti.exp(-1.0 * dt)
            d = x[i] - ti.Vector([0.5, 0.2, 0.5])
            if d.norm() <= 0.3:
                v[i] -= ti.min(v[i].dot(d.normalized()), 0) * d.normalized()
            x[i] += dt * v[i]

    def step():
        x.from_numpy(start.astype(np.float32)) if step.calls == 0 else None
        step.calls += 1
        pull()
        move()

    step.calls = 0
    return step, lambda: [x.to_numpy().mean()]


@program
def sph():
    """SPH densities with a cell grid: count, prefix sum, sort, visit neighbouring cells."""
    n, cells, h = 20_000, 32, 1.0 / 32
    x, density = ti.Vector.field(3, ti.f32, n), ti.field(ti.f32, n)
    x.from_numpy(random(16, n, 3))
    count = ti.field(ti.i32, cells**3)
    begin, cursor = ti.field(ti.i32, cells**3 + 1), ti.field(ti.i32, cells**3)
    order = ti.field(ti.i32, n)

    @ti.func
    def cell_of(p):
        return ti.min(ti.max(int(p / h), 0), cells - 1)

    @ti.func
    def number_of(c):
        return (c[0] * cells + c[1]) * cells + c[2]

    @ti.kernel
    def build():
        for c in count:
            count[c] = 0
        for i in x:
            count[number_of(cell_of(x[i]))] += 1
        ti.loop_config(serialize=True)
        for c in range(cells**3):
            begin[c + 1] = begin[c] + count[c]
        for c in cursor:
            cursor[c] = begin[c]
        for i in x:
            slot = ti.atomic_add(cursor[number_of(cell_of(x[i]))], 1)
            order[slot] = i

    @ti.kernel
    def densities():
        for i in x:
            p, own = x[i], cell_of(x[i])
            s = 0.0
            for offset in ti.grouped(ti.ndrange((-1, 2), (-1, 2), (-1, 2))):
                c = own + offset
                if (c >= 0).all() and (c < cells).all():
                    number = number_of(c)
                    for k in range(begin[number], begin[number + 1]):
                        r2 = (p - x[order[k]]).norm_sqr()
                        if r2 < h * h:
                            s += (h * h - r2) ** 3
            density[i] = s

    def step():
        build()
        densities()

    return step, lambda: density.to_numpy() * 1e9


@program
def random_walks():
    n, steps = 50_000, 32
    x = ti.Vector.field(2, ti.f32, n)

    @ti.kernel
    def step():
        for i in x:
            p = ti.Vector([0.0, 0.0])
            for _ in range(steps):
                a = 6.2831853 * ti.random()
                p += ti.Vector([ti.cos(a), ti.sin(a)])
            x[i] = p

    return step, lambda: [round(float((x.to_numpy() ** 2).sum(-1).mean()) / steps)]


@program
def monte_carlo_pi():
    n = 1_000_000
    inside = ti.field(ti.i32, ())

    @ti.kernel
    def step():
        inside[None] = 0
        for _ in range(n):
            x, y = ti.random(), ti.random()
            if x * x + y * y < 1:
                inside[None] += 1

    return step, lambda: [round(4 * inside[None] / n, 1)]


# --- linear algebra ------------------------------------------------------------------------------


@program
def matvec3():
    n = 200_000
    m, x, y = (
        ti.Matrix.field(3, 3, ti.f32, n),
        ti.Vector.field(3, ti.f32, n),
        ti.Vector.field(3, ti.f32, n),
    )
    m.from_numpy(random(17, n, 3, 3))
    x.from_numpy(random(18, n, 3))

    @ti.kernel
    def step():
        for i in x:
            y[i] = m[i] @ x[i]

    return step, lambda: y.to_numpy()


@program
def inverse3():
    n = 60_000
    m, out = ti.Matrix.field(3, 3, ti.f32, n), ti.Matrix.field(3, 3, ti.f32, n)
    m.from_numpy(random(19, n, 3, 3) + 2 * np.eye(3, dtype=np.float32))

    @ti.kernel
    def step():
        for i in m:
            a = m[i]
            out[i] = a.inverse() @ a.transpose() * a.determinant()

    return step, lambda: out.to_numpy()


@program
def csr():
    n, per_row = 40_000, 12
    rng = np.random.default_rng(20)
    rows = ti.ndarray(ti.i32, n + 1)
    columns, values = ti.ndarray(ti.i32, n * per_row), ti.ndarray(ti.f32, n * per_row)
    x, y = ti.ndarray(ti.f32, n), ti.ndarray(ti.f32, n)
    rows.from_numpy(np.arange(n + 1, dtype=np.int32) * per_row)
    columns.from_numpy(rng.integers(0, n, n * per_row, dtype=np.int32))
    values.from_numpy(random(21, n * per_row))
    x.from_numpy(random(22, n))

    @ti.kernel
    def multiply(
        rows: ti.types.ndarray(dtype=ti.i32, ndim=1),
        columns: ti.types.ndarray(dtype=ti.i32, ndim=1),
        values: ti.types.ndarray(dtype=ti.f32, ndim=1),
        x: ti.types.ndarray(dtype=ti.f32, ndim=1),
        y: ti.types.ndarray(dtype=ti.f32, ndim=1),
    ):
        for i in range(n):
            s = 0.0
            for k in range(rows[i], rows[i + 1]):
                s += values[k] * x[columns[k]]
            y[i] = s

    return lambda: multiply(rows, columns, values, x, y), lambda: y.to_numpy()


@program
def gram():
    """Gram matrix of a tall matrix."""
    n, m = 4000, 24
    a, g = field(random(23, n, m)), ti.field(ti.f32, (m, m))

    @ti.kernel
    def step():
        for i, j in g:
            s = 0.0
            for k in range(n):
                s += a[k, i] * a[k, j]
            g[i, j] = s

    return step, lambda: g.to_numpy()


@program
def cholesky():
    """A small dense factorization in one invocation."""
    n = 64
    a = random(24, n, n)
    source, low = field(a @ a.T + n * np.eye(n, dtype=np.float32)), ti.field(ti.f32, (n, n))

    @ti.kernel
    def step():
        ti.loop_config(serialize=True)
        for j in range(n):
            s = source[j, j]
            for k in range(j):
                s -= low[j, k] * low[j, k]
            low[j, j] = ti.sqrt(s)
            for i in range(j + 1, n):
                t = source[i, j]
                for k in range(j):
                    t -= low[i, k] * low[j, k]
                low[i, j] = t / low[j, j]

    return step, lambda: low.to_numpy()


# --- data ----------------------------------------------------------------------------------------


@program
def prefix_serial():
    n = 100_000
    x, y = field(np.arange(n, dtype=np.int32) % 7), ti.field(ti.i32, n)

    @ti.kernel
    def step():
        s = 0
        ti.loop_config(serialize=True)
        for i in range(n):
            s += x[i]
            y[i] = s

    return step, lambda: y.to_numpy()


@program
def prefix_parallel():
    n = 1 << 17
    x = field(np.arange(n, dtype=np.int32) % 7)
    a, b = ti.field(ti.i32, n), ti.field(ti.i32, n)

    @ti.kernel
    def copy():
        for i in x:
            a[i] = x[i]

    @ti.kernel
    def add(source: ti.template(), goal: ti.template(), by: ti.i32):
        for i in source:
            goal[i] = source[i] + (source[i - by] if i >= by else 0)

    def step():
        copy()
        source, goal, by = a, b, 1
        while by < n:
            add(source, goal, by)
            source, goal, by = goal, source, 2 * by
        step.found = source

    return step, lambda: step.found.to_numpy()


@program
def arg_min():
    n = 500_000
    x, best, at = field(random(25, n)), ti.field(ti.f32, ()), ti.field(ti.i32, ())

    @ti.kernel
    def step():
        best[None] = 1e30
        at[None] = n
        for i in x:
            ti.atomic_min(best[None], (x[i] - 0.3) ** 2)
        for i in x:
            if (x[i] - 0.3) ** 2 == best[None]:
                ti.atomic_min(at[None], i)

    return step, lambda: [at[None]]


@program
def bitonic():
    n = 1 << 15
    start = np.random.default_rng(26).permutation(n).astype(np.int32)
    source, x = field(start), ti.field(ti.i32, n)

    @ti.kernel
    def copy():
        for i in x:
            x[i] = source[i]

    @ti.kernel
    def exchange(k: ti.i32, j: ti.i32):
        for i in range(n):
            other = i ^ j
            if other > i:
                a, b = x[i], x[other]
                if (a > b) == ((i & k) == 0):
                    x[i] = b
                    x[other] = a

    def step():
        copy()
        k = 2
        while k <= n:
            j = k // 2
            while j > 0:
                exchange(k, j)
                j //= 2
            k *= 2

    return step, lambda: x.to_numpy()


@program
def kmeans():
    n, m = 50_000, 16
    x, label = ti.Vector.field(2, ti.f32, n), ti.field(ti.i32, n)
    centers, sums, counts = (
        ti.Vector.field(2, ti.f32, m),
        ti.Vector.field(2, ti.f32, m),
        ti.field(ti.i32, m),
    )
    x.from_numpy(random(27, n, 2))
    first = random(28, m, 2)

    @ti.kernel
    def assign():
        for i in x:
            best, at = 1e9, 0
            for c in range(m):
                d = (x[i] - centers[c]).norm_sqr()
                if d < best:
                    best = d
                    at = c
            label[i] = at

    @ti.kernel
    def recentre():
        for c in centers:
            sums[c] = [0.0, 0.0]
            counts[c] = 0
        for i in x:
            sums[label[i]] += x[i]
            counts[label[i]] += 1
        for c in centers:
            if counts[c] > 0:
                centers[c] = sums[c] / counts[c]

    def step():
        centers.from_numpy(first)
        for _ in range(2):
            assign()
            recentre()

    return step, lambda: [float(centers.to_numpy().sum())]


@program
def text():
    """Bytes of a text: upper case, word count, and a checksum for each line of 64."""
    n = 1 << 20
    letters = np.frombuffer(b"the quick brown fox jumps over a lazy dog, ", np.uint8)
    source, upper = field(np.resize(letters, n).copy()), ti.field(ti.u8, n)
    words, sums = ti.field(ti.i32, ()), ti.field(ti.u32, n // 64)

    @ti.kernel
    def step():
        words[None] = 0
        for i in source:
            c = source[i]
            if c >= 97 and c <= 122:
                c = ti.cast(c - 32, ti.u8)
            upper[i] = c
            if i > 0 and source[i] != 32 and source[i - 1] == 32:
                words[None] += 1
        for line in sums:
            s = ti.cast(5381, ti.u32)
            for k in range(64):
                s = s * 33 + ti.cast(upper[64 * line + k], ti.u32)
            sums[line] = s

    return step, lambda: [words[None], *sums.to_numpy()[:8].astype(np.float64)]


@program
def collatz():
    n = 20_000
    steps = ti.field(ti.i32, n)

    @ti.kernel
    def step():
        for i in steps:
            v, count = i + 1, 0
            while v != 1:
                if v % 2 == 0:
                    v //= 2
                else:
                    v = 3 * v + 1
                count += 1
            steps[i] = count

    return step, lambda: steps.to_numpy()


@program
def moving_average():
    n, m, window = 400, 600, 16
    x, y = ti.ndarray(ti.f32, (n, m)), ti.ndarray(ti.f32, (n, m))
    x.from_numpy(random(29, n, m))

    @ti.kernel
    def average(
        x: ti.types.ndarray(dtype=ti.f32, ndim=2), y: ti.types.ndarray(dtype=ti.f32, ndim=2)
    ):
        for i in range(x.shape[0]):
            s = 0.0
            for j in range(x.shape[1]):
                s += x[i, j]
                if j >= window:
                    s -= x[i, j - window]
                y[i, j] = s / window

    return lambda: average(x, y), lambda: y.to_numpy()


# --- run -----------------------------------------------------------------------------------------


main()
