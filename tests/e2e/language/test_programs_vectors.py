"""Small programs: templates of every kind, vectors, indices, literals, several results."""

import math

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.language.compare import check
from vkchi.math import mat2, vec2, vec3


def test_docs_recycle() -> None:
    @ti.data_oriented
    class MyClass:
        @ti.kernel
        def inc(self, temp: ti.template()):
            for I in ti.grouped(temp):
                temp[I] += 1

        def call_inc(self):
            self.inc(self.temp)

        def allocate_temp(self, n):
            self.temp = ti.field(dtype=ti.i32, shape=n)

    a = MyClass()
    a.allocate_temp(4)
    a.call_inc()
    a.call_inc()
    r = a.temp.to_numpy()
    a.allocate_temp(8)
    a.call_inc()
    check([r, a.temp], [[2, 2, 2, 2], [1, 1, 1, 1, 1, 1, 1, 1]])


def test_kernel_no_args_returns_tuple_vec() -> None:
    @ti.kernel
    def k() -> (vec2, mat2):
        return vec2(1, 2), mat2(1, 2, 3, 4)

    a, b = k()
    check([a, b], [[1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]]])


def test_kernel_in_list() -> None:
    @ti.kernel
    def a() -> ti.i32:
        return 1

    @ti.kernel
    def b() -> ti.i32:
        return 2

    check([f() for f in (a, b)], [1, 2])


def test_kernel_name_doc() -> None:
    @ti.kernel
    def foo() -> ti.i32:
        "hi"
        return 1

    check([foo.__name__, foo.__doc__], ["foo", "hi"])


def test_func_multi_template_fields() -> None:
    a = ti.field(ti.f32, 4)
    b = ti.field(ti.f32, 4)

    @ti.func
    def axpy(x: ti.template(), y: ti.template(), s, i):
        y[i] = s * x[i] + y[i]

    @ti.kernel
    def k(s: ti.f32):
        for i in a:
            a[i] = i
            b[i] = 1
        for i in a:
            axpy(a, b, s, i)

    k(2)
    check(b, [1.0, 3.0, 5.0, 7.0])


