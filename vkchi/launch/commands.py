"""Commands of bound code: computed once, and packed again when scalars change.

Buffer keys, slot positions and grid parts are computed once. `CommandList` keeps no arrays alive.
Precondition: the caller holds the runtime's lock.

    commands = RepeatedCommands(executable, executable.bind(args, arrays), [(1, "dt")])
    commands.fill((x, 0.2))
    commands.record()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from vkchi.vk.pipelines import Pipeline, with_counts
from vkchi.vk.sequence import Command

if TYPE_CHECKING:
    from vkchi.device import Device
    from vkchi.launch.executable import Arrays, DispatchStep, Executable
    from vkchi.launch.specialization import ShapeCounter
    from vkchi.signature.bound import BoundArguments
    from vkchi.vk.pipelines import Runnable

# A dispatch: (pipeline, pack, pick, flat list, workgroups, keys of buffers read, of those written).
Part = tuple[
    Any, Callable[..., bytes], Callable[[list[Any]], tuple[Any, ...]], list[Any],
    tuple[int, int, int], frozenset[int], frozenset[int],
]  # fmt: skip


SEED_AT = 1  # index in the flat list, after the address of the trash


class CommandList:
    """The dispatches of some steps for one flat list.

    - flat: the scalars and addresses from which argument blocks are packed.
    - parts: the dispatches, for iteration counts computed from `flat`. Each has a flat list.
    - commands: the parts as commands for sequences, with writable argument blocks, once `refresh`
      was called.
    """

    def __init__(self, steps: Sequence[DispatchStep], flat: list[Any], arrays: Arrays) -> None:
        self.flat = flat
        self.commands: list[Command] = []
        self.parts: list[Part] = []
        self.take(steps, arrays)

    def take(self, steps: Sequence[DispatchStep], arrays: Arrays) -> None:
        """Replace the steps."""
        self.steps = [(step, *step.keys(arrays)) for step in steps]
        self.compute()

    def compute(self) -> None:
        """Compute the parts from the flat list."""
        made: list[Part] = []
        step_of: list[DispatchStep] = []  # by part
        for step, reads, writes in self.steps:
            pipeline, parts = step.parts(self.flat)
            for numbers, groups in parts:
                flat = [*self.flat, *numbers]
                made.append((pipeline, step.pack, step.pick, flat, groups, reads, writes))
                step_of.append(step)
        # Wherever an interrupt comes, `flats` has the lists of all `parts`.
        self.flats = [self.flat, *[part[3] for part in (*made, *self.parts)]]
        self.step_of, self.parts = step_of, made
        self.flats = [self.flat, *[part[3] for part in made]]

    def record(self, device: Device) -> None:
        record = device.record
        for pipeline, pack, pick, flat, groups, reads, writes in self.parts:
            record(pipeline, pack(*pick(flat)), groups, reads, writes)

    def reseed(self, seeds: Callable[[], int]) -> None:
        """Take a new random seed, from `seeds`, for each step."""
        drawn = {step: seeds() for step, _, _ in self.steps}
        for part, step in zip(self.parts, self.step_of, strict=True):
            part[3][SEED_AT] = drawn[step]

    # --- sequences -------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Compute the parts, and make `commands` agree with them.

        New commands replace the old ones if pipelines or workgroup counts differ.
        """
        self.compute()
        if [(c.pipeline, c.groups) for c in self.commands] == [(p[0], p[4]) for p in self.parts]:
            self.pack()
        else:
            self.commands = [
                Command(pipeline, bytearray(pack(*pick(flat))), groups, reads, writes)
                for pipeline, pack, pick, flat, groups, reads, writes in self.parts
            ]

    def pack(self) -> None:
        """Write the scalars of the parts into the argument blocks of `commands`."""
        for command, (_, pack, pick, flat, *_) in zip(self.commands, self.parts, strict=True):
            assert isinstance(command.args, bytearray)
            command.args[:] = pack(*pick(flat))

    def dispatches(self) -> list[Command]:
        """Return commands equivalent to `commands`, with dispatches in place of fills."""
        made = copy(self)
        made.steps = [(step.as_dispatch(), reads, writes) for step, reads, writes in self.steps]
        made.commands = []
        CommandList.refresh(made)
        return made.commands

    def in_memory(self, command: int) -> Runnable:
        """Return the variant of a command's pipeline that reads its arguments from memory.

        Raises DeviceError.
        """
        pipeline = self.commands[command].pipeline
        found = self.step_of[command].fitted.in_memory(pipeline)
        if pipeline.counts is None or not isinstance(found, Pipeline):
            return found
        return with_counts(found, pipeline.counts)


class RepeatedCommands(CommandList):
    """Launches of an executable with fixed arrays.

    - scalars: (argument index, parameter) of each scalar.
    - packed: (path, parameter) of each scalar in a pack; the path begins with the argument index.
    - met: shape counter for specialization, or None if launches are not counted any more.
    """

    def __init__(
        self, executable: Executable, bound: BoundArguments, scalars: Sequence[tuple[int, str]],
        packed: Sequence[tuple[tuple[Any, ...], str]] = (),
    ) -> None:  # fmt: skip
        self.checks, self.scalars = executable.checks, scalars
        self._changing = [name for _, name in (*scalars, *packed)]
        self._packed = [(path, executable.places["value", name, 0]) for path, name in packed]
        self._shapes, self._form = executable.shapes, executable.form
        self._places = [(k, executable.places["value", name, 0]) for k, name in scalars]
        met = None if self._shapes is None else self._shapes.meet(bound.flat)
        self.met: ShapeCounter | None = met if met is not None and met.left else None
        form = self._form if met is None else met.form
        super().__init__(form.steps, bound.flat, bound.arrays)

    def take(self, steps: Sequence[DispatchStep], arrays: Arrays) -> None:
        super().take(steps, arrays)
        self._varies = any(step.depends_on(name) for step in steps for name in self._changing)

    def count(self, met: ShapeCounter, arrays: Callable[[], Arrays]) -> None:
        """Count a launch of these shapes; once the counter is complete, switch to its code variant.

        `arrays` returns the arrays that were bound.
        """
        if met.left and self._shapes is not None:
            self._shapes.count(met, 1)
        if not met.left:
            if met.form is not self._form:
                self.take(met.form.steps, arrays())
            self.met = None

    def fill(self, args: tuple[Any, ...]) -> None:
        """Take the scalars of `args`. Raises ArgumentError if a check fails."""
        for flat in self.flats:
            for k, place in self._places:
                flat[place] = args[k]
            for (k, *keys), place in self._packed:
                value = args[k]
                for key in keys:
                    value = value._entries[key]
                flat[place] = value
        for check in self.checks:
            check(self.flat)
        if self._varies:
            self.compute()
