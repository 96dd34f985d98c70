"""Fields and ndarrays in Python scope, and the forms of their annotations."""

import numpy as np
import pytest

import vkchi as ti

F32 = np.float32


def ramp(*shape, dtype=F32):
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


MAKE = [ti.field, ti.ndarray]


@pytest.mark.parametrize("make", MAKE)
class TestElements:
    def test_element_indices(self, make) -> None:
        x = make(ti.f32, (2, 3))
        x[0, 1] = 4
        for key in ((0, 1), ti.Vector([0, 1]), (np.int32(0), np.int64(1)), (False, True)):
            assert x[key] == 4
        y, z = make(ti.i32, ()), make(ti.i32, 3)
        y[None] = 3
        z[np.int8(2)] = 5
        assert y[None] == y[()] == 3 and z[2] == z[(2,)] == 5

    def test_element_values(self, make) -> None:
        x, y, z, b = make(ti.i32, 2), make(ti.u32, 2), make(ti.f32, 2), make(ti.u1, 2)
        x[0], y[0], z[0], b[0] = 2.0, 2**32 - 1, True, 5
        assert (x[0], y[0], z[0], b[0]) == (2, 2**32 - 1, 1.0, True)
        x[1], z[1] = np.int64(-7), F32(0.5)
        assert (x[1], z[1]) == (-7, 0.5)
        assert type(x[0]) is int and type(z[0]) is float and type(b[0]) is bool

    def test_augmented_assignment(self, make) -> None:
        x, v = make(ti.f32, 3), make(ti.math.vec2, 3)
        x[1] += 2
        x[1] *= 3
        v[0] += [1, 2]
        v[0].x -= 5
        v[0][1] *= 4
        assert x[1] == 6 and v[0].to_list() == [-4, 8]

    def test_vector_elements(self, make) -> None:
        v = make(ti.math.vec3, 4)
        for value in (
            [1, 2, 3],
            (1, 2, 3),
            np.array([1, 2, 3]),
            ti.Vector([1, 2, 3]),
            F32([1, 2, 3]),
        ):
            v[1] = 0
            v[1] = value
            assert v[1].to_list() == [1, 2, 3]
        w = v[1]
        assert isinstance(w, ti.Vector) and w.n == 3 and w.zyx.to_list() == [3, 2, 1]
        w.xy = [7, 8]
        w[2] = 9
        assert v[1].to_list() == [7, 8, 9]  # an element is a view
        v[1] = [1, 1, 1]
        assert w.to_list() == [1, 1, 1] and (w + 1).to_list() == [2, 2, 2]
        assert w.norm() == pytest.approx(3**0.5) and list(w) == [1, 1, 1] and np.sum(w) == 3
        assert v[1].to_numpy().tolist() == [1, 1, 1] and str(w) == "[1. 1. 1.]"

    def test_matrix_elements(self, make) -> None:
        m = make(ti.types.matrix(2, 3, ti.i32), 2)
        m[0] = [[1, 2, 3], [4, 5, 6]]
        m[0][1, 2] = 7
        m[1] = m[0]
        m[1][0, :] = 0
        assert m[0][1, 2] == 7 and m[1].to_list() == [[0, 0, 0], [4, 5, 7]]
        assert m[0].transpose().to_list() == [[1, 4], [2, 5], [3, 7]]
        assert (m[0] @ ti.Vector([1, 0, 0])).to_list() == [1, 4]

    def test_whole_contents(self, make) -> None:
        x, v = make(ti.f32, (2, 3)), make(ti.math.vec2, 3)
        x.from_numpy(ramp(2, 3))
        v.from_numpy(ramp(3, 2))
        assert x.to_numpy().tolist() == ramp(2, 3).tolist() and v[2].to_list() == [4, 5]
        assert x.to_numpy(dtype=np.int8).dtype == np.int8
        assert x.to_numpy(dtype=ti.f64).dtype == np.float64
        x.from_numpy(ramp(3, 2).T)
        x.from_numpy(ramp(2, 6)[:, ::2])
        assert x[1, 2] == 10
        y = make(ti.i32, (2, 3))
        y.copy_from(x)
        assert y[1, 2] == 10 and y.to_numpy().dtype == np.int32
        y.from_numpy(np.array([[1.9, -1.9, 0], [1, 2, 3]]))
        assert y.to_numpy()[0].tolist() == [1, -1, 0]
        v.fill([3, 4])
        assert v.to_numpy().tolist() == [[3, 4]] * 3
        v.fill(ti.Vector([5, 6]))
        v.fill(7)
        assert (v.to_numpy() == 7).all()

    def test_numpy_reads_arrays(self, make) -> None:
        x, v = make(ti.i32, (2, 3)), make(ti.math.vec2, 3)
        x.from_numpy(ramp(2, 3))
        values = np.asarray(x)
        assert values.dtype == np.int32 and values.tolist() == ramp(2, 3).tolist()
        assert np.array(x, dtype=np.float64).dtype == np.float64 and np.asarray(v).shape == (3, 2)
        assert np.sum(x) == 15 and np.allclose(x, ramp(2, 3)) and np.max(np.add(x, 1)) == 6
        values[0, 0] = 100  # a copy
        assert x[0, 0] == 0

    def test_array_properties(self, make) -> None:
        x, v, m = make(float, 4), make(ti.math.vec3, (2, 3)), make(ti.math.mat2, ())
        assert (x.shape, v.shape, m.shape) == ((4,), (2, 3), ())
        assert (x.dtype, v.dtype, m.dtype) == (ti.f32,) * 3
        assert "f32" in repr(x) and "(2, 3)" in repr(v)
        assert isinstance(hash(x), int) and x == x and x != v


