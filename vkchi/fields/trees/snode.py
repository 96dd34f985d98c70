"""Field trees: nested blocks of cells, and the places of fields in them (`ti.root.dense(...)`).

`SNode` is a block or a place. `FieldTree` is a top-level node with its descendants, laid out in one
buffer. The module also checks which nodes may be children of which.

    block = root.dense(axes(0), 4)          # 4 cells
    block.place(x, y)                       # each with an x and a y
    block.dense(axes(0, 1), 8).place(z)     # and 8 by 8 of z, which has the shape (32, 8)
    root.pointer(axes(0), 4).place(w)       # a cell becomes active on its first write

See also: `tree_layout` (memory layout), `block_activity` (active cells of sparse blocks).
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from vkchi.device import Buffer
from vkchi.errors import ArgumentError, DeclarationError, DeviceError, KernelRuntimeError
from vkchi.hooks import Hook
from vkchi.interrupts.contexts import restoring
from vkchi.public_names import visible_names
from vkchi.runtime import Runtime, current_runtime, require_home
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, u32, u64

if TYPE_CHECKING:
    from vkchi.fields.trees.activity_pictures import ActivityPicture
    from vkchi.types.hints import Along, Shape


# --- axes ----------------------------------------------------------------------------------------
#
# Axes of field trees and block sizes along them: parsing and validation of user arguments.
#
# >>> pair_axes(axes(0, 1), (4, 8))
# ((0, 4), (1, 8))

MOST_AXES = 8
LETTERS = "ijklmnop"
MOST_CELLS = 2**31 - 1  # along one axis


class Axes(tuple[int, ...]):
    """Tuple of distinct axis numbers: `ti.i` is (0,), `ti.ij` is (0, 1)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"ti.{''.join(LETTERS[k] for k in self)}" if len(self) < 5 else f"ti.axes{(*self,)}"


def axes(*x: Any) -> Axes:
    """Return axes by number: `ti.axes(0, 1)` is `ti.ij`.

    Args:
        *x: different integers from 0 to 7.

    Returns:
        The axes, for blocks of a field tree.

    Raises:
        ArgumentError: for other objects and for repeated numbers.
    """
    for k in x:
        if not hasattr(k, "__index__") or isinstance(k, bool) or not 0 <= k < MOST_AXES:
            raise ArgumentError(f"axes are integers from 0 to {MOST_AXES - 1}, not {k!r}")
    if len(set(x)) < len(x):
        raise ArgumentError(f"each axis is given once, unlike in {x}")
    return Axes(int(k) for k in x)


def axes_named(letters: str) -> Axes:
    """The axes of the given letters; "i" is axis 0."""
    return axes(*[LETTERS.index(c) for c in letters])


i, j, k, l = (axes_named(c) for c in "ijkl")  # noqa: E741
ij, ik, il, jk, jl, kl = (axes_named(c) for c in ("ij", "ik", "il", "jk", "jl", "kl"))
ijk, ijl, ikl, jkl = (axes_named(c) for c in ("ijk", "ijl", "ikl", "jkl"))
ijkl = axes_named("ijkl")


def flat_axes(x: Any) -> Axes:
    """Parse a user's axes: `ti.ij`, or a sequence of axes or integers. Raises ArgumentError for
    other objects."""
    if isinstance(x, Axes):
        return x
    if not isinstance(x, list | tuple) or not x:
        raise ArgumentError(f"axes such as ti.ij are needed here, not {x!r}")
    found: list[Any] = []
    for part in x:
        found += part if isinstance(part, Axes) else [part]
    return axes(*found)


def pair_axes(x: Any, dimensions: Any) -> tuple[tuple[int, int], ...]:
    """(axis, cells) pairs by ascending axis. `dimensions` is one size for all axes or one per axis.

    Raises ArgumentError for invalid axes and sizes.
    """
    found = flat_axes(x)
    sizes = cook_extents(dimensions, "a block's dimensions")
    if len(sizes) == 1:
        sizes *= len(found)
    if len(sizes) != len(found):
        want = "1 dimension is" if len(found) == 1 else f"1 or {len(found)} dimensions are"
        raise ArgumentError(f"{want} needed for {found}, not {sizes}")
    return tuple(sorted(zip(found, sizes, strict=True)))


