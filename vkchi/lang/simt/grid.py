"""`ti.simt.grid`: all invocations of a dispatch."""

from __future__ import annotations

from vkchi.lang.function import kernel_function


@kernel_function
def memfence() -> None:
    """Order this invocation's memory accesses for all others."""
