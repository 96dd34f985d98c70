"""Atomics by compare-and-swap: lanes that meet at one place do it once, for all of them.

    atomic_add p, v     becomes, where p is one place for a whole subgroup:
                                    those at the first lane's place: their sum, put there by one
                                    any other lane: for itself
                        or, where data tell the place:
                                    compare and swap, three times at most; where it is not done:
                                    while lanes are left:
                                        those at the first one's place are its group
                                        if they are most: their sum, put there by one of them
                                        else: each for itself, and none is left

Why: where a device lacks an atomic, `legalize` makes it a loop around compare-and-swap, in which of
the lanes that meet at a place one gets through in each round: 64 rounds for 64 lanes. A place that
nothing tells apart by lane (`r[i] += x[i, j]`, `f[k] += ...` in a serial loop over k) is one for
all, and takes one round then, and no more code than a sum and a choice. Where data tell the place,
a group of more than half of the lanes takes one round, and at least half of those rounds is saved;
others are left alone, as it would cost a round for each group. So there are no more rounds than the
binary logarithm of the lanes, and some. Lanes that meet few others get through before anything is
asked. Where the index of the innermost axis tells the place, lanes may be apart as well as in
pairs; that is taken for data unless it is the index itself and what all lanes have in common, which
keeps them apart.
Not on processors: of their four or eight lanes few rounds are saved, and what asks costs as much
(measured: lanes of one place 1.2 times as fast on lavapipe, all others up to 1.6 times as slow).

Right, whichever lanes run together, and whatever is expected of places. All that lanes learn of
each other they learn from ops among those that are active: the place that they compare with, who is
in the group, the sum and who puts it there. SPIR-V lets such ops stand in any control flow, and
they are about the lanes that execute the same dynamic instance of them. The lanes behind the
comparison are such that came from one instance of `subgroup_first`, since no merge lies between, so
they have one place; the sum and the choice of who puts it there stand in one block, so that they
are of the same lanes. If lanes that could run together do not, there are more groups, and each is
put in place once. Every lane either gets through at first, or is in a group that was summed up, and
leaves, or adds by itself.

A lane's number may be put in place by another lane, somewhat earlier or later than by itself. So
nothing else may touch that memory between two barriers (`isolated`): a lane that reads a place
behind its own sum, or stores to it before, sees the two in order; atomics of one kind may be done
in any order, those of two kinds may not.

Done where nobody uses the old value, as that is each lane's own; where the op may be done in any
order, as atomics may: not minima and maxima of floats, whose reductions do as they like with NaN.
Not where one lane of a subgroup is elected anyway, nor in kernels of many atomics, whose code would
grow. Equal indices lead to equal places; places that are equal by other indices (what strays, say)
are of different groups, which is right as well.

Before `legalize`, whose table says which atomics a device lacks. Owns: this form. Must not know:
what else there is about compare-and-swap.

    >>> combine_lanes(fn, caps)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from vkchi.analysis.alias import may_share
from vkchi.analysis.dataflow import Flow
from vkchi.analysis.variance import own_values
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Value, base_of, find_parallel, walk
from vkchi.ir.ops import ATOMICS, PER_INVOCATION, PLACES, READS, WRITES
from vkchi.ir.rebuild import rebuild
from vkchi.ir.swaps import same_bits
from vkchi.passes.legalize import (
    Args,
    by_components,
    combined,
    expand_swap,
    expansions,
    key_of,
)
from vkchi.target.caps import Caps
from vkchi.types import Array, Tensor, i32, scalar_of, u1, u32

ACCESSES = READS | WRITES
MOST_ATOMICS = 4  # numbers of them in a kernel: each takes four times the code
ATTEMPTS = 3  # after which a place is taken to be one where many meet


def combine_lanes(fn: Func, caps: Caps) -> Func:
    """The Func in which lanes that meet at a place swap once, where the device has no atomic."""
    loop = find_parallel(fn)
    can_count = caps.ballot_fits_word or caps.ballot_fits_long
    can_ask = caps.subgroup_arithmetic and caps.subgroup_ballot and can_count
    if loop is None or caps.is_cpu or not can_ask:
        return fn
    body = loop.regions[0]
    free = set(isolated(set(swapped(fn, caps)), body))
    apart = Flow(body, lane_values(body)).found if free else frozenset[Value]()
    found = {op for op in free if may_meet(op, body.params[-1], apart)}
    if not found or sum(width_of(op) for op in found) > MOST_ATOMICS:
        return fn

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op not in found:
            return None
        old, new = indices_of(op.args[0]), indices_of(args[0])
        assert old is not None and new is not None
        emit = emit_anywhere if any(v in apart for v in old) else emit_at_one
        by_components(b, op, args, partial(emit, indices=new, caps=caps))
        return [args[1]]  # which nobody uses

    return rebuild(fn, visit)


def lane_values(body: Region) -> Iterator[Value]:
    """What is each lane's own by itself: the index of the innermost axis, what is asked of the
    invocation, what it gets for what it writes."""
    yield body.params[-1]
    yield from own_values(body)
    yield from (op for op in walk(body) if op.kind in PER_INVOCATION)


def isolated(ops: Collection[Op], body: Region) -> Iterator[Op]:
    """Those of some atomics whose memory nothing touches but atomics of the same kind, whose old
    value nobody uses, between two barriers that the loop's body itself comes to."""
    used = {v for op in walk(body) for v in op.args}
    for part in parts_of(body):
        for op in part:
            base = base_of(op.args[0])
            if op in ops and not any(
                (x.kind != op.kind or x in used) and may_share(base_of(x.args[0]), base)
                for x in part
            ):
                yield op


