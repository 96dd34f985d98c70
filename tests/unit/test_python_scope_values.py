"""Values in Python scope: vectors, matrices, `ti.math`, types as functions, ndrange."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest

from vkchi import types
from vkchi.errors import ArgumentError, KernelIndexError, KernelSyntaxError, KernelTypeError
from vkchi.lang import atomic_functions, compile_time, elementwise, random, simt
from vkchi.lang import math as tm
from vkchi.lang.linear_algebra import decompose
from vkchi.lang.matrix import Matrix, Vector, make_element, zero
from vkchi.lang.ndrange import grouped, ndrange
from vkchi.types import f32, f64, i8, i32, i64, u8, u64

V, M = Vector([1.0, 2.0]), Matrix([[1, 2], [3, 4]])
# Only expressions in strings name these.
NAMES = (atomic_functions, decompose, random, simt, i32, u8)


def listed(x: Any) -> Any:
    return x.to_list() if isinstance(x, Matrix) else x


# --- vectors and matrices; the expected results are Taichi 1.7.4's --------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("V + 1", [2, 3]), ("2 - V", [1, 0]), ("V * V", [1, 4]), ("V / 2", [0.5, 1]),
        ("2 / V", [2, 1]), ("V // 1", [1, 2]), ("V % 2", [1, 0]), ("V ** 2", [1, 4]),
        ("2 ** V", [2, 4]), ("-V", [-1, -2]), ("abs(-V)", [1, 2]), ("~M", [[-2, -3], [-4, -5]]),
        ("M << 1", [[2, 4], [6, 8]]), ("M & 1", [[1, 0], [1, 0]]), ("M | 1", [[1, 3], [3, 5]]),
        ("M ^ 1", [[0, 3], [2, 5]]), ("M >> 1", [[0, 1], [1, 2]]), ("V == V", [True, True]),
        ("V < 2", [True, False]), ("V != 1", [False, True]), ("M @ M", [[7, 10], [15, 22]]),
        ("M @ V", [5, 11]), ("V @ M", [7, 10]), ("V @ V", 5),
        ("M + [[1, 1], [1, 1]]", [[2, 3], [4, 5]]),
        ("[1, 2] + V", [2, 4]), ("V + (1, 2)", [2, 4]), ("np.array([1, 2]) + V", [2, 4]),
        ("V + np.array([1, 2])", [2, 4]), ("np.float32(2) * V", [2, 4]), ("np.square(V)", [1, 4]),
        ("V.x", 1), ("V.yx", [2, 1]), ("V.g", 2), ("V.tts", [2, 2, 1]), ("V[-1]", 2),
        ("V[0:1]", [1]),
        ("M[0, 1]", 2), ("M[0, :]", [1, 2]), ("M[:, 1]", [2, 4]), ("V.n", 2), ("M.m", 2),
        ("V.m", 1),
        ("V.get_shape()", (2,)), ("M.get_shape()", (2, 2)), ("len(M)", 2), ("list(V)", [1, 2]),
        ("max(V)", 2), ("sum(V)", 3), ("V.norm()", 5**0.5), ("V.norm(0.1)", 2.258317958127243),
        ("V.norm_sqr()", 5), ("V.norm_inv()", 0.4472135954999579), ("V.norm_inv(0.1)", 0.44280744),
        ("V.normalized()", [0.4472136, 0.89442719]), ("V.normalized(0.5)", [0.365488, 0.730976]),
        ("V.dot(V)", 5), ("V.cross(V)", 0), ("V.dot([1, 2])", 5),
        ("Vector([1., 2, 3]).cross(Vector([3., 2, 1]))", [-4, 8, -4]),
        ("V.outer_product(V)", [[1, 2], [2, 4]]), ("M.transpose()", [[1, 3], [2, 4]]),
        ("M.trace()", 5), ("M.determinant()", -2), ("M.inverse()", [[-2, 1], [1.5, -0.5]]),
        ("M.sum()", 10), ("M.max()", 4), ("M.min()", 1), ("M.any()", True), ("M.all()", True),
        ("V.cast(int)", [1, 2]), ("Vector([1, 2]) / 2", [0.5, 1]), ("Vector([1, 2]) // 2", [0, 1]),
        ("Vector.zero(float, 2)", [0, 0]), ("Matrix.one(int, 1, 2)", [[1, 1]]),
        ("Matrix.identity(float, 2)", [[1, 0], [0, 1]]), ("Matrix.diag(2, 3)", [[3, 0], [0, 3]]),
        ("Vector.unit(3, 1)", [0, 1, 0]), ("Matrix.rows([V, V])", [[1, 2], [1, 2]]),
        ("Matrix.cols([V, [3, 4]])", [[1, 3], [2, 4]]), ("Vector([V, V])", [[1, 2], [1, 2]]),
        ("Vector(np.array([1., 2.]))", [1, 2]), ("Matrix(M)", [[1, 2], [3, 4]]),
    ],
)  # fmt: skip
def test_scalar_values(expression: str, expected: Any) -> None:
    got = eval(expression)
    np.testing.assert_allclose(listed(got), expected, rtol=1e-6)
    assert np.shape(listed(got)) == np.shape(expected)


def test_numbers_come_out_as_pythons() -> None:
    assert type(V[0]) is float and type(M[0, 0]) is int and type(V.norm()) is float
    assert type(V.sum()) is float and type(elementwise.sqrt(4.0)) is float
    assert type(Vector([0.1], dt=f32)[0]) is np.float32 and str(Vector([0.1], dt=f32)[0]) == "0.1"


def test_writing_components() -> None:
    v, m = Vector([1.0, 2.0, 3.0]), Matrix([[1, 2], [3, 4]])
    v.x = 5
    v.zy = [6, 7]
    v[0] += 1
    m[0, 1] = 9
    m[1, :] = [0, 0]
    assert v.to_list() == [6, 7, 6] and m.to_list() == [[1, 9], [0, 0]]
    v.fill(0)
    assert v.to_list() == [0, 0, 0]
    w = v
    w += 1
    assert v.to_list() == [0, 0, 0]
    with pytest.raises(AttributeError):
        v.foo = 1
    with pytest.raises(KernelSyntaxError):
        v.w = 1


def test_declared_types() -> None:
    assert Vector([1, 2], dt=f32).to_numpy().dtype == np.float32
    assert (Vector([1, 2], dt=f32) + 1).dt is f32
    assert Vector([1.5, 2], i32).to_list() == [1, 2]
    assert Vector([1.0]).dt is None and V.to_numpy().dtype == np.float64
    with pytest.raises(KernelTypeError, match="number type"):
        Vector([1], dt="f32")


def test_vector_repr() -> None:
    assert repr(V) == str(V) == f"{V}" == "[1. 2.]"
    assert repr(M) == "[[1 2]\n [3 4]]"


def test_vector_copies() -> None:
    for made in (copy.deepcopy(V), copy.copy(V), pickle.loads(pickle.dumps(V))):
        assert isinstance(made, Vector) and made.to_list() == [1, 2]
    assert pickle.loads(pickle.dumps(Vector([1, 2], dt=f32))).dt is f32
    assert {V: 1}[V] == 1


@pytest.mark.parametrize(
    ("expression", "kind", "text"),
    [
        ("V + Vector([1, 2, 3])", KernelTypeError, "vector of 2 and vector of 3"),
        ("V + M", KernelTypeError, "vector of 2 and 2 by 2 matrix"),
        ("V @ Vector([1, 2, 3])", KernelTypeError, "as matrices"),
        ("V[2]", KernelIndexError, "out of range"),
        ("M[0]", KernelIndexError, "2 indices needed, 1 given"),
        ("V.z", KernelSyntaxError, "needs a longer vector"),
        ("V.shape_", AttributeError, "has no `shape_`"),
        ("bool(V)", KernelTypeError, "neither true nor false"),
        ("Vector(5)", KernelTypeError, "list of numbers"),
        ("Vector(['a'])", KernelTypeError, "list of numbers"),
        ("Matrix([[1, 2], [3]])", KernelTypeError, "same length"),
        ("V.transpose()", KernelTypeError, "takes a matrix"),
        ("Matrix([[1, 2, 3]]).inverse()", KernelTypeError, "square"),
        ("Matrix.identity(float, 5).determinant()", KernelTypeError, "up to 4 by 4"),
        ("V.cross(Vector([1, 2, 3]))", KernelTypeError, "same length"),
        ("tm.vec3(1, 2)", KernelTypeError, "has 3 components, and 2"),
        ("random.random()", KernelSyntaxError, "only be called inside a kernel"),
        ("atomic_functions.atomic_add(1, 2)", KernelSyntaxError, "only be called inside a kernel"),
        ("simt.block.sync()", KernelSyntaxError, "only be called inside a kernel"),
        ("compile_time.static_assert(False, 'x')", AssertionError, "x"),
        ("decompose.svd(Matrix.identity(float, 4))", KernelTypeError, "2 by 2 and 3 by 3"),
        ("decompose.solve(M, Vector([1, 2, 3]))", KernelTypeError, "the same length"),
        ("ndrange(2.5)", KernelTypeError, "integers"),
        ("ndrange((1, 2, 3))", KernelSyntaxError, "tuple of 3"),
        ("simt.subgroup.nonsense", AttributeError, "nonsense"),
        ("elementwise.max()", KernelTypeError, "at least one"),
    ],
)
def test_invalid_vectors_raise(expression: str, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        eval(expression)
    assert text in str(caught.value)


# --- elements of arrays ------------------------------------------------------------------------


class Memory:
    """An array in memory, as the array layer shows it."""

    def __init__(self, elem: Any, values: Any) -> None:
        self.elem, self.values = elem, values

    def read(self, index: tuple[int, ...]) -> Any:
        v = self.values[index]
        return v.item() if np.ndim(v) == 0 else np.array(v)

    def write(self, index: tuple[int, ...], value: Any) -> None:
        self.values[index] = value

    def place_of(self, index: tuple[int, ...]) -> None:
        """No tape watches the array."""


def test_elements_are_windows() -> None:
    x = Memory(types.vector(2, f32), np.zeros((3, 2), np.float32))
    v = make_element(x, (1,))
    assert isinstance(v, Vector)
    v[0] = 5
    v.y -= 3
    assert x.values[1].tolist() == [5, -3]
    x.values[1] = [7, 8]
    assert v.to_list() == [7, 8] and (v + 1).to_list() == [8, 9] and v.yx.to_list() == [8, 7]
    v.xy = [1, 2]
    assert x.values[1].tolist() == [1, 2] and v.norm() == pytest.approx(5**0.5)
    v.fill(3)
    assert x.values[1].tolist() == [3, 3] and (v + 0.1).to_numpy().dtype == np.float64
    assert type(v[0]) is float and str(v) == "[3. 3.]"
    with pytest.raises(KernelIndexError):
        v[2] = 0


def test_matrix_elements() -> None:
    x = Memory(types.matrix(2, 2, i32), np.arange(8, dtype=np.int32).reshape(2, 2, 2))
    m = make_element(x, (1,))
    assert m[0, 1] == 5 and (m @ [1, 0]).to_list() == [4, 6] and m.trace() == 11
    m[1, :] = [0, 1]
    m[0, 0] = -1
    assert x.values[1].tolist() == [[-1, 5], [0, 1]]
    assert copy.deepcopy(m).to_list() == m.to_list()


# --- ti.math and the elementwise functions, against numpy ---------------------------------

X = np.linspace(-2.5, 2.5, 11)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("sin", np.sin), ("cos", np.cos), ("tan", np.tan), ("asin", np.arcsin), ("acos", np.arccos),
        ("tanh", np.tanh), ("sqrt", np.sqrt), ("rsqrt", lambda x: 1 / np.sqrt(x)), ("exp", np.exp),
        ("log", np.log), ("log2", np.log2), ("floor", np.floor), ("ceil", np.ceil),
        ("round", np.rint), ("abs", np.abs), ("sign", np.sign), ("isnan", np.isnan),
    ],
)  # fmt: skip
def test_functions_of_one(name: str, reference: Any) -> None:
    fn = getattr(elementwise, name)
    with np.errstate(all="ignore"):
        expected = reference(X)
    np.testing.assert_array_equal(fn(X), expected)
    np.testing.assert_array_equal(fn(Vector(X)).to_numpy(), expected)
    for x, y in zip(X.tolist(), expected.tolist()):
        got = fn(x)
        assert type(got) is type(y)
        np.testing.assert_equal(got, y)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("elementwise.max(1, 2.5, 2)", 2.5), ("elementwise.min(V, 1.5)", [1, 1.5]),
        ("elementwise.max(3)", 3), ("elementwise.pow(2, 3)", 8), ("elementwise.pow(V, 2)", [1, 4]),
        ("elementwise.atan2(1.0, 2.0)", 0.4636476090008061), ("elementwise.floor(3.7, i32)", 3),
        ("elementwise.raw_div(-5, 3)", -1), ("elementwise.raw_mod(-5, 3)", -2),
        ("elementwise.raw_div(5.0, 2)", 2.5), ("elementwise.bit_shr(-1, 28)", 15),
        ("elementwise.cast(300, u8)", 44), ("elementwise.cast(-2.7, int)", -2),
        ("elementwise.bit_cast(1.0, i32)", 0x3F800000), ("elementwise.select(1, 2, 3)", 2),
        ("elementwise.select(Vector([1, 0]), V, V * 2)", [1, 4]), ("elementwise.zero(V)", [0, 0]),
        ("elementwise.one(3.0)", 1.0), ("tm.popcnt(255)", 8), ("tm.clz(7)", 29), ("tm.clz(0)", 32),
        ("tm.mod(-5.5, 2.0)", 0.5), ("tm.fract(-2.25)", 0.75), ("tm.sign(-3)", -1.0),
        ("tm.clamp(V, 1.5, 3)", [1.5, 2]), ("tm.mix(V, V * 2, 0.5)", [1.5, 3]),
        ("tm.step(0.5, 0.5)", 1.0), ("tm.step(0.5, V)", [1, 1]),
        ("tm.smoothstep(0.0, 5.0, 2.5)", 0.5),
        ("tm.length(V)", 5**0.5), ("tm.distance(V, V * 2)", 5**0.5), ("tm.dot(V, V)", 5),
        ("tm.normalize(V)", [0.4472136, 0.89442719]), ("tm.degrees(math.pi)", 180),
        ("tm.radians(180.0)", math.pi), ("tm.cross(tm.vec3(1, 0, 0), tm.vec3(0, 1, 0))", [0, 0, 1]),
        ("tm.reflect(tm.vec3(1, 2, 3), tm.vec3(0, 1, 0))", [1, -2, 3]),
        ("tm.refract(tm.normalize(Vector([1., -1, 0])), Vector([0., 1, 0]), 0.5)",
         [0.353553, -0.935414, 0]),
        ("tm.refract(tm.normalize(Vector([1., -1, 0])), Vector([0., 1, 0]), 2.0)", [0, 0, 0]),
        ("tm.vdir(0.3)", [0.955336, 0.29552]), ("tm.eye(2)", [[1, 0], [0, 1]]),
        ("tm.rotation2d(0.3)", [[0.955336, -0.29552], [0.29552, 0.955336]]),
        ("tm.cmul(V, V)", [-3, 4]), ("tm.cdiv(V, Vector([3., 4.]))", [0.44, 0.08]),
        ("tm.csqrt(-V)", [0.7861514, -1.2720196]), ("tm.cpow(V, 2)", [-3, 4]),
        ("tm.clog(V)", [0.804719, 1.107149]), ("tm.cinv(V)", [0.2, -0.4]), ("tm.cconj(V)", [1, -2]),
        ("tm.inverse(M)", [[-2, 1], [1.5, -0.5]]), ("tm.determinant(M)", -2),
        ("tm.translate(1, 2, 3)[0, :]", [1, 0, 0, 1]), ("tm.scale(1, 2, 3)[1, :]", [0, 2, 0, 0]),
    ],
)  # fmt: skip
def test_math_functions(expression: str, expected: Any) -> None:
    got = eval(expression)
    np.testing.assert_allclose(listed(got), expected, atol=2e-6)


def rotation(ax: Any, angle: float) -> Any:
    """Rodrigues' formula, for column vectors."""
    x, y, z = np.asarray(ax) / np.linalg.norm(ax)
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + math.sin(angle) * k + (1 - math.cos(angle)) * k @ k