def cook_extents(x: Any, what: str) -> tuple[int, ...]:
    """An integer or a sequence of integers as a tuple of ints. Raises ArgumentError unless all are
    positive and below 2**31; `what` names them in the message."""
    found = tuple(x) if hasattr(x, "__iter__") and not isinstance(x, str) else (x,)
    for n in found:
        if not hasattr(n, "__index__") or isinstance(n, bool) or not 0 < n <= MOST_CELLS:
            raise ArgumentError(f"{what} must be positive integers below 2**31, not {n!r}")
    return tuple(n.__index__() for n in found)


def cook_offset(offset: Any, ndim: int) -> tuple[int, ...]:
    """Parse `offset=`: the first index of each axis, or () for None, () and all zeros.

    Raises ArgumentError unless it has `ndim` integers, at least -2**31.
    """
    if offset is None:
        return ()
    found = tuple(offset) if hasattr(offset, "__iter__") else (offset,)
    for k in found:
        if not hasattr(k, "__index__") or isinstance(k, bool) or k < -MOST_CELLS - 1:
            raise ArgumentError(f"offset= is made of integers of 32 bits, not {k!r}")
    if found and len(found) != ndim:
        raise DeclarationError(
            f"the dimensionality of shape and offset must be the same ({ndim} != {len(found)})"
        )
    return tuple(k.__index__() for k in found) if any(found) else ()


def order_axes(order: Any, ndim: int) -> tuple[int, ...]:
    """The axes of an `order` such as "ji", slowest first; ascending for None. Raises ArgumentError
    unless it names each of `ndim` axes once."""
    if order is None:
        return tuple(range(ndim))
    if not isinstance(order, str):
        raise ArgumentError(f"order= is a word such as 'ji', not {order!r}")
    if len(order) != ndim:
        raise DeclarationError(
            f"the dimensionality of shape and order must be the same ({ndim} != {len(order)})"
        )
    if len(set(order)) < ndim:
        raise DeclarationError(f"the axes in order={order!r} must be different")
    for letter in order:
        if letter not in LETTERS[:ndim]:
            raise DeclarationError(f"order={order!r} names the axis {letter}, which is not there")
    return tuple(LETTERS.index(letter) for letter in order)


def axes_of_layout(layout: Sequence[int], ndim: int) -> tuple[int, ...]:
    """The axes of a `layout` such as (1, 0), slowest first. Raises ArgumentError unless it is a
    permutation of `ndim` axes."""
    found = tuple(layout)
    if sorted(map(str, found)) != sorted(map(str, range(ndim))):
        raise ArgumentError(f"layout= is a permutation of {ndim} axes, not {layout!r}")
    return found


# --- nodes ---------------------------------------------------------------------------------------

SPARSE = frozenset(("pointer", "bitmasked", "hash", "dynamic"))  # kinds of blocks
IN_WORDS = frozenset(("bit_struct", "quant_array"))  # kinds of blocks that are one word each


def word_of(runtime: Runtime, bits: int) -> Scalar:
    """The unsigned integer type for packed words of 32 or 64 bits. Raises ArgumentError for other
    widths, DeviceError if the device lacks 64-bit integers with atomics."""
    caps = runtime.device.caps
    if type(bits) is not int or bits not in (32, 64):
        raise ArgumentError(f"max_num_bits= is 32 or 64, not {bits!r}")
    if bits == 64 and not (caps.int64 and caps.i64_atomics):
        raise DeviceError(
            f"{runtime.device.info.name} has no 64-bit integers with atomic operations, which "
            "words of 64 bits need: use max_num_bits=32"
        )
    return u32 if bits == 32 else u64


class ElementLayout(NamedTuple):
    """Element of a place: `components` scalars of type `stored`. If `is_soa`, and the place is
    alone in its tree, each component has its own copy of the tree's cells."""

    stored: Scalar
    components: int
    is_soa: bool = False


class ActivityHook:
    """Hooks of sparse blocks, resolved in `vkchi.fields.trees.block_activity`.

    `make(block)`: create the BlockActivity of a block; `levels(node)`: maps from indices to cells;
    `mark(node, index)`: activate an element's cells; `chosen(node)`: boolean mask of elements in
    active cells; `mark_all(node, where)`: activate the cells of the masked elements;
    `adopt_pool(field, pool)`: attach a field to the pool of its block (`trees.pools`);
    `picture(node)`: an `activity_pictures.ActivityPicture`.
    """

    make, mark = Hook("activity of a block"), Hook("mark a cell")
    levels = Hook("levels of a node")
    adopt_pool = Hook("field in a pool")
    chosen, mark_all = Hook("active elements"), Hook("mark cells")
    picture = Hook("picture of activity")


