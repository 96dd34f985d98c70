"""Loop rerolling: long straight code of isomorphic groups becomes a serial loop.

    s1 = s0 + x[0] * 1.0; s2 = s1 + x[1] * 2.0; ...; s64 = s63 + x[63] * 64.0               becomes
    s64 = for 0, 64, s0 {(k, s) yield s + x[k] * f32(k + 1)}

Motivation: drivers' compile time grows with the square of the memory accesses of straight code.
`ti.static` loops, their gradients and code that users unrolled by hand have this form.

- Groups are adjacent ops of a region. They are isomorphic if they have the same ops, nested ones
  included, and each operand is of one class in all of them (`Match`): a value from before the
  groups, a value of the same group, a value of the previous group, or a constant.
- A constant becomes an affine function of the loop indices if it is one in all groups, else an
  element of a constant table. There is a loop per dimension of that function, so that two nested
  static loops become two loops. Components of tensors are constants, too.
- A value of the previous group is carried by the loop. Values that later ops use are the last
  carried values, or elements of a private array that the loop fills.
- Matching is on an order in which pure ops, and loads of memory that the region does not write, are
  just before their first user. A gradient's groups then contain the loads that only they use.
- Effects keep their order, and floats are computed in the same order from the same operands. The
  only other change is the order of pure ops and of these loads.

Rounds repeat until nothing changes: loops of private arrays may become groups of a later round.
Complexity: nearly linear in the number of ops; periods are found by repeated ops.

    >>> reroll(fn)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from math import prod
from typing import Any

from vkchi.analysis.memory.alias import alias_classes
from vkchi.ir.core import (
    Func,
    Op,
    Param,
    Region,
    Value,
    base_memory,
    constant_attr,
    is_constant,
    is_equal_value,
    value_of,
    walk,
    walk_ops,
)
from vkchi.ir.iteration_space import as_type
from vkchi.ir.ops import (
    LOOPS,
    NOUNROLL,
    SYNCS,
    TABLE,
    TIED,
    WRITES,
    Effect,
)
from vkchi.ir.rebuild import Rebuilder
from vkchi.opt.rewrite.dce import remove_dead
from vkchi.target import tuning
from vkchi.tuples import NamedTuple
from vkchi.types import Array, Ptr, Scalar, Tensor, i32, scalar_of

# Ops whose `attr` is a component, which may differ between groups.
SELECTORS = {"extract", "member"}
ROUNDS = 8  # a search limit
PERIODS = 32  # a search limit: periods that are tried at an op


def reroll(fn: Func) -> Func:
    """Roll groups of ops of all regions into loops; returns `fn` itself if there are none."""
    live = remove_dead(fn)  # what a gradient does not need would keep code from being rolled
    rolled = Reroller().run(live)
    return fn if rolled is live else rolled


class Reroller(Rebuilder):
    """Rolls the groups of each region, inner regions first."""

    def region(self, region: Region) -> Region:
        region = super().region(region)
        for _ in range(ROUNDS):
            least = least_of(region.ops)
            if len(region.ops) <= least.groups or not has_ops(region, least.ops):
                break
            straight = StraightCode(region)
            runs = straight.find_runs()
            if not runs:
                break
            region = RolledRegion(straight).build(runs)
        return region


class Least(NamedTuple):
    """The least number of groups that are worth a loop, and of their ops."""

    groups: int
    ops: int


def least_of(ops: Iterable[Op]) -> Least:
    """Return the limits for groups of these ops. Drivers take long to compile loops of unknown
    length, and another loop around one costs little when it runs."""
    if any(op.kind in LOOPS and not has_known_length(op) for op in walk_ops(ops)):
        return Least(tuning.REROLL_LOOPS, tuning.REROLL_LOOP_OPS)
    return Least(tuning.REROLL_GROUPS, tuning.REROLL_OPS)


def has_known_length(loop: Op) -> bool:
    return loop.kind == "for" and all(map(is_constant, loop.args[:2]))


def has_ops(region: Region, count: int) -> bool:
    return next(islice(walk(region), count - 1, None), None) is not None


class DefinedAt(NamedTuple):
    """Position of a value's definition: the item, the op in its pre-order, and the number of the
    value among the op's results and region parameters."""

    item: int
    at: int
    number: int


