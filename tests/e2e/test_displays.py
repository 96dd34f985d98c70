"""`repr` and `str` of arrays and kernels, and pictures in notebooks."""

from __future__ import annotations

import copy
import io
import threading

import numpy as np
import pytest

import vkchi as ti
from tests.e2e.torture import Alarm
from vkchi.fields.display import describe
from vkchi.runtime import current_runtime

SHAPES = [(), (5,), (2000,), (50, 60), (3, 4000), (20, 30, 40), (11, 11, 11, 2)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [ti.f32, ti.i32, ti.u1])
def test_str_of_a_field_is_that_of_its_numpy_array(shape, dtype):
    x = ti.field(dtype, shape)
    values = np.random.default_rng(1).normal(scale=1000, size=shape)
    x.from_numpy(np.asarray(values).astype(x.to_numpy().dtype))
    assert str(x) == str(x.to_numpy())


def test_str_of_a_field_without_axes():
    x = ti.field(ti.f32, ())
    assert str(x) == "0.0" and repr(x) == "ti.field(0., shape=(), dtype=f32)"


def test_str_follows_numpys_print_options():
    x = ti.field(ti.f32, (30, 40))
    x.from_numpy(np.arange(1200, dtype=np.float32).reshape(30, 40) / 7)
    with np.printoptions(threshold=20, edgeitems=2, precision=2):
        assert str(x) == str(x.to_numpy())
    with np.printoptions(threshold=5000):
        assert str(x) == str(x.to_numpy())


def test_str_of_layouts():
    blocks, offset = ti.field(ti.f32), ti.field(ti.i32)
    ti.root.dense(ti.ij, 8).dense(ti.ij, 8).place(blocks)
    ti.root.dense(ti.ij, 64).place(offset, offset=(-3, 5))
    vectors = ti.Vector.field(3, ti.f32, (30, 40), layout=ti.Layout.SOA)
    rows = np.arange(64 * 64).reshape(64, 64)
    blocks.from_numpy(rows.astype(np.float32))
    offset.from_numpy(rows.astype(np.int32))
    vectors.from_numpy(np.arange(3600, dtype=np.float32).reshape(30, 40, 3))
    for x in (blocks, offset, vectors):
        assert str(x) == str(x.to_numpy())


def test_str_of_quantised_and_sparse_fields():
    q, x = ti.field(ti.types.quant.int(5)), ti.field(ti.f32)
    word = ti.BitpackedFields(max_num_bits=32)
    word.place(q)
    ti.root.dense(ti.i, 3000).place(word)
    ti.root.pointer(ti.i, 400).dense(ti.i, 8).place(x)
    q[2], q[2999], x[9], x[3198] = 7, -5, 2.5, 3.5
    assert str(q) == str(q.to_numpy()) and "-5" in str(q)
    assert str(x) == str(x.to_numpy()) and "3.5" in str(x)


def test_only_the_printed_elements_are_read(monkeypatch):
    x = ti.field(ti.f32, (4000, 500))
    monkeypatch.setattr(type(x), "contents", lambda self: pytest.fail("the whole field is read"))
    assert repr(x).count("...") == 7


def test_repr_shows_values_shape_and_type():
    x = ti.field(ti.f32, 3)
    x[1] = 2.5
    assert repr(x) == "ti.field([0. , 2.5, 0. ], shape=(3,), dtype=f32)"
    y = ti.ndarray(ti.i32, (2, 2))
    assert repr(y) == "ti.ndarray([[0, 0],\n            [0, 0]], shape=(2, 2), dtype=i32)"
    assert str(y) == repr(y)
    s = ti.Struct.field({"a": ti.i32, "v": ti.math.vec2}, shape=2)
    assert repr(s) == (
        "ti.Struct.field(\n    a=[0, 0],\n    v=[[0., 0.],\n       [0., 0.]],\n    shape=(2,)\n)"
    )


def test_repr_allocates_nothing():
    x, y = ti.field(ti.f32), ti.field(ti.f32)
    ti.root.dense(ti.i, 4).place(x)
    assert repr(x) == "<ti.field of f32, shape (4,), without memory so far>"
    assert repr(y) == "<ti.field of f32, not placed>"
    assert str(y) == "<Field: Definition of this field is incomplete>"
    assert str(x) == "[0. 0. 0. 0.]"