def test_rotations_in_space() -> None:
    axis = [1.0, 2.0, 3.0]
    got = tm.rot_by_axis(Vector(axis), 0.4).to_numpy()
    np.testing.assert_allclose(got[:3, :3], rotation(axis, 0.4).T, atol=1e-12)
    yaw, pitch, roll = 0.1, 0.2, 0.3
    turned = rotation([0, 1, 0], yaw) @ rotation([1, 0, 0], pitch) @ rotation([0, 0, 1], roll)
    got = tm.rot_yaw_pitch_roll(yaw, pitch, roll).to_numpy()
    np.testing.assert_allclose(got[:3, :3], turned.T, atol=1e-12)
    assert tm.rotation3d(pitch, roll, yaw).to_list() == got.tolist()
    assert got[3].tolist() == [0, 0, 0, 1]


def test_singular_matrices_and_zero_vectors_do_not_raise() -> None:
    assert not np.isfinite(Matrix([[1.0, 1.0], [1.0, 1.0]]).inverse().to_numpy()).any()
    assert np.isnan(tm.normalize(Vector([0.0, 0.0])).to_numpy()).all()
    assert elementwise.log(0.0) == -math.inf and math.isnan(elementwise.sqrt(-1.0))


# --- types as functions ------------------------------------------------------------------------


