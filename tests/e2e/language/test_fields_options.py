"""Options of fields: offset, order, layout, gradients; values in Python scope; components."""

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.language.compare import check, plain


def same(got: Any, want: Any) -> None:
    """Raises AssertionError where results differ from the arrays, shapes or numbers wanted."""
    check(got, plain(want))


# --- offset --------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 3, -2, -40, 1000])
def test_offset_of_one_axis(offset: int) -> None:
    x = ti.field(ti.i32, shape=5, offset=offset)

    @ti.kernel
    def k():
        for i in x:
            x[i] = i

    k()
    x[offset + 4] += 100
    same(
        [x.to_numpy(), x[offset], x.shape],
        [np.arange(5) + offset + [0, 0, 0, 0, 100], offset, (5,)],
    )


@pytest.mark.parametrize("order", [None, "ij", "ji"])
@pytest.mark.parametrize("offset", [(0, 0), (-1, 10), (5, -7)])
def test_offset_of_two_axes(offset: tuple[int, int], order: Any) -> None:
    x = ti.field(ti.i32, shape=(3, 4), offset=offset, order=order)
    a, b = offset
    total = ti.field(ti.i32, shape=())

    @ti.kernel
    def k():
        for i, j in x:
            x[i, j] = i * 100 + j
        for i, j in x:
            if i > a:
                total[None] += x[i - 1, j] - x[i, j]
        for I in ti.grouped(x):
            x[I] += 1

    k()
    want = np.fromfunction(lambda i, j: (i + a) * 100 + j + b + 1, (3, 4))
    same([x.to_numpy(), total[None], x[a + 2, b + 3]], [want, -800, want[2, 3]])


@pytest.mark.parametrize("offset", [-2, (-2,), [4]])
def test_offset_of_place(offset: Any) -> None:
    x, y = ti.field(ti.i32), ti.Vector.field(2, ti.f32)
    ti.root.dense(ti.i, 2).dense(ti.i, 3).place(x, y, offset=offset)
    first = offset if isinstance(offset, int) else offset[0]

    @ti.kernel
    def k():
        for i in x:
            x[i] = i
            y[i] = [i, 2 * i]

    k()
    i = np.arange(6) + first
    same([x.to_numpy(), y.to_numpy()], [i, np.stack([i, 2 * i], 1)])
    same([x[first], y[first + 5]], [first, [first + 5, 2 * first + 10]])


def test_offset_of_place_in_blocks() -> None:
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    block = ti.root.dense(ti.ij, 2).dense(ti.ij, 2)
    block.place(x, offset=(-2, -2))
    block.place(y)

    @ti.kernel
    def k():
        for i, j in x:
            x[i, j] = i * 10 + j
        for i, j in block:
            y[i, j] = x[i - 2, j - 2]

    k()
    want = np.fromfunction(lambda i, j: (i - 2) * 10 + j - 2, (4, 4))
    same([x.to_numpy(), y.to_numpy(), x[-2, 1]], [want, want, -19])


def test_offset_of_vectors_and_matrices() -> None:
    v = ti.Vector.field(3, ti.f32, shape=4, offset=-1)
    m = ti.Matrix.field(2, 2, ti.i32, shape=(2, 2), offset=(1, 1), layout=ti.Layout.SOA)
    v[-1] = [1, 2, 3]
    v[2].y = 5
    m[2, 1] = [[1, 2], [3, 4]]

    @ti.kernel
    def k():
        for i in v:
            v[i][0] += i
        for I in ti.grouped(m):
            m[I][1, 1] += I.sum()

    k()
    same([v.to_numpy()], [[[0, 2, 3], [0, 0, 0], [1, 0, 0], [2, 5, 0]]])
    same(
        [m.to_numpy()],
        [[[[[0, 0], [0, 2]], [[0, 0], [0, 3]]], [[[1, 2], [3, 7]], [[0, 0], [0, 4]]]]],
    )


