#!/usr/bin/env python3
"""Programs written without knowledge of the passes: fresh_more.py TARGET ARCH [NAME...].

Like `fresh.py`, with two programs from each of five subjects: ML operators, random numbers,
rendering, sorting, gradients.
"""

import math

import numpy as np
from harness import field, main, nd, program, random, ti, vectors

vec2, vec3, ivec2 = ti.math.vec2, ti.math.vec3, ti.math.ivec2


# ML operators


@program
def layer_norm():
    """Layer normalization of 4096 rows of 256 features, with gain and bias."""
    rows, features = 4096, 256
    x, out = nd(3 * random(15, rows, features) - 1), ti.ndarray(ti.f32, (rows, features))
    gain, bias = nd(random(16, features)), nd(random(17, features))

    @ti.kernel
    def forward(
        x: ti.types.ndarray(dtype=ti.f32, ndim=2),
        gain: ti.types.ndarray(dtype=ti.f32, ndim=1),
        bias: ti.types.ndarray(dtype=ti.f32, ndim=1),
        out: ti.types.ndarray(dtype=ti.f32, ndim=2),
        epsilon: ti.f32,
    ):
        for i in range(x.shape[0]):
            width = x.shape[1]
            mean = 0.0
            for j in range(width):
                mean += x[i, j]
            mean /= width
            variance = 0.0
            for j in range(width):
                variance += (x[i, j] - mean) ** 2
            scale = ti.rsqrt(variance / width + epsilon)
            for j in range(width):
                out[i, j] = (x[i, j] - mean) * scale * gain[j] + bias[j]

    def step():
        forward(x, gain, bias, out, 1e-5)

    return step, lambda: out.to_numpy()


@program
def attention():
    """Causal attention of eight heads with an online softmax."""
    heads, length, size = 8, 256, 16
    wide = ti.types.vector(size, ti.f32)
    q, k, v = (vectors(2 * random(seed, heads, length, size) - 1) for seed in (18, 19, 20))
    out = wide.field(shape=(heads, length))

    @ti.kernel
    def attend():
        for head, i in out:
            query = q[head, i] * (1.0 / size**0.5)
            top, total, mixed = -1e30, 0.0, wide(0.0)
            for j in range(i + 1):
                score = query.dot(k[head, j])
                higher = ti.max(top, score)
                fade, weight = ti.exp(top - higher), ti.exp(score - higher)
                total = total * fade + weight
                mixed = mixed * fade + weight * v[head, j]
                top = higher
            out[head, i] = mixed / total

    return attend, lambda: out.to_numpy()


# Random numbers


@program
def asian_option():
    """Price of an Asian call option by 60,000 pairs of antithetic random paths.

    The checked values are rounded, because targets draw different random numbers.
    """
    paths, days = 60000, 16
    spot, strike, interest, volatility = 100.0, 100.0, 0.05, 0.2
    drift = (interest - volatility**2 / 2) / days
    spread = volatility / days**0.5
    found = []

    @ti.kernel
    def simulate() -> vec2:
        average, payoff = 0.0, 0.0
        for _ in range(paths):
            up, down = spot, spot
            sums = vec2(0.0)
            for _day in range(days):
                shock = spread * ti.randn()
                up *= ti.exp(drift + shock)
                down *= ti.exp(drift - shock)
                sums += vec2(up, down)
            means = sums / days
            average += means.sum() / 2
            payoff += ti.max(means - strike, 0.0).sum() / 2
        return vec2(average, payoff * ti.exp(-interest)) / paths

    return lambda: found.append(simulate()), lambda: np.round([found[-1][0], found[-1][1]])


@program
def box_muller():
    """Histogram of normal numbers from xorshift generators by the Box-Muller transform."""
    streams, draws, bins = 8192, 64, 64
    state = ti.field(ti.u32, streams)
    state.from_numpy(np.random.default_rng(21).integers(1, 2**32, streams, dtype=np.uint32))
    histogram = ti.field(ti.i32, bins)

    @ti.func
    def advance(x):
        x ^= x << 13
        x ^= x >> 17
        x ^= x << 5
        return x

    @ti.func
    def uniform(x):
        return (ti.cast(x >> 8, ti.f32) + 0.5) * (1.0 / 16777216.0)

    @ti.kernel
    def draw():
        for b in histogram:
            histogram[b] = 0
        for s in state:
            x = state[s]
            for _ in range(draws):
                x = advance(x)
                radius = ti.sqrt(-2.0 * ti.log(uniform(x)))
                x = advance(x)
                angle = 2.0 * math.pi * uniform(x)
                for value in ti.static((radius * ti.cos(angle), radius * ti.sin(angle))):
                    b = ti.floor((value + 4.0) * (bins / 8.0), ti.i32)
                    if 0 <= b < bins:
                        ti.atomic_add(histogram[b], 1)
            state[s] = x

    return draw, lambda: histogram.to_numpy()


