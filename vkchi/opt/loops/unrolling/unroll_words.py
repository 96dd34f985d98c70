"""Partial loop unrolling on CPUs, so that strided accesses can be merged into 64-bit words.

    for k in 0..n { s + x[k] }                                                       becomes
    for g in 0..n / 4 { s + x[4 * g] + x[4 * g + 1] + x[4 * g + 2] + x[4 * g + 3] }
    for k in n / 4 * 4..n { s + x[k] }

On CPUs a lane's access costs the same for 32 and 64 bits; `neighbours` merges the unrolled
accesses into words. A loop is unrolled if at least half of its accesses, including stores, have
stride one (`walks`) and start at a word boundary. Iterations may be peeled to reach one.

Only innermost loops without branches or synchronization are unrolled. Loops with uniform loads
are left to `broadcast`, which gains more.

Guarantees: the order of floating-point operations is unchanged.

    >>> unroll_words(fn, caps)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from vkchi.analysis.memory.alias import accesses_by_base, shared_bases
from vkchi.analysis.variance import is_private
from vkchi.ir.control_ops import LoopAxis, axes_of
from vkchi.ir.core import Func, Op, Value, find_parallel
from vkchi.ir.ops import PLAIN_ACCESSES, TABLE, Effect
from vkchi.opt.cost_model import subgroup_width
from vkchi.opt.loops.broadcast import LikelyDivergence
from vkchi.opt.loops.unrolling.unroll import UnrollFactor, unroll_loops
from vkchi.opt.memory.walks import StrideOneAccesses, bits_at
from vkchi.target import tuning
from vkchi.target.caps import Caps
from vkchi.types import i32, u16


def unroll_words(fn: Func, caps: Caps) -> Func:
    """Partially unroll serial loops with stride-one accesses, on CPUs."""
    if not caps.scalar_lanes:
        return fn
    return unroll_loops(fn, WordUnrollSelector(fn, subgroup_width(caps)).way)


class WordUnrollSelector:
    """Selects the loops of a dispatch to unroll, for subgroups of `width` invocations."""

    def __init__(self, fn: Func, width: int) -> None:
        self.grid, self.width = find_parallel(fn), width

    @cached_property
    def lanes(self) -> Collection[Value]:
        """Values that probably vary between invocations.

        Precondition: the dispatch has a parallel loop.
        """
        assert self.grid is not None
        return LikelyDivergence(self.grid, self.width).found

    def way(self, loop: Op) -> UnrollFactor | None:
        """Return the unroll factor and the number of peeled iterations of a loop; None if unrolling
        is not profitable."""
        ops, (axis,) = loop.regions[0].ops[:-1], axes_of(loop)
        if axis.param.type is not i32 or any(op.regions or not is_plain(op) for op in ops):
            return None
        accesses = [op for op in ops if op.kind in PLAIN_ACCESSES and not is_private(op)]
        if not accesses or may_mix_up(accesses):
            return None
        rounds = (
            2 * tuning.UNROLL_FACTOR
            if min(map(bits_at, accesses)) < u16.bits
            else tuning.UNROLL_FACTOR
        )
        if len(ops) * rounds > tuning.UNROLL_WORD_OPS:
            return None
        way = choose_way(axis, accesses, rounds)
        return None if way is None or self.are_alike(accesses) else way

    def are_alike(self, accesses: Sequence[Op]) -> bool:
        """True if an access is a load whose address is probably uniform across invocations."""
        if self.grid is None:
            return False
        return any(op.kind == "load" and op.args[0] not in self.lanes for op in accesses)


def choose_way(axis: LoopAxis, accesses: Sequence[Op], rounds: int) -> UnrollFactor | None:
    """Return the unroll factor with the number of peeled iterations that aligns most stride-one
    accesses to words; on a tie, the least.

    Only loops of constant length are peeled. None if fewer than half of the accesses are aligned,
    or if the loop is known to be shorter than the factor.
    """
    length = axis.length
    if length is not None and length < rounds:
        return None
    walks = StrideOneAccesses(axis.param, axis.begin)
    walking = list(filter(walks.is_walking, accesses))
    if 2 * len(walking) < len(accesses):
        return None
    most = 0 if length is None else min(tuning.UNROLL_FACTOR, length - 2 * rounds + 1)
    counts = [sum(walks.is_aligned(op, k) for op in walking) for k in range(max(1, most))]
    best = max(counts)
    return UnrollFactor(rounds, counts.index(best)) if 2 * best >= len(accesses) else None


def is_plain(op: Op) -> bool:
    return op.kind in PLAIN_ACCESSES or TABLE[op.kind].effect is Effect.PURE


def may_mix_up(accesses: Sequence[Op]) -> bool:
    found = accesses_by_base(accesses)
    return any(a is not b for a, b in shared_bases(found, found))
