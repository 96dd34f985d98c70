"""Race candidates: kernels to watch outside debug mode, found when they are compiled.

`may_race` is a filter that is cheap enough for every compile: most loops access each array that
they write at one element, whose indices are the loop's. `candidates` are the conflicts of the
others (`conflicts`) that a launch can prove:

- by a witness (`witness`): the indices of both accesses follow from what a launch knows;
- by a trial (`watch`): a write at loaded indices, of a value that depends on what the loop reads of
  the same array, as in `pos[a] += f(pos[a], pos[b])`. Reads that only decide whether something is
  written, as in a breadth-first search, are no candidates, nor are minima and maxima. Neither are
  writes behind a decision by what an atomic gave, which may have put the iterations in order:
  `if ti.atomic_add(arrived[k], 1) == 1: box[k] = join(box[left[k]], box[right[k]])`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING

from vkchi.compiling import compiling
from vkchi.ir.core import Func, Op, Param, Region, Value, base_of, has_kind, walk
from vkchi.ir.ops import CONVERSIONS, GROUPED, SWAPS, SYNCS, TABLE, UPDATES, WRITES, Effect
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.races.conflicts import Conflict

MOST_DEPTH = 8  # ops of an index that are compared


class Candidates(NamedTuple):
    """The Func that conflicts were found in, those that a witness may prove, and those that a trial
    may."""

    func: Func
    by_witness: tuple[Conflict, ...]
    by_trial: tuple[Conflict, ...]


def may_race(fn: Func) -> bool:
    """True unless the accesses of all parallel loops are of one element per iteration, or atomics
    of one kind."""
    loops = [op for op in walk(fn.body) if op.kind == "parallel"]
    return any(map(loop_may_race, loops))


def is_watched(module: str | None, fn: Func) -> bool:
    """True if a kernel of a module of the user's has candidates; `module` is None where its globals
    have no name."""
    if (module or "").startswith("vkchi.") or not may_race(fn):
        return False
    with compiling(fn.name):
        found = candidates(fn)
    return bool(found.by_witness or found.by_trial)


def loop_may_race(loop: Op) -> bool:
    """`may_race` of one parallel loop."""
    (region,) = loop.regions
    accesses: dict[Value, list[Op]] = {}
    for op in walk(region):
        if op.kind == "load" or op.kind in WRITES:
            accesses.setdefault(base_of(op.args[0]), []).append(op)
    those = [ops for root, ops in accesses.items() if isinstance(root, Param)]
    return any(map(is_suspicious, those, [region] * len(those))) and not is_ordered(region)


def is_ordered(region: Region) -> bool:
    """True if barriers may order the accesses of a loop, or workgroups share memory."""
    return has_kind(region, GROUPED | SYNCS)


def is_suspicious(ops: list[Op], region: Region) -> bool:
    """True if two iterations may access one element of an array, and do not commute there."""
    kinds = {op.kind for op in ops}
    if kinds == {"load"} or (len(kinds) == 1 and kinds <= UPDATES):
        return False
    places = {key_of_place(op.args[0]) for op in ops}
    if len(places) > 1 or None in places:
        return True
    indices = {k for k in indices_at(ops[0].args[0]) if isinstance(k, Param)}
    return not indices.issuperset(region.params)


def indices_at(ptr: Value) -> tuple[Value, ...]:
    """The indices of an element, without conversions."""
    while isinstance(ptr, Op) and ptr.kind != "elem":
        ptr = ptr.args[0]
    return tuple(map(unconverted, ptr.args[1:])) if isinstance(ptr, Op) else ()


def unconverted(v: Value) -> Value:
    """The operand of a conversion."""
    while isinstance(v, Op) and v.kind in CONVERSIONS:
        v = v.args[0]
    return v


def key_of_place(ptr: Value) -> Hashable:
    """Equal for elements with equal indices; None where that is not seen."""
    indices = indices_at(ptr)
    return tuple(key_of(v, 0) for v in indices) if indices else None


def key_of(v: Value, depth: int) -> Hashable:
    """Equal for values that are computed alike in one iteration."""
    if not isinstance(v, Op) or TABLE[v.kind].effect is not Effect.PURE or depth > MOST_DEPTH:
        return v
    return (v.kind, v.attr, v.type, *(key_of(x, depth + 1) for x in v.args))


# --- candidates ----------------------------------------------------------------------------------


def candidates(fn: Func) -> Candidates:
    """The conflicts of a Func that launches may prove."""
    from vkchi.passes.pipeline import load_pass
    from vkchi.races.conflicts import find_conflicts

    for name in ("simplify", "dce"):
        fn = load_pass(name)(fn)
    found = [m for m in find_conflicts(fn) if is_candidate(m)]
    facts = {loop: Loaded(loop) for loop in {m.loop for m in found}}
    return Candidates(
        fn, tuple(m for m in found if facts[m.loop].is_computable(m)),
        tuple(m for m in found if facts[m.loop].is_scattered(m)),
    )  # fmt: skip


def is_candidate(m: Conflict) -> bool:
    """True if the order of the accesses matters, and no barrier may be between them. Loops that
    compare and swap, as those that set bit-packed integers, are no candidates."""
    from vkchi.analysis.footprint import element_under
    from vkchi.races.witness import may_matter

    if not isinstance(m.root, Param) or not may_matter(m) or is_ordered(m.loop.regions[0]):
        return False
    accesses = (*m.first, *m.second)
    is_plain = all(element_under(op.args[0]) is not None for op in accesses)
    return is_plain and all(op.kind not in SWAPS for op in accesses)


class Loaded:
    """Values of a loop that depend on loads by data flow; control flow does not count."""

    def __init__(self, loop: Op) -> None:
        (self.region,) = loop.regions
        self.loads = [op for op in walk(self.region) if op.kind == "load" or op.kind in UPDATES]
        self.of_loads = self._follow(self.loads)
        self.of_root: dict[Value, set[Value]] = {}
        self.behind_atomics: set[Op] | None = None

    def _follow(self, seeds: Iterable[Value]) -> set[Value]:
        from vkchi.analysis.dataflow import Flow

        return Flow(self.region, seeds).found

    def _has_loaded_indices(self, op: Op) -> bool:
        return any(v in self.of_loads for v in places_under(op.args[0]))

    def is_computable(self, m: Conflict) -> bool:
        """True if indices of both accesses may follow from what a launch knows."""
        sides = (m.first, m.second)
        return all(any(not self._has_loaded_indices(op) for op in side) for side in sides)

    def is_scattered(self, m: Conflict) -> bool:
        """True if what is read of an array is written to it at loaded indices."""
        if m.first[0].kind != "load":
            return False
        if m.root not in self.of_root:
            reads = [op for op in self.loads if base_of(op.args[0]) is m.root]
            self.of_root[m.root] = self._follow(reads)
        return any(
            self._has_loaded_indices(op) and op.args[1] in self.of_root[m.root]
            and not self._is_behind_atomics(op) for op in m.second
        )  # fmt: skip

    def _is_behind_atomics(self, op: Op) -> bool:
        """True if what an atomic gave decides whether an op runs."""
        if self.behind_atomics is None:
            from vkchi.analysis.dataflow import Dependence

            updates = [op for op in self.loads if op.kind in UPDATES]
            self.behind_atomics = Dependence(self.region, updates, lambda op: ()).decided
        return op in self.behind_atomics


def places_under(ptr: Value) -> Iterator[Value]:
    """The values that a place is computed of."""
    while isinstance(ptr, Op) and ptr.args:
        yield from ptr.args[1:]
        ptr = ptr.args[0]
