"""Parallel loops whose iterations meet, where a gradient hangs on it: what one finds, or whose
value stays, depends on the order of iterations. A gradient, which does the kernel again, may come
to something else, and gives what stands in an element to everyone who stored there.

Owns: `RaceFinder` of a tape, which looks at calls; the errors. A call is free of races if
- indices keep its iterations apart (`races.conflicts`), or the ranges of this call do: those are
  questions (`may_race`, `meeting`), and most calls come no further;
- or a trial says so, of what decides which elements they come to (`races.detector.pruned`). It is
  not repeated while that is unchanged: the numbers and shapes given, and arrays that nobody has
  written to since;
- or a trial of the whole kernel on copies of what it writes does: there values count.
Where random numbers or counters decide, no trial can tell: a tape runs the kernel itself in a form
that notes who meets (`meeting.observe`). Where there is no memory for that, it counts as a race. Of
a race, only what matters is refused: what the gradient does again, or an element through which a
derivative flows now. Must not know: tapes, IR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from vkchi.autodiff.answers import GradientSpec
from vkchi.errors import DeviceError, GradientError
from vkchi.fields.storage import Storage
from vkchi.races.race import Doubt, Found, Race, name_of
from vkchi.tape.calls import Call
from vkchi.tape.derived import Asked
from vkchi.tape.derived import facts as tape_facts

if TYPE_CHECKING:
    from vkchi.races import meeting as facts
    from vkchi.races.meeting import Races, Trials
    from vkchi.races.trials import Trial
else:
    facts = Asked("races.meeting", {"may_race": "bool"}, {"meeting": "tuple[int, ...]"})

MOST_KNOWN = 10_000  # calls with different numbers that are remembered as free


# --- trying it -----------------------------------------------------------------------------------


NO_MEMORY = "there is no memory to try it"
DRAWN = "random numbers or counters decide it"


class RaceFinder:
    """Looks at calls before they run, or afterwards (`has_run`). What a trial found holds as long
    as the arrays that decided it are of the same `version`, without which nothing of the kind is
    kept. `trials` counts calls of which a trial decides.

    After a call, a trial finds the memory that the call left: a store that seems to change nothing
    may have changed something, and a trial proves nothing if it reads what the call overwrote."""

    def __init__(
        self, version: Callable[[Storage], int] | None = None, *, has_run: bool = False
    ) -> None:
        self.version, self.has_run = version, has_run
        self.known: dict[object, tuple[list[int], frozenset[int]]] = {}
        self.trials = 0

    def look(
        self, call: Call, names: frozenset[str], spec: GradientSpec | None, *, all_: bool = False
    ) -> Found | None:
        """A race in a call, of those that matter, or of all, or what may be one."""
        found = self.examine(call, names, spec, all_=all_)
        return found.race if isinstance(found, Doubt) else found

    def examine(
        self, call: Call, names: frozenset[str], spec: GradientSpec | None, *,
        all_: bool = False, must: bool = False,
    ) -> Found | Doubt | None:  # fmt: skip
        """The same, where what no trial can tell is a `Doubt`. Where there is no memory for a trial
        there may be a race; it raises DeviceError if it `must` look. Races of kernels that
        `ti.init` was told to accept are none."""
        if call.plan.runtime.options.accepts_races(call.plan.path):
            return None
        if not facts.may_race(call.plan, spec, names, all_):
            return None
        near = facts.meeting(call.plan, spec, names, all_, call.case)
        if not near:
            return None
        from vkchi.races.meeting import races_of  # most calls are free of races

        self.trials += 1
        races = races_of(call.plan, spec, names, all_)
        trials = races.trials_of(call, near)
        try:
            numbers = self._try(call, races, trials)
        except DeviceError:
            if must:
                raise
            return tuple(races.race_of(group, NO_MEMORY) for group in trials.groups)
        if numbers is None:
            race = tuple(races.race_of(group, DRAWN) for group in trials.groups)
            return Doubt(names, spec, all_, race)
        return tuple(races.race_of(trials.groups[k]) for k in sorted(numbers)) or None

    def _try(self, call: Call, races: Races, trials: Trials) -> frozenset[int] | None:
        """The numbers of the groups that met; None if no trial can tell."""
        if not trials.places.is_certain:
            return None
        if self._is_lost(call, trials.places):
            return frozenset(range(len(trials.groups)))
        numbers = self._find(call, races, trials.places)
        if not numbers:
            return numbers
        values = races.values_of(call, trials, knows_old=not self.has_run)
        if not values.is_certain:
            return None
        return numbers if self._is_lost(call, values) else values.find(call)

    def _is_lost(self, call: Call, trial: Trial) -> bool:
        """True if a trial reads what the call itself overwrote."""
        if not self.has_run:
            return False
        writes = tape_facts.touched(call.plan, "writes", call.case)
        both = {name: writes[name] for name in trial.needs if name in writes}
        if not both:
            return False
        from vkchi.tape.staleness import find_stale  # few calls come here

        return find_stale(call, None, both, frozenset()) is not None

    def _find(self, call: Call, races: Races, trial: Trial) -> frozenset[int]:
        """What a trial finds, or found before."""
        key = trial.key(call)
        deciding = [call.arrays[name].whole for name in trial.needs]
        if key is None or (deciding and self.version is None):
            return trial.find(call)
        if not deciding:
            if (trial, key) not in races.known:
                if len(races.known) >= MOST_KNOWN:
                    races.known.clear()
                races.known[trial, key] = trial.find(call)
            return races.known[trial, key]
        assert self.version is not None
        place, versions = (trial, key, *map(id, deciding)), [self.version(a) for a in deciding]
        if place not in self.known or self.known[place][0] != versions:
            self.known[place] = versions, trial.find(call)
        return self.known[place][1]


def check(race: Found | None, adjoints: Mapping[str, Storage]) -> None:
    """Raises GradientError for a race on which a derivative hangs now."""
    for one in race or ():
        reached = [adjoints[name] for name in sorted(one.reaches) if name in adjoints]
        if any(array.to_numpy().any() for array in reached):
            raise refuse(one)


def check_any(race: Found | None, duals: Mapping[str, Storage]) -> None:
    """Raises GradientError for a race of forward mode, where a call finds any derivatives: which of
    them come through depends on the order."""
    if race is not None and any(array.to_numpy().any() for array in duals.values()):
        raise refuse(race[0])


# --- errors --------------------------------------------------------------------------------------


SERIALLY = "or loop serially: ti.loop_config(serialize=True)"


def refuse(race: Race, kind: type[GradientError] = GradientError) -> GradientError:
    """The error for a race."""
    one, other, name = race.group.first[0], race.group.second[0], name_of(race.group.root)
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
        help="add to it (+=), use ti.atomic_max, store in one iteration only, " + SERIALLY,
    )  # fmt: skip
