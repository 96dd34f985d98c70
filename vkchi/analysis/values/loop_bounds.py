"""Widest loop bounds: they contain the range of a loop in every iteration of enclosing loops.

for i in range(n): for j in range(i + 1, n)        # j is always in range(1, n)
"""

from __future__ import annotations

from collections.abc import Mapping

from vkchi.ir.builder import Builder
from vkchi.ir.control_ops import axes_of, control_of
from vkchi.ir.core import Func, Op, Param, Value, params_under, walk
from vkchi.ir.ops import COUNTED, TABLE
from vkchi.tuples import NamedTuple

LEAST, MOST = 0, 1  # also positions of the bounds in a loop's arguments


class Nest(NamedTuple):
    """The `for` and `parallel` loops of a Func by index parameter, and the given parameters."""

    loops: Mapping[Value, Op]
    given: frozenset[Param]


def nest_of(fn: Func) -> Nest:
    loops = [op for op in walk(fn.body) if op.kind in COUNTED]
    axes: dict[Value, Op] = {axis.param: op for op in loops for axis in axes_of(op)}
    return Nest(axes, frozenset(fn.params))


def emit_widest_bounds(b: Builder, loop: Op, nest: Nest) -> tuple[Value, ...] | None:
    """Emit a begin and an end per axis that hold in all iterations of enclosing loops.

    They are computed from the given parameters only. They are valid if no op in them wraps
    (`sums_under` of a loop with these bounds). If the loop's own bounds qualify, they are returned
    unchanged. None for a `while`, or if such bounds are not known.
    """
    if loop.kind not in COUNTED:
        return None
    ends = [(axis.begin, axis.end) for axis in axes_of(loop)]
    found = [extreme(b, v, k, nest) for pair in ends for k, v in enumerate(pair)]
    known = [v for v in found if v is not None]
    return tuple(known) if len(known) == len(found) else None


def with_widest_bounds(loop: Op, nest: Nest) -> Op | None:
    """A detached loop with the widest bounds, the same regions and no carried values; None without
    such bounds."""
    b = Builder()
    with b.region():
        bounds = emit_widest_bounds(b, loop, nest)
    if bounds is None:
        return None
    return Op(loop.kind, bounds, loop.attr, None, loop.span, loop.name, loop.regions)


def sums_under(loop: Op) -> list[Value]:
    """Ops in a loop's bounds that are monotone in their operands.

    The widest bounds are valid if none of these ops wraps.
    """
    found: list[Value] = []
    todo = list(loop.args[: control_of(loop).fixed])
    for v in todo:  # `todo` grows
        if isinstance(v, Op) and TABLE[v.kind].monotone:
            found.append(v)
            todo += v.args
    return found


def extreme(b: Builder, v: Value, side: int, nest: Nest) -> Value | None:
    """Emit a lower bound (`side` LEAST) or upper bound (MOST) of v over enclosing loops, or return
    None."""
    if params_under([v]) <= nest.given:
        return v
    if isinstance(v, Param):
        return extreme_index(b, v, side, nest)
    signs = TABLE[v.kind].monotone if isinstance(v, Op) else ""
    if not signs or not isinstance(v, Op):
        return None
    sides = [side if sign == "+" else 1 - side for sign in signs]
    parts = [extreme(b, a, end, nest) for a, end in zip(v.args, sides, strict=True)]
    known = [p for p in parts if p is not None]
    return b.emit(v.kind, *known) if len(known) == len(parts) else None


def extreme_index(b: Builder, index: Param, side: int, nest: Nest) -> Value | None:
    """Emit a lower bound (`side` LEAST) or upper bound (MOST) of a loop index, or return None."""
    loop = nest.loops.get(index)
    axes = axes_of(loop) if loop is not None else []
    ends = next(((a.begin, a.end) for a in axes if a.param is index), None)
    bound = extreme(b, ends[side], side, nest) if ends is not None else None
    if bound is None or side == LEAST:
        return bound
    return b.emit("sub", bound, b.const(1, index.type))  # type: ignore[arg-type]
