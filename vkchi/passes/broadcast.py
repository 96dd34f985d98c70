"""Cooperative loads: what all invocations of a subgroup would load alike, they load by turns.

    for u in 0..n { v = load x[f(u)]; ... }                                          becomes
    if all invocations are here, and agree on what f is made of {
      for tile in 0..n / W {
        mine = load x[f(W * tile + own index in the subgroup)]
        for q in 0..W { u = W * tile + q; v = broadcast mine from q; ... } }
      for u in the rest { ... }
    } else { for u in 0..n { ... } }

Processors without gathers load for each invocation of a subgroup by itself, whatever the addresses
are: of n loads, this leaves n / W. Graphics cards load what is the same for all once, so nothing is
done for them.

What f is made of is the loop's index, and values from outside that are *likely* the same: no
result hangs on that, for the invocations ask each other first. Nor may the loop write the array
or wait for others, so each load finds what it would have found.

Owns: this form, and what is likely. Must not know: loops of the kernel, layouts.

    >>> broadcast_loads(fn, caps)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property, reduce

from vkchi.analysis.alias import ChangeTable, may_share
from vkchi.analysis.dataflow import Flow
from vkchi.ir.clone import Cloner
from vkchi.ir.constants import constant_int
from vkchi.ir.control import axes_of
from vkchi.ir.core import Func, Op, Param, Region, Result, Value, base_of, walk
from vkchi.ir.ops import (
    COMPARISONS,
    ORDERED,
    PER_INVOCATION,
    TABLE,
    TIED,
    Effect,
    Trait,
    kinds_with,
)
from vkchi.ir.rebuild import Rebuilder, rebuild_chosen
from vkchi.passes.cost_model import BY_TURNS, subgroup_width
from vkchi.passes.tiles import cut
from vkchi.target.caps import Caps
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Tensor, i32, scalar_of, u1, u32

MOST_OPS = 64  # of a body, which is written three times
OPS_OF_A_LOAD = 16  # of a larger one, for each load that is made by turns
MOST_ASKED = 4  # values that the invocations compare
SAME = kinds_with(Trait.UNIFORM)


def broadcast_loads(fn: Func, caps: Caps) -> Func:
    """The Func with serial loops whose invocations load by turns, on a processor."""
    width = subgroup_width(caps)
    if width == 1 or not (caps.is_cpu and caps.subgroup_ballot and caps.subgroup_vote):
        return fn
    return load_by_turns(fn, width)


def load_by_turns(fn: Func, width: int) -> Func:
    """The Func for subgroups of so many invocations."""
    grid = next((op for op in fn.body.ops if op.kind == "parallel"), None)
    if grid is None or all(op.kind != "for" for op in walk(grid.regions[0])):
        return fn
    return rebuild_chosen(
        fn, "for", Finder(grid, width).turns,
        lambda r, op, args, turns: Form(r, turns, width).build(op, args),
    )  # fmt: skip


# --- which ---------------------------------------------------------------------------------------


class Turns(NamedTuple):
    """The loads of a loop that are made by turns, each with the ops in the loop that its address
    takes, and what invocations must agree on."""

    loads: dict[Op, list[Op]]
    asked: list[Value]


class Lanes(Flow):
    """What likely differs between neighbouring invocations: what is computed from their numbers.
    Not so quotients by what is at least as long as a subgroup, or unknown; nor how comparisons come
    out."""

    def __init__(self, grid: Op, width: int) -> None:
        self.width = width
        body = grid.regions[0]
        own = (op for op in walk(body) if op.kind in PER_INVOCATION - SAME)
        super().__init__(body, [axes_of(grid)[-1].param, *own])

    def transfer(self, op: Op, v: Value) -> Iterable[Value]:
        """Results, if they move on as the value does."""
        if op.kind in COMPARISONS or (op.kind in ("floordiv", "div") and self.is_long(op, v)):
            return ()
        return super().transfer(op, v)

    def is_long(self, op: Op, v: Value) -> bool:
        """Whether a value is divided by what is not known to be short."""
        n = constant_int(op.args[1])
        return op.args[0] is v and (n is None or n >= self.width)


class Finder:
    """Finds what is worth it in the loop over invocations."""

    def __init__(self, grid: Op, width: int) -> None:
        self.grid, self.width, self.changes = grid, width, ChangeTable()

    @cached_property
    def lanes(self) -> Collection[Value]:
        """What likely differs between neighbouring invocations."""
        return Lanes(self.grid, self.width).found

    @cached_property
    def own(self) -> Collection[Value]:
        """What may differ between invocations."""
        return Flow(self.grid.regions[0], own_values(self.grid)).found

    def turns(self, loop: Op) -> Turns | None:
        """The loads of a serial loop that are worth it; None if there are none."""
        (axis,), body = axes_of(loop), loop.regions[0]
        if not (is_long(loop, self.width) and is_plain(body)):
            return None
        if not {axis.begin, axis.end}.isdisjoint(self.lanes):
            return None
        loads: dict[Op, list[Op]] = {}
        outside = [axis.begin, axis.end]
        written = {place.base for place in self.changes.of(loop.regions).writes}
        for op in body.ops:
            if op.kind != "load" or not is_small(op):
                continue
            if any(may_share(base_of(op.args[0]), base) for base in written):
                continue  # whatever the indices: what one round writes, a later one may load
            needed = Slice(body, axis.param, op)
            if needed.is_whole and not any(v in self.lanes for v in needed.outside):
                loads[op] = needed.ops
                outside += needed.outside
        if not loads:
            return None
        asked = [v for v in dict.fromkeys(outside) if not self.is_same(v)]
        is_cheap = len(asked) <= MOST_ASKED and all(is_word(v) for v in asked)
        is_short = count_ops(body) <= max(MOST_OPS, OPS_OF_A_LOAD * len(loads))
        return Turns(loads, asked) if is_cheap and is_short else None

    def is_same(self, v: Value) -> bool:
        """Whether a value is the same for all invocations by what it is computed from."""
        return v not in self.own


def own_values(grid: Op) -> Iterator[Value]:
    """What may differ between invocations by itself: indices, what is carried, decided, read from
    memory or asked of the invocation."""
    yield from grid.regions[0].params
    for op in walk(grid.regions[0]):
        if op.regions or op.kind in PER_INVOCATION or TABLE[op.kind].effect is not Effect.PURE:
            yield from op.results
        for region in op.regions:
            yield from region.params


def is_long(loop: Op, width: int) -> bool:
    """Whether a loop is not known to be too short."""
    (axis,) = axes_of(loop)
    begin, end = constant_int(axis.begin), constant_int(axis.end)
    return begin is None or end is None or end - begin >= BY_TURNS * width


def is_plain(body: Region) -> bool:
    """Whether a loop is innermost, and its invocations look neither at each other nor at what order
    they come in."""
    return not any(
        op.kind in ("for", "while")
        or op.kind in ORDERED
        or op.kind in TIED
        or TABLE[op.kind].effect is Effect.ALLOC
        for op in walk(body)
    )


def count_ops(body: Region) -> int:
    """How many ops there are in a body."""
    return sum(1 for _ in walk(body))


def is_small(load: Op) -> bool:
    """Whether a load is of numbers of 32 bits in an array."""
    place = load.args[0]
    if not isinstance(place, Op) or place.kind != "address":
        return False
    return isinstance(place.args[0].type, Array) and scalar_of(load.type).bits == 32


def is_word(v: Value) -> bool:
    """Whether invocations can compare a value."""
    return isinstance(v.type, Scalar) and v.type.bits == 32


class Slice:
    """The `ops` of a loop's body that an address takes, in order, and the values from `outside`
    that they start from; not `is_whole` if something besides these and the index is needed."""

    def __init__(self, body: Region, index: Param, load: Op) -> None:
        self.own, self.params = set(body.ops), set(body.params)
        self.index = index
        self.outside: list[Value] = []
        found: set[Op] = set()
        self.is_whole = all([self.reach(v, found) for v in load.args])
        self.ops = [op for op in body.ops if op in found]

    def reach(self, v: Value, found: set[Op]) -> bool:
        """Take what a value needs; whether all of it can be."""
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


class Form:
    """Appends a loop whose invocations load by turns."""

    def __init__(self, walker: Rebuilder, turns: Turns, width: int) -> None:
        self.b, self.map = walker.b, walker.map
        self.loads, self.asked = turns
        self.width = width

    def build(self, loop: Op, args: Sequence[Value]) -> Sequence[Value]:
        """Append both ways; the results."""
        b = self.b
        tiles, rest = cut(b, args[0], args[1], self.width)
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
        """Whether a subgroup is complete here, and the same in all that is asked."""
        b = self.b
        here = b.emit("subgroup_ballot", b.const(True, u1))
        found = [b.emit("eq", here, b.const((1 << self.width) - 1, u32))]
        found += [b.emit("subgroup_all_equal", self.bits(self.map.get(v, v))) for v in self.asked]
        return reduce(lambda x, y: b.emit("and", x, y), found)

    def bits(self, v: Value) -> Value:
        """A value of 32 bits as what tells all of them apart: 0.0 equals -0.0."""
        return self.b.emit("bitcast", v, type=u32) if scalar_of(v.type).kind == "f" else v

    def tiled(self, loop: Op, args: Sequence[Value], tiles: Value) -> Sequence[Value]:
        """Append the tiles; what comes out of them."""
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
            start = b.emit("add", args[0], b.emit("mul", tile, width))
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
        """Append the loads that an invocation makes where the index is this."""
        known = {**self.map, index: at}
        done: set[Op] = set()
        for load, needed in self.loads.items():
            Cloner(self.b, known).run([*[op for op in needed if op not in done], load])
            done.update(needed)
            yield load, known[load]

    def sent(self, v: Value, whose: Value) -> Value:
        """Append what one invocation sends to all."""
        b, t = self.b, v.type
        if not isinstance(t, Tensor):
            return b.emit("subgroup_broadcast", v, whose)
        parts = [b.emit("extract", v, attr=k) for k in range(t.size)]
        return b.emit("pack", *[b.emit("subgroup_broadcast", x, whose) for x in parts], type=t)

    def copy(self, body: Region, known: dict[Value, Value]) -> None:
        """Append a body but for the loads that are there, and its `yield`."""
        copy = Cloner(self.b, known)
        copy.run(op for op in body.ops if op not in self.loads)
        self.b.emit("yield", *map(copy.get, body.yielded))

    def plain(self, loop: Op, args: Sequence[Value]) -> Sequence[Value]:
        """Append the loop as it was; its results."""
        b, (body,) = self.b, loop.regions
        params = [Param(p.type, p.name) for p in body.params]
        known: dict[Value, Value] = {**self.map, **dict(zip(body.params, params, strict=True))}
        with b.region(*params) as region:
            Cloner(b, known).body(body)
        return b.for_(args[0], args[1], args[2:], region, loop.attr).results
