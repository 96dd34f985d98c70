"""Results of race detection, and the errors and warnings about them.

A result is a race, or a doubt that only an instrumented run can decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vkchi.autodiff.results import GradientSpec
from vkchi.errors import GradientError
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


class UndecidedRace(NamedTuple):
    """Possible conflicts that only the run of the call can decide.

    They affect derivatives with respect to the arrays `names` in the gradient `spec`, or without
    one in forward mode. With `all_`, they need not. `race` are these conflicts as possible races.
    """

    names: frozenset[str]
    spec: GradientSpec | None
    all_: bool
    race: Found


# --- errors and warnings -------------------------------------------------------------------------


def memory_name(root: object) -> str:
    return getattr(root, "name", "") or ""


SERIALLY = "or loop serially: ti.loop_config(serialize=True)"


def race_error(race: Race, kind: type[GradientError] = GradientError) -> GradientError:
    one, other, name = race.group.first[0], race.group.second[0], memory_name(race.group.root)
    if race.why:
        return kind(
            f"whether several iterations of one loop come to the same element of `{name}` is not "
            f"known, for {race.why}: the gradient may be wrong", one.span,
            notes=(("and to here", other.span),) if other.span != one.span else (),
            help="let indices tell that they do not, " + SERIALLY + "; or name the "
            "kernel in ti.init(accept_races=[...])",
        )  # fmt: skip
    if one.kind == "load":
        return kind(
            f"one iteration reads an element of `{name}` that another one of the same loop "
            "changes: what it finds depends on their order, and so does the gradient",
            one.span, notes=(("it is changed here", other.span),),
            help=f"read from a copy of `{name}`, or change it in a loop of its own after this one; "
            + SERIALLY,
        )  # fmt: skip
    notes = (("another one stores here", other.span),) if other.span != one.span else ()
    return kind(
        f"several iterations of one loop store to the same element of `{name}`: which value stays "
        "depends on their order, and so does the gradient", one.span, notes=notes,
        help="add to it (+=), use ti.atomic_max or ti.atomic_mul, store in one iteration only, "
        + SERIALLY,
    )  # fmt: skip


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
