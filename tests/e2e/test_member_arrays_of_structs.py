"""Ndarrays of structs that kernels read from objects: each member is a hidden parameter."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import vkchi as ti
from vkchi.runtime import current_runtime

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("own_runtime")]

Inner = ti.types.struct(a=ti.f32, b=ti.math.vec2)
Body = ti.types.struct(mass=ti.f32, inner=Inner, n=ti.i32)
Float = ti.types.struct(mass=ti.f32, inner=Inner, n=ti.f32)
CHOSEN: list[Any] = []


@pytest.fixture(autouse=True)
def runtime() -> None:
    ti.init(arch=ti.vulkan, log_level="error")


def compiled(name: str) -> int:
    return [n for n, _ in current_runtime().compiled].count(name)


@ti.func
def double(bodies: ti.template(), i: ti.i32):
    bodies[i].mass *= 2


@ti.data_oriented
class Model:
    def __init__(self, bodies: Any, others: Any = None) -> None:
        self.bodies, self.others = bodies, others
        self.list, self.dict = [bodies], {"k": bodies}

    @ti.kernel
    def fill(self):
        for i in self.bodies:
            self.bodies[i].mass = i + 1.0
            self.bodies[i].inner.b = [1.0, i]
            self.bodies[i].n += 1
            self.bodies.inner[i].a += 2
            double(self.bodies, i)

    @ti.kernel
    def add_one(self):
        for i in self.bodies:
            body = self.bodies[i]
            body.mass += 1
            self.bodies[i] = body

    @ti.kernel
    def store_both(self) -> ti.f32:
        self.bodies[0].mass = 1
        self.others[0].mass = 5
        return self.bodies[0].mass

    @ti.kernel
    def sum_squares(self, total: ti.types.ndarray()):
        for i in self.bodies:
            total[None] += self.bodies[i].mass ** 2

    @ti.kernel
    def is_other(self) -> ti.i32:
        return ti.static(1 if self.bodies is self.others else 0) + 0 * self.bodies[0].n

    @ti.kernel
    def is_chosen(self) -> ti.i32:
        return ti.static(1 if self.bodies is CHOSEN[0] else 0) + 0 * self.bodies[0].n

    @ti.kernel
    def is_chosen_in_python(self) -> ti.i32:
        return ti.static(CHOSEN.count(self.bodies)) + 0 * self.bodies[0].n

    @ti.kernel
    def is_given(self) -> ti.i32:
        return ti.static(0 if self.others is None else 1)

    @ti.kernel
    def of_items(self) -> ti.f32:
        return self.list[0][0].mass + self.dict["k"][0].n

    @ti.kernel
    def of_loop(self) -> ti.f32:
        s = 0.0
        for bodies in ti.static(self.list):
            s += bodies[0].mass
        return s

    @ti.kernel
    def length(self) -> ti.i32:
        return self.bodies.shape[0]


def test_reads_and_writes_of_several_objects() -> None:
    for n in (3, 2, 5):
        model = Model(Body.ndarray(n))
        for times in (1, 2, 3):
            model.fill()
            bodies = model.bodies
            assert bodies.mass.to_numpy().tolist() == [2.0 * k + 2 for k in range(n)]
            assert bodies.n.to_numpy().tolist() == [times] * n
            assert bodies.inner.a.to_numpy().tolist() == [2 * times] * n
            assert bodies.inner.b.to_numpy().tolist() == [[1, k] for k in range(n)]
        model.add_one()
        assert model.bodies.mass[1] == 5 and model.length() == n
    assert compiled("fill") == compiled("add_one") == 1


def test_replaced_arrays() -> None:
    model = Model(Body.ndarray(2))
    model.fill()
    old, model.bodies = model.bodies, Body.ndarray(4)
    model.fill()
    assert model.bodies.n.to_numpy().tolist() == [1] * 4 and old.n[0] == 1
    assert compiled("fill") == 1
    model.bodies = Float.ndarray(2)
    model.fill()
    assert model.bodies.n.to_numpy().tolist() == [1.0] * 2 and compiled("fill") == 2
    gone = weakref.ref(model.bodies)
    model.bodies, model.list, model.dict = old, [], {}
    ti.sync()
    gc.collect()
    assert gone() is None
    model.fill()
    assert old.n[0] == 2


def test_arrays_that_are_the_same() -> None:
    a, b = Body.ndarray(2), Body.ndarray(2)
    for x, y, want in ((a, b, 1), (a, a, 5), (b, a, 1), (b, b, 5), (a, b, 1)):
        assert Model(x, y).store_both() == want


def test_gradients_and_recordings() -> None:
    model = Model(Body.ndarray(2, needs_grad=True))
    total = ti.ndarray(ti.f32, (), needs_grad=True)
    model.fill()
    with ti.ad.Tape(total):
        model.sum_squares(total)
        old, model.bodies = model.bodies, Body.ndarray(2, needs_grad=True)
    assert old.mass.grad.to_numpy().tolist() == [4, 8]
    assert model.bodies.mass.grad.to_numpy().tolist() == [0, 0]
    with ti.record() as g:
        model.add_one()
    model.bodies = Body.ndarray(3)
    g.run(2)
    assert model.bodies.mass.to_numpy().tolist() == [2] * 3


def test_questions_at_compile_time() -> None:
    a, b, c = Body.ndarray(2), Body.ndarray(2), Body.ndarray(3)
    CHOSEN[:] = [b]
    for k, x in enumerate((a, b, c), 1):
        x.mass.fill(k)
    for x, y in ((a, b), (b, b), (c, a), (a, None), (b, a)):
        model = Model(x, y)
        assert model.is_other() == (x is y)
        assert model.is_chosen() == model.is_chosen_in_python() == (x is b)
        assert model.is_given() == (y is not None)
        assert model.of_items() == model.of_loop() == x.mass[0]
    CHOSEN.clear()
