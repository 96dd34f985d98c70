"""Names that programs use beside the language: options, archs, extensions, inner modules."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkchi as ti

Init = Callable[..., None]


# --- options -------------------------------------------------------------------------------------


def test_options_can_be_read(init: Init) -> None:
    init(arch=ti.cpu, random_seed=5, debug=True, offline_cache=False, cuda_stack_limit=4096)
    assert (ti.cfg.random_seed, ti.cfg.debug, ti.cfg.cuda_stack_limit) == (5, True, 4096)
    assert ti.cfg.offline_cache is False and ti.cfg.kernel_profiler is False
    assert ti.cfg.default_fp == ti.f32 and ti.cfg.default_ip.to_string() == "i32"
    assert ti.cfg.default_up == ti.u32 and ti.cfg.print_ir is False
    assert not hasattr(ti.cfg, "no_such_option")
    assert ti.lang.impl.current_cfg().random_seed == 5
    program = ti.lang.impl.get_runtime().prog
    assert program is not None and program.config().debug
    assert ti.lang.impl.get_runtime().default_fp == ti.f32


def test_the_arch_in_use(init: Init) -> None:
    init(arch=ti.cpu)
    if ti.cfg.arch == ti.vulkan:
        pytest.skip("there is no software device beside the one in use")
    assert ti.cfg.arch == ti.cpu and ti.cfg.arch in (ti.x64, ti.arm64)
    assert str(ti.cfg.arch).split(".")[-1] == ti.cfg.arch.name == ti._lib.core.arch_name(ti.cpu)
    assert ti.cfg.arch not in ti.gpu and ti.vulkan in ti.gpu and ti.cuda in ti.gpu
    assert ti._lib.core.host_arch() == ti.cpu
    assert ti.lang.misc.get_host_arch_list() == [ti.cpu]
    assert ti._lib.core.arch_from_name("cuda") == ti.cuda


OPTIONS = {
    "offline_cache": True, "offline_cache_file_path": "/tmp/cache", "cuda_stack_limit": 1024,
    "offline_cache_cleaning_policy": "lru", "offline_cache_max_size_of_files": 1 << 20,
    "advanced_optimization": False, "print_ir": False, "verbose": False, "kernel_profiler": False,
    "check_out_of_bound": True, "fast_math": False, "ad_stack_size": 16, "cpu_max_num_threads": 2,
    "device_memory_GB": 0.5, "device_memory_fraction": 0.0, "flatten_if": True, "opt_level": 2,
    "default_cpu_block_dim": 64, "unrolling_limit": 0, "short_circuit_operators": True,
    "gpu_max_reg": 32, "make_thread_local": False, "print_kernel_asm": False, "timeline": False,
    "demote_no_access_mesh_fors": False, "print_struct_llvm_ir": False, "use_llvm": True,
    "offline_cache_cleaning_factor": 0.5, "cache_loop_invariant_global_vars": False,
}  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
def test_options_are_taken(option: str, init: Init) -> None:
    init(**{option: OPTIONS[option]})
    x = ti.field(ti.i32, 3)

    @ti.kernel
    def run():
        for i in x:
            x[i] = i

    run()
    assert x.to_numpy().tolist() == [0, 1, 2]
    if hasattr(ti.cfg, option):  # some are not Taichi's compiler's
        assert getattr(ti.cfg, option) == OPTIONS[option]


def test_unknown_options_are_key_errors(init: Init) -> None:
    with pytest.raises(KeyError, match="no_such_option"):
        init(no_such_option=1)


def test_options_from_the_environment(init: Init, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "TI_DEBUG": "1", "TI_CUDA_STACK_LIMIT": "2048", "TI_DEFAULT_IP": "32",
        "TI_OFFLINE_CACHE": "0", "TI_DEVICE_MEMORY_GB": "0.5", "TI_VERBOSE": "", "TI_ARCH": "x64",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    init(offline_cache=True)
    assert ti.cfg.debug is True and ti.cfg.cuda_stack_limit == 2048
    assert ti.cfg.offline_cache is True  # arguments come first
    assert ti.cfg.device_memory_GB == 0.5 and ti.cfg.default_ip == ti.i32
    monkeypatch.setenv("TI_DEBUG", "yes")
    with pytest.raises(ValueError):
        init()


@pytest.mark.ours("bounds-alone")
def test_checks_of_indices_alone(init: Init) -> None:
    init(check_out_of_bound=True)
    x = ti.field(ti.i32, 3)

    @ti.kernel
    def store(k: ti.i32):
        x[k] = 1

    store(2)
    with pytest.raises(ti.TaichiAssertionError, match=r"(?s)out of bounds.*\(3\)"):
        store(3)


# --- archs and extensions ------------------------------------------------------------------------


def test_programs_choose_an_arch() -> None:
    core = ti._lib.core
    answers = [core.with_vulkan(), core.with_cuda(), core.with_metal()]
    assert all(isinstance(answer, bool) for answer in answers)
    arch = ti.vulkan if core.with_vulkan() else ti.cuda
    assert isinstance(arch, core.Arch) and isinstance(ti.f32, core.DataType)
    assert ti.lang.misc.is_arch_supported(ti.cpu)


def test_log_functions() -> None:
    ti._logging.trace("a word beneath the level that is logged")
    ti.set_logging_level(ti.ERROR)
    ti._logging.info("another")
    assert not ti.is_logging_effective(ti.INFO) and ti.is_logging_effective(ti.CRITICAL)
    ti.set_logging_level(ti.INFO)


def test_extension_names() -> None:
    found = ti.lang.misc.is_extension_supported
    names = "sparse quant quant_basic mesh data64 adstack bls assertion extfunc".split()
    answers = {name: found(ti.cpu, getattr(ti.extension, name)) for name in names}
    assert all(isinstance(answer, bool) for answer in answers.values())
    assert answers["assertion"] and answers["adstack"] and answers["sparse"]
    assert [getattr(ti.extension, name).name for name in names] == names


@pytest.mark.ours("version")
def test_the_version_is_our_own() -> None:
    assert isinstance(ti.__version__, str) and ti.__version__.count(".") == 2
    assert f"{ti.__version__}" == str(ti.__version__) and ti.__version__ == str(ti.__version__)


def test_the_version_is_compared_with_tuples() -> None:
    assert ti.__version__ >= (1, 1, 0) and (1, 6) < ti.__version__ and not ti.__version__ > (1, 8)
    assert ti.__version__ == (1, 7, 4) and ti.__version__ != (1, 7, 3)
    assert ti.__version__ <= (1, 7, 4) and not ti.__version__ < (1, 7)


def inner(name: str) -> Any:
    """A module of Taichi's that is not public."""
    return importlib.import_module(f"vkchi.{name}")


