"""Differentiable scatter-add functions for sparse matrices: weighted sums, and sums of products.

Tapes record them and call `slopes` for the gradient.

    >>> first, second, where = np.array([0, 1]), np.array([1, 1]), np.array([0, 0])
    >>> product = ProductScatter("A @ x", first, second, where, 1, np.float32)
    >>> product.value(np.array([2.0, 3.0]), np.array([5.0, 7.0]))       # 2 * 7 + 3 * 7
    array([35.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vkchi.tuples import NamedTuple
from vkchi.types.lazy_numpy import np

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
