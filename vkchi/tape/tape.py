"""Tapes: reverse-mode differentiation by recording kernel calls as they run.

Every recorded call requests snapshots of the parts of arrays that its gradient will read
(`snapshots`). Programs may therefore overwrite elements that kernels have read, against Taichi's
data-access rules. Unless an exception ends the block, the gradients then run, last call first.

A gradient is the vector-Jacobian product of outputs with cotangents (`Tape.backward`): that of a
loss has the cotangent 1. Without a loss, the tape keeps the contents of arrays at the end of its
block by copy-on-write (`fields.array_versions.keep`). While gradients run later, the arrays hold
these contents again.

A derivative that would be lost usually raises GradientError (`queries`). So does a custom
gradient that reads memory overwritten since its call (`custom`).

    with ti.ad.Tape(loss=loss):
        step(x)

    with ti.ad.Tape() as tape:
        step(x)
    tape.backward({y: 1.0, z: weights})
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

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
from vkchi.errors import ArgumentError, DataAccessError, KernelRuntimeError
from vkchi.fields.array_versions import Read, keep, lock_writers
from vkchi.fields.storage import Storage
from vkchi.fields.views import overlap
from vkchi.hooks import python_scope
from vkchi.interop import host_views
from vkchi.interrupts.contexts import SafeContext, restoring
from vkchi.interrupts.local import local
from vkchi.launch.compiled_kernel import CompiledKernel
from vkchi.races.race import Found, UndecidedRace, race_error
from vkchi.runtime import current_runtime
from vkchi.tape import queries
from vkchi.tape.adjoints import CallAdjoints, check_leaves, clear_arrays, make_grads
from vkchi.tape.arguments import (
    check_alone,
    check_has,
    check_loss,
    check_place,
    cotangent_of,
    seed,
    set_loss,
    title_of,
    unwritten_error,
)
from vkchi.tape.call_facts import KnownCalls, facts_of, keep_facts, uses_of
from vkchi.tape.call_paths import MOST_CALLS, CallPath, prepare
from vkchi.tape.custom import CustomGradientCall
from vkchi.tape.ledger import derivative_at
from vkchi.tape.log import (
    CallStep,
    Launch,
    SpecialLaunch,
    State,
    check_repeatable,
    drop_copies,
    launches_in,
    restore_array,
    tensors_written,
)
from vkchi.tape.recording import FunctionContext, Recording
from vkchi.tape.snapshots import UNLIMITED, CheckpointReplay, TapeReport, parse_bytes

if TYPE_CHECKING:
    from vkchi.fields.elements import ArrayAccess
    from vkchi.tape.arguments import Cotangent
    from vkchi.types.hints import Numbers, Tensors

    Output = TypeVar("Output", bound=Storage | Tensors)


class NoLoss:
    def __repr__(self) -> str:
        return "no loss"


NO_LOSS: Any = NoLoss()  # unlike None, which a program may pass by mistake


class Reversal(SafeContext):
    """Context in which a tape whose block has ended observes the program, while its gradients
    run."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape

    def __enter__(self) -> None:
        self.enter()
        self.tape.reversal, self.tape.thread = self, get_ident()
        self.tape.ledger.watch(self.tape.on_access)
        self.tape.runtime.recording = self.tape

    def leave(self, kind: Any, error: Any, traceback: Any) -> None:
        self.tape.runtime.recording = None
        self.tape.ledger.unwatch()
        self.tape.reversal = None


