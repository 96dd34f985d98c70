"""Sparse matrices on the host, in coordinate format.

Entries are unique and sorted by row, then column. Arithmetic uses numpy: weighted sums, and sums of
products. Tapes record these functions and call `slopes` for the gradient (`tape.hosted`).

    A = SparseMatrix(2, 2); A[0, 1] = 3.0; (A @ A.transpose())[0, 0]      # 9.0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from vkchi.errors import ArgumentError, KernelRuntimeError, MissingPackageError
from vkchi.fields.field import Field
from vkchi.fields.storage import Storage
from vkchi.frontend.argspec import ArgSpec
from vkchi.frontend.values.sparse_builders import names_of
from vkchi.ndarray import Ndarray, ndarray
from vkchi.signature import ANNOTATIONS, Parameter
from vkchi.signature.bound import BoundArguments
from vkchi.signature.wording import describe_argument
from vkchi.tape.hosted import current_tape, run_host_function
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, cook, f32, f64, i32, u32
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_array

    from vkchi.tape.hosted import Input
    from vkchi.types.hints import Array, Column, ScalarDType


Entries = tuple[Any, Any, Any]  # rows, columns, numbers


Values = np.ndarray[Any, Any]


def scatter_add(where: Values, numbers: Values, count: int) -> Values:
    """Scatter-add into `count` sums: result[where[t]] += numbers[t]."""
    return np.bincount(where, numbers, count) if len(where) else np.zeros(count)


class WeightedScatter(NamedTuple):
    """result[where[t]] += weights[t] * x[taken[t]] for all t. x is the concatenation of the
    inputs."""

    who: str
    taken: Values
    weights: Any
    where: Values
    size: int
    dtype: Any

    def value(self, *inputs: Values) -> Values:
        x = np.concatenate([x.reshape(-1) for x in inputs])
        return scatter_add(self.where, self.weights * x[self.taken], self.size).astype(self.dtype)

    def slopes(self, slope: Values, result: Values, inputs: Sequence[Values]) -> Sequence[Values]:
        sizes = [x.size for x in inputs]
        found = scatter_add(self.taken, self.weights * slope[self.where], sum(sizes))
        parts = np.split(found, np.cumsum(sizes)[:-1])
        return [part.reshape(x.shape) for part, x in zip(parts, inputs)]


class ProductScatter(NamedTuple):
    """result[where[t]] += a[first[t]] * b[second[t]] for all t."""

    who: str
    first: Values
    second: Values
    where: Values
    size: int
    dtype: Any

    def value(self, *inputs: Values) -> Values:
        a, b = inputs
        products = a[self.first].astype(float) * b[self.second]
        return scatter_add(self.where, products, self.size).astype(self.dtype)

    def slopes(self, slope: Values, result: Values, inputs: Sequence[Values]) -> Sequence[Values]:
        a, b = inputs
        given = slope[self.where]
        return (
            scatter_add(self.first, given * b[self.second], len(a)),
            scatter_add(self.second, given * a[self.first], len(b)),
        )


class SparsityPattern(NamedTuple):
    """Sorted unique coordinates, and for each given value the index of its coordinate (`where`)."""

    rows: Any
    columns: Any
    where: Any


def pattern_of(rows: Array, columns: Array, width: int) -> SparsityPattern:
    """Return the pattern of values at these rows and columns of a matrix with `width` columns."""
    keys = np.asarray(rows, np.int64) * width + np.asarray(columns, np.int64)
    places, where = np.unique(keys, return_inverse=True)
    return SparsityPattern(places // max(width, 1), places % max(width, 1), where.reshape(-1))


def import_scipy_sparse() -> Any:
    """Return the module scipy.sparse. Raises MissingPackageError if scipy is not installed."""
    try:
        import scipy.sparse
    except ImportError:
        raise MissingPackageError(
            "this needs scipy, which is not installed: pip install scipy"
        ) from None
    return scipy.sparse


class SparseMatrix:
    """An `n` by `m` matrix (`m`: default `n`) of f32 or f64 (`dtype`), zero at first, or a copy of
    `sm`. `storage_format` has no effect.

    Operators: `+`, `-`; `*` with a number or, elementwise, a matrix; `@` with a matrix, or with a
    field, ndarray or numpy array of one axis. Raises KernelRuntimeError for other types and shapes
    that do not fit.
    """

    def __init__(
        self,
        n: int | None = None,
        m: int | None = None,
        sm: SparseMatrix | None = None,
        dtype: ScalarDType = f32,
        storage_format: str = "col_major",
    ) -> None:
        t = cook(dtype)
        if t not in (f32, f64):
            raise KernelRuntimeError(f"SparseMatrix: dtype is ti.f32 or ti.f64, not {dtype!r}")
        self.dtype: Scalar = t if sm is None else sm.dtype
        self.n: int = sm.n if sm is not None else int(n or 0)
        self.m: int = sm.m if sm is not None else int((n or 0) if m is None else m)
        none = np.zeros(0, np.int64)
        self._keep(sm.entries if sm is not None else (none, none, np.zeros(0)))

    def _keep(self, entries: Entries) -> None:
        rows, columns, numbers = entries
        self._entries: Entries = rows, columns, np.asarray(numbers, self.dtype.dtype)
        self._keys: Any = None
        self._assigned: dict[tuple[int, int], float] = {}

    @property
    def entries(self) -> Entries:
        """Rows, columns and values, with pending assignments merged."""
        if self._assigned:
            self._keep(self._merged())
        return self._entries

    @property
    def keys(self) -> Any:
        """Sorted linear indices of the entries, without pending assignments."""
        if self._keys is None:
            self._keys = self._entries[0] * self.m + self._entries[1]
        return self._keys

    def _merged(self) -> Entries:
        """Return the entries after the pending assignments, which change existing entries and add
        new ones."""
        places = np.array(list(self._assigned), np.int64)
        values = np.array(list(self._assigned.values()), self.dtype.dtype)
        keys = places[:, 0] * self.m + places[:, 1]
        order = np.argsort(keys)
        keys, values = keys[order], values[order]
        at = np.searchsorted(self.keys, keys)
        is_there = np.append(self.keys, -1)[at] == keys
        rows, columns, numbers = self._entries
        numbers = numbers.copy()
        numbers[at[is_there]] = values[is_there]
        keys, values, at = (x[~is_there] for x in (keys, values, at))
        return (
            np.insert(rows, at, keys // self.m),
            np.insert(columns, at, keys % self.m),
            np.insert(numbers, at, values),
        )

    def set_triplets(self, rows: Array, columns: Array, numbers: Array) -> None:
        """Replace the contents by triplets; duplicates are summed. Raises KernelRuntimeError for an
        entry outside the matrix."""
        self.check_inside(rows, columns)
        self.add_up("SparseMatrix", (numbers,), rows, columns, np.arange(len(rows)))

    def check_inside(self, rows: Array, columns: Array) -> None:
        """Raise KernelRuntimeError for an entry outside the matrix."""
        inside = (rows >= 0) & (rows < self.n) & (columns >= 0) & (columns < self.m)
        if not inside.all():
            k = int(np.argmin(inside))
            raise KernelRuntimeError(
                f"entry [{rows[k]}, {columns[k]}] is outside a {self.n} by {self.m} sparse matrix"
            )

    def add_up(
        self,
        who: str,
        given: Sequence[Input],
        rows: Array,
        columns: Array,
        taken: Array,
        weights: Array | float = 1,
    ) -> SparseMatrix:
        """Replace the contents by scatter-added, weighted inputs (see `WeightedScatter`). Return
        the matrix itself."""
        places = pattern_of(rows, columns, self.m)
        count = len(places.rows)
        function = WeightedScatter(who, taken, weights, places.where, count, self.dtype.dtype)
        self._keep((places.rows, places.columns, run_host_function(function, given)))
        return self

    def multiply_out(
        self,
        who: str,
        given: Sequence[Input],
        rows: Array,
        columns: Array,
        first: Array,
        second: Array,
    ) -> SparseMatrix:
        """Replace the contents by scatter-added products of two inputs (see `ProductScatter`).
        Return the matrix itself."""
        places = pattern_of(rows, columns, self.m)
        function = ProductScatter(
            who, first, second, places.where, len(places.rows), self.dtype.dtype
        )
        self._keep((places.rows, places.columns, run_host_function(function, given)))
        return self

    def _like(self, n: int | None = None, m: int | None = None) -> SparseMatrix:
        rows, columns = self.n if n is None else n, self.m if m is None else m
        return SparseMatrix(rows, columns, dtype=self.dtype)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return self.n, self.m

    # --- entries -----------------------------------------------------------------------------

    def _find(self, indices: tuple[int, int]) -> tuple[int, bool]:
        """Return the position of the entry at (i, j), or of its insertion, and True if it exists.
        Pending assignments do not count. Raises KernelRuntimeError outside the matrix."""
        i, j = indices
        if not (0 <= i < self.n and 0 <= j < self.m):
            raise KernelRuntimeError(
                f"entry [{i}, {j}] is outside a {self.n} by {self.m} sparse matrix"
            )
        k = int(np.searchsorted(self.keys, i * self.m + j))
        return k, bool(k < len(self.keys) and self.keys[k] == i * self.m + j)

    def __getitem__(self, indices: tuple[int, int]) -> float:
        k, is_there = self._find(indices)
        i, j = indices
        assigned = self._assigned.get((int(i), int(j)))
        if assigned is not None:
            return assigned
        return float(self._entries[2][k]) if is_there else 0.0

    def __setitem__(self, indices: tuple[int, int], value: float) -> None:
        if current_tape() is None:  # merged into the entries on their next use
            self._find(indices)
            i, j = map(int, indices)
            self._assigned[i, j] = float(self.dtype.dtype.type(value))
        else:
            self._set_in_tape(indices, value)

    def _set_in_tape(self, indices: tuple[int, int], value: float) -> None:
        (i, j), (rows, columns, numbers) = indices, self.entries
        k, is_there = self._find(indices)
        if not is_there:
            rows, columns = np.insert(rows, k, i), np.insert(columns, k, j)
        count = len(numbers)  # index of the new value, after the old ones
        taken = np.arange(count)
        taken = np.insert(taken, k, count) if not is_there else np.where(taken == k, count, taken)
        self.add_up("A[i, j] = x", (numbers, np.array([value])), rows, columns, taken)

    def build_from_ndarray(self, triplets: Ndarray) -> None:
        """Replace the contents by the triplets row, column, value, row, ... of an ndarray;
        duplicates are summed. Raises KernelRuntimeError for an incomplete triplet and for an entry
        outside the matrix."""
        flat = triplets.contents().reshape(-1)
        if len(flat) % 3:
            raise KernelRuntimeError("triplets are rows, columns and numbers: 3 times as many")
        rows, columns = (flat.reshape(-1, 3).T[k].astype(np.int64) for k in (0, 1))
        self.check_inside(rows, columns)
        taken = 3 * np.arange(len(rows)) + 2
        self.add_up("build_from_ndarray()", (triplets,), rows, columns, taken)

    def to_numpy(self) -> NDArray[np.number]:
        """The dense matrix as a numpy array of `dtype`."""
        dense = np.zeros(self.shape, self.dtype.dtype)
        rows, columns, numbers = self.entries
        dense[rows, columns] = numbers
        return dense

    def to_scipy(self) -> csr_array:
        """The matrix as a `scipy.sparse.csr_array`, a copy. Raises MissingPackageError without
        scipy."""
        rows, columns, numbers = self.entries
        made: csr_array = import_scipy_sparse().csr_array(
            (numbers.copy(), (rows, columns)), shape=self.shape
        )
        return made

    @classmethod
    def from_scipy(cls, matrix: Any) -> SparseMatrix:
        """Copy a scipy.sparse matrix or array of two axes, in any format.

        Its type becomes f32 if it has float32 or float16 numbers, otherwise f64. Duplicates are
        summed. Raises KernelRuntimeError for other objects and complex numbers, MissingPackageError
        without scipy.
        """
        if not import_scipy_sparse().issparse(matrix) or matrix.ndim != 2:
            help = "\nhelp: convert it: scipy.sparse.csr_array(a)" if np.ndim(matrix) == 2 else ""
            raise KernelRuntimeError(
                f"from_scipy takes a scipy.sparse matrix, not {type(matrix)}{help}"
            )
        if matrix.dtype.kind not in "fiub":
            raise KernelRuntimeError(f"sparse matrices have real numbers, not {matrix.dtype}")
        is_single = matrix.dtype.kind == "f" and matrix.dtype.itemsize <= 4
        n, m = matrix.shape
        made, found = cls(n, m, dtype=f32 if is_single else f64), matrix.tocoo()
        rows, columns = (axis.astype(np.int64) for axis in (found.row, found.col))
        made.set_triplets(rows, columns, found.data.astype(made.dtype.dtype))
        return made

    # --- arithmetic --------------------------------------------------------------------------

    def _combine(self, other: SparseMatrix, sign: float) -> SparseMatrix:
        self._check_same(other)
        rows, columns, numbers = (np.concatenate(pair) for pair in zip(self.entries, other.entries))
        signs = np.repeat([1.0, sign], [len(self.entries[2]), len(other.entries[2])])
        given, taken = (self.entries[2], other.entries[2]), np.arange(len(numbers))
        return self._like().add_up("A + B", given, rows, columns, taken, signs)

    def _check_same(self, other: object) -> None:
        if not isinstance(other, SparseMatrix):
            raise KernelRuntimeError(f"a SparseMatrix is needed, not {other!r}")
        if self.shape != other.shape:
            raise KernelRuntimeError(
                f"sparse matrices have different shapes: {self.shape} and {other.shape}"
            )

    def __add__(self, other: SparseMatrix) -> SparseMatrix:
        return self._combine(other, 1.0)

    def __sub__(self, other: SparseMatrix) -> SparseMatrix:
        return self._combine(other, -1.0)

    def __iadd__(self, other: SparseMatrix) -> SparseMatrix:
        self._keep(self._combine(other, 1.0).entries)
        return self

    def __isub__(self, other: SparseMatrix) -> SparseMatrix:
        self._keep(self._combine(other, -1.0).entries)
        return self

    def __mul__(self, other: SparseMatrix | float) -> SparseMatrix:
        rows, columns, numbers = self.entries
        if isinstance(other, int | float | np.number):
            taken = np.arange(len(numbers))
            return self._like().add_up("A * c", (numbers,), rows, columns, taken, other)
        self._check_same(other)
        keys, others = (e[0] * self.m + e[1] for e in (self.entries, other.entries))
        _, here, there = np.intersect1d(keys, others, return_indices=True)
        given = (numbers, other.entries[2])
        return self._like().multiply_out("A * B", given, rows[here], columns[here], here, there)

    __rmul__ = __mul__

    def transpose(self) -> SparseMatrix:
        """The transposed matrix."""
        rows, columns, numbers = self.entries
        taken = np.arange(len(numbers))
        made = self._like(self.m, self.n)
        return made.add_up("A.transpose()", (numbers,), columns, rows, taken)

    @overload
    def __matmul__(self, other: SparseMatrix) -> SparseMatrix: ...
    @overload
    def __matmul__(self, other: Ndarray) -> Ndarray: ...
    @overload
    def __matmul__(self, other: Field | NDArray[np.number]) -> NDArray[np.number]: ...
    def __matmul__(self, other: SparseMatrix | Column) -> Any:
        if isinstance(other, SparseMatrix):
            return self._multiply(other)
        if not isinstance(other, Field | Ndarray | np.ndarray):
            raise KernelRuntimeError(
                "a sparse matrix is multiplied by a SparseMatrix, or by a field, ndarray or numpy "
                f"array, not by {type(other)}"
            )
        return self.apply(other)

    def apply(self, x: Column) -> Ndarray | NDArray[np.number]:
        """The product with a vector: an ndarray if x is one, otherwise a numpy array. Raises
        KernelRuntimeError unless x has `m` scalars."""
        if x.shape != (self.m,):
            raise KernelRuntimeError(f"a vector of {self.m} is needed, not of shape {x.shape}")
        if isinstance(x, Storage) and not x.is_scalar:
            what = x.seen_elem
            raise KernelRuntimeError(f"a vector of {self.m} numbers is needed, not of {what}")
        rows, columns, numbers = self.entries
        entries = np.arange(len(numbers))
        product = ProductScatter("A @ x", entries, columns, rows, self.n, self.dtype.dtype)
        is_shown = not isinstance(x, Ndarray)
        found: Ndarray | NDArray[np.number] = run_host_function(
            product, (numbers, x), None if is_shown else self.dtype, is_shown=is_shown
        )
        return found

    def _multiply(self, other: SparseMatrix) -> SparseMatrix:
        if self.m != other.n:
            raise KernelRuntimeError(
                f"these cannot be multiplied as matrices: {self.shape} and {other.shape}"
            )
        rows, columns, numbers = self.entries
        starts = np.searchsorted(other.entries[0], np.arange(other.n + 1))
        counts = (starts[1:] - starts[:-1])[columns]
        mine = np.repeat(np.arange(len(rows)), counts)
        # The k-th product of an entry uses the k-th entry of the other matrix's row.
        k = np.arange(len(mine)) - np.repeat(np.cumsum(counts) - counts, counts)
        its = starts[columns[mine]] + k
        made, given = self._like(self.n, other.m), (numbers, other.entries[2])
        return made.multiply_out("A @ B", given, rows[mine], other.entries[1][its], mine, its)

    # --- text output -------------------------------------------------------------------------

    def __str__(self) -> str:
        """All elements, or the first and last rows and columns of a matrix beyond numpy's print
        threshold."""
        rows, columns = self._printed_axes()
        texts = [[f"{x:g}" for x in line] for line in self._block(rows, columns).tolist()]
        width = max((len(x) for line in texts for x in line), default=0)
        cells = [[x.rjust(width) for x in line] for line in texts]
        if len(columns) < self.m:
            middle = len(columns) // 2
            cells = [[*line[:middle], "...", *line[middle:]] for line in cells]
        lines = ["[" + ", ".join(line) + "]" for line in cells]
        if len(rows) < self.n:
            lines.insert(len(rows) // 2, "...")
        return "\n".join(lines)

    def __repr__(self) -> str:
        """All elements of a small matrix; size, type and number of entries of a large one."""
        if self._is_small():
            return str(self)
        count = len(self.entries[0])
        return f"<ti.SparseMatrix {self.n} x {self.m} of {self.dtype}, {count} entries>"

    def _is_small(self) -> bool:
        return self.n * self.m <= int(np.get_printoptions()["threshold"])

    def _printed_axes(self) -> tuple[Any, Any]:
        """Return the printed rows and columns, ascending."""
        most = max(self.n, self.m) if self._is_small() else np.get_printoptions()["edgeitems"]
        first, second = (
            np.arange(n) if n <= 2 * most else np.append(np.arange(most), np.arange(n - most, n))
            for n in self.shape
        )
        return first, second

    def _block(self, rows: Array, columns: Array) -> Array:
        """Return the dense matrix of these rows and columns, which ascend."""
        at_row, at_column, numbers = self.entries
        dense = np.zeros((len(rows), len(columns)), self.dtype.dtype)
        chosen = np.isin(at_row, rows) & np.isin(at_column, columns)
        at_row, at_column = at_row[chosen], at_column[chosen]
        dense[np.searchsorted(rows, at_row), np.searchsorted(columns, at_column)] = numbers[chosen]
        return dense

    def mmwrite(self, filename: str) -> None:
        """Write a Matrix Market file with all digits of the values: 9 for f32, 17 for f64. Source:
        math.nist.gov/MatrixMarket/formats.html."""
        digits = 9 if self.dtype is f32 else 17
        lines = ["%%MatrixMarket matrix coordinate real general", "%"]
        lines.append(f"{self.n} {self.m} {len(self.entries[0])}")
        lines += [f"{i + 1} {j + 1} {x:.{digits}g}" for i, j, x in zip(*self.entries)]
        with open(filename, "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")


# --- builders ------------------------------------------------------------------------------------
#
# Sparse matrix builders: kernels add triplets, `build` sums them into a matrix.
#
# K = ti.linalg.SparseMatrixBuilder(4, 4, max_num_triplets=100)
#
# @ti.kernel
# def fill(A: ti.types.sparse_matrix_builder()):
#     for i in range(4):
#         A[i, i] += 2
#
# fill(K); A = K.build()


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
