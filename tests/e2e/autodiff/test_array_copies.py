"""The ways in which values get from one array into another without a kernel of the user's, inside a
tape: each has the right derivative, or is refused where one is to flow through it, or is a constant
as docs/autodiff.md has it. One row for each way."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import X, is_near, slope

WEIGHTS = np.arange(1, 5)
LOST = "flows through what Python computed or copied, which has none"
CONSTANT = [0.0] * 4


@ti.kernel
def square(y: ti.types.ndarray(), x: ti.types.ndarray()):
    for i in x:
        y[i] = x[i] * x[i]


@ti.kernel
def add_up(y: ti.types.ndarray(), loss: ti.types.ndarray()):
    for i in y:
        loss[0] += y[i] * (i + 1)


@ti.kernel
def first_of(y: ti.types.ndarray()) -> ti.f32:
    return y[0]


@ti.kernel
def scale(y: ti.types.ndarray(), factor: ti.f32, loss: ti.types.ndarray()):
    for i in y:
        loss[0] += y[i] * factor


class Run:
    """y = x * x, then a way from y to an array, of which the loss is the weighted sum."""

    def __init__(self) -> None:
        self.x, self.y, self.loss = (
            array(n, values) for n, values in ((4, X), (4, None), (1, None))
        )

    def gradient(self, way: Callable[[Any], Any], **options: Any) -> Any:
        with ti.ad.Tape(self.loss, **options):
            square(self.y, self.x)
            add_up(way(self.y), self.loss)
        return self.x.grad


def array(n: int = 4, values: Any = None, *, needs_grad: bool = True) -> Any:
    made = ti.ndarray(ti.f32, n, needs_grad=needs_grad)
    if values is not None:
        made.from_numpy(np.asarray(values, np.float32))
    return made


def field(values: Any = None) -> Any:
    made = ti.field(ti.f32, 4, needs_grad=True)
    if values is not None:
        made.from_numpy(values)
    return made


def gradient(f: Callable[[Any], Any]) -> Any:
    """Of the weighted sum of f(x * x)."""
    return slope(lambda x: (f(x * x) * WEIGHTS).sum())


def refuses(way: Callable[[Any], Any], message: str = LOST) -> pytest.ExceptionInfo[Any]:
    with pytest.raises(ti.ad.GradientError, match=message) as caught:
        Run().gradient(way)
    return caught


# --- copies ----------------------------------------------------------------------------------


def copied(y: Any) -> Any:
    made = array()
    made.copy_from(y)
    return made


def through_a_field(y: Any) -> Any:
    between, made = field(), array()
    between.copy_from(y)
    made.copy_from(copy.deepcopy(between))
    return made


def filled_with_it(y: Any) -> Any:
    made = array()
    made.from_numpy(y)
    return made


def vectors(y: Any) -> Any:
    one, other = (ti.Vector.field(2, ti.f32, 4, needs_grad=True) for _ in range(2))
    one.get_scalar_field(0).copy_from(y)
    other.from_numpy(one)
    made = array()
    made.copy_from(copy.deepcopy(other).get_scalar_field(0))
    return made


def component(y: Any) -> Any:
    whole, made = ti.Vector.field(2, ti.f32, 4, needs_grad=True), array()
    whole.get_scalar_field(1).copy_from(y)
    made.copy_from(whole.get_scalar_field(1))
    return made


def member(y: Any) -> Any:
    pairs = ti.types.struct(a=ti.f32, b=ti.f32).field(4, needs_grad=True)
    pairs.b.copy_from(y)
    made = array()
    made.copy_from(copy.deepcopy(pairs).b)
    return made


def sorted_in_place(y: Any) -> Any:
    ti.algorithms.parallel_sort(y)
    return y


def sorted_by_keys(y: Any) -> Any:
    keys = ti.ndarray(ti.i32, 4)
    keys.from_numpy(np.array([3, 1, 2, 0], np.int32))
    ti.algorithms.parallel_sort(keys, y)
    return y


def prefix_sums(y: Any) -> Any:
    ti.algorithms.PrefixSumExecutor(4).run(y)
    return y


def added_to_an_element(y: Any) -> Any:
    y[1] += 3
    return y


COPIES = [
    (copied, lambda y: y), (copy.deepcopy, lambda y: y), (through_a_field, lambda y: y),
    (filled_with_it, lambda y: y), (vectors, lambda y: y), (component, lambda y: y),
    (member, lambda y: y),
    (sorted_in_place, np.sort), (sorted_by_keys, lambda y: y[[3, 1, 2, 0]]),
    (prefix_sums, np.cumsum), (added_to_an_element, lambda y: y),
]  # fmt: skip


@pytest.mark.parametrize(("way", "f"), COPIES, ids=lambda f: getattr(f, "__name__", ""))
def test_copies_and_algorithms(way: Any, f: Any) -> None:
    is_near(Run().gradient(way), gradient(f))


def test_long_prefix_sums() -> None:
    """The chunks' sums are in arrays of vkchi."""
    x, y, loss = array(100, np.linspace(0, 1, 100)), array(100), array(1)
    scan = ti.algorithms.PrefixSumExecutor(100)
    with ti.ad.Tape(loss):
        square(y, x)
        scan.run(y)
        add_up(y, loss)
    weights = np.arange(1, 101)
    is_near(x.grad, 2 * x.to_numpy() * np.cumsum(weights[::-1])[::-1])


