"""Vectors and matrices in kernels: making, indexing, arithmetic, linear algebra, fields."""

import numpy as np
import pytest

import vkchi as ti

vec2, vec3, vec4 = ti.math.vec2, ti.math.vec3, ti.math.vec4
ivec2, ivec3 = ti.math.ivec2, ti.math.ivec3
mat2, mat3, mat4 = ti.math.mat2, ti.math.mat3, ti.math.mat4


def evaluate(f, shape, t="f32"):
    """Result of the ti.func f as numpy: a number, vector or matrix, by shape."""
    dtype = getattr(ti, t)
    if shape == ():
        out = ti.field(dtype, ())
    elif len(shape) == 1:
        out = ti.Vector.field(*shape, dtype, ())
    else:
        out = ti.Matrix.field(*shape, dtype, ())

    @ti.kernel
    def run():
        for i in range(1):
            out[None] = f()

    run()
    return out.to_numpy()


# --- making ------------------------------------------------------------------------------------


def test_literals():
    @ti.kernel
    def run(out: ti.types.ndarray(), k: ti.i32):
        v = ti.Vector([1, 2.5, k])
        m = ti.Matrix([[1, 2, 3], [4, 5, k]])
        w = ti.Vector([k, k + 1])
        out[0] = v[0] + 10 * v[1] + 100 * v[2]
        out[1] = m[0, 0] + 10 * m[0, 2] + 100 * m[1, 1] + 1000 * m[1, 2]
        out[2] = w.x / 2 + w.y

    out = np.zeros(3, np.float32)
    run(out, 7)
    np.testing.assert_array_equal(out, [1 + 25 + 700, 1 + 30 + 500 + 7000, 11.5])


def test_vector_types_as_constructors():
    vec5 = ti.types.vector(5, ti.f32)
    mat23 = ti.types.matrix(2, 3, ti.f32)

    @ti.kernel
    def run(out: ti.types.ndarray(), x: ti.f32):
        a = vec3(x)
        out[0] = a.sum()
        b = vec4(a.xy, 5, x)
        out[1] = b.x + b.z * 10 + b.w * 100
        c = vec4(1, vec3(2, 3, x))
        out[2] = c[0] + 10 * c[1] + 100 * c[2] + 1000 * c[3]
        d = vec5(1, 2, 3, 4, x)
        out[3] = d.sum()
        e = mat2([[1, 2], [x, 4]])
        out[4] = e[0, 1] * 10 + e[1, 0]
        f = ivec2(x, 3.7)
        out[5] = f.x * 10 + f.y
        g = vec5(0)
        out[6] = g.sum()
        h = mat23([[1, 2, 3], [4, 5, x]])
        out[7] = h[1, 2] + h[0, 2]
        i, j = ivec2(4, 9)
        out[8] = i * 10 + j
        k = mat3(2)
        out[9] = k[1, 1] + k[0, 2]

    out = np.zeros(10, np.float32)
    run(out, 2.5)
    want = [7.5, 2.5 + 50 + 250, 1 + 20 + 300 + 2500, 12.5, 22.5, 23, 0, 5.5, 49, 4]
    np.testing.assert_array_equal(out, want)


@ti.func
def m_zero():
    return ti.Matrix.zero(ti.f32, 2, 3)


@ti.func
def m_one():
    return ti.Matrix.one(float, 3, 2)


@ti.func
def m_identity():
    return ti.Matrix.identity(ti.f32, 3)


@ti.func
def m_diag():
    return ti.Matrix.diag(3, 2.5)


@ti.func
def m_rows():
    return ti.Matrix.rows([ti.Vector([1.0, 2.0]), ti.Vector([3.0, 4.0]), ti.Vector([5.0, 6.0])])


@ti.func
def m_cols():
    return ti.Matrix.cols([ti.Vector([1.0, 2.0]), ti.Vector([3.0, 4.0]), ti.Vector([5.0, 6.0])])


@ti.func
def v_zero():
    return ti.Vector.zero(float, 3)


@ti.func
def v_one():
    return ti.Vector.one(ti.f32, 4)


@ti.func
def v_unit():
    return ti.Vector.unit(3, 1, ti.f32)


