"""Padding of loops with barriers to whole workgroups.

All invocations of a workgroup must reach a barrier. If the iterations may not fill the last
workgroup,

    parallel begin, end { (i) body }

becomes a loop from 0 over whole workgroups. Invocations beyond the end execute the last iteration
without effects:

- writes and reports are omitted;
- atomics and subgroup reductions receive the identity;
- loads are those of the last iteration, hence in range;
- `has_iteration` is false, and stores to arrays of tiles are kept, for tiled subgroup functions;
- an omitted atomic returns the value in memory, so that loops waiting for a value end in all
  invocations.

If the host cannot compute the number of iterations, `map_grid` makes each workgroup execute several
groups of iterations in sequence. A barrier at the end separates their uses of workgroup arrays.
Such a loop does not run if it has more than `host_numbers.most_iterations` iterations.

A barrier in control flow that provably diverges in a workgroup is an error (`uniformity`).

    >>> pad_to_workgroup(fn, caps)
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.uniformity import check_barriers
from vkchi.analysis.values.host_numbers import BARRIERS, host_count, most_iterations
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value, base_memory, constant_int, has_kind
from vkchi.ir.op_table.invocation_ops import SPANS, TILE
from vkchi.ir.ops import ATOMICS, Effect, effect_of
from vkchi.ir.rebuild import Rebuilder, rebuild
from vkchi.opt.cost_model import choose_block, fills_groups
from vkchi.opt.mapping.rows import collapse_loops
from vkchi.target.caps import SMALLEST, Caps
from vkchi.types import Scalar, Tensor, i32, scalar_of, shape_of, u1, u32

EFFECTS = frozenset({Effect.WRITE, Effect.ATOMIC, Effect.REPORT})
# Identities of atomics, and of the reductions and scans with the same operation.
NEUTRAL = {
    f"{prefix}{row.combine}": row.identity
    for row in ATOMICS.values()
    for prefix in ("atomic_", *[f"subgroup_{span}" for span in SPANS])
}
NEUTRAL_VOTES = {
    "subgroup_all": True, "subgroup_any": False, "subgroup_ballot": False,
    "subgroup_ballot_wide": False, "warp_ballot": False,
}  # fmt: skip


def pad_to_workgroup(fn: Func, caps: Caps = SMALLEST) -> Func:
    """Pad loops with barriers whose iterations may not fill their last workgroup. Such a loop of
    several axes is collapsed to one before.

    Raises KernelSyntaxError at a barrier in provably divergent control flow.
    """
    wanted = {
        op for op in fn.body.ops if op.kind == "parallel" and has_kind(op.regions[0], BARRIERS)
    }
    for op in wanted:
        check_barriers(op)
    wanted = {op for op in wanted if not is_full(op, caps)}
    if not wanted:
        return fn
    if any(len(op.args) > 2 for op in wanted):
        return pad_to_workgroup(collapse_loops(fn, wanted), caps)

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op not in wanted:
            return None
        build_full(b, op, args, caps)
        return ()

    return rebuild(fn, visit)


def is_full(op: Op, caps: Caps) -> bool:
    count = host_count(op)
    return count is not None and fills_groups(count, block_of(op, caps))


def block_of(op: Op, caps: Caps) -> int:
    if op.attr is not None:
        return int(op.attr)
    return choose_block(host_count(op) or ("unknown",), caps)


def build_full(b: Builder, op: Op, args: tuple[Value, ...], caps: Caps) -> None:
    begin, end = args
    block = block_of(op, caps)
    index, is_counted = Param(i32, "t"), host_count(op) is not None
    count = count_of(b, begin, end, None if is_counted else most_iterations(op))
    size, one = b.const(block, i32), b.const(1, i32)
    up = b.emit("add", count, b.const(block - 1, i32))
    whole = b.emit("mul", b.emit("floordiv", up, size), size)
    last = b.emit("sub", count, one)
    (body,) = op.regions
    with b.region(index) as padded:
        inside = b.emit("lt", index, count)
        copier = PaddedBodyCopier(inside)
        copier.b = b
        i = b.emit("min", index, last)
        copier.map[body.params[0]] = i if constant_int(begin) == 0 else b.emit("add", begin, i)
        copier.map[body.params[0]].name = "i"
        copier.ops(body.ops[:-1])
        if not is_counted:
            b.emit("barrier")
        b.emit("yield")
    b.parallel((b.const(0, i32), whole), padded, block)


def count_of(b: Builder, begin: Value, end: Value, most: int | None) -> Value:
    """Append the number of iterations of a range, an i32: zero if more than `most`."""
    if constant_int(begin) == 0 and most is None:
        return b.emit("max", end, begin)
    count = b.emit("trip_count", begin, end, b.const(1, i32))
    if most is not None:
        fits = b.emit("le", count, b.const(most, u32))
        count = b.emit("select", fits, count, b.const(0, u32))
    return b.emit("bitcast", count, type=i32)


class PaddedBodyCopier(Rebuilder):
    """Copies a body with its effects restricted to invocations that are `inside`."""

    def __init__(self, inside: Value) -> None:
        super().__init__(self.visit_effect)
        self.inside_value = inside

    def visit_effect(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """Guard ops with effects, and neutralize operands of subgroup ops."""
        if op.kind == "has_iteration":
            return (self.inside_value,)
        if op.kind.startswith("subgroup_"):
            return self.hide(b, op, args)
        if effect_of(op.kind) not in EFFECTS or op.kind == "random":
            return None
        base = base_memory(op.args[0])
        if isinstance(base, Op) and (base.kind == "local" or base.name == TILE):
            return None
        return self.hide(b, op, args) or self.guard(b, op, args)

    def guard(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """Emit the op under the condition `inside`; otherwise its result is the value in memory."""
        with b.region() as then:
            new = self.keep(op, args)
            b.emit("yield", *new.results)
        with b.region() as orelse:
            b.emit("yield", *[b.emit("load", args[0]) for _ in new.results])
        return b.if_(self.inside_value, then, orelse).results

    def hide(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """Emit the op with the identity as operand beyond the end; None if it has no identity."""
        neutral = neutral_of(b, op)
        if neutral is None:
            return None
        inside, shape = self.inside_value, shape_of(neutral.type)
        if shape:
            inside = b.emit("splat", inside, type=Tensor.of(u1, shape))
        mine = b.emit("select", inside, args[-1], neutral)
        return self.keep(op, (*args[:-1], mine)).results


def neutral_of(b: Builder, op: Op) -> Value | None:
    if op.kind in NEUTRAL_VOTES:
        return b.const(NEUTRAL_VOTES[op.kind], u1)
    make = NEUTRAL.get(op.kind)
    if make is None:
        return None
    t = op.args[-1].type
    assert isinstance(t, Scalar | Tensor)
    bits = make(scalar_of(t))
    return b.emit("const", attr=(bits,) * t.size if isinstance(t, Tensor) else bits, type=t)
