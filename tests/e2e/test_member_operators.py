"""Operators of torch of kernels that read ndarrays and numbers of objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.device

X = torch.tensor([1.0, 2.0, 3.0])


def array(values: Any, *, needs_grad: bool = False) -> Any:
    values = np.asarray(values, np.float32)
    made = ti.ndarray(ti.f32, values.shape, needs_grad=needs_grad)
    made.from_numpy(values)
    return made


@ti.data_oriented(template_primitives=False)
class Layer:
    def __init__(self, needs_grad: bool = False) -> None:
        self.w = array([1, 2, 3], needs_grad=needs_grad)
        self.total = array([0, 0, 0])
        self.scale = 2.0

    @ti.kernel
    def square(self, x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * self.w[i] * self.scale
            self.total[i] += x[i]

    @ti.kernel
    def cube(self, x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] ** 3 * self.scale

    @ti.kernel
    def slope(self, x: ti.types.ndarray(), y_grad: ti.types.ndarray(), x_grad: ti.types.ndarray()):
        for i in x:
            x_grad[i] = 2 * x[i] * self.w[i] * self.scale * y_grad[i]

    @ti.kernel
    def swap(self, x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] * self.w[i]
            self.w[i] = x[i]


# By keyword, torch dispatches the call.
CALLS = pytest.mark.parametrize("call", [lambda op, x: op(x), lambda op, x: op(x=x)])


def operator(kernel: Any, **more: Any) -> Any:
    return ti.torch_op(kernel, outputs={"y": "x"}, **more)


def run(call: Callable[..., Any], op: Any) -> tuple[Any, Any]:
    x = X.clone().requires_grad_()
    return x, call(op, x)


def near(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a.detach() if hasattr(a, "detach") else a.to_numpy(), b, rtol=1e-6)


@CALLS
def test_gradients_use_members_of_the_call(call: Callable[..., Any]) -> None:
    layer = Layer()
    op = operator(layer.square)
    for w, scale, slopes in ((None, 2.0, [4, 16, 36]), (array([5, 5, 5]), 3.0, [30, 60, 90])):
        layer.w, layer.scale = w or layer.w, scale
        x, y = run(call, op)
        layer.w.fill(100)
        layer.scale = 7.0
        y.sum().backward()
        near(x.grad, slopes)
    assert layer.total.to_numpy().tolist() == [2, 4, 6]
    x, y = run(call, operator(layer.cube))  # a number, and no array
    layer.scale = 50.0
    y.sum().backward()
    near(x.grad, 21 * X**2)


def test_several_calls_in_one_graph() -> None:
    layer, x = Layer(), X.clone().requires_grad_()
    op = operator(layer.square)
    first = op(x)
    layer.scale = 3.0
    second = op(first)
    layer.scale = 5.0
    second.sum().backward()
    w = torch.tensor([1.0, 2.0, 3.0])
    near(x.grad, (2 * w * X**2) * 6 * w * (4 * w * X))


@CALLS
def test_another_array_since_the_call_raises(call: Callable[..., Any]) -> None:
    layer = Layer()
    _, y = run(call, operator(layer.square))
    layer.w = array([1, 1, 1])
    with pytest.raises(ti.TaichiRuntimeError, match="changed since the forward pass"):
        y.sum().backward()
    _, y = run(call, operator(layer.square, gradient=layer.slope))
    layer.w = array([1, 1, 1])
    with pytest.raises(ti.TaichiRuntimeError, match=r"reads the field `self\.w`"):
        y.sum().backward()


@CALLS
def test_own_gradients_read_the_contents_of_the_call(call: Callable[..., Any]) -> None:
    layer = Layer()
    x, y = run(call, operator(layer.square, gradient=layer.slope))
    layer.w.fill(100)
    y.sum().backward()
    near(x.grad, [4, 16, 36])


@CALLS
def test_members_get_gradients(call: Callable[..., Any]) -> None:
    layer = Layer(needs_grad=True)
    x, y = run(call, operator(layer.square))
    y.sum().backward()
    near(x.grad, [4, 16, 36])
    near(layer.w.grad, [2, 8, 18])


@CALLS
def test_gradients_use_members_that_the_call_overwrites(call: Callable[..., Any]) -> None:
    layer = Layer()
    op = operator(layer.swap)
    for old in ([1, 2, 3], X):
        x, y = run(call, op)
        layer.w.fill(100)
        y.sum().backward()
        near(x.grad, old)
        layer.w.from_numpy(X.numpy())


def test_views_as_members() -> None:
    @dataclasses.dataclass
    class Held:
        a: Any
        scale: float = 2.0

    base = array(np.arange(10))
    held = Held(base[2:8:2])

    @ti.kernel
    def square(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * held.a[i] * held.scale

    x, y = run(lambda op, x: op(x), operator(square))
    base.fill(0)
    y.sum().backward()
    near(x.grad, [8, 32, 72])


def test_compiled_by_torch() -> None:
    layer = Layer()
    square, cube = operator(layer.square), operator(layer.cube)
    both = torch.compile(lambda x: square(x) + cube(x), backend="aot_eager")
    x = X.clone().requires_grad_()
    y = both(x)
    layer.w.fill(9)
    layer.scale = 8.0
    y.sum().backward()
    near(x.grad, [10, 40, 90])
