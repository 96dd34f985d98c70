"""Swizzles: component names of vectors, one to four letters of xyzw, rgba or stpq.

>>> components_of("xz", 3), components_of("g", 3), components_of("xz", 2)
((0, 2), (1,), None)
"""

from __future__ import annotations

from functools import lru_cache

ALPHABETS = ("xyzw", "rgba", "stpq")
MOST = 4  # letters of a name


def is_name(name: str) -> bool:
    """True if `name` is a swizzle of vectors with 4 components."""
    return components_of(name, MOST) is not None


@lru_cache(maxsize=1024)
def components_of(name: str, size: int) -> tuple[int, ...] | None:
    """Return the component indices that `name` selects from a vector of `size` components.

    None if it is no swizzle or exceeds the vector.
    """
    for alphabet in ALPHABETS:
        places = tuple(map(alphabet.find, name))
        if 0 < len(places) <= MOST and min(places) >= 0:
            return places if max(places) < size else None
    return None