def test_messages_have_no_values():
    x = ti.field(ti.f32, 3)

    @ti.kernel
    def k(n: ti.i32):
        pass

    with pytest.raises(ti.TaichiRuntimeTypeError, match=r"not <ti.field of f32, shape \(3,\)>"):
        k(x)


def test_a_tape_does_not_see_repr():
    x, loss = ti.field(ti.f32, 2, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
    x[0] = 3.0

    @ti.kernel
    def square():
        loss[None] += x[0] ** 2

    with ti.ad.Tape(loss):
        assert repr(x).startswith("ti.field([3., 0.]")
        square()
        assert "9." in str(loss) and "9." in repr(loss)
    assert x.grad[0] == 6.0 and "6." in repr(x.grad)


def test_a_recording_shows_no_values():
    x = ti.field(ti.f32, 2)

    @ti.kernel
    def fill():
        x[0] = 1

    with ti.record() as graph:
        fill()
        assert repr(x) == str(x) == "<ti.field of f32, shape (2,)>"
    graph.run()
    assert "1." in repr(x)


def test_freed_arrays_are_described(own_runtime):
    ti.init()
    x, y = ti.field(ti.f32, 2), ti.ndarray(ti.f32, 2)
    s = ti.Struct.field({"a": ti.i32}, shape=2)
    ti.init()
    assert repr(x) == str(x) == "<ti.field of f32, shape (2,), freed>"
    assert repr(y) == "<ti.ndarray of f32, shape (2,), freed>"
    assert repr(s) == "<ti.Struct.field of struct(a=i32), shape (2,), freed>"


def test_a_lock_of_a_stopped_thread_is_not_awaited():
    x = ti.field(ti.f32, 2)
    held, done = threading.Event(), threading.Event()

    def hold():
        with current_runtime().lock:
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    try:
        assert repr(x) == describe(x)
    finally:
        done.set()
        thread.join()
    assert repr(x) != describe(x)


def test_copies_are_shown():
    x = ti.field(ti.f32, 2)
    x[1] = 4
    assert "4." in repr(copy.deepcopy(x))


class TestPictures:
    @staticmethod
    def pixels_of(x):
        image = pytest.importorskip("PIL.Image")
        return np.asarray(image.open(io.BytesIO(x._repr_png_())))

    def test_a_field_of_greys(self):
        x = ti.field(ti.f32, (20, 30))
        values = np.linspace(0, 1, 600, dtype=np.float32).reshape(20, 30)
        x.from_numpy(values)
        expected = np.round(values * 255).astype(np.uint8).T[::-1]  # x to the right, y up
        assert (self.pixels_of(x) == expected).all()
        assert x._repr_html_().startswith('<img src="data:image/png;base64,')
        assert "shape (20, 30)" in x._repr_html_()

    def test_a_field_of_colours(self):
        x = ti.Vector.field(3, ti.f32, (20, 30))
        x[4, 5] = [1, 0.5, 0]
        assert self.pixels_of(x)[30 - 1 - 5, 4].tolist() == [255, 128, 0]

    def test_bytes_of_an_ndarray(self):
        if not current_runtime().device.caps.can_store("u8"):
            pytest.skip("the device has no u8 in memory")
        x = ti.ndarray(ti.u8, (16, 16))
        x[0, 0] = 200
        assert self.pixels_of(x)[15, 0] == 200

    def test_large_ones_are_sampled(self):
        x = ti.field(ti.f32, (2050, 16))
        assert self.pixels_of(x).shape == (16, 684)

    def test_others_are_no_pictures(self):
        number = ti.field(ti.f32, (20, 20))
        number[1, 1] = 1.5
        nan = ti.field(ti.f32, (20, 20))
        nan[1, 1] = float("nan")
        unplaced = ti.field(ti.f32)
        small, line, whole = (
            ti.field(ti.f32, (4, 4)),
            ti.field(ti.f32, 400),
            ti.field(ti.i32, (20, 20)),
        )
        for x in (number, nan, unplaced, small, line, whole):
            assert x._repr_png_() is None and x._repr_html_() is None


@ti.kernel
def saxpy(a: ti.f32, x: ti.types.ndarray(), y: ti.template()) -> ti.f32:
    return a


@ti.func
def twice(a, b: int):
    return 2 * a


@ti.data_oriented
class Solver:
    @ti.kernel
    def run(self):
        pass

    @ti.func
    def step(self):
        pass


def test_kernels_show_name_arguments_and_location():
    line = saxpy.__vkchi_func__.__code__.co_firstlineno
    assert repr(saxpy) == (
        "<ti.kernel saxpy(a: ti.f32, x: ti.types.ndarray(), y: ti.template()) -> ti.f32 "
        f"at {__file__}:{line}>"
    )
    assert repr(twice).startswith("<ti.func twice(a, b: int) at ")
    assert repr(Solver.run).startswith("<ti.kernel Solver.run(self) at ")
    assert repr(Solver().run).endswith("of an object of Solver")
    assert repr(Solver().step).startswith("<ti.func Solver.step(self) at ")


def test_printing_a_gradient_that_is_not_known_raises() -> None:
    """As reading it does; its repr shows the contents."""
    x, r = ti.ndarray(ti.f32, 3, needs_grad=True), ti.ndarray(ti.f32, 3)
    loss, k = ti.field(ti.f32, (), needs_grad=True), ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def run(x: ti.types.ndarray(), r: ti.types.ndarray()):
        for i in x:
            r[i] = 1 - x[i]
        for i in x:
            x[i] += 0.5 * r[i]
        for i in x:
            loss[None] += k[None] * x[i]

    with ti.ad.Tape(loss):
        x.fill(0)
        run(x, r)
    for read in (lambda: x.grad.to_numpy(), lambda: str(x.grad)):
        with pytest.raises(ti.ad.GradientError, match="is not known"):
            read()
    assert "nan" in repr(x.grad)


def test_a_struct_waits_once_for_a_lock_of_another_thread(
    own_runtime: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ti.init(log_level=ti.ERROR)
    inner = ti.types.struct(c=ti.f32, d=ti.f32)
    x = ti.Struct.field({"a": ti.f32, "b": ti.i32, "s": inner}, shape=3)
    x.a.fill(1)
    x.s.d.fill(2)
    ti.sync()
    expected = "{'a': [1. 1. 1.], 'b': [0 0 0], 's': {'c': [0. 0. 0.], 'd': [2. 2. 2.]}}"
    assert str(x) == expected
    lock, waits = current_runtime().lock, []

    class Held:
        """The lock, as if another thread held it."""

        def acquire(self, timeout: float = -1) -> bool:
            waits.append(timeout)
            return False

        def __getattr__(self, name: str) -> object:
            return getattr(lock, name)

    with monkeypatch.context() as patch:
        patch.setattr(current_runtime(), "lock", Held())
        text = str(x)
    assert len(waits) == 1 and "shape (3,)" in text and "1." not in text
    assert str(x) == expected


def test_an_interrupted_repr_leaves_the_lock_free(own_runtime: None) -> None:
    """By an alarm at various moments; another thread could not launch otherwise."""
    ti.init(log_level=ti.ERROR)
    x = ti.field(ti.f32, 300)
    x.fill(1)
    for k in range(200):
        Alarm(0.0002 + 0.00001 * (k % 40)).run(lambda: repr(x))
        assert not current_runtime().lock._is_owned()


def test_static_print_shows_the_types_of_kernel_values(capsys):
    pair = ti.types.struct(a=ti.f32, v=ti.math.vec2)

    @ti.kernel
    def k(n: ti.i32):
        s = pair(a=1.0, v=ti.math.vec2(n, 2))
        ti.static_print(s, n, [s.v, {"n": (n, 1)}])

    k(3)
    shown = "a struct of a, v scalar i32 [vector of 2 f32, {'n': (scalar i32, 1)}]\n"
    assert capsys.readouterr().out == shown
