"""Lanes of one workgroup share serial code, where iterations of its loops do not meet.

    for j { s = f(x, j); y[j] = s; for i { z[i] = g(y, i, s) } }                      becomes
    parallel 0, W [W] {(lane)
      for j { s = f(x, j); barrier; if lane == 0 { y[j] = s }; barrier
        for q in 0..my share { z[W * q + lane] = g(y, W * q + lane, s) } } }

In a dispatch of one invocation, loops are found, the outermost first, in which no iteration touches
what another writes (`analysis.crossing`), and which carry nothing. What is around them all lanes do
alike: they compute and load the same, so that branches and lengths of loops are the same for all,
and barriers are come to by all. Of what is written there the first lane does all. A barrier stands
where one part may touch what another one writes; a loop's rounds come before each other, too.

Nothing else may be in the dispatch but arithmetic, private places, loads and stores. The order of
operations within an iteration, so that of each sum, stays.

Owns: this form, which ops are whose. Must not know: what meets, what suits a device.

    >>> share_lanes(fn, caps)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vkchi.analysis.alias import may_share
from vkchi.analysis.crossing import never_cross
from vkchi.analysis.intervals import Intervals
from vkchi.ir.builder import Builder
from vkchi.ir.control import axes_of
from vkchi.ir.core import Func, Op, Param, Region, Value, base_of, find_parallel, used_in, walk
from vkchi.ir.ops import LOOPS, PLAIN_ACCESSES, TABLE, TIED, Effect
from vkchi.ir.rebuild import Rebuilder
from vkchi.passes.cost_model import is_worth_lanes, subgroup_width
from vkchi.target.caps import Caps
from vkchi.tuples import NamedTuple
from vkchi.types import i32, u32

ALLOWED = frozenset({Effect.PURE, Effect.CONTROL})
ALIKE, FIRST, SHARED = "alike", "first", "shared"  # who does an op: all, the first lane, in turns


def share_lanes(fn: Func, caps: Caps) -> Func:
    """The Func with its loops shared by lanes, if it is serial and that is worth it."""
    width = min(subgroup_width(caps), caps.workgroup_invocations)
    if width == 1 or find_parallel(fn) is not None or not all(map(is_plain, walk(fn.body))):
        return fn
    plan = Plan(fn, width)
    return Form(plan).build(fn) if plan.is_worth_it else fn


def is_plain(op: Op) -> bool:
    """Whether an op computes, makes a private place, loads or stores."""
    is_known = TABLE[op.kind].effect in ALLOWED or op.kind in PLAIN_ACCESSES or op.kind == "local"
    return is_known and op.kind not in TIED


# --- who does what -------------------------------------------------------------------------------


class Touch(NamedTuple):
    """That somebody reads or writes an array."""

    role: str
    base: Value
    is_write: bool


class Plan:
    """Who does which ops of a serial Func: `shared` are the loops that lanes share, `spine` what
    stands around them."""

    def __init__(self, fn: Func, width: int) -> None:
        self.width, self.used = width, used_in(fn.body)
        loops = [op for op in walk(fn.body) if op.kind == "for"]
        self.ranges = Intervals({axis.param: axis for op in loops for axis in axes_of(op)})
        self.shared: set[Op] = set()
        self.spine: set[Op] = set()
        self.find(fn.body)
        self.is_worth_it = bool(self.shared) and self.is_possible(fn.body, self.depth(fn.body))

    def find(self, region: Region) -> bool:
        """Find the loops in a region that are shared; whether there are any."""
        found = False
        for op in region.ops:
            if op.kind == "for" and self.may_partition(op):
                self.shared.add(op)
                found = True
            elif op.kind in ("for", "if") and any([self.find(r) for r in op.regions]):
                self.spine.add(op)
                found = True
        return found

    def may_partition(self, loop: Op) -> bool:
        """Whether lanes may share a loop's iterations, and it is worth it, for as many as there are
        at least, or at most of such as are long."""
        (axis,), body = axes_of(loop), loop.regions[0]
        if loop.results or axis.param.type is not i32:
            return False
        begin, end = self.ranges.bound(axis.begin), self.ranges.bound(axis.end)
        assert begin is not None and end is not None
        has_loops = any(op.kind in LOOPS for op in walk(body))
        rounds = end[1] - begin[0] if has_loops else end[0] - begin[1]
        if not is_worth_lanes(rounds, self.width):
            return False
        return never_cross(body.ops, body.ops, loop, self.ranges)

    def depth(self, region: Region) -> int:
        """How many loops stand in each other down to the innermost one that lanes share."""
        found = 0
        for op in region.ops:
            if op in self.shared:
                found = max(found, loops_in(op))
            elif op in self.spine:
                found = max(found, (op.kind == "for") + max(map(self.depth, op.regions)))
        return found

    def is_possible(self, region: Region, depth: int) -> bool:
        """Whether what is not shared can be done by all alike or by the first lane, and is less:
        of fewer loops in each other than this."""
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
        """Who does an op of the spine's regions."""
        if op in self.shared:
            return SHARED
        writes = any(x.kind == "store" and not is_private(x) for x in inside(op))
        return FIRST if writes else ALIKE

    def tells(self, op: Op) -> bool:
        """Whether lanes that leave out an op would miss something that it leaves besides what it
        writes to arrays."""
        own = set(inside(op))
        touched = [x for x in own if x.kind == "store" and is_private(x)]
        return any(base_of(x.args[0]) not in own for x in touched) or any(
            v in self.used for v in op.results
        )

    def touches(self, op: Op) -> frozenset[Touch]:
        """What an op does to arrays, and who does it."""
        if op in self.spine:
            return frozenset().union(*[self.touches(x) for r in op.regions for x in r.ops])
        role = self.role(op)
        return frozenset(
            Touch(role, base_of(x.args[0]), x.kind == "store")
            for x in inside(op)
            if x.kind in PLAIN_ACCESSES and not is_private(x)
        )


