"""Integers as what they are made of: polynomials in loop indices and in what a launch knows.

A `Polynomial` is a sum of monomials with whole coefficients; a symbol in it stands for one integer:
- a value (a loop's index, an argument, whatever is not made by sums and products), as itself: of
  pure ops with equal operands, wherever they stand, the one that was seen first;
- `Extent`, of an array's axis;
- `Digit`, `(p // divisor) % modulus` of a polynomial that is known not to be negative.

What is taken for given: a value of a type of n bits is its polynomial modulo 2**n, for sums,
differences and products wrap. It is the polynomial itself where that lies in the type (`is_exact`);
only then anything but sums and products is looked through: quotients, remainders, wider types.

Owns: `Forms`, which reads values, and arithmetic of polynomials. Must not know: loops in which
values differ, what is asked.

    >>> Forms(ranges).of(op)                # 2 * (i + 1) - n
    {i: 2, 1: 2, n: -1}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import product

from vkchi.analysis.intervals import Intervals
from vkchi.analysis.lattice import Extent, extent_of
from vkchi.ir.constants import constant_int
from vkchi.ir.core import Op, Param, Value
from vkchi.ir.intervals import Interval, type_range
from vkchi.ir.ops import CHOICES, CONVERSIONS, DIVISIONS, REMAINDERS, TABLE, Effect
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Type

Symbol = Hashable  # Value | Extent | Digit
Monomial = frozenset[tuple[Symbol, int]]  # symbols and their powers
Polynomial = dict[Monomial, int]
Frozen = frozenset[tuple[Monomial, int]]
Term = tuple[Monomial, int]
ONE: Monomial = frozenset()
LEAST_BITS = 32
DEEPEST = 60  # ops from a value to what it is made of; beyond, it is a symbol
MOST_TERMS = 12
MOST_FACTORS = 4
INT_MAX = (1 << 31) - 1


class Digit(NamedTuple):
    """`(p // divisor) % modulus`, divisor and modulus as terms of positive symbols; without modulus
    nothing is cut off."""

    of: Frozen
    divisor: Term = (ONE, 1)
    modulus: Term | None = None

    def parts(self) -> list[Polynomial]:
        """What it is made of."""
        terms = [self.divisor, *((self.modulus,) if self.modulus is not None else ())]
        return [dict(self.of), *map(as_polynomial, terms)]


class Forms:
    """The polynomials of values, where their ranges are these, and the array has elements."""

    def __init__(self, ranges: Intervals, array: Param | None = None) -> None:
        self.ranges, self.array = ranges, array
        self.known: dict[Value, Polynomial] = {}
        self.keys: dict[Value, Hashable] = {}
        self.first: dict[Hashable, Value] = {}
        self._depth = 0

    def of(self, v: Value) -> Polynomial:
        """An integer as a polynomial."""
        found = self.known.get(v)
        if found is None:
            self._depth += 1
            found = self._read(v)
            self._depth -= 1
            self.known[v] = found
        return found

    def _read(self, v: Value) -> Polynomial:
        t = v.type
        if not is_wide_integer(t) or self._depth > DEEPEST:
            return symbol(v)
        n = constant_int(v)
        found = self.ranges.of(v) if n is None else (n, n)
        if found is not None and found[0] == found[1]:
            return number(found[0])
        if isinstance(v, Op):
            made = self._op(v)
            if made is not None and is_small(made):
                return made
        return symbol(self.representative(v))

    def _op(self, op: Op) -> Polynomial | None:
        """What an op makes of polynomials; None where that is none."""
        rule = MADE.get(op.kind)
        if rule is not None:
            return rule(*map(self.of, op.args))
        if op.kind in CONVERSIONS:
            return self._converted(op)
        if op.kind in DIVISIONS:
            return self._divided(op)
        if op.kind == "shl":
            n = constant_int(op.args[1])
            if n is None or not 0 <= n < LEAST_BITS:
                return None
            return times(self.of(op.args[0]), number(1 << n))
        if op.kind in CHOICES:
            return self._chosen(op)
        return symbol(extent_of(op.args[0], op.attr)) if op.kind == "shape" else None

    def _chosen(self, op: Op) -> Polynomial | None:
        """The lesser or the greater, if it is always the same one."""
        a, b = map(self.of, op.args)
        t = op.type
        assert isinstance(t, Scalar)
        if not self.is_exact(a, t) or not self.is_exact(b, t):
            return None
        low, high = (b, a) if is_least(a, b, self.is_positive) else (a, b)
        if not is_least(high, low, self.is_positive):
            return None
        return high if op.kind == "max" else low

    def is_positive(self, s: Symbol) -> bool:
        """Whether a symbol is at least 1."""
        if isinstance(s, Extent):
            return s == self._extent_of_array(s.axis)
        return self.range_of(s)[0] >= 1

    def _converted(self, op: Op) -> Polynomial | None:
        """The operand, where the type holds it or is as narrow as the operand's."""
        old, new = op.args[0].type, op.type
        if not is_wide_integer(old) or not isinstance(old, Scalar) or not isinstance(new, Scalar):
            return None
        p = self.of(op.args[0])
        return p if new.bits <= old.bits or self.is_exact(p, old) else None

    def _divided(self, op: Op) -> Polynomial | None:
        """A digit, if the dividend is never negative and the divisor a positive term."""
        a, b = map(self.of, op.args)
        term, t = only_term(b), op.type
        assert isinstance(t, Scalar)
        if term is None or not self.is_positive_term(term):
            return None
        if not self.is_exact(a, t) or not self.is_exact(b, t):
            return None
        if self.interval(a)[0] < 0:
            return None
        digit = only_digit(a) or Digit(freeze(a))
        if digit.modulus is not None:
            digit = Digit(freeze(a))
        if op.kind in REMAINDERS:
            return symbol(digit._replace(modulus=term))
        (divisor,) = times(as_polynomial(digit.divisor), b).items()
        return symbol(digit._replace(divisor=divisor))

    # --- sameness

    def key(self, v: Value) -> Hashable:
        """Equal for values that are computed alike, of one invocation: which are the same."""
        found = self.keys.get(v)
        if found is None:
            self._depth += 1
            found = self.keys[v] = self._key(v)
            self._depth -= 1
        return found

    def _key(self, v: Value) -> Hashable:
        if is_wide_integer(v.type):
            return v.type, freeze(self.of(v))
        return self.representative(v)

    def representative(self, v: Value) -> Value:
        """The first value seen that is computed like v."""
        if not isinstance(v, Op) or TABLE[v.kind].effect is not Effect.PURE:
            return v
        if self._depth > DEEPEST:
            return v
        made = (v.kind, v.attr, v.type, *map(self.key, v.args))
        return self.first.setdefault(made, v)

    # --- ranges

    def range_of(self, s: Symbol) -> Interval:
        """What a symbol lies in."""
        if isinstance(s, Extent):
            return 0, INT_MAX
        if isinstance(s, Digit):
            return 0, self._most_of_digit(s)
        assert isinstance(s, Value)
        found = self.ranges.bound(s) or (0, 0)
        return found[0], max(found)

    def _most_of_digit(self, d: Digit) -> int:
        least = max(1, self.term_range(d.divisor)[0])
        most = max(0, self.interval(dict(d.of))[1] // least)
        return most if d.modulus is None else min(most, max(0, self.term_range(d.modulus)[1] - 1))

    def term_range(self, term: Term) -> Interval:
        """What a term lies in."""
        monomial, c = term
        low = high = c
        for s, power in monomial:
            ends = self.range_of(s)
            for _ in range(power):
                corners = [x * y for x in (low, high) for y in ends]
                low, high = min(corners), max(corners)
        if high > c * INT_MAX and self.is_volume(monomial):
            high = c * INT_MAX
        return low, high

    def is_volume(self, monomial: Monomial) -> bool:
        """Whether a monomial is of extents of one array, which i32 holds: all of them, or different
        ones of the array that has elements."""
        first = next((s for s, _ in monomial), None)
        if not isinstance(first, Extent) or first.wide:
            return False
        axes = [s.axis for s, k in monomial
                if isinstance(s, Extent) and s[:2] == first[:2] and k == 1]  # fmt: skip
        is_all = len(axes) == first.ndim or first == self._extent_of_array(first.axis)
        return is_all and len(axes) == len(monomial)

    def _extent_of_array(self, axis: int) -> Extent | None:
        """The extent of an axis of the array that has elements, if it has the axis."""
        t = self.array.type if self.array is not None else None
        if self.array is None or not isinstance(t, Array) or axis >= t.ndim:
            return None
        return extent_of(self.array, axis)

    def interval(self, p: Polynomial) -> Interval:
        """What a polynomial lies in."""
        parts = [self.term_range(term) for term in p.items()]
        return sum(low for low, _ in parts), sum(high for _, high in parts)

    def is_exact(self, p: Polynomial, t: Scalar) -> bool:
        """Whether a type holds all that a polynomial may be."""
        (low, high), (least, most) = self.interval(p), type_range(t)
        return least <= low and high <= most

    def is_positive_term(self, term: Term) -> bool:
        """Whether a term is surely above 0, but for extents that are 0: to divide by those has no
        meaning."""
        monomial, c = term
        return c > 0 and all(isinstance(s, Extent) or self.range_of(s)[0] > 0 for s, _ in monomial)


def is_wide_integer(t: Type | None) -> bool:
    """Whether a type is of integers that indices are made of."""
    return isinstance(t, Scalar) and t.kind in "iu" and t.bits >= LEAST_BITS


# --- polynomials ---------------------------------------------------------------------------------


def number(n: int) -> Polynomial:
    """A constant."""
    return {ONE: n} if n else {}


def symbol(s: Symbol) -> Polynomial:
    """One symbol."""
    return {frozenset(((s, 1),)): 1}


def as_polynomial(term: Term) -> Polynomial:
    """One term."""
    return dict([term])


def freeze(p: Polynomial) -> Frozen:
    """A polynomial that can be a key."""
    return frozenset(p.items())


def plus(a: Polynomial, b: Polynomial, sign: int = 1) -> Polynomial:
    """a + b, or a - b."""
    found = dict(a)
    for m, c in b.items():
        found[m] = found.get(m, 0) + sign * c
    return {m: c for m, c in found.items() if c}


def minus(a: Polynomial, b: Polynomial) -> Polynomial:
    """a - b."""
    return plus(a, b, -1)


def negative(a: Polynomial) -> Polynomial:
    """-a."""
    return {m: -c for m, c in a.items()}


def times(a: Polynomial, b: Polynomial) -> Polynomial:
    """a times b."""
    found: Polynomial = {}
    for (m, c), (n, d) in product(a.items(), b.items()):
        both = merged(m, n) if m and n else m or n
        found[both] = found.get(both, 0) + c * d
    return {m: c for m, c in found.items() if c}


def merged(m: Monomial, n: Monomial) -> Monomial:
    """The product of two monomials."""
    powers = Counter(dict(m))
    powers.update(dict(n))
    return frozenset(powers.items())


def is_small(p: Polynomial) -> bool:
    """Whether a polynomial has few terms of few factors."""
    return len(p) <= MOST_TERMS and all(sum(k for _, k in m) <= MOST_FACTORS for m in p)


# Ops that make polynomials of polynomials.
MADE: dict[str, Callable[..., Polynomial]] = {
    "add": plus, "sub": minus, "mul": times, "neg": negative,
}  # fmt: skip


def only_term(p: Polynomial) -> Term | None:
    """The term that a polynomial is, if it has one."""
    return next(iter(p.items())) if len(p) == 1 else None


def only_symbol(p: Polynomial) -> Symbol | None:
    """The symbol that a polynomial is, if it is nothing else."""
    monomial = next(iter(p), ONE)
    if len(monomial) != 1 or p != {monomial: 1}:
        return None
    ((s, power),) = monomial
    return s if power == 1 else None


def only_digit(p: Polynomial) -> Digit | None:
    """The digit that a polynomial is, if it is nothing else."""
    s = only_symbol(p)
    return s if isinstance(s, Digit) else None


def symbols_in(p: Polynomial) -> Iterator[Symbol]:
    """The symbols of a polynomial, not those inside digits."""
    return (s for m in p for s, _ in m)


def all_symbols(ps: Iterable[Polynomial]) -> Iterator[Symbol]:
    """The symbols of polynomials, and those inside digits."""
    for p in ps:
        for s in symbols_in(p):
            yield s
            if isinstance(s, Digit):
                yield from all_symbols(s.parts())


def is_constant(p: Polynomial) -> int | None:
    """The number that a polynomial is, if it is one."""
    if not p:
        return 0
    return p[ONE] if len(p) == 1 and ONE in p else None


def is_least(p: Polynomial, q: Polynomial, is_positive: Callable[[Symbol], bool]) -> bool:
    """Whether p is at least q, whatever the symbols are that are at least 1: written in what they
    are more than 1, the difference has no negative coefficients."""
    found: Polynomial = {}
    for m, c in minus(p, q).items():
        factors = [s for s, power in m for _ in range(power)]
        if not all(map(is_positive, factors)):
            return False
        for kept in product((True, False), repeat=len(factors)):
            part = frozenset(Counter(s for s, is_kept in zip(factors, kept) if is_kept).items())
            found[part] = found.get(part, 0) + c
    return all(c >= 0 for c in found.values())
