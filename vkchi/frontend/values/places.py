"""Names, attributes and subscripts, read or as assignment targets.

The result of `x.name` and `x[...]` depends on x. Arrays give memory locations, vectors and matrices
components, lists items, and Python objects their own attributes.

    lvalue(cx, node)            # a Target, or a value that cannot be assigned
"""

from __future__ import annotations

import ast
from types import FunctionType, ModuleType
from typing import Any

from vkchi.compile_state import ArrayGuard
from vkchi.errors import (
    KernelIndexError,
    KernelIndexTypeError,
    KernelNameError,
    KernelSyntaxError,
    KernelTypeError,
    Unsupported,
)
from vkchi.frontend.calls.tables import METHODS
from vkchi.frontend.context import Lowering, array_like
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.ops.debug_checks import guard_component, guard_indices
from vkchi.frontend.ops.tensor_attributes import (
    component_indices,
    find_attribute,
    hint_for_attribute,
)
from vkchi.frontend.state.user_code_errors import access_error, foreign_traceback
from vkchi.frontend.values.boundary import clamp_indices
from vkchi.frontend.values.cell_activity import ListRef, SparseTarget, list_of, node_of, sparse_node
from vkchi.frontend.values.kinds import (
    check_supported,
    defines,
    describe,
    function_kind,
    is_static,
    kind_of,
    name_of,
    unsupported_use,
)
from vkchi.frontend.values.objects import SuperProxy, is_computed
from vkchi.frontend.values.quantised_elements import QuantisedTarget
from vkchi.frontend.values.references import ORIGIN, ArrayRef, Deferred, MemoryTarget
from vkchi.frontend.values.sparse_builders import SparseRef
from vkchi.frontend.values.struct_values import (
    element_of,
    first_array,
    is_of_class,
    member_array,
    member_of,
    record_in,
)
from vkchi.frontend.values.targets import (
    Component,
    ComponentsTarget,
    ItemTarget,
    VariableTarget,
    check_index_type,
    component,
    extract,
)
from vkchi.ir.core import Value
from vkchi.lang.matrix import Matrix, Vector
from vkchi.lang.struct import Struct
from vkchi.types import Array, Scalar, Tensor, i32, i64, scalar_of, shape_of, with_shape
from vkchi.types.lazy_numpy import np

# --- names and targets ---------------------------------------------------------------------------


def lower_name(cx: Lowering, n: ast.Name) -> Any:
    """Return a variable's value, or a captured object. Raises KernelNameError."""
    var = cx.act.find(n.id)
    if var is not None:
        return var.value
    return cx.at(n, lambda cx: cx.capture(n.id))


def lower_attribute(cx: Lowering, n: ast.Attribute) -> Any:
    inner = n.value
    if not isinstance(inner, ast.Subscript):
        return attribute_of(cx, cx.way(inner), n.attr)
    return member_of_item(cx, cx.way(inner.value), inner, n.attr)


def member_of_item(cx: Lowering, array: Any, inner: ast.Subscript, name: str) -> Any:
    """Lower `array[...].name`; for an array of structs, as `array.name[...]`."""
    indices = lower_indices(cx, inner.slice)
    member = member_array(cx, array, name) if kind_of(array).is_struct_array else None
    if member is not None:
        return cx.at(inner, lambda cx: item_of(cx, member, indices))
    return attribute_of(cx, cx.at(inner, lambda cx: item_of(cx, array, indices)), name)


def lower_subscript(cx: Lowering, n: ast.Subscript) -> Any:
    base = cx.way(n.value)
    return item_of(cx, base, lower_indices(cx, n.slice))


