"""Expansions of float functions and bit counts for `legalize`.

They apply the formulas of f64 (`f64_math`), f32 (`f32_math`, `powers`) and quotients (`quotient`)
to the arguments of ops.

    expand_f64(b, op, args)      # atan2 of f64
"""

from __future__ import annotations

from collections.abc import Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.core import Op, Value, constant_array
from vkchi.ir.num import Num
from vkchi.opt.math import f32_math, f64_math, powers, quotient
from vkchi.opt.math.formula import where
from vkchi.types import SCALARS, bf16, f32, f64, scalar_of, u32, u64, with_scalar

Args = tuple[Value, ...]


def expand_f64(b: Builder, op: Op, args: Args) -> Value:
    return f64_math.FUNCTIONS[op.kind](*[Num(b, v) for v in args]).v


def in_f32(kind: str, args: Sequence[Num]) -> Num:
    """Evaluate an f32 function: by a formula if there is one, else by the device's instruction."""
    function = f32_math.FUNCTIONS.get(kind)
    return function(*args) if function is not None else args[0].op(kind, *args[1:])


def expand_f32(b: Builder, op: Op, args: Args) -> Value:
    """Expand an f32 function by `in_f32`."""
    return in_f32(op.kind, [Num(b, v) for v in args]).v


def expand_power(b: Builder, op: Op, args: Args) -> Value:
    """Expand `pow` of f32 with f64 intermediates."""
    return powers.power(Num(b, args[0]), Num(b, args[1]), f64).v


def expand_quotient(b: Builder, op: Op, args: Args) -> Value:
    return quotient.FUNCTIONS[op.kind](*[Num(b, v) for v in args]).v


def expand_f16(b: Builder, op: Op, args: Args) -> Value:
    wide = [Num(b, v).cast(f32) for v in args]
    return in_f32(op.kind, wide).cast(scalar_of(args[0].type)).v


def expand_bf16(b: Builder, op: Op, args: Args) -> Value:
    """Expand a function of bf16 by that of f32; a result of bf16 is rounded once."""
    wide = [widen(b, v) if scalar_of(v.type) is bf16 else Num(b, v) for v in args]
    of_quotient = quotient.FUNCTIONS.get(op.kind)
    found = in_f32(op.kind, wide) if of_quotient is None else of_quotient(*wide)
    return found.cast(bf16).v if scalar_of(op.type) is bf16 else found.v


def expand_quotient_f16(b: Builder, op: Op, args: Args) -> Value:
    """Like `expand_quotient`, for f16 by way of f32, which holds all intermediate results."""
    wide = [widen(b, v) for v in args]
    return quotient.FUNCTIONS[op.kind](*wide).cast(scalar_of(args[0].type)).v


def widen(b: Builder, v: Value) -> Num:
    if isinstance(v, Op) and v.kind == "const":
        return Num(b, b.const(constant_array(v), with_scalar(v.type, f32)))
    return Num(b, v).cast(f32)


def count_wide(b: Builder, op: Op, args: Args) -> Value:
    """Expand `popcnt` or `clz` of a 64-bit integer to those of its 32-bit halves."""
    t = scalar_of(args[0].type)
    x = Num(b, args[0]).bits(u64)
    low, high = x.cast(u32), (x >> 32).cast(u32)
    if op.kind == "popcnt":
        return (low.op("popcnt") + high.op("popcnt")).cast(t).v
    return where(high.equals(0), low.op("clz") + 32, high.op("clz")).cast(t).v


def count_narrow(b: Builder, op: Op, args: Args) -> Value:
    """Expand `popcnt` or `clz` of an 8- or 16-bit integer to that of a 32-bit one."""
    t = scalar_of(args[0].type)
    x = Num(b, args[0]).bits(SCALARS[f"u{t.bits}"]).cast(u32)
    count = x.op(op.kind)
    return (count - (32 - t.bits) if op.kind == "clz" else count).cast(t).v
