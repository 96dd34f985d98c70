"""Shape specialization (`launch/specialization`): its results, and when it happens."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.cache import content
from vkchi.cache.store import CacheStore
from vkchi.errors import DeviceError, Unsupported
from vkchi.graph import Arg, ArgKind, GraphBuilder
from vkchi.launch import specialization
from vkchi.launch.executable import Executable
from vkchi.runtime import current_runtime
from vkchi.target import tuning

pytestmark = pytest.mark.device
A = ti.types.ndarray(ti.i32, 2)
F = ti.types.ndarray(ti.f32, 1)


@ti.kernel
def stencil(x: A, y: A):
    h, w = x.shape[0], x.shape[1]
    for i, j in x:
        s = 5 * x[i, j]
        if i > 0:
            s -= x[i - 1, j]
        if j < w - 1:
            s -= x[i, j + 1]
        y[i, j] = s + x[(i + 1) % h, ti.max(j - 1, 0)]


def gradients_of(plan: Any, _: Any) -> list[Any]:
    return [one for (kind, _), one in plan.derived.found.items() if kind == "gradient"]


def by_numpy(x: Any) -> Any:
    up, right = np.zeros_like(x), np.zeros_like(x)
    up[1:], right[:, :-1] = x[:-1], x[:, 1:]
    left = np.concatenate([x[:, :1], x[:, :-1]], 1)
    return 5 * x - up - right + np.roll(left, -1, 0)


@ti.kernel
def add_up(x: A, counts: ti.types.ndarray(ti.i32, 1)):
    for i, j in x:
        counts[x[i, j] % counts.shape[0]] += 1


@ti.kernel
def square(x: F, y: F):
    for i in x:
        y[i] += x[i] * x[ti.max(i - 1, 0)]


CELL = ti.types.struct(v=ti.math.vec3, m=ti.f32)


@ti.kernel
def move(s: ti.types.ndarray(CELL, 1), p: ti.types.ndarray(ti.math.vec2, 1)):
    for i in s:
        s[i].v += s[i].m * p[i].x
        if i + 1 < s.shape[0]:
            s[i].m = p[i + 1].y


def integers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).integers(-50, 50, shape, np.int32)


def array(values: Any, *, needs_grad: bool = False) -> Any:
    values = np.asarray(values)
    made = ti.ndarray(ti.f32 if values.dtype.kind == "f" else ti.i32, values.shape, needs_grad)
    made.from_numpy(values)
    return made


def executable(kernel: Any, *args: Any) -> Executable:
    found: Executable = kernel.inspect(lambda plan, _: plan, *args)
    return found


def made(kernel: Any, *args: Any) -> int:
    """Number of shapes with specialized code."""
    found = executable(kernel, *args).shapes
    return -1 if found is None else len(found.made)


def check(x: Any, y: Any) -> None:
    """A launch matches numpy."""
    stencil(x, y)
    np.testing.assert_array_equal(y.to_numpy(), by_numpy(x.to_numpy()))


@pytest.fixture(autouse=True)
def nothing_fails(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Failures would fall back to the general code, and be reported."""
    yield
    assert [one for one in caplog.get_records("call") if one.levelname == "WARNING"] == []


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extents have code of their own from their first launch on."""
    monkeypatch.setenv("VKCHI_SHAPES", "first")
    ti.init(arch=ti.vulkan)


@pytest.fixture
def third(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extents have code of their own from their third launch on."""
    monkeypatch.delenv("VKCHI_SHAPES", raising=False)
    monkeypatch.setattr(specialization.ShapeSpecializer, "_launches", lambda self, *launch: 3)
    ti.init(arch=ti.vulkan)


# --- when it is made -----------------------------------------------------------------------------


@pytest.mark.usefixtures("third")
def test_the_third_launch_has_code_of_its_own():
    x, y = array(integers(33, 47)), array(integers(33, 47))
    found = []
    for _ in range(5):
        check(x, y)
        found.append(made(stencil, x, y))
    assert found == [0, 0, 1, 1, 1]