def test_types_of_the_core() -> None:
    core = inner("_lib.core.taichi_python")
    assert isinstance(ti.f32, core.DataType) and not isinstance(3, core.DataType)


def test_classes_of_tensor_types() -> None:
    matrix = inner("lang.matrix")
    mat, vec = matrix.MatrixType(2, 3, 2, ti.f32), matrix.VectorType(3, ti.i32)
    assert (mat.n, mat.m, mat.ndim, vec.n) == (2, 3, 2, 3)
    assert isinstance(mat, matrix.MatrixType) and isinstance(vec, matrix.MatrixType)
    assert isinstance(vec, matrix.VectorType) and not isinstance(mat, matrix.VectorType)
    assert isinstance(ti.math.vec3, matrix.VectorType) and not isinstance(3, matrix.MatrixType)
    assert "a=f32" in ti.types.struct(a=ti.f32).to_string()
    assert mat.to_string() == "MatrixType[2,3, f32]" and vec.to_string() == "VectorType[3, i32]"

    @ti.kernel
    def run(n: ti.i32) -> ti.types.vector(3, ti.i32):
        a = matrix.VectorType(3, ti.i32)([n, 1, 2])
        b = matrix.MatrixType(2, 2, 2, ti.i32)([[1, 2], [3, 4]])
        return a + b[1, 1]

    assert list(run(4)) == [8, 5, 6]


def test_struct_types_cast() -> None:
    pair = ti.types.struct(a=ti.i32, b=ti.f32)
    made = pair.cast(ti.Struct(a=2.0, b=3))
    assert (made.a, made.b) == (2, 3.0) and isinstance(made.b, float)

    @ti.kernel
    def run() -> ti.f32:
        s = pair.cast(ti.Struct(a=2.0, b=3))
        return s.a * 10 + s.b / 2

    assert run() == 21.5


def test_casts_of_structs_are_explicit() -> None:
    """`S.cast` converts without a warning, nested structs too; a call of S does not."""
    inner = ti.types.struct(k=ti.i32, v=ti.math.ivec2)
    pair = ti.types.struct(a=ti.i8, b=inner)
    given = {"a": 300.7, "b": {"k": -1.5, "v": [2.5, 3.5]}}
    made = pair.cast(given)
    assert made.to_dict() == {"a": 44, "b": {"k": -1, "v": [2, 3]}}
    assert isinstance(made, pair) and made.__vkchi_type__ is pair
    with pytest.raises(ValueError, match="does not fit i8"):
        pair(given)
    with pytest.raises(ValueError, match="does not fit i32"):
        made.b.k = 0.5  # the type of the value is `pair` again

    @ti.kernel
    def run(x: ti.f32) -> ti.math.ivec4:
        s = pair.cast(ti.Struct(a=x, b=ti.Struct(k=-x, v=ti.Vector([x, 2 * x]))))
        return ti.math.ivec4(s.a, s.b.k, s.b.v)

    assert list(run(7.75)) == [7, -7, 7, 15]