def test_ndarray_types() -> None:
    x, v = ti.ndarray(ti.f32, (2, 3)), ti.Vector.ndarray(3, ti.i32, 4, needs_grad=False)
    assert isinstance(x, ti.ScalarNdarray) and isinstance(v, ti.VectorNdarray)
    assert isinstance(ti.Matrix.ndarray(2, 2, ti.f32, 3), ti.MatrixNdarray)
    assert isinstance(x, ti.Ndarray) and x.element_shape == () and v.element_shape == (3,)
    assert v.element_type is ti.types.vector(3, ti.i32)
    assert x.get_type().shape == (2, 3) and not x.get_type().needs_grad
    assert ti.ndarray(np.float32, [2, 3]).shape == (2, 3) and ti.ndarray(int, 3).dtype is ti.i32
    assert ti.ndarray(ti.f32, 2, needs_grad=True).grad.shape == (2,)


def test_a_field_is_printed_with_its_contents() -> None:
    x, v = ti.field(ti.i32, 3), ti.Vector.field(2, ti.f32, 2)
    x.fill(7)
    assert str(x) == "[7 7 7]" and f"{x}" == "[7 7 7]" and str(v) == "[[0. 0.]\n [0. 0.]]"
    assert str(ti.field(ti.f32, ())) == "0.0"


# --- annotations ----------------------------------------------------------------------------------

VEC3, MAT = ti.types.vector(3, ti.f32), ti.types.matrix(2, 3, ti.f32)
NOTES = {
    "scalars": ti.types.ndarray(),
    "class": ti.types.ndarray,
    "any_arr": ti.any_arr(),
    "dtype": ti.types.ndarray(dtype=ti.f32),
    "dtype and ndim": ti.types.ndarray(ti.f32, 3),
    "python's type": ti.types.ndarray(dtype=float, ndim=3),
    "subscript": ti.types.ndarray[ti.f32, 3],
    "one subscript": ti.types.ndarray[ti.f32],
    "old name": ti.types.ndarray(field_dim=3),
    "element_dim 0": ti.types.ndarray(element_dim=0),
    "not clamped": ti.types.ndarray(boundary="unsafe"),
    "no gradient": ti.types.ndarray(needs_grad=False),
}
ELEMENTS = {
    "vector": (ti.types.ndarray(dtype=VEC3), 1),
    "vector and ndim": (ti.types.ndarray(dtype=VEC3, ndim=2), 1),
    "vec3": (ti.types.ndarray(dtype=ti.math.vec3, ndim=2), 1),
    "subscript": (ti.types.ndarray[ti.math.vec3, 2], 1),
    "element_dim": (ti.types.ndarray(element_dim=1), 1),
    "element_dim and dtype": (ti.types.ndarray(dtype=ti.f32, element_dim=1), 1),
    "element_shape": (ti.types.ndarray(element_shape=(3,)), 1),
    "element_shape and dtype": (ti.types.ndarray(dtype=ti.f32, element_shape=(3,)), 1),
    "matrix": (ti.types.ndarray(dtype=MAT), 2),
    "matrix and ndim": (ti.types.ndarray(dtype=MAT, ndim=1), 2),
    "element_dim 2": (ti.types.ndarray(element_dim=2), 2),
    "matrix element_shape": (ti.types.ndarray(element_shape=(2, 3)), 2),
}


@pytest.mark.parametrize("name", NOTES)
def test_arrays_of_numbers(name) -> None:
    note = NOTES[name]

    @ti.kernel
    def double(x: note):
        for i, j, k in x:
            x[i, j, k] *= 2

    x, y = ramp(2, 2, 3), ti.ndarray(ti.f32, (2, 2, 3))
    y.from_numpy(x)
    double(x)
    double(y)
    assert (x == 2 * ramp(2, 2, 3)).all() and (y.to_numpy() == x).all()


