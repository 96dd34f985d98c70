"""When an access counts, whatever the numbers in memory are: a `select` or a factor of 0 may leave
out what was read, and what is added.

Owns: `Influence`, of one Func; `only_raises_flag`. What is said does not depend on values that
other iterations may change: a condition or factor that does counts as unknown. Must not know: how
races are found.

    x[i] = ti.select(is_red, 0.5 * (x[i - 1] + x[i + 1]), x[i])     # the reads count if is_red
    x[i] += mask[i] * (x[i - 1] - x[i])                             # they count if mask[i] != 0
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce

from vkchi.analysis.alias import place_of
from vkchi.analysis.dataflow import Dependence, made_inside
from vkchi.autodiff.emit import components
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Region, Value, base_of, constant_array, uses_in, walk
from vkchi.ir.memory_ops import ATOMICS
from vkchi.ir.ops import (
    IDEMPOTENT,
    LOOPS,
    TABLE,
    VARYING,
    WRITES,
    Effect,
    Trait,
    effect_of,
    kinds_with,
)
from vkchi.tuples import NamedTuple
from vkchi.types import Ptr, Scalar, Tensor, scalar_of, u1

NEUTRAL = kinds_with(Trait.KEEPS_ZERO)
KEEPING = frozenset(("select", *(ATOMICS[kind].combine for kind in IDEMPOTENT)))
MOST_STEPS = 1000  # that what was read is followed


class When(NamedTuple):
    """A condition: that `value` is what `wanted` says: True, False, or (None) not 0."""

    value: Value
    wanted: bool | None


class Ending(NamedTuple):
    """An op that leaves out what was read, unless all these conditions hold."""

    anchor: Op
    whens: tuple[When, ...]


class Influence:
    """The answers for one Func; `unsteady` are the reads that may find something else in another
    order of iterations."""

    def __init__(self, fn: Func, unsteady: Iterable[Op]) -> None:
        ops = list(walk(fn.body))
        self.uses = uses_in(fn.body)
        self.unsteady = Dependence(fn.body, unsteady).found
        loops = [op for op in ops if op.kind == "parallel"]
        self.in_loops: set[Value] = {op for loop in loops for op in walk(loop.regions[0])}
        own: set[Value] = {p for loop in loops for p in loop.regions[0].params}
        own |= {op for op in ops if op.kind in VARYING}
        self.varying = Dependence(fn.body, own).found

    # --- reads

    def endings(self, read: Op) -> list[Ending] | None:
        """The ops that leave out what was read, each unless conditions hold, one on every way that
        it may take; None if it counts in any case."""
        found: dict[Ending, None] = {}
        todo: list[tuple[Value, Ending | None]] = [(read, None)]
        seen = set(todo)
        for v, ending in todo:  # grows
            if len(todo) > MOST_STEPS:
                return None
            for op in self.uses.get(v, ()):
                if not is_pure(op):
                    if ending is None:
                        return None
                    found[ending] = None
                    continue
                when = self._left_out(v, op)
                whens = (*ending.whens, when) if ending is not None and when else (when,)
                item = (op, ending if when is None else Ending(op, tuple(filter(None, whens))))
                if item not in seen:
                    seen.add(item)
                    todo.append(item)
        return list(found)

    def _left_out(self, v: Value, op: Op) -> When | None:
        """The condition under which an op's result depends on an operand; None if always."""
        if op.kind == "mul" and op.args[0] is not op.args[1]:
            other = op.args[1] if op.args[0] is v else op.args[0]
            return When(other, None) if self.is_mask(other) else None
        if op.kind == "select" and (op.args[1] is v) != (op.args[2] is v):
            cond = op.args[0]
            is_ours = cond is not v and cond not in self.unsteady
            return When(cond, op.args[1] is v) if is_ours else None
        return None

    def is_mask(self, v: Value) -> bool:
        """Whether a factor differs between iterations, and is the same in whatever order."""
        return v in self.varying and v not in self.unsteady

    # --- writes

    def change(self, write: Op) -> When | None:
        """The condition under which a write changes what it finds; None for always."""
        v = write.args[1]
        if write.kind == "atomic_add":
            return self.not_zero(v)
        if write.kind != "store" or not isinstance(v, Op):
            return None
        if v.kind == "add":
            for old, more in (v.args, v.args[::-1]):
                if self.is_old(old, write):
                    return self.not_zero(more)
        if v.kind == "sub" and self.is_old(v.args[0], write):
            return self.not_zero(v.args[1])
        if v.kind == "select" and v.args[0] not in self.unsteady:
            is_old = [self.is_old(x, write) for x in v.args[1:]]
            if is_old[0] != is_old[1]:
                return When(v.args[0], is_old[1])
        return None

    def may_keep(self, v: Value, write: Op) -> bool:
        """Whether a value is a minimum, maximum, `and`, `or` or selection of what its iteration
        loaded at the place of the write: memory tells if storing it is a change."""
        if not isinstance(v, Op) or v.kind not in KEEPING:
            return False
        args = v.args[1:] if v.kind == "select" else v.args
        return any(self.is_old(x, write) or self.may_keep(x, write) for x in args)

    def is_old(self, v: Value, write: Op) -> bool:
        """Whether a value is what its iteration loaded at the place of the write. Storing it is no
        change, or one that is noted elsewhere:

        - The places are one in serial loops too. The write sees the load's value, so it stands in
          the load's region or in one inside it, and indices were computed before either: between
          the two, none of them was computed again.
        - If the iteration wrote there in between, the first write that changed what was loaded is
          noted: it is not one of those that leave it as it was.
        - If another iteration did, that one is noted as changing what this one reads: the load's
          value reaches the write, and so counts.

        A load before the loop is no access of it. What it found may be long overwritten."""
        if not isinstance(v, Op) or v.kind != "load" or v not in self.in_loops:
            return False
        return place_of(v.args[0]) == place_of(write.args[0])

    def not_zero(self, v: Value) -> When | None:
        """The condition under which a value may differ from 0."""
        while isinstance(v, Op) and v.kind in NEUTRAL and len(v.args) == 1:
            v = v.args[0]
        if not isinstance(v, Op):
            return None
        if v.kind == "mul":
            masks = [x for x in v.args if self.is_mask(x)]
            return When(masks[0], None) if masks else None
        if v.kind == "select" and v.args[0] not in self.unsteady:
            is_zero = [is_constant_zero(x) for x in v.args[1:]]
            if is_zero[0] != is_zero[1]:
                return When(v.args[0], is_zero[1])
        return None


