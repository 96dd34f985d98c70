"""Numbers of any width: what a few bits in a word mean, and back.

Owns: whole numbers, fixed-point and floating-point numbers of so many bits, as text, and back.
Must not know: where the bits lie (`packed`), fields, ops.

A number stands in a *slot*, an integer of 32 or 64 bits, in the highest of its bits; the others
are zero. So what a slot's arithmetic drops is what the number's own would: sums, bits, minima and
maxima of slots are those of their numbers, in whatever order they are taken.

Encoding and decoding are written once, with the operators of `Lane`: kernels give values that
append ops, Python arrays of numpy.

    >>> Whole(5, True, i32).text()
    'int:5:1:i32'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from vkchi.types.core import Scalar, f32, i32, scalar_named, u32

if TYPE_CHECKING:
    from typing import Self

L = TypeVar("L", bound="Lane")

MANTISSA = 23  # bits of a float of 32
BIAS = 127
# The floats of a width next below 2**31 and 2**32, or the whole numbers below these.
BELOW_HALF = {32: float(2**31 - 2**7), 64: float(2**31 - 1)}
BELOW_WHOLE = {32: float(2**32 - 2**8), 64: float(2**32 - 1)}


class Lane(Protocol):
    """A number, or many, with operators; the other operand may be a Python number."""

    def cast(self, elem: Scalar) -> Self: ...

    def bits(self, elem: Scalar) -> Self: ...

    def number(self, x: float) -> Self: ...

    def where(self, yes: Self | float, no: Self | float) -> Self: ...

    def equals(self, x: Self | float) -> Self: ...

    def at_least(self, other: Self | float) -> Self: ...

    def at_most(self, other: Self | float) -> Self: ...

    def __abs__(self) -> Self: ...

    def __invert__(self) -> Self: ...

    def __xor__(self, x: Self | int) -> Self: ...

    def __add__(self, x: Self | float) -> Self: ...

    def __sub__(self, x: Self | float) -> Self: ...

    def __mul__(self, x: Self | float) -> Self: ...

    def __lt__(self, x: Self | float) -> Self: ...

    def __and__(self, x: Self | int) -> Self: ...

    def __or__(self, x: Self | int) -> Self: ...

    def __lshift__(self, x: Self | int) -> Self: ...

    def __rshift__(self, x: Self | int) -> Self: ...


class Quantised:
    """A type of numbers that fields keep in `bits` bits each; kernels know them as of type
    `compute`. One stands in the highest bits of an integer of type `slot`. `facts`: all that is
    known of the type, in the order in which programs and texts say it."""

    __slots__ = ("bits", "compute", "facts", "slot")
    kind = "q"  # no plain number, which `types.Scalar` calls i, u, f or b
    adds_slots = True  # whether adding numbers is adding their slots, in whatever order
    maker = ""  # its function in `types.quant`, with which its text begins as well
    names: tuple[str, ...] = ()  # what a program writes before each fact

    def __init__(
        self, bits: int, slot: Scalar, compute: Scalar, facts: tuple[float | Scalar, ...]
    ) -> None:
        self.bits, self.slot, self.compute, self.facts = bits, slot, compute, facts

    def encode(self, x: L) -> L:
        """The slots of numbers of type `compute`."""
        raise NotImplementedError

    def decode(self, slot: L) -> L:
        """The numbers that slots hold."""
        raise NotImplementedError

    def raised(self, bits: L) -> L:
        """The slots of numbers that are the lowest bits of integers, whatever is above them."""
        unsigned = integer(self.slot.bits, signed=False)
        return (bits.cast(unsigned) << self.slot.bits - self.bits).bits(self.slot)

    def lowered(self, slot: L) -> L:
        """The numbers in slots as the lowest bits of unsigned integers, with zeros above."""
        unsigned = integer(self.slot.bits, signed=False)
        return slot.bits(unsigned) >> self.slot.bits - self.bits

    def text(self) -> str:
        """The type in a layout's text."""
        return ":".join([self.maker, *map(text_of, self.facts)])

    def __repr__(self) -> str:
        parts = [name + str(fact) for name, fact in zip(self.names, self.facts, strict=True)]
        return f"ti.types.quant.{self.maker}({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.facts == self.facts

    def __hash__(self) -> int:
        return hash((self.maker, self.facts))


class Whole(Quantised):
    """Integers, of which the low bits are kept."""

    __slots__ = ()
    maker, names = "int", ("", "signed=", "compute=ti.")

    def __init__(self, bits: int, signed: bool, compute: Scalar) -> None:
        slot = integer(32 if bits <= 32 else 64, signed)
        super().__init__(bits, slot, compute, (bits, signed, compute))

    def encode(self, x: L) -> L:
        """See `Quantised`."""
        slot = self.slot
        return x.cast(slot) << slot.bits - self.bits

    def decode(self, slot: L) -> L:
        """See `Quantised`."""
        return (slot >> self.slot.bits - self.bits).cast(self.compute)


