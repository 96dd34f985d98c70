"""Proof that a text is the source of a code object: it compiles to an equal code object.

Equal means the same instructions, names, constants and lines, up to a shift of all lines. A file
may change between import and the first call of a kernel, and Python may run an old `.pyc`. The
definition alone is compiled, inside stand-ins for the enclosing functions and classes. If the code
differs, the whole text is compiled. Rewritten code (pytest's assertions, import hooks, coverage
tools) must only have all constants and names of the text.

See also: `interactive`, which searches for the source of code that is in no file.
"""

from __future__ import annotations
import __future__

import _ast
import re
import sys
import warnings
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from vkchi.interrupts.local import local

if TYPE_CHECKING:
    import ast

NESTED = 16  # inspect.CO_NESTED: depends on the position only
FUTURES = 0
for _name in __future__.all_feature_names:
    FUTURES |= getattr(__future__, _name).compiler_flag
FUTURES &= ~NESTED
OPTIMIZATIONS = (-1, 0, 1, 2)  # the interpreter's own first
STOCK = ("importlib", "_frozen_importlib", "zipimport", "builtins")  # loaders that keep code
NOTHING: list[str] = []
NAMELESS = "<vkchi>"  # file name of texts compiled here
_SILENCE = (
    ("ignore", None, Warning, re.compile(re.escape(NAMELESS)), 0),
    ("ignore", None, SyntaxWarning, None, 0),  # late versions of Python 3.13 name another module
)
LITERALS = (int, float, complex, str, bytes, tuple, frozenset, CodeType, type(None), type(...))
_PARTS = (
    "co_name", "co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_code", "co_names",
    "co_varnames", "co_freevars", "co_cellvars",
)  # fmt: skip


def is_text_of(
    fn: FunctionType, node: ast.FunctionDef | ast.Lambda, lines: list[str], *, is_sole: bool = True
) -> bool:
    """True if a definition is the source of a function; `lines` are those of the whole text.

    It must compile to the function's code. If a tool may have rewritten that code, the definition's
    constants and names must occur in it. `is_sole`: no other definition in that line may be the
    source.
    """
    code = fn.__code__
    imported = _imported(code, lines)
    if any(_is_given(code, _compiled(fn, node, names, -1)) for names in (imported, NOTHING)):
        return True  # in a module, or a cell: IPython compiles its statements one by one
    text, line = "".join(lines), code.co_firstlineno
    if is_sole and any(_is_given(code, compiled_text(text, code, k), line) for k in OPTIMIZATIONS):
        return True
    if any(_is_given(code, _compiled(fn, node, imported, k)) for k in OPTIMIZATIONS[1:]):
        return True  # the whole text is not a program: a cell with `await`
    return is_sole and is_rewritten(fn) and _may_be_rewritten(fn, node, imported)


def compiled_text(text: str, code: CodeType, optimize: int = -1) -> CodeType | None:
    """Compile a whole text with the flags of a code object; None if it is not a program."""
    return _compiled_text(text, code.co_flags & FUTURES, optimize)


@lru_cache(maxsize=2 * len(OPTIMIZATIONS))
def _compiled_text(text: str, flags: int, optimize: int) -> CodeType | None:
    made: CodeType | None = compile_quietly(text, flags, optimize)
    return made


