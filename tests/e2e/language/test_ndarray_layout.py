"""`ti.ndarray(layout=, order=)`: the order of the axes in memory. Indices keep theirs."""

import copy
import itertools
import pickle
from typing import Any

import numpy as np
import pytest

import vkchi as ti

CONTENTS = np.random.default_rng(4).random((3, 4, 5)).astype(np.float32)


@pytest.mark.parametrize("layout", list(itertools.permutations(range(3))))
def test_memory_is_permuted_and_indices_are_not(layout: tuple[int, ...]) -> None:
    x = ti.ndarray(ti.f32, CONTENTS.shape, layout=layout)
    same = ti.ndarray(ti.f32, CONTENTS.shape, order="".join("ijk"[k] for k in layout))
    x.from_numpy(CONTENTS)
    same.copy_from(x)
    for one in (x, same):
        assert one.shape == (3, 4, 5) and one[2, 1, 3] == CONTENTS[2, 1, 3]
        np.testing.assert_array_equal(one.to_numpy(), CONTENTS)
        np.testing.assert_array_equal(one.whole.to_numpy(), CONTENTS.transpose(layout))
    x[1, 2, 4] = 9
    part, want = x[1:, 2, ::2], x.to_numpy()[1:, 2, ::2]
    np.testing.assert_array_equal(part.to_numpy(), want)
    assert part[0, 2] == 9


@ti.kernel
def square(a: ti.types.ndarray(ndim=2), b: ti.types.ndarray(ndim=2)):
    for i, j in a:
        b[i, j] = a[i, j] * a[i, j] * (i + 10 * j) + a.shape[1]


@pytest.mark.parametrize("layouts", list(itertools.product([(0, 1), (1, 0)], repeat=2)))
def test_kernels_and_gradients(layouts: Any) -> None:
    a, b = (ti.ndarray(ti.f32, (3, 5), needs_grad=True, layout=layout) for layout in layouts)
    values = CONTENTS[:, 0]
    weights = np.arange(3)[:, None] + 10 * np.arange(5)
    a.from_numpy(values)
    with ti.ad.Tape() as tape:
        square(a, b)
    np.testing.assert_allclose(b.to_numpy(), values**2 * weights + 5, rtol=1e-6)
    seed = np.arange(15).reshape(3, 5)
    tape.backward({b: seed})
    np.testing.assert_allclose(a.grad.to_numpy(), 2 * values * weights * seed, rtol=1e-6)
    square(b, b)  # one array twice
    want = (values**2 * weights + 5) ** 2 * weights + 5
    np.testing.assert_allclose(b.to_numpy(), want, rtol=1e-5)


def test_vectors_matrices_and_tensors() -> None:
    values = CONTENTS[:2, :2, :4].reshape(2, 2, 2, 2)
    m = ti.Matrix.ndarray(2, 2, ti.f32, (2, 2), order="ji")
    m.from_numpy(values)
    np.testing.assert_array_equal(m.to_numpy(), values)
    assert m[1, 0][0, 1] == values[1, 0, 0, 1] and (m.n, m.m) == (2, 2)
    v = ti.Vector.tensor(3, ti.i32, (2, 4), layout=(1, 0))
    v[1, 3] = [1, 2, 3]
    assert v.to_numpy()[1, 3].tolist() == [1, 2, 3] and isinstance(v, ti.Tensor)


def test_copies_keep_the_layout() -> None:
    x = ti.ndarray(ti.f32, (3, 5), needs_grad=True, layout=(1, 0))
    x.from_numpy(CONTENTS[:, 0])
    x.grad.fill(3)
    for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        made[0, 0] = 7
        np.testing.assert_array_equal(made.to_numpy()[1:], CONTENTS[1:, 0])
        assert made.whole.shape == (5, 3) and made.grad[2, 4] == 3
    assert x[0, 0] == CONTENTS[0, 0, 0]


def test_libraries_share_the_memory() -> None:
    torch = pytest.importorskip("torch")
    x = ti.ndarray(ti.f32, (3, 5), layout=(1, 0))
    if x.whole.host is None:
        pytest.skip("the host does not reach this device's memory")
    tensor = x.to_torch(copy=False)
    tensor[2, 4] = 6
    assert tensor.stride() == (1, 3) and x[2, 4] == 6
    x.from_torch(torch.arange(15.0).reshape(3, 5))
    assert x.to_numpy()[2].tolist() == [10, 11, 12, 13, 14]


def test_objects_hold_them() -> None:
    class Grid:
        def __init__(self, n: int) -> None:
            self.x = ti.ndarray(ti.f32, (n, 4), layout=(1, 0))

    grid = Grid(3)

    @ti.kernel
    def run():
        for i, j in grid.x:
            grid.x[i, j] += i + 10 * j

    for n in (3, 3, 6):
        grid.x = ti.ndarray(ti.f32, (n, 4), layout=(1, 0))
        run()
        run()
        want = 2 * (np.arange(n)[:, None] + 10 * np.arange(4))
        np.testing.assert_array_equal(grid.x.to_numpy(), want)


def test_wrong_layouts() -> None:
    s = ti.types.struct(a=ti.f32)
    for make, message in (
        (lambda: ti.ndarray(ti.f32, (2, 3), layout=(0, 0)), "permutation of 2 axes"),
        (lambda: ti.ndarray(ti.f32, (2, 3), layout=(1, 0), order="ji"), "give one of them"),
        (lambda: ti.ndarray(ti.f32, (2, 3), order="ii"), "must be different"),
        (lambda: ti.ndarray(s, (2, 3), order="ji"), "structs has no layout="),
    ):
        with pytest.raises(ti.TaichiRuntimeError, match=message):
            make()


def test_products_with_vectors() -> None:
    x = ti.ndarray(ti.f32, (2, 3), needs_grad=True, order="ji")
    y = ti.ndarray(ti.f32, (2, 3), needs_grad=True)
    i, j = np.mgrid[:2, :3]
    values, v = i + 3.0 * j, 5.0 - i * j
    x.from_numpy(values.astype(np.float32))

    @ti.kernel
    def scale(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i, j in x:
            y[i, j] = x[i, j] ** 2 * (i + 2 * j + 1)

    def run(x: Any) -> Any:
        scale(x, y)
        return y

    want = 2 * values * v * (i + 2 * j + 1)
    np.testing.assert_allclose(ti.ad.jvp(run, (x,), (v,))[1].to_numpy(), want)
    _, products = ti.ad.vjp(run, x)
    np.testing.assert_allclose(products(v)[0].to_numpy(), want)
