"""Results of the analyses on a Func as text, for goldens and for comparison with executions.

ANALYSES["ranges"](fn)      # one line per integer, in program order
%k: 0..9, <= x[0] - 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

from vkchi.analysis.memory.alias import SideEffectTable, location_of, may_alias
from vkchi.analysis.memory.boxes import Box
from vkchi.analysis.memory.footprint import Footprint
from vkchi.analysis.uniformity import BarrierChecker
from vkchi.analysis.values.ranges import Extent, SymbolProduct, ValueFact, top_fact
from vkchi.autodiff.reaching import ReachingWrites
from vkchi.ir.core import Func, Op, Region, Value, used_in, walk
from vkchi.ir.ops import PLACES, READS, WRITES
from vkchi.opt.rewrite.bounds import Prover, is_integer
from vkchi.races.conflicts import conflicts_in
from vkchi.types import Array

INDENT = "  "


class Observed(Prover):
    """Facts known at each op about its operands and results."""

    def __init__(self, fn: Func) -> None:
        super().__init__(fn)
        self.params: dict[Region, list[tuple[Value, ValueFact]]] = {}
        self.seen: dict[Op, list[tuple[Value, ValueFact]]] = {}
        self.region(fn.body)

    def region(self, region: Region) -> None:
        self.params[region] = self.note(region.params)
        for op in region.ops:
            before = self.note(op.args)
            super().region(Region((), [op]))
            self.seen[op] = before + self.note(op.results)

    def note(self, values: Any) -> list[tuple[Value, ValueFact]]:
        return [(v, self.facts.of(v)) for v in values if is_integer(v.type)]


def name_of(s: Any) -> str:
    """Text of a symbol: an extent, a product of symbols, or a value."""
    if isinstance(s, Extent):
        return f"{s.shape}[{s.axis}]"
    if isinstance(s, SymbolProduct):
        factors = [str(s.coefficient)] if s.coefficient != 1 else []
        return "(" + " * ".join([*factors, *map(name_of, s.factors)]) + ")"
    return f"{name_of(s[0])}.{s[1]}" if isinstance(s, tuple) else f"%{s.name}"


def plus(s: Any, c: int) -> str:
    return name_of(s) + (f" {'-' if c < 0 else '+'} {abs(c)}" if c else "")


def show(v: Value, f: ValueFact) -> str:
    widest = top_fact(v.type)  # type: ignore[arg-type]
    low = "" if f.lo == widest.lo else str(f.lo)
    high = "" if f.hi == widest.hi else str(f.hi)
    parts = [str(f.lo) if f.lo == f.hi else f"{low}..{high}"]
    if f.exact is not None and f.exact[0] is not v and f.lo != f.hi:
        parts.append(f"= {plus(*f.exact)}")
    own = f.exact[0] if f.exact is not None else None
    parts += sorted(f"<= {plus(s, c)}" for s, c in f.ups.items() if s not in (own, v))
    return f"%{v.name}: {', '.join(parts)}"


def ranges(fn: Func) -> Iterator[str]:
    """Known ranges of integers at their definitions, and accesses that are in bounds."""
    found = Observed(fn)
    marked = set(found.marked)

    def lines(region: Region, depth: int) -> Iterator[str]:
        for v, f in found.params[region]:
            yield INDENT * depth + show(v, f)
        for op in region.ops:
            if op.kind == "elem":
                yield INDENT * depth + f"%{op.name}: {'inside' if op in marked else 'open'}"
            for inner in op.regions:
                yield INDENT * depth + op.kind
                yield from lines(inner, depth + 1)
            results = [(v, f) for v, f in found.seen[op] if v in op.results]
            for v, f in results if op.kind != "const" else ():
                yield INDENT * depth + show(v, f)

    yield from lines(fn.body, 0)


def alias(fn: Func) -> Iterator[str]:
    """Pairs of addresses that may alias, and memory that control ops may change."""
    found = {op: location_of(op) for op in walk(fn.body) if op.kind in PLACES or op.kind == "local"}
    pairs = combinations(found.items(), 2)
    yield from (
        f"%{p.name} %{q.name}: {'may be one' if may_alias(a, b) else 'apart'}"
        for (p, a), (q, b) in pairs
    )
    changes = SideEffectTable()
    for op in walk(fn.body):
        if op.regions:
            made = changes.of(op.regions)
            names = [f"%{p.name}" for p, place in found.items() if made.may_change(place)]
            yield f"{op.kind} may change {' '.join(names) or 'nothing'}"


def uniformity(fn: Func) -> Iterator[str]:
    """Uniformity of values within a workgroup, and branches and loops that are surely divergent."""
    for op in fn.body.ops:
        if op.kind == "parallel":
            checker = BarrierChecker(op)
            checker.inner.update(
                p for x in walk(op.regions[0]) for r in x.regions for p in r.params
            )
            yield from spreads(checker, op.regions[0], 0)


def spreads(checker: BarrierChecker, region: Region, depth: int) -> Iterator[str]:
    for op in region.ops:
        if op.results and op.type is not None and op.kind != "const":
            yield f"{INDENT * depth}%{op.name}: {checker.uniformity(op).name.lower()}"
        for inner, truth in zip(op.regions, (True, False)):
            cause = checker.cause(op, truth)
            why = f", where %{cause.name or op.kind} surely differs" if cause is not None else ""
            yield f"{INDENT * depth}{op.kind}{why}"
            yield from spreads(checker, inner, depth + 1)


def access(fn: Func) -> Iterator[str]:
    """Accessed and surely overwritten parts of arrays, and conflicts between iterations."""
    arrays = [p for p in fn.params if isinstance(p.type, Array)]
    for word, kinds in (("reads", READS), ("writes", WRITES)):
        found = Footprint(fn, arrays, kinds).boxes({}, {})
        yield from (f"{word} {name}{show_box(box)}" for name, box in found.items())
    reach = ReachingWrites(fn)
    for name, segments in reach.ends.items():
        yield f"overwrites all of {name} in segment {' '.join(map(str, segments))}"
    for covered in reach.must_write.boxes({}, {}):
        yield f"overwrites {covered.name}{show_box(covered.box)} in segment {covered.segment}"
    for op in fn.body.ops:
        if op.kind == "parallel":
            used = used_in(fn.body)
            met = [
                f"{m.first[0].kind} {m.second[0].kind} {m.root.name}"
                for m in conflicts_in(op, used)
            ]
            yield f"iterations meet: {', '.join(met) or 'nowhere'}"


def show_box(box: Box) -> str:
    """The ranges of a box."""
    return "[" + ", ".join(f"{r[0]}..{r[1]}" if r is not None else "any" for r in box) + "]"


ANALYSES: dict[str, Callable[[Func], Iterator[str]]] = {
    "access": access,
    "ranges": ranges, "alias": alias, "uniformity": uniformity,
}  # fmt: skip
