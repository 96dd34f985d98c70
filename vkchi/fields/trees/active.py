"""Fields in sparse blocks, accessed from Python.

Writing an element activates its cells. `fill` and `from_numpy` change active elements only;
`copy_from` activates the cells of the copied elements.

    x.fill(1.0)         # active elements; all elements if x is in dense blocks

See also: `block_activity` stores which cells are active.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.fields.storage import Storage
from vkchi.fields.subscripts import fit_element_shape
from vkchi.fields.trees.snode import ActivityHook, SNode
from vkchi.interop import host_views
from vkchi.types import shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vkchi.buffer import Buffer
    from vkchi.types.hints import Numbers


class SparseElements(Storage):
    """Base of fields: an array with a place in a field tree (`node`). `kind` is "grad" or "dual"
    for a gradient or dual field, "" otherwise."""

    node: SNode | None = None
    kind = ""

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
        if isinstance(source, Storage):
            self.copy_from(source)
        else:
            values = host_views.to_number_array(source)
            super().from_numpy(self._among_active(values) if self.is_sparse else values)

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

    def copy_from(self, other: Storage) -> None:
        """Copy from another field or ndarray (`other`) of the same shape and element shape. If this
        field is sparse, the cells of the copied elements become active; of a sparse `other`, these
        are its active elements. Raises ArgumentError for other arguments."""
        if self.is_sparse and isinstance(other, Storage) and other.shape == self.shape:
            node = other.node if isinstance(other, SparseElements) and other.is_sparse else None
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
