"""Whitelist check of expressions in cache entries before they are passed to `eval`."""

from __future__ import annotations

import ast

from vkchi.interrupts.local import local

# AST nodes allowed in a check: comparisons of `n` and `w` with integers.
TEST_NODES = (
    ast.Expression, ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name,
    ast.Load, ast.Store, ast.operator, ast.boolop, ast.unaryop, ast.cmpop, ast.Call,
    ast.GeneratorExp, ast.comprehension, ast.Tuple,
)  # fmt: skip


def is_plain_test(text: str) -> bool:
    """True if the expression has only comparisons, logic and arithmetic of integers, `n` and `w`.

    Also allowed are tuples, generator expressions and calls of `all`. False for powers, left
    shifts, 1000 or more characters, and syntax errors.
    """
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
    """True if the format string has no braces except those of `{n}`."""
    rest = text.replace("{n}", "")
    return "{" not in rest and "}" not in rest
