"""Iteration spaces of loops: ranges, `ti.ndrange`, arrays and `ti.grouped` of them.

A space has one begin and end per axis. A range with a step other than 1 is counted by its trip
count.

    space = space_of(cx, cx.expr(node.iter)); begin, end = bounds_of(cx, space)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkchi.frontend.context import Lowering
from vkchi.frontend.control.loop_limits import (
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
from vkchi.frontend.values.kinds import (
    Kind,
    all_but,
    check_supported,
    is_iterable,
    is_static,
    kind_of,
    name_of,
    unsupported_use,
)
from vkchi.frontend.values.operands import is_tensor
from vkchi.ir.core import Value, constant_int
from vkchi.lang.ndrange import grouped, ndrange
from vkchi.target.shader import range_length
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, i32, i64, scalar_of, u32, u64

if TYPE_CHECKING:
    from vkchi.frontend.values.cell_activity import ActivityTest

TOO_LONG = "this loop has more iterations than can be counted: split it"


class LoopSpace(NamedTuple):
    """An iteration space: axes (begin, end).

    Only a range has a `step`. `name` is range, ndrange or array. `guard` tests if the cell of a
    sparse block at an index is active. `axes` are from the slowest to the fastest; `order` has the
    user's axis of each, if that is another one.
    """

    axes: tuple[tuple[Bound, Bound], ...]
    name: str
    step: Bound = 1
    is_grouped: bool = False
    guard: ActivityTest | None = None
    order: tuple[int, ...] = ()

    @property
    def index_type(self) -> Scalar:
        """The integer type of the indices: i64 if a bound or the step has 64 bits, else i32.

        A constant has 64 bits if it does not fit i32. An unsigned step may exceed the type;
        products with it wrap.
        """
        return index_type(*[bound for ends in self.axes for bound in ends], self.step)

    @property
    def is_plain(self) -> bool:
        """True if the index of the lowered loop is the user's index: one axis with step 1."""
        return len(self.axes) == 1 and isinstance(self.step, int) and self.step == 1

    def axis(self, k: int) -> int:
        """The user's axis of the k-th one of the lowered loop."""
        return self.order[k] if self.order else k


class RangeOf:
    """`range(begin, end, step)` in which at least one argument is not a Python int."""

    __slots__ = ("begin", "end", "step")

    def __init__(self, begin: Any, end: Any, step: Any = 1) -> None:
        self.begin, self.end, self.step = begin, end, step


class RangeKind(Kind, of=[RangeOf]):
    is_deferred = True
    noun = "a range of kernel values"
    helps = all_but(
        "loop", help="loop over it at run time: for i in range(n)",
        length="compute it from the bounds: ti.max(end - begin, 0)",
        truth="compare the bounds: begin < end",
        search="compare with the bounds: begin <= x and x < end",
        index="compute the item: begin + k * step",
        items="loop over it at run time: for i in range(n)",
    )  # fmt: skip

    def children(self, x: Any) -> list[Any]:
        return [x.begin, x.end, x.step]

    def space(self, cx: Any, x: Any) -> LoopSpace:
        ends = same_type(cx, as_bound(cx, x.begin), as_bound(cx, x.end))
        return LoopSpace((ends,), "range", as_step(cx, x.step))


class PythonRangeKind(Kind, of=[range]):
    def space(self, cx: Any, x: Any) -> LoopSpace:
        fixed = static_bound(cx, x.start), static_bound(cx, x.stop)
        return LoopSpace((fixed,), "range", check_step(cx, x.step))


class NdrangeKind(Kind, of=[ndrange]):
    noun = "a loop space"
    helps = all_but("loop", "items", "unpack", help="loop over it: for i in x")

    def is_static(self, x: Any) -> bool:
        return is_static(x.bounds)

    def space(self, cx: Any, x: Any) -> LoopSpace:
        axes = [(as_bound(cx, b, i32), as_bound(cx, e, i32)) for b, e in x.bounds]
        if x.axes == tuple(range(len(axes))):
            return LoopSpace(tuple(axes), "ndrange")
        return LoopSpace(tuple([axes[k] for k in x.axes]), "ndrange", order=x.axes)


