"""Whether a store, done in every iteration of its loops, reaches all elements of a box: a proof.

Indices are `forms` in loops' indices, in digits of these, and in extents of the array. Each of
those may stand in one axis only. An axis takes all values from some first one on if
- it goes with one of them, plus or minus: that one has to take as many values as there are;
- it is a sum of several, each times something, which is no more than what those before it come to
  together, plus one: `n * i + j` with j in [0, n).
The digits of one index take all values independently of each other if each begins where the one
below has come round, and the last one's values fit into the loop. What is taken for given:
- sums and products wrap as polynomials do: equal polynomials are equal values;
- extents are at least 1 (an array without elements is overwritten by nothing at all), and those of
  an array that is not wide multiply to less than 2**31;
- the bounds of a `parallel` are what they say: where they overflow, its launch is an error. Those
  of a `for` may wrap, and have to be seen not to.

Owns: `Filling`; `Whole`, of one array whatever its shape. Must not know: gradients, launches.

    >>> Whole(y).is_stored(store)      # for i in range(y.shape[0]): y[y.shape[0] - 1 - i] = 0.0
    True
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vkchi.analysis.forms import Digit, Forms
from vkchi.analysis.intervals import Intervals
from vkchi.analysis.lattice import Extent, extent_of
from vkchi.analysis.sums import (
    ONE,
    Monomial,
    Polynomial,
    Symbol,
    Term,
    as_polynomial,
    freeze,
    is_least,
    minus,
    negative,
    number,
    only_symbol,
    plus,
    symbol,
    times,
)
from vkchi.ir.control import Axis, axes_of
from vkchi.ir.core import Op, Param, Value, is_wide
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, i32

MOST_OPS = 32  # in a bound: the host counts no loop whose bounds are longer (host_numbers)
Span = tuple[Polynomial, Polynomial]  # the first, and how many


class Sure(NamedTuple):
    """A store to an array that every iteration of these loops does."""

    op: Op
    element: Op
    loops: tuple[Op, ...]
    segment: int


class Taken(NamedTuple):
    """The values of a digit that an axis needs: from `low`, `many` of them. An index is the digit
    of itself, by 1 and without modulus."""

    digit: Digit
    low: Polynomial
    many: Polynomial


class Filling:
    """What stores reach, where numbers are these."""

    def __init__(self, forms: Forms) -> None:
        self.forms = forms

    def reaches(self, store: Sure, box: Sequence[Span]) -> bool:
        """Whether a store reaches all elements of a box."""
        axes: dict[Value, tuple[Op, Axis]] = {
            axis.param: (loop, axis) for loop in store.loops for axis in axes_of(loop)
        }
        needed: dict[Symbol, list[Taken]] = {
            v: [] for v in axes if only_symbol(self.forms.of(v)) is v
        }
        for v, span in zip(store.element.args[1:], box, strict=True):
            taken = self.taken(self.forms.of(v), span, axes)
            if taken is None:
                return False
            for some in taken:
                index = only_symbol(dict(some.digit.of))
                if index not in needed:
                    return False
                needed[index].append(some)
        return all(self.goes_round(*axes[v], needed.get(v, [])) for v in axes)

    def taken(
        self, p: Polynomial, span: Span, axes: dict[Value, tuple[Op, Axis]]
    ) -> list[Taken] | None:
        """What an axis needs of the digits that its index goes with; None if that is unknown."""
        terms: list[tuple[Digit, Polynomial]] = []
        for m, c in p.items():
            digits = [(s, k) for s, k in m if isinstance(s, Digit) or s in axes]
            if len(digits) > 1 or any(k > 1 for _, k in digits):
                return None
            factor = m - frozenset(digits)
            if digits and all(isinstance(s, Extent) for s, _ in factor):
                terms.append((as_digit(digits[0][0]), {factor: c}))
        rest = {m: c for m, c in p.items() if all(isinstance(s, Extent) for s, _ in m)}
        if len({digit for digit, _ in terms}) + len(rest) < len(p):
            return None
        if not terms:
            return [] if rest == span[0] and span[1] == number(1) else None
        digit, by = terms[0]
        if len(terms) == 1 and by in (number(1), number(-1)):
            return [self.one(digit, by, rest, span)]
        return self.several(terms, rest, span, axes)

    def one(self, digit: Digit, factor: Polynomial, rest: Polynomial, span: Span) -> Taken:
        """Of a digit, or its negative, plus something."""
        first, many = span
        if factor == number(1):
            return Taken(digit, minus(first, rest), many)
        last = minus(plus(first, many), number(1))
        return Taken(digit, minus(rest, last), many)

    def several(
        self,
        terms: Sequence[tuple[Digit, Polynomial]],
        rest: Polynomial,
        span: Span,
        axes: dict[Value, tuple[Op, Axis]],
    ) -> list[Taken] | None:
        """Of a sum of digits times something: all that these take, if enough and without gaps."""
        left = [(*term, self.values_of(term[0], axes)) for term in terms]
        found: list[Taken] = []
        many, first = number(1), rest
        while left:
            fitting = [k for k, (_, c, values) in enumerate(left)
                       if values is not None and self.is_least(many, self.size(c))]  # fmt: skip
            if not fitting:
                return None
            digit, c, values = left.pop(fitting[0])
            assert values is not None
            low, count = values
            if not self.is_least(self.size(c), number(1)):
                return None
            last = minus(plus(low, count), number(1))
            first = plus(first, times(c, low if self.is_least(c, number(1)) else last))
            many = plus(many, times(self.size(c), minus(count, number(1))))
            found.append(Taken(digit, low, count))
        skipped = minus(span[0], first)
        is_enough = self.is_least(skipped, {}) and self.is_least(many, plus(skipped, span[1]))
        return found if is_enough else None

    def size(self, c: Polynomial) -> Polynomial:
        """A coefficient without its sign, which is known of a term."""
        return negative(c) if next(iter(c.values())) < 0 else c

    def values_of(self, digit: Digit, axes: dict[Value, tuple[Op, Axis]]) -> Span | None:
        """The values that a digit takes: the first, and how many; None if that is not known."""
        if digit.modulus is not None:
            return {}, as_polynomial(digit.modulus)
        index = only_symbol(dict(digit.of))
        if digit.divisor != (ONE, 1) or not isinstance(index, Value) or index not in axes:
            return None
        _, axis = axes[index]
        begin, end = self.forms.of(axis.begin), self.forms.of(axis.end)
        return begin, minus(end, begin)

    # --- loops -----------------------------------------------------------------------------------

    def goes_round(self, loop: Op, axis: Axis, needed: Sequence[Taken]) -> bool:
        """Whether a loop's index takes all combinations of these values of its digits."""
        begin, t = self.bound(axis.begin), axis.param.type
        if begin is None or not isinstance(t, Scalar):
            return False
        is_checked = loop.kind == "parallel" and t is i32
        return any(
            self.has_all(begin, minus(end, begin), needed)
            for end in self.bounds_under(axis.end)
            if is_checked or all(self.forms.is_exact(p, t) for p in (begin, end))
            if self.is_short(loop)
        )

    def is_short(self, loop: Op) -> bool:
        """Whether the bounds are such as the host computes."""
        bounds = [v for axis in axes_of(loop) for v in (axis.begin, axis.end)]
        return all(count_ops(v, MOST_OPS) <= MOST_OPS for v in bounds)

    def bound(self, v: Value) -> Polynomial | None:
        """A bound made of extents; None if it is made of anything else."""
        p = self.forms.of(v)
        return p if all(isinstance(s, Extent) for m in p for s, _ in m) else None

    def bounds_under(self, v: Value) -> Iterator[Polynomial]:
        """Polynomials that a value is at least."""
        found = self.bound(v)
        if found is not None:
            yield found
        elif isinstance(v, Op) and v.kind == "max":
            for x in v.args:
                yield from self.bounds_under(x)

    def has_all(self, begin: Polynomial, trips: Polynomial, needed: Sequence[Taken]) -> bool:
        """The same for an index that takes `trips` values from `begin`, or more."""
        if not self.is_least(trips, number(1)):
            return False
        if not needed:
            return True
        if len(needed) == 1 and needed[0].digit == Digit(needed[0].digit.of):
            skipped = minus(needed[0].low, begin)
            needs = plus(skipped, needed[0].many)
            return self.is_least(skipped, {}) and self.is_least(trips, needs)
        return begin == {} and self.are_independent(trips, needed)

    def are_independent(self, trips: Polynomial, needed: Sequence[Taken]) -> bool:
        """Whether digits of an index from 0 take all values independently of each other: each
        begins where the one below has come round, and the last one's values fit into `trips`."""
        room = number(1)
        for k, (digit, low, many) in enumerate(sorted(needed, key=size_of)):
            needs, divisor = plus(low, many), as_polynomial(digit.divisor)
            if not (self.is_least(low, {}) and divides(room, digit.divisor)):
                return False
            if digit.modulus is not None:
                if not self.is_least(as_polynomial(digit.modulus), needs):
                    return False
                needs = as_polynomial(digit.modulus)
            elif k + 1 < len(needed):
                return False
            room = times(divisor, needs)
        return self.is_least(trips, room)

    def is_least(self, p: Polynomial, q: Polynomial) -> bool:
        """Whether p is at least q, whatever the extents are."""
        return is_least(p, q, self.forms.is_positive)


