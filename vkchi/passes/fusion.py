"""Makes one loop of two that follow each other, over the same space.

    parallel 0, n {(i) y[i] = f(x[i])}; parallel 0, n {(j) z[j] = g(y[j])}        becomes
    parallel 0, n {(i) y[i] = f(x[i]); z[i] = g(y[i])}

Why: it is one dispatch instead of two, with no barrier between, and what the first has in its hands
(`y[i]`, of which `forward` makes a value) the second need not load. What is stored is stored still.

- The spaces are the same: so many axes, with equal bounds.
- No iteration of the second needs what others of the first do (`analysis.crossing`): stencils stay
  loops of their own.
- What stands between them, of one invocation, can be done before the first, or behind the second.
- Nothing synchronises, reports, draws random numbers or asks which invocation it is: reports keep
  their order, streams their numbers.
- It is worth it (`is_worth_it`): both go through memory in the same order of axes, and neither is a
  transpose beside one that is none; not both have serial loops inside, which are long beside a
  dispatch, and want the registers for themselves (two products of matrices: 0.8 times as fast); and
  together they are not so long that drivers take long.

Must not know: devices, grids.

    >>> fuse_loops(fn)
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.analysis.alias import may_share
from vkchi.analysis.crossing import Accesses, accesses_in, never_cross
from vkchi.analysis.forms import Forms
from vkchi.analysis.intervals import Intervals
from vkchi.analysis.mixing import may_mix
from vkchi.ir.core import Func, Op, Region, Value, has_kind, walk
from vkchi.ir.ops import LOOPS, ORDERED, TIED, WRITES
from vkchi.ir.rebuild import Rebuilder
from vkchi.passes.axis_order import digits_of
from vkchi.passes.dce import remove_dead
from vkchi.passes.memo import Memo
from vkchi.passes.simplify import simplify
from vkchi.tuples import NamedTuple

MOST_ACCESSES = 64  # loads and stores of a loop; the time of drivers' compilers grows faster
SHORT = 16  # of loops that share no array


class Joined(NamedTuple):
    """One loop for two, and what stood between them: before it, and behind."""

    before: list[Op]
    loop: Op
    behind: list[Op]


def fuse_loops(fn: Func) -> Func:
    """The Func with loops that follow each other made one, where that is right and worth it."""
    ops: list[Op] = []
    last: Op | None = None
    behind: list[Op] = []  # since the last loop
    spaces = Spaces()
    *body, end = fn.body.ops
    for op in body:
        if op.kind != "parallel":
            behind.append(op)
            continue
        joined = spaces.join(last, behind, op) if last is not None else None
        if joined is not None:
            ops += joined.before
            last, behind = joined.loop, joined.behind
        else:
            ops += behind if last is None else [last, *behind]
            last, behind = op, []
    if last is not None:
        ops.append(last)
    ops += [*behind, end]
    return fn if ops == fn.body.ops else Func(fn.name, fn.params, Region((), ops), fn.span)


def is_one_loop(fn: Func) -> bool:
    """Whether a kernel comes to be one loop, with nothing beside it that takes a dispatch."""
    found = fuse_loops(remove_dead(simplify(fn, Memo())))
    beside = [op for op in found.body.ops if op.kind != "parallel"]
    is_single = len(found.body.ops) - len(beside) == 1
    return is_single and not has_kind(Region((), beside), WRITES | ORDERED)


class Spaces:
    """The loops of one Func, and what they run over."""

    def __init__(self) -> None:
        self.forms = Forms(Intervals({}))

    def join(self, first: Op, between: Sequence[Op], second: Op) -> Joined | None:
        """Two loops as one; None where they stay two."""
        if not self.are_same(first, second) or not is_worth_it(first, second):
            return None
        parts = part(between, first, second)
        if parts is None:
            return None
        loop, tail = append_body(first, second)
        if not never_cross(first.regions[0].ops, tail, loop):
            return None
        return Joined(parts[0], loop, parts[1])

    def are_same(self, first: Op, second: Op) -> bool:
        """Whether two loops run over the same, and do not mind how."""
        if len(first.args) != len(second.args) or not (may_mix(first) and may_mix(second)):
            return False
        pairs = zip(first.args, second.args)
        return all(a is b or self.forms.key(a) == self.forms.key(b) for a, b in pairs)


def append_body(first: Op, second: Op) -> tuple[Op, list[Op]]:
    """A loop that does what both do in each iteration; and the ops in it that are the second's."""
    one, other = first.regions[0], second.regions[0]
    walker = Rebuilder(lambda b, op, args: None)
    walker.map.update(zip(other.params, one.params, strict=True))
    tail = walker.region(Region((), other.ops)).ops
    body = Region(one.params, [*one.ops[:-1], *tail])
    return Op("parallel", first.args, first.attr, None, first.span, first.name, (body,)), tail


# --- when it is worth it -------------------------------------------------------------------------


def is_worth_it(first: Op, second: Op) -> bool:
    """Whether one loop is better than two."""
    some, others = (accesses_in(op.regions[0].ops) for op in (first, second))
    total = sum(map(len, some.values())) + sum(map(len, others.values()))
    if total > (SHORT if some.keys().isdisjoint(others) else MOST_ACCESSES):
        return False
    if all(has_kind(op.regions[0], LOOPS) for op in (first, second)):
        return False
    return digits_of(first) == digits_of(second)


# --- what stands between -------------------------------------------------------------------------


def part(between: Sequence[Op], first: Op, second: Op) -> tuple[list[Op], list[Op]] | None:
    """The ops between two loops that are done before the first, and those behind the second; None
    where one can be neither. What may be the one or the other is done before."""
    region = Region((), list(between))
    if has_kind(region, ORDERED | TIED):
        return None
    wanted = {v for op in walk(second.regions[0]) for v in op.args}
    touched, then = (accesses_in(op.regions[0].ops) for op in (first, second))
    before: list[Op] = []
    behind: list[Op] = []
    late: set[Value] = set()
    for op in between:
        own = accesses_in([op])
        is_late = not late.isdisjoint(used_by(op))
        if not is_late and are_independent(own, touched):
            before.append(op)
            continue
        if not wanted.isdisjoint(op.results) or not are_independent(own, then):
            return None
        behind.append(op)
        late.update(op.results)
        for base, ops in own.items():
            touched.setdefault(base, []).extend(ops)
    return before, behind


def used_by(op: Op) -> set[Value]:
    """The values that an op and those inside use."""
    return {v for inner in walk(Region((), [op])) for v in inner.args}


def are_independent(some: Accesses, others: Accesses) -> bool:
    """Whether it does not matter which accesses come first."""
    return not any(
        may_share(a, b) and any(op.kind in WRITES for op in (*some[a], *others[b]))
        for a in some
        for b in others
    )
