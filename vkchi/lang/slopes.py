"""Derivatives of singular values and rotations, where the decomposition is traced.

A decomposition is iterations, choices and sorted columns: derivatives that follow those are wrong
where singular values are equal, as of the unit matrix. So what was computed is `frozen`, and to it
is added what is 0 and has the right derivative. With P = U' dA V, dU = U (t + d) / 2 and
dV = V (t - d) / 2, where d_ij = (P_ij - P_ji) / (s_i + s_j), t_ij = (P_ij + P_ji) / (s_j - s_i).
Where s_i and s_j are equal, U and V can be turned together by any amount, and t_ij is 0: what does
not depend on this choice has its right derivative (U @ V.transpose(), sums over S). Second
derivatives are refused.

Must not know: how the values are found. Source: Papadopoulo and Lourakis, "Estimating the Jacobian
of the singular value decomposition", 2000.
"""

from __future__ import annotations

from typing import Any

from vkchi.lang.elementwise import abs, select
from vkchi.lang.function import Function, Traced
from vkchi.lang.jacobi import Precision
from vkchi.lang.linear import shape_of
from vkchi.lang.matrix import pack

Triple = tuple[Any, Any, Any]


def _same(x: Any) -> Any:
    return x


frozen = Function("frozen", _same, "x; its first derivative is added elsewhere.")


def only_slope(x: Any) -> Any:
    """0, with the derivative of x."""
    return x - frozen(x)


def skew(entries: dict[tuple[int, int], Any], n: int) -> Any:
    """The skew matrix with these entries above its diagonal."""
    zero = entries[0, 1] * 0.0

    def entry(i: int, j: int) -> Any:
        return entries[i, j] if i < j else -entries[j, i] if i > j else zero

    return pack([[entry(i, j) for j in range(n)] for i in range(n)])


def turns(e: Any, s: list[Any], precision: Precision) -> tuple[Any, Any]:
    """d and t of the module's text."""
    apart, together = {}, {}
    n = len(s)
    for i in range(n):
        for j in range(i + 1, n):
            total, gap = s[i] + s[j], s[j] - s[i]
            divisor = select(abs(total) > precision.smallest, total, precision.smallest)
            apart[i, j] = (e[i, j] - e[j, i]) / divisor
            is_apart = abs(gap) > 16 * precision.epsilon * abs(total)
            sum_ = (e[i, j] + e[j, i]) / select(is_apart, gap, 1.0)
            together[i, j] = select(is_apart, sum_, 0.0)
    return skew(apart, n), skew(together, n)


def svd_with_slopes(m: Any, found: Triple, precision: Precision) -> Triple:
    """U, S, V of m as found, with derivatives."""
    if not isinstance(m, Traced):
        return found
    u, s, v = map(frozen, found)
    e = only_slope(u.transpose() @ m @ v)
    n = shape_of(m)[0]
    d, t = turns(e, [s[i, i] for i in range(n)], precision)
    zero = e[0, 0] * 0.0
    on_diagonal = pack([[e[i, i] if i == j else zero for j in range(n)] for i in range(n)])
    return u + u @ (t + d) * 0.5, s + on_diagonal, v + v @ (t - d) * 0.5


def polar_with_slopes(m: Any, found: Triple, precision: Precision) -> tuple[Any, Any]:
    """R = U @ V', P = V @ S @ V' of m, with derivatives."""
    u, s, v = found
    if not isinstance(m, Traced):
        return u @ v.transpose(), v @ s @ v.transpose()
    u, s, v = map(frozen, found)
    vt = v.transpose()
    e = only_slope(u.transpose() @ m @ v)
    d, _ = turns(e, [s[i, i] for i in range(shape_of(m)[0])], precision)
    r = u @ vt + u @ d @ vt
    return r, v @ s @ vt + only_slope(r.transpose() @ m)
