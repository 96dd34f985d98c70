"""Loop invariance: which values vary between iterations of a loop, or within one iteration.

>>> Iterations(body.ops, loop).is_steady(n)         # an argument
True
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import cached_property

from vkchi.analysis.values.host_numbers import host_length
from vkchi.analysis.values.interval_analysis import Intervals
from vkchi.analysis.values.polynomials import (
    ExactPolynomials,
    MixedRadixDigit,
    Polynomial,
    Symbol,
    all_symbols,
    constant_polynomial,
    minus,
    only_symbol,
    polynomial_constant,
    symbols_in,
    times,
)
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value, is_constant, params_under, walk
from vkchi.ir.ops import (
    COUNTED,
    FIXED,
    LOOPS,
    PLACES,
    TABLE,
    VARYING,
    Effect,
    LoopAxis,
    axes_of,
    control_of,
)
from vkchi.tuples import NamedTuple

INDEX_BITS = 32
Loops = tuple[Op, ...]
Window = tuple[Polynomial, Polynomial]  # least and greatest


def invariant_path(place: Value, defined: Container[Value]) -> list[Op] | None:
    """Ops of an address from its first value outside a loop inwards; None if the address varies.

    The loop makes the values `defined`.
    """
    path: list[Op] = []
    while place in defined:
        if not isinstance(place, Op) or place.kind not in PLACES:
            return None
        if any(v in defined and not is_constant(v) for v in place.args[1:]):
            return None
        path.append(place)
        place = place.args[0]
    return path[::-1]


class Iterations:
    """Invariance of values in the body of a `parallel`, or in ops outside one (a single execution).

    `loops` maps each op, and each value defined there, to the serial loops around it, outermost
    first.
    """

    noted: frozenset[str] = frozenset()

    def __init__(self, ops: Sequence[Op], loop: Op | None, ranges: Intervals | None = None) -> None:
        self.loop, self.given = loop, ranges
        self.own_axes = axes_of(loop) if loop is not None else []
        self.axes: dict[Value, LoopAxis] = {axis.param: axis for axis in self.own_axes}
        self.loops: dict[Value, Loops] = {axis.param: () for axis in self.own_axes}
        self.steady: dict[Value, bool] = {}
        self.windows: dict[tuple[Value, bool], Window | None] = {}
        self.scan(ops, ())

    def scan(self, ops: Sequence[Op], loops: Loops) -> None:
        for op in ops:
            if op.kind in self.noted:
                self.note(op, loops)
            for v in (op, *op.results):
                self.loops[v] = loops
            if op.kind in COUNTED:
                self.axes.update((axis.param, axis) for axis in axes_of(op))
            inner = (*loops, op) if op.kind in LOOPS else loops
            for region in op.regions:
                self.loops.update((p, inner) for p in region.params)
                self.scan(region.ops, inner)

    def note(self, op: Op, loops: Loops) -> None:
        """Hook for subclasses: called for each op whose kind is in the class attribute `noted`."""

    @cached_property
    def forms(self) -> ExactPolynomials:
        return ExactPolynomials(self.given if self.given is not None else Intervals(self.axes))

    @cached_property
    def indices(self) -> list[Param]:
        """The loop's indices that are not known to have only one value."""
        values = [axis.param for axis in self.own_axes]
        return [v for v in values if only_symbol(self.forms.of(v)) is v]

    # --- invariance

    def is_steady(self, v: Value) -> bool:
        """True if v is certainly the same in all iterations and does not change within one."""
        found = self.steady.get(v)
        if found is None:
            found = v not in self.loops or (isinstance(v, Op) and self.is_repeated(v))
            self.steady[v] = found
        return found

    def is_repeated(self, op: Op) -> bool:
        if op.kind in FIXED:
            return True
        is_pure = TABLE[op.kind].effect is Effect.PURE and op.kind not in VARYING
        return is_pure and all(map(self.is_steady, op.args))

    def differs(self, s: Symbol) -> bool:
        """True if a symbol may vary between iterations or within one."""
        if isinstance(s, MixedRadixDigit):
            return any(map(self.differs, all_symbols(s.parts())))
        return isinstance(s, Value) and not self.is_steady(s)

    # --- iteration count

    @cached_property
    def is_counted(self) -> bool:
        """True if the host computes the trip count of the `parallel`; false without one.

        Then a launch raises an error if the bounds wrap or the count exceeds i32.
        """
        loop = self.loop
        return loop is not None and loop.kind not in LOOPS and host_length(loop) is not None

    @cached_property
    def count(self) -> Polynomial | None:
        """The product of end minus begin over the loop's axes, as a launch-invariant polynomial.

        None if the host does not check that it fits in i32, if it is a constant, or if it is not
        invariant.
        """
        if not self.is_counted:
            return None
        total = constant_polynomial(1)
        for axis in self.own_axes:
            total = times(total, minus(self.forms.of(axis.end), self.forms.of(axis.begin)))
        is_given = not any(map(self.differs, symbols_in(total)))
        return total if is_given and polynomial_constant(total) is None else None


