"""What follows if two executions of a loop's body find equal numbers: which symbols are equal, too.

Polynomials (`forms`) of a loop's indices, of others that differ between iterations or within one
(serial loops, what was read), and of what is the same all through a launch, are equal modulo
2**bits, each in an execution of its own. `Solver` finds what that determines:
- what does not differ between iterations, and what is determined already, cancels;
- a term `c * s` that both have is determined if c is more than all else can make up for, and the
  numbers can not wrap around to the same: of `n * i + j` with j in [0, n) so is i, and then j.
  Wrapping is ruled out by ranges, or because what there is of iterations is counted in i32:
  launches of more are errors where the host counts them;
- a conversion that loses nothing determines its operand, a quotient and its remainder the
  dividend, a remainder one that takes no more values in a row than the divisor;
- constants that no multiples of all coefficients make up for are a contradiction: `2 * i` is never
  `2 * j + 1`.
Divisions by 0 have no meaning, and none is ruled out.

Owns: `determine`, `Solver`. Must not know: memory.

    >>> determine(Iterations(ops, loop), [i_times_2], [i_times_2], bits=32)
    {i}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from math import gcd

from vkchi.analysis.forms import Digit, all_symbols, is_wide_integer
from vkchi.analysis.iterations import INDEX_BITS, Iterations, Window
from vkchi.analysis.lattice import Extent
from vkchi.analysis.sums import (
    ONE,
    Monomial,
    Polynomial,
    Symbol,
    as_polynomial,
    freeze,
    is_constant,
    is_least,
    minus,
    negative,
    number,
    only_symbol,
    plus,
    symbol,
    times,
)
from vkchi.ir.control import Axis
from vkchi.ir.core import Op, Param, Value
from vkchi.ir.ops import CONVERSIONS, DIVISIONS, REMAINDER_OF, REMAINDERS
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar

MOST_STEPS = 64  # equations that follow from those of indices
INT_MAX = (1 << 31) - 1
Terms = dict[Monomial, Polynomial]  # by what differs between iterations, with its coefficient


class Equation(NamedTuple):
    """Two polynomials, of one iteration each, that are equal modulo 2**bits."""

    a: Polynomial
    b: Polynomial
    bits: int


def determine(
    loop: Iterations,
    some: Sequence[Value],
    others: Sequence[Value],
    bits: int,
    own: Sequence[Symbol] = (),
) -> set[Symbol] | None:
    """The symbols that are equal in two executions where these integers are, pair by pair, in so
    many bits; None if there are no such executions. `own` are at least 1."""
    of = loop.forms.of
    equations = [
        Equation(of(v), of(w), min(bits, bits_of(v), bits_of(w))) for v, w in zip(some, others)
    ]
    return Solver(loop, equations, own).solve()


def bits_of(v: Value) -> int:
    """How many bits an integer has."""
    assert isinstance(v.type, Scalar)
    return v.type.bits


def only_unit(p: Polynomial) -> Symbol | None:
    """The symbol that, plus or minus a constant, a polynomial is."""
    varying = [m for m in p if m != ONE]
    if len(varying) != 1 or len(varying[0]) != 1 or abs(p[varying[0]]) != 1:
        return None
    ((s, power),) = varying[0]
    return s if power == 1 else None


class Solver:
    """What follows if some polynomials are equal, each in an execution of its own."""

    def __init__(
        self, loop: Iterations, equations: Sequence[Equation], own: Sequence[Symbol]
    ) -> None:
        self.loop, self.forms = loop, loop.forms
        self.equations = list(equations)
        self.determined: set[Symbol] = set()
        self.done: set[tuple[object, int]] = set()
        self.own = own
        self.bits = max((e.bits for e in equations), default=INDEX_BITS)

    @cached_property
    def positive(self) -> set[Symbol]:
        """Symbols that are at least 1."""
        return {*self.own, *self.witnesses()}

    def witnesses(self) -> Iterator[Symbol]:
        """Symbols that are at least 1 since loops over them, and no more, have iterations."""
        used = set(all_symbols([p for e in self.equations for p in (e.a, e.b)]))
        inner = [self.loop.axes[s] for s in used if isinstance(s, Value) and s in self.loop.axes]
        for axis in (*self.loop.own_axes, *inner):
            ends = self.range_of_axis(axis)
            length = minus(ends[1], ends[0]) if ends is not None else {}
            constant = length.pop(ONE, 0)
            s = only_symbol(length)
            if s is not None and constant < 0:
                yield s

    def is_positive(self, s: Symbol) -> bool:
        """Whether a symbol is at least 1."""
        return s in self.positive or self.forms.range_of(s)[0] >= 1

    def solve(self) -> set[Symbol] | None:
        """The symbols that are equal; None for a contradiction."""
        count = -1
        while count < len(self.determined):
            count = len(self.determined)
            for equation in list(self.equations):
                new = self.follow(equation)
                if new is None:
                    return None
                for s in new - self.determined:
                    self.determined.add(s)
            for s in list(self.determined):
                for equation in self.implied_by(s):
                    self.add(equation)
        return self.determined

    def add(self, equation: Equation) -> None:
        """One more equation."""
        key = freeze(equation.a), equation.bits
        if key not in self.done and len(self.done) < MOST_STEPS:
            self.done.add(key)
            self.equations.append(equation)

    # --- one equation

    def follow(self, equation: Equation) -> set[Symbol] | None:
        """The symbols that are equal by one equation; None if it cannot be."""
        alone = only_unit(equation.a) if equation.a == equation.b else None
        if alone is not None and self.is_held(alone, equation.bits):
            return {alone} if self.loop.differs(alone) else set()
        a, b = self.terms(equation.a), self.terms(equation.b)
        rest = minus(a.pop(ONE, {}), b.pop(ONE, {}))
        for m in [m for m in {**a, **b} if all(s in self.determined for s, _ in m)]:
            rest = plus(rest, self.left(m, minus(a.pop(m, {}), b.pop(m, {}))))
            if any(k != ONE and self.differs_in(k) for k in rest):
                return set()
        if self.is_contradiction(a, b, rest, equation.bits):
            return None
        found: set[Symbol] = set()
        while (top := self.top(a, b, rest, equation.bits)) is not None:
            del a[top], b[top]
            found |= {s for s, power in top if len(top) == power == 1}
        if not a and not b and rest and self.is_contradiction(a, b, rest, equation.bits):
            return None
        return found

    def is_held(self, s: Symbol, bits: int) -> bool:
        """Whether so many bits tell a symbol's values apart."""
        low, high = self.forms.range_of(s)
        return high - low < 1 << bits

    def left(self, m: Monomial, coefficient: Polynomial) -> Polynomial:
        """What is left of a term that is determined, with this difference of coefficients."""
        return times(coefficient, {m: 1})

    def differs_in(self, m: Monomial) -> bool:
        """Whether a monomial differs between iterations."""
        return any(self.loop.differs(s) for s, _ in m)

    def terms(self, p: Polynomial) -> Terms:
        """A polynomial by what differs between iterations."""
        found: Terms = {}
        for m, c in p.items():
            varying = frozenset((s, k) for s, k in m if self.loop.differs(s))
            part = found.setdefault(varying, {})
            rest = m - varying
            part[rest] = part.get(rest, 0) + c
        return found

    def is_contradiction(self, a: Terms, b: Terms, rest: Polynomial, bits: int) -> bool:
        """Whether the difference is a constant that no multiples of the coefficients make up."""
        constants = [is_constant(c) for c in (*a.values(), *b.values())]
        n = is_constant(rest)
        if n is None or None in constants:
            return False
        return n % gcd(1 << bits, *(c for c in constants if c is not None)) != 0

    def top(self, a: Terms, b: Terms, rest: Polynomial, bits: int) -> Monomial | None:
        """A term of both that is more than all else can make up for."""
        return next(
            (
                m for m in a
                if a[m] == b.get(m) and any(
                    self.outweighs(m, a, b, rest, bits, window)
                    for window in (self.window, self.numbers)
                )
            ),
            None,
        )  # fmt: skip

    def outweighs(
        self, m: Monomial, a: Terms, b: Terms, rest: Polynomial, bits: int,
        window: Callable[[Monomial], Window],
    ) -> bool:  # fmt: skip
        """Whether a term has to be equal in both, if factors lie in such windows."""
        c = self.size(a[m])
        if c is None:
            return False
        low, high = window(m)
        many = plus(minus(high, low), number(1))
        if not rest and a == b and len(a) == 1 and self.is_alone(c, many, bits):
            return True
        least = most = rest
        for terms, sign in ((a, 1), (b, -1)):
            for k in terms:
                if k == m:
                    continue
                ends = self.scaled(terms[k], window(k), sign)
                if ends is None:
                    return False
                least, most = plus(least, ends[0]), plus(most, ends[1])
        below = minus(c, number(1))
        is_more = self.is_least(below, most) and self.is_least(plus(below, least), {})
        return is_more and self.fits(times(c, many), bits)

    def is_alone(self, c: Polynomial, many: Polynomial, bits: int) -> bool:
        """Whether different values of so many in a row, c times each, differ modulo 2**bits."""
        n = is_constant(c)
        if n is None:
            return False
        most = (1 << bits) // gcd(n, 1 << bits)
        return self.forms.interval(many)[1] <= most or self.fits(many, most.bit_length() - 1)

    def size(self, c: Polynomial) -> Polynomial | None:
        """The coefficient without its sign; None if that is not known, or it may be 0."""
        if self.is_least(c, number(1)):
            return c
        return negative(c) if self.is_least(negative(c), number(1)) else None

    def scaled(self, c: Polynomial, window: Window, sign: int) -> Window | None:
        """The least and greatest of c times something; None if the sign is not known."""
        if sign < 0:
            c = negative(c)
        low, high = (times(c, end) for end in window)
        if self.is_least(c, {}):
            return low, high
        return (high, low) if self.is_least(negative(c), {}) else None

    def is_least(self, p: Polynomial, q: Polynomial) -> bool:
        """Whether p is at least q, by ranges or whatever the symbols are."""
        return self.forms.interval(minus(p, q))[0] >= 0 or is_least(p, q, self.is_positive)

    def fits(self, p: Polynomial, bits: int) -> bool:
        """Whether a number of things is surely no more than 2**bits."""
        if self.forms.interval(p)[1] <= 1 << bits:
            return True
        if bits < 31:
            return False
        many = number(1 << (bits - 31))
        counts = [self.loop.count, *self.volumes()]
        return any(c is not None and self.is_least(times(many, c), p) for c in counts)

    def volumes(self) -> Iterator[Polynomial]:
        """Numbers of elements of arrays, which i32 holds."""
        if self.own and not any(isinstance(s, Extent) and s.wide for s in self.own):
            total = number(1)
            for s in self.own:
                total = times(total, symbol(s))
            yield total

    # --- what lies in what

    def numbers(self, m: Monomial) -> Window:
        """The least and greatest of a monomial, as numbers."""
        low, high = self.forms.term_range((m, 1))
        return number(low), number(high)

    def window(self, m: Monomial) -> Window:
        """The same, as polynomials of what a launch knows, where loops say so."""
        s = next((s for s, power in m if len(m) == power == 1), None)
        if (
            isinstance(s, Digit)
            and s.modulus is not None
            and not self.varies(as_polynomial(s.modulus))
        ):
            return {}, minus(as_polynomial(s.modulus), number(1))
        axis = self.loop.axes.get(s) if isinstance(s, Value) else None
        found = self.range_of_axis(axis) if axis is not None else None
        return found or self.numbers(m)

    def range_of_axis(self, axis: Axis) -> Window | None:
        """The first and last index of an axis; None if they are no such polynomials."""
        key = axis.param, self.bits <= INDEX_BITS
        if key not in self.loop.windows:
            self.loop.windows[key] = self._range_of_axis(*axis)
        return self.loop.windows[key]

    def _range_of_axis(self, index: Param, *ends: Value) -> Window | None:
        begin, end = map(self.forms.of, ends)
        assert isinstance(index.type, Scalar)
        is_checked = self.loop.is_counted and self.bits <= INDEX_BITS
        is_ours = is_checked and any(index is own.param for own in self.loop.own_axes)
        if not is_ours and not all(self.forms.is_exact(p, index.type) for p in (begin, end)):
            return None
        if self.varies(begin) or self.varies(end):
            return None
        return begin, minus(end, number(1))

    def varies(self, p: Polynomial) -> bool:
        """Whether a polynomial differs between iterations."""
        return any(map(self.differs_in, p))

    def width(self, p: Polynomial, window: Callable[[Monomial], Window]) -> Polynomial | None:
        """How many values in a row a polynomial may take."""
        total = number(1)
        for m, c in self.terms(p).items():
            if m == ONE:
                continue
            ends = self.scaled(c, window(m), 1)
            if ends is None:
                return None
            total = plus(total, minus(ends[1], ends[0]))
        return total

    # --- what symbols imply

    def implied_by(self, s: Symbol) -> Iterator[Equation]:
        """Equations that follow if a symbol, and others that are determined, are equal."""
        if isinstance(s, Digit):
            if self.is_all_determined(s.of):
                yield Equation(dict(s.of), dict(s.of), 128)
        elif isinstance(s, Op) and is_wide_integer(s.type):
            if s.kind in CONVERSIONS and is_wide_integer(s.args[0].type):
                yield self.same(s.args[0])
            is_by_one = s.kind in DIVISIONS and self.loop.is_steady(s.args[1])
            if is_by_one and (self.has_partner(s) or self.comes_round_once(s)):
                yield self.same(s.args[0])

    def same(self, v: Value) -> Equation:
        """That a value is equal in both executions."""
        assert isinstance(v.type, Scalar)
        p = self.forms.of(v)
        return Equation(p, p, v.type.bits)

    def has_partner(self, op: Op) -> bool:
        """Whether a quotient and its remainder are both determined."""
        ops = [x for x in self.determined if isinstance(x, Op)]
        return any(self.is_division(op, x) or self.is_division(x, op) for x in ops)

    def is_division(self, quotient: Op, remainder: Op) -> bool:
        """Whether the two ops are a quotient and its remainder."""
        if REMAINDER_OF.get(quotient.kind) != remainder.kind:
            return False
        pairs = zip(quotient.args, remainder.args)
        return all(self.forms.key(a) == self.forms.key(b) for a, b in pairs)

    def comes_round_once(self, op: Op) -> bool:
        """Whether the dividend of a remainder takes no more values in a row than the divisor."""
        if op.kind not in REMAINDERS:
            return False
        dividend, divisor = map(self.forms.exact, op.args)
        if dividend is None or divisor is None:
            return False
        if op.kind == "rem" and self.forms.interval(dividend)[0] < 0:
            return False
        return self.is_within(dividend, divisor)

    def is_within(self, p: Polynomial, many: Polynomial) -> bool:
        """Whether a polynomial takes no more than so many values in a row."""
        widths = [self.width(p, window) for window in (self.window, self.numbers)]
        return any(w is not None and self.is_least(many, w) for w in widths)

    def is_all_determined(self, of: object) -> bool:
        """Whether the digits that are determined say what they are digits of: each begins where the
        one before ends, and behind the last there is nothing."""
        digits = [
            d for d in self.determined
            if isinstance(d, Digit) and d.of == of and not any(map(self.varies, d.parts()[1:]))
        ]  # fmt: skip
        reached = number(1)
        while digits:
            found = [d for d in digits if as_polynomial(d.divisor) == reached]
            if any(d.modulus is None for d in found):
                return True
            moduli = [d.modulus for d in found if d.modulus is not None]
            if not moduli:
                return False
            reached = times(reached, as_polynomial(moduli[0]))
            if self.is_within(dict(digits[0].of), reached):
                return True
            digits = [d for d in digits if d not in found]
        return False
