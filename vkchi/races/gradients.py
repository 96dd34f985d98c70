"""Parallel loops whose iterations meet, where a gradient hangs on it: what one finds, or whose
value stays, depends on the order of iterations. A gradient, which does the kernel again, may come
to something else, and gives what stands in an element to everyone who stored there.

Owns: `Races` of a kernel, which looks at calls; `FoundRaces` of a tape. A call is free of races if
- indices keep its iterations apart (`races.meetings`), or the ranges of this call do;
- or a trial says so, of what decides which elements they come to (`races.noted.slimmed`). It is not
  repeated while that is unchanged: the numbers and shapes given, and arrays that nobody has written
  to since;
- or a trial of the whole kernel on copies of what it writes does: there values count.
Where neither can be told, `GradientWarning` says so. Of a race, only what matters is refused: what
the gradient does again, or an element through which a derivative flows now. Must not know: tapes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vkchi.autodiff.primal import Activity
from vkchi.autodiff.reaching import Reach, name_under
from vkchi.autodiff.refusals import depends_on_order, is_adjoint
from vkchi.compiler import build
from vkchi.errors import DeviceError, GradientError, GradientWarning
from vkchi.fields.storage import Storage
from vkchi.interrupts.locks import restoring
from vkchi.ir.core import Func, Op, Param, Value, base_of, used_in, walk
from vkchi.ir.names import ADJOINT
from vkchi.ir.ops import WRITES
from vkchi.launch import Plan
from vkchi.races.cells import CellMemory
from vkchi.races.dependence import Depending
from vkchi.races.meetings import Meeting, find_meetings
from vkchi.races.nearby import Nearby
from vkchi.races.noted import MET, Group, Noted, Style, grouped, note, slimmed
from vkchi.tape.calls import Call, copy_of, leaves_of, whole
from vkchi.tape.gradients import prepare
from vkchi.types import Scalar, Tensor, i32

MOST_KNOWN = 10_000  # calls with different numbers that are remembered as free


class Met(NamedTuple):
    """A group that met, and the names of the arrays that a derivative must flow to for it to
    matter."""

    group: Group
    reaches: frozenset[str]


Race = tuple[Met, ...]  # what met in a call, what matters first; not empty


# --- what matters --------------------------------------------------------------------------------


class Matters:
    """Which meetings in a kernel matter to its derivatives by the arrays `names`: `gradient` is
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

    def reaches(self, m: Meeting) -> frozenset[str]:
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

    def _readers(self, m: Meeting) -> frozenset[Value]:
        """What may read what was written: it stands in one loop."""
        return self.reach.readers(m.second[0])

    def _flow(self, seeds: frozenset[Value]) -> set[str]:
        return set(self.reach.flow(seeds)) & self.active.stores.keys() if seeds else set()

    def is_strict(self, m: Meeting) -> bool:
        """Whether derivatives hang on who wrote last, even where all write the same."""
        if m.first[0].kind == "load" or m.root not in self.active.roots:
            return False
        return any(op.args[1] in self.active for op in (*m.first, *m.second))

    def is_done_again(self, m: Meeting) -> bool:
        """Whether the gradient does again what came of it."""
        first, second = m.first[0], m.second[0]
        if first.kind == "load":
            return (True, first.span) in self.again
        return any((False, op.span) in self.again for op in (first, second))


def depending(fn: Func, reach: Reach, seeds: frozenset[Value]) -> set[str]:
    """The arrays that something is put into which depends on these values in whatever way: that, or
    whether, or where."""
    found: set[str] = set()
    before: frozenset[Value] | None = None
    while seeds != before:
        before, walker = seeds, Depending(fn.body, seeds)
        for op in walker.writes:
            if isinstance(base_of(op.args[0]), Param):
                found.add(name_under(op))
            seeds |= reach.readers(op)
    return found


def is_again(root: Value, op: Op) -> bool:
    """Whether an access of a gradient's does again what the kernel did: it is to the kernel's own
    memory, or to a copy."""
    return ADJOINT not in name_of(root) and not is_adjoint(root)


def name_of(root: Value) -> str:
    """The name of memory, if it has one."""
    return getattr(root, "name", "") or ""


# --- trying it -----------------------------------------------------------------------------------


class Trial:
    """A kernel that notes who meets, and its cells. `needs` are the arrays that decide what it
    finds, `numbers` the arguments; None if more than those do."""

    def __init__(self, call: Call, groups: Sequence[Group], made: Noted) -> None:
        plan, self.count = call.plan, len(groups)
        runtime = self.runtime = plan.runtime
        self.cells = CellMemory(runtime, made)
        artifact = build(made.func, runtime.options, runtime.device.caps)
        self.executable = plan.executable.derive(artifact, call.args)
        self.writes = artifact.writes & plan.written
        ops = list(walk(made.func.body))
        used = used_in(made.func.body)
        draws = any(op.kind == "random" and op in used for op in ops)
        self.is_certain = not (draws or depends_on_order(made.func))
        self.needs = sorted(artifact.reads & call.arrays.keys())
        given = [p for p in made.func.params if isinstance(p.type, Scalar | Tensor)]
        self.numbers: list[str] | None = sorted(p.name for p in given if p in used)
        if not self.is_certain:
            self.numbers = None

    def key(self, call: Call) -> tuple[Any, ...] | None:
        """What decides what it finds, besides arrays."""
        numbers = numbers_of(call)
        if self.numbers is None or not numbers.keys() >= set(self.numbers):
            return None
        shapes = tuple([a.shape for a in call.arrays.values()])
        return (shapes, *(numbers[name] for name in self.numbers))

    def run(self, call: Call) -> frozenset[int]:
        """The numbers of the groups that met. Raises DeviceError if there is no memory for it."""
        with restoring(self.runtime.lock), self.runtime.lock:
            own = self.cells.bind(call.arrays)
            met = own[MET] = Storage(self.runtime, i32, (self.count,))
            copies = {name: copy_of(call.arrays[name]) for name in sorted(self.writes)}
            given = {**call.arrays, **copies, **own}
            self.executable.launch(self.executable.bind(call.args, given))
            numbers = np.flatnonzero(met.to_numpy())
            self.cells.give_back(own)
            return frozenset(numbers.tolist())