class GroupedKind(NdrangeKind, of=[grouped]):
    def is_static(self, x: Any) -> bool:
        return is_static(x.inner)

    def items(self, cx: Any, x: Any, use: str) -> list[Any] | None:
        check_supported(cx, x.inner, use)
        return super().items(cx, x, use)

    def space(self, cx: Any, x: Any) -> LoopSpace:
        inner = space_of(cx, x.inner)
        if inner.name == "range":
            raise cx.fail("ti.grouped takes an ndrange or an array, not a range")
        return inner._replace(is_grouped=True)


def space_of(cx: Lowering, x: Any) -> LoopSpace:
    """Return the iteration space of a loop over x.

    Raises KernelTypeError if there is none, and the errors of `as_bound` and `as_step`.
    """
    space = kind_of(x).space(cx, x)
    if not isinstance(space, LoopSpace):
        raise cannot_loop(cx, x)
    return space


def cannot_loop(cx: Lowering, x: Any) -> Exception:
    if is_tensor(x):
        return cx.fail(
            f"cannot loop over {name_of(x)}",
            help=f"loop over its indices: ti.static(range({x.type.n}))",
        )
    if kind_of(x).is_sequence and x and all(isinstance(r, range | RangeOf) for r in x):
        return cx.fail(
            f"cannot loop over {len(x)} ranges in one {type(x).__name__}",
            help=f"loop over all pairs of their indices: {_as_ndrange(x)}",
        )
    is_unrolled = not kind_of(x).helps_of(x) and is_iterable(x)
    return (
        cx.fail(
            f"cannot loop over {name_of(x)} at run time",
            help="unroll the loop: for ... in ti.static(...)",
        )
        if is_unrolled
        else unsupported_use(cx, x, "loop")
    )


def _as_ndrange(ranges: Sequence[range | RangeOf]) -> str:
    """Return a `ti.ndrange(...)` for a help text; n, m and k are the names of run-time ranges."""
    axes = []
    for r, name in zip(ranges, "nmk" + "k" * len(ranges)):
        if isinstance(r, RangeOf):
            axes.append(name)
        else:
            axes.append(f"({r.start}, {r.stop})" if r.start else str(r.stop))
    return f"ti.ndrange({', '.join(axes)})"


# --- lengths -------------------------------------------------------------------------------------


def stepped_count(cx: Lowering, space: LoopSpace) -> Bound:
    """Return the trip count of a range with a step: an int, or a value of u32 or u64."""
    (begin, end), step = space.axes[0], space.step
    if isinstance(begin, int) and isinstance(end, int) and isinstance(step, int):
        return range_length(begin, end, step)
    t = space.index_type
    first, last = materialise(cx, begin, t), materialise(cx, end, t)
    if isinstance(step, int) or step.type in (i32, i64):
        return cx.b.emit("trip_count", first, last, materialise(cx, step, t))
    length = cx.b.emit("trip_count", first, last, cx.b.const(1, t))
    by = materialise(cx, step, unsigned(t))
    return cx.b.emit("trip_count", cx.b.const(0, unsigned(t)), length, by)


# --- iterations and indices ----------------------------------------------------------------------


def bounds_of(cx: Lowering, space: LoopSpace) -> list[Value]:
    """Return begin and end of every axis in turn.

    For a range with a step other than 1, they are 0 and its trip count.
    """
    if space.name == "range" and not space.is_plain:
        total = stepped_count(cx, space)
        t = count_type(total, space.index_type)
        return [cx.b.const(0, t), materialise(cx, total, t)]
    found: list[Value] = []
    for ends in space.axes:
        t = index_type(*ends)
        found += [materialise(cx, bound, t) for bound in ends]
    return found


