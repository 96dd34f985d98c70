"""Small whole programs against numpy: simulation, images, sorting, scans, linear algebra."""

import numpy as np
import pytest

import vkchi as ti

RNG = np.random.default_rng


# --- simulation --------------------------------------------------------------------------------


def test_mpm88():
    """One scatter and gather: mass and momentum on the grid, then motion as in numpy."""
    n_particles, n_grid = 512, 32
    dx, dt = 1 / n_grid, 2e-4
    p_mass, p_vol, gravity, bound, E = (dx * 0.5) ** 2, (dx * 0.5) ** 2, 9.8, 3, 400
    x = ti.Vector.field(2, float, n_particles)
    v = ti.Vector.field(2, float, n_particles)
    C = ti.Matrix.field(2, 2, float, n_particles)
    J = ti.field(float, n_particles)
    grid_v = ti.Vector.field(2, float, (n_grid, n_grid))
    grid_m = ti.field(float, (n_grid, n_grid))

    @ti.kernel
    def to_grid():
        for i, j in grid_m:
            grid_v[i, j] = [0, 0]
            grid_m[i, j] = 0
        for p in x:
            Xp = x[p] / dx
            base = int(Xp - 0.5)
            fx = Xp - base
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            stress = -dt * 4 * E * p_vol * (J[p] - 1) / dx**2
            affine = ti.Matrix([[stress, 0], [0, stress]]) + p_mass * C[p]
            for i, j in ti.static(ti.ndrange(3, 3)):
                offset = ti.Vector([i, j])
                dpos = (offset - fx) * dx
                weight = w[i].x * w[j].y
                grid_v[base + offset] += weight * (p_mass * v[p] + affine @ dpos)
                grid_m[base + offset] += weight * p_mass

    @ti.kernel
    def from_grid():
        for i, j in grid_m:
            if grid_m[i, j] > 0:
                grid_v[i, j] /= grid_m[i, j]
            grid_v[i, j].y -= dt * gravity
            if i < bound and grid_v[i, j].x < 0:
                grid_v[i, j].x = 0
            if i > n_grid - bound and grid_v[i, j].x > 0:
                grid_v[i, j].x = 0
            if j < bound and grid_v[i, j].y < 0:
                grid_v[i, j].y = 0
            if j > n_grid - bound and grid_v[i, j].y > 0:
                grid_v[i, j].y = 0
        for p in x:
            Xp = x[p] / dx
            base = int(Xp - 0.5)
            fx = Xp - base
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            new_v = ti.Vector.zero(float, 2)
            new_C = ti.Matrix.zero(float, 2, 2)
            for i, j in ti.static(ti.ndrange(3, 3)):
                offset = ti.Vector([i, j])
                dpos = (offset - fx) * dx
                weight = w[i].x * w[j].y
                g_v = grid_v[base + offset]
                new_v += weight * g_v
                new_C += 4 * weight * g_v.outer_product(dpos) / dx**2
            v[p] = new_v
            x[p] += dt * v[p]
            J[p] *= 1 + dt * new_C.trace()
            C[p] = new_C

    rng = RNG(4)
    x0 = (rng.random((n_particles, 2)) * 0.4 + 0.2).astype(np.float32)
    v0 = rng.normal(0, 1, (n_particles, 2)).astype(np.float32)
    x.from_numpy(x0)
    v.from_numpy(v0)
    J.fill(1)
    to_grid()
    total = n_particles * p_mass
    assert grid_m.to_numpy().sum() == pytest.approx(total, rel=1e-4)
    momentum = grid_v.to_numpy().sum((0, 1))
    np.testing.assert_allclose(momentum, v0.sum(0) * p_mass, rtol=1e-3, atol=1e-5)
    from_grid()
    for _ in range(50):
        to_grid()
        from_grid()
    assert grid_m.to_numpy().sum() == pytest.approx(total, rel=1e-4)
    assert np.isfinite(x.to_numpy()).all() and np.isfinite(J.to_numpy()).all()
    fall = (x.to_numpy() - x0).mean(0)[1] - 51 * dt * v0[:, 1].mean()
    assert fall == pytest.approx(-0.5 * gravity * (51 * dt) ** 2, rel=0.1)


