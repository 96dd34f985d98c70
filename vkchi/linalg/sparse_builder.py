"""Sparse matrix builders: kernels add triplets, `build` sums them into a matrix.

K = ti.linalg.SparseMatrixBuilder(4, 4, max_num_triplets=100)

@ti.kernel
def fill(A: ti.types.sparse_matrix_builder()):
    for i in range(4):
        A[i, i] += 2

fill(K); A = K.build()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentError, KernelRuntimeError
from vkchi.frontend.argspec import ArgSpec
from vkchi.frontend.values.sparse_builders import names_of
from vkchi.linalg.coo_matrix import SparseMatrix
from vkchi.ndarray import Ndarray, ndarray
from vkchi.signature import ANNOTATIONS, Parameter
from vkchi.signature.bound import BoundArguments
from vkchi.signature.wording import describe_argument
from vkchi.types import Scalar, cook, f32, f64, i32, u32
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.types.hints import ScalarDType


class sparse_matrix_builder:
    """Annotation: a `ti.linalg.SparseMatrixBuilder` argument, to which the kernel adds triplets."""


class SparseMatrixBuilder:
    """Up to `max_num_triplets` triplets (row, column, value) for a `num_rows` by `num_cols` matrix
    of type `dtype`, f32 or f64.

    `storage_format` has no effect. Raises ArgumentError for other types, KernelRuntimeError before
    `init`.
    """

    def __init__(
        self,
        num_rows: int,
        num_cols: int | None = None,
        max_num_triplets: int = 0,
        dtype: ScalarDType = f32,
        storage_format: str = "col_major",
    ) -> None:
        t = cook(dtype)
        if t not in (f32, f64):
            raise ArgumentError(f"SparseMatrixBuilder: dtype is ti.f32 or ti.f64, not {dtype!r}")
        self.num_rows = num_rows
        self.num_cols = num_rows if num_cols is None else num_cols
        self.max_num_triplets, self.storage_format = max_num_triplets, storage_format
        self.dtype: Scalar = t
        self.count = ndarray(i32, 1)
        room = max(1, max_num_triplets)
        self.rows, self.columns, self.numbers = (ndarray(elem, room) for elem in (u32, u32, t))

    @property
    def arrays(self) -> tuple[Ndarray, Ndarray, Ndarray, Ndarray]:
        """Arrays that kernels write: count, rows, columns, values."""
        return self.count, self.rows, self.columns, self.numbers

    def _places(self) -> tuple[Any, Any]:
        """Rows and columns of the triplets. Raises KernelRuntimeError if more than
        `max_num_triplets` were added."""
        count = int(self.count[0])
        if count > self.max_num_triplets:
            raise KernelRuntimeError(
                f"SparseMatrixBuilder: {count} numbers were added, and there is room for "
                f"{self.max_num_triplets}: make it with max_num_triplets={count}"
            )
        rows, columns = (x.to_numpy()[:count].view(np.int32) for x in (self.rows, self.columns))
        return rows, columns

    def print_triplets(self) -> None:
        """Print the triplets. Raises KernelRuntimeError for more than `max_num_triplets`."""
        rows, columns = self._places()
        print(
            f"n={self.num_rows}, m={self.num_cols}, num_triplets={len(rows)} "
            f"(max={self.max_num_triplets})"
        )
        for i, j, x in zip(rows, columns, self.numbers.to_numpy()):
            print(f"[{i}, {j}] = {x:g}")

    def build(self, dtype: ScalarDType | None = None, _format: str = "CSR") -> SparseMatrix:
        """Return the matrix of the summed triplets, in the builder's type or `dtype`, and empty the
        builder.

        Raises KernelRuntimeError for entries outside the matrix, and if more than
        `max_num_triplets` were added.
        """
        rows, columns = self._places()
        self.count.fill(0)
        t = self.dtype if dtype is None else cook(dtype)
        made = SparseMatrix(self.num_rows, self.num_cols, dtype=t)
        made.check_inside(rows, columns)
        who = "SparseMatrixBuilder.build()"
        return made.add_up(who, (self.numbers,), rows, columns, np.arange(len(rows)))


class BuilderParameter(Parameter):
    """Parameter that takes a sparse matrix builder by reference."""

    kind = "sparse"

    def __init__(self, name: str, note: Any) -> None:
        super().__init__(name, None)

    def sign(self, arg: Any) -> Any:
        if not isinstance(arg, SparseMatrixBuilder):
            raise self.refuse(
                f"a ti.linalg.SparseMatrixBuilder is needed, not {describe_argument(arg)}"
            )
        return tuple(array.argument for array in arg.arrays)

    def spec(self, arg: Any, signed: Any) -> ArgSpec:
        count, *others = signed
        return ArgSpec(self.name, "sparse", count, tuple(others))

    def bind(self, arg: Any, bound: BoundArguments) -> None:
        if arg.count.device is not bound.runtime.device:
            arg.count.check_alive()
            raise self.refuse("the builder belongs to another device")
        if bound.runtime.is_taped and arg.numbers.grad is None:
            arg.numbers.add_gradient()
        for name, array in zip(names_of(self.name), arg.arrays, strict=True):
            bound.bind_array(name, array)

    def places(self, arg: Any) -> list[tuple[str, str, int]]:
        kinds = ("ptr", "size", "dim")
        return [(kind, name, 0) for name in names_of(self.name) for kind in kinds]


ANNOTATIONS[sparse_matrix_builder] = BuilderParameter
