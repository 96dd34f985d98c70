"""Python's writes between kernels come in order, and do not wait (`fields.late_writes`)."""

from __future__ import annotations

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import VkchiError
from vkchi.fields import elements
from vkchi.runtime import current_runtime

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("own_runtime")]
N = 5000


@pytest.fixture
def waits(monkeypatch) -> list[bool]:
    """Waits for the device that was at work."""
    ti.init(arch=ti.vulkan)
    device, found = current_runtime().device, []
    if not device.unified:
        pytest.skip("the host does not reach the device's memory")
    wait = device.wait
    monkeypatch.setattr(device, "wait", lambda: found.append(device.busy) or wait())
    # Submitted work may complete at any moment; here it never does before a wait.
    never_done = property(lambda self: (self.recorded_number, self._left))
    monkeypatch.setattr(type(device), "position", never_done, raising=False)
    return found


@ti.kernel
def add(x: ti.template(), y: ti.template()):
    for i in x:
        y[i] += x[i]


def test_numbers_between_kernels(waits):
    ti.sync()
    x, y = ti.field(ti.f32, N), ti.field(ti.f32, N)
    del waits[:]
    for k in range(5):
        x[7] = k + 0.5
        x[N - 1] = k
        add(x, y)
    assert waits == []
    assert y[7] == 12.5 and y[N - 1] == 10 and x[7] == 4.5
    assert waits == [True]


@pytest.mark.parametrize("dtype", [ti.i32, ti.u32, ti.f32, ti.i64, ti.f64, ti.u8, ti.f16, ti.i16])
def test_numbers_of_all_kinds(dtype, need, waits):
    need(dtype.name)
    x, y = ti.field(dtype, 16), ti.field(dtype, 16)
    for k in range(3):
        x[2], x[3] = k, 2 * k
        add(x, y)
        x.fill(0)
        x[15] = 1
    assert x.to_numpy().tolist() == [0] * 15 + [1]
    assert y.to_numpy().tolist() == [0, 0, 3, 6, *[0] * 11, 2]


@pytest.mark.parametrize("layout", [ti.Layout.AOS, ti.Layout.SOA])
def test_vectors_matrices_and_their_components(layout):
    ti.init(arch=ti.vulkan)
    v, w = (ti.Vector.field(3, ti.f32, 50, layout=layout) for _ in range(2))
    m = ti.Matrix.field(2, 2, ti.f32, (), layout=layout)

    @ti.kernel
    def turn():
        for i in v:
            w[i] = w[i] + v[i] * m[None][0, 1]

    m[None] = [[0, 1], [0, 0]]
    for k in range(4):
        v[3] = [k, 1.0, -k]
        v[4].y = k
        v[5] = 2.0
        turn()
        m[None][0, 1] = k
    want = np.zeros((50, 3))
    factors = (1, 0, 1, 2)
    for k, f in enumerate(factors):
        want[3] += f * np.array([k, 1, -k])
        want[4, 1] += f * k
        want[5] += f * 2.0
    assert np.array_equal(w.to_numpy(), want)


def test_arrays_in_blocks_and_with_offsets():
    ti.init(arch=ti.vulkan)
    a, b = ti.field(ti.i32), ti.field(ti.i32)
    ti.root.dense(ti.i, 4).dense(ti.ij, (2, 3)).place(a, b, offset=(-4, 1))
    seen = ti.field(ti.i32, 2)

    @ti.kernel
    def look(i: ti.i32, j: ti.i32):
        seen[0] += a[i, j]
        seen[1] += b[i, j]

    for k, (i, j) in enumerate([(-4, 1), (3, 3), (0, 2), (-1, 1)]):
        a[i, j], b[i, j] = k + 1, 10 * (k + 1)
        look(i, j)
        a[i, j] = -1
    assert seen.to_numpy().tolist() == [10, 100]
    assert sum(a.to_numpy().ravel()) == -4 and sum(b.to_numpy().ravel()) == 100


def test_fills_between_kernels(waits):
    x, y = ti.field(ti.f32, N), ti.ndarray(ti.f32, N)
    total = ti.field(ti.f32, ())

    @ti.kernel
    def run(y: ti.types.ndarray()):
        for i in x:
            total[None] += x[i] + y[i]

    ti.sync()
    del waits[:]
    for k in range(4):
        x.fill(k)
        y.fill(0.25)
        run(y)
    assert waits == []
    assert total[None] == N * (0 + 1 + 2 + 3 + 4 * 0.25)


def test_many_in_a_row_wait_once(waits):
    x, y = ti.field(ti.i32, N), ti.field(ti.i32, N)
    add(x, y)
    del waits[:]
    for k in range(1000):
        x[k] = k
    assert waits == [True]
    add(x, y)
    assert y.to_numpy()[:1001].tolist() == [*range(1000), 0]


def test_shared_memory_is_written_immediately():
    ti.init(arch=ti.vulkan)
    x, y = ti.ndarray(ti.f32, N), ti.ndarray(ti.f32, N)

    @ti.kernel
    def work(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] += x[i]

    seen = np.from_dlpack(x)
    for k in range(3):
        work(x, y)
        x[3] = k
        assert seen[3] == k
        work(x, y)
        x.fill(k)
        assert seen.tolist() == [k] * N
    assert y[3] == 0 + 0 + 0 + 1 + 1 + 2


def test_after_the_device_has_gone():
    ti.init(arch=ti.vulkan)
    x = ti.field(ti.f32, 4)
    x[0] = 1
    ti.reset()
    for write in (lambda: x.fill(1), lambda: x.__setitem__(0, 1.0)):
        with pytest.raises(VkchiError):
            write()


def test_words_of_fills():
    assert elements.words_of_scalar(b"\1") == (0x01010101,)
    assert elements.words_of_scalar(b"\1\2") == (0x02010201,)
    assert elements.words_of_scalar(b"\0" * 8) == (0, 0)
