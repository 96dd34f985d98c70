"""Derivatives of singular values, eigenvalues and rotations, where the decomposition is traced.

A decomposition is iterations, choices and sorted columns: derivatives that follow those are wrong
where values are equal, as of the unit matrix. So a gradient puts in place of what was computed
(`with_derivative_of`) the same, without its first derivative (`stop_first_grad`), plus what is 0
and has the right one. Of A = U S V', with P = U' dA V: dU = U (t + d) / 2 and
dV = V (t - d) / 2, where d_ij = (P_ij - P_ji) / (s_i + s_j) and t_ij = (P_ij + P_ji) / (s_j - s_i).
Of a symmetric A = Q W Q': dQ = Q t, t_ij = P_ij / (w_j - w_i).

Where s_i and s_j are equal there is no t_ij, for U and V can be turned together by any amount. What
does not depend on this choice, such as U f(S) V', has a derivative, which comes of the limit of
(f(s_j) - f(s_i)) / (s_j - s_i). So the gradient is taken at S with close values `spread` by the
square root of the type's precision, where both this quotient and its rounding are about as exact
as that root. Second derivatives are refused.

Must not know: how the values are found. Source: Papadopoulo and Lourakis, "Estimating the Jacobian
of the singular value decomposition", 2000.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vkchi.lang.elementwise import abs, max, select
from vkchi.lang.function import Function, Traced
from vkchi.lang.jacobi import Precision
from vkchi.lang.linear import shape_of
from vkchi.lang.matrix import pack

Triple = tuple[Any, Any, Any]


def _same(x: Any) -> Any:
    return x


def _first(x: Any, y: Any) -> Any:
    return x


stop_first_grad = Function("stop_first_grad", _same, "x; its first derivative is added elsewhere.")
with_derivative_of = Function(
    "with_derivative_of", _first, "x; y where a derivative of it is taken."
)


def only_slope(x: Any) -> Any:
    """0, with the derivative of x."""
    return x - stop_first_grad(x)


def skew(entry: Callable[[int, int], Any], n: int) -> Any:
    """The skew matrix with the entries entry(i, j) above its diagonal."""
    upper = {(i, j): entry(i, j) for j in range(n) for i in range(j)}
    lower = {(j, i): -x for (i, j), x in upper.items()}
    entries = {**upper, **lower, **{(i, i): upper[0, 1] * 0.0 for i in range(n)}}
    return pack([[entries[i, j] for j in range(n)] for i in range(n)])


def diagonal_of(m: Any) -> list[Any]:
    """The numbers on the diagonal."""
    return [m[i, i] for i in range(shape_of(m)[0])]


def with_diagonal(numbers: list[Any]) -> Any:
    """The matrix with these numbers on its diagonal."""
    zero, n = numbers[0] * 0.0, len(numbers)
    return pack([[numbers[i] if i == j else zero for j in range(n)] for i in range(n)])


def spread(s: list[Any], precision: Precision) -> list[Any]:
    """Descending numbers, each at least the root of the precision away from the next, relative to
    its size; the last one as it is."""
    delta, apart = precision.epsilon**0.5, [s[-1]]
    for x in reversed(s[:-1]):
        y = apart[0]
        least = delta * max(abs(x), abs(y), precision.tiny)
        apart.insert(0, select(x - y < least, y + least, x))
    return apart


def svd_with_slopes(m: Any, found: Triple, precision: Precision) -> Triple:
    """U, S, V of m as found, with derivatives."""
    if not isinstance(m, Traced):
        return found
    u, s, v = map(stop_first_grad, found)
    numbers = diagonal_of(s)
    numbers = [*spread([*numbers[:-1], abs(numbers[-1])], precision)[:-1], numbers[-1]]
    e = only_slope(u.transpose() @ m @ v)
    d = skew(lambda i, j: (e[i, j] - e[j, i]) / (numbers[i] + numbers[j]), len(numbers))
    t = skew(lambda i, j: (e[i, j] + e[j, i]) / (numbers[j] - numbers[i]), len(numbers))
    turned = (
        u + u @ (t + d) * 0.5,
        with_diagonal([x + slope for x, slope in zip(numbers, diagonal_of(e))]),
        v + v @ (t - d) * 0.5,
    )
    return tuple(map(with_derivative_of, found, turned))


def polar_with_slopes(
    m: Any, rotation: Any, found: Triple, precision: Precision
) -> tuple[Any, Any]:
    """R as found, which is U @ V', and P = V @ S @ V' of m, with derivatives."""
    u, s, v = found
    stretch = v @ s @ v.transpose()
    if not isinstance(m, Traced):
        return rotation, stretch
    u, s, v = map(stop_first_grad, found)
    e = only_slope(u.transpose() @ m @ v)
    numbers = diagonal_of(s)

    def turn(i: int, j: int) -> Any:
        total = numbers[i] + numbers[j]
        is_some = abs(total) > precision.smallest
        return (e[i, j] - e[j, i]) / select(is_some, total, precision.smallest)

    r = stop_first_grad(rotation) + u @ skew(turn, len(numbers)) @ v.transpose()
    p = stop_first_grad(stretch) + only_slope(r.transpose() @ m)
    return with_derivative_of(rotation, r), with_derivative_of(stretch, p)


def eig_with_slopes(m: Any, found: tuple[Any, Any], precision: Precision) -> tuple[Any, Any]:
    """Eigenvalues, in order, and eigenvectors of the symmetric m as found, with derivatives."""
    if not isinstance(m, Traced):
        return found
    w, q = map(stop_first_grad, found)
    n = shape_of(m)[0]
    falling = [w[i] for i in range(n)]
    numbers = spread(falling, precision) if n == 2 else spread(falling[::-1], precision)[::-1]
    e = only_slope(q.transpose() @ m @ q)
    t = skew(lambda i, j: e[i, j] / (numbers[j] - numbers[i]), n)
    values = pack([x + slope for x, slope in zip(numbers, diagonal_of(e))])
    return with_derivative_of(found[0], values), with_derivative_of(found[1], q + q @ t)