@ti.func
def m_eye():
    return ti.math.eye(2)


MADE = {
    "zero": (m_zero, np.zeros((2, 3))),
    "one": (m_one, np.ones((3, 2))),
    "identity": (m_identity, np.eye(3)),
    "diag": (m_diag, 2.5 * np.eye(3)),
    "rows": (m_rows, [[1, 2], [3, 4], [5, 6]]),
    "cols": (m_cols, [[1, 3, 5], [2, 4, 6]]),
    "vector zero": (v_zero, np.zeros(3)),
    "vector one": (v_one, np.ones(4)),
    "unit": (v_unit, [0, 1, 0]),
    "eye": (m_eye, np.eye(2)),
}


@pytest.mark.parametrize("name", MADE)
def test_named_constructors(name):
    f, want = MADE[name]
    np.testing.assert_array_equal(evaluate(f, np.shape(want)), want)


# --- indexing ----------------------------------------------------------------------------------


def test_dynamic_indices():
    n = 12
    out = ti.field(ti.f32, (n, 4))

    @ti.kernel
    def run():
        for i in range(n):
            v = ti.Vector([1.0, 2.0, 3.0])
            k = i % 3
            v[k] += 10
            v[(i + 1) % 3] *= 2
            m = ti.Matrix([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
            m[i % 2, k] = -7
            out[i, 0] = v[k]
            out[i, 1] = v[0] + 100 * v[1] + 10000 * v[2]
            out[i, 2] = m[i % 2, (k + 1) % 3]
            out[i, 3] = m.sum()

    run()
    for i in range(n):
        v, k = np.array([1.0, 2, 3]), i % 3
        v[k] += 10
        v[(i + 1) % 3] *= 2
        m = np.arange(1.0, 7).reshape(2, 3)
        m[i % 2, k] = -7
        want = [v[k], v @ [1, 100, 10000], m[i % 2, (k + 1) % 3], m.sum()]
        np.testing.assert_array_equal(out.to_numpy()[i], want)


def test_dynamic_index_of_field_elements():
    v, m = ti.Vector.field(3, ti.f32, 4), ti.Matrix.field(2, 2, ti.i32, ())

    @ti.kernel
    def run(k: ti.i32):
        for i in v:
            for j in range(3):
                v[i][j] = i * 10 + j
            v[i][k] += 0.5
        for p in range(1):
            for i in range(2):
                for j in range(2):
                    m[None][i, j] = i * 2 + j + v[3][k] * 100

    run(1)
    want = np.add.outer(np.arange(4) * 10, np.arange(3)).astype(np.float32)
    want[:, 1] += 0.5
    np.testing.assert_array_equal(v.to_numpy(), want)
    np.testing.assert_array_equal(m.to_numpy(), [[3150, 3151], [3152, 3153]])


def test_components_and_swizzles():
    @ti.kernel
    def run(out: ti.types.ndarray(), a: ti.f32):
        v = vec4(a, 2, 3, 4)
        out[0] = v.x + v.y * 10 + v.z * 100 + v.w * 1000
        out[1] = v.r + v.g * 10 + v.b * 100 + v.a * 1000
        u = v.zyx
        out[2] = u.x + u.y * 10 + u.z * 100
        u = v.xxy
        out[3] = u.x + u.y * 10 + u.z * 100
        v.x = 9
        v.yz = vec2(7, 8)
        out[4] = v.x + v.y * 10 + v.z * 100 + v.w * 1000
        v.xy = v.yx
        out[5] = v.x + v.y * 10
        v.rgb += 1
        v.w *= 2
        out[6] = v.x + v.y * 10 + v.z * 100 + v.w * 1000
        w = v.xy + v.zw
        out[7] = w.x + w.y * 100

    out = np.zeros(8, np.float32)
    run(out, 1)
    np.testing.assert_array_equal(out, [4321, 4321, 123, 211, 4879, 97, 8 + 100 + 900 + 8000, 1817])


def test_slices():
    @ti.kernel
    def run(out: ti.types.ndarray(), k: ti.i32):
        m = ti.Matrix([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        row = m[1, :]
        column = m[:, 2]
        out[0] = row.sum()
        out[1] = column.x + 10 * column.y
        m[0, :] = [7.0, 8.0, 9.0]
        out[2] = m.sum()
        out[3] = m[k, :].sum()

    out = np.zeros(4, np.float32)
    run(out, 0)
    np.testing.assert_array_equal(out, [15, 63, 39, 24])


def test_unpacking_and_lengths():
    @ti.kernel
    def run() -> ti.f32:
        a, b, c = ti.Vector([1.0, 2.0, 3.0])
        v = vec3(c, b, a)
        m = ti.Matrix([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        a, b = b, a
        return v.x + 10 * v.y + 100 * v.z + 1000 * ti.static(v.n + m.n * 10 + m.m) + a * 0.5

    assert run() == 3 + 20 + 100 + 1000 * 35 + 1


def test_iterating_over_components():
    @ti.kernel
    def run() -> ti.f32:
        v = ti.Vector([3.0, 4.0, 5.0])
        s = 0.0
        for i in ti.static(range(3)):
            s += v[i] * 10**i
        for i in range(v.n):
            s += v[i]
        return s

    assert run() == 543 + 12


def test_lists_of_vectors():
    @ti.kernel
    def run(x: ti.f32) -> ti.f32:
        a = vec2(x, 2)
        b = vec2(3, 4)
        w = [a, b, a + b]
        s = 0.0
        for i, j in ti.static(ti.ndrange(3, 3)):
            s += w[i].x * w[j].y * (1 + i * 3 + j)
        p, q = w[1].x, [w[2], w[0]]
        return s + 1000 * len(w) + p * 10000 + q[0].y + q[1][0]

    w = [(1, 2), (3, 4), (4, 6)]
    s = sum(w[i][0] * w[j][1] * (1 + i * 3 + j) for i in range(3) for j in range(3))
    assert run(1) == s + 3000 + 30000 + 6 + 1


def test_list_of_weights_as_in_mpm():
    out = ti.field(ti.f32, 50)

    @ti.kernel
    def run():
        for p in range(50):
            fx = ti.Vector([0.5 + p * 0.01, 0.6])
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            s = 0.0
            for i, j in ti.static(ti.ndrange(3, 3)):
                s += w[i].x * w[j].y
            out[p] = s

    run()
    np.testing.assert_allclose(out.to_numpy(), 1, rtol=1e-5)


# --- values are values -------------------------------------------------------------------------


def test_assignment_copies():
    @ti.kernel
    def run() -> ti.f32:
        a = vec2(1, 2)
        b = a
        b.x = 10
        c = [a, b]
        a.y = 20
        return a.x + a.y + b.x * 100 + b.y * 1000 + c[0].y * 10000

    assert run() == 1 + 20 + 1000 + 2000 + 20000


def test_fill_of_a_vector():
    x = ti.Vector.field(2, ti.f32, 2)

    @ti.kernel
    def run(k: ti.f32) -> ti.f32:
        a = ti.Vector([1.0, 2.0, 3.0])
        a.fill(k)
        x[1].fill(k + 1)
        return a.sum()

    assert run(5) == 15
    assert x.to_numpy().tolist() == [[0, 0], [6, 6]]


def test_vectors_in_branches_and_loops():
    out = ti.Vector.field(2, ti.f32, 8)

    @ti.kernel
    def run():
        for i in out:
            v = vec2(0)
            m = mat2([[0, 1], [-1, 0]])
            if i % 2 == 0:
                v = vec2(i, 1)
            else:
                v.y = 5
            for j in range(i):
                v = m @ v
                if v.x > 3:
                    v.x -= 1
            while v.norm() > 6:
                v *= 0.5
            out[i] = v if v.x >= 0 else -v

    run()
    for i in range(8):
        v = np.array([i, 1.0]) if i % 2 == 0 else np.array([0, 5.0])
        for j in range(i):
            v = np.array([v[1], -v[0]])
            if v[0] > 3:
                v[0] -= 1
        while np.hypot(*v) > 6:
            v = v * 0.5
        np.testing.assert_allclose(out.to_numpy()[i], v if v[0] >= 0 else -v, rtol=1e-6)


def test_accumulating_vectors_in_a_kernel():
    x = ti.Vector.field(3, ti.f32, 500)
    values = np.random.default_rng(1).integers(-8, 8, (500, 3)).astype(np.float32)
    x.from_numpy(values)

    @ti.kernel
    def total() -> ti.types.vector(3, ti.f32):
        s = ti.Vector([0.0, 0.0, 0.0])
        for i in x:
            s += x[i]
        return s

    r = total()
    assert [r[0], r[1], r[2]] == values.sum(0).tolist()


# --- elementwise arithmetic --------------------------------------------------------------------

A = np.array([[1.5, -2.0], [0.5, 4.0]], np.float32)
B = np.array([[2.0, 3.0], [-1.0, 0.25]], np.float32)


@ti.func
def e_add(a, b):
    return a + b


@ti.func
def e_sub(a, b):
    return a - b


@ti.func
def e_mul(a, b):
    return a * b


@ti.func
def e_div(a, b):
    return a / b


@ti.func
def e_min(a, b):
    return ti.min(a, b)


@ti.func
def e_max(a, b):
    return ti.max(a, b)


@ti.func
def e_affine(a, b):
    return 2 * a - b / 4 + 1


@ti.func
def e_scalar_left(a, b):
    return 1 / b - a


@ti.func
def e_power(a, b):
    return a**2 + b**3


@ti.func
def e_negative(a, b):
    return -a + abs(b)


@ti.func
def e_floor(a, b):
    return ti.floor(a) + ti.ceil(b)


@ti.func
def e_mix(a, b):
    return ti.math.mix(a, b, 0.25)


@ti.func
def e_clamp(a, b):
    return ti.math.clamp(a, -1, 1) + ti.math.clamp(b, 0.0, 2.0)


@ti.func
def e_select(a, b):
    return ti.select(a < b, a, b)


@ti.func
def e_compare(a, b):
    return ti.cast(a < b, ti.f32) + (a >= b) * 2


@ti.func
def e_mod(a, b):
    return a % b


@ti.func
def e_in_place(a, b):
    c = a
    c += b
    c *= 2
    c -= a
    c /= 4
    return c


ELEMENTWISE = {
    "add": (e_add, A + B), "sub": (e_sub, A - B), "mul": (e_mul, A * B), "div": (e_div, A / B),
    "min": (e_min, np.minimum(A, B)), "max": (e_max, np.maximum(A, B)),
    "affine": (e_affine, 2 * A - B / 4 + 1), "scalar_left": (e_scalar_left, 1 / B - A),
    "power": (e_power, A**2 + B**3), "negative": (e_negative, -A + np.abs(B)),
    "floor": (e_floor, np.floor(A) + np.ceil(B)), "mix": (e_mix, A * 0.75 + B * 0.25),
    "clamp": (e_clamp, np.clip(A, -1, 1) + np.clip(B, 0, 2)),
    "select": (e_select, np.minimum(A, B)), "compare": (e_compare, np.where(A < B, 1, 2)),
    "mod": (e_mod, A - B * np.floor(A / B)), "in_place": (e_in_place, ((A + B) * 2 - A) / 4),
}  # fmt: skip


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name, rank):
    f, want = ELEMENTWISE[name]
    if rank == 1:
        x, y, z = (ti.Vector.field(4, ti.f32, ()) for _ in range(3))
    else:
        x, y, z = (ti.Matrix.field(2, 2, ti.f32, ()) for _ in range(3))
    shape = (4,) if rank == 1 else (2, 2)
    x.from_numpy(A.reshape(shape))
    y.from_numpy(B.reshape(shape))

    @ti.kernel
    def run():
        for i in range(1):
            z[None] = f(x[None], y[None])

    run()
    np.testing.assert_allclose(z.to_numpy(), want.reshape(shape), rtol=1e-6, atol=1e-6)


def test_integer_vectors():
    @ti.kernel
    def run(out: ti.types.ndarray(), a: ti.i32):
        v = ti.Vector([a, 7, -7])
        w = v // 2
        out[0] = w.x + 10 * w.y + 100 * w.z
        w = v % 4
        out[1] = w.x + 10 * w.y + 100 * w.z
        w = (v & 3) | 4
        out[2] = w.x + 10 * w.y + 100 * w.z
        w = v << 1
        out[3] = w.sum()
        u = v / 2
        out[4] = u.sum()
        out[5] = ti.cast(v * 1.6, ti.i32).sum()
        out[6] = ti.cast(v, float).sum() / 2
        w = -v
        out[7] = w.x
        out[8] = (v ^ 1).sum()

    out = np.zeros(9, np.float32)
    run(out, 5)
    v = np.array([5, 7, -7], np.int32)
    digits = np.array([1, 10, 100])
    want = [v // 2 @ digits, v % 4 @ digits, ((v & 3) | 4) @ digits, (v << 1).sum(), 2.5]
    want += [np.trunc(v * 1.6).sum(), 2.5, -5, (v ^ 1).sum()]
    np.testing.assert_allclose(out, want)


def test_any_and_all():
    @ti.kernel
    def run(out: ti.types.ndarray(), a: ti.i32):
        v = ti.Vector([a, 0, 3])
        out[0] = (v > 0).any()
        out[1] = (v > 0).all()
        out[2] = (v >= 0).all()
        out[3] = (v == ti.Vector([a, 0, 3])).all()
        out[4] = v.any()
        out[5] = v.all()
        out[6] = (v != v).any()
        if all(v < 4) and any(v == 3):
            out[7] = 1

    out = np.zeros(8, np.int32)
    run(out, 2)
    np.testing.assert_array_equal(out, [1, 0, 1, 1, 1, 0, 0, 1])
    run(out, -2)
    np.testing.assert_array_equal(out[:3], [1, 0, 0])


def test_reductions():
    @ti.kernel
    def run(out: ti.types.ndarray(), a: ti.f32):
        m = ti.Matrix([[a, 2.0], [-3.0, 4.0], [5.0, -6.0]])
        out[0] = m.sum()
        out[1] = m.max()
        out[2] = m.min()
        out[3] = ti.Vector([a, 5.0]).max()
        out[4] = m.norm_sqr()

    out = np.zeros(5, np.float32)
    run(out, 1)
    np.testing.assert_allclose(out, [3, 5, -6, 5, 91])


# --- linear algebra ----------------------------------------------------------------------------


@pytest.mark.parametrize("dims", [(2, 2, 2), (3, 3, 3), (2, 3, 4), (4, 1, 2), (1, 3, 1)], ids=str)
def test_matmul(dims):
    n, k, m = dims
    rng = np.random.default_rng(1)
    a, b = rng.random((n, k), np.float32), rng.random((k, m), np.float32)
    v = rng.random(k, np.float32)
    x, y = ti.Matrix.field(n, k, ti.f32, ()), ti.Matrix.field(k, m, ti.f32, ())
    w = ti.Vector.field(k, ti.f32, ())
    p, q = ti.Matrix.field(n, m, ti.f32, ()), ti.Vector.field(n, ti.f32, ())
    x.from_numpy(a)
    y.from_numpy(b)
    w.from_numpy(v)

    @ti.kernel
    def run():
        for i in range(1):
            p[None] = x[None] @ y[None]
            q[None] = x[None] @ w[None]

    run()
    np.testing.assert_allclose(p.to_numpy().reshape(n, m), a @ b, rtol=1e-5)
    np.testing.assert_allclose(q.to_numpy(), a @ v, rtol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("t", ["f32", "f64"])
def test_square_matrices(n, t, need):
    need(t)
    dtype = getattr(ti, t)
    numpy_type = {"f32": np.float32, "f64": np.float64}[t]
    a = (np.random.default_rng(n).random((n, n)) + 1.5 * np.eye(n)).astype(numpy_type)
    x, inverse, transpose = (ti.Matrix.field(n, n, dtype, ()) for _ in range(3))
    numbers = ti.field(dtype, 2)
    x.from_numpy(a)

    @ti.kernel
    def run():
        for i in range(1):
            m = x[None]
            inverse[None] = m.inverse()
            transpose[None] = m.transpose()
            numbers[0] = m.trace()
            numbers[1] = m.determinant()

    run()
    tolerance = 1e-4 if t == "f32" else 1e-12
    got = inverse.to_numpy().reshape(n, n)
    np.testing.assert_allclose(got, np.linalg.inv(a), rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(transpose.to_numpy().reshape(n, n), a.T)
    want = [np.trace(a), np.linalg.det(a)]
    np.testing.assert_allclose(numbers.to_numpy(), want, rtol=tolerance)


def test_components_at_computed_indices_of_wide_integers(own_runtime, need):
    need("i64")
    ti.init(default_ip=ti.i64)
    out = ti.field(ti.f32, 8)

    @ti.kernel
    def run():
        for k in range(2):
            m = ti.Matrix([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
            i = ti.cast(k, ti.i64)
            out[i] = m[i, 1]
            out[2 + i] = m[1, i]
            out[4 + i] = m[i, i]
            m[1, i] += 10.0
            m[i, 2] = 7.0
            out[6 + i] = m[i, 2] + m[1, i]

    run()
    np.testing.assert_array_equal(out.to_numpy(), [2, 5, 4, 5, 1, 5, 21, 22])


def test_methods_named_by_their_class():
    v = ti.Vector.field(2, ti.f32, ())
    v[None] = [3.0, 4.0]

    @ti.kernel
    def run() -> ti.f32:
        unit = ti.Vector.normalized(v[None], 1e-9)
        return ti.Vector.dot(v[None], unit) + ti.Matrix.norm(unit, eps=0.0)

    assert run() == pytest.approx(6.0)


def test_methods_named_by_their_class_need_a_vector():
    @ti.kernel
    def run() -> ti.f32:
        return ti.Vector.norm()

    with pytest.raises(ti.TaichiCompilationError, match=r"`Vector.norm` needs a vector"):
        run()


def test_transpose_of_rectangles():
    @ti.func
    def f():
        m = ti.Matrix([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        return m.transpose()

    np.testing.assert_array_equal(evaluate(f, (3, 2)), [[1, 4], [2, 5], [3, 6]])


def test_norms_and_products():
    a, b = np.array([1.0, 2.0, -2.0]), np.array([0.5, -1.0, 3.0])

    @ti.kernel
    def run(out: ti.types.ndarray(), x: ti.f32):
        v = ti.Vector([x, 2.0, -2.0])
        w = ti.Vector([0.5, -1.0, 3.0])
        out[0] = v.norm()
        out[1] = v.norm_sqr()
        out[2] = v.dot(w)
        out[3] = v.norm(1e-2)
        u = v.normalized()
        out[4], out[5], out[6] = u[0], u[1], u[2]
        c = v.cross(w)
        out[7], out[8], out[9] = c[0], c[1], c[2]
        out[10] = v.xy.cross(w.xy)
        out[11] = v.norm_inv()
        o = v.outer_product(w)
        out[12] = o[0, 2]
        out[13] = o[2, 0]

    out = np.zeros(14, np.float32)
    run(out, 1)
    c = np.cross(a, b)
    want = [3, 9, a @ b, np.sqrt(9.01), 1 / 3, 2 / 3, -2 / 3, *c, a[0] * b[1] - a[1] * b[0], 1 / 3]
    np.testing.assert_allclose(out, [*want, a[0] * b[2], a[2] * b[0]], rtol=1e-5)


def test_math_functions_on_vectors():
    @ti.kernel
    def run(out: ti.types.ndarray(), x: ti.f32):
        v = vec3(x, 2, -2)
        w = vec3(0.5, -1, 3)
        out[0] = ti.math.dot(v, w)
        out[1] = ti.math.length(v)
        out[2] = ti.math.distance(v, w)
        out[3] = ti.math.normalize(v).y
        out[4] = ti.math.cross(v, w).z
        r = ti.math.reflect(v, vec3(0, 1, 0))
        out[5] = r.x + r.y * 10 + r.z * 100
        out[6] = ti.math.mix(v, w, vec3(0, 0.5, 1)).sum()
        out[7] = ti.math.fract(vec2(1.25, -0.25)).sum()
        out[8] = ti.math.step(0.0, v).sum()
        out[9] = ti.math.smoothstep(0.0, 4.0, vec2(1, 2)).sum()
        out[10] = ti.math.sign(v).sum()
        out[11] = ti.sqrt(vec2(4, 9)).sum()
        out[12] = ti.math.max(v, w).sum()
        out[13] = ti.math.mod(v, 1.5).sum()
        out[14] = ti.math.pow(vec2(2, 3), 2).sum()
        out[15] = ti.math.radians(vec2(180, 90)).sum()

    out = np.zeros(16, np.float32)
    run(out, 1)
    a, b = np.array([1, 2, -2.0]), np.array([0.5, -1, 3])
    want = [
        a @ b, 3, np.linalg.norm(a - b), 2 / 3, np.cross(a, b)[2], 1 - 20 - 200,
        1 + 0.5 + 3, 1.0, 2, 3 / 16 * (3 - 0.5) / 3 + 0.5, 1, 5, 1 + 2 + 3, 1 + 0.5 + 1, 13,
        np.pi * 1.5,
    ]  # fmt: skip
    want[9] = sum(t * t * (3 - 2 * t) for t in (0.25, 0.5))
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)


def test_rotations():
    @ti.func
    def turn():
        return ti.math.rotation2d(ti.math.pi / 6)

    @ti.func
    def about_axis():
        return ti.math.rot_by_axis(vec3(0, 0, 1), ti.math.pi / 3)

    @ti.func
    def moved():
        return ti.math.translate(1, 2, 3) @ ti.math.scale(2, 3, 4) @ vec4(1, 1, 1, 1)

    c, s = np.cos(np.pi / 6), np.sin(np.pi / 6)
    np.testing.assert_allclose(evaluate(turn, (2, 2)), [[c, -s], [s, c]], atol=1e-3)
    m = evaluate(about_axis, (4, 4))
    np.testing.assert_allclose(m @ m.T, np.eye(4), atol=3e-3)
    np.testing.assert_allclose(np.abs(m[0, 1]), np.sin(np.pi / 3), atol=1e-3)
    np.testing.assert_allclose(evaluate(moved, (4,)), [3, 5, 7, 1])


def test_complex_numbers():
    @ti.func
    def product():
        return ti.math.cmul(vec2(1, 2), vec2(3, -1))

    @ti.func
    def quotient():
        return ti.math.cdiv(vec2(1, 2), vec2(3, -1))

    @ti.func
    def power():
        return ti.math.cexp(vec2(0.5, 1)) + ti.math.cconj(vec2(1, 2))

    as_pair = lambda z: [z.real, z.imag]  # noqa: E731
    np.testing.assert_allclose(evaluate(product, (2,)), as_pair((1 + 2j) * (3 - 1j)), rtol=1e-5)
    np.testing.assert_allclose(evaluate(quotient, (2,)), as_pair((1 + 2j) / (3 - 1j)), rtol=1e-5)
    want = as_pair(np.exp(0.5 + 1j) + (1 - 2j))
    np.testing.assert_allclose(evaluate(power, (2,)), want, rtol=1e-3, atol=1e-3)


# --- fields of tensors -------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["AOS", "SOA"])
@pytest.mark.parametrize(
    "dims", [(1,), (2,), (3,), (4,), (7,), (2, 2), (3, 2), (1, 4), (4, 4)], ids=str
)
def test_tensor_fields(dims, layout):
    options = {"layout": getattr(ti.Layout, layout)}
    make = ti.Vector.field if len(dims) == 1 else ti.Matrix.field
    x, y = make(*dims, ti.f32, (3, 5), **options), make(*dims, ti.f32, (5, 3), **options)
    values = np.random.default_rng(1).random((3, 5, *dims), np.float32)
    x.from_numpy(values)

    @ti.kernel
    def run():
        for i, j in x:
            y[j, i] = x[i, j] * 2
            x[i, j] += y[j, i]

    run()
    np.testing.assert_allclose(y.to_numpy(), values.swapaxes(0, 1) * 2, rtol=1e-6)
    np.testing.assert_allclose(x.to_numpy(), values * 3, rtol=1e-6)


@pytest.mark.parametrize("t", ["i32", "u32", "f64", "i64", "u8", "i16", "f16"])
def test_tensor_fields_of_other_types(t, need):
    need(t)
    x = ti.Vector.field(3, getattr(ti, t), 11)

    @ti.kernel
    def run():
        for i in x:
            x[i] = [i, 2 * i, 3]
            x[i].z += 1

    run()
    k = np.arange(11)
    np.testing.assert_array_equal(x.to_numpy(), np.stack([k, 2 * k, np.full(11, 4)], 1))


def test_vec3_elements_do_not_overlap():
    x = ti.Vector.field(3, ti.f32, 100)

    @ti.kernel
    def run():
        for i in x:
            if i % 2:
                x[i] = vec3(i, i + 0.25, i + 0.5)

    x.fill(-1)
    run()
    a = x.to_numpy()
    assert (a[::2] == -1).all()
    k = np.arange(1, 100, 2)
    np.testing.assert_array_equal(a[1::2], np.stack([k, k + 0.25, k + 0.5], 1))


def test_tensors_as_arguments_and_results():
    mat23 = ti.types.matrix(2, 3, ti.f32)

    @ti.kernel
    def run(v: vec3, m: mat23, k: ivec2) -> ti.math.vec2:
        return m @ v + k

    r = run(vec3(1, 2, 3), mat23([[1, 0, 2], [0, 1, 0]]), ivec2(10, 20))
    assert [r[0], r[1]] == [17, 22]
    r = run(ti.Vector([1.0, 2.0, 3.0]), ti.Matrix([[1.0, 0, 2], [0, 1, 0]]), ti.Vector([10, 20]))
    assert [r.x, r.y] == [17, 22]

    @ti.kernel
    def matrix() -> ti.types.matrix(2, 2, ti.i32):
        return ti.Matrix([[1, 2], [3, 4]])

    m = matrix()
    assert [m[0, 0], m[0, 1], m[1, 0], m[1, 1]] == [1, 2, 3, 4]


def test_tensors_through_functions():
    @ti.func
    def rotate(v: vec2, angle: ti.f32) -> vec2:
        c, s = ti.cos(angle), ti.sin(angle)
        return vec2(c * v.x - s * v.y, s * v.x + c * v.y)

    @ti.func
    def changed(v):
        v.x = 100
        return v

    @ti.func
    def in_place(v: ti.template()):
        v.y = 50

    @ti.kernel
    def run(out: ti.types.ndarray()):
        v = vec2(1, 0)
        w = rotate(v, ti.math.pi / 2)
        out[0], out[1] = w.x, w.y
        u = changed(v)
        out[2], out[3] = v.x, u.x
        in_place(v)
        out[4] = v.y

    out = np.zeros(5, np.float32)
    run(out)
    np.testing.assert_allclose(out, [0, 1, 1, 100, 50], atol=2e-3)


def test_big_vector_and_matrix():
    @ti.kernel
    def run() -> ti.f32:
        v = ti.Vector([float(i) for i in range(16)])
        m = ti.Matrix([[i * 5 + j for j in range(5)] for i in range(5)])
        s = 0.0
        for i in range(16):
            s += v[i] * v[15 - i]
        return s + m.sum() + (m @ m)[4, 4]

    k = np.arange(16)
    m = np.arange(25).reshape(5, 5)
    assert run() == (k * k[::-1]).sum() + m.sum() + (m @ m)[4, 4]


# --- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["add", "matmul", "index", "cross", "component", "inverse"])
def test_mistakes_are_compile_errors(kind):
    @ti.kernel
    def run() -> ti.f32:
        a, b = ti.Vector([1.0, 2.0, 3.0]), ti.Vector([1.0, 2.0])
        m = ti.Matrix([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]])
        r = 0.0
        if ti.static(kind == "add"):
            r = (a + b).x
        elif ti.static(kind == "matmul"):
            r = (m @ b).x
        elif ti.static(kind == "index"):
            r = a[5]
        elif ti.static(kind == "cross"):
            r = a.cross(b).x
        elif ti.static(kind == "component"):
            r = b.z
        else:
            r = m.inverse()[0, 0]
        return r

    with pytest.raises((ti.TaichiCompilationError, ti.TaichiRuntimeError)) as caught:
        run()
    assert "test_matrices.py" in str(caught.value)
