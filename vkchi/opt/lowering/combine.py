"""Warp-aggregated atomics: lanes with the same address do one compare-and-swap for all of them.

    atomic_add p, v    becomes    lanes with the first lane's address: one lane adds their reduction
                                  any other lane: adds its own value

If a device lacks an atomic, `legalize` expands it to a loop around compare-and-swap, in which one
of the lanes with one address succeeds per iteration. A uniform address (`r[i] += x[i, j]`, or `f[k]
+= ...` in a serial loop over k) takes one iteration after this pass. Addresses that may vary within
the subgroup are skipped: finding the groups of lanes takes more instructions than it can be shown
to save (`benchmarks/results/2026-11-26-isa-combine.txt`). CPUs are skipped, as communication in
their small subgroups costs as much as it saves.

Correctness does not depend on which lanes run together, or on the guess that an address is uniform.
Lanes exchange data only by subgroup ops among active lanes: the first address, the reduction and
the elected lane. SPIR-V allows such ops in any control flow, and they apply to the lanes that
execute the same dynamic instance.

- The lanes after the comparison come from one instance of `subgroup_first`, since there is no merge
  between. So they have one address.
- The reduction and the election are in one block, so they apply to the same lanes.
- If lanes that could run together do not, there are more groups, each of which is added once.

Another lane may add a lane's value, at a slightly different time. So no other op may access that
memory between two barriers (`isolated`). Otherwise a lane could read an element after its own
update, or store before it, out of order. Atomics of one kind commute; those of two kinds do not.

Conditions:

- The atomic's result is unused, since it differs between lanes.
- The op is associative and commutative as a subgroup reduction. Float minima and maxima are
  excluded, as their reductions may treat NaN in any way.
- The atomic is not inside a branch for one elected lane.
- The kernel has few atomics, as the code grows.

Runs before `legalize`, whose table lists the atomics that a device lacks.

    >>> combine_lanes(fn, caps)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from vkchi.analysis.dataflow import Flow
from vkchi.analysis.memory.alias import bases_may_alias
from vkchi.analysis.parallel_loops import own_values
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Region, Value, base_memory, find_parallel, walk
from vkchi.ir.ops import ATOMICS, PER_INVOCATION, PLACES, READS, WRITES
from vkchi.ir.rebuild import rebuild
from vkchi.opt.lowering.legalize import (
    Args,
    by_components,
    expand_swap,
    expansion_key,
    expansions,
)
from vkchi.target import tuning
from vkchi.target.caps import Caps
from vkchi.types import Array, Tensor, scalar_of, u1, u32

ACCESSES = READS | WRITES


def combine_lanes(fn: Func, caps: Caps) -> Func:
    """Aggregate atomics that the device emulates by compare-and-swap, where lanes may conflict.

    Only on GPUs with subgroup reductions, and for at most COMBINE_ATOMICS scalars.
    """
    loop = find_parallel(fn)
    can_ask = caps.subgroup_arithmetic and caps.subgroup_ballot
    if loop is None or not (caps.wide_subgroups and can_ask):
        return fn
    body = loop.regions[0]
    free = set(isolated(set(emulated_atomics(fn, caps)), body))
    apart = Flow(body, lane_values(body)).found if free else frozenset[Value]()
    found = {op for op in free if is_uniform(op, apart)}
    if not found or sum(width_of(op) for op in found) > tuning.COMBINE_ATOMICS:
        return fn

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op not in found:
            return None
        by_components(b, op, args, partial(emit_aggregated, indices=indices_of(args[0]) or ()))
        return [args[1]]  # a placeholder: the result is unused

    return rebuild(fn, visit, ATOMICS)


def lane_values(body: Region) -> Iterator[Value]:
    """Yield the values that may differ between lanes by themselves: the innermost index, invocation
    numbers, memory allocated in the body, and results of ops with effects other than reads."""
    yield body.params[-1]
    yield from own_values(body)
    yield from (op for op in walk(body) if op.kind in PER_INVOCATION)


def isolated(ops: Collection[Op], body: Region) -> Iterator[Op]:
    """Yield those of `ops` whose memory, between two barriers, is accessed only by atomics of the
    same kind with unused results. Only barriers at the top level of the loop's body count."""
    used = {v for op in walk(body) for v in op.args}
    for part in parts_of(body):
        for op in part:
            base = base_memory(op.args[0])
            if op in ops and not any(
                (x.kind != op.kind or x in used) and bases_may_alias(base_memory(x.args[0]), base)
                for x in part
            ):
                yield op


def parts_of(body: Region) -> Iterator[list[Op]]:
    part: list[Op] = []
    for op in body.ops:
        if op.kind == "barrier":
            yield part
            part = []
        inner = (x for region in op.regions for x in walk(region))
        part += [x for x in (op, *inner) if x.kind in ACCESSES]
    yield part


def emulated_atomics(fn: Func, caps: Caps) -> Iterator[Op]:
    """Yield the atomics that the device emulates by compare-and-swap and a subgroup reduction can
    replace. Their results are unused, and they are outside elected branches."""
    ops, table = list(walk(fn.body)), expansions(caps)
    used = {v for op in ops for v in op.args}
    alone = {x for op in ops if is_elected(op) for x in walk(op.regions[0])}
    for op in ops:
        is_free = op.kind in ATOMICS and op not in used and op not in alone
        if is_free and can_reduce(op, caps) and table.get(expansion_key(op)) is expand_swap:
            yield op


def is_elected(op: Op) -> bool:
    return op.kind == "if" and isinstance(op.args[0], Op) and op.args[0].kind == "subgroup_elect"


def width_of(op: Op) -> int:
    t = op.args[1].type
    return t.size if isinstance(t, Tensor) else 1


def is_uniform(op: Op, apart: Collection[Value]) -> bool:
    """True if an atomic's indices are known, and none is in `apart`: lanes probably have one
    address."""
    indices = indices_of(op.args[0])
    return indices is not None and not any(v in apart for v in indices)


def can_reduce(op: Op, caps: Caps) -> bool:
    """True if a subgroup reduction gives the same result as the atomics in some order.
    Precondition: the device has subgroup reductions."""
    t = scalar_of(op.args[1].type)
    if t.kind == "f":
        return ATOMICS[op.kind].combine in ("add", "mul")
    return t.bits <= u32.bits or caps.subgroup_wide


def indices_of(place: Value) -> tuple[Value, ...] | None:
    """Return the indices that determine an element of its array; None if they are unknown."""
    if not isinstance(place, Op) or place.kind not in PLACES:
        return None
    rest = place.args[1:]
    if isinstance(place.args[0].type, Array):
        return rest if place.kind == "elem" else None
    inner = indices_of(place.args[0])
    return None if inner is None else (*inner, *rest)


def emit_aggregated(b: Builder, op: Op, args: Args, *, indices: Sequence[Value]) -> Value:
    """Append the atomic of a scalar, with one update for all lanes that have the first lane's
    address. Each other lane applies its own value. Returns the operand, as a placeholder for the
    unused result."""
    place, value = args
    has_first: Value = b.const(True, u1)
    for index in indices:
        is_equal = b.emit("eq", index, b.emit("subgroup_first", index))
        has_first = b.emit("and", has_first, is_equal)
    with b.region() as together:
        total = b.emit(f"subgroup_{ATOMICS[op.kind].combine}", value)
        b.emit("yield", total, b.emit("subgroup_elect"))
    with b.region() as apart:
        b.emit("yield", value, b.const(True, u1))
    amount, is_doing = b.if_(has_first, together, apart).results
    with b.when(is_doing):
        b.emit(op.kind, place, amount)
    return value
