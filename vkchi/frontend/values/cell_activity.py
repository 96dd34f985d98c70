"""Activity of sparse blocks in kernels: writes activate cells, loops skip inactive cells.

Activity is an array of numbers per block (`fields.trees.block_activity`). The functions here that
access the numbers are kernel code, which is inlined.

    x[i] = v            # active[i // 8] = 1; x[i] = v
    for i in x: ...     # for i in range(n): if active[i // 8] != 0: ...

Some loops iterate over the cells that were active at their start. They test a copy of the numbers
(`chosen`), made before the loop. These are top-level serial loops, and parallel loops that may
change the activity that they test. Other loops test the numbers themselves. An inner loop therefore
also iterates over later cells that it activates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vkchi.errors import KernelIndexError
from vkchi.frontend.control.flow import lower_branch, lower_unless
from vkchi.frontend.control.spaces import LoopSpace
from vkchi.frontend.state.scope import VARIABLE, Var
from vkchi.frontend.values.kinds import Kind, all_but
from vkchi.frontend.values.pool_access import activate_pooled, check_usable
from vkchi.frontend.values.references import ArrayRef, Context, MemoryTarget
from vkchi.ir.builder import Builder
from vkchi.ir.core import Op, Region, Value
from vkchi.ir.rebuild import Rebuilder
from vkchi.lang.atomic_functions import atomic_add, atomic_max, atomic_min
from vkchi.lang.compile_time import static
from vkchi.lang.ndrange import grouped, ndrange
from vkchi.target.pool_layout import FIRST
from vkchi.types import i32

if TYPE_CHECKING:
    from vkchi.frontend.context import Lowering


class SparseTarget(MemoryTarget):
    """An element in sparse blocks, or a component of one. A write activates its cells."""

    __slots__ = ("indices", "node")

    def __init__(self, ptr: Value, node: Any, indices: tuple[Value, ...]) -> None:
        super().__init__(ptr)
        self.node, self.indices = node, indices

    def part(self, ptr: Value) -> MemoryTarget:
        return SparseTarget(ptr, self.node, self.indices)

    def store(self, cx: Context, v: Value) -> None:
        store = super().store
        self._write(cx, lambda: store(cx, v), lambda: None)

    def atomic(self, cx: Context, kind: str, *values: Value) -> Any:
        atomic = super().atomic
        return self._write(cx, lambda: atomic(cx, kind, *values), lambda: self.load(cx))

    def changed(self, cx: Context, update: Callable[[Value], Value]) -> Value:
        changed, load = super().changed, super().load
        found: Value = self._write(cx, lambda: changed(cx, update), lambda: load(cx))
        return found

    def _write(self, cx: Any, write: Callable[[], Any], skip: Callable[[], Any]) -> Any:
        """Activate the element's cells, emit `write` and return its result.

        If a cell of a block of `ti.no_activate` is inactive, `skip` takes the place of both.
        """
        passive = [block in cx.cells.passive for block in self.node.sparse_path]
        if not any(passive) or cx.cells.is_known(cx.act, self.node, self.indices):
            activate_cells(cx, self.node, self.indices)
            return write()
        levels = list(zip(self.node.levels, self.node.sparse_path, passive, strict=True))
        innermost = [level for level, _, is_passive in levels if is_passive][-1]
        indices = list(self.indices)
        with cx.cells.own():
            number = cx.call(number_at, (innermost, indices), {})
            is_there = cx.call(is_in, (number, innermost, indices), {})

        def written() -> Any:
            rest = [(level, block) for level, block, is_passive in levels if not is_passive]
            cx.cells.marked.update(block for _, block in rest)
            with cx.cells.own():
                cx.call(mark_levels, ([level for level, _ in rest], indices), {})
            return write()

        return lower_branch(cx, is_there, written, skip)


def node_of(x: Any) -> Any:
    """Return the field-tree node of an array or block in a kernel; None for other values."""
    if isinstance(x, ArrayRef):
        return getattr(x.source, "node", None)
    return x if hasattr(type(x), "sparse_path") else None


def sparse_node(cx: Lowering, array: ArrayRef) -> Any:
    """Return the node of an array if writes to it must activate cells, else None."""
    node = node_of(array)
    return node if node is not None and node.sparse_path and not cx.cells.is_own else None


# --- writing -------------------------------------------------------------------------------------


def activate_cells(cx: Any, node: Any, indices: Sequence[Value]) -> None:
    """Emit the activation of the cells that contain a node's element, unless they are known to be
    active."""
    if cx.cells.is_known(cx.act, node, indices):
        return
    if node.tree.pool is not None:
        activate_pooled(cx, node, indices)
        return
    cx.cells.marked.update(node.sparse_path)
    with cx.cells.own():
        cx.call(mark_levels, (node.levels, list(indices)), {})


def mark_levels(levels: Any, index: Any) -> None:
    """Activate the cell of each level that contains an index; a list grows to contain it."""
    for level in static(levels):
        cell = [(index[axis.at] - axis.first) // axis.n for axis in static(level.axes)]
        if static(level.place is None):
            level.numbers[cell] = 1
        else:
            place = (index[level.place.at] - level.place.first) // level.place.n
            atomic_max(level.numbers[cell], place % level.cells + 1)


def number_at(level: Any, index: Any) -> Any:
    """Return the activity number of the cell of a level that contains an index."""
    return level.numbers[[(index[axis.at] - axis.first) // axis.n for axis in static(level.axes)]]


def is_in(number: Any, level: Any, index: Any) -> Any:
    """True if an activity number marks the cell, or the list's item, at an index as active."""
    if static(level.numbers.pool is not None):
        return number >= FIRST
    if static(level.place is None):
        return number != 0
    place = (index[level.place.at] - level.place.first) // level.place.n
    return place % level.cells < number


