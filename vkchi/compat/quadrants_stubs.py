"""Stand-ins for inner names of Quadrants that programs read or replace.

Genesis 1.4.5 uses them. The docstring of each says for what.

    impl.PyQuadrants.materialize = own_function     # called before kernels run
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import vkchi as ti
from vkchi.compat import core_stubs
from vkchi.compat.core_stubs import log_message
from vkchi.kernel import Kernel
from vkchi.runtime import current_runtime, find_runtime


class Program:
    """`impl.get_runtime().prog`: Genesis waits for the device after delayed fills."""

    @staticmethod
    def synchronize() -> None:
        """Wait for the device."""
        ti.sync()


class PyQuadrants:
    """`impl.PyQuadrants`: Genesis replaces `materialize` and `clear`, to fill fields before their
    first use and to forget such fills at `qd.reset`.

    A replaced `materialize` is called before kernels that are new to their arguments. Python reads
    of fields do not call it.
    """

    prog = Program()

    @property
    def default_fp(self) -> Any:
        """Genesis chooses tolerances by it."""
        return core_stubs.get_runtime().default_fp

    @property
    def default_ip(self) -> Any:
        return core_stubs.get_runtime().default_ip

    def materialize(self) -> None:
        """Nothing: vkchi allocates fields when they are made."""

    def clear(self) -> None:
        """Nothing: `qd.reset` frees fields."""


PY_QUADRANTS = PyQuadrants()
NOT_REPLACED = PyQuadrants.materialize


def get_runtime() -> PyQuadrants:
    """`impl.get_runtime`."""
    return PY_QUADRANTS


class MaterializingKernel(Kernel):
    """A kernel that calls a replaced `PyQuadrants.materialize`.

    Repeated calls with the same arrays do not: they were made, and thus filled, before.
    """

    def _run(self, *args: Any, **options: Any) -> Any:
        if PyQuadrants.materialize is not NOT_REPLACED:
            PY_QUADRANTS.materialize()
        return super()._run(*args, **options)


def kernel(
    fn: FunctionType | None = None, *, fastcache: bool = False, graph: bool = False
) -> Kernel | Callable[[FunctionType], Kernel]:
    """`ti.kernel`, whose kernels call a replaced `PyQuadrants.materialize`."""

    def make(fn: FunctionType) -> Kernel:
        made = ti.kernel(fastcache=fastcache, graph=graph)(fn)
        return MaterializingKernel(fn) if type(made) is Kernel else made

    return make if fn is None else make(fn)


def reset() -> None:
    """`ti.reset`, after `PyQuadrants.clear`."""
    if find_runtime() is not None:
        PY_QUADRANTS.clear()
    ti.reset()


def get_max_shared_memory_bytes(is_lowerbound_ok: bool = False) -> int:
    """Bytes of shared memory of a workgroup: Genesis chooses sizes of tiles by it.

    `is_lowerbound_ok` has no effect: the value is exact.
    """
    return current_runtime().device.caps.shared_bytes


def _get_logging(level: str) -> Callable[[object], None]:
    """Function that logs at a level: Genesis restores `qd._logging.warn` and others with it."""
    return partial(log_message, level)


# --- modules -------------------------------------------------------------------------------------


class OwnModule(ModuleType):
    """A module of `vkchi.quadrants`; names that it lacks are those of another module of vkchi."""

    def __init__(self, path: str, others: str, **names: object) -> None:
        super().__init__(f"vkchi.quadrants.{path}", f"Quadrants' {path}.")
        self.__path__: list[str] = []
        self._others = importlib.import_module(others)
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._others, name)


IMPL = OwnModule(
    "lang.impl", "vkchi.lang.impl", PyQuadrants=PyQuadrants, get_runtime=get_runtime,
    get_max_shared_memory_bytes=get_max_shared_memory_bytes,
)  # fmt: skip
# Genesis sets `__debug__` there, to turn off checks of arguments.
TEMPLATE_MAPPER = OwnModule("lang._template_mapper", "vkchi.lang", __builtins__={})
# By path; each has the names of vkchi's module too.
MODULES: dict[str, OwnModule] = {
    "lang": OwnModule("lang", "vkchi.lang", impl=IMPL, _template_mapper=TEMPLATE_MAPPER),
    "lang.impl": IMPL,
    "lang._template_mapper": TEMPLATE_MAPPER,
    "_logging": OwnModule("_logging", "vkchi._logging", _get_logging=_get_logging),
}
