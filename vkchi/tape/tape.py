"""Tapes: kernel calls recorded as they run, and their gradients in reverse order.

Owns: `Tape`. A launch notes which part of which arrays its gradient will read; `snapshots` sees to
it that every gradient finds there what its kernel found. So the data-access rules that Taichi asks
its users to keep need not be kept. What is refused:
- an array without gradient through which a derivative would have to flow (`breaks`);
- what Python or undifferentiated kernels overwrote, unless with constants (`breaks`);
- a gradient of the user's own that reads what was overwritten since (`mutation_log`);
- a gradient outside a tape that needs what its own kernel overwrites (`by_itself`).

Must not know: how gradients are built.

    with ti.ad.Tape(loss=loss):
        step(x)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any

from vkchi.analysis.boxes import Box
from vkchi.autodiff.answers import GradientSpec
from vkchi.errors import DataAccessError, KernelAssertionError, KernelRuntimeError, VkchiError
from vkchi.hooks import python_scope
from vkchi.interop import host
from vkchi.interrupts.local import local
from vkchi.interrupts.locks import restoring
from vkchi.launch import Plan
from vkchi.races.finder import refuse as refuse_race
from vkchi.races.race import Doubt, Found
from vkchi.runtime import current
from vkchi.tape.calls import (
    Call,
    Copies,
    Given,
    Gradients,
    check_leaves,
    check_numbers,
    clear,
    copied_where_read,
    leaves_of,
    make_grads,
    numbers_of,
)
from vkchi.tape.constant_arrays import flows_of, pending, plan_where_known
from vkchi.tape.derived import case_of, facts
from vkchi.tape.ledger import Fills
from vkchi.tape.log import State
from vkchi.tape.recording import Inside, Recording
from vkchi.tape.requirements import check_alone, check_loss, check_place, seed_loss, set_loss
from vkchi.tape.snapshots import UNLIMITED, Report
from vkchi.tape.steps import (
    Custom,
    Entry,
    Launch,
    check_repeatable,
    drop_copies,
    tensors_written,
)
from vkchi.tape.traces import Followed, Trace, may_be_traced
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.fields.storage import Storage
    from vkchi.types.hints import Tensors


class Noted(NamedTuple):
    """What was noted of a call before it: its step, which arrays it finds as constants, provided
    that some fills are, and the parts of arrays that it writes."""

    entry: Entry
    constant: Mapping[str, Fills]
    boxes: Mapping[str, Box]


@python_scope
class Tape(Recording):
    """Records the kernels called inside `with`, and on leaving it adds the derivatives of `loss` to
    the `grad` of what they read.

    loss: a field of shape () or an ndarray or tensor of one element, with a gradient; it is set to
    0 on entry. clear_gradients: set all gradients to 0 on entry. validation: refuse kernels that
    break Taichi's data-access rules, which need not be kept here. grad_check: fields whose
    gradients are compared with differences on leaving. memory: how much may be saved (bytes, or
    "512MiB"); with less than all, some calls are done again, and `report` says how many. Raises
    KernelRuntimeError for a loss that cannot be one, GradientError where a gradient would be
    wrong. Source: Taichi's `ti.ad.Tape`; `memory` is ours.
    """

    title, records_functions = "ti.ad.Tape", True

    def __init__(
        self,
        loss: Storage | Tensors | None = None,
        clear_gradients: bool = True,
        validation: bool = False,
        grad_check: list[Storage] | None = None,
        memory: int | str | None = None,
    ) -> None:
        self.loss: Any = loss
        self.clear_gradients = clear_gradients
        self.validation, self.grad_check = validation, grad_check
        super().__init__(current(), budget_of(memory, UNLIMITED if grad_check else None))
        self.report: Report | None = None  # what was done in the memory given, after the gradients
        self.copies = Copies()
        self.failed: str | None = None  # what was begun here and did not come to its end
        is_plain = self.budget_bytes is None and not (validation or grad_check)
        self.trace = Trace(is_followed=is_plain)

    # --- entering and leaving --------------------------------------------------------------------

    def __enter__(self) -> Tape:
        if self.state != "new":
            raise KernelRuntimeError("a tape can be entered once: make a new ti.ad.Tape")
        check_alone(self.runtime, self.title)
        check_loss(self.loss)
        check_place(self.loss, self.runtime)
        if self.grad_check is not None:
            from vkchi.tape.differences import check_inputs  # few tapes are checked

            check_inputs("Tape(grad_check=...)", self.grad_check)
        if self.clear_gradients:
            clear_all_gradients()
        set_loss(self.loss, 0.0)
        self.enter()
        return self

    def leave(self, kind: Any, error: Any, traceback: Any) -> None:
        """The end of the block: the gradients, unless an exception ends it."""
        try:
            if kind is None and self.state == "recording":
                self.grad()
        finally:
            self.close()

    def grad(self) -> None:
        """Run the gradients of what was recorded, last call first; from then on nothing is."""
        if self.state != "recording":
            raise KernelRuntimeError("the gradients of a tape can be evaluated once, inside it")
        if self.end():
            self.report = self.grad_once()
            return
        try:
            with self.apart_from_leftovers():
                self.report = self.grad_again() if self.snapshots.is_over else self.grad_once()
        finally:
            self.constants.forbid()
        if self.grad_check:
            from vkchi.tape.differences import check_tape

            check_tape(self)

    def end(self) -> bool:
        """End the recording. True if it is like one before, whose checks hold. Raises
        KernelRuntimeError where a call did not come to its end, GradientError for a loss without a
        derivative."""
        with restoring(self.runtime.lock), self.runtime.lock:  # others may launch
            if self.failed:
                raise KernelRuntimeError(
                    f"{self.failed}() failed a check or was interrupted inside this tape: how far "
                    "it came is unknown, and so are the gradients: let the exception leave the tape"
                )
            if self.ends_as_before():
                return True
            self.ledger.end_looking()
            self.breaks.check_loss(self.loss)
            self.trace.end(self.loss)
            self.state = "evaluated"
            self.entries += self.snapshots.take_rewritten()
            self.snapshots.is_reversing = True
            return False

    @contextmanager
    def apart_from_leftovers(self) -> Iterator[None]:
        """While gradients run: what is in those of arrays that kernels or Python have overwritten,
        and of torch tensors, would flow on or be cut, though it belongs to other losses. It is put
        aside, and added again. Gradients of arrays that are only read are just added to."""
        accounts = list(self.ledger.accounts.values())
        changed = [a.array for a in accounts if a.is_written or a.is_cut]
        found = (array.companion("grad") for array in changed if array is not self.loss)
        arrays = State(g for g in found if g is not None and self.is_left_over(g))
        given = [t for t in tensors_written(self.entries) if t is not self.loss]
        tensors = [(t, t.grad) for t in given if t.grad is not None]
        for gradient in arrays.arrays:
            gradient.fill(0)
        for tensor, _ in tensors:
            tensor.grad = None
        try:
            yield
        finally:
            arrays.add()
            for tensor, before in tensors:
                new, tensor.grad = tensor.grad, before
                if new is not None:
                    host.write_grad(tensor, before.detach() + new)

    def is_left_over(self, gradient: Storage) -> bool:
        """True if something may be in a gradient before the tape's own are computed."""
        account = self.ledger.find(gradient)
        return not self.clear_gradients or (account is not None and account.version > 0)

    def grad_once(self) -> Report:
        """Run the gradients, with all that they need."""
        seed_loss(self.loss)
        self.reverse()
        return Report(len(self.entries), 0, 0, 0, self.snapshots.saved_bytes)

    def grad_again(self) -> Report:
        """The same where not everything could be saved: calls are done again."""
        from vkchi.tape.checkpoints import Replay

        drop_copies(self.entries)
        held_bytes = check_repeatable(self.entries)
        replay = Replay(self.entries, self.snapshots.start, held_bytes)
        seed_loss(self.loss)
        assert self.snapshots.budget_bytes is not None
        return replay.run(self.snapshots.budget_bytes)

    def run_again(self) -> None:
        """Do the calls again, without recording them."""
        for entry in self.entries:
            if isinstance(entry, Custom):
                entry.call()
            else:
                entry.repeat()

    # --- calls that a tape has done before -------------------------------------------------------

    def find_followed(self, name: str, plan: Plan, args: tuple[Any, ...]) -> Followed | None:
        """A call that a tape has done after the same calls, while nothing else was done here."""
        if self.is_noting:
            return None
        if self.runtime.exported or self.is_paused:
            self.leave_trace()
            return None
        step = self.trace.find(name, plan, args)
        if step is None:
            self.begin_notes()
        return step

    def begin_notes(self) -> None:
        """Note the calls that were not noted so far, too."""
        with restoring(self.runtime.lock), self.runtime.lock:  # others may launch
            if not self.is_noting:
                self.note_done(self.trace.done)

    def note_done(self, done: Sequence[Followed]) -> None:
        """Note calls that are done."""
        before = self.failed
        if done:
            self.failed = before or done[-1].name  # until all are noted
        super().begin_notes()
        self.trace.done = []
        for step in done:
            self.note_flows(self.note_call(step.call, step))
        self.failed = before

    def grow_trace(self, entry: Entry) -> None:
        """A call is done, of which everything is noted: tapes may do the same."""
        trace = self.trace
        if trace.is_over:
            return
        is_first = len(self.entries) == trace.length + 1
        if is_first and may_be_traced(entry) and not (self.races.trials or self.runtime.exported):
            trace.grow(entry.call, self.snapshots.saves)
        else:
            trace.leave()

    def leave_trace(self) -> None:
        """Something happens that is no plain kernel call: note everything."""
        if not (self.trace.is_over and self.is_noting):
            with restoring(self.runtime.lock), self.runtime.lock:  # others may launch
                self.trace.leave()
                self.begin_notes()

    def ends_as_before(self) -> bool:
        """Whether a tape with this loss has ended after the same calls: then these are the steps,
        though nobody has noted them."""
        is_plain = self.clear_gradients and not self.is_noting and not self.runtime.exported
        if not (is_plain and self.trace.ended_with(self.loss)):
            return False
        self.state = "evaluated"
        self.trace.stop_watching(self.on_access)
        super().begin_notes()
        self.entries, self.trace.done = [*self.trace.done], []
        self.snapshots.saved_bytes = self.trace.saved_bytes
        self.snapshots.is_reversing = True
        return True

    def close(self) -> None:
        """See nothing any more."""
        self.trace.stop_watching(self.on_access)
        if not self.is_noting:
            self.trace.done = []
        super().close()

    # --- recording -------------------------------------------------------------------------------

    def launch(self, name: str, plan: Plan, args: tuple[Any, ...]) -> Any:
        """Run a kernel, having noted and saved what its gradient and earlier ones need."""
        step = self.find_followed(name, plan, args)
        before = self.failed
        self.failed = before or name  # until it came to its end
        try:
            if step is not None:
                result = self.trace.launch(step, self.on_access)
            else:
                result = super().launch(name, plan, args)
        except BaseException as error:
            self.trace.leave()  # what was noted of it stays, and is no call's
            is_refused = isinstance(error, VkchiError) and not isinstance(
                error, KernelAssertionError
            )
            if is_refused or get_ident() != self.thread:
                self.failed = before
            if not (is_refused or get_ident() == self.thread):
                self.breaks.lose_results(Given(name, plan, args), self.kind)
            raise
        self.failed = before
        return result

    def launch_noted(self, given: Given) -> Any:
        """Run a kernel, recorded if it is to be."""
        if self.is_paused and not (self.skipped and self.is_reset(given)):
            self.leave_trace()
            return self.launch_unrecorded(given)
        check_numbers(given.name, given.plan, given.args)
        call = given.call
        if call.hosts:
            call = self.copies.share(call)
        check_leaves(call)
        make_grads(call)
        noted = self.note_call(call)
        entry = noted.entry
        self.mutation_log.note_views(call)
        args = copied_where_read(call, given.args)
        result = entry.launch(call, args, flags=self.ledger if self.validation else None)
        self.check_race(entry.race)
        entry.keep_results(self.snapshots)
        self.note_flows(noted)
        self.grow_trace(entry)
        return result

    def note_call(self, call: Call, done: Followed | None = None) -> Noted:
        """Note what a call is about to do, or has `done`, and save what is needed of what it
        overwrites. Raises GradientError for one that has no gradient."""
        gradients = Gradients(call, None if done is None else done.adjoints)
        constant = self.constants.of(call, gradients.names)
        made = plan_where_known(call, gradients, constant)
        made.reserve(call.args, call.arrays)
        self.check(call, gradients.names)
        race = self.find_race(call, gradients.names, made.spec)
        self.check_race(None if isinstance(race, Doubt) else race)
        self.entries += self.snapshots.take_rewritten()
        entry = Entry(call, gradients, made, race)
        entry.position = len(self.entries)
        if done is not None:
            entry.kept = done.memory
        boxes = self.save(call, entry, made)
        self.snapshots.saves = []
        self.protect(f"{call.name}()", call.plan.written, call.arrays, boxes)
        return Noted(entry, constant, boxes)

    def note_flows(self, noted: Noted) -> None:
        """Note that a call is done, and where it put derivatives."""
        entry, constant, boxes = noted
        self.entries.append(entry)
        call, made = entry.call, entry.plan
        constant = {name: pending(fills) for name, fills in constant.items()}
        flows = flows_of(call, made.spec, constant)
        self.constants.note_call(call, flows, constant)
        self.breaks.note_escapes(call, flows.given, fills=flows.fills)
        is_same = flows.none is flows.all
        left = flows.none if is_same else flows.none._replace(escapes=flows.all.escapes)
        self.note(call, left, boxes)

    def find_race(
        self, call: Call, names: frozenset[str], spec: GradientSpec
    ) -> Found | Doubt | None:
        """A race in a call: any where it counts, for validation, or since it may be done again."""
        all_ = self.validation or self.snapshots.is_limited
        return self.races.examine(call, names, spec, all_=all_, must=self.validation)

    def check_race(self, race: Found | None) -> None:
        """Raises DataAccessError for one that validation finds."""
        if race is not None and self.validation:
            raise refuse_race(race[0], DataAccessError)

    def launch_unrecorded(self, given: Given) -> Any:
        """Run a kernel of a function that is recorded as a whole, or of its gradient."""
        step, plan, who = self.note_step(given), given.plan, self.skipped
        arrays = step.call.arrays if step is not None else given.arrays
        if self.custom is not None:
            self.custom.views += given.hosts.values()
        boxes = self.mutation_log.check_launch(given, arrays)
        self.protect(f"{given.name}()", plan.written, arrays, boxes)
        changed = self.breaks.skip(given, who, boxes) if who else ()
        result = plan.launch(given.args)
        for one in changed:
            one.remember()
        if step is not None:
            step.keep_results(self.snapshots)
        if self.custom is not None:
            self.hold(given, f"{self.custom.function.__name__}()", boxes)
            self.breaks.use(given, case_of(numbers_of(plan, given.args), arrays), self.kind)
        return result

    def hold(self, given: Given, who: str, boxes: Mapping[str, Box]) -> None:
        """Note that what a kernel wrote, in a function with a gradient of its own, has one."""
        span = given.plan.func.span
        for name in given.plan.written & given.arrays.keys():
            if given.arrays[name].companion("grad") is not None:
                self.breaks.hold(given.arrays[name], name, who, span, boxes.get(name))
        for p, arg in leaves_of(given.plan, given.args):
            if p.name in given.plan.written and host.is_torch(arg) and arg.requires_grad:
                self.breaks.hold(arg, p.name, who, span)

    def note_step(self, given: Given) -> Launch | None:
        """A kernel of a function that is recorded as a whole, which may have to do it again in
        limited memory."""
        if not (self.custom or self.skipped) or self.snapshots.budget_bytes is None:
            return None
        step = Launch(given.call)
        if self.snapshots.is_limited:
            step.race = self.races.look(step.call, frozenset(), None, all_=True)
        steps = self.custom.steps if self.custom else self.entries
        steps += [*self.snapshots.take_rewritten(), step]
        return step

    def is_reset(self, given: Given) -> bool:
        """Whether a kernel that is not to be differentiated writes constants over something with a
        derivative: then it has a gradient all the same, which says just that."""
        near = [one for memory in given.written.values() for one in self.ledger.near(memory)]
        is_known = any(one.escapes or one.finds(()) for one in near)
        return is_known and facts.stores_constants(given.plan)

    def call_custom(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function that `custom` made, recorded as a whole, or not differentiated."""
        self.leave_trace()
        if function.is_skipped:
            with self.whole_call(function, None):
                return function.__wrapped__(*args, **kwargs)
        self.ledger.look_at_all()
        custom = Custom(self.mutation_log, function, args, kwargs)
        self.entries += [*self.snapshots.take_rewritten(), *self.breaks.unknown(), custom]
        with self.whole_call(function, custom), self.breaks.ignoring():
            return function.__wrapped__(*args, **kwargs)

    @contextmanager
    def whole_call(self, function: Any, custom: Custom | None) -> Iterator[None]:
        """While a function runs whose kernels are not recorded one by one. It may raise, and the
        program catch it; where it was interrupted, nobody knows what is left undone."""
        before, has_ended, name = self.failed, False, function.__name__
        skipped = f"{name}(), which is not differentiated" if custom is None else None
        if custom is not None or get_ident() == self.thread:  # others' kernels are noted one by one
            self.failed = before or name
        self.inside[get_ident()] = Inside(custom, skipped)
        try:
            yield
            has_ended = True
        except local(Exception):
            has_ended = True
            raise
        finally:
            self.inside.pop(get_ident(), None)
            if custom is not None:
                custom.steps += self.snapshots.take_rewritten()
                custom.end_call()
            if has_ended:
                self.failed = before


def budget_of(memory: int | str | None, usual: int | None) -> int | None:
    """The bytes that users give as `memory`. Raises ArgumentError."""
    if memory is None:
        return usual
    from vkchi.tape.checkpoints import bytes_of

    return bytes_of(memory)


@python_scope
def clear_all_gradients() -> None:
    """Set the gradients of all fields and ndarrays to 0. Those of torch tensors stay."""
    clear(current().gradients)
