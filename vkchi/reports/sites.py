"""Report sites and records as plain data: buffer layout, decoding, and message texts.

A `ReportSite` is a location in a kernel that may report: a `print`, an `assert`, a check of debug
mode. The shader writes records, rows of 32-bit words, to a buffer with the following layout. The
buffer is zero when a launch begins, except for the records of earlier failed checks.

    word 0                    words reserved for lines; lines beyond LINE_WORDS are lost
    word 1                    number of lost lines
    word 2                    number of failed checks
    word 3                    the least iteration of a failed check, its bits inverted
    word 4                    number of slots requested for failed checks
    FLAGS_AT, FLAG_WORDS      bits of sites that report once per launch; later sites have none
    FAILURES_AT               FAILURE_SLOTS records of FAILURE_WORDS words: failed checks
                              that came before all earlier ones in the order of iterations
    LINES_AT, LINE_WORDS      records of lines, consecutive

A record contains the site's number plus one, the index of the invocation, and the values. A 64-bit
value takes two words, low word first, all others one; f16 is stored as f32.

    >>> ReportSite("line", ("x = ", ValuePlaceholder(0), "\\n"), (("f32", ()),)).text([1.5])
    'x = 1.500000\\n'
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from math import prod
from typing import Any

from vkchi.errors import InternalError
from vkchi.interrupts.local import local
from vkchi.span import Span, render_carets, render_chain
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, scalar_named
from vkchi.types.lazy_numpy import np

CURSOR, LOST, FAILURES, FIRST, SLOTS_USED = 0, 1, 2, 3, 4
FLAGS_AT, FLAG_WORDS = 8, 504
FAILURES_AT, FAILURE_SLOTS, FAILURE_WORDS = FLAGS_AT + FLAG_WORDS, 64, 128
LINES_AT = FAILURES_AT + FAILURE_SLOTS * FAILURE_WORDS
LINE_WORDS = 1 << 21
RECORD_HEAD = 2  # site and invocation

Shape = tuple[int, ...]
_FORMAT_OF_C = r"(?P<head>[-+ #0]*\d*(\.\d+)?)(hh?|ll?|[Lqjzt])?(?P<letter>[difFeEgG])"


class ValuePlaceholder(NamedTuple):
    """Placeholder in a text: index of the value, and its format. `spec` is a format for
    `format_number`; "" selects Taichi's format."""

    value: int
    spec: str = ""


class FloatStep(NamedTuple):
    """An op of the expression that a store evaluates: positions of its operands and its result in
    the record. `kind` is "" for the stored value."""

    kind: str
    operands: tuple[int, ...]
    result: int
    span: Span | None = None


class ReportSite(NamedTuple):
    """One location that reports.

    - `kind`: `line`, `overflow`, `assertion`, `depth` (of calls), `bounds`, `division`, `range` or
      `nan`.
    - `parts`: the text, with placeholders for values.
    - `values`: (scalar, shape) of each value in a record.
    - `iteration`: names of the loop's indices, with the positions of their values.
    - `dispatch`: index of the dispatch.
    - `steps`: of `nan`, the ops that computed the stored value, operands first; the value is last.
    """

    kind: str
    parts: tuple[str | ValuePlaceholder, ...]
    values: tuple[tuple[str, Shape], ...] = ()
    span: Span | None = None
    iteration: tuple[tuple[str, tuple[int, ...]], ...] = ()
    dispatch: int = 0
    steps: tuple[FloatStep, ...] = ()

    def text(self, values: Sequence[Any]) -> str:
        shown = [p if isinstance(p, str) else self._show(values, p) for p in self.parts]
        return "".join(shown)

    def _show(self, values: Sequence[Any], part: ValuePlaceholder) -> str:
        name, shape = self.values[part.value]
        return show_numbers(values[part.value], name, shape, part.spec)

    def message(self, values: Sequence[Any]) -> str:
        """Return the message of a failed check: location, text and iteration; without a span the
        text only."""
        text, span = self.text(values), self.span
        if self.steps:
            text, span = self.float_origin(values)
        if span is None:
            return text
        head = [f"{span.place}: {text}", *render_carets(span)]
        head += render_chain(span)
        if self.iteration:
            head.append(f"note: {self.where(values)}")
        return "\n".join(head)

    def float_origin(self, values: Sequence[Any]) -> tuple[str, Span | None]:
        """Return sentence and span of the first op that made a value that is not finite from finite
        ones. Without such an op, those of the store."""
        array, stored = self.text(()), self._number(values, self.steps[-1].result)
        for step in self.steps[:-1]:
            operands = [values[k] for k in step.operands]
            if not is_finite(values[step.result]) and all(map(is_finite, operands)):
                shown = [self._number(values, k) for k in step.operands]
                made = self._number(values, step.result)
                text = f"{spell_op(step.kind, shown)} gives {made}, and {stored} is stored"
                return f"{text} in {array}", step.span
        return (
            f"{stored} is stored in {array}; an earlier value that it uses was not finite",
            self.span,
        )

    def _number(self, values: Sequence[Any], k: int) -> str:
        name, shape = self.values[k]
        return show_shortest(values[k], scalar_named(name), shape)

    def where(self, values: Sequence[Any]) -> str:
        """Return text for the iteration of the parallel loop in which a record was made; "" outside
        loops."""
        found = [f"{name} = {self._show_index(values, which)}" for name, which in self.iteration]
        return f"in the iteration {', '.join(found)}" if found else ""

    def _show_index(self, values: Sequence[Any], which: tuple[int, ...]) -> str:
        found = [str(values[k]) for k in which]
        return found[0] if len(found) == 1 else f"[{', '.join(found)}]"

    @property
    def words(self) -> int:
        return RECORD_HEAD + sum(count_words(*value) for value in self.values)


