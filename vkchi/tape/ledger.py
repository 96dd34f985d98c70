"""Memory state of a recording: one account for each array that the recording tracks.

    attribute           meaning
    escapes             lost gradients: no derivative may flow through this memory
    held, reads         values with a derivative; indices that Python has read
    uses                inputs that recorded calls have used
    loss                overwrite of a derivative or used input with an unknown value
    fills, puts         constants that Python stored
    writes              writes since a call with a custom gradient
    wants               contents that gradients will read
    flags               numbers of the loads that read each element
    version             number of writes
    contents, shown     saved contents, to detect writes by other code

Accounts of device arrays are found by the array object, those of host memory (`HostAccount`) by
address. A tracked device array calls `Ledger.on_access` before Python accesses it. Other code may
write to host memory and to exported arrays without notice. Some of their accounts save the contents
and compare them later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, overload

from vkchi.analysis.boxes import Box, boxes_may_intersect
from vkchi.errors import GradientError
from vkchi.fields.elements import ArrayAccess
from vkchi.fields.storage import Storage
from vkchi.interop import host_views
from vkchi.span import Span, user_span
from vkchi.tape.exported_arrays import ExportedArray, shares_host_memory
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.calls.call import Memory, Values
Index = tuple[int, ...]
Note = tuple[str, Span | None]


class PythonFill:
    """Values that Python stores into all of an array with a gradient, inside a recording.

    They count as an input of the program as long as no derivative with respect to them is lost. If
    one would be lost in an array without a gradient, they count as a constant. A solver may
    therefore begin with `x.fill(0)`. The array's gradient is then unknown, and reading it raises
    GradientError.
    """

    def __init__(self, array: Storage) -> None:
        self.array, self.span = array, user_span()
        self.lost: tuple[Note, ...] = ()

    def mark_constant(self, lost: tuple[Note, ...]) -> None:
        self.lost = self.lost or lost

    def forbid(self, gradient: Storage) -> None:
        """Fill the array's gradient with NaN, and watch accesses to it by Python (`on_access`)."""
        gradient.fill(math.nan)
        gradient.watch = self.on_access

    def on_access(self, gradient: Storage, access: ArrayAccess) -> None:
        """Hook before Python accesses the gradient. Raises GradientError for a read or an addition.

        A write to the whole array makes the gradient readable again.
        """
        if access.kind == "read" or access.is_sum:
            raise GradientError(
                f"the gradient of {self.array!r} is not known: Python put numbers into it inside "
                "the tape, which were taken for constants, for the derivative by them gets lost",
                user_span(), notes=(("Python put them there", self.span), *self.lost),
                help="put them there before the tape: then an error says what needs a gradient",
            )  # fmt: skip
        if access.at is None:
            gradient.watch = None


Fills = frozenset[PythonFill]


class LostGradient(NamedTuple):
    """A lost gradient: memory that no derivative may flow through.

    It holds a value with a derivative but has no `grad`, or the bits of such a value, or an unknown
    value. `memory` is an array, or a numpy view of host memory.

    - `origin`: the write that stored the value. `ways`: host operations that copied it since.
    - `fills`: if not empty, the derivative is only with respect to these Python writes.
    - `is_shown`: the user received a numpy array. Its derivative is not lost if the user stores the
      array unchanged.
    - `by`: the writer that stored an unknown value.
    - `by_gradient`: the call of `kernel.grad` that stored the value.
    - `is_input`: the overwritten value was an input that kernels had used.
    """

    memory: Any
    name: str
    origin: Note
    box: Box = ()
    is_bits: bool = False
    ways: tuple[Note, ...] = ()
    fills: Fills = frozenset()
    is_shown: bool = False
    by: str = ""
    by_gradient: str = ""
    is_input: bool = False

    @property
    def is_constant(self) -> bool:
        return bool(self.fills) and all(fill.lost for fill in self.fills)

    @property
    def key(self) -> Any:
        return self.box, self.is_bits, self.fills


class LiveGradient(NamedTuple):
    """A part of an array that holds values with a derivative, and the write that stored them."""

    name: str
    who: str
    span: Span | None
    box: Box

    @property
    def origin(self) -> Note:
        return f"{self.who} puts a value with a derivative there", self.span


class InputUse(NamedTuple):
    """A part of a differentiable array that recorded code has read.

    `find` returns the source span of the read.
    """

    name: str
    who: str
    find: Callable[[], Span | None]
    box: Box

    @property
    def origin(self) -> Note:
        return f"{self.who} has used what it held before", self.find()


