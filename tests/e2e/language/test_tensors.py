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
    for layout in ((0,), (0, 0), (1, 2)):
        for backend in (FIELD, ti.Backend.NDARRAY):
            with pytest.raises(ti.TaichiRuntimeTypeError, match="a permutation of 2 axes"):
                ti.tensor(ti.f32, (2, 3), backend=backend, layout=layout)
    with pytest.raises(ti.TaichiRuntimeTypeError, match="backend= is ti.Backend.FIELD or"):
        ti.tensor(ti.f32, 3, backend=7)
    with pytest.raises(ti.TaichiRuntimeTypeError, match="a tensor holds numbers"):
        ti.tensor("f32", 3)
    with pytest.raises(ti.TaichiRuntimeTypeError, match="an array is needed, not str"):
        fill("a", 1, None)


@ti.kernel
def square(x: ti.Tensor, y: ti.Tensor):
    for i in range(x.shape[0]):
        y[i] = x[i] ** 2


@pytest.mark.parametrize("backend", [FIELD, NDARRAY])
def test_gradients_records_and_checks(backend: ti.Backend) -> None:
    x, y = (ti.tensor(ti.f32, 3, backend=backend, needs_grad=True) for _ in range(2))
    x.from_numpy(np.array([1, 2, 3], np.float32))
    y.grad.fill(1)
    square.grad(x, y)
    assert x.grad.to_numpy().tolist() == [2, 4, 6]
    with ti.record() as recorded:
        square(x, y)
        square(y, x)
    recorded.run()
    assert x.to_numpy().tolist() == [1, 16, 81]
    ti.verify(square, x, y)
    assert "x: ti.Tensor" in repr(square)


Pack = ti.types.argpack(x=ti.Tensor)


def test_members_of_argument_packs() -> None:
    @ti.kernel
    def run(p: Pack, y: ti.Tensor | None):
        for i in range(p.x.shape[0]):
            p.x[i] += 1
            if ti.static(y is not None):
                y[i] = p.x[i]

    x, y = ti.tensor(ti.f32, 3), ti.tensor(ti.f32, 3, backend=FIELD)
    for _ in range(2):
        run(Pack(x=x), y)
        run(Pack(x=y), None)
        run(Pack(x=y), x)
    assert x.to_numpy().tolist() == y.to_numpy().tolist() == [6, 6, 6]


def test_torch_operators_and_graphs() -> None:
    torch = pytest.importorskip("torch")
    op = ti.torch_op(square, outputs={"y": "x"})
    t = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    op(t).sum().backward()
    assert t.grad.tolist() == [2, 4, 6]
    kind = ti.graph.ArgKind.NDARRAY
    x, y = ti.tensor(ti.f32, 3), ti.tensor(ti.f32, 3)
    x.fill(3)
    builder = ti.graph.GraphBuilder()
    builder.dispatch(square, *[ti.graph.Arg(kind, name, ti.f32, ndim=1) for name in "xy"])
    builder.compile().run({"x": x, "y": y})
    assert y.to_numpy().tolist() == [9, 9, 9]