def clear_cell(activity: Any, cell: Any) -> None:
    """Deactivate a cell of a block, and zero its elements and the activity of blocks in it."""
    activity.numbers[cell] = 0
    for part in static(activity.parts):
        for K in grouped(ndrange(*static(part.extents))):
            array = part.array
            array[
                [
                    axis.first + K[k] + (cell[axis.at] * axis.n if static(axis.at >= 0) else 0)
                    for k, axis in static(enumerate(part.axes))
                ]
            ] = 0


# --- lists ---------------------------------------------------------------------------------------


class ListRef(MemoryTarget):
    """A list of a field, or of an array of structs, in a dynamic block.

    All indices of its `node` are given except the one along the list. It has methods and can be
    passed as an argument. Reading or assigning it is an error: an index is missing.
    """

    __slots__ = ("array", "block", "indices", "node")

    def __init__(self, array: Any, node: Any, indices: Sequence[Any]) -> None:
        self.array, self.node, self.block, self.indices = array, node, node.above, tuple(indices)
        self.type = i32

    @property
    def space(self) -> str:
        """The address space "global": other invocations write to the list too."""
        return "global"

    def load(self, cx: Context) -> Op:
        raise self._lacks_index(cx)

    def store(self, cx: Context, v: Value) -> None:
        raise self._lacks_index(cx)

    def atomic(self, cx: Context, kind: str, *values: Value) -> Op:
        raise self._lacks_index(cx)

    def _lacks_index(self, cx: Context) -> Exception:
        given, axes = len(self.indices), len(self.node.shape)
        return cx.fail(
            f"this is a list of a dynamic block: its items have {axes} "
            f"{'index' if axes == 1 else 'indices'}, and {given or 'none'} "
            f"{'are' if given > 1 else 'is'} given",
            kind=KernelIndexError,
            help="give the place in the list too; lists have append(v), length(), deactivate()",
        )


def list_of(first: ArrayRef, whole: Any, indices: Sequence[Any]) -> ListRef | None:
    """Return the list of a dynamic block at indices that are one too few.

    None for other arrays, and for another number of indices. For an array of structs, `first` is
    its first member and `whole` the array.
    """
    node = node_of(first)
    is_list = node is not None and getattr(node.above, "kind", "") == "dynamic"
    return (
        ListRef(whole, node, indices) if is_list and len(indices) + 1 == len(node.shape) else None
    )


