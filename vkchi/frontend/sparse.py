"""Sparse matrix builders in kernels: `A[i, j] += v` notes a triplet.

Owns: `SparseRef`, what a builder is while a kernel is lowered, and the layout of its memory: words
of the width of its numbers, first the count of triplets, then row, column and the number's bits of
each. A triplet that has no room is dropped; the count tells. Must not know: matrices.

    SparseRef(array, f32).cell(cx, [i, j]).atomic(cx, "atomic_add", v)
"""

from __future__ import annotations

from typing import Any

from vkchi.errors import KernelIndexError, KernelTypeError
from vkchi.frontend import arith
from vkchi.frontend.operands import constant
from vkchi.frontend.values import ArrayRef, Context, Place
from vkchi.ir.core import Op, Value
from vkchi.types import SCALARS, Scalar, i32

HEADER, TRIPLET = 1, 3  # words


def word_of(t: Scalar) -> Scalar:
    """The integer type that a builder of numbers of type t keeps: i32 for f32, i64 for f64."""
    return SCALARS[f"i{t.bits}"]


class SparseRef:
    """A builder argument, of numbers of type `elem`."""

    __slots__ = ("array", "elem")
    __vkchi_name__ = "a sparse matrix builder"

    def __init__(self, array: ArrayRef, elem: Scalar) -> None:
        self.array, self.elem = array, elem

    def cell(self, cx: Context, indices: list[Any]) -> SparseCell:
        """`A[i, j]`, to be added to. Raises KernelIndexError."""
        if len(indices) != 2:
            raise cx.fail("a sparse matrix has 2 axes: write A[i, j] += x", kind=KernelIndexError)
        row, column = (arith.value(cx, k) for k in indices)
        for k in (row, column):
            if not isinstance(k.type, Scalar) or k.type.kind == "f":
                raise cx.fail("indices are integers", kind=KernelIndexError)
        return SparseCell(self, row, column)


class SparseCell(Place):
    """An entry of the matrix: it can be added to and subtracted from, and not be read or set."""

    __slots__ = ("builder", "column", "row")

    def __init__(self, builder: SparseRef, row: Value, column: Value) -> None:
        self.builder, self.row, self.column, self.type = builder, row, column, builder.elem

    @property
    def space(self) -> str:
        """Memory that other invocations write too."""
        return "global"

    def load(self, cx: Context) -> Op:
        """Raises KernelTypeError."""
        raise _only_added_to(cx)

    def store(self, cx: Context, v: Value) -> None:
        """Raises KernelTypeError."""
        raise _only_added_to(cx)

    def atomic(self, cx: Context, kind: str, v: Value) -> Any:
        """Note the triplet (row, column, v). There is no old value: gives v."""
        if kind != "atomic_add":
            raise _only_added_to(cx)
        array, word = self.builder.array.value, word_of(self.builder.elem)
        count = cx.b.emit("elem", array, constant(cx, 0, i32))
        slot = cx.b.emit("atomic_add", count, constant(cx, 1, word))
        place = arith.cast(cx, slot, i32)
        first = cx.b.emit("mul", place, constant(cx, TRIPLET, i32))
        words = (
            arith.cast(cx, self.row, word),
            arith.cast(cx, self.column, word),
            cx.b.emit("bitcast", v, type=word),
        )
        for k, x in enumerate(words):
            index = cx.b.emit("add", first, constant(cx, HEADER + k, i32))
            cx.b.emit("store", cx.b.emit("elem", array, index), x)
        return v


def _only_added_to(cx: Context) -> Exception:
    return cx.fail(
        "an entry of a sparse matrix builder can only be added to",
        kind=KernelTypeError,
        help="write A[i, j] += x, or A[i, j] -= x",
    )
