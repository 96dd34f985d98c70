"""Partial unrolling of loops that CPU drivers would unroll to very long code.

    for 0, 16 {...}                                                                       becomes
    for 0, 4 [nounroll] {four iterations}

Drivers fully unroll loops of at most MESA_UNROLLS iterations, unless their code gets too long for
them. Compile time grows with the square of that length, while a few iterations together already
hide the cost of the loop itself.

- A loop whose iterations have UNROLLED_OPS ops together becomes one of groups of at most GROUP_OPS.
- Loops with loops inside stay. So do those that index lanes or private arrays, as constant indices
  cost less.

The order of ops is unchanged.

    >>> limit_unrolling(fn, caps)
"""

from __future__ import annotations

from vkchi.ir.core import Func, Op, walk
from vkchi.ir.op_table.invocation_ops import EXCHANGING
from vkchi.ir.ops import LOOPS, constant_trip_count
from vkchi.ir.rebuild import Cloner, rebuild_chosen
from vkchi.opt.loops.serial.transform import unroll_by
from vkchi.target import tuning
from vkchi.target.caps import Caps
from vkchi.types import Tensor, i32

KEPT = LOOPS | EXCHANGING | {"member_at", "extract_at"}


def limit_unrolling(fn: Func, caps: Caps) -> Func:
    """Partially unroll long loops of few iterations, on CPUs."""
    if not caps.scalar_lanes:
        return fn
    return rebuild_chosen(
        fn, "for", group_size,
        lambda r, op, args, size: unroll_by(Cloner(r.b, dict(r.map)), op, args, size, most=0),
    )  # fmt: skip


def group_size(loop: Op) -> int:
    """Return how many iterations of a loop to execute at once; 0 if the driver may decide."""
    trips, body = constant_trip_count(loop), loop.regions[0]
    if loop.attr is not None or trips is None or body.params[0].type is not i32:
        return 0
    if any(op.kind in KEPT for op in walk(body)):
        return 0
    ops = sum(op.type.size if isinstance(op.type, Tensor) else 1
              for op in walk(body) if op.kind != "const")  # fmt: skip
    least, most = tuning.UNROLLED_OPS
    if not 2 < trips <= tuning.MESA_UNROLLS or not least < ops * trips <= most:
        return 0
    sizes = [k for k in (8, 4, 2) if trips % k == 0 and k * ops <= tuning.GROUP_OPS]
    return sizes[0] if sizes else 0
