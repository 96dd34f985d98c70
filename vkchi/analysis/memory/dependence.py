"""Dependence test for `parallel` loops: do two iterations ever access the same element?

The subscripts of an access are polynomials (`ExactPolynomials`) in the loop's indices and other
values. The test assumes that two accesses have equal subscripts and solves for the indices
(`Solver`). If all loop indices must then be equal, or there is no solution, no two iterations
conflict.

Out-of-range accesses are harmless but read arbitrary values. Subscripts are compared modulo 2**32,
or 2**64 for arrays with 64-bit indices.

See also: `must_write` (elements that are certainly written), `footprint` (elements that may be
accessed).

    >>> DependenceTest(body.ops, loop).is_private(x, [place_of_x_i, place_of_x_i])
    True
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from math import gcd

from vkchi.analysis.memory.alias import (
    MemoryLocation,
    bases_may_alias,
    components_may_overlap,
    location_of,
)
from vkchi.analysis.memory.footprint import element_under
from vkchi.analysis.values.interval_analysis import Intervals
from vkchi.analysis.values.iterations import INDEX_BITS, Iterations, Loops, Window
from vkchi.analysis.values.polynomials import (
    ONE,
    MixedRadixDigit,
    Monomial,
    Polynomial,
    Symbol,
    all_symbols,
    as_polynomial,
    constant_polynomial,
    freeze,
    is_least,
    is_wide_integer,
    minus,
    negative,
    only_symbol,
    plus,
    polynomial_constant,
    symbol_polynomial,
    symbols_in,
    times,
)
from vkchi.analysis.values.ranges import Extent, extent_of
from vkchi.ir.core import Op, Param, Value, base_memory, is_wide
from vkchi.ir.ops import CONVERSIONS, DIVISIONS, REMAINDER_OF, REMAINDERS, WRITES, LoopAxis
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar

# --- equations of subscripts ---------------------------------------------------------------------
#
# Dependence equations: if two iterations compute equal subscripts, which symbols must be equal?
#
# Each side of an equation is a polynomial (`ExactPolynomials`), evaluated in its own execution of
# the loop body. Its symbols are the loop's indices, other varying values (serial loop indices,
# loads), and launch invariants. The sides are equal modulo 2**bits. `Solver` applies these rules
# until no further symbol is determined, that is, proved equal in both executions:
#
# - Invariant and already determined terms cancel if their coefficients are equal.
# - A term `c * s` on both sides is determined if c exceeds the total variation of all other terms,
#   and the sum cannot wrap. For example, `n * i + j` with j in [0, n) determines i, then j.
# - Ranges exclude wrapping. So does the iteration count, which must fit in i32: the host raises an
#   error for larger launches.
# - A lossless conversion determines its operand. A quotient and its remainder determine the
#   dividend.
# - A remainder alone determines the dividend if that takes at most `divisor` consecutive values.
# - GCD test: a constant that is not a multiple of the gcd of 2**bits and all coefficients is a
#   contradiction. For example, `2 * i` never equals `2 * j + 1`.
#
# Precondition: no division by zero; its result is undefined.
#
#     >>> determine(Iterations(ops, loop), [i_times_2], [i_times_2], bits=32)
#     {i}

MOST_STEPS = 64  # equations derived from those of subscripts
INT_MAX = (1 << 31) - 1
Terms = dict[Monomial, Polynomial]  # varying monomial -> invariant coefficient


class Equation(NamedTuple):
    """Two polynomials, each evaluated in its own iteration, that are equal modulo 2**bits."""

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
    """Varying symbols that are proved equal in two executions if `some` equals `others`, pairwise.

    The integers are compared modulo 2**bits, or modulo the width of a narrower type. None if it is
    proved that no two executions satisfy the equations. Symbols in `own` are assumed to be at least
    1.
    """
    of = loop.forms.of
    equations = [
        Equation(of(v), of(w), min(bits, bits_of(v), bits_of(w))) for v, w in zip(some, others)
    ]
    return Solver(loop, equations, own).solve()


def bits_of(v: Value) -> int:
    assert isinstance(v.type, Scalar)
    return v.type.bits


def only_unit(p: Polynomial) -> Symbol | None:
    """The symbol s if the polynomial is `s + const` or `const - s`, otherwise None."""
    varying = [m for m in p if m != ONE]
    if len(varying) != 1 or len(varying[0]) != 1 or abs(p[varying[0]]) != 1:
        return None
    ((s, power),) = varying[0]
    return s if power == 1 else None


class Solver:
    """Fixpoint of the determination rules over a growing set of equations."""

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
        return {*self.own, *self.witnesses()}

    def witnesses(self) -> Iterator[Symbol]:
        """Symbols s such that a loop has s - c iterations, for a constant c >= 0.

        As the loop has iterations, s is at least 1. The loops are the analysed one and those whose
        index occurs in an equation.
        """
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
        return s in self.positive or self.forms.range_of(s)[0] >= 1

    def solve(self) -> set[Symbol] | None:
        """The determined symbols; None if an equation is proved unsatisfiable."""
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
        """Add an equation unless it is known, or MOST_STEPS were added."""
        key = freeze(equation.a), equation.bits
        if key not in self.done and len(self.done) < MOST_STEPS:
            self.done.add(key)
            self.equations.append(equation)

    # --- one equation

    def follow(self, equation: Equation) -> set[Symbol] | None:
        """Symbols that one equation determines; None if it is proved unsatisfiable."""
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
        """True if a symbol's range proves that its values are distinct modulo 2**bits."""
        low, high = self.forms.range_of(s)
        return high - low < 1 << bits

    def left(self, m: Monomial, coefficient: Polynomial) -> Polynomial:
        return times(coefficient, {m: 1})

    def differs_in(self, m: Monomial) -> bool:
        return any(self.loop.differs(s) for s, _ in m)

    def terms(self, p: Polynomial) -> Terms:
        """Map each varying monomial of a polynomial to its coefficient, a launch-invariant
        polynomial."""
        found: Terms = {}
        for m, c in p.items():
            varying = frozenset((s, k) for s, k in m if self.loop.differs(s))
            part = found.setdefault(varying, {})
            rest = m - varying
            part[rest] = part.get(rest, 0) + c
        return found

    def is_contradiction(self, a: Terms, b: Terms, rest: Polynomial, bits: int) -> bool:
        """GCD test: true if the two sides are proved unequal modulo 2**bits.

        `rest` is the difference of the invariant parts. False if `rest` or a coefficient is not a
        constant.
        """
        constants = [polynomial_constant(c) for c in (*a.values(), *b.values())]
        n = polynomial_constant(rest)
        if n is None or None in constants:
            return False
        return n % gcd(1 << bits, *(c for c in constants if c is not None)) != 0

    def top(self, a: Terms, b: Terms, rest: Polynomial, bits: int) -> Monomial | None:
        """A monomial with equal coefficients on both sides whose values are proved equal
        (`outweighs`). None if there is no such proof."""
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
        """True if monomial m is proved equal on both sides. `window` returns the range of a
        monomial."""
        c = self.size(a[m])
        if c is None:
            return False
        low, high = window(m)
        many = plus(minus(high, low), constant_polynomial(1))
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
        below = minus(c, constant_polynomial(1))
        is_more = self.is_least(below, most) and self.is_least(plus(below, least), {})
        return is_more and self.fits(times(c, many), bits)

    def is_alone(self, c: Polynomial, many: Polynomial, bits: int) -> bool:
        """True if `many` consecutive values, times c, are proved distinct modulo 2**bits."""
        n = polynomial_constant(c)
        if n is None:
            return False
        most = (1 << bits) // gcd(n, 1 << bits)
        return self.forms.interval(many)[1] <= most or self.fits(many, most.bit_length() - 1)

    def size(self, c: Polynomial) -> Polynomial | None:
        """Absolute value of a coefficient; None if its sign is unknown or it may be 0."""
        if self.is_least(c, constant_polynomial(1)):
            return c
        return negative(c) if self.is_least(negative(c), constant_polynomial(1)) else None

    def scaled(self, c: Polynomial, window: Window, sign: int) -> Window | None:
        """The range of `sign * c * x` for x in `window`; None if the sign of c is unknown."""
        if sign < 0:
            c = negative(c)
        low, high = (times(c, end) for end in window)
        if self.is_least(c, {}):
            return low, high
        return (high, low) if self.is_least(negative(c), {}) else None

    def is_least(self, p: Polynomial, q: Polynomial) -> bool:
        """True if p >= q is proved, from the ranges of symbols or because some are at least 1."""
        return self.forms.interval(minus(p, q))[0] >= 0 or is_least(p, q, self.is_positive)

    def fits(self, p: Polynomial, bits: int) -> bool:
        """True if a count is proved to be at most 2**bits."""
        if self.forms.interval(p)[1] <= 1 << bits:
            return True
        if bits < 31:
            return False
        many = constant_polynomial(1 << (bits - 31))
        counts = [self.loop.count, *self.volumes()]
        return any(c is not None and self.is_least(times(many, c), p) for c in counts)

    def volumes(self) -> Iterator[Polynomial]:
        """The product of the extents `own`, an element count that fits in i32.

        Nothing is yielded if `own` is empty or belongs to an array with 64-bit indices.
        """
        if self.own and not any(isinstance(s, Extent) and s.wide for s in self.own):
            total = constant_polynomial(1)
            for s in self.own:
                total = times(total, symbol_polynomial(s))
            yield total

    # --- ranges of monomials

    def numbers(self, m: Monomial) -> Window:
        low, high = self.forms.term_range((m, 1))
        return constant_polynomial(low), constant_polynomial(high)

    def window(self, m: Monomial) -> Window:
        """The range of a monomial as launch-invariant polynomials.

        It comes from a modulus or from loop bounds; otherwise it is the constant range.
        """
        s = next((s for s, power in m if len(m) == power == 1), None)
        if (
            isinstance(s, MixedRadixDigit)
            and s.modulus is not None
            and not self.varies(as_polynomial(s.modulus))
        ):
            return {}, minus(as_polynomial(s.modulus), constant_polynomial(1))
        axis = self.loop.axes.get(s) if isinstance(s, Value) else None
        found = self.range_of_axis(axis) if axis is not None else None
        return found or self.numbers(m)

    def range_of_axis(self, axis: LoopAxis) -> Window | None:
        """First and last index of an axis as invariant polynomials, or None if unknown."""
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
        return begin, minus(end, constant_polynomial(1))

    def varies(self, p: Polynomial) -> bool:
        return any(map(self.differs_in, p))

    def width(self, p: Polynomial, window: Callable[[Monomial], Window]) -> Polynomial | None:
        """Upper bound on the number of consecutive integers that contain a polynomial's values in
        one launch.

        None if the sign of a coefficient is unknown.
        """
        total = constant_polynomial(1)
        for m, c in self.terms(p).items():
            if m == ONE:
                continue
            ends = self.scaled(c, window(m), 1)
            if ends is None:
                return None
            total = plus(total, minus(ends[1], ends[0]))
        return total

    # --- derived equations

    def implied_by(self, s: Symbol) -> Iterator[Equation]:
        """Equations that follow because s, and perhaps other determined symbols, are equal."""
        if isinstance(s, MixedRadixDigit):
            if self.is_all_determined(s.of):
                yield Equation(dict(s.of), dict(s.of), 128)
        elif isinstance(s, Op) and is_wide_integer(s.type):
            if s.kind in CONVERSIONS and is_wide_integer(s.args[0].type):
                yield self.same(s.args[0])
            is_by_one = s.kind in DIVISIONS and self.loop.is_steady(s.args[1])
            if is_by_one and (self.has_partner(s) or self.comes_round_once(s)):
                yield self.same(s.args[0])

    def same(self, v: Value) -> Equation:
        assert isinstance(v.type, Scalar)
        p = self.forms.of(v)
        return Equation(p, p, v.type.bits)

    def has_partner(self, op: Op) -> bool:
        """True if the remainder of quotient `op` is determined too, or the quotient of remainder
        `op`."""
        ops = [x for x in self.determined if isinstance(x, Op)]
        return any(self.is_division(op, x) or self.is_division(x, op) for x in ops)

    def is_division(self, quotient: Op, remainder: Op) -> bool:
        """True if the two ops are the quotient and remainder of one division."""
        if REMAINDER_OF.get(quotient.kind) != remainder.kind:
            return False
        pairs = zip(quotient.args, remainder.args)
        return all(self.forms.key(a) == self.forms.key(b) for a, b in pairs)

    def comes_round_once(self, op: Op) -> bool:
        """True if an op is a remainder whose dividend takes, provably, at most `divisor`
        consecutive values.

        For a `rem`, the dividend must also be non-negative.
        """
        if op.kind not in REMAINDERS:
            return False
        dividend, divisor = map(self.forms.exact, op.args)
        if dividend is None or divisor is None:
            return False
        if op.kind == "rem" and self.forms.interval(dividend)[0] < 0:
            return False
        return self.is_within(dividend, divisor)

    def is_within(self, p: Polynomial, many: Polynomial) -> bool:
        """True if a polynomial takes, provably, at most `many` consecutive values."""
        widths = [self.width(p, window) for window in (self.window, self.numbers)]
        return any(w is not None and self.is_least(many, w) for w in widths)

    def is_all_determined(self, of: object) -> bool:
        """True if the determined digits of polynomial `of` determine its value.

        The divisor of each digit must equal the product of all moduli below it. The digits must
        cover the polynomial's range, or the last has no modulus.
        """
        digits = [
            d for d in self.determined
            if isinstance(d, MixedRadixDigit) and d.of == of and not any(map(self.varies,
            d.parts()[1:]))
        ]  # fmt: skip
        reached = constant_polynomial(1)
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


