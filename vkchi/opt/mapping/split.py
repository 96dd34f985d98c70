"""Kernel splitting: one dispatch per `parallel` op and per serial segment between.

- A serial segment becomes a Func for one invocation. It is dropped if nothing needs it.
- A value used in another dispatch is rematerialized if that takes few pure ops on parameters,
  constants, and loads of memory that is not written in between. Otherwise it is spilled
  to a temporary: a 0-D array parameter `.temp.N`, stored after the definition and loaded before the
  use. Addresses (`elem`, `member`) are always recomputed.
- A `local` variable used by a single serial dispatch is defined there. Any other becomes a
  temporary, which a serial dispatch initializes. Bools are i32 in temporaries, because some devices
  cannot store bytes.
- A variable is kept in a 0-D array if its last use is a store to that array. The kernel must not
  access the array otherwise. Return values are such variables.
- Existing temporaries of a Func (arrays from `expand`) become temporaries of the program.
- A Func has only the parameters that it uses, and `.seed` if it draws random numbers.

    >>> program, temps = split_dispatches(fn)      # t = 0; for i in x: t += x[i]; return t
    >>> [find_parallel(f) is not None for f in program.funcs], [p.name for p in temps]
    ([False, True], [])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence

from vkchi.analysis.memory.alias import bases_may_alias
from vkchi.ir.builder import Builder
from vkchi.ir.core import TEMP, Func, Op, Param, Program, Region, Result, Value, base_memory, walk
from vkchi.ir.ops import LOOPS, PER_INVOCATION, PLACES, TABLE, Effect
from vkchi.ir.rebuild import Rebuilder
from vkchi.target import tuning
from vkchi.target.cell_lists import listed_activity
from vkchi.target.shader import SEED
from vkchi.tuples import NamedTuple
from vkchi.types import (
    Array,
    Ptr,
    Scalar,
    Tensor,
    cell_of,
    i32,
    scalar_of,
    u1,
    with_scalar,
)

REPEATABLE = (
    frozenset(
        kind
        for kind, row in TABLE.items()
        if row.effect is Effect.PURE and kind not in PER_INVOCATION
    )
    | {"shared"}
    | {k for k, row in TABLE.items() if row.effect is Effect.CONTROL} - LOOPS - {"parallel"}
)
WRITES = frozenset(
    kind for kind, row in TABLE.items() if row.effect in (Effect.WRITE, Effect.ATOMIC)
)
STAYS = (Effect.SYNC, Effect.REPORT)
KEPT = WRITES | {kind for kind, row in TABLE.items() if row.effect in STAYS} | {"parallel"}


def split_dispatches(fn: Func) -> tuple[Program, tuple[Param, ...]]:
    """Return a kernel's dispatches in order, and the temporaries that a launch provides."""
    plan = _Plan(fn)
    built: list[tuple[tuple[Param, ...], Region]] = []
    for k in reversed(range(len(plan.segments))):
        dispatch = _DispatchBuilder(plan, k)
        if dispatch.kept:
            built.append(dispatch.build())
    built.reverse()
    names = [fn.name] if len(built) == 1 else [f"{fn.name}.{k}" for k in range(len(built))]
    funcs = [Func(name + label_of(parts[1]), *parts, fn.span) for name, parts in zip(names, built)]
    own = [p for p in plan.temps.values() if p not in fn.params]
    temps = tuple([*given_temps(fn), *own])
    return Program(fn.name, tuple(funcs)), temps


def label_of(body: Region) -> str:
    """`:NAME` for the name of the dispatch's parallel loop (`ti.loop_config`); else ""."""
    return next((f":{op.name}" for op in body.ops if op.kind == "parallel" and op.name), "")


def given_temps(fn: Func) -> list[Param]:
    return [p for p in fn.params if p.name.startswith(TEMP)]


def split_body(ops: Sequence[Op]) -> list[list[Op]]:
    segments: list[list[Op]] = [[]]
    for op in ops:
        if op.kind == "parallel":
            segments += [[op], []]
        else:
            segments[-1].append(op)
    return segments


