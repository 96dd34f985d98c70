"""Tensors that kernels write: torch sees it as an operation in place, of unknown derivative."""

from collections.abc import Callable
from typing import Any

import pytest

import vkchi as ti

torch = pytest.importorskip("torch")

CHANGED = "modified by an inplace operation"
VIEW = r"argument `{}`: the kernel writes to it, and torch says: a view of a leaf Variable that"


@ti.kernel
def square(x: ti.types.ndarray()):
    for i in x:
        x[i] = x[i] ** 2


@ti.kernel
def add(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] += x[i]


def leaf(n: int = 3) -> Any:
    return torch.ones(n, requires_grad=True)


def test_kernel_write_to_saved_tensor_raises() -> None:
    a = leaf()
    b = a * 2
    c = b * b
    square(b)
    with pytest.raises(RuntimeError, match=CHANGED):
        c.sum().backward()


@pytest.mark.parametrize(
    "written",
    [lambda b: b[1:], lambda b: b.detach(), lambda b: b.detach()[1:], lambda b: b.view(1, 3)[0]],
)
def test_views_share_versions(written: Callable[[Any], Any]) -> None:
    b = leaf() * 2
    c = b * b
    square(written(b))
    with pytest.raises(RuntimeError, match=CHANGED):
        c.sum().backward()


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_writes_under_no_grad(context: Callable[[], Any]) -> None:
    a = leaf()
    b = a * 2
    c, before = b * b, a._version
    with context():
        square(b)
        square(a)
    assert a._version == before + 1
    with pytest.raises(RuntimeError, match=CHANGED):
        c.sum().backward()


def test_constants_that_torch_saved() -> None:
    x = torch.ones(3)
    y = leaf() * x
    square(x)
    with pytest.raises(RuntimeError, match=CHANGED):
        y.sum().backward()


def test_write_to_unsaved_tensor_is_right() -> None:
    a = leaf()
    b = a * 2
    c = b + 1
    square(b)
    c.sum().backward()
    assert a.grad.tolist() == [2, 2, 2]


def test_gradients_flow_through_memory_a_kernel_wrote() -> None:
    b = leaf() * 2
    square(b)
    says = r"(?s)torch needs the derivative of what square\(\) wrote into a tensor.*torch.no_grad"
    with pytest.raises(ti.ad.GradientError, match=says) as e:
        (b * 3).sum().backward()
    assert isinstance(e.value, RuntimeError)
    assert "test_torch_writes.py" in str(e.value)


def test_torchs_backward_and_then_grad() -> None:
    """A leaf that a kernel writes hands its slope on by hand: the kernel is called where torch
    records nothing."""

    @ti.kernel
    def double(a: ti.types.ndarray(), b: ti.types.ndarray()):
        for i in a:
            b[i] = 2 * a[i]

    a, b = torch.tensor([1.0, 2.0, 3.0], requires_grad=True), torch.zeros(3, requires_grad=True)
    double(a, b)
    with pytest.raises(ti.ad.GradientError, match=r"or grad\(\) is called after backward\(\)"):
        (b**2).sum().backward()
    a.grad, b = None, torch.zeros(3, requires_grad=True)
    with torch.no_grad():
        double(a, b)
    (b**2).sum().backward()
    double.grad(a, b)
    assert a.grad.tolist() == [8, 16, 24]


def test_leaf_tensors() -> None:
    for a in (leaf(), torch.nn.Parameter(torch.ones(3))):
        c = a * a
        square(a)
        assert a.is_leaf and a._version == 1
        with pytest.raises(RuntimeError, match=CHANGED):
            c.sum().backward()
        with pytest.raises(ti.ad.GradientError, match=r"what square\(\) wrote into a tensor"):
            (a * 3).sum().backward()
        with pytest.raises(ti.ad.GradientError, match=r"what square\(\) wrote into a tensor"):
            torch.autograd.grad((a * 3).sum(), a)


def test_views_of_leaves() -> None:
    a = leaf()
    with pytest.raises(RuntimeError, match=VIEW.format("x")):
        square(a[1:])
    with pytest.raises(RuntimeError, match="a view"):
        square((leaf() * 2).view(3, 1).unbind(0)[0])
    assert a.tolist() == [1, 1, 1]
    with torch.no_grad():
        square(a)
    square(a.detach())
    (a * 3).sum().backward()
    assert a.grad.tolist() == [3, 3, 3]


