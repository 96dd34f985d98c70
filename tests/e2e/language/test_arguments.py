"""Arguments of kernels: every number type, numpy arrays, ndarrays of numbers and vectors."""

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.language.compare import check


def test_kernel_types_small() -> None:
    @ti.kernel
    def k(a: ti.i8, b: ti.u8, c: ti.i16, d: ti.u16) -> ti.i32:
        return a + b + c + d

    check(k(-5, 200, -300, 60000), 59895)


@pytest.mark.filterwarnings("ignore")
def test_arguments_beyond_their_types_wrap() -> None:
    pack = ti.types.argpack(c=ti.i32)

    @ti.kernel
    def k(a: ti.i8, b: ti.u16) -> ti.i32:
        return a * 100000 + b

    @ti.kernel
    def packed(p: pack) -> ti.i32:
        return p.c

    check([k(300, 65537), k(-129, 65536), packed(pack(2**40 + 3))], [4400001, 12700000, 3])
    for beyond in ((1, -1), (2**64, 1)):
        with pytest.raises(TypeError):
            k(*beyond)


def test_numbers_of_numpy_as_bounds() -> None:
    n, m = np.array(4), np.int64(3)

    @ti.kernel
    def k() -> ti.i32:
        s = 0
        for i in range(n):
            s += i
        for i, j in ti.ndrange(n, (1, m)):
            s += 100
        return s * n + m

    check(k(), 806 * 4 + 3)


def test_kernel_u32() -> None:
    @ti.kernel
    def k(a: ti.u32) -> ti.u32:
        return a + 1

    check(k(4000000000), 4000000001)


def test_kernel_i64() -> None:
    @ti.kernel
    def k(a: ti.i64) -> ti.i64:
        return a * 2

    check(k(1 << 40), 2199023255552)


def test_kernel_f64() -> None:
    @ti.kernel
    def k(a: ti.f64) -> ti.f64:
        return a / 3

    check(k(1.0), 0.3333333)


def test_many_args() -> None:
    @ti.kernel
    def k(
        a: ti.i32, b: ti.i32, c: ti.i32, d: ti.i32, e: ti.i32, f: ti.i32, g: ti.f32, h: ti.f32
    ) -> ti.f32:
        return a + b * 2 + c * 3 + d * 4 + e * 5 + f * 6 + g * 7 + h * 8

    check(k(1, 2, 3, 4, 5, 6, 7.5, 8.5), 211.5)


def test_np_arg() -> None:
    @ti.kernel
    def k(x: ti.types.ndarray()) -> ti.f32:
        s = 0.0
        for i in range(x.shape[0]):
            s += x[i]
        return s

    check(
        [
            k(np.arange(5, dtype=np.float32)),
            k(np.arange(5, dtype=np.int32)),
            k(np.arange(4, dtype=np.float64)),
        ],
        [10.0, 10.0, 6.0],
    )


def test_np_arg_modify() -> None:
    @ti.kernel
    def k(x: ti.types.ndarray()):
        for i, j in x:
            x[i, j] = i * 10 + j

    a = np.zeros((2, 3), np.int32)
    k(a)
    check(a, [[0, 1, 2], [10, 11, 12]])


def test_np_arg_grouped() -> None:
    @ti.kernel
    def k(x: ti.types.ndarray()):
        for I in ti.grouped(x):
            x[I] = I.sum()

    a = np.zeros((2, 3), np.float32)
    k(a)
    check(a, [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]])


def test_nd_ann() -> None:
    @ti.kernel
    def k(x: ti.types.ndarray(dtype=ti.f32, ndim=2)):
        x[0, 0] = 3

    a = np.zeros((2, 2), np.float32)
    k(a)
    check(a, [[3.0, 0.0], [0.0, 0.0]])


def test_nd_ann_wrong_ndim() -> None:
    @ti.kernel
    def k(x: ti.types.ndarray(dtype=ti.f32, ndim=1)):
        x[0] = 3

    with pytest.raises(ValueError):
        k(np.zeros((2, 2), np.float32))


def test_nd_ann_wrong_dtype() -> None:
    @ti.kernel
    def k(x: ti.types.ndarray(dtype=ti.f32, ndim=2)):
        x[0, 0] = 3

    with pytest.raises(TypeError):
        k(ti.ndarray(ti.i32, (2, 2)))


def test_nd_vec() -> None:
    @ti.kernel
    def k(x: ti.types.ndarray(dtype=ti.math.vec3, ndim=1)):
        for i in x:
            x[i] = ti.math.vec3(i, i + 1, i + 2)

    a = ti.ndarray(ti.math.vec3, 2)
    k(a)
    check(a, [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]])


def test_nd_vec_np() -> None:
    @ti.kernel
    def k(x: ti.types.ndarray(dtype=ti.math.vec3, ndim=1)):
        for i in x:
            x[i] = ti.math.vec3(i, i + 1, i + 2)

    a = np.zeros((2, 3), np.float32)
    k(a)
    check(a, [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]])


def test_nd_mat() -> None:
    m2 = ti.types.matrix(2, 2, ti.i32)

    @ti.kernel
    def k(x: ti.types.ndarray(dtype=m2, ndim=1)):
        for i in x:
            x[i] = m2(1, 2, 3, i)

    a = ti.ndarray(m2, 2)
    k(a)
    check(a, [[[1, 2], [3, 0]], [[1, 2], [3, 1]]])


def test_nd_func() -> None:
    @ti.func
    def f(x: ti.types.ndarray(), i):
        x[i] = i * 2

    @ti.kernel
    def k(x: ti.types.ndarray()):
        for i in x:
            f(x, i)

    a = ti.ndarray(ti.i32, 3)
    k(a)
    check(a, [0, 2, 4])


