"""Mistakes that raise errors, of types that Taichi's handlers catch."""

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.language.compare import check


def refuse(kernel, *args, kind) -> None:
    """The kernel raises this kind of error, which is a compilation error too."""
    with pytest.raises(kind) as caught:
        kernel(*args)
    assert isinstance(caught.value, ti.TaichiCompilationError)


def test_a_float_is_no_integer_literal() -> None:
    known = 2.0

    @ti.kernel
    def literal() -> ti.i32:
        return ti.i32(1.5)

    @ti.kernel
    def negative() -> ti.i32:
        return ti.u8(-1.5)

    @ti.kernel
    def captured() -> ti.i32:
        return ti.i32(known)

    @ti.kernel
    def computed() -> ti.i32:
        return ti.i32(1.5 + 1)

    for kernel in (literal, negative, captured, computed):
        refuse(kernel, kind=ti.TaichiTypeError)


def test_casts_truncate_floats() -> None:
    @ti.kernel
    def cut(x: ti.f32) -> ti.i32:
        return ti.i32(x) * 100 + int(1.5) * 10 + ti.cast(2.5, ti.i32)

    check(cut(3.5), 312)


def test_cast_of_function_result() -> None:
    n = 5.0

    @ti.kernel
    def cells() -> ti.i32:
        return ti.i32(ti.math.clamp(n, 0.0, 2.0))

    assert cells() == 2


@pytest.mark.ours("literal-floats")
def test_an_integer_is_a_float_literal() -> None:
    @ti.kernel
    def f() -> ti.f32:
        return ti.f32(1)

    check(f(), 1.0)


def test_types_take_one_value() -> None:
    @ti.kernel
    def two() -> ti.i32:
        return ti.i32(1, 2)

    @ti.kernel
    def none() -> ti.i32:
        return ti.i32()

    @ti.kernel
    def keyword() -> ti.i32:
        return ti.i32(1, base=2)

    for kernel in (two, none, keyword):
        refuse(kernel, kind=ti.TaichiSyntaxError)


def test_a_template_argument_keeps_its_type() -> None:
    @ti.kernel
    def assign(a: ti.template()):
        a = 3

    @ti.kernel
    def augment(a: ti.template()):
        a += 3

    @ti.func
    def inner(a: ti.template()):
        a = 3

    @ti.kernel
    def call():
        inner(2)

    refuse(assign, 2, kind=ti.TaichiSyntaxError)
    refuse(augment, 2, kind=ti.TaichiSyntaxError)
    refuse(call, kind=ti.TaichiSyntaxError)


def test_a_template_argument_that_is_a_variable_changes() -> None:
    @ti.func
    def set_three(a: ti.template()):
        a = 3

    @ti.kernel
    def f() -> ti.i32:
        b = 2
        set_three(b)
        return b

    check(f(), 3)


def test_a_variable_keeps_its_type() -> None:
    @ti.kernel
    def twice():
        x: ti.i32 = 1
        x: ti.f32 = 2.0

    @ti.kernel
    def later():
        x = 1
        x: ti.f32 = 2.0

    refuse(twice, kind=ti.TaichiSyntaxError)
    refuse(later, kind=ti.TaichiSyntaxError)


def test_a_variable_is_declared_again_as_it_is() -> None:
    @ti.kernel
    def f() -> ti.i32:
        x: ti.i32 = 1
        x: ti.i32 = x + 1
        for i in range(1):
            y: ti.i32 = 3
            x += y
        for i in range(1):
            y: ti.f32 = 0.5
            x += int(y * 2)
        return x

    check(f(), 6)


def test_not_of_a_float() -> None:
    @ti.kernel
    def number(a: ti.f32) -> ti.i32:
        return not a

    @ti.kernel
    def vector():
        a = not ti.Vector([1.0, 2.0])

    @ti.kernel
    def fine(a: ti.f32, n: ti.i32) -> ti.i32:
        return 10 * (not (a > 1)) + (not n)

    refuse(number, 1.0, kind=ti.TaichiTypeError)
    refuse(vector, kind=ti.TaichiTypeError)
    check([fine(0.5, 0), fine(2.0, 3)], [11, 0])


