"""Gradients of rotations and singular values where singular values are equal, as at rest in
elasticity: of the unit matrix, of multiples of rotations; and apart from there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkchi as ti


def matrix(n: int) -> Any:
    return ti.Matrix.field(n, n, ti.f32, (), needs_grad=True)


def rotation(n: int) -> Any:
    q, _ = np.linalg.qr(np.random.default_rng(4).normal(size=(n, n)))
    return q * np.linalg.det(q) if n == 3 else q * [1, np.linalg.det(q)]


def polar(a: Any) -> Any:
    u, _, vt = np.linalg.svd(a)
    return u @ vt


def corotated(a: Any, c: Any) -> float:
    r = polar(a)
    return float(((a - r) ** 2).sum() + (r * c).sum())


def slopes(f: Any, a: Any, step: float = 1e-5) -> Any:
    """Central differences by every entry, in f64."""
    found = np.zeros_like(a)
    for k in np.ndindex(a.shape):
        d = np.zeros_like(a)
        d[k] = step
        found[k] = (f(a + d) - f(a - d)) / (2 * step)
    return found


def points(n: int) -> dict[str, Any]:
    stretched = np.eye(n) + 0.3 * np.random.default_rng(5).normal(size=(n, n))
    return {
        "unit": np.eye(n),
        "twice": 2 * np.eye(n),
        "turned": 1.5 * rotation(n),
        "diagonal": np.diag(np.arange(1.0, n + 1)),
        "pair": np.diag([2.0, 1.0, 1.0][:n]),
        "stretched": stretched,
    }


WHERE = ["unit", "twice", "turned", "diagonal", "pair", "stretched"]


@pytest.mark.parametrize("form", ["polar", "svd"])
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("n", [2, 3])
def test_corotated_energy(n: int, where: str, form: str) -> None:
    a = points(n)[where]
    c = np.arange(1.0, n * n + 1).reshape(n, n) / n
    x, loss = matrix(n), ti.field(ti.f32, (), needs_grad=True)
    weights = ti.Matrix.field(n, n, ti.f32, ())
    x.from_numpy(a.astype(np.float32))
    weights.from_numpy(c.astype(np.float32))

    @ti.kernel
    def energy():
        if ti.static(form == "polar"):
            r, _p = ti.polar_decompose(x[None])
            loss[None] += (x[None] - r).norm_sqr() + (r * weights[None]).sum()
        else:
            u, _s, v = ti.svd(x[None])
            r = u @ v.transpose()
            loss[None] += (x[None] - r).norm_sqr() + (r * weights[None]).sum()

    with ti.ad.Tape(loss):
        energy()
    want = slopes(lambda m: corotated(m, c), a)
    exact = 2e-4 if form == "polar" else 1e-3
    np.testing.assert_allclose(x.grad.to_numpy(), want, rtol=exact, atol=exact)


@pytest.mark.parametrize("n", [2, 3])
def test_stretch_of_the_unit_matrix(n: int) -> None:
    """P of A = R @ P: the symmetric part of A's change."""
    x, loss = matrix(n), ti.field(ti.f32, (), needs_grad=True)
    x.from_numpy(np.eye(n, dtype=np.float32))

    @ti.kernel
    def run():
        _r, p = ti.polar_decompose(x[None])
        loss[None] += p[0, 1] + 2 * p[0, 0]

    with ti.ad.Tape(loss):
        run()
    want = np.zeros((n, n))
    want[0, 0], want[0, 1], want[1, 0] = 2, 0.5, 0.5
    np.testing.assert_allclose(x.grad.to_numpy(), want, atol=1e-6)


@pytest.mark.parametrize("n", [2, 3])
def test_sum_over_equal_singular_values(n: int) -> None:
    """The sum of their squares is that of the entries' squares."""
    x, loss = matrix(n), ti.field(ti.f32, (), needs_grad=True)
    a = (2 * rotation(n)).astype(np.float32)
    x.from_numpy(a)

    @ti.kernel
    def run():
        _u, s, _v = ti.svd(x[None])
        loss[None] += (s @ s).trace()

    with ti.ad.Tape(loss):
        run()
    np.testing.assert_allclose(x.grad.to_numpy(), 2 * a, rtol=8e-4, atol=8e-4)


def stretched(a: Any) -> Any:
    """U f(S) V' with f(s) = s + s**3 / 3, which is a polynomial of the matrix."""
    return a + a @ a.T @ a / 3