# Rendering


@ti.func
def smooth_min(a, b, k):
    h = ti.max(k - abs(a - b), 0.0) / k
    return ti.min(a, b) - h * h * k * 0.25


@ti.func
def scene(p):
    """Signed distance to a sphere blended with a torus, above a plane."""
    sphere = (p - vec3(0.0, 0.6, 0.0)).norm() - 0.5
    ring = vec2(p.xz.norm() - 0.9, p.y - 0.35).norm() - 0.2
    return ti.min(smooth_min(sphere, ring, 0.3), p.y)


@program
def sphere_tracing():
    """A scene of signed distances by sphere tracing, with soft shadows."""
    width, height = 240, 160
    image = ti.Vector.field(3, ti.f32, (width, height))

    @ti.func
    def trace(origin, direction):
        t = 0.0
        for _ in range(80):
            d = scene(origin + t * direction)
            t += d
            if d < 1e-4 * t or t > 20.0:
                break
        return t

    @ti.func
    def normal(p):
        """Gradient by samples at the corners of a tetrahedron."""
        n = vec3(0.0)
        for corner in ti.static(((1, -1, -1), (-1, -1, 1), (-1, 1, -1), (1, 1, 1))):
            e = vec3(*corner)
            n += e * scene(p + 2e-3 * e)
        return n.normalized()

    @ti.func
    def shadow(origin, direction):
        light, t = 1.0, 0.03
        for _ in range(24):
            d = scene(origin + t * direction)
            light = ti.min(light, 8.0 * d / t)
            t += ti.math.clamp(d, 0.03, 0.3)
        return ti.max(light, 0.0)

    @ti.kernel
    def render(turn: ti.f32):
        eye = vec3(3.0 * ti.sin(turn), 1.6, 3.0 * ti.cos(turn))
        forward = (vec3(0.0, 0.4, 0.0) - eye).normalized()
        right = forward.cross(vec3(0.0, 1.0, 0.0)).normalized()
        up = right.cross(forward)
        sun = vec3(0.5, 0.8, 0.3).normalized()
        for i, j in image:
            x, y = (i + 0.5 - width / 2) / height, (j + 0.5 - height / 2) / height
            ray = (forward * 1.2 + right * x + up * y).normalized()
            t = trace(eye, ray)
            color = ti.math.mix(vec3(0.8, 0.9, 1.0), vec3(0.3, 0.5, 0.9), ti.max(ray.y, 0.0))
            if t < 20.0:
                p = eye + t * ray
                n = normal(p)
                albedo = vec3(0.9, 0.5, 0.3) if p.y > 1e-2 else vec3(0.4)
                diffuse = ti.max(n.dot(sun), 0.0) * shadow(p + 1e-2 * n, sun)
                lit = albedo * (0.2 + 0.8 * diffuse)
                color = ti.math.mix(color, lit, ti.exp(-0.002 * t**3))
            image[i, j] = color**0.4545

    return lambda: render(0.7), lambda: image.to_numpy()


