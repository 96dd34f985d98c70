"""If-conversion on graphics cards: an `if` of few loads and arithmetic becomes straight code.

    v = if 0 <= k < n { x[k] [inside] } { s }    becomes    w = x[k]; v = select(0 <= k < n, w, s)

A branch waits for its loads before what comes next begins; straight code has all of them under way
together. What was proved to be inside the array under the condition no longer is, and is clamped as
all else (`access`): where the condition is false, a load finds the spare element, or any other, and
nobody looks at it. Arithmetic that nobody looks at does no harm either. Processors branch.

Only what loads and computes is taken, little of it, from arrays in buffers; inner `if`s first.

Owns: this form, and when it is worth it. Must not know: how accesses are clamped.

    >>> predicate(fn, caps)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from vkchi.analysis.variance import is_private
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Value, base_of
from vkchi.ir.ops import TABLE, Effect
from vkchi.ir.rebuild import Rebuilder
from vkchi.target.caps import Caps
from vkchi.types import Array, Ptr, Tensor, u1, with_shape

MOST_LOADS = 4  # in both regions
MOST_OPS = 16


def predicate(fn: Func, caps: Caps) -> Func:
    """The Func with branches over few loads made straight, for a graphics card."""
    return fn if caps.is_cpu else straighten(fn)


def straighten(fn: Func) -> Func:
    """The Func with branches over few loads made straight."""
    return Straightener().run(fn)


class Straightener(Rebuilder):
    """Takes inner branches first: an outer one is looked at with what became of them."""

    def __init__(self) -> None:
        super().__init__(self.answer)

    def answer(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """What stands for the results of an `if`."""
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
        """Append an op that runs whether or not it is wanted: no place is surely inside."""
        b, args = self.b, self.args(op)
        b.span = op.span
        if op.kind == "elem" and op.attr is not None:
            self.map[op] = b.insert(Op(op.kind, args, None, op.type, op.span, op.name))
        else:
            self.keep(op, args)


def is_worth_it(ops: Sequence[Op]) -> bool:
    """Whether these ops, of two branches, are few, load, and do nothing but compute besides."""
    loads = [op for op in ops if op.kind == "load"]
    if not 0 < len(loads) <= MOST_LOADS or len(ops) > MOST_OPS:
        return False
    return all(op.kind == "load" or is_free(op) for op in ops) and all(map(is_global, loads))


def will_be_straight(op: Op) -> bool:
    """Whether an `if` becomes straight code, inner ones first, as it stands now."""
    return is_worth_it(straight_ops(op))


def straight_ops(op: Op) -> list[Op]:
    """What is in an `if`, and in those inside it that become straight code; no constants."""
    found: list[Op] = []
    for inner in (x for r in op.regions for x in r.ops[:-1] if x.kind != "const"):
        ops = straight_ops(inner) if inner.kind == "if" and inner.results else []
        found += ops if is_worth_it(ops) else [inner]
    return found


def is_free(op: Op) -> bool:
    """Whether an op may run unasked."""
    return TABLE[op.kind].effect is Effect.PURE and not op.regions


def is_global(load: Op) -> bool:
    """Whether a load is from an array in a buffer, by an index that can be clamped."""
    place, base = load.args[0], base_of(load.args[0])
    t = place.type
    return (
        not is_private(base)
        and isinstance(base.type, Array)
        and isinstance(t, Ptr)
        and t.space == "global"
    )


def choose(b: Builder, cond: Value, x: Value, y: Value) -> Value:
    """Append x if cond, else y, for numbers and whole tensors."""
    if x is y:
        return x
    if isinstance(x.type, Tensor):
        cond = b.emit("splat", cond, type=with_shape(u1, x.type.shape))
    return b.emit("select", cond, x, y)
