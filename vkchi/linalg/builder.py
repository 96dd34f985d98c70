"""Builders of sparse matrices: kernels add numbers to them, `build` makes a matrix of the sums.

Owns: `SparseMatrixBuilder` and the handler of such arguments. Must not know: what is done with
matrices.

    K = ti.linalg.SparseMatrixBuilder(4, 4, max_num_triplets=100)

    @ti.kernel
    def fill(A: ti.types.sparse_matrix_builder()):
        for i in range(4):
            A[i, i] += 2

    fill(K); A = K.build()
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vkchi.bound import Bound
from vkchi.errors import ArgumentError, KernelRuntimeError
from vkchi.frontend.argspec import ArgSpec
from vkchi.frontend.sparse import HEADER, TRIPLET, word_of
from vkchi.linalg.sparse import SparseMatrix
from vkchi.ndarray import ndarray
from vkchi.signature import ANNOTATIONS, Parameter, describe
from vkchi.types import Scalar, cook, f32, f64, sparse_matrix_builder


class SparseMatrixBuilder:
    """Triplets (row, column, number) for a matrix of `num_rows` by `num_cols` numbers of `dtype`,
    f32 or f64; at most `max_num_triplets` of them.

    Raises ArgumentError, KernelRuntimeError before `init`.
    """

    def __init__(
        self,
        num_rows: int,
        num_cols: int | None = None,
        max_num_triplets: int = 0,
        dtype: Any = f32,
        storage_format: str = "col_major",
    ) -> None:
        t = cook(dtype)
        if t not in (f32, f64):
            raise ArgumentError(f"SparseMatrixBuilder: dtype is ti.f32 or ti.f64, not {dtype!r}")
        self.num_rows = num_rows
        self.num_cols = num_rows if num_cols is None else num_cols
        self.max_num_triplets, self.storage_format = max_num_triplets, storage_format
        self.dtype: Scalar = t
        self.words = ndarray(word_of(t), HEADER + TRIPLET * max_num_triplets)

    def _triplets(self) -> tuple[Any, Any, Any]:
        """Rows, columns and numbers. Raises KernelRuntimeError where there was not enough room."""
        words = self.words.to_numpy()
        count = int(words[0])
        if count > self.max_num_triplets:
            raise KernelRuntimeError(
                f"SparseMatrixBuilder: {count} numbers were added, and there is room for "
                f"{self.max_num_triplets}: make it with max_num_triplets={count}"
            )
        rows, columns, bits = words[HEADER : HEADER + TRIPLET * count].reshape(-1, TRIPLET).T
        return rows, columns, np.ascontiguousarray(bits).view(self.dtype.dtype)

    def print_triplets(self) -> None:
        """Show what was added."""
        rows, columns, numbers = self._triplets()
        print(
            f"n={self.num_rows}, m={self.num_cols}, num_triplets={len(rows)} "
            f"(max={self.max_num_triplets})"
        )
        for i, j, x in zip(rows, columns, numbers):
            print(f"[{i}, {j}] = {x:g}")

    def build(self, dtype: Any = None, _format: str = "CSR") -> SparseMatrix:
        """The matrix of the sums of what was added, in the builder's type or `dtype`; the builder
        starts anew. Raises KernelRuntimeError for entries outside the matrix."""
        rows, columns, numbers = self._triplets()
        self.words.fill(0)
        t = self.dtype if dtype is None else cook(dtype)
        made = SparseMatrix(self.num_rows, self.num_cols, dtype=t)
        made.set_triplets(rows, columns, numbers)
        return made


class BuilderParameter(Parameter):
    """A sparse matrix builder, by reference."""

    kind = "sparse"

    def __init__(self, name: str, note: Any) -> None:
        super().__init__(name, None)

    def sign(self, arg: Any) -> Any:
        if not isinstance(arg, SparseMatrixBuilder):
            raise self.refuse(f"a ti.linalg.SparseMatrixBuilder is needed, not {describe(arg)}")
        return (arg.dtype, arg.words.argument_type)

    def spec(self, arg: Any, signed: Any) -> ArgSpec:
        dtype, array_type = signed
        return ArgSpec(self.name, "sparse", array_type, dtype)

    def bind(self, arg: Any, bound: Bound) -> None:
        if arg.words.device is not bound.runtime.device:
            arg.words.check_alive()
            raise self.refuse("the builder belongs to another device")
        bound.bind_array(self.name, arg.words)

    def places(self, arg: Any) -> list[tuple[str, str, int]]:
        return [("ptr", self.name, 0), ("size", self.name, 0), ("dim", self.name, 0)]


ANNOTATIONS[sparse_matrix_builder] = BuilderParameter
