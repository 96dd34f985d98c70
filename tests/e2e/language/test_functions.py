"""`@ti.func`: arguments, results, early returns."""

import numpy as np
import pytest

import vkchi as ti


@ti.func
def sign_of(x: ti.i32):
    res = 0
    if x > 0:
        res = 1
    elif x < 0:
        res = -1
    return res


def test_func_in_loop() -> None:
    y = ti.field(ti.i32, shape=5)

    @ti.kernel
    def run():
        for i in y:
            y[i] = sign_of(i - 2)

    run()
    np.testing.assert_array_equal(y.to_numpy(), [-1, -1, 0, 1, 1])


def test_func_called_from_python() -> None:
    with pytest.raises((ti.TaichiCompilationError, ti.TaichiRuntimeError, AssertionError)):
        sign_of(1)