def test_scatter_of_27_neighbours():
    """The weights of a quadratic B-spline in three dimensions sum to one."""
    n, grid = 300, 16
    x = ti.Vector.field(3, ti.f32, n)
    mass, moment = ti.field(ti.f32, (grid,) * 3), ti.Vector.field(3, ti.f32, (grid,) * 3)
    gathered = ti.Vector.field(3, ti.f32, n)
    points = (RNG(7).random((n, 3)) * 12 + 2).astype(np.float32)
    x.from_numpy(points)

    @ti.kernel
    def run():
        for p in x:
            base = ti.cast(x[p] - 0.5, ti.i32)
            fx = x[p] - ti.cast(base, float)
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            for offset in ti.static(ti.grouped(ti.ndrange(3, 3, 3))):
                weight = 1.0
                for d in ti.static(range(3)):
                    weight *= w[offset[d]][d]
                mass[base + offset] += weight
                moment[base + offset] += weight * x[p]
        for p in x:
            base = ti.cast(x[p] - 0.5, ti.i32)
            fx = x[p] - ti.cast(base, float)
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            s = ti.Vector.zero(float, 3)
            for i, j, k in ti.static(ti.ndrange(3, 3, 3)):
                s += w[i].x * w[j].y * w[k].z * (base + ti.Vector([i, j, k]))
            gathered[p] = s

    run()
    assert mass.to_numpy().sum() == pytest.approx(n, rel=1e-4)
    np.testing.assert_allclose(moment.to_numpy().sum((0, 1, 2)), points.sum(0), rtol=1e-4)
    np.testing.assert_allclose(gathered.to_numpy(), points, rtol=1e-4)
    base = (points - 0.5).astype(int)
    fx = points - base
    w = np.stack([0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2])
    want = np.zeros((grid,) * 3)
    for i, j, k in np.ndindex(3, 3, 3):
        np.add.at(want, tuple((base + [i, j, k]).T), w[i, :, 0] * w[j, :, 1] * w[k, :, 2])
    np.testing.assert_allclose(mass.to_numpy(), want, rtol=1e-4, atol=1e-5)


def test_nbody():
    n, steps, dt = 64, 5, 1e-3
    pos, vel = ti.Vector.field(3, ti.f32, n), ti.Vector.field(3, ti.f32, n)
    x, v = RNG(1).normal(0, 1, (2, n, 3)).astype(np.float32)
    pos.from_numpy(x)
    vel.from_numpy(v)

    @ti.func
    def force(i):
        f = ti.Vector([0.0, 0.0, 0.0])
        for j in range(n):
            if i != j:
                d = pos[j] - pos[i]
                r = d.norm(1e-2)
                f += d / (r * r * r)
        return f

    @ti.kernel
    def step():
        for i in pos:
            vel[i] += dt * force(i)
        for i in pos:
            pos[i] += dt * vel[i]

    x, v = x.astype(np.float64), v.astype(np.float64)
    for _ in range(steps):
        step()
        d = x[None] - x[:, None]
        r = np.sqrt((d**2).sum(-1, keepdims=True) + 1e-2)
        v += dt * (d / r**3).sum(1)
        x += dt * v
    np.testing.assert_allclose(vel.to_numpy(), v, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(pos.to_numpy(), x, rtol=1e-4, atol=1e-4)


def test_wave_equation():
    n, steps, c = 40, 20, 0.3
    height = [ti.field(ti.f32, (n, n)) for _ in range(3)]
    yy, xx = np.mgrid[0:n, 0:n]
    start = np.exp(-((xx - 15) ** 2 + (yy - 20) ** 2) / 10).astype(np.float32)
    height[0].from_numpy(start)
    height[1].from_numpy(start)

    @ti.kernel
    def step(old: ti.template(), now: ti.template(), new: ti.template()):
        for i, j in now:
            laplace = -4 * now[i, j]
            laplace += now[i - 1, j] if i > 0 else 0.0
            laplace += now[i + 1, j] if i < n - 1 else 0.0
            laplace += now[i, j - 1] if j > 0 else 0.0
            laplace += now[i, j + 1] if j < n - 1 else 0.0
            new[i, j] = 2 * now[i, j] - old[i, j] + c * laplace

    a, b = start.astype(np.float64), start.astype(np.float64)
    for k in range(steps):
        step(height[k % 3], height[(k + 1) % 3], height[(k + 2) % 3])
        p = np.pad(b, 1)
        laplace = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * b
        a, b = b, 2 * b - a + c * laplace
    np.testing.assert_allclose(height[(steps + 1) % 3].to_numpy(), b, atol=1e-4)


def test_jacobi():
    n, steps = 33, 30
    x, y, f = (ti.field(ti.f32, (n, n)) for _ in range(3))
    source = RNG(2).random((n, n), np.float32)
    f.from_numpy(source)

    @ti.kernel
    def relax(a: ti.template(), b: ti.template()) -> ti.f32:
        change = 0.0
        for i, j in ti.ndrange((1, n - 1), (1, n - 1)):
            b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1] + f[i, j])
            ti.atomic_max(change, abs(b[i, j] - a[i, j]))
        return change

    want = np.zeros((n, n))
    for k in range(steps):
        change = relax(x, y) if k % 2 == 0 else relax(y, x)
        new = want.copy()
        new[1:-1, 1:-1] = 0.25 * (
            want[:-2, 1:-1] + want[2:, 1:-1] + want[1:-1, :-2] + want[1:-1, 2:] + source[1:-1, 1:-1]
        )
        want, difference = new, np.abs(new - want).max()
        assert change == pytest.approx(difference, rel=1e-3, abs=1e-6)
    np.testing.assert_allclose(x.to_numpy(), want, rtol=1e-4, atol=1e-5)


