"""Systems whose matrix is singular, indefinite or no matrix at all, with and without scipy."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import is_near
from vkchi.linalg import SolverWarning, SparseMatrix, SparseSolver
from vkchi.linalg.direct_solver import DirectSolver, SquareTriplets

KINDS = ("LLT", "LDLT", "LU")
F32, F64 = np.float32, np.float64


@pytest.fixture(params=["scipy", "numpy"])
def backend(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """The library that factorises; without scipy its import fails."""
    if request.param == "scipy":
        pytest.importorskip("scipy")
    else:
        for name in ("scipy", "scipy.sparse", "scipy.sparse.linalg"):
            monkeypatch.setitem(sys.modules, name, None)
    return str(request.param)


@pytest.fixture(autouse=True)
def no_warnings() -> Any:
    """No test warns unless it says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def sparse_of(dense: Any, dtype: Any = ti.f32) -> SparseMatrix:
    """The SparseMatrix of a numpy matrix."""
    A = SparseMatrix(*dense.shape, dtype=dtype)
    rows, columns = np.nonzero(dense)
    A.set_triplets(rows, columns, dense[rows, columns])
    return A


def neumann(n: int, weigh: Callable[[], float] = lambda: 1.0) -> Any:
    """The Poisson matrix of an n by n grid without a boundary value, or of a weighted one."""
    A = np.zeros((n * n, n * n))
    cells = np.arange(n * n).reshape(n, n)
    pairs = [*zip(cells[1:].flat, cells[:-1].flat), *zip(cells[:, 1:].flat, cells[:, :-1].flat)]
    for i, j in pairs:
        w = weigh()
        A[i, i] += w
        A[j, j] += w
        A[i, j] -= w
        A[j, i] -= w
    return A


def compute(dense: Any, kind: str, dtype: Any = ti.f32) -> SparseSolver:
    """A solver that has factorised a matrix."""
    solver = SparseSolver(dtype, solver_type=kind)
    solver.compute(sparse_of(dense, dtype))
    return solver


