"""Refused gradients and cut derivatives: queries of the definitions in memory.

A `Definition` states what a write left in a part of memory: a value with a derivative, a lost
gradient, an unknown value. Queries read the definitions that may reach a part, and raise
GradientError or add definitions. They run when a call or write happens, not at the end.

    message of an error                                   query
    ... flows through `x`, which has none                 check_call; in one kernel:
                                                          autodiff.gradient_checks
    ... flows through the bits of a number                check_call
    ... flows through what Python computed or copied      check_call
    ... flows through what f.grad() computed              note_kernel_grad, then check_call
    `x` was overwritten by Python, which had read it      write_by_python, then check_call
    `x` was overwritten by f(), which is not ...          write_unrecorded, then check_call
    `x` was overwritten by f(), which failed ...          lose_results, then check_call
    `x` was overwritten by torch or numpy                 HostAccount.compare, then check_call
    the gradient of x is not known: Python put ...        constant_arrays, forbid_gradients
    the gradient of f() reads x, which ... has ...        custom.MutationLog.check
    f() ended with an exception inside ...                check_finished
    the loss was last written by Python                   check_output
    the gradient of f() needs what x held before ...      kernel_grad.fit_gradient
    iterations of one loop read, store, come to ...       races.finder

Gradients that a tape finds and sets aside at its end: `leftover_gradients`.

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
from itertools import product
from typing import TYPE_CHECKING, Any

from vkchi.analysis.memory.boxes import Box, boxes_may_intersect
from vkchi.autodiff.results import WORDS, FlowTargets, lost_derivative_error, raise_or_warn
from vkchi.calls.call import KernelCall, LaunchRequest
from vkchi.calls.facts import facts
from vkchi.errors import GradientError, KernelRuntimeError
from vkchi.fields.elements import ArrayAccess
from vkchi.fields.storage import Storage
from vkchi.interop import host_views
from vkchi.span import Span, stores_literal, user_span
from vkchi.tape.call_facts import covering, lost_parts, memory_of
from vkchi.tape.ledger import (
    Account,
    Definition,
    Fills,
    Index,
    Ledger,
    MemoryAccount,
    PythonFill,
    box_at,
    derivative_at,
)
from vkchi.tape.log import TapeStep
from vkchi.tape.plan import plan_gradient
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.calls.call import Memory
    from vkchi.tape.adjoints import CallAdjoints
    from vkchi.tape.plan import GradientPlan

NONE: frozenset[str] = frozenset()


# --- recorded calls ------------------------------------------------------------------------------


class MetLoss(NamedTuple):
    """A lost gradient in the array `name` of a call, and where the call propagates it."""

    name: str
    loss: Definition
    flow: FlowTargets


def check_call(
    ledger: Ledger, call: KernelCall, names: frozenset[str], need: str,
) -> list[MetLoss]:  # fmt: skip
    """Raise GradientError if a call propagates a lost gradient to one of the arrays `names`.

    It warns instead if `ti.init` has `missing_gradient="warn"`, except for bits and unknown values.
    `names` are the arrays that have a gradient.

    A derivative with respect to values that Python stored may be lost: those values become
    constants. Return the lost gradients in the arrays of the call, for `settle_call`.
    """
    found, losses = [(name, seen_by(call, name, b)) for name, b in under(ledger, call)], []
    for name in call.arrays:
        for account in ledger.near(memory_of(call, name)):
            found += [(name, seen_by(call, name, b)) for b in account.definitions.lost]
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
                lost_gradient_error(one, (name, read), need), missing, call.kernel.derived.warned
            )
    return met


def under(ledger: Ledger, call: KernelCall) -> list[tuple[str, Definition]]:
    """Parameter names and lost gradients of host arguments that alias exported arrays with
    derivatives."""
    found = []
    for name in call.hosts.keys() - call.constants:
        view = call.hosts[name]
        for array in ledger.exports(view):
            account = ledger.open(array)
            held = account.definitions.derivative if account.fills is None else None
            origins = [one.origin for one in account.definitions.lost]
            origins += [held.origin] if held is not None else []
            found += [(name, Definition("lost", view, name, origin)) for origin in origins]
    return found


def seen_by(call: KernelCall, name: str, one: Definition) -> Definition:
    """The lost gradient as the call's array `name` sees it: as bits unless that holds floats."""
    return one._replace(is_bits=call.arrays[name].dtype.kind != "f")


