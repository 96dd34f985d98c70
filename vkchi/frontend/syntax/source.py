"""The AST of a Python function, with spans that refer to the user's file.

A function's source is found and parsed once per code object.

    source = source_of(fn); source.node.name, source.span(source.node.body[0]).place
"""

from __future__ import annotations

import _ast  # the AST classes without the functions of `ast`: saves 3 ms
import copy
import linecache
import os
import stat
from functools import partial
from itertools import count
from types import CodeType, FunctionType, TracebackType
from typing import TYPE_CHECKING, Any
from weakref import ref

from vkchi.errors import KernelSyntaxError
from vkchi.frontend.syntax.interactive import SHARED, find_lines
from vkchi.frontend.syntax.matching import compile_quietly, is_text_of
from vkchi.interrupts.imports import run_in_thread
from vkchi.interrupts.local import local
from vkchi.interrupts.weak import WeakTable
from vkchi.span import Span
from vkchi.tracebacks import show_by

if TYPE_CHECKING:
    import ast

# Keyed by identity for the code's lifetime: code objects compare by behaviour, and annotations of
# variables do not affect it.
_NUMBERS = count(1)
FRONTEND = os.path.dirname(os.path.dirname(__file__)) + os.sep
_PARSED: WeakTable[int, CodeType] = WeakTable()


class Parsed(ref[CodeType]):
    """A weak reference to a function's code, with its syntax."""

    __slots__ = ("source",)
    source: Source


class Source:
    """One function's syntax. `memo` caches syntactic facts of its nodes (see syntax.py)."""

    __slots__ = ("_is_ascii", "_is_call", "_lines", "_shift", "file", "memo", "name", "node")

    def __init__(
        self, code: CodeType, node: ast.FunctionDef, lines: list[str], first_line: int, file: str
    ) -> None:
        self.file, self.name, self.node = file, code.co_name, node
        self.memo: dict[Any, Any] = {}
        self._lines = lines
        self._shift = first_line - 2  # a line is inserted before the text for parsing
        self._is_ascii = all(line.isascii() for line in lines)
        self._is_call = file.startswith(FRONTEND)

    @property
    def line_shift(self) -> int:
        """The difference between a line of the file and that of a node."""
        return self._shift

    def with_body(self, body: list[ast.stmt]) -> Source:
        """Return the same function with other statements, attributed to the same file."""
        new: Source = copy.copy(self)
        new.node, new.memo = copy.copy(self.node), {}
        new.node.body = body
        return new

    def span(self, n: Any, caller: Span | None = None) -> Span:
        """Return the span of node n; `caller` is the call that inlined the function.

        Functions of the frontend that are inlined have the span of the call.
        """
        if self._is_call and caller is not None:
            return caller
        line, end, shift = n.lineno, n.end_lineno, self._shift
        col, end_col = n.col_offset, n.end_col_offset
        if not self._is_ascii:
            col, end_col = self._column(line, col), self._column(end, end_col)
        return Span(self.file, line + shift, col + 1, end + shift, end_col + 1, self.name, caller)

    def _column(self, line: int, offset: int) -> int:
        """Convert an offset in UTF-8 bytes, as in the AST, to one in characters."""
        return len(self._lines[line - 2].encode()[:offset].decode(errors="replace"))


def source_of(fn: FunctionType) -> Source:
    """Return the function's syntax.

    Raises KernelSyntaxError for coroutines, and for functions whose source is not found or is not
    that of their code. Lambdas also raise it if others on the same line cannot be distinguished.
    """
    code = fn.__code__
    found = _PARSED.ref(id(code))
    if isinstance(found, Parsed) and found() is code:
        return found.source
    parsed = Parsed(code)
    parsed.source = _parse(fn, code)
    _PARSED.put(id(code), parsed)
    return parsed.source


def function_of_part(
    fn: FunctionType, source: Source, body: list[ast.stmt], number: int
) -> FunctionType:
    """Return a function with the syntax of a part of another one: some statements of its body.

    Its code is that of the whole function, with one more constant, which distinguishes the parts in
    the disk cache.
    """
    code = fn.__code__.replace(co_consts=(*fn.__code__.co_consts, f"part {number}"))
    made = FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    made.__kwdefaults__, made.__annotations__ = fn.__kwdefaults__, fn.__annotations__
    made.__qualname__, made.__module__ = fn.__qualname__, fn.__module__
    parsed = Parsed(code)
    parsed.source = source.with_body(body)
    _PARSED.put(id(code), parsed)
    return made


def read_block(fn: FunctionType) -> list[str]:
    """Return the lines of a function's definition, decorators first. Raises KernelSyntaxError."""
    return _block_in(_read_lines(fn, fn.__code__)[0], fn.__code__)[0]


def read_text(fn: FunctionType) -> tuple[list[str], str]:
    """Return (lines, file) of the whole text that contains a function.

    Raises KernelSyntaxError, also if the file was changed after the function was parsed.
    """
    source, code = source_of(fn), fn.__code__
    lines = _lines_of(source.file, fn)
    own = lines if code.co_name == "<lambda>" else _block_in(lines, code)[0]
    if own != source._lines:
        raise _changed(code)
    return lines, source.file


