"""Fields: global arrays of static shape that kernels access by name.

A field made with a shape has memory at once. Otherwise its field tree (`snode`) allocates the
memory on first use.

    x = ti.field(ti.f32, shape=(4, 4)); x[0, 1] = 3.0
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any, NoReturn

from vkchi.errors import ArgumentError, KernelRuntimeError, Unsupported
from vkchi.fields import display
from vkchi.fields.elements import fit_element_shape
from vkchi.fields.python_scope import missing_member
from vkchi.fields.storage import Storage
from vkchi.fields.trees.snode import (
    IN_WORDS,
    ActivityHook,
    ElementLayout,
    FieldTree,
    ParentNode,
    SNode,
)
from vkchi.hooks import Hook
from vkchi.interop import host_views
from vkchi.runtime import Runtime
from vkchi.types import Array, Scalar, Tensor, cook, shape_of
from vkchi.types.core import Attributes, alignment_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vkchi.device import Buffer
    from vkchi.fields.trees.activity_pictures import ActivityPicture
    from vkchi.types.hints import Numbers, ScalarDType

# Attributes that are set by the tree's layout.
LATER = frozenset(
    (
        "_shape", "layout", "size_bytes", "digits", "steps", "buffer", "is_own", "host", "_ends",
        "_axes", "_numbers", "_rank", "_length",
    )
)  # fmt: skip
COMPANIONS = {"grad": "gradient", "dual": "dual"}


class ComponentsHook:
    """Hooks of fields whose components have places of their own, resolved in `split_fields`.

    `make(parts, extents, name)`: the field of these components; `split(field, parts)`: an unplaced
    field becomes one.
    """

    make, split = Hook("field of components"), Hook("split a field")


class Field(Storage):
    """A global array. Kernels access it by name, Python as `x[i]`.

    In sparse blocks, a write of an element by Python activates its cells. `fill` and `from_numpy`
    change active elements only; `copy_from` activates the cells of the copied elements.

    `node` is its place in a field tree, or None before placement. `needs` names the companion
    fields ("grad", "dual") to place with it. `kind` is "grad" or "dual" if it is such a companion
    itself, otherwise "". `is_copy`: a deep copy, which has the place of the original but its own
    memory.
    """

    node: SNode | None = None
    needs: tuple[str, ...] = ()
    kind = ""
    kind_name = "ti.field"
    is_soa = False
    is_copy = False
    views: list[weakref.ref[Any]] | None = None  # views that use its memory
    pool: Any = None  # the `trees.pools.Pool` with its elements, if they are in one
    _is_quick = _is_direct = False
    _primal: Callable[[], Field | None] = staticmethod(lambda: None)  # of a companion

    def __init__(self, runtime: Runtime, elem: Scalar | Tensor, name: str = "") -> None:
        self.describe(runtime, elem, None)
        self.name = name
        self.companions: dict[str, Field] = {}

    # --- placement -----------------------------------------------------------------------------

    def materialise(self) -> None:
        """Allocate zeroed memory for the field's tree, unless done already. Raises
        KernelRuntimeError if the field is not placed, its builder not finalized, its tree
        destroyed, or the runtime reset."""
        self.check_alive()
        if self.node is None:
            raise KernelRuntimeError(self._why_unplaced())
        self.node.tree.lay_out()

    def _why_unplaced(self) -> str:
        if self.kind:
            return (
                f"this field has no {COMPANIONS[self.kind]}: make it with "
                f"needs_{self.kind}=True, or place x.{self.kind} too"
            )
        return (
            "this field is not placed: give it a shape, or place it in a field tree such as "
            "ti.root.dense(ti.i, 16).place(x)"
        )

    @property
    def content(self) -> ElementLayout:
        return ElementLayout(self.stored, self.components, self.is_soa)

    def check_placeable(self) -> None:
        """Raise KernelRuntimeError if the field is placed already."""
        if self.node is not None:
            raise KernelRuntimeError(
                "this field has been placed already: fields made with shape= need no place(), "
                "others one only"
            )

    def enter(self, block: ParentNode, origin: tuple[int, ...]) -> None:
        """Add a place for this field to each cell of a block. Raises ArgumentError for blocks of
        bit-packed numbers."""
        if block.kind in IN_WORDS:
            raise ArgumentError(
                f"in the words of a {block.kind} block are numbers of a few bits, of a type of "
                f"ti.types.quant, not {self!r}: place it in the block above"
            )
        block.adopt("place").hold(self, origin)

    def put(self, node: SNode) -> None:
        self.node, self._shape = node, node.shape

    def release_memory(self) -> None:
        """Release the memory and become a pending field; called when the tree is destroyed."""
        for view in self.views or ():
            if (found := view()) is not None:
                found.release_memory()
        self.views = None
        self.__class__ = PENDING.get(type(self), type(self))
        self._is_quick = False
        for name in LATER - {"_shape"}:
            vars(self).pop(name, None)

    @property
    def tree(self) -> FieldTree | None:
        """The tree that contains (or will contain) its memory; None for copies."""
        return self.node.tree if self.node is not None and not self.is_copy else None

    @property
    def has_place(self) -> bool:  # type: ignore[override]
        return self.node is not None or self.is_copy

    @property
    def has_memory(self) -> bool:
        """True if the field is a copy, or its tree is laid out and not destroyed."""
        tree = self.tree
        return self.is_copy or (tree is not None and tree.is_laid_out and not tree.is_destroyed)

    @property
    def life(self) -> FieldTree | None:
        """Lifetime token: the tree, if a builder made it and may destroy it before the device;
        otherwise None."""
        tree = self.tree
        return tree if tree is not None and tree.root.can_destroy else None

    @property
    def snode(self) -> SNode:
        """Its place in a field tree. Raises KernelRuntimeError if it has none."""
        if self.node is None:
            raise KernelRuntimeError(self._why_unplaced())
        return self.node

    _snode = snode

    @property
    def _name(self) -> str:
        return self.name

    def parent(self, n: int = 1) -> Any:
        """The block n levels above its place: `ti.root` at the top, None above that. Raises
        KernelRuntimeError if the field has no place."""
        return self.snode.parent(n)

    def show_activity(self) -> ActivityPicture:
        """The active cells of the sparse blocks around the field, as a text when printed. Its
        `plot()` draws them by matplotlib. Raises ArgumentError if there are none,
        KernelRuntimeError if the field has no place."""
        return self.snode.show_activity()

    # --- companions ----------------------------------------------------------------------------

    @property
    def grad(self) -> Any:
        """The gradient field, created on first use and perhaps not placed yet. None for types other
        than floats, and if this field is itself a gradient or dual."""
        return self._companion("grad")

    @property
    def dual(self) -> Any:
        """The dual field (tangents of forward mode), created on first use and perhaps not placed
        yet.

        None for types other than floats, and if this field is itself a gradient or dual.
        """
        return self._companion("dual")

    def _companion(self, kind: str) -> Field | None:
        if self.number.kind != "f" or self.kind:
            return None
        found = self.companions.get(kind)
        if found is None:
            cls = PENDING.get(type(self), type(self))
            found = cls(self.runtime, self.elem, f"{self.name}.{kind}")
            found.kind, found._primal = kind, weakref.ref(self)
            self.companions[kind] = found
            known = {"grad": self.runtime.gradients, "dual": self.runtime.duals}
            known[kind].add(found)
        return found

    def lacking(self, kind: str) -> Field | None:
        """The gradient (`kind` "grad") or dual of this field, if it has one that is not placed;
        else None."""
        companion = self._companion(kind)
        return companion if companion is not None and companion.node is None else None

    # --- sparse blocks -------------------------------------------------------------------------

    @property
    def is_sparse(self) -> bool:
        """True if the field is in sparse blocks, and Python's writes activate cells. False for
        gradients and duals: they exist for inactive elements too, and only kernels activate their
        cells."""
        return self.node is not None and not self.kind and bool(self.node.sparse_path)

    def attach(self, buffer: Buffer, *, is_own: bool) -> None:
        super().attach(buffer, is_own=is_own)
        self._is_quick = self._is_quick and not self.is_sparse

    def write(self, index: tuple[int, ...], value: Any) -> None:
        if self.is_sparse:
            ActivityHook.mark(self.node, self._access("write", index).at)
        super().write(index, value)

    def from_numpy(self, source: Numbers) -> None:
        """Copy from an array (`source`) of the same shape, with a cast to this field's type. In
        sparse blocks only active elements change; a field or ndarray is copied as in `copy_from`.
        Raises ArgumentError for other shapes, and under `strict` for losses in the cast."""
        if self.is_sparse and not isinstance(source, Storage):
            source = self._among_active(host_views.to_number_array(source))
        super().from_numpy(source)

    def fill(self, value: Numbers) -> None:
        """Set every element, in sparse blocks every active one, to a `value`: a scalar, vector or
        matrix. Raises ArgumentError if it does not have the shape of an element, and under `strict`
        for losses in the cast."""
        if self.is_sparse:
            values = fit_element_shape(host_views.to_number_array(value), shape_of(self.elem))
            self.warn_of_losses(values)
            super().from_numpy(self._among_active(np.broadcast_to(values, self._logical_shape())))
        else:
            super().fill(value)

    def to_coo(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the elements of active cells: indices, one row per element, and values. The order
        is that of cells, unless the block has memory for all cells. Raises Unsupported for fields
        outside of sparse blocks."""
        self._check_sparse("to_coo")
        where = ActivityHook.chosen(self.node)
        index = np.argwhere(where) + np.array(self.origin, np.int64).reshape(1, -1)
        return index, self.to_numpy()[where]

    def from_coo(self, index: Any, values: Any) -> None:
        """Set elements, and activate their cells. `index` has a row per element, `values` the
        elements; of several ones for an index one is kept. Raises ArgumentError for other shapes,
        and for indices out of range. Raises Unsupported for fields outside of sparse blocks."""
        self._check_sparse("from_coo")
        at, numbers = check_coo(self, index, values)
        if len(at):
            places = tuple(at.T)
            where = np.zeros(self.shape, np.bool_)
            where[places] = True
            ActivityHook.mark_all(self.node, where)
            found = self.to_numpy()
            found[places] = numbers
            super().from_numpy(found)

    def _check_sparse(self, name: str) -> None:
        if not self.is_sparse:
            raise Unsupported(f"{name}() is for fields in sparse blocks: use to_numpy()")

    def copy_from(self, other: Storage) -> None:
        """Copy from another field or ndarray (`other`) of the same shape and element shape. If this
        field is sparse, the cells of the copied elements become active; of a sparse `other`, these
        are its active elements. Raises ArgumentError for other arguments."""
        if self.is_sparse and isinstance(other, Storage) and other.shape == self.shape:
            node = other.node if isinstance(other, Field) and other.is_sparse else None
            where = np.ones(self.shape, np.bool_) if node is None else ActivityHook.chosen(node)
            ActivityHook.mark_all(self.node, where)
        super().copy_from(other)

    def _logical_shape(self) -> tuple[int, ...]:
        return self.shape + shape_of(self.elem)

    def _among_active(self, values: NDArray[Any]) -> NDArray[Any]:
        """The field's contents, with active elements replaced by those of `values`, cast.

        Warns if such a cast loses something. Returns `values` itself if its shape is not the
        field's.
        """
        if values.shape != self._logical_shape():
            return values  # `from_numpy` raises
        where = ActivityHook.chosen(self.node).reshape(self.shape + (1,) * len(shape_of(self.elem)))
        if values.dtype != self.compute.dtype:
            self.warn_of_losses(np.where(where, values, 0))
        return np.where(where, host_views.cast(values, self.compute), self.contents())

    # --- Python's protocols --------------------------------------------------------------------

    def __vkchi_array__(self) -> Array:
        self.check_alive()
        return self.array_type

    def __vkchi_attributes__(self) -> Attributes:
        return Attributes(aligned=alignment_of(self.buffer.address))

    def __deepcopy__(self, memo: dict[int, Any]) -> Storage:
        """Return a copy with its own memory and the same contents, gradients and duals included.
        Raises Unsupported in sparse blocks."""
        if self.is_sparse:
            raise Unsupported("a field in sparse blocks cannot be copied: place another one")
        return super().__deepcopy__(memo)

    def duplicate(self, memo: dict[int, Any]) -> Any:
        self.materialise()
        made = super().duplicate(memo)
        assert isinstance(made, Field)
        made.is_copy = True
        made.views = None
        made.companions = {
            kind: memo.setdefault(id(companion), companion.duplicate(memo))
            for kind, companion in self.companions.items()
            if companion.node is not None
        }
        known = {"grad": self.runtime.gradients, "dual": self.runtime.duals}
        for kind, companion in made.companions.items():
            known[kind].add(companion)
        return made

    def __str__(self) -> str:
        if not self.has_place:
            return "<Field: Definition of this field is incomplete>"
        if not self.device.closed and not self.is_copy:
            self.materialise()
        return display.printed(self, display.show_values)

    def to_paddle(self, place: Any = None, keep_dims: bool = False) -> NoReturn:
        """Not supported: raises Unsupported."""
        raise Unsupported("to_paddle() is not supported yet: use to_numpy()")

    def from_paddle(self, arr: Any) -> NoReturn:
        """Not supported: raises Unsupported."""
        raise Unsupported("from_paddle() is not supported yet: use from_numpy(arr.numpy())")


