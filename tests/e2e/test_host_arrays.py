"""Arrays of numpy and torch as arguments: in place where the device's memory is the host's."""

import gc
import os
import sys
import threading
import weakref

import numpy as np
import pytest

import vkchi as ti
from vkchi.errors import ArgumentError
from vkchi.fields.storage import Storage
from vkchi.interop.in_place import MOST_IMPORTS, host_arrays
from vkchi.ndarray import Ndarray
from vkchi.runtime import current_runtime

pytestmark = pytest.mark.device

DTYPES = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "u1"]


@pytest.fixture
def in_place():
    """Tests of arrays used in place, on devices that do so."""
    if not current_runtime().device.host_pointer_alignment:
        pytest.skip("this device does not use memory of the host in place")


@pytest.fixture
def no_copies(monkeypatch, in_place):
    """Any copy to or from the device is an error."""

    def refuse(*args):
        raise AssertionError("a copy was made")

    monkeypatch.setattr(Ndarray, "keep", refuse)
    monkeypatch.setattr(Storage, "copy_kept", refuse)


@ti.kernel
def double(x: ti.types.ndarray()):
    for I in ti.grouped(x):
        x[I] += x[I]


@ti.kernel
def add(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] += x[i]


@ti.kernel
def total(x: ti.types.ndarray()) -> ti.f32:
    s = 0.0
    for i in x:
        s += x[i]
    return s


def find(array, element_axes=0):
    return host_arrays(current_runtime()).find(array, element_axes)


def is_in_place(array):
    """True if the array is used in place; the addresses are compared."""
    found = find(array)
    if found is None:
        return False
    assert found.host.ctypes.data == array.__array_interface__["data"][0]
    assert found.host.nbytes == found.size_bytes == array.nbytes
    if "llvmpipe" in current_runtime().device.info.name:  # device addresses are the host's
        assert found.buffer.address == array.ctypes.data
    return True


@pytest.mark.parametrize("name", DTYPES)
def test_arrays_of_every_dtype_are_used_where_they_lie(name, need, no_copies):
    need(name)
    x = np.ones(12, getattr(ti, name).dtype)
    assert is_in_place(x)
    if name != "u1":
        double(x)
        assert x.tolist() == [2] * 12


def test_tensors_are_used_where_they_lie(no_copies):
    torch = pytest.importorskip("torch")
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    version = x._version
    assert find(x).start == x.data_ptr()
    double(x)
    assert x.tolist() == [[0, 2, 4], [6, 8, 10]]
    assert x._version == version + 1
    double(x[1])
    double(torch.nn.Parameter(x, requires_grad=False))
    assert x.tolist() == [[0, 4, 8], [24, 32, 40]]


def test_parts_of_arrays_lie_anywhere_in_a_page(no_copies):
    base = np.arange(3000, dtype=np.float32)
    for begin in (0, 1, 3, 1023, 1024, 2047):
        part = base[begin : begin + 900]
        want = part * 2
        assert is_in_place(part)
        double(part)
        assert (part == want).all()


def test_parts_of_arrays_are_compiled_for_twice_at_most(in_place):
    @ti.kernel
    def step(x: ti.types.ndarray()):
        for i in x:
            x[i] += 1

    x = np.ones(4096, np.float32)
    for begin in range(32):
        step(x[begin : begin + 100])
    assert x[31:100].tolist() == [33] * 69
    assert len(step._cache.compiled) <= 2


def test_vectors_and_matrices_are_elements(no_copies):
    @ti.kernel
    def turn(x: ti.types.ndarray(dtype=ti.types.vector(3, ti.f32), ndim=1)):
        for i in x:
            x[i] = x[i].zyx

    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    turn(x)
    assert x.tolist() == [[2, 1, 0], [5, 4, 3], [8, 7, 6], [11, 10, 9]]


def test_an_array_of_no_axes(no_copies):
    @ti.kernel
    def put(x: ti.types.ndarray(ndim=0)):
        x[None] = x[None] + 3

    x = np.array(4.0, np.float32)
    put(x)
    assert x == 7


