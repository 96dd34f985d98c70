"""What tapes, forward mode and products with the Hessian have in common: they see every kernel call
and every access of Python to the arrays that they watch.

Owns: `Recording`. Must not know: how derivatives are built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from vkchi.tape.calls import Call, arrays_of
from vkchi.tape.clobbers import Clobbers, Held
from vkchi.tape.constants import Constants
from vkchi.tape.copies import copy_floats, copy_in_order, copy_tensor
from vkchi.tape.escapes import Escape, Escapes
from vkchi.tape.hosted import Copied, Function, Hosted
from vkchi.tape.log import Cut, Index, Step
from vkchi.tape.mutation_log import MutationLog
from vkchi.tape.seen import Seen
from vkchi.tape.snapshots import Holder, Snapshots, Wanted
from vkchi.tape.steps import Custom, drop_copies
from vkchi.types import shape_of

if TYPE_CHECKING:
    from vkchi.tape.escapes import Values
    from vkchi.tape.plan import GradientPlan


class Recording(Block):
    """Knows where derivatives are: in the arrays' `kind`, grad or dual, and where they got lost.
    Entered by `with`, it sees what happens in the block. `entries` are the steps recorded; `custom`
    is the call that is recorded as a whole now, `skipped` the function that is running and is not
    differentiated, `written` what was; `solving` are vectors that gradients of solvers work in."""

    title: str  # what users call it
    kind = "grad"
    # Whether functions with gradients of their own, and what the host computes, are steps.
    records_functions = False
    is_paused = False  # whether calls and copies are done as they are

    def __init__(self, runtime: Runtime, budget_bytes: int | None = None) -> None:
        self.runtime, self.thread = runtime, get_ident()
        self.entries: list[Step] = []
        self.escapes, self.clobbers, self.constants = Escapes(), Clobbers(), Constants()
        self.mutation_log, self.hosted = MutationLog(), Hosted()
        self.solving: dict[Any, tuple[Any, ...]] = {}
        self.written: dict[int, Storage] = {}
        self.custom: Custom | None = None
        self.skipped: str | None = None
        self.state = "new"
        self.snapshots = Snapshots(budget_bytes, self.accessed)
        self.races = RaceFinder(self.snapshots.watch)
        self.seen = Seen(runtime)

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
        self.snapshots.close()

    def launch(self, name: str, plan: Plan, args: tuple[Any, ...]) -> Any:
        """Run a kernel; what others wrote to its arrays in place is noted first."""
        arrays = arrays_of(plan, args).values() if self.runtime.exported else ()
        self.seen.look(arrays)
        result = self.launch_noted(name, plan, args)
        self.seen.take(arrays)
        return result

    def launch_noted(self, name: str, plan: Plan, args: tuple[Any, ...]) -> Any:
        """Run a kernel, recorded if it is to be."""
        raise NotImplementedError

    def reverse(self) -> None:
        """Run the gradients of what was recorded, last call first."""
        for entry in reversed(self.entries):
            entry.run()

    def check(self, call: Call, names: frozenset[str]) -> None:
        """Raises GradientError if a derivative is lost on its way to `names`, the call's arrays
        that have one."""
        for array in self.escapes.check(call, names, self.kind, self.under(call)):
            self.snapshots.watch(array)
        self.clobbers.check_call(call, names)

    def under(self, call: Call) -> list[tuple[str, Escape]]:
        """What a call finds in host memory with a derivative, for it is that of arrays into which
        kernels have put it."""
        found = []
        views = call.hosts.items() if self.runtime.exported else ()
        for name, view in ((k, v) for k, v in views if k not in call.constants):
            for array in self.seen.find_under(view):
                held = None if id(array) in self.constants.arrays else self.clobbers.holds(array)
                origins = [t.origin for t in self.escapes.of(array)]
                origins += [held.origin] if held is not None else []
                found += [(name, Escape(view, name, origin, ())) for origin in origins]
        return found

    def note(self, call: Call, flow: Outflow, boxes: Mapping[str, Box]) -> None:
        """Note where a call put derivatives: into which arrays, and parts of those with a place for
        them."""
        noted = self.escapes.note(call, flow.escapes)
        noted += self.escapes.note(call, flow.bits, is_bits=True)
        for array in noted + self.clobbers.note_call(call, flow.stores, boxes):
            self.snapshots.watch(array)
        for view in (
            call.hosts[name]
            for name in call.plan.written & call.hosts.keys()
            if self.runtime.exported
        ):
            for array in self.seen.find_under(view):
                self.let_go([view], array, "that is memory of an array, into which it went here")

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
        self, written: set[str], arrays: Mapping[str, Storage], boxes: Mapping[str, Box]
    ) -> None:
        """Save what a launch is about to overwrite, in these parts, as long as the memory
        suffices."""
        was_over = self.snapshots.is_over
        changed = {id(a): a for a in (arrays[name].whole for name in written & arrays.keys())}
        self.written |= changed
        for array in changed.values():
            array.overwritten += 1
        self.races.note_written(changed.values())
        self.snapshots.protect(written, arrays, boxes)
        if self.snapshots.is_over and not was_over:
            drop_copies(self.entries)

    def accessed(self, array: Storage, access: Access) -> None:
        """Python is about to access an array: what it writes there has no derivative."""
        self.mutation_log.note_access(array, access)
        if access.kind != "read":
            self.races.note_written((array.whole,))
        is_own = self.is_paused and not self.skipped  # a function that has a gradient of its own
        if access.kind != "read" and (is_own or access.at is None):
            array.whole.overwritten += 1  # single elements that were read are refused anyway
        if self.state == "recording" and not is_own:
            self.escapes.note_access(array, access)
            if self.clobbers.note_access(array, access):
                self.cut(array, access.at)
            self.note_fill(array, access)
            return
        if access.kind != "read":
            self.constants.drop((array,))
        self.escapes.note_access(array, access)
        custom = self.custom
        if custom is not None and access.kind != "read" and array.companion("grad") is not None:
            name, who = repr(array), f"{custom.function.__name__}()"
            box = (None,) * len(array.shape)
            self.clobbers.hold(Held(array.whole, name, who, user_span(), box))

    def accessed_unwatched(self, array: Storage, access: Access) -> None:
        """A function with a gradient of its own may write to arrays that no kernel has met, and its
        gradient read what Python wrote to them since."""
        if access.kind != "read" and self.mutation_log.time:
            self.mutation_log.note_access(array, access)
            self.snapshots.watch(array)
        if self.is_paused and access.kind != "read":
            self.constants.drop((array,))
        elif self.state == "recording":
            self.note_fill(array, access)
        if self.custom is not None and access.kind != "read":
            self.snapshots.watch(array)
            self.snapshots.on_access(array, access)

    def note_fill(self, array: Storage, access: Access) -> None:
        """Note what Python is about to put into an array that holds nothing with a derivative."""
        is_new = access.kind != "read" and not access.is_sum and not self.is_paused
        if is_new and self.clobbers.holds(array) is None:
            self.constants.note_fill(array, access.at)

    def cut(self, array: Storage, at: Index | None) -> None:
        """Record that Python wrote a constant."""
        gradient = array.companion("grad")
        assert gradient is not None
        self.entries.append(Cut((gradient,), at))
        if at is None:
            self.constants.note_cut(array)

    # --- what Python computes and copies ---------------------------------------------------------

    @property
    def is_following(self) -> bool:
        """Whether what Python computes matters: not inside functions with gradients of their own,
        nor in those that have none by intent."""
        return self.state == "recording" and not self.is_paused

    def may_record(self, inputs: Sequence[Storage | Values]) -> bool:
        """Whether what the host computes from these (`hosted`) is a step."""
        can_record = self.records_functions and self.is_following
        return can_record and self.hosted.has_slopes(inputs)

    def record(
        self, function: Function, inputs: Sequence[Storage | Values], found: Sequence[Values],
        result: Values, output: Storage | Values,
    ) -> None:  # fmt: skip
        """Record what the host computed. Raises GradientError where an input was overwritten with
        something unknown."""
        self.clobbers.check_arrays(x for x in inputs if isinstance(x, Storage))
        if isinstance(output, Storage):
            self.protect({"output"}, {"output": output}, {})
            box = (None,) * len(output.shape)
            self.clobbers.hold(Held(output, repr(output), function.who, user_span(), box))
            self.snapshots.watch(output)
        self.let_go(inputs, output, f"{function.who} took it from there here", is_all=False)
        step = self.hosted.make_step(function, inputs, found, result, output)
        self.entries += [*self.snapshots.take_rewritten(), step]
        self.snapshots.count(step.size_bytes)

    def hold_result(self, held: Held) -> None:
        """Note that a function with a gradient of its own gave these values."""
        self.constants.drop((held.array,))
        self.clobbers.forget(held.array)
        self.clobbers.hold(held)
        self.snapshots.watch(held.array)
        self.seen.take((held.array,))

    def holding(self, array: Storage | Values) -> list[Escape]:
        """What an array holds that has a derivative: matrices and tensors too."""
        found = self.escapes.of(array)
        if isinstance(array, Storage) and array.companion(self.kind) is not None:
            held = self.clobbers.holds(array)
            origin = (f"{array!r} has a {WORDS[self.kind]}", None) if held is None else held.origin
            found = [*found, Escape(array.whole, repr(array), origin, ())]
        if not isinstance(array, Storage):
            origins = [*self.clobbers.origins(array), *self.hosted.origins(array)]
            found = [*found, *(Escape(array, "", origin, ()) for origin in origins)]
        return found

    def lost_in(self, array: Storage | Values) -> list[Escape]:
        """What an array holds whose derivative is lost, wherever it is put."""
        return [t for t in self.escapes.of(array) if not self.hosted.is_shown(array, t)]

    def let_go(
        self, inputs: Sequence[Storage | Values], output: Storage | Values, way: str, *,
        is_all: bool = True,
    ) -> None:  # fmt: skip
        """Note that Python computed something from arrays, which has lost their derivatives, or
        (not `is_all`) those that were lost before."""
        if self.is_following:
            find = self.holding if is_all else self.lost_in
            found = [t for x in inputs for t in find(x)]
            for array in self.escapes.pass_on(found, output, way):
                self.snapshots.watch(array)

    def note_shown(self, inputs: Sequence[Storage | Values], output: Values, way: str) -> None:
        """The user gets a numpy array that the tape has recorded: other uses of it lose the
        derivative than to put it into an array (`filled`)."""
        before = len(self.escapes.hosts)
        self.let_go(inputs, output, way)
        self.hosted.shown += self.escapes.hosts[before:]

    def filled(self, array: Storage, values: Values) -> None:
        """Python puts these numbers into an array: what the host computed has its derivative."""
        has_place = array.dtype.kind == "f" and array.companion("grad") is not None
        if not (self.is_following and has_place and self.hosted.is_known(values)):
            self.let_go([values], array, "Python put it into an array here")
            return
        self.clobbers.forget(array)
        self.constants.drop((array,))
        self.record(Copied(), [values], [values], values, array)
        if array in self.runtime.exported:
            self.seen.expect(array, host.cast(values, array.dtype))

    def copy_tensor(self, target: Storage, tensor: Any) -> bool:
        """Record a copy of a torch tensor that wants a gradient; of one of another shape than the
        array, the derivative is lost."""
        can_record = self.records_functions and self.is_following
        if not (can_record and target.dtype.kind == "f" and host.has_grad(tensor)):
            return False
        if tuple(tensor.shape) == target.shape + shape_of(target.elem):
            copy_tensor(target, tensor)
            return True
        target.from_numpy(host.array_of_torch(tensor))
        lost = Escape(target, "", ("a tensor that requires a gradient was copied", None), ())
        for array in self.escapes.pass_on([lost], target, "it was put into an array here"):
            self.snapshots.watch(array)
        return True

    def refill(self, target: Ndarray, source: Storage) -> bool:
        """Record a copy of floats into an array of another shape, the texels of a texture, which
        gets a gradient if the source has one; whether it was."""
        is_smooth = not self.is_paused and target.dtype.kind == source.dtype.kind == "f"
        if is_smooth:
            has_gradient = self.kind == "grad" and source.companion("grad") is not None
            if has_gradient and target.grad is None:
                target.add_gradient()
            copy_in_order(target, source)
        return is_smooth

    def copy(self, target: Storage, source: Storage) -> bool:
        """Record a copy of floats as a kernel; whether it was."""
        return not self.is_paused and copy_floats(target, source)
