"""IR builder: appends ops to the innermost open region.

`emit` infers an op's type by its row in the op table and raises InternalError if the arguments do
not fit. The methods for control ops check nothing; `verify` does.

Example:

    >>> b = Builder()
    >>> with b.region() as body:
    ...     x = b.emit("add", b.const(1, i32), b.const(2, i32))
    ...     b.emit("yield")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from vkchi.errors import InternalError
from vkchi.ir.core import Op, Param, Region, Value, constant_attr
from vkchi.ir.op_table.table import SignatureError
from vkchi.ir.ops import ATOMICS, TABLE
from vkchi.span import Span
from vkchi.types import SCALARS, Scalar, Tensor, Type, bf16, f32, scalar_of, u1, with_scalar


def infer_type(kind: str, args: Sequence[Value], attr: Any, given: Type | None) -> Type | None:
    """Return the result type that the row of `kind` in the op table infers.

    `given` is the type that the caller asks for, which rows such as `cast` need. None for ops
    without a result and for control ops. Memoized. Raises SignatureError if the arguments do not
    fit, and KeyError for an unknown kind.
    """
    return _infer(kind, tuple([v.type for v in args]), attr, given)


@lru_cache(maxsize=8192)  # bounded: every distinct constant is an entry
def _infer(kind: str, types: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    return TABLE[kind].infer(types, attr, given)


class _Open:
    """Context manager: pushes `region` to `stack`, and pops it at the end."""

    __slots__ = ("region", "stack")

    def __init__(self, stack: list[Region], region: Region) -> None:
        self.stack, self.region = stack, region

    def __enter__(self) -> Region:
        self.stack.append(self.region)
        return self.region

    def __exit__(self, *error: object) -> None:
        self.stack.pop()


class Builder:
    """Appends ops to the innermost open region.

    New ops get the source location `span`, which callers set. Inserted ops keep theirs.
    """

    __slots__ = ("_stack", "span")

    def __init__(self) -> None:
        self._stack: list[Region] = []
        self.span: Span | None = None

    @property
    def ops(self) -> list[Op]:
        return self._stack[-1].ops

    @property
    def current(self) -> Region:
        return self._stack[-1]

    @property
    def is_at_top(self) -> bool:
        """True if no loop or branch is open."""
        return len(self._stack) == 1

    @property
    def outermost(self) -> Region:
        """The body of the outermost loop or branch that is open; without one, the Func's body."""
        return self._stack[min(1, len(self._stack) - 1)]

    def region(self, *params: Param) -> _Open:
        """Return a context manager in which ops are appended to a new region with these parameters.

        `with b.region() as r` binds the region to `r`.
        """
        return _Open(self._stack, Region(params, []))

    def within(self, region: Region) -> _Open:
        """Return a context manager in which ops are appended to `region`. Precondition: it has no
        `yield`."""
        return _Open(self._stack, region)

    def emit(
        self,
        kind: str,
        *args: Value,
        attr: Any = None,
        type: Type | None = None,
        name: str = "",
    ) -> Op:
        """Append a new op without regions and return it. `type` is for rows that need a result
        type.

        Raises InternalError if the arguments do not fit the row, KeyError for an unknown kind.
        """
        try:
            t = infer_type(kind, args, attr, type)
        except SignatureError as e:
            place = f" at {self.span.place}" if self.span else ""
            raise InternalError(f"`{kind}` {e}{place}") from None
        op = Op(kind, args, attr, t, self.span, name)
        self._stack[-1].ops.append(op)
        return op

    def insert(self, op: Op) -> Op:
        self._stack[-1].ops.append(op)
        return op

    def extend(self, ops: Sequence[Op]) -> None:
        self._stack[-1].ops.extend(ops)

    def const(self, value: Any, t: Scalar | Tensor) -> Op:
        """Append a `const` of type `t` and return it.

        `value` is a Python or numpy number. For a tensor it may be an array that broadcasts to the
        shape.
        """
        return self.emit("const", attr=constant_attr(value, t), type=t)

    def components(self, v: Value) -> list[Value]:
        """Append the components of a tensor and return them; `[v]` for a scalar."""
        t = v.type
        return (
            [self.emit("extract", v, attr=k) for k in range(t.size)]
            if isinstance(t, Tensor)
            else [v]
        )

    def assemble(self, parts: Sequence[Value], t: Type) -> Value:
        """Append the tensor of type `t` with these components, and return it; the only component if
        `t` is a scalar."""
        return self.emit("pack", *parts, type=t) if isinstance(t, Tensor) else parts[0]

    def if_(self, cond: Value, then: Region, orelse: Region) -> Op:
        """Append an `if` and return it. `then` yields values of the result types.

        Precondition: `orelse` yields the same types. It is not checked.
        """
        types = tuple(v.type for v in then.yielded)
        return self._control("if", (cond,), (then, orelse), types)

    @contextmanager
    def when(self, cond: Value) -> Iterator[None]:
        """Return a context manager in which ops are appended to the only arm of an `if` without
        results."""
        with self.region() as then:
            yield
            self.emit("yield")
        with self.region() as orelse:
            self.emit("yield")
        self.if_(cond, then, orelse)

    def for_(
        self,
        begin: Value,
        end: Value,
        first: Sequence[Value],
        body: Region,
        attr: str | None = None,
    ) -> Op:
        """Append a `for` over [begin, end) and return it; its results are the last carried values.

        `first` are the initial carried values. `body` has parameters (index, *carried) and yields
        the next carried values. `attr` is None, "nounroll" or "guarded".
        """
        types = tuple(v.type for v in first)
        return self._control("for", (begin, end, *first), (body,), types, attr)

    def while_(self, first: Sequence[Value], cond: Region, body: Region) -> Op:
        """Append a `while` and return it; its results are the last carried values.

        `first` are the initial carried values. `cond` has parameters *carried and yields one u1.
        `body` has the same parameters and yields the next carried values.
        """
        types = tuple(v.type for v in first)
        return self._control("while", tuple(first), (cond, body), types)

    def parallel(
        self, bounds: Sequence[Value], body: Region, block: int | tuple[int, ...] | None = None,
        name: str = "",
    ) -> Op:  # fmt: skip
        """Append a `parallel` loop and return it.

        - bounds: begin and end of each axis, one after the other.
        - body: one index per axis as parameters; yields nothing.
        - block: workgroup size, in total or per axis; None leaves it open.
        - name: the user's name of the loop, for the profiler.
        """
        return self._control("parallel", tuple(bounds), (body,), (), block, name)

    def _control(
        self,
        kind: str,
        args: tuple[Value, ...],
        regions: tuple[Region, ...],
        result_types: tuple[Type, ...],
        attr: Any = None,
        name: str = "",
    ) -> Op:
        op = Op(kind, args, attr, None, self.span, name, regions, result_types)
        self._stack[-1].ops.append(op)
        return op


