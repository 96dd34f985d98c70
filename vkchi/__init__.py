"""vkchi: kernels in Python, on any vendor's GPU. `import vkchi as ti`.

Owns: nothing but the way from a public name to its module, which is loaded when the name is first
used: `import vkchi` loads neither numpy nor the compiler. The names stand in the table of `names`;
the imports below are for type checkers, and never run.
"""

import sys as _sys
from typing import TYPE_CHECKING
from typing import Any as _Any

from vkchi import hooks as _hooks
from vkchi import names as _names
from vkchi.cache import version as _version  # notes when this process began to load sources
from vkchi.compat import aliases as _aliases

if TYPE_CHECKING:
    from vkchi import algorithms, aot, graph, lang, linalg, tools, types, ui
    from vkchi.algorithms import sparse
    from vkchi.aot.capabilities import DeviceCapability
    from vkchi.aot.loaded import load
    from vkchi.compat import experimental
    from vkchi.compat.core import extension, is_extension_supported
    from vkchi.errors import ArgumentError as TaichiRuntimeTypeError
    from vkchi.errors import CompilationError as TaichiCompilationError
    from vkchi.errors import DeviceError, Unsupported, VkchiError
    from vkchi.errors import IndexingError as TaichiIndexError
    from vkchi.errors import KernelAssertionError as TaichiAssertionError
    from vkchi.errors import KernelNameError as TaichiNameError
    from vkchi.errors import KernelRuntimeError as TaichiRuntimeError
    from vkchi.errors import KernelSyntaxError as TaichiSyntaxError
    from vkchi.errors import KernelTypeError as TaichiTypeError
    from vkchi.fields.axes import axes, i, ij, ijk, ijkl, ijl, ik, ikl, il, j, jk, jkl, jl, k, kl, l
    from vkchi.fields.builder import BitpackedFields, FieldsBuilder, deactivate_all_snodes, root
    from vkchi.fields.field import Field, MatrixField, ScalarField
    from vkchi.fields.make import Order as Layout
    from vkchi.fields.make import field, matrix_field, vector_field
    from vkchi.fields.snode import SNode
    from vkchi.fields.structs import StructField
    from vkchi.graph.record import record
    from vkchi.gui.gui import GUI
    from vkchi.interop.cuda.pool import torch_memory
    from vkchi.interop.from_dlpack import from_dlpack
    from vkchi.kernel import data_oriented, func, kernel, pyfunc, real_func
    from vkchi.lang import math, simt
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
    from vkchi.lang.cells import activate, append, deactivate, is_active, length
    from vkchi.lang.decompose import eig, polar_decompose, solve, stop_grad, svd, sym_eig
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
    from vkchi.launch.crosscheck import verify
    from vkchi.launch.elsewhere import device
    from vkchi.linalg.builder import sparse_matrix_builder
    from vkchi.logs import (
        CRITICAL,
        DEBUG,
        ERROR,
        INFO,
        TRACE,
        WARN,
        is_logging_effective,
        set_logging_level,
    )
    from vkchi.ndarray import (
        MatrixNdarray,
        Ndarray,
        ScalarNdarray,
        VectorNdarray,
        matrix_ndarray,
        ndarray,
        vector_ndarray,
    )
    from vkchi.operators.torch_op import torch_op
    from vkchi.reports import profiler
    from vkchi.runtime import (
        amdgpu,
        arm64,
        cpu,
        cuda,
        dx11,
        dx12,
        gles,
        gpu,
        init,
        metal,
        opengl,
        reset,
        sync,
        vulkan,
        x64,
        x86_64,
    )
    from vkchi.tape import ad
    from vkchi.tape.ad import Tape, clear_all_gradients, grad_for, grad_replaced, no_grad
    from vkchi.texture import Texture
    from vkchi.tools.image import hex_to_rgb, rgb_to_hex
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
    from vkchi.types.formats import Format

__version__ = "0.1.0"

_hooks.NAMES.update(_names.read_names())
_hooks.PLACES.update(_names.read_hooks())
_sys.modules[__name__].__class__ = _hooks.PublicModule
_aliases.install()

__all__ = _aliases.public_names()


def __getattr__(name: str) -> _Any:
    place = _hooks.NAMES.get(name)
    if place is None:
        return _aliases.find(name)
    found = globals()[name] = _hooks.load(place)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
