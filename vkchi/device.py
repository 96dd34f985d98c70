"""Device that runs kernels: selection, memory, pipelines, transfers, and shutdown.

`vkchi.vk` makes the Vulkan calls. Commands are recorded in call order (`vk.recorder`), with
barriers only for hazards. They are submitted by `flush`, when a caller waits, or when a batch is
full. Threads may record, transfer and wait concurrently.

    device = open_device("gpu")
    x = device.allocate(4096)
    ramp = device.load(shader)
    device.record(ramp, args, (16, 1, 1), frozenset(), frozenset((x.key,)))
    x.read(0, 4096)
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import itertools
import sys
import weakref
from collections import deque
from itertools import chain
from threading import RLock, current_thread
from typing import TYPE_CHECKING, Any

from vkchi import env, platform
from vkchi.compile_state import ArrayGuard
from vkchi.errors import DeviceError, InternalError
from vkchi.interrupts.contexts import restoring
from vkchi.interrupts.local import suppress
from vkchi.interrupts.weak import Finalizer, WeakGroup, resurrecting_del
from vkchi.logs import logger
from vkchi.target.devices import RANKS, SELECTORS, DeviceInfo, list_names, select_device
from vkchi.target.memory_handles import Payload
from vkchi.target.shader import Shader
from vkchi.vk.instance import Instance, open_instance, physical_devices
from vkchi.vk.logical import open_logical
from vkchi.vk.memory.blocks import LOCAL, SHARED, MemoryBlock, export_block, find_type
from vkchi.vk.memory.external import choose_exporter
from vkchi.vk.memory.heap import Heap, HeapMemory, Left, MemorySpan
from vkchi.vk.memory.ring import Ring, RingSlice
from vkchi.vk.physical import Physical, lack_text, read_all
from vkchi.vk.pipelines import Pipeline, Pipelines, count_push_bytes, required_subgroup
from vkchi.vk.raw import FORKED, OutOfMemory, forbid_vulkan, load_vulkan
from vkchi.vk.recorder import CommandRecorder

# --- buffers -------------------------------------------------------------------------------------
#
# Device buffers: parts of a device's memory that store arrays.
#
# They are read and written in place or through the device.
#
#     buffer = device.allocate(4096)
#     buffer.write(0, b"abcd"); buffer.read(0, 4)

if TYPE_CHECKING:
    pass
    from vkchi.vk.memory.blocks import MemoryBlock


IMPORTED = 0


class Buffer:
    """A part of a device's memory.

    Freed by `free` or with its last reference, once the device has finished with it.

    - `key`: unique among the device's buffers, never reused. Exception: IMPORTED, the common key of
      buffers that may overlap others, made by `Device.import_host`, `lend` and `part_of`.
    - `address`: the device address.
    - `view`: memoryview of the bytes; None after `free`, and if the host does not map the device's
      memory. A reference to the `view`, or to an array over it, keeps the memory alive.
    """

    __slots__ = (
        "__weakref__", "_span", "address", "device", "key", "pointer", "size_bytes", "view",
    )  # fmt: skip

    def __init__(self, device: Device, key: int, memory: HeapMemory, size_bytes: int) -> None:
        self.device, self.key, self.size_bytes = device, key, size_bytes
        span = memory.span
        self._span: MemorySpan | None = span
        self.address: int = span.block.address + span.offset
        # The memory is released with the last reference to this pointer: the buffer's or a view's.
        self.pointer: Any = memory.pointer
        self.view: memoryview | None = None
        if device.unified:
            self.view = memoryview(device._vk.ffi.buffer(self.pointer, size_bytes))

    def locate(self, offset: int, size_bytes: int) -> tuple[Any, int]:
        """(VkBuffer, offset in it) of a range.

        Raises InternalError if the range is outside of the buffer, DeviceError after `free` or
        `Device.close`.
        """
        if self._span is None:
            self.device.require_open()
            raise DeviceError("this array was freed")
        if offset < 0 or size_bytes < 0 or offset + size_bytes > self.size_bytes:
            raise InternalError(
                f"{size_bytes} bytes at {offset} are not in a buffer of {self.size_bytes}"
            )
        return self._span.block.buffer, self._span.offset + offset

    def place(self) -> tuple[MemoryBlock, int]:
        """(memory block, offset in it). Raises DeviceError after `free`."""
        self.locate(0, 0)
        assert self._span is not None
        return self._span.block, self._span.offset

    def read(self, offset: int, size_bytes: int) -> bytearray:
        """Return a copy of `size_bytes` bytes from `offset`; waits for all recorded commands."""
        result = bytearray(size_bytes)
        self.read_into(offset, result)
        return result

    def read_into(self, offset: int, target: Any) -> None:
        """Fill the writable contiguous buffer `target` from `offset` on; waits for all recorded
        commands."""
        memory = self.device._vk.ffi.from_buffer(target, require_writable=True)
        size_bytes = len(memory)
        self.locate(offset, size_bytes)
        self.device.wait()
        if self.view is not None:
            self.device._vk.ffi.memmove(memory, self.pointer + offset, size_bytes)
        elif size_bytes:
            self.device.download(self, offset, memory, size_bytes)

    def write(self, offset: int, data: Any) -> None:
        """Write the bytes of a contiguous buffer (bytes, array, numpy) at `offset`.

        Commands recorded earlier do not see the data, later ones do. If the device is `unified`,
        the call waits for the earlier commands.
        """
        memory = self.device._vk.ffi.from_buffer(data)
        size_bytes = len(memory)
        self.locate(offset, size_bytes)
        if self.view is not None:
            self.device.wait()
            self.device._vk.ffi.memmove(self.pointer + offset, memory, size_bytes)
        elif size_bytes:
            self.device.upload(self, offset, memory, size_bytes)

    def free(self) -> None:
        """Drop the references to the memory. Idempotent; later reads and writes raise DeviceError.

        The memory is freed when the device has finished with it and no `view` of it is referenced.
        """
        self._span = self.pointer = self.view = None


# --- the device ----------------------------------------------------------------------------------

TRASH_BYTES = 4096
PRESSURE_BYTES = 256 << 20  # pending frees above which `allocate` waits
STAGING_BYTES = 4 << 20
PIECES_READ_AT_ONCE = 4
ANY_TYPE = (1 << 32) - 1
NOBODY: frozenset[int] = frozenset()

GRACE_S = 1.0  # at exit, kernels that run longer give a message
WAYS_OUT = "the program ends when they are done, or at Ctrl-C"
OPEN: WeakGroup[Device] = WeakGroup()  # may include closed ones
ABANDONED: deque[Device] = deque()  # garbage devices, to be closed
RESET = "the runtime was reset: call init() again, and make arrays and fields anew"
ENDED = "the device was closed because Python ends: use arrays and kernels before that"


def list_devices() -> list[DeviceInfo]:
    """All Vulkan devices of this machine, by index.

    Raises DeviceError if there is no Vulkan loader or no driver.
    """
    return [device_info(i, row) for i, row in enumerate(physical_devices())]


def usable_devices() -> list[DeviceInfo]:
    """Those of `list_devices` that lack nothing, in the order in which `open_device` prefers them.

    Raises DeviceError as `list_devices`.
    """
    rows = enumerate(physical_devices())
    found = [device_info(i, row) for i, row in rows if not row.list_lacks()]
    return sorted(found, key=lambda info: RANKS[info.kind])


def open_device(
    kind: str = "any",
    select: str | int | None = None,
    *,
    fallback: bool = True,
    staged: bool = False,
    opened_as: type[Device] | None = None,
) -> Device:
    """Open a device, as an instance of `Device` or of the class `opened_as`.

    kind: `any` (the best device), `gpu`, `cpu` (a software device) or `nvidia`. If there is none of
    that kind, the best device is used with a warning in the log; without `fallback`, DeviceError is
    raised. select: an index, or a part of a name; it overrides `kind`, and defaults to
    VKCHI_DEVICE. staged: do not map memory, even if it is host memory; behaves like a discrete GPU.

    Also closes garbage devices. Raises DeviceError if there is no such device, or if it lacks a
    required feature.
    """
    close_abandoned()
    instance = open_instance(load_vulkan())
    try:
        rows = read_all(instance.vk, instance.list_handles())
        infos = [device_info(i, row) for i, row in enumerate(rows)]
        lacks = [row.list_lacks() for row in rows]
        if select is None and env.flag("VKCHI_DEVICE"):
            index = choose_named(infos, lacks, kind)
        else:
            index = choose_device(infos, lacks, kind, select, fallback=fallback)
        return (opened_as or Device)(instance, rows[index], infos[index], staged=staged)
    except BaseException:
        if not any(device._instance is instance for device in all_devices()):
            instance.close()
        raise


def device_info(index: int, row: Physical) -> DeviceInfo:
    return DeviceInfo(index, row.name, row.kind, row.vendor, row.driver, row.api, row.uuid)


def choose_device(
    infos: list[DeviceInfo],
    lacks: list[list[str]],
    kind: str,
    select: str | int | None,
    *,
    fallback: bool,
) -> int:
    """Index of the device to open. `lacks`: missing requirements of each device.

    Further arguments as in `open_device`. Raises DeviceError if no usable device matches.
    """
    if select is not None:
        index = select_device(infos, select)
        if lacks[index]:
            raise DeviceError(f"{infos[index].name} {lack_text(lacks[index], infos[index].vendor)}")
        return index
    if kind not in SELECTORS:
        raise DeviceError(
            f"no kind of device is called {kind!r}: it is one of {', '.join(SELECTORS)}"
        )
    usable = [info for info, lack in zip(infos, lacks, strict=True) if not lack]
    if not usable:
        rows = zip(infos, lacks, strict=True)
        reasons = (f"{i.name} {lack_text(k, i.vendor)}" for i, k in rows)
        raise DeviceError("no Vulkan device here can be used: " + "; ".join(reasons))
    usable.sort(key=lambda info: RANKS[info.kind])
    wanted = [info for info in usable if SELECTORS[kind](info)]
    if not wanted and not fallback:
        raise DeviceError(f"no {kind} device here; there {list_names(infos)}")
    if not wanted:
        logger().warning("no %s device here: using %s", kind, usable[0].name)
    return (wanted or usable)[0].index


def choose_named(infos: list[DeviceInfo], lacks: list[list[str]], kind: str) -> int:
    """Index of the device that VKCHI_DEVICE selects.

    Raises DeviceError, with the variable's name, if no usable device matches.
    """
    try:
        return choose_device(infos, lacks, kind, env.flag("VKCHI_DEVICE"), fallback=False)
    except DeviceError as e:
        raise DeviceError(f"{e} (VKCHI_DEVICE is set to choose one)") from None


class Device(CommandRecorder):
    """One open Vulkan device: memory, pipelines, and a command recorder.

    - `info`: its description; `caps`: its capabilities.
    - `unified`: True if the host maps all buffers, so that they have a `view`.
    - `trash`: 4096 bytes that receive out-of-range accesses of shaders.
    - `messages`: messages of the validation layer.
    - `host_pointer_alignment`: in bytes, 0 if host memory cannot be imported.
    - `closed`: True after `close`, and in a forked child.
    - `finalizers`: actions for dead objects, which `sweep` runs.
    """

    _instance: Instance | None = None  # set once open; closed with the device

    def __init__(
        self, instance: Instance, physical: Physical, info: DeviceInfo, *, staged: bool
    ) -> None:
        self.info, self.caps, self.closed = info, physical.caps, False
        self.messages, self._vk = instance.messages, instance.vk
        self._keys = itertools.count(1)
        self._buffers: WeakGroup[Buffer] = WeakGroup()
        self.finalizers: deque[Finalizer[Any]] = deque()
        self._has_ended, self._why_closed = False, RESET
        logical = open_logical(instance.vk, physical)
        try:
            logical.has_names = instance.has_validation
            super().__init__(logical)
            is_hosts = physical.kind in ("cpu", "integrated") and not staged
            self.unified = is_hosts and find_type(logical, ANY_TYPE, SHARED) >= 0
            self.host_pointer_alignment = physical.host_pointer_alignment if self.unified else 0
            placement = SHARED if self.unified else LOCAL
            self.heap = Heap(logical, placement, choose_exporter(logical))
            self._garbage = (self.finalizers, *self.heap.deques, *logical.deques)
            self.pipelines = Pipelines(logical)
            self._staging = Ring(logical, self._queue, STAGING_BYTES)
            self._region = instance.vk.new("VkBufferCopy")
            self._seen: list[weakref.ref[Any]] = []  # outside views after `close`
            OPEN.add(self)
            self.trash = self.allocate(TRASH_BYTES)
            self._instance = instance
        except BaseException:  # nothing has been submitted
            if self._instance is None:
                logical.close()
            raise

    __del__ = resurrecting_del(ABANDONED)

    # --- memory and pipelines --------------------------------------------------------------

    def allocate(self, size_bytes: int, *, zero: bool = True) -> Buffer:
        """A buffer of `size_bytes`, zeroed if `zero`.

        May wait for the device to free memory. Raises DeviceError if the device is out of memory,
        with the requested and free bytes, or if the size exceeds a limit.
        """
        if size_bytes < 0:
            raise InternalError(f"a buffer of {size_bytes} bytes was asked for")
        with restoring(self._lock), self._lock:
            self.require_open()
            memory = self._find_memory(size_bytes)
            buffer = self._hand_out(next(self._keys), memory, size_bytes)
            if zero and self.unified:
                start = int(self._vk.ffi.cast("uintptr_t", buffer.pointer))
                ctypes.memset(start, 0, memory.span.size_bytes)
            elif zero:
                self._record_fill(buffer, 0, memory.span.size_bytes, 0)
            return buffer

    def _hand_out(self, key: int, memory: HeapMemory, size_bytes: int) -> Buffer:
        buffer = Buffer(self, key, memory, size_bytes)
        self._buffers.add(buffer)
        return buffer

    def _find_memory(self, size_bytes: int) -> HeapMemory:
        close_abandoned()
        self.sweep()
        if self.heap.waiting_bytes > PRESSURE_BYTES:
            self.wait()
        try:
            return self.heap.allocate(size_bytes)
        except OutOfMemory:
            pass  # the exception keeps a failed block alive
        gc.collect()
        self.sweep()
        self.wait()
        try:
            return self.heap.allocate(size_bytes)
        except OutOfMemory:
            raise self.heap.explain_shortage(size_bytes) from None

    def free_bytes(self) -> int:
        """Approximate free bytes of the largest device-local heap; its size if the free part is
        unknown."""
        with restoring(self._lock), self._lock:
            return self.heap.free_bytes()

    def sweep(self) -> None:
        """Run the finalizers of dead objects, and free memory that the device has finished with."""
        if not any(self._garbage):
            return
        recorded, completed = self.recorded_number, self._queue.read_completed()
        self._part()
        self.heap.sweep(recorded, completed)
        self._part()  # finalizers of blocks that the heap released
        self._logical.sweep(recorded, completed)

    def _part(self) -> None:
        while self.finalizers:
            self.finalizers[0].act()
            self.finalizers.popleft()

    def import_host(self, pointer: Any, size_bytes: int) -> Buffer:
        """A buffer over host memory at a cffi pointer, which it keeps alive.

        Several buffers may share the memory. Raises DeviceError if the device or the driver does
        not accept it.
        """
        if not self.host_pointer_alignment:
            raise DeviceError(f"{self.info.name} cannot use the host's memory in place")
        with restoring(self._lock), self._lock:
            self.require_open()
            self.sweep()
            memory = self.heap.import_host(pointer, size_bytes)
            return self._hand_out(IMPORTED, memory, size_bytes)

    def import_payload(self, payload: Payload, size_bytes: int) -> Buffer:
        """A buffer over the memory of an external handle, which is closed afterwards.

        Raises DeviceError if the driver does not accept it. The handle then stays open.
        """
        with restoring(self._lock), self._lock:
            self.require_open()
            self.sweep()
            memory = self.heap.import_payload(payload, size_bytes)
            return self._hand_out(next(self._keys), memory, size_bytes)

    def export(self, block: MemoryBlock) -> Payload:
        """Export a whole block; return a new handle. If it is a file descriptor, the importer takes
        ownership.

        Raises DeviceError if the block, or memory of this device, cannot be exported.
        """
        if self.heap.exporter is None:
            raise DeviceError(f"{self.info.name} was not asked for memory to be given away")
        return export_block(block, self.heap.exporter)

    def lend(self, size_bytes: int) -> Buffer:
        """A buffer with the key IMPORTED, as if other buffers may overlap it.

        Not zeroed. Raises DeviceError as `allocate`.
        """
        with restoring(self._lock), self._lock:
            self.require_open()
            return self._hand_out(IMPORTED, self._find_memory(size_bytes), size_bytes)

    def part_of(self, block: MemoryBlock, offset: int, size_bytes: int) -> Buffer:
        """A buffer over a part of `block`, with the key IMPORTED: other buffers may overlap it."""
        with restoring(self._lock), self._lock:
            memory = self.heap.part_of(block, offset, size_bytes)
            return self._hand_out(IMPORTED, memory, size_bytes)

    def load(self, shader: Shader) -> Pipeline:
        """Compile a shader in the driver; return the pipeline.

        Raises DeviceError if the device lacks a feature (with its name), or if the driver fails.
        """
        self.require_open()
        lacks = [name for name in shader.needs if not getattr(self.caps, name)]
        if lacks:
            raise DeviceError(
                f"{self.info.name} cannot run {shader.name}: it lacks {', '.join(lacks)}"
            )
        if count_push_bytes(shader) > self.caps.push_constant_bytes:
            raise InternalError(f"the arguments of {shader.name} are too long to be pushed")
        size = required_subgroup(shader, self.caps, self._logical.physical)
        with restoring(self._lock), self._lock:  # another thread may have closed the device
            self.require_open()
            self.loaded = shader.name
            return self.pipelines.make(shader, size)

    # --- transfers -------------------------------------------------------------------------

    def copy(
        self, src: Buffer, dst: Buffer, size_bytes: int, src_offset: int = 0, dst_offset: int = 0
    ) -> None:
        """Record a copy of `size_bytes` between buffers, or between disjoint parts of one.

        Raises InternalError for overlapping parts, and for buffers of another device.
        """
        here, there = src.locate(src_offset, size_bytes), dst.locate(dst_offset, size_bytes)
        if not src.device is dst.device is self:
            raise InternalError("a copy between devices")
        if src is dst and abs(src_offset - dst_offset) < size_bytes:
            raise InternalError("a copy within a buffer overlaps itself")
        if size_bytes:
            with restoring(self._lock), self._lock:
                commands = self.begin_command(frozenset((src.key,)), frozenset((dst.key,)))
                self._record_copy(commands, *here, *there, size_bytes)
                self.count_command()

    def fill(self, buffer: Buffer, offset: int, size_bytes: int, word: int) -> None:
        """Record a fill of `size_bytes` bytes at `offset` with the 32-bit `word`.

        Raises InternalError unless both are multiples of 4.
        """
        buffer.locate(offset, size_bytes)
        if offset % 4 or size_bytes % 4:
            raise InternalError(f"a fill of {size_bytes} bytes at {offset} is not of whole words")
        if size_bytes:
            with restoring(self._lock), self._lock:
                self._record_fill(buffer, offset, size_bytes, word)

    def _record_fill(self, buffer: Buffer, offset: int, size_bytes: int, word: int) -> None:
        commands = self.begin_command(NOBODY, frozenset((buffer.key,)))
        where, start = buffer.locate(offset, 0)
        calls = self._logical.calls
        calls.vkCmdFillBuffer(commands, where, start, size_bytes, word & 0xFFFFFFFF)
        self.count_command()

    def _record_copy(
        self, commands: Any, src: Any, src_offset: int, dst: Any, dst_offset: int, size_bytes: int
    ) -> None:
        region = self._region
        region.srcOffset, region.dstOffset, region.size = src_offset, dst_offset, size_bytes
        self._logical.calls.vkCmdCopyBuffer(commands, src, dst, 1, region)

    def upload(self, buffer: Buffer, offset: int, source: Any, size_bytes: int) -> None:
        """Record copies of `size_bytes` bytes at the cffi pointer `source` into a buffer.

        The source is read before the return.
        """
        for at in range(0, size_bytes, STAGING_BYTES):
            size = min(STAGING_BYTES, size_bytes - at)
            there = buffer.locate(offset + at, size)
            with restoring(self._lock), self._lock:
                commands = self.begin_command(NOBODY, frozenset((buffer.key,)))
                piece = self._staging.allocate(size, self._queue.submitted + 1)
                self._move(piece.pointer, source + at, size)
                self._record_copy(commands, piece.buffer, piece.offset, *there, size)
                self.count_command()
                if size == STAGING_BYTES:
                    self.flush()

    def download(self, buffer: Buffer, offset: int, target: Any, size_bytes: int) -> None:
        """Copy `size_bytes` bytes of a buffer to the cffi pointer `target`; waits for all commands.

        They are read from `offset` on.
        """
        step = PIECES_READ_AT_ONCE * STAGING_BYTES
        for start in range(0, size_bytes, step):
            with restoring(self._lock), self._lock:
                pieces: list[tuple[int, int, RingSlice]] = []
                commands = self.begin_command(frozenset((buffer.key,)), NOBODY)
                for at in range(start, min(start + step, size_bytes), STAGING_BYTES):
                    size = min(STAGING_BYTES, size_bytes - at)
                    piece = self._staging.allocate(size, self._queue.submitted + 1)
                    here = buffer.locate(offset + at, size)
                    self._record_copy(commands, *here, piece.buffer, piece.offset, size)
                    pieces.append((at, size, piece))
                self.wait()
                for at, size, piece in pieces:
                    self._move(target + at, piece.pointer, size)

    # --- end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Wait, and free everything. Idempotent; later use raises DeviceError.

        Memory that is referenced from outside, through a `view`, and the driver stay until the last
        reference dies. A device that is garbage but not closed is closed at the next allocation, at
        the next `open_device`, or at exit.
        """
        instance = self._instance
        if instance is None:
            return
        with restoring(self._lock), self._lock:
            if self._has_ended or self._seen:
                return
            if not self.closed:
                with suppress(DeviceError):  # a lost device is closed too
                    self.wait()
                    self.pipelines.cache.save()
                # The timeline signals that commands are done. The driver may still use it, and
                # other semaphores of the submission: a published timeline, a peer's.
                self._logical.calls.vkDeviceWaitIdle(self._logical.handle)
                if self.peer is not None:
                    self.peer.close()
                self._refuse(self._why_closed)
            self.drain_waiters()  # repeated if an exception interrupts it
            for buffer in self._buffers:
                buffer.free()
            self._staging.close()
            self._ring.close()
            self._part_with(self.heap.close(), instance)
            self._has_ended = True

    def _part_with(self, left: Left, instance: Instance) -> None:
        """Close the device now or, in C code, when the last pointer into the blocks `left` dies.

        From the interpreter's exit on, the memory is left to the end of the process.
        """
        if left:
            self._logical.close_but(frozenset(("VkBuffer", "VkDeviceMemory")))
            seen = self.heap.leave(left, chain(self._logical.ending, instance.ending))
            atexit.register(self._seen.clear)  # also keeps the references alive
            platform.at_fork(in_child=self._seen.clear)
            self._seen.extend(seen)
        else:
            self._logical.close()
            instance.close()

    def end(self) -> None:
        """Close at the interpreter's exit.

        Prints a message if kernels still run after a second. Ctrl-C then terminates the process
        without a wait, because no driver can stop kernels.
        """
        try:
            with suppress(DeviceError):
                if not self.closed and not self.is_done_within(GRACE_S):
                    print(f"vkchi: kernels still run on {self.name}; {WAYS_OUT}", file=sys.stderr)
            self._why_closed = ENDED
            self.close()
            self._seen.clear()  # functions registered during exit are not called
        except KeyboardInterrupt:
            platform.end_interrupted()

    def _refuse(self, reason: str) -> None:
        """Make `require_open` raise DeviceError with this reason.

        `busy` is set so that memory accesses wait, and therefore raise.
        """
        self._commands = self._queue.outgoing = None
        self._refusal, self.busy, self.closed = reason, True, True

    def require_open(self) -> None:
        """Raise DeviceError if the device is closed, lost, or inherited by a forked process.

        At the interpreter's exit, end a daemon thread silently instead, as Python does. An error
        message that it prints then can abort the process (Python 3.13).
        """
        if self._refusal == ENDED and current_thread().daemon:
            raise SystemExit
        super().require_open()

    @property
    def is_reset(self) -> bool:
        """True after `close`, for example by `reset` or a new `init`; False when Python ends."""
        return self._refusal == RESET

    def refuse_in_child(self) -> None:
        """Disable the device in a forked child, which lacks the driver's threads."""
        self._lock = RLock()  # a thread of the parent may have held it
        if not self._has_ended:
            forbid_vulkan()
            self._refuse(FORKED)
            for buffer in self._buffers:
                buffer.free()
            self._has_ended = True


def close_abandoned() -> None:
    """Close the devices that are garbage; waits for their commands."""
    for device in list(ABANDONED):
        device.close()
        with suppress(ValueError):  # another thread has removed it
            ABANDONED.remove(device)


def all_devices() -> list[Device]:
    """All devices, referenced or garbage, and possibly closed."""
    return [*OPEN, *ABANDONED]


def end_all() -> None:
    """Close all devices at the interpreter's exit."""
    for device in all_devices():
        device.end()


def mark_all_busy() -> None:
    """Let accesses to elements of arrays take the path that waits: `ArrayGuard`."""
    for device in OPEN:
        device.mark_busy()


def refuse_all_in_child() -> None:
    """Disable the parent's devices in a forked child."""
    for device in all_devices():
        device.refuse_in_child()


ArrayGuard.on_enter.append(mark_all_busy)
for _ in range(2):  # twice: an interrupt at the start of one call would be lost
    atexit.register(end_all)
    platform.at_fork(in_child=refuse_all_in_child)
