"""Kernels as operators of PyTorch."""

import pytest

import vkchi as ti

torch = pytest.importorskip("torch", "2.5")
pytestmark = [pytest.mark.device, pytest.mark.filterwarnings("ignore")]


@ti.kernel
def scaled_product(x: ti.types.ndarray(), w: ti.types.ndarray(), a: float, y: ti.types.ndarray()):
    for i in y:
        y[i] = a * x[i] * w[i] * w[i]


product = ti.torch_op(scaled_product, outputs={"y": "x"})


def inputs(dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.rand(5, dtype=dtype, requires_grad=True) for _ in range(2)]


def needs_f64():
    try:
        ti.ndarray(ti.f64, 1)
    except ti.DeviceError:
        pytest.skip("no f64 on this device")


def test_values_and_gradients_are_those_of_torch():
    x, w = inputs()
    slope = torch.rand(5)
    (product(x, w, 2.0) * slope).sum().backward()
    want = inputs()
    (2 * want[0] * want[1] ** 2 * slope).sum().backward()
    torch.testing.assert_close(product(x, w, 2.0), 2 * x * w**2)
    torch.testing.assert_close(x.grad, want[0].grad)
    torch.testing.assert_close(w.grad, want[1].grad)


def test_what_torch_asks_of_an_operator():
    needs_f64()
    x, w = inputs(torch.float64)
    assert torch.autograd.gradcheck(product, (x, w, 3.0))
    found = torch.library.opcheck(product, (x, w, 3.0))
    assert set(found.values()) == {"SUCCESS"}


def test_only_what_needs_a_gradient_gets_one():
    x, w = inputs()
    product(x.detach(), w, 1.0).sum().backward()
    assert x.grad is None and w.grad is not None


def test_tensors_in_steps_and_expanded_slopes():
    x = torch.arange(10.0)[::2].requires_grad_()
    w = torch.ones(3, 5).T[:, 1].requires_grad_()
    product(x, w, 1.0).sum().backward()  # the slope is one number, expanded
    torch.testing.assert_close(x.grad if x.is_leaf else w.grad, torch.ones(5))


def test_compiled_without_a_break():
    @torch.compile(fullgraph=True, backend="aot_eager")
    def f(x, w):
        return product(x * 2, w, 0.5).sum()

    x, w = inputs()
    f(x, w).backward()
    torch.testing.assert_close(x.grad, (w * w).detach())


def test_batches():
    x, w = torch.rand(3, 5), torch.rand(5)
    got = torch.func.vmap(product, in_dims=(0, None, None))(x, w, 2.0)
    torch.testing.assert_close(got, 2 * x * w**2)
    row = torch.rand(5, requires_grad=True)
    slopes = torch.autograd.functional.jacobian(lambda r: product(r, w, 2.0), row, vectorize=True)
    torch.testing.assert_close(slopes, torch.diag(2 * w**2))


def test_several_outputs_of_shapes_of_their_own():
    @ti.torch_op(
        outputs={
            "total": lambda given: (given["x"].shape[0],),
            "count": lambda given: ((1,), torch.int32),
        }
    )
    @ti.kernel
    def rows(x: ti.types.ndarray(ndim=2), total: ti.types.ndarray(), count: ti.types.ndarray()):
        for i, j in x:
            total[i] += x[i, j] ** 2
            ti.atomic_add(count[0], 1)

    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    total, count = rows(x)
    assert total.tolist() == [5, 50] and count.item() == 6
    total.sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())


def test_a_gradient_of_ones_own():
    @ti.kernel
    def back(x: ti.types.ndarray(), y_grad: ti.types.ndarray(), x_grad: ti.types.ndarray()):
        for i in x:
            x_grad[i] = 100 * y_grad[i]

    @ti.kernel
    def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = 2 * x[i]

    x = torch.ones(3, requires_grad=True)
    ti.torch_op(double, outputs={"y": "x"}, gradient=back)(x).sum().backward()
    assert x.grad.tolist() == [100, 100, 100]


def test_methods_vectors_and_integers():
    @ti.data_oriented
    class Shift:
        def __init__(self, by):
            self.by = by

        @ti.kernel
        def add(self, x: ti.types.ndarray(), v: ti.math.vec3, k: ti.i32, y: ti.types.ndarray()):
            for i in x:
                y[i] = x[i] * v[2] + k + ti.static(self.by)

    op = ti.torch_op(Shift(10).add, outputs={"y": "x"})
    x = torch.ones(2, requires_grad=True)
    y = op(x, [0.0, 0.0, 4.0], 1)
    assert y.tolist() == [15, 15]
    y.sum().backward()
    assert x.grad.tolist() == [4, 4]


def test_a_module_is_trained():
    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.full((5,), 0.1))

        def forward(self, x):
            return product(x, self.w, 1.0)

    torch.manual_seed(1)
    model, x = Scale(), torch.rand(5) + 0.5
    target = x * 0.49
    steps = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(120):
        steps.zero_grad()
        loss = ((model(x) - target) ** 2).sum()
        loss.backward()
        steps.step()
    assert loss.item() < 1e-3


def test_what_cannot_be_an_operator():
    @ti.kernel
    def with_template(x: ti.template(), y: ti.types.ndarray(), z: ti.types.ndarray()):
        for i in y:
            z[i] = y[i]

    def refused(match, *args, **kwargs):
        with pytest.raises(ti.TaichiRuntimeTypeError, match=match):
            ti.torch_op(*args, **kwargs)

    refused("no type for `x`", with_template, outputs={"z": "y"})
    refused("no type for `x`", with_template, outputs={"z": "x"})
    refused("no array `q`", scaled_product, outputs={"q": "x"})
    refused("no tensor", scaled_product, outputs={"y": "a"})
    refused("needs an output", scaled_product, outputs={})
    refused("nothing is called", scaled_product, outputs={"y": "x"}, gradient=with_template)
    refused("takes a ti.kernel", len, outputs={"y": "x"})


def test_differentiable_once():
    x, w = inputs()
    (slope,) = torch.autograd.grad(product(x, w, 1.0).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(slope.sum(), w)


def test_an_input_that_is_written_is_refused() -> None:
    @ti.torch_op(outputs={"y": "x"})
    @ti.kernel
    def bump(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            x[i] += 1
            y[i] = x[i]

    x = torch.zeros(3)
    with pytest.raises(ti.VkchiError, match=r"bump\(\) writes `x`, which is an input"):
        bump(x)
    assert not x.any()


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(ti.VkchiError, match="a batch of nothing"):
        torch.func.vmap(lambda x: product(x, x, 2.0))(torch.zeros(0, 3))


def test_tensors_that_kernels_do_not_reach_are_copied_there_and_back(monkeypatch):
    """As on a CUDA device that no memory is shared with: here the CPU is taken for one."""
    asked = []

    def find_home(args, *, is_launch):
        asked.append(is_launch)
        return torch.device("cpu") if len(asked) % 2 else None

    monkeypatch.setattr("vkchi.operators.torch_op.find_home", find_home)
    x, w = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 1.0])
    y = product(x, w, 2.0)
    y.sum().backward()
    assert y.tolist() == [18, 4] and x.grad.tolist() == [18, 2]
    assert asked == [True, True, False, False]


def test_what_is_on_the_cpu_stays_there():
    from vkchi.operators.torch_op import find_home

    assert find_home((torch.zeros(2), 3.0, [1, 2]), is_launch=True) is None
    assert find_home((torch.zeros(2, device="meta"), 3.0), is_launch=True).type == "meta"
