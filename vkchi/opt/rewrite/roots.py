"""Strength reduction: comparing a square root with a constant becomes comparing its operand.

    sqrt(x) >= c    ->    x >= t              t: the least number whose root is c or more
    sqrt(x) < c     ->    x < t and x >= 0    (the latter not for sums of squares)

`>` and `<=` are rewritten likewise; there the root of t exceeds c. A correctly rounded root is
monotonic, so t exists; numpy computes it. The comparison has the same result for every x, including
NaN and negative numbers, whose root is NaN: all these comparisons are false. This removes the root
from `v.norm() < r`, above all in loops.

Restrictions: the root is a scalar f32 or f64 and has no other use. c is positive, and its square is
far from the limits of normal numbers, because devices may flush subnormal numbers to zero.

    >>> compare_squares(fn)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from vkchi.ir.builder import Builder
from vkchi.ir.core import Func, Op, Value, as_constant, is_constant, value_of, walk
from vkchi.ir.rebuild import rebuild
from vkchi.types import Scalar
from vkchi.types.lazy_numpy import np

# comparison of the root -> comparison of its operand; True if sqrt(t) must exceed c
BOUNDS = {"lt": ("lt", False), "ge": ("ge", False), "le": ("lt", True), "gt": ("ge", True)}


def compare_squares(fn: Func) -> Func:
    """Compare the operand of a root instead of the root, where `bound_of` finds a number to compare
    it with. The roots become unused."""
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
    """True if a float is syntactically non-negative or NaN, such as a sum of squares."""
    if not isinstance(x, Op):
        return False
    if x.kind == "mul":
        return x.args[0] is x.args[1]
    return x.kind == "abs" or (x.kind in ("add", "sum") and all(map(is_natural, x.args)))


def bound_of(op: Op, uses: Counter[Value]) -> float | None:
    """Return the number to compare the operand of the root with; None if the rewrite does not
    apply."""
    root = op.args[0] if op.kind in BOUNDS else None
    if not isinstance(root, Op) or root.kind != "sqrt" or uses[root] != 1:
        return None
    t = root.type
    if not isinstance(t, Scalar) or t.name not in ("f32", "f64") or not is_constant(op.args[1]):
        return None
    c = value_of(as_constant(op.args[1]).attr, t)
    return least_square(float(c), t.dtype, is_above=BOUNDS[op.kind][1])


def least_square(c: float, dtype: Any, *, is_above: bool) -> float | None:
    """Return the least number whose root is at least c, or above c if `is_above`.

    None unless c is positive and its square is well within the range of normal numbers.
    """
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