def flow_of(call: KernelCall, name: str, box: Box, *, is_bits: bool) -> FlowTargets:
    """Propagation of the contents of a box (without a box: of the whole array) through a call."""
    end = covering(call, name, box)
    return facts.flow(call.kernel, name, box, end, is_bits, call.case)


def settle_call(ledger: Ledger, call: KernelCall, met: Iterable[MetLoss]) -> None:
    """Drop the lost gradients that a finished call has overwritten, and record those that it has
    copied to other memory."""
    for name, one, _ in met:
        view = call.hosts.get(name)
        is_whole = view is None or host_views.is_same_view(view, one.memory)
        if is_whole and covering(call, name, one.box) is not None:
            ledger.open(one.memory).definitions.drop(one)
    for _, one, flow in met:
        if not (one.is_constant or one.by):
            ledger.lose(*lost_parts(call, flow.left, fills=one.fills))
            ledger.lose(*lost_parts(call, flow.bits, is_bits=True, fills=one.fills))


# --- constants -----------------------------------------------------------------------------------


def constant_arrays(
    ledger: Ledger, call: KernelCall, names: frozenset[str]
) -> dict[str, Fills]:  # fmt: skip
    """Return the constant arrays of a call among `names`, with the fills they depend on.

    A constant has no derivative, even in an array that has a `grad`. A solver may therefore begin
    with `x = 0` and keep its residual in arrays without a gradient. Arrays are constant if they
    were overwritten completely with constants and have received no derivative since. Some are
    constant only on condition that the values Python stored there (`fills`) are. Components of
    arrays do not count.
    """
    found = {}
    for name in names & call.arrays.keys():
        array = call.arrays[name]
        account = ledger.find(array)
        if account is not None and account.fills is not None and account.array is array:
            found[name] = account.fills
    return found


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


def mark_constants(one: Definition, read: Span | None) -> None:
    notes = (one.origin, *one.ways, ("it is read here", read))
    for fill in one.fills:
        fill.mark_constant(notes)


def forbid_gradients(fills: Iterable[PythonFill]) -> None:
    """Fill the gradients of arrays whose Python-stored values count as constants with NaN.

    Reading these gradients from Python then raises GradientError.
    """
    for fill in fills:
        gradient = fill.array.companion("grad")
        if fill.why_constant and gradient is not None:
            fill.forbid(gradient)


# --- writes by Python ----------------------------------------------------------------------------


def write_by_python(
    account: Account, array: Storage, access: ArrayAccess, *, is_ours: bool
) -> bool:
    """True if a Python write ends a derivative; updates the account.

    It stores a constant over a derivative, or over an input that kernels have used. Additions end
    nothing. If Python has read that part before, its new value is unknown unless a fill stored it,
    or it is a literal. The derivative is then lost, and the result False.

    With `is_ours` False, the writer is a custom-gradient function, or gradients are running; the
    result is False.
    """
    if access.is_sum:
        return False  # adding a constant leaves the derivative unchanged
    is_all = access.at is None and account.array is array
    if account.array is array:
        overwrite_lost(account, access)
    if not is_ours:
        return False
    box, reads = box_at(array, access.at), account.reads
    used = account.definitions.find(box)
    found = used or account.start
    if found is None:
        return False
    is_unsure = access.kind == "write" and reads and is_read(account, box)
    if is_unsure and stores_literal():
        account.array.overwritten += 1  # values that were read are not the new ones
    elif is_unsure:
        who, part = "Python, which had read it", () if None in box else box
        account.definitions.put(found.overwritten(account.array, who, user_span(), part))
        return False
    if is_all:
        account.definitions.forget_unknown()
        account.start = None
    return used is not None


def is_read(account: Account, box: Box) -> bool:
    """True if Python has read an element in a box, which has all axes or None of all."""
    reads = account.reads
    if None in reads or None in box:
        return True
    if all(b is not None and b[0] == b[1] for b in box):
        return tuple([b[0] for b in box if b is not None]) in reads
    return any(boxes_may_intersect(box, box_at(account.array, at)) for at in reads)


def overwrite_lost(account: Account, access: ArrayAccess) -> None:
    """Drop the lost gradients that a Python write of constants overwrites."""
    shape, lost = account.array.shape, account.definitions.all("lost")
    if access.kind == "fill" or (access.at is None and not account.reads):
        account.definitions.drop(*lost)
    elif access.at is not None and not account.reads and len(access.at) == len(shape):
        account.puts.add(access.at)
        gone = [one for one in lost if is_cleared(one.box, shape, account.puts)]
        account.definitions.drop(*gone)


