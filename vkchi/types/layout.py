"""Memory layouts of arrays: map indices to offsets, counted in scalars.

`Layout` is the protocol; `Affine` is the layout of most fields and arrays. A layout's arithmetic is
written once, with operators. Integers give the offset of one element, numpy arrays of indices those
of many, and `opt.lowering.offsets.OffsetExpr` emits IR. Layouts can be printed and parsed.

    >>> row_major((2, 3), 1).axes
    ((AxisTerm(divisor=1, modulus=0, stride=3),), (AxisTerm(divisor=1, modulus=0, stride=1),))
    >>> row_major((2, 3), 1).offset((1, 2))
    5
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

from vkchi.hooks import Hook
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.types.packed_numbers import Quantised


class LayoutDigit(NamedTuple):
    """A mixed-radix component of an index: `index // divisor % values`. `stride` is its factor in
    the offset, in scalars."""

    values: int
    stride: int
    divisor: int


class Layout(Protocol):
    """Memory layout of an array of static shape, in scalars from its pointer (bit-packed: in
    words).

    Hashable and compared by value, because arrays with equal layouts have one type.
    """

    @property
    def rank(self) -> int:
        """The number of axes."""

    @property
    def components(self) -> tuple[int, ...]:
        """Offset of each component from that of its element: (0,) for scalars."""

    @property
    def size(self) -> int:
        """Number of scalars from the pointer to the end of accessible memory."""

    @property
    def origin(self) -> tuple[int, ...]:
        """The first index of each axis (Taichi's `offset=`); () if all are 0."""

    @property
    def number(self) -> Quantised | None:
        """The number type of bit-packed elements; None if elements are scalars."""

    def offset(self, index: Sequence[Any]) -> Any:
        """The offset of an element by its index, counted from 0.

        Uses only `+ - * // % ^` on the indices and integers.
        """

    def digits(self, shape: tuple[int, ...]) -> tuple[tuple[LayoutDigit, ...], ...] | None:
        """The digits of each axis, outermost first; None if the offset is not the sum of digit
        times stride."""

    def component(self, k: int) -> Layout:
        """The layout of component k of all elements, relative to that component of the first
        element."""

    def text(self) -> str:
        """The layout in the text form of types: a word of KINDS, then parentheses."""


class AxisTerm(NamedTuple):
    """A digit with its stride: `((index // divisor) % modulus) * stride`; modulus 0 means no
    `%`."""

    divisor: int
    modulus: int
    stride: int


class Affine(NamedTuple):
    """Layout whose offset is the sum of the terms of all indices; `axes[k]` are the terms of index
    k.

    See `Layout`.
    """

    axes: tuple[tuple[AxisTerm, ...], ...]
    components: tuple[int, ...]
    size: int
    origin: tuple[int, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.axes)

    @property
    def number(self) -> None:
        """See `Layout`."""

    def offset(self, index: Sequence[Any]) -> Any:
        return sum_of_digits(index, self.axes)

    def digits(self, shape: tuple[int, ...]) -> tuple[tuple[LayoutDigit, ...], ...]:
        return tuple(
            tuple(LayoutDigit(m or -(-extent // d), stride, d) for d, m, stride in terms)
            for extent, terms in zip(shape, self.axes, strict=True)
        )

    def component(self, k: int) -> Affine:
        return Affine(self.axes, (0,), self.size - self.components[k], self.origin)

    def text(self) -> str:
        axes = "|".join("+".join(f"{d}%{m}*{s}" for d, m, s in axis) for axis in self.axes)
        origin = ":".join(map(str, self.origin))
        return f"({axes};{','.join(map(str, self.components))};{self.size};{origin})"


def sum_of_digits(index: Sequence[Any], axes: tuple[tuple[AxisTerm, ...], ...]) -> Any:
    """Sum of the `AxisTerm`s of all indices; `axes[k]` are the terms of index k."""
    total: Any = None
    for k, terms in zip(index, axes, strict=True):
        for divisor, modulus, stride in terms:
            digit = k // divisor if divisor != 1 else k
            step = (digit % modulus if modulus else digit) * stride
            total = step if total is None else total + step
    return 0 if total is None else total


def reach_of(shape: tuple[int, ...], axes: tuple[tuple[AxisTerm, ...], ...]) -> tuple[int, int]:
    """Lower and upper bound of `sum_of_digits` over all indices of a shape.

    Raises ValueError for a divisor less than 1 or a negative modulus.
    """
    least = most = 0
    for extent, terms in zip(shape, axes, strict=True):
        for divisor, modulus, stride in terms:
            if divisor < 1 or modulus < 0:
                raise ValueError("a digit of an index has no divisor")
            values = max(0, extent - 1) // divisor
            values = min(values, modulus - 1) if modulus else values
            least, most = least + min(0, values * stride), most + max(0, values * stride)
    return least, most


def check_layout_range(shape: tuple[int, ...], layout: Layout) -> None:
    """Raise ValueError if a layout read from a file may place elements outside its memory."""
    words = getattr(layout, "words", layout)
    if not isinstance(words, Affine) or any(extent < 0 for extent in shape):
        raise ValueError("it has no shape, or no strides")
    least, most = reach_of(shape, words.axes)
    within = min(layout.components, default=0), max(layout.components, default=0)
    if least + within[0] < 0 or most + within[1] >= max(1, layout.size):
        raise ValueError("its elements are outside of its memory")
    bits = getattr(layout, "word_bits", 1)
    if prod(shape) > layout.size * bits:
        raise ValueError("it has more elements than its memory")
    if bits > 1:
        inner, starts = getattr(layout, "inner", ()), getattr(layout, "starts", ())
        least, most = reach_of(shape, inner)
        if least < 0 or most + max(starts, default=0) >= bits:
            raise ValueError("its bits are outside of their words")


def affine_of(text: str, rank: int) -> Affine:
    """Parse the text between the parentheses of `Affine.text`. Raises ValueError.

    The number of axes (`rank`) is needed because axes may have no terms.
    """
    axes_text, components, size, origin = text.split(";")
    axes = tuple(
        tuple(_axis_term(term) for term in axis.split("+") if term)
        for axis in (axes_text.split("|") if rank else ())
    )
    where = tuple(int(k) for k in origin.split(":") if k)
    return Affine(axes, tuple(int(k) for k in components.split(",")), int(size), where)


def _axis_term(text: str) -> AxisTerm:
    divisor, _, rest = text.partition("%")
    modulus, _, stride = rest.partition("*")
    return AxisTerm(int(divisor), int(modulus), int(stride))


class LayoutHook:
    """Hook for the parser of bit-packed layouts, which few programs use."""

    packed = Hook("packed layout")


# Parsers of layouts by their word in the text form; arguments: the rest, the number of axes.
KINDS: dict[str, Callable[[str, int], Layout]] = {
    "": affine_of,
    "packed": lambda text, rank: LayoutHook.packed(text, rank),
}

# Limits of 32-bit addressing in scalars, which include the spare element behind an array.
WIDE_FROM = (1 << 31) - (1 << 16)
WIDE_FROM_BYTES = (1 << 32) - (1 << 20)


def needs_wide(scalars: int, scalar_bytes: int) -> bool:
    """True if an array needs 64-bit addressing.

    That is so from WIDE_FROM scalars or WIDE_FROM_BYTES bytes on, somewhat less than 2**31 and
    2**32. The limit in bytes exists because Mesa multiplies 32-bit offsets in 32 bits.
    """
    return scalars >= WIDE_FROM or scalars * scalar_bytes >= WIDE_FROM_BYTES


def row_major(shape: tuple[int, ...], components: int) -> Affine:
    """The row-major layout of a static shape, with tensor components innermost."""
    strides, step = [], components
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    axes = tuple((AxisTerm(1, 0, s),) for s in reversed(strides))
    return Affine(axes, tuple(range(components)), step)


def whole_digits(
    shape: tuple[int, ...], layout: Layout
) -> tuple[tuple[LayoutDigit, ...], ...] | None:
    """The digits of each axis, if all combinations of their values belong to an index, or None."""
    found = layout.digits(shape)
    counts = None if found is None else tuple([prod([d.values for d in axis]) for axis in found])
    return found if counts == shape else None


def step_of_last(shape: tuple[int, ...], layout: Layout) -> int | None:
    """Stride along the last axis in scalars; None unless that axis has exactly one digit."""
    digits = layout.digits(shape)
    last = digits[-1] if digits else ()
    return last[0].stride if len(last) == 1 else None


def shares_words(layout: Layout | None) -> bool:
    """True if elements are bit-packed in words (`packed_numbers.Packed`)."""
    return layout is not None and layout.number is not None


def ends_of(shape: tuple[int, ...], layout: Layout) -> tuple[tuple[int, int], ...]:
    """The first index of each axis, and the last plus one."""
    origin = layout.origin or (0,) * len(shape)
    return tuple((first, first + extent) for first, extent in zip(origin, shape, strict=True))