def lvalue(cx: Lowering, n: ast.expr) -> Any:
    """Lower an assignment target to a Target, which for a variable is a VariableTarget.

    An element of an array of structs is a struct of Targets. Other results cannot be assigned.
    """
    if isinstance(n, ast.Name):
        var = cx.act.find(n.id)
        if var is None:
            return cx.capture(n.id)
        return var.value if kind_of(var.value).is_target else VariableTarget(var)
    if isinstance(n, ast.Attribute):
        if isinstance(n.value, ast.Subscript):
            inner, array = n.value, lvalue(cx, n.value.value)
            return cx.at(n, lambda cx: member_of_item(cx, array, inner, n.attr))
        base = lvalue(cx, n.value)
        return cx.at(n, lambda cx: attribute_of(cx, base, n.attr))
    if isinstance(n, ast.Subscript):
        base, indices = lvalue(cx, n.value), lower_indices(cx, n.slice)
        return cx.at(n, lambda cx: item_of(cx, base, indices))
    return cx.expr(n)


# --- attributes ----------------------------------------------------------------------------------


def attribute_of(cx: Lowering, base: Any, name: str) -> Any:
    """Return `base.name`, as a Target if it is a component or member of one.

    Raises KernelNameError, or KernelTypeError for lists and dicts.
    """
    if name == ORIGIN:
        return first_array(cx, base).origin
    record = record_in(base)
    if record is not None:
        if is_of_class(record, name):
            return python_attribute(cx, record.type, name)
        return member_of(cx, base, record, name)
    if isinstance(base, VariableTarget) and not isinstance(base.get(), Value):
        base = base.get()
    if isinstance(base, ArrayRef):
        return array_attribute(cx, base, name)
    if kind_of(base).has_type:
        return tensor_attribute(cx, base, name)
    if kind_of(base).is_container and type(base) in (list, tuple, dict):
        raise cx.fail(
            f"{name_of(base)} has no attribute `{name}` in a kernel", help=_of_container(base, name)
        )
    return python_attribute(cx, base, name)


def _of_container(base: Any, name: str) -> str:
    if isinstance(base, dict):
        return f"write x[{name!r}]" if name in base else _right_key(base)
    return "index it: x[0]; or make it a vector: ti.Vector(x)"


def tensor_attribute(cx: Lowering, base: Any, name: str) -> Any:
    """Return components (`v.x`, `v.zy`) or a property such as `m.n`. Raises KernelNameError."""
    t = base.type
    places = component_indices(name, t)
    if places is not None and not isinstance(base, Value):
        return pick(cx, base, list(places), (len(places),) if len(places) > 1 else ())
    attribute = find_attribute(name)
    added = vars(Vector if len(shape_of(t)) == 1 else Matrix).get(name) or vars(Matrix).get(name)
    if attribute is None and isinstance(added, property) and isinstance(t, Tensor):
        return cx.call(added.fget, (base if isinstance(base, Value) else base.load(cx),), {})
    if attribute is None:
        raise cx.fail(
            f"a {describe(t)} has no attribute `{name}`",
            kind=KernelNameError,
            help=f"it is a method: call it, .{name}()" if name in METHODS else _facts_of(t),
        )
    return attribute(cx, base if isinstance(base, Value) else base.load(cx))


def _facts_of(t: Any) -> str:
    return "it has x, y, z, w, n, m, shape" if isinstance(t, Tensor) else "a number has none"


class CallableShape(tuple[int, ...]):
    """The shape of an array's elements.

    Python reads it as an attribute, Taichi's kernels call it; the call gives a list.
    """

    def __call__(self) -> list[int]:
        return list(self)


def array_attribute(cx: Lowering, array: ArrayRef, name: str) -> Any:
    """Return an attribute of an array; for a captured array, as in Python scope.

    Raises KernelNameError.
    """
    if array.source is not None:
        return python_attribute(cx, array.source, name)
    t = array.type
    shape = shape_of(t.elem)
    if name == "shape":
        return array.shape(cx)
    if name == "grad":
        return cx.gradient_of(array)
    facts = {
        "ndim": t.ndim, "dtype": scalar_of(t.elem), "element_shape": CallableShape(shape),
        "element_type": t.elem,
    }  # fmt: skip
    if shape:
        facts |= {"n": shape[0], "m": shape[1] if len(shape) == 2 else 1}
    if name not in facts:
        raise cx.fail(
            f"an array has no attribute `{name}` in a kernel",
            kind=KernelNameError,
            help=hint_for_attribute(array, name),
        )
    return facts[name]


