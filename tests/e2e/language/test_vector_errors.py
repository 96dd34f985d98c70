"""Wrong programs: components that a vector has not, arrays made in kernels, other results."""

import numpy as np
import pytest

import vkchi as ti
import vkchi.math as tm
from tests.e2e.language.compare import check


@pytest.mark.parametrize("name", ["z", "xz", "b", "q", "xxz"])
def test_a_short_vector_has_no_such_component(name: str) -> None:
    v = tm.vec2(1, 2)
    with pytest.raises(ti.TaichiSyntaxError):
        getattr(v, name)
    with pytest.raises(ti.TaichiSyntaxError):
        setattr(v, name, [3] * len(name) if name[1:] else 3)
    check(v, [1.0, 2.0])


def test_an_element_has_no_such_component() -> None:
    f = ti.Vector.field(2, ti.f32, shape=2)
    with pytest.raises(ti.TaichiSyntaxError):
        f[0].z  # noqa: B018


def test_unknown_swizzle_is_an_attribute() -> None:
    with pytest.raises(AttributeError):
        tm.vec3(1).foo  # noqa: B018
    with pytest.raises(AttributeError):
        tm.vec3(1).xg  # noqa: B018


def test_swizzles_take_as_many_numbers() -> None:
    v = tm.vec3(1, 2, 3)
    with pytest.raises(ti.TaichiRuntimeError):
        v.xy = [1, 2, 3]
    v.zx = [5, 6]
    check(v, [6.0, 2.0, 5.0])


def test_kernels_make_no_fields() -> None:
    @ti.kernel
    def k():
        x = ti.field(ti.i32, shape=3)
        x[0] = 1

    with pytest.raises(ti.TaichiCompilationError):
        k()


def test_kernels_make_no_arrays() -> None:
    @ti.kernel
    def vectors():
        ti.Vector.field(2, ti.i32, shape=3)

    @ti.kernel
    def arrays():
        ti.ndarray(ti.i32, 3)

    @ti.kernel
    def typed():
        tm.vec3.field(shape=3)

    for kernel in (vectors, arrays, typed):
        with pytest.raises(ti.TaichiCompilationError):
            kernel()


def test_a_number_is_no_vector_to_return() -> None:
    @ti.kernel
    def k() -> tm.vec2:
        return 1.0

    with pytest.raises(ti.TaichiCompilationError):
        k()


def test_scalar_for_tuple_result_raises() -> None:
    @ti.kernel
    def k() -> (ti.i32, ti.i32):
        return 1

    with pytest.raises(ti.TaichiCompilationError):
        k()


def test_arrays_have_no_negative_indices() -> None:
    @ti.kernel
    def read(x: ti.types.ndarray()) -> ti.f32:
        return x[-1]

    @ti.kernel
    def write(x: ti.types.ndarray()):
        x[0, 1 - 2] = 3

    with pytest.raises(ti.TaichiSyntaxError):
        read(np.ones(3, np.float32))
    with pytest.raises(ti.TaichiSyntaxError):
        write(np.ones((3, 3), np.float32))


def test_fields_with_offsets_have_negative_indices() -> None:
    f = ti.field(ti.i32, shape=4, offset=-2)
    f[-1] = 5

    @ti.kernel
    def k() -> ti.i32:
        f[-2] = 7
        return f[-1] + f[-2]

    check(k(), 12)