def test_leaves_that_a_kernel_makes() -> None:
    """The written values depend on nothing that requires a gradient."""

    @ti.kernel
    def fill(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            x[i] = i + y[i]

    a = leaf()
    fill(a, torch.ones(3))
    (a * a).sum().backward()
    assert a.grad.tolist() == [2, 4, 6]


def test_gradients_of_leaves_by_hand() -> None:
    x, y = leaf(), torch.zeros(3, requires_grad=True)
    add(x, y)
    y.grad = torch.tensor([1.0, 2.0, 3.0])
    add.grad(x, y)
    assert x.grad.tolist() == [1, 2, 3]
    with pytest.raises(ti.ad.GradientError, match=r"what add\(\) wrote into a tensor"):
        y.sum().backward()


def test_a_view_among_others_leaves_those_alone() -> None:
    @ti.kernel
    def both(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            x[i] = y[i]
            y[i] = 2.0

    a = leaf()
    b = a * 2
    with pytest.raises(RuntimeError, match=VIEW.format("y")):
        both(b, leaf()[:])
    b.sum().backward()
    assert a.grad.tolist() == [2, 2, 2]


def test_tensors_that_are_only_read() -> None:
    x, y = leaf(), torch.zeros(3)
    add(x, y)
    assert (x._version, y._version) == (0, 1)


def test_numpy_views_beside_their_tensors() -> None:
    x = torch.ones(3)
    add(x, x.numpy())
    assert x._version == 1 and x.tolist() == [2, 2, 2]


def test_members_of_packs() -> None:
    pack = ti.types.argpack(x=ti.types.ndarray(ti.f32, 1), k=ti.i32)

    @ti.kernel
    def scale(p: pack):  # type: ignore[valid-type]
        for i in p.x:
            p.x[i] *= p.k

    b = leaf() * 2
    c = b * b
    scale(pack(x=b, k=3))
    with pytest.raises(RuntimeError, match=CHANGED):
        c.sum().backward()
    with pytest.raises(RuntimeError, match=VIEW.format("p.x")):
        scale(pack(x=leaf()[:], k=3))


def test_gradients_of_tensors() -> None:
    @ti.kernel
    def seed(x: ti.types.ndarray()):
        for i in x:
            x.grad[i] += x[i]

    x = leaf()
    x.grad = torch.zeros(3)
    seed(x)
    assert x.grad.tolist() == [1, 1, 1] and x.grad._version == 1
    (slopes,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    x.grad, product = slopes, slopes * slopes
    seed(x)
    with pytest.raises(RuntimeError, match=CHANGED):
        product.sum().backward()


def test_tapes_know_of_leaves() -> None:
    @ti.kernel
    def step(x: ti.types.ndarray(), loss: ti.types.ndarray()):
        for i in x:
            x[i] = x[i] ** 2
        for i in x:
            loss[0] += x[i]

    x, loss = 2 * torch.ones(3), torch.zeros(1, requires_grad=True)
    x.requires_grad_()
    with ti.ad.Tape(loss):
        step(x, loss)
    assert x.grad.tolist() == [4, 4, 4]
    b = leaf() * 2
    b.retain_grad()
    c = b * b
    with ti.ad.Tape(loss):
        step(b, loss)
    assert b.grad.tolist() == [4, 4, 4]
    with pytest.raises(RuntimeError, match=CHANGED):
        c.sum().backward()


def test_forward_mode_knows_no_leaves() -> None:
    x = ti.field(ti.f32, 3, needs_dual=True)

    @ti.kernel
    def store(b: ti.types.ndarray()):
        for i in x:
            b[i] = i

    b = leaf() * 2
    c = b * b
    with ti.ad.FwdMode(loss=x, param=x, seed=[1, 0, 0]):
        store(b)
        with pytest.raises(RuntimeError, match="leaf Variable"):
            store(leaf()[:])
    assert b.tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match=CHANGED):
        c.sum().backward()


def test_kernels_in_operations_of_torch() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            y = x.clone()
            square(y)
            return y

        @staticmethod
        def backward(ctx: Any, slope: Any) -> Any:
            (x,) = ctx.saved_tensors
            result = slope.clone()
            add(x * slope * 2 - slope, result)
            return result

    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    Square.apply(x * 2).sum().backward()
    assert x.grad.tolist() == [8, 16, 24]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own
def test_forward_mode_of_torch() -> None:
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        x = forward_ad.make_dual(torch.ones(3), torch.ones(3))
        y = torch.zeros(3)
        add(x, y)
        assert forward_ad.unpack_dual(y).tangent is None
        with pytest.raises(RuntimeError, match="argument `x`.*torch's forward mode"):
            square(x)
        square(y)


def test_operations_of_users_that_change_their_input() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x.clone())
            ctx.mark_dirty(x)
            square(x)
            return x

        @staticmethod
        def backward(ctx: Any, slope: Any) -> Any:
            return 2 * ctx.saved_tensors[0] * slope

    a = 3 * torch.ones(3)
    b = a.requires_grad_() * 2
    Square.apply(b)
    b.sum().backward()
    assert a.grad.tolist() == [24, 24, 24]


def test_torch_before_2_1(monkeypatch: pytest.MonkeyPatch) -> None:
    from vkchi.interop.torch_writes import version_raiser

    monkeypatch.delattr(torch.autograd.graph, "increment_version")
    version_raiser.cache_clear()
    try:
        b = leaf() * 2
        c = b * b
        square(b.detach())
        with pytest.raises(RuntimeError, match=CHANGED):
            c.sum().backward()
        with torch.no_grad():
            square(leaf())
    finally:
        version_raiser.cache_clear()


@ti.kernel
def add_one_to_all(a: ti.types.ndarray()):
    for i in a:
        a[i] += 1.0


@pytest.mark.parametrize("left", [0, 16])
@pytest.mark.parametrize("first", [0, 8])
def test_a_tensor_with_shrunken_storage_raises(left: int, first: int) -> None:
    whole = torch.zeros(64)
    tensor = whole[first:]
    for _ in range(2):
        add_one_to_all(tensor)
    if not whole.untyped_storage().resizable():  # it was copied, through a view of numpy's
        whole = torch.zeros(64)
        tensor = whole[first:]
    whole.untyped_storage().resize_(left)
    with pytest.raises(ti.TaichiRuntimeError, match=rf"256 bytes whose storage has {left}"):
        add_one_to_all(tensor)
    whole.untyped_storage().resize_(256)
    whole.zero_()
    add_one_to_all(tensor)
    assert whole.tolist() == [0.0] * first + [1.0] * (64 - first)
