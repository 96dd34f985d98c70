"""Bit-packed numbers: encoding of integers, fixed-point and floating-point numbers in a few bits,
and layouts of the words that hold them.

A number is in the highest bits of a *slot*, an integer of 32 or 64 bits; the lower bits are zero.
So sums of slots of integers and fixed-point numbers overflow exactly as sums of the numbers.
Additions and bit operations can be applied to slots of these two kinds directly.

Encoding and decoding are written once, with the operators of `Lane`. Kernels pass values that emit
ops (`ir.num.Num`), Python passes numpy arrays (`NumpyLanes`). Types can be printed and parsed.

In a layout, an `Affine` gives the offset of the word. In the word, each component begins at a fixed
bit. If one word holds several elements of an array, digits of the indices add further bits.

    >>> QuantInt(5, True, i32).text()
    'int:5:1:i32'
    >>> Packed(row_major((8,), 1), ((),), (7,), 32, False, QuantInt(5, True, i32)).text()
    'packed(1%0*1;0;8;//7/32/0/int:5:1:i32)'
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from vkchi.tuples import NamedTuple
from vkchi.types.core import Scalar, f32, i32, scalar_named, u32, u64
from vkchi.types.layout import Affine, AxisTerm, affine_of, sum_of_digits
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from typing import Self

    from numpy.typing import NDArray

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


class NumpyLanes:
    """A numpy array `v` with operators. Python scalars as other operands are converted to its
    dtype."""

    __slots__ = ("v",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, v: Any) -> None:
        self.v = np.asarray(v)

    def like(self, x: NumpyLanes | float) -> Any:
        """The numpy array of x; a Python scalar becomes an array of this object's dtype."""
        return x.v if isinstance(x, NumpyLanes) else np.asarray(x, self.v.dtype)

    def apply(self, f: Any, *others: NumpyLanes | float) -> NumpyLanes:
        """Apply a numpy function to this and others, without warnings about overflow."""
        with np.errstate(all="ignore"):
            return NumpyLanes(f(self.v, *[self.like(x) for x in others]))

    def number(self, x: float) -> NumpyLanes:
        """A scalar of the same type."""
        return NumpyLanes(self.like(x))

    def cast(self, elem: Scalar) -> NumpyLanes:
        """Convert to another type; integers wrap."""
        return self.apply(lambda v: v.astype(elem.dtype))

    def bits(self, elem: Scalar) -> NumpyLanes:
        """Reinterpret as another type of the same width."""
        return NumpyLanes(self.v.view(elem.dtype))

    def where(self, yes: NumpyLanes | float, no: NumpyLanes | float) -> NumpyLanes:
        """Select `yes` where this mask is true, else `no`; one of them at least must be a
        NumpyLanes."""
        typed = yes if isinstance(yes, NumpyLanes) else no
        assert isinstance(typed, NumpyLanes)
        return NumpyLanes(np.where(self.v, typed.like(yes), typed.like(no)))

    def equals(self, x: NumpyLanes | float) -> NumpyLanes:
        """Elementwise equality."""
        return self.apply(np.equal, x)

    def at_least(self, other: NumpyLanes | float) -> NumpyLanes:
        """Elementwise maximum."""
        return self.apply(np.maximum, other)

    def at_most(self, other: NumpyLanes | float) -> NumpyLanes:
        """Elementwise minimum."""
        return self.apply(np.minimum, other)

    def __lt__(self, x: NumpyLanes | float) -> NumpyLanes:
        return self.apply(np.less, x)

    def __abs__(self) -> NumpyLanes:
        return self.apply(np.abs)

    def __invert__(self) -> NumpyLanes:
        return self.apply(np.invert)

    def __xor__(self, x: NumpyLanes | int) -> NumpyLanes:
        return self.apply(np.bitwise_xor, x)

    def __add__(self, x: NumpyLanes | float) -> NumpyLanes:
        return self.apply(np.add, x)

    def __sub__(self, x: NumpyLanes | float) -> NumpyLanes:
        return self.apply(np.subtract, x)

    def __mul__(self, x: NumpyLanes | float) -> NumpyLanes:
        return self.apply(np.multiply, x)

    def __and__(self, x: NumpyLanes | int) -> NumpyLanes:
        return self.apply(np.bitwise_and, x)

    def __or__(self, x: NumpyLanes | int) -> NumpyLanes:
        return self.apply(np.bitwise_or, x)

    def __lshift__(self, x: NumpyLanes | int) -> NumpyLanes:
        return self.apply(np.left_shift, x)

    def __rshift__(self, x: NumpyLanes | int) -> NumpyLanes:
        return self.apply(np.right_shift, x)


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


