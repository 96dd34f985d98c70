"""Arrays given to other libraries by DLPack, in place, and theirs taken over."""

import array
import copy
import gc
import os
import pickle
import subprocess
import sys
import weakref

import numpy as np
import pytest

import vkchi as ti
from tests.devices import errors_of
from vkchi.device import open_device
from vkchi.runtime import Runtime, current_runtime, install_runtime
from vkchi.target.options import Options

pytestmark = pytest.mark.device

DTYPES = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "u1"]


@ti.kernel
def add_one(x: ti.types.ndarray()):
    for i in x:
        x[i] += 1


@ti.kernel
def add_all(x: ti.types.ndarray(ndim=2)):
    for i, j in x:
        x[i, j] += 1


def address_of(storage):
    return storage.host.ctypes.data


def needs_shared_memory(x):
    if x.host is None:
        pytest.skip("the host does not reach this device's memory")


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_is_shared_both_ways(name):
    try:
        x = ti.ndarray(getattr(ti, name), 5)
    except ti.DeviceError:
        pytest.skip(f"no {name} on this device")
    needs_shared_memory(x)
    if x.host.dtype != x.dtype.dtype:
        with pytest.raises(BufferError):
            x.__dlpack__(copy=False)
        return
    seen = np.from_dlpack(x)
    assert seen.dtype == x.dtype.dtype
    assert seen.ctypes.data == address_of(x)
    x[3] = 1
    assert seen.tolist() == [0, 0, 0, 1, 0]
    back = ti.from_dlpack(x)
    assert back.dtype is x.dtype
    assert back.to_numpy().tolist() == seen.tolist()


def test_writes_are_visible_both_ways():
    x = ti.ndarray(ti.f32, 4)
    needs_shared_memory(x)
    seen = np.from_dlpack(x)
    seen[:] = [1, 2, 3, 4]
    add_one(x)
    ti.sync()
    assert seen.tolist() == [2, 3, 4, 5]


def test_an_export_waits_for_earlier_launches():
    x = ti.ndarray(ti.f32, 1 << 16)
    needs_shared_memory(x)
    for _ in range(20):
        add_one(x)
    assert (np.from_dlpack(x) == 20).all()


@pytest.mark.parametrize("layout", [ti.Layout.AOS, ti.Layout.SOA])
def test_fields_of_vectors_keep_their_steps(layout):
    v = ti.Vector.field(3, ti.f32, shape=(2, 4), layout=layout)
    needs_shared_memory(v)
    v[1, 2] = [1, 2, 3]
    seen = np.from_dlpack(v)
    assert seen.shape == (2, 4, 3)
    assert seen[1, 2].tolist() == [1, 2, 3]
    seen[0, 3, 1] = 7
    assert v[0, 3][1] == 7


def test_members_of_a_tree_and_numbers_without_axes():
    x, y, s = ti.field(ti.f32), ti.field(ti.i32), ti.field(ti.f32, shape=())
    ti.root.dense(ti.i, 6).place(x, y)
    needs_shared_memory(s)
    y[4] = 9
    assert np.from_dlpack(y).tolist() == [0, 0, 0, 0, 9, 0]
    s[None] = 2.5
    assert np.from_dlpack(s).item() == 2.5


def test_blocks_are_copied_or_raise():
    x = ti.field(ti.f32)
    ti.root.dense(ti.ij, 2).dense(ti.ij, 4).place(x)
    needs_shared_memory(x)
    x[5, 3] = 1
    seen = np.from_dlpack(x)
    assert seen[5, 3] == 1 and seen.sum() == 1
    with pytest.raises(BufferError, match="equal steps"):
        x.__dlpack__(copy=False)


def test_a_copy_is_a_copy():
    x = ti.ndarray(ti.f32, 3)
    copied = x.__dlpack__(copy=True, max_version=(1, 0), dl_device=(1, 0))
    assert "dltensor" in repr(copied)


def test_foreign_devices_and_streams_raise():
    x = ti.ndarray(ti.f32, 3)
    needs_shared_memory(x)
    with pytest.raises(BufferError, match="CPU"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="streams"):
        x.__dlpack__(stream=2)
    assert x.__dlpack_device__() == (1, 0)


def test_the_consumer_may_outlive_the_producer_and_the_device():
    x = ti.ndarray(ti.f32, 1000)
    needs_shared_memory(x)
    x.fill(3)
    seen = np.from_dlpack(x)
    del x
    gc.collect()
    ti.reset()
    assert seen.sum() == 3000
    ti.init()


def test_no_memory_stays_behind():
    x = ti.ndarray(ti.f32, 1 << 18)
    needs_shared_memory(x)
    for _ in range(1000):
        seen = np.from_dlpack(ti.ndarray(ti.f32, 1 << 18))
    del seen, x
    gc.collect()
    ti.sync()
    assert ti.ndarray(ti.f32, 4).to_numpy().sum() == 0


