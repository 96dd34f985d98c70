"""What differs between iterations of a loop, and within one.

Owns: `Iterations`: the loops around each value, which values are the same all through a launch, how
many iterations there are. Must not know: memory, what is asked.

    >>> Iterations(body.ops, loop).is_steady(n)         # an argument
    True
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from vkchi.analysis.forms import Digit, Forms, all_symbols
from vkchi.analysis.host_numbers import host_length
from vkchi.analysis.intervals import Intervals
from vkchi.analysis.sums import (
    Polynomial,
    Symbol,
    is_constant,
    minus,
    number,
    only_symbol,
    symbols_in,
    times,
)
from vkchi.ir.control import Axis, axes_of
from vkchi.ir.core import Op, Param, Value
from vkchi.ir.ops import (
    COUNTED,
    FIXED,
    LOOPS,
    TABLE,
    VARYING,
    Effect,
)

INDEX_BITS = 32
Loops = tuple[Op, ...]
Window = tuple[Polynomial, Polynomial]  # least and greatest


class Iterations:
    """A `parallel`, or ops beside any (one execution), by what differs in it: `loops` are the
    serial loops around each value that is made there, outermost first."""

    noted: frozenset[str] = frozenset()

    def __init__(self, ops: Sequence[Op], loop: Op | None, ranges: Intervals | None = None) -> None:
        self.loop, self.given = loop, ranges
        self.own_axes = axes_of(loop) if loop is not None else []
        self.axes: dict[Value, Axis] = {axis.param: axis for axis in self.own_axes}
        self.loops: dict[Value, Loops] = {axis.param: () for axis in self.own_axes}
        self.steady: dict[Value, bool] = {}
        self.windows: dict[tuple[Value, bool], Window | None] = {}
        self.scan(ops, ())

    def scan(self, ops: Sequence[Op], loops: Loops) -> None:
        """Note what these ops make."""
        for op in ops:
            if op.kind in self.noted:
                self.note(op, loops)
            for v in op.results:
                self.loops[v] = loops
            if op.kind in COUNTED:
                self.axes.update((axis.param, axis) for axis in axes_of(op))
            inner = (*loops, op) if op.kind in LOOPS else loops
            for region in op.regions:
                self.loops.update((p, inner) for p in region.params)
                self.scan(region.ops, inner)

    def note(self, op: Op, loops: Loops) -> None:
        """Note what else one of the ops `noted` does, in these loops."""

    @cached_property
    def forms(self) -> Forms:
        """Polynomials of values."""
        return Forms(self.given if self.given is not None else Intervals(self.axes))

    @cached_property
    def indices(self) -> list[Param]:
        """The loop's indices that have more than one value."""
        values = [axis.param for axis in self.own_axes]
        return [v for v in values if only_symbol(self.forms.of(v)) is v]

    # --- what is equal if indices are

    def is_steady(self, v: Value) -> bool:
        """Whether v is the same in all invocations, and all through one."""
        found = self.steady.get(v)
        if found is None:
            found = v not in self.loops or (isinstance(v, Op) and self.is_repeated(v))
            self.steady[v] = found
        return found

    def is_repeated(self, op: Op) -> bool:
        """Whether an op of the loop always finds the same."""
        if op.kind in FIXED:
            return True
        is_pure = TABLE[op.kind].effect is Effect.PURE and op.kind not in VARYING
        return is_pure and all(map(self.is_steady, op.args))

    def differs(self, s: Symbol) -> bool:
        """Whether a symbol may differ between iterations, or within one."""
        if isinstance(s, Digit):
            return any(map(self.differs, all_symbols(s.parts())))
        return isinstance(s, Value) and not self.is_steady(s)

    # --- how many values there are

    @cached_property
    def is_counted(self) -> bool:
        """Whether the host counts the loop, so that bounds that wrap, and more iterations than i32
        holds, are errors of the launch; what a serial loop does there is another's to ask."""
        loop = self.loop
        return loop is not None and loop.kind not in LOOPS and host_length(loop) is not None

    @cached_property
    def count(self) -> Polynomial | None:
        """A number of iterations that the loop has, if a launch with more than i32 holds is an
        error."""
        if not self.is_counted:
            return None
        total = number(1)
        for axis in self.own_axes:
            total = times(total, minus(self.forms.of(axis.end), self.forms.of(axis.begin)))
        is_given = not any(map(self.differs, symbols_in(total)))
        return total if is_given and is_constant(total) is None else None
