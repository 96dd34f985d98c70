"""Workgroup shape selection at launch, for short axes.

`cost_model` chooses the workgroup shape for long axes, before extents are known. If short axes
leave more than FITTING_IDLE invocations per iteration, the shader is loaded again with another
shape of the same size. Shapes are chosen for extents rounded up to powers of two, which limits
their number.

    >>> fitted.choose((3, 1000))      # a pipeline, and its grid
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vkchi.target import tuning
from vkchi.target.shader import Grid, GridAxis, Shader

if TYPE_CHECKING:
    from vkchi.device import Device
    from vkchi.vk.pipelines import Runnable


Choice = tuple["Runnable", Grid]


class Fitted:
    """A shader on a grid of several axes, and its variants with other workgroup shapes."""

    def __init__(self, device: Device, shader: Shader, pipeline: Runnable) -> None:
        self.device, self.shader = device, shader
        self.plain: Choice = pipeline, shader.grid
        self.found: dict[tuple[int, ...], Choice] = {}
        self._shaders = {pipeline: shader}
        self._in_memory: dict[Runnable, Runnable] = {}

    def in_memory(self, pipeline: Runnable) -> Runnable:
        """Return the variant of a chosen pipeline that reads its arguments from memory.

        A shader without arguments keeps its pipeline. Raises DeviceError.
        """
        pipeline = pipeline.plain or pipeline
        found = pipeline if pipeline.indirect else self._in_memory.get(pipeline)
        if found is None:
            from vkchi.spirv.module_builder import in_memory  # lazy: few programs need it

            shader = in_memory(self._shaders[pipeline])
            found = self.device.load(shader) if shader.slots else pipeline
            self._in_memory[pipeline] = found
        return found

    def choose(self, counts: Sequence[int]) -> Choice:
        """Return the pipeline and grid for these iteration counts along x, y and z, all nonzero."""
        axes = self.shader.grid.axes
        if idle_in(axes, counts) <= tuning.FITTING_IDLE:
            return self.plain
        key = tuple([1 << (n - 1).bit_length() for n in counts])
        choice = self.found.get(key)
        if choice is None:
            choice = self.found[key] = self._make(key)
        return (
            choice
            if is_valid_for(choice[1].axes, counts, self.device.caps.workgroup_count)
            else self.plain
        )

    def _make(self, counts: tuple[int, ...]) -> Choice:
        from vkchi.opt.cost_model import choose_tile  # lazy
        from vkchi.spirv.module_builder import with_workgroup_shape

        grid = self.shader.grid
        tile = choose_tile(counts[::-1], self.device.caps, demand=grid.block)
        if tile is None:
            return self.plain
        shader = with_workgroup_shape(self.shader, tile[::-1])
        pipeline = self.device.load(shader)
        self._shaders[pipeline] = shader
        return pipeline, shader.grid


def idle_in(axes: Sequence[GridAxis], counts: Sequence[int]) -> float:
    """Return the number of invocations, idle ones included, per iteration."""
    return math.prod(-(-n // a.block) * a.block / n for n, a in zip(counts, axes, strict=True))


def is_valid_for(axes: Sequence[GridAxis], counts: Sequence[int], limits: Sequence[int]) -> bool:
    """True if a shader with these axes is correct for these iteration counts.

    An axis without a guard needs a multiple of its block. One without a base needs a grid within
    `limits`.
    """
    return all(
        (axis.guard or n % axis.block == 0) and (axis.has_base or n <= limit * axis.block)
        for axis, n, limit in zip(axes, counts, limits, strict=False)
    )
