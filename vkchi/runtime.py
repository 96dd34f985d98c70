"""The one current runtime: what `init` makes, `reset` frees, and everything above asks for.

Owns: the device of this process and the options it was made with. Must not know: kernels,
fields, IR.

    >>> init(arch=cpu); current().device.info.name
    'llvmpipe (LLVM 15.0.6, 256 bits)'
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from vkchi import env
from vkchi.errors import ArgumentError, DeviceError, KernelRuntimeError, UnknownOptionError, nearest
from vkchi.options import Options
from vkchi.types import Defaults, Scalar, cook, f32, i32

if TYPE_CHECKING:
    import logging

    from vkchi.device import Device
    from vkchi.reports import Reports


class Arch(NamedTuple):
    """A name that Taichi's programs give to `init(arch=)`, and the kind of device it asks for."""

    name: str
    kind: str


ARCHES = {
    arch.name: arch
    for arch in (
        Arch("cpu", "cpu"), Arch("x64", "cpu"), Arch("arm64", "cpu"),
        Arch("x86_64", "cpu"),
        Arch("gpu", "gpu"), Arch("vulkan", "any"), Arch("cuda", "nvidia"),
        Arch("metal", "gpu"), Arch("opengl", "gpu"), Arch("gles", "gpu"),
        Arch("amdgpu", "gpu"), Arch("dx11", "gpu"), Arch("dx12", "gpu"),
    )
}  # fmt: skip

# Options of Taichi's `init` that change nothing here: accepted, so that programs run unmodified.
ACCEPTED_NAMES = """
    advanced_optimization ad_stack_size allow_nv_shader_extension cc check_out_of_bound
    cfg_optimization cpu_max_num_threads debug_mode default_cpu_block_dim default_gpu_block_dim
    demote_dense_struct_fors detect_read_only device_memory_GB device_memory_fraction
    dynamic_index experimental_features flatten_if force_scalarize_matrix gdb_trigger
    half2_vectorization kernel_profiler lower_access make_block_local
    make_mesh_block_local make_thread_local max_block_dim max_vector_width
    move_loop_invariant_outside_if
    num_compile_threads offline_cache offline_cache_cleaning_policy offline_cache_file_path
    offline_cache_max_size_of_files opt_level packed print_accessor_ir print_ir
    print_ir_dbg_info print_kernel_amdgcn print_kernel_asm print_kernel_llvm_ir
    print_kernel_llvm_ir_optimized print_kernel_nvptx print_preprocessed_ir
    quant_opt_atomic_demotion
    quant_opt_store_fusion real_matrix real_matrix_scalarize require_version saturating_grid_dim
    short_circuit_operators simplify_after_lower_access simplify_before_lower_access timeline
    unrolling_limit use_mesh vk_api_version verbose verbose_kernel_launches wait_signal
"""
ACCEPTED = frozenset(ACCEPTED_NAMES.split())


@dataclass
class Runtime:
    """A device and its options. `lock` is held while a launch is put together; `kept` is what other
    modules keep for as long as the runtime is there, under keys of their own; `gradients`
    and `duals` are all arrays that are such of others."""

    device: Device
    options: Options
    lock: threading.RLock = field(default_factory=threading.RLock)
    draws: int = 0
    kept: dict[Any, Any] = field(default_factory=dict)
    _reports: Reports | None = None
    tape: Any = None  # what records kernel calls now: a tape, or forward mode
    gradients: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    duals: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)

    @property
    def reports(self) -> Reports:
        """Where kernels report to; made when first asked for."""
        if self._reports is None:
            from vkchi.reports import Reports  # few programs report anything

            self._reports = Reports(self.device)
        return self._reports

    @property
    def is_taped(self) -> bool:
        """Whether a tape records kernel calls now, for gradients."""
        return self.tape is not None and self.tape.kind == "grad"

    def next_seed(self) -> int:
        """A new 32-bit seed for a launch that draws random numbers."""
        self.draws += 1
        return (self.options.random_seed * 0x9E3779B1 + self.draws * 0x85EBCA6B) & 0xFFFFFFFF

    def close(self) -> None:
        """Wait for the device and free everything made on it. Idempotent."""
        self.device.close()


class _Slot:
    runtime: Runtime | None = None


def current() -> Runtime:
    """The runtime. Raises KernelRuntimeError before `init` and after `reset`."""
    runtime = _Slot.runtime
    if runtime is None:
        raise KernelRuntimeError("vkchi is not initialised: call ti.init() first")
    return runtime


def install(runtime: Runtime | None) -> None:
    """Make `runtime` the current one after closing the one before."""
    old, _Slot.runtime = _Slot.runtime, None
    if old is not None:
        old.close()
    options = runtime.options if runtime else Options()
    Defaults.fp, Defaults.ip = options.default_fp, options.default_ip
    _Slot.runtime = runtime


