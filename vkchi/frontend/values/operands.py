"""Conversion of Python objects to IR values: constants, lists as vectors, casts, types of literals.

Operators start from an `Operand`: an IR value, or WeakNumbers (Python numbers without a type). The
type of a weak number depends on the other operand:

- an int is default_ip, then promoted
- a float is f64 beside f64, else at least default_fp
- a bool takes the other operand's type; by itself it is u1

    value(cx, [1, 2.5])                 # a constant of f32<2>
    cast(cx, v, ti.i32)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkchi.errors import KernelTypeError
from vkchi.frontend.values.kinds import Kind, describe, kind_of, name_of
from vkchi.frontend.values.references import Context
from vkchi.frontend.values.texts import Part, as_stored
from vkchi.interrupts.local import local
from vkchi.ir.builder import widened
from vkchi.ir.core import Value, bits_of, numeric_type_of
from vkchi.reports.sites import show_number
from vkchi.tuples import NamedTuple
from vkchi.types import (
    DefaultTensor,
    Scalar,
    Tensor,
    Type,
    cook,
    f32,
    f64,
    i64,
    integer_range,
    promote,
    scalar_of,
    shape_of,
    u1,
    u32,
    u64,
    with_scalar,
    with_shape,
)
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.frontend.values.references import Merge


class WeakNumbers(NamedTuple):
    """Python numbers without an IR type: one number, or a numpy array for a vector or matrix.

    `kind` is b, i or f. A declared type (`ti.Vector(..., dt=ti.f64)`) is in `dt`.
    """

    numbers: Any
    kind: str
    shape: tuple[int, ...] = ()
    dt: Scalar | None = None


Operand = Value | WeakNumbers


def operand_shape(a: Operand) -> tuple[int, ...]:
    return a.shape if isinstance(a, WeakNumbers) else shape_of(a.type)


# --- predicates and types ----------------------------------------------------------------------


def check_constants(cx: Context, args: Sequence[Any]) -> None:
    """Check the arguments of `ti.static`. Raises KernelTypeError for a kernel value or Target."""
    for k, x in enumerate(args):
        if kind_of(x).has_type:
            raise cx.fail(
                "`ti.static` needs a compile-time constant",
                kind=KernelTypeError,
                label=f"this is {name_of(x)} of the kernel",
                help="leave ti.static out: the kernel computes it",
                arg=k,
                constant=x,
            )


def dtype_of(cx: Context, t: Any) -> Scalar | Tensor:
    """Return the scalar, vector or matrix type of a user's dtype. Raises KernelTypeError."""
    if t is int:
        return cx.options.default_ip
    if t is float:
        return cx.options.default_fp
    if isinstance(t, DefaultTensor):
        return t.resolve(cx.options.default_fp, cx.options.default_ip)
    found = cook(t)
    if not isinstance(found, Scalar | Tensor):
        raise cx.fail(f"a number type such as ti.f32 is needed here, not {name_of(t)}")
    return found


# --- Python objects to values --------------------------------------------------------------------


class ConstantKind(Kind):
    """Constant numbers, vectors and matrices."""

    def own(self, cx: Any, x: Any) -> Any:
        return value(cx, x)

    def join(self, merge: Merge, a: Any, b: Any, name: str) -> Any:
        return merge.numbers(a, b, name)


class NumberKind(ConstantKind):
    """Numbers of Python and numpy: `python` is their class, `letter` that of WeakNumbers."""

    letter: str
    python: type[Any]

    def constant_name(self, x: Any) -> str:
        return repr(x)

    def weak(self, x: Any) -> WeakNumbers:
        return WeakNumbers(self.python(x), self.letter)


class BoolKind(NumberKind, of=[bool, np.bool_]):
    letter, python = "b", bool

    def shown(self, cx: Any, x: Any) -> list[Part]:
        return [show_number(x, u1)]


class IntKind(NumberKind, of=[int, np.integer]):
    letter, python = "i", int


class FloatKind(NumberKind, of=[float, np.floating]):
    letter, python = "f", float

    def shown(self, cx: Any, x: Any) -> list[Part]:
        return [show_number(as_stored(cx, x), cx.options.default_fp)]


class NumpyKind(Kind, of=[np.ndarray]):
    def name(self, x: Any) -> str:
        return "a numpy array" if type(x) is np.ndarray else super().name(x)

    def truth(self, cx: Any, x: Any) -> bool | Value:
        if x.size != 1:
            raise cx.fail(
                "a numpy array is neither true nor false",
                kind=KernelTypeError,
                help="say x.any() or x.all()",
            )
        return super().truth(cx, x)

    def join(self, merge: Merge, a: Any, b: Any, name: str) -> Any:
        is_number = self.weak(a) is not None
        return merge.numbers(a, b, name) if is_number else super().join(merge, a, b, name)

    def own(self, cx: Any, x: Any) -> Any:
        return x if self.weak(x) is None else value(cx, x)

    def weak(self, x: Any) -> WeakNumbers | None:
        return weak(x[()]) if x.ndim == 0 and x is not np.ma.masked else None

    def operand(self, cx: Any, x: Any) -> WeakNumbers:
        found = self.weak(x)
        if found is None:
            raise cx.fail(
                "a number, vector or matrix is needed here, not a numpy array",
                kind=KernelTypeError,
                help="pass arrays as kernel arguments (ti.types.ndarray), "
                "small tables as ti.Vector(...)",
            )
        return found


