"""Memory that Vulkan and CUDA share, with a stand-in for CUDA's driver: the calls, their order and
flags, and the numbers. The real thing: `test_cuda_hardware.py`."""

import ctypes
import gc
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import vkchi as ti
from tests import cuda_stand_in
from tests.cuda_stand_in import StandIn
from vkchi.device import open_device
from vkchi.errors import DeviceError
from vkchi.interop.cuda import driver as driver_module
from vkchi.interop.cuda import link as link_module
from vkchi.interop.cuda.driver import CudaDriver, open_driver
from vkchi.runtime import Runtime, current_runtime, install_runtime
from vkchi.target.memory_handles import OPAQUE_FD, OPAQUE_WIN32, Payload
from vkchi.target.options import Options
from vkchi.vk import queue, recorder
from vkchi.vk.memory import external

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the stand-in is Linux's"),
]


@ti.kernel
def add_one(x: ti.types.ndarray()):
    for i in x:
        x[i] += 1


@ti.kernel
def double_into(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2 * x[i]


class Timelines(external.FdExporter):
    """Gives plain timelines under descriptors: no software driver exports any."""

    def __init__(self, logical, cu):
        super().__init__(logical)
        self.cu = cu

    def export_semaphore(self, semaphore):
        handle = cuda_stand_in.new_handle()
        self.cu.semaphores[handle] = (self.cu.vulkan, semaphore)
        return handle


@pytest.fixture
def cu(monkeypatch, own_runtime):
    """The stand-in; the current runtime's device is linked to it when that is first asked for."""
    module = StandIn()

    def find(logical):
        return None if external.find_exporter(logical) is None else Timelines(logical, module)

    def plain(logical, value=0, kind=0):
        return external.make_timeline(logical, value)

    monkeypatch.setattr(sys.modules["vkchi.device"], "choose_exporter", find)
    monkeypatch.setattr(recorder, "find_exporter", find)
    monkeypatch.setattr(recorder, "make_timeline", plain)
    monkeypatch.setattr(queue, "make_timeline", plain)
    monkeypatch.setattr(queue, "can_export_timelines", lambda logical, kind: True)
    monkeypatch.setattr(link_module, "open_driver", lambda uuid: CudaDriver(module, 0))
    opened = open_device(staged=True)
    install_runtime(Runtime(opened, Options()))
    if opened.heap.exporter is None:
        pytest.skip("this driver exports no memory")
    module.vulkan = opened
    yield module
    opened.close()  # here, where the stand-in is there still


def read_capsule(capsule):
    """The DLTensor in a versioned capsule, as a dict."""
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )(capsule, b"dltensor_versioned")

    class Tensor(ctypes.Structure):
        _fields_ = (
            ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
            ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("data", ctypes.c_void_p),
            ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
            ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
            ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
            ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
        )  # fmt: skip

    return Tensor.from_address(pointer)


