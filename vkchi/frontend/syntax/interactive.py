"""Source text of code that is not in a file: typed at a prompt, or given by `-c` or redirection.

The text is searched in linecache, the command line, a file redirected to standard input, and the
histories of readline and IPython. A candidate is accepted only if it compiles to the same
instructions, names, constants and lines as the code. All lines may be shifted.

    >>> find_lines(fn.__code__)      # `@ti.kernel` typed at the prompt
    ['@ti.kernel\\n', 'def f():\\n', '    pass\\n']
"""

from __future__ import annotations

import io
import linecache
import os
import re
import stat
import sys
import tokenize
from collections.abc import Iterable, Iterator
from itertools import combinations_with_replacement, islice
from types import CodeType
from typing import Any

from vkchi import platform
from vkchi.frontend.syntax.matching import compiled_text, is_same, nested
from vkchi.interrupts.local import local

# File names that several texts share; linecache may have another text under them.
SHARED = ("<stdin>", "<string>", "<timed exec>", "<console>")
_CLOSING_LINES = 8  # most lines of brackets behind a function's last instruction
_HEAD_LINES = 60  # most lines from a statement's first to the `def`
_CELLS = 50
MOST_TEXTS = 5_000  # candidates before giving up: about 1.4 s
_PAIRED = 40  # most lines of a function for which two merged lines are tried
_TAKES_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def find_lines(code: CodeType) -> list[str]:
    """Return source lines whose line `co_firstlineno` is the function's first; empty if unknown."""
    for text in islice(_texts(code), MOST_TEXTS):
        lines = lines_in(text, code)
        if lines:
            return lines
    return []


def lines_in(text: str, code: CodeType) -> list[str]:
    """Return the lines of a text, shifted to put the code at its line; empty if not found."""
    whole = compiled_text(text, code)
    if whole is None:
        return []
    found = next((inner for inner in nested(whole) if is_same(inner, code)), None)
    if found is None:
        return []
    lines = text.splitlines(keepends=True)
    shift = found.co_firstlineno - code.co_firstlineno
    return lines[shift:] if shift >= 0 else ["\n"] * -shift + lines


# --- where texts may be --------------------------------------------------------------------------


def _texts(code: CodeType) -> Iterator[str]:
    file = code.co_filename
    yield "".join(linecache.getlines(file))
    yield "".join(getattr(linecache, "_getlines_from_code", lambda code: [])(code))  # Python 3.13
    if file == "<string>":
        yield given_on_command_line(sys.orig_argv)
    if file in ("<stdin>", "<console>"):
        yield redirected_to(0)
        yield from typed_statements(code, _readline_history())
    if file in ("<timed exec>", "<string>"):  # %%time; %%prun
        yield from _magic_cells()


def given_on_command_line(argv: list[str]) -> str:
    """Return the program after `-c` in Python's own arguments; empty if there is none."""
    words = iter(argv[1:])
    for word in words:
        if word in _TAKES_VALUE:
            next(words, None)
        elif not word.startswith("-") or word == "-":
            return ""
        elif not word.startswith("--"):
            flags, found, rest = word[1:].partition("c")
            if found and not re.search("[WXm]", flags):
                return rest or next(words, "")
    return ""


def redirected_to(descriptor: int) -> str:
    """Return the text of the regular file that is open at a descriptor.

    Empty for pipes and terminals, and if the text cannot be decoded.
    """
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return ""
        data = platform.read_start(descriptor, status.st_size)
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return io.TextIOWrapper(io.BytesIO(data), encoding).read()
    except local(OSError, SyntaxError, ValueError, AttributeError):
        return ""


def _readline_history() -> list[str]:
    """Return the lines typed at the prompt, oldest first, if it has a history."""
    readline: Any = sys.modules.get("readline")
    if readline is None:
        return []
    count = readline.get_current_history_length()
    return [readline.get_history_item(k) or "" for k in range(1, count + 1)]


def typed_statements(code: CodeType, history: list[str]) -> Iterator[str]:
    """Yield the statements in a history that may be the source of the code, latest first.

    A history has no empty lines, and merges equal consecutive lines.
    """
    begins = re.compile(rf"\s*def\s+{re.escape(code.co_name)}\b")
    need = max((line for _, _, line in code.co_lines() if line), default=code.co_firstlineno)
    for at in range(len(history) - 1, -1, -1):
        if not begins.match(history[at]):
            continue
        starts = range(at, max(-1, at - _HEAD_LINES), -1)
        heads = [start for start in starts if not history[start][:1].isspace()]
        for dropped in range(3 if need <= _PAIRED else 2):
            for start in heads:
                yield from _variants(history[start : start + need + _CLOSING_LINES], need, dropped)


def _variants(lines: list[str], need: int, dropped: int) -> Iterator[str]:
    """Yield candidates for the statement of at least `need` lines, with `dropped` lines repeated.

    The repeated lines are those that the history may have merged.
    """
    for again in combinations_with_replacement(range(min(need, len(lines))), dropped):
        yield from _closed(_with_again(lines, again), need)


def _with_again(lines: list[str], again: Iterable[int]) -> list[str]:
    lines = list(lines)
    for k in sorted(again, reverse=True):
        lines.insert(k, lines[k])
    return lines


def _closed(lines: list[str], need: int) -> Iterator[str]:
    """Yield the shortest prefix of at least `need` lines that compiles, if there is one."""
    for count in range(min(need, len(lines)), len(lines) + 1):
        text = "\n".join(lines[:count]) + "\n"
        try:
            compile(text, "<typed>", "exec", 0, True)
        except local(SyntaxError, ValueError):
            continue
        yield text
        return


def _magic_cells() -> Iterator[str]:
    """Yield the bodies of the latest IPython cells that begin with a magic such as %%time.

    The current cell is first, then older ones.
    """
    get = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    shell = get()
    if shell is None:
        return
    manager = shell.history_manager
    for cell in [getattr(manager, "_i00", ""), *reversed(manager.input_hist_raw[-_CELLS:])]:
        head, _, body = cell.lstrip().partition("\n")
        if head.startswith("%%"):
            yield shell.transform_cell(body)
