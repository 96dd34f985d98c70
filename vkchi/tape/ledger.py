"""What a recording knows of memory: an account for each array that was touched in some way that
matters.

Owns: `Ledger`, `Account`, and what stands in one. Whoever refuses something asks accounts, and
keeps nothing by array itself:

    what stands there   that means                                     who asks
    escapes             derivatives that its place cannot hold         `breaks`
    held, reads         derivatives; what of them Python has read      `breaks`
    uses                inputs that kernels have used                  `breaks`
    loss                such were overwritten with something unknown   `breaks`
    fills, puts         constants, which may be inputs                 `constants`
    writes              what was written since a call                  `mutation_log`
    wants               contents that gradients will read              `snapshots`
    flags               what was read, element by element              `validation`
    version             whether anything was written since             `races.finder`
    contents, shown     what others overwrite without telling          `breaks`, `recording`

An array on the device is itself, and tells the recording before Python reads it. Memory of the host
has no identity but its addresses: its accounts (`HostAccount`) are found by overlap. To it, and to
arrays that others see in place (`seen`), others write without telling, so accounts know what stood
there. Must not know: kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, overload

from vkchi.analysis.boxes import Box, may_meet
from vkchi.errors import GradientError
from vkchi.fields.elements import Access
from vkchi.fields.storage import Storage
from vkchi.interop import host
from vkchi.span import Span, user_span
from vkchi.tape.seen import Shown, is_part
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    Values = np.ndarray[Any, Any]
    Memory = Storage | Values
Index = tuple[int, ...]
Note = tuple[str, Span | None]


class Fill:
    """Numbers that Python puts into all of an array with a gradient inside a tape: an input of the
    program, or a constant of it? They are an input, and the array's gradient is the derivative by
    them, as long as it does not get lost. Where it would, in an array without gradient, they are
    taken for constants: so a solver may begin with `x.fill(0)`. Then the array's gradient is not
    known, and reading it is an error."""

    def __init__(self, array: Storage) -> None:
        self.array, self.span = array, user_span()
        self.lost: tuple[Note, ...] = ()

    def mark_constant(self, lost: tuple[Note, ...]) -> None:
        """It is a constant: the derivative by it gets lost, as these notes say."""
        self.lost = self.lost or lost

    def forbid(self, gradient: Storage) -> None:
        """See to it that nobody takes what stands in the array's gradient for one."""
        gradient.fill(math.nan)
        gradient.watch = self.on_access

    def on_access(self, gradient: Storage, access: Access) -> None:
        """Python is about to access the gradient. Raises GradientError if it reads it."""
        if access.kind == "read" or access.is_sum:
            raise GradientError(
                f"the gradient of {self.array!r} is not known: Python put numbers into it inside "
                "the tape, which were taken for constants, for the derivative by them gets lost",
                user_span(), notes=(("Python put them there", self.span), *self.lost),
                help="put them there before the tape: then an error says what needs a gradient",
            )  # fmt: skip
        if access.at is None:
            gradient.watch = None


Fills = frozenset[Fill]


class Break(NamedTuple):
    """A part of memory that no derivative may flow through, of the host's the numpy view: it holds
    one that has no place there, or bits of such values, or something unknown that was put over one
    `by` somebody. `origin` says who put the derivative there, `ways` what became of it since,
    outside of kernels. With `fills`, it is by what Python put into arrays, and by nothing else. The
    user `is_shown` a numpy array that has a derivative if it is put into an array as it is: then
    this does not hold. `by_gradient` names a call of `kernel.grad` that put it there. `is_input`:
    what was overwritten was an input that kernels had used."""

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
        """Whether it holds a constant, as is known now."""
        return bool(self.fills) and all(fill.lost for fill in self.fills)

    @property
    def key(self) -> Any:
        """What there is one of in an account."""
        return self.box, self.is_bits, self.fills


class Held(NamedTuple):
    """A part of an array that holds values with a derivative, who put them there, and where."""

    name: str
    who: str
    span: Span | None
    box: Box

    @property
    def origin(self) -> Note:
        """What errors say of it."""
        return f"{self.who} puts a value with a derivative there", self.span


