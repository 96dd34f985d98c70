"""Dynamic race detection with shadow memory: kernels that record which iterations access each
element.

`instrument_races` instruments a Func. For every group of possible conflicts it adds shadow cells,
one set per scalar of the array:

- the least and the greatest iteration that read, changed or stored the scalar;
- the least and the greatest value that was stored.

After each parallel loop, one loop per array compares the cells. It sets the elements of `raced` of
the groups that conflict to 1, and clears the cells. `instrument_addresses` keeps only the ops of
such a Func that determine the accessed elements.

Two iterations conflict in an element if

- one reads it, the value read counts (`influence`), and the other changes it;
- both store to it: different values, or any values in a strict group;
- one stores, and the other does an atomic operation;
- they do different kinds of atomic operations.

Adding 0 is not a change. Storing the current value is none either, unless another write in that
loop changes the element. In that case the store may see another value in another order. For values
with a derivative, a write is only exempt if that holds for all values (`influence.change`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from vkchi.autodiff.emit import (
    as_i32,
    for_each_element,
    place_in,
    places_at,
    store_if,
)
from vkchi.autodiff.instrument import shadow_of
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value, base_memory, used_in, walk
from vkchi.ir.iteration_space import linear_iteration
from vkchi.ir.ops import WRITES, Effect, effect_of
from vkchi.ir.rebuild import Rebuilder
from vkchi.opt.pipeline import load_pass
from vkchi.races.conflicts import Conflict
from vkchi.races.influence import AccessRelevance, RelevanceCondition, emit_when
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Scalar, Tensor, f32, i32, scalar_of, u1, u32, u64

NOBODY, LAST = -1, (1 << 31) - 1  # initial cells: last and first iteration
LEAST = -(1 << 31)
RACED, CELLS = ".raced", ".cells."
READS, CHANGES, STORES, DIFFERS = "reads", "changes", "stores", "differs"


class ConflictGroup(NamedTuple):
    """Conflicts of one root in one loop with the same kinds and source locations.

    In a group that `is_strict`, two stores conflict even if they store the same value.
    """

    loop: Op
    root: Value
    first: tuple[Op, ...]
    second: tuple[Op, ...]
    is_strict: bool


def group_by_lines(
    conflicts: Sequence[Conflict], strict: Container[Conflict] = ()
) -> list[ConflictGroup]:
    """Group conflicts by loop, root, strictness, and the kinds and source locations of both
    accesses."""
    found: dict[tuple[object, ...], list[Conflict]] = {}
    for m in conflicts:
        kinds = [(ops[0].kind, ops[0].span) for ops in (m.first, m.second)]
        key = (m.loop, m.root, *kinds, m in strict)
        found.setdefault(key, []).append(m)
    return [
        ConflictGroup(
            those[0].loop, those[0].root, tuple(dict.fromkeys(op for m in those for op in m.first)),
            tuple(dict.fromkeys(op for m in those for op in m.second)), those[0] in strict,
        )
        for those in found.values()
    ]  # fmt: skip


class ShadowCells(NamedTuple):
    """Shadow cells of the ops on one side of a conflict group.

    - `who`: first and last iteration.
    - `words`: least and greatest value stored, per 32-bit word.
    - `differs`: the last iteration whose write changed the element, over all writes of the loop.
    """

    who: tuple[Param, Param]
    words: tuple[tuple[Param, Param], ...] = ()
    differs: tuple[Param, ...] = ()

    @property
    def params(self) -> Iterator[tuple[Param, int]]:
        yield from zip(self.who, (LAST, NOBODY))
        for pair in self.words:
            yield from zip(pair, (LAST, LEAST))
        for param in self.differs:
            yield param, NOBODY


class Detector(NamedTuple):
    """An instrumented Func; `cells` gives the root and initial value of each cell by name."""

    func: Func
    cells: dict[str, tuple[Value, int]]


class DetectorOptions(NamedTuple):
    """Options of the instrumentation.

    - `knows_values`: compare the stored values.
    - `knows_old`: compare them to the old contents, too.
    - `writes`: arrays that the Func writes, other writes are removed; None for all.
    - `active`: values with derivatives; only `influence.change` exempts their writes.
    - `reports`: keep the kernel's reports.
    """

    knows_values: bool
    knows_old: bool = True
    writes: Container[Value] | None = None
    active: Container[Value] = ()
    reports: bool = False


def instrument_races(fn: Func, groups: Sequence[ConflictGroup], style: DetectorOptions) -> Detector:
    return DetectorBuilder(fn, groups, style).make()


class DetectorBuilder:
    def __init__(self, fn: Func, groups: Sequence[ConflictGroup], style: DetectorOptions) -> None:
        self.fn, self.groups, self.style = fn, groups, style
        reads = [op for g in groups for op in g.first if op.kind == "load"]
        self.influence = AccessRelevance(fn, reads)
        self.roots: dict[str, tuple[Value, int]] = {}
        self.params: list[Param] = []
        self.pools: defaultdict[object, list[Param]] = defaultdict(list)
        self.turns: defaultdict[object, int] = defaultdict(int)
        self.made: dict[tuple[object, ...], ShadowCells] = {}
        self.at: dict[
            Op, list[tuple[Op, ShadowCells, str, tuple[RelevanceCondition, ...], Op]]
        ] = {}
        self.raced = Param(Array.of(i32, 1), RACED)
        self.sides = [self._sides(g) for g in groups]
        self.loops = {g.loop for g in groups}
        self.used = used_in(fn.body)
        self.rebuilder = Rebuilder(self.visit)

    def make(self) -> Detector:
        body = self.rebuilder.region(self.fn.body)
        params = (*self.fn.params, *self.params, self.raced)
        return Detector(Func(f"{self.fn.name}.detector", params, body, self.fn.span), self.roots)

    # --- cells

    def _sides(self, g: ConflictGroup) -> tuple[ShadowCells, ShadowCells]:
        if g.first[0].kind == "load":
            return self._cells(g, g.first, READS), self._cells(g, g.second, CHANGES)
        return self._cells(g, g.first, STORES), self._cells(g, g.second, STORES)

    def _cells(self, g: ConflictGroup, ops: tuple[Op, ...], role: str) -> ShadowCells:
        key = (g.loop, g.root, ops, role)
        if key not in self.made:
            has_words = role == STORES and self.style.knows_values and ops[0].kind == "store"
            count = words_in(ops[0].args[1]) if has_words else 0
            pairs = [(self._param(g, LAST), self._param(g, NOBODY))]
            pairs += [(self._param(g, LAST), self._param(g, LEAST)) for _ in range(count)]
            differs = self._differs(g) if role == CHANGES and self.style.knows_values else ()
            cells = self.made[key] = ShadowCells(pairs[0], tuple(pairs[1:]), differs)
            for op in ops:
                self._note_at(op, cells, role, g.loop)
        return self.made[key]

    def _differs(self, g: ConflictGroup) -> tuple[Param, ...]:
        """The cell of changed elements, shared by all groups of one root in a loop."""
        key = (g.loop, g.root, DIFFERS)
        if key not in self.made:
            param = self._param(g, NOBODY)
            cells = self.made[key] = ShadowCells((param, param), differs=(param,))
            for op in walk(g.loop.regions[0]):
                if op.kind in WRITES and base_memory(op.args[0]) is g.root:
                    self._note_at(op, cells, DIFFERS, g.loop)
        return self.made[key].differs

    def _param(self, g: ConflictGroup, first: int) -> Param:
        """Allocate a cell array for a loop, reusing those of other loops."""
        turn = self.turns[g.loop, g.root, first]
        self.turns[g.loop, g.root, first] += 1
        pool = self.pools[g.root, first]
        if turn == len(pool):
            param = Param(shadow_of(g.root), f"{CELLS}{len(self.roots)}")
            pool.append(param)
            self.params.append(param)
            self.roots[param.name] = (g.root, first)
        return pool[turn]

    def _note_at(self, op: Op, cells: ShadowCells, role: str, loop: Op) -> None:
        endings = self.influence.endings(op) if role == READS else None
        if endings is None:
            when = self.influence.change(op) if is_change(op, role) else None
            self.at.setdefault(op, []).append((op, cells, role, (when,) if when else (), loop))
            return
        for ending in endings:
            self.at.setdefault(ending.anchor, []).append((op, cells, role, ending.whens, loop))

    # --- ops

    def get(self, v: Value) -> Value:
        return self.rebuilder.map.get(v, v)

    def visit(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """Record the accesses at an op, and compare the cells after a loop.

        Returns the values that replace the op's results; None to keep the op.
        """
        if effect_of(op.kind) is Effect.REPORT and not self.style.reports:
            return ()
        for access, cells, role, whens, loop in self.at.get(op, ()):
            self._emit(b, access, cells, role, whens, loop)
        if op in self.loops:
            self.rebuilder.keep(op, args)
            self._compare(b, op)
            return ()
        root = base_memory(op.args[0]) if op.kind in WRITES else None
        writes = self.style.writes
        if not isinstance(root, Param) or writes is None or root in writes:
            return None
        return [b.emit("load", args[0])] if op in self.used else op.results and [args[1]]

    def _emit(
        self,
        b: Builder,
        op: Op,
        cells: ShadowCells,
        role: str,
        whens: tuple[RelevanceCondition, ...],
        loop: Op,
    ) -> None:
        indices = [self.get(p) for p in loop.regions[0].params]
        index = linear_iteration(b, [self.get(v) for v in loop.args], indices)
        conditions = [emit_when(b, when, self.get) for when in whens]
        leaves_out = role == DIFFERS or (is_change(op, role) and op.kind == "atomic_add")
        parts = self._changed(b, op) if leaves_out and not whens else None
        ends = list(zip(cells.who, ("atomic_min", "atomic_max"), (LAST, NOBODY)))
        for param, kind, none in ends[1:] if role == DIFFERS else ends:
            for k, place in enumerate(self._places(b, op, param)):
                number = as_i32(b, index)
                for c in (*conditions, *(parts[k : k + 1] if parts else ())):
                    number = b.emit("select", c, number, b.const(none, i32))
                b.emit(kind, place, number)
        for k, pair in enumerate(cells.words):
            for param, kind in zip(pair, ("atomic_min", "atomic_max")):
                parts = b.components(self.get(op.args[1]))
                for place, part in zip(self._places(b, op, param), parts):
                    b.emit(kind, place, words_of(b, part)[k])

    def _changed(self, b: Builder, op: Op) -> list[Value] | None:
        """Bools, one per component: true if a write changes it. None if the write always counts."""
        v = op.args[1]
        if not self.style.knows_values or v in self.style.active:
            return None
        if op.kind != "atomic_add" and (op.kind != "store" or not self.style.knows_old):
            return None
        new = self.get(v)
        assert isinstance(new.type, Scalar | Tensor)
        old = b.emit("load", self.get(op.args[0])) if op.kind == "store" else b.const(0, new.type)
        return [b.emit("ne", *pair) for pair in zip(b.components(old), b.components(new))]

    def _places(self, b: Builder, op: Op, param: Param) -> list[Value]:
        root = base_memory(op.args[0])
        array: Value = param if isinstance(root, Param) else b.emit("elem", param)
        return places_at(b, place_in(b, op.args[0], array, self.get))

    # --- comparison

    def _compare(self, b: Builder, loop: Op) -> None:
        ours = [(k, g) for k, g in enumerate(self.groups) if g.loop is loop]
        for root in dict.fromkeys(g.root for _, g in ours):
            those = [k for k, g in ours if g.root is root]
            used = dict.fromkeys(
                pair for k in those for cells in self.sides[k] for pair in cells.params
            )
            for_each_element(b, next(iter(used))[0], self._look(b, those, list(used)))

    def _look(
        self, b: Builder, those: list[int], used: list[tuple[Param, int]]
    ) -> Callable[..., None]:
        def look(*keys: Value) -> None:
            found: dict[Param, Value] = {}
            for param, first in used:
                place = b.emit("elem", param, *keys)
                found[param] = b.emit("load", place)
                t = found[param].type
                assert isinstance(t, Scalar | Tensor)
                b.emit("store", place, b.const(first, t))
            for k in those:
                self._tell(b, k, found)

        return look

    def _tell(self, b: Builder, number: int, found: Mapping[Param, Value]) -> None:
        is_met: Value = b.const(0, u1)
        for parts in zip(*(b.components(v) for v in found.values())):
            is_met = b.emit("or", is_met, self._have_met(b, number, dict(zip(found, parts))))
        store_if(b, is_met, b.emit("elem", self.raced, b.const(number, i32)), b.const(1, i32))

    def _have_met(self, b: Builder, number: int, parts: Mapping[Param, Value]) -> Value:
        group, (one, other) = self.groups[number], self.sides[number]
        lows, highs = zip(*([parts[p] for p in cells.who] for cells in (one, other)))
        zero = b.const(0, i32)
        is_both = b.emit("and", *(b.emit("ge", v, zero) for v in highs))
        is_met = b.emit("and", is_both, b.emit("ne", b.emit("min", *lows), b.emit("max", *highs)))
        for param in other.differs:
            is_met = b.emit("and", is_met, b.emit("ge", parts[param], zero))
        if group.is_strict or not (one.words and other.words):
            return is_met
        differs: Value | None = None
        for mine, theirs in zip(one.words, other.words):
            low = b.emit("min", parts[mine[0]], parts[theirs[0]])
            word = b.emit("ne", low, b.emit("max", parts[mine[1]], parts[theirs[1]]))
            differs = word if differs is None else b.emit("or", differs, word)
        assert differs is not None
        return b.emit("and", is_met, differs)


def is_change(op: Op, role: str) -> bool:
    """True if an access is only recorded when it may change the element.

    Stores are recorded always in the role STORES; additions only if they may add another value than
    0.
    """
    return role in (CHANGES, DIFFERS) or (role == STORES and op.kind == "atomic_add")


# --- cells ---------------------------------------------------------------------------------------


def words_in(v: Value) -> int:
    return 2 if scalar_of(v.type).bits == 64 else 1


def words_of(b: Builder, v: Value) -> list[Value]:
    t = scalar_of(v.type)
    if t.bits == 64:
        bits = v if t is u64 else b.emit("bitcast", v, type=u64)
        high = b.emit("shr", bits, b.const(32, u64))
        return [b.emit("bitcast", b.emit("cast", x, type=u32), type=i32) for x in (bits, high)]
    if t.kind == "f":
        v = v if t.bits == 32 else b.emit("cast", v, type=f32)
    return [b.emit("bitcast" if t.bits == 32 or t.kind == "f" else "cast", v, type=i32)
            if t is not i32 else v]  # fmt: skip


# --- pruning -------------------------------------------------------------------------------------


def instrument_addresses(
    fn: Func, groups: Sequence[ConflictGroup], style: DetectorOptions
) -> Detector:
    """Instrument a Func reduced to the ops that determine the accessed elements.

    Stored values are not compared, so it detects a superset of the conflicts.
    """
    needed: set[Value] = set()
    while True:
        made = instrument_races(fn, groups, style._replace(knows_values=False, writes=needed))
        func = load_pass("dce")(made.func)
        loaded = {base_memory(op.args[0]) for op in walk(func.body) if op.kind == "load"}
        written = {base_memory(op.args[0]) for op in walk(fn.body) if op.kind in WRITES}
        more = {root for root in loaded & written if isinstance(root, Param)} - needed
        if not more:
            return made._replace(func=func)
        needed |= more
