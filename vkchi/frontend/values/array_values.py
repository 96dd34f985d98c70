"""Whole arrays in kernels: their attributes, elements and methods, and arrays of structs."""

from __future__ import annotations

import ast
from typing import Any

from vkchi.errors import (
    KernelIndexError,
    KernelIndexTypeError,
    KernelNameError,
    KernelSyntaxError,
    nearest_name,
)
from vkchi.frontend.calls.tables import METHODS
from vkchi.frontend.context import Lowering
from vkchi.frontend.control.loop_limits import materialise
from vkchi.frontend.control.spaces import LoopSpace
from vkchi.frontend.ops import operator_lowering
from vkchi.frontend.ops.debug_checks import guard_indices
from vkchi.frontend.ops.tensor_attributes import hint_for_attribute, names_of
from vkchi.frontend.values.cell_activity import (
    LIST_METHODS,
    ListRef,
    SparseTarget,
    guard_of,
    list_of,
    node_of,
    sparse_node,
)
from vkchi.frontend.values.kinds import (
    HOST_METHODS,
    Kind,
    all_but,
    describe,
    kind_of,
    name_of,
)
from vkchi.frontend.values.pool_access import (
    PooledRef,
    PooledTarget,
    pooled_item,
    pooled_ref,
)
from vkchi.frontend.values.python_values import python_attribute
from vkchi.frontend.values.references import (
    ArrayRef,
    Context,
    MemoryTarget,
    QuantisedTarget,
    SharedTarget,
)
from vkchi.frontend.values.struct_values import MembersKind
from vkchi.frontend.values.targets import ComponentsTarget
from vkchi.frontend.values.tensor_values import flatten_indices
from vkchi.frontend.values.trees import StructOfArrays, StructValue
from vkchi.ir.core import Value, is_wide
from vkchi.lang.compile_time import static
from vkchi.lang.matrix import Vector
from vkchi.lang.ndrange import grouped
from vkchi.types import Scalar, Tensor, i32, i64, scalar_of, shape_of
from vkchi.types.packed_numbers import SharedFloats


class CallableShape(tuple[int, ...]):
    """The shape of an array's elements.

    Python reads it as an attribute, Taichi's kernels call it; the call gives a list.
    """

    def __call__(self) -> list[int]:
        return list(self)


# Functions that iterate over their argument -> help for whole arrays.
OVER_ARRAYS = {
    "enumerate": "loop over its indices: for i in x, with v = x[i]",
    "zip": "loop over the indices: for i in x, with a, b = x[i], y[i]",
    "reversed": "loop over its indices: for i in x, with v = x[n - 1 - i]",
    "sum": "add in a loop: for i in x: s += x[i]; or in Python, x.to_numpy().sum()",
    "max": "for i in x: ti.atomic_max(m, x[i]); or in Python, x.to_numpy().max()",
    "min": "for i in x: ti.atomic_min(m, x[i]); or in Python, x.to_numpy().min()",
    "any": "for i in x: ti.atomic_or(b, x[i] != 0); or in Python, x.to_numpy().any()",
    "all": "for i in x: ti.atomic_and(b, x[i] != 0); or in Python, x.to_numpy().all()",
    "sorted": "sort it in Python: ti.algorithms.parallel_sort(x)",
}


WHOLE_HELPS = all_but(
    "loop", "index", "length", help="index it: x[i]",
    truth="index it: x[None]; for an array that may be None: x is not None",
    compare="compare elements: x[i] == y[i]; for the same object: x is y",
    print="index it: x[i], or print it in Python",
    items="loop over its indices at run time: for i in x",
)  # fmt: skip


