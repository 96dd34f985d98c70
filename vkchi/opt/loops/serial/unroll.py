"""Partial unrolling of innermost serial loops.

    for k in 0..n { s + x[k] }                                                       becomes
    for g in 0..n / 4 { k = 4 * g; s + x[k] + x[k + 1] + x[k + 2] + x[k + 3] }
    for k in n / 4 * 4..n { s + x[k] }

Only loops without branches or synchronization are unrolled. The trip count may be dynamic. Which
loops profit depends on the device:

- GPUs (`LoadOverlap`): drivers unroll only short loops of constant trip count. In other loops each
  iteration waits for its loads before the next begins. After unrolling, the loads overlap, and
  adjacent ones can be vectorized. Loops that write non-private memory stay.
- CPUs, which execute the accesses of lanes one by one (`WordAccesses`): a lane's access costs the
  same for 32 and 64 bits, and `neighbours` merges the unrolled accesses into words. At least a
  quarter of the accesses, including stores, must have stride one (`walks`) and start at a word
  boundary. Iterations may be peeled to reach one. A long body is unrolled by the elements of a word
  only. Loops with uniform loads are left to `broadcast` if that saves more accesses.

Guarantees: the order of floating-point operations is unchanged.

    >>> unroll(fn, caps)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from math import ceil

from vkchi.analysis.memory.alias import accesses_by_base, shared_bases
from vkchi.analysis.parallel_loops import is_private
from vkchi.ir.core import Func, Op, Value, constant_int, find_parallel
from vkchi.ir.ops import PLAIN_ACCESSES, READS, TABLE, Effect, LoopAxis, axes_of
from vkchi.ir.rebuild import Cloner, rebuild_chosen
from vkchi.opt.cost_model import subgroup_width
from vkchi.opt.loops.serial.broadcast import LikelyDivergence
from vkchi.opt.loops.serial.transform import unroll_by
from vkchi.opt.memory.walks import StrideOneAccesses, bits_at
from vkchi.target import tuning
from vkchi.target.caps import Caps
from vkchi.target.remarks import Log, Refusal, Verdict, record_refusal
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, i32, scalar_of, u16

WORD = 64  # bits that a lane's access may have
TECHNIQUE = "partial unrolling"
LONG = Refusal("its body is too long")
EFFECTS = Refusal("its body branches, writes memory or synchronizes")
BRANCHES = Refusal("its body branches or synchronizes")
LOADS = Refusal("an iteration loads too many values")
SCATTERED = Refusal("fewer than a quarter of its accesses are contiguous and aligned")
WIDE = Refusal("its accesses are words without unrolling")
UNIFORM = Refusal("invocations share its loads (cooperative loads)")
ALIASED = Refusal("arrays that it accesses may overlap")


class UnrollFactor(NamedTuple):
    """Unroll factor, and the number of iterations peeled before."""

    rounds: int
    skipped: int = 0


def unroll(fn: Func, caps: Caps, log: Log | None = None) -> Func:
    """Partially unroll serial loops where that is profitable on the device."""
    is_cpu = caps.scalar_lanes
    policy = WordAccesses(fn, subgroup_width(caps)) if is_cpu else LoadOverlap()
    most = tuning.CPUS_UNROLL if is_cpu else None

    def choose(loop: Op) -> UnrollFactor | None:
        way = policy.way(loop)
        record_refusal(log, TECHNIQUE, loop.span, way, fn.name)
        return way if isinstance(way, UnrollFactor) else None

    return rebuild_chosen(
        fn, "for", choose,
        lambda r, op, args, way: unroll_by(Cloner(r.b, dict(r.map)), op, args, *way, most),
    )  # fmt: skip


# --- profitability on GPUs -----------------------------------------------------------------------


class LoadOverlap:
    """Unrolls loops so that loads of several iterations overlap."""

    def way(self, loop: Op) -> UnrollFactor | Verdict:
        """Return the unroll factor, or False if partial unrolling of a loop is not profitable.

        Its trip count is not a constant up to DRIVERS_UNROLL, and its index is an i32. Its body has
        at most UNROLL_OPS ops, all of them quiet and without regions. It loads from non-private
        memory, at most UNROLL_LOADED registers per iteration.
        """
        ops = loop.regions[0].ops[:-1]
        (axis,) = axes_of(loop)
        begin, end = constant_int(axis.begin), limit_of(axis.end)
        is_short = begin is not None and end is not None and end - begin <= tuning.DRIVERS_UNROLL
        loaded = [op for op in ops if op.kind in READS and not is_private(op)]
        if is_short or axis.param.type is not i32 or not loaded:
            return False
        if len(ops) > tuning.UNROLL_OPS:
            return LONG
        if any(op.regions or not is_quiet(op) for op in ops):
            return EFFECTS
        if sum(map(registers_of, loaded)) > tuning.UNROLL_LOADED:
            return LOADS
        return UnrollFactor(tuning.UNROLL_FACTOR)


def limit_of(v: Value) -> int | None:
    """Return the constant that `v` is, or the constant operand of a `min` `v`; else None."""
    if isinstance(v, Op) and v.kind == "min":
        return next((n for n in map(constant_int, v.args) if n is not None), None)
    return constant_int(v)


def is_quiet(op: Op) -> bool:
    """True if an op computes, loads, or stores to a private variable."""
    if op.kind == "store":
        return is_private(op)
    return op.kind == "load" or TABLE[op.kind].effect is Effect.PURE


def registers_of(load: Op) -> int:
    """Return the number of 32-bit registers of a loaded value. A component takes at least one."""
    t = load.type
    assert isinstance(t, Scalar | Tensor)
    return (t.size if isinstance(t, Tensor) else 1) * max(1, scalar_of(t).bits // 32)


# --- profitability on CPUs -----------------------------------------------------------------------


class WordAccesses:
    """Unrolls loops so that contiguous accesses become words, for subgroups of `width`
    invocations."""

    def __init__(self, fn: Func, width: int) -> None:
        self.grid, self.width = find_parallel(fn), width

    @cached_property
    def lanes(self) -> Collection[Value]:
        """Values that probably vary between invocations.

        Precondition: the dispatch has a parallel loop.
        """
        assert self.grid is not None
        return LikelyDivergence(self.grid, self.width).found

    def way(self, loop: Op) -> UnrollFactor | Verdict:
        """Return the unroll factor and the number of peeled iterations of a loop; False if
        unrolling is not profitable."""
        ops, (axis,) = loop.regions[0].ops[:-1], axes_of(loop)
        accesses = [op for op in ops if op.kind in PLAIN_ACCESSES and not is_private(op)]
        if axis.param.type is not i32 or not accesses:
            return False
        if any(op.regions or not is_plain(op) for op in ops):
            return BRANCHES
        if may_mix_up(accesses):
            return ALIASED
        bits = min(map(bits_at, accesses))
        rounds = 2 * tuning.UNROLL_FACTOR if bits < u16.bits else tuning.UNROLL_FACTOR
        if len(ops) * rounds > tuning.UNROLL_WORD_OPS:
            rounds = WORD // bits
        if len(ops) * rounds > tuning.UNROLL_WORD_OPS:
            return LONG
        way = choose_way(axis, accesses, rounds)
        if not isinstance(way, WordFactor):
            return way
        is_better = way.saved > tuning.WORDS_TO_SHARED * self.count_alike(axis, accesses)
        return way.factor if is_better else UNIFORM

    def count_alike(self, axis: LoopAxis, accesses: Sequence[Op]) -> int:
        """Return the number of loads whose address is probably uniform across invocations: none
        if the index is not."""
        if self.grid is None or not {axis.begin, axis.end}.isdisjoint(self.lanes):
            return 0
        return sum(op.kind == "load" and op.args[0] not in self.lanes for op in accesses)


class WordFactor(NamedTuple):
    """An unroll factor, and the accesses of an iteration that words save."""

    factor: UnrollFactor
    saved: float


def choose_way(axis: LoopAxis, accesses: Sequence[Op], rounds: int) -> WordFactor | Verdict:
    """Return the unroll factor with the number of peeled iterations that aligns most stride-one
    accesses to words; on a tie, the least.

    Only loops of constant length are peeled. False if fewer than a quarter of the accesses are
    aligned, or if the loop is known to be shorter than the factor.
    """
    length = axis.length
    if length is not None and length < rounds:
        return False
    walks = StrideOneAccesses(axis.param, axis.begin)
    walking = list(filter(walks.is_walking, accesses))
    if 4 * len(walking) < len(accesses):
        return SCATTERED
    most = 0 if length is None else min(tuning.UNROLL_FACTOR, length - 2 * rounds + 1)
    counts = [sum(walks.is_aligned(op, k) for op in walking) for k in range(max(1, most))]
    best = max(counts)
    if 4 * best < len(accesses):
        return SCATTERED
    skipped = counts.index(best)
    saved = sum(saved_words(op) for op in walking if walks.is_aligned(op, skipped))
    return WordFactor(UnrollFactor(rounds, skipped), saved) if saved else WIDE


def saved_words(access: Op) -> float:
    """Return the accesses that an iteration saves if several share words with one access."""
    v = access if access.kind == "load" else access.args[1]
    size = v.type.size if isinstance(v.type, Tensor) else 1
    words = size * bits_at(access) / WORD
    return ceil(words) - words


def is_plain(op: Op) -> bool:
    return op.kind in PLAIN_ACCESSES or TABLE[op.kind].effect is Effect.PURE


def may_mix_up(accesses: Sequence[Op]) -> bool:
    found = accesses_by_base(accesses)
    return any(a is not b for a, b in shared_bases(found, found))
