"""Loops and arrays beyond 2**31: counted and reached in 64 bits.

No software device holds 2**31 numbers of 32 bits (lavapipe ends below 4 GiB), so small arrays are
declared wide: the code is the same.
"""

from __future__ import annotations

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import DeviceError
from vkchi.fields.storage import Storage
from vkchi.runtime import current_runtime
from vkchi.types.core import ArrayArgument, Attributes


@pytest.fixture(autouse=True)
def wants_i64() -> None:
    if not current_runtime().device.caps.int64:
        pytest.skip("the device has no i64")


def declare_wide(x):
    x.argument = ArrayArgument.of(x.argument.type, Attributes(ext64=True))
    return x


def test_range_across_the_limit() -> None:
    c = ti.field(ti.i64, 3)
    begin, end = 2**31 - 70000, 2**31 + 70005

    @ti.kernel
    def run():
        for i in range(begin, end):
            c[0] += 1
            if i % 1000 == 7:
                continue
            ti.atomic_max(c[1], ti.i64(i))
            c[2] += ti.i64(i)

    run()
    kept = [i for i in range(begin, end) if i % 1000 != 7]
    assert c.to_numpy().tolist() == [end - begin, max(kept), sum(kept)]


@pytest.mark.parametrize("n", [-5, 0, 1, 70001])
def test_range_of_a_wide_argument(n: int) -> None:
    c = ti.field(ti.i32, ())

    @ti.kernel
    def run(n: ti.i64):
        for _ in range(n):
            c[None] += 1

    run(n)
    assert c[None] == max(n, 0)


def test_wide_array_of_one_axis() -> None:
    x = declare_wide(ti.ndarray(ti.f32, 100003))

    @ti.kernel
    def run(x: ti.types.ndarray()):
        for i in x:
            x[i] = i % 1000

    run(x)
    np.testing.assert_array_equal(x.to_numpy(), np.arange(100003) % 1000)


def test_wide_arrays_of_two_axes_and_out_of_range_accesses() -> None:
    shape = (301, 257)
    x, y = (declare_wide(ti.Vector.ndarray(2, ti.f32, shape)) for _ in range(2))

    @ti.kernel
    def run(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i, j in x:
            x[i, j] = [i, j]
        for I in ti.grouped(y):
            y[I] = x[I] + 1
            y[I + 100000] = [7, 7]
            y[-1 - I] = [7, 7]

    run(x, y)
    want = np.stack(np.mgrid[0:301, 0:257], -1) + 1
    np.testing.assert_array_equal(y.to_numpy(), want)


def test_a_product_above_i32_raises() -> None:
    c = ti.field(ti.i32, ())

    @ti.kernel
    def run(n: ti.i32):
        for i, j in ti.ndrange(n, n):
            c[None] += 1

    run(300)
    assert c[None] == 90000
    with pytest.raises(ti.TaichiRuntimeError, match="4900000000"):
        run(70000)
    assert c[None] == 90000


def test_oversized_array_raises() -> None:
    with pytest.raises(DeviceError, match=r"MiB in one piece is more than .* use several arrays"):
        Storage(current_runtime(), ti.f32, (1 << 40,))
    with pytest.raises(ti.TaichiRuntimeError, match="an axis of 3221225472 elements.*two axes"):
        ti.ndarray(ti.u8, 3 << 30)


def test_pieces_above_the_limit_of_the_driver() -> None:
    """lavapipe promises 2 GiB, and has more (its pages are there when they are touched)."""
    device = current_runtime().device
    if device.info.driver.split()[0] != "llvmpipe":
        pytest.skip("this driver keeps to its limit, or memory is not there before it is touched")
    assert device.allocate((4 << 30) - 4096, zero=False).size_bytes > 1 << 31
    with pytest.raises(DeviceError, match=r"4096\.0 MiB in one piece .* allows \(4095\.9 MiB\)"):
        device.allocate(4 << 30)


def test_host_array_beyond_the_limit() -> None:
    """A numpy array that lavapipe works in, of pages that are there when they are touched."""
    x = np.zeros((4095, 1 << 20), np.uint8)
    if current_runtime().device.info.driver.split()[0] != "llvmpipe":
        pytest.skip("the device does not work in the host's memory, or not so far")

    @ti.kernel
    def run(x: ti.types.ndarray(), step: ti.i32):
        for k in range(x.shape[0] // step):
            x[k * step, x.shape[1] - 1 - k] = k + 1
            x[k * step, 0] += x[k * step + 1, 0] + 2
        x[5000 + step, 0] = 9
        x[-step, 3] = 9

    run(x, 512)
    assert [x[512 * k, -1 - k] for k in range(7)] == list(range(1, 8))
    assert (x[:3584:512, 0] == 2).all() and x[4094, -1] == x[0, 1] == 0


@pytest.mark.parametrize("i", [2**32 + 1, -(2**32) + 1, 2**32 - 1, -(2**63), 2**31, 1, -1])
def test_indices_of_64_bits_of_small_arrays(i: int) -> None:
    x, y = ti.field(ti.i32, 5), ti.field(ti.i32, 5, offset=-2)
    a, b = ti.field(ti.i32), ti.field(ti.i32)
    ti.root.dense(ti.i, 5).place(a, b)

    @ti.kernel
    def run(i: ti.i64):
        x[i] = 7
        y[i] = 7
        a[i] = 7

    run(i)
    for field, first in ((x, 0), (y, -2), (a, 0), (b, 9)):
        assert field.to_numpy().tolist() == [7 * (k + first == i) for k in range(5)]


@pytest.mark.parametrize("is_serial", [False, True])
def test_axes_of_a_space_across_the_limit(is_serial: bool) -> None:
    """Indices of an axis with constants beyond i32, single or grouped."""
    x = ti.field(ti.i64, (2, 8))
    begin = 2**40

    @ti.kernel
    def fill():
        ti.loop_config(serialize=is_serial)
        for i, j in ti.ndrange((begin, begin + 3), 2):
            x[0, (i - ti.i64(begin)) * 2 + j] = i
        ti.loop_config(serialize=is_serial)
        for I in ti.grouped(ti.ndrange((begin, begin + 3), 2)):
            x[1, (I[0] - ti.i64(begin)) * 2 + I[1]] = I[0]

    fill()
    wanted = [begin + k // 2 for k in range(6)] + [0, 0]
    assert x.to_numpy().tolist() == [wanted, wanted]
