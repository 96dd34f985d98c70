"""Layouts of numbers that share words: which word, and which of its bits.

Owns: `Packed`, a `layout.Layout`: its arithmetic, its text, how numbers are taken from words and
put there. Must not know: what the bits mean (`quantised`), devices, ops.

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
from vkchi.types.numpy_lanes import Lanes
from vkchi.types.quantised import L, Quantised, quantised_of

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

    # --- the bits of words: of kernels' values, of numpy's (`quantised.Lane`) --------------------

    @property
    def ones(self) -> int:
        """As many ones as a number has bits."""
        return (1 << self.number.bits) - 1

    def mask(self, word: L, bit: L | int) -> L:
        """Words, of this one's type, with ones for the numbers that begin at bits of them."""
        return word.number(self.ones) << bit

    def take(self, word: L, bit: L | int) -> L:
        """The slots of the numbers that begin at bits of words."""
        return self.number.raised(word >> bit)

    def put(self, slot: L, bit: L | int) -> L:
        """Words with the numbers of slots, which begin at bits of them, and zeros."""
        return self.number.lowered(slot).cast(self.word) << bit

    # --- all elements, in numpy's arrays of words ------------------------------------------------

    def gather(self, flat: Any, places: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        """The slots of all elements, whose words stand at these places of an array."""
        found: NDArray[Any] = self.take(Lanes(flat[places]), self._first_bits(places, shape)).v
        return found

    def scatter(self, flat: Any, places: Any, shape: tuple[int, ...], slots: Any) -> None:
        """Put the slots of all elements there; several may be in one word."""
        bits = self._first_bits(places, shape)
        np.bitwise_and.at(flat, places, (~self.mask(bits, bits)).v)
        np.bitwise_or.at(flat, places, self.put(Lanes(slots), bits).v)

    def _first_bits(self, places: Any, shape: tuple[int, ...]) -> Lanes:
        """Where in its word each number begins, as a word; of all elements and components."""
        bits = np.zeros(shape, np.int64) + self.bit([*np.indices(shape)])
        each = bits[..., None] + np.array(self.starts)
        return Lanes(each.reshape(places.shape)).cast(self.word)


def packed_of(text: str, rank: int) -> Packed:
    """What stands between the parentheses. Raises ValueError."""
    words, inner, starts, word_bits, is_alone, number = text.split("/")
    axes = affine_of(f"{inner};0;0;", rank).axes
    firsts = tuple(map(int, starts.split(",")))
    found = affine_of(words, rank), axes, firsts
    return Packed(*found, int(word_bits), is_alone == "1", quantised_of(number))
