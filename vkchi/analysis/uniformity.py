"""Uniformity analysis of a workgroup: reports barriers in divergent control flow.

A condition is divergent if it provably differs within a workgroup. Such a condition is computed
only from uniform values, such as constants and arguments, and the invocation's position:
`local_index`, `i % n`, the lane number. A `for` is divergent if one of its bounds is divergent and
the other uniform. A `while` never counts. Loads, loop-carried values and other functions of the
global index are unknown and never reported: programs write `if i // 64 < n` and mean whole
workgroups.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import reduce

from vkchi.analysis.values.interval_analysis import conjuncts
from vkchi.errors import KernelSyntaxError
from vkchi.ir.core import Op, Param, Region, Value, constant_int, has_kind
from vkchi.ir.ops import (
    COMPARISONS,
    REMAINDERS,
    TABLE,
    Effect,
    Trait,
    axes_of,
    effect_of,
    kinds_with,
)
from vkchi.span import Span

BARRIERS = frozenset({"barrier"})
DEEPEST_CONDITION = 1000  # nested logical ops in a condition


class Uniformity(enum.IntEnum):
    """Lattice of workgroup uniformity; join is max."""

    UNIFORM = 0
    DIVERGENT = 1
    UNKNOWN = 2


# Uniformity of ops without operands.
SOURCES = dict.fromkeys(kinds_with(Trait.UNIFORM), Uniformity.UNIFORM) | dict.fromkeys(
    kinds_with(Trait.DISTINCT), Uniformity.DIVERGENT
)
MERGING = kinds_with(Trait.MERGES)


def check_barriers(loop: Op) -> None:
    """Raise KernelSyntaxError for a `barrier` in provably divergent control flow of `loop`."""
    BarrierChecker(loop).check(loop.regions[0], None)


class BarrierChecker:
    """Uniformity of the values of one `parallel`."""

    def __init__(self, loop: Op) -> None:
        self.axes = axes_of(loop)
        self.index: Value | None = self.axes[0].param if len(self.axes) == 1 else None
        self.block: int | None = loop.attr
        self.inner: set[Value] = set(loop.regions[0].params)
        self.found: dict[Value, Uniformity] = {}

    def check(self, region: Region, cause: Op | None) -> None:
        """Raise KernelSyntaxError for a barrier in divergent control flow of a region.

        `cause` is the innermost divergent op around the region, or None.
        """
        self.inner.update(region.params)
        for op in region.ops:
            if op.kind == "barrier" and cause is not None:
                raise divergent(op, cause)
            if op.regions and has_kind_inside(op):
                for inner, truth in zip(op.regions, (True, False)):
                    self.check(inner, self.cause(op, truth) or cause)

    def cause(self, op: Op, truth: bool) -> Op | None:
        """The op by which invocations provably diverge at an `if` or `for`; None if there is none.

        For an `if`, the region in question is entered if the condition equals `truth`. A `for`
        whose bounds are both divergent may still have the same trip count in all invocations.
        """
        if op.kind == "for":
            ends = {self.uniformity(v) for v in op.args[:2]}
            return op if ends == {Uniformity.UNIFORM, Uniformity.DIVERGENT} else None
        if op.kind != "if":
            return None
        if self.is_apart(op.args[0]):
            return op
        decided = (v for v, _ in conjuncts(op.args[0], truth, DEEPEST_CONDITION))
        return next((v for v in decided if isinstance(v, Op) and self.is_apart(v)), None)

    def is_apart(self, v: Value) -> bool:
        return self.uniformity(v) is Uniformity.DIVERGENT

    def uniformity(self, v: Value) -> Uniformity:
        """Uniformity of a value, memoized."""
        known = self.found.get(v)
        if known is None:
            known = self.found[v] = self.judge(v)
        return known

    def judge(self, v: Value) -> Uniformity:
        if isinstance(v, Param):
            if self.limit(v) is not None:
                return Uniformity.DIVERGENT
            return Uniformity.UNKNOWN if v in self.inner else Uniformity.UNIFORM
        if not isinstance(v, Op):
            return Uniformity.UNKNOWN
        if v.kind in SOURCES:
            return SOURCES[v.kind]
        if v.kind in REMAINDERS:
            return self.remainder(v)
        if effect_of(v.kind) is not Effect.PURE or not v.args:
            return Uniformity.UNKNOWN
        found = reduce(max, map(self.uniformity, v.args))
        if found is Uniformity.DIVERGENT and (v.kind in MERGING or self.is_certain(v)):
            return Uniformity.UNKNOWN
        return found

    def remainder(self, op: Op) -> Uniformity:
        """DIVERGENT if remainder `op` provably takes all its values within one workgroup, otherwise
        UNKNOWN."""
        return Uniformity.DIVERGENT if self.limit(op) is not None else Uniformity.UNKNOWN

    def is_certain(self, op: Op) -> bool:
        """True for a comparison, unless it provably has both results within one workgroup. False
        for other ops.

        The proof needs a position in the workgroup and a constant as operands. The comparison is
        evaluated at position 0, at the last position and at the one nearest to the constant.
        """
        if op.kind not in COMPARISONS:
            return False
        compare: Callable[[int, int], bool] = TABLE[op.kind].numpy  # type: ignore[assignment]
        (x, y), numbers = op.args, [constant_int(v) for v in op.args]
        place, n = (x, numbers[1]) if numbers[0] is None else (y, numbers[0])
        limit = self.limit(place)
        if limit is None or n is None:
            return True
        ends = {0, limit - 1, min(max(n, 0), limit - 1)}
        return len({compare(*((k, n) if place is x else (n, k))) for k in ends}) == 1

    def limit(self, v: Value) -> int | None:
        """Number of values, from 0 on, that v takes if it is a position in the workgroup.

        Positions are `local_index`, remainders of it or of the only loop index, and the last of
        several loop indices. None for other values, for less than two values, and for more than the
        workgroup size.
        """
        if self.block is None:
            return None
        if (
            v is self.axes[-1].param
            and len(self.axes) > 1
            and constant_int(self.axes[-1].begin) == 0
        ):
            n = constant_int(self.axes[-1].end)
            return n if n is not None and 1 < n <= self.block else None
        if not isinstance(v, Op):
            return None
        n = self.block if v.kind == "local_index" else None
        if v.kind in REMAINDERS and is_consecutive(v.args[0], self.index):
            n = constant_int(v.args[1])
        return n if n is not None and 1 < n <= self.block else None


def is_consecutive(v: Value, index: Value | None) -> bool:
    return v is index or (isinstance(v, Op) and v.kind == "local_index")


def has_kind_inside(op: Op) -> bool:
    return any(has_kind(region, BARRIERS) for region in op.regions)


def divergent(barrier: Op, cause: Op) -> KernelSyntaxError:
    where: Span | None = cause.span
    return KernelSyntaxError(
        "only some invocations of the workgroup come to this `sync`, and they would wait for ever",
        barrier.span,
        notes=(("whether they come is decided here", where),) if where else (),
        help="put the `sync` before or behind the `if` or loop, where all come to it",
    )
