"""Bounds-check elimination: mark `elem` ops whose indices are proved in range with attr "inbounds".

Unmarked accesses are checked on the device. Each mark is proved from facts (`ranges.ValueFact`)
about indices, which `ranges` derives from loops, enclosing conditions and ops. An index is in range
of an axis if it is at least the axis's first index and at most its last. The upper limit is proved
by intervals if the extent is static, by `index <= extent - 1` if it is known at launch.

The pass has three other rewrites:

- An `if` that only reports that an integer is 0 is removed if the integer is proved nonzero.
- A `for` with a non-constant begin and a provably constant trip count is counted from 0.
- Ops in the table REWRITES are expanded if their precondition is proved.

Facts by construct:

- Loop index: at least begin, at most end - 1; inside the loop, begin < end.
- `if`: the condition holds in one region and fails in the other. The results satisfy the facts that
  both yields have.
- `while`: the condition holds in the body, and fails after the loop.
- Carried value: at least the lower bound of the initial value, if the body proves the same of the
  yielded value under that assumption; otherwise nothing. If it fails, the body is analyzed again
  without it. Only two nesting levels do this, else the time would double with every level.

Facts about results and carried values keep only symbols of extents, which have the same meaning
everywhere.

    >>> eliminate_bounds_checks(fn)      # parallel 0, shape x [0] {(i) elem x, i}
    parallel 0, shape x [0] {(i) elem x, i [inbounds]}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkchi.analysis.values.polynomials import split_offset
from vkchi.analysis.values.ranges import (
    DIGITS,
    INT_MAX,
    Extent,
    Facts,
    RoundedQuotient,
    Sym,
    SymbolProduct,
    ValueFact,
    extent_of,
    find_quotient,
    join_facts,
    shift_fact,
    top_fact,
)
from vkchi.errors import InternalError
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Value, constant_int, find_parallel, walk
from vkchi.ir.num import Num
from vkchi.ir.op_table.interval_rules import type_range
from vkchi.ir.ops import Effect, axes_of, carried_params, effect_of, initial_values
from vkchi.ir.rebuild import Rebuilder
from vkchi.opt.math.formula import where
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Type, i32, scalar_of

DEEPEST_GUESS = 2


def eliminate_bounds_checks(fn: Func) -> Func:
    """Mark every `elem` that is proved in range, and apply the other rewrites of this module."""
    inside = set(find_provable(fn))
    if not inside:
        return fn

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op not in inside:
            return None
        if op.kind == "if":
            return ()
        if op.kind == "for":
            return count_from_zero(rebuilder, op, args)
        if op.kind != "elem":
            return [REWRITES[op.kind].expand(b, op, args)]
        return [b.emit("elem", *args, attr="inbounds", name=op.name)]

    rebuilder = Rebuilder(visit, {op.kind for op in inside})
    return rebuilder.run(fn)


def find_provable(fn: Func) -> list[Op]:
    """Return the unmarked `elem`s that are proved in range, and the other ops to rewrite."""
    if not any(op.kind in CANDIDATES and may_rewrite(op) for op in walk(fn.body)):
        return []
    prover = Prover(fn)
    prover.region(fn.body)
    return prover.marked


def may_rewrite(op: Op) -> bool:
    rewrite = REWRITES.get(op.kind)
    if rewrite is not None:
        return rewrite.matches(op)
    return is_unmarked(op) or is_check(op) or distance(op) is not None


def distance(op: Op) -> int | None:
    """Return a constant that equals `end - begin` modulo the type's range, for a `for` with a
    non-constant begin. None unless both bounds are one value plus constants."""
    if op.kind != "for" or constant_int(op.args[0]) is not None:
        return None
    first, last = map(split_offset, op.args[:2])
    return last.offset - first.offset if first.root is last.root else None


def count_from_zero(r: Rebuilder, op: Op, args: Sequence[Value]) -> Sequence[Value]:
    """Append the loop counted from 0 to its constant trip count, so that control flow is uniform.
    Returns its results."""
    (body,) = op.regions
    first, last = offsets_of(op)
    index, t = body.params[0], scalar_of(body.params[0].type)
    k = Param(t, index.name)
    with r.inside(k, *body.params[1:]) as region:
        r.map[index] = r.b.emit("add", args[0], k)
        r.ops(body.ops)
    ends = r.b.const(0, t), r.b.const(max(0, last - first), t)
    return r.b.for_(*ends, args[2:], region, op.attr).results


def offsets_of(op: Op) -> tuple[int, int]:
    """Return the constant offsets of a loop's begin and end from their common root, as signed
    integers."""
    half = 1 << (scalar_of(op.args[0].type).bits - 1)
    first, last = [split_offset(v).offset for v in op.args[:2]]
    return (first + half) % (2 * half) - half, (last + half) % (2 * half) - half


def is_unmarked(op: Op) -> bool:
    return op.kind == "elem" and op.attr is None


def is_check(op: Op) -> bool:
    """True for an `if x != 0` without results whose first region is empty and whose second only
    computes and reports."""
    if op.kind != "if" or op.results or len(op.regions[0].ops) > 1:
        return False
    test, then = op.args[0], op.regions[1].ops[:-1]
    is_test = isinstance(test, Op) and test.kind == "ne" and constant_int(test.args[1]) == 0
    effects = {effect_of(inner.kind) for inner in then}
    return is_test and Effect.REPORT in effects and effects <= {Effect.PURE, Effect.REPORT}


def is_integer(t: Type) -> bool:
    return isinstance(t, Scalar) and t.kind in "iu"


def lasting(f: ValueFact) -> ValueFact:
    """Return the part of a fact that holds outside the region in which it was derived."""
    return ValueFact(f.lo, f.hi, {s: c for s, c in f.ups.items() if is_lasting(s)})


def is_lasting(s: Sym) -> bool:
    """True if a symbol has the same meaning in every region and iteration: an extent, or a product
    of extents."""
    if isinstance(s, SymbolProduct):
        return all(is_lasting(factor) for factor in s.factors)
    return isinstance(s, Extent)


class Prover:
    """Derives facts by a walk of a Func. `marked`: the proved accesses and other rewritable ops, in
    program order."""

    def __init__(self, fn: Func) -> None:
        op = find_parallel(fn)
        self.facts = Facts(op.attr if op is not None else None)
        self.marked: list[Op] = []
        self.guesses = 0

    def region(self, region: Region) -> None:
        for op in region.ops:
            if op.regions:
                WALKS[op.kind](self, op)
            elif op.kind in CANDIDATES and may_rewrite(op) and self.is_proved(op):
                self.marked.append(op)

    def is_proved(self, op: Op) -> bool:
        return (
            self.is_inside(op) if op.kind == "elem" else REWRITES[op.kind].is_proved(self.facts, op)
        )

    def is_inside(self, op: Op) -> bool:
        t = op.args[0].type
        assert isinstance(t, Array)
        return all(self.is_index(op.args[0], k, v) for k, v in enumerate(op.args[1:]))

    def is_index(self, array: Value, axis: int, v: Value) -> bool:
        f, t = self.facts.of(v), array.type
        assert isinstance(t, Array)
        if t.shape is None:
            return f.lo >= 0 and f.ups.get(extent_of(array, axis), 0) <= -1
        first = t.layout.origin[axis] if t.layout is not None and t.layout.origin else 0
        return first <= f.lo and f.hi <= first + t.shape[axis] - 1

    # --- regions

    def if_(self, op: Op) -> None:
        """Analyze both regions, under the condition and under its negation. Results get the facts
        that both yields have.

        A check (`is_check`) that is proved to pass is marked, and not analyzed.
        """
        if is_check(op) and self.is_not_zero(op.args[0]):
            self.marked.append(op)
            return
        sides: list[list[ValueFact]] = []
        for region, truth in zip(op.regions, (True, False)):
            saved = self.facts.open()
            self.facts.assume(op.args[0], truth)
            self.facts.forget()
            self.region(region)
            sides.append(self.facts_of(region.yielded))
            self.facts.close(saved)
        for v, then, orelse in zip(op.results, *sides):
            self.set_base(v, join_facts(then, orelse, self.facts.least))

    def is_not_zero(self, test: Value) -> bool:
        assert isinstance(test, Op)
        f = self.facts.of(test.args[0])
        return f.lo > 0 or f.hi < 0

    def loop(self, op: Op) -> None:
        """Analyze a `for` or `parallel`; mark it if `is_counted`."""
        (body,) = op.regions
        first, axes = self.facts_of(initial_values(op)), axes_of(op)
        if self.is_counted(op):
            self.marked.append(op)
        saved = self.facts.open()
        lows = [self.facts.of(axis.begin).lo for axis in axes]
        for axis, low in zip(axes, lows):
            self.facts.limit(axis.end, ValueFact(low + 1, self.facts.of(axis.end).hi))
        self.facts.forget()
        for axis, low in zip(axes, lows):
            last = shift_fact(self.facts.of(axis.end), -1)
            self.facts.set_base(axis.param, ValueFact(low, last.hi, last.ups))
        yielded = self.carry(carried_params(op), first, lambda: self._run_body(body))
        self.facts.close(saved)
        for v, a, b in zip(op.results, first, yielded):
            self.set_base(v, join_facts(a, b, self.facts.least))

    def is_counted(self, op: Op) -> bool:
        """True if a `for` with a non-constant begin is proved to have a constant trip count. Begin
        and end are one value plus constants, and neither sum wraps."""
        if op.kind != "for" or distance(op) is None:
            return False
        root = split_offset(op.args[0]).root
        assert root is not None
        f, (low, high) = self.facts.of(root), type_range(scalar_of(root.type))
        return low <= f.lo + min(offsets_of(op)) and f.hi + max(offsets_of(op)) <= high

    def _run_body(self, body: Region) -> list[ValueFact]:
        self.region(body)
        return self.facts_of(body.yielded)

    def while_(self, op: Op) -> None:
        """Analyze a `while`: its condition region, then its body under the condition. The results
        get the facts of the carried values under the negated condition."""
        first = self.facts_of(op.args)
        saved = self.facts.open()
        self.carry(op.regions[0].params, first, lambda: self._run_round(op))
        after = self.facts.open()
        self.facts.assume(op.regions[0].yielded[0], False)
        self.facts.forget()
        left = self.facts_of(op.regions[0].params)
        self.facts.close(after)
        self.facts.close(saved)
        for v, f in zip(op.results, left):
            self.set_base(v, f)

    def _run_round(self, op: Op) -> list[ValueFact]:
        """Analyze the condition region and the body; return facts of the yielded values.
        Precondition: the parameters of the condition region have facts."""
        cond, body = op.regions
        self.region(cond)
        saved = self.facts.open()
        self.facts.assume(cond.yielded[0], True)
        self.facts.forget()
        for old, new in zip(cond.params, body.params):
            if is_integer(new.type):
                f = self.facts.of(old)
                self.facts.set_base(new, ValueFact(f.lo, f.hi, f.ups))
        yielded = self._run_body(body)
        self.facts.close(saved)
        return yielded

    # --- carried values

    def carry(
        self, params: Sequence[Param], first: list[ValueFact], run: Callable[[], list[ValueFact]]
    ) -> list[ValueFact]:
        """Call `run` under the assumption that carried integers `params` are at least the lower
        bounds of their initial facts `first`.

        If a yielded value does not prove its assumption, the marks of that `run` are removed, and
        it is called again without that assumption, at last without any. Returns the facts that the
        last `run` returned.
        """
        guesses = [
            f.lo if is_integer(p.type) and self.guesses < DEEPEST_GUESS else None
            for p, f in zip(params, first)
        ]
        for attempt in range(3):
            count = len(self.marked)
            for p, low in zip(params, guesses):
                self._guess(p, low)
            self.facts.forget()
            self.guesses += 1
            yielded = run()
            self.guesses -= 1
            failed = [low is not None and f.lo < low for low, f in zip(guesses, yielded)]
            if not any(failed):
                return yielded
            guesses = [None if bad or attempt else low for bad, low in zip(failed, guesses)]
            del self.marked[count:]
        raise InternalError("a loop without assumptions failed them")

    def _guess(self, p: Param, low: int | None) -> None:
        if is_integer(p.type):
            assert isinstance(p.type, Scalar)
            widest = top_fact(p.type)
            least = widest.lo if low is None else low
            self.facts.set_base(p, ValueFact(least, widest.hi))

    def facts_of(self, values: Sequence[Value]) -> list[ValueFact]:
        """Return the lasting facts of values; an unlimited fact for those that are not integers."""
        nothing = ValueFact(-INT_MAX << 40, INT_MAX << 40)
        return [lasting(self.facts.of(v)) if is_integer(v.type) else nothing for v in values]

    def set_base(self, v: Value, f: ValueFact) -> None:
        if is_integer(v.type):
            self.facts.set_base(v, f)


WALKS: dict[str, Callable[[Prover, Op], None]] = {
    "if": Prover.if_, "for": Prover.loop, "parallel": Prover.loop, "while": Prover.while_,
}  # fmt: skip


# --- rewrites that need proved ranges ------------------------------------------------------------
#
# - A rounded float quotient of integers becomes an integer quotient (`analysis.values.ranges` has
#   the proof). A constant divisor uses integer division. With another divisor, the product with its
#   reciprocal is an estimate, because integer division is slow on CPUs. Below 2**GUESSED it is off
#   by at most 1: the reciprocal is off by 2.5 units in the last place, the product by one more. The
#   sum is 3.5 * 2**(GUESSED - 23) < 1. The exact integer remainder corrects it.
# - A shift amount that is proved within the width is masked. The mask has no cost and makes the
#   emitter omit its range check.


GUESSED = 21
PLAIN_AMOUNTS = ("const", "and")  # the emitter handles these itself


class Rewrite(NamedTuple):
    """A rewrite: `expand` builds the replacement of an op that `matches`, if `is_proved` holds."""

    matches: Callable[[Op], bool]
    is_proved: Callable[[Facts, Op], bool]
    expand: Callable[[Builder, Op, tuple[Value, ...]], Value]


def is_rounded_quotient(op: Op) -> bool:
    return find_quotient(op.kind, op.args[0], op.type) is not None


def is_whole_quotient(f: Facts, op: Op) -> bool:
    """True if a rounded float quotient is proved equal to an integer quotient in i32.

    For a cast, its type must also represent the quotient.
    """
    q = find_quotient(op.kind, op.args[0], op.type)
    assert q is not None
    a, b = q.operands(f.of)
    bits = DIGITS[q.form] if isinstance(q.b, int) else GUESSED
    if b.lo < 1 or b.hi > INT_MAX or max(-a.lo, a.hi) >= 1 << bits:
        return False
    if a.lo < 0 and q.kind == "truncdiv" and (op.kind == "trunc" or not isinstance(q.b, int)):
        return False  # -1 / 3 truncates to -0.0
    if op.kind != "cast":
        return True
    low, high = type_range(scalar_of(op.type))
    return low <= min(a.lo, 0) and max(a.hi, 0) <= high


def divide_integers(b: Builder, op: Op, args: tuple[Value, ...]) -> Value:
    """Append the integer quotient, and return it in the op's type. The operand of a cast may
    already be rewritten to an integer quotient, which is then cast."""
    q, rounded = find_quotient(op.kind, args[0], op.type), args[0]
    assert isinstance(op.type, Scalar) and isinstance(rounded, Op)
    if q is None:
        assert rounded.kind == "cast"
        return as_type(Num(b, rounded.args[0]), op.type).v
    x = as_i32(b, q.a)
    if isinstance(q.b, int):
        return as_type(x.op(q.kind, q.b), op.type).v
    return as_type(corrected(x, as_i32(b, q.b), q), op.type).v


def as_i32(b: Builder, v: Value | int) -> Num:
    return Num(b, b.const(v, i32)) if isinstance(v, int) else as_type(Num(b, v), i32)


def as_type(x: Num, t: Scalar) -> Num:
    return x if x.v.type is t else x.cast(t)


def corrected(x: Num, y: Num, q: RoundedQuotient) -> Num:
    """x // y by estimate and correction; for truncating quotients x must not be negative."""
    dividend, divisor = (Num(x.b, v) for v in q.quotient.args)
    guess = (dividend * (1.0 / divisor)).op("floor").cast(i32)
    rest = x - guess * y
    return where(rest < 0, guess - 1, where(rest >= y, guess + 1, guess))


def has_open_amount(op: Op) -> bool:
    """True for a scalar shift whose amount is neither constant nor masked."""
    amount = op.args[1]
    is_plain = isinstance(amount, Op) and amount.kind in PLAIN_AMOUNTS
    return isinstance(op.type, Scalar) and not is_plain


def is_within(f: Facts, op: Op) -> bool:
    found = f.of(op.args[1])
    return found.lo >= 0 and found.hi < scalar_of(op.type).bits


def mask_amount(b: Builder, op: Op, args: tuple[Value, ...]) -> Value:
    return b.emit(
        op.kind, args[0], (Num(b, args[1]) & (scalar_of(op.type).bits - 1)).v, name=op.name
    )


QUOTIENT = Rewrite(is_rounded_quotient, is_whole_quotient, divide_integers)
SHIFT = Rewrite(has_open_amount, is_within, mask_amount)
REWRITES: dict[str, Rewrite] = {
    "floor": QUOTIENT, "trunc": QUOTIENT, "cast": QUOTIENT, "shl": SHIFT, "shr": SHIFT,
}  # fmt: skip
CANDIDATES = frozenset({"elem", "if", "for", *REWRITES})  # kinds of ops that `may_rewrite`
