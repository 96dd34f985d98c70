"""Race detection for gradients: parallel loops whose result depends on the order of iterations.

A gradient reruns the kernel and may see other values than the kernel did. If several iterations
store to an element, it gives the adjoint to an arbitrary one of them. A race is therefore an error
if it affects a derivative.

A call is free of races if one of these tests succeeds, in this order:

1. Static dependence test (`races.conflicts`), then the same with the ranges of the call. Both are
   cached queries (`may_race`, `meeting`), and most calls need no more.
2. A trial of the ops that determine the accessed elements (`detector.instrument_addresses`). The
   result is reused while its inputs are unchanged: scalars, shapes, and the versions of arrays.
3. A trial of the whole kernel on copies of the arrays it writes, which also compares values.

If random numbers or counters are involved, no trial can decide. A tape then runs an instrumented
variant in place of the kernel (`meeting.observed_variant`). If memory is short, the call counts as
a race.

In reverse mode a race raises an error only if the adjoint of one of the arrays `Race.reaches` is
nonzero. In forward mode it does so only if any tangent of the call is nonzero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from vkchi.autodiff.results import GradientSpec
from vkchi.calls.call import KernelCall
from vkchi.calls.facts import CachedQueries
from vkchi.calls.facts import facts as tape_facts
from vkchi.errors import DeviceError
from vkchi.fields.storage import Storage
from vkchi.races.race import Found, UndecidedRace, race_error

if TYPE_CHECKING:
    from vkchi.races import meeting as facts
    from vkchi.races.meeting import InstrumentedRun, KernelRaces, TrialSet
else:
    facts = CachedQueries("races.meeting", {"may_race": "bool"}, {"meeting": "tuple[int, ...]"})

MOST_KNOWN = 10_000  # memoized trials of calls with different scalars


# --- trials --------------------------------------------------------------------------------------


NO_MEMORY = "there is no memory to try it"
DRAWN = "random numbers or counters decide it"


class RaceFinder:
    """Finds races in calls, before they run or afterwards (`has_run`).

    The result of a trial is reused while the arrays it depends on keep their `version`. Without
    that function, only results that depend on no array are stored. `trials` counts the calls that
    static analysis could not decide.

    After a call, a trial finds the memory as the call left it. A store of the current value may
    then have been a change. If a trial reads elements that the call overwrote, all conflicts count
    as races.
    """

    def __init__(
        self, version: Callable[[Storage], int] | None = None, *, has_run: bool = False
    ) -> None:
        self.version, self.has_run = version, has_run
        self.known: dict[object, tuple[list[int], Sequence[int]]] = {}
        self.trials = 0

    def look(
        self,
        call: KernelCall,
        names: frozenset[str],
        spec: GradientSpec | None,
        *,
        all_: bool = False,
    ) -> Found | None:
        """Return the certain or possible races in a call, or None.

        With `all_`, races without effect on derivatives count, too. Races that no trial can decide
        count as possible.
        """
        found = self.examine(call, names, spec, all_=all_)
        return found.race if isinstance(found, UndecidedRace) else found

    def examine(
        self, call: KernelCall, names: frozenset[str], spec: GradientSpec | None, *,
        all_: bool = False, must: bool = False,
    ) -> Found | UndecidedRace | None:  # fmt: skip
        """Return the races in a call, an `UndecidedRace` if no trial can decide, or None.

        If memory is too short for a trial, all conflicts possible in the call count as races; with
        `must`, DeviceError is raised. Kernels named in `accept_races` of `ti.init` have no races.
        """
        if call.kernel.runtime.options.accepts_races(call.kernel.path):
            return None
        if not facts.may_race(call.kernel, spec, names, all_):
            return None
        near = facts.meeting(call.kernel, spec, names, all_, call.case)
        if not near:
            return None
        from vkchi.races.meeting import races_of  # imports the IR; most calls need no trial

        self.trials += 1
        races = races_of(call.kernel, spec, names, all_)
        trials = races.trials_of(call, near)
        try:
            numbers = self._try(call, races, trials)
        except DeviceError:
            if must:
                raise
            return tuple(races.race_of(group, NO_MEMORY) for group in trials.groups)
        if numbers is None:
            race = tuple(races.race_of(group, DRAWN) for group in trials.groups)
            return UndecidedRace(names, spec, all_, race)
        return tuple(races.race_of(trials.groups[k]) for k in numbers) or None

    def _try(self, call: KernelCall, races: KernelRaces, trials: TrialSet) -> Sequence[int] | None:
        if not trials.places.is_certain:
            return None
        if self._is_lost(call, trials.places):
            return range(len(trials.groups))
        numbers = self._find(call, races, trials.places)
        if not numbers:
            return numbers
        values = races.values_of(call, trials, knows_old=not self.has_run)
        if not values.is_certain:
            return None
        return numbers if self._is_lost(call, values) else values.find(call)

    def _is_lost(self, call: KernelCall, trial: InstrumentedRun) -> bool:
        """True if a trial may read elements that the call itself has overwritten (only with
        `has_run`)."""
        if not self.has_run:
            return False
        writes = tape_facts.touched(call.kernel, "writes", call.case)
        both = {name: writes[name] for name in trial.needs if name in writes}
        if not both:
            return False
        from vkchi.calls.variant import find_stale  # rarely needed

        return find_stale(call, None, both, frozenset()) is not None

    def _find(self, call: KernelCall, races: KernelRaces, trial: InstrumentedRun) -> Sequence[int]:
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


def check_gradient_race(race: Found | None, adjoints: Mapping[str, Storage]) -> None:
    """Raise GradientError if an array that a race affects has a nonzero adjoint in any element."""
    for one in race or ():
        reached = [adjoints[name] for name in sorted(one.reaches) if name in adjoints]
        if any(array.to_numpy().any() for array in reached):
            raise race_error(one)


def check_forward_race(race: Found | None, duals: Mapping[str, Storage]) -> None:
    if race is not None and any(array.to_numpy().any() for array in duals.values()):
        raise race_error(race[0])
