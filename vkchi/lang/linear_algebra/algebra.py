"""Shape, norms and reductions of Python's vectors and matrices.

    >>> Vector([3.0, 4.0]).norm()
    5.0

See also: `linear` has the formulas, `matrix` the constructors and operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.lang.linear_algebra import linear
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class MatrixReductions:
    """Base of vectors and matrices: shape, norms, reductions and conversions."""

    __slots__ = ()

    @property
    def entries(self) -> NDArray[Any]:
        """The components as a numpy array. Subclasses define it."""
        raise NotImplementedError

    def wrap(self, result: object) -> Any:
        """Return a numpy result as a Python number, Vector or Matrix. Subclasses define it."""
        raise NotImplementedError

    # --- shape -------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,) of a vector, (n, m) of a matrix."""
        return tuple(self.entries.shape)

    @property
    def n(self) -> int:
        """Number of rows, or the length of a vector."""
        return self.shape[0]

    @property
    def m(self) -> int:
        """Number of columns; 1 for a vector."""
        return self.shape[1] if len(self.shape) == 2 else 1

    @property
    def ndim(self) -> int:
        """1 for a vector, 2 for a matrix."""
        return len(self.shape)

    def get_shape(self) -> tuple[int, ...]:
        """The same as `shape`."""
        return self.shape

    # --- norms and determinants ---------------------------------------------------------------

    def norm(self, eps: float = 0) -> float:
        """sqrt(sum of squares + eps)."""
        return linear.norm(self, eps)

    def norm_sqr(self) -> float:
        """Sum of the squared components."""
        return linear.norm_sqr(self)

    def norm_inv(self, eps: float = 0) -> float:
        """1 / norm(eps)."""
        return linear.norm_inv(self, eps)

    def trace(self) -> float:
        """Sum of the diagonal of a square matrix. Raises KernelTypeError for other shapes."""
        return linear.trace(self)

    def determinant(self) -> float:
        """Determinant of a square matrix up to 4 by 4. Raises KernelTypeError for other shapes."""
        return linear.determinant(self)

    # --- reductions ----------------------------------------------------------------------------

    # np.sum(v) and the like call these methods with `axis` and `out`.

    def sum(self, axis: int | None = None, out: None = None) -> Any:
        """Sum of all components, or the sums along an `axis`. `out` is ignored."""
        return self.wrap(self.entries.sum(axis))

    def max(self, axis: int | None = None, out: None = None) -> Any:
        """The largest component, or the largest ones along an `axis`. `out` is ignored."""
        return self.wrap(self.entries.max(axis))

    def min(self, axis: int | None = None, out: None = None) -> Any:
        """The smallest component, or the smallest ones along an `axis`. `out` is ignored."""
        return self.wrap(self.entries.min(axis))

    def any(self, axis: int | None = None, out: None = None) -> Any:
        """True if any component is nonzero, or a bool for each line along an `axis`. `out` is
        ignored."""
        return self.wrap(self.entries.any(axis))

    def all(self, axis: int | None = None, out: None = None) -> Any:
        """True if all components are nonzero, or a bool for each line along an `axis`. `out` is
        ignored."""
        return self.wrap(self.entries.all(axis))

    # --- conversions -------------------------------------------------------------------------

    def to_numpy(self) -> NDArray[Any]:
        """A copy as a numpy array."""
        return np.array(self.entries)

    def to_list(self) -> list[Any]:
        """A list of Python numbers, or of rows."""
        return self.entries.tolist()
