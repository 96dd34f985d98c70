"""Parallel loops whose iterations meet, where a gradient hangs on it: what one finds, or whose
value stays, depends on the order of iterations. A gradient, which does the kernel again, may come
to something else, and gives what stands in an element to everyone who stored there.

Owns: `Races` of a kernel, which looks at calls; `RaceFinder` of a tape. A call is free of races if
- indices keep its iterations apart (`races.conflicts`), or the ranges of this call do;
- or a trial says so, of what decides which elements they come to (`races.detector.slimmed`). It is
  not repeated while that is unchanged: the numbers and shapes given, and arrays that nobody has
  written to since;
- or a trial of the whole kernel on copies of what it writes does: there values count.
Where random numbers or counters decide, no trial can tell: a tape runs the kernel itself in a form
that notes who meets (`observe`). Where there is no memory for that, it counts as a race. Of a race,
only what matters is refused: what the gradient does again, or an element through which a derivative
flows now. Must not know: tapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from vkchi.analysis.dataflow import Dependence
from vkchi.autodiff.primal import Activity, name_under
from vkchi.autodiff.reaching import Reach
from vkchi.autodiff.refusals import is_adjoint
from vkchi.errors import DeviceError, GradientError
from vkchi.fields.storage import Storage
from vkchi.ir.core import Func, Op, Param, Value, base_of, walk
from vkchi.ir.names import ADJOINT
from vkchi.ir.ops import WRITES
from vkchi.races.conflicts import Conflict, Feasible, find_conflicts
from vkchi.races.detector import Group, Style, grouped, note, slimmed
from vkchi.races.trials import Observed, Trial
from vkchi.tape.calls import Call
from vkchi.tape.gradients import prepare
from vkchi.tuples import NamedTuple

MOST_KNOWN = 10_000  # calls with different numbers that are remembered as free


class Race(NamedTuple):
    """A group that met, and the names of the arrays that a derivative must flow to for it to
    matter; `why` it is not known whether it met, if it is not."""

    group: Group
    reaches: frozenset[str]
    why: str = ""


Found = tuple[Race, ...]  # what met in a call, what matters first; not empty


# --- what matters --------------------------------------------------------------------------------


class Matters:
    """Which conflicts in a kernel matter to its derivatives by the arrays `names`: `gradient` is
    what runs in reverse mode, None in forward mode."""

    def __init__(self, fn: Func, names: frozenset[str], gradient: Func | None) -> None:
        self.fn, self.active = fn, Activity(fn, names)
        self.reach = Reach(fn)
        self.depending: dict[frozenset[Value], set[str]] = {}
        self.again = {
            (op.kind == "load", op.span)
            for op in (walk(gradient.body) if gradient is not None else ())
            if op.kind in ("load", *WRITES) and is_again(base_of(op.args[0]), op)
        }

    def reaches(self, m: Conflict) -> frozenset[str]:
        """The arrays that a derivative must flow to for it to matter; none if it does not."""
        found: set[str] = set()
        if self.is_strict(m):
            found |= self._flow(self._readers(m))
            if m.root in self.active.sources:
                found.add(name_of(m.root))
        else:
            found |= self._flow(frozenset(op for op in m.first if op in self.active))
        if self.is_done_again(m):
            is_read = m.first[0].kind == "load"
            seeds = frozenset[Value](m.first) if is_read else self._readers(m)
            if seeds not in self.depending:
                self.depending[seeds] = depending(self.fn, self.reach, seeds)
            found |= self.depending[seeds] & self.active.stores.keys()
        return frozenset(found)

    def _readers(self, m: Conflict) -> frozenset[Value]:
        """What may read what was written: it stands in one loop."""
        return self.reach.readers(m.second[0])

    def _flow(self, seeds: frozenset[Value]) -> set[str]:
        return set(self.reach.flow(seeds)) & self.active.stores.keys() if seeds else set()

    def is_strict(self, m: Conflict) -> bool:
        """Whether derivatives hang on who wrote last, even where all write the same."""
        if m.first[0].kind == "load" or m.root not in self.active.roots:
            return False
        return any(op.args[1] in self.active for op in (*m.first, *m.second))

    def is_done_again(self, m: Conflict) -> bool:
        """Whether the gradient does again what came of it."""
        first, second = m.first[0], m.second[0]
        if first.kind == "load":
            return (True, first.span) in self.again
        return any((False, op.span) in self.again for op in (first, second))


def depending(fn: Func, reach: Reach, seeds: frozenset[Value]) -> set[str]:
    """The arrays that something is put into which depends on these values in whatever way: that, or
    whether, or where."""
    writes = Dependence(fn.body, seeds, reach.readers).writes()
    return {name_under(op) for op in writes if isinstance(base_of(op.args[0]), Param)}


def is_again(root: Value, op: Op) -> bool:
    """Whether an access of a gradient's does again what the kernel did: it is to the kernel's own
    memory, or to a copy."""
    return ADJOINT not in name_of(root) and not is_adjoint(root)


def name_of(root: Value) -> str:
    """The name of memory, if it has one."""
    return getattr(root, "name", "") or ""


# --- trying it -----------------------------------------------------------------------------------


NO_MEMORY = "there is no memory to try it"
DRAWN = "random numbers or counters decide it"


class Doubt(NamedTuple):
    """That only the run of a call can tell whether iterations meet that matter to derivatives by
    these arrays, in this gradient, or (`all_`) to anything; what may meet."""

    names: frozenset[str]
    gradient: Func | None
    all_: bool
    race: Found


def observe(call: Call, doubt: Doubt, func: Func) -> tuple[Races, Observed] | None:
    """What a call runs in place of `func`, the kernel or what keeps what it draws, to tell; None
    if nothing meets."""
    races = call.plan.derived.races_in_run.find(
        (func, *doubt[:3]),
        lambda: Races(prepare(func, frozenset()), doubt.names, doubt.gradient, all_=doubt.all_),
    )
    near = races.feasible.find(call.numbers, call.arrays)
    return (races, races.observed(call, near)) if near else None


class Trials(NamedTuple):
    """Those of some groups: of what decides where they come to, and of all that they do; which are
    made when they are needed."""

    groups: list[Group]
    places: Trial
    values: list[Trial]


class Races:
    """What may meet in a kernel, as derivatives by these arrays see it: all, or what matters to
    them. `gradient` is what runs in reverse mode."""

    def __init__(
        self, fn: Func, names: frozenset[str], gradient: Func | None, *, all_: bool
    ) -> None:
        self.fn = fn
        found = find_conflicts(fn)
        matters = Matters(fn, names, gradient) if found else None
        self.reaches: dict[Conflict, frozenset[str]] = {}
        self.strict: set[Conflict] = set()
        for m in found:
            assert matters is not None
            reaches = matters.reaches(m)
            if reaches or all_:
                self.reaches[m] = reaches
                if matters.is_strict(m):
                    self.strict.add(m)
        self.active = matters.active if matters is not None else ()
        self.conflicts = sorted(self.reaches, key=self._rank)
        self.feasible = Feasible(fn, self.conflicts)
        self.trials: dict[tuple[int, ...], Trials] = {}
        self.forms: dict[tuple[int, ...], Observed] = {}
        self.known: dict[tuple[Trial, Any], frozenset[int]] = {}

    def _rank(self, m: Conflict) -> tuple[bool, bool]:
        """Of several that meet in a call, the first is told."""
        return not self.reaches[m], m.first[0].kind != "load"

    def trials_of(self, call: Call, near: tuple[int, ...]) -> Trials:
        """The trials of some conflicts."""
        if near not in self.trials:
            groups = grouped([self.conflicts[k] for k in near], self.strict)
            places = Trial(call, groups, slimmed(self.fn, groups, Style(knows_values=False)))
            self.trials[near] = Trials(groups, places, [])
        return self.trials[near]

    def values_of(self, call: Call, trials: Trials) -> Trial:
        """The trial of all that a kernel does."""
        if not trials.values:
            style = Style(knows_values=True, active=self.active)
            made = note(self.fn, trials.groups, style)
            trials.values.append(Trial(call, trials.groups, made))
        return trials.values[0]

    def observed(self, call: Call, near: tuple[int, ...]) -> Observed:
        """The kernel itself, in a form that notes whether these meet."""
        if near not in self.forms:
            groups = grouped([self.conflicts[k] for k in near], self.strict)
            style = Style(knows_values=True, active=self.active, reports=True)
            self.forms[near] = Observed(call, groups, note(self.fn, groups, style))
        return self.forms[near]

    def race_of(self, group: Group, why: str = "") -> Race:
        """What a group that met, or may have met, may change."""
        sides = set(group.first), set(group.second)
        those = [m for m in self.conflicts if m.first[0] in sides[0] and m.second[0] in sides[1]]
        return Race(group, frozenset().union(*(self.reaches[m] for m in those)), why)


class RaceFinder:
    """Looks at the calls of a tape. What a trial found holds until somebody writes to an array
    that decided it; `watch` asks to be told of what Python writes, without which nothing of the
    kind is kept."""

    def __init__(self, watch: Callable[[Storage], None] | None = None) -> None:
        self.watch = watch
        self.known: dict[object, tuple[frozenset[int], list[Storage]]] = {}
        self.decided: dict[int, set[object]] = {}  # by arrays

    def note_written(self, arrays: Iterable[Storage]) -> None:
        """Something else stands in these arrays now."""
        for array in arrays if self.decided else ():
            for key in self.decided.pop(id(array), ()):
                self.known.pop(key, None)

    def look(
        self, call: Call, names: frozenset[str], gradient: Func | None, *, all_: bool = False
    ) -> Found | None:
        """A race in a call, of those that matter, or of all, or what may be one."""
        found = self.examine(call, names, gradient, all_=all_)
        return found.race if isinstance(found, Doubt) else found

    def examine(
        self, call: Call, names: frozenset[str], gradient: Func | None, *,
        all_: bool = False, must: bool = False,
    ) -> Found | Doubt | None:  # fmt: skip
        """The same, where what no trial can tell is a `Doubt`. Where there is no memory for a trial
        there may be a race; it raises DeviceError if it `must` look. Races of kernels that
        `ti.init` was told to accept are none."""
        if call.plan.runtime.options.accepts_races(call.plan.path):
            return None
        races = call.plan.derived.races.find(
            (gradient, names, all_),
            lambda: Races(prepare(call.plan.func, names), names, gradient, all_=all_),
        )
        near = races.feasible.find(call.numbers, call.arrays) if races.conflicts else ()
        if not near:
            return None
        trials = races.trials_of(call, near)
        try:
            numbers = self._try(call, races, trials)
        except DeviceError:
            if must:
                raise
            return tuple(races.race_of(group, NO_MEMORY) for group in trials.groups)
        if numbers is None:
            race = tuple(races.race_of(group, DRAWN) for group in trials.groups)
            return Doubt(names, gradient, all_, race)
        return tuple(races.race_of(trials.groups[k]) for k in sorted(numbers)) or None

    def _try(self, call: Call, races: Races, trials: Trials) -> frozenset[int] | None:
        """The numbers of the groups that met; None if no trial can tell."""
        if not trials.places.is_certain:
            return None
        numbers = self._find(call, races, trials.places)
        if not numbers:
            return numbers
        values = races.values_of(call, trials)
        return values.run(call) if values.is_certain else None

    def _find(self, call: Call, races: Races, trial: Trial) -> frozenset[int]:
        """What a trial finds, or found before."""
        key = trial.key(call)
        deciding = [call.arrays[name].whole for name in trial.needs]
        if key is None or (deciding and self.watch is None):
            return trial.run(call)
        if not deciding:
            if (trial, key) not in races.known:
                if len(races.known) >= MOST_KNOWN:
                    races.known.clear()
                races.known[trial, key] = trial.run(call)
            return races.known[trial, key]
        place = (trial, key, *map(id, deciding))
        if place not in self.known:
            self.known[place] = trial.run(call), deciding
            for array in deciding:
                self.decided.setdefault(id(array), set()).add(place)
                if self.watch is not None:
                    self.watch(array)
        return self.known[place][0]


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