def is_cleared(box: Box, shape: Sequence[int], cleared: set[Index]) -> bool:
    """True if all elements of a box are in `cleared`; unknown axes are 0 … extent - 1."""
    ends = [b or (0, e - 1) for b, e in zip(box or (None,) * len(shape), shape, strict=True)]
    if math.prod(b[1] - b[0] + 1 for b in ends) > len(cleared):
        return False
    return all(k in cleared for k in product(*(range(b[0], b[1] + 1) for b in ends)))


def fill_by_python(ledger: Ledger, array: Storage, at: Index | None) -> None:
    """Record that Python overwrites an element, or (None) all of an array, with constants.

    Once all elements are overwritten, the array is constant, provided that this `PythonFill` is.
    Components, arrays without gradient, and arrays that hold a derivative are ignored.
    """
    if array.whole is not array or array.companion("grad") is None:
        return
    account = ledger.find(array)
    if account is not None and (account.fills is not None or account.definitions.derivative):
        return
    account = account or ledger.open(array)
    if at is not None and len(at) == len(array.shape):
        account.puts.add(at)
    if at is None or len(account.puts) == math.prod(array.shape):
        ledger.fills.append(PythonFill(array))
        account.puts.clear()
        account.fills = frozenset(ledger.fills[-1:])


# --- writes by kernels that are not differentiated -----------------------------------------------


def write_unrecorded(
    ledger: Ledger, given: LaunchRequest, who: str, boxes: Mapping[str, Box]
) -> list[MemoryAccount]:
    """Record the writes of a kernel that is not differentiated, before it runs.

    A derivative or used input that it may overwrite is lost, unless it only adds there. Return the
    accounts of arrays with either where it writes.
    """
    kinds = facts.kinds_of_writes(given.kernel)
    accounts = [(name, ledger.find(given.written[name])) for name in sorted(given.written)]
    known = [(name, one, found) for name, one in accounts
             if one is not None
             and (found := one.definitions.find(boxes.get(name, ())))]  # fmt: skip
    for name, one, found in known:
        one.compare()
        if kinds.get(name, NONE) != frozenset({"atomic_add"}):
            box = boxes.get(name, ()) if isinstance(one, Account) else ()
            one.definitions.put(found.overwritten(one.memory, who, user_span(), box))
    return [one for _, one, _ in known]


def resets_derivative(ledger: Ledger, given: LaunchRequest) -> bool:
    """True if a kernel stores only constants, and the recording tracks a derivative where it
    writes.

    One of the written arrays holds a derivative, a lost gradient or a used input. Such a kernel is
    recorded even in an undifferentiated function: its gradient clears the derivatives there.
    """
    near = [one.definitions for memory in given.written.values() for one in ledger.near(memory)]
    is_known = any(one.has("lost") or one.find() for one in near)
    return is_known and facts.stores_constants(given.kernel)


def lose_results(ledger: Ledger, given: LaunchRequest, kind: str) -> None:
    """Record that a kernel was aborted: the arrays that it writes hold unknown values.

    `kind` is that of the recording, grad or dual.
    """
    who, span = f"{given.name}()", given.kernel.func.span
    by = f"{who}, which failed a check or was interrupted"
    for name, memory in given.written.items():
        place = memory.whole if isinstance(memory, Storage) else memory
        found = derivative_at(name, who, span).overwritten(place, by, span)
        if isinstance(place, Storage) and place.companion(kind) is not None:
            ledger.open(place).definitions.put(found)
        else:
            ledger.lose(found._replace(kind="lost"))


# --- functions with custom gradients, host computations ------------------------------------------


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


def unknown_contents(ledger: Ledger) -> list[UnknownContents]:
    """Return one step per memory that was overwritten with unknown values so far."""
    found = [(one.compare(), one) for one in ledger.all()]
    return [UnknownContents(loss, one.owner) for loss, one in found if loss is not None]


@contextmanager
def ignoring_writes(ledger: Ledger) -> Iterator[None]:
    """Context of a custom-gradient function: its writes to tracked torch tensors lose no
    derivative."""
    tensors = [one for one in ledger.hosts if one.owner is not None]
    for one in tensors:
        one.compare()
    yield
    for one in tensors:
        one.remember()


def check_known(ledger: Ledger, arrays: Iterable[Memory]) -> None:
    """Raise GradientError if one of these arrays was overwritten with unknown values."""
    for array in arrays:
        for loss in (one.compare() for one in ledger.near(array)):
            if loss is not None:
                raise lost_gradient_error(loss)


