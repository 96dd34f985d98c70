"""Debug-mode checks: indices, integer division by zero, negative exponents, integer overflow.

A `guard_*` function emits a test with a failure report, a `watch_*` function one with a warning.

    guard_indices(cx, array, [i, j])        # before `elem`
    guard_division(cx, "mod", x, y)         # before the op
    watch_overflow(cx, "add", x, y, sum)    # after the op
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkchi.frontend.values.kinds import describe
from vkchi.frontend.values.references import Context, Indexed
from vkchi.frontend.values.texts import Part, ReplacementField
from vkchi.ir.core import Value, constant_array, constant_int, is_constant, numeric_type_of
from vkchi.ir.ops import DIVISIONS, REMAINDERS
from vkchi.types import (
    Tensor,
    scalar_named,
    scalar_of,
    with_scalar,
)


def all_of(cx: Context, truths: Sequence[Value]) -> Value | None:
    """Return the conjunction of conditions over all tensor components; None if there are none."""
    total: Value | None = None
    for v in truths:
        n = getattr(v.type, "size", 0)
        parts = [cx.b.emit("extract", v, attr=k) for k in range(n)] if n else [v]
        for part in parts:
            total = part if total is None else cx.b.emit("and", total, part)
    return total


# --- indices -------------------------------------------------------------------------------------


def guard_indices(cx: Context, array: Indexed, indices: Sequence[Value]) -> None:
    """Emit a test that fails for an index out of bounds; none if all are constants in bounds."""
    extents: Sequence[Value | int] = array.shape(cx)
    rows = zip(indices, extents, array.origin, strict=True)
    ok = all_of(cx, [v for row in rows if (v := is_inside(cx, *row)) is not None])
    if ok is None:
        return
    name = array.name
    parts: list[Part] = [f"index out of bounds: accessing `{name}` of size "]
    parts += tuple_text(extents)
    parts += [f" and offset ({', '.join(map(str, array.origin))})" if any(array.origin) else ""]
    parts += [" with indices ", *tuple_text(indices)]
    cx.reports.emit_unless(cx, ok, "bounds", parts)


def tuple_text(items: Sequence[Value | int]) -> list[Part]:
    parts: list[Part] = []
    for item in items:
        parts += [
            ", " if parts else "",
            ReplacementField(item) if isinstance(item, Value) else str(item),
        ]
    return ["(", *parts, ")"]


def is_inside(cx: Context, k: Value, extent: Value | int, origin: int) -> Value | None:
    """Emit the test that an index is in bounds on its axis, a u1; None if constants prove it."""
    t = scalar_of(k.type)
    number = constant_int(k)
    if number is not None and isinstance(extent, int) and origin <= number < origin + extent:
        return None
    unsigned = scalar_named(f"u{t.bits}")
    moved = cx.b.emit("sub", k, cx.b.const(origin, t)) if origin else k
    place = moved if t is unsigned else cx.b.emit("bitcast", moved, type=unsigned)
    if isinstance(extent, int):
        return cx.b.emit("lt", place, cx.b.const(extent, unsigned))
    bits = scalar_of(extent.type).bits
    limit: Value = cx.b.emit("bitcast", extent, type=scalar_named(f"u{bits}"))
    if bits < t.bits:
        limit = cx.b.emit("cast", limit, type=unsigned)
    elif bits > t.bits:  # a negative index is beyond all extents
        place = cx.b.emit("cast", place, type=limit.type)
    return cx.b.emit("lt", place, limit)


def guard_component(cx: Context, k: Value, extent: int, t: Tensor) -> None:
    """Emit a test that fails for a component index out of bounds; none for a constant in bounds."""
    ok = is_inside(cx, k, extent, 0)
    if ok is not None:
        parts: list[Part] = ["index ", ReplacementField(k), f" is out of bounds of a {describe(t)}"]
        cx.reports.emit_unless(cx, ok, "bounds", parts)


# --- arithmetic ----------------------------------------------------------------------------------


def guard_division(cx: Context, kind: str, x: Value, y: Value) -> None:
    """Emit a test that fails for an integer division by zero; none for a nonzero constant."""
    t = numeric_type_of(y)
    if is_constant(y) and constant_array(y).all():
        return
    ok = all_of(cx, [cx.b.emit("ne", y, cx.b.const(0, t))])
    word = "modulo" if kind in REMAINDERS else "division"
    assert ok is not None
    parts: list[Part] = [
        f"integer {word} by zero: ",
        ReplacementField(x),
        " by ",
        ReplacementField(y),
    ]
    cx.reports.emit_unless(cx, ok, "division", parts)


def guard_exponent(cx: Context, x: Value, y: Value) -> None:
    """Emit a test that fails for a negative power of an integer."""
    ok = all_of(cx, [cx.b.emit("ge", y, zero_like(cx, y))])
    assert ok is not None
    parts: list[Part] = [
        "integer to a negative power: ",
        ReplacementField(x),
        " to the power ",
        ReplacementField(y),
    ]
    cx.reports.emit_unless(cx, ok, "assertion", parts)


def watch_overflow(cx: Context, kind: str, x: Value, y: Value, result: Value) -> None:
    """Emit a test that warns if an integer op overflowed; `result` is its result."""
    fits, word = OVERFLOWS[kind]
    ok = all_of(cx, [fits(cx, x, y, result)])
    assert ok is not None
    parts: list[Part] = [f"{word} overflow detected in {scalar_of(x.type)}: ", ReplacementField(x)]
    parts.append(f" {SIGNS[kind]} ")
    cx.reports.emit_unless(
        cx, ok, "overflow", [*parts, ReplacementField(y), " gives ", ReplacementField(result)]
    )


def watch_atomic(cx: Context, op: str, old: Value, v: Value) -> None:
    """Emit a test that warns if an atomic integer `+=` or `-=` overflowed.

    `old` is the value before it.
    """
    kind = {"+": "add", "-": "sub"}.get(op)
    if kind is not None and scalar_of(v.type).kind in "iu":
        watch_overflow(cx, kind, old, v, cx.b.emit(kind, old, v))


def _fits_sum(cx: Context, x: Value, y: Value, r: Value) -> Value:
    """Emit the test that `x + y` did not overflow.

    Signed: the result has the sign of an operand. Unsigned: it is not less than x.
    """
    b = cx.b
    if scalar_of(x.type).kind == "u":
        return b.emit("ge", r, x)
    changed = b.emit("and", b.emit("xor", x, r), b.emit("xor", y, r))
    return b.emit("ge", changed, zero_like(cx, r))


def _fits_difference(cx: Context, x: Value, y: Value, r: Value) -> Value:
    """Emit the test that `x - y` did not overflow.

    Signed: the operands have one sign, or the result has the sign of x. Unsigned: x is not less
    than y.
    """
    b = cx.b
    if scalar_of(x.type).kind == "u":
        return b.emit("ge", x, y)
    changed = b.emit("and", b.emit("xor", x, y), b.emit("xor", x, r))
    return b.emit("ge", changed, zero_like(cx, r))


def _fits_product(cx: Context, x: Value, y: Value, r: Value) -> Value:
    """Emit the test that `x * y` did not overflow: x is 0, or the result divided by x is y.

    A signed x of -1 is tested separately, because the least integer divided by -1 overflows.
    """
    b, t = cx.b, numeric_type_of(x)
    is_zero = b.emit("eq", x, zero_like(cx, x))
    one = b.const(1, t)
    divisor: Value = b.emit("select", is_zero, one, x)
    if scalar_of(t).kind == "i":  # (least value) // -1 overflows
        minus = b.emit("eq", x, b.const(-1, t))
        divisor = b.emit("select", minus, one, divisor)
        quotient = b.emit("select", minus, b.emit("neg", r), b.emit("truncdiv", r, divisor))
        least = b.emit("eq", y, b.const(-1 << (scalar_of(t).bits - 1), t))
        bad = b.emit("and", minus, least)
        same = b.emit("and", b.emit("eq", quotient, y), b.emit("not", bad))
        return b.emit("or", is_zero, same)
    return b.emit("or", is_zero, b.emit("eq", b.emit("truncdiv", r, divisor), y))


def _fits_quotient(cx: Context, x: Value, y: Value, r: Value) -> Value:
    """Emit the test that this is not the least integer divided by -1: its quotient is undefined."""
    t = numeric_type_of(x)
    least = -1 << (scalar_of(t).bits - 1)
    is_least = cx.b.emit("eq", x, cx.b.const(least, t))
    is_minus = cx.b.emit("eq", y, cx.b.const(-1, t))
    return cx.b.emit("not", cx.b.emit("and", is_least, is_minus))


def _fits_shift(cx: Context, x: Value, y: Value, r: Value) -> Value:
    """Emit the test that `x << y` lost no bits: shifted back it is x, and y is below the width."""
    b, t = cx.b, y.type
    unsigned = with_scalar(t, scalar_named(f"u{scalar_of(t).bits}"))
    amount: Value = y if unsigned is t else b.emit("bitcast", y, type=unsigned)
    below = b.emit("lt", amount, b.const(scalar_of(t).bits, unsigned))
    return b.emit("and", below, b.emit("eq", b.emit("shr", r, y), x))


def zero_like(cx: Context, v: Value) -> Value:
    return cx.b.const(0, numeric_type_of(v))


Fits = Callable[[Context, Value, Value, Value], Value]
OVERFLOWS: dict[str, tuple[Fits, str]] = {
    "add": (_fits_sum, "Addition"),
    "sub": (_fits_difference, "Subtraction"),
    "mul": (_fits_product, "Multiplication"),
    "shl": (_fits_shift, "Shift left"),
    **dict.fromkeys(DIVISIONS, (_fits_quotient, "Division")),
}
SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "shl": "<<",
    "floordiv": "//", "mod": "%", "truncdiv": "divided by", "rem": "modulo",
}  # fmt: skip


def emit_checked(cx: Context, kind: str, x: Value, y: Value) -> Value:
    is_integer = scalar_of(x.type).kind in "iu"
    if is_integer and kind in DIVISIONS:
        guard_division(cx, kind, x, y)
    result = cx.b.emit(kind, x, y)
    if is_integer and kind in OVERFLOWS and may_overflow(kind, x, y):
        watch_overflow(cx, kind, x, y, result)
    return result


def may_overflow(kind: str, x: Value, y: Value) -> bool:
    """True if an op needs an overflow check.

    Divisions need one if they are signed, and the divisor is not a constant without -1. Other ops
    need one unless both operands are constants.
    """
    if kind not in DIVISIONS:
        return not (is_constant(x) and is_constant(y))
    is_safe = is_constant(y) and bool((constant_array(y) != -1).all())
    return scalar_of(x.type).kind == "i" and not is_safe


def negate_checked(cx: Context, v: Value) -> Value:
    """Emit `-v`, with a debug-mode warning for the least value of a signed type."""
    if scalar_of(v.type).kind != "i":
        return cx.b.emit("neg", v)
    result = cx.b.emit("neg", v)
    watch_overflow(cx, "sub", zero_like(cx, v), v, result)
    return result
