"""Random ops without a simple signature: conversions, and ops on tensors of other shapes.

A maker returns the op's result, or None if the program has no types for the op. `g` is the
Generator of tests/fuzz/programs.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.fuzz import guards
from vkchi.ir.core import Value
from vkchi.ir.ops import ELEMENTWISE
from vkchi.types import Scalar, Tensor, Type, i32, scalar_of, shape_of, u1, with_scalar, with_shape

Maker = Callable[[Any], "Value | None"]


def _tensor(g: Any, kind: str, ndim: int = 0) -> Tensor | None:
    """A random tensor type of the program that the profile permits for op `kind`, or None."""
    types = [t for t in g.types if isinstance(t, Tensor) and g.allows(kind, t)]
    types = [t for t in types if not ndim or len(t.shape) == ndim]
    return g.rng.choice(types) if types else None


def _select(g: Any) -> Value:
    t = g.rng.choice(g.types)
    cond_type = with_shape(u1, shape_of(t))
    a = g.value(u1)
    cond = g.emit("splat", a, type=cond_type) if isinstance(t, Tensor) else a
    if cond_type in g.scope and g.rng.random() < 0.7:
        cond = g.value(cond_type)
    return g.emit("select", cond, g.value(t), g.value(t))


def _cast(g: Any) -> Value:
    v = g.value(g.rng.choice(g.types))
    to = g.rng.choice([t for t in g.types if isinstance(t, Scalar)])
    return g.emit("cast", guards.castable(g, v, to), type=with_scalar(v.type, to))


def _bitcast(g: Any) -> Value | None:
    old = g.rng.choice(g.types)
    kinds = "iuf" if g.profile.has_float_bits else "iu"
    elem = scalar_of(old)
    fitting = [t for t in g.profile.scalars if t.bits == elem.bits and t.kind in kinds]
    if elem.kind not in kinds or not fitting:
        return None
    v = g.bound(g.value(old))  # the bits of a NaN are open
    to = with_scalar(old, g.rng.choice(fitting))
    return g.tame("bitcast", g.emit("bitcast", v, type=to))


def _splat(g: Any) -> Value | None:
    t = _tensor(g, "splat")
    return t and g.emit("splat", g.value(t.elem), type=t)


def _pack(g: Any) -> Value | None:
    t = _tensor(g, "pack")
    return t and g.emit("pack", *[g.value(t.elem) for _ in range(t.size)], type=t)


def _component(g: Any, t: Tensor) -> int:
    return g.rng.randrange(t.size)


def _extract(g: Any) -> Value | None:
    t = _tensor(g, "extract")
    return t and g.emit("extract", g.value(t), attr=_component(g, t))


def _place(g: Any, t: Tensor) -> Value:
    """A computed component index, perhaps out of bounds."""
    k = g.value(i32)
    return guards.limit(g, k, 0, t.size - 1) if g.rng.random() < 0.6 else k


def _extract_at(g: Any) -> Value | None:
    t = _tensor(g, "extract_at")
    return t and g.emit("extract_at", g.value(t), _place(g, t))


def _insert(g: Any) -> Value | None:
    t = _tensor(g, "insert")
    return t and g.emit("insert", g.value(t), g.value(t.elem), attr=_component(g, t))


def _insert_at(g: Any) -> Value | None:
    t = _tensor(g, "insert_at")
    return t and g.emit("insert_at", g.value(t), g.value(t.elem), _place(g, t))


def _transpose(g: Any) -> Value | None:
    t = _tensor(g, "transpose", 2)
    return t and g.emit("transpose", g.value(t))


def _outer(g: Any) -> Value | None:
    t = _tensor(g, "outer", 1)
    if t is None or t.elem is u1:
        return None
    return g.tame("outer", g.emit("outer", g.value(t), g.value(t)))


def _matmul(g: Any) -> Value | None:
    t = _tensor(g, "matmul", 2)
    if t is None or t.elem is u1:
        return None
    right = g.emit("transpose", g.value(t))
    if g.rng.random() < 0.5:
        ends: Type = Tensor.of(t.elem, (t.m,))
        right = g.value(ends)
    return g.tame("matmul", g.emit("matmul", g.value(t), right))


SPECIAL: dict[str, Maker] = {
    "select": _select, "cast": _cast, "bitcast": _bitcast, "splat": _splat, "pack": _pack,
    "extract": _extract, "extract_at": _extract_at, "insert": _insert, "insert_at": _insert_at,
    "transpose": _transpose, "outer": _outer, "matmul": _matmul,
}  # fmt: skip
COMMON = ("add", "sub", "mul", "select", "lt", "eq", "and", "cast", "extract", "pack")
COMPUTED = (*sorted(ELEMENTWISE | set(SPECIAL) | {"sum"}), *COMMON, *COMMON)