def python_attribute(cx: Lowering, obj: Any, name: str) -> Any:
    """Return an attribute of a Python object as the kernel sees it, and record the read.

    A property that accesses elements of an array is inlined.
    Raises KernelNameError for an absent attribute, KernelTypeError for a `grad` or `dual` that a
    field lacks, and Unsupported for a name of Taichi's without support.
    """
    guard = ArrayGuard() if is_computed(obj, name) else None
    try:
        if guard is None:
            value = getattr(obj, name)
        else:
            with guard:
                value = getattr(obj, name)
            if guard.is_tripped:
                return inline_property(cx, obj, name)
    except Unsupported as e:  # a name of Taichi's without support
        raise Unsupported(f"{cx.span.place}: {e}") from None
    except (AttributeError, KeyError) as e:
        is_found = hasattr(type(obj), name) or isinstance(e, KeyError)
        if is_found and foreign_traceback(e):  # a property raised
            raise
        raise cx.fail(
            f"{object_name(obj)} has no attribute `{name}`",
            kind=KernelNameError,
            help=hint_for_attribute(obj, name),
        ) from None
    if value is None and name in ("grad", "dual") and kind_of(obj).is_field:
        raise cx.fail("this field has no gradient", help="make it with needs_grad=True")
    if isinstance(value, Value | Deferred):  # from a dict whose items are attributes
        return value
    return cx.part(obj, ("attr", name), value)


def inline_property(cx: Lowering, obj: Any, name: str) -> Any:
    """Inline a property that accesses elements of an array. Raises KernelTypeError if its code is
    not the user's."""
    me, classes = obj, type(obj).__mro__
    if type(obj) is super:
        bound: Any = obj
        me = bound.__self__
        order = type(me).__mro__
        classes = order[order.index(bound.__thisclass__) + 1 :]
    held = next((vars(c)[name] for c in classes if name in vars(c)), None)
    if isinstance(held, property) and isinstance(held.fget, FunctionType):
        return cx.tables.call(cx, held.fget, (me,), {})
    raise access_error(cx, name)


def object_name(obj: Any) -> str:
    if type(obj) is SuperProxy:
        return "`super()`"
    if isinstance(obj, ModuleType):
        return f"module `{obj.__name__.replace('vkchi.lang.', 'vkchi.')}`"
    return name_of(obj)


# --- subscripts ----------------------------------------------------------------------------------


def lower_indices(cx: Lowering, n: ast.expr) -> list[Any]:
    """Lower the indices between brackets; slices become Python slices."""
    items = n.elts if isinstance(n, ast.Tuple) else [n]
    found: list[Any] = []
    for item in items:
        if isinstance(item, ast.Slice):
            parts = (item.lower, item.upper, item.step)
            found.append(slice(*[None if p is None else static_int(cx, p) for p in parts]))
        elif isinstance(item, ast.Starred):
            found += cx.expr(item.value)
        else:
            found.append(cx.expr(item))
    return found


def static_int(cx: Lowering, n: ast.expr) -> int:
    """Lower a bound of a slice, which must be a compile-time int. Raises KernelTypeError."""
    k = cx.expr(n)
    if not isinstance(k, int):
        raise cx.at(n, lambda cx: cx.fail("bounds of a slice must be compile-time constants"))
    return k


def item_of(cx: Lowering, base: Any, indices: list[Any]) -> Any:
    """Return `base[indices]`, as a Target if base is in memory or a variable."""
    if isinstance(base, VariableTarget) and not isinstance(base.get(), Value):
        held = base.get()
        if kind_of(held).is_container and not kind_of(held).is_struct_array:
            return container_item(cx, base, held, indices)
        base = held
    found = list_item(cx, base, indices)
    if found is not None:
        return found
    if kind_of(base).is_struct_array:
        return element_of(cx, base, lambda array: array_item(cx, array, indices))
    if isinstance(base, SparseRef):
        return base.cell(cx, indices)
    array = array_like(cx, base)
    if array is not None:
        return array_item(cx, array, indices)
    if kind_of(base).has_type:
        return tensor_item(cx, base, indices)
    if kind_of(base).is_container:
        return container_item(cx, None, base, indices)
    if isinstance(base, Matrix) and not all(map(_is_static_index, indices)):
        return tensor_item(cx, operator_lowering.value(cx, base), indices)
    return python_item(cx, base, indices)


