"""Derivatives that would be lost: values put into arrays without gradient and read again.

Owns: finding them, and the errors; `Fill`, numbers of Python's whose derivative may be lost. Must
not know: tapes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from vkchi.analysis.boxes import Box
from vkchi.autodiff.answers import WORDS, Flow, Spans, let_pass, lost
from vkchi.errors import GradientError
from vkchi.fields.elements import Access
from vkchi.fields.storage import Storage
from vkchi.interop import host
from vkchi.span import Span, is_ours, user_span
from vkchi.tape import facts
from vkchi.tape.calls import Call
from vkchi.tape.log import Index
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    Values = np.ndarray[Any, Any]


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

    def settle(self, lost: tuple[Note, ...]) -> None:
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


Key = tuple[Box, frozenset[Fill]]


class Escape(NamedTuple):
    """A part of an array without gradient that holds something with a derivative, or the bits of
    such values; who put it there, and the ways that it went since, outside of kernels. Of an array
    in host memory it is the numpy view, and all of it. With `fills`, the derivative is by what
    Python put into arrays, and by nothing else."""

    array: Any
    name: str
    origin: Note
    box: Box
    is_bits: bool = False
    ways: tuple[Note, ...] = ()
    fills: frozenset[Fill] = frozenset()

    @property
    def is_settled(self) -> bool:
        """Whether it holds a constant, as is known now."""
        return bool(self.fills) and all(fill.lost for fill in self.fills)


class Escapes:
    """All of a tape, or of forward mode."""

    def __init__(self) -> None:
        self.arrays: dict[int, dict[Key, Escape]] = {}
        self.hosts: list[Escape] = []
        self.reads: set[int] = set()  # arrays that Python has read
        self.cleared: dict[int, set[Index]] = {}  # elements that Python has overwritten

    def note(
        self, call: Call, escapes: Spans, *, is_bits: bool = False,
        fills: frozenset[Fill] = frozenset(),
    ) -> list[Storage]:  # fmt: skip
        """Note arrays of a call, by parameter name, that now hold something with a derivative (by
        `fills` only), or bits, and where that was put there. What is returned are those on the
        device."""
        noted = []
        boxes = facts.touched(call.plan, "writes", call.case) if escapes else {}
        what = "bits of a value" if is_bits else "a value"
        for name, span in escapes.items():
            origin = (f"{call.name}() puts {what} with a derivative there", line_of(span))
            if name in call.hosts:
                self.hosts.append(Escape(call.hosts[name], name, origin, (), is_bits, (), fills))
            elif name in call.arrays:
                array = call.arrays[name].whole
                box = boxes.get(name, (None,) * len(array.shape))
                noted.append(self.add(Escape(array, name, origin, box, is_bits, (), fills)))
        return noted

    def add(self, escape: Escape) -> Storage:
        """Note one of an array on the device, which is returned."""
        array: Storage = escape.array
        self.arrays.setdefault(id(array), {})[escape.box, escape.fills] = escape
        self.cleared.pop(id(array), None)
        return array

    def pass_on(self, found: Iterable[Escape], target: Storage | Values, way: str) -> list[Storage]:
        """Note that what Python computed from some arrays, losing the derivatives that they hold,
        is now in another. What is returned are those on the device."""
        step = (way, user_span())
        noted = []
        for escape in found:
            moved = escape._replace(array=target, ways=(*escape.ways, step))
            if isinstance(target, Storage):
                array = target.whole
                box = (None,) * len(array.shape)
                noted.append(self.add(moved._replace(array=array, box=box)))
            else:
                self.hosts.append(moved._replace(box=()))
        return noted

    def of(self, array: Storage | Values) -> list[Escape]:
        """What is known of an array, on the device or in host memory."""
        if isinstance(array, Storage):
            found = list(self.arrays.get(id(array.whole), {}).values())
        else:
            found = [t for t in self.hosts if host.may_overlap(t.array, array)]
        return [t for t in found if not t.is_settled]

    def note_access(self, array: Storage, access: Access) -> None:
        """Python is about to access an array. What it writes is constant, unless it has read the
        array before."""
        found, key = self.arrays.get(id(array)), id(array)
        if found is None or access.is_sum:
            return
        if access.kind == "read":
            self.reads.add(key)
        elif access.kind == "fill" or (access.at is None and key not in self.reads):
            del self.arrays[key]
        elif access.at is not None and key not in self.reads and len(access.at) == len(array.shape):
            cleared = self.cleared.setdefault(key, set())
            cleared.add(access.at)
            shape = array.shape
            for place in [k for k in found if is_cleared(k[0], shape, cleared)]:
                del found[place]

    def find(self, call: Call, name: str) -> list[Escape]:
        """What is known of an array of a call."""
        return self.of(call.hosts.get(name, call.arrays[name]))

    def check(
        self, call: Call, names: frozenset[str], need: str, others: Iterable[tuple[str, Escape]]
    ) -> list[Storage]:
        """Raises GradientError if a call reads a derivative out of an array that has no place for
        it and puts it into one of the arrays `names`, which have. What it overwrites is forgotten,
        and what it puts elsewhere is noted, and returned. Derivatives by what Python put somewhere
        may get lost: that is a constant from then on. `others` are known elsewhere, by names."""
        found = [*((n, t) for n in call.arrays for t in self.find(call, n)), *others]
        flows = [(n, t, flow_of(call, n, t.box, is_bits=t.is_bits)) for n, t in found]
        for name, escape, flow in flows:
            for target in sorted(names & flow.values.keys()):
                if not escape.fills:
                    error = missing_place(name, escape, flow.values[target], need)
                    missing = "error" if escape.is_bits else call.missing
                    let_pass(error, missing, call.plan.derived.warned)
                    continue
                settle(escape, flow.values[target])
        for name, escape in found:
            if covering(call, name, escape.box) is not None:
                self.remove(call, name, escape)
        noted = []
        for _, escape, flow in flows:
            if not escape.is_settled:
                values, bits = flow.left
                noted += self.note(call, values, fills=escape.fills)
                noted += self.note(call, bits, is_bits=True, fills=escape.fills)
        return noted

    def remove(self, call: Call, name: str, escape: Escape) -> None:
        """Part of an array is overwritten."""
        view = call.hosts.get(name)
        if view is None:
            self.arrays[id(escape.array)].pop((escape.box, escape.fills), None)
        elif host.is_same_view(view, escape.array):
            self.hosts = [t for t in self.hosts if t is not escape]


def settle(escape: Escape, read: Span | None) -> None:
    """What Python put somewhere is constant, for the derivative by it gets lost."""
    notes = (escape.origin, *escape.ways, ("it is read here", read))
    for fill in escape.fills:
        fill.settle(notes)


def line_of(span: Span | None) -> Span | None:
    """The user's line, or, of a kernel of ours, that which has called it."""
    return user_span() if is_ours(span) else span


