"""`ti.verify`: kernels in the reference interpreter and on devices, and where they differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import ArgumentError, Unsupported, VerifyError
from vkchi.launch import crosscheck
from vkchi.launch.crosscheck import ulp_distances
from vkchi.runtime import current_runtime

F1 = ti.types.ndarray(ti.f32, 1)
Pair = ti.types.struct(a=ti.i32, b=ti.math.vec2)


@ti.kernel
def mixed(a: ti.f32, n: ti.i32, x: F1, y: ti.types.ndarray(ti.math.vec2, 1)) -> ti.f32:
    total = 0.0
    for i in x:
        x[i] = ti.sqrt(x[i]) * a + i // 3
        y[i] += ti.Vector([x[i], n])
        total += x[i]
    return total


@ti.kernel
def good(x: ti.types.ndarray(ti.i32, 2)):
    for i, j in x:
        x[i, j] = 10 * i + j


@ti.kernel
def bad(x: ti.types.ndarray(ti.i32, 2)):
    for i, j in x:
        x[i, j] = 10 * i + j + (i + j) // 4


def array(n: int) -> Any:
    x = ti.ndarray(ti.f32, n)
    x.from_numpy(np.arange(n, dtype=np.float32))
    return x


def test_devices_agree_and_nothing_is_changed() -> None:
    x, y = array(9), ti.Vector.ndarray(2, ti.f32, 9)
    found = ti.verify(mixed, 2.0, 7, x, y)
    assert current_runtime().device.info.name in found.devices
    assert found.arrays == ["return.0", "x", "y"] and "agree, in 3 arrays" in repr(found)
    assert (x.to_numpy() == np.arange(9)).all() and not y.to_numpy().any()
    host = np.arange(9, dtype=np.float32)
    ti.verify(mixed, 2.0, 7, host, np.zeros((9, 2), np.float32))
    assert (host == np.arange(9)).all()


def test_fields_methods_structs_and_packs() -> None:
    @ti.data_oriented
    class Sim:
        def __init__(self) -> None:
            self.x = ti.field(ti.i32, (3, 4), offset=(-1, 2))
            self.pairs = Pair.field(shape=3)
            self.flags = ti.field(ti.u1, 3)
            self.count = ti.field(ti.i32, ())

        @ti.kernel
        def step(self, p: Pair, more: ti.template(), xs: ti.types.ndarray(Pair, 1)):
            for i, j in self.x:
                self.x[i, j] += p.a * i - j // more
            for i in self.pairs:
                self.pairs[i].b += p.b * xs[i].a
                self.flags[i] = i % 2 == 0
                ti.atomic_add(self.count[None], i)

    sim, xs = Sim(), Pair.ndarray(3)
    xs.a.fill(3)
    assert ti.verify(sim.step, Pair(a=2, b=ti.Vector([1.0, 2.0])), 3, xs).devices
    assert sim.count[None] == 0


def test_array_passed_twice() -> None:
    @ti.kernel
    def shift(x: F1, y: F1):
        for _ in range(1):
            for i in range(4):
                y[i + 1] = x[i] + 1

    x = array(5)
    assert ti.verify(shift, x, x).devices
    assert ti.verify(shift, x, array(5)).devices


def test_verify_with_textures() -> None:
    @ti.kernel
    def paint(img: ti.types.rw_texture(2, fmt=ti.Format.r32f)):
        for i, j in ti.ndrange(3, 4):
            img.store(ti.Vector([i, j]), ti.Vector([1.0 * i - j, 0, 0, 0]))

    assert ti.verify(paint, ti.Texture(ti.Format.r32f, (3, 4))).devices


def test_checks_that_fail_everywhere(own_runtime: None) -> None:
    ti.init(debug=True)

    @ti.kernel
    def check(x: F1):
        for i in x:
            assert x[i] < 3, "too large"
            print(x[i])

    assert ti.verify(check, array(3)).devices
    assert ti.verify(check, array(9)).devices  # both tell


# --- differences ---------------------------------------------------------------------------------


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices run `bad` for `good`."""
    other = bad.inspect(lambda plan, args: plan.func, ti.ndarray(ti.i32, (2, 2)))
    build = crosscheck.build_artifact
    monkeypatch.setattr(crosscheck, "build_artifact", lambda fn, *rest: build(other, *rest))


@pytest.mark.usefixtures("wrong")
def test_the_first_element_the_op_and_the_line_are_named() -> None:
    x = ti.ndarray(ti.i32, (3, 4))
    with pytest.raises(VerifyError) as e:
        ti.verify(good, x)
    lines = str(e.value).splitlines()
    name = current_runtime().device.info.name
    assert lines[0] == (
        f"good() on {name} differs from the reference: x[1, 3] is 14, and 13 is expected; "
        "so are 2 more of 12 numbers"
    )
    number = good.__vkchi_func__.__code__.co_firstlineno + 3
    assert (
        lines[1].startswith(f"{__file__}:{number}:") and "written here, by `store` of" in lines[1]
    )
    assert lines[2].endswith("x[i, j] = 10 * i + j") and "^" in lines[3]
    assert not x.to_numpy().any()


def test_ulp_differences() -> None:
    one = np.float32(1)
    step = np.spacing(one)
    found = ulp_distances(
        np.array([one + 3 * step, np.nan, 1, np.inf, -np.inf, 0, 1e-45], np.float32),
        np.array([one, np.nan, np.nan, np.inf, np.inf, -0.0, 0], np.float32),
    )
    assert found[:2].tolist() == [3, 0] and np.isinf(found[[2, 4]]).all()
    assert found[3] == 0 and found[5] == 0 and found[6] == 1  # a unit of the smallest normal number

    @ti.kernel
    def third(x: F1):
        for i in x:
            x[i] = ti.sin(x[i] + 1.0)

    x = array(64)
    ti.verify(third, x, ulps=1 << 20)  # Vulkan's tolerance for sines


def test_unverifiable_kernels_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vkchi.ir.interp.STEP_LIMIT", 1000)

    @ti.kernel
    def draw(x: F1):
        for i in x:
            x[i] = ti.random()

    x = ti.field(ti.i32, ())

    @ti.kernel
    def endless():
        while x[None] == 0:
            x[None] = 0

    with pytest.raises(Unsupported, match="draws random numbers"):
        ti.verify(draw, array(3))

    def runs_nothing(runtime: Any, case: Any, before: Any) -> Any:
        raise Unsupported("no i64 here")

    with monkeypatch.context() as patch, pytest.raises(Unsupported, match=r"no device runs good"):
        patch.setattr("vkchi.launch.crosscheck.run_on", runs_nothing)
        ti.verify(good, ti.ndarray(ti.i32, (1, 1)))
    with pytest.raises(ArgumentError, match="the interpreter gave up"):
        ti.verify(endless)
    with pytest.raises(ArgumentError, match="verify takes a ti.kernel, not"):
        ti.verify(len)
    with pytest.raises(ArgumentError, match=r"mixed\(\): argument `a`"):
        ti.verify(mixed, "1", 2, array(1), ti.Vector.ndarray(2, ti.f32, 1))
    with pytest.raises(ArgumentError, match="no device is called abacus; there are"):
        ti.verify(good, ti.ndarray(ti.i32, (1, 1)), devices=["abacus"])
    with pytest.raises(ArgumentError, match="inside a tape"), ti.record():
        ti.verify(good, ti.ndarray(ti.i32, (1, 1)))
