"""What arrays held at a moment, for who wants it later: copied only when something is written.

Owns: `Kept`, `keep`, `still`. A copy is made before a command of the device that writes to the
array's buffer, before Python writes there, and at once for arrays that others see in place. Must
not know: tapes, operators, what is to be done with it.

    kept = keep(x); x.fill(1); kept.contents.to_numpy()     # what x held before
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from vkchi.fields.storage import Storage
from vkchi.interrupts.locks import restoring
from vkchi.interrupts.weak import Finalizer
from vkchi.runtime import Runtime


class Kept:
    """What an array held. `copy`: made when something was about to be written, None before."""

    def __init__(self, array: Storage) -> None:
        self.array = array
        self.copy: Storage | None = None

    @property
    def contents(self) -> Storage:
        """An array that holds it."""
        return self.array if self.copy is None else self.copy

    def save(self) -> None:
        """Something is about to be written. Raises DeviceError where there is no memory."""
        if self.copy is None:
            self.copy = self.array.copied()


def keep(array: Storage) -> Kept:
    """What an array holds now, for as long as the result is there. Where it is copied at once,
    waits, and raises DeviceError if there is no memory for that."""
    kept, device = Kept(array), array.device
    if is_exposed(array):
        kept.save()
        array.ready()  # others may write at once
        return kept
    key = array.buffer.key
    reference = Finalizer(kept, device.finalizers.append)
    reference.act = partial(device.unguard, key)
    device.guard(key, reference)
    return kept


@contextmanager
def still(runtime: Runtime) -> Iterator[None]:
    """While no other thread comes in between: what `contents` is, it is till the end of the block,
    in which it is to be given to the device."""
    lock = runtime.lock  # first, as launches do
    with restoring(lock), lock, runtime.device.holding_writers():
        yield


def is_exposed(array: Storage) -> bool:
    """Whether others may write to the memory of an array without a word."""
    key = array.buffer.key
    return any(one.buffer.key == key for one in array.runtime.exported)
