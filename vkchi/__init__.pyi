"""Public names of vkchi for type checkers; never executed.

Number types are declared as the Python types of their values, so that annotations of kernels state
the types of calls. Kernels and functions keep the signatures that users write.
"""

from typing import Any, TypeAlias

from vkchi import (
    algorithms as algorithms,
    aot as aot,
    distributed as distributed,
    graph as graph,
    lang as lang,
    linalg as linalg,
    spatial as spatial,
    tools as tools,
    types as types,
    ui as ui,
)
from vkchi.algorithms import sparse as sparse
from vkchi.aot.capabilities import DeviceCapability as DeviceCapability
from vkchi.aot.loaded import load as load
from vkchi.compat import experimental as experimental
from vkchi.compat.core_stubs import (
    extension as extension,
    is_extension_supported as is_extension_supported,
)
from vkchi.errors import (
    ArgumentError,
    CompilationError,
    DeviceError as DeviceError,
    DistributedError as DistributedError,
    IndexingError,
    KernelAssertionError,
    KernelNameError,
    KernelRuntimeError,
    KernelSyntaxError,
    KernelTypeError,
    Unsupported as Unsupported,
    VkchiError as VkchiError,
)
from vkchi.fields.trees.snode import (
    axes as axes,
    i as i,
    ij as ij,
    ijk as ijk,
    ijkl as ijkl,
    ijl as ijl,
    ik as ik,
    ikl as ikl,
    il as il,
    j as j,
    jk as jk,
    jkl as jkl,
    jl as jl,
    k as k,
    kl as kl,
    l as l,
)
from vkchi.fields.trees.fields_builder import (
    FieldsBuilder as FieldsBuilder,
    deactivate_all_snodes as deactivate_all_snodes,
    root as root,
)
from vkchi.fields.field import (
    Field as Field,
    MatrixField as MatrixField,
    ScalarField as ScalarField,
)
from vkchi.fields.constructors import (
    ComponentOrder,
    field as field,
    matrix_field as matrix_field,
    vector_field as vector_field,
)
from vkchi.fields.storage import Storage
from vkchi.fields.tensor_constructors import Backend as Backend, tensor as tensor
from vkchi.fields.trees.bitpacked import BitpackedFields as BitpackedFields
from vkchi.fields.trees.snode import SNode as SNode
from vkchi.fields.struct_arrays import StructField as StructField
from vkchi.graph.record import record as record
from vkchi.gui.gui import GUI as GUI
from vkchi.interop.cuda.pool import torch_memory as torch_memory
from vkchi.interop.from_dlpack import from_dlpack as from_dlpack
from vkchi.kernel import data_oriented as data_oriented
from vkchi.lang import math as math, simt as simt
from vkchi.lang.argpack import ArgPack as ArgPack
from vkchi.lang.atomic_functions import (
    atomic_add as atomic_add,
    atomic_and as atomic_and,
    atomic_cas as atomic_cas,
    atomic_exchange as atomic_exchange,
    atomic_max as atomic_max,
    atomic_min as atomic_min,
    atomic_mul as atomic_mul,
    atomic_or as atomic_or,
    atomic_sub as atomic_sub,
    atomic_xor as atomic_xor,
)
from vkchi.lang.sparse_cells import (
    activate as activate,
    append as append,
    deactivate as deactivate,
    is_active as is_active,
    length as length,
)
from vkchi.lang.linear_algebra.decompose import (
    eig as eig,
    make_spd as make_spd,
    polar_decompose as polar_decompose,
    solve as solve,
    stop_grad as stop_grad,
    svd as svd,
    sym_eig as sym_eig,
)
from vkchi.lang.elementwise import (
    abs as abs,
    acos as acos,
    asin as asin,
    atan2 as atan2,
    bit_cast as bit_cast,
    bit_shr as bit_shr,
    cast as cast,
    ceil as ceil,
    cos as cos,
    exp as exp,
    floor as floor,
    frexp as frexp,
    ifte as ifte,
    log as log,
    logical_and as logical_and,
    logical_not as logical_not,
    logical_or as logical_or,
    max as max,
    min as min,
    one as one,
    pow as pow,
    raw_div as raw_div,
    raw_mod as raw_mod,
    round as round,
    rsqrt as rsqrt,
    select as select,
    sin as sin,
    sqrt as sqrt,
    tan as tan,
    tanh as tanh,
    zero as zero,
)
from vkchi.lang.matrix import Matrix as Matrix, Vector as Vector
from vkchi.lang.ndrange import (
    grouped as grouped,
    ndrange as ndrange,
    rescale_index as rescale_index,
)
from vkchi.lang.random import randn as randn, random as random
from vkchi.lang.simt.block import global_thread_idx as global_thread_idx
from vkchi.lang.compile_time import (
    assume_in_range as assume_in_range,
    block_local as block_local,
    cache_read_only as cache_read_only,
    loop_config as loop_config,
    no_activate as no_activate,
    static as static,
    static_assert as static_assert,
    static_print as static_print,
)
from vkchi.lang.struct import Struct as Struct
from vkchi.launch.crosscheck import verify as verify
from vkchi.reports.perf_dispatch import perf_dispatch as perf_dispatch
from vkchi.launch.elsewhere import device as device
from vkchi.linalg.coo_matrix import sparse_matrix_builder as sparse_matrix_builder
from vkchi.logs import (
    CRITICAL as CRITICAL,
    DEBUG as DEBUG,
    ERROR as ERROR,
    INFO as INFO,
    TRACE as TRACE,
    WARN as WARN,
    is_logging_effective as is_logging_effective,
    set_logging_level as set_logging_level,
)
from vkchi.ndarray import (
    MatrixNdarray as MatrixNdarray,
    Ndarray as Ndarray,
    ScalarNdarray as ScalarNdarray,
    VectorNdarray as VectorNdarray,
    matrix_ndarray as matrix_ndarray,
    ndarray as ndarray,
    vector_ndarray as vector_ndarray,
)
from vkchi.operators.jax_op import jax_op as jax_op
from vkchi.operators.torch_op import torch_op as torch_op
from vkchi.protocols import (
    dataclass as dataclass,
    func as func,
    kernel as kernel,
    pyfunc as pyfunc,
    real_func as real_func,
)
from vkchi.reports import profiler as profiler
from vkchi.runtime import (
    amdgpu as amdgpu,
    arm64 as arm64,
    cpu as cpu,
    cuda as cuda,
    dx11 as dx11,
    dx12 as dx12,
    gles as gles,
    gpu as gpu,
    init as init,
    metal as metal,
    opengl as opengl,
    python as python,
    reset as reset,
    sync as sync,
    vulkan as vulkan,
    x64 as x64,
    x86_64 as x86_64,
)
from vkchi.tape import ad as ad
from vkchi.tape.ad import (
    Tape as Tape,
    clear_all_gradients as clear_all_gradients,
    grad_for as grad_for,
    grad_replaced as grad_replaced,
    no_grad as no_grad,
)
from vkchi.texture import Texture as Texture
from vkchi.tools.image import hex_to_rgb as hex_to_rgb, rgb_to_hex as rgb_to_hex
from vkchi.types import ref as ref
from vkchi.types.formats import Format as Format

