"""Exchange of halos: one message per neighbouring rank for all fields of a call.

A reduction of halos is the reverse: the halos are sent to the cells' owners, which add them. It is
the adjoint of an exchange.

A `Plan` has the message buffers of a tuple of fields, and where each box of a field lies in them.
All receives are posted first, then all sends, then both are waited for: no cycle of waits exists.

Boxes are copied by numpy if the host can address the memory of a field, otherwise by kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkchi.distributed.decomposition import Box, Decomposition, box_shape, box_size
from vkchi.distributed.group import Group, tag_of
from vkchi.errors import ArgumentError, GradientError
from vkchi.fields.storage import Storage
from vkchi.ndarray import ndarray
from vkchi.tuples import NamedTuple
from vkchi.types import shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALIGNMENT = 8  # bytes, of the boxes in a message


class Piece(NamedTuple):
    """A box of a field, and its `view` in a message: elements of the box, row-major."""

    field: int
    box: Box
    view: NDArray[Any]


class Messages:
    """The messages of one direction, sent or received: a buffer of bytes per peer, and its pieces.

    The boxes of one peer are in order of field, then of the sender's direction.
    """

    def __init__(self, fields: Sequence[Storage], boxes: dict[int, list[Box]]) -> None:
        self.buffers: dict[int, NDArray[Any]] = {}
        self.pieces: list[Piece] = []
        for peer, ours in boxes.items():
            places, end = [], 0
            for k, x in enumerate(fields):
                for box in ours:
                    shape = (*box_shape(box), *shape_of(x.elem))
                    places.append((k, box, shape, end))
                    size_bytes = math.prod(shape) * x.number.dtype.itemsize
                    end += -(-size_bytes // ALIGNMENT) * ALIGNMENT
            buffer = self.buffers[peer] = np.zeros(end, np.uint8)
            for k, box, shape, start in places:
                view: NDArray[Any] = np.ndarray(shape, fields[k].number.dtype, buffer, start)
                self.pieces.append(Piece(k, box, view))

    @property
    def size_bytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers.values())


class Plan:
    """Buffers of an exchange of these fields. Precondition: the fields have the rank's block.

    With `is_reversed`, the boxes that an exchange receives are sent, and those that it sends are
    received. `buffers` are arrays for the boxes sent and received, in tapes.
    """

    buffers: tuple[Any, ...] | None = None

    def __init__(self, rank: int, layout: Decomposition, fields: Sequence[Storage]) -> None:
        self.rank, self.fields = rank, tuple(fields)
        self.tokens = [x.token for x in fields]
        peers = layout.peers(rank)
        self.sent = Messages(fields, {p: layout.sent(rank, p) for p in peers})
        self.received = Messages(fields, {p: layout.received(rank, p) for p in peers})
        self.facts = f"{[(str(x.elem), x.has_grad()) for x in fields]} {layout}"

    def messages(self, *, is_reversed: bool) -> tuple[Messages, Messages]:
        """The messages to send and to receive."""
        return (self.received, self.sent) if is_reversed else (self.sent, self.received)

    def pack(self, *, is_reversed: bool = False) -> None:
        """Copy the owned boxes into the messages, after a wait for the device. With `is_reversed`,
        move the halos: they become 0."""
        given, _ = self.messages(is_reversed=is_reversed)
        for k, x in enumerate(self.fields):
            pieces = [piece for piece in given.pieces if piece.field == k]
            source = host_view(x)
            if source is not None:
                (x.ready_to_write if is_reversed else x.ready)()
                for piece in pieces:
                    cells = source[local_slices(x, piece.box)]
                    np.copyto(piece.view, cells)
                    if is_reversed:
                        cells[...] = 0
            elif pieces:
                from vkchi.distributed.kernels import pack  # devices without mapped memory

                boxes, count = numbered(pieces)
                buffer = ndarray(x.elem, count)
                pack(x, buffer, boxes, is_reversed)
                values = buffer.to_numpy()
                for (start, box), piece in zip(boxes, pieces):
                    piece.view[...] = values[start : start + box_size(box)].reshape(
                        piece.view.shape
                    )

    def unpack(self, *, is_reversed: bool = False) -> None:
        """Copy the messages into the halos. With `is_reversed`, add them to the owned boxes."""
        _, taken = self.messages(is_reversed=is_reversed)
        for k, x in enumerate(self.fields):
            pieces = [piece for piece in taken.pieces if piece.field == k]
            target = host_view(x)
            if target is not None:
                x.ready_to_write()
                for piece in pieces:
                    cells = target[local_slices(x, piece.box)]
                    if is_reversed:
                        cells += piece.view
                    else:
                        np.copyto(cells, piece.view)
            elif pieces:
                from vkchi.distributed.kernels import unpack  # devices without mapped memory

                boxes, count = numbered(pieces)
                inner = shape_of(x.elem)
                values = [piece.view.reshape(-1, *inner) for piece in pieces]
                buffer = ndarray(x.elem, count)
                buffer.from_numpy(np.concatenate(values))
                unpack(x, buffer, boxes, is_reversed)

    def post(
        self, group: Group, digest: int, *, is_reversed: bool = False
    ) -> list[tuple[int, Any]]:
        """Post all receives, then all sends; return torch's work objects with their peers."""
        own, works = self.rank, []
        given, taken = (m.buffers for m in self.messages(is_reversed=is_reversed))
        for peer, buffer in taken.items():
            if peer == own:
                np.copyto(buffer, given[own])
            else:
                tag = tag_of(digest, peer, own, buffer.nbytes)
                works.append((peer, group.receive(buffer, peer, tag)))
        for peer, buffer in given.items():
            if peer != own:
                tag = tag_of(digest, own, peer, buffer.nbytes)
                works.append((peer, group.send(buffer, peer, tag)))
        return works


