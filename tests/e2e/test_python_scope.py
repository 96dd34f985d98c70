"""`ti.Vector` and `ti.Matrix` in Python scope: numpy-like values with the kernels' operators."""

import math
import operator

import numpy as np
import pytest

import vkchi as ti

V, M, tm = ti.Vector, ti.Matrix, ti.math
A, B = [1, -2, 3], [4, 5, -6]
X, Y = [1.5, -2.0, 0.25], [2.0, 0.5, -4.0]
P, Q = [[1, 2], [3, 4]], [[5, -6], [7, 8]]

OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne,
]  # fmt: skip
BITWISE = [operator.and_, operator.or_, operator.xor]


def check(value, expected) -> None:
    """A vector or matrix with these numbers, in numpy's type for them."""
    expected = np.asarray(expected)
    assert isinstance(value, ti.Matrix)
    assert isinstance(value, ti.Vector) == (expected.ndim == 1)
    np.testing.assert_allclose(value.to_numpy(), expected, rtol=1e-15)
    assert value.to_numpy().dtype == expected.dtype


@pytest.mark.parametrize("op", OPERATORS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(("a", "b"), [(A, B), (X, Y), (A, Y), (P, Q)])
def test_operators(op, a, b) -> None:
    x, y = np.array(a), np.array(b)
    check(op(M(a), M(b)), op(x, y))
    check(op(M(a), b), op(x, y))
    check(op(M(a), y), op(x, y))
    check(op(M(a), 3), op(x, 3))
    check(op(M(a), 2.5), op(x, 2.5))
    check(op(M(a), np.float64(2.5)), op(x, 2.5))
    check(op(3, M(b)), op(3, y))
    check(op(np.int64(3), M(b)), op(3, y))
    check(op(x, M(b)), op(x, y))


@pytest.mark.parametrize("op", BITWISE, ids=lambda f: f.__name__)
def test_bitwise(op) -> None:
    check(op(V(A), V(B)), op(np.array(A), np.array(B)))
    check(op(V(A), 6), op(np.array(A), 6))
    check(op(6, V(A)), op(6, np.array(A)))
    check(op(V([True, False]), V([True, True])), op(np.array([1, 0]) > 0, np.array([1, 1]) > 0))


def test_shifts_powers_and_signs() -> None:
    check(V([5, 6]) << 1, np.array([10, 12]))
    check(V([5, 6]) >> V([1, 2]), np.array([2, 1]))
    check(V([2, 3]) ** 2, np.array([4, 9]))
    check(2 ** V([2, 3]), np.array([4, 8]))
    check(V([4.0, 9.0]) ** 0.5, np.array([2.0, 3.0]))
    check(-V(A), -np.array(A))
    check(+V(A), np.array(A))
    check(abs(V(X)), np.abs(X))
    check(~V(A), ~np.array(A))


def test_products_of_matrices() -> None:
    check(M(P) @ M(Q), np.array(P) @ np.array(Q))
    check(M(P) @ V([5, 6]), np.array(P) @ [5, 6])
    check(V([5, 6]) @ M(P), np.array([5, 6]) @ P)
    check(M(P) @ Q, np.array(P) @ np.array(Q))
    check(M(P) @ np.array([1.5, 2]), np.array(P) @ [1.5, 2])
    assert V(A) @ V(B) == np.dot(A, B)
    check(M([[1, 2, 3]]) @ M([[1], [2], [3]]), np.array([[14]]))


def test_augmented_assignment_makes_a_new_value() -> None:
    v = V([1, 2])
    w = v
    w += 1
    w *= [2, 3]
    w -= np.array([1, 1])
    assert v.to_list() == [1, 2] and w.to_list() == [3, 8]
    w @= M([[0, 1], [1, 0]])
    assert w.to_list() == [8, 3]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: V([1, 2.5]), [1, 2.5]),
        (lambda: V((1, 2)), [1, 2]),
        (lambda: V(np.array([1, 2])), [1, 2]),
        (lambda: V(range(3)), [0, 1, 2]),
        (lambda: V(V([1, 2])), [1, 2]),
        (lambda: V([1.7, -2.7], dt=ti.i32), [1, -2]),
        (lambda: V([1, 2], ti.f32), [1.0, 2.0]),
        (lambda: V([300], dt=ti.u8), [44]),
        (lambda: M([[1, 2], [3, 4]]), P),
        (lambda: M([V([1, 2]), V([3, 4])]), P),
        (lambda: M(np.array(P)), P),
        (lambda: V(P), P),
        (lambda: M([1, 2]), [1, 2]),
        (lambda: M.rows([V([1, 2]), [3, 4]]), P),
        (lambda: M.cols([V([1, 3]), [2, 4]]), P),
        (lambda: M.zero(ti.i32, 2, 2), [[0, 0], [0, 0]]),
        (lambda: V.one(ti.f32, 2), [1, 1]),
        (lambda: M.identity(ti.f32, 2), [[1, 0], [0, 1]]),
        (lambda: M.diag(2, 5), [[5, 0], [0, 5]]),
        (lambda: M.unit(3, 1), [0, 1, 0]),
        (lambda: V.unit(3, 2, ti.f32), [0, 0, 1]),
        (lambda: tm.vec3(1), [1, 1, 1]),
        (lambda: tm.vec3(1, 2, 3), [1, 2, 3]),
        (lambda: tm.vec3([1, 2, 3]), [1, 2, 3]),
        (lambda: tm.vec4(tm.vec2(1, 2), 3, 4), [1, 2, 3, 4]),
        (lambda: tm.vec4(1, V([2, 3]), 4), [1, 2, 3, 4]),
        (lambda: tm.ivec2(1.7, -1.7), [1, -1]),
        (lambda: tm.uvec2(1, 2), [1, 2]),
        (lambda: tm.mat2(1, 2, 3, 4), P),
        (lambda: tm.mat2([1, 2], [3, 4]), P),
        (lambda: tm.mat2(tm.vec2(1, 2), tm.vec2(3, 4)), P),
        (lambda: tm.mat2(P), P),
        (lambda: ti.types.matrix(2, 1, ti.i32)(3), [[3], [3]]),
        (lambda: ti.types.vector(2, ti.f32)(np.array([1, 2])), [1, 2]),
    ],
)
def test_vector_construction(made, expected) -> None:
    assert made().to_list() == expected


