"""Command recorder: records, orders, submits and waits for all commands of a device.

It has the command buffer that is being recorded, hazards, batches, the lock and profiling.
`vkchi.device.Device` is a CommandRecorder with memory.

Each command has sets of keys of the buffers that it reads and writes. A barrier is recorded before
a command with a hazard: it accesses a buffer written since the last barrier, or writes one read
since. These sets outlive submissions, because submission order alone makes no write visible.

An exception can be raised at any bytecode (docs/design.md, part 6, Interrupts). Therefore state
that is set before a command is recorded is conservative (hazards, `busy`). Ownership of commands
moves in single steps: from `_commands` to the queue's `outgoing`. A leftover `outgoing` is sent
before new commands are begun.

    recorder.record(pipeline, args, (16, 1, 1), reads=frozenset({3}), writes=frozenset({4}))
    recorder.flush()
    recorder.wait()
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Condition, RLock, get_ident
from time import monotonic
from typing import Any, Protocol

from vkchi.compile_state import ArrayGuard, start_progress_line
from vkchi.errors import DeviceError
from vkchi.interrupts.contexts import release_wholly, restoring
from vkchi.vk.logical import Logical
from vkchi.vk.memory.external import find_exporter, make_timeline
from vkchi.vk.memory.ring import Ring
from vkchi.vk.pipelines import BufferFills, Pipeline, Runnable
from vkchi.vk.queue import SLICE_NS, Outgoing, Queue
from vkchi.vk.raw import DeviceLost
from vkchi.vk.sequence import COMPUTE_POINT, COMPUTE_STAGE, Command, CommandSequence
from vkchi.vk.timing import DispatchTiming, Measurement, Timer

FIRST_BATCH, LARGEST_BATCH = 8, 64  # commands per submission; few if the device is idle
LONGEST_LEAVE_S = 10.0  # limit for other threads to leave their waits
MOST_IN_FLIGHT = 32  # submissions the host may be ahead of the device
MOST_TRACKED = 1024  # buffer keys tracked between barriers
ARGUMENT_CHUNK_BYTES = 1 << 16
TIMED_DISPATCHES = 256
MOST_REWRITTEN_BYTES = 1 << 16  # per vkCmdUpdateBuffer


class Peer(Protocol):
    """Another user of the device's memory with an order of its own, such as a CUDA stream."""

    def signal(self) -> bool:
        """Make later submissions wait for the peer's work so far.

        Returns True if the peer is active: it uses the device's memory.
        """

    def wait_on(self, number: int) -> None:
        """Make the peer wait for submission `number`."""

    def close(self) -> None: ...


class Derived(Protocol):
    """Buffer contents that are computed from another buffer, such as an active list.

    `commands` compute the contents of the buffer `key` from those of the buffer `source`. They read
    no derived buffer. `next_commands` do the same, or nothing where the contents are still valid.
    `save` calls `mark_stale`.
    """

    key: int
    source: int
    commands: list[Command]

    @property
    def next_commands(self) -> list[Command]: ...

    def save(self) -> None: ...


class SnapshotTaker(Protocol):
    """Object that takes a snapshot of a buffer just before the buffer is overwritten."""

    def save(self) -> None:
        """Copy the buffer. A second call has no effect."""


