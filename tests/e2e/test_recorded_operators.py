"""Torch operators of kernels whose gradients need values that only a recorded call saves: random
numbers, results of atomics, old contents of fields."""

import pytest

import vkchi as ti

torch = pytest.importorskip("torch", "2.5")
pytestmark = [pytest.mark.device, pytest.mark.filterwarnings("ignore")]
N = 20
A = ti.types.ndarray


@pytest.fixture
def drop():
    @ti.torch_op(outputs={"y": "x"})
    @ti.kernel
    def drop(x: A(), w: A(), y: A(), p: float):
        for i in x:
            if ti.random() > p:
                y[i] = x[i] * w[i] / (1 - p)

    return drop


def inputs():
    return [(torch.rand(N) + 0.5).requires_grad_() for _ in range(2)]


def check(y, x, w, by=1.0):
    """Compare the gradients of x and w with those of x * w where y is not 0."""
    kept = (y != 0) * 2.0 * by
    torch.testing.assert_close(x.grad, (kept * w).detach())
    torch.testing.assert_close(w.grad, (kept * x).detach())


def test_each_call_has_random_numbers_of_its_own(drop):
    x, w = inputs()
    made = [drop(x, w, 0.5) for _ in range(4)]
    drop(x.detach(), w.detach(), 0.5)
    sum(made).sum().backward()
    kept = sum((y != 0) * 2.0 for y in made)
    torch.testing.assert_close(x.grad, (kept * w).detach())
    assert len({tuple((y != 0).tolist()) for y in made}) > 1


@pytest.mark.parametrize("backend", [None, "eager", "aot_eager"])
def test_keywords_and_compiled_functions(drop, backend):
    x, w = inputs()

    def run(x, w):
        return 3 * drop(x=x * 1, w=w, p=0.5) if backend is None else 3 * drop(x * 1, w, 0.5)

    run = run if backend is None else torch.compile(run, backend=backend, fullgraph=True)
    y = run(x, w)
    run(x, w)
    y.sum().backward()
    check(y, x, w, 3)


def test_a_gradient_by_one_input_and_twice(drop):
    x, w = inputs()
    y = drop(x, w, 0.5)
    (once,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    (again,) = torch.autograd.grad((3 * y).sum(), x)
    torch.testing.assert_close(3 * once, again)
    torch.testing.assert_close(once, ((y != 0) * 2 * w).detach())


def test_vmap(drop):
    x, w = torch.rand(3, N, requires_grad=True), torch.rand(N, requires_grad=True)
    y = torch.vmap(lambda a: drop(a, w, 0.5), randomness="different")(x)
    y.sum().backward()
    kept = (y != 0) * 2.0
    torch.testing.assert_close(x.grad, (kept * w).detach())
    torch.testing.assert_close(w.grad, (kept * x).sum(0).detach())


def test_checkpoints(drop):
    """A reentrant checkpoint calls the operator again in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    x, w = inputs()
    y = checkpoint(lambda x, w: drop(x, w, 0.5), x, w, use_reentrant=False)
    y.sum().backward()
    check(y, x, w)
    y = checkpoint(lambda x, w: drop(x, w, 0.5), x, w, use_reentrant=True)
    with pytest.raises(ti.ad.GradientError, match="was called again in a backward pass"):
        y.sum().backward()


def test_indices_by_a_counter():
    count = ti.field(ti.i32, ())

    @ti.torch_op(outputs={"y": "x"})
    @ti.kernel
    def compact(x: A(), y: A()):
        count[None] = 0
        for i in x:
            if x[i] > 1:
                y[ti.atomic_add(count[None], 1)] = x[i] * x[i]

    x, _ = inputs()
    (compact(x) ** 2).sum().backward()
    torch.testing.assert_close(x.grad, torch.where(x > 1, 4 * x**3, 0 * x).detach())


def test_running_means_of_a_norm():
    """The kernel reads the running mean and overwrites it. Later calls do not change a gradient."""
    mean, running = ti.field(ti.f32, 3, needs_grad=True), ti.field(ti.f32, 3)

    @ti.torch_op(outputs={"y": "x"})
    @ti.kernel
    def norm(x: A(), w: A(), y: A()):
        for c in mean:
            mean[c] = 0
        for i, c in ti.ndrange(x.shape[0], 3):
            mean[c] += x[i, c] / x.shape[0]
        for i, c in ti.ndrange(x.shape[0], 3):
            y[i, c] = (x[i, c] - mean[c] + running[c]) * w[c]
        for c in running:
            running[c] = 0.9 * running[c] + 0.1 * ti.stop_grad(mean[c])

    x, w = (torch.rand(shape, requires_grad=True) for shape in ((8, 3), (3,)))
    for _ in range(3):
        x.grad = w.grad = None
        old = torch.tensor(running.to_numpy())
        y = norm(x, w)
        norm(torch.rand(8, 3), w.detach())
        (y * y).sum().backward()
        a, b = (t.detach().requires_grad_() for t in (x, w))
        want = (a - a.mean(0) + old) * b
        (want * want).sum().backward()
        torch.testing.assert_close(y, want)
        torch.testing.assert_close(x.grad, a.grad)
        torch.testing.assert_close(w.grad, b.grad)


def test_numbers_and_sizes_decide():
    """The first calls overwrite no elements that their gradients read."""
    mean = ti.field(ti.f32, N)
    mean.fill(1)

    @ti.torch_op(outputs={"y": "x"})
    @ti.kernel
    def norm(x: A(), training: int, y: A()):
        for i in x:
            y[i] = x[i] * x[i] * mean[i]
        for i in mean:
            if training > 0 and i > 4:
                mean[i] += 1

    for n, training in ((3, 0), (3, 1), (N, 0), (N, 1), (3, 0), (N, 1)):
        x = torch.rand(n, requires_grad=True)
        old = torch.tensor(mean.to_numpy())[:n]
        y = norm(x, training)
        norm(torch.rand(N), 1)
        y.sum().backward()
        torch.testing.assert_close(x.grad, (2 * x * old).detach())


def test_methods_and_vectors():
    @ti.data_oriented
    class Drop:
        def __init__(self, p):
            self.p, self.seen = p, ti.field(ti.i32, ())

        @ti.kernel
        def run(self, x: A(), by: ti.math.vec2, y: A(), kept: A()):
            for i in x:
                self.seen[None] += 1
                kept[i] = ti.select(ti.random() > self.p, 1.0, 0.0)
                y[i] = x[i] * x[i] * kept[i] * by.y

    one, (x, _) = Drop(0.5), inputs()
    y, kept = ti.torch_op(one.run, outputs={"y": "x", "kept": "x"})(x, [2.0, 3.0])
    y.sum().backward()
    torch.testing.assert_close(x.grad, (6 * kept * x).detach())
    assert one.seen[None] == N


def test_calls_without_gradients_and_written_inputs(drop):
    x, w = inputs()
    with torch.no_grad():
        assert not drop(x, w, 0.5).requires_grad

    @ti.torch_op(outputs={"y": "x"})
    @ti.kernel
    def clear(x: A(), y: A()):
        for i in x:
            y[i] = x[i] * x[i] * ti.random()
            x[i] = 0

    with pytest.raises(ti.TaichiRuntimeError, match="writes `x`, which is an input"):
        clear(x)
    with pytest.raises(ti.TaichiRuntimeError, match="take no empty arrays"):
        drop(torch.rand(0, requires_grad=True), torch.rand(0), 0.5)
