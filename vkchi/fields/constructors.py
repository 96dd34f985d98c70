"""Constructors of fields: `ti.field`, `ti.Vector.field`, `ti.Matrix.field`.

x = field(ti.f32, shape=(4, 4), order="ji")     # has memory at once
y = field(ti.f32); ti.root.dense(ti.ij, 4).place(y)
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, overload

from vkchi.errors import ArgumentError, DeclarationError, Unsupported
from vkchi.fields.field import (
    PENDING,
    ComponentsHook,
    Field,
    MatrixField,
    ScalarField,
    common_dtype,
    cook_shape,
    flat_dtypes,
    is_dtype_list,
    tensor_type,
)
from vkchi.fields.trees.fields_builder import root_of
from vkchi.fields.trees.snode import FieldTree, SNode, cook_offset, order_axes
from vkchi.runtime import Runtime, current_runtime
from vkchi.tuples import NamedTuple
from vkchi.types import SCALARS, Scalar, Tensor, cook, is_quantised

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from vkchi.fields.struct_arrays import StructField
    from vkchi.types.hints import DType, Placing, ScalarDType, Shape, TensorDType
    from vkchi.types.struct_types import StructType


class ComponentOrder(enum.Enum):
    """Layout of a matrix field's components (`ti.Layout`): interleaved (AOS), or one array each
    (SOA)."""

    AOS = "array of structures"
    SOA = "structure of arrays"


@overload
def field(dtype: ScalarDType, shape: Shape | None = None, order: str | None = None, name: str = "",
          offset: Shape | None = None, needs_grad: bool = False, needs_dual: bool = False,
          **options: Unpack[Placing]) -> ScalarField: ...  # fmt: skip
@overload
def field(dtype: TensorDType, shape: Shape | None = None, order: str | None = None, name: str = "",
          offset: Shape | None = None, needs_grad: bool = False, needs_dual: bool = False,
          **options: Unpack[Placing]) -> MatrixField: ...  # fmt: skip
@overload
def field(dtype: StructType, shape: Shape | None = None, order: str | None = None, name: str = "",
          offset: Shape | None = None, needs_grad: bool = False, needs_dual: bool = False,
          **options: Unpack[Placing]) -> StructField: ...  # fmt: skip
def field(dtype: DType | StructType, shape: Shape | None = None, order: str | None = None,
          name: str = "", offset: Shape | None = None, needs_grad: bool = False,
          needs_dual: bool = False, **options: Unpack[Placing]) -> Field | StructField:  # fmt: skip
    """Create a field of `shape` elements, initially 0.

    Args:
        dtype: a scalar, vector, matrix, struct or bit-packed (`ti.types.quant`) type.
        shape: an integer or integers; without it, the field must be placed in a tree.
        order: the axes from the slowest to the fastest, such as "ji".
        name: used in messages.
        offset: the first index of each axis.
        needs_grad: add `.grad`.
        needs_dual: add `.dual`.
        **options: `layout` (`ti.Layout`), without effect if there is no shape.

    Returns:
        The field; for a struct type, a field of structs.

    Raises:
        KernelRuntimeError: before `init`.
        ArgumentError: for invalid arguments.
        Unsupported: for gradients of a bit-packed type.
    """
    elem = cook(dtype)
    places: dict[str, Any] = {"shape": shape, "order": order, "offset": offset}
    needs = {"needs_grad": needs_grad, "needs_dual": needs_dual}
    if not isinstance(elem, Scalar | Tensor) and hasattr(elem, "field"):
        return elem.field(name=name, **places, **needs, **options)
    named = named_options((), options)
    return make_field(current_runtime(), elem, name=name, **places, **needs, **named)


def vector_field(
    n: int, dtype: ScalarDType, *args: Any, ndim: int = 1, **options: Any
) -> MatrixField:
    """Create a field of vectors.

    Args:
        n: number of components.
        dtype: scalar type of the components.
        *args: the arguments of `ti.field` after `dtype`.
        ndim: always 1.
        **options: those of `ti.field`, and `layout` (`ti.Layout`).

    Returns:
        The field of vectors.

    Raises:
        ArgumentError: for invalid arguments.
        KernelRuntimeError: before `init`.
    """
    if ndim != 1:
        raise ArgumentError(f"vectors have 1 axis, not ndim={ndim}: use ti.Matrix.field")
    if has_several_types(dtype):
        return split_field(dtype, (n,), named_options(args, options))
    made = make_field(current_runtime(), element_type(dtype, n), **named_options(args, options))
    assert isinstance(made, MatrixField)
    return made


def matrix_field(
    n: int, m: int, dtype: ScalarDType, *args: Any, ndim: int = 2, **options: Any
) -> MatrixField:
    """Create a field of matrices.

    Args:
        n: number of rows.
        m: number of columns.
        dtype: scalar type of the components.
        *args: the arguments of `ti.field` after `dtype`.
        ndim: with 1 and one column, the field has vectors. Other values have no effect.
        **options: those of `ti.field`, and `layout` (`ti.Layout`).

    Returns:
        The field of matrices.

    Raises:
        ArgumentError: for invalid arguments.
        KernelRuntimeError: before `init`.
    """
    if ndim == 1 and m == 1:
        return vector_field(n, dtype, *args, **options)
    if has_several_types(dtype):
        return split_field(dtype, (n, m), named_options(args, options))
    made = make_field(current_runtime(), element_type(dtype, n, m), **named_options(args, options))
    assert isinstance(made, MatrixField)
    return made


def has_several_types(dtype: Any) -> bool:
    """True for a list of types, one per component, of which some are bit-packed and not all are
    equal."""
    found = flat_dtypes(dtype) if is_dtype_list(dtype) else []
    return any(map(is_quantised, found)) and any(t != found[0] for t in found)


def split_field(dtype: Any, shape: tuple[int, ...], options: dict[str, Any]) -> Any:
    """Create a field of vectors or matrices of the given shape, whose components have the types of
    a list. Raises ArgumentError if there are too few or too many, or if they have several types in
    kernels."""
    extents, found = cook_shape(shape), [cook(t) for t in flat_dtypes(dtype)]
    if len(found) != prod(extents):
        raise ArgumentError(
            f"{prod(extents)} types are needed for the components, not {len(found)}"
        )
    computed = [t.compute if is_quantised(t) else t for t in found]
    if any(t is not computed[0] for t in computed):
        raise ArgumentError(
            "the components of one field must have the same type in kernels, not "
            f"{', '.join(map(str, dict.fromkeys(computed)))}: give each the same compute="
        )
    if options.get("shape") is not None:
        raise DeclarationError("components of several types have places of their own: make the "
                               "field without shape=")  # fmt: skip
    parts = [make_field(current_runtime(), t, **options) for t in found]
    return ComponentsHook.make(parts, extents, options.get("name", ""))


class QuantisedTensor(NamedTuple):
    """Type of vectors or matrices of bit-packed numbers."""

    number: Any
    extents: tuple[int, ...]


def element_type(dtype: Any, *extents: Any) -> Tensor | QuantisedTensor:
    """The type of vectors or matrices of the given shape. Raises ArgumentError for invalid scalar
    types and shapes."""
    one = common_dtype(dtype) if is_dtype_list(dtype) else dtype
    if is_quantised(one):
        return QuantisedTensor(one, cook_shape(extents))
    return tensor_type(one, *extents)


NAMES = ("shape", "order", "name", "offset", "needs_grad", "needs_dual", "layout")
ACCEPTED = (*NAMES, "dynamic_index")  # no effect: every component index may be dynamic


def named_options(args: Sequence[object], options: Mapping[str, object]) -> dict[str, Any]:
    """Merge positional options, in the order of NAMES, into the keyword options. Raises
    ArgumentError for unknown, surplus and repeated ones."""
    for name in options:
        if name not in ACCEPTED:
            raise ArgumentError(f"a field has no option {name}=: there are {', '.join(NAMES)}")
    found = dict(zip(NAMES, args))
    twice = found.keys() & options.keys()
    if len(args) > len(NAMES) or twice:
        what = f"{', '.join(twice)} twice" if twice else f"{len(args)} arguments"
        raise ArgumentError(f"a field is given {what}; it takes {', '.join(NAMES)}")
    return found | dict(options)


def make_field(
    runtime: Runtime,
    elem: Any,
    shape: Any = None,
    order: Any = None,
    name: str = "",
    offset: Any = None,
    needs_grad: bool = False,
    needs_dual: bool = False,
    layout: Any = ComponentOrder.AOS,
    dynamic_index: Any = None,
) -> Field:
    """Create a field with elements of type `elem`, which has memory if a shape is given. Raises the
    errors of `field`."""
    if is_quantised(elem) or isinstance(elem, QuantisedTensor):
        refused = {"shape": shape, "order": order, "offset": offset}
        return quantised_field(runtime, elem, name, refused, needs_grad or needs_dual)
    if not isinstance(elem, Scalar | Tensor):
        hint = f": write ti.{elem}" if isinstance(elem, str) and elem in SCALARS else ""
        raise ArgumentError(f"a field holds numbers, vectors or matrices, not {elem!r}{hint}")
    if not isinstance(layout, ComponentOrder):
        raise ArgumentError(f"layout= is ti.Layout.AOS or ti.Layout.SOA, not {layout!r}")
    cls: type[Field] = ScalarField if isinstance(elem, Scalar) else MatrixField
    made = (PENDING[cls] if shape is None else cls)(runtime, elem, name)
    needs = tuple(k for k, wanted in (("grad", needs_grad), ("dual", needs_dual)) if wanted)
    if needs and made.dtype.kind != "f":
        raise ArgumentError(f"fields of {made.dtype} have no gradients: needs_grad= is for floats")
    if shape is None:
        check_shape_given(order=order, offset=offset)
        made.needs = needs
        return made
    for one in (made, *(getattr(made, kind) for kind in needs)):
        one.is_soa = layout is ComponentOrder.SOA
        give_place(runtime, one, shape, order, offset)
    return made


def quantised_field(
    runtime: Runtime, elem: Any, name: str, refused: dict[str, Any], needs_companion: bool
) -> Field:  # fmt: skip
    """Create a field of bit-packed numbers, not placed yet. Raises DeclarationError if a value of
    `refused` is not None, Unsupported if `needs_companion`."""
    from vkchi.fields.trees.bitpacked import WHERE, make_quantised

    for key, value in refused.items():
        if value is not None:
            raise DeclarationError(f"{WHERE}: make it without {key}=")
    if needs_companion:
        raise Unsupported(
            "quantised fields have no gradients: compute in fields of ti.f32, and "
            "copy what they hold"
        )
    if isinstance(elem, QuantisedTensor):
        return make_quantised(runtime, elem.number, elem.extents, name)
    return make_quantised(runtime, elem, None, name)


def check_shape_given(**options: Any) -> None:
    """Raise DeclarationError if one of the options, which require a shape, is not None."""
    for key, value in options.items():
        if value is not None:
            help = ": give it to place()" if key == "offset" else ""
            raise DeclarationError(f"{key}= is for fields that are made with shape={help}")


def give_place(runtime: Runtime, field: Field, shape: Any, order: Any, offset: Any) -> None:
    """Give a field a tree of its own with cells of a shape, and zeroed memory. Raises ArgumentError
    for an invalid shape, order or offset."""
    extents = cook_shape(shape)
    origin = cook_offset(offset, len(extents))
    axes = order_axes(order, len(extents))
    levels = [tuple(enumerate(extents))] if order is None else [((k, extents[k]),) for k in axes]
    root = root_of(runtime)
    tree, parent = FieldTree(root), None
    for cells in levels if extents else []:
        parent = add_node(tree, parent, "dense", cells)
    add_node(tree, parent, "place", ()).hold(field, origin)
    root.made.add(field)
    tree.lay_out()


def add_node(tree: FieldTree, parent: Any, kind: str, cells: tuple[tuple[int, int], ...]) -> SNode:
    """Add a node to a tree under construction; without a parent it becomes the top node."""
    if parent is not None:
        return parent.adopt(kind, cells)
    tree.top = SNode(kind, tree.root, tree, cells)
    return tree.top
