"""Whether a text that the cache holds, and that will be evaluated, does nothing but compare.

Must not know: where it comes from.
"""

from __future__ import annotations

import ast

from vkchi.interrupts.local import local

# What a check's text may hold, which is evaluated: comparisons of `n` and `w` with integers.
TEST_NODES = (
    ast.Expression, ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name,
    ast.Load, ast.Store, ast.operator, ast.boolop, ast.unaryop, ast.cmpop, ast.Call,
    ast.GeneratorExp, ast.comprehension, ast.Tuple,
)  # fmt: skip


def is_plain_test(text: str) -> bool:
    """Whether a check compares numbers, and does nothing else."""
    try:
        nodes = list(ast.walk(ast.parse(text, mode="eval")))
    except local(SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return len(text) < 1000 and all(
        isinstance(n, TEST_NODES)
        and (not isinstance(n, ast.Name) or n.id in ("n", "w", "all"))
        and (not isinstance(n, ast.Constant) or isinstance(n.value, int))
        and (not isinstance(n, ast.Pow | ast.LShift))
        and (not isinstance(n, ast.Call) or getattr(n.func, "id", "") == "all")
        for n in nodes
    )


def is_plain_sentence(text: str) -> bool:
    """Whether a check's sentence, a format, shows its number and nothing else."""
    rest = text.replace("{n}", "")
    return "{" not in rest and "}" not in rest
