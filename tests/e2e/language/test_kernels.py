"""`@ti.kernel`: results, arguments by value, wrong calls."""

from typing import Tuple

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.language.compare import check


@pytest.mark.ours("kernel-default-arguments")
def test_kernel_default() -> None:
    @ti.kernel
    def k(a: ti.i32 = 7, b: ti.f32 = 0.5) -> ti.f32:
        return a + b

    check([k(), k(1), k(b=2.0), k(3, 4.0)], [7.5, 1.5, 9.0, 7.0])


def test_kernel_kwargs() -> None:
    @ti.kernel
    def k(a: ti.i32, b: ti.i32) -> ti.i32:
        return a * 10 + b

    check([k(1, b=2), k(b=3, a=4)], [12, 43])


def test_ret_vec() -> None:
    @ti.kernel
    def k() -> ti.types.vector(3, ti.f32):
        return ti.Vector([1.0, 2.0, 3.0])

    check(list(k()), [1.0, 2.0, 3.0])


def test_ret_mat() -> None:
    @ti.kernel
    def k() -> ti.types.matrix(2, 2, ti.i32):
        return ti.Matrix([[1, 2], [3, 4]])

    check(k(), [[1, 2], [3, 4]])


def test_ret_tuple() -> None:
    @ti.kernel
    def k() -> (ti.i32, ti.f32):
        return 1, 2.5

    check(k(), [1, 2.5])


def test_ret_typing() -> None:
    @ti.kernel
    def k() -> Tuple[ti.i32, ti.f32]:
        return 1, 2.5

    check(k(), [1, 2.5])


def test_ret_tuple_builtin() -> None:
    @ti.kernel
    def k() -> tuple[int, float]:
        return 1, 2.5

    check(k(), [1, 2.5])


@pytest.mark.ours("several-results")
def test_ret_tuple_of_one() -> None:
    @ti.kernel
    def k() -> (ti.f32,):
        return (2.5,)

    @ti.kernel
    def builtin() -> tuple[ti.f32]:
        return (2.5,)

    assert (k(), builtin()) == ((2.5,), (2.5,))


def test_ret_vec_tuple() -> None:
    v3 = ti.types.vector(3, ti.i32)

    @ti.kernel
    def k() -> (v3, ti.f32):
        return v3(1, 2, 3), 2.5

    a, b = k()
    check([list(a), b], [[1, 2, 3], 2.5])


def test_ret_cast() -> None:
    @ti.kernel
    def k() -> ti.i32:
        return 2.7

    check(k(), 2)


def test_ret_int_pyfloat() -> None:
    @ti.kernel
    def k() -> float:
        return 2

    check([k(), type(k()).__name__], [2.0, "float"])


@pytest.mark.ours("returns-none")
def test_ret_none_annot() -> None:
    @ti.kernel
    def k() -> None:
        pass

    assert k() is None


@pytest.mark.ours("several-results")
def test_ret_several_type() -> None:
    @ti.kernel
    def k() -> (ti.i32, ti.f32):
        return 3, 4.5

    assert k() == (3, 4.5)


def test_kernel_in_kernel() -> None:
    @ti.kernel
    def g() -> ti.i32:
        return 1

    @ti.kernel
    def k() -> ti.i32:
        return g()

    with pytest.raises(ti.TaichiSyntaxError):
        k()


def test_return_in_loop_kernel() -> None:
    @ti.kernel
    def g() -> ti.i32:
        for i in range(10):
            return i
        return 1

    with pytest.raises(ti.TaichiSyntaxError):
        g()


def test_no_return() -> None:
    @ti.kernel
    def g() -> ti.i32:
        a = 1

    with pytest.raises(ti.TaichiSyntaxError):
        g()


def test_return_unannot() -> None:
    @ti.kernel
    def g():
        return 1

    with pytest.raises(ti.TaichiSyntaxError):
        g()


def test_kernel_mat_arg() -> None:
    @ti.kernel
    def k(m: ti.types.matrix(2, 2, ti.f32), v: ti.types.vector(2, ti.f32)) -> ti.types.vector(
        2, ti.f32
    ):
        return m @ v

    check(list(k(ti.Matrix([[1, 2], [3, 4]]), ti.Vector([1, 1]))), [3.0, 7.0])


def test_kernel_mat_arg_list() -> None:
    @ti.kernel
    def k(v: ti.types.vector(2, ti.f32)) -> ti.f32:
        return v.sum()

    check(k([1, 2.5]), 3.5)


def test_kernel_mat_arg_np() -> None:
    @ti.kernel
    def k(v: ti.types.vector(2, ti.f32)) -> ti.f32:
        return v.sum()

    check(k(np.array([1, 2.5])), 3.5)


def test_bool_arg() -> None:
    @ti.kernel
    def k(v: bool) -> ti.i32:
        return 5 if v else 6

    check([k(True), k(False)], [5, 6])


def test_u1_arg() -> None:
    @ti.kernel
    def k(v: ti.u1) -> ti.u1:
        return not v

    check([k(True), k(False)], [False, True])


def test_int_to_float_arg() -> None:
    @ti.kernel
    def k(v: ti.f32) -> ti.f32:
        return v / 2

    check([k(3), k(np.float32(2)), k(np.int32(5))], [1.5, 1.0, 2.5])


def test_float_to_int_arg() -> None:
    @ti.kernel
    def k(v: ti.i32) -> ti.i32:
        return v

    with pytest.raises(ti.TaichiRuntimeTypeError):
        k(3.5)


def test_too_many() -> None:
    @ti.kernel
    def k(v: ti.i32):
        pass

    with pytest.raises(ti.TaichiSyntaxError):
        k(1, 2)


def test_too_few() -> None:
    @ti.kernel
    def k(v: ti.i32):
        pass

    with pytest.raises(ti.TaichiSyntaxError):
        k()


def test_unannot_kernel_arg() -> None:
    with pytest.raises(ti.TaichiSyntaxError):

        @ti.kernel
        def k(v):
            pass


def test_star_args() -> None:
    with pytest.raises(ti.TaichiSyntaxError):

        @ti.kernel
        def k(*v):
            pass
