"""`ti.math`: every function on numbers and on vectors, mixed with numbers, against numpy."""

import math
from functools import reduce

import numpy as np
import pytest

import vkchi as ti

tm = ti.math
vec2, vec3, vec4, mat2, mat3, mat4 = tm.vec2, tm.vec3, tm.vec4, tm.mat2, tm.mat3, tm.mat4
ivec3 = tm.ivec3

A, B, C = [0.7, -1.3, 2.5], [0.2, 0.9, -0.4], [0.25, 0.5, 1.0]
POSITIVE = [0.7, 1.3, 2.5]
SMALL = [0.7, -0.3, 0.25]


def run(f, *args):
    """f of numbers and vectors of 3 (lists), in a kernel: numpy."""
    given = [ti.Vector(x) if isinstance(x, list) else x for x in args]
    probe = any(isinstance(x, list) for x in args)
    out = ti.Vector.field(3, ti.f32, ()) if probe else ti.field(ti.f32, ())

    @ti.kernel
    def kernel():
        for _ in range(1):
            out[None] = f(*given)

    kernel()
    return out.to_numpy()


def np_smoothstep(low, high, x):
    t = np.clip((np.asarray(x) - low) / (np.asarray(high) - low), 0, 1)
    return t * t * (3 - 2 * t)


def np_mix(x, y, a):
    return np.asarray(x) * (1 - np.asarray(a)) + np.asarray(y) * np.asarray(a)


def np_mod(x, y):
    return np.asarray(x) - np.asarray(y) * np.floor(np.asarray(x) / np.asarray(y))


ONE = [
    (tm.sin, np.sin, A), (tm.cos, np.cos, A), (tm.tan, np.tan, A), (tm.asin, np.arcsin, SMALL),
    (tm.acos, np.arccos, SMALL), (tm.tanh, np.tanh, A), (tm.exp, np.exp, A),
    (tm.log, np.log, POSITIVE), (tm.log2, np.log2, POSITIVE), (tm.sqrt, np.sqrt, POSITIVE),
    (tm.floor, np.floor, A), (tm.ceil, np.ceil, A), (tm.round, np.rint, A), (tm.sign, np.sign, A),
    (tm.fract, lambda x: x - np.floor(x), A), (tm.degrees, np.degrees, A),
    (tm.radians, np.radians, A), (ti.abs, np.abs, A), (ti.rsqrt, lambda x: x**-0.5, POSITIVE),
    (tm.isnan, np.isnan, A), (tm.isinf, np.isinf, A),
]  # fmt: skip
MORE = [
    (tm.atan2, np.arctan2, (A, B)), (tm.pow, np.power, (POSITIVE, A)),
    (tm.mod, np_mod, (A, POSITIVE)), (tm.max, np.maximum, (A, B)), (tm.min, np.minimum, (A, B)),
    (tm.step, lambda e, x: np.where(np.less(x, e), 0, 1), (A, B)),
    (tm.mix, np_mix, (A, B, C)), (tm.clamp, np.clip, (A, [-1, -1, -1], POSITIVE)),
    (tm.smoothstep, np_smoothstep, ([0, -2, 2], [1, 1, 3], A)),
    (ti.max, lambda *x: reduce(np.maximum, x), (A, B, C, SMALL)),
    (ti.min, lambda *x: reduce(np.minimum, x), (A, B, C, SMALL)),
]  # fmt: skip


def name_of(case):
    return getattr(case, "__name__", "")


@pytest.mark.parametrize(("f", "numpy", "x"), ONE, ids=name_of)
def test_of_one(f, numpy, x):
    want = numpy(np.array(x)).astype(np.float32)
    np.testing.assert_allclose(run(f, x), want, rtol=2e-5, atol=4e-4)
    for number, expected in zip(x, want):
        np.testing.assert_allclose(run(f, number), expected, rtol=2e-5, atol=4e-4)


