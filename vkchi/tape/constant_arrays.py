"""Constant propagation through arrays.

A constant has no derivative, even in an array that has a `grad`. A solver may therefore begin with
`x = 0` and keep its residual in arrays without a gradient.

`ConstantArrays` belongs to one recording. It tracks arrays that were overwritten completely with
constants, and have received no derivative since. Some are constant only on condition that the
values Python stored there (`fills`) are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vkchi.autodiff.results import DerivativeOutflow, GradientSpec, Spans
from vkchi.calls.call import KernelCall
from vkchi.calls.facts import facts
from vkchi.errors import GradientError
from vkchi.fields.storage import Storage
from vkchi.tape.adjoints import CallAdjoints
from vkchi.tape.ledger import Fills, Index, Ledger, PythonFill
from vkchi.tape.lost_gradients import covering
from vkchi.tape.plan import plan_gradient
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.tape.plan import GradientPlan

NOTHING: frozenset[str] = frozenset()
NO_FILLS: Fills = Fills()


class ConstantArrays:
    """Queries and updates of constant arrays; `fills` are the complete overwrites by Python."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.fills: list[PythonFill] = []

    def note_fill(self, array: Storage, at: Index | None) -> None:
        """Record that Python overwrites an element, or (None) all of an array.

        Precondition: the array holds no derivative. Once all elements are overwritten, it is
        constant, provided that this `PythonFill` is. Components and arrays without gradient are
        ignored.
        """
        if array.whole is not array or array.companion("grad") is None:
            return
        account = self.ledger.open(array)
        if account.fills is not None:
            return
        if at is not None and len(at) == len(array.shape):
            account.puts.add(at)
        if at is None or len(account.puts) == math.prod(array.shape):
            self.fills.append(PythonFill(array))
            account.puts.clear()
            account.fills = frozenset(self.fills[-1:])

    def forbid(self) -> None:
        """Fill the gradients of arrays whose Python-stored values count as constants with NaN.

        Reading these gradients from Python then raises GradientError.
        """
        for fill in self.fills:
            gradient = fill.array.companion("grad")
            if fill.lost and gradient is not None:
                fill.forbid(gradient)

    def of(self, call: KernelCall, names: frozenset[str]) -> dict[str, Fills]:
        """Return the constant arrays of a call among `names`, with the fills they depend on.

        Components of arrays do not count.
        """
        found = {}
        for name in names & call.arrays.keys():
            array = call.arrays[name]
            account = self.ledger.find(array)
            if account is not None and account.fills is not None and account.array is array:
                found[name] = account.fills
        return found

    def note_call(
        self, call: KernelCall, flows: DerivativeFlows, constant: Mapping[str, Fills]
    ) -> None:
        """Update the accounts of arrays that a call wrote.

        The call read the arrays in `constant` as constants. An array that receives no derivative
        stays constant, or becomes constant if the call overwrites all of it.
        """
        for name in call.kernel.written & call.arrays.keys():
            array = call.arrays[name]
            if name in flows.all.stores or array.whole is not array or name in call.hosts:
                continue
            if name in constant or covering(call, name) is not None:
                fills = flows.fills if name in flows.surely.stores else constant.get(name, Fills())
                self.ledger.open(array).fills = fills


class DerivativeFlows(NamedTuple):
    """Destinations of derivatives in a call, under three assumptions about its arrays.

    - `none`: no array is constant.
    - `surely`: only arrays without undecided fills are constant.
    - `all`: arrays that depend on `fills` are constant, too.

    Destinations in `surely` but not in `all` only have derivatives with respect to these fills.
    """

    none: DerivativeOutflow
    surely: DerivativeOutflow
    all: DerivativeOutflow
    fills: Fills

    @property
    def given(self) -> Spans:
        found, others = self.surely.escapes, self.all.escapes
        return {name: op for name, op in found.items() if name not in others}


def plan_where_known(
    call: KernelCall, gradients: CallAdjoints, constant: Mapping[str, Fills]
) -> GradientPlan:
    """Return the gradient of a call, or else one that treats the arrays in `constant` as constants.

    In the second case their fills are marked as constants. Raises GradientError if a derivative is
    lost in both.
    """
    try:
        return plan_gradient(call, gradients)
    except GradientError as error:
        if not constant:
            raise
        made = plan_gradient(call, gradients, constant=frozenset(constant))
        for fill in Fills().union(*constant.values()):
            fill.mark_constant((*error.notes, ("it is read here", error.span)))
        return made


def flows_of(
    call: KernelCall, spec: GradientSpec, constant: Mapping[str, Fills]
) -> DerivativeFlows:
    none = facts.outflow(call.kernel, spec, call.case, NOTHING)
    if not constant:
        return DerivativeFlows(none, none, none, NO_FILLS)
    sure = [name for name, fills in constant.items() if not fills]
    surely, all_ = (
        facts.outflow(call.kernel, spec, call.case, frozenset(names)) for names in (sure, constant)
    )
    return DerivativeFlows(none, surely, all_, NO_FILLS.union(*constant.values()))


def undecided_fills(fills: Fills) -> Fills:
    return frozenset(fill for fill in fills if not fill.lost)