def parts_of(body: Region) -> Iterator[list[Op]]:
    """All accesses in a body, cut at the barriers that stand in it itself."""
    part: list[Op] = []
    for op in body.ops:
        if op.kind == "barrier":
            yield part
            part = []
        inner = (x for region in op.regions for x in walk(region))
        part += [x for x in (op, *inner) if x.kind in ACCESSES]
    yield part


def swapped(fn: Func, caps: Caps) -> Iterator[Op]:
    """Atomics that the device lacks, whose old value nobody uses, in any lane of a subgroup."""
    ops, table = list(walk(fn.body)), expansions(caps)
    used = {v for op in ops for v in op.args}
    alone = {x for op in ops if is_elected(op) for x in walk(op.regions[0])}
    for op in ops:
        is_free = op.kind in ATOMICS and op not in used and op not in alone
        if is_free and can_reduce(op, caps) and table.get(key_of(op)) is expand_swap:
            yield op


def is_elected(op: Op) -> bool:
    """Whether an op is a branch that one lane of a subgroup takes."""
    return op.kind == "if" and isinstance(op.args[0], Op) and op.args[0].kind == "subgroup_elect"


def width_of(op: Op) -> int:
    """The numbers that an atomic is about."""
    t = op.args[1].type
    return t.size if isinstance(t, Tensor) else 1


def may_meet(op: Op, lane: Value, apart: Collection[Value]) -> bool:
    """Whether lanes may come to one place, as far as that is seen; where it is not, they stay."""
    indices = indices_of(op.args[0])
    return indices is not None and not any(is_own(v, lane, apart) for v in indices)


def can_reduce(op: Op, caps: Caps) -> bool:
    """Whether a subgroup's operation gives what the atomics would, in some order."""
    t = scalar_of(op.args[1].type)
    if t.kind == "f":
        return ATOMICS[op.kind].combine in ("add", "mul")
    return t.bits <= u32.bits or caps.subgroup_wide


def indices_of(place: Value) -> tuple[Value, ...] | None:
    """What tells a place from others of its array; None where that is not seen."""
    if not isinstance(place, Op) or place.kind not in PLACES:
        return None
    rest = place.args[1:]
    if isinstance(place.args[0].type, Array):
        return rest if place.kind == "elem" else None
    inner = indices_of(place.args[0])
    return None if inner is None else (*inner, *rest)


