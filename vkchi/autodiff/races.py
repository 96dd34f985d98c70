"""Parallel loops whose iterations read what others change: what they find depends on the order of
iterations, and a gradient, which computes it again, may find something else.

Owns: `find_pairs`, the reads and writes of a kernel's loops that may meet in two iterations, as far
as their indices tell; `mark` and `trace`, the kernels that note which iterations change anything,
and who reads and who changes every element; and `Races`, which tries them on copies. What is found
is certain: an element that one iteration read and another one changed. To add 0 changes nothing,
nor to store what stands there already if it has no derivative or was read there; and what is read
by an iteration that changes nothing does not count: so it is where a `select` or a factor of 0
leaves out every other element.

Must not know: tapes.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from vkchi.autodiff.calls import Call, copy_of
from vkchi.autodiff.memory import for_each_element
from vkchi.autodiff.plan import Program
from vkchi.autodiff.primal import Activity
from vkchi.autodiff.reach import Reach, name_under
from vkchi.autodiff.refusals import runs_once
from vkchi.autodiff.regions import Box, Footprint, Ranges, element_of, may_meet
from vkchi.autodiff.rules import is_smooth
from vkchi.autodiff.sweep import place_in
from vkchi.autodiff.watched import flag_type
from vkchi.autodiff.wild import Spread
from vkchi.compiler import build
from vkchi.errors import DeviceError, GradientError
from vkchi.fields.storage import Storage
from vkchi.gradients import prepare
from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value, base_of, walk
from vkchi.ir.ops import WRITES, Effect, effect_of
from vkchi.ir.rebuild import rebuild
from vkchi.launch import Plan
from vkchi.passes.alias import Place, place_of
from vkchi.passes.alias import may_meet as components_meet
from vkchi.passes.demote import Survey
from vkchi.types import Array, Ptr, Scalar, Tensor, cell_of, i32

MARKS = 1 << 18
NOBODY, LAST = -1, (1 << 31) - 1  # who reads or changes an element first and last, as yet
CELLS, MET = (".first", ".last"), ".met"


class Pair(NamedTuple):
    """Reads and writes of one array in one loop, each of one line."""

    loop: Op
    reads: dict[Op, None]
    writes: dict[Op, None]


class Race(NamedTuple):
    """A pair that met, and the names of the arrays that depend on what was read."""

    pair: Pair
    reaches: frozenset[str]


class Who(NamedTuple):
    """Which iterations did an op: per element, the least and the greatest index."""

    first: Param
    last: Param


# --- what may meet -------------------------------------------------------------------------------


def find_pairs(fn: Func, names: frozenset[str]) -> list[Pair]:
    """The pairs, on arrays of these names, that may meet in two iterations, and whose reads count:
    what they give is put into memory again."""
    found: dict[tuple[object, ...], Pair] = {}
    reach = Reach(fn)
    for loop, read, write in accesses_of(fn, names):
        if reach.flow(frozenset({read})):
            key = (loop, base_of(read.args[0]), read.span, write.span)
            pair = found.setdefault(key, Pair(loop, {}, {}))
            pair.reads[read] = pair.writes[write] = None
    return list(found.values())


def accesses_of(fn: Func, names: frozenset[str]) -> Iterator[tuple[Op, Op, Op]]:
    """Loops, with a read and a write in them that may meet."""
    for loop in fn.body.ops:
        if loop.kind != "parallel" or runs_once(loop):
            continue
        (region,) = loop.regions
        if region.params[0].type is not i32 or waits(loop):
            continue
        survey = Survey(region.ops, region.params[0])
        for op in walk(region):
            root = base_of(op.args[0]) if op.kind == "load" else None
            if not isinstance(root, Param) or root.name not in names or not is_smooth(op):
                continue
            place = place_of(op.args[0])
            for write in survey.writes.get(root, ()):
                if not are_apart(survey, place, write.place):
                    yield loop, op, write.op


def waits(loop: Op) -> bool:
    """Whether iterations wait for each other, so that there is an order."""
    return any(effect_of(op.kind) is Effect.SYNC for op in walk(loop.regions[0]))


def are_apart(survey: Survey, a: Place, b: Place) -> bool:
    """Whether two places of an array are never the same in two iterations."""
    if not components_meet(a.component, b.component):
        return True
    axes = list(zip(a.indices, b.indices, strict=True))
    if survey.tells_iteration([i.root for i, j in axes if i == j and i.root is not None]):
        return True
    return any(
        i.root is j.root and i.offset != j.offset and (i.root is None or survey.is_steady(i.root))
        for i, j in axes
    )


# --- who meets -----------------------------------------------------------------------------------


class Traced(NamedTuple):
    """The kernel that puts the number of a pair that met, from 1, into `met`. `cells` are the
    parameters of what it notes, by name, with the arrays that they are like; `marks` those of the
    iterations that change anything, by loop."""

    func: Func
    cells: dict[str, Param]
    marks: dict[Op, Param]


def mark(fn: Func, marks: Mapping[Op, Param], sparing: Container[Op]) -> Func:
    """The Func that sets the marks of the iterations that change anything. It reports nothing."""
    inside = {op: loop for loop in marks for op in walk(loop.regions[0]) if op.kind in WRITES
              and isinstance(base_of(op.args[0]), Param)}  # fmt: skip

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op in inside:
            place = mark_of(b, marks, inside[op])
            for changed in changes(b, op, args, sparing):
                one, zero = b.const(1, i32), b.const(0, i32)
                value = one if changed is None else b.emit("select", changed, one, zero)
                b.emit("atomic_max", place, value)
        return () if effect_of(op.kind) is Effect.REPORT else None

    new = rebuild(fn, visit)
    return Func(f"{fn.name}.marked", (*fn.params, *marks.values()), new.body, fn.span)


def mark_of(b: Builder, marks: Mapping[Op, Param], loop: Op) -> Value:
    """The place of an iteration's mark; iterations that are far apart share one."""
    index = loop.regions[0].params[0]
    return b.emit("elem", marks[loop], b.emit("and", index, b.const(MARKS - 1, i32)))


