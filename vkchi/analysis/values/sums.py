"""Polynomials over values: integer arithmetic modulo the range of the type.

A `Polynomial` is a sum of monomials with integer coefficients; each symbol in it denotes one
integer. Sums, differences, negations and products are decomposed. All of them wrap, so two values
of one type with equal polynomials are equal even if an intermediate result overflows.
`AffinePolynomials` is affine: a product of two values is a symbol. For example, `7 - (t - u)` is
`-1 * t + 1 * u + 7`.

See also: `forms` decomposes further ops if they do not overflow. `split_offset` decomposes only
into one value plus a constant.

    >>> terms_of(AffinePolynomials().of(v))
    {t: -1, u: 1}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from itertools import product

from vkchi.ir.constants import constant_int
from vkchi.ir.core import Op, Value
from vkchi.ir.ops import LINEAR, SUMS
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, scalar_of

Symbol = Hashable  # Value, or a symbol of `forms`
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
