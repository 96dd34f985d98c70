"""Fields in sparse blocks, seen from Python: what is written becomes active, whole contents are
those of active elements.

Owns: `ActiveElements`, what fields are beside arrays. Must not know: which cells are active
(`activity`), kernels.

    x.fill(1.0)         # of the elements in cells that are active; all, if x is in dense blocks
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vkchi.fields.snode import ActivityHook, SNode
from vkchi.fields.storage import Storage
from vkchi.fields.subscripts import fitted
from vkchi.interop import host
from vkchi.types import shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vkchi.buffer import Buffer
    from vkchi.types.hints import Numbers


class ActiveElements(Storage):
    """An array that has, or will have, a place in a field tree: `node`; `kind` says which companion
    of another it is, if any."""

    node: SNode | None = None
    kind = ""

    @property
    def is_sparse(self) -> bool:
        """Whether it lies in cells that may be inactive, which writing to it makes active. Its
        gradient does so in kernels alone: derivatives stand for inactive elements too."""
        return self.node is not None and not self.kind and bool(self.node.sparse_path)

    def attach(self, buffer: Buffer, *, is_own: bool) -> None:
        super().attach(buffer, is_own=is_own)
        self._is_quick = self._is_quick and not self.is_sparse

    def write(self, index: tuple[int, ...], value: Any) -> None:
        if self.is_sparse:
            ActivityHook.mark(self.node, self._access("write", index).at)
        super().write(index, value)

    def from_numpy(self, source: Numbers) -> None:
        """Take over the contents of an array (`source`) of the same shape, as numbers of this
        field's type; in sparse blocks, those of active elements. Raises ArgumentError."""
        if isinstance(source, Storage):
            self.copy_from(source)
        else:
            values = host.numbers_of(source)
            super().from_numpy(self._among_active(values) if self.is_sparse else values)

    def fill(self, value: Numbers) -> None:
        """Set every element, or every active one, to a `value`: a number, a vector or a matrix.
        Raises ArgumentError where it has not the shape of an element."""
        if self.is_sparse:
            values = fitted(host.numbers_of(value), shape_of(self.elem))
            self.warn_of_losses(values)
            super().from_numpy(self._among_active(np.broadcast_to(values, self._logical_shape())))
        else:
            super().fill(value)

    def copy_from(self, other: Storage) -> None:
        """Take over the contents of another field or ndarray (`other`) of the same shape and
        element shape; of one in sparse blocks, active elements, whose cells are active here too
        afterwards. Raises ArgumentError."""
        if self.is_sparse and isinstance(other, Storage) and other.shape == self.shape:
            node = other.node if isinstance(other, ActiveElements) and other.is_sparse else None
            where = np.ones(self.shape, np.bool_) if node is None else ActivityHook.chosen(node)
            ActivityHook.mark_all(self.node, where)
        super().copy_from(other)

    def _logical_shape(self) -> tuple[int, ...]:
        return self.shape + shape_of(self.elem)

    def _among_active(self, values: NDArray[Any]) -> NDArray[Any]:
        """The field's contents, with numbers of its whole shape for active elements."""
        if values.shape != self._logical_shape():
            return values  # which `from_numpy` refuses
        where = ActivityHook.chosen(self.node).reshape(self.shape + (1,) * len(shape_of(self.elem)))
        if values.dtype != self.compute.dtype:
            self.warn_of_losses(np.where(where, values, 0))
        return np.where(where, host.cast(values, self.compute), self.contents())
