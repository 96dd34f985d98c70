"""Sparse matrices: built in kernels, their arithmetic, solvers."""

import numpy as np
import pytest

import vkchi as ti

RNG = np.random.default_rng(40)


def build(dense, t="f32"):
    """The SparseMatrix of a numpy matrix, each entry in two parts."""
    n, m = dense.shape
    dtype = getattr(ti, t)
    builder = ti.linalg.SparseMatrixBuilder(n, m, max_num_triplets=2 * n * m, dtype=dtype)
    given = ti.field(dtype, dense.shape)
    given.from_numpy(dense.astype(t.replace("f", "float")))

    @ti.kernel
    def fill(A: ti.types.sparse_matrix_builder()):
        for i, j in given:
            if given[i, j] != 0:
                A[i, j] += given[i, j] * 2
                A[i, j] -= given[i, j]

    fill(builder)
    return builder.build(dtype=dtype)


def dense_of(A):
    return np.array([[A[i, j] for j in range(A.shape[1])] for i in range(A.shape[0])])


def sparse(n, m):
    return RNG.integers(-4, 5, (n, m)) * (RNG.random((n, m)) < 0.4)


@pytest.mark.parametrize("t", ["f32", "f64"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (5, 2), (2, 7)])
def test_matrix_builder(shape, t, lacks):
    if lacks(t):
        pytest.skip("the device has no f64")
    dense = sparse(*shape)
    A = build(dense, t)
    assert tuple(A.shape) == shape
    np.testing.assert_array_equal(dense_of(A), dense)


def test_documented_example():
    n = 4
    K = ti.linalg.SparseMatrixBuilder(n, n, max_num_triplets=100)
    f = ti.linalg.SparseMatrixBuilder(n, 1, max_num_triplets=100)

    @ti.kernel
    def fill(A: ti.types.sparse_matrix_builder(), b: ti.types.sparse_matrix_builder(), k: ti.i32):
        for i in range(n):
            if i > 0:
                A[i - 1, i] += -1.0
                A[i, i] += 1
            if i < n - 1:
                A[i + 1, i] += -1.0
                A[i, i] += 1.0
            if i % k == 0:
                b[i, 0] += 1.0

    fill(K, f, 3)
    A, b = K.build(), f.build()
    want = np.diag([1, 2, 2, 1]) - np.eye(4, k=1) - np.eye(4, k=-1)
    np.testing.assert_array_equal(dense_of(A), want)
    np.testing.assert_array_equal(dense_of(b)[:, 0], [1, 0, 0, 1])
    assert K.build()[0, 0] == 0  # a builder starts anew


def test_serial_code_and_functions():
    @ti.func
    def add(A: ti.template(), i, j):
        A[i, j] += 1.5

    @ti.kernel
    def fill(A: ti.types.sparse_matrix_builder()):
        A[0, 0] += 1
        for k in range(3):
            add(A, k, 2 - k)

    K = ti.linalg.SparseMatrixBuilder(3, 3, max_num_triplets=10)
    fill(K)
    np.testing.assert_array_equal(dense_of(K.build()), [[1, 0, 1.5], [0, 1.5, 0], [1.5, 0, 0]])


def test_matrix_arithmetic():
    a, b, c = sparse(4, 4), sparse(4, 4), sparse(4, 3)
    A, B, C = build(a), build(b), build(c)
    np.testing.assert_array_equal(dense_of(A + B), a + b)
    np.testing.assert_array_equal(dense_of(A - B), a - b)
    np.testing.assert_array_equal(dense_of(A * 0.5), a * 0.5)
    np.testing.assert_array_equal(dense_of(2.0 * A), a * 2)
    np.testing.assert_array_equal(dense_of(A @ B), a @ b)
    np.testing.assert_array_equal(dense_of(A @ C), a @ c)
    np.testing.assert_array_equal(dense_of(C.transpose()), c.T)
    A += B
    np.testing.assert_array_equal(dense_of(A), a + b)
    A -= B
    np.testing.assert_array_equal(dense_of(A), a)


