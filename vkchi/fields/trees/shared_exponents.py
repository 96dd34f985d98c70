"""Fields whose floats share an exponent: `BitpackedFields.place(v, shared_exponent=True)`.

A group of such fields has one slot per element (`types.packed_numbers.SharedFloats`), in the words
of a hidden field, `SharedGroup`. Kernels access the members of the group as components of it.
Python reads and writes values of type `compute`.

    v = ti.Vector.field(3, dtype=ti.types.quant.float(exp=6, frac=8))
    word = BitpackedFields(max_num_bits=32); word.place(v, shared_exponent=True)
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vkchi.errors import ArgumentError, KernelRuntimeError
from vkchi.fields.field import LATER
from vkchi.fields.trees.bitpacked import (
    QuantisedField,
    QuantisedMatrixField,
    QuantisedScalarField,
)
from vkchi.interop import host_views
from vkchi.runtime import Runtime
from vkchi.types import Tensor, shape_of
from vkchi.types.core import with_shape
from vkchi.types.lazy_numpy import np
from vkchi.types.packed_numbers import NumpyLanes, QuantFloat, Quantised, SharedFloats

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vkchi.fields.trees.snode import SNode
    from vkchi.types.hints import Numbers


class SharedGroup(QuantisedScalarField):
    """The field of the slots of a group. `members` are its fields, while they are in use."""

    quantised: SharedFloats

    def __init__(self, runtime: Runtime, number: SharedFloats) -> None:
        super().__init__(runtime, number.slot)
        self.quantised = number
        self.members: list[weakref.ref[SharedField]] = []

    def put(self, node: SNode) -> None:
        super().put(node)
        for field in self._living():
            field._shape = node.shape

    def release_memory(self) -> None:
        super().release_memory()
        for field in self._living():
            field.release_memory()

    def _living(self) -> list[SharedField]:
        return [field for ref in self.members if (field := ref()) is not None]

    def duplicate(self, memo: dict[int, Any]) -> Any:
        made = super().duplicate(memo)
        made.members = []
        return made

    # --- values of parts ---------------------------------------------------------------------

    def values_of(self, slots: Any, parts: Sequence[int]) -> NDArray[Any]:
        """The values of some parts, along a new last axis."""
        number, lanes = self.quantised, NumpyLanes(np.asarray(slots, self.number.dtype))
        return np.stack([number.unpack(lanes, k).v for k in parts], -1)

    def with_values(self, slots: Any, parts: Sequence[int], values: Any) -> NDArray[Any]:
        """The slots with other values of some parts; these are along the last axis of `values`."""
        number = self.quantised
        every = self.values_of(slots, range(len(number.parts)))
        every[..., list(parts)] = values
        lanes = [NumpyLanes(every[..., k]) for k in range(len(number.parts))]
        found: NDArray[Any] = number.pack(lanes).v
        return found


class SharedField(QuantisedField):
    """A member of a group: some parts of its floats, in `component_of`."""

    component_of: tuple[SharedGroup, tuple[int, ...]]
    has_shared_exponent = True

    def join(self, group: SharedGroup, parts: tuple[int, ...]) -> None:
        """Become a member of a group, which has the memory. Precondition: an unplaced field."""
        self.component_of = group, parts
        elem = with_shape(self.quantised.compute, shape_of(self.elem))
        self.describe(group.runtime, elem, group.stored)
        group.members.append(weakref.ref(self))
        if group.node is not None:
            self._shape = group.shape

    @property
    def group(self) -> SharedGroup:
        return self.component_of[0]

    @property
    def whole(self) -> SharedGroup:
        return self.component_of[0]

    @property
    def node(self) -> SNode | None:  # type: ignore[override]
        return self.component_of[0].node

    @property
    def is_copy(self) -> bool:  # type: ignore[override]
        return self.component_of[0].is_copy

    @property
    def watch(self) -> Any:  # type: ignore[override]
        return self.component_of[0].watch

    def check_placeable(self) -> None:
        raise KernelRuntimeError(
            "this field has been placed already, with others that share its exponent"
        )

    def materialise(self) -> None:
        group = self.group
        layout = group.layout  # lays out the tree
        self.arrange(group.shape, layout)
        self.attach(group.buffer, is_own=False)

    def _companion(self, kind: str) -> None:
        return None

    def duplicate(self, memo: dict[int, Any]) -> Any:
        group, parts = self.component_of
        held = copy.deepcopy(group, memo)
        made = object.__new__(type(self))
        vars(made).update({k: v for k, v in vars(self).items() if k not in LATER})
        made.join(held, parts)
        if isinstance(made, SharedMatrixField):
            made._parts = {}
        return made

    # --- values in Python ----------------------------------------------------------------------

    def encoded(self, value: Numbers) -> NDArray[Any]:
        return host_views.cast(host_views.to_number_array(value), self.quantised.compute)

    def decoded(self, slots: Any) -> NDArray[Any]:
        return np.asarray(slots, self.quantised.compute.dtype)

    def _gather(self, flat: NDArray[Any]) -> NDArray[Any]:
        group, parts = self.component_of
        return group.values_of(group._gather(flat), parts).reshape(self._digit_shape())

    def _scatter(self, flat: NDArray[Any], values: NDArray[Any]) -> None:
        group, parts = self.component_of
        slots = group._gather(flat)
        values = np.asarray(values).reshape(*slots.shape, len(parts))
        group._scatter(flat, group.with_values(slots, parts, values))

    def _load(self, index: tuple[int, ...]) -> Any:
        group, parts = self.component_of
        at, place = self._split_place(index)
        return group.values_of(group._load(at), [parts[place]])[0]

    def _write(self, index: tuple[int, ...], values: Any, inner: tuple[int, ...]) -> None:
        group, parts = self.component_of
        self.ready_to_write()
        chosen = parts
        if len(index) > len(self.digits) or self.is_scalar:
            index, place = self._split_place(index)
            chosen = (parts[place],)
        numbers = np.broadcast_to(values, inner).reshape(len(chosen))
        group._store(index, group.with_values(group._load(index), chosen, numbers))

    def _split_place(self, index: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
        """The index of an element, and the component's number in it."""
        at, place = index[: len(self.digits)], index[len(self.digits) :]
        return at, int(np.ravel_multi_index(place, shape_of(self.elem))) if place else 0