def is_own(v: Value, lane: Value, apart: Collection[Value]) -> bool:
    """Whether a value is a lane's index along the innermost axis, and what is the same for all
    lanes: its own. `apart` are values that may differ from lane to lane."""
    while isinstance(v, Op) and v.kind in ("add", "sub"):
        x, y = v.args
        if x in apart and y in apart:
            return False
        v = y if y in apart else x
    return v is lane


def emit_at_one(b: Builder, op: Op, args: Args, *, indices: Sequence[Value], caps: Caps) -> Value:
    """The atomic of a number, which is given back, at what is one place for most subgroups."""
    emit_group(b, op.kind, args, emit_meeting(b, indices))
    return args[1]


def emit_anywhere(b: Builder, op: Op, args: Args, *, indices: Sequence[Value], caps: Caps) -> Value:
    """The atomic of a number, which is given back, at a place that data tell."""
    with b.region() as then:
        emit_rounds(b, op.kind, args, indices, caps)
        b.emit("yield")
    with b.region() as orelse:
        b.emit("yield")
    b.if_(emit_attempts(b, op, args), then, orelse)
    return args[1]


def emit_attempts(b: Builder, op: Op, args: Args) -> Value:
    """Compare and swap, some times at most; whether another came between always."""
    first = b.emit("load", args[0])
    names = {"old": first.type, "open": u1, "left": i32}
    seen, carried = ([Param(t, name) for name, t in names.items()] for _ in range(2))
    zero, one = b.const(0, i32), b.const(1, i32)
    with b.region(*seen) as cond:
        b.emit("yield", b.emit("and", seen[1], b.emit("gt", seen[2], zero)))
    with b.region(*carried) as body:
        old, _, left = carried
        new = b.emit("atomic_cas", args[0], old, combined(b, op, old, args))
        is_open = b.emit("not", same_bits(b, new, old))
        b.emit("yield", new, is_open, b.emit("sub", left, one))
    return b.while_((first, b.const(True, u1), b.const(ATTEMPTS, i32)), cond, body).results[1]


def emit_rounds(b: Builder, kind: str, args: Args, indices: Sequence[Value], caps: Caps) -> None:
    """The loop: each round is for the lanes that are left."""
    seen, left = Param(u1, "left"), Param(u1, "left")
    with b.region(seen) as cond:
        b.emit("yield", seen)
    with b.region(left) as body:
        mine = emit_meeting(b, indices)
        are_most = emit_majority(b, mine, caps)
        goes = b.emit("or", mine, b.emit("not", are_most))
        with b.region() as then:
            emit_group(b, kind, args, are_most)
            b.emit("yield")
        with b.region() as orelse:
            b.emit("yield")
        b.if_(goes, then, orelse)
        b.emit("yield", b.emit("not", goes))
    b.while_((b.const(True, u1),), cond, body)


def emit_meeting(b: Builder, indices: Sequence[Value]) -> Value:
    """Whether a lane is at the place of the first of the active ones."""
    mine = b.const(True, u1)
    for index in indices:
        mine = b.emit("and", mine, b.emit("eq", index, b.emit("subgroup_first", index)))
    return mine


def emit_majority(b: Builder, mine: Value, caps: Caps) -> Value:
    """Whether more than half of the active lanes say so; the same for all of them."""
    kind = "subgroup_ballot" if caps.ballot_fits_word else "subgroup_ballot_wide"
    group, here = (b.emit("popcnt", b.emit(kind, v)) for v in (mine, b.const(True, u1)))
    return b.emit("gt", b.emit("add", group, group), here)


def emit_group(b: Builder, kind: str, args: Args, is_group: Value) -> None:
    """The atomic of the lanes here: by one of them for all those that are a group."""
    place, value = args
    with b.region() as together:
        total = b.emit(f"subgroup_{ATOMICS[kind].combine}", value)
        b.emit("yield", total, b.emit("subgroup_elect"))
    with b.region() as apart:
        b.emit("yield", value, b.const(True, u1))
    amount, is_doing = b.if_(is_group, together, apart).results
    with b.region() as then:
        b.emit(kind, place, amount)
        b.emit("yield")
    with b.region() as orelse:
        b.emit("yield")
    b.if_(is_doing, then, orelse)