def test_game_of_life():
    n, steps = 48, 10
    alive, count = ti.field(ti.i32, (n, n)), ti.field(ti.i32, (n, n))
    board = (RNG(3).random((n, n)) < 0.35).astype(np.int32)
    alive.from_numpy(board)

    @ti.func
    def neighbours(i, j):
        total = 0
        for a, b in ti.static(ti.ndrange((-1, 2), (-1, 2))):
            if ti.static(a != 0 or b != 0):
                total += alive[(i + a + n) % n, (j + b + n) % n]
        return total

    @ti.func
    def rule(a, c):
        if a == 1:
            if c < 2 or c > 3:
                a = 0
        elif c == 3:
            a = 1
        return a

    @ti.kernel
    def step():
        for i, j in alive:
            count[i, j] = neighbours(i, j)
        for i, j in alive:
            alive[i, j] = rule(alive[i, j], count[i, j])

    for _ in range(steps):
        step()
        c = sum(np.roll(board, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1)) - board
        board = ((c == 3) | (board & (c == 2))).astype(np.int32)
    np.testing.assert_array_equal(alive.to_numpy(), board)
    assert board.sum() > 20


def test_reaction_diffusion_with_vectors():
    n, steps = 24, 10
    uv = ti.Vector.field(2, ti.f32, (2, n, n))
    start = RNG(5).random((n, n, 2), np.float32)
    uv.from_numpy(np.stack([start, start]))

    @ti.kernel
    def step(phase: ti.i32):
        for i, j in ti.ndrange(n, n):
            c = uv[phase, i, j]
            s = -4.0 * c
            s += uv[phase, (i + 1) % n, j] + uv[phase, (i + n - 1) % n, j]
            s += uv[phase, i, (j + 1) % n] + uv[phase, i, (j + n - 1) % n]
            reaction = c[0] * c[1] * c[1]
            du = 0.16 * s[0] - reaction + 0.06 * (1 - c[0])
            dv = 0.08 * s[1] + reaction - 0.122 * c[1]
            uv[1 - phase, i, j] = c + 0.5 * ti.math.vec2(du, dv)

    want = start.astype(np.float64)
    for k in range(steps):
        step(k % 2)
        s = sum(np.roll(want, d, a) for d in (-1, 1) for a in (0, 1)) - 4 * want
        r = want[..., 0] * want[..., 1] ** 2
        du = 0.16 * s[..., 0] - r + 0.06 * (1 - want[..., 0])
        dv = 0.08 * s[..., 1] + r - 0.122 * want[..., 1]
        want = want + 0.5 * np.stack([du, dv], -1)
    np.testing.assert_allclose(uv.to_numpy()[steps % 2], want, atol=1e-4)


