"""Race queries for one kernel: possible conflicts, their effects, instrumented variants.

`KernelRaces` holds the conflicts that matter. It builds the variants that decide if they occur in a
call: trials on copies, and the instrumented run of the kernel itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.analysis.dataflow import Dependence
from vkchi.autodiff.gradient_checks import is_adjoint
from vkchi.autodiff.primal import ActivityAnalysis, name_under
from vkchi.autodiff.reaching import ReachingWrites
from vkchi.autodiff.results import GradientSpec
from vkchi.calls.call import KernelCall
from vkchi.calls.facts import Case, Names
from vkchi.calls.gradients import simplify_for_gradient
from vkchi.calls.questions import given_in, live
from vkchi.ir.core import ADJOINT, Func, Param, Value, base_memory, walk
from vkchi.ir.ops import WRITES
from vkchi.races.conflicts import Conflict, FeasibleConflicts, find_conflicts
from vkchi.races.detector import (
    ConflictGroup,
    DetectorOptions,
    group_by_lines,
    instrument_addresses,
    instrument_races,
)
from vkchi.races.race import Race, UndecidedRace, memory_name
from vkchi.races.trials import ObservedRun, TrialRun
from vkchi.tuples import NamedTuple

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


# --- instrumented variants -----------------------------------------------------------------------


def observed_variant(call: KernelCall, doubt: UndecidedRace, func: Func) -> ObservedRun | None:
    """The instrumented variant that runs in place of `func`; None if no conflict is possible.

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
    return races.observed(call, near) if near else None


class TrialSet(NamedTuple):
    """Trials of these groups.

    `places` runs only the ops that determine the accessed elements. `values` run the whole kernel;
    they are built at first use, by `knows_old`.
    """

    groups: list[ConflictGroup]
    places: TrialRun
    values: dict[bool, TrialRun]


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
        self.forms: dict[tuple[int, ...], ObservedRun] = {}
        self.known: dict[tuple[TrialRun, Any], frozenset[int]] = {}

    def _rank(self, m: Conflict) -> tuple[bool, bool]:
        return not self.reaches[m], m.first[0].kind != "load"

    def trials_of(self, call: KernelCall, near: tuple[int, ...]) -> TrialSet:
        if near not in self.trials:
            groups = group_by_lines([self.conflicts[k] for k in near], self.strict)
            places = TrialRun(
                call,
                self,
                groups,
                instrument_addresses(self.fn, groups, DetectorOptions(knows_values=False)),
            )
            self.trials[near] = TrialSet(groups, places, {})
        return self.trials[near]

    def values_of(self, call: KernelCall, trials: TrialSet, *, knows_old: bool) -> TrialRun:
        if knows_old not in trials.values:
            style = DetectorOptions(knows_values=True, knows_old=knows_old, active=self.active)
            made = instrument_races(self.fn, trials.groups, style)
            trials.values[knows_old] = TrialRun(call, self, trials.groups, made)
        return trials.values[knows_old]

    def observed(self, call: KernelCall, near: tuple[int, ...]) -> ObservedRun:
        if near not in self.forms:
            groups = group_by_lines([self.conflicts[k] for k in near], self.strict)
            style = DetectorOptions(knows_values=True, active=self.active, reports=True)
            self.forms[near] = ObservedRun(
                call, self, groups, instrument_races(self.fn, groups, style)
            )
        return self.forms[near]

    def race_of(self, group: ConflictGroup, why: str = "") -> Race:
        """The race of a conflicting group, with the arrays through which it affects derivatives."""
        sides = set(group.first), set(group.second)
        those = [m for m in self.conflicts if m.first[0] in sides[0] and m.second[0] in sides[1]]
        return Race(group, frozenset().union(*(self.reaches[m] for m in those)), why)
