"""Annotations of public signatures: dtypes, shapes, indices and numbers that users may pass.

def field(dtype: DType, shape: Shape | None = None) -> ...: ...
"""

from collections.abc import Iterable, Sequence
from types import EllipsisType
from typing import Any, Protocol, SupportsIndex, TypeAlias, TypedDict

from numpy.typing import NDArray

from vkchi.fields.constructors import ComponentOrder
from vkchi.fields.field import Field
from vkchi.fields.tensor_constructors import Backend
from vkchi.fields.trees.snode import Axes
from vkchi.lang.matrix import Matrix
from vkchi.ndarray import Ndarray
from vkchi.types import DefaultTensor, Scalar, Tensor
from vkchi.types.lazy_numpy import np

Number: TypeAlias = "float | np.number | np.bool_"
Array: TypeAlias = "NDArray[np.number | np.bool_]"

# A scalar type of vkchi, Python (`float`) or numpy.
ScalarDType: TypeAlias = (
    "Scalar | type[float | int | bool] | type[np.generic] | np.dtype[np.generic]"
)
TensorDType: TypeAlias = "Tensor | DefaultTensor | type[Matrix]"
DType: TypeAlias = "ScalarDType | TensorDType"

class Placing(TypedDict, total=False):
    """Options for the memory layout of a field."""

    layout: ComponentOrder
    dynamic_index: bool

class TensorOptions(TypedDict, total=False):
    """Options of `ti.tensor`."""

    backend: Backend
    layout: Sequence[int] | None
    needs_grad: bool

class FieldOptions(Placing, total=False):
    """Options of a field besides its type and shape."""

    order: str | None
    name: str
    offset: Shape | None
    needs_grad: bool
    needs_dual: bool
    ndim: int

Shape: TypeAlias = "SupportsIndex | Iterable[SupportsIndex]"
# A slice, `...` or too few indices give a view.
Index: TypeAlias = (
    "SupportsIndex | Matrix | slice | EllipsisType "
    "| tuple[SupportsIndex | slice | EllipsisType, ...] | None"
)
Entry: TypeAlias = (
    "SupportsIndex | slice | Matrix | tuple[SupportsIndex | slice, ...]"  # of a Matrix
)

Along: TypeAlias = "Axes | Sequence[SupportsIndex | Axes]"  # axes that a block divides

class HasArray(Protocol):
    """A numpy array, or an object that converts to one."""

    def __array__(self) -> np.ndarray[Any, Any]: ...

class HasNumpy(Protocol):
    """A field, an ndarray, a ti.Vector or ti.Matrix."""

    def to_numpy(self) -> Array: ...

class Tensors(Protocol):
    """A torch tensor."""

    @property
    def shape(self) -> Sequence[int]: ...
    def detach(self) -> Tensors: ...
    def numpy(self) -> Array: ...

# Data: nested lists, numpy arrays, fields, ndarrays, matrices, tensors in host memory.
Nested: TypeAlias = "list[Any] | tuple[Any, ...] | range"
Numbers: TypeAlias = "Number | Nested | HasArray | HasNumpy | Tensors"
Column: TypeAlias = "Field | Ndarray | NDArray[np.number]"  # a vector of a linear system
