"""Sparse matrices on the host.

Owns: `SparseMatrix`: entries in order of rows, then columns, none twice; its arithmetic, by numpy.
Must not know: kernels, how systems are solved.

    A = SparseMatrix(2, 2); A[0, 1] = 3.0; (A @ A.transpose())[0, 0]      # 9.0
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vkchi.errors import KernelRuntimeError
from vkchi.fields.field import Field
from vkchi.ndarray import Ndarray, ndarray
from vkchi.types import Scalar, cook, f32

Entries = tuple[Any, Any, Any]  # rows, columns, numbers


def add_up(rows: Any, columns: Any, numbers: Any, width: int) -> Entries:
    """Entries in order, those at one place added up."""
    keys = np.asarray(rows, np.int64) * width + np.asarray(columns, np.int64)
    places, where = np.unique(keys, return_inverse=True)
    sums = np.bincount(where.reshape(-1), numbers, len(places)) if len(places) else numbers
    return places // max(width, 1), places % max(width, 1), sums


class SparseMatrix:
    """An `n` by `m` matrix of numbers of `dtype`, zero at first.

    Operators: `+`, `-`, `*` with a number or, entry by entry, a matrix; `@` with a matrix, or with
    a field, ndarray or numpy array of one axis. Raises KernelRuntimeError for shapes that differ.
    """

    def __init__(
        self,
        n: int | None = None,
        m: int | None = None,
        sm: SparseMatrix | None = None,
        dtype: Any = f32,
        storage_format: str = "col_major",
    ) -> None:
        t = cook(dtype)
        if not isinstance(t, Scalar) or t.kind != "f":
            raise KernelRuntimeError(f"SparseMatrix: dtype is ti.f32 or ti.f64, not {dtype!r}")
        self.dtype: Scalar = t if sm is None else sm.dtype
        self.n: int = sm.n if sm is not None else int(n or 0)
        self.m: int = sm.m if sm is not None else int(m or n or 0)
        none = np.zeros(0, np.int64)
        self._keep(sm.entries if sm is not None else (none, none, np.zeros(0)))

    def _keep(self, entries: Entries) -> None:
        rows, columns, numbers = entries
        self.entries: Entries = rows, columns, np.asarray(numbers, self.dtype.dtype)

    def set_triplets(self, rows: Any, columns: Any, numbers: Any) -> None:
        """Become the matrix of these numbers, those at one place added up."""
        inside = (rows >= 0) & (rows < self.n) & (columns >= 0) & (columns < self.m)
        if not inside.all():
            k = int(np.argmin(inside))
            raise KernelRuntimeError(
                f"entry [{rows[k]}, {columns[k]}] is outside a {self.n} by {self.m} sparse matrix"
            )
        self._keep(add_up(rows, columns, np.asarray(numbers, np.float64), self.m))

    def _made(self, entries: Entries, n: int, m: int) -> SparseMatrix:
        made = SparseMatrix(n, m, dtype=self.dtype)
        made._keep(entries)
        return made

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.n, self.m

    # --- entries -----------------------------------------------------------------------------

    def _find(self, indices: Any) -> tuple[int, bool]:
        """Where the entry at (i, j) stands or would stand, and whether it is there."""
        i, j = indices
        if not (0 <= i < self.n and 0 <= j < self.m):
            raise KernelRuntimeError(
                f"entry [{i}, {j}] is outside a {self.n} by {self.m} sparse matrix"
            )
        keys = self.entries[0] * self.m + self.entries[1]
        k = int(np.searchsorted(keys, i * self.m + j))
        return k, bool(k < len(keys) and keys[k] == i * self.m + j)

    def __getitem__(self, indices: Any) -> float:
        k, is_there = self._find(indices)
        return float(self.entries[2][k]) if is_there else 0.0

    def __setitem__(self, indices: Any, value: Any) -> None:
        k, is_there = self._find(indices)
        if is_there:
            self.entries[2][k] = value
            return
        (i, j), (rows, columns, numbers) = indices, self.entries
        self._keep((np.insert(rows, k, i), np.insert(columns, k, j), np.insert(numbers, k, value)))

    def build_from_ndarray(self, triplets: Any) -> None:
        """Become the matrix of the numbers row, column, value, row, ... of an ndarray."""
        flat = triplets.to_numpy().reshape(-1)
        if len(flat) % 3:
            raise KernelRuntimeError("triplets are rows, columns and numbers: 3 times as many")
        rows, columns, numbers = flat.reshape(-1, 3).T
        self.set_triplets(rows.astype(np.int64), columns.astype(np.int64), numbers)

    def to_numpy(self) -> Any:
        """The matrix with its zeros."""
        dense = np.zeros(self.shape, self.dtype.dtype)
        rows, columns, numbers = self.entries
        dense[rows, columns] = numbers
        return dense

    # --- arithmetic --------------------------------------------------------------------------

    def _combine(self, other: Any, sign: float) -> SparseMatrix:
        self._check_same(other)
        rows, columns, numbers = (np.concatenate(pair) for pair in zip(self.entries, other.entries))
        signs = np.repeat([1.0, sign], [len(self.entries[2]), len(other.entries[2])])
        return self._made(add_up(rows, columns, signs * numbers, self.m), *self.shape)

    def _check_same(self, other: Any) -> None:
        if not isinstance(other, SparseMatrix):
            raise KernelRuntimeError(f"a SparseMatrix is needed, not {other!r}")
        if self.shape != other.shape:
            raise KernelRuntimeError(
                f"sparse matrices have different shapes: {self.shape} and {other.shape}"
            )

    def __add__(self, other: Any) -> SparseMatrix:
        return self._combine(other, 1.0)

    def __sub__(self, other: Any) -> SparseMatrix:
        return self._combine(other, -1.0)

    def __iadd__(self, other: Any) -> SparseMatrix:
        self._keep(self._combine(other, 1.0).entries)
        return self

    def __isub__(self, other: Any) -> SparseMatrix:
        self._keep(self._combine(other, -1.0).entries)
        return self

    def __mul__(self, other: Any) -> SparseMatrix:
        rows, columns, numbers = self.entries
        if isinstance(other, int | float | np.number):
            return self._made((rows, columns, numbers * other), *self.shape)
        self._check_same(other)
        keys, others = (e[0] * self.m + e[1] for e in (self.entries, other.entries))
        _, here, there = np.intersect1d(keys, others, return_indices=True)
        products = numbers[here] * other.entries[2][there]
        return self._made((rows[here], columns[here], products), *self.shape)

    __rmul__ = __mul__

    def transpose(self) -> SparseMatrix:
        """The matrix with rows and columns exchanged."""
        rows, columns, numbers = self.entries
        return self._made(add_up(columns, rows, numbers, self.n), self.m, self.n)

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, SparseMatrix):
            return self._multiply(other)
        if not isinstance(other, Field | Ndarray | np.ndarray):
            raise KernelRuntimeError(
                "a sparse matrix is multiplied by a SparseMatrix, or by a field, ndarray or numpy "
                f"array, not by {type(other)}"
            )
        product = self.apply(other if isinstance(other, np.ndarray) else other.to_numpy())
        if not isinstance(other, Ndarray):
            return product
        found = ndarray(self.dtype, self.n)
        found.from_numpy(product)
        return found

    def apply(self, x: Any) -> Any:
        """The product with a vector, in numpy."""
        if x.shape != (self.m,):
            raise KernelRuntimeError(f"a vector of {self.m} is needed, not of shape {x.shape}")
        rows, columns, numbers = self.entries
        products = numbers.astype(float) * x[columns]
        return np.bincount(rows, products, self.n).astype(self.dtype.dtype)

    def _multiply(self, other: SparseMatrix) -> SparseMatrix:
        if self.m != other.n:
            raise KernelRuntimeError(
                f"these cannot be multiplied as matrices: {self.shape} and {other.shape}"
            )
        rows, columns, numbers = self.entries
        starts = np.searchsorted(other.entries[0], np.arange(other.n + 1))
        counts = (starts[1:] - starts[:-1])[columns]
        mine = np.repeat(np.arange(len(rows)), counts)
        # The k-th product of an entry is with the k-th entry of the other's row.
        k = np.arange(len(mine)) - np.repeat(np.cumsum(counts) - counts, counts)
        its = starts[columns[mine]] + k
        products = numbers[mine].astype(float) * other.entries[2][its]
        entries = add_up(rows[mine], other.entries[1][its], products, other.m)
        return self._made(entries, self.n, other.m)

    # --- texts -------------------------------------------------------------------------------

    def __str__(self) -> str:
        texts = [[f"{x:g}" for x in row] for row in self.to_numpy().tolist()]
        width = max((len(x) for row in texts for x in row), default=0)
        return "\n".join("[" + ", ".join(x.rjust(width) for x in row) + "]" for row in texts)

    __repr__ = __str__

    def mmwrite(self, filename: str) -> None:
        """Write a Matrix Market file. Source: math.nist.gov/MatrixMarket/formats.html."""
        lines = ["%%MatrixMarket matrix coordinate real general", "%"]
        lines.append(f"{self.n} {self.m} {len(self.entries[0])}")
        lines += [f"{i + 1} {j + 1} {x:.9g}" for i, j, x in zip(*self.entries)]
        with open(filename, "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")
