"""What has to be known of a Func before its first instruction is written.

Owns: one walk over the ops, and what it finds. Must not know: SPIR-V.

    >>> survey_func(fn).has_fence
    False
"""

from __future__ import annotations

from vkchi.analysis.alias import may_share
from vkchi.ir.core import Func, Value, base_of, find_parallel, walk
from vkchi.ir.ops import WRITES, Effect, effect_of
from vkchi.tuples import NamedTuple
from vkchi.types import Array

REMOVABLE = frozenset({Effect.PURE, Effect.READ, Effect.ALLOC})


class Survey(NamedTuple):
    """`indexed`: `local` ops whose components are reached by computed indices. `dead`: ops of the
    body that only compute what the launch does instead (a loop's end). `constant`: names of
    arrays that nothing here writes, under whatever name."""

    indexed: frozenset[Value]
    dead: frozenset[Value]
    has_fence: bool
    constant: frozenset[str]


def survey_func(fn: Func) -> Survey:
    """One walk over the Func."""
    indexed: set[Value] = set()
    has_fence = False
    written: set[Value] = set()
    for op in walk(fn.body):
        if op.kind == "member_at":
            indexed.add(base_of(op.args[0]))
        elif op.kind == "fence":
            has_fence = True
        elif op.kind in WRITES:
            written.add(base_of(op.args[0]))
    arrays = (p for p in fn.params if isinstance(p.type, Array))
    constant = frozenset(p.name for p in arrays if not any(may_share(p, w) for w in written))
    return Survey(frozenset(indexed), find_dead(fn), has_fence, constant)


def find_dead(fn: Func) -> frozenset[Value]:
    """Ops of the body that only the ends of its `parallel` op need: the launch knows the counts."""
    if find_parallel(fn) is None:
        return frozenset()
    used: set[Value] = set()
    dead: set[Value] = set()
    for op in reversed(fn.body.ops):
        if effect_of(op.kind) in REMOVABLE and op not in used:
            dead.add(op)
            continue
        used.update(op.args[::2] if op.kind == "parallel" else op.args)
        for region in op.regions:
            used.update(v for inner in walk(region) for v in inner.args)
    return frozenset(dead)
