"""Activity of sparse blocks: which cells are active, and the map from field indices to cells.

Each sparse block has a `BlockActivity` with an `i32` field `numbers`: 1 for an active cell, else
0. For a dynamic block it has the list length per cell of the parent block.

Guarantees:
- The block allocates memory for all cells, so reading an inactive cell is safe and gives zero.
- The ancestors of an active cell are active, so a lookup needs the flags of one block only.

    block = ti.root.pointer(ti.i, 4); block.dense(ti.i, 8).place(x)
    levels_of(x.snode)[0].axes          # (AxisMap(at=0, first=0, n=8),)

See also: `frontend.values.cell_activity` lowers the same operations for kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vkchi.fields.constructors import give_place
from vkchi.fields.field import ScalarField
from vkchi.fields.storage import Storage
from vkchi.fields.trees.snode import SPARSE, SNode
from vkchi.tuples import NamedTuple
from vkchi.types import i32
from vkchi.types.lazy_numpy import np


class AxisMap(NamedTuple):
    """Map from an axis of an array to a coarser axis: `(index[at] - first) // n`. A cell spans `n`
    elements of the array."""

    at: int
    first: int
    n: int

    def cell(self, index: Sequence[int]) -> int:
        """The cell's index along this axis."""
        return (index[self.at] - self.first) // self.n


class LevelMap(NamedTuple):
    """Map from an array's index to its cell of one sparse block above.

    `axes` computes the cell's index, and `numbers[cell]` is its flag. For a dynamic block
    `numbers[cell]` is the length of a list of at most `cells` items; the item's position is `place`
    modulo `cells`.
    """

    numbers: Any
    axes: tuple[AxisMap, ...]
    place: AxisMap | None = None
    cells: int = 0


