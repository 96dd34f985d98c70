"""The device layer with hand-written SPIR-V: memory, hazards, transfers, timing, the end.

Every test runs on mapped memory and on staged memory, which is how a discrete GPU works.
"""

from __future__ import annotations

import gc
import logging
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

import vkchi.vk.memory.heap
from vkchi.device import (
    ABANDONED,
    Buffer,
    Device,
    choose_device,
    list_devices,
    open_device,
)  # fmt: skip
from vkchi.errors import DeviceError, InternalError
from vkchi.target.devices import DeviceInfo
from vkchi.target.shader import Shader, row_grid
from vkchi.vk import physical
from vkchi.vk.physical import DRIVERS, lack_text
from vkchi.vk.pipelines import Pipeline, find_entry
from vkchi.vk.raw import OutOfMemory, load_vulkan, name_structure_type

pytestmark = pytest.mark.device

GROUP = 64
HEAD = """
OpCapability Shader
OpCapability PhysicalStorageBufferAddresses
OpMemoryModel PhysicalStorageBuffer64 GLSL450
OpEntryPoint GLCompute %main "main" %gid %pc
OpExecutionMode %main LocalSize 64 1 1
OpDecorate %gid BuiltIn GlobalInvocationId
OpDecorate %Args Block
OpMemberDecorate %Args 0 Offset 0
OpMemberDecorate %Args 1 Offset 8
OpMemberDecorate %Args 2 Offset 16
OpDecorate %Floats ArrayStride 4
OpDecorate %Array Block
OpMemberDecorate %Array 0 Offset 0
"""
TYPES = """
%void = OpTypeVoid
%fn = OpTypeFunction %void
%uint = OpTypeInt 32 0
%float = OpTypeFloat 32
%uvec3 = OpTypeVector %uint 3
%in_uvec3 = OpTypePointer Input %uvec3
%in_uint = OpTypePointer Input %uint
%gid = OpVariable %in_uvec3 Input
%Floats = OpTypeRuntimeArray %float
%Array = OpTypeStruct %Floats
%at_array = OpTypePointer PhysicalStorageBuffer %Array
%at_float = OpTypePointer PhysicalStorageBuffer %float
%Args = OpTypeStruct %at_array %at_array %float
%c0 = OpConstant %uint 0
%c1 = OpConstant %uint 1
%c2 = OpConstant %uint 2
"""
# y[i] = a * x[i] + y[i], with (x, y, a) in {args}
BODY = """
%xp = OpAccessChain %{args}_array %{at} %c0
%yp = OpAccessChain %{args}_array %{at} %c1
%ap = OpAccessChain %{args}_float %{at} %c2
%x = OpLoad %at_array %xp {aligned}
%y = OpLoad %at_array %yp {aligned}
%a = OpLoad %float %ap {aligned}
%xip = OpAccessChain %at_float %x %c0 %i
%yip = OpAccessChain %at_float %y %c0 %i
%xi = OpLoad %float %xip Aligned 4
%yi = OpLoad %float %yip Aligned 4
%t = OpFMul %float %a %xi
%s = OpFAdd %float %t %yi
OpStore %yip %s Aligned 4
OpReturn
OpFunctionEnd
"""
START = """
%main = OpFunction %void None %fn
%start = OpLabel
%ip = OpAccessChain %in_uint %gid %c0
%i = OpLoad %uint %ip
"""
DIRECT = (
    HEAD
    + TYPES
    + """
%push_args = OpTypePointer PushConstant %Args
%push_array = OpTypePointer PushConstant %at_array
%push_float = OpTypePointer PushConstant %float
%pc = OpVariable %push_args PushConstant
"""
    + START
    + BODY.format(args="push", at="pc", aligned="")
)
INDIRECT = (
    HEAD
    + "OpDecorate %Push Block\nOpMemberDecorate %Push 0 Offset 0\n"
    + TYPES
    + """
%at_args = OpTypePointer PhysicalStorageBuffer %Args
%far_array = OpTypePointer PhysicalStorageBuffer %at_array
%far_float = OpTypePointer PhysicalStorageBuffer %float
%Push = OpTypeStruct %at_args
%push = OpTypePointer PushConstant %Push
%push_at_args = OpTypePointer PushConstant %at_args
%pc = OpVariable %push PushConstant
"""
    + START
    + "%pp = OpAccessChain %push_at_args %pc %c0\n%p = OpLoad %at_args %pp\n"
    + BODY.format(args="far", at="p", aligned="Aligned 8")
)


