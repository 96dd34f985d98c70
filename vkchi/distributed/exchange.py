"""Exchange of halos: one message per neighbouring rank for all fields of a call.

A reduction of halos is the reverse: the halos are sent to the cells' owners, which add them. It is
the adjoint of an exchange.

All receives are posted first, then all sends, then both are waited for: no cycle of waits exists.
Boxes are copied by numpy if the host can address the memory of a field, otherwise by kernels.
"""

from __future__ import annotations

import math
import sys
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkchi.distributed.decomposition import Box, Decomposition, box_shape, box_size
from vkchi.distributed.group import Group
from vkchi.errors import ArgumentError, GradientError
from vkchi.fields.storage import Storage
from vkchi.ndarray import ndarray
from vkchi.types import shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vkchi.distributed.group import Post, Works

    Values = NDArray[Any]


class Boxes:
    """The boxes of one field in all messages of one direction. `numbered` has them with their
    offsets in an array of all elements, and `views` their places in the messages."""

    def __init__(self, field: Storage) -> None:
        self.field, self.memory = field, host_view(field)
        self.numbered: tuple[tuple[int, Box], ...] = ()
        self.count = 0
        self.views: list[Values] = []

    def add(self, box: Box, data: Values, start: int) -> int:
        """Add a box that begins at a byte of a message; return the byte after it."""
        shape, dtype = (*box_shape(box), *shape_of(self.field.elem)), self.field.number.dtype
        view: Values = np.ndarray(shape, dtype, data, start)
        self.views.append(view)
        self.numbered += ((self.count, box),)
        self.count += box_size(box)
        return start + view.nbytes

    def store(self, values: Values) -> None:
        """Copy all elements into the messages."""
        for (start, box), view in zip(self.numbered, self.views):
            view[...] = values[start : start + box_size(box)].reshape(view.shape)

    def load(self) -> Values:
        """All elements, from the messages."""
        inner = shape_of(self.field.elem)
        return np.concatenate([view.reshape(-1, *inner) for view in self.views])


class Side:
    """The messages that are sent, or those that are received: the boxes of each field in turn, in
    order of the sender's direction.

    - data: the bytes of messages, by peer.
    - boxes: those of each field.
    - copies, posts: cells in the memory of fields and their places in messages; peers and tensors.
      The first of both is for messages in `data`. In the second, messages of one contiguous box are
      in the field's own memory.
    """

    def __init__(
        self, own: int, fields: Sequence[Storage], boxes: dict[int, list[Box]],
        other: Side | None = None,
    ) -> None:  # fmt: skip
        self.boxes = [Boxes(x) for x in fields]
        self.data: dict[int, Values] = {}
        self.copies: tuple[list[tuple[Values, Values]], ...] = ([], [])
        self.posts: tuple[list[Post], ...] = ([], [])
        for peer, ours in boxes.items():
            cell = sum(math.prod(shape_of(x.elem)) * x.number.dtype.itemsize for x in fields)
            data = np.zeros(cell * sum(map(box_size, ours)), np.uint8)
            if peer == own and other is not None:
                data = other.data[own]  # to itself
            self.data[peer] = data
            end, copies = 0, []
            for mine in self.boxes:
                for box in ours:
                    end = mine.add(box, data, end)
                    if mine.memory is not None:
                        cells = mine.memory[local_slices(mine.field, box)]
                        copies.append((cells, mine.views[-1]))
            face = copies[0][0] if len(copies) == 1 else None
            is_face = face is not None and face.flags.c_contiguous and face.nbytes == end
            for is_direct in (False, True):
                if is_direct and is_face and peer != own:
                    assert face is not None
                    data = face.reshape(-1).view(np.uint8)
                else:
                    self.copies[is_direct].extend(copies)
                if peer != own:
                    tensor = sys.modules["torch"].from_numpy(data)
                    self.posts[is_direct].append((peer, tensor))

    def pack(self, *, is_direct: bool, clears: bool) -> None:
        """Copy cells into the messages. With `clears`, move them: they become 0."""
        for cells, view in self.copies[is_direct]:
            np.copyto(view, cells)
            if clears:
                cells[...] = 0
        for boxes in self.boxes:
            if boxes.memory is None and boxes.count:
                from vkchi.distributed.kernels import pack  # devices without mapped memory

                buffer = ndarray(boxes.field.elem, boxes.count)
                pack(boxes.field, buffer, boxes.numbered, clears)
                boxes.store(buffer.to_numpy())

    def unpack(self, *, is_direct: bool, adds: bool) -> None:
        """Copy the messages into the cells, or add them."""
        for cells, view in self.copies[is_direct]:
            if adds:
                cells += view
            else:
                np.copyto(cells, view)
        for boxes in self.boxes:
            if boxes.memory is None and boxes.count:
                from vkchi.distributed.kernels import unpack  # devices without mapped memory

                buffer = ndarray(boxes.field.elem, boxes.count)
                buffer.from_numpy(boxes.load())
                unpack(boxes.field, buffer, boxes.numbered, adds)


