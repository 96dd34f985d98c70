"""Sparse matrix builders in kernels: `A[i, j] += v` appends a triplet.

A builder has four arrays: the count of triplets, their rows, columns and values. Rows and columns
have another element type than the count, so that they cannot alias it. A triplet beyond the
capacity is counted, but its stores are out of range.

    SparseRef(count, rows, columns, numbers).cell(cx, [i, j]).atomic(cx, "atomic_add", v)
"""

from __future__ import annotations

from typing import Any

from vkchi.errors import KernelIndexError, KernelTypeError
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.values.kinds import MarkedKind, all_but
from vkchi.frontend.values.operands import constant
from vkchi.frontend.values.references import ArrayRef, Context, MemoryTarget
from vkchi.ir.core import Op, Value
from vkchi.types import Scalar, i32, scalar_of, u32


def names_of(name: str) -> tuple[str, str, str, str]:
    """Return the parameter names of a builder's count, rows, columns and values."""
    return name, f"{name}.rows", f"{name}.columns", f"{name}.numbers"


class SparseRef:
    """A sparse matrix builder as a kernel argument."""

    __slots__ = ("columns", "count", "numbers", "rows")
    __vkchi_name__ = "a sparse matrix builder"

    def __init__(
        self, count: ArrayRef, rows: ArrayRef, columns: ArrayRef, numbers: ArrayRef
    ) -> None:
        self.count, self.rows, self.columns, self.numbers = count, rows, columns, numbers

    @property
    def elem(self) -> Scalar:
        return scalar_of(self.numbers.type.elem)

    def cell(self, cx: Context, indices: list[Any]) -> SparseCell:
        """Return `A[i, j]`, which supports addition and subtraction only.

        Raises KernelIndexError for another number of indices than 2, and for floats and vectors as
        indices.
        """
        if len(indices) != 2:
            raise cx.fail(
                f"a sparse matrix has 2 axes, and {len(indices)} given",
                kind=KernelIndexError,
                help="write A[i, j] += x",
            )
        row, column = (operator_lowering.value(cx, k) for k in indices)
        for k in (row, column):
            if k.type.kind not in ("i", "u", "b"):
                raise cx.fail("indices are integers", kind=KernelIndexError)
        return SparseCell(self, row, column)


class BuilderKind(MarkedKind, of=[SparseRef]):
    is_kernels_own = True
    helps = all_but("index", help="add to an entry: A[i, j] += x")

    def item(self, cx: Context, x: Any, indices: list[Any], slot: Any) -> Any:
        return x.cell(cx, indices)


class SparseCell(MemoryTarget):
    """An entry of the matrix: it can be added to and subtracted from, but not read or set."""

    __slots__ = ("builder", "column", "row")

    def __init__(self, builder: SparseRef, row: Value, column: Value) -> None:
        self.builder, self.row, self.column, self.type = builder, row, column, builder.elem

    @property
    def space(self) -> str:
        """The address space "global": other invocations write to the entry too."""
        return "global"

    def load(self, cx: Context) -> Op:
        raise _only_added_to(cx)

    def store(self, cx: Context, v: Value) -> None:
        raise _only_added_to(cx)

    def atomic(self, cx: Context, kind: str, *values: Value) -> Any:
        """Append the triplet (row, column, v). There is no old value: returns v.

        Raises KernelTypeError unless `kind` is "atomic_add".
        """
        if kind != "atomic_add":
            raise _only_added_to(cx)
        builder, (v,) = self.builder, values
        count = cx.b.emit("elem", builder.count.value, constant(cx, 0, i32))
        slot = cx.b.emit("atomic_add", count, constant(cx, 1, i32))
        row, column = (operator_lowering.cast(cx, x, u32) for x in (self.row, self.column))
        for array, x in ((builder.rows, row), (builder.columns, column), (builder.numbers, v)):
            cx.b.emit("store", cx.b.emit("elem", array.value, slot), x)
        return v


def _only_added_to(cx: Context) -> Exception:
    return cx.fail(
        "an entry of a sparse matrix builder can only be added to",
        kind=KernelTypeError,
        help="write A[i, j] += x, or A[i, j] -= x",
    )
