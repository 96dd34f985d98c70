#!/usr/bin/env python3
"""Programs written without knowledge of the passes: fresh_third.py TARGET ARCH [NAME...].

Ten programs, one from each subject of `fresh.py` and `fresh_more.py`, written from public
descriptions of the algorithms and Taichi's documentation only.
"""

import math

import numpy as np
from harness import field, main, nd, program, random, ti, vectors

vec2, vec3, ivec2 = ti.math.vec2, ti.math.vec3, ti.math.ivec2


@program
def gray_scott():
    """Eight steps of the Gray-Scott reaction and diffusion with periodic borders."""
    n = 512
    start = np.zeros((2, n, n, 2), np.float32)
    start[..., 0] = 1.0
    start[0, 200:260, 220:300, 1] = 0.5 + 0.1 * random(41, 60, 80)
    uv = vectors(start)

    @ti.kernel
    def react(phase: ti.i32, feed: ti.f32, kill: ti.f32):
        for i, j in ti.ndrange(n, n):
            here = uv[phase, i, j]
            around = uv[phase, (i + 1) % n, j] + uv[phase, (i - 1 + n) % n, j]
            around += uv[phase, i, (j + 1) % n] + uv[phase, i, (j - 1 + n) % n]
            laplacian = 0.2 * around - 0.8 * here
            for di, dj in ti.static(((1, 1), (1, -1), (-1, 1), (-1, -1))):
                near = uv[phase, (i + di + n) % n, (j + dj + n) % n]
                laplacian += 0.05 * (near - here)
            rate = here.x * here.y * here.y
            change = vec2(
                1.0 * laplacian.x - rate + feed * (1.0 - here.x),
                0.5 * laplacian.y + rate - (feed + kill) * here.y,
            )
            uv[1 - phase, i, j] = here + change

    def step():
        for k in range(8):
            react(k % 2, 0.055, 0.062)

    return step, lambda: uv.to_numpy()[0]


@program
def matrix_free_cg():
    """Twenty steps of conjugate gradients for a Poisson problem, without a stored matrix."""
    n = 256
    x, r, p, ap = (ti.field(ti.f32, (n + 2, n + 2)) for _ in range(4))
    b = ti.field(ti.f32, (n + 2, n + 2))
    b.from_numpy(np.pad(random(42, n, n) - 0.5, 1))
    alpha, beta = ti.field(ti.f32, ()), ti.field(ti.f32, ())

    @ti.kernel
    def begin() -> ti.f32:
        squares = 0.0
        for i, j in ti.ndrange((1, n + 1), (1, n + 1)):
            x[i, j] = 0.0
            r[i, j] = b[i, j]
            p[i, j] = b[i, j]
            squares += b[i, j] * b[i, j]
        return squares

    @ti.kernel
    def apply() -> ti.f32:
        total = 0.0
        for i, j in ti.ndrange((1, n + 1), (1, n + 1)):
            ap[i, j] = 4.0 * p[i, j] - p[i - 1, j] - p[i + 1, j] - p[i, j - 1] - p[i, j + 1]
            total += p[i, j] * ap[i, j]
        return total

    @ti.kernel
    def advance() -> ti.f32:
        squares = 0.0
        for i, j in ti.ndrange((1, n + 1), (1, n + 1)):
            x[i, j] += alpha[None] * p[i, j]
            r[i, j] -= alpha[None] * ap[i, j]
            squares += r[i, j] ** 2
        return squares

    @ti.kernel
    def turn():
        for i, j in ti.ndrange((1, n + 1), (1, n + 1)):
            p[i, j] = r[i, j] + beta[None] * p[i, j]

    def step():
        old = begin()
        for _ in range(20):
            alpha[None] = old / apply()
            new = advance()
            beta[None] = new / old
            turn()
            old = new

    return step, lambda: np.round(x.to_numpy(), 3)


