"""Gradients of rotations and singular values where singular values are equal, as at rest in
elasticity: of the unit matrix, of multiples of rotations; and apart from there."""

from __future__ import annotations

from collections.abc import Callable
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


def test_second_derivatives_raise() -> None:
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


# --- functions of all singular values or eigenvalues, where these are equal ----------------------

EXACT = {"f32": 2e-3, "f64": 1e-6}  # of derivatives, relative to the largest
# In the kernel, and by numpy.
FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "logarithm": (lambda s: ti.log(s), np.log),
    "root": (lambda s: ti.sqrt(s), np.sqrt),
    "corotated": (lambda s: 2 * (s - 1), lambda s: 2 * (s - 1)),
    "inverse": (lambda s: s - 1 / s, lambda s: s - 1 / s),
}


def by_svd(f: Any, a: Any) -> Any:
    u, s, vt = np.linalg.svd(a)
    return u * f(s) @ vt


def by_eig(f: Any, a: Any) -> Any:
    w, q = np.linalg.eigh((a + a.T) / 2)
    return q * f(w) @ q.T


def spectral(form: str, fn: Any, dtype: Any, a: Any, c: Any) -> Any:
    """The gradient of the sum of c * f(a), for the function of singular values or eigenvalues."""
    n = len(a)
    x, loss = (
        ti.Matrix.field(n, n, dtype, (), needs_grad=True),
        ti.field(dtype, (), needs_grad=True),
    )
    weights = ti.Matrix.field(n, n, dtype, ())
    x.from_numpy(a.astype(dtype_of(dtype)))
    weights.from_numpy(c.astype(dtype_of(dtype)))
    f = ti.func(fn)

    @ti.kernel
    def energy():
        m = ti.Matrix.zero(dtype, n, n)
        if ti.static(form == "svd"):
            u, s, v = ti.svd(x[None], dtype)
            for i in ti.static(range(n)):
                m[i, i] = f(s[i, i])
            loss[None] += ((u @ m @ v.transpose()) * weights[None]).sum()
        else:
            w, q = ti.sym_eig((x[None] + x[None].transpose()) / 2, dtype)
            for i in ti.static(range(n)):
                m[i, i] = f(w[i])
            loss[None] += ((q @ m @ q.transpose()) * weights[None]).sum()

    with ti.ad.Tape(loss):
        energy()
    return x.grad.to_numpy()


def dtype_of(dtype: Any) -> Any:
    return {ti.f32: np.float32, ti.f64: np.float64}[dtype]


@pytest.mark.parametrize("form", ["svd", "eig"])
@pytest.mark.parametrize("precision", ["f32", "f64"])
@pytest.mark.parametrize("n", [2, 3])
def test_functions_at_multiples_of_the_unit_matrix(
    n: int, precision: str, form: str, need: Callable[..., None]
) -> None:
    """f(a I + D) = f(a) I + f'(a) D to first order, for a symmetric D; and for singular values the
    skew part of D turns f(a) / a D. Nearby, and for a rotated pair, differences in f64 tell."""
    need(precision)
    dtype, exact = getattr(ti, precision), EXACT[precision]
    c = np.random.default_rng(n).normal(size=(n, n))
    for name, (f, of_numpy) in FUNCTIONS.items():
        for size in (1.0, 2.0):
            slope = (of_numpy(size + 1e-6) - of_numpy(size - 1e-6)) / 2e-6
            skew = of_numpy(size) / size if form == "svd" else 0.0
            want = slope * (c + c.T) / 2 + skew * (c - c.T) / 2
            got = spectral(form, f, dtype, size * np.eye(n), c)
            np.testing.assert_allclose(got, want, atol=exact * abs(want).max(), err_msg=name)
        near = np.eye(n) * 1.5
        near[0, 0] += 1e-7 if precision == "f64" else 1e-4
        whole = by_svd if form == "svd" else by_eig
        want = slopes(lambda a: float((whole(of_numpy, a) * c).sum()), near)
        got = spectral(form, f, dtype, near, c)
        np.testing.assert_allclose(got, want, atol=exact * abs(want).max(), err_msg=name)


# --- vectors by themselves -----------------------------------------------------------------------


def stored(x: Any, form: str, loss: Any) -> Any:
    """Kernels that keep all of a decomposition, and put it together again: f(s) = 2 (s - 1)."""
    n = x.n
    u, s, v = (ti.Matrix.field(n, n, ti.f32, x.shape, needs_grad=True) for _ in range(3))

    @ti.kernel
    def split():
        for i in x:
            if ti.static(form == "svd"):
                u[i], s[i], v[i] = ti.svd(x[i])
            else:
                w, q = ti.sym_eig(x[i])
                for k in ti.static(range(n)):
                    s[i][k, k] = w[k]
                for j, k in ti.static(ti.ndrange(n, n)):
                    u[i][j, k] = q[j, k]
                v[i] = q

    @ti.kernel
    def use():
        for i in x:
            m = u[i] @ (2 * s[i]) @ v[i].transpose() - 2 * u[i] @ v[i].transpose()
            loss[None] += m[0, 1] + 3 * m[0, 0]

    return split, use


