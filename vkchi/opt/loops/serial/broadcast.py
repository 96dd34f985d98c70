"""Cooperative loads: lanes of a subgroup share the uniform loads of a serial loop by broadcast.

    for u in 0..n { v = load x[f(u)]; ... }                                          becomes
    if all invocations are here, and agree on the inputs of f {
      for tile in 0..n / W {
        mine = load x[f(W * tile + own index in the subgroup)]
        for q in 0..W { u = W * tile + q; v = broadcast mine from q; ... } }
      for u in the rest { ... }
    } else { for u in 0..n { ... } }

CPUs without gathers execute a load once for each lane, whatever the addresses are. Of n loads, this
leaves n / W. Drivers unroll the loop over q, so the code grows W times. Loops of which most
accesses differ between lanes are therefore left. GPUs load uniform values once for all lanes, so
this pass skips them.

The inputs of f are the loop's index and values from outside the loop that are *probably*
subgroup-uniform. Correctness does not depend on that guess, as the lanes compare the values first.
The loop must neither write the array nor synchronize, so an earlier load finds the same value.

    >>> broadcast_loads(fn, caps)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property, reduce

from vkchi.analysis.dataflow import Flow
from vkchi.analysis.memory.alias import SideEffectTable, bases_may_alias
from vkchi.analysis.parallel_loops import is_private
from vkchi.ir.core import Func, Op, Param, Region, Result, Value, base_memory, constant_int, walk
from vkchi.ir.ops import (
    ACCESSES,
    COMPARISONS,
    ORDERED,
    PER_INVOCATION,
    TABLE,
    TIED,
    Effect,
    Trait,
    axes_of,
    kinds_with,
)
from vkchi.ir.rebuild import Cloner, Rebuilder, rebuild_chosen
from vkchi.opt.cost_model import subgroup_width
from vkchi.opt.loops.serial.transform import begin_of_tile, split
from vkchi.opt.rewrite.dce import remove_dead
from vkchi.target import tuning
from vkchi.target.caps import Caps
from vkchi.target.remarks import Log, Refusal, Verdict, record_refusal
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Tensor, i32, scalar_of, u1, u32

SAME = kinds_with(Trait.UNIFORM)
WRITTEN = Refusal("it may write the arrays that it loads from")
LONG = Refusal("its body is too long")
FEW = Refusal("most of its accesses differ between invocations")
COSTLY = Refusal("invocations would have to compare too many values first")


def broadcast_loads(fn: Func, caps: Caps, log: Log | None = None) -> Func:
    """Share uniform loads of serial loops among the lanes of a subgroup. Returns `fn` unless the
    device is a CPU with subgroup ballots and votes."""
    width = subgroup_width(caps)
    if width == 1 or not (caps.scalar_lanes and caps.subgroup_ballot and caps.subgroup_vote):
        return fn
    made = load_cooperatively(fn, width, log)
    return made if made is fn else remove_dead(made)  # addresses that other lanes compute


def load_cooperatively(fn: Func, width: int, log: Log | None = None) -> Func:
    """Share uniform loads of serial loops among the `width` lanes of a subgroup, on any device.
    Records in `log` why loops with uniform loads are left."""
    grid = next((op for op in fn.body.ops if op.kind == "parallel"), None)
    if grid is None or all(op.kind != "for" for op in walk(grid.regions[0])):
        return fn
    finder = CooperativeLoadFinder(grid, width)

    def choose(loop: Op) -> CooperativeLoads | None:
        turns = finder.turns(loop)
        record_refusal(log, "cooperative loads", loop.span, turns, fn.name)
        return turns if isinstance(turns, CooperativeLoads) else None

    return rebuild_chosen(
        fn, "for", choose,
        lambda r, op, args, turns: CooperativeLoadEmitter(r, turns, width).build(op, args),
    )  # fmt: skip


# --- which ---------------------------------------------------------------------------------------


class CooperativeLoads(NamedTuple):
    """Cooperative loads of a loop. `loads`: each load, with the ops in the loop that compute its
    address. `asked`: the values that lanes must agree on."""

    loads: dict[Op, list[Op]]
    asked: list[Value]


class LikelyDivergence(Flow):
    """Values that probably differ between neighboring lanes: they depend on the fastest index or on
    an invocation number.

    Two kinds of results are assumed uniform: comparisons, and quotients (`floordiv`, `div`) whose
    divisor is unknown or at least the subgroup size.
    """

    def __init__(self, grid: Op, width: int) -> None:
        self.width = width
        body = grid.regions[0]
        own = (op for op in walk(body) if op.kind in PER_INVOCATION - SAME)
        super().__init__(body, [axes_of(grid)[-1].param, *own])

    def transfer(self, op: Op, v: Value) -> Iterable[Value]:
        if op.kind in COMPARISONS or (op.kind in ("floordiv", "div") and self.is_long(op, v)):
            return ()
        return super().transfer(op, v)

    def is_long(self, op: Op, v: Value) -> bool:
        n = constant_int(op.args[1])
        return op.args[0] is v and (n is None or n >= self.width)


class CooperativeLoadFinder:
    def __init__(self, grid: Op, width: int) -> None:
        self.grid, self.width, self.changes = grid, width, SideEffectTable()

    @cached_property
    def lanes(self) -> Collection[Value]:
        """Values that probably differ between neighboring lanes."""
        return LikelyDivergence(self.grid, self.width).found

    @cached_property
    def own(self) -> Collection[Value]:
        """Values that may differ between invocations."""
        return Flow(self.grid.regions[0], own_values(self.grid)).found

    def turns(self, loop: Op) -> CooperativeLoads | Verdict:
        """Return the profitable cooperative loads of a serial loop. False if it does not qualify,
        or has no uniform loads."""
        (axis,), body = axes_of(loop), loop.regions[0]
        if not (is_long(loop, self.width) and is_plain(body)):
            return False
        if not {axis.begin, axis.end}.isdisjoint(self.lanes):
            return False
        refusal: Verdict = False
        loads: dict[Op, list[Op]] = {}
        outside = [axis.begin, axis.end]
        written = {place.base for place in self.changes.of(loop.regions).writes}
        for op in body.ops:
            if op.kind != "load" or not is_small(op):
                continue
            if any(bases_may_alias(base_memory(op.args[0]), base) for base in written):
                refusal = WRITTEN
                continue  # at any index: a later iteration may load the new value
            needed = Slice(body, axis.param, op)
            if needed.is_whole and not any(v in self.lanes for v in needed.outside):
                loads[op] = needed.ops
                outside += needed.outside
        if not loads:
            return refusal
        asked = [v for v in dict.fromkeys(outside) if not self.is_same(v)]
        is_cheap = len(asked) <= tuning.COOPERATIVE_COMPARED and all(is_word(v) for v in asked)
        is_short = count_ops(body) <= max(
            tuning.COOPERATIVE_OPS, tuning.COOPERATIVE_OPS_PER_LOAD * len(loads)
        )
        if not is_short:
            return LONG
        if tuning.COOPERATIVE_RATIO * sum(map(scalars_of, loads)) < accessed_scalars(body):
            return FEW
        return CooperativeLoads(loads, asked) if is_cheap else COSTLY

    def is_same(self, v: Value) -> bool:
        return v not in self.own


def own_values(grid: Op) -> Iterator[Value]:
    """Yield the sources of divergence: region parameters, and results of control ops, invocation
    ops and ops with effects, loads included."""
    yield from grid.regions[0].params
    for op in walk(grid.regions[0]):
        if op.regions or op.kind in PER_INVOCATION or TABLE[op.kind].effect is not Effect.PURE:
            yield from op.results
        for region in op.regions:
            yield from region.params


def is_long(loop: Op, width: int) -> bool:
    (axis,) = axes_of(loop)
    return axis.length is None or axis.length >= tuning.COOPERATIVE_LOADS * width


def is_plain(body: Region) -> bool:
    """True for an innermost loop without ordered ops, allocations, or ops that depend on the
    invocation."""
    return not any(
        op.kind in ("for", "while")
        or op.kind in ORDERED
        or op.kind in TIED
        or TABLE[op.kind].effect is Effect.ALLOC
        for op in walk(body)
    )


def count_ops(body: Region) -> int:
    return sum(1 for _ in walk(body))


def accessed_scalars(body: Region) -> int:
    """Return the scalars that an iteration loads from and stores to non-private memory."""
    return sum(scalars_of(op) for op in walk(body) if op.kind in ACCESSES and not is_private(op))


def scalars_of(access: Op) -> int:
    t = access.args[-1].type if access.type is None else access.type
    return t.size if isinstance(t, Tensor) else 1


def is_small(load: Op) -> bool:
    """True for a load, through an `address`, of a 32-bit scalar or a tensor of these."""
    place = load.args[0]
    if not isinstance(place, Op) or place.kind != "address":
        return False
    return isinstance(place.args[0].type, Array) and scalar_of(load.type).bits == 32


def is_word(v: Value) -> bool:
    return isinstance(v.type, Scalar) and v.type.bits == 32


class Slice:
    """Backward slice of a load's address in a loop's body.

    `ops`: the ops of the slice, in order. `outside`: the values from outside the loop that it uses.
    `is_whole`: True if all its ops are pure and it uses no loop parameter but the index.
    """

    def __init__(self, body: Region, index: Param, load: Op) -> None:
        self.own, self.params = set(body.ops), set(body.params)
        self.index = index
        self.outside: list[Value] = []
        found: set[Op] = set()
        self.is_whole = all([self.reach(v, found) for v in load.args])
        self.ops = [op for op in body.ops if op in found]

    def reach(self, v: Value, found: set[Op]) -> bool:
        """Add a value and its operands to the slice: ops of the loop to `found`, other values to
        `outside`.

        False if it depends on a region parameter other than the index, on a result of a control op
        in the loop, or on an op of the loop that is not pure.
        """
        if v in self.params:
            return v is self.index
        if isinstance(v, Result) and v.op in self.own:
            return False
        if v not in self.own:
            if v not in self.outside and not isinstance(v.type, Array):
                self.outside.append(v)
            return True
        assert isinstance(v, Op)
        if v in found:
            return True
        found.add(v)
        is_pure = TABLE[v.kind].effect is Effect.PURE and not v.regions
        return is_pure and all([self.reach(x, found) for x in v.args])


# --- form ----------------------------------------------------------------------------------------


class CooperativeLoadEmitter:
    """Emits a loop with cooperative loads."""

    def __init__(self, walker: Rebuilder, turns: CooperativeLoads, width: int) -> None:
        self.b, self.map = walker.b, walker.map
        self.loads, self.asked = turns
        self.width = width

    def build(self, loop: Op, args: Sequence[Value]) -> Sequence[Value]:
        b = self.b
        tiles, rest = split(b, args[0], args[1], self.width)
        can = self.agree()
        if constant_int(tiles) is None:
            can = b.emit("and", can, b.emit("gt", tiles, b.const(0, scalar_of(tiles.type))))
        with b.region() as then:
            found = self.tiled(loop, args, tiles)
            b.emit("yield", *(self.plain(loop, (rest, args[1], *found)) if rest else found))
        with b.region() as orelse:
            b.emit("yield", *self.plain(loop, args))
        return b.if_(can, then, orelse).results

    def agree(self) -> Value:
        """Return a bool: all lanes of the subgroup are active, and each value in `asked` is the
        same in all of them."""
        b = self.b
        here = b.emit("subgroup_ballot", b.const(True, u1))
        found = [b.emit("eq", here, b.const((1 << self.width) - 1, u32))]
        found += [b.emit("subgroup_all_equal", self.bits(self.map.get(v, v))) for v in self.asked]
        return reduce(lambda x, y: b.emit("and", x, y), found)

    def bits(self, v: Value) -> Value:
        """Bitcast a float to u32, so that comparison distinguishes 0.0 and -0.0. Other values are
        returned as they are."""
        return self.b.emit("bitcast", v, type=u32) if scalar_of(v.type).kind == "f" else v

    def tiled(self, loop: Op, args: Sequence[Value], tiles: Value) -> Sequence[Value]:
        b, body = self.b, loop.regions[0]
        index, *carried = body.params
        t = scalar_of(index.type)
        width = b.const(self.width, t)
        lane = b.emit("subgroup_index")
        lane = lane if t is i32 else b.emit("cast", lane, type=t)
        zero = b.const(0, t)
        tile = Param(t, index.name)
        params = [Param(p.type, p.name) for p in carried]
        with b.region(tile, *params) as around:
            start = begin_of_tile(b, args[0], tile, width)
            mine = dict(self.own_loads(index, b.emit("add", start, lane)))
            turn, inner = Param(t, index.name), [Param(p.type, p.name) for p in carried]
            with b.region(turn, *inner) as round_:
                known: dict[Value, Value] = {**self.map, index: b.emit("add", start, turn)}
                known.update(zip(carried, inner, strict=True))
                whose = turn if t is u32 else b.emit("cast", turn, type=u32)
                for load, v in mine.items():
                    known[load] = self.sent(v, whose)
                self.copy(body, known)
            b.emit("yield", *b.for_(zero, width, params, round_).results)
        return b.for_(zero, tiles, args[2:], around).results

    def own_loads(self, index: Param, at: Value) -> Iterator[tuple[Op, Value]]:
        """Append the cooperative loads and the ops of their addresses, with `at` for the loop's
        index. Yields each load with its new value."""
        known = {**self.map, index: at}
        done: set[Op] = set()
        for load, needed in self.loads.items():
            Cloner(self.b, known).run([*[op for op in needed if op not in done], load])
            done.update(needed)
            yield load, known[load]

    def sent(self, v: Value, whose: Value) -> Value:
        b = self.b
        parts = [b.emit("subgroup_broadcast", x, whose) for x in b.components(v)]
        return b.assemble(parts, v.type)

    def copy(self, body: Region, known: dict[Value, Value]) -> None:
        copy = Cloner(self.b, known)
        copy.run(op for op in body.ops if op not in self.loads)
        self.b.emit("yield", *map(copy.get, body.yielded))

    def plain(self, loop: Op, args: Sequence[Value]) -> Sequence[Value]:
        body = Cloner(self.b, dict(self.map)).region(loop, loop.regions[0])
        return self.b.for_(args[0], args[1], args[2:], body, loop.attr).results