class OpUse(NamedTuple):
    """Summary of an op of the body, including its nested ops.

    - `values`: parameters and values of the body that it uses.
    - `kinds`: op kinds; `written`: bases that it writes; `size`: number of ops.
    """

    values: tuple[Value, ...]
    kinds: frozenset[str]
    written: tuple[Value, ...]
    size: int


def find_use(op: Op, outer: Container[Value]) -> OpUse:
    if not op.regions:
        is_write = op.kind in WRITES and op.args and isinstance(op.args[0].type, Ptr)
        written = (base_memory(op.args[0]),) if is_write else ()
        return OpUse(op.args, frozenset((op.kind,)), written, 1)
    ops = [op, *(inner for region in op.regions for inner in walk(region))]
    values = dict.fromkeys([v for inner in ops for v in inner.args if v in outer])
    kinds = frozenset([inner.kind for inner in ops])
    bases: dict[Value, None] = {}
    if not kinds.isdisjoint(WRITES):
        places = (inner.args[0] for inner in ops if inner.kind in WRITES and inner.args)
        bases = dict.fromkeys(base_memory(v) for v in places if isinstance(v.type, Ptr))
    return OpUse(tuple(values), kinds, tuple(bases), len(ops))


def temporary_type(t: Scalar | Tensor) -> Array:
    if scalar_of(t) is u1:
        t = with_scalar(t, i32)
    return cell_of(t)


class _Plan:
    """Kernel-wide state: segments, the segment of each definition, and temporaries."""

    def __init__(self, fn: Func) -> None:
        self.fn = fn
        self.segments = split_body(fn.body.ops[:-1])
        self.home: dict[Value, int] = {
            v: k for k, ops in enumerate(self.segments) for op in ops for v in op.results
        }
        self.given = len(given_temps(fn))
        self.temps: dict[Value, Param] = {}  # spilled value or `local` -> its temporary
        self.spilled: dict[int, list[Value]] = {}  # values that a segment must store
        self.dropped: set[Op] = set()
        outer = self.home.keys() | set(fn.params)
        self.uses = {op: find_use(op, outer) for ops in self.segments for op in ops}
        self.users = Counter(v for use in self.uses.values() for v in use.values)
        self._place_locals()
        self.costs = _Costs(self.segments, self.uses, self.temps)

    def temp(self, v: Value, t: Scalar | Tensor) -> Param:
        """Return the temporary array for v, created on first use.

        v is a value of type t, or a `local` whose contents have type t.
        """
        found = self.temps.get(v)
        if found is None:
            found = self.temps[v] = Param(
                temporary_type(t), f"{TEMP}{self.given + len(self.temps)}"
            )
        return found

    def spill(self, v: Value) -> Param:
        assert isinstance(v.type, Scalar | Tensor)
        if v not in self.temps:
            self.spilled.setdefault(self.home[v], []).append(v)
        return self.temp(v, v.type)

    def _place_locals(self) -> None:
        """Turn each `local` of the body into a temporary, unless a single serial dispatch uses it,
        or none does. `_find_slot` may find an array of the program for it."""
        root: dict[Value, Op] = {}
        users: dict[Op, set[int]] = {}
        for k, ops in enumerate(self.segments):
            for op in ops:
                if op.kind == "local":
                    root[op] = op
                    users[op] = set()
                elif op.kind in PLACES and op.args[0] in root:
                    root[op] = root[op.args[0]]
                for v in self.uses[op].values:
                    if v in root:
                        users[root[v]].add(k)
        for op, segments in users.items():
            serial = [k for k in segments if not self.is_parallel(k)]
            if len(segments) == len(serial) <= 1:
                continue
            assert isinstance(op.type, Ptr)
            slot = self._find_slot({v for v in root if root[v] is op}, max(segments))
            if slot is not None:
                self.temps[op] = slot
            self.temp(op, op.type.elem)

    def _find_slot(self, places: set[Value], last: int) -> Param | None:
        """Return a 0-D array parameter in which a variable can be kept, or None.

        The variable's only use in its last segment must be a load that is stored to that array,
        which has no other access. The load and the store are added to `dropped`. `places` are the
        addresses of the variable and of its components.
        """
        ops = self.segments[last]
        loads = [op for op in ops if not places.isdisjoint(self.uses[op].values)]
        stores = [op for op in ops if loads and loads[0] in self.uses[op].values]
        if len(loads) != 1 or len(stores) != 1:
            return None
        load, store = loads[0], stores[0]
        if load.kind != "load" or store.kind != "store" or self.users[load] != 1:
            return None
        place = store.args[0]
        if not isinstance(place, Op) or place.kind != "elem" or self.users[place] != 1:
            return None
        slot = place.args[0]
        t = slot.type
        if not isinstance(slot, Param) or not isinstance(t, Array) or self.users[slot] != 1:
            return None
        if t.layout is None or t.shape != () or t.elem is not load.type or scalar_of(t.elem) is u1:
            return None
        self.dropped.update((load, store))
        return slot

    def is_parallel(self, k: int) -> bool:
        ops = self.segments[k]
        return bool(ops) and ops[0].kind == "parallel"


