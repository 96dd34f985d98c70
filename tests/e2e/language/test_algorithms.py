"""`ti.algorithms` and the matrix-free solvers of `ti.linalg`."""

import numpy as np
import pytest

import vkchi as ti

RNG = np.random.default_rng(30)
LENGTHS = (1, 2, 3, 5, 31, 32, 33, 64, 100, 1000, 1023, 1024, 1025, 3000)
NUMPY = {"i32": np.int32, "u32": np.uint32, "f32": np.float32, "i64": np.int64}


def make_array(kind, t, numbers):
    """A field or ndarray of these numbers."""
    make = {"field": ti.field, "ndarray": ti.ndarray}[kind]
    array = make(getattr(ti, t), len(numbers))
    array.from_numpy(np.asarray(numbers).astype(NUMPY[t]))
    return array


# --- prefix sums: Taichi has them for i32 fields, on CUDA and Vulkan alone -----------------------

ours = pytest.mark.ours("prefix-sum", run=False)


@ours
@pytest.mark.parametrize("n", LENGTHS)
def test_prefix_sum(n):
    numbers = RNG.integers(-100, 100, n)
    array = make_array("field", "i32", numbers)
    ti.algorithms.PrefixSumExecutor(n).run(array)
    np.testing.assert_array_equal(array.to_numpy(), np.cumsum(numbers))


@ours
@pytest.mark.parametrize("kind", ["field", "ndarray"])
@pytest.mark.parametrize("t", NUMPY)
def test_prefix_sum_of_type(kind, t, lacks):
    if lacks(t):
        pytest.skip(f"the device has no {t}")
    numbers = RNG.integers(0, 100, 777)
    array = make_array(kind, t, numbers)
    ti.algorithms.PrefixSumExecutor(777).run(array)
    np.testing.assert_array_equal(array.to_numpy(), np.cumsum(numbers))


@ours
def test_prefix_sum_again_and_of_a_part():
    scan = ti.algorithms.PrefixSumExecutor(40)
    for _ in range(3):
        array = make_array("field", "i32", np.ones(50))
        scan.run(array)
        np.testing.assert_array_equal(array.to_numpy(), [*range(1, 41), *[1] * 10])


@ours
def test_prefix_sum_after_init(init):
    scan = ti.algorithms.PrefixSumExecutor(100)
    scan.run(make_array("field", "i32", np.ones(100)))
    init()
    array = make_array("field", "i32", np.ones(100))
    scan.run(array)
    assert array[99] == 100


@ours
def test_prefix_sum_wraps():
    array = make_array("field", "i32", [2**31 - 1, 1, 1])
    ti.algorithms.PrefixSumExecutor(3).run(array)
    assert array.to_numpy().tolist() == [2**31 - 1, -(2**31), -(2**31) + 1]


@ours
def test_prefix_sum_of_unsupported_types():
    scan = ti.algorithms.PrefixSumExecutor(10)
    with pytest.raises(Exception, match="10 elements"):
        scan.run(make_array("field", "i32", np.ones(9)))
    with pytest.raises(Exception, match="1 axis"):
        scan.run(ti.field(ti.i32, (10, 10)))
    with pytest.raises(Exception, match="numbers are added"):
        scan.run(ti.Vector.field(2, ti.i32, 10))
    with pytest.raises(Exception, match="a field or an ndarray"):
        scan.run(np.ones(10, np.int32))
    ti.algorithms.PrefixSumExecutor(0).run(ti.field(ti.i32, 3))


# --- sorting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", LENGTHS)
def test_sort(n):
    numbers = RNG.integers(-50, 50, n)
    array = make_array("field", "i32", numbers)
    ti.algorithms.parallel_sort(array)
    np.testing.assert_array_equal(array.to_numpy(), np.sort(numbers))


@pytest.mark.parametrize("n", LENGTHS)
def test_sort_with_values(n):
    numbers = RNG.permutation(n)
    keys, values = make_array("field", "f32", numbers), make_array("field", "i32", np.arange(n))
    ti.algorithms.parallel_sort(keys, values)
    np.testing.assert_array_equal(keys.to_numpy(), np.arange(n))
    np.testing.assert_array_equal(values.to_numpy(), np.argsort(numbers))


@pytest.mark.ours("sort-ndarrays")
@pytest.mark.parametrize("kind", ["field", "ndarray"])
def test_sort_where_the_keys_are_the_values(kind):
    numbers = RNG.permutation(100)
    array = make_array(kind, "f32", numbers)
    ti.algorithms.parallel_sort(array, array)
    np.testing.assert_array_equal(array.to_numpy(), np.arange(100))


@pytest.mark.ours("sort-ndarrays")
def test_sort_by_a_component():
    points = np.stack([RNG.permutation(100), np.arange(100)], 1).astype(np.float32)
    field = ti.Vector.field(2, ti.f32, 100)
    field.from_numpy(points)
    ti.algorithms.parallel_sort(field.get_scalar_field(0), field)
    np.testing.assert_array_equal(field.to_numpy(), points[np.argsort(points[:, 0])])


@pytest.mark.parametrize("order", ["ascending", "descending", "equal"])
@pytest.mark.parametrize("t", NUMPY)
def test_sort_of_type(order, t, lacks):
    if lacks(t):
        pytest.skip(f"the device has no {t}")
    numbers = {"ascending": np.arange(200), "descending": np.arange(200)[::-1]}
    numbers = numbers.get(order, np.full(200, 7))
    array = make_array("field", t, numbers)
    ti.algorithms.parallel_sort(array)
    np.testing.assert_array_equal(array.to_numpy(), np.sort(numbers))


