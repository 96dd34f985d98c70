"""Store-to-load forwarding, redundant-load and dead-store elimination.

- After `store p, v` or `v = load p`, a `load p` becomes v, until an op may write p.
- Elements and components are related: after a store of a vector, a load of a component becomes an
  `extract`. After stores of all components, a load of the vector becomes a `pack`.
- A store of the value known to be in memory is removed. So is a store that a later store in its
  region overwrites before any possible read.
- Facts propagate into the regions of `if`, and into loops that do not invalidate them. Facts from
  inside a region do not leave it. A `parallel` starts without facts, since its invocations differ.

`analysis.memory.alias` decides about aliasing and about effects of other invocations. Loads and
stores between synchronizations may be removed, because racy programs have no guarantees.

    store %p, %a; %b = load %p; store %q, %b    ->    store %p, %a; store %q, %a
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkchi.analysis.memory.alias import (
    EXITS,
    MemoryLocation,
    SideEffects,
    SideEffectTable,
    are_distinct,
    bases_may_alias,
    is_visible,
    location_of,
    may_alias,
)
from vkchi.analysis.values.polynomials import OffsetIndex
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Value, is_equal_value
from vkchi.ir.ops import SYNCS, UPDATES
from vkchi.ir.rebuild import Rebuilder
from vkchi.tuples import NamedTuple
from vkchi.types import Ptr, Tensor, Type

MOST_PENDING = 64  # stores; keeps the pass linear in large kernels


def forward_memory(fn: Func) -> Func:
    """Replace loads by known values, and remove redundant and dead stores."""
    return StoreForwarder().walk.run(fn)


def remove_dead_stores(fn: Func) -> Func:
    """Remove stores that a later store in their region overwrites before any possible read. Loads
    stay."""
    return DeadStoreEliminator().walk.run(fn)


class StoreForwarder:
    """Rewrites one Func.

    `known` holds the facts here, `pending` the stores of this region that nothing may have read
    yet.
    """

    def __init__(self) -> None:
        self.walk = Rebuilder(self.visit, VISITS)
        self.b = self.walk.b
        self.changes = SideEffectTable()
        self.places: dict[Value, MemoryLocation] = {}
        self.known = KnownMemory()
        self.pending: dict[MemoryLocation, Op] = {}

    def visit(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        return VISITS[op.kind](self, op, args)

    def place(self, ptr: Value) -> MemoryLocation:
        found = self.places.get(ptr)
        if found is None:
            found = self.places[ptr] = location_of(ptr)
        return found

    def forget_changes(self, changes: SideEffects) -> None:
        """Drop the facts that ops with these effects may invalidate."""
        for place in changes.writes:
            self.known.forget(place)
        if changes.sync:
            self.known.forget_visible()

    def changes_of(self, op: Op) -> SideEffects:
        """Return the effects of a control op on memory, in terms of rewritten values.

        A `local` with a rewritten initial value is a new op, so bases are mapped. Indices may keep
        their old names, because incomparable indices count as possibly equal.
        """
        found, get = self.changes.of(op.regions), self.walk.map.get
        if self.walk.map.keys().isdisjoint(p.base for p in (*found.writes, *found.reads)):
            return found
        writes, reads = (
            tuple([p._replace(base=get(p.base, p.base)) for p in places])
            for places in (found.writes, found.reads)
        )
        return found._replace(writes=writes, reads=reads)

    def read(self, place: MemoryLocation) -> None:
        """Record a read: pending stores that may alias it are live."""
        if self.pending:
            wanted = [p for p in self.pending if may_alias(p, place)]
            for p in wanted:
                del self.pending[p]

    # --- ops

    def visit_load(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """Return the known value of the location, or keep the load."""
        place = self.place(args[0])
        v = self.value_at(place, args[0].type)
        if v is None:
            v = self.walk.keep(op, args)
            self.read(place)
            self.known.learn(place, self.known.element(place).loaded(place.component, v))
        return (v,)

    def value_at(self, place: MemoryLocation, t: Type) -> Value | None:
        """Return the known value of a location, built from the facts about its element, or None."""
        element = self.known.element(place)
        if place.component is None:
            assert isinstance(t, Ptr)
            return self.whole_value(element, t.elem)
        v = element.part(place.component)
        if v is None and element.whole is not None and isinstance(place.component, int):
            v = self.b.emit("extract", element.whole, attr=place.component)
        return v

    def whole_value(self, element: KnownElement, t: Type) -> Value | None:
        """Return the known value of a whole element of type t, or None."""
        if element.whole is not None:
            whole = element.whole
            for k, x in element.parts:
                whole = self.b.emit("insert", whole, x, attr=k) if isinstance(k, int) else whole
            return whole
        if not isinstance(t, Tensor) or len(element.parts) < t.size:
            return None
        values = [v for k in range(t.size) if (v := element.part(k)) is not None]
        return self.b.emit("pack", *values, type=t) if len(values) == t.size else None

    def visit_store(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """Drop a store of the known value; else keep it and remove the stores it overwrites."""
        place, v = self.place(args[0]), args[1]
        element = self.element_before(place)
        if stands_already(element, place.component, v):
            return ()
        self.drop_covered(place)
        self.known.forget_others(place)
        self.known.learn(place, element.stored(place.component, v))
        self.pending[place] = self.walk.keep(op, args)
        if len(self.pending) > MOST_PENDING:
            del self.pending[next(iter(self.pending))]
        return ()

    def element_before(self, place: MemoryLocation) -> KnownElement:
        return self.known.element(place)

    def drop_covered(self, place: MemoryLocation) -> None:
        covered = [place]
        if place.component is None:
            covered = [p for p in self.pending if p[:2] == place[:2]]
        for p in covered:
            store = self.pending.pop(p, None)
            if store is not None:
                remove_last(self.b.ops, store)

    def visit_update(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """Keep an atomic op. It reads its location and leaves an unknown value there."""
        place = self.place(args[0])
        self.read(place)
        self.known.forget(place)
        return self.walk.keep(op, args).results

    def visit_local(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        new = self.walk.keep(op, args)
        self.known.learn(self.place(new), KnownElement(args[0]))
        return new.results

    def visit_sync(self, op: Op, args: tuple[Value, ...]) -> None:
        """Forget all memory but private variables. Stores before a synchronization are live."""
        self.forget_changes(SideEffects(sync=True))
        self.pending.clear()

    def visit_exit(self, op: Op, args: tuple[Value, ...]) -> None:
        self.pending.clear()

    # --- control

    def visit_if(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """Propagate facts into both regions; keep those that neither invalidates."""
        results = self.visit_regions(op, args)
        self.forget_changes(self.changes_of(op))
        return results

    def visit_loop(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """Drop the facts that the loop may invalidate, then propagate the rest into it."""
        self.forget_changes(self.changes_of(op))
        return self.visit_regions(op, args)

    def visit_parallel(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """Drop all facts, then rewrite the region."""
        self.known = KnownMemory()
        return self.visit_regions(op, args)

    def visit_regions(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """Rewrite the regions, each with a copy of the current facts.

        Stores that no region may read stay pending.
        """
        pending = self.pending
        if pending:
            changes = self.changes_of(op)
            pending = {p: store for p, store in pending.items() if not changes.may_read(p)}
        regions = []
        for region in op.regions:
            self.pending = {}
            self.known.open()
            regions.append(self.walk.region(region))
            self.known.close()
        self.pending = pending
        unchanged = args == op.args and tuple(regions) == op.regions
        new = op if unchanged else self.walk.copy(op, args, tuple(regions))
        return self.b.insert(new).results


class DeadStoreEliminator(StoreForwarder):
    """Dead-store elimination only: nothing is known about memory.

    A store of the value already in memory stays, because it marks the location as written.
    """

    def value_at(self, place: MemoryLocation, t: Type) -> None:
        pass

    def element_before(self, place: MemoryLocation) -> KnownElement:
        return KnownElement()


def remove_last(ops: list[Op], op: Op) -> None:
    at = next(k for k in range(len(ops) - 1, -1, -1) if ops[k] is op)
    del ops[at]


def stands_already(element: KnownElement, component: Component, v: Value) -> bool:
    if component is not None:
        known = element.part(component)
    else:
        known = None if element.parts else element.whole
    return known is not None and is_equal_value(known, v)


VISITS: dict[str, Callable[[StoreForwarder, Op, tuple[Value, ...]], Sequence[Value] | None]] = {
    "load": StoreForwarder.visit_load,
    "store": StoreForwarder.visit_store,
    "local": StoreForwarder.visit_local,
    "if": StoreForwarder.visit_if,
    "for": StoreForwarder.visit_loop,
    "while": StoreForwarder.visit_loop,
    "parallel": StoreForwarder.visit_parallel,
    **dict.fromkeys(UPDATES, StoreForwarder.visit_update),
    **dict.fromkeys(SYNCS, StoreForwarder.visit_sync),
    **dict.fromkeys(EXITS, StoreForwarder.visit_exit),
}


# --- values known to be in memory ----------------------------------------------------------------
#
# `open` begins a scope; `close` restores the facts from before. That takes time proportional to the
# bases that changed in the scope.
#
#     known = KnownMemory(); known.learn(place, KnownElement(v)); known.element(place).whole    # v


Component = int | Value | None
MOST_KNOWN = 64  # elements of one base; the limit keeps the pass linear


class KnownElement(NamedTuple):
    """Known values of one element: the whole, and components, which take precedence."""

    whole: Value | None = None
    parts: tuple[tuple[int | Value, Value], ...] = ()

    def part(self, component: int | Value) -> Value | None:
        return next((v for k, v in self.parts if k == component), None)

    def loaded(self, component: Component, v: Value) -> KnownElement:
        """Return the facts after v was loaded from a component, or the whole element (None)."""
        if component is None:
            return KnownElement(v)
        return KnownElement(self.whole, (*self.parts, (component, v)))

    def stored(self, component: Component, v: Value) -> KnownElement:
        """Return the facts after v was stored to a component, or to the whole element (None)."""
        if component is None:
            return KnownElement(v)
        if not isinstance(component, int):
            return KnownElement(None, ((component, v),))
        return KnownElement(self.whole, (*self.certain_parts(component), (component, v)))

    def changed(self, component: Component) -> KnownElement:
        """Return the facts after an unknown value was stored to a component, or to the whole
        element (None)."""
        return KnownElement(
            None, self.certain_parts(component) if isinstance(component, int) else ()
        )

    def certain_parts(self, changed: int) -> tuple[tuple[int | Value, Value], ...]:
        return tuple([(k, v) for k, v in self.parts if isinstance(k, int) and k != changed])


NOTHING = KnownElement()
Elements = dict[tuple[OffsetIndex, ...], KnownElement]


class KnownMemory:
    """Known elements by base. `_before` has an entry per scope: the earlier facts of the bases that
    it changed."""

    def __init__(self) -> None:
        self._elements: dict[Value, Elements] = {}
        self._before: list[dict[Value, Elements]] = [{}]
        self._visible: dict[Value, None] = {}  # bases that other invocations or aliases may write

    def open(self) -> None:
        self._before.append({})

    def close(self) -> None:
        self._elements.update(self._before.pop())

    def _own(self, base: Value) -> Elements:
        """Return the elements of a base, copied on the first change in this scope."""
        before, elements = self._before[-1], self._elements.get(base, {})
        if base not in before:
            before[base] = elements
            elements = self._elements[base] = dict(elements)
            if is_visible(base):
                self._visible[base] = None
        return elements

    def element(self, place: MemoryLocation) -> KnownElement:
        elements = self._elements.get(place.base)
        return NOTHING if elements is None else elements.get(place.indices, NOTHING)

    def learn(self, place: MemoryLocation, element: KnownElement) -> None:
        """Record the values of the element that contains a location. Beyond MOST_KNOWN elements of
        its base, the oldest is dropped."""
        elements = self._own(place.base)
        elements[place.indices] = element
        if len(elements) > MOST_KNOWN:
            del elements[next(iter(elements))]

    def forget(self, place: MemoryLocation) -> None:
        """Invalidate everything that may alias a location, after a write of an unknown value to it.
        Components at other constant indices of its element stay known."""
        self.forget_others(place)
        elements = self._elements.get(place.base)
        if elements and place.indices in elements:
            self.learn(place, elements[place.indices].changed(place.component))

    def forget_others(self, place: MemoryLocation) -> None:
        """Invalidate the other elements that may alias a written location, in this base and in
        other bases."""
        elements = self._elements.get(place.base, {})
        met = [k for k in elements if k != place.indices and not are_distinct(k, place.indices)]
        for index in met:
            del self._own(place.base)[index]
        if is_visible(place.base):
            self._forget_bases(
                [b for b in self._visible if b is not place.base and bases_may_alias(b, place.base)]
            )

    def forget_visible(self) -> None:
        """Invalidate all memory except private variables."""
        self._forget_bases(list(self._visible))

    def _forget_bases(self, bases: list[Value]) -> None:
        for base in bases:
            if self._elements.get(base):
                self._own(base).clear()
