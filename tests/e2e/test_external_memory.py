"""Memory and semaphores that leave a device: handles, between devices and between processes."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from vkchi.device import open_device
from vkchi.errors import DeviceError
from vkchi.target.memory_handles import DMA_BUF, OPAQUE_FD, OPAQUE_WIN32, Payload
from vkchi.vk import queue
from vkchi.vk.memory import blocks, external
from vkchi.vk.memory.blocks import export_block
from vkchi.vk.memory.external import find_exporter

pytestmark = pytest.mark.device

FDS = "/proc/self/fd"


@pytest.fixture
def exporting(monkeypatch):
    """Devices opened here make all memory exportable, where the driver can."""
    monkeypatch.setattr(sys.modules["vkchi.device"], "choose_exporter", find_exporter)


@pytest.fixture
def device(exporting):
    opened = open_device()
    if opened.heap.exporter is None:
        opened.close()
        pytest.skip("this driver exports no memory")
    yield opened
    opened.close()


def export(buffer):
    """The payload of the whole block that a buffer is a part of, the block and the offset."""
    block = buffer._span.block
    return export_block(block, buffer.device.heap.exporter), block, buffer._span.offset


def numbers(buffer, n=64):
    return np.frombuffer(buffer.read(0, 4 * n), np.float32)


def test_two_devices_see_the_same_memory_through_a_file_descriptor(device):
    x = device.allocate(256)
    x.write(0, np.arange(64, dtype=np.float32))
    device.wait()  # for nobody else does: there is no order between two devices
    payload, block, offset = export(x)
    assert payload.kind == OPAQUE_FD and payload.is_dedicated and payload.size_bytes >= 256
    other = open_device()
    try:
        whole = other.import_payload(payload, block.size_bytes)
        seen = np.frombuffer(whole.read(offset, 256), np.float32)
        np.testing.assert_array_equal(seen, np.arange(64))
        whole.write(offset, np.full(64, 7, np.float32))
        other.wait()
        np.testing.assert_array_equal(numbers(x), np.full(64, 7))
    finally:
        other.close()
    np.testing.assert_array_equal(numbers(x), np.full(64, 7))  # the exporter has it still


def test_memory_lives_until_the_last_of_both_sides_lets_go(device):
    x = device.allocate(256)
    x.write(0, np.arange(64, dtype=np.float32))
    device.wait()
    payload, block, offset = export(x)
    other = open_device()
    try:
        whole = other.import_payload(payload, block.size_bytes)
        del x, block
        device.close()
        np.testing.assert_array_equal(
            np.frombuffer(whole.read(offset, 256), np.float32), np.arange(64)
        )
    finally:
        other.close()


def test_another_process_sees_the_memory(device):
    x = device.allocate(256)
    x.write(0, np.arange(64, dtype=np.float32))
    device.wait()
    payload, block, offset = export(x)
    code = f"""
        import numpy as np
        from vkchi.device import open_device
        from vkchi.target.memory_handles import Payload
        device = open_device()
        whole = device.import_payload(Payload{tuple(payload)!r}, {block.size_bytes})
        values = np.frombuffer(whole.read({offset}, 256), np.float32)
        whole.write({offset}, values * 2)
        device.close()
    """
    os.set_inheritable(payload.handle, True)
    run = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(run, pass_fds=[payload.handle], capture_output=True, text=True)
    payload.close()  # the child's descriptor was another
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(numbers(x), 2 * np.arange(64))


@pytest.mark.skipif(not os.path.exists(FDS), reason="counts descriptors in /proc")
def test_a_thousand_exports_and_imports_leave_no_handle_and_no_memory(device):
    x = device.allocate(256)

    def once():
        payload, block, offset = export(x)
        whole = device.import_payload(payload, block.size_bytes)
        assert whole.size_bytes == block.size_bytes and offset < block.size_bytes

    def count():
        gc.collect()
        device.wait()
        device.sweep()
        made = device._logical.handles("VkDeviceMemory")._made
        return len(os.listdir(FDS)), len(made), device.heap.used_bytes

    once()
    before = count()
    for _ in range(1000):
        once()
        device.sweep()
    assert count() == before


def test_failed_import_raises_and_leaves_the_handle(device):
    x = device.allocate(256)
    payload, block, _ = export(x)
    with pytest.raises(DeviceError, match="in place"):
        device.import_payload(payload, payload.size_bytes * 2)
    os.fstat(payload.handle)
    payload.close()
    with pytest.raises(OSError):
        os.fstat(payload.handle)
    with pytest.raises(DeviceError, match="file descriptors"):
        device.import_payload(Payload(1, OPAQUE_WIN32, 4096), 4096)


def test_import_that_cannot_be_mapped_leaves_the_handle(device, monkeypatch):
    """The driver owns its own copy of the descriptor as soon as memory exists."""
    x = device.allocate(256)
    payload, _, _ = export(x)
    descriptors = len(os.listdir("/proc/self/fd"))

    def fails(logical, memory, size_bytes):
        raise DeviceError("mapping memory failed")

    monkeypatch.setattr(blocks, "_map", fails)
    with pytest.raises(DeviceError, match="mapping"):
        device.import_payload(payload, payload.size_bytes)
    monkeypatch.undo()
    device.sweep()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    os.fstat(payload.handle)
    payload.close()


def test_memory_that_was_not_made_for_it_is_not_exported(device):
    plain = open_device()
    try:
        plain.heap.exporter = None
        block = plain._ring.allocate(64, 1) and plain._ring._chunk
        with pytest.raises(DeviceError, match="not made to be given away"):
            export_block(block, device.heap.exporter)
    finally:
        plain.close()


def test_only_cards_that_cuda_knows_have_exportable_memory():
    opened = open_device()
    try:
        assert (opened.heap.exporter is not None) <= (opened.info.vendor == "nvidia")
    finally:
        opened.close()


# --- information for the driver -------------------------------------------------------------------


class Watched:
    """Device calls that note the structs they were given."""

    def __init__(self, calls, seen):
        self._calls, self._seen = calls, seen

    def __getattr__(self, name):
        call = getattr(self._calls, name)

        def noting(*args):
            self._seen.append((name, args))
            return call(*args)

        return noting if name in ("vkAllocateMemory", "vkCreateBuffer", "vkQueueSubmit2") else call


def chain(vk, info):
    """Name and struct of everything in a pNext chain."""
    found, at = {}, info.pNext
    names = {
        vk.const.VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO: "VkMemoryAllocateFlagsInfo",
        vk.const.VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO: "VkExportMemoryAllocateInfo",
        vk.const.VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO: "VkMemoryDedicatedAllocateInfo",
        vk.const.VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR: "VkImportMemoryFdInfoKHR",
        vk.const.VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO:
            "VkExternalMemoryBufferCreateInfo",
    }  # fmt: skip
    while at != vk.NULL:
        kind = names[vk.ffi.cast("VkBaseInStructure *", at).sType]
        found[kind] = struct = vk.ffi.cast(kind + " *", at)
        at = struct.pNext
    return found


def test_exported_memory_is_dedicated_and_imported_as_it_was_made(device):
    vk, logical, seen = device._vk, device._logical, []
    calls, logical.calls = logical.calls, Watched(logical.calls, seen)
    try:
        x = device.allocate(1 << 26)
        payload, block, _ = export(x)
        made = dict(seen)
        buffer = chain(vk, made["vkCreateBuffer"][1])["VkExternalMemoryBufferCreateInfo"]
        assert buffer.handleTypes == 0x1
        info = made["vkAllocateMemory"][1]
        parts = chain(vk, info)
        assert parts["VkExportMemoryAllocateInfo"].handleTypes == 0x1
        assert parts["VkMemoryDedicatedAllocateInfo"].buffer == block.buffer
        assert parts["VkMemoryDedicatedAllocateInfo"].image == vk.NULL
        assert parts["VkMemoryAllocateFlagsInfo"].flags == 0x2  # device address
        assert payload.size_bytes == info.allocationSize >= block.size_bytes
        assert payload.type_index == info.memoryTypeIndex
        seen.clear()
        y = device.import_payload(payload, block.size_bytes)
        info = dict(seen)["vkAllocateMemory"][1]
        parts = chain(vk, info)
        assert parts["VkImportMemoryFdInfoKHR"].handleType == 0x1
        assert parts["VkImportMemoryFdInfoKHR"].fd != payload.handle  # its own copy
        assert parts["VkMemoryDedicatedAllocateInfo"].buffer == y._span.block.buffer
        assert (info.allocationSize, info.memoryTypeIndex) == payload[2:4]
    finally:
        logical.calls = calls


def test_a_dma_buf_is_asked_for_its_memory_types_and_taken_without_dedication(device):
    vk, logical, seen = device._vk, device._logical, []
    asked = []

    def types(handle, kind, fd, found):
        asked.append((kind, fd))
        found.memoryTypeBits = 0
        return 0

    calls, logical.calls = logical.calls, Watched(logical.calls, seen)
    try:
        logical.calls.vkGetMemoryFdPropertiesKHR = types
        with pytest.raises(DeviceError, match="in place"):
            device.import_payload(Payload(99, DMA_BUF, 4096), 4096)
        assert asked == [(DMA_BUF, 99)]
        outside = chain(vk, dict(seen)["vkCreateBuffer"][1])["VkExternalMemoryBufferCreateInfo"]
        assert outside.handleTypes == DMA_BUF
    finally:
        logical.calls = calls


def test_nt_handles_have_the_same_name(device):
    ffi = device._vk.ffi
    seen = []

    @ffi.callback("int(void *, int *, uintptr_t *)")
    def get(handle, info, out):
        seen.append((info[0], ffi.cast("uint64_t *", info)[2], info[6]))
        out[0] = 0x1234
        return 0

    class Lib:
        def vkGetDeviceProcAddr(self, handle, name):
            seen.append(name)
            return ffi.cast("void *", get)

    vk = SimpleNamespace(ffi=ffi, lib=Lib(), NULL=device._vk.NULL, check=device._vk.check)
    logical = SimpleNamespace(vk=vk, handle=device._logical.handle)
    exporter = external.Win32Exporter(logical)
    memory = ffi.cast("VkDeviceMemory", 0x5678)
    assert exporter.export_memory(memory, 4096, 3) == Payload(0x1234, OPAQUE_WIN32, 4096, 3, True)
    assert exporter.export_semaphore(ffi.cast("VkSemaphore", 0x9ABC)) == 0x1234
    assert seen == [
        b"vkGetMemoryWin32HandleKHR", (1000073003, 0x5678, 0x2),
        b"vkGetSemaphoreWin32HandleKHR", (1000078003, 0x9ABC, 0x2),
    ]  # fmt: skip


# --- timelines -----------------------------------------------------------------------------------


def signal(device, cell, value):
    """The other side's action when it reaches a value."""
    vk, logical = device._vk, device._logical
    info = vk.new("VkSemaphoreSignalInfo", semaphore=cell[0], value=value)
    vk.check(logical.calls.vkSignalSemaphore(logical.handle, info), "signalling")


