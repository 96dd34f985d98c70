"""Layouts of arrays of static shape as trees of fields have them, for random programs.

tree_layouts(3, (3, 4))     # of vectors of 3: column-major, in blocks of 2 by 2, with gaps
"""

from __future__ import annotations

import math

from vkchi.types import Affine, AxisTerm


def tree_layouts(size: int, extents: tuple[int, ...]) -> list[Affine]:
    """Layouts of elements of `size` scalars: column-major, and in blocks of two along each axis.

    Each also comes with a gap of two scalars behind every element.
    """
    parts = tuple(range(size))
    found = []
    for step in (size, size + 2):
        found.append(Affine(backwards(step, extents), parts, step * math.prod(extents)))
        cells = math.prod(n + n % 2 for n in extents)
        found.append(Affine(blocks(step, extents), parts, step * cells))
    return found


def backwards(step: int, extents: tuple[int, ...]) -> tuple[tuple[AxisTerm, ...], ...]:
    """The terms of each axis in column-major order."""
    strides = [step * math.prod(extents[:k]) for k in range(len(extents))]
    return tuple((AxisTerm(1, 0, stride),) for stride in strides)


def blocks(step: int, extents: tuple[int, ...]) -> tuple[tuple[AxisTerm, ...], ...]:
    """The terms of each axis where blocks of two along each axis are contiguous."""
    counts, ndim = [-(-n // 2) for n in extents], len(extents)
    whole = step * 2**ndim
    return tuple(
        (
            AxisTerm(2, 0, whole * math.prod(counts[k + 1 :])),
            AxisTerm(1, 2, step * 2 ** (ndim - 1 - k)),
        )
        for k in range(ndim)
    )
