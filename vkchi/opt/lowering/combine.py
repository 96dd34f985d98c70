"""Warp-aggregated atomics: lanes with the same address do one compare-and-swap for all of them.

    atomic_add p, v     becomes, if p is probably subgroup-uniform:
                            lanes with the first lane's address: one lane adds their reduction
                            any other lane: adds its own value
                        or, if p depends on data:
                            compare and swap, at most three times; on failure:
                            while lanes are left:
                                lanes with the first one's address are its group
                                if the group is a majority: one lane adds the group's reduction
                                else: each lane adds its own value, and none is left

If a device lacks an atomic, `legalize` expands it to a loop around compare-and-swap, in which one
of the lanes with one address succeeds per iteration. A uniform address (`r[i] += x[i, j]`, or `f[k]
+= ...` in a serial loop over k) takes one iteration after this pass. For data-dependent addresses,
groups of half of the lanes or less are not combined, since each would cost an iteration.

An address that depends on the index of the innermost axis may be distinct in each lane, or shared
by some. It counts as data, unless it is the index plus uniform values; then the lanes are distinct
and the op is skipped. CPUs are skipped, as communication in their small subgroups costs as much as
it saves.

Correctness does not depend on which lanes run together, or on the guesses above. Lanes exchange
data only by subgroup ops among active lanes: the first address, the membership of the group, the
reduction and the elected lane. SPIR-V allows such ops in any control flow, and they apply to the
lanes that execute the same dynamic instance.

- The lanes after the comparison come from one instance of `subgroup_first`, since there is no merge
  between. So they have one address.
- The reduction and the election are in one block, so they apply to the same lanes.
- If lanes that could run together do not, there are more groups, each of which is added once.
- Every lane succeeds at first, or leaves with a group that was added, or adds its own value.

Another lane may add a lane's value, at a slightly different time. So no other op may access that
memory between two barriers (`isolated`). Otherwise a lane could read an element after its own
update, or store before it, out of order. Atomics of one kind commute; those of two kinds do not.

Conditions:

- The atomic's result is unused, since it differs between lanes.
- The op is associative and commutative as a subgroup reduction. Float minima and maxima are
  excluded, as their reductions may treat NaN in any way.
- The atomic is not inside a branch for one elected lane.
- The kernel has few atomics, as the code grows.

Equal indices imply equal addresses. Equal addresses with different indices (out-of-range ones, for
example) form separate groups, which is also correct.

Runs before `legalize`, whose table lists the atomics that a device lacks.

    >>> combine_lanes(fn, caps)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from vkchi.analysis.dataflow import Flow
from vkchi.analysis.memory.alias import bases_may_alias
from vkchi.analysis.parallel_loops import own_values
from vkchi.ir.builder import Builder, same_bits
from vkchi.ir.core import Func, Op, Param, Region, Value, base_memory, find_parallel, walk
from vkchi.ir.ops import ATOMICS, PER_INVOCATION, PLACES, READS, WRITES
from vkchi.ir.rebuild import rebuild
from vkchi.opt.lowering.legalize import (
    Args,
    by_components,
    combined_value,
    expand_swap,
    expansion_key,
    expansions,
)
from vkchi.target import tuning
from vkchi.target.caps import Caps
from vkchi.types import Array, Tensor, i32, scalar_of, u1, u32

ACCESSES = READS | WRITES


def combine_lanes(fn: Func, caps: Caps) -> Func:
    """Aggregate atomics that the device emulates by compare-and-swap, where lanes may conflict.

    Only on GPUs with subgroup reductions and ballots, and for at most COMBINE_ATOMICS scalars.
    """
    loop = find_parallel(fn)
    can_count = caps.ballot_fits_word or caps.ballot_fits_long
    can_ask = caps.subgroup_arithmetic and caps.subgroup_ballot and can_count
    if loop is None or not (caps.wide_subgroups and can_ask):
        return fn
    body = loop.regions[0]
    free = set(isolated(set(emulated_atomics(fn, caps)), body))
    apart = Flow(body, lane_values(body)).found if free else frozenset[Value]()
    found = {op for op in free if may_meet(op, body.params[-1], apart)}
    if not found or sum(width_of(op) for op in found) > tuning.COMBINE_ATOMICS:
        return fn

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op not in found:
            return None
        old, new = indices_of(op.args[0]), indices_of(args[0])
        assert old is not None and new is not None
        emit = emit_anywhere if any(v in apart for v in old) else emit_at_one
        by_components(b, op, args, partial(emit, indices=new, caps=caps))
        return [args[1]]  # a placeholder: the result is unused

    return rebuild(fn, visit)


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


def may_meet(op: Op, lane: Value, apart: Collection[Value]) -> bool:
    """True if an atomic's indices are known and lanes may have one address; False if the lanes are
    proved distinct, or indices are unknown."""
    indices = indices_of(op.args[0])
    return indices is not None and not any(is_own(v, lane, apart) for v in indices)


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


def is_own(v: Value, lane: Value, apart: Collection[Value]) -> bool:
    """True if a value is the lane's innermost index, perhaps negated, plus uniform values, hence
    distinct in each lane. `apart`: values that may differ between lanes."""
    while isinstance(v, Op) and v.kind in ("add", "sub"):
        x, y = v.args
        if x in apart and y in apart:
            return False
        v = y if y in apart else x
    return v is lane


def emit_at_one(b: Builder, op: Op, args: Args, *, indices: Sequence[Value], caps: Caps) -> Value:
    """Append the atomic of a scalar, with one update for all lanes that have the first lane's
    address. Returns its operand, as a placeholder for the unused result."""
    emit_group(b, op.kind, args, emit_meeting(b, indices))
    return args[1]


def emit_anywhere(b: Builder, op: Op, args: Args, *, indices: Sequence[Value], caps: Caps) -> Value:
    """Append a few compare-and-swaps, and if all of them fail the loop of `emit_rounds`. Returns
    the atomic's operand, as a placeholder for the unused result."""
    with b.when(emit_attempts(b, op, args)):
        emit_rounds(b, op.kind, args, indices, caps)
    return args[1]