@pytest.mark.usefixtures("third")
def test_arrays_in_turn_are_counted_together():
    pairs = [(array(integers(20, 24)), array(integers(20, 24))) for _ in range(2)]
    for k in range(6):
        check(*pairs[k % 2])
        assert made(stencil, *pairs[0]) == (k >= 2)
    assert len(executable(stencil, *pairs[0]).shapes.made) == 1


@pytest.mark.usefixtures("third")
def test_a_long_launch_is_worth_it_at_once_and_a_short_one_never(monkeypatch):
    monkeypatch.undo()
    monkeypatch.delenv("VKCHI_SHAPES", raising=False)
    ti.init(arch=ti.vulkan)
    x, y = array(integers(4, 4)), array(integers(4, 4))
    for _ in range(300):
        stencil(x, y)
    assert made(stencil, x, y) == 0
    flat = [0] * len(executable(stencil, x, y).places)
    assert not executable(stencil, x, y).shapes._launches((4, 4, 4, 4), flat)
    assert 1 <= executable(stencil, x, y).shapes._launches((1 << 14,) * 4, flat) <= 4


def test_much_work_on_few_numbers_is_worth_it_soon(monkeypatch):
    """A product of matrices; rounds that a number tells count too."""
    monkeypatch.delenv("VKCHI_SHAPES", raising=False)
    ti.init(arch=ti.vulkan)

    @ti.kernel
    def product(a: A, b: A, c: A, times: ti.i32):
        for i, j in c:
            for _ in range(times):
                for k in range(a.shape[1]):
                    c[i, j] += a[i, k] * b[k, j]

    asked = []
    count = specialization.ShapeSpecializer._launches
    monkeypatch.setattr(
        specialization.ShapeSpecializer,
        "_launches",
        lambda self, key, flat: asked.append((count(self, key, flat), self._ops(flat))) or 0,
    )
    for n, times in [(15, 1), (32, 1), (16, 12)]:
        x = array(integers(n, n))
        product(x, x, array(integers(n, n)), times)
    (short, _), (once, few), (often, many) = asked
    assert short == 0 and few < 15 * 32**3 and few < many < 2 * few
    assert 0 < often < once < 25_000_000 // (3 * 32 * 32)


@pytest.mark.usefixtures("first")
def test_four_shapes_and_no_more():
    sizes = [(8, 8), (16, 8), (8, 16), (12, 20), (5, 7), (9, 3), (8, 8), (5, 7), (30, 2)]
    for shape in sizes * 2:
        check(array(integers(*shape)), array(integers(*shape)))
    assert made(stencil, array(integers(2, 2)), array(integers(2, 2))) == tuning.MOST_SHAPES


@pytest.mark.usefixtures("third")
def test_shapes_that_never_come_again():
    x = array(integers(8, 8))
    for k in range(2, 200):
        a = integers(k, 3)
        b = np.zeros_like(a)
        stencil(a, b)
        np.testing.assert_array_equal(b, by_numpy(a))
    assert made(stencil, x, x) in (0, -1)


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)])
def test_arrays_without_elements(shape, monkeypatch):
    """Of numpy: ours have some. An empty array has no shape to specialize."""
    asked = []
    build = specialization.ShapeSpecializer._build
    monkeypatch.setattr(
        specialization.ShapeSpecializer,
        "_build",
        lambda self, found: asked.append(found) or build(self, found),
    )
    x, y, z = np.zeros(shape, np.int32), np.zeros(shape, np.int32), integers(6, 6)
    stencil(x, y)
    assert asked == []
    kept = z.copy()
    stencil(z, y)
    stencil(x, z)
    assert asked == [{"x": (6, 6)}, {"y": (6, 6)}]
    np.testing.assert_array_equal(z, kept)


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (2, 2), (33, 31)])
def test_small_and_odd_shapes(shape):
    x, y = array(integers(*shape)), array(integers(*shape))
    check(x, y)
    assert made(stencil, x, y) == 1


