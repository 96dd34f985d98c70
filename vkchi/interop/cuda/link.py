"""One Vulkan device and the CUDA device that it is as well: shared memory, and the order of both.

Owns: which of the device's memory CUDA has mapped, the timelines, which streams are at work in
shared memory. Must not know: torch, kernels, how CUDA is called.

A link is the device's `peer`. While somebody holds memory that was exported to a stream, what
Vulkan is given next begins after what that stream was given before (`give`: the stream signals, the
submission waits), and what the stream is given next after that (`take`: the submission signals, the
stream waits). Nobody waits on the host. A stream sets a timeline of its own, for values of one must
rise, and two streams come to theirs in any order.

Memory is exported by whole blocks, dedicated to one buffer, and mapped once; an array is a part of
one. No queue family gives it away or takes it back: the memory is the same device's, as in NVIDIA's
own samples. What is freed waits for what streams were given: it is reused after the next `give`.

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
from vkchi.interrupts.locks import restoring
from vkchi.interrupts.weak import Finalizer
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.buffer import Buffer
    from vkchi.device import Device
    from vkchi.runtime import Runtime

NOT_SHARED = (
    "{name} shares no memory with CUDA: that takes an NVIDIA card, its Vulkan driver, and the "
    "Python package cuda-bindings (pip install 'vkchi[cuda]')"
)


class Held:
    """Memory that was exported: kept until nobody refers to this any more. address: CUDA's."""

    __slots__ = ("__weakref__", "address", "memory")

    def __init__(self, address: int, memory: Any) -> None:
        self.address, self.memory = address, memory


GONE: weakref.ref[Held] = weakref.ref(Held(0, None))
MOST_NOTED = 256


class Mapped(NamedTuple):
    """A block as CUDA has it: the memory object, and its addresses."""

    block: Finalizer[Any]
    memory: Any
    start: int
    size_bytes: int


class Stream:
    """A stream that works in shared memory: the timeline that it sets, how far it was told to; and
    who holds memory that was exported to it."""

    def __init__(self, number: int, cell: Any, timeline: Any) -> None:
        self.number, self.cell, self.timeline = number, cell, timeline
        self.value = 0
        self.holders: list[weakref.ref[Held]] = []

    def living(self) -> list[weakref.ref[Held]]:
        """Those who hold something still; and one who does not, that what it had is waited for."""
        found = [held for held in self.holders if held() is not None]
        return found if len(found) == len(self.holders) else [*found, GONE]


