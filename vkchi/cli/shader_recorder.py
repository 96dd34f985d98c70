"""Devices that record shaders instead of compiling and running them.

Kernels are compiled for given capabilities and launches are dropped. Memory, fills and copies are
those of a present device.

    with recording_shaders(described, "") as found:
        ti.init()
        kernel()
    found.shaders
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from vkchi.device import Device
from vkchi.target.described import DeviceDescription
from vkchi.target.devices import DeviceInfo
from vkchi.target.shader import Shader
from vkchi.vk.instance import Instance
from vkchi.vk.logical import Logical
from vkchi.vk.physical import Physical
from vkchi.vk.pipelines import Pipeline, Pipelines, Runnable
from vkchi.vk.sequence import Command, CommandSequence


class ShaderRecord:
    """Recorded shaders by their SPIR-V words, in order. `device`: the last one opened, or None."""

    def __init__(self, described: DeviceDescription | None) -> None:
        self.described = described
        self.shaders: dict[bytes, Shader] = {}
        self.device: NotingDevice | None = None


class NotingPipelines(Pipelines):
    """Pipelines that record shaders in `noted`; `make` compiles none."""

    def __init__(self, logical: Logical, noted: ShaderRecord) -> None:
        super().__init__(logical)
        self._noted = noted

    def make(self, shader: Shader, subgroup_size: int) -> Pipeline:
        """Record the shader, and return a pipeline that cannot run."""
        self._noted.shaders.setdefault(shader.words, shader)
        return Pipeline(shader, [None], None)


class NotingDevice(Device):
    """A device that drops dispatches; its memory, fills and copies work."""

    noted: ShaderRecord

    def __init__(
        self, instance: Instance, physical: Physical, info: DeviceInfo, *, staged: bool
    ) -> None:
        super().__init__(instance, physical, info, staged=staged)
        described = self.noted.described
        self.noted.device = self
        self.pipelines: Pipelines = NotingPipelines(self._logical, self.noted)
        if described is not None:
            self.caps = described.caps
            self.info = info._replace(name=described.name, kind="other")

    def record(self, pipeline: Runnable, *rest: Any) -> None:
        """Drop the dispatch."""
        self.require_open()

    def sequence(
        self, commands: list[Command], like: CommandSequence | None = None
    ) -> CommandSequence:
        """Return an empty sequence."""
        return super().sequence([])

    def execute(self, sequence: CommandSequence) -> None:
        """Drop the sequence."""
        self.require_open()


@contextmanager
def recording_shaders(described: DeviceDescription | None, select: str) -> Iterator[ShaderRecord]:
    """Context manager in which devices opened by `ti.init` record shaders and drop dispatches.

    Their capabilities are those of `described`, or of the present device that `select` names.
    Replaces `vkchi.device.open_device` meanwhile.
    """
    noted = ShaderRecord(described)
    own = type("NotingDevice", (NotingDevice,), {"noted": noted})
    names = vars(sys.modules["vkchi.device"])  # `vkchi.device` itself is a function
    before: Callable[..., Device] = names["open_device"]

    def open_noting(*_: Any, **others: Any) -> Device:
        return before("any", select or None, staged=bool(others.get("staged")), opened_as=own)

    names["open_device"] = open_noting
    try:
        yield noted
    finally:
        names["open_device"] = before
