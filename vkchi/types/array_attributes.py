"""Attributes of array parameters: facts about an array beyond its type.

They hold for one launch, not for a type. `ext64` and `noguard` must be given where they apply;
omitting the others only costs optimizations. `ArrayArgument` transports type and attributes from
the call's signature to the parameter.

    >>> Attributes(like="x", noalias=True)      # %y: array<f32[?]> like x noalias
"""

from __future__ import annotations

from typing import Any

from vkchi.interrupts.weak import WeakTable
from vkchi.tuples import NamedTuple
from vkchi.types import Array


class Attributes(NamedTuple):
    """Attributes of an array parameter.

    - like: name of the array parameter with the same dynamic shape, "" for none;
    - ext64: so large (`needs_wide`) that it is addressed and iterated over in 64 bits;
    - noalias: disjoint from all other `noalias` arrays in this launch. Arrays with a layout are
      always disjoint from others;
    - noguard: memory behind the last element may belong to another library and must not be written;
    - aligned: alignment of the first scalar in bytes, a power of two; 1 for that of its type.
    """

    like: str = ""
    ext64: bool = False
    noalias: bool = False
    noguard: bool = False
    aligned: int = 1

    def words(self) -> list[str]:
        """The attributes that are not defaults, in text form, as they follow a parameter's type."""
        return [
            *([f"like {self.like}"] if self.like else ()),
            *(["ext64"] if self.ext64 else ()),
            *(["noalias"] if self.noalias else ()),
            *(["noguard"] if self.noguard else ()),
            *([f"aligned {self.aligned}"] if self.aligned > 1 else ()),
        ]


PLAIN = Attributes()
MOST_ALIGNED = 16  # bytes, the widest access


def alignment_of(address: int) -> int:
    """The attribute `aligned` of an array at this address, at most MOST_ALIGNED; 1 for 0."""
    return min(address & -address, MOST_ALIGNED) if address else 1


class ArrayArgument:
    """The type and attributes of an array argument, interned so that comparison is by identity."""

    __slots__ = ("__weakref__", "attributes", "type")
    _interned: WeakTable[tuple[Any, ...], ArrayArgument] = WeakTable()
    type: Array
    attributes: Attributes

    @classmethod
    def of(cls, t: Array, attributes: Attributes = PLAIN) -> ArrayArgument:
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

    def given(self, like: str, *, noalias: bool) -> ArrayArgument:
        """The same argument with the given attributes `like` and `noalias`."""
        return ArrayArgument.of(self.type, self.attributes._replace(like=like, noalias=noalias))
