"""Rewriting of a Func by a visitor. Unchanged ops and regions are shared with the old Func.

Example:

    def visit(b, op, args):            # op of the old Func, its args already mapped
        if op.kind == "neg":
            return [b.emit("sub", zero, args[0])]      # values that replace op.results
        return None                                    # keep
    new = rebuild(fn, visit)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Value, walk
from vkchi.ir.ops import control_of, is_loop
from vkchi.types import Array

Choice = TypeVar("Choice")  # how to replace an op; always truthy
Visit = Callable[[Builder, Op, tuple[Value, ...]], "Sequence[Value] | None"]


class Rebuilder:
    """Rewrites regions by `visit`, which is called for ops of `kinds` (None: for all). `map` maps
    old values to new ones. By default all ops are kept."""

    def __init__(
        self, visit: Visit = lambda b, op, args: None, kinds: Collection[str] | None = None
    ) -> None:
        self.visit, self.kinds = visit, kinds
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
        is_unmapped, get, kinds = mapped.keys().isdisjoint, mapped.get, self.kinds
        for op in ops:
            args, out = op.args, None
            if mapped and not is_unmapped(args):
                args = tuple([get(v, v) for v in args])
            if kinds is None or op.kind in kinds:
                b.span = op.span
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
    rebuilder = Rebuilder()
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


def rebuild(fn: Func, visit: Visit, kinds: Collection[str] | None = None) -> Func:
    """Return `fn` rewritten by `visit`, or `fn` itself if nothing changed.

    `visit` returns the values that replace an op's results, or None to keep the op. It is called
    for ops of `kinds`, by default for all.
    """
    return Rebuilder(visit, kinds).run(fn)


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

    walker = Rebuilder(visit, (kind,))
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


# --- copies --------------------------------------------------------------------------------------
#
# Deep copy of ops: regions and their parameters are copied too.
#
# `Cloner` is the base of differentiation and of passes that duplicate code. `rebuild` is for passes
# that keep most of a Func: it shares unchanged ops.
#
# A subclass overrides `visit` to replace an op. It adds carried values to control ops by four
# hooks:
# - `carry`: initial values of a loop's additional carried values;
# - `begin`: called at the start of a region, with the parameters of the additional values;
# - `end`: additional values that a region yields (not called for a condition, which yields one u1);
# - `finish`: called after the op, with the additional results.
#
#     class Doubled(Cloner):                    # carries every value twice
#         def carry(self, op): return [self.get(v) for v in initial_values(op)]
#         def end(self, op, region, more): return [self.get(v) for v in region.yielded]
#
#     Cloner(b, {index: b.const(0, i32)}).body(loop.regions[0])      # the first iteration
#     b.parallel(bounds, Cloner(b).region(loop, loop.regions[0]))    # the loop with other bounds


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
