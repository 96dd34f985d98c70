"""Full unrolling of short serial loops with reductions to addresses shared by all iterations.

    parallel 0, n {(i) for k in 0..3 { atomic_add w[k], x[i + k] * y[i] } }                 becomes
    parallel 0, n {(i) atomic_add w[0], x[i] * y[i]; atomic_add w[1], x[i + 1] * y[i]; ... }

After unrolling each address is loop-invariant, so `reduce` keeps its sum in a register.
Gradients of convolution weights have this form, however their loops are written.

    >>> unroll_sums(fn)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from vkchi.analysis.memory.dependence import DependenceTest, WriteAccess
from vkchi.analysis.memory.footprint import element_under
from vkchi.analysis.parallel_loops import may_interleave
from vkchi.analysis.values.polynomials import WrappedSums, symbols_in
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Value, used_in, walk
from vkchi.ir.ops import ATOMICS, constant_trip_count
from vkchi.ir.rebuild import rebuild_loops
from vkchi.opt.loops.scatter.shifts import is_global
from vkchi.opt.loops.serial.transform import Unroller
from vkchi.target import tuning


def unroll_sums(fn: Func) -> Func:
    """Unroll serial loops with reductions to shared addresses, if `is_short`."""

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        chosen = find_loops(op) if may_interleave(op) else set()
        if not chosen:
            return None
        b.parallel(args, Unroller(b, {}, chosen).region(op, op.regions[0]))
        return ()

    return rebuild_loops(fn, visit)


def find_loops(loop: Op) -> set[Op]:
    """Return the serial loops in a `parallel` to unroll."""
    body = loop.regions[0]
    survey, sums, used = DependenceTest(body.ops, loop), WrappedSums(), used_in(body)
    nests = [
        loops_of_place(survey, sums, write)
        for writes in survey.writes.values()
        for write in writes
        if write.loops and write.op.kind in ATOMICS and write.op not in used
    ]
    chosen = {op for nest in nests for op in nest}
    short = {op for op in chosen if is_short(op, chosen)}
    return {op for nest in nests if short.issuperset(nest) for op in nest}


def loops_of_place(survey: DependenceTest, sums: WrappedSums, write: WriteAccess) -> Sequence[Op]:
    """Return the serial loops whose indices determine the address of a reduction in global memory.

    Empty if the address varies with the parallel iteration otherwise, or if a trip count is not
    constant.
    """
    element = element_under(write.op.args[0])
    if element is None or not is_global(write.place.base):
        return ()
    symbols = {s for v in element.args[1:] for s in symbols_in(sums.of(v))}
    loops = [op for op in write.loops if not symbols.isdisjoint(op.regions[-1].params[:1])]
    if not all(op.kind == "for" and constant_trip_count(op) is not None for op in loops):
        return ()
    inner = {op.regions[0].params[0] for op in loops}
    is_shared = all(s in inner or (isinstance(s, Value) and survey.is_steady(s)) for s in symbols)
    return loops if is_shared else ()


def is_short(loop: Op, chosen: set[Op]) -> bool:
    """True if a chosen loop may be unrolled: its iterations, times those of chosen inner loops, are
    at most UNROLL_SUM_ITERATIONS. They have at most UNROLL_SUM_OPS ops together."""
    inner = [op for op in walk(loop.regions[0]) if op in chosen]
    rounds = prod(constant_trip_count(op) or 0 for op in (loop, *inner))
    return (
        rounds <= tuning.UNROLL_SUM_ITERATIONS
        and rounds * sum(1 for _ in walk(loop.regions[0])) <= tuning.UNROLL_SUM_OPS
    )