def count_type(total: Bound, index: Scalar) -> Scalar:
    """Return the type of the iteration counter: that of a count that is a value, else by size.

    It is i32 if that can represent the count and the index; otherwise u32, i64 or u64.
    """
    if isinstance(total, Value):
        return scalar_of(total.type)
    if index is i64 or total not in INT32:
        return u64 if total not in INT64 else u32 if index is i32 and total < 1 << 32 else i64
    return i32


def parallel_bounds(cx: Lowering, space: LoopSpace) -> list[Value]:
    """Return the bounds of a parallel loop: `bounds_of`, as i32 or i64, with at least one axis.

    A u32 count may be mapped to a range from -2**31. A u64 count beyond i64 is clamped. Raises
    KernelValueError for constant lengths whose product is beyond i64.
    """
    bounds = bounds_of(cx, space)
    if not bounds:
        return [cx.b.const(0, i32), cx.b.const(1, i32)]
    static_bound(cx, math.prod(static_lengths(bounds)))
    end = bounds[-1]
    if end.type is u64:
        most = cx.b.const(INT64[-1], u64)
        end = cx.b.emit("bitcast", cx.b.emit("min", end, most), type=i64)
        return [cx.b.const(0, i64), end]
    if end.type is not u32:
        return bounds
    total = constant_int(end)
    if total is not None and total not in INT32:
        return [cx.b.const(0, i64), cx.b.const(total, i64)]
    end = cx.b.emit("bitcast", end, type=i32)
    if is_given(end) or is_short(space):
        return [cx.b.const(0, i32), end]
    # map the u32 count to i32 by an offset of 2**31
    least = cx.b.const(INT32[0], i32)
    return [least, cx.b.emit("xor", end, least)]


def static_lengths(bounds: Sequence[Value]) -> list[int]:
    ends = [(constant_int(begin), constant_int(end)) for begin, end in zip(*[iter(bounds)] * 2)]
    return [max(0, end - begin) for begin, end in ends if begin is not None and end is not None]


def is_counted_wide(bounds: Sequence[Value]) -> bool:
    """True if a loop over these bounds is known to need a 64-bit counter."""
    known = static_lengths(bounds)
    is_known = len(known) * 2 == len(bounds) and math.prod(known) not in INT32
    return is_known or any(v.type is i64 for v in bounds)


def is_short(space: LoopSpace) -> bool:
    """True if it is proved that i32 can represent the trip count of an i32 range."""
    (begin, end), step = space.axes[0], space.step
    if not isinstance(step, int):
        return False
    low, high = (begin, end) if step > 0 else (end, begin)
    least = low if isinstance(low, int) else INT32[0]
    most = high if isinstance(high, int) else INT32[-1]
    return range_length(least, most, abs(step)) in INT32


def indices_of(
    cx: Lowering, space: LoopSpace, numbers: Sequence[Value], begin: Value | None = None
) -> list[Value]:
    """Return the user's indices in one iteration, from the indices of the lowered loop.

    For a range with a step, `begin` is the first value of a parallel loop's counter. Axes in
    another `order` get the user's order.
    """
    if space.name == "range" and not space.is_plain:
        return [stepped_index(cx, space, numbers[0], begin)]
    if space.order:
        return [numbers[space.order.index(k)] for k in range(len(space.order))]
    return list(numbers)


def stepped_index(cx: Lowering, space: LoopSpace, k: Value, begin: Value | None) -> Value:
    """Return the index of a range in the iteration whose counter is k, which starts at `begin`.

    Intermediate wrap-around cancels out.
    """
    t = space.index_type
    if k.type is i32 and begin is not None and constant_int(begin) != 0:
        k = cx.b.emit("xor", k, begin)
    moved = cx.b.emit("mul", materialise(cx, k, t), materialise(cx, space.step, t))
    return shift(cx, moved, space.axes[0][0])


def shift(cx: Lowering, index: Value, begin: Bound) -> Value:
    if isinstance(begin, int) and begin == 0:
        return index
    return cx.b.emit("add", index, materialise(cx, begin, scalar_of(index.type)))
