"""Linear algebra of vectors and matrices: norms, products, determinant and inverse up to 4 by 4.

The formulas serve both scopes. Arguments are `lang.matrix.Matrix` values or the frontend's Handles.
Both have operators, `shape`, indexing, `sum`, and `pack` (a new vector or matrix from a list or a
list of rows).

    >>> norm(Vector([3.0, 4.0]))
    5.0
"""

from __future__ import annotations

from typing import Any

from vkchi.errors import KernelTypeError
from vkchi.lang.elementwise import evaluate_elementwise, rsqrt, sqrt
from vkchi.lang.function import Traced
from vkchi.types.lazy_numpy import np

Rows = list[list[Any]]


def _is_zero(eps: Any) -> bool:
    return isinstance(eps, int | float) and eps == 0


def _reciprocal(x: Any) -> Any:
    """1 / x; inf or nan for 0, in Python scope too."""
    is_traced = isinstance(x, Traced)
    return 1.0 / x if is_traced else evaluate_elementwise(np.true_divide, 1.0, x)


def shape_of(x: Any) -> tuple[int, ...]:
    """Return `x.shape` as a tuple: (n,) of a vector, (n, m) of a matrix; () if x has no `shape`."""
    return tuple(getattr(x, "shape", ()))


def shape_text(x: Any) -> str:
    """Describe the shape of x for messages: `vector of 3`, `2 by 2 matrix`, or `scalar`."""
    shape = shape_of(x)
    if len(shape) == 2:
        return f"{shape[0]} by {shape[1]} matrix"
    return f"vector of {shape[0]}" if shape else "scalar"


def check_vectors(name: str, *values: Any) -> None:
    """Raise KernelTypeError unless all values are vectors of the same length."""
    shapes = [shape_of(v) for v in values]
    if any(len(s) != 1 for s in shapes) or len(set(shapes)) != 1:
        given = " and ".join(shape_text(v) for v in values)
        raise KernelTypeError(f"`{name}` takes vectors of the same length", label=given)


def check_square(name: str, m: Any) -> int:
    """Return the size of a square matrix. Raises KernelTypeError for other shapes."""
    shape = shape_of(m)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise KernelTypeError(f"`{name}` takes a square matrix", label=shape_text(m))
    return int(shape[0])


def norm_sqr(v: Any) -> Any:
    """Sum of the squared components. Raises KernelTypeError for a scalar."""
    if not shape_of(v):
        raise KernelTypeError("a norm is of a vector or matrix", label=shape_text(v))
    return (v * v).sum()


def norm(v: Any, eps: Any = 0) -> Any:
    """sqrt(sum of squares + eps)."""
    square = norm_sqr(v)
    return sqrt(square if _is_zero(eps) else square + eps)


def norm_inv(v: Any, eps: Any = 0) -> Any:
    """1 / norm(v, eps)."""
    square = norm_sqr(v)
    return rsqrt(square if _is_zero(eps) else square + eps)


def normalized(v: Any, eps: Any = 0) -> Any:
    """v / (norm(v) + eps)."""
    length = norm(v)
    return v * _reciprocal(length if _is_zero(eps) else length + eps)


def dot(a: Any, b: Any) -> Any:
    """Inner product. Raises KernelTypeError unless a and b are vectors of one length."""
    check_vectors("dot", a, b)
    return (a * b).sum()


def cross(a: Any, b: Any) -> Any:
    """Cross product of vectors of 3; for vectors of 2, its third component, a scalar.

    Raises KernelTypeError for other shapes.
    """
    check_vectors("cross", a, b)
    if a.shape[0] == 3:
        return a.yzx * b.zxy - a.zxy * b.yzx
    if a.shape[0] == 2:
        return a.x * b.y - a.y * b.x
    raise KernelTypeError("`cross` takes vectors of 2 or 3", label=shape_text(a))


def trace(m: Any) -> Any:
    """Sum of the diagonal of a square matrix. Raises KernelTypeError for other shapes."""
    total = None
    for k in range(check_square("trace", m)):
        total = m[k, k] if total is None else total + m[k, k]
    return total


def read_rows(m: Any) -> Rows:
    n, k = m.shape
    return [[m[i, j] for j in range(k)] for i in range(n)]