def keep_source(fn: FunctionType) -> None:
    """Parse a function that is not in a file immediately, while Python still has its source.

    The next input may define the same name. Errors are raised when the source is needed.
    """
    if fn.__code__.co_filename.startswith("<"):
        try:
            source_of(fn)
        except KernelSyntaxError:
            pass


def span_of_code(code: CodeType) -> Span:
    """Return the span of the start of a function's first line, which may be a decorator's."""
    line = code.co_firstlineno
    return Span(code.co_filename, line, 1, line, 1, code.co_name)


def _parse(fn: FunctionType, code: CodeType) -> Source:
    from vkchi.frontend.syntax.desugaring import desugar  # imports `ast`

    if code.co_name == "<lambda>":
        return _parse_lambda(fn, code)
    whole, file = _read_lines(fn, code)
    lines, node = _block_in(whole, code)
    node = node or _statement_in(lines)
    if isinstance(node, _ast.AsyncFunctionDef):
        raise KernelSyntaxError(
            f"{code.co_name}() is `async`, and kernels do not wait", _line_span(code)
        )
    if not isinstance(node, _ast.FunctionDef) or node.name != code.co_name:
        raise _changed(code)
    if not is_text_of(fn, node, whole):
        raise _changed(code)
    node.body = desugar(node.body)
    return Source(code, node, lines, code.co_firstlineno, file)


def _statement_in(lines: list[str]) -> ast.stmt | None:
    """Parse lines of equal indentation after an extra first line, which permits their indentation.

    Returns None if they are not exactly one statement.
    """
    opening = "if 1:\n" if lines[0][:1] in " \t" else "\n"
    tree = compile_quietly(opening + "".join(lines), _ast.PyCF_ONLY_AST)
    if tree is None:
        return None
    assert isinstance(tree, _ast.Module)
    body = tree.body
    if body and isinstance(body[0], _ast.If):
        body = body[0].body
    return body[0] if len(body) == 1 else None


def _parse_lambda(fn: FunctionType, code: CodeType) -> Source:
    """Parse a lambda as a function that returns its expression. The whole file is parsed."""
    import ast  # few kernels and functions are lambdas

    lines, file = _read_lines(fn, code)
    tree = compile_quietly("\n" + "".join(lines), _ast.PyCF_ONLY_AST)
    if tree is None:
        raise _changed(code)
    lambdas = [n for n in ast.walk(tree) if isinstance(n, ast.Lambda) and _may_be(n, code)]
    if not lambdas:
        raise _changed(code)
    is_sole = len(lambdas) == 1
    # First the innermost lambda around the code's positions, then any other that gives the code.
    lambdas.sort(key=lambda n: (_is_around(n, code), n.lineno, n.col_offset), reverse=True)
    found = next((n for n in lambdas if is_text_of(fn, n, lines, is_sole=is_sole)), None)
    if found is None and is_sole:
        raise _changed(code)
    if found is None:
        raise KernelSyntaxError(
            "which lambda of this line is meant cannot be told",
            _line_span(code),
            help="define it with `def`, or on a line of its own",
        )
    body = ast.copy_location(ast.Return(found.body), found.body)
    node = ast.FunctionDef(code.co_name, found.args, [body], decorator_list=[])
    return Source(code, ast.copy_location(node, found), lines, 1, file)


def _may_be(n: ast.Lambda, code: CodeType) -> bool:
    """True if a lambda, parsed with one line before it, matches this code's line and parameters."""
    names = [a.arg for a in (*n.args.posonlyargs, *n.args.args, *n.args.kwonlyargs)]
    count = code.co_argcount + code.co_kwonlyargcount
    return n.lineno - 1 == code.co_firstlineno and names == list(code.co_varnames[:count])


def _is_around(n: ast.Lambda, code: CodeType) -> bool:
    """True if all positions of a code object are inside a lambda, parsed after one extra line.

    False in Python 3.10, which has no positions.
    """
    if not hasattr(code, "co_positions"):  # Python 3.10
        return False
    begin = (n.body.lineno - 1, n.body.col_offset)
    end = (n.body.end_lineno - 1, n.body.end_col_offset)  # type: ignore[operator]
    places = [p for p in code.co_positions() if None not in p and p[2] != p[3]]
    return all(begin <= (p[0], p[2]) and (p[1], p[3]) <= end for p in places)


def _read_lines(fn: FunctionType, code: CodeType) -> tuple[list[str], str]:
    """Return (lines, file) of the whole text that contains the function.

    Typed text becomes a file of its own for messages. Raises KernelSyntaxError if there is no text.
    """
    file = code.co_filename
    lines = [] if file in SHARED else _lines_of(file, fn)
    if not lines and file.startswith("<"):
        lines = find_lines(code)
        file = f"<{file.strip('<>')}-{next(_NUMBERS)}>"
        linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
    if not lines:
        raise _unavailable(code)
    return lines, file


