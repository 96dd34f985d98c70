"""Available memory values at a program point, for store-to-load forwarding.

`open` begins a scope; `close` restores the facts from before. That takes time proportional to the
bases that changed in the scope.

    known = KnownMemory(); known.learn(place, KnownElement(v)); known.element(place).whole    # v
"""

from __future__ import annotations

from vkchi.analysis.memory.alias import MemoryLocation, are_distinct, bases_may_alias, is_visible
from vkchi.analysis.values.polynomials import OffsetIndex
from vkchi.ir.core import Value
from vkchi.tuples import NamedTuple

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
