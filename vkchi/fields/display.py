"""Text and pictures of arrays for people: `repr(x)`, `print(x)`, notebooks.

Values are shown as numpy shows them. Of a large array only the printed elements are read. `str`
reports the read to tapes, `repr` and pictures do not. Arrays whose contents cannot be read, or only
by more than MOST_READS single reads, show a description: `describe`. `print` of an unplaced field
shows Taichi's text.

    ti.field([0., 0., 0., ..., 0., 0., 0.], shape=(2000,), dtype=f32)
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar

from vkchi.fields.elements import ArrayAccess
from vkchi.hooks import Hook
from vkchi.interrupts.contexts import restoring
from vkchi.interrupts.local import local
from vkchi.span import PACKAGE
from vkchi.types import shape_of, u8
from vkchi.types.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vkchi.fields.storage import Storage
    from vkchi.runtime import Runtime

T = TypeVar("T")
PATIENCE_S = 0.5  # for a lock that another thread holds, perhaps stopped in a debugger
MOST_READS = 4096  # reads of single elements
MOST_PICTURE_BYTES = 1 << 26
LEAST_PIXELS, MOST_PIXELS = 16, 1024  # per axis of a picture


def describe(array: Storage) -> str:
    """Kind, element type, shape and state, without values."""
    kind, state = f"{array.origin_name}{array.kind_name}", ""
    if not array.has_place:
        return f"<{kind} of {array.type_name}, not placed>"
    if array.device.closed:
        state = ", freed"
    elif not array.has_memory:
        state = ", without memory so far"
    return f"<{kind} of {array.type_name}, shape {array.shape}{state}>"


def is_asked_by_package(depth: int) -> bool:
    """True if code of vkchi called the function that is `depth` levels up the stack."""
    return sys._getframe(depth + 1).f_code.co_filename.startswith(PACKAGE)


def show(array: Storage) -> str:
    """`repr` of an array: values, shape and type; a description if there are no values."""
    values = printable(array)
    if values is None:
        return describe(array)
    begin = f"{array.kind_name}("
    text = to_text(values, separator=", ", prefix=begin)
    return f"{begin}{text}, shape={array.shape}, dtype={array.type_name})"


def show_values(array: Storage, separator: str = " ", prefix: str = "") -> str:
    """The values as numpy prints them, or a description if they cannot be read. Further lines are
    indented by the length of `prefix`."""
    values = printable(array)
    if values is None:
        return describe(array)
    if not values.values.ndim:
        return str(values.values)  # 0.0, unlike in `repr`
    return to_text(values, separator=separator, prefix=prefix)


def printed(array: Storage, text: Callable[[Storage], str]) -> str:
    """Return `text(array)`, the `str` of an array. First reports a read of a readable array to the
    tape, which raises for gradients that are not known."""
    if can_be_read(array):
        array.tell(ArrayAccess("read"))
    return text(array)


class PictureHook:
    """Hook for image files: `encode(values)` is the PNG of u8 values, None without Pillow."""

    encode = Hook("encode a picture")


class Excerpt:
    """Values to print. `is_part`: long axes have only their first and last elements."""

    def __init__(self, values: NDArray[Any], *, is_part: bool) -> None:
        self.values, self.is_part = values, is_part


def to_text(excerpt: Excerpt, **options: Any) -> str:
    """The text that numpy would print for the whole array. `options` are those of
    `np.array2string`."""
    if excerpt.is_part:
        options["threshold"] = 0
    return np.array2string(excerpt.values, **options)


def printable(array: Storage) -> Excerpt | None:
    """The values that numpy would print; None if they cannot be read."""
    return read_now(array, excerpt_of)


def can_be_read(array: Storage) -> bool:
    """True if the array has memory on an open device, and no graph is being recorded."""
    if not array.has_place or array.device.closed or not array.has_memory:
        return False
    tape = array.runtime.tape
    return tape is None or tape.kind != "record"


def read_now(array: Storage, read: Callable[[Storage], T | None]) -> T | None:
    """Return `read(array)` under the runtime's lock, or None if the contents cannot be read.

    None if not `can_be_read`, if another thread holds the lock for PATIENCE_S, or if `read` raises.
    """
    if not can_be_read(array):
        return None
    with patient_lock(array.runtime) as is_held:
        try:
            return read(array) if is_held else None
        except local(Exception):  # the device is lost, for example
            return None


@contextmanager
def patient_lock(runtime: Runtime) -> Iterator[bool]:
    """Context that holds the runtime's lock. Yields False, without it, if another thread holds it
    for PATIENCE_S."""
    with restoring(runtime.lock):
        is_held = runtime.lock.acquire(timeout=PATIENCE_S)
        try:
            yield is_held
        finally:
            if is_held:
                runtime.lock.release()


def excerpt_of(array: Storage) -> Excerpt | None:
    """The values to print, by numpy's print options. None if more than MOST_READS elements would be
    read one by one. Waits for the device."""
    options = np.get_printoptions()
    edge, inner = options["edgeitems"], shape_of(array.elem)
    if math.prod(array.shape + inner) <= options["threshold"]:
        return Excerpt(array.contents(), is_part=False)
    chosen = [edge_indices(n, edge) for n in array.shape]
    shape = tuple([min(n, 2 * edge + 1) for n in array.shape])
    values = np.zeros(shape + inner, array.compute.dtype)
    if array.is_mapped_directly:
        array.ready()
        assert array.host is not None
        values[np.ix_(*places_of(chosen))] = array.host[np.ix_(*chosen)]
        return Excerpt(values, is_part=True)
    if math.prod(map(len, chosen)) > MOST_READS:
        return None
    for index, place in zip(product(*chosen), product(*places_of(chosen)), strict=True):
        user = tuple([first + k for first, k in zip(array.origin, index, strict=True)])
        values[place] = array.peek(array.index(user))
    return Excerpt(values, is_part=True)


def edge_indices(n: int, edge: int) -> list[int]:
    """Indices of an axis that are printed."""
    return [*range(edge), *range(n - edge, n)] if n > 2 * edge else [*range(n)]


def places_of(chosen: list[list[int]]) -> list[list[int]]:
    """Positions in the excerpt of the chosen indices. In a long axis one position is left free, for
    the elements left out."""
    return [
        [*range(len(axis) // 2), *range(len(axis) // 2 + 1, len(axis) + 1)]
        if len(axis) and axis[-1] != len(axis) - 1
        else [*range(len(axis))]
        for axis in chosen
    ]


# --- notebooks -----------------------------------------------------------------------------------


def picture_of(array: Storage) -> bytes | None:
    """A PNG of an array that is a picture; None for another array, and without Pillow.

    Pictures have two axes of at least 16 elements: u8, floats from 0 to 1, or vectors of 3 or 4 of
    these. The first axis is x, the second y, upwards. Axes of more than 1024 elements are sampled.
    """
    number, is_image = array.compute, array.has_place and len(array.shape) == 2
    if not is_image or min(array.shape) < LEAST_PIXELS:
        return None
    if shape_of(array.elem) not in ((), (3,), (4,)) or (number.kind != "f" and number is not u8):
        return None
    values = read_now(array, sampled)
    if values is None or not values.size:
        return None
    if number.kind == "f":
        if not (values.min() >= 0 and values.max() <= 1):  # also for nan
            return None
        values = np.round(values.astype(np.float32) * 255).astype(np.uint8)
    png: bytes | None = PictureHook.encode(values)
    return png


def sampled(array: Storage) -> NDArray[Any] | None:
    """Every n-th element of the contents, at most 1024 per axis. None if the whole array would have
    to be copied, and has more than MOST_PICTURE_BYTES."""
    step = tuple([slice(None, None, -(-n // MOST_PIXELS)) for n in array.shape])
    if array.is_mapped_directly:
        array.ready()
        assert array.host is not None
        return np.array(array.host[step])
    return array.contents()[step] if array.size_bytes <= MOST_PICTURE_BYTES else None


def picture_in_html(array: Storage) -> str | None:
    """The picture of an array with its description below, as HTML; None for other arrays."""
    png = picture_of(array)
    if png is None:
        return None
    import base64
    import html

    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return f'<img src="{source}"/><br/><code>{html.escape(describe(array))}</code>'