def is_pure(op: Op) -> bool:
    """Whether an op does nothing but give a value, which is no place."""
    return TABLE[op.kind].effect is Effect.PURE and not isinstance(op.type, Ptr)


def is_constant_zero(v: Value) -> bool:
    """Whether a value is the constant 0."""
    return isinstance(v, Op) and v.kind == "const" and not constant_array(v).any()


def emit_when(b: Builder, when: When, get: Callable[[Value], Value]) -> Value:
    """The condition as a truth value: that it holds for any component."""
    v = get(when.value)
    t = v.type
    assert isinstance(t, Scalar | Tensor)
    if when.wanted is None and scalar_of(t) is not u1:
        v = b.emit("ne", v, b.const(0, t))
    elif when.wanted is False:
        v = b.emit("not", v)
    return reduce(lambda x, y: b.emit("or", x, y), components(b, v))


STATE = frozenset({Effect.WRITE, Effect.ATOMIC, Effect.SYNC})


def only_raises_flag(region: Region, read: Op, writes: Sequence[Op]) -> bool:
    """Whether all that a read decides is whether one constant is stored where it reads, by the
    iteration of the loop with this body that reads: as in

        if done[None] == 0:
            if x[i] > 0.5:
                done[None] = 1

    `writes` are all that the loop does to that memory. Then the order of iterations does not
    matter: an iteration either finds the constant there, and may do what it likes, for the element
    has it already and keeps it; or it finds what stood there before, always, and does what it would
    do alone. Loops that draw random numbers or wait for each other are not looked at."""
    stored = {bytes_of_constant(op.args[1]) if op.kind == "store" else None for op in writes}
    is_one = len(stored) == 1 and None not in stored
    place = place_of(read.args[0])
    moving = {v for op in walk(region) if op.kind in LOOPS for v in made_inside(op)}
    places = {place.component, *(i.root for i in place.indices)}
    has_state = any(effect_of(op.kind) in STATE and op.kind not in WRITES for op in walk(region))
    if not is_one or has_state or not moving.isdisjoint(places):
        return False
    decided = Dependence(region, [read], lambda op: ()).writes()
    root = base_of(read.args[0])
    return all(base_of(op.args[0]) is root and place_of(op.args[0]) == place for op in decided)


def bytes_of_constant(v: Value) -> bytes | None:
    """The number, or numbers, that a value is, if it is written down."""
    return constant_array(v).tobytes() if isinstance(v, Op) and v.kind == "const" else None
