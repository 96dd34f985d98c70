"""Recorded calls of the same objects as one before take a shorter way
(`calls.repeated`), and have the same gradients."""

from __future__ import annotations

import gc
import warnings
import weakref

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import ArgumentError, GradientError

pytestmark = pytest.mark.device


@ti.kernel
def add_power(x: ti.types.ndarray(), a: ti.f32, k: ti.i32, loss: ti.types.ndarray()):
    for i in x:
        loss[None] += a * x[i] ** 2 * (i + k)


@pytest.fixture
def repeats(monkeypatch) -> list[str]:
    """Names of kernels whose calls were like one before."""
    from vkchi.calls import call as calls
    from vkchi.tape.call_facts import KnownCalls
    from vkchi.tape.call_paths import CallPath

    found, repeat, follow, find = [], calls.repeat_call, KnownCalls.find, CallPath.find
    monkeypatch.setattr(
        calls, "repeat_call", lambda name, *rest: found.append(name) or repeat(name, *rest)
    )

    def look(self, name, *rest):
        known = follow(self, name, *rest)
        found.extend([name] if known is not None else [])
        return known

    def look_at_path(self, kernel, args):
        known = find(self, kernel, args)
        found.extend([kernel.artifact.name] if known is not None else [])
        return known

    monkeypatch.setattr(KnownCalls, "find", look)
    monkeypatch.setattr(CallPath, "find", look_at_path)
    return found


def number() -> ti.Ndarray:
    return ti.ndarray(ti.f32, (), needs_grad=True)


def numbers(*values: float) -> ti.Ndarray:
    made = ti.ndarray(ti.f32, len(values), needs_grad=True)
    made.from_numpy(np.array(values, np.float32))
    return made


def slopes(x: ti.Ndarray, a: float, k: int, loss: ti.Ndarray) -> list[float]:
    with ti.ad.Tape(loss):
        add_power(x, a, k, loss)
    return x.grad.to_numpy().tolist()


def test_alternating_scalars_and_arrays(repeats):
    ti.init(arch=ti.vulkan)
    loss, x, y = number(), numbers(1, 2), numbers(3, 4, 5)
    for a, k in ((1.0, 0), (2, 1), (0.5, -1)):
        for one in (x, y):
            want = [2 * a * v * (i + k) for i, v in enumerate(one.to_numpy().tolist())]
            assert slopes(one, a, k, loss) == want
    assert len(repeats) == 4


def test_several_calls_in_one_tape(repeats):
    """Each gradient uses the values of its own call, though calls between them overwrite them."""
    ti.init(arch=ti.vulkan)
    x, loss = (ti.field(ti.f32, s, needs_grad=True) for s in (3, ()))

    @ti.kernel
    def square(by: ti.f32):
        for i in x:
            x[i] = by * x[i] * x[i]

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    for _ in range(2):
        x.from_numpy(np.array([1, 2, 3], np.float32))
        with ti.ad.Tape(loss):
            for by in (1.0, 0.5, 0.25):
                square(by)
            total()
        # 0.25 (0.5 (x^2)^2)^2 = x^8 / 16, whose slope is x^7 / 2
        assert x.grad.to_numpy().tolist() == [0.5, 64.0, 1093.5]
    assert repeats == ["square"] * 5 + ["total"]


def test_scalars_that_need_conversion_raise_in_repeated_calls():
    ti.init(arch=ti.vulkan)
    loss, x = number(), numbers(1, 2)
    assert slopes(x, 1.0, 1, loss) == [2, 8]
    for wrong in ((x, 1.0, 0.5, loss), (x, "a", 1, loss), (x, 1.0, 1, 3)):
        with pytest.raises(ArgumentError, match=r"add_power\(\)"), ti.ad.Tape(loss):
            add_power(*wrong)
    assert slopes(x, True, np.int64(1), loss) == [2, 8]
    assert slopes(x, 2.0, 1, loss) == [4, 16]


@pytest.mark.parametrize("k", [2**32 + 1, np.int64(1), True])
def test_numbers_that_are_bound_otherwise_in_first_calls(k):
    ti.init(arch=ti.vulkan)

    @ti.kernel
    def add(x: ti.types.ndarray(), a: ti.f32, k: ti.i32, loss: ti.types.ndarray()):
        for i in x:
            loss[None] += a * x[i] ** 2 * (i + k)

    loss, x = number(), numbers(1, 2)
    for given in (k, 1, k):
        with warnings.catch_warnings():  # that the first wraps
            warnings.simplefilter("ignore")
            with ti.ad.Tape(loss):
                add(x, 1.0, given, loss)
        assert x.grad.to_numpy().tolist() == [2, 8]


def test_an_array_that_gets_a_gradient_has_one_from_then_on():
    ti.init(arch=ti.vulkan)
    loss, x, z = number(), numbers(1, 2), ti.ndarray(ti.f32, 2)

    @ti.kernel
    def through(x: ti.types.ndarray(), z: ti.types.ndarray(), loss: ti.types.ndarray()):
        for i in x:
            z[i] = 3 * x[i]
        for i in x:
            loss[None] += z[i]

    for _ in range(2):
        with pytest.raises(GradientError), ti.ad.Tape(loss):
            through(x, z, loss)
    z.add_gradient()
    for _ in range(2):
        with ti.ad.Tape(loss):
            through(x, z, loss)
        assert x.grad.to_numpy().tolist() == [3, 3]


def test_arguments_are_not_kept_alive_and_new_ones_are_not_taken_for_old():
    ti.init(arch=ti.vulkan)
    loss = number()
    for k in range(6):
        x = numbers(*range(k, k + 3))
        gone = weakref.ref(x)
        for _ in range(2):
            assert slopes(x, 1.0, 1, loss) == [
                2 * v * (i + 1) for i, v in enumerate(range(k, k + 3))
            ]
        del x
        gc.collect()
        assert gone() is None


def test_kernels_that_draw_or_report_take_the_long_way(repeats, capfd):
    ti.init(arch=ti.vulkan, random_seed=1)
    x, loss = (ti.field(ti.f32, s, needs_grad=True) for s in (3, ()))
    x.fill(1.0)

    @ti.kernel
    def draw(by: ti.f32):
        for i in x:
            loss[None] += by * ti.random() * x[i]

    @ti.kernel
    def tell(by: ti.f32):
        print("by", by)
        for i in x:
            loss[None] += by * x[i]

    for by in (1.0, 2.0):
        for kernel in (draw, tell):
            with ti.ad.Tape(loss):
                kernel(by)
            assert abs(x.grad.to_numpy().sum() - loss[None]) < 1e-5
    assert repeats == []
    assert capfd.readouterr().out.split() == ["by", "1.000000", "by", "2.000000"]


def test_replayed_calls_in_little_memory(repeats):
    ti.init(arch=ti.vulkan)
    n, steps = 1000, 12
    x, loss = (ti.field(ti.f32, s, needs_grad=True) for s in (n, ()))

    @ti.kernel
    def grow(by: ti.f32):
        for i in x:
            x[i] = x[i] + by * x[i] * x[i]

    @ti.kernel
    def total():
        for i in x:
            loss[None] += x[i]

    found = []
    for memory in (None, None, 3 * 4 * n, 3 * 4 * n):
        x.fill(0.1)
        with ti.ad.Tape(loss, memory=memory) as tape:
            for t in range(steps):
                grow(0.01 * t)
            total()
        found.append((loss[None], x.grad[0]))
    assert tape.report.repeated > 0 and len(set(found)) == 1
    assert repeats.count("grow") >= 3 * steps