Place = tuple[int, int, int]  # a `DefinedAt` within a group: the item is counted from its start


class Relation(NamedTuple):
    """The class of an operand in all groups, by `kind`: a constant, a value from before the groups,
    or a value of the same or the previous group, with its place."""

    kind: str
    place: Place = (0, 0, 0)


CONSTANT, INVARIANT = Relation("constant"), Relation("invariant")
SAME, PREVIOUS = "same", "previous"


class RepeatedGroups(NamedTuple):
    """Groups of items to be rolled: position and number of items of the first group; the loops'
    lengths, outermost first; the relation of each operand, by op of a group in pre-order."""

    start: int
    period: int
    lengths: tuple[int, ...]
    relations: Sequence[Sequence[Relation]]

    @property
    def groups(self) -> int:
        return prod(self.lengths)

    @property
    def end(self) -> int:
        return self.start + self.period * self.groups


# --- order of ops --------------------------------------------------------------------------------


def is_movable(op: Op, written: set[object], classes: dict[Value, object]) -> bool:
    """True for a pure op, and for a load of memory that is never written."""
    if op.kind == "load":
        return classes[base_memory(op.args[0])] not in written
    return not op.regions and TABLE[op.kind].effect is Effect.PURE and op.kind not in TIED


def schedule(region: Region) -> list[Op]:
    """Return the region's ops with each movable one just before its first user; unused ones are
    omitted. The `yield` is included."""
    accesses = [op for op in walk(region) if op.kind in WRITES or op.kind == "load"]
    classes = alias_classes({base_memory(op.args[0]) for op in accesses})
    written = {classes[base_memory(op.args[0])] for op in accesses if op.kind in WRITES}
    if any(op.kind in SYNCS for op in walk(region)):
        written = set(classes.values())
    position = {v: k for k, op in enumerate(region.ops) for v in op.results}
    movable = [is_movable(op, written, classes) for op in region.ops]
    done = [False] * len(region.ops)
    found: list[Op] = []

    def needs(k: int) -> list[int]:
        op = region.ops[k]
        values = op.args if not op.regions else [v for o in walk_ops([op]) for v in o.args]
        used = {position[v] for v in values if v in position}
        return sorted([j for j in used if movable[j] and not done[j]], reverse=True)

    for k in range(len(region.ops)):
        stack = [] if movable[k] else [(k, needs(k))]
        while stack:
            at, missing = stack[-1]
            while missing and done[missing[-1]]:
                missing.pop()
            if missing:
                stack.append((missing[-1], needs(missing.pop())))
            else:
                stack.pop()
                if not done[at]:
                    done[at] = True
                    found.append(region.ops[at])
    return found


# --- isomorphic groups ---------------------------------------------------------------------------


def flatten(op: Op) -> list[Op]:
    """Return an op and its nested ops in pre-order, without constants."""
    if not op.regions:
        return [op]
    return [op, *(o for r in op.regions for o in walk(r) if o.kind != "const")]


def defined_by(op: Op) -> tuple[Value, ...]:
    """Return an op's results and region parameters."""
    return op.results + tuple([p for r in op.regions for p in r.params])


def shape_of_op(flat: Sequence[Op]) -> tuple[Any, ...]:
    """Return a hashable that is equal for ops that differ in operands and components only."""
    return tuple([
        (
            op.kind,
            None if op.kind in SELECTORS else op.attr,
            len(op.args),
            *[v.type for v in defined_by(op)],
            *[len(r.params) for r in op.regions],
        )
        for op in flat
    ])  # fmt: skip


