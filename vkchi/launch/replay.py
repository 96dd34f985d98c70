"""Command replay: launches recorded once and executed again by one command, the basis of graphs.

`RecordedLaunch` keeps the bound arguments of a launch (`Plan.is_recordable`), so a new scalar is
only converted and packed. `Replay` keeps the commands of successive launches. If scalars change
often, the commands read their arguments from memory, and are not recorded again.

    replay = Replay([RecordedLaunch("step", plan, (x, 0.1)), ...])
    replay.run(); replay.change([(0, 1)], 0.2); replay.run()
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentError, InternalError
from vkchi.fields.storage import Storage
from vkchi.launch.argument_memory import ArgumentMemory
from vkchi.launch.executable import slot_format
from vkchi.launch.merging import Merged, merge_launches
from vkchi.signature.bound import BoundArguments
from vkchi.target.shader import SEED, depends_on_argument
from vkchi.vk.sequence import Command, CommandSequence

if TYPE_CHECKING:
    from vkchi.launch import Plan
    from vkchi.vk.pipelines import Runnable


MOST_AT_ONCE = 256  # dispatches per command
# Commands recorded again (3 us each) per pipeline that the driver would compile (5 to 20 ms).
MOST_RERECORDED = 4096


RECORDED = 200  # launches counted for a recorded one, since it probably runs often

# Writes component `axis` of a parameter into an argument block: (pack_into, block, offset, axis).
Patch = tuple[Callable[..., None], Any, int, int]


class RecordedLaunch:
    """One launch of a recordable plan, with its bound arguments. It is not executed.

    - commands: the recorded commands.
    - arrays: the arrays used, until the launch becomes part of a replay.

    Raises ArgumentError if the arguments do not fit, and InternalError for an array in host memory.
    """

    def __init__(self, name: str, plan: Plan, args: tuple[Any, ...]) -> None:
        self.name, self.plan, self._known = name, plan, plan.known(args)
        self._bound = self._bind(args)
        self.form = plan.executable.form_for(self._bound, RECORDED)
        self.arrays: dict[str, Storage] = {**plan.fields(args), **self._bound.arrays}
        self._patches: dict[int, tuple[int, list[Patch] | None]] = {}
        self._seeds: list[list[Patch]] | None = None
        self.commands = self._prepare()

    @property
    def is_current(self) -> bool:
        """True if the Python values that were read at compile time are unchanged."""
        return self.plan.guard.holds(self._known)

    @property
    def numbers(self) -> list[Any]:
        """The flat list of scalars and addresses from which argument blocks are packed."""
        return self._bound.flat

    def reseed(self, seeds: Callable[[], int]) -> None:
        """Write a new random seed, from `seeds`, into the argument blocks of each dispatch."""
        if self._seeds is None:
            self._seeds = self._find_seeds()
        for patches in self._seeds:
            seed = seeds()
            for pack_into, block, offset, _ in patches:
                pack_into(block, offset, seed)

    def in_memory(self, command: int) -> Runnable:
        """Return the variant of a command's pipeline that reads its arguments from memory.

        Raises DeviceError.
        """
        step = self.form.steps[self._of_step[command]]
        return step.fitted.in_memory(self.commands[command].pipeline)

    def dispatches(self) -> list[Command]:
        """Return commands equivalent to `commands`, with dispatches in place of fills."""
        steps = [step.as_dispatch() for step in self.form.steps]
        return [Command(*found) for step in steps for found in step.prepare(self._bound)]

    def _bind(self, args: tuple[Any, ...]) -> BoundArguments:
        try:
            bound = self.plan.executable.bind_arguments(args)
        except ArgumentError as e:
            raise self._named(e) from None
        if self.plan.is_mixed:
            bound.check_types(self.plan)
        if bound.imports:
            raise InternalError("an array in host memory is no part of a replay")
        return bound

    def _prepare(self) -> list[Command]:
        try:
            for check in self.plan.checks:
                check(self._bound.flat)
        except ArgumentError as e:
            raise self._named(e) from None
        steps = [step.prepare(self._bound) for step in self.form.steps]
        self._of_step = [k for k, found in enumerate(steps) for _ in found]
        return [
            Command(pipeline, bytearray(args), groups, reads, writes)
            for found in steps
            for pipeline, args, groups, reads, writes in found
        ]

    def _named(self, error: ArgumentError) -> ArgumentError:
        return ArgumentError(f"{self.name}(): {error}")

    def numbers_of(self, k: int, value: Any) -> list[Any]:
        """Convert a value of parameter k to its scalars. Raises ArgumentError."""
        fresh = BoundArguments(self.plan.runtime, [])
        try:
            self.plan.parameters[k].bind(value, fresh)
        except ArgumentError as e:
            raise self._named(e) from None
        return fresh.flat

    def change(self, k: int, numbers: list[Any]) -> None:
        """Set parameter k to these scalars, converted by `numbers_of`.

        Patches the argument blocks in place. If iteration counts or checks depend on the parameter,
        `commands` are made again. After an ArgumentError the launch must not be used any more.
        """
        if k not in self._patches:
            self._patches[k] = self._find_patches(self.plan.parameters[k].name)
        at, patches = self._patches[k]
        self._bound.flat[at : at + len(numbers)] = numbers
        if patches is None:
            self._patches.clear()  # they refer to the old blocks
            self._seeds = None
            self.commands = self._prepare()
        else:
            for pack_into, block, offset, axis in patches:
                pack_into(block, offset, numbers[axis])

    def _find_seeds(self) -> list[list[Patch]]:
        found: list[list[Patch]] = [[] for _ in self.form.steps]
        for patch, step in self._patches_of(SEED):
            found[step].append(patch)
        return found

    def _patches_of(self, name: str) -> Iterator[tuple[Patch, int]]:
        """Yield a patch for each use of an argument, with the index of its step."""
        for command, step in zip(self.commands, self._of_step, strict=True):
            for slot in self.form.steps[step].slots:
                if slot.kind == "value" and slot.param == name:
                    into = struct.Struct("<" + slot_format(slot)).pack_into
                    yield (into, command.args, slot.offset, slot.axis), step

    def _find_patches(self, name: str) -> tuple[int, list[Patch] | None]:
        """Return a parameter's index in the flat list, and its patches.

        The patches are None if iteration counts or checks depend on the parameter.
        """
        executable = self.plan.executable
        at = executable.places["value", name, 0]
        shaders = [d.shader for d in self.form.artifact.dispatches]
        counts = [axis.length for shader in shaders for axis in shader.grid.axes]
        counts += [check.value for check in executable.limits]
        if any(depends_on_argument(count, name) for count in counts):
            return at, None
        return at, [patch for patch, _ in self._patches_of(name)]


def access_keys(commands: list[Command]) -> list[tuple[frozenset[int], frozenset[int]]]:
    return [(c.reads, c.writes) for c in commands]


class Replay:
    """A sequence of launches on one device. Precondition: the caller holds the runtime's lock."""

    def __init__(self, launches: SequenceOf[RecordedLaunch]) -> None:
        self.launches = launches
        self._runtime = launches[0].plan.runtime
        merged = merge_launches(launches)
        for one in launches:
            one.arrays = {}  # a replay keeps no arrays alive
        self._units = [unit for unit, _ in merged]
        self._merged = {
            one: unit for unit, those in merged if isinstance(unit, Merged) for one in those
        }
        self._lives = list(dict.fromkeys(life for one in launches for life in one.plan.lives))
        self._drawing = [one for one in launches if one.plan.draws]
        self._watched = [one for one in launches if not one.plan.guard.is_constant]
        self._sequences: dict[int, CommandSequence] = {}
        self._last: CommandSequence | None = None  # of other scalars: the same barriers apply
        self._memory: ArgumentMemory | None = None
        self._rerecorded = 0  # number of commands

    @property
    def commands(self) -> list[Command]:
        return [command for unit in self._units for command in unit.commands]

    def dispatches(self) -> list[Command]:
        """Return equivalent commands, with dispatches in place of fills."""
        return [command for unit in self._units for command in unit.dispatches()]

    @property
    def draws(self) -> bool:
        """True if a launch draws random numbers, which differ in each run."""
        return bool(self._drawing)

    @property
    def is_current(self) -> bool:
        """True if the Python values that kernels read at compile time are unchanged."""
        return all([one.is_current for one in self._watched])

    def check_alive(self) -> None:
        """Raise KernelRuntimeError if a field was destroyed."""
        for life in self._lives:
            life.check_alive()

    def change(self, places: SequenceOf[tuple[int, int]], value: Any) -> None:
        """Set parameters to a value. Each place is (launch index, parameter index).

        Raises ArgumentError if the value does not fit, or a check of a launch fails.
        """
        self._forget_numbers()
        known: dict[tuple[str, Any], list[Any]] = {}
        changed: dict[Merged | RecordedLaunch, list[Command]] = {}  # with their old commands
        for launch, k in places:
            one = self.launches[launch]
            unit = self._merged.get(one, one)
            changed.setdefault(unit, unit.commands)
            parameter = one.plan.parameters[k]
            key = parameter.kind, parameter.type
            numbers = known.get(key)
            if numbers is None:
                numbers = known[key] = one.numbers_of(k, value)
            one.change(k, numbers)
        for unit, before in changed.items():
            if isinstance(unit, Merged):
                unit.refresh()
            if unit.commands is not before:
                self._memory = None
                if access_keys(unit.commands) != access_keys(before):
                    self._last = None

    def _forget_numbers(self) -> None:
        """Invalidate recorded sequences and argument memory, which hold old scalars."""
        if self._memory is not None:
            self._memory.is_current = False
        self._last = self._sequences.pop(1, self._last)
        self._sequences.clear()

    def run(self, times: int = 1) -> None:
        """Execute all dispatches `times` times; does not wait.

        Runs are batched into commands of at most MOST_AT_ONCE dispatches, if one run has fewer.
        With random numbers, each run is a command and gets new seeds. Raises KernelRuntimeError if
        a field was destroyed, and DeviceError.
        """
        self.check_alive()
        count = sum([len(unit.commands) for unit in self._units])
        if not count:
            return
        at_once = 1 if self._drawing else max(1, MOST_AT_ONCE // count)
        many, rest = divmod(times, at_once)
        for k in range(many + rest):
            if self._drawing:
                self._forget_numbers()
                for one in self._drawing:
                    one.reseed(self._runtime.seeds(None))
            self._run(at_once if k < many else 1)

    def _run(self, times: int) -> None:
        memory = self._memory or self._find_memory()
        if memory is not None:
            return memory.run(self.commands, times)
        if times not in self._sequences:
            like = self._last if times == 1 else None
            made = self._runtime.device.sequence(self.commands * times, like)
            self._sequences[times] = made
            self._rerecorded += made.count
        self._runtime.device.execute(self._sequences[times])

    def _find_memory(self) -> ArgumentMemory | None:
        """Return the argument memory, or None until it is worth compiling pipelines.

        That is when MOST_RERECORDED commands per distinct pipeline have been recorded. Then it is
        made and kept.
        """
        if self._rerecorded < MOST_RERECORDED:
            return None
        commands = self.commands
        if self._rerecorded < MOST_RERECORDED * len({c.pipeline for c in commands}):
            return None
        pipelines = [unit.in_memory(k) for unit in self._units for k in range(len(unit.commands))]
        self._memory = ArgumentMemory(self._runtime.device, commands, pipelines)
        return self._memory
