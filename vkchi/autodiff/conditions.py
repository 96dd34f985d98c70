"""Loops whose condition changes memory, rewritten so that their body does.

Owns: `move_conditions`. What reverses a loop looks at its body only. So

    while (x) {cond} {body}    becomes    go = cond(x); while (x, go) {go} {body; go = cond}

Must not know: adjoints.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Value, walk
from vkchi.ir.ops import WRITES
from vkchi.ir.rebuild import Rebuilder
from vkchi.types import u1

GO = Param(u1, "go")  # whether the loop goes on


def move_conditions(fn: Func) -> Func:
    """The Func with no `while` whose condition writes; `fn` itself if there is none."""
    mover = Mover()
    body = mover.region(fn.body)
    return fn if body is fn.body else Func(fn.name, fn.params, body, fn.span)


class Mover(Rebuilder):
    """Copies everything but these loops."""

    def __init__(self) -> None:
        super().__init__(self.visit_while)

    def visit_while(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """The loop with its condition at the end of its body."""
        if op.kind != "while" or not any(x.kind in WRITES for x in walk(op.regions[0])):
            return None
        cond, body = op.regions
        first = (*args, self.repeat(cond, args))
        test_params = [Param(v.type, p.name) for v, p in zip(first, (*cond.params, GO))]
        with b.region(*test_params) as test:
            b.emit("yield", test_params[-1])
        params = [Param(p.type, p.name) for p in body.params]
        with b.region(*params, Param(u1, GO.name)) as inner:
            ends = self.copy_region(body, params)
            b.emit("yield", *ends, self.repeat(cond, ends))
        return b.while_(first, test, inner).results[:-1]

    def repeat(self, region: Region, values: Sequence[Value]) -> Value:
        """What the condition yields for these values."""
        return self.copy_region(region, values)[0]

    def copy_region(self, region: Region, values: Sequence[Value]) -> list[Value]:
        """The ops of a region, copied with values for its parameters; what it yields."""
        self.map.update(zip(region.params, values))
        for op in region.ops[:-1]:
            self.copy_op(op)
        return [self.map.get(v, v) for v in region.yielded]

    def copy_op(self, op: Op) -> None:
        """A new op like this one, with new regions: a condition stands twice."""
        args = self.args(op)
        found = self.visit_while(self.b, op, args)
        if found is not None:
            self.map.update(zip(op.results, found))
            return
        regions = []
        for region in op.regions:
            params = [Param(p.type, p.name) for p in region.params]
            with self.b.region(*params) as new:
                self.b.emit("yield", *self.copy_region(region, params))
            regions.append(new)
        made = self.b.insert(self.copy(op, args, tuple(regions)))
        if op.type is not None:
            self.map[op] = made
