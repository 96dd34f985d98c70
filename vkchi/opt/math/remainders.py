"""Strength reduction of remainders of dividends near [0, n): compare and subtract.

    (i + 1) % n         becomes         t = i + 1; if t >= n { t = t - n }

On CPUs a division by an unknown divisor takes 20 to 40 cycles per lane. In loops, nearly all
such remainders are neighbours in periodic grids; with constant extents `peel` does better.
`NearRemainders` finds the candidates. It proves nothing, because sums may wrap. The result is
therefore compared with the divisor, with division as the fallback:

    if t is in 0 .. n { t } else { (i + 1) % n }

A value in that range that equals the dividend, plus or minus the divisor or zero, is the
remainder. If the divisor may be negative, its sign is tested too. GPUs are excluded: a branch
before each load prevents loads from overlapping, and `reciprocals` makes division cheap.

Preconditions: runs before `map_grid`, which hides the ranges of indices, and after all passes
that analyze remainders in indices.

    >>> turn_remainders(fn, caps)
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.values.iterations import Iterations, Window
from vkchi.analysis.values.polynomials import (
    ONE,
    MixedRadixDigit,
    Polynomial,
    Symbol,
    as_polynomial,
    constant_polynomial,
    is_least,
    minus,
    plus,
    times,
)
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Value, constant_int, find_parallel, walk
from vkchi.ir.rebuild import rebuild
from vkchi.target.caps import Caps
from vkchi.tuples import NamedTuple
from vkchi.types import i32, u32


def turn_remainders(fn: Func, caps: Caps) -> Func:
    """Rewrite remainders whose dividend is probably near the divisor's range, on CPUs."""
    loop = find_parallel(fn)
    if loop is None or not caps.slow_division:
        return fn
    turns = NearRemainders(loop.regions[0].ops, loop)
    found = {op: turn for op in walk(loop.regions[0]) if (turn := turns.find(op)) is not None}

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op not in found:
            return None
        is_natural = (turns.forms.ranges.bound(op.args[1]) or (-1, 0))[0] >= 0
        return [build(b, op, args, found[op], is_natural=is_natural)]

    return rebuild(fn, visit, ("mod",)) if found else fn


def build(
    b: Builder, op: Op, args: tuple[Value, ...], turn: DividendRange, *, is_natural: bool
) -> Value:
    """Append the compare-and-subtract form of a remainder, with the division as fallback.
    `is_natural`: the divisor is proved not negative."""
    dividend, divisor = args
    zero, near = b.const(0, i32), dividend
    if turn.above:
        is_above = b.emit("ge", dividend, divisor)
        near = b.emit("select", is_above, b.emit("sub", dividend, divisor), near)
    if turn.below:
        is_below = b.emit("lt", dividend, zero)
        near = b.emit("select", is_below, b.emit("add", dividend, divisor), near)
    unsigned = [b.emit("bitcast", v, type=u32) for v in (near, divisor)]
    is_right = b.emit("lt", *unsigned)
    if not is_natural:
        is_right = b.emit("and", is_right, b.emit("gt", divisor, zero))
    with b.region() as then:
        b.emit("yield", near)
    with b.region() as orelse:
        b.emit("yield", b.emit(op.kind, *args))
    return b.if_(is_right, then, orelse).results[0]


# --- dividends near the divisor's range ----------------------------------------------------------
#
# Examples: `(i + 1) % n`, `(i - 1) % n`, `(i + n - 1) % n` for i in [0, n). The range of the
# dividend is computed as polynomials of launch invariants. It is an estimate, not a proof: sums are
# assumed not to wrap, and all symbols to be at least 1.
#
#     >>> NearRemainders(body.ops, loop).find(remainder)
#     DividendRange(below=False, above=True)


DEEPEST = 8  # nested loops whose bounds depend on other loops' indices


class DividendRange(NamedTuple):
    """Range of a dividend d for divisor n.

    `below`: d may be in [-n, 0). `above`: d may be in [n, 2n).
    """

    below: bool
    above: bool


