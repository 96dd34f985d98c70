"""Views: parts of arrays that share their memory, as slices of numpy arrays do.

A view has no memory of its own. Kernels take its base, and the numbers that map an index of the
view to one of the base. Tapes therefore see accesses to the base.

    v = x[2:10:2]           # View(x, (Run(2, 2, 4, 0),)), of shape (4,)
    v[1] = 5.0              # x[4] = 5.0
    m[:, 3].to_numpy()      # View(m, (Run(0, 1, m.shape[0], 0), 3))
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from math import gcd
from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentError, ArrayIndexTypeError, InternalError, KernelBoundsError
from vkchi.fields.elements import ArrayAccess, check_integer
from vkchi.fields.python_scope import missing_member
from vkchi.fields.storage import Storage
from vkchi.fields.trees.tree_layout import BufferView
from vkchi.hooks import Hook
from vkchi.interop import host_views
from vkchi.interrupts.local import local
from vkchi.runtime import init_arguments
from vkchi.tuples import NamedTuple
from vkchi.types import Affine, AxisTerm, Scalar, Tensor
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vkchi.types.hints import ScalarDType


class Run(NamedTuple):
    """The indices `begin + k * step` of an axis of the base, for k from 0 to `length` - 1, which is
    the index of axis `axis` of the view."""

    begin: int
    step: int
    length: int
    axis: int


MOST_INDEX = 2**31 - 1
# Attributes that are set at the first access to elements or contents.
LAID_OUT = frozenset(
    ("layout", "size_bytes", "digits", "steps", "buffer", "is_own", "_ends", "_axes", "_is_direct")
)


class ViewHook:
    """Hooks for code of higher layers: new ndarrays."""

    ndarray, restore = Hook("ndarray"), Hook("restore an ndarray")


class View(Storage):
    """A part of the array `base`. `axes` has an index or a Run per axis of the base.

    Preconditions: the base is no view, and its layout has one stride per axis.
    """

    origin_name = "view of a "
    _is_quick = False
    _form: tuple[tuple[int, int, bool], ...] | None = None
    _numbers_of_axes: tuple[int, ...] | None = None

    def __init__(self, base: Storage, axes: Sequence[int | Run]) -> None:
        check_base(base)
        self.base, self.axes, self.token = base, tuple(axes), object()
        self._parts: dict[str, View] = {}  # views of the companions, by kind
        self.runtime, self.elem, self.device = base.runtime, base.elem, base.device
        self.number, self.stored, self.components = base.number, base.stored, base.components
        self.is_scalar = base.is_scalar
        runs = [axis for axis in self.axes if isinstance(axis, Run)]
        lengths = {run.axis: run.length for run in runs}
        self._shape = tuple([lengths[k] for k in range(len(runs))])

    def _locate(self) -> None:
        """Set the layout, and attach the view to its part of the base's buffer."""
        base, start, last = self.base, 0, 0
        strides = [0] * len(self._shape)
        for axis, stride in zip(self.axes, base.steps or (), strict=True):
            if isinstance(axis, Run):
                strides[axis.axis] = axis.step * stride
                start += axis.begin * stride
                last += (axis.length - 1) * axis.step * stride
            else:
                start += axis * stride
        is_empty = 0 in self._shape
        components = base.layout.components
        terms = tuple([(AxisTerm(1, 0, stride),) for stride in strides])
        size = 0 if is_empty else last + components[-1] + 1
        self.arrange(self._shape, Affine(terms, components, size))
        begin = 0 if is_empty else start * self.stored.size_bytes
        self.attach(BufferView(base.buffer, begin, self.size_bytes), is_own=False)
        if getattr(base, "node", None) is not None:
            note_view(base, self)

    @property
    def kind_name(self) -> str:  # type: ignore[override]
        return self.base.kind_name

    @property
    def whole(self) -> Any:
        return self.base.whole

    @property
    def watch(self) -> Any:  # type: ignore[override]
        return self.base.watch

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes between adjacent elements, along each axis."""
        found = [0] * len(self._shape)
        for axis, stride in zip(self.axes, self.base.steps or (), strict=True):
            if isinstance(axis, Run):
                found[axis.axis] = axis.step * stride * self.stored.size_bytes
        return tuple(found)

    @property
    def form(self) -> tuple[tuple[int, int, bool], ...]:
        """The part of the axes that code of kernels depends on, per axis of the base: the axis of
        the view, or -1 for one index; the step; True if all indices are used."""
        if self._form is None:
            self._form = tuple(map(form_of_axis, self.axes, self.base.shape))
        return self._form

    @property
    def numbers(self) -> tuple[int, ...]:
        """The rest of the axes, which kernels take as i32 arguments: the first index of each axis
        that is not used whole, and for a run the length. Raises ArgumentError for larger ones."""
        if self._numbers_of_axes is None:
            found = list[int]()
            for axis, (_, _, is_whole) in zip(self.axes, self.form, strict=True):
                found += (axis,) if isinstance(axis, int) else () if is_whole else axis[::2]
            if max(found, default=0) > MOST_INDEX:
                raise ArgumentError(
                    f"a view that begins or has extents beyond {MOST_INDEX} is no argument of a "
                    "kernel\nhelp: pass the array itself and the bounds as ti.i64, or a copy"
                )
            self._numbers_of_axes = tuple(found)
        return self._numbers_of_axes

    @property
    def life(self) -> Any:
        """Lifetime token of the base."""
        return getattr(self.base, "life", None)

    @property
    def __vkchi_view__(self) -> tuple[Storage, tuple[int | Run, ...]]:
        """The base and the axes. Kernels do not distinguish views where both are equal."""
        return self.base, self.axes

    @property
    def grad(self) -> View | None:
        """The part of the base's gradient; None without one."""
        return self._companion("grad")

    @property
    def dual(self) -> View | None:
        """The part of the base's dual; None without one."""
        return self._companion("dual")

    def _companion(self, kind: str) -> View | None:
        whole = self.base.companion(kind)
        if whole is None:
            return None
        found = self._parts.get(kind)
        if found is None or found.base is not whole:
            found = self._parts[kind] = self.like(whole)
        return found

    @property
    def element_type(self) -> Scalar | Tensor:
        """The type of an element."""
        return self.elem

    @property
    def n(self) -> int:
        """Number of rows of an element, or length of its vectors."""
        if not self.element_shape:
            raise AttributeError("n")
        return self.element_shape[0]

    @property
    def m(self) -> int:
        """Number of columns of an element; 1 for vectors."""
        if not self.element_shape:
            raise AttributeError("m")
        return (*self.element_shape, 1)[1]

    def release_memory(self) -> None:
        """Release the memory: the base's tree is destroyed."""
        for name in (*LAID_OUT, "host", "_numbers", "_rank"):
            vars(self).pop(name, None)
        self._is_quick = False

    def __getattr__(self, name: str) -> Any:
        """An attribute that `_locate` sets, which this calls. Raises the base's errors."""
        if name not in LAID_OUT:
            raise missing_member(View, name, dir(self))
        self._locate()
        return object.__getattribute__(self, name)

    # --- elements ------------------------------------------------------------------------------

    def _within(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """The base's index of an element or component."""
        found = [
            axis if isinstance(axis, int) else axis.begin + axis.step * index[axis.axis]
            for axis in self.axes
        ]
        return (*found, *index[len(self.shape) :])

    def read(self, index: tuple[int, ...]) -> Any:
        return self.base.read(self._within(index))

    def peek(self, index: tuple[int, ...]) -> Any:
        return self.base.peek(self._within(index))

    def write(self, index: tuple[int, ...], value: Any) -> None:
        self.base.write(self._within(index), value)

    def place_of(self, index: tuple[int, ...]) -> Any:
        return self.base.place_of(self._within(index))

    @property
    def box(self) -> tuple[tuple[int, int], ...]:
        """The least and greatest index on each axis of the base."""
        return tuple(
            (axis, axis)
            if isinstance(axis, int)
            else (axis.begin, axis.begin + (axis.length - 1) * axis.step)
            for axis in self.axes
        )

    def like(self, base: Storage) -> View:
        """The same part of another array of the base's shape."""
        return View(base, self.axes)

    def tell(self, access: ArrayAccess) -> None:
        if self.size:
            super().tell(access)

    # --- contents ------------------------------------------------------------------------------

    def to_numpy(self, dtype: ScalarDType | None = None, *, copy: bool = True) -> NDArray[Any]:
        """A copy as a numpy array of shape `shape + element_shape`, cast to `dtype` if given; with
        `copy` False an array in the same memory. Raises ArgumentError if that needs a copy."""
        if not copy:
            return host_views.view_as_numpy(self, dtype)
        values = super().to_numpy()
        return values if dtype is None else values.astype(host_views.numpy_dtype(dtype), copy=False)

    def copy_from(self, other: Storage) -> None:
        """Copy from another array (`other`) of the same shape and element shape, which may overlap
        this one. Raises ArgumentError for other arrays."""
        if self.runtime.tape is not None and isinstance(other, Storage) and overlap(self, other):
            between = ViewHook.ndarray(self.elem, self.shape, needs_grad=self.has_grad())
            between.copy_from(other)
            other = between
        super().copy_from(other)

    def _expose(self) -> None:
        self.base._expose()

    # --- copies --------------------------------------------------------------------------------

    def copied(self) -> Storage:
        """A row-major array with the same contents. Tapes are not notified."""
        made = Storage(self.runtime, self.elem, self.shape, None, self.stored)
        made.put_unnoticed(self.contents())
        return made

    def duplicate(self, memo: dict[int, Any]) -> Any:
        """An ndarray with the same contents, gradient included. Tapes are not notified."""
        made = ViewHook.ndarray(self.elem, self.shape, needs_grad=self.has_grad())
        made.put_unnoticed(self.contents())
        if self.grad is not None:
            made.grad.put_unnoticed(self.grad.contents())
        return made

    def __reduce__(self) -> Any:
        gradient = None if self.grad is None else self.grad.to_numpy()
        values = (self.elem, self.shape, self.to_numpy(), gradient)
        return (ViewHook.restore, (init_arguments(), *values))


def form_of_axis(axis: int | Run, extent: int) -> tuple[int, int, bool]:
    if isinstance(axis, int):
        return -1, 0, False
    return axis.axis, axis.step, axis[:3] == (0, 1, extent)


class OrderedNdarray(View):
    """An ndarray whose axes have another order in memory: a view of one with permuted axes.

    `order`: the axes from the slowest to the fastest.
    """

    origin_name = "reordered "

    def __init__(self, base: Storage, order: Sequence[int]) -> None:
        self.order = tuple(order)
        super().__init__(base, [Run(0, 1, n, k) for k, n in zip(order, base.shape, strict=True)])

    def duplicate(self, memo: dict[int, Any]) -> Any:
        return OrderedNdarray(self.base.duplicate(memo), self.order)

    def __reduce__(self) -> Any:
        gradient = None if self.grad is None else self.grad.to_numpy()
        values = (self.elem, self.shape, self.to_numpy(), gradient, self.order)
        return (ViewHook.restore, (init_arguments(), *values))


def note_view(base: Any, view: View) -> None:
    """Let `Field.release_memory` find the view."""
    known = [] if base.views is None else base.views
    known.append(weakref.ref(view))
    if not len(known) & (len(known) - 1):  # a power of two: constant time per view
        known = [ref for ref in list(known) if ref() is not None]
    base.views = known


def check_base(base: Storage) -> None:
    """Allocate the memory of a field. Raises ArgumentError for arrays that have no views."""
    steps = base.steps  # allocates the memory of a field
    is_sparse = bool(getattr(getattr(base, "node", None), "sparse_path", ()))
    if base._is_direct and steps is not None and not (is_sparse or base.is_encoded):
        return
    if is_sparse:
        reason = "in sparse blocks"
    elif base.is_encoded or base.layout.number is not None:
        reason = "of encoded or bit-packed numbers"
    elif any(base.origin):
        reason = "with an offset"
    else:
        reason = "in blocks that split an axis"
    raise ArgumentError(
        f"a field {reason} has no slices in Python\nhelp: take x.to_numpy()[...], or copy it to "
        f"ti.ndarray(dtype, {base.shape})"
    )


# --- common elements -----------------------------------------------------------------------------


def is_same(a: Storage, b: Storage) -> bool:
    """True if both have the same elements of one array, in the same order."""
    (base, axes), (other, others) = base_of(a), base_of(b)
    return base is other and axes == others


def overlap(a: Storage, b: Storage) -> bool:
    """True if elements of one array are elements of the other. A view of a component overlaps all
    views of the whole field."""
    if not (a.whole is b.whole and a.size and b.size):
        return False
    (base, axes), (other, others) = base_of(a), base_of(b)
    if base is not other:
        return base.whole is other or other.whole is base
    return all(map(meet, map(indices_of, axes), map(indices_of, others)))


def indices_of(axis: int | Run) -> range:
    if isinstance(axis, int):
        return range(axis, axis + 1)
    return range(axis.begin, axis.begin + axis.step * axis.length, axis.step)


def meet(a: range, b: range) -> bool:
    """True if two ranges that are not empty, with positive steps, have a common number."""
    common = gcd(a.step, b.step)
    if (b.start - a.start) % common:
        return False
    part = b.step // common
    first = a.start + a.step * (
        (b.start - a.start) // common * pow(a.step // common, -1, part) % part
    )
    begin = max(first, first + -((first - b.start) // (a.step * part)) * a.step * part)
    return begin <= min(a[-1], b[-1])


# --- slicing -------------------------------------------------------------------------------------


def slice_of(array: Storage, key: Any) -> View | None:
    """Return the view `array[key]`; None unless the key has a slice, `...`, or too few indices.

    Raises ArrayIndexTypeError for a negative step, KernelBoundsError for an index out of range.
    """
    shape = array.shape
    keys = key if isinstance(key, tuple) else (key,)
    has_slice = any(isinstance(k, slice) or k is Ellipsis for k in keys)
    if key is None or not (has_slice or len(keys) < len(shape)):
        return None
    given = len(keys) - keys.count(Ellipsis)
    if given > len(shape) or keys.count(Ellipsis) > 1:
        return None
    for k in keys:
        if not isinstance(k, slice) and k is not Ellipsis:
            if not hasattr(k, "__index__"):
                return None
            check_integer(k)
    at = keys.index(Ellipsis) if Ellipsis in keys else len(keys)
    rest = [slice(None)] * (len(shape) - given)
    full = [*keys[:at], *rest, *keys[at + 1 :]]
    parts = [part_of(k, extent) for k, extent in zip(full, shape, strict=True)]
    base, axes = base_of(array)
    kept = [k for k, part in enumerate(parts) if isinstance(part, range)]
    found = [cut(axis, parts, kept) if isinstance(axis, Run) else axis for axis in axes]
    return View(base, found)


def base_of(array: Storage) -> tuple[Storage, tuple[int | Run, ...]]:
    """Return the base and the axes of a view; an array and all its axes."""
    if isinstance(array, View):
        return array.__vkchi_view__
    return array, tuple([Run(0, 1, n, k) for k, n in enumerate(array.shape)])


def part_of(k: Any, extent: int) -> int | range:
    """Return the indices that one index or slice selects of an axis."""
    if isinstance(k, slice):
        try:
            found = range(extent)[k]
        except local(TypeError, ValueError) as e:
            raise ArrayIndexTypeError(f"the slice of an array: {e}") from None
        if found.step < 0:
            raise ArrayIndexTypeError(
                f"slices of arrays have positive steps, not {k.step}: take x.to_numpy()[...]"
            )
        return found
    if not 0 <= k < extent:
        raise KernelBoundsError(f"index {k} is out of range for an axis of {extent}")
    return int(k)


def cut(run: Run, parts: Sequence[int | range], kept: Sequence[int]) -> int | Run:
    part = parts[run.axis]
    if isinstance(part, int):
        return run.begin + run.step * part
    begin = run.begin + run.step * part.start
    step = run.step * part.step if len(part) > 1 else 1
    return Run(begin, step, len(part), kept.index(run.axis))


def read_slice(array: Storage, key: Any) -> View:
    """Return the view `array[key]`. Raises the errors of `Elements.index` if the key selects no
    view."""
    found = slice_of(array, key)
    if found is None:
        array.index(key)
        raise InternalError(f"{key!r} is an index, and was taken for a slice")
    return found


def write_slice(array: Storage, key: Any, value: Any) -> None:
    """Copy a value to the view `array[key]`: an array of its shape, or numbers that numpy
    broadcasts to it. Raises as `read_slice`."""
    view = read_slice(array, key)
    if isinstance(value, Storage):
        view.copy_from(value)
        return
    want = view.shape + view.element_shape
    if host_views.is_torch(value) and tuple(value.shape) == want:
        view.from_torch(value)
        return
    values = host_views.to_number_array(value)
    if values.ndim == 0:
        view.spread(value, ArrayAccess("write"))
        return
    try:
        spread = np.broadcast_to(values, want)
    except local(ValueError):
        raise ArgumentError(
            f"numbers of shape {values.shape} do not fit into a slice of shape {want}"
        ) from None
    view.from_numpy(spread)