def assemble(text: str) -> bytes:
    """SPIR-V words of an assembly text."""
    command = ["spirv-as", "--target-env", "spv1.5", "-o", "-", "-"]
    return subprocess.run(command, input=text.encode(), capture_output=True, check=True).stdout


def make_shader(indirect: bool = False, needs: tuple[str, ...] = ()) -> Shader:
    """saxpy: (address of x, address of y, a) -> y[i] = a * x[i] + y[i]."""
    words = assemble(INDIRECT if indirect else DIRECT)
    return Shader(
        "saxpy", words, (), 24, indirect, row_grid(("const", GROUP), GROUP, guard=False), needs
    )


def pack(x: Buffer, y: Buffer, a: float, offset: int = 0) -> bytes:
    return struct.pack("<QQf4x", x.address + offset, y.address + offset, a)


def launch(pipeline: Pipeline, x: Buffer, y: Buffer, a: float, count: int = 1024) -> None:
    """y = a * x + y over the first `count` floats."""
    reads, writes = frozenset((x.key, y.key)), frozenset((y.key,))
    x.device.record(pipeline, pack(x, y, a), (count // GROUP, 1, 1), reads, writes)


def floats(buffer: Buffer, count: int = 1024, offset: int = 0) -> np.ndarray[Any, Any]:
    return np.frombuffer(buffer.read(offset, 4 * count), np.float32)


def make_floats(device: Device, values: Any) -> Buffer:
    values = np.ascontiguousarray(values, np.float32)
    buffer = device.allocate(values.nbytes)
    buffer.write(0, values)
    return buffer


@pytest.fixture(scope="module", params=[False, True], ids=["mapped", "staged"])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    device = open_device(staged=request.param)
    yield device
    device.close()
    assert device.messages == []


@pytest.fixture(scope="module")
def saxpy(device: Device) -> Pipeline:
    return device.load(make_shader())


RAMP = np.arange(1024, dtype=np.float32)


# --- running ---------------------------------------------------------------------------------


def test_saxpy(device: Device, saxpy: Pipeline) -> None:
    x, y = make_floats(device, RAMP), make_floats(device, RAMP[::-1])
    launch(saxpy, x, y, 2.0)
    assert device.busy
    assert (floats(y) == 2 * RAMP + RAMP[::-1]).all()
    assert not device.busy


def test_a_chain_of_dispatches_sees_each_one_before(device: Device, saxpy: Pipeline) -> None:
    """Read after write in both directions, across many submissions."""
    x, y = make_floats(device, np.ones(1024)), make_floats(device, np.ones(1024))
    a, b = 1.0, 1.0
    for _ in range(17):
        launch(saxpy, x, y, 1.0)
        launch(saxpy, y, x, 1.0)
        b += a
        a += b
    assert (floats(x) == a).all()
    assert (floats(y) == b).all()
    for _ in range(500):
        launch(saxpy, x, y, 0.0)
    launch(saxpy, x, y, -1.0)
    assert (floats(y) == b - a).all()


def test_large_chain_over_many_groups(device: Device, saxpy: Pipeline) -> None:
    count = 1 << 18
    x, y = make_floats(device, np.ones(count)), make_floats(device, np.zeros(count))
    for _ in range(20):
        launch(saxpy, x, y, 1.0, count)
    assert (floats(y, count) == 20).all()


def test_barriers_are_only_at_hazards(
    device: Device, saxpy: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, barrier = [0], device._barrier

    def spy(commands: Any, info: Any) -> None:
        count[0] += info is device._order_info
        barrier(commands, info)

    def count_barriers(reads: set[int], writes: set[int]) -> int:
        before = count[0]
        device.record(saxpy, args, (1, 1, 1), frozenset(reads), frozenset(writes))
        return count[0] - before

    monkeypatch.setattr(device, "_barrier", spy)
    a, b, c = (device.allocate(4096) for _ in range(3))
    args = pack(a, b, 1.0)
    device.wait()
    device._order(device._commands or device._begin())
    assert count_barriers({a.key}, {b.key}) == 0
    assert count_barriers({a.key}, {c.key}) == 0, "two readers"
    assert count_barriers({b.key}, {a.key}) == 1, "read after write, and write after read"
    assert count_barriers({b.key}, {c.key}) == 0
    assert count_barriers(set(), {c.key}) == 1, "write after write"
    device.flush()
    assert count_barriers({c.key}, set()) == 1, "a submission alone orders nothing"
    assert count_barriers(set(), {c.key}) == 1, "write after read"


def test_indirect_arguments(device: Device) -> None:
    """Each launch keeps its own argument block, over more launches than one chunk holds."""
    pipeline = device.load(make_shader(indirect=True))
    x, y = make_floats(device, np.ones(1024)), make_floats(device, np.zeros(1024))
    for i in range(3000):
        launch(pipeline, x, y, float(i % 7), 64)
    assert (floats(y, 64) == sum(i % 7 for i in range(3000))).all()


def test_arguments_are_copied_at_once(device: Device, saxpy: Pipeline) -> None:
    indirect = device.load(make_shader(indirect=True))
    x, y = make_floats(device, np.ones(64)), make_floats(device, np.zeros(64))
    block = device._vk.ffi.new("char[]", 24)
    for pipeline in (saxpy, indirect):
        device._vk.ffi.memmove(block, pack(x, y, 3.0), 24)
        device.record(pipeline, block, (1, 1, 1), frozenset((x.key, y.key)), frozenset((y.key,)))
        device._vk.ffi.memmove(block, bytes(24), 24)
    assert (floats(y, 64) == 6).all()


def test_pipelines_can_go_while_their_commands_are_recorded(device: Device) -> None:
    x, y = make_floats(device, np.ones(1024)), make_floats(device, np.zeros(1024))
    for _ in range(3):
        launch(device.load(make_shader()), x, y, 1.0)
    assert (floats(y) == 3).all()


def test_a_shader_needs_capabilities_of_the_device(device: Device) -> None:
    assert device.load(make_shader(needs=("subgroup_size", "shared_bytes"))).name == "saxpy"
    if not device.caps.f64_atomic_add:
        with pytest.raises(DeviceError, match=r"cannot run saxpy: it lacks f64_atomic_add"):
            device.load(make_shader(needs=("shared_bytes", "f64_atomic_add")))


def test_threads_share_a_device(device: Device, saxpy: Pipeline) -> None:
    results: list[bool] = []

    def work(n: int) -> None:
        x, y = make_floats(device, np.full(1024, n)), make_floats(device, np.zeros(1024))
        for i in range(100):
            launch(saxpy, x, y, 1.0)
            if i % 9 == n % 9:
                device.wait()
        results.append(bool((floats(y) == 100 * n).all()))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [True] * 4


# --- memory ----------------------------------------------------------------------------------


def test_buffers_know_where_they_are(device: Device) -> None:
    a, b = device.allocate(5), device.allocate(0)
    assert a.key != b.key
    assert a.address % 256 == 0
    assert a.address != b.address
    assert (a.size_bytes, b.size_bytes) == (5, 0)
    assert bytes(a.read(0, 5)) == bytes(5)
    assert bytes(b.read(0, 0)) == b""
    assert bytes(device.trash.read(0, 4096)) == bytes(4096)
    if device.unified:
        assert a.view is not None
        assert (a.view.format, a.view.nbytes) == ("B", 5)
        a.view[1] = 7
        assert bytes(a.read(0, 3)) == b"\0\x07\0"
    else:
        assert a.view is None


def test_reads_and_writes_of_any_range(device: Device) -> None:
    buffer = device.allocate(1003)
    buffer.write(3, bytes(range(200)))
    buffer.write(999, np.array([1, 2, 3, 4], np.uint8))
    buffer.write(7, b"")
    assert bytes(buffer.read(1, 6)) == b"\0\0\0\1\2\3"
    assert bytes(buffer.read(998, 5)) == b"\0\1\2\3\4"
    target = np.zeros((2, 3), np.int8)
    buffer.read_into(4, target)
    assert target.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_ranges_are_checked(device: Device) -> None:
    buffer, other = device.allocate(16), device.allocate(16)
    for offset, data in ((-1, b"a"), (16, b"a"), (0, bytes(17))):
        with pytest.raises(InternalError, match="are not in a buffer of 16"):
            buffer.write(offset, data)
    with pytest.raises(InternalError):
        device.copy(buffer, other, 8, 9)
    with pytest.raises(InternalError, match="overlaps"):
        device.copy(buffer, buffer, 8, 0, 4)
    with pytest.raises(InternalError, match="whole words"):
        device.fill(buffer, 0, 3, 0)
    with pytest.raises(InternalError):
        device.allocate(-1)


def test_fill_and_copy_are_in_order_with_dispatches(device: Device, saxpy: Pipeline) -> None:
    x, y, z = (device.allocate(4096) for _ in range(3))
    one = struct.unpack("<I", struct.pack("<f", 1.0))[0]
    device.fill(x, 0, 4096, one)
    device.fill(y, 2048, 2048, one)
    launch(saxpy, x, y, 2.0)
    device.copy(y, z, 2048, 1024, 0)
    launch(saxpy, x, y, 10.0)
    device.copy(y, z, 1024, 0, 3072)
    device.fill(x, 0, 4096, 0xFFFFFFFF)
    assert floats(z)[::256].tolist() == [2, 3, 0, 12]
    assert (floats(y)[:512] == 12).all()
    assert bytes(x.read(4092, 4)) == b"\xff" * 4
    device.copy(z, z, 1024, 0, 1024)
    assert floats(z)[::256].tolist() == [2, 2, 0, 12]


def test_300_mib(device: Device, saxpy: Pipeline) -> None:
    size = 300 << 20
    x, y = device.allocate(size), device.allocate(size)
    far = size - 4096
    x.write(far, RAMP)
    reads, writes = frozenset((x.key, y.key)), frozenset((y.key,))
    device.record(saxpy, pack(x, y, 2.0, far), (16, 1, 1), reads, writes)
    device.copy(y, y, 4096, far, 128 << 20)
    assert (floats(y, 1024, far) == 2 * RAMP).all()
    whole = np.frombuffer(y.read(0, size), np.float32)
    assert whole.nonzero()[0].size == 2 * 1023
    assert (whole[32 << 20 : (32 << 20) + 1024] == 2 * RAMP).all()


def test_exceeding_device_limits_raises(device: Device) -> None:
    with pytest.raises(DeviceError, match=r"1048576\.0 MiB in one piece is more than .* allows"):
        device.allocate(1 << 40)


def test_out_of_memory_says_how_much(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise OutOfMemory("full")

    monkeypatch.setattr(vkchi.vk.memory.heap, "make_block", refuse)
    with pytest.raises(DeviceError, match=r"is out of memory: 512\.0 MiB asked for, .* MiB in"):
        device.allocate(512 << 20)


@pytest.mark.parametrize("wrong", [0, (1 << 64) - 1, (1 << 64) - 4096])
def test_an_address_where_no_memory_can_be_is_a_lack_of_memory(
    wrong: int, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """lavapipe reports success where it could map nothing."""
    calls, ffi = device._logical.calls, device._vk.ffi
    device.wait()
    if device.unified:

        def map_wrongly(*args: Any) -> int:
            args[-1][0] = ffi.cast("void *", wrong)
            return 0

        monkeypatch.setattr(calls, "vkMapMemory", map_wrongly)
    else:
        monkeypatch.setattr(calls, "vkGetBufferDeviceAddress", lambda *args: wrong)
    with pytest.raises(OutOfMemory, match=r"is out of memory: 512\.0 MiB asked for"):
        device.allocate(512 << 20)
    monkeypatch.undo()
    assert not any(device.allocate(1 << 20).read(0, 1 << 20))


def test_a_success_without_a_handle_is_a_lack_of_memory(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("vkCreateShaderModule", "vkCreateComputePipelines"):
        monkeypatch.setattr(device._logical.calls, name, lambda *args: 0)
        with pytest.raises(OutOfMemory, match="the host ran out of memory while "):
            device.load(make_shader())
        monkeypatch.undo()


def test_memory_is_zero_when_used_again(device: Device, saxpy: Pipeline) -> None:
    """It is used again only when the device is done with it, and is zeroed then."""
    device.wait()
    first = make_floats(device, np.full(1 << 16, 5.0))
    other = make_floats(device, np.zeros(1 << 16))
    address = first.address
    launch(saxpy, first, other, 1.0, 1 << 16)
    first.free()
    assert device.allocate(1 << 18).address != address, "commands that read it are recorded"
    device.wait()
    again = [device.allocate(1 << 18) for _ in range(3)]
    assert address in [buffer.address for buffer in again]
    assert all((floats(buffer, 1 << 16) == 0).all() for buffer in again)
    assert (floats(other, 1 << 16) == 5).all()


def test_temporaries_do_not_pile_up(device: Device, saxpy: Pipeline) -> None:
    """Python frees faster than the device works: it waits instead of taking ever more memory."""
    y = make_floats(device, np.zeros(1024))
    for _ in range(40):
        x = device.allocate(48 << 20, zero=False)
        device.fill(x, 0, 4096, 0x3F800000)
        launch(saxpy, x, y, 1.0)
    assert device.heap._allocator.reserved_bytes < 1 << 30
    assert (floats(y) == 40).all()


def test_freed_buffers_cannot_be_used(device: Device) -> None:
    buffer = device.allocate(64)
    buffer.free()
    buffer.free()
    for use in (lambda: buffer.read(0, 4), lambda: device.fill(buffer, 0, 4, 0)):
        with pytest.raises(DeviceError, match="freed"):
            use()


def test_a_view_keeps_its_memory(device: Device) -> None:
    if not device.unified:
        pytest.skip("no views of staged memory")
    buffer = device.allocate(1 << 12)
    array = np.frombuffer(buffer.view, np.uint32)
    array[:] = 3
    address = buffer.address
    del buffer
    others = [device.allocate(1 << 12) for _ in range(50)]
    assert address not in [other.address for other in others]
    assert (array == 3).all()
    del array
    more = [device.allocate(1 << 12) for _ in range(50)]
    assert address in [other.address for other in more]


# --- timing ----------------------------------------------------------------------------------


def test_timestamps(device: Device, saxpy: Pipeline) -> None:
    x, y = make_floats(device, np.ones(1 << 16)), make_floats(device, np.zeros(1 << 16))
    with device.timing() as timing:
        for _ in range(300):
            launch(saxpy, x, y, 1.0, 1 << 16)
        with pytest.raises(DeviceError, match="already"), device.timing():
            pass
    launch(saxpy, x, y, 1.0, 1 << 16)
    assert [name for name, _ in timing.dispatches] == ["saxpy"] * 300
    assert all(0 <= seconds < 1 for _, seconds in timing.dispatches)
    assert sum(seconds for _, seconds in timing.dispatches) > 0
    assert (floats(y, 1 << 16) == 301).all()


# --- the end ---------------------------------------------------------------------------------


@pytest.mark.parametrize("staged", [False, True])
def test_every_call_on_a_closed_device_raises(staged: bool) -> None:
    device = open_device(staged=staged)
    pipeline = device.load(make_shader())
    x, y = make_floats(device, RAMP), make_floats(device, RAMP)
    launch(pipeline, x, y, 1.0)
    view = np.frombuffer(y.view, np.float32) if y.view is not None else None
    assert not device.closed
    device.close()
    device.close()
    assert device.closed
    uses = (
        lambda: device.allocate(4), lambda: device.load(make_shader()), device.wait, device.flush,
        lambda: launch(pipeline, x, y, 1.0), lambda: x.read(0, 4), lambda: x.write(0, b"a"),
        lambda: device.fill(x, 0, 4, 0), lambda: device.copy(x, y, 4),
        lambda: device.timing().__enter__(),
    )  # fmt: skip
    for use in uses:
        with pytest.raises(DeviceError, match="the runtime was reset"):
            use()
    assert device.busy, "so that who looks at memory directly waits, and is told"
    if view is not None:
        assert (view == 2 * RAMP).all(), "the view outlives the device"
    x.free()


def test_a_device_can_be_closed_while_it_measures() -> None:
    device = open_device()
    x, y = make_floats(device, RAMP), make_floats(device, RAMP)
    pipeline = device.load(make_shader())
    with device.timing() as timing:
        launch(pipeline, x, y, 1.0)
        device.close()
    assert timing.dispatches == []
    assert device.messages == []


def test_a_lost_device_says_so_ever_after(monkeypatch: pytest.MonkeyPatch) -> None:
    device = open_device()
    pipeline = device.load(make_shader())
    x, y = make_floats(device, RAMP), make_floats(device, RAMP)
    launch(pipeline, x, y, 1.0)
    monkeypatch.setattr(device._logical.calls, "vkQueueSubmit2", lambda *_: -4)
    for use in (device.flush, device.wait, lambda: launch(pipeline, x, y, 1.0)):
        with pytest.raises(DeviceError, match="the device was lost while running kernels: "):
            use()
    assert device.busy
    assert not device.closed
    device.close()
    assert device.closed
    assert device.messages == []


def test_a_device_that_nothing_refers_to_is_closed_when_memory_is_asked_for() -> None:
    instances = []
    for _ in range(3):
        device = open_device()
        instances.append(device._instance)
        buffer = device.allocate(64)
        del device
        assert bytes(buffer.read(0, 1)) == b"\0", "a buffer keeps its device"
        del buffer
        gc.collect()
    assert ABANDONED and [instance.handle for instance in instances[:2]] == [None] * 2
    with closing(open_device()) as device:
        assert not ABANDONED and instances[2].handle is None
        open_device()
        gc.collect()
        assert len(ABANDONED) == 1
        device.allocate(4)
        assert not ABANDONED


# --- choosing --------------------------------------------------------------------------------


def info(index: int, kind: str, vendor: str, name: str) -> DeviceInfo:
    return DeviceInfo(index, name, kind, vendor, "", (1, 3, 0), bytes(16))


MANY = [
    info(0, "cpu", "mesa", "llvmpipe"),
    info(1, "integrated", "intel", "Iris Xe"),
    info(2, "discrete", "nvidia", "RTX"),
    info(3, "discrete", "amd", "Radeon"),
]


@pytest.mark.parametrize(
    ("infos", "kind", "select", "index"),
    [
        (MANY, "any", None, 2),
        (MANY[:2], "any", None, 1),
        (MANY, "gpu", None, 2),
        (MANY, "cpu", None, 0),
        (MANY, "nvidia", None, 2),
        (MANY, "cpu", "radeon", 3),
        (MANY, "cpu", "1", 1),
        (MANY, "cpu", 3, 3),
    ],
)
def test_device_choice(infos: list[DeviceInfo], kind: str, select: Any, index: int) -> None:
    lacks: list[list[str]] = [[] for _ in infos]
    assert choose_device(infos, lacks, kind, select, fallback=False) == index


def test_choice_falls_back_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "vkchi"):
        assert choose_device(MANY[:1], [[]], "gpu", None, fallback=True) == 0
    assert caplog.messages == ["no gpu device here: using llvmpipe"]


@pytest.mark.parametrize(
    ("kind", "select", "lack", "message"),
    [
        ("nvidia", None, [], "no nvidia device here; there is 0: llvmpipe"),
        ("any", "geforce", [], "no Vulkan device matches 'geforce'; there is 0: llvmpipe"),
        ("any", 7, [], "no Vulkan device matches 7; there is 0: llvmpipe"),
        ("tpu", None, [], "no kind of device is called 'tpu': it is one of any, gpu, cpu, nvidia"),
        (
            "any",
            None,
            ["x"],
            "no Vulkan device here can be used: llvmpipe lacks x; update the driver: "
            "Mesa 22.3 or newer",
        ),
        ("any", "llvm", ["x", "y"], "llvmpipe lacks x, y; update the driver: Mesa 22.3 or newer"),
        ("any", "llvm", ["a compute queue"], "llvmpipe lacks a compute queue"),
    ],
)
def test_a_choice_that_cannot_be(kind: str, select: Any, lack: list[str], message: str) -> None:
    with pytest.raises(DeviceError) as error:
        choose_device(MANY[:1], [lack], kind, select, fallback=False)
    assert str(error.value) == message


@pytest.mark.parametrize("vendor", [*DRIVERS, "imgtec"])
def test_old_drivers_get_a_hint_for_a_newer_one(vendor: str, device: Device) -> None:
    """A device of Vulkan 1.2 lacks Vulkan 1.3; the message has its version and a driver's."""
    old = device._logical.physical._replace(api=(1, 2, 175), vendor=vendor)
    said = lack_text(old.list_lacks(), vendor)
    assert said.startswith("lacks Vulkan 1.3 (it has 1.2.175)")
    update = f"; update the driver: {DRIVERS[vendor]}" if vendor in DRIVERS else ""
    assert said.endswith(")" + update)


@pytest.mark.parametrize("name", ["scalarBlockLayout", "maintenance4"])
def test_optional_features_are_not_required(
    name: str, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one, a device opens, asks for nothing that it lacks, and computes."""
    read = physical._read_features
    monkeypatch.setattr(physical, "_read_features", lambda *a: [f for f in read(*a) if f != name])
    opened = open_device()
    try:
        assert name not in opened._logical.physical.features
        assert not opened._logical.physical.list_lacks()
        assert opened.caps.scalar_alignment == (name != "scalarBlockLayout")
        x = opened.allocate(64)
        x.write(0, bytes(range(64)))
        assert x.read(0, 64) == bytes(range(64))
    finally:
        opened.close()


DRIVER_IDS = {
    "VK_DRIVER_ID_MOLTENVK": {
        "chain_casts", "scalar_alignment", "subgroup_scans", "subgroup_at_once",
    },
    "VK_DRIVER_ID_MESA_LLVMPIPE": {"zero_dividends"},
    "VK_DRIVER_ID_GOOGLE_SWIFTSHADER": {"integer_extremes"},
    "VK_DRIVER_ID_MESA_RADV": set(),
}  # fmt: skip


@pytest.mark.parametrize("driver", DRIVER_IDS)
def test_defects_of_drivers(driver: str, device: Device) -> None:
    """They are known by the driver's id; features that it reports do not hide them."""
    vk = device._vk
    features = [*physical.CAPS_OF_FEATURES.values()]
    plain = vk.ffi.new("VkPhysicalDeviceProperties *")
    in11, in12, in13 = [vk.new(f"VkPhysicalDeviceVulkan1{k}Properties") for k in (1, 2, 3)]
    in12.driverID = getattr(vk.const, driver)
    caps = physical._read_caps(vk, features, plain, in11, in12, in13)
    fields = set().union(*DRIVER_IDS.values())
    found = {name for name in fields if not getattr(caps, name)}
    assert found == DRIVER_IDS[driver]
    assert caps.f32_atomic_add and caps.f32_atomic_add_shared == (driver != [*DRIVER_IDS][0])


def test_unusable_devices_are_passed_over() -> None:
    assert choose_device(MANY, [[], [], ["x"], []], "gpu", None, fallback=False) == 3


def test_list_devices(device: Device) -> None:
    found = list_devices()
    assert [row.index for row in found] == list(range(len(found)))
    assert device.info in found
    assert device.info.api >= (1, 3, 0)
    assert len(device.info.uuid) == 16


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKCHI_DEVICE", "no such device")
    with pytest.raises(DeviceError, match="no Vulkan device matches 'no such device'; there"):
        open_device()
    monkeypatch.setenv("VKCHI_DEVICE", "0")
    open_device().close()


# --- small things ----------------------------------------------------------------------------


def test_the_entry_point_is_found() -> None:
    assert find_entry(assemble(DIRECT)) == b"main"
    for words in (b"", b"\0" * 40, b"abc"):
        with pytest.raises(InternalError):
            find_entry(words)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (-1, "the host ran out of memory while working"),
        (-3, "the Vulkan driver could not start while working: is the device in use, its driver"),
        (-4, "the device was lost while working: a kernel ran too long for the driver, or wrote"),
        (-12, "working failed (VK_ERROR_FRAGMENTED_POOL)"),
        (-99, "working failed (VkResult -99)"),
    ],
)
def test_results_become_sentences(result: int, message: str) -> None:
    with pytest.raises(DeviceError) as error:
        load_vulkan().check(result, "working")
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("name", "constant"),
    [
        ("VkMemoryBarrier2", "MEMORY_BARRIER_2"),
        ("VkPhysicalDeviceVulkan13Properties", "PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES"),
        (
            "VkPhysicalDeviceShaderAtomicFloat2FeaturesEXT",
            "PHYSICAL_DEVICE_SHADER_ATOMIC_FLOAT_2_FEATURES_EXT",
        ),
        ("VkPhysicalDeviceIDProperties", "PHYSICAL_DEVICE_ID_PROPERTIES"),
    ],
)
def test_structure_types(name: str, constant: str) -> None:
    assert name_structure_type(name) == "VK_STRUCTURE_TYPE_" + constant
