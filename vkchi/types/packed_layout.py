"""Layouts of bit-packed numbers: the word of an element, and its bits in the word.

An `Affine` gives the offset of the word. In the word, each component begins at a fixed bit. If one
word holds several elements of an array, digits of the indices add further bits.

See also: `quant_encoding` defines the meaning of the bits.

    >>> five = QuantInt(5, True, i32)
    >>> Packed(row_major((8,), 1), ((),), (7,), 32, False, five).text()
    'packed(1%0*1;0;8;//7/32/0/int:5:1:i32)'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkchi.tuples import NamedTuple
from vkchi.types.core import Scalar, u32, u64
from vkchi.types.layout import Affine, AxisTerm, affine_of, sum_of_digits
from vkchi.types.lazy_numpy import np
from vkchi.types.numpy_lanes import NumpyLanes
from vkchi.types.quant_encoding import L, Quantised, quantised_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


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

    # --- bits of words, for values of kernels or numpy (`quant_encoding.Lane`) --------------------

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
