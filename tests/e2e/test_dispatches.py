"""Values that cross loops of one kernel and launches; many arguments; threads."""

import gc
import threading

import numpy as np
import pytest

import vkchi as ti

vec2, vec3 = ti.math.vec2, ti.math.vec3


# --- values that cross the loops of a kernel ---------------------------------------------------


def test_values_computed_before_a_loop():
    x, s = ti.field(ti.f32, 50), ti.field(ti.f32, ())

    @ti.kernel
    def run(a: ti.f32, n: ti.i32):
        scale = a * 2 + s[None]
        half = n // 2
        offset = vec2(scale, half)
        for i in range(half):
            x[i] = scale * i
        s[None] = 100
        for i in range(half, n):
            x[i] = offset.x + offset.y * i
        scale += s[None]
        for i in x:
            x[i] += scale

    s[None] = 3
    run(1.5, 40)
    i = np.arange(50)
    want = np.where(i < 20, 6 * i, np.where(i < 40, 6 + 20 * i, 0)) + 106
    np.testing.assert_array_equal(x.to_numpy(), want)


def test_results_of_one_loop_bound_and_index_the_next():
    x, out = ti.field(ti.i32, 64), ti.field(ti.i32, 64)
    values = np.random.default_rng(1).integers(0, 50, 64).astype(np.int32)
    x.from_numpy(values)

    @ti.kernel
    def run() -> ti.i32:
        count = 0
        highest = 0
        for i in x:
            if x[i] > 10:
                count += 1
            ti.atomic_max(highest, x[i])
        for i in range(count):
            out[i] = highest
        out[count] = -1
        for i in range(highest, 64):
            out[i] = -2
        return count * 1000 + highest

    count, highest = int((values > 10).sum()), int(values.max())
    assert run() == count * 1000 + highest
    want = np.zeros(64, int)
    want[:count] = highest
    want[count] = -1
    want[highest:] = -2
    np.testing.assert_array_equal(out.to_numpy(), want)


def test_accumulated_vectors_and_matrices():
    n = 300
    points = np.random.default_rng(2).integers(-4, 5, (n, 3)).astype(np.float32)
    x = ti.Vector.field(3, ti.f32, n)
    centred, spread = ti.Vector.field(3, ti.f32, n), ti.Matrix.field(3, 3, ti.f32, ())
    x.from_numpy(points)

    @ti.kernel
    def run():
        mean = vec3(0)
        for i in x:
            mean += x[i]
        mean /= n
        cov = ti.Matrix.zero(ti.f32, 3, 3)
        for i in x:
            d = x[i] - mean
            centred[i] = d
            cov += d.outer_product(d)
        spread[None] = cov / n

    run()
    d = points - points.mean(0)
    np.testing.assert_allclose(centred.to_numpy(), d, atol=1e-5)
    np.testing.assert_allclose(spread.to_numpy(), d.T @ d / n, rtol=1e-4, atol=1e-4)


def test_accumulators_take_part_in_branches_and_inner_loops():
    n = 100

    @ti.kernel
    def run(k: ti.i32, out: ti.types.ndarray()):
        even, odd, steps = 0, 0.0, ti.Vector([0, 0])
        for i in range(n):
            if i % 2 == 0:
                even += i
            else:
                odd += 0.5
            for j in range(i % 3):
                steps[0] += j
                if j == k:
                    steps[1] += 1
        out[0] = even
        out[1] = odd
        out[2] = steps[0]
        out[3] = steps[1]

    out = np.zeros(4, np.float32)
    run(1, out)
    inner = [(i, j) for i in range(n) for j in range(i % 3)]
    want = [sum(range(0, n, 2)), 25, sum(j for _, j in inner), sum(j == 1 for _, j in inner)]
    np.testing.assert_array_equal(out, want)


