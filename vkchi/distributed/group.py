"""The group of processes: joining it, choosing its devices, agreement, and errors of other ranks.

`torch.distributed` starts the group and carries the messages. Without a launcher, the group has one
rank and torch is not imported. Messages use gloo: it never blocks the device.

Every operation has a number and a digest, equal on all ranks if they issue the same operations in
the same order. It is part of `Group.share`'s messages, and the tag of others. So ranks that
disagree raise an error, or time out, and never mix messages.
"""

from __future__ import annotations

import json
import math
import os
import re
import socket
import struct
import sys
import time
import zlib
from collections.abc import Sequence
from datetime import timedelta
from threading import get_ident
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING, Any

from vkchi import env, platform, runtime
from vkchi.device import usable_devices
from vkchi.errors import ArgumentError, DistributedError, KernelRuntimeError, MissingPackageError
from vkchi.frontend.syntax.source import read_block
from vkchi.hooks import python_scope
from vkchi.interrupts.imports import import_uninterrupted
from vkchi.interrupts.local import is_raised_by_handler, local, suppress
from vkchi.target.devices import SELECTORS
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Post = tuple[int, Any]  # peer, torch tensor
    Works = list[tuple[int, Any]]  # peers, and torch's work objects

HEADER = struct.Struct("<qq64s176s")  # digest, size of the text, operation, beginning of the text
TAGS = 0x7FFF  # bits of tags
GRACE = 2.0  # seconds in which ranks report to each other which operation timed out


class GroupState:
    """The group that `init` joined; None before. `store` is the connection to the launcher's store,
    and `joined` the number of groups that this process has joined by it."""

    group: Group | None = None
    store: Any = None
    joined = 0


