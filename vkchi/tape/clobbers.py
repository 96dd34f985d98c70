"""Derivatives that are overwritten where a tape cannot see with what: by Python, or by kernels that
it was told not to differentiate.

Owns: `Clobbers`, of one tape: what becomes of values with a derivative that arrays hold. What
Python writes is a constant, so the derivative of what stood there is 0 from then on (`log.Cut`),
and what it adds leaves the derivative as it is. But Python that has read an element may write what
depends on it otherwise, as in `loss[None] *= 2`, and so may a kernel that the tape does not
differentiate. What was overwritten in this way is refused when a derivative is to flow through it
again.

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

from vkchi.analysis.boxes import Box
from vkchi.autodiff.answers import Spans
from vkchi.errors import GradientError
from vkchi.fields.elements import Access
from vkchi.fields.storage import Storage
from vkchi.interop import host
from vkchi.launch import Plan
from vkchi.span import Span, user_span
from vkchi.tape import facts
from vkchi.tape.calls import Call, leaves_of
from vkchi.tape.escapes import covering, flow_from, line_of
from vkchi.tape.ledger import Account, Held, Ledger, Loss, Note, box_at
from vkchi.tape.log import Step
from vkchi.types.lazy_numpy import np

NONE: frozenset[str] = frozenset()
Read = tuple["Span | None"]


class Unknown(Step):
    """That something unknown stands in an array or tensor when a function with a gradient of its
    own begins, which may put a derivative there."""

    def __init__(self, loss: Loss, memory: Any) -> None:
        self.loss, self.memory = loss, memory

    def run(self) -> None:
        """Raises GradientError if it has."""
        if isinstance(self.memory, Storage):
            gradient = self.memory.companion("grad")
            found = gradient.contents() if gradient is not None else None
        else:
            found = host.grad_of(self.memory)
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
    """What accounts say of arrays; of tensors, what was `left` there."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.left: list[Left] = []

    def note_call(self, call: Call, stores: Spans, boxes: Mapping[str, Box]) -> None:
        """Note where a call put values with a derivative: the ops that did so by array, and the
        parts (an array without: anywhere)."""
        for name, tensor in call.tensors.items():
            for left in self.left:
                if left.tensor is tensor and name in call.plan.written:
                    left.take()
        for name, span in stores.items():
            places = call.tensors if name in call.hosts else call.arrays
            if name in places:
                self.hold(places[name], name, f"{call.name}()", line_of(span), boxes.get(name))

    def hold(
        self, memory: Any, name: str, who: str, span: Span | None, box: Box | None = None
    ) -> None:
        """Note that part of an array, or (without a box) all of it, or a tensor, holds values with
        a derivative."""
        if isinstance(memory, Storage):
            box = box or box_at(memory)
            self.ledger.open(memory).held[box] = Held(name, who, span, box)
        elif not any(left.tensor is memory for left in self.left):
            self.left.append(Left(memory, Held(name, who, span, ())))

    def origins(self, view: Any) -> list[Note]:
        """Who put values with a derivative into the memory of a numpy array, and where."""
        return [left.held.origin for left in self.left if host.may_overlap(left.view, view)]

    def holds(self, array: Storage) -> Held | None:
        """What an array holds with a derivative."""
        account = self.ledger.find(array)
        return account.holds() if account is not None else None

    def lost(self, array: Storage) -> Loss | None:
        """What of that was overwritten with something unknown."""
        account = self.ledger.find(array)
        return account.loss if account is not None else None

    def forget(self, array: Storage) -> None:
        """All of an array is overwritten with something known."""
        self.ledger.open(array).loss = None

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
            account = self.ledger.find(arrays[name])
            held = account.holds() if account is not None else None
            if account is not None and held is not None:
                account.loss = Loss(held, who, user_span())
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
            array, view = call.arrays[name], call.hosts.get(name)
            near = [x for x in self.left if view is not None and host.may_overlap(view, x.view)]
            losses = [self.lost(array), *(left.compare() for left in near)]
            for loss in filter(None, losses):
                flow = flow_from(call, name)
                for target in flow:
                    if target in names:
                        raise refuse(loss, (flow[target],))
            if any(losses) and covering(call, name) is not None:
                self.forget(array)
                for left in near:
                    left.loss = None if left.tensor is call.tensors.get(name) else left.loss

    def check_arrays(self, arrays: Iterable[Storage]) -> None:
        """Raises GradientError if one of these arrays was overwritten."""
        for array in arrays:
            found = self.lost(array)
            if found is not None:
                raise refuse(found, None)

    def unknown(self) -> list[Unknown]:
        """What was overwritten so far, as steps."""
        arrays = [(a.loss, a.array) for a in self.ledger.accounts.values()]
        found = [*arrays, *((left.compare(), left.tensor) for left in self.left)]
        return [Unknown(loss, memory) for loss, memory in found if loss is not None]

    def check_loss(self, loss: Any) -> None:
        """Raises GradientError if the loss was overwritten."""
        self.check_arrays([loss] if isinstance(loss, Storage) else ())
        for left in self.left:
            found = left.compare() if left.tensor is loss else None
            if found is not None:
                raise refuse(found, None)


def overwrite_held(account: Account, array: Storage, access: Access) -> bool:
    """Python is about to write to an array, or a component of it; whether that is a constant over
    something with a derivative."""
    at = None if access.at is None else access.at[: len(array.shape)]
    held, reads = account.holds(at), account.reads
    if held is None or access.is_sum:
        return False  # a constant more: the derivative of what stood there is that of the sum
    if access.kind == "write" and reads and (at is None or at in reads or None in reads):
        account.loss = Loss(held, "Python, which had read it", user_span())
        return False
    if at is None and account.array is array:
        account.loss = None
    return True


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
