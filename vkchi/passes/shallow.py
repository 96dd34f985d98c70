"""Keeps control flow from nesting deeply: a chain of 500 `elif`s becomes segments in a row.

Why: drivers recurse over structured control flow and some keep a stack of fixed size (lavapipe of
Mesa 25: 81 constructs, a crash at 82); our own passes recurse as well.

An `if` whose regions reach deeper than DEEPEST is cut at an inner op K half-way down, if only `if`s
lie between. What comes before K stays; where K was reached, a flag says so, and K follows the `if`:

    r = if c { A } else { B; s = if d { C } else { K; D }; E }                becomes
    r0, at_e, at_k, b = if c { A } else { B; t, k = if d { C; no } else { yes }; t, yes, k, B's }
    s = if at_k { K; D } else { t }
    r = if at_e { E } else { r0 }

Values of B, and so on, that K, D or E use travel as results, zeros where the path was not taken;
constants and pointers are made again, private places are made before the `if`. Where D and E only
yield, which is how chains are, one `if` follows. It may be too deep itself, and is cut likewise.

Owns: this shape. Must not know: ops but by their regions and types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TypeGuard

from vkchi.errors import KernelSyntaxError
from vkchi.ir.core import Func, Op, Param, Region, Result, Value, walk
from vkchi.ir.ops import TABLE, Effect
from vkchi.ir.rebuild import Rebuilder
from vkchi.tuples import NamedTuple
from vkchi.types import Ptr, Scalar, Tensor, u1

DEEPEST = 48  # constructs around an op; gradients put some around what they are given
BEARABLE = 72  # constructs around an op that drivers bear; what is over is refused
LEAST = 4  # constructs that may nest even where loops around are as many already


def keep_shallow(fn: Func, deepest: int = DEEPEST) -> Func:
    """The Func with its `if`s nested no deeper than `deepest` where that can be; `fn` itself if
    none are."""
    heights = find_heights(fn.body)
    if max(heights.values(), default=0) <= deepest:
        return fn
    return Func(fn.name, fn.params, Flattener(heights, deepest).region(fn.body), fn.span)


def refuse_deep(fn: Func) -> None:
    """Raises KernelSyntaxError, naming the line, where loops and branches nest too deeply."""
    heights = find_heights(fn.body)
    if max(heights.values(), default=0) <= BEARABLE:
        return
    op = max(heights, key=heights.__getitem__)
    while inner := [o for region in op.regions for o in region.ops if o.regions]:
        op = max(inner, key=heights.__getitem__)
    raise KernelSyntaxError(
        f"more than {BEARABLE} loops and branches nest here, which cannot be made flat",
        op.span,
        help="give part of the work to another kernel, or merge nested loops with ti.ndrange()",
    )


def find_heights(body: Region) -> dict[Op, int]:
    """How many constructs an op and those inside it nest, of all ops with regions."""
    found = [op for op in walk(body) if op.regions]
    heights: dict[Op, int] = {}
    for op in reversed(found):  # what is inside comes later
        heights[op] = measure(op, heights)
    return heights


def measure(op: Op, heights: dict[Op, int]) -> int:
    """The height of an op whose inner ops' are known."""
    inner = [heights[o] for region in op.regions for o in region.ops if o.regions]
    return 1 + max(inner, default=0)


class Step(NamedTuple):
    """One `if` on the way to the cut: which region, and the place in it of the next op."""

    op: Op
    side: int
    at: int

    @property
    def region(self) -> Region:
        return self.op.regions[self.side]

    @property
    def inner(self) -> Op:
        """The next op of the way."""
        return self.region.ops[self.at]

    @property
    def before(self) -> list[Op]:
        return self.region.ops[: self.at]

    @property
    def after(self) -> list[Op]:
        """What follows, without the yield."""
        return self.region.ops[self.at + 1 : -1]

    @property
    def is_tail(self) -> bool:
        """Whether what follows makes nothing but constants."""
        return all(op.kind == "const" for op in self.after)


class Group(NamedTuple):
    """Steps `first` (the inner one) to `last` (the outer one), all of whose code behind the cut
    can stand in one `if`: but for `first`, they only yield."""

    first: int
    last: int


class Pending(NamedTuple):
    """An `if` to be written, and results of others that its own stand for."""

    op: Op
    stands_for: tuple[tuple[Value, ...], ...] = ()


