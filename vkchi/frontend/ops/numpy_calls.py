"""Calls of numpy functions on compile-time constants: numpy computes them, in its own types.

Numpy scalars keep their type as arguments of such calls: `np.nextafter` of f32 is not that of f64.

    np.nextafter(np.float32(1.0), np.float32(2.0))      # 1.0000001
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from vkchi.frontend.context import Lowering
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.values.kinds import is_static
from vkchi.frontend.values.operands import WeakNumbers, constant, weak_scalar
from vkchi.frontend.values.python_values import peek
from vkchi.types import scalar_of_dtype
from vkchi.types.lazy_numpy import np


def is_of_numpy(callee: Any) -> bool:
    module = getattr(callee, "__module__", None) if callable(callee) else None
    is_numpy = isinstance(module, str) and module.partition(".")[0] == "numpy"
    return is_numpy or isinstance(callee, np.ufunc)


def is_type(callee: Any) -> bool:
    return isinstance(callee, type) and issubclass(callee, np.generic)


def computes(callee: Any, args: Sequence[Any]) -> bool:
    """True if numpy computes a call: the callee is numpy's and all arguments are constants.

    For a scalar type, they are numbers or arrays; otherwise at least one is numpy's.
    """
    if not is_of_numpy(callee) or not is_static(list(args)):
        return False
    if is_type(callee):
        return all(isinstance(x, bool | int | float | np.generic | np.ndarray) for x in args)
    return any(isinstance(x, np.generic | np.ndarray) for x in args)


def argument(cx: Lowering, n: ast.expr) -> Any:
    """Lower an argument of a numpy function: a numpy scalar keeps its type."""
    if isinstance(n, ast.UnaryOp) and isinstance(n.op, ast.USub):
        inner: Any = argument(cx, n.operand)
        is_numpy = isinstance(inner, np.generic)
        return np.negative(inner) if is_numpy else operator_lowering.unary(cx, "-", inner)
    outer, cx.kept = cx.kept, n
    x = cx.expr(n)
    cx.kept = outer
    if isinstance(n, ast.Name | ast.Attribute) and isinstance(x, bool | int | float):
        found = peek(cx, n)
        return found if isinstance(found, np.generic) else x
    return x


def number_of(cx: Lowering, x: Any) -> Any:
    """Return a numpy scalar as a Python number if a literal has its type, else as an IR constant.

    Other objects are unchanged.
    """
    t = scalar_of_dtype(x.dtype) if isinstance(x, np.generic) else None
    if t is None:
        return x
    number = WeakNumbers(x.item(), "b" if t.kind == "b" else "f" if t.kind == "f" else "i")
    return number.numbers if own_scalar(cx, number) is t else constant(cx, number.numbers, t)


def own_scalar(cx: Lowering, x: WeakNumbers) -> Any:
    """Return the type of a number by itself: default_ip for an int, even if that cannot represent
    it."""
    return cx.options.default_ip if x.kind == "i" else weak_scalar(cx, x)