class InputUses:
    """Parts of one array that recorded code has read, grouped by their index on the first axis."""

    def __init__(self) -> None:
        self.at: dict[int | None, dict[Box, InputUse]] = {}

    def __contains__(self, box: Box) -> bool:
        return box in self.at.get(point_of(box), ())

    def add(self, use: InputUse) -> None:
        self.at.setdefault(point_of(use.box), {}).setdefault(use.box, use)

    def find(self, box: Box) -> InputUse | None:
        place = point_of(box)
        lists = self.at.values() if place is None else (self.at.get(k, {}) for k in (place, None))
        return next(
            (one for known in lists for one in known.values() if boxes_may_intersect(one.box, box)),
            None,
        )


def lost_by_overwrite(
    one: LiveGradient | InputUse, memory: Any, by: str, span: Span | None, box: Box = ()
) -> LostGradient:  # fmt: skip
    """The lost gradient after `by` stored an unknown value over a held or used part."""
    ways = (("it was overwritten here", span),) if span is not None else ()
    is_input = isinstance(one, InputUse)
    return LostGradient(memory, one.name, one.origin, box, ways=ways, by=by, is_input=is_input)


class LoggedWrite(NamedTuple):
    """A write to a part of an array. `time` is the number of custom-gradient calls that ended
    before."""

    time: int
    who: str


class CallMemory(Protocol):
    """A call and its arrays by parameter name: the arrays themselves, or copies from before it."""

    memory: dict[str, Storage]


class RecordedMemory(CallMemory, Protocol):
    """A recorded call: its index among the tape's steps (`position`), and its earlier `memory` if
    it ran along a trace (`kept`)."""

    kept: Mapping[str, Storage]
    position: int


class SnapshotRequest(NamedTuple):
    """A snapshot request: a call's gradient will read this part of an array.

    `name` is the array's parameter name.
    """

    holder: RecordedMemory
    name: str
    box: Box

    @property
    def array(self) -> Storage:
        return self.holder.memory[self.name]

    @property
    def copy(self) -> Storage | None:
        found = self.holder.kept.get(self.name)
        return found if found is not self.array else None


class SnapshotRequests:
    """Snapshot requests for one array, grouped by their index on the first axis, if single."""

    def __init__(self) -> None:
        self.at: dict[int, list[SnapshotRequest]] = {}
        self.others: list[SnapshotRequest] = []

    def add(self, wanted: SnapshotRequest) -> None:
        place = point_of(wanted.box)
        (self.others if place is None else self.at.setdefault(place, [])).append(wanted)

    def pop_meeting(self, box: Box | None) -> list[SnapshotRequest]:
        """Remove and return the requests whose part may intersect the box (None: all)."""
        place = None if box is None else point_of(box)
        if place is not None:
            lists = [self.at.get(place, []), self.others]
        else:
            lists = [*self.at.values(), self.others]
        hit: list[SnapshotRequest] = []
        for found in lists:
            rest: list[SnapshotRequest] = []
            for w in found:
                (hit if box is None or boxes_may_intersect(w.box, box) else rest).append(w)
            found[:] = rest
        return hit


class MemoryAccount:
    """Derivative state of an array, or of a range of host memory.

    - `escapes`: lost gradients.
    - `held`: parts that hold values with a derivative.
    - `loss`: the overwrite of a held part or used input with an unknown value, or None.
    - `writes`: the last write to each part, once a call with a custom gradient has ended.
    - `owner`: the array, or the torch tensor whose memory it is; None for numpy arrays.
    """

    memory: Any
    owner: Any

    def __init__(self) -> None:
        self.escapes: dict[Any, LostGradient] = {}
        self.held: dict[Box, LiveGradient] = {}
        self.loss: LostGradient | None = None
        self.writes: dict[Box, LoggedWrite] = {}

    @property
    def escaping(self) -> list[LostGradient]:
        return [one for one in self.escapes.values() if not one.is_constant]

    def finds(self, box: Box) -> LiveGradient | InputUse | None:
        """Return a part that holds a derivative and may intersect the box, or None."""
        return next(
            (held for held in self.held.values() if boxes_may_intersect(held.box, box)), None
        )

    def lose(self, found: LostGradient) -> None:
        """Record that an unknown value overwrote a part. Two different parts count as the whole
        memory."""
        is_more = self.loss is not None and self.loss.box != found.box
        self.loss = found._replace(box=()) if is_more else found

    def compare(self) -> LostGradient | None:
        """Return the loss by an overwrite that was detected, or None."""
        return self.loss

    def remember(self) -> None:
        """Save the current contents. No effect except in `HostAccount`."""