def emit_attempts(b: Builder, op: Op, args: Args) -> Value:
    """Append up to COMBINE_ATTEMPTS compare-and-swaps; return a bool: all of them failed."""
    first = b.emit("load", args[0])
    names = {"old": first.type, "open": u1, "left": i32}
    seen, carried = ([Param(t, name) for name, t in names.items()] for _ in range(2))
    zero, one = b.const(0, i32), b.const(1, i32)
    with b.region(*seen) as cond:
        b.emit("yield", b.emit("and", seen[1], b.emit("gt", seen[2], zero)))
    with b.region(*carried) as body:
        old, _, left = carried
        new = b.emit("atomic_cas", args[0], old, combined_value(b, op, old, args))
        is_open = b.emit("not", same_bits(b, new, old))
        b.emit("yield", new, is_open, b.emit("sub", left, one))
    return b.while_(
        (first, b.const(True, u1), b.const(tuning.COMBINE_ATTEMPTS, i32)), cond, body
    ).results[1]


def emit_rounds(b: Builder, kind: str, args: Args, indices: Sequence[Value], caps: Caps) -> None:
    """Append the loop over groups. Each iteration handles the group of the first lane, or all lanes
    that are left."""
    seen, left = Param(u1, "left"), Param(u1, "left")
    with b.region(seen) as cond:
        b.emit("yield", seen)
    with b.region(left) as body:
        mine = emit_meeting(b, indices)
        are_most = emit_majority(b, mine, caps)
        goes = b.emit("or", mine, b.emit("not", are_most))
        with b.when(goes):
            emit_group(b, kind, args, are_most)
        b.emit("yield", b.emit("not", goes))
    b.while_((b.const(True, u1),), cond, body)


def emit_meeting(b: Builder, indices: Sequence[Value]) -> Value:
    """Return a bool: this lane has the address of the first active lane."""
    mine = b.const(True, u1)
    for index in indices:
        mine = b.emit("and", mine, b.emit("eq", index, b.emit("subgroup_first", index)))
    return mine


def emit_majority(b: Builder, mine: Value, caps: Caps) -> Value:
    """Return a uniform bool: `mine` holds in more than half of the active lanes."""
    kind = "subgroup_ballot" if caps.ballot_fits_word else "subgroup_ballot_wide"
    group, here = (b.emit("popcnt", b.emit(kind, v)) for v in (mine, b.const(True, u1)))
    return b.emit("gt", b.emit("add", group, group), here)


def emit_group(b: Builder, kind: str, args: Args, is_group: Value) -> None:
    """Append the atomic of the active lanes. Where `is_group` holds, one elected lane applies their
    reduction; each other lane applies its own value."""
    place, value = args
    with b.region() as together:
        total = b.emit(f"subgroup_{ATOMICS[kind].combine}", value)
        b.emit("yield", total, b.emit("subgroup_elect"))
    with b.region() as apart:
        b.emit("yield", value, b.const(True, u1))
    amount, is_doing = b.if_(is_group, together, apart).results
    with b.when(is_doing):
        b.emit(kind, place, amount)
