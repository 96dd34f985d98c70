"""`ti.types.quant`: bit-packed number types for `ti.BitpackedFields` and `quant_array` blocks.

age = ti.field(ti.types.quant.int(7, signed=False))
height = ti.field(ti.types.quant.fixed(12, max_value=4.0))
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from vkchi.errors import ArgumentError
from vkchi.types.core import Defaults, Scalar, cook, f32, f64, scalar_named
from vkchi.types.packed_numbers import MANTISSA, QuantFixed, QuantFloat, QuantInt

if TYPE_CHECKING:
    from vkchi.types.hints import ScalarDType

__all__ = ["fixed", "float", "int"]


def int(bits: builtins.int, signed: bool = True, compute: ScalarDType | None = None) -> QuantInt:
    """Integer type of `bits` bits, 1 to 64; a value that does not fit keeps its low bits.

    signed: with negative numbers. compute: its type in kernels; by default the default integer
    type, unsigned if not `signed`. Raises ArgumentError for other bits or a compute that is no
    integer type.
    """
    _check_bits(bits, 64, "int")
    if compute is None:
        known: Scalar = Defaults.ip if signed else scalar_named(f"u{Defaults.ip.bits}")
    else:
        known = _integer(compute)
    return QuantInt(bits, bool(signed), known)


def fixed(bits: builtins.int, signed: bool = True, max_value: builtins.float = 1.0,
          compute: ScalarDType | None = None,
          scale: builtins.float | None = None) -> QuantFixed:  # fmt: skip
    """Fixed-point type: integer multiples of a step, stored in `bits` bits, 1 to 32.

    The step is `scale`; by default, the one whose largest multiple is one step below `max_value`.
    signed: with negative numbers. compute: its type in kernels, f32 or f64, by default the default
    float type. Raises ArgumentError for other values, or if the step or its inverse is no normal
    float.
    """
    _check_bits(bits, 32, "fixed")
    name, given = ("max_value", max_value) if scale is None else ("scale", scale)
    if not hasattr(given, "__float__"):
        raise ArgumentError(f"quant.fixed: {name}= is a number, not {given!r}")
    if scale is None:
        scale = max_value / 2 ** (bits - 1 if signed else bits)
    known = _float(compute)
    most = 2.0 ** (126 if known is f32 else 1022)  # the step and its inverse are normal floats
    if not 1 / most <= scale <= most:
        raise ArgumentError(
            f"quant.fixed: the step from one number to the next is {scale}: from {1 / most} to "
            f"{most} is possible"
        )
    return QuantFixed(bits, bool(signed), known, builtins.float(scale))


def float(exp: builtins.int, frac: builtins.int, signed: bool = True,
          compute: ScalarDType | None = None) -> QuantFloat:  # fmt: skip
    """Floating-point type with `exp` bits for the exponent, 1 to 8, and `frac` bits for the rest.

    `frac` includes the sign bit if `signed`, and is at most 23 without it. compute: its type in
    kernels, f32 or f64, by default the default float type. Raises ArgumentError for other values.
    """
    _check_bits(exp, 8, "float: exp")
    _check_bits(frac, MANTISSA + bool(signed), "float: frac")
    return QuantFloat(exp, frac, bool(signed), _float(compute))


def _check_bits(bits: builtins.int, most: builtins.int, what: str) -> None:
    if not isinstance(bits, builtins.int) or isinstance(bits, bool) or not 1 <= bits <= most:
        raise ArgumentError(f"quant.{what}: 1 to {most} bits are possible, not {bits!r}")


def _integer(compute: ScalarDType) -> Scalar:
    t = cook(compute)
    if not isinstance(t, Scalar) or t.kind not in "iu":
        raise ArgumentError(f"quant.int: compute= is an integer type such as ti.i32, not {compute}")
    return t


def _float(compute: ScalarDType | None) -> Scalar:
    t = Defaults.fp if compute is None else cook(compute)
    if t not in (f32, f64):
        raise ArgumentError(f"quant: numbers with fractions have compute=ti.f32 or ti.f64, not {t}")
    assert isinstance(t, Scalar)
    return t