@pytest.mark.parametrize("how", ["off", "debug", "prints", "draws"])
def test_kernels_that_have_one_form(how, monkeypatch):
    monkeypatch.setenv("VKCHI_SHAPES", "0" if how == "off" else "first")
    ti.init(arch=ti.vulkan, debug=how == "debug")

    @ti.kernel
    def prints(x: A, y: A):
        for i, j in x:
            y[i, j] = x[i, j]
            if x[i, j] > 1000:
                print(x[i, j])

    @ti.kernel
    def draws(x: A, y: A):
        for i, j in x:
            y[i, j] = ti.cast(ti.random() * 10, ti.i32) + x[i, j]

    kernel = {"prints": prints, "draws": draws}.get(how, stencil)
    x, y = array(integers(8, 8)), array(integers(8, 8))
    kernel(x, y)
    assert made(kernel, x, y) == -1


@pytest.mark.usefixtures("third")
@pytest.mark.parametrize("demand", [None, 64])
def test_iterations_that_see_their_workgroup(demand):
    """Of a size that nobody demanded, constant extents would make another one."""

    @ti.kernel
    def places(x: ti.types.ndarray(ti.i32, 1)):
        if ti.static(demand is not None):
            ti.loop_config(block_dim=64)
        for i in x:
            x[i] = ti.simt.block.thread_idx()

    found = []
    for _ in range(5):
        x = array(np.zeros(1000, np.int32))
        places(x)
        found.append(x.to_numpy().tolist())
    assert all(one == found[0] for one in found)
    (met,) = executable(places, x).shapes.made.values()
    assert (met.form is executable(places, x).form) == (demand is None)


@pytest.mark.usefixtures("first")
def test_kernels_that_ask_for_no_extents():
    x = ti.field(ti.i32, 8)

    @ti.kernel
    def only_fields(a: ti.i32):
        for i in x:
            x[i] = a

    only_fields(3)
    assert executable(only_fields, 3).shapes is None
    assert x.to_numpy().tolist() == [3] * 8


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize(
    ("error", "lines"),
    [(DeviceError("not here"), 0), (Unsupported("not yet"), 0), (KeyError("a bug"), 1)],
)
def test_failed_specialization_falls_back(error, lines, monkeypatch, caplog):
    """It is tried once, bugs of ours are reported, and the general code runs."""
    x, y = array(integers(8, 8)), array(integers(8, 8))
    tries = []

    def refuse(*args: Any) -> None:
        tries.append(args)
        raise error

    monkeypatch.setattr(content, "build_specialized", refuse)
    for _ in range(3):
        check(x, y)
    assert len(tries) == 1
    assert len(caplog.messages) == lines
    assert all(text.startswith("stencil(): there is no code") for text in caplog.messages)
    caplog.clear()


@pytest.mark.usefixtures("first")
def test_signal_handler_exceptions_propagate(monkeypatch):
    x, y = array(integers(8, 8)), array(integers(8, 8))

    def late(*args: Any) -> None:
        raise TimeoutError

    with monkeypatch.context() as patch:
        patch.setattr(content, "build_specialized", late)
        with pytest.raises(TimeoutError):
            stencil(x, y)
    check(x, y)
    assert made(stencil, x, y) == 1


@pytest.mark.usefixtures("first")
def test_code_that_works_on_other_arrays_is_left(monkeypatch):
    """A launch copies, and guards, the arrays that the code for any extents reads and writes."""
    make = content.build_specialized

    def with_more(*args: Any) -> Any:
        artifact = make(*args)
        dispatches = [d._replace(writes=d.writes | {"x"}) for d in artifact.dispatches]
        return artifact._replace(dispatches=tuple(dispatches))

    monkeypatch.setattr(content, "build_specialized", with_more)
    x, y = array(integers(8, 8)), array(integers(8, 8))
    check(x, y)
    found = executable(stencil, x, y)
    assert [met.form for met in found.shapes.made.values()] == [found.form]


@pytest.mark.usefixtures("third")
@pytest.mark.parametrize("again", [False, True])
def test_an_interrupt_while_it_is_made(again, monkeypatch):
    x, y = array(integers(8, 12)), array(integers(8, 12))
    z = array(integers(8, 12))
    make = content.build_specialized

    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    for _ in range(2):
        check(x, y)
    monkeypatch.setattr(content, "build_specialized", interrupt)
    with pytest.raises(KeyboardInterrupt):
        stencil(x, y if again else z)
    assert made(stencil, x, y) == 0
    monkeypatch.setattr(content, "build_specialized", make)
    check(x, y if again else z)
    assert made(stencil, x, y) == 1
    check(x, y)