class Group:
    """This process's rank among `size`. `process_group` is torch's, None for a group of one.

    `count` is the number of operations so far; `failed` the error that ended the group's use.
    """

    def __init__(self, rank: int, size: int, timeout: float, *, owns_torch: bool = False) -> None:
        self.rank, self.size, self.timeout, self.owns_torch = rank, size, timeout, owns_torch
        self.process_group: Any = None
        self.store: Any = None
        self.thread, self.count, self.failed = get_ident(), 0, ""
        self.in_flight: list[Any] = []  # exchanges that have not been waited for
        self.sources: KernelSources | None = None  # in debug mode

    def begin(self, operation: str, facts: str = "") -> int:
        """Count an operation and return its digest. Raises DistributedError after a failure, and
        KernelRuntimeError in another thread than that of `init`."""
        if GroupState.group is not self:
            raise KernelRuntimeError(f"{operation}: the group of this grid was left by finalize()")
        self.check_usable(operation)
        if self.thread != get_ident():
            raise KernelRuntimeError(
                f"{operation}: call operations on grids in the thread that called "
                "ti.distributed.init(); ranks must issue them in the same order"
            )
        self.count += 1
        return zlib.crc32(f"{self.count} {operation} {facts}".encode())

    def check_usable(self, operation: str) -> None:
        """Raise DistributedError after a failure."""
        if self.failed:
            raise DistributedError(f"{operation}: the group failed before ({self.failed})")

    def fail(self, operation: str) -> None:
        """End the use of the group, and of exchanges that have not been waited for."""
        self.failed = operation
        self.in_flight.clear()

    # --- collective operations -------------------------------------------------------------------

    def share(self, operation: str, value: object = None, facts: str = "") -> list[Any]:
        """The values of all ranks, by rank, through JSON. Raises DistributedError if ranks call
        other operations, or with other `facts`, which are equal on all ranks."""
        digest, text = self.begin(operation, facts), json.dumps(value).encode()
        row = HEADER.pack(digest, len(text), operation.encode(), text[:176])
        rows = [HEADER.unpack(one) for one in self._gather(operation, row)]
        if any(one[0] != digest for one in rows):
            self.fail(operation)
            names = [name.rstrip(b"\0").decode(errors="ignore") for _, _, name, _ in rows]
            raise DistributedError(
                "ranks call different operations, in different order or for different arrays; "
                f"operation {self.count} is on rank "
                + ", ".join(f"{k}: {name}" for k, name in enumerate(names))
            )
        sizes, texts = [size for _, size, _, _ in rows], [part for _, _, _, part in rows]
        if max(sizes) > len(texts[0]):
            texts = self._gather(operation, text.ljust(max(sizes)))
        return [json.loads(text[:size]) for text, size in zip(texts, sizes)]

    def _gather(self, operation: str, row: bytes) -> list[bytes]:
        """The rows of all ranks. Precondition: they have the same size."""
        if self.size == 1:
            return [row]
        torch = sys.modules["torch"]
        mine = torch.frombuffer(bytearray(row), dtype=torch.uint8)
        rows = torch.empty((self.size, len(row)), dtype=torch.uint8)
        with Communication(self, operation):
            self.process_group.allgather([list(rows)], [mine]).wait()
        return [one.numpy().tobytes() for one in rows]

    def agree(self, operation: str, **facts: object) -> None:
        """Compare facts with those of the other ranks. Raises DistributedError on all ranks if any
        differs."""
        first, *others = self.share(operation, {name: repr(value) for name, value in facts.items()})
        for rank, row in enumerate(others, 1):
            for name in {**first, **row}:
                if first.get(name) != row.get(name):
                    ours, theirs = (f"{name}={k[name]}" if name in k else f"no {name}"
                                    for k in (first, row))  # fmt: skip
                    raise DistributedError(
                        f"{operation}: ranks disagree: {ours} on rank 0, {theirs} on rank {rank}"
                    )

    def all_to_all(
        self, operation: str, rows: NDArray[Any], given: Sequence[int], taken: Sequence[int]
    ) -> NDArray[Any]:
        """Send `given[k]` consecutive rows to rank k each; return `taken[k]` rows of each, by rank.

        Precondition: `share` has shown that the ranks agree on these counts.
        """
        if self.size == 1:
            return rows
        torch, found = sys.modules["torch"], np.empty((sum(taken), *rows.shape[1:]), rows.dtype)
        with Communication(self, operation):
            torch.distributed.all_to_all_single(
                torch.from_numpy(found), torch.from_numpy(rows), list(taken), list(given),
                group=self.process_group,
            )  # fmt: skip
        return found

    # --- messages between two ranks --------------------------------------------------------------

    def post(
        self, operation: str, digest: int, received: Sequence[Post], sent: Sequence[Post]
    ) -> Works:
        """Begin to receive, then to send messages of an operation whose facts imply their sizes."""
        tag, group, works = digest & TAGS, self.process_group, []
        with Communication(self, operation) as at:
            for at.peer, tensor in received:
                works.append((at.peer, group.recv([tensor], at.peer, tag)))
            for at.peer, tensor in sent:
                works.append((at.peer, group.send([tensor], at.peer, tag)))
        return works

    def wait(self, operation: str, works: Works) -> None:
        """Wait for messages, and remove them from the list."""
        self.check_usable(operation)
        with Communication(self, operation) as at:
            while works:
                at.peer, work = works[0]
                work.wait()
                del works[0]


