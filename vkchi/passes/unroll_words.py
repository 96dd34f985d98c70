"""Partial unrolling on processors: loops that step through memory do so in words.

    for k in 0..n { s + x[k] }                                                       becomes
    for g in 0..n / 4 { s + x[4 * g] + x[4 * g + 1] + x[4 * g + 2] + x[4 * g + 3] }
    for k in n / 4 * 4..n { s + x[k] }

A lane's access costs a processor the same, be it a number of 32 bits or a word of 64: `neighbours`
makes words of these accesses. So loops are unrolled most of whose accesses, stores too, step from
number to number (`walks`), from a word's beginning on, perhaps after some rounds by themselves.
What a round computes, and the order of sums, stay.

Only innermost loops without branches or waiting are unrolled. Loops in which all invocations load
the same are `broadcast`'s, and gain more there.

Owns: when this is worth it. Must not know: the form (`unroll`), what loops are for.

    >>> unroll_words(fn, caps)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from vkchi.analysis.alias import may_share
from vkchi.analysis.variance import is_private
from vkchi.ir.constants import constant_int
from vkchi.ir.control import Axis, axes_of
from vkchi.ir.core import Func, Op, Value, base_of, find_parallel
from vkchi.ir.ops import PLAIN_ACCESSES, TABLE, Effect
from vkchi.passes.broadcast import Lanes
from vkchi.passes.cost_model import subgroup_width
from vkchi.passes.unroll import ROUNDS, Way, unroll_loops
from vkchi.passes.walks import Walks, bits_at
from vkchi.target.caps import Caps
from vkchi.types import i32, u16

MOST_OPS = 160  # of all rounds that are done at once


def unroll_words(fn: Func, caps: Caps) -> Func:
    """The Func with some rounds of some serial loops done at once, for a processor."""
    if not caps.is_cpu:
        return fn
    return unroll_loops(fn, Finder(fn, subgroup_width(caps)).way)


class Finder:
    """Finds the loops of a dispatch that are worth it, on subgroups of so many invocations."""

    def __init__(self, fn: Func, width: int) -> None:
        self.grid, self.width = find_parallel(fn), width

    @cached_property
    def lanes(self) -> Collection[Value]:
        """What likely differs between invocations; where there is one alone, that is not asked."""
        assert self.grid is not None
        return Lanes(self.grid, self.width).found

    def way(self, loop: Op) -> Way | None:
        """How to unroll a loop; None where that is not worth it."""
        ops, (axis,) = loop.regions[0].ops[:-1], axes_of(loop)
        if axis.param.type is not i32 or any(op.regions or not is_plain(op) for op in ops):
            return None
        accesses = [
            op for op in ops if op.kind in PLAIN_ACCESSES and not is_private(base_of(op.args[0]))
        ]
        if not accesses or may_mix_up(accesses):
            return None
        rounds = 2 * ROUNDS if min(map(bits_at, accesses)) < u16.bits else ROUNDS
        if len(ops) * rounds > MOST_OPS:
            return None
        way = choose_way(axis, accesses, rounds)
        return None if way is None or self.are_alike(accesses) else way

    def are_alike(self, accesses: Sequence[Op]) -> bool:
        """Whether invocations likely load from one place somewhere."""
        if self.grid is None:
            return False
        return any(op.kind == "load" and op.args[0] not in self.lanes for op in accesses)


def choose_way(axis: Axis, accesses: Sequence[Op], rounds: int) -> Way | None:
    """How to do so many rounds of a loop at once so that half of its accesses are in words."""
    length = constant_length(axis)
    if length is not None and length < rounds:
        return None
    walks = Walks(axis.param, axis.begin)
    walking = list(filter(walks.is_walking, accesses))
    if 2 * len(walking) < len(accesses):
        return None
    most = 0 if length is None else min(ROUNDS, length - 2 * rounds + 1)
    counts = [sum(walks.is_aligned(op, k) for op in walking) for k in range(max(1, most))]
    best = max(counts)
    return Way(rounds, counts.index(best)) if 2 * best >= len(accesses) else None


def is_plain(op: Op) -> bool:
    """Whether an op computes, loads or stores."""
    return op.kind in PLAIN_ACCESSES or TABLE[op.kind].effect is Effect.PURE


def may_mix_up(accesses: Sequence[Op]) -> bool:
    """Whether an array may be the memory of another one that is written: nothing moves then."""
    bases = {base_of(op.args[0]) for op in accesses}
    written = {base_of(op.args[0]) for op in accesses if op.kind == "store"}
    return any(a is not b and may_share(a, b) for a in written for b in bases)


def constant_length(axis: Axis) -> int | None:
    """How many rounds there are, if that is a constant."""
    begin, end = constant_int(axis.begin), constant_int(axis.end)
    return None if begin is None or end is None else end - begin
