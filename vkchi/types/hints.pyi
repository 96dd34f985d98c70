"""What users may write for a type, a shape, numbers: the types of public signatures.

Owns: aliases for annotations. Must not know: values.

    def field(dtype: DType, shape: Shape | None = None) -> ...: ...
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, SupportsIndex, TypeAlias, TypedDict

from numpy.typing import NDArray

from vkchi.fields.axes import Axes
from vkchi.fields.field import Field
from vkchi.fields.make import Order
from vkchi.lang.matrix import Matrix
from vkchi.ndarray import Ndarray
from vkchi.types import Following, Scalar, Tensor
from vkchi.types.lazy_numpy import np

Number: TypeAlias = "float | np.number | np.bool_"
Array: TypeAlias = "NDArray[np.number | np.bool_]"

# One of ours, of Python's (`float`), or of numpy's.
ScalarDType: TypeAlias = (
    "Scalar | type[float | int | bool] | type[np.generic] | np.dtype[np.generic]"
)
TensorDType: TypeAlias = "Tensor | Following | type[Matrix]"
DType: TypeAlias = "ScalarDType | TensorDType"

class Placing(TypedDict, total=False):
    """Where a field's elements lie."""

    layout: Order
    dynamic_index: bool

class FieldOptions(Placing, total=False):
    """What a field is made with, beside its type and shape."""

    order: str | None
    name: str
    offset: Shape | None
    needs_grad: bool
    needs_dual: bool
    ndim: int

Shape: TypeAlias = "SupportsIndex | Iterable[SupportsIndex]"
Index: TypeAlias = "SupportsIndex | Matrix | tuple[SupportsIndex, ...] | None"
Entry: TypeAlias = (
    "SupportsIndex | slice | Matrix | tuple[SupportsIndex | slice, ...]"  # of a Matrix
)

Along: TypeAlias = "Axes | Sequence[SupportsIndex | Axes]"  # what a block divides

class HasArray(Protocol):
    """An array of numpy, or what becomes one."""

    def __array__(self) -> np.ndarray[Any, Any]: ...

class HasNumpy(Protocol):
    """A field, an ndarray, a ti.Vector or ti.Matrix."""

    def to_numpy(self) -> Array: ...

class Tensors(Protocol):
    """A tensor of torch."""

    @property
    def shape(self) -> Sequence[int]: ...
    def detach(self) -> Tensors: ...
    def numpy(self) -> Array: ...

# What has numbers: nested lists, numpy's arrays, ours, tensors in host memory.
Nested: TypeAlias = "list[Any] | tuple[Any, ...] | range"
Numbers: TypeAlias = "Number | Nested | HasArray | HasNumpy | Tensors"
Column: TypeAlias = "Field | Ndarray | NDArray[np.number]"  # a vector of a linear system
