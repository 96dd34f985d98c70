"""Gradients where memory changes: in place, within and across kernels; by two names; through arrays
without gradients."""

from __future__ import annotations

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import X, check, field, is_near, make, refuse, slope


def test_in_place_within_a_kernel() -> None:
    x, loss = make()
    y = field(4)

    @ti.kernel
    def run():
        for i in x:
            x[i] = ti.sin(x[i])
            y[i] = x[i] * x[i]
            x[i] *= y[i]
            loss[None] += x[i] * y[i]

    check(x, loss, run, gradient=slope(lambda x: (np.sin(x) ** 5).sum()))


def test_in_place_across_kernels() -> None:
    x, loss = make()

    @ti.kernel
    def square():
        for i in x:
            x[i] = x[i] * x[i]

    @ti.kernel
    def add():
        for i in x:
            loss[None] += x[i]

    check(x, loss, square, square, square, add, gradient=8 * X**7)


def test_read_then_overwritten_in_a_later_loop() -> None:
    x, loss = make()
    y = field(4)

    @ti.kernel
    def run():
        for i in x:
            y[i] = x[i] * x[(i + 1) % 4]
        for i in x:
            x[i] = y[i] * y[i]
        for i in x:
            loss[None] += x[i] * x[(i + 1) % 4]
        for i in x:
            x[i] = 0

    def program(x):
        y = (x * np.roll(x, -1)) ** 2
        return (y * np.roll(y, -1)).sum()

    check(x, loss, run, gradient=slope(program))


def test_first_rule_of_the_documents() -> None:
    x, loss = make()
    b = field(values=10.0)

    @ti.kernel
    def run():
        loss[None] = x[1] * b[None]
        b[None] += 100

    check(x, loss, run, gradient=[0, 10, 0, 0])
    is_near(b.grad, X[1])


def test_overwritten_loss() -> None:
    x, loss = make()

    @ti.kernel
    def run(i: ti.i32):
        loss[None] = x[i] * x[i]

    check(x, loss, lambda: run(0), lambda: run(1), gradient=[0, 2 * X[1], 0, 0])


def test_loss_multiplied() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        loss[None] += x[1] ** 2
        loss[None] *= x[2]
        loss[None] = loss[None] * loss[None]

    check(x, loss, run, gradient=slope(lambda x: (x[1] ** 2 * x[2]) ** 2))


def test_constants_stored_over_values() -> None:
    x, loss = make()
    y = field(4)

    @ti.kernel
    def run():
        for i in x:
            y[i] = x[i] * 2
        for i in x:
            if i % 2 == 0:
                y[i] = 5.0
        for i in x:
            loss[None] += y[i] * x[i]

    check(x, loss, run, gradient=[5, 4 * X[1], 5, 4 * X[3]])


def test_serial_and_parallel_code_mixed() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        a = x[0] * x[1]
        for i in x:
            loss[None] += a * x[i]
        loss[None] *= a
        b = loss[None]
        for i in x:
            x[i] = x[i] * b
        loss[None] += x[2]

    def program(x):
        a = x[0] * x[1]
        total = a * x.sum() * a
        return total + x[2] * total

    check(x, loss, run, gradient=slope(program))


def test_kernel_variables_read_by_later_loops() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        m = x[0]
        for i in x:
            ti.atomic_max(m, x[i])
        z = 0.0
        for i in x:
            x[i] = ti.exp(x[i] - m)
            z += x[i]
        for i in x:
            x[i] /= z
        loss[None] -= ti.log(x[2])

    p = np.exp(X) / np.exp(X).sum()
    check(x, loss, run, gradient=p - [0, 0, 1, 0])


def test_time_indexed_states() -> None:
    x, loss = field(6, 4), field()
    for i in range(4):
        x[0, i] = X[i]

    @ti.kernel
    def step(t: ti.i32):
        for i in range(4):
            x[t, i] = x[t - 1, i] * x[t - 1, (i + 1) % 4]

    @ti.kernel
    def add():
        for i in range(4):
            loss[None] += x[5, i]

    def program(x):
        for _ in range(5):
            x = x * np.roll(x, -1)
        return x.sum()

    with ti.ad.Tape(loss):
        for t in range(1, 6):
            step(t)
        add()
    is_near(x.grad.to_numpy()[0], slope(program))


