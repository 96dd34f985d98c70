"""Link between a Vulkan device and CUDA on the same GPU: shared memory and synchronization.

A link is the device's `peer`. A stream is live while memory that was exported to it is held. For
each live stream, in the order of the host's calls:

- later Vulkan work starts after earlier work of the stream (`lend`: the stream signals, the
  submission waits);
- later work of the stream starts after earlier Vulkan work (`take_back`, `wait_on`: the submission
  signals, the stream waits).

The host does not wait for either. Each stream has a timeline of its own: values of one timeline
must increase, and two streams reach theirs in any order. Whole blocks are exported, dedicated to
one buffer, and mapped once; an array is a part of one.

    link = find_link(runtime)
    held = link.export(buffer, stream)      # keeps the memory; `held.address` is CUDA's
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from vkchi.errors import DeviceError
from vkchi.interop.cuda.driver import CudaDriver, open_driver
from vkchi.interrupts.contexts import restoring
from vkchi.interrupts.weak import Finalizer
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.device import Buffer, Device
    from vkchi.runtime import Runtime

NOT_SHARED = (
    "{name} shares no memory with CUDA: that takes an NVIDIA card, its Vulkan driver, and the "
    "Python package cuda-bindings (pip install cuda-bindings)"
)


class ExportedMemory:
    """Exported memory, kept alive while this object is referenced. `address` is CUDA's."""

    __slots__ = ("__weakref__", "address", "memory")

    def __init__(self, address: int, memory: Any) -> None:
        self.address, self.memory = address, memory


GONE: weakref.ref[ExportedMemory] = weakref.ref(ExportedMemory(0, None))
MOST_NOTED = 256


class MappedBlock(NamedTuple):
    """A block imported into CUDA: a weak reference to it, the memory object, and its CUDA
    addresses."""

    block: Finalizer[Any]
    memory: Any
    start: int
    size_bytes: int


class Stream:
    """A stream with access to shared memory.

    - timeline, value: the timeline that it signals, and the last value of that.
    - holders: weak references to the memory exported to it.
    """

    def __init__(self, number: int, cell: Any, timeline: Any) -> None:
        self.number, self.cell, self.timeline = number, cell, timeline
        self.value = 0
        self.holders: list[weakref.ref[ExportedMemory]] = []

    def living(self) -> list[weakref.ref[ExportedMemory]]:
        """Return the living holders, and one dead reference if any holder died."""
        found = [held for held in self.holders if held() is not None]
        return found if len(found) == len(self.holders) else [*found, GONE]


