"""Race queries for one kernel: possible conflicts, their effects, instrumented runs.

`KernelRaces` holds the conflicts that matter. It builds the instrumented variants of the kernel
(`InstrumentedRun`) that decide if they occur in a call. A variant runs in place of the kernel, or
as a trial on copies of the arrays that the kernel writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vkchi.analysis.dataflow import Dependence
from vkchi.autodiff.gradient_checks import find_nondeterministic, is_adjoint
from vkchi.autodiff.primal import ActivityAnalysis, name_under
from vkchi.autodiff.reaching import ReachingWrites
from vkchi.autodiff.results import GradientSpec
from vkchi.calls.call import KernelCall, leaf_arguments
from vkchi.calls.facts import Case, Names
from vkchi.calls.gradients import simplify_for_gradient
from vkchi.calls.questions import given_in, live
from vkchi.calls.variant import Variant
from vkchi.fields.storage import Storage
from vkchi.interrupts.contexts import restoring
from vkchi.ir.core import ADJOINT, Func, Param, Value, base_memory, used_in, walk
from vkchi.ir.ops import WRITES
from vkchi.races.conflicts import Conflict, FeasibleConflicts, find_conflicts
from vkchi.races.detector import (
    RACED,
    ConflictGroup,
    Detector,
    DetectorOptions,
    group_by_lines,
    instrument_addresses,
    instrument_races,
)
from vkchi.races.race import Found, Race, UndecidedRace, memory_name
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Tensor, i32
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.launch.compiled_kernel import CompiledKernel


def races_of(
    kernel: CompiledKernel, spec: GradientSpec | None, names: Names, all_: bool
) -> KernelRaces:
    def make() -> KernelRaces:
        gradient = live(kernel, spec).func if spec is not None else None
        return KernelRaces(simplify_for_gradient(kernel.func, names), names, gradient, all_=all_)

    return kernel.derived.find("races", (spec, names, all_), make)


def may_race(kernel: CompiledKernel, spec: GradientSpec | None, names: Names, all_: bool) -> bool:
    """True if a kernel may have a conflict that affects derivatives, or (`all_`) any conflict.

    Derivatives are with respect to the arrays `names`, in the gradient `spec` or in forward mode.
    """
    return bool(races_of(kernel, spec, names, all_).conflicts)


def meeting(
    kernel: CompiledKernel, spec: GradientSpec | None, names: Names, all_: bool, case: Case
) -> tuple[int, ...]:
    """Indices of the conflicts that are possible in a call, among `races_of(...).conflicts`."""
    found = races_of(kernel, spec, names, all_)
    return found.feasible.find(*given_in(case))


# --- effect on derivatives -----------------------------------------------------------------------


class ConflictRelevance:
    """Effect of conflicts on the derivatives with respect to the arrays `names`.

    `gradient` is the Func that runs in reverse mode; None for forward mode.
    """

    def __init__(self, fn: Func, names: frozenset[str], gradient: Func | None) -> None:
        self.fn, self.active = fn, ActivityAnalysis(fn, names)
        self.reach = ReachingWrites(fn)
        self.depending: dict[frozenset[Value], set[str]] = {}
        self.again = {
            (op.kind == "load", op.span)
            for op in (walk(gradient.body) if gradient is not None else ())
            if op.kind in ("load", *WRITES) and is_again(base_memory(op.args[0]))
        }

    def reaches(self, m: Conflict) -> frozenset[str]:
        """Arrays of which one must receive a nonzero derivative for the conflict to matter.

        Empty if it never matters.
        """
        found: set[str] = set()
        if self.is_strict(m):
            found |= self._flow(self._readers(m))
            if m.root in self.active.sources:
                found.add(memory_name(m.root))
        else:
            found |= self._flow(frozenset(op for op in m.first if op in self.active))
        if self.is_done_again(m):
            is_read = m.first[0].kind == "load"
            seeds = frozenset[Value](m.first) if is_read else self._readers(m)
            if seeds not in self.depending:
                self.depending[seeds] = dependent_arrays(self.fn, self.reach, seeds)
            found |= self.depending[seeds] & self.active.stores.keys()
        return frozenset(found)

    def _readers(self, m: Conflict) -> frozenset[Value]:
        return self.reach.readers(m.second[0])

    def _flow(self, seeds: frozenset[Value]) -> set[str]:
        return set(self.reach.flow(seeds)) & self.active.stores.keys() if seeds else set()

    def is_strict(self, m: Conflict) -> bool:
        """True if derivatives may depend on the last writer, even if all write the same value."""
        if m.first[0].kind == "load" or m.root not in self.active.roots:
            return False
        return any(op.args[1] in self.active for op in (*m.first, *m.second))

    def is_done_again(self, m: Conflict) -> bool:
        """True if the gradient may recompute values that depend on the conflict.

        That is: it has an access of the kernel at the line of one of the conflict.
        """
        first, second = m.first[0], m.second[0]
        if first.kind == "load":
            return (True, first.span) in self.again
        return any((False, op.span) in self.again for op in (first, second))


def dependent_arrays(fn: Func, reach: ReachingWrites, seeds: frozenset[Value]) -> set[str]:
    """Arrays whose contents may depend on these values through data, control or addresses."""
    writes = Dependence(fn.body, seeds, reach.readers).writes()
    return {name_under(op) for op in writes if isinstance(base_memory(op.args[0]), Param)}


def is_again(root: Value) -> bool:
    """True if an access to this memory in a gradient recomputes one of the kernel.

    It is an array of the kernel or a copy of one, not an adjoint.
    """
    return ADJOINT not in memory_name(root) and not is_adjoint(root)


# --- instrumented runs ---------------------------------------------------------------------------


class InstrumentedRun(Variant):
    """A variant instrumented to detect which of these groups conflict.

    A launch leaves its shadow cells cleared, so that the next launch reuses them, unless it was
    interrupted.
    """

    def __init__(
        self, call: KernelCall, groups: Sequence[ConflictGroup], made: Detector
    ) -> None:  # fmt: skip
        super().__init__(call, made.func)
        self.runtime = call.kernel.runtime
        self.groups, self.cells = groups, made.cells
        self.types = {p.name: p.type for p in made.func.params if p.name in made.cells}
        self.memory: dict[str, Storage] = {}

    def bind(self, call: KernelCall) -> dict[str, Storage]:
        """Allocate the shadow arrays of a launch. Raises DeviceError if memory is short."""
        own = {name: self._clear_cells(name, call.arrays) for name in self.cells}
        own[RACED] = Storage(self.runtime, i32, (len(self.groups),))
        return own

    def result(self, own: Mapping[str, Storage]) -> list[int]:
        """Indices of the groups that conflicted in a run; waits for the device."""
        numbers = np.flatnonzero(own[RACED].to_numpy())
        self.memory |= {name: own[name] for name in self.cells}
        return [int(n) for n in numbers]

    def _clear_cells(self, name: str, arrays: Mapping[str, Storage]) -> Storage:
        root, first = self.cells[name]
        t = self.types[name]
        assert isinstance(t, Array)
        shape = arrays[root.name].shape if isinstance(root, Param) else ()
        old = self.memory.pop(name, None)
        if old is None or old.shape != shape:
            old = Storage(self.runtime, t.elem, shape, t.layout)
            old.fill(first)
        return old

    # --- trials

    def find(self, call: KernelCall) -> list[int]:
        """Indices of the groups that conflict in a run on copies.

        Raises DeviceError if memory is short.
        """
        with restoring(self.runtime.lock), self.runtime.lock:
            own = self.bind(call)
            self.dry_run(call, own)
            return self.result(own)

    @cached_property
    def is_certain(self) -> bool:
        """False if random numbers or the order of iterations affect the result."""
        return not find_nondeterministic(self.func)

    @cached_property
    def needs(self) -> list[str]:
        """Names of the arrays that the result depends on."""
        given = {p.name for p in self.kernel.func.params}
        return sorted(self.artifact.reads & given)

    @cached_property
    def numbers(self) -> list[str]:
        """Names of the scalar arguments that the result depends on."""
        used = used_in(self.func.body)
        given = [p for p in self.func.params if isinstance(p.type, Scalar | Tensor)]
        return sorted(p.name for p in given if p in used)

    def key(self, call: KernelCall) -> tuple[Any, ...] | None:
        """Key of the scalars and shapes that the result depends on; None if one is unavailable."""
        numbers = {p.name: arg for p, arg in leaf_arguments(call.kernel, call.args)
                   if isinstance(arg, int | float | np.number)}  # fmt: skip
        if not numbers.keys() >= set(self.numbers):
            return None
        shapes = tuple([a.shape for a in call.arrays.values()])
        return (shapes, *(numbers[name] for name in self.numbers))


class ObservedRun(NamedTuple):
    """An instrumented run in place of the kernel."""

    run: InstrumentedRun
    races: KernelRaces

    def race(self, own: Mapping[str, Storage]) -> Found | None:
        groups = self.run.groups
        return tuple(self.races.race_of(groups[k]) for k in self.run.result(own)) or None


def observed_variant(call: KernelCall, doubt: UndecidedRace, func: Func) -> ObservedRun | None:
    """The instrumented run in place of `func`; None if no conflict is possible.

    `func` is the kernel, or its variant with a replay log.
    """
    kernel, spec = call.kernel, doubt.spec
    gradient = live(kernel, spec).func if spec is not None else None
    races = kernel.derived.find(
        "races_in_run",
        (func, doubt.names, spec, doubt.all_),
        lambda: KernelRaces(
            simplify_for_gradient(func, frozenset()), doubt.names, gradient, all_=doubt.all_
        ),
    )
    near = races.feasible.find(call.numbers, call.arrays)
    return ObservedRun(races.observed(call, near), races) if near else None


class TrialSet(NamedTuple):
    """Trials of these groups.

    `places` runs only the ops that determine the accessed elements. `values` run the whole kernel;
    they are built at first use, by `knows_old`.
    """

    groups: list[ConflictGroup]
    places: InstrumentedRun
    values: dict[bool, InstrumentedRun]


class KernelRaces:
    """Conflicts of a kernel: all, or those that affect derivatives.

    Derivatives are with respect to the arrays `names`. `gradient` is the Func that runs in reverse
    mode; None for forward mode.
    """

    def __init__(
        self, fn: Func, names: frozenset[str], gradient: Func | None, *, all_: bool
    ) -> None:
        self.fn = fn
        found = find_conflicts(fn)
        matters = ConflictRelevance(fn, names, gradient) if found else None
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
        self.feasible = FeasibleConflicts(fn, self.conflicts)
        self.trials: dict[tuple[int, ...], TrialSet] = {}
        self.forms: dict[tuple[int, ...], InstrumentedRun] = {}
        self.known: dict[tuple[InstrumentedRun, Any], Sequence[int]] = {}

    def _rank(self, m: Conflict) -> tuple[bool, bool]:
        return not self.reaches[m], m.first[0].kind != "load"

    def trials_of(self, call: KernelCall, near: tuple[int, ...]) -> TrialSet:
        if near not in self.trials:
            groups = group_by_lines([self.conflicts[k] for k in near], self.strict)
            made = instrument_addresses(self.fn, groups, DetectorOptions(knows_values=False))
            places = InstrumentedRun(call, groups, made)
            self.trials[near] = TrialSet(groups, places, {})
        return self.trials[near]

    def values_of(self, call: KernelCall, trials: TrialSet, *, knows_old: bool) -> InstrumentedRun:
        if knows_old not in trials.values:
            style = DetectorOptions(knows_values=True, knows_old=knows_old, active=self.active)
            made = instrument_races(self.fn, trials.groups, style)
            trials.values[knows_old] = InstrumentedRun(call, trials.groups, made)
        return trials.values[knows_old]

    def observed(self, call: KernelCall, near: tuple[int, ...]) -> InstrumentedRun:
        if near not in self.forms:
            groups = group_by_lines([self.conflicts[k] for k in near], self.strict)
            style = DetectorOptions(knows_values=True, active=self.active, reports=True)
            self.forms[near] = InstrumentedRun(
                call, groups, instrument_races(self.fn, groups, style)
            )
        return self.forms[near]

    def race_of(self, group: ConflictGroup, why: str = "") -> Race:
        """The race of a conflicting group, with the arrays through which it affects derivatives."""
        sides = set(group.first), set(group.second)
        those = [m for m in self.conflicts if m.first[0] in sides[0] and m.second[0] in sides[1]]
        return Race(group, frozenset().union(*(self.reaches[m] for m in those)), why)
