"""Exchanges and reductions inside tapes, as steps that all ranks run in the same order.

An exchange or reduction of halos is three events: a kernel packs, a message is sent, a kernel
unpacks. The tape differentiates the kernels. The step of the message sends the adjoint of the
received buffer back, and adds it to that of the sent one. So the adjoint of an exchange adds halos'
adjoints to their owners and clears them; that of a reduction of halos is an exchange of adjoints.

The adjoint of a sum over ranks is the sum of the ranks' adjoints of its result, for each cell.
Tapes differentiate the sum of the losses of all ranks. A loss that is computed from reductions
alone is the same on all ranks, and counts on rank 0.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkchi.distributed.exchange import Plan
from vkchi.distributed.group import Group
from vkchi.distributed.kernels import pack, unpack
from vkchi.distributed.reductions import Reduction
from vkchi.errors import GradientError
from vkchi.fields.storage import Storage
from vkchi.ir.core import Func, walk
from vkchi.ir.ops import is_loop
from vkchi.ndarray import ndarray
from vkchi.tape.hosted import HostStep, add_slope, take_slope, traced_number
from vkchi.tape.ledger import HostAccount
from vkchi.tape.log import Launch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[Any]

OWN, COMMON = 1, 2  # bits: values of this rank alone; results of reductions


class CollectiveStep(HostStep):
    """A recorded step of all ranks.

    Its gradient always runs, even if it is 0: other ranks wait for it. To repeat the step, the tape
    stores the result again, without messages: ranks may differ in what `Tape(memory=)` repeats.
    """

    function: Any  # with an attribute `group`

    def repeat(self) -> None:
        if self.function.group.size == 1:
            super().repeat()
        elif isinstance(self.output, Storage):
            self.output.put_unnoticed(self.result)
        else:
            self.output.memory[...] = self.result

    def run(self) -> None:
        slopes = self.function.slopes(take_slope(self.output), self.result, self.found)
        for x, more in zip(self.inputs, slopes, strict=True):
            if more.any():
                add_slope(x, more)


def check_recordable(group: Group, who: str, tape: Any) -> None:
    """Raise GradientError for a recording that does not differentiate host computations."""
    if tape.kind != "grad" or not tape.records_functions:
        raise GradientError(
            f"grid.{who}() is differentiated by ti.ad.Tape, not in forward mode or by ti.ad.hvp: "
            "leave them out"
        )
    if group.size > 1 and tape.grad_check:
        raise GradientError(
            f"grid.{who}() in a tape with grad_check=, which changes inputs one by one on each "
            "rank: leave it out, or run on one rank"
        )
    if tape.is_paused:
        raise GradientError(
            f"grid.{who}() is not recorded in functions of ti.ad.grad_replaced and "
            "ti.ad.no_grad, nor while gradients run: call it outside of them"
        )


# --- halos ---------------------------------------------------------------------------------------


class HaloMessage:
    """The messages of one operation on one field, as a function of the packed values."""

    def __init__(self, group: Group, plan: Plan, who: str, *, is_reversed: bool) -> None:
        self.group, self.plan, self.operation = group, plan, f"{who}()"
        self.is_reversed, self.who = is_reversed, f"grid.{who}()"

    def value(self, *inputs: Values) -> Values:
        return self._send(self.operation, inputs[0], is_reversed=self.is_reversed)

    def slopes(self, slope: Values, result: Values, inputs: Sequence[Values]) -> Sequence[Values]:
        operation = f"the gradient of {self.operation}"
        return (self._send(operation, slope, is_reversed=not self.is_reversed),)

    def _send(self, operation: str, values: Values, *, is_reversed: bool) -> Values:
        given, taken = self.plan.sides(is_reversed=is_reversed)
        digest = self.group.begin(operation, self.plan.facts)
        given.boxes[0].store(values)
        works = self.group.post(operation, digest, taken.posts[False], given.posts[False])
        self.group.wait(operation, works)
        return taken.boxes[0].load()


def run_in_tape(
    group: Group, plans: Sequence[tuple[Plan, Sequence[Storage]]], tape: Any, who: str, *,
    is_reversed: bool = False,
) -> None:  # fmt: skip
    """Exchange or reduce the halos of the field of each plan, and record that. Raises GradientError
    where a recording does not differentiate host computations."""
    check_recordable(group, who, tape)
    for plan, (x,) in plans:
        has_grad = x.has_grad()
        given, taken = (side.boxes[0] for side in plan.sides(is_reversed=is_reversed))
        if not given.count:
            continue
        if not plan.buffers:
            counts = [side.boxes[0].count for side in (plan.sent, plan.received)]
            plan.buffers = tuple([ndarray(x.elem, count, has_grad) for count in counts])
        sent, received = reversed(plan.buffers) if is_reversed else plan.buffers
        pack(x, sent, given.numbered, is_reversed)
        if x.is_gradient or tape.lost_in(sent):
            raise GradientError(
                f"grid.{who}(): {x!r} holds values whose derivative is lost here, and other "
                "ranks would use them: make the field with needs_grad=True, or call it outside of "
                "the tape"
            )
        message = HaloMessage(group, plan, who, is_reversed=is_reversed)
        result = message.value(sent.contents())
        if has_grad:
            received.put_unnoticed(result)
            tape.record(message, [sent], [], result, received, step=CollectiveStep)
        else:
            received.from_numpy(result)
        unpack(x, received, taken.numbered, is_reversed)


# --- reductions ----------------------------------------------------------------------------------


def reduce_in_tape(function: Reduction, tape: Any, out: Storage | None) -> tuple[Values, Any]:
    """Reduce fields, and record sums; return the result, and that for the user. Raises
    GradientError as `check_recordable`, and for extrema stored into an array with a gradient."""
    group, name, fields = function.group, function.name, function.fields
    check_recordable(group, name, tape)
    is_recorded = tape.may_record(fields)
    if is_recorded and name in ("min", "max"):
        if out is not None and out.has_grad():
            raise GradientError(
                f"{function.who} is not differentiated: give an `out` without gradient, or store "
                "float(...) of the result, a constant"
            )
        is_recorded = False
    values = [x.seen() for x in fields]
    result = function.value(*values)
    if is_recorded:
        owned = [x[place] for x, place in zip(values, function.places)]
        saved = owned[::-1] if name == "dot" else []
        tape.record(function, fields, saved, result, result, step=CollectiveStep)
        tape.adjust_seeds = SeedAdjuster(group, tape)
    way = f"{function.who} took it from there here"
    tape.note_detached(fields, result, way, is_shown=is_recorded)
    shown = result if result.ndim else traced_number(result) if is_recorded else result.item()
    return result, shown


class SeedAdjuster:
    """Cotangents of outputs: 0 on other ranks than 0 for outputs computed from reductions alone."""

    def __init__(self, group: Group, tape: Any) -> None:
        self.group, self.tape = group, tape

    def __call__(self, seeds: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        sources, found = self.sources(), []
        for output, cotangent in seeds:
            is_tensor = not isinstance(output, Storage)  # of torch: its writers are not followed
            mine = OWN | COMMON if is_tensor else sources.get(id(output.whole), OWN)
            bits = zlib.crc32(output.contents().tobytes()) if mine == COMMON else 0
            rows = self.group.share("the gradient of reductions", [mine, bits])
            if any(row != [mine, bits] for row in rows):
                raise self.error("it is computed otherwise on other ranks")
            if mine == OWN | COMMON:
                raise self.error("it also has values of this rank")
            is_other = mine == COMMON and self.group.rank > 0
            found.append((output, 0.0 if is_other else cotangent))
        return found

    def error(self, why: str) -> GradientError:
        return GradientError(
            f"the loss is computed from results of grid.sum() or grid.dot(), and {why}",
            help="store values of cells into a field v of the grid, add them by "
            "grid.sum(v, out=s), and compute the loss from such results alone, without loops",
        )  # fmt: skip

    def sources(self) -> dict[int, int]:
        """Sources of the derivatives in arrays and host accounts, by id.

        Fields of more than one element have values of this rank. So has a result of a kernel with
        loops, which may have other bounds on other ranks, or with such arrays.
        """
        found = {id(self.tape.loss): 0}
        for step in self.tape.entries:
            bits, outputs = 0, []
            if isinstance(step, HostStep):
                is_reduction = isinstance(step.function, Reduction)
                bits, outputs = COMMON if is_reduction else 0, [step.output]
                for x in () if is_reduction else step.inputs:
                    bits |= found.get(id(x), OWN)
            elif isinstance(step, Launch):
                arrays, facts = step.bound.arrays, step.facts
                outputs = [arrays[name].whole for name, _ in facts.stores]
                for name, _ in facts.uses:
                    bits |= found.get(id(arrays[name].whole), OWN)
                is_single = all(x.size == 1 for x in arrays.values())
                has_hosts = step.special is not None and step.special.call.hosts
                if not is_single or has_hosts or has_loops(step.plan.kernel.func):
                    bits |= OWN
            for x in outputs:
                is_single = isinstance(x, HostAccount) or x.size == 1
                found[id(x)] = found.get(id(x), 0) | bits if is_single else OWN
        return found


def has_loops(fn: Func) -> bool:
    """True if an op of the kernel may run more than once."""
    return any(op.kind == "parallel" or is_loop(op) for op in walk(fn.body))
