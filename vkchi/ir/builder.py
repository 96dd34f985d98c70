"""IR builder: `emit` checks an op against its row in the op table, and infers its type.

Control ops are not checked; `verify` does that.

Example:

    >>> b = Builder()
    >>> with b.region() as body:
    ...     x = b.emit("add", b.const(1, i32), b.const(2, i32))
    ...     b.emit("yield")
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from vkchi.errors import InternalError
from vkchi.ir.core import Op, Param, Region, Value, constant_attr
from vkchi.ir.ops import TABLE
from vkchi.ir.sig import SignatureError
from vkchi.span import Span
from vkchi.types import Scalar, Tensor, Type


def infer_type(kind: str, args: Sequence[Value], attr: Any, given: Type | None) -> Type | None:
    """Return the result type of an op by its row, or None if it has no result.

    Raises SignatureError if the arguments do not fit, and KeyError for an unknown kind.
    """
    return _infer(kind, tuple([v.type for v in args]), attr, given)


@lru_cache(maxsize=8192)  # bounded: every distinct constant is an entry
def _infer(kind: str, types: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    return TABLE[kind].infer(types, attr, given)


class _Open:
    """Context manager that keeps a region open for insertion."""

    __slots__ = ("region", "stack")

    def __init__(self, stack: list[Region], region: Region) -> None:
        self.stack, self.region = stack, region

    def __enter__(self) -> Region:
        self.stack.append(self.region)
        return self.region

    def __exit__(self, *error: object) -> None:
        self.stack.pop()


class Builder:
    """Appends ops to the innermost open region. Every op that it makes gets the span `span`."""

    __slots__ = ("_stack", "span")

    def __init__(self) -> None:
        self._stack: list[Region] = []
        self.span: Span | None = None

    @property
    def ops(self) -> list[Op]:
        """The op list of the innermost open region."""
        return self._stack[-1].ops

    @property
    def current(self) -> Region:
        """The innermost open region."""
        return self._stack[-1]

    def region(self, *params: Param) -> _Open:
        """Open a new region with these parameters: `with b.region() as r` inserts into `r`."""
        return _Open(self._stack, Region(params, []))

    def within(self, region: Region) -> _Open:
        """Reopen a region that has no yield yet, and append to it."""
        return _Open(self._stack, region)

    def emit(
        self,
        kind: str,
        *args: Value,
        attr: Any = None,
        type: Type | None = None,
        name: str = "",
    ) -> Op:
        """Append an op without regions.

        Raises InternalError if the arguments do not fit the row, KeyError for an unknown kind.
        Callers check for user errors first.
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
        """Append an existing op."""
        self._stack[-1].ops.append(op)
        return op

    def extend(self, ops: Sequence[Op]) -> None:
        """Append the ops of a region that was built apart."""
        self._stack[-1].ops.extend(ops)

    def const(self, value: Any, t: Scalar | Tensor) -> Op:
        """Append a constant of type t from a Python or numpy number.

        For a tensor type, an array of its shape or a number that fills it.
        """
        return self.emit("const", attr=constant_attr(value, t), type=t)

    def if_(self, cond: Value, then: Region, orelse: Region) -> Op:
        """Append an `if`. Precondition: both regions yield the same types, which are the result
        types."""
        types = tuple(v.type for v in then.yielded)
        return self._control("if", (cond,), (then, orelse), types)

    def for_(
        self,
        begin: Value,
        end: Value,
        first: Sequence[Value],
        body: Region,
        attr: str | None = None,
    ) -> Op:
        """Append a `for`. `body` has parameters (index, *carried) and yields the next carried
        values."""
        types = tuple(v.type for v in first)
        return self._control("for", (begin, end, *first), (body,), types, attr)

    def while_(self, first: Sequence[Value], cond: Region, body: Region) -> Op:
        """Append a `while`.

        `cond` has parameters *carried and yields one u1. `body` has the same parameters and yields
        the next carried values.
        """
        types = tuple(v.type for v in first)
        return self._control("while", tuple(first), (cond, body), types)

    def parallel(
        self, bounds: Sequence[Value], body: Region, block: int | tuple[int, ...] | None = None
    ) -> Op:
        """Append a `parallel` loop.

        - bounds: begin and end of each axis, one after the other.
        - body: one index per axis as parameters; yields nothing.
        - block: workgroup size, in total or per axis.
        """
        return self._control("parallel", tuple(bounds), (body,), (), block)

    def _control(
        self,
        kind: str,
        args: tuple[Value, ...],
        regions: tuple[Region, ...],
        result_types: tuple[Type, ...],
        attr: Any = None,
    ) -> Op:
        op = Op(kind, args, attr, None, self.span, "", regions, result_types)
        self._stack[-1].ops.append(op)
        return op
