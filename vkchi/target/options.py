"""Compile options, and Taichi's options: defaults, `TI_*` environment variables, `ti.cfg`.

Most compile options are settings of `ti.init`. Those in `IN_CODE` are in cache keys.

>>> read_options({"packed": True}, {"TI_CUDA_STACK_LIMIT": "4096"})
{'packed': True, 'cuda_stack_limit': 4096}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentError, OptionError
from vkchi.interrupts.local import local
from vkchi.tuples import NamedTuple
from vkchi.types import Scalar, f32, i32

if TYPE_CHECKING:
    from vkchi.cache.store import CacheStore

# Options that compiled code depends on.
IN_CODE = (
    "fast_math",
    "block_dim",
    "exact",
    "debug",
    "check_out_of_bound",
    "in_order",
    "unrelated",
    "strict",
    "nan",
    "python",
)


class Options(NamedTuple):
    """Compile options.

    - debug: emit checks in kernels.
    - check_out_of_bound: emit index checks.
    - fast_math: allow inexact simplifications of floats.
    - block_dim: workgroup size of loops that do not set one; None lets the compiler choose.
    - exact: round every sum and product separately, so that recomputed values are bit-identical.
    - missing_gradient: `error` or `warn`, if a gradient flows through an array without one.
    - accept_races: kernels (`scatter`, `Solver.scatter`, `fluid.Solver.scatter`) whose races cause
      neither errors in gradients nor warnings.
    - in_order: numbers of the parallel loops to compile as serial loops (`races.watch`).
    - unrelated: do not specialize for shapes and overlaps of the arrays of objects, and use no
      active lists (`aot`).
    - nan: report stores of NaN and infinities.
    - strict: report warnings about conversions and constants as errors.
    - python: kernels run as plain Python (`python_mode`).
    - cache: store of compiled code; ignored by comparison and hash.
    """

    default_fp: Scalar = f32
    default_ip: Scalar = i32
    debug: bool = False
    check_out_of_bound: bool = False
    fast_math: bool = False
    random_seed: int = 0
    block_dim: int | None = None
    exact: bool = False
    missing_gradient: str = "error"
    accept_races: tuple[str, ...] = ()
    in_order: tuple[int, ...] = ()
    unrelated: bool = False
    strict: bool = False
    nan: bool = False
    python: bool = False
    cache: CacheStore | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:-1])

    def accepts_races(self, path: str) -> bool:
        """True if a name in `accept_races` is the end of this path (module, class, name), in whole
        parts."""
        return any(f".{path}".endswith(f".{name}") for name in self.accept_races)

    @property
    def checks_indices(self) -> bool:
        return self.debug or self.check_out_of_bound


# --- options of `ti.init` and `ti.cfg` -----------------------------------------------------------


_ON = """
    advanced_optimization allow_nv_shader_extension cache_loop_invariant_global_vars
    cfg_optimization cpu_block_dim_adaptive demote_dense_struct_fors demote_no_access_mesh_fors
    detect_read_only dynamic_index lower_access make_block_local make_cpu_multithreading_loop
    make_mesh_block_local make_thread_local mesh_localize_to_end_mapping
    optimize_mesh_reordered_mapping quant_opt_atomic_demotion quant_opt_store_fusion real_matrix
    real_matrix_scalarize short_circuit_operators simplify_after_lower_access
    simplify_before_lower_access verbose
"""
_OFF = """
    _test_mode debug_mode experimental_auto_mesh_local experimental_features flatten_if
    force_scalarize_matrix gdb_trigger half2_vectorization
    mesh_localize_all_attr_mappings mesh_localize_from_end_mapping move_loop_invariant_outside_if
    packed print_accessor_ir print_full_traceback print_ir print_ir_dbg_info
    print_kernel_amdgcn print_kernel_asm print_kernel_llvm_ir print_kernel_llvm_ir_optimized
    print_kernel_nvptx print_preprocessed_ir print_struct_llvm_ir timeline use_llvm use_mesh
    verbose_kernel_launches wait_signal
