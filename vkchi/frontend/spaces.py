"""What loops run over: ranges, `ti.ndrange`, arrays and `ti.grouped` of them, as axes of indices.

Owns: bounds as values, numbers of iterations, indices from an iteration's number (row-major: the
last axis runs fastest). Must not know: loop bodies, regions.

    space = space_of(cx, cx.expr(node.iter)); begin, end = linear_bounds(cx, space)
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from vkchi.frontend import arith
from vkchi.frontend.context import Lowering, array_like
from vkchi.frontend.operands import describe, name_of
from vkchi.frontend.records import first_array, is_struct_array
from vkchi.frontend.textures import TextureRef
from vkchi.ir.core import Value
from vkchi.lang.ndrange import grouped, ndrange
from vkchi.types import Array, Scalar, Tensor, i32, i64

Bound = int | Value
_INT32 = range(-(1 << 31), 1 << 31)


class RangeOf(NamedTuple):
    """`range(begin, end, step)` with bounds that are not known while compiling."""

    begin: Any
    end: Any
    step: Any = 1


class Digit(NamedTuple):
    """A part of an axis's index: `weight` times a number below `values`."""

    axis: int
    values: int
    weight: int


class Space(NamedTuple):
    """Axes (begin, end). `step` only of a range. `name` is what the user wrote, for messages.
    `digits`, the slowest first, say how iterations are counted where the last axis is not the
    fastest: as the array lies in memory."""

    axes: tuple[tuple[Bound, Bound], ...]
    name: str
    step: Bound = 1
    is_grouped: bool = False
    digits: tuple[Digit, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether the index is the iteration: one axis, every step."""
        return len(self.axes) == 1 and isinstance(self.step, int) and self.step == 1


def space_of(cx: Lowering, x: Any) -> Space:
    """The space that a loop over x runs through. Raises KernelTypeError if there is none."""
    if isinstance(x, grouped):
        inner = space_of(cx, x.inner)
        if inner.name == "range":
            raise cx.fail("ti.grouped takes an ndrange or an array, not a range")
        return inner._replace(is_grouped=True)
    if isinstance(x, range):
        return Space(((x.start, x.stop),), "range", x.step)
    if isinstance(x, RangeOf):
        ends = same_type(cx, as_bound(cx, x.begin), as_bound(cx, x.end))
        return Space((ends,), "range", as_bound(cx, x.step))
    if isinstance(x, TextureRef):
        x = ndrange(*x.shape)
    if isinstance(x, ndrange):
        axes = [(as_bound(cx, b, i32), as_bound(cx, e, i32)) for b, e in x.bounds]
        return Space(tuple(axes), "ndrange")
    if hasattr(x, "__vkchi_space__"):  # a block of a field tree
        return Space(x.__vkchi_space__(), "array")
    array = first_array(cx, x) if is_struct_array(x) else array_like(cx, x)
    if array is not None:
        extents: tuple[Any, ...] = array.shape(cx)
        if array.type.wide:
            extents = tuple([materialise(cx, extent, i64) for extent in extents])
        axes = [_axis(start, extent) for start, extent in zip(array.origin, extents)]
        return Space(tuple(axes), "array", digits=memory_order(array.type))
    raise cannot_loop(cx, x)


def memory_order(t: Array) -> tuple[Digit, ...]:
    """The digits of an array's indices by falling stride; () where one per axis, in the axes'
    order, is that. Neighbouring invocations reach neighbouring elements so."""
    if t.layout is None or t.shape is None or t.ndim < 2:
        return ()
    terms = [(axis, term) for axis, found in enumerate(t.layout.axes) for term in found]
    terms.sort(key=lambda pair: -pair[1].stride)
    digits = tuple(
        Digit(axis, term.modulus or -(-t.shape[axis] // term.divisor), term.divisor)
        for axis, term in terms
    )
    return () if [d.axis for d in digits] == list(range(t.ndim)) else digits


def _axis(start: int, extent: Any) -> tuple[Bound, Bound]:
    return (start, start + extent if isinstance(extent, int) else extent)


def cannot_loop(cx: Lowering, x: Any) -> Exception:
    """The error for a loop over what has no indices."""
    if isinstance(x, Value):
        t = x.type
        words = describe(t) if isinstance(t, Scalar | Tensor) else "value"
        length = t.n if isinstance(t, Tensor) else 0
        return cx.fail(
            f"cannot loop over a {words}",
            help=f"loop over its indices: ti.static(range({length}))" if length else
            "did you mean range(...)?",
        )  # fmt: skip
    is_python = hasattr(x, "__iter__")
    return cx.fail(
        f"cannot loop over {name_of(x)} at run time",
        help="unroll the loop: for ... in ti.static(...)" if is_python else "",
    )


# --- bounds --------------------------------------------------------------------------------------


def as_bound(cx: Lowering, x: Any, want: Scalar | None = None) -> Bound:
    """A bound as an int or a value of i32 or i64 (or `want`); floats lose their fraction."""
    if isinstance(x, bool | int):
        return int(x)
    if isinstance(x, float):
        return int(x)
    if isinstance(x, Value) and isinstance(x.type, Scalar):
        t = want or (i64 if x.type.bits == 64 and x.type.kind in "iu" else i32)
        return arith.cast(cx, x, t)
    words = name_of(x)
    raise cx.fail("bounds of a loop must be integers", label=words)


def same_type(cx: Lowering, begin: Bound, end: Bound) -> tuple[Bound, Bound]:
    """Both bounds as i64 if one is."""
    if any(isinstance(b, Value) and b.type is i64 for b in (begin, end)):
        return tuple([materialise(cx, b, i64) for b in (begin, end)])  # type: ignore[return-value]
    return begin, end


def materialise(cx: Lowering, bound: Bound, t: Scalar) -> Value:
    """A bound as a value of type t."""
    if isinstance(bound, int):
        return cx.b.const(bound, t)
    return bound if bound.type is t else arith.cast(cx, bound, t)


def index_type(*bounds: Bound) -> Scalar:
    """The type that counts between these bounds: i32 where that is enough."""
    for bound in bounds:
        if bound not in _INT32 if isinstance(bound, int) else bound.type is i64:
            return i64
    return i32


def extent_of(cx: Lowering, axis: tuple[Bound, Bound]) -> Bound:
    """How many steps an axis has, 0 at least."""
    begin, end = axis
    if isinstance(begin, int) and isinstance(end, int):
        return max(0, end - begin)
    t = index_type(begin, end)
    length = materialise(cx, end, t)
    if not isinstance(begin, int) or begin != 0:
        length = cx.b.emit("sub", length, materialise(cx, begin, t))
    return cx.b.emit("max", length, cx.b.const(0, t))


def stepped_count(cx: Lowering, space: Space) -> Bound:
    """How many iterations a range with a step has; may be negative where it has none."""
    (begin, end), step = space.axes[0], space.step
    if isinstance(step, int) and step == 0:
        raise cx.fail("the step of a range cannot be 0")
    if isinstance(begin, int) and isinstance(end, int) and isinstance(step, int):
        return len(range(begin, end, step))
    t = index_type(begin, end, step)
    ends = [materialise(cx, bound, t) for bound in (end, begin)]
    length, by = cx.b.emit("sub", *ends), materialise(cx, step, t)
    if isinstance(step, int):
        extra: Value = cx.b.const(step - (1 if step > 0 else -1), t)
    else:
        extra = cx.b.emit("sub", by, cx.b.emit("sign", by))
    return cx.b.emit("floordiv", cx.b.emit("add", length, extra), by)


# --- iterations and indices ----------------------------------------------------------------------


class Linear(NamedTuple):
    """A space as one count: iterations from `begin` to `end`; `extents` of the axes to find the
    indices of an iteration by, empty where it is the index."""

    begin: Value
    end: Value
    extents: tuple[Bound, ...]


def linear_bounds(cx: Lowering, space: Space) -> Linear:
    """The space as one count, of i32 where that is enough, else of i64."""
    if space.is_plain:
        begin, end = space.axes[0]
        t = index_type(begin, end)
        return Linear(materialise(cx, begin, t), materialise(cx, end, t), ())
    if space.name == "range":
        extents: tuple[Bound, ...] = ()
        total = stepped_count(cx, space)
    else:
        extents = tuple([d.values for d in space.digits])
        extents = extents or tuple([extent_of(cx, axis) for axis in space.axes])
        total = product(cx, extents)
    t = index_type(total)
    return Linear(cx.b.const(0, t), materialise(cx, total, t), extents)


def product(cx: Lowering, extents: tuple[Bound, ...]) -> Bound:
    """The number of iterations of all axes together."""
    static = math.prod(e for e in extents if isinstance(e, int))
    total: Value | None = None
    for extent in extents:
        if isinstance(extent, Value):
            total = extent if total is None else cx.b.emit("mul", total, extent)
    if total is None or static == 0:
        return static
    if static == 1:
        return total
    assert isinstance(total.type, Scalar)
    return cx.b.emit("mul", total, materialise(cx, static, total.type))


def indices_of(cx: Lowering, space: Space, k: Value, extents: tuple[Bound, ...]) -> list[Value]:
    """The indices of iteration k of a Linear with these extents."""
    if space.is_plain:
        return [k]
    if space.name == "range":
        t = k.type
        assert isinstance(t, Scalar)
        moved = cx.b.emit("mul", k, materialise(cx, space.step, t))
        return [shift(cx, moved, space.axes[0][0])]
    found: list[Value] = []
    for axis in reversed(range(len(extents))):
        extent, index = extents[axis], k
        if axis > 0:
            assert isinstance(k.type, Scalar)
            size = materialise(cx, extent, k.type)
            index, k = cx.b.emit("rem", k, size), cx.b.emit("truncdiv", k, size)
        found.append(index)
    found = join_digits(cx, space, found[::-1]) if space.digits else found[::-1]
    return [shift(cx, index, ends[0]) for index, ends in zip(found, space.axes)]


def join_digits(cx: Lowering, space: Space, values: list[Value]) -> list[Value]:
    """The indices, counted from 0, whose digits have these values."""
    found: dict[int, Value] = {}
    for digit, v in zip(space.digits, values):
        assert isinstance(v.type, Scalar)
        if digit.weight != 1:
            v = cx.b.emit("mul", v, cx.b.const(digit.weight, v.type))
        found[digit.axis] = cx.b.emit("add", found[digit.axis], v) if digit.axis in found else v
    return [found[axis] for axis in range(len(space.axes))]


def shift(cx: Lowering, index: Value, begin: Bound) -> Value:
    """An index counted from 0, counted from `begin`."""
    if isinstance(begin, int) and begin == 0:
        return index
    t = index.type
    assert isinstance(t, Scalar)
    return cx.b.emit("add", index, materialise(cx, begin, t))
