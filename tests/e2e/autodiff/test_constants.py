"""Arrays with gradients that hold constants: values computed from them lose no derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import field, is_near, refuse

N = 16
LOST = "the gradient flows through `p`, which has none"


def solver(b: Any, k: Any) -> tuple[Any, Any, list[Callable[[], Any]]]:
    """Conjugate gradients without a matrix, whose vectors have no gradients; the solution has."""
    x, loss = field(N), field()
    r, p, q = (ti.field(ti.f32, N) for _ in range(3))

    @ti.func
    def product(v: ti.template(), i):
        s = 3 * v[i]
        if i > 0:
            s -= v[i - 1]
        if i < N - 1:
            s -= v[i + 1]
        return s

    @ti.kernel
    def start():
        for i in x:
            r[i] = b[i] - product(x, i)
            p[i] = r[i]

    @ti.kernel
    def multiply():
        for i in p:
            q[i] = product(p, i)

    @ti.kernel
    def dot(u: ti.template(), v: ti.template()) -> ti.f32:
        s = 0.0
        for i in u:
            s += u[i] * v[i]
        return s

    @ti.kernel
    def move(alpha: ti.f32):
        for i in x:
            x[i] += alpha * p[i]
            r[i] -= alpha * q[i]

    @ti.kernel
    def turn(beta: ti.f32):
        for i in p:
            p[i] = r[i] + beta * p[i]

    @ti.kernel
    def total():
        for i in x:
            loss[None] += k[None] * x[i] ** 2

    def iterate() -> None:
        now = dot(r, r)
        for _ in range(8):
            multiply()
            move(now / dot(p, q))
            now, before = dot(r, r), now
            turn(now / before)

    return x, loss, [start, iterate, total]


def values() -> tuple[Any, np.ndarray]:
    """A right-hand side without gradient, and the solution."""
    b = ti.field(ti.f32, N)
    b.from_numpy(np.linspace(1, 2, N).astype(np.float32))
    matrix = 3 * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1)
    return b, np.linalg.solve(matrix, np.linspace(1, 2, N))


@pytest.mark.parametrize("how", ["fill", "from_numpy", "kernel"])
def test_a_solver_that_begins_with_zeros(how: str) -> None:
    (b, solution), k = values(), field(values=2.0)
    x, loss, steps = solver(b, k)

    @ti.kernel
    def clear():
        for i in x:
            x[i] = 0

    x.fill(7)
    with ti.ad.Tape(loss):
        for turn in range(2):
            if how == "fill" and turn:
                x.fill(0)
            elif how == "from_numpy" and turn:
                x.from_numpy(np.zeros(N, np.float32))
            else:
                clear()
            for step in steps:
                step()
    is_near(k.grad, 2 * (solution**2).sum())
    is_near(x.grad, np.zeros(N))


def test_a_solver_in_one_kernel() -> None:
    x, k, loss = field(N), field(values=2.0), field()
    b, solution = values()
    r, p, q = (ti.field(ti.f32, N) for _ in range(3))
    now, then, along = (ti.field(ti.f32, ()) for _ in range(3))

    @ti.kernel
    def solve():
        for i in x:
            x[i] = 0
        now[None] = 0
        for i in x:
            r[i] = b[i] - 3 * x[i]
            p[i] = r[i]
        for i in x:
            now[None] += r[i] * r[i]
        for _ in range(1):
            for _ in range(8):
                along[None] = 0
                then[None] = 0
                for i in range(N):
                    q[i] = 3 * p[i]
                    q[i] -= p[i - 1] if i > 0 else 0.0
                    q[i] -= p[i + 1] if i < N - 1 else 0.0
                    along[None] += p[i] * q[i]
                for i in range(N):
                    x[i] += now[None] / along[None] * p[i]
                    r[i] -= now[None] / along[None] * q[i]
                    then[None] += r[i] * r[i]
                for i in range(N):
                    p[i] = r[i] + then[None] / now[None] * p[i]
                now[None] = then[None]
        for i in x:
            loss[None] += k[None] * x[i] ** 2

    x.fill(7)
    with ti.ad.Tape(loss):
        solve()
    is_near(k.grad, (solution**2).sum())
    is_near(x.grad, np.zeros(N))


def test_initial_values_with_a_derivative() -> None:
    x, k, loss = field(N, values=np.ones(N)), field(values=2.0), field()
    r = ti.field(ti.f32, N)

    @ti.kernel
    def some(n: ti.i32):
        for i in range(n):
            x[i] = 0
        for i in x:
            r[i] = x[i]
        for i in x:
            loss[None] += r[i]

    @ti.kernel
    def depending():
        for i in x:
            x[i] = k[None]
        for i in x:
            r[i] = x[i]
        for i in x:
            loss[None] += r[i]

    @ti.kernel
    def adding():
        for i in x:
            loss[None] += x[i]
        for i in x:
            x[i] = 0
        for i in x:
            loss[None] += 3 * x[i]

    lost = "the gradient flows through `r`, which has none"
    refuse(lost, loss, lambda: some(N))
    refuse(lost, loss, depending)
    with ti.ad.Tape(loss):
        adding()
    is_near(x.grad, np.ones(N))


ZEROS: dict[str, Callable[[Any], None]] = {
    "fill": lambda x: x.fill(0),
    "from_numpy": lambda x: x.from_numpy(np.zeros(N, np.float32)),
    "elements": lambda x: [x.__setitem__(i, 0) for i in range(N)] and None,
}


@pytest.mark.parametrize("memory", [None, "1KiB"])
@pytest.mark.parametrize("how", ZEROS)
def test_python_write_before_kernels(how: str, memory: str | None) -> None:
    """It may be an input of the program, until the derivative by it gets lost."""
    (b, solution), k = values(), field(values=2.0)
    x, loss, steps = solver(b, k)
    for _ in range(2):
        with ti.ad.Tape(loss, memory=memory):
            ZEROS[how](x)
            for step in steps:
                step()
        is_near(k.grad, (solution**2).sum())
        for read in (lambda: x.grad[0], x.grad.to_numpy, lambda: b.copy_from(x.grad)):
            with pytest.raises(ti.ad.GradientError, match=r"is not known: Python put") as found:
                read()
            assert "Python put them there" in str(found.value)
            assert "start() puts a value with a derivative there" in str(found.value)
    ti.ad.clear_all_gradients()
    assert x.grad[0] == 0


def test_python_write_is_an_input() -> None:
    x, y, loss = field(N), field(N), field()

    @ti.kernel
    def run():
        for i in x:
            y[i] = x[i] ** 2
        for i in x:
            loss[None] += y[i]

    with ti.ad.Tape(loss):
        x.fill(3)
        run()
    is_near(x.grad, np.full(N, 6))


def test_python_write_within_one_kernel() -> None:
    x, r, k, loss = field(N), ti.field(ti.f32, N), field(values=2.0), field()

    @ti.kernel
    def run():
        for i in x:
            r[i] = 1 - x[i]
        for i in x:
            x[i] += 0.5 * r[i]
        for i in x:
            loss[None] += k[None] * x[i]

    refuse("the gradient flows through `r`, which has none", loss, run)
    for _ in range(2):
        with ti.ad.Tape(loss):
            x.fill(0)
            run()
        is_near(k.grad, N / 2)
        with pytest.raises(ti.ad.GradientError, match=r"is not known: Python put"):
            print(x.grad)


def test_python_write_beside_differentiable_values() -> None:
    """Both go through one array."""
    x, k, loss, r = field(N), field(values=2.0), field(), ti.field(ti.f32, N)

    @ti.kernel
    def first():
        for i in x:
            r[i] = k[None] - x[i]

    @ti.kernel
    def second():
        for i in x:
            x[i] += r[i]

    @ti.kernel
    def later():
        for i in x:
            r[i] = k[None]

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    lost = "the gradient flows through `r`, which has none"
    fill = lambda: x.fill(0)  # noqa: E731
    refuse(lost, loss, fill, first, second, total)
    refuse(lost, loss, fill, later, second, total)


def test_a_lost_derivative_raises() -> None:
    (b, _), k = values(), field(values=2.0)
    x, loss, steps = solver(b, k)
    refuse(LOST, loss, *steps)  # by the initial x

    @ti.kernel
    def clear():
        for i in x:
            x[i] = 0

    @ti.kernel
    def partly():
        for i in range(N - 1):
            x[i] = 0

    @ti.kernel
    def depending():
        for i in x:
            x[i] = k[None]

    def one_element() -> None:
        clear()
        x[3] = 1
        depending()

    @ti.ad.grad_replaced
    def own() -> None:
        depending()

    @ti.ad.grad_for(own)
    def own_gradient() -> None:
        pass

    for begin in partly, depending, one_element, (lambda: (clear(), own())):
        refuse(LOST, loss, begin, *steps)
    other, k = field(N, values=np.ones(N)), field(values=2.0)
    x, loss, steps = solver(other, k)  # its right-hand side has a gradient
    refuse(LOST, loss, clear, *steps)
