"""What can be known of an integer: the lattice of pass `bounds`.

A `Fact` about a value v (of type t, taken as a mathematical integer) says
- `lo <= v <= hi`, within the range of t;
- for every entry s: c of `ups`: `v <= s + c`, where s is a symbol;
- `exact` = (s, c): `v == s + c`.

A symbol stands for one mathematical integer: a value (as itself), the extent of an array's axis
(`Extent`), or a product of non-negative symbols (`Product`: never wrapped, unlike a `mul`).

The top of the lattice is the range of the type with no `ups`; less is known upward: intervals join
to their hull, `ups` to the common symbols with the greater c. Whatever may overflow is top: a
transfer function computes with Python's integers, and `or_top` gives up on what leaves the type.
(One bound survives an overflow: a wrapped product of non-negative factors is not above the true
product, for it is that product minus a multiple of 2**bits.) Dividing by what may be zero is top.

Two things are taken from outside: extents are at least 0 and less than 2**31, and the extents of
one array that is not wide multiply to less than 2**31 unless one is 0.

Must not know: where facts come from (`ranges`), what they are good for (`bounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vkchi.ir.core import Value, is_wide, shape_name
from vkchi.ir.intervals import type_range
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar

Key = Any  # Value | tuple[Value, int]
Sym = Any  # Key | Extent | Product
INT_MAX = (1 << 31) - 1
MOST_UPS = 12


class Extent(NamedTuple):
    """The extent of an axis of a dynamic array: of all arrays that have the shape of the parameter
    called `shape`, which has `ndim` axes."""

    shape: str
    ndim: int
    axis: int
    wide: bool = False


def extent_of(array: Value, axis: int) -> Extent:
    """The symbol for an extent of an array parameter."""
    t = array.type
    assert isinstance(t, Array)
    return Extent(shape_name(array), t.ndim, axis, is_wide(array))


class Product(NamedTuple):
    """`coefficient` times the product of `factors`, all of them at least 0."""

    coefficient: int
    factors: tuple[Sym, ...]


class Fact(NamedTuple):
    """See the module's docstring."""

    lo: int
    hi: int
    ups: Mapping[Sym, int] = {}
    exact: tuple[Sym, int] | None = None


def top(t: Scalar) -> Fact:
    """What holds for every value of a type."""
    return Fact(*type_range(t))


def or_top(f: Fact, t: Scalar) -> Fact:
    """The fact, or top if the value may have left the range of its type."""
    lo, hi = type_range(t)
    return f if lo <= f.lo and f.hi <= hi else Fact(lo, hi)


def shift(f: Fact, c: int) -> Fact:
    """What is known of v + c."""
    exact = (f.exact[0], f.exact[1] + c) if f.exact else None
    return Fact(f.lo + c, f.hi + c, {s: k + c for s, k in f.ups.items()}, exact)


def meet(a: Fact, b: Fact) -> Fact:
    """Both facts together."""
    return Fact(max(a.lo, b.lo), min(a.hi, b.hi), least_ups(a.ups, b.ups), a.exact or b.exact)


def join(a: Fact, b: Fact, least: Callable[[Sym], int] | None = None) -> Fact:
    """What both facts say. With `least`, lower bounds of symbols, also what follows from intervals:
    `v <= hi` is `v <= s + (hi - least(s))`."""
    ups = {s: max(c, b.ups[s]) for s, c in a.ups.items() if s in b.ups}
    if least is not None:
        for one, other in ((a, b), (b, a)):
            ups |= {s: max(c, other.hi - least(s)) for s, c in one.ups.items() if s not in ups}
    exact = a.exact if a.exact == b.exact else None
    return Fact(min(a.lo, b.lo), max(a.hi, b.hi), ups, exact)


def least_ups(a: Mapping[Sym, int], b: Mapping[Sym, int]) -> Mapping[Sym, int]:
    """Symbols of both, each with the lesser bound."""
    if not a or not b:
        return a or b
    ups = dict(a)
    for s, c in b.items():
        if s in ups:
            ups[s] = min(ups[s], c)
        elif len(ups) < MOST_UPS:
            ups[s] = c
    return ups


def divide(a: Fact, b: Fact, divisor: Product) -> Fact:
    """a // b for a >= 0, b >= 1. Of `a <= d * e - 1` with d exactly b follows `a // b <= e - 1`."""
    lo, hi = a.lo // b.hi, a.hi // b.lo
    ups = {s: c for s, c in a.ups.items() if c <= 0}
    for s, c in a.ups.items():
        rest = cancel(s, divisor) if c < 0 else None
        if rest is not None and not rest.factors:
            hi = min(hi, rest.coefficient - 1)
        elif rest is not None:
            ups[as_symbol(rest)] = -1
    return Fact(lo, hi, ups)


def cancel(s: Sym, divisor: Product) -> Product | None:
    """The product with which `divisor` makes the symbol s, if it divides it as written."""
    p = s if isinstance(s, Product) else Product(1, (s,))
    factors = list(p.factors)
    for factor in divisor.factors:
        if factor not in factors:
            return None
        factors.remove(factor)
    if divisor.coefficient < 1 or p.coefficient % divisor.coefficient:
        return None
    return Product(p.coefficient // divisor.coefficient, tuple(factors))


def as_symbol(p: Product) -> Sym:
    """A product of one symbol is that symbol."""
    return p.factors[0] if p.coefficient == 1 and len(p.factors) == 1 else p
