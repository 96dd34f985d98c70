"""`ti.init(debug="nan")`: the first NaN or infinity that a kernel stores, with line, iteration and
operands."""

from __future__ import annotations

import math

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import KernelNanError
from vkchi.runtime import current_runtime


@pytest.fixture(autouse=True)
def nan_mode(own_runtime):
    ti.init(debug="nan")


def skip_without(name: str) -> None:
    """Skip on devices without the type."""
    if not current_runtime().device.caps.can_store(name):
        pytest.skip(f"the device has no {name}")


def told_by(run, *args) -> str:
    """The message of the error that a call raises."""
    with pytest.raises(FloatingPointError) as e:
        run(*args)
    assert isinstance(e.value, KernelNanError)
    return str(e.value)


def test_the_operation_and_the_iteration_are_named():
    x = ti.field(ti.f32, (40, 50))

    @ti.kernel
    def roots():
        for i, j in x:
            x[i, j] = ti.sqrt(20.0 - i) * 2 + j

    said = told_by(roots)
    assert "sqrt(-1.0) gives nan, and nan is stored in `x`" in said
    assert "x[i, j] = ti.sqrt(20.0 - i) * 2 + j" in said
    assert "note: in the iteration i = 21, j = 0" in said
    assert "note: 949 other checks failed" in said  # 19 rows of 50
    assert np.isnan(x.to_numpy()).sum() == 950  # the other stores took place


def test_the_first_of_a_million_iterations_is_found():
    x = ti.field(ti.f32, 1 << 20)

    @ti.kernel
    def divide(zero: ti.i32):
        for i in x:
            x[i] = 1.0 / (0 if i >= zero else 1)

    for zero in (0, 7, 777_777, (1 << 20) - 1):
        assert f"in the iteration i = {zero}" in told_by(divide, zero)
    divide(1 << 20)


def test_a_function_and_a_range_with_steps():
    v = ti.Vector.field(3, ti.f32, 100)

    @ti.func
    def ratio(a, b):
        return a / b

    @ti.kernel
    def fill():
        for i in range(3, 100, 2):
            v[i] = ti.Vector([1.0, 2.0, 3.0]) * ratio(1.0, 7 - i)

    said = told_by(fill)
    assert "1.0 / 0.0 gives inf, and [inf, inf, inf] is stored in `v`" in said
    assert "in ratio(), called from fill()" in said and "in the iteration i = 7" in said


def test_grouped_indices():
    x = ti.field(ti.f32, (4, 5))

    @ti.kernel
    def fill():
        for I in ti.grouped(x):
            x[I] = 1.0 / (I[0] + I[1] - 2)

    assert "in the iteration I = [0, 2]" in told_by(fill)


def test_an_atomic_names_its_operand_first():
    x, total = ti.field(ti.f32, 100), ti.field(ti.f32, ())
    x.fill(1)
    x[40] = 0

    @ti.kernel
    def add():
        for i in x:
            total[None] += 1.0 / x[i]

    said = told_by(add)
    assert "1.0 / 0.0 gives inf, and inf is stored in `total`" in said
    assert "in the iteration i = 40" in said  # later sums of this launch are infinite too


def test_an_atomic_that_overflows():
    total = ti.field(ti.f32, ())
    total[None] = 3e38

    @ti.kernel
    def add():
        for i in range(1):
            total[None] += 2e38

    assert "3e+38 + 2e+38 gives inf" in told_by(add)


def test_an_atomic_of_a_sum_that_was_infinite():
    x = ti.field(ti.f32, 100)
    x[5] = math.inf

    @ti.kernel
    def add():
        for i in x:
            x[i] += 1.0

    said = told_by(add)
    assert "inf is stored in `x`; an earlier value that it uses was not finite" in said
    assert "in the iteration i = 5" in said


def test_copies_of_non_finite_values():
    x, y = ti.field(ti.f32, 100), ti.field(ti.f32, 100)
    x[33] = math.nan

    @ti.kernel
    def copy():
        for i in x:
            y[i] = x[i]

    said = told_by(copy)
    assert "nan is stored in `y`" in said and "in the iteration i = 33" in said


