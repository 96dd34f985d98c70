"""Arrays without gradient that held a derivative, and are overwritten before they are read again:
wholly, which cuts it, or not quite, which is refused. And derivatives that go on through several
such arrays, which are refused as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import X, check, field, is_near, make, refuse

LOST = "the gradient flows through `y`, which has none"


class Scratch:
    """y gets 2 x; the loss gets the sum of x, and later of y times x."""

    def __init__(self, y: Any) -> None:
        self.x, self.loss = make()
        x, loss = self.x, self.loss

        @ti.kernel
        def put():
            for I in ti.grouped(y):
                y[I] = 2 * x[I[0]]
            for i in x:
                loss[None] += x[i]

        @ti.kernel
        def use():
            for I in ti.grouped(y):
                loss[None] += y[I] * x[I[0]]

        self.put, self.use = put, use

    def passes(self, reset: Callable[[], Any], gradient: Any) -> None:
        check(self.x, self.loss, self.put, reset, self.use, gradient=gradient)

    def fails(self, reset: Callable[[], Any]) -> None:
        refuse(LOST, self.loss, self.put, reset, self.use)


def make_resets(y: Any) -> dict[str, Any]:
    """Kernels that put 1 into all elements of a field of shape (4, 6)."""

    @ti.kernel
    def axes():
        for i, j in y:
            y[i, j] = 1.0

    @ti.kernel
    def grouped():
        for I in ti.grouped(y):
            y[I] = 1.0

    @ti.kernel
    def ranges():
        for i, j in ti.ndrange(4, 6):
            y[i, j] = 1.0

    @ti.kernel
    def swapped():
        for j, i in ti.ndrange(6, 4):
            y[3 - i, j] = 1.0

    @ti.kernel
    def serial():
        for i in range(4):
            for j in range(6):
                y[i, j] = 1.0

    @ti.kernel
    def flat():
        for t in range(24):
            y[t // 6, t % 6] = 1.0

    @ti.kernel
    def moved():
        for i, j in ti.ndrange((-1, 3), (2, 8)):
            y[i + 1, j - 2] = 1.0

    @ti.kernel
    def once():
        if True:
            ti.loop_config(serialize=True)
            for t in range(24):
                y[t % 4, t // 4] = 1.0

    return {k: v for k, v in locals().items() if k != "y"}


RESETS = ["axes", "grouped", "ranges", "swapped", "serial", "flat", "moved", "once"]


@pytest.mark.parametrize("name", RESETS)
def test_full_overwrite_clears_derivative(name: str) -> None:
    y = ti.field(ti.f32, (4, 6))
    Scratch(y).passes(make_resets(y)[name], [7] * 4)


def make_parts(y: Any) -> dict[str, Any]:
    """Kernels that overwrite a part of a field of shape (4, 4)."""

    @ti.kernel
    def fewer():
        for i, j in ti.ndrange(4, 3):
            y[i, j] = 1.0

    @ti.kernel
    def diagonal():
        for i in range(4):
            y[i, i] = 1.0

    @ti.kernel
    def triangle():
        for i in range(4):
            for j in range(i + 1):
                y[i, j] = 1.0

    @ti.kernel
    def some():
        for i, j in y:
            if i != j:
                y[i, j] = 1.0

    @ti.kernel
    def entangled():
        for t in range(16):
            y[t // 4, t // 4] = 1.0

    @ti.kernel
    def shifted():
        for t in range(16):
            y[(t + 1) // 4, (t + 1) % 4] = 1.0

    @ti.kernel
    def even():
        for i, j in y:
            y[i, j // 2 * 2] = 1.0

    @ti.kernel
    def added():
        for i, j in y:
            y[i, j] += 1.0

    @ti.kernel
    def halves():
        for i, j in y:
            y[i, j] *= 0.5

    return {k: v for k, v in locals().items() if k != "y"}


PARTS = ["fewer", "diagonal", "triangle", "some", "entangled", "shifted", "even", "added", "halves"]


@pytest.mark.parametrize("name", PARTS)
def test_partial_overwrite_raises(name: str) -> None:
    y = ti.field(ti.f32, (4, 4))
    Scratch(y).fails(make_parts(y)[name])


def test_component_overwrites() -> None:
    x, loss = make()
    y = ti.Vector.field(2, ti.f32, 4)

    @ti.kernel
    def put():
        for i in x:
            y[i] = [2 * x[i], x[i]]

    @ti.kernel
    def both():
        for i in y:
            y[i].x = 1.0
            y[i][1] = 2.0

    @ti.kernel
    def first():
        for i in y:
            y[i].x = 1.0

    @ti.kernel
    def use():
        for i in y:
            loss[None] += y[i].x * x[i]

    check(x, loss, put, both, use, gradient=[1] * 4)
    refuse(LOST, loss, put, first, use)


def test_a_row_at_a_time() -> None:
    """Rows are filled, read and reset by their number."""
    x, loss = make()
    y = ti.field(ti.f32, (3, 4))

    @ti.kernel
    def put(t: ti.i32):
        for i in x:
            y[t, i] = 2 * x[i]

    @ti.kernel
    def reset(t: ti.i32):
        for i in x:
            y[t, i] = 1.0

    @ti.kernel
    def use(t: ti.i32):
        for i in x:
            loss[None] += y[t, i] * x[i]

    def steps():
        for t in range(3):
            put(t)
            use((t + 1) % 3)
            reset(t)

    check(x, loss, steps, lambda: use(1), gradient=[2] * 4)
    refuse(LOST, loss, lambda: put(1), lambda: reset(0), lambda: use(1))


@pytest.mark.parametrize("size", [1, 5])
def test_arrays_as_arguments(size: int) -> None:
    @ti.kernel
    def run(
        x: ti.types.ndarray(),
        y: ti.types.ndarray(),
        z: ti.types.ndarray(),
        loss: ti.types.ndarray(),
    ):
        for i in y:
            y[i] = x[0] * 2
        for i in z:
            y[i] = 1.0
        for i in y:
            loss[0] += y[i] * x[0]

    @ti.kernel
    def run_whole(x: ti.types.ndarray(), y: ti.types.ndarray(), loss: ti.types.ndarray()):
        for i in y:
            y[i] = x[0] * 2
        for i in range(y.shape[0]):
            y[i] = 1.0
        for i in y:
            loss[0] += y[i] * x[0]

    x, loss = ti.ndarray(ti.f32, 1, needs_grad=True), ti.ndarray(ti.f32, 1, needs_grad=True)
    y, z = ti.ndarray(ti.f32, size), ti.ndarray(ti.f32, 3)
    refuse(LOST, loss, lambda: run(x, y, z, loss))
    check(x, loss, lambda: run_whole(x, y, loss), gradient=[size])


def test_within_one_kernel() -> None:
    x, loss = make()
    y = ti.field(ti.f32, 4)

    @ti.kernel
    def run():
        for i in x:
            y[i] = 2 * x[i]
            loss[None] += x[i]
        for i in y:
            y[i] = 1.0
        for i in y:
            loss[None] += y[i] * x[i]

    @ti.kernel
    def again():
        for i in y:
            loss[None] += y[i] * x[i]

    check(x, loss, run, again, gradient=[3] * 4)


def test_overwritten_with_something_that_has_a_derivative() -> None:
    x, loss = make()
    y, z = ti.field(ti.f32, 4), ti.field(ti.f32, 4)

    @ti.kernel
    def put():
        for i in x:
            z[i] = 2 * x[i]
            y[i] = 3 * x[i]

    @ti.kernel
    def move():
        for i in y:
            y[i] = z[i]

    @ti.kernel
    def use():
        for i in y:
            loss[None] += y[i] * x[i]

    refuse(LOST, loss, put, move, use)


def test_through_two_arrays_in_one_kernel() -> None:
    """Of which the second got its derivative out of the first, in an earlier kernel."""
    x, loss = make()
    y, z = ti.field(ti.f32, 4), ti.field(ti.f32, 4)

    @ti.kernel
    def put():
        for i in x:
            y[i] = 2 * x[i]

    @ti.kernel
    def both():
        for i in y:
            z[i] = y[i]
        for i in y:
            loss[None] += z[i]

    @ti.kernel
    def move():
        for i in y:
            z[i] = y[i]

    @ti.kernel
    def use():
        for i in x:
            loss[None] += z[i] * x[i]

    refuse(LOST, loss, put, both)
    check(x, loss, put, move, lambda: z.fill(3), use, gradient=[3] * 4)


def test_overwritten_by_python() -> None:
    y = ti.field(ti.f32, (4, 2))
    s = Scratch(y)

    def elements():
        for i in range(4):
            for j in range(2):
                y[i, j] = 1.0

    def most():
        for i in range(4):
            y[i, 1] = 1.0

    def twice():
        y.from_numpy(y.to_numpy() * 2)

    s.passes(elements, [3] * 4)
    s.passes(lambda: y.from_numpy(X[:, None] * [0.0, 0.0] + 1), [3] * 4)
    s.fails(most)
    s.fails(twice)


def test_unknown_contents_are_overwritten() -> None:
    """An array with a gradient that Python changed after it had read it."""
    x, loss = make()
    y = field(4)

    @ti.kernel
    def put():
        for i in x:
            y[i] = 2 * x[i]

    @ti.kernel
    def use():
        for i in y:
            loss[None] += y[i] * x[i]

    def change():
        y[1] *= 2

    check(x, loss, put, change, put, use, gradient=4 * X)
    refuse("`y` was overwritten by Python", loss, put, change, use)


def test_in_forward_mode() -> None:
    x, loss = ti.field(ti.f32, 4, needs_dual=True), ti.field(ti.f32, (), needs_dual=True)
    y = ti.field(ti.f32, 4)

    @ti.kernel
    def run():
        for i in x:
            y[i] = 2 * x[i]
            loss[None] += x[i]
        for i in y:
            y[i] = 3.0
        for i in y:
            loss[None] += y[i] * x[i]

    x.from_numpy(X)
    with ti.ad.FwdMode(loss=loss, param=x, seed=[1, 0, 0, 0]):
        run()
    is_near(loss.dual, 4)


@pytest.mark.parametrize("size", [5, 2100])
def test_a_part_that_is_all_of_smaller_arrays(size: int) -> None:
    """A kernel is compiled for arrays of any shape, so this is refused for small ones too."""

    @ti.kernel
    def run(x: ti.types.ndarray(), y: ti.types.ndarray(), loss: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]
        for i in range(y.shape[0] - ti.max(y.shape[0] - 2000, 0)):
            y[i] = 0.0
        for i in x:
            loss[0] += y[i]

    x, loss = ti.ndarray(ti.f32, size, needs_grad=True), ti.ndarray(ti.f32, 1, needs_grad=True)
    refuse(LOST, loss, lambda: run(x, ti.ndarray(ti.f32, size), loss))


def test_matrices_of_any_shape() -> None:
    @ti.kernel
    def run(x: ti.types.ndarray(), y: ti.types.ndarray(), loss: ti.types.ndarray()):
        for i, j in y:
            y[i, j] = 2 * x[i]
        for j, i in ti.ndrange(y.shape[1], y.shape[0]):
            y[y.shape[0] - 1 - i, j] = 1.0
        for i, j in y:
            loss[0] += y[i, j] * x[i]

    x, loss = ti.ndarray(ti.f32, 3, needs_grad=True), ti.ndarray(ti.f32, 1, needs_grad=True)
    check(x, loss, lambda: run(x, ti.ndarray(ti.f32, (3, 5)), loss), gradient=[5] * 3)


@pytest.mark.parametrize("n", [0, 1, 5, 6])
def test_indices_divided_by_those_of_a_loop_that_may_not_run(n: int) -> None:
    x = ti.field(ti.f32, 12, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def clear(n: ti.i32):
        for i in range(5, n):
            x[30 // i] = 0.0
            x[7 % i] = 0.0

    @ti.kernel
    def measure():
        for i in x:
            loss[None] += x[i] * x[i]

    x.fill(1.0)
    with ti.ad.Tape(loss):
        clear(n)
        measure()
    expected = np.full(12, 2.0)
    for i in range(5, n):
        expected[[30 // i, 7 % i]] = 0.0
    np.testing.assert_array_equal(x.grad.to_numpy(), expected)


def test_python_that_read_a_component_has_read_the_array() -> None:
    y = ti.Vector.field(2, ti.f32, 4)
    x, loss = make()

    @ti.kernel
    def put():
        for i in y:
            y[i] = ti.Vector([2 * x[i], 1.0])

    @ti.kernel
    def use():
        for i in y:
            loss[None] += y[i][0] * x[i]

    def change() -> None:
        first = y.get_scalar_field(0).to_numpy()
        y.from_numpy(np.stack([first, first], 1))

    refuse(LOST, loss, put, change, use)
    check(x, loss, put, lambda: y.from_numpy(np.ones((4, 2), np.float32)), use, gradient=1.0)