@pytest.mark.parametrize("name", DTYPES)
def test_out_of_range_accesses_change_nothing_around_an_array(name, need, in_place):
    """Memory behind the end and before the begin belongs to others."""
    need(name)

    @ti.kernel
    def scatter(x: ti.types.ndarray(), n: ti.i32):
        for i in range(n):
            x[i - 20] = 1
            x[i - 20] = x[i]

    base = np.zeros(72, getattr(ti, name).dtype)
    base[::3] = 1
    before, x = base.copy(), base[24:48]
    assert is_in_place(x)
    scatter(x, 80)
    assert (base[:24] == before[:24]).all()
    assert (base[48:] == before[48:]).all()


@pytest.mark.parametrize("name", ["i8", "u8", "i16", "u16", "f16", "i32", "f32"])
def test_atomics_change_nothing_around_an_array(name, need, in_place):
    need(name)

    @ti.kernel
    def count(x: ti.types.ndarray(), n: ti.i32):
        for i in range(n):
            ti.atomic_add(x[i % 24], 1)
            ti.atomic_max(x[i - 20], 2)

    base = np.full(72, 5, getattr(ti, name).dtype)
    x = base[24:48]
    assert is_in_place(x)
    count(x, 96)
    assert x.tolist() == [9] * 24
    assert base[:24].tolist() == base[48:].tolist() == [5] * 24


def test_out_of_range_accesses_of_vectors_and_several_axes(in_place):
    @ti.kernel
    def scatter(x: ti.types.ndarray(dtype=ti.types.vector(2, ti.f32), ndim=2)):
        for i, j in ti.ndrange(9, 9):
            x[i + 3, j - 5] = ti.Vector([7.0, 8.0])
            x[i, j][1] += x[j, i][0]

    base = np.zeros(16 * 8, np.float32)
    scatter(base[32:64].reshape(4, 4, 2))
    assert (base[:32] == 0).all()
    assert (base[64:] == 0).all()


# --- copies ------------------------------------------------------------------------------------


def swapped(n):
    return np.arange(n, dtype=np.float32).astype(">f4")


def unaligned(n):
    raw = bytearray(1 + 4 * n)
    x = np.frombuffer(raw, np.float32, n, offset=1)
    x[:] = np.arange(n)
    return x


COPIED = {
    "every second": lambda n: np.arange(2 * n, dtype=np.float32)[::2],
    "backwards": lambda n: np.arange(n, dtype=np.float32)[::-1],
    "column": lambda n: np.arange(3 * n, dtype=np.float32).reshape(n, 3)[:, 1],
    "fortran": lambda n: np.asfortranarray(np.ones((n, n), np.float32)),
    "empty": lambda n: np.zeros(0, np.float32),
    "no rows": lambda n: np.zeros((n, 0), np.float32),
    "unaligned": unaligned,
    "byte order": swapped,
    "three bytes": lambda n: np.arange(3, dtype=np.uint8),
    "half a word": lambda n: np.arange(9, dtype=np.int16)[1:],
}


@pytest.mark.parametrize("name", COPIED)
def test_unsupported_memory_is_copied_both_ways(name, need):
    x = COPIED[name](8)
    if x.dtype.itemsize < 4:
        need("u8", "i16")
    assert find(x) is None
    want = x.astype(x.dtype.newbyteorder("=")) * 2
    double(x)
    assert (x == want).all()


def test_read_only_arrays_are_read_and_not_written():
    x = np.arange(4, dtype=np.float32)
    x.flags.writeable = False
    assert total(x) == 6
    with pytest.raises(ArgumentError, match="this numpy array is read-only"):
        double(x)
    assert total(np.broadcast_to(np.float32(2), 5)) == 10


def test_overlapping_arrays_raise_if_one_is_written():
    base = np.arange(10, dtype=np.float32)
    with pytest.raises(ArgumentError, match="`y` and `x` overlap in memory"):
        add(base[:8], base[2:])
    assert base.tolist() == list(range(10))

    @ti.kernel
    def dot(x: ti.types.ndarray(), y: ti.types.ndarray()) -> ti.f32:
        s = 0.0
        for i in x:
            s += x[i] * y[i]
        return s

    assert dot(base[:8], base[2:]) == sum(i * (i + 2) for i in range(8))
    add(base[:5], base[5:])
    assert base.tolist() == [0, 1, 2, 3, 4, 5, 7, 9, 11, 13]


