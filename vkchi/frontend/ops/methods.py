"""Methods of vectors and matrices in kernels: `v.norm()`, `m.inverse()`.

METHODS maps a name to handler(cx, self, *args). Formulas are traced from
`lang.linear_algebra.linear`.

    METHODS["dot"](cx, a, b)
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NoReturn

from vkchi.errors import KernelTypeError
from vkchi.frontend.calls.tables import METHODS, Handler
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.ops.power import any_of
from vkchi.frontend.ops.trace import traced
from vkchi.frontend.values.kinds import describe
from vkchi.frontend.values.operands import components
from vkchi.frontend.values.references import Context
from vkchi.ir.core import Value
from vkchi.lang.linear_algebra import linear
from vkchi.lang.matrix import NO_TRANSPOSE
from vkchi.types import scalar_of, shape_of, u1


def _tensor(cx: Context, v: Value, name: str, axes: tuple[int, ...] = (1, 2)) -> Value:
    """Return v if it is a tensor with one of these numbers of axes. Raises KernelTypeError."""
    if len(shape_of(v.type)) not in axes:
        words = {(1,): "vectors", (2,): "matrices", (1, 2): "vectors and matrices"}[axes]
        raise cx.fail(
            f"`{name}` is for {words}", kind=KernelTypeError, label=describe(v.type),
            help="make one: ti.Vector([x, y])" if 1 in axes else "make one: ti.Matrix([[a, b]])",
        )  # fmt: skip
    return v


def numbers(cx: Context, v: Value) -> Value:
    """Return v with bools converted to default_ip."""
    is_bool = scalar_of(v.type) is u1
    return operator_lowering.cast(cx, v, cx.options.default_ip) if is_bool else v


def total(cx: Context, v: Value) -> Value:
    """Return the sum of the components; bools are summed in default_ip.

    Raises KernelTypeError for a scalar.
    """
    return cx.b.emit("sum", numbers(cx, _tensor(cx, v, "sum")))


def largest(cx: Context, v: Value) -> Value:
    return _reduced(cx, v, "max")


def smallest(cx: Context, v: Value) -> Value:
    return _reduced(cx, v, "min")


def _reduced(cx: Context, v: Value, kind: str) -> Value:
    parts = components(cx, numbers(cx, _tensor(cx, v, kind)))
    return reduce(lambda x, y: cx.b.emit(kind, x, y), parts)


def has_any(cx: Context, v: Value) -> Value:
    """Return a scalar u1: True if some component is not zero."""
    return any_of(cx, operator_lowering.as_truth(cx, _tensor(cx, v, "any")))


def has_all(cx: Context, v: Value) -> Value:
    """Return a scalar u1: True if no component is zero."""
    is_false = operator_lowering.complement(
        cx, operator_lowering.as_truth(cx, _tensor(cx, v, "all"))
    )
    return operator_lowering.complement(cx, any_of(cx, is_false))


def _dot(cx: Context, v: Value, other: Any) -> Value:
    w = operator_lowering.value(cx, other)
    if len(shape_of(v.type)) != 1 or shape_of(v.type) != shape_of(w.type):
        text = f"{describe(v.type)} and {describe(w.type)}"
        raise cx.fail("`dot` takes vectors of the same length", kind=KernelTypeError, label=text)
    return cx.b.emit("sum", operator_lowering.binary(cx, "*", v, w))


def _transpose(cx: Context, v: Value) -> Value:
    if len(shape_of(v.type)) != 2:
        raise cx.fail(NO_TRANSPOSE, kind=KernelTypeError, help="write a.outer_product(b)")
    return cx.b.emit("transpose", v)


def _outer_product(cx: Context, v: Value, other: Any) -> Value:
    a, b = operator_lowering.promoted(cx, v, other)
    for x in (a, b):
        _tensor(cx, x, "outer_product", (1,))
    return cx.b.emit("outer", numbers(cx, a), numbers(cx, b))


def _to_list(cx: Context, v: Value) -> list[Any]:
    parts: list[Any] = list(components(cx, v))
    shape = shape_of(_tensor(cx, v, "to_list").type)
    if len(shape) == 1:
        return parts
    return [parts[k : k + shape[1]] for k in range(0, len(parts), shape[1])]


def _to_numpy(cx: Context, v: Value) -> NoReturn:
    raise cx.fail(
        "`to_numpy` is for Python scope", kind=KernelTypeError, help="return the value instead"
    )


def _fill(cx: Context, v: Value, val: Any) -> NoReturn:
    raise cx.fail(
        "`fill` does not change a kernel's vectors and matrices",
        kind=KernelTypeError,
        help="assign instead: v = ti.zero(v) + x",
    )


_OWN: dict[str, Handler] = {
    "dot": _dot,
    "sum": total,
    "max": largest,
    "min": smallest,
    "any": has_any,
    "all": has_all,
    "transpose": _transpose,
    "outer_product": _outer_product,
    "cast": lambda cx, v, dtype: operator_lowering.cast(cx, v, dtype),
    "get_shape": lambda cx, v: shape_of(_tensor(cx, v, "get_shape").type),
    "to_list": _to_list,
    "to_numpy": _to_numpy,
    "fill": _fill,
}
_TRACED = (
    linear.norm, linear.norm_sqr, linear.norm_inv, linear.normalized, linear.cross, linear.trace,
    linear.determinant, linear.inverse,
)  # fmt: skip

METHODS.update(_OWN)
METHODS.update({fn.__name__: traced(fn) for fn in _TRACED})

__all__ = ["METHODS", "has_all", "has_any", "largest", "smallest", "total"]
