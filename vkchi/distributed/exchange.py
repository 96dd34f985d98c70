"""Exchange of halos: one message per neighbouring rank for all fields of a call.

A reduction of halos is the reverse: the halos are sent to the cells' owners, which add them. It is
the adjoint of an exchange.

A `Plan` has the message buffers of a tuple of fields, and where each box of a field lies in them.
All receives are posted first, then all sends, then both are waited for: no cycle of waits exists.

Boxes are copied by numpy if the host can address the memory of a field, otherwise by kernels.
"""

from __future__ import annotations

import math
import sys
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vkchi.distributed.decomposition import Box, Decomposition, box_shape, box_size
from vkchi.distributed.group import Group, salt_of
from vkchi.errors import ArgumentError, GradientError
from vkchi.fields.storage import Storage
from vkchi.ndarray import ndarray
from vkchi.tuples import NamedTuple
from vkchi.types import shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vkchi.distributed.group import Post

    Copy = tuple[NDArray[Any], NDArray[Any]]  # cells, and their place in a message

ALIGNMENT = 8  # bytes, of the boxes in a message


class Piece(NamedTuple):
    """A box of a field, and its `view` in a message: elements of the box, row-major."""

    field: int
    box: Box
    view: NDArray[Any]


class Messages:
    """The messages of one direction, sent or received: a buffer of bytes per peer, and its pieces.

    The boxes of one peer are in order of field, then of the sender's direction.

    - `copies`: with each peer, the cells of a box in the memory of its field, and its place in the
      message. Boxes in memory that the host cannot address are in `apart`.
    - `posts`: peer, tensor and salt of the tag, for messages between ranks.
    - `direct_copies`, `direct_posts`: the same, with messages of one contiguous box in the field's
      own memory.
    """

    def __init__(self, own: int, fields: Sequence[Storage], boxes: dict[int, list[Box]]) -> None:
        self.buffers: dict[int, NDArray[Any]] = {}
        self.pieces: list[Piece] = []
        self.apart: list[Piece] = []
        self.copies: list[Copy] = []
        self.direct_copies: list[Copy] = []
        self.posts: list[Post] = []
        self.direct_posts: list[Post] = []
        views = [host_view(x) for x in fields]
        for peer, ours in boxes.items():
            places, end = [], 0
            for k, x in enumerate(fields):
                for box in ours:
                    start = -(-end // ALIGNMENT) * ALIGNMENT
                    shape = (*box_shape(box), *shape_of(x.elem))
                    places.append((k, box, shape, start))
                    end = start + math.prod(shape) * x.number.dtype.itemsize
            buffer = self.buffers[peer] = np.zeros(end, np.uint8)
            copies = []
            for k, box, shape, start in places:
                view: NDArray[Any] = np.ndarray(shape, fields[k].number.dtype, buffer, start)
                piece, memory = Piece(k, box, view), views[k]
                self.pieces.append(piece)
                if memory is None:
                    self.apart.append(piece)
                else:
                    copies.append((memory[local_slices(fields[k], box)], view))
            self.copies += copies
            if peer == own:
                self.direct_copies += copies
                continue
            salt = salt_of(own, peer, end)
            post = (peer, tensor_of(buffer), salt)
            self.posts.append(post)
            cells = copies[0][0] if len(copies) == len(places) == 1 else None
            if cells is not None and cells.flags.c_contiguous and cells.nbytes == end:
                self.direct_posts.append((peer, tensor_of(cells.reshape(-1).view(np.uint8)), salt))
            else:
                self.direct_copies += copies
                self.direct_posts.append(post)

    @property
    def size_bytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers.values())


