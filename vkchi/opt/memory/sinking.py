"""Sinking of guarded stores: a store of one value to one address leaves its serial loop.

    for k { if new(k) { y[k] = a; changed[0] = 1 } }        becomes
    flag = false; for k { if new(k) { y[k] = a; flag = true } }; if flag { changed[0] = 1 }

A store qualifies if its address and value are invariant in the loop, and the loop accesses its
array, and others that may alias it, only by stores of that value to that address. The loop must not
synchronize, report, or end the invocation. A store leaves the outermost loop possible.

Only stores under an `if` are moved: in a dispatch, others are rare, or the last of several values.

    >>> sink_stores(fn)
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.dataflow import made_inside
from vkchi.analysis.memory.alias import EXITS, accesses_by_base, bases_may_alias
from vkchi.analysis.parallel_loops import is_private
from vkchi.analysis.values.iterations import invariant_path
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Value, is_constant, walk
from vkchi.ir.ops import LOOPS, ORDERED
from vkchi.ir.rebuild import Rebuilder
from vkchi.tuples import NamedTuple
from vkchi.types import i32


def sink_stores(fn: Func) -> Func:
    """Move guarded stores of invariant values to invariant addresses behind their loops."""
    return Sinker().run(fn)


class SunkStore(NamedTuple):
    """Equal stores of a loop, and the ops of their address that the loop contains."""

    ops: Sequence[Op]
    path: Sequence[Op]


class Sinker(Rebuilder):
    """Rewrites one Func. `flags` maps the stores that left a loop to private flags."""

    def __init__(self) -> None:
        super().__init__(self.replace, LOOPS | {"store"})
        self.flags: dict[Op, Op] = {}

    def replace(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op.kind == "store":
            if op not in self.flags:
                return None
            b.emit("store", self.flags[op], b.const(1, i32))
            return ()
        found = [x for x in sunk_stores(op) if x.ops[0] not in self.flags]
        if not found:
            return None
        flags = [b.emit("local", b.const(0, i32), name="flag") for _ in found]
        for store, flag in zip(found, flags):
            self.flags.update(dict.fromkeys(store.ops, flag))
        self.keep(op, args)
        for store, flag in zip(found, flags):
            b.span = store.ops[0].span
            with b.when(b.emit("ne", b.emit("load", flag), b.const(0, i32))):
                self.store(store)
        return [self.map.get(v, v) for v in op.results]

    def store(self, store: SunkStore) -> None:
        op = store.ops[0]
        place = store.path[0].args[0] if store.path else op.args[0]
        place = self.map.get(place, place)
        for p in store.path:
            place = self.b.emit(p.kind, place, *map(self.outside, p.args[1:]), attr=p.attr)
        self.b.emit("store", place, self.outside(op.args[1]))

    def outside(self, v: Value) -> Value:
        """Return the value for use outside of the loop: a constant anew."""
        if isinstance(v, Op) and is_constant(v):
            return self.b.emit("const", attr=v.attr, type=v.type)
        return self.map.get(v, v)


def sunk_stores(loop: Op) -> list[SunkStore]:
    """Return the stores that may leave a loop."""
    ops = [op for region in loop.regions for op in walk(region)]
    guarded = {
        x
        for op in ops
        if op.kind == "if"
        for region in op.regions
        for x in walk(region)
        if x.kind == "store" and not is_private(x)
    }
    if not guarded or any(op.kind in ORDERED or op.kind in EXITS for op in ops):
        return []
    accesses, made = accesses_by_base(ops), set(made_inside(loop))
    found = []
    for base, same in accesses.items():
        paths = [invariant_path(op.args[0], made) for op in same]
        keys = {key_of(op, path) for op, path in zip(same, paths) if path is not None}
        is_apart = not any(bases_may_alias(base, x) for x in accesses if x is not base)
        is_one = None not in paths and len(keys) == 1 and is_outside(same[0].args[-1], made)
        if is_one and is_apart and guarded.issuperset(same):
            found.append(SunkStore(same, paths[0] or ()))
    return found


def key_of(op: Op, path: Sequence[Op]) -> object:
    """Key of an access by kind, address and value."""
    start = path[0].args[0] if path else op.args[0]
    steps = [(p.kind, *map(value_key, p.args[1:])) for p in path]
    return op.kind, start, tuple(steps), value_key(op.args[-1])


def value_key(v: Value) -> object:
    return (v.type, v.attr) if isinstance(v, Op) and is_constant(v) else v


def is_outside(v: Value, made: set[Value]) -> bool:
    return v not in made or is_constant(v)