def test_product_of_entries():
    a, b = sparse(6, 6), sparse(6, 6)
    np.testing.assert_array_equal(dense_of(build(a) * build(b)), a * b)


def test_product_with_vectors():
    a, x = sparse(5, 5), np.arange(5, dtype=np.float32)
    A, field, ndarray = build(a), ti.field(ti.f32, 5), ti.ndarray(ti.f32, 5)
    field.from_numpy(x)
    ndarray.from_numpy(x)
    np.testing.assert_array_equal(A @ x, a @ x)
    np.testing.assert_array_equal(A @ field, a @ x)
    np.testing.assert_array_equal((A @ ndarray).to_numpy(), a @ x)


def test_entries_are_set_and_shown(capsys):
    A = build(np.array([[3, 0], [-0.5, 1]]))
    A[0, 0] = 9.0
    assert A[0, 0] == 9
    print(A)
    assert capsys.readouterr().out.split() == ["[", "9,", "0]", "[-0.5,", "1]"]


@pytest.mark.ours("sparse-entries", run=False)
def test_many_entries_are_set():
    """One after another, some twice, between others that are there, in any order and used between;
    each takes as long as few do."""
    rng = np.random.default_rng(3)
    a = sparse(40, 30)
    A = build(a)
    for count in (1, 30, 200):
        for i, j, x in zip(*rng.integers(0, 30, (2, count)), rng.integers(1, 9, count)):
            A[i, j] += x
            a[i, j] += x
            A[i, 0], a[i, 0] = x, x
        B = A.transpose()
        np.testing.assert_array_equal(dense_of(B), a.T)
    np.testing.assert_array_equal(dense_of(A), a)
    np.testing.assert_array_equal(A @ np.ones(30, np.float32), a.sum(1))
    large = ti.linalg.SparseMatrix(20000, 20000)
    for i in range(20000):
        large[i, i] = i
    product = large @ np.ones(20000, np.float32)
    np.testing.assert_array_equal(product, np.arange(20000))
    with pytest.raises(ti.TaichiRuntimeError, match="outside a 40 by 30 sparse matrix"):
        A[40, 0] = 1


def test_from_triplets():
    triplets = ti.ndarray(ti.f32, 9)
    triplets.from_numpy(np.array([0, 0, 1, 1, 2, 5, 0, 0, 2], np.float32))
    A = ti.linalg.SparseMatrix(3, 3, dtype=ti.f32)
    A.build_from_ndarray(triplets)
    np.testing.assert_array_equal(dense_of(A), [[3, 0, 0], [0, 0, 5], [0, 0, 0]])


@pytest.mark.parametrize("t", ["f32", "f64"])
@pytest.mark.parametrize("kind", ["LLT", "LDLT", "LU"])
def test_sparse_solver(kind, t, lacks):
    if lacks(t):
        pytest.skip("the device has no f64")
    n = 20
    a = np.diag(np.full(n, 2.5)) - np.eye(n, k=1) - np.eye(n, k=-1)
    A, b = build(a, t), ti.field(getattr(ti, t), n)
    right = RNG.standard_normal(n).astype(t.replace("f", "float"))
    b.from_numpy(right)
    solver = ti.linalg.SparseSolver(dtype=getattr(ti, t), solver_type=kind)
    solver.analyze_pattern(A)
    solver.factorize(A)
    assert solver.info()
    np.testing.assert_allclose(solver.solve(b), np.linalg.solve(a, right), rtol=1e-4)
    np.testing.assert_allclose(solver.solve(right), np.linalg.solve(a, right), rtol=1e-4)