# --- images ------------------------------------------------------------------------------------


def test_mandelbrot():
    n, limit = 64, 40
    pixels = ti.field(ti.i32, (n, n))

    @ti.kernel
    def paint():
        for i, j in pixels:
            c = ti.math.vec2(-2 + 3 * i / n, -1.5 + 3 * j / n)
            z = ti.math.vec2(0, 0)
            k = 0
            while z.norm_sqr() < 16 and k < limit:
                z = ti.math.vec2(z.x * z.x - z.y * z.y, 2 * z.x * z.y) + c
                k += 1
            pixels[i, j] = k

    paint()
    i, j = np.mgrid[0:n, 0:n]
    c = (-2 + 3 * i / n) + 1j * (-1.5 + 3 * j / n)
    z, want = np.zeros_like(c), np.zeros((n, n), int)
    for _ in range(limit):
        inside = np.abs(z) ** 2 < 16
        want += inside
        z = np.where(inside, z * z + c, z)
    assert (pixels.to_numpy() != want).mean() < 0.01


def test_julia_set_as_in_the_documentation():
    n = 32
    pixels = ti.field(dtype=float, shape=(n * 2, n))

    @ti.func
    def complex_sqr(z):  # complex square of a 2D vector
        return ti.Vector([z[0] * z[0] - z[1] * z[1], 2 * z[0] * z[1]])

    @ti.kernel
    def paint(t: float):
        for i, j in pixels:  # Parallelized over all pixels
            c = ti.Vector([-0.8, ti.cos(t) * 0.2])
            z = ti.Vector([i / n - 1, j / n - 0.5]) * 2
            iterations = 0
            while z.norm() < 20 and iterations < 50:
                z = complex_sqr(z) + c
                iterations += 1
            pixels[i, j] = 1 - iterations * 0.02

    paint(0.0)
    i, j = np.mgrid[0 : 2 * n, 0:n]
    z, count = (i / n - 1 + 1j * (j / n - 0.5)) * 2, np.zeros((2 * n, n))
    for _ in range(50):
        inside = np.abs(z) < 20
        count += inside
        z = np.where(inside, z * z + (-0.8 + 0.2j), z)
    assert (np.abs(pixels.to_numpy() - (1 - count * 0.02)) > 1e-3).mean() < 0.02