def test_types_make_values() -> None:
    assert f32(0.1) == float(np.float32(0.1)) and i32(3.7) == 3 and u8(300) == 44
    assert i32(V).to_list() == [1, 2]
    made = tm.vec3(tm.vec2(1, 2), 3)
    assert made.to_list() == [1, 2, 3] and made.dt is f32 and isinstance(made, Vector)
    assert tm.vec2(1).to_list() == [1, 1] and tm.ivec2(1.7, 2.2).to_list() == [1, 2]
    assert tm.mat2([1, 2], [3, 4]).to_list() == tm.mat2(1, 2, 3, 4).to_list() == [[1, 2], [3, 4]]
    assert types.vector(3, int)(1.5).to_list() == [1, 1, 1]


def test_types_that_follow_init(monkeypatch: pytest.MonkeyPatch) -> None:
    assert types.cook(tm.vec3) is types.vector(3, f32) and types.is_tensor(tm.vec3)
    monkeypatch.setattr(types.Defaults, "fp", f64)
    monkeypatch.setattr(types.Defaults, "ip", types.i64)
    assert types.cook(tm.vec3) is types.vector(3, f64)
    assert types.cook(tm.uvec2) is types.vector(2, u64)
    assert tm.vec3(0.1).x == 0.1 and tm.mat3.n == 3 and repr(tm.mat3) == "mat3"


