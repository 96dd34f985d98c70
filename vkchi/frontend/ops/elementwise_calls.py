"""Elementwise functions in kernels: handlers from the function object to its IR op.

Integers become default_fp where a function takes floats. Most functions of Python numbers, vectors
and matrices are computed in Python.

    ELEMENTWISE[lang.elementwise.sqrt](cx, v)       # an op `sqrt` of v, cast to float
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from vkchi.errors import KernelTypeError
from vkchi.frontend.calls.tables import Handler
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.ops.tensor_construction import make_like
from vkchi.frontend.values.kinds import describe
from vkchi.frontend.values.operands import constant, dtype_of, operand, weak
from vkchi.frontend.values.references import Context
from vkchi.ir.core import Value, numeric_type_of
from vkchi.lang import elementwise
from vkchi.lang.function import Function
from vkchi.tuples import NamedTuple
from vkchi.types import (
    SCALARS,
    Scalar,
    f32,
    f64,
    i32,
    i64,
    scalar_of,
    shape_of,
    u1,
    with_scalar,
)


def is_plain(*args: Any) -> bool:
    """True if all are Python numbers, vectors or matrices, so that Python computes the result."""
    return all(weak(x) is not None for x in args)


# --- elementwise functions of one argument -------------------------------------------------------


def on_floats(fn: Function, kind: str) -> Handler:
    """Make the handler of a function of floats, one op; integers are cast to default_fp.

    Python's numbers, vectors and matrices are passed to `fn`.
    """

    def call(cx: Context, x: Any) -> Any:
        if is_plain(x):
            known = fn(x)
            if not operator_lowering.is_watched(cx, known, x):
                return known
        return cx.b.emit(kind, operator_lowering.floating(cx, x))

    return call


def on_bits(fn: Function, kind: str) -> Handler:
    """Make the handler of a function of integers, one op; bools are cast to default_ip.

    The handler raises KernelTypeError for floats.
    """

    def call(cx: Context, x: Any) -> Value:
        v = operator_lowering.value(cx, x)
        if scalar_of(v.type).kind == "f":
            raise cx.fail(f"`{kind}` takes integers", kind=KernelTypeError, label=describe(v.type))
        if scalar_of(v.type) is u1:
            v = operator_lowering.cast(cx, v, cx.options.default_ip)
        return cx.b.emit(kind, v)

    return call


def first_set(cx: Context, x: Any) -> Value:
    """Lower `ti.math.ffs`: the width, less the leading zeros of the lowest set bit."""
    v = operator_lowering.value(cx, x)
    elem = scalar_of(v.type)
    if elem.kind == "f":
        raise cx.fail("`ffs` takes integers", kind=KernelTypeError, label=describe(v.type))
    if elem is u1:
        return operator_lowering.cast(cx, v, i32)
    zeros = cx.b.emit("clz", cx.b.emit("and", v, cx.b.emit("neg", v)))
    width = constant(cx, elem.bits, with_scalar(v.type, elem))
    return operator_lowering.cast(cx, cx.b.emit("sub", width, zeros), i32)


def on_class(fn: Function, kind: str) -> Handler:
    """Make the handler of a predicate of floats, such as `isnan`; it is false for integers.

    Python's numbers, vectors and matrices are passed to `fn`.
    """

    def call(cx: Context, x: Any) -> Any:
        if is_plain(x):
            return fn(x)
        v = operator_lowering.value(cx, x)
        if scalar_of(v.type).kind == "f":
            return cx.b.emit(kind, v)
        return constant(cx, 0, with_scalar(v.type, u1))

    return call


def on_rounding(fn: Function, emit: Callable[[Context, Value], Value]) -> Handler:
    """Make the handler of a rounding function, whose result is a float, or cast to `dtype`.

    Python's numbers, vectors and matrices are passed to `fn`, kernel values to `emit`.
    """

    def call(cx: Context, x: Any, dtype: Any = None) -> Any:
        rounded = fn(x) if is_plain(x) else emit(cx, operator_lowering.floating(cx, x))
        return rounded if dtype is None else operator_lowering.cast(cx, rounded, dtype)

    return call


def on_whole(fn: Function, kind: str) -> Handler:
    return on_rounding(fn, lambda cx, v: cx.b.emit(kind, v))


# by Intrinsic.takes
_MAKERS: dict[str, Callable[[Function, str], Handler]] = {
    "floats": on_floats,
    "bits": on_bits,
    "class": on_class,
    "whole": on_whole,
}
_INTRINSICS: dict[object, Handler] = {
    fn: _MAKERS[row.takes](fn, row.op) for fn, row in elementwise.INTRINSICS.items()
}


def _halves_away(cx: Context, v: Value) -> Value:
    """Round half away from zero, as C's `round` and Taichi's kernels do."""
    t = numeric_type_of(v)
    whole = cx.b.emit("trunc", v)
    rest = cx.b.emit("abs", cx.b.emit("sub", v, whole))
    is_far = cx.b.emit("ge", rest, constant(cx, 0.5, t))
    away = cx.b.emit("add", whole, cx.b.emit("sign", v))
    return cx.b.emit("select", is_far, away, whole)


def round_to_even(cx: Context, x: Any, dtype: Any = None) -> Any:
    """Round half to even, as Python and numpy do."""
    return _INTRINSICS[elementwise.round](cx, x, dtype)


# --- the parts of a float ------------------------------------------------------------------------


class _Parts(NamedTuple):
    """The layout of a float type.

    `word` is the integer type of its width, `fraction` the number of fraction bits. `half` is the
    exponent field of numbers in [0.5, 1), `special` that of inf and nan.
    """

    word: Scalar
    fraction: int
    half: int
    special: int


_PARTS = {f32: _Parts(i32, 23, 126, 255), f64: _Parts(i64, 52, 1022, 2047)}


def frexp(cx: Context, x: Any) -> tuple[Any, Any]:
    """Lower `ti.frexp`: return the mantissa, of magnitude in [0.5, 1), and the exponent as i32.

    Zero, subnormals, inf and nan give themselves and 0.
    """
    if is_plain(x):
        return elementwise.frexp(x)
    v = operator_lowering.floating(cx, x)
    own = scalar_of(v.type)
    wide = f64 if own is f64 else f32
    v = operator_lowering.cast(cx, v, wide)
    parts = _PARTS[wide]
    word = with_scalar(v.type, parts.word)
    same = cx.b.emit("stop_grad", v)
    bits = cx.b.emit("bitcast", same, type=word)  # without a derivative, as the exponent
    field = operator_lowering.binary(
        cx, "&", operator_lowering.binary(cx, ">>", bits, parts.fraction), parts.special
    )
    kept = operator_lowering.binary(cx, "&", bits, ~(parts.special << parts.fraction))
    halved = operator_lowering.binary(cx, "|", kept, parts.half << parts.fraction)
    # Field 0: zero, and subnormals, which devices may flush to zero.
    is_whole = operator_lowering.logical(
        cx,
        operator_lowering.compare(cx, "==", field, 0),
        operator_lowering.compare(cx, "==", field, parts.special),
        is_and=False,
    )
    fraction = cx.b.emit("bitcast", halved, type=v.type)
    # The mantissa is v times a power of two, which is constant.
    change = cx.b.emit("mul", cx.b.emit("sub", v, same), cx.b.emit("div", fraction, same))
    smooth = cx.b.emit("add", fraction, change)
    fraction = cx.b.emit("with_derivative_of", fraction, smooth, smooth)
    mantissa = operator_lowering.select(cx, is_whole, v, fraction)
    exponent = operator_lowering.select(
        cx, is_whole, 0, operator_lowering.binary(cx, "-", field, parts.half)
    )
    return operator_lowering.cast(cx, mantissa, own), operator_lowering.cast(cx, exponent, i32)


def absolute(cx: Context, x: Any) -> Any:
    if is_plain(x):
        return elementwise.abs(x)
    v = operator_lowering.value(cx, x)
    return v if scalar_of(v.type).kind in "ub" else cx.b.emit("abs", v)


# --- elementwise functions of more arguments -----------------------------------------------------

_PAIR_RULES: dict[Function, operator_lowering.OperatorRule] = {
    elementwise.atan2: operator_lowering.OperatorRule("", "atan2", "float"),
    elementwise.mod: operator_lowering.OperatorRule("", "mod", "float"),
    elementwise.raw_div: operator_lowering.OperatorRule("truncdiv", "div"),
    elementwise.raw_mod: operator_lowering.OperatorRule("rem", "rem"),
}
_MANY_RULES: dict[Function, operator_lowering.OperatorRule] = {
    elementwise.max: operator_lowering.OperatorRule("max", "max"),
    elementwise.min: operator_lowering.OperatorRule("min", "min"),
}


def on_pair(fn: Function, rule: operator_lowering.OperatorRule) -> Handler:
    """Make the handler of a function of two arguments, with the type rules of operators."""

    def call(cx: Context, x1: Any, x2: Any) -> Any:
        if is_plain(x1, x2):
            return fn(x1, x2)
        return operator_lowering.combine(cx, fn.__name__, rule, operand(cx, x1), operand(cx, x2))

    return call


def on_many(fn: Function, rule: operator_lowering.OperatorRule) -> Handler:
    """Make the handler of `max` or `min` of one or more arguments. A single one is returned."""
    pair = on_pair(fn, rule)

    def call(cx: Context, *args: Any) -> Any:
        if not args:
            raise cx.fail(f"`{fn.__name__}` needs at least one value", kind=KernelTypeError)
        return reduce(lambda x, y: pair(cx, x, y), args) if len(args) > 1 else args[0]

    return call


def _pow(cx: Context, base: Any, exponent: Any) -> Any:
    return operator_lowering.binary(cx, "**", base, exponent)


def _logical(op: str) -> Handler:
    def call(cx: Context, x: Any, y: Any) -> Any:
        if is_plain(x, y):
            return {"and": elementwise.logical_and, "or": elementwise.logical_or}[op](x, y)
        a, b = (operator_lowering.as_truth(cx, operator_lowering.value(cx, v)) for v in (x, y))
        return operator_lowering.binary(cx, {"and": "&", "or": "|"}[op], a, b)

    return call


def bit_shr(cx: Context, x1: Any, x2: Any) -> Value:
    """Lower a logical right shift: `x1 >> x2` with zeros shifted in.

    Raises KernelTypeError for floats and bools.
    """
    shifted = operator_lowering.value(cx, x1)
    elem = scalar_of(shifted.type)
    if elem.kind not in "iu":
        raise cx.fail(
            "`bit_shr` takes integers", kind=KernelTypeError, label=describe(shifted.type)
        )
    word = with_scalar(shifted.type, SCALARS[f"u{elem.bits}"])
    if elem.kind == "i":
        shifted = cx.b.emit("bitcast", shifted, type=word)
    result: Value = operator_lowering.binary(cx, ">>", shifted, x2)
    return result if elem.kind == "u" else cx.b.emit(
        "bitcast", result, type=with_scalar(result.type, elem)
    )  # fmt: skip


def bit_cast(cx: Context, obj: Any, dtype: Any) -> Value:
    """Reinterpret the bits of obj as `dtype`, a number type of the same width.

    Raises KernelTypeError for another width, and for bools.
    """
    t, v = dtype_of(cx, dtype), operator_lowering.value(cx, obj)
    elem = scalar_of(v.type)
    if shape_of(t) or scalar_of(t).bits != elem.bits or "b" in (t.kind, elem.kind):
        raise cx.fail(
            "`bit_cast` is between number types of the same width",
            kind=KernelTypeError,
            label=f"{describe(v.type)} to {t}",
        )
    return v if elem is t else cx.b.emit("bitcast", v, type=with_scalar(v.type, scalar_of(t)))


def select(cx: Context, cond: Any, x1: Any, x2: Any) -> Any:
    if is_plain(cond, x1, x2):
        return elementwise.select(cond, x1, x2)
    return operator_lowering.select(cx, cond, x1, x2)


ELEMENTWISE: dict[object, Handler] = {
    **_INTRINSICS,
    elementwise.round: on_rounding(elementwise.round, _halves_away),
    elementwise.frexp: frexp,
    **{fn: on_pair(fn, rule) for fn, rule in _PAIR_RULES.items()},
    **{fn: on_many(fn, rule) for fn, rule in _MANY_RULES.items()},
    elementwise.abs: absolute,
    elementwise.ffs: first_set,
    elementwise.pow: _pow,
    elementwise.neg: lambda cx, x: operator_lowering.unary(cx, "-", x),
    elementwise.logical_and: _logical("and"),
    elementwise.logical_or: _logical("or"),
    elementwise.logical_not: lambda cx, x: operator_lowering.unary(cx, "not", x),
    elementwise.bit_shr: bit_shr,
    elementwise.bit_cast: bit_cast,
    elementwise.cast: lambda cx, obj, dtype: operator_lowering.cast(cx, obj, dtype),
    elementwise.select: select,
    elementwise.ifte: select,
    elementwise.zero: lambda cx, x: make_like(cx, x, 0),
    elementwise.one: lambda cx, x: make_like(cx, x, 1),
}