def test_ray_sphere_image():
    n = 48
    vec3 = ti.math.vec3
    image = ti.Vector.field(3, ti.f32, (n, n))
    spheres = np.array([[0, 0, 3, 1], [1, 0.5, 2, 0.4], [-0.8, -0.6, 2.5, 0.5]], np.float32)
    centres = ti.Vector.field(4, ti.f32, 3)
    centres.from_numpy(spheres)

    @ti.func
    def hit(origin, direction, sphere):
        """Distance to the nearest intersection, or a large number."""
        distance = 1e9
        m = origin - sphere.xyz
        b = ti.math.dot(m, direction)
        c = ti.math.dot(m, m) - sphere.w**2
        disc = b * b - c
        if disc > 0:
            near = -b - ti.sqrt(disc)
            if near > 0:
                distance = near
        return distance

    @ti.kernel
    def render():
        for i, j in image:
            d = ti.math.normalize(vec3((i + 0.5) / n - 0.5, (j + 0.5) / n - 0.5, 1.0))
            best, which = 1e9, -1
            for k in range(3):
                t = hit(vec3(0), d, centres[k])
                if t < best:
                    best, which = t, k
            colour = vec3(0.1, 0.2, 0.3)
            if which >= 0:
                p = best * d
                normal = ti.math.normalize(p - centres[which].xyz)
                light = ti.max(0.0, ti.math.dot(normal, ti.math.normalize(vec3(1, 1, -1))))
                colour = (0.1 + light) * vec3(1, 0.5 * which, 0.25)
            image[i, j] = colour

    render()
    i, j = np.mgrid[0:n, 0:n]
    d = np.stack([(i + 0.5) / n - 0.5, (j + 0.5) / n - 0.5, np.ones((n, n))], -1)
    d /= np.linalg.norm(d, axis=-1, keepdims=True)
    best, which = np.full((n, n), 1e9), np.full((n, n), -1)
    for k, (*centre, radius) in enumerate(spheres.astype(float)):
        b = -(d @ centre)
        disc = b * b - (np.dot(centre, centre) - radius**2)
        t = np.where(disc > 0, -b - np.sqrt(np.maximum(disc, 0)), 1e9)
        closer = (t > 0) & (t < best)
        best, which = np.where(closer, t, best), np.where(closer, k, which)
    normal = best[..., None] * d - spheres[which, :3]
    normal /= np.linalg.norm(normal, axis=-1, keepdims=True)
    light = np.maximum(0, normal @ (np.array([1, 1, -1]) / np.sqrt(3)))
    tint = np.stack([np.ones((n, n)), 0.5 * which, np.full((n, n), 0.25)], -1)
    want = np.where(which[..., None] >= 0, (0.1 + light)[..., None] * tint, [0.1, 0.2, 0.3])
    assert (np.abs(image.to_numpy() - want).max(-1) > 5e-3).mean() < 0.01
    assert len(np.unique(which)) == 4


def test_blur_of_an_image():
    h, w, r = 30, 41, 2
    source = RNG(8).random((h, w, 3), np.float32)

    @ti.kernel
    def blur(
        a: ti.types.ndarray(dtype=ti.math.vec3, ndim=2),
        b: ti.types.ndarray(dtype=ti.math.vec3, ndim=2),
    ):
        for i, j in a:
            s = ti.math.vec3(0)
            count = 0
            for y in range(max(0, i - r), min(h, i + r + 1)):
                for x in range(max(0, j - r), min(w, j + r + 1)):
                    s += a[y, x]
                    count += 1
            b[i, j] = s / count

    out = np.zeros_like(source)
    blur(source, out)
    for i, j in [(0, 0), (0, 20), (15, 20), (29, 40), (1, 39)]:
        part = source[max(0, i - r) : i + r + 1, max(0, j - r) : j + r + 1]
        np.testing.assert_allclose(out[i, j], part.mean((0, 1)), rtol=1e-4)


# --- data --------------------------------------------------------------------------------------


@pytest.mark.parametrize("tile", [8, 16])
def test_matmul_in_shared_tiles(tile, caps):
    if tile * tile > caps.workgroup_invocations:
        pytest.skip(f"workgroups of {tile * tile} are too large here")
    n = 64
    a, b, c = (ti.field(ti.f32, (n, n)) for _ in range(3))
    x, y = RNG(1).random((2, n, n), np.float32)
    a.from_numpy(x)
    b.from_numpy(y)

    @ti.kernel
    def multiply():
        ti.loop_config(block_dim=tile * tile)
        for t in range(n * n):
            group, tid = t // (tile * tile), t % (tile * tile)
            r, q = tid // tile, tid % tile
            row, column = group // (n // tile) * tile + r, group % (n // tile) * tile + q
            pa = ti.simt.block.SharedArray((tile, tile), ti.f32)
            pb = ti.simt.block.SharedArray((tile, tile), ti.f32)
            s = 0.0
            for k in range(n // tile):
                pa[r, q] = a[row, k * tile + q]
                pb[r, q] = b[k * tile + r, column]
                ti.simt.block.sync()
                for m in range(tile):
                    s += pa[r, m] * pb[m, q]
                ti.simt.block.sync()
            c[row, column] = s

    multiply()
    np.testing.assert_allclose(c.to_numpy(), x @ y, rtol=1e-4)


def test_matmul():
    @ti.kernel
    def multiply(a: ti.types.ndarray(), b: ti.types.ndarray(), c: ti.types.ndarray()):
        for i, j in c:
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j]
            c[i, j] = s

    a, b = RNG(1).random((13, 29), np.float32), RNG(2).random((29, 7), np.float32)
    c = np.zeros((13, 7), np.float32)
    multiply(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 100, 1024, 5000])
