"""Repeated calls with argument packs, optional arrays and compile-time arguments are cached."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import vkchi as ti
from vkchi.runtime import current_runtime

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("own_runtime")]

Vector = ti.types.ndarray(dtype=ti.f32, ndim=1)
Inner = ti.types.argpack(y=Vector, k=ti.i32)
Pack = ti.types.argpack(x=Vector, c=ti.f32, b=ti.u1, inner=Inner)
Loss = ti.types.argpack(x=Vector, c=ti.f32, total=ti.types.ndarray(dtype=ti.f32, ndim=0))


@pytest.fixture(autouse=True)
def runtime() -> None:
    ti.init(arch=ti.vulkan, log_level="error")


def array(n: int, value: float = 0.0) -> Any:
    made = ti.ndarray(ti.f32, n, needs_grad=True)
    made.fill(value)
    return made


def launches_made(kernel: Any) -> int:
    """The number of entries that a kernel's call cache made."""
    from vkchi.launch.call_cache import MOST_NOTES

    return MOST_NOTES - kernel._cache.notes_left


@ti.kernel
def add(p: Pack, d: ti.f32):
    for i in p.x:
        if p.b:
            p.x[i] += p.c * d
        if i < p.inner.y.shape[0]:
            p.inner.y[i] += p.inner.k


def test_packs() -> None:
    x, y, z = array(3), array(3), array(5)
    p = Pack(x=x, c=1.0, b=True, inner=Inner(y=y, k=2))
    made = []
    for _ in range(4):
        add(p, 1.0)
        made.append(launches_made(add))
    assert x.to_numpy().tolist() == [4] * 3 and y.to_numpy().tolist() == [8] * 3
    p.c, p.b = 10, False
    add(p, 1.0)
    p.b, p.inner.k = True, 100
    add(p, 2.0)
    assert x.to_numpy().tolist() == [24] * 3 and y.to_numpy().tolist() == [110] * 3
    assert launches_made(add) == made[0]
    p.x = z
    add(p, 1.0)
    add(p, 1.0)
    assert z.to_numpy().tolist() == [20] * 5 and x[0] == 24
    p.inner = Inner(y=z, k=1)
    add(p, 0.0)
    p.inner = {"y": x, "k": 1}
    add(p, 0.0)
    assert z[0] == 21 and x[0] == 25
    host = np.zeros(3, np.float32)
    p.x = host
    add(p, 1.0)
    add(p, 1.0)
    assert host.tolist() == [20] * 3
    assert [n for n, _ in current_runtime().compiled].count("add") <= 4


def test_packs_that_do_not_fit() -> None:
    x = array(2)
    p = Pack(x=x, c=1.0, b=True, inner=Inner(y=array(2), k=2))
    add(p, 1.0)
    p.x = "x"
    with pytest.raises(ti.TaichiRuntimeError, match=r"`p\.x`: an array is needed"):
        add(p, 1.0)
    p.x = ti.ndarray(ti.i32, 2)
    with pytest.raises(ti.TaichiRuntimeError, match="an array of f32 is needed"):
        add(p, 1.0)
    for wrong in (Loss(x=x, c=1.0, total=x), {"x": x}, None, 3):
        with pytest.raises(ti.TaichiRuntimeError, match="an argpack"):
            add(wrong, 1.0)


@ti.kernel
def sum_squares(p: Loss):
    for i in p.x:
        p.total[None] += p.c * p.x[i] ** 2


def test_packs_on_tapes_and_in_recordings() -> None:
    x, total = array(3, 2.0), ti.ndarray(ti.f32, (), needs_grad=True)
    p = Loss(x=x, c=1.0, total=total)
    for c in (1.0, 2.0, 3.0):
        total.fill(0)
        p.c = c
        with ti.ad.Tape(total):
            sum_squares(p)
            p.c = 50.0
        assert total[None] == 12 * c and x.grad.to_numpy().tolist() == [4 * c] * 3
    p.c = 1.0
    with ti.record() as g:
        sum_squares(p)
    total.fill(0)
    g.run(3)
    assert total[None] == 36


def test_arrays_of_packs_are_freed() -> None:
    total = ti.ndarray(ti.f32, ())
    p = Loss(x=array(4), c=1.0, total=total)
    for _ in range(3):
        sum_squares(p)
    gone = weakref.ref(p.x)
    p.x = array(1)
    ti.sync()
    gc.collect()
    assert gone() is None
    sum_squares(p)


@ti.kernel
def add_mask(x: Vector, mask: ti.types.ndarray() | None, k: ti.i32):
    for i in x:
        if ti.static(mask is None):
            x[i] += k
        else:
            x[i] += mask[i]


def test_optional_arrays() -> None:
    x, mask = array(3), array(3, 10.0)
    add_mask(x, None, 1)
    before = launches_made(add_mask)
    for k in range(5):
        add_mask(x, None, k)
    assert launches_made(add_mask) == before and x[0] == 11
    for given, want in ((mask, 21), (None, 22), (np.ones(3, np.float32), 23), (mask, 33)):
        add_mask(x, given, 1)
        assert x.to_numpy().tolist() == [want] * 3


@ti.kernel
def add_one(x: ti.Tensor):
    for i in x:
        x[i] += 1


def test_fields_and_ndarrays_in_turn() -> None:
    arrays = [array(3), ti.field(ti.f32, 3), ti.field(ti.f32, 3), array(5)]
    for k in range(1, 4):
        for x in arrays:
            add_one(x)
            assert x.to_numpy().tolist() == [k] * x.shape[0]


class Held:
    def __init__(self, n: int) -> None:
        self.n = n


@ti.kernel
def store(o: ti.template(), t: ti.template(), x: Vector):
    for i in x:
        x[i] = o.n + ti.static(0 if t is None else t)


@ti.kernel
def inverse(t: ti.template()) -> ti.f32:
    return 1.0 / t


def test_compile_time_arguments() -> None:
    x, one, other = array(2), Held(1), Held(2)
    for o, t, want in (
        (one, None, 1), (one, None, 1), (other, None, 2), (other, 5, 7), (one, 5, 6), (one, 6, 7),
        (one, True, 2), (one, 1, 2), (one, 1.5, 2.5), (one, 5, 6),
    ):  # fmt: skip
        store(o, t, x)
        assert x[0] == want
    before = launches_made(store)
    store(one, 5, x)
    assert launches_made(store) == before
    one.n = 7
    store(one, 5, x)
    assert x[0] == 12
    assert [inverse(t) for t in (-0.0, 0.0, -0.0, 2)] == [-np.inf, np.inf, -np.inf, 0.5]


def test_objects_that_get_the_address_of_an_earlier_one() -> None:
    x = array(1)
    for n in range(30):
        o = Held(n % 5)
        for _ in range(2):
            store(o, None, x)
            assert x[0] == n % 5
        gone = weakref.ref(o)
        del o
        gc.collect()
        assert gone() is None
