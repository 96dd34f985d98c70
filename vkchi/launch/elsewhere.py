"""`ti.device`: use another device than that of `init`, in a `with` block.

Example:

    with ti.device("llvmpipe"):
        x = ti.ndarray(ti.f32, 4)
        step(x)
"""

from __future__ import annotations

from typing import Any

from vkchi.errors import DeviceError, KernelRuntimeError
from vkchi.interrupts.contexts import SafeContext, restoring
from vkchi.runtime import (
    CHOSEN,
    DeviceContext,
    Runtime,
    RuntimeState,
    all_runtimes,
    arch_of,
    current_runtime,
    innermost_context,
)
from vkchi.target.devices import is_selected_by
from vkchi.target.options import Config


class DeviceBlock(SafeContext):
    """Context manager returned by `ti.device`.

    Inside, kernels of this thread run and arrays are made on its device.
    """

    runtime: Runtime
    above: DeviceContext | None = None

    def __init__(self, name: str | int) -> None:
        self._name = name

    def __enter__(self) -> DeviceBlock:
        for runtime in all_runtimes():
            if runtime.tape is not None:
                raise KernelRuntimeError(
                    "inside a tape, forward mode or a recording the device stays the same: what "
                    "another one does would not be seen"
                )
        if self.is_entered and not self.is_left:
            raise KernelRuntimeError(
                "this block of ti.device is entered already, here or in another thread: give each "
                "`with` a ti.device(...) of its own"
            )
        self.runtime, self.above = _runtime_on(self._name), innermost_context()
        self.enter()
        CHOSEN.set(self)
        return self

    def leave(self, kind: Any, error: Any, traceback: Any) -> None:
        CHOSEN.set(self.above)
        self.is_entered = False


def device(name: str | int) -> DeviceBlock:
    """Use another device in a `with` block of this thread, with the options of `init`.

    The device is opened at first use and stays open until `ti.reset()`. An array belongs to the
    device it was made on; kernels accept only arrays of their own device.

    Args:
        name: the device's index or a part of its name.

    Returns:
        A context manager.

    Raises:
        DeviceError: if `name` is None, and on entering the block if no device matches.
        KernelRuntimeError: on entering the block inside a tape, forward mode or a recording, and
            for a block that is already entered.
    """
    if name is None:  # `open_device` takes None for any device
        raise DeviceError("no Vulkan device matches None: give an index, or a part of a name")
    return DeviceBlock(name)


def _runtime_on(name: str | int) -> Runtime:
    from vkchi.device import open_device  # here, because `cli.compile` replaces it

    base = RuntimeState.runtime or current_runtime()
    with restoring(RuntimeState.opening), RuntimeState.opening:
        for runtime in all_runtimes():
            if is_selected_by(runtime.device.info, name):
                return runtime
        opened = open_device("any", name, fallback=False)
        config = Config({**vars(base.config), "arch": arch_of(opened, [])})
        made = Runtime(opened, base.options, config, deferred=base.deferred)
        RuntimeState.others.append(made)
        return made
