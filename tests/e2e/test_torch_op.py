"""Kernels as operators of PyTorch."""

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import DeclarationError

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


def test_opcheck_passes():
    needs_f64()
    x, w = inputs(torch.float64)
    assert torch.autograd.gradcheck(product, (x, w, 3.0))
    found = torch.library.opcheck(product, (x, w, 3.0))
    assert set(found.values()) == {"SUCCESS"}


def test_only_inputs_that_need_a_gradient_get_one():
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


def test_batched_calls():
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


@pytest.mark.parametrize("name", ["x", "y_grad", "y"])
def test_a_custom_gradient_that_writes_torch_memory_raises(name):
    def back(
        x: ti.types.ndarray(),
        y: ti.types.ndarray(),
        y_grad: ti.types.ndarray(),
        x_grad: ti.types.ndarray(),
    ):
        for i in x_grad:
            x_grad[i] = x[i] * y_grad[i] * y[i]
            if ti.static(name == "x"):
                x[i] = 0
            elif ti.static(name == "y"):
                y[i] = 0
            else:
                y_grad[i] = 0

    op = ti.torch_op(powers, outputs={"y": "x"}, gradient=ti.kernel(back))
    x, slope = torch.ones(3, requires_grad=True), torch.ones(3)
    y = op(x)
    with pytest.raises(ti.TaichiRuntimeTypeError, match=rf"gradient of powers\(\) writes `{name}`"):
        y.backward(slope)
    for tensor in (x, y, slope):
        assert tensor.tolist() == [1, 1, 1]


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


def test_unsupported_kernels_raise():
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
    refused("takes a ti.kernel or a Python function", 3, outputs={"y": "x"})
    refused("gradient= takes a ti.kernel", scaled_product, outputs={"y": "x"}, gradient=len)
    refused("outputs= is a dict", scaled_product, outputs=["y"])
    refused("or by a function, not by 3", scaled_product, outputs={"y": 3})
    refused("library::operator", scaled_product, outputs={"y": "x"}, name="mine")


@pytest.mark.parametrize("is_compiled", [False, True])
def test_forward_mode_raises(is_compiled):
    def act(x):
        return product(x, w, 2.0)

    act = torch.compile(act, backend="eager") if is_compiled else act
    w, x = torch.ones(5), torch.ones(5)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        with pytest.raises(RuntimeError, match="forward mode"):
            act(dual)
    with pytest.raises(RuntimeError, match="forward mode"):
        torch.func.jvp(act, (x,), (x,))
    torch.testing.assert_close(act(x), 2 * x)


def test_forward_mode_raises_under_other_transforms():
    jvp, w, x = torch.func.jvp, torch.ones(5), torch.ones(5)

    def act(x):
        return product(x, w, 2.0)

    def inner(b):  # of which only the outer derivative changes
        return jvp(lambda a: a * act(b), (x,), (x,))[1]

    for call in (
        lambda: jvp(inner, (x,), (x,)),
        lambda: jvp(torch.func.vmap(act), (x[None],), (x[None],)),
        lambda: torch.func.vmap(lambda a: jvp(act, (a,), (a,)))(x[None]),
        lambda: torch.compile(lambda a: jvp(act, (a,), (a,)), backend="eager")(x),
    ):
        with pytest.raises(RuntimeError, match="forward mode"):
            call()
    made = jvp(lambda a: a * act(w), (x,), (x,))[1]  # not through its changes
    torch.testing.assert_close(made, 2 * x)


def test_forward_mode_raises_by_every_name():
    w, x = torch.ones(5), torch.ones(5)
    for op in (product._opoverload, getattr(torch.ops.vkchi, product._name)):
        with pytest.raises(RuntimeError, match="forward mode"):
            torch.func.jvp(lambda x, op=op: op(x, w, 2.0), (x,), (x,))
        with pytest.raises(RuntimeError, match="forward mode"):
            torch.func.jacfwd(lambda x, op=op: op(x, w, 2.0))(x)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, x)
            with pytest.raises(RuntimeError, match="forward mode"):
                op(dual, w, 2.0)
            assert op(x, w, 2.0).tolist() == [2] * 5  # it has none
        made = torch.func.jvp(lambda x, op=op: x * op(w, w, 2.0), (x,), (x,))[1]
        assert made.tolist() == [2] * 5

        def inner(b, op=op):  # of which only the outer derivative changes
            return torch.func.jvp(lambda a: a * op(b, w, 2.0), (x,), (x,))[1]

        for act in (
            lambda: torch.func.jvp(inner, (x,), (x,)),
            lambda op=op: torch.func.vmap(
                lambda a: torch.func.jvp(lambda a: op(a, w, 2.0), (a,), (a,))
            )(x[None]),
            lambda op=op: torch.func.jvp(
                torch.func.vmap(lambda a: op(a, w, 2.0)), (x[None],), (x[None],)
            ),
        ):
            with pytest.raises(RuntimeError, match="forward mode"):
                act()


