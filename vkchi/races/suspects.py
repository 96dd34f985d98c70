"""Race candidates: kernels to watch outside debug mode, selected at compile time.

`may_race` is a filter that is cheap enough for every compilation. Most loops access one element of
each array that they write, at the loop's indices. `race_candidates` are the conflicts of the other
loops (`conflicts`) that a launch can prove:

- by a witness (`witness`): the indices of both accesses depend on no load or atomic; if the proof
  depends on values in memory, a trial must confirm it;
- by a trial (`watch`): a write at loaded indices, of a value that depends on a read of the same
  array, as in `pos[a] += f(pos[a], pos[b])`.

These are no candidates for a trial:

- reads that only decide whether a write happens, as in breadth-first search;
- atomic minima, maxima, `and` and `or`; a stored `ti.min(...)` is a candidate;
- writes that the result of an atomic decides on, as it may have ordered the iterations:
  `if ti.atomic_add(arrived[k], 1) == 1: box[k] = join(box[left[k]], box[right[k]])`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING

from vkchi.compile_state import compiling
from vkchi.ir.core import Func, Op, Param, Region, Value, base_memory, has_kind, walk
from vkchi.ir.ops import CONVERSIONS, GROUPED, SWAPS, SYNCS, TABLE, UPDATES, WRITES, Effect
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.races.conflicts import Conflict

MOST_DEPTH = 8  # depth of compared index expressions


class RaceCandidates(NamedTuple):
    """Conflicts of `func` that a witness may prove, and those that a trial may prove."""

    func: Func
    by_witness: tuple[Conflict, ...]
    by_trial: tuple[Conflict, ...]


def may_race(fn: Func) -> bool:
    """True if `loop_may_race` for a parallel loop: a cheap test without index analysis."""
    loops = [op for op in walk(fn.body) if op.kind == "parallel"]
    return any(map(loop_may_race, loops))


def is_watched(module: str | None, fn: Func) -> bool:
    """True if a kernel has candidates; always False for those in modules of `vkchi`."""
    if (module or "").startswith("vkchi.") or not may_race(fn):
        return False
    with compiling(fn.name):
        found = race_candidates(fn)
    return bool(found.by_witness or found.by_trial)


def loop_may_race(loop: Op) -> bool:
    """True if two iterations of a parallel loop may conflict in an array.

    False with barriers or workgroup memory. An array is safe if it is only loaded, only updated by
    atomics of one kind, or only accessed at one element, whose indices include all loop indices.
    """
    (region,) = loop.regions
    accesses: dict[Value, list[Op]] = {}
    for op in walk(region):
        if op.kind == "load" or op.kind in WRITES:
            accesses.setdefault(base_memory(op.args[0]), []).append(op)
    those = [ops for root, ops in accesses.items() if isinstance(root, Param)]
    return any(map(is_suspicious, those, [region] * len(those))) and not is_ordered(region)


def is_ordered(region: Region) -> bool:
    return has_kind(region, GROUPED | SYNCS)


def is_suspicious(ops: list[Op], region: Region) -> bool:
    """True if two iterations may access one element with operations that do not commute."""
    kinds = {op.kind for op in ops}
    if kinds == {"load"} or (len(kinds) == 1 and kinds <= UPDATES):
        return False
    places = {key_of_place(op.args[0]) for op in ops}
    if len(places) > 1 or None in places:
        return True
    indices = {k for k in indices_at(ops[0].args[0]) if isinstance(k, Param)}
    return not indices.issuperset(region.params)


def indices_at(ptr: Value) -> tuple[Value, ...]:
    while isinstance(ptr, Op) and ptr.kind != "elem":
        ptr = ptr.args[0]
    return tuple(map(unconverted, ptr.args[1:])) if isinstance(ptr, Op) else ()


def unconverted(v: Value) -> Value:
    while isinstance(v, Op) and v.kind in CONVERSIONS:
        v = v.args[0]
    return v


def key_of_place(ptr: Value) -> Hashable:
    indices = indices_at(ptr)
    return tuple(expression_key(v, 0) for v in indices) if indices else None


def expression_key(v: Value, depth: int) -> Hashable:
    """Structural key of a value: equal for equal expressions in one iteration."""
    if not isinstance(v, Op) or TABLE[v.kind].effect is not Effect.PURE or depth > MOST_DEPTH:
        return v
    return (v.kind, v.attr, v.type, *(expression_key(x, depth + 1) for x in v.args))


# --- candidates ----------------------------------------------------------------------------------


def race_candidates(fn: Func) -> RaceCandidates:
    from vkchi.opt.memory.store_forwarding import remove_dead_stores
    from vkchi.opt.pipeline import load_pass
    from vkchi.races.conflicts import find_conflicts

    fn = load_pass("dce")(remove_dead_stores(load_pass("simplify")(fn)))
    found = [m for m in find_conflicts(fn) if is_candidate(m)]
    facts = {loop: LoadedValues(loop) for loop in {m.loop for m in found}}
    return RaceCandidates(
        fn, tuple(m for m in found if facts[m.loop].is_computable(m)),
        tuple(m for m in found if facts[m.loop].is_scattered(m)),
    )  # fmt: skip


def is_candidate(m: Conflict) -> bool:
    """True if the order of the accesses may matter and no barrier can separate them.

    Accesses by compare-and-swap, as stores of bit-packed integers, are no candidates.
    """
    from vkchi.analysis.memory.footprint import element_under
    from vkchi.races.witness import may_matter

    if not isinstance(m.root, Param) or not may_matter(m) or is_ordered(m.loop.regions[0]):
        return False
    accesses = (*m.first, *m.second)
    is_plain = all(element_under(op.args[0]) is not None for op in accesses)
    return is_plain and all(op.kind not in SWAPS for op in accesses)


class LoadedValues:
    """Data-flow closure of the loads and atomics in a loop; control flow does not count."""

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
        """True if both sides have an access whose indices depend on no load or atomic."""
        sides = (m.first, m.second)
        return all(any(not self._has_loaded_indices(op) for op in side) for side in sides)

    def is_scattered(self, m: Conflict) -> bool:
        """True for a read and a write of one array, if the write is at loaded indices.

        The written value depends on a value read from the array, and no atomic decides about the
        write.
        """
        if m.first[0].kind != "load":
            return False
        if m.root not in self.of_root:
            reads = [op for op in self.loads if base_memory(op.args[0]) is m.root]
            self.of_root[m.root] = self._follow(reads)
        return any(
            self._has_loaded_indices(op) and op.args[1] in self.of_root[m.root]
            and not self._is_behind_atomics(op) for op in m.second
        )  # fmt: skip

    def _is_behind_atomics(self, op: Op) -> bool:
        if self.behind_atomics is None:
            from vkchi.analysis.dataflow import Dependence

            updates = [op for op in self.loads if op.kind in UPDATES]
            self.behind_atomics = Dependence(self.region, updates, lambda op: ()).decided
        return op in self.behind_atomics


def places_under(ptr: Value) -> Iterator[Value]:
    while isinstance(ptr, Op) and ptr.args:
        yield from ptr.args[1:]
        ptr = ptr.args[0]
