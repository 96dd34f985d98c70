"""Bit-packed numbers: encoding of integers, fixed-point and floating-point numbers in a few bits.

A number is in the highest bits of a *slot*, an integer of 32 or 64 bits; the lower bits are zero.
So sums of slots of integers and fixed-point numbers overflow exactly as sums of the numbers.
Additions and bit operations can be applied to slots of these two kinds directly.

Encoding and decoding are written once, with the operators of `Lane`. Kernels pass values that emit
ops, Python passes numpy arrays. Types can be printed and parsed.

See also: `packed_layout` gives the position of the bits in memory.

    >>> QuantInt(5, True, i32).text()
    'int:5:1:i32'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from vkchi.types.core import Scalar, f32, i32, scalar_named, u32

if TYPE_CHECKING:
    from typing import Self

L = TypeVar("L", bound="Lane")

MANTISSA = 23  # fraction bits of f32
BIAS = 127
# Largest float below 2**31 and 2**32 by width, or the largest integer if that is smaller.
BELOW_HALF = {32: float(2**31 - 2**7), 64: float(2**31 - 1)}
BELOW_WHOLE = {32: float(2**32 - 2**8), 64: float(2**32 - 1)}


class Lane(Protocol):
    """One or many numbers with operators; the other operand may be a Python scalar."""

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
    """A bit-packed number type of `bits` bits.

    Kernels compute with values of type `compute`. A number is in the highest bits of an integer of
    type `slot`. `facts` are the parameters of the type, in the order of its constructor and text.
    """

    __slots__ = ("bits", "compute", "facts", "slot")
    kind = "q"  # beside the kinds i, u, f and b of `types.Scalar`
    adds_slots = True  # True if adding slots adds the numbers, in any order
    maker = ""  # name of its constructor in `types.quant`, also the first word of its text
    names: tuple[str, ...] = ()  # prefix of each fact in the constructor's call

    def __init__(
        self, bits: int, slot: Scalar, compute: Scalar, facts: tuple[float | Scalar, ...]
    ) -> None:
        self.bits, self.slot, self.compute, self.facts = bits, slot, compute, facts

    def encode(self, x: L) -> L:
        raise NotImplementedError

    def decode(self, slot: L) -> L:
        raise NotImplementedError

    def raised(self, bits: L) -> L:
        """Shift numbers from the lowest bits of integers into slots; higher bits are ignored."""
        unsigned = integer_of_width(self.slot.bits, signed=False)
        return (bits.cast(unsigned) << self.slot.bits - self.bits).bits(self.slot)

    def lowered(self, slot: L) -> L:
        """Shift numbers from slots to the lowest bits of unsigned integers."""
        unsigned = integer_of_width(self.slot.bits, signed=False)
        return slot.bits(unsigned) >> self.slot.bits - self.bits

    def text(self) -> str:
        """The type in the text form of layouts."""
        return ":".join([self.maker, *map(parameter_text, self.facts)])

    def __repr__(self) -> str:
        parts = [name + str(fact) for name, fact in zip(self.names, self.facts, strict=True)]
        return f"ti.types.quant.{self.maker}({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.facts == self.facts

    def __hash__(self) -> int:
        return hash((self.maker, self.facts))


class QuantInt(Quantised):
    """Integers of `bits` bits. Encoding keeps the low bits of a value."""

    __slots__ = ()
    maker, names = "int", ("", "signed=", "compute=ti.")

    def __init__(self, bits: int, signed: bool, compute: Scalar) -> None:
        slot = integer_of_width(32 if bits <= 32 else 64, signed)
        super().__init__(bits, slot, compute, (bits, signed, compute))

    def encode(self, x: L) -> L:
        slot = self.slot
        return x.cast(slot) << slot.bits - self.bits

    def decode(self, slot: L) -> L:
        return (slot >> self.slot.bits - self.bits).cast(self.compute)


class QuantFixed(Quantised):
    """Integer multiples of `scale`, rounded to nearest, ties away from zero.

    The integer saturates at 32 bits; then its low `bits` bits are kept.
    """

    __slots__ = ("scale", "signed")
    maker, names = "fixed", ("", "signed=", "compute=ti.", "scale=")

    def __init__(self, bits: int, signed: bool, compute: Scalar, scale: float) -> None:
        super().__init__(
            bits, integer_of_width(32, signed), compute, (bits, signed, compute, scale)
        )
        self.signed, self.scale = signed, scale

    def encode(self, x: L) -> L:
        """Slots of the nearest multiples; values beyond 32 bits saturate, NaN is 0.

        The sign comes from the float's bits, so that gradients stop there.
        """
        steps = (x * (1.0 / self.scale)).__abs__() + 0.5  # mypy types abs() of a Lane as any Lane
        steps = steps.equals(steps).where(steps, 0.0)
        width = self.compute.bits
        sign = (x.bits(integer_of_width(width, signed=True)) >> width - 1).cast(i32)  # 0 or -1
        if self.bits == 32:
            return self._all_bits(steps, sign.bits(u32))
        count = ((steps.at_most(BELOW_HALF[width]).cast(i32) ^ sign) - sign).bits(self.slot)
        return count << 32 - self.bits

    def _all_bits(self, steps: L, sign: L) -> L:
        """Case of 32 bits: the slot of `steps`, a float; it saturates at exactly the limits of the
        type."""
        if self.signed:
            count = steps.at_most(2.0**31).cast(u32)
            count = count - ((count >> 31) & ~sign)  # only -2**31 exists
            return ((count ^ sign) - sign).bits(self.slot)
        count = steps.at_most(BELOW_WHOLE[self.compute.bits]).cast(u32)
        return (steps < 2.0**32).where(count, count.number(2**32 - 1)) & ~sign

    def decode(self, slot: L) -> L:
        return (slot >> 32 - self.bits).cast(self.compute) * self.scale


class QuantFloat(Quantised):
    """Floats with fewer bits than f32, rounded to nearest, ties away from zero.

    They have a sign (if `signed`), an exponent, and a fraction without its leading one. Exponent 0
    denotes 0; magnitudes that round to less than the smallest positive number become 0. `exponent`:
    bits of the exponent. `digits`: bits of the fraction without the sign, which the parameter
    `fraction` includes.
    """

    __slots__ = ("digits", "exponent", "signed")
    adds_slots = False
    maker, names = "float", ("exp=", "frac=", "signed=", "compute=ti.")

    def __init__(self, exponent: int, fraction: int, signed: bool, compute: Scalar) -> None:
        super().__init__(exponent + fraction, u32, compute, (exponent, fraction, signed, compute))
        self.exponent, self.digits, self.signed = exponent, fraction - int(signed), signed

    @property
    def least(self) -> int:
        """Bits of the smallest positive number, without sign: exponent 1, fraction 0."""
        return 1 << self.digits

    @property
    def lifted(self) -> int:
        """Difference between the exponent biases of f32 and this type, shifted above the
        fraction."""
        return BIAS - ((1 << self.exponent - 1) - 1) << self.digits

    def encode(self, x: L) -> L:
        """Slots of the nearest numbers. Overflows and NaN become the largest magnitude.

        A negative number of an unsigned type becomes its magnitude.
        """
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
        number = slot >> 32 - self.bits
        size = number & (1 << self.exponent + self.digits) - 1
        word = (size + self.lifted) << MANTISSA - self.digits
        if self.signed:
            word = word | (number >> self.exponent + self.digits << 31)
        return (size < self.least).where(word.number(0), word).bits(f32).cast(self.compute)


def integer_of_width(bits: int, signed: bool) -> Scalar:
    return scalar_named(f"{'i' if signed else 'u'}{bits}")


def parameter_text(fact: float | Scalar) -> str:
    """A parameter as text: floats in hexadecimal, bools as 0 and 1."""
    if isinstance(fact, float):
        return fact.hex()
    return str(int(fact)) if isinstance(fact, bool) else str(fact)


def quantised_of(text: str) -> Quantised:
    """Parse the text of a type (`Quantised.text`). Raises ValueError."""
    kind, *rest = text.split(":")
    try:
        if kind == "float":
            exponent, fraction, signed, compute = rest
            return QuantFloat(int(exponent), int(fraction), signed == "1", scalar_named(compute))
        bits, signed, compute, *scale = rest
        number = int(bits), signed == "1", scalar_named(compute)
        return QuantFixed(*number, float.fromhex(*scale)) if kind == "fixed" else QuantInt(*number)
    except (KeyError, TypeError) as e:
        raise ValueError(f"`{text}` is not a quantised type") from e
