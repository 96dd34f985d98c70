"""Scalar replacement of array elements: one load before, one store after.

    if c { x[i] = x[i] / m }; x[i] = x[i] - g; if x[i] < 0 { x[i] = 0 }
becomes
    v = x[i]; if c { v = v / m }; v = v - g; if v < 0 { v = 0 }; x[i] = v

Drivers keep private variables in registers, across any control flow; `forward` keeps no value from
inside a branch or loop. An element is replaced for a whole iteration of a `parallel` if

- the iteration only loads and stores the array's memory, at this element or at distinct ones;
- no other iteration accesses the element (`analysis.memory.dependence`), so that writing back an
  unchanged value is harmless;
- a serial loop loads and stores it, or it is stored outside of `if`s and loops, and accessed often
  enough;
- it is stored outside of `if`s and loops, or writing it back cannot reach another element: with
  several axes, an index out of range may have the offset of one that another iteration writes;
- nothing in the iteration synchronizes, reports, or may end it.

    >>> promote_elements(fn)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vkchi.analysis.memory.alias import are_distinct, bases_may_alias, location_of
from vkchi.analysis.memory.dependence import DependenceTest
from vkchi.analysis.parallel_loops import keeps_order
from vkchi.analysis.values.polynomials import OffsetIndex
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Region, Value, base_memory, walk, walk_ops
from vkchi.ir.ops import ACCESSES, COMPONENTS, LOOPS, PLAIN_ACCESSES, WRITES
from vkchi.ir.rebuild import Rebuilder
from vkchi.target import tuning
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Ptr, Tensor


class ElementAccess(NamedTuple):
    """A load or store, the `elem` of its address, and the op of the body that contains it."""

    op: Op
    outer: Op
    elem: Op

    @property
    def is_plain(self) -> bool:
        """True if every iteration executes the access exactly once."""
        return self.op is self.outer


class ReplacedElement(NamedTuple):
    """An element to replace, with its accesses.

    It is loaded before op `start`, and written back at the end if there are stores. `attr` is
    "inbounds" if an unconditional address of it is proved in range.
    """

    accesses: Sequence[ElementAccess]
    start: Op
    array: Value
    indices: tuple[Value, ...]
    attr: str | None

    @property
    def is_written(self) -> bool:
        return any(a.op.kind in WRITES for a in self.accesses)


Groups = dict[tuple[OffsetIndex, ...], list[ElementAccess]]


def promote_elements(fn: Func) -> Func:
    """Replace array elements in parallel loops by private variables, where legal and profitable."""
    loops = [op for op in fn.body.ops if op.kind == "parallel"]
    for loop in loops:
        found = find_elements(loop)
        if found:
            fn = promote(fn, loop.regions[0], found)
    return fn


# --- legality and profitability ------------------------------------------------------------------


def find_elements(loop: Op) -> list[ReplacedElement]:
    body = loop.regions[0]
    if keeps_order(body):
        return []
    touched: dict[Value, list[ElementAccess] | None] = {}
    for base, access in accesses_of(body):
        so_far = touched.setdefault(base, [])
        if access is None or so_far is None:
            touched[base] = None
        else:
            so_far.append(access)
    groups = {base: by_place(accesses) for base, accesses in touched.items() if accesses}
    worth = [base for base, of in groups.items() if any(map(is_worth_it, of.values()))]
    alone = [b for b in worth if not any(o is not b and bases_may_alias(o, b) for o in touched)]
    if not alone:
        return []
    survey = DependenceTest(body.ops, loop)
    return [e for base in alone for e in elements_of(base, groups[base], survey, body)]


def by_place(accesses: Sequence[ElementAccess]) -> Groups:
    groups: Groups = {}
    for access in accesses:
        groups.setdefault(location_of(access.elem).indices, []).append(access)
    return groups


def accesses_of(body: Region) -> Iterator[tuple[Value, ElementAccess | None]]:
    """Yield each array access of a body as (array, access).

    The access is None if it is not a plain load or store of an element.
    """
    for outer in body.ops:
        for op in walk_ops([outer]):
            if op.kind not in ACCESSES:
                continue
            base = base_memory(op.args[0])
            if not isinstance(base.type, Array):
                continue
            place = op.args[0]
            while isinstance(place, Op) and place.kind in COMPONENTS:
                place = place.args[0]
            is_plain = op.kind in PLAIN_ACCESSES and isinstance(place, Op)
            plain = is_plain and isinstance(place, Op) and place.kind == "elem"
            yield base, ElementAccess(op, outer, place) if plain and isinstance(place, Op) else None


def elements_of(
    base: Value, groups: Groups, survey: DependenceTest, body: Region
) -> Iterator[ReplacedElement]:
    writes = [a.op.args[0] for of in groups.values() for a in of if a.op.kind in WRITES]
    if not writes or not survey.is_private(base, writes):
        return
    made = {v for op in body.ops for v in op.results} | set(body.params)
    inner = {v for op in walk(body) for v in op.results} | params_inside(body)
    for indices, group in groups.items():
        others = (i for i in groups if i is not indices)
        first = group[0].elem
        if (
            is_worth_it(group)
            and all(are_distinct(indices, other) for other in others)
            and all(v in made or v not in inner for v in first.args[1:])
            and inner.issuperset(a.elem for a in group)  # not defined before the loop
        ):
            elems = {a.elem for a in group}
            plain = [op for op in body.ops if op in elems]
            start = next((op for op in body.ops if holds(op, elems)), None)
            if start is None:  # defined before the loop, which has one iteration
                continue
            attr = "inbounds" if any(op.attr == "inbounds" for op in plain) else None
            if not (attr or len(indices) < 2 or any(map(is_plain_store, group))):
                continue
            yield ReplacedElement(group, start, base, first.args[1:], attr)


def params_inside(body: Region) -> set[Value]:
    return {p for op in walk(body) for region in op.regions for p in region.params}


def holds(op: Op, wanted: set[Op]) -> bool:
    return any(x in wanted for x in walk_ops([op]))


def is_plain_store(access: ElementAccess) -> bool:
    return access.is_plain and access.op.kind == "store"


def is_worth_it(group: Sequence[ElementAccess]) -> bool:
    """True if replacing an element is profitable.

    It is if a serial loop loads and stores it. Otherwise it needs PROMOTE_ACCESSES accesses, at
    least one under control flow and one unconditional store. The accesses must use at least half of
    its components, or the whole element, or a dynamic component index.
    """
    if not PLAIN_ACCESSES.issubset(a.op.kind for a in group if a.outer.kind in LOOPS):
        if len(group) < tuning.PROMOTE_ACCESSES or all(a.is_plain for a in group):
            return False
        if not any(map(is_plain_store, group)):
            return False
    t = group[0].elem.type
    assert isinstance(t, Ptr)
    if not isinstance(t.elem, Tensor):
        return True
    parts = {location_of(a.op.args[0]).component for a in group}
    return any(not isinstance(c, int) for c in parts) or 2 * len(parts) >= t.elem.size


# --- rewriting -----------------------------------------------------------------------------------


def promote(fn: Func, body: Region, elements: Sequence[ReplacedElement]) -> Func:
    starts: dict[Op, list[ReplacedElement]] = {}
    for element in elements:
        starts.setdefault(element.start, []).append(element)
    of_elem = {a.elem: element for element in elements for a in element.accesses}
    places: dict[int, Op] = {}

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        for element in starts.get(op, ()):
            places[id(element)] = open_place(walker, element)
        if op is body.ops[-1]:
            for element in elements:
                if element.is_written:
                    b.emit(
                        "store", find_place(walker, element), b.emit("load", places[id(element)])
                    )
        if op in of_elem:
            return [places[id(of_elem[op])]]
        if op.kind in COMPONENTS and args[0] is not op.args[0]:
            return [b.emit(op.kind, *args, attr=op.attr, name=op.name)]
        return None

    walker = Rebuilder(visit)
    return Func(fn.name, fn.params, walker.region(fn.body), fn.span)


def find_place(r: Rebuilder, element: ReplacedElement) -> Op:
    array, *indices = [r.map.get(v, v) for v in (element.array, *element.indices)]
    return r.b.emit("elem", array, *indices, attr=element.attr)


def open_place(r: Rebuilder, element: ReplacedElement) -> Op:
    r.b.span = element.accesses[0].op.span
    name = element.accesses[0].elem.name
    return r.b.emit("local", r.b.emit("load", find_place(r, element)), name=name)