class Use(NamedTuple):
    """A part of an array, which has a place for derivatives, that a recorded kernel has used as it
    was. `find` gives the line."""

    name: str
    who: str
    find: Callable[[], Span | None]
    box: Box

    @property
    def origin(self) -> Note:
        """A note for errors."""
        return f"{self.who} has used what it held before", self.find()


class Uses:
    """Parts of one array that recorded kernels have used, by their first index."""

    def __init__(self) -> None:
        self.at: dict[int | None, dict[Box, Use]] = {}

    def __contains__(self, box: Box) -> bool:
        return box in self.at.get(point_of(box), ())

    def add(self, use: Use) -> None:
        """Add one; the first of equal parts stays."""
        self.at.setdefault(point_of(use.box), {}).setdefault(use.box, use)

    def find(self, box: Box) -> Use | None:
        """A part that may meet this one."""
        place = point_of(box)
        lists = self.at.values() if place is None else (self.at.get(k, {}) for k in (place, None))
        return next(
            (one for known in lists for one in known.values() if may_meet(one.box, box)), None
        )


def overwritten(
    one: Held | Use, memory: Any, by: str, span: Span | None, box: Box = ()
) -> Break:  # fmt: skip
    """The break where `by` put something unknown over what was held or used."""
    ways = (("it was overwritten here", span),) if span is not None else ()
    is_input = isinstance(one, Use)
    return Break(memory, one.name, one.origin, box, ways=ways, by=by, is_input=is_input)


class Written(NamedTuple):
    """When a part of an array was overwritten, and by whom; `time` is how many calls with gradients
    of their own had ended by then."""

    time: int
    who: str


class Finder(Protocol):
    """A call: the arrays it found by parameter name, live ones or copies."""

    memory: dict[str, Storage]


class Holder(Finder, Protocol):
    """A recorded one: what it had found before it was noted, its position among the calls of a
    tape."""

    kept: Mapping[str, Storage]
    position: int


class Wanted(NamedTuple):
    """That a call's gradient will read a part of an array, under a parameter's name."""

    holder: Holder
    name: str
    box: Box

    @property
    def array(self) -> Storage:
        """Which array."""
        return self.holder.memory[self.name]

    @property
    def copy(self) -> Storage | None:
        """The copy of it, if that was made before the call was noted."""
        found = self.holder.kept.get(self.name)
        return found if found is not self.array else None


class Wants:
    """Who wants which parts of one array. Those that want one index of the first axis, as a step of
    time-indexed arrays does, are found by it."""

    def __init__(self) -> None:
        self.at: dict[int, list[Wanted]] = {}
        self.others: list[Wanted] = []

    def add(self, wanted: Wanted) -> None:
        """One more."""
        place = point_of(wanted.box)
        (self.others if place is None else self.at.setdefault(place, [])).append(wanted)

    def pop_meeting(self, box: Box | None) -> list[Wanted]:
        """Those whose part may meet the box (None: any part); they are done with."""
        place = None if box is None else point_of(box)
        if place is not None:
            lists = [self.at.get(place, []), self.others]
        else:
            lists = [*self.at.values(), self.others]
        hit: list[Wanted] = []
        for found in lists:
            rest: list[Wanted] = []
            for w in found:
                (hit if box is None or may_meet(w.box, box) else rest).append(w)
            found[:] = rest
        return hit


class Holding:
    """What is known of some memory's derivatives: those that it has no place for, those that it
    holds, whether such were overwritten, and when it was, so far as anybody asks. `owner` is the
    array, or the tensor, that the `memory` is of."""

    memory: Any
    owner: Any

    def __init__(self) -> None:
        self.escapes: dict[Any, Break] = {}
        self.held: dict[Box, Held] = {}
        self.loss: Break | None = None
        self.writes: dict[Box, Written] = {}

    @property
    def escaping(self) -> list[Break]:
        """The derivatives that it has no place for."""
        return [one for one in self.escapes.values() if not one.is_constant]

    def finds(self, box: Box) -> Held | Use | None:
        """A part that meets this one and holds a derivative."""
        return next((held for held in self.held.values() if may_meet(held.box, box)), None)

    def lose(self, found: Break) -> None:
        """Note that something unknown was put over a part."""
        is_more = self.loss is not None and self.loss.box != found.box
        self.loss = found._replace(box=()) if is_more else found

    def compare(self) -> Break | None:
        """What was lost here, as far as is known."""
        return self.loss

    def remember(self) -> None:
        """Remember what is there now, where others write without telling."""