def numbers_of(call: Call) -> dict[str, Any]:
    """The numbers among the arguments, by name: Python's and numpy's."""
    leaves = leaves_of(call.plan, call.args)
    return {p.name: arg for p, arg in leaves if isinstance(arg, int | float | np.number)}


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
        self, plan: Plan, names: frozenset[str], gradient: Func | None, *, all_: bool
    ) -> None:
        fn = self.fn = prepare(plan.func, names)
        found = find_meetings(fn)
        matters = Matters(fn, names, gradient) if found else None
        self.reaches: dict[Meeting, frozenset[str]] = {}
        self.strict: set[Meeting] = set()
        for m in found:
            assert matters is not None
            reaches = matters.reaches(m)
            if reaches or all_:
                self.reaches[m] = reaches
                if matters.is_strict(m):
                    self.strict.add(m)
        self.active = matters.active if matters is not None else ()
        self.meetings = sorted(self.reaches, key=self._rank)
        self.nearby = Nearby(fn, self.meetings)
        self.trials: dict[tuple[int, ...], Trials] = {}
        self.known: dict[tuple[Trial, Any], frozenset[int]] = {}

    def _rank(self, m: Meeting) -> tuple[bool, bool]:
        """Of several that meet in a call, the first is told."""
        return not self.reaches[m], m.first[0].kind != "load"

    def trials_of(self, call: Call, near: tuple[int, ...]) -> Trials:
        """The trials of some meetings."""
        if near not in self.trials:
            groups = grouped([self.meetings[k] for k in near], self.strict)
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

    def met(self, group: Group) -> Met:
        """What a group that met may change."""
        sides = set(group.first), set(group.second)
        those = [m for m in self.meetings if m.first[0] in sides[0] and m.second[0] in sides[1]]
        return Met(group, frozenset().union(*(self.reaches[m] for m in those)))


class FoundRaces:
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
        self, call: Call, names: frozenset[str], gradient: Func | None, *,
        all_: bool = False, must: bool = False,
    ) -> Race | None:  # fmt: skip
        """A race in a call, of those that matter, or of all. Where there is no memory for a trial
        it raises DeviceError if it `must` look, and warns else. Races of kernels that `ti.init` was
        told to accept are none."""
        if call.name in call.plan.runtime.options.accept_races:
            return None
        races = call.plan.derived.races.find(
            (gradient, names, all_), lambda: Races(call.plan, names, gradient, all_=all_)
        )
        near = races.nearby.find(call.numbers, call.arrays) if races.meetings else ()
        if not near:
            return None
        trials = races.trials_of(call, near)
        try:
            numbers, is_certain = self._try(call, races, trials)
        except DeviceError:
            if must:
                raise
            warn(call, trials.groups[0], "there is no memory to try it")
            return None
        if not (numbers or is_certain):
            warn(call, trials.groups[0], "that depends on random numbers or counters")
        return tuple(races.met(trials.groups[k]) for k in sorted(numbers)) or None

    def _try(self, call: Call, races: Races, trials: Trials) -> tuple[frozenset[int], bool]:
        """The numbers of the groups that met, and whether that holds for the call."""
        numbers = self._find(call, races, trials.places)
        if not numbers:
            return numbers, trials.places.is_certain
        values = races.values_of(call, trials)
        return values.run(call), values.is_certain

    def _find(self, call: Call, races: Races, trial: Trial) -> frozenset[int]:
        """What a trial finds, or found before."""
        key = trial.key(call)
        deciding = [whole(call.arrays[name]) for name in trial.needs]
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


def check(race: Race | None, adjoints: Mapping[str, Storage]) -> None:
    """Raises GradientError for a race on which a derivative hangs now."""
    for met in race or ():
        reached = [adjoints[name] for name in sorted(met.reaches) if name in adjoints]
        if any(array.to_numpy().any() for array in reached):
            raise refuse(met)


def check_any(race: Race | None, duals: Mapping[str, Storage]) -> None:
    """Raises GradientError for a race of forward mode, where a call finds any derivatives: which of
    them come through depends on the order."""
    if race is not None and any(array.to_numpy().any() for array in duals.values()):
        raise refuse(race[0])


def warn(call: Call, group: Group, why: str) -> None:
    """Say once for each kernel that it is not known whether its iterations meet."""
    one, other = group.first[0].span, group.second[0].span
    if one is None:
        return
    text = (
        f"{call.name}(): whether several iterations of a loop come to one element of "
        f"`{name_of(group.root)}` here"
        + (f" and at {other.place}" if other is not None and other != one else "")
        + f" is not known, for {why}. If they do, gradients may be wrong; "
        "ti.ad.Tape(validation=True) does not go on in doubt"
    )
    warnings.warn_explicit(
        text, GradientWarning, one.file, one.line, registry=call.plan.derived.warned_of_races
    )


# --- errors --------------------------------------------------------------------------------------


SERIALLY = "or loop serially: ti.loop_config(serialize=True)"


def refuse(met: Met, kind: type[GradientError] = GradientError) -> GradientError:
    """The error for a race."""
    one, other, name = met.group.first[0], met.group.second[0], name_of(met.group.root)
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
