"""Kernel functions on cells of sparse blocks: `ti.activate` and the like.

ti.activate(block, [i, j]); ti.append(lists, [i], v)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.lang.function import kernel_function

if TYPE_CHECKING:
    from vkchi.protocols import SNode


@kernel_function
def activate(node: SNode, indices: Any) -> None:
    """Activate a cell of a pointer, hash or bitmasked block, and the cells that contain it."""


@kernel_function
def deactivate(node: SNode, indices: Any) -> None:
    """Deactivate a cell of a sparse block, or empty a list of a dynamic block.

    The contents of the cell or list become zero.
    """


@kernel_function
def is_active(node: SNode, indices: Any) -> Any:
    """True if a cell of a pointer, hash or bitmasked block is active."""


@kernel_function
def length(node: SNode, indices: Any) -> Any:
    """Length of a list of a dynamic block. `indices` are those of the parent's cell that holds the
    list."""


@kernel_function
def append(node: SNode, indices: Any, val: Any) -> Any:
    """Append `val` to a list of a dynamic block and return its index in the list.

    `indices` as in `length`. A full list is unchanged, and the result is its length.
    """