def weak(x: Any) -> WeakNumbers | None:
    """Return a number of Python or numpy, or a Python vector or matrix, as WeakNumbers.

    None for other objects, such as lists and numpy arrays with axes.
    """
    return kind_of(x).weak(x)


def known_int(x: Any) -> int | None:
    """Return a compile-time integer of Python or numpy; None for bools and other objects."""
    found = weak(x)
    is_int = found is not None and found.kind == "i" and not found.shape
    return found.numbers if is_int else None  # type: ignore[union-attr]


def is_number(x: Any) -> bool:
    """True for a kernel value, and for what `weak` returns as WeakNumbers."""
    return isinstance(x, Value) or weak(x) is not None


def is_tensor(x: Any) -> bool:
    """True for a vector or matrix that is a kernel value."""
    return isinstance(x, Value) and shape_of(x.type) != ()


def operand(cx: Context, x: Any) -> Operand:
    """Return x as a value or as WeakNumbers.

    A Target is read, a list becomes a vector or matrix. A bf16 is widened to f32, in which kernels
    compute. Raises KernelTypeError for other objects.
    """
    a: Operand = x if isinstance(x, Value) else kind_of(x).operand(cx, x)
    return widened(cx.b, a) if isinstance(a, Value) else a


def weak_scalar(cx: Context, x: WeakNumbers, beside: Scalar | None = None) -> Scalar:
    """Return the type that Python numbers take beside a value of type `beside`.

    Raises KernelTypeError for integers that fit neither that type nor default_ip.
    """
    if x.dt is not None:
        return x.dt if beside is None else promote_scalars(x.dt, beside)
    if x.kind == "f":
        fp = cx.options.default_fp
        return f64 if beside is f64 else fp if beside is None else promote(fp, beside)
    if x.kind == "b":
        return u1 if beside is None else beside
    ip = cx.options.default_ip
    t = ip if beside is None or beside is ip else promote(ip, beside)
    check_held(cx, x, t)
    return t


def check_held(cx: Context, x: WeakNumbers, t: Scalar) -> None:
    """Check that Python integers fit the integer type t, or default_ip (then they wrap).

    A type t of floats or bools passes. Raises KernelTypeError.
    """
    if t.kind not in "iu":
        return
    low, high = integer_range(t)
    least, most = integer_range(cx.options.default_ip)  # literals in it wrap instead
    ends = [x.numbers] if isinstance(x.numbers, int) else [x.numbers.min(), x.numbers.max()]
    for number in map(int, ends):
        if not low <= number <= high and not least <= number <= most:
            held = [
                w for w in (u32, i64, u64) if integer_range(w)[0] <= number <= integer_range(w)[1]
            ]
            raise cx.fail(
                f"{number} does not fit {t}",
                kind=KernelTypeError,
                help=f"say of which type it is: ti.{held[0]}({number})"
                if held
                else "write a float",
            )


# Largest finite value: up to it, `struct` rounds as numpy does, ten times faster.
LARGEST_F32 = 3.4028234e38
_PACK_F32 = struct.Struct("<f").pack


def constant(cx: Context, numbers: Any, t: Scalar | Tensor) -> Value:
    """Emit a constant of type t from a Python number, or from a numpy array of t's shape."""
    elem = scalar_of(t)
    if isinstance(numbers, np.ndarray):
        attr: Any = tuple([bits_in(cx, v, elem) for v in numbers.reshape(-1).tolist()])
    else:
        attr = bits_in(cx, numbers, elem)
        if isinstance(t, Tensor):
            attr = (attr,) * t.size
    return cx.b.emit("const", attr=attr, type=t)


def bits_in(cx: Context, number: Any, t: Scalar) -> int:
    """Return the bit pattern of a Python number in type t.

    Raises KernelTypeError for inf and nan as integers.
    """
    try:
        if t is f32 and -LARGEST_F32 <= number <= LARGEST_F32:
            return int.from_bytes(_PACK_F32(number), "little")
        return bits_of(number, t)
    except local(OverflowError, ValueError):
        raise cx.fail(f"{number} does not fit {t}", kind=KernelTypeError) from None


