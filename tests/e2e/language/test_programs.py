"""Small programs over several features."""

import pytest

import vkchi as ti
from tests.e2e.language.compare import check


def test_field_dtype() -> None:
    x = ti.field(ti.f32, 3)

    @ti.kernel
    def k() -> ti.i32:
        r = 0
        if ti.static(x.dtype == ti.f32):
            r = 1
        return r

    check(k(), 1)


@pytest.mark.ours("vector-m")
def test_vec_nm() -> None:
    @ti.kernel
    def k() -> ti.i32:
        m = ti.Matrix([[1, 2], [3, 4], [5, 6]])
        v = ti.Vector([7, 8, 9])
        return m.n * 1000 + m.m * 100 + v.n * 10 + v.m

    check(k(), 3231)


def test_field_arith_types() -> None:
    x = ti.field(ti.u8, 4)

    @ti.kernel
    def k():
        for i in x:
            x[i] = i * 100

    k()
    check(x, [0, 100, 200, 44])


def test_store_float_in_int() -> None:
    x = ti.field(ti.i32, 2)

    @ti.kernel
    def k():
        x[0] = 2.9
        x[1] = -2.9

    k()
    check(x, [2, -2])


def test_int_overflow_wrap() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        return a + 1

    check(k(2147483647), -2147483648)


def test_literals_beyond_the_default_type() -> None:
    @ti.kernel
    def alone():
        a = 3000000000

    @ti.kernel
    def beside(a: ti.i32) -> ti.i32:
        return a & 0xFF000000

    @ti.kernel
    def power() -> ti.i32:
        return 2**31

    @ti.kernel
    def fine() -> ti.i64:
        return ti.i64(3000000000) - 1

    for kernel, *args in ((alone,), (beside, 1), (power,)):
        with pytest.raises(ti.TaichiTypeError):
            kernel(*args)
    check(fine(), 2999999999)


@pytest.mark.ours("wide-literals")
def test_literals_take_the_type_beside() -> None:
    @ti.kernel
    def mix(a: ti.u32) -> ti.u32:
        return (a * 2654435769) ^ 0xFFFFFFFF

    check(mix(7), (7 * 2654435769) % 2**32 ^ 0xFFFFFFFF)


@pytest.mark.ours("wide-literals")
def test_literals_take_the_type_of_their_target() -> None:
    x = ti.field(ti.u32, 3)
    y = ti.field(ti.f32, 2)

    @ti.func
    def mask(a: ti.u32) -> ti.u32:
        return a & 0xFFFF0000

    @ti.func
    def top() -> ti.u32:
        return 0x80000000

    @ti.kernel
    def k() -> ti.u32:
        x[0] = 0xFFFFFFFF
        x[1] ^= 0x80000000
        for _ in range(2):
            x[2] += 0xF0000000
        y[0] = 2**40
        y[1] -= 10**12
        a = ti.u32(5)
        a |= 0xF0000000
        return mask(0xF0F0F0F0) | a | (top() >> 4)

    check(k(), 0xF8F00005)
    check(x.to_numpy().tolist(), [0xFFFFFFFF, 0x80000000, 0xE0000000])
    check(y.to_numpy().tolist(), [2.0**40, -999999995904.0])


@pytest.mark.ours("wide-literals")
def test_literals_that_do_not_fit_raise() -> None:
    x = ti.field(ti.u32, 1)

    @ti.kernel
    def k():
        x[0] = 2**33

    with pytest.raises(ti.TaichiTypeError, match=r"8589934592 does not fit u32"):
        k()


def test_hex_u32() -> None:
    @ti.kernel
    def k() -> ti.u32:
        return ti.u32(0xFFFFFFFF) >> 4

    check(k(), 268435455)


def test_const_fold_py() -> None:
    @ti.kernel
    def k() -> ti.f32:
        return 1 / 3 + 2**3 + 7 // 2 + 7 % 3

    check(k(), 12.33333)


def test_neg_mod() -> None:
    @ti.kernel
    def k(a: ti.i32, b: ti.i32) -> ti.i32:
        return (a % b) * 100 + a // b

    check([k(7, 3), k(-7, 3), k(7, -3), k(-7, -3)], [102, 197, -203, -98])


def test_float_mod() -> None:
    @ti.kernel
    def k(a: ti.f32, b: ti.f32) -> ti.f32:
        return (a % b) * 100 + a // b

    check([k(7.5, 2), k(-7.5, 2), k(7.5, -2)], [153.0, 46.0, -54.0])


def test_bool_var() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        f = a > 3
        r = 0
        if f:
            r = 1
        if not f:
            r += 2
        g = f and a < 10
        if g:
            r += 10
        return r

    check([k(1), k(5), k(20)], [2, 11, 1])


def test_true_false() -> None:
    @ti.kernel
    def k() -> ti.i32:
        f = True
        for i in range(3):
            if i == 1:
                f = False
        return 1 if f else 0

    check(k(), 0)


def test_none_var() -> None:
    @ti.kernel
    def k() -> ti.i32:
        a = None
        return 1

    check(k(), 1)


def test_string_cmp_static() -> None:
    mode = "fast"

    @ti.kernel
    def k() -> ti.i32:
        r = 0
        if ti.static(mode == "fast"):
            r = 1
        elif ti.static(mode == "slow"):
            r = 2
        return r

    check(k(), 1)


def test_dict_template_kernel() -> None:
    @ti.kernel
    def k(cfg: ti.template()) -> ti.i32:
        return cfg.a + cfg.b

    class C:
        pass

    c = C()
    c.a = 1
    c.b = 2
    check(k(c), 3)


def test_vec_dyn_index_store() -> None:
    @ti.kernel
    def k() -> ti.i32:
        v = ti.Vector([0, 0, 0, 0])
        for _ in range(1):
            for i in range(4):
                v[i] = i * 2
        return v.sum()

    check(k(), 12)


def test_vec_cmp() -> None:
    @ti.kernel
    def k() -> ti.i32:
        a = ti.Vector([1, 2, 3])
        b = ti.Vector([1, 5, 3])
        c = a == b
        return c[0] * 100 + c[1] * 10 + c[2]

    check(k(), 101)


def test_vec_bool_all() -> None:
    @ti.kernel
    def k() -> ti.i32:
        a = ti.Vector([1, 2, 3])
        b = ti.Vector([1, 5, 3])
        r = 0
        if (a == b).any():
            r += 1
        if (a == b).all():
            r += 10
        if all(a <= b):
            r += 100
        return r

    check(k(), 101)


def test_multiline_expr() -> None:
    @ti.kernel
    def k(a: ti.i32) -> ti.i32:
        x = a + 2 * 3
        return x + 1

    check(k(1), 8)


def test_semicolon() -> None:
    @ti.kernel
    def k() -> ti.i32:
        a = 1
        b = 2
        a += b
        return a

    check(k(), 3)


def test_comment_only() -> None:
    @ti.kernel
    def k() -> ti.i32:
        # a comment
        a = 1  # another
        # end
        return a

    check(k(), 1)


def test_unicode() -> None:
    @ti.kernel
    def k(α: ti.f32) -> ti.f32:
        β = α * 2
        return β

    check(k(1.5), 3.0)