@pytest.fixture
def plain():
    opened = open_device(staged=True)
    yield opened
    opened.close()


def test_a_submission_waits_for_anothers_timeline_and_the_host_does_not(plain):
    x = plain.allocate(1024)
    plain.wait()
    cell, handle = plain.make_timeline(exported=False)
    assert handle == -1
    plain.wait_for_others(cell, 5)
    plain.fill(x, 0, 1024, 7)
    number = plain.submit()  # returns although its wait has not ended
    assert not plain._queue.wait_for(number, 20_000_000)
    signal(plain, cell, 4)
    assert not plain._queue.wait_for(number, 20_000_000)
    late = threading.Timer(0.05, signal, (plain, cell, 5))
    late.start()
    assert x.read(0, 4) == b"\7\0\0\0"  # waits for the fill
    late.join()
    plain.fill(x, 0, 1024, 8)
    assert x.read(0, 4) == b"\x08\0\0\0"
    assert plain._queue._awaited == {}


def test_several_timelines_are_waited_for_once_each(plain, monkeypatch):
    seen = []
    calls = plain._logical.calls
    real = calls.vkQueueSubmit2

    def submit(handle, count, info, fence):
        waits = [(info.pWaitSemaphoreInfos[k].semaphore, info.pWaitSemaphoreInfos[k].value,
                  info.pWaitSemaphoreInfos[k].stageMask)
                 for k in range(info.waitSemaphoreInfoCount)]  # fmt: skip
        signals = [
            info.pSignalSemaphoreInfos[k].value for k in range(info.signalSemaphoreInfoCount)
        ]
        seen.append((waits, signals))
        return real(handle, count, info, fence)

    x = plain.allocate(64)
    plain.wait()
    (a, _), (b, _) = plain.make_timeline(exported=False), plain.make_timeline(exported=False)
    for cell in (a, b):
        signal(plain, cell, 9)
    calls.vkQueueSubmit2 = submit
    try:
        plain.wait_for_others(a, 3)
        plain.wait_for_others(b, 4)
        plain.wait_for_others(a, 2)
        for word in (1, 2):
            plain.fill(x, 0, 64, word)
            number = plain.submit()
        every = 0x10000  # VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT
        assert seen == [
            ([(a[0], 3, every), (b[0], 4, every)], [number - 1]), ([], [number]),
        ]  # fmt: skip
    finally:
        calls.vkQueueSubmit2 = real
        plain.wait()


