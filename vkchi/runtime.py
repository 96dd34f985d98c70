"""The current runtime: a device with its options, created by `init` and destroyed by `reset`.

>>> init(arch=cpu); current_runtime().device.info.name
'llvmpipe (LLVM 15.0.6, 256 bits)'
"""

from __future__ import annotations

import enum
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from vkchi import env, platform
from vkchi.cache.version import noted_version
from vkchi.errors import (
    ArgumentError,
    DeviceError,
    KernelRuntimeError,
    UnknownOptionError,
    nearest_name,
)
from vkchi.hooks import Hook, python_scope
from vkchi.interrupts.contexts import restoring
from vkchi.interrupts.imports import run_in_background
from vkchi.interrupts.weak import WeakGroup
from vkchi.logs import log_info, set_logging_level
from vkchi.target.options import (
    DEFAULTS,
    Config,
    Options,
    options_without_effect,
    read_options,
)
from vkchi.types import SCALARS, Defaults, Scalar, bf16, cook, f32, f64, i32, i64

if TYPE_CHECKING:
    from types import FunctionType

    from vkchi.cache.store import CacheStore
    from vkchi.device import Device
    from vkchi.fields.trees.fields_builder import GlobalRoot
    from vkchi.reports.delivery import ReportBuffer
    from vkchi.reports.timings import KernelProfiler
    from vkchi.span import Span
    from vkchi.types import Array
    from vkchi.types.hints import ScalarDType


class Arch(enum.Enum):
    """A value of `init(arch=)` in Taichi programs. `kind` is the kind of device it selects; kernels
    of `python` run as Python, and memory is that of the best device."""

    x64 = "x64", "cpu"
    arm64 = "arm64", "cpu"
    cuda = "cuda", "nvidia"
    metal = "metal", "gpu"
    vulkan = "vulkan", "any"
    opengl = "opengl", "gpu"
    dx11 = "dx11", "gpu"
    dx12 = "dx12", "gpu"
    gles = "gles", "gpu"
    amdgpu = "amdgpu", "gpu"
    python = "python", "any"

    @property
    def kind(self) -> str:
        return self.value[1]

    def __repr__(self) -> str:
        return f"<Arch.{self.name}>"


MOST_COMPILED = 100_000  # recorded compile times
MOST_SPARE = 256  # copies of arrays kept for the next tape


class Arches(list[Arch]):
    """A list of archs that selects any GPU, such as `ti.gpu`."""

    kind = "gpu"


HOST_ARCH = Arch.arm64 if platform.find_machine().lower() in ("arm64", "aarch64") else Arch.x64
CPUS = {arch.name: arch for arch in (Arch.x64, Arch.arm64)}
GPUS = {arch.name: arch for arch in Arch if arch is not Arch.python and arch.kind != "cpu"}
cpu, x64, arm64, x86_64, python = HOST_ARCH, Arch.x64, Arch.arm64, Arch.x64, Arch.python
gpu, vulkan, cuda, amdgpu = Arches(GPUS.values()), Arch.vulkan, Arch.cuda, Arch.amdgpu
metal, opengl, gles, dx11, dx12 = Arch.metal, Arch.opengl, Arch.gles, Arch.dx11, Arch.dx12
ARCHES: dict[str, Arch | Arches] = {
    **CPUS, **GPUS, "cpu": cpu, "x86_64": x86_64, "gpu": gpu,
    "python": python,
}  # fmt: skip


