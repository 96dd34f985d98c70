"""Arrays with gradients that hold constants: what is computed from them has no derivative, though
their kind may have one. So a solver may begin with `x = 0`, and keep its residual in arrays without
gradient.

Owns: `Constants`, of one tape: arrays that were overwritten with constants, all of each, since it
began, and that nobody has put a derivative into since; some are, provided that what Python put into
arrays is taken for constants (`fills`). Must not know: how gradients are built.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vkchi.autodiff.answers import GradientSpec, Outflow, Spans
from vkchi.errors import GradientError
from vkchi.fields.storage import Storage
from vkchi.tape.breaks import covering
from vkchi.tape.calls import Call, Gradients, plan_gradient
from vkchi.tape.derived import facts
from vkchi.tape.ledger import Fill, Fills, Index, Ledger
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.tape.plan import GradientPlan

NOTHING: frozenset[str] = frozenset()
NO_FILLS: Fills = Fills()


class Constants:
    """Those that accounts know of; `fills` are what Python put into arrays."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.fills: list[Fill] = []

    def note_fill(self, array: Storage, at: Index | None) -> None:
        """Python overwrites an element, or (None) all of an array that holds nothing with a
        derivative: with an input, perhaps."""
        if array.whole is not array or array.companion("grad") is None:
            return
        account = self.ledger.open(array)
        if account.fills is not None:
            return
        if at is not None and len(at) == len(array.shape):
            account.puts.add(at)
        if at is None or len(account.puts) == math.prod(array.shape):
            self.fills.append(Fill(array))
            account.puts.clear()
            account.fills = frozenset(self.fills[-1:])

    def forbid(self) -> None:
        """The gradients of arrays, by what Python put there, that are not known."""
        for fill in self.fills:
            gradient = fill.array.companion("grad")
            if fill.lost and gradient is not None:
                fill.forbid(gradient)

    def of(self, call: Call, names: frozenset[str]) -> dict[str, Fills]:
        """The arrays of a call, of those with gradients, that do, provided that some fills are
        constant."""
        found = {}
        for name in names & call.arrays.keys():
            array = call.arrays[name]
            account = self.ledger.find(array)
            if account is not None and account.fills is not None and account.array is array:
                found[name] = account.fills
        return found

    def note_call(self, call: Call, flows: Flows, constant: Mapping[str, Fills]) -> None:
        """A call found the arrays `constant` as constants, and has put derivatives into arrays.
        What else it writes stays so, or becomes so if that is all of an array."""
        for name in call.plan.written & call.arrays.keys():
            array = call.arrays[name]
            if name in flows.all.stores or array.whole is not array or name in call.hosts:
                continue
            if name in constant or covering(call, name) is not None:
                fills = flows.fills if name in flows.surely.stores else constant.get(name, Fills())
                self.ledger.open(array).fills = fills


class Flows(NamedTuple):
    """Where a call puts derivatives: if `none` of its arrays is constant; if those are that are so
    `surely`; and if `all` are that are so provided that some `fills` are constant. What is only in
    the second is by these fills, and by nothing else."""

    none: Outflow
    surely: Outflow
    all: Outflow
    fills: Fills

    @property
    def given(self) -> Spans:
        """The arrays without gradient that hold derivatives by fills."""
        found, others = self.surely.escapes, self.all.escapes
        return {name: op for name, op in found.items() if name not in others}


def plan_where_known(
    call: Call, gradients: Gradients, constant: Mapping[str, Fills]
) -> GradientPlan:
    """The gradient of a call that finds the arrays `constant` as constants, perhaps. Raises
    GradientError where another derivative gets lost in it."""
    try:
        return plan_gradient(call, gradients)
    except GradientError as error:
        if not constant:
            raise
        made = plan_gradient(call, gradients, constant=frozenset(constant))
        for fill in Fills().union(*constant.values()):
            fill.mark_constant((*error.notes, ("it is read here", error.span)))
        return made


def flows_of(call: Call, spec: GradientSpec, constant: Mapping[str, Fills]) -> Flows:
    """Those of a call that found the arrays `constant` as constants, perhaps."""
    none = facts.outflow(call.plan, spec, call.case, NOTHING)
    if not constant:
        return Flows(none, none, none, NO_FILLS)
    sure = [name for name, fills in constant.items() if not fills]
    surely, all_ = (
        facts.outflow(call.plan, spec, call.case, frozenset(names)) for names in (sure, constant)
    )
    return Flows(none, surely, all_, NO_FILLS.union(*constant.values()))


def pending(fills: Fills) -> Fills:
    """Those that are not constants for sure."""
    return frozenset(fill for fill in fills if not fill.lost)