"""
# Taichi's options without an effect here, with their defaults in `ti.cfg`. They are accepted so
# that programs run unmodified.
WITHOUT_EFFECT: dict[str, bool | int | float | str] = {
    **dict.fromkeys(_ON.split(), True),
    **dict.fromkeys(_OFF.split(), False),
    **dict.fromkeys(("ad_stack_size", "cuda_stack_limit", "gpu_max_reg", "saturating_grid_dim"), 0),
    **dict.fromkeys(("cc", "require_version", "vk_api_version"), ""),
    "auto_mesh_local_default_occupacy": 4,
    "cpu_max_num_threads": 0,
    "default_cpu_block_dim": 32,
    "default_gpu_block_dim": 128,
    "max_block_dim": 1024,
    "max_vector_width": 8,
    "num_compile_threads": 4,
    "opt_level": 1,
    "unrolling_limit": 32,
}
# Options with an effect that the environment can also set, with their defaults.
WITH_EFFECT: dict[str, bool | int | float | str] = {
    "accept_races": "",
    "check_out_of_bound": False,
    "debug": False,
    "default_fp": 32,
    "default_ip": 32,
    "device_memory_GB": 0.0,  # no limit
    "device_memory_fraction": 0.0,
    "fast_math": False,
    "host_arrays": "immediate",
    "kernel_profiler": False,
    "log_level": "info",
    "missing_gradient": "error",
    "offline_cache": True,
    "offline_cache_cleaning_factor": 0.25,
    "offline_cache_cleaning_policy": "lru",
    "offline_cache_file_path": "",
    "offline_cache_max_size_of_files": 100 << 20,
    "random_seed": 0,
    "strict": False,
}
DEFAULTS = {**WITHOUT_EFFECT, **WITH_EFFECT}
TYPES = ("default_fp", "default_ip")  # given as types; in the environment as bit widths
WORDS = {"debug": "nan"}  # switches that may also be a word
VALUES = {bool: "True or False", int: "an integer", float: "a number"}

# Replacements for options without an effect, for messages.
INSTEAD = {
    "debug_mode": "debug=True",
    "print_ir": "set VKCHI_PRINT=ir",
    "print_preprocessed_ir": "set VKCHI_PRINT=ir",
    "verbose_kernel_launches": "set VKCHI_TIME=1 for compile times",
}


def read_options(given: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the given options, completed from environment variables such as TI_DEBUG=1.

    A given option takes precedence, unless it is None. Raises ArgumentError, naming the option or
    variable, for a value of the wrong type.
    """
    found = {name: value for name, value in given.items() if value is not None}
    for name, value in found.items():
        check_option_type(name, value)
    for name, default in DEFAULTS.items():
        variable = f"TI_{name.upper()}"
        text = environ.get(variable, "")
        if text and name not in found:
            found[name] = parse_variable(variable, text, default)
    return found


def check_option_type(name: str, value: Any) -> None:
    """Raise ArgumentError if the value's type does not fit the option.

    That is any value but True, False, 1 and 0 for a switch, except `debug="nan"`, or a string for a
    number. Options that are types or strings, and unknown ones, are not checked.
    """
    kind = type(DEFAULTS.get(name, ""))
    if kind is str or name in TYPES:
        return
    word = WORDS.get(name)
    is_word = isinstance(value, str) and value == word
    is_wrong = value not in (True, False) if kind is bool else isinstance(value, str)
    if is_wrong and not is_word:
        values = VALUES[kind] if word is None else f"True, False or {word!r}"
        raise ArgumentError(f"{name} is {values}, not {value!r}")


def parse_variable(variable: str, text: str, default: Any) -> Any:
    """Convert the text of an environment variable to the type of the option's default.

    The text of a switch is an integer, where 0 means False; TI_DEBUG may also be `nan`. Raises
    ArgumentError for a text that is not of the type.
    """
    kind = type(default)
    if text in WORDS.values() and variable.removeprefix("TI_").lower() in WORDS:
        return text
    try:
        return bool(int(text)) if kind is bool else kind(text)
    except local(ValueError):
        what = "0 or 1" if kind is bool else VALUES[kind]
        word = WORDS.get(variable.removeprefix("TI_").lower())
        what += f' or "{word}"' if word is not None else ""
        raise ArgumentError(f"{variable} is {text!r}, and may be {what}") from None


def options_without_effect(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the name of each given option that has no effect, with a replacement in parentheses if
    there is one."""
    for name in options:
        if name in WITHOUT_EFFECT:
            yield name + (f" ({INSTEAD[name]})" if name in INSTEAD else "")


class Config:
    """The current options as attributes, such as `ti.cfg.debug`. Options without an effect can be
    assigned. Raises OptionError when an unknown option, or one that only `ti.init` can set, is
    assigned; AttributeError when an unknown one is read."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        vars(self).update({**DEFAULTS, **(options or {})})

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in vars(self):
            raise OptionError(f"there is no option called {name}")
        if name not in WITHOUT_EFFECT:
            raise OptionError(f"ti.cfg.{name} cannot be assigned: call ti.init({name}=...)")
        vars(self)[name] = value

    def __repr__(self) -> str:
        return f"<ti.cfg: {', '.join(f'{k}={v}' for k, v in sorted(vars(self).items()))}>"
