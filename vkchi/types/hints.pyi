"""What users may write for a type, a shape, numbers: the types of public signatures.

Owns: aliases for annotations. Must not know: values.

    def field(dtype: DType, shape: Shape | None = None) -> ...: ...
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, SupportsIndex, TypeAlias

from numpy.typing import ArrayLike, NDArray

from vkchi.fields.field import Field
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

Shape: TypeAlias = "SupportsIndex | Iterable[SupportsIndex]"
Index: TypeAlias = "SupportsIndex | tuple[SupportsIndex, ...] | None"

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
Numbers: TypeAlias = "ArrayLike | HasNumpy | Tensors"
Column: TypeAlias = "Field | Ndarray | NDArray[np.number]"  # a vector of a linear system
