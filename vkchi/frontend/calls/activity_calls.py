"""Functions and methods on cells of sparse blocks: `ti.activate(block, [i, j])`, `x[i].append(v)`.

The operations on activity numbers are in `cell_activity`.

    ACTIVITY_FORMS[sparse_cells.activate](cx, block, [i, j])
    LIST_METHODS["append"](cx, ListRef(x, node, (i,)), v)
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from vkchi.errors import KernelIndexError, KernelNameError
from vkchi.frontend.calls.tables import Handler
from vkchi.frontend.context import Lowering
from vkchi.frontend.ops.debug_checks import guard_indices
from vkchi.frontend.values.array_values import array_index
from vkchi.frontend.values.cell_activity import (
    LIST_METHODS,
    ListRef,
    activate_cells,
    append_place,
    clear_cell,
    counted_from,
    is_in,
    item_index,
    length_of,
    mark_levels,
    node_of,
    number_at,
    put_item,
)
from vkchi.frontend.values.kinds import kind_of, name_of
from vkchi.frontend.values.pool_access import check_usable, release_node
from vkchi.frontend.values.struct_values import fit_member
from vkchi.frontend.values.tensor_values import TargetKind, flatten_indices
from vkchi.frontend.values.trees import leaves
from vkchi.ir.core import Value
from vkchi.lang import compile_time, sparse_cells

MASKED = ("pointer", "bitmasked", "hash")
LISTS = ("dynamic",)
ITEM = "an item of this list,"  # the target of a value, in messages


# --- arguments -----------------------------------------------------------------------------------


def block_of(cx: Lowering, x: Any, name: str, kinds: Sequence[str]) -> Any:
    """Return x, the block argument of `ti.<name>`.

    Raises KernelTypeError if it is not a block of one of `kinds`, KernelFieldError if its tree
    cannot be laid out.
    """
    kind = getattr(x, "kind", None) if hasattr(type(x), "sparse_path") else None
    if kind in kinds:
        check_usable(cx, x)
        return x
    given = f"a {kind} one" if kind else "a field" if kind_of(x).is_array else name_of(x)
    words = f"{', '.join(kinds[:-1])} or {kinds[-1]}" if len(kinds) > 1 else kinds[0]
    raise cx.fail(
        f"ti.{name} needs a {words} block, not {given}",
        arg=0,
        help=f"give it what ti.root.{kinds[0]}(...) returned, or the field's parent()",
    )


def cell_of(cx: Lowering, block: Any, indices: Any, origin: Sequence[int] = ()) -> list[Value]:
    """Return the indices of a block's cell, or of a list, as values relative to an origin.

    With `options.checks_indices`, the kernel reports indices out of bounds. Raises KernelIndexError
    for a wrong number of indices.
    """
    given = [] if indices is None else flatten_indices(cx, [indices])
    want = len(block.activity.extents)
    if len(given) != want:
        kind = "lists" if block.kind in LISTS else "cells"
        raise cx.fail(
            f"{kind} of this block have {want} {'index' if want == 1 else 'indices'}, and "
            f"{len(given) or 'none'} {'are' if len(given) > 1 else 'is'} given",
            kind=KernelIndexError,
        )
    cell = [array_index(cx, k) for k in given]
    if any(origin):
        cell = cx.call(counted_from, (cell, origin), {})
    if cx.options.checks_indices:
        guard_indices(cx, cx.array_of(block.activity.numbers), cell)
    return cell


# --- functions -----------------------------------------------------------------------------------


def _activate(cx: Lowering, node: Any, indices: Any) -> None:
    block = block_of(cx, node, "activate", MASKED)
    activate_cells(cx, block, cell_of(cx, block, indices))


def _deactivate(cx: Lowering, node: Any, indices: Any) -> None:
    block = block_of(cx, node, "deactivate", (*MASKED, *LISTS))
    clear(cx, block, cell_of(cx, block, indices))


def _is_active(cx: Lowering, node: Any, indices: Any) -> Any:
    block = block_of(cx, node, "is_active", MASKED)
    cell, level = cell_of(cx, block, indices), block.levels[-1]
    with cx.cells.own():
        return cx.call(is_in, (cx.call(number_at, (level, cell), {}), level, cell), {})


def _length(cx: Lowering, node: Any, indices: Any) -> Any:
    block = block_of(cx, node, "length", LISTS)
    return length(cx, block, cell_of(cx, block, indices))


def _append(cx: Lowering, node: Any, indices: Any, val: Any) -> Any:
    block = block_of(cx, node, "append", LISTS)
    fields = [place.field for place in block.children if is_item(place)]
    values = [val] if len(fields) == 1 else leaves(val)
    if len(values) != len(fields) and isinstance(val, list | tuple):
        values = list(val)  # some are constants
    if len(values) != len(fields):
        raise cx.fail(f"a value for each of the list's {len(fields)} fields is needed", arg=2)
    return append(cx, block, cell_of(cx, block, indices), list(zip(fields, values)))


def _no_activate(cx: Lowering, *args: Any) -> None:
    """Add the sparse blocks of fields and blocks to those whose cells the next loop does not
    activate."""
    found = set(cx.config.passive)
    for x in args:
        first = kind_of(x).first_array(cx, x) if kind_of(x).is_array else x
        node = node_of(first)
        if node is None:
            raise cx.fail(
                f"ti.no_activate takes blocks of fields, not {name_of(x)}",
                help="write ti.no_activate(block), with block = ti.root.pointer(...)",
            )
        check_usable(cx, node)
        if node.tree.pool is not None:
            raise cx.fail(
                "ti.no_activate does not support large blocks, which have memory for active cells "
                "alone",
                help="test the cell before the write: if ti.is_active(block, [i, j])",
            )
        found.update(node.sparse_path if node.kind == "place" else [node])
    cx.config = cx.config._replace(passive=frozenset(found))


def is_item(node: Any) -> bool:
    """True if a node in a list is a field that stores items; gradient fields do not."""
    return node.kind == "place" and node.field is not None and not node.field.kind


ACTIVITY_FORMS: dict[Any, Handler] = {
    sparse_cells.activate: _activate,
    sparse_cells.deactivate: _deactivate,
    sparse_cells.is_active: _is_active,
    sparse_cells.length: _length,
    sparse_cells.append: _append,
    compile_time.no_activate: _no_activate,
}


# --- operations ----------------------------------------------------------------------------------


def clear(cx: Lowering, block: Any, cell: list[Value]) -> None:
    """Emit the deactivation of a cell, or the emptying of a list; its elements become zero.

    Drops all facts about active cells.
    """
    is_at_own = cx.cells.is_known(cx.act, block, cell)
    cx.cells.known = ()
    if not is_at_own:
        cx.cells.marked.update((block, *block.activity.inner))
    with cx.cells.own():
        if block.tree.pool is not None:
            cx.call(release_node, (block.tree.pool, cell), {})
        else:
            cx.call(clear_cell, (block.activity, cell), {})


def length(cx: Lowering, block: Any, cell: list[Value]) -> Any:
    with cx.cells.own():
        return cx.call(length_of, (block.activity, cell), {})


def append(cx: Lowering, block: Any, cell: list[Value], pairs: Sequence[tuple[Any, Any]]) -> Any:
    """Emit the appending of values to the lists of arrays in one block; return the position.

    For a full list, the position is its capacity, and the values are dropped.
    """
    fitted = [(array, fit(cx, array, value)) for array, value in pairs]
    cx.cells.marked.update(block.sparse_path)
    activity, room = block.activity, block.levels[-1].cells
    with cx.cells.own():
        place = cx.call(append_place, (activity.numbers, cell, room), {})
        index = cx.call(item_index, (activity.axes, cell, place), {})
        cx.call(mark_levels, (block.levels[:-1], index), {})
        for array, value in fitted:
            cx.call(put_item, (array, index, value, place, room), {})
    return place


def fit(cx: Lowering, array: Any, value: Any) -> Any:
    """Convert a value to the element type of an array, or of an array of structs.

    Raises KernelTypeError.
    """
    return fit_member(cx, kind_of(array).element_type(cx, array), value, "val", what=ITEM)


# --- methods of lists ----------------------------------------------------------------------------


def cell_of_list(cx: Lowering, found: ListRef) -> list[Value]:
    """Return the indices of a list, counted from 0. Raises KernelIndexError (`cell_of`)."""
    node, ((axis, _),) = found.node, found.block.cells
    origin = [first for k, first in zip(node.extents, node.origin) if k != axis]
    return cell_of(cx, found.block, list(found.indices), origin)


LIST_METHODS.update({
    "append": lambda cx, x, v: append(cx, x.block, cell_of_list(cx, x), [(x.array, v)]),
    "length": lambda cx, x: length(cx, x.block, cell_of_list(cx, x)),
    "deactivate": lambda cx, x: clear(cx, x.block, cell_of_list(cx, x)),
})  # fmt: skip


class ListKind(TargetKind, of=[ListRef]):
    """Lists of a dynamic block."""

    def method(self, cx: Any, x: Any, name: str, n: ast.Call) -> Any:
        args, kwargs = cx.tables.arguments(cx, n)
        if name not in LIST_METHODS:
            raise cx.fail(
                f"a list of a field has no method `{name}`",
                kind=KernelNameError,
                help=f"it has {', '.join(LIST_METHODS)}",
            )
        if kwargs or len(args) != (name == "append"):
            takes = "one value" if name == "append" else "nothing"
            raise cx.fail(f"`{name}` of a list takes {takes}")
        return LIST_METHODS[name](cx, x, *args)
