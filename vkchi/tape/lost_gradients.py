"""Detection of lost gradients.

A gradient is lost if a derivative is stored in memory that has no `grad`. It is also lost if code
that the recording does not observe overwrites the derivative.

`LostGradients` belongs to one recording. It keeps the lost gradients in the accounts of the
`ledger` and propagates them through kernel calls. It raises GradientError, or warns, if one reaches
an array that has a gradient.

Rules for memory that has a gradient:

- A constant that Python stores ends the derivative of the old value (`log.ConstantOverwrite`).
- A constant that Python adds leaves the derivative unchanged.
- Python may store a value that depends on one it has read, as in `loss[None] *= 2`. The new
  derivative is then unknown.
- The same holds for kernels that the tape does not differentiate, unless they only add.
- The same holds for torch tensors that were changed outside kernels. Such writes are detected by
  comparing contents, so writing equal values through numpy or `tensor.data` goes unnoticed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from vkchi.analysis.memory.boxes import Box
from vkchi.autodiff.results import WORDS, FlowTargets, Spans, lost_derivative_error, raise_or_warn
from vkchi.calls.call import KernelCall, LaunchRequest
from vkchi.calls.facts import Case, facts
from vkchi.errors import GradientError
from vkchi.fields.elements import ArrayAccess
from vkchi.fields.storage import Storage
from vkchi.interop import host_views
from vkchi.span import Span, is_ours, user_span
from vkchi.tape.ledger import (
    Account,
    Definition,
    Fills,
    Index,
    Ledger,
    MemoryAccount,
    box_at,
    held_part,
    used_part,
)
from vkchi.tape.log import TapeStep
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.calls.call import Memory
    from vkchi.launch.compiled_kernel import CompiledKernel

NONE: frozenset[str] = frozenset()


class UnknownContents(TapeStep):
    """A step before a function with a custom gradient: an array or tensor holds an unknown value.

    The function's gradient may propagate a derivative there, which would be wrong.
    """

    def __init__(self, loss: Definition, memory: Any) -> None:
        self.loss, self.memory = loss, memory

    def run(self) -> None:
        if isinstance(self.memory, Storage):
            gradient = self.memory.companion("grad")
            found = gradient.contents() if gradient is not None else None
        else:
            found = host_views.grad_of(self.memory)
        if found is not None and found.any():
            raise lost_gradient_error(self.loss)


class MetLoss(NamedTuple):
    """A lost gradient in the array `name` of a call, and where the call propagates it."""

    name: str
    loss: Definition
    flow: FlowTargets


class LostGradients:
    """Queries and updates of lost gradients in the accounts of one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    # --- queries and updates ---------------------------------------------------------------------

    def add(self, found: Definition) -> None:
        account = self.ledger.open(found.memory)
        if isinstance(account, Account):
            account.puts.clear()
        else:
            found = found._replace(box=())
        account.escapes[found.key] = found

    def pass_on(
        self, found: Iterable[Definition], target: Memory, way: str, *, is_shown: bool = False
    ) -> None:
        """Record that Python computed `target` from arrays and lost the derivatives `found`.

        `way` describes the operation. `is_shown` is True if the user received the result.
        """
        step = (way, user_span())
        box = box_at(target) if isinstance(target, Storage) else ()
        for one in found:
            ways = (*one.ways, step)
            self.add(one._replace(memory=target, box=box, ways=ways, is_shown=is_shown))

    def of(self, memory: Memory) -> list[Definition]:
        return [b for one in self.ledger.near(memory) for b in one.escaping]

    def hold(
        self, memory: Any, name: str, who: str, span: Span | None, box: Box | None = None
    ) -> None:
        """Record that memory holds values with a derivative.

        For an array, `box` is the part that does; None means all of it. `memory` may be a torch
        tensor.
        """
        if isinstance(memory, Storage):
            box = box or box_at(memory)
            self.ledger.open(memory).held.put(held_part(name, who, span, box))
            return
        account = self.ledger.open(host_views.array_of_torch(memory))
        if not account.held.groups:
            account.held.put(held_part(name, who, span))
            account.follow(memory)

    def holds(self, array: Storage) -> Definition | None:
        account = self.ledger.find(array)
        return account.held.find(()) if account is not None else None

    # --- kernels ---------------------------------------------------------------------------------

    def check(
        self,
        call: KernelCall,
        names: frozenset[str],
        need: str,
        others: Iterable[tuple[str, Definition]],
    ) -> list[MetLoss]:
        """Raise GradientError if a call propagates a lost gradient to one of the arrays `names`.

        It warns instead if `ti.init` has `missing_gradient="warn"`, except for bits and unknown
        values. `names` are the arrays that have a gradient; `others` are further lost gradients by
        parameter name.

        A derivative with respect to values that Python stored may be lost: those values become
        constants. Return the lost gradients in the arrays of the call, for `settle`.
        """
        found, losses = [(name, seen_by(call, name, b)) for name, b in others], []
        for name in call.arrays:
            for account in self.ledger.near(memory_of(call, name)):
                if account.escapes:
                    found += [(name, seen_by(call, name, b)) for b in account.escaping]
                if name in names and (loss := account.compare()) is not None:
                    losses.append((name, loss))
        found += losses
        met = [MetLoss(n, b, flow_of(call, n, b.box, is_bits=b.is_bits)) for n, b in found]
        for name, one, flow in met:
            for target in sorted(names & flow.values.keys()):
                read = flow.values[target]
                if one.fills:
                    mark_constants(one, read)
                    continue
                missing = "error" if one.is_bits or one.by else call.missing
                raise_or_warn(
                    lost_gradient_error(one, (name, read), need),
                    missing,
                    call.kernel.derived.warned,
                )
        return met

    def settle(self, call: KernelCall, met: Iterable[MetLoss]) -> None:
        """Drop the lost gradients that a finished call has overwritten, and record those that it
        has copied to other memory."""
        for name, one, _ in met:
            if covering(call, name, one.box) is not None:
                self.remove(call, name, one)
        for _, one, flow in met:
            if not (one.is_constant or one.by):
                self.note_escapes(call, flow.left, fills=one.fills)
                self.note_escapes(call, flow.bits, is_bits=True, fills=one.fills)

    def remove(self, call: KernelCall, name: str, one: Definition) -> None:
        view = call.hosts.get(name)
        if view is None or host_views.is_same_view(view, one.memory):
            account = self.ledger.open(one.memory)
            account.escapes.pop(one.key, None)
            account.loss = None if one.by else account.loss

    def note_call(self, call: KernelCall, stores: Spans, boxes: Mapping[str, Box]) -> None:
        """Record where a call stored values with a derivative.

        `stores` are the source spans of the stores by array; `boxes` are the parts written
        (missing: all).
        """
        who = f"{call.name}()"
        for name, tensor in call.tensors.items():
            for one in self.ledger.hosts:
                if one.owner is tensor and name in call.kernel.written:
                    one.remember()
        for name, span in stores.items():
            places = call.tensors if name in call.hosts else call.arrays
            if name in places:
                self.hold(places[name], name, who, line_of(span), boxes.get(name))

    def note_escapes(
        self, call: KernelCall, escapes: Spans, *, is_bits: bool = False, fills: Fills = frozenset()
    ) -> None:
        """Record lost gradients that a call stored.

        `escapes` are the source spans of the stores, by parameter name.

        With `is_bits`, the stores hold the bits of a differentiable value. `fills` is not empty if
        the derivative is only with respect to these Python writes.
        """
        if not escapes:
            return
        boxes = facts.touched(call.kernel, "writes", call.case)
        what = "bits of a value" if is_bits else "a value"
        for name, span in escapes.items():
            if name in call.arrays:
                origin = (f"{call.name}() puts {what} with a derivative there", line_of(span))
                box = boxes.get(name) or box_at(call.arrays[name])
                self.add(Definition(memory_of(call, name), name, origin, box, is_bits, (), fills))

    # --- functions with custom gradients, skipped kernels ----------------------------------------

    def skip(self, given: LaunchRequest, who: str, boxes: Mapping[str, Box]) -> list[MemoryAccount]:
        """Record the writes of a kernel that is not differentiated, before it runs.

        A derivative or used input that it may overwrite is lost, unless it only adds there. Return
        the accounts of arrays with either where it writes.
        """
        kinds = facts.kinds_of_writes(given.kernel)
        accounts = [(name, self.ledger.find(given.written[name])) for name in sorted(given.written)]
        known = [(name, one, found) for name, one in accounts
                 if one is not None and (found := one.finds(boxes.get(name, ())))]  # fmt: skip
        for name, one, found in known:
            one.compare()
            if kinds.get(name, NONE) != frozenset({"atomic_add"}):
                box = boxes.get(name, ()) if isinstance(one, Account) else ()
                one.lose(found.lost(one.memory, who, user_span(), box))
        return [one for _, one, _ in known]

    def lose_results(self, given: LaunchRequest, kind: str) -> None:
        """Record that a kernel was aborted: the arrays that it writes hold unknown values.

        `kind` is that of the recording, grad or dual.
        """
        who, span = f"{given.name}()", given.kernel.func.span
        by = f"{who}, which failed a check or was interrupted"
        for name, memory in given.written.items():
            place = memory.whole if isinstance(memory, Storage) else memory
            found = held_part(name, who, span).lost(place, by, span)
            if isinstance(place, Storage) and place.companion(kind) is not None:
                self.ledger.open(place).lose(found)
            else:
                self.add(found)

    @contextmanager
    def ignoring(self) -> Iterator[None]:
        """Context of a custom-gradient function: its writes to tracked torch tensors lose no
        derivative."""
        tensors = [one for one in self.ledger.hosts if one.owner is not None]
        for one in tensors:
            one.compare()
        yield
        for one in tensors:
            one.remember()

    def unknown(self) -> list[UnknownContents]:
        """Return one `UnknownContents` step per memory that was overwritten with unknown values so
        far."""
        found = [(one.compare(), one) for one in self.ledger.all()]
        return [UnknownContents(loss, one.owner) for loss, one in found if loss is not None]

    # --- host computations, `kernel.grad`, the loss ----------------------------------------------

    def check_arrays(self, arrays: Iterable[Memory]) -> None:
        """Raise GradientError if one of these arrays was overwritten with unknown values."""
        for array in arrays:
            for loss in (one.compare() for one in self.ledger.near(array)):
                if loss is not None:
                    raise lost_gradient_error(loss)

    def note_gradient(
        self, call: KernelCall, adjoints: Mapping[str, Memory], needs: Iterable[str], kind: str
    ) -> None:
        """Record that `kernel.grad` read the arrays `needs` and added to `adjoints`.

        If one of these may depend on a differentiable input, the adjoints become lost gradients:
        the second derivative is unknown.
        """
        names = [name for name in needs if name in call.arrays and name not in call.constants]
        read = {name: memory_of(call, name) for name in names}
        varies = any(n in call.tensors or self.varies(call.arrays[n], kind) for n in read)
        if varies or any(self.of(memory) for memory in (*read.values(), *adjoints.values())):
            origin = (f"{call.name}.grad() puts a value with a derivative there", user_span())
            for name, memory in adjoints.items():
                box = box_at(memory) if isinstance(memory, Storage) else ()
                found = Definition(memory, f"{name}.grad", origin, box)
                self.add(found._replace(by_gradient=f"{call.name}.grad"))

    def varies(self, array: Storage, kind: str) -> bool:
        """True if an array has a companion of this kind and does not certainly hold constants."""
        account = self.ledger.find(array)
        is_constant = account is not None and account.fills == frozenset()
        return array.companion(kind) is not None and not is_constant

    def use(self, launch: KernelCall | LaunchRequest, case: Case, kind: str) -> None:
        """Record the parts of differentiable arrays that a recorded launch reads."""
        tensors = launch.tensors if isinstance(launch, KernelCall) else {}
        for name, part in uses_of(launch, case, kind):
            if name not in tensors:
                self.ledger.open(launch.arrays[name]).use(part)
                continue
            account = self.ledger.open(host_views.array_of_torch(tensors[name]))
            if account.owner is None:
                account.use(part._replace(box=()))
                account.follow(tensors[name])

    def check_loss(self, loss: Any) -> None:
        """Raise GradientError if the loss has an unknown value, or was last written by Python.

        Adding a constant does not count as a write.
        """
        self.check_arrays([loss if isinstance(loss, Storage) else host_views.array_of_torch(loss)])
        account = self.ledger.find(loss) if isinstance(loss, Storage) else None
        if account is not None and account.last_write is not None:
            raise GradientError(
                "the loss was last written by Python: it has no derivative",
                account.last_write[1],
                help="compute the loss in a kernel that is recorded; Python may add constants, as "
                "in `loss[None] += 1`",
            )  # fmt: skip


