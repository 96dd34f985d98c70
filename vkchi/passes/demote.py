"""Atomics that no other invocation can disturb become a load, an op and a store.

Kernels spell `x[i] += v` as an atomic; where only the iteration that i belongs to writes x[i], it
need not be one (what others read meanwhile is a race with the atomic too). An atomic is private if
- its place is a `local`, or the dispatch has one invocation; or else
- its array is no `shared` one, and no other array that the loop writes may be the same memory;
- some axes have indices that are computed alike in all writes of the loop to the array, and these
  tell the iteration: each of the loop's indices, plus a constant, or what recovers it (a sum with a
  value from outside gives the other term, a widening conversion its operand, and `t // n` and
  `t % n` of who counts himself give t).

So other axes may run: in a loop over i, x[i, k] is private for any k, if all writes say x[i, ...].

`demote_atomics` leaves those that `reduce` can take out of a serial loop, which is better still;
`demote_all_atomics` comes after it. Both come before `map_grid`, whose loops hide the iteration.
`demote_but_sums` is for differentiation, which needs to know no rules but those of the op then; a
plain sum is better left, for its gradient reads nothing.

Owns: the proof and the rewriting. Must not know: devices.

    %old = atomic_add %p, %v    ->    %old = load %p; %new = add %old, %v; store %p, %new
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from vkchi.analysis.alias import Index, Place, may_share, place_of
from vkchi.ir.builder import Builder
from vkchi.ir.constants import constant_int, is_same
from vkchi.ir.control import axes_of
from vkchi.ir.core import Func, Op, Param, Value, base_of, has_kind, used_in
from vkchi.ir.ops import FIXED, LOOPS, TABLE, UPDATES, WRITES, Effect
from vkchi.ir.rebuild import rebuild
from vkchi.passes.legalize import combined
from vkchi.passes.structure import holds_all
from vkchi.types import Scalar

REMAINDERS = {"truncdiv": "rem", "floordiv": "mod"}  # of the same operands
MOST_DEPTH = 6  # of what is compared to find that two indices are computed alike
Loops = tuple[Op, ...]


def demote_atomics(fn: Func) -> Func:
    """The Func with private atomics replaced, but for those whose place a serial loop keeps."""
    return replace_atomics(fn, lambda survey, write: not survey.is_fixed(write))


def demote_all_atomics(fn: Func) -> Func:
    """The Func with all private atomics replaced."""
    return replace_atomics(fn, lambda survey, write: True)


def demote_but_sums(fn: Func) -> Func:
    """The Func with private atomics replaced, but for sums whose old value nobody uses."""
    used = used_in(fn.body)
    return replace_atomics(fn, lambda _, write: write.op.kind != "atomic_add" or write.op in used)


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

    def private_atomics(self) -> Iterator[Write]:
        """Atomics that no other invocation can meet."""
        for base, writes in self.writes.items():
            atomics = [a for a in writes if a.op.kind in UPDATES]
            if atomics and self.is_private(base, [a.place for a in writes]):
                yield from atomics

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
    return isinstance(new, Scalar) and isinstance(old, Scalar) and holds_all(new, old)


def is_division(quotient: Op, remainder: Op) -> bool:
    """Whether the two ops are a quotient and its remainder."""
    if REMAINDERS.get(quotient.kind) != remainder.kind:
        return False
    return all(map(is_same, quotient.args, remainder.args))


# --- rewriting ---------------------------------------------------------------------------------


def replace_atomics(fn: Func, is_wanted: Callable[[Survey, Write], bool]) -> Func:
    """The Func with the private atomics that are wanted replaced."""
    if not has_kind(fn.body, UPDATES):
        return fn
    serial = Survey([op for op in fn.body.ops if op.kind != "parallel"], ())
    loops = [op for op in fn.body.ops if op.kind == "parallel"]
    surveys = [serial, *(Survey(op.regions[0].ops, varying_indices(op)) for op in loops)]
    chosen = {a.op for s in surveys for a in s.private_atomics() if is_wanted(s, a)}

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        return [update(b, op, args)] if op in chosen else None

    return rebuild(fn, visit) if chosen else fn


def update(b: Builder, op: Op, args: tuple[Value, ...]) -> Value:
    """Emit what an atomic does, step by step; the old value."""
    old = b.emit("load", args[0], name=op.name)
    b.emit("store", args[0], combined(b, op, old, args))
    return old
