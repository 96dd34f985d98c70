"""Calls that were analyzed before: with the same arrays, integers and constant arrays.

The analysis of such a call gives the same `CallFacts`, unless one of its arrays holds a lost
gradient or an unknown value. A tape then only updates the accounts of the arrays and launches the
kernel. Tapes with `memory`, `validation` or `grad_check` analyze every call.

    found = known.find(name, kernel, args)     # None if this call must be analyzed
    result = known.launch(found)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vkchi.analysis.memory.boxes import Box
from vkchi.calls.call import KernelCall
from vkchi.calls.repeated import MOST_CASES, RepeatedTapedCall, find_repeated
from vkchi.fields.array_versions import Read, point_of
from vkchi.interrupts.weak import insert_bounded
from vkchi.tape.ledger import Definition, Ledger, box_at
from vkchi.tape.log import TapeStep
from vkchi.tape.lost_gradients import uses_of
from vkchi.tape.snapshots import Snapshots
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vkchi.launch.compiled_kernel import CompiledKernel
    from vkchi.tape.log import RecordedCall
    from vkchi.tape.plan import GradientPlan

Parts = tuple[tuple[str, Definition], ...]  # by parameter name
NO_FILLS: frozenset[Any] = frozenset()


class CallFacts(NamedTuple):
    """Facts about a recorded call, for calls with the same arrays, integers and constant arrays.

    - `made`: its gradient.
    - `needs`: the parts of arrays that the gradient reads, with `point_of` the boxes.
    - `writes`: the arrays that the kernel writes, with the parts.
    - `stores`: the parts where it stores values with a derivative.
    - `uses`: the parts of differentiable arrays that it reads.
    - `constants`: arrays that hold constants afterwards.
    """

    made: GradientPlan
    needs: tuple[tuple[str, Box, int | None], ...]
    writes: tuple[tuple[str, Box], ...]
    stores: Parts
    uses: Parts
    constants: tuple[str, ...]


class BoundCall:
    """A cached call in one tape: its arrays with their accounts, and its gradient.

    `watched` are the arrays whose gradient may change, with it (None: without one).
    """

    def __init__(self, ledger: Ledger, repeated: RepeatedTapedCall, args: tuple[Any, ...]) -> None:
        arrays = repeated.arrays(args)
        self.repeated, self.arrays = repeated, arrays
        self.accounts = {name: ledger.open(array) for name, array in arrays.items()}
        found = [(name, arrays[name].companion("grad")) for name in repeated.smooth]
        self.gradients = {name: gradient for name, gradient in found if gradient is not None}
        self.watched = [(arrays[name], gradient) for name, gradient in found
                        if repeated.smooth[name] or gradient is None]  # fmt: skip
        self.made = repeated.gradient(self.gradients)

    def is_current(self) -> bool:
        """True if the arrays have the same gradients as before."""
        return all([array.companion("grad") is adjoint for array, adjoint in self.watched])

    def facts(self, args: tuple[Any, ...]) -> CallFacts | None:
        """Return the facts about a call; None if these are unknown or depend on accounts."""
        constant = []
        for name, account in self.accounts.items():
            if account.escapes or account.loss is not None:
                return None
            if account.fills is not None:
                if account.fills:
                    return None
                if name in self.gradients and account.array is self.arrays[name]:
                    constant.append(name)
        numbers = tuple(self.repeated.numbers(args).items())
        found: CallFacts | None = self.repeated.known.get((numbers, tuple(constant)))
        return found if found is not None and found.made is self.made else None


class KnownCall(TapeStep):
    """A recorded call with known facts.

    `reads` are the parts that its gradient reads, as they were before the call.
    """

    def __init__(
        self, name: str, bound: BoundCall, args: tuple[Any, ...], facts: CallFacts
    ) -> None:
        self.name, self.bound, self.args, self.facts = name, bound, args, facts
        self.reads: dict[str, Read] = {}

    def run(self) -> None:
        bound, memory = self.bound, self.bound.arrays
        for name, read in self.reads.items():
            if read.copy is not None:
                memory = {**memory, name: read.copy}
        self.facts.made.launch(self.args, memory, bound.gradients, bound.repeated)


class KnownCalls:
    """Finds and launches the calls of one tape that were analyzed before."""

    def __init__(self, ledger: Ledger, snapshots: Snapshots) -> None:
        self.ledger, self.snapshots = ledger, snapshots
        self.bound: dict[int, BoundCall] = {}  # by id of the data shared by calls
        self.used: dict[int, CallFacts] = {}  # facts whose uses are recorded, by id

    def find(self, name: str, kernel: CompiledKernel, args: tuple[Any, ...]) -> KnownCall | None:
        """Return a call with its facts; None without facts."""
        repeated = find_repeated(kernel, args)
        if repeated is None or not repeated.known:
            return None
        bound = self.bound.get(id(repeated))
        if bound is None or not bound.is_current():
            bound = BoundCall(self.ledger, repeated, args)
            if bound.made is None:
                return None
            self.bound[id(repeated)] = bound
        facts = bound.facts(args)
        return KnownCall(name, bound, args, facts) if facts is not None else None

    def launch(self, call: KnownCall) -> Any:
        """Save the contents that a call overwrites and gradients will read; run it and record where
        it stores derivatives. Return its result. Raises DeviceError if memory is short."""
        facts, bound = call.facts, call.bound
        arrays, accounts = bound.arrays, bound.accounts
        if facts.made.rooms:
            facts.made.reserve(call.args, arrays)
        for name, box, point in facts.needs:
            call.reads[name] = accounts[name].history.want(arrays[name], box, point)
        for name, box in facts.writes:
            account = accounts[name]
            account.note_kernel()
            if account.history.reads.groups:
                account.history.save(box, self.snapshots.copy)
        result = bound.repeated.call.launch(call.args)
        for name, part in facts.stores:
            accounts[name].held.put(part)
        for name in facts.constants:
            accounts[name].fills = NO_FILLS
        if id(facts) not in self.used:
            for name, part in facts.uses:
                accounts[name].use(part)
            self.used[id(facts)] = facts
        return result

    def remember(
        self, entry: RecordedCall, constant: Iterable[str], stores: Iterable[str],
        boxes: Mapping[str, Box], kind: str,
    ) -> None:  # fmt: skip
        """Let later calls use the facts about an analyzed call, after it has been recorded.

        It had these `constant` arrays, and wrote to these `boxes`. It stored derivatives in the
        arrays `stores`. Its other results have none.
        """
        call, repeated = entry.call, entry.call.repeated
        assert repeated is not None
        accounts = {name: self.ledger.open(array) for name, array in call.arrays.items()}
        written = sorted(call.kernel.written & accounts.keys())
        parts = [(name, boxes.get(name) or box_at(call.arrays[name])) for name in stores]
        facts = CallFacts(
            entry.plan,
            tuple([(name, box, point_of(box)) for name, box in entry.plan.needs(call).items()]),
            tuple([(name, boxes.get(name, ())) for name in written]),
            tuple([(name, accounts[name].held.group(point_of(box))[box]) for name, box in parts]),
            tuple(uses_of(call, call.case, kind)),
            tuple([name for name in written if accounts[name].fills is not None]),
        )  # fmt: skip
        key = call.case[0], tuple([name for name in call.arrays if name in constant])
        insert_bounded(repeated.known, key, facts, MOST_CASES)


def may_be_known(entry: RecordedCall) -> bool:
    """True if later calls may use the facts about a call.

    Its kernel is not one of vkchi's own. Its data is cached (`repeated`) with the gradient of this
    call. It has no races, logged draws, variant, or gradients as arguments. Lost derivatives raise
    rather than warn.
    """
    call: KernelCall = entry.call
    return (
        call.repeated is not None
        and call.missing == "error"
        and entry.race is None
        and not (call.kernel.is_ours or entry.drawn or entry.form)
        and call.repeated.gradient(entry.gradients.arrays) is entry.plan
        and not any(array.is_gradient for array in call.arrays.values())
    )