def test_taking_over_copies_arrays_that_are_not_contiguous():
    given = np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::-1]
    taken = ti.from_dlpack(given)
    assert taken.shape == (2, 3)
    np.testing.assert_array_equal(taken.to_numpy(), given)
    with pytest.raises(BufferError, match="is copied"):
        ti.from_dlpack(given, copy=False)


def needs_imports():
    if not current_runtime().device.host_pointer_alignment:
        pytest.skip("this device does not use memory of the host in place")


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_taking_over_in_place(library):
    needs_imports()
    other = pytest.importorskip(library)
    given = other.ones((3, 4), dtype=other.float32)
    taken = ti.from_dlpack(given, copy=False)
    assert isinstance(taken, ti.ScalarNdarray)
    assert address_of(taken) == np.from_dlpack(given).ctypes.data
    add_all(taken)
    ti.sync()
    assert given.tolist() == [[2] * 4] * 3
    given[1, 2] = 7
    assert taken[1, 2] == 7
    taken[0, 0] = 5
    taken.fill(3) if library == "numpy" else taken.from_numpy(np.full((3, 4), 3, np.float32))
    assert given.tolist() == [[3] * 4] * 3
    apart = ti.from_dlpack(given, copy=True)
    apart.fill(0)
    assert given[0, 0] == 3
    again = np.from_dlpack(taken)
    assert again.ctypes.data == address_of(taken)


def test_imported_memory_lives_while_used():
    needs_imports()
    given = np.ones(1 << 20, np.float32)
    gone = weakref.ref(given)
    taken = ti.from_dlpack(given)
    del given
    for _ in range(3):
        add_one(taken)
    seen = np.from_dlpack(taken)
    del taken  # the device is at work in it
    gc.collect()
    assert gone() is not None
    ti.sync()
    assert seen[-1] == 4
    del seen
    gc.collect()
    ti.ndarray(ti.f32, 1)
    ti.sync()
    current_runtime().device.sweep()
    assert gone() is None


def test_imported_memory_outlives_the_device(own_runtime):
    needs_imports()
    taken = ti.from_dlpack(np.arange(5000, dtype=np.float32))
    seen = np.from_dlpack(taken)
    ti.reset()
    gc.collect()
    assert seen[4999] == 4999
    with pytest.raises(ti.TaichiRuntimeError, match="reset"):
        taken[0]
    del taken
    gc.collect()
    assert seen[4999] == 4999


def test_out_of_range_accesses_of_imported_memory_change_nothing_around_it():
    needs_imports()
    base = np.zeros(48, np.float32)
    taken = ti.from_dlpack(base[16:32], copy=False)

    @ti.kernel
    def scatter(x: ti.types.ndarray(), n: ti.i32):
        for i in range(n):
            x[i - 16] = 1

    own = ti.ndarray(ti.f32, 16)
    builder = ti.graph.GraphBuilder()
    x = ti.graph.Arg(ti.graph.ArgKind.NDARRAY, "x", ti.f32, ndim=1)
    n = ti.graph.Arg(ti.graph.ArgKind.SCALAR, "n", ti.i32)
    builder.dispatch(scatter, x, n)
    graph = builder.compile()
    graph.run({"x": own, "n": 48})
    graph.run({"x": taken, "n": 48})
    scatter(own, 48)
    scatter(taken, 48)
    ti.sync()
    assert base.tolist() == [0] * 16 + [1] * 16 + [0] * 16


def test_memory_imported_twice_may_alias():
    """Kernels are reported that such arrays may be the same memory."""
    needs_imports()
    base = np.zeros(40, np.float32)
    a, b = ti.from_dlpack(base[:32]), ti.from_dlpack(base[8:])

    @ti.kernel
    def shift(a: ti.types.ndarray(), b: ti.types.ndarray()):
        for _ in range(1):
            for i in range(32):
                a[i] = i
                b[i] = b[i] + 100
                a[i] += 1

    shift(a, b)
    ti.sync()
    want = np.zeros(40, np.float32)
    for i in range(32):
        want[i] = i
        want[8 + i] += 100
        want[i] += 1
    assert base.tolist() == want.tolist()


def test_a_copy_of_an_imported_array_has_its_own_memory():
    given = np.arange(16, dtype=np.float32)
    taken = ti.from_dlpack(given)
    made = copy.deepcopy(taken)
    add_one(made)
    assert given[3] == 3
    assert made[3] == 4
    assert pickle.loads(pickle.dumps(taken)).to_numpy().tolist() == given.tolist()


def test_unsupported_imports_raise():
    with pytest.raises(ti.TaichiRuntimeTypeError, match="no __dlpack__"):
        ti.from_dlpack([1, 2])
    with pytest.raises(ti.TaichiRuntimeTypeError, match="complex"):
        ti.from_dlpack(np.zeros(2, np.complex64))

    class Elsewhere:
        def __dlpack_device__(self):
            return (2, 1)

        def __dlpack__(self):
            raise AssertionError("not to be asked")

    with pytest.raises(ti.TaichiRuntimeTypeError, match=r"device \(2, 1\)"):
        ti.from_dlpack(Elsewhere())


