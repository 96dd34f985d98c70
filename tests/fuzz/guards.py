"""Guards that keep random programs to behaviour that the op table defines, and random numbers.

Guards replace arguments of ops, limit floats, and choose atomics whose result does not depend on
the order. `g` is the Generator of tests/fuzz/programs.py.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from vkchi.ir.core import Value
from vkchi.types import Scalar, Tensor, Type, scalar_of, shape_of, u1, with_scalar

FLOAT_BOUND = 1000.0
GROWING = frozenset(
    ["add", "sub", "mul", "div", "exp", "exp2", "pow", "sinh", "cosh", "tan", "rsqrt", "mod"]
    + ["matmul", "outer", "sum", "bitcast"]
)
DIVIDING = ("floordiv", "mod", "truncdiv", "rem", "div")


# --- numbers ---------------------------------------------------------------------------------


def random_number(rng: random.Random, t: Scalar) -> Any:
    """A constant of type t: usually small, sometimes an extreme integer."""
    if t is u1:
        return rng.random() < 0.5
    if t.kind == "f":
        if rng.random() < 0.2:
            return rng.choice((0.0, -0.0, 1.0, -1.0, 2.0, 0.1))
        return rng.randint(-32, 32) / 4
    info = np.iinfo(t.dtype)
    if rng.random() < 0.1:
        return rng.choice((info.min, info.max, info.max // 3))
    return max(rng.randint(-4, 12), info.min)


def random_numbers(data: np.random.Generator, t: Any, extents: tuple[int, ...]) -> Any:
    """An argument: an array of `extents` elements of type t, without zeros of floats; a number for
    ()."""
    elem, shape = scalar_of(t), extents + shape_of(t)
    if elem is u1:
        return data.integers(0, 2, shape).astype(np.bool_)[()]
    if elem.kind == "f":
        return (data.integers(1, 64, shape) / 4 - 8.125).astype(elem.dtype)[()]
    low = -20 if elem.kind == "i" else 0
    return data.integers(low, 100, shape).astype(elem.dtype)[()]


# --- arguments -------------------------------------------------------------------------------


def limit(g: Any, v: Value, low: float, high: float) -> Value:
    """Emit `max(min(v, high), low)`, which also replaces NaN. Bounds of floats must not be 0."""
    v = g.emit("min", v, g.number(high, v.type))
    return g.emit("max", v, g.number(low, v.type))


def clamp(g: Any, v: Value) -> Value:
    """The float `v` limited to ±FLOAT_BOUND; NaN becomes a bound."""
    return limit(g, v, -FLOAT_BOUND, FLOAT_BOUND)


def guard(g: Any, kind: str, t: Type, args: list[Value]) -> list[Value]:
    """Arguments for op `kind` on type t, with those replaced for which the result is undefined.

    Divisors become other values; the second operand of `min` and `max` of floats becomes a non-zero
    constant; operands of `pow` are limited.
    """
    is_float = scalar_of(t).kind == "f"
    if kind in DIVIDING:
        return [args[0], divisor(g, t)]
    if kind in ("min", "max") and is_float:
        return [args[0], not_zero(g, t)]
    if kind == "pow":
        base = g.emit("max", g.emit("abs", args[0]), g.number(0.25, t))
        return [limit(g, base, 0.25, 100), limit(g, args[1], -4.5, 4.5)]
    return args


def divisor(g: Any, t: Type) -> Value:
    """A value that is not 0, and for integers not -1."""
    if g.rng.random() < 0.5:
        return not_zero(g, t)
    if scalar_of(t).kind == "f":
        return g.emit("add", g.emit("abs", clamp(g, g.value(t))), g.number(0.5, t))
    low = g.emit("and", g.value(t), g.number(7, t))
    return g.emit("add", low, g.number(1, t))


def not_zero(g: Any, t: Type) -> Value:
    choices = [1, 2, 3, 4, 7, 8, 16, 100]
    choices += [-2, -3, -8] if scalar_of(t).kind != "u" else []
    choices += [0.5, -0.25, 1.5, 10.25] if scalar_of(t).kind == "f" else []
    return g.number(g.rng.choice(choices), t)


def castable(g: Any, v: Value, to: Scalar) -> Value:
    """`v`, limited to the range of the integer type `to` if `v` is a float and `to` an integer."""
    if scalar_of(v.type).kind != "f" or to.kind not in "iu":
        return v
    return limit(g, v, 0.5 if to.kind == "u" else -100.5, 100.5)


# --- atomics ---------------------------------------------------------------------------------


def exact_atomics(t: Any) -> list[str]:
    """Atomic ops on t that leave the same memory in any order; a frequent one is listed twice."""
    elem = scalar_of(t)
    if elem.kind == "f":
        return ["atomic_min", "atomic_max"]
    names = ("add", "min", "max", "add", "mul", "and", "or", "xor")
    return [] if elem is u1 else [f"atomic_{name}" for name in names]


def random_atomic(rng: random.Random, t: Any) -> str | None:
    """One of `exact_atomics(t)` or `atomic_exchange`; None for u1."""
    kinds = exact_atomics(t)
    return rng.choice([*kinds, "atomic_exchange"]) if kinds else None


def exact_operand(g: Any, kind: str, t: Any) -> Value:
    """An operand for an atomic: any visible integer; for floats a whole number from 1 to 16."""
    if scalar_of(t).kind != "f":
        return g.value(t)
    whole = next(u for u in g.types if scalar_of(u).kind in "iu")
    low = g.emit("and", g.value(whole), g.number(15, whole))
    small = g.emit("cast", low, type=with_scalar(whole, scalar_of(t)))
    small = g.emit("add", small, g.number(1, small.type))
    return g.emit("splat", small, type=t) if isinstance(t, Tensor) else small