__version__: str

TaichiRuntimeTypeError = ArgumentError
TaichiCompilationError = CompilationError
TaichiIndexError = IndexingError
TaichiAssertionError = KernelAssertionError
TaichiNameError = KernelNameError
TaichiRuntimeError = KernelRuntimeError
TaichiSyntaxError = KernelSyntaxError
TaichiTypeError = KernelTypeError
Layout = ComponentOrder
Tensor = Storage
any_arr = types.ndarray
ext_arr = types.ndarray

Template: Any  # the same as `template`
template: Any  # any object that a kernel is specialized for

bf16: TypeAlias = float
bfloat16: TypeAlias = float
f16: TypeAlias = float
f32: TypeAlias = float
f64: TypeAlias = float
float16: TypeAlias = float
float32: TypeAlias = float
float64: TypeAlias = float
i8: TypeAlias = int
i16: TypeAlias = int
i32: TypeAlias = int
i64: TypeAlias = int
int8: TypeAlias = int
int16: TypeAlias = int
int32: TypeAlias = int
int64: TypeAlias = int
u1: TypeAlias = bool
u8: TypeAlias = int
u16: TypeAlias = int
u32: TypeAlias = int
u64: TypeAlias = int
uint1: TypeAlias = bool
uint8: TypeAlias = int
uint16: TypeAlias = int
uint32: TypeAlias = int
uint64: TypeAlias = int
