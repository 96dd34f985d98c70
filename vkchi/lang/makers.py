"""Vectors and matrices from few numbers, in Python and in kernels: `ti.Matrix.identity(ti.f32, 3)`.

Owns: these functions, and that they are members of `Matrix`. Must not know: fields, kernels.

    >>> Matrix.unit(3, 1)
    [0 1 0]
"""

from __future__ import annotations

from typing import Any

from vkchi.lang.function import python_function
from vkchi.lang.matrix import Matrix, Vector, scalar_type, wrap_array
from vkchi.types.lazy_numpy import np


def _filled(value: int, dt: Any, n: int, m: int | None) -> Any:
    t = scalar_type(dt)
    shape = (n,) if m is None else (n, m)
    return Matrix(np.full(shape, value).tolist(), t)


@python_function
def zero(dt: Any, n: int, m: int | None = None) -> Any:
    """A vector of `n` zeros, or an `n` by `m` matrix of them."""
    return _filled(0, dt, n, m)


@python_function
def one(dt: Any, n: int, m: int | None = None) -> Any:
    """A vector of `n` ones, or an `n` by `m` matrix of them."""
    return _filled(1, dt, n, m)


@python_function
def identity(dt: Any, n: int) -> Any:
    """The `n` by `n` identity matrix."""
    return Matrix(np.identity(n, int), dt)


@python_function
def diag(dim: int, val: Any) -> Any:
    """The `dim` by `dim` matrix with `val` on its diagonal and zeros elsewhere."""
    return wrap_array(np.identity(dim, int) * val)


@python_function
def unit(n: int, i: int, dt: Any = None) -> Any:
    """The `i`-th unit vector of length `n`; integers unless `dt` says otherwise."""
    return Vector([int(k == i) for k in range(n)], dt)


@python_function
def rows(rows: Any) -> Any:
    """The matrix of these rows, vectors or lists."""
    return Matrix(list(rows))


@python_function
def cols(cols: Any) -> Any:
    """The matrix of these columns, vectors or lists."""
    return Matrix(list(cols)).transpose()


@python_function
def pack(values: Any) -> Any:
    """A vector of a list of numbers, or a matrix of a list of rows, of their common type."""
    return Matrix(values)


for _maker in (zero, one, identity, diag, unit, rows, cols):
    setattr(Matrix, _maker.__name__, _maker)
