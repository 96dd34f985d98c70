"""What Taichi's programs ask `ti._lib.core` and `ti.lang` for: archs, extensions, the runtime.

Owns: the answers. `aliases` has the names under which they are found. Must not know: kernels.

    ti.init(arch=ti.vulkan if ti._lib.core.with_vulkan() else ti.cuda)
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

from vkchi.errors import ArgumentError, DeviceError
from vkchi.logs import LOG_LEVELS, logger
from vkchi.runtime import ARCHES, GPUS, HOST_ARCH, Arch, current, current_config, sync
from vkchi.target.config import Config
from vkchi.tuples import NamedTuple
from vkchi.types import SCALARS, Scalar, f16, f32, f64, i32, u1, u32

# --- archs ---------------------------------------------------------------------------------------

VENDORS = {"cuda": ("nvidia",), "amdgpu": ("amd",)}


def has_arch(name: str) -> bool:
    """Whether there is a device of an arch: for `vulkan` any that works, for `cuda` and `amdgpu` a
    GPU of that vendor; the others are other interfaces, which are not used."""
    from vkchi.device import list_devices  # slow to load

    try:
        infos = list_devices()
    except DeviceError:
        return False
    if name == "vulkan":
        return bool(infos)
    return any(info.vendor in VENDORS.get(name, ()) for info in infos)


WITH: dict[str, Callable[[], bool]] = {f"with_{name}": partial(has_arch, name) for name in GPUS}


def is_arch_supported(arch: Arch, use_gles: bool = False) -> bool:
    """Whether there is a device of an arch."""
    return arch.kind == "cpu" or has_arch(arch.name)


def get_host_arch_list() -> list[Arch]:
    """The archs that are this machine's processor."""
    return [HOST_ARCH]


def host_arch() -> Arch:
    """The arch that is this machine's processor."""
    return HOST_ARCH


def arch_name(arch: Arch) -> str:
    """`vulkan` for ti.vulkan."""
    return arch.name


def arch_from_name(name: str) -> Arch:
    """ti.vulkan for `vulkan`. Raises ArgumentError."""
    found = ARCHES.get(name)
    if not isinstance(found, Arch):
        raise ArgumentError(f"no arch is called {name!r}; there are {', '.join(ARCHES)}")
    return found


def arch_uses_llvm(arch: Arch) -> bool:
    """False: kernels are compiled by Vulkan drivers."""
    return False


# --- extensions ----------------------------------------------------------------------------------


class Extension(Enum):
    """What Taichi's backends may lack."""

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
extension = Extension  # as Taichi spells it
GGUI_AVAILABLE = True  # `ti.ui`


def is_extension_supported(arch: Arch, extension: Extension) -> bool:
    """Whether kernels have an `extension`, on the device in use, whatever `arch` is. Raises
    KernelRuntimeError before `init` for what depends on that."""
    if extension is Extension.data64:
        caps = current().device.caps
        return caps.has_type("f64") and caps.has_type("i64")
    return extension in SUPPORTED


# --- types ---------------------------------------------------------------------------------------

real_types: list[Any] = [f16, f32, f64, float]
integer_types: list[Any] = [t for t in SCALARS.values() if t.kind in "iu"] + [u1, int, bool]
all_types: list[Any] = real_types + integer_types

# --- the runtime ---------------------------------------------------------------------------------


class Program(NamedTuple):
    """`ti.lang.impl.get_runtime().prog`."""

    settings: Config

    def config(self) -> Config:
        """The current options."""
        return self.settings


class RuntimeFacts(NamedTuple):
    """What programs ask Taichi's runtime object; `prog` is None before `init`."""

    prog: Program | None
    default_fp: Scalar
    default_ip: Scalar
    default_up: Scalar

    def materialize(self) -> None:
        """Nothing: fields have memory when they are first used."""

    def sync(self) -> None:
        """Wait until everything that was launched is done."""
        sync()


def get_runtime() -> RuntimeFacts:
    """The facts as they are now."""
    config: Any = current_config()
    if config is None:
        return RuntimeFacts(None, f32, i32, u32)
    return RuntimeFacts(Program(config), config.default_fp, config.default_ip, config.default_up)


def log(level: str, text: object) -> None:
    """Log a text at one of Taichi's levels."""
    logger().log(LOG_LEVELS[level], "%s", text)


trace, debug, info = (partial(log, level) for level in ("trace", "debug", "info"))
warn, error, critical = (partial(log, level) for level in ("warn", "error", "critical"))


def in_python_scope() -> bool:
    """Whether who asks runs in Python: kernels are compiled, not run there."""
    return True


def in_taichi_scope() -> bool:
    """Whether who asks runs in a kernel."""
    return False


def __getattr__(name: str) -> Callable[[], bool]:
    if name not in WITH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return WITH[name]
