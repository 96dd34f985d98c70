"""Node pools: memory for the active cells of a `pointer` block alone.

A table has an i32 *slot* per cell: 0 for an inactive cell, otherwise the number of its *node*. A
pool has nodes of one size, each with the contents of one cell. Node ZERO is never written: reads of
inactive cells go there. Node TRASH takes stores for which there is no room.

Kernels allocate nodes (`frontend.values.pool_access`). Between launches the host reads the pool's
counters, recycles nodes and replaces the memory by a larger one (`Pool.settle_launch`). Kernels
load the addresses of `nodes` and `books` from the pool's header (attribute `indirect`), so compiled
code and recorded commands stay valid.

Guarantees:
- Nodes that are not in the table are zero, except TRASH. Nodes that were freed are zeroed after
  the launch.
- A node is in at most one slot.

    pool = block.tree.pool; pool.activate((3, 0))       # the number of a node
    pool.node_of((3, 0)), pool.usage()                  # the same, Usage(active=1, ...)

See also: `frontend.values.pool_access` (kernels), `fields.pooled_field` (access from Python).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, NoReturn, TypeVar, cast

from vkchi import env
from vkchi.device import Buffer
from vkchi.errors import DeviceError, KernelRuntimeError, Unsupported
from vkchi.fields.field import Field
from vkchi.fields.trees.block_activity import BlockActivity, note_change
from vkchi.fields.trees.snode import ActivityHook, FieldTree, SNode
from vkchi.fields.trees.tree_layout import measure_node, nodes_layout, round_up_to
from vkchi.interrupts.contexts import restoring
from vkchi.interrupts.imports import run_in_thread
from vkchi.interrupts.local import local
from vkchi.span import name_in_user_code
from vkchi.target.pool_layout import (
    BOOKS_AT,
    CAPACITY_AT,
    COLUMNS,
    FIRST,
    FREE,
    FREE_AT,
    FRESH_AT,
    HEADER_WORDS,
    NODES_AT,
    NOT_POOLED,
    RECYCLED,
    RECYCLED_AT,
    RETURNED,
    RETURNED_AT,
    TAKEN_AT,
    ZERO,
)
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Layout, Scalar, Tensor, i32, row_major
from vkchi.types.core import MOST_ALIGNED, Attributes, alignment_of
from vkchi.types.layout import WIDE_FROM, WIDE_FROM_BYTES
from vkchi.types.lazy_numpy import np

C = TypeVar("C", bound=Callable[..., Any])
POOLED_FROM_BYTES = 16 << 20  # smaller trees have memory for all cells
FIRST_BYTES = 4 << 20  # of a new pool
SLACK, SLACK_BYTES = 1024, 1 << 20  # most nodes for invocations that take one in vain
LEAST_CELL_BYTES = 64  # smaller cells have memory, whether active or not
MOST_CELLS = 1 << 24  # of a block, as its table has a slot for each


class Counters(NamedTuple):
    """The words of a header: `free` nodes in `books`, the first node that was never used, the
    number of nodes, and counts of a launch."""

    free: int
    fresh: int
    capacity: int
    taken: int
    returned: int
    recycled: int


class Usage(NamedTuple):
    """Memory of a pool: active cells, cells that there is room for, bytes of nodes, of the table,
    and of lists."""

    active: int
    room: int
    node_bytes: int
    table_bytes: int
    list_bytes: int


def missing_nodes(counters: Counters) -> int:
    """The number of nodes that a launch took and did not get."""
    return max(0, counters.taken - counters.free - (counters.capacity - counters.fresh))


def locked(method: C) -> C:
    """Run a method of a pool under the runtime's lock, as launches do. Raises KernelRuntimeError as
    `Pool.close`."""

    @wraps(method)
    def run(self: Pool, *args: Any) -> Any:
        lock = self.runtime.lock
        with restoring(lock), lock:
            self.close()
            return method(self, *args)

    return cast("C", run)


class SavedPool(NamedTuple):
    """Contents of a pool: counters, table, nodes that were used, and free ones."""

    known: Counters
    table: Buffer
    nodes: Buffer
    free: np.ndarray[Any, Any]


class PoolArray(Field):
    """An array of a pool in kernels. Users do not see it.

    - table: the slots, if it is them; `pool`: the pool of which it is a part.
    """

    is_copy = True  # with memory of its own, outside of trees
    is_indirect = False

    def __init__(
        self, pool: Pool, elem: Scalar | Tensor, name: str, shape: tuple[int, ...],
        layout: Layout | None, buffer: Buffer,
    ) -> None:  # fmt: skip
        super().__init__(pool.runtime, elem, name)
        self.pool, self.is_laid = pool, layout is not None
        self.arrange(shape, layout or row_major(shape, 1))
        self.attach(buffer, is_own=True)

    def _companion(self, kind: str) -> None:
        """None: there are no gradients."""

    @property
    def life(self) -> FieldTree | None:
        tree = self.pool.tree
        return tree if tree.root.can_destroy else None

    def __vkchi_array__(self) -> Array:
        """The type. Arrays of i32 have no layout: lists of active cells may share their memory."""
        self.check_alive()
        layout = self.layout if self.is_laid else None
        return Array.of(self.elem, len(self.shape), self.shape, layout, stored=self.stored)

    def __vkchi_attributes__(self) -> Attributes:
        first = self.layout.components[0] * self.stored.size_bytes
        aligned = alignment_of(first or MOST_ALIGNED)
        return Attributes(noalias=not self.is_laid, aligned=aligned, indirect=self.is_indirect)

    def offset(self, index: tuple[int, ...]) -> int:
        """The offset of an element, or of one component. The first element may begin behind the
        start of the buffer."""
        found = super().offset(index)
        return found if len(index) > len(self.digits) else found + self.layout.components[0]

    def _refuse(self, *args: Any) -> NoReturn:
        raise Unsupported(self.pool.refusal("copies of the memory of a kernel's arrays"))

    copied = copied_rows = duplicate = _refuse  # type: ignore[assignment]


class ChosenTable(PoolArray):
    """A second table, for loops over the cells that were active at their start. Its memory is
    allocated when a kernel uses it."""

    def __init__(self, pool: Pool) -> None:
        Field.__init__(self, pool.runtime, i32, "pool.chosen")
        self.pool, self.is_laid, self.is_own = pool, False, True
        shape = pool.block.shape
        self.arrange(shape, row_major(shape, 1))
        self.token = object()
        self._buffer: Buffer | None = None

    @property
    def buffer(self) -> Buffer:  # type: ignore[override]
        if self._buffer is None:
            self._buffer = self.device.allocate(4 * (self.pool.cells + 1))
        return self._buffer

    def free(self) -> None:
        """Free the memory, if there is any."""
        if self._buffer is not None:
            self._buffer.free()


class IndirectArray(PoolArray):
    """An array of a pool that kernels reach through the header."""

    is_indirect = True


class IndirectBuffer(Buffer):
    """Memory of a pool, which may be replaced. `address` is where the header has its address, and
    `size_bytes` that of an address."""

    __slots__ = ("memory",)

    def __init__(self, header: Buffer, word: int, memory: Buffer) -> None:
        self.device, self.key, self.view = memory.device, memory.key, None
        self.address = header.address + 4 * word
        self.memory, self.size_bytes = memory, 8

    def locate(self, offset: int, size_bytes: int) -> tuple[Any, int]:
        return self.memory.locate(offset, size_bytes)

    def read_into(self, offset: int, target: Any) -> None:
        self.memory.read_into(offset, target)

    def write(self, offset: int, data: Any) -> None:
        self.memory.write(offset, data)

    def free(self) -> None:
        self.memory.free()


# --- which trees have a pool ---------------------------------------------------------------------


def is_pooled(top: SNode, size_bytes: int) -> bool:
    """True if a tree gets a pool: a large `pointer` block at the root that contains dense blocks
    and fields without gradients. Its nodes have been measured."""
    choice = env.flag("VKCHI_POOLS")
    if top.kind != "pointer" or choice == "0" or not is_plain(top):
        return False
    if math.prod(top.shape) > MOST_CELLS:
        return False
    if choice == "all":
        return True
    return size_bytes > POOLED_FROM_BYTES and top.cell_bytes >= LEAST_CELL_BYTES


def is_plain(node: SNode) -> bool:
    """True if all nodes below are dense blocks along the axes of the node, or places of fields
    without gradients."""
    for child in node.children:
        if child.kind == "place":
            field: Any = child.field
            if child.number is not None or (field is not None and (field.kind or field.needs)):
                return False
            continue
        if child.kind != "dense" or child.extents.keys() != node.extents.keys():
            return False
        if not is_plain(child):
            return False
    return any(True for _ in node.places())


# --- pools ---------------------------------------------------------------------------------------


class Pool:
    """The nodes of a block, its table of slots, and the lists of free nodes.

    - table: i32 array of the block's shape; `header`: the counters, and addresses of the memory
    - nodes: by field, its array `[node, index in the cell...]`
    - books: i32 array of COLUMNS lists of nodes
    - known: the counters after the last launch that was settled
    - is_open: a launch may have changed the counters since then
    """

    def __init__(self, block: SNode) -> None:
        self.block, self.tree, self.runtime = block, block.tree, block.runtime
        device = self.device = block.runtime.device
        _, alignment = measure_node(block)
        self.node_bytes = round_up_to(block.cell_bytes, max(MOST_ALIGNED, alignment))
        self.cells = math.prod(block.shape)
        widest = max(1, WIDE_FROM_BYTES // self.node_bytes - 1)
        widest = min(widest, WIDE_FROM // self.node_bytes - 1 or 1, WIDE_FROM // COLUMNS - 1)
        self.slack = min(SLACK, SLACK_BYTES // self.node_bytes)
        self.extra = FIRST + self.slack  # nodes beside those of active cells
        self.most = widest  # nodes that 32-bit offsets reach
        self.most_active = min(self.cells, widest - self.extra)
        if self.most <= self.extra:
            raise DeviceError(f"a cell of {self.node_bytes} bytes is too large for a sparse block")
        first = min(FIRST_BYTES // self.node_bytes, self.cells + self.extra)
        capacity = min(self.most, max(first, self.extra + 1))
        header = device.allocate(4 * HEADER_WORDS)
        node_memory = device.allocate(capacity * self.node_bytes)
        book_memory = device.allocate(4 * COLUMNS * capacity)
        self.node_buffer = IndirectBuffer(header, NODES_AT, node_memory)
        self.book_buffer = IndirectBuffer(header, BOOKS_AT, book_memory)
        self.header = PoolArray(self, i32, "pool", (HEADER_WORDS,), None, header)
        shape = (self.most, COLUMNS)
        self.books = IndirectArray(self, i32, "pool.books", shape, None, self.book_buffer)
        table = device.allocate(4 * (self.cells + 1))
        self.table = PoolArray(self, i32, "pool.table", block.shape, None, table)
        self.chosen = ChosenTable(self)
        self.nodes: dict[int, IndirectArray] = {}  # by the id of the field's place
        self.names: dict[int, str] = {}  # of the same, as kernels call them
        for node in block.places():
            self._add_field(node)
        self.launched = ""  # the last kernel that might change activity
        self._set(0, FIRST, capacity)

    def _add_field(self, node: SNode) -> None:
        """Make the array of the field at a place."""
        field: Any = node.field
        if field is None:
            return
        shape, layout = nodes_layout(self.block, node, self.node_bytes, self.most)
        name = f"{field.name or 'field'}.nodes"
        made = IndirectArray(self, field.elem, name, shape, layout, self.node_buffer)
        self.nodes[id(node)] = made

    # --- messages

    @property
    def name(self) -> str:
        """Names of the fields in the pool, for messages."""
        fields: list[Any] = [node.field for node in self.block.places()]
        found = [
            field.name or name_in_user_code(field) or self.names.get(id(field.node), "")
            for field in fields
            if field is not None
        ]
        names = [f"`{name}`" for name in found if name]
        return " and ".join(names[:2]) if names else f"a field in a {self.block.kind} block"

    def refusal(self, what: str) -> str:
        """The message for a use of a field that pools do not support."""
        return (
            f"{self.name}: {what} need memory for all cells, and this {self.block.kind} block has "
            f"memory for active cells alone, because it is larger than "
            f"{POOLED_FROM_BYTES >> 20} MiB. {NOT_POOLED}"
        )

    @property
    def limit_bytes(self) -> int:
        """The memory that nodes may take (`device_memory_GB`, `device_memory_fraction`)."""
        config: Any = self.runtime.config
        if config.device_memory_GB > 0:
            return int(config.device_memory_GB * (1 << 30))
        return int((config.device_memory_fraction or 1) * self.device.heap.total_bytes())

    def shortage(self, wanted: int, counters: Counters | None = None) -> str:
        """The message for `wanted` active cells for which there is no room."""
        counters = counters or self.counters()
        have, wanted = counters.capacity - self.extra, min(wanted, 2 * self.cells)
        size, limit = counters.capacity * self.node_bytes, self.limit_bytes
        least = (wanted + self.extra) * self.node_bytes
        if wanted + self.extra > self.most:
            remedy = "make its cells smaller: a pool has less than 4 GiB"
        elif least > limit and least > self.device.heap.total_bytes():
            remedy = "that is more than the device has: keep fewer cells active"
        elif least > limit:
            remedy = f"ti.init(device_memory_GB={math.ceil(least / (1 << 29)) / 2:g})"
        else:
            remedy = f"call block.reserve({wanted}) before, where block is its pointer block"
        return (
            f"{self.name} needs {wanted:,} blocks of its {self.block.kind} block and has room for "
            f"{have:,} ({size / (1 << 20):.1f} MiB of {limit / (1 << 20):,.0f} MiB): {remedy}"
        )

    # --- the header

    def _set(self, free: int, fresh: int, capacity: int) -> None:
        """Set the counters, those of a launch to 0, and the addresses, by one write."""
        words = np.zeros(HEADER_WORDS, np.int32)
        memories = (self.node_buffer.memory, self.book_buffer.memory)
        words[NODES_AT : BOOKS_AT + 2] = np.array([m.address for m in memories], np.uint64).view(
            np.int32
        )
        words[FREE_AT : CAPACITY_AT + 1] = free, fresh, capacity
        self.is_open = True  # until `known` agrees with the header
        self.header.buffer.write(0, words)
        self.known = Counters(free, fresh, capacity, 0, 0, 0)
        self.is_open = False

    def counters(self) -> Counters:
        """Return the counters; waits for the device."""
        words = np.frombuffer(self.header.buffer.read(0, 4 * HEADER_WORDS), np.int32)
        at = [FREE_AT, FRESH_AT, CAPACITY_AT, TAKEN_AT, RETURNED_AT, RECYCLED_AT]
        return Counters(*[int(words[k]) for k in at])

    @locked
    def usage(self) -> Usage:
        """Return the memory in use; waits for the device."""
        counters = self.counters()
        cells = vars(self.table).get("active_list")
        return Usage(
            counters.fresh - FIRST - counters.free, counters.capacity - self.extra,
            counters.capacity * self.node_bytes, 4 * self.cells,
            0 if cells is None else cells.memory.size_bytes,
        )  # fmt: skip

    # --- launches

    def begin(self, kernel: str) -> None:
        """Prepare for a launch that may change activity. Raises KernelRuntimeError as `close`."""
        self.close()
        self.launched, self.is_open = kernel, True

    def close(self) -> None:
        """Settle a launch that an interrupt ended. Raises KernelRuntimeError if it had no room."""
        if self.is_open:
            self.settle_launch()

    def settle_launch(self) -> int:
        """Wait for a launch, recycle nodes, and make room for as many as are half of
        the active ones. Return the number of nodes that it took. Raises KernelRuntimeError if there
        was no room."""
        counters = self.counters()
        missing = self._settle(counters)
        known = self.known
        if missing:
            wanted = known.fresh - FIRST - known.free + missing
            raise KernelRuntimeError(
                f"{self.launched}(): {self.shortage(wanted, counters)}. Values that this launch "
                "wrote are undefined"
            )
        active, room = known.fresh - FIRST - known.free, known.capacity - self.extra
        if (room - active) * 2 < active and room < self.most_active:
            self._grow_early(room)
        return counters.taken

    def _settle(self, counters: Counters) -> int:
        """Account for the nodes that a launch took and freed. Return the number of those that it
        did not get. An interrupted call can be repeated."""
        missing = missing_nodes(counters)
        free = counters.free - min(counters.taken, counters.free)
        fresh = counters.fresh + counters.taken - missing - (counters.free - free)
        if missing:
            self._forget_missing()
        if counters.returned or counters.recycled:
            books = self._books()
            recycled = books[: counters.recycled, RECYCLED].copy()
            more = np.concatenate([books[: counters.returned, RETURNED], recycled])
            self._zero(recycled)
            books[free : free + len(more), FREE] = more
            self._keep_books(books)
            free += len(more)
        is_changed = counters.taken > 0 or counters.recycled > 0
        cells = vars(self.table).get("active_list")
        if cells is not None:
            cells.settle(is_changed=is_changed)
        if is_changed:
            self._set(free, fresh, counters.capacity)  # last
        else:
            self.known, self.is_open = counters, False
        return missing

    def left(self) -> int:
        """Return the number of free nodes after the last launch."""
        return self.known.free + self.known.capacity - self.known.fresh

    def is_short(self) -> bool:
        """True if a launch did not get all nodes; waits for the device."""
        return missing_nodes(self.counters()) > 0

    def grow_to_missing(self) -> bool:
        """Make room for the cells that were active before a launch, and for all nodes that it took
        or did not get: it may have deactivated and activated a cell many times. Returns False,
        without a change, if the limits do not allow it."""
        counters = self.counters()
        wanted = counters.fresh - FIRST - counters.free + counters.taken
        room = counters.capacity - self.extra
        more = min(max(wanted + wanted // 2, 2 * room), self.most - self.extra)
        if more <= room:
            return False
        try:
            return self.grow(more) or (wanted > room and self.grow(wanted))
        except local(DeviceError):
            return False

    @property
    def used_bytes(self) -> int:
        """Bytes of the table and of nodes that were used."""
        return 4 * self.cells + self.known.fresh * self.node_bytes

    def save(self) -> SavedPool:
        """Return a copy of the contents."""
        known = self.known
        table = self.device.allocate(4 * self.cells, zero=False)
        nodes = self.device.allocate(known.fresh * self.node_bytes, zero=False)
        self.device.copy(self.table.buffer, table, 4 * self.cells)
        self.device.copy(self.node_buffer.memory, nodes, known.fresh * self.node_bytes)
        free = self._books()[: known.free, FREE].copy() if known.free else np.zeros(0, np.int32)
        return SavedPool(known, table, nodes, free)

    def restore(self, saved: SavedPool) -> None:
        """Restore saved contents; the memory may have grown. Waits for the device."""
        run_in_thread(partial(self._restore, saved))

    def _restore(self, saved: SavedPool) -> None:
        self.is_open = False
        known, memory = saved.known, self.node_buffer.memory
        capacity = self.known.capacity
        self.device.copy(saved.table, self.table.buffer, 4 * self.cells)
        used = known.fresh * self.node_bytes
        self.device.copy(saved.nodes, memory, used)
        self.device.fill(memory, used, capacity * self.node_bytes - used, 0)
        if known.free:
            books = self._books()
            books[: known.free, FREE] = saved.free
            self._keep_books(books)
        self._set(known.free, known.fresh, capacity)

    def _grow_early(self, room: int) -> None:
        """Double the room, or as far as the limits allow it, at most to one node for each cell."""
        most = min(self.most_active, self.limit_bytes // self.node_bytes - self.extra)
        try:
            self.grow(min(2 * room, most))
        except local(DeviceError):
            pass  # it is not needed yet

    def _books(self) -> np.ndarray[Any, Any]:
        memory = self.book_buffer.memory
        raw = memory.read(0, memory.size_bytes) if memory.view is None else memory.view
        return np.frombuffer(raw, np.int32)[: memory.size_bytes // 4].reshape(-1, COLUMNS)

    def _keep_books(self, books: np.ndarray[Any, Any]) -> None:
        if self.book_buffer.memory.view is None:
            self.book_buffer.memory.write(0, np.ascontiguousarray(books))

    def _zero(self, nodes: np.ndarray[Any, Any]) -> None:
        memory = self.node_buffer.memory
        if memory.view is not None:
            rows = np.frombuffer(memory.view, np.uint8)[: memory.size_bytes]
            rows[: len(rows) // self.node_bytes * self.node_bytes].reshape(-1, self.node_bytes)[
                nodes
            ] = 0
            return
        nodes = np.sort(nodes)
        starts = np.flatnonzero(np.diff(nodes, prepend=-2) != 1)
        for first, last in zip(starts, [*starts[1:], len(nodes)]):
            begin = int(nodes[first]) * self.node_bytes
            self.device.fill(memory, begin, int(last - first) * self.node_bytes, 0)

    def _forget_missing(self) -> None:
        slots = self.slots()
        slots[slots < 0] = 0
        self._keep_slots(slots)

    def grow(self, room: int) -> bool:
        """Make room for `room` active cells, if the limits allow it; waits for the device. Returns
        False, without a change, if they do not. Raises DeviceError if memory is exhausted. Settles
        a launch that is open; cells for which it had no room stay inactive."""
        counters = self.counters()
        capacity = room + self.extra
        if capacity <= counters.capacity:
            return True
        if capacity > self.most or capacity * self.node_bytes > self.limit_bytes:
            return False
        nodes = self.device.allocate(capacity * self.node_bytes)
        books = self.device.allocate(4 * COLUMNS * capacity)
        self._settle(counters)
        old = self.node_buffer.memory, self.book_buffer.memory
        self.device.copy(old[0], nodes, counters.capacity * self.node_bytes)
        self.device.copy(old[1], books, counters.capacity * 4 * COLUMNS)
        self.device.wait()
        run_in_thread(partial(self._replace, nodes, books, capacity))
        return True

    def _replace(self, nodes: Buffer, books: Buffer, capacity: int) -> None:
        """Replace the memory; an interrupt would leave kernels with other memory than Python."""
        old = self.node_buffer.memory, self.book_buffer.memory
        for buffer, made in ((self.node_buffer, nodes), (self.book_buffer, books)):
            made.key = buffer.key  # commands that use the memory are ordered by this key
            buffer.memory = made
        self._set(self.known.free, self.known.fresh, capacity)
        for memory in old:
            memory.free()

    @locked
    def reserve(self, room: int) -> None:
        """Make room for `room` active cells. Raises KernelRuntimeError beyond the limits."""
        if not self.grow(min(room, 2 * self.cells)):
            raise KernelRuntimeError(self.shortage(room))

    # --- cells, from Python

    def slots(self) -> np.ndarray[Any, Any]:
        """A copy of the table; waits for the device."""
        raw = self.table.buffer.read(0, 4 * self.cells)
        return np.frombuffer(raw, np.int32).copy().reshape(self.block.shape)

    def _keep_slots(self, slots: np.ndarray[Any, Any]) -> None:
        self.device.announce((self.table.buffer.key,))
        self.table.buffer.write(0, np.ascontiguousarray(slots))
        note_change(self.table)

    def node_of(self, cell: Sequence[int]) -> int:
        """The node of a cell, ZERO if it is inactive; waits for the device."""
        raw = self.table.buffer.read(4 * self._number(cell), 4)
        return max(ZERO, int.from_bytes(raw, "little", signed=True))

    def _number(self, cell: Sequence[int]) -> int:
        number = 0
        for k, n in zip(cell, self.block.shape, strict=True):
            number = number * n + k
        return number

    @locked
    def activate(self, cell: Sequence[int]) -> int:
        """Activate a cell; return its node. Raises KernelRuntimeError if there is no room."""
        found = self.node_of(cell)
        if found < FIRST:
            found = int(self._take(1)[0])
            self.device.announce((self.table.buffer.key,))
            at = 4 * self._number(cell)
            self.table.buffer.write(at, np.array([found], np.int32))
            note_change(self.table)
        return found

    @locked
    def activate_all(self, where: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Activate the cells of a mask of the block's shape; return the table. Raises
        KernelRuntimeError if there is no room."""
        slots = self.slots()
        new = where & (slots < FIRST)
        count = int(np.count_nonzero(new))
        if count:
            slots[new] = self._take(count)
            self._keep_slots(slots)
        return slots

    def _take(self, count: int) -> np.ndarray[Any, Any]:
        """Take zeroed nodes for `count` cells. Raises KernelRuntimeError if there is no room."""
        counters = self.counters()
        active = counters.fresh - FIRST - counters.free
        room = counters.capacity - self.extra
        if active + count > room:
            wanted = max(active + count, min(2 * room, self.most_active))
            if not (self.grow(wanted) or self.grow(active + count)):
                raise KernelRuntimeError(self.shortage(active + count))
        free, fresh = counters.free, counters.fresh
        reused = min(count, free)
        rest = np.arange(fresh, fresh + count - reused)
        nodes = [self._books()[free - reused : free, FREE], rest]
        self._set(free - reused, fresh + count - reused, self.counters().capacity)
        return np.concatenate(nodes).astype(np.int32)

    def clear(self) -> None:
        """Deactivate all cells, and zero their nodes. Raises Unsupported while a tape or another
        recording is active."""
        if self.runtime.recording is not None:
            raise Unsupported(self.refusal("deactivate_all() in tapes and records"))
        lock = self.runtime.lock
        with restoring(lock), lock:
            self._settle(self.counters())
            self._clear()

    def _clear(self) -> None:
        self.device.announce((self.table.buffer.key,))
        self.device.fill(self.table.buffer, 0, 4 * self.cells, 0)
        note_change(self.table)
        known = self.known
        self.device.fill(self.node_buffer.memory, 0, known.fresh * self.node_bytes, 0)
        self._set(0, FIRST, known.capacity)

    def free(self) -> None:
        """Free all memory, once the device has finished with it."""
        for array in (self.table, self.header):
            array.buffer.free()
        self.chosen.free()
        self.book_buffer.free()
        self.node_buffer.free()

    def check(self) -> None:
        """Raise AssertionError unless the invariants of the module hold."""
        counters, slots = self.counters(), self.slots().ravel()
        assert counters.taken == counters.returned == counters.recycled == 0, counters
        used = slots[slots != 0]
        assert (used >= FIRST).all() and (used < counters.fresh).all(), used
        free = self._books()[: counters.free, FREE]
        both = np.concatenate([used, free])
        assert len(np.unique(both)) == len(both) == counters.fresh - FIRST, (used, free, counters)
        raw = self.node_buffer.memory.read(0, counters.capacity * self.node_bytes)
        rows = np.frombuffer(raw, np.uint8).reshape(-1, self.node_bytes)
        assert not rows[[ZERO, *free.tolist()]].any() and not rows[counters.fresh :].any()