def memory_of(call: KernelCall, name: str) -> Memory:
    found: Memory = call.hosts[name] if name in call.hosts else call.arrays[name].whole
    return found


def seen_by(call: KernelCall, name: str, one: Definition) -> Definition:
    """The lost gradient as the call's array `name` sees it: as bits unless that holds floats."""
    return one._replace(is_bits=call.arrays[name].dtype.kind != "f")


# --- writes by Python --------------------------------------------------------------------------


def ends_derivative(
    account: Account, array: Storage, access: ArrayAccess, *, is_ours: bool
) -> bool:
    """True if a Python write ends a derivative; updates the account.

    It stores a constant over a derivative, or over an input that kernels have used. Additions end
    nothing. If Python has read that part before, its new value is unknown unless a fill stored it.
    The derivative is then lost, and the result False.

    With `is_ours` False, the writer is a custom-gradient function, or gradients are running; the
    result is False.
    """
    if access.is_sum:
        return False  # adding a constant leaves the derivative unchanged
    is_all = access.at is None and account.array is array
    if account.array is array:
        overwrite_escapes(account, access)
    if not is_ours:
        return False
    at = None if access.at is None else access.at[: len(array.shape)]
    box, reads = box_at(account.array, at), account.reads
    found = account.finds(box)
    if found is None:
        return False
    if access.kind == "write" and reads and (at is None or at in reads or None in reads):
        who, part = "Python, which had read it", () if at is None else box
        account.lose(found.lost(account.array, who, user_span(), part))
        return False
    if is_all:
        account.loss = None
    return True


