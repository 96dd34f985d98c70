"""Demotion of atomics: an atomic without conflicting invocations becomes a load, an op and a store.

    %old = atomic_add %p, %v    ->    %old = load %p; %new = add %old, %v; store %p, %new

Kernels write `x[i] += v` as an atomic. If only the iteration of i writes x[i], a plain update is
enough; concurrent readers race with an atomic too. An atomic is private in four cases:

- its address is in a `local`;
- it is outside of a `parallel`, where only one invocation runs;
- all writes to its `shared` array use `local_index` as the same subscript;
- iterations are proved to write disjoint elements of its array (`analysis.memory.dependence`), and
  the loop writes no other array that may alias it.

There are three variants:

- `demote_atomics` skips atomics whose address is invariant in a serial loop: `reduce` hoists those
  out of it.
- `demote_all_atomics` runs after `reduce`. Both run before `map_grid`, whose loops hide the
  iteration.
- `demote_but_sums` runs before differentiation, and skips each `atomic_add` with an unused result.
  The gradient of such an addition reads nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from vkchi.analysis.memory.dependence import DependenceTest, WriteAccess
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Value, used_in
from vkchi.ir.ops import UPDATES
from vkchi.ir.rebuild import rebuild
from vkchi.opt.lowering.legalize import combined_value
from vkchi.target.remarks import Decision, Log, record

SHARED = "several iterations may update one element"
SHARED_HELP = (
    "loop over the elements that are updated, with a serial loop over the contributions to each "
    "(rule 6 of docs/performance.md)"
)


def demote_atomics(fn: Func) -> Func:
    """Replace private atomics, except those whose address is invariant in their innermost serial
    loop."""
    return replace_atomics(fn, lambda survey, write: not survey.is_fixed(write))


def demote_all_atomics(fn: Func, log: Log | None = None) -> Func:
    """Replace all private atomics. Records all other atomics in parallel loops in `log`."""
    return replace_atomics(fn, lambda survey, write: True, log)


def demote_but_sums(fn: Func) -> Func:
    """Replace private atomics, except each `atomic_add` with an unused result."""
    used = used_in(fn.body)
    return replace_atomics(fn, lambda _, write: write.op.kind != "atomic_add" or write.op in used)


def surveys_of(fn: Func) -> list[DependenceTest]:
    """Return the dependence tests of the serial code and of each `parallel`."""
    serial = DependenceTest([op for op in fn.body.ops if op.kind != "parallel"], None)
    loops = [op for op in fn.body.ops if op.kind == "parallel"]
    return [serial, *(DependenceTest(op.regions[0].ops, op) for op in loops)]


def private_atomics(survey: DependenceTest) -> Iterator[WriteAccess]:
    for base, writes in survey.writes.items():
        atomics = [a for a in writes if a.op.kind in UPDATES]
        if atomics and survey.is_private(base, [a.op.args[0] for a in writes]):
            yield from atomics


# --- rewriting ---------------------------------------------------------------------------------


def replace_atomics(
    fn: Func,
    is_wanted: Callable[[DependenceTest, WriteAccess], bool],
    log: Log | None = None,
) -> Func:
    """Replace the private atomics that `is_wanted` selects. Records all other atomics in parallel
    loops in `log`."""
    surveys = surveys_of(fn)
    chosen = {a.op for s in surveys for a in private_atomics(s) if is_wanted(s, a)}
    for a in (a for s in surveys[1:] if log is not None for x in s.writes.values() for a in x):
        if a.op.kind in UPDATES and a.op not in chosen:
            record(log, Decision("cause", a.op.span, SHARED, SHARED_HELP))

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        return [update(b, op, args)] if op in chosen else None

    return rebuild(fn, visit, UPDATES) if chosen else fn


def update(b: Builder, op: Op, args: tuple[Value, ...]) -> Value:
    old = b.emit("load", args[0], name=op.name)
    b.emit("store", args[0], combined_value(b, op, old, args))
    return old