class StraightCode:
    """A region in the order of `schedule`. Its items are the ops other than constants, numbered in
    that order."""

    def __init__(self, region: Region) -> None:
        self.region, self.order = region, schedule(region)
        self.items = [op for op in self.order[:-1] if op.kind != "const"]
        self.flat = [flatten(op) for op in self.items]
        self.definitions = {
            v: DefinedAt(k, at, number)
            for k, flat in enumerate(self.flat)
            for at, op in enumerate(flat)
            for number, v in enumerate(defined_by(op))
        }
        numbers: dict[object, int] = {}
        self.shapes = [
            numbers.setdefault(shape_of_op(flat) if self.may_repeat(flat) else k, len(numbers))
            for k, flat in enumerate(self.flat)
        ]
        # Private arrays cannot be passed between dispatches.
        self.may_fill = not any(op.kind == "parallel" for op in self.items)

    def may_repeat(self, flat: Sequence[Op]) -> bool:
        """False for ops that a serial loop must not contain."""
        return not any(op.kind in ("parallel", "shared") for op in flat)

    def find_runs(self) -> list[RepeatedGroups]:
        """Return disjoint runs in order."""
        found: list[RepeatedGroups] = []
        shapes, least = self.shapes, least_of(self.items).groups
        following: dict[int, int] = {}
        after = [0] * len(shapes)  # the next item of the same shape
        for k in range(len(shapes) - 1, -1, -1):
            after[k] = following.get(shapes[k], len(shapes))
            following[shapes[k]] = k
        k = 0
        while k < len(shapes) - least:
            run = self.find_run(k, after)
            if run is not None:
                found.append(run)
            k = k + 1 if run is None else run.end
        return found

    def find_run(self, start: int, after: Sequence[int]) -> RepeatedGroups | None:
        """Return the run that begins at an item, or up to a period later; the shortest period."""
        shapes, least = self.shapes, least_of(self.items).groups
        repeated = start
        for _ in range(PERIODS):
            repeated = after[repeated]
            period = repeated - start
            end = start + least * period
            if repeated == len(shapes) or end > len(shapes):
                return None
            if (
                shapes[start:end:period].count(shapes[start]) == least
                and shapes[start:repeated] == shapes[repeated : repeated + period]
                and shapes[start : end - period] == shapes[repeated:end]
                and Match(self, start, period).extend(3)
            ):
                run = self.best_phase(start, period)
                if run is not None:
                    return run
        return None

    def best_phase(self, start: int, period: int) -> RepeatedGroups | None:
        """Return the longest run among those that start in a period and carry fewest values."""
        best: Match | None = None
        for k in range(start, start + min(period, PERIODS)):
            match = Match(self, k, period)
            if match.extend(3) and (best is None or len(match.carried()) < len(best.carried())):
                best = match
                if not best.carried():
                    break
        if best is None:
            return None
        best.extend(len(self.shapes))
        return best.to_run()