class Communication:
    """Context that turns torch's errors into DistributedError, and marks the group as failed, also
    after an interrupt. `peer` is the rank at hand, or None for all."""

    __slots__ = ("group", "operation", "peer")
    peer: int | None

    def __init__(self, group: Group, operation: str) -> None:
        self.group, self.operation, self.peer = group, operation, None

    def __enter__(self) -> Communication:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            return
        if kind is KeyboardInterrupt or is_raised_by_handler(traceback):
            self.group.fail(self.operation)  # other ranks may have finished it
        elif issubclass(kind, RuntimeError) and not issubclass(kind, KernelRuntimeError):
            assert isinstance(error, RuntimeError)
            self.group.fail(self.operation)
            raise DistributedError(self._describe(str(error))) from error

    def _describe(self, text: str) -> str:
        group = self.group
        with suppress(RuntimeError):  # the rank with the store may have ended
            group.store.set(f"late/{group.count}/{group.rank}", self.operation)
        reason = text.strip().partition("\n")[0].partition(". This is")[0].rpartition("] ")[2]
        who = "another rank" if self.peer is None else f"rank {self.peer}"
        if "timed out" in text.lower() or "timeout" in text.lower():
            return (
                f"{self.operation} on rank {group.rank} timed out after {group.timeout:g} s "
                f"waiting for {who}{self._late()}"
            )
        return (
            f"{self.operation} on rank {group.rank} failed: {who} died, timed out or raised an "
            f"error; see its own message ({reason})"
        )

    def _late(self) -> str:
        """The operations in which other ranks wait, for the message of a time-out."""
        group, waiting = self.group, {}
        end, missing = time.monotonic() + GRACE, set(range(group.size))
        try:
            while missing and time.monotonic() < end:
                for rank in missing:
                    if group.store.check([f"late/{group.count}/{rank}"]):
                        waiting[rank] = group.store.get(f"late/{group.count}/{rank}").decode()
                missing -= waiting.keys()
                time.sleep(0.02)
        except local(RuntimeError):  # the rank with the store has ended
            missing -= waiting.keys()
            if not waiting:
                return ""
        if missing:
            late = ", ".join(map(str, sorted(missing)))
            return f"; rank {late} did not reach operation {group.count}"
        if set(waiting.values()) == {self.operation}:
            return "; all ranks wait in it, for different arrays"
        return "; ranks wait in " + ", ".join(f"{k}: {op}" for k, op in sorted(waiting.items()))


class KernelSources:
    """Checksums of the sources of kernels and functions on all ranks, compared in debug mode.

    `new` are those of kernels that were compiled since the last comparison, by name; `known` those
    compared before, by name and rank.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self.new: set[tuple[str, int]] = set()
        self.known: dict[str, dict[int, set[int]]] = {}

    def note(self, kernel: FunctionType) -> None:
        """Record a compiled kernel and the `ti.func`s that it can reach."""
        from vkchi.cache.kernel_survey import KernelSurvey, NoDigestError  # few programs debug

        try:
            texts = dict(KernelSurvey(kernel).texts)
        except NoDigestError:  # captured values are not compared
            texts = {kernel: "".join(read_block(kernel))}
        for fn, text in texts.items():
            name = f"{fn.__module__}.{fn.__qualname__}"
            if "<" in fn.__qualname__:  # other ranks may take another of the same name
                name += f":{fn.__code__.co_firstlineno}"
            self.new.add((name, zlib.crc32(text.encode())))

    def compare(self, operation: str) -> None:
        """Compare the sources that are new on any rank. Raises DistributedError on all ranks if
        they differ."""
        new = sorted(self.new)
        self.new.difference_update(new)
        for rank, rows in enumerate(self.group.share("kernels()", new)):
            for name, checksum in rows:
                self.known.setdefault(name, {}).setdefault(rank, set()).add(checksum)
        for name, by_rank in self.known.items():
            first = min(by_rank)
            for rank, found in by_rank.items():
                if not (found <= by_rank[first] or found >= by_rank[first]):
                    raise DistributedError(
                        f"{operation}: {name}() has other source code on rank {rank} than on rank "
                        f"{first}: start all ranks from the same files"
                    )


def current_group() -> Group:
    """The group. Raises KernelRuntimeError before `init`."""
    if GroupState.group is None:
        raise KernelRuntimeError("the group is not formed: call ti.distributed.init() first")
    return GroupState.group


@python_scope
def rank() -> int:
    """This process's number in the group, from 0 on."""
    return current_group().rank


@python_scope
def size() -> int:
    """The number of processes in the group."""
    return current_group().size


@python_scope
def barrier() -> None:
    """Wait until all ranks have called this."""
    current_group().share("barrier()")


@python_scope
def finalize() -> None:
    """Leave the group, without waiting for others. Idempotent; the device stays open."""
    group, GroupState.group = GroupState.group, None
    if group is not None and group.owns_torch:
        distributed = sys.modules["torch.distributed"]
        if distributed.is_initialized():
            distributed.destroy_process_group()