def trace(fn: Func, pairs: Sequence[Pair], sparing: Container[Op]) -> Traced:
    """The Func that notes who reads and who changes what. It reports nothing."""
    who: dict[Op, list[Who]] = {}
    cells: dict[str, Param] = {}
    loops: dict[Op, Op] = {}
    both: list[tuple[Who, Who]] = []
    for pair in pairs:
        made = [new_who(ops, cells) for ops in (pair.reads, pair.writes)]
        both.append((made[0], made[1]))
        for ops, one in zip((pair.reads, pair.writes), made):
            for op in ops:
                loops[op] = pair.loop
                who.setdefault(op, []).append(one)
    marks = {loop: Param(Array.of(i32, 1), f".marks.{k}")
             for k, loop in enumerate(dict.fromkeys(loops.values()))}  # fmt: skip
    met = Param(cell_of(i32), MET)

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if effect_of(op.kind) is Effect.REPORT:
            return ()
        for one in who.get(op, ()):
            parts = list(changes(b, op, args, sparing))
            if op.kind == "load":
                marked = b.emit("load", mark_of(b, marks, loops[op]))
                parts = [b.emit("ne", marked, b.const(0, i32))] * len(parts)
            note(b, args[0], parts, one, loops[op].regions[0].params[0])
        if op is fn.body.ops[-1]:
            for k, (read, write) in enumerate(both):
                compare(b, read, write, met, k + 1)
        return None

    new = rebuild(fn, visit)
    own = (p for two in both for one in two for p in one)
    params = (*fn.params, *own, *marks.values(), met)
    return Traced(Func(f"{fn.name}.traced", params, new.body, fn.span), cells, marks)


def new_who(ops: Iterable[Op], cells: dict[str, Param]) -> Who:
    """What notes who does these ops."""
    root = base_of(next(iter(ops)).args[0])
    assert isinstance(root, Param)
    number = len(cells)
    first, last = (Param(flag_type(root), f"{end}.{number}") for end in CELLS)
    cells[first.name] = cells[last.name] = root
    return Who(first, last)


