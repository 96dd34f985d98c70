"""A Python function as syntax: its AST, and spans that are right in the user's own file.

Owns: finding and parsing a function's text, once per code object; columns and lines of AST nodes.
Must not know: what syntax means.

    source = source_of(fn); source.node.name, source.span(source.node.body[0]).place
"""

from __future__ import annotations

import ast
import inspect
import linecache
import tokenize
from types import CodeType, FunctionType
from typing import Any

from vkchi.errors import KernelSyntaxError
from vkchi.span import Span

# Code objects compare by content, without the file.
_PARSED: dict[tuple[str, CodeType], Source] = {}


class Source:
    """One function's syntax. `memo` keeps syntactic facts of its nodes (see syntax.py)."""

    __slots__ = ("_is_ascii", "_lines", "_shift", "file", "memo", "name", "node")

    def __init__(self, code: CodeType, node: ast.FunctionDef, lines: list[str]) -> None:
        self.file, self.name, self.node = code.co_filename, code.co_name, node
        self.memo: dict[Any, Any] = {}
        self._lines = lines
        self._shift = code.co_firstlineno - 2  # one line stands before the text when it is parsed
        self._is_ascii = all(line.isascii() for line in lines)

    def span(self, n: Any, caller: Span | None = None) -> Span:
        """Where node n stands; `caller` is the call that inlined the function."""
        line, end, shift = n.lineno, n.end_lineno, self._shift
        col, end_col = n.col_offset, n.end_col_offset
        if not self._is_ascii:
            col, end_col = self._column(line, col), self._column(end, end_col)
        return Span(self.file, line + shift, col + 1, end + shift, end_col + 1, self.name, caller)

    def _column(self, line: int, offset: int) -> int:
        """Characters before a place that AST counts in bytes of UTF-8."""
        return len(self._lines[line - 2].encode()[:offset].decode(errors="replace"))


def source_of(fn: FunctionType) -> Source:
    """The function's syntax. Raises KernelSyntaxError for lambdas, coroutines, and functions whose
    text cannot be found."""
    code = fn.__code__
    key = (code.co_filename, code)
    found = _PARSED.get(key)
    if found is None:
        found = _PARSED[key] = _parse(fn, code)
    return found


def span_of_code(code: CodeType) -> Span:
    """The first line of a function, decorators included."""
    line = code.co_firstlineno
    return Span(code.co_filename, line, 1, line, 1, code.co_name)


def _parse(fn: FunctionType, code: CodeType) -> Source:
    if code.co_name == "<lambda>":
        raise KernelSyntaxError(
            "a lambda cannot be compiled: kernels need a function with a body of statements",
            _line_span(code),
            help="define it with `def`",
        )
    lines = _read_block(fn, code)
    opening = "if 1:\n" if lines[0][:1] in " \t" else "\n"
    try:
        tree = ast.parse(opening + "".join(lines))
    except SyntaxError:
        raise _changed(code) from None
    body = tree.body[0].body if isinstance(tree.body[0], ast.If) else tree.body
    node = body[0]
    if isinstance(node, ast.AsyncFunctionDef):
        raise KernelSyntaxError(
            f"{code.co_name}() is `async`, and kernels do not wait", _line_span(code)
        )
    if not isinstance(node, ast.FunctionDef) or node.name != code.co_name:
        raise _changed(code)
    return Source(code, node, lines)


def _read_block(fn: FunctionType, code: CodeType) -> list[str]:
    """The lines of the definition, decorators first, as they stand in the file."""
    linecache.checkcache(code.co_filename)  # a reloaded module has a new text
    lines = linecache.getlines(code.co_filename, fn.__globals__)
    block: list[str] = []
    if code.co_firstlineno <= len(lines):
        try:
            block = inspect.getblock(lines[code.co_firstlineno - 1 :])
        except (tokenize.TokenError, IndentationError, SyntaxError):
            raise _changed(code) from None
    if not block:
        raise KernelSyntaxError(
            f"the source of {code.co_name}() is not available, and kernels are compiled from it",
            span_of_code(code),
            help="define it in a file or a notebook cell, not through exec() or eval()",
        )
    return block


def _line_span(code: CodeType) -> Span:
    """All of the first line."""
    text = linecache.getline(code.co_filename, code.co_firstlineno).rstrip()
    start = len(text) - len(text.lstrip()) + 1
    line = code.co_firstlineno
    return Span(code.co_filename, line, start, line, len(text) + 1, "")


def _changed(code: CodeType) -> KernelSyntaxError:
    return KernelSyntaxError(
        f"the source of {code.co_name}() is not what stands in its file now",
        span_of_code(code),
        help="the file was changed after it was imported: start Python again",
    )
