"""Stores wait for the loads behind them that they cannot share memory with, on graphics cards.

    v[i] = a              b = x[i]
    b = x[i]        ->    v[i] = a
    x[i] = b + a          x[i] = b + a

Drivers know less than we of which memory is apart, and leave loads behind stores: each then waits
as long as memory takes, one after the other, where all could be under way together. So stores, and
atomics of which nobody asks what stood there, move down behind the last load of their region that
they do not touch. Among themselves they keep their order; nothing moves across a synchronisation,
an end of the invocation, or ops with regions. What they store is in registers meanwhile, so few
wait at once. Processors look ahead by themselves.

Runs behind `neighbours`, which joins accesses. Owns: the order. Must not know: which memory is
apart (`alias`).

    >>> keep_stores_back(fn, caps)
"""

from __future__ import annotations

from collections.abc import Collection

from vkchi.analysis.alias import EXITS, may_alias, place_of
from vkchi.analysis.variance import is_private
from vkchi.ir.core import Func, Op, Region, Value, base_of, used_in
from vkchi.ir.ops import ATOMICS, SYNCS, WRITES
from vkchi.ir.rebuild import Rebuilder
from vkchi.target.caps import Caps

MOST_WAITING = 8  # stores


def keep_stores_back(fn: Func, caps: Caps) -> Func:
    """The Func with loads before stores, for a graphics card."""
    if caps.is_cpu:
        return fn
    return Waiter(used_in(fn.body)).run(fn)


class Waiter(Rebuilder):
    """One run; `used` are the values that somebody asks for."""

    def __init__(self, used: Collection[Value]) -> None:
        super().__init__(lambda b, op, args: None)
        self.used = used

    def region(self, region: Region) -> Region:
        """The region in its new order."""
        new = super().region(region)
        ops = self.order(new.ops)
        return new if ops == new.ops else Region(new.params, ops)

    def order(self, ops: list[Op]) -> list[Op]:
        """The ops of a region, stores behind loads."""
        out = dict.fromkeys(ops[:0])  # in order; what moves is taken out and put in again
        waiting = list[Op]()
        for op in ops:
            if is_load(op):
                waiting = behind_last(waiting, op)
                for store in waiting:
                    del out[store]
                out.update(dict.fromkeys((op, *waiting)))
                continue
            if self.may_wait(op):
                waiting = [*waiting, op][-MOST_WAITING:]
            elif op.regions or op.kind in SYNCS or op.kind in EXITS or is_write(op):
                waiting = []
            out[op] = None
        return list(out)

    def may_wait(self, op: Op) -> bool:
        """Whether an op writes to memory, and nothing else."""
        return is_write(op) and (op.kind == "store" or (op.kind in ATOMICS and op not in self.used))


def is_load(op: Op) -> bool:
    """Whether an op loads from memory."""
    return op.kind == "load" and not is_private(base_of(op.args[0]))


def is_write(op: Op) -> bool:
    """Whether an op writes to memory that is not the invocation's own."""
    return op.kind in WRITES and not is_private(base_of(op.args[0]))


def behind_last(waiting: list[Op], load: Op) -> list[Op]:
    """The stores behind the last one that may change what is loaded."""
    place = place_of(load.args[0])
    meets = [k for k, op in enumerate(waiting) if may_alias(place_of(op.args[0]), place)]
    return waiting[meets[-1] + 1 :] if meets else waiting
