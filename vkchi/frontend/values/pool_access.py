"""Fields in blocks of a pool, in kernels: cells are found in a table, and writes allocate nodes.

    v = x[i, j]         # load elem %x.nodes, max(table[i // 8, j // 8], 0), i % 8, j % 8
    x[i, j] = v         # store elem %x.nodes, take_node(...), i % 8, j % 8

Nodes are allocated without locks, and without a wait that depends on other invocations:

1. The first invocation claims the slot of an inactive cell by compare-and-swap.
2. It takes a node and publishes it in the slot, also by compare-and-swap.
3. Others wait for that a bounded number of times (TRIES), then take a node and publish it as well.
   One of them succeeds. The others use its node, and give theirs back.

A slot word is all that is published, so relaxed atomics suffice: the contents of free nodes were
zeroed before the launch. For deactivation, the slot is exchanged with 0. The node is recycled after
the launch. An activation of the same cell at the same time counts as before it, and its stores go
to TRASH.

Most functions here are kernel code, which is inlined.

See also: `fields.trees.pools` (memory layout, recycling).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vkchi.errors import KernelFieldError, KernelRuntimeError
from vkchi.frontend.values.references import ArrayRef, Assignable, Context, MemoryTarget, emit_at
from vkchi.ir.core import Op, Value
from vkchi.lang.atomic_functions import atomic_add, atomic_cas, atomic_exchange, atomic_or
from vkchi.lang.compile_time import static
from vkchi.target.pool_layout import (
    CAPACITY_AT,
    CLAIMED,
    FIRST,
    FREE,
    FREE_AT,
    FRESH_AT,
    NO_ROOM,
    NOT_POOLED,
    RECYCLED,
    RECYCLED_AT,
    RETURNED,
    RETURNED_AT,
    TAKEN_AT,
    TRASH,
    ZERO,
)
from vkchi.types import Array, Scalar, Tensor, scalar_of

if TYPE_CHECKING:
    from vkchi.frontend.context import Lowering

TRIES = 64  # loads of a claimed slot, before an invocation publishes a node of its own


class PooledRef(ArrayRef):
    """A field in blocks of a pool. It has no array for all of its elements."""

    __slots__ = ("cx", "field")

    def __init__(self, cx: Lowering, field: Any, source: Any, component: int | None = None) -> None:
        self.cx, self.field, self.source, self.component = cx, field, source, component
        self.clamps, self.member = False, None
        self.name = cx.dependencies.name_of(source, "field")
        field.pool.names[id(field.node)] = self.name

    @property
    def value(self) -> Value:  # type: ignore[override]
        """Raise KernelFieldError."""
        raise self.cx.fail(
            f"`{self.name}` cannot be used like this: it has memory for active cells alone, "
            f"because its block is large",
            kind=KernelFieldError,
            help=f"use its elements; {NOT_POOLED}",
        )

    @property
    def type(self) -> Array:
        """The type of the field, as if it had memory for all cells."""
        found: Array = self.field.array_type
        return found

    @property
    def origin(self) -> tuple[int, ...]:
        found: tuple[int, ...] = self.field.origin
        return found


def check_usable(cx: Lowering, node: Any) -> None:
    """Check that a node's tree can be laid out, and lay it out. Raises KernelFieldError."""
    try:
        node.tree.lay_out()
    except KernelRuntimeError as e:
        raise cx.fail(str(e), kind=KernelFieldError) from None


def pooled_ref(cx: Lowering, x: Any) -> PooledRef | None:
    """Return a field in blocks of a pool, or a component of one, as an array; None for others."""
    whole, component = getattr(x, "component_of", None) or (x, None)
    node = getattr(whole, "node", None)
    if node is None or not node.sparse_path or getattr(whole, "is_copy", False):
        return None
    check_usable(cx, node)
    return PooledRef(cx, whole, x, component) if node.tree.pool is not None else None


