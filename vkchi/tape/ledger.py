"""Memory state of a recording: one account for each array that the recording tracks.

    attribute           meaning
    definitions         its reaching definitions, by parts: derivatives, used inputs, lost and
                        unknown values
    reads               indices that Python has read
    fills, puts         constants that Python stored
    writes              writes since a call with a custom gradient
    history             number of writes, and the contents that gradients will read
    flags               numbers of the loads that read each element
    contents            saved contents, to detect writes by other code (`HostAccount`,
                        `ExportedArray`)

Accounts of device arrays are found by the array object, those of host memory (`HostAccount`) by
address. A tracked device array calls `Ledger.on_access` before Python accesses it. Other code may
write to host memory and to exported arrays without notice. Some of their accounts save the contents
and compare them later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from vkchi.analysis.memory.boxes import Box
from vkchi.errors import GradientError
from vkchi.fields.array_versions import BoxIndex, History, point_of
from vkchi.fields.elements import ArrayAccess
from vkchi.fields.storage import Storage
from vkchi.fields.views import View
from vkchi.interop import host_views
from vkchi.span import Span, user_span
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.calls.call import Memory, Values
Index = tuple[int, ...]
Watcher = Callable[[Storage, ArrayAccess], None]
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
        self.why_constant: tuple[Note, ...] = ()

    def mark_constant(self, lost: tuple[Note, ...]) -> None:
        self.why_constant = self.why_constant or lost

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
                user_span(), notes=(("Python put them there", self.span), *self.why_constant),
                help="put them there before the tape: then an error says what needs a gradient",
            )  # fmt: skip
        if access.at is None:
            gradient.watch = None


Fills = frozenset[PythonFill]


Kind = Literal["derivative", "input", "lost", "unknown"]
KINDS: tuple[Kind, ...] = ("derivative", "input", "lost", "unknown")


class Definition(NamedTuple):
    """The state of derivatives that a write left in a part of memory.

    - `kind`, one of
        - `derivative`: a value with a derivative, in memory that has a gradient;
        - `input`: the contents at the start, in such memory, which recorded code has read;
        - `lost`: a value with a derivative in memory without gradient, its bits (`is_bits`), or
          an unknown value there (`by`);
        - `unknown`: an unknown value in the place of a `derivative` or `input` (`was_input`).
    - `memory`: an array, or a numpy view of host memory; None where the account tells.
    - `origin`: the write or read. `find` returns its source span, if that is not in `origin`.
    - `ways`: host operations that copied the value since.
    - `fills`: if not empty, the derivative is only with respect to these Python writes.
    - `is_shown`: the user received a numpy array. Its derivative is not lost if the user stores the
      array unchanged.
    - `by`: the writer that stored an unknown value.
    - `by_gradient`: the call of `kernel.grad` that stored the value.
    """

    kind: Kind
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
    was_input: bool = False
    find: Callable[[], Span | None] | None = None

    @property
    def is_constant(self) -> bool:
        return bool(self.fills) and all(fill.why_constant for fill in self.fills)

    def overwritten(self, memory: Any, by: str, span: Span | None, box: Box = ()) -> Definition:
        """The unknown value that `by` stored over this part."""
        what, found = self.origin
        origin = (what, self.find() if self.find is not None else found)
        ways = (("it was overwritten here", span),) if span is not None else ()
        return Definition(
            "unknown", memory, self.name, origin, box, ways=ways, by=by,
            was_input=self.kind == "input",
        )  # fmt: skip


def derivative_at(name: str, who: str, span: Span | None, box: Box = ()) -> Definition:
    """A part where `who` stored values with a derivative."""
    origin = (f"{who} puts a value with a derivative there", span)
    return Definition("derivative", None, name, origin, box)


def input_at(
    name: str, who: str, box: Box, find: Callable[[], Span | None] | None, span: Span | None = None
) -> Definition:
    """A part of a differentiable array that `who` has read."""
    origin = (f"{who} has used what it held before", span)
    return Definition("input", None, name, origin, box, find=find)


class Definitions:
    """The definitions in one memory, by kind and part."""

    def __init__(self) -> None:
        self.kinds: dict[Kind, BoxIndex[Definition]] = {kind: BoxIndex() for kind in KINDS}
        self.is_suspect = False  # some are lost or unknown

    def put(self, one: Definition) -> None:
        """Add a definition in place of that of the same part.

        Of inputs, the first one stays. Two parts with unknown values count as the whole memory.
        """
        index = self.kinds[one.kind]
        if one.kind == "unknown":
            if any(old.box != one.box for old in self.all("unknown")):
                one = one._replace(box=())
            index.groups.clear()
        group, key = index.group(point_of(one.box)), key_of(one)
        if one.kind != "input":
            group[key] = one
            self.is_suspect = self.is_suspect or one.kind != "derivative"
        elif key not in group:
            group[key] = one

    def drop(self, *found: Definition) -> None:
        for one in found:
            groups, point = self.kinds[one.kind].groups, point_of(one.box)
            if point in groups:
                groups[point].pop(key_of(one), None)
                if not groups[point]:
                    del groups[point]
        self.is_suspect = self.has("lost") or self.has("unknown")

    def find(self, box: Box = ()) -> Definition | None:
        """Return a derivative or used input that may intersect a box, or None."""
        return self.kinds["derivative"].find(box) or self.kinds["input"].find(box)

    def has(self, kind: Kind) -> bool:
        return bool(self.kinds[kind].groups)

    def all(self, kind: Kind) -> list[Definition]:
        return [one for group in self.kinds[kind].groups.values() for one in group.values()]

    @property
    def derivative(self) -> Definition | None:
        """A derivative in any part."""
        return self.kinds["derivative"].find(())

    @property
    def lost(self) -> list[Definition]:
        """Lost gradients, except those by values of Python that count as constants."""
        return [one for one in self.all("lost") if not one.is_constant]

    @property
    def unknown(self) -> Definition | None:
        return next(iter(self.all("unknown")), None)

    def forget_unknown(self) -> None:
        """Record that the memory was overwritten with known values."""
        self.drop(*self.all("unknown"))


def key_of(one: Definition) -> Any:
    """Definitions of one kind and part with equal keys replace each other."""
    return (one.box, one.is_bits, one.fills) if one.kind == "lost" else one.box


class LoggedWrite(NamedTuple):
    """A write to a part of an array. `time` is the number of custom-gradient calls that ended
    before."""

    time: int
    who: str


class ExportedArray:
    """An array whose memory other code accesses in place, and its last known `contents`.

    It was exported by DLPack, or belongs to the other code, which writes there without notice.
    """

    def __init__(self, array: Storage, contents: Values) -> None:
        self.array, self.contents = array, contents

    def look(self) -> None:
        """Detect writes by other code since `contents` was saved; waits for the device.

        They are reported as a read and a write by Python: new values may depend on the old ones.
        """
        found, known = self.array.contents(), self.contents
        if host_views.changed_mask(known, found).any():
            self.array.put_unnoticed(known)  # restored first, so that snapshots save it
            self.array.tell(ArrayAccess("read"))
            self.array.from_numpy(found)


class MemoryAccount:
    """Derivative state of an array, or of a range of host memory.

    - `writes`: the last write to each part, once a call with a custom gradient has ended.
    - `owner`: the array, or the torch tensor whose memory it is; None for numpy arrays.
    """

    memory: Any
    owner: Any

    def __init__(self) -> None:
        self.definitions = Definitions()
        self.writes: dict[Box, LoggedWrite] = {}

    def compare(self) -> Definition | None:
        """Return the unknown value in this memory, or None."""
        return self.definitions.unknown

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
        found = self.definitions
        has_state = found.is_suspect or found.find() is not None or self.slope is not None
        return has_state or bool(self.writes)

    def compare(self) -> Definition | None:
        """Detect writes to a tensor outside kernels, over a derivative or used input.

        Return the unknown value that they or earlier ones left, or None.
        """
        definitions = self.definitions
        if self.owner is not None and definitions.unknown is None and not self.is_known:
            found = definitions.find()
            assert found is not None
            definitions.put(found.overwritten(self.memory, "torch or numpy", None))
        return definitions.unknown

    def follow(self, tensor: Any) -> None:
        self.owner = tensor
        self.remember()

    def unfollow(self) -> None:
        """Detect writes to the tensor a last time."""
        self.compare()
        self._view, self.owner = self.memory, None


class Account(MemoryAccount):
    """Account of one array, which it keeps alive.

    - `fills`: not None if the array is constant, provided that these Python writes are.
    - `reads`: indices (None: all) that Python has read where there were derivatives, used inputs or
      lost gradients.
    - `puts`: indices that Python has overwritten one by one.
    - `start`: the contents at the start, if derivatives are along a direction there (`ti.ad.hvp`),
      until Python overwrites the whole array without having read it.
    """

    def __init__(self, array: Storage) -> None:
        super().__init__()
        self.array = self.memory = self.owner = array
        self.history = History()
        self.is_used = False  # by kernels
        self.is_written = False  # by recorded code, or by constants that end a derivative
        self.last_write: Note | None = None  # if that was one by Python to the loss
        self.fills: Fills | None = None
        self.reads: set[Index | None] = set()
        self.puts: set[Index] = set()
        self.start: Definition | None = None
        self.flags: Storage | None = None

    def change(self, *, is_whole: bool) -> None:
        self.history.version += 1
        if is_whole:
            self.array.overwritten += 1  # writes to single elements that were read raise anyway

    def note_kernel(self) -> None:
        """Record a write by a kernel."""
        self.is_written, self.last_write, self.fills = True, None, None
        self.history.version += 1
        self.array.overwritten += 1
        if self.puts and not self.definitions.has("lost"):
            self.puts.clear()

    def forget_constants(self) -> None:
        self.fills = None
        if not self.definitions.has("lost"):
            self.puts.clear()

    def note_read(self, at: Index | None, *, has_own: bool) -> None:
        """Record a read by Python of a derivative, an input, or an array with lost gradients.

        With `has_own`, only arrays with lost gradients count: the reader is a custom-gradient
        function, or gradients are running.
        """
        at, found = None if at is None else at[: len(self.array.shape)], self.definitions
        if found.has("lost") or (
            not has_own and (self.start or found.find(box_at(self.array, at)))
        ):
            self.reads.add(at)


def ignore_access(array: Storage, access: ArrayAccess) -> None:
    pass


class Ledger:
    """The accounts of one recording.

    `on_access` is called before Python accesses a tracked array. `exported` are arrays that other
    code accesses in place; `shown` are those whose last contents are known.
    """

    def __init__(self, on_access: Watcher, exported: Iterable[Storage] = ()) -> None:
        self.on_access, self.exported = on_access, exported
        self.accounts: dict[int, Account] = {}
        self.hosts: list[HostAccount] = []
        self.fills: list[PythonFill] = []
        self.shown: dict[int, ExportedArray] = {}

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

    # --- definitions -----------------------------------------------------------------------------

    def define(self, memory: Any, one: Definition) -> None:
        """Record a definition in an array or in the memory of a torch tensor.

        The box `()` is the whole memory. Of a tensor, the first derivative or used input stays.
        """
        if isinstance(memory, Storage):
            one = one if one.box else one._replace(box=box_at(memory))
            self.open(memory).definitions.put(one)
            return
        account = self.open(host_views.array_of_torch(memory))
        is_new = account.owner is None
        if is_new or (one.kind == "derivative" and not account.definitions.has("derivative")):
            account.definitions.put(one._replace(box=()))
            account.follow(memory)

    def lose(self, *losses: Definition) -> None:
        """Record lost gradients in their memory."""
        for found in losses:
            account = self.open(found.memory)
            if isinstance(account, Account):
                account.puts.clear()
            else:
                found = found._replace(box=())
            account.definitions.put(found)

    def pass_on(
        self, found: Iterable[Definition], target: Memory, way: str, *, is_shown: bool = False
    ) -> None:
        """Record that Python computed `target` from arrays and lost the derivatives `found`.

        `way` describes the operation. `is_shown` is True if the user received the result.
        """
        step = (way, user_span())
        box = box_at(target) if isinstance(target, Storage) else ()
        for one in found:
            ways = (*one.ways, step)
            self.lose(one._replace(memory=target, box=box, ways=ways, is_shown=is_shown))

    def lost(self, memory: Memory) -> list[Definition]:
        return [b for one in self.near(memory) for b in one.definitions.lost]

    def derivative(self, array: Storage) -> Definition | None:
        account = self.find(array)
        return account.definitions.derivative if account is not None else None

    # --- exported arrays -------------------------------------------------------------------------

    def exports(self, memory: Memory) -> list[Storage]:
        """Exported arrays whose memory may overlap with an array or a numpy array."""
        return [one for one in self.exported if shares_host_memory(one, memory)]

    def find_shown(self, arrays: Iterable[Storage]) -> list[ExportedArray]:
        """Exported arrays with saved contents that overlap with these arrays."""
        ids = dict.fromkeys(id(one) for array in arrays for one in self.exports(array))
        return [self.shown[key] for key in ids if key in self.shown]

    def look(self, arrays: Iterable[Storage]) -> None:
        """Detect writes by other code to these arrays, and report each as a write by Python.

        Only exported arrays with saved contents are compared; that waits for the device.
        """
        for one in self.find_shown(arrays):
            one.look()

    def look_at_all(self) -> None:
        """Detect writes by other code to all exported arrays with saved contents."""
        for one in list(self.shown.values()):
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
        self.open(array)
        self.shown[id(array)] = ExportedArray(array, contents)

    def watch(self, on_access: Watcher) -> None:
        """Observe accesses by Python to the arrays again, after `unwatch`."""
        self.on_access = on_access
        for account in self.accounts.values():
            account.array.watch = account.array.watch or on_access

    def unwatch(self) -> None:
        """Stop watching the arrays, and drop the reference to the recording."""
        for account in self.accounts.values():
            if account.array.watch == self.on_access:
                account.array.watch = None
        self.on_access = ignore_access

    def clear_slopes(self) -> None:
        """Set the adjoints of results of host computations to 0."""
        for one in self.hosts:
            if one.slope is not None:
                one.slope[...] = 0

    def close(self) -> None:
        """Stop watching the arrays, and drop all accounts."""
        self.unwatch()
        self.accounts.clear()
        self.hosts.clear()
        self.shown.clear()


def box_at(array: Storage, at: Index | None = None) -> Box:
    """The box of an index, or (None) of all elements. Indices of components are ignored."""
    if at is not None:
        return tuple([(k, k) for k in at[: len(array.shape)]])
    return array.box if isinstance(array, View) else (None,) * len(array.shape)


def shares_host_memory(one: Storage, other: Storage | Values) -> bool:
    """True if two arrays are the same object, or may share host-visible memory."""
    view = other.host if isinstance(other, Storage) else other
    if one is other or one.host is None or view is None:
        return one is other
    return host_views.may_overlap(one.host, view)