# --- arguments -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("first")
def test_arrays_of_numpy():
    for shape in [(8, 9), (3, 4), (8, 9), (40, 30), (2, 2), (6, 6)]:
        x = integers(*shape)
        y = np.zeros_like(x)
        stencil(x, y)
        np.testing.assert_array_equal(y, by_numpy(x))
    part = integers(20, 30)[2:15, 3:21]
    y = np.zeros_like(part)
    stencil(part, y)
    np.testing.assert_array_equal(y, by_numpy(part))


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_arrays_of_numpy_that_begin_anywhere(dtype, need):
    """A constant shape says nothing of where memory begins."""
    need("u8" if dtype is np.uint8 else "i32")

    @ti.kernel
    def scale(x: ti.types.ndarray(ndim=1), y: ti.types.ndarray(ndim=1)):
        for i in x:
            y[i] = (ti.cast(x[i], ti.i32) * 3) >> 2

    values = integers(1200).astype(dtype)
    for at in (0, 1, 2, 3, 4, 5, 7, 16):
        for n in (256, 333, 1000):
            x, memory = values[at : at + n], np.full(n + 40, 7, dtype)
            scale(x, memory[at + 1 : at + 1 + n])
            want = np.full(n + 40, 7, dtype)
            want[at + 1 : at + 1 + n] = (x.astype(np.int32) * 3) >> 2
            np.testing.assert_array_equal(memory, want)


@pytest.mark.usefixtures("third")
def test_arrays_of_numpy_that_get_another_shape():
    @ti.kernel
    def number(x: A):
        for i, j in x:
            x[i, j] = 100 * i + j

    x = np.zeros((6, 8), np.int32)
    for shape in [(6, 8), (8, 6), (3, 16), (6, 8)]:
        x.shape = shape
        for _ in range(4):
            x[...] = 0
            number(x)
            want = np.add.outer(100 * np.arange(shape[0]), np.arange(shape[1]))
            np.testing.assert_array_equal(x, want)


@pytest.mark.usefixtures("first")
def test_a_new_array_where_another_one_was():
    """Of the same `id`, and another shape."""
    seen, again = set(), 0
    for k in range(60):
        x, y = array(integers(5 + k % 3, 9)), array(integers(5 + k % 3, 9))
        again += id(x) in seen
        seen.add(id(x))
        for _ in range(2):
            check(x, y)
        del x, y
    assert again


@pytest.mark.usefixtures("third")
def test_threads_that_launch_while_it_is_made():
    wrong = []

    def work(k: int) -> None:
        for turn in range(10):
            for shape in [(20, 30), (30, 20), (7, 9)]:
                a = integers(*shape) + k + turn
                x, y, b = array(a), array(a), np.zeros_like(a)
                stencil(x, y)
                stencil(a, b)
                wrong.extend(got for got in (y.to_numpy(), b) if (got != by_numpy(a)).any())

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    x, y = array(integers(20, 30)), array(integers(20, 30))
    assert made(stencil, x, y) == 3


@pytest.mark.usefixtures("first")
def test_array_passed_twice():
    """A constant shape makes no argument memory of its own."""

    @ti.kernel
    def along(x: A, y: A):
        for i in range(x.shape[0]):
            for j in range(x.shape[1] - 1):
                x[i, j + 1] += y[i, j]

    values = integers(16, 40)
    x = array(values)
    along(x, x)
    np.testing.assert_array_equal(x.to_numpy(), np.cumsum(values, 1, np.int32))
    x, y = array(values), array(values)
    along(x, y)
    want = values.copy()
    want[:, 1:] += values[:, :-1]
    np.testing.assert_array_equal(x.to_numpy(), want)


@pytest.mark.usefixtures("first")
def test_counts_in_a_small_array():
    x, counts = array(integers(200, 300)), array(np.zeros(16, np.int32))
    add_up(x, counts)
    want = np.bincount((x.to_numpy() % 16).ravel(), minlength=16)
    np.testing.assert_array_equal(counts.to_numpy(), want)
    assert made(add_up, x, counts) == 1


