"""Relevance conditions of memory accesses: when may a value read, or a write, affect the result?

A `select`, an `if` around all uses, or a factor of 0 may discard a value that was read. A `select`
or a factor of 0 may discard the change that a write makes.
`AccessRelevance` finds such conditions for one Func. Conditions that depend on the order of
iterations are ignored: the access then counts as relevant.

    x[i] = ti.select(is_red, 0.5 * (x[i - 1] + x[i + 1]), x[i])     # reads count if is_red
    x[i] += mask[i] * (x[i - 1] - x[i])                             # they count if mask[i] != 0
    new = 0.5 * (x[i - 1] + x[i + 1])
    if is_red:                                                      # they count if is_red
        x[i] = new
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce

from vkchi.analysis.dataflow import Dependence, made_inside
from vkchi.analysis.memory.alias import location_of
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Region, Value, base_memory, constant_array, uses_in, walk
from vkchi.ir.op_table.memory_ops import ATOMICS
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
MOST_STEPS = 1000  # limit on data-flow steps from a read


class RelevanceCondition(NamedTuple):
    """A condition: `value` is True, False, or (`wanted` None) nonzero, as `wanted` says."""

    value: Value
    wanted: bool | None


class DiscardPoint(NamedTuple):
    """An op that discards the value read, unless all conditions hold."""

    anchor: Op
    whens: tuple[RelevanceCondition, ...]


class AccessRelevance:
    """Relevance conditions in one Func.

    `unsteady` are the reads whose value may depend on the order of iterations.
    """

    def __init__(self, fn: Func, unsteady: Iterable[Op]) -> None:
        ops = list(walk(fn.body))
        self.uses = uses_in(fn.body)
        self.unsteady = Dependence(fn.body, unsteady).found
        loops = [op for op in ops if op.kind == "parallel"]
        self.in_loops: set[Value] = {op for loop in loops for op in walk(loop.regions[0])}
        own: set[Value] = {p for loop in loops for p in loop.regions[0].params}
        own |= {op for op in ops if op.kind in VARYING}
        self.varying = Dependence(fn.body, own).found
        self.guards: dict[Op, tuple[RelevanceCondition, ...]] = {}  # conditions of the ifs around
        self._note_guards(fn.body, ())

    def _note_guards(self, region: Region, around: tuple[RelevanceCondition, ...]) -> None:
        for op in region.ops:
            if around:
                self.guards[op] = around
            for arm, inner in enumerate(op.regions):
                is_if = op.kind == "if" and op.args[0] not in self.unsteady
                own = (RelevanceCondition(op.args[0], arm == 0),) if is_if else ()
                self._note_guards(inner, (*around, *own))

    # --- reads

    def endings(self, read: Op) -> list[DiscardPoint] | None:
        """The ops that may discard a value read, one on each of its data-flow paths.

        None if the value counts unconditionally, or after MOST_STEPS steps.
        """
        found: dict[DiscardPoint, None] = {}
        todo: list[tuple[Value, DiscardPoint | None]] = [(read, None)]
        seen = set(todo)
        around = self.guards.get(read, ())
        for v, ending in todo:  # a worklist: grows during iteration
            if len(todo) > MOST_STEPS:
                return None
            for op in self.uses.get(v, ()):
                before = ending.whens if ending is not None else ()
                when = self._left_out(v, op) if computes_value(op) else None
                entered = (*self.guards.get(op, ()), *((when,) if when else ()))
                added = [one for one in entered if one not in around and one not in before]
                item = (op, DiscardPoint(op, (*before, *added)) if added else ending)
                if not computes_value(op):
                    if item[1] is None:
                        return None
                    found[item[1]] = None
                elif item not in seen:
                    seen.add(item)
                    todo.append(item)
        return list(found)

    def _left_out(self, v: Value, op: Op) -> RelevanceCondition | None:
        """The condition under which an op's result depends on an operand; None if it always may."""
        if op.kind == "mul" and op.args[0] is not op.args[1]:
            other = op.args[1] if op.args[0] is v else op.args[0]
            return RelevanceCondition(other, None) if self.is_mask(other) else None
        if op.kind == "select" and (op.args[1] is v) != (op.args[2] is v):
            cond = op.args[0]
            is_ours = cond is not v and cond not in self.unsteady
            return RelevanceCondition(cond, op.args[1] is v) if is_ours else None
        return None

    def is_mask(self, v: Value) -> bool:
        """True for a factor that may vary between iterations but does not depend on their order."""
        return v in self.varying and v not in self.unsteady

    # --- writes

    def change(self, write: Op) -> RelevanceCondition | None:
        """The condition under which a write may change its element; None if it always may."""
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
                return RelevanceCondition(v.args[0], is_old[1])
        return None

    def may_keep(self, v: Value, write: Op) -> bool:
        """True if a value may be the old contents of the element that `write` stores to.

        That is a minimum, maximum, `and`, `or` or select with the value loaded there. Memory
        decides then if the store is a change.
        """
        if not isinstance(v, Op) or v.kind not in KEEPING:
            return False
        args = v.args[1:] if v.kind == "select" else v.args
        return any(self.is_old(x, write) or self.may_keep(x, write) for x in args)

    def is_old(self, v: Value, write: Op) -> bool:
        """True if a value is a load, inside a parallel loop, from the address of the write.

        Storing it is not a change: if the element was written in between, that write counts as the
        change.
        """
        if not isinstance(v, Op) or v.kind != "load" or v not in self.in_loops:
            return False
        return location_of(v.args[0]) == location_of(write.args[0])

    def not_zero(self, v: Value) -> RelevanceCondition | None:
        """The condition under which a value may differ from 0; None if it always may."""
        while isinstance(v, Op) and v.kind in NEUTRAL and len(v.args) == 1:
            v = v.args[0]
        if not isinstance(v, Op):
            return None
        if v.kind == "mul":
            masks = [x for x in v.args if self.is_mask(x)]
            return RelevanceCondition(masks[0], None) if masks else None
        if v.kind == "select" and v.args[0] not in self.unsteady:
            is_zero = [is_constant_zero(x) for x in v.args[1:]]
            if is_zero[0] != is_zero[1]:
                return RelevanceCondition(v.args[0], is_zero[1])
        return None


