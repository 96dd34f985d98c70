"""The version of vkchi; in comparisons with tuples it is the supported version of Taichi.

>>> ti.__version__ >= (1, 1, 0), str(ti.__version__)
(True, '0.1.0')
"""

from __future__ import annotations

TAICHI = (1, 7, 4)  # the supported version of Taichi


class Version(str):
    """A version string. Comparisons with tuples use TAICHI, the supported version of Taichi."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return other == TAICHI if isinstance(other, tuple) else str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: str | tuple[int, ...]) -> bool:
        return other > TAICHI if isinstance(other, tuple) else str.__lt__(self, other)

    def __le__(self, other: str | tuple[int, ...]) -> bool:
        return other >= TAICHI if isinstance(other, tuple) else str.__le__(self, other)

    def __gt__(self, other: str | tuple[int, ...]) -> bool:
        return other < TAICHI if isinstance(other, tuple) else str.__gt__(self, other)

    def __ge__(self, other: str | tuple[int, ...]) -> bool:
        return other <= TAICHI if isinstance(other, tuple) else str.__ge__(self, other)

    __hash__ = str.__hash__
