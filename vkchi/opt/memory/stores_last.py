"""Store sinking on GPUs: move stores below later loads that cannot alias them.

    v[i] = a              b = x[i]
    b = x[i]        ->    v[i] = a
    x[i] = b + a          x[i] = b + a

Drivers have less alias information and keep loads behind stores, so that the load latencies add up.
With the stores sunk, the loads overlap. Stores, and atomics with unused results, move below the
loads that follow in their region. They stop at the first load that may alias them or a store behind
them, so they keep their relative order. Nothing moves across a synchronization, an exit of the
invocation, an op with regions, or an atomic whose result is used. The number of moved stores is
limited, because their operands occupy registers. CPUs are excluded, as they execute out of order.

Preconditions: runs after `neighbours`, which merges accesses.

    >>> keep_stores_back(fn, caps)
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

from vkchi.analysis.memory.alias import EXITS, location_of, may_alias
from vkchi.analysis.parallel_loops import is_private
from vkchi.ir.core import Func, Op, Region, Value, used_in
from vkchi.ir.ops import ATOMICS, SYNCS, WRITES
from vkchi.ir.rebuild import Rebuilder
from vkchi.target import tuning
from vkchi.target.caps import Caps

CONCERNED = WRITES | SYNCS | EXITS | {"load"}


def keep_stores_back(fn: Func, caps: Caps) -> Func:
    """Move stores below loads, unless the device is a CPU."""
    if not caps.loads_block:
        return fn
    return StoreSinker(fn).run(fn)


class StoreSinker(Rebuilder):
    """Reorders regions."""

    def __init__(self, fn: Func) -> None:
        super().__init__(kinds=())
        self.fn = fn

    @cached_property
    def used(self) -> Collection[Value]:
        """All operands of ops."""
        return used_in(self.fn.body)

    def region(self, region: Region) -> Region:
        new = super().region(region)
        ops = self.order(new.ops)
        return new if ops == new.ops else Region(new.params, ops)

    def order(self, ops: list[Op]) -> list[Op]:
        first = next((k for k, op in enumerate(ops) if op.kind in WRITES), len(ops))
        if all(op.kind != "load" for op in ops[first:]):
            return ops
        out = dict.fromkeys(ops[:first])  # ordered; ops that move are removed and inserted again
        waiting = list[Op]()
        for op in ops[first:]:
            if op.kind not in CONCERNED and not op.regions:
                out[op] = None
                continue
            if is_load(op):
                waiting = behind_last(waiting, op)
                for store in waiting:
                    del out[store]
                out.update(dict.fromkeys((op, *waiting)))
                continue
            if self.may_wait(op):
                waiting = [*waiting, op][-tuning.STORES_WAITING :]
            elif op.regions or op.kind in SYNCS or op.kind in EXITS or is_write(op):
                waiting = []
            out[op] = None
        return list(out)

    def may_wait(self, op: Op) -> bool:
        """True if an op is a store, or an atomic with an unused result, to non-private memory."""
        return is_write(op) and (op.kind == "store" or (op.kind in ATOMICS and op not in self.used))


def is_load(op: Op) -> bool:
    return op.kind == "load" and not is_private(op)


def is_write(op: Op) -> bool:
    return op.kind in WRITES and not is_private(op)


def behind_last(waiting: list[Op], load: Op) -> list[Op]:
    """Return the waiting stores behind the last one that may alias the load; all if none may."""
    place = location_of(load.args[0])
    meets = [k for k, op in enumerate(waiting) if may_alias(location_of(op.args[0]), place)]
    return waiting[meets[-1] + 1 :] if meets else waiting
