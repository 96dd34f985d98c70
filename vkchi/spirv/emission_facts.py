"""Facts about a Func that emission needs in advance, from one walk over its ops.

>>> survey_func(fn).has_fence
False
"""

from __future__ import annotations

from vkchi.analysis.memory.alias import bases_may_alias
from vkchi.ir.core import Func, Value, base_memory, find_parallel, walk
from vkchi.ir.ops import WRITES, Effect, effect_of
from vkchi.tuples import NamedTuple
from vkchi.types import Array

REMOVABLE = frozenset({Effect.PURE, Effect.READ, Effect.ALLOC})


class EmissionFacts(NamedTuple):
    """Results of the walk.

    - `indexed`: `local` ops whose components are accessed by computed indices.
    - `dead`: ops of the body that emission omits (`find_dead`).
    - `constant`: names of arrays that no write of this Func may alias.
    """

    indexed: frozenset[Value]
    dead: frozenset[Value]
    has_fence: bool
    constant: frozenset[str]


def survey_func(fn: Func) -> EmissionFacts:
    indexed: set[Value] = set()
    has_fence = False
    written: set[Value] = set()
    for op in walk(fn.body):
        if op.kind == "member_at":
            indexed.add(base_memory(op.args[0]))
        elif op.kind == "fence":
            has_fence = True
        elif op.kind in WRITES:
            written.add(base_memory(op.args[0]))
    arrays = (p for p in fn.params if isinstance(p.type, Array))
    constant = frozenset(p.name for p in arrays if not any(bases_may_alias(p, w) for w in written))
    return EmissionFacts(frozenset(indexed), find_dead(fn), has_fence, constant)


def find_dead(fn: Func) -> frozenset[Value]:
    """Return the removable ops of the body that the shader of a `parallel` op does not use.

    The ends of the loop do not count as uses, because the launch computes them. Empty for a Func
    without a `parallel` op.
    """
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
