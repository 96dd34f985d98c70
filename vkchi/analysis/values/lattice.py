"""Value-range lattice with symbolic upper bounds, for bounds-check elimination.

A `ValueFact` about a value v (of type t, read as a mathematical integer) states

- `lo <= v <= hi`, within the range of t;
- for every entry s: c of `ups`: `v <= s + c`, where s is a symbol;
- `exact` = (s, c): `v == s + c`.

A symbol denotes one mathematical integer: a value, the extent of an array axis (`Extent`), or a
product of non-negative symbols (`SymbolProduct`). Unlike a `mul`, a `SymbolProduct` never wraps.

Top is the range of the type with empty `ups`. The join of two intervals is their hull; the join of
two `ups` keeps the common symbols with the greater c. Transfer functions use unbounded Python
integers; `or_top` returns top if the result may leave the type.

Axioms: extents are in [0, 2**31). The extents of one array without 64-bit indices multiply to less
than 2**31, unless one of them is 0.

See also: `ranges` computes facts; pass `bounds` uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vkchi.ir.core import Value, is_wide, shape_source_name
from vkchi.ir.op_table.interval_rules import type_range
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar

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