@python_scope
def init(
    *, backend: str | None = None, timeout: float = 60.0, device: str | int | None = None,
    **options: Any,
) -> None:  # fmt: skip
    """Join the group of processes, and open a device (`ti.init`).

    The group is that of torch's `init_process_group`, if the program has called it; otherwise the
    one that `torchrun` or Slurm describes by environment variables. Without either, it is a group
    of one, which needs no torch. A later call opens a new device, and keeps the group.

    Args:
        backend: that of torch's process group, if this makes it; for libraries such as
            DistributedDataParallel. Messages of grids use gloo.
        timeout: seconds after which an operation raises, if another rank does not take part.
        device: as in `ti.init`. Without it, ranks of one machine share its GPUs evenly, or its
            software device.
        **options: those of `ti.init`. Each rank gets a seed of its own from `random_seed`.

    Raises:
        DistributedError: if the group does not form, or ranks have other versions or options.
        ArgumentError: for an invalid time-out or environment variable.
        MissingPackageError: for a group of several processes without torch.
    """
    if not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise ArgumentError(f"ti.distributed.init: timeout is seconds above 0, not {timeout!r}")
    group = GroupState.group
    if group is None:
        group = GroupState.group = join(backend, float(timeout))
    hosts = group.share("init()", socket.gethostname())
    local_ranks = [k for k, host in enumerate(hosts) if host == hosts[group.rank]]
    chosen = choose_device(group, local_ranks, device, options)
    shared = {k: v for k, v in options.items() if k not in ("cache_dir", "random_seed")}
    seed = options.get("random_seed") or 0
    group.agree(
        "init()", vkchi=sys.modules["vkchi"].__version__, numpy=np.__version__,
        random_seed=seed, timeout=float(timeout), **dict(sorted(shared.items())),
    )  # fmt: skip
    if group.size > 1:
        options["random_seed"] = (seed + 0x9E3779B1 * group.rank) & 0x7FFFFFFF
    runtime.init(device=chosen, **options)
    opened = runtime.current_runtime()
    group.sources = KernelSources(group) if opened.options.debug and group.size > 1 else None
    opened.on_compiled = None if group.sources is None else group.sources.note


