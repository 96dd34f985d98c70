"""Asynchronous writes from Python, recorded as device commands while the device is busy.

They avoid a wait for earlier launches. At most MOST_IN_A_ROW consecutive writes are recorded; the
next one is synchronous, that is, it waits and stores to memory directly.

Guarantees: later kernels and reads see the written values, because all of them wait or are ordered
behind the write. Writes are synchronous while other libraries may access memory in place (DLPack,
imported memory).

    if device.busy and not write_later(array, (3,), 2.0): device.wait()
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from vkchi.compile_state import check_access
from vkchi.device import IMPORTED
from vkchi.types import shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.fields.elements import Elements

MOST_IN_A_ROW = 8
WORD_BYTES = 4  # granularity of device write commands


def count_recorded_writes(array: Elements) -> int | None:
    """Number of consecutive writes recorded so far. None if the next write should be synchronous.

    Reasons are an idle device, MOST_IN_A_ROW writes, and memory that other libraries may access: an
    array of the runtime is exported, CUDA is linked, or the buffer is imported. Raises DeviceError
    if the device is closed or lost.
    """
    device = array.device
    check_access()
    array.check_alive()
    if array.runtime.exported or device.peer is not None or array.buffer.key == IMPORTED:
        return None
    position = device.position
    if position is None:
        return None
    last, in_a_row = device.python_writes
    found = in_a_row if position == last else 0
    return found if found < MOST_IN_A_ROW else None


def count_write(array: Elements, before: int) -> None:
    """Store the count of recorded writes: one more than `before`."""
    array.device.python_writes = array.device.position, before + 1


def write_later(array: Elements, index: tuple[int, ...], values: Any) -> bool:
    """Record a write of an element or a component. Return False, without a write, if it must be
    synchronous."""
    found = bytes_of(array, index, values)
    before = count_recorded_writes(array) if found is not None else None
    if found is None or before is None:
        return False
    offset, data = found
    where, start = array.buffer.locate(offset, len(data))
    if start % WORD_BYTES:
        return False
    array.device.rewrite(where, start, array.buffer.key, data)
    count_write(array, before)
    return True


def bytes_of(array: Elements, index: tuple[int, ...], values: Any) -> tuple[int, bytes] | None:
    """Byte offset in the buffer, and the bytes to write. None if they are not contiguous whole
    words, or if memory holds another type than the array's."""
    size = array.stored.size_bytes
    if size % WORD_BYTES or array.stored is not array.number or array.is_encoded:
        return None
    inner = shape_of(array.elem)[len(index) - len(array.digits) :]
    offset = array.offset(index)
    if not inner:
        return offset * size, struct.pack(array.stored.code, values)
    first, *rest = array.layout.components
    if any(k != first + n for n, k in enumerate(rest, 1)):
        return None
    data = np.broadcast_to(values, inner).astype(array.stored.dtype).tobytes()
    return (offset + first) * size, data


def fill_later(array: Elements, value: Any) -> bool:
    """Record a fill of the whole array with one scalar.

    Return False, without a fill, if it must be synchronous. That is so as for
    `count_recorded_writes`, if the array is no whole number of words, or if the words of the scalar
    differ. Preconditions: the buffer holds no other array, and the stored type has a `code`.
    """
    one = struct.pack(array.stored.code, value)
    if array.size_bytes % WORD_BYTES or len(set(words_of_scalar(one))) > 1:
        return False
    before = count_recorded_writes(array)
    if before is None:
        return False
    array.device.fill(array.buffer, 0, array.size_bytes, words_of_scalar(one)[0])
    count_write(array, before)
    return True


def words_of_scalar(number: bytes) -> tuple[int, ...]:
    """The u32 words of a scalar, which is repeated if it is narrower than a word."""
    whole = number * max(1, WORD_BYTES // len(number))
    return struct.unpack(f"{len(whole) // WORD_BYTES}I", whole)