def determinant(m: Any) -> Any:
    """Determinant of a square matrix up to 4 by 4. Raises KernelTypeError for other shapes."""
    n = check_square("determinant", m)
    if n > 4:
        raise KernelTypeError("`determinant` takes matrices up to 4 by 4", label=shape_text(m))
    return DETERMINANTS[n](read_rows(m))


def inverse(m: Any) -> Any:
    """Inverse of a square matrix up to 4 by 4, as adjugate over determinant.

    Has inf or nan if the determinant is 0. Raises KernelTypeError for other shapes.
    """
    n = check_square("inverse", m)
    if n > 4:
        raise KernelTypeError("`inverse` takes matrices up to 4 by 4", label=shape_text(m))
    rows, det = ADJUGATES[n](read_rows(m))
    return m.pack(rows) * _reciprocal(det)


def _det1(m: Rows) -> Any:
    return m[0][0]


def _det2(m: Rows) -> Any:
    return m[0][0] * m[1][1] - m[0][1] * m[1][0]


def _det3(m: Rows) -> Any:
    return sum_products(m[0], _cofactors3(m)[0])


def _det4(m: Rows) -> Any:
    s, c = _minors4(m)
    return _det_of_minors(s, c)


def sum_products(xs: list[Any], ys: list[Any]) -> Any:
    total = xs[0] * ys[0]
    for x, y in zip(xs[1:], ys[1:]):
        total = total + x * y
    return total


def _cofactors3(m: Rows) -> Rows:
    def cofactor(i: int, j: int) -> Any:
        a, b = (i + 1) % 3, (i + 2) % 3
        c, d = (j + 1) % 3, (j + 2) % 3
        return m[a][c] * m[b][d] - m[a][d] * m[b][c]

    return [[cofactor(i, j) for j in range(3)] for i in range(3)]


_PAIRS = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))


def _minors4(m: Rows) -> tuple[list[Any], list[Any]]:
    """Return the 2 by 2 minors of the upper two rows, and of the lower two; columns as in
    `_PAIRS`."""
    s = [m[0][i] * m[1][j] - m[0][j] * m[1][i] for i, j in _PAIRS]
    c = [m[2][i] * m[3][j] - m[2][j] * m[3][i] for i, j in _PAIRS]
    return s, c


def _det_of_minors(s: list[Any], c: list[Any]) -> Any:
    return s[0] * c[5] - s[1] * c[4] + s[2] * c[3] + s[3] * c[2] - s[4] * c[1] + s[5] * c[0]


def _adjugate1(m: Rows) -> tuple[Rows, Any]:
    return [[m[0][0] * 0 + 1]], m[0][0]


def _adjugate2(m: Rows) -> tuple[Rows, Any]:
    return [[m[1][1], -m[0][1]], [-m[1][0], m[0][0]]], _det2(m)


def _adjugate3(m: Rows) -> tuple[Rows, Any]:
    cofactors = _cofactors3(m)
    adjugate = [[cofactors[j][i] for j in range(3)] for i in range(3)]
    return adjugate, sum_products(m[0], cofactors[0])


# For a 4 by 4 matrix without column i: indices into `_PAIRS` of the minors that multiply the
# remaining components of a row.
_MINORS_WITHOUT = {0: (5, 4, 3), 1: (5, 2, 1), 2: (4, 2, 0), 3: (3, 1, 0)}


def _adjugate4(m: Rows) -> tuple[Rows, Any]:
    s, c = _minors4(m)

    def entry(i: int, j: int) -> Any:
        row, minors = m[(1, 0, 3, 2)[j]], c if j < 2 else s
        others = [row[k] for k in range(4) if k != i]
        p, q, r = (minors[k] for k in _MINORS_WITHOUT[i])
        value = others[0] * p - others[1] * q + others[2] * r
        return value if (i + j) % 2 == 0 else -value

    return [[entry(i, j) for j in range(4)] for i in range(4)], _det_of_minors(s, c)


DETERMINANTS = {1: _det1, 2: _det2, 3: _det3, 4: _det4}
ADJUGATES = {1: _adjugate1, 2: _adjugate2, 3: _adjugate3, 4: _adjugate4}