class WholeArrayKind(Kind):
    """Arrays, and arrays of structs."""

    is_array = True

    def element_type(self, cx: Any, x: Any) -> Any:
        return self.array(cx, x).type.elem

    def hint(self, x: Any, name: str) -> str:
        if name in METHODS:
            return f"of an element it is x[i].{name}(...); over all elements, write a loop"
        return "it has shape, dtype, grad, n, m"

    def length(self, cx: Any, x: Any) -> Any:
        array = self.first_array(cx, x)
        if array.type.ndim == 0:
            raise cx.fail("an array without axes has no `len`", help="its element is x[None]")
        return array.shape(cx)[0]

    def space(self, cx: Any, x: Any) -> LoopSpace:
        array = self.first_array(cx, x)
        extents: tuple[Any, ...] = array.shape(cx)
        is_pooled = isinstance(array, PooledRef)
        if not is_pooled and is_wide(array.value):
            extents = tuple([materialise(cx, extent, i64) for extent in extents])
        axes = [
            (start, start + extent if isinstance(extent, int) else extent)
            for start, extent in zip(array.origin, extents)
        ]
        return LoopSpace(tuple(axes), "array", guard=guard_of(cx, array))

    def item(self, cx: Any, x: Any, indices: list[Any], slot: Any) -> Any:
        """Return an element, or a list of a dynamic block."""
        found = list_item(cx, x, indices)
        return self.element(cx, x, indices) if found is None else found

    def element(self, cx: Any, x: Any, indices: list[Any]) -> Any:
        """Return a Target, or a struct of Targets. Raises KernelIndexError for a wrong number of
        indices, and the errors of `array_index`."""
        raise NotImplementedError

    def method(self, cx: Any, x: Any, name: str, n: ast.Call) -> Any:
        """Lower a method of the array, or of the list that a dynamic block has instead.

        Raises KernelTypeError for methods of Python scope.
        """
        held = list_item(cx, x, []) if name in LIST_METHODS else None
        if held is not None:
            return kind_of(held).method(cx, held, name, n)
        if name in ARRAY_METHODS:
            args, kwargs = cx.tables.arguments(cx, n)
            return cx.tables.call(cx, ARRAY_METHODS[name], (x, *args), kwargs)
        if name in HOST_METHODS:
            raise cx.fail(f"`{name}` is for Python scope", help="call it outside the kernel")
        return super().method(cx, x, name, n)


class ArrayKind(WholeArrayKind):
    """Arrays of numbers, vectors or matrices."""

    noun = "a whole array"
    helps = WHOLE_HELPS

    def name(self, x: Any) -> str:
        return "an array (index it)"

    def peek(self, x: Any, name: str) -> None:
        return None

    def constant_name(self, x: Any) -> str:
        return "an array"

    def help_for(self, cx: Context, x: Any, use: str) -> str:
        over = OVER_ARRAYS.get(cx.called) if use == "items" else None
        return over or super().help_for(cx, x, use)

    def element(self, cx: Any, x: Any, indices: list[Any]) -> Any:
        return array_item(cx, self.array(cx, x), indices)


class ArrayRefKind(ArrayKind, of=[ArrayRef, PooledRef]):
    is_kernels_own = True

    def array(self, cx: Any, x: Any) -> Any:
        return x

    def attr(self, cx: Any, x: Any, name: str, slot: Any) -> Any:
        """Return an attribute; for a captured array, as in Python scope. Raises KernelNameError."""
        if x.source is not None:
            return python_attribute(cx, x.source, name)
        t = x.type
        shape = shape_of(t.elem)
        if name == "shape":
            return x.shape(cx)
        if name == "grad":
            is_absent = x.member is not None and cx.dependencies.gradient(x.member) is None
            return None if is_absent else cx.gradient_of(x)
        facts = {
            "ndim": t.ndim, "dtype": scalar_of(t.elem), "element_shape": CallableShape(shape),
            "element_type": t.elem,
        }  # fmt: skip
        if shape:
            facts |= {"n": shape[0], "m": shape[1] if len(shape) == 2 else 1}
        if name not in facts and name in getattr(x.member, "__dict__", ()):
            return python_attribute(cx, x.member, name)
        if name not in facts:
            raise cx.fail(
                f"an array has no attribute `{name}` in a kernel",
                kind=KernelNameError,
                help=hint_for_attribute(x, name),
            )
        return facts[name]

    def class_of(self, x: Any) -> type:
        return type(next((held for held in (x.source, x.member) if held is not None), x))


class FieldKind(ArrayKind, of=["__vkchi_array__"]):
    is_field = True

    def array(self, cx: Any, x: Any) -> Any:
        return pooled_ref(cx, x) or cx.array_of(x)