class SharedFloats(Quantised):
    """Floats of `parts` that share one exponent, as block floating point: a sign and a fraction of
    each, and the exponent of the largest. They have one slot.

    A fraction includes its leading one, and is rounded to nearest, ties away from zero, at most to
    all ones. Exponent 0 denotes that all are 0.
    """

    __slots__ = ("exponent", "parts", "starts")
    adds_slots = False
    maker = "shared"

    def __init__(self, parts: tuple[QuantFloat, ...]) -> None:
        exponent = self.exponent = parts[0].exponent
        ends = [*accumulate([one.bits - exponent for one in parts])]
        bits = ends[-1] + exponent
        facts = (exponent, *[fact for one in parts for fact in one.facts[1:]])
        slot = integer_of_width(32 if bits <= 32 else 64, signed=False)
        super().__init__(bits, slot, parts[0].compute, facts)
        self.parts, self.starts = parts, (0, *ends)

    def __repr__(self) -> str:
        return f"{len(self.parts)} floats that share an exponent of {self.exponent} bits"

    @property
    def lifted(self) -> int:
        """Difference between the exponent biases of f32 and this type."""
        return BIAS - ((1 << self.exponent - 1) - 1)

    @property
    def greatest(self) -> int:
        """The greatest exponent, as f32 has it."""
        return min(self.lifted + (1 << self.exponent) - 1, 2 * BIAS)

    def encode(self, x: L) -> L:
        """Slots whose parts are all this number."""
        return self.pack([x] * len(self.parts))

    def decode(self, slot: L) -> L:
        """The numbers of the first part."""
        return self.unpack(slot, 0)

    def pack(self, numbers: Sequence[L]) -> L:
        """Slots of the nearest floats. If one is too large or NaN, it becomes the largest magnitude
        and has the greatest exponent.

        A negative number of an unsigned part becomes its magnitude.
        """
        words = [x.cast(f32).bits(u32) for x in numbers]
        powers = [word >> MANTISSA & 0xFF for word in words]
        largest = reduce(lambda x, y: x.at_least(y), powers).at_most(self.greatest)
        held = largest.at_least(self.lifted) - self.lifted
        slot = held.cast(self.slot) << self.starts[-1]
        for one, word, power, start in zip(self.parts, words, powers, self.starts):
            cut = largest + (MANTISSA + 1 - one.digits) - power.at_most(largest)
            cut, most = cut.at_most(31), (1 << one.digits) - 1
            whole = word & (1 << MANTISSA) - 1 | 1 << MANTISSA
            digits = whole + (word.number(1) << cut - 1) >> cut
            digits = (largest < power).where(most, digits.at_most(most))
            digits = power.equals(0).where(0, digits)
            digits = held.equals(0).where(0, digits)
            if one.signed:
                digits = digits | (digits.equals(0).where(0, word >> 31) << one.digits)
            slot = slot | digits.cast(self.slot) << start
        return slot << self.slot.bits - self.bits

    def unpack(self, slot: L, k: int) -> L:
        """The numbers of part k in slots, of its type `compute`."""
        one, number = self.parts[k], slot >> self.slot.bits - self.bits
        power = (number >> self.starts[-1]).cast(u32) + self.lifted
        bits = (number >> self.starts[k]).cast(u32)
        digits = bits & (1 << one.digits) - 1
        least = BIAS + one.digits - 1  # subtracted from the exponents' sum
        word = digits.cast(f32).bits(u32)
        is_normal = power.number(least) < (word >> MANTISSA) + power
        word = is_normal.where(word + (power - least << MANTISSA), 0)
        word = digits.equals(0).where(0, word)
        if one.signed:
            word = word | (bits >> one.digits & 1) << 31
        return word.bits(f32).cast(one.compute)


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
        if kind in ("float", "shared"):
            exponent, *facts = rest
            parts = tuple([
                QuantFloat(int(exponent), int(fraction), signed == "1", scalar_named(compute))
                for fraction, signed, compute in zip(*[iter(facts)] * 3, strict=True)
            ])  # fmt: skip
            return SharedFloats(parts) if kind == "shared" else parts[0]
        bits, signed, compute, *scale = rest
        number = int(bits), signed == "1", scalar_named(compute)
        return QuantFixed(*number, float.fromhex(*scale)) if kind == "fixed" else QuantInt(*number)
    except (KeyError, TypeError, IndexError) as e:
        raise ValueError(f"`{text}` is not a quantised type") from e


