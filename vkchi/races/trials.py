"""Instrumented variants for race detection, and their shadow cells.

`ObservedRun` runs in place of the kernel. `TrialRun` runs on copies of the arrays it writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vkchi.autodiff.gradient_checks import find_nondeterministic
from vkchi.calls.call import KernelCall, leaf_arguments
from vkchi.calls.variant import Variant
from vkchi.fields.storage import Storage
from vkchi.interrupts.contexts import restoring
from vkchi.ir.core import Param, used_in
from vkchi.races.detector import RACED, ConflictGroup, Detector
from vkchi.races.race import Found
from vkchi.types import Array, Scalar, Tensor, i32
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.races.meeting import KernelRaces


class InstrumentedVariant(Variant):
    """A variant instrumented to detect which of these groups conflict.

    A launch leaves its cells cleared, so that the next launch reuses them, unless it was
    interrupted.
    """

    def __init__(self, call: KernelCall, groups: Sequence[ConflictGroup], made: Detector) -> None:
        super().__init__(call, made.func)
        self.runtime = call.kernel.runtime
        self.groups, self.cells = groups, made.cells
        self.types = {p.name: p.type for p in made.func.params if p.name in made.cells}
        self.memory: dict[str, Storage] = {}

    def bind(self, call: KernelCall) -> dict[str, Storage]:
        """Allocate the shadow arrays of a launch. Raises DeviceError if memory is short."""
        own = {name: self._clear_cells(name, call.arrays) for name in self.cells}
        own[RACED] = Storage(self.runtime, i32, (len(self.groups),))
        return own

    def result(self, own: Mapping[str, Storage]) -> list[int]:
        """Indices of the groups that conflicted in a run; waits for the device."""
        numbers = np.flatnonzero(own[RACED].to_numpy())
        self.memory |= {name: own[name] for name in self.cells}
        return [int(n) for n in numbers]

    def try_out(self, call: KernelCall) -> list[int]:
        """Indices of the groups that conflict in a run on copies.

        Raises DeviceError if memory is short.
        """
        with restoring(self.runtime.lock), self.runtime.lock:
            own = self.bind(call)
            self.dry_run(call, own)
            return self.result(own)

    def _clear_cells(self, name: str, arrays: Mapping[str, Storage]) -> Storage:
        root, first = self.cells[name]
        t = self.types[name]
        assert isinstance(t, Array)
        shape = arrays[root.name].shape if isinstance(root, Param) else ()
        old = self.memory.pop(name, None)
        if old is None or old.shape != shape:
            old = Storage(self.runtime, t.elem, shape, t.layout)
            old.fill(first)
        return old


class ObservedRun(InstrumentedVariant):
    """An instrumented variant that runs in place of the kernel."""

    def __init__(
        self, call: KernelCall, races: KernelRaces, groups: Sequence[ConflictGroup], made: Detector
    ) -> None:
        super().__init__(call, groups, made)
        self.races = races

    def race(self, own: Mapping[str, Storage]) -> Found | None:
        return tuple(self.races.race_of(self.groups[k]) for k in self.result(own)) or None


class TrialRun(ObservedRun):
    """An instrumented variant that runs on copies of the arrays it writes.

    - `needs`: names of the arrays that the result depends on.
    - `numbers`: names of the scalar arguments that it depends on.
    - `is_certain`: False if random numbers or the order of iterations affect the result.
    """

    def __init__(
        self, call: KernelCall, races: KernelRaces, groups: Sequence[ConflictGroup], made: Detector
    ) -> None:
        super().__init__(call, races, groups, made)
        used = used_in(made.func.body)
        self.is_certain = not find_nondeterministic(made.func)
        given = [p for p in made.func.params if isinstance(p.type, Scalar | Tensor)]
        self.numbers = sorted(p.name for p in given if p in used)
        self.needs = sorted(self.artifact.reads & call.arrays.keys())

    def key(self, call: KernelCall) -> tuple[Any, ...] | None:
        """Key of the scalars and shapes that the result depends on; None if one is unavailable."""
        numbers = scalar_arguments(call)
        if not numbers.keys() >= set(self.numbers):
            return None
        shapes = tuple([a.shape for a in call.arrays.values()])
        return (shapes, *(numbers[name] for name in self.numbers))

    def find(self, call: KernelCall) -> frozenset[int]:
        return frozenset(self.try_out(call))


def scalar_arguments(call: KernelCall) -> dict[str, Any]:
    leaves = leaf_arguments(call.kernel, call.args)
    return {p.name: arg for p, arg in leaves if isinstance(arg, int | float | np.number)}