class HostAccount(MemoryAccount):
    """Account of a numpy array, or of the memory of a torch tensor, which may move.

    `contents` and torch's version counter (`seen`) are those at the last call of `remember`.
    `slope` is the adjoint of a result of a host computation; None for other memory.
    """

    def __init__(self, view: Values) -> None:
        super().__init__()
        self._view, self.owner = view, None
        self.used: InputUse | None = None  # set by the first kernel that reads it
        self.contents: Values | None = None
        self.slope: Values | None = None

    @property
    def version(self) -> int:
        return 0 if self.owner is None else int(self.owner._version)

    @property
    def memory(self) -> Values:
        return self._view if self.owner is None else host_views.array_of_torch(self.owner)

    def remember(self) -> None:
        self.contents, self.seen = np.array(self.memory), self.version

    @property
    def is_known(self) -> bool:
        """True if the memory has the saved contents, and torch's version counter is unchanged."""
        known, now = self.contents, self.memory
        if known is None or self.seen != self.version:
            return False
        if (known.shape, known.dtype) != (now.shape, now.dtype):
            return False
        return not host_views.changed_mask(known, now).any()

    @property
    def is_of_use(self) -> bool:
        is_used = self.used is not None
        return bool(self.escapes or self.held or self.writes or is_used or self.slope is not None)

    def compare(self) -> LostGradient | None:
        """Detect writes to a tensor outside kernels; return the loss that they or earlier ones
        caused.

        That is an overwritten derivative or used input. None without one.
        """
        if self.owner is not None and not self.is_known:
            found = next(iter(self.held.values()), None) or self.used
            assert found is not None
            self.loss = self.loss or lost_by_overwrite(found, self.memory, "torch or numpy", None)
        return self.loss

    def follow(self, tensor: Any) -> None:
        self.owner = tensor
        self.remember()


class Account(MemoryAccount):
    """Account of one array, which it keeps alive.

    - `version`: number of recorded writes.
    - `fills`: not None if the array is constant, provided that these Python writes are.
    - `reads`: indices (None: all) that Python has read where there were derivatives, used inputs or
      lost gradients.
    - `puts`: indices that Python has overwritten one by one.
    - `shown`: exported views of the array and its components, with their last known contents.
    """

    def __init__(self, array: Storage) -> None:
        super().__init__()
        self.array = self.memory = self.owner = array
        self.version = 0
        self.is_used = self.is_written = False  # by kernels
        self.is_cut = False  # by Python
        self.last_write: Span | None = None  # by Python, if recorded
        self.last_version = -1  # version after it
        self.fills: Fills | None = None
        self.reads: set[Index | None] = set()
        self.puts: set[Index] = set()
        self.uses = InputUses()
        self.wants = SnapshotRequests()
        self.flags: Storage | None = None
        self.shown: dict[int, ExportedArray] = {}

    def holds(self, at: Index | None = None) -> LiveGradient | None:
        """Return a part with a derivative, at an index or (None) anywhere; None without one."""
        found = super().finds(box_at(self.array, at))
        return found if isinstance(found, LiveGradient) else None

    def finds(self, box: Box) -> LiveGradient | InputUse | None:
        """Return a part with a derivative, or a used input, that may intersect the box; or None."""
        return super().finds(box) or self.uses.find(box)

    @property
    def is_last_by_python(self) -> bool:
        """True if the last write, constant additions aside, was one that `note_write` recorded."""
        return self.version == self.last_version

    def note_write(self, access: ArrayAccess) -> None:
        """Record a write by Python. Adding a constant leaves the last writer unchanged."""
        if not access.is_sum:
            self.last_write = user_span()
        elif self.last_version != self.version - 1:
            return
        self.last_version = self.version

    def change(self, *, is_whole: bool) -> None:
        self.version += 1
        if is_whole:
            self.array.overwritten += 1  # writes to single elements that were read raise anyway

    def forget_constants(self) -> None:
        self.fills = None
        if not self.escapes:
            self.puts.clear()

    def note_read(self, at: Index | None, *, has_own: bool) -> None:
        """Record a read by Python of a derivative, a used input, or an array with lost gradients.

        With `has_own`, only arrays with lost gradients count: the reader is a custom-gradient
        function, or gradients are running.
        """
        at = None if at is None else at[: len(self.array.shape)]
        if self.escapes or (not has_own and self.finds(box_at(self.array, at))):
            self.reads.add(at)