@pytest.mark.usefixtures("first")
def test_structs_and_vectors():
    s, p = ti.ndarray(CELL, 7), ti.ndarray(ti.math.vec2, 7)
    values = np.arange(14, dtype=np.float32).reshape(7, 2)
    p.from_numpy(values)
    for i in range(7):
        s[i] = CELL(v=[i, 0, 1], m=0.5)
    move(s, p)
    assert made(move, s, p) == 1
    for i in range(7):
        assert s[i].v.to_list() == [
            i + 0.5 * values[i, 0],
            0.5 * values[i, 0],
            1 + 0.5 * values[i, 0],
        ]
        assert s[i].m == (values[i + 1, 1] if i < 6 else 0.5)


@pytest.mark.usefixtures("first")
def test_numbers_change_and_elements_outside_stay():
    @ti.kernel
    def shift(x: A, y: A, k: ti.i32):
        for i, j in y:
            y[i, j] = x[i, j - k] if 0 <= j - k < x.shape[1] else -1
            x[i + k, j] = x[i + k, j]  # outside for some

    values = integers(12, 17)
    x, y = array(values), array(values)
    for k in (0, 1, 5, 20):
        shift(x, y, k)
        want = np.full_like(values, -1)
        want[:, k:] = values[:, : max(17 - k, 0)]
        np.testing.assert_array_equal(y.to_numpy(), want)


@pytest.mark.usefixtures("third")
def test_kernel_results():
    @ti.kernel
    def total(x: A) -> ti.i32:
        s = 0
        for i, j in x:
            s += x[i, j]
        return s

    for shape in [(9, 9), (30, 40)]:
        x = array(integers(*shape))
        assert [total(x) for _ in range(5)] == [int(x.to_numpy().sum())] * 5
    assert made(total, x) == 2


# --- graphs, tapes, processes --------------------------------------------------------------------


@pytest.mark.usefixtures("first")
def test_graphs_with_arrays_swapped_for_others():
    builder = GraphBuilder()
    x, y = (Arg(ArgKind.NDARRAY, name, ti.i32, ndim=2) for name in "xy")
    builder.dispatch(stencil, x, y)
    graph = builder.compile()
    for shape in [(8, 8), (5, 9), (8, 8), (31, 2), (7, 7), (6, 5), (5, 9)]:
        a, b = array(integers(*shape)), array(integers(*shape))
        for _ in range(2):
            graph.run({"x": a, "y": b})
            np.testing.assert_array_equal(b.to_numpy(), by_numpy(a.to_numpy()))


@pytest.mark.usefixtures("first")
def test_recorded_calls():
    @ti.kernel
    def double(y: A):
        for i, j in y:
            y[i, j] *= 2

    x, y = array(integers(9, 14)), array(integers(9, 14))
    with ti.record() as g:
        stencil(x, y)
        double(y)
        double(y)
    g.run(3)
    np.testing.assert_array_equal(y.to_numpy(), 4 * by_numpy(x.to_numpy()))


def test_a_recorded_launch_counts_for_many(monkeypatch):
    monkeypatch.delenv("VKCHI_SHAPES", raising=False)
    monkeypatch.setattr(specialization.ShapeSpecializer, "_launches", lambda self, *launch: 100)
    ti.init(arch=ti.vulkan)
    x, y = array(integers(9, 14)), array(integers(9, 14))
    with ti.record() as g:
        stencil(x, y)
    g.run()
    assert made(stencil, x, y) == 1


@pytest.mark.usefixtures("third")
@pytest.mark.parametrize("n", [1, 2, 40, 129])
def test_specialized_gradients(n):
    values = np.arange(n, dtype=np.float32) / 4
    ones = np.ones(n, np.float32)
    want = np.zeros(n, np.float32)
    before = np.maximum(np.arange(n) - 1, 0)
    np.add.at(want, np.arange(n), values[before])
    np.add.at(want, before, values)
    for _ in range(5):
        x, y = (array(v, needs_grad=True) for v in (values, 0 * values))
        y.grad.from_numpy(ones)
        square.grad(x, y)
        np.testing.assert_allclose(x.grad.to_numpy(), want)
    for _ in range(5):
        x, y = (array(v, needs_grad=True) for v in (values, 0 * values))
        loss = ti.ndarray(ti.f32, (), needs_grad=True)
        with ti.ad.Tape(loss):
            square(x, y)
            total_of(y, loss)
        np.testing.assert_allclose(x.grad.to_numpy(), want)


