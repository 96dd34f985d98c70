"""Calls like one before take a shorter way (`launch/entry`), and do the same."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import ArgumentError

pytestmark = pytest.mark.device


@ti.kernel
def scale(a: ti.f32, b: ti.i32, x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = a * x[i] + b


@ti.kernel
def scale_field(f: ti.template(), a: ti.f32):
    for i in f:
        f[i] *= a


@ti.kernel
def total(x: ti.types.ndarray(), n: ti.i32) -> ti.f32:
    s = 0.0
    for i in range(n):
        s += x[i]
    return s


def array(values) -> ti.Ndarray:
    made = ti.ndarray(ti.f32, len(values))
    made.from_numpy(np.array(values, np.float32))
    return made


def count_repeats(kernel, monkeypatch) -> list[tuple]:
    """The calls from now on that take the shorter way."""
    from vkchi.launch.entry import Entry

    found, known, launch = [], [], Entry.launch

    def count(self, args):
        if self in known:
            found.append(args)
        else:  # the first call of an entry
            known.append(self)
        return launch(self, args)

    monkeypatch.setattr(Entry, "launch", count)
    return found


def test_arrays_in_turn(monkeypatch):
    ti.init(arch=ti.vulkan)
    repeats = count_repeats(scale, monkeypatch)
    x, y = array([1, 2, 3]), array([0, 0, 0])
    want = [np.array([1, 2, 3], np.float32), np.zeros(3, np.float32)]
    for k in range(6):
        a, b = 0.5 * k, k - 2
        source, target = (x, y) if k % 2 == 0 else (y, x)
        scale(a, b, source, target)
        want[1 - k % 2] = (a * want[k % 2] + b).astype(np.float32)
        assert np.array_equal(x.to_numpy(), want[0]) and np.array_equal(y.to_numpy(), want[1])
    assert len(repeats) == 4


def test_numbers_that_need_more_than_binding():
    ti.init(arch=ti.vulkan)
    x, y = array([1, -1]), array([0, 0])
    for a in (1.0, 2, True, np.float32(3), 1e300, float("-inf"), 1.0):
        scale(a, 0, x, y)
        big = np.float32(min(max(float(a), -np.inf), np.inf) if abs(float(a)) < 1e39 else np.inf)
        big = big if a > 0 else -abs(big)
        assert np.array_equal(y.to_numpy(), big * x.to_numpy())
    for wrong in ((1.0, 0.5, x, y), ("a", 0, x, y), (1.0, 0, x, 3)):
        with pytest.raises(ArgumentError, match=r"scale\(\)"):
            scale(*wrong)
    scale(2.0, 1, x=x, y=y)
    assert y.to_numpy().tolist() == [3, -1]


def test_new_arrays_where_old_ones_were():
    ti.init(arch=ti.vulkan)
    for n in (3, 3, 5, 4, 3, 7) * 3:
        x, y = array(range(n)), array([0] * n)
        scale(2.0, 1, x, y)
        assert y.to_numpy().tolist() == [2 * i + 1 for i in range(n)]
        del x, y
        gc.collect()


def test_array_passed_twice():
    ti.init(arch=ti.vulkan)
    x, y = array([1, 2]), array([0, 0])
    for _ in range(3):
        scale(2.0, 0, x, y)
        scale(2.0, 0, x, x)
    assert x.to_numpy().tolist() == [8, 16] and y.to_numpy().tolist() == [8, 16]


def test_templates_methods_and_results(monkeypatch):
    @ti.data_oriented
    class Model:
        def __init__(self, n):
            self.x = ti.field(ti.f32, n)

        @ti.kernel
        def add(self, a: ti.f32):
            for i in self.x:
                self.x[i] += a

    ti.init(arch=ti.vulkan)
    repeats = count_repeats(scale_field, monkeypatch)
    f, g = ti.field(ti.f32, 2), ti.field(ti.f32, 3)
    f.fill(1.0), g.fill(1.0)
    for a in (2.0, 3.0, 4.0):
        scale_field(f, a)
        scale_field(g, 2.0)
    assert f.to_numpy().tolist() == [24, 24] and g.to_numpy().tolist() == [8, 8, 8]
    models = Model(2), Model(3)
    for a in (1.0, 2.0):
        for model in models:
            model.add(a)
    assert [model.x.to_numpy().tolist() for model in models] == [[3, 3], [3, 3, 3]]
    x = array([1, 2, 4])
    assert [total(x, n) for n in (3, 2, 1, 0)] == [7, 3, 1, 0]
    assert len(repeats) == 4 + 2 + 3


def test_after_a_reset():
    for _ in range(2):
        ti.init(arch=ti.vulkan)
        x, y = array([1, 2]), array([0, 0])
        for _ in range(3):
            scale(2.0, 0, x, y)
        assert y.to_numpy().tolist() == [2, 4]
    old = x, y
    ti.init(arch=ti.vulkan)
    with pytest.raises(ti.TaichiRuntimeError, match="freed"):
        scale(2.0, 0, *old)


def test_tapes_see_repeated_calls():
    ti.init(arch=ti.vulkan)
    x, loss = ti.field(ti.f32, 2, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)

    @ti.kernel
    def measure(a: ti.f32):
        for i in x:
            loss[None] += a * x[i] ** 2

    x.from_numpy(np.array([1, 2], np.float32))
    for a in (1.0, 2.0, 3.0):
        measure(a)
        loss[None] = 0
        with ti.ad.Tape(loss):
            measure(a)
        assert x.grad.to_numpy().tolist() == [2 * a, 4 * a]


def test_gradients_of_arrays_are_seen():
    ti.init(arch=ti.vulkan)
    x, y = array([1, 2]), array([0, 0])
    for _ in range(2):
        scale(2.0, 0, x, y)
    x.add_gradient()
    scale(3.0, 0, x, x.grad)
    scale(3.0, 0, x, y)
    assert x.grad.to_numpy().tolist() == y.to_numpy().tolist() == [3, 6]


def test_repeated_calls_in_threads():
    ti.init(arch=ti.vulkan)
    arrays = [(array([k, k + 1]), array([0, 0])) for k in range(4)]
    wrong = []

    def work(k):
        x, y = arrays[k]
        for n in range(50):
            scale(float(k), n, x, y)
            if y.to_numpy().tolist() != [k * k + n, k * (k + 1) + n]:
                wrong.append((k, n))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@ti.kernel
def count_up(x: ti.types.ndarray(ti.f32, 1), n: ti.i32, c: ti.f32):
    for i in range(n):
        x[i] += c
    for i in x:
        x[i] += 100.0


def test_numbers_of_iterations_that_change():
    x = ti.ndarray(ti.f32, 6)
    for n in (2, 2, 4, 0, 1):
        before = x.to_numpy()
        count_up(x, n, 1.0)
        assert (x.to_numpy() - before).tolist() == [101.0] * n + [100.0] * (6 - n)


def test_objects_have_the_key_of_their_entry(monkeypatch):
    from vkchi.launch import entry as entries

    class Other:
        pass

    @ti.data_oriented
    class Model:
        def __init__(self, k):
            self.k = k

        @ti.kernel
        def add(self, x: ti.types.ndarray()):
            for i in x:
                x[i] += self.k

    def is_identified(kind, arg):  # other weak references take the addresses of freed ones
        others.extend(Other() for _ in range(20))
        refs.extend(weakref.ref(other) for other in others[-20:])
        return is_plainly(kind, arg)

    ti.init(arch=ti.vulkan)
    others, refs, is_plainly = [], [], entries.is_identified
    monkeypatch.setattr(entries, "is_identified", is_identified)
    repeats = count_repeats(Model.add, monkeypatch)
    x, models = array([0, 0]), [Model(1), Model(10)]
    for _ in range(3):
        for model in models:
            model.add(x)
    assert x.to_numpy().tolist() == [33, 33]
    assert len(repeats) == 4


def test_template_arguments_with_any_attribute():
    class Options(dict):
        __getattr__ = dict.__getitem__

    class Lists:
        a = 2

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return []

    @ti.kernel
    def add(what: ti.template(), x: ti.types.ndarray()):
        for i in x:
            x[i] += 1

    @ti.kernel
    def add_option(what: ti.template(), x: ti.types.ndarray()):
        for i in x:
            x[i] += what["a"]

    ti.init(arch=ti.vulkan)
    f, x = ti.field(ti.f32, ()), array([0, 0])
    for what in (f, Lists(), f, Options(a=1)):
        add(what, x)
    add_option(Options(a=3), x)
    assert x.to_numpy().tolist() == [7, 7]


def test_calls_on_devices_in_turn(monkeypatch):
    ti.init(arch=ti.vulkan)
    repeats = []
    x, y = array([1, 2]), array([0, 0])
    scale(2.0, 0, x, y)
    from vkchi.launch.entry import Entry

    launch = Entry.launch
    monkeypatch.setattr(
        Entry, "launch", lambda self, *args: repeats.append(args) or launch(self, *args)
    )
    for _ in range(3):
        monkeypatch.setattr(scale, "_cache", None)  # as after a call on another device
        scale(2.0, 0, x, y)
    assert len(repeats) == 3 and y.to_numpy().tolist() == [2, 4]
