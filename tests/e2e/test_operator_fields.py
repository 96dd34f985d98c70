"""Fields that the gradient of an operator of torch reads: as its forward pass left them."""

import gc

import numpy as np
import pytest

import vkchi as ti
from vkchi.device import open_device
from vkchi.runtime import Runtime, current_runtime, install_runtime
from vkchi.target.options import Options

torch = pytest.importorskip("torch", "2.5")
pytestmark = [pytest.mark.device, pytest.mark.filterwarnings("ignore")]


def scaled_by(w):
    """y = x * w, for a field w."""

    @ti.torch_op(outputs={"y": "x"})
    @ti.kernel
    def scale(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] * w[i]

    return scale


@ti.kernel
def add_one(x: ti.template()):
    for i in x:
        x[i] += 1.0


@ti.kernel
def fill_array(x: ti.types.ndarray(), v: ti.f32):
    for i in x:
        x[i] = v


def placed_beside_others(n):
    w, other = ti.field(ti.f32), ti.field(ti.f32)
    ti.root.dense(ti.i, n).place(other, w)
    return w


def with_gradient(n):
    return ti.field(ti.f32, n, needs_grad=True)


def in_blocks(n):
    w = ti.field(ti.f32)
    ti.root.dense(ti.i, n // 2).dense(ti.i, 2).place(w)
    return w


MAKERS = {
    "field": lambda n: ti.field(ti.f32, n),
    "beside others": placed_beside_others,
    "with gradient": with_gradient,
    "in blocks": in_blocks,
}


def by_graph(w):
    with ti.record() as g:
        add_one(w)
    g.run()


def by_copy(w):
    other = ti.field(ti.f32, w.shape)
    other.fill(7)
    w.copy_from(other)


WRITERS = {
    "kernel": add_one,
    "element": lambda w: w.__setitem__(1, 9.0),
    "fill": lambda w: w.fill(5),
    "from_numpy": lambda w: w.from_numpy(np.full(w.shape, 4, np.float32)),
    "from_torch": lambda w: w.from_torch(torch.full(w.shape, 4.0)),
    "copy_from": by_copy,
    "graph": by_graph,
    "view": lambda w: np.from_dlpack(w).fill(3),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("maker", MAKERS)
def test_the_gradient_finds_fields_as_the_forward_pass_left_them(maker, writer):
    w = MAKERS[maker](4)
    w.fill(2)
    x = torch.ones(4, requires_grad=True)
    y = scaled_by(w)(x)
    if writer == "view" and (maker == "in blocks" or w.host is None):
        pytest.skip("there is no view of it")
    WRITERS[writer](w)
    now = w.to_numpy()
    assert (now != 2).any()
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2, 2]
    np.testing.assert_array_equal(w.to_numpy(), now)


def test_each_call_keeps_its_own_fields():
    w, x = ti.field(ti.f32, 3), torch.ones(3, requires_grad=True)
    op, made = scaled_by(w), []
    for k in range(4):
        w.fill(k)
        made.append(op(x))
    for k in (2, 0, 3, 1):
        (slope,) = torch.autograd.grad(made[k].sum(), x, retain_graph=True)
        assert slope.tolist() == [k, k, k]
    assert torch.autograd.grad(made[2].sum(), x)[0].tolist() == [2, 2, 2]


def has_guard(x):
    """True if contents of x are kept for a gradient, once dead objects are swept."""
    gc.collect()
    device = current_runtime().device
    device.sweep()
    return x.buffer.key in device.guards


def test_unwritten_fields_are_not_copied(monkeypatch):
    from vkchi.fields.storage import Storage

    w, other = ti.field(ti.f32, 3), ti.field(ti.f32, 3)
    w.fill(2)
    x, op = torch.ones(3, requires_grad=True), scaled_by(w)
    op(x).sum().backward()
    copies = []
    monkeypatch.setattr(Storage, "copied", lambda self: copies.append(self))
    y = op(x)
    add_one(other)
    other[0] = 5
    assert w[1] == 2 and type(w[1]) is float
    y.sum().backward()
    assert not copies and x.grad.tolist() == [4, 4, 4]


def test_saved_fields_are_released():
    w = ti.field(ti.f32, 3)
    x, op = torch.ones(3, requires_grad=True), scaled_by(w)
    y = op(x)
    assert has_guard(w)
    y.sum().backward()  # y is still there, and torch goes back no second time
    assert not has_guard(w)
    with torch.no_grad():
        op(x)
    op(x.detach())
    assert not has_guard(w)
    z = op(x)
    w.fill(1)
    assert not has_guard(w)
    del z
    for _ in range(300):
        y = op(x)
    del y
    assert not has_guard(w)


def test_an_export_after_the_forward_pass():
    w = ti.field(ti.f32, 3)
    w.fill(2)
    x = torch.ones(3, requires_grad=True)
    y = scaled_by(w)(x)
    if w.host is None:
        pytest.skip("the host does not reach this device's memory")
    seen = torch.from_dlpack(w)
    z = scaled_by(w)(x)
    seen.fill_(9)
    (y + z).sum().backward()
    assert x.grad.tolist() == [4, 4, 4]


def test_vectors_components_and_indices():
    v, place = ti.Vector.field(2, ti.f32, 3), ti.field(ti.i32, ())
    v.fill(3)

    @ti.torch_op(outputs={"y": lambda given: (1,)})
    @ti.kernel
    def pick(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in range(1):
            y[i] = x[place[None]] * v[place[None]][1]

    x = torch.ones(3, requires_grad=True)
    y = [pick(x)]
    v[0][1] = 10
    y.append(pick(x))
    v.get_scalar_field(1).fill(20)
    y.append(pick(x))
    place[None] = 2
    for made, want in zip(y, (3, 10, 20)):
        assert made.item() == want
        assert torch.autograd.grad(made.sum(), x)[0].tolist() == [want, 0, 0]


def test_gradients_of_fields_beside_those_of_tensors():
    w = ti.field(ti.f32, 2, needs_grad=True)
    w.fill(3)
    x, op = torch.full((2,), 5.0, requires_grad=True), scaled_by(w)
    first = op(x)
    w.fill(4)
    second = op(x)
    (first.sum() + second.sum()).backward()
    assert x.grad.tolist() == [7, 7] and w.grad.to_numpy().tolist() == [10, 10]


def test_fields_unread_by_gradient_may_change():
    b = ti.field(ti.f32, 3)

    @ti.torch_op(outputs={"y": "x"})
    @ti.kernel
    def shift(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = 2 * x[i] + b[i]

    x = torch.ones(3, requires_grad=True)
    y = shift(x)
    b.fill(8)
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


# --- calls from torch ----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_functions_too(backend):
    w = ti.field(ti.f32, 3)
    w.fill(2)
    op = scaled_by(w)
    act = torch.compile(lambda x: op(x) * 3, fullgraph=True, backend=backend)
    x = torch.ones(3, requires_grad=True)
    made = []
    for k in range(3):
        w.fill(k)
        made.append(act(x))
    w.fill(100)
    for k in (1, 0, 2):
        assert torch.autograd.grad(made[k].sum(), x)[0].tolist() == [3 * k] * 3


def test_saved_fields_under_the_profiler():
    w = ti.field(ti.f32, 3)
    w.fill(2)
    op, x = scaled_by(w), torch.ones(3, requires_grad=True)
    with torch.profiler.profile():
        y = op(x)
    z = op(x=x)
    w.fill(9)
    (y + z).sum().backward()
    assert x.grad.tolist() == [4, 4, 4]
    w.fill(2)
    y = op(x)
    w.fill(9)
    with torch.profiler.profile():
        assert torch.autograd.grad(y.sum(), x)[0].tolist() == [2, 2, 2]


def test_batches_of_calls_and_of_slopes():
    w = ti.field(ti.f32, 2)
    w.fill(2)
    op, x = scaled_by(w), torch.ones(3, 2, requires_grad=True)
    y = torch.func.vmap(op)(x)
    row = torch.ones(2, requires_grad=True)
    z = op(row)
    w.fill(9)
    y.sum().backward()
    assert x.grad.tolist() == [[2, 2]] * 3
    (slopes,) = torch.autograd.grad(z, row, torch.eye(2), is_grads_batched=True)
    assert slopes.tolist() == [[2, 0], [0, 2]]


def test_a_copy_that_torch_makes_of_results_is_not_taken_for_a_result():
    """Compiled, a gradient finds its call by the result that torch saved: hooks give another."""
    w = ti.field(ti.f32, 3)
    w.fill(2)
    op, x = scaled_by(w), torch.ones(3, requires_grad=True)
    act = torch.compile(lambda x: op(x) * 3, fullgraph=True, backend="aot_eager")
    act(x)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = act(x)
    w.fill(9)
    try:
        y.sum().backward()
    except RuntimeError as error:
        assert "what that held in the forward pass is not known" in str(error)
    else:
        assert x.grad.tolist() == [6, 6, 6]


# --- gradients of one's own ----------------------------------------------------------------------


def with_own_gradient(cache, w, scratch):
    """y = (w x)^2, whose forward pass leaves w x in a field for the gradient."""

    @ti.kernel
    def back(y_grad: ti.types.ndarray(), x_grad: ti.types.ndarray()):
        for i in x_grad:
            scratch[i] = 2 * cache[i]
        for i in x_grad:
            x_grad[i] = scratch[i] * w[i] * y_grad[i]

    @ti.torch_op(outputs={"y": "x"}, gradient=back)
    @ti.kernel
    def square(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            cache[i] = w[i] * x[i]
            y[i] = cache[i] ** 2

    return square


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_gradient_of_ones_own_finds_fields_as_they_were(is_compiled):
    cache, w, scratch = (ti.field(ti.f32, 2) for _ in range(3))
    op = with_own_gradient(cache, w, scratch)
    act = torch.compile(op, fullgraph=True, backend="aot_eager") if is_compiled else op
    made = []
    for k in (1.0, 2.0, 3.0):
        w.fill(k)
        x = torch.full((2,), k + 1, requires_grad=True)
        made.append((x, act(x), 2 * k * k * (k + 1)))
    w.fill(50)
    scratch.fill(50)
    for x, y, want in made:
        y.sum().backward()
        assert x.grad.tolist() == [want, want]
    assert w.to_numpy().tolist() == [50, 50] and cache.to_numpy().tolist() == [12, 12]


def test_a_custom_gradient_that_reads_and_writes_a_changed_field_raises():
    state = ti.field(ti.f32, 2)

    @ti.kernel
    def back(y_grad: ti.types.ndarray(), x_grad: ti.types.ndarray()):
        for i in x_grad:
            state[i] += 1
            x_grad[i] = state[i] * y_grad[i]

    @ti.torch_op(outputs={"y": "x"}, gradient=back)
    @ti.kernel
    def same(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i]

    x = torch.ones(2, requires_grad=True)
    y = same(x)
    y.sum().backward()
    assert x.grad.tolist() == [1, 1]
    y = same(x)
    state.fill(7)
    with pytest.raises(RuntimeError, match="reads and writes the field `state`, which was changed"):
        y.sum().backward()
    assert state.to_numpy().tolist() == [7, 7]


# --- ends ----------------------------------------------------------------------------------------


def test_fields_that_are_gone(own_runtime):
    ti.init()
    x = torch.ones(2, requires_grad=True)
    builder, w = ti.FieldsBuilder(), ti.field(ti.f32)
    builder.dense(ti.i, 2).place(w)
    tree = builder.finalize()
    y = scaled_by(w)(x)
    tree.destroy()
    with pytest.raises(RuntimeError, match="destroyed"):
        y.sum().backward()
    w = ti.field(ti.f32, 2)
    y = scaled_by(w)(x)
    ti.init()
    with pytest.raises(RuntimeError, match=r"freed|before ti.init|is on"):
        y.sum().backward()


def test_inside_a_tape():
    w, loss = ti.field(ti.f32, 2, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
    w.fill(2)
    x, op = torch.ones(2, requires_grad=True), scaled_by(w)

    @ti.kernel
    def total():
        for i in w:
            loss[None] += w[i] ** 2

    y = op(x)
    with ti.ad.Tape(loss):
        total()
        w.fill(5)
    assert w.grad.to_numpy().tolist() == [4, 4]
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]


@pytest.mark.parametrize("writer", [name for name in WRITERS if name != "view"])
def test_on_memory_that_the_host_does_not_reach(writer, own_runtime):
    install_runtime(Runtime(open_device(staged=True), Options()))
    w = ti.field(ti.f32, 4)
    w.fill(2)
    x = torch.ones(4, requires_grad=True)
    y = scaled_by(w)(x)
    WRITERS[writer](w)
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2, 2]


def test_no_memory_for_saved_values(monkeypatch):
    """The overwriting call raises, and nothing is overwritten."""
    w = ti.field(ti.f32, 4)
    w.fill(2)
    x = torch.ones(4, requires_grad=True)
    y = scaled_by(w)(x)

    def refuse(self):
        raise ti.DeviceError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr("vkchi.fields.storage.Storage.copied", refuse)
        for writer in ("kernel", "element", "fill", "from_numpy"):
            with pytest.raises(ti.DeviceError, match="out of memory"):
                WRITERS[writer](w)
    assert w.to_numpy().tolist() == [2, 2, 2, 2]
    w.fill(3)
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2, 2]


def test_code_that_was_changed_since(own_runtime):
    @ti.data_oriented
    class Scale:
        @ti.func
        def f(self, v):
            return v * 2

        @ti.kernel
        def run(self, x: ti.types.ndarray(), y: ti.types.ndarray()):
            for i in x:
                y[i] = self.f(x[i])

    @ti.func
    def other(self, v):
        return v * 11

    op, x = ti.torch_op(Scale().run, outputs={"y": "x"}), torch.ones(2, requires_grad=True)
    y = op(x)
    Scale.f = other
    with pytest.raises(RuntimeError, match=r"compiled of was changed since the forward pass"):
        y.sum().backward()
    op(x).sum().backward()
    assert x.grad.tolist() == [11, 11]