def derivatives_in(ledger: Ledger, memory: Memory, kind: str) -> list[Definition]:
    """Derivatives in an array, matrix or tensor, as lost gradients that Python would cause."""
    found = ledger.lost(memory)
    if isinstance(memory, Storage):
        if memory.companion(kind) is not None:
            held = ledger.derivative(memory)
            origin = (f"{memory!r} has a {WORDS[kind]}", None) if held is None else held.origin
            found.append(Definition("lost", memory.whole, repr(memory), origin))
        return found
    near = ledger.near(memory)
    origins = [held.origin for one in near for held in one.definitions.all("derivative")]
    account = ledger.find(memory)
    if account is not None and account.slope is not None:
        origins += [("the matrix is made of values with a derivative", None)]
    return [*found, *(Definition("lost", memory, "", origin) for origin in origins)]


# --- kernel.grad, leftovers, the loss ------------------------------------------------------------


def note_kernel_grad(
    ledger: Ledger, call: KernelCall, adjoints: Mapping[str, Memory], needs: Iterable[str],
    kind: str,
) -> None:  # fmt: skip
    """Record that `kernel.grad` read the arrays `needs` and added to `adjoints`.

    If one of these may depend on a differentiable input, the adjoints become lost gradients: the
    second derivative is unknown.
    """
    names = [name for name in needs if name in call.arrays and name not in call.constants]
    read = {name: memory_of(call, name) for name in names}
    does_vary = any(n in call.tensors or varies(ledger, call.arrays[n], kind) for n in read)
    if does_vary or any(map(ledger.lost, (*read.values(), *adjoints.values()))):
        origin = (f"{call.name}.grad() puts a value with a derivative there", user_span())
        for name, memory in adjoints.items():
            box = box_at(memory) if isinstance(memory, Storage) else ()
            found = Definition("lost", memory, f"{name}.grad", origin, box)
            ledger.lose(found._replace(by_gradient=f"{call.name}.grad"))


def varies(ledger: Ledger, array: Storage, kind: str) -> bool:
    """True if an array has a companion of this kind and does not certainly hold constants."""
    account = ledger.find(array)
    is_constant = account is not None and account.fills == frozenset()
    return array.companion(kind) is not None and not is_constant


def leftover_gradients(ledger: Ledger, loss: Any, *, is_cleared: bool) -> list[Storage]:
    """Gradients of written arrays, except for the loss, that may hold contributions by others.

    If all gradients were cleared at the start (`is_cleared`), only those written since count.
    """
    found = []
    for one in ledger.accounts.values():
        gradient = one.array.companion("grad") if one.is_written else None
        if gradient is not None and one.array is not loss:
            account = ledger.find(gradient)
            if not is_cleared or (account is not None and account.history.version > 0):
                found.append(gradient)
    return found


def check_finished(unfinished: Iterable[str | Storage], title: str, kind: str) -> None:
    """Raise KernelRuntimeError if calls or writes of Python have begun and did not end."""
    for what in unfinished:
        who = f"the write to {what!r}" if isinstance(what, Storage) else f"{what}()"
        raise KernelRuntimeError(
            f"{who} ended with an exception inside {title}: how far it came is unknown, and so "
            f"are the {WORDS[kind]}s: let the exception leave it"
        )


def is_result(ledger: Ledger, output: Storage) -> bool:
    """True if recorded code wrote to an array or, for a component, to its whole array."""
    account = ledger.find(output)
    return account is not None and (
        account.is_written or account.definitions.derivative is not None
    )


def check_output(ledger: Ledger, output: Any, who: str = "the loss") -> None:
    """Raise GradientError if an output has an unknown value, or was last written by Python.

    Adding a constant does not count as a write.
    """
    is_array = isinstance(output, Storage)
    check_known(ledger, [output if is_array else host_views.array_of_torch(output)])
    account = ledger.find(output) if is_array else None
    if account is not None and account.last_write is not None:
        raise GradientError(
            f"{who} was last written by Python: it has no derivative",
            account.last_write[1],
            help=f"compute {who} in a kernel that is recorded; Python may add constants, as in "
            "`loss[None] += 1`",
        )  # fmt: skip


# --- errors --------------------------------------------------------------------------------------


def overwritten_read_error(reader: str, name: str, who: str, span: Span | None) -> GradientError:
    return GradientError(
        f"the gradient of {reader}() reads {name}, which {who} has overwritten since: it is not "
        "what the call found", span,
        help="keep what it needs in an array of its own, or let the gradient compute it again "
        "before it reads it",
    )  # fmt: skip


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
            + (", or keep constants in an array without gradient" if one.was_input else ""),
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