def test_prefix_sum_by_passes(n):
    values = RNG(n).integers(-5, 10, n).astype(np.int32)
    x, y = ti.field(ti.i32, n), ti.field(ti.i32, n)
    x.from_numpy(values)

    @ti.kernel
    def sweep(a: ti.template(), b: ti.template(), step: ti.i32):
        for i in a:
            b[i] = a[i] + (a[i - step] if i >= step else 0)

    step = 1
    while step < n:
        sweep(x, y, step)
        x, y, step = y, x, step * 2
    np.testing.assert_array_equal(x.to_numpy(), np.cumsum(values))


def test_histogram():
    n, bins = 20000, 37
    values = RNG(1).normal(0.5, 0.2, n).astype(np.float32)
    x, counts = ti.field(ti.f32, n), ti.field(ti.i32, bins)
    x.from_numpy(values)

    @ti.kernel
    def run():
        for i in x:
            k = ti.floor(x[i] * bins, ti.i32)
            if 0 <= k < bins:
                counts[k] += 1

    run()
    k = np.floor(values * np.float32(bins)).astype(int)
    want = np.bincount(k[(k >= 0) & (k < bins)], minlength=bins)
    np.testing.assert_array_equal(counts.to_numpy(), want)


def test_bitonic_sort():
    n = 1024
    values = RNG(1).random(n, np.float32)
    x = ti.field(ti.f32, n)
    x.from_numpy(values)

    @ti.kernel
    def exchange(k: ti.i32, j: ti.i32):
        for i in x:
            other = i ^ j
            if other > i:
                ascending = (i & k) == 0
                if (x[i] > x[other]) == ascending:
                    x[i], x[other] = x[other], x[i]

    k = 2
    while k <= n:
        j = k // 2
        while j > 0:
            exchange(k, j)
            j //= 2
        k *= 2
    np.testing.assert_array_equal(x.to_numpy(), np.sort(values))


def test_counting_primes_as_in_the_documentation():
    @ti.func
    def is_prime(n: int):
        result = True
        for k in range(2, int(n**0.5) + 1):
            if n % k == 0:
                result = False
                break
        return result

    @ti.kernel
    def count_primes(n: int) -> int:
        count = 0
        for k in range(2, n):
            if is_prime(k):
                count += 1
        return count

    assert count_primes(5000) == 669


def test_longest_common_subsequence_as_in_the_documentation():
    n = 60
    a, b = RNG(1).integers(0, 4, n).astype(np.int32), RNG(2).integers(0, 4, n).astype(np.int32)
    f = ti.field(dtype=ti.i32, shape=(n + 1, n + 1))

    @ti.kernel
    def compute_lcs(a: ti.types.ndarray(), b: ti.types.ndarray()) -> ti.i32:
        len_a, len_b = a.shape[0], b.shape[0]
        ti.loop_config(serialize=True)
        for i in range(1, len_a + 1):
            for j in range(1, len_b + 1):
                f[i, j] = ti.max(
                    f[i - 1, j - 1] + (a[i - 1] == b[j - 1]), ti.max(f[i - 1, j], f[i, j - 1])
                )
        return f[len_a, len_b]

    want = np.zeros((n + 1, n + 1), int)
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            want[i, j] = max(
                want[i - 1, j - 1] + (a[i - 1] == b[j - 1]), want[i - 1, j], want[i, j - 1]
            )
    assert compute_lcs(a, b) == want[n, n]
    np.testing.assert_array_equal(f.to_numpy(), want)


