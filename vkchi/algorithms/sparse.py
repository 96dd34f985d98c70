"""Grids of structs in bitmasked blocks: `ti.sparse`.

Owns: `grid`, `usage`. Must not know: how blocks keep which of their cells are active.

    g = ti.sparse.grid({"mass": ti.f32, "v": ti.math.vec2}, shape=(64, 64))
    g[3, 5].mass = 1.0
    ti.sparse.usage(g)          # 1 / 4096
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentError
from vkchi.fields.axes import axes
from vkchi.fields.builder import root
from vkchi.fields.snode import ActivityHook
from vkchi.lang.struct import Struct

if TYPE_CHECKING:
    from vkchi.fields.field import Field
    from vkchi.fields.structs import StructField

__all__ = ["grid", "usage"]


def grid(field_dict: Mapping[str, Any], shape: Sequence[int]) -> StructField:
    """A field of structs, given as types by name, whose elements are active once they are written.
    Raises ArgumentError."""
    made: StructField = Struct.field(dict(field_dict))
    root.bitmasked(axes(*range(len(shape))), shape).place(made)
    return made


def usage(x: StructField | Field) -> float:
    """Which part of the elements of a field in sparse blocks is active, from 0 to 1. Raises
    ArgumentError for other fields."""
    node = x.snode
    if not node.sparse_path:
        raise ArgumentError("ti.sparse.usage needs a field in sparse blocks: all of this is there")
    return float(ActivityHook.chosen(node).mean())
