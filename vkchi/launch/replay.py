"""Launches that are recorded once and run again by one command: what a graph is made of.

Owns: which numbers of a launch change with a scalar argument, when what was recorded is recorded
anew. Must not know: kernels, how a program describes a graph, Vulkan.

A launch of a plain plan (`Plan.is_plain`) is nothing but its dispatches. `Launch` keeps what it
bound, so that another number costs no more than its own conversion and the packing of the argument
blocks; `Replay` keeps the commands of launches that follow each other.

    replay = Replay([Launch("step", plan, (x, 0.1)), ...])
    replay.run(); replay.change([(0, 1)], 0.2); replay.run()
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentError, InternalError
from vkchi.launch.executable import slot_format
from vkchi.signature.bound import Bound
from vkchi.target.shader import Count
from vkchi.vk.sequence import Command, Sequence

if TYPE_CHECKING:
    from vkchi.launch import Plan


MOST_AT_ONCE = 256  # dispatches that are one command


# Writes component `axis` of a parameter into an argument block: how, the block, where, `axis`.
Patch = tuple[Callable[..., None], Any, int, int]


class Launch:
    """One launch of a plain plan, with its arguments. `commands` is what it records. Raises
    ArgumentError where the arguments do not fit."""

    def __init__(self, name: str, plan: Plan, args: tuple[Any, ...]) -> None:
        self.name, self.plan = name, plan
        self._bound = self._bind(args)
        self._patches: dict[int, tuple[int, list[Patch] | None]] = {}
        self.commands = self._prepare()

    def _bind(self, args: tuple[Any, ...]) -> Bound:
        try:
            bound = self.plan.executable.bind_arguments(args)
        except ArgumentError as e:
            raise self._named(e) from None
        if bound.imports:
            raise InternalError("an array in host memory is no part of a replay")
        return bound

    def _prepare(self) -> list[Command]:
        try:
            for check in self.plan.checks:
                check(self._bound.flat)
        except ArgumentError as e:
            raise self._named(e) from None
        steps = [step.prepare(self._bound) for step in self.plan.executable.steps]
        self._of_step = [k for k, found in enumerate(steps) for _ in found]
        return [
            Command(pipeline, bytearray(args), groups, reads, writes)
            for found in steps
            for pipeline, args, groups, reads, writes in found
        ]

    def _named(self, error: ArgumentError) -> ArgumentError:
        return ArgumentError(f"{self.name}(): {error}")

    def numbers_of(self, k: int, value: Any) -> list[Any]:
        """A value for parameter k, a number, vector or matrix, as its numbers. Raises
        ArgumentError."""
        fresh = Bound(self.plan.runtime, [])
        try:
            self.plan.parameters[k].bind(value, fresh)
        except ArgumentError as e:
            raise self._named(e) from None
        return fresh.flat

    def change(self, k: int, numbers: list[Any]) -> None:
        """Other numbers for parameter k: put into the argument blocks where they stand, or, where
        counts of iterations depend on them, into new ones. After an ArgumentError the launch is not
        to be used any more."""
        if k not in self._patches:
            self._patches[k] = self._find_patches(self.plan.parameters[k].name)
        at, patches = self._patches[k]
        self._bound.flat[at : at + len(numbers)] = numbers
        if patches is None:
            self._patches.clear()  # which are of the blocks that were
            self.commands = self._prepare()
        else:
            for pack_into, block, offset, axis in patches:
                pack_into(block, offset, numbers[axis])

    def _find_patches(self, name: str) -> tuple[int, list[Patch] | None]:
        """Where a parameter stands in the flat list, and in the blocks; None where counts of
        iterations, or checks, depend on it."""
        executable = self.plan.executable
        at = executable.places["value", name, 0]
        shaders = [d.shader for d in executable.artifact.dispatches]
        counts = [axis.length for shader in shaders for axis in shader.grid.axes]
        counts += [check.value for check in executable.limits]
        if any(mentions(count, name) for count in counts):
            return at, None
        return at, [
            (struct.Struct("<" + slot_format(slot)).pack_into, command.args, slot.offset, slot.axis)
            for command, step in zip(self.commands, self._of_step, strict=True)
            for slot in shaders[step].slots
            if slot.kind == "value" and slot.param == name
        ]


def footprints(commands: list[Command]) -> list[tuple[frozenset[int], frozenset[int]]]:
    """What each command reads and writes."""
    return [(c.reads, c.writes) for c in commands]


def mentions(count: Count, name: str) -> bool:
    """Whether a count depends on an argument."""
    if count[0] in ("arg", "item"):
        return bool(count[1] == name)
    return any(mentions(part, name) for part in count[1:] if isinstance(part, tuple))


class Replay:
    """Launches one after the other, on one device. Under the runtime's lock."""

    def __init__(self, launches: SequenceOf[Launch]) -> None:
        self.launches = launches
        self._device = launches[0].plan.runtime.device
        self._lives = list(dict.fromkeys(life for one in launches for life in one.plan.lives))
        self._sequences: dict[int, Sequence] = {}
        self._last: Sequence | None = None  # of other numbers: its barriers stand where ours do

    @property
    def commands(self) -> list[Command]:
        """The dispatches of all launches."""
        return [command for one in self.launches for command in one.commands]

    def check_alive(self) -> None:
        """Raises KernelRuntimeError where a field is gone."""
        for life in self._lives:
            life.check_alive()

    def change(self, places: SequenceOf[tuple[int, int]], value: Any) -> None:
        """Another value for parameters: each place is a launch's number and its parameter's. Raises
        as `Launch.change`."""
        self._last = self._sequences.pop(1, self._last)
        self._sequences.clear()
        known: dict[tuple[str, Any], list[Any]] = {}
        for launch, k in places:
            one = self.launches[launch]
            parameter, before = one.plan.parameters[k], one.commands
            key = parameter.kind, parameter.type
            numbers = known.get(key)
            if numbers is None:
                numbers = known[key] = one.numbers_of(k, value)
            one.change(k, numbers)
            if one.commands is not before and footprints(one.commands) != footprints(before):
                self._last = None

    def run(self, times: int = 1) -> None:
        """Record all dispatches, several times over: many by one command. Raises
        KernelRuntimeError where a field is gone, DeviceError."""
        self.check_alive()
        one = self._sequence(1)
        if not one.count:
            return
        at_once = max(1, MOST_AT_ONCE // one.count)
        many, rest = divmod(times, at_once)
        for _ in range(many):
            self._device.execute(self._sequence(at_once))
        for _ in range(rest):
            self._device.execute(one)

    def _sequence(self, times: int) -> Sequence:
        """The dispatches, so many times over, in one piece."""
        if times not in self._sequences:
            like = self._last if times == 1 else None
            self._sequences[times] = self._device.sequence(self.commands * times, like)
        return self._sequences[times]