class _Costs:
    """Cost of recomputing the body's values in another segment."""

    def __init__(
        self, segments: list[list[Op]], uses: dict[Op, OpUse], temps: Container[Value]
    ) -> None:
        self.temps = temps
        self.written = [{v for op in ops for v in uses[op].written} for ops in segments]
        self._ops: dict[Value, int] = {}
        self._loads: dict[Value, tuple[tuple[int, Value], ...]] = {}  # segment and array of each
        for k, ops in enumerate(segments):
            for op in ops:
                self._count(k, op, uses[op])

    def allow(self, v: Value, k: int) -> bool:
        """True if v can be recomputed in segment k with at most SPLIT_RECOMPUTED ops, and no
        array that it loads may have changed."""
        return self._ops[v] <= tuning.SPLIT_RECOMPUTED and all(
            not bases_may_alias(base, written)
            for home, base in self._loads.get(v, ())
            for segment in self.written[home : k + 1]
            for written in segment
        )

    def _count(self, k: int, op: Op, use: OpUse) -> None:
        if not op.results:
            return
        loads: tuple[tuple[int, Value], ...] = ()
        total = use.size
        base = base_memory(op.args[0]) if op.kind == "load" else None
        if base is not None and (isinstance(base, Param) or base in self.temps):
            is_list = listed_activity(base.name)  # rebuilt before the dispatch that reads it
            loads = () if is_list else ((k, base),)
        elif not use.kinds <= REPEATABLE and op not in self.temps:
            total = tuning.SPLIT_RECOMPUTED + 1
        for v in use.values:
            total += self._ops.get(v, 0)
            loads += self._loads.get(v, ())
        for v in op.results:
            self._ops[v] = min(total, tuning.SPLIT_RECOMPUTED + 1)
            if loads and total <= tuning.SPLIT_RECOMPUTED:
                self._loads[v] = tuple(dict.fromkeys(loads))