def list_item(cx: Lowering, base: Any, indices: list[Any]) -> ListRef | None:
    """Return `base[indices]` if it is a list of a dynamic block, else None."""
    first = first_array(cx, base) if kind_of(base).is_struct_array else array_like(cx, base)
    if first is None or node_of(first) is None:
        return None
    return list_of(first, base, flatten_indices(cx, [k for k in indices if k is not None]))


def _is_static_index(k: Any) -> bool:
    return isinstance(k, slice) or is_static(k)


def python_item(cx: Lowering, obj: Any, indices: list[Any]) -> Any:
    """Return an item of a Python object, read at compile time.

    Raises KernelTypeError for an object without items, and for one that must be passed as an
    argument. Raises KernelIndexError for an index that is not constant.
    """
    check_supported(cx, obj, "index")
    if not defines(obj, "__getitem__"):
        raise unsupported_use(cx, obj, "index")
    key = indices[0] if len(indices) == 1 else tuple(indices)
    if function_kind(type(obj).__getitem__) is not None:
        return cx.call(type(obj).__getitem__, (obj, key), {})
    if not all(map(_is_static_index, indices)):
        raise _not_static(cx, obj)
    if isinstance(obj, Struct):
        return cx.part(obj, ("item", key), _item(cx, obj, key))
    return cx.part(obj, ("item", key), cx.run_python(obj.__getitem__, (key,)))


def container_item(cx: Lowering, slot: VariableTarget | None, held: Any, indices: list[Any]) -> Any:
    """Return an item of a list, tuple, dict or struct; its Target if a variable (`slot`) holds it.

    Raises KernelIndexError for an index that is not constant or out of range, and for a missing
    key. Raises KernelTypeError for a key of another type.
    """
    if not all(map(_is_static_index, indices)):
        raise _not_static(cx, held)
    key = indices[0] if len(indices) == 1 else tuple(indices)
    item = _item(cx, held, key)
    if slot is not None and not isinstance(key, slice):
        return item if kind_of(item).is_target else ItemTarget(slot, key)
    return cx.branch(held, ("item", key), item)


def _item(cx: Lowering, held: Any, key: Any) -> Any:
    try:
        return held[key]
    except (LookupError, TypeError) as e:
        if foreign_traceback(e):
            raise
        kind = KernelTypeError if isinstance(e, TypeError) else KernelIndexError
        raise cx.fail(_index_words(held, key, e), kind=kind, help=_right_key(held)) from None


def _right_key(held: Any) -> str:
    if isinstance(held, list | tuple):
        return f"indices are integers from 0 to {len(held) - 1}" if held else "it is empty"
    keys = ", ".join(repr(key) for key in [*_keys_of(held)][:5])
    return f"it has {keys}" if keys else "it is empty"


def _keys_of(held: Any) -> Any:
    return Struct._names(held) if isinstance(held, Struct) else held.keys()


def _index_words(held: Any, key: Any, error: Exception) -> str:
    if isinstance(error, IndexError):
        return f"index {key} is out of range for {name_of(held)} of {len(held)}"
    return f"{name_of(held)} has no item {key!r}"


FEW = 16  # items of a list that a vector may hold
IN_STATIC_LOOP = "index it in a loop over ti.static(range(...))"


def _not_static(cx: Lowering, held: Any) -> Any:
    return cx.fail(
        f"{name_of(held)} is indexed by a value that is not a compile-time constant",
        kind=KernelIndexError,
        help=_instead_of_index(held),
    )


def _instead_of_index(held: Any) -> str:
    if isinstance(held, np.ndarray):
        return "pass it as an argument, a: ti.types.ndarray(), or copy it into a field"
    if isinstance(held, list | tuple) and len(held) > FEW:
        return "pass np.asarray(a) as an argument, a: ti.types.ndarray(), or copy it into a field"
    return f"make it a ti.Vector, or {IN_STATIC_LOOP}"


