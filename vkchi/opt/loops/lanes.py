"""Inner-loop parallelization: distribute serial loops over the lanes of one workgroup.

    for j { s = f(x, j); y[j] = s; for i { z[i] = g(y, i, s) } }                      becomes
    parallel 0, W [W] {(lane)
      for j { s = f(x, j); barrier; if lane == 0 { y[j] = s }; barrier
        for q in 0..trips of this lane { z[W * q + lane] = g(y, W * q + lane, s) } } }

Applies to dispatches of one invocation that contain only arithmetic, control flow, private
variables, loads and stores. A `for` is distributed if it carries no values, its iterations are
proved independent (`legality`), and they are numerous enough. Outer loops are preferred.

- All lanes execute the surrounding code redundantly. Branches and trip counts are therefore
  workgroup-uniform, and all lanes reach every barrier.
- The first lane alone executes ops of that code that store to arrays.
- A barrier separates two parts if they may access the same array and one of them writes it. That
  includes accesses in successive iterations of a surrounding loop.

Guarantees: the order of operations within an iteration is unchanged, also in reductions.

    >>> share_lanes(fn, caps)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vkchi.analysis.memory.alias import bases_may_alias
from vkchi.analysis.parallel_loops import is_private
from vkchi.analysis.values.interval_analysis import Intervals
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Region, Value, base_memory, find_parallel, used_in, walk
from vkchi.ir.ops import LOOPS, PLAIN_ACCESSES, TABLE, TIED, Effect, axes_of
from vkchi.ir.rebuild import Rebuilder
from vkchi.opt.cost_model import is_worth_lanes, subgroup_width
from vkchi.opt.loops.legality import may_fuse
from vkchi.target.caps import Caps
from vkchi.target.remarks import Decision, Log, Refusal, Verdict, record, record_refusal
from vkchi.tuples import NamedTuple
from vkchi.types import i32, u32

ALLOWED = frozenset({Effect.PURE, Effect.CONTROL})
CARRIED = Refusal("an iteration needs variables of the previous one")
FEW = Refusal("it has too few iterations, as far as is known at compile time")
ALIKE, FIRST, SHARED = "alike", "first", "shared"  # roles of an op


def share_lanes(fn: Func, caps: Caps, log: Log | None = None) -> Func:
    """Distribute the loops of a serial Func over lanes, if legal and profitable.

    Records these loops in `log`.
    """
    width = min(subgroup_width(caps), caps.workgroup_invocations)
    if width == 1 or find_parallel(fn) is not None or not all(map(is_plain, walk(fn.body))):
        return fn
    plan = LanePlan(fn, width)
    if not plan.is_worth_it:
        for loop, verdict in plan.refusals.items():
            record_refusal(log, "inner-loop parallelization", loop.span, verdict, fn.name)
        return fn
    for op in plan.shared:
        reason = f"its iterations are distributed over {width} invocations of one workgroup"
        record(log, Decision("lanes", op.span, reason, name=fn.name))
    return LaneParallelizer(plan).build(fn)


def is_plain(op: Op) -> bool:
    """True if an op is arithmetic, control flow, a private variable, a load or a store."""
    is_known = TABLE[op.kind].effect in ALLOWED or op.kind in PLAIN_ACCESSES or op.kind == "local"
    return is_known and op.kind not in TIED


# --- roles ---------------------------------------------------------------------------------------


class RoleAccess(NamedTuple):
    """A read or write of an array, with the role of the op that performs it."""

    role: str
    base: Value
    is_write: bool


class LanePlan:
    """Assignment of a serial Func's ops to roles.

    `shared` holds the loops distributed over lanes, `spine` the loops and branches around them.
    """

    def __init__(self, fn: Func, width: int) -> None:
        self.width, self.used = width, used_in(fn.body)
        loops = [op for op in walk(fn.body) if op.kind == "for"]
        self.ranges = Intervals({axis.param: axis for op in loops for axis in axes_of(op)})
        self.refusals: dict[Op, Verdict] = {}
        self.shared: set[Op] = set()
        self.spine: set[Op] = set()
        self.find(fn.body)
        self.is_worth_it = bool(self.shared) and self.is_possible(fn.body, self.depth(fn.body))

    def find(self, region: Region) -> bool:
        """Add the loops to distribute to `shared`, and the ops around them to `spine`. True if the
        region contains any. Does not look into a distributed loop or a `while`."""
        found = False
        for op in region.ops:
            if op.kind == "for":
                self.refusals[op] = self.may_partition(op)
            if op.kind == "for" and self.refusals[op]:
                self.shared.add(op)
                found = True
            elif op.kind in ("for", "if") and any([self.find(r) for r in op.regions]):
                self.spine.add(op)
                found = True
        return found

    def may_partition(self, loop: Op) -> Verdict:
        """True if a loop has no results and an i32 index, is proved parallel, and is
        `is_worth_lanes`.

        The trip count is its lower bound, or its upper bound if the body contains loops.
        """
        (axis,), body = axes_of(loop), loop.regions[0]
        if loop.results or axis.param.type is not i32:
            return CARRIED
        begin, end = self.ranges.bound(axis.begin), self.ranges.bound(axis.end)
        assert begin is not None and end is not None
        has_loops = any(op.kind in LOOPS for op in walk(body))
        rounds = end[1] - begin[0] if has_loops else end[0] - begin[1]
        if not is_worth_lanes(rounds, self.width):
            return FEW
        return may_fuse(body.ops, body.ops, loop, self.ranges)

    def depth(self, region: Region) -> int:
        """Depth of the deepest loop nest with a distributed loop, with its inner loops; or 0."""
        found = 0
        for op in region.ops:
            if op in self.shared:
                found = max(found, loops_in(op))
            elif op in self.spine:
                found = max(found, (op.kind == "for") + max(map(self.depth, op.regions)))
        return found

    def is_possible(self, region: Region, depth: int) -> bool:
        """True if all other ops of a region can be executed redundantly or by the first lane.

        Their loop nests must be shallower than `depth`, so that they cost less than the distributed
        loops.
        """
        for op in region.ops:
            if op in self.spine:
                inner = depth - (op.kind == "for")
                if not all(self.is_possible(r, inner) for r in op.regions):
                    return False
            elif op not in self.shared:
                if op.regions and loops_in(op) >= depth:
                    return False
                if self.role(op) == FIRST and self.tells(op):
                    return False
        return True

    def role(self, op: Op) -> str:
        """Return SHARED for a distributed loop, FIRST for another op that stores to arrays, else
        ALIKE. Precondition: the op is directly in a region of the spine."""
        if op in self.shared:
            return SHARED
        writes = any(x.kind == "store" and not is_private(x) for x in inside(op))
        return FIRST if writes else ALIKE

    def tells(self, op: Op) -> bool:
        """True if an op has a used result, or stores to a private variable defined outside it.

        The first lane alone cannot execute such an op.
        """
        own = set(inside(op))
        touched = [x for x in own if x.kind == "store" and is_private(x)]
        return any(base_memory(x.args[0]) not in own for x in touched) or any(
            v in self.used for v in op.results
        )

    def touches(self, op: Op) -> frozenset[RoleAccess]:
        if op in self.spine:
            return frozenset().union(*[self.touches(x) for r in op.regions for x in r.ops])
        role = self.role(op)
        return frozenset(
            RoleAccess(role, base_memory(x.args[0]), x.kind == "store")
            for x in inside(op)
            if x.kind in PLAIN_ACCESSES and not is_private(x)
        )


def inside(op: Op) -> Iterator[Op]:
    return walk(Region((), [op]))


def loops_in(op: Op) -> int:
    inner = [loops_in(x) for region in op.regions for x in region.ops if x.regions]
    return (op.kind in LOOPS) + max(inner, default=0)


def must_wait(before: frozenset[RoleAccess], then: frozenset[RoleAccess]) -> bool:
    """True if accesses of different lanes may conflict: arrays may alias, and one access writes.

    Two accesses by the first lane do not conflict.
    """
    return any(
        bases_may_alias(a.base, b.base)
        for a in before
        for b in then
        if (a.is_write or b.is_write) and (a.role, b.role) != (FIRST, FIRST)
    )


# --- rewriting -----------------------------------------------------------------------------------


class LaneParallelizer(Rebuilder):
    """Builds the distributed Func. `open` holds the accesses that may follow the last barrier."""

    def __init__(self, plan: LanePlan) -> None:
        super().__init__(self.visit_spine)
        self.plan = plan
        self.open: frozenset[RoleAccess] = frozenset()
        self.lane = Param(i32, "lane")
        self.is_first: Value

    def build(self, fn: Func) -> Func:
        b = self.b
        with b.region() as body:
            zero, width = b.const(0, i32), b.const(self.plan.width, i32)
            with b.region(self.lane) as lanes:
                self.is_first = b.emit("eq", self.lane, zero)
                self.ops(fn.body.ops)
            b.span = fn.span
            b.parallel((zero, width), lanes, self.plan.width)
            b.emit("yield")
        return Func(fn.name, fn.params, body, fn.span)

    def visit_spine(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """Emit an op in a region of the spine according to its role, after a barrier if one is
        needed."""
        touched = self.plan.touches(op)
        if op in self.plan.spine:
            return self.control(op, args, touched)
        if must_wait(self.open, touched):
            b.emit("barrier")
            self.open = frozenset()
        self.open |= touched
        role = self.plan.role(op)
        if role == ALIKE:
            return self.whole(op, args)
        if role == SHARED:
            self.share(op, args)
        else:
            with b.when(self.is_first):
                self.whole(op, args)
        return op.results  # unused

    def control(
        self, op: Op, args: tuple[Value, ...], touched: frozenset[RoleAccess]
    ) -> Sequence[Value]:
        """Emit a branch or loop of the spine.

        An earlier iteration may precede a region, so all accesses of the op are `open` at its
        start.
        """
        before = self.open | touched
        regions = []
        for region in op.regions:
            self.open = before
            regions.append(self.region(region))
        self.open = before
        return self.b.insert(self.copy(op, args, tuple(regions))).results

    def whole(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        self.visit = lambda b, op, args: None
        new = self.keep(op, args)
        self.visit = self.visit_spine
        return new.results

    def share(self, op: Op, args: tuple[Value, ...]) -> None:
        """Emit a distributed loop: a lane executes iterations `lane`, `lane + width`, ..."""
        b, (begin, end) = self.b, args
        width = self.plan.width
        count = b.emit("trip_count", begin, end, b.const(1, i32))
        rest = b.emit("and", count, b.const(width - 1, u32))
        is_there = b.emit("lt", b.emit("bitcast", self.lane, type=u32), rest)
        more = b.emit("select", is_there, b.const(1, u32), b.const(0, u32))
        whole = b.emit("shr", count, b.const(width.bit_length() - 1, u32))
        mine = b.emit("bitcast", b.emit("add", whole, more), type=i32)
        q = Param(i32, "q")
        with b.region(q) as rounds:
            at = b.emit("add", b.emit("mul", q, b.const(width, i32)), self.lane)
            self.map[op.regions[0].params[0]] = b.emit("add", begin, at)
            for inner in op.regions[0].ops:
                self.whole(inner, self.args(inner))
        b.for_(b.const(0, i32), mine, (), rounds)
