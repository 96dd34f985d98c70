"""Copies and sums of whole arrays on the device that nobody notices.

Owns: what copies or adds arrays of a type, made once for a runtime. Must not know: tapes, kernels.
"""

from __future__ import annotations

from vkchi.fields.storage import Storage
from vkchi.interrupts.bounded import remember
from vkchi.interrupts.locks import restoring
from vkchi.launch.executable import Executable

MOST_MOVERS = 256  # of a runtime that are kept


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
        from vkchi.autodiff.memory import copy_array  # few arrays have others' numbers between
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
