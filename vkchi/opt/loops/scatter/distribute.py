"""Loop distribution: scatter-adds that conflict along some axes move to a loop of their own.

    parallel 0, n {(i) g = y[i]; for j in 0..m { atomic_add x[j], g * w[i, j] } }
becomes
    parallel 0, n, 0, m {(i, j) atomic_add x[j], y[i] * w[i, j] }
    parallel 0, n {(i) ... the rest of the loop ... }

Different iterations add to the same elements, so each addition is an atomic. In the new loop,
`coarsen` makes strips along the axes that the element does not depend on, and each strip is one
reduction. Examples are gradients of matrix products, all-pairs interactions, and reductions along
several axes in one loop.

The new loop has an axis for each axis of the old one, for each serial loop whose index is used in
the subscripts, and for the loops around these. All bounds must be constants. The added value is
recomputed in each iteration of the new loop. That must need no loop, and cost less than the atomics
(`cost_model.is_worth_gathering`). If the element depends on no axis, and the serial loops have at
most UNROLL_SUM_ITERATIONS iterations together, the loop is left to `unroll_sums`.

See also: `opt.loops.scatter.shifts` finds the movable additions.

    >>> distribute(fn, caps)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value
from vkchi.ir.ops import LOOPS, LoopAxis, axes_of
from vkchi.opt.cost_model import is_worth_gathering
from vkchi.opt.loops.scatter.gather import IterationCopy, move_scatter_adds
from vkchi.opt.loops.scatter.shifts import ScatterAdd, ScatterAnalysis
from vkchi.opt.memo import Memo
from vkchi.target import tuning
from vkchi.target.caps import Caps
from vkchi.types import i32

DISTRIBUTED = "updates that conflict run in a loop of their own (loop distribution)"
INT_MAX = (1 << 31) - 1


def distribute(fn: Func, caps: Caps, memo: Memo | None = None) -> Func:
    """Move scatter-adds to loops of their own, where legal and profitable."""
    return move_scatter_adds(fn, memo, DISTRIBUTED, lambda shifts: groups_in(shifts, caps), build)


def groups_in(shifts: ScatterAnalysis, caps: Caps) -> list[list[ScatterAdd]]:
    """Return the profitable scatter-adds of a loop, grouped by target and serial loops."""
    return [sums for sums in shifts.inner_targets() if is_worth_it(shifts, sums, caps)]


def is_worth_it(shifts: ScatterAnalysis, sums: Sequence[ScatterAdd], caps: Caps) -> bool:
    """True if the new loop is legal and profitable: its bounds are constants, the recomputed ops
    contain no loop, and `is_worth_gathering` holds. False for additions that are left to
    `unroll_sums`."""
    lengths = [max(0, end - begin) for begin, end in ends_of(shifts, sums)]
    rounds = prod(lengths[len(shifts.survey.own_axes) :])
    is_unrolled = not sums[0].place.axes and rounds <= tuning.UNROLL_SUM_ITERATIONS
    if not lengths or is_unrolled or prod(lengths) > INT_MAX:
        return False
    needed = repeated_for(shifts, sums)
    if any(op.kind in LOOPS for op in needed):
        return False
    return is_worth_gathering(len(sums), len(needed), prod(lengths), caps)


def repeated_for(shifts: ScatterAnalysis, sums: Sequence[ScatterAdd]) -> set[Op]:
    return shifts.copied_for(sums, with_places=True).difference(sums[0].loops)


def axes_for(shifts: ScatterAnalysis, sums: Sequence[ScatterAdd]) -> list[LoopAxis]:
    return [axis for op in (shifts.loop, *sums[0].loops) for axis in axes_of(op)]


def ends_of(shifts: ScatterAnalysis, sums: Sequence[ScatterAdd]) -> list[tuple[int, int]]:
    """Return begin and end of each axis of the new loop; an empty list unless all are constants."""
    found = [axis.ends for axis in axes_for(shifts, sums)]
    known = [ends for ends in found if ends is not None and max(map(abs, ends)) <= INT_MAX]
    return known if len(known) == len(found) else []


def build(b: Builder, shifts: ScatterAnalysis, sums: Sequence[ScatterAdd]) -> None:
    old = [axis.param for axis in axes_for(shifts, sums)]
    new = [Param(i32, p.name) for p in old]
    with b.region(*new) as body:
        known: dict[Value, Value] = {}
        for p, q in zip(old, new, strict=True):
            known[p] = q if p.type is i32 else b.emit("bitcast", q, type=p.type)
        moved, needed = {one.op for one in sums}, shifts.copied_for(sums, with_places=True)
        IterationCopy(b, known, moved, sums[0].loops, needed).run(shifts.body.ops)
        b.emit("yield")
    b.parallel([b.const(n, i32) for ends in ends_of(shifts, sums) for n in ends], body)