def test_vector_shapes() -> None:
    v, m = V([1, 2, 3]), M([[1, 2, 3], [4, 5, 6]])
    assert (v.n, v.m, v.ndim, len(v), v.get_shape()) == (3, 1, 1, 3, (3,))
    assert (m.n, m.m, m.ndim, len(m), m.get_shape()) == (2, 3, 2, 2, (2, 3))
    assert isinstance(v, ti.Vector) and isinstance(v, ti.Matrix)
    assert not isinstance(m, ti.Vector) and type(V(P)) is ti.Vector


def test_reading_components() -> None:
    v, m = V([1, 2, 3]), M([[1, 2, 3], [4, 5, 6]])
    assert (v[0], v[-1], v[np.int32(1)], v[V([2])]) == (1, 3, 2, 3)
    assert (
        v[0:2].to_list() == [1, 2] and v[::2].to_list() == [1, 3] and v[::-1].to_list() == [3, 2, 1]
    )
    assert (m[0, 1], m[-1, -1], m[V([1, 0])], m[(1, 2)]) == (2, 6, 4, 6)
    assert m[0, :].to_list() == [1, 2, 3] and m[:, 1].to_list() == [2, 5]
    assert m[:, 1:].to_list() == [[2, 3], [5, 6]] and isinstance(m[0, :], ti.Vector)


