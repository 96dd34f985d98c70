"""Which elements iterations of a loop come to, and whether two iterations ever come to one.

The relation: an access takes an iteration to an element, whose indices are polynomials (`forms`) of
the loop's indices and of other numbers. Two accesses meet where theirs are equal. If it follows
(`equations`) that all indices of the loop are equal then, or that nothing is, two iterations never
come to one element by these accesses. What lies outside an array is harmless but holds anything,
and an index counts in 32 bits there, but in arrays that are wide.

Owns: `Survey`, of one loop. `must_write` says which elements are surely written, `footprint` which
are touched at most. Must not know: what the answers are for.

    >>> Survey(body.ops, loop).is_private(x, [place_of_x_i, place_of_x_i])
    True
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.alias import Place, may_share, place_of
from vkchi.analysis.equations import determine
from vkchi.analysis.footprint import element_under
from vkchi.analysis.intervals import Intervals
from vkchi.analysis.iterations import INDEX_BITS, Iterations, Loops
from vkchi.analysis.lattice import extent_of
from vkchi.analysis.sums import Polynomial, Symbol, is_constant, minus, plus, symbol, symbols_in
from vkchi.ir.core import Op, Value, base_of, is_wide
from vkchi.ir.ops import WRITES
from vkchi.tuples import NamedTuple
from vkchi.types import Array

MOST_PLACES = 16  # that are compared in pairs


class Write(NamedTuple):
    """An op that writes memory, its place, and the serial loops around it, outermost first."""

    op: Op
    place: Place
    loops: Loops


class Survey(Iterations):
    """The writes of a `parallel`, or of ops beside any (one invocation), and what they meet."""

    noted = WRITES

    def __init__(self, ops: Sequence[Op], loop: Op | None, ranges: Intervals | None = None) -> None:
        self.writes: dict[Value, list[Write]] = {}
        super().__init__(ops, loop, ranges)

    def note(self, op: Op, loops: Loops) -> None:
        """Note what an op writes."""
        write = Write(op, place_of(op.args[0]), loops)
        self.writes.setdefault(base_of(op.args[0]), []).append(write)

    # --- questions

    def is_private(self, base: Value, ptrs: Sequence[Value]) -> bool:
        """Whether each invocation has places of its own in the array."""
        if self.loop is None:
            return True
        if isinstance(base, Op):
            return base in self.loops and (base.kind == "local" or has_own_axis(base, ptrs))
        if any(other is not base and may_share(base, other) for other in self.writes):
            return False
        return self.have_own(base, [element_under(p) for p in ptrs])

    def have_own(self, base: Value, elements: Sequence[Op | None]) -> bool:
        """Whether two iterations never come to one of these elements of an array, or one each to
        any two of them."""
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

    def are_alike(self, values: Sequence[Value]) -> bool:
        """Whether all are computed alike."""
        first, key = values[0], self.forms.key
        return all(v is first or key(v) == key(first) for v in values)

    def never_meet(self, base: Value, a: Op, b: Op) -> bool:
        """Whether two iterations never come to one element of an array, one by each of these."""
        if self.is_one_iteration(self.same_places(base, a.args[1:], b.args[1:])):
            return True
        pairs = list(zip(a.args[1:], b.args[1:], strict=True))
        return any(self.lies_beside(v, w) or self.lies_beside(w, v) for v, w in pairs)

    def lies_beside(self, v: Value, fixed: Value) -> bool:
        """Whether a number, an index of the loop and what is the same in all iterations, is never
        what another is that is the same in all: all indices are greater, or all are less."""
        own, other = self.forms.exact(v), self.forms.exact(fixed)
        if own is None or other is None or self.has_varying(other):
            return False
        rest = minus(own, other)
        for axis in self.own_axes:
            away = minus(rest, symbol(axis.param))
            begin, end = self.forms.exact(axis.begin), self.forms.exact(axis.end)
            if begin is None or end is None or self.has_varying(away):
                continue
            least, beyond = is_constant(plus(away, begin)), is_constant(plus(away, end))
            if (least is not None and least > 0) or (beyond is not None and beyond <= 0):
                return True
        return False

    def has_varying(self, p: Polynomial) -> bool:
        """Whether a polynomial may differ between iterations, or within one."""
        return any(map(self.differs, symbols_in(p)))

    def same_places(
        self, base: Value, some: Sequence[Value], others: Sequence[Value]
    ) -> set[Symbol] | None:
        """The symbols that are equal in two executions that come to one element of an array by
        these indices; None if there are no such executions."""
        return determine(self, some, others, bits_of_indices(base), extents_of(base))

    def is_one_iteration(self, determined: set[Symbol] | None) -> bool:
        """Whether these, equal in two executions, say that one iteration did both; None says that
        there are no such."""
        return determined is None or all(index in determined for index in self.indices)

    def is_fixed(self, write: Write) -> bool:
        """Whether the innermost serial loop around a write always comes to the same place."""
        if not write.loops:
            return False
        used = [i.root for i in write.place.indices if i.root is not None]
        if isinstance(write.place.component, Value):
            used.append(write.place.component)
        return not any(write.loops[-1] in self.loops.get(v, ()) for v in used)


def has_own_axis(shared: Op, ptrs: Sequence[Value]) -> bool:
    """Whether an axis of a workgroup array is indexed by the invocation's place in its workgroup at
    all these places."""
    elements = [element_under(p) for p in ptrs]
    if shared.kind != "shared" or None in elements:
        return False
    axes = zip(*(e.args[1:] for e in elements if e is not None))
    return any(all(is_own_place(v) for v in axis) for axis in axes)


def is_own_place(v: Value) -> bool:
    """Whether v is the invocation's place in its workgroup."""
    return isinstance(v, Op) and v.kind == "local_index"


def bits_of_indices(base: Value) -> int:
    """The bits of indices that count."""
    return 64 if is_wide(base) else INDEX_BITS


def extents_of(base: Value) -> list[Symbol]:
    """The extents of an array, of which none is 0 where there are elements."""
    t = base.type
    if not isinstance(t, Array) or t.shape is not None:
        return []
    return [extent_of(base, k) for k in range(t.ndim)]