class WideningBuilder(Builder):
    """Builder that computes with bf16 in f32: arithmetic ops get their operands widened."""

    __slots__ = ()

    def emit(
        self,
        kind: str,
        *args: Value,
        attr: Any = None,
        type: Type | None = None,
        name: str = "",
    ) -> Op:
        """As `Builder.emit`."""
        if kind in ARITHMETIC:
            args = tuple([widened(self, v) for v in args])
        return super().emit(kind, *args, attr=attr, type=type, name=name)


# Kinds of ops that compute with floats, or compare them.
ARITHMETIC = frozenset(
    kind
    for kind, row in TABLE.items()
    if row.sig.startswith(("T:num", "T:float")) or kind in ("eq", "ne", "matmul", "outer")
)


def widened(b: Builder, v: Value) -> Value:
    """Return a bf16 as f32, another value unchanged."""
    t = v.type
    is_bf16 = isinstance(t, Scalar | Tensor) and scalar_of(t) is bf16
    return b.emit("cast", v, type=with_scalar(t, f32)) if is_bf16 else v


# --- compare-and-swap loops ----------------------------------------------------------------------


def updated_value(b: Builder, kind: str, old: Value, values: Sequence[Value]) -> Value:
    """Return the value that an atomic op of this kind stores if the location holds `old`.

    It is computed by ops appended to `b`. `values` are the atomic's operands after the pointer.
    """
    if kind == "atomic_exchange":
        return values[0]
    if kind == "atomic_cas":
        return b.emit("select", same_bits(b, old, values[0]), values[1], old)
    return combined(b, ATOMICS[kind].combine, old, values[0])


def combined(b: Builder, kind: str, x: Value, y: Value) -> Value:
    """Append an op of two operands; of bf16, in f32, with the result rounded."""
    if scalar_of(x.type) is not bf16:
        return b.emit(kind, x, y)
    t = x.type
    return b.emit("cast", b.emit(kind, widened(b, x), widened(b, y)), type=t)


def same_bits(b: Builder, x: Value, y: Value) -> Value:
    """Append a comparison of bit patterns, per component. Return the u1, or tensor of u1."""
    elem = scalar_of(x.type)
    if elem.kind == "f":
        t = with_scalar(x.type, SCALARS[f"u{elem.bits}"])
        x, y = b.emit("bitcast", x, type=t), b.emit("bitcast", y, type=t)
    return b.emit("eq", x, y)


def emit_cas_loop(b: Builder, place: Value, update: Callable[[Value], Value]) -> Value:
    """Append a compare-and-swap loop that replaces the scalar at `place`; return its old value.

    `update(old)` appends the ops of the new value and returns it. The loop ends when the swap
    succeeds; attempts are not limited.
    """
    first = b.emit("load", place)
    old, again = Param(first.type, "old"), Param(first.type, "old")
    open_, done = Param(u1, "open"), Param(u1, "open")
    with b.region(old, open_) as cond:
        b.emit("yield", open_)
    with b.region(again, done) as body:
        seen = b.emit("atomic_cas", place, again, update(again))
        b.emit("yield", seen, b.emit("not", same_bits(b, seen, again)))
    return b.while_((first, b.const(True, u1)), cond, body).results[0]
