"""Must-write analysis: boxes of arrays that a launch certainly overwrites completely.

`MustWrite` considers the stores that every iteration of their loops executes. `CoverageProof`
proves that such a store fills the box whose ranges `interval_analysis` computes.

    >>> MustWrite(fn, segments).boxes({"t": 3}, {"x": x})         # for i in range(4): x[t, i] = 0.0
    [Covered(segment=0, name="x", box=((3, 3), (0, 3)))]
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from math import prod
from typing import TypeVar

from vkchi.analysis.memory.boxes import Box, Covered, Shaped, full_box
from vkchi.analysis.memory.segments import Segment
from vkchi.analysis.values.interval_analysis import Intervals, axes_in
from vkchi.analysis.values.polynomials import (
    ONE,
    ExactPolynomials,
    MixedRadixDigit,
    Monomial,
    Polynomial,
    Symbol,
    Term,
    as_polynomial,
    constant_polynomial,
    freeze,
    is_integer,
    is_least,
    minus,
    negative,
    only_symbol,
    plus,
    symbol_polynomial,
    times,
)
from vkchi.analysis.values.ranges import Extent, extent_of
from vkchi.interrupts.weak import insert_bounded
from vkchi.ir.core import Func, Op, Param, Region, Value, base_memory, is_constant, is_wide, walk
from vkchi.ir.ops import COUNTED, TABLE, Effect, LoopAxis, axes_of
from vkchi.target.artifact import MemoryFill
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Tensor, i32, scalar_of
from vkchi.types.layout import shares_words

# --- coverage proof ------------------------------------------------------------------------------
#
# Coverage proof for must-write analysis: a store in a loop nest writes every element of a box.
#
# Precondition: every iteration of the store's loops executes it. Subscripts are polynomials
# (`ExactPolynomials`) in loop indices, digits of these (mixed-radix components), and extents of the
# array. Each index or digit may occur in one axis only. A subscript takes consecutive values if
#
# - it is plus or minus one digit, plus a constant: then the digit must take as many values as the
#   box has;
# - or it is a sum of digits with coefficients, and no coefficient exceeds the range of the terms
#   before it plus one. Example: `n * i + j` with j in [0, n).
#
# The digits of one index are independent under two conditions. The divisor of each is a multiple of
# the divisor times the modulus of the one below, and the values of the last digit fit into the
# loop.
#
# Assumptions:
#
# - equal polynomials are equal values, because sums and products wrap as polynomials do;
# - extents are at least 1, because an empty array has no element to write;
# - extents of an array without 64-bit indices multiply to less than 2**31;
# - bounds of a `parallel` do not overflow: its launch would raise an error. Bounds of a `for` may
#   wrap, so they must be proved not to.
#
# See also: `CoverageProof` handles a given box, `ArrayCoverage` one array of any shape.
#
#     >>> ArrayCoverage(y).is_stored(store)  # for i in range(n): y[n - 1 - i] = 0.0; n = y.shape[0]
#     True

MOST_OPS = 32  # in a bound; the host does not evaluate longer ones (host_numbers)
Span = tuple[Polynomial, Polynomial]  # first value, number of values


class MustStore(NamedTuple):
    """A store to an array that every iteration of `loops` executes. `element` is its `elem` op."""

    op: Op
    element: Op
    loops: tuple[Op, ...]
    segment: int


class DigitRange(NamedTuple):
    """Values that a digit takes, or must take: `many` consecutive ones from `low`.

    A loop index counts as its own digit, with divisor 1 and no modulus.
    """

    digit: MixedRadixDigit
    low: Polynomial
    many: Polynomial


class CoverageProof:
    """Coverage test for stores; `forms` are the polynomials of values."""

    def __init__(self, forms: ExactPolynomials) -> None:
        self.forms = forms

    def reaches(self, store: MustStore, box: Sequence[Span]) -> bool:
        """True if a store is proved to write all elements of a box of (first index, count) per
        axis."""
        axes: dict[Value, tuple[Op, LoopAxis]] = {
            axis.param: (loop, axis) for loop in store.loops for axis in axes_of(loop)
        }
        needed: dict[Symbol, list[DigitRange]] = {
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
        self, p: Polynomial, span: Span, axes: dict[Value, tuple[Op, LoopAxis]]
    ) -> list[DigitRange] | None:
        """Values that each digit of subscript p must take to cover the indices `span`; None if
        unknown."""
        terms: list[tuple[MixedRadixDigit, Polynomial]] = []
        for m, c in p.items():
            digits = [(s, k) for s, k in m if isinstance(s, MixedRadixDigit) or s in axes]
            if len(digits) > 1 or any(k > 1 for _, k in digits):
                return None
            factor = m - frozenset(digits)
            if digits and all(isinstance(s, Extent) for s, _ in factor):
                terms.append((as_digit(digits[0][0]), {factor: c}))
        rest = {m: c for m, c in p.items() if all(isinstance(s, Extent) for s, _ in m)}
        if len({digit for digit, _ in terms}) + len(rest) < len(p):
            return None
        if not terms:
            return [] if rest == span[0] and span[1] == constant_polynomial(1) else None
        digit, by = terms[0]
        if len(terms) == 1 and by in (constant_polynomial(1), constant_polynomial(-1)):
            return [self.one(digit, by, rest, span)]
        return self.several(terms, rest, span, axes)

    def one(
        self, digit: MixedRadixDigit, factor: Polynomial, rest: Polynomial, span: Span
    ) -> DigitRange:
        """Case `subscript = ±digit + const`: the values of the digit that cover `span`."""
        first, many = span
        if factor == constant_polynomial(1):
            return DigitRange(digit, minus(first, rest), many)
        last = minus(plus(first, many), constant_polynomial(1))
        return DigitRange(digit, minus(rest, last), many)

    def several(
        self,
        terms: Sequence[tuple[MixedRadixDigit, Polynomial]],
        rest: Polynomial,
        span: Span,
        axes: dict[Value, tuple[Op, LoopAxis]],
    ) -> list[DigitRange] | None:
        """Case of a sum of digits with coefficients: all values of each digit.

        None if it is not proved that they cover `span` without gaps.
        """
        left = [(*term, self.values_of(term[0], axes)) for term in terms]
        found: list[DigitRange] = []
        many, first = constant_polynomial(1), rest
        while left:
            fitting = [k for k, (_, c, values) in enumerate(left)
                       if values is not None and self.is_least(many, self.size(c))]  # fmt: skip
            if not fitting:
                return None
            digit, c, values = left.pop(fitting[0])
            assert values is not None
            low, count = values
            if not self.is_least(self.size(c), constant_polynomial(1)):
                return None
            last = minus(plus(low, count), constant_polynomial(1))
            first = plus(first, times(c, low if self.is_least(c, constant_polynomial(1)) else last))
            many = plus(many, times(self.size(c), minus(count, constant_polynomial(1))))
            found.append(DigitRange(digit, low, count))
        skipped = minus(span[0], first)
        is_enough = self.is_least(skipped, {}) and self.is_least(many, plus(skipped, span[1]))
        return found if is_enough else None

    def size(self, c: Polynomial) -> Polynomial:
        return negative(c) if next(iter(c.values())) < 0 else c

    def values_of(
        self, digit: MixedRadixDigit, axes: dict[Value, tuple[Op, LoopAxis]]
    ) -> Span | None:
        """First value of a digit and number of its consecutive values; None if unknown."""
        if digit.modulus is not None:
            return {}, as_polynomial(digit.modulus)
        index = only_symbol(dict(digit.of))
        if digit.divisor != (ONE, 1) or not isinstance(index, Value) or index not in axes:
            return None
        _, axis = axes[index]
        begin, end = self.forms.of(axis.begin), self.forms.of(axis.end)
        return begin, minus(end, begin)

    # --- loops -----------------------------------------------------------------------------------

    def goes_round(self, loop: Op, axis: LoopAxis, needed: Sequence[DigitRange]) -> bool:
        """True if a loop index is proved to take all combinations of the needed digit values."""
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
        bounds = [v for axis in axes_of(loop) for v in (axis.begin, axis.end)]
        return all(count_ops(v, MOST_OPS) <= MOST_OPS for v in bounds)

    def bound(self, v: Value) -> Polynomial | None:
        """A bound as a polynomial of extents, or None."""
        p = self.forms.of(v)
        return p if all(isinstance(s, Extent) for m in p for s, _ in m) else None

    def bounds_under(self, v: Value) -> Iterator[Polynomial]:
        """Polynomials that are lower bounds of v."""
        found = self.bound(v)
        if found is not None:
            yield found
        elif isinstance(v, Op) and v.kind == "max":
            for x in v.args:
                yield from self.bounds_under(x)

    def has_all(self, begin: Polynomial, trips: Polynomial, needed: Sequence[DigitRange]) -> bool:
        """True if an index with at least `trips` values from `begin` is proved to take all
        combinations.

        `needed` are the values of its digits.
        """
        if not self.is_least(trips, constant_polynomial(1)):
            return False
        if not needed:
            return True
        if len(needed) == 1 and needed[0].digit == MixedRadixDigit(needed[0].digit.of):
            skipped = minus(needed[0].low, begin)
            needs = plus(skipped, needed[0].many)
            return self.is_least(skipped, {}) and self.is_least(trips, needs)
        return begin == {} and self.are_independent(trips, needed)

    def are_independent(self, trips: Polynomial, needed: Sequence[DigitRange]) -> bool:
        """True if digits of an index from 0 are proved to take all their combinations of values.

        The divisor of each is a multiple of the divisor times the modulus of the one below. The
        last fits into `trips`; only it may lack a modulus.
        """
        room = constant_polynomial(1)
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
        """True if p >= q is proved for all non-empty shapes, from the ranges of symbols."""
        return is_least(p, q, self.forms.is_positive)


class ArrayCoverage(CoverageProof):
    """Proof that a store writes all elements of an array parameter, whatever its shape.

    `origin`: index of the array's first element (default: zeros).
    """

    def __init__(self, array: Param, origin: Sequence[int] = ()) -> None:
        self.array = array
        t = array.type
        assert isinstance(t, Array)
        first = list(origin) or [0] * t.ndim
        self.box = [(constant_polynomial(o), self.extent(t, k)) for k, o in enumerate(first)]

    def extent(self, t: Array, axis: int) -> Polynomial:
        return (
            constant_polynomial(t.shape[axis])
            if t.shape
            else symbol_polynomial(extent_of(self.array, axis))
        )

    def is_stored(self, store: MustStore) -> bool:
        """True if the store is proved to write all elements; false for 64-bit indices."""
        axes: dict[Value, LoopAxis] = {
            axis.param: axis for loop in store.loops for axis in axes_of(loop)
        }
        self.forms = ExactPolynomials(Intervals(axes), self.array)
        return not is_wide(self.array) and self.reaches(store, self.box)


def as_digit(s: Symbol) -> MixedRadixDigit:
    """Convert an index to its own digit; a digit is returned unchanged."""
    return s if isinstance(s, MixedRadixDigit) else MixedRadixDigit(freeze(symbol_polynomial(s)))


def divides(p: Polynomial, term: Term) -> bool:
    """True if a polynomial of one term divides `term`."""
    if len(p) != 1:
        return False
    ((monomial, c),) = p.items()
    return c > 0 and term[1] % c == 0 and is_part(monomial, term[0])


def is_part(some: Monomial, of: Monomial) -> bool:
    powers = dict(of)
    return all(k <= powers.get(s, 0) for s, k in some)


def size_of(taken: DigitRange) -> tuple[int, int]:
    """Sort key of digits: the degree and coefficient of the divisor."""
    monomial, c = taken.digit.divisor
    return sum(k for _, k in monomial), c


def count_ops(v: Value, most: int) -> int:
    """Number of nodes in an expression tree; counting stops above `most`."""
    if not isinstance(v, Op) or most <= 0:
        return 1
    total = 1
    for x in v.args:
        total += count_ops(x, most - total)
        if total > most:
            break
    return total


# --- unconditional stores ------------------------------------------------------------------------


class MustWrite:
    """The unconditional stores to array parameters of a Func, in program order.

    A store in a loop counts if every iteration executes it.
    """

    def __init__(self, fn: Func, segments: Sequence[Segment]) -> None:
        self.given = [p for p in fn.params if is_integer(p)]
        self.axes = axes_in(fn.body)
        self.stores = [
            MustStore(op, element, loops, s.number)
            for s in segments
            for op, loops in sure_ops(s.ops)
            if op.kind == "store" and isinstance(base_memory(op.args[0]), Param)
            if (element := element_under(op.args[0])) is not None
        ]
        self.names = frozenset(name_of(s) for s in self.stores)
        self.known: dict[Hashable, list[Covered]] = {}

    def boxes(self, numbers: Mapping[str, int], arrays: Mapping[str, Shaped]) -> list[Covered]:
        """The boxes that a launch with these arguments certainly overwrites, in program order;
        memoized."""
        shapes = tuple([(name, array.shape) for name, array in arrays.items()])
        key = tuple(numbers.items()), shapes
        if key not in self.known:
            insert_bounded(self.known, key, self._boxes(numbers, arrays), MOST_KNOWN)
        return self.known[key]

    def _boxes(self, numbers: Mapping[str, int], arrays: Mapping[str, Shaped]) -> list[Covered]:
        known: dict[Value, int] = {p: numbers[p.name] for p in self.given if p.name in numbers}
        extents = {(n, k): e for n, a in arrays.items() for k, e in enumerate(a.shape)}
        ranges = Intervals(self.axes, known, extents)
        forms = ExactPolynomials(ranges)
        boxes = [(store, exact_box(store, forms)) for store in self.stores]
        found = [(s, Covered(s.segment, name_of(s), box)) for s, box in boxes if box is not None]
        return with_all_components(found)


MOST_KNOWN = 1000  # cached results, by launch arguments
T = TypeVar("T")


def with_all_components(found: Sequence[tuple[MustStore, T]]) -> list[T]:
    """Filter pairs (store, value), in order.

    A value is kept where the stores paired with it so far write all components of the elements.
    """
    parts: dict[T, set[int]] = {}
    whole = []
    for store, covered in found:
        place, t = store.op.args[0], base_memory(store.op.args[0]).type
        assert isinstance(t, Array) and isinstance(place, Op)
        size = t.elem.size if isinstance(t.elem, Tensor) else 1
        stored = parts.setdefault(covered, set())
        stored.update(range(size) if place is store.element else [place.attr])
        if len(stored) == size:
            whole.append(covered)
    return whole


def name_of(store: MustStore) -> str:
    root = base_memory(store.op.args[0])
    assert isinstance(root, Param)
    return root.name


def element_under(place: Value) -> Op | None:
    """The `elem` op of a pointer to an element or to a constant component of one, or None."""
    if isinstance(place, Op) and place.kind == "member":
        place = place.args[0]
    return place if isinstance(place, Op) and place.kind == "elem" else None


def sure_ops(ops: Sequence[Op], loops: tuple[Op, ...] = ()) -> Iterator[tuple[Op, tuple[Op, ...]]]:
    """Ops that every iteration of the enclosing counted loops executes, each with these loops.

    An `if` or `while` is yielded itself, without its contents.
    """
    for op in ops:
        if op.kind in COUNTED:
            region: Region = op.regions[0]
            yield from sure_ops(region.ops, (*loops, op))
        else:
            yield op, loops


def exact_box(store: MustStore, forms: ExactPolynomials) -> Box | None:
    """The box of the store's subscripts if the store certainly fills it, otherwise None."""
    box = tuple(map(forms.ranges.of, store.element.args[1:]))
    known = [r for r in box if r is not None and r[0] <= r[1]]
    spans = [(constant_polynomial(low), constant_polynomial(high + 1 - low)) for low, high in known]
    is_filled = len(known) == len(box) and CoverageProof(forms).reaches(store, spans)
    return box if is_filled else None


