"""Derivatives that are overwritten where a tape cannot see with what: by Python, or by kernels that
it was told not to differentiate.

Owns: `Clobbers`, of one tape: which arrays hold values with a derivative, and what becomes of
them. What Python writes is a constant, so the derivative of what stood there is 0 from then on
(`log.Cut`), and what it adds leaves the derivative as it is. But Python that has read an element
may write what depends on it otherwise, as in `loss[None] *= 2`, and so may a kernel that the tape
does not differentiate. What was overwritten in this way is refused when a derivative is to flow
through it again.

So is what others than kernels changed in torch tensors. What a kernel left there is remembered,
with torch's count of its changes; where a later kernel finds something else, nobody knows whether
it still depends on what stood there. The same numbers written again through numpy or `tensor.data`
are not noticed.

Must not know: how gradients are built.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from vkchi.analysis.boxes import Box, may_meet
from vkchi.autodiff.answers import Spans
from vkchi.errors import GradientError
from vkchi.fields.elements import Access
from vkchi.fields.storage import Storage
from vkchi.interop import host
from vkchi.launch import Plan
from vkchi.span import Span, user_span
from vkchi.tape import facts
from vkchi.tape.calls import Call, leaves_of
from vkchi.tape.escapes import Note, covering, flow_from, line_of
from vkchi.tape.log import Index, Step
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

NONE: frozenset[str] = frozenset()
Read = tuple["Span | None"]


class Held(NamedTuple):
    """A part of an array that holds values with a derivative, who put them there, and where."""

    array: Storage
    name: str
    who: str
    span: Span | None
    box: Box

    @property
    def origin(self) -> Note:
        """What errors say of it."""
        return f"{self.who} puts a value with a derivative there", self.span


class Loss(NamedTuple):
    """What overwrote a part of an array with something unknown, and the user's line that did."""

    held: Held
    who: str
    span: Span | None


class Unknown(Step):
    """That something unknown stands in an array or tensor when a function with a gradient of its
    own begins, which may put a derivative there."""

    def __init__(self, loss: Loss, tensor: Any = None) -> None:
        self.loss, self.tensor = loss, tensor

    def run(self) -> None:
        """Raises GradientError if it has."""
        held = self.loss.held
        if self.tensor is not None:
            found = host.grad_of(self.tensor)
        else:
            gradient = held.array.companion("grad")
            found = gradient.contents() if gradient is not None else None
        if found is not None and found.any():
            raise refuse(self.loss, None)


class Left:
    """What a kernel left in a tensor; `held` says who put it there, `loss` who changed it."""

    def __init__(self, tensor: Any, held: Held) -> None:
        self.tensor, self.held = tensor, held
        self.view = host.array_of_torch(tensor)
        self.loss: Loss | None = None
        self.take()

    def take(self) -> None:
        """Remember what is there now."""
        self.version, self.contents = self.tensor._version, self.view.copy()

    def compare(self) -> Loss | None:
        """Note if something else is there: what was lost by that, or before."""
        is_same = self.tensor._version == self.version
        if not (is_same and np.array_equal(self.view, self.contents, equal_nan=True)):
            self.loss = self.loss or Loss(self.held, "torch or numpy", None)
        return self.loss


