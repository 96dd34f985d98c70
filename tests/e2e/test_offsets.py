"""Fields whose first indices are not 0 (`offset=`): all that works on fields finds them there."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.runtime import current_runtime

N = 6
STARTS = (7, -4)
RNG = np.random.default_rng(3)


def make(first: int, *, n: int = N, is_blocked: bool = False, **options: Any) -> Any:
    """A field of n numbers, of which the first has this index."""
    if not is_blocked:
        return ti.field(ti.f32, n, offset=first, **options)
    x = ti.field(ti.f32, **options)
    ti.root.dense(ti.i, n // 2).dense(ti.i, 2).place(x, offset=first)
    return x


def numbers(n: int = N) -> np.ndarray[Any, Any]:
    return (np.arange(n) / n + 0.5).astype(np.float32)


# --- algorithms ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 6, 100])
@pytest.mark.parametrize("starts", [(10, -4), (-3, 0), (0, 5)])
def test_parallel_sort(n: int, starts: tuple[int, int]) -> None:
    given = RNG.permutation(n).astype(np.int32)
    keys, values = (ti.field(ti.i32, n, offset=first) for first in starts)
    keys.from_numpy(given)
    values.from_numpy(np.arange(n, dtype=np.int32))
    ti.algorithms.parallel_sort(keys, values)
    np.testing.assert_array_equal(keys.to_numpy(), np.arange(n))
    np.testing.assert_array_equal(values.to_numpy(), np.argsort(given))
    keys.from_numpy(given)
    ti.algorithms.parallel_sort(keys)
    np.testing.assert_array_equal(keys.to_numpy(), np.arange(n))


@pytest.mark.parametrize("n", [1, 6, 100, 3000])
@pytest.mark.parametrize("first", STARTS)
def test_prefix_sum(n: int, first: int) -> None:
    x = ti.field(ti.i32, n, offset=first)
    given = RNG.integers(-100, 100, n).astype(np.int32)
    x.from_numpy(given)
    ti.algorithms.PrefixSumExecutor(n).run(x)
    np.testing.assert_array_equal(x.to_numpy(), np.cumsum(given))


@pytest.mark.parametrize("solve", ["MatrixFreeCG", "MatrixFreeBICGSTAB"])
@pytest.mark.parametrize("starts", [(-3, -3), (-3, 0), (0, 5)])
def test_matrix_free_solvers(solve: str, starts: tuple[int, int]) -> None:
    x, b = (make(first) for first in starts)
    first = starts[0]

    @ti.kernel
    def multiply(v: ti.template(), product: ti.template()):
        for i in v:
            product[i] = (2.0 + i - first) * v[i]

    b.from_numpy(numbers())
    assert getattr(ti.linalg, solve)(ti.linalg.LinearOperator(multiply), b, x)
    np.testing.assert_allclose(x.to_numpy(), numbers() / (2 + np.arange(N)), rtol=1e-5)


def test_arrays_for_work_are_like_those_given() -> None:
    """A user's matrix sees the same index for all vectors of a solver."""
    x, b = make(5), make(5)

    @ti.kernel
    def multiply(v: ti.template(), product: ti.template()):
        for i in range(5, 5 + N):
            product[i] = 4.0 * v[i]

    b.fill(8)
    assert ti.linalg.MatrixFreeCG(ti.linalg.LinearOperator(multiply), b, x)
    np.testing.assert_allclose(x.to_numpy(), np.full(N, 2.0))


