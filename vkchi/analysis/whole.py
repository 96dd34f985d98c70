"""Whether a store overwrites all of an array, whatever shape the array has: a proof.

Owns: `Whole`, of one array. Its dynamic extents are symbols, and integers are polynomials in these
and in `Digit`s of loop indices. What is taken for given:
- sums and products wrap as the polynomials do, modulo 2**bits: equal polynomials are equal values;
- extents are at least 1 (an array without elements is overwritten by nothing at all), and those of
  an array that is not wide multiply to less than 2**31;
- the bounds of a `parallel` are what they say: where they overflow, its launch is an error. Those
  of a `for` may wrap, and have to be seen not to.

Nothing is known of an integer that is made of anything else.

Must not know: gradients, arguments of launches (`must_write` tries boxes with those).

    >>> Whole(y).is_stored(store)      # for i in range(y.shape[0]): y[y.shape[0] - 1 - i] = 0.0
    True
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import product

from vkchi.analysis.must_write import Sure
from vkchi.ir.control import Axis, axes_of
from vkchi.ir.core import Op, Param, Value, constant_array, is_wide, shape_name
from vkchi.ir.ops import CHOICES, DIVISIONS, LINEAR, REMAINDERS, SUMS
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, i32

MOST_OPS = 32  # in a bound: the host counts no loop whose bounds are longer (host_numbers)
LEAST_BITS = 32

Symbol = object  # an axis of the array, or a Digit
Monomial = tuple[Symbol, ...]
Polynomial = dict[Monomial, int]
ONE: Monomial = ()


class Digit(NamedTuple):
    """`(loop // divisor) % modulus` of a loop's index, divisor and modulus as monomials with their
    coefficients; without modulus nothing is cut off."""

    loop: Value
    divisor: tuple[Monomial, int] = (ONE, 1)
    modulus: tuple[Monomial, int] | None = None


class Taken(NamedTuple):
    """The values of a digit that an axis needs: from `low`, `many` of them."""

    digit: Digit
    low: Polynomial
    many: Polynomial


class Whole:
    """One array parameter."""

    def __init__(self, array: Param, origin: Sequence[int] = ()) -> None:
        t = array.type
        assert isinstance(t, Array)
        self.array, self.key = array, shape_name(array)
        self.extents = [self.extent(t, k) for k in range(t.ndim)]
        self.origin = list(origin) or [0] * t.ndim

    def extent(self, t: Array, axis: int) -> Polynomial:
        """The extent of an axis, of an array with the same extents as this."""
        return number(t.shape[axis]) if t.shape is not None else {(axis,): 1}

    def is_stored(self, store: Sure) -> bool:
        """Whether the store, done in every iteration of its loops, reaches all elements."""
        if is_wide(self.array):
            return False
        indices: dict[Value, tuple[Op, Axis]] = {
            axis.param: (loop, axis) for loop in store.loops for axis in axes_of(loop)
        }
        needed: dict[Value, list[Taken]] = {v: [] for v in indices}
        for axis, v in enumerate(store.element.args[1:]):
            found = self.of(v, indices)
            if found is None:
                return False
            taken = self.taken(axis, found)
            if isinstance(taken, bool):
                if not taken:
                    return False
            else:
                needed[taken.digit.loop].append(taken)
        return all(self.goes_round(*indices[v], some) for v, some in needed.items())

    def taken(self, axis: int, index: Polynomial) -> Taken | bool:
        """What an axis needs of the digit that its index goes with. Where that is none, whether the
        one index is all."""
        digits = [m for m in index if any(isinstance(s, Digit) for s in m)]
        first, extent = number(self.origin[axis]), self.extents[axis]
        rest = {m: c for m, c in index.items() if m not in digits}
        if not digits:
            return rest == first and extent == number(1)
        (monomial, *others) = digits
        if others or len(monomial) != 1 or abs(index[monomial]) != 1:
            return False
        (digit,) = monomial
        assert isinstance(digit, Digit)
        if index[monomial] == 1:
            return Taken(digit, plus(first, rest, -1), extent)
        last = plus(plus(first, extent), number(1), -1)
        return Taken(digit, plus(rest, last, -1), extent)

    # --- loops -----------------------------------------------------------------------------------

    def goes_round(self, loop: Op, axis: Axis, needed: Sequence[Taken]) -> bool:
        """Whether a loop's index takes all combinations of these values of its digits."""
        begin = self.of(axis.begin, {})
        if begin is None or axis.param.type is not i32:
            return False
        return any(
            self.has_all(begin, plus(end, begin, -1), needed)
            for end in self.bounds_under(axis.end)
            if loop.kind == "parallel" or (cannot_wrap(begin) and cannot_wrap(end))
            if self.is_short(loop)
        )

    def is_short(self, loop: Op) -> bool:
        """Whether the bounds are such as the host computes."""
        bounds = [v for axis in axes_of(loop) for v in (axis.begin, axis.end)]
        return all(count_ops(v, MOST_OPS) <= MOST_OPS for v in bounds)

    def bounds_under(self, v: Value) -> Iterator[Polynomial]:
        """Polynomials that a value is at least."""
        found = self.of(v, {})
        if found is not None:
            yield found
        elif isinstance(v, Op) and v.kind == "max":
            for x in v.args:
                yield from self.bounds_under(x)

    def has_all(self, begin: Polynomial, trips: Polynomial, needed: Sequence[Taken]) -> bool:
        """The same for an index that takes `trips` values from `begin`, or more."""
        if not is_least(trips, number(1)):
            return False
        if not needed:
            return True
        if len(needed) == 1 and needed[0].digit == Digit(needed[0].digit.loop):
            skipped = plus(needed[0].low, begin, -1)
            needs = plus(skipped, needed[0].many)
            return is_least(skipped, {}) and is_least(trips, needs)
        return begin == {} and self.are_independent(trips, needed)

    def are_independent(self, trips: Polynomial, needed: Sequence[Taken]) -> bool:
        """Whether digits of an index from 0 take all values independently of each other: each
        begins where the one below has come round, and the last one's values fit into `trips`."""
        room: Polynomial = number(1)
        for k, (digit, low, many) in enumerate(sorted(needed, key=size_of)):
            needs, divisor = plus(low, many), as_polynomial(digit.divisor)
            if not (is_least(low, {}) and divides(room, digit.divisor)):
                return False
            if digit.modulus is not None:
                if not is_least(as_polynomial(digit.modulus), needs):
                    return False
                needs = as_polynomial(digit.modulus)
            elif k + 1 < len(needed):
                return False
            room = times(divisor, needs)
        return is_least(trips, room)

    # --- values ----------------------------------------------------------------------------------

    def of(self, v: Value, indices: Container[Value]) -> Polynomial | None:
        """An integer as a polynomial, where these are the indices of the loops around; None if it
        is made of anything else."""
        if v in indices:
            return {(Digit(v),): 1} if v.type is i32 else None
        if not isinstance(v, Op) or not isinstance(v.type, Scalar) or v.type.kind != "i":
            return None
        if v.type.bits < LEAST_BITS:
            return None
        if v.kind == "const":
            return number(int(constant_array(v)))
        if v.kind == "shape":
            return self.shape(v)
        args = [self.of(x, indices) for x in v.args] if v.kind in KINDS else [None]
        known = [x for x in args if x is not None]
        return combined(v, known) if len(known) == len(args) else None

    def shape(self, op: Op) -> Polynomial | None:
        """An extent, if it is one of this array or constant."""
        array = op.args[0]
        t = array.type
        assert isinstance(t, Array)
        is_known = t.shape is not None or shape_name(array) == self.key
        return self.extent(t, op.attr) if is_known and not is_wide(array) else None


