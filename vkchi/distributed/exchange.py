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
from weakref import ref

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
    from vkchi.runtime import Runtime

    Values = NDArray[Any]


class Boxes:
    """The boxes of one field in all messages of one direction. `numbered` has them with their
    offsets in an array of all elements, and `views` their places in the messages."""

    def __init__(self, x: Storage) -> None:
        self.elem, self.dtype = x.elem, x.number.dtype
        self.numbered: tuple[tuple[int, Box], ...] = ()
        self.count = 0
        self.views: list[Values] = []

    def add(self, box: Box, data: Values, start: int) -> int:
        """Add a box that begins at a byte of a message; return the byte after it."""
        shape = (*box_shape(box), *shape_of(self.elem))
        view: Values = np.ndarray(shape, self.dtype, data, start)
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
        inner = shape_of(self.elem)
        return np.concatenate([view.reshape(-1, *inner) for view in self.views])


class Side:
    """The messages that are sent, or those that are received: the boxes of each field in turn, in
    order of the sender's direction.

    - data: the bytes of messages, by peer.
    - boxes: those of each field. `unmapped` has those that kernels copy, by number of the field.
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
            for x, mine in zip(fields, self.boxes):
                memory = host_view(x)
                for box in ours:
                    end = mine.add(box, data, end)
                    if memory is not None:
                        copies.append((memory[local_slices(x, box)], mine.views[-1]))
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
        self.unmapped = [
            (k, mine) for k, (x, mine) in enumerate(zip(fields, self.boxes))
            if mine.count and host_view(x) is None
        ]  # fmt: skip

    def pack(self, fields: Sequence[Storage], *, is_direct: bool, clears: bool) -> None:
        """Copy cells into the messages. With `clears`, move them: they become 0."""
        for cells, view in self.copies[is_direct]:
            np.copyto(view, cells)
            if clears:
                cells[...] = 0
        for k, boxes in self.unmapped:
            from vkchi.distributed.kernels import pack  # devices without mapped memory

            buffer = ndarray(boxes.elem, boxes.count)
            pack(fields[k], buffer, boxes.numbered, clears)
            boxes.store(buffer.to_numpy())

    def unpack(self, fields: Sequence[Storage], *, is_direct: bool, adds: bool) -> None:
        """Copy the messages into the cells, or add them."""
        for cells, view in self.copies[is_direct]:
            if adds:
                cells += view
            else:
                np.copyto(cells, view)
        for k, boxes in self.unmapped:
            from vkchi.distributed.kernels import unpack  # devices without mapped memory

            buffer = ndarray(boxes.elem, boxes.count)
            buffer.from_numpy(boxes.load())
            unpack(fields[k], buffer, boxes.numbered, adds)


class Plan:
    """Messages of an exchange of these fields, members of the objects `given`. Precondition: the
    fields have the rank's block.

    `facts` imply the sizes of messages; `labels` are those of `Grid.labels`. `buffers` are arrays
    for the boxes sent and received, in tapes. A plan does not keep the fields alive.
    """

    buffers: tuple[Any, ...] = ()

    def __init__(
        self, rank: int, layout: Decomposition, fields: Sequence[Storage], given: Sequence[Any],
        labels: Sequence[str],
    ) -> None:  # fmt: skip
        self.given = self.fields = list(map(ref, given))
        if list(map(id, fields)) != list(map(id, given)):
            self.fields = list(map(ref, fields))
        self.tokens, self.device = [x.token for x in fields], fields[0].device
        peers = layout.peers(rank)
        self.sent = Side(rank, fields, {p: layout.sent(rank, p) for p in peers})
        received = {p: layout.received(rank, p) for p in peers}
        self.received = Side(rank, fields, received, self.sent)
        facts = f"{[(str(x.elem), x.has_grad()) for x in fields]} {labels} {layout}"
        self.facts = str(zlib.crc32(facts.encode()))

    def find(self, given: Sequence[Any], runtime: Runtime) -> Sequence[Storage] | None:
        """The fields; None if these objects are other ones, or have other memory, than before."""
        for known, one in zip(self.given, given):
            if known() is not one:
                return None
        found: Any = given
        if self.fields is not self.given:
            found = [known() for known in self.fields]
        for x, token in zip(found, self.tokens):
            if x is None or x.token is not token or x.runtime is not runtime:
                return None
            x.check_alive()
        return tuple(found)

    def is_dead(self) -> bool:
        """True if an object was deleted. The plan still has views of its memory."""
        return any(known() is None for known in self.given)

    def sides(self, *, is_reversed: bool) -> tuple[Side, Side]:
        """The messages to send and to receive. An exchange that `is_reversed` sends the boxes that
        others receive."""
        return (self.received, self.sent) if is_reversed else (self.sent, self.received)

    def await_device(self, fields: Sequence[Storage], *, is_written: bool) -> None:
        """Wait until the fields' memory can be read, or written by the host."""
        device = self.device
        if device.busy or (is_written and device.guards):
            for x in fields:
                (x.ready_to_write if is_written else x.ready)()


class Exchange:
    """A running exchange of halos; a reduction if it `is_reversed`. Its fields' halos must not be
    used before `wait`. If it `is_direct`, neither must the fields. Without a plan it has ended."""

    _works: Works | None = None

    def __init__(
        self, group: Group, operation: str, plan: Plan | None = None,
        fields: Sequence[Storage] = (), *, is_reversed: bool = False, is_direct: bool = False,
    ) -> None:  # fmt: skip
        if plan is None:
            return
        self._group, self._operation, self._plan, self._fields = group, operation, plan, fields
        self._is_reversed, self._is_direct = is_reversed, is_direct
        given, self._taken = plan.sides(is_reversed=is_reversed)
        digest = group.begin(operation, plan.facts)
        plan.await_device(fields, is_written=is_reversed or is_direct)
        given.pack(fields, is_direct=is_direct, clears=is_reversed)
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
        plan, fields = self._plan, self._fields
        if fields[0].runtime.tape is not None:
            raise GradientError(
                "Exchange.wait() inside a recording: halos that are filled there are not recorded. "
                "Call wait() before it, or exchange() inside it"
            )
        if plan.device.busy:
            plan.device.flush()
        self._group.wait(self._operation, self._works)
        plan.await_device(fields, is_written=True)
        self._taken.unpack(fields, is_direct=self._is_direct, adds=self._is_reversed)
        self._works = None
        self._group.in_flight.remove(self)

    def holds(self, x: Storage) -> bool:
        return any(x is one for one in self._fields)


def host_view(x: Storage) -> Values | None:
    """The memory as a numpy array of the field's shape and type; None if the host cannot address
    it so."""
    return None if x.is_encoded else x.in_place()


def local_slices(x: Storage, box: Box) -> tuple[slice, ...]:
    """Slices of `host_view` for a box of global indices."""
    return tuple(slice(a - first, b - first) for (a, b), first in zip(box, x.origin))


def check_not_in_flight(group: Group, who: str, fields: Sequence[Storage]) -> None:
    """Raise ArgumentError if an exchange of one of the fields has not been waited for."""
    for x in fields if group.in_flight else ():
        if any(one.holds(x) for one in group.in_flight):
            raise ArgumentError(
                f"{who}: an exchange of {x!r} is running: call wait() of the Exchange that "
                "grid.exchange(..., wait=False) returned"
            )