def test_conjugate_gradient():
    n = 16
    x, r, p, Ap = (ti.field(ti.f32, (n, n)) for _ in range(4))
    b = RNG(6).random((n, n), np.float32)

    @ti.kernel
    def apply():
        for i, j in p:
            s = 4.5 * p[i, j]
            if i > 0:
                s -= p[i - 1, j]
            if i < n - 1:
                s -= p[i + 1, j]
            if j > 0:
                s -= p[i, j - 1]
            if j < n - 1:
                s -= p[i, j + 1]
            Ap[i, j] = s

    @ti.kernel
    def dot(u: ti.template(), v: ti.template()) -> ti.f32:
        s = 0.0
        for I in ti.grouped(u):
            s += u[I] * v[I]
        return s

    @ti.kernel
    def add(u: ti.template(), k: ti.f32, v: ti.template(), scale: ti.f32):
        for I in ti.grouped(u):
            u[I] = scale * u[I] + k * v[I]

    r.from_numpy(b)
    p.from_numpy(b)
    rr = dot(r, r)
    for _ in range(40):
        apply()
        alpha = rr / dot(p, Ap)
        add(x, alpha, p, 1)
        add(r, -alpha, Ap, 1)
        new = dot(r, r)
        if new < 1e-10:
            break
        add(p, 1, r, new / rr)
        rr = new
    a = x.to_numpy()
    q = np.pad(a, 1)
    residual = 4.5 * a - q[2:, 1:-1] - q[:-2, 1:-1] - q[1:-1, 2:] - q[1:-1, :-2] - b
    assert np.abs(residual).max() < 1e-4


def test_monte_carlo_pi():
    n = 200000

    @ti.kernel
    def count() -> ti.i32:
        inside = 0
        for _ in range(n):
            x, y = ti.random(), ti.random()
            if x * x + y * y < 1:
                inside += 1
        return inside

    assert 4 * count() / n == pytest.approx(np.pi, abs=0.02)


def test_random_walks_keep_within_walls():
    n = 2000
    x = ti.Vector.field(2, ti.f32, n)

    @ti.kernel
    def walk(steps: ti.i32):
        for i in x:
            for s in range(steps):
                d = ti.Vector([ti.random() - 0.5, ti.random() - 0.5])
                x[i] = ti.math.clamp(x[i] + d, -1.0, 1.0)

    walk(200)
    a = x.to_numpy()
    assert np.abs(a).max() <= 1 and np.abs(a.mean(0)).max() < 0.1
    assert a.std() > 0.4


def test_linked_cells():
    """Particles in cells by counting, prefix sum and scatter; neighbours against brute force."""
    n, cells = 400, 8
    points = RNG(11).random((n, 2), np.float32)
    x = ti.Vector.field(2, ti.f32, n)
    count, start, fill = (ti.field(ti.i32, cells * cells) for _ in range(3))
    order, near = ti.field(ti.i32, n), ti.field(ti.i32, n)
    x.from_numpy(points)

    @ti.func
    def cell_of(p):
        c = ti.min(ti.cast(p * cells, ti.i32), cells - 1)
        return c

    @ti.kernel
    def run():
        for p in x:
            c = cell_of(x[p])
            count[c.x * cells + c.y] += 1
        ti.loop_config(serialize=True)
        for k in range(1, cells * cells):
            start[k] = start[k - 1] + count[k - 1]
        for p in x:
            c = cell_of(x[p])
            k = c.x * cells + c.y
            order[start[k] + ti.atomic_add(fill[k], 1)] = p
        for p in x:
            c = cell_of(x[p])
            total = 0
            for a, b in ti.ndrange((-1, 2), (-1, 2)):
                q = c + ti.Vector([a, b])
                if 0 <= q.x < cells and 0 <= q.y < cells:
                    k = q.x * cells + q.y
                    for s in range(start[k], start[k] + count[k]):
                        if (x[order[s]] - x[p]).norm() < 1 / cells:
                            total += 1
            near[p] = total

    run()
    d = np.linalg.norm(points[:, None].astype(float) - points[None], axis=-1)
    assert np.abs(near.to_numpy() - (d < 1 / cells).sum(1)).max() <= 1
    assert (near.to_numpy() == (d < 1 / cells).sum(1)).mean() > 0.99
    np.testing.assert_array_equal(np.sort(order.to_numpy()), np.arange(n))