# --- arrays --------------------------------------------------------------------------------------


def array_item(cx: Lowering, array: ArrayRef, indices: list[Any]) -> MemoryTarget:
    """Return the Target of an array's element.

    Indices are clamped with `array.clamps`. With `options.checks_indices`, the kernel reports those
    out of bounds, except in code of `cells.own`. Raises KernelIndexError for a wrong number of
    indices, and the errors of `array_index`. Without clamping and with origin 0, a negative
    constant raises KernelSyntaxError.
    """
    flat = [] if indices == [None] else flatten_indices(cx, indices)
    ndim = array.type.ndim
    if len(flat) != ndim:
        given = "`None` is given" if indices == [None] else f"{_count(len(flat))} given"
        raise cx.fail(
            f"`{array.value.name}` has {_axes(ndim)}, and {given}",
            kind=KernelIndexError,
            help=_right_index(array, ndim),
        )
    layout = array.type.layout
    begins_at_zero = layout is None or not any(layout.origin)
    if begins_at_zero and not array.clamps:
        check_signs(cx, flat)
    places = [array_index(cx, k) for k in flat]
    if array.clamps:
        places = clamp_indices(cx, array, places)
    if cx.options.checks_indices and not cx.cells.is_own:
        guard_indices(cx, array, places)
    ptr = cx.b.emit("elem", array.value, *places)
    if array.component is not None:
        ptr = cx.b.emit("member", ptr, attr=array.component)
    node = sparse_node(cx, array)
    place = MemoryTarget(ptr) if node is None else SparseTarget(ptr, node, tuple(places))
    number = None if layout is None else layout.number
    return place if number is None else QuantisedTarget(place, number)


def check_signs(cx: Lowering, indices: list[Any]) -> None:
    """Check the constant indices of an array that begins at zero.

    Raises KernelSyntaxError for a negative one, which Python would count from the end.
    """
    for k in indices:
        if isinstance(k, int) and k < 0:
            raise cx.fail(
                f"index {k} is negative: kernels do not count from the end",
                kind=KernelSyntaxError,
                help=f"write x[x.shape[0] - {-k}]",
            )


def _count(k: int) -> str:
    return f"{k} index is" if k == 1 else f"{k} indices are"


def _axes(ndim: int) -> str:
    return "no axes" if ndim == 0 else f"{ndim} {'axis' if ndim == 1 else 'axes'}"


def _right_index(array: ArrayRef, ndim: int) -> str:
    name = array.value.name
    text = ", ".join("ijklmnop"[:ndim]) if ndim else "None"
    inner = shape_of(array.type.elem)
    if inner:
        parts = ", ".join("ab"[: len(inner)])
        return f"write {name}[{text}] for an element, {name}[{text}][{parts}] for a number in it"
    return f"write {name}[{text}]"


def flatten_indices(cx: Lowering, indices: list[Any]) -> list[Any]:
    """Replace vectors, lists and tuples of indices (`ti.grouped`) by their components."""
    flat: list[Any] = []
    for k in indices:
        if isinstance(k, Matrix):
            flat += k.to_list()
        elif isinstance(k, list | tuple):
            flat += flatten_indices(cx, list(k))
        elif isinstance(k, Value) and isinstance(k.type, Tensor) and len(k.type.shape) == 1:
            flat += operator_lowering.components(cx, k)
        else:
            flat.append(k)
    return flat


def array_index(cx: Lowering, k: Any) -> Value:
    """Return one index of an array as an integer value of at least 32 bits.

    Raises KernelIndexTypeError if it is not an integer or bool, KernelSyntaxError for a slice.
    """
    if isinstance(k, int):
        return cx.b.const(k, i32 if -(1 << 31) <= k < 1 << 31 else i64)
    t = getattr(k, "type", None)
    if isinstance(k, Value) and isinstance(t, Scalar) and t.kind in "iub":
        return k if t.bits >= 32 else operator_lowering.cast(cx, k, i32)
    if isinstance(k, slice):
        raise cx.fail(
            "arrays cannot be sliced in kernels", kind=KernelSyntaxError, help="loop over the axis"
        )
    is_float = isinstance(k, float) or (isinstance(t, Scalar) and t.kind == "f")
    raise cx.fail(
        "indices of arrays must be integers",
        kind=KernelIndexTypeError,
        label=describe(t) if isinstance(t, Scalar | Tensor) else name_of(k),
        help="convert it: int(i)" if is_float else "",
    )


