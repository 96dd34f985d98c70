"""Source spans: locations of values in the user's files, and their rendering with carets.

>>> Span("mpm.py", 41, 13, 41, 17).place
'mpm.py:41:13'
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Sequence
from itertools import islice
from types import CodeType, FrameType
from typing import TYPE_CHECKING

from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    import dis

MOST_CALLS, FIRST_CALLS, LAST_CALLS = 8, 3, 2  # lines of a call chain

PACKAGE = os.path.dirname(__file__) + os.sep
MARK = "#pickled-"  # between the file name of an unpickled function and the digest of its text


class Span(NamedTuple):
    """A range of source text; lines from 1, columns from 1, `end_col` exclusive.

    `caller` is the span of the call that inlined this code, `function` the enclosing function.
    """

    file: str
    line: int
    col: int
    end_line: int
    end_col: int
    function: str = ""
    caller: Span | None = None

    @property
    def place(self) -> str:
        """`file:line:col`, as editors and terminals recognize it, or `Cell In[4], line 5`."""
        if cell_name(self.file):
            return self.line_place
        return f"{shown_file(self.file)}:{self.line}:{self.col}"

    @property
    def line_place(self) -> str:
        """`file:line`, or `Cell In[4], line 5` in a notebook."""
        return place_of_line(self.file, self.line)


def cell_name(file: str) -> str:
    """`Cell In[4]` for the file name of an IPython cell; "" for other files."""
    shown, mark, _ = file.partition(MARK)
    if mark:
        return shown if shown.startswith("Cell In[") else ""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    named = getattr(getattr(shell, "compile", None), "format_code_name", lambda file: None)(file)
    return " ".join(named) if named else ""


def place_of_line(file: str, line: int) -> str:
    """`file:line`, or `Cell In[4], line 5` in a notebook."""
    cell = cell_name(file)
    return f"{cell}, line {line}" if cell else f"{shown_file(file)}:{line}"


def shown_file(file: str) -> str:
    """A file name without the mark of an unpickled function."""
    return file.partition(MARK)[0]


def user_span() -> Span | None:
    """Current location in the user's files: the innermost frame outside of this package.

    None if there is no such frame.
    """
    frame = user_frame()
    return None if frame is None else span_in(frame.f_code, frame.f_lasti, frame.f_lineno)


def user_frame() -> FrameType | None:
    """The innermost frame outside of this package; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame


def stores_literal() -> bool:
    """True if the user's innermost frame is storing a literal number: `x[i] = 0.0`, `x[:2] = 0.0`,
    `v.x = 0.0`.

    By its bytecode. False for values that are computed, or chosen by a condition.
    """
    import dis  # slow import

    frame = user_frame()
    before: list[dis.Instruction] = []
    for one in dis.get_instructions(frame.f_code) if frame is not None else ():
        if frame is not None and one.offset == frame.f_lasti:
            taken = {"STORE_SUBSCR": 3, "STORE_SLICE": 4, "STORE_ATTR": 2}.get(one.opname)
            return taken is not None and pushes_literal(before, taken, one.is_jump_target)
        before.append(one)
    return False


def pushes_literal(code: Sequence[dis.Instruction], taken: int, is_reached: bool) -> bool:
    """True if the last of the `taken` values on top of the stack, after `code`, is a constant
    number.

    With `is_reached`, a jump leads to the end of `code`. Walks back to the instruction that pushed
    the value: the first one with `taken - 1` values above what it leaves.
    """
    import dis

    above = 0
    for one in reversed(code):
        if is_reached or one.opname.startswith(("SWAP", "ROT_")):
            return False
        if above == taken - 1:
            is_constant = one.opname in ("LOAD_CONST", "LOAD_SMALL_INT")
            return is_constant and isinstance(one.argval, int | float)
        above += dis.stack_effect(one.opcode, one.arg, jump=False)
        if above >= taken:  # one of several values that one instruction pushed
            return False
        is_reached = one.is_jump_target
    return False


def name_in_user_code(thing: object) -> str:
    """Name of an object in the user's innermost frame, such as `x` or `self.x`; "" if it has none.

    Searches local variables, attributes of `self` and global variables, without those that begin
    with `_`.
    """
    frame = user_frame()
    if frame is None:
        return ""
    scopes = [("", frame.f_locals), ("", frame.f_globals)]
    if "self" in frame.f_locals:
        scopes.insert(1, ("self.", getattr(frame.f_locals["self"], "__dict__", {})))
    for prefix, scope in scopes:
        for name, value in list(scope.items()):
            if value is thing and not name.startswith("_"):
                return prefix + name
    return ""


def span_in(code: CodeType, instruction: int, line: int) -> Span:
    """Source span of the instruction at this byte offset.

    If Python records no columns, an empty span at the first code of `line`.
    """
    if hasattr(code, "co_positions"):  # Python 3.11
        first, last, col, end_col = next(islice(code.co_positions(), instruction // 2, None))
        if first is not None and last is not None and col is not None and end_col is not None:
            return Span(code.co_filename, first, col + 1, last, end_col + 1, code.co_name)
    col = first_column(code.co_filename, line)
    return Span(code.co_filename, line, col, line, col, code.co_name)


def first_column(path: str, line: int) -> int:
    """Column of the first code on a line; 1 if the file is not readable."""
    text = linecache.getline(path, line)
    return len(text) - len(text.lstrip()) + 1 if text.strip() else 1


def is_ours(span: Span | None) -> bool:
    """True if a span is in a kernel of this package that no user code inlines."""
    while span is not None and span.caller is not None:
        span = span.caller
    return span is not None and span.file.startswith(PACKAGE)


def source_line(span: Span) -> str:
    """First line of the span without its newline; empty if the file is not readable."""
    return line_of(span.file, span.line)


def line_of(file: str, line: int) -> str:
    """One line of a file, with a space for each tab; empty if the file is not readable."""
    return linecache.getline(file, line).rstrip("\n").expandtabs(1)


def render_carets(span: Span, label: str = "") -> list[str]:
    """Two lines: the source line with its number, and carets under the span followed by `label`.

    Empty if the source is not readable.
    """
    text = source_line(span)
    if not text:
        return []
    end = span.end_col if span.end_line == span.line else len(text) + 1
    carets = "^" * max(1, min(end, len(text) + 1) - span.col)
    number = f"{span.line:5d} | "
    margin = " " * 5 + " | " + " " * (span.col - 1)
    return [number + text, (margin + carets + (f"  {label}" if label else "")).rstrip()]


def render_chain(span: Span) -> list[str]:
    """One line per inlined call that leads to the span, innermost first.

    Of a long chain: the first and last calls, and the number of calls between them.
    """
    lines = []
    while span.caller is not None:
        call = span.caller
        where = f"called from {call.function}() at {call.place}" if call.function else call.place
        lines.append(f"      in {span.function}(), {where}")
        span = call
    if len(lines) <= MOST_CALLS:
        return lines
    left = len(lines) - FIRST_CALLS - LAST_CALLS
    return [*lines[:FIRST_CALLS], f"      ... {left} more calls ...", *lines[-LAST_CALLS:]]
