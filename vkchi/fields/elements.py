"""Elements of an array: their addresses in device memory, and access to each from Python.

This covers element types, layouts, subscripts, and reads and writes of single elements. If the host
can address the device memory and the layout has constant strides, `host` is a numpy view of it. An
access is then a plain load or store.

    s[1] = 2.0; s[1]     # s: a Storage

See also: `storage` allocates the memory.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from vkchi.compile_state import check_access
from vkchi.device import IMPORTED
from vkchi.errors import (
    ArgumentShapeError,
    ArrayIndexCountError,
    ArrayIndexError,
    ArrayIndexTypeError,
    DeviceError,
    KernelBoundsError,
)
from vkchi.fields.python_scope import PythonScope
from vkchi.hooks import Hook
from vkchi.interop import host_views
from vkchi.interrupts.contexts import restoring
from vkchi.public_names import visible_names
from vkchi.runtime import Runtime, find_runtime
from vkchi.span import name_in_user_code
from vkchi.tuples import NamedTuple
from vkchi.types import (
    WIDE_FROM,
    WIDE_FROM_BYTES,
    Array,
    Layout,
    Scalar,
    Tensor,
    bf16,
    losses,
    needs_wide,
    scalar_of,
    shape_of,
    u1,
    u8,
    u32,
)
from vkchi.types.bfloat16 import decode, encode
from vkchi.types.layout import LayoutDigit, ends_of, whole_digits
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.device import Buffer, Device
    from vkchi.types.hints import Index


# --- asynchronous writes -------------------------------------------------------------------------
#
# Asynchronous writes from Python, recorded as device commands while the device is busy.
#
# They avoid a wait for earlier launches. At most MOST_IN_A_ROW consecutive writes are recorded; the
# next one is synchronous, that is, it waits and stores to memory directly.
#
# Guarantees: later kernels and reads see the written values, because all of them wait or are
# ordered behind the write. Writes are synchronous while other libraries may access memory in place
# (DLPack, imported memory).
#
#     if device.busy and not write_later(array, (3,), 2.0): device.wait()

if TYPE_CHECKING:
    pass

MOST_IN_A_ROW = 8
WORD_BYTES = 4  # granularity of device write commands


def count_recorded_writes(array: Elements) -> int | None:
    """Number of consecutive writes recorded so far. None if the next write should be synchronous.

    Reasons are an idle device, MOST_IN_A_ROW writes, and memory that other libraries may access: an
    array of the runtime is exported, CUDA is linked, or the buffer is imported. Raises DeviceError
    if the device is closed or lost.
    """
    device = array.device
    check_access()
    array.check_alive()
    if array.runtime.exported or device.peer is not None or array.buffer.key == IMPORTED:
        return None
    position = device.position
    if position is None:
        return None
    last, in_a_row = device.python_writes
    found = in_a_row if position == last else 0
    return found if found < MOST_IN_A_ROW else None


def count_write(array: Elements, before: int) -> None:
    """Store the count of recorded writes: one more than `before`."""
    array.device.python_writes = array.device.position, before + 1


def write_later(array: Elements, index: tuple[int, ...], values: Any) -> bool:
    """Record a write of an element or a component. Return False, without a write, if it must be
    synchronous."""
    found = bytes_of(array, index, values)
    before = count_recorded_writes(array) if found is not None else None
    if found is None or before is None:
        return False
    offset, data = found
    where, start = array.buffer.locate(offset, len(data))
    if start % WORD_BYTES:
        return False
    array.device.rewrite(where, start, array.buffer.key, data)
    count_write(array, before)
    return True


def bytes_of(array: Elements, index: tuple[int, ...], values: Any) -> tuple[int, bytes] | None:
    """Byte offset in the buffer, and the bytes to write. None if they are not contiguous whole
    words, or if memory holds another type than the array's."""
    size = array.stored.size_bytes
    if size % WORD_BYTES or array.stored is not array.number or array.is_encoded:
        return None
    inner = shape_of(array.elem)[len(index) - len(array.digits) :]
    offset = array.offset(index)
    if not inner:
        return offset * size, struct.pack(array.stored.code, values)
    first, *rest = array.layout.components
    if any(k != first + n for n, k in enumerate(rest, 1)):
        return None
    data = np.broadcast_to(values, inner).astype(array.stored.dtype).tobytes()
    return (offset + first) * size, data