@program
def canny():
    """Edges of a gray image: blur, gradient, thinning along the gradient, hysteresis."""
    height, width = 480, 640
    rows = np.add.outer(np.sin(np.arange(height) / 17.0), np.cos(np.arange(width) / 23.0))
    gray = field(((rows > 0.3) * 0.6 + 0.4 * random(43, height, width)).astype(np.float32))
    across, smooth = (ti.field(ti.f32, (height, width)) for _ in range(2))
    slope = ti.Vector.field(2, ti.f32, (height, width))
    edge = ti.field(ti.u8, (height, width))
    weights = [math.exp(-(k**2) / 4.5) for k in range(-4, 5)]
    weights = [w / sum(weights) for w in weights]

    @ti.kernel
    def blur():
        for i, j in gray:
            total = 0.0
            for k in ti.static(range(-4, 5)):
                total += weights[k + 4] * gray[i, ti.math.clamp(j + k, 0, width - 1)]
            across[i, j] = total
        for i, j in gray:
            total = 0.0
            for k in ti.static(range(-4, 5)):
                total += weights[k + 4] * across[ti.math.clamp(i + k, 0, height - 1), j]
            smooth[i, j] = total

    @ti.kernel
    def derive():
        for i, j in ti.ndrange((1, height - 1), (1, width - 1)):
            gx, gy = 0.0, 0.0
            for k in ti.static(range(-1, 2)):
                weight = 2.0 if ti.static(k == 0) else 1.0
                gx += weight * (smooth[i + k, j + 1] - smooth[i + k, j - 1])
                gy += weight * (smooth[i + 1, j + k] - smooth[i - 1, j + k])
            slope[i, j] = vec2(gx, gy)

    @ti.kernel
    def thin(low: ti.f32, high: ti.f32):
        for i, j in ti.ndrange((1, height - 1), (1, width - 1)):
            g = slope[i, j]
            size = g.norm()
            step = ivec2(0, 1)
            if abs(g.y) > 2.414 * abs(g.x):
                step = ivec2(1, 0)
            elif abs(g.x) <= 2.414 * abs(g.y):
                step = ivec2(1, 1) if g.x * g.y > 0 else ivec2(1, -1)
            ahead = slope[i + step.x, j + step.y].norm()
            behind = slope[i - step.x, j - step.y].norm()
            mark = 0
            if size >= ahead and size >= behind:
                mark = 2 if size > high else 1 if size > low else 0
            edge[i, j] = ti.cast(mark, ti.u8)

    @ti.kernel
    def grow():
        for i, j in ti.ndrange((1, height - 1), (1, width - 1)):
            if edge[i, j] == 1:
                strong = 0
                for di, dj in ti.ndrange((-1, 2), (-1, 2)):
                    if edge[i + di, j + dj] >= 2:
                        strong = 1
                if strong == 1:
                    edge[i, j] = ti.cast(3, ti.u8)

    def step():
        blur()
        derive()
        thin(0.05, 0.5)
        grow()

    return step, lambda: np.minimum(edge.to_numpy(), 2) >= 1


