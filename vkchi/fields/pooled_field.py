"""Fields in blocks of a pool: access from Python.

The elements of an active cell are in a node (`fields.trees.pools`). Python finds it in the table of
slots, after a wait for the device. What needs memory for all cells raises Unsupported.

    x[3, 100]               # 0 if the cell is inactive
    index, values = x.to_coo()
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn

from vkchi.errors import ArgumentError, Unsupported
from vkchi.fields.elements import ArrayAccess, fit_element_shape
from vkchi.fields.field import (
    PENDING,
    ComponentField,
    Field,
    MatrixField,
    PendingComponentField,
    PendingMatrixField,
    PendingScalarField,
    ScalarField,
    check_coo,
)
from vkchi.fields.storage import Storage
from vkchi.fields.trees.pools import IndirectArray, Pool
from vkchi.fields.trees.snode import SNode
from vkchi.interop import host_views
from vkchi.interrupts.contexts import restoring
from vkchi.target.pool_layout import FIRST
from vkchi.types import Array, bf16, shape_of, u1
from vkchi.types.bfloat16 import decode
from vkchi.types.core import Attributes
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vkchi.types.hints import Numbers

MOST_DENSE = 1 << 26  # elements of `to_numpy`


class PooledField(Field):
    """A field whose elements are in nodes of a pool. `nodes` is their array in kernels."""

    pool: Pool
    nodes: IndirectArray
    node: SNode
    _is_direct = True

    @property
    def buffer(self) -> NoReturn:  # type: ignore[override]
        raise Unsupported(self.pool.refusal("such uses of a field"))

    host = None
    row_numbers = None
    is_reached = False
    steps = None

    def __vkchi_array__(self) -> Array:
        """Raise Unsupported: kernels access `nodes`."""
        self.check_alive()
        raise Unsupported(self.pool.refusal("whole fields in kernels"))

    @property
    def array_type(self) -> Array:
        return Array.of(self.elem, len(self.shape), self.shape, stored=self.stored)

    def __vkchi_attributes__(self) -> Attributes:
        return Attributes()

    # --- elements ----------------------------------------------------------------------------

    @property
    def leaf(self) -> tuple[int, ...]:
        """The elements of a cell along each axis."""
        return self.nodes.shape[1:]

    def _split_cell(self, index: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Split an index, from 0 on, into that of the cell, and that within the cell."""
        pairs = [divmod(k, n) for k, n in zip(index, self.leaf, strict=True)]
        return tuple([cell for cell, _ in pairs]), tuple([k for _, k in pairs])

    def index(self, key: Any) -> tuple[int, ...]:
        found = super().index(key)
        return tuple([k - first for k, (first, _) in zip(found, self._ends, strict=True)])

    def _access(self, kind: Any, index: tuple[int, ...]) -> ArrayAccess:
        ndim = len(self.shape)
        firsts = [first for first, _ in self._ends]
        at = [k + first for k, first in zip(index[:ndim], firsts, strict=True)]
        return ArrayAccess(kind, (*at, *index[ndim:]))

    def read(self, index: tuple[int, ...]) -> Any:
        self._check_untaped()
        return self._read(index)

    def _read(self, index: tuple[int, ...]) -> Any:
        self.check_alive()
        ndim = len(self.shape)
        cell, inside = self._split_cell(index[:ndim])
        node = self.pool.node_of(cell)
        return self.nodes._read(self.nodes.index((node, *inside)) + index[ndim:])

    def write(self, index: tuple[int, ...], value: Any) -> None:
        self._check_untaped()
        self.check_alive()
        ndim = len(self.shape)
        inner = shape_of(self.elem)[len(index) - ndim :]
        values = self._cooked(value, inner)
        cell, inside = self._split_cell(index[:ndim])
        lock = self.runtime.lock
        with restoring(lock), lock:  # a launch in another thread may replace the memory
            node = self.pool.activate(cell)
            self.nodes._write(self.nodes.index((node, *inside)) + index[ndim:], values, inner)

    def _check_untaped(self) -> None:
        """Raise Unsupported while a tape or another recording is active."""
        if self.runtime.recording is not None:
            raise Unsupported(self.pool.refusal("tapes, forward mode and recorded launches"))

    # --- all elements ------------------------------------------------------------------------

    def _active(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The indices of the active cells in row-major order, one row each, and their nodes."""
        self._check_untaped()
        self.check_alive()
        slots = self.pool.slots()
        cells = np.argwhere(slots >= FIRST)
        return cells, slots[slots >= FIRST]

    def _rows(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The memory of the nodes, or a copy of it, and the view of this field's scalars in it, by
        node."""
        memory, nodes = self.pool.node_buffer.memory, self.nodes
        raw = memory.read(0, memory.size_bytes) if memory.view is None else memory.view
        size = len(raw) // nodes.stored.size_bytes
        flat = np.frombuffer(raw, nodes.stored.memory_dtype, size)
        assert nodes.steps is not None
        inner, item = shape_of(self.elem), flat.itemsize
        first, width = nodes.layout.components[0], 1
        if nodes.components > 1:
            width = nodes.layout.components[1] - first
        steps = [*nodes.steps, *[width * math.prod(inner[k + 1 :]) for k in range(len(inner))]]
        shape = (memory.size_bytes // self.pool.node_bytes, *nodes.digits[1:], *inner)
        view = np.lib.stride_tricks.as_strided(flat[first:], shape, [step * item for step in steps])
        return flat, view

    def _blocks(self, nodes: NDArray[Any]) -> NDArray[Any]:
        """The values of nodes, of shape (nodes, *leaf, *element shape)."""
        shape = (len(nodes), *self.leaf, *shape_of(self.elem))
        found: NDArray[Any] = self._rows()[1][nodes].reshape(shape)
        if self.number is bf16:
            return np.asarray(decode(found))
        return np.asarray(found != 0) if self.number is u1 else found

    def _put_blocks(self, nodes: NDArray[Any], values: NDArray[Any]) -> None:
        """Store values of shape (nodes, *leaf, *element shape), of this field's type."""
        if not len(nodes):
            return
        lock = self.runtime.lock
        with restoring(lock), lock:  # a launch in another thread may replace the memory
            memory = self.pool.node_buffer.memory
            self.device.announce((self.pool.node_buffer.key,))
            flat, view = self._rows()
            shape = (len(nodes), *view.shape[1:])
            view[nodes] = self.to_memory(values).astype(flat.dtype, copy=False).reshape(shape)
            if memory.view is None:
                memory.write(0, flat)

    def to_coo(self) -> tuple[NDArray[Any], NDArray[Any]]:
        cells, nodes = self._active()
        ndim = len(self.shape)
        inside = np.indices(self.leaf).reshape(ndim, -1).T
        first = np.array([first for first, _ in self._ends], np.int64).reshape(1, ndim)
        index = (cells * np.array(self.leaf).reshape(1, ndim))[:, None, :] + inside[None] + first
        values = self._blocks(nodes).reshape((-1, *shape_of(self.elem)))
        return index.reshape(-1, ndim), values

    def contents(self) -> NDArray[Any]:
        if self.size > MOST_DENSE:
            raise Unsupported(
                f"{self!r} has {self.size:,} elements, most of them inactive: to_coo() gives the "
                "indices and values of those in active cells"
            )
        cells, nodes = self._active()
        shape, inner = self.pool.block.shape, shape_of(self.elem)
        mixed = [n for pair in zip(shape, self.leaf, strict=True) for n in pair]
        found = np.zeros((*mixed, *inner), self.number.dtype)
        found[self._cell_key(cells)] = self._blocks(nodes)
        return found.reshape(self.shape + inner)

    kept = contents

    def _cell_key(self, cells: NDArray[Any]) -> tuple[Any, ...]:
        return tuple([k for axis in cells.T for k in (axis, slice(None))])

    def to_numpy(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("copy", True):
            return super().to_numpy(*args, **kwargs)
        raise ArgumentError(self.pool.refusal("arrays in the same memory"))

    def copy_kept(self, target: NDArray[Any]) -> None:
        values = self.contents()
        np.copyto(target.reshape(values.shape), values, casting="unsafe")

    def __dlpack_device__(self) -> NoReturn:
        raise BufferError(self.pool.refusal("arrays in the same memory"))

    def __dlpack__(self, **_: Any) -> NoReturn:
        raise BufferError(self.pool.refusal("arrays in the same memory"))

    def from_numpy(self, source: Numbers) -> None:
        if isinstance(source, Storage):
            self.copy_from(source)
            return
        values = host_views.to_number_array(source)
        inner = shape_of(self.elem)
        full = self.shape + inner
        shapes = {full}
        if isinstance(self, MatrixField) and self.m == 1:
            shapes |= {(*self.shape, self.n), (*self.shape, self.n, 1)}
        if values.shape not in shapes:
            raise ArgumentError(f"an array of shape {full} is needed, not {values.shape}")
        cells, nodes = self._active()
        mixed = [n for pair in zip(self.pool.block.shape, self.leaf, strict=True) for n in pair]
        picked = values.reshape((*mixed, *inner))[self._cell_key(cells)]
        self.warn_of_losses(picked)
        self._put_blocks(nodes, host_views.cast(picked, self.number))

    def fill(self, value: Numbers) -> None:
        values = fit_element_shape(host_views.to_number_array(value), shape_of(self.elem))
        self.warn_of_losses(values)
        _, nodes = self._active()
        shape = (len(nodes), *self.leaf, *shape_of(self.elem))
        self._put_blocks(nodes, np.broadcast_to(host_views.cast(values, self.number), shape))

    def from_coo(self, index: Any, values: Any) -> None:
        self._check_untaped()
        at, numbers = check_coo(self, index, values)
        if not len(at):
            return
        cells, inside = np.divmod(at, np.array(self.leaf))
        where = np.zeros(self.pool.block.shape, np.bool_)
        where[tuple(cells.T)] = True
        nodes = self.pool.activate_all(where)[tuple(cells.T)]
        used, back = np.unique(nodes, return_inverse=True)
        blocks = np.array(self._blocks(used))
        blocks[(back.reshape(-1), *inside.T)] = host_views.cast(numbers, self.compute)
        self._put_blocks(used, host_views.cast(blocks, self.number))

    def copy_from(self, other: Storage) -> None:
        self.check_copied(other)
        if other is self:
            return
        if not isinstance(other, PooledField):
            values = other.to_numpy()
            self.pool.activate_all(self._active_in(other))
            self.from_numpy(values.reshape(self.shape + shape_of(self.elem)))
            return
        index, values = other.to_coo()
        self.fill(0)  # elements that are inactive in `other`
        shift = np.array(self.origin) - np.array(other.origin)
        self.from_coo(index + shift, values)

    def _active_in(self, other: Storage) -> NDArray[Any]:
        """The cells that contain elements of an array, in sparse blocks active ones."""
        from vkchi.fields.trees.block_activity import active_elements

        shape = self.pool.block.shape
        if not (isinstance(other, Field) and other.is_sparse):
            return np.ones(shape, np.bool_)
        assert other.node is not None
        mixed = [n for pair in zip(shape, self.leaf, strict=True) for n in pair]
        where = active_elements(other.node).reshape(mixed)
        return np.asarray(where.any(axis=tuple(range(1, 2 * len(shape), 2))))

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        raise Unsupported("a field in sparse blocks cannot be copied: place another one")

    def _refuse_copy(self, *args: Any) -> NoReturn:
        raise Unsupported(self.pool.refusal("copies of the memory"))

    copied = copied_rows = duplicate = _refuse_copy  # type: ignore[assignment]

    def release_memory(self) -> None:
        super().release_memory()
        vars(self).pop("pool", None)
        vars(self).pop("nodes", None)


class PooledScalarField(PooledField, ScalarField):
    """A field of scalars in nodes of a pool."""


class PooledMatrixField(PooledField, MatrixField):
    """A field of vectors or matrices in nodes of a pool."""


class PooledComponentField(PooledField, ComponentField):
    """One component of the elements of a PooledMatrixField, in the same memory."""

    @property
    def place(self) -> tuple[int, ...]:
        """The index of the component in an element."""
        whole, k = self.component_of
        return tuple(map(int, np.unravel_index(k, shape_of(whole.elem))))

    def _read(self, index: tuple[int, ...]) -> Any:
        return self.whole._read(index + self.place)

    def write(self, index: tuple[int, ...], value: Any) -> None:
        self.whole.write(index + self.place, value)

    def _blocks(self, nodes: NDArray[Any]) -> NDArray[Any]:
        whole: Any = self.whole
        found: NDArray[Any] = whole._blocks(nodes)[(..., *self.place)]
        return found

    def _put_blocks(self, nodes: NDArray[Any], values: NDArray[Any]) -> None:
        whole: Any = self.whole
        blocks: Any = np.array(whole._blocks(nodes))
        blocks[(..., *self.place)] = values
        whole._put_blocks(nodes, blocks)


PENDING[PooledComponentField] = PendingComponentField
PENDING[PooledScalarField] = PendingScalarField
PENDING[PooledMatrixField] = PendingMatrixField


def adopt_pool(field: Any, pool: Pool) -> None:
    """Turn a field that is placed in the block of a pool, or a component of one, into a
    PooledField."""
    node = field.node
    origin = node.origin or (0,) * len(node.shape)
    vars(field).update(
        pool=pool, nodes=pool.nodes[id(node)], layout=None, is_own=False, token=object(),
        _shape=node.shape, _rank=-1, _length=0, size_bytes=pool.node_bytes, digits=node.shape,
        _ends=tuple([(k, k + n) for k, n in zip(origin, node.shape, strict=True)]),
    )  # fmt: skip
    kinds: dict[type, type] = {
        ComponentField: PooledComponentField, MatrixField: PooledMatrixField,
    }  # fmt: skip
    field.__class__ = next((new for old, new in kinds.items() if isinstance(field, old)),
                           PooledScalarField)  # fmt: skip
