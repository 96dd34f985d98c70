"""Systems whose matrix is a kernel: the derivative of their solution, in tapes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import is_near, slope
from vkchi.linalg import LinearOperator, MatrixFreeBICGSTAB, MatrixFreeCG

N = 10
B, K, WEIGHTS = np.linspace(1, 2, N), np.linspace(3, 4, N), np.arange(1, N + 1)


class Problem(NamedTuple):
    """b squared, then A x = b with A of k on the diagonal, -1 below and -`above` above it; the loss
    is a weighted sum of squares of x."""

    b: Any
    k: Any
    x: Any
    loss: Any
    square: Any
    product: Any
    add_up: Any


def problem(kind: str, above: float, *, has_gradient: bool = True) -> Problem:
    """One in fields or ndarrays; x `has_gradient`."""
    make: Callable[..., Any] = ti.field if kind == "field" else ti.ndarray
    T: Any = ti.template() if kind == "field" else ti.types.ndarray()
    b, k = (make(ti.f32, N, needs_grad=True) for _ in range(2))
    x = make(ti.f32, N, needs_grad=has_gradient)
    loss = ti.field(ti.f32, (), needs_grad=True)
    b.from_numpy(B.astype(np.float32))
    k.from_numpy(K.astype(np.float32))
    diagonal = ti.field(ti.f32, N, needs_grad=True)

    @ti.kernel
    def square(b: T, k: T):
        for i in b:
            b[i] = b[i] * b[i]
            diagonal[i] = k[i]

    @ti.kernel
    def product(v: T, Av: T):
        for i in v:
            s = diagonal[i] * v[i]
            if i > 0:
                s -= v[i - 1]
            if i < N - 1:
                s -= above * v[i + 1]
            Av[i] = s

    @ti.kernel
    def add_up(x: T):
        for i in x:
            loss[None] += (i + 1) * x[i] ** 2

    return Problem(b, k, x, loss, lambda: square(b, k), product, lambda: add_up(x))


def in_numpy(b: Any, k: Any, above: float) -> Any:
    """The loss."""
    A = np.diag(k) - np.eye(N, k=-1) - above * np.eye(N, k=1)
    return (WEIGHTS * np.linalg.solve(A, b**2) ** 2).sum()


SOLVERS = [(MatrixFreeCG, 1.0), (MatrixFreeBICGSTAB, 0.3), (MatrixFreeBICGSTAB, 1.0)]


@pytest.mark.parametrize("kind, memory", [("field", None), ("ndarray", None), ("ndarray", "1KiB")])
@pytest.mark.parametrize("solve, above", SOLVERS)
def test_by_the_right_side_and_by_the_matrix(
    solve: Any, above: float, kind: str, memory: str | None
) -> None:
    p = problem(kind, above)
    p.x.fill(0.3)
    with ti.ad.Tape(p.loss, memory=memory):
        p.square()
        assert solve(LinearOperator(p.product), p.b, p.x)
        p.add_up()
    is_near(p.b.grad, slope(lambda b: in_numpy(b, K, above), B))
    is_near(p.k.grad, slope(lambda k: in_numpy(B, k, above), K))
    is_near(p.x.grad, np.zeros(N))


def test_small_slopes() -> None:
    """The system of the gradient is solved as exactly as that of the kernel."""
    p = problem("ndarray", 1.0)
    with ti.ad.Tape(p.loss):
        p.square()
        MatrixFreeCG(LinearOperator(p.product), p.b, p.x)
        p.loss[None] += 0
        p.add_up()
        p.add_up()
    small = p.b.grad.to_numpy()

    @ti.kernel
    def add_little(x: ti.types.ndarray()):
        for i in x:
            p.loss[None] += 1e-9 * (i + 1) * x[i] ** 2

    p.b.from_numpy(B.astype(np.float32))
    with ti.ad.Tape(p.loss):
        p.square()
        MatrixFreeCG(LinearOperator(p.product), p.b, p.x)
        add_little(p.x)
    is_near(2e9 * p.b.grad.to_numpy(), small)


def test_initial_x_has_no_influence() -> None:
    p = problem("field", 1.0)

    @ti.kernel
    def guess():
        for i in p.x:
            p.x[i] = p.b[i]

    with ti.ad.Tape(p.loss):
        p.square()
        guess()
        MatrixFreeCG(LinearOperator(p.product), p.b, p.x)
        p.add_up()
    is_near(p.b.grad, slope(lambda b: in_numpy(b, K, 1.0), B))


def test_a_matrix_of_an_object() -> None:
    p = problem("ndarray", 1.0)

    @ti.data_oriented
    class Matrix:
        factor = 2.0

        @ti.kernel
        def product(self, v: ti.types.ndarray(), Av: ti.types.ndarray()):
            for i in v:
                Av[i] = self.factor * v[i]

    with ti.ad.Tape(p.loss):
        MatrixFreeCG(LinearOperator(Matrix().product), p.b, p.x)
        p.add_up()
    is_near(p.b.grad, WEIGHTS * B / 2)


def refuses(p: Problem, message: str, *steps: Callable[[], Any]) -> str:
    """A tape over these, and the sum of x, is refused; the error."""
    with pytest.raises(ti.ad.GradientError, match=message) as found, ti.ad.Tape(p.loss):
        for step in steps:
            step()
        p.add_up()
    return str(found.value)


def test_x_without_a_gradient_raises() -> None:
    p = problem("field", 1.0, has_gradient=False)
    solve = lambda: MatrixFreeCG(LinearOperator(p.product), p.b, p.x)  # noqa: E731
    other = ti.field(ti.f32, N, needs_grad=True)

    @ti.kernel
    def on():
        for i in p.x:
            other[i] = p.x[i]

    text = refuses(p, "what Python computed or copied", p.square, solve, on)
    assert "MatrixFreeCG() took it from there here" in text


def test_a_right_side_that_lost_its_derivative_raises() -> None:
    p, bare = problem("field", 1.0), ti.field(ti.f32, N)

    @ti.kernel
    def copy():
        for i in bare:
            bare[i] = p.b[i]

    solve = lambda: MatrixFreeCG(LinearOperator(p.product), bare, p.x)  # noqa: E731
    text = refuses(p, "what Python computed or copied", p.square, copy, solve)
    assert "bare[i] = p.b[i]" in text and "MatrixFreeCG() took it" in text


def test_a_matrix_that_changed_since_raises_in_limited_memory() -> None:
    p = problem("ndarray", 1.0)
    message = r"MatrixFreeCG\(\) reads `\w+`, which square\(\) has overwritten"
    with pytest.raises(ti.ad.GradientError, match=message), ti.ad.Tape(p.loss, memory="1MB"):
        p.square()
        MatrixFreeCG(LinearOperator(p.product), p.b, p.x)
        p.square()
        p.add_up()


@pytest.mark.parametrize("by_python", [False, True])
@pytest.mark.parametrize("solve, above", SOLVERS)
def test_implicit_steps(solve: Any, above: float, by_python: bool) -> None:
    """The matrix of each step depends on fields and on an ndarray of an object, which later steps
    overwrite."""
    n, count = 5, 3
    b, k, x = (ti.field(ti.f32, n, needs_grad=True) for _ in range(3))
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.data_oriented
    class Bar:
        def __init__(self) -> None:
            self.stiff = ti.ndarray(ti.f32, n, needs_grad=True)
            self.work = ti.field(ti.f32, n, needs_grad=True)

        @ti.kernel
        def product(self, v: ti.template(), Av: ti.template()):
            for i in v:
                self.work[i] = (k[i] + self.stiff[i]) * v[i]
            for i in v:
                s = self.work[i]
                if i > 0:
                    s -= v[i - 1]
                if i < n - 1:
                    s -= above * v[i + 1]
                Av[i] = s

        @ti.kernel
        def step(self):
            for i in x:
                k[i] += 0.2 * x[i]
                self.stiff[i] = self.stiff[i] * 1.1 + 0.1 * x[i]
                b[i] += 0.5 * x[i]

    @ti.kernel
    def add_up():
        for i in x:
            loss[None] += x[i] ** 2 * (i + 1)

    def in_numpy(k: Any, stiff: Any) -> Any:
        right = np.ones(n)
        for _ in range(count):
            A = np.diag(k + stiff) - np.eye(n, k=-1) - above * np.eye(n, k=1)
            found = np.linalg.solve(A, right)
            k, stiff, right = k + 0.2 * found, stiff * 1.1 + 0.1 * found, right + 0.5 * found
            if by_python:
                k = np.append(2.5, k[1:])
        return (found**2 * np.arange(1, n + 1)).sum()

    first, second = np.linspace(2, 3, n), np.linspace(2, 1, n)
    bar = Bar()

    def start() -> None:
        b.fill(1)
        k.from_numpy(first.astype(np.float32))
        bar.stiff.from_numpy(second.astype(np.float32))

    def run() -> None:
        for _ in range(count):
            assert solve(LinearOperator(bar.product), b, x)
            bar.step()
            if by_python:
                k[0] = 2.5
        add_up()

    start()
    with ti.ad.Tape(loss):
        run()
    want = slope(lambda k: in_numpy(k, second), first), slope(lambda s: in_numpy(first, s), second)
    is_near(k.grad, want[0], 2e-3)
    is_near(bar.stiff.grad, want[1], 2e-3)
    start()
    loss[None] = 0
    with ti.ad.Tape() as tape:
        run()
    k.fill(9)
    bar.step()
    ti.ad.clear_all_gradients()
    tape.backward({loss: 2.0})
    is_near(k.grad, 2 * want[0], 2e-3)


def test_a_solver_that_did_not_converge_raises() -> None:
    p = problem("ndarray", 1.0)
    solve = lambda: MatrixFreeCG(LinearOperator(p.product), p.b, p.x, maxiter=1)  # noqa: E731
    refuses(p, r"flows through MatrixFreeCG\(\), and it did not converge", p.square, solve)


def test_an_operator_that_is_no_kernel_raises() -> None:
    p = problem("ndarray", 1.0)
    operator = LinearOperator(lambda v, Av: p.product(v, Av))
    refuses(p, r"flows through MatrixFreeCG\(\), whose iterations have none",
            p.square, lambda: MatrixFreeCG(operator, p.b, p.x))  # fmt: skip
    refuses(p, r"flows through MatrixFreeCG\(\), whose iterations have none",
            p.square, lambda: MatrixFreeCG(LinearOperator(p.product), p.b, p.b))  # fmt: skip


def test_exact_initial_guess_has_the_derivative() -> None:
    """No kernel writes to x then."""
    p, bare = problem("field", 1.0), ti.field(ti.f32, N)
    twice = ti.field(ti.f32, N)
    twice.fill(2)

    @ti.kernel
    def product(v: ti.template(), Av: ti.template()):
        for i in v:
            Av[i] = twice[i] * v[i]

    @ti.kernel
    def copy():
        for i in bare:
            bare[i] = p.x[i]

    @ti.kernel
    def add_copies():
        for i in bare:
            p.loss[None] += bare[i] * p.b[i]

    p.x.from_numpy(p.b.to_numpy() / 2)
    solve = lambda: MatrixFreeCG(LinearOperator(product), p.b, p.x)  # noqa: E731
    refuses(p, "flows through `bare`", solve, copy, add_copies)
    with ti.ad.Tape(p.loss):
        solve()
        p.x[0] = 3.0
        p.add_up()
    is_near(p.b.grad, np.where(np.arange(N) == 0, 0, WEIGHTS * B / 2))


@pytest.mark.parametrize("solve", [MatrixFreeCG, MatrixFreeBICGSTAB])
def test_a_matrix_of_an_object_that_changes_later(solve: Any) -> None:
    p = problem("ndarray", 1.0)

    @ti.data_oriented
    class Matrix:
        factor = 2.0

        @ti.kernel
        def product(self, v: ti.types.ndarray(), Av: ti.types.ndarray()):
            for i in v:
                Av[i] = self.factor * v[i]

    matrix = Matrix()
    with ti.ad.Tape(p.loss):
        solve(LinearOperator(matrix.product), p.b, p.x)
        matrix.factor = 5.0
        p.add_up()
    is_near(p.b.grad, WEIGHTS * B / 2)


def test_an_asymmetric_matrix_raises_in_conjugate_gradients() -> None:
    """They may converge all the same: rows at the ends that only hold zeros there."""
    p = problem("ndarray", 1.0)

    @ti.kernel
    def product(v: ti.types.ndarray(), Av: ti.types.ndarray()):
        for i in v:
            Av[i] = 3 * v[i]
            if 0 < i < N - 1:
                Av[i] -= v[i - 1] + v[i + 1]

    p.b[0] = p.b[N - 1] = 0
    solve = lambda: MatrixFreeCG(LinearOperator(product), p.b, p.x)  # noqa: E731
    refuses(p, r"MatrixFreeCG\(\), and the matrix is not symmetric", solve)

    def in_numpy(b: Any) -> Any:
        A = 3 * np.eye(N) - np.eye(N, k=-1) - np.eye(N, k=1)
        A[0, 1] = A[-1, -2] = 0
        return (WEIGHTS * np.linalg.solve(A, b) ** 2).sum()

    with ti.ad.Tape(p.loss):
        assert MatrixFreeBICGSTAB(LinearOperator(product), p.b, p.x)
        p.add_up()
    is_near(p.b.grad, slope(in_numpy, p.b.to_numpy().astype(np.float64)))


def test_an_asymmetric_sparse_matrix_raises() -> None:
    p, A = problem("field", 1.0), ti.linalg.SparseMatrix(N, N)
    for i in range(N):
        A[i, i] = 3.0
        if 0 < i < N - 1:
            A[i, i - 1] = A[i, i + 1] = -1.0
    p.b[0] = p.b[N - 1] = 0
    solve = lambda: p.x.from_numpy(ti.linalg.SparseCG(A, p.b).solve()[0])  # noqa: E731
    refuses(p, r"SparseCG.solve\(\), and the matrix is not symmetric", solve)