class Runtime:
    """A device and its options, including Taichi's (`config`).

    - `lock`: held while a launch is prepared.
    - `gradients`, `duals`: arrays that are gradients or tangents of others.
    - `root`: root of the fields without a builder.
    - `movers`: functions that copy or accumulate arrays on the device, by array type.
    - `prepared`: gradients of tapes (`tape.PreparedGradients`), by their node in the trie of calls.
    - `spare_copies`: small copies of arrays that tapes made and do not use any more.
    - `watched_reads`: reads of kernels under validation, by number from 1: kernel and span.
    - `host_arrays`: finder of other libraries' arrays used in place (`interop.in_place`).
    - `deferred`: launches do not wait for work in memory of numpy and torch.
    - `cuda`: link to the same device in CUDA (`interop.cuda.link`), or the reason for its absence.
    - `on_compiled`: called with the function of each kernel that was compiled.
    - `is_cpu_wanted`: the user selected `ti.cpu`, and the device is one.
    - `arguments`: those of `init`.
    """

    arguments: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self, device: Device, options: Options, config: Config | None = None, *,
        deferred: bool = False, is_cpu_wanted: bool = False,
    ) -> None:  # fmt: skip
        self.device, self.options, self.config = device, options, config or Config()
        if options.cache is not None:
            self.options = options._replace(cache=options.cache.of_device(device.info.name))
            device.pipelines.cache.keep_on(self.options.cache)
        self.lock = threading.RLock()
        self.draws = 0
        self.root: GlobalRoot | None = None
        self.movers: dict[tuple[Array, bool], Callable[..., None]] = {}
        self.prepared: dict[int, Any] = {}
        self.spare_copies: deque[Any] = deque(maxlen=MOST_SPARE)
        self.watched_reads: list[tuple[str, Span | None]] = []
        self._reports: ReportBuffer | None = None
        self.profiler: KernelProfiler | None = None
        self.compiled: deque[tuple[str, float]] = deque(maxlen=MOST_COMPILED)  # (kernel, seconds)
        self.on_compiled: Callable[[FunctionType], None] | None = None
        self.recording: Any = None  # last recorder of calls; see `tape`
        self.host_arrays: Any = None
        self.deferred = deferred
        self.is_cpu_wanted = is_cpu_wanted
        self.cuda: Any = None
        self.gradients: WeakGroup[Any] = WeakGroup()
        self.duals: WeakGroup[Any] = WeakGroup()
        self.exported: WeakGroup[Any] = WeakGroup()  # arrays shared in place

    @property
    def tape(self) -> Any:
        """The active recorder of kernel calls: a tape, forward mode or `ti.record`; else None.

        A recorder whose `__exit__` was skipped by an exception is closed here.
        """
        if self.recording is not None and self.recording.is_left:
            left, self.recording = self.recording, None  # ended by an exception in `__exit__`
            left.close()
        return self.recording

    @property
    def reports(self) -> ReportBuffer:
        """Receiver of messages from kernels; created at first use."""
        if self._reports is None:
            from vkchi.reports.delivery import ReportBuffer  # few programs need it

            self._reports = ReportBuffer(self.device)
        return self._reports

    @property
    def is_taped(self) -> bool:
        """True if a tape records kernel calls for gradients."""
        return self.tape is not None and self.tape.kind == "grad"

    def next_seed(self) -> int:
        """A new 32-bit seed for a launch that draws random numbers."""
        self.draws += 1
        return self.seed(self.draws)

    def seed(self, number: int) -> int:
        """The `number`-th seed of this runtime, past or future."""
        return (self.options.random_seed * 0x9E3779B1 + number * 0x85EBCA6B) & 0xFFFFFFFF

    def seeds(self, after: int | None) -> Callable[[], int]:
        """Function that returns the next seed per call: new ones if `after` is None.

        Otherwise it repeats the seeds from number `after` + 1 on.
        """
        if after is None:
            return self.next_seed
        return map(self.seed, itertools.count(after + 1)).__next__

    def close(self) -> None:
        """Wait for the device and free everything created on it. Idempotent."""
        self.device.close()


class RuntimeState:
    runtime: Runtime | None = None
    others: ClassVar[list[Runtime]] = []  # of devices other than that of `init`
    received: Mapping[str, Any] | None = None  # arguments of `init` in the process that pickled
    opening: ClassVar[threading.RLock] = threading.RLock()
    noted: ClassVar[set[str]] = set()  # ineffective options already logged


def _renew_lock() -> None:
    """Replace the locks in a forked child: a thread of the parent may have held them."""
    RuntimeState.opening = threading.RLock()
    for runtime in all_runtimes():
        runtime.lock = threading.RLock()


platform.at_fork(in_child=_renew_lock)


