"""The one current runtime: what `init` makes, `reset` frees, and everything above asks for.

Owns: the device of this process and the options it was made with. Must not know: kernels, fields, IR.

    >>> current().device.info.name            # after ti.init()
    'llvmpipe (LLVM 15.0.6, 256 bits)'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from vkchi.device import Device
from vkchi.errors import KernelRuntimeError
from vkchi.options import Options
from vkchi.types import Defaults


@dataclass
class Runtime:
    """A device and its options. `closing` are called once, before the device is closed."""

    device: Device
    options: Options
    closing: list[Callable[[], None]] = field(default_factory=list)
    launches: int = 0

    def close(self) -> None:
        """Wait for the device and free everything made on it. Idempotent."""
        hooks, self.closing = self.closing, []
        for hook in hooks:
            hook()
        self.device.close()


class _Slot:
    runtime: Runtime | None = None


def current() -> Runtime:
    """The runtime. Raises KernelRuntimeError before `init` and after `reset`."""
    runtime = _Slot.runtime
    if runtime is None:
        raise KernelRuntimeError("vkchi is not initialised: call ti.init() first")
    return runtime


def is_initialised() -> bool:
    """Whether there is a current runtime."""
    return _Slot.runtime is not None


def install(runtime: Runtime | None) -> None:
    """Make `runtime` the current one after closing the one before."""
    old, _Slot.runtime = _Slot.runtime, None
    if old is not None:
        old.close()
    options = runtime.options if runtime else Options()
    Defaults.fp, Defaults.ip = options.default_fp, options.default_ip
    _Slot.runtime = runtime
