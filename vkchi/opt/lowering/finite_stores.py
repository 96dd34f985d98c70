"""Instrumentation of float stores: report NaN and infinities (`ti.init(debug="nan")`).

Each store and atomic of floats to an array in `names` is followed by a test of the stored value. A
failed test reports the values of the expression that computed it, down to its leaves, as far as the
record has room. `FiniteSite` then finds the operation in it that first gave a value that is not
finite. Stores of constants are not tested.

    store %e, %v   ->   store %e, %v; if not finite(%v) {report_first %iteration, %v, ...}

Reports are ordered by iteration. If an atomic's operand was finite and its old value was not, its
report comes after all others: another store of the loop may have caused it.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.core import DUAL, Func, Op, Param, Region, Value, base_memory, is_constant
from vkchi.ir.num import Num
from vkchi.ir.ops import WRITES
from vkchi.ir.rebuild import Rebuilder
from vkchi.reports.sites import FAILURE_WORDS, RECORD_HEAD, FloatStep, ReportSite, count_words
from vkchi.span import Span
from vkchi.types import Array, Scalar, Tensor, f32, i32, scalar_of, shape_of, u32, u64

EXPONENTS = {32: (u32, 0x7F800000), 64: (u64, 0x7FF0000000000000)}  # bits of infinity
LATE = -(1 << 31)  # in the iteration of a report: after all others
MOST_WORDS = FAILURE_WORDS - 24  # leaves room for the indices
# Atomic -> op that gives the stored value from the old value and the operand.
UPDATES = {
    "atomic_add": "add", "atomic_mul": "mul", "atomic_max": "max", "atomic_min": "min",
}  # fmt: skip


def watch_stores(
    fn: Func, names: Container[str], first: int, *, has_int64: bool
) -> tuple[Func, tuple[ReportSite, ...]]:
    """Return the instrumented Func and its report sites, numbered from `first`."""
    watcher = StoreWatcher(names, first, has_int64=has_int64)
    return watcher.run(fn), tuple(watcher.sites)


class StoreWatcher(Rebuilder):
    """Adds a test behind each float store to an array in `names`."""

    def __init__(self, names: Container[str], first: int, *, has_int64: bool) -> None:
        super().__init__(self.visit_op)
        self.names, self.first, self.has_int64 = names, first, has_int64
        self.sites: list[ReportSite] = []
        self.loop: Op | None = None

    def keep(self, op: Op, args: tuple[Value, ...]) -> Op:
        if op.kind != "parallel":
            return super().keep(op, args)
        self.loop = op
        made = super().keep(op, args)
        self.loop = None
        return made

    def visit_op(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        root = base_memory(op.args[0]) if op.kind in WRITES else None
        if not isinstance(root, Param) or root.name not in self.names:
            return None
        operand = args[-1]
        if not isinstance(root.type, Array) or scalar_of(operand.type).kind != "f":
            return None
        if op.kind not in UPDATES and is_constant(operand):
            return None
        made = b.insert(op if args is op.args else self.copy(op, args, ()))
        stored, rank = operand, b.emit("thread_index")
        is_finite = self.finite(b, stored)
        if op.kind in UPDATES:
            stored = b.emit(UPDATES[op.kind], made, operand)
            is_own = b.emit("or", self.finite(b, made), b.emit("not", is_finite))
            rank = b.emit("select", is_own, rank, b.emit("or", rank, b.const(LATE, i32)))
            is_finite = self.finite(b, stored)
        with b.region() as nothing:
            b.emit("yield")
        with b.region() as then:
            self.report(b, op, root.name, stored, rank)
            b.emit("yield")
        b.if_(is_finite, nothing, then)
        return [made] if op.type is not None else ()

    def finite(self, b: Builder, v: Value) -> Value:
        """Append a test that all components of a float value are finite, and return its bool."""
        total: Value | None = None
        for part in b.components(v):
            test = self.finite_scalar(b, part)
            total = test if total is None else b.emit("and", total, test)
        assert total is not None
        return total

    def last_wrong(self, b: Builder, v: Value) -> Value:
        """Return the first component of a tensor that is not finite; the last one if all are
        finite."""
        *others, found = b.components(v)
        for part in reversed(others):
            found = b.emit("select", self.finite_scalar(b, part), found, part)
        return found

    def finite_scalar(self, b: Builder, v: Value) -> Value:
        bits = scalar_of(v.type).bits
        if bits == u64.bits and not self.has_int64:
            return b.emit("not", b.emit("or", b.emit("isnan", v), b.emit("isinf", v)))
        number = Num(b, v).cast(f32) if bits < u32.bits else Num(b, v)
        t, mask = EXPONENTS[max(bits, u32.bits)]
        exponent = b.emit("and", number.bits(t).v, b.const(mask, t))
        return b.emit("ne", exponent, b.const(mask, t))

    def report(self, b: Builder, op: Op, name: str, stored: Value, rank: Value) -> None:
        record = RecordedValues()
        iteration = tuple(
            [
                (index, tuple([record.place(self.map.get(v, v)) for v in values]))
                for index, values in iteration_of(self.loop)
            ]
        )
        if record.words + words_of(stored) > MOST_WORDS:
            stored = self.last_wrong(b, stored)
        result = record.place(stored)
        steps = (*steps_of(record, stored, op.span), FloatStep("", (), result))
        types = tuple([(scalar_of(v.type).name, shape_of(v.type)) for v in record.values])
        site = ReportSite("nan", (describe(name),), types, op.span, iteration, steps=steps)
        b.emit("report_first", rank, *record.values, attr=self.first + len(self.sites))
        self.sites.append(site)


def describe(name: str) -> str:
    """Return the description of an array parameter in messages: its name, or "the gradient of" or
    "the dual of" its primal array's name."""
    primal = name.partition("..")[0]
    if primal == name:
        return f"`{name}`"
    return f"the {'dual' if name.endswith(DUAL) else 'gradient'} of `{primal}`"


