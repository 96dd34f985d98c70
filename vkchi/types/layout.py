"""How an array's indices map to memory, counted in scalars: `Layout`, the protocol, and `Affine`,
what fields and arrays have today.

A layout is arithmetic. It is written once, with operators: on ints it says where an element lies,
on arrays of numpy where all of them do, on offsets of a kernel (`passes.offsets.Sum`) it writes IR.
What else it says of itself spares work: who does not know does without.

Owns: this arithmetic, layouts as text, and back. Must not know: types, devices, ops.

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
    from vkchi.types.quantised import Quantised


class Digit(NamedTuple):
    """A digit of an index, `index // divisor % values`, and the scalars from one to the next."""

    values: int
    stride: int
    divisor: int


class Layout(Protocol):
    """Where the elements of a statically shaped array lie, counted in scalars from its pointer.
    Hashable and compared by value, for arrays of equal layouts are of one type; never equal to one
    of another class."""

    @property
    def rank(self) -> int:
        """How many axes the array has."""

    @property
    def components(self) -> tuple[int, ...]:
        """How far each component of an element lies behind its place: (0,) for numbers."""

    @property
    def size(self) -> int:
        """The scalars from the pointer to the end of what may be touched."""

    @property
    def origin(self) -> tuple[int, ...]:
        """What indices begin with (Taichi's `offset=`); () for 0."""

    @property
    def number(self) -> Quantised | None:
        """What an element is, if it is some bits of a word in memory; None if it is scalars."""

    def offset(self, index: Sequence[Any]) -> Any:
        """The place of an element by its index, counted from 0: in `+ - * // % ^`, by whole
        numbers and each other."""

    def digits(self, shape: tuple[int, ...]) -> tuple[tuple[Digit, ...], ...] | None:
        """The digits of each axis, the outermost first, if the place is the sum of them times
        strides; None if it is not."""

    def component(self, k: int) -> Layout:
        """That of one component of the elements, as an array of numbers from its own pointer."""

    def text(self) -> str:
        """It in the text form of types: a word that KINDS has, then parentheses."""


class AxisTerm(NamedTuple):
    """One digit of an index: `((index // divisor) % modulus) * stride`; modulus 0: no `%`."""

    divisor: int
    modulus: int
    stride: int


class Affine(NamedTuple):
    """Digits of the indices times strides; `axes[k]` are the terms of index k. See `Layout`."""

    axes: tuple[tuple[AxisTerm, ...], ...]
    components: tuple[int, ...]
    size: int
    origin: tuple[int, ...] = ()

    @property
    def rank(self) -> int:
        """See `Layout`."""
        return len(self.axes)

    @property
    def number(self) -> None:
        """See `Layout`."""

    def offset(self, index: Sequence[Any]) -> Any:
        """See `Layout`."""
        return sum_of_digits(index, self.axes)

    def digits(self, shape: tuple[int, ...]) -> tuple[tuple[Digit, ...], ...]:
        """See `Layout`."""
        return tuple(
            tuple(Digit(m or -(-extent // d), stride, d) for d, m, stride in terms)
            for extent, terms in zip(shape, self.axes, strict=True)
        )

    def component(self, k: int) -> Affine:
        """See `Layout`."""
        return Affine(self.axes, (0,), self.size - self.components[k], self.origin)

    def text(self) -> str:
        """Axes, components, size, origin."""
        axes = "|".join("+".join(f"{d}%{m}*{s}" for d, m, s in axis) for axis in self.axes)
        origin = ":".join(map(str, self.origin))
        return f"({axes};{','.join(map(str, self.components))};{self.size};{origin})"


def sum_of_digits(index: Sequence[Any], axes: tuple[tuple[AxisTerm, ...], ...]) -> Any:
    """Digits of the indices times strides: for each index, the terms of its axis."""
    total: Any = None
    for k, terms in zip(index, axes, strict=True):
        for divisor, modulus, stride in terms:
            digit = k // divisor if divisor != 1 else k
            step = (digit % modulus if modulus else digit) * stride
            total = step if total is None else total + step
    return 0 if total is None else total


def reach_of(shape: tuple[int, ...], axes: tuple[tuple[AxisTerm, ...], ...]) -> tuple[int, int]:
    """The least and the greatest sum of digits of all indices of a shape. Raises ValueError for
    digits that are none."""
    least = most = 0
    for extent, terms in zip(shape, axes, strict=True):
        for divisor, modulus, stride in terms:
            if divisor < 1 or modulus < 0:
                raise ValueError("a digit of an index has no divisor")
            values = max(0, extent - 1) // divisor
            values = min(values, modulus - 1) if modulus else values
            least, most = least + min(0, values * stride), most + max(0, values * stride)
    return least, most


def check_reach(shape: tuple[int, ...], layout: Layout) -> None:
    """Raises ValueError where a layout from a file leads outside of its array."""
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
    """What stands between the parentheses, which has no way to say how many axes without terms.
    Raises ValueError."""
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
    """What reads the text of layouts that few programs have."""

    packed = Hook("packed layout")


# Kinds of layouts by their words in the text form: what reads the rest, for so many axes.
KINDS: dict[str, Callable[[str, int], Layout]] = {
    "": affine_of,
    "packed": lambda text, rank: LayoutHook.packed(text, rank),
}

# Scalars. What 32 bits reach ends with the spare element behind an array, and its last component.
WIDE_FROM = (1 << 31) - (1 << 16)
WIDE_FROM_BYTES = (1 << 32) - (1 << 20)


def needs_wide(scalars: int, scalar_bytes: int) -> bool:
    """Whether an array is reached in 64 bits: not only where 32 do not count its scalars, for Mesa
    multiplies offsets of 32 bits in 32 bits."""
    return scalars >= WIDE_FROM or scalars * scalar_bytes >= WIDE_FROM_BYTES


def row_major(shape: tuple[int, ...], components: int) -> Affine:
    """The layout of a statically shaped row-major array with tensor components innermost."""
    strides, step = [], components
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    axes = tuple((AxisTerm(1, 0, s),) for s in reversed(strides))
    return Affine(axes, tuple(range(components)), step)


def whole_digits(shape: tuple[int, ...], layout: Layout) -> tuple[tuple[Digit, ...], ...] | None:
    """The digits of each axis if there are no values of them that are those of no index."""
    found = layout.digits(shape)
    counts = None if found is None else tuple([prod([d.values for d in axis]) for axis in found])
    return found if counts == shape else None


def step_of_last(shape: tuple[int, ...], layout: Layout) -> int | None:
    """The scalars from an element to the next along the last axis; None where that differs."""
    digits = layout.digits(shape)
    last = digits[-1] if digits else ()
    return last[0].stride if len(last) == 1 else None


def shares_words(layout: Layout | None) -> bool:
    """Whether elements are some bits of the words that stand in memory (`packed.Packed`)."""
    return layout is not None and layout.number is not None


def ends_of(shape: tuple[int, ...], layout: Layout) -> tuple[tuple[int, int], ...]:
    """The first index of each axis, and the one behind the last."""
    origin = layout.origin or (0,) * len(shape)
    return tuple((first, first + extent) for first, extent in zip(origin, shape, strict=True))