class HostAccount(Holding):
    """What is known of a numpy array, or of a tensor's memory, which may be elsewhere by now: of
    what a kernel left there, or the host computed, `contents` and torch's count of changes when
    that was last seen; the `slope` by it."""

    def __init__(self, view: Values) -> None:
        super().__init__()
        self._view, self.owner = view, None
        self.used: Use | None = None  # by the first kernel
        self.contents: Values | None = None
        self.slope: Values | None = None

    @property
    def version(self) -> int:
        """Torch's count of changes."""
        return 0 if self.owner is None else int(self.owner._version)

    @property
    def memory(self) -> Values:
        """Where it is now, as a numpy view."""
        return self._view if self.owner is None else host.array_of_torch(self.owner)

    def remember(self) -> None:
        """Remember what is there now."""
        self.contents, self.seen = np.array(self.memory), self.version

    @property
    def is_known(self) -> bool:
        """Whether that is there still."""
        known, now = self.contents, self.memory
        if known is None or self.seen != self.version:
            return False
        if (known.shape, known.dtype) != (now.shape, now.dtype):
            return False
        return not host.changes(known, now).any()

    @property
    def is_of_use(self) -> bool:
        """Whether anything is known."""
        is_used = self.used is not None
        return bool(self.escapes or self.held or self.writes or is_used or self.slope is not None)

    def compare(self) -> Break | None:
        """Note if a tensor's derivative, or an input that was used, was overwritten: what was lost
        by that, or before."""
        if self.owner is not None and not self.is_known:
            found = next(iter(self.held.values()), None) or self.used
            assert found is not None
            self.loss = self.loss or overwritten(found, self.memory, "torch or numpy", None)
        return self.loss

    def follow(self, tensor: Any) -> None:
        """Notice from now on what others put into a tensor."""
        self.owner = tensor
        self.remember()


class Account(Holding):
    """What is known of one array, which it keeps alive. `version` counts what was written to it;
    `fills`: it holds constants, provided that these are; `reads` are indices, or None for all, that
    Python has read where derivatives are; `puts` those of elements that it has written; `shown` are
    the array and components of it as others see them."""

    def __init__(self, array: Storage) -> None:
        super().__init__()
        self.array = self.memory = self.owner = array
        self.version = 0
        self.is_used = self.is_written = False  # by kernels
        self.is_cut = False  # by Python
        self.last_write: Span | None = None  # by Python, of those noted, and the version after it
        self.last_version = -1
        self.fills: Fills | None = None
        self.reads: set[Index | None] = set()
        self.puts: set[Index] = set()
        self.uses = Uses()
        self.wants = Wants()
        self.flags: Storage | None = None
        self.shown: dict[int, Shown] = {}

    def holds(self, at: Index | None = None) -> Held | None:
        """What it holds with a derivative, at an index or anywhere."""
        found = super().finds(box_at(self.array, at))
        return found if isinstance(found, Held) else None

    def finds(self, box: Box) -> Held | Use | None:
        """A part that meets this one and holds a derivative, or is an input that was used."""
        return super().finds(box) or self.uses.find(box)

    @property
    def is_last_by_python(self) -> bool:
        """True if Python's last write was noted, and nobody has written since."""
        return self.version == self.last_version

    def note_write(self, access: Access) -> None:
        """Note that Python has written; a constant that it adds leaves the state as it is."""
        if not access.is_sum:
            self.last_write = user_span()
        elif self.last_version != self.version - 1:
            return
        self.last_version = self.version

    def change(self, *, is_whole: bool) -> None:
        """Something else is about to stand there; in all of it, for all that Python knows."""
        self.version += 1
        if is_whole:
            self.array.overwritten += 1  # single elements that were read are refused anyway

    def forget_constants(self) -> None:
        """Something unknown may be put there."""
        self.fills = None
        if not self.escapes:
            self.puts.clear()

    def note_read(self, at: Index | None, *, has_own: bool) -> None:
        """Python reads what has a derivative, perhaps; or who has a gradient of its own does."""
        at = None if at is None else at[: len(self.array.shape)]
        if self.escapes or (not has_own and self.finds(box_at(self.array, at))):
            self.reads.add(at)


