"""Arrays with gradients that hold constants: what is computed from them has no derivative, though
their kind may have one. So a solver may begin with `x = 0`, and keep its residual in arrays without
gradient.

Owns: `Constants`, of one tape: arrays that were overwritten with constants, all of each, since it
began, and that nobody has put a derivative into since; some are, provided that what Python put into
arrays is taken for constants (`fills`). Must not know: how gradients are built.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from vkchi.autodiff.answers import GradientSpec, Outflow, Spans
from vkchi.errors import GradientError
from vkchi.fields.storage import Storage
from vkchi.tape import facts
from vkchi.tape.calls import Call, Gradients, plan_gradient
from vkchi.tape.escapes import Fill, covering
from vkchi.tape.log import Index
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.tape.plan import GradientPlan


class Constant(NamedTuple):
    """An array that holds constants, provided that these fills are."""

    array: Storage
    fills: frozenset[Fill] = frozenset()


class Constants:
    """Which arrays do so now."""

    def __init__(self) -> None:
        self.arrays: dict[int, Constant] = {}
        self.fills: list[Fill] = []
        self.elements: dict[int, set[Index]] = {}  # that Python has put numbers into, one by one

    def note_cut(self, array: Storage) -> None:
        """Python has overwritten all of an array that held something with a derivative."""
        if array.whole is array:
            self.arrays[id(array)] = Constant(array)

    def note_fill(self, array: Storage, at: Index | None) -> None:
        """Python has overwritten an element, or (None) all of an array that held nothing of the
        kind: with an input, perhaps."""
        is_input = array.whole is array and array.companion("grad") is not None
        if not is_input or id(array) in self.arrays:
            return
        known = set[Index]() if at is None else self.elements.setdefault(id(array), set())
        if at is not None and len(at) == len(array.shape):
            known.add(at)
        if at is None or len(known) == math.prod(array.shape):
            self.fills.append(Fill(array))
            self.elements.pop(id(array), None)
            self.arrays[id(array)] = Constant(array, frozenset(self.fills[-1:]))

    def forbid(self) -> None:
        """The gradients of arrays, by what Python put there, that are not known."""
        for fill in self.fills:
            gradient = fill.array.companion("grad")
            if fill.lost and gradient is not None:
                fill.forbid(gradient)

    def drop(self, arrays: Iterable[Storage]) -> None:
        """Something unknown may be put into these."""
        for array in arrays:
            self.arrays.pop(id(array.whole), None)
            self.elements.pop(id(array.whole), None)

    def of(self, call: Call, names: frozenset[str]) -> dict[str, frozenset[Fill]]:
        """The arrays of a call, of those with gradients, that do, provided that some fills are
        constant."""
        if not self.arrays:
            return {}
        found = {n: self.arrays.get(id(call.arrays[n])) for n in names & call.arrays.keys()}
        return {n: unsettled(c.fills) for n, c in found.items() if c is not None}

    def note_call(self, call: Call, flows: Flows, constant: Mapping[str, frozenset[Fill]]) -> None:
        """A call found the arrays `constant` as constants, and has put derivatives into arrays.
        What else it writes stays so, or becomes so if that is all of an array."""
        for name in call.plan.written & call.arrays.keys() - call.hosts.keys():
            array = call.arrays[name]
            if name in flows.all.stores or array.whole is not array:
                continue
            if name in constant or covering(call, name) is not None:
                fills = (
                    flows.fills if name in flows.surely.stores else constant.get(name, frozenset())
                )
                self.arrays[id(array)] = Constant(array, fills)


class Flows(NamedTuple):
    """Where a call puts derivatives: if `none` of its arrays is constant; if those are that are so
    `surely`; and if `all` are that are so provided that some `fills` are constant. What is only in
    the second is by these fills, and by nothing else."""

    none: Outflow
    surely: Outflow
    all: Outflow
    fills: frozenset[Fill]

    @property
    def given(self) -> Spans:
        """The arrays without gradient that hold derivatives by fills."""
        found, others = self.surely.escapes, self.all.escapes
        return {name: op for name, op in found.items() if name not in others}


def plan_where_known(
    call: Call, gradients: Gradients, constant: Mapping[str, frozenset[Fill]]
) -> GradientPlan:
    """The gradient of a call that finds the arrays `constant` as constants, perhaps. Raises
    GradientError where another derivative gets lost in it."""
    try:
        return plan_gradient(call, gradients)
    except GradientError as error:
        if not constant:
            raise
        made = plan_gradient(call, gradients, constant=frozenset(constant))
        for fill in frozenset[Fill]().union(*constant.values()):
            fill.settle((*error.notes, ("it is read here", error.span)))
        return made


def flows_of(call: Call, spec: GradientSpec, constant: Mapping[str, frozenset[Fill]]) -> Flows:
    """Those of a call that found the arrays `constant` as constants, perhaps."""
    sure = [name for name, fills in constant.items() if not fills]
    none, surely, all_ = (
        facts.outflow(call.plan, spec, call.case, frozenset(names))
        for names in ((), sure, constant)
    )
    return Flows(none, surely, all_, frozenset[Fill]().union(*constant.values()))


def unsettled(fills: frozenset[Fill]) -> frozenset[Fill]:
    """Those that are not constants for sure."""
    return frozenset(fill for fill in fills if not fill.lost)
