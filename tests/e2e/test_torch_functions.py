"""Python functions of several kernels as operators of PyTorch."""

import gc
import threading

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import DeclarationError

torch = pytest.importorskip("torch", "2.5")
pytestmark = [pytest.mark.device, pytest.mark.filterwarnings("ignore")]
N = 5
A = ti.types.ndarray


@ti.kernel
def copy(a: A(), b: A()):
    for i in a:
        b[i] = a[i]


@ti.kernel
def square(a: A(), b: A()):
    for i in a:
        b[i] = a[i] * a[i]


@ti.kernel
def scale(a: A(), w: A(), b: A()):
    for i in a:
        b[i] = a[i] * w[i]


def power(x, n: int, y):
    """y = x ** (2 ** n), with a loop and a branch of Python."""
    copy(x, y)
    for _ in range(n):
        made = ti.ndarray(ti.f32, x.shape, needs_grad=True)
        square(y, made)
        if n:
            copy(made, y)


@pytest.fixture
def op():
    return ti.torch_op(power, outputs={"y": "x"})


def inputs(count=1):
    found = [(torch.rand(N) + 0.5).requires_grad_() for _ in range(count)]
    return found[0] if count == 1 else found


def gradient(y, x, slope=None, **options):
    slope = torch.ones_like(y) if slope is None else slope
    return torch.autograd.grad(y, x, slope, **options)[0]


