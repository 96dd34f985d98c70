"""Loops whose condition changes memory, rotated so that their body does.

Owns: `rotate_loops`. What reverses a loop looks at its body only. So

    while (x) {cond} {body}    becomes    go = cond(x); while (x, go) {go} {body; go = cond}

Must not know: adjoints.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.clone import Cloner
from vkchi.ir.core import Func, Op, Param, Value, walk
from vkchi.ir.ops import WRITES


def rotate_loops(fn: Func) -> Func:
    """The Func with no `while` whose condition writes; `fn` itself if there is none."""
    if not any(map(has_writing_condition, walk(fn.body))):
        return fn
    mover = Mover(Builder())
    with mover.b.region() as body:
        mover.run(fn.body.ops)
        mover.b.emit("yield")
    return Func(fn.name, fn.params, body, fn.span)


def has_writing_condition(op: Op) -> bool:
    """Whether an op is such a loop."""
    return op.kind == "while" and any(x.kind in WRITES for x in walk(op.regions[0]))


class Mover(Cloner):
    """Copies everything else as it is."""

    def control(self, op: Op) -> Op:
        """Of such a loop the condition stands before it, and at the end of its body."""
        if not has_writing_condition(op):
            return super().control(op)
        b, (cond, body) = self.b, op.regions
        first = [self.get(v) for v in op.args]
        first += self.inline(cond, first)
        with b.region(*params_for(first)) as test:
            b.emit("yield", test.params[-1])
        with b.region(*params_for(first)) as inner:
            ends = self.inline(body, inner.params[:-1])
            b.emit("yield", *ends, *self.inline(cond, ends))
        new = b.while_(first, test, inner)
        self.map.update(zip(op.results, new.results))
        return new


def params_for(values: Sequence[Value]) -> list[Param]:
    """Parameters for values that a loop carries."""
    return [Param(v.type, v.name) for v in values]
