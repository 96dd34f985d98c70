#!/usr/bin/env python3
"""Programs written without knowledge of the passes: fresh.py TARGET ARCH [NAME...].

Two programs from each of five subjects: stencils, linear algebra, images, particles, graphs.
`fresh_more.py` has five more subjects. Like `everyday.py`, but written from public descriptions of
the algorithms and Taichi's documentation only.
"""

import math

import numpy as np
from harness import field, main, nd, program, random, ti, vectors

vec2, vec3, ivec2 = ti.math.vec2, ti.math.vec3, ti.math.ivec2


# Stencils


@program
def heat3d():
    """Eight steps of the 7-point heat equation, between two ndarrays."""
    n = 80
    u, v = nd(random(1, n, n, n)), ti.ndarray(ti.f32, (n, n, n))

    @ti.kernel
    def diffuse(
        old: ti.types.ndarray(dtype=ti.f32, ndim=3),
        new: ti.types.ndarray(dtype=ti.f32, ndim=3),
        rate: ti.f32,
    ):
        for i, j, k in old:
            here = old[i, j, k]
            if 0 < i < n - 1 and 0 < j < n - 1 and 0 < k < n - 1:
                around = old[i - 1, j, k] + old[i + 1, j, k]
                around += old[i, j - 1, k] + old[i, j + 1, k]
                around += old[i, j, k - 1] + old[i, j, k + 1]
                new[i, j, k] = here + rate * (around - 6.0 * here)
            else:
                new[i, j, k] = here

    def step():
        for _ in range(4):
            diffuse(u, v, 0.12)
            diffuse(v, u, 0.12)

    return step, lambda: u.to_numpy()


@program
def red_black():
    """Six sweeps of red-black successive over-relaxation for Poisson's equation."""
    n = 512
    h2 = 1.0 / n**2
    u = ti.field(ti.f32, (n + 1, n + 1))
    f = field(100.0 * (random(2, n + 1, n + 1) - 0.4))
    residual = ti.field(ti.f32, ())

    @ti.func
    def neighbors(i, j):
        return u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]

    @ti.kernel
    def relax(parity: ti.template(), omega: ti.f32):
        for i, j in ti.ndrange((1, n), (1, n)):
            if (i + j) % 2 == parity:
                u[i, j] += omega * (0.25 * (neighbors(i, j) + h2 * f[i, j]) - u[i, j])

    @ti.kernel
    def measure():
        residual[None] = 0.0
        for i, j in ti.ndrange((1, n), (1, n)):
            r = f[i, j] + (neighbors(i, j) - 4.0 * u[i, j]) / h2
            residual[None] += r * r / n**2

    def step():
        for _ in range(6):
            relax(0, 1.7)
            relax(1, 1.7)
        measure()

    return step, lambda: np.append(u.to_numpy(), residual[None] ** 0.5)


# Linear algebra


@program
def cholesky():
    """Right-looking Cholesky factorization of a dense matrix, and the solution of a system."""
    n = 192
    root = random(3, n, n) - 0.5
    given = field(root @ root.T + np.eye(n, dtype=np.float32))
    a, lower = ti.field(ti.f32, (n, n)), ti.field(ti.f32, (n, n))
    b, x = field(random(4, n)), ti.field(ti.f32, n)

    @ti.kernel
    def scale_column(k: ti.i32):
        for i in range(k, n):
            lower[i, k] = a[i, k] / ti.sqrt(a[k, k])

    @ti.kernel
    def update(k: ti.i32):
        for i, j in ti.ndrange((k + 1, n), (k + 1, n)):
            if j <= i:
                a[i, j] -= lower[i, k] * lower[j, k]

    @ti.kernel
    def solve():
        ti.loop_config(serialize=True)
        for i in range(n):
            rest = b[i]
            for j in range(i):
                rest -= lower[i, j] * x[j]
            x[i] = rest / lower[i, i]
        ti.loop_config(serialize=True)
        for back in range(n):
            i = n - 1 - back
            rest = x[i]
            for j in range(i + 1, n):
                rest -= lower[j, i] * x[j]
            x[i] = rest / lower[i, i]

    def step():
        a.copy_from(given)
        for k in range(n):
            scale_column(k)
            update(k)
        solve()

    return step, lambda: np.append(lower.to_numpy(), x.to_numpy())


