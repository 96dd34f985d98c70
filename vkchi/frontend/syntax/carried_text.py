"""Source text that travels with pickled functions, whose files another process may not have.

`text_of` reduces the file of a function to what a compilation of the function needs, at the same
lines. `attach_text` stores such a text in linecache, under a file name of its own, and gives the
function that file name. Messages show the name without its mark (`span.shown_file`).

    file, text = text_of(fn)       # in one process
    attach_text(fn, file, text)    # in another one: source_of(fn) works
"""

from __future__ import annotations

import _ast
import ast
import hashlib
import linecache
import re
from types import CodeType, FunctionType

from vkchi.frontend.syntax.matching import compile_quietly, nested
from vkchi.frontend.syntax.source import read_block, read_text, source_of
from vkchi.span import MARK, cell_name, shown_file


def text_of(fn: FunctionType) -> tuple[str, str]:
    """Return the shown file name of a function, and its text. Raises KernelSyntaxError.

    Other top-level statements than those of the function and imports become blank lines.
    """
    lines, file = read_text(fn)
    whole = "".join(lines)
    tree = compile_quietly(whole, _ast.PyCF_ONLY_AST)
    if tree is not None:
        first, last = line_range(fn.__code__)
        kept = [
            range(begin_of(n) - 1, n.end_lineno) for n in tree.body
            if is_import(n) or (begin_of(n) <= last and n.end_lineno >= first)
        ]  # fmt: skip
        numbers = {k for one in kept for k in one}
        lines = [line if k in numbers else "\n" for k, line in enumerate(lines[: max(numbers) + 1])]
    return cell_name(file) or shown_file(file), "".join(lines)


def begin_of(n: ast.stmt) -> int:
    """Return the first line of a statement, decorators included."""
    decorators: list[ast.expr] = getattr(n, "decorator_list", [])
    return min([n.lineno, *(d.lineno for d in decorators)])


def is_import(n: ast.stmt) -> bool:
    """True for an import, and for a branch, `try` or `with` that has one."""
    if isinstance(n, ast.Import | ast.ImportFrom):
        return True
    inner = n if isinstance(n, ast.If | ast.Try | ast.With) else ()
    return bool(inner) and any(isinstance(x, ast.Import | ast.ImportFrom) for x in ast.walk(n))


def line_range(code: CodeType) -> tuple[int, int]:
    """Return the first and last lines of a code object and those nested in it."""
    codes = (code, *nested(code))
    lines = [line for c in codes for _, _, line in c.co_lines() if line is not None]
    return code.co_firstlineno, max([code.co_firstlineno, *lines])


def attach_text(fn: FunctionType, file: str, text: str) -> None:
    """Make a text the source of a function, which was unpickled."""
    name = f"{file}{MARK}{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    fn.__code__ = with_file(fn.__code__, name)


def with_file(code: CodeType, name: str) -> CodeType:
    """Return a code object with another file name, also in the code objects nested in it."""
    constants = [with_file(c, name) if isinstance(c, CodeType) else c for c in code.co_consts]
    return code.replace(co_filename=name, co_consts=tuple(constants))


def names_in_source(fn: FunctionType) -> set[str]:
    """Return the names in a function's parameters, annotations and body.

    Its bytecode lacks those of annotations and of constant branches.
    """
    node = source_of(fn).node
    parts = [node.args, *([] if node.returns is None else [node.returns]), *node.body]
    found = {n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)}
    for note in fn.__annotations__.values():
        code = compile_quietly(note, 0) if isinstance(note, str) else None
        found.update(() if code is None else code.co_names)
    return found


def words_in_source(fn: FunctionType) -> set[str]:
    """Return the words of a function's definition, which the disk cache looks up in its globals."""
    return set(re.findall(r"[^\W\d]\w*", "".join(read_block(fn))))