class Ledger:
    """The accounts of one recording. `on_access` is called before Python accesses their arrays;
    `exported` are those that others see in place."""

    def __init__(
        self, on_access: Callable[[Storage, Access], None], exported: Iterable[Storage] = ()
    ) -> None:
        self.on_access, self.exported = on_access, exported
        self.accounts: dict[int, Account] = {}
        self.hosts: list[HostAccount] = []

    def near(self, memory: Memory) -> Sequence[Account | HostAccount]:
        """The accounts of memory that an array, or a numpy array, has elements in."""
        if isinstance(memory, Storage):
            found = self.accounts.get(id(memory.whole))
            return () if found is None else (found,)
        return [one for one in self.hosts if host.may_overlap(one.memory, memory)]

    def all(self) -> list[Account | HostAccount]:
        """All of them."""
        return [*self.accounts.values(), *self.hosts]

    @overload
    def find(self, memory: Storage) -> Account | None: ...
    @overload
    def find(self, memory: Values) -> HostAccount | None: ...
    def find(self, memory: Memory) -> Account | HostAccount | None:
        """That of an array, or of the one that it is a component of, or of a numpy array, if there
        is one."""
        if isinstance(memory, Storage):
            return self.accounts.get(id(memory.whole))
        return next((one for one in self.hosts if host.is_same_view(one.memory, memory)), None)

    @overload
    def open(self, memory: Storage) -> Account: ...
    @overload
    def open(self, memory: Values) -> HostAccount: ...
    def open(self, memory: Memory) -> Account | HostAccount:
        """The same; a new one if there is none."""
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

    # --- what others see in place ----------------------------------------------------------------

    def exports(self, memory: Memory) -> list[Storage]:
        """The exported arrays in whose memory an array, or a numpy array, is."""
        return [one for one in self.exported if is_part(one, memory)]

    def find_shown(self, arrays: Iterable[Storage]) -> list[Shown]:
        """Those with these arrays in their memory, of which it is known what others saw."""
        ids = {id(one): one for array in arrays for one in self.exports(array)}
        found = [(key, self.find(one)) for key, one in ids.items()]
        return [one.shown[key] for key, one in found if one is not None and key in one.shown]

    def look(self, arrays: Iterable[Storage]) -> None:
        """Tell of what others wrote to these arrays; waits if they are exported."""
        for one in self.find_shown(arrays):
            one.look()

    def look_at_all(self) -> None:
        """The same of all arrays."""
        found = [one for account in self.accounts.values() for one in account.shown.values()]
        for one in found:
            one.look()

    def end_looking(self) -> None:
        """Look a last time; from now on nothing is remembered, for gradients write too."""
        self.look_at_all()
        self.exported = ()

    def show(self, arrays: Iterable[Storage]) -> None:
        """Remember what these hold; waits if they are exported."""
        for one in {id(one): one for array in arrays for one in self.exports(array)}.values():
            self.expect(one, one.contents())

    def show_again(self, arrays: Iterable[Storage]) -> None:
        """The same of those of which it was known what they held."""
        for one in self.find_shown(arrays):
            self.expect(one.array, one.array.contents())

    def expect(self, array: Storage, contents: Values) -> None:
        """Remember what an exported array will hold when Python is done with it."""
        self.open(array).shown[id(array)] = Shown(array, contents)

    def close(self) -> None:
        """Be told nothing any more."""
        for account in self.accounts.values():
            if account.array.watch == self.on_access:
                account.array.watch = None
        self.accounts.clear()
        self.hosts.clear()


def box_at(array: Storage, at: Index | None = None) -> Box:
    """The part of an array that an index, perhaps of a component, leads to, or (None) all of it."""
    axes = len(array.shape)
    return (None,) * axes if at is None else tuple([(k, k) for k in at[:axes]])


def point_of(box: Box) -> int | None:
    """The one index of the first axis, if it is one."""
    first = box[0] if box else None
    return first[0] if first is not None and first[0] == first[1] else None
