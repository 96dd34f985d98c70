"""Products with Hessians where Python writes between the kernels."""

from __future__ import annotations

import numpy as np
import pytest

import vkchi as ti


@pytest.mark.parametrize("write", ["fill", "element", "array"])
def test_hvp_where_python_resets_an_intermediate(write: str) -> None:
    """Every round begins with y = 1/2, so the loss is that of the last: (1/2 + x^2)^2 / 2 + ..."""
    n = 3
    x, y = ti.field(ti.f32, n, needs_grad=True), ti.field(ti.f32, n, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    a, v = np.array([0.5, 0.8, 1.2], np.float32), np.array([1.0, -2.0, 0.5], np.float32)
    x.from_numpy(a)

    @ti.kernel
    def add():
        for i in x:
            y[i] += x[i] * x[i]

    @ti.kernel
    def total():
        for i in y:
            loss[None] += y[i] * y[i] / 2

    def reset():
        if write == "fill":
            y.fill(0.5)
        elif write == "array":
            y.from_numpy(np.full(n, 0.5, np.float32))
        else:
            for i in range(n):
                y[i] = 0.5

    def run():
        for _ in range(3):
            reset()
            add()
        total()

    product = ti.ad.hvp(run, loss, x, v)  # f = (1/2 + x^2)^2 / 2, f'' = 1 + 6 x^2
    np.testing.assert_allclose(product, (1 + 6 * a**2) * v, rtol=1e-5)
    np.testing.assert_allclose(x.grad.to_numpy(), (0.5 + a**2) * 2 * a, rtol=1e-5)


def test_hvp_if_python_overwrites_an_element_it_read() -> None:
    x, y = ti.field(ti.f32, (), needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    x[None] = 2.0

    @ti.kernel
    def put():
        y[None] = x[None] ** 2

    @ti.kernel
    def use():
        loss[None] += y[None] ** 2

    def run():
        put()
        y[None] = y[None] * 2
        use()

    with pytest.raises(ti.ad.GradientError, match="overwritten by Python"):
        ti.ad.hvp(run, loss, x, 1.0)


def cubed(write):
    """The Hessian times (1, -0.5, 0.25) and the gradient of sum(x^3), if `write` changes x first;
    None for an error."""
    x = ti.field(ti.f32, 3, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    x.from_numpy(np.array([1, 2, 3], np.float32))

    @ti.kernel
    def cube():
        for i in x:
            loss[None] += x[i] ** 3

    def run():
        write(x)
        cube()

    try:
        product = ti.ad.hvp(run, loss, x, [1.0, -0.5, 0.25])
    except ti.ad.GradientError as e:
        assert "overwritten by Python, which had read it" in str(e)
        return None
    np.testing.assert_allclose(x.grad.to_numpy(), 3 * x.to_numpy() ** 2, rtol=1e-5)
    np.testing.assert_allclose(product, 6 * x.to_numpy() * [1.0, -0.5, 0.25], rtol=1e-5)
    return product.tolist()


def double(x):
    x[1] *= 2


def scale(x):
    x.from_numpy(x.to_numpy() * 2)


def scale_one_of_the_new(x):
    x.from_numpy(np.array([4, 5, 6], np.float32))
    x[1] *= 2  # of a value that does not depend on the old one


@pytest.mark.parametrize("write", [double, scale], ids=lambda f: f.__name__)
def test_hvp_if_python_computes_x_from_its_old_values(write) -> None:
    assert cubed(write) is None


def test_hvp_if_python_sets_x_without_reading_it() -> None:
    assert cubed(lambda x: x.fill(2)) == [12, -6, 3]
    assert cubed(lambda x: x.from_numpy(np.array([4, 5, 6], np.float32))) == [24, -15, 9]
    assert cubed(scale_one_of_the_new) == [24, -30, 9]
    assert cubed(lambda x: x.to_numpy()) == cubed(lambda x: None) == [6, -6, 4.5]


def test_hvp_if_python_adds_to_x() -> None:
    assert cubed(lambda x: x.__setitem__(1, 3.0)) == [6, -9, 4.5]

    def add(x):
        x[1] += 1

    assert cubed(add) == [6, -9, 4.5]
    assert cubed(lambda x: (double(x), x.fill(2))) == [12, -6, 3]