class Match:
    """Isomorphic groups of `period` items from `start`: as many as `extend` found."""

    def __init__(self, code: StraightCode, start: int, period: int) -> None:
        self.code, self.start, self.period, self.groups = code, start, period, 1
        self.relations: list[list[Relation]] = []

    def group(self, g: int) -> Iterator[Op]:
        first = self.start + g * self.period
        return chain.from_iterable(self.code.flat[first : first + self.period])

    def extend(self, groups: int) -> bool:
        """Add groups until there are as many; False if fewer match."""
        shapes, period = self.code.shapes, self.period
        while self.groups < groups:
            at = self.start + self.groups * period
            if shapes[at - period : at] != shapes[at : at + period]:
                return False
            found = self.compare(self.groups - 1)
            if found is None or (self.relations and found != self.relations):
                return False
            if not self.relations and not self.have_one_first(found):
                return False
            self.relations = found
            self.groups += 1
        return True

    def have_one_first(self, relations: Sequence[Sequence[Relation]]) -> bool:
        """True if each value of the previous group has one value before the first group."""
        first: dict[Relation, Value] = {}
        for op, row in zip(self.group(0), relations):
            for v, relation in zip(op.args, row):
                if relation.kind == PREVIOUS and not is_equal_value(
                    first.setdefault(relation, v), v
                ):
                    return False
        return True

    def compare(self, g: int) -> list[list[Relation]] | None:
        """Return the relations of the operands of a group and the next one, or None."""
        found = []
        for old, new in zip(self.group(g), self.group(g + 1), strict=True):
            relations = [self.relate(g, u, v) for u, v in zip(old.args, new.args)]
            if None in relations:
                return None
            found.append(relations)
        return found  # type: ignore[return-value]

    def relate(self, g: int, u: Value, v: Value) -> Relation | None:
        """Return the relation of operands of a group and the next one; None if they have none."""
        if is_constant(v):
            return CONSTANT if is_constant(u) and u.type is v.type else None
        at = self.code.definitions.get(v)
        if u is v:
            return INVARIANT if at is None or at.item < self.start else None
        if at is None or u.type is not v.type:
            return None
        group, item = divmod(at.item - self.start, self.period)
        old = self.code.definitions.get(u)
        is_same = old is not None and old == (at.item - self.period, at.at, at.number)
        if group == g + 1 and is_same:
            return Relation(SAME, (item, at.at, at.number))
        if group != g or isinstance(v.type, Ptr | Array):
            return None
        is_first = g == 0 and (old is None or old.item < self.start)
        if not is_same and not is_first:
            return None
        return Relation(PREVIOUS, (item, at.at, at.number))

    def carried(self) -> set[Relation]:
        return {r for relations in self.relations for r in relations if r.kind == PREVIOUS}

    def to_run(self) -> RepeatedGroups | None:
        """Return the run of these groups, or None if it is not worth a loop or cannot be one."""
        size, least = sum(1 for _ in self.group(0)), least_of(self.group(0))
        lengths = lengths_of(self.series(), self.groups)
        run = RepeatedGroups(self.start, self.period, lengths, self.relations)
        if run.groups < least.groups or (run.groups - 1) * size < least.ops:
            return None
        return run if Outputs(self.code, run).are_supported else None

    def series(self) -> list[list[int]]:
        """Return the integers of each constant operand and component in all groups, if they differ
        and are integers."""
        found: dict[tuple[int, ...], None] = {}
        for ops in zip(*map(self.group, range(self.groups)), strict=True):
            if ops[0].kind in SELECTORS:
                found[tuple([op.attr for op in ops])] = None
            for values in zip(*[op.args for op in ops], strict=True):
                if all(map(is_constant, values)):
                    for t, bits in components_of(values):
                        numbers = as_integers(t, bits)
                        if numbers is not None:
                            found[tuple(numbers)] = None
        return [list(s) for s in found if len(set(s)) > 1]


def components_of(values: Sequence[Value]) -> Iterator[tuple[Scalar, Sequence[int]]]:
    """Yield the type and the bits of each component of constants of one type."""
    t, attrs = values[0].type, [v.attr for v in values if is_constant(v)]
    if isinstance(t, Scalar):
        yield t, attrs
    else:
        yield from ((scalar_of(t), bits) for bits in zip(*attrs, strict=True))


def as_integers(t: Scalar, attrs: Sequence[int]) -> list[int] | None:
    """Return the integers with these bits in type `t`, or None if a value is no small integer."""
    if t.kind == "b":
        return None
    values = [value_of(bits, t) for bits in attrs]
    if t.kind == "f":
        if not all(abs(v) <= 1 << 24 and v == int(v) for v in values):
            return None
        if any(constant_attr(int(v), t) != bits for v, bits in zip(values, attrs)):
            return None  # -0.0
    return [int(v) for v in values]


def lengths_of(series: Sequence[list[int]], count: int) -> tuple[int, ...]:
    """Return lengths of nested loops in whose indices most series are affine. Their product may be
    less than `count`."""
    candidates = dict.fromkeys(d for s in series if (d := own_lengths(s)) is not None)
    if not candidates:
        return (count,)
    return max(
        candidates, key=lambda d: (sum(affine(s, d) is not None for s in series), -len(d))
    )  # fmt: skip


