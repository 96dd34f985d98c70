"""Public members of the classes that also have attributes for vkchi itself.

MEMBERS maps a class name to the public members that the class adds to those of its bases. The
reference shows these and no others. So do `dir` and completion, for classes whose `__dir__` is
`visible_names`.
"""

from __future__ import annotations

_ARRAY = "copy_from dtype fill from_numpy from_torch grad ndim shape to_numpy to_torch"
_BLOCKS = (
    "bitmasked deactivate_all dense dynamic hash lazy_dual lazy_grad place pointer quant_array"
)
MEMBERS = {
    "Elements": _ARRAY,
    "Field": "dual parent snode",
    "MatrixField": "get_scalar_field m n",
    "Ndarray": "element_shape element_type get_type",
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
        to_list to_numpy trace transpose unit zero
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