class Plan:
    """Buffers of an exchange of these fields. Precondition: the fields have the rank's block.

    With `is_reversed`, the boxes that an exchange receives are sent, and those that it sends are
    received. With `is_direct`, contiguous boxes are sent from the field and received there.
    `buffers` are arrays for the boxes sent and received, in tapes. `given` keeps the objects alive
    by which the plan is found.
    """

    buffers: tuple[Any, ...] | None = None

    def __init__(
        self, rank: int, layout: Decomposition, fields: Sequence[Storage], given: Sequence[Any] = ()
    ) -> None:
        self.rank, self.fields, self.given = rank, tuple(fields), given
        self.tokens = [x.token for x in fields]
        self.device = fields[0].device
        peers = layout.peers(rank)
        self.sent = Messages(rank, fields, {p: layout.sent(rank, p) for p in peers})
        self.received = Messages(rank, fields, {p: layout.received(rank, p) for p in peers})
        facts = f"{[(str(x.elem), x.has_grad()) for x in fields]} {layout}"
        self.facts = str(zlib.crc32(facts.encode()))

    def is_current(self, runtime: Any) -> bool:
        """True if the fields have the same memory as before, on this runtime."""
        for x, token in zip(self.fields, self.tokens):
            if x.token is not token or x.runtime is not runtime:
                return False
            x.check_alive()
        return True

    def messages(self, *, is_reversed: bool) -> tuple[Messages, Messages]:
        """The messages to send and to receive."""
        return (self.received, self.sent) if is_reversed else (self.sent, self.received)

    def pack(self, *, is_reversed: bool = False, is_direct: bool = False) -> None:
        """Copy the owned boxes into the messages, after a wait for the device. With `is_reversed`,
        move the halos: they become 0."""
        given, _ = self.messages(is_reversed=is_reversed)
        self._await_device(is_written=is_reversed or is_direct)
        for cells, view in given.direct_copies if is_direct else given.copies:
            np.copyto(view, cells)
            if is_reversed:
                cells[...] = 0
        for x, pieces in self._apart(given):
            from vkchi.distributed.kernels import pack  # devices without mapped memory

            boxes, count = numbered(pieces)
            buffer = ndarray(x.elem, count)
            pack(x, buffer, boxes, is_reversed)
            store_flat(pieces, buffer.to_numpy())

    def unpack(self, *, is_reversed: bool = False, is_direct: bool = False) -> None:
        """Copy the messages into the halos. With `is_reversed`, add them to the owned boxes."""
        _, taken = self.messages(is_reversed=is_reversed)
        self._await_device(is_written=True)
        for cells, view in taken.direct_copies if is_direct else taken.copies:
            if is_reversed:
                cells += view
            else:
                np.copyto(cells, view)
        for x, pieces in self._apart(taken):
            from vkchi.distributed.kernels import unpack  # devices without mapped memory

            boxes, count = numbered(pieces)
            buffer = ndarray(x.elem, count)
            buffer.from_numpy(load_flat(pieces))
            unpack(x, buffer, boxes, is_reversed)

    def _await_device(self, *, is_written: bool) -> None:
        """Wait until the fields' memory can be read, or written by the host."""
        device = self.device
        if device.busy or (is_written and device.guards):
            for x in self.fields:
                (x.ready_to_write if is_written else x.ready)()

    def _apart(self, messages: Messages) -> Iterator[tuple[Storage, list[Piece]]]:
        """Fields whose memory the host cannot address, with their boxes."""
        for k in sorted({piece.field for piece in messages.apart}):
            yield self.fields[k], [piece for piece in messages.apart if piece.field == k]

    def post(
        self, group: Group, digest: int, *, is_reversed: bool = False, is_direct: bool = False
    ) -> list[tuple[int, Any]]:
        """Post all receives, then all sends; return torch's work objects with their peers."""
        given, taken = self.messages(is_reversed=is_reversed)
        if self.rank in given.buffers:
            np.copyto(taken.buffers[self.rank], given.buffers[self.rank])
        if is_direct:
            return group.post(digest, taken.direct_posts, given.direct_posts)
        return group.post(digest, taken.posts, given.posts)


def tensor_of(data: NDArray[Any]) -> Any:
    """A torch tensor in the memory of a numpy array."""
    return sys.modules["torch"].from_numpy(data)


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


def store_flat(pieces: Sequence[Piece], values: NDArray[Any]) -> None:
    """Copy consecutive boxes into the messages."""
    for (start, box), piece in zip(numbered(pieces)[0], pieces):
        piece.view[...] = values[start : start + box_size(box)].reshape(piece.view.shape)


def load_flat(pieces: Sequence[Piece]) -> NDArray[Any]:
    """The boxes in the messages, one after the other."""
    inner = pieces[0].view.shape[len(pieces[0].box) :]
    return np.concatenate([piece.view.reshape(-1, *inner) for piece in pieces])


class Exchange:
    """A running exchange or reduction of halos. Its fields' halos must not be used before `wait`.
    Without a plan it has ended."""

    _works: list[tuple[int, Any]] | None = None

    def __init__(
        self, group: Group, plan: Plan | None, operation: str, *, is_reversed: bool = False,
        is_direct: bool = False,
    ) -> None:  # fmt: skip
        if plan is None:
            return
        self._group, self._plan, self._operation = group, plan, operation
        self._form = {"is_reversed": is_reversed, "is_direct": is_direct}
        digest = group.begin(operation, plan.facts)
        plan.pack(**self._form)
        group.in_flight.append(self)
        self._works = plan.post(group, digest, **self._form)

    def wait(self) -> None:
        """Wait for the neighbours' messages, and copy them into the halos. Idempotent.

        Kernels that were launched before this run meanwhile. Raises DistributedError if a rank
        died or the time-out passed, and GradientError inside a tape or `ti.record()`.
        """
        if self._works is None:
            return
        plan = self._plan
        if plan.fields[0].runtime.tape is not None:
            raise GradientError(
                "Exchange.wait() inside a recording: halos that are filled there are not recorded. "
                "Call wait() before it, or exchange() inside it"
            )
        works, self._works = self._works, None
        self._group.in_flight.remove(self)
        if plan.device.busy:
            plan.device.flush()
        self._group.wait(self._operation, works)
        plan.unpack(**self._form)

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