def fill_later(array: Elements, value: Any) -> bool:
    """Record a fill of the whole array with one scalar.

    Return False, without a fill, if it must be synchronous. That is so as for
    `count_recorded_writes`, if the array is no whole number of words, or if the words of the scalar
    differ. Preconditions: the buffer holds no other array, and the stored type has a `code`.
    """
    one = struct.pack(array.stored.code, value)
    if array.size_bytes % WORD_BYTES or len(set(words_of_scalar(one))) > 1:
        return False
    before = count_recorded_writes(array)
    if before is None:
        return False
    array.device.fill(array.buffer, 0, array.size_bytes, words_of_scalar(one)[0])
    count_write(array, before)
    return True


def words_of_scalar(number: bytes) -> tuple[int, ...]:
    """The u32 words of a scalar, which is repeated if it is narrower than a word."""
    whole = number * max(1, WORD_BYTES // len(number))
    return struct.unpack(f"{len(whole) // WORD_BYTES}I", whole)


# --- elements ------------------------------------------------------------------------------------

V = TypeVar("V")


def lies_inside(key: tuple[Any, ...], shape: tuple[int, ...]) -> bool:
    """True if a key is an in-range index of Python integers for an array of this shape."""
    if len(key) != len(shape):
        return False
    for k, n in zip(key, shape):  # noqa: SIM110  # `all` takes twice as long
        if type(k) is not int or not 0 <= k < n:
            return False
    return True


def check_integer(k: Any) -> None:
    """Raise ArrayIndexTypeError for a slice, a float, and any other object that is no integer."""
    if isinstance(k, slice):
        raise ArrayIndexTypeError("this array has no slices in Python: take x.to_numpy()[...]")
    if isinstance(k, float) or not hasattr(k, "__index__"):
        raise ArrayIndexTypeError(f"indices are integers here, not {k!r}")


def without_column(shape: tuple[int, ...]) -> tuple[int, ...]:
    """(n,) for the shape (n, 1) of a one-column matrix; other shapes unchanged."""
    return shape[:1] if shape[1:] == (1,) else shape


def fit_element_shape(values: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The values reshaped to `shape`; a scalar is returned unchanged. (n,) and (n, 1) fit each
    other. Raises ArgumentShapeError for other shapes."""
    if values.ndim == 0 or values.shape == shape:
        return values
    if without_column(values.shape) == without_column(shape):
        return values.reshape(shape)
    raise ArgumentShapeError(f"shape {shape} is needed here, not {values.shape}")


class ElementHook:
    """Hooks that show tensor elements to Python, resolved in `vkchi.lang`.

    `make(storage, index)`: the element as a value whose components read and write the memory;
    `value(array)`: an independent value from an array of components.
    """

    make, value = Hook("element"), Hook("value of an element")


class SliceHook:
    """Hooks for slices in Python, resolved in `views`. Arguments: the array, the key, and for
    `write` the value. They raise the errors of `Elements.index` for a key that selects no slice."""

    read, write = Hook("read a slice"), Hook("write a slice")


class TracedFloat(float):
    """A float that is the sum of the values at `places`, each once, and constants.

    Reads give such floats while a tape watches. A sum carries the places of its summands, a
    difference with a constant those of its first operand. Any other operation gives a plain float,
    as does a sum with the same place twice. So the tape recognizes the value that
    `loss[None] += 1` writes as the old value plus a constant.

        >>> (1 + TracedFloat(2.0, "here")).places
        frozenset({'here'})
    """

    places: frozenset[Hashable]

    def __new__(cls, value: float, *places: Hashable) -> TracedFloat:
        made = super().__new__(cls, value)
        made.places = frozenset(places)
        return made

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, int | float):
            return float(self) + other
        total, more = float(self) + float(other), places_of(other)
        if more & self.places:
            return total  # the same place twice
        return TracedFloat(total, *self.places, *more)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        total = float(self) - other
        is_constant = isinstance(other, int | float) and not isinstance(other, TracedFloat)
        return TracedFloat(total, *self.places) if is_constant else total

    def __reduce__(self) -> Any:
        return (float, (float(self),))


def places_of(value: Any) -> frozenset[Hashable]:
    """The places whose values, plus a constant, sum to this value; empty if unknown."""
    return value.places if isinstance(value, TracedFloat) else frozenset()


def strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides of each axis, in scalars."""
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


def choose_stored(device: Device, t: Scalar) -> Scalar:
    """The scalar type that stores `t` in device memory: `t` itself; for bool u8, or u32 if the
    device cannot store u8.

    See also: `types.core.SCALARS` has a row per storage type, `opt.lowering.layouts` decodes and
    encodes scalars in kernels (`from_stored`, `to_stored`).
    """
    if t is not u1:
        return t
    return u8 if device.caps.can_store("u8") else u32


def why_freed(name: str) -> str:
    """The message for an array of a runtime that was reset. `name` is the array's in the user's
    code, or ""."""
    array = f"`{name}`" if name else "this array"
    if find_runtime() is None:
        return f"{array} was freed by ti.reset(): call ti.init(), and make it again"
    return (
        f"{array} was made before the last ti.init(), which freed it: run the code that makes it "
        "again"
    )


def sum_place(value: Any) -> Hashable | None:
    """The place of the element that a vector or matrix is a sum of, with constants."""
    find = getattr(value, "place_of_sum", None)
    return None if find is None else find()


class ArrayAccess(NamedTuple):
    """One access of Python to an array: read or write elements, or fill the whole array.

    `at`: the index of an element, perhaps with that of a component; None for the whole array.
    `is_sum`: the written value is the old value, plus a constant and elements of `added`.
    """

    kind: Literal["read", "write", "fill"]
    at: tuple[int, ...] | None = None
    is_sum: bool = False
    added: tuple[Elements, ...] = ()


class ElementValue(NamedTuple):
    """Key of an element's value; `overwritten` counts the recorded overwrites of the array."""

    array: Elements
    at: tuple[int, ...]
    overwritten: int


class HostView:
    """Lazy attribute `host`: a numpy view of the array's memory, by digits of the index. None if
    the host cannot address it, or the layout has no constant strides."""

    def __get__(
        self, array: Elements | None, owner: type | None = None
    ) -> np.ndarray[Any, Any] | None:
        if array is None:
            raise AttributeError("host")
        array._is_mapped = True
        found = vars(array)["host"] = array._map()
        return found


class PythonItems:
    """The scalars of a numpy array as Python objects, by index."""

    __slots__ = ("_array", "_item")

    def __init__(self, array: Any) -> None:
        self._array, self._item = array, array.item

    def __getitem__(self, index: Any) -> Any:
        return self._item(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array[index] = value


serials = itertools.count()  # of arrays


class Elements(PythonScope):
    """Elements of an array: their types, addresses, and access from Python.

    - digits: the shape with each axis split into the mixed-radix components of its index.
    - token: a new object for each memory and each gradient that the array gets.
    - serial: increases from array to array.
    """

    host = HostView()
    _is_mapped = False  # the instance has `host`
    # Scalars by in-range index: `_rank` indices, those of the element, then the component.
    _numbers: Any
    _rank = -1
    _length = 0  # of a scalar array of one axis
    # A tape's callback before Python's accesses.
    watch: Callable[[Any, ArrayAccess], None] | None = None
    is_encoded = False  # memory holds encoded values
    # Count of recorded overwrites, except writes of single elements.
    overwritten = 0
    shape: tuple[int, ...] = property(attrgetter("_shape"))  # type: ignore[assignment]

    __dir__ = visible_names

    @property
    def whole(self) -> Any:
        """The array that contains this memory: for one component of a vector or matrix field, that
        field; otherwise the array itself."""
        return self

    # --- memory layout ---------------------------------------------------------------------

    def describe(self, runtime: Runtime, elem: Scalar | Tensor, stored: Scalar | None) -> None:
        """Set the element type and the type stored in memory. Raises DeviceError if the device
        cannot store it."""
        self.runtime, self.elem, self.device = runtime, elem, runtime.device
        self.serial = next(serials)
        self.number: Scalar = scalar_of(elem)  # in memory; `dtype` is the user's type
        self.stored = stored or choose_stored(self.device, self.number)
        self.components = elem.size if isinstance(elem, Tensor) else 1
        self.is_scalar = isinstance(elem, Scalar)
        if not self.device.caps.can_store(self.stored.name):
            raise DeviceError(
                f"{self.device.info.name} cannot keep {self.stored} in memory: use a type of 32 "
                "bits, or another device (ti.init(device=...))"
            )

    def arrange(self, shape: tuple[int, ...], layout: Layout) -> None:
        """Set the shape and the layout. Raises DeviceError if addressing needs 64-bit integers
        that the device lacks."""
        if needs_wide(layout.size, self.stored.size_bytes) and not self.device.caps.int64:
            raise DeviceError(
                f"{self.device.info.name} has no 64-bit integers, and so reaches less than "
                f"{WIDE_FROM} numbers of one array, and less than {WIDE_FROM_BYTES} bytes, "
                f"not {layout.size} of {self.stored}: split it"
            )
        self._shape, self.layout = shape, layout
        self.size_bytes = max(1, layout.size) * self.stored.size_bytes
        digits = whole_digits(shape, layout)
        self.steps = None if digits is None else tuple([d.stride for axis in digits for d in axis])
        self._axes = digits or tuple([(LayoutDigit(extent, 0, 1),) for extent in shape])
        self.digits = tuple([digit.values for axis in self._axes for digit in axis])
        self._is_direct = self.digits == shape and not any(layout.origin)
        self._ends = ends_of(shape, layout)

    def attach(self, buffer: Buffer, *, is_own: bool) -> None:
        """Set the buffer, which begins with the first element, and a new `token`. `is_own`: no
        elements of other arrays lie among these."""
        if self._is_mapped:  # else `vars` would make reads of attributes slower
            vars(self).pop("host", None)
        self._is_quick = self._is_mapped = False
        self._rank = -1
        self.buffer, self.is_own, self.token = buffer, is_own, object()
        is_own_type = self.stored is self.number and self.number is not bf16
        is_itself = is_own_type or (self.number is u1 and self.stored is u8)
        if buffer.view is None or self.steps is None or not (is_itself and self._is_direct):
            return
        cells = self._cells(buffer.view)
        if cells is None and not self.is_scalar:
            return
        self._numbers = PythonItems(self.host) if cells is None else cells
        self._rank = len(self.shape) + len(shape_of(self.elem))
        self._length = self.shape[0] if len(self.shape) == 1 else 0
        self._is_quick = self.is_scalar

    def _cells(self, view: memoryview) -> memoryview | None:
        """The scalars in memory as a Python memoryview, indexed by element and component. None
        if they are not row-major, or if memoryviews do not support the type."""
        code, shape = self.number.code, self._digit_shape()
        inner, size = tuple(range(self.components)), math.prod(shape)
        steps = tuple([step * self.components for step in strides_of(self.shape)])
        if not code or not size or (self.steps, self.layout.components) != (steps, inner):
            return None
        view = view[: size * self.stored.size_bytes]
        return view.cast("B").cast(code, shape)  # type: ignore[call-overload,no-any-return]

    def _map(self) -> np.ndarray[Any, Any] | None:
        """Numpy view of shape `digits + element shape`. None if the host cannot address the
        memory or the layout has no constant strides. Elements of bf16 are their bits."""
        if self.buffer.view is None or self.steps is None:
            return None
        flat = np.frombuffer(self.buffer.view, self.stored.memory_dtype, max(1, self.layout.size))
        if self.number is u1 and self.stored is u8:
            flat = flat.view(np.bool_)
        return self._strided(flat)

    @property
    def is_reached(self) -> bool:
        """True if the host can address the memory."""
        return self.buffer.view is not None

    def _strided(self, flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Strided view of the scalars in memory, of shape `digits + element shape`. Its index
        order is the order of the logical elements."""
        assert self.steps is not None
        inner, steps = shape_of(self.elem), list(self.steps)
        if inner:
            width = self.layout.components[1] if self.components > 1 else 1
            steps += [width * math.prod(inner[k + 1 :]) for k in range(len(inner))]
        item = flat.itemsize
        return np.lib.stride_tricks.as_strided(
            flat, self.digits + inner, [step * item for step in steps]
        )

    def _places(self) -> np.ndarray[Any, Any]:
        """Offsets of all scalars by index and component, for layouts without constant strides."""
        first = np.zeros(self.shape, np.int64) + self.layout.offset([*np.indices(self.shape)])
        places: np.ndarray[Any, Any] = first[..., None] + np.array(self.layout.components)
        return places.reshape(self._digit_shape())

    def _gather(self, flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The scalars in the shape of `_strided`; perhaps a copy."""
        return flat[self._places()] if self.steps is None else self._strided(flat)

    def _scatter(self, flat: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> None:
        """Store scalars at their offsets; inverse of `_gather`."""
        if self.steps is None:
            flat[self._places()] = values
        else:
            self._strided(flat)[...] = values

    def _digit_shape(self) -> tuple[int, ...]:
        return self.digits + shape_of(self.elem)

    @property
    def array_type(self) -> Array:
        """The array type in kernels, with static shape and this layout."""
        return Array.of(self.elem, len(self.shape), self.shape, self.layout, stored=self.stored)

    @property
    def origin(self) -> tuple[int, ...]:
        """The first index of each axis; nonzero only for fields with `offset=`."""
        return tuple(first for first, _ in self._ends)

    @property
    def row_numbers(self) -> int | None:
        """Scalars per index of the first axis, if each such slice is contiguous and exclusive;
        otherwise None."""
        if not (self.is_own and self._is_direct and self.shape and self.steps):
            return None
        step = self.steps[0]
        return (
            step if step == max(self.steps) and step * self.shape[0] == self.layout.size else None
        )

    def check_alive(self) -> None:
        """Raise DeviceError if the array's runtime was reset, or its device is closed."""
        if self.device.closed:
            if self.device.is_reset:
                raise DeviceError(why_freed(name_in_user_code(self)))
            self.device.require_open()

    def tell(self, access: ArrayAccess) -> None:
        """Report an imminent access from Python to the array's watcher, or else to the tape, if
        any. Before a write, while arrays are exported, the tape first looks for writes by other
        libraries."""
        tape = self.runtime.tape  # first: reading it may remove the watcher of a tape that was left
        ledger = tape.ledger if tape is not None and self.runtime.exported else None
        if ledger is not None and access.kind != "read":
            ledger.look((self,))
        if self.watch is not None:
            self.watch(self, access)
        elif tape is not None:
            tape.on_access(self, access)

    def load(self, access: ArrayAccess, act: Callable[[], V]) -> V:
        """Report an imminent read (`access`) as `tell` does, and return its result (`act()`).

        A tape launches no kernels of other threads meanwhile.
        """
        if self.runtime.recording is None:
            self.tell(access)
            return act()
        with restoring(self.runtime.lock), self.runtime.lock:
            self.tell(access)
            return act()

    def store(self, access: ArrayAccess, act: Callable[[], None]) -> None:
        """Report an imminent write (`access`) as `tell` does, and run it (`act`).

        A tape launches no kernels of other threads meanwhile. It refuses its gradients if `act`
        does not finish.
        """
        tape = self.runtime.tape
        if tape is None or tape.ledger is None:
            self.tell(access)
            act()
        else:
            tape.store(self, access, act)

    def ready(self) -> None:
        """Wait until the device has finished all recorded work."""
        if self.device.busy:
            check_access()
            self.check_alive()
            self.device.wait()

    def ready_to_write(self) -> None:
        """Prepare a write from Python: save copy-on-write snapshots, then wait as `ready` does.
        Raises DeviceError if the array was freed."""
        if self.device.closed:
            self.check_alive()
        if self.device.guards:
            self.device.announce((self.buffer.key,))
        self.ready()

    # --- elements in Python ----------------------------------------------------------------

    def index(self, key: Any) -> tuple[int, ...]:
        """Index into `host` for a user's subscript. Raises ArrayIndexError for a wrong number of
        indices, for indices that are no integers, and for indices out of range."""
        keys = key if isinstance(key, tuple) else () if key is None else (key,)
        if len(keys) == 1 and type(keys[0]) is not int and hasattr(keys[0], "to_list"):
            keys = tuple(keys[0].to_list())
        if len(keys) != len(self.shape):
            axes = f"{len(self.shape)} {'axis' if len(self.shape) == 1 else 'axes'}"
            raise ArrayIndexCountError(f"the array has {axes}, and the index is {key!r}")
        for k, (first, end) in zip(keys, self._ends, strict=True):
            if type(k) is not int:
                check_integer(k)
            if not first <= k < end:
                axis = f"{end}" if first == 0 else f"{first} to {end - 1}"
                raise KernelBoundsError(f"index {k} is out of range for an axis of {axis}")
        index = tuple(map(int, keys))
        return index if self._is_direct else self._split(index)

    def _split(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """Mixed-radix components of an index."""
        found = []
        for k, (first, _), digits in zip(index, self._ends, self._axes, strict=True):
            found += [(k - first) // digit.divisor % digit.values for digit in digits]
        return tuple(found)

    def _access(self, kind: Literal["read", "write"], index: tuple[int, ...]) -> ArrayAccess:
        """The access at an index that `index` returned, converted to the user's index."""
        if self._is_direct:
            return ArrayAccess(kind, index)
        digits, found = iter(index), []
        for (first, _), axis in zip(self._ends, self._axes, strict=True):
            found.append(first + sum(next(digits) * digit.divisor for digit in axis))
        return ArrayAccess(kind, (*found, *digits))

    def __getitem__(self, key: Index) -> Any:
        if self._is_quick and self.watch is None:  # fast path, same result as below
            if self.device.busy:
                self.ready()
            if type(key) is int:
                if 0 <= key < self._length:
                    return self._numbers[key]
            elif key is None:
                if not self.shape:
                    return self._numbers[()]
            elif type(key) is tuple and lies_inside(key, self.shape):
                return self._numbers[key]
        kind = type(key)
        if (
            kind is slice
            or (kind is int and len(self.shape) > 1)
            or (kind is tuple and slice in map(type, key))  # type: ignore[arg-type]
        ):
            return SliceHook.read(self, key)
        try:
            index = self.index(key)
        except ArrayIndexError:
            return SliceHook.read(self, key)
        if self.is_scalar:
            return self.read(index)
        return ElementHook.make(self, index)

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._is_quick and self.watch is None and self.runtime.recording is None:
            kinds, low, high = losses.PLAIN[self.number]
            place = key if type(key) is tuple else () if key is None else (key,)
            if type(key) is int:
                is_inside = 0 <= key < self._length
            else:
                is_inside = lies_inside(place, self.shape)
            if is_inside and type(value) in kinds and low <= value <= high:
                device = self.device
                if device.guards:
                    device.announce((self.buffer.key,))
                if device.busy:
                    if write_later(self, place, value):
                        return
                    self.ready()
                self._numbers[place] = value
                return
        try:
            index = self.index(key)
        except ArrayIndexError:
            SliceHook.write(self, key, value)
            return
        self.write(index, value)

    def read(self, index: tuple[int, ...]) -> Any:
        """The scalar at an index that `index` returned, with the component's indices for tensor
        elements. For a whole tensor element: an array of its components. Reports the read to the
        array's watcher, and waits for the device."""
        if self.watch is not None:
            return self._read_told(index)
        return self._read(index)

    def _read_told(self, index: tuple[int, ...]) -> Any:
        """`read` while a tape watches the array: reports the access, and returns floats as
        `TracedFloat`."""
        value = self.load(self._access("read", index), lambda: self._read(index))
        return TracedFloat(value, self._place(index)) if type(value) is float else value

    def _place(self, index: tuple[int, ...]) -> ElementValue:
        return ElementValue(self, index, self.whole.overwritten)

    def place_of(self, index: tuple[int, ...]) -> Hashable | None:
        """Key of an element's value; None unless a tape watches the array."""
        return None if self.watch is None else self._place(index)

    def peek(self, index: tuple[int, ...]) -> Any:
        """`read` without a report to the tape."""
        return self._read(index)

    def _read(self, index: tuple[int, ...]) -> Any:
        self.ready()
        if len(index) == self._rank:
            return self._numbers[index]
        if self.host is not None:
            v = self.host[index]
            if self.number is u1:
                v = v.astype(np.bool_)
            if self.number is bf16:
                v = decode(v)
            return v.item() if v.ndim == 0 else np.array(v)
        inner = shape_of(self.elem)[len(index) - len(self.digits) :]
        if inner and len(index) == len(self.digits):
            flat = [self._read(index + place) for place in np.ndindex(*inner)]
            return np.array(flat, self.number.dtype).reshape(inner)
        return self._load(index).item()

    def write(self, index: tuple[int, ...], value: Any) -> None:
        """Store a scalar, or a nested sequence for a whole tensor element, at an index that `index`
        returned.

        A scalar sets all components. The write is reported to the tape or watcher. Then it waits
        for the device or, while that is busy, may be recorded. Raises ArgumentError for other
        shapes, and as `refuse_losses`.
        """
        inner = shape_of(self.elem)[len(index) - len(self.digits) :]
        values = self._cooked(value, inner)
        if self.watch is None and self.runtime.recording is None:
            self._write(index, values, inner)
            return
        tape = self.runtime.tape
        if tape is not None and tape.ledger is not None and tape.store_number(self, index, value):
            return
        access = self._access("write", index)
        own, terms = self._place(index), places_of(value)
        is_sum = own in terms or sum_place(value) == own
        added = [x.array for x in terms - {own} if isinstance(x, ElementValue)]
        access = access._replace(is_sum=is_sum, added=tuple(added))
        self.store(access, lambda: self._write(index, values, inner))

    def _write(self, index: tuple[int, ...], values: Any, inner: tuple[int, ...]) -> None:
        """`write` of values of this array's type, without a report to the tape."""
        if self.device.busy and self.buffer.view is not None and write_later(self, index, values):
            return
        self.ready_to_write()
        if len(index) == self._rank and type(values) in losses.PLAIN[self.number][0]:
            self._numbers[index] = values
            return
        if self.host is not None:
            self.host[index] = self.to_memory(values)
            return
        numbers = np.broadcast_to(values, inner).astype(self.number.dtype)
        for place in np.ndindex(*inner):
            self._store(index + place, numbers[place])

    def _load(self, index: tuple[int, ...]) -> Any:
        stored = self._load_stored(index)
        return decode(stored) if self.number is bf16 else stored.astype(self.number.dtype)

    def _store(self, index: tuple[int, ...], number: Any) -> None:
        self._store_stored(index, self.to_memory(number).astype(self.stored.memory_dtype))

    def to_memory(self, values: Any) -> Any:
        """Return values of this array's type as they are stored: rounded bits for bf16."""
        return encode(values) if self.number is bf16 else values

    def _load_stored(self, index: tuple[int, ...]) -> Any:
        size = self.stored.size_bytes
        raw = self.buffer.read(self.offset(index) * size, size)
        return np.frombuffer(raw, self.stored.memory_dtype)[0]

    def _store_stored(self, index: tuple[int, ...], stored: Any) -> None:
        self.buffer.write(self.offset(index) * self.stored.size_bytes, stored.tobytes())

    @property
    def bounds(self) -> losses.ValueBounds | None:
        """Range of representable values; None if the type accepts every number."""
        return losses.bounds_of(self.number)

    def refuse_losses(self, values: np.ndarray[Any, Any]) -> None:
        """Raise ArgumentError if an integer type does not hold a value exactly.

        Values out of range of a float or fixed-point type only warn, unless `strict` is set.
        """
        losses.raise_on_loss(values, self.bounds, is_strict=self.runtime.options.strict)

    def warn_of_losses(self, values: np.ndarray[Any, Any]) -> None:
        """Warn about values that are not representable. Raises ArgumentError under `strict`."""
        losses.warn_on_loss(values, self.bounds, is_strict=self.runtime.options.strict)

    def _cooked(self, value: Any, shape: tuple[int, ...], *, is_filled: bool = False) -> Any:
        """The value converted to this array's type: one scalar, or an array of `shape`. With
        `is_filled`, a loss only warns. Raises ArgumentError."""
        kinds, low, high = losses.PLAIN[self.number]
        if type(value) in kinds and low <= value <= high:
            return value  # needs no cast
        numbers = host_views.to_number_array(value)
        (self.warn_of_losses if is_filled else self.refuse_losses)(numbers)
        return fit_element_shape(host_views.cast(numbers, self.number), shape)

    def offset(self, index: tuple[int, ...]) -> int:
        """Offset of an element, or of one component, from the start of the buffer, in scalars."""
        if self.steps is None:
            offset = int(self.layout.offset(index[: len(self.digits)]))
        else:
            offset = sum(step * digit for step, digit in zip(self.steps, index, strict=False))
        rest = index[len(self.digits) :]
        if rest:
            place = int(np.ravel_multi_index(rest, shape_of(self.elem)))
            offset += self.layout.components[place]
        return offset