# --- layouts -------------------------------------------------------------------------------------


class Packed(NamedTuple):
    """Layout of bit-packed numbers in words of `word_bits` bits. See `Layout`.

    `words` is the layout of the words. Component k begins at bit `starts[k]` plus the sum of the
    terms `inner` of the indices. `is_alone`: a word holds nothing but one element.
    """

    words: Affine
    inner: tuple[tuple[AxisTerm, ...], ...]
    starts: tuple[int, ...]
    word_bits: int
    is_alone: bool
    number: Quantised

    @property
    def rank(self) -> int:
        return self.words.rank

    @property
    def components(self) -> tuple[int, ...]:
        """Zeros: all components of an element are in one word."""
        return (0,) * len(self.starts)

    @property
    def size(self) -> int:
        return self.words.size

    @property
    def origin(self) -> tuple[int, ...]:
        return self.words.origin

    @property
    def word(self) -> Scalar:
        """The scalar type of the words."""
        return u32 if self.word_bits == 32 else u64

    def offset(self, index: Sequence[Any]) -> Any:
        """The offset of an element's word."""
        return self.words.offset(index)

    def bit(self, index: Sequence[Any]) -> Any:
        """Bit position of an element in its word, without that of the component."""
        return sum_of_digits(index, self.inner)

    def digits(self, shape: tuple[int, ...]) -> None:
        """None: the position of a number is not a sum of word strides."""

    def component(self, k: int) -> Packed:
        alone = self.is_alone and len(self.starts) == 1
        return self._replace(starts=(self.starts[k],), is_alone=alone)

    def text(self) -> str:
        inner = "|".join("+".join(f"{d}%{m}*{s}" for d, m, s in axis) for axis in self.inner)
        parts = (
            self.words.text()[1:-1], inner, ",".join(map(str, self.starts)), self.word_bits,
            int(self.is_alone), self.number.text(),
        )  # fmt: skip
        return f"packed({'/'.join(map(str, parts))})"

    # --- bits of words, for values of kernels or numpy (`Lane`) ------------------------------

    @property
    def ones(self) -> int:
        """Bit mask of a number."""
        return (1 << self.number.bits) - 1

    def mask(self, word: L, bit: L | int) -> L:
        """Masks of the numbers that begin at these bits, of the word's type."""
        return word.number(self.ones) << bit

    def take(self, word: L, bit: L | int) -> L:
        """Extract the numbers that begin at these bits of the words, as slots: in their highest
        bits."""
        return self.number.raised(word >> bit)

    def put(self, slot: L, bit: L | int) -> L:
        """Words with the numbers of slots (in their highest bits) at the given bits, and zeros
        elsewhere."""
        return self.number.lowered(slot).cast(self.word) << bit

    # --- all elements, in numpy arrays of words --------------------------------------------------

    def gather(self, flat: Any, places: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        """The slots of all elements whose words are at `places` of array `flat`."""
        found: NDArray[Any] = self.take(NumpyLanes(flat[places]), self._first_bits(places, shape)).v
        return found

    def scatter(self, flat: Any, places: Any, shape: tuple[int, ...], slots: Any) -> None:
        """Store the slots of all elements into the words at `places` of array `flat`; other bits
        stay."""
        bits = self._first_bits(places, shape)
        np.bitwise_and.at(flat, places, (~self.mask(bits, bits)).v)
        np.bitwise_or.at(flat, places, self.put(NumpyLanes(slots), bits).v)

    def _first_bits(self, places: Any, shape: tuple[int, ...]) -> NumpyLanes:
        """First bit of each number in its word, for all elements and components, as words."""
        bits = np.zeros(shape, np.int64) + self.bit([*np.indices(shape)])
        each = bits[..., None] + np.array(self.starts)
        return NumpyLanes(each.reshape(places.shape)).cast(self.word)


def packed_of(text: str, rank: int) -> Packed:
    """Parse the text between the parentheses of `Packed.text`. Raises ValueError."""
    words, inner, starts, word_bits, is_alone, number = text.split("/")
    axes = affine_of(f"{inner};0;0;", rank).axes
    firsts = tuple(map(int, starts.split(",")))
    found = affine_of(words, rank), axes, firsts
    return Packed(*found, int(word_bits), is_alone == "1", quantised_of(number))