def host_view(x: Storage) -> NDArray[Any] | None:
    """The memory as a numpy array of the field's shape and type; None if the host cannot address
    it so."""
    return None if x.is_encoded else x.in_place()


def local_slices(x: Storage, box: Box) -> tuple[slice, ...]:
    """Slices of `host_view` for a box of global indices."""
    return tuple(slice(a - first, b - first) for (a, b), first in zip(box, x.origin))


def numbered(pieces: Sequence[Piece]) -> tuple[tuple[tuple[int, Box], ...], int]:
    """Boxes with their offsets in one buffer, and the number of its elements."""
    found, end = [], 0
    for piece in pieces:
        found.append((end, piece.box))
        end += box_size(piece.box)
    return tuple(found), end


class Exchange:
    """A running exchange or reduction of halos. Its fields' halos must not be used before `wait`.
    Without a plan it has ended."""

    _works: list[tuple[int, Any]] | None = None

    def __init__(
        self, group: Group, plan: Plan | None, operation: str, *, is_reversed: bool = False
    ) -> None:
        if plan is None:
            return
        self._group, self._plan, self._operation = group, plan, operation
        self._is_reversed = is_reversed
        digest = group.begin(operation, plan.facts)
        plan.pack(is_reversed=is_reversed)
        group.in_flight.append(self)
        self._works = plan.post(group, digest, is_reversed=is_reversed)

    def wait(self) -> None:
        """Wait for the neighbours' messages, and copy them into the halos. Idempotent.

        Kernels that were launched before this run meanwhile. Raises DistributedError if a rank
        died or the time-out passed, and GradientError inside a tape or `ti.record()`.
        """
        if self._works is None:
            return
        if self._plan.fields[0].runtime.tape is not None:
            raise GradientError(
                "Exchange.wait() inside a recording: halos that are filled there are not recorded. "
                "Call wait() before it, or exchange() inside it"
            )
        works, self._works = self._works, None
        self._group.in_flight.remove(self)
        for x in self._plan.fields[:1]:
            x.device.flush()
        self._group.wait(self._operation, works)
        self._plan.unpack(is_reversed=self._is_reversed)

    def holds(self, x: Storage) -> bool:
        return any(x is one for one in self._plan.fields)


def check_not_in_flight(group: Group, who: str, fields: Sequence[Storage]) -> None:
    """Raise ArgumentError if an exchange of one of the fields has not been waited for."""
    for x in fields:
        if any(one.holds(x) for one in group.in_flight):
            raise ArgumentError(
                f"{who}: an exchange of {x!r} is running: call wait() of the Exchange that "
                "grid.exchange(..., wait=False) returned"
            )
