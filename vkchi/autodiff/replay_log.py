"""Record and replay of nondeterministic ops: random numbers, and results of atomics in parallel
loops.

    %v = random    record_draws    %v = random; store .replay.0[position, number], %v
                   replay_draws    %v = load .replay.0[position, number]

`number` is that of the parallel iteration. `position` is that of the enclosing serial iterations,
counted in the widest ranges of their loops. A tape runs the kernel made by `record_draws`, and
differentiates the one made by `replay_draws`. An atomic keeps its effect on memory; only its result
is replayed.

Random numbers in loops whose trip count the host cannot compute, such as a `while`, share a buffer
per parallel loop. There `position` is the number of earlier draws of the iteration, in a private
variable. A first run on copies finds the largest position (`most_of`), which is the number of rows.

Not recorded: results of atomics in such loops, random numbers if the host cannot compute the trip
count of the parallel loop, and float results of atomics.
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
from vkchi.ir.ops import LOOPS, axes_of
from vkchi.ir.rebuild import Rebuilder
from vkchi.tuples import NamedTuple
from vkchi.types import cell_of, i32

Loops = tuple[Op, ...]


class ReplayedOp(NamedTuple):
    """A nondeterministic op, the loops around it (outermost first), and the buffer of its results.

    With `is_counted` False, `loops` is at most the parallel loop: serial ones have no known trip
    count.
    """

    op: Op
    loops: Loops
    save: SaveBuffer
    is_counted: bool = True

    @property
    def home(self) -> Op | None:
        """The parallel loop around it, if any."""
        return split_parallel(self.loops)[0]


def find_draws(fn: Func, wide: Mapping[Op, Op]) -> tuple[ReplayedOp, ...]:
    """The ops that can be recorded.

    `wide` maps loops with host-computed trip counts to the loops with their widest ranges. Float
    results are excluded: values from memory may have derivatives, which would get lost.
    """
    ops = find_nondeterministic(fn)
    draws: list[ReplayedOp] = []
    shared: dict[Op | None, SaveBuffer] = {}
    count = 0
    for op, loops, is_counted in ops_in(fn.body, (), wide):
        if op not in ops or is_smooth(op) or not (is_counted or op.kind == "random"):
            continue
        parallel, serial = split_parallel(loops)
        save = None if is_counted else shared.get(parallel)
        if save is None:
            param = Param(saved_type(op.type), f"{REPLAY}{count}")
            save = SaveBuffer(param, tuple([wide[loop] for loop in serial]), "", parallel, "")
            count += 1
        if not is_counted:
            shared[parallel] = save
        draws.append(ReplayedOp(op, loops, save, is_counted))
    return tuple(draws)


def split_parallel(loops: Loops) -> tuple[Op | None, Loops]:
    return (loops[0], loops[1:]) if loops and loops[0].kind == "parallel" else (None, loops)


def ops_in(
    region: Region, loops: Loops, counted: Container[Op], *, is_counted: bool = True
) -> Iterator[tuple[Op, Loops, bool]]:
    """Ops in a region with their loops, outermost first, and False in serial loops that are not
    `counted`.

    In these loops, at most an outermost parallel loop is given. They are not entered if another
    loop around them is parallel, nor are parallel loops that are not counted.
    """
    for op in region.ops:
        yield op, loops, is_counted
        around, is_known = loops, is_counted
        if op in counted and is_counted:
            around = (*loops, op)
        elif op.kind == "parallel":
            continue
        elif op.kind in LOOPS:
            around, is_known = loops[:1] if is_outermost_parallel(loops) else (), False
            if not around and any(loop.kind == "parallel" for loop in loops):
                continue
        for inner in op.regions:
            yield from ops_in(inner, around, counted, is_counted=is_known)


def is_outermost_parallel(loops: Loops) -> bool:
    return split_parallel(loops)[0] is not None


def most_of(param: Param) -> Param:
    """The cell with the number of rows that a buffer of uncounted draws needs."""
    return Param(cell_of(i32), f"{param.name}.most")


def record_draws(fn: Func, draws: Sequence[ReplayedOp]) -> Func:
    def record(
        b: Builder, place: Callable[[], Value], new: Value, is_inside: Value | None
    ) -> Value:
        if is_inside is None:
            b.emit("store", place(), new)
            return new
        with b.when(is_inside):
            b.emit("store", place(), new)
        return new

    return ReplayBuilder(fn, draws, record, keeps_most=True).build()


def replay_draws(fn: Func, draws: Sequence[ReplayedOp]) -> Func:
    return ReplayBuilder(fn, draws, lambda b, place, new, _: b.emit("load", place())).build()


Use = Callable[[Builder, Callable[[], Value], Value, "Value | None"], Value]


class ReplayBuilder(Rebuilder):
    """Replaces the result of each draw by `use(builder, location, result, is_inside)`.

    `is_inside` is None, or True if the buffer has a row for the draw. With `keeps_most`, the number
    of uncounted draws is stored (`most_of`).
    """

    def __init__(
        self, fn: Func, draws: Sequence[ReplayedOp], use: Use, *, keeps_most: bool = False
    ) -> None:
        super().__init__(self._replace)
        self._fn, self._use, self._nest = fn, use, nest_of(fn)
        self._draws = {draw.op: draw for draw in draws}
        self._open = {
            fn.body if draw.home is None else draw.home.regions[0]: draw.save.param
            for draw in draws if not draw.is_counted
        }  # fmt: skip
        self._most = {p: most_of(p) for p in self._open.values()} if keeps_most else {}
        self._counters: dict[Param, Value] = {}

    def build(self) -> Func:
        fn = self._fn
        if not self._draws:
            return fn
        buffers = dict.fromkeys(draw.save.param for draw in self._draws.values())
        made = self.run(fn)
        return Func(fn.name, (*fn.params, *buffers, *self._most.values()), made.body, fn.span)

    def region(self, region: Region) -> Region:
        param = self._open.get(region)
        if param is None:
            return super().region(region)
        b = self.b
        with self.inside(*region.params) as new:
            self._counters[param] = counter = b.emit("local", b.const(0, i32), name="draws")
            self.ops(region.ops[:-1])
            if param in self._most:
                b.emit("atomic_max", b.emit("elem", self._most[param]), b.emit("load", counter))
            self.ops(region.ops[-1:])
        return new

    def _replace(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        draw = self._draws.get(op)
        if draw is None:
            return None
        new = b.insert(Op(op.kind, args, op.attr, op.type, op.span, op.name))
        parallel, serial = split_parallel(draw.loops)
        param, nest = draw.save.param, self._nest
        is_inside = None
        if draw.is_counted:
            position = count_rounds(b, serial, nest)
        else:
            counter = self._counters[param]
            position = b.emit("load", counter)
            b.emit("store", counter, b.emit("add", position, b.const(1, i32)))
            is_inside = b.emit("lt", position, b.emit("shape", param, attr=0))
        number = count_rounds(b, () if parallel is None else (parallel,), nest)
        place = lambda: b.emit("elem", param, position, number)  # noqa: E731
        return [self._use(b, place, new, is_inside)]


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