# --- gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [None, "4KiB"])
@pytest.mark.parametrize("is_blocked", [False, True])
@pytest.mark.parametrize("first", [0, *STARTS])
def test_copy_from_inside_a_tape(first: int, is_blocked: bool, memory: str | None) -> None:
    x = make(first, is_blocked=is_blocked, needs_grad=True)
    y = make(2 * first, is_blocked=is_blocked, needs_grad=True)
    z = ti.ndarray(ti.f32, N, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def add_up(z: ti.types.ndarray()):
        for i in z:
            loss[None] += y[i + 2 * first] ** 2 * z[i] * (i + 1)

    x.from_numpy(numbers())
    with ti.ad.Tape(loss, memory=memory):
        y.copy_from(x)
        z.copy_from(y)
        add_up(z)
    want = 3 * numbers() ** 2 * (np.arange(N) + 1)
    np.testing.assert_allclose(z.to_numpy(), numbers())
    np.testing.assert_allclose(x.grad.to_numpy(), want, rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"memory": "4KiB"}, {"validation": True}])
@pytest.mark.parametrize("is_blocked", [False, True])
def test_tapes_with_offsets(options: dict[str, Any], is_blocked: bool) -> None:
    """Kernels between two fields, rows, extremes, and Python writes between them."""

    def slopes(first: int) -> np.ndarray[Any, Any]:
        x = make(first, is_blocked=is_blocked, needs_grad=True)
        y = make(2 * first, is_blocked=is_blocked, needs_grad=True)
        top = make(first + 3, n=2, needs_grad=True)
        loss = ti.field(ti.f32, (), needs_grad=True)

        @ti.kernel
        def go():
            for i in x:
                if i > first:
                    y[i + first] = x[i] * x[i - 1]
            for i in y:
                ti.atomic_max(top[first + 3], y[i])

        @ti.kernel
        def total():
            for i in y:
                loss[None] += y[i] ** 2 * top[first + 3]

        x.from_numpy(numbers())
        with ti.ad.Tape(loss, **options):
            go()
            y[2 * first + 2] += 1.0
            y[2 * first + 3] = 2.0
            total()
        found: np.ndarray[Any, Any] = x.grad.to_numpy()
        return found

    for first in STARTS:
        np.testing.assert_allclose(slopes(first), slopes(0), rtol=1e-5)


def test_forward_mode_and_hessians() -> None:
    def products(first: int) -> list[np.ndarray[Any, Any]]:
        x = make(first, needs_grad=True, needs_dual=True)
        y = make(2 * first, needs_grad=True, needs_dual=True)
        loss = ti.field(ti.f32, (), needs_grad=True)

        @ti.kernel
        def run():
            for i in x:
                y[i + first] = x[i] ** 3
            for i in y:
                loss[None] += y[i] ** 2 * x[i - first]

        x.from_numpy(numbers())
        with ti.ad.FwdMode(loss=y, param=x, seed=[1, 0, 2, 0, 0, 1]):
            run()
        return [y.dual.to_numpy(), ti.ad.hvp(run, loss, x, np.arange(N))]

    for first in STARTS:
        np.testing.assert_allclose(products(first), products(0), rtol=1e-5)


