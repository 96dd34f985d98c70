"""Flow-sensitive value-range analysis: one transfer function per op over `ValueFact`.

Facts are computed lazily from the defining ops. Components of tensors are followed through
elementwise ops: a `Key` is a scalar value, or a pair of tensor and component number. A result that
may overflow is top (`or_top`), as is a division by a possible zero. Enclosing conditions
constrain symbols, which refines all values computed from them.

See also: pass `bounds` walks the control flow and fills `base` and `limits`.

    >>> f = Facts(); f.of(op_i_mod_32)
    ValueFact(lo=0, hi=31, ...)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from vkchi.analysis.values.interval_analysis import conjuncts
from vkchi.ir.core import Op, Value, is_constant, is_wide, shape_source_name, value_of
from vkchi.ir.op_table.interval_rules import floordiv, truncdiv, type_range
from vkchi.ir.ops import COMPARISONS, DIVISION_OF, ELEMENTWISE, GREATER, MIRRORED, NEGATED, TABLE
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Tensor, Type, f16, f32, i64, scalar_of

# --- the lattice ---------------------------------------------------------------------------------
#
# Value-range lattice with symbolic upper bounds, for bounds-check elimination.
#
# A `ValueFact` about a value v (of type t, read as a mathematical integer) states
#
# - `lo <= v <= hi`, within the range of t;
# - for every entry s: c of `ups`: `v <= s + c`, where s is a symbol;
# - `exact` = (s, c): `v == s + c`.
#
# A symbol denotes one mathematical integer: a value, the extent of an array axis (`Extent`), or a
# product of non-negative symbols (`SymbolProduct`). Unlike a `mul`, a `SymbolProduct` never wraps.
#
# Top is the range of the type with empty `ups`. The join of two intervals is their hull; the join
# of two `ups` keeps the common symbols with the greater c. Transfer functions use unbounded Python
# integers; `or_top` returns top if the result may leave the type.
#
# Axioms: extents are in [0, 2**31). The extents of one array without 64-bit indices multiply to
# less than 2**31, unless one of them is 0.
#
# See also: `ranges` computes facts; pass `bounds` uses them.

Key = Any  # Value | tuple[Value, int]
Sym = Any  # Key | Extent | SymbolProduct
INT_MAX = (1 << 31) - 1
MOST_UPS = 12


class Extent(NamedTuple):
    """Symbol: the extent of axis number `axis` of a dynamic array.

    Arrays that are known to have the same shape share it: `shape` is the name of one array
    parameter with that shape, `ndim` its number of axes. `wide`: the array has 64-bit indices.
    """

    shape: str
    ndim: int
    axis: int
    wide: bool = False


def extent_of(array: Value, axis: int) -> Extent:
    t = array.type
    assert isinstance(t, Array)
    return Extent(shape_source_name(array), t.ndim, axis, is_wide(array))


class SymbolProduct(NamedTuple):
    """Symbol: `coefficient` times the product of `factors`, all non-negative."""

    coefficient: int
    factors: tuple[Sym, ...]


class ValueFact(NamedTuple):
    """Facts about an integer v: bounds and relations to symbols.

    It states `lo <= v <= hi`, `v <= s + c` for each entry s: c of `ups`, and `v == s + c` if
    `exact` is (s, c).
    """

    lo: int
    hi: int
    ups: Mapping[Sym, int] = {}
    exact: tuple[Sym, int] | None = None


def top_fact(t: Scalar) -> ValueFact:
    return ValueFact(*type_range(t))


def or_top(f: ValueFact, t: Scalar) -> ValueFact:
    """Return f, or top if its interval exceeds the range of type t."""
    lo, hi = type_range(t)
    return f if lo <= f.lo and f.hi <= hi else ValueFact(lo, hi)


def shift_fact(f: ValueFact, c: int) -> ValueFact:
    """The fact about v + c, from the fact f about v."""
    exact = (f.exact[0], f.exact[1] + c) if f.exact else None
    return ValueFact(f.lo + c, f.hi + c, {s: k + c for s, k in f.ups.items()}, exact)


def meet_facts(a: ValueFact, b: ValueFact) -> ValueFact:
    """Conjunction of two facts."""
    return ValueFact(max(a.lo, b.lo), min(a.hi, b.hi), least_ups(a.ups, b.ups), a.exact or b.exact)


def join_facts(a: ValueFact, b: ValueFact, least: Callable[[Sym], int] | None = None) -> ValueFact:
    """Disjunction of two facts.

    `least`, if given, returns lower bounds of symbols. For a symbol bound in only one of the facts,
    the other fact's `v <= hi` implies `v <= s + (hi - least(s))`.
    """
    ups = {s: max(c, b.ups[s]) for s, c in a.ups.items() if s in b.ups}
    if least is not None:
        for one, other in ((a, b), (b, a)):
            ups |= {s: max(c, other.hi - least(s)) for s, c in one.ups.items() if s not in ups}
    exact = a.exact if a.exact == b.exact else None
    return ValueFact(min(a.lo, b.lo), max(a.hi, b.hi), ups, exact)


def least_ups(a: Mapping[Sym, int], b: Mapping[Sym, int]) -> Mapping[Sym, int]:
    """Union of two sets of upper bounds; a common symbol gets the smaller constant.

    If both are non-empty, symbols of `b` that would exceed MOST_UPS are dropped.
    """
    if not a or not b:
        return a or b
    ups = dict(a)
    for s, c in b.items():
        if s in ups:
            ups[s] = min(ups[s], c)
        elif len(ups) < MOST_UPS:
            ups[s] = c
    return ups


def divide(a: ValueFact, b: ValueFact, divisor: SymbolProduct) -> ValueFact:
    """The fact about a // b for a >= 0, b >= 1. `divisor` is a product that equals b.

    `a <= divisor * e - 1` implies `a // b <= e - 1`.
    """
    lo, hi = a.lo // b.hi, a.hi // b.lo
    ups = {s: c for s, c in a.ups.items() if c <= 0}
    for s, c in a.ups.items():
        rest = cancel(s, divisor) if c < 0 else None
        if rest is not None and not rest.factors:
            hi = min(hi, rest.coefficient - 1)
        elif rest is not None:
            ups[as_symbol(rest)] = -1
    return ValueFact(lo, hi, ups)


def cancel(s: Sym, divisor: SymbolProduct) -> SymbolProduct | None:
    """The quotient s / divisor.

    None unless all factors of `divisor` occur literally in s, and its coefficient divides that of
    s.
    """
    p = s if isinstance(s, SymbolProduct) else SymbolProduct(1, (s,))
    factors = list(p.factors)
    for factor in divisor.factors:
        if factor not in factors:
            return None
        factors.remove(factor)
    if divisor.coefficient < 1 or p.coefficient % divisor.coefficient:
        return None
    return SymbolProduct(p.coefficient // divisor.coefficient, tuple(factors))


def as_symbol(p: SymbolProduct) -> Sym:
    """Unwrap a product that is a single symbol; return other products unchanged."""
    return p.factors[0] if p.coefficient == 1 and len(p.factors) == 1 else p


# --- quotients by rounded division ---------------------------------------------------------------
#
# Integer quotients computed by rounded float division: `ti.floor(i / n)`, `int(i / n)`.
#
# With IEEE division the rounded result equals the integer quotient if b > 0 and |a| < 2**p, where p
# is the float's number of significant bits.
#
# Proof. Consider a = k * b - 1 with an integer k > 0: a / b is as close below k as possible. Let
# 2**e < k <= 2**(e+1). Floats just below k are 2**(e+1-p) apart, so a value that rounds to k is
# within 2**(e-p) < k * 2**-p of it. But the distance of a / b is 1 / b = k / (k * b), and k * b = a
# + 1 <= 2**p. Above k (negative quotients), k * b = a - 1, and the rounding distance is at most k *
# 2**-p as well. A divisor of more bits is itself rounded, to at least 2**p; the quotient is still
# in (-1, 1).
#
# Devices may divide with an error of 2.5 ulp. For dividends below 2**DEVICE that is less than the
# distance: 2.5 * 2**-23 < 2**-20. Such a quotient rounds correctly once `legalize` has corrected
# quotients that are whole numbers.
#
#     >>> find_quotient("floor", op.args[0], f32)     # floor(cast i / 3.0)
#     RoundedQuotient(kind="floordiv", a=i, b=3, form=f32, ...)

DIGITS = {f16: 11, f32: 24}  # significant bits of the type
DEVICE = {f16: 11, f32: 20}  # f16 is divided as f32


class RoundedQuotient(NamedTuple):
    """An integer division written in floats.

    `kind`: floordiv or truncdiv. `a`, `b`: integer values of any type, or constants. `quotient`:
    the float division, or the product with 1 / b for b = 2**k; `form`: its type.
    """

    kind: str
    a: Value | int
    b: Value | int
    form: Scalar
    quotient: Op

    def operands(self, of: Callable[[Value], ValueFact]) -> tuple[ValueFact, ValueFact]:
        """Facts about a and b; `of` returns the fact of a value."""
        a, b = (ValueFact(v, v) if isinstance(v, int) else of(v) for v in (self.a, self.b))
        return a, b

    def fact(self, of: Callable[[Value], ValueFact]) -> ValueFact | None:
        """The fact about the rounded quotient, valid for inexact device division.

        `of` returns the fact of a value. None if b may be less than 1, or a exceeds the limit of
        DEVICE.
        """
        a, b = self.operands(of)
        if b.lo < 1 or max(-a.lo, a.hi) >= 1 << DEVICE[self.form]:
            return None
        divide = floordiv if self.kind == "floordiv" else truncdiv
        found = divide(i64, (a.lo, a.hi), (b.lo, b.hi))
        return None if found is None else ValueFact(*found)


def find_quotient(kind: str, arg: Value, t: Type) -> RoundedQuotient | None:
    """Match an op of kind `floor`, `trunc` or `cast`, argument `arg` and result type t.

    The argument must be an f16 or f32 division of converted integers, or a product with a power of
    two. A `cast` to an integer may have a `floor` or `trunc` inside. None if it is no such op.
    """
    if not isinstance(t, Scalar) or not isinstance(arg, Op):
        return None
    if kind == "cast":
        if t.kind not in "iu":
            return None
        kind = "trunc"
        if arg.kind in DIVISION_OF and isinstance(arg.args[0], Op):
            kind, arg = arg.kind, arg.args[0]
    if kind not in DIVISION_OF or arg.kind not in ("div", "mul") or arg.type not in DIGITS:
        return None
    a, b = whole(arg.args[0]), divisor(arg)
    assert isinstance(arg.type, Scalar)
    return (
        None if a is None or b is None else RoundedQuotient(DIVISION_OF[kind], a, b, arg.type, arg)
    )


def divisor(op: Op) -> Value | int | None:
    """The integer divisor of a float division; 2**k for a product with the constant 1 / 2**k.

    None for other ops.
    """
    if op.kind == "div":
        return whole(op.args[1])
    factor = constant_float(op.args[1])
    by = 1 / factor if factor else 0.0
    return int(by) if 1 <= by <= 1 << 30 and math.frexp(by)[0] == 0.5 else None


def whole(v: Value) -> Value | int | None:
    """The integer that a float was converted from; an int for a whole constant; otherwise None."""
    number = constant_float(v)
    if number is not None:
        return int(number) if number.is_integer() else None
    if not isinstance(v, Op) or v.kind != "cast":
        return None
    t = v.args[0].type
    return v.args[0] if isinstance(t, Scalar) and t.kind in "iu" else None


def constant_float(v: Value) -> float | None:
    if not is_constant(v) or not isinstance(v.type, Scalar) or v.type.kind != "f":
        return None
    return float(value_of(v.attr, v.type))


# --- transfer functions --------------------------------------------------------------------------

DEEPEST = 60  # levels of operands that are followed; beyond, the fact is top
DEEPEST_CONDITION = 16  # nested logical ops in a condition
DEEPEST_SELECT = 3  # nested selects whose condition is used
MOST_UNDER = 300  # values recomputed under select conditions, per query
DEEPEST_BACKWARD = 5  # levels of operands that an assumption is propagated to
MOST_FACTORS = 8
INFINITE = INT_MAX << 40


class Facts:
    """Memoized facts by value.

    `base` holds the facts of loop indices and of results of control ops. `limits` holds the
    constraints of enclosing conditions on symbols. `block` is the workgroup size, if known.
    """

    def __init__(self, block: int | None = None) -> None:
        self.block = block
        self.base: dict[Key, ValueFact] = {}
        self.limits: dict[Sym, ValueFact] = {}
        self._memo: dict[Key, ValueFact] = {}
        self._numbers: dict[Sym, int] = {}
        self._depth = self._selects = self._steps_back = self._looked = 0

    # --- scopes

    def open(self) -> tuple[dict[Sym, ValueFact], dict[Key, ValueFact]]:
        """Begin a scope of assumptions; pass the result to `close`."""
        saved = self.limits, self._memo
        self.limits, self._memo = dict(self.limits), {}
        return saved

    def close(self, saved: tuple[dict[Sym, ValueFact], dict[Key, ValueFact]]) -> None:
        """End a scope of assumptions; `saved` is the result of `open`."""
        self.limits, self._memo = saved

    def set_base(self, key: Key, f: ValueFact) -> None:
        """Set the fact of a loop index or of a result of a control op."""
        self.base[key] = f

    def forget(self) -> None:
        """Clear the memo after `limits` or `base` changed.

        Facts found under weaker limits stay valid but are less precise.
        """
        self._memo = {}

    # --- queries

    def of(self, key: Key) -> ValueFact:
        """The fact about an integer or bool, or about a tensor component, under the current
        assumptions. Memoized."""
        found = self._memo.get(key)
        if found is None:
            t = scalar_of(key.type if isinstance(key, Value) else key[0].type)
            self._looked = self._looked + bool(self._selects) if self._depth else 0
            self._depth += 1
            f = self._compute(key, t) if self._depth <= DEEPEST else top_fact(t)
            self._depth -= 1
            found = self._finish(key, f)
            if self._depth < DEEPEST:
                self._memo[key] = found
        return found

    def _compute(self, key: Key, t: Scalar) -> ValueFact:
        given = self.base.get(key)
        if given is not None:
            return given
        op = key if isinstance(key, Value) else key[0]
        if isinstance(op, Op) and op.kind == "const" and t.kind != "f":
            n = int(value_of(op.attr if op is key else op.attr[key[1]], t))
            return ValueFact(n, n)
        if not isinstance(op, Op) or t.kind == "f":
            return top_fact(t)
        return or_top(self._apply(op, operands(key), t), t)

    def _apply(self, op: Op, args: list[Key], t: Scalar) -> ValueFact:
        if op.kind in FOLLOWED:
            return FOLLOWED[op.kind](self, op, args)
        interval = TABLE[op.kind].interval
        if interval is None or len(args) < len(op.args):
            return top_fact(t)
        found = interval(t, *[(f.lo, f.hi) for f in map(self.of, args)])
        if found is None:
            return top_fact(t)
        rule, wide = RULES.get(op.kind), ValueFact(*found)
        return rule(self, op, args, wide) if rule is not None else wide

    def _finish(self, key: Key, f: ValueFact) -> ValueFact:
        s, c = f.exact or (key, 0)
        known = self.limits.get(s)
        if known is not None:
            f = meet_facts(f, shift_fact(known, c))
        if f.lo > f.hi:  # unreachable: any fact is true
            f = ValueFact(f.lo, f.lo, f.ups, f.exact)
        is_constant = f.exact is None and f.lo == f.hi
        return ValueFact(f.lo, f.hi, f.ups if is_constant else least_ups({s: c}, f.ups), (s, c))

    def under(self, condition: Key, truth: bool, key: Key) -> ValueFact:
        """The fact of `key` under the assumption that a condition equals `truth`.

        The assumption is ignored beyond DEEPEST_SELECT nested selects or MOST_UNDER values.
        """
        if self._selects >= DEEPEST_SELECT or self._looked >= MOST_UNDER:
            return self.of(key)
        self._selects += 1
        saved = self.open()
        self.assume(condition, truth)
        self.forget()
        f = self.of(key)
        self.close(saved)
        self._selects -= 1
        return f

    # --- assuming

    def limit(self, key: Key, f: ValueFact) -> None:
        """Assume a fact about a value, and its implications for the operands of that value.

        Changes `limits` only; facts memoized before are not updated (see `forget`).
        """
        s, c = self.of(key).exact or (key, 0)
        new = shift_fact(ValueFact(f.lo, f.hi, f.ups), -c)
        self._limit_symbol(s, new)
        if isinstance(s, Op) and s.kind in BACKWARD:
            self.look_back(s, new)
        if isinstance(s, SymbolProduct) and new.lo >= 1:
            for factor in s.factors:
                self._limit_symbol(factor, ValueFact(1, new.hi))

    def look_back(self, op: Op, new: ValueFact) -> None:
        """Propagate an assumed fact to the operands of an op (backward transfer)."""
        if self._steps_back < DEEPEST_BACKWARD:
            self._steps_back += 1
            BACKWARD[op.kind](self, operands(op), new)
            self._steps_back -= 1

    def _limit_symbol(self, s: Sym, new: ValueFact) -> None:
        known = self.limits.get(s)
        self.limits[s] = new if known is None else meet_facts(known, new)

    def assume(self, condition: Key, truth: bool) -> None:
        """Assume that a condition equals `truth`, by changes to `limits`.

        Only its integer comparisons have an effect. Facts memoized before are not updated (see
        `forget`).
        """
        if not isinstance(condition, Value):
            return
        for v, is_true in conjuncts(condition, truth, DEEPEST_CONDITION):
            if isinstance(v, Op) and v.kind in COMPARISONS:
                self._compare(v.kind if is_true else NEGATED[v.kind], *v.args)

    def _compare(self, kind: str, a: Value, b: Value) -> None:
        if scalar_of(a.type).kind not in "iu":
            return
        if GREATER.get(kind) == 0:
            kind, a, b = MIRRORED[kind], b, a
        fa, fb = self.of(a), self.of(b)
        if kind == "eq":
            self.limit(a, fb)
            self.limit(b, fa)
        elif kind == "ne":
            self._exclude(a, fa, fb)
            self._exclude(b, fb, fa)
        else:
            gap = 1 if kind == "lt" else 0
            below = shift_fact(fb, -gap)
            self.limit(a, ValueFact(fa.lo, below.hi, below.ups))
            self.limit(b, ValueFact(fa.lo + gap, fb.hi))

    def _exclude(self, v: Value, f: ValueFact, other: ValueFact) -> None:
        if other.lo == other.hi == f.lo:
            self.limit(v, ValueFact(f.lo + 1, f.hi))
        elif other.lo == other.hi == f.hi:
            self.limit(v, ValueFact(f.lo, f.hi - 1))

    # --- symbols

    def least(self, s: Sym) -> int:
        known = self.limits.get(s)
        if isinstance(s, Extent | SymbolProduct):
            return max(0, known.lo) if known else 0
        return self.of(s).lo

    def product(self, keys: Sequence[Key]) -> SymbolProduct:
        """The symbol for the product of non-negative values; an upper bound if it may wrap."""
        coefficient = 1
        factors: list[Sym] = []
        for key in keys:
            f = self.of(key)
            if f.lo == f.hi:
                coefficient *= f.lo
                continue
            s, c = f.exact or (key, 0)
            inner = next(
                (u for u, k in f.ups.items() if isinstance(u, SymbolProduct) and k == 0), None
            )
            if inner is not None and len(factors) + len(inner.factors) <= MOST_FACTORS:
                coefficient *= inner.coefficient
                factors += inner.factors
            else:
                factors.append(s if c == 0 else key)
        number = self._numbers
        factors.sort(key=lambda s: number.setdefault(s, len(number)))
        return SymbolProduct(coefficient, tuple(factors))

    def exact_product(self, key: Key) -> SymbolProduct:
        """The product that equals a value: a constant, the symbol that the value equals, or the
        value itself."""
        f = self.of(key)
        if f.lo == f.hi:
            return SymbolProduct(f.lo, ())
        s, c = f.exact or (key, 0)
        if isinstance(s, SymbolProduct) and c == 0:
            return s
        return SymbolProduct(1, (s if c == 0 else key,))

    def cannot_wrap(self, p: SymbolProduct) -> bool:
        """True if p is a product of distinct extents of one non-empty array without 64-bit indices.

        That the array is non-empty must be known.
        """
        extents = [s for s in p.factors if isinstance(s, Extent)]
        if p.coefficient != 1 or len(extents) != len(p.factors) or not extents:
            return False
        first = extents[0]
        same_array = all(s.shape == first.shape for s in extents)
        if not same_array or first.wide or len({s.axis for s in extents}) < len(extents):
            return False
        return all(self.least(first._replace(axis=k)) >= 1 for k in range(first.ndim))


def resolve(v: Value, k: int) -> Key:
    """The scalar from which component k of tensor v was made, if an op shows it.

    Otherwise the pair of the innermost tensor and k.
    """
    while isinstance(v, Op):
        if v.kind == "pack":
            return v.args[k]
        if v.kind == "splat":
            return v.args[0]
        if v.kind != "insert":
            break
        if v.attr == k:
            return v.args[1]
        v = v.args[0]
    return (v, k)


def operands(key: Key) -> list[Key]:
    """Operands of the op that defines a value or a component of it.

    Empty for parameters, and for components of ops that are not elementwise.
    """
    if isinstance(key, Value):
        return list(key.args) if isinstance(key, Op) else []
    v, k = key
    if not isinstance(v, Op) or v.kind not in ELEMENTWISE:
        return []
    return [resolve(x, k) if isinstance(x.type, Tensor) else x for x in v.args]


# --- transfer functions --------------------------------------------------------------------------


def _shape(f: Facts, op: Op, args: list[Key]) -> ValueFact:
    array = op.args[0]
    assert isinstance(array.type, Array)
    if array.type.shape is not None:
        n = array.type.shape[op.attr]
        return ValueFact(n, n)
    return ValueFact(0, INT_MAX, {}, (extent_of(array, op.attr), 0))


def _select(f: Facts, op: Op, args: list[Key]) -> ValueFact:
    c, a, b = args
    return join_facts(f.under(c, True, a), f.under(c, False, b), f.least)


def _convert(f: Facts, op: Op, args: list[Key]) -> ValueFact:
    if scalar_of(op.args[0].type).kind != "f":
        return f.of(args[0])
    q = find_quotient(op.kind, op.args[0], op.type)
    return (q and q.fact(f.of)) or top_fact(scalar_of(op.type))


def _component(f: Facts, op: Op, args: list[Key]) -> ValueFact:
    return f.of(resolve(op.args[0], op.attr))


def _local_index(f: Facts, op: Op, args: list[Key]) -> ValueFact:
    return ValueFact(0, f.block - 1 if f.block else INT_MAX)


# Ops whose fact does not come from column `interval`.
FOLLOWED: dict[str, Callable[[Facts, Op, list[Key]], ValueFact]] = {
    "shape": _shape, "select": _select, "cast": _convert, "bitcast": _convert,
    "extract": _component, "local_index": _local_index,
}  # fmt: skip
# Refines the interval of a result, which is passed as a fact.
Rule = Callable[[Facts, Op, "list[Key]", ValueFact], ValueFact]


def _add(f: Facts, op: Op, args: list[Key], wide: ValueFact) -> ValueFact:
    a, b = f.of(args[0]), f.of(args[1])
    if a.lo == a.hi:
        a, b = b, a
    if b.lo == b.hi:
        return shift_fact(a, b.lo)
    return wide._replace(ups=least_ups(shift_fact(a, b.hi).ups, shift_fact(b, a.hi).ups))


def _sub(f: Facts, op: Op, args: list[Key], wide: ValueFact) -> ValueFact:
    a, b = f.of(args[0]), f.of(args[1])
    if b.lo == b.hi:
        return shift_fact(a, -b.lo)
    lo = wide.lo
    s, c = a.exact or (None, 0)
    if s in b.ups:  # b <= s + k, a == s + c
        lo = max(lo, c - b.ups[s])
    return ValueFact(lo, wide.hi, shift_fact(a, -b.lo).ups)


def _mul(f: Facts, op: Op, args: list[Key], wide: ValueFact) -> ValueFact:
    a, b = f.of(args[0]), f.of(args[1])
    if a.lo < 0 or b.lo < 0:
        return wide
    if a.lo == a.hi == 1 or b.lo == b.hi == 1:
        return b if a.lo == a.hi == 1 else a
    p, t = f.product(args), scalar_of(op.type)
    exact = (p, 0) if is_exact(f, args) else None
    if exact and f.cannot_wrap(p):
        return ValueFact(wide.lo, min(wide.hi, INT_MAX), {p: 0}, exact)
    if or_top(wide, t) is wide:
        return ValueFact(wide.lo, wide.hi, {p: 0}, exact)
    return ValueFact(*type_range(t), {p: 0})


def is_exact(f: Facts, keys: Sequence[Key]) -> bool:
    """True if the product of these values equals the product of their symbols."""
    return all(f.product([key]) == f.exact_product(key) for key in keys)


def _quotient(f: Facts, op: Op, args: list[Key], wide: ValueFact) -> ValueFact:
    a, b = f.of(args[0]), f.of(args[1])
    return divide(a, b, f.exact_product(args[1])) if a.lo >= 0 and b.lo >= 1 else wide


def _remainder(f: Facts, op: Op, args: list[Key], wide: ValueFact) -> ValueFact:
    a, b = f.of(args[0]), f.of(args[1])
    below = shift_fact(b, -1).ups if b.lo >= 1 else {}
    return wide._replace(ups=least_ups(below, a.ups) if a.lo >= 0 else below)


def _abs(f: Facts, op: Op, args: list[Key], wide: ValueFact) -> ValueFact:
    a = f.of(args[0])
    return a if a.lo >= 0 else wide


def _min(f: Facts, op: Op, args: list[Key], wide: ValueFact) -> ValueFact:
    a, b = f.of(args[0]), f.of(args[1])
    if a.hi <= b.lo or b.hi <= a.lo:
        return a if a.hi <= b.lo else b
    return wide._replace(ups=least_ups(a.ups, b.ups))


def _max(f: Facts, op: Op, args: list[Key], wide: ValueFact) -> ValueFact:
    a, b = f.of(args[0]), f.of(args[1])
    if a.lo >= b.hi or b.lo >= a.hi:
        return a if a.lo >= b.hi else b
    return wide._replace(ups=join_facts(a, b, f.least).ups)


def _and(f: Facts, op: Op, args: list[Key], wide: ValueFact) -> ValueFact:
    kept = [x.ups for x in map(f.of, args) if x.lo >= 0]
    return wide._replace(ups=reduce(least_ups, kept, {}))


def _shr(f: Facts, op: Op, args: list[Key], wide: ValueFact) -> ValueFact:
    a, b = f.of(args[0]), f.of(args[1])
    if a.lo < 0 or b.lo != b.hi:
        return wide._replace(ups=a.ups) if a.lo >= 0 else wide
    bits = scalar_of(op.type).bits
    size = 1 << (b.lo if 0 <= b.lo < bits else bits)  # a negative amount also shifts out all bits
    return meet_facts(wide, divide(a, ValueFact(size, size), SymbolProduct(size, ())))


def _trips(f: Facts, op: Op, args: list[Key], wide: ValueFact) -> ValueFact:
    begin, end, step = map(f.of, args)
    if step.lo <= 0 <= step.hi:
        return wide
    low, high = (begin, end) if step.lo > 0 else (end, begin)
    return wide._replace(ups=join_facts(ValueFact(0, 0), shift_fact(high, -low.lo), f.least).ups)


RULES: dict[str, Rule] = {
    "add": _add, "sub": _sub, "mul": _mul, "floordiv": _quotient, "truncdiv": _quotient,
    "mod": _remainder, "rem": _remainder, "abs": _abs, "min": _min, "max": _max, "and": _and,
    "shr": _shr, "trip_count": _trips,
}  # fmt: skip


# --- backward transfer functions -----------------------------------------------------------------


def _both_at_least(f: Facts, args: list[Key], new: ValueFact) -> None:
    for key in args:
        f.limit(key, ValueFact(new.lo, INFINITE))


def _both_at_most(f: Facts, args: list[Key], new: ValueFact) -> None:
    for key in args:
        f.limit(key, ValueFact(-INFINITE, new.hi, new.ups))


def _not_zero(f: Facts, args: list[Key], new: ValueFact) -> None:
    """Backward rule of `mul`: if the product is at least 1, so is each non-negative factor.

    That holds even if the product wraps.
    """
    if new.lo < 1:
        return
    for key in args:
        if f.of(key).lo >= 0:
            f.limit(key, ValueFact(1, INFINITE))
        elif isinstance(key, Op) and key.kind == "mul":
            f.look_back(key, ValueFact(1, INFINITE))


BACKWARD: dict[str, Callable[[Facts, list[Key], ValueFact], None]] = {
    "min": _both_at_least, "max": _both_at_most, "mul": _not_zero,
}  # fmt: skip