class StructsKind(WholeArrayKind):
    """Arrays of structs."""

    noun = "a whole array of structs"
    helps = {**WHOLE_HELPS, "number": "index it: x[i].a", "truth": "index it: x[i].a"}

    def first_array(self, cx: Any, x: Any) -> Any:
        first = self.member(cx, x, self.first_name(x))
        return kind_of(first).first_array(cx, first)

    def first_name(self, x: Any) -> str:
        """Return the name of the first member."""
        raise NotImplementedError

    def element(self, cx: Any, x: Any, indices: list[Any]) -> Any:
        return element_of(cx, self.array(cx, x), indices)


class FieldOfStructsKind(StructsKind, of=["__vkchi_struct__"]):
    def name(self, x: Any) -> str:
        return "an array of structs (index it)"

    def element_type(self, cx: Any, x: Any) -> Any:
        return x.__vkchi_type__

    def hint(self, x: Any, name: str) -> str:
        names = [] if name in METHODS else names_of(x, is_private=name.startswith("_"))
        close = nearest_name(name, names)
        return f"did you mean `{close}`?" if close else super().hint(x, name)

    def array(self, cx: Any, x: Any) -> Any:
        t, arrays = x.__vkchi_struct__()
        members = {}
        for name, array in arrays.items():
            cx.dependencies.read_part(x, ("attr", name), array)
            members[name] = kind_of(array).array(cx, array)
        return StructOfArrays(members, t.methods, t)

    def of_subclass(self, cls: type) -> Kind:
        return COMPONENTS if hasattr(cls, "__vkchi_components__") else self

    def first_name(self, x: Any) -> str:
        return str(next(iter(x.__vkchi_struct__()[1])))

    def member(self, cx: Any, x: Any, name: str) -> Any:
        array = x.__vkchi_struct__()[1].get(name)
        if array is not None:
            cx.dependencies.read_part(x, ("attr", name), array)
        return array


class FieldOfComponentsKind(FieldOfStructsKind):
    """Fields of vectors or matrices whose components are separate arrays."""

    noun = "a whole array"
    helps = WHOLE_HELPS

    def name(self, x: Any) -> str:
        return "an array (index it)"

    def element_type(self, cx: Any, x: Any) -> Any:
        return x.elem

    def element(self, cx: Any, x: Any, indices: list[Any]) -> Any:
        arrays = self.array(cx, x).members.values()
        return ComponentsTarget([array_item(cx, array, indices) for array in arrays], x.elem)


COMPONENTS = FieldOfComponentsKind()


class StructOfArraysKind(StructsKind, MembersKind, of=[StructOfArrays]):
    def array(self, cx: Any, x: Any) -> Any:
        return x

    def element_type(self, cx: Any, x: Any) -> Any:
        return x.type

    def first_name(self, x: Any) -> str:
        return str(next(iter(x.members)))

    def member(self, cx: Any, x: Any, name: str) -> Any:
        return x.members.get(name)


def element_of(cx: Lowering, arrays: StructOfArrays, indices: list[Any]) -> StructValue:
    """Return an element of an array of structs."""
    members = {
        name: (element_of if isinstance(array, StructOfArrays) else array_item)(cx, array, indices)
        for name, array in arrays.members.items()
    }
    return StructValue(members, arrays.methods, arrays.type)


def list_item(cx: Lowering, base: Any, indices: list[Any]) -> ListRef | None:
    """Return `base[indices]` if it is a list of a dynamic block, else None."""
    first = kind_of(base).first_array(cx, base)
    if first is None or node_of(first) is None:
        return None
    return list_of(first, base, flatten_indices(cx, [k for k in indices if k is not None]))


# --- arrays --------------------------------------------------------------------------------------