@pytest.mark.ours("sort-ndarrays")
def test_sort_of_ndarrays():
    numbers = RNG.standard_normal(300)
    keys, values = make_array("ndarray", "f32", numbers), make_array("field", "i32", range(300))
    ti.algorithms.parallel_sort(keys, values)
    np.testing.assert_array_equal(keys.to_numpy(), np.sort(numbers.astype(np.float32)))
    np.testing.assert_array_equal(values.to_numpy(), np.argsort(numbers))


def test_sort_moves_vectors_with_their_keys():
    keys, values = make_array("field", "i32", [3, 1, 2]), ti.Vector.field(2, ti.f32, 3)
    values.from_numpy(np.array([[3, 30], [1, 10], [2, 20]], np.float32))
    ti.algorithms.parallel_sort(keys, values)
    np.testing.assert_array_equal(values.to_numpy(), [[1, 10], [2, 20], [3, 30]])


@pytest.mark.ours("sort-nan", run=False)
def test_sort_puts_nan_last():
    array = make_array("field", "f32", [np.nan, 3, np.inf, np.nan, -np.inf, 1])
    ti.algorithms.parallel_sort(array)
    np.testing.assert_array_equal(array.to_numpy(), [-np.inf, 1, 3, np.inf, np.nan, np.nan])


@pytest.mark.ours("sort-checks", run=False)
def test_sort_of_types_without_an_order():
    with pytest.raises(Exception, match="keys are numbers"):
        ti.algorithms.parallel_sort(ti.Vector.field(2, ti.f32, 8))
    with pytest.raises(Exception, match="8 keys, and 5 values"):
        ti.algorithms.parallel_sort(ti.field(ti.f32, 8), ti.field(ti.f32, 5))
    with pytest.raises(Exception, match="1 axis"):
        ti.algorithms.parallel_sort(ti.field(ti.f32, (2, 2)))


# --- linear systems ------------------------------------------------------------------------------


def laplacian(shape):
    """A kernel that multiplies by 2 d + 0.1 minus the sum of neighbours: definite, symmetric."""
    ndim = len(shape)

    @ti.kernel
    def multiply(v: ti.template(), Av: ti.template()):
        for I in ti.grouped(v):
            total = v[I] * (2.0 * ndim + 0.1)
            for d in ti.static(range(ndim)):
                step = ti.Vector.unit(ndim, d)
                if I[d] > 0:
                    total -= v[I - step]
                if I[d] < shape[d] - 1:
                    total -= v[I + step]
            Av[I] = total

    return multiply


SOLVERS = ["MatrixFreeCG", "MatrixFreeBICGSTAB"]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("shape", [(50,), (12, 9), (4, 5, 6)])
@pytest.mark.parametrize("t", ["f32", "f64"])
def test_matrix_free(solver, shape, t, lacks):
    if lacks(t):
        pytest.skip("the device has no f64")
    dtype, tolerance = getattr(ti, t), {"f32": 1e-4, "f64": 1e-10}[t]
    x, b, Ax = (ti.field(dtype, shape) for _ in range(3))
    right = RNG.standard_normal(shape).astype(t.replace("f", "float"))
    b.from_numpy(right)
    A = ti.linalg.LinearOperator(laplacian(shape))
    assert getattr(ti.linalg, solver)(A, b, x, tol=tolerance, maxiter=500, quiet=True)
    A.matvec(x, Ax)
    np.testing.assert_allclose(Ax.to_numpy(), right, atol=10 * tolerance)


def test_bicgstab_of_an_unsymmetric_matrix():
    n = 30
    x, b = ti.field(ti.f32, n), ti.field(ti.f32, n)
    b.fill(1)

    @ti.kernel
    def multiply(v: ti.template(), Av: ti.template()):
        for i in v:
            Av[i] = 3 * v[i] - (v[i + 1] if i + 1 < n else 0.0)

    assert ti.linalg.MatrixFreeBICGSTAB(ti.linalg.LinearOperator(multiply), b, x, tol=1e-5)
    want = np.linalg.solve(3 * np.eye(n) - np.eye(n, k=1), np.ones(n))
    np.testing.assert_allclose(x.to_numpy(), want, rtol=1e-4)


@pytest.mark.parametrize("solver", SOLVERS)
def test_too_few_iterations(solver):
    x, b = ti.field(ti.f32, 200), ti.field(ti.f32, 200)
    b.from_numpy(RNG.standard_normal(200).astype(np.float32))
    A = ti.linalg.LinearOperator(laplacian((200,)))
    assert not getattr(ti.linalg, solver)(A, b, x, tol=1e-6, maxiter=2)


def test_iterations_are_reported(capsys):
    x, b = ti.field(ti.f32, 20), ti.field(ti.f32, 20)
    b.fill(1)
    A = ti.linalg.LinearOperator(laplacian((20,)))
    ti.linalg.MatrixFreeCG(A, b, x, tol=1e-4, quiet=False)
    assert "converged" in capsys.readouterr().out


def test_arrays_that_do_not_fit():
    A = ti.linalg.LinearOperator(laplacian((4,)))
    with pytest.raises(ti.TaichiRuntimeError):
        ti.linalg.MatrixFreeCG(A, ti.field(ti.f32, 4), ti.field(ti.f32, 5))
    with pytest.raises(ti.TaichiTypeError):
        ti.linalg.MatrixFreeCG(A, ti.field(ti.i32, 4), ti.field(ti.i32, 4))
    with pytest.raises(ti.TaichiRuntimeError):
        A.matvec(ti.field(ti.f32, 4), ti.field(ti.f32, 5))
