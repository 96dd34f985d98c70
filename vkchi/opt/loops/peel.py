"""Index-set splitting: split a loop into its interior, free of border conditions, and its edges.

    parallel 0, n, 0, m {(i, j) s = if i > 0 { x[i - 1, j] } { 0 }; t = x[i, (j + 1) % m]; ... }
becomes
    parallel 1, n, 0, m - 1 {(i, j) s = x[i - 1, j]; t = x[i, j + 1]; ... }
    parallel 0, n + m - 1 {(t) i, j = ...; s = if i > 0 { x[i - 1, j] } { 0 }; ... }

Conditions on indices, `min`, `max` and remainders often have one outcome except in a few iterations
at the ends of an axis. CPU drivers execute both sides of a branch with masked lanes and divide lane
by lane. Guarded or clamped accesses cannot be vectorized. In the interior, `bounds` can then prove
accesses in range. The interior of the last axis is aligned to words, so that its accesses can be
merged; straight-line code with contiguous accesses is split for that alone.

Iterations of a `parallel` may run in any order, hence also in two loops. GPUs are excluded. Only
long loops with constant bounds are split, because the driver compiles their body twice. Loops with
short rows are not split, because each end of a row is another cache line.

    >>> peel(fn, caps)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from vkchi.analysis.cost import known_work_of
from vkchi.analysis.parallel_loops import may_interleave
from vkchi.analysis.values.interval_analysis import NEVER, Intervals, axes_in
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value, constant_int, is_constant, walk
from vkchi.ir.iteration_space import IterationDigit, IterationSpace
from vkchi.ir.op_table.interval_rules import Interval
from vkchi.ir.ops import axes_of, constant_trip_count
from vkchi.ir.rebuild import Cloner, inline, rebuild_loops
from vkchi.opt.cost_model import is_worth_splitting
from vkchi.opt.loops.jam import elements_per_access, has_small_body, is_mostly_contiguous
from vkchi.target import tuning
from vkchi.target.caps import Caps
from vkchi.target.remarks import Log, Refusal, Verdict, record_refusal
from vkchi.tuples import NamedTuple
from vkchi.types import i32, u1


class AxisSplit(NamedTuple):
    """Range `begin` to `end` of an axis, and its interior `first` to `last` (ends excluded)."""

    begin: int
    end: int
    first: int
    last: int

    @property
    def edge(self) -> int:
        return self.end - self.begin - self.middle

    @property
    def middle(self) -> int:
        return self.last - self.first


LONG = Refusal("its body is too long to be compiled twice")
UNKNOWN = Refusal("its bounds are not compile-time constants")
SHORT = Refusal("it has too few iterations, or too short rows, to repay a second copy of its code")
UNDECIDED = Refusal("its conditions on indices are not decided in three quarters of its iterations")


def peel(fn: Func, caps: Caps, log: Log | None = None) -> Func:
    """Split long loops into interior and edges, if profitable.

    Records in `log` why loops that ask about their indices are not split.
    """

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        ask = may_split(op, caps) and DecidableOps(op)
        spans = ask and find_middle(op, ask, caps)
        if log is not None and any(map(is_question, walk(op.regions[0]))):
            record_refusal(log, "index-set splitting", op.span, spans)
        if not (isinstance(ask, DecidableOps) and isinstance(spans, tuple)):
            return None
        build_middle(b, op, ask, spans)
        build_edges(b, op, spans)
        return ()

    return rebuild_loops(fn, visit)


# --- legality and profitability ------------------------------------------------------------------


def may_split(op: Op, caps: Caps) -> Verdict:
    """True if index-set splitting of a `parallel` is legal, and may be profitable.

    Its iterations may be interleaved, its bounds are i32 constants, and its body has at most
    PEEL_OPS ops. The gain is estimated for an interior of all iterations (`is_worth_splitting`).
    """
    if not caps.slow_compiler:
        return False
    if not has_small_body(op, tuning.PEEL_OPS):
        return LONG
    if not (verdict := may_interleave(op)):
        return verdict
    count, work = constant_trip_count(op), known_work_of(op.regions[0])
    if count is None or any(axis.param.type is not i32 for axis in axes_of(op)):
        return UNKNOWN
    return (count < 1 << 31 and is_worth_splitting(work, count, 0, caps)) or SHORT


def ends_of(op: Op) -> list[tuple[int, int]]:
    return [axis.ends for axis in axes_of(op) if axis.ends is not None]


def find_middle(op: Op, ask: DecidableOps, caps: Caps) -> tuple[AxisSplit, ...] | Verdict:
    """Return the split of each axis, if the interior has at least 3/4 of the loop's iterations, but
    not all, and the split is profitable."""
    ends = ends_of(op)
    spans = [AxisSplit(b, e, *ask.along(k, b, e)) for k, (b, e) in enumerate(ends)]
    if any(s.edge for s in spans) or is_mostly_contiguous(op):
        spans[-1] = at_words(spans[-1], elements_per_access(op, caps) or 1)
    middle, boundary = prod(s.middle for s in spans), size(spans, len(spans) - 1)
    total = prod(e - b for b, e in ends)
    if middle == total:
        return bool(ask.open) and UNDECIDED
    if middle < 3 * total // 4:
        return UNDECIDED
    work = known_work_of(op.regions[0])
    return tuple(spans) if is_worth_splitting(work, middle, boundary, caps) else SHORT


def at_words(s: AxisSplit, word: int) -> AxisSplit:
    return s._replace(first=s.first + -s.first % word, last=s.last - s.last % word)


def is_question(op: Op) -> bool:
    """True for a comparison, `min`, `max` or `mod` of i32 scalars."""
    asks = op.kind in NEVER or op.kind in ("min", "max") or op.kind == "mod"
    return asks and op.args[0].type is i32


class DecidableOps:
    """Comparisons, `min`, `max` and remainders of i32 in a loop's body (`asking`).

    `open` holds those that are not proved to have one outcome in all iterations.
    """

    def __init__(self, op: Op) -> None:
        body = op.regions[0]
        self.asking = [x for x in walk(body) if is_question(x)]
        self.axes = axes_in(body) | {axis.param: axis for axis in axes_of(op)}
        self.params = body.params
        ends = zip(self.params, ends_of(op), strict=True)
        self.own: dict[Value, Interval] = {p: (begin, end - 1) for p, (begin, end) in ends}
        self.open = [x for x in self.asking if decide(x, self.intervals({})) is None]

    def intervals(self, known: Mapping[Value, Interval]) -> Intervals:
        return Intervals(self.axes, found={**self.own, **known})

    def along(self, k: int, begin: int, end: int) -> tuple[int, int]:
        """Return the interior of axis k, as its first index and the end.

        Its edges are at most PEEL_EDGE iterations and a quarter of the axis wide. Each edge is the
        narrowest that decides, beside another edge of that width, every `open` op that two such
        edges decide.
        """
        most = min(tuning.PEEL_EDGE, (end - begin) // 4)
        low = high = 0
        for x in self.open:
            if self.is_decided(x, k, (begin + most, end - most)):
                low = self.least(x, k, (begin, end), low, most, at_begin=True)
                high = self.least(x, k, (begin, end), high, most, at_begin=False)
        return begin + low, end - high

    def least(
        self, x: Op, k: int, ends: Interval, least: int, most: int, *, at_begin: bool
    ) -> int:  # fmt: skip
        """Smallest width of an edge, from `least` to `most`, that decides an op.

        The other edge has width `most`. Returns `most` if no smaller one decides.
        """
        begin, end = ends
        while least < most:
            part = (begin + least, end - most) if at_begin else (begin + most, end - least)
            if self.is_decided(x, k, part):
                break
            least += 1
        return least

    def is_decided(self, x: Op, k: int, part: Interval) -> bool:
        known = self.intervals({self.params[k]: (part[0], part[1] - 1)})
        return decide(x, known) is not None


# --- outcomes of ops -----------------------------------------------------------------------------


class DecidedValue(NamedTuple):
    """Outcome of an op: the bool `truth`; or, if that is None, operand `operand` minus `less`."""

    truth: bool | None
    operand: int = 0
    less: int = 0


def decide(op: Op, known: Intervals) -> DecidedValue | None:
    """Return the outcome of an op, if it is proved the same for all values in the known intervals;
    else None."""
    a, b = map(known.of, op.args)
    if a is None or b is None or a[0] > a[1] or b[0] > b[1]:
        return None
    if op.kind == "mod":
        return decide_mod(op, a)
    if op.kind in ("min", "max"):
        return decide_extreme(op, a, b)
    is_false, is_true = NEVER[op.kind]
    return DecidedValue(False) if is_false(a, b) else DecidedValue(True) if is_true(a, b) else None


def decide_extreme(op: Op, a: Interval, b: Interval) -> DecidedValue | None:
    """Return the operand that a `min` or `max` selects, if the operands' intervals share at most an
    endpoint; else None."""
    if a[0] < b[1] and b[0] < a[1]:
        return None
    greater = 0 if a[0] >= b[1] else 1
    return DecidedValue(None, greater if op.kind == "max" else 1 - greater)


def decide_mod(op: Op, a: Interval) -> DecidedValue | None:
    """Return the outcome of a remainder by a positive constant, the dividend minus a constant, if
    all dividends in `a` have one quotient; else None."""
    n = constant_int(op.args[1])
    if n is None or n <= 0 or a[0] // n != a[1] // n:
        return None
    return DecidedValue(None, 0, a[0] // n * n)


# --- rewriting -----------------------------------------------------------------------------------


def build_middle(b: Builder, op: Op, ask: DecidableOps, spans: Sequence[AxisSplit]) -> None:
    known = ask.intervals(
        {p: (s.first, s.last - 1) for p, s in zip(ask.params, spans, strict=True)}
    )
    found = ((x, decide(x, known)) for x in ask.asking)
    answers = {x: answer for x, answer in found if answer is not None}

    def visit(b: Builder, x: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        answer = answers.get(x)
        if answer is None:
            return None
        if answer.truth is not None:
            return [b.const(answer.truth, u1)]
        v = args[answer.operand]
        is_same = is_constant(v) or not answer.less
        return [v if is_same else b.emit("sub", v, b.const(answer.less, i32))]

    params = [Param(p.type, p.name) for p in ask.params]
    with b.region(*params) as body:
        inline(b, op.regions[0], params, visit)
        b.emit("yield")
    b.span = op.span
    b.parallel([b.const(n, i32) for s in spans for n in (s.first, s.last)], body)


def build_edges(b: Builder, op: Op, spans: Sequence[AxisSplit]) -> None:
    """Append one loop over all edges: the slabs of the axes, one behind the other.

    The slab of an axis has this axis in an edge, the axes before it in their interior, and the axes
    after it anywhere.
    """
    body, t = op.regions[0], Param(i32, "t")
    with b.region(t) as new:
        total, found = 0, None
        for k, s in reversed(list(enumerate(spans))):
            if not s.edge:
                continue
            indices = slab(b, t, spans, k, sum(size(spans, j) for j in range(k)))
            first = sum(size(spans, j) for j in range(k + 1))
            if found is not None:
                is_here = b.emit("lt", t, b.const(first, i32))
                indices = [b.emit("select", is_here, x, y) for x, y in zip(indices, found)]
            total, found = max(total, first), indices
        assert found is not None
        Cloner(b, dict(zip(body.params, found, strict=True))).body(body)
    b.span = op.span
    b.parallel((b.const(0, i32), b.const(total, i32)), new)


def size(spans: Sequence[AxisSplit], k: int) -> int:
    before, after = spans[:k], spans[k + 1 :]
    return prod(s.middle for s in before) * spans[k].edge * prod(s.end - s.begin for s in after)


def slab(b: Builder, t: Value, spans: Sequence[AxisSplit], k: int, offset: int) -> list[Value]:
    """Return the indices of iteration `t` in the slab of axis k, which begins at iteration
    `offset`."""
    number = b.emit("sub", t, b.const(offset, i32)) if offset else t
    extents = [
        s.middle if j < k else s.edge if j == k else s.end - s.begin for j, s in enumerate(spans)
    ]
    digits = tuple([IterationDigit(j, b.const(n, i32)) for j, n in enumerate(extents)])
    begins = tuple([b.const(s.first if j < k else s.begin, i32) for j, s in enumerate(spans)])
    space = IterationSpace(begins, digits)
    indices = space.indices(b, space.split(b, number))
    s = spans[k]
    beyond = b.emit("add", indices[k], b.const(s.middle, i32))
    is_low = b.emit("lt", indices[k], b.const(s.first, i32))
    indices[k] = b.emit("select", is_low, indices[k], beyond)
    return indices
