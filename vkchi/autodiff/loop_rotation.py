"""Loop rotation of `while` loops whose condition writes memory: move the condition into the body.

Reverse mode only reverses loop bodies. So

    while (x) {cond} {body}    becomes    go = cond(x); while (x, go) {go} {body; go = cond}
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.clone import Cloner
from vkchi.ir.core import Func, Op, Param, Value, walk
from vkchi.ir.ops import WRITES


def rotate_loops(fn: Func) -> Func:
    """Rotate each `while` whose condition writes; returns `fn` itself if there is none."""
    if not any(map(has_writing_condition, walk(fn.body))):
        return fn
    mover = LoopRotation(Builder())
    with mover.b.region() as body:
        mover.run(fn.body.ops)
        mover.b.emit("yield")
    return Func(fn.name, fn.params, body, fn.span)


def has_writing_condition(op: Op) -> bool:
    return op.kind == "while" and any(x.kind in WRITES for x in walk(op.regions[0]))


class LoopRotation(Cloner):
    def control(self, op: Op) -> Op:
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
    return [Param(v.type, v.name) for v in values]