# Method of a list -> handler(cx, list, *args); `activity_calls` fills it.
LIST_METHODS: dict[str, Callable[..., Any]] = {}


def length_of(activity: Any, cell: Any) -> Any:
    return activity.numbers[cell]


def counted_from(index: Any, origin: Any) -> Any:
    return [index[k] - first for k, first in static(enumerate(origin))]


def append_place(numbers: Any, cell: Any, cells: Any) -> Any:
    """Reserve the next position of the list in a cell and return it; `cells` if it is full."""
    place = atomic_add(numbers[cell], 1)
    if place >= cells:
        atomic_min(numbers[cell], cells)
    return min(place, cells)


def item_index(axes: Any, cell: Any, place: Any) -> Any:
    """Return the index of a list item in a block; `axes` are those of BlockActivity."""
    return [(place if static(at < 0) else cell[at]) for at in static(axes)]


def put_item(array: Any, index: Any, value: Any, place: Any, cells: Any) -> None:
    """Store a value at a list item's index, counted from 0, if there is room."""
    first = static(array.__vkchi_origin__)
    if place < cells:
        array[[index[k] + start for k, start in static(enumerate(first))]] = value


# --- loops ---------------------------------------------------------------------------------------


def copy_numbers(target: Any, numbers: Any) -> None:
    for K in grouped(numbers):
        target[K] = numbers[K]


class ActivityTest:
    """The activity test of a loop over a node, evaluated in each iteration."""

    def __init__(self, node: Any) -> None:
        self.node, self.block, self.level = node, node.sparse_path[-1], node.levels[-1]
        self.asked: Value | None = None  # the address of the tested number

    def ask_copy(self, cx: Lowering) -> None:
        """Emit a copy of the activity numbers, for a top-level loop that is not parallel; test the
        copy."""
        self.level = self.level._replace(numbers=self._copied(cx))

    def _copied(self, cx: Lowering) -> Any:
        activity = self.block.activity
        with cx.cells.own():
            cx.call(copy_numbers, (activity.chosen, activity.numbers), {})
        return activity.chosen

    def lower(self, cx: Lowering, indices: Sequence[Value], body: Callable[[], Any]) -> None:
        """Lower an iteration's body under the test that its cell is active."""
        number, inside = self.test(cx, indices)
        (self.asked,) = number.args
        skips = Var("", cx.b.emit("not", inside), VARIABLE, len(cx.frames))
        with cx.cells.at(cx.act, self.node, indices):
            lower_unless(cx, [skips], body)

    def test(self, cx: Lowering, indices: Sequence[Value]) -> tuple[Any, Any]:
        """Return the number of a cell, and a u1: the cell is active."""
        with cx.cells.own():
            number = cx.call(number_at, (self.level, list(indices)), {})
            return number, cx.call(is_in, (number, self.level, list(indices)), {})

    def freeze(self, cx: Lowering, body: Region) -> Region:
        """Return the body of a parallel loop with its final activity test.

        If the loop may change the tested numbers, they are copied before it, and the body tests the
        copy. The loop may iterate over a list of blocks around its own (`opt.loops.listing`).
        """
        for level in self.node.levels[:-1]:
            cx.array_of(level.numbers)
        if self.block not in cx.cells.marked:
            return body
        chosen = cx.array_of(self._copied(cx)).value

        def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
            return [b.emit("elem", chosen, *args[1:])] if op is self.asked else None

        return Rebuilder(visit).region(body)


def guard_of(cx: Lowering, x: Any) -> ActivityTest | None:
    """Return the activity test of a loop over an array or block; None if all cells always exist."""
    node = node_of(x)
    if node is None or not node.sparse_path:
        return None
    check_usable(cx, node)
    return ActivityTest(node)


class BlockKind(Kind, of=["sparse_path"]):
    noun = "a block of a field tree"
    helps = all_but("loop", help="use a field in it: x[i], or loop: for i in x")

    def space(self, cx: Any, x: Any) -> LoopSpace:
        return LoopSpace(x.__vkchi_space__(), "array", guard=guard_of(cx, x))
