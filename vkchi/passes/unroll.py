"""Partial unrolling: a serial loop over memory does some rounds at once, on graphics cards.

    for k in b..e { s + x[k] }                                                       becomes
    for g in 0..n / 4 { k = b + 4 * g; s + x[k] + x[k + 1] + x[k + 2] + x[k + 3] }
    for k in b + n / 4 * 4..e { s + x[k] }

Drivers unroll short loops of known length only, and else wait for one round's loads before they
start the next one's. Here the loads of several rounds do not wait for each other; neighbours among
them become vectors later. What a round computes, and the order of sums, stay. Processors have many
loads in flight anyway (`unroll_words`).

Only innermost loops are unrolled that load, and do nothing but compute besides, also in private
places: no other writes, branches or waiting. Their length may be anything.

Owns: this form, and when it is worth it. Must not know: what loops are for.

    >>> unroll(fn, caps)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkchi.analysis.variance import is_private
from vkchi.ir.builder import Builder
from vkchi.ir.clone import Cloner
from vkchi.ir.constants import constant_int
from vkchi.ir.control import axes_of
from vkchi.ir.core import Func, Op, Param, Value, base_of
from vkchi.ir.ops import READS, TABLE, Effect
from vkchi.ir.rebuild import rebuild_chosen
from vkchi.passes.tiles import cut
from vkchi.target.caps import Caps
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, i32, scalar_of

ROUNDS = 4  # at once
MOST_OPS = 32  # of a body, which is written five times
MOST_LOADED = 8  # scalars that a round loads: registers of all rounds are taken at once
SHORT = 8  # rounds, of a known number, that drivers unroll by themselves


def unroll(fn: Func, caps: Caps) -> Func:
    """The Func with some rounds of some serial loops done at once, for a graphics card."""
    if caps.is_cpu:
        return fn
    return unroll_loops(fn, lambda loop: Way(ROUNDS) if is_worth_it(loop) else None)


class Way(NamedTuple):
    """How many rounds are done at once, and how many before, one by one."""

    rounds: int
    skipped: int = 0


def unroll_loops(fn: Func, choose: Callable[[Op], Way | None]) -> Func:
    """The Func with some rounds done at once in serial loops that are to be unrolled."""
    return rebuild_chosen(
        fn, "for", choose, lambda r, op, args, way: Rounds(r.b, op, r.map, way).build(args)
    )


# --- which ---------------------------------------------------------------------------------------


def is_worth_it(loop: Op) -> bool:
    """Whether a loop is long, and short in text, and loads and computes only."""
    ops = loop.regions[0].ops[:-1]
    (axis,) = axes_of(loop)
    begin, end = constant_int(axis.begin), limit_of(axis.end)
    if begin is not None and end is not None and end - begin <= SHORT:
        return False
    if axis.param.type is not i32 or len(ops) > MOST_OPS or any(op.regions for op in ops):
        return False
    loaded = [op for op in ops if op.kind in READS and not is_private(base_of(op.args[0]))]
    return all(map(is_quiet, ops)) and 0 < sum(map(words, loaded)) <= MOST_LOADED


def limit_of(v: Value) -> int | None:
    """What a value is known not to exceed, if that stands there."""
    if isinstance(v, Op) and v.kind == "min":
        return next((n for n in map(constant_int, v.args) if n is not None), None)
    return constant_int(v)


def is_quiet(op: Op) -> bool:
    """Whether an op computes, loads, or stores to a private place."""
    if op.kind == "store":
        return is_private(base_of(op.args[0]))
    return op.kind == "load" or TABLE[op.kind].effect is Effect.PURE


def words(load: Op) -> int:
    """The registers that a loaded value takes."""
    t = load.type
    assert isinstance(t, Scalar | Tensor)
    return (t.size if isinstance(t, Tensor) else 1) * max(1, scalar_of(t).bits // 32)


# --- form ----------------------------------------------------------------------------------------


class Rounds:
    """Appends a loop that does some rounds at once."""

    def __init__(self, b: Builder, loop: Op, known: dict[Value, Value], way: Way) -> None:
        self.b, self.body, self.known, self.way = b, loop.regions[0], known, way

    def build(self, args: Sequence[Value]) -> Sequence[Value]:
        """Append it, and the rest of its rounds if there may be one; the results."""
        b = self.b
        begin, first = self.skip(args[0], args[2:])
        groups, rest = cut(b, begin, args[1], self.way.rounds)
        found = self.at_once(begin, groups, first)
        if rest is None:
            return found
        index, *carried = [Param(p.type, p.name) for p in self.body.params]
        with b.region(index, *carried) as region:
            b.emit("yield", *self.round(index, carried))
        return b.for_(rest, args[1], found, region).results

    def skip(self, begin: Value, first: Sequence[Value]) -> tuple[Value, Sequence[Value]]:
        """Append the rounds before; where the others begin, and what they are handed."""
        for _ in range(self.way.skipped):
            first = self.round(begin, first)
            begin = self.b.const((constant_int(begin) or 0) + 1, i32)
        return begin, first

    def at_once(self, begin: Value, groups: Value, first: Sequence[Value]) -> Sequence[Value]:
        """Append the loop over groups of rounds; its results."""
        b = self.b
        index, *carried = [Param(p.type, p.name) for p in self.body.params]
        with b.region(index, *carried) as region:
            start = b.emit("mul", index, b.const(self.way.rounds, i32))
            if constant_int(begin) != 0:
                start = b.emit("add", begin, start)
            values: Sequence[Value] = carried
            for k in range(self.way.rounds):
                at = b.emit("add", start, b.const(k, i32), name=index.name) if k else start
                values = self.round(at, values)
            b.emit("yield", *values)
        return b.for_(b.const(0, i32), groups, first, region).results

    def round(self, index: Value, carried: Sequence[Value]) -> Sequence[Value]:
        """Append one round; what it hands on."""
        return Cloner(self.b, dict(self.known)).inline(self.body, (index, *carried))
