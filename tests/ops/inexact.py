"""A device that computes as inexactly as Vulkan allows, for the reference interpreter.

Operations with a row in precision.py are off by the whole allowed error, down or up, or by a part
of it that depends on the operands. Results that the specification leaves undefined are NaN. In mode
"truncated", sums, products and conversions of f32 and f16 are rounded toward zero. In mode
"contracted", products of f32 and f16 that are added are not rounded.

    run(fn, args, compute=Inexact("down"))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.ops.precision import ROWS, Format
from vkchi.ir.interp import checked_value, evaluate
from vkchi.types import Type, f64, scalar_of, with_scalar

TRUNCATED = ("add", "sub", "mul", "cast")


def scatter(args: Sequence[Any]) -> Any:
    """A number from -1 to 1, a hash of the operands' bits."""
    mixed: Any = np.uint64(0)
    for a in args:
        bits = np.asarray(a, np.float64).view(np.uint64)
        mixed = (mixed ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0


MODES: dict[str, Callable[[Sequence[Any]], Any]] = {
    "down": lambda args: -1.0,
    "up": lambda args: 1.0,
    "scattered": scatter,
    "truncated": lambda args: -1.0,
    "contracted": scatter,
}


class Inexact:
    """Replacement for `evaluate` in the interpreter; `mode` is a key of MODES.

    `used` collects the operations with a row in precision.py.
    """

    def __init__(self, mode: str) -> None:
        self.mode, self.choose = mode, MODES[mode]
        self.used: set[str] = set()
        self.products: list[tuple[Any, Any]] = []  # results of f32 and f16, and their operands

    def __call__(self, kind: str, args: Sequence[Any], attr: Any, t: Type) -> Any:
        exact = evaluate(kind, args, attr, t)
        if scalar_of(t).kind != "f":
            return exact
        if kind in ROWS:
            self.used.add(kind)
            return checked_value(self.move(kind, args, attr, t, exact), t, kind)
        if scalar_of(t) is f64:
            return exact
        if self.mode == "truncated" and kind in TRUNCATED:
            return checked_value(self.cut(kind, args, attr, t, exact), t, kind)
        if self.mode == "contracted" and kind in ("mul", "neg", "add", "sub"):
            return checked_value(self.fuse(kind, args, attr, t, exact), t, kind)
        return exact

    def move(self, kind: str, args: Sequence[Any], attr: Any, t: Type, exact: Any) -> Any:
        """The result moved by the share of the allowed error that the mode chooses, never beyond
        it.

        Zero and non-finite operands and results are not moved.
        """
        elem = scalar_of(t)
        wide = [np.asarray(a, np.float64) for a in args]
        result = evaluate(kind, wide, attr, with_scalar(t, f64))
        allowed = ROWS[kind](Format(elem), *wide, result)
        moved = np.asarray(result + self.choose(wide) * allowed).astype(elem.dtype)
        for _ in range(2):
            is_over = np.abs(moved.astype(np.float64) - result) > allowed
            moved = np.where(is_over, np.nextafter(moved, exact), moved)
        moved = np.where(np.isfinite(allowed), moved, elem.dtype.type(np.nan))
        is_special = ~np.isfinite(result) | (result == 0)
        for a in wide:
            is_special = is_special | ~np.isfinite(a) | (a == 0)
        return np.where(is_special, exact, moved).astype(elem.dtype)

    def cut(self, kind: str, args: Sequence[Any], attr: Any, t: Type, exact: Any) -> Any:
        """The result rounded toward zero."""
        wide = evaluate(kind, [np.asarray(a, np.float64) for a in args], attr, with_scalar(t, f64))
        is_over = np.abs(exact.astype(np.float64)) > np.abs(wide)
        return np.where(
            is_over & np.isfinite(wide), np.nextafter(exact, np.zeros_like(exact)), exact
        )

    def fuse(self, kind: str, args: Sequence[Any], attr: Any, t: Type, exact: Any) -> Any:
        """The result computed from products before their rounding; remembers the last nine
        products."""
        wide = [self.whole(a) for a in args]
        result = np.asarray(evaluate(kind, wide, attr, with_scalar(t, f64)))
        if kind not in ("mul", "neg"):
            return result.astype(scalar_of(t).dtype)
        self.products = [*self.products[-8:], (exact, result)]
        return exact

    def whole(self, a: Any) -> Any:
        """A value in double precision; of a remembered product, the value before rounding."""
        found = [result for product, result in self.products if product is a]
        return found[0] if found else np.asarray(a, np.float64)