def test_copy_is_independent_of_original() -> None:
    x, loss = array(4, X), array(1)
    with ti.ad.Tape(loss):
        y = copy.deepcopy(x)
        square(x, y)
        add_up(y, loss)
    is_near(x.grad, WEIGHTS)
    ti.ad.clear_all_gradients()
    assert not y.grad.to_numpy().any()
    y[0] = 5.0  # nobody listens any more


# --- sparse matrices -------------------------------------------------------------------------

A = np.array([[3, 0, 0, 1], [0, 4, 0, 0], [0, 1, 5, 0], [0, 0, 0, 2.0]])
SYMMETRIC = A + A.T


def sparse(dense: Any) -> Any:
    made = ti.linalg.SparseMatrix(4, 4)
    rows, columns = np.nonzero(dense)
    made.set_triplets(rows, columns, dense[rows, columns])
    return made


def solver(dense: Any, kind: str) -> Any:
    made = ti.linalg.SparseSolver(solver_type=kind)
    made.compute(sparse(dense))
    return made


def test_product_with_a_matrix() -> None:
    is_near(Run().gradient(lambda y: sparse(A) @ y), gradient(lambda y: A @ y))


@pytest.mark.parametrize("kind", ["LLT", "LDLT", "LU"])
def test_solution_of_a_system(kind: str) -> None:
    dense = A if kind == "LU" else SYMMETRIC
    found = Run().gradient(lambda y: solver(dense, kind).solve(y))
    is_near(found, gradient(lambda y: np.linalg.solve(dense, y)))


def test_several_solutions() -> None:
    """Of one array that changes in between."""
    s = solver(A, "LU")

    def way(y: Any) -> Any:
        x = s.solve(y)
        square(y, x)
        return sparse(A) @ s.solve(y)

    want = gradient(lambda y: np.linalg.solve(A, y) ** 2)
    is_near(Run().gradient(way), want)
    is_near(Run().gradient(way, memory="300B"), want)


def test_solutions_are_checked_by_differences() -> None:
    run = Run()
    run.gradient(lambda y: solver(A, "LU").solve(sparse(A) @ y), grad_check=[run.x])


@ti.kernel
def assemble(K: ti.types.sparse_matrix_builder(), p: ti.types.ndarray()):
    for i in p:
        K[i, i] += 4 + p[i]
        if i > 0:
            K[i - 1, i] -= p[i]
            K[i, i - 1] -= 0.2 * p[i] * p[i]