# --- order and layout ----------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["ijk", "ikj", "jik", "jki", "kij", "kji"])
def test_axis_order(order: str) -> None:
    x = ti.field(ti.i32, shape=(2, 3, 4), order=order)

    @ti.kernel
    def k():
        for i, j, l in x:
            x[i, j, l] = i * 100 + j * 10 + l

    k()
    want = np.fromfunction(lambda i, j, l: i * 100 + j * 10 + l, (2, 3, 4))
    same([x.to_numpy(), x[1, 2, 3], x.shape], [want, 123, (2, 3, 4)])


@pytest.mark.parametrize("layout", ["AOS", "SOA"])
@pytest.mark.parametrize("order", [None, "ji"])
def test_layout_option(layout: str, order: Any) -> None:
    v = ti.Vector.field(3, ti.f32, shape=(2, 4), order=order, layout=getattr(ti.Layout, layout))

    @ti.kernel
    def k():
        for i, j in v:
            v[i, j] = [i, j, i + j]
            v[i, j].z *= 2
            for c in range(3):
                v[i, j][c] += 1

    k()
    want = np.fromfunction(lambda i, j: np.stack([i + 1, j + 1, 2 * (i + j) + 1], -1), (2, 4))
    same([v.to_numpy(), v[1, 3]], [want, want[1, 3]])


def test_arguments_by_position() -> None:
    x = ti.field(ti.f32, (2, 3), "ji", "x", (1, 1), True)
    assert x.shape == (2, 3) and x.grad.shape == (2, 3)
    x[1, 1], x.grad[2, 3] = 4, 5
    same([x.to_numpy()[0, 0], x.grad.to_numpy()[1, 2]], [4, 5])


def test_shapes_of_all_kinds() -> None:
    shapes = [4, (4,), [2, 3], np.int64(5), (np.int32(2), 2), ()]
    got = [ti.field(ti.f32, shape=shape).shape for shape in shapes]
    same(got, [(4,), (4,), (2, 3), (5,), (2, 2), ()])


def test_fields_of_types() -> None:
    vec3, mat = ti.types.vector(3, ti.f32), ti.types.matrix(2, 2, ti.i32)
    x, y, m = vec3.field(shape=4), ti.field(vec3, shape=(2,)), mat.field(shape=())
    z = ti.field(vec3)
    ti.root.dense(ti.i, 2).place(z)
    z[1], m[None] = [1, 2, 3], [[1, 2], [3, 4]]
    same([x.shape, y.shape, z[1], m[None]], [(4,), (2,), [1, 2, 3], [[1, 2], [3, 4]]])


# --- gradients -----------------------------------------------------------------------------------


def test_gradient_of_a_shape() -> None:
    x = ti.field(ti.f32, shape=3, needs_grad=True)
    v = ti.Vector.field(2, ti.f32, shape=2, needs_grad=True, needs_dual=True)

    @ti.kernel
    def k():
        for i in x:
            x.grad[i] = i + x.grad[i]
        for i in v:
            v.grad[i] = [i, 1]
            v.dual[i][1] = 7

    x.grad.fill(1)
    k()
    same([x.to_numpy(), x.grad.to_numpy()], [[0, 0, 0], [1, 2, 3]])
    same([v.grad.to_numpy(), v.dual.to_numpy()], [[[0, 1], [1, 1]], [[0, 7], [0, 7]]])


def test_gradient_placed_by_hand() -> None:
    x, y = ti.field(ti.f32, needs_grad=True), ti.field(ti.f32, needs_grad=True)
    ti.root.dense(ti.i, 3).place(x, x.grad)
    block = ti.root.dense(ti.j, 2)
    block.place(y)
    block.place(y.grad)
    x.grad[2], y.grad[1] = 2, 3
    same([x.to_numpy(), x.grad.to_numpy(), y.grad.to_numpy()], [[0] * 3, [0, 0, 2], [0, 3]])


def test_gradient_placed_without_needs_grad() -> None:
    x = ti.field(ti.f32)
    ti.root.dense(ti.i, 3).place(x, x.grad)
    x.grad[1] = 2
    same([x.grad.to_numpy(), x.grad.shape], [[0, 2, 0], (3,)])


