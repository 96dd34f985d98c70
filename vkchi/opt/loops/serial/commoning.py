"""Predictive commoning: reuse in a serial loop of values loaded in the previous iteration.

    for q { x[q] * a + x[q + 1] * b }
becomes
    v = x[begin]
    for q, v { w = x[q + 1]; v * a + w * b; yield w }

Loads form a chain if each accesses, one iteration later, the element of the next load
(`analysis.values.polynomials`). The loop must not write the array. The values for the first
iteration are loaded before the loop. These loads are bounds-checked, unless the loop is known to
run and the original loads are proved in range.

    >>> common_loads(fn)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce

from vkchi.analysis.memory.alias import SideEffectTable, location_of
from vkchi.analysis.values.polynomials import (
    AffinePolynomials,
    Polynomial,
    constant_of,
    factor_of,
    terms_of,
)
from vkchi.ir.core import Func, Op, Param, Value, constant_int, walk
from vkchi.ir.ops import axes_of
from vkchi.ir.rebuild import Rebuilder, rebuild_chosen
from vkchi.target import tuning
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, Tensor, scalar_of


class ChainedLoad(NamedTuple):
    """A load in a loop, with its indices as polynomials. `at`: the number of iterations after which
    the first load of its group (`chains_of`) accesses the same element; it may be negative."""

    op: Op
    forms: tuple[Polynomial, ...]
    at: int = 0

    @property
    def elem(self) -> Op:
        (place,) = self.op.args
        assert isinstance(place, Op)
        return place


# Loads of consecutive elements, one iteration apart; the last one is new in each iteration.
Chain = list[ChainedLoad]


def common_loads(fn: Func) -> Func:
    """Carry loaded values from one iteration of a serial loop to the next."""
    changes = SideEffectTable()
    return rebuild_chosen(fn, "for", lambda loop: find_chains(loop, changes), carry)


# --- which ---------------------------------------------------------------------------------------


def find_chains(loop: Op, changes: SideEffectTable) -> list[Chain]:
    """Return the chains of at least two loads in a loop whose values can be reused, up to
    COMMONING_CARRIED carried scalars."""
    loads = loads_of_several(loop)
    if not loads:
        return []
    (axis,) = axes_of(loop)
    groups: dict[object, list[ChainedLoad]] = {}
    inner = {v for op in walk(loop.regions[0]) for v in op.results} | set(loop.regions[0].params)
    made = changes.of(loop.regions)
    for op in loads:
        load = moving_load(op, axis.param, inner)
        if load is not None and not made.may_change(location_of(op.args[0])._replace(indices=())):
            key = (load.elem.args[0], *[frozenset(terms_of(f).items()) for f in load.forms])
            groups.setdefault(key, []).append(load)
    chains = [c for g in groups.values() if len(g) > 1 for c in chains_of(g, axis.param)]
    return limited(chains)


def loads_of_several(loop: Op) -> list[Op]:
    """Return the loads of array elements directly in a loop's body, of arrays with more than one
    such load."""
    loads = [
        (op, place.args[0])
        for op in loop.regions[0].ops
        if op.kind == "load" and isinstance(place := op.args[0], Op) and place.kind == "elem"
    ]
    count = Counter(array for _, array in loads)
    return [op for op, array in loads if count[array] > 1]


def moving_load(op: Op, index: Param, inner: set[Value]) -> ChainedLoad | None:
    """Return the load with its indices as polynomials, if they are multiples of the loop's index
    plus invariants, at least one multiple not zero; else None."""
    (place,) = op.args
    assert isinstance(place, Op)
    if not all(isinstance(v.type, Scalar) for v in place.args[1:]):
        return None
    forms = tuple(map(AffinePolynomials().of, place.args[1:]))
    if not any(factor_of(index, f) for f in forms):
        return None
    if any(v in inner and v is not index for f in forms for v in terms_of(f)):
        return None
    return ChainedLoad(op, forms)


def chains_of(group: Sequence[ChainedLoad], index: Param) -> list[Chain]:
    """Return the chains in a group of loads whose indices differ in constants. The elements of a
    chain, at least two, are one iteration apart."""
    first = group[0]
    found: dict[int, ChainedLoad] = {}
    for load in group:
        at = rounds_apart(first, load, index)
        if at is not None:
            found.setdefault(at, load._replace(at=at))
    chains: list[Chain] = []
    for at in sorted(found):
        if chains and chains[-1][-1].at == at - 1:
            chains[-1].append(found[at])
        else:
            chains.append([found[at]])
    return [chain for chain in chains if len(chain) > 1]


def rounds_apart(a: ChainedLoad, b: ChainedLoad, index: Param) -> int | None:
    """Return the number of iterations after which `a` accesses the element of `b`, negative if
    before; or None if there is no such number."""
    found: set[int] = set()
    for f, g in zip(a.forms, b.forms):
        step, distance = factor_of(index, f), constant_of(g) - constant_of(f)
        if not step and distance:
            return None
        if step:
            if distance % step:
                return None
            found.add(distance // step)
    return found.pop() if len(found) == 1 else None


def limited(chains: list[Chain]) -> list[Chain]:
    kept: list[Chain] = []
    left = tuning.COMMONING_CARRIED
    for chain in chains:
        t = chain[0].op.type
        left -= (len(chain) - 1) * (t.size if isinstance(t, Tensor) else 1)
        if left < 0:
            break
        kept.append(chain)
    return kept


# --- form ----------------------------------------------------------------------------------------


def carry(
    r: Rebuilder, loop: Op, args: Sequence[Value], chains: Sequence[Chain]
) -> Sequence[Value]:
    """Append the loop with a carried value for each load of a chain but the last; return the
    results of the original loop."""
    b, (body,) = r.b, loop.regions
    first: list[Value] = []
    params: list[Param] = []
    for chain in chains:
        for load in chain[:-1]:
            first.append(load_first(r, loop, load, args[0]))
            params.append(Param(load.op.type, load.op.name))
    ahead = {load.op: p for load, p in zip([x for c in chains for x in c[:-1]], params)}
    with r.inside(*body.params, *params) as region:
        for op in body.ops[:-1]:
            if op in ahead:
                r.map[op] = ahead[op]
            else:
                r.ops([op])
        following = [x.op for chain in chains for x in chain[1:]]
        b.emit("yield", *[r.map.get(v, v) for v in (*body.yielded, *following)])
    return b.for_(args[0], args[1], (*args[2:], *first), region, loop.attr).results[
        : len(loop.results)
    ]


def load_first(r: Rebuilder, loop: Op, load: ChainedLoad, begin: Value) -> Value:
    b, (axis,) = r.b, axes_of(loop)
    b.span = load.op.span
    indices = [sum_at(r, f, axis.param, begin, scalar_of(v.type))
               for f, v in zip(load.forms, load.elem.args[1:])]  # fmt: skip
    array = load.elem.args[0]
    place = b.emit("elem", array, *indices, attr=load.elem.attr if axis.length else None)
    return b.emit("load", place)


def sum_at(r: Rebuilder, form: Polynomial, index: Param, begin: Value, t: Scalar) -> Value:
    """Append a polynomial, with `begin` in place of the loop's index."""
    b = r.b
    parts: list[Value] = []
    for v, n in terms_of(form).items():
        x = begin if v is index else r.map.get(v, v)
        if constant_int(x) != 0:
            parts.append(x if n == 1 else b.emit("mul", x, b.const(n, t)))
    if constant_of(form) or not parts:
        parts.append(b.const(constant_of(form), t))
    return reduce(lambda x, y: b.emit("add", x, y), parts)
