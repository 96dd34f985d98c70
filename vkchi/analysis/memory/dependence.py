"""Dependence test for `parallel` loops: do two iterations ever access the same element?

The subscripts of an access are polynomials (`forms`) in the loop's indices and other values. The
test assumes that two accesses have equal subscripts and solves for the indices (`equations`). If
all loop indices must then be equal, or there is no solution, no two iterations conflict.

Out-of-range accesses are harmless but read arbitrary values. Subscripts are compared modulo 2**32,
or 2**64 for arrays with 64-bit indices.

See also: `must_write` (elements that are certainly written), `footprint` (elements that may be
accessed).

    >>> DependenceTest(body.ops, loop).is_private(x, [place_of_x_i, place_of_x_i])
    True
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.memory.alias import (
    MemoryLocation,
    bases_may_alias,
    components_may_overlap,
    location_of,
)
from vkchi.analysis.memory.footprint import element_under
from vkchi.analysis.values.equations import determine
from vkchi.analysis.values.interval_analysis import Intervals
from vkchi.analysis.values.iterations import INDEX_BITS, Iterations, Loops
from vkchi.analysis.values.lattice import extent_of
from vkchi.analysis.values.sums import (
    Polynomial,
    Symbol,
    minus,
    plus,
    polynomial_constant,
    symbol_polynomial,
    symbols_in,
)
from vkchi.ir.core import Op, Value, base_memory, is_wide
from vkchi.ir.ops import WRITES
from vkchi.tuples import NamedTuple
from vkchi.types import Array

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