@ti.data_oriented
class SparseRows:
    """A sparse matrix in CSR format."""

    def __init__(self, starts, columns, values):
        self.starts, self.columns, self.values = field(starts), field(columns), field(values)

    @ti.kernel
    def multiply(self, x: ti.template(), y: ti.template()):
        for row in y:
            total = 0.0
            for k in range(self.starts[row], self.starts[row + 1]):
                total += self.values[k] * x[self.columns[k]]
            y[row] = total

    @ti.kernel
    def normalize(self, y: ti.template(), x: ti.template()) -> ti.f32:
        squares = 0.0
        for i in y:
            squares += y[i] * y[i]
        norm = ti.sqrt(squares)
        for i in x:
            x[i] = y[i] / norm
        return norm


@program
def power_iteration():
    """Dominant eigenvector of a random sparse matrix by ten power iterations."""
    n = 20000
    rng = np.random.default_rng(5)
    starts = np.append(0, np.cumsum(rng.integers(4, 20, n))).astype(np.int32)
    columns = rng.integers(0, n, starts[-1]).astype(np.int32)
    matrix = SparseRows(starts, columns, random(6, starts[-1]))
    x, y = field(random(7, n)), ti.field(ti.f32, n)
    values = []

    def step():
        for _ in range(10):
            matrix.multiply(x, y)
            values.append(matrix.normalize(y, x))

    return step, lambda: np.append(x.to_numpy(), values[-1])


# Images


@program
def bilateral():
    """Bilateral filter of a color image with a window of 7 by 7 pixels."""
    height, width, radius = 240, 320, 3
    ramp = np.linspace(0, 3, width)[None, :, None] + np.linspace(0, 2, height)[:, None, None]
    smooth = (np.floor(ramp + np.array([0.0, 0.3, 0.6])) % 2).astype(np.float32)
    source = vectors(0.7 * smooth + 0.3 * random(8, height, width, 3))
    result = ti.Vector.field(3, ti.f32, (height, width))
    spatial, tonal = 2.0, 0.25

    @ti.kernel
    def smooth_image():
        for pixel in ti.grouped(source):
            center = source[pixel]
            total, weights = vec3(0.0), 0.0
            for offset in ti.grouped(ti.ndrange((-radius, radius + 1), (-radius, radius + 1))):
                other = source[ti.math.clamp(pixel + offset, 0, ivec2(height - 1, width - 1))]
                difference = other - center
                weight = ti.exp(
                    -offset.dot(offset) / (2.0 * spatial**2)
                    - difference.dot(difference) / (2.0 * tonal**2)
                )
                total += weight * other
                weights += weight
            result[pixel] = total / weights

    return smooth_image, lambda: result.to_numpy()


