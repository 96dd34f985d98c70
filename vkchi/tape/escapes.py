"""Derivatives that would be lost: values put into arrays without gradient and read again.

Owns: finding them, and the errors. Must not know: tapes.
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
from vkchi.tape.ledger import Account, Escape, Fills, Index, Ledger, box_at
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    Values = np.ndarray[Any, Any]


class Escapes:
    """All of a tape, or of forward mode: by accounts, or, of `hosts`, arrays in host memory."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.hosts: list[Escape] = []

    def note(
        self, call: Call, escapes: Spans, *, is_bits: bool = False, fills: Fills = frozenset()
    ) -> None:
        """Note arrays of a call, by parameter name, that now hold something with a derivative (by
        `fills` only), or bits, and where that was put there."""
        boxes = facts.touched(call.plan, "writes", call.case) if escapes else {}
        what = "bits of a value" if is_bits else "a value"
        for name, span in escapes.items():
            if name in call.arrays:
                origin = (f"{call.name}() puts {what} with a derivative there", line_of(span))
                box = boxes.get(name) or box_at(call.arrays[name])
                self.add(Escape(memory_of(call, name), name, origin, box, is_bits, (), fills))

    def add(self, escape: Escape) -> None:
        """Note one."""
        if not isinstance(escape.array, Storage):
            self.hosts.append(escape._replace(box=()))
            return
        account = self.ledger.open(escape.array)
        account.escapes[escape.box, escape.fills] = escape
        account.puts.clear()

    def pass_on(self, found: Iterable[Escape], target: Storage | Values, way: str) -> None:
        """Note that what Python computed from some arrays, losing the derivatives that they hold,
        is now in another."""
        step = (way, user_span())
        box = box_at(target) if isinstance(target, Storage) else ()
        for escape in found:
            self.add(escape._replace(array=target, box=box, ways=(*escape.ways, step)))

    def of(self, array: Storage | Values) -> list[Escape]:
        """What is known of an array, on the device or in host memory."""
        if isinstance(array, Storage):
            account = self.ledger.find(array)
            found = list(account.escapes.values()) if account is not None else []
        else:
            found = [t for t in self.hosts if host.may_overlap(t.array, array)]
        return [t for t in found if not t.is_settled]

    def check(
        self, call: Call, names: frozenset[str], need: str, others: Iterable[tuple[str, Escape]]
    ) -> None:
        """Raises GradientError if a call reads a derivative out of an array that has no place for
        it and puts it into one of the arrays `names`, which have. What it overwrites is forgotten,
        and what it puts elsewhere is noted. Derivatives by what Python put somewhere may get lost:
        that is a constant from then on. `others` are known elsewhere, by names."""
        found = [*((n, t) for n in call.arrays for t in self.of(memory_of(call, n))), *others]
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
        for _, escape, flow in flows:
            if not escape.is_settled:
                values, bits = flow.left
                self.note(call, values, fills=escape.fills)
                self.note(call, bits, is_bits=True, fills=escape.fills)

    def remove(self, call: Call, name: str, escape: Escape) -> None:
        """Part of an array is overwritten."""
        view = call.hosts.get(name)
        if view is None:
            self.ledger.open(escape.array).escapes.pop((escape.box, escape.fills), None)
        elif host.is_same_view(view, escape.array):
            self.hosts = [t for t in self.hosts if t is not escape]


def memory_of(call: Call, name: str) -> Storage | Values:
    """Where a call's array lies: on the device, or in host memory."""
    found: Storage | Values = call.hosts.get(name, call.arrays[name].whole)
    return found


def overwrite_escapes(account: Account, access: Access) -> None:
    """Python is about to write a constant to an array: it does so for all that is known, unless it
    has read the array before."""
    array, found = account.array, account.escapes
    if access.kind == "fill" or (access.at is None and not account.reads):
        found.clear()
    elif access.at is not None and not account.reads and len(access.at) == len(array.shape):
        account.puts.add(access.at)
        for place in [k for k in found if is_cleared(k[0], array.shape, account.puts)]:
            del found[place]


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