def test_lazy_grad() -> None:
    x, n, v = ti.field(ti.f32), ti.field(ti.i32), ti.Vector.field(2, ti.f32)
    block = ti.root.dense(ti.i, 2)
    block.place(x, n)
    block.dense(ti.j, 3).place(v)
    loss = ti.field(ti.f32, shape=())
    ti.root.lazy_grad()

    @ti.kernel
    def k():
        for i, j in v:
            v.grad[i, j] = [i, j]
            x.grad[i] += j
            loss.grad[None] += 1

    k()
    same([x.grad.to_numpy(), loss.grad[None], n.to_numpy()], [[3, 3], 6, [0, 0]])
    same([v.grad.to_numpy()], [np.stack(np.indices((2, 3)), -1)])
    assert str(x.grad.snode) == str(x.snode)


def test_lazy_dual() -> None:
    x = ti.field(ti.f32)
    ti.root.dense(ti.ij, 2).place(x)
    ti.root.lazy_dual()
    x.dual[0, 1] = 4
    same([x.dual.to_numpy(), x.to_numpy()], [[[0, 4], [0, 0]], np.zeros((2, 2))])


@pytest.mark.ours("lazy-grad-offset")
def test_lazy_grad_has_the_offset() -> None:
    x = ti.field(ti.f32)
    ti.root.dense(ti.i, 2).place(x, offset=-1)
    ti.root.lazy_grad()
    x.grad[-1] = 4
    same([x.grad.to_numpy()], [[4, 0]])


# --- Python scope --------------------------------------------------------------------------------


def test_numpy_types() -> None:
    x = ti.field(ti.i32)
    ti.root.dense(ti.ij, 2).dense(ti.i, 2).place(x)
    x.from_numpy(np.arange(8).reshape(4, 2))
    assert x.to_numpy().dtype == np.int32
    assert x.to_numpy(dtype=np.float64).dtype == np.float64
    same([x.to_numpy(dtype=np.float64)], [np.arange(8).reshape(4, 2)])


def test_from_numpy_of_any_strides() -> None:
    x = ti.field(ti.f32)
    ti.root.dense(ti.j, 3).dense(ti.i, 2).place(x)
    values = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2].T
    x.from_numpy(values)
    same([x.to_numpy()], [values])


def test_keep_dims() -> None:
    v = ti.Vector.field(3, ti.f32)
    m = ti.Matrix.field(3, 1, ti.f32)
    ti.root.dense(ti.i, 2).place(v, m)
    shapes = [v.to_numpy().shape, v.to_numpy(keep_dims=True).shape, m.to_numpy().shape]
    same(shapes, [(2, 3), (2, 3, 1), (2, 3)])
    v.from_numpy(np.ones((2, 3, 1), np.float32))
    same([v.to_numpy()], [np.ones((2, 3))])


def test_components_as_fields() -> None:
    v = ti.Vector.field(3, ti.f32)
    ti.root.dense(ti.ij, 2).dense(ti.ij, (1, 2)).place(v)
    y = v.get_scalar_field(1)

    @ti.kernel
    def k():
        for i, j in v:
            v[i, j] = [1, 2, 3]
            y[i, j] += i + v[i, j].y
        for i, j in y:
            y[i, j] *= 10

    k()
    y[0, 0] = -1
    want = np.array([[-1, 40, 40, 40], [50, 50, 50, 50]])
    same([y.to_numpy(), v.to_numpy()[..., 1], y.shape], [want, want, (2, 4)])
    same([v.to_numpy()[..., 2]], [np.full((2, 4), 3)])
    y.fill(9)
    same([v[1, 3], v[0, 0]], [[1, 9, 3], [1, 9, 3]])


@pytest.mark.parametrize("layout", ["AOS", "SOA"])
def test_components_of_matrices(layout: str) -> None:
    m = ti.Matrix.field(2, 3, ti.i32, shape=3, layout=getattr(ti.Layout, layout))
    m.fill(1)
    part = m.get_scalar_field(1, 2)
    part.from_numpy(np.array([5, 6, 7], np.int32))
    want = np.ones((3, 2, 3))
    want[:, 1, 2] = [5, 6, 7]
    same([m.to_numpy(), part[2]], [want, 7])