def overwrite_escapes(account: Account, access: ArrayAccess) -> None:
    """Drop the lost gradients that a Python write of constants overwrites."""
    shape, found = account.array.shape, account.escapes
    if access.kind == "fill" or (access.at is None and not account.reads):
        found.clear()
    elif access.at is not None and not account.reads and len(access.at) == len(shape):
        account.puts.add(access.at)
        for key in [k for k, one in found.items() if is_cleared(one.box, shape, account.puts)]:
            del found[key]


def is_cleared(box: Box, shape: Sequence[int], cleared: set[Index]) -> bool:
    """True if all elements of a box are in `cleared`; unknown axes are 0 … extent - 1."""
    ends = [b or (0, e - 1) for b, e in zip(box, shape, strict=True)]
    if math.prod(b[1] - b[0] + 1 for b in ends) > len(cleared):
        return False
    return all(k in cleared for k in product(*(range(b[0], b[1] + 1) for b in ends)))


# --- propagation through calls --------------------------------------------------------------------


def mark_constants(one: Definition, read: Span | None) -> None:
    notes = (one.origin, *one.ways, ("it is read here", read))
    for fill in one.fills:
        fill.mark_constant(notes)


def line_of(span: Span | None) -> Span | None:
    """The user's line: the span itself, or for kernels of vkchi's own the line that called them."""
    return user_span() if is_ours(span) else span


