"""Layouts of numbers that share words: which word, and which of its bits.

Owns: `Packed`, a `layout.Layout`: its arithmetic, its text, and what numpy does with such words.
Must not know: what the bits mean (`quantised`), devices, ops.

The word is where an `Affine` puts it. In it, a component begins at a bit of its own, and, where an
array of numbers fills the word, digits of the indices count further bits.

    >>> five = Whole(5, True, i32)
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
from vkchi.types.quantised import Quantised, quantised_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Packed(NamedTuple):
    """Numbers of a type in words of `word_bits`, of which `words` says where they lie. Component k
    begins at bit `starts[k]`, plus `inner`, digits of each index times bits. `is_alone`: an element
    is all that is in its word. See `Layout`."""

    words: Affine
    inner: tuple[tuple[AxisTerm, ...], ...]
    starts: tuple[int, ...]
    word_bits: int
    is_alone: bool
    number: Quantised

    @property
    def rank(self) -> int:
        """See `Layout`."""
        return self.words.rank

    @property
    def components(self) -> tuple[int, ...]:
        """See `Layout`: all of an element's are in one word."""
        return (0,) * len(self.starts)

    @property
    def size(self) -> int:
        """See `Layout`."""
        return self.words.size

    @property
    def origin(self) -> tuple[int, ...]:
        """See `Layout`."""
        return self.words.origin

    @property
    def word(self) -> Scalar:
        """The type of words."""
        return u32 if self.word_bits == 32 else u64

    def offset(self, index: Sequence[Any]) -> Any:
        """The place of an element's word. See `Layout`."""
        return self.words.offset(index)

    def bit(self, index: Sequence[Any]) -> Any:
        """How many bits of the word come before those of an element in it."""
        return sum_of_digits(index, self.inner)

    def digits(self, shape: tuple[int, ...]) -> None:
        """See `Layout`: the place of a number is no sum of steps of words."""

    def component(self, k: int) -> Packed:
        """See `Layout`."""
        alone = self.is_alone and len(self.starts) == 1
        return self._replace(starts=(self.starts[k],), is_alone=alone)

    def text(self) -> str:
        """See `Layout`."""
        inner = "|".join("+".join(f"{d}%{m}*{s}" for d, m, s in axis) for axis in self.inner)
        parts = (
            self.words.text()[1:-1], inner, ",".join(map(str, self.starts)), self.word_bits,
            int(self.is_alone), self.number.text(),
        )  # fmt: skip
        return f"packed({'/'.join(map(str, parts))})"

    # --- words in numpy's arrays -----------------------------------------------------------------

    def first_bits(self, shape: tuple[int, ...]) -> Any:
        """Where the bits of each number begin, of all elements: an axis more, for components."""
        bits = np.zeros(shape, np.int64) + self.bit([*np.indices(shape)])
        return bits[..., None] + np.array(self.starts)

    def take(self, words: Any, bits: Any) -> Any:
        """The slots that stand in words from some bits on."""
        slot, width = self.number.slot, self.number.bits
        kept = words >> np.asarray(bits).astype(words.dtype) & words.dtype.type((1 << width) - 1)
        return (kept.astype(f"u{slot.bits // 8}") << slot.bits - width).view(slot.dtype)

    def clear(self, bits: Any) -> Any:
        """Words whose bits are ones but for those of numbers that begin at some bits."""
        word, ones = self.word.dtype, (1 << self.number.bits) - 1
        return ~(word.type(ones) << np.asarray(bits).astype(word))

    def shifted(self, slots: Any, bits: Any) -> Any:
        """Words that are zero but for numbers from some bits on."""
        slot, word = self.number.slot, self.word.dtype
        low = np.asarray(slots).view(f"u{slot.bits // 8}") >> slot.bits - self.number.bits
        return low.astype(word) << np.asarray(bits).astype(word)

    def replace(self, word: Any, bit: int, slot: Any) -> Any:
        """A word with one number replaced."""
        return word & self.clear(bit) | self.shifted(slot, bit)

    def gather(self, flat: Any, places: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        """The slots of all elements, whose words stand at these places of an array."""
        bits = self.first_bits(shape).reshape(places.shape)
        found: NDArray[Any] = self.take(flat[places], bits)
        return found

    def scatter(self, flat: Any, places: Any, shape: tuple[int, ...], slots: Any) -> None:
        """Put the slots of all elements there; several may be in one word."""
        bits = self.first_bits(shape).reshape(places.shape)
        np.bitwise_and.at(flat, places, self.clear(bits))
        np.bitwise_or.at(flat, places, self.shifted(slots, bits))


def packed_of(text: str, rank: int) -> Packed:
    """What stands between the parentheses. Raises ValueError."""
    words, inner, starts, word_bits, is_alone, number = text.split("/")
    axes = affine_of(f"{inner};0;0;", rank).axes
    firsts = tuple(map(int, starts.split(",")))
    found = affine_of(words, rank), axes, firsts
    return Packed(*found, int(word_bits), is_alone == "1", quantised_of(number))