def note(b: Builder, ptr: Value, parts: Sequence[Value | None], who: Who, index: Value) -> None:
    """Note an iteration at a place, for the components of which that is said (None: surely)."""
    places = [place_in(b, ptr, param, lambda v: v) for param in who]
    for place, kind, none in zip(places, ("atomic_min", "atomic_max"), (LAST, NOBODY)):
        assert isinstance(place.type, Ptr)
        for k, part in enumerate(parts):
            is_tensor = isinstance(place.type.elem, Tensor)
            target = b.emit("member", place, attr=k) if is_tensor else place
            number = index if part is None else b.emit("select", part, index, b.const(none, i32))
            b.emit(kind, target, number)


def changes(
    b: Builder, op: Op, args: tuple[Value, ...], sparing: Container[Op]
) -> Iterator[Value | None]:
    """For every component, whether an op changes it; None for sure."""
    ptr = op.args[0].type
    assert isinstance(ptr, Ptr)
    t = ptr.elem
    assert isinstance(t, Scalar | Tensor)
    old = None
    if op in sparing:
        old = b.emit("load", args[0]) if op.kind == "store" else b.const(0, t)
    if not isinstance(t, Tensor):
        yield None if old is None else b.emit("ne", old, args[1])
        return
    for k in range(t.size):
        if old is None:
            yield None
        else:
            yield b.emit("ne", *(b.emit("extract", v, attr=k) for v in (old, args[1])))


def find_sparing(fn: Func, names: frozenset[str]) -> set[Op]:
    """The writes that may leave a place as it is, with its derivative."""
    active = Activity(fn, names)
    loads: dict[Value, list[Op]] = {}
    for op in walk(fn.body):
        if op.kind == "load":
            loads.setdefault(base_of(op.args[0]), []).append(op)
    found = {op for op in walk(fn.body) if op.kind == "atomic_add"}
    for op in walk(fn.body):
        if op.kind == "store":
            same = {x for x in loads.get(base_of(op.args[0]), ()) if is_same_place(x, op)}
            if op.args[1] not in active or op.args[1] in Spread(fn, same).values:
                found.add(op)
    return found


def is_same_place(a: Op, b: Op) -> bool:
    """Whether two accesses of an array are of the same element, in an iteration."""
    return place_of(a.args[0]).indices == place_of(b.args[0]).indices


def compare(b: Builder, read: Who, write: Who, met: Param, number: int) -> None:
    """Put the number into `met` if an element was read by one iteration and changed by another."""

    def look(*keys: Value) -> None:
        found = [b.emit("load", b.emit("elem", p, *keys)) for p in (*read, *write)]
        t = found[0].type
        size = t.size if isinstance(t, Tensor) else 1
        for k in range(size):
            parts = [b.emit("extract", v, attr=k) if isinstance(t, Tensor) else v for v in found]
            b.emit("atomic_max", b.emit("elem", met), clash(*parts))

    def clash(r0: Value, r1: Value, w0: Value, w1: Value) -> Value:
        zero = b.const(0, i32)
        is_both = b.emit("and", b.emit("ge", r1, zero), b.emit("ge", w1, zero))
        is_one = b.emit("eq", b.emit("min", r0, w0), b.emit("max", r1, w1))
        return b.emit("select", b.emit("and", is_both, b.emit("not", is_one)),
                      b.const(number, i32), zero)  # fmt: skip

    for_each_element(b, read.first, look)


# --- trying it -----------------------------------------------------------------------------------


class Trial(NamedTuple):
    """What is run on copies."""

    traced: Traced
    marking: Program
    tracing: Program


