"""vkchi: kernels in Python, on any vendor's GPU. `import vkchi as ti`.

Owns: the public names, and the wiring of hooks between layers. No logic.
"""

from typing import Any as _Any

from vkchi import experimental, types
from vkchi.compat import aliases as _aliases
from vkchi.compat.unsupported import refuse_members as _refuse_members
from vkchi.errors import ArgumentError as TaichiRuntimeTypeError
from vkchi.errors import CompilationError as TaichiCompilationError
from vkchi.errors import DeviceError, Unsupported, VkchiError
from vkchi.errors import IndexingError as TaichiIndexError
from vkchi.errors import KernelAssertionError as TaichiAssertionError
from vkchi.errors import KernelNameError as TaichiNameError
from vkchi.errors import KernelRuntimeError as TaichiRuntimeError
from vkchi.errors import KernelSyntaxError as TaichiSyntaxError
from vkchi.errors import KernelTypeError as TaichiTypeError
from vkchi.fields import structs as _struct_fields
from vkchi.fields.axes import axes
from vkchi.fields.axes import axes_named as _axes_named
from vkchi.fields.builder import BitpackedFields, FieldsBuilder, deactivate_all_snodes, root
from vkchi.fields.elements import ElementHook as _ElementHook
from vkchi.fields.field import Field, MatrixField, ScalarField
from vkchi.fields.make import Order as Layout
from vkchi.fields.make import field, matrix_field, vector_field
from vkchi.fields.snode import SNode
from vkchi.fields.structs import StructField
from vkchi.kernel import data_oriented, func, kernel, pyfunc, real_func
from vkchi.lang import argpack as _argpack
from vkchi.lang import differences as _differences
from vkchi.lang import element as _element
from vkchi.lang import math, simt
from vkchi.lang import matrix as _matrix
from vkchi.lang import struct as _struct
from vkchi.lang.argpack import ArgPack
from vkchi.lang.atomics import (
    atomic_add,
    atomic_and,
    atomic_max,
    atomic_min,
    atomic_mul,
    atomic_or,
    atomic_sub,
    atomic_xor,
)
from vkchi.lang.elementwise import (
    abs,
    acos,
    asin,
    atan2,
    bit_cast,
    bit_shr,
    cast,
    ceil,
    cos,
    exp,
    floor,
    frexp,
    ifte,
    log,
    logical_and,
    logical_not,
    logical_or,
    max,
    min,
    one,
    pow,
    raw_div,
    raw_mod,
    round,
    rsqrt,
    select,
    sin,
    sqrt,
    tan,
    tanh,
    zero,
)
from vkchi.lang.indices import rescale_index
from vkchi.lang.matrix import Matrix, Vector
from vkchi.lang.ndrange import grouped, ndrange
from vkchi.lang.random import randn, random
from vkchi.lang.simt.block import global_thread_idx
from vkchi.lang.static import (
    assume_in_range,
    block_local,
    cache_read_only,
    loop_config,
    no_activate,
    static,
    static_assert,
    static_print,
)
from vkchi.lang.struct import Struct, dataclass
from vkchi.ndarray import (
    MatrixNdarray,
    Ndarray,
    ScalarNdarray,
    VectorNdarray,
    from_dlpack,
    matrix_ndarray,
    ndarray,
    vector_ndarray,
)
from vkchi.runtime import ARCHES as _ARCHES
from vkchi.runtime import init, is_logging_effective, reset, set_logging_level, sync
from vkchi.signature import struct_params as _groups
from vkchi.types import (
    f16,
    f32,
    f64,
    float16,
    float32,
    float64,
    i8,
    i16,
    i32,
    i64,
    int8,
    int16,
    int32,
    int64,
    ref,
    template,
    u1,
    u8,
    u16,
    u32,
    u64,
    uint1,
    uint8,
    uint16,
    uint32,
    uint64,
)
from vkchi.types import ndarray as any_arr
from vkchi.types import ndarray as ext_arr
from vkchi.types import structs as _structs

TRACE, DEBUG, INFO, WARN, ERROR, CRITICAL = "trace", "debug", "info", "warn", "error", "critical"
cpu, x64, arm64 = _ARCHES["cpu"], _ARCHES["x64"], _ARCHES["arm64"]
gpu, vulkan, cuda = _ARCHES["gpu"], _ARCHES["vulkan"], _ARCHES["cuda"]
metal, opengl, gles = _ARCHES["metal"], _ARCHES["opengl"], _ARCHES["gles"]
x86_64 = _ARCHES["x86_64"]
amdgpu, dx11, dx12 = _ARCHES["amdgpu"], _ARCHES["dx11"], _ARCHES["dx12"]

i, j, k, l = (_axes_named(c) for c in "ijkl")  # noqa: E741
ij, ik, il, jk, jl, kl = (_axes_named(c) for c in ("ij", "ik", "il", "jk", "jl", "kl"))
ijk, ijl, ikl, jkl = (_axes_named(c) for c in ("ijk", "ijl", "ikl", "jkl"))
ijkl = _axes_named("ijkl")

_structs.FACTORIES.update(
    struct=_struct.make_struct, argpack=_argpack.make_pack,
    field=_struct_fields.struct_field, ndarray=_struct_fields.struct_ndarray,
)  # fmt: skip
_struct_fields.StructHook.element = staticmethod(_struct.StructElement)
_struct_fields.StructHook.members = staticmethod(_struct.members_of)
_struct_fields.StructHook.fit = staticmethod(_struct.fit)
_ElementHook.make = staticmethod(_element.element)
_ElementHook.value = staticmethod(_matrix.wrap_array)
types.FACTORIES.update(field=field, ndarray=ndarray)
Matrix.__ne__ = _differences.unequal  # type: ignore[assignment,method-assign]
_matrix.Factories.vector_field = staticmethod(vector_field)
_matrix.Factories.matrix_field = staticmethod(matrix_field)
_matrix.Factories.vector_ndarray = staticmethod(vector_ndarray)
_matrix.Factories.matrix_ndarray = staticmethod(matrix_ndarray)

__version__ = "0.1.0"


_aliases.install()
_refuse_members(Ndarray, StructField)

__all__ = _aliases.public_names(globals())


def __getattr__(name: str) -> _Any:
    return _aliases.find(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
