"""Forward mode for minima, maxima and products over iterations of a parallel loop.

The iteration that determines a minimum or maximum is known only after the loop. So the loop runs
twice: first for the results alone (`precompute`), then completely. In the second run, iterations
whose value equals the result store its tangent.

Loops that cannot run twice are serialized (`serialize_extremes`), which is legal because any order
of iterations is. Examples are loops with products or random numbers, and loops that read memory
which they change.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vkchi.analysis.memory.alias import kinds_at
from vkchi.autodiff.gradient_checks import is_adjoint
from vkchi.autodiff.primal import ActivityAnalysis
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Region, Value, base_memory, used_in, walk
from vkchi.ir.ops import EXTREMES, WRITES, Effect, effect_of
from vkchi.ir.rebuild import Rebuilder, rebuild

LATE = EXTREMES | {"atomic_mul"}  # ops whose tangent is known only after the loop
ONCE = (Effect.SYNC, Effect.WRITE)  # effects, besides writes to memory, that must not happen twice


def late_roots(loop: Op, active: ActivityAnalysis) -> frozenset[Value]:
    """Memory with derivatives in which a loop computes minima, maxima or products across
    iterations.

    Adjoints are excluded.
    """
    inside = own_memory(loop)
    changed = {base_memory(op.args[0]) for op in walk(loop.regions[0]) if op.kind in LATE}
    outside = {root for root in changed if root not in inside and not is_adjoint(root)}
    return frozenset(v for v in outside if v in active.sources or v in active.roots)


def own_memory(loop: Op) -> set[Value]:
    return {op for op in walk(loop.regions[0]) if op.kind == "local"}


def can_precompute(loop: Op, roots: frozenset[Value], used: Collection[Value]) -> bool:
    """True if a loop can run first for the results at these roots alone.

    Their writes must be minima or maxima, of one kind per location. The loop must not synchronize,
    draw random numbers, or read memory that it changes, except its own `local`s.
    """
    inside, writes = own_memory(loop), [op for op in walk(loop.regions[0]) if op.kind in WRITES]
    changed = {root for op in writes if (root := base_memory(op.args[0])) not in inside}
    late = [op for op in writes if base_memory(op.args[0]) in roots]
    if any(op.kind not in EXTREMES or len(kinds_at(late, op.args[0])) > 1 for op in late):
        return False
    for op in walk(loop.regions[0]):
        if op.kind in WRITES:
            if op in used and base_memory(op.args[0]) in changed:
                return False
        elif effect_of(op.kind) in ONCE or (
            op.kind == "load" and base_memory(op.args[0]) in changed
        ):
            return False
    return True


def serialize_extremes(fn: Func, differentiable: frozenset[str]) -> Func:
    """Replace parallel loops that would have to run twice, but cannot, by `for` loops.

    These compute minima, maxima or products in memory with derivatives. Loops whose iterations
    synchronize are left unchanged.
    """
    if not any(op.kind in LATE for op in walk(fn.body)):
        return fn
    active = ActivityAnalysis(fn, differentiable)
    used = used_in(fn.body)

    def is_serial(loop: Op) -> bool:
        roots = late_roots(loop, active)
        effects = {effect_of(op.kind) for op in walk(loop.regions[0])}
        return bool(roots) and Effect.SYNC not in effects and not can_precompute(loop, roots, used)

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> tuple[Value, ...] | None:
        if op.kind != "parallel" or not is_serial(op):
            return None
        return nest_serial_loops(b, op, args).results

    return rebuild(fn, visit)


def nest_serial_loops(b: Builder, loop: Op, args: Sequence[Value]) -> Op:
    """Emit nested serial loops for a parallel one with these bounds; return the outermost."""
    region = loop.regions[0]
    for k in reversed(range(1, len(region.params))):
        with b.region(region.params[k - 1]) as outer:
            b.for_(args[2 * k], args[2 * k + 1], (), Region((region.params[k],), region.ops))
            b.emit("yield")
        region = Region(loop.regions[0].params, outer.ops)
    return b.for_(args[0], args[1], (), Region((loop.regions[0].params[0],), region.ops))


def precompute(b: Builder, loop: Op, roots: frozenset[Value], now: dict[Value, Value]) -> None:
    """Emit the loop reduced to the results at these roots. `now` maps old values to new ones."""
    inside = own_memory(loop)

    def visit(_: Builder, op: Op, args: tuple[Value, ...]) -> tuple[Value, ...] | None:
        root = base_memory(op.args[0]) if op.kind in WRITES else None
        is_other = root is not None and root not in inside and root not in roots
        is_report = effect_of(op.kind) is Effect.REPORT
        return tuple(op.results) if is_other or is_report else None

    rebuilder = Rebuilder(visit)
    rebuilder.map = dict(now)
    body = rebuilder.region(loop.regions[0])
    b.parallel([now.get(v, v) for v in loop.args], body, loop.attr)
