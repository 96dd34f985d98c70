"""Loops over the rows of large tensors, in place of an op per component.

    %c = matmul %a, %b                     # 16x16, of loads
    store %pc, %c                                                                        becomes
    for 0, 16 {(i) store row i of %pc, matmul (row i of %pa), %b}

Motivation: the emitter scalarizes tensors, and drivers' compile time grows with the square of the
length of straight code.

- A tensor of more than LARGE_TENSOR components has rows: those of a matrix, or short parts of a
  vector (`row_width`).
- Ops that are computed by rows are merged into the loop of their only user (`TensorReads`). A load
  is such an op if nothing writes its memory before it is read.
- What remains is straight code: the row of a product, and the right operand, whose components are
  needed in each row. Neither has more than STRAIGHT_TENSOR components or products.
- Private arrays hold results that have other users, such as a product that a loop carries. Software
  drivers access private arrays at computed indices lane by lane, so they are the last resort.
- Other ops, among them control flow, get the whole tensor.

Sums and products of matrices add in the order of the emitter (`spirv.dispatch`).

    >>> loop_over_rows(fn)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from vkchi.analysis.memory.alias import bases_may_alias
from vkchi.ir.builder import Builder
from vkchi.ir.core import (
    Func,
    Op,
    Param,
    Region,
    Value,
    base_memory,
    is_constant,
    uses_in,
    walk,
    walk_ops,
)
from vkchi.ir.ops import ATOMICS, ELEMENTWISE, NOUNROLL, SYNCS, WRITES
from vkchi.ir.rebuild import Rebuilder
from vkchi.target import tuning
from vkchi.tuples import NamedTuple
from vkchi.types import Tensor, i32

ROW, AT, WHOLE = "row", "at", "whole"  # how a tensor is read: by rows, by components, at once


def loop_over_rows(fn: Func) -> Func:
    """Replace ops on large tensors by loops; returns `fn` itself if there are none."""
    return TensorLoops(fn).run(fn)


# --- types ---------------------------------------------------------------------------------------


def tensor_of(v: Value) -> Tensor:
    assert isinstance(v.type, Tensor)
    return v.type


def is_large(v: Value) -> bool:
    return isinstance(v.type, Tensor) and v.type.size > tuning.LARGE_TENSOR


def row_width(t: Tensor) -> int:
    """Return the components of a row: all of a short one of a matrix, else a part."""
    length = t.shape[-1]
    if len(t.shape) == 2 and length <= tuning.LONG_ROW:
        return length
    return next(k for k in range(tuning.PART_OF_ROW, 0, -1) if length % k == 0)


def row_type(t: Tensor) -> Tensor:
    width = row_width(t)
    return Tensor.of(t.elem, (1, width) if len(t.shape) == 2 else (width,))


class Product(NamedTuple):
    """The extents of a product of matrices; `columns` is 1 if the right one is a vector."""

    rows: int
    inner: int
    columns: int

    @property
    def is_straight(self) -> bool:
        """True if a row of the result is straight code."""
        return self.inner * self.columns <= tuning.STRAIGHT_TENSOR


def product_of(op: Op) -> Product:
    left = tensor_of(op.args[0])
    return Product(left.n, left.m, tensor_of(op).size // left.n)


# --- the plan ------------------------------------------------------------------------------------


class TensorReads:
    """Lazy results, which are computed by rows where their users read them.

    - `reads`: the ways in which the users of a tensor read it.
    - `last`: the last op of the region that reads a tensor, through lazy ones.

    Users come after their operands, so ops are visited last to first.
    """

    def __init__(self, fn: Func) -> None:
        self.uses = uses_in(fn.body)
        self.region_of: dict[Op, Region] = {}
        self.position: dict[Op, int] = {}
        regions = [fn.body, *(r for op in walk(fn.body) for r in op.regions)]
        for region in regions:
            for k, op in enumerate(region.ops):
                self.region_of[op], self.position[op] = region, k
        self.lazy: set[Op] = set()
        self.reads: dict[Value, set[str]] = {}
        self.last: dict[Op, int] = {}
        for op in reversed(list(walk(fn.body))):
            if is_large(op):
                self.choose(op)

    def choose(self, op: Op) -> None:
        users = self.uses.get(op, [])
        is_local = all(self.region_of[u] is self.region_of[op] for u in users)
        reads = {way for u in users for way in self.reads_by(u, op)} if is_local else {WHOLE}
        self.reads[op] = reads
        self.last[op] = max(
            [self.last[u] if u in self.lazy else self.position[u] for u in users if is_local],
            default=self.position[op],
        )
        if op.kind in ("const", "splat") or (
            is_local and reads - {WHOLE} and self.may_wait(op, users, reads)
        ):
            self.lazy.add(op)

    def may_wait(self, op: Op, users: Sequence[Op], reads: set[str]) -> bool:
        if op.kind == "load":
            return self.is_unchanged(op)
        if len(users) != 1:
            return False
        if op.kind == "matmul":
            product, t = product_of(op), tensor_of(op)
            is_by_rows = len(t.shape) == 2 and row_width(t) == product.columns
            return reads == {ROW} and is_by_rows and product.is_straight
        return op.kind in ELEMENTWISE or op.kind in ("transpose", "outer")

    def reads_by(self, user: Op, v: Op) -> set[str]:
        """Return the ways in which an op of the same region reads an operand."""
        kind = user.kind
        if kind == "matmul":
            return self.reads_of_product(user, v)
        if kind == "sum" or (kind == "store" and user.args[1] is v):
            return {ROW}
        if kind in ATOMICS and user.args[1:] == (v,) and user not in self.uses:
            return {ROW}
        if user not in self.lazy:
            return {WHOLE}
        if kind == "transpose":
            return {AT}
        if kind == "outer":
            return {AT, WHOLE}
        return self.reads[user]

    def reads_of_product(self, user: Op, v: Op) -> set[str]:
        product = product_of(user)
        found = set()
        if v is user.args[0]:
            found.add(ROW if row_width(tensor_of(v)) == product.inner else AT)
        if v is user.args[1]:
            found.add(WHOLE if product.is_straight else AT)
        return found

    def is_unchanged(self, load: Op) -> bool:
        """True if no op between a load and its last reader writes what it loads.

        The last reader may: it stores a row behind the reads of this row.
        """
        begin, end = self.position[load], self.last[load]
        *between, last = self.region_of[load].ops[begin + 1 : end + 1]
        base = base_memory(load.args[0])
        is_in_step = last.kind == "store" and self.is_in_step(load, last)
        return not any(
            op.kind in SYNCS
            or (op.kind in WRITES and bases_may_alias(base_memory(op.args[0]), base))
            for op in walk_ops(between if is_in_step else [*between, last])
        )

    def is_in_step(self, v: Op, store: Op) -> bool:
        """True if a store to the place of a load, and elementwise ops between, are its only
        readers."""
        load_of = store.args[0]
        todo, seen = [v], {v}
        while todo:
            for user in self.uses[todo.pop()]:
                if user is store or user in seen:
                    continue
                if user not in self.lazy or user.kind not in ELEMENTWISE:
                    return False
                seen.add(user)
                todo.append(user)
        return v.args[0] is load_of


# --- the loops -----------------------------------------------------------------------------------


class Parts(NamedTuple):
    """Functions that append code for parts of a tensor, and return the value.

    - `row`: the row of this number, a tensor of `row_type`.
    - `at`: the component of this number, counted row by row.
    - `whole`: the tensor.
    """

    row: Callable[[Value], Value]
    at: Callable[[Value], Value]
    whole: Callable[[], Value]


class TensorLoops(Rebuilder):
    """Rewrites one Func.

    - `parts`: tensors of the old Func that need not be read at once.
    - `copies`: private arrays with copies of others, made in a region.
    """

    def __init__(self, fn: Func) -> None:
        super().__init__(self.visit_op)
        self.plan = TensorReads(fn)
        self.parts: dict[Value, Parts] = {}
        self.copies: dict[tuple[Value, Region], Op] = {}

    def visit_op(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if not any(map(is_large, (op, *op.args))):
            return None
        handler = HANDLERS.get(op.kind)
        if handler is None and op.kind in ELEMENTWISE:
            handler = TensorLoops.elementwise
        if handler is not None and (found := handler(self, op, args)) is not None:
            return found
        if self.parts.keys().isdisjoint(op.args):
            return None
        return self.keep(op, tuple(map(self.whole, op.args))).results

    # --- parts of tensors

    def whole(self, v: Value) -> Value:
        """Return a tensor that is computed at once; append that if it is not."""
        mapped = self.map.get(v, v)
        is_kept = v not in self.parts or WHOLE in self.plan.reads.get(v, ()) or is_constant(v)
        return mapped if is_kept else self.parts[v].whole()

    def parts_of(self, v: Value) -> Parts:
        """Return the parts of a tensor. One that is computed at once is copied to a private
        array."""
        if v in self.parts:
            return self.parts[v]
        key = v, self.b.current
        if key not in self.copies:
            self.copies[key] = self.b.emit("local", self.map.get(v, v))
        return self.parts_at(self.copies[key], v)

    def parts_at(self, place: Value, v: Value) -> Parts:
        """Return the parts of a tensor in memory."""
        t, b = tensor_of(v), self.b

        def at(k: Value) -> Value:
            return b.emit("load", b.emit("member_at", place, k))

        return Parts(self.pack_row(t, at), at, lambda: b.emit("load", place))

    def pack_row(self, t: Tensor, at: Callable[[Value], Value]) -> Callable[[Value], Value]:
        """Return the function for rows that are made of components. It appends each row once."""
        width = row_width(t)
        rows: dict[Value, Value] = {}

        def row(i: Value) -> Value:
            if i not in rows:
                first = self.times(i, width)
                parts = [at(self.plus(first, q)) for q in range(width)]
                rows[i] = self.b.assemble(parts, row_type(t))
            return rows[i]

        return row

    def number(self, value: int) -> Value:
        return self.b.const(value, i32)

    def times(self, k: Value, factor: int) -> Value:
        return self.b.emit("mul", k, self.number(factor))

    def plus(self, k: Value, term: int) -> Value:
        return self.b.emit("add", k, self.number(term)) if term else k

    @contextmanager
    def each(self, count: int, name: str = "i") -> Iterator[Param]:
        """Append a loop over 0 to `count`. What is appended in the context is its body."""
        index = Param(i32, name)
        begin, end = self.number(0), self.number(count)
        with self.b.region(index) as body:
            yield index
            self.b.emit("yield")
        self.b.for_(begin, end, (), body, NOUNROLL)

    @contextmanager
    def each_row(self, v: Value, parts: Parts) -> Iterator[list[tuple[Value, Value]]]:
        """Append a loop over the rows of a tensor; yield the components of one, with numbers."""
        width = row_width(tensor_of(v))
        with self.each(tensor_of(v).size // width) as i:
            first = self.times(i, width)
            values = self.b.components(parts.row(i))
            yield [(self.plus(first, q), x) for q, x in enumerate(values)]

    def new_array(self, t: Tensor) -> Op:
        return self.b.emit("local", self.b.const(0, t))

    def put(self, array: Value, k: Value, value: Value) -> None:
        self.b.emit("store", self.b.emit("member_at", array, k), value)

    # --- results

    def result(self, op: Op, parts: Parts) -> Sequence[Value]:
        """Record the parts of a result: as they are if it is lazy, else those of a private array
        with a copy."""
        if op not in self.plan.lazy:
            array = self.new_array(tensor_of(op))
            with self.each_row(op, parts) as row:
                for k, value in row:
                    self.put(array, k, value)
            return self.in_array(op, array)
        self.parts[op] = parts
        return (parts.whole() if WHOLE in self.plan.reads[op] else op,)

    def in_array(self, op: Op, array: Op) -> Sequence[Value]:
        """Record a result that was stored to a private array, if it is large."""
        if is_large(op):
            self.parts[op] = self.parts_at(array, op)
            if WHOLE not in self.plan.reads[op]:
                return (op,)
        return (self.b.emit("load", array),)

    # --- ops

    def elementwise(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        t = tensor_of(op)
        is_short = t.size <= tuning.STRAIGHT_TENSOR
        if is_short and (op not in self.plan.lazy or not self.parts.keys() >= set(op.args)):
            return None
        operands, kind, b, elem = list(map(self.parts_of, op.args)), op.kind, self.b, t.elem

        def row(i: Value) -> Value:
            return b.emit(kind, *[p.row(i) for p in operands], attr=op.attr, type=row_type(t))

        def at(k: Value) -> Value:
            return b.emit(kind, *[p.at(k) for p in operands], attr=op.attr, type=elem)

        def whole() -> Value:
            return b.emit(kind, *[p.whole() for p in operands], attr=op.attr, type=t)

        return self.result(op, Parts(row, at, whole))

    def const(self, op: Op, args: tuple[Value, ...]) -> None:
        t, bits, b = tensor_of(op), op.attr, self.b
        is_uniform = all(part == bits[0] for part in bits)

        def at(k: Value) -> Value:
            if is_uniform:
                return b.emit("const", attr=bits[0], type=t.elem)
            return b.emit("extract_at", op, k)

        self.parts[op] = Parts(self.pack_row(t, at), at, lambda: op)

    def splat(self, op: Op, args: tuple[Value, ...]) -> None:
        t, b = tensor_of(op), self.b

        def row(i: Value) -> Value:
            return b.emit("splat", args[0], type=row_type(t))

        self.parts[op] = Parts(row, lambda k: args[0], lambda: b.emit("splat", args[0], type=t))

    def load(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op not in self.plan.lazy:
            return None
        return self.result(op, self.parts_at(args[0], op))

    def transpose(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op not in self.plan.lazy:
            return None
        t, b = tensor_of(op), self.b
        rows, columns, operand = self.number(t.m), t.n, self.parts_of(op.args[0])

        def at(k: Value) -> Value:
            row, column = b.emit("mod", k, rows), b.emit("floordiv", k, rows)
            return operand.at(b.emit("add", self.times(row, columns), column))

        def row(i: Value) -> Value:
            parts = [operand.at(self.plus(i, q * columns)) for q in range(t.m)]
            return b.assemble(parts, row_type(t))

        is_all = row_width(t) == t.m
        whole = lambda: b.emit("transpose", operand.whole())  # noqa: E731
        return self.result(op, Parts(row if is_all else self.pack_row(t, at), at, whole))

    def outer(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op not in self.plan.lazy:
            return None
        t, b, columns = tensor_of(op), self.b, self.number(tensor_of(op).m)
        left, right = map(self.parts_of, op.args)

        def at(k: Value) -> Value:
            x = left.at(b.emit("floordiv", k, columns))
            return b.emit("mul", x, right.at(b.emit("mod", k, columns)))

        whole = lambda: b.emit("outer", left.whole(), right.whole())  # noqa: E731
        return self.result(op, Parts(self.pack_row(t, at), at, whole))

    def matmul(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        product, b = product_of(op), self.b
        is_short = product.rows * product.inner * product.columns <= tuning.STRAIGHT_TENSOR
        if is_short and not is_large(op):
            return None
        left = self.row_of_left(op, product)
        if not product.is_straight:
            return self.in_array(op, self.multiply_columns(op, product, left))
        right, columns = self.whole(op.args[1]), self.number(product.columns)

        def row(i: Value) -> Value:
            return b.emit("matmul", left(i), right)

        def at(k: Value) -> Value:
            whole_row = row(b.emit("floordiv", k, columns))
            return b.emit("extract_at", whole_row, b.emit("mod", k, columns))

        if op in self.plan.lazy:
            parts = Parts(row, at, lambda: b.emit("load", self.multiply_rows(op, product, row)))
            return self.result(op, parts)
        return self.in_array(op, self.multiply_rows(op, product, row))

    def row_of_left(self, op: Op, product: Product) -> Callable[[Value], Value]:
        """Return the function for rows of the left operand of a product."""
        t, parts = tensor_of(op.args[0]), self.parts_of(op.args[0])
        if row_width(t) == product.inner:
            return parts.row

        def row(i: Value) -> Value:
            first = self.times(i, product.inner)
            values = [parts.at(self.plus(first, q)) for q in range(product.inner)]
            return self.b.assemble(values, Tensor.of(t.elem, (1, product.inner)))

        return row

    def multiply_rows(self, op: Op, product: Product, row: Callable[[Value], Value]) -> Op:
        """Append a private array with a product, and the loop over rows that fills it."""
        array = self.new_array(tensor_of(op))
        with self.each(product.rows) as i:
            first = self.times(i, product.columns)
            for j, value in enumerate(self.b.components(row(i))):
                self.put(array, self.plus(first, j), value)
        return array

    def multiply_columns(self, op: Op, product: Product, left: Callable[[Value], Value]) -> Op:
        """Append a private array with a product, and the loops over rows and columns that fill
        it."""
        b, right, array = self.b, self.parts_of(op.args[1]), self.new_array(tensor_of(op))
        column_type = Tensor.of(tensor_of(op).elem, (product.inner,))
        with self.each(product.rows) as i:
            row, first = left(i), self.times(i, product.columns)
            with self.each(product.columns, "j") as j:
                values = [right.at(self.plus(j, q * product.columns)) for q in range(product.inner)]
                (value,) = b.components(b.emit("matmul", row, b.assemble(values, column_type)))
                self.put(array, b.emit("add", first, j), value)
        return array

    # --- users

    def sum(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        parts, t, b = self.parts.get(op.args[0]), tensor_of(op.args[0]), self.b
        if parts is None:
            return None
        first = b.emit("sum", parts.row(self.number(0)))
        index, total = Param(i32, "i"), Param(first.type, "total")
        begin, end = self.number(1), self.number(t.size // row_width(t))
        with b.region(index, total) as body:
            value: Value = total
            for x in b.components(parts.row(index)):
                value = b.emit("add", value, x)
            b.emit("yield", value)
        return b.for_(begin, end, (first,), body, NOUNROLL).results

    def store(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        parts = self.parts.get(op.args[1])
        if parts is None:
            return None
        with self.each_row(op.args[1], parts) as row:
            for k, value in row:
                self.put(args[0], k, value)
        return ()

    def update(self, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        parts = self.parts.get(op.args[1])
        if parts is None or len(op.args) != 2 or op in self.plan.uses:
            return None
        with self.each_row(op.args[1], parts) as row:
            for k, value in row:
                self.b.emit(op.kind, self.b.emit("member_at", args[0], k), value)
        return (op,)


HANDLERS: dict[str, Callable[[TensorLoops, Op, tuple[Value, ...]], Sequence[Value] | None]] = {
    "const": TensorLoops.const,
    "splat": TensorLoops.splat,
    "load": TensorLoops.load,
    "transpose": TensorLoops.transpose,
    "outer": TensorLoops.outer,
    "matmul": TensorLoops.matmul,
    "sum": TensorLoops.sum,
    "store": TensorLoops.store,
    **dict.fromkeys(ATOMICS, TensorLoops.update),
}