class PoolActivity(BlockActivity):
    """Activity of a block with a pool: `numbers` is its table of slots."""

    def __init__(self, block: SNode, pool: Pool) -> None:
        self.block, self.is_list, self.pool = block, False, pool
        self.extents, self.numbers = block.extents, pool.table  # type: ignore[assignment]
        pool.table.activity = self

    @property
    def chosen(self) -> Any:
        return self.pool.chosen

    @property
    def arrays(self) -> tuple[Any, ...]:
        return (self.pool.table, self.pool.chosen, self.pool.header, self.pool.books)

    def clear(self) -> None:
        self.pool.clear()

    def destroy(self) -> None:
        cells = vars(self.numbers).pop("active_list", None)
        if cells is not None:
            cells.free()
        self.pool.free()


def make_pool(tree: FieldTree, size_bytes: int) -> bool:
    """Give a tree a pool, and attach its fields, unless it has memory for all cells (`size_bytes`):
    then return False. A second call, after an interrupt, reuses the pool."""
    if tree.pool is None:
        if not is_pooled(tree.top, size_bytes):
            return False
        tree.pool = Pool(tree.top)
    tree.top._activity = PoolActivity(tree.top, tree.pool)
    for node in tree.top.places():
        if node.field is not None:
            ActivityHook.adopt_pool(node.field, tree.pool)
    return True
