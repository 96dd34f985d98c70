"""Python's writes to arrays while the device is at work: recorded, as kernels are, so that nobody
waits for what was launched before.

Owns: when that is right, and when it is better than to wait. Must not know: subscripts, tapes, what
the device does. A few such writes in a row are recorded; whoever writes more of them waits once,
and writes to memory from then on, which takes a twentieth of the time.

Kernels and reads that follow find what was written, for all wait or are ordered behind it. What
others see in place (DLPack, imported memory) is written at once, as they do not wait.

    if device.busy and not write_later(array, (3,), 2.0): device.wait()
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from vkchi.buffer import IMPORTED
from vkchi.types import shape_of
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from vkchi.fields.elements import Elements

MOST_IN_A_ROW = 8
WORD_BYTES = 4  # of what commands write: whole words, at such offsets


def writes_before(array: Elements) -> int | None:
    """How many of Python's writes were recorded right before; None where a write to this array is
    better done at once: the device is done, others see the array, or there were enough of them.
    Raises DeviceError where the device is gone."""
    device = array.device
    if array.runtime.exported or device.peer is not None or array.buffer.key == IMPORTED:
        return None
    position = device.position
    if position is None:
        return None
    last, in_a_row = device.python_writes
    found = in_a_row if position == last else 0
    return found if found < MOST_IN_A_ROW else None


def note_write(array: Elements, before: int) -> None:
    """One was recorded: the next may be in a row with it."""
    array.device.python_writes = array.device.position, before + 1


def write_later(array: Elements, index: tuple[int, ...], values: Any, code: str | None) -> bool:
    """Record putting numbers at a place, an element or a component; whether it was. `code`: what
    `struct` calls the array's numbers, if it has a name for them."""
    found = bytes_of(array, index, values, code) if code is not None else None
    before = writes_before(array) if found is not None else None
    if found is None or before is None:
        return False
    offset, data = found
    where, start = array.buffer.locate(offset, len(data))
    if start % WORD_BYTES:
        return False
    array.device.rewrite(where, start, array.buffer.key, data)
    note_write(array, before)
    return True


def bytes_of(
    array: Elements, index: tuple[int, ...], values: Any, code: str
) -> tuple[int, bytes] | None:
    """Where in the buffer numbers go, and their bytes; None where they are no whole words that
    follow each other."""
    size = array.stored.size_bytes
    if size % WORD_BYTES or array.stored is not array.number or array.is_encoded:
        return None
    inner = shape_of(array.elem)[len(index) - len(array.digits) :]
    offset = array.offset(index)
    if not inner:
        return offset * size, struct.pack(code, values)
    first, *rest = array.layout.components
    if any(k != first + n for n, k in enumerate(rest, 1)):
        return None
    data = np.broadcast_to(values, inner).astype(array.stored.dtype).tobytes()
    return (offset + first) * size, data


def fill_later(array: Elements, value: Any, code: str) -> bool:
    """Record setting all numbers of an array, which shares its buffer with none, to one; whether it
    was."""
    one = struct.pack(code, value)
    if array.size_bytes % WORD_BYTES or len(set(words_of(one))) > 1:
        return False
    before = writes_before(array)
    if before is None:
        return False
    array.device.fill(array.buffer, 0, array.size_bytes, words_of(one)[0])
    note_write(array, before)
    return True


def words_of(number: bytes) -> tuple[int, ...]:
    """The words that a number, again and again, makes."""
    whole = number * max(1, WORD_BYTES // len(number))
    return struct.unpack(f"{len(whole) // WORD_BYTES}I", whole)
