"""Dispatches of an executable for arrays that stay the same, with other numbers at each launch.

Owns: what follows from the arrays, found out once: keys of buffers, where numbers stand, what runs
for counts of iterations that are always the same. Must not know: plans, how arrays are found again.

It is used under the lock of the runtime, keeps no arrays alive, and every number in it is written
anew for each launch before it is read: one that an exception ends halfway leaves nothing wrong.

    prepared = Prepared(executable, executable.bind(args, arrays), [(1, "dt")])
    prepared.fill((x, 0.2))
    prepared.record()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vkchi.launch.executable import Arrays, Executable, Form, Step
    from vkchi.launch.shapes import Met
    from vkchi.signature.bound import Bound


# A dispatch whose iterations are the same for all launches: a pipeline, how its arguments are
# packed, the places they are picked from, the flat list, workgroups, keys of buffers read and
# written.
FixedDispatch = tuple[
    Any, Callable[..., bytes], Callable[[list[Any]], tuple[Any, ...]], list[Any],
    tuple[int, int, int], frozenset[int], frozenset[int],
]  # fmt: skip


class Prepared:
    """Launches of an executable with what was bound once, but for `numbers`: positions among the
    arguments, with the names of their parameters. `met`: extents whose launches are counted."""

    __slots__ = ("executable", "fixed", "flat", "flats", "met", "names", "numbers", "steps")

    def __init__(
        self, executable: Executable, bound: Bound, numbers: Sequence[tuple[int, str]]
    ) -> None:
        self.executable, self.flat = executable, bound.flat
        self.names = [name for _, name in numbers]
        self.numbers = [(k, executable.places["value", name, 0]) for k, name in numbers]
        shapes = executable.shapes
        met = None if shapes is None else shapes.meet(self.flat)
        self.met: Met | None = met if met is not None and met.left else None
        self._take(executable.form if met is None else met.form, bound.arrays)

    def _take(self, form: Form, arrays: Arrays) -> None:
        """Run this code. What an exception leaves half done is done again at the next launch, for
        which extents are still counted."""
        self.steps: list[tuple[Step, frozenset[int], frozenset[int]]] = [
            (step, *step.keys(arrays)) for step in form.steps
        ]
        self.flats = [self.flat]
        self.fixed: list[FixedDispatch] | None = None
        if not any(step.depends_on(name) for step in form.steps for name in self.names):
            self._fix()

    def _fix(self) -> None:
        """Numbers of iterations are the same for all launches: find once what runs for them."""
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

    def count(self, met: Met, arrays: Callable[[], Arrays]) -> None:
        """One launch more of these extents, which may get code of their own by it, or have it by
        others' launches. `arrays` gives those that were bound."""
        executable = self.executable
        if met.left and executable.shapes is not None:
            executable.shapes.count(met, 1)
        if not met.left:
            if met.form is not executable.form:
                self._take(met.form, arrays())
            self.met = None

    def fill(self, args: tuple[Any, ...]) -> None:
        """Take the numbers of a launch from its arguments. Raises ArgumentError."""
        for flat in self.flats:
            for k, place in self.numbers:
                flat[place] = args[k]
        for check in self.executable.checks:
            check(self.flat)

    def record(self) -> None:
        """Record the dispatches with these numbers."""
        record = self.executable.runtime.device.record
        if self.fixed is None:
            for step, reads, writes in self.steps:
                for command in step.commands(self.flat, reads, writes):
                    record(*command)
        else:
            for pipeline, pack, pick, flat, groups, reads, writes in self.fixed:
                record(pipeline, pack(*pick(flat)), groups, reads, writes)
