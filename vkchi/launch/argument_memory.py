"""Argument blocks in device memory: replayed commands take new scalars without being recorded
again.

Example:

    memory = ArgumentMemory(device, commands, pipelines)
    memory.run(commands)                 # as recorded
    memory.is_current = False
    memory.run(commands)                 # with new scalars in their argument blocks
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING

from vkchi.vk.memory.ring import STEP_BYTES
from vkchi.vk.sequence import Command, CommandSequence

if TYPE_CHECKING:
    from vkchi.device import Device
    from vkchi.vk.pipelines import Runnable


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