@pytest.mark.parametrize("form", ["svd", "eig"])
def test_vectors_that_are_stored(form: str) -> None:
    """Right where values differ, if only by 1e-4. Where they are equal, later uses of the vectors
    are unknown, and so there is no derivative."""
    x = ti.Matrix.field(2, 2, ti.f32, 4, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    at = np.array([np.diag([2.0, 1.0]), np.diag([1.0001, 1.0]), np.eye(2), 2 * np.eye(2)])
    x.from_numpy(at.astype(np.float32))
    with ti.ad.Tape(loss):
        for kernel in stored(x, form, loss):
            kernel()
    c = np.array([[3.0, 1.0], [0.0, 0.0]])
    whole = by_svd if form == "svd" else by_eig
    for a, got in zip(at[:2], x.grad.to_numpy()):
        want = slopes(lambda m: float((whole(lambda s: 2 * (s - 1), m) * c).sum()), a)
        if form == "eig":  # it reads one triangle
            want = np.array([[want[0, 0], 0], [want[0, 1] + want[1, 0], want[1, 1]]])
        np.testing.assert_allclose(got, want, atol=2e-2)
    assert np.isnan(x.grad.to_numpy()[2:]).any(axis=(1, 2)).all()


def test_vectors_that_are_stored_and_not_used() -> None:
    x, u = matrix(2), matrix(2)
    loss = ti.field(ti.f32, (), needs_grad=True)
    x.from_numpy(np.eye(2, dtype=np.float32))

    @ti.kernel
    def run():
        u[None], s, _v = ti.svd(x[None])
        loss[None] += (s @ s).trace()

    with ti.ad.Tape(loss):
        run()
    np.testing.assert_allclose(x.grad.to_numpy(), 2 * np.eye(2), atol=1e-3)


def test_singular_values_that_are_stored_alone() -> None:
    x, s = matrix(2), matrix(2)
    loss = ti.field(ti.f32, (), needs_grad=True)
    x.from_numpy(np.eye(2, dtype=np.float32))

    @ti.kernel
    def split():
        _u, s[None], _v = ti.svd(x[None])

    @ti.kernel
    def use():
        loss[None] += (s[None] @ s[None]).trace()

    with ti.ad.Tape(loss):
        split()
        use()
    np.testing.assert_allclose(x.grad.to_numpy(), 2 * np.eye(2), atol=1e-5)


@pytest.mark.parametrize("form", ["eig", "svd"])
def test_a_single_vector(form: str) -> None:
    x, loss = (
        ti.Matrix.field(2, 2, ti.f32, 2, needs_grad=True),
        ti.field(ti.f32, (), needs_grad=True),
    )
    at = np.array([[[3.0, 0.0], [0.0, 1.0]], np.eye(2)])
    x.from_numpy(at.astype(np.float32))

    @ti.kernel
    def run():
        for i in x:
            if ti.static(form == "eig"):
                _w, q = ti.sym_eig(x[i])
                loss[None] += q[1, 0]
            else:
                _u, _s, v = ti.svd(x[i])
                loss[None] += v[1, 0]

    with ti.ad.Tape(loss):
        run()
    found = x.grad.to_numpy()
    # By the angle: half the atan2 of 2 a10 and a00 - a11, or of A'A's.
    want = [[0, 0], [0.5, 0]] if form == "eig" else [[0, 3 / 8], [1 / 8, 0]]
    np.testing.assert_allclose(abs(found[0]), want, atol=1e-5)
    assert np.isnan(found[1]).any()


def test_vectors_without_a_derivative_are_an_error_in_debug_mode(own_runtime: None) -> None:
    ti.init(debug=True)
    x, loss = matrix(2), ti.field(ti.f32, (), needs_grad=True)
    x.from_numpy(np.eye(2, dtype=np.float32))

    @ti.kernel
    def run():
        _w, q = ti.sym_eig(x[None])
        loss[None] += q[1, 0]

    with pytest.raises(ti.ad.GradientError, match=r"(?s)equal singular values.*sym_eig\(x"):
        with ti.ad.Tape(loss):
            run()


@pytest.mark.parametrize("way", ["branch", "variable", "choice"])
def test_vectors_that_are_stored_by_way_of(way: str) -> None:
    x, u, s, v = matrix(2), matrix(2), matrix(2), matrix(2)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def split(is_on: ti.i32):
        a, b, c = ti.Matrix.identity(ti.f32, 2), x[None], ti.Matrix.identity(ti.f32, 2)
        if ti.static(way == "branch"):
            if is_on:
                a, b, c = ti.svd(x[None])
        elif ti.static(way == "variable"):
            p, b, c = ti.svd(x[None])
            for i in range(2):
                for j in range(2):
                    a[i, j] = p[i, j]
        else:
            p, q, r = ti.svd(x[None])
            a, b, c = ti.select(is_on, p, a), ti.select(is_on, q, b), ti.select(is_on, r, c)
        u[None], s[None], v[None] = a, b, c

    @ti.kernel
    def use():
        loss[None] += (u[None] @ (s[None] @ s[None] @ s[None]) @ v[None].transpose())[0, 1]

    for a in (np.array([[2.0, 0.0], [0.5, 1.0]]), np.eye(2)):
        x.from_numpy(a.astype(np.float32))
        with ti.ad.Tape(loss):
            split(1)
            use()
        if a[1, 0]:
            want = slopes(lambda m: float(by_svd(lambda t: t**3, m)[0, 1]), a)
            np.testing.assert_allclose(x.grad.to_numpy(), want, rtol=1e-4, atol=1e-4)
        else:
            assert np.isnan(x.grad.to_numpy()).any()
