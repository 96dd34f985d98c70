"""Change of a shader's workgroup shape, by a patch of its LocalSize execution mode.

Precondition: no axis of the grid omits a bounds guard that the new shape needs. Only for grids of
several axes, where no instruction depends on the workgroup shape.

    >>> with_workgroup_shape(shader, (4, 32)).grid.axes[0].block
    4
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from vkchi.errors import InternalError
from vkchi.spirv import spec
from vkchi.spirv.module_builder import HEADER_WORDS
from vkchi.spirv.spec import ExecutionMode
from vkchi.target.shader import Grid, Shader


def with_workgroup_shape(shader: Shader, block: Sequence[int]) -> Shader:
    """Return the shader with workgroups of these sizes along x, y and z.

    Raises InternalError for a grid of one axis, and if `block` has not one size per axis.
    """
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
