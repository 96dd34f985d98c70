"""Deep copy of ops: regions and their parameters are copied too.

`Cloner` is the base of differentiation and of passes that duplicate code. `rebuild` is for passes
that keep most of a Func: it shares unchanged ops.

A subclass overrides `visit` to replace an op. It adds carried values to control ops by four hooks:
- `carry`: initial values of a loop's additional carried values;
- `begin`: called at the start of a region, with the parameters of the additional values;
- `end`: additional values that a region yields (not called for a condition, which yields one u1);
- `finish`: called after the op, with the additional results.

    class Doubled(Cloner):                    # carries every value twice
        def carry(self, op): return [self.get(v) for v in initial_values(op)]
        def end(self, op, region, more): return [self.get(v) for v in region.yielded]

    Cloner(b, {index: b.const(0, i32)}).body(loop.regions[0])      # the first iteration
    b.parallel(bounds, Cloner(b).region(loop, loop.regions[0]))    # the loop with other bounds
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.control_ops import control_of, is_loop
from vkchi.ir.core import Op, Param, Region, Value


class Cloner:
    """Appends copies of ops to the open region of `b`.

    `map` maps old values to new ones. Each copy adds its results, also to a dict that the caller
    passed. Values that are not in it map to themselves.
    """

    more_names = "more"  # name of the parameters for additional carried values

    def __init__(self, b: Builder, map: dict[Value, Value] | None = None) -> None:
        self.b = b
        self.map: dict[Value, Value] = {} if map is None else map

    def get(self, v: Value) -> Value:
        return self.map.get(v, v)

    def run(self, ops: Iterable[Op]) -> None:
        """Call `visit` for each of these ops except a `yield`."""
        for op in ops:
            self.b.span = op.span
            if op.kind != "yield":
                self.visit(op)

    def body(self, region: Region) -> None:
        """Copy the ops of a region, and its `yield`, into the open region of `b`."""
        self.run(region.ops)
        self.b.emit("yield", *map(self.get, region.yielded))

    def visit(self, op: Op) -> None:
        """Append the replacement of an op: by default, its copy."""
        if op.regions:
            self.control(op)
        else:
            self.copy(op)

    def copy(self, op: Op, *args: Value) -> Op:
        """Append a copy of an op without regions, map its result, and return it.

        The arguments are `args`, or without any the mapped old ones.
        """
        given = args or tuple([self.get(v) for v in op.args])
        new = self.b.insert(Op(op.kind, given, op.attr, op.type, op.span, op.name))
        if op.results:
            self.map[op] = new
        return new

    def control(self, op: Op) -> Op:
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

    def region(self, op: Op, region: Region, first: Sequence[Value] = ()) -> Region:
        """Return a copy of a region of the control op `op`, as a new region.

        `first` are the initial values of the additional carried values; each gets a parameter.
        """
        params = [Param(p.type, p.name) for p in region.params]
        more = [Param(v.type, self.more_names) for v in first]
        is_test = control_of(op).tests and region is op.regions[0]
        with self.b.region(*params, *more) as new:
            self.begin(op, region, more)
            ends = self.inline(region, params)
            self.b.emit("yield", *ends, *(() if is_test else self.end(op, region, more)))
        return new

    def inline(self, region: Region, values: Sequence[Value]) -> list[Value]:
        """Append copies of a region's ops with `values` for its parameters.

        Return the copies of its yielded values.
        """
        self.map.update(zip(region.params, values, strict=True))
        self.run(region.ops)
        return [self.get(v) for v in region.yielded]

    # --- additional carried values of control ops

    def carry(self, op: Op) -> Sequence[Value]:
        """Return the initial values of a loop's additional carried values: none by default.

        Called for every control op; an override must return none for an `if`.
        """
        return ()

    def begin(self, op: Op, region: Region, more: Sequence[Param]) -> None:
        """Hook at the start of each copied region; `more` are the parameters of additional carried
        values."""

    def end(self, op: Op, region: Region, more: Sequence[Param]) -> Sequence[Value]:
        """Return the additional values that the copy of a region yields: none by default."""
        return ()

    def finish(self, op: Op, more: Sequence[Value]) -> None:
        """Hook after the copy of a control op; `more` are its additional results."""