def test_swap_by_copying() -> None:
    a, loss = make()
    b = field(4)

    @ti.kernel
    def step():
        for i in a:
            b[i] = a[i] * a[(i + 1) % 4]

    @ti.kernel
    def add():
        for i in a:
            loss[None] += a[i]

    def program(x):
        for _ in range(2):
            x = x * np.roll(x, -1)
        return x.sum()

    def swap():
        a.copy_from(b)

    check(a, loss, step, swap, step, swap, add, gradient=slope(program))


def test_permutation_in_place() -> None:
    x, loss = make()
    index = ti.field(ti.i32, 4)
    index.from_numpy(np.array([2, 0, 3, 1], np.int32))
    y = field(4)

    @ti.kernel
    def run():
        for i in x:
            y[index[i]] = x[i] * x[index[i]]
        for i in x:
            index[i] = (index[i] + 1) % 4
        for i in x:
            loss[None] += y[index[i]] * (i + 1)

    def program(x):
        index, y = np.array([2, 0, 3, 1]), np.zeros(4)
        y[index] = x * x[index]
        return (y[(index + 1) % 4] * [1, 2, 3, 4]).sum()

    check(x, loss, run, gradient=slope(program))


def test_scatter_of_vectors() -> None:
    x = ti.Vector.field(2, ti.f32, 4, needs_grad=True)
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    x.from_numpy(values)
    grid, loss = ti.Vector.field(2, ti.f32, 2, needs_grad=True), field()

    @ti.kernel
    def run():
        for i in grid:
            grid[i] = [0.0, 0.0]
        for i in x:
            grid[(i + 1) // 2 % 2] += x[i]
        for i in grid:
            loss[None] += grid[i].norm_sqr()

    sums = np.array([values[0] + values[3], values[1] + values[2]])
    check(x, loss, run, run, gradient=2 * 2 * sums[[0, 1, 1, 0]])


# --- two names for one memory --------------------------------------------------------------------


def test_an_argument_passed_twice() -> None:
    @ti.kernel
    def run(a: ti.types.ndarray(), b: ti.types.ndarray(), loss: ti.types.ndarray()):
        for i in a:
            loss[0] += a[i] * b[i]

    a, b, loss = (ti.ndarray(ti.f32, n, needs_grad=True) for n in (4, 4, 1))
    a.from_numpy(X.astype(np.float32))
    b.fill(2)
    check(a, loss, lambda: run(a, b, loss), gradient=[2] * 4)
    check(a, loss, lambda: run(a, a, loss), gradient=2 * X)


def test_an_argument_passed_twice_and_written() -> None:
    @ti.kernel
    def run(a: ti.types.ndarray(), b: ti.types.ndarray(), loss: ti.types.ndarray()):
        for i in a:
            b[i] = a[i] * a[i]
        for i in a:
            loss[0] += a[i] * b[i]

    a, b, loss = (ti.ndarray(ti.f32, n, needs_grad=True) for n in (4, 4, 1))
    a.from_numpy(X.astype(np.float32))
    check(a, loss, lambda: run(a, b, loss), gradient=3 * X**2)
    refuse("are the same memory", loss, lambda: run(a, a, loss))


def test_a_template_passed_twice() -> None:
    x, loss = make()

    @ti.kernel
    def run(a: ti.template(), b: ti.template()):
        for i in a:
            b[i] = a[i] * a[i]
        for i in a:
            loss[None] += a[i] * b[i]

    check(x, loss, lambda: run(x, x), gradient=4 * X**3)


def test_components_of_one_field() -> None:
    v = ti.Vector.field(2, ti.f32, 4, needs_grad=True)
    v.from_numpy(np.stack([X, 2 * X], 1))
    loss = field()

    @ti.kernel
    def run(a: ti.template(), b: ti.template()):
        for i in a:
            a[i] = a[i] * b[i]
        for i in a:
            loss[None] += a[i]

    first, second = v.get_scalar_field(0), v.get_scalar_field(1)
    with ti.ad.Tape(loss):
        run(first, second)
    is_near(v.grad, np.stack([2 * X, X], 1))


# --- arrays without gradients --------------------------------------------------------------------


@pytest.mark.parametrize("place", ["iteration", "loop", "kernel"])
def test_intermediate_without_gradient(place: str) -> None:
    x, loss = make()
    y = ti.field(ti.f32, 4)

    @ti.kernel
    def iteration():
        for i in x:
            y[i] = x[i] * 2
            loss[None] += y[i]

    @ti.kernel
    def loop():
        for i in x:
            y[i] = x[i] * 2
        for i in x:
            loss[None] += y[i]

    @ti.kernel
    def first():
        for i in x:
            y[i] = x[i] * 2

    @ti.kernel
    def second():
        for i in x:
            loss[None] += y[i]

    kernels = {"iteration": [iteration], "loop": [loop], "kernel": [first, second]}[place]
    refuse("the gradient flows through `y`, which has none", loss, *kernels)


def test_intermediate_without_gradient_outside_a_tape() -> None:
    x, loss = make()
    y = ti.field(ti.f32, 4)

    @ti.kernel
    def run():
        for i in x:
            y[i] = x[i] * 2
        for i in x:
            loss[None] += y[i]

    loss.grad[None] = 1
    with pytest.raises(ti.TaichiCompilationError, match="flows through `y`"):
        run.grad()


def test_intermediate_without_gradient_between_kernels_outside_a_tape() -> None:
    x, loss = make()
    y = ti.field(ti.f32, 4)

    @ti.kernel
    def first():
        for i in x:
            y[i] = x[i] * 2

    @ti.kernel
    def second():
        for i in x:
            loss[None] += y[i]

    first()
    second()
    loss.grad[None] = 1
    with pytest.raises(ti.ad.GradientError, match="`y`, which it depends on here, has none"):
        second.grad()


def test_intermediate_in_a_chain_without_gradients() -> None:
    x, loss = make()
    y, z = ti.field(ti.f32, 4), ti.field(ti.f32, 4)

    @ti.kernel
    def first():
        for i in x:
            y[i] = x[i] * 2

    @ti.kernel
    def second():
        for i in x:
            z[i] = y[i] * y[i]

    @ti.kernel
    def third():
        for i in x:
            loss[None] += z[i] * x[i]

    refuse("the gradient flows through `z`, which has none", loss, first, second, third)


def test_intermediate_in_a_chain_within_one_kernel() -> None:
    x, loss = make()
    y, z = ti.field(ti.f32, 4), ti.field(ti.f32, 4)

    @ti.kernel
    def both():
        for i in x:
            y[i] = x[i] * 2
        for i in x:
            z[i] = y[i] * y[i]
        for i in x:
            y[i] = 0

    @ti.kernel
    def total():
        for i in x:
            loss[None] += z[i] + y[i]

    refuse("the gradient flows through `z`, which has none", loss, both, total)


def test_struct_fields_with_integers() -> None:
    inner = ti.types.struct(weight=ti.f32, count=ti.i32)
    kind = ti.types.struct(x=ti.f32, group=ti.i32, inner=inner)
    f = kind.field(shape=3, needs_grad=True)
    loss = field()
    f.x.fill(2)
    f.inner.weight.fill(1.5)

    @ti.kernel
    def run():
        for i in f:
            f[i].inner.count = i
            f[i].group += 1
            f[i].x *= f[i].group
            loss[None] += f[i].x * f[i].inner.weight * f[i].inner.count

    check(f.x, loss, run, gradient=[0.0, 1.5, 3.0])
    is_near(f.inner.weight.grad, [0.0, 2.0, 4.0])
    assert f.grad.keys == ["x", "inner"]


def test_struct_fields() -> None:
    x, loss = make()
    Pair = ti.types.struct(a=ti.f32, b=ti.math.vec2)
    with_gradient, without = Pair.field(shape=4, needs_grad=True), Pair.field(shape=4)

    @ti.kernel
    def first(s: ti.template()):
        for i in x:
            pair = s[i]
            pair.a = x[i] * 2
            pair.b = [x[i], pair.a * x[i]]
            s[i] = pair

    @ti.kernel
    def second(s: ti.template()):
        for i in x:
            loss[None] += s[i].a * s[i].b.y

    check(x, loss, lambda: first(with_gradient), lambda: second(with_gradient), gradient=12 * X**2)
    refuse("which has none", loss, lambda: first(without), lambda: second(without))


def test_array_used_only_in_conditions_needs_no_gradient() -> None:
    x, loss = make()
    y = ti.field(ti.f32, 4)

    @ti.kernel
    def run():
        for i in x:
            y[i] = x[i] * 2
        for i in x:
            if y[i] > 2.0:
                loss[None] += x[i] * ti.floor(y[i])
            y[i] = x[i]

    check(x, loss, run, gradient=[0, 2, 0, 3])


def test_old_contents_without_gradient() -> None:
    x, loss = make()
    y = ti.field(ti.f32, 4)
    y.fill(3)

    @ti.kernel
    def run():
        for i in x:
            loss[None] += x[i] * y[i]
            y[i] = x[i]

    check(x, loss, run, gradient=[3] * 4)