def computes_value(op: Op) -> bool:
    """True if an op is pure and does not compute an address."""
    return TABLE[op.kind].effect is Effect.PURE and not isinstance(op.type, Ptr)


def is_constant_zero(v: Value) -> bool:
    return isinstance(v, Op) and v.kind == "const" and not constant_array(v).any()


def emit_when(b: Builder, when: RelevanceCondition, get: Callable[[Value], Value]) -> Value:
    """Emit the condition as a bool: true if it holds for any component."""
    v = get(when.value)
    t = v.type
    assert isinstance(t, Scalar | Tensor)
    if when.wanted is None and scalar_of(t) is not u1:
        v = b.emit("ne", v, b.const(0, t))
    elif when.wanted is False:
        v = b.emit("not", v)
    return reduce(lambda x, y: b.emit("or", x, y), b.components(v))


STATE = frozenset({Effect.WRITE, Effect.ATOMIC, Effect.SYNC})


def only_raises_flag(region: Region, read: Op, writes: Sequence[Op]) -> bool:
    """True if a read is proved to only decide whether its own iteration sets a flag.

    The iteration then stores one constant to the element that it read.

    An example is

        if done[None] == 0:
            if x[i] > 0.5:
                done[None] = 1

    `writes` are all writes of the loop to that memory. The order of iterations then does not
    matter. An iteration may find the constant: then the element keeps it in any case. Or it finds
    the original value, and acts as if it ran alone. Loops with random numbers, synchronization or
    early exits do not qualify.
    """
    stored = {bytes_of_constant(op.args[1]) if op.kind == "store" else None for op in writes}
    is_one = len(stored) == 1 and None not in stored
    place = location_of(read.args[0])
    moving = {v for op in walk(region) if op.kind in LOOPS for v in made_inside(op)}
    places = {place.component, *(i.root for i in place.indices)}
    has_state = any(effect_of(op.kind) in STATE and op.kind not in WRITES for op in walk(region))
    if not is_one or has_state or not moving.isdisjoint(places):
        return False
    decided = Dependence(region, [read], lambda op: ()).writes()
    root = base_memory(read.args[0])
    return all(
        base_memory(op.args[0]) is root and location_of(op.args[0]) == place for op in decided
    )


def bytes_of_constant(v: Value) -> bytes | None:
    return constant_array(v).tobytes() if isinstance(v, Op) and v.kind == "const" else None
