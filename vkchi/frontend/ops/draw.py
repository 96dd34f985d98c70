"""Random numbers in kernels: `ti.random` and `ti.randn`, from ops that give 32 random bits each.

A float of `ti.random` is a multiple of 2^-24 (f32), 2^-53 (f64), 2^-11 (f16) or
2^-8 (bf16) in [0, 1).
"""

from __future__ import annotations

import math
from typing import Any

from vkchi.errors import KernelTypeError
from vkchi.frontend.calls.tables import CALLS, CallHandler
from vkchi.frontend.values.operands import constant, dtype_of
from vkchi.frontend.values.references import Context
from vkchi.ir.core import Value
from vkchi.lang import random
from vkchi.types import SCALARS, Scalar, bf16, f16, f32, f64, i32, u32, u64


def draw(cx: Context, dtype: Any = float) -> Value:
    """Return a uniform float in [0, 1), or for an integer type or bool, random bits.

    Raises KernelTypeError if `dtype` is not a scalar type.
    """
    t = dtype_of(cx, dtype)
    if not isinstance(t, Scalar):
        raise cx.fail(f"`random` gives numbers, not a {t}", kind=KernelTypeError)
    cx.seed()
    if t.kind == "f":
        return _draw_f64(cx) if t is f64 else _draw_float(cx, t)
    return _draw_integer(cx, t)


def _bits(cx: Context) -> Value:
    return cx.b.emit("random")


def _shifted(cx: Context, v: Value, amount: int) -> Value:
    return cx.b.emit("shr", v, constant(cx, amount, u32))


# float type -> its bits of precision
_PRECISION = {bf16: 8, f16: 11, f32: 24}


def _draw_float(cx: Context, t: Scalar) -> Value:
    kept = _PRECISION[t]
    # Below 2^31: signed conversion is fast on every device.
    bits = cx.b.emit("bitcast", _shifted(cx, _bits(cx), 32 - kept), type=i32)
    return cx.b.emit("mul", cx.b.emit("cast", bits, type=t), constant(cx, 2.0**-kept, t))


def _draw_f64(cx: Context) -> Value:
    b = cx.b
    high = b.emit("cast", _shifted(cx, _bits(cx), 5), type=f64)  # 27 bits
    low = b.emit("cast", _shifted(cx, _bits(cx), 6), type=f64)  # 26 bits
    whole = b.emit("add", b.emit("mul", high, constant(cx, 2.0**26, f64)), low)
    return b.emit("mul", whole, constant(cx, 2.0**-53, f64))


def _draw_integer(cx: Context, t: Scalar) -> Value:
    b = cx.b
    bits: Value = _bits(cx)
    if t.bits == 64:
        high = b.emit("shl", b.emit("cast", bits, type=u64), constant(cx, 32, u64))
        bits = b.emit("or", high, b.emit("cast", _bits(cx), type=u64))
    if t.kind == "b":
        return b.emit("ge", bits, constant(cx, 1 << 31, u32))
    if t.bits < 32:
        return b.emit("cast", _shifted(cx, bits, 32 - t.bits), type=t)
    return bits if t.kind == "u" else b.emit("bitcast", bits, type=SCALARS[f"i{t.bits}"])


def draw_normal(cx: Context, dt: Any = None) -> Value:
    """Return a float of the standard normal distribution, in `dt` or default_fp.

    Source: Box and Muller, 1958. Raises KernelTypeError if `dt` is not a float type.
    """
    t = dtype_of(cx, float if dt is None else dt)
    if t.kind != "f":
        raise cx.fail(f"`randn` gives floats, not {t}", kind=KernelTypeError)
    b = cx.b
    # 1 - u is in (0, 1], where log is finite; near 1, devices may round it to above 0.
    radius = b.emit("log", b.emit("sub", constant(cx, 1.0, t), draw(cx, t)))
    radius = b.emit("mul", radius, constant(cx, -2.0, t))
    radius = b.emit("sqrt", b.emit("max", radius, constant(cx, 0.0, t)))
    turns = b.emit("sub", draw(cx, t), constant(cx, 0.5, t))
    # 2 pi, rounded down: Vulkan specifies cos in [-pi, pi] only.
    turn = 6.283185 if t is f32 else 2.0 * math.pi
    return b.emit("mul", radius, b.emit("cos", b.emit("mul", turns, constant(cx, turn, t))))


CALLS[random.random] = CallHandler(draw)
CALLS[random.randn] = CallHandler(draw_normal)
