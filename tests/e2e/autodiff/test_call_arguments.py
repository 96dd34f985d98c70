"""Arguments of differentiated kernels: those that Python changes after the call, packs, constant
annotations, and tensors whose gradients torch adds up itself."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti

from .slopes import check, field, is_near

Pair = ti.types.struct(a=ti.f32, n=ti.i32)
Numbers = ti.types.argpack(a=ti.f32, n=ti.i32)


def tensor(values: Any, needs: bool = True) -> Any:
    """A torch tensor."""
    torch = pytest.importorskip("torch")
    return torch.tensor(values, dtype=torch.float32, requires_grad=needs)


# --- changes by Python after the call ------------------------------------------------------------

VECTORS: dict[str, Callable[[], Any]] = {
    "vector": lambda: ti.Vector([3.0, 2.0]),
    "list": lambda: [3.0, 2.0],
    "numpy": lambda: np.array([3.0, 2.0]),
    "torch": lambda: tensor([3.0, 2.0], needs=False),
}


@pytest.mark.parametrize("memory", [None, "1KiB"])
@pytest.mark.parametrize("kind", VECTORS)
def test_a_vector_changed_after_the_call(kind: str, memory: str | None) -> None:
    x, loss, v = field(3, values=[2, 2, 2]), field(), VECTORS[kind]()

    @ti.kernel
    def add(v: ti.math.vec2):
        for i in x:
            loss[None] += v[0] * x[i] ** v[1]

    with ti.ad.Tape(loss, memory=memory):
        add(v)
        v[0] = 100.0
        add(v)
    is_near(x.grad, [(3 + 100) * 2 * 2.0] * 3)


@pytest.mark.parametrize("kind", ["struct", "dict", "pack"])
def test_a_struct_changed_after_the_call(kind: str) -> None:
    x, loss = field(3, values=[2, 2, 2]), field()
    note = Numbers if kind == "pack" else Pair
    given: Any = {"a": 3.0, "n": 2} if kind == "dict" else note(a=3.0, n=2)

    @ti.kernel
    def add(p: note):
        for i in x:
            loss[None] += p.a * x[i] ** p.n

    with ti.ad.Tape(loss):
        add(given)
        if isinstance(given, dict):
            given["a"] = 100.0
        else:
            given.a = 100.0
    is_near(x.grad, [3 * 2 * 2.0] * 3)


@pytest.mark.parametrize("kind", ["vector", "struct", "pack"])
def test_an_argument_of_a_gradient_of_ones_own(kind: str) -> None:
    x, loss = field(3, values=[2, 2, 2]), field()
    made = {"vector": lambda: ti.Vector([3.0, 2.0]), "struct": lambda: Pair(a=3.0, n=2),
            "pack": lambda: Numbers(a=3.0, n=2)}[kind]()  # fmt: skip

    @ti.kernel
    def add(by: ti.f32):
        for i in x:
            loss[None] += by * x[i] ** 2

    def first(v: Any) -> float:
        return float(v[0] if kind == "vector" else v.a)

    @ti.ad.grad_replaced
    def forward(v: Any, *, other: Any) -> None:
        add(first(v) + first(other))

    @ti.ad.grad_for(forward)
    def backward(v: Any, *, other: Any) -> None:
        add.grad(first(v) + first(other))

    with ti.ad.Tape(loss):
        forward(made, other=made)
        if kind == "vector":
            made[0] = 100.0
        else:
            made.a = 100.0
    is_near(x.grad, [2 * 3 * 2 * 2.0] * 3)


def test_a_step_number_in_a_pack() -> None:
    State = ti.types.argpack(x=ti.types.ndarray(ndim=2), t=ti.i32)
    x, loss = ti.ndarray(ti.f32, (5, 3), needs_grad=True), field()
    p = State(x=x, t=0)

    @ti.kernel
    def step(p: State):
        for i in range(3):
            p.x[p.t + 1, i] = 0.5 * p.x[p.t, i] ** 2

    @ti.kernel
    def add(p: State):
        for i in range(3):
            loss[None] += p.x[p.t, i]

    x.fill(1.5)
    with ti.ad.Tape(loss) as tape:
        for t in range(4):
            p.t = t
            step(p)
        p.t = 4
        add(p)
    values = [1.5]
    for _ in range(3):
        values.append(0.5 * values[-1] ** 2)
    is_near(ti.Vector([x.grad[0, i] for i in range(3)]), [np.prod(values)] * 3)
    assert tape.report.saved_bytes == 0


# --- host arrays in packs ------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [None, "1KiB"])
def test_tensors_in_packs(memory: str | None) -> None:
    Inner = ti.types.argpack(x=ti.types.ndarray(), m=ti.math.mat2)
    Outer = ti.types.argpack(inner=Inner, y=ti.types.ndarray(), w=ti.types.ndarray())
    x, y, w = tensor([1, 2, 3]), tensor([0, 0, 0]), np.ones(3, np.float32)
    p = Outer(inner=Inner(x=x, m=ti.Matrix([[1.0, 2.0], [3.0, 4.0]])), y=y, w=w)
    loss = field()

    @ti.kernel
    def square(p: Outer):
        for i in p.inner.x:
            p.y[i] = p.inner.x[i] ** 2 * p.inner.m[0, 1] * p.w[i]

    @ti.kernel
    def add(y: ti.types.ndarray()):
        for i in y:
            loss[None] += y[i] ** 2

    with ti.ad.Tape(loss, memory=memory):
        square(p)
        add(y)
        w[:] = 7
        p.inner.m = ti.Matrix([[0.0, 0.0], [0.0, 0.0]])
    is_near(x.grad, 16 * np.array([1, 8, 27]))


def test_gradient_of_tensors_in_a_pack() -> None:
    Two = ti.types.argpack(x=ti.types.ndarray(), y=ti.types.ndarray())
    x, y = tensor([1, 2, 3], needs=False), tensor([0, 0, 0], needs=False)
    x.grad, y.grad = tensor([0, 0, 0], needs=False), tensor([1, 2, 1], needs=False)

    @ti.kernel
    def square(p: Two):
        for i in p.x:
            p.y[i] = p.x[i] ** 2

    square.grad(Two(x=x, y=y))
    is_near(x.grad, [2, 8, 6])


# --- annotations ---------------------------------------------------------------------------------


def test_constant_annotations_have_no_gradient() -> None:
    x, loss = ti.ndarray(ti.f32, 3, needs_grad=True), field()
    y = ti.ndarray(ti.f32, 3, needs_grad=True)

    @ti.kernel
    def square(x: ti.types.ndarray(), y: ti.types.ndarray(needs_grad=False)):
        for i in x:
            y[i] = x[i] ** 2  # a result has a gradient all the same

    @ti.kernel
    def add(a: ti.types.ndarray(needs_grad=False), b: ti.types.ndarray(needs_grad=True)):
        for i in a:
            loss[None] += a[i] * b[i]

    x.fill(3)
    check(x, loss, lambda: add(x, x), gradient=[3, 3, 3])
    check(x, loss, lambda: square(x, y), lambda: add(y, x), gradient=[9, 9, 9])
    check(x, loss, lambda: square(x, y), lambda: add(x, y), gradient=[18, 18, 18])
    loss.grad[None] = 1
    add.grad(x, y)
    is_near(y.grad, [3, 3, 3])


def test_tensors_where_a_gradient_is_asked_for() -> None:
    x, loss = tensor([1, 2, 3]), field()

    @ti.kernel
    def add(x: ti.types.ndarray(needs_grad=True)):
        for i in x:
            loss[None] += x[i] ** 2

    with ti.ad.Tape(loss):
        add(x)
    is_near(x.grad, [2, 4, 6])


def test_a_tensor_passed_by_value() -> None:
    v, x, loss = tensor([2, 3]), field(3, values=[1, 1, 1]), field()

    @ti.kernel
    def add(v: ti.math.vec2):
        for i in x:
            loss[None] += v.x * x[i]

    add(v)
    with (
        pytest.raises(ti.ad.GradientError, match="`v`, which is passed by value"),
        ti.ad.Tape(loss),
    ):
        add(v)
    check(x, loss, lambda: add(v.detach()), gradient=[2, 2, 2])
    run, along = ti.field(ti.f32, (), needs_dual=True), ti.field(ti.f32, (), needs_dual=True)

    @ti.kernel
    def multiply(v: ti.math.vec2):
        run[None] = v.y * along[None]

    with ti.ad.FwdMode(loss=run, param=along):
        multiply(v)  # no gradient is asked for
    assert run.dual[None] == 3


# --- arguments of ti.stop_grad -------------------------------------------------------------------


def test_stop_grad_of_numbers_and_structs() -> None:
    Ball = ti.types.struct(r=ti.f32, v=ti.math.vec2)
    balls, loss, dt = Ball.field(shape=3, needs_grad=True), field(), 0.5
    weights = ti.Vector([1.0, 2.0, 3.0])
    balls.r.fill(2)
    balls.v.fill(3)

    @ti.kernel
    def add():
        for i in balls:
            old = ti.stop_grad(balls[i])
            loss[None] += ti.stop_grad(dt) * ti.stop_grad(weights)[i] * old.r * old.v.x * balls[i].r

    with ti.ad.Tape(loss):
        add()
    is_near(balls.r.grad, [3, 6, 9])
    is_near(balls.v.grad, np.zeros((3, 2)))


def test_stop_grad_of_a_value_that_is_not_used() -> None:
    x, loss = field(3, values=[1, 1, 1]), field()

    @ti.kernel
    def add():
        for i in x:
            ti.stop_grad(x[i])
            loss[None] += x[i]

    with pytest.raises(ti.TaichiSyntaxError, match="does not change the value"):
        add()


# --- wrong calls ---------------------------------------------------------------------------------


def test_ad_functions_reject_unsupported_arguments() -> None:
    x, loss = field(3, values=[1, 1, 1]), field()
    balls = ti.Struct.field({"r": ti.f32}, shape=3, needs_grad=True)
    array, dual = ti.ndarray(ti.f32, 3, needs_grad=True), ti.field(ti.f32, (), needs_dual=True)

    @ti.kernel
    def add():
        for i in x:
            loss[None] += x[i]

    for call, message in [
        (lambda: ti.ad.gradcheck(add(), loss, [x]), "pass `run`, not `run\\(\\)`"),
        (lambda: ti.ad.hvp(add(), loss, x, [1, 1, 1]), "pass `run`, not `run\\(\\)`"),
        (lambda: ti.ad.gradcheck(add, loss, [balls]), "give its members"),
        (lambda: ti.ad.FwdMode(dual, array, [1, 1, 1]).__enter__(), "a field with needs_dual"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


# --- torch goes backward -------------------------------------------------------------------------


@ti.kernel
def cube(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = x[i] ** 3


def make_cube(choose: Callable[[Any], Any], give: Callable[[Any], Any] = lambda grad: grad) -> Any:
    """The kernel as an operation of torch; `choose` makes the differentiated tensor from the given
    one, and `give` makes torch's result from its gradient."""
    torch = pytest.importorskip("torch")

    class Cube(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            y = torch.empty_like(x)
            cube(x, y)
            return y

        @staticmethod
        def backward(ctx: Any, slope: Any) -> Any:
            x = choose(ctx.saved_tensors[0])
            y = torch.empty_like(slope)
            y.grad = slope.contiguous()
            cube.grad(x, y)
            return give(x.grad)

    return Cube.apply


@pytest.mark.ours("tensors-once", run=False)
def test_a_tensor_with_a_gradient_that_torch_accumulates() -> None:
    x, operation = tensor([1, 2]), make_cube(lambda x: x)
    operation(x).sum().backward()  # returns x.grad itself
    is_near(x.grad, [3, 12])
    operation(x).sum().backward()
    is_near(x.grad, [6, 24])
    x.grad = None
    operation(x * 1).sum().backward()  # not the leaf
    is_near(x.grad, [3, 12])


def test_a_gradient_that_torch_is_given_with_others() -> None:
    x, operation = tensor([1, 2]), make_cube(lambda x: x)
    for other in (lambda: operation(x), lambda: x * x):
        x.grad = None
        with pytest.raises(ti.ad.GradientError, match="`x` would be counted twice"):
            (operation(x) + other()).sum().backward()


def test_a_copy_of_a_gradient_that_torch_adds_up() -> None:
    x, operation = tensor([1, 2]), make_cube(lambda x: x, lambda grad: grad.clone())
    with pytest.raises(ti.ad.GradientError, match="`x` would be counted twice"):
        operation(x).sum().backward()


def test_a_gradient_put_aside_before_torch_adds_up() -> None:
    """As where the backward of an operation lends its tensors a gradient of their own."""
    x = tensor([1, 2])

    def put_aside(grad: Any) -> Any:
        x.grad = None
        return grad

    operation = make_cube(lambda x: x, put_aside)
    (operation(x) + operation(x) + x).sum().backward()
    is_near(x.grad, [7, 25])


def test_a_gradient_that_torch_is_not_given() -> None:
    x, operation = tensor([1, 2]), make_cube(lambda x: x, lambda grad: None)
    operation(x).sum().backward()
    is_near(x.grad, [3, 12])
    (x * x).sum().backward()  # the next pass adds to it
    is_near(x.grad, [5, 16])


def test_a_tensor_of_the_same_memory() -> None:
    x, operation = tensor([1, 2]), make_cube(lambda x: x.detach().requires_grad_())
    operation(x).sum().backward()
    is_near(x.grad, [3, 12])
    operation(x).sum().backward()
    is_near(x.grad, [6, 24])


def test_a_result_without_gradient() -> None:
    x, y = tensor([1, 2]), tensor([0, 0], needs=False)
    with pytest.raises(ti.ad.GradientError, match=r"cube.grad\(\) would do nothing: `y`"):
        cube.grad(x, y)
    with pytest.raises(ti.ad.GradientError, match="would do nothing"):
        cube.grad(x, np.zeros(2, np.float32))
    y.grad = tensor([1, 1], needs=False)
    cube.grad(x, y)
    is_near(x.grad, [3, 12])


def test_a_field_without_gradient() -> None:
    x, y = field(2), ti.field(ti.f32, 2)

    @ti.kernel
    def square():
        for i in x:
            y[i] = x[i] ** 2

    square()
    with pytest.warns(ti.ad.GradientWarning, match=r"square.grad\(\) does nothing: `y`"):
        square.grad()
    is_near(x.grad, [0, 0])


@pytest.mark.parametrize("kind", ["loss", "between"])
def test_checks_with_tensors(kind: str) -> None:
    x, y = field(3, values=[1, 2, 3]), tensor([0, 0, 0])
    loss = tensor(0) if kind == "loss" else ti.ndarray(ti.f32, (), needs_grad=True)

    @ti.kernel
    def square(y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] ** 2

    @ti.kernel
    def add(y: ti.types.ndarray(), loss: ti.types.ndarray()):
        for i in y:
            loss[None] += y[i] * x[i]

    def run() -> None:
        square(y)
        add(y, loss)

    ti.ad.gradcheck(run, loss, [x])
    is_near(x.grad, [3, 12, 27])
    with pytest.raises(RuntimeError, match="use ti.ad.gradcheck"):
        with ti.ad.Tape(loss, grad_check=[x]):
            run()


# --- gradients of one's own in classes -----------------------------------------------------------


@ti.data_oriented
class Sum:
    def __init__(self, weight: float) -> None:
        self.x, self.total, self.weight = field(3, values=[1, 1, 1]), field(), weight

    @ti.kernel
    def add(self, by: ti.f32):
        for i in self.x:
            self.total[None] += self.weight * by * self.x[i]

    @ti.ad.grad_replaced
    def forward(self, by: float) -> None:
        self.add(by)
        self.add(by)

    @ti.ad.grad_for(forward)
    def backward(self, by: float) -> None:
        self.add.grad(by)

    @ti.ad.grad_replaced
    def unknown(self) -> None:
        self.add(1)


def test_gradients_of_methods() -> None:
    first, second = Sum(1), Sum(10)
    for one in (first, second):
        check(one.x, one.total, lambda one=one: one.forward(by=4), gradient=[4 * one.weight] * 3)
    first.x.grad.fill(0)
    first.total.grad[None] = 1
    first.forward.grad(4)
    Sum.forward.grad(first, by=2)
    is_near(first.x.grad, [6, 6, 6])
    is_near(second.x.grad, [40, 40, 40])
    assert first.unknown.grad is None


# --- tensors that undifferentiated kernels write -------------------------------------------------


def test_a_function_without_gradient_writes_a_tensor() -> None:
    x, y, loss = tensor([1, 2, 3]), tensor([0, 0, 0]), field()

    @ti.kernel
    def square(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] ** 2

    @ti.kernel
    def change(y: ti.types.ndarray(), how: ti.template()):
        for i in y:
            if ti.static(how == "add"):
                y[i] += 5.0
            elif ti.static(how == "set"):
                y[i] = 5.0
            else:
                y[i] *= 5.0

    @ti.kernel
    def add(y: ti.types.ndarray()):
        for i in y:
            loss[None] += y[i] ** 2

    @ti.ad.no_grad
    def skip(how: str) -> None:
        change(y, how)

    for how, gradient in (("add", 4 * X3 * (X3**2 + 5)), ("set", 0 * X3)):
        x.grad = None
        with ti.ad.Tape(loss):
            square(x, y)
            skip(how)
            add(y)
        is_near(x.grad, gradient)
    with pytest.raises(ti.ad.GradientError, match=r"`y` was overwritten by skip\(\)"):
        with ti.ad.Tape(loss):
            square(x, y)
            skip("multiply")
            add(y)


X3 = np.array([1.0, 2.0, 3.0])
