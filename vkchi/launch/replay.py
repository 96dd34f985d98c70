"""Command replay: launches recorded once and executed again by one command, the basis of graphs.

`RecordedLaunch` keeps the bound arguments of a launch (`CompiledKernel.is_recordable`), so a new
scalar is only converted and packed. `Replay` keeps the commands of successive launches. If scalars
change often, the commands read their arguments from memory, and are not recorded again.

    replay = Replay([RecordedLaunch("step", kernel, (x, 0.1)), ...])
    replay.run(); replay.change([(0, 1)], 0.2); replay.run()
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentError, InternalError
from vkchi.fields.storage import Storage
from vkchi.launch.commands import CommandList
from vkchi.launch.merging import Merged, merge_launches
from vkchi.signature.bound import BoundArguments
from vkchi.target.shader import depends_on_argument
from vkchi.vk.memory.ring import STEP_BYTES
from vkchi.vk.sequence import Command, CommandSequence

if TYPE_CHECKING:
    from vkchi.device import Device
    from vkchi.launch.compiled_kernel import CompiledKernel
    from vkchi.vk.pipelines import Runnable


MOST_AT_ONCE = 256  # dispatches per command
# Commands recorded again (3 us each) per pipeline that the driver would compile (5 to 20 ms).
MOST_RERECORDED = 4096


RECORDED = 200  # launches counted for a recorded one, since it probably runs often


class RecordedLaunch(CommandList):
    """One launch of a recordable kernel, with its bound arguments. It is not executed.

    arrays: the arrays used, until the launch becomes part of a replay.

    Raises ArgumentError if the arguments do not fit, and InternalError for an array in host memory.
    """

    def __init__(self, name: str, kernel: CompiledKernel, args: tuple[Any, ...]) -> None:
        self.name, self.kernel, self._known = name, kernel, kernel.known(args)
        self._guard = kernel.guard_for(args)
        self._members = args[len(self._known) :]  # kept alive
        bound = self._bind(args)
        self.form = kernel.form_for(bound, RECORDED)
        self.arrays: dict[str, Storage] = {**kernel.fields(args), **bound.arrays}
        self._check(bound.flat)
        super().__init__(self.form.steps, bound.flat, bound.arrays)
        self._places: dict[int, tuple[int, bool]] = {}
        self.refresh()

    def renew(self) -> list[tuple[int, Any]] | None:
        """Return the members that are other numbers than before, by parameter index; None if the
        code is not valid for the current Python values."""
        full = self._guard.holds(self._known)
        if not full:
            return None
        first, old = len(self._known), self._members
        self._members = () if full is True else full[first:]
        pairs = enumerate(zip(self._members, old, strict=True), start=first)
        is_number = [p.kind == "scalar" for p in self.kernel.parameters]
        return [(k, new) for k, (new, known) in pairs if new is not known and is_number[k]]

    def _bind(self, args: tuple[Any, ...]) -> BoundArguments:
        try:
            bound = self.kernel.bind_arguments(args)
        except ArgumentError as e:
            raise self._named(e) from None
        if self.kernel.is_mixed:
            bound.check_types(self.kernel)
        if bound.imports:
            raise InternalError("an array in host memory is no part of a replay")
        return bound

    def _check(self, flat: list[Any]) -> None:
        try:
            for check in self.kernel.checks:
                check(flat)
        except ArgumentError as e:
            raise self._named(e) from None

    def _named(self, error: ArgumentError) -> ArgumentError:
        return ArgumentError(f"{self.name}(): {error}")

    def numbers_of(self, k: int, value: Any) -> list[Any]:
        """Convert a value of parameter k to its scalars. Raises ArgumentError."""
        fresh = BoundArguments(self.kernel.runtime, [])
        try:
            self.kernel.parameters[k].bind(value, fresh)
        except ArgumentError as e:
            raise self._named(e) from None
        return fresh.flat

    def change(self, k: int, numbers: list[Any]) -> None:
        """Set parameter k to these scalars, converted by `numbers_of`.

        If iteration counts or checks depend on the parameter, `commands` may be made again. After
        an ArgumentError the launch must not be used any more.
        """
        if k not in self._places:
            self._places[k] = self._find_place(self.kernel.parameters[k].name)
        at, is_count = self._places[k]
        for flat in self.flats:
            flat[at : at + len(numbers)] = numbers
        if is_count:
            self._check(self.flat)
            self.refresh()
        else:
            self.pack()

    def _find_place(self, name: str) -> tuple[int, bool]:
        """Return a parameter's index in the flat list, and if iteration counts or checks depend on
        the parameter."""
        executable = self.kernel
        limits = [check.value for check in executable.limits]
        is_count = any(depends_on_argument(count, name) for count in limits)
        is_count = is_count or any(step.depends_on(name) for step in self.form.steps)
        return executable.places["value", name, 0], is_count


def access_keys(commands: list[Command]) -> list[tuple[frozenset[int], frozenset[int]]]:
    return [(c.reads, c.writes) for c in commands]


class Replay:
    """A sequence of launches on one device. Precondition: the caller holds the runtime's lock."""

    def __init__(self, launches: SequenceOf[RecordedLaunch]) -> None:
        self.launches = launches
        self._runtime = launches[0].kernel.runtime
        merged = merge_launches(launches)
        for one in launches:
            one.arrays = {}  # a replay keeps no arrays alive
        self._units = [unit for unit, _ in merged]
        self._merged = {
            one: unit for unit, those in merged if isinstance(unit, Merged) for one in those
        }
        self._lives = list(dict.fromkeys(life for one in launches for life in one.kernel.lives))
        self._drawing = [one for one in launches if one.kernel.draws]
        self._watched = [(k, one) for k, one in enumerate(launches) if not one.kernel.is_constant]
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

    def renew(self) -> bool:
        """Take the current numbers of objects; False if code is not valid for the current Python
        values. Raises ArgumentError as `change`."""
        found = [(at, one.renew()) for at, one in self._watched]
        if any(changed is None for _, changed in found):
            return False
        for at, changed in found:
            for k, number in changed or ():
                self.change([(at, k)], number)
        return True

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
            parameter = one.kernel.parameters[k]
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
                    one.pack()
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


