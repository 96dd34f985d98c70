"""Nesting limit: split deeply nested `if`s into consecutive ones (a chain of 500 `elif`s).

Drivers recurse over structured control flow, and some use a stack of fixed size: lavapipe of
Mesa 25 supports 81 nested constructs and crashes at 82. The passes recurse as well.

An `if` that nests deeper than DEEPEST_NESTING is cut at an inner op K half-way down, if only `if`s
lie between. The code before K stays. A flag records that K was reached, and K follows the `if`:

    r = if c { A } else { B; s = if d { C } else { K; D }; E }                becomes
    r0, at_e, at_k, b = if c { A } else { B; t, k = if d { C; no } else { yes }; t, yes, k, B's }
    s = if at_k { K; D } else { t }
    r = if at_e { E } else { r0 }

Values of B that K, D or E use become results of the `if`, zero if the path was not taken.
Constants and pointers are recreated; private variables are defined before the `if`. If D and E
only yield, as in chains, a single `if` follows. That `if` may be too deep and is then cut in the
same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TypeGuard

from vkchi.errors import KernelSyntaxError
from vkchi.ir.core import Func, Op, Param, Region, Result, Value, walk, walk_ops
from vkchi.ir.ops import TABLE, Effect
from vkchi.ir.rebuild import Rebuilder
from vkchi.target import tuning
from vkchi.tuples import NamedTuple
from vkchi.types import Ptr, Scalar, Tensor, u1


def limit_nesting(fn: Func, deepest: int = tuning.DEEPEST_NESTING) -> Func:
    """Cut `if`s so that at most `deepest` constructs nest, where possible. Returns `fn` itself if
    it is not nested deeper."""
    heights = find_heights(fn.body)
    if max(heights.values(), default=0) <= deepest:
        return fn
    return Func(fn.name, fn.params, NestingLimiter(heights, deepest).region(fn.body), fn.span)


def check_nesting(fn: Func) -> None:
    """Raise KernelSyntaxError, naming the line, if loops and branches nest too deeply."""
    heights, most = find_heights(fn.body), tuning.DRIVERS_NESTING
    if max(heights.values(), default=0) <= most:
        return
    op = max(heights, key=heights.__getitem__)
    while inner := [o for region in op.regions for o in region.ops if o.regions]:
        op = max(inner, key=heights.__getitem__)
    raise KernelSyntaxError(
        f"more than {most} loops and branches nest here, which cannot be made flat",
        op.span,
        help="give part of the work to another kernel, or merge nested loops with ti.ndrange()",
    )


def find_heights(body: Region) -> dict[Op, int]:
    """Return the height of each op with regions: the nested constructs, including itself."""
    found = [op for op in walk(body) if op.regions]
    heights: dict[Op, int] = {}
    for op in reversed(found):  # inner ops come later
        heights[op] = measure(op, heights)
    return heights


def measure(op: Op, heights: dict[Op, int]) -> int:
    inner = [heights[o] for region in op.regions for o in region.ops if o.regions]
    return 1 + max(inner, default=0)


class PathStep(NamedTuple):
    """One `if` on the path to the cut: the region taken, and the position of the next op in it."""

    op: Op
    side: int
    at: int

    @property
    def region(self) -> Region:
        return self.op.regions[self.side]

    @property
    def inner(self) -> Op:
        return self.region.ops[self.at]

    @property
    def before(self) -> list[Op]:
        return self.region.ops[: self.at]

    @property
    def after(self) -> list[Op]:
        return self.region.ops[self.at + 1 : -1]

    @property
    def is_tail(self) -> bool:
        return all(op.kind == "const" for op in self.after)


class StepGroup(NamedTuple):
    """Steps whose code behind the cut fits into one `if`: `first` is the innermost, `last` the
    outermost. Behind the cut, all of them but `first` only yield."""

    first: int
    last: int


class PendingIf(NamedTuple):
    """An `if` to emit. Its results also replace each tuple of results in `stands_for`."""

    op: Op
    stands_for: tuple[tuple[Value, ...], ...] = ()


class NestingLimiter(Rebuilder):
    """Rewrites a Func. `depth` is the number of open constructs."""

    def __init__(self, heights: dict[Op, int], deepest: int) -> None:
        super().__init__(self.visit_control)
        self.heights, self.deepest, self.depth = heights, deepest, -1
        self.outside: dict[Op, Value] = {}  # private variables defined elsewhere

    @contextmanager
    def inside(self, *params: Param) -> Iterator[Region]:
        self.depth += 1
        with super().inside(*params) as new:
            yield new
        self.depth -= 1

    def visit_control(self, b: object, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """Cut an `if` that is too deep. Replace the definition of a private variable that a cut
        moved before an `if`."""
        if op in self.outside:
            return self.fill_place(op, args)
        if op.kind != "if" or self.heights[op] <= self.room():
            return None
        self.write([PendingIf(op)])
        return [self.map.get(r, r) for r in op.results]

    def fill_place(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        place = self.outside[op]
        if args:
            self.b.emit("store", place, args[0])
        return [place]

    def make_place(self, op: Op) -> Op:
        if not op.args:
            return self.b.insert(Op(op.kind, (), op.attr, op.type, op.span, op.name))
        assert isinstance(op.type, Ptr) and isinstance(op.type.elem, Scalar | Tensor)
        return self.b.emit(op.kind, self.b.const(0, op.type.elem), name=op.name)

    def write(self, todo: list[PendingIf]) -> None:
        """Emit consecutive `if`s, cutting those that are too deep."""
        while todo:
            op, stands_for = todo.pop(0)
            steps = self.find_cut(op)
            if steps is not None:
                todo[:0] = NestingCut(self, op, steps).make(stands_for)
                continue
            new = self.keep(op, self.args(op))
            for results in (op.results, *stands_for):
                self.map.update(zip(results, new.results, strict=True))

    # --- finding the cut

    def find_cut(self, op: Op) -> list[PathStep] | None:
        """Return the path to the first op half-way down that is too deep; None if `op` is not too
        deep, or there is no path of `if`s."""
        room = self.room()
        return None if self.heights[op] <= room else next(self.ways(op, room, room // 2), None)

    def room(self) -> int:
        return max(self.deepest - self.depth, tuning.LEAST_NESTING)

    def ways(self, op: Op, room: int, length: int) -> Iterator[list[PathStep]]:
        """Yield the paths of `length` steps from an `if` to ops that are too deep, in order."""
        for side, region in enumerate(op.regions):
            for at, inner in enumerate(region.ops):
                if not inner.regions or self.heights[inner] < room:
                    continue
                step = PathStep(op, side, at)
                if length == 1:
                    yield [step]
                elif inner.kind == "if":
                    for rest in self.ways(inner, room - 1, length - 1):
                        yield [step, *rest]


class NestingCut:
    """Cuts one `if` at the end of a path through it. `groups` are in execution order."""

    def __init__(self, walk: NestingLimiter, op: Op, steps: list[PathStep]) -> None:
        self.walk, self.b, self.op, self.steps = walk, walk.b, op, steps
        self.groups = list(group_steps(steps))
        self.flags = {g.first: Param(u1, "reached") for g in self.groups}
        behind = [self.build_behind(g) for g in self.groups]
        self.behind = dict(zip(self.groups, behind, strict=True))
        self.used = self.find_used()
        # Additional results of each step's `if`: values from its region and those inside.
        self.exports = [
            [v for v, level in self.used.items() if level >= k and not is_made_again(v)]
            for k in range(len(steps))
        ]

    def make(self, stands_for: tuple[tuple[Value, ...], ...]) -> list[PendingIf]:
        """Emit the code before the cut; return the `if`s of the code behind it, in order."""
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
        made = [PendingIf(op, (self.steps[g.last].op.results,)) for g, op in self.behind.items()]
        made[-1] = PendingIf(made[-1].op, (self.op.results, *stands_for))
        return made

    # --- behind the cut

    def build_behind(self, g: StepGroup) -> Op:
        """Build the `if` of one group, in terms of the old values.

        If its code was not reached, it yields the earlier results of its outer step.
        """
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

    def trace(self, v: Value, g: StepGroup) -> Value:
        for outer, inner in pairwise(self.steps[g.last : g.first + 1]):
            if isinstance(v, Result) and v.op is outer.inner:
                v = inner.region.yielded[v.index]
        return v

    def find_used(self) -> dict[Value, int]:
        """Values from before the cut that the code behind uses, with the steps that define them."""
        levels: dict[Value, int] = {}
        for k, step in enumerate(self.steps):
            levels.update(dict.fromkeys([v for op in step.before for v in op.results], k))
            if k + 1 < len(self.steps):
                levels.update(dict.fromkeys(step.inner.results, k))
        levels |= {flag: k for k, flag in self.flags.items()}
        used: set[Value] = set()
        todo = [v for op in walk_ops(self.behind.values()) for v in op.args]
        while todo:
            v = todo.pop()
            if v in levels and v not in used:
                used.add(v)
                if is_made_again(v) and not is_place(v):
                    todo += v.args
        return {v: level for v, level in levels.items() if v in used}

    # --- before the cut

    def write_before(self, k: int) -> tuple[list[Value], list[Value]]:
        """Emit step k's `if` up to the cut; return its old results and its exported values."""
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
        self.walk.ops(region.ops[:-1])
        own = [self.walk.map.get(v, v) for v in region.yielded]
        return own + [self.zero(v) for v in self.exports[k]]

    def write_way(self, k: int) -> list[Value]:
        """Emit the region that contains the cut, up to the cut; return its yields."""
        walk, step = self.walk, self.steps[k]
        walk.ops(step.before)
        exported: dict[Value, Value] = {}
        if k + 1 < len(self.steps):
            own, inner = self.write_before(k + 1)
            walk.map.update(zip(step.inner.results, own, strict=True))
            exported = dict(zip(self.exports[k + 1], inner, strict=True))
        if k in self.flags:  # its yields are known only behind the cut
            given = [self.zero(v) for v in step.region.yielded]
            exported[self.flags[k]] = self.b.const(True, u1)
        else:
            given = [self.value_of(v, step) for v in step.region.yielded]
        return given + [exported.get(v) or walk.map.get(v, v) for v in self.exports[k]]

    def value_of(self, v: Value, step: PathStep) -> Value:
        """Value yielded by a step that only yields; constants are recreated."""
        if isinstance(v, Op) and v in step.after:
            return self.b.emit("const", attr=v.attr, type=v.type)
        return self.walk.map.get(v, v)

    def zero(self, v: Value) -> Value:
        assert isinstance(v.type, Scalar | Tensor)
        return self.b.const(0, v.type)


def group_steps(steps: Sequence[PathStep]) -> Iterator[StepGroup]:
    first = len(steps) - 1
    while first >= 0:
        last = first
        while last > 0 and steps[last - 1].is_tail:
            last -= 1
        yield StepGroup(first, last)
        first = last - 1


def is_place(v: Value) -> TypeGuard[Op]:
    return isinstance(v, Op) and TABLE[v.kind].effect is Effect.ALLOC


def is_made_again(v: Value) -> TypeGuard[Op]:
    """True if v is not exported from the `if`: constants, variables and pointers."""
    return isinstance(v, Op) and (v.kind == "const" or not isinstance(v.type, Scalar | Tensor))