# --- widest bounds -------------------------------------------------------------------------------
#
# Widest loop bounds: they contain the range of a loop in every iteration of enclosing loops.
#
# for i in range(n): for j in range(i + 1, n)        # j is always in range(1, n)

LEAST, MOST = 0, 1  # also positions of the bounds in a loop's arguments


class Nest(NamedTuple):
    """The `for` and `parallel` loops of a Func by index parameter, and the given parameters."""

    loops: Mapping[Value, Op]
    given: frozenset[Param]


def nest_of(fn: Func) -> Nest:
    loops = [op for op in walk(fn.body) if op.kind in COUNTED]
    axes: dict[Value, Op] = {axis.param: op for op in loops for axis in axes_of(op)}
    return Nest(axes, frozenset(fn.params))


def emit_widest_bounds(b: Builder, loop: Op, nest: Nest) -> tuple[Value, ...] | None:
    """Emit a begin and an end per axis that hold in all iterations of enclosing loops.

    They are computed from the given parameters only. They are valid if no op in them wraps
    (`sums_under` of a loop with these bounds). If the loop's own bounds qualify, they are returned
    unchanged. None for a `while`, or if such bounds are not known.
    """
    if loop.kind not in COUNTED:
        return None
    ends = [(axis.begin, axis.end) for axis in axes_of(loop)]
    found = [extreme(b, v, k, nest) for pair in ends for k, v in enumerate(pair)]
    known = [v for v in found if v is not None]
    return tuple(known) if len(known) == len(found) else None


def with_widest_bounds(loop: Op, nest: Nest) -> Op | None:
    """A detached loop with the widest bounds, the same regions and no carried values; None without
    such bounds."""
    b = Builder()
    with b.region():
        bounds = emit_widest_bounds(b, loop, nest)
    if bounds is None:
        return None
    return Op(loop.kind, bounds, loop.attr, None, loop.span, loop.name, loop.regions)


def sums_under(loop: Op) -> list[Value]:
    """Ops in a loop's bounds that are monotone in their operands.

    The widest bounds are valid if none of these ops wraps.
    """
    found: list[Value] = []
    todo = list(loop.args[: control_of(loop).fixed])
    for v in todo:  # `todo` grows
        if isinstance(v, Op) and TABLE[v.kind].monotone:
            found.append(v)
            todo += v.args
    return found


def extreme(b: Builder, v: Value, side: int, nest: Nest) -> Value | None:
    """Emit a lower bound (`side` LEAST) or upper bound (MOST) of v over enclosing loops, or return
    None."""
    if params_under([v]) <= nest.given:
        return v
    if isinstance(v, Param):
        return extreme_index(b, v, side, nest)
    signs = TABLE[v.kind].monotone if isinstance(v, Op) else ""
    if not signs or not isinstance(v, Op):
        return None
    sides = [side if sign == "+" else 1 - side for sign in signs]
    parts = [extreme(b, a, end, nest) for a, end in zip(v.args, sides, strict=True)]
    known = [p for p in parts if p is not None]
    return b.emit(v.kind, *known) if len(known) == len(parts) else None


def extreme_index(b: Builder, index: Param, side: int, nest: Nest) -> Value | None:
    """Emit a lower bound (`side` LEAST) or upper bound (MOST) of a loop index, or return None."""
    loop = nest.loops.get(index)
    axes = axes_of(loop) if loop is not None else []
    ends = next(((a.begin, a.end) for a in axes if a.param is index), None)
    bound = extreme(b, ends[side], side, nest) if ends is not None else None
    if bound is None or side == LEAST:
        return bound
    return b.emit("sub", bound, b.const(1, index.type))  # type: ignore[arg-type]
