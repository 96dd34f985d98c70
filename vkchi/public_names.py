"""Table of vkchi's public names and their modules, which are loaded at the first use of a name.

A new public name is a word in one row of PUBLIC, and an import in `vkchi/__init__.pyi` for type
checkers (a test compares them). `name=other` exports `other` of that module as `name`. MODULES are
the public modules. HOOKS are functions and classes of higher layers that lower layers use
(`hooks`).
"""

from __future__ import annotations

from vkchi.hooks import Place

PUBLIC = {
    "errors": """
        DeviceError DistributedError Unsupported VkchiError
        TaichiAssertionError=KernelAssertionError TaichiCompilationError=CompilationError
        TaichiIndexError=IndexingError TaichiNameError=KernelNameError
        TaichiRuntimeError=KernelRuntimeError TaichiRuntimeTypeError=ArgumentError
        TaichiSyntaxError=KernelSyntaxError TaichiTypeError=KernelTypeError
    """,
    "logs": """
        is_logging_effective set_logging_level TRACE DEBUG INFO WARN ERROR CRITICAL
    """,
    "runtime": """
        init reset sync
        amdgpu arm64 cpu cuda dx11 dx12 gles gpu metal opengl python vulkan x64 x86_64
    """,
    "launch.elsewhere": "device",
    "types": """
        bf16 bfloat16 f16 f32 f64 float16 float32 float64 i8 i16 i32 i64 int8 int16 int32 int64
        ref template Template=template
        u1 u8 u16 u32 u64 uint1 uint8 uint16 uint32 uint64 any_arr=ndarray ext_arr=ndarray
    """,
    "types.formats": "Format",
    "fields.trees.fields_builder": "FieldsBuilder deactivate_all_snodes root",
    "fields.field": "Field MatrixField ScalarField",
    "fields.storage": "Tensor=Storage",
    "fields.tensor_constructors": "Backend tensor",
    "fields.constructors": "Layout=ComponentOrder field matrix_field vector_field",
    "fields.trees.bitpacked": "BitpackedFields",
    "fields.trees.snode": "SNode axes i ij ijk ijkl ijl ik ikl il j jk jkl jl k kl l",
    "fields.struct_arrays": "StructField",
    "ndarray": """
        MatrixNdarray Ndarray ScalarNdarray VectorNdarray matrix_ndarray ndarray vector_ndarray
    """,
    "texture": "Texture",
    "kernel": "data_oriented func kernel pyfunc real_func",
    "lang.argpack": "ArgPack",
    "lang.atomic_functions": """
        atomic_add atomic_and atomic_cas atomic_exchange atomic_max atomic_min atomic_mul atomic_or
        atomic_sub atomic_xor
    """,
    "lang.linear_algebra.decompose": "eig make_spd polar_decompose solve stop_grad svd sym_eig",
    "lang.elementwise": """
        abs acos asin atan2 bit_cast bit_shr cast ceil cos exp floor frexp ifte log logical_and
        logical_not logical_or max min one pow raw_div raw_mod round rsqrt select sin sqrt tan tanh
        zero
    """,
    "lang.matrix": "Matrix Vector",
    "lang.ndrange": "grouped ndrange rescale_index",
    "lang.random": "randn random",
    "lang.simt.block": "global_thread_idx",
    "lang.sparse_cells": "activate append deactivate is_active length",
    "lang.compile_time": """
        assume_in_range block_local cache_read_only loop_config no_activate static static_assert
        static_print
    """,
    "lang.struct": "Struct dataclass",
    "aot.capabilities": "DeviceCapability",
    "aot.loaded": "load",
    "launch.crosscheck": "verify",
    "reports.perf_dispatch": "perf_dispatch",
    "graph.record": "record",
    "tape.ad": "Tape clear_all_gradients grad_for grad_replaced no_grad",
    "tools.image": "hex_to_rgb rgb_to_hex",
    "gui.gui": "GUI",
    "linalg.coo_matrix": "sparse_matrix_builder",
    "operators.jax_op": "jax_op",
    "operators.torch_op": "torch_op",
    "interop.cuda.pool": "torch_memory",
    "interop.from_dlpack": "from_dlpack",
    "compat.core_stubs": "extension is_extension_supported",
}

# Public modules.
MODULES = (
    "ad", "algorithms", "aot", "distributed", "experimental", "graph", "lang", "linalg", "math",
    "profiler", "simt", "sparse", "spatial", "tools", "types", "ui",
)  # fmt: skip

