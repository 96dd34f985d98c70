"""Memory layout of a field tree: cells like C structs, blocks like C arrays of cells.

Nodes in a cell are stored in the order of their placement, each aligned to its widest scalar. The
size of a cell is a multiple of that alignment, so every stride is a multiple of the scalar's size.
Cells of a block are row-major in the order of its axes' letters. A field alone in a tree of one
block lies in memory like an array of its shape.

Each index is split into mixed-radix components, one per block with that axis, the outermost block
first. Adjacent components merge if there are no gaps between the cells.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any

from vkchi.device import Buffer
from vkchi.hooks import Hook
from vkchi.tuples import NamedTuple
from vkchi.types import Affine, AxisTerm, Layout

if TYPE_CHECKING:
    from vkchi.fields.trees.snode import FieldTree, SNode


class CellDigit(NamedTuple):
    """One mixed-radix component of an index: the number of cells, and the bytes from one to the
    next."""

    cells: int
    stride_bytes: int


class FieldPlacement(NamedTuple):
    """A place, the byte offset of its first element in the tree, and the layout from there."""

    node: SNode
    start_bytes: int
    layout: Layout


class PoolHook:
    """Hook for node pools: `make(tree, size_bytes)` gives one to a tree that needs it, with its
    fields, and returns True; otherwise False."""

    make = Hook("pool of a tree")


class BufferView(Buffer):
    """View of a part of a buffer, for one field. It shares the whole buffer's key, so accesses
    are ordered with it."""

    __slots__ = ("_start", "_whole")

    def __init__(self, whole: Buffer, start: int, size_bytes: int) -> None:
        self.device, self.key, self.size_bytes = whole.device, whole.key, size_bytes
        self.address = whole.address + start
        self._whole, self._start = whole, start
        self.view = None if whole.view is None else whole.view[start : start + size_bytes]

    def locate(self, offset: int, size_bytes: int) -> tuple[Any, int]:
        return self._whole.locate(self._start + offset, size_bytes)

    def read_into(self, offset: int, target: Any) -> None:
        self._whole.read_into(self._start + offset, target)

    def write(self, offset: int, data: Any) -> None:
        self._whole.write(self._start + offset, data)


def fill_tree(tree: FieldTree) -> None:
    """Lay out a tree, allocate its buffer and attach each field to its part.

    After an interrupt, a second call reuses the buffer, since fields attached by the first may be
    in use.
    """
    placements: list[FieldPlacement] = []
    size_bytes = lay_out(tree.top, placements)
    if tree.top.kind == "pointer" and PoolHook.make(tree, size_bytes):
        return
    for placement in placements:
        field: Any = placement.node.field
        if field is not None:
            field.arrange(placement.node.shape, placement.layout)
    if not placements:
        return
    spare_bytes = max(element_bytes(one.node) for one in placements)  # for out-of-range accesses
    whole = tree.memory()
    if whole is None:
        whole = tree.root.runtime.device.allocate(size_bytes + spare_bytes)
        tree.memory = weakref.ref(whole)  # freed with the last field that has a part
    for placement in placements:
        field = placement.node.field
        if field is not None and len(placements) == 1:
            field.attach(whole, is_own=True)
        elif field is not None:
            part = BufferView(whole, placement.start_bytes, field.size_bytes)
            field.attach(part, is_own=False)


def lay_out(top: SNode, placements: list[FieldPlacement]) -> int:
    """Append the placements of all field places below `top`; return the tree's size in bytes.

    Sets the sizes and offsets of the nodes.
    """
    size_bytes, _ = measure_node(top)
    _place(top, 0, {}, size_bytes, placements)
    return size_bytes * (first_content(placements).components if is_soa(placements) else 1)


def is_soa(placements: list[FieldPlacement]) -> bool:
    """True if the tree has a single place, stored as one copy of the tree per component."""
    return len(placements) == 1 and first_content(placements).is_soa


def first_content(placements: list[FieldPlacement]) -> Any:
    return placements[0].node.content


def element_bytes(node: SNode) -> int:
    assert node.content is not None
    return node.content.stored.size_bytes * node.content.components


def measure_node(node: SNode) -> tuple[int, int]:
    """Size and alignment of a node in bytes. Sets `offset_bytes` and `cell_bytes` of its
    subtree."""
    if node.content is not None:
        scalar_bytes = node.content.stored.size_bytes
        size_bytes = scalar_bytes if node.content.is_soa else element_bytes(node)
        return size_bytes, scalar_bytes
    if node.word is not None:
        node.cell_bytes = node.word.size_bytes
        return node.cell_bytes, node.cell_bytes
    at, widest = 0, 1
    for child in node.children:
        size, alignment = measure_node(child)
        child.offset_bytes = round_up_to(at, alignment)
        at = child.offset_bytes + size
        widest = max(widest, alignment)
    node.cell_bytes = round_up_to(at, widest)
    return node.cell_bytes * math.prod(n for _, n in node.cells), widest


def round_up_to(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _place(
    node: SNode,
    start: int,
    digits: dict[int, tuple[CellDigit, ...]],
    size: int,
    placements: list[FieldPlacement],
) -> None:
    if node.content is not None:
        placements.append(FieldPlacement(node, start, layout_of(node, digits, size)))
        return
    if node.word is not None:
        for child in node.children:
            placements.append(FieldPlacement(child, start, packed_layout_of(node, child, digits)))
        return
    digits, stride = dict(digits), node.cell_bytes
    for axis, n in reversed(node.cells):
        digits[axis] = (*digits.get(axis, ()), CellDigit(n, stride))
        stride *= n
    for child in node.children:
        _place(child, start + child.offset_bytes, digits, size, placements)


def layout_of(node: SNode, digits: dict[int, tuple[CellDigit, ...]], size_bytes: int) -> Affine:
    """The layout of a place in units of its scalars. `digits` are the index components by axis,
    `size_bytes` the size of the whole tree."""
    assert node.content is not None
    scalar_bytes, count = node.content.stored.size_bytes, node.content.components
    apart = size_bytes // scalar_bytes if node.content.is_soa else 1
    axes = tuple(terms_of(merge_digits(digits[axis]), scalar_bytes) for axis in sorted(digits))
    components = tuple(k * apart for k in range(count))
    last = components[-1]
    for axis_digits in digits.values():
        last += sum((d.cells - 1) * d.stride_bytes for d in axis_digits) // scalar_bytes
    return Affine(axes, components, last + 1, node.origin)


def nodes_layout(
    block: SNode, place: SNode, node_bytes: int, most: int
) -> tuple[tuple[int, ...], Affine]:  # fmt: skip
    """Shape and layout of the array `[node, index in the cell...]` of a field, if each cell of a
    block is in one of `most` nodes. The first element may begin behind the start of the node."""
    path: list[SNode] = []
    node = place
    while node is not block:
        path.insert(0, node)
        node = node.above  # type: ignore[assignment]
    start, digits = 0, dict[int, tuple[CellDigit, ...]]()
    for node in path:
        start += node.offset_bytes
        stride = node.cell_bytes
        for axis, n in reversed(node.cells):
            digits[axis] = (*digits.get(axis, ()), CellDigit(n, stride))
            stride *= n
    assert place.content is not None
    scalar_bytes = place.content.stored.size_bytes
    inner = layout_of(place, digits, 0)
    terms = dict(zip(sorted(digits), inner.axes, strict=True))
    first = (AxisTerm(1, 0, node_bytes // scalar_bytes),)
    components = tuple([start // scalar_bytes + k for k in inner.components])
    axes = (first, *[terms.get(axis, ()) for axis in block.extents])
    lengths = [math.prod([d.cells for d in digits.get(axis, ())]) for axis in block.extents]
    return (most, *lengths), Affine(axes, components, most * (node_bytes // scalar_bytes))


def packed_layout_of(word: SNode, node: SNode, digits: dict[int, tuple[CellDigit, ...]]) -> Layout:
    """The layout of bit-packed numbers in a word. In a `quant_array` block the index has further
    components, which count bits."""
    from vkchi.types.packed_numbers import Packed

    assert word.word is not None
    number: Any = node.number
    inner, bits = {}, number.bits
    for axis, n in reversed(word.cells):
        outer = digits.get(axis, ())
        inner[axis] = (AxisTerm(1, n if outer else 0, bits),)
        digits = digits | {axis: (*outer, CellDigit(n, 0))}
        bits *= n
    axes, last = [], 0
    for axis in sorted(digits):
        terms = terms_of(merge_digits(digits[axis]), word.word.size_bytes)
        axes.append(tuple([term for term in terms if term.stride]))
        last += sum((d.cells - 1) * d.stride_bytes for d in digits[axis]) // word.word.size_bytes
    words = Affine(tuple(axes), (0,), last + 1, node.origin)
    within = tuple([inner.get(axis, ()) for axis in sorted(digits)])
    is_alone = len(word.children) == 1 and math.prod(n for _, n in word.cells) == 1
    return Packed(words, within, node.starts, word.word.bits, is_alone, number)


def merge_digits(digits: tuple[CellDigit, ...]) -> list[CellDigit]:
    """Merge adjacent components of one index, outermost first, if there are no gaps between their
    cells."""
    found: list[CellDigit] = []
    for digit in digits:
        outer = found[-1] if found else None
        if outer is not None and outer.stride_bytes == digit.cells * digit.stride_bytes:
            found[-1] = CellDigit(outer.cells * digit.cells, digit.stride_bytes)
        else:
            found.append(digit)
    return found


def terms_of(digits: list[CellDigit], scalar_bytes: int) -> tuple[AxisTerm, ...]:
    """The terms of an axis, the outermost first, with strides in scalars. The outermost has no
    modulus."""
    found, divisor = [], math.prod(d.cells for d in digits)
    for k, digit in enumerate(digits):
        divisor //= digit.cells
        modulus = digit.cells if k else 0
        found.append(AxisTerm(divisor, modulus, digit.stride_bytes // scalar_bytes))
    return tuple(found)
