"""`ti.tensor`, and kernel arguments annotated with `ti.Tensor` or `... | None`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import vkchi as ti

Init = Callable[..., None]
FIELD, NDARRAY = ti.Backend.FIELD, ti.Backend.NDARRAY


@ti.kernel
def fill(x: ti.Tensor, by: ti.i32, y: ti.Tensor | None):
    for i in range(x.shape[0]):
        x[i] = i * by
        if ti.static(y is not None):
            y[i] = x[i] + 1


@pytest.mark.parametrize("arch", ["vulkan", "python"])
def test_arguments_of_either_backend_in_turn(arch: str, init: Init) -> None:
    init(arch=getattr(ti, arch))
    for backend in (FIELD, NDARRAY, FIELD):
        for other in (FIELD, NDARRAY, None, NDARRAY):
            x = ti.tensor(ti.i32, 3, backend=backend)
            y = None if other is None else ti.tensor(ti.i32, shape=(3,), backend=other)
            for by in (2, 5):
                fill(x, by, y)
                fill(x, by, y)
                assert x.to_numpy().tolist() == [0, by, 2 * by]
                assert y is None or y.to_numpy().tolist() == [1, by + 1, 2 * by + 1]
    values = np.zeros(3, np.int32)
    fill(values, 7, None)
    assert values.tolist() == [0, 7, 14]


def test_one_field_and_one_ndarray_of_a_kernel_share_nothing() -> None:
    x, y = ti.tensor(ti.i32, 3, backend=FIELD), ti.tensor(ti.i32, 3)
    assert isinstance(x, ti.Tensor) and isinstance(y, ti.Tensor)
    assert isinstance(x, ti.Field) and isinstance(y, ti.Ndarray)
    fill(x, 1, y)
    fill(y, 2, x)
    fill(x, 3, x)
    assert x.to_numpy().tolist() == [1, 4, 7] and y.to_numpy().tolist() == [0, 2, 4]


def test_tensors_of_vectors_and_matrices() -> None:
    v = ti.Vector.tensor(3, ti.f32, shape=(4,))
    m = ti.Matrix.tensor(2, 2, ti.f32, (3, 2), backend=FIELD, layout=(1, 0), needs_grad=True)

    @ti.func
    def scale(x: ti.Tensor, i: ti.template(), by: ti.f32):
        x[i] *= by

    @ti.kernel
    def run(x: ti.Tensor, by: ti.f32):
        for i in ti.grouped(x):
            scale(x, i, by)

    v.fill(2), m.fill(3)
    run(v, 2.0), run(m, 3.0)
    assert np.all(v.to_numpy() == 4) and np.all(m.to_numpy() == 9)
    assert v.shape == (4,) and m.shape == (3, 2) and m.has_grad() and not v.has_grad()


def test_layout_of_a_field_in_memory() -> None:
    x = ti.tensor(ti.i32, (2, 3), backend=FIELD, layout=(1, 0))
    x.from_numpy(np.arange(6, dtype=np.int32).reshape(2, 3))
    assert x[1, 0] == 3
    same = ti.field(ti.i32, (2, 3), order="ji")
    assert x.layout == same.layout and x.layout != ti.field(ti.i32, (2, 3)).layout
    usual = ti.tensor(ti.i32, (2, 3), backend=FIELD, layout=(0, 1))
    assert usual.layout == ti.field(ti.i32, (2, 3)).layout


def test_optional_arrays() -> None:
    @ti.kernel
    def count(x: ti.types.NDArray[ti.f32, 1] | None, y: ti.types.ndarray | None) -> ti.i32:
        n = 0
        if ti.static(x is not None):
            n += x.shape[0]
        if ti.static(y is not None):
            n += 10 * y.shape[0]
        return n

    a, b = ti.ndarray(ti.f32, 3), ti.ndarray(ti.i32, (2, 2))
    assert [count(None, None), count(a, None), count(None, b), count(a, b)] == [0, 3, 20, 23]
    with pytest.raises(ti.TaichiRuntimeTypeError, match="an array of f32 is needed, not of i32"):
        count(b, None)
    with pytest.raises(ti.TaichiRuntimeTypeError, match="an array is needed"):
        count(ti.field(ti.f32, 3), None)


@pytest.mark.parametrize("backend", [FIELD, NDARRAY])
def test_gradients(backend: ti.Backend) -> None:
    x = ti.tensor(ti.f32, 3, backend=backend, needs_grad=True)
    loss = ti.tensor(ti.f32, (), backend=backend, needs_grad=True)
    assert not ti.tensor(ti.i32, 3, backend=backend, needs_grad=True).has_grad()

    @ti.kernel
    def run(x: ti.Tensor, loss: ti.Tensor):
        for i in range(x.shape[0]):
            loss[None] += x[i] ** 2

    x.from_numpy(np.array([1, 2, 3], np.float32))
    with ti.ad.Tape(loss):
        run(x, loss)
    assert x.grad.to_numpy().tolist() == [2, 4, 6]


def test_refusals() -> None:
    with pytest.raises(ti.Unsupported, match="backend=ti.Backend.FIELD"):
        ti.tensor(ti.f32, (2, 3), layout=(1, 0))
    for layout in ((0,), (0, 0), (1, 2)):
        with pytest.raises(ti.TaichiRuntimeTypeError, match="a permutation of 2 axes"):
            ti.tensor(ti.f32, (2, 3), backend=FIELD, layout=layout)
    with pytest.raises(ti.TaichiRuntimeTypeError, match="backend= is ti.Backend.FIELD or"):
        ti.tensor(ti.f32, 3, backend=7)
    with pytest.raises(ti.TaichiRuntimeTypeError, match="a tensor holds numbers"):
        ti.tensor("f32", 3)
    with pytest.raises(ti.TaichiRuntimeTypeError, match="an array is needed, not str"):
        fill("a", 1, None)
