"""What recordings ask of a kernel's IR, as functions whose answers are data.

Owns: the questions. Each is asked once, for a signature, and by other processes of the cache
(`cache.answers`); who computes an answer reads IR, and stands in `QUESTIONS` of `tape.answering`
under the function's name. Answers depend on nothing but the kernel and what is given here. Must not
know: IR.

    touched(plan, "writes", case_of({"t": 3}, {"x": x}))        # {"x": ((3, 3), (0, 7))}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vkchi.analysis.boxes import Box, Shaped
from vkchi.autodiff.answers import (
    Along,
    Differentiated,
    Flow,
    GradientSpec,
    Marked,
    Outflow,
)
from vkchi.compiling import compiling
from vkchi.hooks import Hook
from vkchi.types import Array

if TYPE_CHECKING:
    from vkchi.launch import Plan

Names = frozenset[str]
Types = tuple[tuple[str, Array], ...]
# A call, as far as answers may depend on it: its integers and the shapes of its arrays, by names.
Case = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, tuple[int, ...]], ...]]


def case_of(numbers: Mapping[str, int], arrays: Mapping[str, Shaped]) -> Case:
    """What answers may depend on of a call."""
    shapes = tuple([(name, array.shape) for name, array in arrays.items()])
    return tuple(numbers.items()), shapes


class Answering:
    """Who reads IR: of the layer above, and not loaded where an answer is known."""

    answer = Hook("answer to a question")


def ask(plan: Plan, question: str, *about: Any, is_lasting: bool = True) -> Any:
    """The answer to a question. Raises what finding it raises."""

    def answer() -> Any:
        with compiling(plan.derived.title):
            return Answering.answer(question, plan, *about)

    return plan.derived.answers.find((question, *about), answer, is_lasting=is_lasting)


def touched(plan: Plan, kinds: str, case: Case) -> dict[str, Box]:
    """Which part of each array a call touches by ops of these `kinds`: loads, reads or writes."""
    found: dict[str, Box] = ask(plan, "touched", kinds, case)
    return found


def differentiated(plan: Plan, spec: GradientSpec) -> Differentiated:
    """The kernel's gradient. Raises GradientError."""
    is_silent = spec.request.missing != "warn"  # else each process is to warn
    found: Differentiated = ask(plan, "differentiated", spec, is_lasting=is_silent)
    return found


def needed(plan: Plan, spec: GradientSpec, case: Case) -> dict[str, Box]:
    """What a gradient reads of arrays, with the contents that the kernel found."""
    found: dict[str, Box] = ask(plan, "needed", spec, case)
    return found


def overwritten(plan: Plan, spec: GradientSpec, case: Case) -> dict[str, Box]:
    """What the kernel overwrites, as its gradient sees it."""
    found: dict[str, Box] = ask(plan, "overwritten", spec, case)
    return found


def check_reached(plan: Plan, spec: GradientSpec, constants: Names) -> None:
    """Raises GradientError where none of the arrays on which results with gradients depend has one,
    but for constants."""
    ask(plan, "check_reached", spec, constants)


def settled(plan: Plan, spec: GradientSpec, names: Names, given: Names) -> Names | None:
    """Which of these arrays may be settled (`recompute_safety`); None where the gradient has arrays
    besides those that are given."""
    found: Names | None = ask(plan, "settled", spec, names, given)
    return found


def marked(plan: Plan, spec: GradientSpec | None, names: Names, settled: Names) -> Marked:
    """The kernel, or what its gradient takes for it, in a form that marks what it stores."""
    found: Marked = ask(plan, "marked", spec, names, settled)
    return found


def strip_mined(plan: Plan, spec: GradientSpec) -> Any:
    """A gradient's dispatches with fewer invocations than iterations; None if there are none."""
    return ask(plan, "strip_mined", spec)


def along(plan: Plan, names: Names, types: Types, missing: str) -> Along:
    """The kernel with derivatives along the duals of these arrays; `types` as in `GradientSpec`,
    `missing` as in `Request`. Raises GradientError."""
    found: Along = ask(plan, "along", names, types, missing, is_lasting=missing != "warn")
    return found


def outflow(plan: Plan, spec: GradientSpec, case: Case, constant: Names) -> Outflow:
    """Where a call puts derivatives that finds constants in some arrays."""
    found: Outflow = ask(plan, "outflow", spec, case, constant)
    return found


def outflow_along(plan: Plan, names: Names, case: Case) -> Outflow:
    """The same in forward mode, by these arrays."""
    found: Outflow = ask(plan, "outflow_along", names, case)
    return found


def covering(plan: Plan, name: str, box: Box, case: Case) -> int | None:
    """The first segment of a call that overwrites all of a part of an array, or, without a box, all
    of it."""
    found: int | None = ask(plan, "covering", name, box, case)
    return found


def flow(plan: Plan, name: str, box: Box, end: int | None, is_bits: bool, case: Case) -> Flow:
    """Where a call puts what depends smoothly on what a part of an array holds before; without a
    box it is all of the array, which is overwritten by the end of a segment, if it is."""
    found: Flow = ask(plan, "flow", name, box, end, is_bits, case)
    return found


def kinds_of_writes(plan: Plan) -> dict[str, frozenset[str]]:
    """The kinds of ops that write to each array."""
    found: dict[str, frozenset[str]] = ask(plan, "kinds_of_writes")
    return found


def arrays_used(plan: Plan) -> Names:
    """The arrays whose numbers a kernel uses: not those that it only adds to."""
    found: Names = ask(plan, "arrays_used")
    return found


def stores_constants(plan: Plan) -> bool:
    """Whether a kernel does nothing to memory but store what depends on no floats in it."""
    return bool(ask(plan, "stores_constants"))


def depends_on_order(plan: Plan) -> bool:
    """Whether a kernel may leave something else each time."""
    return bool(ask(plan, "depends_on_order"))


def may_race(plan: Plan, spec: GradientSpec | None, names: Names, all_: bool) -> bool:
    """Whether iterations of some call may meet (`races.meeting`) where it matters to derivatives by
    these arrays, or (`all_`) at all."""
    return bool(ask(plan, "may_race", spec, names, all_))


def meeting(
    plan: Plan, spec: GradientSpec | None, names: Names, all_: bool, case: Case
) -> tuple[int, ...]:
    """The numbers of the conflicts that may be in a call."""
    found: tuple[int, ...] = ask(plan, "meeting", spec, names, all_, case)
    return found