def test_reinterpreted_memory_raises_where_written(in_place):
    torch = pytest.importorskip("torch")
    Bits, Numbers = ti.types.ndarray(dtype=ti.i32, ndim=1), ti.types.ndarray(dtype=ti.f32, ndim=1)

    @ti.kernel
    def fill(bits: Bits, y: Numbers):
        for i in y:
            y[i] = ti.cast(bits[i], ti.f32) + 2

    memory = torch.zeros(64, dtype=torch.int32)
    bits = ti.from_dlpack(memory)
    for take in (torch.Tensor.numpy, ti.from_dlpack):
        fill(bits, take(torch.zeros(64)))
        with pytest.raises(ArgumentError, match="`y` and `bits` overlap in memory"):
            fill(bits, take(memory.view(torch.float32)))
    overlapping = ti.from_dlpack(memory.view(torch.float32))
    for _ in range(2):  # a call that failed is not cached
        with pytest.raises(ArgumentError, match="`y` and `bits` overlap in memory"):
            fill(bits, overlapping)
    record = ti.record()
    with pytest.raises(ArgumentError, match="`y` and `bits` overlap in memory"), record:
        fill(bits, ti.from_dlpack(memory.view(torch.float32)))
    assert not memory.any()


def test_array_passed_twice():
    x = np.arange(5, dtype=np.float32)
    add(x, x)
    add(x, x[:])
    assert x.tolist() == [0, 4, 8, 12, 16]


def test_a_tensor_and_its_numpy_view():
    torch = pytest.importorskip("torch")
    x = torch.arange(4, dtype=torch.float32)
    before = x._version
    add(x, x.numpy())
    assert x.tolist() == [0, 2, 4, 6]
    assert x._version > before  # it is the tensor that was written


def test_tensors_that_are_copied():
    torch = pytest.importorskip("torch")
    x = torch.arange(8, dtype=torch.float32)
    double(x[::2])
    double(x.reshape(4, 2).t())
    assert x.tolist() == [0, 2, 8, 6, 16, 10, 24, 14]
    sparse = torch.eye(3).to_sparse()
    with pytest.raises(ArgumentError, match="numpy cannot view"):
        double(sparse)
    with pytest.raises(ArgumentError, match="float8"):
        double(torch.ones(4, dtype=torch.float8_e4m3fn))


def test_memory_of_the_device_itself_is_not_imported(in_place):
    x, y = ti.ndarray(ti.f32, 64), ti.ndarray(ti.f32, 64)
    x.fill(1)
    assert find(np.from_dlpack(x)) is None
    add(np.from_dlpack(x), y)
    assert y.to_numpy().tolist() == [1] * 64
    with pytest.raises(ArgumentError, match="is memory of the device's array"):
        add(x, np.from_dlpack(x))


def test_debug_mode_looks_at_copies(own_runtime):
    ti.init(debug=True)
    assert not host_arrays(current_runtime()).can_import
    x = np.arange(3, dtype=np.float32)
    double(x)
    assert x.tolist() == [0, 2, 4]


# --- when --------------------------------------------------------------------------------------


def test_a_call_waits_and_lets_go(in_place):
    x = np.ones(1 << 16, np.float32)
    held = sys.getrefcount(x)
    double(x)
    assert not current_runtime().device.busy
    assert x[-1] == 2
    assert sys.getrefcount(x) == held


def test_deferred_calls_are_seen_after_sync(own_runtime, in_place):
    ti.init(host_arrays="deferred")
    assert ti.cfg.host_arrays == "deferred"
    x = np.ones(1 << 20, np.float32)
    for _ in range(4):
        double(x)
    assert current_runtime().device.busy
    ti.sync()
    assert (x == 16).all()
    y = ti.field(ti.f32, ())

    @ti.kernel
    def read(x: ti.types.ndarray()):
        y[None] = x[5]

    double(x)
    read(x)
    assert y[None] == 32
    assert x[7] == 32


@ti.kernel
def take_long(x: ti.types.ndarray(ndim=1)):
    for i in x:
        v = x[i]
        for _ in range(200):
            v = v * 1.0000001
        x[i] = v - v + 7