@program
def clahe():
    """Contrast-limited adaptive histogram equalization, in tiles of 64 by 64 pixels."""
    n, tile, limit = 768, 64, 48
    tiles = n // tile
    ramp = np.add.outer(np.linspace(0, 60, n), np.linspace(40, 100, n))
    source = field((ramp + 40 * random(9, n, n)).astype(np.uint8))
    result = ti.field(ti.u8, (n, n))
    histogram = ti.field(ti.i32, (tiles, tiles, 256))
    lookup = ti.field(ti.f32, (tiles, tiles, 256))

    @ti.kernel
    def histograms():
        histogram.fill(0)
        for i, j in source:
            histogram[i // tile, j // tile, ti.cast(source[i, j], ti.i32)] += 1
        for a, b in ti.ndrange(tiles, tiles):
            excess = 0
            for level in range(256):
                excess += ti.max(histogram[a, b, level] - limit, 0)
            share = excess // 256
            running = 0
            for level in range(256):
                running += ti.min(histogram[a, b, level], limit) + share
                lookup[a, b, level] = running * (255.0 / (tile * tile))

    @ti.kernel
    def equalize():
        for i, j in source:
            level = ti.cast(source[i, j], ti.i32)
            at = (vec2(i, j) + 0.5) / tile - 0.5
            low = ti.cast(ti.floor(at), ti.i32)
            part = at - low
            value = 0.0
            for corner in ti.static(ti.grouped(ti.ndrange(2, 2))):
                near = ti.math.clamp(low + corner, 0, tiles - 1)
                weight = 1.0
                for axis in ti.static(range(2)):
                    weight *= part[axis] if ti.static(corner[axis] == 1) else 1.0 - part[axis]
                value += weight * lookup[near[0], near[1], level]
            result[i, j] = ti.cast(ti.math.clamp(value + 0.5, 0.0, 255.0), ti.u8)

    def step():
        histograms()
        equalize()

    return step, lambda: result.to_numpy()


# Particles


@ti.data_oriented
class Fluid:
    """Smoothed particles in a unit cube, with a grid of cells that are sorted by counting."""

    def __init__(self, positions, cells):
        n = len(positions)
        self.n, self.cells, self.h = n, cells, 1.0 / cells
        self.mass, self.stiffness, self.viscosity = 1.0 / n, 2.0, 0.05
        self.x = vectors(positions)
        self.v, self.force = ti.Vector.field(3, ti.f32, n), ti.Vector.field(3, ti.f32, n)
        self.density = ti.field(ti.f32, n)
        self.count = ti.field(ti.i32, cells**3)
        self.start = ti.field(ti.i32, cells**3 + 1)
        self.order = ti.field(ti.i32, n)

    @ti.func
    def cell(self, at):
        return ti.math.clamp(ti.floor(at / self.h, ti.i32), 0, self.cells - 1)

    @ti.func
    def number(self, cell):
        return (cell[0] * self.cells + cell[1]) * self.cells + cell[2]

    @ti.kernel
    def sort(self):
        self.count.fill(0)
        for i in self.x:
            self.count[self.number(self.cell(self.x[i]))] += 1
        ti.loop_config(serialize=True)
        for c in range(self.cells**3):
            self.start[c + 1] = self.start[c] + self.count[c]
        for i in self.x:
            c = self.number(self.cell(self.x[i]))
            self.order[self.start[c] + ti.atomic_sub(self.count[c], 1) - 1] = i

    @ti.func
    def neighbors(self, i, total: ti.template(), term: ti.template()):
        home = self.cell(self.x[i])
        for offset in ti.grouped(ti.ndrange((-1, 2), (-1, 2), (-1, 2))):
            cell = home + offset
            if (cell >= 0).all() and (cell < self.cells).all():
                c = self.number(cell)
                for k in range(self.start[c], self.start[c + 1]):
                    j = self.order[k]
                    if (self.x[i] - self.x[j]).norm() < self.h:
                        total += term(i, j)

    @ti.func
    def poly6(self, i, j):
        apart = self.x[i] - self.x[j]
        return (1.0 - apart.norm_sqr() / self.h**2) ** 3

    @ti.func
    def push(self, i, j):
        """Pressure by the spiky kernel, and viscosity."""
        result = vec3(0.0)
        if i != j:
            apart = self.x[i] - self.x[j]
            r = apart.norm() + 1e-6
            pressure = self.stiffness * (0.5 * (self.density[i] + self.density[j]) - 1.0)
            slope = 45.0 / (math.pi * self.h**6) * (self.h - r)
            result = apart / r * pressure * slope * (self.h - r)
            result += self.viscosity * slope * (self.v[j] - self.v[i])
            result *= self.mass / self.density[j]
        return result

    @ti.kernel
    def densities(self):
        for i in self.x:
            total = 0.0
            self.neighbors(i, total, self.poly6)
            self.density[i] = self.mass * 315.0 / (64.0 * math.pi * self.h**3) * total

    @ti.kernel
    def advance(self, dt: ti.f32):
        for i in self.x:
            total = vec3(0.0, -1.0, 0.0)
            self.neighbors(i, total, self.push)
            self.force[i] = total
        for i in self.x:
            self.v[i] += dt * self.force[i]
            self.x[i] += dt * self.v[i]
            for axis in ti.static(range(3)):
                if not 0.0 < self.x[i][axis] < 1.0:
                    self.x[i][axis] = ti.math.clamp(self.x[i][axis], 1e-4, 1.0 - 1e-4)
                    self.v[i][axis] *= -0.3


@program
def sph():
    """A step of smoothed-particle hydrodynamics: sort, densities, forces."""
    fluid = Fluid(random(10, 16000, 3), 16)

    def step():
        fluid.sort()
        fluid.densities()
        fluid.advance(1e-3)

    return step, lambda: np.append(fluid.density.to_numpy(), fluid.v.to_numpy())


@ti.dataclass
class Boid:
    """A bird of a flock in the unit square."""

    position: vec2
    velocity: vec2

    @ti.func
    def to(self, other):
        """Shortest vector to another bird across periodic borders."""
        d = other.position - self.position
        return d - ti.round(d)


@program
def boids():
    """A step of a flock: separation, alignment and cohesion over all pairs."""
    n, sight, close, speed = 1536, 0.08, 0.02, 0.3
    flock, after = Boid.field(shape=n), Boid.field(shape=n)
    flock.position.from_numpy(random(11, n, 2))
    flock.velocity.from_numpy(random(12, n, 2) - 0.5)

    @ti.kernel
    def steer(dt: ti.f32):
        for i in range(n):
            me = flock[i]
            seen = 0
            apart, together, along = vec2(0.0), vec2(0.0), vec2(0.0)
            for j in range(n):
                d = me.to(flock[j])
                r = d.norm()
                if i != j and r < sight:
                    seen += 1
                    together += d
                    along += flock[j].velocity
                    if r < close:
                        apart -= d / (r + 1e-3)
            velocity = me.velocity + 2.0 * dt * apart
            if seen > 0:
                velocity += dt * (3.0 * together / seen + 1.5 * (along / seen - me.velocity))
            velocity *= ti.min(1.0, speed / (velocity.norm() + 1e-6))
            after[i] = Boid(ti.math.fract(me.position + dt * velocity), velocity)
        for i in flock:
            flock[i] = after[i]

    def step():
        steer(0.02)

    return step, lambda: np.append(flock.position.to_numpy(), flock.velocity.to_numpy())


# Graphs


@program
def components():
    """Connected components by label propagation with pointer jumping, until no label changes."""
    n = 60000
    edges = vectors(np.random.default_rng(13).integers(0, n, (50000, 2)).astype(np.int32))
    label = ti.field(ti.i32, n)
    changed = ti.field(ti.i32, ())

    @ti.kernel
    def begin():
        for i in label:
            label[i] = i

    @ti.kernel
    def hook():
        for e in edges:
            a, b = label[edges[e][0]], label[edges[e][1]]
            if a != b:
                ti.atomic_min(label[ti.max(a, b)], ti.min(a, b))
                changed[None] = 1

    @ti.kernel
    def jump():
        for i in label:
            root = label[i]
            while label[root] != root:
                root = label[root]
            label[i] = root

    def step():
        begin()
        changed[None] = 1
        while changed[None]:
            changed[None] = 0
            hook()
            jump()

    return step, lambda: label.to_numpy()


@program
def triangles():
    """Triangles at each vertex of a graph, by merging sorted lists of neighbors."""
    n = 8000
    rng = np.random.default_rng(14)
    first = rng.integers(0, n, 160000)
    second = (first + np.ceil(rng.exponential(40, first.size)).astype(np.int64)) % n
    low, high = np.minimum(first, second), np.maximum(first, second)
    pairs = np.unique((low * n + high)[low != high])
    tails, heads = (pairs // n).astype(np.int32), (pairs % n).astype(np.int32)
    starts = nd(np.searchsorted(tails, np.arange(n + 1)).astype(np.int32))
    tail, head = nd(tails), nd(heads)
    count = ti.ndarray(ti.i32, n)

    @ti.kernel
    def intersect(
        starts: ti.types.ndarray(),
        tail: ti.types.ndarray(),
        head: ti.types.ndarray(),
        count: ti.types.ndarray(),
    ):
        for e in tail:
            a, b = starts[tail[e]], starts[head[e]]
            a_end, b_end = starts[tail[e] + 1], starts[head[e] + 1]
            while a < a_end and b < b_end:
                if head[a] < head[b]:
                    a += 1
                elif head[a] > head[b]:
                    b += 1
                else:
                    for vertex in ti.static((tail[e], head[e], head[a])):
                        ti.atomic_add(count[vertex], 1)
                    a += 1
                    b += 1

    def step():
        count.fill(0)
        intersect(starts, tail, head, count)

    return step, lambda: count.to_numpy()


main()
