"""Evaluation of ops as they are emitted, by the reference interpreter.

An op directly in the kernel's body is evaluated when the builder emits it. Ops in inner regions are
built as usual, and evaluated when the op that has the region is emitted.

    b = EvaluatingBuilder(Evaluator("step", reports))
    with b.region():
        held_value(b.emit("add", b.const(1, i32), b.const(2, i32)))      # np.int32(3)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from vkchi.errors import InternalError
from vkchi.ir.builder import Builder, infer_type
from vkchi.ir.core import Func, Op, Param, Region, Value, constant_array
from vkchi.ir.interp import DEFAULT_BLOCK, DispatchRun, Invocation, evaluate
from vkchi.ir.op_table.table import SignatureError
from vkchi.types import Type

if TYPE_CHECKING:
    from vkchi.ir.interp import InterpreterReport

# Ops that the frontend inspects after it emitted them: constants and pointers.
INSPECTED = frozenset(
    {"const", "elem", "member", "member_at", "address", "word", "local", "shared"}
)


class Held(Value):
    """The result of an evaluated op, with its numpy value. The op and its operands are dropped."""

    __slots__ = ("held",)

    def __init__(self, type: Type, held: Any, name: str = "") -> None:
        self.type, self.held, self.name = type, held, name


class HeldParam(Param):
    """A parameter of the kernel with its value."""

    __slots__ = ("held",)
    held: Any


class HeldOp(Op):
    """An op that may be evaluated; then it has its value."""

    __slots__ = ("held",)
    held: Any


def held_value(v: Value) -> Any:
    return v.held  # type: ignore[attr-defined]


class Environment(dict[Value, Any]):
    """The values of the interpreter. Ops and parameters hold theirs; the rest are in the dict."""

    def __missing__(self, v: Value) -> Any:
        return v.held  # type: ignore[attr-defined]

    def __setitem__(self, v: Value, value: Any) -> None:
        if type(v) is HeldOp:
            v.held = value
        else:
            dict.__setitem__(self, v, value)


class ReportSink(list["InterpreterReport"]):
    """Reports of one launch: each is delivered at once, and none is kept."""

    def __init__(self, deliver: Callable[[InterpreterReport], None]) -> None:
        self._deliver = deliver

    def append(self, report: InterpreterReport) -> None:
        """Deliver a report. Raises KernelAssertionError for a failed check."""
        self._deliver(report)


class Evaluator(DispatchRun):
    """Evaluates single ops in the current invocation."""

    def __init__(self, name: str, reports: ReportSink) -> None:
        super().__init__(Func(name, (), Region((), [])), {}, reports, evaluate, None)
        self.env = Environment()
        self.current = self.invocation(0, 1, 1)

    def invocation(self, index: int, block: int, grid: int) -> Invocation:
        return Invocation(self, self.env, index, block, grid, {})

    def begin_invocation(self, index: int, count: int) -> None:
        """Make iteration `index` of `count` of a parallel loop the current invocation."""
        grid = -(-count // DEFAULT_BLOCK) * DEFAULT_BLOCK
        self.current = self.invocation(index, DEFAULT_BLOCK, grid)

    def count_step(self) -> None:
        """Do nothing: the user ends a program that takes too long."""

    def value(self, op: HeldOp) -> Value:
        if op.kind == "const":
            op.held = constant(op)
            return op
        op.held = self.current.value(op)
        if op.kind in INSPECTED:
            return op
        assert op.type is not None or not op.results
        return Held(op.type, op.held, op.name)

    def control(self, op: Op) -> tuple[Value, ...]:
        """Evaluate an op with regions, and return its results; the values in its regions are
        dropped."""
        found = self.current.results(op)
        self.env.clear()
        return tuple([Held(r.type, v, r.name) for r, v in zip(op.results, found, strict=True)])


def constant(op: Op) -> Any:
    return _constant(op.type, op.attr)


@lru_cache(maxsize=4096)
def _constant(t: Any, attr: Any) -> Any:
    found = constant_array(Op("const", (), attr, t))
    if hasattr(found, "setflags"):
        found.setflags(write=False)
    return found


class EvaluatingBuilder(Builder):
    """A builder that evaluates ops at once if they are directly in the kernel's body.

    Precondition: one region, that of the kernel's body, is open.
    """

    __slots__ = ("evaluator",)

    def __init__(self, evaluator: Evaluator) -> None:
        super().__init__()
        self.evaluator = evaluator

    @property
    def is_direct(self) -> bool:
        """True if ops that are emitted now are evaluated at once."""
        return len(self._stack) == 1

    def emit(
        self, kind: str, *args: Value, attr: Any = None, type: Type | None = None, name: str = ""
    ) -> Any:
        """Evaluate an op and return its value; in an inner region, append it and return it."""
        try:
            t = infer_type(kind, args, attr, type)
        except SignatureError as e:
            place = f" at {self.span.place}" if self.span else ""
            raise InternalError(f"`{kind}` {e}{place}") from None
        op = HeldOp(kind, args, attr, t, self.span, name)
        if len(self._stack) == 1:
            return self.evaluator.value(op)
        self._stack[-1].ops.append(op)
        return op

    def extend(self, ops: Sequence[Op]) -> None:
        if not self.is_direct:
            super().extend(ops)
            return
        for op in ops:
            assert isinstance(op, HeldOp)
            self.evaluator.value(op)

    def _control(
        self,
        kind: str,
        args: tuple[Value, ...],
        regions: tuple[Region, ...],
        result_types: tuple[Type, ...],
        attr: Any = None,
        name: str = "",
    ) -> Op:
        op = HeldOp(kind, args, attr, None, self.span, name, regions, result_types)
        if self.is_direct:
            op._several = self.evaluator.control(op)
        else:
            self._stack[-1].ops.append(op)
        return op
