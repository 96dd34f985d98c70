"""Component names of vectors: xyzw, rgba and stpq, one to four of one alphabet.

>>> SWIZZLES["xz"], SWIZZLES["g"]
((0, 2), (1,))
"""

from __future__ import annotations

from itertools import product

ALPHABETS = ("xyzw", "rgba", "stpq")

# Every name -> the components it names, in order.
SWIZZLES: dict[str, tuple[int, ...]] = {
    "".join(alphabet[k] for k in places): places
    for alphabet in ALPHABETS
    for length in (1, 2, 3, 4)
    for places in product(range(4), repeat=length)
}


def components_of(name: str, size: int) -> tuple[int, ...] | None:
    """The components that `name` means on a vector of `size`; None if it is no such name, or names
    one beyond the end."""
    places = SWIZZLES.get(name)
    return places if places is not None and max(places) < size else None
