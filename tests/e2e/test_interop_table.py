"""The table of docs/interop.md, cell by cell: copies made, waits made. The column of linked cards
is in `test_cuda.py`, with a stand-in for CUDA's driver.
"""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import vkchi as ti
from vkchi.device import open_device
from vkchi.errors import GradientError
from vkchi.fields.storage import Storage
from vkchi.runtime import Runtime, current_runtime, install_runtime
from vkchi.target.options import Options

pytestmark = pytest.mark.device
N = 1 << 12


@pytest.fixture(params=["shared", "other", "debug"])
def column(request, own_runtime, monkeypatch):
    """A device whose memory the host reaches and which takes the host's; one that is a card without
    CUDA; the first in debug mode."""
    if request.param == "other":
        monkeypatch.setattr(sys.modules["vkchi.device"], "choose_exporter", lambda logical: None)
        install_runtime(Runtime(open_device(staged=True), Options()))
    else:
        ti.init(debug=request.param == "debug")
        if not current_runtime().device.host_pointer_alignment:
            pytest.skip("this device does not use memory of the host in place")
    return request.param


@pytest.fixture
def count(monkeypatch):
    """Copies into arrays of ours and out of them, and waits for a device at work."""
    found = SimpleNamespace(into=0, out=0, waits=0)
    put, take = Storage.keep, Storage.copy_kept

    def count_put(self, values):
        found.into += 1
        put(self, values)

    def count_take(self, target):
        found.out += 1
        take(self, target)

    monkeypatch.setattr(Storage, "keep", count_put)
    monkeypatch.setattr(Storage, "copy_kept", count_take)

    def during(act):
        device = current_runtime().device
        device.wait()
        found.into = found.out = found.waits = 0
        wait = type(device).wait

        def count_wait(self):
            found.waits += self.busy
            wait(self)

        with monkeypatch.context() as patch:
            patch.setattr(type(device), "wait", count_wait)
            act()
        return found.into, found.out, bool(found.waits)

    return during


@ti.kernel
def add(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] += x[i]


