"""Jacobi rotations for decompositions of small matrices, in both scopes.

One-sided Jacobi rotates columns until they are orthogonal (singular values). Two-sided Jacobi
rotates a symmetric matrix until it is diagonal (eigenvalues). Errors are of the order of epsilon
times the largest value. Precondition: components are at most about 1; callers rescale.

Source: M. R. Hestenes, "Inversion of matrices by biorthogonalization and related results", 1958;
J. Demmel and K. Veselic, "Jacobi's method is more accurate than QR", 1992.
"""

from __future__ import annotations

from typing import Any

from vkchi.lang.elementwise import (
    abs,
    max,
    select,
    sqrt,
)
from vkchi.lang.function import repeat
from vkchi.lang.linear_algebra.linear import shape_of
from vkchi.lang.matrix import pack
from vkchi.tuples import NamedTuple

# Quadratic convergence: random and degenerate matrices take 4 to 7 sweeps.
MOST_SWEEPS = 12


class FloatPrecision(NamedTuple):
    """Constants of a float type.

    - epsilon: distance from 1 to the next value.
    - smallest: smallest normal value, which has a finite reciprocal.
    - tiny: squares of smaller values lose precision.
    """

    epsilon: float
    smallest: float
    tiny: float


SINGLE = FloatPrecision(2.0**-23, 2.0**-126, 1e-17)
DOUBLE = FloatPrecision(2.0**-52, 2.0**-1022, 1e-150)


def scale_to_one(m: Any, precision: FloatPrecision) -> tuple[Any, Any]:
    """Return m divided by its largest absolute component, and the divisor.

    The divisor is 1 if that component is less than `smallest`.
    """
    largest = abs(m).max()
    size = select(largest >= precision.smallest, largest, 1.0)
    inverse = 1.0 / size
    inverse += inverse * (1.0 - size * inverse)  # Newton step, as in `jacobi_rotation`
    return m * inverse, size


def jacobi_rotation(app: Any, aqq: Any, apq: Any) -> tuple[Any, Any]:
    """Return cosine and sine of the Jacobi rotation that diagonalizes [[app, apq], [apq, aqq]].

    The angle is at most 45 degrees.
    """
    delta = aqq - app
    hypotenuse = abs(delta) + sqrt(delta * delta + 4.0 * apq * apq)
    tangent = select(delta < 0.0, -2.0, 2.0) * apq / max(hypotenuse, 1e-30)
    square = 1.0 + tangent * tangent
    cosine = 1.0 / sqrt(square)
    # Newton step: roots and quotients may be off by 7 ulp, and rotations must keep lengths.
    cosine += 0.5 * cosine * (1.0 - square * cosine * cosine)
    return cosine, tangent * cosine


def orthogonalizing_rotation(bp: Any, bq: Any, precision: FloatPrecision) -> tuple[Any, Any]:
    """Return cosine and sine of the rotation that makes two columns orthogonal.

    It is the identity if they are orthogonal up to rounding.
    """
    app, aqq, apq = bp.dot(bp), bq.dot(bq), bp.dot(bq)
    is_far = abs(apq) > precision.epsilon * sqrt(app) * sqrt(aqq)
    return jacobi_rotation(app, aqq, select(is_far, apq, 0.0))


def rotate_columns(cosine: Any, sine: Any, p: Any, q: Any) -> tuple[Any, Any]:
    """Return cosine * p - sine * q and sine * p + cosine * q."""
    return cosine * p - sine * q, sine * p + cosine * q


# --- one-sided Jacobi: orthogonal columns --------------------------------------------------------


def orthogonalize2(b0: Any, b1: Any, precision: FloatPrecision) -> tuple[Any, Any, Any, Any]:
    """Rotate the columns b0, b1 of A until they are orthogonal. Return b0, b1, v0, v1.

    The first two are the columns of A V, the others those of the rotation V. A second rotation
    removes the rounding error of the first.
    """
    v0, v1 = pack([1.0, 0.0]), pack([0.0, 1.0])
    for _ in range(2):
        cosine, sine = orthogonalizing_rotation(b0, b1, precision)
        b0, b1 = rotate_columns(cosine, sine, b0, b1)
        v0, v1 = rotate_columns(cosine, sine, v0, v1)
    return b0, b1, v0, v1


def orthogonalize3(b: list[Any], precision: FloatPrecision) -> list[Any]:
    """Rotate the columns `b` of A until they are orthogonal. Return [b0, b1, b2, v0, v1, v2].

    The first three are the columns of A V, the others those of the rotation V. Sweeps over the
    pairs end if one rotates nothing, or after MOST_SWEEPS.
    """

    def sweep(*state: Any) -> list[Any]:
        columns, goes_on = list(state), None
        for p, q in ((0, 1), (0, 2), (1, 2)):
            bp, bq = columns[p], columns[q]
            cosine, sine = orthogonalizing_rotation(bp, bq, precision)
            columns[p], columns[q] = rotate_columns(cosine, sine, bp, bq)
            columns[p + 3], columns[q + 3] = rotate_columns(
                cosine, sine, columns[p + 3], columns[q + 3]
            )
            is_far = sine != 0.0
            goes_on = is_far if goes_on is None else goes_on | is_far
        return [*columns, goes_on]

    return repeat(sweep, [*b, *identity_like(b[0])], MOST_SWEEPS)


