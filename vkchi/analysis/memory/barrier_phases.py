"""Barrier phases: do the barriers of a loop separate conflicting accesses to a workgroup array?

A phase is the time between two barriers. Two accesses of different invocations to one element
conflict if they are in one phase and one of them is a write, unless both are additions. The test
executes the loop abstractly for all invocations of one workgroup: a value is known per invocation
(an integer or bool that depends on constants and the invocation's position), or unknown. Loops with
unknown trip counts, and those with too many iterations, run twice with unknown values, which covers
any two consecutive iterations. Precondition: barriers are in uniform control flow.

    >>> find_phase_conflict(loop, shared)      # None: barriers separate all conflicting accesses
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from vkchi.analysis.uniformity import BARRIERS
from vkchi.errors import InternalError
from vkchi.ir.core import (
    Op,
    Region,
    Value,
    base_memory,
    constant_array,
    constant_int,
    has_kind,
)
from vkchi.ir.ops import (
    ACCESSES,
    REMAINDERS,
    TABLE,
    Effect,
    carried_params,
    control_of,
    effect_of,
    initial_values,
)
from vkchi.types import Array, Scalar
from vkchi.types.lazy_numpy import np

Known: TypeAlias = "np.ndarray[Any, Any]"  # a value per invocation
MOST_STEPS = 20_000  # ops executed with known values
MOST_TRIPS = 256
MOST_ELEMENTS = 16_384
LOADS, ADDS, STORES = range(3)
CONFLICTING = {LOADS: (ADDS, STORES), ADDS: (LOADS, STORES), STORES: (LOADS, ADDS, STORES)}
SEVERAL = -1


class PhaseConflict(Exception):
    def __init__(self, op: Op) -> None:
        super().__init__()
        self.op = op


def find_phase_conflict(loop: Op, shared: Op) -> Op | None:
    """Return an access of `shared` that may conflict with another one in its phase, or None.

    The allocation itself is returned if the size of workgroups is unknown, or if the array is
    large.
    """
    t = shared.type
    assert isinstance(t, Array) and t.shape is not None
    if loop.attr is None or len(loop.args) != 2 or np.prod(t.shape) > MOST_ELEMENTS:
        return shared
    try:
        WorkgroupRun(loop, shared).run()
    except PhaseConflict as e:
        return e.op
    return None


class Phase:
    """Accesses since the last barrier: per kind and element 0, the number of the only invocation
    that accesses it (from 1), or SEVERAL."""

    def __init__(self, size: int) -> None:
        self.owners = np.zeros((3, size), np.int32)

    def copy(self) -> Phase:
        made = Phase(0)
        made.owners = self.owners.copy()
        return made

    def join(self, other: Phase) -> None:
        """Add the accesses of another path."""
        a, b = self.owners, other.owners
        self.owners = np.where((a == b) | (b == 0), a, np.where(a == 0, b, SEVERAL))

    def access(self, op: Op, kind: int, elements: Known, invocations: Known) -> None:
        """Record accesses of some invocations. Raises PhaseConflict."""
        for other in CONFLICTING[kind]:
            owners = self.owners[other, elements]
            if ((owners != 0) & (owners != invocations)).any():
                raise PhaseConflict(op)
        order = np.lexsort((invocations, elements))
        e, who = elements[order], invocations[order]
        is_shared = np.zeros(len(self.owners[kind]), bool)
        is_shared[e[1:][(e[1:] == e[:-1]) & (who[1:] != who[:-1])]] = True
        if kind == STORES and is_shared.any():
            raise PhaseConflict(op)
        before = self.owners[kind, e]
        self.owners[kind, e] = np.where((before == 0) | (before == who), who, SEVERAL)
        self.owners[kind, is_shared] = SEVERAL


class WorkgroupRun:
    """Abstract execution of one workgroup; `env` holds known values, `mask` the active
    invocations."""

    def __init__(self, loop: Op, shared: Op) -> None:
        assert isinstance(shared.type, Array) and shared.type.shape is not None
        self.loop, self.shared, self.shape = loop, shared, shared.type.shape
        self.block = int(loop.attr)
        self.env: dict[Value, Known] = {}
        self.phase = Phase(int(np.prod(self.shape)))
        self.everyone = np.arange(1, self.block + 1, dtype=np.int32)
        self.steps = 0
        begin, end = map(constant_int, loop.args)
        self.begin, (self.index,) = begin, loop.regions[0].params
        if begin is not None and end is not None and end - begin <= self.block:
            self.env[self.index] = (begin + np.arange(self.block)).astype(np.int32)

    def run(self) -> None:
        with np.errstate(all="ignore"):
            self.region(self.loop.regions[0], np.ones(self.block, bool))

    def region(self, region: Region, mask: Known) -> None:
        for op in region.ops:
            self.steps += 1
            if op.kind in BARRIERS:
                self.phase = Phase(self.phase.owners.shape[1])
            elif op.kind in ACCESSES:
                if base_memory(op.args[0]) is self.shared:
                    self.access(op, mask)
            elif op.kind == "if":
                self.branch(op, mask)
            elif op.regions:
                self.iterate(op, mask)
            elif (value := self.value(op)) is not None:
                self.env[op] = value
            else:
                self.forget((op,))

    def get(self, v: Value) -> Known | None:
        if isinstance(v, Op) and v.kind == "const":  # also one from before the loop
            return self.value(v)
        return self.env.get(v)

    def forget(self, values: Iterable[Value]) -> None:
        for v in values:
            self.env.pop(v, None)

    # --- values

    def value(self, op: Op) -> Known | None:
        t = op.type
        if (
            not isinstance(t, Scalar)
            or t.kind not in "iub"
            or effect_of(op.kind) is not Effect.PURE
        ):
            return None
        if op.kind == "const":
            return np.full(self.block, constant_array(op)[()])
        if op.kind == "local_index":
            return np.arange(self.block, dtype=np.int32)
        if op.kind == "group_size":
            return np.full(self.block, self.block, np.int32)
        if op.kind in REMAINDERS and op.args[0] is self.index and self.index not in self.env:
            by = constant_int(op.args[1]) or 0
            if by <= 0 or self.block % by or self.begin != 0:
                return None
            return (np.arange(self.block) % by).astype(np.int32)
        args = [self.get(v) for v in op.args]
        known = [a for a in args if a is not None]
        if not args or len(known) < len(args):
            return None
        if op.kind == "select":
            return np.where(*known)
        if op.kind == "cast":
            return known[0].astype(t.dtype) if known[0].dtype.kind in "iub" else None
        function: Any = TABLE[op.kind].numpy
        if function is None or not TABLE[op.kind].sig:
            return None
        found = np.asarray(function(*known))
        is_good = found.shape == (self.block,) and found.dtype.kind in "iub"
        return found.astype(t.dtype) if is_good else None

    # --- accesses

    def access(self, op: Op, mask: Known) -> None:
        kind = LOADS if op.kind == "load" else ADDS if op.kind == "atomic_add" else STORES
        who, place = self.everyone[mask], op.args[0]
        while isinstance(place, Op) and place.kind != "elem":
            place = place.args[0]
        if not isinstance(place, Op):
            raise InternalError("an access of a workgroup array without an element")
        indices = [self.get(v) for v in place.args[1:]]
        known = [k[mask] for k in indices if k is not None]
        is_inside = len(known) == len(indices) and all(
            ((k >= 0) & (k < n)).all() for k, n in zip(known, self.shape)
        )
        if is_inside:
            elements = np.ravel_multi_index(tuple(k.astype(np.int64) for k in known), self.shape)
            self.phase.access(op, kind, elements, who)
            return
        size = self.phase.owners.shape[1]  # any element
        for one in who[:2]:
            self.phase.access(op, kind, np.arange(size), np.full(size, one, np.int32))

    # --- control

    def branch(self, op: Op, mask: Known) -> None:
        cond = self.get(op.args[0])
        if cond is None:
            masks = (mask & self.may_hold(op.args[0]), mask)
        else:
            masks = (mask & cond, mask & ~cond)
        is_apart = cond is None and has_kind_in(op)
        begun, ends = self.phase.copy(), []
        for region, inside in zip(op.regions, masks, strict=True):
            if is_apart:  # all invocations take the same path
                self.phase, begun = begun, begun.copy()
            if inside.any():
                self.region(region, inside)
            ends.append((self.phase, [self.get(v) for v in region.yielded]))
        if is_apart:
            self.phase.join(ends[0][0])
        for r, a, b in zip(op.results, ends[0][1], ends[1][1]):
            self.forget((r,))
            if a is not None and b is not None and (cond is not None or (a == b).all()):
                self.env[r] = a if cond is None else np.where(cond, a, b)

    def may_hold(self, cond: Value) -> Known:
        """Invocations for which a condition is not known to be false."""
        known = self.get(cond)
        if known is not None:
            return known
        if isinstance(cond, Op) and cond.kind == "and":
            a, b = map(self.may_hold, cond.args)
            return a & b
        return np.ones(self.block, bool)

    def iterate(self, op: Op, mask: Known) -> None:
        """Execute a `for` or `while`: with known values if its trip counts are, or else twice."""
        begun, first = self.phase.copy(), [self.get(v) for v in initial_values(op)]
        is_known = self.iterate_known(op, mask, first)
        if not is_known:
            self.phase.join(begun)  # what the attempt accessed may not all happen
            for _ in range(2):
                self.forget(p for region in op.regions for p in region.params)
                for region in op.regions:
                    self.region(region, mask)
                self.phase.join(begun)
            self.forget(op.results)

    def iterate_known(self, op: Op, mask: Known, carried: Sequence[Known | None]) -> bool:
        """Execute the loop with known values; False if a condition is unknown, or if there are too
        many iterations."""
        is_for = bool(control_of(op).index_params)
        ends = [self.get(v) for v in op.args[:2]] if is_for else []
        if is_for and any(e is None for e in ends):
            return False
        values = list(carried)
        for k in range(MOST_TRIPS + 1):
            if is_for:
                begin, end = (e for e in ends if e is not None)
                inside = mask & (begin + k < end)
                self.env[op.regions[0].params[0]] = (begin + k).astype(begin.dtype)
            else:
                self.bind(op.regions[0].params, values)
                self.region(op.regions[0], mask)
                cond = self.get(op.regions[0].yielded[0])
                if cond is None:
                    return False
                inside = mask & cond
            if not inside.any():
                self.bind(op.results, values)
                return True
            if k == MOST_TRIPS or self.steps > MOST_STEPS:
                return False
            body = op.regions[-1]
            self.bind(carried_params(op), values)
            self.region(body, inside)
            new = [self.get(v) for v in body.yielded]
            values = [
                None if a is None or b is None else np.where(inside, a, b)
                for a, b in zip(new, values, strict=True)
            ]
            mask = inside
        return False

    def bind(self, values: Sequence[Value], known: Sequence[Known | None]) -> None:
        for v, k in zip(values, known, strict=True):
            self.forget((v,))
            if k is not None:
                self.env[v] = k


def has_kind_in(op: Op) -> bool:
    return any(has_kind(region, BARRIERS) for region in op.regions)