@ti.kernel
def square(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = x[i] ** 2


def torch_or_skip():
    return pytest.importorskip("torch", "2.5")


def at_work(x):
    """Leave the device something to do."""

    @ti.kernel
    def grow():
        for i in x:
            x[i] += 1

    def act(then):
        grow()
        return then()

    return act


def make_field(blocks=False):
    if not blocks:
        return ti.field(ti.f32, N)
    x = ti.field(ti.f32)
    ti.root.dense(ti.ij, 2).dense(ti.ij, N // 64).place(x)
    return x


# --- ours, given away ----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [make_field, lambda: ti.ndarray(ti.f32, N)], ids=["field", "nd"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_own_arrays_in_place(column, count, make, library):
    other, x = pytest.importorskip(library), make()
    x.fill(2)
    if column == "other":
        with pytest.raises(BufferError, match="no agreed"):
            other.from_dlpack(x)
        return
    if isinstance(x, ti.Field):
        act = at_work(x)
        assert count(lambda: act(lambda: other.from_dlpack(x))) == (0, 0, True)
    seen = other.from_dlpack(x)
    address = seen.ctypes.data if library == "numpy" else seen.data_ptr()
    assert address == x.host.ctypes.data
    assert count(lambda: other.from_dlpack(x)) == (0, 0, False)  # nothing was launched


def test_fields_in_blocks(column, count):
    x = make_field(blocks=True)
    x[1, 2] = 5
    if column == "other":
        with pytest.raises(BufferError):
            np.from_dlpack(x)
        return
    assert count(lambda: np.from_dlpack(x)) == (0, 1, False)
    assert np.from_dlpack(x)[1, 2] == 5


@pytest.mark.parametrize("way", ["to_numpy", "to_torch", "asarray"])
@pytest.mark.parametrize("blocks", [False, True])
def test_copies_of_arrays_of_ours(column, count, way, blocks):
    if way == "to_torch":
        torch_or_skip()
    x = make_field(blocks)
    get = {"to_numpy": x.to_numpy, "to_torch": x.to_torch, "asarray": lambda: np.asarray(x)}[way]

    @ti.kernel
    def grow():
        for I in ti.grouped(x):
            x[I] += 1

    assert count(lambda: (grow(), get())) == (0, 1, True)
    assert float(get().sum()) == x.to_numpy().size


# --- others' ------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_order", [True, False])
def test_taking_over(column, count, in_order):
    given = np.ones(2 * N, np.float32)[:: 1 if in_order else 2]
    taken = []
    want = 0 if column != "other" and in_order else 1  # debug mode is about arguments
    assert count(lambda: taken.append(ti.from_dlpack(given))) == (want, 0, False)
    if want == 0:
        assert taken[0].host.ctypes.data == given.ctypes.data


SOURCES = {
    "numpy": lambda: np.ones(N, np.float32),
    "torch": lambda: torch_or_skip().ones(N),
    "buffer": lambda: bytearray(np.ones(N, np.float32)),
}


@pytest.mark.parametrize("source", SOURCES)
def test_argument_rows(column, count, source):
    x, y = (SOURCES[source]() for _ in range(2))
    if source == "buffer":
        x, y = (memoryview(a).cast("f") for a in (x, y))
    add(x, y)
    in_place = column == "shared"
    assert count(lambda: add(x, y)) == ((0, 0, True) if in_place else (2, 1, True))
    assert count(lambda: add(x, ti.ndarray(ti.f32, N))) == (
        (0, 0, True) if in_place else (1, 0, column == "debug")  # waits for its reports
    )
    assert np.asarray(y)[-1] == 3


def test_deferred_arguments(column, count):
    current_runtime().deferred = True  # as ti.init(host_arrays="deferred") has it
    x, y = np.ones(N, np.float32), np.ones(N, np.float32)
    in_place = column == "shared"
    assert count(lambda: add(x, y)) == ((0, 0, False) if in_place else (2, 1, True))
    ti.sync()
    assert y[-1] == 2


def test_arguments_that_are_not_in_order(column, count):
    x, y = (np.ones(2 * N, np.float32)[::2] for _ in range(2))
    assert count(lambda: add(x, y)) == (2, 1, True)
    current_runtime().deferred = True
    assert count(lambda: add(x, y)) == (2, 1, True)
    assert y[-1] == 3


# --- gradients -----------------------------------------------------------------------------------


def test_gradients_of_tensors(column, count):
    torch = torch_or_skip()
    x, y = torch.ones(N, requires_grad=True), torch.zeros(N)
    x.grad, y.grad = torch.zeros(N), torch.ones(N)
    square(x, y)
    into, out, waits = count(lambda: square.grad(x, y))
    assert x.grad[-1] == 2 and waits
    assert (into, out) == (0, 0) if column == "shared" else (into >= 2 and out >= 1)


def test_inside_a_tape(column, count):
    torch = torch_or_skip()
    x, loss = torch.ones(N, requires_grad=True), ti.field(ti.f32, (), needs_grad=True)
    total = ti.kernel(sum_into)

    def act():
        with ti.ad.Tape(loss):
            total(x, loss)

    into, out, waits = count(act)
    assert into >= 1 and out >= 1 and waits
    assert x.grad[-1] == 1


def sum_into(x: ti.types.ndarray(), loss: ti.template()):
    for i in x:
        loss[None] += x[i]


def test_operator_rows(column, count):
    torch = torch_or_skip()
    op = ti.torch_op(square, outputs={"y": "x"})
    x, made = torch.ones(N, requires_grad=True), []
    op(x).sum().backward()
    forward = count(lambda: made.append(op(x)))
    assert forward == ((0, 0, True) if column == "shared" else (2, 1, True))
    if column == "shared":
        from vkchi.interop.in_place import host_arrays

        assert host_arrays(current_runtime()).find(made[0].detach(), 0).start == made[0].data_ptr()
    into, out, waits = count(lambda: torch.autograd.grad(made[0].sum(), x))
    assert waits
    assert (into, out) == (0, 0) if column == "shared" else (into >= 2 and out >= 1)


# --- CUDA's, on devices that share no memory with CUDA -------------------------------------------


class OnCuda:
    """Object that claims to be in CUDA's memory."""

    __cuda_array_interface__ = {  # noqa: RUF012
        "data": (1 << 20, False), "shape": (N,), "typestr": "<f4", "version": 3, "strides": None,
    }  # fmt: skip


class Capsule:
    """Object that exports a capsule of CUDA's."""

    def __dlpack__(self, **options):
        raise AssertionError("it was asked for its memory")

    def __dlpack_device__(self):
        return (2, 0)


@pytest.mark.parametrize("how", ["launch", "grad", "tape", "forward mode"])
def test_arguments_of_cuda_raise(column, how):
    x, loss = OnCuda(), ti.field(ti.f32, (), needs_grad=True, needs_dual=True)
    w = ti.field(ti.f32, N, needs_dual=True)

    def act():
        if how == "grad":
            add.grad(x, ti.ndarray(ti.f32, N, needs_grad=True))
        elif how == "tape":
            with ti.ad.Tape(loss):
                add(x, ti.ndarray(ti.f32, N, needs_grad=True))
        elif how == "forward mode":
            with ti.ad.FwdMode(loss, w, seed=[1.0] * N):
                add(x, ti.ndarray(ti.f32, N))
        else:
            add(x, x)

    with pytest.raises(
        (ti.TaichiRuntimeTypeError, GradientError), match=r"memory of CUDA's|CUDA's memory"
    ):
        act()


def test_taking_over_memory_of_cuda_raises(column):
    for source in (Capsule(), type("Both", (Capsule, OnCuda), {})()):
        with pytest.raises(ti.TaichiRuntimeTypeError, match="CUDA|not the CPU"):
            ti.from_dlpack(source)
