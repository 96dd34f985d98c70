"""Gradients by dtype: casts, integers in the path, atomics and their results, kinks and infinities,
random numbers, layouts, matrices and linear solves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import X, check, field, is_near, make, refuse, slope


def test_integers_in_the_path() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in x:
            loss[None] += ti.cast(ti.cast(x[i] * 10, ti.i32), ti.f32) * x[i] + ti.round(x[i])

    check(x, loss, run, gradient=np.floor(X * 10))


@pytest.mark.parametrize(("name", "tolerance"), [("f16", 1e-2), ("f32", 1e-3), ("f64", 1e-9)])
def test_gradients_by_dtype(name: str, tolerance: float, need: Callable[..., None]) -> None:
    need(name)
    t = getattr(ti, name)
    x, loss = field(4, dtype=t, values=X), field()

    @ti.kernel
    def run():
        for i in x:
            for j in range(4):
                loss[None] += ti.cast(x[i] * x[j], ti.f32)

    with ti.ad.Tape(loss):
        run()
    is_near(x.grad, [2 * X.sum()] * 4, max(tolerance, 1e-6))


@pytest.mark.parametrize("name", ["f16", "f32", "f64"])
def test_sums_at_computed_elements(name: str, need: Callable[..., None]) -> None:
    """A tape saves elements before they change, also in types that are changed in their words."""
    need(name)
    t = getattr(ti, name)
    x, y, loss = field(4, dtype=t, values=[1, 2, 3, 4]), field(3, dtype=t, values=[1] * 3), field()

    @ti.kernel
    def run():
        for i in x:
            y[i % 3] += x[i]
        for i in y:
            loss[None] += ti.cast(y[i] * y[i], ti.f32)

    with ti.ad.Tape(loss):
        run()
    assert loss[None] == 36 + 9 + 16
    assert x.grad.to_numpy().tolist() == [12, 6, 8, 12]


def test_f64_throughout(need: Callable[..., None]) -> None:
    need("f64")
    x, loss = make(ti.f64)

    @ti.kernel
    def run():
        for i in x:
            s = ti.cast(1.0, ti.f64)
            for j in range(4):
                s = ti.sin(s) * x[i] + ti.exp(-x[j])
            loss[None] += s

    def program(x):
        s = np.ones(4)
        for j in range(4):
            s = np.sin(s) * x + np.exp(-x[j])
        return s.sum()

    with ti.ad.Tape(loss):
        run()
    is_near(x.grad, slope(program), 1e-7)


def test_stop_grad_of_a_value_and_of_an_array() -> None:
    x, loss = make()
    y = field(4, values=2 * X)

    @ti.kernel
    def value():
        for i in x:
            loss[None] += ti.stop_grad(x[i] * y[i]) * x[i] * ti.stop_grad(1.0)

    @ti.kernel
    def array():
        for i in x:
            ti.stop_grad(x)
            loss[None] += x[i] * y[i] * x[i]
        for i in x:
            loss[None] += x[i]

    @ti.kernel
    def argument(a: ti.types.ndarray(), total: ti.types.ndarray()):
        ti.stop_grad(a)
        for i in a:
            total[0] += a[i] * a[i]
        for i in a:
            total[0] += a[i]

    check(x, loss, value, gradient=2 * X**2)
    is_near(y.grad, 0 * X)
    check(x, loss, array, gradient=[1] * 4)
    is_near(y.grad, X**2)
    a, total = ti.ndarray(ti.f32, 4, needs_grad=True), ti.ndarray(ti.f32, 1, needs_grad=True)
    check(a, total, lambda: argument(a, total), gradient=[0] * 4)


# --- atomics -------------------------------------------------------------------------------------


def test_result_of_an_atomic_as_a_value() -> None:
    x, loss = make()
    total = field()

    @ti.kernel
    def run():
        for i in x:
            loss[None] += ti.atomic_add(total[None], x[i]) * x[i]

    refuse("order of iterations", loss, run)


def test_result_of_an_atomic_in_serial_code() -> None:
    x, loss = make()
    total = field()

    @ti.kernel
    def run():
        ti.loop_config(serialize=True)
        for i in range(4):
            loss[None] += ti.atomic_add(total[None], x[i]) * x[i]

    check(x, loss, run, gradient=X.sum() - X)


def test_ties_of_atomic_max() -> None:
    x, loss = make()
    x.from_numpy(np.array([1, 3, 3, 2]))

    @ti.kernel
    def run():
        loss[None] = -10.0
        for i in x:
            ti.atomic_max(loss[None], x[i])

    with ti.ad.Tape(loss):
        run()
    got = x.grad.to_numpy()
    assert sorted(got[1:3]) == [0, 1] and got[0] == got[3] == 0


def test_atomic_min_and_sub() -> None:
    x, loss = make()
    low = field(2, values=[9.0, 0.1])

    @ti.kernel
    def run():
        for i in x:
            ti.atomic_min(low[i % 2], x[i] * x[i])
        for i in x:
            loss[None] -= low[i % 2] * x[i]

    check(x, loss, run, gradient=slope(
        lambda x: -((x[0] + x[2]) * min(x[0] ** 2, x[2] ** 2) + 0.1 * (x[1] + x[3]))
    ))  # fmt: skip
    is_near(low.grad, [0, -(X[1] + X[3])])


# --- kinks and infinities ------------------------------------------------------------------------


def test_conventions_at_kinks() -> None:
    x, loss = make()
    x.from_numpy(np.zeros(4))

    @ti.kernel
    def run():
        loss[None] += ti.abs(x[0]) + ti.max(x[1], x[2]) * 5 + ti.min(x[1], x[2]) * 2 + x[3] ** 2

    check(x, loss, run, gradient=[0, 0, 7, 0])


def test_powers_at_zero() -> None:
    x, loss = make()
    x.from_numpy(np.array([0.0, 0.0, -2.0, 3.0]))

    @ti.kernel
    def run():
        loss[None] += x[0] ** 1 + x[0] ** 0 + x[1] ** 2 + x[2] ** 3 + ti.pow(x[3], 0.0)

    check(x, loss, run, gradient=[1, 0, 12, 0])


def test_unselected_operand_makes_no_nan() -> None:
    x, loss = make()
    x.from_numpy(np.array([0.0, -1.0, 4.0, 0.0]))

    @ti.kernel
    def run():
        for i in x:
            loss[None] += ti.select(x[i] > 0, ti.sqrt(x[i]) + ti.log(x[i]) + 1 / x[i], 0.0)
            loss[None] += ti.sqrt(ti.max(x[i], 1e-4)) + ti.min(1 / x[i], 2.0)

    with ti.ad.Tape(loss):
        run()
    is_near(x.grad, [0, -1, 0.25 + 0.25 - 0.0625 + 0.25 - 0.0625, 0])


def test_lengths_at_zero() -> None:
    v, loss = ti.Vector.field(2, ti.f32, (), needs_grad=True), field()

    @ti.kernel
    def run():
        loss[None] += v[None].norm(1e-3) + v[None].norm_sqr() + v[None].dot(v[None])

    check(v, loss, run, gradient=[0, 0])


# --- operations that cannot be recomputed ---------------------------------------------------------


def test_random_numbers_that_are_added() -> None:
    x, loss = make()

    @ti.kernel
    def shifted():
        for i in x:
            loss[None] += x[i] * x[i] + ti.random()

    check(x, loss, shifted, gradient=2 * X)


def test_random_numbers_in_a_field() -> None:
    x, loss = make()
    noise = ti.field(ti.f32, 4)

    @ti.kernel
    def draw():
        for i in x:
            noise[i] = ti.random()

    @ti.kernel
    def scaled():
        for i in x:
            loss[None] += x[i] * noise[i]

    with ti.ad.Tape(loss):
        draw()
        scaled()
        first = noise.to_numpy()
        draw()
        scaled()
    is_near(x.grad, first + noise.to_numpy())


def test_print_and_assert(capfd: pytest.CaptureFixture[str]) -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in x:
            if i == 0:
                print("seen", x[i])
            assert x[i] > 0
            loss[None] += x[i] * x[i]

    check(x, loss, run, gradient=2 * X)
    ti.sync()
    assert capfd.readouterr().out.count("seen") == 1


# --- functions and layouts -----------------------------------------------------------------------


def test_arguments_changed_by_reference() -> None:
    x, loss = make()

    @ti.func
    def change(a: ti.template(), b):
        a = a * b
        a += b

    @ti.kernel
    def run():
        for i in x:
            s = x[i]
            change(s, x[i])
            change(s, s)
            change(x[i], s)
            loss[None] += x[i]

    def program(x):
        s = x * x + x
        s = s * s + s
        return (x * s + s).sum()

    check(x, loss, run, gradient=slope(program))


def test_offsets_blocks_and_components_apart() -> None:
    x, loss = ti.field(ti.f32, (4, 3), needs_grad=True, offset=(-2, 1)), field()
    y = ti.Vector.field(2, ti.f32, needs_grad=True)
    ti.root.dense(ti.i, 2).dense(ti.i, 2).place(y, y.grad)
    z = ti.Vector.field(2, ti.f32, 4, needs_grad=True, layout=ti.Layout.SOA)

    @ti.kernel
    def run():
        for i, j in x:
            x[i, j] = x[i, j] * x[i, j]
        for i, j in x:
            loss[None] += x[i, j] * y[i + 2].y * z[i + 2].x

    x.fill(3)
    y.fill(2)
    z.fill(0.5)
    check(x, loss, run, gradient=np.full((4, 3), 6))
    is_near(y.grad, [[0, 13.5]] * 4)
    is_near(z.grad, [[54, 0]] * 4)


def test_grouped_loops_and_neighbours() -> None:
    x, loss = field(4, 3), field()
    values = np.random.default_rng(0).random((4, 3))
    x.from_numpy(values)

    @ti.kernel
    def run():
        for I in ti.grouped(x):
            for J in ti.static(ti.grouped(ti.ndrange((-1, 2), (-1, 2)))):
                K = I + J
                if 0 <= K[0] < 4 and 0 <= K[1] < 3:
                    loss[None] += x[K] * x[I]
        for i, j in ti.ndrange(2, (1, 3)):
            x[i, j] *= x[i + 1, j - 1]

    def program(x):
        wide = np.pad(x, 1)
        shifted = [wide[p : p + 4, q : q + 3] for p in range(3) for q in range(3)]
        return (sum(shifted) * x).sum()

    check(x, loss, run, gradient=slope(program, values))


def test_vector_by_computed_component() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in range(4):
            v = ti.Vector([x[0], x[1], x[2]])
            v[(i * 2) % 3] *= x[3]
            v[i % 3] = v[(i + 1) % 3] * v[i % 3]
            loss[None] += v.sum() * v[(i + 2) % 3]

    def program(x):
        total = 0
        for i in range(4):
            v = x[:3].copy()
            v[(i * 2) % 3] *= x[3]
            v[i % 3] = v[(i + 1) % 3] * v[i % 3]
            total += v.sum() * v[(i + 2) % 3]
        return total

    check(x, loss, run, gradient=slope(program))


A = np.array([[2, 0.5], [0.3, 1.5]])


def polar(a: Any) -> Any:
    u, s, v = np.linalg.svd(a)
    return (u @ v)[0, 1] + (v.T @ np.diag(s) @ v)[0, 0]


def product(q: Any) -> Any:
    return q[0] * q[1]


LINEAR: dict[str, Callable[[Any], Any]] = {
    "inverse": lambda a: np.linalg.inv(a)[0, 1] + np.linalg.det(a),
    "svd": lambda a: (np.linalg.svd(a)[1] * [2, 1]).sum(),
    "polar": polar,
    "solve": lambda a: product(np.linalg.solve(a, [1, 2])),
}


@pytest.mark.parametrize("name", LINEAR)
def test_linear_algebra(name: str) -> None:
    m, loss = ti.Matrix.field(2, 2, ti.f32, (), needs_grad=True), field()
    m.from_numpy(A)

    @ti.kernel
    def run():
        if ti.static(name == "inverse"):
            loss[None] += m[None].inverse()[0, 1] + m[None].determinant()
        elif ti.static(name == "svd"):
            U, S, V = ti.svd(m[None])
            loss[None] += S[0, 0] * 2 + S[1, 1]
        elif ti.static(name == "polar"):
            R, P = ti.polar_decompose(m[None])
            loss[None] += R[0, 1] + P[0, 0]
        else:
            q = ti.solve(m[None], ti.Vector([1.0, 2.0]))
            loss[None] += q.x * q.y

    check(m, loss, run, gradient=slope(LINEAR[name], A))


def test_math_functions() -> None:
    x, loss = make()

    @ti.kernel
    def run():
        for i in x:
            a = x[i]
            s = ti.math.mix(a, a * a, 0.3) + ti.math.smoothstep(0.0, 2.0, a)
            s += ti.math.clamp(a, 0.5, 1.5) * a + ti.math.fract(a) * 2 + ti.math.log2(a)
            s += ti.math.length(ti.Vector([a, 1.0])) + ti.math.mod(a, 0.3) + ti.math.sign(a)
            loss[None] += s + ti.tan(a * 0.3) + ti.asin(a * 0.4) + ti.acos(a * 0.3) + a**1.5

    def program(a):
        t = a / 2
        s = 0.7 * a + 0.3 * a * a + t * t * (3 - 2 * t) + np.clip(a, 0.5, 1.5) * a + (a % 1) * 2
        s += np.log2(a) + np.sqrt(a * a + 1) + a % 0.3
        return (s + np.tan(a * 0.3) + np.arcsin(a * 0.4) + np.arccos(a * 0.3) + a**1.5).sum()

    check(x, loss, run, gradient=slope(program))