def choose_device(
    group: Group, local_ranks: list[int], device: str | int | None, options: dict[str, Any]
) -> str | int | None:
    """The device of this rank: the given one, or GPU number (local rank) modulo the count of those
    that `arch=` selects.

    Prints a line per machine if ranks share GPUs. Divides the CPU cores among the ranks, for
    lavapipe's threads.
    """
    if len(local_ranks) > 1:
        threads = max(1, platform.count_processors() // len(local_ranks))
        os.environ.setdefault("LP_NUM_THREADS", str(threads))
    if device is not None or env.flag("VKCHI_DEVICE") or group.size == 1:
        return device
    usable, kinds = usable_devices(), [a.kind for a in runtime.wanted_arches(options.get("arch"))]
    selected = ([info for info in usable if SELECTORS[kind](info)] for kind in kinds)
    others = usable if options.get("enable_fallback", True) else []
    gpus = [info for info in next(filter(None, selected), others) if info.kind != "cpu"]
    if not gpus:
        return None
    if len(gpus) < len(local_ranks) and group.rank == local_ranks[0]:
        print(f"ti.distributed: {len(local_ranks)} ranks share {len(gpus)} devices on "
              f"{socket.gethostname()}", file=sys.stderr)  # fmt: skip
    return gpus[local_ranks.index(group.rank) % len(gpus)].index


# --- joining -------------------------------------------------------------------------------------


def join(backend: str | None, timeout: float) -> Group:
    """Join the process group of the program or its launcher. Raises the errors of `init`."""
    place = launcher_place()
    loaded = sys.modules.get("torch.distributed")
    is_made = loaded is not None and loaded.is_available() and loaded.is_initialized()
    if place is None and not is_made:
        return Group(0, 1, timeout)
    try:
        distributed: Any = import_uninterrupted("torch.distributed")
    except ImportError:
        raise MissingPackageError(
            "a group of several processes needs torch: pip install 'vkchi[distributed]'"
        ) from None
    if not distributed.is_available():
        raise MissingPackageError("this build of torch has no torch.distributed: install another")
    limit = timedelta(seconds=timeout)
    if is_made:
        place = distributed.get_rank(), distributed.get_world_size()
        store = distributed.distributed_c10d._get_default_store()
    else:
        assert place is not None
        platform.end_with_parent()
        store = open_store(distributed, *place, timeout)
    group = Group(*place, timeout, owns_torch=not is_made)
    group.store = store
    with Communication(group, "init()"):
        if not is_made:
            distributed.init_process_group(
                backend or "gloo", store=store, rank=group.rank, world_size=group.size,
                timeout=limit,
            )  # fmt: skip
        is_gloo = not is_made and backend in (None, "gloo")
        new = None if is_gloo else distributed.new_group(backend="gloo", timeout=limit)
        group.process_group = distributed.group.WORLD if is_gloo else new
    return group


def launcher_place() -> tuple[int, int] | None:
    """(rank, size) by the environment variables of torchrun or Slurm; None without a launcher.
    Raises ArgumentError for invalid ones."""
    for names in (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")):
        rank, size = (os.environ.get(name, "") for name in names)
        if not (rank and size) or (names[0] != "RANK" and size == "1"):
            continue
        if not (rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
            raise ArgumentError(
                f"ti.distributed.init: {names[0]}={rank} and {names[1]}={size} are no rank and "
                "size of a group"
            )
        return int(rank), int(size)
    return None


def slurm_address() -> tuple[str, str]:
    """Host of rank 0, the first of a Slurm step, and a port by the step's numbers; "" without
    Slurm.

    The list of hosts may be as in "node[07-09,12],login1".
    """
    first = re.match(r"([^,[]+)(?:\[(\d+))?", os.environ.get("SLURM_STEP_NODELIST", ""))
    if first is None:
        return "", ""
    numbers = (os.environ.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    port = 20000 + sum(int(number) for number in numbers if number.isdecimal()) % 10000
    return "".join(filter(None, first.groups())), str(port)


def open_store(distributed: Any, rank: int, size: int, timeout: float) -> Any:
    """Connect to the key-value store of the launcher or of rank 0, and wait for all ranks.

    Keys have a prefix per restart by torchrun: a store that outlives a restart has addresses of
    processes that have ended. Raises DistributedError if ranks are missing.
    """
    address, port = slurm_address()
    address, port = os.environ.get("MASTER_ADDR", address), os.environ.get("MASTER_PORT", port)
    if not address or not port.isdecimal():
        raise DistributedError(
            f"the group of {size} ranks has no address: set MASTER_ADDR and MASTER_PORT to the "
            "host of rank 0 and a free port"
        )
    where = f"{address}:{port}"
    is_host = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    limit = timedelta(seconds=timeout)
    joined: list[int] = []
    try:
        if GroupState.store is None:
            GroupState.store = distributed.TCPStore(
                address, int(port), None, is_host, timeout=limit, wait_for_workers=False
            )
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        GroupState.joined += 1
        prefix = f"vkchi/{restart}/{GroupState.joined}"
        store = distributed.PrefixStore(prefix, GroupState.store)
        store.set(f"joined/{rank}", "1")
        end = time.monotonic() + timeout
        while len(joined) < size and time.monotonic() < end:
            joined = [k for k in range(size) if store.check([f"joined/{k}"])]
            time.sleep(0.0 if len(joined) == size else 0.01)
    except local(RuntimeError) as e:
        reason = str(e).strip().partition("\n")[0]
        raise DistributedError(
            f"rank {rank} cannot reach the group's store at {where} within {timeout:g} s: is rank "
            f"0 running there, and MASTER_ADDR the same on all ranks? ({reason})"
        ) from e
    if len(joined) < size:
        missing = ", ".join(str(k) for k in range(size) if k not in joined)
        raise DistributedError(
            f"the group at {where} did not form within {timeout:g} s: {len(joined)} of {size} "
            f"ranks joined, rank {missing} is missing"
        )
    return store
