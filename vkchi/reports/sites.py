"""What kernels report to the host, as plain data: sites, records, and how they read.

A `Site` is one place in a kernel that may report: a `print`, an `assert`, a check of debug mode.
The shader writes records, rows of 32-bit words, into a buffer laid out as follows; all of it is
zero when a launch begins.

    word 0                    words of lines asked for so far; beyond LINE_WORDS they are lost
    word 1                    lines that were lost
    word 2                    failed checks
    FLAGS_AT, FLAG_WORDS      one bit per site that reports only once
    FAILURES_AT               FAILURE_SLOTS records of FAILURE_WORDS words: the first failed checks
    LINES_AT, LINE_WORDS      records of lines, one after the other

A record is the number of the site plus one, the index of the invocation, and the values: numbers
of 64 bits take two words, the low one first, all others one; f16 travels as f32.

Owns: this layout, the sites' form, texts of records. Must not know: ops, devices, who prints.

    >>> Site("line", ("x = ", Shown(0), "\\n"), (("f32", ()),)).text([1.5])
    'x = 1.500000\\n'
"""

from __future__ import annotations

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

CURSOR, LOST, FAILURES = 0, 1, 2
FLAGS_AT, FLAG_WORDS = 4, 508
FAILURES_AT, FAILURE_SLOTS, FAILURE_WORDS = FLAGS_AT + FLAG_WORDS, 64, 128
LINES_AT = FAILURES_AT + FAILURE_SLOTS * FAILURE_WORDS
LINE_WORDS = 1 << 21
RECORD_HEAD = 2  # site and invocation

Shape = tuple[int, ...]
CARRIERS = {
    "i8": "i4", "i16": "i4", "i32": "i4", "u1": "u4", "u8": "u4", "u16": "u4", "u32": "u4",
    "f16": "f4", "f32": "f4", "i64": "i8", "u64": "u8", "f64": "f8",
}  # fmt: skip
_FORMAT_OF_C = r"(?P<head>[-+ #0]*\d*(\.\d+)?)(hh?|ll?|[Lqjzt])?(?P<letter>[difFeEgG])"


class Shown(NamedTuple):
    """A value in a text: which one, and how it is formatted (`format_number`; "" as Taichi's)."""

    value: int
    spec: str = ""


class Site(NamedTuple):
    """One place that reports.

    kind: `line`, `overflow`, `assertion`, `depth` (of calls), `bounds`, `division` or `range`;
    values: (scalar, shape) of each number that a record holds; iteration: names of the loop's
    indices, and which values they are; dispatch: the number of the dispatch that it stands in.
    """

    kind: str
    parts: tuple[str | Shown, ...]
    values: tuple[tuple[str, Shape], ...] = ()
    span: Span | None = None
    iteration: tuple[tuple[str, tuple[int, ...]], ...] = ()
    dispatch: int = 0

    def text(self, values: Sequence[Any]) -> str:
        """What a record says, from its values."""
        shown = [p if isinstance(p, str) else self._show(values, p) for p in self.parts]
        return "".join(shown)

    def _show(self, values: Sequence[Any], part: Shown) -> str:
        name, shape = self.values[part.value]
        return show_numbers(values[part.value], name, shape, part.spec)

    def message(self, values: Sequence[Any]) -> str:
        """What a failed check says: where, what, in which iteration."""
        text = self.text(values)
        if self.span is None:
            return text
        head = [f"{self.span.place}: {text}", *render_carets(self.span)]
        head += render_chain(self.span)
        if self.iteration:
            head.append(f"note: {self.where(values)}")
        return "\n".join(head)

    def where(self, values: Sequence[Any]) -> str:
        """In which iteration of a parallel loop a record was made; empty outside of loops."""
        found = [f"{name} = {self._show_index(values, which)}" for name, which in self.iteration]
        return f"in the iteration {', '.join(found)}" if found else ""

    def _show_index(self, values: Sequence[Any], which: tuple[int, ...]) -> str:
        found = [str(values[k]) for k in which]
        return found[0] if len(found) == 1 else f"[{', '.join(found)}]"

    @property
    def words(self) -> int:
        """The length of a record."""
        return RECORD_HEAD + sum(count_words(*value) for value in self.values)


class Record(NamedTuple):
    """What an invocation reported."""

    site: Site
    thread: int
    values: tuple[Any, ...]


# --- numbers -------------------------------------------------------------------------------------


def count_words(name: str, shape: Shape) -> int:
    """The words that a value takes in a record."""
    return prod(shape) * (int(CARRIERS[name][1:]) // 4)


def show_numbers(x: Any, name: str, shape: Shape, spec: str) -> str:
    """A number, or the numbers of a vector or matrix in brackets."""
    if shape:
        return "[" + ", ".join(show_numbers(part, name, shape[1:], spec) for part in x) + "]"
    return show_number(x, scalar_named(name), spec)


def show_number(x: Any, t: Scalar, spec: str = "") -> str:
    """A number of type t. Without a format: six decimals of floats, twelve of f64, 0 or 1 of truth
    values, as Taichi prints them."""
    if spec:
        return format_number(x, spec)
    return f"{x:.{decimals_of(t)}f}" if t.kind == "f" else str(int(x))


def format_number(x: Any, spec: str) -> str:
    """By a format of Python's, or, where that is none, of C's printf: `.2d`, `i`, `lf`.

    Raises: ValueError where it is neither's, or for another kind of number.
    """
    try:
        return format(x, spec)
    except local(ValueError):
        found = re.fullmatch(_FORMAT_OF_C, spec)
        if found is None or (found["letter"] in "di") is isinstance(x, float):
            raise
        return str(f"%{found['head']}{found['letter']}" % x)


def decimals_of(t: Scalar) -> int:
    """The decimals that are shown of floats of type t."""
    return 12 if t.bits == 64 else 6


def sample_of(t: Scalar) -> Any:
    """A number of type t as `show_number` gets it, to try formats on."""
    return 1.5 if t.kind == "f" else 1


# --- records -------------------------------------------------------------------------------------


def read_lines(words: Any, sites: dict[int, Site]) -> list[Record]:
    """The records of lines in a u4 array: from the first word on, up to one that did not fit.

    In order: of dispatches, then invocations, then as each invocation reported them.
    """
    found: list[tuple[int, Record]] = []
    for site, starts in find_records(words.tolist(), sites):
        found += zip(starts, read_records(words, site, starts))
    found.sort(key=lambda item: (*order_of(item[1]), item[0]))
    return [record for _, record in found]


def order_of(record: Record) -> tuple[int, int]:
    """Dispatch and invocation."""
    return record.site.dispatch, record.thread


def find_records(words: list[int], sites: dict[int, Site]) -> list[tuple[Site, list[int]]]:
    """Where the records of each site begin. Raises InternalError for a site that is not there."""
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


def read_records(words: Any, site: Site, starts: Sequence[int]) -> list[Record]:
    """The records of one site that begin at these words."""
    rows = words[np.add.outer(np.asarray(starts), np.arange(site.words))]
    columns, at = [], RECORD_HEAD
    for name, shape in site.values:
        size = count_words(name, shape)
        column = np.ascontiguousarray(rows[:, at : at + size]).view(CARRIERS[name])
        columns.append(column.reshape(-1, *shape).tolist())
        at += size
    values = zip(*columns) if columns else [()] * len(rows)
    return [Record(site, k, v) for k, v in zip(rows[:, 1].tolist(), values)]
