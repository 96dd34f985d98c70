"""Construction of vectors and matrices in kernels: calls of types, `ti.Vector`, `ti.Matrix`.

In a call of a type, a single scalar is broadcast. Otherwise scalars, vectors and lists are
concatenated, and must give exactly the type's components.

    construct(cx, f32<3>, (v.xy, 1))
"""

from __future__ import annotations

from typing import Any

from vkchi.errors import KernelCallError, KernelTypeError
from vkchi.frontend.values.kinds import describe, is_static, kind_of, name_of
from vkchi.frontend.values.operands import (
    Operand,
    WeakNumbers,
    as_type,
    cast,
    components,
    constant,
    dtype_of,
    known_int,
    operand,
    operand_shape,
    own_type,
    tensor_of,
    value,
)
from vkchi.frontend.values.references import Context
from vkchi.ir.core import Value
from vkchi.types import DefaultTensor, Scalar, Tensor, Type, shape_of, with_shape
from vkchi.types.core import INTEGERS
from vkchi.types.lazy_numpy import np


def call_type(cx: Context, t: Type | DefaultTensor, args: tuple[Any, ...], *names: str) -> Value:
    """Lower `t(*args)` as written by a user, which gives a literal its type: `ti.u8(7)`.

    `names` are those of keyword arguments. Raises KernelCallError for keywords, and for a scalar
    type with another number of arguments than one. Raises KernelTypeError as `construct`.
    """
    want = dtype_of(cx, t)
    if names:
        raise cx.fail(f"{want}() takes no keywords, and `{names[0]}=` is one", kind=KernelCallError)
    if not shape_of(want) and len(args) != 1:
        raise cx.fail(f"{want}() takes one value, not {len(args)}", kind=KernelCallError)
    return construct(cx, t, args)


def check_literal_kind(cx: Context, t: Type | DefaultTensor, x: Any) -> None:
    """Check that a literal of an integer type is not a float, as in `ti.i32(1.5)`.

    Raises KernelTypeError.
    """
    want = dtype_of(cx, t)
    if want.kind in INTEGERS and isinstance(x, float | np.floating):
        raise cx.fail(
            f"{x} is no integer, and ti.{want}() says what a literal is",
            kind=KernelTypeError,
            help=f"to cut it: ti.cast({x}, ti.{want}), or int({x})",
        )


def construct(cx: Context, t: Type | DefaultTensor, args: tuple[Any, ...]) -> Value:
    """Construct a scalar, vector or matrix from arguments.

    Raises KernelTypeError for another number of components, and for an int that does not fit a
    scalar integer type.
    """
    want = dtype_of(cx, t)
    if isinstance(want, Scalar):
        check_literal(cx, want, args[0])
        return cast(cx, args[0], want)
    if len(args) == 1:
        return _of_one(cx, want, args[0])
    return _of_parts(cx, want, [operand(cx, x) for x in args])


def check_literal(cx: Context, t: Scalar, x: Any) -> None:
    """Check that integer type t can represent a Python int: `ti.u8(-1)`. Raises KernelTypeError."""
    if t.kind not in INTEGERS or known_int(x) is None:
        return
    low = -(1 << (t.bits - 1)) if t.kind == "i" else 0
    if not low <= x < low + (1 << t.bits):
        raise cx.fail(
            f"{x} does not fit {t}", kind=KernelTypeError, help=f"to wrap it: ti.cast({x}, ti.{t})"
        )


def _of_one(cx: Context, t: Tensor, x: Any) -> Value:
    """Construct a tensor from one argument: a scalar is broadcast, others need t's components."""
    if kind_of(x).is_sequence and not is_static(x):
        return _of_parts(cx, t, _flatten(cx, x))
    a = operand(cx, x)
    shape = operand_shape(a)
    if shape in ((), t.shape):
        return as_type(cx, a, t)
    return _of_parts(cx, t, [a])


def _flatten(cx: Context, items: Any) -> list[Operand]:
    flat: list[Operand] = []
    for x in items:
        flat += _flatten(cx, x) if kind_of(x).is_sequence else [operand(cx, x)]
    return flat


def _of_parts(cx: Context, t: Tensor, parts: list[Operand]) -> Value:
    sizes = [int(np.prod(operand_shape(a))) for a in parts]
    if sum(sizes) != t.size:
        raise cx.fail(
            f"a {describe(t)} has {t.size} components, and {sum(sizes)} are given",
            kind=KernelTypeError,
            label=", ".join(describe(own_type(cx, a)) for a in parts),
        )
    if all(isinstance(a, WeakNumbers) for a in parts):
        held = [np.asarray(a.numbers) for a in parts]  # type: ignore[union-attr]
        numbers = [n for a in held for n in a.reshape(-1).tolist()]
        return constant(cx, np.array(numbers, object), t)
    flat: list[Value] = []
    for a in parts:
        shape = operand_shape(a)
        flat += components(cx, as_type(cx, a, with_shape(t.elem, shape)))
    return cx.b.emit("pack", *flat, type=t)


