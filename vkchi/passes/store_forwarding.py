"""Forwards values through memory: what is certain to stand at a place is not loaded again.

- After `store p, v` and after `v = load p`, a `load p` is v, until something may write p.
- Whole elements and components know of each other: after a store of a vector, loading a component
  is an `extract`; after stores of all components, loading the vector is a `pack`.
- A store of what stands there already is removed, and so is a store that another one in its region
  covers before anything may have read it.
- Facts enter the regions of `if`; they enter loops if nothing in the loop may change them. What is
  learned inside stays inside. A `parallel` starts with none: its invocations are others.

`alias` says what may be the same place and what another invocation may do in between. Removing
loads and stores between synchronisations is allowed: kernels promise nothing about races.

Owns: what is done with what is known (`known_memory`). Must not know: which op makes which pointer.

    store %p, %a; %b = load %p; store %q, %b    ->    store %p, %a; store %q, %a
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkchi.analysis.alias import (
    EXITS,
    Changes,
    ChangeTable,
    Place,
    may_alias,
    place_of,
)
from vkchi.ir.builder import Builder
from vkchi.ir.constants import is_same
from vkchi.ir.core import Func, Op, Value
from vkchi.ir.ops import SYNCS, UPDATES
from vkchi.ir.rebuild import Rebuilder
from vkchi.passes.known_memory import Component, Element, Known
from vkchi.types import Ptr, Tensor, Type

MOST_PENDING = 64  # stores: large kernels stay linear


def forward_memory(fn: Func) -> Func:
    """The Func with loads and stores that repeat what is known removed."""
    return Forwarder().walk.run(fn)


def remove_dead_stores(fn: Func) -> Func:
    """The Func without stores that another one in their region covers before anything may have read
    them. Loads stay."""
    return Clearer().walk.run(fn)


class Forwarder:
    """One run. `known` holds where we stand; `pending` are stores that nothing has read yet."""

    def __init__(self) -> None:
        self.walk = Rebuilder(self.visit)
        self.b = self.walk.b
        self.changes = ChangeTable()
        self.places: dict[Value, Place] = {}
        self.known = Known()
        self.pending: dict[Place, Op] = {}

    def visit(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """What stands for the op's results, or None to keep it."""
        visit = VISITS.get(op.kind)
        return None if visit is None else visit(self, op, args)

    def place(self, ptr: Value) -> Place:
        """The place of a pointer, remembered."""
        found = self.places.get(ptr)
        if found is None:
            found = self.places[ptr] = place_of(ptr)
        return found

    def forget_changes(self, changes: Changes) -> None:
        """What other ops may change is not known any more."""
        for place in changes.writes:
            self.known.forget(place)
        if changes.sync:
            self.known.forget_visible()

    def changes_of(self, op: Op) -> Changes:
        """The changes that a control op makes, to the places that stand here for those it names: a
        `local` whose first value was replaced is another op now. (Indices may keep old names: what
        does not compare may be the same.)"""
        found, get = self.changes.of(op.regions), self.walk.map.get
        if self.walk.map.keys().isdisjoint(p.base for p in (*found.writes, *found.reads)):
            return found
        writes, reads = (
            tuple([p._replace(base=get(p.base, p.base)) for p in places])
            for places in (found.writes, found.reads)
        )
        return found._replace(writes=writes, reads=reads)

    def read(self, place: Place) -> None:
        """The place was read: stores that may be there are wanted."""
        if self.pending:
            wanted = [p for p in self.pending if may_alias(p, place)]
            for p in wanted:
                del self.pending[p]

    # --- ops

    def visit_load(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """The value that is known to stand there, or the load."""
        place = self.place(args[0])
        v = self.value_at(place, args[0].type)
        if v is None:
            v = self.walk.keep(op, args)
            self.read(place)
            self.known.learn(place, self.known.element(place).loaded(place.component, v))
        return (v,)

    def value_at(self, place: Place, t: Type) -> Value | None:
        """The value at a place, made of what is known of the element."""
        element = self.known.element(place)
        if place.component is None:
            assert isinstance(t, Ptr)
            return self.whole_value(element, t.elem)
        v = element.part(place.component)
        if v is None and element.whole is not None and isinstance(place.component, int):
            v = self.b.emit("extract", element.whole, attr=place.component)
        return v

    def whole_value(self, element: Element, t: Type) -> Value | None:
        """The whole value of an element of type t."""
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
        """Nothing if the value stands there already; else the store, and what it covers goes."""
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

    def element_before(self, place: Place) -> Element:
        """What is known of the element before a store."""
        return self.known.element(place)

    def drop_covered(self, place: Place) -> None:
        """Remove pending stores that a store to the place covers."""
        covered = [place]
        if place.component is None:
            covered = [p for p in self.pending if p[:2] == place[:2]]
        for p in covered:
            store = self.pending.pop(p, None)
            if store is not None:
                remove_last(self.b.ops, store)

    def visit_update(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """An atomic op reads the place, and leaves something unknown there."""
        place = self.place(args[0])
        self.read(place)
        self.known.forget(place)
        return self.walk.keep(op, args).results

    def visit_local(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """A new place holds its first value."""
        new = self.walk.keep(op, args)
        self.known.learn(self.place(new), Element(args[0]))
        return new.results

    def visit_sync(self, op: Op, args: tuple[Value, ...]) -> None:
        """Others' writes appear, ours are seen."""
        self.forget_changes(Changes(sync=True))
        self.pending.clear()

    def visit_exit(self, op: Op, args: tuple[Value, ...]) -> None:
        """What was written is seen if the invocation ends here."""
        self.pending.clear()

    # --- control

    def visit_if(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """Facts enter both regions; what neither may change stays known behind."""
        results = self.visit_regions(op, args)
        self.forget_changes(self.changes_of(op))
        return results

    def visit_loop(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """What the loop may change is not known from its beginning on."""
        self.forget_changes(self.changes_of(op))
        return self.visit_regions(op, args)

    def visit_parallel(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """Nothing is known, inside and behind."""
        self.known = Known()
        return self.visit_regions(op, args)

    def visit_regions(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """Rewrite the regions, each from the facts as they are here, which stay. Stores that no
        region reads stay pending."""
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


class Clearer(Forwarder):
    """The same, where nothing is known of what stands anywhere. A store of what stands there stays:
    it says that somebody has put it there."""

    def value_at(self, place: Place, t: Type) -> None:
        """Not known."""

    def element_before(self, place: Place) -> Element:
        """Nothing."""
        return Element()


def remove_last(ops: list[Op], op: Op) -> None:
    """Take an op out of a list that it stands near the end of."""
    at = next(k for k in range(len(ops) - 1, -1, -1) if ops[k] is op)
    del ops[at]


def stands_already(element: Element, component: Component, v: Value) -> bool:
    """Whether storing v there changes nothing."""
    if component is not None:
        known = element.part(component)
    else:
        known = None if element.parts else element.whole
    return known is not None and is_same(known, v)


VISITS: dict[str, Callable[[Forwarder, Op, tuple[Value, ...]], Sequence[Value] | None]] = {
    "load": Forwarder.visit_load,
    "store": Forwarder.visit_store,
    "local": Forwarder.visit_local,
    "if": Forwarder.visit_if,
    "for": Forwarder.visit_loop,
    "while": Forwarder.visit_loop,
    "parallel": Forwarder.visit_parallel,
    **dict.fromkeys(UPDATES, Forwarder.visit_update),
    **dict.fromkeys(SYNCS, Forwarder.visit_sync),
    **dict.fromkeys(EXITS, Forwarder.visit_exit),
}
