"""Pictures of the active cells of sparse blocks: `x.show_activity()`.

A picture has a line per sparse block around a field, and the cells of the innermost one: as text,
or drawn by matplotlib.

    pointer block of 16 x 16 cells: 2 of 256 active
    +----------------+
    |#...............|
    |.....#..........|
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentError, MissingPackageError
from vkchi.fields.trees.snode import LETTERS
from vkchi.interrupts.imports import import_uninterrupted
from vkchi.interrupts.local import local
from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vkchi.fields.trees.snode import SNode

MOST_COLUMNS, MOST_ROWS = 64, 24  # of a text
SIGNS = ".o#"  # none, some and all cells of a character are active


class CellCount(NamedTuple):
    """Number of active cells of a block. In a dynamic block, cells are places of lists."""

    kind: str
    shape: tuple[int, ...]
    active: int


class ActivityPicture:
    """Active cells of the sparse blocks around a field or in a tree. As a string: a text.

    `counts` has the number of active cells per block, the outermost first. `shares` is an array of
    the innermost block's cells: 1 for an active cell. In a dynamic block, its last axis are the
    places of the lists; of long lists, the parts of ranges of places that are in use.
    """

    def __init__(
        self, counts: tuple[CellCount, ...], shares: NDArray[Any], axes: tuple[int, ...]
    ) -> None:
        self.counts, self.shares, self.axes = counts, shares, axes

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [line_of(count) for count in self.counts]
        plane = self.plane()
        rows = reduced(plane, MOST_ROWS, MOST_COLUMNS)
        edge = f"+{'-' * rows.shape[1]}+"
        signs = np.where(rows == 0, SIGNS[0], np.where(rows == 1, SIGNS[2], SIGNS[1]))
        lines += [edge, *[f"|{''.join(row)}|" for row in signs], edge]
        return "\n".join([*lines, self._legend()])

    def _legend(self) -> str:
        names = [f"axis {LETTERS[axis]}" for axis in self.axes[:2]]
        words = [f"rows: {names[0]}" for _ in names[1:]] + [f"columns: {names[-1]}"]
        if len(self.axes) > 2:
            words.append("other axes: averages")
        words.append(f"{SIGNS[0]} inactive, {SIGNS[1]} partly active, {SIGNS[2]} active")
        return "; ".join(words)

    def plane(self) -> NDArray[Any]:
        """`shares` along the first two axes; averages along the others."""
        shares = self.shares
        if shares.ndim < 2:
            return shares.reshape(1, -1)
        return shares.mean(tuple(range(2, shares.ndim))) if shares.ndim > 2 else shares

    def plot(self, ax: Any = None) -> Any:
        """Draw the picture by matplotlib into the Axes `ax`, by default of a new figure. Return the
        Axes. Raises MissingPackageError without matplotlib."""
        if ax is None:
            try:
                ax = import_uninterrupted("matplotlib.pyplot").subplots()[1]
            except local(ImportError) as e:
                raise MissingPackageError(
                    "show_activity().plot() needs matplotlib: pip install matplotlib, or print "
                    "show_activity()"
                ) from e
        ax.imshow(self.plane(), cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
        kind, shape, active = self.counts[-1]
        ax.set_title(f"{kind} {shape}: {active:,} active")
        names = [f"axis {LETTERS[axis]}" for axis in self.axes[:2]]
        ax.set_xlabel(names[-1])
        ax.set_ylabel(names[0] if len(names) > 1 else "")
        return ax


def line_of(count: CellCount) -> str:
    kind, shape, active = count
    cells = "places" if kind == "dynamic" else "cells"
    return f"{kind} block of {' x '.join(map(str, shape))} {cells}: {active:,} of " + (
        f"{math.prod(shape):,} active"
    )


def reduced(plane: NDArray[Any], most_rows: int, most_columns: int) -> NDArray[Any]:
    """Averages over rectangles of equal size, so that the plane has at most so many rows and
    columns; cells beyond the plane do not count."""
    by = [-(-n // most) for n, most in zip(plane.shape, (most_rows, most_columns), strict=True)]
    for axis, n in enumerate(by):
        starts = np.arange(0, plane.shape[axis], n)
        counts = np.diff([*starts, plane.shape[axis]])
        plane = np.add.reduceat(plane, starts, axis) / np.expand_dims(counts, 1 - axis)
    return plane


def picture_of(node: SNode) -> ActivityPicture:
    """The picture of the sparse blocks around a node, the node included. Raises ArgumentError if
    there are none."""
    if not node.sparse_path:
        raise ArgumentError(
            "show_activity() is for fields and blocks in sparse blocks: all cells of this are there"
        )
    counts, shares = [], np.zeros(())
    axes: tuple[int, ...] = ()
    for block in node.sparse_path:
        activity = block.activity
        numbers, axes = np.maximum(activity.numbers.contents(), 0), tuple(activity.extents)
        if activity.is_list:
            shares, axes = shares_of_lists(numbers, activity.room), (*axes, block.cells[0][0])
        else:
            numbers = shares = (numbers > 0).astype(np.float64)
        counts.append(CellCount(block.kind, block.shape, int(numbers.sum())))
    return ActivityPicture(tuple(counts), shares, axes)


def shares_of_lists(lengths: NDArray[Any], room: int) -> NDArray[Any]:
    """The parts in use of lists of these lengths, cut into at most MOST_COLUMNS ranges of places
    along a new last axis."""
    step = -(-room // MOST_COLUMNS)
    starts = np.arange(0, room, step)
    sizes = np.minimum(step, room - starts)
    found: NDArray[Any] = np.clip((lengths[..., None] - starts) / sizes, 0, 1)
    return found