# --- dispatches that only set arrays -------------------------------------------------------------
#
# Recognition of dispatches that only set whole arrays to one constant each (memset idiom).
#
# A device can run such a dispatch by fill commands. Conditions:
#
# - every op is pure, a counted loop, a `yield`, or a store of a constant whose 32-bit words are
#   equal;
# - all stores to an array store the same word;
# - each array is contiguous and of static shape;
# - every element is stored to (`must_write`).
#
#     >>> fills_of(fn)                     # for i, j in x: x[i, j] = 0.0; x is f32 of shape (4, 8)
#     (MemoryFill(name="x", word=0, size_bytes=128),)

WORD_BITS = 32


def fills_of(fn: Func) -> tuple[MemoryFill, ...]:
    """The fills that a dispatch is equivalent to; () if it is not proved to consist of fills."""
    words = words_in(fn)
    if not words:
        return ()
    from vkchi.analysis.memory.segments import find_segments  # lazy: few dispatches are fills

    types = {p.name: p.type for p in words if isinstance(p.type, Array)}
    stored = MustWrite(fn, find_segments(fn)).boxes({}, {})
    whole = {c.name for c in stored if c.box == box_of(types[c.name])}
    if len(whole) < len(words):
        return ()
    return tuple([MemoryFill(p.name, word, bytes_of(types[p.name])) for p, word in words.items()])


