"""Builds valid IR: every op is checked against its row when it is made, and typed.

Owns: insertion into the current region, spans of what is built, the contracts of control ops.
Must not know: Python's AST, passes.

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
    """The result type of an op by its row. Raises SignatureError, KeyError."""
    return _infer(kind, tuple([v.type for v in args]), attr, given)


@lru_cache(maxsize=8192)  # an entry per distinct constant, among others
def _infer(kind: str, types: tuple[Type, ...], attr: Any, given: Type | None) -> Type | None:
    return TABLE[kind].infer(types, attr, given)


class _Open:
    """A region that is open inside a `with`."""

    __slots__ = ("region", "stack")

    def __init__(self, stack: list[Region], region: Region) -> None:
        self.stack, self.region = stack, region

    def __enter__(self) -> Region:
        self.stack.append(self.region)
        return self.region

    def __exit__(self, *error: object) -> None:
        self.stack.pop()


class Builder:
    """Appends ops to the innermost open region. `span` is given to everything built."""

    __slots__ = ("_stack", "span")

    def __init__(self) -> None:
        self._stack: list[Region] = []
        self.span: Span | None = None

    @property
    def ops(self) -> list[Op]:
        """The op list that is being appended to."""
        return self._stack[-1].ops

    @property
    def current(self) -> Region:
        """The region that is being appended to."""
        return self._stack[-1]

    def region(self, *params: Param) -> _Open:
        """Open a region with these parameters; what is built inside the `with` goes there."""
        return _Open(self._stack, Region(params, []))

    def within(self, region: Region) -> _Open:
        """Build at the end of a region that was opened before and has no yield yet."""
        return _Open(self._stack, region)

    def emit(
        self,
        kind: str,
        *args: Value,
        attr: Any = None,
        type: Type | None = None,
        name: str = "",
    ) -> Op:
        """Append an op without regions. Raises InternalError if the args do not fit the row: who
        builds IR checks the user's mistakes first."""
        try:
            t = infer_type(kind, args, attr, type)
        except SignatureError as e:
            place = f" at {self.span.place}" if self.span else ""
            raise InternalError(f"`{kind}` {e}{place}") from None
        op = Op(kind, args, attr, t, self.span, name)
        self._stack[-1].ops.append(op)
        return op

    def insert(self, op: Op) -> Op:
        """Append an op that exists already."""
        self._stack[-1].ops.append(op)
        return op

    def const(self, value: Any, t: Scalar | Tensor) -> Op:
        """A constant of type t from a Python or numpy number (or array, for a tensor type)."""
        return self.emit("const", attr=constant_attr(value, t), type=t)

    def if_(self, cond: Value, then: Region, orelse: Region) -> Op:
        """Both regions must end in a yield of the same types; those are the results."""
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
        """body: parameters (index, *carried), yields the next carried values."""
        types = tuple(v.type for v in first)
        return self._control("for", (begin, end, *first), (body,), types, attr)

    def while_(self, first: Sequence[Value], cond: Region, body: Region) -> Op:
        """cond: parameters *carried, yields one u1; body: parameters *carried, yields the next."""
        types = tuple(v.type for v in first)
        return self._control("while", tuple(first), (cond, body), types)

    def parallel(
        self, bounds: Sequence[Value], body: Region, block: int | tuple[int, ...] | None = None
    ) -> Op:
        """bounds: a begin and an end per axis, one after the other; body: an index per axis as
        parameters, yields nothing; block: iterations in a workgroup, altogether or per axis."""
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
