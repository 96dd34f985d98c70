"""What a tape records of Python between kernels: accesses, copies, what the host computes.

Owns: `PythonRecording`, the part of a tape that does. Must not know: how kernels are recorded, and
gradients run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vkchi.analysis.footprint import Box
from vkchi.fields.elements import Access
from vkchi.fields.storage import Storage
from vkchi.interop import host
from vkchi.runtime import Runtime
from vkchi.span import user_span
from vkchi.tape.calls import companion, whole
from vkchi.tape.clobbers import Cut, Held, Index
from vkchi.tape.constants import Constants
from vkchi.tape.copies import copy_tensor
from vkchi.tape.escapes import Escape, Values
from vkchi.tape.hosted import Copied, Function, Hosted, Step
from vkchi.tape.mutation_log import MutationLog
from vkchi.tape.recording import Recording
from vkchi.tape.snapshots import Rewritten
from vkchi.tape.steps import Custom, Entry, Skipped, drop_copies
from vkchi.tape.tensors import Tensors
from vkchi.types import shape_of


class PythonRecording(Recording):
    """`entries` are the steps recorded; `custom` is the call that is recorded as a whole now,
    `skipped` the function that is running and is not differentiated, `written` what was."""

    def __init__(self, runtime: Runtime, budget_bytes: int | None) -> None:
        super().__init__(runtime, budget_bytes)
        self.entries: list[Entry | Skipped | Custom | Rewritten | Cut | Step] = []
        self.mutation_log, self.constants, self.hosted = MutationLog(), Constants(), Hosted()
        self.tensors = Tensors()
        self.solving: dict[Any, tuple[Any, ...]] = {}  # vectors that gradients of solvers work in
        self.written: dict[int, Storage] = {}
        self.custom: Custom | None = None
        self.skipped: str | None = None
        self.state = "new"

    def protect(
        self, written: set[str], arrays: Mapping[str, Storage], boxes: Mapping[str, Box]
    ) -> None:
        """Save what a launch is about to overwrite, as long as the memory suffices."""
        was_over = self.snapshots.is_over
        for name in written & arrays.keys():
            array = whole(arrays[name])
            self.written[id(array)] = array
        super().protect(written, arrays, boxes)
        if self.snapshots.is_over and not was_over:
            drop_copies(self.entries)

    # --- what Python does to arrays

    def accessed(self, array: Storage, access: Access) -> None:
        """Python is about to access an array: what it writes there has no derivative."""
        self.mutation_log.note_access(array, access)
        if access.kind != "read":
            self.races.note_written((whole(array),))
        is_own = self.is_paused and not self.skipped  # a function that has a gradient of its own
        if self.state == "recording" and not is_own:
            super().accessed(array, access)
            self.note_fill(array, access)
            return
        if access.kind != "read":
            self.constants.drop((array,))
        self.escapes.note_access(array, access)
        custom = self.custom
        if custom is not None and access.kind != "read" and companion(array, "grad") is not None:
            name, who = repr(array), f"{custom.function.__name__}()"
            box = (None,) * len(array.shape)
            self.clobbers.hold(Held(whole(array), name, who, user_span(), box))

    @property
    def is_following(self) -> bool:
        """Whether what Python computes matters."""
        return self.state == "recording" and not self.is_paused

    def may_record(self, inputs: Sequence[Storage | Values]) -> bool:
        """Whether what the host computes from these is a step."""
        return self.is_following and self.hosted.has_slopes(inputs)

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

    def holding(self, array: Storage | Values) -> list[Escape]:
        """What an array holds that has a derivative: matrices and tensors too."""
        found = super().holding(array)
        if not isinstance(array, Storage):
            origins = [*self.tensors.origins(array), *self.hosted.origins(array)]
            found = [*found, *(Escape(array, "", origin, ()) for origin in origins)]
        return found

    def lost_in(self, array: Storage | Values) -> list[Escape]:
        """What an array holds whose derivative is lost, wherever it is put."""
        return [t for t in super().lost_in(array) if not self.hosted.is_shown(array, t)]

    def note_shown(self, inputs: Sequence[Storage | Values], output: Values, way: str) -> None:
        """The user gets a numpy array that the tape has recorded: other uses of it lose the
        derivative than to put it into an array (`filled`)."""
        before = len(self.escapes.hosts)
        self.let_go(inputs, output, way)
        self.hosted.shown += self.escapes.hosts[before:]

    def filled(self, array: Storage, values: Values) -> None:
        """Python puts these numbers into an array: what the host computed has its derivative."""
        has_place = array.dtype.kind == "f" and companion(array, "grad") is not None
        if not (self.is_following and has_place and self.hosted.is_known(values)):
            super().filled(array, values)
            return
        self.clobbers.forget(array)
        self.constants.drop((array,))
        self.record(Copied(), [values], [values], values, array)

    def copy_tensor(self, target: Storage, tensor: Any) -> bool:
        """Record a copy of a torch tensor that wants a gradient; of one of another shape than the
        array, the derivative is lost."""
        if not (self.is_following and target.dtype.kind == "f" and host.has_grad(tensor)):
            return False
        if tuple(tensor.shape) == target.shape + shape_of(target.elem):
            copy_tensor(target, tensor)
            return True
        target.from_numpy(host.array_of_torch(tensor))
        lost = Escape(target, "", ("a tensor that requires a gradient was copied", None), ())
        for array in self.escapes.pass_on([lost], target, "it was put into an array here"):
            self.snapshots.watch(array)
        return True

    def accessed_unwatched(self, array: Storage, access: Access) -> None:
        """A function with a gradient of its own may write to arrays that no kernel has met."""
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
        gradient = companion(array, "grad")
        assert gradient is not None
        self.entries.append(Cut((gradient,), at))
        if at is None:
            self.constants.note_cut(array)