class Placeable(Protocol):
    """Interface of fields, as far as a node needs it."""

    runtime: Runtime
    needs: tuple[str, ...]

    @property
    def content(self) -> ElementLayout: ...

    def check_placeable(self) -> None: ...

    def enter(self, block: ParentNode, origin: tuple[int, ...]) -> None: ...

    def put(self, node: SNode) -> None: ...

    def lacking(self, kind: str) -> Any: ...


def members_of(x: Any) -> list[Placeable]:
    """The fields in `x`: a placeable object, a struct of fields, or a list of these.

    Raises ArgumentError for other objects.
    """
    if hasattr(x, "check_placeable"):
        return [x]
    if hasattr(type(x), "__vkchi_members__"):
        return list(x.__vkchi_members__())
    if isinstance(x, list | tuple):
        return [field for part in x for field in members_of(part)]
    raise ArgumentError(f"{x!r} cannot be placed: fields are, such as ti.field(ti.f32)")


class ParentNode:
    """Base of nodes that can have children."""

    kind: str
    runtime: Runtime
    extents: dict[int, int]
    children: list[SNode]
    __dir__ = visible_names

    def adopt(self, kind: str, cells: tuple[tuple[int, int], ...] = ()) -> SNode:
        """Add a child node and return it. Raises KernelRuntimeError once the tree has memory."""
        raise NotImplementedError

    def dense(
        self,
        axes: Along | None = None,
        dimensions: Shape | None = None,
        *,
        indices: Along | None = None,
    ) -> SNode:
        """A block in each cell of this one, of `dimensions` cells along `axes`: one size for all
        axes, or one per axis.

        `indices` is another name of `axes`. Raises ArgumentError for invalid axes and sizes,
        KernelRuntimeError if the tree has memory already.
        """
        return self.adopt("dense", pair_axes(indices if axes is None else axes, dimensions))

    def place(self, *args: Any, offset: Shape | None = None) -> Any:
        """Append fields, or lists of them (args), to each cell, and return this node. `offset` is
        the first index of each axis. Raises ArgumentError for objects that cannot be placed. Raises
        KernelRuntimeError for fields that have a place, and if the tree has memory already."""
        fields = [field for arg in args for field in members_of(arg)]
        origin = cook_offset(offset, len(self.extents))
        for field in fields:
            require_home("the field", field.runtime, self.runtime)
            field.check_placeable()
            field.enter(self, origin)
        return self

    def places(self) -> Iterator[SNode]:
        """The field places in this subtree, in memory order."""
        for child in self.children:
            if child.kind == "place":
                yield child
            else:
                yield from child.places()

    def lazy_grad(self) -> None:
        """Place missing gradients of all float fields in this subtree, each beside its field."""
        self.place_companions("grad")

    def lazy_dual(self) -> None:
        """Place missing duals of all float fields in this subtree, each beside its field."""
        self.place_companions("dual")

    def place_companions(self, kind: str) -> None:
        """Place the missing gradients (`kind` "grad") or duals in this subtree, each beside its
        field."""
        for node in list(self.places()):
            node.place_companion(kind)

    # --- sparse blocks -------------------------------------------------------------------------

    def pointer(
        self,
        axes: Along | None = None,
        dimensions: Shape | None = None,
        *,
        indices: Along | None = None,
    ) -> SNode:
        """A sparse block with the cells of a `dense` one (axes, dimensions, indices). A cell
        becomes active on its first write. Loops iterate over active cells; other cells read as
        zero. Raises the errors of `dense`."""
        return self.adopt("pointer", pair_axes(indices if axes is None else axes, dimensions))

    def bitmasked(
        self,
        axes: Along | None = None,
        dimensions: Shape | None = None,
        *,
        indices: Along | None = None,
    ) -> SNode:
        """The same as `pointer` (axes, dimensions, indices): Taichi's block for small cells. Raises
        the errors of `dense`."""
        return self.adopt("bitmasked", pair_axes(indices if axes is None else axes, dimensions))

    def hash(
        self,
        axes: Along | None = None,
        dimensions: Shape | None = None,
        *,
        indices: Along | None = None,
    ) -> SNode:
        """The same as `pointer` (axes, dimensions, indices): Taichi's block at the root. Raises the
        errors of `dense`."""
        return self.adopt("hash", pair_axes(indices if axes is None else axes, dimensions))

    def dynamic(
        self, axis: Along | None = None, dimension: Shape | None = None,
        chunk_size: int | None = None, *, index: Along | None = None,
    ) -> SNode:  # fmt: skip
        """A list in each cell of this block, empty at first, of up to `dimension` cells along an
        `axis`: `x[i].append(v)`. `index` is another name of `axis`; `chunk_size` has no effect.
        Raises the errors of `dense`, and ArgumentError for an axis of the blocks around."""
        cells = pair_axes(index if axis is None else axis, dimension)
        if len(cells) != 1:
            raise ArgumentError(f"a dynamic block has one axis, not {len(cells)}")
        ((found, _),) = cells
        if found in self.extents:
            raise ArgumentError(
                f"axis {found} of a dynamic block is one of the blocks around it: lists have an "
                "axis of their own"
            )
        return self.adopt("dynamic", cells)

    def quant_array(
        self, axes: Along, dimensions: Shape, max_num_bits: int
    ) -> SNode:  # fmt: skip
        """A block like `dense` (axes, dimensions), whose cells share one word of `max_num_bits`
        bits, 32 or 64. It holds one field of bit-packed numbers, one per cell. Raises the errors of
        `dense`, and DeviceError if the device does not support such words."""
        word = word_of(self.runtime, max_num_bits)
        block = self.adopt("quant_array", pair_axes(axes, dimensions))
        block.word = word
        return block

    def deactivate_all(self) -> None:
        """Deactivate all cells of sparse blocks in this subtree and zero their contents."""
        for child in self.children:
            child.deactivate_all()


