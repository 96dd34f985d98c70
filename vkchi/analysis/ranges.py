"""What is known of an integer at a point of the program: transfer functions, one per op.

Components of tensors are followed through elementwise ops: a `Key` is a scalar value, or a tensor
with a component's number. Facts are computed when asked for, from the ops that make a value, with
Python's integers; what may leave its type's range is given up (`lattice.settle`), and so is
dividing by what may be zero. Conditions that hold around limit symbols, so that everything made of
them is known better too.

Must not know: control flow (`bounds` fills `base` and `limits`), what facts are good for.

    >>> f = Facts(); f.of(op_i_mod_32)
    Fact(lo=0, hi=31, ...)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkchi.analysis.conditions import conjuncts
from vkchi.analysis.host_numbers import INTERVALS, type_range
from vkchi.analysis.lattice import (
    INT_MAX,
    Extent,
    Fact,
    Key,
    Product,
    Sym,
    divide,
    extent_of,
    join,
    least_ups,
    meet,
    quotient_of,
    settle,
    shift,
    top,
)
from vkchi.analysis.whole_quotients import find_quotient
from vkchi.ir.core import Op, Value, value_of
from vkchi.types import Array, Scalar, Tensor, scalar_of

DEEPEST = 60  # ops from an index to what it is made of; beyond, nothing is known
DEEPEST_CONDITION = 16  # steps of logic in a condition
DEEPEST_SELECT = 3  # selects in selects whose condition is used
DEEPEST_BACKWARD = 5  # ops from a limited value to what it is made of
MOST_FACTORS = 8
INFINITE = INT_MAX << 40


class Facts:
    """Facts by value, found when asked for. `base` holds those of loop indices and of results of
    control ops, `limits` what conditions around say of symbols."""

    def __init__(self, block: int | None = None) -> None:
        self.block = block
        self.base: dict[Key, Fact] = {}
        self.limits: dict[Sym, Fact] = {}
        self._memo: dict[Key, Fact] = {}
        self._numbers: dict[Sym, int] = {}
        self._depth = self._selects = self._steps_back = 0

    # --- scopes

    def open(self) -> tuple[dict[Sym, Fact], dict[Key, Fact]]:
        """Begin a scope of assumptions; give the result to `close`."""
        saved = self.limits, self._memo
        self.limits, self._memo = dict(self.limits), {}
        return saved

    def close(self, saved: tuple[dict[Sym, Fact], dict[Key, Fact]]) -> None:
        """End a scope."""
        self.limits, self._memo = saved

    def set_base(self, key: Key, f: Fact) -> None:
        """State what is known of a value that no op computes."""
        self.base[key] = f

    def forget(self) -> None:
        """Look at everything again: limits say more now, or `base` something else. (What was found
        before limits grew stays true, it only says less.)"""
        self._memo = {}

    # --- looking up

    def of(self, key: Key) -> Fact:
        """What is known of an integer (or truth value) here."""
        found = self._memo.get(key)
        if found is None:
            t = scalar_of(key.type if isinstance(key, Value) else key[0].type)
            self._depth += 1
            f = self._compute(key, t) if self._depth <= DEEPEST else top(t)
            self._depth -= 1
            found = self._finish(key, f)
            if self._depth < DEEPEST:
                self._memo[key] = found
        return found

    def _compute(self, key: Key, t: Scalar) -> Fact:
        given = self.base.get(key)
        if given is not None:
            return given
        op = key if isinstance(key, Value) else key[0]
        if isinstance(op, Op) and op.kind == "const" and t.kind != "f":
            n = int(value_of(op.attr if op is key else op.attr[key[1]], t))
            return Fact(n, n)
        if not isinstance(op, Op) or t.kind == "f" or op.kind not in RULES:
            return top(t)
        return settle(RULES[op.kind](self, op, operands(key), t), t)

    def _finish(self, key: Key, f: Fact) -> Fact:
        s, c = f.exact or (key, 0)
        known = self.limits.get(s)
        if known is not None:
            f = meet(f, shift(known, c))
        if f.lo > f.hi:  # what never runs; any fact is true there
            f = Fact(f.lo, f.lo, f.ups, f.exact)
        is_constant = f.exact is None and f.lo == f.hi
        return Fact(f.lo, f.hi, f.ups if is_constant else least_ups({s: c}, f.ups), (s, c))

    def under(self, condition: Key, truth: bool, key: Key) -> Fact:
        """What is known of a value where a condition is true (or false)."""
        if self._selects >= DEEPEST_SELECT:
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

    def limit(self, key: Key, f: Fact) -> None:
        """Assume a fact about a value, and what follows for what it is made of."""
        s, c = self.of(key).exact or (key, 0)
        new = shift(Fact(f.lo, f.hi, f.ups), -c)
        self._limit_symbol(s, new)
        if isinstance(s, Op) and s.kind in BACKWARD:
            self.look_back(s, new)
        if isinstance(s, Product) and new.lo >= 1:
            for factor in s.factors:
                self._limit_symbol(factor, Fact(1, new.hi))

    def look_back(self, op: Op, new: Fact) -> None:
        """Assume what follows for the arguments of an op."""
        if self._steps_back < DEEPEST_BACKWARD:
            self._steps_back += 1
            BACKWARD[op.kind](self, operands(op), new)
            self._steps_back -= 1

    def _limit_symbol(self, s: Sym, new: Fact) -> None:
        known = self.limits.get(s)
        self.limits[s] = new if known is None else meet(known, new)

    def assume(self, condition: Key, truth: bool) -> None:
        """Assume a condition."""
        if not isinstance(condition, Value):
            return
        for v, is_true in conjuncts(condition, truth, DEEPEST_CONDITION):
            if isinstance(v, Op) and v.kind in COMPARED:
                self._compare(v.kind if is_true else NEGATED[v.kind], *v.args)

    def _compare(self, kind: str, a: Value, b: Value) -> None:
        if scalar_of(a.type).kind not in "iu":
            return
        if kind in ("gt", "ge"):
            kind, a, b = COMPARED[kind], b, a
        fa, fb = self.of(a), self.of(b)
        if kind == "eq":
            self.limit(a, fb)
            self.limit(b, fa)
        elif kind == "ne":
            self._exclude(a, fa, fb)
            self._exclude(b, fb, fa)
        else:
            gap = 1 if kind == "lt" else 0
            below = shift(fb, -gap)
            self.limit(a, Fact(fa.lo, below.hi, below.ups))
            self.limit(b, Fact(fa.lo + gap, fb.hi))

    def _exclude(self, v: Value, f: Fact, other: Fact) -> None:
        if other.lo == other.hi == f.lo:
            self.limit(v, Fact(f.lo + 1, f.hi))
        elif other.lo == other.hi == f.hi:
            self.limit(v, Fact(f.lo, f.hi - 1))

    # --- symbols

    def least(self, s: Sym) -> int:
        """A lower bound of a symbol."""
        known = self.limits.get(s)
        if isinstance(s, Extent | Product):
            return max(0, known.lo) if known else 0
        return self.of(s).lo

    def product(self, keys: Sequence[Key]) -> Product:
        """The product of non-negative values as a symbol."""
        coefficient = 1
        factors: list[Sym] = []
        for key in keys:
            f = self.of(key)
            if f.lo == f.hi:
                coefficient *= f.lo
                continue
            s, c = f.exact or (key, 0)
            inner = next((u for u, k in f.ups.items() if isinstance(u, Product) and k == 0), None)
            if inner is not None and len(factors) + len(inner.factors) <= MOST_FACTORS:
                coefficient *= inner.coefficient
                factors += inner.factors
            else:
                factors.append(s if c == 0 else key)
        number = self._numbers
        factors.sort(key=lambda s: number.setdefault(s, len(number)))
        return Product(coefficient, tuple(factors))

    def exact_product(self, key: Key) -> Product:
        """The product that a value is exactly; of itself alone where a product may overflow."""
        f = self.of(key)
        if f.lo == f.hi:
            return Product(f.lo, ())
        s, c = f.exact or (key, 0)
        if isinstance(s, Product) and c == 0:
            return s
        return Product(1, (s if c == 0 else key,))

    def cannot_wrap(self, p: Product) -> bool:
        """Whether a product is of different extents of one array that has elements."""
        extents = [s for s in p.factors if isinstance(s, Extent)]
        if p.coefficient != 1 or len(extents) != len(p.factors) or not extents:
            return False
        first = extents[0]
        same_array = all(s.shape == first.shape for s in extents)
        if not same_array or first.wide or len({s.axis for s in extents}) < len(extents):
            return False
        return all(self.least(first._replace(axis=k)) >= 1 for k in range(first.ndim))


def resolve(v: Value, k: int) -> Key:
    """Component k of a tensor, as the scalar it was made of if that can be seen."""
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
    """The arguments of the op that computes a value, or a component of it."""
    if isinstance(key, Value):
        return list(key.args) if isinstance(key, Op) else []
    v, k = key
    if not isinstance(v, Op) or v.kind not in RULES:
        return []
    return [resolve(x, k) if isinstance(x.type, Tensor) else x for x in v.args]


# --- transfer functions --------------------------------------------------------------------------

Rule = Callable[[Facts, Op, "list[Key]", Scalar], Fact]
COMPARED = {"lt": "", "le": "", "gt": "lt", "ge": "le", "eq": "", "ne": ""}
NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


def _shape(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    array = op.args[0]
    assert isinstance(array.type, Array)
    if array.type.shape is not None:
        n = array.type.shape[op.attr]
        return Fact(n, n)
    return Fact(0, INT_MAX, {}, (extent_of(array, op.attr), 0))


def _add(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    a, b = f.of(args[0]), f.of(args[1])
    if a.lo == a.hi:
        a, b = b, a
    if b.lo == b.hi:
        return shift(a, b.lo)
    ups = least_ups(shift(a, b.hi).ups, shift(b, a.hi).ups)
    return Fact(a.lo + b.lo, a.hi + b.hi, ups)


def _sub(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    a, b = f.of(args[0]), f.of(args[1])
    if b.lo == b.hi:
        return shift(a, -b.lo)
    lo = a.lo - b.hi
    s, c = a.exact or (None, 0)
    if s in b.ups:  # b <= s + k, a == s + c
        lo = max(lo, c - b.ups[s])
    return Fact(lo, a.hi - b.lo, shift(a, -b.lo).ups)


def _mul(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    a, b = f.of(args[0]), f.of(args[1])
    ends = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    wide = Fact(min(ends), max(ends))
    if a.lo < 0 or b.lo < 0:
        return wide
    if a.lo == a.hi == 1 or b.lo == b.hi == 1:
        return b if a.lo == a.hi == 1 else a
    p = f.product(args)
    fits = settle(wide, t) is wide
    exact = (p, 0) if is_exact(f, args) else None
    if exact and f.cannot_wrap(p):
        return Fact(wide.lo, min(wide.hi, INT_MAX), {p: 0}, exact)
    if fits:
        return Fact(wide.lo, wide.hi, {p: 0}, exact)
    return Fact(*type_range(t), {p: 0})


def is_exact(f: Facts, keys: Sequence[Key]) -> bool:
    """Whether a product of these values is the product of the symbols they are known by."""
    return all(f.product([key]) == f.exact_product(key) for key in keys)


def _quotient(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    a, b = f.of(args[0]), f.of(args[1])
    if b.lo < 1:
        return top(t)
    return quotient_of(a, b, op.kind) if a.lo < 0 else divide(a, b, f.exact_product(args[1]))


def _remainder(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    a, b = f.of(args[0]), f.of(args[1])
    if b.lo < 1:
        return top(t)
    below = shift(b, -1)
    if a.lo >= 0:
        return Fact(0, min(a.hi, below.hi), least_ups(below.ups, a.ups))
    return Fact(-below.hi if op.kind == "rem" else 0, below.hi, below.ups)


def _neg(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    a = f.of(args[0])
    return Fact(-a.hi, -a.lo)


def _abs(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    a = f.of(args[0])
    return a if a.lo >= 0 else Fact(max(0, -a.hi), max(-a.lo, a.hi))


def _min(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    a, b = f.of(args[0]), f.of(args[1])
    if a.hi <= b.lo or b.hi <= a.lo:
        return a if a.hi <= b.lo else b
    return Fact(min(a.lo, b.lo), min(a.hi, b.hi), least_ups(a.ups, b.ups))


def _max(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    a, b = f.of(args[0]), f.of(args[1])
    if a.lo >= b.hi or b.lo >= a.hi:
        return a if a.lo >= b.hi else b
    return Fact(max(a.lo, b.lo), max(a.hi, b.hi), join(a, b, f.least).ups)


def _and(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    kept = [x for x in map(f.of, args) if x.lo >= 0]
    if not kept:
        return top(t)
    ups = kept[0].ups if len(kept) == 1 else least_ups(kept[0].ups, kept[1].ups)
    return Fact(0, min(x.hi for x in kept), ups)


def _or(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    a, b = f.of(args[0]), f.of(args[1])
    if a.lo < 0 or b.lo < 0:
        return top(t)
    return Fact(max(a.lo, b.lo) if op.kind == "or" else 0, (1 << max(a.hi, b.hi).bit_length()) - 1)


def _not(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    a = f.of(args[0])
    last = 1 if t.kind == "b" else -1 if t.kind == "i" else type_range(t)[1]
    return Fact(last - a.hi, last - a.lo)


def _shift(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    a, b = f.of(args[0]), f.of(args[1])
    if b.lo != b.hi:
        return Fact(0, a.hi, a.ups) if op.kind == "shr" and a.lo >= 0 else top(t)
    k = b.lo if 0 <= b.lo < t.bits else t.bits
    if op.kind == "shl" and k == t.bits:
        return Fact(0, 0)
    if op.kind == "shl":
        return Fact(a.lo << k, a.hi << k)
    if a.lo < 0:
        return Fact(a.lo >> k, a.hi >> k)
    return divide(a, Fact(1 << k, 1 << k), Product(1 << k, ()))


def _select(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    c, a, b = args
    return join(f.under(c, True, a), f.under(c, False, b), f.least)


def _convert(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    if scalar_of(op.args[0].type).kind != "f":
        return f.of(args[0])
    q = find_quotient(op.kind, op.args[0], op.type)
    return (q and q.fact(f.of)) or top(t)


def _trips(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    begin, end, step = map(f.of, args)
    low, high = (begin, end) if step.lo > 0 else (end, begin)
    one_way = step.lo > 0 or step.hi < 0
    ups = join(Fact(0, 0), shift(high, -low.lo), f.least).ups if one_way else {}
    return Fact(*INTERVALS["trip_count"](begin, end, step), ups)


def _count_bits(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    return Fact(0, t.bits)


def _component(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    return f.of(resolve(op.args[0], op.attr))


def _number(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    return Fact(0, INT_MAX)


def _local_index(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    return Fact(0, f.block - 1 if f.block else INT_MAX)


def _sign(f: Facts, op: Op, args: list[Key], t: Scalar) -> Fact:
    return Fact(-1, 1)


RULES: dict[str, Rule] = {
    "shape": _shape, "add": _add, "sub": _sub, "mul": _mul, "neg": _neg,
    "floordiv": _quotient, "truncdiv": _quotient, "mod": _remainder, "rem": _remainder,
    "abs": _abs, "sign": _sign, "min": _min, "max": _max, "and": _and, "or": _or, "xor": _or,
    "not": _not, "shl": _shift, "shr": _shift, "popcnt": _count_bits, "clz": _count_bits,
    "select": _select, "cast": _convert, "bitcast": _convert, "extract": _component,
    "trip_count": _trips, "local_index": _local_index, "thread_index": _number,
    "group_index": _number, "group_size": _number, "grid_size": _number, "subgroup_size": _number,
    "subgroup_index": _number,
}  # fmt: skip


# --- from a value to what it is made of ----------------------------------------------------------


def _both_at_least(f: Facts, args: list[Key], new: Fact) -> None:
    for key in args:
        f.limit(key, Fact(new.lo, INFINITE))


def _both_at_most(f: Facts, args: list[Key], new: Fact) -> None:
    for key in args:
        f.limit(key, Fact(-INFINITE, new.hi, new.ups))


def _not_zero(f: Facts, args: list[Key], new: Fact) -> None:
    """A product that is not zero, even a wrapped one, has no factor that is."""
    if new.lo < 1:
        return
    for key in args:
        if f.of(key).lo >= 0:
            f.limit(key, Fact(1, INFINITE))
        elif isinstance(key, Op) and key.kind == "mul":
            f.look_back(key, Fact(1, INFINITE))


BACKWARD: dict[str, Callable[[Facts, list[Key], Fact], None]] = {
    "min": _both_at_least, "max": _both_at_most, "mul": _not_zero,
}  # fmt: skip
