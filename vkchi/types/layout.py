"""How an array's indices map to memory, counted in scalars. Must not know: types, devices.

>>> row_major((2, 3), 1).axes
((AxisTerm(divisor=1, modulus=0, stride=3),), (AxisTerm(divisor=1, modulus=0, stride=1),))
"""

from __future__ import annotations

from vkchi.tuples import NamedTuple


class AxisTerm(NamedTuple):
    """One digit of an index: `((index // divisor) % modulus) * stride`; modulus 0: no `%`."""

    divisor: int
    modulus: int
    stride: int


class Layout(NamedTuple):
    """Where an element of a statically shaped array lies, counted in scalars from its pointer.

    `axes[k]` are the terms of index k, `components` the offset of each tensor component (one 0 for
    a scalar), `size` the scalars from the pointer to the end of what may be touched. `origin` is
    subtracted from the indices first (Taichi's `offset=`).
    """

    axes: tuple[tuple[AxisTerm, ...], ...]
    components: tuple[int, ...]
    size: int
    origin: tuple[int, ...] = ()


# Scalars. What 32 bits reach ends with the spare element behind an array, and its last component.
WIDE_FROM = (1 << 31) - (1 << 16)


def layout_text(layout: Layout) -> str:
    """A layout as one word for the text form: axes, components, size, origin."""
    axes = "|".join("+".join(f"{d}%{m}*{s}" for d, m, s in axis) for axis in layout.axes)
    origin = ":".join(map(str, layout.origin))
    return f"({axes};{','.join(map(str, layout.components))};{layout.size};{origin})"


def row_major(shape: tuple[int, ...], components: int) -> Layout:
    """The layout of a statically shaped row-major array with tensor components innermost."""
    strides, step = [], components
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    axes = tuple((AxisTerm(1, 0, s),) for s in reversed(strides))
    return Layout(axes, tuple(range(components)), step)


def digits_of(shape: tuple[int, ...], layout: Layout) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many values each digit of the indices has, and the scalars from one to the next."""
    digits, steps = [], []
    for extent, terms in zip(shape, layout.axes, strict=True):
        for divisor, modulus, stride in terms:
            digits.append(modulus or -(-extent // divisor))
            steps.append(stride)
    return tuple(digits), tuple(steps)


def step_of_last(layout: Layout) -> int | None:
    """The scalars from an element to the next along the last axis; None where that differs."""
    last = layout.axes[-1]
    return last[0].stride if len(last) == 1 else None


def ends_of(shape: tuple[int, ...], layout: Layout) -> tuple[tuple[int, int], ...]:
    """The first index of each axis, and the one behind the last."""
    origin = layout.origin or (0,) * len(shape)
    return tuple((first, first + extent) for first, extent in zip(origin, shape, strict=True))