# --- ndrange, static ------------------------------------------------------------------------------


def test_ndrange() -> None:
    assert list(ndrange((1, 3), 2)) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert list(ndrange(3)) == [(0,), (1,), (2,)] and list(ndrange(-1)) == []
    assert ndrange(3, (1, 5)).dimensions == [3, 4]
    assert [v.to_list() for v in grouped(ndrange(2, 1))] == [[0, 0], [1, 0]]


def test_static() -> None:
    assert compile_time.static(3) == 3 and compile_time.static(1, 2) == [1, 2]
    assert compile_time.static_assert(True) is None
    assert zero is Matrix.zero is Vector.zero


def test_members_and_components_are_checked_when_assigned() -> None:
    made = types.struct(a=u8, b=i32, c=f32)(1, 2, 3)
    beyond = "out of its range"
    for name, value, why in (
        ("a", 300, beyond), ("a", -1, beyond), ("b", 2**40, beyond), ("b", 2.5, "has a fraction"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=why):
            setattr(made, name, value)
    made.c = 2
    assert (made.a, made.b, made.c) == (1, 2, 2.0)
    v = Vector([1, 2], dt=u8)
    for value in (300, -1):
        with pytest.raises(ArgumentError, match="does not fit"):
            v[0] = value
    v[1] = 2.0
    v.x = 7
    assert v.to_list() == [7, 2]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("B * 200", [200, 400]), ("200 - B", [199, 198]), ("B % 300", [1, 2]),
        ("B & 0xFFFF", [1, 2]), ("U - 300", [-299, -298]), ("U * -1", [-1, -2]),
        ("elementwise.max(B, 300)", [300, 300]), ("elementwise.select(B - 1, 300, B)", [1, 300]),
        ("tm.clamp(B, 0, 300)", [1, 2]),
    ],
)  # fmt: skip
def test_integers_beyond_a_vector_s_type_make_i32(expression: str, expected: list[int]) -> None:
    scope = {"B": Vector([1, 2], i8), "U": Vector([1, 2], u8)}
    assert listed(eval(expression, globals(), scope)) == expected


def test_integers_that_fit_no_type_are_errors() -> None:
    for vector, number in ((Vector([1, 2], i8), 1 << 40), (Vector([1, 2], i64), 1 << 70)):
        with pytest.raises(KernelTypeError, match=f"{number} does not fit i"):
            vector * number