def array_item(
    cx: Lowering, array: ArrayRef, indices: list[Any]
) -> MemoryTarget | PooledTarget:  # fmt: skip
    """Return the Target of an array's element.

    Indices are clamped with `array.clamps`. With `options.checks_indices`, the kernel reports those
    out of bounds, except in code of `cells.own`. Raises KernelIndexError for a wrong number of
    indices, and the errors of `array_index`. Without clamping and with origin 0, a negative
    constant raises KernelSyntaxError.
    """
    flat = [] if indices == [None] else flatten_indices(cx, indices)
    ndim = array.type.ndim
    if len(flat) != ndim:
        given = "`None` is given" if indices == [None] else f"{count_text(len(flat))} given"
        raise cx.fail(
            f"`{array.name}` has {_axes(ndim)}, and {given}",
            kind=KernelIndexError,
            help=_right_index(array, ndim),
        )
    layout = array.type.layout
    begins_at_zero = not any(array.origin)
    if begins_at_zero and not array.clamps:
        check_signs(cx, flat)
    places = [array_index(cx, k) for k in flat]
    if array.clamps:
        extents = array.shape(cx)
        places = [clamp_index(cx, k, n) for k, n in zip(places, extents, strict=True)]
    if cx.options.checks_indices and not cx.cells.is_own:
        guard_indices(cx, array, places)
    if isinstance(array, PooledRef):
        return pooled_item(cx, array, places)
    ptr = cx.b.emit("elem", array.value, *places)
    number = None if layout is None else layout.number
    shared = number if isinstance(number, SharedFloats) else None
    if array.component is not None and shared is None:
        ptr = cx.b.emit("member", ptr, attr=array.component)
    node = sparse_node(cx, array)
    place = MemoryTarget(ptr) if node is None else SparseTarget(ptr, node, tuple(places))
    if array.component is not None and shared is not None:
        return SharedTarget(place, shared, array.component, array.source.seen_elem)
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


def count_text(k: int) -> str:
    return f"{k} index is" if k == 1 else f"{k} indices are"


def _axes(ndim: int) -> str:
    return "no axes" if ndim == 0 else f"{ndim} {'axis' if ndim == 1 else 'axes'}"


def _right_index(array: ArrayRef, ndim: int) -> str:
    name = array.name
    text = ", ".join("ijklmnop"[:ndim]) if ndim else "None"
    inner = shape_of(array.type.elem)
    if inner:
        parts = ", ".join("ab"[: len(inner)])
        return f"write {name}[{text}] for an element, {name}[{text}][{parts}] for a number in it"
    return f"write {name}[{text}]"


def array_index(cx: Lowering, k: Any) -> Value:
    """Return one index of an array as an integer value of at least 32 bits.

    Raises KernelIndexTypeError if it is not an integer or bool.
    """
    if isinstance(k, int):
        return cx.b.const(k, i32 if -(1 << 31) <= k < 1 << 31 else i64)
    t = getattr(k, "type", None)
    if isinstance(k, Value) and k.type.kind in ("i", "u", "b"):
        return k if scalar_of(k.type).bits >= 32 else operator_lowering.cast(cx, k, i32)
    is_float = isinstance(k, float) or getattr(t, "kind", "") == "f"
    raise cx.fail(
        "indices of arrays must be integers",
        kind=KernelIndexTypeError,
        label=describe(t) if isinstance(t, Scalar | Tensor) else name_of(k),
        help="convert it: int(i)" if is_float else "",
    )


# --- clamping, for arrays annotated `boundary="clamp"` -------------------------------------------


def clamp_index(cx: Context, k: Value, extent: Value | int) -> Value:
    """Emit `max(0, min(k, extent - 1))` in the type of k."""
    t = scalar_of(k.type)
    if isinstance(extent, int):
        last: Value = cx.b.const(extent - 1, t)
    else:
        last = cx.b.emit("sub", operator_lowering.cast(cx, extent, t), cx.b.const(1, t))
    k = cx.b.emit("min", k, last)
    return k if t.kind == "u" else cx.b.emit("max", k, cx.b.const(0, t))


# --- methods: loops, inlined like a user's function; at a kernel's top level they are parallel ---


def fill(array: Any, value: Any) -> None:
    """Set every element to value; a scalar is broadcast."""
    for place in grouped(array):
        array[place] = value


def copy_from(array: Any, other: Any) -> None:
    """Copy the elements of `other` to `array`.

    The shapes must be equal, which is not checked. Origins may differ.
    """
    for place in grouped(array):
        if static(array.__vkchi_origin__ == other.__vkchi_origin__):
            array[place] = other[place]
        else:
            k = place - Vector(array.__vkchi_origin__)
            array[place] = other[k + Vector(other.__vkchi_origin__)]


ARRAY_METHODS = {"fill": fill, "copy_from": copy_from}