def uses_of(
    launch: KernelCall | LaunchRequest, case: Case, kind: str
) -> Iterator[tuple[str, Definition]]:
    """Yield the parts of differentiable arrays and tensors that a launch reads."""
    tensors = launch.tensors if isinstance(launch, KernelCall) else {}
    for name, box in facts.touched(launch.kernel, "reads", case).items():
        array = launch.arrays.get(name)
        if array is None or name in launch.constants:
            continue
        if name in tensors or array.companion(kind) is not None:
            find = partial(first_read, launch.kernel, name)
            yield name, used_part(name, f"{launch.name}()", box, find)


def first_read(kernel: CompiledKernel, name: str) -> Span | None:
    from vkchi.calls.questions import footprint  # only needed for an error

    return footprint(kernel, "reads").span_of(name)


def covering(call: KernelCall, name: str, box: Box = ()) -> int | None:
    """Index of the segment of a call by whose end all of a box is certainly overwritten, or None.

    The empty box is the whole array. None for components of fields.
    """
    array = call.arrays[name]
    return facts.covering(call.kernel, name, box, call.case) if array.whole is array else None


def flow_of(call: KernelCall, name: str, box: Box, *, is_bits: bool) -> FlowTargets:
    """Propagation of the contents of a box (without a box: of the whole array) through a call."""
    end = covering(call, name, box)
    return facts.flow(call.kernel, name, box, end, is_bits, call.case)


# --- errors --------------------------------------------------------------------------------------


def lost_gradient_error(
    one: Definition, reader: tuple[str, Span | None] | None = None, need: str = "grad"
) -> GradientError:
    word, notes = WORDS[need], (one.origin, *one.ways)
    name, read = (one.name, one.origin[1]) if reader is None else reader
    if one.by:
        return GradientError(
            f"`{one.name}` was overwritten by {one.by}, and whether it still depends on what stood "
            "there is unknown: the derivative would be wrong", read,
            notes=one.ways if reader is None else notes,
            help="write to it in a kernel that the tape records"
            + (", or keep constants in an array without gradient" if one.is_input else ""),
        )  # fmt: skip
    if one.is_bits:
        return GradientError(
            f"the {word} flows through the bits of a number: it would be lost", read, notes=notes,
            help="put ti.stop_grad(...) around the value whose bits are taken",
        )  # fmt: skip
    if one.ways:
        return GradientError(
            f"the {word} flows through what Python computed or copied, which has none: it would be "
            "lost", read, notes=notes,
            help='docs/autodiff.md, "Values that travel without a kernel", says what has a '
            "derivative; what a ti.ad.no_grad function gives is a constant",
        )  # fmt: skip
    if one.by_gradient:
        return GradientError(
            f"the {word} flows through what {one.by_gradient}() computed: the second derivative "
            "would be lost", read, notes=notes,
            help="compute the derivative in a kernel that is recorded; for a constant, call "
            f"{one.by_gradient}() in a ti.ad.no_grad function, or put ti.stop_grad(...) around "
            "the value",
        )  # fmt: skip
    return lost_derivative_error(name, read, *one.origin, need)
