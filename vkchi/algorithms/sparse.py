"""Fields of structs in bitmasked blocks: `ti.sparse`.

g = ti.sparse.grid({"mass": ti.f32, "v": ti.math.vec2}, shape=(64, 64))
g[3, 5].mass = 1.0
ti.sparse.usage(g)          # 1 / 4096
ti.sparse.memory(g)         # bytes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentError
from vkchi.fields.trees.fields_builder import root
from vkchi.fields.trees.snode import ActivityHook, SNode, axes
from vkchi.lang.struct import Struct
from vkchi.signature.wording import describe_argument

if TYPE_CHECKING:
    from vkchi.fields.field import Field
    from vkchi.fields.struct_arrays import StructField

__all__ = ["grid", "memory", "usage"]


def grid(field_dict: Mapping[str, Any], shape: Sequence[int]) -> StructField:
    """A field of structs of shape `shape` in a bitmasked block of the root.

    `field_dict` has the member types by name. A write activates an element. Raises ArgumentError
    for invalid types and shapes.
    """
    made: StructField = Struct.field(dict(field_dict))
    root.bitmasked(axes(*range(len(shape))), shape).place(made)
    return made


def usage(x: StructField | Field) -> float:
    """Fraction of active elements of a field in sparse blocks, from 0 to 1.

    Raises ArgumentError for fields in dense blocks, and for anything but a field.
    """
    node = sparse_node(x, "ti.sparse.usage")
    node.tree.lay_out()
    pool = node.tree.pool
    return pool.usage().active / pool.cells if pool else float(ActivityHook.chosen(node).mean())


def memory(x: StructField | Field) -> int:
    """Bytes of device memory of the tree that contains a field in sparse blocks: cells, the table
    of a large block, and its list of active cells.

    Raises ArgumentError as `usage`.
    """
    tree = sparse_node(x, "ti.sparse.memory").tree
    tree.lay_out()
    if tree.pool is not None:
        found = tree.pool.usage()
        return int(found.node_bytes + found.table_bytes + found.list_bytes)
    buffer = tree.memory()
    return buffer.size_bytes if buffer is not None else 0


def sparse_node(x: StructField | Field, name: str) -> SNode:
    """The node of a field in sparse blocks. Raises ArgumentError for others."""
    node = getattr(x, "snode", None)
    if not isinstance(node, SNode):
        raise ArgumentError(f"{name} takes a field, not {describe_argument(x)}")
    if not node.sparse_path:
        raise ArgumentError(f"{name} needs a field in sparse blocks: all of this is there")
    return node