# --- ti.Vector, ti.Matrix and their makers -------------------------------------------------------


def make_matrix(cx: Context, arr: Any, dt: Any = None) -> Value:
    """Lower `ti.Vector(arr, dt)` and `ti.Matrix(arr, dt)`.

    `arr` is a list, a list of rows, a numpy array, or a vector or matrix. Without `dt` the element
    type is the common type of its parts. Raises KernelTypeError for other objects.
    """
    elem = None if dt is None else _scalar(cx, dt)
    if kind_of(arr).is_sequence:
        a: Operand = tensor_of(cx, arr, elem)
    elif isinstance(arr, np.ndarray) and arr.ndim in (1, 2):
        a = tensor_of(cx, arr.tolist(), elem)
    else:
        a = operand(cx, arr)
    t = own_type(cx, a)
    if not isinstance(t, Tensor):
        raise cx.fail(
            f"a vector or matrix is made from a list, not {name_of(arr)}",
            kind=KernelTypeError,
            help="ti.Vector([x, y])",
        )
    return as_type(cx, a, t if elem is None else Tensor.of(elem, t.shape))


def _scalar(cx: Context, dt: Any) -> Scalar:
    t = dtype_of(cx, dt)
    if not isinstance(t, Scalar):
        raise cx.fail(f"a number type is needed here, not {t}", kind=KernelTypeError)
    return t


def _extent(cx: Context, n: Any, what: str) -> int:
    size = known_int(n)
    if size is None or size < 1:
        given = "a value of the kernel" if kind_of(n).has_type else repr(n)
        raise cx.fail(
            f"{what} must be a positive compile-time constant, not {given}",
            kind=KernelTypeError,
            constant=n,
        )
    return size


def _filled(cx: Context, number: int, dt: Any, n: Any, m: Any) -> Value:
    rows = _extent(cx, n, "n")
    shape = (rows,) if m is None else (rows, _extent(cx, m, "m"))
    return constant(cx, number, Tensor.of(_scalar(cx, dt), shape))


def make_zero(cx: Context, dt: Any, n: Any, m: Any = None) -> Value:
    return _filled(cx, 0, dt, n, m)


def make_one(cx: Context, dt: Any, n: Any, m: Any = None) -> Value:
    return _filled(cx, 1, dt, n, m)


def make_identity(cx: Context, dt: Any, n: Any) -> Value:
    size = _extent(cx, n, "n")
    return constant(cx, np.identity(size, int), Tensor.of(_scalar(cx, dt), (size, size)))


def make_diag(cx: Context, dim: Any, val: Any) -> Value:
    size = _extent(cx, dim, "dim")
    v = value(cx, val)
    if not isinstance(v.type, Scalar):
        raise cx.fail("the diagonal's value is a number", kind=KernelTypeError)
    zero = constant(cx, 0, v.type)
    flat = [v if i == j else zero for i in range(size) for j in range(size)]
    return cx.b.emit("pack", *flat, type=Tensor.of(v.type, (size, size)))


def make_unit(cx: Context, n: Any, i: Any, dt: Any = None) -> Value:
    """Lower `ti.Vector.unit(n, i, dt)`; `i` may be a run-time value."""
    size = _extent(cx, n, "n")
    t = Tensor.of(cx.options.default_ip if dt is None else _scalar(cx, dt), (size,))
    if isinstance(i, int | np.integer):
        return constant(cx, np.arange(size) == i, t)
    index = value(cx, i, Tensor.of(cx.options.default_ip, (size,)))
    place = constant(cx, np.arange(size), Tensor.of(cx.options.default_ip, (size,)))
    return cast(cx, cx.b.emit("eq", index, place), t)


def make_rows(cx: Context, rows: Any) -> Value:
    return make_matrix(cx, list(rows))


def make_cols(cx: Context, cols: Any) -> Value:
    v = make_matrix(cx, list(cols))
    if len(shape_of(v.type)) != 2:
        raise cx.fail("a matrix is made from vectors", kind=KernelTypeError)
    return cx.b.emit("transpose", v)


def make_like(cx: Context, x: Any, number: int) -> Value:
    """Lower `ti.zero(x)` and `ti.one(x)`: a constant `number` of x's own type."""
    t = own_type(cx, operand(cx, x))
    return constant(cx, number, t)