@pytest.mark.parametrize("name", ELEMENTS)
def test_arrays_of_vectors_and_matrices(name) -> None:
    note, axes = ELEMENTS[name]

    @ti.kernel
    def total(x: note) -> ti.f32:
        s = 0.0
        for place in ti.grouped(x):
            x[place] = x[place] * 2
            s += x[place].sum()
        return s

    x = ramp(2, 2, 3)
    y = VEC3.ndarray(shape=(2, 2)) if axes == 1 else MAT.ndarray(shape=2)
    y.from_numpy(x)
    assert total(x) == total(y) == 132
    assert (x == 2 * ramp(2, 2, 3)).all() and (y.to_numpy() == x).all()


def test_a_gradient_is_demanded() -> None:
    @ti.kernel
    def touch(x: ti.types.ndarray(needs_grad=True)):
        for i in x:
            x.grad[i] = x[i]

    x = ti.ndarray(ti.f32, 3, needs_grad=True)
    x.fill(2)
    touch(x)
    assert x.grad.to_numpy().tolist() == [2, 2, 2]


@pytest.mark.parametrize("pad", [1, 4])
def test_clamped_reads(pad) -> None:
    @ti.kernel
    def widen(x: ti.types.ndarray(ndim=2, boundary="clamp"), y: ti.types.ndarray()):
        for i, j in y:
            y[i, j] = x[i - pad, j - pad]

    x, y = ramp(2, 3), np.zeros((2 + 2 * pad, 3 + 2 * pad), F32)
    widen(x, y)
    assert (y == np.pad(x, pad, "edge")).all()


def test_clamped_writes_and_atomics() -> None:
    @ti.kernel
    def scatter(x: ti.types.ndarray(dtype=ti.math.vec2, boundary="clamp"), n: ti.i32):
        for i in range(n):
            x[i - 2][0] += 1.0
        x[1000].y = 5.0
        x[ti.u32(7)].y += 2.0
        x[ti.i64(-7)].y -= 1.0 if ti.static(True) else 0.0

    x = ti.ndarray(ti.math.vec2, 3)
    try:
        scatter(x, 8)
    except ti.DeviceError:  # no 64-bit integers here
        pytest.skip("no i64")
    assert x.to_numpy().tolist() == [[3, -1], [1, 0], [4, 7]]


@pytest.mark.usefixtures("own_runtime")
def test_clamped_accesses_are_inside_in_debug_mode() -> None:
    @ti.kernel
    def shift(x: ti.types.ndarray(boundary="clamp"), y: ti.types.ndarray()):
        for i in y:
            y[i] = x[i - 1]

    ti.init(debug=True)
    x, y = ramp(3), np.zeros(5, F32)
    shift(x, y)
    ti.sync()
    assert y.tolist() == [0, 0, 1, 2, 2]


@pytest.mark.usefixtures("own_runtime")
def test_default_types_of_annotations_follow_init(need) -> None:
    need("f64")

    @ti.kernel
    def total(x: ti.types.ndarray(dtype=float), v: ti.types.ndarray(dtype=ti.math.vec2)) -> float:
        return x[0] + v[0].y

    ti.init(default_fp=ti.f64)
    assert total(np.ones(2), np.full((1, 2), 0.1)) == 1.1
    ti.init()
    assert total(np.ones(2, F32), np.full((1, 2), 0.5, F32)) == 1.5


# --- init -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("own_runtime")
@pytest.mark.parametrize(
    "options",
    [
        {"arch": ti.cpu},
        {"arch": [ti.cuda, ti.vulkan, ti.cpu]},
        {"arch": "x86_64"},
        {"arch": (ti.cuda, ti.cpu)},
        {"arch": ti.x86_64, "default_fp": ti.f32, "default_ip": ti.i32},
        {"debug": False, "random_seed": 3, "fast_math": True, "log_level": ti.WARN},
        {
            "kernel_profiler": True,
            "print_ir": False,
            "offline_cache": False,
            "cpu_max_num_threads": 1,
        },
        {"device_memory_GB": 1, "packed": True, "advanced_optimization": False, "opt_level": 1},
        {"default_fp": np.float32, "default_ip": int},
    ],
    ids=str,
)
def test_init_options(options) -> None:
    ti.init(**options)
    x = ti.field(ti.f32, 2)
    x[1] = 3
    assert x[1] == 3


@pytest.mark.usefixtures("own_runtime")
def test_init_takes_default_types_in_order() -> None:
    ti.init(ti.cpu, ti.f32, ti.u32)
    assert ti.field(int, 1).dtype is ti.u32 and ti.field(float, 1).dtype is ti.f32