class Races:
    """What may meet in a kernel, by its arrays of these names, which have gradients."""

    def __init__(self, plan: Plan, names: frozenset[str]) -> None:
        self.plan, self.names = plan, names
        self.fn = prepare(plan.func, names)
        self.pairs = find_pairs(self.fn, names)
        self.calls = 0
        self.has_met = False
        self.footprint = Footprint(self.fn, (), ())
        self.trials: dict[tuple[int, ...], Trial] = {}

    def is_due(self) -> bool:
        """Whether to look this time: at the 1st, 2nd, 4th, 8th call and so on; every time, once a
        race was found."""
        self.calls += 1
        return self.has_met or self.calls & (self.calls - 1) == 0

    def find(self, call: Call) -> Race | None:
        """A race in this call; None if there is none."""
        near = self.near(call)
        if not near:
            return None
        if near not in self.trials:
            self.trials[near] = self.new_trial(call, [self.pairs[k] for k in near])
        number = self.try_(call, self.trials[near])
        if not number:
            return None
        self.has_met = True
        pair = self.pairs[near[number - 1]]
        return Race(pair, frozenset(Reach(self.fn).flow(frozenset(pair.reads))))

    def near(self, call: Call) -> tuple[int, ...]:
        """The pairs that may meet with the numbers of a call."""
        shapes = tuple([(name, array.shape) for name, array in call.arrays.items()])
        ranges = self.footprint.ranges(call.numbers, shapes)
        boxes = [[[box_of(op, ranges) for op in ops] for ops in pair[1:]] for pair in self.pairs]
        return tuple(
            k for k, (a, b) in enumerate(boxes) if any(may_meet(x, y) for x in a for y in b)
        )

    def new_trial(self, call: Call, pairs: Sequence[Pair]) -> Trial:
        """The kernels that find which of these pairs meet."""
        sparing = find_sparing(self.fn, self.names)
        made = trace(self.fn, pairs, sparing)
        marking = mark(self.fn, made.marks, sparing)
        return Trial(made, self.program(call, marking), self.program(call, made.func))

    def program(self, call: Call, fn: Func) -> Program:
        """A kernel made of the call's."""
        runtime = self.plan.runtime
        built = build(fn, runtime.options, runtime.device.caps)
        return Program(self.plan, fn, built, call.args)

    def try_(self, call: Call, trial: Trial) -> int:
        """The number of a pair that met, from 1; 0 for none."""
        runtime = self.plan.runtime
        with runtime.lock:
            own = {p.name: Storage(runtime, i32, (MARKS,)) for p in trial.traced.marks.values()}
            for name, root in trial.traced.cells.items():
                own[name] = new_cells(call, root)
                own[name].fill(LAST if name.startswith(CELLS[0]) else NOBODY)
            met = own[MET] = Storage(runtime, i32, ())
            written = call.arrays.keys() & self.plan.written
            for program in (trial.marking, trial.tracing):
                copies = {name: copy_of(call.arrays[name]) for name in written}
                program.launch(program.bind(call.args, {**call.arrays, **copies, **own}))
            return int(met.read(()))


def box_of(op: Op, ranges: Ranges) -> Box:
    """Which part of its array an op may touch."""
    return tuple([ranges.of(v) for v in element_of(op.args[0]).args[1:]])


def new_cells(call: Call, root: Param) -> Storage:
    """An integer for each number of an array."""
    t = flag_type(root)
    return Storage(call.plan.runtime, t.elem, call.arrays[root.name].shape, t.layout)


def races_of(plan: Plan, names: frozenset[str]) -> Races:
    """What may meet in a kernel, found once."""
    return plan.once(("races", names), lambda: Races(plan, names))


class FoundRaces:
    """The races of a tape, by kernel."""

    def __init__(self) -> None:
        self.races: dict[Plan, Race] = {}

    def look(self, call: Call, names: frozenset[str], *, always: bool = False) -> Race | None:
        """A race in a call, if this is a time to look; it is noted."""
        races = races_of(call.plan, names)
        if not races.pairs or not (races.is_due() or always):
            return None
        try:
            race = races.find(call)
        except DeviceError:  # there is no memory for copies
            if always:
                raise
            return None
        if race is not None:
            self.races[call.plan] = race
        return race

    def check(self, call: Call, adjoints: Mapping[str, Storage]) -> None:
        """Raises GradientError if a kernel has one, and what comes of it has a derivative now."""
        race = self.races.get(call.plan)
        if race is not None:
            reached = [adjoints[name] for name in race.reaches if name in adjoints]
            if any(array.to_numpy().any() for array in reached):
                raise refuse(race)


def refuse(race: Race, kind: type[GradientError] = GradientError) -> GradientError:
    """The error for a race."""
    read, write = next(iter(race.pair.reads)), next(iter(race.pair.writes))
    sentence = (
        f"one iteration reads an element of `{name_under(read)}` that another one of the same loop "
        "changes: what it finds depends on their order, and so does the gradient"
    )
    return kind(
        sentence, read.span, notes=(("it is changed here", write.span),),
        help="read from a copy of the array, or change it in a loop of its own after this one; or "
        "loop serially: ti.loop_config(serialize=True)",
    )  # fmt: skip
