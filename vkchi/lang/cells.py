"""Functions of cells of sparse blocks: `ti.activate` and the like. Kernels alone call them.

Owns: their names and what they mean. Must not know: what a kernel is.

    ti.activate(block, [i, j]); ti.append(lists, [i], v)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.lang.function import kernel_function

if TYPE_CHECKING:
    from vkchi.fields.snode import SNode


@kernel_function
def activate(node: SNode, indices: Any) -> None:
    """Make a cell of a pointer, hash or bitmasked block active, and those above it."""


@kernel_function
def deactivate(node: SNode, indices: Any) -> None:
    """Make a cell of such a block inactive, or empty a list of a dynamic one; all in it is zero."""


@kernel_function
def is_active(node: SNode, indices: Any) -> Any:
    """Whether a cell of a pointer, hash or bitmasked block is active."""


@kernel_function
def length(node: SNode, indices: Any) -> Any:
    """How long the list of a dynamic block is in the cell above at these indices."""


@kernel_function
def append(node: SNode, indices: Any, val: Any) -> Any:
    """Put a value behind that list, which is then one longer; its place. A full list stays as it
    is, and its length is given."""
