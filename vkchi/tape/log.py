"""What recordings write down: steps, in the order in which they were done.

Owns: `Step`, and the steps that are no calls: `State`, what some arrays held; `Cut`, a constant
over what had a derivative; copies and sums of whole arrays that nobody notices. Must not know:
kernels, how steps come about.
"""

from __future__ import annotations

from collections.abc import Iterable

from vkchi.fields.storage import Storage
from vkchi.interrupts.bounded import remember
from vkchi.interrupts.locks import restoring
from vkchi.launch.executable import Executable
from vkchi.tape.ledger import Index

MOST_MOVERS = 256  # of a runtime that are kept


class Step:
    """Something that can be done again, and differentiated. If `needs_end`, its gradient is the
    user's, and finds the arrays as they are after the tape, not as the step found them."""

    needs_end = False

    def repeat(self) -> None:
        """Do it again, on the arrays as they are."""

    def run(self) -> None:
        """Add to the adjoints; the arrays are as it found them."""


class State(Step):
    """What some arrays hold, copied. As a step: that Python put it there, which is not
    differentiated."""

    def __init__(self, arrays: Iterable[Storage] = ()) -> None:
        self.copies: dict[int, tuple[Storage, Storage]] = {}
        for array in arrays:
            self.keep(array)

    def keep(self, array: Storage) -> None:
        """Copy one more."""
        self.copies[id(array)] = array, array.copied()

    @property
    def arrays(self) -> list[Storage]:
        """Whose contents these are."""
        return [array for array, _ in self.copies.values()]

    @property
    def size_bytes(self) -> int:
        """How much they hold."""
        return sum(array.size_bytes for array in self.arrays)

    def repeat(self) -> None:
        """Put it back; a tape does not notice."""
        for array, copy in self.copies.values():
            put_back(array, copy)

    def add(self) -> None:
        """Add it to what is there now; a tape does not notice."""
        for array, copy in self.copies.values():
            move(array, copy, adds=True)


class Cut(Step):
    """A constant was written to an element, or (None) to all, of what these are the derivatives
    of."""

    def __init__(self, derivatives: tuple[Storage, ...], at: Index | None) -> None:
        self.derivatives, self.at = derivatives, at

    def run(self) -> None:
        """What stood there before has no influence."""
        for array in self.derivatives:
            blank(array, self.at)


def blank(array: Storage, at: Index | None) -> None:
    """Put 0 into an element, or component of one, or (None) everywhere."""
    if at is None:
        array.fill(0)
    else:
        axes = len(array.shape)
        array.write(array.index(at[:axes]) + at[axes:], 0)


# --- copies that nobody notices ------------------------------------------------------------------


def put_back(array: Storage, copy: Storage) -> None:
    """Make an array hold what its copy holds; a tape does not notice."""
    if array.is_own:
        array.device.copy(copy.buffer, array.buffer, array.size_bytes)
    else:  # other arrays' numbers lie between
        move(array, copy, adds=False)


def move(array: Storage, copy: Storage, *, adds: bool) -> None:
    """Copy or add, on the device."""
    with restoring(array.runtime.lock), array.runtime.lock:
        executable = mover(array, adds=adds)
        executable.launch(executable.bind((), {"target": array, "source": copy}))


def mover(array: Storage, *, adds: bool) -> Executable:
    """What copies or adds arrays of this type and layout; made once."""
    runtime, t = array.runtime, array.array_type
    found = runtime.movers.get((t, adds))
    if found is None:
        from vkchi.autodiff.versions import copy_array  # few arrays have others' numbers between
        from vkchi.compiler import build
        from vkchi.ir.builder import Builder
        from vkchi.ir.core import Func, Param

        b, (target, source) = Builder(), (Param(t, name) for name in ("target", "source"))
        with b.region() as body:
            copy_array(b, source, target, adds=adds)
            b.emit("yield")
        fn = Func("move", (target, source), body)
        found = Executable(runtime, build(fn, runtime.options, runtime.device.caps))
        remember(runtime.movers, (t, adds), found, MOST_MOVERS)
    return found
