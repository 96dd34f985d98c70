"""Decompositions of 2 by 2 and 3 by 3 matrices, and small linear systems, in both scopes.

Signs and order of the results are Taichi's.

    >>> U, S, V = svd(Matrix([[3.0, 0.0], [0.0, -2.0]])); S
    [[3. 0.]
     [0. 2.]]

See also: `jacobi` (rotations), `decomposition_derivatives`, and `frontend.ops.decompositions` for
calls in kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vkchi.errors import KernelTypeError
from vkchi.lang.elementwise import (
    abs,
    cast_numbers,
    entries_of,
    evaluate_elementwise,
    max,
    select,
    sqrt,
)
from vkchi.lang.function import Function, Traced, language_function
from vkchi.lang.linear_algebra.decomposition_derivatives import (
    Triple,
    eig_with_slopes,
    polar_with_slopes,
    svd_with_slopes,
    with_diagonal,
)
from vkchi.lang.linear_algebra.jacobi import (
    DOUBLE,
    FloatPrecision,
    diagonalize3,
    identity_like,
    normalize_or,
    order_by_length,
    orthogonalize2,
    orthogonalize3,
    perpendicular,
    scale_to_one,
    sort3,
)
from vkchi.lang.linear_algebra.linear import read_rows, shape_of, shape_text
from vkchi.lang.matrix import Matrix, pack
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.lang.matrix import Vector
    from vkchi.protocols import Decomposition

# --- singular values -----------------------------------------------------------------------------


def columns_of(m: Any) -> list[Any]:
    return [pack(list(column)) for column in zip(*read_rows(m))]


def from_columns(*columns: Any) -> Any:
    return pack(list(columns)).transpose()


def svd2(m: Any, precision: FloatPrecision) -> Triple:
    """Return U, S, V of a 2 by 2 matrix, with m = U @ S @ V.transpose().

    S is diagonal, descending and nonnegative. U is orthogonal, V is a rotation.
    """
    return svd_with_slopes(m, _svd2(m, precision), precision)


def svd3(m: Any, precision: FloatPrecision) -> Triple:
    """Return U, S, V of a 3 by 3 matrix, with m = U @ S @ V.transpose().

    U and V are rotations. S is diagonal and descends by absolute value; its last value has the sign
    of the determinant.
    """
    return svd_with_slopes(m, _svd3(m, precision), precision)


def _svd2(m: Any, precision: FloatPrecision) -> Triple:
    a, size = scale_to_one(m, precision)
    a0, a1 = columns_of(a)
    b0, b1, v0, v1 = order_by_length(*orthogonalize2(a0, a1, precision))
    v = from_columns(v0, v1)
    u = orthogonal_factor2(a, precision) @ v
    numbers = [sqrt(b0.dot(b0)) * size, abs(columns_of(u)[1].dot(b1)) * size]
    return u, with_diagonal(numbers), v


def orthogonal_factor2(a: Any, precision: FloatPrecision) -> Any:
    """Return the orthogonal matrix R nearest to a 2 by 2 matrix A: it maximizes the trace of R' A.

    R is a reflection if the determinant of A is negative, otherwise a rotation.

    Source: F. Uhlig, "Explicit polar decomposition and a near-characteristic polynomial", 1981.
    """
    side = select(a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0] < 0.0, -1.0, 1.0)
    sum_of = pack([a[0, 0] + side * a[1, 1], a[1, 0] - side * a[0, 1]])
    turn, _ = normalize_or(sum_of, identity_like(sum_of)[0], precision)
    return pack([[turn.x, -side * turn.y], [turn.y, side * turn.x]])


def _svd3(m: Any, precision: FloatPrecision) -> Triple:
    a, size = scale_to_one(m, precision)
    b0, b1, b2, *v = sort3(orthogonalize3(columns_of(a), precision))
    u0, s0 = normalize_or(b0, identity_like(b0)[0], precision)
    u1, _ = normalize_or(b1 - u0 * u0.dot(b1), perpendicular(u0), precision)
    u1, _ = normalize_or(u1 - u0 * u0.dot(u1), u1, precision)
    u2 = u0.cross(u1)
    numbers = [s0 * size, u1.dot(b1) * size, u2.dot(b2) * size]
    return from_columns(u0, u1, u2), with_diagonal(numbers), from_columns(*v)


def polar2(m: Any, precision: FloatPrecision) -> tuple[Any, Any]:
    """Return R, P of a 2 by 2 matrix, with m = R @ P: R is orthogonal, P positive semidefinite."""
    rotation = orthogonal_factor2(scale_to_one(m, precision)[0], precision)
    return polar_with_slopes(m, rotation, _svd2(m, precision), precision)


def polar3(m: Any, precision: FloatPrecision) -> tuple[Any, Any]:
    """Return R, P of a 3 by 3 matrix, with m = R @ P: R is a rotation, P symmetric.

    P has one negative eigenvalue if the determinant is negative.
    """
    u, s, v = _svd3(m, precision)
    return polar_with_slopes(m, u @ v.transpose(), (u, s, v), precision)


# --- eigenvalues ---------------------------------------------------------------------------------


def sym_eig2(m: Any, precision: FloatPrecision) -> tuple[Any, Any]:
    """Return the eigenvalues, descending, and eigenvectors, as columns, of a symmetric 2 by 2
    matrix.

    The component above the diagonal is taken to equal the one below.
    """
    read = pack([[m[0, 0], m[1, 0]], [m[1, 0], m[1, 1]]])
    return eig_with_slopes(read, _sym_eig2(m, precision), precision)


def sym_eig3(m: Any, precision: FloatPrecision) -> tuple[Any, Any]:
    """Return the eigenvalues, ascending, and eigenvectors, as columns, of a symmetric 3 by 3
    matrix.

    Components below the diagonal are taken to equal those above. The eigenvectors form a rotation;
    the last components of the first and third are nonnegative.
    """
    read = pack([[m[i, j] if i <= j else m[j, i] for j in range(3)] for i in range(3)])
    return eig_with_slopes(read, _sym_eig3(m, precision), precision)


def _sym_eig2(m: Any, precision: FloatPrecision) -> tuple[Any, Any]:
    a, size = scale_to_one(m, precision)
    half, off = (a[0, 0] - a[1, 1]) * 0.5, a[1, 0]
    mean, radius = (a[0, 0] + a[1, 1]) * 0.5, sqrt(half * half + off * off)
    # (A - mean) has eigenvalues +-radius. Both formulas avoid cancellation.
    is_upper, side = half >= 0.0, select(off < 0.0, -1.0, 1.0)
    first = select(is_upper, radius + half, abs(off))
    second = select(is_upper, abs(off), radius - half)
    v, _ = normalize_or(pack([first, second]), pack([1.0, 0.0]), precision)
    vectors = pack([[v.x, -v.y], [v.y * side, v.x * side]])
    return pack([mean + radius, mean - radius]) * size, vectors


def _sym_eig3(m: Any, precision: FloatPrecision) -> tuple[Any, Any]:
    a, size = scale_to_one(m, precision)
    found = diagonalize3(a, precision)
    for p, q in ((0, 1), (0, 2), (1, 2)):
        is_more = found[p] > found[q]
        for low, high in ((p, q), (p + 3, q + 3)):
            x, y = found[low], found[high]
            found[low], found[high] = select(is_more, y, x), select(is_more, x, y)
    w0, w1, w2, v0, _, v2 = found
    v0, v2 = (select(v.z < 0.0, -v, v) for v in (v0, v2))
    return pack([w0, w1, w2]) * size, from_columns(v0, v2.cross(v0), v2)


def eig2(m: Any, precision: FloatPrecision) -> tuple[Any, Any]:
    """Return the eigenvalues and eigenvectors of a real 2 by 2 matrix.

    Eigenvalues are rows (real, imaginary); the larger, or the one with positive imaginary part, is
    first. Eigenvectors are columns of (real, imaginary) pairs.
    """
    a, size = scale_to_one(m, precision)
    half, mean = (a[0, 0] - a[1, 1]) * 0.5, (a[0, 0] + a[1, 1]) * 0.5
    square = half * half + a[0, 1] * a[1, 0]
    radius, is_real = sqrt(abs(square)), square >= 0.0
    zero = radius * 0.0
    re, im = select(is_real, radius, zero), select(is_real, zero, radius)
    values = pack([[mean + re, im], [mean - re, -im]]) * size
    x0, y0 = _real_vector(a, half, re, pack([1.0, 0.0]), precision)
    x1, y1 = _real_vector(a, half, -re, pack([0.0, 1.0]), precision)
    length = max(sqrt(half * half + im * im + a[1, 0] * a[1, 0]), precision.tiny)
    z = pack([half, im, a[1, 0], zero]) / length
    first = select(is_real, pack([x0, zero, y0, zero]), z)
    second = select(is_real, pack([x1, zero, y1, zero]), pack([z[0], -z[1], z[2], zero]))
    return values, from_columns(first, second)


def _real_vector(a: Any, half: Any, root: Any, otherwise: Any, precision: FloatPrecision) -> Any:
    p, q = pack([half + root, a[1, 0]]), pack([a[0, 1], root - half])
    q = select(p.dot(q) < 0.0, -q, q)
    v = select(p.dot(p) >= q.dot(q), p, q)
    return normalize_or(v, otherwise, precision)[0]


# --- linear systems ------------------------------------------------------------------------------


def divide_or_inf(x: Any, y: Any) -> Any:
    """x / y; inf or nan for y = 0, in Python scope too."""
    is_traced = isinstance(x, Traced) or isinstance(y, Traced)
    return x / y if is_traced else evaluate_elementwise(np.true_divide, x, y)


def gaussian_elimination(m: Any, b: Any) -> Any:
    """Return x with m @ x = b, by Gaussian elimination with partial pivoting.

    It has inf or nan if a pivot is 0. Rounding may leave a nonzero pivot for a singular m.
    """
    n = m.shape[0]
    rows = [pack([*row, b[i]]) for i, row in enumerate(read_rows(m))]
    for k in range(n):
        for i in range(k + 1, n):
            is_larger = abs(rows[i][k]) > abs(rows[k][k])
            rows[k], rows[i] = (
                select(is_larger, rows[i], rows[k]),
                select(is_larger, rows[k], rows[i]),
            )
        for i in range(k + 1, n):
            rows[i] = rows[i] - rows[k] * divide_or_inf(rows[i][k], rows[k][k])
    found: list[Any] = [None] * n
    for i in reversed(range(n)):
        left = rows[i][n]
        for j in range(i + 1, n):
            left = left - rows[i][j] * found[j]
        found[i] = divide_or_inf(left, rows[i][i])
    return pack(found)


# --- public functions ----------------------------------------------------------------------------

# size of the matrix -> formula(matrix, precision)
Formulas = dict[int, Callable[[Any, FloatPrecision], Any]]


def formula_for(name: str, sizes: Formulas, m: Any) -> Callable[[Any, FloatPrecision], Any]:
    """Return the entry of `sizes` for the size of the square matrix m.

    Raises KernelTypeError if m is not a square matrix of one of these sizes.
    """
    shape = shape_of(m)
    if len(shape) == 2 and shape[0] == shape[1] and shape[0] in sizes:
        return sizes[shape[0]]
    words = " and ".join(f"{n} by {n}" for n in sizes)
    raise KernelTypeError(f"`{name}` takes matrices of {words}", label=shape_text(m))


def check_system(m: Any, b: Any) -> None:
    """Raise KernelTypeError unless m is square, up to 4 by 4, and b a vector of the same size."""
    shape = shape_of(m)
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] > 4 or shape_of(b) != shape[:1]:
        raise KernelTypeError(
            "`solve` takes a square matrix up to 4 by 4 and a vector of the same length",
            label=f"{shape_text(m)} and {shape_text(b)}",
        )


def _in_python(x: Any) -> Any:
    """Return a vector or matrix with components of 64-bit floats; a scalar as it is."""
    return Matrix(np.array(entries_of(x), np.float64)) if np.ndim(entries_of(x)) else x


def _cast(x: Any, dt: Any) -> Any:
    return x if dt is None else cast_numbers(x, dt)


def _decomposition(name: str, sizes: Formulas, doc: str) -> Any:
    def decompose(A: Any, dt: Any = None) -> Any:
        m = _in_python(A)
        return tuple(_cast(x, dt) for x in formula_for(name, sizes, m)(m, DOUBLE))

    return language_function(name, decompose, doc)


_TABLE: tuple[tuple[str, Formulas, str], ...] = (
    ("svd", {2: svd2, 3: svd3}, "U, S, V with A = U @ S @ V.transpose(); S is diagonal."),
    ("polar_decompose", {2: polar2, 3: polar3}, "R, P with A = R @ P; P is symmetric."),
    ("sym_eig", {2: sym_eig2, 3: sym_eig3}, "Eigenvalues and vectors, A being symmetric."),
    ("eig", {2: eig2}, "Eigenvalues (n by 2) and eigenvectors (2n by n), complex."),
)
# function -> its formulas
DECOMPOSITIONS: dict[Any, Formulas] = {
    _decomposition(name, sizes, doc): sizes for name, sizes, doc in _TABLE
}
svd: Decomposition[tuple[Matrix, Matrix, Matrix]]
polar_decompose: Decomposition[tuple[Matrix, Matrix]]
sym_eig: Decomposition[tuple[Vector, Matrix]]
eig: Decomposition[tuple[Matrix, Matrix]]
svd, polar_decompose, sym_eig, eig = DECOMPOSITIONS


def _solve(A: Any, b: Any, dt: Any = None) -> Any:
    m, v = _in_python(A), _in_python(b)
    check_system(m, v)
    return _cast(gaussian_elimination(m, v), dt)


solve = Function("solve", _solve, "x with A @ x = b, for a square A up to 4 by 4.")


def _stop_grad(x: Any) -> Any:
    return x


stop_grad = Function("stop_grad", _stop_grad, "x, through which no derivative flows.")