@ti.kernel
def total_of(y: F, loss: ti.types.ndarray(ti.f32, 0)):
    for i in y:
        loss[None] += y[i]


@pytest.mark.usefixtures("first")
def test_gradients_have_code_of_their_own():
    x, y = (array(np.ones(50, np.float32), needs_grad=True) for _ in range(2))
    y.grad.fill(1.0)
    square.grad(x, y)
    found = square.inspect(gradients_of, x, y)
    assert [len(one.main.shapes.made) for one in found] == [1]


@ti.kernel
def layer(w: ti.types.ndarray(ti.f32, 2), x: F, y: F):
    for i in y:
        s = 0.0
        for j in range(x.shape[0]):
            s += w[i, j] * x[j]
        y[i] = ti.tanh(s)


@pytest.mark.usefixtures("first")
def test_expanded_scalars_have_own_memory(monkeypatch):
    """Values of a layer, in an array as long as these extents (`opt.loops.scatter.expand`)."""
    monkeypatch.setattr(tuning, "LAUNCHES", 1 << 40)
    rng = np.random.default_rng(1)
    for n, m in [(64, 96), (96, 128), (64, 96)]:
        values = [rng.random(s, dtype=np.float32) / m for s in ((n, m), m)]
        w, x = (array(v, needs_grad=True) for v in values)
        y = array(np.zeros(n, np.float32), needs_grad=True)
        y.grad.fill(1.0)
        layer(w, x, y)
        layer.grad(w, x, y)
        slope = 1 - np.tanh(values[0] @ values[1]) ** 2
        np.testing.assert_allclose(x.grad.to_numpy(), slope @ values[0], rtol=1e-4)
        np.testing.assert_allclose(w.grad.to_numpy(), np.outer(slope, values[1]), rtol=1e-4)
    found = layer.inspect(gradients_of, w, x, y)
    forms = [met.form for one in found for met in one.main.shapes.made.values()]
    shapes_of_temps = [[array.shape for array in form.temps.values()] for form in forms]
    if current_runtime().device.caps.is_cpu:
        assert shapes_of_temps == [[(64,)], [(96,)]]


PROGRAM = """
import sys
import numpy as np
import vkchi as ti
ti.init(arch=ti.vulkan)
if "strict" in sys.argv:
    import vkchi.kernel
    import vkchi.compiler
    def refuse(fn, *rest):
        raise SystemExit("compiled anew")
    vkchi.compiler._build = vkchi.kernel.compile_anew = refuse

@ti.kernel
def step(x: ti.types.ndarray(ti.f32, 1), y: ti.types.ndarray(ti.f32, 1)):
    for i in x:
        y[i] = x[i] + x[(i + 1) % x.shape[0]]

arrays = [ti.ndarray(ti.f32, 100, needs_grad=True) for _ in range(2)]
step(*arrays)
step.grad(*arrays)
look = lambda plan, _: (len(plan.shapes.made), *[
    len(one.main.shapes.made)
    for (kind, _), one in plan.derived.found.items() if kind == "gradient"])
print(*step.inspect(look, *arrays))
print("vkchi.compiler" in sys.modules)
"""


def test_the_next_process_begins_with_it(cache_environment, tmp_path):
    path, cache = tmp_path / "program.py", tmp_path / "cache"
    path.write_text(PROGRAM)

    def run(mode: str, *more: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, str(path), *more], capture_output=True, text=True, check=False,
            env={**cache_environment(cache), "VKCHI_SHAPES": mode},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-2:]

    assert run("1") == ["0 0", "True"]
    assert run("first") == ["1 1", "True"]
    assert run("1", "strict") == ["1 1", "True"]  # imported to be refused
    assert run("1") == ["1 1", "False"]
    texts = [entry.header["signature"] for entry in CacheStore(cache).entries()]
    assert any("x: array<f32[100]>" in text for text in texts)
