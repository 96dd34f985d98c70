"""Remainders of numbers that are near the range of their divisor: `(i + 1) % n`, `(i - 1) % n`,
`(i + n - 1) % n` of an i below n.

Owns: how far a number goes, in a loop, as polynomials of what a launch knows. It is no proof: sums
are taken not to wrap, and what a launch gives to be 1 at least.

    >>> Turns(body.ops, loop).find(remainder)
    Turn(below=False, above=True)
"""

from __future__ import annotations

from vkchi.analysis.forms import Digit
from vkchi.analysis.iterations import Iterations, Window
from vkchi.analysis.sums import (
    ONE,
    Polynomial,
    Symbol,
    as_polynomial,
    is_least,
    minus,
    number,
    plus,
    times,
)
from vkchi.ir.constants import constant_int
from vkchi.ir.core import Op, Value
from vkchi.tuples import NamedTuple
from vkchi.types import i32

DEEPEST = 8  # loops whose ends are made of other loops' indices


class Turn(NamedTuple):
    """Whether the dividend may be below 0, by one divisor at most, and whether it may be the
    divisor or above, by as much."""

    below: bool
    above: bool


class Turns(Iterations):
    """The remainders in a `parallel`."""

    def find(self, op: Op) -> Turn | None:
        """How far the dividend of a remainder goes; None if that is farther than by one divisor, or
        not known, or the divisor is a constant or differs between iterations."""
        if op.kind != "mod" or op.type is not i32 or constant_int(op.args[1]) is not None:
            return None
        divisor = self.plain(self.forms.of(op.args[1]))
        ends = self.ends(self.forms.of(op.args[0]), DEEPEST)
        if ends is None or self.varies(divisor):
            return None
        least, most = ends
        last = minus(divisor, number(1))
        if not is_above(plus(least, divisor), {}) or not is_above(plus(last, divisor), most):
            return None
        return Turn(not is_above(least, {}), not is_above(last, most))

    def ends(self, p: Polynomial, depth: int) -> Window | None:
        """The least and the greatest that a polynomial comes to."""
        least: Polynomial = {}
        most: Polynomial = {}
        for m, c in p.items():
            window = self.window({m: 1}, depth)
            if window is None:
                return None
            low, high = window if c > 0 else window[::-1]
            least, most = plus(least, times(low, number(c))), plus(most, times(high, number(c)))
        return self.plain(least), self.plain(most)

    def plain(self, p: Polynomial) -> Polynomial:
        """About the same, without what passes put around lengths: `max(n, 0)`, and quotients by
        constants that a factor makes up for."""
        found: Polynomial = {}
        for m, c in p.items():
            symbols = list(m)
            s = symbols[0][0] if len(symbols) == 1 and symbols[0][1] == 1 else None
            inner, divisor = self.under(s)
            if inner is not None and c % divisor == 0:
                found = plus(found, times(self.plain(inner), number(c // divisor)))
            else:
                found = plus(found, {m: c})
        return found

    def under(self, s: Symbol | None) -> tuple[Polynomial | None, int]:
        """What a symbol is about, and what that is divided by."""
        if isinstance(s, Digit) and s.modulus is None and s.divisor[0] == ONE:
            return dict(s.of), s.divisor[1]
        if isinstance(s, Op) and s.kind == "max" and constant_int(s.args[1]) == 0:
            return self.forms.of(s.args[0]), 1
        if isinstance(s, Op) and s.kind == "floordiv" and (constant_int(s.args[1]) or 0) > 0:
            return self.forms.of(s.args[0]), constant_int(s.args[1]) or 1
        return None, 1

    def window(self, p: Polynomial, depth: int) -> Window | None:
        """The same of one monomial."""
        ((m, _),) = p.items()
        if m == ONE or not self.varies(p):
            return p, p
        symbols = list(m)
        if len(symbols) != 1 or symbols[0][1] != 1 or depth == 0:
            return None
        return self.window_of(symbols[0][0], depth - 1)

    def window_of(self, s: Symbol, depth: int) -> Window | None:
        """The same of an index, or a remainder."""
        if isinstance(s, Digit):
            modulus = as_polynomial(s.modulus) if s.modulus is not None else None
            is_known = modulus is not None and not self.varies(modulus)
            return ({}, minus(modulus, number(1))) if modulus is not None and is_known else None
        axis = self.axes.get(s) if isinstance(s, Value) else None
        if axis is None:
            return None
        begin, end = (self.ends(self.forms.of(v), depth) for v in (axis.begin, axis.end))
        return (
            (begin[0], minus(end[1], number(1))) if begin is not None and end is not None else None
        )

    def varies(self, p: Polynomial) -> bool:
        """Whether a polynomial differs between iterations."""
        return any(self.differs(s) for m in p for s, _ in m)


def is_above(p: Polynomial, q: Polynomial) -> bool:
    """Whether p is at least q where all symbols are at least 1."""
    return is_least(p, q, lambda _: True)
