"""Base class of the steps of a recording, and the steps that are not calls.

`State` is a snapshot of arrays. `ConstantOverwrite` is a constant stored over a derivative.
`restore_array` and `copy_or_add` copy and add whole arrays without notifying the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vkchi.fields.storage import Storage
from vkchi.interrupts.bounded import insert_bounded
from vkchi.interrupts.locks import restoring
from vkchi.launch.executable import Executable
from vkchi.tape.ledger import Index

MOST_MOVERS = 256  # limit on `runtime.movers`


class TapeStep:
    """An action that can be repeated and differentiated; here neither has an effect.

    If `needs_end`, its gradient is a custom one. It reads the arrays as they are at the end of the
    tape, not as they were before the step.
    """

    needs_end = False

    def repeat(self) -> None:
        pass

    def run(self) -> None:
        pass


class State(TapeStep):
    """Snapshot of arrays. As a step, it repeats a write by Python, which is not differentiated."""

    def __init__(self, arrays: Iterable[Storage] = ()) -> None:
        self.copies: dict[int, tuple[Storage, Storage]] = {}
        for array in arrays:
            self.keep(array)

    def keep(self, array: Storage) -> None:
        self.copies[id(array)] = array, array.copied()

    @property
    def arrays(self) -> list[Storage]:
        return [array for array, _ in self.copies.values()]

    @property
    def size_bytes(self) -> int:
        return sum(array.size_bytes for array in self.arrays)

    def repeat(self) -> None:
        for array, copy in self.copies.values():
            restore_array(array, copy)

    def add(self) -> None:
        for array, copy in self.copies.values():
            copy_or_add(array, copy, adds=True)


class ConstantOverwrite(TapeStep):
    """A constant that Python stored to the element `at` of an array (None: to all elements).

    `derivatives` are the gradients of the array, cleared when the step runs.
    """

    def __init__(self, derivatives: tuple[Storage, ...], at: Index | None) -> None:
        self.derivatives, self.at = derivatives, at

    def run(self) -> None:
        for array in self.derivatives:
            clear_elements(array, self.at)


def clear_elements(array: Storage, at: Index | None) -> None:
    if at is None:
        array.fill(0)
    else:
        axes = len(array.shape)
        array.write(array.index(at[:axes]) + at[axes:], 0)


# --- copies without notification -----------------------------------------------------------------


def restore_array(array: Storage, copy: Storage) -> None:
    """Restore an array from its copy, without notifying the recording."""
    if array.is_own:
        array.device.copy(copy.buffer, array.buffer, array.size_bytes)
    else:  # elements of other arrays are interleaved
        copy_or_add(array, copy, adds=False)


def copy_or_add(array: Storage, copy: Storage, *, adds: bool) -> None:
    """Set `array` to `copy`, or (`adds`) add `copy` to it, on the device."""
    with restoring(array.runtime.lock), array.runtime.lock:
        compiled_copy(array, adds=adds)(array, copy)


def compiled_copy(array: Storage, *, adds: bool) -> Callable[..., None]:
    """A function of target and source, for arrays of this type and layout; memoized."""
    runtime, t = array.runtime, array.array_type
    found = runtime.movers.get((t, adds))
    if found is None:
        from vkchi.autodiff.versions import copy_array  # imported late: few layouts are interleaved
        from vkchi.compiler import build_artifact
        from vkchi.ir.builder import Builder
        from vkchi.ir.core import Func, Param

        b, (target, source) = Builder(), (Param(t, name) for name in ("target", "source"))
        with b.region() as body:
            copy_array(b, source, target, adds=adds)
            b.emit("yield")
        fn = Func("move", (target, source), body)
        executable = Executable(runtime, build_artifact(fn, runtime.options, runtime.device.caps))

        def found(target: Storage, source: Storage) -> None:
            executable.launch(executable.bind((), {"target": target, "source": source}))

        insert_bounded(runtime.movers, (t, adds), found, MOST_MOVERS)
    return found
