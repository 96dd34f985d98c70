"""Index expressions as polynomials with quotients and remainders, and proofs that they do not wrap.

A symbol of such a `Polynomial` (see `sums`) denotes one integer:

- a value that is not decomposed, such as a loop index or an argument. Pure ops with equal operands
  share one symbol, the first such op seen (value numbering);
- `Extent`: the extent of an array axis;
- `MixedRadixDigit`: `(p // divisor) % modulus` of a non-negative polynomial p.

A value of an n-bit type equals its polynomial modulo 2**n, because sums and products wrap. It
equals the polynomial itself if the type holds all its values (`exact`). Quotients, remainders,
`min`, `max` and widening conversions are decomposed only if that holds for their operands.

    >>> ExactPolynomials(ranges).of(op)                # 2 * (i + 1) - n
    {i: 2, 1: 2, n: -1}
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from vkchi.analysis.values.interval_analysis import Intervals
from vkchi.analysis.values.lattice import Extent, extent_of
from vkchi.analysis.values.sums import (
    ONE,
    AffinePolynomials,
    Frozen,
    Monomial,
    Polynomial,
    Symbol,
    Term,
    as_polynomial,
    constant_polynomial,
    freeze,
    is_least,
    only_symbol,
    only_term,
    symbol_polynomial,
    symbols_in,
    times,
)
from vkchi.ir.constants import constant_int
from vkchi.ir.core import Op, Param, Value
from vkchi.ir.op_table.interval_rules import Interval, type_range
from vkchi.ir.ops import CHOICES, CONVERSIONS, DIVISIONS, LINEAR, REMAINDERS, TABLE, Effect
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Type

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
