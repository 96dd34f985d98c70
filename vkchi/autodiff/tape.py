"""Tapes: kernel calls recorded as they run, and their gradients in reverse order.

Owns: `Tape`. A launch notes which part of which arrays its gradient will read; `keeper` sees to it
that every gradient finds there what its kernel found. So the data-access rules that Taichi asks its
users to keep need not be kept. What is refused:
- an array without gradient through which a derivative would have to flow (`taints`);
- what Python or undifferentiated kernels overwrote, unless with constants (`overwrites`);
- a gradient of the user's own that reads what was overwritten since (`stale`);
- a gradient outside a tape that needs what its own kernel overwrites (`calls`).

Must not know: how gradients are built.

    with ti.ad.Tape(loss=loss):
        step(x)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vkchi.autodiff.calls import (
    Call,
    Gradients,
    arrays_of,
    check_leaves,
    companion,
    copy_of,
    describe_call,
    is_gradient,
    numbers_of,
    plan_gradient,
    usable,
    whole,
)
from vkchi.autodiff.checkpoints import Replay, Report, bytes_of, put_back
from vkchi.autodiff.copies import copy_floats
from vkchi.autodiff.keeper import Keeper, Rewritten, Wanted
from vkchi.autodiff.overwrites import Cut, Overwrites
from vkchi.autodiff.stale import History
from vkchi.autodiff.taints import Taints
from vkchi.errors import ArgumentError, KernelAssertionError, KernelRuntimeError
from vkchi.fields.storage import Access, Storage
from vkchi.interop import host
from vkchi.launch import Plan
from vkchi.ndarray import Ndarray
from vkchi.runtime import Runtime, current

if TYPE_CHECKING:
    from vkchi.autodiff.plan import GradientPlan


UNLIMITED = 1 << 62  # bytes


class Entry:
    """A recorded call. `memory` are its arrays, or copies of what they held."""

    def __init__(self, call: Call, gradients: Gradients, plan: GradientPlan) -> None:
        self.call, self.gradients, self.plan = call, gradients, plan
        self.memory = dict(call.arrays)
        self.draws = call.plan.runtime.draws

    def repeat(self) -> None:
        """Call the kernel again, with the same random numbers."""
        runtime = self.call.plan.runtime
        draws, runtime.draws = runtime.draws, self.draws
        self.call.plan.launch(self.call.args)
        runtime.draws = max(draws, runtime.draws)

    def run(self) -> None:
        """Add to the adjoints."""
        self.gradients.fetch()
        self.plan.launch(self.call.args, self.memory, self.gradients.arrays)
        self.gradients.bring_back()


class Custom:
    """A recorded call of a Python function with a gradient of its own; `end` is when it ended."""

    def __init__(
        self, tape: Tape, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any
    ) -> None:
        self.tape, self.function, self.args, self.kwargs = tape, function, args, kwargs
        self.end = 0

    def repeat(self) -> None:
        """Call it again."""
        self.function(*self.args, **self.kwargs)

    def run(self) -> None:
        """Call its gradient."""
        gradient = self.function.grad  # type: ignore[attr-defined]
        if gradient is None:
            name = self.function.__name__
            raise KernelRuntimeError(
                f"{name}() is ti.ad.grad_replaced and has no gradient: define one with "
                f"@ti.ad.grad_for({name})"
            )
        with self.tape.history.reading(self.end, self.function.__name__):
            gradient(*self.args, **self.kwargs)


class Tape:
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

    def __init__(
        self,
        loss: Any = None,
        clear_gradients: bool = True,
        validation: bool = False,
        grad_check: list[Any] | None = None,
        memory: int | str | None = None,
    ) -> None:
        self.loss, self.clear_gradients = loss, clear_gradients
        self.validation, self.grad_check = validation, grad_check
        self.runtime: Runtime = current()
        self.entries: list[Entry | Custom | Rewritten | Cut] = []
        budget = bytes_of(memory) if memory is not None else UNLIMITED if grad_check else None
        self.keeper = Keeper(budget, self.accessed)
        self.report: Report | None = None
        self.taints, self.overwrites, self.history = Taints(), Overwrites(), History()
        self.flags: dict[int, Storage] = {}  # of validation: which elements were read
        self.is_paused = False
        self.skipped: str | None = None  # the function that is running and is not differentiated
        self.failed: str | None = None  # the kernel that failed a check
        self.state = "new"

    # --- entering and leaving --------------------------------------------------------------------

    def __enter__(self) -> Tape:
        if self.state != "new":
            raise KernelRuntimeError("a tape can be entered once: make a new ti.ad.Tape")
        if self.runtime.tape is not None:
            raise KernelRuntimeError("tapes do not nest: leave the other ti.ad.Tape first")
        check_loss(self.loss)
        if self.clear_gradients:
            clear_all_gradients()
        fill(self.loss, 0.0)
        self.state, self.runtime.tape = "recording", self
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self.is_paused = True
        try:
            if kind is None:
                self.grad()
        finally:
            self.runtime.tape, self.state = None, "done"
            self.keeper.close()

    def grad(self) -> None:
        """Run the gradients of what was recorded, last call first."""
        if self.state != "recording":
            raise KernelRuntimeError("the gradients of a tape can be evaluated once, inside it")
        if self.failed:
            raise KernelRuntimeError(
                f"{self.failed}() failed a check inside this tape: how far it came is unknown, and "
                "so are the gradients"
            )
        self.overwrites.check_loss(self.loss)
        self.state = "evaluated"
        self.entries += self.keeper.take_rewritten()
        if self.keeper.is_over:
            self.grad_again()
        else:
            seed_loss(self.loss)
            for entry in reversed(self.entries):
                entry.run()
            saved = self.keeper.saved_bytes
            self.report = Report(len(self.entries), 0, 0, 0, saved)
        if self.grad_check:
            from vkchi.autodiff.check import check_tape

            check_tape(self)

    def drop_copies(self) -> None:
        """Let go of what was saved for single calls."""
        for entry in self.entries:
            if isinstance(entry, Entry):
                entry.memory = dict(entry.call.arrays)

    def grad_again(self) -> None:
        """The same where not everything could be saved: calls are done again."""
        self.drop_copies()
        for entry in self.entries:
            if isinstance(entry, Custom):
                raise KernelRuntimeError(
                    f"{entry.function.__name__}() has a gradient of its own, and Tape(memory=...) "
                    "is too little to save all it needs: give more memory"
                )
            if isinstance(entry, Entry) and any(map(is_gradient, entry.call.arrays.values())):
                raise KernelRuntimeError(
                    f"{entry.call.name}() works on gradients, so it cannot be done again, and "
                    "Tape(memory=...) is too little to save everything: give more memory"
                )
        replay = Replay(self.entries, self.keeper.start)
        seed_loss(self.loss)
        assert self.keeper.budget_bytes is not None
        self.report = replay.run(self.keeper.budget_bytes)

    def run_again(self) -> None:
        """Do the calls again, without recording them."""
        for entry in self.entries:
            entry.repeat()

    def restore_start(self) -> None:
        """Put back what the arrays held when the tape began; in limited memory, and for checks."""
        for array, copy in self.keeper.start.values():
            put_back(array, copy)

    # --- recording -------------------------------------------------------------------------------

    def launch(self, name: str, plan: Plan, args: tuple[Any, ...]) -> Any:
        """Run a kernel, having noted and saved what its gradient and earlier ones need."""
        if self.is_paused:
            return self.launch_unrecorded(name, plan, args)
        call = describe_call(name, plan, args)
        check_leaves(call)
        gradients = Gradients(call)
        made = plan_gradient(call, gradients)
        self.taints.check(call, gradients.names)
        self.overwrites.check_call(call, gradients.names)
        self.entries += self.keeper.take_rewritten()
        entry = Entry(call, gradients, made)
        for key, box in made.needs.boxes(call.numbers, call.arrays).items():
            if is_gradient(call.arrays[key]):
                entry.memory[key] = copy_of(call.arrays[key])  # which will change without notice
            else:
                self.keeper.want(Wanted(entry, key, box))
        boxes = made.writes.boxes(call.numbers, call.arrays)
        was_over = self.keeper.is_over
        self.keeper.protect(plan.written, call.arrays, boxes)
        if self.keeper.is_over and not was_over:
            self.drop_copies()
        result = self.run_call(call, args)
        self.entries.append(entry)
        for key, box in boxes.items() if self.history.time else ():
            self.history.note(call.arrays[key], box, f"{name}()")
        noted = self.taints.note(call, made.escapes)
        noted += self.overwrites.note_call(call, made.made.primal.active.stores, boxes)
        for array in noted:
            self.keeper.watch(array)
        return result

    def launch_unrecorded(self, name: str, plan: Plan, args: tuple[Any, ...]) -> Any:
        """Run a kernel of a function that is recorded as a whole, or of its gradient."""
        arrays = arrays_of(plan, args)
        boxes = self.history.note_launch(plan, numbers_of(plan, args), arrays, f"{name}()")
        for array in arrays.values():
            self.keeper.watch(whole(array))
        self.keeper.protect(plan.written, arrays, boxes)
        if self.skipped:
            self.overwrites.note_launch(plan, arrays, self.skipped)
        return plan.launch(args)

    def run_call(self, call: Call, args: tuple[Any, ...]) -> Any:
        """Run a kernel, watched if asked for."""
        try:
            if not self.validation:
                return call.plan.launch(args)
            from vkchi.autodiff.validation import run_watched

            return run_watched(call, self.flags)
        except KernelAssertionError:
            self.failed = call.name
            raise

    def call_custom(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function that `custom` made, recorded as a whole."""
        custom = Custom(self, function, args, kwargs)
        self.entries.append(custom)
        self.is_paused = True
        if function.is_skipped:
            self.skipped = f"{function.__name__}(), which is not differentiated"
        try:
            return function.__wrapped__(*args, **kwargs)
        finally:
            self.is_paused, self.skipped = False, None
            custom.end = self.history.end_call()

    # --- what Python does to arrays

    def accessed(self, array: Storage, access: Access) -> None:
        """Python is about to access an array: what it writes there has no derivative."""
        self.history.note_access(array, access)
        if access.kind == "fill":
            self.taints.forget(array)
        is_own = self.is_paused and not self.skipped  # a function that has a gradient of its own
        if self.state == "recording" and not is_own:
            self.entries += self.overwrites.note_access(array, access)

    def copy(self, target: Storage, source: Storage) -> bool:
        """Record a copy of floats as a kernel; whether it was."""
        return not self.is_paused and copy_floats(target, source)


