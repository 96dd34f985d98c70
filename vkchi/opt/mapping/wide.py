"""Work distribution of loops with more iterations than i32 can count.

    parallel %b, %e {^(%i: i64) body}    becomes    parallel 0, WIDE_INVOCATIONS {^(%t: i32)
                                                      for k in 0..rounds { body }}

Each invocation executes every WIDE_INVOCATIONS-th iteration; iterations are counted as u64. This
applies if an axis has type i64, or if all extents are constants and their product exceeds i32.
Counts beyond u64 saturate; such a loop would never end.

Guarantees: later passes see only `parallel` axes of i32.

    >>> cut_wide_loops(fn)
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value, constant_int
from vkchi.ir.ops import axes_of, constant_trip_count
from vkchi.ir.rebuild import inline, rebuild
from vkchi.target import tuning
from vkchi.types import i32, i64, u64

INT_MAX = (1 << 31) - 1


def cut_wide_loops(fn: Func) -> Func:
    """Rewrite `parallel` loops with i64 axes, or with a constant trip count beyond i32."""

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op.kind != "parallel" or not is_wide(op):
            return None
        build_wide(b, op, args)
        return ()

    return rebuild(fn, visit)


def is_wide(op: Op) -> bool:
    has_wide = any(axis.param.type is i64 for axis in axes_of(op))
    return has_wide or (constant_trip_count(op) or 0) > INT_MAX


def build_wide(b: Builder, op: Op, args: Sequence[Value]) -> None:
    axes = [(args[k], args[k + 1]) for k in range(0, len(args), 2)]
    extents = [length(b, *ends) for ends in axes]
    total = extents[0]
    for extent in extents[1:]:
        total = saturated_product(b, total, extent)
    t, k = Param(i32, "t"), Param(u64, "k")
    with b.region(t) as outer:
        first = b.emit("cast", t, type=u64)
        step = b.const(tuning.WIDE_INVOCATIONS, u64)
        rounds = b.emit("trip_count", first, total, step)
        with b.region(k) as inner:
            at = b.emit("add", first, b.emit("mul", k, step))
            inline(b, op.regions[0], indices_at(b, op, at, extents, axes))
            b.emit("yield")
        b.for_(b.const(0, u64), rounds, (), inner)
        b.emit("yield")
    b.parallel((b.const(0, i32), b.const(tuning.WIDE_INVOCATIONS, i32)), outer)


def length(b: Builder, begin: Value, end: Value) -> Value:
    if begin.type is i32:
        return b.emit("cast", b.emit("trip_count", begin, end, b.const(1, i32)), type=u64)
    return b.emit("trip_count", begin, end, b.const(1, i64))


def saturated_product(b: Builder, x: Value, y: Value) -> Value:
    most, one = b.const((1 << 64) - 1, u64), b.const(1, u64)
    fits = b.emit("le", x, b.emit("floordiv", most, b.emit("max", y, one)))
    return b.emit("select", fits, b.emit("mul", x, y), most)


def indices_at(
    b: Builder,
    op: Op,
    at: Value,
    extents: Sequence[Value],
    axes: Sequence[tuple[Value, Value]],
) -> list[Value]:
    found: list[Value] = []
    for k in reversed(range(len(axes))):
        digit = at if k == 0 else b.emit("mod", at, extents[k])
        at = at if k == 0 else b.emit("floordiv", at, extents[k])
        p = op.regions[0].params[k]
        assert p.type is i32 or p.type is i64
        moved = b.emit("cast", digit, type=p.type)
        is_from_0 = constant_int(axes[k][0]) == 0
        found.append(moved if is_from_0 else b.emit("add", moved, axes[k][0], name=p.name))
    return found[::-1]