# --- the pressure of a fluid in a box ------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_pressure_of_a_closed_box(kind: str, backend: str) -> None:
    """A divergence that sums to 0, as in a stable-fluids solver; built by a kernel."""
    n = 16
    K = ti.linalg.SparseMatrixBuilder(n * n, n * n, max_num_triplets=n * n * 5)
    velocity, divergence = ti.Vector.field(2, ti.f32, (n, n)), ti.ndarray(ti.f32, n * n)
    rng = np.random.default_rng(5)
    velocity.from_numpy(rng.standard_normal((n, n, 2)).astype(F32))

    @ti.kernel
    def fill(A: ti.types.sparse_matrix_builder()):
        for i, j in ti.ndrange(n, n):
            row, center = i * n + j, 0.0
            for d in ti.static([(-1, 0), (1, 0), (0, -1), (0, 1)]):
                if 0 <= i + d[0] < n and 0 <= j + d[1] < n:
                    A[row, row + d[0] * n + d[1]] += -1.0
                    center += 1.0
            A[row, row] += center

    @ti.kernel
    def diverge(div: ti.types.ndarray()):
        for i, j in velocity:
            here = velocity[i, j]
            left, right, below, above = -here.x, -here.x, -here.y, -here.y
            if i > 0:
                left = velocity[i - 1, j].x
            if i < n - 1:
                right = velocity[i + 1, j].x
            if j > 0:
                below = velocity[i, j - 1].y
            if j < n - 1:
                above = velocity[i, j + 1].y
            div[i * n + j] = 0.5 * (right - left + above - below)

    fill(K)
    diverge(divergence)
    A = K.build()
    solver = SparseSolver(solver_type=kind)
    solver.analyze_pattern(A)
    solver.factorize(A)
    x = solver.solve(divergence).to_numpy()
    assert solver.info()
    b = divergence.to_numpy().astype(F64)
    assert np.linalg.norm(A.to_numpy() @ x - b) < 1e-4 * np.linalg.norm(b)
    want = np.linalg.lstsq(neumann(n), b, rcond=None)[0]
    np.testing.assert_allclose(x, want, rtol=1e-5, atol=1e-5 * abs(want).max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype, tolerance", [(ti.f32, 1e-5), (ti.f64, 1e-10)])
def test_least_norm_and_least_squares(
    kind: str, dtype: Any, tolerance: float, backend: str
) -> None:
    """Weighted boxes beside each other, empty rows among them, rows scaled: as lstsq."""
    rng = np.random.default_rng(8)
    dense = np.zeros((60, 60))
    for at, n in ((0, 5), (27, 4), (45, 3)):
        dense[at : at + n * n, at : at + n * n] = neumann(n, lambda: rng.integers(1, 9) / 8)
    scale = 2.0 ** rng.integers(-2, 3, 60)
    dense *= scale * scale[:, None]
    if kind == "LU":
        dense *= rng.integers(1, 5, 60)[:, None]
    solver = compute(dense, kind, dtype)
    consistent = dense @ rng.standard_normal(60)
    x = solver.solve(consistent.astype(dtype.dtype))
    assert solver.info()
    want = np.linalg.lstsq(dense, consistent, rcond=1e-13)[0]
    np.testing.assert_allclose(x, want, rtol=tolerance, atol=tolerance * abs(want).max())
    other = rng.standard_normal(60).astype(dtype.dtype)
    with pytest.warns(SolverWarning, match="singular and the right side not in its range") as found:
        x = solver.solve(other)
        solver.solve(other)
    assert len(found) == 1 and found[0].filename == __file__
    assert not solver.info()
    want = np.linalg.lstsq(dense, other.astype(F64), rcond=1e-13)[0]
    np.testing.assert_allclose(x, want, rtol=tolerance, atol=tolerance * abs(want).max())
    solver.solve(consistent.astype(dtype.dtype))
    assert solver.info()


def test_rows_of_rounded_weights(backend: str) -> None:
    """Rows whose f32 entries sum to rounding errors: singular in f32, regular in f64."""
    rng = np.random.default_rng(2)
    dense = neumann(12, lambda: rng.uniform(0.1, 2)).astype(F32)
    b = (dense.astype(F64) @ rng.standard_normal(144)).astype(F32)
    for kind in KINDS:
        solver = compute(dense, kind)
        x = solver.solve(b)
        assert solver.info()
        rest = dense.astype(F64) @ x - b
        assert np.linalg.norm(rest) < 1e-4 * np.linalg.norm(b)


# --- matrices of other kinds ---------------------------------------------------------------------

UNSYMMETRIC = {
    "a nilpotent one": [[0, 1, 0], [0, 0, 1], [0, 0, 0]],
    "an empty column": [[1, 2, 0], [3, 4, 0], [0, 5, 0]],
    "equal rows": [[1, 2, 3], [1, 2, 3], [0, 1, 5]],
    "rank 1": [[1, 2, 3], [2, 4, 6], [-1, -2, -3]],
    "zero": [[0, 0], [0, 0]],
    "1 by 1": [[0]],
}


@pytest.mark.parametrize("name", UNSYMMETRIC)
def test_singular_matrices(name: str, backend: str) -> None:
    dense = np.array(UNSYMMETRIC[name], F64)
    b = dense @ np.arange(1, len(dense) + 1)
    solver = compute(dense, "LU")
    want = np.linalg.pinv(dense) @ b
    np.testing.assert_allclose(solver.solve(b.astype(F32)), want, atol=1e-6 * (1 + abs(want).max()))
    assert solver.info()
    with pytest.warns(SolverWarning):
        solver.solve(np.ones(len(dense), F32) + (np.arange(len(dense)) == 0))
    assert not solver.info()


@pytest.mark.parametrize("kind", KINDS)
def test_regular_matrices_at_the_edge(kind: str, backend: str) -> None:
    """None at all, one number, entries that differ by twenty orders, a condition of 4e5."""
    assert compute(np.zeros((0, 0)), kind).solve(np.zeros(0, F32)).shape == (0,)
    np.testing.assert_allclose(compute(np.array([[4.0]]), kind).solve(np.ones(1, F32)), [0.25])
    sizes = np.array([1, 1e-12, 1e-20], F32)
    np.testing.assert_allclose(compute(np.diag(sizes), kind).solve(sizes), 1, rtol=1e-6)
    n = 1000
    chain = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    solver = compute(chain, kind)
    i = np.arange(1.0, n + 1)
    np.testing.assert_allclose(solver.solve(np.ones(n, F32)), i * (n + 1 - i) / 2, rtol=1e-6)
    assert solver.info()


@pytest.mark.parametrize("dtype", [ti.f32, ti.f64])
def test_a_triangle_is_regular_though_its_condition_exceeds_rounding(
    dtype: Any, backend: str
) -> None:
    n = 50
    dense = np.eye(n) - 2 * np.eye(n, k=1)
    b = np.zeros(n, dtype.dtype)
    b[-1] = 1
    solver = compute(dense, "LU", dtype)
    np.testing.assert_array_equal(solver.solve(b), 2.0 ** np.arange(n - 1, -1, -1))
    assert solver.info()


def test_many_null_vectors_of_a_dense_matrix(backend: str) -> None:
    rng = np.random.default_rng(7)
    half = rng.integers(-3, 4, (100, 80)).astype(F64)
    b = half @ half.T @ rng.standard_normal(100)
    want = np.linalg.pinv(half @ half.T, rcond=1e-12) @ b
    for kind in KINDS:
        solver = compute(half @ half.T, kind)
        x = solver.solve(b)
        assert solver.info()
        np.testing.assert_allclose(x, want, rtol=1e-4, atol=1e-5 * abs(want).max())


@pytest.mark.parametrize("least", [1e-9, 1e-12, 1e-13])
def test_ill_conditioned_matrices_keep_their_digits(least: float, backend: str) -> None:
    """A single small eigenvalue, which is none of 0: as exact as numpy's solution."""
    rng = np.random.default_rng(4)
    q = np.linalg.qr(rng.standard_normal((40, 40)))[0]
    dense = q @ np.diag(np.append(np.ones(39), least)) @ q.T
    dense = (dense + dense.T) / 2
    x = rng.standard_normal(40)
    for kind in KINDS:
        solver = compute(dense, kind, ti.f64)
        np.testing.assert_allclose(solver.solve(dense @ x), x, atol=1e-14 / least)
        assert solver.info()


def test_whole_numbers_of_f32_are_exact(backend: str) -> None:
    """A regular matrix that its neighbours in f32 make singular."""
    n = 4096.0
    dense = np.array([[n + 1, n], [n, n - 1]])
    for kind in ("LDLT", "LU"):
        solver = compute(dense, kind)
        np.testing.assert_allclose(solver.solve(dense @ [1, 2]), [1, 2], atol=1e-6)


def test_an_exchange_is_not_positive_definite(backend: str) -> None:
    """SuperLU finds positive pivots in it, by exchanging rows."""
    exchange = np.array([[0.0, 1], [1, 0]])
    for dense in (exchange, np.diag([1.0, -1, 1]), np.diag([0.0, -1, 1])):
        solver = compute(dense, "LLT")
        assert not solver.info()
        with pytest.raises(ti.TaichiRuntimeError, match='not positive definite: take .*"LDLT"'):
            solver.solve(np.ones(len(dense), F32))
    np.testing.assert_allclose(compute(exchange, "LDLT").solve(np.array([1, 2], F32)), [2, 1])


def test_numbers_that_are_not_finite(backend: str) -> None:
    for bad in (np.nan, np.inf):
        solver = compute(np.array([[1.0, bad], [bad, 4]]), "LDLT")
        assert not solver.info()
        with pytest.raises(ti.TaichiRuntimeError, match="entries that are not finite"):
            solver.solve(np.ones(2, F32))
    solver = compute(np.eye(2), "LU")
    with pytest.warns(SolverWarning, match="right side has numbers that are not finite"):
        solver.solve(np.array([1, np.nan], F32))
    assert not solver.info()


def test_a_failure_belongs_to_its_matrix(backend: str) -> None:
    solver = compute(-np.eye(2), "LLT")
    assert not solver.info()
    solver.compute(sparse_of(np.eye(2)))
    assert solver.info()
    np.testing.assert_array_equal(solver.solve(np.array([1, 2], F32)), [1, 2])


def test_matrices_that_are_not_square() -> None:
    for shape in ((2, 3), (3, 0), (0, 3)):
        A = SparseMatrix(*shape)
        assert A.shape == shape and A.transpose().shape == shape[::-1]
        with pytest.raises(ti.TaichiRuntimeError, match="must be square"):
            SparseSolver().compute(A)
        with pytest.raises(ti.TaichiRuntimeError, match="must be square"):
            ti.linalg.SparseCG(A, np.zeros(shape[0], F32))
    assert (SparseMatrix(3, 0) @ np.zeros(0, F32)).tolist() == [0, 0, 0]
    with pytest.raises(ti.TaichiRuntimeError, match="ti.f32 or ti.f64"):
        SparseMatrix(2, 2, dtype=ti.f16)


def test_a_large_matrix_needs_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    every = np.arange(5000)
    A = SparseMatrix(5000, 5000)
    A.set_triplets(every, every, np.ones(5000))
    with pytest.raises(ti.Unsupported, match="pip install scipy"):
        SparseSolver().compute(A)


@pytest.mark.parametrize("dense", [neumann(4), np.diag([1.0, 2, 0])], ids=["box", "diagonal"])
def test_solutions_are_those_of_the_pseudoinverse(dense: Any, backend: str) -> None:
    """Also of the transposed system, and for inconsistent right sides."""
    rows, columns = np.nonzero(dense)
    square = SquareTriplets(rows, columns, dense[rows, columns], len(dense))
    b = np.random.default_rng(6).standard_normal(len(dense))
    for kind in KINDS:
        direct = DirectSolver(square, kind, F64)
        np.testing.assert_allclose(direct.solve(b).x, np.linalg.pinv(dense) @ b, atol=1e-12)
        np.testing.assert_allclose(
            direct.solve_transposed(b, direct.solve(b).by), np.linalg.pinv(dense).T @ b, atol=1e-12
        )


# --- iterative solvers ---------------------------------------------------------------------------


def test_conjugate_gradients_do_not_warn() -> None:
    """A singular consistent system, an inconsistent one, an indefinite one, a limit of iterations,
    entries and right sides that are not finite."""
    A = neumann(6)
    b = A @ np.random.default_rng(1).standard_normal(36)
    x, is_solved = ti.linalg.SparseCG(sparse_of(A), b.astype(F32)).solve()
    assert is_solved
    np.testing.assert_allclose(A @ x, b, atol=1e-4)
    assert not ti.linalg.SparseCG(sparse_of(A), np.ones(36, F32)).solve()[1]
    assert not ti.linalg.SparseCG(sparse_of(A), b.astype(F32), max_iter=2).solve()[1]
    exchange = sparse_of(np.array([[0.0, 1], [1, 0]]))
    assert not ti.linalg.SparseCG(exchange, np.array([1, 0], F32)).solve()[1]
    assert not ti.linalg.SparseCG(exchange, np.array([1, np.nan], F32)).solve()[1]
    zero = ti.linalg.SparseCG(sparse_of(A), np.zeros(36, F32)).solve()
    assert zero[1] and not zero[0].any()


@pytest.mark.parametrize("solve", [ti.linalg.MatrixFreeCG, ti.linalg.MatrixFreeBICGSTAB])
def test_matrix_free_solvers_of_a_singular_chain(solve: Any) -> None:
    n = 12
    x, b = ti.field(ti.f32, n), ti.field(ti.f32, n)

    @ti.kernel
    def multiply(v: ti.template(), Av: ti.template()):
        for i in v:
            Av[i] = 0.0
            if i > 0:
                Av[i] += v[i] - v[i - 1]
            if i < n - 1:
                Av[i] += v[i] - v[i + 1]

    right = np.cos(np.pi * (np.arange(n) + 0.5) / n)  # an eigenvector
    b.from_numpy(right.astype(F32))
    A = ti.linalg.LinearOperator(multiply)
    assert solve(A, b, x, tol=1e-5)
    np.testing.assert_allclose(x.to_numpy(), right / (2 - 2 * np.cos(np.pi / n)), rtol=1e-4)
    b.fill(1)
    x.fill(0)
    assert not solve(A, b, x, maxiter=40)
    b[3] = np.nan
    assert not solve(A, b, x)


def test_rounding_errors_are_no_solution() -> None:
    """The residual of the iterations falls to 0, while b - A x does not: x is 1e8 times b."""
    n = 4
    x, b = ti.field(ti.f32, n), ti.field(ti.f32, n)

    @ti.kernel
    def multiply(v: ti.template(), Av: ti.template()):
        for i in v:
            mean = (v[0] + v[1] + v[2] + v[3]) / 4
            Av[i] = v[i] - mean + 1e-8 * mean

    b.from_numpy(np.array([1, 2, 3, 4], F32))
    is_solved = ti.linalg.MatrixFreeCG(ti.linalg.LinearOperator(multiply), b, x)
    mean = x.to_numpy().astype(F64).mean()
    rest = b.to_numpy() - (x.to_numpy() - mean + 1e-8 * mean)
    assert is_solved == (np.linalg.norm(rest) < 1e-2)


# --- derivatives ---------------------------------------------------------------------------------


def weighted_chain(w: Any) -> Any:
    """The Laplacian of a chain with these weights, scaled: its null vector is (1, 2, 4, ...)."""
    n = len(w) + 1
    L = np.zeros((n, n))
    for k in range(n - 1):
        L[k : k + 2, k : k + 2] += w[k] * np.array([[1, -1], [-1, 1]])
    scale = 0.5 ** np.arange(n)
    return L * scale * scale[:, None]


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_of_a_singular_system(kind: str, backend: str) -> None:
    """By weights that keep the rank, and by the right side; the loss depends on all of x. Against
    differences of the pseudoinverse."""
    n = 6
    weights = np.linspace(1, 2, n - 1)
    target = np.arange(n) ** 2.0 / 10
    right = weighted_chain(weights) @ np.array([3, 1, -2, 5, 1, 2.0])

    def loss_of(w: Any, b: Any) -> float:
        return float(((np.linalg.pinv(weighted_chain(w)) @ b - target) ** 2).sum())

    K = ti.linalg.SparseMatrixBuilder(n, n, max_num_triplets=4 * n)
    w, b = ti.ndarray(ti.f32, n - 1, needs_grad=True), ti.ndarray(ti.f32, n, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    goal = ti.field(ti.f32, n)
    w.from_numpy(weights.astype(F32))
    b.from_numpy(right.astype(F32))
    goal.from_numpy(target.astype(F32))

    @ti.kernel
    def fill(A: ti.types.sparse_matrix_builder(), w: ti.types.ndarray()):
        for k in w:
            p, q = 0.5**k, 0.5 ** (k + 1)
            A[k, k] += w[k] * p * p
            A[k + 1, k + 1] += w[k] * q * q
            A[k, k + 1] += -w[k] * p * q
            A[k + 1, k] += -w[k] * p * q

    @ti.kernel
    def measure(x: ti.types.ndarray()):
        for i in x:
            loss[None] += (x[i] - goal[i]) ** 2

    solver = SparseSolver(solver_type=kind)
    with ti.ad.Tape(loss):
        fill(K, w)
        solver.compute(K.build())
        measure(solver.solve(b))
    assert abs(loss[None] - loss_of(weights, right)) < 1e-4 * loss[None]
    h = 1e-5
    steps = np.eye(n) * h
    by_w = [
        (loss_of(weights + d, right) - loss_of(weights - d, right)) / (2 * h)
        for d in steps[: n - 1, : n - 1]
    ]
    by_b = [(loss_of(weights, right + d) - loss_of(weights, right - d)) / (2 * h) for d in steps]
    is_near(w.grad, np.array(by_w))
    is_near(b.grad, np.array(by_b))


def test_no_derivative_without_a_solution(backend: str) -> None:
    solver = compute(neumann(3), "LDLT")
    b = ti.ndarray(ti.f32, 9, needs_grad=True)
    b.fill(1)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def measure(x: ti.types.ndarray()):
        for i in x:
            loss[None] += (i + 1) * x[i]

    refused = pytest.raises(ti.ad.GradientError, match="right side not in its range")
    with pytest.warns(SolverWarning), refused, ti.ad.Tape(loss):
        measure(solver.solve(b))


@pytest.mark.parametrize("is_consistent", [True, False])
@pytest.mark.parametrize("way", ["CG", "matrix-free"])
def test_iterative_derivatives_of_a_singular_system(way: str, is_consistent: bool) -> None:
    """Right for a loss of differences of x, which the system determines; else refused."""
    n = 4
    A = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    A[0, 0] = A[-1, -1] = 1
    pull = np.array([1, 2, 3, -6 if is_consistent else 6], F64)
    b, x = (ti.field(ti.f32, n, needs_grad=True) for _ in range(2))
    loss, pulls = ti.field(ti.f32, (), needs_grad=True), ti.field(ti.f32, n)
    right = np.array([1, -3, 4, -2], F32)
    b.from_numpy(right)
    pulls.from_numpy(pull.astype(F32))

    @ti.kernel
    def multiply(v: ti.template(), Av: ti.template()):
        for i in v:
            s = 0.0
            if i > 0:
                s += v[i] - v[i - 1]
            if i < n - 1:
                s += v[i] - v[i + 1]
            Av[i] = s

    @ti.kernel
    def measure():
        for i in x:
            loss[None] += pulls[i] * x[i]

    def run() -> None:
        with ti.ad.Tape(loss):
            if way == "CG":
                x.from_numpy(ti.linalg.SparseCG(sparse_of(A), b).solve()[0])
            else:
                ti.linalg.MatrixFreeCG(ti.linalg.LinearOperator(multiply), b, x, tol=1e-5)
            measure()

    if is_consistent:
        run()
        is_near(b.grad, np.linalg.pinv(A) @ pull)
    else:
        with pytest.raises(ti.ad.GradientError, match="did not converge|could not be solved"):
            run()