def test_a_published_timeline_comes_to_the_numbers_of_submissions(plain, monkeypatch):
    """A permanent stand-in replaces timelines that no driver exports (lavapipe, SwiftShader)."""
    exported = []
    exporter = SimpleNamespace(
        kind=0, export_semaphore=lambda semaphore: exported.append(semaphore) or 42
    )
    monkeypatch.setattr(queue, "can_export_timelines", lambda logical, kind: True)
    monkeypatch.setattr("vkchi.vk.recorder.find_exporter", lambda logical: exporter)
    x = plain.allocate(64)
    plain.wait()
    cell, _ = plain.make_timeline(exported=False)
    plain.wait_for_others(cell, 1)
    plain.fill(x, 0, 64, 9)
    number = plain.submit()  # before the timeline is published, and not done
    assert plain.publish() == plain.publish() == 42
    assert exported[0] == exported[1]  # one timeline, several handles
    out = plain._vk.ffi.new("uint64_t *")
    plain._logical.calls.vkGetSemaphoreCounterValue(plain._logical.handle, exported[0], out)
    assert out[0] < number
    signal(plain, cell, 1)
    plain.wait()
    plain._logical.calls.vkGetSemaphoreCounterValue(plain._logical.handle, exported[0], out)
    assert out[0] >= number
    for word in range(3):
        plain.fill(x, 0, 64, word)
        number = plain.submit()
        plain.wait()
        plain._logical.calls.vkGetSemaphoreCounterValue(plain._logical.handle, exported[0], out)
        assert out[0] == number