def test_vec_field_in_func() -> None:
    p = ti.Vector.field(2, ti.f32, 3)

    @ti.func
    def move(i, d):
        p[i] += d

    @ti.kernel
    def k():
        for i in p:
            move(i, ti.Vector([1.0, i]))

    k()
    check(p, [[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])


def test_struct_for_2d_3d() -> None:
    x = ti.field(ti.i32, (2, 2, 2))

    @ti.kernel
    def k():
        for i, j, l in x:
            x[i, j, l] = i * 100 + j * 10 + l

    k()
    check(x, [[[0, 1], [10, 11]], [[100, 101], [110, 111]]])


def test_nested_dataor_kernel_tpl() -> None:
    @ti.data_oriented
    class S:
        def __init__(self, n):
            self.n = n
            self.f = ti.field(ti.i32, n)

    @ti.kernel
    def k(s: ti.template(), t: ti.template()):
        for i in s.f:
            s.f[i] = i + t.n

    s, t = S(3), S(5)
    k(s, t)
    k(t, s)
    check([s.f, t.f], [[5, 6, 7], [3, 4, 5, 6, 7]])


def test_tpl_dtype() -> None:
    @ti.kernel
    def k(t: ti.template()) -> ti.i32:
        return ti.cast(300.7, t)

    check([k(ti.u8), k(ti.i32)], [44, 300])


def test_tpl_vec_type() -> None:
    @ti.kernel
    def k(t: ti.template()) -> ti.f32:
        v = t(2)
        return v.sum()

    check([k(vec2), k(vec3)], [4.0, 6.0])


def test_vtype_captured() -> None:
    v4 = ti.types.vector(4, ti.i32)

    @ti.kernel
    def k() -> v4:
        v = v4(0)
        for i in ti.static(range(4)):
            v[i] = i * i
        return v

    check(k(), [0, 1, 4, 9])


def test_mat_type_call_forms() -> None:
    m23 = ti.types.matrix(2, 3, ti.f32)

    @ti.kernel
    def k() -> ti.f32:
        a = m23(0)
        b = m23([[1, 2, 3], [4, 5, 6]])
        c = m23(1, 2, 3, 4, 5, 6)
        a[1, 2] = 7
        return a.sum() + b[1, 0] + c[0, 2]

    check(k(), 14.0)


def test_vec_from_vec_and_scalar() -> None:
    @ti.kernel
    def k() -> vec3:
        a = vec2(1, 2)
        return vec3(a, 3) + vec3(0, a)

    check(k(), [1.0, 3.0, 5.0])


def test_if_vec_assign() -> None:
    @ti.kernel
    def k(c: ti.i32) -> vec2:
        v = vec2(0)
        if c == 1:
            v.x = 5
        elif c == 2:
            v.y = 6
        else:
            v = vec2(7, 8)
        return v

    check([k(1), k(2), k(3)], [[5.0, 0.0], [0.0, 6.0], [7.0, 8.0]])


def test_kernel_calls_many() -> None:
    x = ti.field(ti.i32, ())

    @ti.kernel
    def inc(d: ti.i32):
        x[None] += d

    for i in range(50):
        inc(i)
    check(x[None], 1225)


def test_static_if_in_func_on_type() -> None:
    @ti.func
    def f(x: ti.template()):
        r = 0
        if ti.static(x.n == 2):
            r = 20
        else:
            r = 30
        return r

    a = ti.Vector.field(2, ti.f32, 1)
    b = ti.Vector.field(3, ti.f32, 1)

    @ti.kernel
    def k() -> ti.i32:
        return f(a) + f(b)

    check(k(), 50)


def test_field_shape_unpack() -> None:
    x = ti.field(ti.i32, (3, 4))

    @ti.kernel
    def k() -> ti.i32:
        n, m = x.shape
        return n * 10 + m

    check(k(), 34)


def test_field_shape_static_unpack() -> None:
    x = ti.field(ti.i32, (3, 4))

    @ti.kernel
    def k() -> ti.i32:
        n, m = ti.static(x.shape)
        s = 0
        for i in ti.static(range(n)):
            s += m
        return s

    check(k(), 12)


def test_grouped_arith() -> None:
    x = ti.field(ti.f32, (4, 4))

    @ti.kernel
    def k():
        for I in ti.grouped(x):
            c = (I + 0.5) / 4.0
            x[I] = c.norm_sqr()

    k()
    check(
        x,
        [
            [0.03125, 0.15625, 0.40625, 0.78125],
            [0.15625, 0.28125, 0.53125, 0.90625],
            [0.40625, 0.53125, 0.78125, 1.15625],
            [0.78125, 0.90625, 1.15625, 1.53125],
        ],
    )


def test_bool_field() -> None:
    x = ti.field(ti.u1, 4)

    @ti.kernel
    def k():
        for i in x:
            x[i] = i % 2 == 0

    k()
    check([bool(x[i]) for i in range(4)], [True, False, True, False])


def test_int_literals_bases() -> None:
    @ti.kernel
    def k() -> ti.i32:
        return 0x10 + 0b101 + 0o17 + 1_000

    check(k(), 1036)


def test_float_literals() -> None:
    @ti.kernel
    def k() -> ti.f32:
        return 1e3 + 0.5 + 2.0 + 1.5e-1

    check(k(), 1002.65)


def test_inf_nan() -> None:
    @ti.kernel
    def k() -> (ti.i32, ti.i32, ti.f32):
        return ti.math.isinf(ti.math.inf), ti.math.isnan(ti.math.nan), -ti.math.inf

    a, b, c = k()
    check([bool(a), bool(b), c], [True, True, -math.inf])


def test_abs_neg_int() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        return abs(a) + ti.abs(a) - -a

    check(k(-5), 5)


def test_tuple_static_index() -> None:
    @ti.kernel
    def k() -> ti.i32:
        t = (1, 2, 3)
        s = 0
        for i in ti.static(range(len(t))):
            s += t[i] * (i + 1)
        return s

    check(k(), 14)


def test_tuple_compare() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        x, y = (a, a + 1) if a > 2 else (0, 0)
        return x * 10 + y

    check([k(3), k(1)], [34, 0])


def test_star_index() -> None:
    x = ti.field(ti.i32, (3, 3))

    @ti.kernel
    def k():
        idx = (1, 2)
        x[idx] = 5

    k()
    check(x, [[0, 0, 0], [0, 0, 5], [0, 0, 0]])


def test_vec_index() -> None:
    x = ti.field(ti.i32, (3, 3))

    @ti.kernel
    def k():
        I = ti.Vector([1, 2])
        x[I] = 5
        x[I - 1] += 2

    k()
    check(x, [[0, 2, 0], [0, 0, 5], [0, 0, 0]])


def test_mixed_vec_scalar_index() -> None:
    x = ti.field(ti.i32, (3, 3, 3))

    @ti.kernel
    def k():
        I = ti.Vector([1, 2])
        x[I, 0] = 5
        x[0, I] = 6

    k()
    check(
        x,
        [
            [[0, 0, 0], [0, 0, 6], [0, 0, 0]],
            [[0, 0, 0], [0, 0, 0], [5, 0, 0]],
            [[0, 0, 0], [0, 0, 0], [0, 0, 0]],
        ],
    )


def test_u64() -> None:
    @ti.kernel
    def k(a: ti.u64) -> ti.u64:
        return a * 3

    check(k(1 << 62), 13835058055282163712)


def test_arg_np_scalars() -> None:
    @ti.kernel
    def k(a: ti.i32, b: ti.f32) -> ti.f32:
        return a + b

    check(
        [k(np.int64(3), np.float64(2.5)), k(np.uint8(3), np.float16(2.5)), k(True, 1)],
        [5.5, 5.5, 2.0],
    )


def test_kernel_tuple_arg_for_vec() -> None:
    @ti.kernel
    def k(a: vec3) -> ti.f32:
        return a.sum()

    check([k((1, 2, 3)), k([1, 2, 3]), k(np.array([1.0, 2.0, 3.0]))], [6.0, 6.0, 6.0])


def test_vec_arg_wrong_len() -> None:
    @ti.kernel
    def k(a: vec3) -> ti.f32:
        return a.sum()

    with pytest.raises(Exception):
        k([1, 2])