def test_solver_of_an_unsymmetric_matrix():
    a = np.array([[2, 1, 0], [0, 3, 1], [1, 0, 4.0]])
    solver = ti.linalg.SparseSolver(solver_type="LU")
    solver.compute(build(a))
    right = np.array([1, 2, 3], np.float32)
    np.testing.assert_allclose(solver.solve(right), np.linalg.solve(a, right), rtol=1e-5)


def test_solver_of_an_indefinite_matrix():
    solver = ti.linalg.SparseSolver(solver_type="LLT")
    solver.compute(build(np.diag([1, -1, 1])))
    assert not solver.info()


@pytest.mark.ours("sparse-cg", run=False)
def test_conjugate_gradients():
    n = 30
    a = np.diag(np.full(n, 2.5)) - np.eye(n, k=1) - np.eye(n, k=-1)
    b = ti.ndarray(ti.f32, n)
    right = RNG.standard_normal(n).astype(np.float32)
    b.from_numpy(right)
    x, ok = ti.linalg.SparseCG(build(a), b, max_iter=50, atol=1e-6).solve()
    assert ok
    np.testing.assert_allclose(x, np.linalg.solve(a, right), rtol=1e-4, atol=1e-5)
    _, ok = ti.linalg.SparseCG(build(a), b, max_iter=2).solve()
    assert not ok


# --- mistakes ------------------------------------------------------------------------------------


def test_reading_or_setting_an_entry_raises():
    @ti.kernel
    def set_entry(A: ti.types.sparse_matrix_builder()):
        A[0, 0] = 1.0

    @ti.kernel
    def multiply_entry(A: ti.types.sparse_matrix_builder()):
        A[0, 0] *= 2.0

    K = ti.linalg.SparseMatrixBuilder(2, 2, max_num_triplets=4)
    for kernel in (set_entry, multiply_entry):
        with pytest.raises(Exception, match="A"):
            kernel(K)


@pytest.mark.ours("sparse-checks", run=False)
def test_mistakes_have_names():
    @ti.kernel
    def fill(A: ti.types.sparse_matrix_builder(), n: ti.i32):
        for i in range(n):
            A[i, i] += 1

    K = ti.linalg.SparseMatrixBuilder(2, 2, max_num_triplets=4)
    fill(K, 5)
    with pytest.raises(ti.TaichiRuntimeError, match="max_num_triplets=5"):
        K.build()
    K = ti.linalg.SparseMatrixBuilder(2, 2, max_num_triplets=4)
    fill(K, 3)
    with pytest.raises(ti.TaichiRuntimeError, match=r"\[2, 2\] is outside"):
        K.build()
    with pytest.raises(ti.TaichiRuntimeTypeError, match="SparseMatrixBuilder is needed"):
        fill(ti.ndarray(ti.f32, 3), 3)
    with pytest.raises(ti.TaichiRuntimeError, match="different shapes"):
        build(np.eye(2)) + build(np.eye(3))


def test_unknown_solvers():
    with pytest.raises(ti.TaichiRuntimeError):
        ti.linalg.SparseSolver(solver_type="QR")
    with pytest.raises(ti.TaichiRuntimeError):
        ti.linalg.SparseSolver().solve(ti.field(ti.f32, 2))
    with pytest.raises(ti.TaichiRuntimeError):
        build(np.eye(2)) @ "x"


def test_in_debug_mode(init):
    init(debug=True)
    test_serial_code_and_functions()


@pytest.mark.ours("sparse-checks")
def test_products_with_fields_of_vectors_raise() -> None:
    x = ti.Vector.field(3, ti.f32, 2)
    with pytest.raises(RuntimeError, match="2 numbers is needed"):
        build(np.eye(2)) @ x


@pytest.mark.ours("sparse-print")
def test_large_matrices_are_printed_in_part() -> None:
    large = build(np.eye(40))
    assert repr(large) == "<ti.SparseMatrix 40 x 40 of f32, 40 entries>"
    assert str(large).splitlines()[0] == "[1, 0, 0, ..., 0, 0, 0]"
