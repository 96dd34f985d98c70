"""Fields of vectors or matrices whose components are fields with places of their own.

The components may have different types of bit-packed numbers, and may be in different words and
blocks of one shape. All have one type in kernels.

    v = ti.Vector.field(2, dtype=[ti.types.quant.fixed(10), ti.types.quant.fixed(20)])
    first.place(v.get_scalar_field(0)); second.place(v.get_scalar_field(1))

See also: `struct_arrays`, fields of structs, whose protocol they have.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentError
from vkchi.fields import display
from vkchi.fields.elements import ElementHook, fit_element_shape
from vkchi.fields.field import Field, MatrixField
from vkchi.fields.storage import Storage
from vkchi.fields.struct_arrays import StructArrays
from vkchi.interop import host_views
from vkchi.types import Tensor
from vkchi.types.lazy_numpy import np
from vkchi.types.struct_types import StructType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vkchi.types.hints import Index, Numbers, ScalarDType


class SplitField(StructArrays):
    """A field of vectors (`ndim` is 1) or matrices (`ndim` is 2) of `n` rows and `m` columns, whose
    components `parts` are fields of scalars, row-major.

    A loop over it iterates over the elements of its first component.
    """

    __vkchi_components__ = True  # marker for the frontend
    kind_name = "ti.Matrix.field"

    def __init__(self, parts: Sequence[Field], extents: tuple[int, ...], name: str = "") -> None:
        self.elem = Tensor.of(parts[0].compute, extents)
        self.parts = tuple(parts)
        self.name = name
        arrays = {f"component_{k}": part for k, part in enumerate(parts)}
        self._hold(StructType(dict.fromkeys(arrays, self.elem.elem)), arrays)

    def __vkchi_struct__(self) -> tuple[StructType, dict[str, Any]]:
        self._check_places()
        return self.__vkchi_type__, self.__vkchi_arrays__

    def _companion(self, kind: str) -> Any:
        found = [getattr(part, kind) for part in self.parts]
        if any(one is None for one in found):
            return None
        return SplitField(found, self.element_shape)

    @property
    def grad(self) -> Any:
        """The gradients of the components; None for types other than floats."""
        return self._companion("grad")

    @property
    def dual(self) -> Any:
        """The duals of the components; None for types other than floats."""
        return self._companion("dual")

    # --- types and shape -----------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The common shape of all components."""
        self._check_places()
        return self.parts[0].shape

    def _check_places(self) -> None:
        """Raise ArgumentError if the components are in blocks of different shapes."""
        found = [part.node for part in self.parts if part.node is not None]
        spaces = {node.__vkchi_space__() for node in found}
        if len(spaces) > 1:
            first, other = list(dict.fromkeys([node.__vkchi_space__() for node in found]))[:2]
            raise ArgumentError(
                "the components of one field are placed in blocks of one shape and offset, not "
                f"with indices {indices_text(first)} and {indices_text(other)}"
            )

    @property
    def dtype(self) -> Any:
        """The common type of the components, or a list of their types."""
        found = [part.dtype for part in self.parts]
        return found[0] if all(one == found[0] for one in found) else found

    @property
    def element_shape(self) -> tuple[int, ...]:
        """(n,) for vectors, (n, m) for matrices."""
        return self.elem.shape

    @property
    def n(self) -> int:
        """Number of rows, or the length of the vectors."""
        return self.elem.n

    @property
    def m(self) -> int:
        """Number of columns."""
        return self.elem.m

    @property
    def ndim(self) -> int:
        """1 for vectors, 2 for matrices."""
        return len(self.elem.shape)

    def __len__(self) -> int:
        return len(self._first())

    def get_scalar_field(self, *indices: int) -> Field:
        """The field of one component. indices: i for a vector's component, row and column for a
        matrix's. Raises ArgumentError if they are out of range."""
        places = (*indices, 0)[:2]
        fits = 1 <= len(indices) <= 2 and all(hasattr(k, "__index__") for k in indices)
        if not fits or not all(0 <= k < n for k, n in zip(places, (self.n, self.m), strict=True)):
            raise ArgumentError(f"a component of {self.elem} is needed, not {indices}")
        return self.parts[places[0] * self.m + places[1]]

    # --- elements ------------------------------------------------------------------------------

    def __getitem__(self, key: Index) -> Any:
        return ElementHook.make(self, self._place(key))

    def __setitem__(self, key: Index, value: Any) -> None:
        self.write(self._place(key), value)

    def _place(self, key: Any) -> tuple[int, ...]:
        first = self._first()
        return tuple(first._access("read", first.index(key)).at)

    def read(self, index: tuple[int, ...]) -> Any:
        """The component at an index, or the array of all components of an element."""
        at, places = self._split_index(index)
        found = [self.parts[k][at] for k in places]
        return found[0] if len(index) > len(at) else np.array(found).reshape(self.elem.shape)

    def write(self, index: tuple[int, ...], value: Any) -> None:
        """Set the component at an index, or all components of an element; a scalar sets each.
        Raises ArgumentError for other shapes, and the errors of the components' fields."""
        at, places = self._split_index(index)
        shape = () if len(index) > len(at) else self.elem.shape
        values = fit_element_shape(host_views.to_number_array(value), shape)
        for k, one in zip(places, np.broadcast_to(values, shape).flat):
            self.parts[k][at] = one

    def place_of(self, index: tuple[int, ...]) -> Hashable | None:
        """None: sums of elements are not recognized."""
        return None

    def _split_index(self, index: tuple[int, ...]) -> tuple[tuple[int, ...], Sequence[int]]:
        count = len(self.shape)
        if len(index) == count:
            return index, range(len(self.parts))
        return index[:count], [int(np.ravel_multi_index(index[count:], self.elem.shape))]

    # --- whole contents ------------------------------------------------------------------------

    def to_numpy(  # type: ignore[override]
        self, keep_dims: bool = False, dtype: ScalarDType | None = None, *, copy: bool = True
    ) -> NDArray[Any]:
        """A copy of shape `shape + (n, m)`, cast to `dtype` if given. For `m` = 1 the last axis is
        dropped, unless `keep_dims`. Raises ArgumentError if `copy` is False."""
        if not copy:
            raise ArgumentError("components with places of their own have no common memory")
        values = np.stack([part.to_numpy() for part in self.parts], -1)
        if dtype is not None:
            values = values.astype(host_views.numpy_dtype(dtype), copy=False)
        column = (self.m,) if self.m > 1 or keep_dims else ()
        return values.reshape((*self.shape, self.n, *column))

    def from_numpy(self, source: Numbers) -> None:  # type: ignore[override]
        """Copy from an array (`source`) of the shape of `to_numpy`, as `Field.from_numpy`. Raises
        ArgumentError for other shapes."""
        if isinstance(source, Storage | SplitField):
            self.copy_from(source)
            return
        values, full = host_views.to_number_array(source), (*self.shape, *self.elem.shape)
        if self.m == 1 and values.shape in ((*self.shape, self.n), (*self.shape, self.n, 1)):
            values = values.reshape(full)
        if values.shape != full:
            raise ArgumentError(f"an array of shape {full} is needed, not {values.shape}")
        values = values.reshape((*self.shape, len(self.parts)))
        for k, part in enumerate(self.parts):
            part.from_numpy(values[..., k])

    def to_torch(self, device: Any = None, keep_dims: bool = False) -> Any:
        """A torch tensor with a copy of the contents, on torch's `device` (None: in host memory).
        `keep_dims` as in `to_numpy`."""
        return host_views.make_torch(self.to_numpy(keep_dims), device)

    def from_torch(self, tensor: Any) -> None:
        """Copy from a torch `tensor` of the shape of `to_numpy`. Raises ArgumentError for other
        shapes."""
        self.from_numpy(host_views.array_of_torch(tensor))

    def fill(self, value: Numbers) -> None:
        """Set every element to a `value`: a scalar (for all components), a vector or a matrix, as
        `Field.fill`. Raises ArgumentError if it does not have the shape of an element."""
        self._check_places()
        values = fit_element_shape(host_views.to_number_array(value), self.elem.shape)
        for part, one in zip(self.parts, np.broadcast_to(values, self.elem.shape).flat):
            part.fill(one)

    def copy_from(self, other: Any) -> None:
        """Copy from another field or ndarray (`other`) of the same shape and element shape. Raises
        ArgumentError for other arguments."""
        if not isinstance(other, Storage | SplitField):
            raise ArgumentError(f"copy_from takes a field or ndarray, not {type(other).__name__}")
        if other.shape != self.shape or other.element_shape != self.element_shape:
            raise ArgumentError(
                f"copy_from: elements of shape {other.element_shape} in an array of shape "
                f"{other.shape} given, {self.element_shape} and {self.shape} needed"
            )
        parts = other.parts if isinstance(other, SplitField) else components_of(other)
        for part, one in zip(self.parts, parts, strict=True):
            if isinstance(one, Storage):
                part.copy_from(one)
            else:
                part.from_numpy(one)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Conversion to numpy: always a copy, as in `to_numpy`. Raises ValueError if `copy` is
        False."""
        if copy is False:
            raise ValueError("an array on the device is copied when numpy reads it")
        values = self.to_numpy()
        return values if dtype is None else values.astype(dtype)

    def __deepcopy__(self, memo: Any) -> SplitField:
        parts = [copy.deepcopy(part, memo) for part in self.parts]
        return SplitField(parts, self.element_shape, self.name)

    def _text(self, show: Any) -> str:
        return str(self.to_numpy()) if self._first().has_memory else self._described()

    def __repr__(self) -> str:
        if display.is_asked_by_package(1) or not all(map(display.printable, self.parts)):
            return self._described()
        return f"{self.kind_name}(\n{self.to_numpy()},\n    shape={self.shape})"

    def _described(self) -> str:
        first = self._first()
        state = f"shape {self.shape}" if first.has_place else "not placed"
        return f"<{self.kind_name} of {self.elem}, {state}>"


def indices_text(space: Sequence[tuple[int, int]]) -> str:
    return "x".join(f"[{first}, {end})" for first, end in space) or "()"


def components_of(other: Storage) -> Sequence[Any]:
    """The components of an array of vectors or matrices, as fields if it is a field."""
    if isinstance(other, MatrixField):
        return [other.component_field(k) for k in range(other.components)]
    values = other.to_numpy().reshape((*other.shape, other.components))
    return [values[..., k] for k in range(other.components)]


def split(field: Any, parts: Sequence[Field]) -> None:
    """Make an unplaced field of vectors or matrices one of separate components."""
    extents, name = field.element_shape, field.name
    vars(field).clear()
    field.__class__ = SplitField
    SplitField.__init__(field, parts, extents, name)
