"""Lowering of report ops: writes records to the buffer described in `vkchi.reports.sites`.

A record reserves its space in one of three ways:

- lines: a cursor, advanced atomically;
- reports made once per launch: a bit per site, then a line;
- failed checks: a few slots, for those that come before all earlier ones in the order of
  iterations. `report_failure` ends its invocation, unless the Func has a barrier.

The buffer becomes a parameter of the Func.

    report_failure %i, %x [4]   ->   atomic_add %failures, 1; if %i is the least so far
                                     {%n = atomic_add %slots, 1; if %n < slots {store ...}};
                                     exit_invocation
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Param, Value, has_kind
from vkchi.ir.num import Num
from vkchi.ir.op_table.invocation_ops import REPORTS
from vkchi.ir.rebuild import Rebuilder
from vkchi.opt.math.formula import where
from vkchi.reports import sites
from vkchi.target.shader import REPORTS as REPORT_ARRAY
from vkchi.types import Array, Ptr, Scalar, Tensor, f32, i32, scalar_of, u32, u64
from vkchi.types.core import Attributes

FLAG_BITS = 32
BUFFER = Array.of(u32, 1, (sites.LINES_AT + sites.LINE_WORDS,))
WORD = Ptr.of(u32, "global")


def lower_reports(fn: Func) -> Func:
    """Lower all report ops. Appends the buffer to the parameters if there are any."""
    buffer = Param(BUFFER, REPORT_ARRAY, Attributes(noalias=True))
    writer = ReportLowering(buffer, may_leave=not has_kind(fn.body, ("barrier",)))
    body = writer.region(fn.body)
    return fn if body is fn.body else Func(fn.name, (*fn.params, buffer), body, fn.span)


class ReportLowering(Rebuilder):
    """Emits records to `buffer`."""

    def __init__(self, buffer: Param, *, may_leave: bool) -> None:
        super().__init__(self.visit_op)
        self.buffer, self.may_leave = buffer, may_leave

    def visit_op(self, b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        if op.kind not in REPORTS:
            return None
        words = [b.const(op.attr + 1, u32), *[word for v in args for word in words_of(b, v)]]
        WAYS[op.kind](self, op.attr, words)
        return ()

    # --- reserving space

    def line(self, site: int, words: list[Value]) -> None:
        """Append a record to the lines, or count it as lost if they are full."""
        b, cursor = self.b, self.word(sites.CURSOR)
        seen = Num(b, b.emit("load", cursor))
        is_open = seen < sites.LINE_WORDS  # prevents the cursor from wrapping
        step = where(is_open, seen.number(len(words)), 0)
        at = Num(b, b.emit("atomic_add", cursor, step.v))
        fits = (at + len(words) <= sites.LINE_WORDS) & is_open
        with self.branch(fits):
            self.put(sites.LINES_AT, at, words)
        with self.branch(~fits):
            self.add_one(sites.LOST)

    def once(self, site: int, words: list[Value]) -> None:
        """Append a record to the lines if it is the first of its site in this launch.

        Sites beyond the number of flags append each of their records.
        """
        b, (index, bit) = self.b, divmod(site, FLAG_BITS)
        if index >= sites.FLAG_WORDS:
            self.line(site, words)
            return
        flag, mask = self.word(sites.FLAGS_AT + index), 1 << bit
        seen = Num(b, b.emit("load", flag))
        with self.branch((seen & mask).equals(0)):
            before = Num(b, b.emit("atomic_or", flag, b.const(mask, u32)))
            with self.branch((before & mask).equals(0)):
                self.line(site, words)

    def failure(self, site: int, words: list[Value]) -> None:
        self.first(site, words)
        if self.may_leave:
            self.b.emit("exit_invocation")

    def first(self, site: int, words: list[Value]) -> None:
        """Count a failure. Store its record if its iteration is the least so far, and a slot is
        free."""
        b = self.b
        self.add_one(sites.FAILURES)
        rank = b.emit("xor", words[1], b.const(0xFFFFFFFF, u32))  # 0 before the first failure
        before = Num(b, b.emit("atomic_max", self.word(sites.FIRST), rank))
        with self.branch(before < Num(b, rank)):
            slot = self.add_one(sites.SLOTS_USED)
            with self.branch(slot < sites.FAILURE_SLOTS):
                self.put(sites.FAILURES_AT, slot * sites.FAILURE_WORDS, words)

    # --- the buffer

    def word(self, at: int, offset: Num | None = None) -> Value:
        operands = () if offset is None else (offset.v,)
        return self.b.emit("address", self.buffer, *operands, attr=at, type=WORD)

    def add_one(self, at: int) -> Num:
        return Num(self.b, self.b.emit("atomic_add", self.word(at), self.b.const(1, u32)))

    def put(self, at: int, offset: Num, words: list[Value]) -> None:
        for k, word in enumerate(words):
            self.b.emit("store", self.word(at + k, offset), word)

    def branch(self, cond: Num) -> AbstractContextManager[None]:
        return self.b.when(cond.v)


WAYS: dict[str, Callable[[ReportLowering, int, list[Value]], None]] = {
    "report_line": ReportLowering.line,
    "report_once": ReportLowering.once,
    "report_failure": ReportLowering.failure,
    "report_first": ReportLowering.first,
}


def words_of(b: Builder, v: Value) -> list[Value]:
    """Encode a scalar, or the components of a tensor, as u32 words: 64-bit scalars as two, low word
    first. Narrower scalars are converted to 32 bits."""
    t = v.type
    if isinstance(t, Tensor):
        return [word for part in b.components(v) for word in words_of(b, part)]
    elem: Scalar = scalar_of(t)
    if elem.bits == u64.bits:
        whole = Num(b, v).bits(u64)
        return [whole.cast(u32).v, (whole >> 32).cast(u32).v]
    return [Num(b, v).cast({"f": f32, "i": i32}.get(elem.kind, u32)).bits(u32).v]