# --- vectors and matrices ------------------------------------------------------------------------


def tensor_item(cx: Lowering, base: Any, indices: list[Any]) -> Any:
    """Return a component; with slices, several components as a vector or matrix.

    Raises KernelTypeError for a scalar or an array, KernelIndexError for a wrong number of indices.
    """
    t = base.type
    if not isinstance(t, Tensor):
        what = "an array" if isinstance(t, Array) else f"a {describe(t)}"
        help = "a number has no items: write x instead of x[i]"
        raise cx.fail(f"{what} cannot be indexed", help=help)
    flat = ([k for k in indices if isinstance(k, slice)] and indices) or flatten_indices(
        cx, indices
    )
    if len(flat) != len(t.shape):
        raise cx.fail(
            f"a {describe(t)} needs {len(t.shape)} {'index' if t.m == 1 else 'indices'}, "
            f"{len(flat)} given",
            kind=KernelIndexError,
            help="for a row, write m[i, :]" if len(t.shape) == 2 else "",
        )
    axes = [axis_places(cx, k, extent, t) for k, extent in zip(flat, t.shape)]
    places = axes[0]
    if len(axes) == 2:
        places = [flat_place(cx, r, c, t.shape[1]) for r in axes[0] for c in axes[1]]
    shape = tuple(len(a) for a, k in zip(axes, flat) if isinstance(k, slice))
    return pick(cx, base, places, shape)


def axis_places(cx: Lowering, k: Any, extent: int, t: Tensor) -> list[Component]:
    """Return the component indices along one axis that an index or slice selects.

    Raises KernelIndexError for a constant out of range, KernelSyntaxError for a negative one,
    KernelTypeError for other objects than integers.
    """
    if isinstance(k, slice):
        return [*range(extent)[k]]
    if isinstance(k, Value):
        place = check_index_type(cx, k, "the index of a component")
        if cx.options.checks_indices:
            guard_component(cx, place, extent, t)
        return [place]
    if not isinstance(k, int):
        raise cx.fail("the index of a component must be an integer", label=name_of(k))
    if not 0 <= k < extent:
        raise cx.fail(
            f"index {k} is out of range for a {describe(t)}",
            kind=KernelSyntaxError if k < 0 else KernelIndexError,
            help=f"the last one is {extent - 1}" if k < 0 else "",
        )
    return [int(k)]


def flat_place(cx: Lowering, row: Component, col: Component, cols: int) -> Component:
    if isinstance(row, int) and isinstance(col, int):
        return row * cols + col
    b = cx.b  # not operator_lowering, which gives Python numbers the default type
    if isinstance(row, int):
        start: Value = b.const(row * cols, i32)
    else:
        start = b.emit("mul", row, b.const(cols, i32))
    return b.emit("add", start, b.const(col, i32) if isinstance(col, int) else col)


def pick(cx: Lowering, base: Any, places: list[Component], shape: tuple[int, ...]) -> Any:
    """Return components of a value or Target: one of them, or a vector or matrix of `shape`.

    Raises KernelIndexError for an empty slice.
    """
    is_value = isinstance(base, Value)
    if not shape:
        part = extract if is_value else component
        return part(cx, base, places[0])
    t = with_shape(scalar_of(base.type), shape)
    assert isinstance(t, Tensor)
    if not places:
        raise cx.fail("this slice is empty", kind=KernelIndexError)
    if is_value:
        return cx.b.emit("pack", *[extract(cx, base, k) for k in places], type=t)
    return ComponentsTarget([component(cx, base, k) for k in places], t)
