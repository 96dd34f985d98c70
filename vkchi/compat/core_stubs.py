"""Stand-ins for `ti._lib.core` and parts of `ti.lang`: archs, extensions, types, the runtime
object.

    ti.init(arch=ti.vulkan if ti._lib.core.with_vulkan() else ti.cuda)

See also: `aliases` has the names under which they are found.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

from vkchi.errors import ArgumentError, DeviceError
from vkchi.logs import LOG_LEVELS, logger
from vkchi.runtime import (
    ARCHES,
    GPUS,
    HOST_ARCH,
    Arch,
    current_config,
    current_runtime,
    python,
    sync,
)
from vkchi.target.options import Config
from vkchi.tuples import NamedTuple
from vkchi.types import (
    SCALARS,
    DefaultTensor,
    Scalar,
    Tensor,
    f16,
    f32,
    f64,
    i32,
    matrix,
    u1,
    u32,
    vector,
)

# --- archs ---------------------------------------------------------------------------------------

VENDORS = {"cuda": ("nvidia",), "amdgpu": ("amd",)}


def has_arch(name: str) -> bool:
    """True if this machine has a device of an arch.

    Any device counts for `vulkan`, devices of that vendor for `cuda` and `amdgpu`. False for other
    archs, whose APIs vkchi does not use, and without a Vulkan driver.
    """
    from vkchi.device import list_devices  # slow to import

    try:
        infos = list_devices()
    except DeviceError:
        return False
    if name == "vulkan":
        return bool(infos)
    return any(info.vendor in VENDORS.get(name, ()) for info in infos)


WITH: dict[str, Callable[[], bool]] = {f"with_{name}": partial(has_arch, name) for name in GPUS}


def is_arch_supported(arch: Arch, use_gles: bool = False) -> bool:
    """True for CPU archs and ti.python, and if there is a device of the arch (see `has_arch`).

    `use_gles` has no effect.
    """
    return arch.kind == "cpu" or arch is python or has_arch(arch.name)


def get_host_arch_list() -> list[Arch]:
    """A list of one element, the arch of this machine's CPU."""
    return [HOST_ARCH]


def host_arch() -> Arch:
    """The arch of this machine's CPU."""
    return HOST_ARCH


def arch_name(arch: Arch) -> str:
    """Name of an arch: `vulkan` for ti.vulkan."""
    return arch.name


def arch_from_name(name: str) -> Arch:
    """The arch of a name: ti.vulkan for `vulkan`. Raises ArgumentError unless it names one arch."""
    found = ARCHES.get(name)
    if not isinstance(found, Arch):
        raise ArgumentError(f"no arch is called {name!r}; there are {', '.join(ARCHES)}")
    return found


def arch_uses_llvm(arch: Arch) -> bool:
    """Always False: Vulkan drivers compile kernels."""
    return False


# --- extensions ----------------------------------------------------------------------------------


class Extension(Enum):
    """Optional features of Taichi's backends, with descriptions."""

    sparse = "fields with inactive cells"
    quant = "quantised numbers"
    quant_basic = "quantised numbers, one to a word"
    mesh = "meshes"
    data64 = "64-bit numbers"
    adstack = "gradients of loops with changing variables"
    bls = "fields cached in shared memory"
    assertion = "assertions in kernels"
    extfunc = "calls of compiled functions"


SUPPORTED = {Extension[name] for name in ["sparse", "quant", "quant_basic", "adstack", "assertion"]}
extension = Extension  # Taichi's spelling
GGUI_AVAILABLE = True  # `ti.ui`


def is_extension_supported(arch: Arch, extension: Extension) -> bool:
    """True if vkchi supports an extension of Taichi.

    Args:
        arch: has no effect.
        extension: the extension. `data64` depends on the current device.

    Returns:
        True if it is supported.

    Raises:
        KernelRuntimeError: for `data64` before `init`.
    """
    if extension is Extension.data64:
        caps = current_runtime().device.caps
        return caps.has_type("f64") and caps.has_type("i64")
    return extension in SUPPORTED


# --- types ---------------------------------------------------------------------------------------

real_types: list[Any] = [f16, f32, f64, float]
integer_types: list[Any] = [t for t in SCALARS.values() if t.kind in "iu"] + [u1, int, bool]
all_types: list[Any] = real_types + integer_types

# --- the runtime ---------------------------------------------------------------------------------


class ProgramStub(NamedTuple):
    """Stand-in for Taichi's program object, `ti.lang.impl.get_runtime().prog`."""

    settings: Config

    def config(self) -> Config:
        """The current options."""
        return self.settings


class RuntimeStub(NamedTuple):
    """Stand-in for Taichi's runtime object; `prog` is None before `init`.

    The types are the defaults for floats, integers and unsigned integers.
    """

    prog: ProgramStub | None
    default_fp: Scalar
    default_ip: Scalar
    default_up: Scalar

    def materialize(self) -> None:
        """No effect: fields get memory on first use."""

    def sync(self) -> None:
        """Wait until all submitted work is done."""
        sync()


def get_runtime() -> RuntimeStub:
    """The current options as a RuntimeStub; before `init` with f32, i32 and u32."""
    config: Any = current_config()
    if config is None:
        return RuntimeStub(None, f32, i32, u32)
    return RuntimeStub(ProgramStub(config), config.default_fp, config.default_ip, config.default_up)


def log_message(level: str, text: object) -> None:
    """Log a message at one of Taichi's levels."""
    logger().log(LOG_LEVELS[level], "%s", text)


trace, debug, info = (partial(log_message, level) for level in ("trace", "debug", "info"))
warn, error, critical = (partial(log_message, level) for level in ("warn", "error", "critical"))


def in_python_scope() -> bool:
    """Always True."""
    return True


def in_taichi_scope() -> bool:
    """Always False."""
    return False


def __getattr__(name: str) -> Callable[[], bool]:
    if name not in WITH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return WITH[name]


class _OfTensors(type):
    """Metaclass: `isinstance` is True for tensor types whose number of axes is in `ndims`."""

    ndims: tuple[int, ...]

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Tensor | DefaultTensor) and len(x.shape) in cls.ndims


class MatrixType(metaclass=_OfTensors):
    """Constructor of vector types (`ndim` 1; `m` has no effect) and of `n` by `m` matrix types.

    Vector and matrix types are its instances.
    """

    ndims: tuple[int, ...] = (1, 2)

    def __new__(cls, n: int, m: int, ndim: int, dtype: Any) -> Any:
        return vector(n, dtype) if ndim == 1 else matrix(n, m, dtype)


class VectorType(MatrixType):
    """Constructor of vector types, which are its instances."""

    ndims = (1,)

    def __new__(cls, n: int, dtype: Any) -> Any:
        return vector(n, dtype)
