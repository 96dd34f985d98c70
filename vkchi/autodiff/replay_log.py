"""Record and replay of nondeterministic ops: random numbers, and results of atomics in parallel
loops.

    %v = random    record_draws    %v = random; store .replay.0[position, number], %v
                   replay_draws    %v = load .replay.0[position, number]

`number` is that of the parallel iteration. `position` is that of the enclosing serial iterations,
counted in the widest ranges of their loops. A tape runs the kernel made by `record_draws`, and
differentiates the one made by `replay_draws`. An atomic keeps its effect on memory; only its result
is replayed.

Not recorded: ops in loops whose trip count the host cannot compute, and float results of atomics.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from vkchi.analysis.values.iterations import Nest, emit_widest_bounds, nest_of
from vkchi.autodiff.buffers import SaveBuffer
from vkchi.autodiff.emit import as_i32, trip_count
from vkchi.autodiff.gradient_checks import find_nondeterministic
from vkchi.autodiff.rules import is_smooth
from vkchi.autodiff.sweep import saved_type
from vkchi.ir.builder import Builder
from vkchi.ir.core import REPLAY, Func, Op, Param, Region, Value
from vkchi.ir.ops import axes_of
from vkchi.ir.rebuild import rebuild
from vkchi.tuples import NamedTuple
from vkchi.types import i32

Loops = tuple[Op, ...]


class ReplayedOp(NamedTuple):
    """A nondeterministic op, the loops around it (outermost first), and the buffer of its
    results."""

    op: Op
    loops: Loops
    save: SaveBuffer


def find_draws(fn: Func, wide: Mapping[Op, Op]) -> tuple[ReplayedOp, ...]:
    """The ops that can be recorded.

    `wide` maps loops with host-computed trip counts to the loops with their widest ranges. Float
    results are excluded: values from memory may have derivatives, which would get lost.
    """
    ops = find_nondeterministic(fn)
    draws: list[ReplayedOp] = []
    for op, loops in ops_in(fn.body, (), wide):
        if op in ops and not is_smooth(op):
            parallel, serial = split_parallel(loops)
            param = Param(saved_type(op.type), f"{REPLAY}{len(draws)}")
            save = SaveBuffer(param, tuple([wide[loop] for loop in serial]), "", parallel, "")
            draws.append(ReplayedOp(op, loops, save))
    return tuple(draws)


def split_parallel(loops: Loops) -> tuple[Op | None, Loops]:
    return (loops[0], loops[1:]) if loops and loops[0].kind == "parallel" else (None, loops)


def ops_in(region: Region, loops: Loops, counted: Container[Op]) -> Iterator[tuple[Op, Loops]]:
    """Ops in a region with their loops, outermost first; only `if`s and `counted` loops are
    entered."""
    for op in region.ops:
        yield op, loops
        if op.kind == "if" or op in counted:
            for inner in op.regions:
                yield from ops_in(inner, loops if op.kind == "if" else (*loops, op), counted)


def record_draws(fn: Func, draws: Sequence[ReplayedOp]) -> Func:
    def record(b: Builder, place: Value, new: Value) -> Value:
        b.emit("store", place, new)
        return new

    return with_buffers(fn, draws, record)


def replay_draws(fn: Func, draws: Sequence[ReplayedOp]) -> Func:
    return with_buffers(fn, draws, lambda b, place, new: b.emit("load", place))


def with_buffers(
    fn: Func, draws: Sequence[ReplayedOp], use: Callable[[Builder, Value, Value], Value]
) -> Func:
    """Replace the result of each draw by `use(builder, buffer location, new result)`."""
    if not draws:
        return fn
    found, nest = {draw.op: draw for draw in draws}, nest_of(fn)

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        draw = found.get(op)
        if draw is None:
            return None
        new = b.insert(Op(op.kind, args, op.attr, op.type, op.span, op.name))
        parallel, serial = split_parallel(draw.loops)
        around = (parallel,) if parallel is not None else ()
        numbers = count_rounds(b, serial, nest), count_rounds(b, around, nest)
        return [use(b, b.emit("elem", draw.save.param, *numbers), new)]

    made = rebuild(fn, visit)
    return Func(fn.name, (*fn.params, *(d.save.param for d in draws)), made.body, fn.span)


def count_rounds(b: Builder, loops: Loops, nest: Nest) -> Value:
    """Linear number of the current iteration in nested loops; 0 without loops."""
    total: Value = b.const(0, i32)
    for loop in loops:
        bounds = emit_widest_bounds(b, loop, nest)
        assert bounds is not None
        for axis, begin, end in zip(axes_of(loop), bounds[::2], bounds[1::2], strict=True):
            trips = as_i32(b, trip_count(b, begin, end))
            step = as_i32(b, b.emit("sub", axis.param, begin))
            total = b.emit("add", b.emit("mul", total, trips), step)
    return total