def _lines_of(file: str, fn: FunctionType) -> list[str]:
    """Return the current lines of a file by linecache; empty if it has none, or is no regular file.

    linecache discards exceptions, including those of signal handlers. It is therefore called in a
    thread that signals do not interrupt.
    """
    kept = linecache.cache.get(file)
    try:
        status = os.stat(file)
    except local(OSError, ValueError):  # in an archive, or relative to `sys.path`
        status = None
    if status is not None and not stat.S_ISREG(status.st_mode):  # a pipe can be read once
        linecache.cache[file] = (0, None, [], file)
        show_by(_print_by_linecache)  # the default hook opens the pipe and blocks
        return []
    if kept is not None and len(kept) == 4:
        size, time, lines, _ = kept
        is_current = status is not None and (size, time) == (status.st_size, status.st_mtime)
        if time is None or is_current:
            return lines
    return run_in_thread(partial(_read_anew, file, fn.__globals__))


def _print_by_linecache(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    from traceback import print_exception

    print_exception(kind, error, traceback)


def _read_anew(file: str, names: dict[str, Any]) -> list[str]:
    linecache.checkcache(file)
    return linecache.getlines(file, names)


def _block_in(lines: list[str], code: CodeType) -> tuple[list[str], ast.stmt | None]:
    """Return the lines of the definition, decorators first, and its syntax if it was parsed."""
    lines = lines[code.co_firstlineno - 1 :]
    if not lines:
        raise _unavailable(code)
    block = _block_of(lines, code)
    node = _statement_in(block) if block else None
    if isinstance(node, _ast.FunctionDef) and node.name == code.co_name:
        return block, node
    import inspect  # slow path: indentation did not find the end
    import tokenize

    try:
        block = inspect.getblock(lines)
    except (tokenize.TokenError, IndentationError, SyntaxError):
        raise _changed(code) from None
    if not block:
        raise _unavailable(code)
    return block, None


def _block_of(lines: list[str], code: CodeType) -> list[str]:
    """Return the lines of a function's definition, found by indentation.

    The block ends at the first line after all lines of the code that is indented no further than
    the first. Empty if a line begins with a tab or form feed.
    """
    depth = _depth(lines[0])
    end = _last_line(code) - code.co_firstlineno + 1
    while end < len(lines) and (lines[end].lstrip(" ")[:1] in BLANK or _depth(lines[end]) > depth):
        end += 1
    block = lines[:end]
    while block and block[-1].lstrip(" ")[:1] in BLANK and _depth(block[-1]) <= depth:
        block.pop()
    return [] if any(line[:1] in "\t\f" for line in block if line) else block


BLANK = ("", "\n", "\r", "#")  # first characters of blank lines and comments


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _last_line(code: CodeType) -> int:
    inner = [_last_line(c) for c in code.co_consts if isinstance(c, CodeType)]
    return max([line for _, _, line in code.co_lines() if line is not None] + inner)


_HELP = {
    "<dynamic-code>": "cloudpickle pickles no sources; vkchi pickles those of kernels, ti.funcs "
    "and functions that kernels capture: put ti.func() around one in an object or argument",
    "<magic-timeit>": "cells under %%timeit have no source: define the kernel in a cell of its "
    "own, and time the call",
    "<stdin>": "write it to a file and run that: Python does not keep what is piped into it, nor "
    "lines typed at a prompt without a history",
    "<string>": "define it in a file or a notebook cell; for exec() of a text, name it, "
    "compile(text, name, 'exec'), and tell Python's linecache: "
    "linecache.cache[name] = (len(text), None, text.splitlines(True), name)",
}


def _unavailable(code: CodeType) -> KernelSyntaxError:
    is_file = not code.co_filename.startswith("<")
    if is_file and _is_pipe(code.co_filename):
        return KernelSyntaxError(
            f"the source of {code.co_name}() came through a pipe, which gives it only once",
            span_of_code(code),
            help="write it to a file and run that",
        )
    away = "its file is not there, or is no text: kernels need the .py file beside a .pyc"
    return KernelSyntaxError(
        f"the source of {code.co_name}() is not available, and kernels are compiled from it",
        span_of_code(code),
        help=away if is_file else _HELP.get(code.co_filename, _HELP["<string>"]),
    )


def _is_pipe(file: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(file).st_mode)
    except local(OSError, ValueError):
        return False


def _line_span(code: CodeType) -> Span:
    text = linecache.getline(code.co_filename, code.co_firstlineno).rstrip()
    start = len(text) - len(text.lstrip()) + 1
    line = code.co_firstlineno
    return Span(code.co_filename, line, start, line, len(text) + 1, "")


def _changed(code: CodeType) -> KernelSyntaxError:
    return KernelSyntaxError(
        f"the source of {code.co_name}() is not what stands in its file now",
        span_of_code(code),
        help="start Python again if the file was changed after it was imported; if that does not "
        "help, Python runs an old .pyc: remove the folder __pycache__ beside the file",
    )