def test_swizzles() -> None:
    v = V([1, 2, 3, 4])
    assert (v.x, v.y, v.z, v.w, v.r, v.a, v.s, v.q) == (1, 2, 3, 4, 1, 4, 1, 4)
    assert v.zyx.to_list() == v.bgr.to_list() == v.pts.to_list() == [3, 2, 1]
    assert v.xxww.to_list() == [1, 1, 4, 4]
    assert not hasattr(v, "xg") and not hasattr(v, "xyzwx")


def test_writing_components() -> None:
    v = V([1.0, 2.0, 3.0, 4.0])
    v[0], v.y, v.wz = 10, 20, [40, 30]
    assert v.to_list() == [10, 20, 30, 40]
    v.x += 1
    v.rg *= 2
    v.zw = 0
    assert v.to_list() == [22, 40, 0, 0]
    v[1:3] = V([7, 8])
    v.w = v.x
    assert v.to_list() == [22, 7, 8, 22]
    m = M([[1, 2], [3, 4]])
    m[0, 1], m[1, :] = 9, [7, 8]
    m[:, 0] = V([5, 6])
    assert m.to_list() == [[5, 9], [6, 8]]
    m.fill(3)
    assert m.to_list() == [[3, 3], [3, 3]]


def test_iteration() -> None:
    a, b, c = V([1, 2, 3])
    assert (a, b, c) == (1, 2, 3) and list(V(A)) == A and [*M(P)] == P
    assert 2 in V([1, 2]) and 5 not in V([1, 2])
    assert sum(V(A)) == 2 and max(V(A)) == 3 and sorted(V(A)) == [-2, 1, 3]
    assert list(zip(V([1, 2]), V([3, 4]))) == [(1, 3), (2, 4)]
    assert list(reversed(V(A))) == A[::-1] and dict(enumerate(V(A)))[2] == 3


def test_comparison_is_by_component() -> None:
    check(V([1, 2]) == V([1, 3]), np.array([True, False]))
    assert (V([1, 2]) == V([1, 2])).all() and (V([1, 2]) != [1, 3]).any()
    assert (V([1, 2]) == None) is False and (V([1, 2]) != "a") is True  # noqa: E711
    assert len({V([1, 2]), V([1, 2])}) == 2
    assert bool(V([1])) and not V([0])
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(V([1, 2]))


def test_vector_methods() -> None:
    v, m = V([3.0, 4.0]), M([[2.0, 1.0], [0.5, 3.0]])
    assert (v.norm(), v.norm_sqr(), v.norm_inv()) == (5, 25, 0.2)
    assert math.isclose(v.norm(1e-3), math.sqrt(25.001))
    np.testing.assert_allclose(v.normalized().to_numpy(), [0.6, 0.8])
    assert v.dot(V([1, 2])) == v.dot([1, 2]) == 11
    assert V([1, 2]).cross(V([3, 4])) == -2
    assert V([1, 0, 0]).cross(V([0, 1, 0])).to_list() == [0, 0, 1]
    assert V([1, 2]).outer_product(V([3, 4, 5])).to_list() == [[3, 4, 5], [6, 8, 10]]
    assert (m.trace(), m.determinant(), m.sum(), m.max(), m.min()) == (5, 5.5, 6.5, 3, 0.5)
    np.testing.assert_allclose(m.inverse().to_numpy(), np.linalg.inv(m.to_numpy()))
    assert m.transpose().to_list() == [[2.0, 0.5], [1.0, 3.0]]
    assert V([1, 0]).any() and not V([1, 0]).all()
    assert v.cast(ti.i32).to_list() == [3, 4] and v.cast(int).to_numpy().dtype == np.int32
    assert v.to_list() == [3, 4] and m.to_list()[1] == [0.5, 3.0]