def test_gradients_by_transforms_raise():
    grad, w, x = torch.func.grad, torch.ones(5), torch.ones(5)
    for op in (product, product._opoverload):

        def act(a, op=op):
            return op(a, w, 2.0).sum()

        def inner(b, op=op):  # of which only the outer derivative changes
            return grad(lambda a: (a * op(b, w, 2.0)).sum())(x).sum()

        for call in (
            lambda: grad(act)(x),
            lambda: torch.func.vjp(act, x),
            lambda: torch.func.jacrev(act)(x),
            lambda: torch.func.vmap(grad(act))(x[None]),
            lambda: grad(inner)(x),
        ):
            with pytest.raises(RuntimeError, match="torch's transforms"):
                call()
        made = grad(lambda a: (a * op(w, w, 2.0)).sum())(x)  # not through its changes
        assert made.tolist() == [2] * 5


def test_forward_mode_raises_in_a_gradient():
    x, w = inputs()
    made = product(x, w, 2.0)
    with torch.autograd.forward_ad.dual_level():
        slope = torch.autograd.forward_ad.make_dual(torch.ones(5), torch.ones(5))
        with pytest.raises(RuntimeError, match="forward mode"):
            torch.autograd.grad(made, x, slope)


def test_an_input_that_is_written_raises() -> None:
    @ti.torch_op(outputs={"y": "x"})
    @ti.kernel
    def bump(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            x[i] += 1
            y[i] = x[i]

    x = torch.zeros(3)
    with pytest.raises(DeclarationError, match=r"^bump\(\) writes `x`, which is an input"):
        bump(x)
    assert not x.any()


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ((-1,), r"outputs= of `y`: -1 in the shape \(-1,\) is no size\nhelp: give a tuple"),
        ((2.0,), "2.0 in the shape"),
        ((True,), "True in the shape"),
        (3, "gave 3, no shape"),
        (None, "gave None, no shape"),
        ("ab", "gave 'ab', no shape"),
        (torch.ones(2), "no shape"),
        (((2,), "f32"), "'f32' is no dtype of torch's"),
        (((2,), ti.f32), "f32 is no dtype of torch's"),
        (((2,), torch.float32, 1), "is no size"),
        (((2,), torch.float8_e4m3fn), "argument `y`: kernels have no float8_e4m3fn"),
    ],
)
def test_invalid_output_shape_raises(said, match) -> None:
    op = ti.torch_op(powers, outputs={"y": lambda given: said})
    with pytest.raises(ti.TaichiRuntimeTypeError, match=match):
        op(torch.ones(2))


@pytest.mark.parametrize("shape", [torch.Size((2,)), [2], (np.int64(2),)])
def test_valid_output_shapes(shape) -> None:
    for said in (shape, (shape, torch.float32)):
        op = ti.torch_op(powers, outputs={"y": lambda given, said=said: said})
        assert op(torch.ones(2)).tolist() == [1, 1]


def test_non_tensor_argument_raises() -> None:
    op, x = ti.torch_op(powers, outputs={"y": "x"}), ti.field(ti.f32, 2)
    for given in (None, 2.0, [1.0, 2.0], np.ones(2), x):
        for call in (lambda given=given: op(given), lambda given=given: op(x=given)):
            with pytest.raises(
                ti.TaichiRuntimeTypeError, match=r"`x`: a tensor is needed.*\nhelp:"
            ):
                call()
    for call in (lambda: op(), lambda: op(torch.ones(2), 1)):
        with pytest.raises(RuntimeError, match=r"powers.*Declaration"):  # torch's own
            call()


