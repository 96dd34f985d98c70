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

from typing import TYPE_CHECKING, Any, Protocol

from vkchi.tuples import NamedTuple
from vkchi.types.core import Scalar, f32, i32, i64, scalar_named, u32, u64

if TYPE_CHECKING:
    from typing import Self

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


class Quantised(Protocol):
    """A type of numbers that fields keep in a few bits."""

    @property
    def compute(self) -> Scalar:
        """The type that kernels know them as."""

    @property
    def kind(self) -> str:
        """q: no plain number, which `types.Scalar` calls i, u, f or b."""

    @property
    def bits(self) -> int:
        """How many bits one takes."""

    @property
    def slot(self) -> Scalar:
        """The integer in whose highest bits one stands."""

    @property
    def adds_slots(self) -> bool:
        """Whether adding a number is adding its slot, whatever else is added meanwhile."""

    def encode(self, x: Any) -> Any:
        """The slot (a Lane) of a number of type `compute`."""

    def decode(self, slot: Any) -> Any:
        """The number that a slot holds."""

    def text(self) -> str:
        """The type in a layout's text."""


class Whole(NamedTuple):
    """Integers, of which the low bits are kept. See `Quantised`."""

    bits: int
    signed: bool
    compute: Scalar

    @property
    def kind(self) -> str:
        """See `Quantised`."""
        return "q"

    @property
    def adds_slots(self) -> bool:
        """See `Quantised`."""
        return True

    @property
    def slot(self) -> Scalar:
        """See `Quantised`."""
        if self.bits > 32:
            return i64 if self.signed else u64
        return i32 if self.signed else u32

    def encode(self, x: Any) -> Any:
        """See `Quantised`."""
        slot = self.slot
        return x.cast(slot) << slot.bits - self.bits

    def decode(self, slot: Any) -> Any:
        """See `Quantised`."""
        return (slot >> self.slot.bits - self.bits).cast(self.compute)

    def text(self) -> str:
        """See `Quantised`."""
        return f"int:{self.bits}:{int(self.signed)}:{self.compute}"

    def __repr__(self) -> str:
        return f"ti.types.quant.int({self.bits}, signed={self.signed}, compute=ti.{self.compute})"


class Fixed(NamedTuple):
    """Whole multiples of `scale`, rounded to the nearest, halves away from zero; of the whole
    number the low bits are kept. See `Quantised`."""

    bits: int
    signed: bool
    compute: Scalar
    scale: float

    @property
    def kind(self) -> str:
        """See `Quantised`."""
        return "q"

    @property
    def adds_slots(self) -> bool:
        """See `Quantised`."""
        return True

    @property
    def slot(self) -> Scalar:
        """See `Quantised`."""
        return i32 if self.signed else u32

    def encode(self, x: Any) -> Any:
        """See `Quantised`. Beyond what 32 bits count, the nearest; what is no number is 0. The sign
        comes of the float's bits, so that gradients see where they end."""
        steps = abs(x * (1.0 / self.scale)) + 0.5
        steps = steps.equals(steps).where(steps, 0.0)
        width = self.compute.bits
        sign = (x.bits(scalar_named(f"i{width}")) >> width - 1).cast(i32)  # 0 or -1
        if self.bits == 32:
            return self._all_bits(steps, sign.bits(u32))
        count = ((steps.at_most(BELOW_HALF[width]).cast(i32) ^ sign) - sign).bits(self.slot)
        return count << 32 - self.bits

    def _all_bits(self, steps: Any, sign: Any) -> Any:
        """The slot of so many steps (a float) where no bit is left over: the ends are its own."""
        if self.signed:
            count = steps.at_most(2.0**31).cast(u32)
            count = count - ((count >> 31) & ~sign)  # of 2**31, only the negative is there
            return ((count ^ sign) - sign).bits(self.slot)
        count = steps.at_most(BELOW_WHOLE[self.compute.bits]).cast(u32)
        return (steps < 2.0**32).where(count, count.number(2**32 - 1)) & ~sign

    def decode(self, slot: Any) -> Any:
        """See `Quantised`."""
        return (slot >> 32 - self.bits).cast(self.compute) * self.scale

    def text(self) -> str:
        """See `Quantised`."""
        return f"fixed:{self.bits}:{int(self.signed)}:{self.compute}:{self.scale.hex()}"

    def __repr__(self) -> str:
        return (
            f"ti.types.quant.fixed({self.bits}, signed={self.signed}, compute=ti.{self.compute}, "
            f"scale={self.scale})"
        )


class Floating(NamedTuple):
    """A sign, if `signed`, an exponent, and a fraction without its leading one: a float of 32 bits
    with fewer of them, rounded to the nearest, halves away from zero. An exponent of zero is the
    number 0, and so is what would need a smaller one. See `Quantised`."""

    exponent: int
    fraction: int
    signed: bool
    compute: Scalar

    @property
    def kind(self) -> str:
        """See `Quantised`."""
        return "q"

    @property
    def adds_slots(self) -> bool:
        """See `Quantised`."""
        return False

    @property
    def slot(self) -> Scalar:
        """See `Quantised`."""
        return u32

    @property
    def bits(self) -> int:
        """See `Quantised`."""
        return self.exponent + self.fraction

    @property
    def digits(self) -> int:
        """The bits of the fraction itself: of a signed one, the sign is one of `fraction`."""
        return self.fraction - int(self.signed)

    @property
    def least(self) -> int:
        """The bits, sign left out, of what is 1 in the lowest exponent: less is 0."""
        return 1 << self.digits

    @property
    def lifted(self) -> int:
        """What a float's exponent is more than this one's, before the fraction's bits."""
        return BIAS - ((1 << self.exponent - 1) - 1) << self.digits

    def encode(self, x: Any) -> Any:
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

    def decode(self, slot: Any) -> Any:
        """See `Quantised`."""
        number = slot >> 32 - self.bits
        size = number & (1 << self.exponent + self.digits) - 1
        word = (size + self.lifted) << MANTISSA - self.digits
        if self.signed:
            word = word | (number >> self.exponent + self.digits << 31)
        return (size < self.least).where(word.number(0), word).bits(f32).cast(self.compute)

    def text(self) -> str:
        """See `Quantised`."""
        return f"float:{self.exponent}:{self.fraction}:{int(self.signed)}:{self.compute}"

    def __repr__(self) -> str:
        return (
            f"ti.types.quant.float(exp={self.exponent}, frac={self.fraction}, "
            f"signed={self.signed}, compute=ti.{self.compute})"
        )


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
        raise ValueError(f"`{text}` is no type of numbers of any width") from e
