"""Second derivatives of torch operators, against torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import vkchi as ti

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.device
A = ti.types.ndarray
SCALE = [2.0]


@ti.torch_op(outputs={"y": "x", "z": lambda given: (1,)})
@ti.kernel
def mix(x: A(), w: A(), scale: float, y: A(), z: A()):
    for i in x:
        y[i] = ti.sin(x[i]) * w[i] + scale * x[i] ** 3
        z[0] += x[i] * x[i] * w[i]


def mix_of_torch(x: Any, w: Any, scale: float) -> tuple[Any, Any]:
    return torch.sin(x) * w + scale * x**3, (x * x * w).sum()[None]


@ti.torch_op(outputs={"y": "x"})
@ti.kernel
def turn(x: A(ti.types.vector(2, ti.f32)), k: A(ti.i32), y: A(ti.types.vector(2, ti.f32))):
    for i in x:
        y[i] = ti.Vector([x[i][0] * x[i][1], x[i][1] ** k[i]])


def norm(x: Any, *, dtype: Any = None) -> Any:
    return torch.rand(x, dtype=dtype or torch.float32) + 0.5


def penalties(f: Callable[..., Any], *inputs: Any) -> list[Any]:
    """Gradients of a function of the first gradients."""
    inputs = tuple(x.clone().requires_grad_() for x in inputs)
    made = f(*inputs)
    total = sum((one**2).sum() for one in (made if isinstance(made, tuple) else (made,)))
    firsts = torch.autograd.grad(total, inputs, create_graph=True)
    sum((g**3).sum() for g in firsts).backward()
    return [x.grad for x in inputs]


def test_torch_checks_them(need: Any) -> None:
    need("f64")
    x, w = (norm(5, dtype=torch.float64).requires_grad_() for _ in range(2))
    assert torch.autograd.gradgradcheck(lambda x, w: mix(x, w, 0.5), (x, w))


@pytest.mark.parametrize("n", [1, 7, 64])
def test_functions_of_gradients(n: int) -> None:
    for scale in (0.5, 2.0):
        x, w = norm(n), norm(n)
        found = penalties(lambda x, w, s=scale: mix(x, w, s), x, w)
        wanted = penalties(lambda x, w, s=scale: mix_of_torch(x, w, s), x, w)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_one_output_and_one_input() -> None:
    x, w = norm(6).requires_grad_(), norm(6)
    y, _ = mix(x, w, 1.0)
    (slope,) = torch.autograd.grad(y[2], x, create_graph=True)
    (second,) = torch.autograd.grad(slope[2], x)
    want = torch.zeros(6)
    want[2] = -torch.sin(x[2]) * w[2] + 6 * x[2]
    torch.testing.assert_close(second, want.detach(), rtol=1e-3, atol=1e-3)


def test_vectors_and_integers() -> None:
    x, k = norm((5, 2)), torch.tensor([1, 2, 3, 4, 0], dtype=torch.int32)
    found = penalties(lambda x: turn(x, k), x)

    def wanted(x: Any) -> Any:
        return torch.stack([x[:, 0] * x[:, 1], x[:, 1] ** k], dim=1)

    torch.testing.assert_close(found, penalties(wanted, x), rtol=1e-4, atol=1e-4)


def test_strided_tensors_and_chains() -> None:
    torch.manual_seed(1)
    x, w = norm((8, 3)), norm((3, 8)).t()
    calls = [lambda x, w, f=f: f(f(x[::2, 1], w[::2, 2], 0.3)[0], x[1::2, 0], 0.2)
             for f in (mix, mix_of_torch)]  # fmt: skip
    found, wanted = (penalties(f, x, w) for f in calls)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


def test_graphs_that_are_kept() -> None:
    x, w = norm(4).requires_grad_(), norm(4)
    (slope,) = torch.autograd.grad(mix(x, w, 1.0)[1], x, create_graph=True)
    for _ in range(2):
        (second,) = torch.autograd.grad(slope.sum(), x, retain_graph=True)
        torch.testing.assert_close(second, 2 * w)


def test_a_field_with_a_gradient_is_left_as_it_is() -> None:
    other = ti.field(ti.f32, 3, needs_grad=True)
    other.grad.fill(7)
    penalties(lambda x, w: mix(x, w, 1.0), norm(3), norm(3))
    assert other.grad.to_numpy().tolist() == [7, 7, 7]


def test_third_derivatives_raise() -> None:
    x, w = norm(3).requires_grad_(), norm(3)
    (slope,) = torch.autograd.grad(mix(x, w, 1.0)[0].sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
    with pytest.raises(ti.ad.GradientError, match="twice, not three times"):
        second.sum().backward()


def second_of(op: Any) -> Any:
    x = norm(3).requires_grad_()
    (slope,) = torch.autograd.grad(op(x).sum(), x, create_graph=True)
    return lambda: torch.autograd.grad(slope.sum(), x)


def test_kernels_of_other_arrays_raise() -> None:
    factor, count = ti.field(ti.f32, ()), ti.field(ti.i32, ())
    factor[None] = 2

    @ti.kernel
    def reads(x: A(), y: A()):
        for i in x:
            y[i] = x[i] ** 3 * factor[None]

    @ti.kernel
    def counts(x: A(), y: A()):
        for i in x:
            y[i] = x[i] ** 3
        count[None] += 1

    @ti.kernel
    def draws(x: A(), y: A()):
        for i in x:
            y[i] = x[i] ** 3 * ti.random()

    for kernel in (reads, counts, draws):
        act = second_of(ti.torch_op(kernel, outputs={"y": "x"}))
        with pytest.raises(ti.ad.GradientError, match="can be differentiated once"):
            act()


def test_a_gradient_of_ones_own_raises() -> None:
    @ti.kernel
    def back(x: A(), y_grad: A(), x_grad: A()):
        for i in x:
            x_grad[i] = 3 * x[i] ** 2 * y_grad[i]

    @ti.kernel
    def cube(x: A(), y: A()):
        for i in x:
            y[i] = x[i] ** 3

    act = second_of(ti.torch_op(cube, outputs={"y": "x"}, gradient=back))
    with pytest.raises(ti.ad.GradientError, match="can be differentiated once"):
        act()


def test_values_that_were_changed_raise() -> None:
    class Power:
        scale = 2.0

    @ti.kernel
    def scaled(x: A(), y: A()):
        for i in x:
            y[i] = x[i] ** 3 * Power.scale

    act = second_of(ti.torch_op(scaled, outputs={"y": "x"}))
    Power.scale = 5.0
    with pytest.raises(ti.ad.GradientError, match="changed since the forward pass"):
        act()


def test_operations_with_first_derivatives_alone_raise() -> None:
    @ti.kernel
    def eigenvalues(x: A(), y: A()):
        for i in range(1):
            m = ti.Matrix([[x[0], x[1]], [x[1], x[2]]])
            w, _ = ti.sym_eig(m)
            y[0] = w[0]

    act = second_of(ti.torch_op(eigenvalues, outputs={"y": "x"}))
    with pytest.raises(ti.ad.GradientError, match="only first derivatives"):
        act()