@python_scope
class Tape(Recording):
    """Reverse-mode differentiation of the kernels called inside `with`.

    At its end, the tape adds the derivatives of `loss` to the `grad` of the kernels' input arrays.
    Without a loss, `backward` does so afterwards, for one or several outputs.
    Source: Taichi's `ti.ad.Tape`; `memory` and `backward` are vkchi's.

    Args:
        loss: a field of shape () or an ndarray or tensor of one element, with a gradient; set to 0
            on entry. Omitted for `backward`.
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
    path: CallPath | None = None  # the calls so far, if no others were made than known ones

    def __init__(
        self,
        loss: Storage | Tensors = NO_LOSS,
        clear_gradients: bool = True,
        validation: bool = False,
        grad_check: list[Storage] | None = None,
        memory: int | str | None = None,
    ) -> None:
        self.loss: Any = None if loss is NO_LOSS else loss
        self.has_loss = loss is not NO_LOSS
        self.kept: list[Read] | None = None  # contents at the end of a block without loss
        self.reversal: Reversal | None = None
        self.clear_gradients = clear_gradients
        self.validation, self.grad_check = validation, grad_check
        usual = UNLIMITED if grad_check else None
        super().__init__(current_runtime(), usual if memory is None else parse_bytes(memory))
        self.snapshots.by_elements = bool(grad_check)
        self.report: TapeReport | None = None  # set after the gradients
        self.copies = HostCopies()
        self.analyzes_all = self.budget_bytes is not None or validation
        self.known = KnownCalls(self.ledger)

    # --- entering and leaving --------------------------------------------------------------------

    def __enter__(self) -> Tape:
        if self.state != "new":
            raise KernelRuntimeError("a tape can be entered once: make a new ti.ad.Tape")
        check_alone(self.runtime, self.title)
        if self.has_loss:
            check_loss(self.loss)
            check_place(self.loss, self.runtime)
        elif self.grad_check is not None:
            raise ArgumentError(
                "Tape(grad_check=...) compares the gradients of a loss: give one, Tape(loss, ...)"
            )
        if self.grad_check is not None:
            from vkchi.tape.ad.differences import check_inputs  # rarely needed

            check_inputs("Tape(grad_check=...)", self.grad_check)
        if self.clear_gradients:
            clear_all_gradients()
        if self.has_loss:
            set_loss(self.loss, 0.0)
        self.enter()
        self.path = None if self.analyzes_all else CallPath(self)
        return self

    def leave(self, kind: Any, error: Any, traceback: Any) -> None:
        """End the block.

        Run the gradients of the loss unless an exception ends it or `grad` was called. Without a
        loss, keep what `backward` needs.
        """
        try:
            if kind is None and self.state == "recording":
                if self.has_loss:
                    self.grad()
                else:
                    self.finish()
        finally:
            if self.kept is None:
                self.close()

    def close(self) -> None:
        self.kept = None
        super().close()

    def settle(self) -> None:
        path = self.path
        if path is not None:
            with restoring(self.runtime.lock), self.runtime.lock:  # other threads may launch
                begun, before = self.begin(path.title)  # calls are lost if this is interrupted
                self.path = None
                path.catch_up()
                del begun[before:]

    def may_prepare(self) -> bool:
        """True if nothing but its calls decides about the gradients of the tape."""
        return self.clear_gradients and self.adjust_seeds is None and not self.runtime.exported

    @property
    def is_left(self) -> bool:
        return super().is_left if self.reversal is None else self.reversal.is_left

    def is_output(self, array: Storage, access: ArrayAccess) -> bool:
        """True if an array must not get its last value from this write of Python.

        That is the loss; without one, any array that is overwritten completely.
        """
        if self.has_loss:
            return super().is_output(array, access)
        return array.whole is array and not (access.at and array.shape)

    def grad(self) -> None:
        """Run the gradients of the recorded steps, last step first, end the recording and set
        `report`.

        Then compare with finite differences if the tape has `grad_check`. Raises KernelRuntimeError
        if the recording has ended or a call in it was aborted, and GradientError if a gradient
        would be wrong.
        """
        if not self.has_loss:
            raise KernelRuntimeError(
                "Tape.grad needs a loss: give one, Tape(loss), or call backward({y: 1.0}) with "
                "outputs and cotangents"
            )
        if self.state != "recording":
            raise KernelRuntimeError("the gradients of a tape can be evaluated once, inside it")
        path = self.path
        if path is not None:
            with restoring(self.runtime.lock), self.runtime.lock:  # other threads may launch
                self.report = path.run_gradients()
            if self.report is not None:
                return
        self.end_recording([self.loss])
        self.run_gradients([(self.loss, 1.0)])
        if path is not None:
            prepare(self, path)
        if self.grad_check:
            from vkchi.tape.ad.differences import check_tape

            check_tape(self)

    def backward(self, cotangents: Mapping[Output, Numbers]) -> None:
        """Add vector-Jacobian products to the `grad` of the inputs: derivatives of the sum of all
        outputs, weighted with their cotangents.

        The outputs are arrays that kernels wrote in the block, with their contents at its end. It
        may be called again, with other cotangents. Called inside the block, it ends the recording.

        Args:
            cotangents: for each output, its cotangent: numbers of the same shape, or one for all
                elements. Outputs are fields, ndarrays and torch tensors with a gradient.

        Raises:
            ArgumentError: for an output that was not written or has no gradient, and for a
                cotangent of another shape or not of real numbers.
            KernelRuntimeError: for a tape with a loss or one whose block has not begun or ended by
                an exception; if a recording is active; if a gradient was replaced since.
            GradientError: if a gradient would be wrong, also because torch would add it twice.
        """
        if self.has_loss:
            raise KernelRuntimeError(
                "Tape.backward needs a tape without loss: with ti.ad.Tape() as tape"
            )
        if self.state == "recording":
            self.finish()
        self.contents_at_end()
        check_alone(self.runtime, "Tape.backward")
        if not isinstance(cotangents, Mapping) or not cotangents:
            raise ArgumentError(
                "Tape.backward takes a dictionary of outputs and their cotangents, as in "
                f"tape.backward({{y: 1.0}}), not {host_views.short_repr(cotangents)}"
            )
        self.check_outputs(cotangents)
        for launch in launches_in(self.entries):
            check_leaves(launch.call)  # torch may be going backward now
        self.pull_back([(y, cotangent_of(y, given)) for y, given in cotangents.items()])

    def pull_back(self, seeds: Sequence[tuple[Any, Cotangent]]) -> None:
        """`backward` for checked outputs and copies of their cotangents."""
        kept = self.contents_at_end()
        self.check_gradients()
        with lock_writers(self.runtime), Reversal(self), self.as_recorded(kept):
            self.run_gradients(seeds)

    def contents_at_end(self) -> list[Read]:
        """Contents of the arrays at the end of the block. Raises KernelRuntimeError if it has not
        begun, or was left by an exception."""
        if self.kept is None:
            how = "was not entered" if self.state == "new" else "was ended by an exception"
            raise KernelRuntimeError(f"Tape.backward: the block of this tape {how}")
        return self.kept

    def check_outputs(self, outputs: Collection[Any]) -> None:
        """Raise an error for an array that cannot be an output.

        ArgumentError if it was not written in the block, is no array or has no gradient, and if two
        of them have common elements. GradientError if its contents are unknown, or Python
        wrote it last.
        """
        tensors = tensors_written(self.entries)
        near: dict[int, list[Storage]] = {}  # outputs by their memory
        for y in outputs:
            who = title_of(y)
            if isinstance(y, Storage):
                y.check_alive()
                check_has(who, y)
                others = [x for x in near.setdefault(id(y.whole), []) if x is not y]
                near[id(y.whole)].append(y)
                if one := next((x for x in others if overlap(x, y)), None):
                    raise ArgumentError(f"outputs overlap: {one!r} and {y!r}")
                is_known = queries.is_result(self.ledger, y)
            elif host_views.is_torch(y):
                if not host_views.has_grad(y):
                    raise ArgumentError(f"{who} needs a gradient: make it with requires_grad=True")
                is_known = any(tensor is y for tensor in tensors)
            else:
                raise ArgumentError(f"an output must be a field, ndarray or tensor, not {who}")
            if not is_known:
                raise unwritten_error(y)
            queries.check_output(self.ledger, y, who)

    def check_gradients(self) -> None:
        """Raise KernelRuntimeError if an array has another gradient than when it was recorded."""
        calls = {id(one.bound): one.bound for one in self.entries if isinstance(one, Launch)}
        for bound in calls.values():
            for name, gradient in bound.gradients.items():
                if bound.arrays[name].companion("grad") is not gradient:
                    raise KernelRuntimeError(
                        f"the gradient of `{name}` was replaced since {bound.who} was recorded: "
                        "derivatives would be added to the old one"
                    )

    def end_recording(self, outputs: Sequence[Any]) -> None:
        with restoring(self.runtime.lock), self.runtime.lock:  # other threads may launch
            self.end(outputs)
            self.entries += self.snapshots.take_rewritten()
            self.snapshots.is_reversing = True

    def finish(self) -> None:
        """End the recording, and keep the contents of its arrays for gradients that run later.

        Raises KernelRuntimeError if a call or write did not finish.
        """
        with restoring(self.runtime.lock), self.runtime.lock:  # other threads may launch
            self.end_recording(())
            for one in self.ledger.hosts:
                one.unfollow()
            arrays = [one.array for one in self.ledger.accounts.values()]
            kept = [keep(array) for array in arrays if not array.is_gradient]
            self.ledger.unwatch()
            self.runtime.recording = None
            self.kept = kept

    @contextmanager
    def as_recorded(self, kept: Sequence[Read]) -> Iterator[None]:
        """Context in which arrays hold their contents from the end of the recording again."""
        changed = [(one.array, one.copy) for one in kept if one.copy is not None]
        now = State(array for array, _ in changed)
        try:
            for array, copy in changed:
                restore_array(array, copy)
            yield
        finally:
            now.repeat()
            if self.runtime.exported:
                self.runtime.device.wait()  # other libraries read without notice

    def run_gradients(self, seeds: Sequence[tuple[Any, Cotangent]]) -> None:
        """Add the derivatives of outputs, weighted with their cotangents, and set `report`."""
        self.ledger.clear_slopes()
        if self.adjust_seeds is not None:
            seeds = self.adjust_seeds(seeds)
        try:
            with self.apart_from_leftovers():
                run = self.grad_again if self.snapshots.is_over else self.grad_once
                self.report = run(seeds)
        finally:
            queries.forbid_gradients(self.ledger.fills)

    @contextmanager
    def apart_from_leftovers(self) -> Iterator[None]:
        """Context of running gradients: set existing gradients aside, and add them back at the end.

        These are the gradients of arrays and torch tensors that the tape's calls or Python wrote,
        except for the loss. They may hold contributions by other losses, which must not be
        propagated or cleared.
        """
        is_cleared = self.clear_gradients and self.has_loss
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

    def grad_once(self, seeds: Sequence[tuple[Any, Cotangent]]) -> TapeReport:
        for output, cotangent in seeds:
            seed(output, cotangent)
        self.reverse()
        return TapeReport(len(self.entries), 0, 0, 0, self.snapshots.saved_bytes)

    def grad_again(self, seeds: Sequence[tuple[Any, Cotangent]]) -> TapeReport:
        drop_copies(self.entries)
        held_bytes = check_repeatable(self.entries)
        replay = CheckpointReplay(self.entries, self.snapshots.start, held_bytes)
        for output, cotangent in seeds:
            seed(output, cotangent)
        assert self.snapshots.budget_bytes is not None
        return replay.run(self.snapshots.budget_bytes)

    def run_again(self) -> None:
        for entry in self.entries:
            if isinstance(entry, CustomGradientCall):
                entry.call()
            else:
                entry.repeat()

    # --- recording -------------------------------------------------------------------------------

    def launch(self, name: str, kernel: CompiledKernel, args: tuple[Any, ...]) -> Any:
        path = self.path
        call = None if path is None else path.find(kernel, args)
        if path is None or call is None:
            return super().launch(name, kernel, args)
        return path.follow(name, call)

    def run(self, name: str, kernel: CompiledKernel, args: tuple[Any, ...]) -> Any:
        """Run a kernel and return its result.

        If the facts about the call are known and it accesses no exported arrays, it is not
        analyzed.
        """
        path = self.path
        self.settle()
        is_plain = not (self.analyzes_all or self.runtime.exported or self.is_paused)
        found = self.known.find(name, kernel, args) if is_plain else None
        if found is None:
            return super().run(name, kernel, args)
        launch, saved = Launch(found[0], args, found[1]), len(self.snapshots.copied)
        result = self.record_launch(launch, None, args)
        self.entries.append(launch)
        if path is not None and path.length < MOST_CALLS:
            path.extend(launch, saved)
            self.path = path
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