def test_component_as_template() -> None:
    v = ti.Vector.field(2, ti.f32, shape=3)

    @ti.kernel
    def k(x: ti.template(), by: ti.f32):
        for i in x:
            x[i] += by

    k(v.get_scalar_field(0), 1)
    k(v.get_scalar_field(1), 2)
    k(v.get_scalar_field(0), 5)
    same([v.to_numpy()], [[[6, 2]] * 3])


def test_field_repr() -> None:
    x, y = ti.field(ti.i32), ti.field(ti.i32)
    assert str(x) == "<Field: Definition of this field is incomplete>"
    ti.root.dense(ti.ij, (1, 2)).dense(ti.i, 2).place(x, y)
    x[1, 0] = 5
    assert str(x) == "[[0 0]\n [5 0]]"


def test_new_trees_after_the_first_use() -> None:
    x = ti.field(ti.i32)
    ti.root.dense(ti.i, 2).place(x)
    x[1] = 4
    y = ti.field(ti.i32)
    ti.root.dense(ti.i, 3).place(y)

    @ti.kernel
    def k():
        for i in y:
            y[i] = x[1] + i

    k()
    same([x.to_numpy(), y.to_numpy()], [[0, 4], [4, 5, 6]])


# --- errors --------------------------------------------------------------------------------------


WRONG = {
    "dims-too-many": lambda: ti.root.dense(ti.ij, (2, 3, 4)),
    "dims-zero": lambda: ti.root.dense(ti.i, 0).place(ti.field(ti.i32)),
    "dims-negative": lambda: ti.root.dense(ti.ij, (2, -3)).place(ti.field(ti.i32)),
    "dims-float": lambda: ti.root.dense(ti.i, 2.5).place(ti.field(ti.i32)),
    "shape-zero": lambda: ti.field(ti.i32, shape=0),
    "shape-negative": lambda: ti.field(ti.i32, shape=(2, -1)),
    "offset-axes": lambda: ti.field(ti.i32, shape=(2, 2), offset=1),
    "offset-without-shape": lambda: ti.field(ti.i32, offset=1),
    "order-without-shape": lambda: ti.field(ti.i32, order="ij"),
    "order-twice": lambda: ti.field(ti.i32, shape=(2, 2), order="ii"),
    "order-unknown": lambda: ti.field(ti.i32, shape=(2, 2), order="ik"),
    "order-short": lambda: ti.field(ti.i32, shape=(2, 2), order="i"),
    "place-number": lambda: ti.root.dense(ti.i, 2).place(3),
    "place-shaped": lambda: ti.root.dense(ti.i, 2).place(ti.field(ti.i32, shape=2)),
    "gradient-of-integers": lambda: ti.field(ti.i32, shape=2, needs_grad=True),
    "copy-from-other-shape": lambda: ti.field(ti.i32, shape=2).copy_from(ti.field(ti.i32, shape=3)),
    "copy-from-list": lambda: ti.field(ti.i32, shape=2).copy_from([1, 2]),
    "from-other-shape": lambda: ti.field(ti.i32, shape=2).from_numpy(np.zeros(3)),
    "dtype": lambda: ti.field(3, shape=2),
    "dtypes": lambda: ti.Vector.field(2, [ti.f32, ti.i32], shape=2)[0],
    "slice": lambda: ti.field(ti.i32, shape=(2, 2))[0, ::-1],
    "float-index": lambda: ti.field(ti.i32, shape=2)[1.0],
    "iterate": lambda: list(ti.field(ti.i32, shape=2)),
}


@pytest.mark.parametrize("name", WRONG)
def test_invalid_options_raise(name: str) -> None:
    with pytest.raises((ValueError, TypeError, RuntimeError, SyntaxError, NotImplementedError)):
        WRONG[name]()
