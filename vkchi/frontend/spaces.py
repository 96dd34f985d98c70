"""What loops run over: ranges, `ti.ndrange`, arrays and `ti.grouped` of them, as axes of indices.

Owns: bounds as values, numbers of iterations, indices from an iteration's number (row-major: the
last axis runs fastest). Must not know: loop bodies, regions.

    space = space_of(cx, cx.expr(node.iter)); begin, end = linear_bounds(cx, space)
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from vkchi.frontend.bounds import (
    INDICES,
    INT32,
    INT64,
    Bound,
    as_bound,
    as_step,
    check_step,
    index_type,
    is_given,
    materialise,
    same_type,
    static_bound,
    unsigned,
)
from vkchi.frontend.context import Lowering, array_like
from vkchi.frontend.operands import describe, name_of
from vkchi.frontend.records import first_array, is_struct_array
from vkchi.frontend.textures import TextureRef
from vkchi.ir.constants import constant_int
from vkchi.ir.core import Value
from vkchi.lang.ndrange import grouped, ndrange
from vkchi.target.shader import trip_count
from vkchi.types import Array, Scalar, Tensor, i32, i64, u32, u64

TOO_LONG = "this loop has more iterations than can be counted: split it"


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
    def index_type(self) -> Scalar:
        """The type of all its indices."""
        return index_type(*[bound for ends in self.axes for bound in ends], self.step)

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
        fixed = static_bound(cx, x.start), static_bound(cx, x.stop)
        return Space((fixed,), "range", check_step(cx, x.step))
    if isinstance(x, RangeOf):
        ends = same_type(cx, as_bound(cx, x.begin), as_bound(cx, x.end))
        return Space((ends,), "range", as_step(cx, x.step))
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


# --- lengths -------------------------------------------------------------------------------------


def extent_of(cx: Lowering, axis: tuple[Bound, Bound]) -> Bound:
    """How many steps an axis has, 0 at least: an int, or a value of i32, u32, i64 or u64."""
    begin, end = axis
    if isinstance(begin, int) and isinstance(end, int):
        return max(0, end - begin)
    t = index_type(begin, end)
    first, last = materialise(cx, begin, t), materialise(cx, end, t)
    if not isinstance(begin, int) or begin < 0:
        return cx.b.emit("trip_count", first, last, cx.b.const(1, t))
    last = cx.b.emit("max", last, first)
    return cx.b.emit("sub", last, first) if begin else last


def stepped_count(cx: Lowering, space: Space) -> Bound:
    """How many iterations a range with a step has: an int, or a value of u32 or u64."""
    (begin, end), step = space.axes[0], space.step
    if isinstance(begin, int) and isinstance(end, int) and isinstance(step, int):
        return trip_count(begin, end, step)
    t = space.index_type
    first, last = materialise(cx, begin, t), materialise(cx, end, t)
    if isinstance(step, int) or step.type in (i32, i64):
        return cx.b.emit("trip_count", first, last, materialise(cx, step, t))
    length = cx.b.emit("trip_count", first, last, cx.b.const(1, t))
    by = materialise(cx, step, unsigned(t))
    return cx.b.emit("trip_count", cx.b.const(0, unsigned(t)), length, by)


def product(cx: Lowering, extents: tuple[Bound, ...]) -> Bound:
    """The number of iterations of all axes together: an int, or a value of i32 or i64. More than
    that holds are none, where the host does not see it: debug mode reports it."""
    static = math.prod(e for e in extents if isinstance(e, int))
    values = [e for e in extents if isinstance(e, Value)]
    if not values or static == 0:
        return static_bound(cx, static)
    t = index_type(*values, static_bound(cx, static))
    factors = [materialise(cx, e, t) for e in values]
    factors += [cx.b.const(static, t)] if static != 1 else []
    total = factors[0]
    for factor in factors[1:]:
        total = cx.b.emit("mul", total, factor)
    is_certain = len(factors) == 1 and values[0].type is t
    return total if is_certain or is_given(total) else guarded(cx, total, factors)


def guarded(cx: Lowering, total: Value, factors: list[Value]) -> Value:
    """The product of numbers that are not negative, 0 where its type does not hold it."""
    t = total.type
    assert isinstance(t, Scalar)
    most = cx.b.const(INDICES[t][-1], unsigned(t))
    one, zero = cx.b.const(1, unsigned(t)), cx.b.const(0, unsigned(t))
    parts = [cx.b.emit("bitcast", factor, type=unsigned(t)) for factor in factors]
    so_far = parts[0]
    fits = cx.b.emit("le", so_far, most)
    for part in parts[1:]:
        limit = cx.b.emit("floordiv", most, cx.b.emit("max", part, one))
        fits = cx.b.emit("and", fits, cx.b.emit("le", so_far, limit))
        so_far = cx.b.emit("mul", so_far, part)
    if cx.options.debug:
        ok = fits
        for part in parts:
            ok = cx.b.emit("or", ok, cx.b.emit("eq", part, zero))
        cx.reports.emit_unless(cx, ok, "range", [TOO_LONG])
    return cx.b.emit("select", fits, total, cx.b.const(0, t))


# --- iterations and indices ----------------------------------------------------------------------


class Linear(NamedTuple):
    """A space as one count: iterations from `begin` to `end`; `extents` of the axes to find the
    indices of an iteration by, empty where it is the index."""

    begin: Value
    end: Value
    extents: tuple[Bound, ...] = ()

    @property
    def type(self) -> Scalar:
        """Of the count."""
        assert isinstance(self.begin.type, Scalar)
        return self.begin.type


def linear_bounds(cx: Lowering, space: Space) -> Linear:
    """The space as one count, of 32 bits where that is enough, else of 64."""
    if space.is_plain:
        t = space.index_type
        begin, end = [materialise(cx, bound, t) for bound in space.axes[0]]
        return Linear(begin, end)
    if space.name == "range":
        total = stepped_count(cx, space)
        t = count_type(total, space.index_type)
        return Linear(cx.b.const(0, t), materialise(cx, total, t))
    extents: tuple[Bound, ...] = tuple([d.values for d in space.digits])
    extents = extents or tuple([extent_of(cx, axis) for axis in space.axes])
    total = product(cx, extents)
    t = count_type(total, i32)
    return Linear(cx.b.const(0, t), materialise(cx, total, t), extents)


def count_type(total: Bound, index: Scalar) -> Scalar:
    """The type that counts iterations: i32 where that holds as many, and the index."""
    if isinstance(total, Value):
        assert isinstance(total.type, Scalar)
        return total.type
    if index is i64 or total not in INT32:
        return u64 if total not in INT64 else u32 if index is i32 and total < 1 << 32 else i64
    return i32


def parallel_bounds(cx: Lowering, space: Space) -> Linear:
    """The space as a count of i32, or of i64 or u64 where that may not count it."""
    linear = linear_bounds(cx, space)
    if linear.type.bits == 64:
        return linear
    begin, end = linear.begin, linear.end
    first, last = constant_int(begin), constant_int(end)
    if first is not None and last is not None:
        if last - first in INT32:
            return linear
        return linear._replace(begin=cx.b.const(first, i64), end=cx.b.const(last, i64))
    if linear.type is i32:
        return linear
    end = cx.b.emit("bitcast", end, type=i32)
    if is_given(end) or is_short(space):
        return linear._replace(begin=cx.b.const(0, i32), end=end)
    # what a u32 counts, from the least i32 on
    least = cx.b.const(INT32[0], i32)
    return linear._replace(begin=least, end=cx.b.emit("xor", end, least))


def is_short(space: Space) -> bool:
    """Whether an i32 surely counts the iterations of a range of i32."""
    (begin, end), step = space.axes[0], space.step
    if not isinstance(step, int):
        return False
    low, high = (begin, end) if step > 0 else (end, begin)
    least = low if isinstance(low, int) else INT32[0]
    most = high if isinstance(high, int) else INT32[-1]
    return trip_count(least, most, abs(step)) in INT32


def indices_of(cx: Lowering, space: Space, k: Value, linear: Linear) -> list[Value]:
    """The indices of iteration k."""
    if space.is_plain:
        return [k if k.type is space.index_type else materialise(cx, k, space.index_type)]
    if space.name == "range":
        return [stepped_index(cx, space, k, linear)]
    found: list[Value] = []
    extents = linear.extents
    for axis in reversed(range(len(extents))):
        extent, index = extents[axis], k
        if axis > 0:
            assert isinstance(k.type, Scalar)
            size = materialise(cx, extent, k.type)
            index, k = cx.b.emit("rem", k, size), cx.b.emit("truncdiv", k, size)
        found.append(index)
    found = join_digits(cx, space, found[::-1]) if space.digits else found[::-1]
    return [shift(cx, index, ends[0]) for index, ends in zip(found, space.axes)]


def stepped_index(cx: Lowering, space: Space, k: Value, linear: Linear) -> Value:
    """The index of iteration k of a range. What wraps on the way there wraps back."""
    t = space.index_type
    if k.type is i32 and constant_int(linear.begin) != 0:
        k = cx.b.emit("xor", k, linear.begin)
    moved = cx.b.emit("mul", materialise(cx, k, t), materialise(cx, space.step, t))
    return shift(cx, moved, space.axes[0][0])


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
