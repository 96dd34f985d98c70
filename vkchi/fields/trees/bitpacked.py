"""Fields of bit-packed numbers, and their packing into words: `ti.BitpackedFields`.

Python reads and writes values of type `compute`. In memory, an element is a few bits of a word that
it may share with others. In between it is a slot (`types.packed_numbers`), an integer with the
number in its highest bits.

    x, y = field(ti.types.quant.int(5)), field(ti.types.quant.fixed(11))
    word = BitpackedFields(max_num_bits=32); word.place(x, y)
    ti.root.dense(ti.i, 8).place(word)

See also: `tree_layout` computes the layout of words.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

from vkchi.errors import ArgumentError, DeviceError, KernelRuntimeError, Unsupported
from vkchi.fields.elements import fit_element_shape
from vkchi.fields.field import (
    ComponentField,
    ComponentsHook,
    Field,
    MatrixField,
    PendingField,
    ScalarField,
)
from vkchi.fields.trees.snode import ParentNode, SNode, members_of, word_of
from vkchi.hooks import Hook
from vkchi.interop import host_views
from vkchi.public_names import visible_names
from vkchi.runtime import Runtime, current_runtime
from vkchi.types import Array, Layout, Scalar, Tensor, losses, shape_of
from vkchi.types.lazy_numpy import np
from vkchi.types.packed_numbers import NumpyLanes, Packed, Quantised

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vkchi.device import Buffer
    from vkchi.fields.trees.snode import SNode
    from vkchi.types.hints import Numbers

WHERE = (
    "a quantised field has a place in a word: ti.BitpackedFields, or a block of quant_array(...)"
)


class SharingHook:
    """Hook of shared exponents, resolved in `shared_exponents`.

    `join(fields, check_room)`: the group of fields that share an exponent; `check_room(bits)`
    raises ArgumentError if it is too large.
    """

    join = Hook("share an exponent")


class QuantisedField(PendingField):
    """A field of bit-packed numbers of type `quantised`."""

    quantised: Quantised
    is_encoded = True
    is_taken = False  # in a BitpackedFields, which may have no place yet

    @property
    def dtype(self) -> Quantised:
        """The number type: `ti.types.quant.int(...)` and the like."""
        return self.quantised

    @property
    def compute(self) -> Scalar:
        return self.quantised.compute

    def check_placeable(self) -> None:
        super().check_placeable()
        if not self.runtime.device.caps.has_type(self.quantised.compute.name):
            raise DeviceError(
                f"{self.device.info.name} has no {self.quantised.compute}: give compute= of a type "
                "of 32 bits"
            )

    def enter(self, block: ParentNode, origin: tuple[int, ...]) -> None:
        """Place this field in a `quant_array` block, one number per cell. Raises ArgumentError for
        other blocks, occupied blocks, fields of vectors, and words that are too short."""
        if not isinstance(block, SNode) or block.kind != "quant_array":
            raise ArgumentError(WHERE)
        if self.components > 1 or block.children:
            raise ArgumentError("a block of quant_array is for one field, of numbers")
        assert block.word is not None
        cells, bits = prod(n for _, n in block.cells), self.quantised.bits
        if cells * bits > block.word.bits:
            raise ArgumentError(
                f"{cells} numbers of {bits} bits need {cells * bits}, and the words of this "
                f"quant_array have {block.word.bits}: make the block shorter, or the numbers"
            )
        self.hold_in(block, (0,), origin)

    def stand_alone(self) -> None:
        """Become a field of its own, if it is a component of an unplaced field: the components of
        that have separate places."""

    def hold_in(self, word: SNode, starts: tuple[int, ...], origin: tuple[int, ...]) -> None:
        """Place the field in each instance of a word node; `starts` is the first bit of each
        component."""
        place = word.adopt("place")
        place.starts, place.number = starts, self.quantised
        place.hold(self, origin)

    def arrange(self, shape: tuple[int, ...], layout: Layout) -> None:
        assert isinstance(layout, Packed)
        self.stored = layout.word
        super().arrange(shape, layout)

    def attach(self, buffer: Buffer, *, is_own: bool) -> None:
        Field.attach(self, buffer, is_own=False)  # words may contain bits of other fields

    @property
    def type_name(self) -> str:
        return str(self.quantised)

    # --- slots in words --------------------------------------------------------------------------

    @property
    def packed(self) -> Packed:
        assert isinstance(self.layout, Packed)
        return self.layout

    def _gather(self, flat: NDArray[Any]) -> NDArray[Any]:
        return self.packed.gather(flat, self._places(), self.shape)

    def _scatter(self, flat: NDArray[Any], values: NDArray[Any]) -> None:
        self.packed.scatter(flat, self._places(), self.shape, values)

    def _load(self, index: tuple[int, ...]) -> Any:
        return self.packed.take(NumpyLanes(self._load_stored(index)), self._bit(index)).v

    def _store(self, index: tuple[int, ...], number: Any) -> None:
        packed, bit, word = self.packed, self._bit(index), NumpyLanes(self._load_stored(index))
        changed = word & ~packed.mask(word, bit) | packed.put(NumpyLanes(number), bit)
        self._store_stored(index, changed.v)

    def _bit(self, index: tuple[int, ...]) -> int:
        elements, place = index[: len(self.digits)], index[len(self.digits) :]
        k = int(np.ravel_multi_index(place, shape_of(self.elem))) if place else 0
        return int(self.packed.bit(elements)) + self.packed.starts[k]

    # --- encoding of slots -----------------------------------------------------------------------

    def encoded(self, value: Numbers) -> NDArray[Any]:
        """Cast values to the type `compute`, then encode them as slots: integers with the number in
        the highest bits."""
        numbers = host_views.cast(host_views.to_number_array(value), self.quantised.compute)
        found: NDArray[Any] = self.quantised.encode(NumpyLanes(numbers)).v
        return found

    def decoded(self, slots: Any) -> NDArray[Any]:
        """Decode slots (integers with the number in the highest bits) to values of the type
        `compute`."""
        found: NDArray[Any] = self.quantised.decode(
            NumpyLanes(np.asarray(slots, self.number.dtype))
        ).v
        return found

    def read(self, index: tuple[int, ...]) -> Any:
        return self._shown(super().read(index))

    def peek(self, index: tuple[int, ...]) -> Any:
        return self._shown(super().peek(index))

    def _shown(self, slots: Any) -> Any:
        found = self.decoded(slots)
        return found.item() if found.ndim == 0 else found

    @property
    def bounds(self) -> losses.ValueBounds | None:
        return losses.bounds_of(self.quantised)

    def _cooked(self, value: Any, shape: tuple[int, ...], *, is_filled: bool = False) -> Any:
        numbers = host_views.to_number_array(value)
        (self.warn_of_losses if is_filled else self.refuse_losses)(numbers)
        return fit_element_shape(self.encoded(numbers), shape)

    def contents(self) -> NDArray[Any]:
        return self.decoded(self.kept())

    def copy_unnoticed(self, target: NDArray[Any]) -> None:
        np.copyto(target, self.contents().reshape(target.shape), casting="unsafe")

    def put_unnoticed(self, values: NDArray[Any]) -> None:
        self.keep(self.encoded(values))

    def __dlpack__(self, **options: Any) -> NoReturn:
        """Not supported: raises BufferError."""
        raise BufferError("quantised numbers share words with others: use x.to_numpy()")


class QuantisedScalarField(QuantisedField, ScalarField):
    """A field of bit-packed scalars."""


class QuantisedMatrixField(QuantisedField, MatrixField):
    """A field of bit-packed vectors or matrices; all components of an element share one word."""

    def component_field(self, k: int) -> ComponentField:
        found = self._parts.get(k)
        if found is None:
            found = self._parts[k] = QuantisedComponentField(self, k)
        return found


class QuantisedComponentField(QuantisedField, ComponentField):
    """One component of a QuantisedMatrixField, in the same words."""

    def __init__(self, whole: QuantisedMatrixField, component: int) -> None:
        ComponentField.__init__(self, whole, component)
        self.quantised = whole.quantised

    @property
    def whole(self) -> Any:
        return self.component_of[0]

    def check_placeable(self) -> None:
        Field.check_placeable(self)
        if self.whole.is_taken:
            raise KernelRuntimeError("this field has been placed in a ti.BitpackedFields already")

    def enter(self, block: ParentNode, origin: tuple[int, ...]) -> None:
        self.stand_alone()
        self.enter(block, origin)

    def stand_alone(self) -> None:
        whole: Any = self.component_of[0]
        parts = [whole.component_field(k) for k in range(whole.components)]
        for part in parts:
            part.__class__ = QuantisedScalarField
            del part.component_of
        ComponentsHook.split(whole, parts)


def make_quantised(
    runtime: Runtime, number: Quantised, extents: tuple[int, ...] | None, name: str = ""
) -> QuantisedField:
    """A field of bit-packed scalars, vectors or matrices, not placed yet."""
    cls = QuantisedScalarField if extents is None else QuantisedMatrixField
    elem = number.slot if extents is None else Tensor.of(number.slot, extents)
    made = cls(runtime, elem, name)
    made.quantised = number
    return made


def quantised_like(runtime: Runtime, t: Array) -> QuantisedField:
    """A field with the type and number format of an array, outside any tree."""
    assert isinstance(t.layout, Packed)
    extents = t.elem.shape if isinstance(t.elem, Tensor) else None
    made = make_quantised(runtime, t.layout.number, extents)
    made.is_copy = True
    return made


class BitpackedFields:
    """A group of bit-packed fields that share words of `max_num_bits` bits, 32 or 64. Raises
    ArgumentError for other widths, DeviceError if the device does not support such words. Raises
    KernelRuntimeError before `init`."""

    __dir__ = visible_names

    def __init__(self, max_num_bits: int) -> None:
        self.runtime = current_runtime()
        self.word = word_of(self.runtime, max_num_bits)
        self.fields: list[tuple[QuantisedField, tuple[int, ...]]] = []
        self.used = 0  # bits
        self.needs: tuple[str, ...] = ()

    def place(self, *args: Any, shared_exponent: bool = False) -> None:
        """Append bit-packed fields (args) to the word, vectors and matrices with all components.
        Place the word with `block.place(bitpacked)` afterwards.

        With `shared_exponent`, these fields are floats with one exponent, that of the largest.

        Raises ArgumentError for other fields, if the word is full, and for floats that cannot share
        an exponent. Raises KernelRuntimeError for a field that has a place, DeviceError if the
        device lacks its type.
        """
        fields: list[QuantisedField] = []
        for field in [member for arg in args for member in members_of(arg)]:
            if not isinstance(field, QuantisedField):
                raise ArgumentError(
                    f"{field!r} is not a quantised field: make it of a type of ti.types.quant"
                )
            field.check_placeable()
            if field.whole.is_taken or any(field is known for known in fields):
                raise KernelRuntimeError(
                    "this field has been placed in a ti.BitpackedFields already"
                )
            fields.append(field)
        if shared_exponent:
            fields = [SharingHook.join(fields, self._check_room)]
        for field in fields:
            self._take(field)

    def _take(self, field: QuantisedField) -> None:
        bits, first = field.quantised.bits, self.used
        self._check_room(bits * field.components)
        field.stand_alone()
        field.is_taken = True
        starts = tuple([first + bits * k for k in range(field.components)])
        self.fields.append((field, starts))
        self.used = first + bits * field.components

    def _check_room(self, bits: int) -> None:
        end = self.used + bits
        if end > self.word.bits:
            raise ArgumentError(
                f"these fields need {end} bits, and the words of this ti.BitpackedFields have "
                f"{self.word.bits}: place some of them in another one"
            )

    # --- interface of placeable objects ----------------------------------------------------------

    def check_placeable(self) -> None:
        """Raise ArgumentError if there are no fields, and KernelRuntimeError if one cannot be
        placed."""
        if not self.fields:
            raise ArgumentError("this ti.BitpackedFields has no fields: place() them in it first")
        for field, _ in self.fields:
            field.check_placeable()

    def enter(self, block: ParentNode, origin: tuple[int, ...]) -> None:
        """Add a word with the fields to each cell of a block. Raises Unsupported for dynamic
        blocks."""
        if block.kind == "dynamic":
            raise Unsupported(
                "lists of dynamic blocks hold plain numbers: place the ti.BitpackedFields in a "
                "pointer or dense block"
            )
        word = block.adopt("bit_struct")
        word.word = self.word
        for field, starts in self.fields:
            field.hold_in(word, starts, origin)
