"""Derivatives that are overwritten where a tape cannot see with what: by Python, or by kernels that
it was told not to differentiate.

Owns: `Clobbers`, of one tape: which arrays hold values with a derivative, and what becomes of
them. What Python writes is a constant, so the derivative of what stood there is 0 from then on
(`Cut`), and what it adds leaves the derivative as it is. But Python that has read an element may
write what depends on it otherwise, as in `loss[None] *= 2`, and so may a kernel that the tape does
not differentiate. What was overwritten in this way is
refused when a derivative is to flow through it again.

Must not know: how gradients are built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vkchi.analysis.alias import kinds_of_writes
from vkchi.analysis.footprint import Box, may_meet
from vkchi.errors import GradientError
from vkchi.fields.elements import Access
from vkchi.fields.storage import Storage
from vkchi.launch import Plan
from vkchi.span import Span, user_span
from vkchi.tape.calls import Call, whole
from vkchi.tape.escapes import covering, flow_from, line_of
from vkchi.tuples import NamedTuple

Index = tuple[int, ...]


class Held(NamedTuple):
    """A part of an array that holds values with a derivative, who put them there, and where."""

    array: Storage
    name: str
    who: str
    span: Span | None
    box: Box


class Loss(NamedTuple):
    """What overwrote a part of an array with something unknown, and the user's line that did."""

    held: Held
    who: str
    span: Span | None


class Cut(NamedTuple):
    """A step of a tape: a constant was written to an element, or (None) to all, of what these are
    the derivatives of."""

    derivatives: tuple[Storage, ...]
    at: Index | None
    needs_end: bool = False

    def repeat(self) -> None:
        """Nothing: values are put back by others."""

    def run(self) -> None:
        """What stood there before has no influence."""
        for array in self.derivatives:
            blank(array, self.at)


def blank(array: Storage, at: Index | None) -> None:
    """Put 0 into an element, or component of one, or (None) everywhere."""
    if at is None:
        array.fill(0)
    else:
        axes = len(array.shape)
        array.write(array.index(at[:axes]) + at[axes:], 0)


class Clobbers:
    """What is held; `reads`, what of it Python has read; `lost`, what was overwritten with
    something unknown, and by whom."""

    def __init__(self) -> None:
        self.held: dict[int, dict[Box, Held]] = {}
        self.lost: dict[int, Loss] = {}
        self.reads: dict[int, set[Index | None]] = {}

    def note_call(
        self, call: Call, stores: Mapping[str, Any], boxes: Mapping[str, Box]
    ) -> list[Storage]:
        """Note where a call put values with a derivative: the ops that did so by array, and the
        parts (an array without: anywhere). What is returned are these arrays."""
        found = []
        for name, op in stores.items():
            if name in call.arrays and name not in call.hosts:
                array = call.arrays[name]
                box = boxes.get(name) or (None,) * len(array.shape)
                held = Held(whole(array), name, f"{call.name}()", line_of(op), box)
                self.hold(held)
                found.append(held.array)
        return found

    def hold(self, held: Held) -> None:
        """Note that part of an array holds values with a derivative."""
        self.held.setdefault(id(held.array), {})[held.box] = held

    def holds(self, array: Storage, at: Index | None = None) -> Held | None:
        """What an array holds with a derivative, at an index or anywhere."""
        box: Box = tuple([None] * len(array.shape) if at is None else [(k, k) for k in at])
        found = self.held.get(id(whole(array)), {})
        return next((held for held in found.values() if may_meet(held.box, box)), None)

    def note_access(self, array: Storage, access: Access) -> bool:
        """Note what Python is about to do to an array; whether it writes a constant over something
        with a derivative."""
        at = None if access.at is None else access.at[: len(array.shape)]
        held = self.holds(array, at)
        if held is None:
            return False
        reads = self.reads.setdefault(id(held.array), set())
        if access.kind == "read":
            reads.add(at)
            return False
        if access.is_sum:
            return False  # a constant more: the derivative of what stood there is that of the sum
        was_read = reads and (at is None or at in reads or None in reads)
        if access.kind == "write" and was_read:
            self.lost[id(held.array)] = Loss(held, "Python, which had read it", user_span())
            return False
        if at is None and held.array is array:
            self.lost.pop(id(array), None)
        return True

    def forget(self, array: Storage) -> None:
        """All of an array is overwritten with something known."""
        self.lost.pop(id(array), None)

    def note_launch(self, plan: Plan, arrays: dict[str, Storage], who: str) -> None:
        """The same of a kernel that is not differentiated. What it adds is constant."""
        found = kinds_of_writes(plan.func.body.ops)
        kinds = {root.name: kinds for root, kinds in found.items()}
        for name in sorted(plan.written & arrays.keys()):
            if kinds.get(name, set()) != {"atomic_add"}:
                held = self.holds(arrays[name])
                if held is not None:
                    self.lost[id(held.array)] = Loss(held, who, user_span())

    def check_call(self, call: Call, names: frozenset[str]) -> None:
        """Raises GradientError if a derivative would flow through what was overwritten; `names` are
        the call's arrays with gradients. What the call overwrites is known again."""
        for name, array in call.arrays.items():
            found = self.lost.get(id(whole(array)))
            if found is None or name not in names:
                continue
            flow = flow_from(call, name)
            for target in flow:
                if target in names:
                    raise refuse(found, flow[target])
            if covering(call, name) is not None:
                del self.lost[id(whole(array))]

    def check_arrays(self, arrays: Iterable[Storage]) -> None:
        """Raises GradientError if one of these arrays was overwritten."""
        for array in arrays:
            found = self.lost.get(id(whole(array)))
            if found is not None:
                raise refuse(found, None)

    def check_loss(self, loss: Any) -> None:
        """Raises GradientError if the loss was overwritten."""
        self.check_arrays([loss])


def refuse(loss: Loss, reader: Any) -> GradientError:
    """The error for an array that a derivative would flow through."""
    held = loss.held
    span = reader.span if reader is not None else held.span
    notes: list[tuple[str, Span | None]] = []
    if reader is not None:
        notes = [(f"{held.who} put a value with a derivative there", held.span)]
    if loss.span is not None:
        notes.append(("it was overwritten here", loss.span))
    return GradientError(
        f"`{held.name}` was overwritten by {loss.who}, and whether it still depends on what stood "
        "there is unknown: the derivative would be wrong", span, notes=notes,
        help="write to it in a kernel that the tape records",
    )  # fmt: skip