def test_numpy_reads_values() -> None:
    v, m = V(X), M(P)
    assert np.array(v).tolist() == X and np.asarray(m).shape == (2, 2)
    assert np.array(v, dtype=np.float32).dtype == np.float32
    assert np.sum(v) == sum(X) and np.max(m) == 4 and np.all(m) and not np.any(V([0, 0]))
    assert np.sum(m, axis=0).to_list() == [4, 6]
    assert np.linalg.norm(V([3.0, 4.0])) == 5
    assert np.dot(V(A), V(B)) == np.dot(A, B)
    assert np.concatenate([v, v]).shape == (6,) and np.stack([m, m]).shape == (2, 2, 2)
    assert np.allclose(v, X) and np.array([v, v]).shape == (2, 3)
    np.testing.assert_allclose(np.sin(v).to_numpy(), np.sin(X))
    values = v.to_numpy()
    values[0] = 100
    assert v[0] == X[0]


def test_declared_types_stay() -> None:
    v = V([0.1, 0.2], dt=ti.f32)
    assert v.dt is ti.f32 and (v + 1).dt is ti.f32 and (v * 2.0).to_numpy().dtype == np.float32
    assert (v + V([1.0, 2.0])).to_numpy().dtype == np.float64
    assert isinstance(v[0], np.float32) and str(v.x) == "0.1"
    assert isinstance(V([1, 2])[0], int) and isinstance(V([1.0])[0], float)
    assert tm.ivec2(7, 8).dt is ti.i32 and (tm.ivec2(7, 8) // 2).to_list() == [3, 4]


def test_vector_repr() -> None:
    assert str(V([1, 2])) == repr(V([1, 2])) == f"{V([1, 2])}" == "[1 2]"
    assert str(V([1.5, 2])) == "[1.5 2. ]"
    assert str(M(P)) == "[[1 2]\n [3 4]]"
    assert str(V([True, False])) == "[ True False]"
    assert f"{V([1.23456]).x:.2f}" == "1.23"
    assert str(ti.f32) == "f32" and repr(ti.u8) == "u8" and str(tm.vec3) == "vec3"


def test_functions_in_python_scope() -> None:
    assert ti.sqrt(4.0) == 2 and ti.max(1, 5, 3) == 5 and ti.min(2.5, 1) == 1
    assert ti.abs(V([-1, 2])).to_list() == [1, 2] and ti.floor(-1.5) == -2
    assert ti.max(V([1, 5]), V([3, 2])).to_list() == [3, 5]
    assert ti.select(V([1, 0]), V([1, 2]), V([3, 4])).to_list() == [1, 4]
    assert tm.dot(tm.vec2(1, 2), tm.vec2(3, 4)) == 11 and tm.length(tm.vec2(3, 4)) == 5
    assert tm.mix(0.0, 10.0, 0.25) == 2.5 and tm.clamp(5, 0, 3) == 3
    assert math.isclose(tm.pi, math.pi) and math.isinf(tm.inf) and math.isnan(tm.nan)


def test_vector_types() -> None:
    t = ti.types.matrix(2, 3, ti.i32)
    assert (t.n, t.m, t.ndim, t.dtype, t.get_shape()) == (2, 3, 2, ti.i32, (2, 3))
    assert (tm.vec3.n, tm.vec3.m, tm.vec3.dtype) == (3, 1, ti.f32)
    assert t is ti.types.matrix(2, 3, ti.i32) and ti.types.vector(n=3) is ti.types.vector(3, float)
    assert (
        ti.types.is_integral(ti.u8) and ti.types.is_real(ti.f16) and not ti.types.is_signed(ti.u8)
    )
    assert ti.types.is_tensor(tm.mat2) and not ti.types.is_tensor(ti.f32)
    x, y = t.field(shape=4), tm.vec2.field(shape=(2, 2), needs_grad=True)
    assert (x.n, x.m, x.shape, y.n, y.shape) == (2, 3, (4,), 2, (2, 2))
    assert tm.vec2.ndarray(shape=3).element_shape == (2,)
    assert ti.f32 == ti.float32 and ti.f32 != ti.f64 and hash(ti.i32) == hash(ti.int32)