def assembled(p: Any, *, symmetric: bool = False) -> Any:
    found = np.diag(4 + p)
    for i in range(1, 4):
        found[i, i - 1] -= 0.2 * p[i] ** 2
        found[i - 1, i] -= found[i, i - 1] * -1 if symmetric else p[i]
    return found


def test_matrix_made_of_parameters() -> None:
    builder = ti.linalg.SparseMatrixBuilder(4, 4, max_num_triplets=20)

    def way(y: Any) -> Any:
        assemble(builder, y)
        K = builder.build()
        s = ti.linalg.SparseSolver(solver_type="LU")
        s.compute(K)
        return (K @ K.transpose() * 2 - K + K * K) @ s.solve(y)

    def f(y: Any) -> Any:
        K = assembled(y)
        return (K @ K.T * 2 - K + K * K) @ np.linalg.solve(K, y)

    is_near(Run().gradient(way), gradient(f))
    is_near(Run().gradient(way, memory="4KiB"), gradient(f))


@pytest.mark.parametrize("kind", ["LLT", "LDLT"])
def test_symmetric_matrix_made_of_parameters(kind: str) -> None:
    """Of which the lower triangle counts."""
    builder = ti.linalg.SparseMatrixBuilder(4, 4, max_num_triplets=20)
    right = np.array([1, -2, 3, 1], np.float32)

    def way(y: Any) -> Any:
        assemble(builder, y)
        s = ti.linalg.SparseSolver(solver_type=kind)
        s.compute(builder.build())
        return s.solve(array(4, right, needs_grad=False))

    is_near(
        Run().gradient(way),
        gradient(lambda y: np.linalg.solve(assembled(y, symmetric=True), right)),
    )


def test_builder_that_is_filled_again() -> None:
    builder = ti.linalg.SparseMatrixBuilder(4, 4, max_num_triplets=20)

    def way(y: Any) -> Any:
        for _ in range(2):
            assemble(builder, y)
            y = builder.build() @ y
        return y

    def f(y: Any) -> Any:
        for _ in range(2):
            y = assembled(y) @ y
        return y

    is_near(Run().gradient(way), gradient(f), 2e-3)


