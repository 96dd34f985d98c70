"""Results of race detection: a race, or a doubt that only an instrumented run can decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vkchi.autodiff.results import GradientSpec
from vkchi.span import Span
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.races.detector import ConflictGroup


class Race(NamedTuple):
    """A group that conflicts.

    It matters if a nonzero derivative flows to one of the arrays `reaches`. `why` is the reason if
    the conflict is only possible; it is empty for a conflict that occurred.
    """

    group: ConflictGroup
    reaches: frozenset[str]
    why: str = ""


Found = tuple[Race, ...]  # races in a call, those that matter first; not empty


def memory_name(root: object) -> str:
    return getattr(root, "name", "") or ""


def race_message(array: str, one: Span, other: Span | None, *, is_read: bool) -> str:
    """Warning text for a conflict; its first access is a read (`is_read`) or a store."""
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


class UndecidedRace(NamedTuple):
    """Possible conflicts that only the run of the call can decide.

    They affect derivatives with respect to the arrays `names` in the gradient `spec`, or without
    one in forward mode. With `all_`, they need not. `race` are these conflicts as possible races.
    """

    names: frozenset[str]
    spec: GradientSpec | None
    all_: bool
    race: Found
