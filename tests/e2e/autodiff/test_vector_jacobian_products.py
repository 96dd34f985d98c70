"""Vector-Jacobian products: `Tape.backward`, `ti.ad.vjp` and `ti.ad.jvp`, against Jacobians of
numpy functions, by mathematics, and after everything that may happen between block and backward."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.autodiff.slopes import X, is_near, slope
from vkchi.errors import Unsupported

C = np.array([0.5, -1.0, 2.0, 0.25])
D = np.array([1.5, 0.5, -0.75, 1.0])


def on_fields(*shape: int, dtype: Any = ti.f32) -> Any:
    return ti.field(dtype, shape, needs_grad=True)


def on_ndarrays(*shape: int, dtype: Any = ti.f32) -> Any:
    return ti.ndarray(dtype, shape, needs_grad=True)


MAKERS = pytest.mark.parametrize("make", [on_fields, on_ndarrays])


@ti.kernel
def cube_fields(x: ti.template(), y: ti.template()):
    for i in x:
        y[i] = x[i] ** 3


@ti.kernel
def mix_fields(x: ti.template(), y: ti.template(), z: ti.template()):
    for i in x:
        z[i] = ti.sin(y[i]) * x[(i + 1) % 4]


@ti.kernel
def cube_ndarrays(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = x[i] ** 3


@ti.kernel
def mix_ndarrays(x: ti.types.ndarray(), y: ti.types.ndarray(), z: ti.types.ndarray()):
    for i in x:
        z[i] = ti.sin(y[i]) * x[(i + 1) % 4]


@ti.kernel
def double_fields(x: ti.template()):
    for i in x:
        x[i] = x[i] * x[i]


@ti.kernel
def double_ndarrays(x: ti.types.ndarray()):
    for i in x:
        x[i] = x[i] * x[i]


def kernels(make: Any) -> tuple[Any, Any, Any]:
    if make is on_fields:
        return cube_fields, mix_fields, double_fields
    return cube_ndarrays, mix_ndarrays, double_ndarrays


def values_y(x: np.ndarray) -> np.ndarray:
    return x**3


def values_z(x: np.ndarray) -> np.ndarray:
    return np.sin(x**3) * np.roll(x, -1)


def product(f: Callable[[np.ndarray], np.ndarray], cotangent: Any, x: Any = X) -> np.ndarray:
    return slope(lambda at: (np.asarray(cotangent) * f(at)).sum(), x)


def filled(array: Any, values: Any = X) -> Any:
    array.from_numpy(np.asarray(values, np.float32))
    return array


def recorded(make: Any, **options: Any) -> tuple[Any, Any, Any, Any]:
    cube, mix, _ = kernels(make)
    x, y, z = filled(make(4)), make(4), make(4)
    with ti.ad.Tape(**options) as tape:
        cube(x, y)
        mix(x, y, z)
    return tape, x, y, z


# --- Tape.backward -------------------------------------------------------------------------------


@MAKERS
def test_cotangents_of_one_and_of_several_outputs(make: Any) -> None:
    tape, x, y, z = recorded(make)
    tape.backward({z: C})
    is_near(x.grad, product(values_z, C))
    x.grad.fill(0)
    tape.backward({y: 1.0})
    is_near(x.grad, product(values_y, 1.0))
    x.grad.fill(0)
    tape.backward({z: C, y: D})
    is_near(x.grad, product(values_z, C) + product(values_y, D))
    assert tape.report is not None and tape.report.calls == 2


@MAKERS
def test_backward_adds_to_gradients_of_inputs(make: Any) -> None:
    tape, x, _, z = recorded(make)
    x.grad.fill(10)
    tape.backward({z: C})
    tape.backward({z: D})
    is_near(x.grad, 10 + product(values_z, C + D))


@pytest.mark.parametrize("kind", ["numpy", "list", "field", "ndarray", "torch", "integers"])
@MAKERS
def test_kinds_of_cotangents(make: Any, kind: str) -> None:
    tape, x, y, z = recorded(make)
    given: Any = C
    if kind == "list":
        given = list(C)
    elif kind == "field":
        given = filled(ti.field(ti.f32, 4), C)
    elif kind == "ndarray":
        given = filled(ti.ndarray(ti.f32, 4), C)
    elif kind == "torch":
        given = pytest.importorskip("torch").tensor(C)
    elif kind == "integers":
        given = np.array([1, 2, 3, 4])
    tape.backward({z: given})
    is_near(x.grad, product(values_z, [1, 2, 3, 4] if kind == "integers" else C))
    x.grad.fill(0)
    tape.backward({y: np.float32(2)})
    is_near(x.grad, product(values_y, 2))


@MAKERS
def test_arrays_that_change_after_the_block(make: Any) -> None:
    cube, mix, double = kernels(make)
    tape, x, y, z = recorded(make)
    double(x)
    y[2] = 100.0
    z.fill(3)
    now = x.to_numpy(), y.to_numpy()
    tape.backward({z: C})
    is_near(x.grad, product(values_z, C))
    is_near(x, now[0])
    is_near(y, now[1])
    is_near(z, np.full(4, 3.0))
    x.from_numpy(np.zeros(4, np.float32))
    cube(x, y)
    mix(x, y, z)
    x[0] = 5.0
    x.grad.fill(0)
    tape.backward({z: C})
    is_near(x.grad, product(values_z, C))
    is_near(x, [5, 0, 0, 0])
    is_near(y, np.zeros(4))


@MAKERS
def test_a_late_fill_after_the_block(make: Any) -> None:
    cube, _, _ = kernels(make)
    x, y = filled(make(4)), make(4)
    for _ in range(3):
        with ti.ad.Tape() as tape:
            cube(x, y)
        x.fill(0)  # recorded behind the kernel
        y.fill(0)
        tape.backward({y: C})
        is_near(x.grad, product(values_y, C))
        is_near(x, np.zeros(4))
        filled(x)


@MAKERS
def test_an_output_that_is_an_input(make: Any) -> None:
    cube, _, double = kernels(make)
    x, y = filled(make(4)), make(4)
    with ti.ad.Tape() as tape:
        cube(x, y)
        double(x)
        double(x)
    tape.backward({x: C})
    is_near(x.grad, product(lambda at: at**4, C))
    x.grad.fill(0)
    tape.backward({x: C, y: D})
    is_near(x.grad, product(lambda at: at**4, C) + product(values_y, D))
    x.grad.fill(1)
    y.grad.fill(7)
    tape.backward({x: x.grad, y: y.grad})
    is_near(x.grad, 1 + product(lambda at: at**4, 1.0) + product(values_y, 7.0))
    is_near(y.grad, np.full(4, 7.0))


@MAKERS
def test_cotangents_in_the_memory_of_gradients(make: Any) -> None:
    tape, x, y, z = recorded(make)
    filled(x.grad, C)
    filled(z.grad, D)
    tape.backward({z: z.grad, y: x.grad})
    is_near(x.grad, C + product(values_z, D) + product(values_y, C))
    is_near(z.grad, D)


@MAKERS
def test_sums_into_outputs(make: Any) -> None:
    x, total = filled(make(4)), make(2)

    @ti.kernel
    def add(x: ti.types.ndarray(), total: ti.types.ndarray()):
        for i in x:
            total[0] += x[i] ** 2
            total[1] += x[i] ** 3

    @ti.kernel
    def add_fields(x: ti.template(), total: ti.template()):
        for i in x:
            total[0] += x[i] ** 2
            total[1] += x[i] ** 3

    run = add if make is on_ndarrays else add_fields
    with ti.ad.Tape() as tape:
        run(x, total)
        run(x, total)
    for cotangent in ([1, 0], [0, 1], [2, -3]):
        x.grad.fill(0)
        tape.backward({total: cotangent})
        is_near(x.grad, 2 * (cotangent[0] * 2 * X + cotangent[1] * 3 * X**2))


@MAKERS
def test_outputs_that_were_overwritten(make: Any) -> None:
    cube, mix, _ = kernels(make)
    x, y, z = filled(make(4)), make(4), make(4)
    with ti.ad.Tape() as tape:
        cube(x, y)
        mix(x, y, z)
        mix(x, z, y)  # y anew
    tape.backward({y: C})
    is_near(x.grad, product(lambda at: np.sin(values_z(at)) * np.roll(at, -1), C))
    with ti.ad.Tape() as tape:
        cube(x, y)
        y[1] = 3.0  # constant
    tape.backward({y: C})
    is_near(x.grad, product(values_y, C * [1, 0, 1, 1]))
    with ti.ad.Tape() as tape:
        cube(x, y)
        y[1] *= 2.0
    with pytest.raises(ti.ad.GradientError, match="`y` was overwritten by Python"):
        tape.backward({y: C})
    with ti.ad.Tape() as tape:
        cube(x, y)
        y.fill(2)
    with pytest.raises(ti.ad.GradientError, match="was last written by Python"):
        tape.backward({y: C})


@pytest.mark.parametrize("memory", [None, "1MiB", 64])
@MAKERS
def test_limited_memory(make: Any, memory: Any) -> None:
    _, _, double = kernels(make)
    x = filled(make(4), [1.01, 0.99, 1.02, 0.98])
    before = x.to_numpy()
    with ti.ad.Tape(memory=memory) as tape:
        for _ in range(5):
            double(x)
    end = x.to_numpy()
    for cotangent in (C, D):
        double(x)
        now = x.to_numpy()
        x.grad.fill(0)
        tape.backward({x: cotangent})
        is_near(x.grad, cotangent * 32 * before**31)
        is_near(x, now)
        if memory == 64:
            assert tape.report is not None and tape.report.repeated > 0
    is_near(x, end**4)


def test_an_input_that_changes_before_calls_are_recomputed() -> None:
    x, w = filled(on_fields(4), [1.1, 0.9, 1.2, 0.8]), filled(on_fields(4))

    @ti.kernel
    def step():
        for i in x:
            x[i] = x[i] * x[i] * w[i]

    first = x.to_numpy()
    with ti.ad.Tape(memory=80) as tape:
        for _ in range(4):
            step()
    w.fill(100)
    x.fill(-3)
    tape.backward({x: C})
    is_near(w.grad, product(lambda at: first**16 * at**15, C))
    is_near(w, np.full(4, 100.0))
    is_near(x, np.full(4, -3.0))


def test_components_and_vectors() -> None:
    v = ti.Vector.field(2, ti.f32, 3, needs_grad=True)
    x = filled(on_fields(3), X[:3])

    @ti.kernel
    def run():
        for i in x:
            v[i] = ti.Vector([x[i] ** 2, ti.sin(x[i])])

    with ti.ad.Tape() as tape:
        run()
    first, second = v.get_scalar_field(0), v.get_scalar_field(1)
    c, at = np.arange(6).reshape(3, 2) + 1.0, X[:3]
    want = c[:, 0] * 2 * at + c[:, 1] * np.cos(at)
    tape.backward({v: c})
    is_near(x.grad, want)
    tape.backward({first: c[:, 0], second: c[:, 1]})
    is_near(x.grad, 2 * want)
    with pytest.raises(ti.TaichiRuntimeError, match="overlap"):
        tape.backward({v: c, first: 1.0})
    x.grad.fill(0)
    tape.backward({v: 2.0})
    is_near(x.grad, 2 * (2 * at + np.cos(at)))


@pytest.mark.parametrize("dtype", [ti.f16, ti.f64], ids=str)
def test_other_floats(dtype: Any, need: Any) -> None:
    need(str(dtype))
    x, y = filled(on_fields(4, dtype=dtype)), on_fields(4, dtype=dtype)
    with ti.ad.Tape() as tape:
        cube_fields(x, y)
    tape.backward({y: C})
    is_near(x.grad, product(values_y, C), 1e-2 if dtype is ti.f16 else 1e-6)


def test_arrays_without_elements() -> None:
    torch = pytest.importorskip("torch")
    x, y = (torch.zeros(0, requires_grad=True) for _ in range(2))
    with ti.ad.Tape() as tape:
        cube_ndarrays(x, y)
    tape.backward({y: np.zeros(0)})
    tape.backward({y: 1.0})
    assert x.grad.shape == (0,)


def test_cells_that_are_deactivated_after_the_block() -> None:
    x, y = ti.field(ti.f32), ti.field(ti.f32)
    cells = ti.root.pointer(ti.i, 4)
    cells.dense(ti.i, 2).place(x, y)
    ti.root.lazy_grad()

    @ti.kernel
    def activate():
        for i in range(8):
            if i % 4 < 2:
                x[i] = i + 1.0

    @ti.kernel
    def square():
        for i in x:
            y[i] = x[i] ** 2

    activate()
    with ti.ad.Tape() as tape:
        square()
    cells.deactivate_all()
    tape.backward({y: np.arange(8)})
    is_near(x.grad, [0, 4, 0, 0, 40, 60, 0, 0])
    is_near(x, np.zeros(8))


def test_members_of_structs_and_objects() -> None:
    s = ti.types.struct(a=ti.f32, b=ti.math.vec2).field(3, needs_grad=True)

    @ti.data_oriented
    class Model:
        def __init__(self) -> None:
            self.y = on_ndarrays(3)

        @ti.kernel
        def run(self):
            for i in s:
                self.y[i] = s[i].a * s[i].b[0] + s[i].b[1]

    model, c = Model(), np.arange(3) + 1.0
    s.a.from_numpy(np.array([1, 2, 3], np.float32))
    s.b.from_numpy(np.ones((3, 2), np.float32))
    with ti.ad.Tape() as tape:
        model.run()
    s.a.fill(0)
    y, model.y = model.y, on_ndarrays(3)
    tape.backward({y: c})
    is_near(s.a.grad, c)
    is_near(s.b.grad, np.stack([c * [1, 2, 3], c], 1))
    refused("was not written", lambda: tape.backward({model.y: c}))


def test_races_matter_where_cotangents_are_nonzero() -> None:
    x, y, place = on_fields(4), on_fields(4), ti.field(ti.i32, 4)

    @ti.kernel
    def run():
        for i in x:
            y[place[i]] = x[i]

    with ti.ad.Tape() as tape:
        run()
    place.from_numpy(np.arange(4))
    tape.backward({y: 0.0})
    with pytest.raises(ti.ad.GradientError, match="several iterations of one loop store"):
        tape.backward({y: [1, 0, 0, 0]})
    is_near(x.grad, np.zeros(4))


def test_inside_the_block() -> None:
    x, y = filled(on_fields(4)), on_fields(4)
    with ti.ad.Tape() as tape:
        cube_fields(x, y)
        tape.backward({y: C})
        double_fields(y)  # not recorded
        tape.backward({y: C})
    is_near(x.grad, 2 * product(values_y, C))


def test_functions_with_gradients_of_their_own() -> None:
    x, y, w = filled(on_fields(4)), on_fields(4), filled(ti.field(ti.f32, 4), D)

    @ti.kernel
    def scale():
        for i in x:
            y[i] = w[i] * x[i]

    @ti.kernel
    def pull():
        for i in x:
            x.grad[i] += 10 * w[i] * y.grad[i]
            y.grad[i] = 0.0

    @ti.ad.grad_replaced
    def forward():
        scale()

    @ti.ad.grad_for(forward)
    def backward():
        pull()

    with ti.ad.Tape() as tape:
        forward()
    w.fill(0)
    for k in (1, 2):
        tape.backward({y: C})
        is_near(x.grad, k * 10 * D * C)
    is_near(w, np.zeros(4))
    with ti.ad.Tape() as tape:
        forward()
        w.fill(0)  # inside the block, so that the gradient finds other weights
    with pytest.raises(ti.ad.GradientError, match="which Python has overwritten since"):
        tape.backward({y: C})


def test_drawn_numbers_and_host_arrays() -> None:
    x, y = filled(on_fields(4)), on_fields(4)
    host = X.astype(np.float32)

    @ti.kernel
    def run(w: ti.types.ndarray()):
        for i in x:
            y[i] = ti.random() * w[i] * x[i]

    with ti.ad.Tape() as tape:
        run(host)
    factor = y.to_numpy() / X
    host[:] = 0
    for k in (1, 2):
        tape.backward({y: C})
        is_near(x.grad, k * factor * C)


def test_solutions_of_linear_systems() -> None:
    from vkchi.linalg import SparseMatrixBuilder, SparseSolver

    builder = SparseMatrixBuilder(4, 4, 16)

    @ti.kernel
    def build(a: ti.types.sparse_matrix_builder()):
        for i in range(4):
            a[i, i] += 2.0 + i
        for i in range(3):
            a[i, i + 1] += 0.5

    build(builder)
    solver = SparseSolver(solver_type="LU")
    solver.compute(builder.build())
    b, y = filled(on_ndarrays(4)), on_ndarrays(4)
    a = np.diag([2.0, 3, 4, 5]) + np.diag([0.5] * 3, 1)
    with ti.ad.Tape() as tape:
        cube_ndarrays(b, y)
        out = solver.solve(y)
    for k in (1, 2):
        tape.backward({out: C})
        is_near(b.grad, k * 3 * X**2 * np.linalg.solve(a.T, C))


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor(X, dtype=torch.float32, requires_grad=True)
    y, z = (torch.zeros(4, requires_grad=True) for _ in range(2))
    with ti.ad.Tape() as tape:
        cube_ndarrays(x, y)
        mix_ndarrays(x, y, z)
    with torch.no_grad():
        x.mul_(2)  # as an optimiser does
        z.zero_()
    tape.backward({z: torch.tensor(C)})
    is_near(x.grad, product(values_z, C))
    x.grad = None
    tape.backward({z: C, y: 2})
    is_near(x.grad, product(values_z, C) + product(values_y, 2.0))
    tape.backward({z: C})
    is_near(x.grad, 2 * product(values_z, C) + product(values_y, 2.0))


@pytest.mark.parametrize("way", ["tape", "vjp", "twice"])
def test_functions_of_torch(way: str) -> None:
    torch = pytest.importorskip("torch")

    def run(x: Any) -> Any:
        y = torch.zeros(4, requires_grad=True)
        cube_ndarrays(x, y)
        return y

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.x = x if way == "twice" else x.detach().requires_grad_()
            if way == "vjp":
                ctx.y, ctx.pull = ti.ad.vjp(run, ctx.x)
            else:
                with ti.ad.Tape() as ctx.tape:
                    ctx.y = run(ctx.x)
            return ctx.y.detach().clone()

        @staticmethod
        def backward(ctx: Any, slope: Any) -> Any:
            if way == "vjp":
                return ctx.pull(slope)[0]
            ctx.tape.backward({ctx.y: slope})
            return ctx.x.grad

    x = torch.tensor(X, dtype=torch.float32, requires_grad=True)
    total = (Cube.apply(x) * torch.tensor(C)).sum()
    if way == "twice":
        with pytest.raises(ti.ad.GradientError, match="would be counted twice"):
            total.backward()
        return
    total.backward(retain_graph=True)
    is_near(x.grad, product(values_y, C))
    if way == "vjp":
        total.backward()
        is_near(x.grad, 2 * product(values_y, C))


def test_arrays_in_the_hands_of_other_libraries() -> None:
    torch = pytest.importorskip("torch")
    x, y = filled(on_ndarrays(4)), on_ndarrays(4)
    view = torch.from_dlpack(x)
    with ti.ad.Tape() as tape:
        cube_ndarrays(x, y)
    view.zero_()
    tape.backward({y: C})
    is_near(x.grad, product(values_y, C))
    assert view.tolist() == [0, 0, 0, 0]
    is_near(x, np.zeros(4))


def test_several_tapes() -> None:
    x, y, loss = filled(on_fields(4)), on_fields(4), on_fields()

    @ti.kernel
    def measure():
        for i in y:
            loss[None] += y[i]

    with ti.ad.Tape() as first:
        cube_fields(x, y)
    double_fields(x)
    with ti.ad.Tape() as second:
        cube_fields(x, y)
    with ti.ad.Tape(loss, clear_gradients=False):
        cube_fields(x, y)
        measure()
    at_loss = product(values_y, 1.0, X**2)
    is_near(x.grad, at_loss)
    first.backward({y: C})
    is_near(x.grad, at_loss + product(values_y, C))
    second.backward({y: C})
    is_near(x.grad, at_loss + product(values_y, C) + product(values_y, C, X**2))


def test_a_tape_that_nobody_needs_is_gone() -> None:
    x, y = filled(on_fields(4)), on_fields(4)
    gc.collect()
    gc.disable()
    try:
        with ti.ad.Tape() as tape:
            cube_fields(x, y)
        tape.backward({y: C})
        found = weakref.ref(tape)
        del tape
        assert found() is None
        savers = [saver for found in x.device.guards.values() for saver in found]
        assert all(saver() is None for saver in savers)  # nothing is copied any more
    finally:
        gc.enable()


# --- refusals ------------------------------------------------------------------------------------


def refused(message: str, run: Callable[[], object], kind: Any = ti.TaichiRuntimeError) -> None:
    with pytest.raises(kind, match=message):
        run()


def test_refusals() -> None:
    x, y, plain = filled(on_fields(4)), on_fields(4), ti.field(ti.f32, 4)
    counts = ti.field(ti.i32, 4)

    @ti.kernel
    def others():
        for i in plain:
            plain[i] = 1.0
            counts[i] = 1

    with ti.ad.Tape() as tape:
        cube_fields(x, y)
        others()
    refused(r"has shape \(3,\), and \(4,\) is needed", lambda: tape.backward({y: [1, 2, 3]}))
    refused(r"has shape \(4, 1\)", lambda: tape.backward({y: np.ones((4, 1))}))
    refused("must be real numbers", lambda: tape.backward({y: np.ones(4, np.complex64)}))
    refused("must be real numbers", lambda: tape.backward({y: True}))
    refused("must be real numbers", lambda: tape.backward({y: "one"}))
    refused("was not written by a recorded kernel", lambda: tape.backward({x: 1.0}))
    refused("needs a gradient", lambda: tape.backward({plain: 1.0}))
    refused("must hold floats", lambda: tape.backward({counts: 1}))
    refused("takes a dictionary", lambda: tape.backward({}))
    refused("takes a dictionary", lambda: tape.backward(y))
    refused("must be a field, ndarray or tensor", lambda: tape.backward({3: 1.0}))
    refused("needs a loss", tape.grad)
    is_near(x.grad, np.zeros(4))  # no refusal has run a gradient
    tape.backward({y: 1.0})
    is_near(x.grad, 3 * X**2)


def test_refusals_of_tapes() -> None:
    x, y, loss = filled(on_fields(4)), on_fields(4), on_fields()
    with ti.ad.Tape(loss) as with_loss:
        pass
    refused("needs a tape without loss", lambda: with_loss.backward({loss: 1.0}))
    tape = ti.ad.Tape()
    refused("was not entered", lambda: tape.backward({y: 1.0}))
    with pytest.raises(ZeroDivisionError), tape:
        cube_fields(x, y)
        raise ZeroDivisionError
    refused("ended by an exception", lambda: tape.backward({y: 1.0}))
    with ti.ad.Tape() as tape:
        cube_fields(x, y)
    with ti.ad.Tape(loss):
        refused("tapes do not nest", lambda: tape.backward({y: 1.0}))
    with ti.ad.Tape() as other:
        refused("tapes do not nest", lambda: tape.backward({y: 1.0}))
        refused("tapes do not nest", lambda: ti.ad.vjp(lambda a: a, x))
        refused("tapes do not nest", lambda: ti.ad.jvp(lambda a: a, (x,), (1.0,)))
    refused("was not written", lambda: other.backward({y: 1.0}))
    refused("give one", lambda: ti.ad.Tape(grad_check=[x]).__enter__())
    refused("the loss must be", lambda: ti.ad.Tape(None).__enter__())  # type: ignore[arg-type]


def test_a_gradient_that_was_replaced() -> None:
    x, y = filled(on_ndarrays(4)), on_ndarrays(4)
    with ti.ad.Tape() as tape:
        cube_ndarrays(x, y)
    x.add_gradient()
    refused("the gradient of `x` was replaced", lambda: tape.backward({y: 1.0}))


def test_lost_derivatives() -> None:
    x, y, plain = filled(on_fields(4)), on_fields(4), ti.field(ti.f32, 4)
    with pytest.raises(ti.ad.GradientError, match="which has none"), ti.ad.Tape():
        cube_fields(x, plain)
        cube_fields(plain, y)


# --- ti.ad.vjp and ti.ad.jvp ---------------------------------------------------------------------


@MAKERS
def test_products_are_adjoint(make: Any) -> None:
    cube, mix, _ = kernels(make)
    x, y, z = filled(make(4)), make(4), make(4)

    def f(x: Any) -> Any:
        cube(x, y)
        mix(x, y, z)
        return y, z

    x.grad.fill(3)
    made, pull = ti.ad.vjp(f, x)
    assert made == (y, z)
    filled(y, np.zeros(4))  # the product is that of the old contents
    (back,) = pull((C, D))
    assert isinstance(back, ti.Ndarray)
    is_near(back, product(values_y, C) + product(values_z, D))
    is_near(pull((0.0, D))[0], product(values_z, D))
    is_near(x.grad, np.full(4, 3.0))
    is_near(y.grad, np.zeros(4))
    made, (along_y, along_z) = ti.ad.jvp(f, (x,), (C,))
    assert made == (y, z)
    is_near(along_y, 3 * X**2 * C)
    (back,) = pull((D, C))
    one = along_y.to_numpy() @ D + along_z.to_numpy() @ C
    np.testing.assert_allclose(one, back.to_numpy() @ C, 1e-4)
    is_near(x.grad, np.full(4, 3.0))


def test_forms_of_results() -> None:
    x, y, z = filled(on_fields(4)), on_fields(4), on_fields(4)

    def f(x: Any, power: int, *, way: str = "tuple") -> Any:
        cube_fields(x, y)
        mix_fields(x, y, z)
        return {"y": y, "z": z} if way == "dict" else [y, z] if way == "list" else y

    out, pull = ti.ad.vjp(f, x, 2)
    assert out is y
    back, none = pull(C)
    assert none is None
    is_near(back, product(values_y, C))
    out, pull = ti.ad.vjp(lambda x: f(x, 2, way="dict"), x)
    is_near(pull({"z": D, "y": C})[0], product(values_y, C) + product(values_z, D))
    refused("must be a dictionary of y, z", lambda: pull({"y": C}))
    out, pull = ti.ad.vjp(lambda x: f(x, 2, way="list"), x)
    is_near(pull([C, D])[0], product(values_y, C) + product(values_z, D))
    refused("must be a tuple of 2", lambda: pull(C))
    out, tangents = ti.ad.jvp(lambda x: f(x, 2, way="dict"), (x,), (1.0,))
    is_near(tangents["y"], 3 * X**2)  # type: ignore[index]
    out, pull = ti.ad.vjp(lambda x: (f(x, 2), y), x)
    is_near(pull((C, D))[0], product(values_y, C + D))


def test_arguments_that_no_kernel_reads() -> None:
    x, y, other = filled(on_fields(4)), on_fields(4), on_fields(4)
    other.grad.fill(9)

    def f(x: Any, other: Any) -> Any:
        cube_fields(x, y)
        return y

    _, pull = ti.ad.vjp(f, x, other)
    back, none = pull(1.0)
    is_near(back, 3 * X**2)
    is_near(none, np.zeros(4))
    is_near(other.grad, np.full(4, 9.0))


def test_torch_arguments() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor(X, dtype=torch.float32, requires_grad=True)
    y = torch.zeros(4, requires_grad=True)

    def f(x: Any) -> Any:
        cube_ndarrays(x, y)
        return y

    out, pull = ti.ad.vjp(f, x)
    assert out is y
    for c in (C, D):
        (back,) = pull(torch.tensor(c))
        assert isinstance(back, torch.Tensor)
        is_near(back, product(values_y, c))
    assert x.grad is None or not x.grad.any()
    refused("not torch tensors", lambda: ti.ad.jvp(f, (x,), (1.0,)), Unsupported)


def test_writes_of_python_in_functions() -> None:
    x, y, z = filled(on_fields(4)), on_fields(4), on_fields(4)

    def f(x: Any) -> Any:
        cube_fields(x, y)
        y[1] = 2.0
        mix_fields(x, y, z)
        return z

    def values(at: np.ndarray) -> np.ndarray:
        inner = at**3
        inner[1] = 2.0
        return np.sin(inner) * np.roll(at, -1)

    _, pull = ti.ad.vjp(f, x)
    is_near(pull(C)[0], product(values, C))
    _, along = ti.ad.jvp(f, (x,), (C,))
    step = 1e-6
    is_near(along, (values(X + step * C) - values(X - step * C)) / (2 * step))


@MAKERS
def test_writes_of_python_before_kernels_use_an_argument(make: Any) -> None:
    cube, _, _ = kernels(make)
    x, y = make(4), make(4)

    def is_slope(expected: Any, write: Callable[[Any], object]) -> None:
        def f(x: Any) -> Any:
            write(x)
            cube(x, y)
            return y

        filled(x)
        _, pull = ti.ad.vjp(f, x)
        is_near(pull(1.0)[0], expected)
        filled(x)
        _, along = ti.ad.jvp(f, (x,), (1.0,))
        is_near(along, expected)

    is_slope(3 * X**2 * [1, 0, 1, 1], lambda x: x.__setitem__(1, 2.0))
    is_slope(np.zeros(4), lambda x: x.fill(2))
    is_slope(np.zeros(4), filled)
    with pytest.raises(ti.ad.GradientError, match="overwritten by Python, which had read it"):
        is_slope(X, lambda x: x.from_numpy(2 * x.to_numpy()))


def test_writes_of_python_to_an_argument_that_no_kernel_uses() -> None:
    x, y, z = filled(on_ndarrays(4)), on_ndarrays(4), filled(on_ndarrays(4))

    def f(x: Any, z: Any) -> Any:
        z.fill(2)
        cube_ndarrays(x, y)
        return y, z

    _, along = ti.ad.jvp(f, (x, z), (1.0, 1.0))
    is_near(along[0], 3 * X**2)
    is_near(along[1], np.zeros(4))


def test_writes_of_torch_before_kernels_use_an_argument() -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.ones(4, requires_grad=True), torch.zeros(4, requires_grad=True)

    def f(x: Any) -> Any:
        x.detach().fill_(2)
        cube_ndarrays(x, y)
        return y

    with pytest.raises(ti.ad.GradientError, match="overwritten by torch or numpy"):
        ti.ad.vjp(f, x)


@MAKERS
def test_arguments_that_functions_overwrite(make: Any) -> None:
    _, _, double = kernels(make)
    x = filled(make(4))

    def f(x: Any) -> Any:
        double(x)
        double(x)
        return x

    _, pull = ti.ad.vjp(f, x)
    is_near(pull(C)[0], 4 * X**3 * C)
    filled(x)
    _, along = ti.ad.jvp(f, (x,), (C,))
    is_near(along, 4 * X**3 * C)
    is_near(x, X**4)
    filled(x)
    _, along = ti.ad.jvp(lambda x: (f(x), x), (x,), (x.grad,))
    is_near(along[1], np.zeros(4))


def test_derivatives_lost_along_a_direction() -> None:
    x, y, plain = filled(on_fields(4)), on_fields(4), ti.field(ti.f32, 4)

    def f(x: Any) -> Any:
        cube_fields(x, plain)
        cube_fields(plain, y)
        return y

    for run in (lambda: ti.ad.jvp(f, (x,), (1.0,)), lambda: ti.ad.vjp(f, x)):
        with pytest.raises(ti.ad.GradientError, match="which has none"):
            run()
    is_near(ti.ad.vjp(lambda x: (cube_fields(x, y), y)[1], x)[1](1.0)[0], 3 * X**2)


def test_refusals_of_functions() -> None:
    x, y, plain = filled(on_fields(4)), on_fields(4), ti.field(ti.f32, 4)

    def f(x: Any) -> Any:
        cube_fields(x, y)
        return y

    refused("no argument has a gradient", lambda: ti.ad.vjp(f, plain))
    refused("is passed twice", lambda: ti.ad.vjp(lambda a, b: f(a), x, x))
    refused("must return the arrays", lambda: ti.ad.vjp(lambda x: None, x))
    refused("must return the arrays", lambda: ti.ad.jvp(lambda x: 3.0, (x,), (1.0,)))
    refused("was not written", lambda: ti.ad.vjp(lambda x: x, x))
    refused("was not written", lambda: ti.ad.jvp(lambda x: y, (x,), (1.0,)))
    refused("must be a kernel or a function", lambda: ti.ad.vjp(3, x))  # type: ignore[arg-type]
    refused("must be a tuple of 1", lambda: ti.ad.jvp(f, (x,), (1.0, 2.0)))
    refused("the tangent of .* has shape", lambda: ti.ad.jvp(f, (x,), ([1.0],)))
    refused("pass None", lambda: ti.ad.jvp(lambda a, b: f(a), (x, 3), (1.0, 2.0)))