class ScalarField(Field):
    """A field of scalars."""

    def to_numpy(self, dtype: ScalarDType | None = None, *, copy: bool = True) -> NDArray[Any]:
        """A copy, cast to `dtype` if given; with `copy` False an array in the same memory. Raises
        ArgumentError if that needs a copy."""
        if not copy:
            return host_views.view_as_numpy(self, dtype)
        return super().to_numpy().astype(host_views.numpy_dtype(dtype or self.compute), copy=False)


class ComponentField(ScalarField):
    """One component of a matrix field's elements, in the same memory.

    Kernels access it as the whole field with a constant component index.
    """

    def __init__(self, whole: MatrixField, component: int) -> None:
        super().__init__(whole.runtime, whole.number, whole.name)
        self.component_of = (whole, component)

    @property
    def whole(self) -> Storage:
        return self.component_of[0]

    def materialise(self) -> None:
        whole, k = self.component_of
        if isinstance(whole, PendingField):
            whole.materialise()
        if whole.pool is not None:
            ActivityHook.adopt_pool(self, whole.pool)
            return
        from vkchi.fields.trees.tree_layout import BufferView

        start = whole.layout.components[k]
        self.arrange(whole.shape, whole.layout.component(k))
        part = BufferView(whole.buffer, start * self.stored.size_bytes, self.size_bytes)
        self.attach(part, is_own=False)

    def _primal(self) -> Field | None:
        return self.component_of[0]._primal()

    @property
    def watch(self) -> Any:  # type: ignore[override]
        return self.component_of[0].watch

    @property
    def node(self) -> SNode | None:  # type: ignore[override]
        return self.component_of[0].node

    @property
    def is_copy(self) -> bool:  # type: ignore[override]
        return self.component_of[0].is_copy

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        whole, k = self.component_of
        return copy.deepcopy(whole, memo).component_field(k)

    def check_placeable(self) -> None:
        whole, k = self.component_of
        whole.check_placeable()
        if k in whole.claims:
            raise KernelRuntimeError(f"component {k} of this field has been placed already")

    def enter(self, block: ParentNode, origin: tuple[int, ...]) -> None:
        """Record the block of this component. Once all components have one, the whole field is
        placed in the first. Raises Unsupported for blocks of different shapes and for different
        offsets."""
        whole, k = self.component_of
        first, at = next(iter(whole.claims.values()), (block, origin))
        if first.extents != block.extents or at != origin:
            raise Unsupported(
                "the components of one field are placed in cells of one shape, not "
                f"{tuple(first.extents.values())} and {tuple(block.extents.values())}"
            )
        whole.claims[k] = block, origin
        if len(whole.claims) < whole.components:
            return
        paths = {getattr(one, "sparse_path", ()) for one, _ in whole.claims.values()}
        if len(paths) == 1:
            whole.enter(first, origin)
        else:
            whole.split()

    def _companion(self, kind: str) -> Field | None:
        whole, k = self.component_of
        companion = whole._companion(kind)
        assert companion is None or isinstance(companion, MatrixField)
        return None if companion is None else companion.component_field(k)


