"""Lossy conversions of Python data: detection of fractions and of values out of an array's range;
integers as arguments of a narrower type, which wrap with a warning, as in Taichi.

The values are searched once, in chunks. The search is skipped if the numpy types guarantee that all
values fit.

    warn_on_loss(values, bounds_of(i32), is_strict=False)
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from vkchi.errors import (
    ArgumentError,
    ConversionWarning,
    KernelOverflowWarning,
    warn_line,
    warn_user,
)
from vkchi.tuples import NamedTuple
from vkchi.types import SCALARS, Scalar, bf16, f16, f32, f64, integer_range
from vkchi.types.lazy_numpy import np
from vkchi.types.packed_numbers import QuantFixed, QuantInt, Quantised

CHUNK = 1 << 15  # values
FEW = 16  # values; up to that many are checked faster without numpy


GREATEST = {
    f16: 65504.0,
    bf16: float.fromhex("0x1.fep127"),
    f32: float.fromhex("0x1.fffffep127"),
    f64: sys.float_info.max,
}


def plain_values_of(t: Scalar) -> tuple[tuple[type, ...], Any, Any]:
    """Python types whose values can be stored as `t` without a cast, and the least and greatest of
    these values."""
    if t.kind == "b":
        return (bool,), False, True
    if t.kind == "f":
        most = GREATEST[t]
        return (float, int), -most, most
    return (int,), *integer_range(t)


PLAIN = {t: plain_values_of(t) for t in SCALARS.values()}


class ValueBounds(NamedTuple):
    """The values that a type represents.

    `whole`: the integers from `low` to `high`. Otherwise: the reals between `low` and `high`,
    exclusive. Values of a type that numpy casts safely to `dtype` need no search.
    """

    name: str
    whole: bool
    low: float
    high: float
    dtype: Any = None


@lru_cache(maxsize=256)
def bounds_of(t: Scalar | Quantised) -> ValueBounds | None:
    """The values that a type represents, as `ValueBounds`.

    None for types that accept every number as documented: bools, and bit-packed floats and 32-bit
    fixed-point numbers, which saturate.
    """
    if isinstance(t, QuantInt):
        least = -(1 << t.bits - 1) if t.slot.kind == "i" else 0
        return ValueBounds(repr(t), True, least, least + (1 << t.bits) - 1)
    if isinstance(t, QuantFixed) and t.bits < 32:  # with 32 bits, values saturate
        least = -(1 << t.bits - 1) if t.signed else 0
        low, high = least - 0.5, least + (1 << t.bits) - 0.5
        return ValueBounds(repr(t), False, low * t.scale, high * t.scale)
    if isinstance(t, Quantised) or t.kind == "b":
        return None
    if t.kind in "iu":
        return ValueBounds(str(t), True, *integer_range(t), t.dtype)
    most, digits = float(np.finfo(t.dtype).max), np.finfo(t.dtype).nmant
    if t is bf16:
        most, digits = GREATEST[bf16], 7
    half = 2.0 ** (np.finfo(t.dtype).maxexp - digits - 2)  # half an ulp, which rounds up
    edge = most + half if t.bits < 64 else most
    return ValueBounds(str(t), False, -edge, edge, np.float16 if t is bf16 else t.dtype)


class LossCounts(NamedTuple):
    """Number of values with a lost fraction (`fractions`), and of values out of range (`beyond`).

    `number` is the first of these values, `place` its flat position.
    """

    fractions: int
    beyond: int
    number: Any
    place: int


def find_losses(values: np.ndarray[Any, Any], bounds: ValueBounds | None) -> LossCounts | None:
    """Count the values that do not fit, and find the first; None if all fit, or if `bounds` is
    None."""
    if bounds is None or not values.size:
        return None
    if values.size <= FEW and all(holds(bounds, x) for x in values.reshape(-1).tolist()):
        return None
    if bounds.dtype is not None and np.can_cast(values.dtype, bounds.dtype, "safe"):
        return None
    fractions = beyond = at = 0
    first: tuple[Any, int] | None = None
    with np.errstate(all="ignore"):
        for chunk in chunks(values):
            if not fits(chunk, bounds):
                out = out_of_range(chunk, bounds)
                cut = chunk % 1 != 0 if bounds.whole and chunk.dtype.kind == "f" else np.False_
                cut = cut & ~out
                bad = np.flatnonzero(cut | out)
                if first is None and bad.size:
                    first = chunk[bad[0]].item(), at + int(bad[0])
                fractions, beyond = fractions + int(np.sum(cut)), beyond + int(out.sum())
            at += chunk.size
    return None if first is None else LossCounts(fractions, beyond, *first)


def holds(bounds: ValueBounds, number: Any) -> bool:
    """True if a number certainly fits."""
    if bounds.whole:
        return bool(bounds.low <= number <= bounds.high and number % 1 == 0)
    return bool(bounds.low < number < bounds.high)


def chunks(values: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Split the values, in C order, into flat chunks."""
    if values.flags.c_contiguous:
        flat = values.reshape(-1)
        for at in range(0, flat.size, CHUNK):
            yield flat[at : at + CHUNK]
    else:
        yield from np.nditer(
            values, ["external_loop", "buffered"], order="C", buffersize=CHUNK
        )  # fmt: skip