class Link:
    """Memory and timelines shared by a Vulkan device and the same device in CUDA."""

    def __init__(self, device: Device, kind: int, cuda: CudaDriver) -> None:
        self._device, self._kind, self.cuda = device, kind, cuda
        self._timeline = cuda.import_timeline(kind, device.publish())
        self._mapped: dict[int, MappedBlock] = {}
        self._streams: dict[int, Stream] = {}
        self._live: list[Stream] = []
        self._awaited = 0
        self.arrays: Any = None  # CUDA arrays used by kernels (`arrays.CudaArrays`)
        self._is_closed = False
        device.peer = self

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self._device._lock
        with restoring(lock), lock:
            yield

    # --- memory ------------------------------------------------------------------------------

    def map(self, buffer: Buffer) -> int:
        """Return the CUDA address of a buffer's memory, whose block is mapped at first use. Raises
        DeviceError."""
        block, offset = buffer.place()
        with self._locked():
            known = self._mapped.get(id(block))
            if known is None or known.block() is not block:
                known = self._map_block(block)
            return known.start + offset

    def _map_block(self, block: Any) -> MappedBlock:
        payload = self._device.export(block)
        memory = self.cuda.import_memory(payload)
        finalizer = Finalizer(block, self._device.finalizers.append)
        finalizer.act = partial(self._unmap, id(block), finalizer)
        try:
            start = self.cuda.map(memory, block.size_bytes)
        except DeviceError:
            self.cuda.destroy_memory(memory)
            raise
        made = self._mapped[id(block)] = MappedBlock(finalizer, memory, start, block.size_bytes)
        return made

    def _unmap(self, key: int, finalizer: Finalizer[Any]) -> None:
        known = self._mapped.get(key)
        if known is not None and known.block is finalizer and not self._is_closed:
            self._mapped.pop(key)
            self._drop(known)

    def _drop(self, mapped: MappedBlock) -> None:
        self.cuda.unmap(mapped.start)
        self.cuda.destroy_memory(mapped.memory)

    def find_own(self, address: int, size_bytes: int) -> tuple[Any, int] | None:
        """Return (block, offset) of the mapped vkchi memory at CUDA addresses; None for other
        memory."""
        for mapped in list(self._mapped.values()):
            offset = address - mapped.start
            block = mapped.block()
            if block is not None and 0 <= offset <= mapped.size_bytes - size_bytes:
                return block, offset
        return None

    # --- synchronization -----------------------------------------------------------------------

    def export(self, buffer: Buffer, number: int | None) -> ExportedMemory:
        """Export a buffer's memory to the stream `number`, or without synchronization if that is
        None.

        The stream waits for earlier launches, and later launches wait for the stream while the
        result is alive. Raises DeviceError.
        """
        return self.hold(self.map(buffer), buffer.pointer, number)

    def hold(self, address: int, memory: Any, number: int | None) -> ExportedMemory:
        """Same as `export` for memory that CUDA can already access, such as imported CUDA memory.
        `address` is CUDA's; the result keeps `memory` alive."""
        held = ExportedMemory(address, memory)
        if number is not None:
            with self._locked():
                stream = self.stream(number)
                if len(stream.holders) >= MOST_NOTED:
                    stream.holders = stream.living()
                stream.holders.append(weakref.ref(held))
                if stream not in self._live:
                    self._live.append(stream)
                self.cuda.wait(self._timeline, self._device.submit(), number)
        return held

    def stream(self, number: int) -> Stream:
        with self._locked():
            known = self._streams.get(number)
            if known is None:
                cell, handle = self._device.make_timeline()
                timeline = self.cuda.import_timeline(self._kind, handle)
                known = self._streams[number] = Stream(number, cell, timeline)
            return known

    def lend(self, stream: Stream) -> None:
        """Make later launches wait for the stream's work so far. The stream first waits for its
        previous signal: an earlier stream with the same number may not have executed it yet."""
        with self._locked():
            if stream.value:
                self.cuda.wait(stream.timeline, stream.value, stream.number)
            stream.value += 1
            self.cuda.signal(stream.timeline, stream.value, stream.number)
            self._device.wait_for_others(stream.cell, stream.value)

    def take_back(self, stream: Stream) -> None:
        """Submit the recorded commands, and make later work of the stream wait for the launches so
        far."""
        self.cuda.wait(self._timeline, self._device.submit(), stream.number)

    def signal(self) -> bool:
        live = self._live
        for stream in live:
            self.lend(stream)
            stream.holders = [held for held in stream.holders if held() is not None]
        if not all(stream.holders for stream in live):  # their work is already waited for
            self._live = [stream for stream in live if stream.holders]
        return bool(live)

    def wait_on(self, number: int) -> None:
        if number > self._awaited:
            self._awaited = number
            for stream in self._live:
                self.cuda.wait(self._timeline, number, stream.number)

    def close(self) -> None:
        """Release all CUDA objects, after the work of all streams.

        Memory that is still held outside stays mapped until the process ends. Failing CUDA calls
        are ignored: after a fault on the GPU, or at CUDA's own shutdown, all calls fail.
        """
        if self._is_closed:
            return
        self._is_closed, self.arrays = True, None
        held = {ref() for stream in self._live for ref in stream.holders} - {None}
        endings: list[Callable[[], None]] = [self.cuda.synchronize]
        for mapped in self._mapped.values():
            if not any(0 <= h.address - mapped.start < mapped.size_bytes for h in held if h):
                endings.append(partial(self._drop, mapped))
        self._mapped.clear()
        timelines = [*(stream.timeline for stream in self._streams.values()), self._timeline]
        endings += [partial(self.cuda.destroy_timeline, timeline) for timeline in timelines]
        if not held:
            endings.append(self.cuda.close)
        for end in endings:
            with suppress(DeviceError):
                end()


class LinkFailure(NamedTuple):
    """Reason why a runtime's device has no link."""

    reason: str


def find_link(runtime: Runtime) -> Link | LinkFailure:
    """Return the link of a runtime's device to CUDA, made at first use, or the reason why there is
    none. Either is memoized."""
    with restoring(runtime.lock), runtime.lock:
        found: Link | LinkFailure | None = runtime.cuda
        if found is None:
            found = runtime.cuda = _open(runtime.device)
        return found


def _open(device: Device) -> Link | LinkFailure:
    exporter = device.heap.exporter
    if device.unified or exporter is None:
        return LinkFailure(NOT_SHARED.format(name=device.info.name))
    try:
        return Link(device, exporter.kind, open_driver(device.info.uuid))
    except DeviceError as error:
        return LinkFailure(f"{device.info.name} shares no memory with CUDA: {error}")
