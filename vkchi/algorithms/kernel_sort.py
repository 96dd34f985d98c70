"""A stable radix sort that kernels call at their top level: `ti.algorithms.sort`.

    @ti.kernel
    def step(keys: ti.Tensor, spare: ti.Tensor, scratch: ti.Tensor, n: ti.Tensor):
        ti.algorithms.sort(keys, spare, keys, spare, scratch, n, ti.u32, False, 32, 2)

Each lane counts and moves a contiguous part of the keys. `scratch` has the counts of lane b at
[digit * lanes + b], which become positions inside a digit, and then the first position of each
digit.

Source of the parameters: Quadrants' user guide, "Algorithms". `radix_sort` has the algorithm.
"""

from __future__ import annotations

from typing import Any

from vkchi.algorithms.array_kernels import library_func
from vkchi.algorithms.radix_sort import ORDERED
from vkchi.kernel import UserFunc, func, pyfunc
from vkchi.lang.compile_time import static, static_assert
from vkchi.types import SCALARS, Scalar, i32, template, u32

DIGIT_BITS = 8
DIGITS = 1 << DIGIT_BITS
LANE_KEYS = 512
KEY_TYPES = ("u32", "i32", "f32", "u64", "i64", "f64")


def ordered_of(t: Scalar) -> Any:
    """The function that maps keys of a type to unsigned integers of the same order."""
    return ORDERED.get(t.name) or ORDERED[t.kind]


def is_key_type(t: Any) -> bool:
    return isinstance(t, Scalar) and t.name in KEY_TYPES


def is_whole_passes(t: Scalar, end_bit: int) -> bool:
    """True if `end_bit` bits are an even number of digits of keys of type t."""
    return 0 < end_bit <= t.bits and end_bit % (2 * DIGIT_BITS) == 0


def word_of(t: Scalar) -> Scalar:
    return SCALARS[f"u{t.bits}"]


def on_templates(fn: Any) -> UserFunc:
    """`ti.func` of ti.template() arguments, at the top level of kernels."""
    names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    fn.__annotations__ = dict.fromkeys(names, template())
    return func(requires_top_level=True)(fn)


@pyfunc
def count_lanes(n: Any) -> Any:
    return (n + LANE_KEYS - 1) // LANE_KEYS


@pyfunc
def sort_scratch_slots(n: Any, log256_max_n: Any = None) -> Any:
    """Number of u32 elements of the `scratch` of `sort`, for n keys; for kernels and Python.

    Args:
        n: number of keys.
        log256_max_n: no effect.

    Returns:
        The number.
    """
    return (count_lanes(n) + 1) * DIGITS


@library_func
def digit_of(keys: Any, k: Any, shift: Any, t: Any) -> Any:
    word = static(word_of(t))
    return i32((static(ordered_of(t))(keys[k]) >> word(shift)) & word(DIGITS - 1))


@on_templates
def sort_by_digit(
    keys: Any, out: Any, values: Any, out_values: Any,
    scratch: Any, n: Any, t: Any, has_values: Any, shift: Any,
) -> None:  # fmt: skip
    """One pass: move keys, and values, to `out` in the order of the digit at bit `shift`."""
    for lane in range(count_lanes(n[None])):
        lanes = count_lanes(n[None])
        for d in range(DIGITS):
            scratch[d * lanes + lane] = u32(0)
        for k in range(lane * LANE_KEYS, min(n[None], (lane + 1) * LANE_KEYS)):
            scratch[digit_of(keys, k, shift, t) * lanes + lane] += u32(1)
    for d in range(DIGITS):
        lanes, before = count_lanes(n[None]), u32(0)
        for lane in range(lanes):
            count = scratch[d * lanes + lane]
            scratch[d * lanes + lane] = before
            before += count
        scratch[DIGITS * lanes + d] = before
    for _ in range(1):
        lanes, before = count_lanes(n[None]), u32(0)
        for d in range(DIGITS):
            count = scratch[DIGITS * lanes + d]
            scratch[DIGITS * lanes + d] = before
            before += count
    for lane in range(count_lanes(n[None])):
        lanes = count_lanes(n[None])
        for k in range(lane * LANE_KEYS, min(n[None], (lane + 1) * LANE_KEYS)):
            d = digit_of(keys, k, shift, t)
            at = i32(scratch[d * lanes + lane] + scratch[DIGITS * lanes + d])
            scratch[d * lanes + lane] += u32(1)
            out[at] = keys[k]
            if static(has_values):
                out_values[at] = values[k]


@on_templates
def sort(
    keys: Any, tmp_keys: Any, values: Any, tmp_values: Any,
    scratch: Any, n: Any, key_dtype: Any, has_values: Any,
    end_bit: Any, log256_max_n: Any,
) -> None:  # fmt: skip
    """Sort the first n[None] keys in place: ascending, stable. For kernels, at their top level.

    Args:
        keys: a field or ndarray of one axis.
        tmp_keys: another of the same shape and type, which is overwritten.
        values: an array that is permuted like the keys, if `has_values`.
        tmp_values: another of the same shape and type, which is overwritten.
        scratch: an array of `sort_scratch_slots(n)` elements of ti.u32.
        n: an array of one ti.i32 without axes.
        key_dtype: the type of the keys: ti.u32, i32, f32, u64, i64 or f64. nan is last.
        has_values: False if `values` and `tmp_values` are not used.
        end_bit: sort by the lowest bits of the keys; a multiple of 16.
        log256_max_n: no effect.

    Raises:
        KernelSyntaxError: for another type or number of bits, and in a loop or a branch.
    """
    static_assert(is_key_type(key_dtype), "sort: key_dtype is no type of keys")
    static_assert(
        is_whole_passes(key_dtype, end_bit),
        "sort: end_bit is a multiple of 16, up to the keys' bits",
    )
    for k in static(range(end_bit // (2 * DIGIT_BITS))):
        sort_by_digit(
            keys, tmp_keys, values, tmp_values, scratch, n, key_dtype, has_values,
            2 * k * DIGIT_BITS,
        )  # fmt: skip
        sort_by_digit(
            tmp_keys, keys, tmp_values, values, scratch, n, key_dtype, has_values,
            (2 * k + 1) * DIGIT_BITS,
        )  # fmt: skip