class NearRemainders(Iterations):
    """Estimates of the dividends of remainders in a `parallel`."""

    def find(self, op: Op) -> DividendRange | None:
        """The range of the dividend of an i32 `mod`, or None.

        None if the range is unknown or extends by more than one divisor. Also None for other ops,
        and if the divisor is a constant or varies between iterations.
        """
        if op.kind != "mod" or op.type is not i32 or constant_int(op.args[1]) is not None:
            return None
        divisor = self.plain(self.forms.of(op.args[1]))
        ends = self.ends(self.forms.of(op.args[0]), DEEPEST)
        if ends is None or self.varies(divisor):
            return None
        least, most = ends
        last = minus(divisor, constant_polynomial(1))
        if not is_above(plus(least, divisor), {}) or not is_above(plus(last, divisor), most):
            return None
        return DividendRange(not is_above(least, {}), not is_above(last, most))

    def ends(self, p: Polynomial, depth: int) -> Window | None:
        """The least and greatest value of a polynomial, as launch-invariant polynomials; None if
        unknown."""
        least: Polynomial = {}
        most: Polynomial = {}
        for m, c in p.items():
            window = self.window({m: 1}, depth)
            if window is None:
                return None
            low, high = window if c > 0 else window[::-1]
            least, most = (
                plus(least, times(low, constant_polynomial(c))),
                plus(most, times(high, constant_polynomial(c))),
            )
        return self.plain(least), self.plain(most)

    def plain(self, p: Polynomial) -> Polynomial:
        """Simplify a polynomial: `max(n, 0)` becomes n, and `c * (p // d)` becomes `c / d * p` if d
        divides c.

        The result is an approximation. d must be a constant.
        """
        found: Polynomial = {}
        for m, c in p.items():
            symbols = list(m)
            s = symbols[0][0] if len(symbols) == 1 and symbols[0][1] == 1 else None
            inner, divisor = self.under(s)
            if inner is not None and c % divisor == 0:
                found = plus(found, times(self.plain(inner), constant_polynomial(c // divisor)))
            else:
                found = plus(found, {m: c})
        return found

    def under(self, s: Symbol | None) -> tuple[Polynomial | None, int]:
        """A polynomial and a constant divisor whose quotient approximates symbol s; (None, 1) if
        there are none."""
        if isinstance(s, MixedRadixDigit) and s.modulus is None and s.divisor[0] == ONE:
            return dict(s.of), s.divisor[1]
        if isinstance(s, Op) and s.kind == "max" and constant_int(s.args[1]) == 0:
            return self.forms.of(s.args[0]), 1
        if isinstance(s, Op) and s.kind == "floordiv" and (constant_int(s.args[1]) or 0) > 0:
            return self.forms.of(s.args[0]), constant_int(s.args[1]) or 1
        return None, 1

    def window(self, p: Polynomial, depth: int) -> Window | None:
        """The least and greatest value of a monomial, as launch-invariant polynomials; None if
        unknown."""
        ((m, _),) = p.items()
        if m == ONE or not self.varies(p):
            return p, p
        symbols = list(m)
        if len(symbols) != 1 or symbols[0][1] != 1 or depth == 0:
            return None
        return self.window_of(symbols[0][0], depth - 1)

    def window_of(self, s: Symbol, depth: int) -> Window | None:
        """The least and greatest value of a loop index, or of a remainder by an invariant.

        They are launch-invariant polynomials; None for other symbols.
        """
        if isinstance(s, MixedRadixDigit):
            modulus = as_polynomial(s.modulus) if s.modulus is not None else None
            is_known = modulus is not None and not self.varies(modulus)
            return (
                ({}, minus(modulus, constant_polynomial(1)))
                if modulus is not None and is_known
                else None
            )
        axis = self.axes.get(s) if isinstance(s, Value) else None
        if axis is None:
            return None
        begin, end = (self.ends(self.forms.of(v), depth) for v in (axis.begin, axis.end))
        return (
            (begin[0], minus(end[1], constant_polynomial(1)))
            if begin is not None and end is not None
            else None
        )

    def varies(self, p: Polynomial) -> bool:
        return any(self.differs(s) for m in p for s, _ in m)


def is_above(p: Polynomial, q: Polynomial) -> bool:
    """True if p >= q, given that all symbols are at least 1."""
    return is_least(p, q, lambda _: True)
