"""Integers as sums of multiples of other values: `7 - (t - u)` is `-1 * t + 1 * u + 7`.

Sums, differences, negations and products with constants are taken apart. All of them wrap, so two
values of one type with equal forms are equal whatever overflows on the way.

Must not know: what the forms are for.

    >>> linear_form(v).terms
    {t: -1, u: 1}
"""

from __future__ import annotations

from vkchi.ir.constants import constant_int
from vkchi.ir.core import Op, Value
from vkchi.ir.ops import LINEAR
from vkchi.tuples import NamedTuple
from vkchi.types import scalar_of

DEEPEST = 24  # ops that are taken apart one in another
MOST_TERMS = 8


class Linear(NamedTuple):
    """The sum of `terms`, each value times its factor, and of a `constant`; modulo the type's
    range."""

    terms: dict[Value, int]
    constant: int

    def plus(self, other: Linear, factor: int, width: int) -> Linear:
        """This and a multiple of another, of integers with so many bits."""
        terms = dict(self.terms)
        for v, n in other.terms.items():
            terms[v] = signed(terms.get(v, 0) + factor * n, width)
        kept = {v: n for v, n in terms.items() if n}
        return Linear(kept, signed(self.constant + factor * other.constant, width))

    def times(self, factor: int, width: int) -> Linear:
        """A multiple."""
        return Linear({}, 0).plus(self, factor, width)


def signed(n: int, width: int) -> int:
    """The number of this width that a wrapped one stands for."""
    half = 1 << (width - 1)
    return (n + half) % (2 * half) - half


def linear_form(v: Value, depth: int = DEEPEST) -> Linear:
    """The form of an integer value; itself once where it is no sum."""
    n = constant_int(v)
    if n is not None:
        return Linear({}, signed(n, scalar_of(v.type).bits))
    plain = Linear({v: 1}, 0)
    if not depth or not isinstance(v, Op) or v.kind not in LINEAR:
        return plain
    parts = [linear_form(x, depth - 1) for x in v.args]
    width = scalar_of(v.type).bits
    if v.kind == "neg":
        return parts[0].times(-1, width)
    a, b = parts
    if v.kind == "mul":
        if a.terms and b.terms:
            return plain
        found = a.times(b.constant, width) if not b.terms else b.times(a.constant, width)
    else:
        found = a.plus(b, 1 if v.kind == "add" else -1, width)
    return found if len(found.terms) <= MOST_TERMS else plain