def test_the_members_and_the_name_of_a_struct_field() -> None:
    pair = ti.types.struct(a=ti.i32, b=ti.f32)
    x = pair.field(shape=3, name="pairs")
    made = ti.StructField({"a": ti.field(ti.f32, 3)}, {}, "made")
    assert (x.name, made.name) == ("pairs", "made")
    assert list(x.field_dict) == ["a", "b"] and list(made.field_dict) == ["a"]
    x.field_dict["a"][1] = 7
    assert x[1].a == 7


def test_directions_as_angles() -> None:
    utils = inner("ui.utils")
    for yaw, pitch in [(0.5, 0.25), (-2.0, 1.2), (3.0, -0.7)]:
        v = utils.euler_to_vec(yaw, pitch)
        expected = [np.sin(yaw) * np.cos(pitch), np.sin(pitch), np.cos(yaw) * np.cos(pitch)]
        assert np.allclose(v.to_numpy(), expected)
        assert np.allclose(utils.vec_to_euler(v * 3), (yaw, pitch))


@pytest.mark.ours("properties-of-vectors")
def test_properties_that_programs_give_to_vectors(monkeypatch: Any) -> None:
    turned = property(lambda v: ti.Vector([-v.y, v.x]))
    monkeypatch.setattr(ti.Matrix, "Yx", turned, raising=False)

    @ti.kernel
    def run(n: ti.i32) -> ti.i32:
        v = ti.Vector([n, 2])
        return v.Yx.x * 10 + v.Yx.y

    assert run(3) == -17
    assert list(ti.Vector([3, 2]).Yx) == [-2, 3]


@pytest.mark.ours("extensions")
def test_extensions_that_are_not_there() -> None:
    assert not ti.is_extension_supported(ti.cpu, ti.extension.mesh)
    assert ti.is_extension_supported(ti.cpu, ti.extension.quant)


@pytest.mark.ours("bit-cast")
def test_bit_casts_keep_the_width() -> None:
    @ti.kernel
    def bits() -> ti.i64:
        return ti.bit_cast(ti.f32(1.0), ti.i64)

    with pytest.raises(ti.TaichiTypeError, match="same width"):
        bits()


@pytest.mark.ours("from-numpy-width", run=False)
def test_vectors_from_arrays_of_another_width() -> None:
    x = ti.Vector.field(3, ti.f32, 4)
    for width in (2, 4):
        with pytest.raises(ValueError, match="needed"):
            x.from_numpy(np.ones((4, width), np.float32))


@pytest.mark.ours("addresses")
def test_get_addr_raises() -> None:
    with pytest.raises(AttributeError, match="addresses of a device's memory"):
        _ = ti.get_addr


# --- types and modules ---------------------------------------------------------------------------


def test_lists_of_types() -> None:
    types = ti.types.primitive_types
    assert ti.f64 in types.real_types and ti.u8 in types.integer_types
    assert float in types.real_types and int in types.integer_types
    assert all(t in types.all_types for t in (*types.real_types, *types.integer_types))
    assert len(types.all_types) == 15
    assert [t.to_string() for t in (ti.f32, ti.i64, ti.u1)] == ["f32", "i64", "u1"]


def test_shapes_of_elements() -> None:
    vectors, matrices = ti.Vector.ndarray(3, ti.f32, 4), ti.Matrix.ndarray(2, 3, ti.f32, 4)
    assert (vectors.n, matrices.n, matrices.m) == (3, 2, 3)
    assert ti.ndarray(ti.f32, 4).element_type == ti.f32


NAMES = """
    _snode.fields_builder.FieldsBuilder algorithms._algorithms.parallel_sort
    lang.impl.current_cfg lang.impl.get_runtime lang.impl.grouped lang.impl.static lang.impl.field
    lang.kernel_impl.Kernel lang.kernel_impl.func lang.kernel_impl.kernel lang.matrix.Matrix
    lang.misc.is_extension_supported lang.struct.StructType lang.util.in_python_scope
    _logging.info _logging.warn _snode.snode_tree.SNodeTree lang.argpack.ArgPack
    lang.exception.TaichiCompilationError lang.snode.SNode lang.field.ScalarField
    linalg.matrixfree_cg.MatrixFreeCG linalg.sparse_cg.SparseCG linalg.sparse_matrix.SparseMatrix
    linalg.sparse_solver.SparseSolver math._complex.cmul math.mathimpl.vec3
    types.annotations.template types.annotations.Template types.annotations.sparse_matrix_builder
    types.compound_types.vector types.ndarray_type.NdarrayType types.primitive_types.f32
""".split()


@pytest.mark.parametrize("path", NAMES)
def test_names_within_modules(path: str) -> None:
    module, _, name = path.rpartition(".")
    found: Any = getattr(importlib.import_module(f"vkchi.{module}"), name)
    assert found is not None
    at: Any = ti
    for part in path.split("."):
        at = getattr(at, part)
    assert at is found or at == found


def test_gradients_that_are_not_there() -> None:
    x = ti.field(ti.f32, 4)
    assert hasattr(x, "grad") and repr(x.grad) and str(x.grad)
    hasattr(x.grad, "shape")
    np.testing.assert_array_equal(x.to_numpy(), np.zeros(4))
