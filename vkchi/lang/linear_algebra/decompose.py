"""Decompositions of small matrices, and small linear systems, in both scopes.

Signs and order of the results are Taichi's.

    >>> U, S, V = svd(Matrix([[3.0, 0.0], [0.0, -2.0]])); S
    [[3. 0.]
     [0. 2.]]

See also: `jacobi` (rotations), and `frontend.ops.decompositions` for calls in kernels.
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
from vkchi.lang.linear_algebra.jacobi import (
    DOUBLE,
    FloatPrecision,
    diagonalize,
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


# --- derivatives ---------------------------------------------------------------------------------
#
# Derivatives of singular values, eigenvalues and rotations, by implicit differentiation.
#
# The iterations of a decomposition contain selects and sorting. Their derivatives are wrong for
# equal values, for example at the identity matrix. A gradient therefore replaces the computed
# result (`with_derivative_of`) by a sum of two terms. The first is the same value without its first
# derivative (`stop_first_grad`). The second has the value 0 and the right derivative. Second
# derivatives are not supported.
#
# For A = U S V' and P = U' dA V:
#
#     dU = U (t + d) / 2                      dV = V (t - d) / 2
#     d_ij = (P_ij - P_ji) / (s_i + s_j)      t_ij = (P_ij + P_ji) / (s_j - s_i)
#
# For a symmetric A = Q W Q': dQ = Q t with t_ij = P_ij / (w_j - w_i).
#
# Equal values: t_ij does not exist if s_i = s_j, because U and V can be rotated together by any
# angle. Functions independent of this choice, such as U f(S) V', have a derivative. It is computed
# at S with close values moved apart (`separate_values`).
#
# Stored vectors: if U or V is stored unchanged, this is not possible. The derivative of stored
# vectors (third operand of `with_derivative_of`), and of values stored beside them, is taken at S
# itself. It is NaN (`undefined_slope`) for values that are close (`are_close`). Values stored
# without vectors keep their derivative.
#
# Source: Papadopoulo and Lourakis, "Estimating the Jacobian of the singular value decomposition",
# 2000.

Triple = tuple[Any, Any, Any]


def _same(x: Any) -> Any:
    return x


def _first(x: Any, y: Any, z: Any) -> Any:
    return x


stop_first_grad = Function("stop_first_grad", _same, "x; its first derivative is added elsewhere.")
undefined_slope = Function("undefined_slope", _same, "x; its derivative is NaN.")
with_derivative_of = Function(
    "with_derivative_of",
    _first,
    "x; y where a derivative of it is taken, z where it is stored as it is.",
)


def zero_with_derivative(x: Any) -> Any:
    """A value of 0 with the derivative of x."""
    return x - stop_first_grad(x)


def skew(entry: Callable[[int, int], Any], n: int) -> Any:
    """Return the skew-symmetric n by n matrix with entries entry(i, j) above its diagonal."""
    upper = {(i, j): entry(i, j) for j in range(n) for i in range(j)}
    lower = {(j, i): -x for (i, j), x in upper.items()}
    entries = {**upper, **lower, **{(i, i): upper[0, 1] * 0.0 for i in range(n)}}
    return pack([[entries[i, j] for j in range(n)] for i in range(n)])


def diagonal_of(m: Any) -> list[Any]:
    return [m[i, i] for i in range(shape_of(m)[0])]


def with_diagonal(numbers: list[Any]) -> Any:
    zero, n = numbers[0] * 0.0, len(numbers)
    return pack([[numbers[i] if i == j else zero for j in range(n)] for i in range(n)])


def separate_values(s: list[Any], precision: FloatPrecision) -> list[Any]:
    """Return descending values, moved up so that neighbours differ by at least epsilon**0.5 of
    their size.

    The last value is unchanged.
    """
    delta, apart = precision.epsilon**0.5, [s[-1]]
    for x in reversed(s[:-1]):
        y = apart[0]
        least = delta * max(abs(x), abs(y), precision.tiny)
        apart.insert(0, select(x - y < least, y + least, x))
    return apart


def are_close(x: Any, y: Any, precision: FloatPrecision) -> Any:
    """True if x and y differ by at most epsilon**0.75 times the larger absolute value."""
    return abs(x - y) <= precision.epsilon**0.75 * max(abs(x), abs(y))


def undefined_where_close(
    parts: list[Any], numbers: list[Any], precision: FloatPrecision
) -> list[Any]:
    """Give NaN derivatives to each of `parts` whose value in `numbers` is close to another.

    Changes the list `parts` and returns it; its values stay.
    """
    for i, x in enumerate(numbers):
        for j, y in enumerate(numbers):
            if i != j:
                is_close = are_close(x, y, precision)
                parts[i] = select(is_close, undefined_slope(parts[i]), parts[i])
    return parts


def undefined_columns(m: Any, numbers: list[Any], precision: FloatPrecision) -> Any:
    """Return the matrix m, with NaN derivatives for columns whose value in `numbers` is close to
    another."""
    columns = [pack(list(column)) for column in zip(*read_rows(m))]
    return pack(undefined_where_close(columns, numbers, precision)).transpose()


def values_with_derivatives(found: Any, slopes: Any, beside: Any) -> Any:
    """Return the values `found` with the derivatives of `slopes`.

    They have the derivatives of `beside` if vectors of the same call are stored unchanged.
    """
    return with_derivative_of(found, slopes, with_derivative_of(slopes, slopes, beside))


def safe_difference(x: Any, y: Any, precision: FloatPrecision) -> Any:
    """y - x; 1 if `are_close`."""
    return select(are_close(x, y, precision), 1.0, y - x)


def svd_with_slopes(m: Any, found: Triple, precision: FloatPrecision) -> Triple:
    """Return U, S, V of m: the values of `found`, in kernels with derivatives."""
    if not isinstance(m, Traced):
        return found
    u, s, v = map(stop_first_grad, found)
    exact = diagonal_of(s)
    size = [*exact[:-1], abs(exact[-1])]
    numbers = [*separate_values(size, precision)[:-1], exact[-1]]
    e = zero_with_derivative(u.transpose() @ m @ v)

    def turned(numbers: list[Any], minus: Callable[[Any, Any], Any]) -> Triple:
        d = skew(lambda i, j: (e[i, j] - e[j, i]) / minus(-numbers[i], numbers[j]), len(numbers))
        t = skew(lambda i, j: (e[i, j] + e[j, i]) / minus(numbers[i], numbers[j]), len(numbers))
        values = [x + slope for x, slope in zip(numbers, diagonal_of(e))]
        return u + u @ (t + d) * 0.5, with_diagonal(values), v + v @ (t - d) * 0.5

    stored_u, stored_s, stored_v = turned(exact, lambda x, y: safe_difference(x, y, precision))
    stored_s = undefined_where_close(diagonal_of(stored_s), size, precision)
    new_u, new_s, new_v = turned(numbers, lambda x, y: y - x)
    return (
        with_derivative_of(found[0], new_u, undefined_columns(stored_u, size, precision)),
        values_with_derivatives(found[1], new_s, with_diagonal(stored_s)),
        with_derivative_of(found[2], new_v, undefined_columns(stored_v, size, precision)),
    )


def polar_with_slopes(
    m: Any, rotation: Any, found: Triple, precision: FloatPrecision
) -> tuple[Any, Any]:
    """Return R = `rotation` and P = V @ S @ V' of m, in kernels with derivatives.

    `found` is U, S, V; `rotation` is U @ V'.
    """
    u, s, v = found
    stretch = v @ s @ v.transpose()
    if not isinstance(m, Traced):
        return rotation, stretch
    u, s, v = map(stop_first_grad, found)
    e = zero_with_derivative(u.transpose() @ m @ v)
    numbers = diagonal_of(s)

    def turn(i: int, j: int) -> Any:
        total = numbers[i] + numbers[j]
        is_some = abs(total) > precision.smallest
        return (e[i, j] - e[j, i]) / select(is_some, total, precision.smallest)

    r = stop_first_grad(rotation) + u @ skew(turn, len(numbers)) @ v.transpose()
    p = stop_first_grad(stretch) + zero_with_derivative(r.transpose() @ m)
    return with_derivative_of(rotation, r, r), with_derivative_of(stretch, p, p)


def eig_with_slopes(m: Any, found: tuple[Any, Any], precision: FloatPrecision) -> tuple[Any, Any]:
    """Return eigenvalues and eigenvectors of the symmetric m: `found`, in kernels with derivatives.

    Precondition: eigenvalues descend for 2 by 2 matrices and ascend for larger ones.
    """
    if not isinstance(m, Traced):
        return found
    w, q = map(stop_first_grad, found)
    n = shape_of(m)[0]
    exact = [w[i] for i in range(n)]
    numbers = (
        separate_values(exact, precision)
        if n == 2
        else separate_values(exact[::-1], precision)[::-1]
    )
    e = zero_with_derivative(q.transpose() @ m @ q)

    def turned(numbers: list[Any], minus: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
        t = skew(lambda i, j: e[i, j] / minus(numbers[i], numbers[j]), n)
        return [x + slope for x, slope in zip(numbers, diagonal_of(e))], q + q @ t

    stored_w, stored_q = turned(exact, lambda x, y: safe_difference(x, y, precision))
    stored_w = undefined_where_close(stored_w, exact, precision)
    new_w, new_q = turned(numbers, lambda x, y: y - x)
    return (
        values_with_derivatives(found[0], pack(new_w), pack(stored_w)),
        with_derivative_of(found[1], new_q, undefined_columns(stored_q, exact, precision)),
    )


def spd_with_slopes(m: Any, found: tuple[Any, Any], precision: FloatPrecision) -> Any:
    """Return the projection of the symmetric m to positive semidefinite matrices, in kernels with
    derivatives. `found` are its eigenvalues and eigenvectors.

    For M = Q f(W) Q' with f(w) = max(w, 0): dM = Q (K * Q' dA Q) Q', where the product `*` is by
    components, and K_ij = (f(w_i) - f(w_j)) / (w_i - w_j). K is 1 or 0 for values of one sign, also
    for equal ones. Source: Daleckii and Krein, 1951.
    """
    w, q = found
    n = shape_of(m)[0]
    kept = with_diagonal([max(w[i], 0.0) for i in range(n)])
    projected = q @ kept @ q.transpose()
    if not isinstance(m, Traced):
        return projected
    w, q = stop_first_grad(w), stop_first_grad(q)
    e = zero_with_derivative(q.transpose() @ m @ q)

    def quotient(x: Any, y: Any) -> Any:
        low, high = -max(-x, -y), max(x, y)
        mixed = high / select(high > low, high - low, 1.0)
        return select(low >= 0.0, 1.0, select(high <= 0.0, 0.0, mixed))

    slopes = pack([[e[i, j] * quotient(w[i], w[j]) for j in range(n)] for i in range(n)])
    made = stop_first_grad(projected) + q @ slopes @ q.transpose()
    return with_derivative_of(projected, made, made)


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
    return eig_with_slopes(from_upper(m), _sym_eig3(m, precision), precision)


def sym_eig_n(m: Any, precision: FloatPrecision) -> tuple[Any, Any]:
    """Return the eigenvalues, ascending, and eigenvectors, as columns, of a symmetric matrix.

    Components below the diagonal are taken to equal those above. Signs of eigenvectors are open.
    """
    read = from_upper(m)
    return eig_with_slopes(read, _sym_eig_n(m, precision), precision)


def spd(m: Any, precision: FloatPrecision) -> Any:
    """Return the closest positive semidefinite matrix of a symmetric one.

    Components below the diagonal are taken to equal those above.
    """
    n, read = shape_of(m)[0], from_upper(m)
    found = _sym_eig2(read, precision) if n == 2 else _sym_eig_n(read, precision)
    return spd_with_slopes(read, found, precision)


def from_upper(m: Any) -> Any:
    """The symmetric matrix with the components of m on and above the diagonal."""
    n = shape_of(m)[0]
    return pack([[m[i, j] if i <= j else m[j, i] for j in range(n)] for i in range(n)])


def _sym_eig_n(m: Any, precision: FloatPrecision) -> tuple[Any, Any]:
    a, size = scale_to_one(m, precision)
    w, v = diagonalize(a, precision)
    for p in range(len(w)):
        for q in range(p + 1, len(w)):
            is_more = w[p] > w[q]
            w[p], w[q] = select(is_more, w[q], w[p]), select(is_more, w[p], w[q])
            v[p], v[q] = select(is_more, v[q], v[p]), select(is_more, v[p], v[q])
    return pack(w) * size, from_columns(*v)


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
    known = [f"{n} by {n}" for n in sizes]
    words = " and ".join(known) if len(known) < 3 else f"{known[0]} to {known[-1]}"
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
        found = formula_for(name, sizes, m)(m, DOUBLE)
        is_several = isinstance(found, tuple)
        return tuple(_cast(x, dt) for x in found) if is_several else _cast(found, dt)

    return language_function(name, decompose, doc)


_TABLE: tuple[tuple[str, Formulas, str], ...] = (
    ("svd", {2: svd2, 3: svd3}, "U, S, V with A = U @ S @ V.transpose(); S is diagonal."),
    ("polar_decompose", {2: polar2, 3: polar3}, "R, P with A = R @ P; P is symmetric."),
    (
        "sym_eig",
        {2: sym_eig2, 3: sym_eig3, 4: sym_eig_n, 5: sym_eig_n, 6: sym_eig_n},
        "Eigenvalues and vectors, A being symmetric.",
    ),
    (
        "make_spd",
        dict.fromkeys(range(2, 7), spd),
        "The closest positive semidefinite matrix of A, which is symmetric.",
    ),
    ("eig", {2: eig2}, "Eigenvalues (n by 2) and eigenvectors (2n by n), complex."),
)
# function -> its formulas
DECOMPOSITIONS: dict[Any, Formulas] = {
    _decomposition(name, sizes, doc): sizes for name, sizes, doc in _TABLE
}
svd: Decomposition[tuple[Matrix, Matrix, Matrix]]
polar_decompose: Decomposition[tuple[Matrix, Matrix]]
sym_eig: Decomposition[tuple[Vector, Matrix]]
make_spd: Decomposition[Matrix]
eig: Decomposition[tuple[Matrix, Matrix]]
svd, polar_decompose, sym_eig, make_spd, eig = DECOMPOSITIONS


def _solve(A: Any, b: Any, dt: Any = None) -> Any:
    m, v = _in_python(A), _in_python(b)
    check_system(m, v)
    return _cast(gaussian_elimination(m, v), dt)


solve = Function("solve", _solve, "x with A @ x = b, for a square A up to 4 by 4.")


def _stop_grad(x: Any) -> Any:
    return x


stop_grad = Function("stop_grad", _stop_grad, "x, through which no derivative flows.")
