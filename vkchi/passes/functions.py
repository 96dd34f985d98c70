"""Functions of floats, and counts of bits, in arithmetic: stand-ins of `legalize`.

Owns: how an op is handed to the modules of formulas: of f64 (`f64_math`), of f32 (`f32_math`,
`powers`), quotients (`quotient`). Must not know: which devices need them.

    expand_f64(b, op, args)      # atan2 of f64
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkchi.ir.builder import Builder
from vkchi.ir.core import Op, Value, constant_array
from vkchi.ir.num import Num
from vkchi.passes import f32_math, f64_math, powers, quotient
from vkchi.passes.formula import where
from vkchi.types import SCALARS, f32, f64, scalar_of, u32, u64, with_scalar

Args = tuple[Value, ...]


def expand_f64(b: Builder, op: Op, args: Args) -> Value:
    """A function of f64 from arithmetic."""
    return f64_math.FUNCTIONS[op.kind](*[Num(b, v) for v in args]).v


POWERS: dict[str, Callable[..., Num]] = {
    "pow": lambda x, y: powers.power(x, y, f32),
    "exp2": powers.exp2,
    "log2": powers.log2,
}


def in_f32(kind: str, args: Sequence[Num]) -> Num:
    """A function of f32: from arithmetic where the device's is not good enough."""
    function = f32_math.FUNCTIONS.get(kind) or POWERS.get(kind)
    return function(*args) if function is not None else args[0].op(kind, *args[1:])


def expand_f32(b: Builder, op: Op, args: Args) -> Value:
    """A function of f32 from arithmetic, more precise than devices need to be."""
    return in_f32(op.kind, [Num(b, v) for v in args]).v


def expand_power(b: Builder, op: Op, args: Args) -> Value:
    """A power of f32, where the device has f64."""
    return powers.power(Num(b, args[0]), Num(b, args[1]), f64).v


def expand_quotient(b: Builder, op: Op, args: Args) -> Value:
    """A whole quotient or remainder of floats."""
    return quotient.FUNCTIONS[op.kind](*[Num(b, v) for v in args]).v


def expand_f16(b: Builder, op: Op, args: Args) -> Value:
    """A function of f16 by that of f32, whatever that is."""
    wide = [Num(b, v).cast(f32) for v in args]
    return in_f32(op.kind, wide).cast(scalar_of(args[0].type)).v


def expand_quotient_f16(b: Builder, op: Op, args: Args) -> Value:
    """The same of f16 by way of f32, which holds what comes of it."""
    wide = [widen(b, v) for v in args]
    return quotient.FUNCTIONS[op.kind](*wide).cast(scalar_of(args[0].type)).v


def widen(b: Builder, v: Value) -> Num:
    """A float as f32, a constant as a constant."""
    if isinstance(v, Op) and v.kind == "const":
        return Num(b, b.const(constant_array(v), with_scalar(v.type, f32)))
    return Num(b, v).cast(f32)


def count_wide(b: Builder, op: Op, args: Args) -> Value:
    """Bits of a 64-bit integer, counted in its halves."""
    t = scalar_of(args[0].type)
    x = Num(b, args[0]).bits(u64)
    low, high = x.cast(u32), (x >> 32).cast(u32)
    if op.kind == "popcnt":
        return (low.op("popcnt") + high.op("popcnt")).cast(t).v
    return where(high.equals(0), low.op("clz") + 32, high.op("clz")).cast(t).v


def count_narrow(b: Builder, op: Op, args: Args) -> Value:
    """Bits of an 8- or 16-bit integer, counted in 32 bits."""
    t = scalar_of(args[0].type)
    x = Num(b, args[0]).bits(SCALARS[f"u{t.bits}"]).cast(u32)
    count = x.op(op.kind)
    return (count - (32 - t.bits) if op.kind == "clz" else count).cast(t).v
