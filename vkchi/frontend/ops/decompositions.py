"""`ti.svd`, `ti.solve` and others in kernels, traced from `lang.linear_algebra.decompose`.

Decompositions compute in f32 or f64, `solve` in the type of its result.

    CALLS[lang.linear_algebra.decompose.svd].handler(cx, m)       # (U, S, V)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vkchi.errors import KernelTypeError
from vkchi.frontend.calls.tables import CALLS, CallHandler, Handler
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.ops.trace import traced, unwrap, wrap
from vkchi.frontend.values.operands import constant, dtype_of, is_number
from vkchi.frontend.values.references import ArrayRef, Context
from vkchi.frontend.values.trees import map_leaves
from vkchi.ir.core import Param, Value
from vkchi.lang.function import Function, repeat
from vkchi.lang.linear_algebra import decompose
from vkchi.lang.linear_algebra.jacobi import DOUBLE, SINGLE, FloatPrecision
from vkchi.types import Scalar, f32, f64, i32, promote, scalar_of, u1

# --- loops of traced functions -------------------------------------------------------------------


def emit_repeat(cx: Context, step: Callable[..., Any], state: Any, most: int) -> list[Value]:
    """Emit `lang.function.repeat`: a `while` of at most `most` iterations, which a false flag ends.

    It carries the state, the flag and a count. Returns the last state.
    """
    first = [operator_lowering.value(cx, x) for x in state]
    carried = [*first, constant(cx, 1, u1), constant(cx, 0, i32)]
    seen = tuple(Param(v.type) for v in carried)
    with cx.b.region(*seen) as cond:
        is_left = cx.b.emit("lt", seen[-1], constant(cx, most, i32))
        cx.b.emit("yield", cx.b.emit("and", seen[-2], is_left))
    params = tuple(Param(v.type) for v in carried)
    with cx.b.region(*params) as body:
        *parts, goes_on = step(*[wrap(cx, p) for p in params[: len(first)]])
        following = [operator_lowering.value(cx, unwrap(x), p.type) for x, p in zip(parts, params)]
        count = cx.b.emit("add", params[-1], constant(cx, 1, i32))
        cx.b.emit("yield", *following, operator_lowering.value(cx, unwrap(goes_on), u1), count)
    return list(cx.b.while_(tuple(carried), cond, body).results[: len(first)])


# --- decompositions ------------------------------------------------------------------------------


def _float_type(cx: Context, dt: Any, *values: Value) -> Scalar:
    """Return `dt`, or the promotion of default_fp and the float types of values.

    Raises KernelTypeError if `dt` is not a float type.
    """
    t: Any = cx.options.default_fp
    if dt is not None:
        t = dtype_of(cx, dt)
    else:
        for v in values:
            t = promote(t, scalar_of(v.type)) if scalar_of(v.type).kind == "f" else t
    if t.kind != "f":
        raise cx.fail(f"dt must be a float type, not {t}", kind=KernelTypeError)
    return scalar_of(t)


def on_matrix(fn: Function, sizes: decompose.Formulas) -> Handler:
    """Make the handler of a decomposition: the formula for the matrix's size, in f32 or f64.

    The results are cast to `dt`; by default to the promotion of default_fp and the matrix's float
    type.
    """

    def call(cx: Context, A: Any, dt: Any = None) -> tuple[Value, ...] | Value:
        m = operator_lowering.value(cx, A)
        t = _float_type(cx, dt, m)
        precision: FloatPrecision = DOUBLE if t is f64 else SINGLE
        m = operator_lowering.cast(cx, m, t if t.bits >= 32 else f32)
        found = traced(lambda x: decompose.formula_for(fn.__name__, sizes, x)(x, precision))(cx, m)
        is_several = isinstance(found, list | tuple)
        results = [operator_lowering.cast(cx, v, t) for v in (found if is_several else (found,))]
        return tuple(results) if is_several else results[0]

    return call


def _solve(cx: Context, A: Any, b: Any, dt: Any = None) -> Value:
    m, v = operator_lowering.value(cx, A), operator_lowering.value(cx, b)
    t = _float_type(cx, dt, m, v)

    def solve(m: Any, v: Any) -> Any:
        decompose.check_system(m, v)
        return decompose.gaussian_elimination(m, v)

    solved: Value = traced(solve)(
        cx, operator_lowering.cast(cx, m, t), operator_lowering.cast(cx, v, t)
    )
    return solved


def _stop_grad(cx: Context, x: Any) -> Any:
    """Return values without their derivatives; Python numbers are unchanged.

    For an array, block derivatives of later reads and return None. Raises KernelTypeError.
    """

    def stop(leaf: Any) -> Any:
        if isinstance(leaf, ArrayRef):
            cx.stop_gradient(leaf)
            return None
        if not is_number(leaf):
            raise cx.fail("`ti.stop_grad` takes an array or a value of the kernel")
        return cx.b.emit("stop_grad", leaf) if isinstance(leaf, Value) else leaf

    return map_leaves(x, stop)


CALLS[repeat] = CallHandler(emit_repeat)
CALLS[decompose.solve] = CallHandler(_solve)
CALLS[decompose.stop_grad] = CallHandler(_stop_grad)
CALLS[decompose.stop_first_grad] = CallHandler(lambda cx, x: cx.b.emit("stop_first_grad", x))
CALLS[decompose.undefined_slope] = CallHandler(lambda cx, x: cx.b.emit("undefined_slope", x))
CALLS[decompose.with_derivative_of] = CallHandler(
    lambda cx, x, y, z: cx.b.emit("with_derivative_of", x, y, z)
)
CALLS.update(
    {fn: CallHandler(on_matrix(fn, rows)) for fn, rows in decompose.DECOMPOSITIONS.items()}
)
