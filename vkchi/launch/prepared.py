"""Launches with bound arrays: only scalars change from launch to launch.

Buffer keys, slot positions and, if iteration counts are constant, grid parts are computed once.
Keeps no arrays alive. Precondition: the caller holds the runtime's lock.

    prepared = Prepared(executable, executable.bind(args, arrays), [(1, "dt")])
    prepared.fill((x, 0.2))
    prepared.record()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vkchi.launch.executable import Arrays, CodeVariant, DispatchStep, Executable
    from vkchi.launch.specialization import ShapeCounter
    from vkchi.signature.bound import BoundArguments


# A dispatch with constant iteration counts: (pipeline, pack, pick, flat list, workgroups,
# keys of buffers read, keys of buffers written).
FixedDispatch = tuple[
    Any, Callable[..., bytes], Callable[[list[Any]], tuple[Any, ...]], list[Any],
    tuple[int, int, int], frozenset[int], frozenset[int],
]  # fmt: skip


class Prepared:
    """Launches of an executable with fixed arrays.

    - numbers: (argument index, flat list index) of each scalar. The constructor takes names of
      parameters instead of flat list indices.
    - met: shape counter for specialization, or None if launches are not counted any more.
    """

    __slots__ = ("executable", "fixed", "flat", "flats", "met", "names", "numbers", "steps")

    def __init__(
        self, executable: Executable, bound: BoundArguments, numbers: Sequence[tuple[int, str]]
    ) -> None:
        self.executable, self.flat = executable, bound.flat
        self.names = [name for _, name in numbers]
        self.numbers = [(k, executable.places["value", name, 0]) for k, name in numbers]
        shapes = executable.shapes
        met = None if shapes is None else shapes.meet(self.flat)
        self.met: ShapeCounter | None = met if met is not None and met.left else None
        self._take(executable.form if met is None else met.form, bound.arrays)

    def _take(self, form: CodeVariant, arrays: Arrays) -> None:
        """Switch to this code variant, and compute its dispatches once if no iteration count
        depends on the scalars."""
        self.steps: list[tuple[DispatchStep, frozenset[int], frozenset[int]]] = [
            (step, *step.keys(arrays)) for step in form.steps
        ]
        self.flats = [self.flat]
        self.fixed: list[FixedDispatch] | None = None
        if not any(step.depends_on(name) for step in form.steps for name in self.names):
            self._fix()

    def _fix(self) -> None:
        """Compute the dispatches once. Precondition: iteration counts do not depend on the
        scalars."""
        fixed: list[FixedDispatch] = []
        for step, reads, writes in self.steps:
            pipeline, parts = step.parts(self.flat)
            for numbers, groups in parts:
                flat = [*self.flat, *numbers]
                self.flats.append(flat)
                fixed.append((pipeline, step.pack, step.pick, flat, groups, reads, writes))
        if not self.executable.checks:
            del self.flats[0]
        self.fixed = fixed

    def count(self, met: ShapeCounter, arrays: Callable[[], Arrays]) -> None:
        """Count a launch of these shapes; once the counter is complete, switch to its code variant.

        `arrays` returns the arrays that were bound.
        """
        executable = self.executable
        if met.left and executable.shapes is not None:
            executable.shapes.count(met, 1)
        if not met.left:
            if met.form is not executable.form:
                self._take(met.form, arrays())
            self.met = None

    def fill(self, args: tuple[Any, ...]) -> None:
        """Copy the scalars of `args` to the flat lists. Raises ArgumentError if a check fails."""
        for flat in self.flats:
            for k, place in self.numbers:
                flat[place] = args[k]
        for check in self.executable.checks:
            check(self.flat)

    def record(self) -> None:
        record = self.executable.runtime.device.record
        if self.fixed is None:
            for step, reads, writes in self.steps:
                for command in step.commands(self.flat, reads, writes):
                    record(*command)
        else:
            for pipeline, pack, pick, flat, groups, reads, writes in self.fixed:
                record(pipeline, pack(*pick(flat)), groups, reads, writes)