def is_near(found, want):
    torch.testing.assert_close(found, want.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_loops_of_python(op, n):
    x, slope = inputs(), torch.rand(N)
    y = op(x, n)
    is_near(y, x**2**n)
    is_near(gradient(y, x, slope), 2**n * x ** (2**n - 1) * slope)
    is_near(gradient(op(n=n, x=x), x), 2**n * x ** (2**n - 1))


def test_calls_before_the_first_gradient_do_not_change_it():
    """A field and an ndarray are temporaries, another one is a parameter."""
    tmp, w = ti.ndarray(ti.f32, N, needs_grad=True), ti.field(ti.f32, N, needs_grad=True)

    @ti.kernel
    def weigh(a: A(), b: A()):
        for i in a:
            b[i] = a[i] * a[i] * w[i]

    def run(x, y, n: int):
        copy(x, tmp)
        for _ in range(n):
            weigh(tmp, y)
            copy(y, tmp)

    def reference(x, v, n):
        for _ in range(n):
            x = x * x * v
        return x

    made = ti.torch_op(run, outputs={"y": "x"})
    xs, ys, want = inputs(3), [], []
    for n, x in zip((1, 2, 3), xs, strict=True):
        w.fill(n / 2)
        ys.append(made(x, n))
        want.append(gradient(reference(x, n / 2, n), x))
    w.fill(9)
    tmp.fill(9)
    for k in (1, 0, 2, 1):
        is_near(gradient(ys[k], xs[k], retain_graph=True), want[k])
    assert w[0] == 9 and tmp[0] == 9


def test_gradients_of_fields_accumulate():
    w, x = ti.ndarray(ti.f32, N, needs_grad=True), inputs()
    w.fill(2)
    w.grad.fill(10)

    def run(x, y):
        made = ti.ndarray(ti.f32, N, needs_grad=True)
        scale(x, w, made)
        square(made, y)

    y = ti.torch_op(run, outputs={"y": "x"})(x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    is_near(x.grad, 16 * x)
    np.testing.assert_allclose(w.grad.to_numpy(), 10 + (8 * x * x).detach().numpy(), rtol=1e-4)


def test_random_numbers_and_states_are_those_of_the_call():
    mean = ti.field(ti.f32, N, needs_grad=True)

    @ti.kernel
    def drop(a: A(), b: A()):
        for i in a:
            mean[i] = 0.9 * mean[i] + 0.1 * a[i]
            b[i] = ti.select(ti.random() < 0.5, 0.0, a[i] * mean[i])

    made = ti.torch_op(lambda x, y: drop(x, y), outputs={"y": "x"})
    mean.fill(1)
    xs, ys, states = inputs(4), [], []
    for x in xs:
        states.append(torch.from_numpy(mean.to_numpy()))
        ys.append(made(x))
    for x, y, state in zip(xs, ys, states, strict=True):
        want = torch.where(y != 0, 0.9 * state + 0.2 * x, torch.zeros(()))
        is_near(gradient(y, x, retain_graph=True), want)
        is_near(gradient(y, x), want)


def test_python_may_branch_on_values():
    def run(x, y):
        (square if x[0] > 1 else copy)(x, y)

    made = ti.torch_op(run, outputs={"y": "x"})
    for first in (0.5, 2.0):
        x = torch.tensor([first, 3.0], requires_grad=True)
        is_near(gradient(made(x), x), 2 * x if first > 1 else torch.ones(2))


def test_inputs_may_be_overwritten_in_the_function():
    @ti.kernel
    def square_in_place(a: A()):
        for i in a:
            a[i] = a[i] * a[i]

    def run(x, y):
        square_in_place(x)
        square_in_place(x)
        copy(x, y)

    x = inputs()
    before = x.detach().clone()
    y = ti.torch_op(run, outputs={"y": "x"})(x)
    assert torch.equal(x.detach(), before)
    is_near(gradient(y, x), 4 * x**3)


def test_kinds_of_arguments_and_outputs():
    V = ti.types.ndarray(dtype=ti.math.vec3, ndim=1)

    @ti.kernel
    def project(a: V, at: A(), s: ti.math.vec3, by: float, b: A(), n: A()):
        for i in a:
            b[at[i]] += by * a[i].dot(s) ** 2
            n[at[i]] += 1

    class Model:
        def run(self, a: V, at, s: ti.math.vec3, by: float, b, n):
            project(a, at, s, by, b, n)

    made = ti.torch_op(
        Model().run,
        outputs={
            "b": lambda given: (given["a"].shape[0],),
            "n": lambda given: ((given["a"].shape[0],), torch.int32),
        },
    )
    a, s = torch.rand(4, 3, requires_grad=True), torch.tensor([1.0, 2.0, 3.0])
    b, n = made(a, torch.tensor([0, 0, 3, 1], dtype=torch.int32), s.tolist(), 2.0)
    assert n.tolist() == [2, 1, 0, 1]
    is_near(gradient(b, a), 4 * (a @ s)[:, None] * s)


def test_only_some_inputs_and_outputs_have_gradients():
    def run(x, w, y, z):
        scale(x, w, y)
        square(y, z)

    made = ti.torch_op(run, outputs={"y": "x", "z": "x"})
    x, w = inputs(2)
    y, z = made(x.detach(), w)
    is_near(gradient(z, w), 2 * x * x * w)
    y, z = made(x, w)
    is_near(gradient(y, x), w)
    y, z = made(x, x)
    is_near(gradient(z, x), 4 * x**3)
    is_near(made(x.detach(), x.detach())[1], x**4)


def test_outputs_that_no_kernel_writes():
    x = inputs()
    assert not gradient(ti.torch_op(lambda x, y: None, outputs={"y": "x"})(x), x).any()
    by_copy = ti.torch_op(lambda x, y: y.copy_from(x), outputs={"y": "x"})
    is_near(gradient(by_copy(x), x), torch.ones(N))

    def by_elements(x, y):
        for i in range(N):
            y[i] = 2 * x[i]

    def by_numpy(x, y):
        y.from_numpy(2 * x.to_numpy())

    for run, match in ((by_elements, "by Python alone"), (by_numpy, "last written by Python")):
        made = ti.torch_op(run, outputs={"y": "x"})
        with pytest.raises(ti.ad.GradientError, match=match):
            made(x)
        with torch.no_grad():
            is_near(made(x), 2 * x)


def test_torch_compile():
    made = ti.torch_op(power, outputs={"y": "x"})

    @torch.compile(fullgraph=True, backend="aot_eager")
    def run(x, z):
        return made(x, 1) * made(n=2, x=2 * z), made(made(x, 1), 1)

    def reference(x, z):
        return x**2 * (2 * z) ** 4, x**4

    x, z = inputs(2)
    with torch.no_grad():
        run(x, z)
    a, b = run(x, z)
    run(*inputs(2))
    is_near(gradient(a + b, x, retain_graph=True), gradient(sum(reference(x, z)), x))
    is_near(gradient(a + b, z), gradient(reference(x, z)[0], z))


def test_vmap_checkpoint_and_jacobians(op):
    x = torch.rand(3, N, requires_grad=True)
    y = torch.func.vmap(op, in_dims=(0, None))(x, 1)
    is_near(gradient(y, x), 2 * x)
    row = inputs()
    found = torch.autograd.functional.jacobian(lambda r: op(r, 1), row, vectorize=True)
    is_near(found, torch.diag(2 * row))
    for reentrant in (False, True):
        row.grad = None
        y = torch.utils.checkpoint.checkpoint(
            lambda t: op(2 * t, 1) * op(t, 2), row, use_reentrant=reentrant
        )
        y.sum().backward()
        is_near(row.grad, 24 * row**5)


def test_autocast(op):
    op.register_autocast("cpu", torch.float32)
    w, x = torch.ones(N, N, requires_grad=True), torch.rand(2, N)
    with torch.autocast("cpu"):
        y = op((x @ w)[0], 1)
    assert y.dtype == torch.float32
    found = gradient(y, w)
    torch.testing.assert_close(
        found, (2 * x[0].sum() * x[0][:, None]).expand(N, N), rtol=3e-2, atol=3e-2
    )


def test_bfloat16(need):
    need("bf16")
    made = ti.torch_op(lambda x, y: square(x, y), outputs={"y": "x"})
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16, requires_grad=True)
    y = made(x)
    assert y.dtype == torch.bfloat16 and y.tolist() == [1, 4, 9]
    assert gradient(y, x).tolist() == [2, 4, 6]


def test_opcheck(op):
    found = torch.library.opcheck(op, (inputs(), 2))
    assert set(found.values()) == {"SUCCESS"}


def test_threads_take_turns(op):
    wrong = []

    def work():
        for _ in range(10):
            x = inputs()
            found = gradient(op(x, 2), x)
            if not torch.allclose(found, 4 * x.detach() ** 3, rtol=1e-4):
                wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


def test_recordings_are_freed(op):
    from vkchi.operators.function_operator import RecordedCall

    def count():
        gc.collect()
        return sum(isinstance(one, RecordedCall) for one in gc.get_objects())

    x, before = inputs(), count()
    y = op(x, 1)
    assert count() == before + 1
    y.sum().backward()
    assert count() == before
    y = op(x, 1)
    del y
    assert count() == before


def test_after_an_exception(op):
    def run(x, y, n: int):
        square(x, y)
        if n:
            raise ValueError("mine")

    made, x = ti.torch_op(run, outputs={"y": "x"}), inputs()
    with pytest.raises(ValueError, match="mine"):
        made(x, 1)
    is_near(gradient(made(x, 0), x), 2 * x)


def test_second_derivatives_raise(op):
    x = inputs()
    first = gradient(op(x, 1), x, create_graph=True)
    with pytest.raises(ti.ad.GradientError, match="can be differentiated once"):
        first.sum().backward()


def test_recordings_around_an_operator_raise(op):
    loss = ti.field(ti.f32, (), needs_grad=True)
    y = op(inputs(), 1)
    with ti.ad.Tape(loss):
        with pytest.raises(ti.TaichiRuntimeError, match="cannot be used inside ti.ad.Tape"):
            op(inputs().detach(), 1)
        with pytest.raises(ti.TaichiRuntimeError, match="cannot be used inside ti.ad.Tape"):
            y.sum().backward()
    with ti.record(), pytest.raises(ti.TaichiRuntimeError, match="inside ti.record"):
        op(inputs().detach(), 1)


def test_unsupported_functions_raise():
    def refused(match, run, outputs=None):
        with pytest.raises(DeclarationError, match=match):
            ti.torch_op(run, outputs=outputs or {"y": "x"})

    refused("has a default", lambda x, y, n=3: None)
    refused("takes `\\*y`", lambda x, *y: None)
    refused("has no array `z`", lambda x, y: None, {"z": "x"})
    refused("a Python function, not", int)

    def run(x, d: dict, y):
        pass

    refused("annotation <class 'dict'>", run)
    with pytest.raises(DeclarationError, match="gradient= is for kernels"):
        ti.torch_op(power, outputs={"y": "x"}, gradient=square)
    with pytest.raises(DeclarationError, match="returned 3"):
        ti.torch_op(lambda x, y: 3, outputs={"y": "x"})(inputs())
    with pytest.raises(ti.TaichiRuntimeTypeError, match="no empty arrays"):
        ti.torch_op(lambda x, y: None, outputs={"y": "x"})(torch.zeros(0))


def test_a_number_needs_an_annotation():
    made = ti.torch_op(lambda x, n, y: None, outputs={"y": "x"})
    with pytest.raises(ti.TaichiRuntimeTypeError, match="a tensor is needed, not int 3"):
        made(inputs(), 3)


def test_a_gradient_after_reset_raises(op):
    y = op(inputs(), 1)
    ti.init()
    with pytest.raises(ti.TaichiRuntimeError, match="is gone"):
        y.sum().backward()