class _DispatchBuilder:
    """Builds the Func of one segment.

    Segments are built from last to first, so that all spills requested by later ones are known.
    """

    def __init__(self, plan: _Plan, k: int) -> None:
        self.plan, self.k = plan, k
        self.stored = set(plan.spilled.get(k, ()))
        self.kept = self._kept_ops()

    def _kept_ops(self) -> list[Op]:
        needed: set[Value] = set(self.stored)
        kept = []
        for op in reversed(self.plan.segments[self.k]):
            if op in self.plan.dropped:
                continue
            if self._has_effect(op) or not needed.isdisjoint(op.results):
                kept.append(op)
                needed.update(self.plan.uses[op].values)
        return kept[::-1]

    def _has_effect(self, op: Op) -> bool:
        if op.kind == "local" and op in self.plan.temps:
            return True
        return not self.plan.uses[op].kinds.isdisjoint(KEPT)

    def build(self) -> tuple[tuple[Param, ...], Region]:
        self.rebuilder = Rebuilder(self.visit)
        self.map, b = self.rebuilder.map, self.rebuilder.b
        with b.region() as body:
            for op in self.kept:
                for v in self.plan.uses[op].values:
                    self.bring(v)
            for op in self.kept:
                self.take(op)
                for v in op.results:
                    if v in self.stored:
                        self.store(b, self.place(b, self.plan.temps[v]), self.map.get(v, v))
            b.span = None
            b.emit("yield")
        del self.rebuilder.visit  # breaks a reference cycle that holds the plan
        return self._params(body), body

    def take(self, op: Op) -> None:
        get = self.map.get
        if op.kind == "local" or any(get(v, v) is not v for v in self.plan.uses[op].values):
            self.rebuilder.ops([op])
        else:
            self.rebuilder.b.insert(op)

    def _params(self, body: Region) -> tuple[Param, ...]:
        ops = list(walk(body))
        used = {v for op in ops for v in op.args}
        draws = any(op.kind == "random" for op in ops)
        return tuple(
            p
            for p in dict.fromkeys((*self.plan.fn.params, *self.plan.temps.values()))
            if p in used or (draws and p.name == SEED)
        )

    # --- values from other dispatches

    def bring(self, v: Value) -> Value:
        """Return this dispatch's value of v, recomputed or loaded if another one defines it."""
        if v in self.map or self.plan.home.get(v, self.k) == self.k:
            return self.map.get(v, v)
        op = v.op if isinstance(v, Result) else v
        assert isinstance(op, Op)
        b = self.rebuilder.b
        b.span = op.span
        if v not in self.plan.temps and not self.can_repeat(op, v):
            self.plan.spill(v)
        if v in self.plan.temps:
            place = self.place(b, self.plan.temps[v])
            self.map[v] = place if op.kind == "local" else self.load(b, place, v)
            return self.map[v]
        for x in self.plan.uses[op].values:
            self.bring(x)
        self.take(op)
        for result in op.results:
            self.map.setdefault(result, result)
        return self.map[v]

    def can_repeat(self, op: Op, v: Value) -> bool:
        if op.kind in PLACES or op.kind == "local":
            return True
        return self.plan.costs.allow(v, self.k)

    # --- temporaries

    def place(self, b: Builder, temp: Param) -> Value:
        return b.emit("elem", temp, attr="inbounds", name="slot")

    def load(self, b: Builder, place: Value, like: Value) -> Value:
        assert isinstance(like.type, Scalar | Tensor)
        v = b.emit("load", place, name=like.name)
        return v if v.type is like.type else b.emit("cast", v, type=like.type, name=like.name)

    def store(self, b: Builder, place: Value, v: Value) -> None:
        b.emit("store", place, as_stored(b, v, place))

    def visit(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """Redirect accesses to a former `local` to its temporary."""
        if op.kind == "local" and op in self.plan.temps:
            place = self.place(b, self.plan.temps[op])
            self.store(b, place, args[0])
            return [place]
        if not args or args == op.args or not isinstance(args[0].type, Ptr):
            return None
        if args[0].type is op.args[0].type:
            return None
        if op.kind == "load":
            return [self.load(b, args[0], op)]
        values = (as_stored(b, v, args[0]) for v in args[1:]) if has_values(op) else args[1:]
        new = b.emit(op.kind, args[0], *values, attr=op.attr, name=op.name)
        if isinstance(new.type, Scalar | Tensor) and new.type is not op.type:
            return [b.emit("cast", new, type=op.type, name=op.name)]
        return [new] if op.results else []


def has_values(op: Op) -> bool:
    return op.kind not in PLACES


def as_stored(b: Builder, v: Value, place: Value) -> Value:
    assert isinstance(place.type, Ptr)
    return v if v.type is place.type.elem else b.emit("cast", v, type=place.type.elem)