@program
def grains():
    """A step of the discrete element method: discs in a box, contacts by a grid."""
    n, cells = 8192, 64
    radius, size = 0.005, 1.0 / 64
    x, v, force = (ti.Vector.field(2, ti.f32, n) for _ in range(3))
    count = ti.field(ti.i32, (cells, cells))
    start, fill = ti.field(ti.i32, (cells, cells)), ti.field(ti.i32, (cells, cells))
    order = ti.field(ti.i32, n)
    first = random(44, n, 2)

    @ti.func
    def home(at):
        return ti.math.clamp(ti.cast(at / size, ti.i32), 0, cells - 1)

    @ti.kernel
    def bin_grains():
        for cell in ti.grouped(count):
            count[cell] = 0
        for i in x:
            ti.atomic_add(count[home(x[i])], 1)
        ti.loop_config(serialize=True)
        for _ in range(1):
            total = 0
            for a in range(cells):
                for b in range(cells):
                    start[a, b] = total
                    fill[a, b] = total
                    total += count[a, b]
        for i in x:
            place = ti.atomic_add(fill[home(x[i])], 1)
            order[place] = i

    @ti.kernel
    def contact(stiffness: ti.f32, damping: ti.f32):
        for i in x:
            total = vec2(0.0, -1.0)
            cell = home(x[i])
            for a in range(ti.max(cell.x - 1, 0), ti.min(cell.x + 2, cells)):
                for b in range(ti.max(cell.y - 1, 0), ti.min(cell.y + 2, cells)):
                    for k in range(start[a, b], start[a, b] + count[a, b]):
                        j = order[k]
                        if i != j:
                            apart = x[j] - x[i]
                            distance = apart.norm()
                            gap = distance - 2.0 * radius
                            if gap < 0.0:
                                normal = apart / (distance + 1e-9)
                                speed = (v[j] - v[i]).dot(normal)
                                total += (stiffness * gap + damping * speed) * normal
            force[i] = total

    @ti.kernel
    def move(dt: ti.f32):
        for i in x:
            v[i] += dt * force[i]
            x[i] += dt * v[i]
            for axis in ti.static(range(2)):
                if x[i][axis] < radius:
                    x[i][axis] = radius
                    v[i][axis] *= -0.5
                elif x[i][axis] > 1.0 - radius:
                    x[i][axis] = 1.0 - radius
                    v[i][axis] *= -0.5

    def step():
        x.from_numpy(first)
        v.fill(0.0)
        bin_grains()
        contact(100.0, 0.2)
        move(1e-3)

    return step, lambda: np.append(x.to_numpy(), v.to_numpy())


@program
def shortest_paths():
    """Shortest paths from a node by relaxing all edges until no distance changes."""
    n, m = 20000, 120000
    rng = np.random.default_rng(45)
    tail, head = (field(rng.integers(0, n, m).astype(np.int32)) for _ in range(2))
    length = field(rng.integers(1, 100, m).astype(np.int32))
    distance = ti.field(ti.i32, n)
    changed = ti.field(ti.i32, ())
    far = 2**30

    @ti.kernel
    def begin(source: ti.i32):
        for i in distance:
            distance[i] = far
        distance[source] = 0

    @ti.kernel
    def relax():
        changed[None] = 0
        for e in tail:
            reached = distance[tail[e]]
            if reached < far:
                longer = reached + length[e]
                if longer < distance[head[e]]:
                    ti.atomic_min(distance[head[e]], longer)
                    changed[None] = 1

    def step():
        begin(0)
        while True:
            relax()
            if changed[None] == 0:
                break

    return step, lambda: distance.to_numpy()