@pytest.mark.parametrize(("f", "numpy", "args"), MORE, ids=name_of)
def test_of_more(f, numpy, args):
    """Vectors alone, numbers alone, and each argument a number beside vectors."""
    same = [*args]
    np.testing.assert_allclose(run(f, *args), numpy(*args), rtol=2e-5, atol=1e-5)
    numbers = [x[0] for x in args]
    np.testing.assert_allclose(run(f, *numbers), numpy(*numbers), rtol=2e-5, atol=1e-5)
    for k in range(len(args)):
        mixed = [*same[:k], numbers[k], *same[k + 1 :]]
        np.testing.assert_allclose(run(f, *mixed), numpy(*mixed), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["asin", "acos"])
def test_arc_functions_are_precise(name):
    """Drivers' own are off by up to 4e-4."""
    x = np.linspace(-1, 1, 1001).astype(np.float32)
    y, f = np.zeros_like(x), getattr(tm, name)

    @ti.kernel
    def kernel(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = f(x[i])

    kernel(x, y)
    want = getattr(np, f"arc{name[1:]}")(x.astype(float))
    np.testing.assert_allclose(y, want, rtol=2e-6, atol=1e-7)


def test_tanh_of_small_numbers():
    x = np.array([1e-6, -1e-4, 1e-3, 0.1, 5, -50], np.float32)
    y = np.zeros_like(x)

    @ti.kernel
    def kernel(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = ti.tanh(x[i])

    kernel(x, y)
    np.testing.assert_allclose(y, np.tanh(x.astype(float)), rtol=2e-6)


# --- geometry ------------------------------------------------------------------------------------

V, W = np.array(A), np.array(B)
GEOMETRY = [
    ("tm.length(v)", np.linalg.norm(V)),
    ("tm.distance(v, w)", np.linalg.norm(V - W)),
    ("tm.dot(v, w)", V @ W),
    ("v.norm()", np.linalg.norm(V)),
    ("v.norm(0.5)", math.sqrt(V @ V + 0.5)),
    ("v.norm_sqr()", V @ V),
    ("v.norm_inv()", 1 / np.linalg.norm(V)),
    ("v.norm_inv(0.5)", 1 / math.sqrt(V @ V + 0.5)),
    ("tm.cross(v.xy, w.xy)", V[0] * W[1] - V[1] * W[0]),
    ("v.sum()", V.sum()),
    ("v.max()", V.max()),
    ("v.min()", V.min()),
]
VECTORS = [
    ("tm.normalize(v)", V / np.linalg.norm(V)),
    ("v.normalized()", V / np.linalg.norm(V)),
    ("v.normalized(0.5)", V / (np.linalg.norm(V) + 0.5)),
    ("tm.cross(v, w)", np.cross(V, W)),
    ("tm.reflect(v, vec3(0, 1, 0))", V * [1, -1, 1]),
    ("(tm.translate(1, 2, 3) @ vec4(v, 1)).xyz", V + [1, 2, 3]),
    ("(tm.scale(1, 2, 3) @ vec4(v, 1)).xyz", V * [1, 2, 3]),
    ("tm.eye(3) @ v", V),
    ("tm.inverse(mat3(2, 0, 0, 0, 4, 0, 0, 0, 8)) @ v", V / [2, 4, 8]),
]


def function_of(expression, names, folder):
    """A ti.func of an expression: in a file, since Taichi reads source."""
    path = folder / "expression.py"
    path.write_text(f"def f({names}):\n    return {expression}\n")
    code, found = compile(path.read_text(), str(path), "exec"), dict(globals())
    exec(code, found)
    return ti.func(found["f"])


@pytest.mark.parametrize(("expression", "want"), GEOMETRY + VECTORS)
def test_geometry_functions(expression, want, tmp_path):
    function = function_of(expression, "v, w", tmp_path)
    v, w = ti.Vector(A), ti.Vector(B)
    out = ti.Vector.field(3, ti.f32, ()) if np.ndim(want) else ti.field(ti.f32, ())

    @ti.kernel
    def kernel():
        for _ in range(1):
            out[None] = function(v, w)

    kernel()
    np.testing.assert_allclose(out.to_numpy(), want, rtol=1e-5, atol=1e-6)


def test_refraction_obeys_snell():
    @ti.kernel
    def kernel(angle: ti.f32, eta: ti.f32) -> vec2:
        return tm.refract(vec2(ti.sin(angle), -ti.cos(angle)), vec2(0, 1), eta)

    for angle in (0.0, 0.4, 0.9):
        found = kernel(angle, 0.75)
        np.testing.assert_allclose(found.norm(), 1, rtol=1e-3)
        np.testing.assert_allclose(found.x, math.sin(angle) * 0.75, rtol=1e-3, atol=1e-3)
        assert found.y < 0
    assert kernel(1.2, 1.5).norm() == 0  # total reflection


def test_rotations_turn():
    @ti.kernel
    def plane(angle: ti.f32) -> vec2:
        return tm.rotation2d(angle) @ vec2(1, 0)

    @ti.kernel
    def space(angle: ti.f32) -> mat4:
        return tm.rot_by_axis(vec3(0, 0, 2), angle)

    @ti.kernel
    def all_axes(a: ti.f32, b: ti.f32, c: ti.f32) -> mat4:
        return tm.rotation3d(a, b, c)

    @ti.kernel
    def direction(angle: ti.f32) -> vec2:
        return tm.vdir(angle)

    c, s = math.cos(0.7), math.sin(0.7)
    np.testing.assert_allclose(plane(0.7), [c, s], atol=4e-4)
    np.testing.assert_allclose(direction(0.7), [c, s], atol=4e-4)
    want = np.eye(4)
    want[:2, :2] = [[c, s], [-s, c]]
    np.testing.assert_allclose(space(0.7).to_numpy(), want, atol=4e-4)
    m = all_axes(0.3, -0.8, 1.9).to_numpy()
    np.testing.assert_allclose(m @ m.T, np.eye(4), atol=1e-3)
    np.testing.assert_allclose(np.linalg.det(m), 1, atol=1e-3)


# --- complex numbers -----------------------------------------------------------------------------

Z1, Z2 = 0.7 - 1.3j, -0.4 + 0.9j
COMPLEX = [
    ("tm.cconj(x)", Z1.conjugate()),
    ("tm.cmul(x, y)", Z1 * Z2),
    ("tm.cdiv(x, y)", Z1 / Z2),
    ("tm.cinv(x)", 1 / Z1),
    ("tm.csqrt(x)", Z1**0.5),
    ("tm.cexp(x)", np.exp(Z1)),
    ("tm.clog(x)", np.log(Z1)),
    ("tm.cpow(x, 3)", Z1**3),
    ("tm.cpow(x, 2.5)", Z1**2.5),
    ("tm.cpow(x, -1)", 1 / Z1),
]


@pytest.mark.parametrize(("expression", "want"), COMPLEX)
def test_complex_functions(expression, want, tmp_path):
    function = function_of(expression, "x, y", tmp_path)

    @ti.kernel
    def kernel(x: vec2, y: vec2) -> vec2:
        return function(x, y)

    found = kernel(vec2(Z1.real, Z1.imag), vec2(Z2.real, Z2.imag))
    np.testing.assert_allclose(found, [want.real, want.imag], rtol=1e-3, atol=1e-3)


# --- bits, constants -----------------------------------------------------------------------------


def test_bit_functions():
    numbers = np.array([0, 1, 7, 255, -1, -(2**31), 2**31 - 1], np.int32)
    out = np.zeros((len(numbers), 2), np.int32)

    @ti.kernel
    def kernel(x: ti.types.ndarray(), out: ti.types.ndarray()):
        for i in x:
            out[i, 0] = tm.popcnt(x[i])
            out[i, 1] = tm.clz(x[i])

    kernel(numbers, out)
    words = [f"{int(x) & 0xFFFFFFFF:032b}" for x in numbers]
    assert out[:, 0].tolist() == [w.count("1") for w in words]
    assert out[:, 1].tolist() == [len(w) - len(w.lstrip("0")) for w in words]


def test_math_constants():
    @ti.kernel
    def kernel() -> vec4:
        return vec4(tm.pi, tm.e, tm.inf, tm.isnan(tm.nan))

    np.testing.assert_allclose(kernel(), [math.pi, math.e, math.inf, 1], rtol=1e-6)
    assert (tm.pi, tm.e, tm.inf) == (math.pi, math.e, math.inf)
    assert math.isnan(tm.nan)