class SharedScalarField(SharedField, QuantisedScalarField):
    """A field of scalars that share their exponent with other fields."""


class SharedMatrixField(SharedField, QuantisedMatrixField):
    """A field of vectors or matrices whose components share their exponent."""

    def component_field(self, k: int) -> SharedScalarField:  # type: ignore[override]
        found: Any = self._parts.get(k)
        if found is None:
            group, parts = self.component_of
            assert isinstance(self.elem, Tensor)
            found = SharedScalarField(self.runtime, self.elem.elem, self.name)
            found.quantised = self.quantised
            found.join(group, (parts[k],))
            self._parts[k] = found
        return found  # type: ignore[no-any-return]


MEMBERS: dict[type[QuantisedField], type[SharedField]] = {
    QuantisedScalarField: SharedScalarField,
    QuantisedMatrixField: SharedMatrixField,
}


def shared_number(fields: Sequence[QuantisedField]) -> SharedFloats:
    """The type of the floats of fields that share an exponent. Raises ArgumentError for other
    types, single components, and exponents of several widths."""
    if not fields:
        raise ArgumentError("no fields are given to share an exponent")
    for field in fields:
        if type(field) not in MEMBERS:
            raise ArgumentError("a field shares its exponent as a whole, with all its components")
    number = SharedFloats(tuple([float_of(f) for f in fields for _ in range(f.components)]))
    widths = sorted({one.exponent for one in number.parts})
    if len(widths) > 1:
        raise ArgumentError(
            f"floats that share an exponent have exponents of one width, not of {widths[0]} and "
            f"{widths[1]} bits"
        )
    return number


def share_exponent(
    fields: Sequence[QuantisedField], check_room: Callable[[int], None]
) -> SharedGroup:
    """Make unplaced fields members of a new group. Raises the errors of `shared_number`, and of
    `check_room` for the number of its bits."""
    number = shared_number(fields)
    check_room(number.bits)
    group, first = SharedGroup(fields[0].runtime, number), 0
    for field in fields:
        field.__class__ = MEMBERS[type(field)]
        assert isinstance(field, SharedField)
        field.join(group, tuple(range(first, first + field.components)))
        first += field.components
    return group


def float_of(field: QuantisedField) -> QuantFloat:
    """The type of a field whose exponent can be shared. Raises ArgumentError for other fields."""
    number: Quantised = field.quantised
    if not isinstance(number, QuantFloat):
        raise ArgumentError(
            f"{number} has no exponent to share: shared_exponent=True is for ti.types.quant.float"
        )
    if not number.digits:
        raise ArgumentError(f"{number} has a sign alone: with a shared exponent, give it more bits")
    return number