class Plan:
    """Messages of an exchange of these fields. Precondition: the fields have the rank's block.

    `facts` imply the sizes of messages. `buffers` are arrays for the boxes sent and received, in
    tapes. `given` keeps the objects alive by which the plan is found.
    """

    buffers: tuple[Any, ...] = ()

    def __init__(
        self, rank: int, layout: Decomposition, fields: Sequence[Storage], given: Sequence[Any] = ()
    ) -> None:
        self.fields, self.given, self.device = tuple(fields), given, fields[0].device
        self.tokens = [x.token for x in fields]
        peers = layout.peers(rank)
        self.sent = Side(rank, fields, {p: layout.sent(rank, p) for p in peers})
        received = {p: layout.received(rank, p) for p in peers}
        self.received = Side(rank, fields, received, self.sent)
        facts = f"{[(str(x.elem), x.has_grad()) for x in fields]} {layout}"
        self.facts = str(zlib.crc32(facts.encode()))

    def is_current(self, runtime: Any) -> bool:
        """True if the fields have the same memory as before, on this runtime."""
        for x, token in zip(self.fields, self.tokens):
            if x.token is not token or x.runtime is not runtime:
                return False
            x.check_alive()
        return True

    def sides(self, *, is_reversed: bool) -> tuple[Side, Side]:
        """The messages to send and to receive. An exchange that `is_reversed` sends the boxes that
        others receive."""
        return (self.received, self.sent) if is_reversed else (self.sent, self.received)

    def await_device(self, *, is_written: bool) -> None:
        """Wait until the fields' memory can be read, or written by the host."""
        device = self.device
        if device.busy or (is_written and device.guards):
            for x in self.fields:
                (x.ready_to_write if is_written else x.ready)()


class Exchange:
    """A running exchange of halos; a reduction if it `is_reversed`. Its fields' halos must not be
    used before `wait`. If it `is_direct`, neither must the fields. Without a plan it has ended."""

    _works: Works | None = None

    def __init__(
        self, group: Group, plan: Plan | None, operation: str, *, is_reversed: bool = False,
        is_direct: bool = False,
    ) -> None:  # fmt: skip
        if plan is None:
            return
        self._group, self._plan, self._operation = group, plan, operation
        self._is_reversed, self._is_direct = is_reversed, is_direct
        given, self._taken = plan.sides(is_reversed=is_reversed)
        digest = group.begin(operation, plan.facts)
        plan.await_device(is_written=is_reversed or is_direct)
        given.pack(is_direct=is_direct, clears=is_reversed)
        group.in_flight.append(self)
        received, sent = self._taken.posts[is_direct], given.posts[is_direct]
        self._works = group.post(operation, digest, received, sent)

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
        plan.await_device(is_written=True)
        self._taken.unpack(is_direct=self._is_direct, adds=self._is_reversed)

    def holds(self, x: Storage) -> bool:
        return any(x is one for one in self._plan.fields)


def host_view(x: Storage) -> Values | None:
    """The memory as a numpy array of the field's shape and type; None if the host cannot address
    it so."""
    return None if x.is_encoded else x.in_place()


def local_slices(x: Storage, box: Box) -> tuple[slice, ...]:
    """Slices of `host_view` for a box of global indices."""
    return tuple(slice(a - first, b - first) for (a, b), first in zip(box, x.origin))


def check_not_in_flight(group: Group, who: str, fields: Sequence[Storage]) -> None:
    """Raise ArgumentError if an exchange of one of the fields has not been waited for."""
    for x in fields:
        if any(one.holds(x) for one in group.in_flight):
            raise ArgumentError(
                f"{who}: an exchange of {x!r} is running: call wait() of the Exchange that "
                "grid.exchange(..., wait=False) returned"
            )