def words_in(fn: Func) -> dict[Param, int] | None:
    """Map each stored array to the 32-bit word that all stores to it repeat.

    None if a store has no such word, or if the words of an array differ. Also None for an op that
    is neither a store nor pure, a counted loop or a `yield`.
    """
    found: dict[Param, int] = {}
    for op in walk(fn.body):
        if op.kind == "store":
            array, word = base_memory(op.args[0]), word_of(op)
            if word is None or not isinstance(array, Param) or found.get(array, word) != word:
                return None
            found[array] = word
        elif not (TABLE[op.kind].effect is Effect.PURE or op.kind in COUNTED or op.kind == "yield"):
            return None
    return found


def word_of(store: Op) -> int | None:
    """The 32-bit word that a store of a constant repeats in a contiguous array; otherwise None."""
    array, value = base_memory(store.args[0]).type, store.args[1]
    if not (isinstance(array, Array) and is_piece(array) and is_constant(value)):
        return None
    bits = array.stored.bits
    parts = {bits_at(n, bits, k) for n in numbers_of(value) for k in range(0, bits, WORD_BITS)}
    if scalar_of(value.type) is not array.stored or len(parts) != 1:
        return None
    (part,) = parts
    return sum(part << at for at in range(0, WORD_BITS, min(bits, WORD_BITS)))


def bits_at(number: int, bits: int, at: int) -> int:
    """Extract the bits of a scalar, `bits` wide, from bit `at` on, at most 32 of them."""
    return number >> at & ((1 << min(bits, WORD_BITS)) - 1)


def numbers_of(value: Value) -> tuple[int, ...]:
    assert isinstance(value, Op)
    return value.attr if isinstance(value.type, Tensor) else (value.attr,)


def is_piece(t: Array) -> bool:
    """True if an array is contiguous, without padding, and consists of whole 32-bit words.

    It must also be global, of static shape, and not empty.
    """
    if t.shape is None or t.space != "global" or not isinstance(t.stored, Scalar):
        return False
    if shares_words(t.layout):
        return False
    numbers = numbers_in(t)
    spread = numbers if t.layout is None else t.layout.size
    return 0 < spread == numbers and not bytes_of(t) * 8 % WORD_BITS


def numbers_in(t: Array) -> int:
    return prod(t.shape or ()) * t.scalars_per_element


def bytes_of(t: Array) -> int:
    return numbers_in(t) * t.stored.size_bytes


def box_of(t: Array) -> Box:
    """The box of all elements of an array of static shape."""
    return full_box(t.shape or (), t.layout.origin if t.layout is not None else ())