class SNode(ParentNode):
    """A block of cells (kind `dense` and others), or the place of a field (`place`).

    `extents` maps each axis to the number of the node's instances along it, in the whole tree. The
    layout sets `cell_bytes` and `offset_bytes`, the offset in the parent's cell.
    """

    def __init__(
        self, kind: str, above: ParentNode, tree: FieldTree, cells: tuple[tuple[int, int], ...]
    ) -> None:
        self.kind, self.above, self.tree, self.cells = kind, above, tree, cells
        self.runtime = above.runtime
        self.children: list[SNode] = []
        extents = dict(above.extents)
        for axis, n in cells:
            extents[axis] = extents.get(axis, 1) * n
            if extents[axis] > MOST_CELLS:
                raise ArgumentError(f"an axis of {extents[axis]} cells is too long")
        self.extents = dict(sorted(extents.items()))
        self.origin: tuple[int, ...] = ()
        self.word: Scalar | None = None  # word type, for blocks of packed words
        self.starts: tuple[int, ...] = (0,)  # first bit of each component in the word
        self.number: Any = None  # the packed number type, if any
        self.content: ElementLayout | None = None
        self.offset_bytes = self.cell_bytes = 0
        self._field: Any = lambda: None
        self._activity: Any = None

    def adopt(self, kind: str, cells: tuple[tuple[int, int], ...] = ()) -> SNode:
        if self.kind == "place":
            raise ArgumentError("nothing goes under the place of a field: use its parent()")
        if self.kind in IN_WORDS and kind != "place":
            raise ArgumentError(f"there are no blocks in the words of a {self.kind} block")
        self.tree.check_open()
        child = SNode(kind, self, self.tree, cells)
        self.children.append(child)
        return child

    def hold(self, field: Placeable, origin: tuple[int, ...]) -> None:
        """Make this node the place of a field, whose first indices are `origin`. Raises
        ArgumentError if an axis ends beyond 32-bit integers."""
        for first, n in zip(origin, self.shape):
            if first + n - 1 > MOST_CELLS:
                raise ArgumentError(
                    f"an axis of {n} cells from {first} on ends beyond the integers of 32 bits"
                )
        self._field, self.content, self.origin = weakref.ref(field), field.content, origin
        field.put(self)

    @property
    def field(self) -> Placeable | None:
        """The field at this place; None for blocks, and if it was garbage-collected."""
        return self._field()  # type: ignore[no-any-return]

    def place_companion(self, kind: str) -> None:
        """Place the missing gradient or dual of the field at this place, if any, beside it."""
        field = self.field
        companion = field.lacking(kind) if field is not None else None
        if companion is not None:
            self.above.place(companion, offset=self.origin or None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of the node's instances along each axis, in the whole tree."""
        return tuple(self.extents.values())

    @property
    def sparse_path(self) -> tuple[SNode, ...]:
        """The sparse blocks from the root down to this node, inclusive."""
        above = self.above.sparse_path if isinstance(self.above, SNode) else ()
        return (*above, self) if self.kind in SPARSE else above

    @property
    def activity(self) -> Any:
        """The `BlockActivity` of a sparse block, created on first use. That allocates the tree's
        memory."""
        if self._activity is None:
            self.tree.lay_out()
            if self._activity is None:  # `lay_out` makes that of a pool
                self._activity = ActivityHook.make(self)
        return self._activity

    def forget(self) -> None:
        """Free the activity when the tree is destroyed."""
        activity, self._activity = self._activity, None
        if activity is not None:
            activity.destroy()

    @property
    def way(self) -> str:
        """String of the blocks from the root down to this node, with their cells."""
        above = f"{self.above.way} " if isinstance(self.above, SNode) else ""
        return f"{above}{self.kind}{self.cells}"

    @property
    def outline(self) -> str:
        """String of the subtree with all properties on which its memory layout depends."""
        inner = " ".join([child.outline for child in self.children])
        bits = "" if self.number is None else f" {self.starts} {self.number.text()}"
        return f"{self.kind}{self.cells} {self.origin} {self.content}{bits} {self.word} [{inner}]"

    @property
    def spot(self) -> tuple[SNode, tuple[int, ...]]:
        """Key of the cells that contain the node's elements.

        Equal for nodes of which elements with equal indices are in the same cell.
        """
        is_place = self.kind == "place" and isinstance(self.above, SNode)
        return (self.above if is_place else self, self.origin)  # type: ignore[return-value]

    def reserve(self, n: int) -> None:
        """Make room for `n` active cells at once. No effect for blocks with memory for all cells.
        Raises KernelRuntimeError if `n` exceeds the limits, such as `ti.init(device_memory_GB=)`.
        """
        n = operator.index(n)
        self.tree.lay_out()
        if self.tree.pool is not None:
            self.tree.pool.reserve(n)

    @property
    def levels(self) -> tuple[Any, ...]:
        """Maps from its indices to the cells of `sparse_path`: one `LevelMap` each."""
        found: tuple[Any, ...] = ActivityHook.levels(self)
        return found

    def show_activity(self) -> ActivityPicture:
        """The active cells of this block and of the sparse blocks around it, as a text when
        printed. Its `plot()` draws them by matplotlib. Raises ArgumentError if there are none."""
        found: ActivityPicture = ActivityHook.picture(self)
        return found

    def deactivate_all(self) -> None:
        if not self.tree.is_laid_out:  # nothing was written
            self.tree.check_alive()
        elif self.kind in SPARSE:
            self.activity.clear()
        else:
            super().deactivate_all()

    def __vkchi_space__(self) -> tuple[tuple[int, int], ...]:
        """First index and end of each axis, for a loop over the node."""
        origin = self.origin or (0,) * len(self.extents)
        return tuple((k, k + n) for k, n in zip(origin, self.shape, strict=True))

    def parent(self, n: int = 1) -> Any:
        """The node n levels above: a root such as `ti.root` at the top, None above that."""
        node: Any = self
        for _ in range(n):
            node = node.above if isinstance(node, SNode) else None
        return node.shown if isinstance(node, RootNode) else node

    def __repr__(self) -> str:
        return f"<ti.SNode of type {self.kind}>"

    def __str__(self) -> str:
        return f"{self.parent()} => {self.kind} {list(self.shape)}"

    # --- Taichi's private names ------------------------------------------------------------------

    @property
    def _snode(self) -> SNode:
        return self

    @property
    def _dtype(self) -> Any:
        return getattr(self.field, "dtype", None)

    @property
    def _name(self) -> str:
        return str(getattr(self.field, "name", ""))

    @property
    def _cell_size_bytes(self) -> int:
        self.tree.lay_out()
        return self.cell_bytes

    @property
    def _offset_bytes_in_parent_cell(self) -> int:
        self.tree.lay_out()
        return self.offset_bytes

    def _get_children(self) -> list[SNode]:
        return list(self.children)

    def _path_from_root(self) -> list[Any]:
        above = self.parent()
        return [*(above._path_from_root() if isinstance(above, SNode) else [above]), self]


class RootNode(ParentNode):
    """The root of trees. `trees` are those without memory. `is_ready`: first use may allocate it.
    `can_destroy`: the trees may be destroyed before the runtime. `shown`: the object that users see
    as this root."""

    kind = "root"

    def __init__(
        self, runtime: Runtime, shown: Any, *, is_ready: bool, can_destroy: bool = False
    ) -> None:
        self.runtime, self.shown, self.is_ready = runtime, shown, is_ready
        self.can_destroy = can_destroy
        self.extents = {}
        self.trees: list[FieldTree] = []

    @property
    def children(self) -> list[SNode]:  # type: ignore[override]
        """Top-level nodes whose trees have no memory yet."""
        return [tree.top for tree in self.trees]

    def adopt(self, kind: str, cells: tuple[tuple[int, int], ...] = ()) -> SNode:
        require_home("the tree", self.runtime, current_runtime())
        tree = FieldTree(self)
        tree.top = SNode(kind, self, tree, cells)
        self.trees.append(tree)
        return tree.top


def no_buffer() -> None:
    pass


class FieldTree:
    """A top-level node with its descendants. Its memory is allocated on first use, or by its
    builder's `finalize`."""

    top: SNode

    def __init__(self, root: RootNode) -> None:
        self.root = root
        self.is_laid_out = self.is_destroyed = False
        self.memory: Callable[[], Buffer | None] = no_buffer  # shared by the fields
        self.pool: Any = None  # the `pools.Pool` of the top block, if it has one

    def check_open(self) -> None:
        """Raise KernelRuntimeError if nodes can no longer be added: the tree has memory or was
        destroyed, or its device is closed by `ti.init`. Raises DeviceError if it is closed."""
        self.check_alive()
        device = self.root.runtime.device
        if device.closed:
            if not device.is_reset:
                device.require_open()
            raise KernelRuntimeError("this block was made before ti.init: make it again")
        if self.is_laid_out or self.memory() is not None:
            raise KernelRuntimeError(
                "this block was laid out when a field in it was first used, and cannot grow: place "
                "all its fields before, or begin a new one with ti.root.dense(...)"
            )

    def check_alive(self) -> None:
        """Raise KernelRuntimeError if the tree was destroyed."""
        if self.is_destroyed:
            raise KernelRuntimeError(
                "this field was destroyed with the tree it was placed in: make a new one"
            )

    def places(self) -> list[SNode]:
        """The field places in memory order."""
        return [self.top] if self.top.kind == "place" else list(self.top.places())

    def lay_out(self) -> None:
        """Allocate zeroed memory for all fields, unless done already. Places requested gradients
        and duals first.

        Raises KernelRuntimeError before the builder's `finalize` and after `destroy`, DeviceError
        if memory is exhausted.
        """
        self.check_alive()
        if self.is_laid_out:
            return
        if not self.root.is_ready:
            raise KernelRuntimeError(
                "this field was placed by a ti.FieldsBuilder that is not finalized: call its "
                "finalize() before using the field"
            )
        with restoring(self.root.runtime.lock), self.root.runtime.lock:
            if not self.is_laid_out:
                self._place_needed()
                self._fill()
                self.is_laid_out = True
                if self in self.root.trees:
                    self.root.trees.remove(self)

    def _fill(self) -> None:
        from vkchi.fields.trees.tree_layout import fill_tree  # slow to import

        try:
            fill_tree(self)
        except DeviceError as e:
            if not any(node.sparse_path for node in self.places()):
                raise
            raise DeviceError(
                f"{e}. A sparse block has memory for all of its cells, active or not: make fewer"
            ) from None

    def _place_needed(self) -> None:
        """Place gradients and duals that fields request (`needs`), if missing, each beside its
        field."""
        for node in self.places():
            field = node.field
            for kind in field.needs if field is not None else ():
                node.place_companion(kind)

    def destroy(self) -> None:
        """Free the memory and the activity of sparse blocks. The fields become unusable."""
        self.is_destroyed = True
        for node in self.places():
            field: Any = node.field
            if field is not None:
                field.release_memory()
            for block in node.sparse_path:
                block.forget()