class CommandRecorder:
    """Recorder of commands for one queue.

    `busy`: commands are recorded, or may still be running. `peer`: while its `signal` returns True,
    each command is submitted immediately. It runs after the peer's earlier work and before the
    peer's later work, and the host does not wait.

    `guards` are the reads to copy before a buffer is written, by the buffer's key.

    `stale` are the keys of derived buffers whose source was written since they were computed. They
    are computed again before a command that reads them.
    """

    def __init__(self, logical: Logical) -> None:
        self.busy = False
        self.loaded = ""  # name of a shader whose first run may still compile
        self._lock = RLock()
        self._nobody_waits = Condition(self._lock)
        self._waiting: set[int] = set()  # ids of waiting threads
        self._refusal = ""
        self._logical, self.name = logical, logical.physical.name
        self._queue = Queue(logical)
        self._ring = Ring(logical, self._queue, ARGUMENT_CHUNK_BYTES)
        self._commands: Any = None
        self._bound: Pipeline | None = None
        self._read: set[int] = set()
        self._written: set[int] = set()
        self._batch = self._left = FIRST_BATCH
        self._timing: Measurement | None = None
        self.peer: Peer | None = None
        self.python_writes: tuple[Any, int] = (None, 0)  # (`position` after the last, run length)
        self.guards: dict[int, list[weakref.ref[SnapshotTaker]]] = {}
        self.stale: set[int] = set()
        self._derived: dict[int, weakref.ref[Derived]] = {}  # by key
        calls, ffi = logical.calls, logical.vk.ffi
        self._dispatch_indirect = calls.vkCmdDispatchIndirect
        self._bind, self._push = calls.vkCmdBindPipeline, calls.vkCmdPushConstants
        self._dispatch, self._barrier = calls.vkCmdDispatch, calls.vkCmdPipelineBarrier2
        self._execute, self._fill = calls.vkCmdExecuteCommands, calls.vkCmdFillBuffer
        self._move = ffi.memmove
        self._address = ffi.new("uint64_t *")
        self._make_barriers()

    def _make_barriers(self) -> None:
        const = self._logical.vk.const
        stages = const.VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT
        stages |= const.VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT
        any_access = const.VK_ACCESS_2_MEMORY_WRITE_BIT | const.VK_ACCESS_2_MEMORY_READ_BIT
        self._order_info = self._make_barrier(stages, stages, any_access)
        host, read = const.VK_PIPELINE_STAGE_2_HOST_BIT, const.VK_ACCESS_2_HOST_READ_BIT
        self._to_host_info = self._make_barrier(stages, host, read)
        stages |= const.VK_PIPELINE_STAGE_2_DRAW_INDIRECT_BIT
        self._count_info = self._make_barrier(stages, stages, any_access)

    def _make_barrier(self, before: int, after: int, access: int) -> Any:
        vk = self._logical.vk
        memory = vk.new(
            "VkMemoryBarrier2", srcStageMask=before, dstStageMask=after,
            srcAccessMask=vk.const.VK_ACCESS_2_MEMORY_WRITE_BIT, dstAccessMask=access,
        )  # fmt: skip
        return vk.new("VkDependencyInfo", memoryBarrierCount=1, pMemoryBarriers=memory)

    # --- copy-on-write -------------------------------------------------------------------------

    def guard(self, key: int, saver: weakref.ref[Any]) -> None:
        """Call the `save` of an object before the next write to the buffer with this key."""
        with restoring(self._lock), self._lock:
            self.guards[key] = [*self.guards.get(key, ()), saver]

    def unguard(self, key: int) -> None:
        """Remove the dead objects that guard a buffer."""
        with restoring(self._lock), self._lock:
            left = [saver for saver in self.guards.get(key, ()) if saver() is not None]
            if left:
                self.guards[key] = left
            else:
                self.guards.pop(key, None)

    def announce(self, keys: Iterable[int]) -> None:
        """Call `save` of all live guards of the buffers `keys`, and remove these guards.

        Call it before the buffers are written. Raises DeviceError if there is no memory for the
        copies.
        """
        if self.guards.keys().isdisjoint(keys):
            return
        with restoring(self._lock), self._lock:
            for key in sorted(self.guards.keys() & set(keys)):
                savers = [saver() for saver in self.guards[key]]
                for saver in savers:
                    if saver is not None:
                        saver.save()
                self.guards.pop(key, None)

    @contextmanager
    def holding_writers(self) -> Iterator[None]:
        """Context in which `announce` for guarded buffers blocks in other threads."""
        with restoring(self._lock), self._lock:
            yield

    # --- derived buffers -------------------------------------------------------------------

    def add_derived(self, key: int, derived: weakref.ref[Any]) -> None:
        """Compute a derived buffer before commands that read it, as long as the object lives."""
        with restoring(self._lock), self._lock:
            self._derived[key] = derived
            self.stale.add(key)

    def drop_derived(self, key: int, source: int) -> None:
        """Forget a derived buffer, after its object was freed."""
        with restoring(self._lock), self._lock:
            self.stale.discard(key)
            self._derived.pop(key, None)
            self.unguard(source)

    def mark_stale(self, key: int) -> None:
        """Note that the source of a derived buffer is about to be written, or was just written."""
        with restoring(self._lock), self._lock:
            self.stale.add(key)

    def unmark_stale(self, key: int) -> None:
        """Note that a derived buffer is valid, since its source did not change."""
        with restoring(self._lock), self._lock:
            derived = self._derived.get(key)
            found = derived() if derived is not None else None
            if found is not None and derived is not None:
                self.guard(found.source, derived)
                self.stale.discard(key)

    def refresh(self, keys: Iterable[int]) -> None:
        """Record the computation of the stale buffers among `keys`."""
        if self.stale.isdisjoint(keys):
            return
        with restoring(self._lock), self._lock:
            for key in sorted(self.stale.intersection(keys)):
                derived = self._derived.get(key)
                found = derived() if derived is not None else None
                if found is not None and derived is not None:
                    self.guard(found.source, derived)
                    self._order_counts()
                    for c in found.next_commands:
                        self.record(c.pipeline, c.args, c.groups, c.reads, c.writes)
                    self._order_counts()
                self.stale.discard(key)

    def _order_counts(self) -> None:
        """Record a barrier for all commands, indirect dispatches included."""
        commands = self._commands or self._begin()
        self._barrier(commands, self._count_info)
        self._read.clear()
        self._written.clear()

    def _with_derived(self, commands: list[Command]) -> list[Command]:
        """Return commands of a sequence, with the computation of derived buffers whose source an
        earlier one of them writes."""
        known = {key: found for key, x in self._derived.items() if (found := x()) is not None}
        read = frozenset().union(*(c.reads for c in commands))
        known = {key: found for key, found in known.items() if key in read}
        if not known:
            return commands
        made: list[Command] = []
        stale: set[int] = set()
        for c in commands:
            for key in sorted(stale.intersection(c.reads)):
                made += known[key].commands
                stale.discard(key)
            made.append(c)
            stale.update([key for key, found in known.items() if found.source in c.writes])
        return made

    # --- recording -------------------------------------------------------------------------

    def record(
        self, pipeline: Runnable, args: Any, groups: tuple[int, int, int],
        reads: frozenset[int], writes: frozenset[int],
    ) -> None:  # fmt: skip
        """Record a dispatch of `groups` workgroups along x, y and z, or fills; submit if the batch
        is full.

        args: bytes, or a cffi pointer, of the shader's `size_bytes`; copied before the return.
        reads, writes: keys of the buffers that the shader accesses. Copy-on-write hooks of the
        written ones run first. Raises DeviceError if the device is closed or lost.
        """
        lock = self._lock
        was_held = lock._is_owned()  # type: ignore[attr-defined]
        try:  # `restoring`, inlined for speed
            with lock:
                if self.stale:
                    self.refresh(reads)
                if self.guards:
                    self.announce(writes)
                if self._timing is not None:
                    return self._record_timed(pipeline, args, groups, reads, writes)
                commands = self._commands or self._begin()
                read, written = self._read, self._written
                is_apart = written.isdisjoint
                if not (is_apart(reads) and is_apart(writes) and read.isdisjoint(writes)):
                    self._order(commands)
                read |= reads
                written |= writes
                if pipeline is not self._bound:
                    if isinstance(pipeline, BufferFills):
                        pipeline.record(self._fill, commands)
                        return self.count_command()
                    self._bound = None
                    self._bind(commands, COMPUTE_POINT, pipeline.handle)
                    self._bound = pipeline
                if pipeline.indirect:
                    args = self._place(args, pipeline.args_bytes)
                if size := pipeline.push_bytes:
                    self._push(commands, pipeline.layout, COMPUTE_STAGE, 0, size, args)
                if pipeline.counts is None:
                    self._dispatch(commands, *groups)
                else:
                    self._dispatch_indirect(commands, *pipeline.counts)
                self._left -= 1
                if self._left <= 0:
                    self.flush()
        except BaseException:
            if not was_held:
                release_wholly(lock)
            raise

    def _record_timed(self, pipeline: Runnable, *rest: Any) -> None:
        timing, self._timing = self._timing, None
        if timing is None or timing.timer is None or timing.is_left:
            return self.record(pipeline, *rest)
        timer = timing.timer
        try:
            if timer.is_full:
                self.wait()
                timing.collect()
            commands = self._commands or self._begin()
            self._order(commands)
            self._left += 1  # no flush before the second timestamp
            plain = pipeline.plain or pipeline
            timer.start(commands, pipeline.name, pipeline.work, is_first=not plain.has_run)
            plain.has_run = True
            self.record(pipeline, *rest)
            timer.stop(commands)
            self.count_command(1)
        finally:
            self._timing = timing

    def sequence(
        self, commands: list[Command], like: CommandSequence | None = None
    ) -> CommandSequence:
        """Return a sequence of dispatches and fills, to be run by `execute`.

        like: a sequence whose commands differ only in their arguments. Raises DeviceError if the
        device is closed or lost, or out of memory.
        """
        with restoring(self._lock), self._lock:
            self.require_open()
            if self._derived:
                commands = self._with_derived(commands)
            if like is None:
                is_counted = any([c.indirect or c.pipeline.counts for c in commands])
            else:
                is_counted = like.is_counted
            order = self._count_info if is_counted else self._order_info
            return CommandSequence(self._logical, commands, order, like, is_counted=is_counted)

    def execute(self, sequence: CommandSequence) -> None:
        """Record the execution of a sequence; submit if the batch is full. Its dispatches are not
        timed."""
        with restoring(self._lock), self._lock:
            if self.stale:
                self.refresh(sequence.reads)
            if sequence.is_counted:
                self._order_counts()
            commands = self.begin_command(sequence.reads, sequence.writes)
            self._bound = None  # a sequence binds other pipelines
            self._execute(commands, 1, sequence.cell)
            self.count_command(sequence.count)

    def rewrite(self, buffer: Any, offset: int, key: int, data: bytes | bytearray) -> None:
        """Record a write of `data` at `offset` of a VkBuffer; size and offset are multiples of 4.

        `key` is the buffer's key. The bytes are copied before the return, and are visible to
        commands recorded later.
        """
        with restoring(self._lock), self._lock:
            commands = self.begin_command(frozenset(), frozenset((key,)))
            memory = self._logical.vk.ffi.from_buffer(data)
            update = self._logical.calls.vkCmdUpdateBuffer
            for at in range(0, len(data), MOST_REWRITTEN_BYTES):
                size = min(MOST_REWRITTEN_BYTES, len(data) - at)
                update(commands, buffer, offset + at, size, memory + at)
            self.count_command()

    def begin_command(self, reads: frozenset[int], writes: frozenset[int]) -> Any:
        """Return the command buffer, after a barrier if necessary, for a command other than a
        dispatch.

        Copy-on-write hooks of the buffers in `writes` run first. Call `count_command` after the
        command.
        """
        if self.guards:
            self.announce(writes)
        commands = self._commands or self._begin()
        if not (self._written.isdisjoint(reads | writes) and self._read.isdisjoint(writes)):
            self._order(commands)
        self._read |= reads
        self._written |= writes
        return commands

    def count_command(self, count: int = 1) -> None:
        self._left -= count
        if self._left <= 0:
            self.flush()

    def _begin(self) -> Any:
        self.require_open()
        self.busy = True
        self._bound = None
        self._left = self._batch
        if self._queue.outgoing is not None:
            self._send()
        if self.peer is not None and self.peer.signal():
            self._left = 1
        self._commands = self._queue.begin()
        return self._commands

    def _order(self, commands: Any) -> None:
        self._barrier(commands, self._order_info)
        self._read.clear()
        self._written.clear()

    def _place(self, args: Any, size_bytes: int) -> Any:
        piece = self._ring.allocate(size_bytes, self._queue.submitted + 1)
        self._move(piece.pointer, args, size_bytes)
        self._address[0] = piece.address
        return self._address

    # --- submitting ------------------------------------------------------------------------

    def flush(self) -> None:
        """Submit the recorded commands, and free memory that the device has finished with.

        Waits only if the device is more than MOST_IN_FLIGHT submissions behind. Raises DeviceError
        if the device is closed or lost.
        """
        with restoring(self._lock), self._lock:
            commands, queue = self._commands, self._queue
            if commands is None and queue.outgoing is None:
                return self.require_open()
            if commands is not None:
                if len(self._read) + len(self._written) > MOST_TRACKED:
                    self._order(commands)
                self._barrier(commands, self._to_host_info)
                queue.outgoing = Outgoing(queue.submitted + 1, commands)
                self._commands = None
            self._send()
            if self.peer is not None:
                self.peer.wait_on(self._queue.submitted)
            self._batch = min(2 * self._batch, LARGEST_BATCH)
            self.sweep()

    def _send(self) -> None:
        try:
            number = self._queue.send()
            self._queue.wait(number - MOST_IN_FLIGHT)
        except DeviceLost as error:
            self._refusal = str(error)
            raise

    def submit(self) -> int:
        """Submit the recorded commands; return the number of the last submission."""
        with restoring(self._lock), self._lock:
            self.flush()
            return self._queue.submitted

    def publish(self) -> int:
        """Return a new handle of a timeline that reaches the number of each submission when that is
        done. Submits the recorded commands. Raises DeviceError if the driver cannot export one."""
        with restoring(self._lock), self._lock:
            self.flush()
            handle = self._queue.publish(find_exporter(self._logical))
            self._begin()  # a submission that also covers the earlier ones
            self.flush()
            return handle

    def make_timeline(self, *, exported: bool = True) -> tuple[Any, int]:
        """Return (cell, handle) of a new timeline that another API signals. The handle is -1 if not
        `exported`, or if the driver exports no memory."""
        exporter = find_exporter(self._logical) if exported else None
        with restoring(self._lock), self._lock:
            self.require_open()
            cell = make_timeline(self._logical, kind=exporter.kind if exporter else 0)
            return cell, exporter.export_semaphore(cell[0]) if exporter else -1

    def wait_for_others(self, cell: Any, value: int) -> None:
        """Submit the recorded commands, and delay later ones until a timeline reaches `value`. The
        host does not wait."""
        with restoring(self._lock), self._lock:
            self.flush()
            self._queue.wait_for_others(cell, value)

    def wait(self) -> None:
        """Submit the recorded commands and wait until all are done. Raises DeviceError if the
        device is lost or closed."""
        with restoring(self._lock), self._lock:
            self.require_open()
            if not self.busy:
                return
            self.flush()
            number = self._queue.submitted
            self._waiting.add(get_ident())
        loaded, self.loaded = self.loaded, ""  # some drivers compile at a shader's first run
        telling = start_progress_line(f"first run of {loaded}") if loaded else None
        try:
            self._queue.wait(number)
        except DeviceLost as error:
            self._refusal = str(error)
            raise
        except KeyboardInterrupt as error:
            error.args = error.args or (f"kernels that were launched still run on {self.name}",)
            raise
        finally:
            with restoring(self._lock), self._lock:
                self._waiting.discard(get_ident())
                self._nobody_waits.notify_all()
            if telling is not None:
                telling.end()
        with restoring(self._lock), self._lock:
            self.require_open()  # another thread may have closed it in the meantime
            if self.recorded_number == number:
                self.busy = bool(ArrayGuard.threads)
                self._batch = FIRST_BATCH
            self.sweep()

    def mark_busy(self) -> None:
        """Let the next access to memory from Python take the path that waits."""
        with restoring(self._lock), self._lock:
            self.busy = True

    def is_done_within(self, seconds: float) -> bool:
        """Submit the recorded commands; wait until all are done, or `seconds` and up to 50 ms more.
        True if all are done."""
        self.flush()
        number, end = self._queue.submitted, monotonic() + seconds
        while not self._queue.wait_for(number, SLICE_NS):
            if monotonic() > end:
                return False
        return True

    def drain_waiters(self) -> None:
        """Return when no other thread waits for the device, or after 10 seconds. The device must be
        idle; the caller holds the lock."""
        own = {get_ident()}  # left over from an interrupted wait
        self._nobody_waits.wait_for(lambda: self._waiting <= own, LONGEST_LEAVE_S)

    @property
    def recorded_number(self) -> int:
        """Number of the submission that has the last recorded command."""
        is_ahead = self._commands is not None or self._queue.outgoing is not None
        return self._queue.submitted + is_ahead

    @property
    def position(self) -> tuple[int, int] | None:
        """`recorded_number` and the free commands in the batch; None if that submission is done.
        Raises DeviceError if the device is closed or lost."""
        with restoring(self._lock), self._lock:
            self.require_open()
            number = self.recorded_number
            return None if number <= self._queue.read_completed() else (number, self._left)

    def sweep(self) -> None:
        """Free memory that the device has finished with. No effect without memory, as here."""

    def require_open(self) -> None:
        """Raise DeviceError if the device is closed, lost, or inherited by a forked process."""
        if self._refusal:
            raise DeviceError(self._refusal)

    # --- profiling -------------------------------------------------------------------------

    def timing(self) -> DispatchTiming:
        """Return a context that measures each dispatch recorded in it; each runs alone.

        `dispatches` is complete at its end.

            >>> with device.timing() as t: step()
            >>> t.dispatches
            [('step', 0.0012)]
        """
        return DispatchTiming(self)

    @property
    def can_time(self) -> bool:
        return bool(self._logical.physical.timestamp_bits)

    @property
    def is_timing(self) -> bool:
        return self._timing is not None and not self._timing.is_left

    def start_timing(self, timing: Measurement) -> None:
        """Wait for the device, and start measuring. Raises DeviceError if another measurement is
        active, or if the queue has no timestamps."""
        with restoring(self._lock), self._lock:
            self.wait()
            if self._timing is not None and not self._timing.is_left:
                raise DeviceError("timing() is already measuring")
            timing.timer = Timer(self._logical, TIMED_DISPATCHES)
            self._timing = timing

    def stop_timing(self, timing: Measurement) -> None:
        """Stop measuring, wait and collect the times; no effect if `timing` is not being
        measured."""
        with restoring(self._lock), self._lock:
            if self._timing is timing:
                self._timing = None
                if not self._refusal:
                    self.wait()
                    timing.collect()