class Whole(Filling):
    """One array parameter, of whatever shape; `origin` is the index of its first element."""

    def __init__(self, array: Param, origin: Sequence[int] = ()) -> None:
        self.array = array
        t = array.type
        assert isinstance(t, Array)
        first = list(origin) or [0] * t.ndim
        self.box = [(number(o), self.extent(t, k)) for k, o in enumerate(first)]

    def extent(self, t: Array, axis: int) -> Polynomial:
        """The extent of an axis."""
        return number(t.shape[axis]) if t.shape else symbol(extent_of(self.array, axis))

    def is_stored(self, store: Sure) -> bool:
        """Whether the store, done in every iteration of its loops, reaches all elements."""
        axes: dict[Value, Axis] = {
            axis.param: axis for loop in store.loops for axis in axes_of(loop)
        }
        self.forms = Forms(Intervals(axes), self.array)
        return not is_wide(self.array) and self.reaches(store, self.box)


def as_digit(s: Symbol) -> Digit:
    """An index as its own digit."""
    return s if isinstance(s, Digit) else Digit(freeze(symbol(s)))


def divides(p: Polynomial, term: Term) -> bool:
    """Whether a polynomial of one term divides a term."""
    if len(p) != 1:
        return False
    ((monomial, c),) = p.items()
    return c > 0 and term[1] % c == 0 and is_part(monomial, term[0])


def is_part(some: Monomial, of: Monomial) -> bool:
    """Whether a monomial divides another one."""
    powers = dict(of)
    return all(k <= powers.get(s, 0) for s, k in some)


def size_of(taken: Taken) -> tuple[int, int]:
    """By which digits are in order."""
    monomial, c = taken.digit.divisor
    return sum(k for _, k in monomial), c


def count_ops(v: Value, most: int) -> int:
    """How many ops a value is made of, each as often as it is used; more than `most` is enough."""
    if not isinstance(v, Op) or most <= 0:
        return 1
    total = 1
    for x in v.args:
        total += count_ops(x, most - total)
        if total > most:
            break
    return total
