"""Copies of ops in which everything is new: regions, their parameters, what stands in them.

Owns: `Cloner`: differentiation is built on it, and passes that write something a second time (those
that share what stays have `rebuild`). Control ops are copied by their rows in the op table, so none
is known by name. A subclass says what stands for an op (`visit`), and what a control op's copy
carries besides:

- `carry`, what the first iteration of a loop begins with, besides the old values;
- `begin`, that a region begins, whose last parameters stand for what is carried besides;
- `end`, what a region yields besides (not a condition, which yields a truth value only);
- `finish`, that the op is there, whose last results are what was yielded besides.

    class Doubled(Cloner):
        def end(self, op, region, more): return [self.get(v) for v in region.yielded]

    Cloner(b, {index: b.const(0, i32)}).body(loop.regions[0])      # the first iteration
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.control import control_of, is_loop
from vkchi.ir.core import Op, Param, Region, Value


class Cloner:
    """Appends copies to the region open in `b`. `map` leads from old values to what stands for
    them, and grows; others stand for themselves."""

    more_names = "more"  # of parameters for what is carried besides

    def __init__(self, b: Builder, map: dict[Value, Value] | None = None) -> None:
        self.b = b
        self.map: dict[Value, Value] = {} if map is None else map

    def get(self, v: Value) -> Value:
        """What stands for an old value."""
        return self.map.get(v, v)

    def run(self, ops: Iterable[Op]) -> None:
        """Copy these ops, but for what a region yields."""
        for op in ops:
            self.b.span = op.span
            if op.kind != "yield":
                self.visit(op)

    def body(self, region: Region) -> None:
        """Copy what stands in a region, and have the open one yield what stands for its yields."""
        self.run(region.ops)
        self.b.emit("yield", *map(self.get, region.yielded))

    def visit(self, op: Op) -> None:
        """Append what stands for an op."""
        if op.regions:
            self.control(op)
        else:
            self.copy(op)

    def copy(self, op: Op, *args: Value) -> Op:
        """An op without regions, on the values that stand for its arguments, or on these."""
        given = args or tuple([self.get(v) for v in op.args])
        new = self.b.insert(Op(op.kind, given, op.attr, op.type, op.span, op.name))
        if op.results:
            self.map[op] = new
        return new

    def control(self, op: Op) -> Op:
        """An op with regions."""
        args = [self.get(v) for v in op.args]
        first = self.carry(op)
        regions = tuple([self.region(op, r, first if is_loop(op) else ()) for r in op.regions])
        types = tuple([v.type for v in regions[-1].yielded])
        new = Op(op.kind, (*args, *first), op.attr, None, op.span, op.name, regions, types)
        self.b.span = op.span
        self.b.insert(new)
        for old, result in zip(op.results, new.results):
            self.map[old], result.name = result, old.name
        self.finish(op, new.results[len(op.results) :])
        return new

    def region(self, op: Op, region: Region, first: Sequence[Value]) -> Region:
        """A region of a control op that carries such values besides."""
        params = [Param(p.type, p.name) for p in region.params]
        more = [Param(v.type, self.more_names) for v in first]
        is_test = control_of(op).tests and region is op.regions[0]
        with self.b.region(*params, *more) as new:
            self.begin(op, region, more)
            ends = self.inline(region, params)
            self.b.emit("yield", *ends, *(() if is_test else self.end(op, region, more)))
        return new

    def inline(self, region: Region, values: Sequence[Value]) -> list[Value]:
        """Copy what stands in a region, with values for its parameters; what it yields."""
        self.map.update(zip(region.params, values, strict=True))
        self.run(region.ops)
        return [self.get(v) for v in region.yielded]

    # --- what control ops carry besides

    def carry(self, op: Op) -> Sequence[Value]:
        """What a loop begins with."""
        return ()

    def begin(self, op: Op, region: Region, more: Sequence[Param]) -> None:
        """A region of an op begins."""

    def end(self, op: Op, region: Region, more: Sequence[Param]) -> Sequence[Value]:
        """What a region yields."""
        return ()

    def finish(self, op: Op, more: Sequence[Value]) -> None:
        """The op is there."""
