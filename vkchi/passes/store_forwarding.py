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

Owns: the facts. Must not know: which op makes which pointer.

    store %p, %a; %b = load %p; store %q, %b    ->    store %p, %a; store %q, %a
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from vkchi.analysis.alias import (
    EXITS,
    SYNCS,
    Changes,
    ChangeTable,
    Index,
    Place,
    are_distinct,
    is_visible,
    may_alias,
    may_share,
    place_of,
)
from vkchi.ir.builder import Builder
from vkchi.ir.constants import is_same
from vkchi.ir.core import Func, Op, Value
from vkchi.ir.ops import UPDATES
from vkchi.ir.rebuild import Rebuilder
from vkchi.types import Ptr, Tensor, Type

Component = int | Value | None


class Element(NamedTuple):
    """What is known of one element: a whole value, and components, which count more than it."""

    whole: Value | None = None
    parts: tuple[tuple[int | Value, Value], ...] = ()

    def part(self, component: int | Value) -> Value | None:
        """The value of a component that is known by itself."""
        return next((v for k, v in self.parts if k == component), None)

    def loaded(self, component: Component, v: Value) -> Element:
        """After v was found there."""
        if component is None:
            return Element(v)
        return Element(self.whole, (*self.parts, (component, v)))

    def stored(self, component: Component, v: Value) -> Element:
        """After v was put there."""
        if component is None:
            return Element(v)
        if not isinstance(component, int):
            return Element(None, ((component, v),))
        return Element(self.whole, (*self.certain_parts(component), (component, v)))

    def changed(self, component: Component) -> Element:
        """After something unknown was put there."""
        return Element(None, self.certain_parts(component) if isinstance(component, int) else ())

    def certain_parts(self, changed: int) -> tuple[tuple[int | Value, Value], ...]:
        """The parts that surely are not the changed component."""
        return tuple([(k, v) for k, v in self.parts if isinstance(k, int) and k != changed])


NOTHING = Element()
MOST_KNOWN = 64  # elements of one base, and pending stores: large kernels stay linear
Facts = dict[Value, dict[tuple[Index, ...], Element]]


def forward_memory(fn: Func) -> Func:
    """The Func with loads and stores that repeat what is known removed."""
    body = Forwarder().walk.region(fn.body)
    return fn if body is fn.body else Func(fn.name, fn.params, body, fn.span)


class Forwarder:
    """One run. `facts` hold where we stand; `pending` are stores that nothing has read yet."""

    def __init__(self) -> None:
        self.walk = Rebuilder(self.visit)
        self.b = self.walk.b
        self.changes = ChangeTable()
        self.places: dict[Value, Place] = {}
        self.facts: Facts = {}
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

    def element(self, place: Place) -> Element:
        """What is known of the element that the place lies in."""
        return self.facts.get(place.base, {}).get(place.indices, NOTHING)

    def learn(self, place: Place, element: Element) -> None:
        """This is known now of the element that the place lies in."""
        elements = self.facts.setdefault(place.base, {})
        elements[place.indices] = element
        if len(elements) > MOST_KNOWN:
            del elements[next(iter(elements))]

    def forget(self, place: Place) -> None:
        """Something unknown was written to the place, so to all places it may be."""
        self.forget_others(place)
        elements = self.facts.get(place.base)
        if elements and place.indices in elements:
            elements[place.indices] = elements[place.indices].changed(place.component)

    def forget_others(self, place: Place) -> None:
        """Something was written to the place, which other elements may be."""
        for base, elements in self.facts.items():
            if base is place.base:
                met = [
                    k for k in elements if k != place.indices and not are_distinct(k, place.indices)
                ]
                for index in met:
                    del elements[index]
            elif may_share(base, place.base):
                elements.clear()

    def forget_changes(self, changes: Changes) -> None:
        """What other ops may change is not known any more."""
        for place in changes.writes:
            self.forget(place)
        if changes.sync:
            self.facts = {b: e for b, e in self.facts.items() if not is_visible(b)}

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
        v = self.known(place, args[0].type)
        if v is None:
            v = self.walk.keep(op, args)
            self.read(place)
            self.learn(place, self.element(place).loaded(place.component, v))
        return (v,)

    def known(self, place: Place, t: Type) -> Value | None:
        """The value at a place, made of what is known of the element."""
        element = self.element(place)
        if place.component is None:
            assert isinstance(t, Ptr)
            return self.known_whole(element, t.elem)
        v = element.part(place.component)
        if v is None and element.whole is not None and isinstance(place.component, int):
            v = self.b.emit("extract", element.whole, attr=place.component)
        return v

    def known_whole(self, element: Element, t: Type) -> Value | None:
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
        element = self.element(place)
        if stands_already(element, place.component, v):
            return ()
        self.drop_covered(place)
        self.forget_others(place)
        self.learn(place, element.stored(place.component, v))
        self.pending[place] = self.walk.keep(op, args)
        if len(self.pending) > MOST_KNOWN:
            del self.pending[next(iter(self.pending))]
        return ()

    def drop_covered(self, place: Place) -> None:
        """Remove pending stores that a store to the place covers."""
        covered = [place]
        if place.component is None:
            covered = [p for p in self.pending if p[:2] == place[:2]]
        for p in covered:
            store = self.pending.pop(p, None)
            if store is not None:
                self.b.ops.remove(store)

    def visit_update(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """An atomic op reads the place, and leaves something unknown there."""
        place = self.place(args[0])
        self.read(place)
        self.forget(place)
        return self.walk.keep(op, args).results

    def visit_local(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """A new place holds its first value."""
        new = self.walk.keep(op, args)
        self.learn(self.place(new), Element(args[0]))
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
        self.facts = {}
        return self.visit_regions(op, args)

    def visit_regions(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value]:
        """Rewrite the regions, each from the facts as they are here, which stay. Stores that no
        region reads stay pending."""
        changes = self.changes_of(op)
        pending = {p: store for p, store in self.pending.items() if not changes.may_read(p)}
        outside = self.facts
        regions = []
        for region in op.regions:
            self.pending = {}
            self.facts = {base: dict(elements) for base, elements in outside.items()}
            regions.append(self.walk.region(region))
        self.facts, self.pending = outside, pending
        unchanged = args == op.args and tuple(regions) == op.regions
        new = op if unchanged else self.walk.copy(op, args, tuple(regions))
        return self.b.insert(new).results


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
