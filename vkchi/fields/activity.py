"""Which cells of sparse blocks are active, and how indices of fields lead to them.

Owns: `Activity`, a field of numbers beside each sparse block: 1 for a cell that is active, or, for
a dynamic block, how long the list in each cell above is; what marks and clears them from Python.
The block's own memory is there for all cells, so an inactive one can be read: it is zero, for what
is not zero was written, and writing marks. A cell that is active lies in cells that are, of all
blocks above: so a block's own numbers tell. Must not know: kernels (`frontend.activity` is
written for those, in these terms).

    block = ti.root.pointer(ti.i, 4); block.dense(ti.i, 8).place(x)
    levels_of(x.snode)          # (Level(numbers=<4 numbers>, axes=(Axis(at=0, first=0, n=8),)),)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vkchi.fields.field import ScalarField
from vkchi.fields.make import give_place
from vkchi.fields.snode import SPARSE, SNode
from vkchi.fields.storage import Storage
from vkchi.tuples import NamedTuple
from vkchi.types import i32
from vkchi.types.lazy_numpy import np


class Axis(NamedTuple):
    """How an axis of an array leads to one of a coarser: the index `at`, counted from `first`, and
    so many of them in one cell."""

    at: int
    first: int
    n: int

    def cell(self, index: Sequence[int]) -> int:
        """Where an index leads."""
        return (index[self.at] - self.first) // self.n


class Level(NamedTuple):
    """How an index of an array leads to its cell of a sparse block above: `numbers[cell]`, by the
    axes of that. `place`: in a dynamic block, how it leads to one of its `cells`."""

    numbers: Any
    axes: tuple[Axis, ...]
    place: Axis | None = None
    cells: int = 0


class Part(NamedTuple):
    """What of an array is in a cell of a block: `n` elements along each axis, from the cell's index
    `at` (-1: the cell has no such axis) times `n`, and `first`, on."""

    array: Any
    axes: tuple[Axis, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """How many elements there are along each axis."""
        return tuple([axis.n for axis in self.axes])


class Activity:
    """Which cells of a sparse block are active; `numbers` has the shape `extents`."""

    def __init__(self, block: SNode) -> None:
        self.block, self.is_list = block, block.kind == "dynamic"
        self.extents = block.above.extents if self.is_list else block.extents
        self.numbers = self._make("active")
        self._chosen: ScalarField | None = None

    def _make(self, what: str) -> ScalarField:
        runtime = self.block.runtime
        made = ScalarField(runtime, i32, f"{self.block.kind}.{what}")
        give_place(runtime, made, tuple(self.extents.values()), None, None)
        return made

    @property
    def chosen(self) -> ScalarField:
        """Numbers as they are when a loop begins whose iterations change them."""
        if self._chosen is None:
            self._chosen = self._make("chosen")
        return self._chosen

    @property
    def axes(self) -> tuple[int, ...]:
        """How the index of an item of a list is made of its place, and of the list's own index: by
        axis of the block, the axis of that (-1: the place)."""
        at = {axis: k for k, axis in enumerate(self.extents)}
        return tuple([at.get(axis, -1) for axis in self.block.extents])

    @property
    def inner(self) -> list[SNode]:
        """The sparse blocks in a cell."""
        return sparse_blocks(self.block)

    @property
    def parts(self) -> tuple[Part, ...]:
        """What a cell holds: parts of the fields in it, and of the numbers of blocks in it."""
        places = [node for node in self.block.places() if node.field is not None]
        found = [part_of(n.field, n.extents, self.extents, n.origin) for n in places]
        inner = [block.activity for block in self.inner]
        return (*found, *[part_of(a.numbers, a.extents, self.extents, ()) for a in inner])

    def clear(self) -> None:
        """Make all cells inactive, and zero what is in them."""
        Storage.fill(self.numbers, 0)
        for part in self.parts:
            Storage.fill(part.array, 0)

    def destroy(self) -> None:
        """Free the numbers."""
        for made in (self.numbers, self._chosen):
            if made is not None and made.tree is not None:
                made.tree.destroy()


def sparse_blocks(node: Any) -> list[SNode]:
    """The sparse blocks under a node."""
    found: list[SNode] = []
    for child in node.children:
        if child.kind in SPARSE:
            found.append(child)
        found += sparse_blocks(child)
    return found


def part_of(
    array: Any, extents: dict[int, int], cell: dict[int, int], origin: tuple[int, ...]
) -> Part:
    """What of an array of these extents, by axis, is in a cell of a block of those."""
    at = {axis: k for k, axis in enumerate(cell)}
    first = origin or (0,) * len(extents)
    return Part(array, tuple(
        Axis(at.get(axis, -1), start, n // cell.get(axis, 1))
        for (axis, n), start in zip(extents.items(), first, strict=True)
    ))  # fmt: skip


def levels_of(node: SNode) -> tuple[Level, ...]:
    """How indices of a node lead to the cells of sparse blocks from the root down to it."""
    return tuple([level_of(block, node) for block in node.sparse_path])


def level_of(block: SNode, node: SNode) -> Level:
    """How indices of a node lead to the cells of a sparse block above it, or of itself."""
    activity: Activity = block.activity
    axes = axes_between(node, activity.extents)
    if not activity.is_list:
        return Level(activity.numbers, axes)
    ((axis, cells),) = block.cells
    (place,) = axes_between(node, {axis: block.extents[axis]})
    return Level(activity.numbers, axes, place, cells)


def axes_between(node: SNode, extents: dict[int, int]) -> tuple[Axis, ...]:
    """How indices of a node lead to those of something above it of these extents, by axis."""
    places = list(node.extents)
    first = node.origin or (0,) * len(places)
    return tuple(
        Axis(places.index(axis), first[places.index(axis)], node.extents[axis] // n)
        for axis, n in extents.items()
    )


def mark(node: SNode, index: Sequence[int]) -> None:
    """Make the cells active that the element of a node at an index lies in, from Python."""
    for level in levels_of(node):
        cell = tuple([axis.cell(index) for axis in level.axes])
        if level.place is None:
            level.numbers[cell] = 1
            continue
        length = level.place.cell(index) % level.cells + 1
        if level.numbers[cell] < length:
            level.numbers[cell] = length


def active_elements(node: SNode) -> np.ndarray[Any, Any]:
    """Which elements of a node are in active cells, as an array of the node's shape."""
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


def mark_all(node: SNode, where: np.ndarray[Any, Any]) -> None:
    """Make the cells active that elements of a node lie in, given as an array of its shape."""
    found = np.nonzero(where)
    for level in levels_of(node):
        numbers = level.numbers.to_numpy()
        cells = tuple([found[way.at] // way.n for way in level.axes])
        if level.place is None:
            numbers[cells] = 1
        else:
            lengths = found[level.place.at] // level.place.n % level.cells + 1
            np.maximum.at(numbers, cells, lengths.astype(np.int32))
        level.numbers.from_numpy(numbers)