def test_a_gradient():
    x, loss = ti.field(ti.f32, 20, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
    x.fill(4)
    x[3] = 0  # the root is 0, and its derivative infinite

    @ti.kernel
    def add():
        for i in x:
            loss[None] += ti.sqrt(x[i])

    def descend():
        with ti.ad.Tape(loss):
            add()

    said = told_by(descend)
    assert "0.5 / 0.0 gives inf, and inf is stored in the gradient of `x`" in said
    assert "loss[None] += ti.sqrt(x[i])" in said and "in the iteration i = 3" in said
    x[3] = 4
    descend()
    assert x.grad[3] == 0.25


def test_forward_mode():
    x, y = (ti.field(ti.f32, (), needs_dual=True) for _ in range(2))

    @ti.kernel
    def root():
        y[None] = ti.sqrt(x[None])

    def run():
        with ti.ad.FwdMode(loss=y, param=x):
            root()

    assert "is stored in the dual of `y`" in told_by(run)


def test_serial_code_reports_the_first_store():
    x = ti.field(ti.f32, 10)

    @ti.kernel
    def fill():
        ti.loop_config(serialize=True)
        for i in range(10):
            x[i] = 1.0 / (i - 4)

    assert "1.0 / 0.0 gives inf" in told_by(fill)
    assert math.isinf(x[4]) and x[9] == np.float32(0.2)


def test_several_loops_report_the_first_loop():
    x, y = ti.field(ti.f32, 10), ti.field(ti.f32, 10)

    @ti.kernel
    def fill():
        for i in x:
            x[i] = 1.0 / (5.0 - i)
        for i in y:
            y[i] = ti.sqrt(-1.0 - i)

    said = told_by(fill)
    assert "1.0 / 0.0 gives inf" in said and "in the iteration i = 5" in said


def test_other_stores_are_not_watched():
    n, x = ti.field(ti.i32, 4), ti.field(ti.f32, 4)

    @ti.kernel
    def integers():
        for i in n:
            n[i] = int(ti.sqrt(-1.0 - i) > 0)

    @ti.kernel
    def variables() -> ti.f32:
        best = ti.math.inf
        for i in range(4):
            ti.atomic_min(best, 1.0 * i)
        return best / 0.0

    @ti.kernel
    def constants():
        for i in x:
            x[i] = ti.math.inf

    integers()
    assert math.isnan(variables())
    constants()
    assert math.isinf(x[0])


def test_other_checks_are_off():
    x = ti.field(ti.f32, 4)

    @ti.kernel
    def wrong():
        assert 1 > 2
        for i in range(5):
            x[i] = i

    wrong()


def test_f64():
    skip_without("f64")
    x = ti.field(ti.f64, 4)

    @ti.kernel
    def fill():
        for i in x:
            x[i] = ti.f64(1e308) * i

    assert "in the iteration i = 2" in told_by(fill)


def test_f16():
    skip_without("f16")
    x = ti.field(ti.f16, 4)

    @ti.kernel
    def fill():
        for i in x:
            x[i] = ti.cast(30000.0 * i, ti.f16)

    assert "in the iteration i = 3" in told_by(fill)


def test_struct_members_and_ndarrays():
    s = ti.Struct.field({"a": ti.f32, "v": ti.math.vec2}, shape=4)

    @ti.kernel
    def fill():
        for i in s:
            s[i].v = ti.math.vec2(1.0 / (2 - i), 0)

    @ti.kernel
    def scale(y: ti.types.ndarray()):
        for i in y:
            y[i] = y[i] / i

    assert "[inf, 0.0] is stored in `v`" in told_by(fill)
    y = np.ones(4, np.float32)
    assert "1.0 / 0.0 gives inf" in told_by(scale, y)


def test_options():
    assert ti.cfg.debug is False
    with pytest.raises(ti.TaichiRuntimeTypeError, match="debug is True, False or 'nan', not 'inf'"):
        ti.init(debug="inf")


def test_the_environment(monkeypatch):
    monkeypatch.setenv("VKCHI_DEBUG", "nan")
    ti.init()
    x = ti.field(ti.f32, ())

    @ti.kernel
    def divide(a: ti.f32):
        x[None] = 1 / a

    assert "1.0 / 0.0 gives inf" in told_by(divide, 0.0)


def test_operations_on_constants_are_reported():
    x, v = ti.field(ti.f32, 4), ti.Vector.field(2, ti.f32, 4)
    eps, small = 0.0, np.float32(0)

    @ti.kernel
    def logarithm():
        for i in x:
            x[i] = 2.0 + ti.log(eps)

    @ti.kernel
    def alone():
        for i in x:
            x[i] = 1.0 / eps

    @ti.kernel
    def vectors():
        for i in v:
            v[i] = ti.Vector([1.0, 2.0]) / eps

    @ti.kernel
    def of_numpy():
        for i in x:
            x[i] = np.log(small)

    said = told_by(logarithm)
    assert "log(0.0) gives -inf, and -inf is stored in `x`" in said
    assert "2.0 + ti.log(eps)" in said and "in the iteration i = 0" in said
    assert "1.0 / 0.0 gives inf" in told_by(alone)
    assert "gives [inf, inf], and [inf, inf] is stored in `v`" in told_by(vectors)
    assert "log(0.0) gives -inf" in told_by(of_numpy)


def test_infinities_on_purpose_are_constants():
    x = ti.field(ti.f32, 4)
    bound = math.inf

    @ti.kernel
    def fill():
        for i in x:
            if ti.static(1.0 / 0.0 > 3):
                x[i] = -ti.static(1.0 / 0.0)
            x[i] = ti.max(-2.0 * bound, ti.exp(-bound) - i)

    fill()
    assert x.to_numpy().tolist() == [0, -1, -2, -3]
