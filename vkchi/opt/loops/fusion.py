"""Loop fusion of adjacent parallel loops over the same iteration space.

    parallel 0, n {(i) y[i] = f(x[i])}; parallel 0, n {(j) z[j] = g(y[j])}        becomes
    parallel 0, n {(i) y[i] = f(x[i]); z[i] = g(y[i])}

Motivation: one dispatch instead of two, without a barrier. `forward` replaces the second loop's
loads of `y[i]` by the value. Stores remain.

Conditions:

- The iteration spaces are equal: the same number of axes, with equal bounds.
- No iteration of the second loop depends on other iterations of the first (`legality`).
  Stencils stay separate loops.
- Serial ops between the loops can run before the first, or after the second.
- Neither loop synchronizes, reports, draws random numbers, reads invocation numbers or demands a
  workgroup size. So reports and random streams keep their order.
- Fusion is profitable (`is_worth_it`). Both loops traverse memory in the same order of axes, and
  both or neither are transposes. At most one has serial loops inside, which run long and need the
  registers. The fused loop has at most FUSE_SHARED accesses, or FUSE_DISJOINT if the loops have no
  array in common.

    >>> fuse_loops(fn)
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.memory.alias import accesses_by_base, shared_bases
from vkchi.analysis.parallel_loops import may_interleave
from vkchi.analysis.values.interval_analysis import Intervals
from vkchi.analysis.values.polynomials import ExactPolynomials
from vkchi.ir.core import Func, Op, Region, Value, has_kind, walk, walk_ops
from vkchi.ir.ops import LOOPS, ORDERED, TIED, WRITES
from vkchi.ir.rebuild import Rebuilder
from vkchi.opt.loops.legality import may_fuse
from vkchi.opt.mapping.axis_order import iteration_digits
from vkchi.opt.memo import Memo
from vkchi.opt.rewrite.dce import remove_dead
from vkchi.opt.rewrite.simplify import simplify
from vkchi.target import tuning
from vkchi.target.remarks import Decision, Log, Refusal, Verdict, record, record_refusal
from vkchi.tuples import NamedTuple

FUSED = "it runs in one dispatch with the loop of line {line}"
NOT_FUSED = "loop fusion with the loop of line {line}"
BOUNDS = Refusal("their bounds differ")
ACCESSES = Refusal("together they have too many accesses")
SERIAL_LOOPS = Refusal("both have serial loops inside")
ORDER = Refusal("they traverse memory in different orders")
BETWEEN = "code between them, such as line {line}, needs the first and is needed by the second"
SYNCHRONIZED = Refusal("code between them synchronizes, reports or draws random numbers")


class FusedLoop(NamedTuple):
    """A fused loop, and the ops between its former parts: those to run before it, and after it."""

    before: list[Op]
    loop: Op
    behind: list[Op]


def fuse_loops(fn: Func, log: Log | None = None) -> Func:
    """Fuse adjacent parallel loops, where legal and profitable. Records them in `log`."""
    ops: list[Op] = []
    last: Op | None = None
    behind: list[Op] = []  # since the last loop
    spaces = LoopFuser()
    *body, end = fn.body.ops
    for op in body:
        if op.kind != "parallel":
            behind.append(op)
            continue
        joined = spaces.join(last, behind, op) if last is not None else None
        if isinstance(joined, FusedLoop) and last is not None:
            record(log, Decision("fused", op.span, FUSED, origin=last.span))
            ops += joined.before
            last, behind = joined.loop, joined.behind
        else:
            if log is not None and last is not None and last.span is not None:
                record_refusal(log, NOT_FUSED.format(line=last.span.line), op.span, joined)
            ops += behind if last is None else [last, *behind]
            last, behind = op, []
    if last is not None:
        ops.append(last)
    ops += [*behind, end]
    return fn if ops == fn.body.ops else Func(fn.name, fn.params, Region((), ops), fn.span)


def fuses_to_one_loop(fn: Func) -> bool:
    """True if fusion leaves a kernel with one parallel loop, and nothing else that needs a
    dispatch."""
    found = fuse_loops(remove_dead(simplify(fn, Memo())))
    beside = [op for op in found.body.ops if op.kind != "parallel"]
    is_single = len(found.body.ops) - len(beside) == 1
    return is_single and not has_kind(Region((), beside), WRITES | ORDERED)


class LoopFuser:
    """Fusion of the loops of one Func; caches normal forms of loop bounds."""

    def __init__(self) -> None:
        self.forms = ExactPolynomials(Intervals({}))

    def join(self, first: Op, between: Sequence[Op], second: Op) -> FusedLoop | Verdict:
        """Return the fused loop, or the reason why there is none."""
        verdict = self.are_same(first, second) and is_worth_it(first, second)
        parts = verdict and part(between, first, second)
        if not isinstance(parts, tuple):
            return parts
        loop, tail = append_body(first, second)
        verdict = may_fuse(first.regions[0].ops, tail, loop)
        return verdict and FusedLoop(parts[0], loop, parts[1])

    def are_same(self, first: Op, second: Op) -> Verdict:
        if len(first.args) != len(second.args):
            return BOUNDS
        pairs = zip(first.args, second.args)
        is_same = all(a is b or self.forms.key(a) == self.forms.key(b) for a, b in pairs)
        return (is_same or BOUNDS) and may_interleave(first) and may_interleave(second)


def append_body(first: Op, second: Op) -> tuple[Op, list[Op]]:
    """Return the fused loop, and its ops that come from the second loop."""
    one, other = first.regions[0], second.regions[0]
    walker = Rebuilder()
    walker.map.update(zip(other.params, one.params, strict=True))
    tail = walker.region(Region((), other.ops)).ops
    body = Region(one.params, [*one.ops[:-1], *tail])
    name = "+".join(dict.fromkeys(name for name in (first.name, second.name) if name))
    return Op("parallel", first.args, first.attr, None, first.span, name, (body,)), tail


# --- when it is worth it -------------------------------------------------------------------------


def is_worth_it(first: Op, second: Op) -> Verdict:
    some, others = (accesses_by_base(walk(op.regions[0])) for op in (first, second))
    total = sum(map(len, some.values())) + sum(map(len, others.values()))
    if total > (tuning.FUSE_DISJOINT if some.keys().isdisjoint(others) else tuning.FUSE_SHARED):
        return ACCESSES
    if all(has_kind(op.regions[0], LOOPS) for op in (first, second)):
        return SERIAL_LOOPS
    return iteration_digits(first) == iteration_digits(second) or ORDER


# --- what stands between -------------------------------------------------------------------------


def part(between: Sequence[Op], first: Op, second: Op) -> tuple[list[Op], list[Op]] | Refusal:
    """Split the ops between two loops into those to run before the first, and those after the
    second. Ops that can do both run before. Refuses if an op can do neither, or is in `ORDERED` or
    `TIED`."""
    region = Region((), list(between))
    if has_kind(region, ORDERED | TIED):
        return SYNCHRONIZED
    wanted = {v for op in walk(second.regions[0]) for v in op.args}
    touched, then = (accesses_by_base(walk(op.regions[0])) for op in (first, second))
    before: list[Op] = []
    behind: list[Op] = []
    late: set[Value] = set()
    for op in between:
        own = accesses_by_base(walk_ops([op]))
        is_late = any(v in late for x in walk_ops([op]) for v in x.args)
        if not is_late and not shared_bases(own, touched):
            before.append(op)
            continue
        if not wanted.isdisjoint(op.results) or shared_bases(own, then):
            return Refusal(BETWEEN, op.span)
        behind.append(op)
        late.update(op.results)
        for base, ops in own.items():
            touched.setdefault(base, []).extend(ops)
    return before, behind