@program
def convolution():
    """A layer of 3x3 convolutions with bias and ReLU, and maximum pooling by 2."""
    batch, inputs, outputs, size = 4, 8, 16, 32
    x = nd(random(46, batch, inputs, size, size) - 0.5)
    w = nd(random(47, outputs, inputs, 3, 3) - 0.5)
    bias = nd(random(48, outputs) - 0.5)
    y = ti.ndarray(ti.f32, (batch, outputs, size, size))
    pooled = ti.ndarray(ti.f32, (batch, outputs, size // 2, size // 2))

    @ti.kernel
    def convolve(
        x: ti.types.ndarray(dtype=ti.f32, ndim=4),
        w: ti.types.ndarray(dtype=ti.f32, ndim=4),
        bias: ti.types.ndarray(dtype=ti.f32, ndim=1),
        y: ti.types.ndarray(dtype=ti.f32, ndim=4),
    ):
        for b, o, i, j in y:
            total = bias[o]
            for c in range(x.shape[1]):
                for di, dj in ti.static(ti.ndrange(3, 3)):
                    a, d = i + di - 1, j + dj - 1
                    if 0 <= a < x.shape[2] and 0 <= d < x.shape[3]:
                        total += w[o, c, di, dj] * x[b, c, a, d]
            y[b, o, i, j] = ti.max(total, 0.0)

    @ti.kernel
    def pool(
        y: ti.types.ndarray(dtype=ti.f32, ndim=4), pooled: ti.types.ndarray(dtype=ti.f32, ndim=4)
    ):
        for b, o, i, j in pooled:
            top = y[b, o, 2 * i, 2 * j]
            for di, dj in ti.static(ti.ndrange(2, 2)):
                top = ti.max(top, y[b, o, 2 * i + di, 2 * j + dj])
            pooled[b, o, i, j] = top

    def step():
        convolve(x, w, bias, y)
        pool(y, pooled)

    return step, lambda: pooled.to_numpy()


@program
def ising():
    """Four sweeps of the Ising model by Metropolis steps on a checkerboard.

    The checked value is rounded, because targets draw different random numbers.
    """
    n = 512
    start = np.where(random(49, n, n) < 0.8, 1, -1).astype(np.int32)
    spin = field(start)
    magnet = ti.field(ti.i32, ())

    @ti.kernel
    def sweep(color: ti.i32, inverse: ti.f32):
        for i, j in spin:
            if (i + j) % 2 == color:
                around = spin[(i + 1) % n, j] + spin[(i + n - 1) % n, j]
                around += spin[i, (j + 1) % n] + spin[i, (j + n - 1) % n]
                cost = 2.0 * spin[i, j] * around
                if cost <= 0.0 or ti.random() < ti.exp(-inverse * cost):
                    spin[i, j] = -spin[i, j]

    @ti.kernel
    def measure():
        magnet[None] = 0
        for i, j in spin:
            magnet[None] += spin[i, j]

    def step():
        spin.from_numpy(start)
        for _ in range(4):
            sweep(0, 0.6)
            sweep(1, 0.6)
        measure()

    return step, lambda: np.round([magnet[None] / n**2], 1)


@ti.dataclass
class Sphere:
    """A ball with a color and the share of light that it reflects."""

    center: vec3
    radius: ti.f32
    color: vec3
    mirror: ti.f32

    @ti.func
    def hit(self, origin, direction):
        """Distance to the first hit of a ray, or a large number."""
        apart = origin - self.center
        b = apart.dot(direction)
        root = b * b - apart.norm_sqr() + self.radius**2
        t = 1e9
        if root > 0.0:
            near = -b - ti.sqrt(root)
            if near > 1e-3:
                t = near
        return t


@program
def mirrors():
    """A ray tracer: 24 balls on a plane, one light, shadows and four reflections."""
    width, height, n = 320, 240, 24
    balls = Sphere.field(shape=n)
    at = random(50, n, 3) * np.float32([6, 0.4, 6]) - np.float32([3, -0.3, 1])
    balls.center.from_numpy(at.astype(np.float32))
    balls.radius.from_numpy(0.2 + 0.3 * random(51, n))
    balls.color.from_numpy(0.3 + 0.7 * random(52, n, 3))
    balls.mirror.from_numpy(0.6 * random(53, n))
    image = ti.Vector.field(3, ti.f32, (width, height))
    sun = vec3(0.48, 0.8, -0.36)

    @ti.func
    def nearest(origin, direction):
        found, t = -1, 1e9
        for k in range(n):
            distance = balls[k].hit(origin, direction)
            if distance < t:
                found, t = k, distance
        if direction.y < -1e-4:
            distance = -origin.y / direction.y
            if 1e-3 < distance < t:
                found, t = n, distance
        return found, t

    @ti.kernel
    def render(turn: ti.f32):
        for i, j in image:
            x, y = (i - width / 2) / height, (j - height / 2) / height
            origin = vec3(ti.sin(turn), 1.2, -4.0)
            direction = vec3(x, y - 0.15, 1.2).normalized()
            light, share = vec3(0.0), 1.0
            for _ in range(5):
                found, t = nearest(origin, direction)
                if found < 0:
                    light += share * ti.math.mix(vec3(1.0), vec3(0.4, 0.6, 1.0), direction.y)
                    break
                p = origin + t * direction
                normal, color, mirror = vec3(0.0, 1.0, 0.0), vec3(0.5), 0.2
                if found < n:
                    normal = (p - balls[found].center).normalized()
                    color, mirror = balls[found].color, balls[found].mirror
                elif (ti.floor(p.x, ti.i32) + ti.floor(p.z, ti.i32)) % 2 == 0:
                    color = vec3(0.9)
                bright = ti.max(normal.dot(sun), 0.0)
                blocker, _distance = nearest(p + 1e-3 * normal, sun)
                if blocker >= 0:
                    bright = 0.0
                light += share * (1.0 - mirror) * color * (0.2 + 0.8 * bright)
                share *= mirror
                origin = p + 1e-3 * normal
                direction = ti.math.reflect(direction, normal)
            image[i, j] = ti.min(light, 1.0)

    return lambda: render(0.3), lambda: np.round(image.to_numpy().mean((0, 1)), 2)


@program
def row_sorts():
    """Insertion sorts of 8,192 rows of 32 keys, and the median and distinct keys of each."""
    rows, length = 8192, 32
    given = field(np.random.default_rng(54).integers(0, 64, (rows, length)).astype(np.int32))
    keys = ti.field(ti.i32, (rows, length))
    median, distinct = ti.field(ti.f32, rows), ti.field(ti.i32, rows)

    @ti.kernel
    def sort():
        for i, j in given:
            keys[i, j] = given[i, j]
        for row in range(rows):
            for k in range(1, length):
                key = keys[row, k]
                at = k - 1
                while at >= 0 and keys[row, at] > key:
                    keys[row, at + 1] = keys[row, at]
                    at -= 1
                keys[row, at + 1] = key
        for row in range(rows):
            median[row] = 0.5 * (keys[row, length // 2 - 1] + keys[row, length // 2])
            kinds = 1
            for k in range(1, length):
                if keys[row, k] != keys[row, k - 1]:
                    kinds += 1
            distinct[row] = kinds

    return sort, lambda: np.append(keys.to_numpy(), [median.to_numpy(), distinct.to_numpy()])


@program
def regression():
    """Four steps of gradient descent of a network with a hidden layer, by a tape."""
    samples, inputs, hidden = 512, 8, 32
    x, target = field(random(55, samples, inputs) - 0.5), ti.field(ti.f32, samples)
    target.from_numpy(np.sin(3 * x.to_numpy().sum(1)).astype(np.float32))
    w1 = ti.field(ti.f32, (inputs, hidden), needs_grad=True)
    b1 = ti.field(ti.f32, hidden, needs_grad=True)
    w2 = ti.field(ti.f32, hidden, needs_grad=True)
    inner = ti.field(ti.f32, (samples, hidden), needs_grad=True)
    output = ti.field(ti.f32, samples, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    first = [random(56, inputs, hidden) - 0.5, random(57, hidden) - 0.5]

    @ti.kernel
    def clear():
        for s, h in inner:
            inner[s, h] = 0.0
        for s in output:
            output[s] = 0.0

    @ti.kernel
    def layer():
        for s, h, k in ti.ndrange(samples, hidden, inputs):
            inner[s, h] += x[s, k] * w1[k, h]

    @ti.kernel
    def predict():
        for s, h in inner:
            output[s] += ti.tanh(inner[s, h] + b1[h]) * w2[h]

    @ti.kernel
    def measure():
        for s in output:
            loss[None] += (output[s] - target[s]) ** 2 / samples

    @ti.kernel
    def descend(rate: ti.f32):
        for k, h in w1:
            w1[k, h] -= rate * w1.grad[k, h]
        for h in b1:
            b1[h] -= rate * b1.grad[h]
            w2[h] -= rate * w2.grad[h]

    def step():
        w1.from_numpy(first[0])
        w2.from_numpy(first[1])
        b1.fill(0.0)
        for _ in range(4):
            clear()
            with ti.ad.Tape(loss=loss):
                layer()
                predict()
                measure()
            descend(0.1)

    return step, lambda: np.append(w1.to_numpy(), 10 * w2.to_numpy())


main()