def test_kernel_level_control_flow_between_loops():
    x = ti.field(ti.i32, 10)

    @ti.kernel
    def run(n: ti.i32) -> ti.i32:
        total = 0
        k = 0
        while k < n:
            k += 3
            total += k
        if total > 10:
            total -= 1
        else:
            total += 100
        for i in x:
            x[i] = total + k
        return total

    for n in (0, 1, 5, 20):
        k = total = 0
        while k < n:
            k += 3
            total += k
        total += -1 if total > 10 else 100
        assert run(n) == total
        assert (x.to_numpy() == total + k).all()


def test_the_same_names_in_several_loops():
    out = ti.field(ti.f32, (3, 8))

    @ti.kernel
    def run():
        for i in range(8):
            a = i
            for j in range(2):
                a += j
            out[0, i] = a
        for i in range(8):
            a = 0.5 * i
            out[1, i] = a
        for i, j in ti.ndrange(2, 4):
            a = vec2(i, j)
            out[2, i * 4 + j] = a.x * 10 + a.y

    run()
    i = np.arange(8)
    np.testing.assert_array_equal(out.to_numpy(), [i + 1, i / 2, i // 4 * 10 + i % 4])


def test_many_loops_in_one_kernel():
    n = 64
    x, y = ti.field(ti.i32, n), ti.field(ti.i32, n)

    @ti.kernel
    def run():
        for i in x:
            x[i] = i
        for k in ti.static(range(20)):
            for i in x:
                y[i] = x[(i + k) % n]
            for i in y:
                x[i] = y[(i + 1) % n] + k

    run()
    want = np.arange(n)
    for k in range(20):
        want = np.roll(np.roll(want, -k), -1) + k
    np.testing.assert_array_equal(x.to_numpy(), want)


def test_results_read_fields_after_loops():
    x = ti.field(ti.f32, 10)

    @ti.kernel
    def run(k: ti.i32) -> vec2:
        for i in x:
            x[i] = i * i
        a = x[k]
        x[k] = -1
        return vec2(a, x[k])

    r = run(4)
    assert (r[0], r[1]) == (16, -1)


def test_loops_inside_functions():
    x = ti.field(ti.i32, 20)

    @ti.func
    def fill(v):
        for i in range(20):
            x[i] = v * i

    @ti.func
    def total():
        s = 0
        for i in range(20):
            s += x[i]
        return s

    @ti.kernel
    def run(v: ti.i32) -> ti.i32:
        fill(v)
        a = total()
        fill(v + 1)
        return a * 1000 + total()

    assert run(2) == 380 * 1000 + 570


# --- arguments ---------------------------------------------------------------------------------


def test_many_scalar_arguments():
    @ti.kernel
    def run(
        a: ti.f32, b: ti.i32, c: ti.f32, d: ti.i32, e: ti.f32, f: ti.i32, g: ti.f32, h: ti.i32,
        i: ti.f32, j: ti.i32, k: ti.f32, l: ti.i32, m: ti.f32, n: ti.i32, o: ti.f32, p: ti.i32,
        q: ti.f32, r: ti.i32, s: ti.f32, t: ti.i32, u: ti.f32, v: ti.i32, w: ti.f32, x: ti.i32,
        out: ti.types.ndarray(),
    ):  # fmt: skip
        out[0] = a + c + e + g + i + k + m + o + q + s + u + w
        out[1] = b + d + f + h + j + l + n + p + r + t + v + x
        out[2] = a * x

    values = [k + 0.5 if k % 2 == 0 else 3 * k for k in range(24)]
    out = np.zeros(3, np.float32)
    run(*values, out)
    want = [sum(values[::2]), sum(values[1::2]), values[0] * values[23]]
    np.testing.assert_array_equal(out, want)


def test_many_arrays():
    """More pointers and extents than the push constants of some devices hold."""

    @ti.kernel
    def run(
        a: ti.types.ndarray(), b: ti.types.ndarray(), c: ti.types.ndarray(), d: ti.types.ndarray(),
        e: ti.types.ndarray(), f: ti.types.ndarray(), g: ti.types.ndarray(), h: ti.types.ndarray(),
        m: ti.math.mat4, k: ti.f32,
    ):  # fmt: skip
        for i, j, l in a:
            s = b[i, j, l] + 2 * c[i, j] + 3 * d[i] + 4 * e[i, j, l] + 5 * f[l, j] + 6 * g[j]
            a[i, j, l] = s * k + m[i, l] + h[i, 0, 0] + h.shape[2] + f.shape[0] + e.shape[1]

    rng = np.random.default_rng(1)
    a, b, c, d, e, f, g, h = (
        rng.integers(0, 9, s).astype(np.float32)
        for s in ((3, 4, 2), (3, 4, 2), (3, 4), (3,), (3, 4, 2), (2, 4), (4,), (3, 1, 7))
    )
    m = np.arange(16, dtype=np.float32).reshape(4, 4)
    run(a, b, c, d, e, f, g, h, ti.Matrix(m.tolist()), 0.5)
    i, j, l = np.indices((3, 4, 2))
    s = b + 2 * c[i, j] + 3 * d[i] + 4 * e + 5 * f[l, j] + 6 * g[j]
    np.testing.assert_array_equal(a, s * 0.5 + m[i, l] + h[i, 0, 0] + 7 + 2 + 4)


def test_many_fields():
    fields = [ti.field(ti.i32, 16) for _ in range(24)]

    @ti.kernel
    def run():
        for i in range(16):
            for k in ti.static(range(24)):
                fields[k][i] = i * k
        for i in range(16):
            for k in ti.static(range(1, 24)):
                fields[0][i] += fields[k][i]

    run()
    np.testing.assert_array_equal(fields[0].to_numpy(), np.arange(16) * sum(range(24)))
    np.testing.assert_array_equal(fields[23].to_numpy(), np.arange(16) * 23)


@pytest.mark.parametrize("t", ["i64", "u32", "u64", "i16", "u8"])
def test_indices_and_bounds_of_other_integer_types(t, need):
    need(t)
    dtype = getattr(ti, t)
    x = ti.field(ti.i32, 32)

    @ti.kernel
    def run(n: dtype, k: dtype):
        for i in range(n):
            x[i] += 1
        x[k] += 10
        for i in range(32):
            x[ti.cast(i, dtype)] += 100

    run(20, 7)
    want = np.full(32, 100)
    want[:20] += 1
    want[7] += 10
    np.testing.assert_array_equal(x.to_numpy(), want)


def test_index_expressions():
    x, y = ti.field(ti.i32, (8, 8)), ti.field(ti.i32, 8)
    permutation = np.random.default_rng(1).permutation(8).astype(np.int32)
    y.from_numpy(permutation)

    @ti.kernel
    def run():
        for i, j in ti.ndrange(8, 8):
            x[y[i], y[y[j]]] = i * 8 + j
        for i in range(4):
            p = ti.Vector([i, i + 1])
            x[p] += 1000
            x[p + 1] += 2000
            x[p[1] * 2 // 2, int(i * 1.5)] += 100000

    run()
    want = np.zeros((8, 8), int)
    i, j = np.indices((8, 8))
    want[permutation[i], permutation[permutation[j]]] = i * 8 + j
    for i in range(4):
        want[i, i + 1] += 1000
        want[i + 1, i + 2] += 2000
        want[i + 1, int(i * 1.5)] += 100000
    np.testing.assert_array_equal(x.to_numpy(), want)


# --- launches ----------------------------------------------------------------------------------


def test_a_chain_of_launches_is_in_order():
    n = 256
    x, y = ti.field(ti.i32, n), ti.field(ti.i32, n)

    @ti.kernel
    def forward(k: ti.i32):
        for i in x:
            y[i] = x[(i + k) % n] + 1

    @ti.kernel
    def back():
        for i in y:
            x[i] = y[n - 1 - i]

    x.from_numpy(np.arange(n, dtype=np.int32))
    want = np.arange(n)
    for k in range(300):
        forward(k)
        back()
        want = (np.roll(want, -k) + 1)[::-1]
    np.testing.assert_array_equal(x.to_numpy(), want)


def test_arrays_collected_while_work_is_queued():
    out = ti.field(ti.f32, ())

    @ti.kernel
    def fill(x: ti.types.ndarray(), v: ti.f32):
        for i in x:
            x[i] = v

    @ti.kernel
    def add(x: ti.types.ndarray()):
        for i in x:
            out[None] += x[i]

    for k in range(40):
        x = ti.ndarray(ti.f32, 5000)
        fill(x, k)
        add(x)
        del x
        if k % 10 == 0:
            gc.collect()
    assert out[None] == 5000 * sum(range(40))


def test_launches_from_several_threads():
    x = ti.field(ti.i32, 4)
    errors = []

    @ti.kernel
    def add(k: ti.i32, v: ti.i32):
        x[k] += v

    add(0, 0)

    def work(k):
        try:
            for _ in range(200):
                add(k, k + 1)
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert x.to_numpy().tolist() == [200, 400, 600, 800]


def test_kernels_and_fields_of_two_runtimes(own_runtime):
    @ti.kernel
    def run(x: ti.template()) -> ti.i32:
        s = 0
        for i in x:
            s += x[i]
        return s

    for k in range(3):
        ti.init()
        x = ti.field(ti.i32, 10 + k)
        x.fill(2)
        assert run(x) == 20 + 2 * k


def test_a_failed_compilation_leaves_the_kernel_usable():
    @ti.kernel
    def run(x: ti.types.ndarray(), v: ti.template()):
        for i in x:
            x[i] = v

    a = np.zeros(3, np.float32)
    with pytest.raises(Exception):
        run(a, "text")
    run(a, 2.5)
    assert a.tolist() == [2.5] * 3


# --- code that is large or deep ----------------------------------------------------------------


def test_large_unrolled_code():
    n = 40
    x = ti.field(ti.f32, 8)

    @ti.kernel
    def run():
        for i in x:
            s = 0.0
            for a, b in ti.static(ti.ndrange(n, 10)):
                s += (a * 0.5 + i) * (b - 3)
            x[i] = s

    run()
    a, b = np.mgrid[0:n, 0:10]
    want = [((a * 0.5 + i) * (b - 3)).sum() for i in range(8)]
    np.testing.assert_allclose(x.to_numpy(), want, rtol=1e-4)


def test_deep_nesting():
    @ti.kernel
    def run(out: ti.types.ndarray()):
        for i in out:
            s = 0
            for a in range(3):
                if a != 1:
                    for b in range(3):
                        if b <= a:
                            c = 0
                            while c < 3:
                                c += 1
                                if c == 2:
                                    continue
                                for d in range(4):
                                    if d == i:
                                        if a > 0:
                                            break
                                        else:
                                            s += 1000
                                    s += a * 100 + b * 10 + c + d
            out[i] = s

    def reference(i):
        s = 0
        for a in (0, 2):
            for b in range(a + 1):
                for c in (1, 3):
                    for d in range(4):
                        if d == i:
                            if a > 0:
                                break
                            s += 1000
                        s += a * 100 + b * 10 + c + d
        return s

    out = np.zeros(5, np.int32)
    run(out)
    np.testing.assert_array_equal(out, [reference(i) for i in range(5)])


def test_long_chains_of_branches():
    @ti.kernel
    def run(out: ti.types.ndarray()):
        for i in out:
            v = -1
            if i == 0:
                v = 10
            elif i == 1:
                v = 20
            elif i == 2:
                for j in range(3):
                    v += j
            elif i == 3:
                w = i * 2
                v = w
            elif i < 6:
                v = 50 if i == 4 else 60
            else:
                v = i
                if i > 7:
                    v *= 2
                elif i == 7:
                    v = 0
            out[i] = v

    out = np.zeros(10, np.int32)
    run(out)
    np.testing.assert_array_equal(out, [10, 20, 2, 6, 50, 60, 6, 0, 16, 18])


def test_swapping_and_rotating_variables():
    @ti.kernel
    def run(n: ti.i32) -> vec3:
        a, b, c = 1, 2, 3
        ti.loop_config(serialize=True)
        for i in range(n):
            a, b, c = b, c, a
            if i % 2 == 1:
                a, b = b, a
        u, v = vec2(a, b), vec2(c, 0)
        u, v = v, u
        return vec3(u.x, v.x, v.y)

    for n in range(7):
        a, b, c = 1, 2, 3
        for i in range(n):
            a, b, c = b, c, a
            if i % 2 == 1:
                a, b = b, a
        r = run(n)
        assert [r[0], r[1], r[2]] == [c, a, b]


def test_integer_hashing():
    """Wrapping unsigned arithmetic, shifts and xors, as in hash functions."""
    n = 1000
    x = ti.field(ti.u32, n)

    @ti.func
    def pcg(v):
        state = v * ti.u32(747796405) + ti.u32(2891336453)
        word = ((state >> ((state >> ti.u32(28)) + ti.u32(4))) ^ state) * ti.u32(277803737)
        return (word >> ti.u32(22)) ^ word

    @ti.kernel
    def run():
        for i in x:
            x[i] = pcg(ti.cast(i, ti.u32))

    run()
    v = np.arange(n, dtype=np.uint32)
    with np.errstate(over="ignore"):
        s = v * np.uint32(747796405) + np.uint32(2891336453)
        w = ((s >> ((s >> np.uint32(28)) + np.uint32(4))) ^ s) * np.uint32(277803737)
    np.testing.assert_array_equal(x.to_numpy(), (w >> np.uint32(22)) ^ w)


def test_newton_iteration_with_a_tolerance():
    @ti.kernel
    def run(x: ti.types.ndarray(), root: ti.types.ndarray()):
        for i in x:
            r = x[i]
            error = 1.0
            steps = 0
            while error > 1e-6 and steps < 50:
                new = 0.5 * (r + x[i] / r)
                error = abs(new - r) / new
                r = new
                steps += 1
            root[i] = r

    x = np.linspace(0.5, 100, 64).astype(np.float32)
    root = np.zeros_like(x)
    run(x, root)
    np.testing.assert_allclose(root, np.sqrt(x), rtol=1e-5)


def test_a_state_machine():
    """A stack in a local vector with computed places: iterative traversal of a binary heap."""
    n = 31
    x = ti.field(ti.i32, n)
    x.from_numpy(np.random.default_rng(1).integers(0, 100, n).astype(np.int32))

    @ti.kernel
    def count(limit: ti.i32) -> ti.i32:
        result = 0
        for _ in range(1):
            stack = ti.Vector([0 for _ in range(16)])
            top = 1
            while top > 0:
                top -= 1
                node = stack[top]
                if x[node] < limit:
                    result += 1
                    for child in ti.static(range(1, 3)):
                        if 2 * node + child < n:
                            stack[top] = 2 * node + child
                            top += 1
        return result

    def reference(node, limit):
        if node >= n or x[node] >= limit:
            return 0
        return 1 + reference(2 * node + 1, limit) + reference(2 * node + 2, limit)

    for limit in (0, 30, 60, 101):
        assert count(limit) == reference(0, limit)


def test_a_loop_over_hundreds_of_fields_is_several_dispatches():
    """A driver's compiler takes the square of the time for one."""
    count = 300
    x = [ti.field(ti.f32, 8) for _ in range(count)]
    scale = ti.field(ti.f32, 8)
    scale.fill(2)

    @ti.kernel
    def step():
        for i in scale:
            for k in ti.static(range(count)):
                x[k][i] = x[k][i] * scale[i] + k

    step()
    step()
    for k in (0, 1, 150, 299):
        np.testing.assert_array_equal(x[k].to_numpy(), np.full(8, 3 * k, np.float32))
    (guarded,) = step._cache.compiled.values()
    (kernel,) = guarded.kernels
    assert 2 < len(kernel.steps) < 6
