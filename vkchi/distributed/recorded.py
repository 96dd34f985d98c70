"""Exchanges and reductions of halos inside tapes: a kernel packs, a message is sent, a kernel
unpacks.

The tape differentiates the kernels. The step of the message sends the adjoint of the received
buffer back, and adds it to that of the sent one. So the adjoint of an exchange adds halos' adjoints
to their owners and clears them; that of a reduction is an exchange of adjoints.

All ranks run the same steps, in the same order. A step is not skipped if its adjoint is 0: the
neighbours wait for it. To repeat a step, the tape stores the received values again, without
messages: ranks may differ in what `Tape(memory=)` repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkchi.distributed.exchange import Plan, load_flat, numbered, store_flat
from vkchi.distributed.group import Group
from vkchi.distributed.kernels import pack, unpack
from vkchi.errors import GradientError
from vkchi.fields.storage import Storage
from vkchi.ndarray import ndarray
from vkchi.tape.hosted import HostStep, add_slope, take_slope

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[Any]


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
        group, plan = self.group, self.plan
        digest = group.begin(operation, plan.facts)
        given, taken = plan.messages(is_reversed=is_reversed)
        store_flat(given.pieces, values)
        group.wait(operation, plan.post(group, digest, is_reversed=is_reversed))
        return load_flat(taken.pieces)


class CollectiveStep(HostStep):
    """A recorded step of all ranks. Its gradient always runs; it is repeated without messages."""

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
    if tape.kind != "grad" or not tape.records_functions or (group.size > 1 and tape.grad_check):
        raise GradientError(
            f"grid.{who}() is differentiated by ti.ad.Tape without grad_check, not in forward "
            "mode or by ti.ad.hvp: leave them out, or run on one rank"
        )
    if tape.is_paused:
        raise GradientError(
            f"grid.{who}() is not recorded in functions of ti.ad.grad_replaced and "
            "ti.ad.no_grad, nor while gradients run: call it outside of them"
        )


def run_in_tape(
    group: Group, plans: Sequence[Plan], tape: Any, who: str, *, is_reversed: bool = False
) -> None:
    """Exchange or reduce the halos of the field of each plan, and record that. Raises GradientError
    where a recording does not differentiate host computations."""
    check_recordable(group, who, tape)
    for plan in plans:
        (x,) = plan.fields
        if not plan.sent.pieces:
            continue
        (out, sent_count), (into, received_count) = (
            numbered(m.pieces) for m in plan.messages(is_reversed=is_reversed)
        )
        has_grad = x.has_grad()
        if plan.buffers is None:
            counts = (received_count, sent_count) if is_reversed else (sent_count, received_count)
            plan.buffers = tuple([ndarray(x.elem, n, needs_grad=has_grad) for n in counts])
        sent, received = reversed(plan.buffers) if is_reversed else plan.buffers
        pack(x, sent, out, is_reversed)
        if x.is_gradient or tape.lost_in(sent):
            raise GradientError(
                f"grid.{who}(): {x!r} holds values whose derivative is lost here, and other "
                "ranks would use them: make the field with needs_grad=True, or call it outside of "
                "the tape"
            )
        message = HaloMessage(group, plan, who, is_reversed=is_reversed)
        values = sent.contents()
        result = message.value(values)
        if has_grad:
            received.put_unnoticed(result)
            tape.record(message, [sent], [], result, received, step=CollectiveStep)
        else:
            received.from_numpy(result)
        unpack(x, received, into, is_reversed)