def inside(op: Op) -> Iterator[Op]:
    """An op and all that is in it."""
    return walk(Region((), [op]))


def loops_in(op: Op) -> int:
    """How many loops stand in each other in an op, itself counted."""
    inner = [loops_in(x) for region in op.regions for x in region.ops if x.regions]
    return (op.kind in LOOPS) + max(inner, default=0)


def is_private(access: Op) -> bool:
    """Whether an access goes to a private place."""
    base = base_of(access.args[0])
    return isinstance(base, Op) and base.kind == "local"


def must_wait(before: frozenset[Touch], then: frozenset[Touch]) -> bool:
    """Whether what some do after others may touch what these write, or write what they touch."""
    return any(
        may_share(a.base, b.base)
        for a in before
        for b in then
        if (a.is_write or b.is_write) and (a.role, b.role) != (FIRST, FIRST)
    )


# --- form ----------------------------------------------------------------------------------------


class Form(Rebuilder):
    """Writes the Func down: `open` is what was done since the last barrier, or may have been."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(self.visit_spine)
        self.plan = plan
        self.open: frozenset[Touch] = frozenset()
        self.lane = Param(i32, "lane")
        self.is_first: Value

    def build(self, fn: Func) -> Func:
        """The Func, done by lanes."""
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
        """An op of the spine, done by whom it belongs to."""
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
            with b.region() as then:
                self.whole(op, args)
                b.emit("yield")
            with b.region() as orelse:
                b.emit("yield")
            b.if_(self.is_first, then, orelse)
        return op.results  # which nobody uses

    def control(
        self, op: Op, args: tuple[Value, ...], touched: frozenset[Touch]
    ) -> Sequence[Value]:
        """A branch or loop of the spine: what is inside may follow all that is."""
        before = self.open | touched
        regions = []
        for region in op.regions:
            self.open = before
            regions.append(self.region(region))
        self.open = before
        return self.b.insert(self.copy(op, args, tuple(regions))).results

    def whole(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """An op with all that is in it."""
        self.visit = lambda b, op, args: None
        new = self.keep(op, args)
        self.visit = self.visit_spine
        return new.results

    def share(self, op: Op, args: tuple[Value, ...]) -> None:
        """A loop of which a lane does every so many rounds."""
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