class ArgumentMemory:
    """Copies of commands that read their arguments from a device buffer, which the constructor
    allocates.

    `pipelines` has a pipeline per command; a command is kept as is if its pipeline is not
    `indirect`. If `is_current` is False, the next `run` writes the argument blocks to the buffer.
    Raises DeviceError.
    """

    def __init__(
        self, device: Device, commands: SequenceOf[Command], pipelines: SequenceOf[Runnable]
    ) -> None:
        self.is_current = False
        self._device, self._places = device, []
        at = 0
        for pipeline in pipelines:
            self._places.append(at)
            at += -(-pipeline.args_bytes // STEP_BYTES) * STEP_BYTES
        self._bytes = bytearray(max(at, STEP_BYTES))
        self._buffer = device.allocate(len(self._bytes), zero=False)
        key = frozenset((self._buffer.key,))
        self._commands = [
            c._replace(pipeline=pipeline, args=self._buffer.address + place, reads=c.reads | key)
            if pipeline.indirect
            else c
            for c, pipeline, place in zip(commands, pipelines, self._places, strict=True)
        ]
        self._sequences: dict[int, CommandSequence] = {}

    def run(self, commands: SequenceOf[Command], times: int = 1) -> None:
        """Execute all commands `times` times, with the arguments in the blocks of `commands`.

        Precondition: apart from these blocks, the commands equal those passed to the constructor.
        """
        if not self.is_current:
            whole = self._bytes
            for place, c in zip(self._places, commands, strict=True):
                assert not isinstance(c.args, int)
                whole[place : place + len(c.args)] = c.args
            where = self._buffer.locate(0, len(whole))
            self._device.rewrite(*where, self._buffer.key, whole)
            self.is_current = True
        if times not in self._sequences:
            self._sequences[times] = self._device.sequence(self._commands * times)
        self._device.execute(self._sequences[times])