class Ledger:
    """The accounts of one recording.

    `on_access` is called before Python accesses a tracked array. `exported` are arrays that other
    code accesses in place.
    """

    def __init__(
        self, on_access: Callable[[Storage, ArrayAccess], None], exported: Iterable[Storage] = ()
    ) -> None:
        self.on_access, self.exported = on_access, exported
        self.accounts: dict[int, Account] = {}
        self.hosts: list[HostAccount] = []

    def near(self, memory: Memory) -> Sequence[Account | HostAccount]:
        """The account of an array, or those of host memory that may overlap with a numpy array."""
        if isinstance(memory, Storage):
            found = self.accounts.get(id(memory.whole))
            return () if found is None else (found,)
        return [one for one in self.hosts if host_views.may_overlap(one.memory, memory)]

    def all(self) -> list[Account | HostAccount]:
        return [*self.accounts.values(), *self.hosts]

    @overload
    def find(self, memory: Storage) -> Account | None: ...
    @overload
    def find(self, memory: Values) -> HostAccount | None: ...
    def find(self, memory: Memory) -> Account | HostAccount | None:
        """Return the account of an array, or of an equal view of host memory; None if there is
        none.

        Components share the account of the whole array.
        """
        if isinstance(memory, Storage):
            return self.accounts.get(id(memory.whole))
        return next(
            (one for one in self.hosts if host_views.is_same_view(one.memory, memory)), None
        )

    @overload
    def open(self, memory: Storage) -> Account: ...
    @overload
    def open(self, memory: Values) -> HostAccount: ...
    def open(self, memory: Memory) -> Account | HostAccount:
        """Return the account of an array or of host memory, created if there is none.

        From then on, the array calls `on_access` before Python accesses it.
        """
        if isinstance(memory, Storage):
            array = memory.whole
            account = self.accounts.get(id(array))
            if account is None:
                array.watch = self.on_access
                account = self.accounts[id(array)] = Account(array)
            return account
        found = self.find(memory)
        if found is not None:
            return found
        self.hosts = [*(one for one in self.hosts if one.is_of_use), HostAccount(memory)]
        return self.hosts[-1]

    # --- exported arrays -------------------------------------------------------------------------

    def exports(self, memory: Memory) -> list[Storage]:
        """Exported arrays whose memory may overlap with an array or a numpy array."""
        return [one for one in self.exported if shares_host_memory(one, memory)]

    def find_shown(self, arrays: Iterable[Storage]) -> list[ExportedArray]:
        """Exported arrays with saved contents that overlap with these arrays."""
        ids = {id(one): one for array in arrays for one in self.exports(array)}
        found = [(key, self.find(one)) for key, one in ids.items()]
        return [one.shown[key] for key, one in found if one is not None and key in one.shown]

    def look(self, arrays: Iterable[Storage]) -> None:
        """Detect writes by other code to these arrays, and report each as a write by Python.

        Only exported arrays with saved contents are compared; that waits for the device.
        """
        for one in self.find_shown(arrays):
            one.look()

    def look_at_all(self) -> None:
        """Detect writes by other code to all exported arrays with saved contents."""
        found = [one for account in self.accounts.values() for one in account.shown.values()]
        for one in found:
            one.look()

    def end_looking(self) -> None:
        """Detect writes by other code a last time; from then on no array counts as exported."""
        self.look_at_all()
        self.exported = ()

    def show(self, arrays: Iterable[Storage]) -> None:
        """Save the contents of these arrays if they are exported; waits for the device then."""
        for one in {id(one): one for array in arrays for one in self.exports(array)}.values():
            self.expect(one, one.contents())

    def show_again(self, arrays: Iterable[Storage]) -> None:
        """Save the contents again, for arrays whose contents are already saved."""
        for one in self.find_shown(arrays):
            self.expect(one.array, one.array.contents())

    def expect(self, array: Storage, contents: Values) -> None:
        self.open(array).shown[id(array)] = ExportedArray(array, contents)

    def close(self) -> None:
        """Stop watching the arrays, and drop all accounts."""
        for account in self.accounts.values():
            if account.array.watch == self.on_access:
                account.array.watch = None
        self.accounts.clear()
        self.hosts.clear()


def box_at(array: Storage, at: Index | None = None) -> Box:
    """The box of an index, or (None) of the whole array. Indices of components are ignored."""
    axes = len(array.shape)
    return (None,) * axes if at is None else tuple([(k, k) for k in at[:axes]])


def point_of(box: Box) -> int | None:
    """The index of a box on the first axis if it has one element there, else None."""
    first = box[0] if box else None
    return first[0] if first is not None and first[0] == first[1] else None
