"""Arrays that JAX and vkchi both see, by DLPack."""

import numpy as np
import pytest

import vkchi as ti

jax = pytest.importorskip("jax", reason="jax is not installed: pip install jax")
pytestmark = pytest.mark.device


@ti.kernel
def add_one(x: ti.types.ndarray()):
    for i in ti.grouped(x):
        x[i] += 1


@pytest.mark.parametrize("dtype", ["f32", "i32", "u32", "f16", "u8", "u1"])
def test_there_and_back(dtype):
    try:
        x = ti.ndarray(getattr(ti, dtype), (16, 4))
    except ti.DeviceError:
        pytest.skip(f"no {dtype} on this device")
    if x.host is None or x.host.dtype != x.dtype.dtype:
        pytest.skip("the host does not reach this device's memory")
    x.from_numpy(np.arange(64).reshape(16, 4) % 2)
    seen = jax.dlpack.from_dlpack(x)
    assert seen.unsafe_buffer_pointer() == x.host.ctypes.data
    assert seen.shape == (16, 4) and seen.dtype == x.dtype.dtype
    np.testing.assert_array_equal(seen, x.to_numpy())
    back = ti.from_dlpack(seen)
    np.testing.assert_array_equal(back.to_numpy(), x.to_numpy())


def test_arrays_of_jax_are_read_and_never_written():
    given = jax.numpy.arange(8.0)
    y = ti.ndarray(ti.f32, 8)

    @ti.kernel
    def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = 2 * x[i]

    double(given, y)
    np.testing.assert_array_equal(y.to_numpy(), 2 * np.arange(8))
    with pytest.raises(ti.TaichiRuntimeTypeError, match="read-only"):
        add_one(given)


def test_jax_view_outlives_the_array():
    x = ti.ndarray(ti.f32, 8)
    if x.host is None:
        pytest.skip("the host does not reach this device's memory")
    x.fill(3)
    seen = jax.dlpack.from_dlpack(x)
    del x
    ti.ndarray(ti.f32, 8).fill(9)
    ti.sync()
    np.testing.assert_array_equal(seen, 3)