class Clobbers:
    """What is held; `reads`, what of it Python has read; `lost`, what was overwritten with
    something unknown, and by whom; and the same of tensors: what was `left` there."""

    def __init__(self) -> None:
        self.held: dict[int, dict[Box, Held]] = {}
        self.lost: dict[int, Loss] = {}
        self.reads: dict[int, set[Index | None]] = {}
        self.left: list[Left] = []

    def note_call(self, call: Call, stores: Spans, boxes: Mapping[str, Box]) -> list[Storage]:
        """Note where a call put values with a derivative: the ops that did so by array, and the
        parts (an array without: anywhere). What is returned are these arrays."""
        found = []
        for name, span in stores.items():
            if name in call.arrays and name not in call.hosts:
                array = call.arrays[name]
                box = boxes.get(name) or (None,) * len(array.shape)
                held = Held(array.whole, name, f"{call.name}()", line_of(span), box)
                self.hold(held)
                found.append(held.array)
        for name, tensor in call.tensors.items():
            left = next((left for left in self.left if left.tensor is tensor), None)
            if left is not None and name in call.plan.written:
                left.take()
            elif name in stores:
                who, span = f"{call.name}()", line_of(stores[name])
                self.hold(Held(call.arrays[name], name, who, span, ()), tensor)
        return found

    def hold(self, held: Held, tensor: Any = None) -> None:
        """Note that part of an array, or a tensor, holds values with a derivative."""
        if tensor is None:
            self.held.setdefault(id(held.array), {})[held.box] = held
        elif not any(left.tensor is tensor for left in self.left):
            self.left.append(Left(tensor, held))

    def origins(self, view: Any) -> list[Note]:
        """Who put values with a derivative into the memory of a numpy array, and where."""
        return [left.held.origin for left in self.left if host.may_overlap(left.view, view)]

    def holds(self, array: Storage, at: Index | None = None) -> Held | None:
        """What an array holds with a derivative, at an index or anywhere."""
        box: Box = tuple([None] * len(array.shape) if at is None else [(k, k) for k in at])
        found = self.held.get(id(array.whole), {})
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

    def written_by(self, plan: Plan, args: tuple[Any, ...]) -> list[tuple[Left, str]]:
        """What was left in the tensors that a launch writes, with the names of its parameters."""
        names = {id(arg): p.name for p, arg in leaves_of(plan, args) if p.name in plan.written}
        return [(left, names[id(left.tensor)]) for left in self.left if id(left.tensor) in names]

    @contextmanager
    def skipping(
        self, plan: Plan, args: tuple[Any, ...], arrays: Mapping[str, Storage], who: str
    ) -> Iterator[None]:
        """While a kernel runs that is not differentiated. What it adds is constant."""
        kinds = facts.kinds_of_writes(plan)
        unknown = {
            name for name in plan.written if kinds.get(name, NONE) != frozenset({"atomic_add"})
        }
        for name in sorted(unknown & arrays.keys()):
            held = self.holds(arrays[name])
            if held is not None:
                self.lost[id(held.array)] = Loss(held, who, user_span())
        found = self.written_by(plan, args)
        for left, _ in found:
            left.compare()
        yield
        for left, name in found:
            if name in unknown:
                left.loss = Loss(left.held, who, None)
            left.take()

    @contextmanager
    def ignoring(self) -> Iterator[None]:
        """While a function runs that has a gradient of its own: what it changes in tensors, that
        knows of."""
        for left in self.left:
            left.compare()
        yield
        for left in self.left:
            left.take()

    def check_call(self, call: Call, names: frozenset[str]) -> None:
        """Raises GradientError if a derivative would flow through what was overwritten; `names` are
        the call's arrays with gradients. What the call overwrites is known again."""
        for name in (name for name in call.arrays if name in names):
            key, view = id(call.arrays[name].whole), call.hosts.get(name)
            near = [x for x in self.left if view is not None and host.may_overlap(view, x.view)]
            losses = [self.lost.get(key), *(left.compare() for left in near)]
            for loss in filter(None, losses):
                flow = flow_from(call, name)
                for target in flow:
                    if target in names:
                        raise refuse(loss, (flow[target],))
            if any(losses) and covering(call, name) is not None:
                self.lost.pop(key, None)
                for left in near:
                    left.loss = None if left.tensor is call.tensors.get(name) else left.loss

    def check_arrays(self, arrays: Iterable[Storage]) -> None:
        """Raises GradientError if one of these arrays was overwritten."""
        for array in arrays:
            found = self.lost.get(id(array.whole))
            if found is not None:
                raise refuse(found, None)

    def unknown(self) -> list[Unknown]:
        """What was overwritten so far, as steps."""
        tensors = [Unknown(loss, x.tensor) for x in self.left if (loss := x.compare()) is not None]
        return [*(Unknown(loss) for loss in self.lost.values()), *tensors]

    def check_loss(self, loss: Any) -> None:
        """Raises GradientError if the loss was overwritten."""
        self.check_arrays([loss] if isinstance(loss, Storage) else ())
        for left in self.left:
            found = left.compare() if left.tensor is loss else None
            if found is not None:
                raise refuse(found, None)


def refuse(loss: Loss, reader: Read | None) -> GradientError:
    """The error for an array that a derivative would flow through, where that is read, if it is."""
    held = loss.held
    span = reader[0] if reader is not None else held.span
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