def export(x, stream=7):
    """A capsule for a stream, and numpy's view of where it leads: as a kernel of CUDA's has it."""
    capsule = x.__dlpack__(stream=stream, max_version=(1, 0))
    told = read_capsule(capsule)
    shape = tuple(told.shape[k] for k in range(told.ndim))
    steps = tuple(told.strides[k] * told.bits // 8 for k in range(told.ndim))
    kind = {0: "i", 1: "u", 2: "f"}[told.code]
    shown = SimpleNamespace(__array_interface__={
        "data": (told.data, False), "shape": shape, "strides": steps, "version": 3,
        "typestr": f"<{kind}{told.bits // 8}"})  # fmt: skip
    return capsule, np.asarray(shown)


# --- ours, seen by CUDA --------------------------------------------------------------------------


def test_export_calls(cu):
    x = ti.ndarray(ti.f32, (3, 4))
    x.from_numpy(np.arange(12, dtype=np.float32).reshape(3, 4))
    assert x.__dlpack_device__() == (2, 0)
    cu.calls.clear()
    capsule, seen = export(x)
    (_, memory), (_, mapped), (_, stream), (_, wait) = cu.calls
    assert cu.names() == ["import memory", "map", "import timeline", "wait"]
    block, offset = x.buffer.place()
    assert memory["size"] == block.made.size_bytes  # of the allocation, not of the array
    assert memory["flags"] == 1  # dedicated, as Vulkan's allocation is
    assert mapped == {"memory": memory["memory"], "size": block.size_bytes}
    assert wait["stream"] == 7 and wait["value"] == current_runtime().device.submit()
    assert wait["timeline"] != stream["timeline"]
    np.testing.assert_array_equal(seen, np.arange(12).reshape(3, 4))
    told = read_capsule(capsule)
    assert (told.device_type, told.device_id, told.flags) == (2, 0, 0)
    assert told.data == current_runtime().cuda.map(x.buffer)
    cu.calls.clear()
    again, _ = export(x)  # of the same block and stream: nothing is imported twice
    assert cu.names() == ["wait"]
    assert read_capsule(again).data == told.data


def test_both_are_in_order_and_nobody_waits(cu, monkeypatch):
    x = ti.ndarray(ti.f32, 8)
    capsule, seen = export(x)
    cu.calls.clear()
    seen += 5  # the stream's work
    with monkeypatch.context() as patch:
        patch.setattr(current_runtime().device, "wait", lambda: pytest.fail("the host waits"))
        add_one(x)
    assert cu.names() == ["signal", "wait"]
    (_, signal), (_, wait) = cu.calls
    assert signal["stream"] == wait["stream"] == 7
    assert wait["value"] == current_runtime().device._queue.submitted
    np.testing.assert_array_equal(seen, 6)  # no wait but the stream's
    seen *= 2
    add_one(x)
    np.testing.assert_array_equal(seen, 13)
    values = [facts["value"] for name, facts in cu.calls if name == "signal"]
    assert values == [1, 2]
    del capsule


def test_fields_fills_and_copies_keep_the_order_too(cu):
    x, y = ti.field(ti.i32, 6), ti.ndarray(ti.i32, 6)

    @ti.kernel
    def fill():
        for i in x:
            x[i] = i

    capsule, seen = export(x)
    fill()
    np.testing.assert_array_equal(seen, np.arange(6))
    seen[:] = 9
    assert x[2] == 9
    y.copy_from(ti.ndarray(ti.i32, 6))
    x.fill(3)
    np.testing.assert_array_equal(seen, 3)
    assert x.__dlpack_device__() == (2, 0)
    del capsule


def test_each_stream_has_a_timeline_of_its_own(cu):
    x = ti.ndarray(ti.f32, 8)
    a, _ = export(x, stream=None)  # the legacy default stream
    b, _ = export(x, stream=2)
    c, _ = export(x, stream=0x7F00)
    cu.calls.clear()
    add_one(x)
    signals = [facts for name, facts in cu.calls if name == "signal"]
    assert [facts["stream"] for facts in signals] == [1, 2, 0x7F00]
    assert len({facts["timeline"] for facts in signals}) == 3
    waits = [facts["stream"] for name, facts in cu.calls if name == "wait"]
    assert waits[-3:] == [1, 2, 0x7F00]
    cu.calls.clear()
    add_one(x)  # a stream waits for its own last value first: its number may be another's by now
    assert cu.names()[:6] == ["wait", "signal"] * 3
    del a, b, c


def test_a_consumer_that_keeps_no_order_is_left_alone(cu):
    x = ti.ndarray(ti.f32, 8)
    capsule, _ = export(x, stream=-1)
    cu.calls.clear()
    add_one(x)
    assert cu.calls == []
    with pytest.raises(BufferError, match="stream=0"):
        x.__dlpack__(stream=0)
    with pytest.raises(BufferError, match="given to the CPU"):
        x.__dlpack__(dl_device=(2, 5))
    assert read_capsule(x.__dlpack__(dl_device=(2, 0), max_version=(1, 0))).device_type == 2
    assert read_capsule(x.__dlpack__(dl_device=(1, 0), max_version=(1, 0))).device_type == 1
    del capsule


def test_stream_memory_is_reused_after_the_stream(cu):
    x = ti.ndarray(ti.f32, 1024)
    address = x.buffer.address
    capsule, _ = export(x)
    del x
    gc.collect()
    y = ti.ndarray(ti.f32, 1024)
    assert y.buffer.address != address  # the consumer has it still
    del capsule
    cu.calls.clear()
    ti.sync()
    z = ti.ndarray(ti.f32, 1024)
    assert z.buffer.address == address
    assert cu.names() == ["wait", "signal"]  # for its own last value; then z's zeros wait for it
    cu.calls.clear()
    add_one(z)
    assert cu.calls == []  # nobody is at work there any more


def test_the_order_of_frees(cu, monkeypatch):
    device = current_runtime().device
    big = ti.ndarray(ti.f32, 20 << 20)  # 80 MiB: a block of its own
    capsule, _ = export(big)
    freed = []
    logical = device._logical
    for kind in ("VkBuffer", "VkDeviceMemory"):
        handles = logical.handles(kind)
        monkeypatch.setattr(
            handles, "sweep",
            lambda *args, kind=kind, sweep=handles.sweep, **kw: (
                handles_due(logical, kind) and freed.append((kind, list(cu.names()))),
                sweep(*args, **kw),
            ),
        )  # fmt: skip
    del big, capsule
    cu.calls.clear()
    ti.sync()
    for _ in range(3):
        x = ti.ndarray(ti.f32, 16)
        ti.sync()
    device.sweep()
    names = [name for name in cu.names() if name not in ("signal", "wait")]
    assert names == ["synchronize", "unmap", "destroy memory"]
    assert freed and all("destroy memory" in before for _, before in freed)
    del x


def handles_due(logical, kind):
    return bool(logical.handles(kind).released)


def test_the_end_of_a_device(cu):
    x = ti.ndarray(ti.f32, 8)
    capsule, _ = export(x)
    del capsule
    cu.calls.clear()
    ti.reset()
    names = cu.names()
    assert names[0] == "synchronize" or names[0] == "signal"
    tail = names[names.index("synchronize") :]
    assert tail == ["synchronize", "synchronize", "unmap", "destroy memory",
                    "destroy timeline", "destroy timeline", "release"]  # fmt: skip
    assert not cu._memory and not cu._mapped and not cu._timelines


def test_a_consumer_may_outlive_the_device(cu):
    x = ti.ndarray(ti.f32, 8)
    capsule, seen = export(x)
    add_one(x)
    del x
    ti.reset()
    np.testing.assert_array_equal(seen, 1)
    assert "unmap" not in cu.names()
    del capsule, seen
    gc.collect()


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts descriptors in /proc")
def test_a_thousand_exports_leave_nothing(cu):
    x = ti.ndarray(ti.f32, 100)

    def count():
        gc.collect()
        add_one(x)
        current_runtime().device.sweep()
        link = current_runtime().cuda
        held = sum(len(stream.holders) for stream in link._streams.values())
        return len(os.listdir("/proc/self/fd")), len(cu._memory), len(cu._timelines), held

    export(x)
    before = count()
    for _ in range(1000):
        export(x)
    (stream,) = current_runtime().cuda._streams.values()
    assert len(stream.holders) <= 257  # also where nothing is launched meanwhile
    cu.calls.clear()
    add_one(x)
    assert "signal" in cu.names()  # waits for all of these
    assert all(n <= was for n, was in zip(count(), before))


def test_blocks_and_missing_cuda_raise(cu):
    y = ti.field(ti.f32)
    ti.root.dense(ti.i, 2).dense(ti.i, 3).place(y)
    capsule, _ = export(y)
    del capsule
    z = ti.field(ti.f32)
    ti.root.dense(ti.ij, (2, 2)).dense(ti.ij, (3, 3)).place(z)
    with pytest.raises(BufferError, match="equal steps"):
        z.__dlpack__(stream=1)


# --- CUDA's, as arguments ------------------------------------------------------------------------


class OnCuda:
    """An array in the stand-in for CUDA's memory."""

    def __init__(self, values, stream=7, read_only=False, address=None):
        self.values = values
        self.__cuda_array_interface__ = {
            "data": (values.ctypes.data if address is None else address, read_only),
            "shape": values.shape, "strides": None if values.flags.c_contiguous else values.strides,
            "typestr": values.dtype.str, "version": 3, "stream": stream,
        }  # fmt: skip


def test_an_argument_is_copied_on_its_stream(cu):
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    a, b = OnCuda(x), OnCuda(y)
    double_into(a, b)
    np.testing.assert_array_equal(y, 2 * x)
    cu.calls.clear()
    x += 1
    double_into(a, b)
    np.testing.assert_array_equal(y, 2 * x)
    assert cu.names() == ["copy", "copy", "wait", "signal", "wait", "copy"]
    sizes = [facts["size"] for name, facts in cu.calls if name == "copy"]
    assert sizes == [32, 32, 32]
    assert {facts["stream"] for _, facts in cu.calls} == {7}
    assert cu.calls[-2][1]["value"] == current_runtime().device._queue.submitted


def test_no_argument_of_cudas_waits_on_the_host(cu, monkeypatch):
    x = OnCuda(np.ones(8, np.float32))
    add_one(x)
    with monkeypatch.context() as patch:
        patch.setattr(current_runtime().device, "wait", lambda: pytest.fail("the host waits"))
        for _ in range(5):
            add_one(x)
    np.testing.assert_array_equal(x.values, 7)


def test_read_only_arrays_are_not_copied_back(cu):
    x = OnCuda(np.arange(4, dtype=np.float32))
    y = ti.ndarray(ti.f32, 4)
    double_into(x, y)
    assert cu.names().count("copy") == 1
    np.testing.assert_array_equal(y.to_numpy(), [0, 2, 4, 6])
    cu.calls.clear()
    double_into(x, x)
    np.testing.assert_array_equal(x.values, [0, 2, 4, 6])
    assert cu.names().count("copy") == 2


def test_arguments_of_several_streams(cu):
    x, y = OnCuda(np.ones(8, np.float32), stream=11), OnCuda(np.zeros(8, np.float32), stream=12)
    double_into(x, y)
    np.testing.assert_array_equal(y.values, 2)
    signals = [facts["stream"] for name, facts in cu.calls if name == "signal"]
    waits = [facts["stream"] for name, facts in cu.calls if name == "wait"]
    assert signals == [11, 12] and waits == [11, 12]


def test_memory_that_came_from_us_is_used_where_it_lies(cu):
    x = ti.ndarray(ti.f32, 8)
    capsule, seen = export(x)
    cu.calls.clear()
    add_one(OnCuda(seen))
    assert "copy" not in cu.names() and "import memory" not in cu.names()
    np.testing.assert_array_equal(x.to_numpy(), 1)
    part = OnCuda(seen[2:6])
    add_one(part)
    np.testing.assert_array_equal(x.to_numpy(), [1, 1, 2, 2, 2, 2, 1, 1])
    loan = current_runtime().cuda.arrays.lend(part, 0)
    assert loan.copied is None and loan.array.buffer.address == x.buffer.address + 8
    with pytest.raises(ti.TaichiRuntimeTypeError, match="memory of the device's array"):
        double_into(part, x)
    del capsule


def make_virtual(cu, values, size=1 << 16):
    """Memory as CUDA's virtual memory makes it, exportable: here, of another device of Vulkan's."""
    maker = open_device(staged=True)
    block, _ = maker.allocate(size).place()
    payload = maker.export(block)
    other = StandIn()
    other._depth = 1
    info = other.CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
    info.type, info.handle.fd, info.size = 1, os.dup(payload.handle), payload.size_bytes
    _, memory = other.cuImportExternalMemory(info)
    start = ctypes.addressof(ctypes.c_char.from_buffer(other._memory[memory]))
    cu.vmm[start] = SimpleNamespace(
        fd=payload.handle, size=payload.size_bytes, device=0, number=4711, keep=(maker, other)
    )
    shown = SimpleNamespace(__array_interface__={
        "data": (start + 256, False), "shape": values.shape, "typestr": values.dtype.str,
        "version": 3})  # fmt: skip
    there = np.asarray(shown)
    there[...] = values
    return there


def test_memory_that_can_be_exported_is_used_where_it_lies(cu):
    there = make_virtual(cu, np.arange(16, dtype=np.float32))
    x = OnCuda(there)
    add_one(x)
    np.testing.assert_array_equal(there, np.arange(16) + 1)
    assert "copy" not in cu.names()
    about = [name for name in cu.names() if "allocation" in name]
    both = ["retain allocation", "retain allocation", "export allocation"]
    assert about == [*both, "release allocation", "release allocation"]
    cu.calls.clear()
    add_one(x)
    assert cu.names() == ["wait", "signal", "wait"]  # imported once
    np.testing.assert_array_equal(there, np.arange(16) + 2)
    arrays = current_runtime().cuda.arrays
    assert len(arrays._imported) == 1
    del x
    gc.collect()
    ti.sync()
    for _ in range(2):
        add_one(OnCuda(np.zeros(4, np.float32)))
    assert len(arrays._imported) == 0  # the owner is gone


def test_memory_of_another_device_or_not_exportable_is_copied(cu):
    there = make_virtual(cu, np.zeros(16, np.float32))
    one = next(iter(cu.vmm.values()))
    one.device = 1
    add_one(OnCuda(there))
    np.testing.assert_array_equal(there, 1)
    assert "export allocation" not in cu.names() and cu.names().count("copy") == 2
    assert cu.names().count("release allocation") == cu.names().count("retain allocation") == 2


class Exported(OnCuda):
    """The same with DLPack's methods, which are not called."""

    def __dlpack__(self, *, stream=None):
        raise AssertionError

    def __dlpack_device__(self):
        return 2, 0


def test_taking_over_memory_of_cudas(cu):
    there = make_virtual(cu, np.arange(16, dtype=np.float32))
    source = Exported(there)
    x = ti.from_dlpack(source)
    assert "copy" not in cu.names()
    assert current_runtime().cuda.arrays._imported
    cu.calls.clear()
    there += 1  # its stream's work
    add_one(x)  # like any other array
    assert cu.names() == ["signal", "wait"]
    np.testing.assert_array_equal(there, np.arange(16) + 2)
    add_one(source)
    np.testing.assert_array_equal(x.to_numpy(), np.arange(16) + 3)
    with pytest.raises(ti.TaichiRuntimeTypeError, match="memory of the device's array"):
        double_into(source, x)
    copied = ti.from_dlpack(source, copy=True)
    np.testing.assert_array_equal(copied.to_numpy(), np.arange(16) + 3)
    add_one(copied)
    np.testing.assert_array_equal(there, np.arange(16) + 3)


def test_taking_over_memory_that_cannot_be_shared_copies_it(cu):
    source = Exported(np.arange(8, dtype=np.int32))
    with pytest.raises(BufferError, match="torch_memory"):
        ti.from_dlpack(source, copy=False)
    x = ti.from_dlpack(source)
    assert cu.names().count("copy") == 1
    np.testing.assert_array_equal(x.to_numpy(), np.arange(8))
    add_one(x)
    np.testing.assert_array_equal(source.values, np.arange(8))


@pytest.mark.parametrize("dtype", ["i4", "f4", "u4", "f8", "i8", "i2", "u1", "?"])
def test_cuda_array_dtypes(cu, dtype):
    name = {"i4": "i32", "f4": "f32", "u4": "u32", "f8": "f64", "i8": "i64", "i2": "i16",
            "u1": "u8", "?": "u8"}[dtype]  # fmt: skip
    if not current_runtime().device.caps.can_store(name):
        pytest.skip(f"no {name} on this device")

    @ti.kernel
    def reverse(x: ti.types.ndarray()):
        n = x.shape[0]
        for i in range(1):
            for k in range(n // 2):
                a = x[k]
                x[k] = x[n - 1 - k]
                x[n - 1 - k] = a

    x = OnCuda(np.array([1, 0, 1, 1, 0], dtype))
    reverse(x)
    np.testing.assert_array_equal(x.values, np.array([0, 1, 1, 0, 1], dtype))


def test_unsupported_cuda_arrays_raise(cu):
    fixed = OnCuda(np.zeros(4, np.float32), read_only=True)
    double_into(fixed, OnCuda(np.zeros(4, np.float32)))
    with pytest.raises(ti.TaichiRuntimeTypeError, match="read-only"):
        add_one(fixed)
    with pytest.raises(ti.TaichiRuntimeTypeError, match="not contiguous"):
        add_one(OnCuda(np.zeros(8, np.float32)[::2]))
    with pytest.raises(ti.TaichiRuntimeTypeError, match="no type for"):
        add_one(OnCuda(np.zeros(4, np.complex64)))
    whole = np.zeros(8, np.float32)
    with pytest.raises(ti.TaichiRuntimeTypeError, match="overlap"):
        double_into(OnCuda(whole[:4]), OnCuda(whole[2:6]))
    one = OnCuda(np.zeros(4, np.float32))
    loss = ti.field(ti.f32, (), needs_grad=True)
    with pytest.raises(ti.TaichiRuntimeTypeError, match="in CUDA's memory"), ti.ad.Tape(loss):
        add_one(one)
    add_one(OnCuda(np.zeros(0, np.float32)))


def test_a_thousand_calls_leave_nothing(cu):
    x = OnCuda(np.zeros(64, np.float32))
    add_one(x)
    device = current_runtime().device

    def count():
        gc.collect()
        device.sweep()
        return device.heap.used_bytes, len(cu._memory), len(cu._timelines)

    before = count()
    for _ in range(1000):
        add_one(x)
    assert x.values[3] == 1001
    assert count() == before


def test_torch_tensors_go_through_torch_where_they_are_not_in_order(cu, monkeypatch):
    torch = pytest.importorskip("torch")
    used = []

    class Tensor:
        """Interface of a CUDA tensor, over memory of numpy's."""

        def __init__(self, values, device=0):
            self.values, self.shape, self.is_cuda = values, values.shape, True
            self.layout, self.dtype = torch.strided, torch.float32
            self.device = SimpleNamespace(index=device, type="cuda")

        def is_neg(self):
            return False

        is_conj = is_neg

        def detach(self):
            return self

        untyped_storage = detach

        def data_ptr(self):
            return self.values.ctypes.data

        def stride(self):
            return tuple(step // 4 for step in self.values.strides)

        def record_stream(self, stream):
            used.append(stream.cuda_stream)

        def copy_(self, other):
            used.append("copy_")
            self.values[...] = other.values

    for place in ("host_views.is_torch", "cuda.arrays.is_torch"):
        monkeypatch.setattr(f"vkchi.interop.{place}", lambda x: isinstance(x, Tensor))
    stream = SimpleNamespace(cuda_stream=0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: stream)
    captures = []
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: bool(captures))

    def show(address, seen, ordinal):
        told = {"data": (address, False), "shape": seen.shape, "typestr": "<f4", "version": 3}
        return Tensor(np.asarray(SimpleNamespace(__array_interface__=told)))

    monkeypatch.setattr("vkchi.interop.cuda.arrays.as_torch_tensor", show)
    monkeypatch.setattr("vkchi.launch.compiled_kernel.notify_torch", lambda *args, **kw: None)
    values = np.zeros((4, 6), np.float32)

    @ti.kernel
    def number(x: ti.types.ndarray(ndim=2)):
        for i, j in x:
            x[i, j] = 10 * i + j

    number(Tensor(values.T))
    np.testing.assert_array_equal(values, np.arange(4)[:, None] + 10 * np.arange(6))
    assert used == ["copy_", 0, "copy_"] or used == ["copy_", "copy_", 0]
    assert {facts["stream"] for name, facts in cu.calls if name in ("signal", "wait")} == {1}
    used.clear()
    add_one(Tensor(np.zeros(4, np.float32), device=1))  # another device: torch copies between them
    assert used == ["copy_", "copy_", 0]
    used.clear()
    stream.cuda_stream = 77
    cu.calls.clear()
    add_one(Tensor(np.zeros(4, np.float32)))
    assert used == [77]
    assert {f["stream"] for n, f in cu.calls if n in ("signal", "wait", "copy")} == {77}
    captures.append(True)
    cu.calls.clear()
    with pytest.raises(ti.TaichiRuntimeTypeError, match="while a graph of CUDA's is captured"):
        add_one(Tensor(np.zeros(4, np.float32)))
    assert not cu.calls


# --- finding the device, and failing -------------------------------------------------------------


def test_devices_are_matched_by_uuid():
    uuids = (b"a" * 16, b"b" * 16)
    assert open_driver(b"b" * 16, StandIn(uuids)).ordinal == 1
    with pytest.raises(DeviceError, match="none of CUDA's 2 devices"):
        open_driver(b"c" * 16, StandIn(uuids))


def test_a_handle_that_was_not_taken_is_closed():
    module = StandIn()
    cuda = CudaDriver(module, 0)
    for name, act in (
        ("cuImportExternalMemory", lambda fd: cuda.import_memory(Payload(fd, OPAQUE_FD, 4096))),
        ("cuImportExternalSemaphore", lambda fd: cuda.import_timeline(OPAQUE_FD, fd)),
    ):
        module.failing = {name}
        handle = cuda_stand_in.new_handle()
        with pytest.raises(DeviceError, match=rf"{name} failed \(CUDA_ERROR_INVALID_VALUE\)"):
            act(handle)
        with pytest.raises(OSError):
            os.fstat(handle)
    assert module._depth == 0


def test_nt_handles_are_closed_in_any_case(monkeypatch):
    closed, seen = [], []
    monkeypatch.setattr(driver_module, "close_handle", lambda kind, handle: closed.append(handle))
    module = StandIn()
    module.cuImportExternalMemory = lambda info: seen.append(
        (info.type, info.handle.win32.handle, info.handle.fd, info.flags)
    ) or (cuda_stand_in.CUresult.CUDA_SUCCESS, 1)  # fmt: skip
    module.cuImportExternalSemaphore = lambda info: seen.append(
        (info.type, info.handle.win32.handle)
    ) or (cuda_stand_in.CUresult.CUDA_SUCCESS, 2)  # fmt: skip
    cuda = CudaDriver(module, 0)
    assert cuda.import_memory(Payload(0x10, OPAQUE_WIN32, 4096, 0, True)) == 1
    assert cuda.import_timeline(OPAQUE_WIN32, 0x20) == 2
    assert seen == [(2, 0x10, 0, 1), (10, 0x20)]
    assert closed == [0x10, 0x20]


def test_why_there_is_no_link(own_runtime, monkeypatch):
    install_runtime(Runtime(open_device(staged=True), Options()))
    x = ti.ndarray(ti.f32, 4)
    with pytest.raises(BufferError, match="takes an NVIDIA card"):
        x.__dlpack__()
    with pytest.raises(ti.TaichiRuntimeTypeError, match="takes an NVIDIA card.*pass x.cpu"):
        add_one(OnCuda(np.zeros(4, np.float32)))


def test_a_machine_without_cuda_says_so(cu, monkeypatch):
    def refuse(uuid):
        raise DeviceError("no CUDA driver: libcuda is missing")

    monkeypatch.setattr(link_module, "open_driver", refuse)
    with pytest.raises(BufferError, match="no CUDA driver: libcuda is missing"):
        ti.ndarray(ti.f32, 4).__dlpack_device__()
    assert ti.ndarray(ti.f32, 4).to_numpy().shape == (4,)


def test_an_export_that_fails_in_cuda(cu):
    x = ti.ndarray(ti.f32, 4)
    x.fill(2)
    assert x.__dlpack_device__() == (2, 0)
    cu.failing = {"cuImportExternalMemory"}
    with pytest.raises(BufferError, match="cuImportExternalMemory failed"):
        x.__dlpack__()
    cu.failing = {"cuExternalMemoryGetMappedBuffer"}
    with pytest.raises(BufferError, match="GetMappedBuffer failed"):
        x.__dlpack__()
    assert not cu._memory  # imported memory is released
    cu.failing = set()
    capsule, seen = export(x)
    add_one(x)
    np.testing.assert_array_equal(seen, 3)
    del capsule


def test_a_device_closes_even_if_every_cuda_call_fails(cu):
    """As it does after a fault on the card, and when its own end came first."""
    x = ti.ndarray(ti.f32, 4)
    capsule, _ = export(x)
    del capsule
    device = cu.vulkan
    cu.failing = {
        "cuCtxSynchronize", "cuMemFree", "cuDestroyExternalMemory", "cuDestroyExternalSemaphore",
        "cuDevicePrimaryCtxRelease",
    }  # fmt: skip
    device.close()
    assert device.closed and device._has_ended


def test_a_driver_that_makes_no_memory_to_be_given_away_works_as_before(cu, monkeypatch):
    from vkchi.vk.memory import heap

    make_block = heap.make_block

    def refuse(logical, size_bytes, placement, exporter=None):
        if exporter is not None:
            raise DeviceError("no exportable memory")
        return make_block(logical, size_bytes, placement)

    monkeypatch.setattr(heap, "make_block", refuse)
    x = ti.ndarray(ti.f32, 20 << 20)  # a block of its own
    add_one(x)
    assert x[5] == 1
    with pytest.raises(BufferError, match="not made to be given away"):
        x.__dlpack__()


def test_driver_code_is_short():
    with open(driver_module.__file__) as file:
        assert len(file.readlines()) < 300