def test_a_wrong_gradient_is_reported_with_its_index() -> None:
    x = ti.Vector.field(2, ti.f32, 3, offset=9, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def run():
        for i in x:
            if i > 9:
                loss[None] += ti.stop_grad(x[i][1]) * x[i][1]

    x.fill(2)
    with pytest.raises(ti.ad.GradientError, match=r"at \(10, 1\) is 2"):
        ti.ad.gradcheck(run, loss, [x])


# --- contents ------------------------------------------------------------------------------------


def test_copies_between_other_first_indices() -> None:
    x, y, z = make(-2), make(0), make(9)
    x.from_numpy(numbers())
    y.copy_from(x)
    z.copy_from(y)
    twin = copy.deepcopy(z)
    for array in (y, z, twin):
        np.testing.assert_array_equal(array.to_numpy(), numbers())
    assert twin[9] == numbers()[0]
    assert (z.shape, z.origin) == ((N,), (9,))


def test_structs_and_components() -> None:
    cell = ti.types.struct(a=ti.f32, v=ti.types.vector(2, ti.f32))
    x = cell.field(shape=4, offset=-2, layout=ti.Layout.SOA, needs_grad=True)
    y = cell.field(shape=4, offset=5)

    @ti.kernel
    def fill():
        for i in x:
            x[i].a = i
            x[i].v = [i, 2 * i]
            x.grad[i].a = 3 * i

    fill()
    y.copy_from(x)
    assert (y[5].a, y.a[8], x.grad[-2].a) == (-2, 1, -6)
    np.testing.assert_array_equal(y.v.get_scalar_field(1).to_numpy(), [-4, -2, 0, 2])
    assert y.v.get_scalar_field(1)[8] == 2


def test_textures_images_and_loops_over_blocks() -> None:
    x = ti.field(ti.f32, (2, 3), offset=(-1, 4))
    x.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3))
    texture = ti.Texture(ti.Format.r32f, (2, 3))
    texture.from_field(x)
    same = ti.Texture(ti.Format.r32f, (2, 3))
    same.from_ndarray(x.to_numpy())
    np.testing.assert_array_equal(texture.storage.to_numpy(), same.storage.to_numpy())
    a, b = ti.field(ti.i32), ti.field(ti.i32)
    block = ti.root.dense(ti.i, 4)
    block.place(a, offset=10)
    block.place(b, offset=-3)
    seen = ti.field(ti.i32, 4)

    @ti.kernel
    def run():
        for i in a:
            a[i] = i
        for i in b:
            b[i] = i
        for i in block:
            seen[i] += 1

    run()
    np.testing.assert_array_equal(a.to_numpy(), np.arange(10, 14))
    np.testing.assert_array_equal(b.to_numpy(), np.arange(-3, 1))
    np.testing.assert_array_equal(seen.to_numpy(), np.ones(4))


def test_copy_from_inside_a_kernel() -> None:
    x, y = make(3), make(-2)
    ray = ti.types.struct(origin=ti.types.vector(2, ti.f32), length=ti.f32)
    rays, copies = ray.field(shape=(2, 3), offset=(4, -1)), ray.field(shape=(2, 3), offset=(0, 7))
    one, other = ti.field(ti.f32, ()), ti.field(ti.f32, ())

    @ti.kernel
    def copy_all(z: ti.types.ndarray()):
        y.copy_from(x)
        z.copy_from(y)
        copies.copy_from(rays)
        other.copy_from(one)

    x.from_numpy(numbers())
    rays.length.from_numpy(numbers().reshape(2, 3))
    rays[5, 0].origin = [1, 2]
    one[None] = 3
    z = np.zeros(N, np.float32)
    copy_all(z)
    np.testing.assert_array_equal(y.to_numpy(), numbers())
    np.testing.assert_array_equal(z, numbers())
    np.testing.assert_array_equal(copies.length.to_numpy(), numbers().reshape(2, 3))
    assert copies[1, 8].origin.to_list() == [1, 2]
    assert other[None] == 3


@pytest.mark.parametrize("first", [-(2**31), 2**31 - 4])
def test_the_ends_of_32_bits(first: int) -> None:
    if first > 0 and not current_runtime().device.caps.has_type("i64"):
        pytest.skip("the end of the loop does not fit i32")
    x = ti.field(ti.i32, 4, offset=first)

    @ti.kernel
    def count():
        for i in x:
            x[i] = i

    count()
    np.testing.assert_array_equal(x.to_numpy(), first + np.arange(4, dtype=np.int64))
    assert x[first + 3] == first + 3


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (2**31 - 3, "an axis of 4 cells from 2147483645 on ends beyond"),
        (-(2**31) - 1, "offset= is made of integers of 32 bits, not -2147483649"),
        (1.5, "offset= is made of integers of 32 bits, not 1.5"),
    ],
)
def test_beyond_32_bits(first: int, says: str) -> None:
    with pytest.raises(ti.TaichiRuntimeTypeError, match=says):
        ti.field(ti.i32, 4, offset=first)
