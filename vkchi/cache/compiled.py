"""A kernel as it is launched, be it from the compiler or from the cache.

Owns: the record. Must not know: either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vkchi.target.artifact import Artifact, Interface
from vkchi.tuples import NamedTuple

if TYPE_CHECKING:
    from vkchi.frontend.dependencies import Dependencies
    from vkchi.ir.core import Func


class Compiled(NamedTuple):
    """A kernel for one signature: what was built, what launches bind to it, what reads the Func it
    was built of, the fields among what is bound, by parameter name, and what lowering read."""

    artifact: Artifact
    interface: Interface
    read_func: Callable[[], Func]
    fields: dict[str, Any]
    dependencies: Dependencies | None = None

    @property
    def func(self) -> Func:
        """The kernel as IR."""
        return self.read_func()
