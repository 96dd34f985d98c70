"""Comparisons of square roots with constants become comparisons of what is under the root.

    sqrt(x) >= c    ->    x >= t              the least number whose root is c or more
    sqrt(x) < c     ->    x < t and x >= 0    (the latter not of sums of squares)

A root that is rounded correctly never falls as x grows, so there is such a number, and numpy finds
it: the comparison comes out the same for every x, NaN and numbers below zero too, whose root is NaN
and makes all of these false. `v.norm() < r`, in loops above all, has no root then. Only of roots
that nobody else asks for; of constants so large that t is no subnormal number, which devices may
take for zero.

Owns: this form. Must not know: where comparisons are.

    >>> compare_squares(fn)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from vkchi.ir.builder import Builder
from vkchi.ir.constants import constant, is_constant
from vkchi.ir.core import Func, Op, Value, value_of, walk
from vkchi.ir.rebuild import rebuild
from vkchi.types import Scalar
from vkchi.types.lazy_numpy import np

# comparison of the root -> that of what is under it, and whether t has a root that is more than c
BOUNDS = {"lt": ("lt", False), "ge": ("ge", False), "le": ("lt", True), "gt": ("ge", True)}


def compare_squares(fn: Func) -> Func:
    """The Func without roots that are only compared with constants."""
    uses = Counter(v for op in walk(fn.body) for v in op.args)

    def visit(b: Builder, op: Op, args: tuple[Value, ...]) -> Sequence[Value] | None:
        t = bound_of(op, uses)
        if t is None:
            return None
        root = args[0]
        assert isinstance(root, Op) and isinstance(root.type, Scalar)
        x, limit = root.args[0], b.const(t, root.type)
        kind, _ = BOUNDS[op.kind]
        found = b.emit(kind, x, limit)
        if kind == "lt" and not is_natural(x):
            found = b.emit("and", found, b.emit("ge", x, b.const(0.0, root.type)))
        return [found]

    return rebuild(fn, visit)


def is_natural(x: Value) -> bool:
    """Whether a float is seen to be NaN, or not below zero: a sum of squares."""
    if not isinstance(x, Op):
        return False
    if x.kind == "mul":
        return x.args[0] is x.args[1]
    return x.kind == "abs" or (x.kind in ("add", "sum") and all(map(is_natural, x.args)))


def bound_of(op: Op, uses: Counter[Value]) -> float | None:
    """The number that what is under the root is compared with; None where that is not done."""
    root = op.args[0] if op.kind in BOUNDS else None
    if not isinstance(root, Op) or root.kind != "sqrt" or uses[root] != 1:
        return None
    t = root.type
    if not isinstance(t, Scalar) or t.name not in ("f32", "f64") or not is_constant(op.args[1]):
        return None
    c = value_of(constant(op.args[1]).attr, t)
    return least_square(float(c), t.dtype, is_above=BOUNDS[op.kind][1])


def least_square(c: float, dtype: Any, *, is_above: bool) -> float | None:
    """The least number whose root is c or more, or more than c; None for constants whose squares
    are not normal numbers, and those below zero."""
    limits, c = np.finfo(dtype), dtype.type(c)
    with np.errstate(over="ignore"):
        square = dtype.type(c * c)
    if not c > 0 or not 4 * limits.tiny < square < limits.max / 4:
        return None

    def is_enough(x: Any) -> bool:
        root = np.sqrt(x)
        return bool(root > c if is_above else root >= c)

    while is_enough(square):
        square = np.nextafter(square, dtype.type(0))
    while not is_enough(square):
        square = np.nextafter(square, limits.max)
    return float(square)
