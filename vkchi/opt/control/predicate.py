"""If-conversion on GPUs: an `if` with few loads and arithmetic becomes straight-line code.

    v = if 0 <= k < n { x[k] [inbounds] } { s }    becomes    w = x[k]; v = select(0 <= k < n, w, s)

A branch waits for its loads before the next op begins; straight-line loads overlap. Loads and
arithmetic become speculative. An access that was proved in range only under the condition is
clamped (`lower_access`). If the condition is false, it loads the spare element or any other one.
The result is then unused. CPUs keep the branch.

Both regions may contain only loads from buffers and pure ops: few of them, and at least one load.
Inner `if`s come first.

    >>> predicate(fn, caps)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from vkchi.analysis.parallel_loops import is_private
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Value, base_memory
from vkchi.ir.ops import TABLE, Effect
from vkchi.ir.rebuild import Rebuilder
from vkchi.target import tuning
from vkchi.target.caps import Caps
from vkchi.types import Array, Ptr, Tensor, u1, with_shape


def predicate(fn: Func, caps: Caps) -> Func:
    """Apply `straighten`, unless the device is a CPU."""
    return fn if caps.branches_cheap else straighten(fn)


def straighten(fn: Func) -> Func:
    """If-convert branches that have results, 1 to PREDICATE_LOADS loads from buffers, and at most
    PREDICATE_OPS ops, all others of them pure."""
    return IfConverter().run(fn)


class IfConverter(Rebuilder):
    """Rewrites inner branches first; an outer branch is judged by their results."""

    def __init__(self) -> None:
        super().__init__(self.answer)

    def answer(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """Rewrite an `if` with results: convert it if profitable, else only its regions."""
        if op.kind != "if" or not op.results:
            return None
        regions = tuple([self.region(r) for r in op.regions])
        ops = [inner for r in regions for inner in r.ops[:-1] if inner.kind != "const"]
        b.span = op.span
        if not is_worth_it(ops):
            return b.if_(args[0], *regions).results
        for inner in chain(regions[0].ops[:-1], regions[1].ops[:-1]):
            self.place(inner)
        pairs = zip(regions[0].yielded, regions[1].yielded, strict=True)
        return [choose(b, args[0], self.map.get(x, x), self.map.get(y, y)) for x, y in pairs]

    def place(self, op: Op) -> None:
        """Append an op for speculative execution; an `elem` loses its proof of being in range."""
        b, args = self.b, self.args(op)
        b.span = op.span
        if op.kind == "elem" and op.attr is not None:
            self.map[op] = b.insert(Op(op.kind, args, None, op.type, op.span, op.name))
        else:
            self.keep(op, args)


def is_worth_it(ops: Sequence[Op]) -> bool:
    """True if both regions contain only pure ops and loads from buffers.

    In all there are 1 to PREDICATE_LOADS loads, and at most PREDICATE_OPS ops.
    """
    loads = [op for op in ops if op.kind == "load"]
    if not 0 < len(loads) <= tuning.PREDICATE_LOADS or len(ops) > tuning.PREDICATE_OPS:
        return False
    return all(op.kind == "load" or is_free(op) for op in ops) and all(map(is_global, loads))


def will_be_if_converted(op: Op) -> bool:
    return is_worth_it(straight_ops(op))


def straight_ops(op: Op) -> list[Op]:
    """Return the ops directly in an `if`, without constants.

    An inner `if` that will be converted is replaced by its ops.
    """
    found: list[Op] = []
    for inner in (x for r in op.regions for x in r.ops[:-1] if x.kind != "const"):
        ops = straight_ops(inner) if inner.kind == "if" and inner.results else []
        found += ops if is_worth_it(ops) else [inner]
    return found


def is_free(op: Op) -> bool:
    return TABLE[op.kind].effect is Effect.PURE and not op.regions


def is_global(load: Op) -> bool:
    """True if a load is from an array in a buffer, whose index can be clamped."""
    place, base = load.args[0], base_memory(load.args[0])
    t = place.type
    return (
        not is_private(load)
        and isinstance(base.type, Array)
        and isinstance(t, Ptr)
        and t.space == "global"
    )


def choose(b: Builder, cond: Value, x: Value, y: Value) -> Value:
    if x is y:
        return x
    if isinstance(x.type, Tensor):
        cond = b.emit("splat", cond, type=with_shape(u1, x.type.shape))
    return b.emit("select", cond, x, y)