def init(
    arch: Any = None,
    default_fp: Any = None,
    default_ip: Any = None,
    *,
    device: str | int | None = None,
    enable_fallback: bool = True,
    debug: bool | None = None,
    fast_math: bool = False,
    random_seed: int | None = None,
    log_level: str | None = None,
    **ignored: Any,
) -> None:
    """Open a device; all fields and kernels made before are dropped.

    arch: `ti.vulkan` (the best device), `ti.gpu`, `ti.cuda` (NVIDIA), `ti.cpu` (a software device),
    a list of them in order of preference, or a name; device: an index or part of a device's name.
    Raises DeviceError when there is no such device (or none of that kind and enable_fallback is
    False), ArgumentError for an option that Taichi does not have either, and for a VKCHI_* flag of
    the environment whose value means nothing.
    """
    _refuse_unknown(ignored)
    env.check_flags()
    kinds = _kinds(arch)
    set_logging_level(log_level or env.flag("VKCHI_LOG"))
    options = Options(
        default_fp=_float_type(default_fp),
        default_ip=_int_type(default_ip),
        debug=env.is_on("VKCHI_DEBUG") if debug is None else bool(debug),
        fast_math=bool(fast_math),
        random_seed=_seed(random_seed),
    )
    install(None)
    opened = _open_first(kinds, device, enable_fallback)
    install(Runtime(opened, options))
    logger().info("vkchi runs on %s", opened.info.name)


# Taichi's levels as numbers of the standard library's `logging`.
LOG_LEVELS = {"trace": 5, "debug": 10, "info": 20, "warn": 30, "error": 40, "critical": 50}


def logger() -> logging.Logger:
    """Where vkchi logs: `logging.getLogger("vkchi")`."""
    import logging  # not before it is needed: `import vkchi` does without

    return logging.getLogger("vkchi")


def is_logging_effective(level: str) -> bool:
    """Whether lines of a level are logged: ti.TRACE to ti.CRITICAL. Raises ArgumentError."""
    return logger().isEnabledFor(_log_level(level))


def set_logging_level(level: str) -> None:
    """Log lines of a level and worse only: ti.TRACE to ti.CRITICAL. Raises ArgumentError."""
    logger().setLevel(_log_level(level))


def _log_level(name: str) -> int:
    if name not in LOG_LEVELS:
        raise ArgumentError(f"no log level is called {name!r}; there are {', '.join(LOG_LEVELS)}")
    return LOG_LEVELS[name]


def _kinds(arch: Any) -> list[str]:
    """The kinds of device that an `arch=` asks for, the one preferred first."""
    is_several = isinstance(arch, list | tuple) and not isinstance(arch, Arch)
    wanted = list(arch) if is_several else [arch]
    names = ["vulkan" if a is None else a.name if isinstance(a, Arch) else a for a in wanted]
    for name in names:
        if not isinstance(name, str) or name not in ARCHES:
            known = ", ".join(ARCHES)
            raise ArgumentError(f"ti.init: no arch is called {name!r}; there are {known}")
    return [ARCHES[name].kind for name in names] or ["any"]


def _open_first(kinds: list[str], device: str | int | None, fallback: bool) -> Device:
    """A device of the first kind that there is; otherwise, with fallback, the best one."""
    from vkchi.device import open_device  # not before it is needed: Vulkan's bindings are slow

    for kind in kinds[:-1]:
        try:
            return open_device(kind, device, fallback=False)
        except DeviceError as e:
            logger().info("%s", e)
    return open_device(kinds[-1], device, fallback=fallback)


def _refuse_unknown(options: dict[str, Any]) -> None:
    unknown = sorted(set(options) - ACCEPTED)
    if unknown:
        near = nearest(unknown[0], [*ACCEPTED, *init.__annotations__])
        hint = f": did you mean {near}?" if near else ""
        raise UnknownOptionError(f"ti.init has no option called {', '.join(unknown)}{hint}")


def _seed(seed: Any) -> int:
    if seed is None:
        return 0
    if not hasattr(seed, "__index__"):
        raise ArgumentError(f"random_seed is an integer, not {seed!r}")
    return int(seed.__index__())


def _float_type(dtype: Any) -> Scalar:
    t = f32 if dtype is None else cook(dtype)
    if not isinstance(t, Scalar) or t.kind != "f":
        raise ArgumentError(f"default_fp is ti.f16, ti.f32 or ti.f64, not {dtype!r}")
    return t


def _int_type(dtype: Any) -> Scalar:
    t = i32 if dtype is None else cook(dtype)
    if not isinstance(t, Scalar) or t.kind not in "iu":
        raise ArgumentError(f"default_ip is an integer type such as ti.i32, not {dtype!r}")
    return t


def reset() -> None:
    """Free the device and everything made on it. Fields and kernels need a new `init`."""
    install(None)


def sync() -> None:
    """Wait until everything that was launched is done."""
    current().device.wait()