class CellPart(NamedTuple):
    """The part of an array in one cell of a block. Along each axis it has `n` elements, starting at
    `first + n * index[at]`, where `index` is the cell's. `at` is -1 if the cell has no such axis;
    then the part starts at `first`."""

    array: Any
    axes: tuple[AxisMap, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """Element count along each axis."""
        return tuple([axis.n for axis in self.axes])


class BlockActivity:
    """Activity of a sparse block. `numbers`, a field of the shape `extents`, has a flag per cell;
    for a dynamic block (`is_list`), a list length per parent cell."""

    def __init__(self, block: SNode) -> None:
        self.block, self.is_list = block, block.kind == "dynamic"
        self.extents = block.above.extents if self.is_list else block.extents
        self.numbers = self._make("active")
        self.numbers.activity = self
        self._chosen: ScalarField | None = None

    def _make(self, what: str) -> ScalarField:
        runtime = self.block.runtime
        made = ScalarField(runtime, i32, f"{self.block.kind}.{what}")
        give_place(runtime, made, tuple(self.extents.values()), None, None)
        return made

    @property
    def chosen(self) -> ScalarField:
        """A second field like `numbers`, created on first use. Some loops iterate over the cells
        that were active at their start; they copy `numbers` to it."""
        if self._chosen is None:
            self._chosen = self._make("chosen")
        return self._chosen

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The arrays that kernels may access for the activity of this block."""
        return (self.numbers, self.chosen)

    @property
    def axes(self) -> tuple[int, ...]:
        """For each axis of a dynamic block: the axis of the list's own index that it equals, or
        -1 for the position within the list."""
        at = {axis: k for k, axis in enumerate(self.extents)}
        return tuple([at.get(axis, -1) for axis in self.block.extents])

    @property
    def room(self) -> int:
        """The places of a list of a dynamic block; 0 for other blocks."""
        return self.block.cells[0][1] if self.is_list else 0

    @property
    def around(self) -> tuple[tuple[Any, tuple[tuple[int, int], ...]], ...]:
        """For each sparse block around this one but dynamic ones, the nearest first: its `numbers`,
        and for each axis of these the own axis, and the own cells per outer cell."""
        own = list(self.extents)
        above = [block.activity for block in self.block.sparse_path[-2::-1]]
        return tuple([
            (a.numbers, tuple([(own.index(k), self.extents[k] // n) for k, n in a.extents.items()]))
            for a in above if not a.is_list
        ])  # fmt: skip

    @property
    def inner(self) -> list[SNode]:
        """The sparse blocks inside a cell, at any depth."""
        return sparse_blocks(self.block)

    @property
    def parts(self) -> tuple[CellPart, ...]:
        """Memory of one cell: the parts of its fields, and those of the `numbers` of sparse blocks
        inside."""
        places = [node for node in self.block.places() if node.field is not None]
        found = [part_of(n.field, n.extents, self.extents, n.origin) for n in places]
        inner = [block.activity for block in self.inner]
        return (*found, *[part_of(a.numbers, a.extents, self.extents, ()) for a in inner])

    def clear(self) -> None:
        """Deactivate all cells. Set their fields and the activity of sparse blocks inside to 0."""
        Storage.fill(self.numbers, 0)
        for part in self.parts:
            Storage.fill(part.array, 0)

    def destroy(self) -> None:
        """Free the memory of `numbers`, of its active list and of `chosen`."""
        cells = vars(self.numbers).pop("active_list", None)
        if cells is not None:
            cells.free()
        for made in (self.numbers, self._chosen):
            if made is not None and made.tree is not None:
                made.tree.destroy()


def sparse_blocks(node: Any) -> list[SNode]:
    """All sparse blocks below a node, nested ones included."""
    found: list[SNode] = []
    for child in node.children:
        if child.kind in SPARSE:
            found.append(child)
        found += sparse_blocks(child)
    return found


def part_of(
    array: Any, extents: dict[int, int], cell: dict[int, int], origin: tuple[int, ...]
) -> CellPart:
    """The part of an array that one cell of a block contains. `extents` and `cell` map axes to
    sizes: of the array, and of the block."""
    at = {axis: k for k, axis in enumerate(cell)}
    first = origin or (0,) * len(extents)
    return CellPart(array, tuple(
        AxisMap(at.get(axis, -1), start, n // cell.get(axis, 1))
        for (axis, n), start in zip(extents.items(), first, strict=True)
    ))  # fmt: skip


def levels_of(node: SNode) -> tuple[LevelMap, ...]:
    """Maps from a node's index to cells of its sparse ancestors, the outermost first."""
    return tuple([level_of(block, node) for block in node.sparse_path])


def level_of(block: SNode, node: SNode) -> LevelMap:
    """Map from a node's index to the cell of one sparse block above it, or of the node itself."""
    activity: BlockActivity = block.activity
    axes = axes_between(node, activity.extents)
    if not activity.is_list:
        return LevelMap(activity.numbers, axes)
    ((axis, cells),) = block.cells
    (place,) = axes_between(node, {axis: block.extents[axis]})
    return LevelMap(activity.numbers, axes, place, cells)


def axes_between(node: SNode, extents: dict[int, int]) -> tuple[AxisMap, ...]:
    """Maps from a node's axes to the coarser axes of an ancestor. `extents` maps these to their
    sizes."""
    places = list(node.extents)
    first = node.origin or (0,) * len(places)
    return tuple(
        AxisMap(places.index(axis), first[places.index(axis)], node.extents[axis] // n)
        for axis, n in extents.items()
    )


def activate_cells_of(node: SNode, index: Sequence[int]) -> None:
    """Activate the cells that contain a node's element at `index`; lists are extended to it."""
    for level in levels_of(node):
        cell = tuple([axis.cell(index) for axis in level.axes])
        if level.place is None:
            level.numbers[cell] = 1
        else:
            length = level.place.cell(index) % level.cells + 1
            if level.numbers[cell] >= length:
                continue
            level.numbers[cell] = length
        note_change(level.numbers)


def active_elements(node: SNode) -> np.ndarray[Any, Any]:
    """Boolean mask of a node's elements in active cells, of the node's shape."""
    level = levels_of(node)[-1]
    ways = list(level.axes)
    numbers = level.numbers.to_numpy()
    at = [np.arange(node.shape[way.at]) // way.n for way in ways]
    found = numbers[np.ix_(*at)] if at else numbers
    rest = [k for k in range(len(node.shape)) if k not in [way.at for way in ways]]
    found = np.expand_dims(found, tuple(rest))
    if level.place is None:
        return np.broadcast_to(found != 0, node.shape)
    places = np.arange(node.shape[level.place.at]) // level.place.n % level.cells
    shape = [1] * len(node.shape)
    shape[level.place.at] = -1
    return np.broadcast_to(places.reshape(shape) < found, node.shape)


def activate_masked(node: SNode, where: np.ndarray[Any, Any]) -> None:
    """Activate the cells that contain an element selected by the boolean mask `where`; lists are
    extended to it."""
    found = np.nonzero(where)
    for level in levels_of(node):
        numbers = level.numbers.to_numpy()
        cells = tuple([found[way.at] // way.n for way in level.axes])
        if level.place is None:
            numbers[cells] = 1
        else:
            lengths = found[level.place.at] // level.place.n % level.cells + 1
            first = np.zeros_like(lengths)  # of one axis more: at the root, there is one list
            np.maximum.at(numbers[None], (first, *cells), lengths.astype(np.int32))
        level.numbers.from_numpy(numbers)
        note_change(level.numbers)


def note_change(numbers: Any) -> None:
    """Mark the active list as out of date after a write from Python, since another thread may have
    rebuilt it between the announcement and the write."""
    cells = vars(numbers).get("active_list")
    if cells is not None:
        cells.save()
