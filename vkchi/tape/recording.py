"""What tapes, forward mode and products with the Hessian have in common: they see every kernel call
and every access of Python to the arrays that they watch.

Owns: `Recording`. Must not know: how derivatives are built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any

from vkchi.analysis.footprint import Box
from vkchi.autodiff.outflow import Outflow
from vkchi.autodiff.refusals import WORDS
from vkchi.fields.elements import Access
from vkchi.fields.storage import Storage
from vkchi.interrupts.blocks import Block
from vkchi.ndarray import Ndarray
from vkchi.races.finder import RaceFinder
from vkchi.runtime import Runtime
from vkchi.tape.calls import Call, companion, copy_of, is_gradient, whole
from vkchi.tape.clobbers import Clobbers, Index
from vkchi.tape.copies import copy_floats, copy_in_order
from vkchi.tape.escapes import Escape, Escapes, Values
from vkchi.tape.snapshots import Holder, Snapshots, Wanted

if TYPE_CHECKING:
    from vkchi.tape.plan import GradientPlan


class Recording(Block):
    """Knows where derivatives are: in the arrays' `kind`, grad or dual, and where they got lost.
    Entered by `with`, it sees what happens in the block."""

    title: str  # what users call it
    kind = "grad"
    records_functions = False  # whether functions with gradients of their own are single calls
    is_paused = False  # whether calls and copies are done as they are

    def __init__(self, runtime: Runtime, budget_bytes: int | None = None) -> None:
        self.runtime, self.thread = runtime, get_ident()
        self.escapes, self.clobbers = Escapes(), Clobbers()
        self.snapshots = Snapshots(budget_bytes, self.accessed)
        self.races = RaceFinder(self.snapshots.watch)

    def enter(self) -> None:
        """See everything from now on."""
        super().enter()
        self.runtime.recording = self

    def leave(self, kind: Any, error: Any, traceback: Any) -> None:
        """The end of the block."""
        self.close()

    def close(self) -> None:
        """See nothing any more. Idempotent."""
        if self.runtime.recording is self:
            self.runtime.recording = None
        self.snapshots.close()

    def check(self, call: Call, names: frozenset[str]) -> None:
        """Raises GradientError if a derivative is lost on its way to `names`, the call's arrays
        that have one."""
        for array in self.escapes.check(call, names, self.kind):
            self.snapshots.watch(array)
        self.clobbers.check_call(call, names)

    def note(self, call: Call, flow: Outflow, boxes: Mapping[str, Box]) -> None:
        """Note where a call put derivatives: into which arrays, and parts of those with a place for
        them."""
        noted = self.escapes.note(call, flow.escapes)
        noted += self.escapes.note(call, flow.bits, is_bits=True)
        for array in noted + self.clobbers.note_call(call, flow.stores, boxes):
            self.snapshots.watch(array)

    def save(self, call: Call, holder: Holder, made: GradientPlan) -> dict[str, Box]:
        """Have kept what a call's gradient will read; the parts of arrays that the call writes."""
        for key, box in made.needs.boxes(call.numbers, call.arrays).items():
            array = holder.memory[key]
            if is_gradient(array):
                holder.memory[key] = copy_of(array)  # which will change without notice
            else:
                self.snapshots.want(Wanted(holder, key, box))
        return made.writes.boxes(call.numbers, call.arrays)

    def protect(
        self, written: set[str], arrays: Mapping[str, Storage], boxes: Mapping[str, Box]
    ) -> None:
        """Save what a launch is about to overwrite, in these parts."""
        self.races.note_written(whole(arrays[name]) for name in written & arrays.keys())
        self.snapshots.protect(written, arrays, boxes)

    def accessed(self, array: Storage, access: Access) -> None:
        """Python is about to access an array: what it writes there has no derivative."""
        if access.kind != "read":
            self.races.note_written((whole(array),))
        self.escapes.note_access(array, access)
        if self.clobbers.note_access(array, access):
            self.cut(array, access.at)

    def accessed_unwatched(self, array: Storage, access: Access) -> None:
        """Python is about to access an array that is not watched."""

    def cut(self, array: Storage, at: Index | None) -> None:
        """The derivative of what stands in an element, or (None) anywhere, is 0 from now on."""
        raise NotImplementedError

    # --- what Python computes and copies ---------------------------------------------------------

    @property
    def is_following(self) -> bool:
        """Whether what Python computes matters: not inside functions with gradients of their own,
        nor in those that have none by intent."""
        return not self.is_paused

    def may_record(self, inputs: Sequence[Storage | Values]) -> bool:
        """Whether what the host computes from these can be differentiated (`hosted`)."""
        return False

    def holding(self, array: Storage | Values) -> list[Escape]:
        """What an array holds that has a derivative."""
        found = self.escapes.of(array)
        if isinstance(array, Storage) and companion(array, self.kind) is not None:
            held = self.clobbers.holds(array)
            origin = (
                (f"{array!r} has a {WORDS[self.kind]}", None) if held is None
                else (f"{held.who} puts a value with a derivative there", held.span)
            )  # fmt: skip
            found = [*found, Escape(whole(array), repr(array), origin, ())]
        return found

    def lost_in(self, array: Storage | Values) -> list[Escape]:
        """What an array holds whose derivative is lost."""
        return self.escapes.of(array)

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

    def filled(self, array: Storage, values: Values) -> None:
        """Python puts these numbers into an array."""
        self.let_go([values], array, "Python put it into an array here")

    def copy_tensor(self, target: Storage, tensor: Any) -> bool:
        """Record a copy of a torch tensor as a kernel; whether it was."""
        return False

    def refill(self, target: Ndarray, source: Storage) -> bool:
        """Record a copy of floats into an array of another shape, the texels of a texture, which
        gets a gradient if the source has one; whether it was."""
        is_smooth = not self.is_paused and target.dtype.kind == source.dtype.kind == "f"
        if is_smooth:
            has_gradient = self.kind == "grad" and companion(source, "grad") is not None
            if has_gradient and target.grad is None:
                target.add_gradient()
            copy_in_order(target, source)
        return is_smooth

    def copy(self, target: Storage, source: Storage) -> bool:
        """Record a copy of floats as a kernel; whether it was."""
        return not self.is_paused and copy_floats(target, source)
