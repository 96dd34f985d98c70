"""Axes of field trees and block sizes along them: parsing and validation of user arguments.

>>> pair_axes(axes(0, 1), (4, 8))
((0, 4), (1, 8))
"""

from __future__ import annotations

from typing import Any

from vkchi.errors import ArgumentError, DeclarationError

MOST_AXES = 8
LETTERS = "ijklmnop"
MOST_CELLS = 2**31 - 1  # along one axis


class Axes(tuple[int, ...]):
    """Tuple of distinct axis numbers: `ti.i` is (0,), `ti.ij` is (0, 1)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"ti.{''.join(LETTERS[k] for k in self)}" if len(self) < 5 else f"ti.axes{(*self,)}"


def axes(*x: Any) -> Axes:
    """Return axes by number: `ti.axes(0, 1)` is `ti.ij`.

    Args:
        *x: different integers from 0 to 7.

    Returns:
        The axes, for blocks of a field tree.

    Raises:
        ArgumentError: for other objects and for repeated numbers.
    """
    for k in x:
        if not hasattr(k, "__index__") or isinstance(k, bool) or not 0 <= k < MOST_AXES:
            raise ArgumentError(f"axes are integers from 0 to {MOST_AXES - 1}, not {k!r}")
    if len(set(x)) < len(x):
        raise ArgumentError(f"each axis is given once, unlike in {x}")
    return Axes(int(k) for k in x)


def axes_named(letters: str) -> Axes:
    """The axes of the given letters; "i" is axis 0."""
    return axes(*[LETTERS.index(c) for c in letters])


i, j, k, l = (axes_named(c) for c in "ijkl")  # noqa: E741
ij, ik, il, jk, jl, kl = (axes_named(c) for c in ("ij", "ik", "il", "jk", "jl", "kl"))
ijk, ijl, ikl, jkl = (axes_named(c) for c in ("ijk", "ijl", "ikl", "jkl"))
ijkl = axes_named("ijkl")


def flat_axes(x: Any) -> Axes:
    """Parse a user's axes: `ti.ij`, or a sequence of axes or integers. Raises ArgumentError for
    other objects."""
    if isinstance(x, Axes):
        return x
    if not isinstance(x, list | tuple) or not x:
        raise ArgumentError(f"axes such as ti.ij are needed here, not {x!r}")
    found: list[Any] = []
    for part in x:
        found += part if isinstance(part, Axes) else [part]
    return axes(*found)


def pair_axes(x: Any, dimensions: Any) -> tuple[tuple[int, int], ...]:
    """(axis, cells) pairs by ascending axis. `dimensions` is one size for all axes or one per axis.

    Raises ArgumentError for invalid axes and sizes.
    """
    found = flat_axes(x)
    sizes = cook_extents(dimensions, "a block's dimensions")
    if len(sizes) == 1:
        sizes *= len(found)
    if len(sizes) != len(found):
        want = "1 dimension is" if len(found) == 1 else f"1 or {len(found)} dimensions are"
        raise ArgumentError(f"{want} needed for {found}, not {sizes}")
    return tuple(sorted(zip(found, sizes, strict=True)))


def cook_extents(x: Any, what: str) -> tuple[int, ...]:
    """An integer or a sequence of integers as a tuple of ints. Raises ArgumentError unless all are
    positive and below 2**31; `what` names them in the message."""
    found = tuple(x) if hasattr(x, "__iter__") and not isinstance(x, str) else (x,)
    for n in found:
        if not hasattr(n, "__index__") or isinstance(n, bool) or not 0 < n <= MOST_CELLS:
            raise ArgumentError(f"{what} must be positive integers below 2**31, not {n!r}")
    return tuple(n.__index__() for n in found)


def cook_offset(offset: Any, ndim: int) -> tuple[int, ...]:
    """Parse `offset=`: the first index of each axis, or () for None, () and all zeros.

    Raises ArgumentError unless it has `ndim` integers, at least -2**31.
    """
    if offset is None:
        return ()
    found = tuple(offset) if hasattr(offset, "__iter__") else (offset,)
    for k in found:
        if not hasattr(k, "__index__") or isinstance(k, bool) or k < -MOST_CELLS - 1:
            raise ArgumentError(f"offset= is made of integers of 32 bits, not {k!r}")
    if found and len(found) != ndim:
        raise DeclarationError(
            f"the dimensionality of shape and offset must be the same ({ndim} != {len(found)})"
        )
    return tuple(k.__index__() for k in found) if any(found) else ()


def order_axes(order: Any, ndim: int) -> tuple[int, ...]:
    """The axes of an `order` such as "ji", slowest first; ascending for None. Raises ArgumentError
    unless it names each of `ndim` axes once."""
    if order is None:
        return tuple(range(ndim))
    if not isinstance(order, str):
        raise ArgumentError(f"order= is a word such as 'ji', not {order!r}")
    if len(order) != ndim:
        raise DeclarationError(
            f"the dimensionality of shape and order must be the same ({ndim} != {len(order)})"
        )
    if len(set(order)) < ndim:
        raise DeclarationError(f"the axes in order={order!r} must be different")
    for letter in order:
        if letter not in LETTERS[:ndim]:
            raise DeclarationError(f"order={order!r} names the axis {letter}, which is not there")
    return tuple(LETTERS.index(letter) for letter in order)