class Link:
    """What both devices share."""

    def __init__(self, device: Device, kind: int, cuda: CudaDriver) -> None:
        self._device, self._kind, self.cuda = device, kind, cuda
        self._timeline = cuda.import_timeline(kind, device.publish())
        self._mapped: dict[int, Mapped] = {}
        self._streams: dict[int, Stream] = {}
        self._live: list[Stream] = []
        self._awaited = 0
        self.arrays: Any = None  # those of CUDA's that kernels were given (`arrays.CudaArrays`)
        self._is_closed = False
        device.peer = self

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Under the lock of the device, which calls as its peer."""
        lock = self._device._lock
        with restoring(lock), lock:
            yield

    # --- memory ------------------------------------------------------------------------------

    def map(self, buffer: Buffer) -> int:
        """CUDA's address of a buffer's memory."""
        block, offset = buffer.place()
        with self._locked():
            known = self._mapped.get(id(block))
            if known is None or known.block() is not block:
                known = self._map_block(block)
            return known.start + offset

    def _map_block(self, block: Any) -> Mapped:
        payload = self._device.export(block)
        memory = self.cuda.import_memory(payload)
        finalizer = Finalizer(block, self._device.finalizers.append)
        finalizer.act = partial(self._unmap, id(block), finalizer)
        try:
            start = self.cuda.map(memory, block.size_bytes)
        except DeviceError:
            self.cuda.destroy_memory(memory)
            raise
        made = self._mapped[id(block)] = Mapped(finalizer, memory, start, block.size_bytes)
        return made

    def _unmap(self, key: int, finalizer: Finalizer[Any]) -> None:
        """Before Vulkan frees a block: CUDA must not have it any more."""
        known = self._mapped.get(key)
        if known is not None and known.block is finalizer and not self._is_closed:
            self._mapped.pop(key)
            self._drop(known)

    def _drop(self, mapped: Mapped) -> None:
        self.cuda.unmap(mapped.start)
        self.cuda.destroy_memory(mapped.memory)

    def find_own(self, address: int, size_bytes: int) -> tuple[Any, int] | None:
        """The block of ours that CUDA's addresses lie in, and the offset there."""
        for mapped in list(self._mapped.values()):
            offset = address - mapped.start
            block = mapped.block()
            if block is not None and 0 <= offset <= mapped.size_bytes - size_bytes:
                return block, offset
        return None

    # --- order ---------------------------------------------------------------------------------

    def export(self, buffer: Buffer, number: int | None) -> Held:
        """Give a buffer's memory to a stream (None: to nobody who keeps an order): it goes on when
        what was launched is done, and what is launched from now on waits for it."""
        return self.hold(self.map(buffer), buffer.pointer, number)

    def hold(self, address: int, memory: Any, number: int | None) -> Held:
        """The same for memory that both see already: of CUDA's, which Vulkan has."""
        held = Held(address, memory)
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
        """What is known of a stream."""
        with self._locked():
            known = self._streams.get(number)
            if known is None:
                cell, handle = self._device.make_timeline()
                timeline = self.cuda.import_timeline(self._kind, handle)
                known = self._streams[number] = Stream(number, cell, timeline)
            return known

    def lend(self, stream: Stream) -> None:
        """Have what is launched from now on begin after what the stream was given so far. It waits
        for what it was last told to set: one of that number before it may not have come there."""
        with self._locked():
            if stream.value:
                self.cuda.wait(stream.timeline, stream.value, stream.number)
            stream.value += 1
            self.cuda.signal(stream.timeline, stream.value, stream.number)
            self._device.wait_for_others(stream.cell, stream.value)

    def take_back(self, stream: Stream) -> None:
        """Have what the stream is given from now on begin after what was launched so far."""
        self.cuda.wait(self._timeline, self._device.submit(), stream.number)

    def signal(self) -> bool:
        """For the device: see `Peer`."""
        live = self._live
        for stream in live:
            self.lend(stream)
            stream.holders = [held for held in stream.holders if held() is not None]
        if not all(stream.holders for stream in live):  # what they were given is waited for now
            self._live = [stream for stream in live if stream.holders]
        return bool(live)

    def wait_on(self, number: int) -> None:
        """For the device: see `Peer`."""
        if number > self._awaited:
            self._awaited = number
            for stream in self._live:
                self.cuda.wait(self._timeline, number, stream.number)

    def close(self) -> None:
        """Give up all of CUDA's, after what streams were given. Memory that somebody outside still
        holds stays mapped until the process ends: CUDA keeps what it has imported. What CUDA
        refuses, as it does all after a fault on the card or at its own end, is left."""
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


class Unlinked(NamedTuple):
    """Why a runtime's device has no link."""

    reason: str


def find_link(runtime: Runtime) -> Link | Unlinked:
    """The link of a runtime's device to CUDA, made when first asked for; or why there is none."""
    with restoring(runtime.lock), runtime.lock:
        found: Link | Unlinked | None = runtime.cuda
        if found is None:
            found = runtime.cuda = _open(runtime.device)
        return found


def _open(device: Device) -> Link | Unlinked:
    exporter = device.heap.exporter
    if device.unified or exporter is None:
        return Unlinked(NOT_SHARED.format(name=device.info.name))
    try:
        return Link(device, exporter.kind, open_driver(device.info.uuid))
    except DeviceError as error:
        return Unlinked(f"{device.info.name} shares no memory with CUDA: {error}")