# --- losses and gradients ------------------------------------------------------------------------


def check_loss(loss: Any) -> None:
    """Raises KernelRuntimeError for what cannot be a loss."""
    if isinstance(loss, Ndarray):
        count = loss.layout.size
    elif isinstance(loss, Storage):
        if len(loss.shape) != 0 or not loss.is_scalar:
            raise KernelRuntimeError(
                f"the loss of a ti.ad.Tape must be a field of shape (), not {loss!r}: add up into "
                "ti.field(ti.f32, shape=(), needs_grad=True) in a kernel"
            )
        count = 1
    elif host.is_torch(loss):
        count = loss.numel()
    else:
        raise ArgumentError(
            f"ti.ad.Tape needs a field, ndarray or tensor as its loss, not {loss!r}"
        )
    if count != 1:
        raise KernelRuntimeError(f"the loss of a ti.ad.Tape must be one number, not {count}")
    has_gradient = loss.requires_grad if host.is_torch(loss) else companion(loss, "grad")
    if not has_gradient:
        raise KernelRuntimeError(
            "the loss of a ti.ad.Tape needs a gradient: make it with needs_grad=True"
        )


def fill(loss: Any, value: float) -> None:
    """Set a loss."""
    if host.is_torch(loss):
        loss.detach().fill_(value)
    else:
        loss.fill(value)


def seed_loss(loss: Any) -> None:
    """Set the gradient of a loss to 1."""
    if not host.is_torch(loss):
        loss.grad.fill(1.0)
    elif loss.grad is None:
        loss.grad = loss.detach().clone().fill_(1.0)
    else:
        loss.grad.fill_(1.0)


def clear_all_gradients() -> None:
    """Set the gradients of all fields and ndarrays to 0. Those of torch tensors stay."""
    for array in usable(current().gradients):
        array.fill(0)