def test_a_gradient_of_a_scalar_argument_is_not_lost() -> None:
    x, a = torch.ones(5), torch.tensor(2.0, requires_grad=True)
    with pytest.raises(ti.TaichiRuntimeTypeError, match=r"gradient of `a`.*would be lost\nhelp:"):
        product(x, x, a)
    with torch.no_grad():
        assert product(x, x, a).tolist() == [2] * 5
    assert product(x, x, a.detach()).tolist() == [2] * 5


def test_an_empty_batch_raises() -> None:
    with pytest.raises(ti.VkchiError, match="a batch of nothing"):
        torch.func.vmap(lambda x: product(x, x, 2.0))(torch.zeros(0, 3))


def test_tensors_that_kernels_do_not_reach_are_copied_there_and_back(monkeypatch):
    """As on a CUDA device that no memory is shared with: here the CPU is taken for one."""
    asked = []

    def find_home(args, *, is_launch):
        asked.append(is_launch)
        return torch.device("cpu") if len(asked) % 2 else None

    monkeypatch.setattr("vkchi.operators.execution.find_home", find_home)
    x, w = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 1.0])
    y = product(x, w, 2.0)
    y.sum().backward()
    assert y.tolist() == [18, 4] and x.grad.tolist() == [18, 2]
    assert asked == [True, True, False, False]


def test_cpu_tensors_stay_on_cpu():
    from vkchi.operators.execution import find_home

    assert find_home((torch.zeros(2), 3.0, [1, 2]), is_launch=True) is None
    assert find_home((torch.zeros(2, device="meta"), 3.0), is_launch=True).type == "meta"


# --- outputs that a gradient needs ---------------------------------------------------------------


@ti.kernel
def largest(x: ti.types.ndarray(), m: ti.types.ndarray()):
    for i in x:
        ti.atomic_max(m[0], x[i])


