"""Integers as sums: polynomials in other values, modulo the range of their type.

A `Polynomial` is a sum of monomials with whole coefficients; a symbol in it stands for one integer.
Sums, differences, negatives and products are taken apart. All of them wrap, so two values of one
type with equal polynomials are equal whatever overflows on the way. `Sums` stops at products of two
values, which are symbols then: `7 - (t - u)` is `-1 * t + 1 * u + 7`. `forms` reads further, where
nothing wraps. `split_offset` goes as far as what passes can still name by one value: a value plus a
constant.

Owns: reading ring arithmetic, the arithmetic of polynomials. Must not know: ranges, what the sums
are for.

    >>> terms_of(Sums().of(v))
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

Symbol = Hashable  # Value, or what `forms` adds
Monomial = frozenset[tuple[Symbol, int]]  # symbols and their powers
Polynomial = dict[Monomial, int]
Frozen = frozenset[tuple[Monomial, int]]
Term = tuple[Monomial, int]
ONE: Monomial = frozenset()


class Sums:
    """The polynomials of values: of first degree, modulo the type's range."""

    deepest = 24  # ops from a value to what it is made of; beyond, it is a symbol
    most_terms, most_factors = 9, 1

    def __init__(self) -> None:
        self.known: dict[Value, Polynomial] = {}
        self._depth = 0

    def of(self, v: Value) -> Polynomial:
        """An integer as a polynomial."""
        found = self.known.get(v)
        if found is None:
            self._depth += 1
            found = self.read(v)
            self._depth -= 1
            self.known[v] = found
        return found

    def read(self, v: Value) -> Polynomial:
        """The polynomial of an integer that was not asked for yet."""
        width = scalar_of(v.type).bits
        n = constant_int(v)
        if n is not None:
            return number(signed(n, width))
        made = self.made(v) if isinstance(v, Op) else None
        if made is None:
            return symbol(v)
        found = {m: signed(c, width) for m, c in made.items()}
        return {m: c for m, c in found.items() if c}

    def made(self, op: Op) -> Polynomial | None:
        """What ring arithmetic makes of its operands' polynomials; None where that is too much."""
        if op.kind not in LINEAR or self._depth > self.deepest:
            return None
        made = RING[op.kind](*map(self.of, op.args))
        return made if self.is_small(made) else None

    def is_small(self, p: Polynomial) -> bool:
        """Whether a polynomial has few terms of few factors."""
        most = self.most_factors
        return len(p) <= self.most_terms and all(sum(k for _, k in m) <= most for m in p)


def signed(n: int, width: int) -> int:
    """The number of this width that a wrapped one stands for."""
    half = 1 << (width - 1)
    return (n + half) % (2 * half) - half


# --- a value plus a constant ---------------------------------------------------------------------


class Index(NamedTuple):
    """A value plus a constant (modulo the value's width), or a constant alone."""

    root: Value | None
    offset: int


def split_offset(v: Value) -> Index:
    """An index as a value plus a constant."""
    assert isinstance(v.type, Scalar)
    width = 1 << v.type.bits
    offset = 0
    while True:
        n = constant_int(v)
        if n is not None:
            return Index(None, n + offset)
        if not isinstance(v, Op) or v.kind not in SUMS or len(v.args) < 2:
            return Index(v, offset % width)
        (a, b), sign = v.args, SUMS[v.kind][1]
        n = constant_int(b)
        if n is not None:
            v, offset = a, offset + sign * n
            continue
        n = constant_int(a)
        if n is None or sign < 0:
            return Index(v, offset % width)
        v, offset = b, offset + n


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


# What ring arithmetic makes of polynomials.
RING: dict[str, Callable[..., Polynomial]] = {
    "add": plus, "sub": minus, "mul": times, "neg": negative,
}  # fmt: skip


def terms_of(p: Polynomial) -> dict[Value, int]:
    """The values of a polynomial of first degree, each with its factor."""
    return {s: c for m, c in p.items() for s, _ in m if isinstance(s, Value)}


def factor_of(v: Value, p: Polynomial) -> int:
    """How often a polynomial has a value by itself."""
    return p.get(frozenset(((v, 1),)), 0)


def constant_of(p: Polynomial) -> int:
    """What a polynomial adds to its other terms."""
    return p.get(ONE, 0)


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


def symbols_in(p: Polynomial) -> Iterator[Symbol]:
    """The symbols of a polynomial, not those inside digits."""
    return (s for m in p for s, _ in m)


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