@ti.kernel
def put_triplets(t: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in y:
        t[3 * i] = i
        t[3 * i + 1] = 3 - i
        t[3 * i + 2] = y[i]


def test_matrix_made_of_an_array_of_triplets() -> None:
    def way(y: Any) -> Any:
        t, made = array(12), ti.linalg.SparseMatrix(4, 4)
        put_triplets(t, y)
        made.build_from_ndarray(t)
        made[0, 3] = 7.0  # a constant
        return made @ y

    want = lambda y: np.where(np.arange(4) == 0, 7, y) * y[::-1]  # noqa: E731
    is_near(Run().gradient(way), gradient(want))


# --- textures --------------------------------------------------------------------------------


@ti.kernel
def add_texels(t: ti.types.texture(2), loss: ti.types.ndarray()):
    for i, j in ti.ndrange(2, 2):
        c = t.fetch(ti.Vector([i, j]), 0)
        loss[0] += c.r * c.r * (2 * j + i + 1) + c.g


TEXTURES = {
    "a field": (lambda: ti.field(ti.f32, (2, 2), needs_grad=True), ti.Format.r32f),
    "a field with an origin": (
        lambda: ti.field(ti.f32, (2, 2), needs_grad=True, offset=(3, -1)), ti.Format.r32f,
    ),
    "an ndarray": (lambda: ti.ndarray(ti.f32, (2, 2), needs_grad=True), ti.Format.r32f),
    "vectors": (lambda: ti.Vector.field(2, ti.f32, (2, 2), needs_grad=True), ti.Format.rg32f),
    "an axis of channels": (
        lambda: ti.ndarray(ti.f32, (2, 2, 2), needs_grad=True), ti.Format.rg32f,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", TEXTURES)
def test_texture_filled_from(kind: str) -> None:
    make, fmt = TEXTURES[kind]
    x, loss, texture = make(), array(1), ti.Texture(fmt, (2, 2))
    values = np.linspace(1, 2, x.to_numpy().size).reshape(x.to_numpy().shape)
    x.from_numpy(values.astype(np.float32))
    with ti.ad.Tape(loss):
        if isinstance(x, ti.Ndarray):
            texture.from_ndarray(x)
        else:
            texture.from_field(x)
        add_texels(texture, loss)
    values = values.reshape(4, -1)
    want = np.ones(values.shape)
    want[:, 0] = 2 * values[:, 0] * WEIGHTS
    is_near(x.grad, want.reshape(x.to_numpy().shape))


def test_texture_of_integers_is_constant() -> None:
    x, loss, texture = ti.field(ti.f32, (2, 2), needs_grad=True), array(1), None
    x.fill(0.5)
    texture = ti.Texture(ti.Format.r8, (2, 2))
    with ti.ad.Tape(loss):
        texture.from_field(x)
        add_texels(texture, loss)
    assert loss[0] > 0
    assert not x.grad.to_numpy().any()


# --- errors ----------------------------------------------------------------------------------


def in_numpy(y: Any) -> Any:
    found = np.zeros(4, np.float32)
    square(found, y)
    return found


def put_back(values: Any) -> Any:
    made = array()
    made.from_numpy(values)
    return made


def of_field(y: Any) -> Any:
    made = field()
    made.copy_from(y)
    return made


REFUSED = {
    "solution in numpy": lambda y: solver(A, "LU").solve(of_field(y)),
    "solution in numpy, computed with": lambda y: put_back(
        changed(solver(A, "LU").solve(of_field(y)))
    ),
    "solution, changed and solved again": lambda y: put_back(
        solver(A, "LU").solve(changed(solver(A, "LU").solve(of_field(y))))
    ),
    "part of a solution": lambda y: put_back(solver(A, "LU").solve(of_field(y))[::-1]),
    "solution put where no gradient is": lambda y: bare(solver(A, "LU").solve(of_field(y))),
    "product in numpy": lambda y: sparse(A) @ of_field(y),
    "conjugate gradients": lambda y: ti.linalg.SparseCG(sparse(SYMMETRIC), y).solve()[0],
    "kernel's numpy array": lambda y: put_back(in_numpy(y)),
    "solution of a numpy array": lambda y: solver(A, "LU").solve(in_numpy(y)),
    "array without gradient": lambda y: sparse(A) @ without_gradient(y),
}


def changed(numbers: Any) -> Any:
    """In place."""
    numbers *= 2
    return numbers


def bare(numbers: Any) -> Any:
    made = array(needs_grad=False)
    made.from_numpy(numbers)
    return made


def without_gradient(y: Any) -> Any:
    made = array(needs_grad=False)
    square(made, y)
    return made


@pytest.mark.parametrize("name", REFUSED)
def test_derivative_through_unrecorded_copy_raises(name: str) -> None:
    refuses(REFUSED[name])


def test_both_lines_are_reported() -> None:
    text = str(refuses(REFUSED["part of a solution"]).value)
    assert "SparseSolver.solve() took it from there here" in text
    assert "Python put it into an array here" in text
    assert "made.copy_from(y)" in text  # an element written with a derivative


def test_raises_only_if_a_derivative_flows_through_it() -> None:
    def way(y: Any) -> Any:
        unused = put_back(solver(A, "LU").solve(of_field(y)))
        add_up(unused, array(1, needs_grad=False))
        made = array()
        made.from_numpy(in_numpy(y))
        made.fill(0)  # all is gone
        add_up(made, array(1))
        return y

    is_near(Run().gradient(way), gradient(lambda y: y))


def test_in_a_function_without_gradient_it_is_a_constant() -> None:
    @ti.ad.no_grad
    def way(y: Any) -> Any:
        return put_back(solver(A, "LU").solve(of_field(y)))

    assert not Run().gradient(way).to_numpy().any()


@ti.kernel
def doubled(v: ti.types.ndarray(), Av: ti.types.ndarray()):
    for i in v:
        Av[i] = 2 * v[i]


PUT_BACK = {
    "solution": (lambda y: solver(A, "LU").solve(of_field(y)), lambda y: np.linalg.solve(A, y)),
    "solution, seen once more": (
        lambda y: solver(A, "LU").solve(of_field(y))[:], lambda y: np.linalg.solve(A, y)
    ),
    "product": (lambda y: sparse(A) @ of_field(y), lambda y: A @ y),
    "conjugate gradients": (
        lambda y: ti.linalg.SparseCG(sparse(SYMMETRIC), y, atol=1e-9).solve()[0],
        lambda y: np.linalg.solve(SYMMETRIC, y),
    ),
    "one after the other": (
        lambda y: solver(A, "LU").solve(sparse(A) @ (sparse(A) @ of_field(y))), lambda y: A @ y
    ),
}  # fmt: skip


@pytest.mark.parametrize("memory", [None, "1KiB"])
@pytest.mark.parametrize("name", PUT_BACK)
def test_numpy_arrays_that_are_put_back(name: str, memory: str | None) -> None:
    way, want = PUT_BACK[name]
    is_near(Run().gradient(lambda y: put_back(way(y)), memory=memory), gradient(want))

    def over_what_was_there(y: Any) -> Any:
        y.to_numpy()  # now Python has read it
        y.from_numpy(way(y))
        return y

    is_near(Run().gradient(over_what_was_there, memory=memory), gradient(want))


def test_conjugate_gradients_by_the_matrix() -> None:
    def way(y: Any) -> Any:
        builder = ti.linalg.SparseMatrixBuilder(4, 4, max_num_triplets=4)

        @ti.kernel
        def diagonal(K: ti.types.sparse_matrix_builder(), y: ti.types.ndarray()):
            for i in y:
                K[i, i] += 1 + y[i]

        diagonal(builder, y)
        return put_back(ti.linalg.SparseCG(builder.build(), y, atol=1e-9).solve()[0])

    is_near(Run().gradient(way), gradient(lambda y: y / (1 + y)))


def test_conjugate_gradients_that_do_not_converge() -> None:
    def way(y: Any) -> Any:
        return put_back(ti.linalg.SparseCG(sparse(SYMMETRIC), y, max_iter=1).solve()[0])

    refuses(way, r"flows through SparseCG.solve\(\), which did not converge")


def test_overwritten_after_it_was_read() -> None:
    def way(y: Any) -> Any:
        y[1] *= 2
        return y

    def solved(y: Any) -> Any:
        y[1] *= 2
        return solver(A, "LU").solve(y)

    refuses(way, "overwritten by Python, which had read it")
    refuses(solved, "overwritten by Python, which had read it")


# --- other modes -----------------------------------------------------------------------------


def test_in_forward_mode() -> None:
    x, y, loss = (ti.field(ti.f32, n, needs_dual=True) for n in (4, 4, ()))
    builder = ti.linalg.SparseMatrixBuilder(4, 4, max_num_triplets=4)

    @ti.kernel
    def total(y: ti.template()):
        for i in y:
            loss[None] += y[i] * (i + 1)

    @ti.kernel
    def diagonal(K: ti.types.sparse_matrix_builder()):
        for i in x:
            K[i, i] += x[i]

    def direction(way: Callable[[], Any]) -> float:
        x.from_numpy(X.astype(np.float32))
        with ti.ad.FwdMode(loss=loss, param=x, seed=[0, 1, 0, 0]):
            total(way())
        return float(loss.dual[None])

    def of_solution() -> Any:
        y.from_numpy(solver(A, "LU").solve(x))
        return y

    def of_product() -> Any:
        diagonal(builder)
        y.from_numpy(builder.build() @ np.ones(4, np.float32))
        return y

    assert direction(lambda: copy.deepcopy(x)) == pytest.approx(2)
    for way in (of_solution, of_product):
        with pytest.raises(ti.ad.GradientError, match="derivative flows through what Python"):
            direction(way)


def test_products_with_the_hessian() -> None:
    x, loss = array(4, X), array(1)

    def copies() -> None:
        square(copied_x := copy.deepcopy(x), x)
        add_up(copied_x, loss)

    def solutions() -> None:
        add_up(solver(A, "LU").solve(x), loss)

    is_near(ti.ad.hvp(copies, loss, x, [0, 1, 0, 0]), [0, 4, 0, 0])
    with pytest.raises(ti.ad.GradientError, match=LOST):
        ti.ad.hvp(solutions, loss, x, [0, 1, 0, 0])


STALE = {
    "copy_from": lambda x: array().copy_from(x),
    "deepcopy": copy.deepcopy,
    "product": lambda x: sparse(A) @ x,
    "solution": lambda x: solver(A, "LU").solve(x),
    "to_numpy": lambda x: x.to_numpy(),
}


@pytest.mark.parametrize("name", STALE)
def test_custom_gradients_do_not_read_overwritten_arrays(name: str) -> None:
    run, other = Run(), array(4, X)

    @ti.ad.grad_replaced
    def replaced() -> None:
        square(run.y, run.x)

    @ti.ad.grad_for(replaced)
    def its_gradient() -> None:
        STALE[name](run.x)

    with pytest.raises(ti.ad.GradientError, match="has overwritten since"), ti.ad.Tape(run.loss):
        replaced()
        square(run.x, other)
        add_up(run.y, run.loss)


# --- constants: results of Python, numbers and numpy arrays ------------------------------------


def element_by_element(y: Any) -> Any:
    made = array()
    for i in range(4):
        made[i] = y[i]
    return made


def filled_with_an_element(y: Any) -> Any:
    made = array()
    made.fill(y[0])
    return made


def entry_of_a_matrix(y: Any) -> Any:
    made = sparse(A)
    made[0, 0] = y[0]
    return made @ array(4, X, needs_grad=False)


CONSTANTS = {
    "to_numpy": lambda y: put_back(y.to_numpy()),
    "numpy as an argument": lambda y: y.to_numpy(),
    "numpy's arithmetic": lambda y: put_back(in_numpy(y) * 1),
    "np.asarray": np.asarray,
    "pickle": lambda y: pickle.loads(pickle.dumps(y)),
    "elements": element_by_element,
    "fill": filled_with_an_element,
    "entry of a matrix": entry_of_a_matrix,
    "product with numbers": lambda y: put_back(sparse(A) @ y.to_numpy()),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_copies_of_constants(name: str) -> None:
    is_near(Run().gradient(CONSTANTS[name]), CONSTANT)


def test_kernel_result_is_a_constant() -> None:
    run = Run()
    with ti.ad.Tape(run.loss):
        square(run.y, run.x)
        scale(run.y, first_of(run.y), run.loss)
    is_near(run.x.grad, 2 * X * X[0] ** 2)


def test_vectors_that_python_reads_are_constants() -> None:
    x, loss = ti.Vector.field(2, ti.f32, 2, needs_grad=True), array(1)
    y = ti.Vector.field(2, ti.f32, 2, needs_grad=True)
    x.fill(3)

    @ti.kernel
    def use(v: ti.math.vec2, loss: ti.types.ndarray()):
        for i in x:
            loss[0] += x[i].dot(v) + y[i].x

    with ti.ad.Tape(loss):
        y[0] = x[0]
        y[1].x = x[1][0]
        use(x[0], loss)
    is_near(x.grad, np.full((2, 2), 3))


# --- torch -----------------------------------------------------------------------------------


def test_from_torch_of_a_tensor_that_requires_a_gradient() -> None:
    torch = pytest.importorskip("torch")
    t, loss, made = torch.tensor(X, dtype=torch.float32, requires_grad=True), array(1), array()
    with ti.ad.Tape(loss):
        made.from_torch(t)
        add_up(made, loss)
    is_near(t.grad, WEIGHTS)


def test_torch_between_kernels() -> None:
    torch = pytest.importorskip("torch")

    def kept(y: Any) -> Any:
        t = torch.zeros(4, requires_grad=True)
        square(t, y)
        return put_torch(t)

    def put_torch(t: Any) -> Any:
        made = array()
        made.from_torch(t)
        return made

    def without(y: Any) -> Any:
        t = torch.zeros(4)
        square(t, y)
        return put_torch(t)

    def computed(y: Any) -> Any:
        t = torch.zeros(4, requires_grad=True)
        square(t, y)
        return put_torch(t * 2)

    is_near(Run().gradient(kept), gradient(lambda y: y * y))
    refuses(without)
    refuses(computed, "torch computed the tensor")
    is_near(Run().gradient(lambda y: put_torch(y.to_torch())), CONSTANT)


# --- arrays that others see in place ------------------------------------------------------------


def seen_arrays() -> list[tuple[str, Any]]:
    """Memory visible in place: (kind, maker of an array and of a view of it, all ones)."""

    def exported(make: Any) -> Any:
        def made() -> tuple[Any, Any]:
            array = make(ti.f32, 4)
            array.fill(1)
            return array, np.from_dlpack(array)

        return made

    def taken() -> tuple[Any, Any]:
        base = np.ones(4, np.float32)
        return ti.from_dlpack(base), base

    return [("ndarray", exported(ti.ndarray)), ("field", exported(ti.field)), ("taken", taken)]


@pytest.mark.parametrize("memory", [None, "1KiB"])
@pytest.mark.parametrize(("kind", "make"), seen_arrays())
def test_in_place_write_by_other_library(kind: str, make: Any, memory: Any) -> None:
    """Each kernel's gradient uses the values of its own call."""
    x, loss = ti.field(ti.f32, 4, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
    x.fill(2)
    try:
        weights, view = make()
    except (BufferError, RuntimeError):  # memory of the device, or of CUDA's, which numpy refuses
        pytest.skip("no memory that both see here")
    if weights.host is None or not np.may_share_memory(weights.host, view):
        pytest.skip("no memory that both see here")

    @ti.kernel
    def add_field(w: ti.template()):
        for i in x:
            loss[None] += x[i] * w[i]

    @ti.kernel
    def add_array(w: ti.types.ndarray()):
        for i in x:
            loss[None] += x[i] * w[i]

    add = add_field if kind == "field" else add_array

    with ti.ad.Tape(loss, memory=memory):
        add(weights)
        ti.sync()
        view[:] = [10, 20, 30, 40]
        add(weights)
        ti.sync()
        view[1] = 5
        weights[2] = 100
        add(weights)
        ti.sync()
        view[:] = 7
    assert loss[None] == 2 * (4 + 100 + 10 + 5 + 100 + 40)
    assert x.grad.to_numpy().tolist() == [21, 26, 131, 81]
    assert view.tolist() == [7] * 4
    view[0] = 8
    with ti.ad.Tape(loss, memory=memory):
        add(weights)
    assert x.grad.to_numpy().tolist() == [8, 7, 7, 7]


def by_tape(run: Any, x: Any, loss: Any) -> list[float]:
    with ti.ad.Tape(loss):
        run()
    return x.grad.to_numpy().tolist()


def by_tape_in_little_memory(run: Any, x: Any, loss: Any) -> list[float]:
    with ti.ad.Tape(loss, memory="64 B"):
        run()
    return x.grad.to_numpy().tolist()


def by_direction(run: Any, x: Any, loss: Any) -> list[float]:
    with ti.ad.FwdMode(loss, x, [0, 0, 1, 0]):
        run()
    return [0, 0, loss.dual[None], 0]


def by_hessian(run: Any, x: Any, loss: Any) -> list[float]:
    return [2 * v for v in ti.ad.hvp(run, loss, x, [1] * 4)]  # as x is 2


MODES = [by_tape, by_tape_in_little_memory, by_direction, by_hessian]


def put(y: Any, view: Any) -> None:
    view[0] = 5


def double(y: Any, view: Any) -> None:
    view *= 2


def put_beside_python(y: Any, view: Any) -> None:
    y[0] = 5
    view[1] = 5


def put_where_python_added(y: Any, view: Any) -> None:
    y[1] += 1
    view[1] = 5


def put_by_python(y: Any, view: Any) -> None:
    y[0] = 5


def fill_by_python(y: Any, view: Any) -> None:
    y.fill(1)


def put_after_python(y: Any, view: Any) -> None:
    before = view[1] + 0
    y.fill(1)
    view[1] = before


def put_where_python_put(y: Any, view: Any) -> None:
    before = view[0] + 0
    y[0] = 5
    view[0] = before


@pytest.mark.parametrize("find", MODES)
@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize(
    ("write", "third"),
    [(put, None), (double, None), (put_beside_python, None), (put_where_python_added, None),
     (put_after_python, None), (put_where_python_put, None), (put_by_python, 36),
     (fill_by_python, 0)],
)  # fmt: skip
def test_a_derivative_through_writes_of_other_libraries(
    write: Any, third: float | None, is_late: bool, find: Any
) -> None:
    """Others may have read the old values: refused. Python writes have another message."""
    kinds = {"needs_grad": True, "needs_dual": True}
    x, y = (ti.field(ti.f32, 4, **kinds) for _ in range(2))
    loss = ti.field(ti.f32, (), **kinds)
    x.fill(2)
    if y.host is None:
        pytest.skip("no views of the device's memory here")

    @ti.kernel
    def triple():
        for i in x:
            y[i] = x[i] * 3

    @ti.kernel
    def add():
        for i in y:
            loss[None] += y[i] ** 2

    early = None if is_late else np.from_dlpack(y)

    def run() -> None:
        triple()
        ti.sync()
        write(y, np.from_dlpack(y) if is_late else early)
        add()

    if third is None:
        with pytest.raises(ti.ad.GradientError, match="`y` was overwritten by Python"):
            find(run, x, loss)
    else:
        assert find(run, x, loss)[2] == third


def test_other_library_overwrites_product() -> None:
    """That the host computed, and Python put there."""

    def way(y: Any, *, is_changed: bool) -> Any:
        made, given = field(), field()
        if made.host is None:
            pytest.skip("no views of the device's memory here")
        view = np.from_dlpack(made)
        given.copy_from(y)
        made.from_numpy(sparse(A) @ given)
        if is_changed:
            view[1] = 3
        result = array()
        result.copy_from(made)
        return result

    is_near(Run().gradient(lambda y: way(y, is_changed=False)), gradient(lambda y: A @ y))
    refuses(lambda y: way(y, is_changed=True), "was overwritten by Python")


def test_other_library_overwrites_component() -> None:
    """Python's writes to components are its own."""
    y = ti.Vector.field(2, ti.f32, 4, needs_grad=True, offset=-1)
    x, loss = ti.field(ti.f32, 4, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
    x.fill(2)
    if y.host is None:
        pytest.skip("no views of the device's memory here")
    view = np.from_dlpack(y)

    @ti.kernel
    def triple():
        for i in x:
            y[i - 1] = [x[i], 3 * x[i]]

    @ti.kernel
    def add():
        for i in y:
            loss[None] += y[i][0] * y[i][1]

    first = y.get_scalar_field(0)
    with ti.ad.Tape(loss):
        triple()
        first[-1] = 1
        y[0] = [1, 1]
        y[1][0] = 1
        add()
    assert x.grad.to_numpy().tolist() == [3, 0, 3, 12]

    def run(write: Any) -> None:
        with ti.ad.Tape(loss):
            triple()
            write()
            add()

    def beside() -> None:
        first[-1] = 1
        view[0, 1] = 1

    for write in (beside, lambda: view.__setitem__((2, 1), 7)):
        with pytest.raises(ti.ad.GradientError, match="`y` was overwritten by Python"):
            run(write)
