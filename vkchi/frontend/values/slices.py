"""Slices of arrays in kernels: `m[i, :]`, `x[2:10]`, `x[:n:2]`. They refer to the array's memory.

Bounds follow Python: negative ones count from the end, and those beyond it are clipped. In a slice
indices begin at 0. There is no slice in the IR: an access to `x[2:10][k]` is one to `x[2 + k]`.

    row = m[i, :]              # SliceRef(m, (i, Run(0, 1, m.shape[1])))
    row[j] = 1                 # m[i, j] = 1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vkchi.errors import KernelIndexError, KernelTypeError, KernelValueError
from vkchi.frontend.context import Lowering
from vkchi.frontend.control.loop_limits import materialise
from vkchi.frontend.ops.debug_checks import guard_indices
from vkchi.frontend.ops.operator_lowering import binary
from vkchi.frontend.state.pending import ConversionTarget
from vkchi.frontend.values.array_values import (
    WHOLE_HELPS,
    WholeArrayKind,
    array_index,
    check_signs,
    copy_from,
    count_text,
    fill,
)
from vkchi.frontend.values.kinds import Kind, all_but, kind_of, name_of
from vkchi.frontend.values.references import Assignable, Context
from vkchi.frontend.values.tensor_values import flatten_indices
from vkchi.ir.core import Value
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, i32, i64

Index = int | Value  # a value has type i32 or i64


class Run(NamedTuple):
    """The indices `begin + k * step` of an axis, for k from 0 to `length` - 1.

    The axes of the slice have the order of `axis`.
    """

    begin: Index
    step: int
    length: Index
    axis: int


class SliceRef:
    """A part of the array, or array of structs, `base`. `axes` has an index or a Run per axis.

    `given`: the name of a view, which is a slice that Python made.
    """

    __slots__ = ("axes", "base", "first", "given")

    def __init__(
        self, cx: Context, base: Any, axes: Sequence[Index | Run], given: str = ""
    ) -> None:
        self.base, self.axes, self.given = base, tuple(axes), given
        self.first = kind_of(base).first_array(cx, base)

    @property
    def name(self) -> str:
        return self.given or f"{self.first.name}[...]"

    @property
    def value(self) -> Value:
        found: Value = self.first.value
        return found

    @property
    def runs(self) -> list[Run]:
        return sorted([run for run in self.axes if isinstance(run, Run)], key=lambda run: run.axis)

    @property
    def origin(self) -> tuple[int, ...]:
        return (0,) * len(self.runs)

    def shape(self, cx: Context) -> tuple[Index, ...]:
        return tuple([run.length for run in self.runs])


class SliceKind(WholeArrayKind, of=[SliceRef]):
    noun = "a slice of an array"
    is_deferred = is_kernels_own = True
    helps = WHOLE_HELPS
    fit_help = "give it a name of its own: a name of a slice is not assigned again"

    def array(self, cx: Any, x: Any) -> Any:
        return x

    def element_type(self, cx: Any, x: Any) -> Any:
        return kind_of(x.base).element_type(cx, x.base)

    def length(self, cx: Any, x: Any) -> Any:
        return x.runs[0].length

    def member(self, cx: Any, x: Any, name: str) -> Any:
        found = kind_of(x.base).member(cx, x.base, name)
        return None if found is None else SliceRef(cx, found, x.axes)

    def attr(self, cx: Any, x: Any, name: str, slot: Any) -> Any:
        if name == "shape":
            return x.shape(cx)
        if name == "ndim":
            return len(x.runs)
        found = self.member(cx, x, name)
        if found is not None:
            return found
        found = kind_of(x.first).attr(cx, x.first, name, None)
        return SliceRef(cx, found, x.axes) if name == "grad" and found is not None else found

    def element(self, cx: Any, x: Any, indices: list[Any]) -> Any:
        """Return the Target of an element. With `options.checks_indices`, the kernel reports
        indices outside the slice."""
        given = [] if indices == [None] else flatten_indices(cx, indices)
        check_count(cx, x, len(given))
        places = slice_axes(cx, x, given)
        return kind_of(x.base).item(cx, x.base, list(places), None)

    def target(self, x: Any) -> Any:
        return SliceTarget(x)


class ViewKind(Kind, of=["__vkchi_view__"]):
    """Views of Python. Kernels read them as slices of their bases (`Lowering.as_read`)."""

    noun = "a view of an array"
    helps = all_but(help="pass it to the kernel as an argument, or slice the array in the kernel")

    def of_view(self, cx: Any, x: Any) -> Any:
        base, axes = x.__vkchi_view__
        whole = cx.branch(x, ("attr", "base"), base)
        if not kind_of(whole).is_array:
            return None
        runs = [k if isinstance(k, int) else Run(*k) for k in axes]
        return SliceRef(cx, whole, runs)


class SliceTarget(Assignable):
    """The target of `x[...] = value`, where `x[...]` is a slice."""

    __slots__ = ("ref",)

    def __init__(self, ref: SliceRef) -> None:
        self.ref = ref


class SliceTargetKind(Kind, of=[SliceTarget]):
    is_target = True

    def held(self, x: Any) -> Any:
        return x.ref

    def fit(self, cx: Any, old: Any, x: Any, name: str, into: ConversionTarget) -> Any:
        """Copy an array of the same shape, or store a number, vector or matrix to each element."""
        if kind_of(x).is_array:
            check_copy(cx, old.ref, x)
            cx.call(copy_from, (old.ref, x), {})
        elif kind_of(x).is_container:
            raise cx.fail(
                f"a slice cannot be assigned {name_of(x)}",
                help="assign an array of its shape, or a number, vector or matrix",
            )
        else:
            cx.call(fill, (old.ref, x), {})
        return old


def check_copy(cx: Lowering, target: SliceRef, source: Any) -> None:
    """Raise KernelIndexError for different shapes, KernelTypeError for two parts of one array,
    whose iterations would conflict."""
    other = kind_of(source).first_array(cx, source)
    if other.value is target.value:
        raise cx.fail(
            f"both sides are parts of `{target.first.name}`, and the copies may conflict",
            kind=KernelTypeError,
            help="copy through another array, or write the loop",
        )
    shapes = target.shape(cx), other.shape(cx)
    pairs = list(zip(*shapes))
    if len(shapes[0]) != len(shapes[1]) or any(
        isinstance(m, int) and isinstance(n, int) and m != n for m, n in pairs
    ):
        here, there = (tuple([n if isinstance(n, int) else "?" for n in one]) for one in shapes)
        raise cx.fail(
            f"a slice of shape {here} cannot be assigned an array of shape {there}",
            kind=KernelIndexError,
            help="slice one of them, so that the shapes are equal",
        )


# --- slicing -------------------------------------------------------------------------------------


def slice_array(cx: Lowering, x: Any, indices: list[Any]) -> SliceRef:
    """Return `x[indices]`, of which one is a slice or `...`.

    Raises KernelIndexError for too many indices, KernelTypeError for arrays that have no slices.
    """
    first = kind_of(x).first_array(cx, x)
    check_sliceable(cx, first)
    extents = first.shape(cx)
    given = flatten_indices(cx, indices)
    if given.count(Ellipsis) > 1:
        raise cx.fail("more than one `...` between brackets", kind=KernelIndexError)
    missing = [slice(None)] * (len(extents) - len(given) + given.count(Ellipsis))
    at = given.index(Ellipsis) if Ellipsis in given else len(given)
    given = [*given[:at], *missing, *given[at + 1 :]]
    whole = x
    if not isinstance(x, SliceRef):
        whole = SliceRef(cx, x, [Run(0, 1, n, k) for k, n in enumerate(extents)])
    check_count(cx, whole, len(given))
    return SliceRef(cx, whole.base, slice_axes(cx, whole, given))


def check_sliceable(cx: Lowering, first: Any) -> None:
    if isinstance(first, SliceRef):
        return
    reasons = {
        "in a sparse block": bool(getattr(getattr(first.source, "node", None), "sparse_path", ())),
        "with an offset": any(first.origin),
        'with boundary="clamp"': first.clamps,
    }
    for reason in (words for words, is_so in reasons.items() if is_so):
        raise cx.fail(
            f"`{first.name}` is an array {reason}, and has no slices",
            kind=KernelTypeError,
            help="compute the indices: x[2 + k]",
        )


def check_count(cx: Lowering, x: SliceRef, count: int) -> None:
    ndim = len(x.runs)
    if count != ndim:
        axes = f"{ndim} {'axis' if ndim == 1 else 'axes'}"
        raise cx.fail(
            f"`{x.first.name if len(x.axes) == ndim else x.name}` has {axes}, and "
            f"{count_text(count)} given",
            kind=KernelIndexError,
            help="give an index for each axis that is sliced",
        )


def slice_axes(cx: Lowering, x: SliceRef, indices: Sequence[Any]) -> list[Index | Run]:
    """Return the axes of the base array for one index or slice per axis of x."""
    check_signs(cx, [k for k in indices if not isinstance(k, slice)])
    places = [k if isinstance(k, slice | int) else array_index(cx, k) for k in indices]
    if cx.options.checks_indices and not cx.cells.is_own:
        fixed = [(run, k) for run, k in zip(x.runs, places) if not isinstance(k, slice)]
        inner = SliceRef(cx, x.base, [run for run, _ in fixed], x.given)
        guard_indices(cx, inner, [array_index(cx, k) for _, k in fixed])
    by_axis = {run.axis: k for run, k in zip(x.runs, places, strict=True)}
    return [cut(cx, axis, by_axis[axis.axis]) if isinstance(axis, Run) else axis for axis in x.axes]


def cut(cx: Lowering, run: Run, k: Any) -> Index | Run:
    """Return the k-th index of a run, or for a slice k some of its indices."""
    if not isinstance(k, slice):
        return offset(cx, run, k)
    part = run_of(cx, k, run)
    return Run(offset(cx, run, part.begin), run.step * part.step, part.length, run.axis)


def offset(cx: Lowering, run: Run, k: Index) -> Index:
    found: Index = binary(cx, "*", k, run.step) if run.step != 1 else k
    found = binary(cx, "+", run.begin, found) if run.begin != 0 else found
    return found


def run_of(cx: Lowering, k: slice, run: Run) -> Run:
    """Return the indices of a slice of a run, counted in it, with Python's rules. Raises
    KernelValueError for a step that is no positive constant, and the errors of `array_index`."""
    extent, axis = run.length, run.axis
    step = 1 if k.step is None else k.step
    if not isinstance(step, int) or step < 1:
        raise cx.fail(
            "the step of a slice of an array must be a positive constant",
            kind=KernelValueError,
            help="compute the indices: x[begin + k * step]",
        )
    begin, end = clip(cx, k.start, 0, extent), clip(cx, k.stop, extent, extent)
    if isinstance(begin, int) and isinstance(end, int):
        return Run(begin, step, len(range(begin, end, step)), axis)
    t = i64 if any(isinstance(v, Value) and v.type is i64 for v in (begin, end)) else i32
    first, last = materialise(cx, begin, t), materialise(cx, end, t)
    if begin == 0 and step == 1:
        return Run(begin, step, last, axis)
    zero = cx.b.const(0, t)
    length: Value = cx.b.emit("max", cx.b.emit("sub", last, first), zero)
    if step > 1:
        length = binary(cx, "//", binary(cx, "+", length, step - 1), step)
    return Run(begin, step, length, axis)


def clip(cx: Lowering, k: Any, default: Index, extent: Index) -> Index:
    """Return a bound of a slice between 0 and the extent; negative ones count from the end."""
    if k is None:
        return default
    if isinstance(k, int) and isinstance(extent, int):
        return range(extent)[k:].start
    if isinstance(k, int) and k == 0:
        return 0
    if isinstance(k, int):
        t = i32 if -(1 << 31) <= k < 1 << 31 else i64
        moved: Value = cx.b.const(k, t)
    else:
        moved = array_index(cx, k)
        moved, t = signed(cx, moved)
    if isinstance(extent, Value) and extent.type is i64:
        t = i64
    moved, n, zero = materialise(cx, moved, t), materialise(cx, extent, t), cx.b.const(0, t)
    if not (isinstance(k, int) and k >= 0):
        is_negative = cx.b.emit("lt", moved, zero)
        moved = cx.b.emit("select", is_negative, cx.b.emit("add", moved, n), moved)
        moved = cx.b.emit("max", moved, zero)
    found: Value = cx.b.emit("min", moved, n)
    return found


def signed(cx: Lowering, v: Value) -> tuple[Value, Scalar]:
    """Return an index as i32 or i64. Those beyond exceed all extents."""
    t = v.type
    assert isinstance(t, Scalar)
    if t.kind == "i":
        return v, t
    wanted = i32 if t.bits == 32 else i64
    most = cx.b.const((1 << wanted.bits - 1) - 1, t)
    return cx.b.emit("bitcast", cx.b.emit("min", v, most), type=wanted), wanted
