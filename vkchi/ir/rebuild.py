"""Rewriting of a Func by a visitor: the base of most passes. Unchanged ops and regions are shared.

Example:

    def visit(b, op, args):            # op of the old Func, its args already mapped
        if op.kind == "neg":
            return [b.emit("sub", zero, args[0])]      # values that replace op.results
        return None                                    # keep
    new = rebuild(fn, visit)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Value, walk

Choice = TypeVar("Choice")  # how to replace an op; always truthy
Visit = Callable[[Builder, Op, tuple[Value, ...]], "Sequence[Value] | None"]


class Rebuilder:
    """Rewrites regions. `map` maps old values to new ones."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.map: dict[Value, Value] = {}
        self.b = Builder()

    def args(self, op: Op) -> tuple[Value, ...]:
        """Return the op's arguments in the new Func."""
        if self.map.keys().isdisjoint(op.args):
            return op.args
        get = self.map.get
        return tuple([get(v, v) for v in op.args])

    def inside(self, *params: Param) -> AbstractContextManager[Region]:
        """Open a new region. Subclasses override this to track region boundaries."""
        return self.b.region(*params)

    def run(self, fn: Func) -> Func:
        """Return the rewritten Func, or `fn` itself if nothing changed. May be called once.

        It drops the reference to the visitor, which usually refers back to this object. Without
        that cycle both are freed by reference counting.
        """
        body = self.region(fn.body)
        del self.visit
        return fn if body is fn.body else Func(fn.name, fn.params, body, fn.span)

    def region(self, region: Region) -> Region:
        """Return the rewritten region, or the same object if nothing changed. Parameters are
        shared."""
        with self.inside(*region.params) as new:
            self.ops(region.ops)
        return region if same_ops(region.ops, new.ops) else new

    def ops(self, ops: Sequence[Op]) -> None:
        """Rewrite ops into the open region of `b`."""
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
        """Append the op with new args and rewritten regions, or itself if nothing changed."""
        if not op.regions:
            return self.b.insert(op if args is op.args else self.copy(op, args, ()))
        regions = tuple([self.region(r) for r in op.regions])
        if args == op.args and regions == op.regions:
            return self.b.insert(op)
        return self.b.insert(self.copy(op, args, regions))

    def copy(self, op: Op, args: tuple[Value, ...], regions: tuple[Region, ...]) -> Op:
        """Return a copy of the op with these args and regions, and map its results."""
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
    """Substitute parameters by others with the same elements. Several may map to one.

    Returns `fn` itself if there is nothing to substitute.
    """
    if not new:
        return fn
    rebuilder = Rebuilder(lambda b, op, args: None)
    rebuilder.map.update(new.items())
    params = tuple(dict.fromkeys(new.get(p, p) for p in fn.params))
    return Func(fn.name, params, rebuilder.region(fn.body), fn.span)


def same_ops(a: list[Op], b: list[Op]) -> bool:
    """True if two op lists hold the same objects."""
    return a == b


def rebuild(fn: Func, visit: Visit) -> Func:
    """Rewrite a Func: `visit` returns the values that replace an op's results, or None to keep the
    op.

    Returns `fn` itself if nothing changed.
    """
    return Rebuilder(visit).run(fn)


def rebuild_chosen(
    fn: Func,
    kind: str,
    choose: Callable[[Op], Choice | None],
    build: Callable[[Rebuilder, Op, tuple[Value, ...], Choice], Sequence[Value]],
) -> Func:
    """Replace those ops of one kind for which `choose` returns a choice, by calling `build` with
    it.

    Returns `fn` itself, without running a visitor, if nothing was chosen.
    """
    chosen = {op: choice for op in walk(fn.body) if op.kind == kind and (choice := choose(op))}
    if not chosen:
        return fn

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        choice = chosen.get(op)
        return build(walker, op, args, choice) if choice else None

    walker = Rebuilder(visit)
    return walker.run(fn)


def rebuild_loops(fn: Func, visit: Visit) -> Func:
    """Like `rebuild`, for visitors that replace `parallel` ops only: does not descend into regions.

    `visit` is called for `parallel` ops only. This suffices because a `parallel` is never nested
    and has no results.
    """
    b = Builder()
    with b.region() as body:
        for op in fn.body.ops:
            b.span = op.span
            if op.kind != "parallel" or visit(b, op, op.args) is None:
                b.insert(op)
    return fn if same_ops(fn.body.ops, body.ops) else Func(fn.name, fn.params, body, fn.span)