# --- dependence test -----------------------------------------------------------------------------

MOST_PLACES = 16  # elements that are compared pairwise


class WriteAccess(NamedTuple):
    """An op that writes memory, its location, and the serial loops around it, outermost first."""

    op: Op
    place: MemoryLocation
    loops: Loops


class DependenceTest(Iterations):
    """The writes of a `parallel`, or of ops outside one (one invocation), with conflict tests."""

    noted = WRITES

    def __init__(self, ops: Sequence[Op], loop: Op | None, ranges: Intervals | None = None) -> None:
        self.writes: dict[Value, list[WriteAccess]] = {}
        super().__init__(ops, loop, ranges)

    def note(self, op: Op, loops: Loops) -> None:
        write = WriteAccess(op, location_of(op.args[0]), loops)
        self.writes.setdefault(base_memory(op.args[0]), []).append(write)

    # --- queries

    def is_private(self, base: Value, ptrs: Sequence[Value]) -> bool:
        """True if different iterations certainly access different elements of `base` through
        `ptrs`.

        Always true without a loop. An array parameter is not private if the loop writes another one
        that may alias it. A `local` or `shared` allocation must be defined in the loop; for
        `shared`, all accesses must also use `local_index` on the same axis.
        """
        if self.loop is None:
            return True
        if isinstance(base, Op):
            return base in self.loops and (base.kind == "local" or has_own_axis(base, ptrs))
        if any(other is not base and bases_may_alias(base, other) for other in self.writes):
            return False
        return self.have_own(base, [element_under(p) for p in ptrs])

    def have_own(self, base: Value, elements: Sequence[Op | None]) -> bool:
        """True if certainly no two iterations access the same element of an array by these `elem`
        ops.

        False if one of them is None.
        """
        known = [e for e in elements if e is not None]
        if len(known) < len(elements):
            return False
        axes = list(zip(*(e.args[1:] for e in known)))
        common = [axis[0] for axis in axes if self.are_alike(axis)]
        if self.is_one_iteration(self.same_places(base, common, common)):
            return True
        if len(common) == len(axes):
            return False
        some = list({tuple(map(self.forms.key, e.args[1:])): e for e in known}.values())
        return len(some) <= MOST_PLACES and all(
            self.never_meet(base, a, b) for k, a in enumerate(some) for b in some[k:]
        )

    def are_apart(self, a: Value, b: Value) -> bool:
        """True if certainly no two different iterations access the same component of an element,
        by these addresses of one array."""
        if not components_may_overlap(location_of(a).component, location_of(b).component):
            return True
        p, q = element_under(a), element_under(b)
        return p is not None and q is not None and self.never_meet(base_memory(a), p, q)

    def are_alike(self, values: Sequence[Value]) -> bool:
        first, key = values[0], self.forms.key
        return all(v is first or key(v) == key(first) for v in values)

    def never_meet(self, base: Value, a: Op, b: Op) -> bool:
        """True if certainly no two different iterations access the same element, one by `a`, one by
        `b`."""
        if self.is_one_iteration(self.same_places(base, a.args[1:], b.args[1:])):
            return True
        pairs = list(zip(a.args[1:], b.args[1:], strict=True))
        return any(self.lies_beside(v, w) or self.lies_beside(w, v) for v, w in pairs)

    def lies_beside(self, v: Value, fixed: Value) -> bool:
        """True if subscript v certainly never equals the loop-invariant subscript `fixed`.

        v must be a loop index plus an invariant. All its values are greater than `fixed`, or all
        are less.
        """
        own, other = self.forms.exact(v), self.forms.exact(fixed)
        if own is None or other is None or self.has_varying(other):
            return False
        rest = minus(own, other)
        for axis in self.own_axes:
            away = minus(rest, symbol_polynomial(axis.param))
            begin, end = self.forms.exact(axis.begin), self.forms.exact(axis.end)
            if begin is None or end is None or self.has_varying(away):
                continue
            least, beyond = (
                polynomial_constant(plus(away, begin)),
                polynomial_constant(plus(away, end)),
            )
            if (least is not None and least > 0) or (beyond is not None and beyond <= 0):
                return True
        return False

    def has_varying(self, p: Polynomial) -> bool:
        return any(map(self.differs, symbols_in(p)))

    def same_places(
        self, base: Value, some: Sequence[Value], others: Sequence[Value]
    ) -> set[Symbol] | None:
        """Symbols that are proved equal in two executions that access one element of `base`.

        `some` and `others` are the subscripts of the two accesses. None if it is proved that no two
        executions access one element.
        """
        return determine(self, some, others, bits_of_indices(base), extents_of(base))

    def is_one_iteration(self, determined: set[Symbol] | None) -> bool:
        """True if the symbols include all loop indices, so that both executions are the same
        iteration.

        Also true for None: no two executions exist.
        """
        return determined is None or all(index in determined for index in self.indices)

    def is_fixed(self, write: WriteAccess) -> bool:
        """True if a write's location depends on no value defined in the innermost serial loop
        around it.

        False without such a loop.
        """
        if not write.loops:
            return False
        used = [i.root for i in write.place.indices if i.root is not None]
        if isinstance(write.place.component, Value):
            used.append(write.place.component)
        return not any(write.loops[-1] in self.loops.get(v, ()) for v in used)


def has_own_axis(shared: Op, ptrs: Sequence[Value]) -> bool:
    """True if some axis of a workgroup array is indexed by `local_index` in all these accesses."""
    elements = [element_under(p) for p in ptrs]
    if shared.kind != "shared" or None in elements:
        return False
    axes = zip(*(e.args[1:] for e in elements if e is not None))
    return any(all(is_own_place(v) for v in axis) for axis in axes)


def is_own_place(v: Value) -> bool:
    return isinstance(v, Op) and v.kind == "local_index"


def bits_of_indices(base: Value) -> int:
    return 64 if is_wide(base) else INDEX_BITS


def extents_of(base: Value) -> list[Symbol]:
    """The extents of an array of dynamic shape; empty for an array of static shape."""
    t = base.type
    if not isinstance(t, Array) or t.shape is not None:
        return []
    return [extent_of(base, k) for k in range(t.ndim)]
