"""Python syntax that kernels do not support: the message and the alternative for each AST class."""

from __future__ import annotations

import ast

from vkchi.errors import CompilationError, KernelSyntaxError
from vkchi.frontend.context import Lowering
from vkchi.frontend.syntax.desugaring import unsupported_pattern

_NO_EXCEPTIONS = "return a flag, or store one in a field"
_MOVE = "move it out of the kernel"

# AST class -> (unsupported syntax, alternative)
REFUSED: dict[str, tuple[str, str]] = {
    "FunctionDef": ("functions inside functions", "define it outside, with @ti.func"),
    "AsyncFunctionDef": ("coroutines", _MOVE),
    "ClassDef": ("classes inside functions", _MOVE),
    "Delete": ("`del`", "variables end with their block"),
    "AsyncFor": ("`async for`", "use `for`"),
    "With": ("`with`", _MOVE),
    "AsyncWith": ("`async with`", _MOVE),
    "Raise": ("exceptions", _NO_EXCEPTIONS),
    "Try": ("exceptions", _NO_EXCEPTIONS),
    "TryStar": ("exceptions", _NO_EXCEPTIONS),
    "Import": ("`import`", "import at the top of the file"),
    "ImportFrom": ("`import`", "import at the top of the file"),
    "Global": ("`global`", "keep what kernels change in a field: ti.field(ti.f32, shape=())"),
    "Nonlocal": ("`nonlocal`", "keep what kernels change in a field: ti.field(ti.f32, shape=())"),
    "Set": ("sets", "use a tuple"),
    "SetComp": ("set comprehensions", "use a list: [...]"),
    "GeneratorExp": ("generator expressions", "use a list: [...]"),
    "Await": ("`await`", _MOVE),
    "Yield": ("`yield`", "store the values in a field"),
    "YieldFrom": ("`yield`", "store the values in a field"),
    "Starred": ("`*` here", "name every value"),
    "TypeAlias": ("`type`", _MOVE),
    "TemplateStr": ("template strings", "use an f-string in ti.static_print"),
}


def unsupported_node(cx: Lowering, n: ast.AST) -> CompilationError:
    if isinstance(n, ast.Match):
        found = unsupported_pattern(n)
        n, what, help = found.node, f"patterns of {found.words}", "use `if` and `elif`"
    else:
        what, help = REFUSED.get(type(n).__name__, (f"Python's `{type(n).__name__}`", ""))
    if hasattr(n, "lineno"):
        cx.locate(n)
    return cx.fail(f"kernels have no {what}", kind=KernelSyntaxError, help=help)