@ti.kernel
def powers(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = x[i] * x[i]
    for i in x:
        y[i] = y[i] * y[i]


def test_a_gradient_reads_the_outputs_of_the_kernel():
    op = ti.torch_op(largest, outputs={"m": lambda given: (1,)})
    x = torch.tensor([1.0, 3.0, 2.0], requires_grad=True)
    for _ in range(2):
        (slope,) = torch.autograd.grad(op(x), x)
        assert slope.tolist() == [0, 1, 0]
    compiled = torch.compile(lambda x: op(x) * 2, fullgraph=True, backend="aot_eager")
    assert torch.autograd.grad(compiled(x), x)[0].tolist() == [0, 2, 0]
    assert set(torch.library.opcheck(op, (x,)).values()) == {"SUCCESS"}
    row = torch.autograd.functional.jacobian(op, x, vectorize=True)
    assert row.tolist() == [[0, 1, 0]]


def test_a_gradient_that_needs_overwritten_values_raises():
    op = ti.torch_op(powers, outputs={"y": "x"})
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = op(x)
    assert y.tolist() == [1, 16]
    try:
        y.sum().backward()
    except ti.VkchiError as error:
        assert "overwr" in str(error)
    else:
        assert x.grad.tolist() == [4, 32]


def test_a_gradient_of_ones_own_takes_outputs():
    @ti.kernel
    def back(y: ti.types.ndarray(), y_grad: ti.types.ndarray(), x_grad: ti.types.ndarray()):
        for i in y:
            x_grad[i] = y[i] * y_grad[i]

    @ti.torch_op(outputs={"y": "x"}, gradient=back)
    @ti.kernel
    def grow(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = ti.exp(x[i])

    x = torch.tensor([0.0, 1.0], requires_grad=True)
    y = grow(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(slope, y)
    twice = torch.compile(lambda x: grow(x) * 2, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(twice(x).sum(), x)[0], 2 * y.detach())


def test_outputs_that_a_gradient_does_not_need_may_be_changed():
    x, w = inputs()
    y = product(x, w, 2.0)
    y.mul_(3)
    y.sum().backward()
    torch.testing.assert_close(x.grad, 6 * (w * w).detach())
    m = ti.torch_op(largest, outputs={"m": lambda given: (1,)})(x)
    m.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        m.sum().backward()


# --- calls past torch's dispatcher ---------------------------------------------------------------


def test_torch_sees_every_call_where_it_looks():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x, w = (t.detach() for t in inputs())
    want = product(x, w, 2.0)
    with Watch():
        assert torch.equal(product(x, w, 2.0), want)
    assert any("scaled_product" in name for name in seen)
    with torch.profiler.profile() as profile:
        product(x, w, 2.0)
    assert any("scaled_product" in event.name for event in profile.events())
    assert product(x=x, w=w, a=2.0).tolist() == want.tolist()
    assert product(x, w, 2).tolist() == want.tolist()
    with pytest.raises(RuntimeError):
        product(x, w)
    with pytest.raises(RuntimeError):
        product(x, w, "2")


def test_later_registrations_count():
    op = ti.torch_op(scaled_product, outputs={"y": "x"})
    x, w = (t.detach() for t in inputs())
    op(x, w, 1.0)
    op.register_kernel("cpu")(lambda x, w, a: x + 1)
    assert torch.equal(op(x, w, 1.0), x + 1)


def test_no_grad_records_nothing():
    x, w = inputs()
    with torch.no_grad():
        assert not product(x, w, 1.0).requires_grad
    with torch.inference_mode():
        assert product(x, w, 1.0).is_inference()
    y = product(x, w, 1.0)
    assert y.requires_grad and "scaled_product" in type(y.grad_fn).__name__


# --- memory --------------------------------------------------------------------------------------


def in_place():
    from vkchi.interop.in_place import host_arrays
    from vkchi.runtime import current_runtime

    if not current_runtime().device.host_pointer_alignment:
        pytest.skip("this device does not use memory of the host in place")
    return host_arrays(current_runtime())


def test_tensors_are_not_copied(monkeypatch):
    from vkchi.fields.storage import Storage
    from vkchi.ndarray import Ndarray

    hosts = in_place()
    x, w = inputs()
    want = torch.autograd.grad(product(product(x, w, 2.0), w, 2.0).sum(), (x, w))

    def refuse(*args):
        raise AssertionError("a copy was made")

    monkeypatch.setattr(Ndarray, "keep", refuse)
    monkeypatch.setattr(Storage, "copy_kept", refuse)
    y = product(x, w, 2.0)
    found = hosts.find(y.detach(), 0)
    assert found.start == y.data_ptr() and found.buffer.device is hosts._runtime.device
    if "llvmpipe" in found.device.info.name:  # device addresses are the host's
        assert found.buffer.address == y.data_ptr()
    got = torch.autograd.grad(product(y, w, 2.0).sum(), (x, w))
    for a, b in zip(got, want):
        assert torch.equal(a, b)


def test_memory_is_not_used_again_while_anybody_has_it():
    in_place()
    x, w = inputs()
    first = product(x, w, 2.0).detach()
    kept, view, array = first.clone(), product(x, w, 2.0)[1:].detach(), product(x, w, 2.0).detach()
    array = array.numpy()
    saved = product(x.detach(), w.detach(), 2.0) * w  # torch alone has the product, to go back
    for _ in range(5):
        product(x + 1, w, 5.0)
    assert torch.equal(first, kept) and torch.equal(view, kept[1:])
    assert (array == kept.numpy()).all()
    (slope,) = torch.autograd.grad(saved.sum(), w)
    assert torch.equal(slope, kept)


def test_parts_of_results_are_arguments():
    x, w = (t.detach() for t in inputs())
    y = product(x, w, 2.0)
    want = y.clone()
    near = torch.testing.assert_close
    near(product(y[1:], w[1:], 2.0), 2 * want[1:] * w[1:] ** 2)
    near(product(y.reshape(5, 1)[:, 0], w, 2.0), 2 * want * w**2)

    @ti.kernel
    def bump(x: ti.types.ndarray()):
        for i in x:
            x[i] += 1

    bump(y)
    bump(y[1:3])
    bump(y.numpy()[:1])
    near(y, want + torch.tensor([2.0, 2, 2, 1, 1]))


def test_many_shapes_and_threads():
    import threading

    failed = []

    def work(k):
        for n in range(1, 60):
            x = torch.full((n,), float(k))
            if not torch.allclose(product(x, x, 1.0), x**3):
                failed.append((k, n))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_fields_that_other_threads_write_between_forward_and_backward():
    import threading

    scale, lock, failed = ti.field(ti.f32, 5), threading.Lock(), []

    @ti.kernel
    def scaled(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = scale[i] * x[i]

    @ti.kernel
    def slope(y_grad: ti.types.ndarray(), x_grad: ti.types.ndarray()):
        for i in x_grad:
            x_grad[i] = scale[i] * y_grad[i]

    generated = ti.torch_op(scaled, outputs={"y": "x"})
    own = ti.torch_op(scaled, outputs={"y": "x"}, gradient=slope)

    def work(k):
        for n in range(100):
            x, factor = torch.rand(5, requires_grad=True), float(100 * k + n)
            with lock:
                scale.fill(factor)
                y = (own if n % 2 else generated)(x)
            (found,) = torch.autograd.grad(y.sum(), x)
            if not torch.equal(found, torch.full((5,), factor)):
                failed.append((k, n))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_thousand_calls_leave_nothing():
    import gc

    from vkchi.runtime import current_runtime

    x, w = inputs()

    def call():
        torch.autograd.grad(product(x, w, 2.0).sum(), (x, w))

    def count():
        gc.collect()
        current_runtime().device.wait()
        current_runtime().device.sweep()
        return current_runtime().device.heap.used_bytes, len(in_place()._known)

    call()
    call()
    before = count()
    for _ in range(1000):
        call()
    used, known = count()
    assert used <= before[0] and known <= before[1] + 8


def test_released_tensors_are_freed_immediately():
    import gc
    import weakref

    scale = ti.field(ti.f32, 5)
    scale.fill(2.0)

    @ti.kernel
    def scaled(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = scale[i] * x[i]

    @ti.kernel
    def slope(x: ti.types.ndarray(), y_grad: ti.types.ndarray(), x_grad: ti.types.ndarray()):
        for i in x:
            x_grad[i] = scale[i] * y_grad[i]

    generated = ti.torch_op(scaled, outputs={"y": "x"})
    own = ti.torch_op(scaled, outputs={"y": "x"}, gradient=slope)
    x, w = inputs()
    gc.disable()  # nothing here may need it
    try:
        for op in (generated, own, lambda x: product(x, w, 2.0)):
            y = op(x)
            scale.fill(3.0)
            made = [y, *torch.autograd.grad(y.sum(), x)]
            storages = [weakref.ref(one.untyped_storage()) for one in made]
            del y, made
            assert not any(ref() for ref in storages)
    finally:
        gc.enable()


def test_tensors_outlive_the_runtime(own_runtime):
    ti.init()
    x, w = inputs()
    y = product(x, w, 2.0)
    want = (2 * x * w**2).detach()
    ti.reset()
    torch.testing.assert_close(y.detach(), want)
    ti.init()
    torch.testing.assert_close(product(y.detach(), w, 1.0).detach(), want * (w * w).detach())
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], 2 * (w * w).detach())


def test_tensors_are_complete_in_every_wait_mode(own_runtime):
    """Torch reads its arguments immediately."""
    ti.init(host_arrays="deferred")

    @ti.torch_op(outputs={"y": "x"})
    @ti.kernel
    def slowly(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            s = 0.0
            for k in range(2000):
                s += ti.sin(x[i] + k)
            y[i] = s

    x = torch.rand(10000, requires_grad=True)
    want = slowly(x).detach().clone()
    ti.sync()
    assert torch.equal(slowly(x).detach(), want)
    (slope,) = torch.autograd.grad(slowly(x).sum(), x)
    seen = slope.clone()
    ti.sync()
    assert torch.equal(slope, seen)


def test_vectors_are_elements_of_outputs():
    @ti.torch_op(outputs={"y": "x"})
    @ti.kernel
    def turn(
        x: ti.types.ndarray(dtype=ti.types.vector(2, ti.f32), ndim=1),
        y: ti.types.ndarray(dtype=ti.types.vector(2, ti.f32), ndim=1),
    ):
        for i in x:
            y[i] = 3 * x[i].yx

    x = torch.arange(6.0).reshape(3, 2).requires_grad_()
    y = turn(turn(x))
    assert torch.equal(y, 9 * x)
    (slope,) = torch.autograd.grad((y * x.detach()).sum(), x)
    assert torch.equal(slope, 9 * x.detach())
