"""Ten thousand launches and a thousand fields leave nothing behind: no memory of the device or of
the host, no object, no entry in any table. Counted, not timed."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import vkchi as ti
from vkchi.runtime import current_runtime

pytestmark = pytest.mark.device
N = 64
TABLES = (list, dict, set, deque)
COUNTED = ("objects", "entries", "blocks")
LAUNCHES, FIELDS = 10_000, 1_000


@ti.kernel
def add(x: ti.types.ndarray(), a: ti.f32):
    for i in x:
        x[i] += a


@ti.kernel
def add_first(x: ti.types.ndarray(), n: ti.i32):
    for i in range(n):
        x[i] += 1


@ti.kernel
def shift(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = x[(i + 1) % x.shape[0]]


@ti.kernel
def read(x: ti.types.ndarray(), k: ti.i32) -> ti.f32:
    return x[k]


@ti.kernel
def square(x: ti.template(), loss: ti.template()):
    for i in x:
        loss[None] += x[i] ** 2


@ti.kernel
def tell(k: ti.i32):
    if k < 0:
        print("below zero", k)


def counts() -> dict[str, int]:
    """Bytes of the device, objects, entries of tables, blocks of Python's memory."""
    device = current_runtime().device
    ti.sync()
    gc.collect()
    device.sweep()
    found = gc.get_objects()
    return {
        "bytes of arrays": device.heap.used_bytes,
        "objects": len(found),
        "entries": sum(len(thing) for thing in found if type(thing) in TABLES),
        "blocks": sys.getallocatedblocks(),
    }


def resident_bytes() -> int:
    """Of this process: the driver's are among them."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def grows(run: Callable[[int], object], times: int) -> dict[str, int]:
    """Growth after so many runs, beyond that of the first ones."""
    for k in range(min(times, 1000)):
        run(k)
    counts()
    before, pages = counts(), resident_bytes()
    for k in range(times):
        run(k)
    after = counts()
    found = {name: after[name] - before[name] for name in before}
    return {**found, "pages": resident_bytes() - pages}


def check(run: Callable[[int], object], times: int) -> None:
    """Less than one thing for two runs, whatever it is, and no memory of the process beyond the
    allocators' scatter. Beyond that, measured again: a leak grows each time; a second version of a
    kernel is compiled once, and a table with a limit fills up once."""
    for last in (False, True):
        found = grows(run, times)
        assert found.pop("bytes of arrays") == 0
        is_small = found["pages"] < 16 << 20 and max(found[name] for name in COUNTED) < times // 2
        if is_small or last:
            break
    assert is_small, found


def launches() -> dict[str, Callable[[int], object]]:
    """Launches of each kind, by the number of the launch."""
    x, y = ti.ndarray(ti.f32, N), ti.ndarray(ti.f32, N)
    f = ti.field(ti.f32, N, needs_grad=True)
    loss = ti.field(ti.f32, (), needs_grad=True)
    host, zeros = np.zeros(N, np.float32), np.zeros(2 * LAUNCHES, np.float32)

    def differentiate(_: int) -> None:
        with ti.ad.Tape(loss):
            square(f, loss)

    return {
        "arrays in turn": lambda k: add(x if k % 2 else y, 0.5 * k),
        "lengths": lambda k: add_first(x, k % N),
        "results": lambda k: read(x, k % N),
        "host arrays": lambda k: add(host, 1.0),
        "new host arrays": lambda k: add(np.zeros(N, np.float32), 1.0),
        "new arrays": lambda k: add(ti.ndarray(ti.f32, N), 1.0),
        "new shapes": lambda k: shift(zeros[: k + 1], zeros[-k - 1 :]),
        "elements": lambda k: x.__setitem__(k % N, x[(k + 1) % N]),
        "reports": tell,
        "gradients": differentiate,
    }


SLOW = {"results": 2, "reports": 2, "new host arrays": 2, "new arrays": 2, "gradients": 10}


@pytest.mark.parametrize(
    "kind",
    ["arrays in turn", "lengths", "results", "host arrays", "new host arrays", "new arrays",
     "new shapes", "elements", "reports", "gradients"],
)  # fmt: skip
def test_launches_leave_nothing(kind: str) -> None:
    check(launches()[kind], LAUNCHES // SLOW.get(kind, 1))


def test_fields_leave_nothing() -> None:
    def use(_: int) -> None:
        x = ti.Vector.field(2, ti.f32, N, needs_grad=True)
        x.fill(1)
        x[3] = x[4] + 1
        assert x.to_numpy()[3].tolist() == [2, 2]

    check(use, FIELDS)


def test_fields_of_kernels_leave_nothing() -> None:
    loss = ti.field(ti.f32, (), needs_grad=True)

    def use(_: int) -> None:
        x = ti.field(ti.f32, N)
        square(x, loss)

    times = current_runtime().compiled  # the last so many, for reports
    times.extend(("", float(k)) for k in range(times.maxlen or 0))
    check(use, FIELDS // 2)


def test_a_thousand_fields_at_once() -> None:
    """All alive: each takes its memory once, and all of it comes back."""
    before = counts()
    fields = [ti.field(ti.i32, N) for _ in range(FIELDS)]
    for k, x in enumerate(fields):
        x.fill(k)
    assert [x[N - 1] for x in fields] == list(range(FIELDS))
    held = current_runtime().device.heap.used_bytes - before["bytes of arrays"]
    assert FIELDS * 4 * N <= held <= FIELDS * (4 * N + 512)
    del fields, x
    assert counts()["bytes of arrays"] == before["bytes of arrays"]


def test_classes_and_their_kernels_die() -> None:
    def made() -> weakref.ref[type]:
        class Plain:
            number = 2

        @ti.data_oriented
        class Model:
            inner = Plain()

            @ti.kernel
            def run(self) -> ti.i32:
                return self.inner.number

        assert Model().run() == 2
        return weakref.ref(Model)

    model = made()
    ti.sync()
    gc.collect()
    assert model() is None
