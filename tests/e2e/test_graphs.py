"""`ti.graph`: results of graphs, arguments that cause a new recording, unsupported uses."""

from __future__ import annotations

import copy
import gc
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import ArgumentError, ArgumentListError, KernelTypeError
from vkchi.graph import Arg, ArgKind, Graph, GraphBuilder
from vkchi.launch import replay
from vkchi.runtime import current_runtime
from vkchi.target import tuning

A = Arg(ArgKind.SCALAR, "a", ti.f32)
X = Arg(ArgKind.NDARRAY, "x", ti.f32, ndim=1)
Y = Arg(ArgKind.NDARRAY, "y", ti.f32, ndim=1)
T = ti.types.vector(16, ti.f32)


@pytest.fixture(autouse=True, params=["in commands", "in memory"])
def arguments(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Location of recorded dispatches' arguments: in memory from the first run, or not."""
    if request.param == "in memory":
        monkeypatch.setattr(replay, "MOST_RERECORDED", 0)


@ti.kernel
def add(a: ti.f32, x: ti.types.ndarray(dtype=ti.f32, ndim=1)):
    for i in x:
        x[i] += a


@ti.kernel
def mix(a: ti.f32, x: ti.types.ndarray(ti.f32, 1), y: ti.types.ndarray(ti.f32, 1)):
    for i in x:
        y[i] = a * x[i] + 2 * y[i]


@ti.kernel
def count(n: ti.i32, x: ti.types.ndarray(ti.f32, 1)):
    for i in range(n):
        x[i] += 1


def graph(*calls: Any) -> Graph:
    builder = GraphBuilder()
    for call in calls:
        builder.dispatch(*call)
    return builder.compile()


def array(n: int = 8) -> Any:
    x = ti.ndarray(ti.f32, n)
    x.from_numpy(np.arange(n, dtype=np.float32))
    return x


def executed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of dispatches in every sequence that is run from now on."""
    found: list[int] = []
    device = current_runtime().device
    run = device.execute
    monkeypatch.setattr(device, "execute", lambda s: (found.append(s.count), run(s))[1])
    return found


def test_a_graph_runs_its_kernels_in_order() -> None:
    g, x, y = graph((add, A, X), (mix, A, X, Y), (add, A, Y)), array(), array()
    wanted_x, wanted_y = x.to_numpy(), y.to_numpy()
    for a in (1.0, 1.0, 0.5, -0.0, 2, 2, np.float32(3)):
        g.run({"a": a, "x": x, "y": y})
        wanted_x += a
        wanted_y = a * wanted_x + 2 * wanted_y + a
        assert np.array_equal(x.to_numpy(), wanted_x)
        assert np.array_equal(y.to_numpy(), wanted_y)


@pytest.mark.parametrize("wrong", [None, 3, [1.0], "a"])
def test_arguments_that_are_no_dict(wrong: Any) -> None:
    graph = GraphBuilder().compile()
    with pytest.raises(ArgumentError, match="takes a dict of values by name"):
        graph.run(wrong)


def test_the_same_arguments_are_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "MERGED_LAUNCHES", 1)
    g, x, y = graph(*[(add, A, X)] * 5, (mix, 1.0, X, Y)), array(), array()
    device, made = current_runtime().device, []
    make = device.sequence
    monkeypatch.setattr(
        device, "sequence", lambda c, like=None: (made.append(len(c)), make(c, like))[1]
    )
    found = executed(monkeypatch)
    for _ in range(3):
        g.run({"a": 1.0, "x": x, "y": y})
    assert (made, found) == ([6], [6, 6, 6])
    g.run({"a": 2.0, "x": x, "y": y})
    g.run({"a": 2.0, "x": y, "y": x})
    g.run({"a": 2.0, "x": x, "y": y})
    assert made == [6] * (3 if replay.MOST_RERECORDED else 2)


def test_arrays_that_are_swapped_and_change_shapes() -> None:
    g = graph((mix, 1.0, X, Y))
    a, b = array(), array()
    wanted_a, wanted_b = a.to_numpy(), b.to_numpy()
    for _ in range(3):
        g.run({"x": a, "y": b})
        wanted_b = wanted_a + 2 * wanted_b
        g.run({"x": b, "y": a})
        wanted_a = wanted_b + 2 * wanted_a
    assert np.array_equal(a.to_numpy(), wanted_a)
    for n in range(1, 20):  # more than are kept
        c, d = array(n), array(n)
        g.run({"x": c, "y": d})
        assert np.array_equal(d.to_numpy(), 3 * np.arange(n))
    g.run({"x": c, "y": c})  # one memory for both
    assert np.array_equal(c.to_numpy(), 3 * np.arange(19))


def test_an_array_may_die_while_the_graph_still_runs_with_it() -> None:
    g, total = graph(*[(mix, 1.0, X, Y)] * 20), array(1 << 12)
    total.fill(0)
    for k in range(10):
        x = ti.ndarray(ti.f32, 1 << 12)
        x.fill(k)
        g.run({"x": x, "y": total})
        total.fill(0)
        g.run({"x": x, "y": total})
        del x
    gc.collect()
    assert np.all(total.to_numpy() == 9 * (2**20 - 1))


def test_a_number_of_iterations_changes_with_an_argument() -> None:
    g = graph((count, Arg(ArgKind.SCALAR, "n", ti.i32), X))
    x = ti.ndarray(ti.f32, 300)
    for n in (3, 0, 0, 300, -1, 5):
        g.run({"n": n, "x": x})
    wanted = np.zeros(300)
    for n in (3, 0, 0, 300, 0, 5):
        wanted[:n] += 1
    assert np.array_equal(x.to_numpy(), wanted)


def test_between_other_launches_and_accesses() -> None:
    g, x, y = graph((mix, 1.0, X, Y), (add, 1.0, Y)), array(), array()
    wanted_x, wanted_y = x.to_numpy(), y.to_numpy()
    for _ in range(4):
        add(1.0, x)
        g.run({"x": x, "y": y})
        x[0] = 5.0
        mix(1.0, y, x)
        wanted_x = wanted_x + 1
        wanted_y = wanted_x + 2 * wanted_y + 1
        wanted_x[0] = 5
        wanted_x = wanted_y + 2 * wanted_x
    assert np.array_equal(x.to_numpy(), wanted_x)
    assert np.array_equal(y.to_numpy(), wanted_y)


def test_parts_are_appended() -> None:
    builder = GraphBuilder()
    part = builder.create_sequential()
    part.dispatch(add, A, X)
    builder.append(part)
    builder.dispatch(mix, A, X, X)
    builder.append(part)
    part.dispatch(add, 10.0, X)
    g, x = builder.compile(), array(4)
    g.run({"a": 1.0, "x": x})
    assert np.array_equal(x.to_numpy(), 3 * (np.arange(4) + 11) + 11)


def test_vectors_matrices_and_constants_of_all_runs() -> None:
    total = ti.field(ti.f32, 3)

    @ti.kernel
    def apply(m: ti.types.matrix(2, 2, ti.f32), x: ti.types.ndarray(ti.math.vec2, 1)):
        for i in x:
            x[i] = m @ x[i]

    @ti.kernel
    def collect(f: ti.template(), k: ti.i32, x: ti.types.ndarray(ti.math.vec2, 1)):
        f[k] = x[0].sum()

    m = Arg(ArgKind.MATRIX, "m", ti.math.mat2)
    v = Arg(ArgKind.NDARRAY, "v", dtype=ti.math.vec2, ndim=1)
    g = graph((apply, m, v), (collect, total, 1, v))
    x = ti.Vector.ndarray(2, ti.f32, 2)
    x.fill(1)
    turn = ti.Matrix([[0.0, 1.0], [2.0, 0.0]])
    g.run({"m": turn, "v": x})
    assert total.to_numpy().tolist() == [0, 3, 0]
    turn[0, 1] = 3.0
    g.run({"m": turn, "v": x})
    assert total.to_numpy().tolist() == [0, 6 + 2, 0]
    with pytest.raises(ArgumentError, match="shape"):
        g.run({"m": ti.Vector([1.0, 2.0]), "v": x})
    g.run({"m": [[1.0, 0.0], [0.0, 1.0]], "v": x})
    assert total.to_numpy().tolist() == [0, 8, 0]
    for flat in ([0.0, 1.0, 2.0, 0.0], ti.Vector([0.0, 1.0, 2.0, 0.0])):
        g.run({"m": flat, "v": x})
    assert total.to_numpy().tolist() == [0, 4 * 4, 0]
    with pytest.raises(ArgumentError, match="shape"):
        g.run({"m": [0.0, 1.0, 2.0], "v": x})


def test_textures_in_graphs() -> None:
    @ti.kernel
    def draw(t: ti.f32, tex: ti.types.rw_texture(2, fmt=ti.Format.r32f, lod=0)):
        for i, j in ti.ndrange(4, 4):
            tex.store(ti.Vector([i, j]), ti.Vector([t + i + 10 * j, 0, 0, 0]))

    @ti.kernel
    def read(tex: ti.types.texture(2), x: ti.types.ndarray(ti.f32, 1)):
        for i in x:
            x[i] = tex.fetch(ti.Vector([i, 1]), 0).r

    written = Arg(ArgKind.RWTEXTURE, "written", fmt=ti.Format.r32f, ndim=2)
    g = graph((draw, A, written), (read, Arg(ArgKind.TEXTURE, "tex", ndim=2), X))
    tex, x = ti.Texture(ti.Format.r32f, (4, 4)), array(4)
    for a in (0.0, 100.0):
        g.run({"a": a, "written": tex, "tex": tex, "x": x})
        assert x.to_numpy().tolist() == [a + 10, a + 11, a + 12, a + 13]
    with pytest.raises(ArgumentError, match="`written`: a ti.Texture of ti.Format.r32f"):
        g.run({"a": 0, "written": ti.Texture(ti.Format.rgba8, (4, 4)), "tex": tex, "x": x})


def test_methods_in_graphs() -> None:
    @ti.data_oriented
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

        @ti.kernel
        def run(self, x: ti.types.ndarray(ti.f32, 1)):
            for i in x:
                x[i] *= self.by

    g, x = graph((Scale(3.0).run, X), (Scale(2.0).run, X)), array(4)
    g.run({"x": x})
    assert x.to_numpy().tolist() == [0, 6, 12, 18]


def test_unrecordable_kernels_are_called_in_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @ti.kernel
    def tell(x: ti.types.ndarray(ti.f32, 1)):
        print(x[1])

    @ti.kernel
    def shake(x: ti.types.ndarray(ti.f32, 1)):
        for i in x:
            x[i] = ti.random()

    found = executed(monkeypatch)
    g, x = graph((add, A, X), (add, A, X), (tell, X), (add, A, X)), array(4)
    g.run({"a": 1.0, "x": x})
    g.run({"a": 2.0, "x": x})
    assert capsys.readouterr().out.split() == ["3.000000", "8.000000"]
    assert found == [1, 1, 1, 1]  # the first two are one dispatch
    g, seen = graph((shake, X)), set()
    for _ in range(3):
        g.run({"x": x})
        seen.add(float(x[0]))
    assert len(seen) == 3


def test_a_long_argument_list() -> None:
    @ti.kernel
    def many(a: T, b: T, c: T, x: ti.types.ndarray(ti.f32, 1)):
        for i in x:
            x[i] = a[i % 16] + 10 * b[i % 16] + 100 * c[i % 16]

    a, b, c = (Arg(ArgKind.MATRIX, name, T) for name in "abc")
    g, x = graph(*[(many, a, b, c, X)] * 3), array(32)
    for k in range(3):
        g.run({"a": [float(k)] * 16, "b": [1.0] * 16, "c": [2.0] * 16, "x": x})
        assert np.all(x.to_numpy() == k + 210)


# --- with profilers and reports of kernels -------------------------------------------------------


def test_under_a_tape_gradients_are_those_of_the_kernels() -> None:
    @ti.kernel
    def square(x: ti.types.ndarray(ti.f32, 1), y: ti.types.ndarray(ti.f32, 1)):
        for i in x:
            y[i] = x[i] * x[i]

    @ti.kernel
    def sum_up(y: ti.types.ndarray(ti.f32, 1), loss: ti.types.ndarray(ti.f32, 1)):
        for i in y:
            loss[0] += y[i]

    x, y = (ti.ndarray(ti.f32, 4, needs_grad=True) for _ in range(2))
    loss = ti.ndarray(ti.f32, 1, needs_grad=True)
    x.from_numpy(np.arange(4, dtype=np.float32))
    g = graph((square, X, Y), (sum_up, Y, Arg(ArgKind.NDARRAY, "loss", ti.f32, ndim=1)))
    args = {"x": x, "y": y, "loss": loss}
    g.run(args)
    for _ in range(2):
        loss.fill(0)
        with ti.ad.Tape(loss):
            g.run(args)
        assert np.array_equal(x.grad.to_numpy(), 2 * np.arange(4))
        g.run(args)


@pytest.mark.usefixtures("own_runtime")
def test_in_debug_mode_checks_are_made() -> None:
    ti.init(arch=ti.vulkan, debug=True)

    @ti.kernel
    def stray(n: ti.i32, x: ti.types.ndarray(ti.f32, 1)):
        x[n] = 1.0

    g, x = graph((stray, Arg(ArgKind.SCALAR, "n", ti.i32), X)), ti.ndarray(ti.f32, 4)
    g.run({"n": 3, "x": x})
    assert x[3] == 1
    with pytest.raises(ti.TaichiAssertionError, match="out of bounds|outside"):
        g.run({"n": 4, "x": x})


@pytest.mark.usefixtures("own_runtime")
def test_a_graph_outlives_a_runtime() -> None:
    g = graph((add, A, X))
    for _ in range(2):
        ti.init(arch=ti.vulkan)
        x = ti.ndarray(ti.f32, 4)
        g.run({"a": 1.0, "x": x})
        g.run({"a": 1.0, "x": x})
        assert np.all(x.to_numpy() == 2)
    old = x
    ti.init(arch=ti.vulkan)
    with pytest.raises(ti.TaichiRuntimeError):
        g.run({"a": 1.0, "x": old})


def test_measured_kernels_are_distinguished() -> None:
    if not current_runtime().device.can_time:
        pytest.skip("the device cannot measure time")
    g, x = graph((add, A, X), (add, A, X)), array()
    g.run({"a": 1.0, "x": x})
    with current_runtime().device.timing() as timing:
        g.run({"a": 1.0, "x": x})
    assert [name.partition(".")[0] for name, _ in timing.dispatches] == ["add", "add"]


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "match"),
    [
        ({"x": 0}, "have no values: a"),
        ({"a": 1.0, "x": np.zeros(4, np.float32)}, "`x`: a ti.ndarray of f32 with ndim=1"),
        ({"a": 1.0, "x": 3}, "`x`: a ti.ndarray"),
        ({"a": "1", "x": "array"}, "`a`: a number of f32"),
        ({"a": 1.0, "x": "integers"}, "`x`: a ti.ndarray of f32"),
        ({"a": 1.0, "x": "square"}, "ndim=1"),
    ],
)
def test_values_that_raise(args: dict[str, Any], match: str) -> None:
    made = {
        "array": array(),
        "integers": ti.ndarray(ti.i32, 4),
        "square": ti.ndarray(ti.f32, (2, 2)),
    }
    args = {k: made.get(v, v) if isinstance(v, str) else v for k, v in args.items()}
    with pytest.raises(ArgumentError, match=match):
        graph((add, A, X)).run(args)


def test_invalid_arguments_raise_before_any_kernel_runs() -> None:
    n = Arg(ArgKind.SCALAR, "n", ti.i32)
    g, x = graph((add, A, X), (count, n, X)), array()
    for _ in range(2):
        with pytest.raises(ArgumentError, match=r"count\(\): argument `n`"):
            g.run({"a": 1.0, "n": 1.5, "x": x})
        assert np.array_equal(x.to_numpy(), np.arange(8))
    g.run({"a": 0.0, "n": 8, "x": x, "z": 3})  # unused arguments are ignored, as in Taichi
    with pytest.raises(ArgumentError, match="`n`"):
        g.run({"a": 1.0, "n": 1.5, "x": x})
    g.run({"a": 0.0, "n": 0, "x": x})
    assert np.array_equal(x.to_numpy(), np.arange(8) + 1)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        ((add, Arg(ArgKind.SCALAR, "a", ti.i32), X), KernelTypeError, "f32 is needed, not i32"),
        (
            (add, A, Arg(ArgKind.NDARRAY, "x", ti.i32, ndim=1)),
            KernelTypeError,
            "array of f32 is needed",
        ),
        ((add, A, Arg(ArgKind.NDARRAY, "x", ti.f32, ndim=2)), KernelTypeError, "1 axis is needed"),
        (
            (add, A, Arg(ArgKind.NDARRAY, "x", ti.math.vec2, ndim=1)),
            KernelTypeError,
            "not of f32<2>",
        ),
        ((add, X, X), KernelTypeError, "argument `a` of kernel add.* takes no ArgKind.NDARRAY"),
        ((add, A), ArgumentListError, "missing"),
        ((add, A, X, X), ArgumentListError, "too many"),
        ((len, A), ArgumentError, "takes a ti.kernel"),
    ],
)
def test_dispatches_that_raise(call: Any, error: type, match: str) -> None:
    with pytest.raises(error, match=match):
        GraphBuilder().dispatch(*call)


def test_graphs_that_raise() -> None:
    with pytest.raises(ArgumentError, match="two arguments `a`"):
        graph((add, A, X), (count, Arg(ArgKind.SCALAR, "a", ti.i32), X))
    with pytest.raises(ArgumentError, match="create_sequential"):
        GraphBuilder().append(add)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("args", "facts", "match"),
    [
        (("SCALAR", "a", ti.f32), {}, "tag must be"),
        ((ArgKind.SCALAR, 3, ti.f32), {}, "name must be"),
        ((ArgKind.SCALAR, "a"), {}, "needs dtype"),
        ((ArgKind.SCALAR, "a", ti.f32, 1), {}, "takes dtype, not ndim"),
        ((ArgKind.SCALAR, "a", ti.math.vec2), {}, "a scalar type"),
        ((ArgKind.MATRIX, "a", ti.f32), {}, "a vector or matrix type"),
        ((ArgKind.NDARRAY, "a", ti.f32), {}, "needs ndim"),
        ((ArgKind.NDARRAY, "a", ti.f32), {"field_dim": 1}, "write ndim="),
        ((ArgKind.RWTEXTURE, "a"), {"ndim": 2, "fmt": ti.Format.unknown}, "of colours"),
        ((ArgKind.RWTEXTURE, "a"), {"ndim": 2, "num_channels": 1}, "write fmt="),
    ],
)
def test_arguments_that_raise(args: Any, facts: Any, match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        Arg(*args, **facts)


def test_an_argument_prints_its_type() -> None:
    assert repr(X) == "Arg(ArgKind.NDARRAY, 'x', dtype=f32, ndim=1)"
    assert copy.copy(X).is_like(X)


def test_numbers_that_loops_depend_on_move_barriers() -> None:
    """A loop without iterations loses its dispatch, and others need barriers."""

    @ti.kernel
    def two(n: ti.i32, m: ti.i32, x: ti.types.ndarray(ti.f32, 1), y: ti.types.ndarray(ti.f32, 1)):
        for i in range(n):
            x[i] += 1
        for i in range(m):
            y[i] += x[(i * 7919) % 100_000]

    n, m = Arg(ArgKind.SCALAR, "n", ti.i32), Arg(ArgKind.SCALAR, "m", ti.i32)
    big = 100_000
    g, x, y = graph(*[(two, n, m, X, Y)] * 4), ti.ndarray(ti.f32, big), ti.ndarray(ti.f32, big)
    want_x = want_y = 0
    for a, b in ((big, 0), (0, big), (big, big), (0, 0), (0, big), (big, big), (big, 0)):
        g.run({"n": a, "m": b, "x": x, "y": y})
        for _ in range(4):
            want_x += a > 0
            want_y += want_x if b else 0
        assert (x.to_numpy() == want_x).all() and (y.to_numpy() == want_y).all()


def test_numbers_of_all_types_are_patched() -> None:
    types = (
        [ti.i32, ti.f32, ti.u8, ti.i64, ti.f64]
        if current_runtime().device.caps.float64
        else [ti.i32]
    )
    for dtype in types:

        @ti.kernel
        def put(a: dtype, v: ti.types.vector(3, ti.i32), x: ti.types.ndarray(dtype, 1)):
            for i in x:
                x[i] = ti.cast(a + v[i], dtype)

        x = ti.ndarray(dtype, 3)
        g = graph((put, Arg(ArgKind.SCALAR, "a", dtype), Arg(ArgKind.MATRIX, "v", ti.math.ivec3),
                   Arg(ArgKind.NDARRAY, "x", dtype, ndim=1)))  # fmt: skip
        for a in (1, 2, 100, 7):
            g.run({"a": a, "v": ti.Vector([a, 1, 2]), "x": x})
            assert x.to_numpy().tolist() == [2 * a, a + 1, a + 2]


@ti.kernel
def draw(x: ti.types.ndarray(ti.f32, 1)):
    for i in x:
        x[i] += ti.random()
    for i in x:
        x[i] += 2.0 * ti.random() + ti.randn()


def test_random_numbers_are_those_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run draws others, the same ones as if the kernels were called."""
    runtime, found = current_runtime(), executed(monkeypatch)
    g, x, y = graph((draw, X), (add, A, X), (draw, X)), array(64), array(64)
    begin, rows = runtime.draws, []
    for k in range(4):
        g.run({"x": x, "a": 0.5 + k // 2})
        rows.append(x.to_numpy())
    assert found == [5] * 4
    monkeypatch.setattr(runtime, "draws", begin)
    for k in range(4):
        draw(y)
        add(0.5 + k // 2, y)
        draw(y)
        assert np.array_equal(y.to_numpy(), rows[k])
    steps = np.diff(rows, axis=0)
    assert np.abs(steps[0] - steps[1]).min() > 0


def test_numbers_that_change_often_are_not_recorded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """From some number of changes on, arguments stand in memory; runs in flight keep theirs."""
    monkeypatch.setattr(replay, "MOST_RERECORDED", 12)
    device, made = current_runtime().device, []
    sequence = device.sequence
    monkeypatch.setattr(device, "sequence", lambda c, *r: (made.append(len(c)), sequence(c, *r))[1])
    g, x, y = graph((add, A, X), (mix, A, X, Y), (add, A, X)), array(), array()
    want_x, want_y = x.to_numpy(), y.to_numpy()
    for k in range(40):
        a = float(np.float32(0.01 * k))
        g.run({"a": a, "x": x, "y": y})
        want_x += np.float32(a)
        want_y = np.float32(a) * want_x + 2 * want_y
        want_x += np.float32(a)
    assert 5 < len(made) < 20
    assert np.allclose(x.to_numpy(), want_x) and np.allclose(y.to_numpy(), want_y, rtol=1e-4)
