"""A shader with workgroups of another shape, and so on another grid: its module has it once.

Only for grids of several axes: nothing in their shaders depends on the shape of a workgroup but
which comparisons with counts were left out. Must not know: what the shape is for.

    >>> reshaped(shader, (4, 32)).grid.axes[0].block
    4
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from vkchi.errors import InternalError
from vkchi.spirv import spec
from vkchi.spirv.module import HEADER_WORDS
from vkchi.spirv.spec import ExecutionMode
from vkchi.target.shader import Grid, Shader


def reshaped(shader: Shader, block: Sequence[int]) -> Shader:
    """The shader with workgroups of these lengths along x, y and z. Raises InternalError for one
    that has no several axes."""
    axes = shader.grid.axes
    if len(axes) < 2 or len(block) != len(axes):
        raise InternalError(f"{shader.name} has no workgroups of {len(block)} axes")
    words = list(struct.unpack(f"<{len(shader.words) // 4}I", shader.words))
    at = HEADER_WORDS
    while (words[at] & 0xFFFF, words[at + 2]) != (spec.OpExecutionMode, ExecutionMode.LocalSize):
        at += words[at] >> 16
    words[at + 3 : at + 6] = [*block, 1][:3]
    grid = Grid(tuple([axis._replace(block=n) for axis, n in zip(axes, block, strict=True)]))
    return shader._replace(words=struct.pack(f"<{len(words)}I", *words), grid=grid)