def own_lengths(series: Sequence[int]) -> tuple[int, ...] | None:
    """Return the lengths of the fewest loops in whose indices a series is affine, or None."""
    if len(series) < 2:
        return (1,) * len(series) or None
    step = series[1] - series[0]
    length = next(
        (k for k in range(2, len(series)) if series[k] - series[k - 1] != step), len(series)
    )
    if length == len(series):
        return (length,)
    starts = series[: len(series) // length * length : length]
    if len(starts) < 2:
        return None
    outer = own_lengths(starts)
    found = None if outer is None else (*outer, length)
    return found if found is not None and affine(series, found) is not None else None


def affine(series: Sequence[int], lengths: Sequence[int]) -> list[int] | None:
    """Return [c, a, b, ...] if the series is c + a * i + b * j + ... for loop indices i, j, ..., of
    which the last is the fastest; None if it is not."""
    strides = [prod(lengths[k + 1 :]) for k in range(len(lengths))]
    steps = [series[stride] - series[0] if n > 1 else 0 for n, stride in zip(lengths, strides)]
    for g in range(prod(lengths)):
        indices = [g // stride % n for n, stride in zip(lengths, strides)]
        if series[g] != series[0] + sum(i * step for i, step in zip(indices, steps)):
            return None
    return [series[0], *steps]


# --- values that later ops use -------------------------------------------------------------------


class Outputs:
    """Values of a run that ops behind it use, by their definition in a group: `last` if they are
    only those of the last group, otherwise `filled`."""

    def __init__(self, code: StraightCode, run: RepeatedGroups) -> None:
        self.code, self.run = code, run
        self.used: dict[Place, dict[int, Value]] = {}
        for op in chain(*code.flat[run.end :], code.order[-1:]):
            for v in op.args:
                at = code.definitions.get(v)
                if at is not None and run.start <= at.item < run.end:
                    group, item = divmod(at.item - run.start, run.period)
                    self.used.setdefault((item, at.at, at.number), {})[group] = v
        last = run.groups - 1
        self.last = {at: vs[last] for at, vs in self.used.items() if vs.keys() == {last}}
        self.filled = {at: vs for at, vs in self.used.items() if at not in self.last}

    @property
    def are_supported(self) -> bool:
        kinds = [v.type for v in self.last.values()]
        if any(not isinstance(t, Scalar | Tensor) for t in kinds):
            return False
        if not self.filled:
            return True
        filled = [next(iter(vs.values())).type for vs in self.filled.values()]
        return (
            self.code.may_fill
            and all(isinstance(t, Scalar) for t in filled)
            and len(filled) * self.run.groups <= tuning.REROLL_PRIVATE
        )


# --- the loop ------------------------------------------------------------------------------------


class RolledRegion(Rebuilder):
    """Builds a region in which runs are loops."""

    def __init__(self, code: StraightCode) -> None:
        super().__init__()
        self.code = code
        self.arrays: dict[Value, tuple[Op, int]] = {}  # a value, as element of a private array

    def build(self, runs: Sequence[RepeatedGroups]) -> Region:
        code = self.code
        with self.b.region(*code.region.params) as new:
            starts = {code.items[run.start]: run for run in runs}
            inside = {op for run in runs for op in code.items[run.start : run.end]}
            for op in code.order:
                self.b.span = op.span
                if op in starts:
                    self.load_elements(chain(*self.flat_of(starts[op])))
                    RolledLoop(self, starts[op]).build()
                if op not in inside:
                    self.load_elements(flatten(op))
                    self.ops([op])
        return new

    def flat_of(self, run: RepeatedGroups) -> Sequence[Sequence[Op]]:
        return self.code.flat[run.start : run.end]

    def load_elements(self, users: Iterator[Op] | Sequence[Op]) -> None:
        """Append loads of the elements of private arrays that these ops use, and map them."""
        if self.arrays:
            for v in dict.fromkeys(v for op in users for v in op.args if v in self.arrays):
                array, k = self.arrays[v]
                place = self.b.emit("member_at", array, self.b.const(k, i32))
                self.map[v] = self.b.emit("load", place, name=v.name)


class RolledLoop:
    """The loops of a run. Its template is the first group."""

    def __init__(self, rebuilder: RolledRegion, run: RepeatedGroups) -> None:
        self.outer, self.b, self.run = rebuilder, rebuilder.b, run
        self.outputs = Outputs(rebuilder.code, run)
        self.groups = [
            list(chain(*rebuilder.code.flat[k : k + run.period]))
            for k in range(run.start, run.end, run.period)
        ]
        self.new: dict[Value, Value] = {}  # values of the template
        self.carried: dict[Place, Value] = {}  # definition in a group -> parameter
        self.constants: dict[object, Value] = {}
        self.indices: list[Value] = []
        self.at = 0

    def template_value(self, at: Place) -> Value:
        """Return the value of the template with this definition."""
        item, k, number = at
        op = self.outer.code.flat[self.run.start + item][k]
        return defined_by(op)[number]

    def build(self) -> None:
        """Append the loops, and map the values that later ops use."""
        b, run = self.b, self.run
        first: dict[Place, Value] = {}
        for op, relations in zip(self.groups[0], run.relations):
            for v, relation in zip(op.args, relations):
                if relation.kind == PREVIOUS and relation.place not in first:
                    first[relation.place] = self.first_value(v)
        for at in self.outputs.last:
            if at not in first:
                t = self.template_value(at).type
                assert isinstance(t, Scalar | Tensor)
                first[at] = b.const(0, t)
        arrays = {at: self.new_array(at) for at in self.outputs.filled}
        tensors = self.private_tensors()
        results = self.nest(list(first), list(first.values()), arrays, tensors, 0)
        for at, result in zip(first, results):
            if at in self.outputs.last:
                self.outer.map[self.outputs.last[at]] = result
        for at, array in arrays.items():
            values = self.outputs.filled[at]
            self.outer.arrays.update((v, (array, g)) for g, v in values.items())

    def first_value(self, v: Value) -> Value:
        """Return a value from before the loop. Constants are copied, as they may follow it."""
        if is_constant(v):
            return self.b.emit("const", attr=v.attr, type=v.type)
        return self.outer.map.get(v, v)

    def new_array(self, at: Place) -> Op:
        t = self.template_value(at).type
        assert isinstance(t, Scalar)
        return self.b.emit("local", self.b.const(0, Tensor.of(t, (self.run.groups,))))

    def private_tensors(self) -> dict[Value, Op]:
        """Append private copies of tensors from before the loop of which it reads components at
        computed indices."""
        found: dict[Value, Op] = {}
        for k, (op, relations) in enumerate(zip(self.groups[0], self.run.relations)):
            if op.kind == "extract" and relations[0] == INVARIANT and self.component_varies(k):
                tensor = op.args[0]
                if tensor not in found:
                    found[tensor] = self.b.emit("local", self.outer.map.get(tensor, tensor))
        return found

    def component_varies(self, k: int) -> bool:
        return any(group[k].attr != self.groups[0][k].attr for group in self.groups)

    def nest(
        self, keys: list[Place], first: Sequence[Value],
        arrays: dict[Place, Op], tensors: dict[Value, Op], depth: int,
    ) -> Sequence[Value]:  # fmt: skip
        """Append the loop at a depth with those in it, and return its results."""
        b, lengths = self.b, self.run.lengths
        index = Param(i32, "k")
        params = [Param(v.type, self.template_value(at).name) for at, v in zip(keys, first)]
        self.indices.append(index)
        with b.region(index, *params) as body:
            if depth + 1 < len(lengths):
                following = self.nest(keys, params, arrays, tensors, depth + 1)
            else:
                self.carried = dict(zip(keys, params))
                self.emit_constants()
                self.copy(self.groups[0], tensors)
                following = [self.new[self.template_value(at)] for at in keys]
                for at, array in arrays.items():
                    place = b.emit("member_at", array, self.group_index())
                    b.emit("store", place, self.new[self.template_value(at)])
            b.emit("yield", *following)
        ends = b.const(0, i32), b.const(lengths[depth], i32)
        return b.for_(*ends, first, body, NOUNROLL).results

    # --- constants

    def emit_constants(self) -> None:
        """Append the values of all constant operands and varying components."""
        for k, relations in enumerate(self.run.relations):
            if self.groups[0][k].kind in SELECTORS and self.component_varies(k):
                self.constants[k, None] = self.emit_series(i32, [g[k].attr for g in self.groups])
            for a, relation in enumerate(relations):
                if relation == CONSTANT:
                    values = [group[k].args[a] for group in self.groups]
                    t = values[0].type
                    assert isinstance(t, Scalar | Tensor)
                    attrs = [v.attr for v in values]  # type: ignore[attr-defined]
                    self.constants[k, a] = self.emit_series(t, attrs)

    def emit_series(self, t: Scalar | Tensor, attrs: Sequence[Any]) -> Value:
        """Append the value of a constant whose bits in each group are `attrs`."""
        key = (t, tuple(attrs))
        if key not in self.constants:
            self.constants[key] = self.new_series(t, attrs)
        return self.constants[key]

    def new_series(self, t: Scalar | Tensor, attrs: Sequence[Any]) -> Value:
        b = self.b
        if all(attr == attrs[0] for attr in attrs):
            return b.emit("const", attr=attrs[0], type=t)
        if isinstance(t, Tensor):
            parts = [self.emit_series(t.elem, part) for part in zip(*attrs, strict=True)]
            return b.assemble(parts, t)
        numbers = as_integers(t, attrs)
        factors = None if numbers is None else affine(numbers, self.run.lengths)
        if factors is not None:
            return self.emit_affine(t, factors)
        table = b.emit("const", attr=tuple(attrs), type=Tensor.of(t, (len(attrs),)))
        return b.emit("extract_at", table, self.group_index())

    def emit_affine(self, t: Scalar, factors: Sequence[int]) -> Value:
        """Append the affine function of the loop indices, computed in integers."""
        b, (start, *steps) = self.b, factors
        own = t if t.kind in "iu" and t.bits >= i32.bits else i32
        total: Value | None = None
        for index, step in zip(self.indices, steps):
            if step:
                is_wide = own.bits > i32.bits
                term = b.emit("cast", index, type=own) if is_wide else as_type(b, index, own)
                term = term if step == 1 else b.emit("mul", term, b.const(step, own))
                total = term if total is None else b.emit("add", total, term)
        assert total is not None
        total = total if start == 0 else b.emit("add", total, b.const(start, own))
        return total if own is t else b.emit("cast", total, type=t)

    def group_index(self) -> Value:
        """Append the number of the group."""
        lengths = self.run.lengths
        return self.emit_affine(
            i32, [0, *(prod(lengths[k + 1 :]) for k in range(len(lengths)))]
        )  # fmt: skip

    # --- the template

    def copy(self, ops: Sequence[Op], tensors: dict[Value, Op]) -> None:
        """Append copies of the template's ops, given in pre-order."""
        self.at = 0
        for item in range(self.run.start, self.run.start + self.run.period):
            self.copy_op(self.outer.code.items[item], tensors)

    def copy_op(self, op: Op, tensors: dict[Value, Op]) -> None:
        b, k = self.b, self.at
        self.at += 1
        b.span = op.span
        args = tuple([self.operand(k, a, v) for a, v in enumerate(op.args)])
        regions = []
        for region in op.regions:
            params = [Param(p.type, p.name) for p in region.params]
            self.new.update(zip(region.params, params))
            with b.region(*params) as new:
                for inner in region.ops:
                    if inner.kind != "const":
                        self.copy_op(inner, tensors)
            regions.append(new)
        b.span = op.span
        component = self.constants.get((k, None))
        if component is not None:
            self.new[op] = self.select_component(op, args[0], component, tensors)
            return
        types = tuple([v.type for v in op.results]) if op.type is None else ()
        copy = Op(op.kind, args, op.attr, op.type, op.span, op.name, tuple(regions), types)
        b.insert(copy)
        self.new.update(zip(op.results, copy.results))
        for old, result in zip(op.results, copy.results):
            result.name = old.name

    def select_component(
        self, op: Op, arg: Value, component: Value, tensors: dict[Value, Op]
    ) -> Value:
        """Append a `member` or `extract` of a component that differs between groups."""
        if op.kind == "member":
            return self.b.emit("member_at", arg, component, name=op.name)
        if op.args[0] not in tensors:
            return self.b.emit("extract_at", arg, component, name=op.name)
        place = self.b.emit("member_at", tensors[op.args[0]], component)
        return self.b.emit("load", place, name=op.name)

    def operand(self, k: int, a: int, v: Value) -> Value:
        kind, place = self.run.relations[k][a]
        if kind == CONSTANT.kind:
            return self.constants[k, a]
        if kind == SAME:
            return self.new[v]
        return self.carried[place] if kind == PREVIOUS else self.outer.map.get(v, v)