class PooledTarget(Assignable):
    """An element in a node, or a component of one.

    - is_active: its cell is known to be active.
    - path: indices of components.
    """

    __slots__ = ("field", "indices", "is_active", "path", "type")

    def __init__(
        self, field: Any, indices: tuple[Value, ...], path: tuple[int | Value, ...],
        t: Scalar | Tensor, *, is_active: bool,
    ) -> None:  # fmt: skip
        self.field, self.indices, self.path, self.type = field, indices, path, t
        self.is_active = is_active

    @property
    def space(self) -> str:
        return "global"

    def is_shared(self, cx: Context) -> bool:
        return True

    def component(self, cx: Context, index: int | Value) -> PooledTarget:
        path, t = (*self.path, index), scalar_of(self.type)
        return PooledTarget(self.field, self.indices, path, t, is_active=self.is_active)

    def load(self, cx: Any) -> Op:
        return self._at(cx, self._found(cx, TRASH if self.is_active else ZERO)).load(cx)

    def store(self, cx: Any, v: Value) -> None:
        self._at(cx, self._activated(cx)).store(cx, v)

    def atomic(self, cx: Any, kind: str, *values: Value) -> Op:
        return self._at(cx, self._activated(cx)).atomic(cx, kind, *values)

    def changed(self, cx: Any, update: Callable[[Value], Value]) -> Value:
        """Store `update` of the current value by a compare-and-swap loop; return the old value."""
        return self._at(cx, self._activated(cx)).changed(cx, update)

    def _found(self, cx: Any, otherwise: int) -> Value:
        with cx.cells.own():
            found: Value = cx.call(
                find_node, (self.field.node.levels[-1], list(self.indices), otherwise), {}
            )
            return found

    def _activated(self, cx: Any) -> Value:
        """Emit the activation of the cell, unless it is known to be active; return its node."""
        node = self.field.node
        if self.is_active and cx.cells.is_known(cx.act, node, self.indices):
            return self._found(cx, TRASH)
        return activate_pooled(cx, node, self.indices)

    def _at(self, cx: Any, node: Value) -> MemoryTarget:
        with cx.cells.own():
            where = (self.field.leaf, self.field.origin, list(self.indices))
            inside = cx.call(index_inside, where, {})
        array = cx.array_of(self.field.nodes).value
        ptr = cx.b.emit("elem", array, node, *inside, attr="inbounds")
        for index in self.path:
            ptr = emit_at(cx, "member", ptr, index=index)
        return MemoryTarget(ptr)


def pooled_item(cx: Lowering, array: PooledRef, indices: Sequence[Value]) -> PooledTarget:
    """Return the element of a pooled field at in-range indices."""
    field, path = array.field, () if array.component is None else (array.component,)
    t = scalar_of(field.elem) if path else field.elem
    known = not cx.cells.is_own and cx.cells.is_known(cx.act, field.node, indices)
    return PooledTarget(field, tuple(indices), path, t, is_active=known and cx.in_parallel)


def activate_pooled(cx: Any, node: Any, indices: Sequence[Value]) -> Value:
    """Emit the activation of the cell that contains a node's element; return the pool's node."""
    cx.cells.marked.update(node.sparse_path)
    with cx.cells.own():
        found: Value = cx.call(take_node, (node.tree.pool, node.levels[-1], list(indices)), {})
        return found


# --- kernel code ---------------------------------------------------------------------------------


def index_inside(leaf: Any, origin: Any, index: Any) -> Any:
    """Return the index of an element in its cell."""
    return [(index[k] - static(origin[k])) % n for k, n in static(enumerate(leaf))]


def find_node(level: Any, index: Any, otherwise: Any) -> Any:
    """Return the node of the cell that contains an index; `otherwise` if it is inactive."""
    cell = [(index[axis.at] - axis.first) // axis.n for axis in static(level.axes)]
    return max(level.numbers[cell], otherwise)


def take_node(pool: Any, level: Any, index: Any) -> Any:
    """Activate the cell that contains an index; return its node, TRASH if there is no room."""
    cell = [(index[axis.at] - axis.first) // axis.n for axis in static(level.axes)]
    node = TRASH
    inside = True
    for k, n in static(enumerate(pool.block.shape)):
        inside = inside & (cell[k] >= 0) & (cell[k] < n)
    if inside:
        slot = pool.table[cell]
        if slot == 0 or slot == CLAIMED:
            slot = atomic_cas(pool.table[cell], 0, CLAIMED)
            publishes = slot == 0  # the claimant, before any wait
            for _ in range(2):
                if publishes:
                    t = atomic_add(pool.header[TAKEN_AT], 1)
                    free = pool.header[FREE_AT]
                    own = NO_ROOM
                    if t < free:
                        own = pool.books[free - 1 - t, FREE]
                    elif pool.header[FRESH_AT] + t - free < pool.header[CAPACITY_AT]:
                        own = pool.header[FRESH_AT] + t - free
                    slot = atomic_cas(pool.table[cell], CLAIMED, own)
                    if slot == CLAIMED:
                        slot = own
                    elif own >= FIRST:
                        back = atomic_add(pool.header[RETURNED_AT], 1)
                        pool.books[back, RETURNED] = own
                tries = 0
                while slot == CLAIMED and tries < static(TRIES):
                    slot = atomic_or(pool.table[cell], 0)
                    tries += 1
                publishes = slot == CLAIMED  # help
        node = max(slot, TRASH)
    return node


def release_node(pool: Any, cell: Any) -> None:
    """Deactivate a cell. Its node is zeroed and recycled after the launch."""
    inside = True
    for k, n in static(enumerate(pool.block.shape)):
        inside = inside & (cell[k] >= 0) & (cell[k] < n)
    if inside:
        node = atomic_exchange(pool.table[cell], 0)
        if node >= FIRST:
            k = atomic_add(pool.header[RECYCLED_AT], 1)
            pool.books[k, RECYCLED] = node
