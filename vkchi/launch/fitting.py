"""Workgroups that fit the extents of a launch.

The shape of a workgroup is chosen before extents are known (`cost_model`), for long ones. Where the
fast axes turn out to be short, most of each workgroup would idle: then the shader is taken with
another shape, of as many invocations. Extents count as the powers of two above them, so that there
are few shapes.

Owns: when that is worth it, and the pipelines. Must not know: IR, Vulkan.

    >>> fitted.choose((3, 1000))      # a pipeline, and its grid
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vkchi.target.shader import Grid, GridAxis, Shader

if TYPE_CHECKING:
    from vkchi.device import Device
    from vkchi.vk.pipelines import Runnable

MOST_IDLE = 2.0  # invocations per iteration

Choice = tuple["Runnable", Grid]


class Fitted:
    """A shader on a grid of several axes, in all shapes that launches have asked for."""

    def __init__(self, device: Device, shader: Shader, pipeline: Runnable) -> None:
        self.device, self.shader = device, shader
        self.plain: Choice = pipeline, shader.grid
        self.found: dict[tuple[int, ...], Choice] = {}
        self._shaders = {pipeline: shader}
        self._in_memory: dict[Runnable, Runnable] = {}

    def in_memory(self, pipeline: Runnable) -> Runnable:
        """The same as one that was chosen, with arguments that stand in memory. Raises
        DeviceError."""
        found = pipeline if pipeline.indirect else self._in_memory.get(pipeline)
        if found is None:
            from vkchi.spirv.in_memory import in_memory  # few programs need it

            shader = in_memory(self._shaders[pipeline])
            found = self.device.load(shader) if shader.slots else pipeline
            self._in_memory[pipeline] = found
        return found

    def choose(self, counts: Sequence[int]) -> Choice:
        """What suits these numbers of iterations along x, y and z, none of which is 0."""
        axes = self.shader.grid.axes
        if idle_in(axes, counts) <= MOST_IDLE:
            return self.plain
        key = tuple([1 << (n - 1).bit_length() for n in counts])
        choice = self.found.get(key)
        if choice is None:
            choice = self.found[key] = self._make(key)
        return (
            choice if fits(choice[1].axes, counts, self.device.caps.workgroup_count) else self.plain
        )

    def _make(self, counts: tuple[int, ...]) -> Choice:
        from vkchi.passes.cost_model import choose_tile  # not before they are needed
        from vkchi.spirv.reshape import reshaped

        grid = self.shader.grid
        tile = choose_tile(counts[::-1], self.device.caps, demand=grid.block)
        if tile is None:
            return self.plain
        shader = reshaped(self.shader, tile[::-1])
        pipeline = self.device.load(shader)
        self._shaders[pipeline] = shader
        return pipeline, shader.grid


def idle_in(axes: Sequence[GridAxis], counts: Sequence[int]) -> float:
    """The invocations per iteration."""
    return math.prod(-(-n // a.block) * a.block / n for n, a in zip(counts, axes, strict=True))


def fits(axes: Sequence[GridAxis], counts: Sequence[int], limits: Sequence[int]) -> bool:
    """Whether what the shader leaves out, comparisons and first iterations, is not needed."""
    return all(
        (axis.guard or n % axis.block == 0) and (axis.has_base or n <= limit * axis.block)
        for axis, n, limit in zip(axes, counts, limits, strict=False)
    )
