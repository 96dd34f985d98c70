"""Loop bounds as values: integers of any type become i32 or i64.

A run-time bound beyond the range of that type is clamped to it. The host rejects a launch with such
a bound, if it can compute the bound and the loop always runs. In debug mode the kernel reports it.
A run-time step of 0 is rejected by the host or reported by the kernel in every mode.

    begin = materialise(cx, as_bound(cx, x), i32)
"""

from __future__ import annotations

import math
from typing import Any

from vkchi.errors import KernelValueError
from vkchi.frontend.context import LaunchCondition, Lowering
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.ops.conversions import convert, note_constant
from vkchi.frontend.state.pending import ConversionTarget
from vkchi.frontend.values.kinds import name_of
from vkchi.frontend.values.operands import weak
from vkchi.frontend.values.texts import Part, ReplacementField
from vkchi.ir.core import Op, Param, Value
from vkchi.ir.ops import FIXED, Trait, kinds_with
from vkchi.types import SCALARS, Scalar, i32, i64, scalar_of
from vkchi.types.core import INTEGERS

Bound = int | Value
INT32 = range(-(1 << 31), 1 << 31)
INT64 = range(-(1 << 63), 1 << 63)
INDICES = {i32: INT32, i64: INT64}
GIVEN, ROOTS = kinds_with(Trait.COUNTS), FIXED
BOUND = ConversionTarget("a bound of a loop", "write an integer: `//` for a quotient, or int(...)")
MOST_GIVEN = 48  # values; the host's limit is 100 ops, at most two for each value


def as_bound(cx: Lowering, x: Any, want: Scalar | None = None) -> Bound:
    """Return a bound as an int, or a value of i32 or i64 (or `want`); floats are truncated.

    A truncated float may add a caution. Raises KernelValueError for constants beyond 64 bits, inf
    and nan; KernelTypeError for other objects than scalars.
    """
    known = weak(x)
    if known is not None and not known.shape:
        number = known.numbers
        if known.kind == "f":
            if not math.isfinite(number):
                raise cx.fail(f"{number} cannot be a bound of a loop", kind=KernelValueError)
            note_constant(cx, number, "f", i64, BOUND)
        return static_bound(cx, int(number))
    if isinstance(x, Value) and x.type.kind:
        is_wide = scalar_of(x.type).bits == 64 and x.type.kind != "f"
        t = want or (i64 if is_wide else i32)
        if x.type.kind == "f":
            return convert(cx, x, t, BOUND)
        return narrowed(cx, x, t)
    raise cx.fail("bounds of a loop must be integers", label=name_of(x))


def static_bound(cx: Lowering, n: int) -> int:
    """Return a constant bound. Raises KernelValueError if it does not fit i64."""
    if n not in INT64:
        raise cx.fail(f"{n} as a bound of a loop is beyond 64 bits", kind=KernelValueError)
    return n


def as_step(cx: Lowering, x: Any) -> Bound:
    """Return a step: an int, or a value of i32, i64, u32 or u64.

    Raises KernelValueError for the constant 0. For a run-time 0, the launch fails if the host can
    compute the step; otherwise the kernel reports it.
    """
    if isinstance(x, Value) and x.type.kind == "u":
        step: Bound = operator_lowering.cast(cx, x, SCALARS[f"u{max(32, scalar_of(x.type).bits)}"])
    else:
        step = as_bound(cx, x)
    if isinstance(step, int):
        return check_step(cx, step)
    is_seen = cx.is_top and is_given(step)
    moves = None if is_seen else cx.b.emit("ne", step, cx.b.const(0, scalar_of(step.type)))
    demand(cx, step, "n != 0", moves, "the step of a range cannot be 0", is_seen=cx.is_top)
    return step


def check_step(cx: Lowering, step: int) -> int:
    if step == 0:
        raise cx.fail("the step of a range cannot be 0", kind=KernelValueError)
    return step


def narrowed(cx: Lowering, v: Value, t: Scalar) -> Value:
    """Return an integer or bool as type t (i32 or i64), clamped to its range.

    If the type of v exceeds that range, the range becomes a condition (`demand`).
    """
    old = scalar_of(v.type)
    if old.kind not in "iu" or old.bits < t.bits + (old.kind == "i"):
        return operator_lowering.cast(cx, v, t)
    held = INDICES[t]
    most = cx.b.const(held[-1], old)
    fits = cx.b.emit("le", v, most) if cx.options.debug else None
    near: Value = cx.b.emit("min", v, most)
    test = f"n <= {held[-1]}"
    if old.kind == "i":
        least = cx.b.const(held[0], old)
        fits = cx.b.emit("and", fits, cx.b.emit("ge", v, least)) if fits is not None else None
        near = cx.b.emit("max", near, least)
        test = f"{held[0]} <= n <= {held[-1]}"
    sentence = f"this bound of a loop is beyond its indices, which are {t}"
    demand(cx, v, test, fits, sentence, is_seen=cx.is_certain)
    return operator_lowering.cast(cx, near, t)


def demand(
    cx: Lowering, v: Value, test: str, ok: Value | None, sentence: str, *, is_seen: bool
) -> None:
    """Record a condition on a value.

    With `is_seen`, the host tests it before launches, if it can compute the value. With `ok`, a u1,
    the kernel reports a failure where it is false.
    """
    if is_seen:
        cx.demands.append(LaunchCondition(v, test, sentence, cx.span))
    if ok is not None:
        parts: list[Part] = [sentence, ": it is ", ReplacementField(v)]
        cx.reports.emit_unless(cx, ok, "range", parts)


def materialise(cx: Lowering, bound: Bound, t: Scalar) -> Value:
    if isinstance(bound, int):
        return cx.b.const(bound, t)
    return bound if bound.type is t else operator_lowering.cast(cx, bound, t)


def same_type(cx: Lowering, begin: Bound, end: Bound) -> tuple[Bound, Bound]:
    """Convert both bounds to values of i64 if one is a value of i64; else return them unchanged."""
    if any(isinstance(b, Value) and b.type is i64 for b in (begin, end)):
        return materialise(cx, begin, i64), materialise(cx, end, i64)
    return begin, end


def index_type(*bounds: Bound) -> Scalar:
    """Return the type that counts between these bounds: i32 if it suffices, else i64."""
    return i64 if any(map(is_wide, bounds)) else i32


def is_wide(bound: Bound) -> bool:
    """True if a constant bound does not fit i32, or a value has 64 bits."""
    if isinstance(bound, int):
        return bound not in INT32
    return scalar_of(bound.type).bits == 64


def unsigned(t: Scalar) -> Scalar:
    return SCALARS[f"u{t.bits}"]


def is_given(v: Value) -> bool:
    """True if it is proved that the host can compute an integer from a call's arguments.

    The host can then check it. False if more than MOST_GIVEN values are involved.
    """
    todo, count = [v], 0
    for x in todo:  # grows in the loop
        count += 1
        if x.type.kind not in INTEGERS or count > MOST_GIVEN:
            return False
        if isinstance(x, Param):
            continue
        if not isinstance(x, Op):
            return False
        if x.kind in GIVEN:
            todo += x.args
        elif x.kind not in ROOTS and not (x.kind == "extract" and isinstance(x.args[0], Param)):
            return False
    return True
