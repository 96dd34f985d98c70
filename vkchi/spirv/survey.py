"""What has to be known of a Func before its first instruction is written.

Owns: one walk over the ops, and what it finds. Must not know: SPIR-V.

    >>> survey_func(fn).has_fence
    False
"""

from __future__ import annotations

from vkchi.analysis.alias import may_share
from vkchi.ir.core import Func, Op, Value, base_of, walk
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
    """Ops before the `parallel` op that only its ends need: the launch knows the counts."""
    ops = fn.body.ops
    at = next((k for k, op in enumerate(ops) if op.kind == "parallel"), None)
    if not at:
        return frozenset()
    used: set[Value] = set(ops[at].args[::2])
    for op in ops[at + 1 :]:
        note_uses(op, used)
    for region in ops[at].regions:
        for op in walk(region):
            used.update(op.args)
    dead: set[Value] = set()
    for op in reversed(ops[:at]):
        if effect_of(op.kind) in REMOVABLE and op not in used:
            dead.add(op)
        else:
            note_uses(op, used)
    return frozenset(dead)


def note_uses(op: Op, used: set[Value]) -> None:
    """Add what the op and the ops inside it take."""
    used.update(op.args)
    for region in op.regions:
        for inner in walk(region):
            used.update(inner.args)
