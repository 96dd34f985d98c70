"""Reads of parallel loops that do not matter, though what they find depends on the order.

Owns: `only_raises_flag`. Must not know: gradients.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vkchi.analysis.alias import place_of
from vkchi.analysis.dataflow import Dependence
from vkchi.ir.core import Op, Region, Value, base_of, constant_array, walk
from vkchi.ir.ops import LOOPS, WRITES, Effect, effect_of

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
    moving = {v for op in walk(region) if op.kind in LOOPS for v in defined_in(op)}
    places = {place.component, *(i.root for i in place.indices)}
    has_state = any(effect_of(op.kind) in STATE and op.kind not in WRITES for op in walk(region))
    if not is_one or has_state or not moving.isdisjoint(places):
        return False
    decided = Dependence(region, [read], lambda op: ()).writes()
    root = base_of(read.args[0])
    return all(base_of(op.args[0]) is root and place_of(op.args[0]) == place for op in decided)


def defined_in(loop: Op) -> Iterable[Value]:
    """The values that a loop's body makes, and what it carries."""
    for region in loop.regions:
        yield from region.params
        for op in walk(region):
            yield from op.results


def bytes_of_constant(v: Value) -> bytes | None:
    """The number, or numbers, that a value is, if it is written down."""
    return constant_array(v).tobytes() if isinstance(v, Op) and v.kind == "const" else None