class MatrixField(Field):
    """A field of vectors (`ndim` is 1 and `m` is 1) or matrices (`ndim` is 2) of `n` rows and `m`
    columns."""

    def __init__(self, runtime: Runtime, elem: Scalar | Tensor, name: str = "") -> None:
        super().__init__(runtime, elem, name)
        self._parts: dict[int, ComponentField] = {}
        self.claims: dict[int, tuple[ParentNode, tuple[int, ...]]] = {}  # placed one by one

    def duplicate(self, memo: dict[int, Any]) -> Any:
        made = super().duplicate(memo)
        made._parts = {}
        return made

    def split(self) -> None:
        """Make the claimed components fields of their own, each in its block. Raises Unsupported if
        there are gradients, or lists."""
        if any(block.kind == "dynamic" for block, _ in self.claims.values()):
            raise Unsupported("the components of one field are placed in one dynamic block")
        if self.companions or self.kind:
            raise Unsupported(
                "the components of a field with gradients are placed in the same sparse blocks"
            )
        claims, needs = self.claims, self.needs
        parts: list[Any] = [self.component_field(k) for k in range(self.components)]
        for part in parts:
            part.__class__, part.needs = PendingScalarField, needs
            del part.component_of
        ComponentsHook.split(self, parts)
        for k, part in enumerate(parts):
            part.enter(*claims[k])

    @property
    def n(self) -> int:
        """Number of rows, or the length of the vectors."""
        assert isinstance(self.elem, Tensor)
        return self.elem.n

    @property
    def m(self) -> int:
        """Number of columns."""
        assert isinstance(self.elem, Tensor)
        return self.elem.m

    @property
    def ndim(self) -> int:
        """1 for vectors, 2 for matrices."""
        return len(shape_of(self.elem))

    def get_scalar_field(self, *indices: int) -> ComponentField:
        """The field of one component. indices: i for a vector's component, row and column for a
        matrix's. Raises ArgumentError if they are out of range."""
        extents = (self.n, self.m)
        places = (*indices, 0)[:2]
        fits = 1 <= len(indices) <= 2 and all(hasattr(k, "__index__") for k in indices)
        if not fits or not all(0 <= k < n for k, n in zip(places, extents, strict=True)):
            raise ArgumentError(f"a component of {self.elem} is needed, not {indices}")
        return self.component_field(places[0] * self.m + places[1])

    def component_field(self, k: int) -> ComponentField:
        """The field of component k in row-major order, created on first use."""
        found = self._parts.get(k)
        if found is None:
            found = self._parts[k] = PendingComponentField(self, k)
        return found

    def release_memory(self) -> None:
        for part in self._parts.values():
            part.release_memory()
        super().release_memory()

    def to_numpy(
        self, keep_dims: bool = False, dtype: ScalarDType | None = None, *, copy: bool = True
    ) -> NDArray[Any]:
        """A copy of shape `shape + (n, m)`, cast to `dtype` if given; with `copy` False an array
        in the same memory. For `m` = 1 the last axis is dropped, unless `keep_dims`.

        Raises ArgumentError if `copy` is False and a copy is needed.
        """
        if copy:
            cast = host_views.numpy_dtype(dtype or self.compute)
            values = super().to_numpy().astype(cast, copy=False)
        else:
            values = host_views.view_as_numpy(self, dtype)
        column = (self.m,) if self.m > 1 or keep_dims else ()
        return values.reshape((*self.shape, self.n, *column))

    def to_torch(self, device: Any = None, keep_dims: bool = False, *, copy: bool = True) -> Any:
        """A torch tensor with a copy of the contents, on torch's `device` (None: in host memory);
        with `copy` False in the field's memory. `keep_dims` as in `to_numpy`. Raises ArgumentError
        if `copy` is False and a copy is needed."""
        if not copy:
            tensor = host_views.view_as_torch(self, device)
            return tensor[..., None] if keep_dims and self.m == 1 else tensor
        return host_views.make_torch(self.to_numpy(keep_dims), device)

    def from_numpy(self, source: Numbers) -> None:
        """Copy from an array (`source`) of the same shape, as `Field.from_numpy`. If `m` is 1, a
        last axis of length 1 is optional. Raises ArgumentError for other shapes."""
        if isinstance(source, Storage):
            self.copy_from(source)
            return
        values = host_views.to_number_array(source)
        full = self.shape + shape_of(self.elem)
        if self.m == 1 and values.shape in ((*self.shape, self.n), (*self.shape, self.n, 1)):
            values = values.reshape(full)
        super().from_numpy(values)


