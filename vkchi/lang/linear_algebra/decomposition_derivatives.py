"""Derivatives of singular values, eigenvalues and rotations, by implicit differentiation.

The iterations of a decomposition contain selects and sorting. Their derivatives are wrong for equal
values, for example at the identity matrix. A gradient therefore replaces the computed result
(`with_derivative_of`) by a sum of two terms. The first is the same value without its first
derivative (`stop_first_grad`). The second has the value 0 and the right derivative. Second
derivatives are not supported.

For A = U S V' and P = U' dA V:

    dU = U (t + d) / 2                      dV = V (t - d) / 2
    d_ij = (P_ij - P_ji) / (s_i + s_j)      t_ij = (P_ij + P_ji) / (s_j - s_i)

For a symmetric A = Q W Q': dQ = Q t with t_ij = P_ij / (w_j - w_i).

Equal values: t_ij does not exist if s_i = s_j, because U and V can be rotated together by any
angle. Functions independent of this choice, such as U f(S) V', have a derivative. It is computed at
S with close values moved apart (`separate_values`).

Stored vectors: if U or V is stored unchanged, this is not possible. The derivative of stored
vectors (third operand of `with_derivative_of`), and of values stored beside them, is taken at S
itself. It is NaN (`undefined_slope`) for values that are close (`are_close`). Values stored without
vectors keep their derivative.

Source: Papadopoulo and Lourakis, "Estimating the Jacobian of the singular value decomposition",
2000.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vkchi.lang.elementwise import abs, max, select
from vkchi.lang.function import Function, Traced
from vkchi.lang.linear_algebra.jacobi import FloatPrecision
from vkchi.lang.linear_algebra.linear import read_rows, shape_of
from vkchi.lang.matrix import pack

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

    Precondition: eigenvalues descend for 2 by 2 matrices and ascend for 3 by 3.
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
