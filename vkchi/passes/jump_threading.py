"""Jump threading: an `if` that asks what another `if` has found out stands in that one's regions.

    ok = if a { ...; yield b } else { yield false }      becomes
    if ok { ... }

    if a { ...; if b { ... } }

So conditions of several parts arrive here (`if j != i and near(x[j])`). What a part of the
condition has loaded is known in the branch then, which need not load it again, and nobody asks
twice.

In one region of the first `if` the answer must be constant: what follows there is chosen while
compiling, and written once more, so it must be little, and nothing that invocations wait or look
at each other in: those that take one copy would miss those that take the other. What stands between
the two `if`s stands before both, so it must be pure, and need nothing of the first.

Graphics cards keep a condition whose loads `predicate` lets run unasked: they are under way
together there, which they are not in a branch.

Must not know: what is loaded, what conditions mean.

    >>> thread_jumps(fn, caps)
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.ir.clone import Cloner
from vkchi.ir.constants import is_constant
from vkchi.ir.core import Func, Op, Region, Result, Value
from vkchi.ir.ops import SYNCS, TABLE, Effect
from vkchi.ir.rebuild import Rebuilder
from vkchi.passes.predicate import will_be_straight
from vkchi.target.caps import Caps
from vkchi.tuples import NamedTuple

MOST_COPIED = 4  # ops that are written once more, constants not counted


def thread_jumps(fn: Func, caps: Caps) -> Func:
    """The Func with each `if` that asks another one inside it, where that is worth it."""
    return Threader(is_straight=not caps.is_cpu).run(fn)


class Chain(NamedTuple):
    """`if`s one behind the other, each asking the one before it; `known`: the region of the first
    in which all answers are constants, and the regions that these choose in the others; how many
    ops the chain spans, and those `between`, which need nothing of it."""

    ifs: list[Op]
    known: int
    chosen: list[Region]
    between: list[Op]
    length: int


class Threader(Rebuilder):
    """Writes chains as one `if`. `is_straight`: few loads under a condition run unasked."""

    def __init__(self, *, is_straight: bool) -> None:
        super().__init__(lambda b, op, args: None)
        self.is_straight = is_straight

    def ops(self, ops: Sequence[Op]) -> None:
        """Rewrite ops into the region that is open."""
        done = k = 0
        while k < len(ops):
            found = self.chain(ops, k)
            if found is None:
                k += 1
                continue
            super().ops([*ops[done:k], *found.between])
            self.thread(found)
            done = k = k + found.length
        super().ops(ops[done:])

    def chain(self, ops: Sequence[Op], k: int) -> Chain | None:
        """The chain that begins with an op; None if it is no `if`, or nobody asks it."""
        first = ops[k]
        if first.kind != "if" or not first.results or self.runs_unasked(first):
            return None
        for known in (0, 1):
            found = follow(ops, k, known)
            if len(found.ifs) > 1:
                return found
        return None

    def runs_unasked(self, op: Op) -> bool:
        """Whether `predicate` will make the `if` straight code."""
        return self.is_straight and will_be_straight(op)

    def thread(self, chain: Chain) -> None:
        """Append a chain as one `if`."""
        first, *rest = chain.ifs
        results = [r for op in chain.ifs for r in op.results]
        regions = []
        for k, region in enumerate(first.regions):
            for r in results:
                self.map.pop(r, None)
            with self.inside() as new:
                self.ops(region.ops[:-1])
                self.answer(first, region)
                if k == chain.known:
                    self.choose(rest, chain.chosen)
                else:
                    self.ops(rest)
                self.b.emit("yield", *[self.map.get(r, r) for r in results])
            regions.append(new)
        self.b.span = first.span
        made = self.b.if_(self.args(first)[0], regions[0], regions[1])
        for old, result in zip(results, made.results, strict=True):
            result.name = old.name
            self.map[old] = result

    def answer(self, op: Op, region: Region) -> None:
        """What a region yields stands for the op's results from here on."""
        yielded = [self.map.get(v, v) for v in region.yielded]
        self.map.update(zip(op.results, yielded, strict=True))

    def choose(self, ifs: Sequence[Op], regions: Sequence[Region]) -> None:
        """Append copies of these regions in the place of the `if`s."""
        copy = Cloner(self.b, dict(self.map))
        for op, region in zip(ifs, regions, strict=True):
            copy.run(region.ops)
            copy.map.update(zip(op.results, map(copy.get, region.yielded), strict=True))
            self.map.update((r, copy.map[r]) for r in op.results)


def follow(ops: Sequence[Op], k: int, known: int) -> Chain:
    """The chain from an `if` on, if this region of it says what is next."""
    first = ops[k]
    values: dict[Value, Value] = dict(zip(first.results, first.regions[known].yielded, strict=True))
    found = Chain([first], known, [], [], 1)
    between: list[Op] = []
    for length, op in enumerate(ops[k + 1 :], 2):
        if op.kind == "if" and is_result_of(op.args[0], found.ifs[-1]):
            region = answered(op, values)
            if region is None or copied([*found.chosen, region]) > MOST_COPIED:
                break
            values.update((r, values.get(v, v)) for r, v in zip(op.results, region.yielded))
            found = Chain([*found.ifs, op], known, [*found.chosen, region], [*between], length)
        elif TABLE[op.kind].effect is Effect.PURE and not op.regions and is_apart(op, found.ifs):
            between.append(op)
        else:
            break
    return found


def is_result_of(v: Value, op: Op) -> bool:
    """Whether a value is what an op found out."""
    return isinstance(v, Result) and v.op is op


def is_apart(op: Op, ifs: Sequence[Op]) -> bool:
    """Whether an op, among pure ones that are so, needs nothing of the `if`s."""
    return not any(is_result_of(v, made) for v in op.args for made in ifs)


def answered(op: Op, values: dict[Value, Value]) -> Region | None:
    """The region that an `if` chooses where its condition is one of these values, if known."""
    cond = values.get(op.args[0])
    if cond is None or not is_constant(cond):
        return None
    return op.regions[0 if cond.attr else 1]


def copied(regions: Sequence[Region]) -> int:
    """How many ops are written once more; more than MOST_COPIED if some hold others, or must stay
    one for all invocations."""
    ops = [op for r in regions for op in r.ops[:-1] if op.kind != "const"]
    return MOST_COPIED + 1 if any(op.regions or op.kind in SYNCS for op in ops) else len(ops)