def check_coo(field: Field, index: Any, values: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """The arguments of `from_coo`: indices from 0 on, and values. Raises ArgumentError."""
    at, numbers = np.asarray(index), host_views.to_number_array(values)
    ndim, inner = len(field.shape), shape_of(field.elem)
    if at.ndim != 2 or at.shape[1] != ndim or at.dtype.kind not in "iu":
        raise ArgumentError(f"from_coo: the index is an array of integers of shape (n, {ndim})")
    if numbers.shape != (len(at), *inner):
        raise ArgumentError(
            f"from_coo: values of shape {numbers.shape} given, {(len(at), *inner)} needed"
        )
    at = at.astype(np.int64) - np.array(field.origin, np.int64).reshape(1, ndim)
    if ((at < 0) | (at >= np.array(field.shape).reshape(1, ndim))).any():
        raise ArgumentError(f"from_coo: an index is out of range for the shape {field.shape}")
    field.warn_of_losses(numbers)
    return at, numbers


# --- fields without memory -----------------------------------------------------------------------


class PendingField(Field):
    """A field without memory. Access to one of the attributes LATER allocates it, or raises an
    error with the reason. Once it has memory, the object's class becomes the plain one, because
    `__getattr__` slows attribute access."""

    def __getattr__(self, name: str) -> Any:
        if name not in LATER:
            raise missing_member(PLAIN.get(type(self), Field), name, dir(self))
        primal = self._primal()
        if name == "_shape" and self.node is None and primal is not None:
            return primal.shape  # an unplaced gradient has a shape
        self.materialise()
        return getattr(self, name)

    def attach(self, buffer: Buffer, *, is_own: bool) -> None:
        super().attach(buffer, is_own=is_own)
        self.__class__ = PLAIN[type(self)]  # type: ignore[assignment]


def after_allocation(name: str) -> Callable[..., Any]:
    """Return a method that allocates the field's memory, and then calls that of its new class."""

    def method(self: Field, *args: Any, **kwargs: Any) -> Any:
        self.materialise()
        return getattr(self, name)(*args, **kwargs)

    return method


class PendingScalarField(ScalarField, PendingField):
    """A field of scalars that has no memory yet."""


class PendingMatrixField(MatrixField, PendingField):
    """A field of vectors or matrices that has no memory yet."""


class PendingComponentField(ComponentField, PendingField):
    """One component of a field, without an attached part of the memory."""


PENDING: dict[type[Field], type[Field]] = {
    ScalarField: PendingScalarField,
    MatrixField: PendingMatrixField,
    ComponentField: PendingComponentField,
}
PLAIN: dict[type[Field], type[Field]] = {pending: plain for plain, pending in PENDING.items()}

for _pending, _name in product(
    PLAIN,
    (
        "__getitem__", "__setitem__", "__dlpack__", "__dlpack_device__", "copy_from", "fill",
        "load", "to_coo", "from_coo", "to_numpy", "from_numpy",
    ),
):  # fmt: skip
    setattr(_pending, _name, after_allocation(_name))


def tensor_type(dtype: Any, *extents: Any) -> Tensor:
    """The type of vectors or matrices of the given shape. Raises ArgumentError for invalid scalar
    types and shapes."""
    elem = cook(common_dtype(dtype) if is_dtype_list(dtype) else dtype)
    if not isinstance(elem, Scalar):
        raise ArgumentError(f"components are numbers such as ti.f32, not {dtype!r}")
    return Tensor.of(elem, cook_shape(extents))


def common_dtype(dtypes: Any) -> Any:
    """The common dtype of a nested list with one dtype per component. Raises ArgumentError if there
    are several or none."""
    flat = flat_dtypes(dtypes)
    if len(set(flat)) != 1:
        raise ArgumentError(
            f"the components of one field must have the same type, not {dtypes!r}: make a field of "
            "each"
        )
    return flat[0]


def flat_dtypes(dtypes: Any) -> list[Any]:
    """The types in a nested list of types."""
    return [one for t in dtypes for one in (flat_dtypes(t) if is_dtype_list(t) else [t])]


def is_dtype_list(dtype: Any) -> bool:
    return isinstance(dtype, list | tuple)


def cook_shape(shape: Any) -> tuple[int, ...]:
    """The shape as a tuple of ints. Raises ArgumentError unless all are positive integers."""
    extents = tuple(shape) if hasattr(shape, "__iter__") else (shape,)
    if any(not hasattr(n, "__index__") or isinstance(n, bool) or n < 1 for n in extents):
        raise ArgumentError(f"a shape is made of positive integers, not {shape!r}")
    return tuple(n.__index__() for n in extents)
