"""Alias analysis: may two memory locations overlap?

Rules:

- A location is a base, a tuple of indices and a component; component None is the whole element.
- Each `local` and `shared` op is a distinct allocation. An array parameter with a layout overlaps
  no other base. Two array parameters without a layout may overlap if they store the same scalar
  type, unless both have attribute `noalias`. An active list overlaps its activity array, from which
  launches compute it (`target.cell_lists`).
- An index is a value plus a constant (`sums.split_offset`). `i + 1` differs from `i`, and unequal
  constants differ; `i` may equal `j`. Index tuples that differ on one axis address distinct
  elements. Out-of-range accesses are harmless but read arbitrary values.
- Unequal constant components are disjoint; all other pairs of components may overlap.
- Between two synchronizations, only the invocation's own writes change the memory that it sees.
  Every SYNC op, such as `barrier` or `fence`, invalidates knowledge of global and shared memory.
- A failed check (`report_failure`) may end the invocation, and all its earlier writes are visible
  then. So it counts as a read of all memory but `local`.

    >>> a, b = location_of(elem_x_i), location_of(elem_x_i_plus_1)
    >>> may_alias(a, b)
    False
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence

from vkchi.analysis.values.polynomials import OffsetIndex, split_offset
from vkchi.errors import InternalError
from vkchi.ir.core import Op, Param, Region, Value, base_memory, walk_ops
from vkchi.ir.op_table.memory_ops import address_constant
from vkchi.ir.ops import ACCESSES, ATOMICS, COMPONENTS, READS, SYNCS, WRITES
from vkchi.target.cell_lists import listed_activity
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Ptr, Tensor, scalar_of


class MemoryLocation(NamedTuple):
    """A memory location: the target of a pointer.

    `indices` is () for a `local` and if the index is unknown. `component` is a constant, a computed
    value, or None for the whole element.
    """

    base: Value
    indices: tuple[OffsetIndex, ...]
    component: int | Value | None


# --- from pointers to locations ----------------------------------------------------------------


def location_of(ptr: Value) -> MemoryLocation:
    """The location that a pointer addresses. Raises InternalError for other values."""
    component: int | Value | None = None
    if isinstance(ptr, Op) and ptr.kind in COMPONENTS:
        component = ptr.attr if ptr.kind == "member" else ptr.args[1]
        ptr = ptr.args[0]
    if isinstance(ptr, Op) and ptr.kind == "elem":
        return MemoryLocation(
            ptr.args[0], tuple([split_offset(v) for v in ptr.args[1:]]), component
        )
    if isinstance(ptr, Op) and ptr.kind == "address":
        return MemoryLocation(ptr.args[0], address_index(ptr), None)
    if isinstance(ptr, Op) and ptr.kind == "word":  # the word also contains neighbouring elements
        return MemoryLocation(base_memory(ptr.args[0]), (), None)
    if isinstance(ptr, Op) and ptr.kind == "local":
        return MemoryLocation(ptr, (), component)
    kind = ptr.kind if isinstance(ptr, Op) else "a parameter"
    raise InternalError(f"a place is made by `elem`, `member` or `local`, not by {kind}")


def address_index(ptr: Op) -> tuple[OffsetIndex, ...]:
    """Index of an `address` op in scalars: one `OffsetIndex`, or () if it addresses a vector."""
    assert isinstance(ptr.type, Ptr)
    if isinstance(ptr.type.elem, Tensor):
        return ()
    constant = address_constant(ptr.attr)
    if len(ptr.args) == 1:
        return (OffsetIndex(None, constant),)
    root, offset = split_offset(ptr.args[1])
    return (OffsetIndex(root, (offset + constant) % (1 << scalar_of(ptr.args[1].type).bits)),)


# --- queries -----------------------------------------------------------------------------------


def bases_may_alias(a: Value, b: Value) -> bool:
    if a is b:
        return True
    if not isinstance(a, Param) or not isinstance(b, Param):
        return False
    if listed_activity(a.name) == b.name or listed_activity(b.name) == a.name:
        return True
    s, t = a.type, b.type
    assert isinstance(s, Array) and isinstance(t, Array)
    is_noalias = a.attributes.noalias and b.attributes.noalias
    return s.layout is None and t.layout is None and s.stored is t.stored and not is_noalias


def alias_classes(bases: Collection[Value]) -> dict[Value, object]:
    """Map each base to a key. Bases that may alias have equal keys; the converse need not hold."""
    free = {
        b: b.type.stored
        for b in bases
        if isinstance(b, Param) and isinstance(b.type, Array) and b.type.layout is None
    }
    loose = {stored for b, stored in free.items() if not b.attributes.noalias}
    met: dict[Value, object] = {b: stored for b, stored in free.items() if stored in loose}
    named = {b.name: met.get(b, b) for b in bases if isinstance(b, Param)}
    for b in bases:
        if isinstance(b, Param) and (activity := named.get(listed_activity(b.name))) is not None:
            met[b] = activity
    return {b: met.get(b, b) for b in bases}


def are_distinct(a: tuple[OffsetIndex, ...], b: tuple[OffsetIndex, ...]) -> bool:
    """True if two index tuples of one array certainly differ on some axis, in one iteration."""
    return any(map(_differ, a, b))


def _differ(i: OffsetIndex, j: OffsetIndex) -> bool:
    if i.root is not j.root:
        return False
    return i.offset != j.offset if i.root is not None else (i.offset - j.offset) % (1 << 32) != 0


def components_may_overlap(a: int | Value | None, b: int | Value | None) -> bool:
    return a == b or not isinstance(a, int) or not isinstance(b, int)


def may_alias(a: MemoryLocation, b: MemoryLocation) -> bool:
    """True if a write to one location may change the other within one iteration."""
    if a.base is not b.base:
        return bases_may_alias(a.base, b.base)
    return not are_distinct(a.indices, b.indices) and components_may_overlap(
        a.component, b.component
    )


def never_alias(a: Value, b: Value) -> bool:
    """True if two pointers have different bases, or certainly differ in any pair of iterations.

    The latter holds if their indices on some axis, or their components, are different constants.
    Different bases count as disjoint, even array parameters for which `bases_may_alias` holds.
    """
    p, q = location_of(a), location_of(b)
    return p.base is not q.base or are_disjoint(p, q, lambda root: False)


def are_disjoint(p: MemoryLocation, q: MemoryLocation, is_fixed: Callable[[Value], bool]) -> bool:
    """True if two locations of one base are certainly disjoint in any pair of iterations.

    On some axis, both indices are different constants, or have different offsets from the same
    root, and `is_fixed(root)` (loop-invariant). Or the components are different constants.
    """
    pairs = [(i, j) for i, j in zip(p.indices, q.indices) if i.root is None or is_fixed(i.root)]
    return any(_differ(i, j) for i, j in pairs) or not components_may_overlap(
        p.component, q.component
    )


def kinds_at(writes: Iterable[Op], ptr: Value) -> set[str]:
    """Kinds of the given write ops that may write the location of `ptr` in any iteration.

    Ops on other bases are ignored, see `never_alias`.
    """
    return {op.kind for op in writes if not never_alias(op.args[0], ptr)}


def kinds_of_writes(ops: Iterable[Op]) -> dict[Value, set[str]]:
    """Map each written base to the kinds of the ops that write it, in these ops and their regions.

    Bases are in the order of their first writes.
    """
    found: dict[Value, set[str]] = {}
    for op in walk_ops(ops):
        if op.kind in WRITES:
            found.setdefault(base_memory(op.args[0]), set()).add(op.kind)
    return found


def accesses_by_base(ops: Iterable[Op]) -> dict[Value, list[Op]]:
    """Group the ops that read or write memory by array or allocation; others are left out."""
    found: dict[Value, list[Op]] = {}
    for op in ops:
        if op.kind in ACCESSES:
            found.setdefault(base_memory(op.args[0]), []).append(op)
    return found


def shared_bases(
    some: Mapping[Value, Sequence[Op]], others: Mapping[Value, Sequence[Op]]
) -> list[tuple[Value, Value]]:
    """Pairs of bases, one of each group of accesses, that may alias. One of them is written."""
    return [
        (a, b)
        for a in some
        for b in others
        if bases_may_alias(a, b) and any(op.kind in WRITES for op in (*some[a], *others[b]))
    ]


def reducible(ops: Iterable[Op], used: Container[Value]) -> dict[Value, list[Op]]:
    """Map each array that the ops of a loop only reduce into to its atomics, in program order.

    The atomics' results are not in `used`. All accesses to the array, and to others that may alias
    it, are such atomics of one kind.
    """
    found = accesses_by_base(ops)
    kinds = {base: {None if op in used else op.kind for op in same} for base, same in found.items()}
    return {
        base: same
        for base, same in found.items()
        if same[0].kind in ATOMICS
        and all(kinds[o] == {same[0].kind} for o in kinds if bases_may_alias(base, o))
    }


# --- side effects of regions -------------------------------------------------------------------

EXITS = frozenset({"report_failure"})


class SideEffects(NamedTuple):
    """Side effects of ops: the locations that they write and read.

    `sync`: an op synchronizes, so that memory may change or be read by other invocations. `ends`: a
    failed check (`EXITS`) may end the invocation.
    """

    writes: tuple[MemoryLocation, ...] = ()
    reads: tuple[MemoryLocation, ...] = ()
    sync: bool = False
    ends: bool = False

    def may_change(self, place: MemoryLocation) -> bool:
        """True if a write, or synchronization with other invocations, may change the location."""
        if self.sync and is_visible(place.base):
            return True
        return any(may_alias(w, place) for w in self.writes)

    def may_read(self, place: MemoryLocation) -> bool:
        """True if the ops, other invocations, or the host after a failed check may read the
        location."""
        if (self.sync or self.ends) and is_visible(place.base):
            return True
        return any(may_alias(r, place) for r in self.reads)


def is_visible(base: Value) -> bool:
    """True unless the base is a `local`, which only its own invocation can access."""
    return not isinstance(base, Op) or base.kind != "local"


class SideEffectTable:
    """Side effects of regions, memoized per region."""

    def __init__(self) -> None:
        self._found: dict[Region, SideEffects] = {}

    def of(self, regions: Sequence[Region]) -> SideEffects:
        """Combined side effects of all the regions."""
        found = [self._of_region(r) for r in regions]
        if len(found) == 1:
            return found[0]
        return SideEffects(
            tuple(dict.fromkeys(w for c in found for w in c.writes)),
            tuple(dict.fromkeys(r for c in found for r in c.reads)),
            any(c.sync for c in found),
            any(c.ends for c in found),
        )

    def _of_region(self, region: Region) -> SideEffects:
        found = self._found.get(region)
        if found is None:
            writes: dict[MemoryLocation, None] = {}
            reads: dict[MemoryLocation, None] = {}
            sync = ends = False
            for op in region.ops:
                if op.kind in WRITES:
                    writes[location_of(op.args[0])] = None
                if op.kind in READS:
                    reads[location_of(op.args[0])] = None
                if op.regions:
                    inner = self.of(op.regions)
                    writes.update(dict.fromkeys(inner.writes))
                    reads.update(dict.fromkeys(inner.reads))
                    sync, ends = sync or inner.sync, ends or inner.ends
                sync, ends = sync or op.kind in SYNCS, ends or op.kind in EXITS
            found = self._found[region] = SideEffects(tuple(writes), tuple(reads), sync, ends)
        return found
