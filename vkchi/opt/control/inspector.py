"""Inspector-executor form of guarded serial loops: the guard is tested for 32 iterations at a time.

    for k { if x[f(k)] < r { body } }                             becomes

    for each batch of 32 iterations {
      mask = 0
      for k in batch { mask |= (x[f(k)] < r) << (k - first) }     the inspector
      for _ in 0..popcnt(mask) {                                  the executor
        k = first + trailing zeros of mask; mask &= mask - 1; body } }

Lanes of a subgroup run in lockstep, so the first form executes the body wherever the guard holds in
any lane. The executor runs it as often as the guard holds in the lane where it holds most often.
The body's iterations keep their order.

Candidates are the loops that the frontend marks `guarded`: where the guard usually holds, this form
is slower. The guard's loads must differ between lanes, and nothing in the loop may change what they
load. The guard must not depend on carried values. The body must access memory: a shorter one takes
no longer than the selection of an iteration.

Source: the names are those of Saltz, Mirchandaney and Crowley, "Run-time parallelization and
scheduling of loops", 1991.

    >>> inspect_guards(fn, caps)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vkchi.analysis.memory.alias import SideEffectTable, location_of
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Result, Value, has_kind, walk
from vkchi.ir.iteration_space import as_type
from vkchi.ir.ops import ACCESSES, GROUPED, GUARDED, LOOPS, SYNCS, TABLE, Effect
from vkchi.ir.rebuild import Cloner, Rebuilder, rebuild_chosen
from vkchi.opt.cost_model import subgroup_width
from vkchi.opt.loops.serial.broadcast import LikelyDivergence
from vkchi.opt.loops.serial.transform import begin_of_tile, split
from vkchi.target.caps import Caps
from vkchi.tuples import NamedTuple
from vkchi.types import i32, u32

BATCH = 32  # bits of a mask


class GuardedLoop(NamedTuple):
    """A serial loop whose body is one `if`. `taken` is the index of its region that does something.

    `guard`: the ops of the loop that compute the condition, in order. `yielded`: for each carried
    value, the position of its next value among the results of the `if`; None if it stays.
    """

    branch: Op
    taken: int
    guard: list[Op]
    yielded: tuple[int | None, ...]


def inspect_guards(fn: Func, caps: Caps) -> Func:
    """Split guarded serial loops into an inspector and an executor, on devices with subgroups."""
    width = subgroup_width(caps)
    return fn if width == 1 else inspect_in_lockstep(fn, width)


def inspect_in_lockstep(fn: Func, width: int) -> Func:
    """`inspect_guards` for subgroups of `width` lanes, on any device."""
    grid = next((op for op in fn.body.ops if op.kind == "parallel"), None)
    if grid is None:
        return fn
    changes = SideEffectTable()
    found = {
        op: loop
        for op in walk(grid.regions[0])
        if op.kind == "for" and (loop := guarded_loop(op, changes))
    }
    if not found:
        return fn
    lanes = LikelyDivergence(grid, width).found
    return rebuild_chosen(
        fn, "for", lambda op: found[op] if op in found and is_uneven(found[op], lanes) else None,
        build,
    )  # fmt: skip


# --- which ---------------------------------------------------------------------------------------


def guarded_loop(loop: Op, changes: SideEffectTable) -> GuardedLoop | None:
    """Return the parts of an innermost loop whose guard may be tested ahead; None for others."""
    body = loop.regions[0]
    *ahead, branch = body.ops[:-1] or [loop]
    if loop.attr != GUARDED or branch.kind != "if" or body.params[0].type is not i32:
        return None
    if any(op.kind in GROUPED | SYNCS | LOOPS for op in walk(body)):
        return None
    if any(op.kind != "load" and not is_pure(op) for op in ahead):
        return None
    taken = 1 if len(branch.regions[0].ops) == 1 else 0
    yielded = carried_by(body, branch, branch.regions[1 - taken])
    guard = slice_of(branch.args[0], ahead, body.params[1:])
    if yielded is None or guard is None or len(branch.regions[1 - taken].ops) > 1:
        return None
    made = changes.of(loop.regions)
    if any(made.may_change(location_of(op.args[0])._replace(indices=()))
           for op in guard if op.kind == "load"):  # fmt: skip
        return None
    is_worth_it = has_kind(branch.regions[taken], ACCESSES)
    return GuardedLoop(branch, taken, guard, yielded) if is_worth_it else None


def is_pure(op: Op) -> bool:
    return TABLE[op.kind].effect is Effect.PURE and not op.regions


def carried_by(body: Region, branch: Op, skipped: Region) -> tuple[int | None, ...] | None:
    """For each carried value of a loop, its position among the results of `branch`, None if it
    stays. None if `skipped`, a region of the branch, changes one, or an op beside the branch."""
    found: list[int | None] = []
    for v, carried in zip(body.yielded, body.params[1:], strict=True):
        if v is carried:
            found.append(None)
        elif isinstance(v, Result) and v.op is branch:
            k = branch.results.index(v)
            if skipped.yielded[k] is not carried:
                return None
            found.append(k)
        else:
            return None
    return tuple(found)


def slice_of(v: Value, ahead: Sequence[Op], carried: Collection[Param]) -> list[Op] | None:
    """Return the ops among `ahead` that v depends on; None if it depends on a carried value."""
    needed: set[Value] = {v}
    for op in reversed(ahead):
        if op in needed:
            needed.update(op.args)
    return None if not needed.isdisjoint(carried) else [op for op in ahead if op in needed]


def is_uneven(loop: GuardedLoop, lanes: Collection[Value]) -> bool:
    """True if the guard probably loads other elements in neighbouring lanes."""
    return any(op.kind == "load" and op.args[0] in lanes for op in loop.guard)


# --- form ----------------------------------------------------------------------------------------


def build(
    walker: Rebuilder, loop: Op, args: tuple[Value, ...], found: GuardedLoop
) -> Sequence[Value]:
    b, (begin, end, *values), body = walker.b, args, loop.regions[0]
    whole, _ = split(b, begin, end, BATCH)
    batches = b.emit("add", whole, b.const(1, i32))
    batch, *carried = [Param(p.type, p.name) for p in body.params]
    with b.region(batch, *carried) as around:
        first = begin_of_tile(b, begin, batch, b.const(BATCH, i32))
        is_whole = b.emit("gt", b.emit("sub", end, first), b.const(BATCH, i32))
        last = b.emit("select", is_whole, b.emit("add", first, b.const(BATCH, i32)), end)
        mask = inspect(walker, loop, found, first, last)
        b.emit("yield", *execute(walker, loop, found, first, mask, carried))
    return b.for_(b.const(0, i32), batches, values, around).results


def inspect(walker: Rebuilder, loop: Op, found: GuardedLoop, first: Value, last: Value) -> Value:
    """Append the inspector; return the mask of the iterations in which the guard holds."""
    b, old = walker.b, loop.regions[0].params[0]
    k, mask = Param(i32, old.name), Param(u32, "mask")
    with b.region(k, mask) as tests:
        copy = Cloner(b, {**walker.map, old: k})
        copy.run(found.guard)
        cond = copy.get(found.branch.args[0])
        bit = b.emit("shl", b.const(1, u32), as_type(b, b.emit("sub", k, first), u32))
        arms = (bit, b.const(0, u32)) if found.taken == 0 else (b.const(0, u32), bit)
        b.emit("yield", b.emit("or", mask, b.emit("select", cond, *arms)))
    return b.for_(first, last, [b.const(0, u32)], tests).results[0]


def execute(
    walker: Rebuilder, loop: Op, found: GuardedLoop, first: Value, mask: Value,
    values: Sequence[Value],
) -> Sequence[Value]:  # fmt: skip
    """Append the executor; return the carried values behind it."""
    b, (old, *olds), branch = walker.b, loop.regions[0].params, found.branch
    count = as_type(b, b.emit("popcnt", mask), i32)
    turn, left, carried = Param(i32, ""), Param(u32, "mask"), [Param(p.type, p.name) for p in olds]
    with b.region(turn, left, *carried) as body:
        rest = b.emit("and", left, b.emit("sub", left, b.const(1, u32)))
        k = b.emit("add", first, trailing_zeros(b, left), name=old.name)
        copy = Cloner(b, {**walker.map, old: k, **dict(zip(olds, carried, strict=True))})
        copy.run(loop.regions[0].ops[:-2])
        results = copy.inline(branch.regions[found.taken], ())
        following = [v if at is None else results[at] for v, at in zip(carried, found.yielded)]
        b.emit("yield", rest, *following)
    _, *made = b.for_(b.const(0, i32), count, [mask, *values], body).results
    return made


def trailing_zeros(b: Builder, x: Value) -> Value:
    """Append the number of zero bits below the lowest set bit of a u32 that is not 0, as i32."""
    lowest = b.emit("and", x, b.emit("neg", x))
    return b.emit("sub", b.const(BATCH - 1, i32), as_type(b, b.emit("clz", lowest), i32))
