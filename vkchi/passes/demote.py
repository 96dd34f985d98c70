"""Atomics that no other invocation can disturb become a load, an op and a store.

Kernels spell `x[i] += v` as an atomic; where only the iteration that i belongs to writes x[i], it
need not be one (what others read meanwhile is a race with the atomic too). An atomic is private if
its place is a `local`, the dispatch has one invocation, or each iteration has places of its own in
its array (`analysis.access`), which is no `shared` one.

`demote_atomics` leaves those that `reduce` can take out of a serial loop, which is better still;
`demote_all_atomics` comes after it. Both come before `map_grid`, whose loops hide the iteration.
`demote_but_sums` is for differentiation, which needs to know no rules but those of the op then; a
plain sum is better left, for its gradient reads nothing.

Owns: the rewriting. Must not know: devices.

    %old = atomic_add %p, %v    ->    %old = load %p; %new = add %old, %v; store %p, %new
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from vkchi.analysis.access import Survey, Write
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Value, used_in
from vkchi.ir.ops import UPDATES
from vkchi.ir.rebuild import rebuild
from vkchi.passes.legalize import combined


def demote_atomics(fn: Func) -> Func:
    """The Func with private atomics replaced, but for those whose place a serial loop keeps."""
    return replace_atomics(fn, lambda survey, write: not survey.is_fixed(write))


def demote_all_atomics(fn: Func) -> Func:
    """The Func with all private atomics replaced."""
    return replace_atomics(fn, lambda survey, write: True)


def demote_but_sums(fn: Func) -> Func:
    """The Func with private atomics replaced, but for sums whose old value nobody uses."""
    used = used_in(fn.body)
    return replace_atomics(fn, lambda _, write: write.op.kind != "atomic_add" or write.op in used)


def private_atomics(survey: Survey) -> Iterator[Write]:
    """Atomics that no other invocation can meet."""
    for base, writes in survey.writes.items():
        atomics = [a for a in writes if a.op.kind in UPDATES]
        if atomics and survey.is_private(base, [a.op.args[0] for a in writes]):
            yield from atomics


# --- rewriting ---------------------------------------------------------------------------------


def replace_atomics(fn: Func, is_wanted: Callable[[Survey, Write], bool]) -> Func:
    """The Func with the private atomics that are wanted replaced."""
    serial = Survey([op for op in fn.body.ops if op.kind != "parallel"], None)
    loops = [op for op in fn.body.ops if op.kind == "parallel"]
    surveys = [serial, *(Survey(op.regions[0].ops, op) for op in loops)]
    chosen = {a.op for s in surveys for a in private_atomics(s) if is_wanted(s, a)}

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        return [update(b, op, args)] if op in chosen else None

    return rebuild(fn, visit) if chosen else fn


def update(b: Builder, op: Op, args: tuple[Value, ...]) -> Value:
    """Emit what an atomic does, step by step; the old value."""
    old = b.emit("load", args[0], name=op.name)
    b.emit("store", args[0], combined(b, op, old, args))
    return old
