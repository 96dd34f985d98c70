"""Plans of launches keep nothing alive that only a call knew."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.lang.value_keys import value_key

pytestmark = pytest.mark.device


@pytest.fixture(autouse=True, scope="module")
def runtime() -> Iterator[None]:
    ti.init()
    yield
    ti.reset()


def is_gone(ref: weakref.ref[Any]) -> bool:
    gc.collect()
    return ref() is None


@ti.kernel
def increase(f: ti.template()):
    for i in f:
        f[i] += 1


@ti.kernel
def increase_array(x: ti.types.ndarray()):
    for i in x:
        x[i] += 1


@ti.data_oriented
class Solver:
    def __init__(self, n: int) -> None:
        self.x = ti.field(ti.f32, n)
        self.n = n

    @ti.kernel
    def run(self) -> ti.i32:
        for i in self.x:
            self.x[i] = i
        return self.n


def test_arrays_given_to_kernels_are_freed() -> None:
    f, x, h = ti.field(ti.f32, 4), ti.ndarray(ti.f32, 4), np.zeros(4, np.float32)
    increase(f)
    for array in (x, h):
        increase_array(array)
    refs = [weakref.ref(a) for a in (f, x, h)]
    del f, x, h, array
    assert [is_gone(ref) for ref in refs] == [True, True, True]


def test_a_new_field_never_meets_the_plan_of_a_dead_one() -> None:
    for k in range(20):
        f = ti.field(ti.f32, 4)
        f.fill(k)
        increase(f)
        assert f.to_numpy().tolist() == [k + 1] * 4
    assert len(increase._cache.compiled) <= 2


def test_objects_and_their_fields_are_freed_when_another_comes() -> None:
    solver = Solver(3)
    assert solver.run() == 3
    refs = weakref.ref(solver), weakref.ref(solver.x)
    del solver
    assert is_gone(refs[0])
    assert Solver(5).run() == 5
    assert is_gone(refs[1])


def test_a_field_that_a_kernel_names_lives_with_the_kernel() -> None:
    def make() -> Any:
        x = ti.field(ti.i32, 4)

        @ti.kernel
        def total() -> ti.i32:
            s = 0
            for i in x:
                x[i] += 1
                s += x[i]
            return s

        return total

    total = make()
    assert total() == 4
    gc.collect()
    others = [ti.field(ti.i32, 4) for _ in range(4)]
    assert total() == 8 and not any(o.to_numpy().any() for o in others)


def test_stand_ins_of_templates() -> None:
    f = ti.field(ti.f32, 2)
    assert value_key(f) == value_key(f) and value_key([f]) == value_key([f])
    assert value_key(f) != value_key(ti.field(ti.f32, 2))
    differing = [1, 1.0, True, "1", (1,), [1], (1.0,), (True,), 0.0, -0.0, np.float32(1), None]
    assert len({value_key(v) for v in differing}) == len(differing)
    assert value_key(float("nan")) == value_key(float("nan"))
    assert value_key(ti.Vector([1, 2])) == value_key(ti.Vector([1, 2]))
    assert value_key(ti.Vector([1, 2])) != value_key(ti.Vector([1.0, 2.0]))
