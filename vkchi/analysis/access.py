"""Which elements iterations of a loop come to, and whether two iterations ever come to one.

An iteration has a place of its own in an array if no other array that the loop writes may be the
same memory, and some axes have indices that are computed alike in all accesses and that tell the
iteration: the loop's index, plus a constant, or what recovers it (`t // n` and `t % n` give t, a
sum with a value from outside gives the other term, a widening conversion its operand). So other
axes may run: x[i, k] is its own for any k, if all accesses say x[i, ...].

Owns: `Survey`, of one loop. `must_write` says which elements are surely written, `footprint` which
are touched at most. Must not know: what the answers are for.

    >>> Survey(body.ops, index).is_private(x, [place_of_x_i, place_of_x_i])
    True
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vkchi.analysis.alias import Index, Place, may_share, place_of
from vkchi.ir.constants import constant_int, is_same
from vkchi.ir.control import axes_of
from vkchi.ir.core import Op, Param, Value, base_of
from vkchi.ir.intervals import fit, type_range
from vkchi.ir.ops import FIXED, LOOPS, TABLE, WRITES, Effect
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar

REMAINDERS = {"truncdiv": "rem", "floordiv": "mod"}  # of the same operands
MOST_DEPTH = 6  # of what is compared to find that two indices are computed alike
Loops = tuple[Op, ...]


class Write(NamedTuple):
    """An op that writes memory, its place, and the serial loops around it, outermost first."""

    op: Op
    place: Place
    loops: Loops


class Survey:
    """The writes of a `parallel`, or of the ops beside it (without indices: one invocation), and
    the serial loops around each value that is made here."""

    def __init__(self, ops: Sequence[Op], indices: Sequence[Param]) -> None:
        self.indices = indices
        self.loops: dict[Value, Loops] = {index: () for index in indices}
        self.writes: dict[Value, list[Write]] = {}
        self.scan(ops, ())

    def scan(self, ops: Sequence[Op], loops: Loops) -> None:
        """Note what these ops make and write."""
        for op in ops:
            for v in op.results:
                self.loops[v] = loops
            if op.kind in WRITES:
                write = Write(op, place_of(op.args[0]), loops)
                self.writes.setdefault(base_of(op.args[0]), []).append(write)
            inner = (*loops, op) if op.kind in LOOPS else loops
            for region in op.regions:
                self.loops.update((p, inner) for p in region.params)
                self.scan(region.ops, inner)

    def is_private(self, base: Value, places: Sequence[Place]) -> bool:
        """Whether each invocation has places of its own in the array."""
        if not self.indices:
            return True
        if isinstance(base, Op):
            return base.kind == "local" and base in self.loops
        if any(other is not base and may_share(base, other) for other in self.writes):
            return False
        axes = zip(*(place.indices for place in places))
        common = [axis[0] for axis in axes if all(is_same_index(i, axis[0]) for i in axis)]
        return self.tells_iteration([i.root for i in common if i.root is not None])

    def tells_iteration(self, values: Sequence[Value]) -> bool:
        """Whether the loop's indices can be computed from these values."""
        told = list(values)
        for v in told:  # grows
            told += [x for x in self.recover(v, told) if x not in told]
        return all(index in told for index in self.indices)

    def recover(self, v: Value, told: Sequence[Value]) -> Iterator[Value]:
        """Values that v, with what else is told, gives away."""
        if not isinstance(v, Op):
            return
        if v.kind == "cast" and is_widening(v):
            yield v.args[0]
        if v.kind in ("add", "sub"):
            a, b = v.args
            if self.is_steady(b):
                yield a
            if self.is_steady(a):
                yield b
        ops = [x for x in told if isinstance(x, Op)]
        if any(is_division(v, op) or is_division(op, v) for op in ops):
            yield from v.args[:1] if self.is_steady(v.args[1]) else ()

    def is_steady(self, v: Value) -> bool:
        """Whether v is the same in all invocations, and all through one."""
        return v not in self.loops or (isinstance(v, Op) and v.kind in FIXED)

    def is_fixed(self, write: Write) -> bool:
        """Whether the innermost serial loop around a write always comes to the same place."""
        if not write.loops:
            return False
        used = [i.root for i in write.place.indices if i.root is not None]
        if isinstance(write.place.component, Value):
            used.append(write.place.component)
        return not any(write.loops[-1] in self.loops.get(v, ()) for v in used)


def varying_indices(loop: Op) -> list[Param]:
    """The indices of a `parallel`, without those that are known to have one value; one at least."""
    axes = axes_of(loop)
    ends = [(constant_int(a.begin), constant_int(a.end)) for a in axes]
    found = [a.param for a, (b, e) in zip(axes, ends) if b is None or e is None or e - b > 1]
    return found or [axes[0].param]


def is_same_index(a: Index, b: Index) -> bool:
    """Whether two indices are computed alike, if perhaps in two places of the loop."""
    if a.root is None or b.root is None:
        return a == b
    return a.offset == b.offset and is_alike(a.root, b.root)


def is_alike(a: Value, b: Value, depth: int = MOST_DEPTH) -> bool:
    """Whether two values are one, or come of the same pure ops on the same operands."""
    if is_same(a, b):
        return True
    if not depth or not (isinstance(a, Op) and isinstance(b, Op)):
        return False
    if (a.kind, a.attr, a.type) != (b.kind, b.attr, b.type):
        return False
    pairs = zip(a.args, b.args)
    return TABLE[a.kind].effect is Effect.PURE and all(is_alike(*p, depth - 1) for p in pairs)


def is_widening(op: Op) -> bool:
    """Whether a conversion of integers loses nothing."""
    new, old = op.type, op.args[0].type
    if not isinstance(new, Scalar) or not isinstance(old, Scalar) or "f" in (new.kind, old.kind):
        return False
    return fit(type_range(old), new) is not None


def is_division(quotient: Op, remainder: Op) -> bool:
    """Whether the two ops are a quotient and its remainder."""
    if REMAINDERS.get(quotient.kind) != remainder.kind:
        return False
    return all(map(is_same, quotient.args, remainder.args))
