"""`ti.ndrange` and `ti.grouped`: iteration spaces of loops, iterable in Python too; conversion of
indices between them: `ti.rescale_index`.

In a kernel, bounds may be kernel values. Iteration in Python takes integers only.

    >>> list(ndrange((1, 3), 2))
    [(1, 0), (1, 1), (2, 0), (2, 1)]
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from vkchi.errors import KernelCallError, KernelSyntaxError, KernelTypeError
from vkchi.lang.function import composite
from vkchi.lang.matrix import Matrix, Vector, pack
from vkchi.types.lazy_numpy import np


class ndrange:
    """The Cartesian product of ranges; each argument is a length or a pair (begin, end).

    `bounds` has a pair per axis, (0, n) for a length n. Raises KernelSyntaxError for other tuples,
    KernelCallError for floats and strings.

    axes: the axes from the slowest to the fastest, in the order of iteration; the last is the
    fastest without it. Indices keep their order. Raises KernelSyntaxError unless it is a
    permutation.

        >>> list(ndrange(2, 2, axes=(1, 0)))
        [(0, 0), (1, 0), (0, 1), (1, 1)]
    """

    __slots__ = ("axes", "bounds")

    def __init__(self, *args: Any, axes: Sequence[int] | None = None) -> None:
        self.bounds: tuple[tuple[Any, Any], ...] = tuple(_bounds_of(arg) for arg in args)
        self.axes = tuple(range(len(args)) if axes is None else axes)
        if sorted(map(str, self.axes)) != sorted(map(str, range(len(args)))):
            raise KernelSyntaxError(
                f"axes= of ndrange must be a permutation of the axes, not {axes!r}",
                help=f"axes={tuple(reversed(range(len(args))))}" if args else "",
            )

    def static_bounds(self) -> list[tuple[int, int]]:
        """Return `bounds` as Python ints. Raises KernelTypeError unless all are integers."""
        return [(_static_int(begin), _static_int(end)) for begin, end in self.bounds]

    @property
    def dimensions(self) -> list[int]:
        """Number of iterations along each axis."""
        return [max(0, end - begin) for begin, end in self.static_bounds()]

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        ranges = [range(begin, end) for begin, end in self.static_bounds()]
        at = [self.axes.index(k) for k in range(len(ranges))]
        for found in product(*[ranges[k] for k in self.axes]):
            yield tuple([found[k] for k in at])

    def grouped(self) -> grouped:
        """The same space, with the indices as one vector."""
        return grouped(self)


def _bounds_of(arg: Any) -> tuple[Any, Any]:
    if isinstance(arg, Matrix) and arg.ndim == 1:
        arg = arg.to_list()
    if not isinstance(arg, list | tuple):
        arg = (0, arg)
    if len(arg) != 2:
        raise KernelSyntaxError(
            f"ndrange takes numbers and pairs (begin, end), not a tuple of {len(arg)}"
        )
    if any(isinstance(bound, float | np.floating | str) for bound in arg):
        raise KernelCallError("ndrange takes integers and pairs of integers")
    return arg[0], arg[1]


def _static_int(bound: Any) -> int:
    try:
        return operator.index(bound)
    except TypeError:
        raise KernelTypeError(
            "the bounds of this ndrange are no compile-time constants",
            help="leave ti.static out to loop at run time",
        ) from None


class grouped:
    """`ti.grouped(x)`: a loop over x with one vector of indices. Iterable in Python if x is."""

    __slots__ = ("inner",)

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __iter__(self) -> Iterator[Any]:
        for index in self.inner:
            yield Vector(list(index) if isinstance(index, tuple) else [index])


@composite
def rescale_index(a: Any, b: Any, I: Any) -> Any:  # noqa: E741
    """Return the index in field or block b that corresponds to index I of a.

    Along axes of different lengths, the index is multiplied or floor-divided by the quotient of the
    lengths, rounded down. Raises KernelTypeError if a or b has no shape.

        >>> rescale_index(coarse, fine, Vector([1, 3]))       # shapes (2, 4) and (4, 8)
        [2 6]
    """
    shapes = [getattr(x, "shape", None) for x in (a, b)]
    if not all(isinstance(shape, tuple) for shape in shapes):
        raise KernelTypeError("rescale_index takes two fields or blocks, and an index")
    parts = list(I) if isinstance(I, list | tuple) else [I[k] for k in range(I.n)]
    for k, (old, new) in enumerate(zip(*shapes)):
        if k < len(parts) and old > new:
            parts[k] = parts[k] // (old // new)
        elif k < len(parts) and old < new:
            parts[k] = parts[k] * (new // old)
    return pack(parts)