def value(cx: Context, x: Any, want: Type | None = None) -> Value:
    """Return x as an IR value of type `want`: cast, and broadcast if x is a scalar.

    Without `want`, x keeps its own type; Python numbers take default_ip, default_fp or u1. Raises
    KernelTypeError.
    """
    a = operand(cx, x)
    if want is None:
        if isinstance(a, Value):
            return a
        return constant(cx, a.numbers, with_shape(weak_scalar(cx, a), a.shape))
    if not isinstance(want, Scalar | Tensor):
        raise cx.fail(f"cannot make {want} of {name_of(x)}", kind=KernelTypeError)
    check_shape(cx, a, want)
    return put_into(cx, a, want)


def check_shape(cx: Context, a: Operand, want: Scalar | Tensor) -> None:
    """Check that an operand has the shape of a type, or is a scalar. Raises KernelTypeError."""
    shape = shape_of(want)
    own = operand_shape(a)
    if own != shape and own != ():
        raise cx.fail(
            "the shapes differ",
            kind=KernelTypeError,
            label=f"{describe(own_type(cx, a))}, where {describe(want)} is needed",
        )


def put_into(cx: Context, a: Operand, t: Scalar | Tensor) -> Value:
    """Convert an operand to type t, as `as_type`.

    Raises KernelTypeError for Python integers that fit neither t nor default_ip.
    """
    if isinstance(a, WeakNumbers) and a.kind == "i":
        check_held(cx, a, scalar_of(t))
    return as_type(cx, a, t)


def own_type(cx: Context, a: Operand) -> Scalar | Tensor:
    if isinstance(a, WeakNumbers):
        return with_shape(weak_scalar(cx, a), a.shape)
    return numeric_type_of(a)


def as_type(cx: Context, a: Operand, t: Scalar | Tensor) -> Value:
    """Convert an operand to type t of the same shape; a scalar is broadcast."""
    if isinstance(a, WeakNumbers):
        return constant(cx, a.numbers, t)
    if a.type is t:
        return a
    elem = scalar_of(t)
    if scalar_of(a.type) is not elem:
        a = cx.b.emit("cast", a, type=with_scalar(a.type, elem))
    return a if a.type is t else cx.b.emit("splat", a, type=t)


def cast(cx: Context, x: Any, t: Any) -> Value:
    """Convert the numbers of x to scalar type t, or x to tensor type t."""
    want = dtype_of(cx, t)
    a = operand(cx, x)
    if isinstance(want, Scalar):
        shape = operand_shape(a)
        return as_type(cx, a, with_shape(want, shape))
    return value(cx, x, want)


# --- lists to vectors and matrices ---------------------------------------------------------------


def tensor_of(cx: Context, items: list[Any] | tuple[Any, ...], dt: Scalar | None = None) -> Operand:
    """Make a vector from a list of numbers, a matrix from a list of rows (lists or vectors).

    Python numbers without a declared type stay weak. Otherwise the element type is `dt`, or the
    components' common type. Raises KernelTypeError for an empty list, and for rows of different
    shapes.
    """
    rows = [operand(cx, item) for item in items]
    shapes = {operand_shape(a) for a in rows}
    if not rows or len(shapes) != 1 or len(next(iter(shapes))) > 1:
        raise cx.fail(
            "a vector is made from numbers, a matrix from rows of the same length",
            kind=KernelTypeError,
            label=", ".join(describe(own_type(cx, a)) for a in rows) or "an empty list",
        )
    shape = (len(rows), *next(iter(shapes)))
    if all(isinstance(a, WeakNumbers) and a.dt is None for a in rows):
        numbers = np.array([a.numbers for a in rows])  # type: ignore[union-attr]
        if numbers.dtype.kind in "bif":
            return WeakNumbers(numbers, numbers.dtype.kind, shape, dt)
    elem = dt or common_scalar(cx, rows)
    flat: list[Value] = []
    for a in rows:
        flat.extend(components(cx, as_type(cx, a, with_shape(elem, shape[1:]))))
    return cx.b.emit("pack", *flat, type=Tensor.of(elem, shape))


def components(cx: Context, v: Value) -> list[Value]:
    """Return the scalars of a value, in row-major order; a scalar itself."""
    if not isinstance(v.type, Tensor):
        return [v]
    if getattr(v, "kind", "") == "pack":
        return list(v.args)  # type: ignore[attr-defined]
    return [cx.b.emit("extract", v, attr=k) for k in range(v.type.size)]


def common_scalar(cx: Context, operands: list[Operand]) -> Scalar:
    """Return the promoted scalar type of operands. Python numbers adapt to typed operands."""
    found: Scalar | None = None
    for a in operands:
        if isinstance(a, Value):
            elem = scalar_of(a.type)
            found = elem if found is None else promote_scalars(found, elem)
    for a in operands:
        if isinstance(a, WeakNumbers):
            found = weak_scalar(cx, a, found)
    assert found is not None
    return found


def promote_scalars(a: Scalar, b: Scalar) -> Scalar:
    """Promote as `types.promote`; a bool gives way to any other type."""
    if a is u1 or b is u1:
        return b if a is u1 else a
    return promote(a, b)
