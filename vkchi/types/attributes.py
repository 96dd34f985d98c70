"""What is known of an array that a function is given, besides its type: a parameter's attributes.

They hold for a launch, not for a type: two parameters of one type have their own. Whoever makes a
parameter may leave any of them out: then less is known, and nothing is wrong.

Owns: `Attributes`, their text, `ArrayArgument`, which is how they travel from the signature of a
call to the parameter. Must not know: the IR, launches.

    >>> Attributes(like="x", apart=True)        # %y: array<f32[?]> like x apart
"""

from __future__ import annotations

from typing import Any

from vkchi.interrupts.weak import WeakTable
from vkchi.tuples import NamedTuple
from vkchi.types import Array


class Attributes(NamedTuple):
    """Of an array parameter.

    like: the array parameter whose shape a dynamic array has too, "" for none: launches that know
    of equal shapes spare the kernel its checks. wide: it is so large (`needs_wide`) that it is
    reached and looped over in 64 bits. apart: no other `apart` array shares its memory in this
    launch (what has a layout is memory of its own anyway). bare: what is behind its last element
    may be somebody else's (an array of another library), so nothing goes there. aligned: bytes, a
    power of two, of which the address of its first scalar is a multiple; 1 where no more is known
    than its type says.
    """

    like: str = ""
    wide: bool = False
    apart: bool = False
    bare: bool = False
    aligned: int = 1

    def words(self) -> list[str]:
        """The attributes as they stand behind a parameter's type."""
        return [
            *([f"like {self.like}"] if self.like else ()),
            *(["wide"] if self.wide else ()),
            *(["apart"] if self.apart else ()),
            *(["bare"] if self.bare else ()),
            *([f"aligned {self.aligned}"] if self.aligned > 1 else ()),
        ]


PLAIN = Attributes()
MOST_ALIGNED = 16  # bytes; no access is wider


def alignment_of(address: int) -> int:
    """The attribute `aligned` of an array at this address."""
    return min(address & -address, MOST_ALIGNED) if address else 1


class ArrayArgument:
    """The type and attributes of an array argument; interned, so that signing compares objects."""

    __slots__ = ("__weakref__", "attributes", "type")
    _interned: WeakTable[tuple[Any, ...], ArrayArgument] = WeakTable()
    type: Array
    attributes: Attributes

    @classmethod
    def of(cls, t: Array, attributes: Attributes = PLAIN) -> ArrayArgument:
        """The argument of this type with these attributes."""
        key = (t, attributes)
        found = cls._interned.get(key)
        if found is None:
            made = cls()
            made.type, made.attributes = t, attributes
            found = cls._interned.setdefault(key, made)
        return found

    def __repr__(self) -> str:
        return " ".join([str(self.type), *self.attributes.words()])

    def __reduce__(self) -> Any:
        return (ArrayArgument.of, (self.type, self.attributes))

    def __deepcopy__(self, memo: Any) -> ArrayArgument:
        return self

    def given(self, like: str, *, apart: bool) -> ArrayArgument:
        """The same argument in a launch where it has the shape of `like`, and lies apart or not."""
        return ArrayArgument.of(self.type, self.attributes._replace(like=like, apart=apart))
