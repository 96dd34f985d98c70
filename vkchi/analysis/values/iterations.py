"""Loop invariance: which values vary between iterations of a loop, or within one iteration.

>>> Iterations(body.ops, loop).is_steady(n)         # an argument
True
"""

from __future__ import annotations

from collections.abc import Container, Sequence
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
from vkchi.ir.control_ops import LoopAxis, axes_of
from vkchi.ir.core import Op, Param, Value, is_constant
from vkchi.ir.ops import (
    COUNTED,
    FIXED,
    LOOPS,
    PLACES,
    TABLE,
    VARYING,
    Effect,
)

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