@pytest.mark.parametrize("mode", ["reverse", "forward"])
@pytest.mark.parametrize("where", [*WHERE, "zero", "flat", "mirrored"])
@pytest.mark.parametrize("n", [2, 3])
def test_function_of_singular_values(n: int, where: str, mode: str) -> None:
    """The turns that U and V leave open matter here, though the result does not depend on them."""
    more = {
        "zero": np.zeros((n, n)),
        "flat": np.diag([1.5, 0.0, 0.0][:n]),
        "mirrored": np.diag([1.0, 1.0, -1.0][-n:]),
    }
    a = {**points(n), **more}[where].astype(np.float32)
    c = np.arange(1.0, n * n + 1).reshape(n, n) / n
    x = ti.Matrix.field(n, n, ti.f32, (), needs_grad=True, needs_dual=True)
    loss = ti.field(ti.f32, (), needs_grad=True, needs_dual=True)
    weights = ti.Matrix.field(n, n, ti.f32, ())
    x.from_numpy(a)
    weights.from_numpy(c.astype(np.float32))

    @ti.kernel
    def energy():
        u, s, v = ti.svd(x[None])
        r = u @ (s + s @ s @ s / 3) @ v.transpose()
        loss[None] += (r * weights[None]).sum()

    want = slopes(lambda m: float((stretched(m) * c).sum()), a.astype(np.float64))
    if mode == "reverse":
        with ti.ad.Tape(loss):
            energy()
        got = x.grad.to_numpy()
    else:
        got = np.zeros((n, n))
        for k in np.ndindex(n, n):
            seed = np.zeros((n, n))
            seed[k] = 1
            loss[None] = 0
            with ti.ad.FwdMode(loss=loss, param=x, seed=seed.ravel()):
                energy()
            got[k] = loss.dual[None]
            assert loss[None] == pytest.approx((stretched(a) * c).sum(), rel=2e-5, abs=1e-6)
    np.testing.assert_allclose(got, want, atol=1e-3 * max(1, abs(want).max()))


def symmetric(n: int, where: str) -> Any:
    a = points(n)[where]
    return a @ a.T


@pytest.mark.parametrize("where", [*WHERE, "zero"])
@pytest.mark.parametrize("n", [2, 3])
def test_function_of_eigenvalues(n: int, where: str) -> None:
    """Q f(W) Q' with f(w) = w**2, which is the matrix squared."""
    a = (np.zeros((n, n)) if where == "zero" else symmetric(n, where)).astype(np.float32)
    c = np.arange(1.0, n * n + 1).reshape(n, n) / n
    x, loss = matrix(n), ti.field(ti.f32, (), needs_grad=True)
    weights = ti.Matrix.field(n, n, ti.f32, ())
    x.from_numpy(a)
    weights.from_numpy(c.astype(np.float32))

    @ti.kernel
    def energy():
        m = (x[None] + x[None].transpose()) / 2
        w, q = ti.sym_eig(m)
        squares = ti.Matrix.zero(ti.f32, n, n)
        for i in ti.static(range(n)):
            squares[i, i] = w[i] ** 2
        loss[None] += ((q @ squares @ q.transpose()) * weights[None]).sum()

    def squared(m: Any) -> float:
        m = (m + m.T) / 2
        return float((m @ m * c).sum())

    with ti.ad.Tape(loss):
        energy()
    want = slopes(squared, a.astype(np.float64))
    np.testing.assert_allclose(x.grad.to_numpy(), want, atol=1e-3 * max(1, abs(want).max()))


def test_second_derivatives_are_refused() -> None:
    x, loss = matrix(2), ti.field(ti.f32, (), needs_grad=True)
    x.from_numpy(np.eye(2, dtype=np.float32))

    @ti.kernel
    def run():
        r, _p = ti.polar_decompose(x[None])
        loss[None] += r[0, 1] ** 2

    with pytest.raises(ti.ad.GradientError, match="only first derivatives"):
        ti.ad.hvp(run, loss, x, np.eye(2))


def test_forward_mode_does_no_counter_twice() -> None:
    x = ti.Matrix.field(2, 2, ti.f32, 4, needs_dual=True)
    kept, count = ti.field(ti.f32, 4, needs_dual=True), ti.field(ti.i32, ())

    @ti.kernel
    def run():
        for i in x:
            _U, S, _V = ti.svd(x[i])
            kept[ti.atomic_add(count[None], 1)] = S[0, 0]

    message = "twice, which depends on the order of iterations"
    with pytest.raises(ti.ad.GradientError, match=message), ti.ad.FwdMode(kept, x, [1.0] * 16):
        run()
