"""What is known to stand in memory at a point of the program: values of elements and components.

Regions open a scope, and closing it brings back what was known before. That takes time for what
changed inside alone, however much is known, and so does a write: memory of an invocation's own,
which is most of what gradients use, meets nothing else.

Owns: the facts and their scopes. Must not know: ops.

    known = Known(); known.learn(place, Element(v)); known.element(place).whole    # v
"""

from __future__ import annotations

from vkchi.analysis.alias import Place, are_distinct, is_visible, may_share
from vkchi.analysis.sums import Index
from vkchi.ir.core import Value
from vkchi.tuples import NamedTuple

Component = int | Value | None
MOST_KNOWN = 64  # elements of one base: large kernels stay linear


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
Elements = dict[tuple[Index, ...], Element]


class Known:
    """Elements by base. `_before`: a scope each, what was known of the bases that it changed."""

    def __init__(self) -> None:
        self._elements: dict[Value, Elements] = {}
        self._before: list[dict[Value, Elements]] = [{}]
        self._visible: dict[Value, None] = {}  # bases that others, or other bases, may write

    def open(self) -> None:
        """Begin a scope."""
        self._before.append({})

    def close(self) -> None:
        """End the scope: what is known is what was at its beginning."""
        self._elements.update(self._before.pop())

    def _own(self, base: Value) -> Elements:
        """The elements of a base, to be changed in this scope."""
        before, elements = self._before[-1], self._elements.get(base, {})
        if base not in before:
            before[base] = elements
            elements = self._elements[base] = dict(elements)
            if is_visible(base):
                self._visible[base] = None
        return elements

    def element(self, place: Place) -> Element:
        """What is known of the element that the place lies in."""
        elements = self._elements.get(place.base)
        return NOTHING if elements is None else elements.get(place.indices, NOTHING)

    def learn(self, place: Place, element: Element) -> None:
        """This is known now of the element that the place lies in."""
        elements = self._own(place.base)
        elements[place.indices] = element
        if len(elements) > MOST_KNOWN:
            del elements[next(iter(elements))]

    def forget(self, place: Place) -> None:
        """Something unknown was written to the place, so to all places it may be."""
        self.forget_others(place)
        elements = self._elements.get(place.base)
        if elements and place.indices in elements:
            self.learn(place, elements[place.indices].changed(place.component))

    def forget_others(self, place: Place) -> None:
        """Something was written to the place, which other elements may be."""
        elements = self._elements.get(place.base, {})
        met = [k for k in elements if k != place.indices and not are_distinct(k, place.indices)]
        for index in met:
            del self._own(place.base)[index]
        if is_visible(place.base):
            self._forget_bases(
                [b for b in self._visible if b is not place.base and may_share(b, place.base)]
            )

    def forget_visible(self) -> None:
        """Others' writes appear."""
        self._forget_bases(list(self._visible))

    def _forget_bases(self, bases: list[Value]) -> None:
        for base in bases:
            if self._elements.get(base):
                self._own(base).clear()
