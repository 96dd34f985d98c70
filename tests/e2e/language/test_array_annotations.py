"""The forms of `ti.types.ndarray` in annotations: accepted arrays, and their view in kernels."""

import numpy as np
import pytest

import vkchi as ti

VEC3, MAT = ti.types.vector(3, ti.f32), ti.types.matrix(2, 3, ti.f32)


def ramp(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


NUMBERS = {
    "any": lambda: ti.types.ndarray(),
    "dtype": lambda: ti.types.ndarray(dtype=ti.f32),
    "in order": lambda: ti.types.ndarray(ti.f32, 3),
    "ndim": lambda: ti.types.ndarray(ndim=3),
    "element_dim": lambda: ti.types.ndarray(element_dim=0),
    "unsafe": lambda: ti.types.ndarray(boundary="unsafe"),
    "no gradient": lambda: ti.types.ndarray(needs_grad=False),
}
ELEMENTS = {
    "vector": (lambda: ti.types.ndarray(dtype=VEC3), 1),
    "vec3": (lambda: ti.types.ndarray(dtype=ti.math.vec3, ndim=2), 1),
    "element_dim": (lambda: ti.types.ndarray(element_dim=1), 1),
    "element_shape": (lambda: ti.types.ndarray(element_shape=(3,)), 1),
    "dtype and element_shape": (lambda: ti.types.ndarray(dtype=ti.f32, element_shape=(3,)), 1),
    "matrix": (lambda: ti.types.ndarray(dtype=MAT, ndim=1), 2),
    "matrix element_dim": (lambda: ti.types.ndarray(element_dim=2), 2),
    "matrix element_shape": (lambda: ti.types.ndarray(element_shape=(2, 3)), 2),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_scalar_array_annotations(name):
    note = NUMBERS[name]()

    @ti.kernel
    def double(x: note):
        for i, j, k in x:
            x[i, j, k] *= 2

    x, y = ramp(2, 2, 3), ti.ndarray(ti.f32, (2, 2, 3))
    y.from_numpy(x)
    double(x)
    double(y)
    assert (x == 2 * ramp(2, 2, 3)).all()
    assert (y.to_numpy() == x).all()


@pytest.mark.parametrize("name", ELEMENTS)
def test_element_annotations(name):
    make, axes = ELEMENTS[name]
    note = make()

    @ti.kernel
    def total(x: note) -> ti.f32:
        s = 0.0
        for place in ti.grouped(x):
            x[place] = x[place] * 2
            s += x[place].sum()
        return s

    x = ramp(2, 2, 3)
    if axes == 1:
        y = ti.Vector.ndarray(3, ti.f32, (2, 2))
    else:
        y = ti.Matrix.ndarray(2, 3, ti.f32, 2)
    y.from_numpy(x)
    assert total(x) == 132
    assert total(y) == 132
    assert (x == 2 * ramp(2, 2, 3)).all()
    assert (y.to_numpy() == x).all()


@pytest.mark.parametrize("pad", [1, 4])
def test_clamped_reads(pad):
    @ti.kernel
    def widen(x: ti.types.ndarray(ndim=2, boundary="clamp"), y: ti.types.ndarray(ndim=2)):
        for i, j in y:
            y[i, j] = x[i - pad, j - pad]

    x, y = ramp(2, 3), np.zeros((2 + 2 * pad, 3 + 2 * pad), np.float32)
    widen(x, y)
    assert (y == np.pad(x, pad, "edge")).all()


def test_clamped_writes():
    @ti.kernel
    def scatter(x: ti.types.ndarray(dtype=ti.f32, ndim=1, boundary="clamp")):
        for i in range(8):
            x[i - 2] += 1.0

    x = ti.ndarray(ti.f32, 3)
    scatter(x)
    assert x.to_numpy().tolist() == [3, 1, 4]


def test_shapes_are_those_without_the_element():
    @ti.kernel
    def extents(x: ti.types.ndarray(dtype=ti.math.vec3, ndim=2)) -> ti.i32:
        return x.shape[0] * 10 + x.shape[1]

    assert extents(ramp(2, 4, 3)) == 24
    assert extents(ti.ndarray(ti.math.vec3, (2, 4))) == 24


def test_kinds_of_one_argument_are_compiled_apart():
    @ti.kernel
    def first(x: ti.types.ndarray()) -> ti.f32:
        return ti.cast(x[0], ti.f32)

    for dtype in (np.float32, np.int32, np.uint32):
        x = np.full(3, 7, dtype)
        assert first(x) == 7


def test_element_shape_is_called_in_kernels() -> None:
    @ti.func
    def kind(x: ti.template()):
        r = 0
        if ti.static(x.element_shape() == []):
            r = 1
        if ti.static(x.element_shape() == [2, 2]):
            r = 4
        return r + ti.static(len(x.element_shape()))

    @ti.kernel
    def run(x: ti.types.ndarray()) -> ti.i32:
        return kind(x)

    arrays = ti.ndarray(ti.f32, 4), ti.ndarray(ti.math.vec3, 4), ti.ndarray(ti.math.mat2, 4)
    assert [run(x) for x in arrays] == [1, 1, 6]