# --- polynomials ---------------------------------------------------------------------------------

KINDS = DIVISIONS | LINEAR | CHOICES | {"cast"}


def combined(op: Op, args: Sequence[Polynomial]) -> Polynomial | None:
    """What an op makes of polynomials; None where that is none."""
    if op.kind == "neg":
        return plus({}, args[0], -1)
    if op.kind in SUMS:
        return plus(args[0], args[1], -1 if op.kind == "sub" else 1)
    if op.kind == "mul":
        return None if any(map(has_digit, args)) else times(args[0], args[1])
    if op.kind == "cast":
        return args[0] if cannot_wrap(args[0]) else None
    if op.kind in CHOICES:
        return extreme(op.kind, args[0], args[1])
    return divided(op.kind, args[0], args[1])


def extreme(kind: str, a: Polynomial, b: Polynomial) -> Polynomial | None:
    """The larger or smaller of two, if it is always the same one."""
    if any(has_digit(p) or not cannot_wrap(p) for p in (a, b)):
        return None
    for this, other in ((a, b), (b, a)):
        if is_least(*((this, other) if kind == "max" else (other, this))):
            return this
    return None


def divided(kind: str, a: Polynomial, b: Polynomial) -> Polynomial | None:
    """A digit of a digit."""
    digit, term = only_digit(a), next(iter(b.items()), None)
    if digit is None or digit.modulus is not None or term is None:
        return None
    if len(b) > 1 or has_digit(b) or term[1] < 1:
        return None
    if kind in REMAINDERS:
        return {(digit._replace(modulus=term),): 1}
    (divisor,) = times(as_polynomial(digit.divisor), b).items()
    return {(digit._replace(divisor=divisor),): 1}


