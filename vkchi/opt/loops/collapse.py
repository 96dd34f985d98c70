"""Loop collapsing: serial loops of a nest, whose iterations are independent, become parallel axes.

    parallel 0, n {(i) for k in 0..m { for j in 0..p { atomic_add c[i, j], a[i, k] * b[k, j] }}}
becomes
    parallel 0, n, 0, p {(i, j) for k in 0..m { atomic_add c[i, j], a[i, k] * b[k, j] }}

Adjacent invocations can then access adjacent elements, and are more numerous. Elements that are
invariant in the loops that stay serial may live in registers (`reduce`, `promote`), and `jam` finds
tiles of two axes.

The nest is a `parallel` whose body ends in a `for`, whose body may end in another one, and so on.
Before each `for` there may be pure ops and loads of arrays that the nest does not write; they run
once per iteration afterwards. The loops carry no values, and have constant bounds.

Legality: a loop may become an axis if no two iterations of the new `parallel` access one element
that one of them writes (`legality.are_independent`). Reductions count as writes, so the sums of an
element keep their order.

Profitable if invocations are few, if more accesses are contiguous along a new axis than along the
last one, or if a written element becomes invariant in a serial loop.

    >>> collapse_nests(fn, caps)
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.dataflow import Flow
from vkchi.analysis.memory.alias import accesses_by_base, bases_may_alias
from vkchi.analysis.parallel_loops import is_private, may_interleave
from vkchi.analysis.values.host_numbers import list_length
from vkchi.analysis.values.polynomials import AffinePolynomials
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Value, base_memory, walk
from vkchi.ir.ops import ACCESSES, TABLE, WRITES, Effect, axes_of, constant_trip_count
from vkchi.ir.rebuild import Cloner, rebuild_loops
from vkchi.opt.cost_model import least_threads
from vkchi.opt.loops.legality import are_independent
from vkchi.opt.memory.walks import stride_along
from vkchi.target import tuning
from vkchi.target.caps import Caps
from vkchi.target.remarks import Log, Refusal, Verdict, record_refusal
from vkchi.types import i32, scalar_of

MOST = 1 << 30  # iterations of the new loop, which the host must count as an i32
MOST_AXES = 3  # of a grid
USEFUL = Refusal("invocations are enough, and their accesses would not be better")


def collapse_nests(fn: Func, caps: Caps, log: Log | None = None) -> Func:
    """Turn serial loops of the nests in a Func into parallel axes, where legal and profitable."""

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        loops = chain_of(op)
        if not loops or not may_interleave(op):
            return None
        chosen = choose_loops(op, loops, caps)
        record_refusal(log, "loop collapsing", loops[0].span, chosen, fn.name)
        if not isinstance(chosen, list):
            return None
        build(b, op, args, chosen)
        return ()

    return rebuild_loops(fn, visit)


# --- when ----------------------------------------------------------------------------------------


def chain_of(op: Op) -> list[Op]:
    """Return the serial loops of the nest, outermost first, if the bounds of the `parallel` and of
    at least one of them are constant i32s; else an empty list."""
    if any(scalar_of(v.type) is not i32 for v in op.args) or list_length(op.args[1]) is not None:
        return []
    if constant_trip_count(op) is None:
        return []
    loops: list[Op] = []
    body = op.regions[0]
    while len(body.ops) > 1 and (inner := body.ops[-2]).kind == "for" and not inner.results:
        if not all(may_repeat(x) for x in body.ops[:-2]) or constant_trip_count(inner) is None:
            break
        loops.append(inner)
        body = inner.regions[0]
    before = [x for loop in loops for x in around(op, loop).ops[:-2] if x.kind != "const"]
    return loops if len(before) <= tuning.COLLAPSE_REPEATED else []


def around(op: Op, loop: Op) -> Region:
    """Return the region of a nest that contains a loop of its chain."""
    region = op.regions[0]
    while region.ops[-2] is not loop:
        region = region.ops[-2].regions[0]
    return region


def may_repeat(op: Op) -> bool:
    return TABLE[op.kind].effect is Effect.PURE or (op.kind == "load" and not is_private(op))


def choose_loops(op: Op, loops: Sequence[Op], caps: Caps) -> list[Op] | Verdict:
    """Return the loops that become axes: as many as fit in a grid, outer ones first."""
    long = [x for x in loops if is_long(x)]
    if not long or repeats_written(op, loops):
        return False
    verdicts = {x: are_independent(collapsed(op, [x])) for x in long}
    legal = [x for x in long if verdicts[x]]
    if not legal:
        return verdicts[long[0]]
    room = MOST_AXES - len(op.args) // 2
    chosen: list[Op] = []
    count = constant_trip_count(op) or 0
    for x in legal:
        if len(chosen) < room and count * (constant_trip_count(x) or 0) <= MOST:
            chosen.append(x)
            count *= constant_trip_count(x) or 0
    return (chosen and is_worth_it(op, loops, chosen, caps) and chosen) or USEFUL


def is_long(loop: Op) -> bool:
    """True if a loop has COLLAPSE_TRIPS iterations or more, and an i32 index."""
    is_usual = axes_of(loop)[0].param.type is i32
    return is_usual and (constant_trip_count(loop) or 0) >= tuning.COLLAPSE_TRIPS


def repeats_written(op: Op, loops: Sequence[Op]) -> bool:
    """True if a load outside of the innermost loop may read an array that the nest writes."""
    found = accesses_by_base(walk(op.regions[0]))
    written = [base for base, same in found.items() if any(x.kind in WRITES for x in same)]
    loads = [x for loop in loops for x in around(op, loop).ops if x.kind == "load"]
    return any(bases_may_alias(base_memory(x.args[0]), base) for x in loads for base in written)


def is_worth_it(op: Op, loops: Sequence[Op], chosen: Sequence[Op], caps: Caps) -> bool:
    if (constant_trip_count(op) or 0) < least_threads(caps):
        return True
    body, sums = op.regions[0], AffinePolynomials()
    accesses = [x for x in walk(body) if x.kind in ACCESSES and not is_private(x)]

    def contiguous(index: Param) -> int:
        return sum(stride_along(x, index, sums) == 1 for x in accesses)

    last = contiguous(axes_of(op)[-1].param)
    indices = [axes_of(x)[0].param for x in chosen]
    if any(contiguous(index) > last for index in indices):
        return True
    varying = {x: Flow(body, [axes_of(x)[0].param]).found for x in loops}
    serial = [x for x in loops if x not in chosen]
    return any(
        x.args[0] in varying[inner] and x.args[0] not in varying[outer]
        for x in accesses
        if x.kind in WRITES
        for outer in serial
        for inner in chosen
        if loops.index(outer) < loops.index(inner)
    )


# --- form ----------------------------------------------------------------------------------------


def collapsed(op: Op, chosen: Sequence[Op]) -> Op:
    """Return the `parallel` in which loops of its chain are axes."""
    b = Builder()
    with b.region():
        return build(b, op, op.args, chosen)


def build(b: Builder, op: Op, args: Sequence[Value], chosen: Sequence[Op]) -> Op:
    body = op.regions[0]
    params = [Param(p.type, p.name) for p in body.params]
    axes = {x: Param(i32, axes_of(x)[0].param.name) for x in chosen}
    bounds = list(args)
    for x in chosen:
        ends = axes_of(x)[0].ends
        assert ends is not None
        bounds += [b.const(n, i32) for n in ends]
    with b.region(*params, *axes.values()) as new:
        NestCopier(b, dict(zip(body.params, params, strict=True)), axes).body(body)
    return b.parallel(bounds, new, name=op.name)


class NestCopier(Cloner):
    """Copies ops; of loops in `axes` only one iteration, that of the new axis."""

    def __init__(self, b: Builder, known: dict[Value, Value], axes: dict[Op, Param]) -> None:
        super().__init__(b, known)
        self.axes = axes

    def visit(self, op: Op) -> None:
        if op in self.axes:
            self.inline(op.regions[0], [self.axes[op]])
        else:
            super().visit(op)
