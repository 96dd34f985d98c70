"""Rewriting of a Func by a visitor. Unchanged ops and regions are shared with the old Func.

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
from vkchi.types import Array

Choice = TypeVar("Choice")  # how to replace an op; always truthy
Visit = Callable[[Builder, Op, tuple[Value, ...]], "Sequence[Value] | None"]


class Rebuilder:
    """Rewrites regions by `visit`. `map` maps old values to new ones."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.map: dict[Value, Value] = {}
        self.b = Builder()

    def args(self, op: Op) -> tuple[Value, ...]:
        """Return the arguments of `op` after mapping old values to new ones."""
        if self.map.keys().isdisjoint(op.args):
            return op.args
        get = self.map.get
        return tuple([get(v, v) for v in op.args])

    def inside(self, *params: Param) -> AbstractContextManager[Region]:
        """Return a context manager that opens a new region. Subclasses override this to note its
        bounds."""
        return self.b.region(*params)

    def run(self, fn: Func) -> Func:
        """Return the rewritten Func, or `fn` itself if nothing changed. May be called once: deletes
        `visit`."""
        body = self.region(fn.body)
        del self.visit
        return fn if body is fn.body else Func(fn.name, fn.params, body, fn.span)

    def region(self, region: Region) -> Region:
        """Return the rewritten region, or the same object if nothing changed.

        A new region has the same parameter objects.
        """
        with self.inside(*region.params) as new:
            self.ops(region.ops)
        return region if region.ops == new.ops else new

    def ops(self, ops: Sequence[Op]) -> None:
        """Append the rewritten ops to the open region of `b`, and map their results."""
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
                results = zip(op.results, out, strict=True)
                mapped.update([(old, new) for old, new in results if new is not old])

    def keep(self, op: Op, args: tuple[Value, ...]) -> Op:
        """Append `op` with new args and rewritten regions, or itself if nothing changed; return
        it."""
        if not op.regions:
            return self.b.insert(op if args is op.args else self.copy(op, args, ()))
        regions = tuple([self.region(r) for r in op.regions])
        if args == op.args and regions == op.regions:
            return self.b.insert(op)
        return self.b.insert(self.copy(op, args, regions))

    def copy(self, op: Op, args: tuple[Value, ...], regions: tuple[Region, ...]) -> Op:
        """Return a copy of the op with these args and regions, without appending it. Maps its
        results."""
        if op.type is not None:
            new = self.map[op] = Op(op.kind, args, op.attr, op.type, op.span, op.name)
            return new
        types = tuple([r.type for r in op.results])
        new = Op(op.kind, args, op.attr, None, op.span, op.name, regions, types)
        for old, result in zip(op.results, new.results, strict=True):
            result.name = old.name
            self.map[old] = result
        return new


def inline(
    b: Builder, region: Region, values: Sequence[Value], visit: Visit = lambda b, op, args: None
) -> None:
    """Append the ops of a region but its `yield`, with `values` for its parameters, rewritten by
    `visit`."""
    rebuilder = Rebuilder(visit)
    rebuilder.b = b
    rebuilder.map.update(zip(region.params, values, strict=True))
    rebuilder.ops(region.ops[:-1])


def with_params(fn: Func, new: Mapping[Param, Param]) -> Func:
    """Return a Func in which the parameters of `new` are replaced. Several may map to one.

    Precondition: the replacement has the same element type. Returns `fn` itself if `new` is empty.
    """
    if not new:
        return fn
    rebuilder = Rebuilder(lambda b, op, args: None)
    rebuilder.map.update(new.items())
    params = tuple(dict.fromkeys(new.get(p, p) for p in fn.params))
    return Func(fn.name, params, rebuilder.region(fn.body), fn.span)


def with_shapes(fn: Func, shapes: Mapping[str, tuple[int, ...]]) -> Func:
    """Shape specialization: give the array parameters of these names constant shapes.

    Names that the Func lacks, arrays of static shape and arrays with 64-bit extents are skipped.
    The parameter gets the shape but no layout, so elements stay in row-major order. Alias analysis
    still treats it as an argument: it may overlap others unless it is `noalias`. Its attributes
    stay, except `like`. That is removed from arrays that get a shape, and from arrays like one of
    the names.

        with_shapes(fn, {"x": (640, 480)})       # %x: array<f32[??]> -> %x: array<f32[640,480]>
    """
    new: dict[Param, Param] = {}
    for p in fn.params:
        t, shape = p.type, shapes.get(p.name)
        if not isinstance(t, Array) or t.shape is not None:
            continue
        if shape is not None and not p.attributes.ext64:
            t = Array.of(t.elem, t.ndim, shape, None, t.space, t.stored)
        if t is not p.type or p.attributes.like in shapes:
            new[p] = Param(t, p.name, p.attributes._replace(like=""))
    return with_params(fn, new)


def rebuild(fn: Func, visit: Visit) -> Func:
    """Return `fn` rewritten by `visit`, or `fn` itself if nothing changed.

    `visit` returns the values that replace an op's results, or None to keep the op.
    """
    return Rebuilder(visit).run(fn)


def rebuild_chosen(
    fn: Func,
    kind: str,
    choose: Callable[[Op], Choice | None],
    build: Callable[[Rebuilder, Op, tuple[Value, ...], Choice], Sequence[Value]],
) -> Func:
    """Return `fn` with some ops of one kind replaced, or `fn` itself if none are.

    `choose` returns a truthy choice for an op to replace, and is called before any rewriting.
    `build` gets that choice, appends the replacement and returns its values.
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
    """Return `fn` with some `parallel` ops replaced, or `fn` itself if none are.

    `visit` is called for the `parallel` ops of the body. It returns None to keep the op; otherwise
    it has appended a replacement. Other ops are shared.
    """
    b = Builder()
    with b.region() as body:
        for op in fn.body.ops:
            b.span = op.span
            if op.kind != "parallel" or visit(b, op, op.args) is None:
                b.insert(op)
    return fn if fn.body.ops == body.ops else Func(fn.name, fn.params, body, fn.span)