def test_torch_shares_the_memory():
    torch = pytest.importorskip("torch")
    x = ti.ndarray(ti.math.vec2, (3,))
    needs_shared_memory(x)
    tensor = torch.from_dlpack(x)
    assert tensor.data_ptr() == address_of(x)
    assert tensor.shape == (3, 2)
    tensor += 1
    assert x[2][1] == 1
    assert ti.from_dlpack(tensor.T).shape == (2, 3)
    for bad in (
        torch.zeros(2, dtype=torch.float8_e4m3fn),
        torch.zeros(2, requires_grad=True),
        torch.zeros(2, device="meta"),
    ):
        with pytest.raises(ti.TaichiRuntimeTypeError, match="cannot give"):
            ti.from_dlpack(bad)


@pytest.mark.parametrize("copy", [None, True, False])
def test_torch_tensors_with_lazy_conjugates_or_signs_raise(copy):
    """Torch exports them as if memory held theirs."""
    torch = pytest.importorskip("torch")
    opposite = torch.tensor([1 + 2j, 3 + 4j]).conj().imag
    assert opposite.tolist() == [-2, -4]
    short = torch.ones(1000)
    short.untyped_storage().resize_(16)
    for bad, why in ((opposite, "resolve_neg"), (short, "was resized")):
        with pytest.raises(ti.TaichiRuntimeTypeError, match=why):
            ti.from_dlpack(bad, copy=copy)
    assert ti.from_dlpack(opposite.resolve_neg()).to_numpy().tolist() == [-2, -4]


EXIT = """
import vkchi as ti
try:
    import torch as other
except ImportError:
    import numpy as other
ti.init(log_level="error")
x = ti.ndarray(ti.f32, 1000)
if x.host is not None:
    kept = other.from_dlpack(x)
    kept += 1
print("ended")
"""


def test_a_tensor_alive_at_the_interpreters_end():
    done = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, errors_of(done.stderr)) == (0, "ended\n", "")


class Dlpack:
    """An array of another library, which speaks DLPack alone."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **how):
        return self.values.__dlpack__(**how)

    def __dlpack_device__(self):
        return (1, 0)


class Interface:
    """The same by numpy's array interface."""

    def __init__(self, values):
        self.values, self.__array_interface__ = values, values.__array_interface__


@pytest.mark.parametrize("wrap", [Dlpack, Interface, memoryview])
def test_arrays_of_other_libraries_are_arguments(wrap):
    values = np.array([1, 2, 3], np.float32)
    add_one(wrap(values))
    assert values.tolist() == [2, 3, 4]


def test_arrays_of_python_are_arguments():
    values = array.array("f", [1, 2, 3])
    add_one(values)
    assert values.tolist() == [2, 3, 4]


def test_read_only_memory_is_read_and_not_written():
    total = ti.field(ti.i32, shape=())

    @ti.kernel
    def add_up(x: ti.types.ndarray()):
        for i in x:
            total[None] += ti.i32(x[i])

    needs_bytes()
    add_up(b"\x01\x02\x03")
    assert total[None] == 6
    with pytest.raises(ti.TaichiRuntimeTypeError, match="read-only"):
        add_one(b"\x01\x02\x03")


def needs_bytes():
    try:
        ti.ndarray(ti.u8, 1)
    except ti.DeviceError:
        pytest.skip("no u8 on this device")


def test_non_array_raises():
    class OnCuda:
        __cuda_array_interface__ = {}

    for bad in ([1.0, 2.0], np.float32(1), "text", 3.0, OnCuda(), ti.field(ti.f32, shape=2)):
        with pytest.raises(ti.TaichiRuntimeTypeError, match="argument `x`"):
            add_one(bad)


def test_memory_that_the_host_does_not_reach(monkeypatch):
    monkeypatch.setattr(
        sys.modules["vkchi.device"], "choose_exporter", lambda logical: None
    )  # nor CUDA
    install_runtime(Runtime(open_device(staged=True), Options()))
    x = ti.ndarray(ti.f32, 3)
    x.fill(2)
    for export in (x.__dlpack__, x.__dlpack_device__):
        with pytest.raises(BufferError, match="no agreed meaning"):
            export()
    assert "dltensor" in repr(x.__dlpack__(dl_device=(1, 0)))
    ti.init()


def count_files():
    """Open files of this process; 0 where the system does not tell."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def test_a_thousand_exports_and_imports_leave_nothing():
    needs_imports()
    logical = current_runtime().device._logical

    def count():
        kinds = ("VkBuffer", "VkDeviceMemory")
        return sum(len(logical.handles(kind)._made) for kind in kinds)

    own = ti.ndarray(ti.f32, 100)
    given = np.ones(5000, np.float32)
    ti.sync()
    current_runtime().device.sweep()
    before, files = count(), count_files()
    for _ in range(1000):
        assert np.from_dlpack(own).ctypes.data == address_of(own)
        add_one(ti.from_dlpack(given, copy=False))
    ti.sync()
    current_runtime().device.sweep()
    assert given[0] == 1001
    assert count() <= before + 2
    assert count_files() == files