def current_config() -> Config | None:
    """`ti.cfg`: the options of the current runtime; None before `init`."""
    runtime = find_runtime()
    return None if runtime is None else runtime.config


def current_runtime() -> Runtime:
    """The current runtime (`find_runtime`). In a process without one that has unpickled kernels or
    ndarrays, `init` is called as in the process that pickled them.

    Raises KernelRuntimeError before `init` and after `reset`.
    """
    runtime = RuntimeState.runtime if CHOSEN.get() is None else find_runtime()  # fast usual case
    if runtime is None and RuntimeState.received is not None:
        runtime = open_received()
    if runtime is None:
        raise KernelRuntimeError("vkchi is not initialised: call ti.init() first")
    return runtime


class InitArguments:
    """Arguments of `init`, pickled with kernels and ndarrays: unpickling keeps them for a process
    without a runtime (`current_runtime`)."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.arguments = dict(arguments)

    def __reduce__(self) -> Any:
        return receive_arguments, (self.arguments,)


def init_arguments() -> InitArguments | None:
    """The arguments of the last `init`; those received if there was none, or None."""
    runtime = RuntimeState.runtime
    given = RuntimeState.received if runtime is None else runtime.arguments
    return None if given is None else InitArguments(given)


def receive_arguments(arguments: Mapping[str, Any]) -> InitArguments:
    """Unpickle InitArguments. The first ones count."""
    if RuntimeState.runtime is None and RuntimeState.received is None:
        RuntimeState.received = arguments
    return InitArguments(arguments)


def open_received() -> Runtime | None:
    """Call `init` with the arguments that were received, unless another thread has."""
    with restoring(RuntimeState.opening), RuntimeState.opening:
        if RuntimeState.runtime is None and RuntimeState.received is not None:
            init(**RuntimeState.received)
        return RuntimeState.runtime


def find_runtime() -> Runtime | None:
    """The runtime of the enclosing `with ti.device(...)`, else that of `init`; None if there is
    none."""
    block = innermost_context()
    return RuntimeState.runtime if block is None else block.runtime


def all_runtimes() -> list[Runtime]:
    """All runtimes: that of `init` first."""
    return [*([] if RuntimeState.runtime is None else [RuntimeState.runtime]), *RuntimeState.others]


def has_several() -> bool:
    """True if devices other than that of `init` are open."""
    return bool(RuntimeState.others)


def await_host_memory(but: Runtime | None = None) -> None:
    """Wait for each busy device that is `deferred` or has exported arrays, except that of `but`.

    Call it before Python reads memory that kernels share with other libraries.
    """
    for runtime in all_runtimes():
        if runtime is not but and runtime.device.busy and (runtime.deferred or runtime.exported):
            runtime.device.wait()


class DeviceContext(Protocol):
    """A block that makes another runtime the current one (`elsewhere`)."""

    runtime: Runtime
    above: DeviceContext | None

    @property
    def is_left(self) -> bool:
        """True if it has ended."""


CHOSEN: ContextVar[DeviceContext | None] = ContextVar("device", default=None)


def innermost_context() -> DeviceContext | None:
    """The innermost open block of `ti.device` in this context; None if there is none."""
    block = CHOSEN.get()
    while block is not None and block.is_left:
        block = block.above
    return block


def require_home(what: str, home: Runtime, here: Runtime) -> None:
    """Raise KernelRuntimeError if an object's runtime `home` is closed, or is not `here`.

    Raises DeviceError if the device was not closed by `ti.init` or `ti.reset`.
    """
    if home.device.closed:
        if not home.device.is_reset:
            home.device.require_open()
        raise KernelRuntimeError(f"{what} was made before ti.init: make it again")
    if home is not here:
        raise KernelRuntimeError(
            f"{what} is on {home.device.info.name}, and this is {here.device.info.name}: use both "
            "inside the same `with ti.device(...)`, or outside of it"
        )


def install_runtime(runtime: Runtime | None) -> None:
    """Close all runtimes, make `runtime` the current one, and set the default types from its
    options.

    Raises KernelRuntimeError inside a block of `ti.device`.
    """
    if innermost_context() is not None:
        raise KernelRuntimeError(
            "inside `with ti.device(...)` the devices stay open: call ti.init() and ti.reset() "
            "outside of it"
        )
    while RuntimeState.others:
        RuntimeState.others[-1].close()
        RuntimeState.others.pop()
    if RuntimeState.runtime is not None:
        RuntimeState.runtime.close()
        RuntimeState.runtime = None
    options = runtime.options if runtime else Options()
    Defaults.fp, Defaults.ip = options.default_fp, options.default_ip
    RuntimeState.runtime = runtime


@python_scope
def init(
    arch: Arch | Arches | str | Sequence[Arch | Arches | str] | None = None,
    default_fp: ScalarDType | str | None = None,
    default_ip: ScalarDType | str | None = None,
    *,
    device: str | int | None = None,
    enable_fallback: bool = True,
    debug: bool | Literal["nan"] | None = None,
    fast_math: bool | None = None,
    strict: bool | None = None,
    random_seed: int | None = None,
    log_level: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    host_arrays: Literal["immediate", "deferred"] | None = None,
    **others: object,
) -> None:
    """Close the open devices, and open a new one. Fields and arrays created before are invalid.

    Environment variables supply missing options: TI_DEBUG is `debug`. TI_ARCH overrides `arch`.

    Args:
        arch: `ti.vulkan` (the best device), `ti.gpu`, `ti.cuda` (NVIDIA), `ti.cpu` (a software
            device), a list of them in order of preference, or a name. `ti.python` runs kernels
            as plain Python, for debuggers (docs/language/debugging.md).
        default_fp: type of floats without an explicit type (f32).
        default_ip: type of integers without an explicit type (i32).
        device: an index, or part of a device's name.
        enable_fallback: accept a device of another kind.
        debug: check indices, assertions, integer overflow, division by zero and races. "nan":
            check for stores of NaN and infinities only.
        fast_math: permit other rounding of floats, and any result for infinities, NaNs and the
            sign of zeros.
        strict: make ConversionWarning and ConstantWarning errors.
        random_seed: an integer that determines the random numbers of kernels.
        log_level: `ti.TRACE` to `ti.CRITICAL`.
        cache_dir: folder of compiled kernels (docs/cache.md).
        host_arrays: "immediate": a call waits for its work in memory of numpy and torch;
            "deferred": `ti.sync()` does (docs/interop.md).
        **others: further options of Taichi (`target.options`).

    Raises:
        DeviceError: if there is no such device, or none of that kind and enable_fallback is False.
        ArgumentError: for an option that neither Taichi nor vkchi has, an invalid value, and an
            invalid environment variable.
        KernelRuntimeError: inside `with ti.device(...)`.
    """
    _refuse_unknown(others)
    arguments = {"arch": arch, "default_fp": default_fp, "default_ip": default_ip, "device": device,
                 "enable_fallback": enable_fallback, "debug": debug, "fast_math": fast_math,
                 "strict": strict, "random_seed": random_seed, "log_level": log_level,
                 "cache_dir": cache_dir, "host_arrays": host_arrays, **others}  # fmt: skip
    env.check_flags()
    given = {"default_fp": default_fp, "default_ip": default_ip, "debug": debug,
             "fast_math": fast_math, "strict": strict, "random_seed": random_seed,
             "log_level": log_level, "host_arrays": host_arrays}  # fmt: skip
    config = read_options({**given, **others}, os.environ)
    wanted = wanted_arches(arch)
    set_logging_level(str(config.setdefault("log_level", env.flag("VKCHI_LOG"))).lower())
    if "debug" not in config:
        config["debug"] = env.flag("VKCHI_DEBUG") if env.is_on("VKCHI_DEBUG") else False
    is_python = env.is_on("VKCHI_PYTHON") or wanted[0] is python
    options = _cook(config)._replace(cache=_open_cache(config, cache_dir), python=is_python)
    _check_host_arrays(config.get("host_arrays"))
    install_runtime(None)
    run_in_background(lambda: FirstKernel.load(options.cache))  # while the driver starts
    opened = _open_first([a.kind for a in wanted], device, enable_fallback)
    config |= {name: getattr(options, name) for name in Options._fields if name in DEFAULTS}
    unsigned = SCALARS[f"u{options.default_ip.bits}"]
    config |= {"arch": arch_of(opened, wanted), "default_up": unsigned}
    deferred = config.get("host_arrays") == "deferred"
    is_cpu_wanted = asks_for_cpu(opened, wanted)
    install_runtime(
        Runtime(opened, options, Config(config), deferred=deferred, is_cpu_wanted=is_cpu_wanted)
    )
    current_runtime().arguments = {k: v for k, v in arguments.items() if v is not None}
    if config.get("kernel_profiler"):
        from vkchi.reports.timings import start_profiler  # few programs need it

        current_runtime().profiler = start_profiler(opened)
    log_info("vkchi runs on %s", opened.info.name)
    log_idle_options(config)


class FirstKernel:
    """Hook that loads the modules for the first kernel."""

    load = Hook("load what kernels take")


def _cook(config: dict[str, Any]) -> Options:
    """Options that affect code generation."""
    debug = config["debug"]
    return Options(
        default_fp=_float_type(config.get("default_fp")),
        default_ip=_int_type(config.get("default_ip")),
        debug=bool(debug) and debug != "nan",
        nan=debug == "nan",
        check_out_of_bound=bool(config.get("check_out_of_bound")),
        fast_math=bool(config.get("fast_math")) and debug != "nan",
        strict=bool(config.get("strict")),
        random_seed=_seed(config.get("random_seed")),
        missing_gradient=_error_or_warn(config.get("missing_gradient")),
        accept_races=_names(config.get("accept_races")),
    )


POLICIES = ("never", "version", "lru", "fifo")


def _open_cache(
    config: dict[str, Any], cache_dir: str | os.PathLike[str] | None
) -> CacheStore | None:
    """Cache of compiled kernels according to Taichi's options; None if disabled.

    None too if the version of vkchi's sources cannot be determined. Raises ArgumentError for an
    unknown policy.
    """
    policy = config.get("offline_cache_cleaning_policy", "lru")
    if policy not in POLICIES:
        raise ArgumentError(
            f"offline_cache_cleaning_policy is {policy!r}, and may be {', '.join(POLICIES)}"
        )
    is_off = not config.get("offline_cache", True) or config.get("debug") == "nan"
    if is_off or not env.is_on("VKCHI_CACHE"):
        return None
    from vkchi.cache.store import (
        USUAL,
        CacheStore,
        Limits,
        find_folder,  # 10 ms
    )

    size = int(config.get("offline_cache_max_size_of_files", USUAL.most_bytes))
    factor = float(config.get("offline_cache_cleaning_factor", USUAL.factor))
    folder = find_folder(cache_dir or config.get("offline_cache_file_path"))
    store = CacheStore(folder, Limits(policy, size, factor))
    store.version = noted_version(store)
    return store if store.version else None


def arch_of(device: Device, wanted: list[Arch | Arches]) -> Arch:
    """The first arch in `wanted` that the device matches, for `ti.cfg.arch`; lists are skipped.

    If none matches, the host's arch for a software device, else `ti.vulkan`.
    """
    from vkchi.target.devices import SELECTORS

    for arch in wanted:
        if isinstance(arch, Arch) and SELECTORS[arch.kind](device.info):
            return arch
    return HOST_ARCH if SELECTORS["cpu"](device.info) else GPUS["vulkan"]


def asks_for_cpu(device: Device, wanted: list[Arch | Arches]) -> bool:
    """True if the device is a software device and the user selected one."""
    from vkchi.target.devices import SELECTORS

    return SELECTORS["cpu"](device.info) and any(arch.kind == "cpu" for arch in wanted)


def log_idle_options(config: dict[str, Any]) -> None:
    """Log the options that were set and have no effect, each once."""
    new = [text for text in options_without_effect(config) if text not in RuntimeState.noted]
    if new:
        RuntimeState.noted.update(new)
        log_info("these options of ti.init change nothing here: %s", ", ".join(new))


def wanted_arches(arch: Any) -> list[Arch | Arches]:
    """List of the archs that TI_ARCH, or else `arch=` selects, the preferred one first. Raises
    ArgumentError."""
    arch = os.environ.get("TI_ARCH") or arch  # as in Taichi
    is_several = isinstance(arch, list | tuple) and not isinstance(arch, Arch | Arches)
    return [_arch(a) for a in (arch if is_several else [arch])] or [_arch(None)]


def _arch(arch: Any) -> Arch | Arches:
    if isinstance(arch, Arch | Arches):
        return arch
    name = "vulkan" if arch is None else arch
    if not isinstance(name, str) or name not in ARCHES:
        raise ArgumentError(f"ti.init: no arch is called {name!r}; there are {', '.join(ARCHES)}")
    return ARCHES[name]


def _open_first(kinds: list[str], device: str | int | None, fallback: bool) -> Device:
    """Open a device of the first kind present; otherwise, with fallback, the best device."""
    from vkchi.device import open_device  # loaded on demand: slow bindings

    for kind in kinds[:-1]:
        try:
            return open_device(kind, device, fallback=False)
        except DeviceError as e:
            log_info("%s", e)
    return open_device(kinds[-1], device, fallback=fallback)


def _refuse_unknown(options: dict[str, Any]) -> None:
    unknown = sorted(options.keys() - DEFAULTS.keys())
    if unknown:
        near = nearest_name(unknown[0], [*DEFAULTS, *init.__annotations__])
        hint = f": did you mean {near}?" if near else ""
        raise UnknownOptionError(f"ti.init has no option called {', '.join(unknown)}{hint}")


def _error_or_warn(given: Any) -> str:
    found = given or env.flag("VKCHI_MISSING_GRADIENT")
    if found not in ("error", "warn"):
        raise ArgumentError(f"missing_gradient is 'error' or 'warn', not {given!r}")
    return str(found)


def _check_host_arrays(given: Any) -> None:
    if given not in (None, "immediate", "deferred"):
        raise ArgumentError(f"host_arrays is 'immediate' or 'deferred', not {given!r}")


def _names(given: Any) -> tuple[str, ...]:
    """Names of kernels in a sequence or comma-separated string; None reads VKCHI_ACCEPT_RACES."""
    found = env.flag("VKCHI_ACCEPT_RACES") if given is None else given
    parts = found.split(",") if isinstance(found, str) else found
    return tuple(part.strip() for part in map(str, parts) if part.strip())


def _seed(seed: Any) -> int:
    if seed is None:
        return 0
    if not hasattr(seed, "__index__"):
        raise ArgumentError(f"random_seed is an integer, not {seed!r}")
    return int(seed.__index__())


# Values of TI_DEFAULT_FP and TI_DEFAULT_IP.
WIDTHS: dict[str, dict[Any, Scalar]] = {"f": {32: f32, 64: f64}, "i": {32: i32, 64: i64}}


def _float_type(dtype: Any) -> Scalar:
    t = f32 if dtype is None else cook(WIDTHS["f"].get(dtype, dtype))
    if not isinstance(t, Scalar) or t.kind != "f" or t is bf16:
        raise ArgumentError(f"default_fp is ti.f16, ti.f32 or ti.f64, not {dtype!r}")
    return t


def _int_type(dtype: Any) -> Scalar:
    t = i32 if dtype is None else cook(WIDTHS["i"].get(dtype, dtype))
    if not isinstance(t, Scalar) or t.kind not in "iu":
        raise ArgumentError(f"default_ip is an integer type such as ti.i32, not {dtype!r}")
    return t


@python_scope
def reset() -> None:
    """Wait for all devices and close them. Fields and arrays become invalid.

    Kernels work again after a new `init`.

    Raises:
        KernelRuntimeError: inside `with ti.device(...)`.
    """
    install_runtime(None)
    RuntimeState.received = None


@python_scope
def sync() -> None:
    """Wait until all launches are done, on all devices.

    Raises:
        KernelRuntimeError: before `init`.
    """
    current_runtime()
    for runtime in all_runtimes():
        runtime.device.wait()