class Fixed(Quantised):
    """Whole multiples of `scale`, rounded to the nearest, halves away from zero; of the whole
    number the low bits are kept."""

    __slots__ = ("scale", "signed")
    maker, names = "fixed", ("", "signed=", "compute=ti.", "scale=")

    def __init__(self, bits: int, signed: bool, compute: Scalar, scale: float) -> None:
        super().__init__(bits, integer(32, signed), compute, (bits, signed, compute, scale))
        self.signed, self.scale = signed, scale

    def encode(self, x: L) -> L:
        """See `Quantised`. Beyond what 32 bits count, the nearest; what is no number is 0. The sign
        comes of the float's bits, so that gradients see where they end."""
        steps = (x * (1.0 / self.scale)).__abs__() + 0.5  # type checkers know abs() as any Lane's
        steps = steps.equals(steps).where(steps, 0.0)
        width = self.compute.bits
        sign = (x.bits(integer(width, signed=True)) >> width - 1).cast(i32)  # 0 or -1
        if self.bits == 32:
            return self._all_bits(steps, sign.bits(u32))
        count = ((steps.at_most(BELOW_HALF[width]).cast(i32) ^ sign) - sign).bits(self.slot)
        return count << 32 - self.bits

    def _all_bits(self, steps: L, sign: L) -> L:
        """The slot of so many steps (a float) where no bit is left over: the ends are its own."""
        if self.signed:
            count = steps.at_most(2.0**31).cast(u32)
            count = count - ((count >> 31) & ~sign)  # of 2**31, only the negative is there
            return ((count ^ sign) - sign).bits(self.slot)
        count = steps.at_most(BELOW_WHOLE[self.compute.bits]).cast(u32)
        return (steps < 2.0**32).where(count, count.number(2**32 - 1)) & ~sign

    def decode(self, slot: L) -> L:
        """See `Quantised`."""
        return (slot >> 32 - self.bits).cast(self.compute) * self.scale


class Floating(Quantised):
    """A sign, if `signed`, an exponent, and a fraction without its leading one: a float of 32 bits
    with fewer of them, rounded to the nearest, halves away from zero. An exponent of zero is the
    number 0, and so is what would need a smaller one. `exponent`: its bits; `digits`: those of the
    fraction itself, of which `fraction` counts the sign as one."""

    __slots__ = ("digits", "exponent", "signed")
    adds_slots = False
    maker, names = "float", ("exp=", "frac=", "signed=", "compute=ti.")

    def __init__(self, exponent: int, fraction: int, signed: bool, compute: Scalar) -> None:
        super().__init__(exponent + fraction, u32, compute, (exponent, fraction, signed, compute))
        self.exponent, self.digits, self.signed = exponent, fraction - int(signed), signed

    @property
    def least(self) -> int:
        """The bits, sign left out, of what is 1 in the lowest exponent: less is 0."""
        return 1 << self.digits

    @property
    def lifted(self) -> int:
        """What a float's exponent is more than this one's, before the fraction's bits."""
        return BIAS - ((1 << self.exponent - 1) - 1) << self.digits

    def encode(self, x: L) -> L:
        """See `Quantised`. What is too large, and no number where there is none: the greatest. A
        negative number of an unsigned type: its magnitude."""
        word, cut = x.cast(f32).bits(u32), MANTISSA - self.digits
        size = word & 0x7FFFFFFF
        rounded = (size + (1 << cut >> 1)) >> cut
        size = rounded.at_least(self.lifted) - self.lifted
        size = size.at_most((1 << self.exponent + self.digits) - 1)
        if self.signed:
            size = size | (word >> 31 << self.exponent + self.digits)
        kept = (rounded < self.lifted + self.least).where(size.number(0), size)
        return kept << 32 - self.bits

    def decode(self, slot: L) -> L:
        """See `Quantised`."""
        number = slot >> 32 - self.bits
        size = number & (1 << self.exponent + self.digits) - 1
        word = (size + self.lifted) << MANTISSA - self.digits
        if self.signed:
            word = word | (number >> self.exponent + self.digits << 31)
        return (size < self.least).where(word.number(0), word).bits(f32).cast(self.compute)


def integer(bits: int, signed: bool) -> Scalar:
    """The integer type of a width."""
    return scalar_named(f"{'i' if signed else 'u'}{bits}")


def text_of(fact: float | Scalar) -> str:
    """A fact in a text: floats keep all their bits, truth values are 0 and 1."""
    if isinstance(fact, float):
        return fact.hex()
    return str(int(fact)) if isinstance(fact, bool) else str(fact)


def quantised_of(text: str) -> Quantised:
    """The type that `text` gave. Raises ValueError."""
    kind, *rest = text.split(":")
    try:
        if kind == "float":
            exponent, fraction, signed, compute = rest
            return Floating(int(exponent), int(fraction), signed == "1", scalar_named(compute))
        bits, signed, compute, *scale = rest
        number = int(bits), signed == "1", scalar_named(compute)
        return Fixed(*number, float.fromhex(*scale)) if kind == "fixed" else Whole(*number)
    except (KeyError, TypeError) as e:
        raise ValueError(f"`{text}` is not a quantised type") from e