def compile_quietly(given: Any, flags: int, optimize: int = -1) -> Any:
    """Call `compile` with warnings off; None if the text is not a program.

    Python gave the warnings when it first compiled the text.
    """
    before = warnings.filters
    try:
        # Not `catch_warnings`, which would show earlier warnings again.
        warnings.filters = [*_SILENCE, *before]
        return compile(given, NAMELESS, "exec", flags, True, optimize)
    except local(SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    finally:
        warnings.filters = before


def is_same(a: CodeType, b: CodeType) -> bool:
    """True if two code objects have the same instructions, names, constants, and lines up to a
    shift.

    Flags other than CO_NESTED must be equal too; file names and columns may differ.
    """
    if any(getattr(a, name) != getattr(b, name) for name in _PARTS):
        return False
    return (
        (a.co_flags ^ b.co_flags) & ~NESTED == 0
        and _offsets(a) == _offsets(b)
        and _are_same(a.co_consts, b.co_consts)
    )


def nested(code: CodeType) -> Iterator[CodeType]:
    """Yield every nested code object, the last first: a later definition hides an earlier one."""
    for x in reversed(code.co_consts):
        if isinstance(x, CodeType):
            yield x
            yield from nested(x)


def _are_same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return len(a) == len(b) and all(map(_is_same_constant, a, b))


def _is_same_constant(x: Any, y: Any) -> bool:
    if type(x) is not type(y):
        return False
    if isinstance(x, CodeType):
        return is_same(x, y)
    if isinstance(x, tuple):
        return _are_same(x, y)
    if isinstance(x, frozenset):  # the order differs between a .pyc and memory
        return sorted(map(repr, x)) == sorted(map(repr, y))
    return repr(x) == repr(y)


def _offsets(code: CodeType) -> list[int]:
    first = code.co_firstlineno
    return [0 if line is None else line - first for _, _, line in code.co_lines()]


def _is_given(code: CodeType, whole: CodeType | None, line: int = 0) -> bool:
    """True if a code object equals one nested in `whole`, at this line if given."""
    return whole is not None and any(
        is_same(found, code) and line in (0, found.co_firstlineno) for found in nested(whole)
    )


# --- a definition alone ----------------------------------------------------------------------


def _imported(code: CodeType, lines: list[str]) -> list[str]:
    """Return the names in a code object that the text may import.

    Python compiles calls of their attributes to other instructions.
    """
    known, is_open = set[str](), False
    for line in lines:
        if is_open or "import" in line:
            known.update(re.findall(r"\w+", line))
            is_open = (is_open or "(" in line) and ")" not in line
    return sorted(known & _global_names(code))


def _global_names(code: CodeType) -> set[str]:
    return {name for c in (code, *nested(code)) for name in c.co_names}


def _compiled(
    fn: FunctionType, node: ast.FunctionDef | ast.Lambda, imported: list[str], optimize: int
) -> CodeType | None:
    """Compile a module with these imports and this definition, nested by its qualified name.

    Returns None if that is not a program.
    """
    code = fn.__code__
    at: dict[str, Any] = {
        "lineno": node.lineno, "col_offset": 0, "end_lineno": node.lineno, "end_col_offset": 0,
    }  # fmt: skip
    inner: ast.stmt = node if isinstance(node, _ast.FunctionDef) else _ast.Expr(node, **at)
    *around, _ = getattr(code, "co_qualname", fn.__qualname__).split(".")
    names = [name for name in code.co_freevars if name != "__class__"]
    if names and "<locals>" not in around:
        around = ["_", "<locals>", *around]
    is_outermost = True
    body: list[ast.stmt] = [inner]
    while around:
        name = around.pop()
        is_function = name == "<locals>"
        if is_function:
            name = around.pop()
            is_outermost = "<locals>" not in around
        if not name.isidentifier():
            name = "_"
        if is_function and is_outermost and names:
            targets: list[ast.expr] = [_ast.Name(n, _ast.Store(), **at) for n in names]
            body = [_ast.Assign(targets, _ast.Constant(None, **at), **at), *body]
        body = [_function(name, body, at) if is_function else _class(name, body, at)]
    if imported:
        body = [_ast.Import([_ast.alias(name, None, **at) for name in imported], **at), *body]
    made: CodeType | None = compile_quietly(
        _ast.Module(body, []), code.co_flags & FUTURES, optimize
    )
    return made


def _function(name: str, body: list[ast.stmt], at: dict[str, Any]) -> ast.stmt:
    none = _ast.arguments([], [], None, [], [], None, [])
    made = _ast.FunctionDef(name, none, body, [], **at)
    if sys.version_info >= (3, 12):
        made.type_params = []
    return made


def _class(name: str, body: list[ast.stmt], at: dict[str, Any]) -> ast.stmt:
    made = _ast.ClassDef(name, [], [], body, [], **at)
    if sys.version_info >= (3, 12):
        made.type_params = []
    return made


# --- code that something has rewritten ---------------------------------------------------------


def is_rewritten(fn: FunctionType) -> bool:
    """True if a tool may have rewritten a function's code, so that it differs from its source's.

    Signs are marks in the code, a module loader that is not Python's, and AST transformers in
    IPython.
    """
    if any(_has_marks(code) for code in (fn.__code__, *nested(fn.__code__))):
        return True
    loader = fn.__globals__.get("__loader__")
    maker = loader if isinstance(loader, type) else type(loader)
    if not maker.__module__.startswith(STOCK):
        return True
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return bool(getattr(shell, "ast_transformers", None))


def _has_marks(code: CodeType) -> bool:
    """True if a code object has marks of pytest (names with `@`) or of coverage tools.

    The latter put constants of unusual types into code.
    """
    names = (*code.co_names, *code.co_varnames, *code.co_cellvars)
    return any(name.startswith("@") for name in names) or any(
        not isinstance(x, LITERALS) for x in code.co_consts
    )


def _may_be_rewritten(
    fn: FunctionType, node: ast.FunctionDef | ast.Lambda, imported: list[str]
) -> bool:
    """True if a function has all constants and names of a definition, assertions left out."""
    import ast
    import copy

    class WithoutAssertions(ast.NodeTransformer):
        def visit_Assert(self, node: ast.Assert) -> ast.AST:
            return ast.copy_location(ast.Pass(), node)

    bare = WithoutAssertions().visit(copy.deepcopy(node))
    whole = _compiled(fn, bare, imported, -1)
    found = [] if whole is None else [c for c in nested(whole) if c.co_name == fn.__code__.co_name]
    return any(_words(code) <= _words(fn.__code__) for code in found)


def _words(code: CodeType) -> set[Any]:
    """Return names and constants of a code object and of those nested in it."""
    found = set[Any]()
    for c in (code, *nested(code)):
        found |= {(type(x), repr(x)) for x in c.co_consts if not isinstance(x, CodeType | None)}
        found |= {*c.co_names, *c.co_varnames, *c.co_freevars, *c.co_cellvars}
    return found