@program
def rasterizer():
    """A bumpy sphere of 3,840 triangles with a depth buffer and interpolated normals."""
    width, height, around, down = 640, 480, 64, 31
    u, v = np.meshgrid(
        np.arange(around) / around * 2 * np.pi, np.linspace(0.01, np.pi - 0.01, down)
    )
    r = 1 + 0.12 * np.sin(5 * u) * np.sin(4 * v)
    points = np.stack([r * np.sin(v) * np.cos(u), r * np.cos(v), r * np.sin(v) * np.sin(u)], -1)
    i, j = np.meshgrid(np.arange(down - 1), np.arange(around), indexing="ij")
    corners = [a * around + b % around for a in (i, i + 1) for b in (j, j + 1)]
    faces = np.stack([*corners[:3], *[corners[n] for n in (3, 2, 1)]], -1).reshape(-1, 3)
    mesh, face = vectors(points.reshape(-1, 3).astype(np.float32)), vectors(faces.astype(np.int32))
    vertex = ti.types.struct(screen=vec2, depth=ti.f32, normal=vec3)
    vertices = vertex.field(shape=len(points) * around)
    buffer = ti.field(ti.i32, (width, height))
    image = ti.Vector.field(3, ti.f32, (width, height))

    @ti.func
    def weights(f, pixel):
        """Barycentric coordinates of the center of a pixel."""
        a, b, c = [vertices[face[f][corner]].screen for corner in ti.static(range(3))]
        p = ti.cast(pixel, ti.f32) + 0.5
        area = (b - a).cross(c - a)
        return vec3((c - b).cross(p - b), (a - c).cross(p - c), (b - a).cross(p - a)) / area

    @ti.kernel
    def transform(turn: ti.f32):
        spin = ti.math.rotation3d(0.4, turn, 0.0)
        for n in mesh:
            p = (spin @ ti.math.vec4(mesh[n], 1.0)).xyz
            z = p.z + 3.0
            vertices[n].screen = p.xy / z * height * 1.1 + vec2(width, height) / 2
            vertices[n].depth = z
            vertices[n].normal = vec3(0.0)
        for f in face:
            a, b, c = face[f]
            normal = (mesh[b] - mesh[a]).cross(mesh[c] - mesh[a])
            for corner in ti.static(range(3)):
                vertices[face[f][corner]].normal += (spin @ ti.math.vec4(normal, 0.0)).xyz

    @ti.kernel
    def rasterize():
        buffer.fill(2**31 - 1)
        for f in face:
            a, b, c = [vertices[face[f][corner]] for corner in ti.static(range(3))]
            low = ti.max(ti.floor(ti.min(a.screen, b.screen, c.screen), ti.i32), 0)
            high = ti.ceil(ti.max(a.screen, b.screen, c.screen), ti.i32)
            high = ti.min(high, ivec2(width, height))
            for x, y in ti.ndrange((low.x, high.x), (low.y, high.y)):
                w = weights(f, ivec2(x, y))
                if w.min() >= 0.0:
                    z = w.dot(vec3(a.depth, b.depth, c.depth))
                    ti.atomic_min(buffer[x, y], (ti.cast(z * 100000.0, ti.i32) << 12) | f)

    @ti.kernel
    def shade():
        for pixel in ti.grouped(image):
            color = vec3(0.1)
            if buffer[pixel] < 2**31 - 1:
                f = buffer[pixel] & 4095
                w = weights(f, pixel)
                normal = vec3(0.0)
                for corner in ti.static(range(3)):
                    normal += w[corner] * vertices[face[f][corner]].normal
                light = ti.max(-normal.normalized().z, 0.0)
                color = vec3(0.9, 0.7, 0.5) * (0.2 + 0.6 * light) + 0.2 * light**16
            image[pixel] = color

    def step():
        transform(0.6)
        rasterize()
        shade()

    return step, lambda: image.to_numpy()


# Sorting


@program
def bitonic():
    """Bitonic sort of 32,768 keys with their indices."""
    n = 2**15
    source, keys = field(random(22, n)), ti.field(ti.f32, n)
    index = ti.field(ti.i32, n)

    @ti.kernel
    def load():
        for i in keys:
            keys[i], index[i] = source[i], i

    @ti.kernel
    def exchange(size: ti.i32, distance: ti.i32):
        for i in keys:
            other = i ^ distance
            if other > i:
                rising = (i & size) == 0
                if (keys[i] > keys[other]) == rising:
                    keys[i], keys[other] = keys[other], keys[i]
                    index[i], index[other] = index[other], index[i]

    def step():
        load()
        size = 2
        while size <= n:
            distance = size // 2
            while distance > 0:
                exchange(size, distance)
                distance //= 2
            size *= 2

    return step, lambda: np.append(keys.to_numpy(), index.to_numpy())


@ti.data_oriented
class RadixSorter:
    """Stable sort of pairs by 24-bit keys, eight bits at a time."""

    pair = ti.types.struct(key=ti.i32, value=ti.i32)

    def __init__(self, n, blocks):
        self.n, self.blocks, self.chunk = n, blocks, n // blocks
        self.pairs, self.spare = self.pair.field(shape=n), self.pair.field(shape=n)
        self.counts = ti.field(ti.i32, (256, blocks))

    @ti.kernel
    def sort_digit(self, src: ti.template(), dst: ti.template(), shift: ti.template()):
        for digit, block in self.counts:
            self.counts[digit, block] = 0
        for block in range(self.blocks):
            for i in range(block * self.chunk, (block + 1) * self.chunk):
                self.counts[(src[i].key >> shift) & 255, block] += 1
        ti.loop_config(serialize=True)
        for _ in range(1):
            total = 0
            for digit, block in ti.ndrange(256, self.blocks):
                count = self.counts[digit, block]
                self.counts[digit, block] = total
                total += count
        for block in range(self.blocks):
            for i in range(block * self.chunk, (block + 1) * self.chunk):
                moved = src[i]
                at = ti.atomic_add(self.counts[(moved.key >> shift) & 255, block], 1)
                dst[at] = moved

    def sort(self):
        src, dst = self.pairs, self.spare
        for digit in range(3):
            self.sort_digit(src, dst, 8 * digit)
            src, dst = dst, src
        return src


