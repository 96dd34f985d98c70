"""Small algorithms: sorting, primes, stencils, histograms, scans, sums across loops."""

import numpy as np

import vkchi as ti
from tests.e2e.language.compare import check
from vkchi.math import mat2, vec2


def test_loop_carried_vec() -> None:
    @ti.kernel
    def k(n: ti.i32) -> vec2:
        p = vec2(1, 0)
        for _ in range(1):
            for i in range(n):
                p = vec2(p.y, p.x + p.y)
        return p

    check(k(10), [34.0, 55.0])


def test_while_vec() -> None:
    @ti.kernel
    def k() -> ti.i32:
        z = vec2(0, 0)
        c = vec2(0.3, 0.5)
        n = 0
        while z.dot(z) < 4 and n < 50:
            z = vec2(z.x**2 - z.y**2, 2 * z.x * z.y) + c
            n += 1
        return n

    check(k(), 50)


def test_bubble_sort_local() -> None:
    @ti.kernel
    def k() -> ti.types.vector(5, ti.i32):
        v = ti.Vector([5, 2, 4, 1, 3])
        for _ in range(1):
            for i in range(5):
                for j in range(4 - i):
                    if v[j] > v[j + 1]:
                        t = v[j]
                        v[j] = v[j + 1]
                        v[j + 1] = t
        return v

    check(k(), [1, 2, 3, 4, 5])


def test_bubble_static() -> None:
    @ti.kernel
    def k() -> ti.types.vector(5, ti.i32):
        v = ti.Vector([5, 2, 4, 1, 3])
        for i in ti.static(range(5)):
            for j in ti.static(range(4 - i)):
                if v[j] > v[j + 1]:
                    v[j], v[j + 1] = v[j + 1], v[j]
        return v

    check(k(), [1, 2, 3, 4, 5])


def test_primes() -> None:
    x = ti.field(ti.i32, 30)

    @ti.func
    def is_prime(n):
        r = 1 if n > 1 else 0
        for k in range(2, int(n**0.5) + 1):
            if n % k == 0:
                r = 0
                break
        return r

    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for i in x:
            x[i] = is_prime(i)
            s += x[i]
        return s

    check(
        [k(), x],
        [
            10,
            [
                0,
                0,
                1,
                1,
                0,
                1,
                0,
                1,
                0,
                0,
                0,
                1,
                0,
                1,
                0,
                0,
                0,
                1,
                0,
                1,
                0,
                0,
                0,
                1,
                0,
                0,
                0,
                0,
                0,
                1,
            ],
        ],
    )


def test_gcd() -> None:
    @ti.func
    def gcd(a, b):
        while b != 0:
            a, b = b, a % b
        return a

    @ti.kernel
    def k(a: ti.i32, b: ti.i32) -> ti.i32:
        return gcd(a, b)

    check([k(48, 18), k(17, 5)], [6, 1])


def test_histogram() -> None:
    x = ti.field(ti.i32, 100)
    h = ti.field(ti.i32, 5)

    @ti.kernel
    def k():
        for i in x:
            x[i] = i * i % 7
        for i in x:
            h[x[i] % 5] += 1

    k()
    check(h, [15, 29, 28, 0, 28])


def test_game_of_life() -> None:
    n = 5
    a = ti.field(ti.i32, (n, n))
    b = ti.field(ti.i32, (n, n))
    for i in range(3):
        a[2, i + 1] = 1

    @ti.func
    def alive(i, j):
        c = 0
        for di, dj in ti.ndrange((-1, 2), (-1, 2)):
            if (di or dj) and 0 <= i + di < n and 0 <= j + dj < n:
                c += a[i + di, j + dj]
        return c

    @ti.kernel
    def step():
        for i, j in a:
            c = alive(i, j)
            b[i, j] = 1 if c == 3 or (c == 2 and a[i, j]) else 0
        for i, j in a:
            a[i, j] = b[i, j]

    step()
    check(a, [[0, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]])


def test_matmul_fields() -> None:
    A = ti.field(ti.f32, (2, 3))
    B = ti.field(ti.f32, (3, 2))
    C = ti.field(ti.f32, (2, 2))
    A.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3))
    B.from_numpy(np.arange(6, dtype=np.float32).reshape(3, 2))

    @ti.kernel
    def k():
        for i, j in C:
            s = 0.0
            for l in range(3):
                s += A[i, l] * B[l, j]
            C[i, j] = s

    k()
    check(C, [[10.0, 13.0], [28.0, 40.0]])


def test_scan_serial() -> None:
    x = ti.field(ti.i32, 6)
    x.from_numpy(np.array([1, 2, 3, 4, 5, 6], np.int32))

    @ti.kernel
    def k():
        ti.loop_config(serialize=True)
        for i in range(1, 6):
            x[i] += x[i - 1]

    k()
    check(x, [1, 3, 6, 10, 15, 21])


def test_serial_by_outer() -> None:
    x = ti.field(ti.i32, 6)
    x.from_numpy(np.array([1, 2, 3, 4, 5, 6], np.int32))

    @ti.kernel
    def k():
        for _ in range(1):
            for i in range(1, 6):
                x[i] += x[i - 1]

    k()
    check(x, [1, 3, 6, 10, 15, 21])


def test_ret_in_middle_of_loops() -> None:
    @ti.kernel
    def k(n: ti.i32) -> ti.i32:
        s = 0
        for i in range(n):
            s += i
        t = s * 2
        for i in range(n):
            t += 1
        return t - s

    check(k(10), 55)


def test_local_between_loops() -> None:
    x = ti.field(ti.f32, 4)

    @ti.kernel
    def k():
        m = 0.0
        for i in x:
            x[i] = i + 1
        for i in x:
            m += x[i]
        m /= 4
        for i in x:
            x[i] -= m

    k()
    check(x, [-1.5, -0.5, 0.5, 1.5])


def test_vec_local_between_loops() -> None:
    x = ti.Vector.field(2, ti.f32, 4)

    @ti.kernel
    def k() -> vec2:
        c = vec2(0)
        for i in x:
            x[i] = vec2(i, 2 * i)
        for i in x:
            c += x[i]
        c /= 4
        return c

    check(k(), [1.5, 3.0])


def test_mat_acc() -> None:
    @ti.kernel
    def k(n: ti.i32) -> mat2:
        m = mat2(0)
        for i in range(n):
            m += ti.Matrix([[1.0, i], [0.0, 1.0]])
        return m

    check(k(4), [[4.0, 6.0], [0.0, 4.0]])


def test_grouped_cast() -> None:
    x = ti.field(ti.f32, (4, 4))
    p = ti.Vector.field(2, ti.f32, 1)
    p[0] = [1.7, 2.2]

    @ti.kernel
    def k():
        for q in p:
            base = (p[q] - 0.5).cast(int)
            fx = p[q] - base.cast(float)
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1.0) ** 2, 0.5 * (fx - 0.5) ** 2]
            for i in ti.static(range(3)):
                for j in ti.static(range(3)):
                    offset = ti.Vector([i, j])
                    x[base + offset] += w[i][0] * w[j][1]

    k()
    check(
        x,
        [
            [0.0, 0.0, 0.0, 0.0],
            [0.0, 0.01439999, 0.2272, 0.0784],
            [0.0, 0.02969999, 0.4686, 0.1617],
            [0.0, 0.0009000002, 0.01420001, 0.004900003],
        ],
    )


def test_neg_step_while() -> None:
    @ti.kernel
    def k() -> ti.i32:
        i = 10
        s = 0
        while i > 0:
            s = s * 2 + i
            i -= 3
        return s

    check(k(), 117)
