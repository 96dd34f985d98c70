"""What tapes, forward mode and products with the Hessian have in common: they see every kernel call
and every access of Python to the arrays that they watch.

Owns: `Recording`. Must not know: how derivatives are built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any

from vkchi.analysis.boxes import Box
from vkchi.autodiff.answers import WORDS, Outflow
from vkchi.fields.elements import Access
from vkchi.fields.storage import Storage
from vkchi.interop import host
from vkchi.interrupts.blocks import Block
from vkchi.launch import Plan
from vkchi.ndarray import Ndarray
from vkchi.races.finder import RaceFinder
from vkchi.runtime import Runtime
from vkchi.span import user_span
from vkchi.tape.breaks import Breaks, overwrite
from vkchi.tape.calls import Call, Given, Gradients
from vkchi.tape.constant_arrays import Constants
from vkchi.tape.hosted import Copied, Function, HostStep
from vkchi.tape.ledger import (
    Account,
    Break,
    Holder,
    HostAccount,
    Index,
    Ledger,
    Use,
    Wanted,
    box_at,
)
from vkchi.tape.log import Cut, Step
from vkchi.tape.mutation_log import MutationLog
from vkchi.tape.snapshots import Snapshots
from vkchi.tape.steps import Custom, drop_copies
from vkchi.tuples import NamedTuple
from vkchi.types import shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.tape.ledger import Memory, Values
    from vkchi.tape.plan import GradientPlan


NOTES = ("entries", "ledger", "breaks", "constants", "mutation_log", "snapshots", "races")


class Inside(NamedTuple):
    """A function whose kernels are not recorded one by one: a call recorded as a whole, or the name
    of what is not differentiated."""

    custom: Custom | None
    skipped: str | None


class Recording(Block):
    """Knows where derivatives are: in the arrays' `kind`, grad or dual, and where they got lost.
    Entered by `with`, it sees what happens in the block: `launch` and `on_access` are the ways by
    which it does.

    `entries` are the steps recorded. `inside` are functions, by thread, that are recorded as a
    whole or not at all. `solving` are vectors that gradients of solvers work in. What is noted
    (NOTES) is there once anybody asks for it.
    """

    title: str  # what users call it
    kind = "grad"
    # Whether functions with gradients of their own, and what the host computes, are steps.
    records_functions = False
    loss: Any = None  # the array that derivatives are of, if there is one

    def __init__(self, runtime: Runtime, budget_bytes: int | None = None) -> None:
        self.runtime, self.thread, self.budget_bytes = runtime, get_ident(), budget_bytes
        self.solving: dict[Any, tuple[Any, ...]] = {}
        self.inside: dict[int, Inside] = {}
        self.state = "new"

    @property
    def custom(self) -> Custom | None:
        """The call that this thread is in and that is recorded as a whole."""
        found = self.inside.get(get_ident()) if self.inside else None
        return found.custom if found is not None else None

    @property
    def skipped(self) -> str | None:
        """The function that this thread is in and that is not differentiated."""
        found = self.inside.get(get_ident()) if self.inside else None
        return found.skipped if found is not None else None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """What is noted, asked for the first time."""
            if name not in NOTES or self.is_noting:
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
            self.begin_notes()
            return getattr(self, name)

    @property
    def is_noting(self) -> bool:
        """Whether anything was noted."""
        return NOTES[-1] in vars(self)

    def begin_notes(self) -> None:
        """Note what happens from now on."""
        self.entries: list[Step] = []
        ledger = self.ledger = Ledger(self.on_access, self.runtime.exported)
        self.breaks, self.constants = Breaks(ledger), Constants(ledger)
        self.mutation_log = MutationLog(ledger)
        self.snapshots = Snapshots(self.budget_bytes, ledger)
        self.races = RaceFinder(lambda array: ledger.open(array).version)  # the last of NOTES

    def enter(self) -> None:
        """See everything from now on."""
        self.state = "recording"
        super().enter()
        self.runtime.recording = self

    def leave(self, kind: Any, error: Any, traceback: Any) -> None:
        """The end of the block."""
        self.close()

    def close(self) -> None:
        """See nothing any more. Idempotent."""
        self.state = "done"
        if self.runtime.recording is self:
            self.runtime.recording = None
        self.ledger.close()
        self.snapshots.close()

    def launch(self, name: str, plan: Plan, args: tuple[Any, ...]) -> Any:
        """Run a kernel; what others wrote to its arrays in place is noted first."""
        given = Given(name, plan, args)
        arrays = given.arrays.values() if self.runtime.exported else ()
        self.ledger.look(arrays)
        result = self.launch_noted(given)
        self.ledger.show(arrays)
        return result

    def launch_noted(self, given: Given) -> Any:
        """Run a kernel, recorded if it is to be."""
        raise NotImplementedError

    def reverse(self) -> None:
        """Run the gradients of what was recorded, last call first."""
        for entry in reversed(self.entries):
            entry.run()

    def check(self, call: Call, names: frozenset[str]) -> None:
        """Raises GradientError if a derivative is lost on its way to `names`, the call's arrays
        that have one."""
        self.breaks.check(call, names, self.kind, self.under(call))

    def under(self, call: Call) -> list[tuple[str, Break]]:
        """What a call finds in host memory with a derivative, for it is that of arrays into which
        kernels have put it."""
        found = []
        for name in call.hosts.keys() - call.constants:
            view = call.hosts[name]
            for array in self.ledger.exports(view):
                account = self.ledger.open(array)
                held = account.holds() if account.fills is None else None
                origins = [one.origin for one in account.escaping]
                origins += [held.origin] if held is not None else []
                found += [(name, Break(view, name, origin)) for origin in origins]
        return found

    def note(self, call: Call, flow: Outflow, boxes: Mapping[str, Box]) -> None:
        """Note where a call put derivatives: into which arrays, and parts of those with a place for
        them."""
        self.breaks.note_escapes(call, flow.escapes)
        self.breaks.note_escapes(call, flow.bits, is_bits=True)
        self.breaks.note_call(call, flow.stores, boxes)
        self.breaks.use(call, call.case, self.kind)
        for view in (call.hosts[name] for name in call.hosts if name in call.plan.written):
            for array in self.ledger.exports(view):
                self.note_detached(
                    [view], array, "that is memory of an array, into which it went here"
                )

    def save(self, call: Call, holder: Holder, made: GradientPlan) -> dict[str, Box]:
        """Have kept what a call's gradient will read; the parts of arrays that the call writes."""
        for key, box in made.needs(call).items():
            array = holder.memory[key]
            if array.is_gradient:
                holder.memory[key] = array.copied()  # which will change without notice
            else:
                self.snapshots.want(Wanted(holder, key, box))
        return made.writes(call)

    def protect(
        self, who: str, written: set[str], arrays: Mapping[str, Storage], boxes: Mapping[str, Box]
    ) -> None:
        """A launch is about to overwrite these parts of arrays: save them, as long as the memory
        suffices."""
        was_over = self.snapshots.is_over
        accounts = {name: self.ledger.open(array) for name, array in arrays.items()}
        for account in accounts.values():
            account.is_used = True
        for name in sorted(written & arrays.keys()):
            account = accounts[name]
            account.is_written = True
            account.change(is_whole=True)
            account.forget_constants()
            if name in boxes:
                self.mutation_log.note(account.array, boxes[name], who)
            self.snapshots.save(account.array, boxes.get(name))
        if self.snapshots.is_over and not was_over:
            drop_copies(self.entries)

    def note_gradient(self, call: Call, gradients: Gradients, needs: Iterable[str]) -> None:
        """Note that `kernel.grad` has added to gradients, having read these arrays."""
        if self.state != "recording":
            return
        self.leave_trace()
        adjoints: dict[str, Memory] = {}
        for name in gradients.names:
            if name not in call.tensors:
                adjoints[name] = gradients.arrays[name].whole
                self.ledger.open(gradients.arrays[name]).change(is_whole=True)
            elif (view := host.view_of(host.grad_of(call.tensors[name]))) is not None:
                adjoints[name] = view
        if not self.is_paused:
            self.breaks.note_gradient(call, adjoints, needs, self.kind)

    def on_access(self, array: Storage, access: Access) -> None:
        """Python is about to access an array: what it writes there has no derivative."""
        self.leave_trace()
        self.mutation_log.note_access(array, access)
        is_ours = self.state == "recording" and self.custom is None
        is_open = self.custom is not None or (access.kind != "read" and self.must_note(array))
        account = self.ledger.open(array) if is_open else self.ledger.find(array)
        if access.kind == "read":
            if account is not None:
                account.note_read(access.at, has_own=not is_ours)
            return
        if account is not None:
            account.change(is_whole=access.at is None or not is_ours)
            if is_ours and array.whole is self.loss:
                account.note_write(access)
            is_cut = overwrite(account, array, access, is_ours=is_ours)
            if not is_ours:
                self.written_inside(account, array)
            elif is_cut:
                self.cut(array, access.at)
            if account.is_used:
                self.snapshots.save_all(account.array)
        if not (self.is_paused or access.is_sum) and self.breaks.holds(array) is None:
            self.constants.note_fill(array, access.at)

    def must_note(self, array: Storage) -> bool:
        """True for arrays of which Python's writes count though no kernel has used them: gradients,
        and the loss."""
        return self.state == "recording" and (array.is_gradient or array.whole is self.loss)

    def written_inside(self, account: Account, array: Storage) -> None:
        """Python is about to write to an array while gradients run, or in a function that has one
        of its own, which knows of that."""
        account.forget_constants()
        if self.custom is not None:
            account.is_used = True
            if array.companion("grad") is not None:
                who = f"{self.custom.function.__name__}()"
                self.breaks.hold(account.array, repr(array), who, user_span())

    def cut(self, array: Storage, at: Index | None) -> None:
        """Record that Python wrote a constant."""
        gradient = array.companion("grad")
        assert gradient is not None
        self.entries.append(Cut((gradient,), at))
        account = self.ledger.open(array)
        account.is_cut = True
        if at is None and account.array is array:
            account.fills = frozenset()

    def leave_trace(self) -> None:
        """Something is about to happen that is no plain kernel call."""

    # --- what Python computes and copies ---------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Whether calls and copies are done as they are, and what Python computes does not matter:
        inside functions with gradients of their own, in those that have none by intent, and when
        the gradients run."""
        return self.state != "recording" or self.custom is not None or self.skipped is not None

    def may_record(self, inputs: Sequence[Memory]) -> bool:
        """Whether what the host computes from these (`hosted`) is a step: derivatives by an array,
        or by what it computed before, are known in the end."""
        slopes = (x.companion("grad") if isinstance(x, Storage) else self.computed(x)
                  for x in inputs)  # fmt: skip
        can_record = self.records_functions and not self.is_paused
        return can_record and any(one is not None for one in slopes)

    def computed(self, x: Memory) -> HostAccount | None:
        """The account of a numpy array that the host computed, and that nobody has changed."""
        account = None if isinstance(x, Storage) else self.ledger.find(x)
        is_known = account is not None and account.slope is not None and account.is_known
        return account if is_known else None

    def record(
        self, function: Function, inputs: Sequence[Memory], found: Sequence[Values],
        result: Values, output: Memory,
    ) -> None:  # fmt: skip
        """Record what the host computed. Raises GradientError where an input was overwritten with
        something unknown."""
        self.leave_trace()
        self.breaks.check_arrays(x for x in inputs if isinstance(x, Storage))
        if isinstance(output, Storage):
            self.protect(function.who, {"output"}, {"output": output}, {})
            self.breaks.hold(output, repr(output), function.who, user_span())
        self.note_detached(inputs, output, f"{function.who} took it from there here", is_all=False)
        here = user_span()
        for x in inputs:
            if isinstance(x, Storage) and x.companion(self.kind) is not None:
                use = Use(repr(x), function.who, lambda: here, box_at(x))
                self.ledger.open(x).uses.add(use)
        known = [self.computed(x) or x for x in inputs]
        if isinstance(output, Storage):
            step = HostStep(function, known, found, result, output)
        else:
            account = self.ledger.open(output)
            account.remember()
            account.slope = np.zeros(output.shape)
            step = HostStep(function, known, found, result, account)
        self.entries += [*self.snapshots.take_rewritten(), step]
        self.snapshots.count(step.size_bytes)

    def hold_result(self, array: Storage, who: str) -> None:
        """Note that a function with a gradient of its own gave these values."""
        self.leave_trace()
        account = self.ledger.open(array)
        account.forget_constants()
        account.loss = None
        self.breaks.hold(array, repr(array), who, user_span())
        self.ledger.show((array.whole,))

    def holding(self, array: Memory) -> list[Break]:
        """What an array holds that has a derivative: matrices and tensors too."""
        found = self.breaks.of(array)
        if isinstance(array, Storage) and array.companion(self.kind) is not None:
            held = self.breaks.holds(array)
            origin = (f"{array!r} has a {WORDS[self.kind]}", None) if held is None else held.origin
            found = [*found, Break(array.whole, repr(array), origin)]
        if not isinstance(array, Storage):
            origins = [held.origin for one in self.ledger.near(array) for held in one.held.values()]
            account = self.ledger.find(array)
            if account is not None and account.slope is not None:
                origins += [("the matrix is made of values with a derivative", None)]
            found += [Break(array, "", origin) for origin in origins]
        return found

    def lost_in(self, array: Memory) -> list[Break]:
        """What an array holds whose derivative is lost, wherever it is put."""
        is_known = self.computed(array) is not None
        return [t for t in self.breaks.of(array) if not (t.is_shown and is_known)]

    def note_detached(
        self, inputs: Sequence[Memory], output: Memory, way: str, *,
        is_all: bool = True, is_shown: bool = False,
    ) -> None:  # fmt: skip
        """Note that Python computed something from arrays, which has lost their derivatives, or
        (not `is_all`) those that were lost before. If the user `is_shown` a numpy array that is
        recorded, only other uses of it lose them than to put it into an array (`filled`)."""
        self.leave_trace()
        if not self.is_paused:
            find = self.holding if is_all else self.lost_in
            found = [t for x in inputs for t in find(x)]
            self.breaks.pass_on(found, output, way, is_shown=is_shown)

    def filled(self, array: Storage, values: Values) -> None:
        """Python puts these numbers into an array: what the host computed has its derivative."""
        has_place = array.compute.kind == "f" and array.companion("grad") is not None
        if self.is_paused or not (has_place and self.computed(values)):
            self.note_detached([values], array, "Python put it into an array here")
            return
        self.ledger.open(array).loss = None  # it is overwritten with something known
        self.record(Copied(), [values], [values], values, array)
        if array in self.runtime.exported:
            self.ledger.expect(array, host.cast(values, array.compute))

    def copy_tensor(self, target: Storage, tensor: Any) -> bool:
        """Record a copy of a torch tensor that wants a gradient; of one of another shape than the
        array, the derivative is lost."""
        self.leave_trace()
        can_record = self.records_functions and not self.is_paused
        if not (can_record and target.compute.kind == "f" and host.has_grad(tensor)):
            return False
        if tuple(tensor.shape) == target.shape + shape_of(target.elem):
            from vkchi.tape.copies import copy_tensor  # few programs copy inside tapes

            copy_tensor(target, tensor)
            return True
        target.from_numpy(host.array_of_torch(tensor))
        lost = Break(target, "", ("a tensor that requires a gradient was copied", None))
        self.breaks.pass_on([lost], target, "it was put into an array here")
        return True

    def refill(self, target: Ndarray, source: Storage) -> bool:
        """Record a copy of floats into an array of another shape, the texels of a texture, which
        gets a gradient if the source has one; whether it was."""
        self.leave_trace()
        is_smooth = not self.is_paused and target.compute.kind == source.compute.kind == "f"
        if is_smooth:
            has_gradient = self.kind == "grad" and source.companion("grad") is not None
            if has_gradient and target.grad is None:
                target.add_gradient()
            from vkchi.tape.copies import copy_in_order

            copy_in_order(target, source)
        return is_smooth

    def copy(self, target: Storage, source: Storage) -> bool:
        """Record a copy of floats as a kernel; whether it was."""
        from vkchi.tape.copies import copy_floats

        self.leave_trace()
        return not self.is_paused and copy_floats(target, source)
