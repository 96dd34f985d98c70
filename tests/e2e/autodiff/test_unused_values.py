"""A value that nothing uses never makes a gradient NaN: totals that the loss does not depend on,
rows of matrices, components that are overwritten."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti

NAN, INF = math.nan, math.inf
X = [1.0, 2.0, 3.0, 4.0]
GAPS = [1.0, NAN, -INF, 2.0]


def filled(values: Any) -> Any:
    a = np.array(values, np.float32)
    x = ti.field(ti.f32, a.shape, needs_grad=True)
    x.from_numpy(a)
    return x


def tensor(values: Any) -> Any:
    a = np.array(values, np.float32)
    make: Any = ti.Matrix.field if a.ndim == 2 else ti.Vector.field
    x = make(*a.shape, ti.f32, (), needs_grad=True)
    x.from_numpy(a)
    return x


# --- totals --------------------------------------------------------------------------------------


def other_total(x: Any, gaps: Any, totals: Any, loss: Any) -> None:
    for i in x:
        totals[1] += x[i] * gaps[i]


def beside_the_loss(x: Any, gaps: Any, totals: Any, loss: Any) -> None:
    for i in x:
        totals[1] += x[i] * gaps[i]
        loss[None] += x[i] * gaps[i] * 0 if i < 0 else 0.0


def of_a_variable(x: Any, gaps: Any, totals: Any, loss: Any) -> None:
    s = 0.0
    for i in x:
        s += x[i] * gaps[i]
    totals[1] = s


def in_a_serial_loop(x: Any, gaps: Any, totals: Any, loss: Any) -> None:
    ti.loop_config(serialize=True)
    for i in x:
        totals[1] += x[i] * gaps[i]


def of_products(x: Any, gaps: Any, totals: Any, loss: Any) -> None:
    for i in x:
        s = 0.0
        for k in range(3):
            s += x[i] * gaps[i] * ti.sin(gaps[i]) * k
        totals[1] += s


METRICS = [other_total, beside_the_loss, of_a_variable, in_a_serial_loop, of_products]


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("body", METRICS, ids=lambda f: f.__name__)
def test_total_that_the_loss_does_not_use(body: Callable[..., None], order: str) -> None:
    x, gaps, totals, loss = filled(X), filled(GAPS), filled([0, 0]), filled(0)
    add = ti.func(body)

    @ti.kernel
    def metric():
        add(x, gaps, totals, loss)

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i] ** 2

    kernels = [metric, total] if order == "before" else [total, metric]
    with ti.ad.Tape(loss):
        for kernel in kernels:
            kernel()
    np.testing.assert_array_equal(x.grad.to_numpy(), 2 * np.array(X))
    np.testing.assert_array_equal(gaps.grad.to_numpy(), 0)


def test_totals_of_one_loop() -> None:
    x, gaps, other, loss = filled(X), filled(GAPS), filled(0), filled(0)

    @ti.kernel
    def run():
        for i in x:
            other[None] += x[i] * gaps[i]
            loss[None] += x[i] ** 2

    with ti.ad.Tape(loss):
        run()
    np.testing.assert_array_equal(x.grad.to_numpy(), 2 * np.array(X))


def test_component_of_a_total() -> None:
    x, gaps, loss = filled(X), filled(GAPS), filled(0)
    both = ti.Vector.field(2, ti.f32, (), needs_grad=True)

    @ti.kernel
    def run():
        for i in x:
            both[None] += ti.Vector([x[i] * gaps[i], x[i] ** 2])
        loss[None] = both[None].y

    with ti.ad.Tape(loss):
        run()
    np.testing.assert_array_equal(x.grad.to_numpy(), 2 * np.array(X))


def test_total_that_the_loss_uses_is_nan() -> None:
    x, gaps, other, loss = filled(X), filled(GAPS), filled(0), filled(0)

    @ti.kernel
    def run():
        for i in x:
            other[None] += x[i] * gaps[i]
        loss[None] = other[None] ** 2

    with ti.ad.Tape(loss):
        run()
    assert np.isnan(x.grad.to_numpy()).all()


# --- rows ----------------------------------------------------------------------------------------


B = np.array([[NAN, 1.0], [2.0, 3.0]])
C = np.array([[5.0, NAN], [7.0, -INF]])
V, U = np.array([4.0, 6.0]), np.array([INF, 8.0])


def matrix_times_vector(b: Any, c: Any, v: Any, u: Any) -> Any:
    return (b @ v)[1]


def matrix_times_matrix(b: Any, c: Any, v: Any, u: Any) -> Any:
    return (b @ c)[1, 0]


def outer_product_by_rows(b: Any, c: Any, v: Any, u: Any) -> Any:
    return u.outer_product(v)[1, 0]


def outer_product_by_columns(b: Any, c: Any, v: Any, u: Any) -> Any:
    return v.outer_product(u)[0, 1]


ZERO2, ZERO1 = np.zeros((2, 2)), np.zeros(2)
# the function, and its gradients by b, c, v and u
ROWS: list[tuple[Callable[..., Any], list[Any]]] = [
    (matrix_times_vector, [[[0, 0], V], ZERO2, B[1], ZERO1]),
    (matrix_times_matrix, [[[0, 0], C[:, 0]], [[2, 0], [3, 0]], ZERO1, ZERO1]),
    (outer_product_by_rows, [ZERO2, ZERO2, [8, 0], [0, 4]]),
    (outer_product_by_columns, [ZERO2, ZERO2, [8, 0], [0, 4]]),
]


@pytest.mark.parametrize(("body", "want"), ROWS, ids=[f.__name__ for f, _ in ROWS])
@pytest.mark.parametrize("is_total", [False, True], ids=["element", "total"])
def test_rows_and_columns_that_are_not_used(body: Any, want: Any, is_total: bool) -> None:
    b, c, v, u, loss = tensor(B), tensor(C), tensor(V), tensor(U), filled(0)
    function = ti.func(body)

    @ti.kernel
    def run():
        if ti.static(is_total):
            for _ in range(1):
                loss[None] += function(b[None], c[None], v[None], u[None])
        else:
            loss[None] = function(b[None], c[None], v[None], u[None])

    with ti.ad.Tape(loss):
        run()
    for one, slopes in zip((b, c, v, u), want):
        np.testing.assert_array_equal(one.grad.to_numpy(), slopes)


def test_product_with_adjoints_of_zero_has_second_derivatives() -> None:
    """|A v|^2 at v = 0, by a kernel that keeps A v: its adjoint is 0, the Hessian 2 A' A."""
    a, v, loss = tensor([[1, 2], [3, 4]]), tensor([0, 0]), filled(0)
    y = tensor([0, 0])

    @ti.kernel
    def multiply():
        y[None] = a[None] @ v[None]

    @ti.kernel
    def total():
        loss[None] += y[None].norm_sqr()

    def run() -> None:
        multiply()
        total()

    found = ti.ad.hvp(run, loss, v, [1, 0])
    np.testing.assert_array_equal(found, [20, 28])


# --- components that are overwritten -------------------------------------------------------------


@pytest.mark.parametrize("index", ["literal", "computed"])
def test_overwritten_component_beside_an_infinite_slope(index: str) -> None:
    x, loss = filled([1.0, 0.0]), filled(0)
    y = ti.Vector.field(2, ti.f32, 2, needs_grad=True)
    y.fill(3)

    @ti.kernel
    def run():
        for i in y:
            w = y[i]
            for k in range(1):
                if ti.static(index == "literal"):
                    w.y = x[1]
                else:
                    w[k + 1] = x[1]
            loss[None] += ti.sqrt(w.y) + w.x

    with ti.ad.Tape(loss):
        run()
    np.testing.assert_array_equal(y.grad.to_numpy(), [[1, 0], [1, 0]])
    np.testing.assert_array_equal(x.grad.to_numpy(), [0, INF])
