"""Loop transformations around reverse mode: loop rotation before it, strip-mining after it.

Loop rotation (`rotate_loops`) moves the condition of a `while` into its body if it writes memory,
because reverse mode only reverses loop bodies:

    while (x) {cond} {body}    becomes    go = cond(x); while (x, go) {go} {body; go = cond}

Strip-mining (`strip_mine`) saves memory. It makes fewer invocations, each of which runs several
iterations, and saves their values in the same column of the buffers:

    parallel begin, end { (i) .. save[p, i - begin] .. }    becomes
    parallel 0, W { (w) for k in 0..n { .. save[p, w] .. } }    with i = begin + w + k * W

W is the number of columns of the buffers, known at launch.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value, walk
from vkchi.ir.iteration_space import iteration_count, space_of
from vkchi.ir.ops import WRITES
from vkchi.ir.rebuild import Cloner, inline, rebuild
from vkchi.types import i32, u32


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


# --- strip-mining --------------------------------------------------------------------------------


def strip_mine(fn: Func, saves: frozenset[str]) -> Func | None:
    """The Func with as many invocations as the named buffers have columns.

    Buffers of one loop must have equal numbers of columns. None if no parallel loop saves anything.
    """
    loops = {op: found for op in fn.body.ops
             if op.kind == "parallel" and (found := buffers_in(op, saves))}  # fmt: skip
    if not loops:
        return None

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op not in loops:
            return None
        emit_strips(b, op, args, loops[op])
        return ()

    return rebuild(fn, visit)


def buffers_in(op: Op, saves: frozenset[str]) -> list[Param]:
    found = (x.args[0] for x in walk(op.regions[0]) if x.kind == "elem")
    return [p for p in dict.fromkeys(found) if isinstance(p, Param) and p.name in saves]


def emit_strips(b: Builder, op: Op, args: tuple[Value, ...], buffers: Sequence[Param]) -> None:
    zero, space = b.const(0, i32), space_of(b, args)
    count = b.emit("bitcast", iteration_count(b, space), type=u32)
    width = b.emit("shape", buffers[0], attr=1)
    columns = b.emit("bitcast", width, type=u32)
    w, k = Param(i32, "w"), Param(i32, "k")

    def visit(b: Builder, inner: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if inner.kind != "elem" or args[0] not in buffers:
            return None
        return [b.emit("elem", args[0], args[1], w)]

    with b.region(w) as outer:
        whole, rest = b.emit("floordiv", count, columns), b.emit("mod", count, columns)
        more = b.emit("lt", b.emit("bitcast", w, type=u32), rest)
        trips = b.emit("add", whole, b.emit("cast", more, type=u32))
        with b.region(k) as body:
            number = b.emit("add", w, b.emit("mul", k, width))
            inline(b, op.regions[0], space.indices(b, space.split(b, number)), visit)
            b.emit("yield")
        b.for_(zero, b.emit("bitcast", trips, type=i32), (), body)
        b.emit("yield")
    b.parallel((zero, width), outer)
