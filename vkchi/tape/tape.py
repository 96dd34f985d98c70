"""Tapes: reverse-mode differentiation by recording kernel calls as they run.

Every recorded call requests snapshots of the parts of arrays that its gradient will read
(`snapshots`). Programs may therefore overwrite elements that kernels have read, against Taichi's
data-access rules. Unless an exception ends the block, the gradients then run, last call first.

A derivative that would be lost usually raises GradientError (`queries`). So does a custom
gradient that reads memory overwritten since its call (`custom`).

    with ti.ad.Tape(loss=loss):
        step(x)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any

from vkchi.analysis.memory.boxes import Box
from vkchi.autodiff.results import GradientSpec
from vkchi.calls.call import (
    HostCopies,
    KernelCall,
    LaunchRequest,
    check_numbers,
    copied_where_read,
    leaf_arguments,
)
from vkchi.errors import DataAccessError, KernelRuntimeError
from vkchi.hooks import python_scope
from vkchi.interop import host_views
from vkchi.interrupts.contexts import restoring
from vkchi.interrupts.local import local
from vkchi.launch.compiled_kernel import CompiledKernel
from vkchi.races.race import Found, UndecidedRace, race_error
from vkchi.runtime import current_runtime
from vkchi.tape import queries
from vkchi.tape.adjoints import CallAdjoints, check_leaves, clear_arrays, make_grads
from vkchi.tape.arguments import check_alone, check_loss, check_place, seed_loss, set_loss
from vkchi.tape.call_facts import KnownCalls, facts_of, keep_facts, uses_of
from vkchi.tape.custom import CustomGradientCall
from vkchi.tape.ledger import derivative_at
from vkchi.tape.log import (
    CallStep,
    Launch,
    SpecialLaunch,
    State,
    check_repeatable,
    drop_copies,
    tensors_written,
)
from vkchi.tape.recording import FunctionContext, Recording
from vkchi.tape.snapshots import UNLIMITED, CheckpointReplay, TapeReport, parse_bytes

if TYPE_CHECKING:
    from vkchi.fields.storage import Storage
    from vkchi.types.hints import Tensors


@python_scope
class Tape(Recording):
    """Reverse-mode differentiation of the kernels called inside `with`.

    At its end, the tape adds the derivatives of `loss` to the `grad` of the kernels' input arrays.
    Source: Taichi's `ti.ad.Tape`; `memory` is vkchi's.

    Args:
        loss: a field of shape () or an ndarray or tensor of one element, with a gradient; set to 0
            on entry.
        clear_gradients: set the gradients of all fields and ndarrays to 0 on entry.
        validation: raise DataAccessError if a kernel breaks Taichi's data-access rules, which are
            not required here.
        grad_check: fields or ndarrays whose gradients are compared with finite differences at the
            end.
        memory: limit on saved memory (bytes, or "512MiB"). Above it, calls are repeated, and
            `report` gives their number.

    Raises:
        KernelRuntimeError: for a loss that is not one number or is on another device, for a torch
            tensor that cannot be a loss, and if a recording is active.
        ArgumentError: for any other invalid loss, and for invalid `grad_check` or `memory`.
        GradientError: if a gradient would be wrong.
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
        usual = UNLIMITED if grad_check else None
        super().__init__(current_runtime(), usual if memory is None else parse_bytes(memory))
        self.report: TapeReport | None = None  # set after the gradients
        self.copies = HostCopies()
        self.analyzes_all = self.budget_bytes is not None or validation
        self.known = KnownCalls(self.ledger)

    # --- entering and leaving --------------------------------------------------------------------

    def __enter__(self) -> Tape:
        if self.state != "new":
            raise KernelRuntimeError("a tape can be entered once: make a new ti.ad.Tape")
        check_alone(self.runtime, self.title)
        check_loss(self.loss)
        check_place(self.loss, self.runtime)
        if self.grad_check is not None:
            from vkchi.tape.differences import check_inputs  # rarely needed

            check_inputs("Tape(grad_check=...)", self.grad_check)
        if self.clear_gradients:
            clear_all_gradients()
        set_loss(self.loss, 0.0)
        self.enter()
        return self

    def leave(self, kind: Any, error: Any, traceback: Any) -> None:
        """End the block: run the gradients unless an exception ends it or `grad` was called."""
        try:
            if kind is None and self.state == "recording":
                self.grad()
        finally:
            self.close()

    def grad(self) -> None:
        """Run the gradients of the recorded steps, last step first, end the recording and set
        `report`.

        Then compare with finite differences if the tape has `grad_check`. Raises KernelRuntimeError
        if the recording has ended or a call in it was aborted, and GradientError if a gradient
        would be wrong.
        """
        if self.state != "recording":
            raise KernelRuntimeError("the gradients of a tape can be evaluated once, inside it")
        with restoring(self.runtime.lock), self.runtime.lock:  # other threads may launch
            self.end([self.loss])
            self.entries += self.snapshots.take_rewritten()
            self.snapshots.is_reversing = True
        try:
            with self.apart_from_leftovers():
                self.report = self.grad_again() if self.snapshots.is_over else self.grad_once()
        finally:
            queries.forbid_gradients(self.ledger.fills)
        if self.grad_check:
            from vkchi.tape.differences import check_tape

            check_tape(self)

    @contextmanager
    def apart_from_leftovers(self) -> Iterator[None]:
        """Context of running gradients: set existing gradients aside, and add them back at the end.

        These are the gradients of arrays and torch tensors that the tape's calls or Python wrote,
        except for the loss. They may hold contributions by other losses, which must not be
        propagated or cleared.
        """
        is_cleared = self.clear_gradients
        arrays = State(queries.leftover_gradients(self.ledger, self.loss, is_cleared=is_cleared))
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
                    host_views.write_grad(tensor, before.detach() + new)

    def grad_once(self) -> TapeReport:
        seed_loss(self.loss)
        self.reverse()
        return TapeReport(len(self.entries), 0, 0, 0, self.snapshots.saved_bytes)

    def grad_again(self) -> TapeReport:
        drop_copies(self.entries)
        held_bytes = check_repeatable(self.entries)
        replay = CheckpointReplay(self.entries, self.snapshots.start, held_bytes)
        seed_loss(self.loss)
        assert self.snapshots.budget_bytes is not None
        return replay.run(self.snapshots.budget_bytes)

    def run_again(self) -> None:
        for entry in self.entries:
            if isinstance(entry, CustomGradientCall):
                entry.call()
            else:
                entry.repeat()

    # --- recording -------------------------------------------------------------------------------

    def run(self, name: str, kernel: CompiledKernel, args: tuple[Any, ...]) -> Any:
        """Run a kernel and return its result.

        If the facts about the call are known and it accesses no exported arrays, it is not
        analyzed.
        """
        is_plain = not (self.analyzes_all or self.runtime.exported or self.is_paused)
        found = self.known.find(name, kernel, args) if is_plain else None
        if found is None:
            return super().run(name, kernel, args)
        launch = Launch(found[0], args, found[1])
        result = self.record_launch(launch, None, args)
        self.entries.append(launch)
        return result

    def launch_noted(self, given: LaunchRequest) -> Any:
        if self.is_paused and not (self.skipped and queries.resets_derivative(self.ledger, given)):
            return self.launch_unrecorded(given)
        check_numbers(given.name, given.kernel, given.args)
        call = given.call
        if call.hosts:
            call = self.copies.share(call)
        check_leaves(call)
        make_grads(call)
        return self.launch_recorded(call, copied_where_read(call, given.args))

    def launch_recorded(self, call: KernelCall, args: tuple[Any, ...]) -> Any:
        """Run a kernel, append it to the entries, and return its result.

        Before, build its gradient, check it for lost derivatives and races, and compute the facts
        about it; later calls may use them. Raises GradientError, or DeviceError if memory is short.
        """
        adjoints, trials = CallAdjoints(call), self.races.trials
        constant = queries.constant_arrays(self.ledger, call, adjoints.names)
        made = queries.plan_where_known(call, adjoints, constant)
        met = queries.check_call(self.ledger, call, adjoints.names, self.kind)
        race = self.find_race(call, adjoints.names, made.spec)
        self.check_race(None if isinstance(race, UndecidedRace) else race)
        known = facts_of(call, made, made.spec, constant, self.kind)
        bound = self.known.bind(call.name, call.arrays, adjoints.arrays, call.repeated)
        special = None
        if call.hosts or race is not None or made.made.has_draws or self.analyzes_all:
            flags = self.ledger if self.validation else None
            special = SpecialLaunch(call, adjoints, made, race, flags)
        self.entries += self.snapshots.take_rewritten()
        self.mutation_log.note_views(call)
        launch = Launch(bound, call.args, known, special)
        result = self.record_launch(launch, call, args, met)
        if special is not None:
            self.check_race(special.race)
            special.keep_results(self.snapshots)
        self.entries.append(launch)
        if special is None and trials == self.races.trials:
            keep_facts(call, bound, known, constant)
        return result

    def find_race(
        self, call: KernelCall, names: frozenset[str], spec: GradientSpec
    ) -> Found | UndecidedRace | None:
        """Return the races in a call, an `UndecidedRace` if only its run can decide, or None.

        All races count under validation or in limited memory, where calls may be repeated.
        Otherwise only those that affect a derivative.
        """
        all_ = self.validation or self.snapshots.is_limited
        return self.races.examine(call, names, spec, all_=all_, must=self.validation)

    def check_race(self, race: Found | None) -> None:
        if race is not None and self.validation:
            raise race_error(race[0], DataAccessError)

    def launch_unrecorded(self, given: LaunchRequest) -> Any:
        """Run a kernel that is not differentiated by itself, track its writes, and return its
        result.

        It is in a custom-gradient or undifferentiated function, or runs while gradients do. Raises
        GradientError if a custom gradient runs it and it reads memory that was overwritten since
        the call.
        """
        step, kernel, who = self.note_step(given), given.kernel, self.skipped
        arrays = step.call.arrays if step is not None else given.arrays
        if self.custom is not None:
            self.custom.views += given.hosts.values()
        boxes = self.mutation_log.check_launch(given, arrays)
        written = sorted(kernel.written & arrays.keys())
        self.protect(
            [(name, boxes.get(name, ())) for name in written],
            {name: self.ledger.open(array) for name, array in arrays.items()}, f"{given.name}()",
            lambda name: self.mutation_log.is_certain(given, name, boxes.get(name, ())),
        )  # fmt: skip
        changed = queries.write_unrecorded(self.ledger, given, who, boxes) if who else ()
        result = kernel.launch(given.args)
        for one in changed:
            one.remember()
        if step is not None:
            step.keep_results(self.snapshots)
        if self.custom is not None:
            self.hold(given, f"{self.custom.function.__name__}()", boxes)
            for name, part in uses_of(given, given.case_of(arrays), self.kind):
                self.ledger.define(given.arrays[name], part)
        return result

    def hold(self, given: LaunchRequest, who: str, boxes: Mapping[str, Box]) -> None:
        """Record that a kernel in a custom-gradient function stored derivatives.

        Counts the written arrays that have a gradient, and the written torch tensors that require
        one. `who` names the writer in messages.
        """
        span = given.kernel.func.span
        for name in given.kernel.written & given.arrays.keys():
            if given.arrays[name].companion("grad") is not None:
                part = derivative_at(name, who, span, boxes.get(name, ()))
                self.ledger.define(given.arrays[name], part)
        for p, arg in leaf_arguments(given.kernel, given.args):
            if p.name in given.kernel.written and host_views.is_torch(arg) and arg.requires_grad:
                self.ledger.define(arg, derivative_at(p.name, who, span))

    def note_step(self, given: LaunchRequest) -> CallStep | None:
        """Record a call in a custom-gradient or undifferentiated function, for repetition.

        Return the step; None without memory budget, and outside these functions.
        """
        if not (self.custom or self.skipped) or self.snapshots.budget_bytes is None:
            return None
        step = CallStep(given.call)
        if self.snapshots.is_limited:
            step.race = self.races.look(step.call, frozenset(), None, all_=True)
        steps = self.custom.steps if self.custom else self.entries
        steps += [*self.snapshots.take_rewritten(), step]
        return step

    def call_custom(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of `grad_replaced` or `no_grad` and return its result.

        The first is recorded as one step. Kernels of the second are not differentiated.
        """
        if function.is_skipped:
            with self.whole_call(function, None):
                return function.__wrapped__(*args, **kwargs)
        self.ledger.look_at_all()
        custom = CustomGradientCall(self.mutation_log, function, args, kwargs)
        self.entries += self.snapshots.take_rewritten()
        self.entries += [*queries.unknown_contents(self.ledger), custom]
        with self.whole_call(function, custom), queries.ignoring_writes(self.ledger):
            return function.__wrapped__(*args, **kwargs)

    @contextmanager
    def whole_call(self, function: Any, custom: CustomGradientCall | None) -> Iterator[None]:
        """Context of a function whose kernels are not recorded one by one.

        The tape survives an exception of a function of `no_grad`. After one of a function with a
        custom gradient, and after an interrupt, the function stays `unfinished`: the gradients
        cannot run.
        """
        has_ended, name = False, function.__name__
        skipped = f"{name}(), which is not differentiated" if custom is None else None
        is_own = custom is not None or get_ident() == self.thread  # others record kernels singly
        begun, before = self.begin(name) if is_own else ([], 0)
        self.inside[get_ident()] = FunctionContext(custom, skipped)
        try:
            yield
            has_ended = True
        except local(Exception):
            has_ended = custom is None  # else its gradient is that of a complete call
            raise
        finally:
            self.inside.pop(get_ident(), None)
            if custom is not None:
                custom.steps += self.snapshots.take_rewritten()
                custom.end_call()
            if has_ended:
                del begun[before:]


@python_scope
def clear_all_gradients() -> None:
    """Set the gradients of all fields and ndarrays to 0; those of torch tensors are unchanged.

    Arrays on devices other than the current one are unchanged, too.
    """
    clear_arrays(current_runtime().gradients)