class Flattener(Rebuilder):
    """Rewrites a Func. `depth` is how many constructs are open."""

    def __init__(self, heights: dict[Op, int], deepest: int) -> None:
        super().__init__(self.visit_control)
        self.heights, self.deepest, self.depth = heights, deepest, -1
        self.outside: dict[Op, Value] = {}  # private places that are made elsewhere

    @contextmanager
    def inside(self, *params: Param) -> Iterator[Region]:
        """Open a new region, one deeper."""
        self.depth += 1
        with super().inside(*params) as new:
            yield new
        self.depth -= 1

    def visit_control(self, b: object, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """Cut what is too deep."""
        if op in self.outside:
            return self.fill_place(op, args)
        if op.kind != "if" or self.heights[op] <= self.room():
            return None
        self.write([Pending(op)])
        return [self.map.get(r, r) for r in op.results]

    def fill_place(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """A private place that stands before the `if`: only its first value is put here."""
        place = self.outside[op]
        if args:
            self.b.emit("store", place, args[0])
        return [place]

    def make_place(self, op: Op) -> Op:
        """A private place like this one, with zero in it."""
        if not op.args:
            return self.b.insert(Op(op.kind, (), op.attr, op.type, op.span, op.name))
        assert isinstance(op.type, Ptr) and isinstance(op.type.elem, Scalar | Tensor)
        return self.b.emit(op.kind, self.b.const(0, op.type.elem), name=op.name)

    def write(self, todo: list[Pending]) -> None:
        """Write `if`s one after the other, cutting those that are too deep."""
        while todo:
            op, stands_for = todo.pop(0)
            steps = self.find_cut(op)
            if steps is not None:
                todo[:0] = Cut(self, op, steps).make(stands_for)
                continue
            new = self.keep(op, self.args(op))
            for results in (op.results, *stands_for):
                self.map.update(zip(results, new.results, strict=True))

    # --- where to cut

    def find_cut(self, op: Op) -> list[Step] | None:
        """The way to the first op that is half-way down and reaches too deep; None if there is
        none."""
        room = self.room()
        return None if self.heights[op] <= room else next(self.ways(op, room, room // 2), None)

    def room(self) -> int:
        """How many constructs may nest here."""
        return max(self.deepest - self.depth, LEAST)

    def ways(self, op: Op, room: int, length: int) -> Iterator[list[Step]]:
        """The ways of so many steps from an `if` to ops that reach too deep, in order."""
        for side, region in enumerate(op.regions):
            for at, inner in enumerate(region.ops):
                if not inner.regions or self.heights[inner] < room:
                    continue
                step = Step(op, side, at)
                if length == 1:
                    yield [step]
                elif inner.kind == "if":
                    for rest in self.ways(inner, room - 1, length - 1):
                        yield [step, *rest]


class Cut:
    """Cuts one `if` at the end of a way through it. `groups` stand in the order of what they do."""

    def __init__(self, walk: Flattener, op: Op, steps: list[Step]) -> None:
        self.walk, self.b, self.op, self.steps = walk, walk.b, op, steps
        self.groups = list(group_steps(steps))
        self.flags = {g.first: Param(u1, "reached") for g in self.groups}
        behind = [self.build_behind(g) for g in self.groups]
        self.behind = dict(zip(self.groups, behind, strict=True))
        self.used = self.find_used()
        # What each step's region and those inside it give besides what they gave before.
        self.exports = [
            [v for v, level in self.used.items() if level >= k and not is_made_again(v)]
            for k in range(len(steps))
        ]

    def make(self, stands_for: tuple[tuple[Value, ...], ...]) -> list[Pending]:
        """Write what comes before the cut; the `if`s of what comes behind, in order."""
        walk = self.walk
        for v in self.used:
            if is_place(v):
                walk.outside[v] = walk.make_place(v)
        own, exported = self.write_before(0)
        walk.map.update(zip(self.op.results, own, strict=True))
        walk.map.update(zip(self.exports[0], exported, strict=True))
        for v in self.used:
            if is_made_again(v) and not is_place(v):
                walk.b.insert(walk.copy(v, walk.args(v), ()))
        made = [Pending(op, (self.steps[g.last].op.results,)) for g, op in self.behind.items()]
        made[-1] = Pending(made[-1].op, (self.op.results, *stands_for))
        return made

    # --- behind the cut

    def build_behind(self, g: Group) -> Op:
        """The `if` of one group, in terms of the old values: where its code was not reached, its
        outer step gives what it gave before."""
        owner, span = self.steps[g.last].op, self.op.span
        is_first = g.first == len(self.steps) - 1
        ops = [self.steps[-1].inner] if is_first else []
        for step in self.steps[g.last : g.first + 1]:
            ops += step.after
        given = tuple([self.trace(v, g) for v in self.steps[g.last].region.yielded])
        then = Region((), [*ops, Op("yield", given, None, None, span)])
        orelse = Region((), [Op("yield", owner.results, None, None, span)])
        types = tuple([r.type for r in owner.results])
        op = Op("if", (self.flags[g.first],), None, None, span, "", (then, orelse), types)
        for new, old in zip(op.results, owner.results, strict=True):
            new.name = old.name
        self.walk.heights[op] = measure(op, self.walk.heights)
        return op

    def trace(self, v: Value, g: Group) -> Value:
        """What an outer step of a group yields, as its inner step's region knows it."""
        for outer, inner in pairwise(self.steps[g.last : g.first + 1]):
            if isinstance(v, Result) and v.op is outer.inner:
                v = inner.region.yielded[v.index]
        return v

    def find_used(self) -> dict[Value, int]:
        """The values from before the cut that what comes behind takes, in order, and in which
        step's region they stand."""
        levels: dict[Value, int] = {}
        for k, step in enumerate(self.steps):
            levels.update(dict.fromkeys([v for op in step.before for v in op.results], k))
            if k + 1 < len(self.steps):
                levels.update(dict.fromkeys(step.inner.results, k))
        levels |= {flag: k for k, flag in self.flags.items()}
        used: set[Value] = set()
        todo = [v for op in walk(Region((), list(self.behind.values()))) for v in op.args]
        while todo:
            v = todo.pop()
            if v in levels and v not in used:
                used.add(v)
                if is_made_again(v) and not is_place(v):
                    todo += v.args
        return {v: level for v, level in levels.items() if v in used}

    # --- before the cut

    def write_before(self, k: int) -> tuple[list[Value], list[Value]]:
        """Write step k's `if` up to the cut; its old results, and what is exported."""
        step = self.steps[k]
        regions = []
        for side, region in enumerate(step.op.regions):
            with self.walk.inside() as new:
                given = self.write_way(k) if side == step.side else self.write_other(k, region)
                self.b.emit("yield", *given)
            regions.append(new)
        self.b.span = step.op.span
        (cond,) = self.walk.args(step.op)
        results = self.b.if_(cond, *regions).results
        for new_result, old in zip(results, [*step.op.results, *self.exports[k]], strict=True):
            new_result.name = old.name
        size = len(step.op.results)
        return list(results[:size]), list(results[size:])

    def write_other(self, k: int, region: Region) -> list[Value]:
        """The region that does not lead to the cut; what it yields."""
        self.walk.ops(region.ops[:-1])
        own = [self.walk.map.get(v, v) for v in region.yielded]
        return own + [self.zero(v) for v in self.exports[k]]

    def write_way(self, k: int) -> list[Value]:
        """The region that leads to the cut, up to there; what it yields."""
        walk, step = self.walk, self.steps[k]
        walk.ops(step.before)
        exported: dict[Value, Value] = {}
        if k + 1 < len(self.steps):
            own, inner = self.write_before(k + 1)
            walk.map.update(zip(step.inner.results, own, strict=True))
            exported = dict(zip(self.exports[k + 1], inner, strict=True))
        if k in self.flags:  # what it yields is known behind the cut only
            given = [self.zero(v) for v in step.region.yielded]
            exported[self.flags[k]] = self.b.const(True, u1)
        else:
            given = [self.value_of(v, step) for v in step.region.yielded]
        return given + [exported.get(v) or walk.map.get(v, v) for v in self.exports[k]]

    def value_of(self, v: Value, step: Step) -> Value:
        """What a step yields that only yields, made here if it is a constant made there."""
        if isinstance(v, Op) and v in step.after:
            return self.b.emit("const", attr=v.attr, type=v.type)
        return self.walk.map.get(v, v)

    def zero(self, v: Value) -> Value:
        """What stands for a value where it is not known."""
        assert isinstance(v.type, Scalar | Tensor)
        return self.b.const(0, v.type)


def group_steps(steps: Sequence[Step]) -> Iterator[Group]:
    """The groups, inner ones first."""
    first = len(steps) - 1
    while first >= 0:
        last = first
        while last > 0 and steps[last - 1].is_tail:
            last -= 1
        yield Group(first, last)
        first = last - 1


def is_place(v: Value) -> TypeGuard[Op]:
    """Whether v is a private place (or memory of a workgroup)."""
    return isinstance(v, Op) and TABLE[v.kind].effect is Effect.ALLOC


def is_made_again(v: Value) -> TypeGuard[Op]:
    """Whether v does not travel out of an `if`: constants need not, places and pointers cannot."""
    return isinstance(v, Op) and (v.kind == "const" or not isinstance(v.type, Scalar | Tensor))