def has_digit(p: Polynomial) -> bool:
    """Whether it is different in different iterations."""
    return any(isinstance(s, Digit) for m in p for s in m)


def only_digit(p: Polynomial) -> Digit | None:
    """The digit that it is, if it is nothing else."""
    found = next(iter(p), ONE)
    is_alone = p == {found: 1} and len(found) == 1
    return found[0] if is_alone and isinstance(found[0], Digit) else None


def number(n: int) -> Polynomial:
    """A constant."""
    return {ONE: n} if n else {}


def as_polynomial(term: tuple[Monomial, int]) -> Polynomial:
    """One term."""
    return dict([term])


def plus(a: Polynomial, b: Polynomial, sign: int = 1) -> Polynomial:
    """a + b, or a - b."""
    found = dict(a)
    for m, c in b.items():
        found[m] = found.get(m, 0) + sign * c
    return {m: c for m, c in found.items() if c}


def times(a: Polynomial, b: Polynomial) -> Polynomial:
    """a times b."""
    found: Polynomial = {}
    for (m, c), (n, d) in product(a.items(), b.items()):
        found = plus(found, {tuple(sorted((*m, *n), key=order)): c * d})
    return found


def cannot_wrap(p: Polynomial) -> bool:
    """Whether 32 bits hold the value: a digit, a constant, an extent (or a product of different
    ones) with something taken away, or the negative of one with something added."""
    constant = p.get(ONE, 0)
    terms = [(m, c) for m, c in p.items() if m != ONE]
    if not -(1 << 31) <= constant < 1 << 31 or len(terms) > 1:
        return False
    if not terms or only_digit(p) is not None:
        return True
    ((monomial, c),) = terms
    if has_digit(p) or len(set(monomial)) < len(monomial):
        return False
    return (c == 1 and constant <= 0) or (c == -1 and constant >= 0)


def order(symbol: Symbol) -> int:
    """By which the axes in a product are in order; a digit stands alone."""
    return symbol if isinstance(symbol, int) else 0


def is_least(p: Polynomial, q: Polynomial) -> bool:
    """Whether p is at least q, whatever the symbols are that are at least 1: written in what they
    are more than 1, the difference has no negative coefficients. No digits stand in them."""
    found: Polynomial = {}
    for m, c in plus(p, q, -1).items():
        for kept in product((True, False), repeat=len(m)):
            part = tuple(s for s, is_kept in zip(m, kept) if is_kept)
            found = plus(found, {part: c})
    return all(c > 0 for c in found.values())


def divides(p: Polynomial, term: tuple[Monomial, int]) -> bool:
    """Whether a polynomial of one term divides a term."""
    if len(p) != 1:
        return False
    ((monomial, c),) = p.items()
    left = list(term[0])
    for s in monomial:
        if s not in left:
            return False
        left.remove(s)
    return c > 0 and term[1] % c == 0


def size_of(taken: Taken) -> tuple[int, int]:
    """By which digits are in order."""
    monomial, c = taken.digit.divisor
    return len(monomial), c


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
