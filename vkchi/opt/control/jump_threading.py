"""Jump threading: an `if` on the result of an earlier `if` moves into that one's regions.

    ok = if a { ...; yield b } else { yield false }      becomes
    if ok { ... }

    if a { ...; if b { ... } }

The frontend lowers compound conditions such as `if j != i and near(x[j])` to this form. After the
pass, values loaded by the condition are available in the branch, and no condition is tested twice.

Conditions:

- One region of the first `if` yields a constant condition. The region of the second `if` that it
  selects is copied there, so it may only contain constants. Hence `if a or b` stays: a CPU that
  executes masked lanes would run its body twice.
- Ops between the two `if`s move before both. So they must be pure, and independent of the first
  `if`.
- GPUs skip a condition whose loads `predicate` speculates. Speculated loads overlap, which loads in
  a branch do not.

    >>> thread_jumps(fn, caps)
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.ir.core import Func, Op, Region, Result, Value, is_constant
from vkchi.ir.ops import TABLE, Effect
from vkchi.ir.rebuild import Cloner, Rebuilder
from vkchi.opt.control.predicate import will_be_if_converted
from vkchi.target.caps import Caps
from vkchi.tuples import NamedTuple


def thread_jumps(fn: Func, caps: Caps) -> Func:
    """Move each `if` into an earlier `if` that computes its condition, where profitable."""
    return Threader(is_straight=not caps.branches_cheap).run(fn)


class Chain(NamedTuple):
    """Consecutive `if`s, each on a result of the one before.

    - known: the region of the first `if` in which all conditions are constant.
    - chosen: the regions of the other `if`s that these constants select.
    - between: independent ops between the `if`s.
    - length: number of ops that the chain spans.
    """

    ifs: list[Op]
    known: int
    chosen: list[Region]
    between: list[Op]
    length: int


class Threader(Rebuilder):
    """Rewrites chains to one `if`. `is_straight`: `predicate` speculates loads, as on GPUs."""

    def __init__(self, *, is_straight: bool) -> None:
        super().__init__(kinds=())
        self.is_straight = is_straight

    def ops(self, ops: Sequence[Op]) -> None:
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
        """Return the chain that begins with op k, or None."""
        first = ops[k]
        if first.kind != "if" or not first.results or self.runs_unasked(first):
            return None
        for known in (0, 1):
            found = longest_chain(ops, k, known)
            if len(found.ifs) > 1:
                return found
        return None

    def runs_unasked(self, op: Op) -> bool:
        return self.is_straight and will_be_if_converted(op)

    def thread(self, chain: Chain) -> None:
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
        yielded = [self.map.get(v, v) for v in region.yielded]
        self.map.update(zip(op.results, yielded, strict=True))

    def choose(self, ifs: Sequence[Op], regions: Sequence[Region]) -> None:
        copy = Cloner(self.b, dict(self.map))
        for op, region in zip(ifs, regions, strict=True):
            copy.run(region.ops)
            copy.map.update(zip(op.results, map(copy.get, region.yielded), strict=True))
            self.map.update((r, copy.map[r]) for r in op.results)


def longest_chain(ops: Sequence[Op], k: int, known: int) -> Chain:
    """Return the longest chain from op k whose conditions are constant in region `known`; it may be
    only that op."""
    first = ops[k]
    values: dict[Value, Value] = dict(zip(first.results, first.regions[known].yielded, strict=True))
    found = Chain([first], known, [], [], 1)
    between: list[Op] = []
    for length, op in enumerate(ops[k + 1 :], 2):
        if op.kind == "if" and is_result_of(op.args[0], found.ifs[-1]):
            region = selected_region(op, values)
            if region is None:
                break
            values.update((r, values.get(v, v)) for r, v in zip(op.results, region.yielded))
            found = Chain([*found.ifs, op], known, [*found.chosen, region], [*between], length)
        elif TABLE[op.kind].effect is Effect.PURE and not op.regions and is_apart(op, found.ifs):
            between.append(op)
        else:
            break
    return found


def is_result_of(v: Value, op: Op) -> bool:
    return isinstance(v, Result) and v.op is op


def is_apart(op: Op, ifs: Sequence[Op]) -> bool:
    return not any(is_result_of(v, made) for v in op.args for made in ifs)


def selected_region(op: Op, values: dict[Value, Value]) -> Region | None:
    """Return the region of an `if` that a constant in `values` selects; None if there is no such
    constant, or the region contains other ops than constants."""
    cond = values.get(op.args[0])
    if cond is None or not is_constant(cond):
        return None
    region = op.regions[0 if cond.attr else 1]
    return region if all(x.kind == "const" for x in region.ops[:-1]) else None