def test_nd_func_template() -> None:
    @ti.func
    def f(x: ti.template(), i):
        x[i] = i * 2

    @ti.kernel
    def k(x: ti.types.ndarray()):
        for i in x:
            f(x, i)

    a = ti.ndarray(ti.i32, 3)
    k(a)
    check(a, [0, 2, 4])


@pytest.mark.ours("arrays-as-arguments")
def test_nd_func_noann() -> None:
    @ti.func
    def f(x, i):
        return x[i] * 2

    @ti.kernel
    def k(x: ti.types.ndarray()) -> ti.i32:
        return f(x, 1)

    a = ti.ndarray(ti.i32, 3)
    a[1] = 4
    check(k(a), 8)


def test_nd_shape_loop() -> None:
    @ti.kernel
    def k(x: ti.types.ndarray()):
        for i, j in ti.ndrange(x.shape[0], x.shape[1]):
            x[i, j] = i + j

    a = ti.ndarray(ti.i32, (2, 3))
    k(a)
    check(a, [[0, 1, 2], [1, 2, 3]])


def test_nd_template_arg() -> None:
    @ti.kernel
    def k(x: ti.template()):
        for i in range(3):
            x[i] = i

    a = ti.ndarray(ti.i32, 3)
    with pytest.raises(ti.TaichiRuntimeTypeError):
        k(a)


def test_field_for_nd() -> None:
    @ti.kernel
    def k(x: ti.types.ndarray()):
        for i in x:
            x[i] = i

    a = ti.field(ti.i32, 3)
    with pytest.raises(Exception):
        k(a)


@pytest.mark.ours("strided-arrays")
def test_np_noncontig() -> None:
    @ti.kernel
    def k(x: ti.types.ndarray()):
        for i in x:
            x[i] = i

    a = np.zeros(6, np.int32)
    k(a[::2])
    check(a, [0, 0, 1, 0, 2, 0])


def test_np_fortran() -> None:
    @ti.kernel
    def k(x: ti.types.ndarray()):
        for i, j in x:
            x[i, j] = i * 10 + j

    a = np.zeros((2, 3), np.int32, order="F")
    k(a)
    check(a, [[0, 1, 2], [10, 11, 12]])


def test_list_as_nd() -> None:
    @ti.kernel
    def k(x: ti.types.ndarray()):
        x[0] = 1

    with pytest.raises(ti.TaichiRuntimeTypeError):
        k([1, 2, 3])


def test_nd_shape_expr() -> None:
    @ti.kernel
    def k(x: ti.types.ndarray()) -> ti.i32:
        n = x.shape[0] * 2
        return n + len(x.shape)

    check(k(np.zeros((3, 4), np.float32)), 8)


def test_kernel_twice_fields() -> None:
    xs = [ti.field(ti.i32, 2) for _ in range(2)]

    @ti.kernel
    def k(x: ti.template(), v: ti.i32):
        for i in x:
            x[i] += v

    for x in xs:
        k(x, 3)
    k(xs[0], 4)
    check(xs, [[7, 7], [3, 3]])


def test_kernel_name_shadow() -> None:
    @ti.kernel
    def sum(n: ti.i32) -> ti.i32:
        s = 0
        for i in range(n):
            s += i
        return s

    check(sum(5), 10)


def test_kernel_return_bool_expr() -> None:
    @ti.kernel
    def k(a: ti.i32) -> bool:
        return a > 3

    check([k(5), k(1)], [True, False])


def test_kernel_returns_int_py() -> None:
    @ti.kernel
    def k(a: int) -> int:
        return a + 1

    check([k(5), type(k(5)).__name__], [6, "int"])


def test_return_vec_element() -> None:
    x = ti.Vector.field(3, ti.f32, 2)
    x[1] = [1, 2, 3]

    @ti.kernel
    def k() -> ti.f32:
        return x[1].z

    check(k(), 3.0)


def test_return_field_vec() -> None:
    x = ti.Vector.field(3, ti.f32, 2)
    x[1] = [1, 2, 3]

    @ti.kernel
    def k() -> ti.math.vec3:
        return x[1] * 2

    check(k(), [2.0, 4.0, 6.0])


def test_return_swizzle() -> None:
    @ti.kernel
    def k() -> ti.math.vec2:
        return ti.math.vec3(1, 2, 3).zx

    check(k(), [3.0, 1.0])


def test_args_vec_swizzle() -> None:
    @ti.kernel
    def k(v: ti.math.vec3) -> ti.f32:
        return v.x + v.y * 10 + v.b * 100

    check(k(ti.math.vec3(1, 2, 3)), 321.0)


def test_kernel_arg_modify_vec() -> None:
    @ti.kernel
    def k(v: ti.math.vec3) -> ti.f32:
        w = v
        w[0] = 10
        return w[0] + v[0]

    check(k(ti.math.vec3(1, 2, 3)), 11.0)


@pytest.mark.ours("masked-arrays")
def test_masked_arrays() -> None:
    @ti.kernel
    def total(x: ti.types.ndarray()) -> ti.f32:
        s = 0.0
        for i in x:
            s += x[i]
        return s

    x = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0], dtype=np.float32)
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        total(x)
    check(total(x.filled(0)), 4.0)


@pytest.mark.ours("tensors-written", run=False)
def test_tensors_that_torch_needs() -> None:
    torch = pytest.importorskip("torch")

    @ti.kernel
    def clear(x: ti.types.ndarray()):
        for i in x:
            x[i] = 0.0

    x = torch.ones(3, requires_grad=True)
    y = x * 2
    z = y * y
    clear(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
    with pytest.raises(RuntimeError, match="leaf Variable"):
        clear(x[:])