@program
def radix_sort():
    """Radix sort of 131,072 pairs in 128 blocks."""
    n = 2**17
    keys = field(np.random.default_rng(23).integers(0, 2**24, n).astype(np.int32))
    sorter = RadixSorter(n, 128)
    results = []

    @ti.kernel
    def load():
        for i in keys:
            sorter.pairs[i] = sorter.pair(keys[i], i)

    def step():
        load()
        results.append(sorter.sort())

    return step, lambda: np.append(results[-1].key.to_numpy(), results[-1].value.to_numpy())


# Gradients


@program
def spring_network():
    """Four steps of gradient descent on the energy of a hanging sheet of springs."""
    n = 96
    i, j = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
    sheet = np.stack([i, j, 0 * i], -1).reshape(-1, 3).astype(np.float32) / n
    x = vectors(sheet + 0.002 * random(24, n * n, 3), needs_grad=True)
    ends, lengths = [], []
    for di, dj in ((0, 1), (1, 0), (1, 1), (1, -1), (0, 2), (2, 0)):
        inside = (i + di < n) & (0 <= j + dj) & (j + dj < n)
        tail = (i * n + j)[inside]
        ends.append(np.stack([tail, tail + di * n + dj], -1))
        lengths.append(np.full(len(tail), math.hypot(di, dj) / n))
    springs = vectors(np.concatenate(ends).astype(np.int32))
    rest = field(np.concatenate(lengths).astype(np.float32))
    energy = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def stretch(stiffness: ti.f32):
        for s in springs:
            length = (x[springs[s][0]] - x[springs[s][1]]).norm()
            energy[None] += 0.5 * stiffness * (length - rest[s]) ** 2

    @ti.kernel
    def gravity(weight: ti.f32):
        for p in x:
            energy[None] += weight * x[p].z

    @ti.kernel
    def descend(rate: ti.f32):
        for p in x:
            if p >= n:
                x[p] -= rate * x.grad[p]

    def step():
        for _ in range(4):
            with ti.ad.Tape(loss=energy):
                stretch(1.0)
                gravity(1e-4)
            descend(0.1)

    return step, lambda: np.append(x.to_numpy(), 100 * x.grad.to_numpy())


@program
def wave_inversion():
    """Gradient of a seismogram's misfit with respect to the speed of a wave in each cell."""
    n, steps = 128, 40
    u = ti.field(ti.f32, (steps, n, n), needs_grad=True)
    speed = ti.field(ti.f32, (n, n), needs_grad=True)
    observed = ti.field(ti.f32, (steps, n))
    misfit = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def propagate(t: ti.i32):
        for i, j in ti.ndrange((1, n - 1), (1, n - 1)):
            laplacian = u[t, i - 1, j] + u[t, i + 1, j] + u[t, i, j - 1] + u[t, i, j + 1]
            laplacian -= 4.0 * u[t, i, j]
            pulse = 0.0
            if i == n // 4 and j == n // 2:
                pulse = ti.exp(-(((t - 8) / 4.0) ** 2))
            u[t + 1, i, j] = (
                2.0 * u[t, i, j] - u[t - 1, i, j] + speed[i, j] ** 2 * laplacian + pulse
            )

    @ti.kernel
    def compare():
        for t, j in observed:
            misfit[None] += (u[t, n // 3, j] - observed[t, j]) ** 2

    def forward():
        for t in range(1, steps - 1):
            propagate(t)

    bump = np.exp(-(((np.arange(n) - 0.35 * n) / 12) ** 2))
    speed.from_numpy((0.5 + 0.15 * np.outer(bump, np.ones(n))).astype(np.float32))
    forward()
    observed.from_numpy(np.ascontiguousarray(u.to_numpy()[:, n // 3]))
    speed.fill(0.5)

    def step():
        with ti.ad.Tape(loss=misfit):
            forward()
            compare()

    return step, lambda: np.append(speed.grad.to_numpy(), misfit[None])


main()