class RecordedValues:
    """The values of a record, each once."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.places: dict[Value, int] = {}
        self.words = RECORD_HEAD

    def place(self, v: Value) -> int:
        if v not in self.places:
            self.places[v] = len(self.values)
            self.values.append(v)
            self.words += words_of(v)
        return self.places[v]


def words_of(v: Value) -> int:
    return count_words(scalar_of(v.type).name, shape_of(v.type))


def steps_of(record: RecordedValues, v: Value, at: Span | None) -> list[FloatStep]:
    """Return the ops with float results that computed `v`, operands first. Adds their operands and
    results to `record`, as far as it has room."""
    found: list[FloatStep] = []
    seen: set[Value] = set()

    def visit(v: Value) -> None:
        if v in seen or not isinstance(v, Op) or v.regions or not v.args or v.kind == "const":
            return
        seen.add(v)
        operands = [x for x in v.args if isinstance(x.type, Scalar | Tensor)]
        if len(operands) < len(v.args) or not operands:
            return  # a load
        room = sum(words_of(x) for x in (v, *operands) if x not in record.places)
        if record.words + room > MOST_WORDS:
            return
        places = tuple([record.place(x) for x in operands])
        for x in operands:
            visit(x)
        if scalar_of(v.type).kind == "f":
            found.append(FloatStep(v.kind, places, record.place(v), v.span or at))

    visit(v)
    return found


def iteration_of(loop: Op | None) -> list[tuple[str, list[Value]]]:
    """Return the named indices of a parallel loop: each name with its values. Adjacent parameters
    of one name, as of `ti.grouped`, share an entry. Empty without a loop."""
    if loop is None:
        return []
    found: list[tuple[str, list[Value]]] = []
    region = loop.regions[0]
    for param in region.params:
        value = index_of(region, param, loop.span)
        if found and param.name and found[-1][0] == param.name:
            found[-1][1].append(value)
        elif param.name:
            found.append((param.name, [value]))
    return found


def index_of(region: Region, param: Param, header: Span | None) -> Value:
    """Return the sum that computes the user's index from `param`: an `add` of its name and type on
    the line of `header`; else `param`. A range with a step has such a sum."""
    for op in region.ops:
        is_index = op.name == param.name and op.kind == "add" and op.type is param.type
        if is_index and op.span is not None and header is not None:
            return op if op.span.line == header.line else param
    return param