def is_cleared(box: Box, shape: Sequence[int], cleared: set[Index]) -> bool:
    """Whether a box has no elements but those that are cleared."""
    ends = [b or (0, e - 1) for b, e in zip(box, shape, strict=True)]
    if math.prod(b[1] - b[0] + 1 for b in ends) > len(cleared):
        return False
    return all(k in cleared for k in product(*(range(b[0], b[1] + 1) for b in ends)))


def covering(call: Call, name: str, box: Box = ()) -> int | None:
    """The first segment of a call that overwrites all of a part of an array, or, without a box, all
    of it."""
    array = call.arrays[name]
    return facts.covering(call.plan, name, box, call.case) if array.whole is array else None


def flow_from(call: Call, name: str) -> Spans:
    """The arrays that a call puts something into that depends smoothly on what an array holds, and
    where it does so."""
    return flow_of(call, name, (), is_bits=False).values


def flow_of(call: Call, name: str, box: Box, *, is_bits: bool) -> Flow:
    """Where something goes on to that a part of an array holds."""
    end = covering(call, name, box)
    return facts.flow(call.plan, name, box, end, is_bits, call.case)


def missing_place(name: str, escape: Escape, read: Span | None, need: str) -> GradientError:
    """The error for an array that a derivative flows through and that has no gradient or dual."""
    word = WORDS[need]
    if escape.is_bits:
        return GradientError(
            f"the {word} flows through the bits of a number: it would be lost", read,
            notes=(escape.origin, *escape.ways),
            help="put ti.stop_grad(...) around the value whose bits are taken",
        )  # fmt: skip
    if escape.ways:
        return GradientError(
            f"the {word} flows through what Python computed or copied, which has none: it would be "
            "lost", read, notes=(escape.origin, *escape.ways),
            help="docs/autodiff.md, \"Values that travel without a kernel\", says what has a "
            "derivative; what a ti.ad.no_grad function gives is a constant",
        )  # fmt: skip
    return lost(name, read, *escape.origin, need)
