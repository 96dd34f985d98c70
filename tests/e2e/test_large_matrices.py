"""Products of matrices of more than 64 components, on the device."""

import numpy as np
import pytest

import vkchi as ti
from vkchi.target import tuning

N, SIZE = 9, 11
random = np.random.default_rng(3)


def matrices(*shape: int) -> np.ndarray:
    return random.standard_normal((N, *shape)).astype(np.float32)


@pytest.mark.parametrize("size", [9, 13])
@pytest.mark.parametrize("straight", [16, tuning.STRAIGHT_TENSOR])
def test_products(size: int, straight: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "STRAIGHT_TENSOR", straight)
    mat = ti.types.matrix(size, size, ti.f32)
    vec = ti.types.vector(size, ti.f32)
    a, b, c = (mat.field(shape=N) for _ in range(3))
    x, y = vec.field(shape=N), vec.field(shape=N)
    left, right, v = matrices(size, size), matrices(size, size), matrices(size)
    a.from_numpy(left)
    b.from_numpy(right)
    x.from_numpy(v)

    @ti.kernel
    def run():
        for i in a:
            c[i] = a[i] @ b[i].transpose() + 2.0 * a[i]
            y[i] = a[i] @ x[i]
            a[i] = a[i] @ a[i]
            b[i] = b[i].transpose() * b[i]

    run()
    want = left @ right.transpose(0, 2, 1) + 2 * left
    np.testing.assert_allclose(c.to_numpy(), want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(y.to_numpy(), (left @ v[..., None])[..., 0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(a.to_numpy(), left @ left, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(b.to_numpy(), right.transpose(0, 2, 1) * right, rtol=1e-5)


def test_arguments_that_are_one_array() -> None:
    mat = ti.types.matrix(SIZE, SIZE, ti.f32)

    @ti.kernel
    def multiply(
        a: ti.types.ndarray(dtype=mat, ndim=1),
        b: ti.types.ndarray(dtype=mat, ndim=1),
        c: ti.types.ndarray(dtype=mat, ndim=1),
    ):
        for i in a:
            c[i] = a[i] @ b[i] - b[i].transpose()

    for names in ("abc", "aba", "abb", "aaa"):
        values = {name: matrices(SIZE, SIZE) for name in "abc"}
        arrays = {name: ti.ndarray(mat, N) for name in "abc"}
        for name, array in arrays.items():
            array.from_numpy(values[name])
        a, b, c = names
        multiply(arrays[a], arrays[b], arrays[c])
        want = values[a] @ values[b] - values[b].transpose(0, 2, 1)
        np.testing.assert_allclose(arrays[c].to_numpy(), want, rtol=1e-4, atol=1e-4, err_msg=names)


def test_products_that_a_loop_carries() -> None:
    mat = ti.types.matrix(SIZE, SIZE, ti.f32)
    a, b = mat.field(shape=N), mat.field(shape=N)
    left, right = matrices(SIZE, SIZE), matrices(SIZE, SIZE)
    a.from_numpy(left)
    b.from_numpy(right)

    @ti.kernel
    def power(times: int):
        for i in a:
            m = a[i]
            for _ in range(times):
                m = m @ b[i] * 0.25
            a[i] = m
            b[i][0, 0] = m.sum()

    power(3)
    want = left @ right @ right @ right / 64
    np.testing.assert_allclose(a.to_numpy(), want, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(b.to_numpy()[:, 0, 0], want.sum((1, 2)), rtol=1e-3, atol=1e-3)


def test_gradients() -> None:
    mat = ti.types.matrix(SIZE, SIZE, ti.f32)
    a, b = mat.field(shape=N, needs_grad=True), mat.field(shape=N, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    left, right = matrices(SIZE, SIZE), matrices(SIZE, SIZE)
    a.from_numpy(left)
    b.from_numpy(right)

    @ti.kernel
    def run():
        for i in a:
            loss[None] += (a[i] @ b[i] + a[i] * b[i]).sum()

    with ti.ad.Tape(loss):
        run()
    ones = np.ones_like(left)
    np.testing.assert_allclose(
        a.grad.to_numpy(), ones @ right.transpose(0, 2, 1) + right, rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(
        b.grad.to_numpy(), left.transpose(0, 2, 1) @ ones + left, rtol=1e-4, atol=1e-4
    )