@pytest.mark.ours("float-conditions")
def test_a_float_is_a_condition() -> None:
    @ti.kernel
    def f(a: ti.f32) -> ti.i32:
        r = 0
        if a:
            r = 1
        return r + (10 if a else 20)

    check([f(0.0), f(-0.5)], [20, 11])


def annotate_with_a_number() -> None:
    @ti.func
    def number(a: 3):
        return a

    @ti.kernel
    def f() -> ti.i32:
        return number(1)

    f()


def annotate_with_a_class() -> None:
    class Other:
        pass

    @ti.func
    def another(a: Other):
        return 1

    @ti.kernel
    def f() -> ti.i32:
        return another(1)

    f()


def annotate_with_an_array() -> None:
    @ti.func
    def array(a: ti.types.ndarray()):
        return 1

    @ti.kernel
    def f() -> ti.i32:
        return array(1)

    f()


@pytest.mark.parametrize(
    "act", [annotate_with_a_number, annotate_with_a_class, annotate_with_an_array]
)
def test_annotations_of_functions(act) -> None:
    refuse(act, kind=ti.TaichiSyntaxError)


@pytest.mark.ours("function-annotations")
def test_an_annotation_may_be_the_class_of_the_argument() -> None:
    class Material:
        stiffness = 3

    steel = Material()

    @ti.func
    def twice(m: Material, factors: list):
        return m.stiffness * factors[0]

    @ti.kernel
    def f() -> ti.i32:
        return twice(steel, [2])

    check(f(), 6)


def test_ranges_over_non_numbers() -> None:
    @ti.kernel
    def f():
        for i in ti.ndrange("x"):
            pass

    refuse(f, kind=ti.TaichiSyntaxError)


def test_a_constant_index_below_zero() -> None:
    @ti.kernel
    def of_a_vector() -> ti.i32:
        v = ti.Vector([1, 2, 3])
        return v[-1]

    @ti.kernel
    def of_a_matrix() -> ti.i32:
        m = ti.Matrix([[1, 2], [3, 4]])
        return m[0, -1]

    refuse(of_a_vector, kind=ti.TaichiSyntaxError)
    refuse(of_a_matrix, kind=ti.TaichiSyntaxError)


@pytest.mark.ours("negative-indices")
def test_a_constant_index_below_zero_of_a_field() -> None:
    x, y = ti.field(ti.i32, 4), ti.field(ti.i32, 4, offset=-2)

    @ti.kernel
    def wrong():
        x[-1] = 3

    @ti.kernel
    def right():
        y[-1] = 3

    right()
    check(y[-1], 3)
    refuse(wrong, kind=ti.TaichiSyntaxError)


def test_python_indices_out_of_range_in_debug_mode(init) -> None:
    init(debug=True)
    x = ti.field(ti.i32, 4)
    v = ti.Vector.field(2, ti.f32, 4)
    for key in (4, -1):
        with pytest.raises(AssertionError):
            x[key]  # noqa: B018
        with pytest.raises(AssertionError):
            x[key] = 1
        with pytest.raises(AssertionError):
            v[key] = [1, 2]


@pytest.mark.ours("python-bounds")
def test_python_indices_out_of_range() -> None:
    x, a = ti.field(ti.i32, 4), ti.ndarray(ti.i32, 4)
    for array in (x, a):
        with pytest.raises(IndexError):
            array[4]  # noqa: B018
        with pytest.raises(ti.TaichiAssertionError):
            array[-1] = 1


def test_index_count_must_equal_axis_count() -> None:
    x, a = ti.field(ti.i32, 4), ti.ndarray(ti.i32, 4)
    with pytest.raises(AssertionError):
        x[1, 1]  # noqa: B018
    with pytest.raises(ti.TaichiCompilationError):
        a[1, 1]  # noqa: B018
    with pytest.raises(IndexError):
        a[1, 1]  # noqa: B018


def test_component_count_must_match() -> None:
    v = ti.Vector.field(3, ti.f32, 4)
    with pytest.raises(IndexError):
        v[0] = [1, 2]


@pytest.mark.ours("array-axes")
def test_arrays_of_as_many_axes_as_annotated() -> None:
    @ti.kernel
    def f(a: ti.types.ndarray(ndim=2)):
        pass

    with pytest.raises(ValueError):
        f(np.zeros(4, np.float32))
