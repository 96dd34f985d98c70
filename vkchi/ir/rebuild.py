"""The one walker that passes are built on: copy a Func, letting a visitor replace ops.

Owns: value mapping and sharing of what did not change. Must not know: any op but by its regions.

    def visit(b, op, args):            # op of the old Func, its args already mapped
        if op.kind == "neg":
            return [b.emit("sub", zero, args[0])]      # values that stand for op.results
        return None                                    # keep
    new = rebuild(fn, visit)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Value, walk

Choice = TypeVar("Choice")  # of how to replace an op: never empty
Visit = Callable[[Builder, Op, tuple[Value, ...]], "Sequence[Value] | None"]


class Rebuilder:
    """Rewrites regions; `map` leads from old values to the ones that stand for them."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.map: dict[Value, Value] = {}
        self.b = Builder()

    def args(self, op: Op) -> tuple[Value, ...]:
        """The op's arguments in the new Func."""
        if self.map.keys().isdisjoint(op.args):
            return op.args
        get = self.map.get
        return tuple([get(v, v) for v in op.args])

    def inside(self, *params: Param) -> AbstractContextManager[Region]:
        """Open a new region. What must know where regions begin and end overrides this."""
        return self.b.region(*params)

    def run(self, fn: Func) -> Func:
        """A rewritten Func; `fn` itself if nothing in it changed. A walker runs once: it lets go of
        its visitor, which mostly holds it, so that nothing is left for Python's collector."""
        body = self.region(fn.body)
        del self.visit
        return fn if body is fn.body else Func(fn.name, fn.params, body, fn.span)

    def region(self, region: Region) -> Region:
        """A rewritten region; the same object if nothing in it changed. Parameters are shared."""
        with self.inside(*region.params) as new:
            self.ops(region.ops)
        return region if same_ops(region.ops, new.ops) else new

    def ops(self, ops: Sequence[Op]) -> None:
        """Rewrite ops into the region that is open in `b`."""
        b, visit, mapped, append = self.b, self.visit, self.map, self.b.ops.append
        is_unmapped, get = mapped.keys().isdisjoint, mapped.get
        for op in ops:
            b.span = op.span
            args = op.args
            if not is_unmapped(args):
                args = tuple([get(v, v) for v in args])
            out = visit(b, op, args)
            if out is None:
                if op.regions:
                    self.keep(op, args)
                elif args is op.args:
                    append(op)
                else:
                    append(self.copy(op, args, ()))
            elif op.type is not None:
                (new,) = out
                if new is not op:
                    mapped[op] = new
            elif out is not op.results:
                mapped.update(zip(op.results, out, strict=True))

    def keep(self, op: Op, args: tuple[Value, ...]) -> Op:
        """Append the op with new args and rewritten regions; itself if nothing changed."""
        if not op.regions:
            return self.b.insert(op if args is op.args else self.copy(op, args, ()))
        regions = tuple([self.region(r) for r in op.regions])
        if args == op.args and regions == op.regions:
            return self.b.insert(op)
        return self.b.insert(self.copy(op, args, regions))

    def copy(self, op: Op, args: tuple[Value, ...], regions: tuple[Region, ...]) -> Op:
        """A new op like this one; its results stand for the old ones."""
        if op.type is not None:
            new = self.map[op] = Op(op.kind, args, op.attr, op.type, op.span, op.name)
            return new
        types = tuple([r.type for r in op.results])
        new = Op(op.kind, args, op.attr, None, op.span, op.name, regions, types)
        for old, result in zip(op.results, new.results, strict=True):
            result.name = old.name
            self.map[old] = result
        return new


def with_params(fn: Func, new: Mapping[Param, Param]) -> Func:
    """The Func with other parameters, of the same elements, for some of its own; what stands for
    several is one."""
    if not new:
        return fn
    rebuilder = Rebuilder(lambda b, op, args: None)
    rebuilder.map.update(new.items())
    params = tuple(dict.fromkeys(new.get(p, p) for p in fn.params))
    return Func(fn.name, params, rebuilder.region(fn.body), fn.span)


def same_ops(a: list[Op], b: list[Op]) -> bool:
    """Whether two op lists hold the same objects: equality of ops is identity."""
    return a == b


def rebuild(fn: Func, visit: Visit) -> Func:
    """The Func with every op that `visit` answered for replaced; `fn` itself if none was."""
    return Rebuilder(visit).run(fn)


def rebuild_chosen(
    fn: Func,
    kind: str,
    choose: Callable[[Op], Choice | None],
    build: Callable[[Rebuilder, Op, tuple[Value, ...], Choice], Sequence[Value]],
) -> Func:
    """The Func with those ops of a kind replaced for which `choose` says how; `fn` itself, which
    is not walked by a visitor, where it does for none."""
    chosen = {op: choice for op in walk(fn.body) if op.kind == kind and (choice := choose(op))}
    if not chosen:
        return fn

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        choice = chosen.get(op)
        return build(walker, op, args, choice) if choice else None

    walker = Rebuilder(visit)
    return walker.run(fn)


def rebuild_loops(fn: Func, visit: Visit) -> Func:
    """As `rebuild`, for visitors of `parallel` ops alone, which stand in no other and whose results
    nobody uses: what is inside them is not looked at."""
    b = Builder()
    with b.region() as body:
        for op in fn.body.ops:
            b.span = op.span
            if op.kind != "parallel" or visit(b, op, op.args) is None:
                b.insert(op)
    return fn if same_ops(fn.body.ops, body.ops) else Func(fn.name, fn.params, body, fn.span)
