"""Fields and ndarrays of structs: one array per member, all of one shape.

Elements are read and written through the members' arrays.

    f = StructType({"a": i32, "v": vector(3, f32)}).field(shape=4); f.v[0]; f.to_numpy()["a"]
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from vkchi.compat.unsupported import add_unsupported_members
from vkchi.errors import ArgumentError, nearest_name
from vkchi.fields import display
from vkchi.fields.constructors import ComponentOrder, field, matrix_field, vector_field
from vkchi.fields.field import Field
from vkchi.fields.python_scope import PythonScope, missing_member
from vkchi.fields.storage import Storage
from vkchi.hooks import Hook
from vkchi.ndarray import Ndarray, ndarray
from vkchi.public_names import visible_names
from vkchi.types import Tensor, scalar_of, shape_of
from vkchi.types.lazy_numpy import is_number_of_numpy
from vkchi.types.struct_types import StructType

if TYPE_CHECKING:
    from typing import Self


class StructHook:
    """Hooks that show struct elements to Python, resolved in `vkchi.lang`.

    `element(group, index)`: the element as a value whose members read and write the memory;
    `members(value)`: the members of a struct value or dict, by name; `fit(type, x)`: x converted to
    a struct value.
    """

    element, members = Hook("struct element"), Hook("members of a struct")
    fit = Hook("fit a struct")


def print_values(array: Storage) -> str:
    return display.printed(array, display.show_values)


class StructArrays(PythonScope):
    """Arrays by member name; a member that is a struct has a nested group.

    `__vkchi_type__` is the struct's type, `__vkchi_arrays__` the arrays by member. Members are
    attributes: `f.pos`. `f[i]` is an element whose members refer to memory. `grad` and `dual` group
    the members' gradients and duals, or are None if no member has one.
    """

    kind_name = "ti.Struct.field"

    @classmethod
    def of(cls, t: StructType, arrays: Mapping[str, Any]) -> Self:
        """The group of the given arrays, with elements of type `t`."""
        group = cls.__new__(cls)
        group._hold(t, arrays)
        return group

    def _hold(self, t: StructType, arrays: Mapping[str, Any]) -> None:
        self.__vkchi_type__, self.__vkchi_arrays__ = t, dict(arrays)
        vars(self).update(arrays)

    def _companion(self, kind: str) -> Any:
        found = {name: getattr(array, kind, None) for name, array in self.__vkchi_arrays__.items()}
        found = {name: array for name, array in found.items() if array is not None}
        if not found:
            return None
        t = StructType({name: self.__vkchi_type__.declared[name] for name in found})
        return self.of(t, found)

    def __vkchi_members__(self) -> list[Any]:
        """The arrays of all members, nested ones flattened, in order."""
        return [array for _, array in self._leaves()]

    def _leaves(self) -> Iterator[tuple[tuple[str, ...], Any]]:
        for name, array in self.__vkchi_arrays__.items():
            if isinstance(array, StructArrays):
                yield from (((name, *path), leaf) for path, leaf in array._leaves())
            else:
                yield (name,), array

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The common shape of all members."""
        return self._first().shape

    @property
    def keys(self) -> list[str]:
        """The names of the members."""
        return list(self.__vkchi_arrays__)

    @property
    def dtype(self) -> StructType:
        """The struct type."""
        return self.__vkchi_type__

    @property
    def nbytes(self) -> int:
        """Size of the contents of all members in bytes."""
        return sum(array.nbytes for _, array in self._leaves())

    def _first(self) -> Any:
        for _, array in self._leaves():
            return array
        raise ArgumentError(f"{self.__vkchi_type__} has no members, so its arrays have no shape")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "__vkchi_arrays__" not in vars(self):
            raise AttributeError(name)
        if name in ("grad", "dual"):
            return self._companion(name)
        if name not in PASSED_ON:
            known = [*self.__vkchi_arrays__, "shape", "to_numpy", "from_numpy", "fill"]
            raise missing_member(type(self), name, known)
        return getattr(self._first(), name)

    # --- elements --------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        self._first().index(key)
        return StructHook.element(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._first().index(key)
        whole = StructHook.fit(self.__vkchi_type__, value)
        for path, array in self._leaves():
            array[key] = _part(whole, path)

    # --- whole contents --------------------------------------------------------------------

    def to_numpy(self) -> dict[str, Any]:
        """A copy of each member as a numpy array, by name; a dict for a member that is a struct."""
        return {name: array.to_numpy() for name, array in self.__vkchi_arrays__.items()}

    def from_numpy(self, source: Mapping[str, Any]) -> None:
        """Copy from one numpy array per member, or dict for a struct member, by name (`source`).
        Raises ArgumentError unless `source` is a dict with these names, and for other shapes."""
        self._take(source, "from_numpy")

    def to_torch(self, device: Any = None) -> dict[str, Any]:
        """A copy of each member as a torch tensor, by name, on torch's `device` (None: in host
        memory)."""
        return {name: array.to_torch(device) for name, array in self.__vkchi_arrays__.items()}

    def from_torch(self, source: Mapping[str, Any]) -> None:
        """Copy from one torch tensor per member, by name (`source`). Raises ArgumentError unless
        `source` is a dict with these names, and for other shapes."""
        self._take(source, "from_torch")

    def _take(self, source: Any, method: str) -> None:
        if not isinstance(source, Mapping):
            raise ArgumentError(f"{method} takes a dict of arrays, not {type(source).__name__}")
        if set(source) != set(self.__vkchi_arrays__):
            raise ArgumentError(
                f"{method}: an array for each of {', '.join(self.__vkchi_arrays__)} is needed, "
                f"and {', '.join(map(str, source)) or 'none'} is given"
            )
        for name, array in self.__vkchi_arrays__.items():
            getattr(array, method)(source[name])

    def fill(self, value: Any) -> None:
        """Set every scalar to a scalar `value`, or every element to a struct or dict. Raises the
        errors of `Storage.fill`, and KernelTypeError for other values."""
        if isinstance(value, bool | int | float) or is_number_of_numpy(value):
            for array in self.__vkchi_members__():
                array.fill(value)
            return
        whole = StructHook.fit(self.__vkchi_type__, value)
        for path, array in self._leaves():
            array.fill(_part(whole, path))

    def copy_from(self, other: Any) -> None:
        """Copy from another field or array of structs (`other`) with the same member names in the
        same order.

        Raises ArgumentError for other arguments, and for other shapes.
        """
        if not isinstance(other, StructArrays) or other.keys != self.keys:
            raise ArgumentError(f"copy_from takes a field of {', '.join(self.keys)}, not {other!r}")
        for name, array in self.__vkchi_arrays__.items():
            array.copy_from(other.__vkchi_arrays__[name])

    def __dir__(self) -> list[str]:
        return sorted({*visible_names(self), *self.__vkchi_arrays__})

    def __deepcopy__(self, memo: Any) -> Any:
        arrays = {name: copy.deepcopy(array, memo) for name, array in self.__vkchi_arrays__.items()}
        return self.of(self.__vkchi_type__, arrays)

    def __str__(self) -> str:
        first = self._first()
        if not first.has_place:
            return str(first)
        with display.patient_lock(first.runtime) as is_held:  # else each member would wait for it
            return self._text(print_values if is_held else display.describe)

    def _text(self, show: Callable[[Storage], str]) -> str:
        parts = []
        for name, array in self.__vkchi_arrays__.items():
            is_nested = isinstance(array, StructArrays)
            shown = StructArrays._text(array, show) if is_nested else show(array)
            parts.append(f"{name!r}: {shown}")
        return "{" + ", ".join(parts) + "}"

    def __repr__(self) -> str:
        leaves = self.__vkchi_members__()
        if display.is_asked_by_package(1) or not all(map(display.printable, leaves)):
            return self._described()
        lines = [f"{self.kind_name}("]
        for path, array in self._leaves():
            begin = f"    {'.'.join(path)}="
            lines.append(f"{begin}{display.show_values(array, ', ', begin)},")
        return "\n".join([*lines, f"    shape={self.shape}", ")"])

    def _described(self) -> str:
        first = self._first()
        state = f"shape {self.shape}" if first.has_place else "not placed"
        state += ", freed" if first.device.closed else ""
        return f"<{self.kind_name} of {self.__vkchi_type__}, {state}>"


# Attributes taken from the first member; equal for all members.
PASSED_ON = ("parent", "snode", "show_activity", "element_shape", "check_alive", "device")


def _part(whole: Any, path: tuple[str, ...]) -> Any:
    """Follow a path of member names into a nested struct value."""
    for name in path:
        whole = StructHook.members(whole)[name]
    return whole


class StructField(StructArrays):
    """A field of structs, built from its members' fields by name (`field_dict`); kernels access it
    by name.

    All member fields that are placed have one shape. `struct_methods` are functions by
    name, as in a struct type. Raises ArgumentError for members that are no fields, or of different
    shapes.

        p = ti.StructField({"x": ti.Vector.field(2, float), "m": ti.field(float)}); node.place(p)
    """

    def __init__(
        self,
        field_dict: Mapping[str, Any],
        struct_methods: Mapping[str, Any] | None = None,
        name: str = "",
    ) -> None:
        members = {key: _element_of(key, member) for key, member in field_dict.items()}
        self._hold(StructType(members, struct_methods), field_dict)
        self._name = name
        shapes = {member.shape for member in self.__vkchi_members__() if member.has_place}
        if len(shapes) > 1:
            raise ArgumentError(f"ti.StructField: members have different shapes: {shapes}")

    def __vkchi_struct__(self) -> tuple[StructType, dict[str, Any]]:
        return self.__vkchi_type__, self.__vkchi_arrays__

    def get_member_field(self, key: str) -> Any:
        """The field of one member. Raises ArgumentError for other names."""
        if key not in self.__vkchi_arrays__:
            close = nearest_name(key, self.__vkchi_arrays__)
            hint = f": did you mean `{close}`?" if close else ""
            raise ArgumentError(f"{self.__vkchi_type__} has no member `{key}`{hint}")
        return self.__vkchi_arrays__[key]

    @property
    def members(self) -> dict[str, Any]:
        """The members' fields by name."""
        return self.__vkchi_arrays__

    def __getattr__(self, name: str) -> Any:
        if name == "field_dict" and "__vkchi_arrays__" in vars(self):
            return self.__vkchi_arrays__
        if name == "name":  # no property, because a member may have this name
            return vars(self).get("_name", "")
        return super().__getattr__(name)

    field_members = property(StructArrays.__vkchi_members__)


add_unsupported_members(StructField)


class StructNdarray(StructArrays):
    """An array of structs, passed to kernels as an argument."""

    __vkchi_name__ = "an ndarray that is no argument of the kernel"
    __vkchi_ndarrays__ = True  # marker for the frontend
    kind_name = "ti.ndarray"


def _element_of(name: str, member: Any) -> Any:
    """The element type of a member. Raises ArgumentError if it is no field."""
    if isinstance(member, StructField):
        return member.dtype
    if hasattr(type(member), "__vkchi_components__"):
        raise ArgumentError(
            f"ti.StructField: the components of `{name}` have places of their own: give each of "
            "them as a member"
        )
    if not isinstance(member, Field):
        raise ArgumentError(f"ti.StructField: the member `{name}` is no field, but {member!r}")
    return member.elem


# --- constructors ----------------------------------------------------------------------------


def struct_field(
    t: StructType,
    shape: Any = None,
    *,
    layout: Any = ComponentOrder.AOS,
    name: str = "",
    **options: Any,
) -> StructField:
    """A zero-initialized field of structs; without a shape, its members are not placed.

    Only float members have gradients. Each member has its own array, whatever the layout. `layout`
    applies to the components of vectors and matrices. Raises ArgumentError for a bad shape or
    layout, and for a struct without members.
    """
    if not isinstance(layout, ComponentOrder):
        raise ArgumentError(f"layout= is ti.Layout.AOS or ti.Layout.SOA, not {layout!r}")
    if not t.members:
        raise ArgumentError("a struct without members has no field")
    arrays = {key: _member_field(m, shape, layout, options) for key, m in t.members.items()}
    made = StructField.of(t, arrays)
    made._name = name
    return made


def _member_field(t: Any, shape: Any, layout: ComponentOrder, options: dict[str, Any]) -> Any:
    if isinstance(t, StructType):
        return struct_field(t, shape, layout=layout, **options)
    if scalar_of(t).kind != "f":  # only float members have gradients
        options = {k: v for k, v in options.items() if k not in ("needs_grad", "needs_dual")}
    extents = shape_of(t)
    if not isinstance(t, Tensor):
        return field(t, shape, **options)
    if len(extents) == 1:
        return vector_field(t.n, t.elem, shape, layout=layout, **options)
    return matrix_field(t.n, t.m, t.elem, shape, layout=layout, **options)


def struct_ndarray(t: StructType, shape: Any, needs_grad: bool = False) -> StructNdarray:
    """A zero-initialized array of structs. Raises ArgumentError for a bad shape, and for a struct
    without members."""
    if not t.members:
        raise ArgumentError("a struct without members has no array")
    arrays: dict[str, Storage | StructNdarray] = {}
    for name, m in t.members.items():
        is_struct = isinstance(m, StructType)
        arrays[name] = (struct_ndarray if is_struct else _plain_ndarray)(m, shape, needs_grad)
    return StructNdarray.of(t, arrays)


def _plain_ndarray(t: Any, shape: Any, needs_grad: bool) -> Ndarray:
    return ndarray(t, shape, needs_grad and scalar_of(t).kind == "f")
