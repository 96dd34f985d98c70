"""Vectorization of adjacent loads and stores in straight-line code.

Adjacent accesses are scalars of one array with the same offset value and consecutive constants.
Loads move up to the first of them, stores down to the last. Ops in between must not access the
moved element (`analysis.memory.alias`). Nothing moves across a synchronization or an exit of the
invocation, or between regions.

    %p = address %x, %o [0]; %a = load %p          %p = address %x, %o [0] : ptr<f32<2> global>
    %q = address %x, %o [1]; %b = load %q    ->    %v = load %p [8] : f32<2>; %a = extract %v [0]; …

A vector access needs only the alignment of its scalar. A larger proved alignment (the array's
attribute `aligned`, `analysis.values.polynomials` of the offset) is attached to the access. Devices
without `scalar_alignment` are given vectors of two or four scalars, at their natural alignment. CPU
drivers split vector accesses into scalars. There, aligned elements are accessed as words of up to
64 bits.

Preconditions: runs after `access` and `licm`, which make offsets identical and bring accesses into
one region.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from vkchi.analysis.memory.alias import EXITS, SideEffects, SideEffectTable, bases_may_alias
from vkchi.analysis.values.polynomials import GREATEST_FACTOR, PowerOfTwoFactors
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Region, Value, attributes_of, base_memory, walk
from vkchi.ir.op_table.memory_ops import WIDEST
from vkchi.ir.ops import PLAIN_ACCESSES, READS, SYNCS, WRITES
from vkchi.opt.lowering.layouts import from_components, from_stored, split_components, to_stored
from vkchi.opt.lowering.offsets import ArithmeticBuilder
from vkchi.target import tuning
from vkchi.target.caps import FULL, Caps
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Ptr, Scalar, Tensor, scalar_named, scalar_of, u1, u32, u64


class ScalarRun(NamedTuple):
    """Scalars `first` to `end` (exclusive) of an array, counted from `offset`."""

    array: Value
    offset: Value | None
    scalar: Scalar
    first: int
    end: int

    def meets(self, other: ScalarRun) -> bool:
        return self.first < other.end and other.first < self.end


class AccessChunk:
    """The scalars of `run` as one vectorized access.

    The access is a vector of `word`, each of which holds one or more scalars. `aligned` is the
    proved alignment in bytes.
    """

    __slots__ = ("aligned", "run", "word")

    def __init__(self, run: ScalarRun, word: Scalar, aligned: int) -> None:
        self.run, self.word, self.aligned = run, word, aligned

    @property
    def per_word(self) -> int:
        return self.word.bits // self.run.scalar.bits

    @property
    def lanes(self) -> int:
        return (self.run.end - self.run.first) // self.per_word

    @property
    def is_natural(self) -> bool:
        """True for a single word, and for a vector of two or four at its natural alignment."""
        whole = self.lanes * self.word.size_bytes
        return self.lanes == 1 or (self.lanes != 3 and self.aligned >= whole)

    @property
    def type(self) -> Scalar | Tensor:
        return Tensor.of(self.word, (self.lanes,)) if self.lanes > 1 else self.word


def join_neighbours(fn: Func, caps: Caps = FULL) -> Func:
    """Merge adjacent accesses into vector accesses."""
    plan = VectorizationPlan(caps)
    plan.region(fn.body)
    if not plan.chunks:
        return fn
    return AccessVectorizer(plan, fn).run(fn)


def run_of(op: Op) -> ScalarRun | None:
    """Return the scalars that a load or store accesses, or None.

    None for addresses with a bounds check, for workgroup or private memory, and if the accessed
    scalar is not as wide as the stored one.
    """
    at = op.args[0]
    if op.kind not in PLAIN_ACCESSES or not isinstance(at, Op) or at.kind != "address":
        return None
    t, array = at.type, at.args[0]
    assert isinstance(t, Ptr) and isinstance(array.type, Array)
    scalar, count = scalar_of(t.elem), t.elem.size if isinstance(t.elem, Tensor) else 1
    is_plain = t.space == "global" and scalar.bits == array.type.stored.bits
    if not is_plain or at.args[-1].type is u1:
        return None
    offset = at.args[1] if len(at.args) > 1 else None
    return ScalarRun(array, offset, scalar, at.attr, at.attr + count)


# --- grouping ------------------------------------------------------------------------------------

Way = tuple[str, Value]  # op kind and array
Start = tuple["Value | None", Scalar]  # offset and scalar type


def candidates(runs: dict[Op, ScalarRun | None]) -> dict[Op, ScalarRun]:
    """Return the loads and stores that access several scalars, or that have a companion.

    A companion has the same kind, array, offset and scalar type.
    """
    found = {op: run for op, run in runs.items() if run is not None}
    company = Counter((op.kind, run[:3]) for op, run in found.items())
    return {
        op: run
        for op, run in found.items()
        if company[op.kind, run[:3]] > 1 or run.end - run.first > 1
    }


class AccessGroup:
    """Accesses that may be merged; `start` is the position of the first in its region.

    `blocked` holds the writes since then that have the same offset, if the group consists of loads.
    """

    def __init__(self, start: int) -> None:
        self.start = start
        self.members: list[tuple[Op, ScalarRun]] = []
        self.blocked: list[ScalarRun] = []


class VectorizationPlan:
    """Selects the `chunks` of each load and store to rewrite."""

    def __init__(self, caps: Caps) -> None:
        self.runs: dict[Op, ScalarRun | None] = {}
        self.likely: dict[Op, ScalarRun] = {}
        self.words = tuning.VECTOR_WORDS[0 if caps.int64 else 1 :] if caps.scalar_lanes else ()
        self.is_loose = caps.scalar_alignment
        self.multiples, self.changes = PowerOfTwoFactors(), SideEffectTable()
        self.chunks: dict[Op, tuple[AccessChunk, ...]] = {}
        self.groups: dict[Way, dict[Start, AccessGroup]] = {}
        self.sharing: dict[tuple[Value, Value], bool] = {}

    def region(self, region: Region) -> None:
        for op in region.ops:
            for inner in op.regions:
                self.region(inner)
        accesses = [op for op in region.ops if op.kind in PLAIN_ACCESSES]
        if accesses:
            self.runs = {op: run_of(op) for op in accesses}
            self.likely = candidates(self.runs)
            if self.likely:
                self.group(region)

    def group(self, region: Region) -> None:
        for k, op in enumerate(region.ops):
            if op.regions:
                if any(self.groups.values()):
                    self.pass_regions(self.changes.of(op.regions))
            elif op.kind in SYNCS or op.kind in EXITS:
                self.close_all()
            elif op.kind in READS or op.kind in WRITES:
                self.pass_access(op)
                self.add(op, k)
        self.close_all()

    def pass_regions(self, changes: SideEffects) -> None:
        """Close the groups that nested regions may conflict with."""
        if changes.sync or changes.ends:
            self.close_all()
        written = {p.base for p in changes.writes}
        touched = {"load": written, "store": written.union(p.base for p in changes.reads)}
        for way, groups in self.groups.items():
            if groups and any(self.may_share(way[1], b) for b in touched[way[0]]):
                self.close(groups, list(groups))

    def may_share(self, a: Value, b: Value) -> bool:
        found = self.sharing.get((a, b))
        if found is None:
            found = self.sharing[a, b] = bases_may_alias(a, b)
        return found

    def pass_access(self, op: Op) -> None:
        """Close the groups that an access may conflict with.

        A write at the offset of a group of loads only blocks later loads of its scalars.
        """
        run, base, writes = self.runs.get(op), base_memory(op.args[0]), op.kind in WRITES
        for (kind, array), groups in self.groups.items():
            if not groups or (kind == "load" and not writes) or not self.may_share(array, base):
                continue
            ended = []
            for start, group in groups.items():
                if run is None or run.array is not array or run.offset is not start[0]:
                    ended.append(start)
                elif kind == "load":
                    group.blocked.append(run)
                elif any(run.meets(other) for _, other in group.members):
                    ended.append(start)
            self.close(groups, ended)

    def add(self, op: Op, k: int) -> None:
        """Add a candidate access at position `k` to the group of its kind, array, offset and scalar
        type. The group is closed before, if the access is too far from its first or blocked by a
        write."""
        run = self.likely.get(op)
        if run is None:
            return
        groups = self.groups.setdefault((op.kind, run.array), {})
        start = (run.offset, run.scalar)
        group = groups.get(start)
        if group is not None and (
            k - group.start > tuning.VECTOR_DISTANCE or any(map(run.meets, group.blocked))
        ):
            self.close(groups, [start])
            group = None
        if group is None:
            group = groups[start] = AccessGroup(k)
        group.members.append((op, run))

    # --- splitting into chunks

    def close_all(self) -> None:
        for groups in self.groups.values():
            self.close(groups, list(groups))

    def close(self, groups: dict[Start, AccessGroup], starts: Sequence[Start]) -> None:
        for start in starts:
            members = sorted(groups.pop(start).members, key=lambda m: m[1].first)
            for near in stretches(members):
                self.cut(near)

    def cut(self, members: list[tuple[Op, ScalarRun]]) -> None:
        """Split a contiguous run into chunks, if they cost less than its accesses (`cost`).

        A single vector access is also rewritten if a larger alignment than its scalar's is proved.
        """
        run = members[0][1]._replace(end=max(r.end for _, r in members))
        if run.end - run.first == 1:
            return
        chunks = list(self.pieces(run))
        old = [AccessChunk(r, r.scalar, r.scalar.size_bytes) for _, r in members]
        new = self.cost(chunks)
        is_same = len(members) == 1 and len(chunks) == len(old)
        if new >= self.cost(old) and not (is_same and chunks[0].aligned > run.scalar.size_bytes):
            return
        for op, r in members:
            self.chunks[op] = tuple([c for c in chunks if c.run.meets(r)])

    def pieces(self, run: ScalarRun) -> Iterator[AccessChunk]:
        """Split a run into aligned vectors, on CPUs into words where the alignment allows."""
        scalar, size = run.scalar, run.scalar.size_bytes
        by = GREATEST_FACTOR if run.offset is None else self.multiples.of(run.offset)
        base = min(max(attributes_of(run.array).aligned, size), by * size)
        k = run.first
        while k < run.end:
            aligned = min(base, (k & -k) * size) if k else base
            left = run.end - k
            word = next((w for w in self.words if size < w <= min(aligned, left * size)), size)
            many = word // size
            count = min(left // many, WIDEST) * many
            if not self.is_loose:
                count = natural_count(count // many, aligned // word) * many
            elif many == 1:
                count = min(count, to_next(k, self.step(base // size, size)))
            part = run._replace(first=k, end=k + count)
            yield AccessChunk(part, scalar if many == 1 else scalar_named(f"u{8 * word}"), aligned)
            k += count

    def cost(self, chunks: Sequence[AccessChunk]) -> tuple[int, int]:
        """Cost of chunks: words, then accesses. The emitter splits vectors that are not aligned as
        the device needs."""
        accesses = (1 if self.is_loose or c.is_natural else c.lanes for c in chunks)
        return sum(c.lanes for c in chunks), sum(accesses)

    def step(self, aligned: int, size: int) -> int:
        words = [w // size for w in self.words if w > size]
        return min([aligned, WIDEST, *words])


def to_next(k: int, step: int) -> int:
    return step - k % step if k % step else WIDEST


def stretches(members: list[tuple[Op, ScalarRun]]) -> Iterator[list[tuple[Op, ScalarRun]]]:
    near: list[tuple[Op, ScalarRun]] = []
    end = 0
    for member in members:
        if near and member[1].first > end:
            yield near
            near = []
        end = max(end, member[1].end) if near else member[1].end
        near.append(member)
    if near:
        yield near


def natural_count(most: int, aligned: int) -> int:
    return 1 << min(most, max(aligned, 1)).bit_length() - 1


# --- rewriting -----------------------------------------------------------------------------------


class AccessVectorizer(ArithmeticBuilder):
    """Rewrites accesses.

    `parts` holds the loaded scalars of each chunk, `waiting` the scalars to store.
    """

    def __init__(self, plan: VectorizationPlan, fn: Func) -> None:
        super().__init__(self.visit_access, PLAIN_ACCESSES | {"address"})
        self.chunks = plan.chunks
        self.parts: dict[AccessChunk, list[Value]] = {}
        self.waiting: dict[AccessChunk, dict[int, Value]] = {}
        uses = Counter([v for op in walk(fn.body) for v in op.args])
        uses.subtract(op.args[0] for op in self.chunks)
        self.unused = {op.args[0] for op in self.chunks if not uses[op.args[0]]}

    def visit_access(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        """Replace a load or store in `chunks`. Drop an address that only such accesses use."""
        if op.kind == "address" and op in self.unused:
            return (op,)
        chunks = self.chunks.get(op)
        if chunks is None:
            return None
        if op.kind == "load":
            return (self.load(op, chunks),)
        self.store(op, args[1], chunks)
        return ()

    def load(self, op: Op, chunks: Sequence[AccessChunk]) -> Value:
        run, t = run_of(op), op.type
        assert run is not None and isinstance(t, Scalar | Tensor)
        found: list[Value] = []
        for chunk in chunks:
            parts, start = self.loaded(chunk), chunk.run.first
            found += parts[max(run.first - start, 0) : run.end - start]
        return from_components(self, found, t)

    def loaded(self, chunk: AccessChunk) -> list[Value]:
        if chunk not in self.parts:
            at, t = self.address(chunk), chunk.type
            whole = self.b.insert(Op("load", (at,), alignment(chunk), t, self.b.span))
            words = split_components(self, whole)
            self.parts[chunk] = [v for word in words for v in self.unpacked(word, chunk)]
        return self.parts[chunk]

    def unpacked(self, word: Value, chunk: AccessChunk) -> Iterator[Value]:
        scalar, many = chunk.run.scalar, chunk.per_word
        if many == 1:
            yield word
            return
        if word.type is u64 and many == 2:
            for half in split_components(self, self.b.emit("split_u64", word)):
                yield from_stored(self, half, scalar)
            return
        for k in range(many):
            by = self.number(k * scalar.bits, chunk.word)
            low = self.op("shr", word, by, type=chunk.word) if k else word
            yield from_stored(self, low, scalar)

    def store(self, op: Op, value: Value, chunks: Sequence[AccessChunk]) -> None:
        """Record the scalars of a store; the last store of a chunk emits the access."""
        run = run_of(op)
        assert run is not None
        for k, v in zip(range(run.first, run.end), split_components(self, value), strict=True):
            chunk = next(c for c in chunks if c.run.first <= k < c.run.end)
            parts = self.waiting.setdefault(chunk, {})
            parts[k] = v
            if len(parts) == chunk.run.end - chunk.run.first:
                self.stored(chunk, [parts[k] for k in sorted(parts)])

    def stored(self, chunk: AccessChunk, parts: list[Value]) -> None:
        many = chunk.per_word
        words = [self.packed(parts[k : k + many], chunk) for k in range(0, len(parts), many)]
        args = (self.address(chunk), from_components(self, words, chunk.type))
        self.b.insert(Op("store", args, alignment(chunk), None, self.b.span))

    def packed(self, parts: list[Value], chunk: AccessChunk) -> Value:
        if chunk.per_word == 1:
            return parts[0]
        if chunk.word is u64 and chunk.per_word == 2:
            halves = [to_stored(self, v, u32) for v in parts]
            return self.b.emit("join_u64", self.b.emit("pack", *halves, type=Tensor.of(u32, (2,))))
        word = to_stored(self, parts[0], chunk.word)
        for k, v in enumerate(parts[1:], 1):
            high = to_stored(self, v, chunk.word)
            by = self.number(k * chunk.run.scalar.bits, chunk.word)
            high = self.op("shl", high, by, type=chunk.word)
            word = self.op("or", word, high, type=chunk.word)
        return word

    def address(self, chunk: AccessChunk) -> Value:
        run, offset = chunk.run, chunk.run.offset
        args = (run.array,) if offset is None else (run.array, self.map.get(offset, offset))
        return self.op("address", *args, attr=run.first, type=Ptr.of(chunk.type, "global"))


def alignment(chunk: AccessChunk) -> int | None:
    """Return the alignment attribute of an access; None if no more than its word's is proved."""
    return chunk.aligned if chunk.aligned > chunk.word.size_bytes else None
