"""Polynomials over values: integer arithmetic modulo the range of the type.

A `Polynomial` is a sum of monomials with integer coefficients; each symbol in it denotes one
integer. Sums, differences, negations and products are decomposed. All of them wrap, so two values
of one type with equal polynomials are equal even if an intermediate result overflows.
`AffinePolynomials` is affine: a product of two values is a symbol. For example, `7 - (t - u)` is
`-1 * t + 1 * u + 7`.

`ExactPolynomials` decomposes further ops if they do not overflow. `split_offset` decomposes only
into one value plus a constant.

    >>> terms_of(AffinePolynomials().of(v))
    {t: -1, u: 1}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import product

from vkchi.analysis.values.interval_analysis import Intervals
from vkchi.analysis.values.ranges import Extent, extent_of
from vkchi.ir.core import Op, Param, Value, constant_int
from vkchi.ir.op_table.interval_rules import Interval, type_range
from vkchi.ir.ops import (
    CHOICES,
    CONVERSIONS,
    DIVISIONS,
    LINEAR,
    REMAINDERS,
    SUMS,
    TABLE,
    Effect,
    Trait,
    kinds_with,
)
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Type, is_integral, scalar_of

Symbol = Hashable  # Value, or a symbol of `ExactPolynomials`
Monomial = frozenset[tuple[Symbol, int]]  # symbols and their powers
Polynomial = dict[Monomial, int]
Frozen = frozenset[tuple[Monomial, int]]
Term = tuple[Monomial, int]
ONE: Monomial = frozenset()


class AffinePolynomials:
    """Affine polynomials of values, modulo the range of the type."""

    deepest = 24  # levels of operands that are followed; beyond, a value is a symbol
    most_terms, most_factors = 9, 1

    def __init__(self) -> None:
        self.known: dict[Value, Polynomial] = {}
        self._depth = 0

    def of(self, v: Value) -> Polynomial:
        """The polynomial of an integer, memoized."""
        found = self.known.get(v)
        if found is None:
            self._depth += 1
            found = self.read(v)
            self._depth -= 1
            self.known[v] = found
        return found

    def read(self, v: Value) -> Polynomial:
        width = scalar_of(v.type).bits
        n = constant_int(v)
        if n is not None:
            return constant_polynomial(signed(n, width))
        made = self.made(v) if isinstance(v, Op) else None
        if made is None:
            return symbol_polynomial(v)
        found = {m: signed(c, width) for m, c in made.items()}
        return {m: c for m, c in found.items() if c}

    def made(self, op: Op) -> Polynomial | None:
        """The polynomial of a sum, difference, negation or product, from those of its operands.

        None for other ops, if it is not `is_small`, or below `deepest` nested operands.
        """
        if op.kind not in LINEAR or self._depth > self.deepest:
            return None
        made = RING[op.kind](*map(self.of, op.args))
        return made if self.is_small(made) else None

    def is_small(self, p: Polynomial) -> bool:
        """True if a polynomial has at most `most_terms` terms of at most `most_factors` factors."""
        most = self.most_factors
        return len(p) <= self.most_terms and all(sum(k for _, k in m) <= most for m in p)


class WrappedSums(AffinePolynomials):
    """Polynomials of integers of one width; signed and unsigned wrap alike."""

    def made(self, op: Op) -> Polynomial | None:
        """The operand's polynomial for a bitcast between integers, which preserves it modulo the
        range."""
        if op.kind == "bitcast" and is_integer(op) and is_integer(op.args[0]):
            return self.of(op.args[0])
        return super().made(op)


def is_integer(v: Value) -> bool:
    return isinstance(v.type, Scalar) and v.type.kind in "iu"


def signed(n: int, width: int) -> int:
    """Reduce n to the signed range of this width."""
    half = 1 << (width - 1)
    return (n + half) % (2 * half) - half


# --- a value plus a constant ---------------------------------------------------------------------


class OffsetIndex(NamedTuple):
    """A value plus a constant (modulo the value's width), or a constant alone."""

    root: Value | None
    offset: int


def split_offset(v: Value) -> OffsetIndex:
    """Split an index into a value plus a constant. A constant index is not reduced modulo the
    width."""
    assert isinstance(v.type, Scalar)
    width = 1 << v.type.bits
    offset = 0
    while True:
        n = constant_int(v)
        if n is not None:
            return OffsetIndex(None, n + offset)
        if not isinstance(v, Op) or v.kind not in SUMS or len(v.args) < 2:
            return OffsetIndex(v, offset % width)
        (a, b), sign = v.args, SUMS[v.kind][1]
        n = constant_int(b)
        if n is not None:
            v, offset = a, offset + sign * n
            continue
        n = constant_int(a)
        if n is None or sign < 0:
            return OffsetIndex(v, offset % width)
        v, offset = b, offset + n


# --- polynomials ---------------------------------------------------------------------------------


def constant_polynomial(n: int) -> Polynomial:
    return {ONE: n} if n else {}


def symbol_polynomial(s: Symbol) -> Polynomial:
    return {frozenset(((s, 1),)): 1}


def as_polynomial(term: Term) -> Polynomial:
    return dict([term])


def freeze(p: Polynomial) -> Frozen:
    """A hashable copy of a polynomial."""
    return frozenset(p.items())


def plus(a: Polynomial, b: Polynomial, sign: int = 1) -> Polynomial:
    """a + sign * b."""
    found = dict(a)
    for m, c in b.items():
        found[m] = found.get(m, 0) + sign * c
    return {m: c for m, c in found.items() if c}


def minus(a: Polynomial, b: Polynomial) -> Polynomial:
    return plus(a, b, -1)


def negative(a: Polynomial) -> Polynomial:
    return {m: -c for m, c in a.items()}


def times(a: Polynomial, b: Polynomial) -> Polynomial:
    found: Polynomial = {}
    for (m, c), (n, d) in product(a.items(), b.items()):
        both = merged(m, n) if m and n else m or n
        found[both] = found.get(both, 0) + c * d
    return {m: c for m, c in found.items() if c}


def merged(m: Monomial, n: Monomial) -> Monomial:
    powers = Counter(dict(m))
    powers.update(dict(n))
    return frozenset(powers.items())


# Ring operations on polynomials.
RING: dict[str, Callable[..., Polynomial]] = {
    "add": plus, "sub": minus, "mul": times, "neg": negative,
}  # fmt: skip


def terms_of(p: Polynomial) -> dict[Value, int]:
    """Coefficients of the values in an affine polynomial; the constant and other symbols are
    omitted."""
    return {s: c for m, c in p.items() for s, _ in m if isinstance(s, Value)}


def factor_of(v: Value, p: Polynomial) -> int:
    """Coefficient of the linear monomial v."""
    return p.get(frozenset(((v, 1),)), 0)


def constant_of(p: Polynomial) -> int:
    return p.get(ONE, 0)


def only_term(p: Polynomial) -> Term | None:
    return next(iter(p.items())) if len(p) == 1 else None


def only_symbol(p: Polynomial) -> Symbol | None:
    """The symbol that the polynomial equals, or None."""
    monomial = next(iter(p), ONE)
    if len(monomial) != 1 or p != {monomial: 1}:
        return None
    ((s, power),) = monomial
    return s if power == 1 else None


def symbols_in(p: Polynomial) -> Iterator[Symbol]:
    """The symbols of a polynomial, except those inside a `MixedRadixDigit`; may repeat."""
    return (s for m in p for s, _ in m)


def polynomial_constant(p: Polynomial) -> int | None:
    """The constant that a polynomial equals, or None."""
    if not p:
        return 0
    return p[ONE] if len(p) == 1 and ONE in p else None


def is_least(p: Polynomial, q: Polynomial, is_positive: Callable[[Symbol], bool]) -> bool:
    """True if p >= q is proved for all values of the symbols, each of which is at least 1.

    p - q is rewritten in terms of `s - 1`; it is non-negative if all coefficients are. False if a
    symbol in p - q does not satisfy `is_positive`.
    """
    found: Polynomial = {}
    for m, c in minus(p, q).items():
        factors = [s for s, power in m for _ in range(power)]
        if not all(map(is_positive, factors)):
            return False
        for kept in product((True, False), repeat=len(factors)):
            part = frozenset(Counter(s for s, is_kept in zip(factors, kept) if is_kept).items())
            found[part] = found.get(part, 0) + c
    return all(c >= 0 for c in found.values())


# --- quotients and remainders --------------------------------------------------------------------
#
# Index expressions as polynomials with quotients and remainders, and proofs that they do not wrap.
#
# A symbol of such a `Polynomial` denotes one integer:
#
# - a value that is not decomposed, such as a loop index or an argument. Pure ops with equal
#   operands share one symbol, the first such op seen (value numbering);
# - `Extent`: the extent of an array axis;
# - `MixedRadixDigit`: `(p // divisor) % modulus` of a non-negative polynomial p.
#
# A value of an n-bit type equals its polynomial modulo 2**n, because sums and products wrap. It
# equals the polynomial itself if the type holds all its values (`exact`). Quotients, remainders,
# `min`, `max` and widening conversions are decomposed only if that holds for their operands.
#
#     >>> ExactPolynomials(ranges).of(op)                # 2 * (i + 1) - n
#     {i: 2, 1: 2, n: -1}

LEAST_BITS = 32
INT_MAX = (1 << 31) - 1


class MixedRadixDigit(NamedTuple):
    """`(of // divisor) % modulus`; divisor and modulus are positive terms.

    Without a modulus it is the quotient.
    """

    of: Frozen
    divisor: Term = (ONE, 1)
    modulus: Term | None = None

    def parts(self) -> list[Polynomial]:
        """The polynomials `of`, `divisor` and, if given, `modulus`."""
        terms = [self.divisor, *((self.modulus,) if self.modulus is not None else ())]
        return [dict(self.of), *map(as_polynomial, terms)]


class ExactPolynomials(AffinePolynomials):
    """Polynomials of integers, given their intervals `ranges`; `array`, if given, is assumed
    non-empty."""

    deepest, most_terms, most_factors = 60, 12, 4

    def __init__(self, ranges: Intervals, array: Param | None = None) -> None:
        super().__init__()
        self.ranges, self.array = ranges, array
        self.keys: dict[Value, Hashable] = {}
        self.first: dict[Hashable, Value] = {}

    def exact(self, v: Value) -> Polynomial | None:
        """The polynomial that an integer equals without wrapping; None if it may wrap."""
        p = self.of(v)
        return p if isinstance(v.type, Scalar) and self.is_exact(p, v.type) else None

    def read(self, v: Value) -> Polynomial:
        if not is_wide_integer(v.type) or self._depth > self.deepest:
            return symbol_polynomial(v)
        n = constant_int(v)
        found = self.ranges.of(v) if n is None else (n, n)
        if found is not None and found[0] == found[1]:
            return constant_polynomial(found[0])
        made = self.made(v) if isinstance(v, Op) else None
        return symbol_polynomial(self.representative(v)) if made is None else made

    def made(self, op: Op) -> Polynomial | None:
        """The polynomial of an op from those of its operands; None if it is not decomposed."""
        made = super().made(op) if op.kind in LINEAR else self._exact_op(op)
        return made if made is not None and self.is_small(made) else None

    def _exact_op(self, op: Op) -> Polynomial | None:
        if op.kind in CONVERSIONS:
            return self._converted(op)
        if op.kind in DIVISIONS:
            return self._divided(op)
        if op.kind == "shl":
            n = constant_int(op.args[1])
            if n is None or not 0 <= n < LEAST_BITS:
                return None
            return times(self.of(op.args[0]), constant_polynomial(1 << n))
        if op.kind in CHOICES:
            return self._chosen(op)
        return symbol_polynomial(extent_of(op.args[0], op.attr)) if op.kind == "shape" else None

    def _chosen(self, op: Op) -> Polynomial | None:
        """The polynomial of the operand that a `min` or `max` provably always returns, or None."""
        a, b = map(self.exact, op.args)
        if a is None or b is None:
            return None
        low, high = (b, a) if is_least(a, b, self.is_positive) else (a, b)
        if not is_least(high, low, self.is_positive):
            return None
        return high if op.kind == "max" else low

    def is_positive(self, s: Symbol) -> bool:
        """True if a symbol is proved to be at least 1. An extent counts only if it is one of
        `array`."""
        if isinstance(s, Extent):
            return s == self._extent_of_array(s.axis)
        return self.range_of(s)[0] >= 1

    def _converted(self, op: Op) -> Polynomial | None:
        """The operand's polynomial for a conversion from an integer of at least 32 bits, or None.

        A widening conversion also needs an operand that does not wrap.
        """
        old, new = op.args[0].type, op.type
        if not is_wide_integer(old) or not isinstance(old, Scalar) or not isinstance(new, Scalar):
            return None
        return self.of(op.args[0]) if new.bits <= old.bits else self.exact(op.args[0])

    def _divided(self, op: Op) -> Polynomial | None:
        """The digit that a quotient or remainder equals, or None.

        The dividend must be non-negative and the divisor a positive term, both without wrapping.
        """
        a, b = map(self.exact, op.args)
        term = only_term(b) if b is not None else None
        if a is None or b is None or term is None or not self.is_positive_term(term):
            return None
        if self.interval(a)[0] < 0:
            return None
        digit = only_digit(a) or MixedRadixDigit(freeze(a))
        if digit.modulus is not None:
            digit = MixedRadixDigit(freeze(a))
        if op.kind in REMAINDERS:
            return symbol_polynomial(digit._replace(modulus=term))
        (divisor,) = times(as_polynomial(digit.divisor), b).items()
        return symbol_polynomial(digit._replace(divisor=divisor))

    # --- value numbering

    def key(self, v: Value) -> Hashable:
        """Value number: equal keys imply equal values within one invocation."""
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
        """The first value seen with the same op, attribute, type and operand keys.

        v itself if its op is not pure, or nested too deeply.
        """
        if not isinstance(v, Op) or TABLE[v.kind].effect is not Effect.PURE:
            return v
        if self._depth > self.deepest:
            return v
        made = (v.kind, v.attr, v.type, *map(self.key, v.args))
        return self.first.setdefault(made, v)

    # --- ranges

    def range_of(self, s: Symbol) -> Interval:
        if isinstance(s, Extent):
            return 0, INT_MAX
        if isinstance(s, MixedRadixDigit):
            return 0, self._most_of_digit(s)
        assert isinstance(s, Value)
        found = self.ranges.bound(s) or (0, 0)
        return found[0], max(found)

    def _most_of_digit(self, d: MixedRadixDigit) -> int:
        least = max(1, self.term_range(d.divisor)[0])
        most = max(0, self.interval(dict(d.of))[1] // least)
        return most if d.modulus is None else min(most, max(0, self.term_range(d.modulus)[1] - 1))

    def term_range(self, term: Term) -> Interval:
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
        """True if a monomial is a product of extents that is known to fit in i32.

        The factors are all extents of one array, or distinct extents of the array assumed to be
        non-empty.
        """
        first = next((s for s, _ in monomial), None)
        if not isinstance(first, Extent) or first.wide:
            return False
        axes = [s.axis for s, k in monomial
                if isinstance(s, Extent) and s[:2] == first[:2] and k == 1]  # fmt: skip
        is_all = len(axes) == first.ndim or first == self._extent_of_array(first.axis)
        return is_all and len(axes) == len(monomial)

    def _extent_of_array(self, axis: int) -> Extent | None:
        """The extent of an axis of the non-empty array; None if it has no such axis."""
        t = self.array.type if self.array is not None else None
        if self.array is None or not isinstance(t, Array) or axis >= t.ndim:
            return None
        return extent_of(self.array, axis)

    def interval(self, p: Polynomial) -> Interval:
        parts = [self.term_range(term) for term in p.items()]
        return sum(low for low, _ in parts), sum(high for _, high in parts)

    def is_exact(self, p: Polynomial, t: Scalar) -> bool:
        """True if the type holds all values that the polynomial may take."""
        (low, high), (least, most) = self.interval(p), type_range(t)
        return least <= low and high <= most

    def is_positive_term(self, term: Term) -> bool:
        """True if a term is known to be positive.

        Extents count as positive: division by an extent of 0 is undefined.
        """
        monomial, c = term
        return c > 0 and all(isinstance(s, Extent) or self.range_of(s)[0] > 0 for s, _ in monomial)


def is_wide_integer(t: Type | None) -> bool:
    """True if a type is an integer of at least 32 bits, as used for indices."""
    return isinstance(t, Scalar) and t.kind in "iu" and t.bits >= LEAST_BITS


def only_digit(p: Polynomial) -> MixedRadixDigit | None:
    s = only_symbol(p)
    return s if isinstance(s, MixedRadixDigit) else None


def all_symbols(ps: Iterable[Polynomial]) -> Iterator[Symbol]:
    """The symbols of polynomials, including those inside digits."""
    for p in ps:
        for s in symbols_in(p):
            yield s
            if isinstance(s, MixedRadixDigit):
                yield from all_symbols(s.parts())


# --- power-of-two factors ------------------------------------------------------------------------
#
# Power-of-two factors of integers: a power of two, up to 64, that certainly divides a value.
#
# Wrapping arithmetic is modulo a power of two, so facts about low bits remain true.
#
#     >>> PowerOfTwoFactors().of(mul_i_4)     # i * 4
#     4

GREATEST_FACTOR = 64  # larger factors are not used
MOST_NESTED = 16


class PowerOfTwoFactors:
    """Powers of two that divide values, memoized."""

    def __init__(self) -> None:
        self.found: dict[Value, int] = {}

    def of(self, v: Value, depth: int = 0) -> int:
        """A power of two that divides v: at most MOST, 1 if nothing is known."""
        known = self.found.get(v)
        if known is None:
            known = min(self._find(v, depth), GREATEST_FACTOR) if depth < MOST_NESTED else 1
            self.found[v] = known
        return known

    def _find(self, v: Value, depth: int) -> int:
        if not isinstance(v, Op) or not isinstance(v.type, Scalar) or not is_integral(v.type):
            return 1
        number = constant_int(v)
        if number is not None:
            return number & -number or GREATEST_FACTOR
        rule = FACTOR_RULES.get(v.kind)
        if rule is None or not all(map(is_integer, v.args)):
            return 1
        return rule(v, [self.of(x, depth + 1) for x in v.args])


def _shifted(op: Op, known: list[int]) -> int:
    by = constant_int(op.args[1])
    return known[0] << by if by is not None and 0 <= by < GREATEST_FACTOR else 1


FACTOR_RULES: dict[str, Callable[[Op, list[int]], int]] = {
    **dict.fromkeys(kinds_with(Trait.KEEPS_FACTORS), lambda op, known: min(known)),
    "mul": lambda op, known: known[0] * known[1],
    "and": lambda op, known: max(known),
    "shl": _shifted,
}