def test_a_driver_is_idle_before_its_timelines_go(plain, monkeypatch):
    """One timeline of a submission does not show that the driver set the others."""
    exporter = SimpleNamespace(kind=0, export_semaphore=lambda semaphore: 42)
    monkeypatch.setattr(queue, "can_export_timelines", lambda logical, kind: True)
    monkeypatch.setattr("vkchi.vk.recorder.find_exporter", lambda logical: exporter)
    plain.publish()
    order = []
    logical = plain._logical
    wait, close = logical.calls.vkDeviceWaitIdle, logical.close
    monkeypatch.setattr(
        logical.calls, "vkDeviceWaitIdle", lambda handle: order.append("idle") or wait(handle)
    )
    monkeypatch.setattr(logical, "close", lambda: order.append("gone") or close())
    plain.close()
    assert order == ["idle", "gone"]


def test_exported_timelines_say_so_when_they_are_made(plain, monkeypatch):
    seen = []
    vk, logical = plain._vk, plain._logical
    handles = SimpleNamespace(make=lambda call, info, doing: seen.append(info))
    monkeypatch.setattr(logical, "handles", lambda kind: handles, raising=False)
    external.make_timeline(logical, 12, OPAQUE_FD)
    timeline = vk.ffi.cast("VkSemaphoreTypeCreateInfo *", seen[0].pNext)
    assert timeline.semaphoreType == vk.const.VK_SEMAPHORE_TYPE_TIMELINE
    assert timeline.initialValue == 12
    export = vk.ffi.cast("VkExportSemaphoreCreateInfo *", timeline.pNext)
    assert export.sType == vk.const.VK_STRUCTURE_TYPE_EXPORT_SEMAPHORE_CREATE_INFO
    assert (export.handleTypes, export.pNext) == (0x1, vk.NULL)


def test_a_driver_without_exported_timelines_says_so(plain):
    exporter = find_exporter(plain._logical)
    if exporter is not None and external.can_export_timelines(plain._logical, exporter.kind):
        pytest.skip("this driver exports timelines")
    with pytest.raises(DeviceError, match="gives no semaphores to others"):
        plain.publish()