def identity_like(v: Any) -> list[Any]:
    """Return the unit vectors, of the length and component type of v."""
    n = v.shape[0]
    return [v * 0.0 + pack([float(i == j) for j in range(n)]) for i in range(n)]


def order_by_length(bp: Any, bq: Any, vp: Any, vq: Any) -> tuple[Any, Any, Any, Any]:
    """Return the columns bp, bq, vp, vq, exchanged in both pairs if bq is longer than bp.

    An exchange negates one column of a pair: it is a rotation by 90 degrees.
    """
    is_less = bp.dot(bp) < bq.dot(bq)
    return (
        select(is_less, -bq, bp),
        select(is_less, bp, bq),
        select(is_less, -vq, vp),
        select(is_less, vp, vq),
    )


def sort3(columns: list[Any]) -> list[Any]:
    """Return [b0, b1, b2, v0, v1, v2] in an order with b0 the longest and b2 the shortest.

    Each exchange negates one column (`order_by_length`).
    """
    c = list(columns)
    for p, q in ((0, 1), (0, 2), (1, 2)):
        c[p], c[q], c[p + 3], c[q + 3] = order_by_length(c[p], c[q], c[p + 3], c[q + 3])
    return c


def normalize_or(b: Any, otherwise: Any, precision: FloatPrecision) -> tuple[Any, Any]:
    """Return b scaled to length 1, and the length of b.

    For a length of at most `tiny`, the first result is the unit vector `otherwise`.
    """
    length = sqrt(b.dot(b))
    is_some = length > precision.tiny
    unit = b / select(is_some, length, 1.0)
    unit += 0.5 * unit * (1.0 - unit.dot(unit))  # Newton step, as in `jacobi_rotation`
    return select(is_some, unit, otherwise), length


def perpendicular(u: Any) -> Any:
    """Return a unit vector perpendicular to the unit vector u; (0, 1, 0) for (1, 0, 0).

    Source: T. Duff and others, "Building an Orthonormal Basis, Revisited", 2017.
    """
    side = select(u.z < 0.0, -1.0, 1.0)
    a = -1.0 / (side + u.z)
    return pack([u.x * u.y * a, side + u.y * u.y * a, -u.y])


# --- two-sided Jacobi: diagonalization -----------------------------------------------------------


def diagonalize3(m: Any, precision: FloatPrecision) -> list[Any]:
    """Return eigenvalues w, unordered, and eigenvectors v of a symmetric 3 by 3 matrix.

    The result is [w0, w1, w2, v0, v1, v2]. Components below the diagonal are not read.
    """

    def rotate(app: Any, aqq: Any, apq: Any, apr: Any, aqr: Any, vp: Any, vq: Any) -> Any:
        cosine, sine = jacobi_rotation(app, aqq, apq)
        moved = apq * (sine / cosine)
        return (
            app - moved,
            aqq + moved,
            *rotate_columns(cosine, sine, apr, aqr),
            *rotate_columns(cosine, sine, vp, vq),
        )

    def sweep(*state: Any) -> list[Any]:
        a00, a11, a22, a01, a02, a12, v0, v1, v2 = state
        zero = a00 * 0.0
        a00, a11, a02, a12, v0, v1 = rotate(a00, a11, a01, a02, a12, v0, v1)
        a00, a22, a01, a12, v0, v2 = rotate(a00, a22, a02, zero, a12, v0, v2)
        a11, a22, a01, a02, v1, v2 = rotate(a11, a22, a12, a01, zero, v1, v2)
        off = abs(a01) + abs(a02)
        return [a00, a11, a22, a01, a02, zero, v0, v1, v2, off > 1e-3 * precision.epsilon]

    entries = [m[0, 0], m[1, 1], m[2, 2], m[0, 1], m[0, 2], m[1, 2]]
    units = identity_like(pack(entries[:3]))
    found = repeat(sweep, [*entries, *units], MOST_SWEEPS)
    return [*found[:3], *found[6:]]


def diagonalize(m: Any, precision: FloatPrecision) -> tuple[list[Any], list[Any]]:
    """Return eigenvalues, unordered, and eigenvectors of a symmetric matrix by cyclic rotations.

    Components below the diagonal are not read.
    """
    n = shape_of(m)[0]
    places = [(i, j) for i in range(n) for j in range(i, n)]

    def sweep(*state: Any) -> list[Any]:
        a, v = dict(zip(places, state)), list(state[len(places) :])
        zero = state[0] * 0.0
        for p, q in [(i, j) for i, j in places if i < j]:
            cosine, sine = jacobi_rotation(a[p, p], a[q, q], a[p, q])
            moved = a[p, q] * (sine / cosine)
            a[p, p], a[q, q], a[p, q] = a[p, p] - moved, a[q, q] + moved, zero
            for r in [r for r in range(n) if r not in (p, q)]:
                one, other = (min(r, p), r + p - min(r, p)), (min(r, q), r + q - min(r, q))
                a[one], a[other] = rotate_columns(cosine, sine, a[one], a[other])
            v[p], v[q] = rotate_columns(cosine, sine, v[p], v[q])
        off = zero
        for i, j in places:
            off = off + abs(a[i, j]) if i < j else off
        return [*[a[place] for place in places], *v, off > 1e-3 * precision.epsilon]

    entries = [m[place] for place in places]
    units = identity_like(pack([m[i, i] for i in range(n)]))
    found = repeat(sweep, [*entries, *units], MOST_SWEEPS)
    return [found[places.index((i, i))] for i in range(n)], found[len(places) :]