class ReportRecord(NamedTuple):
    """A decoded report of one invocation."""

    site: ReportSite
    thread: int
    values: tuple[Any, ...]


OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "pow": "**"}


def spell_op(kind: str, operands: Sequence[str]) -> str:
    sign = OPERATORS.get(kind)
    if sign is not None and len(operands) == 2:
        return f"{operands[0]} {sign} {operands[1]}"
    return f"-{operands[0]}" if kind == "neg" else f"{kind}({', '.join(operands)})"


def is_finite(x: Any) -> bool:
    return all(map(is_finite, x)) if isinstance(x, list | tuple) else math.isfinite(x)


# --- numbers -------------------------------------------------------------------------------------


def count_words(name: str, shape: Shape) -> int:
    return prod(shape) * (scalar_named(name).carrier.size_bytes // 4)


def show_numbers(x: Any, name: str, shape: Shape, spec: str) -> str:
    if shape:
        return "[" + ", ".join(show_numbers(part, name, shape[1:], spec) for part in x) + "]"
    return show_number(x, scalar_named(name), spec)


def show_shortest(x: Any, t: Scalar, shape: Shape) -> str:
    """Format numbers by as few digits as distinguish them from others of type t."""
    if shape:
        return "[" + ", ".join([show_shortest(part, t, shape[1:]) for part in x]) + "]"
    return str(t.dtype.type(x))


def show_number(x: Any, t: Scalar, spec: str = "") -> str:
    """Format a scalar of type t. Without a `spec`: floats with six decimals, f64 with twelve, bools
    as 0 or 1, like Taichi."""
    if spec:
        return format_number(x, spec)
    return f"{x:.{decimals_of(t)}f}" if t.kind == "f" else str(int(x))


def format_number(x: Any, spec: str) -> str:
    """Format a number by a Python format or, failing that, a C printf format: `.2d`, `i`, `lf`.
    Raises ValueError if the format is neither, or does not fit the kind of number."""
    try:
        return format(x, spec)
    except local(ValueError):
        found = re.fullmatch(_FORMAT_OF_C, spec)
        if found is None or (found["letter"] in "di") is isinstance(x, float):
            raise
        return str(f"%{found['head']}{found['letter']}" % x)


def decimals_of(t: Scalar) -> int:
    return 12 if t.bits == 64 else 6


def format_sample(t: Scalar) -> Any:
    return 1.5 if t.kind == "f" else 1


# --- records -------------------------------------------------------------------------------------


def read_lines(words: Any, sites: dict[int, ReportSite]) -> list[ReportRecord]:
    """Decode the records of lines in a u4 array, up to a zero word or its end. They are ordered by
    dispatch, then by invocation, then as reported. Raises InternalError for an unknown site."""
    found: list[tuple[int, ReportRecord]] = []
    for site, starts in record_starts(words.tolist(), sites):
        found += zip(starts, read_records(words, site, starts))
    found.sort(key=lambda item: (*dispatch_order(item[1]), item[0]))
    return [record for _, record in found]


def dispatch_order(record: ReportRecord) -> tuple[int, int]:
    return record.site.dispatch, record.thread


def record_starts(
    words: list[int], sites: dict[int, ReportSite]
) -> list[tuple[ReportSite, list[int]]]:
    """Return each site that occurs, with the start positions of its records. Raises InternalError
    for an unknown site."""
    found: dict[int, list[int]] = {}
    sizes = {number + 1: site.words for number, site in sites.items()}
    at, end = 0, len(words)
    while at < end and words[at]:
        head = words[at]
        if head not in sizes:
            raise InternalError(f"a kernel reported from site {head - 1}, which it has not")
        found.setdefault(head, []).append(at)
        at += sizes[head]
    return [(sites[head - 1], starts) for head, starts in found.items()]


def read_records(words: Any, site: ReportSite, starts: Sequence[int]) -> list[ReportRecord]:
    """Decode the records of one site that begin at these words."""
    rows = words[np.add.outer(np.asarray(starts), np.arange(site.words))]
    columns, at = [], RECORD_HEAD
    for name, shape in site.values:
        size = count_words(name, shape)
        column = np.ascontiguousarray(rows[:, at : at + size])
        column = column.view(scalar_named(name).carrier.dtype)
        columns.append(column.reshape(-1, *shape).tolist())
        at += size
    values = zip(*columns) if columns else [()] * len(rows)
    return [ReportRecord(site, k, v) for k, v in zip(rows[:, 1].tolist(), values)]
