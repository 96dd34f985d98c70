"""What is said of races: what met in a call, or that only the call itself can tell.

Owns: `Race`, `Doubt`. Must not know: how it is found out (`finder`), what is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vkchi.autodiff.answers import GradientSpec
from vkchi.span import Span
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.races.detector import Group


class Race(NamedTuple):
    """A group that met, and the names of the arrays that a derivative must flow to for it to
    matter; `why` it is not known whether it met, if it is not."""

    group: Group
    reaches: frozenset[str]
    why: str = ""


Found = tuple[Race, ...]  # what met in a call, what matters first; not empty


def name_of(root: object) -> str:
    """The name of memory, if it has one."""
    return getattr(root, "name", "") or ""


def sentence(array: str, one: Span, other: Span | None, *, is_read: bool) -> str:
    """The warning of a conflict, at the line of its first access, which `is_read` or is a store."""
    where = "" if other is None or other == one else f" at {other.place}"
    if is_read:
        return (
            f"one iteration reads here an element of `{array}` that another one of the same loop "
            f"changes{where}: what it finds depends on their order"
        )
    return (
        f"one iteration stores here to an element of `{array}` where another one of the same loop "
        f"puts something else{where}: what stays depends on their order"
    )


class Doubt(NamedTuple):
    """That only the run of a call can tell whether iterations meet that matter to derivatives by
    these arrays, in this gradient, or (`all_`) to anything; what may meet."""

    names: frozenset[str]
    spec: GradientSpec | None
    all_: bool
    race: Found
