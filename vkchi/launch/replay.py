"""Launches that are recorded once and run again by one command: what a graph is made of.

Owns: which numbers of a launch change with a scalar argument, when what was recorded is recorded
anew. Must not know: kernels, how a program describes a graph, Vulkan.

A launch of a plain plan (`Plan.is_plain`) is nothing but its dispatches. `Launch` keeps what it
bound, so that another number costs no more than its own conversion and the packing of the argument
blocks; `Replay` keeps the commands of launches that follow each other.

    replay = Replay([Launch("step", plan, (x, 0.1)), ...])
    replay.run(); replay.change(0, 1, 0.2); replay.run()
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentError, InternalError
from vkchi.signature.bound import Bound
from vkchi.vk.sequence import Command, Sequence

if TYPE_CHECKING:
    from vkchi.launch import Plan


MOST_AT_ONCE = 256  # dispatches that are one command


class Launch:
    """One launch of a plain plan, with its arguments. `commands` is what it records. Raises
    ArgumentError where the arguments do not fit."""

    def __init__(self, name: str, plan: Plan, args: tuple[Any, ...]) -> None:
        self.name, self.plan = name, plan
        self._bound = self._bind(args)
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
        return [Command(*c) for c in self.plan.executable.prepare(self._bound)]

    def _named(self, error: ArgumentError) -> ArgumentError:
        return ArgumentError(f"{self.name}(): {error}")

    def change(self, k: int, value: Any) -> None:
        """Another value for parameter k, a number, vector or matrix. After an ArgumentError the
        launch is not to be used any more."""
        parameter = self.plan.parameters[k]
        fresh = Bound(self.plan.runtime, [])
        try:
            parameter.bind(value, fresh)
        except ArgumentError as e:
            raise self._named(e) from None
        at = self.plan.executable.places["value", parameter.name, 0]
        self._bound.flat[at : at + len(fresh.flat)] = fresh.flat
        self.commands = self._prepare()


class Replay:
    """Launches one after the other, on one device. Under the runtime's lock."""

    def __init__(self, launches: SequenceOf[Launch]) -> None:
        self.launches = launches
        self._device = launches[0].plan.runtime.device
        self._lives = list(dict.fromkeys(life for one in launches for life in one.plan.lives))
        self._sequences: dict[int, Sequence] = {}

    @property
    def commands(self) -> list[Command]:
        """The dispatches of all launches."""
        return [command for one in self.launches for command in one.commands]

    def check_alive(self) -> None:
        """Raises KernelRuntimeError where a field is gone."""
        for life in self._lives:
            life.check_alive()

    def change(self, launch: int, k: int, value: Any) -> None:
        """Another value for parameter k of one of the launches. Raises as `Launch.change`."""
        self._sequences.clear()
        self.launches[launch].change(k, value)

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
            self._sequences[times] = self._device.sequence(self.commands * times)
        return self._sequences[times]