HOOKS = {
    "packed layout": "types.packed_numbers.packed_of",
    "scalar": "lang.type_calls.make_scalar",
    "tensor": "lang.type_calls.make_tensor",
    "struct": "lang.struct.make_struct",
    "argpack": "lang.argpack.make_pack",
    "struct element": "lang.struct.StructElement",
    "members of a struct": "lang.struct.members_of",
    "fit a struct": "lang.struct.convert_to_type",
    "active list": "algorithms.active_lists.cell_list",
    "activity of a block": "fields.trees.block_activity.BlockActivity",
    "pool of a tree": "fields.trees.pools.make_pool",
    "field in a pool": "fields.pooled_field.adopt_pool",
    "levels of a node": "fields.trees.block_activity.levels_of",
    "mark a cell": "fields.trees.block_activity.activate_cells_of",
    "active elements": "fields.trees.block_activity.active_elements",
    "picture of activity": "fields.trees.activity_pictures.picture_of",
    "mark cells": "fields.trees.block_activity.activate_masked",
    "element": "lang.matrix.make_element",
    "value of an element": "lang.matrix.wrap_array",
    "field of components": "fields.split_fields.SplitField",
    "split a field": "fields.split_fields.split",
    "share an exponent": "fields.trees.shared_exponents.share_exponent",
    "read a slice": "fields.views.read_slice",
    "write a slice": "fields.views.write_slice",
    "restore an ndarray": "ndarray.restore",
    "ordered ndarray": "fields.views.OrderedNdarray",
    "field": "fields.constructors.field",
    "vector field": "fields.constructors.vector_field",
    "matrix field": "fields.constructors.matrix_field",
    "struct field": "fields.struct_arrays.struct_field",
    "ndarray": "ndarray.ndarray",
    "vector ndarray": "ndarray.vector_ndarray",
    "matrix ndarray": "ndarray.matrix_ndarray",
    "vector tensor": "fields.tensor_constructors.vector_tensor",
    "matrix tensor": "fields.tensor_constructors.matrix_tensor",
    "struct ndarray": "fields.struct_arrays.struct_ndarray",
    "parameter of structs": "signature.struct_params.struct_parameter",
    "parameter of a pack": "signature.struct_params.pack_parameter",
    "load what kernels take": "kernel.load_ahead",
    "encode a picture": "gui.notebook.encode_png",
    "graph kernel": "graph.looping_kernel.make_graph_kernel",
    "find a name": "compat.aliases.resolve_name",
    "missing name": "compat.unsupported.missing_name_error",
}


def read_names() -> dict[str, Place]:
    """Map each public name of PUBLIC to (module, name in it)."""
    found: dict[str, Place] = {}
    for module, words in PUBLIC.items():
        for word in words.split():
            name, _, original = word.partition("=")
            found[name] = (module, original or name)
    return found


def read_hooks() -> dict[str, Place]:
    """Map each name in HOOKS to (module, name in it)."""
    parts = {hook: path.rpartition(".") for hook, path in HOOKS.items()}
    return {hook: (module, name) for hook, (module, _, name) in parts.items()}


# --- members of classes --------------------------------------------------------------------------
#
# Public members of the classes that also have attributes for vkchi itself.
#
# MEMBERS maps a class name to the public members that the class adds to those of its bases. The
# reference shows these and no others. So do `dir` and completion, for classes whose `__dir__` is
# `visible_names`.

_ARRAY = "copy_from dtype fill from_numpy from_torch grad ndim shape to_numpy to_torch"
_BLOCKS = (
    "bitmasked deactivate_all dense dynamic hash lazy_dual lazy_grad place pointer quant_array"
)
MEMBERS = {
    "Elements": _ARRAY,
    "Field": "dual parent snode",
    "MatrixField": "get_scalar_field m n",
    "Ndarray": "element_shape element_type get_type",
    "View": "dual element_shape element_type m n",
    "VectorNdarray": "n",
    "MatrixNdarray": "m n",
    "StructArrays": f"{_ARRAY} dual keys",
    "StructField": "get_member_field",
    "Recording": "",
    "Tape": "grad report",
    "FwdMode": "",
    "Record": "grad run run_until run_while",
    "FieldsBuilder": f"{_BLOCKS} finalize",
    "SNode": f"{_BLOCKS} parent shape",
    "BitpackedFields": "place",
    "Arg": "",
    "Sequential": "dispatch",
    "GraphBuilder": "append compile create_sequential",
    "Graph": "run",
    "LoadedModule": "kernel",
    "LoadedKernel": "grad",
    "Module": "add_field add_graph add_kernel add_kernel_template archive save",
    "SparseMatrix": "build_from_ndarray from_scipy mmwrite shape to_numpy to_scipy transpose",
    "SparseMatrixBuilder": "build print_triplets",
    "Canvas": "circles contour lines scene set_background_color set_image triangles vector_field",
    "Scene": "ambient_light lines mesh mesh_instance particles point_light set_camera",
    "Gui": "begin button checkbox color_edit_3 end slider_float slider_int sub_window text",
    "ndrange": "grouped",
    "Struct": "entries field items keys members methods to_dict",
    "KernelProfiler": "",
    "Matrix": """
        all any cast cols cross determinant diag dot entries field fill get_shape identity inverse m
        max min n ndarray ndim norm norm_inv norm_sqr normalized one outer_product rows shape sum
        tensor to_list to_numpy trace transpose unit zero
    """,
}


def public_members(kind: type) -> frozenset[str] | None:
    """Public members of a class and its bases; None if the table has none of them."""
    words = [MEMBERS[base.__name__] for base in kind.__mro__ if base.__name__ in MEMBERS]
    return frozenset(" ".join(words).split()) if words else None


def visible_names(thing: object) -> list[str]:
    """Public members and special methods of an object; the `__dir__` of classes in the table.

    Also all names that a user's subclass and its object have.
    """
    kind = type(thing)
    names = {name for base in kind.__mro__ for name in vars(base) if name.startswith("__")}
    users = [base for base in kind.__mro__ if base.__module__.partition(".")[0] != "vkchi"]
    if users[0] is kind:
        names |= set(getattr(thing, "__dict__", ()))
        names |= {name for base in users for name in vars(base)}
    return sorted(names | (public_members(kind) or frozenset()))