@ti.kernel
def copy_each(x: ti.types.ndarray(ndim=1), y: ti.types.ndarray(ndim=1)):
    for i in x:
        y[i] = x[i]


@ti.kernel
def first_of(v: ti.types.vector(3, ti.f32)) -> ti.f32:
    return v[0]


def as_argument(a):
    y = ti.ndarray(ti.f32, a.shape[0])
    copy_each(a, y)
    return y.to_numpy()


def as_contents(x, a):
    x.from_numpy(a)
    return x.to_numpy()


def in_blocks(n):
    x = ti.field(ti.f32)
    ti.root.dense(ti.i, n // 4).dense(ti.i, 4).place(x)
    return x


def as_element(a):
    x = ti.Vector.field(2, ti.f32, 1)
    x[0] = a[-2:]
    return x.to_numpy()


def as_filling(a):
    x = ti.ndarray(ti.f32, 3)
    x.fill(a[-1:].reshape(()))
    return x.to_numpy()


READERS = {
    "argument": as_argument,
    "in steps": lambda a: as_argument(a[::2]),
    "vector": lambda a: [first_of(a[-3:])],
    "from_numpy": lambda a: as_contents(ti.ndarray(ti.f32, len(a)), a),
    "cast": lambda a: as_contents(ti.ndarray(ti.i32, len(a)), a),
    "field in blocks": lambda a: as_contents(in_blocks(len(a)), a),
    "element": as_element,
    "filling": as_filling,
    "from_dlpack": lambda a: ti.from_dlpack(a).to_numpy(),
    "from_dlpack, a copy": lambda a: ti.from_dlpack(a, copy=True).to_numpy(),
}


@pytest.mark.parametrize("name", READERS)
def test_reads_wait_for_kernels_that_write(name, own_runtime):
    """In arrays of others, where calls are deferred, and in ours that others see."""
    n = 1 << 18
    ti.init(host_arrays="deferred")
    for _ in range(2):  # the first compiles
        a = np.ones(n, np.float32)
        take_long(a)
        assert (np.asarray(READERS[name](a)) == 7).all()
    own = ti.ndarray(ti.f32, n)
    if own.host is None:
        pytest.skip("the host does not reach this device's memory")
    for _ in range(2):
        own.fill(1)
        a = np.from_dlpack(own)
        take_long(own)
        assert (np.asarray(READERS[name](a)) == 7).all()


def test_deferred_calls_keep_arrays_until_they_are_done(own_runtime, in_place):
    ti.init(host_arrays="deferred")
    x = np.ones(1 << 20, np.float32)
    gone = weakref.ref(x)
    double(x)
    del x
    gc.collect()
    assert gone() is not None
    ti.sync()
    ti.ndarray(ti.f32, 1)
    assert gone() is None


def test_launches_in_order_on_overlapping_memory(own_runtime, in_place):
    ti.init(host_arrays="deferred")
    x = np.zeros(4096, np.float32)

    @ti.kernel
    def move(x: ti.types.ndarray(), by: ti.f32):
        for i in x:
            x[i] += by

    for k in range(200):
        move(x[k : 2048 + k], 1)
        move(x[: 2048 + k], 1)
    ti.sync()
    want = np.zeros(4096, np.float32)
    for k in range(200):
        want[k : 2048 + k] += 1
        want[: 2048 + k] += 1
    assert (x == want).all()


def test_an_interrupted_wait_keeps_arrays_until_the_device_is_done(in_place, monkeypatch):
    device, wait = current_runtime().device, type(current_runtime().device).wait
    x = np.ones(1 << 16, np.float32)
    gone = weakref.ref(x)
    double(x)

    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(device), "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        double(x)
    monkeypatch.setattr(type(device), "wait", wait)
    x = None
    gc.collect()
    assert gone() is not None
    ti.sync()
    device.sweep()
    assert gone() is None


def test_the_option_has_two_values(own_runtime):
    with pytest.raises(ArgumentError, match="host_arrays is 'immediate' or 'deferred'"):
        ti.init(host_arrays="later")


# --- lifetime ----------------------------------------------------------------------------------


def count_objects():
    logical = current_runtime().device._logical
    return sum(len(logical.handles(kind)._made) for kind in ("VkBuffer", "VkDeviceMemory"))


def count_files():
    """Open files of this process; 0 where the system does not tell."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def test_a_thousand_arrays_leave_nothing(no_copies):
    ti.sync()
    before, files = count_objects(), count_files()
    kept = [np.ones(100, np.float32) for _ in range(300)]
    for k in range(1000):
        double(np.ones(5000, np.float32))
        double(kept[k % 300])
    assert len(host_arrays(current_runtime())) <= MOST_IMPORTS
    assert count_objects() <= before + 2 * MOST_IMPORTS + 4
    assert count_files() == files
    del kept
    gc.collect()
    find(np.ones(1, np.float32))
    ti.sync()
    current_runtime().device.sweep()
    assert count_objects() <= before + 4


def test_import_dies_with_its_owner(in_place):
    known = host_arrays(current_runtime())
    x = np.ones(4096, np.float32)
    double(x[8:])
    double(x[:100])
    count = len(known)
    del x
    gc.collect()
    y = np.ones(1, np.float32)
    find(y)
    assert len(known) == count - 2 + 1


def test_tensors_that_move_are_found_where_they_are(in_place):
    torch = pytest.importorskip("torch")
    x = torch.ones(1000)
    double(x)
    x.resize_(1 << 20)
    x.fill_(3)
    double(x)
    assert (x == 6).all()
    x.data = torch.full((7,), 2.0)
    double(x)
    assert x.tolist() == [4] * 7


def test_threads_share_imported_arrays(in_place):
    x = [np.ones(1000, np.float32) for _ in range(4)]

    def work(k):
        for _ in range(20):
            double(x[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((a == 2.0**20).all() for a in x)


# --- gradients ---------------------------------------------------------------------------------


def test_tapes_and_gradients_of_tensors_are_as_of_copies(in_place):
    torch = pytest.importorskip("torch")

    @ti.kernel
    def square(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    @ti.kernel
    def summed(y: ti.types.ndarray(), loss: ti.template()):
        for i in y:
            loss[None] += y[i]

    x = torch.arange(5, dtype=torch.float32, requires_grad=True)
    y, loss = torch.zeros(5, requires_grad=True), ti.field(ti.f32, (), needs_grad=True)
    with torch.no_grad():
        square(x, y)  # in place, before the tape
    with ti.ad.Tape(loss):
        square(x, y)
        summed(y, loss)
        with torch.no_grad():
            x.fill_(9)  # after it was read
    assert x.grad.tolist() == [0, 2, 4, 6, 8]
    assert loss[None] == 30


@ti.kernel
def add_to(x: ti.types.ndarray(ti.f32, 1), y: ti.types.ndarray(ti.f32, 1), c: ti.f32):
    for i in range(4):
        x[i] += c * y[i]


def test_calls_with_the_same_arrays_notice_changes():
    """From the second call on, little is looked at again: all that can change is."""
    x, y = np.zeros(8, np.float32), np.ones(8, np.float32)
    for k in range(4):
        add_to(x, y, 1.0)
        assert x[:4].tolist() == [k + 1.0] * 4
    for _ in range(3):
        with pytest.raises(ti.TaichiRuntimeError, match="overlap"):
            add_to(x[:6], x[2:], 1.0)
    x.flags.writeable = False
    for _ in range(2):
        with pytest.raises(ti.TaichiRuntimeError, match="read-only"):
            add_to(x, y, 1.0)
    x.flags.writeable = True
    add_to(x, y, 2.0)
    assert x[:4].tolist() == [6.0] * 4 and not x[4:].any()


def test_calls_with_the_same_tensors_notify_torch_each_time():
    torch = pytest.importorskip("torch")
    x, y = torch.zeros(8), torch.ones(8)
    for k in range(4):
        before = x._version
        add_to(x, y, 1.0)
        assert x._version > before and x[:4].tolist() == [k + 1.0] * 4
    x.requires_grad_()
    with torch.no_grad():
        add_to(x, y, 1.0)
    (x * 2).sum().backward()
    for _ in range(2):
        with pytest.raises(ti.TaichiRuntimeError, match="requires grad"):
            add_to(x[:], y, 1.0)
    add_to(x, y, 0.0)
    with pytest.raises(ti.ad.GradientError, match="what add_to"):
        (x * 2).sum().backward()
    x = x.detach()
    x.set_(torch.zeros(16))
    add_to(x, y, 1.0)
    y.set_(torch.full((8,), 3.0))
    add_to(x, y, 1.0)
    assert x.tolist() == [4.0] * 4 + [0.0] * 12
    add_to(x, x, 1.0)
    add_to(x, x, 1.0)
    assert x[:4].tolist() == [16.0] * 4


@pytest.mark.filterwarnings("ignore:Setting the")
def test_an_array_that_was_seen_is_looked_at_again():
    """Cached facts about an object hold while the object is unchanged."""
    a = np.arange(16, dtype=np.float32)

    def turn():
        for _ in range(3):  # noted, and found
            double(a)

    def expect(change):
        """Expected contents after a change, two and three times over."""
        change()
        a[...] = np.arange(16).reshape(a.shape)
        want = a * 8
        turn()
        np.testing.assert_array_equal(a, want)

    turn()
    expect(lambda: None)
    expect(lambda: setattr(a, "shape", (4, 4)))
    expect(lambda: setattr(a, "strides", (4, 16)))
    expect(lambda: setattr(a, "strides", (16, 4)))
    expect(lambda: setattr(a, "shape", (16,)))
    expect(lambda: setattr(a, "dtype", np.dtype(np.int32)))
    expect(lambda: setattr(a, "dtype", np.dtype(">i4")))
    expect(lambda: setattr(a, "dtype", np.dtype(np.float32)))
    if find(a) is not None:
        with pytest.raises(ValueError, match="referenced"):  # by numpy
            a.resize(64, refcheck=False)
    before = a.copy()
    a.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        double(a)
    np.testing.assert_array_equal(a, before)


def test_a_tensor_that_was_seen_is_looked_at_again():
    torch = pytest.importorskip("torch")
    x = torch.arange(16.0)

    def expect(change):
        change()
        want = x.detach() * 8
        for _ in range(3):
            with torch.no_grad():
                double(x)
        torch.testing.assert_close(x.detach(), want)

    other = torch.arange(32.0)
    expect(lambda: None)
    expect(lambda: None)
    expect(lambda: x.resize_(4, 4))
    expect(lambda: x.t_())
    expect(lambda: x.t_())
    expect(lambda: x.unsqueeze_(0))
    expect(lambda: x.set_(other))
    expect(lambda: x.set_(other.untyped_storage(), 3, (5, 2)))
    expect(lambda: x.as_strided_((4,), (2,)))
    expect(lambda: setattr(x, "data", torch.ones(8)))
    expect(lambda: setattr(x, "data", torch.ones(8, dtype=torch.int32)))
    expect(lambda: setattr(x, "data", torch.ones(8)))
    expect(lambda: x.requires_grad_())
    x.detach_()
    x.requires_grad_(False)
    storage = x.untyped_storage()
    if not storage.resizable():
        return  # if it is copied, numpy has read it

    def move():
        storage.resize_(0)
        kept.append(torch.zeros(8))
        storage.resize_(32)
        x.fill_(1)

    kept = []
    expect(move)
    storage.resize_(4)
    with pytest.raises(ArgumentError):
        double(x)


def test_seen_arrays_are_not_kept_alive(in_place):
    torch, a = pytest.importorskip("torch"), np.ones(1 << 16, np.float32)
    x = torch.ones(1 << 16)
    storage = weakref.ref(x.untyped_storage())
    for _ in range(3):
        double(a)
        double(x)
    hosts, gone = host_arrays(current_runtime()), weakref.ref(a)
    count = len(hosts)
    del a, x
    gc.collect()
    assert gone() is None and storage() is None
    double(np.ones(4, np.float32))
    assert len(hosts) <= count


def test_a_kernel_takes_own_and_foreign_arrays_alternately():
    own, a = ti.ndarray(ti.f32, 4), np.ones(4, np.float32)
    own.fill(1)
    for _ in range(4):
        double(own)
        double(a)
        double(a)
        double(own)
    assert own.to_numpy().tolist() == a.tolist() == [256] * 4