def fits(chunk: np.ndarray[Any, Any], bounds: ValueBounds) -> bool:
    """True if all values of a chunk certainly fit; False if one is infinite or NaN."""
    low, high = chunk.min().item(), chunk.max().item()
    is_inside = bounds.low < low and high < bounds.high
    is_inside |= bounds.whole and bounds.low <= low and high <= bounds.high
    is_cut = bounds.whole and chunk.dtype.kind == "f"
    return is_inside and not (is_cut and (np.trunc(chunk) != chunk).any())


def out_of_range(chunk: np.ndarray[Any, Any], bounds: ValueBounds) -> np.ndarray[Any, Any]:
    """Mask of values out of range. Infinities and NaN are out of range only for integer types."""
    low, high = bounds.low, bounds.high
    if chunk.dtype.kind in "iu":
        own = np.iinfo(chunk.dtype)
        if not bounds.whole:  # both ends are exclusive
            low, high = math.floor(low) + 1, math.ceil(high) - 1
        bad = (chunk < max(low, own.min)) | (chunk > min(high, own.max))
    else:
        wide = chunk.astype(np.float64)
        if bounds.whole:  # low and high + 1 are powers of two, exact in floats
            bad = ~np.isfinite(wide) | (wide < low if low else wide <= -1) | (wide >= high + 1)
        else:
            bad = np.isfinite(wide) & ((wide <= low) | (wide >= high))
    return np.asarray(bad)


# --- messages ------------------------------------------------------------------------------------


def describe_losses(lost: LossCounts, bounds: ValueBounds, values: np.ndarray[Any, Any]) -> str:
    """Message part: the counts, and the first value with its index. For a scalar: the value and
    why."""
    said = [f"{lost.fractions} with a fraction"] if lost.fractions else []
    if lost.beyond:
        is_infinite = not bounds.whole and bounds.dtype is not None
        said.append(f"{lost.beyond} out of range" + ", now infinite" * is_infinite)
    found = f"{' and '.join(said)}, of {values.size}"
    if values.ndim == 0:
        return f"{lost.number} {'has a fraction' if lost.fractions else 'is out of range'}"
    where = ", ".join(map(str, np.unravel_index(lost.place, values.shape)))
    return f"{found}; the first is {lost.number} at [{where}]"


def warn_on_loss(
    values: np.ndarray[Any, Any], bounds: ValueBounds | None, *, is_strict: bool
) -> None:
    """Warn, once per line of user code, about values that do not fit.

    Raises ArgumentError if `is_strict`.
    """
    lost = find_losses(values, bounds)
    if lost is None or bounds is None:
        return
    text = f"an array of {bounds.name} takes numbers that do not fit: "
    text += describe_losses(lost, bounds, values)
    if is_strict:
        raise ArgumentError(text)
    warn_line(text, ConversionWarning)


def raise_on_loss(
    values: np.ndarray[Any, Any], bounds: ValueBounds | None, *, is_strict: bool = False
) -> None:  # fmt: skip
    """Raise ArgumentError for a value that an integer type does not hold exactly.

    A value out of range of a float or fixed-point type gives a warning, or the error if
    `is_strict`.
    """
    lost = find_losses(values, bounds)
    if lost is None or bounds is None:
        return
    why = "has a fraction" if lost.fractions else "is out of its range"
    text = f"{lost.number} does not fit {bounds.name}: it {why}"
    if not bounds.whole and not is_strict:
        warn_line(text, ConversionWarning)
        return
    raise ArgumentError(f"{text}\nhelp: {help_for(lost, bounds)}")


def help_for(lost: LossCounts, bounds: ValueBounds) -> str:
    """A help line: a type or conversion that fits the value."""
    if lost.fractions:
        return f"write int({lost.number})"
    if not math.isfinite(lost.number):
        return "make the array of floats"
    is_signless = lost.number < 0 and bounds.low == 0
    return f"make the array of a {'signed' if is_signless else 'wider'} type"


# --- integers as arguments -----------------------------------------------------------------------


def wrap_integer(value: int, t: Scalar, name: str) -> int:
    """Convert an integer to an integer type t, modulo 2**bits, with a warning if it does not fit.

    `name` describes the argument in messages. Raises ArgumentError for numbers that do not even fit
    i64 (for signed t) or u64 (for unsigned t, so for all negative numbers).
    """
    low, high = integer_range(t)
    if low <= value <= high:
        return value
    low, high = integer_range(SCALARS[f"{t.kind}64"])
    if not low <= value <= high:
        raise ArgumentError(f"{name}: {value} does not fit {t}")
    found = int(np.array(value, f"{t.kind}8").astype(t.dtype))
    warn_user(f"{name}: {value} does not fit {t} and is taken as {found}", KernelOverflowWarning)
    return found
